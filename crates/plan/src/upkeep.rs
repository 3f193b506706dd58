//! Transaction ids, and how long it takes to vacuum everything.
//!
//! Sources: `vacuum_delay_point` and the balancing of costs in `src/backend/postmaster/autovacuum.c`; the documentation of
//! `vacuum_cost_limit`: the workers of a node share it.

use crate::book::{Book, whole};
use crate::layout::fullest;
use record::number;
use record::plan::input::Input;
use record::plan::{Layout, Size, Transactions, Unit, Vacuum};

/// Bits of a page in the visibility map.
const VISIBILITY_BITS: u64 = 2;
/// WAL of freezing a page without its image: header, block, plan, offsets of its rows.
const WAL_FREEZE_BYTES: f64 = 100.0;

/// Bytes that a node's vacuum reads: heap and TOAST. Indexes are left out: no row is dead after a load.
fn node_bytes(input: &Input, size: &Size) -> f64 {
    (size.heap_bytes as f64 + size.toast_bytes as f64) / input.hardware.nodes as f64
}

pub(crate) fn transactions(input: &Input, size: &Size, book: &mut Book) -> Transactions {
    let (server, load) = (&input.server, input.loading.transactions_per_node);
    let limit = server.freeze_max_age.max(1);
    let given = [
        ("age", server.age as f64, Unit::Count),
        ("transactions of the load", load as f64, Unit::Count),
        ("autovacuum_freeze_max_age", limit as f64, Unit::Count),
    ];
    let reached = server.age.saturating_add(load);
    let times = reached / limit;
    let expression = "floor((age + transactions of the load) / autovacuum_freeze_max_age)";
    book.put("wraparound vacuums during the load", expression, &given, Unit::Count, times as f64);
    let left = limit - reached % limit;
    let left_s = input.workload.tps.filter(|tps| *tps > 0.0).map(|tps| {
        let nodes = input.hardware.nodes as f64;
        let given = [
            ("ids left", left as f64, Unit::Count),
            ("transactions", tps, Unit::PerSecond),
            ("nodes", nodes, Unit::Count),
        ];
        let seconds = left as f64 * nodes / tps;
        book.put(
            "time to the wraparound vacuum",
            "ids left / (transactions / nodes)",
            &given,
            Unit::Seconds,
            seconds,
        )
    });
    if times > 0 {
        book.notes.push(format!(
            "the load takes {} transaction ids on each node: {} against wraparound begin before it ends",
            number::count(load),
            number::counted(times, "vacuum")
        ));
    }
    let bytes = node_bytes(input, size);
    let pages = bytes / input.server.block_bytes as f64;
    let map = pages * VISIBILITY_BITS as f64 / 8.0;
    let given = [("pages", pages, Unit::Count), ("bits of a page", VISIBILITY_BITS as f64, Unit::Count)];
    book.put(
        "wraparound vacuum of frozen rows reads",
        "pages * bits of a page / 8",
        &given,
        Unit::Bytes,
        map,
    );
    Transactions {
        load,
        wraparounds_during_load: times,
        left,
        left_s,
        vacuum_bytes: whole(bytes),
        vacuum_bytes_frozen: whole(map),
    }
}

/// The rate of one worker with the cost delay; `None` without a delay, or where pages cost nothing: then no worker ever reaches the limit.
fn delayed(input: &Input, workers: u64, book: &mut Book) -> Option<f64> {
    let server = &input.server;
    let cost = server.vacuum_cost_page_miss + server.vacuum_cost_page_dirty;
    (server.vacuum_cost_delay_ms > 0.0 && cost > 0.0).then(|| {
        let given = [
            ("cost limit", server.vacuum_cost_limit, Unit::Count),
            ("workers", workers as f64, Unit::Count),
            ("cost of a page", cost, Unit::Count),
            ("delay", server.vacuum_cost_delay_ms * 1e3, Unit::Microseconds),
            ("block", server.block_bytes as f64, Unit::Bytes),
        ];
        let pages_per_s =
            server.vacuum_cost_limit / workers as f64 / cost / (server.vacuum_cost_delay_ms / 1e3);
        let rate = pages_per_s * server.block_bytes as f64;
        let expression = "cost limit / workers / cost of a page / delay * block";
        book.put("vacuum rate of a worker with the delay", expression, &given, Unit::BytesPerSecond, rate)
    })
}

pub(crate) fn vacuum(input: &Input, layout: &Layout, size: &Size, book: &mut Book) -> Vacuum {
    let (server, hardware) = (&input.server, &input.hardware);
    let bytes = node_bytes(input, size);
    let (on_node, _) = fullest(input, layout);
    let tables = input.tables.iter().filter(|table| !table.is_whole && table.rows > 0).count().max(1) as u64;
    let workers = server.vacuum_workers.clamp(1, on_node.max(1) * tables);
    let delayed = delayed(input, workers, book);
    let largest = bytes / on_node.max(1) as f64;
    let by_delay_s = delayed.map(|rate| {
        // Each worker vacuums one table at a time; what is left over waits for the next round.
        let rounds = on_node.div_ceil(workers.min(on_node.max(1))) as f64;
        let given = [
            ("bytes of a partition", largest, Unit::Bytes),
            ("rounds", rounds, Unit::Count),
            ("vacuum rate of a worker with the delay", rate, Unit::BytesPerSecond),
        ];
        let expression = "bytes of a partition * rounds / vacuum rate of a worker with the delay";
        book.put("vacuum by cost delay", expression, &given, Unit::Seconds, largest * rounds / rate)
    });
    let node = ("bytes of a node", bytes, Unit::Bytes);
    let by_read_s = hardware.disk_read_bytes_per_s.map(|rate| {
        let given = [
            node,
            ("disks", hardware.disks as f64, Unit::Count),
            ("read rate of a disk", rate, Unit::BytesPerSecond),
        ];
        let seconds = bytes / (hardware.disks as f64 * rate);
        book.put(
            "vacuum by reading",
            "bytes of a node / (disks * read rate of a disk)",
            &given,
            Unit::Seconds,
            seconds,
        )
    });
    let pages = bytes / server.block_bytes as f64;
    let image = if server.is_full_page_writes_on { server.block_bytes as f64 } else { 0.0 };
    let given = [
        ("pages", pages, Unit::Count),
        ("page image", image, Unit::Bytes),
        ("freeze record", WAL_FREEZE_BYTES, Unit::Bytes),
    ];
    let wal = pages * (image + WAL_FREEZE_BYTES);
    let wal = book.put("WAL of the vacuum", "pages * (page image + freeze record)", &given, Unit::Bytes, wal);
    let by_wal_s = hardware.wal_bytes_per_s.map(|rate| {
        let given =
            [("WAL of the vacuum", wal, Unit::Bytes), ("WAL rate of a node", rate, Unit::BytesPerSecond)];
        book.put("vacuum by WAL", "WAL of the vacuum / WAL rate of a node", &given, Unit::Seconds, wal / rate)
    });
    let all = [("cost delay", by_delay_s), ("reading", by_read_s), ("WAL", by_wal_s)];
    let known = all.into_iter().filter_map(|(name, seconds)| Some((name, seconds?)));
    let longest = known.max_by(|left, right| left.1.total_cmp(&right.1));
    let mut vacuum = Vacuum {
        workers,
        delayed_bytes_per_s: delayed,
        by_delay_s,
        by_read_s,
        by_wal_s,
        wal_bytes: whole(wal),
        duration_s: longest.map(|(_, seconds)| seconds),
        limited_by: longest.map(|(name, _)| name.to_string()).unwrap_or_default(),
    };
    if input.loading.is_frozen {
        // The rows were frozen when they were loaded: only the visibility map is read.
        vacuum.wal_bytes = 0;
        vacuum.duration_s = Some(0.0);
        vacuum.limited_by = "frozen by the load".into();
    }
    vacuum
}

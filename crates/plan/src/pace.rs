//! Rates and durations of the load, its WAL, and the clients that it needs.

use crate::book::{Book, whole};
use crate::layout::fullest;
use record::number;
use record::plan::input::{Input, Rate};
use record::plan::{Clients, Layout, Size, Space, Time, Unit, Wal};

/// Connections of the load to a node beside its streams: control and monitoring.
const CONNECTIONS_BESIDE: u64 = 3;
/// A client host is planned to be busy to this share of its cores and its network.
const CLIENT_BUSY: f64 = 0.7;

/// The time of a load whose rows get their keys as they arrive, at a measured rate. How the rows are spread over the nodes is not known.
pub(crate) fn time_of_values(input: &Input, size: &Size, book: &mut Book) -> Time {
    let mut time = needed(input, size.rows, size, book);
    let Some(rate) = &input.loading.rate else { return time };
    let values = size.value_bytes as f64;
    time.rows_per_s = Some(rate.bytes_per_s / (values / size.rows.max(1) as f64));
    let given = [("value bytes", values, Unit::Bytes), ("rate", rate.bytes_per_s, Unit::BytesPerSecond)];
    let total = book.put("duration", "value bytes / rate", &given, Unit::Seconds, values / rate.bytes_per_s);
    time.total_s = Some(total);
    time.total_s_low = Some(values / rate.high_bytes_per_s);
    time.total_s_high = Some(values / rate.low_bytes_per_s);
    spare(&mut time, input, total, rate, book);
    time
}

/// The rows to load, and the rate that a deadline needs; a note if no rate is known.
fn needed(input: &Input, rows: u64, size: &Size, book: &mut Book) -> Time {
    let loading = &input.loading;
    let mut time = Time { rows, ..Time::default() };
    let values = size.value_bytes as f64;
    let per_row = values / size.rows.max(1) as f64;
    if let Some(deadline) = loading.deadline_s {
        let given = [("value bytes", values, Unit::Bytes), ("deadline", deadline, Unit::Seconds)];
        let needed = book.put(
            "rate needed",
            "value bytes / deadline",
            &given,
            Unit::BytesPerSecond,
            values / deadline,
        );
        time.needed_bytes_per_s = Some(needed);
        time.needed_rows_per_s = Some(needed / per_row);
    }
    if loading.rate.is_none() {
        book.notes.push("no rate is known, so there is no duration: give --rate or --from RUN".into());
    }
    time
}

/// What is left of the deadline, if there is one.
fn spare(time: &mut Time, input: &Input, total: f64, rate: &Rate, book: &mut Book) {
    let Some(deadline) = input.loading.deadline_s else { return };
    let given = [("deadline", deadline, Unit::Seconds), ("duration", total, Unit::Seconds)];
    time.spare_s =
        Some(book.put("spare time", "deadline - duration", &given, Unit::Seconds, deadline - total));
    judge(time, deadline, rate, book);
}

pub(crate) fn time(input: &Input, layout: &Layout, size: &Size, space: &Space, book: &mut Book) -> Time {
    let rows = if space.is_known { size.rows.min(space.rows_max) } else { size.rows };
    let mut time = needed(input, rows, size, book);
    let Some(rate) = &input.loading.rate else { return time };
    let per_row = size.value_bytes as f64 / size.rows.max(1) as f64;
    time.rows_per_s = Some(rate.bytes_per_s / per_row);
    let index = index_seconds(input, layout, rows, book);
    let bytes = per_row * rows as f64;
    let uneven = unevenness(input, layout);
    let given = [
        ("value bytes", bytes, Unit::Bytes),
        ("rate", rate.bytes_per_s, Unit::BytesPerSecond),
        ("rows of the fullest node, of the mean", uneven, Unit::Count),
    ];
    let expression = "value bytes / rate * rows of the fullest node, of the mean";
    let copy = book.put("copy", expression, &given, Unit::Seconds, bytes / rate.bytes_per_s * uneven);
    let given = [("copy", copy, Unit::Seconds), ("indexes", index, Unit::Seconds)];
    let total = book.put("duration", "copy + indexes", &given, Unit::Seconds, copy + index);
    (time.copy_s, time.index_s, time.total_s) = (Some(copy), Some(index), Some(total));
    time.total_s_low = Some(bytes / rate.high_bytes_per_s * uneven + index);
    time.total_s_high = Some(bytes / rate.low_bytes_per_s * uneven + index);
    spare(&mut time, input, total, rate, book);
    time
}

/// Rows of the fullest node relative to the mean: the nodes do not wait for each other, and the one with the most partitions ends last.
fn unevenness(input: &Input, layout: &Layout) -> f64 {
    let (on_node, _) = fullest(input, layout);
    on_node as f64 * input.hardware.nodes as f64 / layout.partitions.max(1) as f64
}

fn judge(time: &Time, deadline: f64, rate: &Rate, book: &mut Book) {
    let late = time.spare_s.is_some_and(|spare| spare < 0.0);
    let may_be_late = time.total_s_high.is_some_and(|high| high > deadline);
    let words = format!(
        "at {}/s the load takes {}, the deadline is {}",
        number::bytes(rate.bytes_per_s),
        number::duration(time.total_s.unwrap_or_default()),
        number::duration(deadline)
    );
    if late {
        let needed = time.needed_bytes_per_s.unwrap_or_default();
        book.problem(2, format!("it will be late: {words}; {}/s are needed", number::bytes(needed)));
    } else if may_be_late {
        book.notes.push(format!(
            "it may be late: {words}, but {} at the low end of the rate",
            number::duration(time.total_s_high.unwrap_or_default())
        ));
    }
}

/// Time of building the indexes: leaf by leaf, as many at once as there are streams.
fn index_seconds(input: &Input, layout: &Layout, rows: u64, book: &mut Book) -> f64 {
    let all: u64 = input.tables.iter().map(|table| table.rows).sum();
    let indexed = input.tables.iter().filter(|table| table.index_bytes_per_row > 0.0);
    let entries = indexed.map(|table| table.rows as f64).sum::<f64>() * rows as f64 / all.max(1) as f64;
    let nodes = input.hardware.nodes;
    let (on_node, _) = fullest(input, layout);
    let builds = input.loading.streams.div_ceil(nodes).clamp(1, on_node.max(1)) * nodes;
    let rate = input.loading.index_rows_per_s.max(1.0);
    // A node with ten leaves and eight builds at once needs two rounds.
    let rounds = on_node.div_ceil(builds / nodes) as f64;
    let given = [
        ("entries", entries, Unit::Count),
        ("partitions", layout.partitions as f64, Unit::Count),
        ("rounds", rounds, Unit::Count),
        ("entries of one build", rate, Unit::PerSecond),
    ];
    let seconds = entries / layout.partitions as f64 * rounds / rate;
    book.put(
        "indexes",
        "entries / partitions * rounds / entries of one build",
        &given,
        Unit::Seconds,
        seconds,
    )
}

pub(crate) fn wal(input: &Input, size: &Size, time: &Time, book: &mut Book) -> Wal {
    let server = &input.server;
    let spread = 1.0 + server.checkpoint_completion_target;
    let given = [
        ("max_wal_size", server.max_wal_bytes as f64, Unit::Bytes),
        ("checkpoint_completion_target", server.checkpoint_completion_target, Unit::Share),
    ];
    let expression = "max_wal_size / (1 + checkpoint_completion_target)";
    let distance = book.put(
        "WAL between checkpoints",
        expression,
        &given,
        Unit::Bytes,
        server.max_wal_bytes as f64 / spread,
    );
    let mut wal = Wal {
        per_value_byte: size.wal_bytes as f64 / size.value_bytes.max(1) as f64,
        checkpoint_bytes: whole(distance),
        ..Wal::default()
    };
    let Some(rows_per_s) = time.rows_per_s else { return wal };
    let of_copy =
        |table: &record::plan::input::TableSize| table.wal_bytes_per_row - table.index_wal_bytes_per_row;
    let copied: f64 = input.tables.iter().map(|table| table.rows as f64 * of_copy(table)).sum();
    let per_row = copied / size.rows.max(1) as f64;
    let nodes = input.hardware.nodes as f64;
    let given = [
        ("rows", rows_per_s, Unit::PerSecond),
        ("WAL per row", per_row, Unit::BytesPerRow),
        ("nodes", nodes, Unit::Count),
    ];
    let rate = book.put(
        "WAL of a node",
        "rows * WAL per row / nodes",
        &given,
        Unit::BytesPerSecond,
        rows_per_s * per_row / nodes,
    );
    let given = [
        ("checkpoint_timeout", server.checkpoint_timeout_s, Unit::Seconds),
        ("WAL between checkpoints", distance, Unit::Bytes),
        ("WAL of a node", rate, Unit::BytesPerSecond),
    ];
    let seconds = server.checkpoint_timeout_s.min(distance / rate);
    let expression = "min(checkpoint_timeout, WAL between checkpoints / WAL of a node)";
    let seconds = book.put("time between checkpoints", expression, &given, Unit::Seconds, seconds);
    let given = [
        ("WAL of a node", rate, Unit::BytesPerSecond),
        ("checkpoint_timeout", server.checkpoint_timeout_s, Unit::Seconds),
        ("checkpoint_completion_target", server.checkpoint_completion_target, Unit::Share),
    ];
    let wanted = rate * server.checkpoint_timeout_s * spread;
    let expression = "WAL of a node * checkpoint_timeout * (1 + checkpoint_completion_target)";
    let wanted = book.put("max_wal_size wanted", expression, &given, Unit::Bytes, wanted);
    (wal.bytes_per_s, wal.checkpoint_s) = (Some(rate), Some(seconds));
    wal.max_wal_size_wanted = Some(whole(wanted));
    judge_wal(input, &wal, book);
    wal
}

/// Whether checkpoints are forced by size, and whether a node can write its WAL.
fn judge_wal(input: &Input, wal: &Wal, book: &mut Book) {
    let (Some(rate), Some(seconds), Some(wanted)) =
        (wal.bytes_per_s, wal.checkpoint_s, wal.max_wal_size_wanted)
    else {
        return;
    };
    let server = &input.server;
    if wanted > server.max_wal_bytes {
        book.notes.push(format!(
            "checkpoints would come every {}, forced by max_wal_size: {} is needed for one in {}",
            number::duration(seconds),
            number::bytes(wanted as f64),
            number::duration(server.checkpoint_timeout_s)
        ));
    }
    if let Some(limit) = input.hardware.wal_bytes_per_s.filter(|limit| *limit < rate) {
        book.problem(
            3,
            format!(
                "the load writes {}/s of WAL on a node, which can write {}/s",
                number::bytes(rate),
                number::bytes(limit)
            ),
        );
    }
}

pub(crate) fn clients(input: &Input, time: &Time, book: &mut Book) -> Clients {
    let (hardware, loading, workload) = (&input.hardware, &input.loading, &input.workload);
    let connections = loading.streams.div_ceil(hardware.nodes) + CONNECTIONS_BESIDE;
    let given = [
        ("streams", loading.streams as f64, Unit::Count),
        ("nodes", hardware.nodes as f64, Unit::Count),
        ("others", CONNECTIONS_BESIDE as f64, Unit::Count),
    ];
    book.put(
        "connections of a node",
        "ceil(streams / nodes) + others",
        &given,
        Unit::Count,
        connections as f64,
    );
    let sessions = workload.sessions.div_ceil(hardware.nodes);
    for (who, count) in [("load", connections), ("run", sessions)] {
        let most = input.server.max_connections;
        if most > 0 && count > most {
            book.problem(
                4,
                format!("{who} needs {count} connections to a node, whose max_connections is {most}"),
            );
        }
    }
    // Rows per second, unless only a deadline is known: then what it needs.
    let rows_per_s = time.rows_per_s.or(time.needed_rows_per_s);
    let load_cores = rows_per_s.map(|rows| {
        let given = [
            ("rows", rows, Unit::PerSecond),
            ("client CPU per row", loading.client_us_per_row, Unit::Microseconds),
        ];
        let cores = rows * loading.client_us_per_row / 1e6;
        book.put("client cores of the load", "rows * client CPU per row", &given, Unit::Count, cores)
    });
    let run_cores = workload.tps.map(|tps| {
        let us = workload.client_us_per_transaction;
        let given =
            [("transactions", tps, Unit::PerSecond), ("client CPU per transaction", us, Unit::Microseconds)];
        let expression = "transactions * client CPU per transaction";
        book.put("client cores of the run", expression, &given, Unit::Count, tps * us / 1e6)
    });
    let cores = load_cores.into_iter().chain(run_cores).reduce(f64::max);
    let sent = loading.rate.as_ref().map(|rate| rate.bytes_per_s).or(time.needed_bytes_per_s).unwrap_or(0.0);
    let hosts = cores.map(|cores| {
        let given = [
            ("cores", cores, Unit::Count),
            ("cores of a host", hardware.client_cores as f64, Unit::Count),
            ("sent", sent, Unit::BytesPerSecond),
            ("network of a host", hardware.client_network_bytes_per_s, Unit::BytesPerSecond),
            ("busy", CLIENT_BUSY, Unit::Share),
        ];
        let by_cores = cores / hardware.client_cores.max(1) as f64;
        let by_network = sent / hardware.client_network_bytes_per_s.max(1.0);
        let hosts = (by_cores.max(by_network) / CLIENT_BUSY).ceil().max(1.0);
        let expression = "ceil(max(cores / cores of a host, sent / network of a host) / busy)";
        whole(book.put("client hosts", expression, &given, Unit::Count, hosts))
    });
    let copies = (1 + hardware.standbys) as f64;
    let given = [("standbys", hardware.standbys as f64, Unit::Count)];
    let used = book.put("replica utilisation", "1 / (1 + standbys)", &given, Unit::Share, 1.0 / copies);
    Clients {
        connections_per_node: connections,
        sessions_per_node: sessions,
        load_cores,
        run_cores,
        hosts,
        replica_utilisation: used,
    }
}

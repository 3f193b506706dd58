//! Conditions around the sessions, and work that the text of a statement does not show: control groups, other programs, archives, recovery, triggers,
//! indexes, sequences.

use super::{Change, Fires};
use crate::scene::{Scene, disk, wait};
use record::event;
use record::finding::Level::{CoOccurrence as Co, DiscriminatingCounter as Counter};
use serde_json::{Value, json};

fn n1() -> Value {
    json!({"node": "n1"})
}

fn table(name: &str) -> Value {
    json!({"node": "n1", "database": "db", "relation": name})
}

fn statement(id: &str) -> Value {
    json!({"node": "n1", "database": "db", "query_id": id})
}

fn text(scene: &mut Scene, id: &str, text: &str) {
    scene.event(1, event::QUERY, "", json!({"query_id": id, "text": text}));
}

/// Two statements and a half for each transaction, and a client that is away after each of them; the oldest transaction has this age in seconds.
fn away(scene: &mut Scene, oldest_s: f64) {
    scene.set(
        "server",
        n1(),
        json!({"idle_in_transaction_ms": 28_000.0, "active_ms": 900.0, "xact_commit": 400, "oldest_transaction_s": oldest_s}),
    );
}

/// Sessions that read from a disk, in a control group with a memory limit.
fn reading_in_a_group(scene: &mut Scene, memory_bytes: u64) {
    scene.set("wait", wait("n1", "IO", "DataFileRead"), json!({"sessions": 6}));
    scene.set("server", n1(), json!({"active_ms": 12_000.0}));
    let group = json!({"host": "h1", "node": "n1"});
    scene.set(
        "cgroup",
        group,
        json!({"path": "/pg", "memory_max_bytes": 2_000_000_000u64, "memory_bytes": memory_bytes}),
    );
}

/// Sessions that wait for the WAL on a disk with so many bytes a second; one process of the server writes so many.
fn busy_disk(scene: &mut Scene, bytes: u64, own: u64) {
    scene.set("wait", wait("n1", "IO", "WALSync"), json!({"sessions": 6}));
    scene.set("server", n1(), json!({"active_ms": 12_000.0}));
    scene.set("disk", disk("h1", "nvme0n1"), json!({"write_bytes": bytes, "util_pct": 90.0}));
    let process = json!({"host": "h1", "node": "n1", "pid": 100, "backend": "client backend"});
    scene.set("backend", process, json!({"read_bytes": 0, "write_bytes": own}));
}

/// A standby with so much WAL that is flushed and not replayed, whose replay uses so much of a CPU.
fn late_standby(scene: &mut Scene, most_bytes: f64, cpu_us: u64) {
    let standby = json!({"node": "n1", "standby": "n2"});
    scene.set("replication", standby.clone(), json!({"state": "streaming", "flush_lag_bytes": 1000, "flush_lag_us": 200, "replay_lag_us": 19_000_000}));
    scene.vary("replication", standby, "replay_lag_bytes", move |second| {
        (most_bytes * second as f64 / 180.0).floor()
    });
    let process = json!({"host": "h2", "node": "n2", "pid": 300, "backend": "startup"});
    scene.set("backend", process, json!({"cpu_us": cpu_us, "run_queue_us": 10_000, "state": "S"}));
}

/// A write of a table with triggers that touches so many blocks for each row.
fn write_with_triggers(scene: &mut Scene, triggers: u64, blocks: u64) {
    text(scene, "9", "update stock set n = n + $1 where item = $2");
    scene.set("statement", statement("9"), json!({"calls": 1000, "total_ms": 50_000.0, "rows": 1000, "shared_hit": blocks * 1000, "shared_read": 0}));
    scene.set("table", table("public.stock"), json!({"rows_updated": 6000, "rows_hot_updated": 6000, "indexes": 1, "triggers": triggers, "live_rows": 2000}));
}

/// The same for an insert, with what is unusual about the table.
fn insert_with(scene: &mut Scene, unusual: &str, blocks: u64) {
    write_with_triggers(scene, 0, blocks);
    text(scene, "9", "insert into stock (item, n) values ($1, $2)");
    scene.fact(n1(), record::watched::PECULIAR, "public.stock", unusual);
}

/// A page of a list: the newest rows of a tenant.
fn newest_rows(scene: &mut Scene, blocks: u64) {
    text(scene, "9", "select id, what from activity where tenant = $1 order by id desc limit $2");
    scene.set("statement", statement("9"), json!({"calls": 1000, "total_ms": 50_000.0, "rows": 10_000, "shared_hit": blocks * 1000, "shared_read": 0}));
    scene.set("table", table("public.activity"), json!({"index_rows": 60_000_000u64, "index_scans": 6000, "seq_scans": 0, "seq_rows": 0, "live_rows": 200_000}));
}

/// A slot; without reader it fills the WAL's disk.
pub(super) fn slot(scene: &mut Scene, node: &str, active: bool) {
    let keys = json!({"node": node, "slot": "s1"});
    scene.set(
        "slot",
        keys.clone(),
        json!({"kind": "logical", "active": active, "wal_status": "extended", "spill_bytes": 0}),
    );
    let speed = if active { 0.0 } else { 1e9 };
    scene.vary("slot", keys, "retained_bytes", move |second| 1e8 + second as f64 * speed);
}

/// Part of [`super::all`].
pub(crate) const CASES: &[Fires] = &[
    ("MEM-06", Co, |scene| reading_in_a_group(scene, 1_990_000_000)),
    ("IO-10", Co, |scene| busy_disk(scene, 40_000_000, 2_000_000)),
    ("WAL-10", Co, |scene| {
        scene.fact(n1(), "setting", "commit_delay", "5000");
        scene.fact(n1(), "setting", "commit_siblings", "0");
    }),
    ("WAL-08", Counter, |scene| {
        scene.fact(n1(), "setting", "archive_command", "cp %p /archive/%f");
        scene.vary("server", n1(), "archived_failed", |second| f64::from(u8::from(second % 60 < 3)));
        scene.event(3, event::SERVER_LOG, "archive command failed with exit code 1", n1());
    }),
    ("WAL-09", Counter, |scene| {
        scene.event(
            20,
            event::SERVER_LOG,
            "database system was interrupted; last known up at 2026-01-01 10:00:00 UTC",
            n1(),
        );
        scene.event(
            60,
            event::SERVER_LOG,
            "the database system is starting up",
            json!({"node": "n1", "sqlstate": "57P03", "repeated": 30}),
        );
        scene.event(95, event::SERVER_LOG, "database system is ready to accept connections", n1());
    }),
    ("TXN-09", Co, |scene| {
        scene.set(
            "server",
            n1(),
            json!({"idle_in_transaction_ms": 9000.0, "active_ms": 6000.0, "xact_commit": 60}),
        );
    }),
    // Few statements for each, and a client that is far.
    ("TXN-09", Co, |scene| away(scene, 0.2)),
    ("REP-11", Counter, |scene| late_standby(scene, 340e6, 40_000)),
    ("PLAN-25", Co, |scene| write_with_triggers(scene, 1, 900)),
    ("PLAN-87", Co, |scene| insert_with(scene, "it is unlogged; check room_is_free calls is_free()", 900)),
    ("PLAN-87", Co, |scene| insert_with(scene, "default of n calls next_number()", 900)),
    ("PLAN-26", Co, |scene| {
        scene.set(
            "table",
            table("public.measurement"),
            json!({"rows_inserted": 800_000, "rows_updated": 0, "rows_hot_updated": 0, "indexes": 10,
            "index_scans": 0, "index_bytes": 900_000_000u64, "bytes": 300_000_000u64}),
        );
    }),
    ("PLAN-27", Co, |scene| newest_rows(scene, 3800)),
    ("LWL-07", Co, |scene| {
        text(scene, "9", "insert into ticket values (nextval($1), $2)");
        let page = json!({"node": "n1", "backend": "client backend", "state": "active", "wait_type": "LWLock", "wait_event": "BufferContent", "query_id": "9"});
        scene.set("wait", page, json!({"sessions": 4}));
    }),
];

/// What only looks like these conditions.
pub(crate) const HARMLESS: &[(&str, Change)] = &[
    // The group has room.
    ("MEM-06", |scene| reading_in_a_group(scene, 1_200_000_000)),
    ("MEM-06", |scene| {
        // Its page cache is full, as it should be, and everything is found there.
        scene.set(
            "cgroup",
            json!({"host": "h1", "node": "n1"}),
            json!({"path": "/pg", "memory_max_bytes": 2_000_000_000u64, "memory_bytes": 1_990_000_000u64}),
        );
        scene.set("server", n1(), json!({"active_ms": 30_000.0}));
    }),
    ("IO-10", |scene| {
        // A disk that has time for both.
        busy_disk(scene, 40_000_000, 2_000_000);
        scene.set("disk", disk("h1", "nvme0n1"), json!({"util_pct": 20.0}));
    }),
    // The server itself writes most of it.
    ("IO-10", |scene| busy_disk(scene, 40_000_000, 35_000_000)),
    ("WAL-10", |scene| {
        // As short as it should be, and only with five other transactions.
        scene.fact(n1(), "setting", "commit_delay", "100");
    }),
    ("WAL-10", |scene| {
        // Fewer transactions are open than commit_siblings asks for.
        scene.fact(n1(), "setting", "commit_delay", "5000");
        scene.fact(n1(), "setting", "commit_siblings", "50");
    }),
    // Transactions that were left open.
    ("TXN-09", |scene| away(scene, 600.0)),
    ("TXN-09", |scene| {
        // As many statements, and no pause between them.
        scene.set(
            "server",
            n1(),
            json!({"idle_in_transaction_ms": 500.0, "active_ms": 6000.0, "xact_commit": 60}),
        );
    }),
    ("WAL-08", |scene| {
        scene.fact(n1(), "setting", "archive_command", "cp %p /archive/%f");
    }),
    ("WAL-09", |scene| {
        // A restart by command, and a short recovery.
        scene.event(
            20,
            event::SERVER_LOG,
            "database system was interrupted; last known up at 2026-01-01 10:00:00 UTC",
            n1(),
        );
        scene.event(24, event::SERVER_LOG, "database system is ready to accept connections", n1());
    }),
    // A few megabytes behind is no lag, and what fills a CPU is REP-02.
    ("REP-11", |scene| late_standby(scene, 10e6, 40_000)),
    ("REP-11", |scene| late_standby(scene, 340e6, 980_000)),
    ("REP-11", |scene| {
        late_standby(scene, 340e6, 40_000);
        scene.set("server", json!({"node": "n2"}), json!({"in_recovery": true, "replay_paused": true}));
    }),
    // A write that touches what its row needs, and one without triggers: its condition lacks an index.
    ("PLAN-25", |scene| write_with_triggers(scene, 2, 40)),
    ("PLAN-87", |scene| insert_with(scene, "check room_is_free calls is_free()", 8)),
    ("PLAN-87", |scene| insert_with(scene, "it is unlogged; trigger t calls f()", 900)),
    ("PLAN-25", |scene| write_with_triggers(scene, 0, 900)),
    ("PLAN-26", |scene| {
        // Its indexes are read.
        scene.set("table", table("public.measurement"), json!({"rows_inserted": 800_000, "rows_updated": 0, "rows_hot_updated": 0, "indexes": 10, "index_scans": 90_000}));
        // A log with its key alone.
        scene.set("table", table("public.log"), json!({"rows_inserted": 800_000, "rows_updated": 0, "rows_hot_updated": 0, "indexes": 1, "index_scans": 0}));
    }),
    // The index fits: ten rows in twelve blocks.
    ("PLAN-27", |scene| newest_rows(scene, 12)),
    ("LWL-07", |scene| {
        // A hot page of an index.
        text(scene, "9", "insert into ticket values ($1, $2)");
        let page = json!({"node": "n1", "backend": "client backend", "state": "active", "wait_type": "LWLock", "wait_event": "BufferContent", "query_id": "9"});
        scene.set("wait", page, json!({"sessions": 4}));
    }),
    ("LCK-01", |scene| {
        // A queue for a row that moves on: one waits for long, but no session is at the root for more than a moment.
        scene.set("wait", wait("n1", "Lock", "transactionid"), json!({"sessions": 5}));
        for root in 0..6u64 {
            for waiter in 1..6u64 {
                let keys = json!({"node": "n1", "pid": 10 + (root + waiter) % 6, "root": 10 + root});
                scene.set("block", keys.clone(), json!({"blocked_by": 10 + root, "root_state": "active", "depth": 1, "wait_s": 8.0, "lock_type": "transactionid"}));
                scene.during("block", keys, root * 30 + 1..=root * 30 + 1);
            }
        }
    }),
    ("MEM-03", |scene| {
        // Huge pages are in use.
        scene.fact(n1(), "setting", "huge_pages_status", "on");
        scene.set("host", json!({"host": "h1"}), json!({"page_tables_bytes": 4_000_000_000u64}));
    }),
    ("TXN-03", |scene| {
        // A standby that received much and commits nothing of its own.
        scene.set(
            "server",
            n1(),
            json!({"in_recovery": true, "wal_bytes": 90_000_000, "tup_inserted": 0, "tup_updated": 0}),
        );
        scene.vary("server", n1(), "xact_commit", |second| f64::from(u8::from(second % 10 == 0)));
    }),
];

//! Causes outside of any statement's plan: settings for developers, databases that are made all the time, a worker that waits for a session; and what only
//! looks like them.

use super::plan::{node, statement};
use super::{Change, Co, Counter, Fires, work};
use crate::scene::{Scene, wait};
use record::event;
use serde_json::{Value, json};

fn n1() -> Value {
    json!({"node": "n1"})
}

/// A setting of the server, and so many sessions that are opened in each second.
fn opened(scene: &mut Scene, name: &str, value: &str, sessions: u64) {
    scene.fact(n1(), "setting", name, value);
    scene.set("server", n1(), json!({"sessions_opened": sessions}));
}

/// A setting of the server, and a statement that sorts so often in 10 s.
fn sorted(scene: &mut Scene, name: &str, calls: u64) {
    scene.fact(n1(), "setting", name, "on");
    statement(
        scene,
        "select note from orders where day = $1 order by note",
        json!({"calls": calls}),
        json!({}),
    );
    node(scene, 1, 0, "Sort", json!({}));
}

/// Plans of statements above a limit are logged, and a statement that passes so many rows runs three times a second.
fn timed(scene: &mut Scene, limit: &str, timing: &str, rows: f64) {
    for (name, value) in [("log_analyze", "on"), ("log_timing", timing), ("log_min_duration", limit)] {
        scene.fact(n1(), "setting", &format!("auto_explain.{name}"), value);
    }
    statement(scene, "select count(*) from orders where note like $1", json!({"calls": 30}), json!({}));
    node(scene, 1, 0, "Aggregate", json!({}));
    node(scene, 2, 1, "Seq Scan", json!({"rows_planned": rows}));
}

/// Statements that wait for blocks, on a server with this setting.
fn reads(scene: &mut Scene, direct: &str, sessions: u64) {
    scene.fact(n1(), "setting", "debug_io_direct", direct);
    scene.set("wait", wait("n1", "IO", "DataFileRead"), json!({"sessions": sessions}));
}

/// Databases that are made and dropped so often in each 10 s, each with so much WAL, by a command with these words behind the name.
pub(crate) fn databases(scene: &mut Scene, calls: u64, wal_bytes: u64, options: &str) {
    for (id, text) in
        [("31", format!("CREATE DATABASE ci_1 TEMPLATE base{options}")), ("32", "drop database ci_1".into())]
    {
        let keys = json!({"node": "n1", "database": "db", "query_id": id});
        scene.event(1, event::QUERY, "", json!({"query_id": id, "text": text, "user": "ci"}));
        let figures =
            json!({"calls": calls, "total_ms": calls as f64 * 400.0, "rows": 0, "wal_bytes": wal_bytes});
        scene.set("statement", keys, figures);
    }
    scene.set("server", n1(), json!({"checkpoints_requested": u64::from(calls > 0)}));
}

/// A worker of a subscription that waits for the lock of a session at so many looks, for so long.
pub(crate) fn worker(scene: &mut Scene, backend: &str, looks: u64, wait_s: f64) {
    let keys = json!({"node": "n1", "subscription": "from_hq"});
    let fields =
        json!({"enabled": true, "own": false, "running": true, "pid": 77, "slot": "hq", "lag_bytes": 5_000});
    scene.set("subscription", keys, fields);
    let keys = json!({"node": "n1", "pid": 77, "root": 91});
    let fields = json!({"backend": backend, "blocked_by": 91, "root_state": "idle in transaction", "depth": 1, "wait_s": wait_s,
        "lock_type": "transactionid", "mode": "ShareLock", "row_of": "public.stock", "query": "", "blocker_query": "update stock set n = 1"});
    scene.set("block", keys.clone(), fields).during("block", keys, 10..=9 + looks);
    let keys = json!({"node": "n1", "pid": 91});
    let fields = json!({"backend": "client backend", "application": "psql", "user": "ann", "state": "idle in transaction", "xact_age_s": 40.0,
        "query": "update stock set n = 1", "backend_start": "2026-11-30 06:00:00+00"});
    scene.set("session", keys, fields);
    scene.set(
        "slot",
        json!({"node": "n2", "slot": "hq"}),
        json!({"kind": "logical", "active": true, "retained_bytes": 30_000_000, "wal_status": "reserved"}),
    );
}

/// The process of a session that is found stopped at so many looks.
pub(crate) fn stopped(scene: &mut Scene, tracer: &str, looks: u64) {
    let keys = json!({"host": "h1", "node": "n1", "pid": 100, "backend": "client backend"});
    scene.set("backend", keys.clone(), json!({"tracer": tracer}));
    scene.vary("backend", keys, "stopped", move |second| if second <= looks { 1.0 } else { 0.0 });
}

const WORKER: &str = "logical replication worker";

/// Part of [`super::all`].
pub(super) const CASES: &[Fires] = &[
    ("CFG-01", Co, |scene| opened(scene, "post_auth_delay", "1s", 4)),
    ("CFG-01", Co, |scene| opened(scene, "pre_auth_delay", "2s", 4)),
    ("CFG-01", Co, |scene| {
        opened(scene, "exit_on_error", "on", 9);
        scene.set("server", n1(), json!({"xact_rollback": 9}));
    }),
    ("CFG-01", Co, |scene| {
        scene.fact(n1(), "setting", "debug_assertions", "on");
    }),
    ("CFG-01", Co, |scene| sorted(scene, "trace_sort", 5_000)),
    ("CFG-01", Co, |scene| timed(scene, "10s", "on", 1_000_000.0)),
    ("CFG-01", Co, |scene| reads(scene, "data, wal", 5)),
    ("CFG-01", Co, |scene| {
        scene.fact(n1(), "setting", "jit_dump_bitcode", "on");
        work::statement(
            scene,
            "9",
            "select sum(n) from orders",
            json!({"calls": 100, "total_ms": 30_000.0, "jit_ms": 25_000.0}),
        );
    }),
    ("TXN-21", Counter, |scene| databases(scene, 4, 8_000_000, "")),
    ("TXN-21", Counter, |scene| databases(scene, 1, 0, " STRATEGY = file_copy")),
    ("CPU-08", Counter, |scene| stopped(scene, "strace (9)", 120)),
    ("CPU-08", Counter, |scene| stopped(scene, "", 170)),
    ("REP-20", Counter, |scene| worker(scene, WORKER, 20, 20.0)),
    ("REP-20", Counter, |scene| worker(scene, "logical replication apply worker", 90, 0.8)),
];

/// What only looks like these conditions.
pub(crate) const HARMLESS: &[(&str, Change)] = &[
    // No delay, or sessions that stay.
    ("CFG-01", |scene| opened(scene, "post_auth_delay", "0", 40)),
    ("CFG-01", |scene| opened(scene, "post_auth_delay", "1s", 0)),
    ("CFG-01", |scene| opened(scene, "exit_on_error", "on", 9)),
    ("CFG-01", |scene| {
        scene.fact(n1(), "setting", "debug_assertions", "off");
    }),
    // Few sorts; plans without times, of few rows, or of each statement (LOG-01); only the WAL past the cache, or hardly a read.
    ("CFG-01", |scene| sorted(scene, "trace_sort", 50)),
    ("CFG-01", |scene| timed(scene, "10s", "off", 1_000_000.0)),
    ("CFG-01", |scene| timed(scene, "10s", "on", 100.0)),
    ("CFG-01", |scene| timed(scene, "0", "on", 1_000_000.0)),
    ("CFG-01", |scene| timed(scene, "-1", "on", 1_000_000.0)),
    ("CFG-01", |scene| reads(scene, "wal", 5)),
    ("CFG-01", |scene| reads(scene, "data", 0)),
    // A table of that name, and one database in the whole time.
    ("TXN-21", |scene| {
        work::statement(
            scene,
            "9",
            "create table database (id int)",
            json!({"calls": 10, "total_ms": 30_000.0}),
        );
    }),
    ("TXN-21", |scene| databases(scene, 0, 0, "")),
    // Images for a comparison on standbys are written whether checkpoints are frequent or changes scattered.
    ("WAL-12", |scene| compared(scene, "all")),
    // A debugger that took one look.
    ("CPU-08", |scene| stopped(scene, "gdb (9)", 2)),
    // A client's session that waits, and a worker that waits shortly.
    ("REP-20", |scene| worker(scene, "", 20, 20.0)),
    ("REP-20", |scene| worker(scene, WORKER, 2, 0.4)),
];

/// WAL that consists of images of pages, for which sessions wait.
pub(crate) fn compared(scene: &mut Scene, value: &str) {
    scene.fact(n1(), "setting", "wal_consistency_checking", value);
    scene.set("server", n1(), json!({"wal_bytes": 30_000_000, "wal_fpi": 3_500}));
    scene.set("wait", wait("n1", "LWLock", "WALWrite"), json!({"sessions": 9}));
}

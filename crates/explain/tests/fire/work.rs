//! Work beside the work: what pools send, whole pages after checkpoints by command, updates that are not heap-only, vacuums that are cancelled, functions
//! and triggers; and what only looks like it.

use super::plan::{node, statement as planned};
use super::{Change, Co, Counter, Fires};
use crate::scene::{Scene, wait};
use record::event;
use serde_json::{Value, json};

fn n1() -> Value {
    json!({"node": "n1"})
}

fn orders() -> Value {
    json!({"node": "n1", "database": "db", "relation": "public.orders"})
}

/// A statement with its figures in 10 s.
pub(crate) fn statement(scene: &mut Scene, id: &str, text: &str, figures: Value) {
    scene.event(1, event::QUERY, "", json!({"query_id": id, "text": text}));
    let keys = json!({"node": "n1", "database": "db", "query_id": id});
    scene.set("statement", keys.clone(), json!({"calls": 10_000, "total_ms": 100.0, "rows": 10_000}));
    scene.set("statement", keys, figures);
}

/// So many calls in 10 s of what a pool sends; the application has 10,000.
pub(crate) fn pooled(scene: &mut Scene, texts: &[&str], calls: u64) {
    for (index, text) in texts.iter().enumerate() {
        statement(scene, &(20 + index).to_string(), text, json!({"calls": calls}));
    }
}

/// WAL of which four fifths are whole pages, and a checkpoint every so many seconds that something requested.
pub(crate) fn requested_checkpoints(scene: &mut Scene, every: u64) {
    scene.fact(n1(), "setting", "checkpoint_timeout", "5min");
    scene.set("server", n1(), json!({"wal_bytes": 8_000_000, "wal_fpi": 800}));
    scene.vary("server", n1(), "checkpoints_requested", move |second| {
        f64::from(u8::from(second % every == 0))
    });
}

/// Updates of a table with five indexes, of which one in twenty is heap-only.
pub(crate) fn cold_updates(scene: &mut Scene, text: &str, figures: Value) {
    if !text.is_empty() {
        statement(scene, "9", text, json!({}));
    }
    let columns = "orders_pkey(id); orders_name(name); orders_town(town, name)";
    scene.set(
        "table",
        orders(),
        json!({"rows_updated": 60_000, "rows_hot_updated": 3_000, "indexes": 5, "index_columns": columns}),
    );
    scene.set("table", orders(), figures);
}

/// Vacuums of a table by these processes, one after another, and so many dead rows.
fn vacuums(scene: &mut Scene, pids: std::ops::Range<u64>, autovacuums: u64, dead: u64) {
    scene.set(
        "table",
        orders(),
        json!({"dead_rows": dead, "live_rows": 100_000, "autovacuums": autovacuums}),
    );
    for pid in pids {
        let keys = json!({"node": "n1", "pid": pid, "command": "vacuum", "relation": "public.orders"});
        scene.set(
            "progress",
            keys.clone(),
            json!({"auto": true, "phase": "scanning heap", "done": 10, "total": 100}),
        );
        scene.during("progress", keys, pid * 5..=pid * 5 + 2);
    }
}

fn cancelled(scene: &mut Scene, times: u64, dead: u64) {
    scene.set("table", orders(), json!({"dead_rows": dead, "live_rows": 100_000}));
    for number in 0..times {
        let more = json!({"node": "n1", "severity": "ERROR", "relation": "db.public.orders"});
        scene.event(10 + number * 20, event::SERVER_LOG, "canceling autovacuum task", more);
    }
}

/// A call of a function that takes half of the session time, and a statement inside of it with so many executions for each call.
pub(crate) fn call(scene: &mut Scene, text: &str, inner: Option<u64>) {
    planned(
        scene,
        text,
        json!({"calls": 100, "total_ms": 30_000.0, "rows": 100, "shared_hit": 900_000}),
        json!({}),
    );
    if let Some(times) = inner {
        let figures =
            json!({"calls": 100 * times, "total_ms": 25_000.0, "nested": true, "rows": 100 * times});
        statement(scene, "10", "update item set due = due + $1 where id = r.id", figures);
    }
}

/// A write of a table with a trigger, whose function takes so much of the time; the row itself takes few blocks.
pub(crate) fn triggered(scene: &mut Scene, function_ms: f64) {
    let figures = json!({"calls": 1000, "total_ms": 30_000.0, "rows": 1000, "shared_hit": 8_000});
    statement(scene, "9", "update orders set n = n + $1 where id = $2", figures);
    scene.set(
        "table",
        orders(),
        json!({"indexes": 1, "triggers": 1, "trigger_functions": "tell(notify_shop)", "live_rows": 2_000}),
    );
    let function = json!({"node": "n1", "database": "db", "function": "notify_shop()"});
    scene.set("function", function, json!({"calls": 100, "total_ms": function_ms, "self_ms": function_ms}));
}

/// An election beside other sessions of the service.
fn waiting(scene: &mut Scene, query: &str) {
    scene.set("wait", wait("n1", "Lock", "advisory"), json!({"sessions": 3}));
    for pid in 11..14 {
        let keys = json!({"node": "n1", "pid": pid, "root": 10});
        scene.set("block", keys.clone(), json!({"blocked_by": 10, "root_state": "idle", "depth": 1, "lock_type": "advisory", "query": query}));
        scene.vary("block", keys, "wait_s", |second| second as f64);
    }
}

/// Part of [`super::all`].
pub(super) const CASES: &[Fires] = &[
    ("SES-06", Counter, |scene| {
        pooled(scene, &["SELECT $1", "SET application_name = $1", "DISCARD ALL"], 10_000)
    }),
    ("SES-06", Counter, |scene| pooled(scene, &["DISCARD ALL"], 8_000)),
    ("WAL-07", Counter, |scene| {
        requested_checkpoints(scene, 2);
        statement(scene, "9", "CHECKPOINT", json!({"calls": 5, "total_ms": 400.0}));
    }),
    ("WAL-07", Counter, |scene| {
        requested_checkpoints(scene, 20);
        for second in (20..180).step_by(20) {
            let more = json!({"node": "n1", "reason": "immediate force wait", "from": "log"});
            scene.event(second, event::CHECKPOINT, "checkpoint starting: immediate force wait", more);
        }
    }),
    ("VAC-09", Counter, |scene| {
        cold_updates(
            scene,
            "update orders set name = $1 where id = $2",
            json!({"rows_newpage_updated": 50_000}),
        )
    }),
    ("VAC-09", Counter, |scene| {
        cold_updates(
            scene,
            "update orders set n = n + $1 where id = $2",
            json!({"rows_newpage_updated": 50_000}),
        )
    }),
    ("VAC-09", Counter, |scene| {
        cold_updates(
            scene,
            "update orders set n = n + $1 where id = $2",
            json!({"rows_newpage_updated": 500}),
        )
    }),
    ("VAC-09", Co, |scene| cold_updates(scene, "update orders set n = n + $1 where id = $2", json!({}))),
    ("VAC-12", Counter, |scene| {
        cancelled(scene, 4, 90_000);
        statement(
            scene,
            "9",
            "ALTER TABLE orders SET (autovacuum_vacuum_scale_factor = 0.1)",
            json!({"calls": 20}),
        );
    }),
    ("VAC-12", Co, |scene| vacuums(scene, 1..5, 0, 90_000)),
    ("PLAN-41", Counter, |scene| call(scene, "select renew($1)", Some(3000))),
    ("PLAN-41", Co, |scene| call(scene, "select renew($1)", None)),
    ("PLAN-25", Counter, |scene| triggered(scene, 2_500.0)),
];

/// What only looks like it.
pub(crate) const HARMLESS: &[(&str, Change)] = &[
    // Settings of transactions are part of their work; a test now and then is none of each transaction.
    ("SES-06", |scene| pooled(scene, &["SET LOCAL app.tenant = $1", "BEGIN", "COMMIT"], 10_000)),
    ("SES-06", |scene| pooled(scene, &["SELECT $1", "SHOW transaction_read_only"], 400)),
    ("SES-06", |scene| pooled(scene, &["SELECT $1 FROM orders WHERE id = $2"], 10_000)),
    // The volume of the WAL forces them: WAL-03.
    ("WAL-07", |scene| {
        requested_checkpoints(scene, 20);
        scene.fact(n1(), "setting", "max_wal_size", "256MB");
    }),
    ("WAL-07", |scene| {
        requested_checkpoints(scene, 20);
        statement(scene, "9", "CHECKPOINT", json!({"calls": 1, "total_ms": 400.0}));
        for second in (20..180).step_by(20) {
            let more = json!({"node": "n1", "reason": "wal", "from": "log"});
            scene.event(second, event::CHECKPOINT, "checkpoint starting: wal", more);
        }
    }),
    // A backup, and a load whose rows fill new pages.
    ("WAL-07", |scene| requested_checkpoints(scene, 90)),
    ("WAL-07", |scene| {
        requested_checkpoints(scene, 2);
        scene.set("server", n1(), json!({"wal_bytes": 8_000_000, "wal_fpi": 200}));
    }),
    ("VAC-09", |scene| cold_updates(scene, "", json!({"rows_hot_updated": 40_000}))),
    ("VAC-09", |scene| cold_updates(scene, "", json!({"indexes": 1}))),
    // Few vacuums were cancelled, another table's, or those that were seen are finished; a small table.
    ("VAC-12", |scene| cancelled(scene, 2, 90_000)),
    ("VAC-12", |scene| cancelled(scene, 9, 200)),
    ("VAC-12", |scene| vacuums(scene, 1..5, 4, 90_000)),
    ("VAC-12", |scene| vacuums(scene, 1..3, 0, 90_000)),
    ("VAC-12", |scene| {
        scene.set("table", orders(), json!({"dead_rows": 90_000, "live_rows": 100_000}));
        for second in 10..20 {
            let more = json!({"node": "n1", "severity": "ERROR", "relation": "other.public.orders"});
            scene.event(second, event::SERVER_LOG, "canceling autovacuum task", more);
        }
    }),
    ("PLAN-41", |scene| call(scene, "select pg_sleep($1)", None)),
    ("PLAN-41", |scene| call(scene, "select renew($1) from orders", Some(3000))),
    // Its function takes a tenth of the write.
    ("PLAN-25", |scene| triggered(scene, 300.0)),
    // A holder that never lets go is no queue.
    ("LCK-01", |scene| waiting(scene, "select pg_advisory_lock(99)")),
    // An index scan for one constant of a shortened list: what its plan expects is none of the statement's.
    ("PLAN-24", |scene| shortened(scene, 9_000, 10_000)),
    ("PLAN-12", |scene| shortened(scene, 9_000, 500_000)),
    ("PLAN-39", |scene| shortened(scene, 90, 10)),
    ("PLAN-39", |scene| {
        shortened(scene, 90, 10);
        scene.event(1, event::QUERY, "", json!({"query_id": "9", "text": SHORTENED, "commas": 12}));
    }),
];

const SHORTENED: &str = "select total from orders where id in ($1 /*, ... */)";

/// A statement whose list PostgreSQL 18 has shortened, with so many blocks and rows of an execution.
fn shortened(scene: &mut Scene, blocks: u64, rows: u64) {
    let figures = json!({"calls": 100, "rows": rows * 100, "shared_hit": blocks * 100});
    planned(scene, SHORTENED, figures, json!({"cost_total": 8.5}));
    node(
        scene,
        1,
        0,
        "Index Scan",
        json!({"relation": "public.orders", "index": "orders_pkey", "condition": "(orders.id = $1)"}),
    );
}

/// Lists that are long although the text does not show it.
pub(super) const LISTS: &[Fires] = &[
    ("PLAN-39", Co, |scene| shortened(scene, 9_000, 2_000)),
    ("PLAN-39", Co, |scene| {
        shortened(scene, 90, 10);
        // The text of a session has more commas than that of pg_stat_statements.
        scene.event(1, event::QUERY, "", json!({"query_id": "9", "text": SHORTENED, "commas": 240}));
    }),
];

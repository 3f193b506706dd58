//! Steps of plans, temporary tables, two-phase commits, replay that waits, limits of roles: conditions that say something, and those that only look like it.

use super::plan::{node, statement};
use super::{Change, Co, Counter, Fires};
use crate::scene::Scene;
use record::event;
use serde_json::{Value, json};

const TREE: &str = "with recursive below as (select id from folder where id = $1 union all select f.id from folder f join below b on f.parent = b.id) \
    select id from below";
const TEMPORARY: &str = "select count(*) from picked join packed using (item) where picked.state = $1";

/// A hash join that reads a table of this size for ten rows of its other side.
fn join(scene: &mut Scene, rows: f64, wanted: f64) {
    statement(scene, TREE, json!({}), json!({}));
    node(
        scene,
        1,
        0,
        "Hash Join",
        json!({"rows_planned": wanted, "condition": "(b.id = f.parent)", "cost_total": 40_000.0}),
    );
    node(scene, 2, 1, "WorkTable Scan", json!({"rows_planned": wanted, "cost_total": 1.0}));
    node(scene, 3, 1, "Hash", json!({"rows_planned": rows, "cost_total": 30_000.0}));
    let folder = json!({"relation": "public.folder", "alias": "f", "rows_planned": rows, "table_rows": rows, "cost_total": 30_000.0});
    node(scene, 4, 3, "Seq Scan", folder);
}

fn index_of_folder(scene: &mut Scene, columns: &str) {
    let keys = json!({"node": "n1", "relation": "public.folder", "index": "folder_parent"});
    scene.set(
        "plan_index",
        keys,
        json!({"columns": columns, "method": "btree", "valid": true, "partial": false}),
    );
}

/// A sort with this part of the plan's cost.
fn sort(scene: &mut Scene, cost_below: f64, figures: Value) {
    statement(scene, "select id from guest_list where has_left = $1 order by last_name", figures, json!({}));
    node(scene, 1, 0, "Aggregate", json!({"rows_planned": 1.0, "cost_total": 50_000.0}));
    let keys = json!({"rows_planned": 36_000.0, "condition": "guest.last_name, guest.first_name", "cost_total": 49_900.0});
    node(scene, 2, 1, "Sort", keys);
    node(
        scene,
        3,
        2,
        "Seq Scan",
        json!({"relation": "public.guest", "rows_planned": 36_000.0, "cost_total": cost_below}),
    );
}

/// A statement on temporary tables, without a plan.
fn temporary(scene: &mut Scene, analysed: bool) {
    for (id, table) in [("21", "picked"), ("22", "packed")] {
        let text = format!(
            "CREATE TEMP TABLE {table} ON COMMIT DROP AS SELECT i AS item FROM generate_series($1, $2) i"
        );
        scene.event(1, event::QUERY, "", json!({"query_id": id, "text": text}));
        if analysed {
            scene.event(
                1,
                event::QUERY,
                "",
                json!({"query_id": format!("3{id}"), "text": format!("analyze {table}")}),
            );
        }
    }
    on_temporary(scene, TEMPORARY, 0);
}

fn on_temporary(scene: &mut Scene, text: &str, blocks: u64) {
    scene.event(1, event::QUERY, "", json!({"query_id": "9", "text": text}));
    let keys = json!({"node": "n1", "database": "db", "query_id": "9"});
    scene.set(
        "statement",
        keys,
        json!({"calls": 10, "total_ms": 30_000.0, "rows": 10, "shared_hit": blocks}),
    );
}

fn samples(scene: &mut Scene, event: &str) {
    let reads = json!({"node": "n1", "backend": "client backend", "state": "active", "wait_type": "IO", "wait_event": event, "query_id": "9"});
    scene.set("wait", reads, json!({"sessions": 3}));
}

/// A temporary table that a session reads, and what its samples show.
fn unbuffered(scene: &mut Scene, event: &str, blocks: u64) {
    let made = json!({"query_id": "21", "text": "create temporary table staged (id int)"});
    scene.event(1, event::QUERY, "", made);
    on_temporary(scene, "select sum(length(v)) from staged", blocks);
    samples(scene, event);
}

/// Statements of these texts, which take the time together.
fn phases(scene: &mut Scene, texts: [&str; 2]) {
    for (id, text) in ["41", "42"].into_iter().zip(texts) {
        scene.event(1, event::QUERY, "", json!({"query_id": id, "text": text}));
        let keys = json!({"node": "n1", "database": "db", "query_id": id});
        scene.set(
            "statement",
            keys,
            json!({"calls": 1_000, "total_ms": 15_000.0, "rows": 0, "shared_hit": 0}),
        );
    }
}

pub(crate) fn replay(scene: &mut Scene, kind: &str, event: &str) {
    scene.set("server", json!({"node": "n2"}), json!({"in_recovery": true}));
    let startup =
        json!({"node": "n2", "backend": "startup", "state": "", "wait_type": kind, "wait_event": event});
    scene.set("wait", startup, json!({"sessions": 1}));
    let session = json!({"node": "n2", "pid": 77, "backend": "client backend", "user": "report"});
    scene.set(
        "session",
        session,
        json!({"state": "idle in transaction", "xact_age_s": 40.0, "query": "select sum(cents) from tariff"}),
    );
}

fn refused(scene: &mut Scene, message: &str) {
    scene.event(
        60,
        event::SERVER_LOG,
        message,
        json!({"node": "n1", "sqlstate": "53300", "severity": "FATAL", "repeated": 40}),
    );
}

/// A result of thirty rows, and a statement for one row that runs so often.
fn children(scene: &mut Scene, text: &str, calls: u64) {
    let parent = json!({"calls": 500, "total_ms": 2_000.0, "rows": 15_000, "shared_hit": 16_000});
    for (id, text, figures) in [
        ("51", "select id from book where author = $1", parent),
        ("52", text, json!({"calls": calls, "total_ms": 9_000.0, "rows": calls, "shared_hit": calls * 3})),
    ] {
        scene.event(1, event::QUERY, "", json!({"query_id": id, "text": text}));
        scene.set("statement", json!({"node": "n1", "database": "db", "query_id": id}), figures);
    }
}

/// A statement that writes most of the WAL, for which sessions wait, with so much for each row.
pub(super) fn writer(scene: &mut Scene, bytes_per_row: u64, pages: u64) {
    scene.set("server", json!({"node": "n1"}), json!({"wal_bytes": 5_000_000, "wal_fpi": pages}));
    let text = "update game_state set document = jsonb_set(document, $1, $2) where id = $3";
    scene.event(1, event::QUERY, "", json!({"query_id": "61", "text": text}));
    let rows = 40_000_000 / bytes_per_row;
    let keys = json!({"node": "n1", "database": "db", "query_id": "61"});
    scene.set(
        "statement",
        keys,
        json!({"calls": rows, "rows": rows, "total_ms": 500.0, "shared_hit": 1_000, "wal_bytes": 40_000_000}),
    );
    let flush = json!({"node": "n1", "backend": "client backend", "state": "active", "wait_type": "LWLock", "wait_event": "WALWrite", "query_id": "61"});
    scene.set("wait", flush, json!({"sessions": 6}));
}

/// Part of [`super::all`].
pub(super) const CASES: &[Fires] = &[
    ("PLAN-46", Co, |scene| join(scene, 170_000.0, 100.0)),
    ("PLAN-24", Co, |scene| {
        statement(
            scene,
            "select count(*) from claim where document @> $1",
            json!({}),
            json!({"cost_total": 19.0}),
        );
        let claim =
            json!({"relation": "public.claim", "rows_planned": 3.0, "table_rows": 300.0, "cost_total": 19.0});
        node(scene, 1, 0, "Seq Scan", claim);
        let keys = json!({"node": "n1", "database": "db", "relation": "public.claim"});
        scene.set("table", keys, json!({"bytes": 20_000_000, "live_rows": 300}));
    }),
    ("PLAN-46", Co, |scene| {
        join(scene, 170_000.0, 100.0);
        index_of_folder(scene, "id; parent");
    }),
    ("PLAN-45", Co, |scene| sort(scene, 10_000.0, json!({}))),
    ("PLAN-47", Co, |scene| temporary(scene, false)),
    ("MEM-07", Co, |scene| unbuffered(scene, "DataFileRead", 0)),
    ("TXN-10", Co, |scene| phases(scene, ["PREPARE TRANSACTION $1", "COMMIT PREPARED $1"])),
    ("TXN-12", Counter, |scene| {
        statement(scene, "update price_tag set shown = $1", json!({"rows": 600_000}), json!({}));
    }),
    ("LWL-08", Co, |scene| {
        scene.set(
            "slru",
            json!({"node": "n1", "name": "subtransaction"}),
            json!({"hits": 14_000_000, "reads": 0}),
        );
    }),
    ("WAL-11", Co, |scene| writer(scene, 40_000, 1)),
    ("TXN-11", Co, |scene| children(scene, "select title from book where id = $1", 15_000)),
    ("REP-12", Counter, |scene| replay(scene, "Lock", "relation")),
    ("REP-12", Counter, |scene| replay(scene, "IPC", "RecoveryConflictSnapshot")),
    ("SES-04", Counter, |scene| refused(scene, "too many connections for role \"clerk\"")),
    ("SES-04", Counter, |scene| refused(scene, "too many connections for database \"shop\"")),
];

/// What only looks like these conditions.
pub(crate) const HARMLESS: &[(&str, Change)] = &[
    // The column has an index, most of the table is wanted, or the table is small.
    ("PLAN-46", |scene| {
        join(scene, 170_000.0, 100.0);
        index_of_folder(scene, "parent; id");
    }),
    ("PLAN-46", |scene| join(scene, 170_000.0, 90_000.0)),
    ("PLAN-46", |scene| join(scene, 500.0, 10.0)),
    // No step stands out, or an execution is short.
    ("PLAN-45", |scene| sort(scene, 30_000.0, json!({"calls": 100_000}))),
    ("PLAN-47", |scene| temporary(scene, true)),
    ("PLAN-47", |scene| {
        let made = json!({"query_id": "21", "text": "create temp table other (id int)"});
        scene.event(1, event::QUERY, "", made);
        on_temporary(scene, TEMPORARY, 0);
    }),
    // It computes, or what it reads is shared.
    ("MEM-07", |scene| unbuffered(scene, "BufFileRead", 0)),
    ("MEM-07", |scene| unbuffered(scene, "DataFileRead", 200_000)),
    ("TXN-10", |scene| phases(scene, ["PREPARE find AS SELECT 1", "COMMIT"])),
    ("TXN-12", |scene| {
        statement(
            scene,
            "update price_tag set shown = $1 where shop = $2",
            json!({"rows": 600_000}),
            json!({}),
        );
    }),
    ("TXN-12", |scene| statement(scene, "update setting set value = $1", json!({"rows": 10}), json!({}))),
    ("LWL-08", |scene| {
        scene.set(
            "slru",
            json!({"node": "n1", "name": "transaction"}),
            json!({"hits": 14_000_000, "reads": 0}),
        );
        scene.set("slru", json!({"node": "n1", "name": "Subtrans"}), json!({"hits": 150_000, "reads": 0}));
    }),
    // Narrow rows, and pages that a checkpoint makes whole.
    ("WAL-11", |scene| writer(scene, 400, 1)),
    ("WAL-11", |scene| writer(scene, 40_000, 500)),
    // Another number of them, and one that returns what it wants.
    ("TXN-11", |scene| children(scene, "select title from book where id = $1", 40_000)),
    ("TXN-11", |scene| {
        children(scene, "select title from book b join page p using (id) where b.id = $1", 15_000)
    }),
    // It waits for WAL to come.
    ("REP-12", |scene| replay(scene, "Activity", "RecoveryWalStream")),
];

//! Conditions that were provoked on real servers without a rule for them, and what only looks like them.

use super::plan::{index, node, scan, statement};
use super::{Change, Fires};
use crate::scene::{Scene, wait};
use record::finding::Level::{CoOccurrence as Co, DiscriminatingCounter as Counter};
use serde_json::{Value, json};

fn orders() -> Value {
    json!({"node": "n1", "database": "db", "relation": "public.orders"})
}

/// A statement that reads whole tables, and a plan that does not.
fn unlike(scene: &mut Scene, kind: &str) {
    let text = "select total from orders where id = $1";
    statement(scene, text, json!({"calls": 1000, "rows": 1000, "shared_hit": 2_000_000}), json!({}));
    let fields =
        json!({"relation": "public.orders", "index": "orders_pkey", "condition": "(id = $1)", "filter": ""});
    node(scene, 1, 0, kind, fields);
    scene.set("table", orders(), json!({"seq_scans": 6000, "seq_rows": 1_200_000_000u64}));
}

/// A join whose filter is known only after it.
fn joined(scene: &mut Scene, filter: &str) {
    let text = "select 1 from ticket t join agent a on a.id = t.agent where t.id = $1 or a.badge = $2";
    statement(scene, text, json!({"rows": 300}), json!({}));
    node(scene, 1, 0, "Hash Join", json!({"condition": "(t.agent = a.id)", "filter": filter}));
    node(scene, 2, 1, "Seq Scan", json!({"relation": "public.ticket", "rows_planned": 150_000.0}));
}

/// Rows that are inserted into a table with most of the work, of which none stays.
fn inserts(scene: &mut Scene, more: Value) {
    scene.set(
        "table",
        orders(),
        json!({"blocks_hit": 20_000_000, "blocks_read": 0, "live_rows": 500, "dead_rows": 80_000, "rows_inserted": 60_000, "rows_deleted": 0}),
    );
    scene.set("table", orders(), more);
}

fn definitions(scene: &mut Scene, text: &str) {
    statement(
        scene,
        text,
        json!({"calls": 2000, "total_ms": 40_000.0, "rows": 0, "shared_hit": 800_000}),
        json!({}),
    );
}

fn whole_pages(scene: &mut Scene, timeout: &str) {
    scene.fact(json!({"node": "n1"}), "setting", "checkpoint_timeout", timeout);
    scene.set("server", json!({"node": "n1"}), json!({"wal_bytes": 8_000_000, "wal_fpi": 800}));
}

/// Sessions that wait for the WAL, with so many images a second for 300 changed rows.
fn scattered(scene: &mut Scene, images: u64) {
    whole_pages(scene, "5min");
    let changed = json!({"wal_fpi": images, "tup_inserted": 300, "tup_updated": 0, "sessions_active": 16, "active_ms": 16_000.0});
    scene.set("server", json!({"node": "n1"}), changed);
    scene.set("wait", wait("n1", "IO", "WALSync"), json!({"sessions": 12}));
    scene.set("wait", wait("n1", "CPU", "CPU"), json!({"sessions": 1}));
}

/// An INSERT without waits for the WAL, of which each row writes so many whole pages.
fn inserted(scene: &mut Scene, pages: f64) {
    let text = "insert into event (session, kind) values ($1, $2)";
    let rows = 8_000.0;
    statement(
        scene,
        text,
        json!({"calls": rows, "rows": rows, "total_ms": 30_000.0, "shared_read": rows * pages, "wal_fpi": rows * pages,
            "wal_bytes": rows * (200.0 + pages * 8192.0)}),
        json!({}),
    );
    let keys = json!({"node": "n1", "database": "db", "relation": "public.event"});
    let indexes = json!({"indexes": 2, "index_columns": "event_pkey(id); event_session(session)", "unscanned_indexes": "event_session (btree)"});
    scene.set("table", keys, indexes);
}

/// Requests for a strong lock, one every four seconds, each by another session; four wait behind each.
fn requests(scene: &mut Scene, count: u64) {
    for request in 0..count {
        let (head, from) = (70 + request, 10 + request * 4);
        let block = |pid: u64, by: u64| json!({"node": "n1", "root": 60, "pid": pid, "blocked_by": by});
        scene.set("block", block(head, 60), json!({"wait_s": 0.8, "root_state": "active", "lock_type": "relation", "relation": "public.orders",
            "mode": "AccessExclusiveLock", "query": "alter table orders add column note text"}));
        scene.during("block", block(head, 60), from..=from);
        for pid in 90..94 {
            scene.set("block", block(pid, head), json!({"wait_s": 0.7, "root_state": "active", "lock_type": "relation", "relation": "public.orders",
                "mode": "AccessShareLock", "query": "select * from orders"}));
            scene.during("block", block(pid, head), from..=from);
        }
    }
    scene.set("wait", wait("n1", "Lock", "relation"), json!({"sessions": 4}));
}

/// A statement with a small cost and many workers.
fn workers(scene: &mut Scene, cost: f64) {
    statement(scene, "select avg(v) from rate where cur = $1", json!({}), json!({"cost_total": cost}));
    node(scene, 1, 0, "Gather", json!({}));
    scene.set("wait", wait("n1", "IPC", "ExecuteGather"), json!({"sessions": 4}));
}

/// Executions that touch this many blocks, by a plan of this kind.
fn blocks(scene: &mut Scene, kind: &str, blocks: u64) {
    statement(
        scene,
        "select a from x join y using (b) where c = $1 and d = $2",
        json!({"calls": 100, "shared_hit": blocks * 100}),
        json!({"cost_total": 500.0}),
    );
    node(scene, 1, 0, kind, json!({}));
}

/// A filter of a plan for NOT IN.
fn list(scene: &mut Scene, filter: &str) {
    statement(scene, "select id from a where b not in (select c from d)", json!({}), json!({}));
    node(scene, 1, 0, "Seq Scan", json!({"relation": "public.a", "filter": filter}));
}

fn cancelled(scene: &mut Scene, message: &str) {
    scene.event(5, record::event::SERVER_LOG, message, json!({"node": "n1", "severity": "ERROR"}));
    scene.set("server", json!({"node": "n1"}), json!({"xact_commit": 30, "xact_rollback": 6}));
}

/// Part of [`super::all`].
pub(crate) const CASES: &[Fires] = &[
    ("PLAN-20", Co, |scene| {
        scan(scene, "(customer = current_tenant())", "customer integer");
        index(scene, "orders_customer", "customer", true);
    }),
    ("PLAN-20", Co, |scene| {
        scan(scene, "(customer = $1)", "customer integer");
        index(scene, "orders_customer", "customer", true);
        scene.fact(json!({"node": "n1"}), "setting", "random_page_cost", "400");
    }),
    ("PLAN-20", Co, |scene| {
        scan(scene, "(customer = $1)", "customer integer");
        index(scene, "orders_customer", "customer", true);
        scene.fact(json!({"node": "n1"}), "setting", "enable_indexscan", "off");
    }),
    ("PLAN-21", Counter, |scene| unlike(scene, "Index Scan")),
    ("PLAN-22", Co, |scene| joined(scene, "((t.id = $1) OR (a.badge = $2))")),
    ("TXN-06", Counter, |scene| inserts(scene, json!({}))),
    ("TXN-07", Co, |scene| definitions(scene, "create temp table basket (id int) on commit drop")),
    ("WAL-07", Counter, |scene| whole_pages(scene, "30s")),
    ("WAL-12", Co, |scene| scattered(scene, 900)),
    ("WAL-12", Co, |scene| inserted(scene, 0.5)),
    ("LCK-04", Counter, |scene| requests(scene, 5)),
    ("PLAN-11", Co, |scene| {
        scan(scene, "(date_trunc($1, orders.at) = ($2 + $3))", "");
        index(scene, "orders_at", "at", true);
    }),
    ("LOG-01", Co, |scene| {
        scene.fact(json!({"node": "n1"}), "setting", "debug_print_plan", "on");
    }),
    ("PLAN-23", Counter, |scene| workers(scene, 40.0)),
    ("PLAN-24", Co, |scene| blocks(scene, "Nested Loop", 11_000)),
    ("PLAN-24", Co, |scene| blocks(scene, "Seq Scan", 11_000)),
    ("PLAN-28", Co, |scene| list(scene, "(NOT (ANY (a.b = (SubPlan 1).col1)))")),
    ("PLAN-02", Co, |scene| {
        scene.set("server", json!({"node": "n1"}), json!({"temp_bytes": 40_000_000, "temp_files": 6}));
    }),
    ("EXT-01", Counter, |scene| {
        scene.set("wait", wait("n1", "Extension", "PostgresFdwGetResult"), json!({"sessions": 4}));
    }),
    ("VAC-11", Co, |scene| {
        inserts(
            scene,
            json!({"rows_inserted": 0, "live_rows": 20_000, "dead_rows": 380_000, "autovacuums": 0}),
        )
    }),
    ("TXN-08", Counter, |scene| cancelled(scene, "canceling statement due to statement timeout")),
];

/// What only looks like a condition.
pub(crate) const HARMLESS: &[(&str, Change)] = &[
    ("PLAN-20", |scene| {
        // Most rows are wanted.
        scan(scene, "(customer = current_tenant())", "customer integer");
        node(scene, 1, 0, "Seq Scan", json!({"rows_planned": 800_000.0}));
        index(scene, "orders_customer", "customer", true);
    }),
    ("PLAN-20", |scene| {
        scan(scene, "(customer = $1)", "customer integer");
        index(scene, "orders_customer", "customer", true);
    }),
    ("PLAN-21", |scene| unlike(scene, "Seq Scan")),
    ("PLAN-01", |scene| unlike(scene, "Index Scan")),
    ("PLAN-01", |scene| {
        unlike(scene, "Seq Scan");
        node(
            scene,
            1,
            0,
            "Seq Scan",
            json!({"filter": "((id)::numeric = $1)", "table_rows": 200_000.0, "index": ""}),
        );
        index(scene, "orders_pkey", "id", true);
    }),
    ("PLAN-12", |scene| {
        scan(scene, "((id)::numeric = $1)", "id bigint");
        let plan = json!({"node": "n1", "query_id": "9", "hash": "c0"});
        scene.set("plan", plan, json!({"rows_planned": 5000.0}));
        index(scene, "orders_pkey", "id", true);
    }),
    ("PLAN-22", |scene| joined(scene, "((t.id = $1) OR (t.other = $2))")),
    ("PLAN-22", |scene| joined(scene, "((t.id = $1) AND (a.badge = $2))")),
    ("PLAN-05", |scene| {
        // VACUUM counted the load, and then its session reported its inserts.
        inserts(
            scene,
            json!({"live_rows": 120_000, "planned_rows": 60_000, "changed_since_analyze": 60_000, "rows_inserted": 0}),
        );
    }),
    ("PLAN-05", |scene| {
        // Scans read as many rows as the planner assumes.
        inserts(
            scene,
            json!({"live_rows": 130_000, "planned_rows": 60_000, "changed_since_analyze": 70_000, "seq_scans": 10, "seq_rows": 600_000}),
        );
    }),
    ("PLAN-05", |scene| {
        // A load that was counted twice, and updates behind it.
        inserts(
            scene,
            json!({"live_rows": 120_000, "planned_rows": 60_000, "changed_since_analyze": 250_000, "rows_inserted": 0}),
        );
    }),
    ("TXN-06", |scene| {
        // A queue: what is inserted is deleted.
        inserts(scene, json!({"rows_deleted": 60_000}));
    }),
    ("TXN-06", |scene| {
        inserts(scene, json!({}));
        scene.set("server", json!({"node": "n1"}), json!({"xact_rollback": 900}));
    }),
    ("TXN-07", |scene| definitions(scene, "select created from orders")),
    ("WAL-07", |scene| whole_pages(scene, "5min")),
    ("WAL-12", |scene| scattered(scene, 100)),
    // Rows that follow each other share the pages of their indexes.
    ("WAL-12", |scene| inserted(scene, 0.02)),
    // An index that is built writes pages and changes no row.
    ("WAL-12", |scene| scattered(scene, 9_000)),
    ("WAL-12", |scene| {
        scattered(scene, 900);
        scene.set("wait", wait("n1", "IO", "WALSync"), json!({"sessions": 1}));
    }),
    ("LCK-04", |scene| requests(scene, 2)),
    ("PLAN-11", |scene| {
        scan(scene, "(date_trunc($1, orders.at) = ($2 + $3))", "");
        index(scene, "orders_other", "other", true);
    }),
    ("PLAN-23", |scene| workers(scene, 40_000.0)),
    ("PLAN-24", |scene| blocks(scene, "Nested Loop", 2_000)),
    ("PLAN-28", |scene| list(scene, "(NOT (ANY (a.b = (hashed SubPlan 1).col1)))")),
    ("PLAN-12", |scene| {
        blocks(scene, "Limit", 100);
        scene.set(
            "plan",
            json!({"node": "n1", "query_id": "9", "hash": "c0"}),
            json!({"rows_planned": 4000.0}),
        );
    }),
    ("VAC-11", |scene| {
        inserts(
            scene,
            json!({"rows_inserted": 0, "live_rows": 20_000, "dead_rows": 380_000, "autovacuums": 1}),
        )
    }),
    ("TXN-08", |scene| cancelled(scene, "canceling statement due to user request")),
];

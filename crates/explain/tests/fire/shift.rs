//! Locks of tables that many sessions want in turn, settings for tests, commands that are repeated, functions and declarations that mislead the planner; and
//! what only looks like it.

use super::plan::{node, statement};
use super::{Change, Co, Counter, Fires, work};
use crate::scene::{Scene, wait};
use serde_json::{Value, json};

fn n1() -> Value {
    json!({"node": "n1"})
}

/// Waits for the lock of a table behind ever other sessions, in so many of the sessions at once, with this statement at the root.
fn queue(scene: &mut Scene, sessions: u64, root_query: &str, query: &str, mode: &str) {
    for root in 0..12_u64 {
        let keys = json!({"node": "n1", "pid": 100 + root, "root": 50 + root});
        scene.set("block", keys.clone(), json!({"blocked_by": 50 + root, "root_state": "active", "depth": 1, "wait_s": 0.05, "lock_type": "relation",
            "mode": mode, "relation": "public.orders", "query": query, "blocker_query": root_query}));
        scene.during("block", keys, root * 15 + 1..=root * 15 + 2);
    }
    scene.set("wait", wait("n1", "Lock", "relation"), json!({"sessions": sessions}));
}

const ADD: &str = "alter table orders add column if not exists note text";

/// A setting, and a statement that joins three tables by the plan.
fn joined(scene: &mut Scene, name: &str, value: &str) {
    scene.fact(n1(), "setting", name, value);
    statement(
        scene,
        "select 1 from a join b on b.a = a.id join c on c.b = b.id where c.x = $1",
        json!({}),
        json!({}),
    );
    for number in 1..=3 {
        let relation = format!("public.t{number}");
        node(scene, number, 0, "Seq Scan", json!({"relation": relation}));
    }
}

/// A plan with a Gather.
fn gathered(scene: &mut Scene, workers: &str) {
    scene.fact(n1(), "setting", "max_parallel_workers", workers);
    statement(scene, "select count(*) from orders where note like $1", json!({}), json!({}));
    node(scene, 1, 0, "Gather", json!({}));
}

/// A command that takes half of the session time, so often in 10 s.
fn repeated(scene: &mut Scene, text: &str, calls: u64) {
    work::statement(scene, "9", text, json!({"calls": calls, "total_ms": 30_000.0, "rows": 0}));
}

/// Rows that sessions of another server write, so often in 10 s.
fn remote(scene: &mut Scene, application: &str, calls: u64) {
    let group =
        json!({"node": "n1", "application": application, "user": "u", "database": "db", "client": "local"});
    scene.set("activity", group, json!({"sessions": 2}));
    let text = "INSERT INTO public.copy(id, note) VALUES ($1, $2)";
    work::statement(scene, "9", text, json!({"calls": calls, "total_ms": 20_000.0, "rows": calls}));
}

/// A UNION of two tables: rows that it is given, and rows that it leaves.
fn union(scene: &mut Scene, text: &str, given: f64, left: f64) {
    statement(scene, text, json!({}), json!({}));
    node(scene, 1, 0, "Aggregate", json!({"rows_planned": left}));
    node(scene, 2, 1, "Append", json!({"rows_planned": given}));
}

const UNION: &str = "select id, note from a UNION select id, note from b";

/// A page by OR.
fn page(scene: &mut Scene, filter: &str) {
    statement(
        scene,
        "select id from orders where at < $1 or at = $2 and id < $3 order by at desc limit $4",
        json!({}),
        json!({}),
    );
    node(
        scene,
        1,
        0,
        "Index Scan",
        json!({"relation": "public.orders", "index": "orders_at", "filter": filter}),
    );
}

/// The nearest of so many rows.
fn nearest(scene: &mut Scene, by: &str, rows: f64) {
    statement(scene, "select id from orders order by spot <-> point($1, $2) limit $3", json!({}), json!({}));
    node(scene, 1, 0, "Limit", json!({}));
    node(scene, 2, 1, "Sort", json!({"condition": by, "rows_planned": rows}));
    node(scene, 3, 2, "Seq Scan", json!({"relation": "public.orders", "rows_planned": rows}));
}

/// A call of a function with this text.
fn called(scene: &mut Scene, body: &str) {
    statement(scene, "select id from find_offer($1, $2)", json!({}), json!({}));
    scene.fact(
        n1(),
        record::watched::FUNCTION_TEXT,
        "find_offer",
        &format!("sql returning 1000 rows: {body}"),
    );
}

/// A nested loop over a function, or over a table with a declared number of values, that does more than its plan costs.
fn declared(scene: &mut Scene, rows: u64, expected: f64, options: &str) {
    let text = "select s.id from keys_of_tour($1) as k join orders s on s.id = k where s.batch = $2";
    statement(scene, text, json!({"shared_hit": 200_000}), json!({"cost_total": 90.0}));
    node(scene, 1, 0, "Nested Loop", json!({}));
    node(scene, 2, 1, "Function Scan", json!({"rows_planned": expected}));
    node(scene, 3, 1, "Index Scan", json!({"relation": "public.orders", "condition": "(batch = $2)"}));
    scene.fact(
        n1(),
        record::watched::FUNCTION_TEXT,
        "keys_of_tour",
        &format!("sql returning {rows} rows: select 1"),
    );
    let keys = json!({"node": "n1", "database": "db", "relation": "public.orders"});
    scene.set("table", keys, json!({"column_options": options, "live_rows": 1_000}));
}

/// A table with this fillfactor that is scanned, and so many rows of it that are updated.
fn loose(scene: &mut Scene, fill: u64, updated: u64) {
    work::statement(
        scene,
        "9",
        "select count(*) from cart",
        json!({"calls": 1_000, "total_ms": 30_000.0, "rows": 1_000, "shared_hit": 9_000_000}),
    );
    let keys = json!({"node": "n1", "database": "db", "relation": "public.cart"});
    scene.set("table", keys, json!({"bytes": 73_728_000, "live_rows": 50_000, "dead_rows": 0, "planned_rows": 50_000, "analyzes_total": 1, "analyzed_s": 60.0,
        "seq_scans": 5_000, "seq_rows": 250_000_000, "blocks_hit": 45_000_000, "blocks_read": 0, "index_rows": 0, "all_visible_share": 0.99,
        "rows_updated": updated, "fillfactor": fill}));
}

/// Part of [`super::all`].
pub(super) const CASES: &[Fires] = &[
    ("LCK-07", Counter, |scene| queue(scene, 4, "select pg_sleep(0.05)", ADD, "AccessExclusiveLock")),
    ("LCK-07", Counter, |scene| {
        queue(
            scene,
            4,
            "create table o_1 partition of orders for values from (1) to (2)",
            "insert into orders values ($1)",
            "RowExclusiveLock",
        )
    }),
    ("LCK-08", Counter, |scene| {
        scene.set("wait", wait("n1", "BufferPin", "BufferPin"), json!({"sessions": 2}));
    }),
    ("CFG-01", Co, |scene| {
        scene.fact(n1(), "setting", "track_counts", "off");
    }),
    ("CFG-01", Co, |scene| joined(scene, "join_collapse_limit", "1")),
    ("CFG-01", Co, |scene| gathered(scene, "0")),
    ("CFG-01", Co, |scene| {
        scene.fact(n1(), "setting", "wal_consistency_checking", "all");
    }),
    ("VAC-15", Counter, |scene| repeated(scene, "ANALYZE orders", 60)),
    ("VAC-15", Counter, |scene| repeated(scene, "refresh materialized view totals", 30)),
    ("REP-14", Counter, |scene| {
        repeated(scene, "select count(*) from pg_logical_slot_peek_changes($1, $2, $3)", 10)
    }),
    ("EXT-02", Counter, |scene| remote(scene, "postgres_fdw", 30_000)),
    ("PLAN-57", Co, |scene| union(scene, UNION, 160_000.0, 160_000.0)),
    ("PLAN-58", Co, |scene| page(scene, "((at < $1) OR ((at = $2) AND (id < $3)))")),
    ("PLAN-59", Co, |scene| nearest(scene, "(spot <-> point($1, $2))", 120_000.0)),
    ("PLAN-60", Co, |scene| {
        called(scene, "select id from offer where (a IS NULL OR seller = a) and (b IS NULL OR kind = b)")
    }),
    ("PLAN-61", Co, |scene| declared(scene, 1, 1.0, "")),
    ("PLAN-61", Co, |scene| declared(scene, 1000, 1000.0, "batch n_distinct=-1")),
    ("PLAN-62", Co, |scene| {
        statement(scene, "update orders set n = n + $1 where id = $2", json!({}), json!({}));
        scene.fact(n1(), record::watched::PECULIAR, "public.orders", "rule sums on UPDATE");
    }),
    ("VAC-14", Co, |scene| loose(scene, 10, 0)),
    ("TXN-13", Counter, |scene| {
        let fields = json!({"node": "n1", "severity": "FATAL", "sqlstate": "57P01", "repeated": 3});
        scene.event(
            5,
            record::event::SERVER_LOG,
            "terminating connection due to administrator command",
            fields,
        );
    }),
];

/// What only looks like these conditions.
pub(crate) const HARMLESS: &[(&str, Change)] = &[
    // Statements that read and write rows, or hardly a wait.
    ("LCK-07", |scene| queue(scene, 4, "select 1", "select 2", "AccessShareLock")),
    ("LCK-07", |scene| queue(scene, 1, "select pg_sleep(0.05)", ADD, "AccessExclusiveLock")),
    ("LCK-08", |scene| {
        scene.set("wait", wait("n1", "LWLock", "BufferContent"), json!({"sessions": 2}));
    }),
    // A value near the default, a statement without joins, and workers that are allowed.
    ("CFG-01", |scene| joined(scene, "join_collapse_limit", "12")),
    ("CFG-01", |scene| {
        scene.fact(n1(), "setting", "join_collapse_limit", "1");
    }),
    ("CFG-01", |scene| gathered(scene, "8")),
    ("CFG-01", |scene| {
        scene.fact(n1(), "setting", "wal_consistency_checking", "");
    }),
    // Once, or another statement of that beginning.
    ("VAC-15", |scene| repeated(scene, "ANALYZE orders", 1)),
    ("VAC-15", |scene| repeated(scene, "select analyze from orders", 60)),
    ("REP-14", |scene| repeated(scene, "select slot_name from pg_replication_slots", 60)),
    ("EXT-02", |scene| remote(scene, "shop", 30_000)),
    ("EXT-02", |scene| remote(scene, "postgres_fdw", 1_000)),
    ("PLAN-57", |scene| union(scene, "select id from a UNION ALL select id from b", 160_000.0, 160_000.0)),
    ("PLAN-57", |scene| union(scene, UNION, 160_000.0, 2_000.0)),
    ("PLAN-58", |scene| page(scene, "((at < $1) OR (id < $3))")),
    ("PLAN-59", |scene| nearest(scene, "(spot <-> point($1, $2))", 200.0)),
    ("PLAN-59", |scene| nearest(scene, "orders.at DESC", 120_000.0)),
    ("PLAN-60", |scene| called(scene, "select id from offer where seller = a")),
    ("PLAN-61", |scene| declared(scene, 1000, 1000.0, "")),
    ("PLAN-62", |scene| {
        statement(scene, "update orders set n = n + $1 where id = $2", json!({}), json!({}));
        scene.fact(n1(), record::watched::PECULIAR, "public.other", "rule sums on UPDATE");
    }),
    ("VAC-14", |scene| loose(scene, 90, 0)),
    ("VAC-14", |scene| loose(scene, 10, 900_000)),
    // A server that stops ends its sessions.
    ("TXN-13", |scene| {
        let fields = json!({"node": "n1", "severity": "FATAL", "sqlstate": "57P01", "repeated": 30});
        scene.event(
            5,
            record::event::SERVER_LOG,
            "terminating connection due to administrator command",
            fields,
        );
        scene.event(6, record::event::RESTART, "n1 was restarted", n1());
    }),
];

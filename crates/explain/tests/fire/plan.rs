//! Plans in which the rules on plans fire, and plans that only look like it.

use super::{Change, Fires};
use crate::scene::Scene;
use record::event;
use record::finding::Level::{CoOccurrence as Co, DiscriminatingCounter as Counter, WhatIf};
use serde_json::{Value, json};

/// A statement of half of the session time, with these figures and this plan.
pub(crate) fn statement(scene: &mut Scene, text: &str, figures: Value, plan: Value) {
    let keys = json!({"node": "n1", "database": "db", "query_id": "9"});
    scene.event(1, event::QUERY, "", json!({"query_id": "9", "text": text}));
    scene.set(
        "statement",
        keys.clone(),
        json!({"calls": 10, "total_ms": 30_000.0, "rows": 10, "shared_hit": 200_000}),
    );
    scene.set("statement", keys, figures);
    let keys = json!({"node": "n1", "query_id": "9", "hash": "c0"});
    scene.set("plan", keys.clone(), json!({"database": "db", "cost_total": 50_000.0, "rows_planned": 1.0, "partitions": 0, "jit_above_cost": 100_000.0, "work_mem_bytes": 4_194_304}));
    scene.set("plan", keys, plan);
}

pub(crate) fn node(scene: &mut Scene, number: u64, above: u64, kind: &str, fields: Value) {
    let keys = json!({"node": "n1", "query_id": "9", "hash": "c0", "number": number});
    scene.set(
        "plan_node",
        keys.clone(),
        json!({"above": above, "kind": kind, "rows_planned": 1.0, "width_bytes": 100}),
    );
    scene.set("plan_node", keys, fields);
}

/// A table of a million rows that is scanned with this condition.
pub(crate) fn scan(scene: &mut Scene, filter: &str, types: &str) {
    let text = "select * from orders where customer = $1 and at > $2";
    statement(scene, text, json!({}), json!({}));
    node(
        scene,
        1,
        0,
        "Seq Scan",
        json!({"relation": "public.orders", "filter": filter, "table_rows": 1_000_000.0, "column_types": types}),
    );
}

pub(crate) fn index(scene: &mut Scene, name: &str, columns: &str, valid: bool) {
    let keys = json!({"node": "n1", "relation": "public.orders", "index": name});
    scene.set(
        "plan_index",
        keys,
        json!({"columns": columns, "method": "btree", "valid": valid, "partial": false}),
    );
}

fn trial(scene: &mut Scene, after: f64, used: bool) {
    let change = "CREATE INDEX CONCURRENTLY ON public.orders (\"customer\", \"at\");";
    let keys = json!({"node": "n1", "query_id": "9", "hash": "c0", "change": change});
    scene.set("what_if", keys, json!({"kind": "index", "relation": "public.orders", "cost_before": 50_000.0, "cost_after": after, "used": used, "bytes": 22_000_000}));
}

const BOTH: &str = "((at > $2) AND (customer = $1))";

/// Rules, levels and changes.
pub(crate) const CASES: &[Fires] = &[
    ("PLAN-10", WhatIf, |scene| {
        scan(scene, BOTH, "");
        trial(scene, 9.0, true);
    }),
    ("PLAN-10", Co, |scene| scan(scene, BOTH, "")),
    ("PLAN-11", Co, |scene| {
        scan(scene, "(lower(name) = $1)", "name text");
        index(scene, "orders_name", "name", true);
    }),
    ("PLAN-11", Co, |scene| {
        scan(scene, "((customer)::numeric = $1)", "customer integer");
        index(scene, "orders_customer", "customer", true);
    }),
    ("PLAN-11", Co, |scene| {
        scan(scene, "(customer = $1)", "");
        index(scene, "orders_shop_customer", "shop; customer", true);
    }),
    ("PLAN-11", Co, |scene| {
        scan(scene, "(customer = $1)", "");
        index(scene, "orders_customer", "customer", false);
    }),
    ("PLAN-12", Co, |scene| {
        statement(
            scene,
            "select * from t where a = $1",
            json!({"rows": 500_000}),
            json!({"rows_planned": 5.0}),
        );
        node(
            scene,
            1,
            0,
            "Index Scan",
            json!({"relation": "public.t", "condition": "((a = $1) AND (b = $2))"}),
        );
    }),
    ("PLAN-13", Co, |scene| {
        statement(
            scene,
            "select * from t join u using (a) where b = $1",
            json!({"rows": 500_000}),
            json!({"rows_planned": 5.0}),
        );
        node(scene, 1, 0, "Nested Loop", json!({"rows_planned": 5.0}));
        node(scene, 2, 1, "Index Scan", json!({"relation": "public.t", "condition": "(b = $1)"}));
    }),
    ("PLAN-15", Co, |scene| {
        let text = "select * from t where lower(region) = $1";
        statement(scene, text, json!({}), json!({"partitions": 64}));
        node(scene, 1, 0, "Append", json!({}));
        node(
            scene,
            2,
            1,
            "Seq Scan",
            json!({"relation": "public.t_1", "filter": "(lower(region) = $1)", "table_rows": 100.0}),
        );
    }),
    ("PLAN-16", Co, |scene| {
        statement(scene, "select * from t order by a", json!({"temp_written": 50}), json!({}));
        node(scene, 1, 0, "Sort", json!({"rows_planned": 1_000_000.0}));
    }),
    ("PLAN-17", Counter, |scene| {
        // 5 % of the time, a third of it compilation.
        statement(
            scene,
            "select * from t",
            json!({"total_ms": 6_000.0, "jit_ms": 2_400.0}),
            json!({"cost_total": 150_000.0}),
        );
    }),
    ("PLAN-18", Co, |scene| {
        statement(scene, "select * from t where a = $1", json!({}), json!({}));
        let more = json!({"node": "n1", "query_id": "9", "before": "b0", "after": "c0"});
        scene.event(100, event::PLAN_CHANGED, "n1: statement 9 has another plan", more);
    }),
    ("PLAN-19", WhatIf, |scene| {
        let keys = json!({"node": "n1", "query_id": "9", "hash": "c0", "change": "SET work_mem = '256MB';"});
        scene.set(
            "what_if",
            keys,
            json!({"kind": "setting", "cost_before": 50_000.0, "cost_after": 9_000.0, "used": true}),
        );
    }),
];

/// What only looks like it.
pub(crate) const HARMLESS: &[(&str, Change)] = &[
    // hypopg has shown that the planner would not use the index, or gain little by it.
    ("PLAN-10", |scene| {
        scan(scene, BOTH, "");
        trial(scene, 50_000.0, false);
    }),
    ("PLAN-10", |scene| {
        scan(scene, BOTH, "");
        trial(scene, 45_000.0, true);
    }),
    // The index is there: most values are frequent, or PLAN-11 explains why it is of no use.
    ("PLAN-10", |scene| {
        scan(scene, BOTH, "");
        index(scene, "orders_customer", "customer", true);
    }),
    // Most rows are wanted; a small table; a condition that no index serves.
    ("PLAN-10", |scene| {
        scan(scene, BOTH, "");
        node(scene, 1, 0, "Seq Scan", json!({"rows_planned": 600_000.0}));
        let keys = json!({"node": "n1", "query_id": "9", "hash": "c0", "number": 1});
        scene.set(
            "plan_node",
            keys,
            json!({"relation": "public.orders", "filter": BOTH, "table_rows": 1_000_000.0}),
        );
    }),
    ("PLAN-10", |scene| scan(scene, "((note ~~ $1) OR (a = $2))", "")),
    // Counters show the scans as well: PLAN-01 has the finding.
    ("PLAN-10", |scene| {
        scan(scene, BOTH, "");
        let keys = json!({"node": "n1", "database": "db", "query_id": "9"});
        scene.set("statement", keys, json!({"calls": 1000, "total_ms": 50_000.0, "rows": 1000, "shared_hit": 2_000_000, "shared_read": 0}));
        let table = json!({"node": "n1", "database": "db", "relation": "public.orders"});
        scene.set("table", table, json!({"seq_scans": 6000, "seq_rows": 1_200_000_000u64}));
    }),
    // A varchar is shown as a cast to text, which its index serves.
    ("PLAN-11", |scene| {
        scan(scene, "((name)::text = $1)", "name character varying");
        index(scene, "orders_name", "name", true);
    }),
    ("PLAN-11", |scene| {
        scan(scene, "((shop = $1) AND (customer = $2))", "");
        index(scene, "orders_shop_customer", "shop; customer", true);
    }),
    // Few rows, or right to a factor of five.
    ("PLAN-12", |scene| {
        statement(
            scene,
            "select * from t where a = $1",
            json!({"rows": 5_000}),
            json!({"rows_planned": 1.0}),
        );
    }),
    ("PLAN-12", |scene| {
        statement(
            scene,
            "select * from t where a = $1",
            json!({"rows": 50_000}),
            json!({"rows_planned": 1_000.0}),
        );
    }),
    // What the loop returns is counted by an aggregate.
    ("PLAN-13", |scene| {
        statement(scene, "select a from t join u using (a) group by a", json!({"rows": 500_000}), json!({}));
        node(scene, 1, 0, "Aggregate", json!({"rows_planned": 50_000.0}));
        node(scene, 2, 1, "Nested Loop", json!({"rows_planned": 5.0}));
    }),
    // Partitions are left out when it runs; all of them are wanted.
    ("PLAN-15", |scene| {
        let plan = json!({"partitions": 64, "partitions_removed": 63});
        statement(scene, "select * from t where region = $1", json!({}), plan);
    }),
    ("PLAN-15", |scene| statement(scene, "select count(*) from t", json!({}), json!({"partitions": 64}))),
    // It fits, or nothing was written.
    ("PLAN-16", |scene| {
        statement(scene, "select * from t order by a", json!({"temp_written": 50}), json!({}));
        node(scene, 1, 0, "Sort", json!({"rows_planned": 1_000.0}));
    }),
    ("PLAN-16", |scene| {
        statement(scene, "select * from t order by a", json!({"temp_written": 0}), json!({}));
        node(scene, 1, 0, "Sort", json!({"rows_planned": 1_000_000.0}));
    }),
    // A long statement that gains by it.
    ("PLAN-17", |scene| {
        statement(
            scene,
            "select * from t",
            json!({"total_ms": 6_000.0, "jit_ms": 300.0}),
            json!({"cost_total": 150_000.0}),
        );
    }),
    // Another statement's plan.
    ("PLAN-18", |scene| {
        statement(scene, "select * from t where a = $1", json!({}), json!({}));
        let more = json!({"node": "n1", "query_id": "7", "before": "b0", "after": "c0"});
        scene.event(100, event::PLAN_CHANGED, "n1: statement 7 has another plan", more);
    }),
];

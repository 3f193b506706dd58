//! Statements whose form, indexes or lists make them do much work, and those that only look like it.

use super::plan::{node, statement};
use super::{Change, Co, Counter, Fires};
use crate::scene::Scene;
use serde_json::{Value, json};

/// A statement of half of the session time that touches so many blocks for so many rows, a hundred times.
pub(crate) fn select(scene: &mut Scene, text: &str, blocks: u64, rows: u64) {
    let figures = json!({"calls": 100, "rows": rows * 100, "shared_hit": blocks * 100});
    statement(scene, text, figures, json!({}));
    node(scene, 1, 0, "Result", json!({}));
}

/// Statistics of the table of these statements.
fn orders(scene: &mut Scene, figures: Value) {
    let keys = json!({"node": "n1", "database": "db", "relation": "public.orders"});
    scene.set(
        "table",
        keys.clone(),
        json!({"bytes": 100_000_000, "live_rows": 1_000_000, "rows_inserted": 500, "index_scans": 100, "seq_scans": 0}),
    );
    scene.set("table", keys, figures);
}

/// A search of the table by a condition, with an index of a method on its column, which is left aside.
fn aside(scene: &mut Scene, method: &str, options: &str) {
    // It is scanned as the plan has it.
    orders(scene, json!({"seq_scans": 60, "seq_rows": 60_000_000}));
    statement(scene, "select id from orders where words = $1", json!({"calls": 10}), json!({}));
    let scan =
        json!({"relation": "public.orders", "filter": "(orders.words = $1)", "table_rows": 1_000_000.0});
    node(scene, 1, 0, "Seq Scan", scan);
    let keys = json!({"node": "n1", "relation": "public.orders", "index": "orders_words"});
    let definition = format!("CREATE INDEX orders_words ON public.orders USING {method} (words){options}");
    scene.set(
        "plan_index",
        keys,
        json!({"columns": "words", "method": method, "valid": true, "partial": false, "definition": definition}),
    );
}

/// A search that uses a GIN index, at this cost of the planner for 1,308 rows.
fn listed(scene: &mut Scene, cost: f64) {
    aside(scene, "gin", " WITH (gin_pending_list_limit='131072')");
    statement(
        scene,
        "select id from orders where words @@ $1",
        json!({"calls": 100, "shared_hit": 157_600}),
        json!({}),
    );
    let found = json!({"relation": "public.orders", "filter": "", "condition": "(orders.words @@ $1)", "rows_planned": 1_308.0});
    node(scene, 1, 0, "Bitmap Heap Scan", found);
    let search = json!({"index": "orders_words", "condition": "(orders.words @@ $1)", "rows_planned": 1_308.0, "cost_total": cost});
    node(scene, 2, 1, "Bitmap Index Scan", search);
}

fn bitmap(scene: &mut Scene, work_mem_bytes: u64) {
    orders(scene, json!({"bytes": 1_000_000_000u64}));
    let plan = json!({"work_mem_bytes": work_mem_bytes});
    statement(scene, "select sum(total) from orders where customer = $1", json!({}), plan);
    let heap = json!({"relation": "public.orders", "rows_planned": 200_000.0, "table_rows": 1_000_000.0});
    node(scene, 1, 0, "Bitmap Heap Scan", heap);
}

fn list(count: usize) -> String {
    let members: Vec<String> = (1..=count).map(|number| format!("${number}")).collect();
    format!("select total from orders where id in ({})", members.join(", "))
}

const NUMBERED: &str = "select * from (select *, row_number() over (partition by customer order by at desc) n from orders) o where n = $1";
const BARRIER: &str = "with valid as materialized (select * from orders) select * from valid where id = $1";
const INNER: &str = "select id, (select count(*) from line where line.customer = orders.id) from orders";

/// Part of [`super::all`].
pub(super) const CASES: &[Fires] = &[
    ("PLAN-29", Counter, |scene| select(scene, "select count(*) from orders", 5_000, 1)),
    ("PLAN-29", Counter, |scene| select(scene, "select sum(total) from orders", 5_000, 1)),
    ("PLAN-30", Counter, |scene| select(scene, "select * from orders order by random() limit $1", 5_000, 1)),
    ("PLAN-31", Counter, |scene| select(scene, NUMBERED, 5_000, 10)),
    ("PLAN-32", Counter, |scene| select(scene, BARRIER, 5_000, 1)),
    ("PLAN-33", Counter, |scene| {
        select(scene, "select id from orders where total > $1", 5_000, 40_000);
        let keys = json!({"node": "n1", "database": "db", "query_id": "9"});
        scene.set("statement", keys, json!({"calls": 1_000, "rows": 40_000_000}));
    }),
    ("PLAN-34", Counter, |scene| {
        orders(scene, json!({"bytes": 20_000_000_000u64}));
        select(scene, "select * from orders where customer = $1", 5_000, 100);
    }),
    ("PLAN-35", Counter, |scene| select(scene, INNER, 5_000, 1_000)),
    ("PLAN-36", Counter, |scene| select(scene, "select count(distinct customer) from orders", 5_000, 1)),
    ("PLAN-37", Co, |scene| aside(scene, "gin", "")),
    ("PLAN-37", Co, |scene| listed(scene, 1_736.0)),
    ("PLAN-38", Co, |scene| aside(scene, "brin", "")),
    ("PLAN-39", Co, |scene| select(scene, &list(200), 800, 200)),
    ("PLAN-40", Co, |scene| bitmap(scene, 1 << 20)),
];

/// What only looks like the conditions of these rules.
pub(crate) const HARMLESS: &[(&str, Change)] = &[
    // A small table, a condition, and a result for each row.
    ("PLAN-29", |scene| select(scene, "select count(*) from orders", 50, 1)),
    ("PLAN-29", |scene| select(scene, "select count(*) from orders where customer = $1", 5_000, 1)),
    ("PLAN-30", |scene| select(scene, "select * from orders order by at limit $1", 5_000, 1)),
    ("PLAN-31", |scene| select(scene, NUMBERED, 5_000, 5_000)),
    ("PLAN-32", |scene| {
        select(scene, "with valid as (select * from orders) select * from valid where id = $1", 5_000, 1);
    }),
    ("PLAN-33", |scene| select(scene, "select id from orders where total > $1 limit 40000", 5_000, 40_000)),
    ("PLAN-34", |scene| {
        orders(scene, json!({}));
        select(scene, "select * from orders where customer = $1", 5_000, 100);
    }),
    ("PLAN-34", |scene| {
        // All of a wide table is read for lack of an index.
        orders(scene, json!({"bytes": 20_000_000_000u64}));
        select(scene, "select * from orders where customer = $1", 5_000, 100);
        node(scene, 1, 0, "Seq Scan", json!({"relation": "public.orders"}));
    }),
    ("PLAN-35", |scene| select(scene, INNER, 5_000, 10)),
    ("PLAN-36", |scene| select(scene, "select count(customer) from orders where id = $1", 5_000, 1)),
    ("PLAN-37", |scene| aside(scene, "gin", " WITH (fastupdate='off')")),
    // What is compared is taken out of the document: no list matters.
    ("PLAN-37", |scene| {
        aside(scene, "gin", "");
        let taken = json!({"filter": "((orders.words ->> $1) = $2)"});
        scene.set("plan_node", json!({"node": "n1", "query_id": "9", "hash": "c0", "number": 1}), taken);
    }),
    // The search of the index costs what its rows cost.
    ("PLAN-37", |scene| listed(scene, 40.0)),
    ("PLAN-37", |scene| {
        aside(scene, "gin", "");
        orders(scene, json!({"rows_inserted": 0, "rows_updated": 0}));
    }),
    ("PLAN-38", |scene| aside(scene, "btree", "")),
    ("PLAN-39", |scene| select(scene, &list(20), 800, 20)),
    // PostgreSQL 18 shortens a list of two as well.
    ("PLAN-39", |scene| {
        orders(scene, json!({"index_rows": 5_000_000}));
        select(scene, "select total from orders where id in ($1 /*, ... */)", 800, 200);
    }),
    ("PLAN-40", |scene| bitmap(scene, 64 << 20)),
];

//! Searches by patterns, by long lists, and by indexes of the wrong kind, name or database; and what only looks like them.

use super::plan::{index, node, scan, statement};
use super::{Change, Co, Counter, Fires};
use crate::scene::Scene;
use serde_json::{Value, json};

fn orders() -> Value {
    json!({"node": "n1", "database": "db", "relation": "public.orders"})
}

/// A statement that touches 2,000 blocks for each row, and a plan that filters its table.
pub(crate) fn pattern(scene: &mut Scene, condition: &str, filter: &str) {
    let figures =
        json!({"calls": 1000, "total_ms": 50_000.0, "rows": 1000, "shared_hit": 2_000_000, "shared_read": 0});
    statement(scene, &format!("select id from orders where {condition}"), figures, json!({}));
    let fields = json!({"relation": "public.orders", "filter": filter, "table_rows": 1_000_000.0, "column_types": "name character varying",
        "column_collations": "name en-x-icu"});
    node(scene, 1, 0, "Seq Scan", fields);
}

/// Its table is scanned as often as the statement runs.
pub(crate) fn scanned(scene: &mut Scene) {
    scene.set("table", orders(), json!({"seq_scans": 6000, "seq_rows": 1_200_000_000u64}));
}

/// An index on the column.
pub(crate) fn on_name(scene: &mut Scene, method: &str, class: &str, collation: &str) {
    let keys = json!({"node": "n1", "relation": "public.orders", "index": format!("orders_name_{class}")});
    scene.set(
        "plan_index",
        keys,
        json!({"columns": "name", "method": method, "operator_classes": class, "collations": collation, "valid": true, "partial": false}),
    );
}

const LIKE: &str = "((name)::text ~~ $1)";
const ILIKE: &str = "(name ~~* $1)";
const EITHER: &str = "((orders.name ~~* $1) OR (orders.code ~~* $2))";
const LOWER: &str = "(lower(name) ~~ $1)";

/// The first rows that fit a pattern, by an index that is read for its order.
pub(crate) fn walked(scene: &mut Scene, condition: &str, filter: &str) {
    pattern(scene, &format!("{condition} order by name limit $2"), filter);
    node(scene, 1, 0, "Index Scan", json!({"index": "orders_name"}));
}

/// The same without a plan: an index of the column is there, and so many rows are read by index scans each second.
pub(crate) fn walked_unplanned(scene: &mut Scene, condition: &str, rows: u64) {
    let figures = json!({"calls": 1000, "total_ms": 50_000.0, "rows": 1000, "shared_hit": 200_000_000, "shared_read": 0});
    let text = format!("select id from orders where {condition} order by name limit $2");
    super::work::statement(scene, "9", &text, figures);
    scene.set(
        "table",
        orders(),
        json!({"index_columns": "orders_name(name); orders_pkey(id)", "live_rows": 1_000_000, "index_scans": 6_000, "index_rows": rows, "seq_scans": 0}),
    );
}

/// A search of the table by an index of a bitmap, whose name an index of another table or database has as well.
fn by_bitmap(scene: &mut Scene, database: &str, relation: &str) {
    scene.set("table", orders(), json!({"bytes": 100_000_000, "live_rows": 1_000_000}));
    statement(
        scene,
        "select sum(total) from orders where device = $1",
        json!({"calls": 10, "shared_hit": 120_000}),
        json!({}),
    );
    let heap =
        json!({"relation": "public.orders", "condition": "(orders.device = $1)", "table_rows": 1_000_000.0});
    node(scene, 1, 0, "Bitmap Heap Scan", heap);
    node(
        scene,
        2,
        1,
        "Bitmap Index Scan",
        json!({"index": "by_device", "condition": "(orders.device = $1)"}),
    );
    let fields =
        |method: &str| json!({"columns": "device", "method": method, "valid": true, "partial": false});
    let own = json!({"node": "n1", "database": "db", "relation": "public.orders", "index": "by_device"});
    let method = if (database, relation) == ("db", "public.orders") { "brin" } else { "btree" };
    scene.set("plan_index", own, fields(method));
    let other = json!({"node": "n1", "database": database, "relation": relation, "index": "by_device"});
    scene.set("plan_index", other, fields("brin"));
}

/// An index of another kind on the column of a scan.
fn of_kind(scene: &mut Scene, method: &str, class: &str) {
    scan(scene, "(customer = $1)", "customer integer");
    index(scene, "orders_customer", "customer", true);
    let keys = json!({"node": "n1", "relation": "public.orders", "index": "orders_customer"});
    scene.set("plan_index", keys, json!({"method": method, "operator_classes": class}));
}

/// The same in executions that do not scan it.
fn of_kind_unscanned(scene: &mut Scene, method: &str, class: &str) {
    of_kind(scene, method, class);
    let figures = json!({"node": "n1", "database": "db", "query_id": "9"});
    scene.set("statement", figures, json!({"calls": 1_000, "shared_hit": 200_000}));
    scene.set("table", orders(), json!({"seq_scans": 0, "seq_rows": 0, "index_scans": 6_000}));
}

/// Part of [`super::all`].
pub(super) const CASES: &[Fires] = &[
    ("PLAN-11", Co, |scene| {
        pattern(scene, "name like $1", LIKE);
        scanned(scene);
        on_name(scene, "btree", "text_ops", "en-x-icu");
    }),
    ("PLAN-11", Co, |scene| {
        pattern(scene, "name ilike $1", ILIKE);
        scanned(scene);
        on_name(scene, "btree", "text_ops", "C");
    }),
    // The index serves fixed beginnings, and the table is scanned.
    ("PLAN-11", Co, |scene| {
        pattern(scene, "name like $1", LIKE);
        scanned(scene);
        on_name(scene, "btree", "text_pattern_ops", "en-x-icu");
    }),
    // No pattern can use it, so nothing needs to be counted.
    ("PLAN-11", Co, |scene| {
        pattern(scene, "lower(name) like $1", LOWER);
        on_name(scene, "btree", "text_ops", "C");
    }),
    // OR connects two patterns, and the first rows in the order of the index are looked for.
    ("PLAN-11", Co, |scene| {
        pattern(scene, "name ilike $1 or code ilike $2 order by name limit $3", EITHER);
        node(
            scene,
            1,
            0,
            "Index Scan",
            json!({"index": "orders_name", "column_types": "name text; code text"}),
        );
        scanned(scene);
        on_name(scene, "btree", "text_ops", "en-x-icu");
    }),
    // The index is read for ORDER BY, and does not serve the pattern.
    ("PLAN-11", Co, |scene| {
        walked(scene, "name like $1", LIKE);
        on_name(scene, "btree", "text_ops", "en-x-icu");
    }),
    ("PLAN-27", Co, |scene| walked_unplanned(scene, "name like $1", 6_000_000_000)),
    // All entries of an index are read and compared, while another one is on the column that is cast.
    ("PLAN-11", Co, |scene| {
        scan(scene, "((orders.at)::date = (CURRENT_DATE - $1))", "at timestamp with time zone");
        node(scene, 1, 0, "Index Only Scan", json!({"index": "orders_customer"}));
        index(scene, "orders_at", "at", true);
    }),
    ("PLAN-01", Counter, |scene| {
        pattern(scene, "name like $1", LIKE);
        scanned(scene);
    }),
    ("PLAN-38", Co, |scene| by_bitmap(scene, "db", "public.orders")),
    // Trigrams serve only patterns with three characters in a row.
    ("PLAN-11", Co, |scene| {
        pattern(scene, "name ilike $1", ILIKE);
        scanned(scene);
        on_name(scene, "gin", "gin_trgm_ops", "en-x-icu");
    }),
    // These find nothing by the value of the column.
    ("PLAN-10", Co, |scene| of_kind(scene, "brin", "int4_minmax_ops")),
    ("PLAN-10", Co, |scene| of_kind(scene, "gin", "jsonb_ops")),
];

/// What only looks like it.
pub(crate) const HARMLESS: &[(&str, Change)] = &[
    // One side of the OR is no pattern: nothing is known of the two together.
    ("PLAN-11", |scene| {
        pattern(scene, "name ilike $1 or code = $2", "((orders.name ~~* $1) OR (orders.code = $2))");
        scanned(scene);
        on_name(scene, "btree", "text_ops", "en-x-icu");
    }),
    // The table is not scanned while the statement runs a hundred times a second: another plan is carried out.
    ("PLAN-10", |scene| of_kind_unscanned(scene, "brin", "int4_minmax_ops")),
    ("PLAN-20", |scene| {
        scan(scene, "(made <= now())", "made timestamp with time zone");
        index(scene, "orders_made", "made", true);
    }),
    // A procedure returns nothing, whatever the statement inside of it finds.
    ("SES-08", |scene| {
        let figures = json!({"calls": 200_000, "total_ms": 50_000.0, "rows": 0, "shared_hit": 200_000});
        statement(
            scene,
            "call book($1)",
            figures,
            json!({"inner": "select id from orders where id >= $1", "function": "book"}),
        );
    }),
    // The blocks are those of another table, which a foreign key reads.
    ("PLAN-27", |scene| {
        let figures = json!({"calls": 1000, "total_ms": 50_000.0, "rows": 1000, "shared_hit": 2_000_000, "shared_read": 0});
        let text = "delete from orders where id = (select id from orders where closed is not null order by id limit $1)";
        statement(scene, text, figures, json!({}));
        let fields = json!({"relation": "public.orders", "index": "orders_closed", "filter": "(closed IS NOT NULL)", "table_rows": 1_000_000.0});
        node(scene, 1, 0, "Index Scan", fields);
        scene.set("table", orders(), json!({"blocks_hit": 20_000, "blocks_read": 0}));
    }),
    // Many rows may fit what the patterns begin with, and that index serves it.
    ("PLAN-11", |scene| {
        walked(scene, "name like $1", LIKE);
        on_name(scene, "btree", "text_pattern_ops", "en-x-icu");
    }),
    ("PLAN-11", |scene| {
        walked(scene, "name like $1", LIKE);
        on_name(scene, "btree", "text_ops", "C");
    }),
    // The pattern is the reason, and not the order.
    ("PLAN-27", |scene| {
        walked(scene, "name like $1", LIKE);
        on_name(scene, "btree", "text_ops", "en-x-icu");
    }),
    // Its executions read few rows by the index.
    ("PLAN-27", |scene| walked_unplanned(scene, "name like $1", 6_000)),
    // A plan for unknown values never uses an index for a pattern: whether the table is scanned is not known.
    ("PLAN-11", |scene| {
        pattern(scene, "name like $1", LIKE);
        on_name(scene, "btree", "text_ops", "en-x-icu");
    }),
    // Older recordings have no operator classes.
    ("PLAN-11", |scene| {
        pattern(scene, "name like $1", LIKE);
        scanned(scene);
        on_name(scene, "btree", "", "");
    }),
    // Generic plans are forced: PLAN-08 reports that.
    ("PLAN-11", |scene| {
        pattern(scene, "name like $1", LIKE);
        scanned(scene);
        on_name(scene, "btree", "text_ops", "en-x-icu");
        scene.fact(json!({"node": "n1"}), "setting", "plan_cache_mode", "force_generic_plan");
    }),
    ("PLAN-10", |scene| pattern(scene, "name like $1", LIKE)),
    ("PLAN-38", |scene| by_bitmap(scene, "db", "archive.orders")),
    ("PLAN-38", |scene| by_bitmap(scene, "other", "public.orders")),
    // They compare whole values, and the planner leaves them aside.
    ("PLAN-10", |scene| of_kind(scene, "hash", "int4_ops")),
    ("PLAN-10", |scene| of_kind(scene, "gin", "int4_ops")),
    // A BRIN index is no index that fits.
    ("PLAN-20", |scene| {
        of_kind(scene, "brin", "int4_minmax_ops");
        scene.fact(json!({"node": "n1"}), "setting", "random_page_cost", "400");
    }),
    // An index of the same table in another schema.
    ("PLAN-20", |scene| {
        scan(scene, "(customer = $1)", "customer integer");
        let keys =
            json!({"node": "n1", "database": "db", "relation": "archive.orders", "index": "orders_customer"});
        scene.set(
            "plan_index",
            keys,
            json!({"columns": "customer", "method": "btree", "valid": true, "partial": false}),
        );
        scene.fact(json!({"node": "n1"}), "setting", "random_page_cost", "400");
    }),
];

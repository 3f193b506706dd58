//! Intervals that are searched by their ends, and indexes that cannot answer alone.

use super::plan::{node, statement};
use super::{Change, Co, Counter, Fires};
use crate::scene::Scene;
use serde_json::{Value, json};

/// An index scan by one condition that leaves out rows by another.
fn ends(scene: &mut Scene, condition: &str, filter: &str, figures: Value) {
    let text = "select country from geo_block where $1 between first_ip and last_ip";
    statement(scene, text, json!({"rows": 10, "shared_hit": 5_000}), json!({}));
    let keys = json!({"node": "n1", "database": "db", "query_id": "9"});
    scene.set("statement", keys, figures);
    node(
        scene,
        1,
        0,
        "Index Scan",
        json!({"relation": "public.geo_block", "index": "geo_block_pkey", "condition": condition, "filter": filter,
            "table_rows": 150_000.0, "rows_planned": 1.0, "cost_total": 1_874.0, "column_types": "last_ip bigint"}),
    );
}

/// A count by the condition of an index, and the state of the table.
fn counted(scene: &mut Scene, kind: &str, width: u64, table: Value) {
    of_tickets(scene, "select count(*) from ticket_sale where venue = $1", kind, width, table);
}

fn of_tickets(scene: &mut Scene, text: &str, kind: &str, width: u64, table: Value) {
    statement(scene, text, json!({"rows": 10, "shared_hit": 45_000}), json!({}));
    node(scene, 1, 0, "Aggregate", json!({"width_bytes": 8}));
    let scan = json!({"relation": "public.ticket_sale", "index": "ticket_sale_venue", "condition": "(venue = $1)",
        "width_bytes": width, "rows_planned": 7_500.0, "table_rows": 150_000.0});
    node(scene, 2, 1, kind, scan);
    let keys = json!({"node": "n1", "database": "db", "relation": "public.ticket_sale"});
    scene.set("table", keys.clone(), json!({"bytes": 36_000_000, "live_rows": 150_000, "planned_rows": 150_000, "analyzes_total": 1, "analyzed_s": 60.0}));
    scene.set("table", keys, table);
}

/// A write, and how many blocks of a table that it does not name were touched.
fn unnamed(scene: &mut Scene, text: &str, blocks: u64, triggers: u64) {
    statement(scene, text, json!({"rows": 50, "shared_hit": 4_650}), json!({}));
    for (relation, hit) in
        [("public.holiday", blocks), ("public.shift_plan", 400), ("public.usertable", 1_000)]
    {
        let keys = json!({"node": "n1", "database": "db", "relation": relation});
        scene.set("table", keys, json!({"bytes": 700_000, "live_rows": 20_000, "planned_rows": 20_000, "analyzes_total": 1, "analyzed_s": 60.0,
            "blocks_hit": hit, "blocks_read": 0, "triggers": triggers, "indexes": 1}));
    }
}

/// Statements on these tables, so many a second, beside the application's.
fn asking(scene: &mut Scene, text: &str, calls: u64) {
    for (id, text, figures) in [
        ("71", text, json!({"calls": calls, "total_ms": 900.0, "rows": calls, "shared_hit": calls * 25})),
        (
            "72",
            "select name from pet where id = $1",
            json!({"calls": 800, "total_ms": 60.0, "rows": 800, "shared_hit": 2_400}),
        ),
    ] {
        scene.event(1, record::event::QUERY, "", json!({"query_id": id, "text": text}));
        scene.set("statement", json!({"node": "n1", "database": "db", "query_id": id}), figures);
    }
}

/// A scan by this filter, which keeps so many of a million rows.
fn filtered(scene: &mut Scene, filter: &str, kept: f64) {
    super::plan::scan(scene, filter, "body jsonb; name text; at timestamp with time zone");
    node(scene, 1, 0, "Seq Scan", json!({"rows_planned": kept}));
}

/// A join of a table by what is computed from its column.
fn joined(scene: &mut Scene, condition: &str, wanted: f64) {
    statement(
        scene,
        "select h.name from imported m join holder h on h.id = m.no where m.id = $1",
        json!({}),
        json!({}),
    );
    node(
        scene,
        1,
        0,
        "Hash Join",
        json!({"rows_planned": wanted, "condition": condition, "cost_total": 2_100.0}),
    );
    let holder = json!({"relation": "public.holder", "alias": "h", "rows_planned": 100_000.0, "table_rows": 100_000.0, "cost_total": 1_800.0});
    node(scene, 2, 1, "Seq Scan", holder);
    node(scene, 3, 1, "Hash", json!({"rows_planned": 1.0, "cost_total": 8.3}));
    node(
        scene,
        4,
        3,
        "Index Scan",
        json!({"relation": "public.imported", "alias": "m", "index": "imported_pkey", "condition": "(m.id = $1)", "rows_planned": 1.0}),
    );
}

const COLUMNS: &str = "select column_name from information_schema.columns where table_name = $1";
const PLANNED: &str = "insert into shift_plan (d) select date $1 + i from generate_series($2, $3) i";

/// A sum of a column that an index has behind INCLUDE.
fn summed(scene: &mut Scene, text: &str) {
    of_tickets(scene, text, "Bitmap Heap Scan", 12, json!({"all_visible_share": 0.0}));
    node(
        scene,
        3,
        2,
        "Bitmap Index Scan",
        json!({"index": "ticket_sale_venue", "condition": "(venue = $1)"}),
    );
    let keys = json!({"node": "n1", "database": "db", "relation": "public.ticket_sale", "index": "ticket_sale_venue"});
    let definition =
        "CREATE INDEX ticket_sale_venue ON public.ticket_sale USING btree (venue) INCLUDE (price)";
    scene.set("plan_index", keys, json!({"definition": definition, "columns": "venue", "method": "btree", "valid": true, "partial": false}));
}

/// Part of [`super::all`].
pub(super) const CASES: &[Fires] = &[
    ("VAC-13", Co, |scene| {
        summed(scene, "select venue, sum(price) from ticket_sale where venue = $1 group by venue")
    }),
    ("PLAN-48", Co, |scene| {
        ends(scene, "(geo_block.first_ip <= $1)", "($1 <= geo_block.last_ip)", json!({}))
    }),
    ("PLAN-48", Co, |scene| ends(scene, "((first_ip <= $1) AND (last_ip >= $1))", "", json!({}))),
    ("PLAN-48", Co, |scene| ends(scene, "(starts_at < $2)", "(ends_at > $1)", json!({}))),
    ("VAC-13", Co, |scene| counted(scene, "Bitmap Heap Scan", 0, json!({"all_visible_share": 0.0}))),
    ("PLAN-49", Co, |scene| unnamed(scene, PLANNED, 26_000, 0)),
    ("PLAN-50", Co, |scene| filtered(scene, "((orders.body ->> $1) = ($2 || $3))", 5_000.0)),
    ("PLAN-50", Co, |scene| filtered(scene, "(lower(name) = $1)", 5_000.0)),
    ("PLAN-50", Co, |scene| filtered(scene, "(date_trunc('day'::text, at) = $1)", 5_000.0)),
    ("PLAN-50", Co, |scene| joined(scene, "((h.id)::text = m.no)", 5.0)),
    ("SES-07", Counter, |scene| asking(scene, COLUMNS, 820)),
    ("SES-07", Counter, |scene| asking(scene, "select oid from pg_type where typname = $1", 600)),
    ("VAC-13", Counter, |scene| {
        counted(scene, "Index Only Scan", 4, json!({"all_visible_share": 0.1, "vacuumed_s": 90_000.0}))
    }),
];

/// What only looks like these conditions.
pub(crate) const HARMLESS: &[(&str, Change)] = &[
    // One column, two columns that no interval has, both on the same side, and an execution that touches little.
    ("PLAN-48", |scene| ends(scene, "((first_ip >= $1) AND (first_ip <= $2))", "", json!({}))),
    ("PLAN-48", |scene| ends(scene, "(price <= $1)", "(weight >= $2)", json!({}))),
    ("PLAN-48", |scene| ends(scene, "(first_ip <= $1)", "(last_ip <= $1)", json!({}))),
    ("PLAN-48", |scene| ends(scene, "(first_ip <= $1)", "($1 <= last_ip)", json!({"shared_hit": 60}))),
    // Its trigger does it, the statement names the table, or the other table has little to do with it, or many other statements.
    ("PLAN-49", |scene| unnamed(scene, PLANNED, 26_000, 1)),
    ("PLAN-49", |scene| unnamed(scene, "insert into shift_plan (d) select d from holiday", 26_000, 0)),
    ("PLAN-49", |scene| unnamed(scene, PLANNED, 900, 0)),
    ("PLAN-49", |scene| unnamed(scene, PLANNED, 9_000_000, 0)),
    // Most rows fit, a column is compared besides, or the column itself, or an index on it is what cannot be used.
    ("PLAN-50", |scene| filtered(scene, "(lower(name) = $1)", 600_000.0)),
    ("PLAN-50", |scene| filtered(scene, "((lower(name) = $1) AND (at > $2))", 5_000.0)),
    ("PLAN-50", |scene| filtered(scene, "(name = $1)", 5_000.0)),
    ("PLAN-50", |scene| {
        filtered(scene, "(lower(name) = $1)", 5_000.0);
        super::plan::index(scene, "orders_name", "name", true);
    }),
    // An index holds the result, and the plan does without it; or the planner guesses few rows, and the statement returns many.
    ("PLAN-50", |scene| {
        filtered(scene, "((at)::date = $1)", 5_000.0);
        super::plan::index(scene, "orders_day", "", true);
        let keys = json!({"node": "n1", "relation": "public.orders", "index": "orders_day"});
        let definition = "CREATE INDEX orders_day ON public.orders USING btree (((at)::date))";
        scene.set("plan_index", keys, json!({"definition": definition}));
    }),
    ("PLAN-50", |scene| {
        filtered(scene, "(lower(name) = $1)", 5_000.0);
        let keys = json!({"node": "n1", "database": "db", "query_id": "9"});
        scene.set("statement", keys, json!({"calls": 10, "rows": 8_000_000}));
    }),
    ("PLAN-50", |scene| joined(scene, "((h.id)::text = m.no)", 60_000.0)),
    ("PLAN-50", |scene| joined(scene, "(h.id = (m.no)::integer)", 5.0)),
    ("SES-07", |scene| asking(scene, COLUMNS, 10)),
    ("SES-07", |scene| asking(scene, "select id from pets where name = $1", 820)),
    ("SES-07", |scene| asking(scene, "select p.id from pet p join pg_class c on c.relname = p.name", 820)),
    ("VAC-13", |scene| {
        summed(scene, "select venue, sum(tax) from ticket_sale where venue = $1 group by venue")
    }),
    // The pages are marked, columns of the row are needed, or vacuums run meanwhile.
    ("VAC-13", |scene| {
        counted(scene, "Bitmap Heap Scan", 0, json!({"all_visible_share": 0.98, "vacuumed_s": 90.0}))
    }),
    ("VAC-13", |scene| counted(scene, "Bitmap Heap Scan", 12, json!({"all_visible_share": 0.0}))),
    ("VAC-13", |scene| {
        counted(
            scene,
            "Index Only Scan",
            4,
            json!({"all_visible_share": 0.1, "autovacuums": 1, "vacuumed_s": 2.0}),
        )
    }),
    // A load that began again dropped the first table of that node.
    ("CAP-04", |scene| {
        let keys = json!({"node": "n3", "database": "db", "relation": "public.usertable_102001"});
        scene.set(
            "table",
            keys.clone(),
            json!({"bytes": 900_000_000, "index_bytes": 0, "live_rows": 300_000, "dead_rows": 0}),
        );
        scene.during("table", keys, 1..=60);
    }),
];

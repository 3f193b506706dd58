//! What one statement does and what another one beside it does: whose scans, whose causes and whose time they are; and work for each row that
//! is done, or only looks so.

use super::plan::{node, statement};
use super::work::statement as another;
use super::{Change, Co, Counter, Fires};
use crate::scene::{Scene, wait};
use record::finding::{Finding, Severity};
use serde_json::{Value, json};

/// Counters of a table in a minute.
fn table(scene: &mut Scene, relation: &str, fields: Value) {
    scene.set("table", json!({"node": "n1", "database": "db", "relation": relation}), fields);
}

/// A statement that touches many blocks a hundred times a second.
fn touches(scene: &mut Scene, text: &str) {
    let figures = json!({"calls": 1000, "total_ms": 50_000.0, "rows": 1000, "shared_hit": 2_000_000});
    statement(scene, text, figures, json!({}));
}

/// Another statement that scans a small table a thousand times a second, in little time.
fn scans_codes(scene: &mut Scene) {
    let figures = json!({"calls": 10_000, "total_ms": 3_000.0, "shared_hit": 260_000});
    another(scene, "8", "select count(*) from codes where code like $1", figures);
    table(scene, "public.codes", json!({"live_rows": 3_000, "seq_scans": 60_000, "seq_rows": 180_000_000}));
}

/// A view of a table that is scanned, and a partition that another statement scans more.
fn scans_through_view(scene: &mut Scene) {
    touches(scene, "update recent_orders set amount = amount + $1 where note = $2");
    node(scene, 1, 0, "Seq Scan", json!({"relation": "public.orders", "filter": "(lower(note) = $2)"}));
    table(scene, "public.orders", json!({"seq_scans": 6_000, "seq_rows": 1_200_000_000u64}));
    let figures = json!({"calls": 5_000, "total_ms": 3_000.0, "shared_hit": 3_500_000});
    another(scene, "8", "update part set v = v + $1 where k = $2", figures);
    let scans = json!({"partition_of": "public.part", "seq_scans": 30_000, "seq_rows": 1_500_000_000u64});
    table(scene, "public.part_a", scans);
}

/// A join by a pattern, and another statement with one step that reads a large table.
fn compares(scene: &mut Scene) {
    let half = json!({"calls": 1000, "total_ms": 45_000.0});
    statement(scene, "select count(*) from codes c, pats p where c.code like p.p", half.clone(), json!({}));
    node(scene, 1, 0, "Nested Loop", json!({"filter": "(c.code ~~ p.p)"}));
    for (number, relation, rows) in [(2, "codes", 3_000.0), (3, "pats", 60.0)] {
        let fields = json!({"relation": format!("public.{relation}"), "alias": &relation[..1], "table_rows": rows, "rows_planned": rows});
        node(scene, number, 1, "Seq Scan", fields);
    }
    another(scene, "8", "select count(*), min(id) from msgs where body not like $1", half);
    let plan = json!({"node": "n1", "query_id": "8", "hash": "c1"});
    scene.set("plan", plan, json!({"database": "db", "cost_total": 50_000.0, "rows_planned": 1.0}));
    let step = json!({"node": "n1", "query_id": "8", "hash": "c1", "number": 1});
    let fields = json!({"above": 0, "kind": "Seq Scan", "relation": "public.msgs", "filter": "(msgs.body !~~ $1)",
        "cost_total": 50_000.0, "table_rows": 60_000.0, "rows_planned": 59_700.0, "width_bytes": 8});
    scene.set("plan_node", step, fields);
}

#[test]
fn a_finding_is_no_symptom_of_what_another_statement_does() {
    let mut scene = Scene::healthy();
    compares(&mut scene);
    let findings = scene.explain().findings;
    let of = |rule: &str| findings.iter().find(|finding| finding.rule == rule);
    assert!(of("PLAN-78").is_some(), "{findings:#?}");
    let step = of("PLAN-45").unwrap_or_else(|| panic!("no costly step: {findings:#?}"));
    assert_eq!(step.symptom_of, None, "{findings:#?}");
}

/// A scan whose cheaper condition few rows fit, so that few reach the subquery beside it; so many blocks in ten executions.
fn beside_subquery(scene: &mut Scene, blocks: u64) {
    let text = "select id from wide w where status = $1 and id > (select min(id) from orders o where o.cust = w.cust) - $2";
    statement(scene, text, json!({"shared_hit": blocks}), json!({}));
    let filter = "((w.status = $1) AND (w.id > ((SubPlan ?) - $2)))";
    let fields = json!({"relation": "public.wide", "alias": "w", "filter": filter, "table_rows": 6_000.0, "rows_planned": 30.0});
    node(scene, 1, 0, "Seq Scan", fields);
    let fields = json!({"relation": "public.orders", "alias": "o", "index": "orders_cust", "subquery": true, "condition": "(o.cust = w.cust)"});
    node(scene, 2, 1, "Index Scan", fields);
    table(scene, "public.wide", json!({"bytes": 49_152_000, "live_rows": 6_000}));
}

/// Three fields of a document in a scan of a table of 100,000 rows with this filter, below this step.
fn fields(scene: &mut Scene, above: &str, filter: &str) {
    let text = "select body ->> $1, body ->> $2, body ->> $3 from report where cust between $4 and $5";
    statement(scene, text, json!({"rows": 40}), json!({}));
    node(scene, 1, 0, above, json!({}));
    let fields = json!({"relation": "public.report", "filter": filter, "table_rows": 100_000.0, "rows_planned": 1_500.0});
    node(scene, 2, 1, "Seq Scan", fields);
    let keys = json!({"node": "n1", "backend": "client backend", "state": "active", "wait_type": "CPU", "wait_event": "CPU", "query_id": "9"});
    scene.set("wait", keys, json!({"sessions": 3}));
    scene.fact(json!({"node": "n1"}), "column_kinds", "public.report", "body json");
}

/// A large table beside one of which the planner expects so many rows, and what it knows of that table.
fn beside_settings(scene: &mut Scene, expected: f64, more: Value) {
    statement(scene, "select sum(amount * (1 + tax)) from orders cross join settings", json!({}), json!({}));
    node(scene, 1, 0, "Nested Loop", json!({}));
    let orders = json!({"relation": "public.orders", "rows_planned": 200_000.0, "table_rows": 200_000.0});
    node(scene, 2, 1, "Seq Scan", orders);
    node(scene, 3, 1, "Materialize", json!({"rows_planned": expected}));
    let keys = json!({"node": "n1", "query_id": "9", "hash": "c0", "number": 4});
    let known = json!({"above": 3, "kind": "Seq Scan", "relation": "public.settings", "rows_planned": expected, "width_bytes": 8});
    scene.set("plan_node", keys.clone(), known);
    scene.set("plan_node", keys, more);
}

/// A page whose rows are sorted by this above a window over all of them, and an index of two columns.
fn sorted_page(scene: &mut Scene, order: &str) {
    let text = "select id, note, count(*) over () from posting p where region = $1 order by 2 limit $2";
    statement(scene, text, json!({}), json!({}));
    node(scene, 1, 0, "Limit", json!({}));
    node(scene, 2, 1, "Sort", json!({"condition": order, "rows_planned": 66_000.0}));
    node(scene, 3, 2, "WindowAgg", json!({"rows_planned": 66_000.0}));
    let fields = json!({"relation": "public.posting", "alias": "p", "filter": "(p.region = $1)", "table_rows": 200_000.0, "rows_planned": 66_000.0});
    node(scene, 4, 3, "Seq Scan", fields);
    let keys = json!({"node": "n1", "relation": "public.posting", "index": "posting_region"});
    scene.set(
        "plan_index",
        keys,
        json!({"columns": "region; at", "method": "btree", "valid": true, "partial": false}),
    );
}

/// A VACUUM by command that sleeps at this table, and another one full of dead rows.
fn slow_vacuum(scene: &mut Scene, relation: &str) {
    scene.set("wait", wait("n1", "Timeout", "VacuumDelay"), json!({"sessions": 4}));
    let keys = json!({"node": "n1", "pid": 9, "command": "vacuum", "relation": relation});
    scene.set("progress", keys, json!({"auto": false, "phase": "scanning heap"}));
    table(scene, "public.dead", json!({"live_rows": 20_000, "dead_rows": 40_000}));
}

/// Rows that are locked, and a function that is called as often and writes so much WAL each time.
fn locks(scene: &mut Scene, wal: u64) {
    let figures = json!({"calls": 400, "rows": 60_000, "wal_bytes": 4_000_000});
    statement(scene, "select id from account where owner = $1 for update", figures, json!({}));
    table(scene, "public.account", json!({"live_rows": 90_000, "rows_updated": 0, "rows_deleted": 0}));
    let figures = json!({"calls": 400, "total_ms": 30.0, "wal_bytes": 400 * wal});
    another(scene, "8", "select post($1)", figures);
}

/// A report on a table with columns of these types.
fn padded(scene: &mut Scene, kinds: &str) {
    statement(scene, "select count(*) from buyer where town = $1", json!({}), json!({}));
    table(scene, "public.buyer", json!({"bytes": 16_000_000, "live_rows": 50_000, "planned_rows": 50_000}));
    scene.fact(json!({"node": "n1"}), "column_kinds", "public.buyer", kinds);
}

/// A search for what lies in a document, below this step, that returns so many rows in ten executions.
fn inside(scene: &mut Scene, above: &str, filter: &str, rows: u64) {
    statement(scene, "select id from items where doc ? $1", json!({"rows": rows}), json!({}));
    node(scene, 1, 0, above, json!({}));
    let fields = json!({"relation": "public.items", "filter": filter, "table_rows": 60_000.0, "column_types": "doc jsonb"});
    node(scene, 2, 1, "Seq Scan", fields);
}

/// Elements of each row's array, chosen by this condition.
fn elements(scene: &mut Scene, filter: &str) {
    statement(
        scene,
        "select count(*) from docs d, lateral unnest(d.tags) x where x = $1",
        json!({}),
        json!({}),
    );
    node(scene, 1, 0, "Aggregate", json!({}));
    node(scene, 2, 1, "Nested Loop", json!({"rows_planned": 60_000.0}));
    let docs =
        json!({"relation": "public.docs", "alias": "d", "table_rows": 20_000.0, "rows_planned": 20_000.0});
    node(scene, 3, 2, "Seq Scan", docs);
    node(
        scene,
        4,
        2,
        "Function Scan",
        json!({"alias": "x", "condition": "unnest(d.tags)", "filter": filter}),
    );
}

/// The finding of a rule, after a change.
fn finding(rule: &str, change: impl Fn(&mut Scene)) -> Finding {
    let mut scene = Scene::healthy();
    change(&mut scene);
    let findings = scene.explain().findings;
    let found = findings.iter().find(|finding| finding.rule == rule).cloned();
    found.unwrap_or_else(|| panic!("no {rule}: {findings:#?}"))
}

#[test]
fn what_the_record_does_not_decide_is_low() {
    let of = |rule: &str, change: &dyn Fn(&mut Scene)| finding(rule, change).severity;
    // The dead rows are those of the table of the VACUUM, or of another one.
    assert!(of("VAC-10", &|scene| slow_vacuum(scene, "public.dead")) > Severity::Low);
    assert_eq!(of("VAC-10", &|scene| slow_vacuum(scene, "public.archive")), Severity::Low);
    // The locks may guard what a function writes.
    assert!(of("TXN-19", &|scene| locks(scene, 0)) > Severity::Low);
    assert_eq!(of("TXN-19", &|scene| locks(scene, 7_400)), Severity::Low);
    // Hashes fill their columns.
    assert!(of("PLAN-80", &|scene| padded(scene, "name character(200)")) > Severity::Low);
    let hashes = |scene: &mut Scene| {
        padded(scene, "a character(64); b character(64); c character(64); d character(64)")
    };
    assert_eq!(of("PLAN-80", &hashes), Severity::Low);
    assert!(finding("PLAN-80", hashes).claim.contains("may be wide"));
    // All documents may have the key, if only their number is returned.
    assert!(of("PLAN-54", &|scene| inside(scene, "Result", "(doc ? $1)", 10)) > Severity::Low);
    assert!(of("PLAN-54", &|scene| inside(scene, "Aggregate", "(doc @> $1)", 10)) > Severity::Low);
    assert_eq!(of("PLAN-54", &|scene| inside(scene, "Aggregate", "(doc ? $1)", 10)), Severity::Low);
}

#[test]
fn remedies_fit_the_condition() {
    let commands = |filter: &str| format!("{:?}", finding("PLAN-50", |scene| elements(scene, filter)).remedy);
    assert!(commands("(x.x = $1)").contains("USING gin"));
    assert!(!commands("((x.x)::integer > $1)").contains("USING gin"));
    // The last character is that of one encoding.
    let text = finding("PLAN-78", compares).remedy.text;
    assert!(text.contains("chr(1114111), the last character of UTF8"), "{text}");
}

/// Rules, levels and changes.
pub(crate) const CASES: &[Fires] = &[
    // A trigger scans it: no other statement is there that does.
    ("PLAN-01", Counter, |scene| {
        touches(scene, "update stock set n = n - $1 where item = $2");
        table(scene, "public.orders", json!({"seq_scans": 6_000, "seq_rows": 1_200_000_000u64}));
    }),
    // Another statement names it, and touches too few blocks to scan it.
    ("PLAN-01", Counter, |scene| {
        touches(scene, "update stock set n = n - $1 where item = $2");
        table(scene, "public.orders", json!({"seq_scans": 6_000, "seq_rows": 1_200_000_000u64}));
        let figures = json!({"calls": 10_000, "total_ms": 300.0, "shared_hit": 40_000});
        another(scene, "8", "select note from orders where id = $1", figures);
    }),
    ("PLAN-76", Co, |scene| beside_subquery(scene, 240_000)),
    ("PLAN-79", Co, |scene| fields(scene, "Aggregate", "(cust >= $4)")),
    ("PLAN-79", Co, |scene| fields(scene, "Result", "((body ->> $1) = $2)")),
    ("PLAN-82", Co, |scene| beside_settings(scene, 880.0, json!({"table_rows": 880.0}))),
    ("PLAN-82", Co, |scene| {
        beside_settings(scene, 880.0, json!({}));
        table(scene, "public.settings", json!({"live_rows": 900}));
    }),
    ("PLAN-77", Co, |scene| sorted_page(scene, "p.at DESC")),
    ("PLAN-50", Co, |scene| elements(scene, "(x.x = $1)")),
];

/// What only looks like it.
pub(crate) const HARMLESS: &[(&str, Change)] = &[
    // The table is another statement's, which scans it so often.
    ("PLAN-01", |scene| {
        touches(scene, "select count(*) from orders where customer = $1");
        scans_codes(scene);
    }),
    // Blocks beside those of the table are too few for a subquery of each row.
    ("PLAN-76", |scene| beside_subquery(scene, 60_120)),
    // Fields of the few rows that are returned.
    ("PLAN-79", |scene| fields(scene, "Result", "(cust >= $4)")),
    // One row, whatever the planner expects of a table that it does not know.
    ("PLAN-82", |scene| {
        beside_settings(scene, 880.0, json!({}));
        table(scene, "public.settings", json!({"live_rows": 1}));
    }),
    ("PLAN-82", |scene| beside_settings(scene, 1.0, json!({"table_rows": 1.0}))),
    // A large table is read beside the temporary one.
    ("VAC-17", |scene| {
        let text = "select count(*) from orders o where exists (select from mytmp t where t.id = o.cust)";
        statement(scene, text, json!({"shared_hit": 18_700}), json!({}));
        scene.fact(json!({"node": "n1"}), "temporary", "pg_temp_3.mytmp", "2000 52000 1957888");
    }),
    // No index is in the order of the page.
    ("PLAN-77", |scene| sorted_page(scene, "p.note")),
    // The window needs all rows: an index in the order of the page spares none.
    ("PLAN-01", |scene| {
        sorted_page(scene, "p.note");
        let figures = json!({"calls": 100, "total_ms": 40_000.0, "rows": 2_000, "shared_hit": 900_000});
        scene.set("statement", json!({"node": "n1", "database": "db", "query_id": "9"}), figures);
        table(scene, "public.posting", json!({"seq_scans": 600, "seq_rows": 120_000_000}));
    }),
    ("PLAN-77", |scene| sorted_page(scene, "(lower(p.at))")),
    // Most documents have the key, and all elements are wanted.
    ("PLAN-54", |scene| inside(scene, "Result", "(doc ? $1)", 300_000)),
    ("PLAN-50", |scene| elements(scene, "")),
];

/// Rules, changes, and what their claims must say.
const TOLD: &[(&str, Change, &str)] = &[
    (
        "PLAN-01",
        |scene| {
            touches(scene, "select count(*) from orders where customer = $1");
            table(scene, "public.orders", json!({"seq_scans": 6_000, "seq_rows": 300_000_000}));
            scans_codes(scene);
        },
        "rows of public.orders to return",
    ),
    ("PLAN-01", scans_through_view, "rows of public.orders to return"),
];

#[test]
fn claims_are_about_what_the_statement_does_itself() {
    for (rule, change, words) in TOLD {
        let claim = super::surplus::claim_of(rule, *change);
        assert!(claim.contains(words), "{rule}: {claim}");
    }
}

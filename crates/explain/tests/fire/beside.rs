//! What one statement does and what another one beside it does: whose scans, whose causes and whose time they are; and work for each row that
//! is done, or only looks so.

use super::plan::{node, statement};
use super::work::statement as another;
use super::{Change, Counter, Fires};
use crate::scene::Scene;
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
];

/// What only looks like it.
pub(crate) const HARMLESS: &[(&str, Change)] = &[
    // The table is another statement's, which scans it so often.
    ("PLAN-01", |scene| {
        touches(scene, "select count(*) from orders where customer = $1");
        scans_codes(scene);
    }),
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

//! Conditions whose cost or gain is not known: what fits them, what is sent, and what a form of a statement costs. Their findings are low, and name what is
//! missing.

use super::plan::{index, node, statement};
use super::search::{on_name, scanned};
use crate::scene::Scene;
use record::finding::{Finding, Severity};
use serde_json::{Value, json};

/// The finding of a rule in a scene, if it has one.
fn found(rule: &str, change: impl FnOnce(&mut Scene)) -> Option<Finding> {
    let mut scene = Scene::healthy();
    change(&mut scene);
    scene.explain().findings.into_iter().find(|finding| finding.rule == rule)
}

/// The finding of a rule.
fn one(rule: &str, change: impl FnOnce(&mut Scene)) -> Finding {
    found(rule, change).unwrap_or_else(|| panic!("{rule} has no finding"))
}

/// What the remedy saves at least.
fn least(finding: &Finding) -> f64 {
    finding.benefit.as_ref().map_or(0.0, |benefit| benefit.least)
}

/// A scan of a million rows that keeps so many of them, below an aggregate or not.
fn filtered(scene: &mut Scene, text: &str, filter: &str, kept: f64) {
    let rows = if text.contains("count(") { 100 } else { 1_000 };
    statement(scene, text, json!({"calls": 100, "rows": rows, "shared_hit": 900_000}), json!({}));
    let above = if text.contains("count(") { 1 } else { 0 };
    node(scene, 1, 0, if above == 1 { "Aggregate" } else { "Result" }, json!({}));
    let fields = json!({"relation": "public.orders", "filter": filter, "table_rows": 1_000_000.0, "rows_planned": kept,
        "column_types": "name text", "column_collations": "name en-x-icu"});
    node(scene, 2, above, "Seq Scan", fields);
}

#[test]
fn an_index_that_a_range_or_pattern_below_an_aggregate_could_use_may_gain_nothing() {
    let range = |text: &str| {
        one("PLAN-11", |scene| {
            filtered(scene, text, "(orders.kind >= $1)", 333_333.0);
            index(scene, "orders_pkey", "id; kind", true);
        })
    };
    let pattern = one("PLAN-11", |scene| {
        let filter = "((orders.name ~~ $1) OR (orders.name ~~ $2))";
        filtered(scene, "select count(*) from orders where name like $1 or name like $2", filter, 10_000.0);
        on_name(scene, "btree", "text_ops", "en-x-icu");
        scanned(scene);
    });
    for finding in [range("select count(*) from orders where kind >= $1"), pattern] {
        assert_eq!((finding.severity, least(&finding)), (Severity::Low, 0.0), "{finding:?}");
        assert!(finding.missing.iter().any(|line| line.contains("how many rows fit")), "{finding:?}");
    }
    // Without an aggregate the rows that fit are counted: they leave the statement.
    let few = range("select id from orders where kind >= $1");
    assert_eq!(few.severity, Severity::High, "{few:?}");
    let many = one("PLAN-11", |scene| {
        filtered(scene, "select id from orders where kind >= $1", "(orders.kind >= $1)", 333_333.0);
        index(scene, "orders_pkey", "id; kind", true);
        let keys = json!({"node": "n1", "database": "db", "query_id": "9"});
        scene.set("statement", keys, json!({"calls": 100, "rows": 30_000_000}));
    });
    assert_eq!((many.severity, least(&many)), (Severity::Low, 0.0), "{many:?}");
}

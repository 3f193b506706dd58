//! What the catalog defines and no text of a statement shows: policies of row-level security, virtual columns; and lists that are made anew by each execution.

use super::plan::{index, node, statement};
use super::{Change, Co, Fires};
use crate::scene::Scene;
use record::finding::{Finding, Severity};
use serde_json::{Value, json};

fn n1() -> Value {
    json!({"node": "n1"})
}

const NOTES: &str = "select id, title from app.note order by created desc limit $1";
const FUNCTION: &str = "(tenant_id = app.tenant())";
const SETTING: &str = "(tenant_id = (current_setting('***'::text))::integer)";

/// A policy with this condition and a function of this volatility on a table of which each of so many executions in ten seconds reads 200,000 rows.
fn secured(scene: &mut Scene, text: &str, policy: (&str, &str), calls: u64, indexes: &str) {
    let (condition, volatility) = policy;
    statement(
        scene,
        text,
        json!({"calls": calls, "rows": calls * 25, "shared_hit": calls * 2_200}),
        json!({"cost_total": 19_000.0}),
    );
    let keys = json!({"node": "n1", "database": "db", "relation": "app.note"});
    let rows = calls * 6 * 200_000;
    scene.set(
        "table",
        keys,
        json!({"seq_scans": calls * 6, "seq_rows": rows, "index_rows": 0, "indexes": 2, "index_columns": indexes}),
    );
    let function = json!({"name": "app.tenant", "signature": "app.tenant()", "language": "plpgsql", "volatility": volatility});
    let value = json!({"relation": "app.note", "name": "mine", "command": "ALL", "roles": [], "exempt": ["postgres"],
        "condition": condition, "functions": [function]});
    scene.fact(n1(), "policy", "app.note mine", &value.to_string());
}

const INDEXED: &str = "note_pkey(id); note_tenant(tenant_id, created)";
const LIKE: &str = "select id, title from app.note where ref like $1 order by ref limit $2";
const LOWER: &str = "select id, title from app.note where lower(ref) = $1";
const REFERENCED: &str = "note_pkey(id); note_ref(ref); note_tenant(tenant_id, created)";
const UNINDEXED: &str = "note_pkey(id)";

/// Only a role that policies do not apply to is at work.
fn exempt(scene: &mut Scene) {
    let keys =
        json!({"node": "n1", "application": "psql", "user": "postgres", "database": "db", "client": "local"});
    scene.set("activity", keys, json!({"sessions": 6}));
}

/// A search by a column, of which it is recorded that it is virtual, in a statement that reads so many rows for those that it returns.
fn searched(scene: &mut Scene, text: &str, read: u64, returned: u64) {
    statement(scene, text, json!({"calls": 100, "rows": returned * 100, "shared_hit": 100_000}), json!({}));
    let keys = json!({"node": "n1", "database": "db", "relation": "public.article"});
    scene.set("table", keys, json!({"seq_scans": 0, "seq_rows": 0, "index_rows": read * 600}));
    let expression = "to_tsvector('***'::regconfig, body)";
    scene.fact(n1(), "virtual_column", "public.article tsv", expression);
}

const SEARCH: &str = "select id from article where tsv @@ plainto_tsquery($1) order by at desc limit $2";

/// A filter with a subquery of so many rows, for a statement that reads so many rows of the other table.
fn listed(scene: &mut Scene, filter: &str, list: f64, read: u64) {
    let text = "select id from subscriber where country = $1 and id not in (select subscriber_id from orders) limit $2";
    statement(scene, text, json!({"calls": 100, "rows": 0, "shared_hit": 400_000}), json!({}));
    node(scene, 1, 0, "Limit", json!({"rows_planned": 1_000.0}));
    let outer = json!({"relation": "public.subscriber", "filter": filter, "condition": "(country = $1)", "rows_planned": 10_000.0});
    node(scene, 2, 1, "Index Scan", outer);
    let inner =
        json!({"relation": "public.orders", "subquery": true, "rows_planned": list, "table_rows": list});
    node(scene, 3, 2, "Seq Scan", inner);
    index(scene, "orders_subscriber", "subscriber_id", true);
    let keys = json!({"node": "n1", "database": "db", "relation": "public.subscriber"});
    scene.set("table", keys, json!({"seq_scans": 0, "seq_rows": 0, "index_rows": read * 600}));
}

const HASHED: &str = "(NOT (hashed SubPlan ?))";
/// As PostgreSQL 17 and later write it.
const HASHED_COLUMN: &str = "(NOT (ANY (subscriber.id = (hashed SubPlan ?).col1)))";

/// Rules, levels and changes.
pub(super) const CASES: &[Fires] = &[
    ("PLAN-67", Co, |scene| secured(scene, NOTES, (FUNCTION, "VOLATILE"), 100, INDEXED)),
    ("PLAN-67", Co, |scene| secured(scene, NOTES, ("app.tenant(tenant_id)", "STABLE"), 100, INDEXED)),
    ("PLAN-67", Co, |scene| secured(scene, NOTES, (SETTING, ""), 10_000, UNINDEXED)),
    // The condition of the statement waits for a policy that an index serves.
    ("PLAN-67", Co, |scene| secured(scene, LIKE, (SETTING, ""), 10_000, REFERENCED)),
    ("PLAN-67", Co, |scene| secured(scene, LOWER, (SETTING, ""), 10_000, INDEXED)),
    ("PLAN-84", Co, |scene| searched(scene, SEARCH, 8_000, 1)),
    ("PLAN-85", Co, |scene| listed(scene, HASHED, 250_000.0, 4_000)),
    ("PLAN-85", Co, |scene| listed(scene, HASHED_COLUMN, 250_000.0, 4_000)),
];

/// What only looks like these conditions.
pub(crate) const HARMLESS: &[(&str, Change)] = &[
    // An index is searched for the value, which is computed once; or so little time for each row that no function can be called for it.
    ("PLAN-67", |scene| secured(scene, NOTES, (FUNCTION, "STABLE"), 100, INDEXED)),
    ("PLAN-67", |scene| secured(scene, NOTES, (SETTING, ""), 10_000, INDEXED)),
    ("PLAN-67", |scene| {
        secured(scene, NOTES, ("(tenant_id = ( SELECT app.tenant() AS tenant))", "VOLATILE"), 100, INDEXED);
    }),
    ("PLAN-67", |scene| secured(scene, NOTES, (FUNCTION, "VOLATILE"), 40_000, INDEXED)),
    // What the statement itself compares is what lacks an index.
    ("PLAN-67", |scene| {
        secured(scene, "select id from app.note where title = $1", (SETTING, ""), 10_000, UNINDEXED);
    }),
    ("PLAN-67", |scene| {
        secured(scene, NOTES, (FUNCTION, "VOLATILE"), 100, INDEXED);
        exempt(scene);
    }),
    // A comparison that may run in front of the policy, one that another index serves, and a role without policies.
    ("PLAN-67", |scene| {
        secured(scene, "select id from app.note where ref = $1", (SETTING, ""), 10_000, REFERENCED);
    }),
    ("PLAN-67", |scene| {
        let text = "select id from app.note where ref like $1 and id > $2";
        secured(scene, text, (SETTING, ""), 10_000, REFERENCED);
    }),
    ("PLAN-67", |scene| {
        secured(scene, LIKE, (SETTING, ""), 10_000, REFERENCED);
        exempt(scene);
    }),
    // Few rows, many of which fit, and a column that is only returned.
    ("PLAN-84", |scene| searched(scene, SEARCH, 40, 1)),
    ("PLAN-84", |scene| searched(scene, SEARCH, 8_000, 6_000)),
    ("PLAN-84", |scene| searched(scene, "select id, tsv from article where at > $1 limit $2", 8_000, 1)),
    // A short list, one that many rows are compared with, and one whose members are wanted.
    ("PLAN-85", |scene| listed(scene, HASHED, 900.0, 40)),
    ("PLAN-85", |scene| listed(scene, HASHED, 250_000.0, 200_000)),
    ("PLAN-85", |scene| listed(scene, "(hashed SubPlan ?)", 250_000.0, 4_000)),
    ("PLAN-85", |scene| listed(scene, "(NOT (SubPlan ?))", 250_000.0, 4_000)),
];

fn found(rule: &str, change: impl Fn(&mut Scene)) -> Finding {
    let mut scene = Scene::healthy();
    change(&mut scene);
    let findings = scene.explain().findings;
    findings.into_iter().find(|one| one.rule == rule).expect("the rule fires")
}

#[test]
fn what_helps_depends_on_how_the_policy_calls_its_function() {
    let volatile = found("PLAN-67", |scene| secured(scene, NOTES, (FUNCTION, "VOLATILE"), 100, INDEXED));
    assert_eq!(volatile.severity, Severity::High);
    for part in
        ["policy mine", "app.tenant() (plpgsql, VOLATILE)", "index note_tenant on tenant_id is not used"]
    {
        assert!(volatile.claim.contains(part), "{part}: {}", volatile.claim);
    }
    let commands = volatile.remedy.commands.join("\n");
    assert!(commands.contains("ALTER FUNCTION app.tenant() STABLE;"), "{commands}");
    assert!(commands.contains("USING ((tenant_id = (SELECT app.tenant())));"), "{commands}");

    let of_column =
        found("PLAN-67", |scene| secured(scene, NOTES, ("app.tenant(tenant_id)", "STABLE"), 100, UNINDEXED));
    assert!(of_column.claim.contains("with column tenant_id"), "{}", of_column.claim);
    assert!(
        of_column.remedy.text.contains("(SELECT f(column)) changes nothing"),
        "{}",
        of_column.remedy.text
    );
    let commands = of_column.remedy.commands.join("\n");
    assert!(commands.contains("CREATE INDEX CONCURRENTLY ON app.note (\"tenant_id\");"), "{commands}");
    assert!(!commands.contains(" STABLE;"), "{commands}");

    let value = found("PLAN-67", |scene| secured(scene, NOTES, (SETTING, ""), 10_000, UNINDEXED));
    assert!(value.claim.contains("no index begins with tenant_id"), "{}", value.claim);
}

#[test]
fn a_condition_that_waits_for_a_policy_is_written_so_that_it_need_not() {
    let pattern = found("PLAN-67", |scene| secured(scene, LIKE, (SETTING, ""), 10_000, REFERENCED));
    for part in ["the pattern for ref", "behind policy mine", "not LEAKPROOF", "index note_ref is not used"] {
        assert!(pattern.claim.contains(part), "{part}: {}", pattern.claim);
    }
    assert!(pattern.remedy.text.contains("ref ^@ 'abc'"), "{}", pattern.remedy.text);
    let lower = found("PLAN-67", |scene| secured(scene, LOWER, (SETTING, ""), 10_000, INDEXED));
    assert!(lower.claim.contains("lower(ref) is checked only behind"), "{}", lower.claim);
    assert!(lower.remedy.text.contains("a generated column of lower(ref), STORED"), "{}", lower.remedy.text);
    // One story: no other rule gives the same time another reason.
    let mut scene = Scene::healthy();
    secured(&mut scene, LIKE, (SETTING, ""), 10_000, REFERENCED);
    let findings = scene.explain().findings;
    let others = findings.iter().filter(|one| one.rule == "PLAN-27" || one.rule == "PLAN-01");
    let mut causes = others.map(|one| one.symptom_of.as_deref());
    assert!(causes.all(|cause| cause == Some("PLAN-67")), "{findings:?}");
}

#[test]
fn a_virtual_column_is_the_cause_of_a_search_without_an_index() {
    let finding = found("PLAN-84", |scene| searched(scene, SEARCH, 8_000, 1));
    assert!(finding.claim.contains("by tsv, a generated column that is VIRTUAL"), "{}", finding.claim);
    let command = &finding.remedy.commands[0];
    assert!(command.contains("USING gin ((%s))") && !command.contains("***"), "{command}");
    // How many rows an aggregate takes is not known.
    let text = "select count(*) from article where tsv = $1";
    assert_eq!(found("PLAN-84", |scene| searched(scene, text, 8_000, 1)).severity, Severity::Medium);
}

#[test]
fn a_hashed_list_names_the_index_that_its_rows_could_be_looked_for_in() {
    let finding = found("PLAN-85", |scene| listed(scene, HASHED, 250_000.0, 4_000));
    assert!(finding.claim.contains("by index orders_subscriber"), "{}", finding.claim);
    assert!(finding.remedy.commands.is_empty(), "{:?}", finding.remedy);
}

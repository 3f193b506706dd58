//! What only looks like a condition because a name, a setting or a size is like that of one, and what is then still found.

use super::plan::{node, statement};
use super::{Change, Co, Counter, Fires};
use crate::scene::Scene;
use serde_json::{Value, json};

fn n1() -> Value {
    json!({"node": "n1"})
}

/// A setting that is not the server's.
fn own(scene: &mut Scene, name: &str, owner: &str, value: &str) {
    scene.fact(n1(), "own_setting", &format!("{name} of {owner}"), value);
}

/// So many sessions of a role at work.
fn at_work(scene: &mut Scene, user: &str, sessions: u64) {
    let group =
        json!({"node": "n1", "application": "shop", "user": user, "database": "db", "client": "local"});
    scene.set("activity", group, json!({"sessions": sessions}));
}

/// A search that touches many blocks for few rows, in a table that lies in this tablespace.
fn searched(scene: &mut Scene, tablespace: &str) {
    statement(scene, "select id from orders where note = $1", json!({}), json!({}));
    let fields = json!({"relation": "public.orders", "filter": "(note = $1)", "table_rows": 900_000.0});
    node(scene, 1, 0, "Seq Scan", fields);
    let keys = json!({"node": "n1", "database": "db", "relation": "public.orders"});
    scene.set("table", keys, json!({"tablespace": tablespace, "index_tablespaces": "pg_default"}));
}

/// The same with these two prices of pages.
fn priced(scene: &mut Scene, random: &str, in_order: &str) {
    scene.fact(n1(), "setting", "random_page_cost", random);
    scene.fact(n1(), "setting", "seq_page_cost", in_order);
    searched(scene, "pg_default");
}

/// A statement over three tables.
fn joined(scene: &mut Scene, text: &str) {
    statement(scene, text, json!({}), json!({}));
    for (number, relation) in [(1, "public.a"), (2, "public.b"), (3, "public.c")] {
        node(scene, number, 0, "Seq Scan", json!({"relation": relation}));
    }
}

const FLAT: &str = "select 1 from a, b, c where b.a = a.id and c.b = b.id and c.x = $1";
const JOINED: &str = "select 1 from a join b on b.a = a.id join c on c.b = b.id where c.x = $1";
const NESTED: &str =
    "select 1 from a, (select b.a, c.x from b, c where c.b = b.id) s where s.a = a.id and s.x = $1";

fn with(scene: &mut Scene, name: &str, value: &str, text: &str) {
    scene.fact(n1(), "setting", name, value);
    joined(scene, text);
}

/// Tables that are read one after another, of which so many rows are kept; what is known of the one that the statement names.
fn children(scene: &mut Scene, is_partition: bool, kept: f64, peculiar: &str) {
    scene.fact(n1(), "setting", "constraint_exclusion", "off");
    scene.fact(n1(), record::watched::PECULIAR, "public.p", peculiar);
    statement(scene, "select region, sum(v) from p where v > $1 group by region", json!({}), json!({}));
    node(scene, 1, 0, "Append", json!({}));
    for number in 2..=3 {
        let fields = json!({"relation": format!("public.p{number}"), "filter": "(v > $1)", "rows_planned": kept, "table_rows": 50_000.0,
            "partitioned": is_partition});
        node(scene, number, 1, "Seq Scan", fields);
    }
}

/// A statistics target of a thousand, and a statement with such times.
fn sampled(scene: &mut Scene, figures: Value) {
    scene.fact(n1(), "setting", "default_statistics_target", "1000");
    statement(scene, "select count(*) from a join b on b.x = a.x where a.id = $1", figures, json!({}));
}

/// A scan of jobs with this filter below nodes of these kinds.
fn locks(scene: &mut Scene, above: &[&str], kind: &str, relation: &str, filter: &str) {
    statement(scene, "select id from job where state = $1", json!({}), json!({}));
    for (number, kind) in (1..).zip(above) {
        node(scene, number, number - 1, kind, json!({}));
    }
    let last = above.len() as u64;
    let fields = json!({"relation": relation, "filter": filter, "table_rows": 60_000.0});
    node(scene, last + 1, last, kind, fields);
}

const LOCK: &str = "pg_try_advisory_xact_lock((id)::bigint)";

/// A table that is scanned at each execution although the plan has an index of such a class for a condition on columns of such a type.
fn unlike(scene: &mut Scene, condition: &str, types: &str, class: &str) {
    let text = "select count(*) from orders where note = $1";
    statement(scene, text, json!({"calls": 1000, "rows": 1000, "shared_hit": 2_000_000}), json!({}));
    let fields = json!({"relation": "public.orders", "condition": condition, "column_types": types});
    node(scene, 1, 0, "Bitmap Heap Scan", fields);
    node(scene, 2, 1, "Bitmap Index Scan", json!({"index": "orders_note", "condition": condition}));
    let keys = json!({"node": "n1", "relation": "public.orders", "index": "orders_note"});
    let index = json!({"columns": "note", "method": "gin", "operator_classes": class, "valid": true, "partial": false});
    scene.set("plan_index", keys, index);
    let keys = json!({"node": "n1", "database": "db", "relation": "public.orders"});
    scene.set("table", keys, json!({"seq_scans": 6000, "seq_rows": 1_200_000_000u64}));
    scene.fact(n1(), "extension", "intarray", "1.5");
}

/// The same by a role that forbids what the plan does.
fn forbidden(scene: &mut Scene, condition: &str, types: &str, class: &str) {
    unlike(scene, condition, types, class);
    own(scene, "enable_bitmapscan", "role clerk", "off");
    at_work(scene, "clerk", 5);
}

/// Rules, levels and changes.
pub(super) const CASES: &[Fires] = &[
    ("CFG-01", Co, |scene| {
        own(scene, "random_page_cost", "tablespace archive", "300");
        searched(scene, "archive");
    }),
    ("CFG-01", Co, |scene| {
        own(scene, "join_collapse_limit", "role clerk", "1");
        at_work(scene, "clerk", 5);
        joined(scene, JOINED);
    }),
    ("CFG-01", Co, |scene| children(scene, false, 300.0, "40 tables inherit from it")),
    ("CFG-01", Co, |scene| with(scene, "from_collapse_limit", "1", NESTED)),
    ("CFG-01", Co, |scene| with(scene, "geqo_threshold", "3", FLAT)),
    ("CFG-01", Co, |scene| priced(scene, "0.1", "1")),
    ("CFG-01", Co, |scene| sampled(scene, json!({"plan_ms": 30_000.0, "total_ms": 3_000.0}))),
    ("CFG-01", Co, |scene| {
        scene.fact(n1(), "setting", "default_statistics_target", "10000");
        statement(scene, "ANALYZE orders", json!({}), json!({}));
    }),
    ("PLAN-81", Co, |scene| locks(scene, &["Limit"], "Seq Scan", "public.job", LOCK)),
    ("PLAN-81", Co, |scene| locks(scene, &[], "Seq Scan", "public.job", "pg_advisory_lock_shared(id)")),
    ("PLAN-21", Counter, |scene| forbidden(scene, "(note ~~ $1)", "note text", "gin_trgm_ops")),
];

/// What only looks like these conditions.
pub(crate) const HARMLESS: &[(&str, Change)] = &[
    // A tablespace without a table of the statement, and roles that are not at work, or for less time than the statement takes.
    ("CFG-01", |scene| {
        own(scene, "random_page_cost", "tablespace unused", "0.1");
        searched(scene, "pg_default");
    }),
    ("CFG-01", |scene| {
        own(scene, "join_collapse_limit", "role clerk", "1");
        at_work(scene, "shop", 5);
        joined(scene, JOINED);
    }),
    ("CFG-01", |scene| {
        own(scene, "join_collapse_limit", "role clerk", "1");
        at_work(scene, "clerk", 1);
        at_work(scene, "shop", 9);
        joined(scene, JOINED);
    }),
    // Partitions, the branches of a UNION, and children of which a condition keeps most rows.
    ("CFG-01", |scene| children(scene, true, 300.0, "partitioned by LIST (region)")),
    ("CFG-01", |scene| children(scene, false, 300.0, "")),
    ("CFG-01", |scene| children(scene, false, 30_000.0, "40 tables inherit from it")),
    // Tables in a list, fewer of them than the threshold, and none of many orders without the genetic optimizer.
    ("CFG-01", |scene| with(scene, "from_collapse_limit", "1", FLAT)),
    ("CFG-01", |scene| with(scene, "from_collapse_limit", "1", JOINED)),
    ("CFG-01", |scene| with(scene, "join_collapse_limit", "1", FLAT)),
    ("CFG-01", |scene| with(scene, "geqo_threshold", "5", FLAT)),
    ("CFG-01", |scene| {
        scene.fact(n1(), "setting", "geqo", "off");
        with(scene, "geqo_threshold", "3", FLAT);
    }),
    // The price of a database that is in memory: it is the same in any order.
    ("CFG-01", |scene| priced(scene, "0.1", "0.1")),
    // A column with such a name, a lock that is given back, and rows that a subquery with LIMIT has chosen.
    ("PLAN-81", |scene| {
        locks(scene, &[], "Seq Scan", "public.job", "((advisory_level = $1) AND (advisory_kind = $2))")
    }),
    ("PLAN-81", |scene| locks(scene, &[], "Seq Scan", "public.job", "pg_advisory_unlock(id)")),
    ("PLAN-81", |scene| locks(scene, &["Aggregate"], "CTE Scan", "", LOCK)),
    // Statistics whose price is not seen.
    ("CFG-01", |scene| sampled(scene, json!({"plan_ms": 30.0, "total_ms": 30_000.0}))),
];

/// Claims, and words that they have.
pub(crate) const TOLD: &[(&str, Change, &str)] = &[
    (
        "CFG-01",
        |scene| {
            own(scene, "join_collapse_limit", "role clerk", "1");
            at_work(scene, "clerk", 5);
            joined(scene, JOINED);
        },
        "for role clerk",
    ),
    (
        "PLAN-21",
        |scene| forbidden(scene, "(note ~~ $1)", "note text", "gin_trgm_ops"),
        "enable_bitmapscan is off for role clerk",
    ),
    ("PLAN-21", |scene| unlike(scene, "(note ~~ $1)", "note text", "gin_trgm_ops"), "fewer than three"),
    ("PLAN-21", |scene| unlike(scene, "(note @> $1)", "note integer[]", "array_ops"), "intarray"),
];

/// Claims, and words that they must not have.
const NOT_TOLD: &[(&str, Change, &str)] =
    &[("CFG-01", |scene| sampled(scene, json!({"plan_ms": 30_000.0, "total_ms": 3_000.0})), "300 times")];

#[test]
fn claims_of_what_is_alike_leave_out_the_wrong_reason() {
    for (rule, change, words) in NOT_TOLD {
        let claim = super::surplus::claim_of(rule, *change);
        assert!(!claim.is_empty() && !claim.contains(words), "{rule}: {claim}");
    }
}

#[test]
fn a_setting_of_a_role_is_low_where_others_may_execute_the_statement() {
    use record::finding::Severity;
    for (others, expected) in [(1, Severity::High), (4, Severity::Low)] {
        let mut scene = Scene::healthy();
        own(&mut scene, "join_collapse_limit", "role clerk", "1");
        at_work(&mut scene, "clerk", 5);
        at_work(&mut scene, "shop", others);
        joined(&mut scene, JOINED);
        let found = scene.explain().findings.into_iter().find(|finding| finding.rule == "CFG-01");
        assert_eq!(found.map(|finding| finding.severity), Some(expected), "{others}");
    }
}

//! What only looks like a condition because a name, a setting or a size is like that of one, and what is then still found.

use super::plan::{node, statement};
use super::{Change, Co, Fires};
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
    // Statistics whose price is not seen.
    ("CFG-01", |scene| sampled(scene, json!({"plan_ms": 30.0, "total_ms": 30_000.0}))),
];

/// Claims, and words that they have.
pub(crate) const TOLD: &[(&str, Change, &str)] = &[(
    "CFG-01",
    |scene| {
        own(scene, "join_collapse_limit", "role clerk", "1");
        at_work(scene, "clerk", 5);
        joined(scene, JOINED);
    },
    "for role clerk",
)];

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

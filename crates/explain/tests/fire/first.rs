//! Many rows that are fetched and sorted, or compared with each other, for few; and what only looks like that.

use super::plan::{node, statement};
use super::{Change, Co, Fires};
use crate::advice::{commands, of};
use crate::scene::Scene;
use record::finding::Finding;
use serde_json::{Value, json};

const FEED: &str = "select p.id, p.body from follow f join post p on p.author = f.author where f.reader = $1 order by p.made desc limit $2";

/// The newest posts of the authors that a reader follows: how many rows the sort is given, and more of the scan of the posts.
pub(crate) fn feed(scene: &mut Scene, rows: f64, more: Value) {
    statement(
        scene,
        FEED,
        json!({"calls": 1_000, "rows": 20_000, "shared_hit": 6_000_000}),
        json!({"cost_total": 9_000.0}),
    );
    node(scene, 1, 0, "Limit", json!({"rows_planned": 2_000.0}));
    node(scene, 2, 1, "Sort", json!({"condition": "p.made DESC", "rows_planned": rows}));
    node(scene, 3, 2, "Nested Loop", json!({"rows_planned": rows}));
    let follow = json!({"relation": "public.follow", "alias": "f", "index": "follow_pkey", "condition": "(f.reader = $1)", "rows_planned": 200.0,
        "table_rows": 40_000.0});
    node(scene, 4, 3, "Index Only Scan", follow);
    node(
        scene,
        5,
        3,
        "Index Scan",
        json!({"relation": "public.post", "alias": "p", "index": "post_author", "condition": "(p.author = f.author)",
        "rows_planned": rows / 200.0, "table_rows": 2_000_000.0}),
    );
    node(scene, 5, 3, "Index Scan", more);
    index(scene, "public.post", "post_author", "author");
}

fn index(scene: &mut Scene, relation: &str, name: &str, columns: &str) {
    let keys = json!({"node": "n1", "relation": relation, "index": name});
    scene.set(
        "plan_index",
        keys,
        json!({"columns": columns, "method": "btree", "valid": true, "partial": false}),
    );
}

/// The same of a list of authors.
fn listed(scene: &mut Scene) {
    let text = "select p.id from post p where p.author = any($1) order by p.made desc limit $2";
    statement(scene, text, json!({"calls": 1_000, "rows": 20_000, "shared_hit": 6_000_000}), json!({}));
    node(scene, 1, 0, "Limit", json!({"rows_planned": 200.0}));
    node(scene, 2, 1, "Sort", json!({"condition": "p.made DESC", "rows_planned": 2_000.0}));
    node(
        scene,
        3,
        2,
        "Bitmap Heap Scan",
        json!({"relation": "public.post", "alias": "p", "condition": "(p.author = ANY ($1))", "rows_planned": 2_000.0,
        "table_rows": 2_000_000.0}),
    );
    node(
        scene,
        4,
        3,
        "Bitmap Index Scan",
        json!({"index": "post_author", "condition": "(p.author = ANY ($1))", "rows_planned": 2_000.0}),
    );
    index(scene, "public.post", "post_author", "author");
}

/// The best documents of a full-text search: the order of the sort, and rows that are sorted.
pub(crate) fn search(scene: &mut Scene, keys: &str, rows: f64) {
    let text = "select d.id, ts_rank(d.tsv, q.q) as best from doc d, plainto_tsquery($1, $2) as q(q) where d.tsv @@ q.q order by best desc limit $3";
    statement(
        scene,
        text,
        json!({"calls": 300, "rows": 3_000, "shared_hit": 6_000_000}),
        json!({"cost_total": 900.0}),
    );
    node(scene, 1, 0, "Limit", json!({"rows_planned": 10.0}));
    node(scene, 2, 1, "Sort", json!({"condition": keys, "rows_planned": rows}));
    node(scene, 3, 2, "Nested Loop", json!({"rows_planned": rows}));
    node(scene, 4, 3, "Function Scan", json!({"alias": "q", "rows_planned": 1.0}));
    node(
        scene,
        5,
        3,
        "Bitmap Heap Scan",
        json!({"relation": "public.doc", "alias": "d", "condition": "(d.tsv @@ q.q)", "rows_planned": rows,
        "table_rows": 200_000.0}),
    );
    node(
        scene,
        6,
        5,
        "Bitmap Index Scan",
        json!({"index": "doc_tsv", "condition": "(d.tsv @@ q.q)", "rows_planned": rows}),
    );
    let keys = json!({"node": "n1", "relation": "public.doc", "index": "doc_tsv"});
    scene.set(
        "plan_index",
        keys,
        json!({"columns": "tsv", "method": "gin", "valid": true, "partial": false}),
    );
}

const RANK: &str = "(ts_rank(d.tsv, q.q)) DESC";

/// A view over two tables: its definition, rows that its plan expects of a value, and rows that the counters of its tables have for each execution.
pub(crate) fn view(scene: &mut Scene, definition: &str, planned: f64, read: u64) {
    let text = "select count(*) from everything where tenant = $1";
    statement(
        scene,
        text,
        json!({"calls": 100, "rows": 100, "shared_hit": 700_000}),
        json!({"cost_total": 90.0}),
    );
    scene.fact(json!({"node": "n1"}), record::watched::VIEW_TEXT, "public.everything", definition);
    node(scene, 1, 0, "Aggregate", json!({"rows_planned": 1.0}));
    let keys = "sale.id, sale.tenant, sale.note";
    node(scene, 2, 1, "Aggregate", json!({"condition": keys, "rows_planned": planned}));
    node(scene, 3, 2, "Append", json!({"rows_planned": planned}));
    for (number, table) in [(4, "sale"), (5, "refund")] {
        let scan = json!({"relation": format!("public.{table}"), "alias": table, "index": format!("{table}_tenant"), "rows_planned": planned / 2.0,
            "condition": format!("({table}.tenant = $1)"), "table_rows": 400_000.0});
        node(scene, number, 3, "Index Scan", scan);
        let keys = json!({"node": "n1", "database": "db", "relation": format!("public.{table}")});
        scene.set("table", keys, json!({"bytes": 60_000_000, "live_rows": 400_000, "dead_rows": 0, "index_scans": 600, "seq_scans": 0,
            "index_rows": read * 600 / 2}));
    }
}

const UNION: &str = "SELECT sale.id, sale.tenant, sale.note FROM sale UNION SELECT refund.id, refund.tenant, refund.note FROM refund";
const UNION_ALL: &str =
    "SELECT sale.id, sale.tenant FROM sale UNION ALL SELECT refund.id, refund.tenant FROM refund";

/// Part of [`super::all`].
pub(super) const CASES: &[Fires] = &[
    ("PLAN-89", Co, |scene| feed(scene, 20_000.0, json!({}))),
    ("PLAN-89", Co, listed),
    ("PLAN-90", Co, |scene| search(scene, RANK, 40_000.0)),
    ("PLAN-57", Co, |scene| view(scene, UNION, 400.0, 60_000)),
    ("PLAN-57", Co, |scene| view(scene, UNION, 60_000.0, 400)),
];

/// What only looks like these conditions.
pub(crate) const HARMLESS: &[(&str, Change)] = &[
    // Few rows are sorted, or the order is that of the keys, or each key is asked for its first rows.
    ("PLAN-89", |scene| {
        feed(scene, 150.0, json!({}));
        statement(scene, FEED, json!({"calls": 1_000, "rows": 20_000, "shared_hit": 200_000}), json!({}));
    }),
    ("PLAN-89", |scene| {
        feed(scene, 20_000.0, json!({}));
        node(scene, 2, 1, "Sort", json!({"condition": "f.since DESC"}));
    }),
    ("PLAN-89", |scene| {
        feed(scene, 20_000.0, json!({}));
        node(scene, 5, 3, "Limit", json!({"relation": "", "alias": "", "index": "", "condition": ""}));
        node(
            scene,
            6,
            5,
            "Index Scan",
            json!({"relation": "public.post", "alias": "p", "condition": "(p.author = f.author)", "table_rows": 2_000_000.0}),
        );
    }),
    ("PLAN-90", |scene| search(scene, RANK, 12.0)),
    ("PLAN-90", |scene| search(scene, "d.made DESC", 40_000.0)),
    ("PLAN-57", |scene| view(scene, UNION_ALL, 60_000.0, 60_000)),
    ("PLAN-57", |scene| view(scene, UNION, 400.0, 400)),
];

fn one(rule: &str, change: Change) -> Finding {
    let mut scene = Scene::healthy();
    change(&mut scene);
    of(&scene.explain(), rule).clone()
}

#[test]
fn the_rows_of_many_keys_are_named_with_the_shape_that_helps() {
    let found = one("PLAN-89", |scene| feed(scene, 20_000.0, json!({})));
    assert!(
        found.claim.contains("all rows of public.post of about 200 keys (author of public.follow)"),
        "{}",
        found.claim
    );
    assert!(found.claim.contains("sorts them by made DESC to return the first 20"), "{}", found.claim);
    assert!(
        found.remedy.text.contains("FROM public.follow AS k CROSS JOIN LATERAL"),
        "{}",
        found.remedy.text
    );
    assert!(commands(&found).contains("ON public.post (\"author\", made DESC);"), "{}", commands(&found));
    let served = one("PLAN-89", |scene| {
        feed(scene, 20_000.0, json!({}));
        index(scene, "public.post", "post_author_made", "author; made");
    });
    assert!(!commands(&served).contains("CREATE INDEX"), "{}", commands(&served));
}

#[test]
fn a_rank_of_the_search_gets_no_index() {
    let mut scene = Scene::healthy();
    search(&mut scene, RANK, 40_000.0);
    let findings = scene.explain();
    let found = of(&findings, "PLAN-90");
    assert!(
        found.claim.contains("computes (ts_rank(d.tsv, q.q)) for each of about 40k rows of public.doc"),
        "{}",
        found.claim
    );
    let first = findings.findings.iter().find(|one| one.symptom_of.is_none()).expect("a finding");
    assert_eq!(first.rule, "PLAN-90", "{findings:#?}");
    for finding in &findings.findings {
        assert!(!commands(finding).contains("CREATE INDEX"), "{}: {}", finding.rule, commands(finding));
        assert!(!finding.claim.contains("nested loop"), "{}", finding.claim);
    }
}

#[test]
fn a_view_with_union_is_named_where_the_plan_looks_cheap() {
    let found = one("PLAN-57", |scene| view(scene, UNION, 400.0, 60_000));
    assert!(found.claim.contains("UNION of view public.everything"), "{}", found.claim);
    assert!(found.claim.contains("for unknown values, expects 400"), "{}", found.claim);
    assert!(
        commands(&found).contains("pg_get_viewdef('public.everything'::regclass, true)"),
        "{}",
        commands(&found)
    );
}

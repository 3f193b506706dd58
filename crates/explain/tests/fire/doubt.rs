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

/// A partition, or a table, of 300,000 rows that is scanned twice in each execution of a statement with this plan.
fn scanned_twice(scene: &mut Scene, text: &str, nodes: &[(u64, u64, &str, Value)]) {
    statement(scene, text, json!({"calls": 200, "rows": 200, "shared_hit": 600_000}), json!({}));
    for (number, above, kind, fields) in nodes {
        node(scene, *number, *above, kind, fields.clone());
    }
    twice(scene);
}

/// 20 executions a second that each scan a table of 300,000 rows twice.
fn twice(scene: &mut Scene) {
    let keys = json!({"node": "n1", "database": "db", "relation": "public.visit_old"});
    let fields = json!({"partition_of": "public.visit", "live_rows": 300_000, "seq_scans": 2_400, "seq_rows": 720_000_000u64});
    scene.set("table", keys, fields);
}

#[test]
fn a_scan_that_the_plan_does_not_show_is_no_proof_of_a_missing_index() {
    let by_index = || {
        json!({"relation": "public.visit_old", "index": "visit_old_at", "condition": "(visit_1.at < $2)",
            "table_rows": 300_000.0, "rows_planned": 113_333.0})
    };
    let text = "select date_trunc($1, at), avg(v) from visit where at < $2 group by 1";
    let report = one("PLAN-01", |scene| {
        scanned_twice(scene, text, &[(1, 0, "Aggregate", json!({})), (2, 1, "Index Scan", by_index())]);
    });
    assert_eq!((report.severity, least(&report)), (Severity::Low, 0.0), "{report:?}");
    // An equality is no guess, but the plan has its index, and why executions scan is another matter.
    let text = "select avg(v) from visit_old where kind = $1 and at < $2";
    let known = one("PLAN-01", |scene| {
        scanned_twice(scene, text, &[(1, 0, "Aggregate", json!({})), (2, 1, "Index Scan", by_index())]);
    });
    assert_eq!((known.severity, least(&known)), (Severity::Low, 0.0), "{known:?}");
}

#[test]
fn what_writes_a_table_is_no_reader_of_it() {
    let seq = json!({"relation": "public.visit_old", "filter": "(visit_old.at < (now() - $1))", "table_rows": 300_000.0, "rows_planned": 100_000.0});
    let write = json!({"relation": "public.visit_old", "table_rows": 300_000.0, "rows_planned": 0.0});
    let plan = [(1, 0, "ModifyTable", write), (2, 1, "Seq Scan", seq)];
    let of_delete = one("PLAN-01", |scene| {
        scanned_twice(scene, "delete from visit_old where at < now() - $1", &plan);
    });
    assert!(of_delete.severity >= Severity::Medium && least(&of_delete) > 0.0, "{of_delete:?}");
}

#[test]
fn no_index_is_proposed_on_a_system_column() {
    let remedy = |text: &'static str| {
        let found = one("PLAN-01", |scene| {
            scanned_twice(scene, text, &[]);
            scene.drop_source("plan");
        });
        found.remedy.text
    };
    let system = remedy("select id from visit_old where xmin::text::bigint > $1");
    assert!(system.contains("no index can be created on a system column"), "{system}");
    assert!(!remedy("select id from visit_old where page = $1").contains("system column"));
}

#[test]
fn a_table_that_nothing_compares_is_read_as_a_whole_rightly() {
    let whole = |join: &'static str| {
        let plan = [
            (1, 0, "Aggregate", json!({})),
            (
                2,
                1,
                join,
                json!({"relation": if join == "Seq Scan" { "public.page" } else { "" },
                "filter": "(NOT (ANY (page.id = (hashed SubPlan 1).col1)))"}),
            ),
            (
                3,
                2,
                "Seq Scan",
                json!({"relation": "public.visit_old", "table_rows": 300_000.0, "rows_planned": 300_000.0, "subquery": join == "Seq Scan"}),
            ),
        ];
        found("PLAN-01", move |scene| {
            let text = "select count(*) from page where id not in (select page from visit_old)";
            scanned_twice(scene, text, &plan);
        })
    };
    assert!(whole("Seq Scan").is_none(), "no condition of the statement is on it");
    assert!(whole("Hash Join").is_some(), "a join compares a column of it");
}

#[test]
fn no_more_rows_are_printed_for_a_scan_than_the_table_has() {
    let finding = one("PLAN-01", |scene| {
        let text = "select v from visit_old where page = $1";
        let figures = json!({"calls": 200, "total_ms": 30_000.0, "rows": 200, "shared_hit": 600_000});
        super::work::statement(scene, "9", text, figures);
        twice(scene);
    });
    assert!(finding.claim.contains("reads 600,000 rows of public.visit_old in 2"), "{}", finding.claim);
    assert!(finding.evidence.iter().any(|line| line.contains("300,000 rows each")), "{finding:?}");
}

#[test]
fn partitions_are_counted_by_the_catalog() {
    let of = |parts: u64| {
        one("PLAN-09", |scene| {
            for day in 0..20 {
                let keys =
                    json!({"node": "n1", "database": "db", "relation": format!("public.reading_{day}")});
                let fields = json!({"partition_of": "reading", "index_scans": 6000 + day, "seq_scans": 0, "blocks_hit": 200_000, "blocks_read": 0,
                    "live_rows": 10_000, "parts": parts});
                scene.set("table", keys, fields);
            }
        })
    };
    let (some, all) = (of(400), of(20));
    assert!(some.claim.contains("all 20 recorded ones of the 400 partitions of reading"), "{}", some.claim);
    assert_eq!(some.numbers["partitions"], 400.0);
    assert!(all.claim.contains("all of 20 partitions of reading"), "{}", all.claim);
}

/// A join with a foreign table whose condition is sent, so many rows that its server sends in all for 900 that are returned, and so many by the plan.
fn joined(scene: &mut Scene, sent: u64, planned: f64) {
    let text =
        "select w.name from ware w join stock s on s.id = w.id where w.id between $1 and $2 and s.kind = $3";
    statement(
        scene,
        text,
        json!({"calls": 90, "total_ms": 30_000.0, "rows": 900, "shared_hit": 0}),
        json!({}),
    );
    node(scene, 1, 0, "Hash Join", json!({"condition": "(w.id = s.id)"}));
    let remote = "SELECT id, name FROM public.ware WHERE ((id >= $1::integer)) AND ((id <= $2::integer))";
    let fields = json!({"alias": "w", "relation": "public.ware", "foreign_server": "far", "remote": remote, "filter": "", "table_rows": 0.0,
        "rows_planned": planned});
    node(scene, 2, 1, "Foreign Scan", fields);
    for (kind, event) in [("CPU", "CPU"), ("Extension", "PostgresFdwGetResult")] {
        let keys = json!({"node": "n1", "backend": "client backend", "state": "active", "wait_type": kind, "wait_event": event, "query_id": "9"});
        scene.set("wait", keys, json!({"sessions": 2}));
    }
    let cursor = json!({"calls": 900, "rows": sent, "total_ms": 3_000.0});
    super::work::statement(scene, "62", "FETCH 100 FROM c1", cursor);
}

#[test]
fn many_rows_that_fit_what_is_sent_are_no_missing_index_there() {
    let many = one("EXT-06", |scene| joined(scene, 4_500_000, 500.0));
    assert!(many.claim.contains("fetches 50,000 rows of public.ware from server far"), "{}", many.claim);
    assert!(many.claim.contains("to return 10: what leaves out the others is a join"), "{}", many.claim);
    assert!(!many.remedy.text.contains("create an index"), "{}", many.remedy.text);
    let thrown = one("EXT-03", |scene| joined(scene, 4_500_000, 500.0));
    assert!(thrown.claim.contains("conditions are sent there"), "{}", thrown.claim);
    // A server that is not watched has no cursors.
    let by_plan = one("EXT-06", |scene| joined(scene, 0, 40_000.0));
    assert!(by_plan.claim.contains("rows of public.ware, by its plan, from server far"), "{}", by_plan.claim);
    assert_eq!(by_plan.severity, Severity::Medium);
    // Few rows come, whatever the plan expects, and sessions wait for them.
    let slow = one("EXT-06", |scene| joined(scene, 900, 50_000.0));
    assert!(slow.claim.contains("without an index that fits"), "{}", slow.claim);
}

/// A list of so many constants in a statement whose executions take 10 ms, and whose planning is counted.
fn listed(scene: &mut Scene, constants: usize, plan_ms: Option<f64>) {
    let members: Vec<String> = (1..=constants).map(|number| format!("${number}")).collect();
    let text = format!("select count(v) from visit where id not in ({})", members.join(", "));
    let mut figures = json!({"calls": 3_000, "total_ms": 30_000.0, "rows": 3_000, "shared_hit": 3_000_000});
    if let Some(ms) = plan_ms {
        figures["plan_ms"] = json!(ms * 3_000.0);
    }
    statement(scene, &text, figures, json!({"planning_ms": 0.3}));
    node(scene, 1, 0, "Seq Scan", json!({"relation": "public.visit", "filter": "(id <> ALL ($1))"}));
}

#[test]
fn a_list_costs_what_its_parsing_and_planning_take() {
    // The scan takes the time: 0.5 ms of 10 are the list's.
    let run = one("PLAN-39", |scene| listed(scene, 400, None));
    assert_eq!(run.severity, Severity::Low, "{run:?}");
    let most = run.benefit.as_ref().map_or(0.0, |benefit| benefit.most);
    assert!(least(&run) == 0.0 && most < 0.1, "{:?}", run.benefit);
    assert!(run.claim.contains("with a NOT IN list of some 400 constants"), "{}", run.claim);
    assert!(run.remedy.text.contains("<> ALL ($1)") && !run.remedy.text.contains("= ANY ($1)"), "{run:?}");
    let planned = one("PLAN-39", |scene| listed(scene, 400, Some(12.0)));
    assert!(planned.severity > Severity::Low, "{planned:?}");
}

#[test]
fn a_count_is_one_for_pages_only_where_pages_are_read() {
    let of = |other: &'static str| {
        one("PLAN-66", |scene| {
            let text = "select count(*) from ticket t where t.client = $1";
            statement(scene, text, json!({"calls": 200, "rows": 200, "shared_hit": 180_000}), json!({}));
            node(scene, 1, 0, "Aggregate", json!({}));
            super::work::statement(
                scene,
                "62",
                other,
                json!({"calls": 200, "rows": 4_000, "total_ms": 900.0}),
            );
        })
    };
    let alone = of("select id, title from note where client = $1 order by id limit $2");
    assert_eq!((alone.severity, least(&alone)), (Severity::Low, 0.0), "{alone:?}");
    let page = of("select id, title from ticket where client = $1 order by id limit $2");
    assert!(page.severity > Severity::Low && least(&page) > 0.0, "{page:?}");
}

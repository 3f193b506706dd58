//! What the planner did not know: values that were given later, and rows that came after the last ANALYZE; and pages that no counter covers.

use crate::advice::{commands, fired, of};
use crate::fire::plan::{node, statement};
use crate::scene::{Scene, wait};
use record::Findings;
use record::finding::Severity;
use serde_json::json;

fn is_silent(findings: &Findings, rule: &str) -> bool {
    findings.findings.iter().all(|finding| finding.rule != rule)
}

fn rules(findings: &Findings) -> Vec<String> {
    findings.findings.iter().map(|finding| format!("{} {}", finding.rule, finding.claim)).collect()
}

/// Sessions that ask for a rare state, by a plan with workers that is made for a frequent one.
fn polled(blocks: u64, condition: &str) -> Findings {
    let mut scene = Scene::healthy();
    let text = "select count(*), min(created) from job where state = $1";
    let figures = json!({"calls": 1_000, "rows": 1_000, "shared_hit": 1_000 * blocks});
    statement(&mut scene, text, figures, json!({"cost_total": 9_160.0, "how": "generic"}));
    node(&mut scene, 1, 0, "Gather", json!({}));
    let step = json!({"relation": "public.job", "index": "job_state", "condition": condition, "rows_planned": 138_889.0,
        "table_rows": 1_000_000.0, "column_most": "state 0.9950"});
    node(&mut scene, 2, 1, "Index Scan", step);
    scene.set("wait", wait("n1", "IPC", "ExecuteGather"), json!({"sessions": 4}));
    scene.explain()
}

#[test]
fn a_plan_for_a_frequent_value_starts_workers_for_a_rare_one() {
    let found = polled(53, "(job.state = $1)");
    let finding = of(&found, "PLAN-23");
    assert_eq!(finding.severity, Severity::Medium);
    assert!(finding.claim.contains("touches 53 blocks"), "{}", finding.claim);
    assert!(finding.claim.contains("expects 139k rows of public.job"), "{}", finding.claim);
    assert!(commands(finding).contains("plan_cache_mode = 'force_custom_plan'"));
    // The value is known, so another plan for it needs statistics.
    let found = polled(53, "(job.state = 1)");
    assert!(commands(of(&found, "PLAN-23")).contains("ANALYZE public.job;"));
    // It reads as much as its plan expects.
    assert!(is_silent(&polled(3_000, "(job.state = $1)"), "PLAN-23"));
}

/// A join of a large table with one that was analysed with so many rows, before more came.
fn imported(planned: u64, blocks: u64, text: &str) -> Findings {
    let mut scene = Scene::healthy();
    let figures = json!({"calls": 10, "rows": 10, "shared_hit": 10 * blocks});
    statement(&mut scene, text, figures, json!({"cost_total": 20.0}));
    let table = |name: &str| json!({"node": "n1", "database": "db", "relation": name});
    let rows = json!({"live_rows": 280_000, "planned_rows": planned, "changed_since_analyze": 280_000 - planned, "analyzes_total": 1,
        "analyzed_s": 640.0, "seq_scans": 0, "index_scans": 10, "blocks_hit": 5_000, "blocks_read": 0, "autovacuum": false});
    scene.set("table", table("public.price_import"), rows);
    let large = json!({"live_rows": 60_000, "planned_rows": 60_000, "changed_since_analyze": 0, "analyzes_total": 1, "blocks_hit": 9_000_000,
        "blocks_read": 0, "autovacuum": true});
    scene.set("table", table("public.supplier_price"), large);
    scene.explain()
}

const JOIN: &str = "select count(*), sum(p.cost - i.price) from price_import i join supplier_price p on p.sku = i.sku where i.batch = $1";

#[test]
fn a_table_without_a_share_of_its_own_leads_a_join() {
    let found = imported(40_000, 160_000, JOIN);
    let finding = of(&found, "PLAN-05");
    assert_eq!(finding.severity, Severity::Medium);
    assert!(finding.claim.contains("joins public.price_import"), "{}", finding.claim);
    assert!(commands(finding).contains("ANALYZE (VERBOSE) public.price_import;"));
    // It has grown by half; a join that touches little; a statement that does not name it.
    assert!(is_silent(&imported(190_000, 160_000, JOIN), "PLAN-05"));
    assert!(is_silent(&imported(40_000, 60, JOIN), "PLAN-05"));
    let other = "select count(*) from supplier_price p join supplier s using (supplier) where p.cost > $1";
    assert!(is_silent(&imported(40_000, 160_000, other), "PLAN-05"));
}

/// A table that a load has made five times as large since the last ANALYZE, with so many of these rows while we looked.
fn filled(inserted: u64, analyzed_s: f64, autovacuum: bool) -> Severity {
    let mut scene = Scene::healthy();
    let text = "select count(*), avg(v) from readings where ts > now() - interval $1";
    let figures = json!({"calls": 20, "rows": 20, "shared_hit": 90_000});
    statement(&mut scene, text, figures, json!({"cost_total": 20.0}));
    let table = json!({"node": "n1", "database": "db", "relation": "public.readings"});
    let rows = json!({"live_rows": 1_520_000, "planned_rows": 300_000, "changed_since_analyze": 1_220_000, "analyzes_total": 1,
        "analyzed_s": analyzed_s, "seq_scans": 0, "index_scans": 20, "blocks_hit": 9_000_000, "blocks_read": 0, "rows_inserted": inserted,
        "autovacuum": autovacuum});
    scene.set("table", table, rows);
    of(&scene.explain(), "PLAN-05").severity
}

#[test]
fn a_load_that_goes_on_is_analysed_by_autovacuum_in_its_turn() {
    assert_eq!(filled(1_000_000, 27.0, true), Severity::Low);
    // It was filled before; autovacuum has had its turn; nothing analyses it.
    assert!(filled(100_000, 27.0, true) > Severity::Low);
    assert!(filled(1_000_000, 400.0, true) > Severity::Low);
    assert!(filled(1_000_000, 27.0, false) > Severity::Low);
}

/// A page of a list, where nothing counts statements.
fn page(text: &str, rows: f64, filter: &str) -> Option<Severity> {
    let mut scene = Scene::healthy();
    scene.drop_source("statement");
    let keys = |number: u64| json!({"node": "n1", "query_id": "9", "hash": "c0", "number": number});
    scene.event(1, record::event::QUERY, "", json!({"query_id": "9", "text": text}));
    let wait = json!({"node": "n1", "backend": "client backend", "state": "active", "wait_type": "CPU", "wait_event": "CPU", "query_id": "9"});
    scene.set("wait", wait, json!({"sessions": 40}));
    let session = json!({"node": "n1", "pid": 77});
    scene.set(
        "session",
        session,
        json!({"query_id": "9", "state": "active", "query": text, "xact_age_s": 0.2}),
    );
    let plan = json!({"node": "n1", "query_id": "9", "hash": "c0"});
    scene.set(
        "plan",
        plan,
        json!({"database": "db", "cost_total": 5_344.0, "rows_planned": 100.0, "partitions": 0}),
    );
    scene.set(
        "plan_node",
        keys(1),
        json!({"above": 0, "kind": "Limit", "rows_planned": 100.0, "width_bytes": 36}),
    );
    let below = json!({"above": 1, "kind": "Index Scan", "relation": "public.orders", "rows_planned": rows, "width_bytes": 36, "filter": filter});
    scene.set("plan_node", keys(2), below);
    let findings = scene.explain();
    findings.findings.iter().find(|finding| finding.rule == "PLAN-65").map(|finding| finding.severity)
}

#[test]
fn pages_are_known_by_their_plan_where_nothing_counts_statements() {
    let text = "select id, total from orders order by created desc limit $1 offset $2";
    assert_eq!(page(text, 1_000_230.0, ""), Some(Severity::Medium));
    assert_eq!(page(text, 1_000_230.0, "(orders.note ~~ $3)"), Some(Severity::Low));
    assert_eq!(page(text, 600.0, ""), None);
    assert_eq!(page("select id, total from orders order by created desc limit $1", 1_000_230.0, ""), None);
}

/// A join whose plan for any values scans a table, by what the counters have of that table.
fn joined(seq_scans: u64, index_scans: u64, xact_age_s: f64) -> Findings {
    let mut scene = Scene::healthy();
    let text = "select count(*), sum(p.cost) from price_import i join supplier_price p on p.sku = i.sku where i.batch = $1";
    let figures = json!({"calls": 10, "rows": 10, "shared_hit": 1_600_000});
    statement(&mut scene, text, figures, json!({"cost_total": 20_000.0}));
    node(
        &mut scene,
        1,
        0,
        "Hash Join",
        json!({"rows_planned": 62.0, "condition": "(p.sku = i.sku)", "cost_total": 20_000.0}),
    );
    let whole = json!({"relation": "public.supplier_price", "rows_planned": 60_000.0, "table_rows": 60_000.0, "cost_total": 19_000.0});
    node(&mut scene, 2, 1, "Seq Scan", whole);
    node(
        &mut scene,
        3,
        1,
        "Index Scan",
        json!({"relation": "public.price_import", "rows_planned": 62.0, "condition": "(i.batch = $1)"}),
    );
    let table = json!({"node": "n1", "database": "db", "relation": "public.supplier_price"});
    let counted = json!({"seq_scans": seq_scans, "seq_rows": seq_scans * 60_000, "index_scans": index_scans, "index_rows": index_scans * 7_500,
        "live_rows": 60_000, "planned_rows": 60_000, "changed_since_analyze": 0, "analyzes_total": 1, "blocks_hit": 1_600_000, "blocks_read": 0});
    scene.set("table", table, counted);
    let session = json!({"node": "n1", "pid": 77});
    scene.set(
        "session",
        session,
        json!({"query_id": "9", "state": "active", "query": text, "xact_age_s": xact_age_s}),
    );
    scene.explain()
}

#[test]
fn a_plan_that_the_counters_refute_is_no_evidence() {
    let is_read_as_a_whole =
        |found: &Findings| of(found, "PLAN-45").claim.contains("it reads all 60,000 rows");
    // Another plan is at work: no scan of the whole table was counted.
    let found = joined(0, 24_000, 0.3);
    assert!(is_silent(&found, "PLAN-45"), "{:#?}", rules(&found));
    assert!(of(&found, "PLAN-21").claim.contains("reads public.supplier_price by its indexes"));
    // It is scanned; or nothing is counted yet, as the transaction is not over.
    let found = joined(10, 24_000, 0.3);
    assert!(is_read_as_a_whole(&found) && is_silent(&found, "PLAN-21"), "{:#?}", rules(&found));
    let found = joined(0, 24_000, 900.0);
    assert!(is_silent(&found, "PLAN-21"), "{:#?}", rules(&found));
    assert!(is_read_as_a_whole(&found));
    assert!(is_silent(&joined(0, 0, 0.3), "PLAN-21"));
}

#[test]
fn the_role_that_connects_for_each_request_is_named() {
    let mut scene = fired("SES-01");
    scene.event(
        1,
        record::event::QUERY,
        "",
        json!({"query_id": "9", "text": "select price from cart where id = $1", "user": "php_app"}),
    );
    let keys = json!({"node": "n1", "database": "db", "query_id": "9"});
    scene.set(
        "statement",
        keys,
        json!({"calls": 3_100, "total_ms": 400.0, "rows": 3_100, "shared_hit": 9_300, "shared_read": 0}),
    );
    let claim = of(&scene.explain(), "SES-01").claim.clone();
    assert!(claim.contains("as often as role php_app runs a statement"), "{claim}");
}

/// A page of one tenant's invoices, with so many rows read by an index for each execution.
fn newest(index_rows: u64) -> Findings {
    let mut scene = Scene::healthy();
    let text = "select id, total from invoice where tenant = $1 order by id desc limit $2";
    let figures = json!({"calls": 100, "rows": 2_000, "shared_hit": 450_000});
    statement(&mut scene, text, figures, json!({"cost_total": 9_000.0}));
    node(&mut scene, 1, 0, "Limit", json!({}));
    node(&mut scene, 2, 1, "Sort", json!({"condition": "invoice.id DESC", "rows_planned": 3_741.0}));
    let step = json!({"relation": "public.invoice", "alias": "invoice", "condition": "(invoice.tenant = $1)", "rows_planned": 3_741.0});
    node(&mut scene, 3, 2, "Index Scan", step);
    let table = json!({"node": "n1", "database": "db", "relation": "public.invoice"});
    let counted = json!({"seq_scans": 0, "seq_rows": 0, "index_scans": 600, "index_rows": index_rows * 600, "live_rows": 1_500_000,
        "planned_rows": 1_500_000, "changed_since_analyze": 0, "analyzes_total": 1, "blocks_hit": 2_700_000, "blocks_read": 0});
    scene.set("table", table, counted);
    scene.explain()
}

#[test]
fn a_walk_that_the_plan_does_not_show_is_not_called_a_sort() {
    let claim = of(&newest(330_000), "PLAN-27").claim.clone();
    assert!(
        claim.contains("walks an index in the order of invoice.id DESC") && !claim.contains("and sorts them"),
        "{claim}"
    );
    let claim = of(&newest(3_700), "PLAN-27").claim.clone();
    assert!(claim.contains("and sorts them"), "{claim}");
}

#[test]
fn a_consumer_that_takes_nothing_is_not_slow() {
    let judged = |confirmed: fn(u64) -> f64| {
        let mut scene = fired("REP-15");
        let slot = json!({"node": "n1", "slot": "billing_feed"});
        scene.vary("slot", slot, "confirmed_bytes", confirmed);
        scene.set(
            "mount",
            json!({"host": "h1", "mount": "/pg"}),
            json!({"used_for": "pgdata, wal", "free_bytes": 49_000_000_000u64}),
        );
        let found = scene.explain();
        (of(&found, "REP-15").claim.clone(), commands(of(&found, "REP-15")))
    };
    let (claim, typed) = judged(|_| 7e9);
    assert!(claim.contains("takes nothing") && !claim.contains("slower"), "{claim}");
    assert!(typed.contains("max_slot_wal_keep_size = '13GB'"), "{typed}");
    let (claim, _) = judged(|second| 7e9 + second as f64);
    assert!(claim.contains("reads slower than changes are made"), "{claim}");
}

#[test]
fn a_function_that_reads_a_block_for_each_row_is_named() {
    let called = |blocks: u64| {
        let mut scene = Scene::healthy();
        let text = "select book, count(*) from position where amount > $1 * fx_rate($2) group by book";
        let figures = json!({"calls": 10, "rows": 90, "shared_hit": 10 * blocks});
        statement(&mut scene, text, figures, json!({"cost_total": 41_000.0}));
        node(&mut scene, 1, 0, "Aggregate", json!({"condition": "book"}));
        let whole = json!({"relation": "public.position", "rows_planned": 50_000.0, "table_rows": 150_000.0,
            "filter": "(position.amount > ($1 * fx_rate($2)))", "cost_total": 40_500.0});
        node(&mut scene, 2, 1, "Seq Scan", whole);
        scene.fact(
            json!({"node": "n1"}),
            record::watched::FUNCTION_TEXT,
            "fx_rate",
            "select rate from fx where cur = $1",
        );
        scene.explain()
    };
    let found = called(302_617);
    assert!(
        of(&found, "PLAN-24").claim.contains("function fx_rate() is called for each of"),
        "{:#?}",
        rules(&found)
    );
    // It reads its own table alone.
    assert!(is_silent(&called(2_400), "PLAN-24"));
}

/// Commands that take little themselves may make all sessions read their catalogs again, but not where most transactions do without.
#[test]
fn tables_of_each_transaction_have_the_time_that_no_statement_has() {
    let share = |calls| {
        let mut scene = Scene::healthy();
        crate::fire::again::made_by_commands(&mut scene, calls);
        of(&scene.explain(), "TXN-15").numbers.get("share").copied()
    };
    assert!(share(10_000).is_some_and(|share| share > 0.5), "{:?}", share(10_000));
    assert_eq!(share(1_000), None);
}

#[test]
fn who_inspects_pages_is_the_role_of_the_statement_and_not_the_busiest_application() {
    let mut scene = Scene::healthy();
    statement(&mut scene, "select * from pgstattuple($1)", json!({}), json!({}));
    let seen = json!({"query_id": "9", "user": "exporter", "node": "n1"});
    scene.event(1, record::event::QUERY, "", seen);
    let group = |application: &str, user: &str| json!({"node": "n1", "application": application, "user": user, "database": "db", "client": "local"});
    scene.set("activity", group("shop", "app"), json!({"sessions": 6}));
    scene.set("activity", group("pg_exporter", "exporter"), json!({"sessions": 1}));
    let claim = of(&scene.explain(), "SES-11").claim.clone();
    assert!(
        claim.contains("a statement, executed by role exporter (pg_exporter), that calls pgstattuple()"),
        "{claim}"
    );
}

#[test]
fn logins_that_fail_and_are_kept_waiting_are_why_logins_hang() {
    let mut scene = fired("SES-14");
    for second in 1..=170 {
        let seen = json!({"node": "n1", "severity": "FATAL", "sqlstate": "28P01", "repeated": 11});
        let message = "password authentication failed for user \"etl_old\"";
        scene.event(second, record::event::SERVER_LOG, message, seen);
    }
    let under = |scene: &Scene| of(&scene.explain(), "SES-14").symptom_of.clone();
    assert_eq!(under(&scene), None);
    scene.fact(json!({"node": "n1"}), "setting", "auth_delay.milliseconds", "3s");
    assert_eq!(under(&scene).as_deref(), Some("TXN-13"));
    let found = scene.explain();
    let claim = &of(&found, "TXN-13").claim;
    assert!(
        claim.contains("for 3s longer (auth_delay.milliseconds)") && claim.contains("etl_old"),
        "{claim}"
    );
}

#[test]
fn a_table_to_which_no_vacuum_comes_is_not_short_of_an_index() {
    let mut scene = fired("PLAN-10");
    let under = |scene: &Scene| of(&scene.explain(), "PLAN-10").symptom_of.clone();
    assert_eq!(under(&scene), None);
    let relation =
        of(&scene.explain(), "PLAN-10").claim.split("public.").nth(1).expect("a table").to_string();
    let relation = format!("public.{}", relation.split([' ', ',', ';', ':']).next().expect("a name"));
    let table = json!({"node": "n1", "database": "db", "relation": relation});
    scene.set("table", table, json!({"dead_rows": 394_000, "live_rows": 3_000}));
    scene.set("server", json!({"node": "n1"}), json!({"autovacuum_workers": 1, "autovacuum_workers_max": 1}));
    assert_eq!(under(&scene).as_deref(), Some("VAC-03"));
}

#[test]
fn counters_that_a_crash_threw_away_are_no_reset() {
    let mut scene = Scene::healthy();
    let away = json!({"node": "n1", "what": record::event::AWAY});
    scene.event(100, record::event::RESTART, "n1 went away: no answer", away);
    let counters = || json!({"node": "n1", "what": record::event::DATABASES});
    let count =
        |scene: &Scene| scene.explain().findings.iter().filter(|finding| finding.rule == "OBS-01").count();
    scene.event(102, record::event::RESET, "n1: counters decreased", counters());
    assert_eq!(count(&scene), 1);
    scene.event(150, record::event::RESET, "n1: counters decreased", counters());
    assert_eq!(count(&scene), 2);
}

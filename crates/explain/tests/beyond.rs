//! Causes beyond the text of a statement: another server's table, a function that cannot be inlined, a clock, a column that is computed when it is read.

use crate::advice::{commands, fired, of};
use crate::fire::plan::{node, statement};
use crate::scene::Scene;
use record::Findings;
use record::event::SERVER_LOG;
use record::finding::Severity;
use serde_json::json;

fn is_silent(findings: &Findings, rule: &str) -> bool {
    findings.findings.iter().all(|finding| finding.rule != rule)
}

/// The worker's end is the line of another process: the error is the line of its own.
#[test]
fn what_an_apply_worker_met_decides_what_helps() {
    let found = |error: &str| {
        let mut scene = Scene::healthy();
        let keys = json!({"node": "n1", "subscription": "dwh"});
        scene.set("subscription", keys, json!({"apply_errors": 3, "enabled": true, "running": false}));
        let ended = "background worker \"logical replication worker\" (PID 6187) exited with exit code 1";
        scene.event(19, SERVER_LOG, ended, json!({"node": "n1", "severity": "LOG", "pid": 6132}));
        scene.event(20, SERVER_LOG, error, json!({"node": "n1", "severity": "ERROR", "pid": 6187}));
        of(&scene.explain(), "REP-07").clone()
    };
    let column = found(
        "logical replication target relation \"public.claim\" is missing replicated column: \"fraud_score\"",
    );
    assert!(column.claim.contains("is missing replicated column: \"fraud_score\""), "{}", column.claim);
    assert!(!column.claim.contains("at the same change"), "{}", column.claim);
    assert!(column.remedy.text.contains("definitions are not replicated"), "{}", column.remedy.text);
    let typed = commands(&column);
    assert!(typed.contains("'public.claim'::regclass") && !typed.contains("SKIP"), "{typed}");
    let row = found("duplicate key value violates unique constraint \"claim_pkey\"");
    assert!(row.claim.contains("at the same change each time"), "{}", row.claim);
    assert!(commands(&row).contains("SKIP"), "{}", commands(&row));
    let away = found("could not connect to the publisher: connection refused");
    assert!(away.remedy.text.contains("publisher can be reached"), "{}", away.remedy.text);
}

#[test]
fn rows_that_are_sent_to_another_server_one_by_one_are_known_to_the_sender() {
    let found = |batch: u64, rows: u64| {
        let mut scene = Scene::healthy();
        let text = "insert into remote_event select * from event where id > $1 and id <= $2";
        let figures = json!({"calls": 4, "total_ms": 30_000.0, "rows": 4 * rows, "shared_hit": 1_200});
        statement(&mut scene, text, figures, json!({}));
        let remote = json!({"relation": "public.remote_event", "remote": "INSERT INTO public.event(id, at) VALUES ($1, $2)", "foreign_server": "dwh",
            "batch_size": batch});
        node(&mut scene, 1, 0, "ModifyTable", remote);
        node(&mut scene, 2, 1, "Index Scan", json!({"relation": "public.event", "rows_planned": rows}));
        scene.fact(json!({"node": "n1"}), "extension", "postgres_fdw", "1.1");
        let wait = json!({"node": "n1", "backend": "client backend", "state": "active", "wait_type": "Extension", "wait_event": "Extension", "query_id": "9"});
        scene.set("wait", wait, json!({"sessions": 3}));
        scene.explain()
    };
    let single = found(1, 20_000);
    let finding = of(&single, "EXT-02");
    assert!(
        finding.claim.contains("sends 20,000 rows for each execution to public.remote_event at server dwh"),
        "{}",
        finding.claim
    );
    assert!(finding.claim.contains("batch_size is 1"), "{}", finding.claim);
    assert!(commands(finding).contains("batch_size '1000'"), "{}", commands(finding));
    assert_eq!(of(&single, "EXT-01").symptom_of.as_deref(), Some("EXT-02"));
    assert!(is_silent(&found(1_000, 20_000), "EXT-02"), "they are sent together");
    assert!(is_silent(&found(1, 1), "EXT-02"), "one row has one round trip");
}

#[test]
fn columns_that_are_computed_when_they_are_read_are_named_where_they_are_sorted() {
    let found = |text: &str, ms: f64| {
        let mut scene = Scene::healthy();
        let figures = json!({"calls": 100, "total_ms": 100.0 * ms, "rows": 2_000, "shared_hit": 260_000});
        statement(&mut scene, text, figures, json!({}));
        let keys = json!({"node": "n1", "database": "db", "relation": "public.admission"});
        scene.set("table", keys, json!({"seq_scans": 0, "seq_rows": 0, "index_rows": 600 * 600}));
        let expression = "(record -> '***'::text)";
        scene.fact(json!({"node": "n1"}), "virtual_column", "public.admission risk", expression);
        scene.explain()
    };
    let sorted =
        "select id, risk from admission where ward = $1 and discharged is null order by risk desc limit $2";
    let virtual_column = found(sorted, 300.0);
    let finding = of(&virtual_column, "PLAN-84");
    assert!(finding.claim.contains("computes risk of 583 rows of public.admission"), "{}", finding.claim);
    assert!(finding.severity >= Severity::Medium);
    let listed = "select id, risk from admission where ward = $1 limit $2";
    assert!(is_silent(&found(listed, 300.0), "PLAN-84"), "it is computed for twenty rows");
}

/// The query inside is split off as a statement of its own, whose condition fits most rows.
#[test]
fn an_index_for_the_query_inside_of_a_function_does_not_serve_the_condition_outside() {
    let found = |outer: &str| {
        let mut scene = Scene::healthy();
        let inner = "select * from policy where state = $1 and valid_to >= current_date";
        statement(
            &mut scene,
            outer,
            json!({"calls": 100, "rows": 300, "shared_hit": 300_000}),
            json!({"function": "active_policies", "inner": inner, "rows_planned": 200_000.0}),
        );
        let filter = "((state = $1) AND (valid_to >= CURRENT_DATE))";
        let scan = json!({"relation": "public.policy", "filter": filter, "rows_planned": 200_000.0, "table_rows": 400_000.0});
        node(&mut scene, 1, 0, "Seq Scan", scan);
        let keys = json!({"node": "n1", "database": "db", "relation": "public.policy"});
        let fields =
            json!({"bytes": 24_000_000, "live_rows": 400_000, "seq_scans": 600, "seq_rows": 240_000_000});
        scene.set("table", keys, fields);
        let text =
            "sql returning 1000 rows: select * from policy where state='***' and valid_to>=current_date";
        scene.fact(json!({"node": "n1"}), "function", "active_policies", text);
        scene.fact(json!({"node": "n1"}), "function_settings", "active_policies", "search_path=public");
        of(&scene.explain(), "PLAN-01").clone()
    };
    let whole = found("select p.id from public.active_policies() p where p.customer = $1");
    assert!(
        whole.claim.contains("because it has settings of its own (search_path=public)"),
        "{}",
        whole.claim
    );
    assert!(!commands(&whole).contains("CREATE INDEX"), "{}", commands(&whole));
    assert!(!found("select active_policies()").claim.contains("inline"), "all of its rows are wanted");
}

#[test]
fn partitions_of_a_key_that_is_compared_with_the_clock_are_all_planned() {
    let found = |condition: &str| {
        let mut scene = Scene::healthy();
        let text = format!("select * from position where vehicle = $1 and {condition}");
        let plan = json!({"partitions": 900, "partitions_removed": 900});
        statement(&mut scene, &text, json!({"plan_ms": 30_000.0, "total_ms": 3_000.0}), plan);
        of(&scene.explain(), "PLAN-04").claim.clone()
    };
    let clock = found("at >= now() - interval $2");
    assert!(
        clock.contains("all 900 partitions are planned") && clock.contains("now() has no value"),
        "{clock}"
    );
    assert!(!found("at >= $2").contains("900 partitions"), "of a constant the planner knows the value");
}

#[test]
fn a_commit_that_waits_for_standbys_is_no_matter_of_its_plan() {
    let mut scene = fired("REP-01");
    let wait = json!({"node": "n1", "backend": "client backend", "state": "active", "wait_type": "IPC", "wait_event": "SyncRep", "query_id": "5"});
    scene.set("wait", wait, json!({"sessions": 6}));
    scene.event(1, record::event::QUERY, "", json!({"query_id": "5", "text": "COMMIT"}));
    let found = scene.explain();
    assert!(of(&found, "REP-01").severity >= Severity::Medium);
    assert!(is_silent(&found, "PLAN-45"), "{:?}", of(&found, "PLAN-45"));
}

#[test]
fn a_subscription_without_a_worker_is_told_from_one_whose_worker_fails() {
    let found = |limit: &str| {
        let mut scene = Scene::healthy();
        for name in ["a", "b", "c", "d"] {
            let keys = json!({"node": "n1", "subscription": name});
            scene.set("subscription", keys, json!({"apply_errors": 0, "enabled": true, "running": true}));
        }
        let keys = json!({"node": "n1", "subscription": "e"});
        scene.set("subscription", keys, json!({"apply_errors": 0, "enabled": true, "running": false}));
        scene.fact(json!({"node": "n1"}), "setting", "max_logical_replication_workers", limit);
        of(&scene.explain(), "REP-07").clone()
    };
    let full = found("4");
    assert!(
        full.claim.contains(
            "4 other subscriptions are running, and max_logical_replication_workers (4) allows no more"
        ),
        "{}",
        full.claim
    );
    assert!(commands(&full).contains("ALTER SYSTEM SET max_logical_replication_workers = 10"));
    assert!(!found("12").claim.contains("no worker"), "there is room for it");
}

#[test]
fn a_standby_that_gets_its_wal_late_is_known_to_the_primary() {
    let found = |sent: u64, written: u64, flushed: u64| {
        let mut scene = Scene::healthy();
        let keys = json!({"node": "n1", "standby": "dr"});
        scene.set("replication", keys.clone(), json!({"state": "streaming", "sync_state": "async"}));
        for (field, last) in [
            ("sent_lag_bytes", sent),
            ("write_lag_bytes", written),
            ("flush_lag_bytes", flushed),
            ("replay_lag_bytes", flushed),
        ] {
            scene.vary("replication", keys.clone(), field, move |second| {
                last as f64 * (second as f64 + 100.0) / 280.0
            });
        }
        let lag = |second: u64| 5e6 + second as f64 * 1e5;
        for field in ["write_lag_us", "flush_lag_us", "replay_lag_us"] {
            scene.vary("replication", keys.clone(), field, lag);
        }
        scene.explain()
    };
    let (much, little) = (60_000_000, 500_000);
    let link = found(much, much + little, much + little);
    assert!(
        of(&link, "REP-11").claim.contains("of WAL have not been sent to it yet"),
        "{}",
        of(&link, "REP-11").claim
    );
    assert!(of(&link, "REP-11").remedy.text.contains("bandwidth"));
    let disk = found(little, little, much);
    assert!(
        of(&disk, "REP-11").claim.contains("written there and not flushed"),
        "{}",
        of(&disk, "REP-11").claim
    );
    assert!(is_silent(&found(little, little, little), "REP-11"));
}

#[test]
fn savepoints_around_each_statement_are_no_work() {
    let found = |savepoints: u64, name: &str| {
        let mut scene = Scene::healthy();
        scene.drop_source("statement");
        for (id, text, calls) in [
            ("51", format!("savepoint {name}"), savepoints),
            ("52", format!("release savepoint {name}"), savepoints),
            ("53", "insert into entry(account, amount) values ($1, $2)".to_string(), 20_000),
        ] {
            let keys = json!({"node": "n1", "database": "db", "query_id": id});
            scene.set(
                "statement",
                keys,
                json!({"calls": calls, "total_ms": 1_000.0, "rows": calls, "shared_hit": calls}),
            );
            scene.event(1, record::event::QUERY, "", json!({"query_id": id, "text": text}));
        }
        scene.explain()
    };
    let driver = found(20_000, "PGJDBC_AUTOSAVE");
    let finding = of(&driver, "SES-06");
    assert_eq!(finding.severity, Severity::High, "{finding:?}");
    assert!(finding.claim.contains("autosave=always of the JDBC driver"), "{}", finding.claim);
    let some = found(2_000, "before_import");
    assert!(is_silent(&some, "SES-06"), "{:?}", of(&some, "SES-06"));
}

#[test]
fn vacuums_against_wraparound_that_come_together_are_the_reason_for_full_wal() {
    let found = |tables: &[&str]| {
        let mut scene = fired("VAC-07");
        scene.drop_source("progress");
        let server = json!({"node": "n1"});
        scene.vary("server", server.clone(), "database_age_xids", |second| 300e6 + second as f64);
        scene.fact(server, "setting", "autovacuum_vacuum_cost_delay", "0");
        for (at, relation) in tables.iter().enumerate() {
            let keys = json!({"node": "n1", "pid": 900 + at, "command": "vacuum", "relation": relation});
            scene.set("progress", keys, json!({"phase": "scanning heap", "total": 30_000, "done": 100, "unit": "blocks", "wraparound": true, "auto": true}));
        }
        scene.explain()
    };
    let storm = found(&["public.q1", "public.q2", "public.q3"]);
    let finding = of(&storm, "VAC-07");
    assert!(
        finding.claim.contains("3 of them run") && finding.claim.contains("autovacuum_vacuum_cost_delay = 0"),
        "{}",
        finding.claim
    );
    assert!(commands(finding).starts_with("ALTER SYSTEM SET autovacuum_vacuum_cost_delay = '2ms'"));
    assert!(!of(&found(&["public.q1"]), "VAC-07").claim.contains("of them run"));
}

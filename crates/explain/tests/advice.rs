//! What findings print to be typed: it must reach the application, fit the server, and name what is there.

use crate::fire;
use crate::scene::{Scene, disk, wait};
use record::Findings;
use record::event;
use record::finding::{Finding, Severity};
use serde_json::json;

fn n1() -> serde_json::Value {
    json!({"node": "n1"})
}

pub(crate) fn of<'a>(findings: &'a Findings, rule: &str) -> &'a Finding {
    let found = findings.findings.iter().find(|finding| finding.rule == rule);
    found.unwrap_or_else(|| {
        panic!("{rule} is silent: {:#?}", findings.checked.iter().find(|checked| checked.rule == rule))
    })
}

pub(crate) fn commands(finding: &Finding) -> String {
    finding.remedy.commands.join("\n")
}

pub(crate) fn fired(rule: &str) -> Scene {
    let (_, _, change) = fire::all().find(|(id, _, _)| *id == rule).expect("a case");
    let mut scene = Scene::healthy();
    change(&mut scene);
    scene
}

#[test]
fn memory_for_a_sort_reaches_open_sessions_and_stays_within_the_memory() {
    let findings = fired("PLAN-02").explain();
    let typed = commands(of(&findings, "PLAN-02"));
    assert!(
        typed.starts_with("ALTER SYSTEM SET work_mem = ") && typed.contains("pg_reload_conf()"),
        "{typed}"
    );
    assert!(typed.contains(r#"ALTER DATABASE "db" SET work_mem = "#) && !typed.contains("\nSET "), "{typed}");
    // Seven sessions with 64 MB each take more than a quarter of such a host: only the database is offered.
    let mut scene = fired("PLAN-02");
    scene.set("host", json!({"host": "h1"}), json!({"memory_total_bytes": 1_500_000_000u64}));
    let findings = scene.explain();
    let typed = commands(of(&findings, "PLAN-02"));
    assert!(!typed.contains("ALTER SYSTEM") && typed.contains("ALTER DATABASE"), "{typed}");
}

#[test]
fn temporary_files_while_an_index_is_built_are_low() {
    let spilling = |command: Option<&str>, bytes: u64| {
        let mut scene = Scene::healthy();
        scene.drop_source("statement");
        scene.set("server", n1(), json!({"temp_bytes": bytes, "temp_files": 2}));
        if let Some(command) = command {
            scene.set(
                "progress",
                json!({"node": "n1", "pid": 9, "command": command, "relation": "public.orders"}),
                json!({"phase": "building index"}),
            );
        }
        of(&scene.explain(), "PLAN-02").severity
    };
    assert_eq!(spilling(Some("create_index"), 6_000_000), Severity::Low);
    assert_eq!(spilling(Some("vacuum"), 6_000_000), Severity::Medium, "a vacuum writes no temporary files");
    assert_eq!(spilling(None, 6_000_000), Severity::Medium);
    assert_eq!(spilling(None, 1_300_000), Severity::Low, "a few files cost little");
}

#[test]
fn a_missing_index_is_printed_from_the_text_where_no_plan_is_known() {
    let findings = fired("PLAN-01").explain();
    let finding = of(&findings, "PLAN-01");
    let typed = commands(finding);
    assert!(typed.contains(r#"CREATE INDEX CONCURRENTLY ON public.orders ("customer");"#), "{typed}");
    assert!(typed.contains("pg_indexes"), "an index may be there already: {typed}");
    assert!(finding.remedy.text.contains("written by each of the"), "{}", finding.remedy.text);
    // A partition, a join in which the column may be another table's, and a name that needs quotes: the plan has to be looked at.
    for (relation, query) in [
        ("public.orders", "select count(*) from orders o, customers where customer = $1"),
        ("public.\"Orders\"", "select count(*) from \"Orders\" where customer = $1"),
    ] {
        let mut scene = Scene::healthy();
        scene.event(1, event::QUERY, "", json!({"query_id": "9", "text": query}));
        scene.set(
            "statement",
            json!({"node": "n1", "database": "db", "query_id": "9"}),
            json!({"calls": 1000, "total_ms": 50_000.0, "rows": 1000, "shared_hit": 2_000_000, "shared_read": 0}),
        );
        scene.set(
            "table",
            json!({"node": "n1", "database": "db", "relation": relation}),
            json!({"seq_scans": 6000, "seq_rows": 1_200_000_000u64}),
        );
        let typed = commands(of(&scene.explain(), "PLAN-01"));
        assert!(!typed.contains("CREATE INDEX"), "{query}: {typed}");
    }
}

#[test]
fn a_scan_inside_of_a_trigger_is_one_finding() {
    let mut scene = fired("PLAN-01");
    scene.event(
        1,
        event::QUERY,
        "",
        json!({"query_id": "8", "text": "update stock set n = n - $1 where item = $2"}),
    );
    scene.set(
        "statement",
        json!({"node": "n1", "database": "db", "query_id": "8"}),
        json!({"calls": 1000, "total_ms": 52_000.0, "rows": 1000, "shared_hit": 2_000_000, "shared_read": 0}),
    );
    let findings = scene.explain();
    let count = findings.findings.iter().filter(|finding| finding.rule == "PLAN-01").count();
    assert_eq!(count, 1, "{:#?}", findings.findings);
    assert!(of(&findings, "PLAN-01").evidence.iter().any(|line| line.contains("from orders")));
}

#[test]
fn autovacuum_is_turned_on_wherever_it_was_turned_off() {
    let typed = commands(of(&fired("VAC-08").explain(), "VAC-08"));
    assert!(
        typed.contains("ALTER SYSTEM SET autovacuum = on; SELECT pg_reload_conf();")
            && !typed.contains("RESET"),
        "{typed}"
    );
    assert!(typed.contains("source, sourcefile"), "{typed}");
}

#[test]
fn forced_checkpoints_count_by_their_cost_and_fit_the_disk() {
    let forced = |every_s: u64, images: u64, free: u64| {
        let mut scene = Scene::healthy();
        scene.fact(n1(), "setting", "max_wal_size", "128MB");
        scene.vary("server", n1(), "checkpoints_requested", move |second| {
            f64::from(u8::from(second % every_s == 0))
        });
        scene.set("server", n1(), json!({"wal_bytes": 40_000_000, "wal_fpi": images}));
        scene.set("mount", json!({"host": "h1", "mount": "/wal"}), json!({"free_bytes": free}));
        let findings = scene.explain();
        let finding = of(&findings, "WAL-03");
        (finding.severity, commands(finding))
    };
    assert_eq!(forced(20, 3000, 900_000_000_000).0, Severity::High, "most of the WAL is full page images");
    assert_eq!(forced(20, 10, 900_000_000_000).0, Severity::Medium, "frequent, and cheap");
    assert_eq!(forced(75, 3000, 900_000_000_000).0, Severity::Medium, "two of them");
    assert!(
        forced(20, 10, 900_000_000_000).1.contains("max_wal_size = '21743MB'"),
        "{}",
        forced(20, 10, 900_000_000_000).1
    );
    let small = forced(20, 10, 2_000_000_000).1;
    assert!(small.contains("max_wal_size = '1081MB'"), "half of what is free, and what the WAL has: {small}");
    let full = forced(20, 10, 10_000_000).1;
    assert!(!full.contains("max_wal_size"), "{full}");
}

#[test]
fn one_forced_checkpoint_is_low() {
    let mut scene = Scene::healthy();
    scene.fact(n1(), "setting", "max_wal_size", "128MB");
    scene.vary("server", n1(), "checkpoints_requested", |second| f64::from(u8::from(second == 90)));
    scene.set("server", n1(), json!({"wal_bytes": 40_000_000, "wal_fpi": 3000}));
    scene.event(90, event::SERVER_LOG, "checkpoints are occurring too frequently (9 seconds apart)", n1());
    assert_eq!(of(&scene.explain(), "WAL-03").severity, Severity::Low);
}

#[test]
fn paths_are_those_of_the_server() {
    let mut scene = fired("WAL-01");
    assert!(commands(of(&scene.explain(), "WAL-01")).contains("pg_test_fsync -f '/data/pg'/pg_wal/"));
    scene.drop_source("fact");
    assert!(commands(of(&scene.explain(), "WAL-01")).contains("$(psql -qAtX -c 'SHOW data_directory')"));
}

#[test]
fn values_of_a_large_row_are_not_counted_as_rows() {
    let mut scene = Scene::healthy();
    scene.set(
        "server",
        n1(),
        json!({"wal_bytes": 30_000_000, "xact_commit": 10, "tup_inserted": 15_000, "tup_updated": 0}),
    );
    scene.set(
        "table",
        json!({"node": "n1", "database": "db", "relation": "public.usertable"}),
        json!({"rows_inserted": 600, "rows_updated": 0}),
    );
    assert_eq!(of(&scene.explain(), "TXN-03").numbers["wal_bytes_per_row"].round(), 3_000_000.0);
    // As many small rows.
    scene.set(
        "table",
        json!({"node": "n1", "database": "db", "relation": "public.usertable"}),
        json!({"rows_inserted": 900_000}),
    );
    assert!(scene.explain().findings.iter().all(|finding| finding.rule != "TXN-03"));
}

#[test]
fn commits_that_other_nodes_agree_on_count_as_commits() {
    let mut scene = Scene::healthy();
    scene.set("server", n1(), json!({"tup_inserted": 1000, "tup_updated": 0}));
    scene.set("wait", wait("n1", "Extension", "Extension"), json!({"sessions": 20}));
    assert!(scene.explain().findings.iter().all(|finding| finding.rule != "TXN-01"));
    scene.fact(n1(), "commit", "waits", "Extension:Extension");
    let findings = scene.explain();
    let found = of(&findings, "TXN-01");
    assert!(found.numbers["agreement_share"] > 0.5, "{found:?}");
    assert!(found.evidence.iter().any(|line| line.contains("other nodes have to agree")), "{found:?}");
    let time = findings.node_time.iter().find(|time| time.node == "n1").expect("its time");
    assert!(time.parts.iter().any(|part| part.name == "commit: agreement of the nodes"), "{time:?}");
}

/// Sessions that wait for an advisory lock of session 10 from the second `from` on.
fn waiting_for_a_leader(count: u64, from: u64, root_state: &str) -> Scene {
    let mut scene = Scene::healthy();
    scene.set("wait", wait("n1", "Lock", "advisory"), json!({"sessions": count}));
    scene.set("server", n1(), json!({"active_ms": 1000.0}));
    for pid in 11..11 + count {
        let keys = json!({"node": "n1", "pid": pid, "root": 10});
        scene.set("block", keys.clone(), json!({"blocked_by": 10, "root_state": root_state, "depth": 1, "lock_type": "advisory", "mode": "ExclusiveLock", "relation": ""}));
        scene.vary("block", keys.clone(), "wait_s", move |second| (second + 30 - from) as f64).during(
            "block",
            keys,
            from..=u64::MAX,
        );
    }
    scene
}

/// Sessions of a service that wait for a leader by this statement, and so many others of the same service at work.
pub(crate) fn electing(count: u64, query: &str, beside: u64) -> Scene {
    let mut scene = waiting_for_a_leader(count, 1, "active");
    for pid in 11..11 + count {
        scene.set("block", json!({"node": "n1", "pid": pid, "root": 10}), json!({"query": query}));
        let session = json!({"node": "n1", "pid": pid});
        scene.set("session", session, json!({"application": "orders", "state": "active", "query": query}));
    }
    let group =
        json!({"node": "n1", "application": "orders", "user": "app", "database": "db", "client": "local"});
    scene.set("activity", group, json!({"sessions": count + beside}));
    scene
}

/// The same, while work queues for another lock, which changes hands.
fn electing_beside_a_queue() -> Scene {
    let mut scene = electing(2, "select pg_advisory_lock(99)", 0);
    scene.set("wait", wait("n1", "Lock", "advisory"), json!({"sessions": 10}));
    scene.set("server", n1(), json!({"active_ms": 12_000.0}));
    for root in 0..9u64 {
        for waiter in (0..9u64).filter(|waiter| *waiter != root) {
            let keys = json!({"node": "n1", "pid": 50 + waiter, "root": 50 + root});
            scene.set("block", keys.clone(), json!({"blocked_by": 50 + root, "root_state": "active", "depth": 1, "wait_s": 0.1,
                "lock_type": "advisory", "mode": "ExclusiveLock", "relation": "", "query": "select pg_advisory_xact_lock(1)"}));
            scene.during("block", keys, root * 20 + 1..=root * 20 + 20);
        }
    }
    scene
}

#[test]
fn a_leader_is_no_trouble_and_a_lock_that_was_forgotten_is() {
    let worst = |scene: Scene| {
        let findings = scene.explain();
        let locks = findings.findings.into_iter().filter(|finding| finding.rule.starts_with("LCK-"));
        locks.map(|finding| (finding.severity, finding.rule)).max()
    };
    let low = Some((Severity::Low, "LCK-03".to_string()));
    assert_eq!(worst(waiting_for_a_leader(2, 1, "idle")), low);
    assert_eq!(worst(electing(2, "select pg_advisory_lock(99)", 0)), low);
    // A crowd that does nothing else, and one whose application is at work besides.
    assert_eq!(worst(electing(20, "select pg_advisory_lock(99)", 1)), low);
    assert_eq!(worst(electing(20, "select pg_advisory_lock(99)", 9)), low);
    // Sessions that came to wait while it was watched, a crowd, and a holder that forgot its transaction.
    for scene in [
        electing(2, "select pg_advisory_xact_lock(99)", 0),
        electing(20, "select visit(3)", 0),
        electing_beside_a_queue(),
        waiting_for_a_leader(2, 90, "idle"),
        waiting_for_a_leader(12, 1, "idle"),
        waiting_for_a_leader(2, 1, "idle in transaction"),
    ] {
        assert!(worst(scene).is_some_and(|(severity, _)| severity >= Severity::Medium));
    }
}

/// A job that takes the table for 0.7 s again and again: no wait is long, and most of the time is lost behind it.
#[test]
fn short_waits_behind_one_session_count_by_their_sum() {
    let mut scene = Scene::healthy();
    scene.set("wait", wait("n1", "Lock", "relation"), json!({"sessions": 5}));
    scene.set("server", n1(), json!({"active_ms": 11_000.0}));
    scene.set("session", json!({"node": "n1", "pid": 10}), json!({"state": "active", "backend_start": "2026-01-01 10:00:00+00", "query": "BEGIN; LOCK TABLE tariff"}));
    for pid in 11..16 {
        scene.set(
            "block",
            json!({"node": "n1", "pid": pid, "root": 10}),
            json!({"blocked_by": 10, "root_state": "active", "depth": 1, "wait_s": 0.4,
            "lock_type": "relation", "mode": "AccessShareLock", "relation": "public.tariff"}),
        );
    }
    let findings = scene.explain();
    let finding = of(&findings, "LCK-01");
    assert!(
        finding.claim.contains("again and again") && finding.claim.contains("LOCK TABLE tariff"),
        "{}",
        finding.claim
    );
    assert!(commands(finding).contains("backend_start = '2026-01-01 10:00:00+00'"), "{}", commands(finding));
}

#[test]
fn a_row_that_is_held_by_idle_transactions_says_so() {
    let mut scene = Scene::healthy();
    scene.set("wait", wait("n1", "Lock", "transactionid"), json!({"sessions": 9}));
    for root in 0..6u64 {
        let keys = json!({"node": "n1", "pid": 20 + root, "root": 10 + root});
        scene.set("block", keys.clone(), json!({"blocked_by": 10 + root, "root_state": "idle in transaction", "depth": 1, "wait_s": 0.1, "lock_type": "transactionid"}));
        scene.during("block", keys, root * 30 + 1..=root * 30 + 1);
    }
    let findings = scene.explain();
    assert!(
        of(&findings, "DIST-06").claim.contains("idle in a transaction"),
        "{}",
        of(&findings, "DIST-06").claim
    );
}

/// Deadlocks are the cause of the waits that end in them; the lock manager is passed by those who queue for a row.
#[test]
fn causes_stand_before_their_symptoms() {
    let mut scene = Scene::healthy();
    scene.set("wait", wait("n1", "Lock", "transactionid"), json!({"sessions": 9}));
    scene.set("wait", wait("n1", "LWLock", "LockManager"), json!({"sessions": 3}));
    let findings = scene.explain();
    assert_eq!(of(&findings, "LWL-01").symptom_of.as_deref(), Some("DIST-06"));
    scene.vary("server", n1(), "deadlocks", |second| (second % 2) as f64);
    let findings = scene.explain();
    assert_eq!(
        (findings.findings[0].rule.as_str(), of(&findings, "DIST-06").symptom_of.as_deref()),
        ("GEN-02", Some("GEN-02"))
    );
    let mut scene = fired("IO-10");
    scene.set("disk", disk("h1", "nvme0n1"), json!({"write_await_ms": 0.4}));
    assert_eq!(of(&scene.explain(), "WAL-01").symptom_of.as_deref(), Some("IO-10"));
}

#[test]
fn other_values_than_the_statistics_know_need_a_statement_that_suffers() {
    let changed = |blocks: u64| {
        let mut scene = Scene::healthy();
        scene.event(
            1,
            event::QUERY,
            "",
            json!({"query_id": "9", "text": "select id from mail where state = $1 and customer = $2"}),
        );
        scene.set("statement", json!({"node": "n1", "database": "db", "query_id": "9"}),
            json!({"calls": 1000, "total_ms": 50_000.0, "rows": 10_000, "shared_hit": blocks * 1000, "shared_read": 0}));
        scene.set("table", json!({"node": "n1", "database": "db", "relation": "public.mail"}), json!({"blocks_hit": 20_000_000, "blocks_read": 0,
            "live_rows": 200_000, "planned_rows": 200_000, "changed_since_analyze": 100_000, "analyzes_total": 1, "analyzed_s": 300.0, "autovacuum": false}));
        scene.explain().findings.iter().any(|finding| finding.rule == "PLAN-05")
    };
    assert!(changed(3500) && !changed(20));
}

/// The rule's finding in a healthy scene with a change.
fn after(rule: &str, change: impl FnOnce(&mut Scene)) -> Finding {
    let mut scene = Scene::healthy();
    change(&mut scene);
    of(&scene.explain(), rule).clone()
}

#[test]
fn a_search_by_a_pattern_gets_an_index_that_serves_it() {
    const LIKE: &str = "((name)::text ~~ $1)";
    let missing = after("PLAN-01", |scene| {
        fire::search::pattern(scene, "name like $1", LIKE);
        fire::search::scanned(scene);
    });
    // What the pattern begins with is not known.
    for part in
        ["(\"name\" text_pattern_ops)", "CREATE EXTENSION IF NOT EXISTS pg_trgm", "(\"name\" gin_trgm_ops)"]
    {
        assert!(commands(&missing).contains(part), "{part}: {}", commands(&missing));
    }
    assert!(
        missing.remedy.text.contains("the order of en-x-icu does not serve it"),
        "{}",
        missing.remedy.text
    );
    // A session shows the constant.
    for (query, has, has_not) in [
        ("select id from orders where name like 'abc%'", "text_pattern_ops", "gin_trgm_ops"),
        ("select id from orders where name like '%abc%'", "gin_trgm_ops", "text_pattern_ops"),
    ] {
        let found = after("PLAN-01", |scene| {
            fire::search::pattern(scene, "name like $1", LIKE);
            fire::search::scanned(scene);
            scene.set("session", json!({"node": "n1", "pid": 7}), json!({"query": query, "state": "active"}));
        });
        let commands = commands(&found);
        assert!(commands.contains(has) && !commands.contains(has_not), "{query}: {commands}");
    }
    // An index that is there is the reason.
    let unfit = after("PLAN-11", |scene| {
        fire::search::pattern(scene, "name like $1", LIKE);
        fire::search::scanned(scene);
        fire::search::on_name(scene, "btree", "text_ops", "en-x-icu");
    });
    assert!(
        unfit.claim.contains("collation en-x-icu") && unfit.claim.contains("operator class text_pattern_ops"),
        "{}",
        unfit.claim
    );
    let any_case = after("PLAN-11", |scene| {
        fire::search::pattern(scene, "name ilike $1", "(name ~~* $1)");
        fire::search::scanned(scene);
        fire::search::on_name(scene, "btree", "text_ops", "C");
    });
    assert!(commands(&any_case).contains("gin_trgm_ops"), "{}", commands(&any_case));
    let lower = after("PLAN-11", |scene| {
        fire::search::pattern(scene, "lower(name) like $1", "(lower(name) ~~ $1)");
        fire::search::on_name(scene, "btree", "text_ops", "en-x-icu");
    });
    for part in ["(lower(\"name\") text_pattern_ops)", "(lower(\"name\") gin_trgm_ops)"] {
        assert!(commands(&lower).contains(part), "{part}: {}", commands(&lower));
    }
    // In the order of C an index needs no operator class.
    let in_order = after("PLAN-01", |scene| {
        fire::search::pattern(scene, "name like $1", LIKE);
        fire::search::scanned(scene);
        let keys = json!({"node": "n1", "query_id": "9", "hash": "c0", "number": 1});
        scene.set("plan_node", keys, json!({"column_collations": "name C"}));
    });
    assert!(!commands(&in_order).contains("text_pattern_ops"), "{}", commands(&in_order));
}

#[test]
fn an_index_that_is_read_for_its_order_is_no_index_for_a_pattern() {
    let walked = after("PLAN-11", |scene| {
        fire::search::walked(scene, "name like $1", "((name)::text ~~ $1)");
        fire::search::on_name(scene, "btree", "text_ops", "en-x-icu");
    });
    assert!(
        walked.claim.contains("does not serve LIKE") && walked.claim.contains("for ORDER BY alone"),
        "{}",
        walked.claim
    );
    assert!(commands(&walked).contains("text_pattern_ops"), "{}", commands(&walked));
    // Without a plan the reason is the pattern, too.
    let unplanned = after("PLAN-27", |scene| {
        fire::search::walked_unplanned(scene, "name like $1", 6_000_000_000);
    });
    assert!(unplanned.claim.contains("by a pattern"), "{}", unplanned.claim);
    assert!(commands(&unplanned).contains("text_pattern_ops"), "{}", commands(&unplanned));
}

#[test]
fn settings_that_make_planning_long_are_named() {
    let found = after("PLAN-04", |scene| fire::fit::planned_unseen(scene, 11, "14"));
    for part in ["join_collapse_limit = 14", "geqo = off", "11 tables are read"] {
        assert!(found.claim.contains(part), "{part}: {}", found.claim);
    }
    assert!(commands(&found).contains("ALTER SYSTEM RESET from_collapse_limit;"), "{}", commands(&found));
    // Fewer tables than the default limit are not planned otherwise.
    let few = after("PLAN-04", |scene| fire::fit::planned_unseen(scene, 5, "14"));
    assert!(!few.claim.contains("join_collapse_limit"), "{}", few.claim);
}

#[test]
fn what_a_pool_sends_is_named_with_its_share() {
    let found = after("SES-06", |scene| {
        fire::work::pooled(scene, &["SELECT $1", "SET application_name = $1"], 10_000)
    });
    assert!(
        found.claim.contains("SELECT 1") && found.claim.contains("SET application_name"),
        "{}",
        found.claim
    );
    assert_eq!((found.severity, found.numbers["calls_per_s"].round()), (Severity::Medium, 2000.0));
    assert!(
        !found.remedy.text.contains("pgbouncer: pool_mode") && found.remedy.text.contains("ALTER ROLE"),
        "{}",
        found.remedy.text
    );
    let few = after("SES-06", |scene| fire::work::pooled(scene, &["DISCARD ALL"], 4_000));
    assert_eq!(few.severity, Severity::Low);
    assert!(few.remedy.text.contains("server_reset_query"), "{}", few.remedy.text);
}

#[test]
fn the_cause_of_checkpoints_is_named() {
    let by_command = after("WAL-07", |scene| {
        fire::work::requested_checkpoints(scene, 2);
        fire::work::statement(scene, "9", "CHECKPOINT", json!({"calls": 5, "total_ms": 400.0}));
        fire::work::statement(scene, "8", "update stock set n = n + $1", json!({"wal_fpi": 7_000}));
    });
    assert!(
        by_command.claim.contains("the command CHECKPOINT begins a checkpoint every 2"),
        "{}",
        by_command.claim
    );
    assert!(
        by_command.evidence.iter().any(|line| line.contains("update stock")),
        "{:?}",
        by_command.evidence
    );
    assert!(!commands(&by_command).contains("checkpoint_timeout"), "{}", commands(&by_command));
    let by_clock = of(&fired("WAL-07").explain(), "WAL-07").clone();
    assert!(by_clock.claim.contains("(checkpoint_timeout)"), "{}", by_clock.claim);
}

#[test]
fn updates_that_are_not_heap_only_have_their_reason() {
    let reason = |text: &str, moved: u64| {
        after("VAC-09", |scene| fire::work::cold_updates(scene, text, json!({"rows_newpage_updated": moved})))
    };
    let indexed = reason("update orders set name = $1 where id = $2", 50_000);
    assert!(indexed.claim.contains("they set name, which index orders_name has"), "{}", indexed.claim);
    assert!(
        commands(&indexed).contains("DROP INDEX CONCURRENTLY public.\"orders_name\""),
        "{}",
        commands(&indexed)
    );
    let full = reason("update orders set n = n + $1 where id = $2", 50_000);
    assert!(full.claim.contains("fillfactor 100"), "{}", full.claim);
    assert!(commands(&full).contains("SET (fillfactor = 80)"), "{}", commands(&full));
    let hidden = reason("update orders set n = n + $1 where id = $2", 500);
    assert!(
        hidden.claim.contains("trigger") && !commands(&hidden).contains("fillfactor"),
        "{}",
        hidden.claim
    );
}

#[test]
fn what_runs_inside_of_a_function_or_trigger_is_named() {
    let by_row = after("PLAN-41", |scene| fire::work::call(scene, "select renew($1)", Some(3000)));
    assert!(
        by_row.claim.contains("function renew()") && by_row.claim.contains("3,000 times update item"),
        "{}",
        by_row.claim
    );
    assert!(by_row.severity >= Severity::Medium);
    let unknown = after("PLAN-41", |scene| fire::work::call(scene, "select renew($1)", None));
    assert!(commands(&unknown).contains("pg_stat_statements.track = 'all'"), "{}", commands(&unknown));
    assert_eq!(unknown.severity, Severity::Low);
    let trigger = after("PLAN-25", |scene| fire::work::triggered(scene, 2_500.0));
    assert!(trigger.claim.contains("tell calls notify_shop()"), "{}", trigger.claim);
    assert!(
        trigger.evidence.iter().any(|line| line.contains("function notify_shop()")),
        "{:?}",
        trigger.evidence
    );
}

#[test]
fn nothing_is_ruled_out_that_nothing_looked_at() {
    // Statements with a condition, and no plan that shows how it is searched.
    for (rule, text) in [
        ("PLAN-30", "select * from orders where kind = $1 order by random() limit $2"),
        ("PLAN-36", "select count(distinct customer) from orders where kind = $1"),
    ] {
        let found = after(rule, |scene| {
            fire::work::statement(
                scene,
                "9",
                text,
                json!({"calls": 100, "total_ms": 30_000.0, "rows": 100, "shared_hit": 500_000}),
            );
        });
        assert!(found.ruled_out.is_empty(), "{rule}: {:?}", found.ruled_out);
        assert!(found.missing.iter().any(|line| line.contains("the plan")), "{rule}: {:?}", found.missing);
    }
    let whole = of(&fired("PLAN-30").explain(), "PLAN-30").clone();
    assert!(
        whole.ruled_out.iter().any(|line| line.contains("the statement has none")),
        "{:?}",
        whole.ruled_out
    );
}

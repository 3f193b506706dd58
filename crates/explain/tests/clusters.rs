//! What is only of clusters: deadlocks over several nodes, parts of tables, statements that no node counts.

use crate::advice::{commands, fired, of};
use crate::scene::{Scene, wait};
use record::event;
use record::finding::Severity;
use record::watched::{OWN, own};
use serde_json::json;

const MB: u64 = 1 << 20;

/// Sessions on n2 that wait for rows of this shard with this statement, which sessions on n1 have for another shard under the same id.
fn waiting_for(scene: &mut Scene, relation: &str, query: &str) {
    let wait = json!({"node": "n2", "backend": "client backend", "state": "active", "wait_type": "Lock", "wait_event": "transactionid", "query_id": "9"});
    scene.set("wait", wait, json!({"sessions": 6}));
    let text = json!({"query_id": "9", "text": "UPDATE public.orders_102032 orders SET v = v WHERE id = $1"});
    scene.event(1, event::QUERY, "", text);
    for waiter in 0..4 {
        let keys = json!({"node": "n2", "pid": 20 + waiter, "root": 100 + waiter});
        let fields = json!({"blocked_by": 100 + waiter, "root_state": "idle in transaction", "depth": 1, "wait_s": 0.7, "lock_type": "tuple",
            "mode": "ExclusiveLock", "relation": relation, "query": query});
        scene.set("block", keys, fields);
    }
}

#[test]
fn sessions_in_a_deadlock_over_several_nodes_are_its_symptoms_and_wait_for_no_foreign_key() {
    let mut scene = Scene::healthy();
    let query = "UPDATE public.orders_102009 orders SET v = v WHERE id = 1";
    waiting_for(&mut scene, "public.orders_102009", query);
    let alone = scene.explain();
    let claim = of(&alone, "DIST-06").claim.clone();
    assert!(!claim.contains("foreign key") && !claim.contains("also changes"), "{claim}");
    assert_eq!(of(&alone, "DIST-06").symptom_of, None);
    // The node that finds a deadlock over several of them logs it, and no server counts it.
    for second in 20..40 {
        scene.event(second, event::DEADLOCK, "deadlock detected", json!({"node": "n1"}));
    }
    let found = scene.explain();
    let cause = of(&found, "GEN-02");
    assert_eq!(cause.severity, Severity::High);
    assert_eq!(of(&found, "DIST-06").symptom_of.as_ref(), Some(&cause.id));
    assert!(found.causes().all(|finding| finding.rule != "DIST-06"));
    // Those that one server counts are its own.
    scene.vary("server", json!({"node": "n1"}), "deadlocks", |second| if second < 60 { 1.0 } else { 0.0 });
    assert_eq!(of(&scene.explain(), "DIST-06").symptom_of, None);
}

#[test]
fn a_foreign_key_is_named_only_where_the_record_has_it() {
    let keys = |relation: &str| json!({"node": "n2", "database": "db", "relation": relation});
    let claim = |change: &dyn Fn(&mut Scene)| {
        let mut scene = Scene::healthy();
        waiting_for(&mut scene, "public.article_a", "insert into stock values (1)");
        change(&mut scene);
        let found = scene.explain();
        of(&found, "DIST-06").claim.clone()
    };
    let words = "foreign key";
    let inserts = |scene: &mut Scene| {
        scene.set("wait", wait("n2", "Lock", "transactionid"), json!({"sessions": 20, "query_id": "8"}));
        scene.event(
            1,
            event::QUERY,
            "",
            json!({"query_id": "8", "text": "insert into public.stock values ($1)"}),
        );
        for waiter in 0..4 {
            let keys = json!({"node": "n2", "pid": 20 + waiter, "root": 100 + waiter});
            scene.set("block", keys, json!({"lock_type": "transactionid", "mode": "ShareLock"}));
        }
    };
    let none = claim(&|scene| {
        inserts(scene);
        scene.set("table", keys("public.stock"), json!({"bytes": MB, "foreign_keys": "public.shop"}));
    });
    assert!(!none.contains(words), "{none}");
    let direct = claim(&|scene| {
        inserts(scene);
        scene.set(
            "table",
            keys("public.stock"),
            json!({"bytes": MB, "foreign_keys": "public.article_a; public.shop"}),
        );
    });
    assert!(direct.contains("their foreign key to public.article_a can be checked"), "{direct}");
    // A key of a partition, to the table of which the rows that are waited for are a partition.
    let of_parts = claim(&|scene| {
        inserts(scene);
        scene.set("table", keys("public.article_a"), json!({"bytes": MB, "partition_of": "article"}));
        let stock = json!({"bytes": MB, "partition_of": "public.stock", "foreign_keys": "public.article"});
        scene.set("table", keys("public.stock_1"), stock);
    });
    assert!(of_parts.contains(words), "{of_parts}");
    // The statement names the table of which this is a partition.
    let own = claim(&|scene| {
        inserts(scene);
        scene.set("table", keys("public.article_a"), json!({"bytes": MB, "partition_of": "public.stock"}));
    });
    assert!(!own.contains(words) && !own.contains("also changes"), "{own}");
}

#[test]
fn a_statement_that_nothing_counts_is_not_called_endless() {
    let claim = |is_counted: bool, id: &str| {
        let mut scene = Scene::healthy();
        let text = "update usertable set field1 = $1 where ycsb_key = $2";
        scene.event(1, event::QUERY, "", json!({"query_id": id, "text": text}));
        let wait = json!({"node": "n1", "backend": "client backend", "state": "active", "wait_type": "CPU", "wait_event": "CPU", "query_id": id});
        scene.set("wait", wait, json!({"sessions": 9}));
        if !is_counted {
            let keys = json!({"node": "n1", "database": "db", "query_id": "1"});
            scene.during("statement", keys, 999..=999);
        }
        let found = scene.explain();
        assert!(is_counted == found.findings.iter().any(|finding| finding.rule == "SES-10"));
        of(&found, "PLAN-45").claim.clone()
    };
    assert!(claim(true, "9").contains("none of its executions has ended normally"));
    for id in ["9", "text-d054cba50d15fbb1"] {
        let unknown = claim(false, id);
        assert!(unknown.contains("is not known") && !unknown.contains("not ended"), "{unknown}");
    }
}

/// A table of so many parts in all, of which these are recorded: bytes, and rows that each gets a second.
fn parts(scene: &mut Scene, table: &str, count: u64, bytes: &[u64], rows: u64) {
    for (at, bytes) in bytes.iter().enumerate() {
        let keys = json!({"node": "n1", "database": "db", "relation": format!("{table}_{}", 102_000 + at)});
        scene.set("table", keys, json!({"bytes": bytes, "parts": count, "index_rows": rows * 10}));
    }
}

#[test]
fn parts_are_counted_by_the_catalog_and_tables_without_work_take_one_line() {
    let mut scene = Scene::healthy();
    for table in ["public.customer", "public.stock", "public.order_line", "public.history"] {
        parts(&mut scene, table, 32, &[900 * MB, MB, MB, MB, MB], 0);
    }
    let idle = scene.explain();
    let found: Vec<_> = idle.findings.iter().filter(|finding| finding.rule == "DIST-09").collect();
    let [one] = &found[..] else { panic!("not one finding: {found:#?}") };
    assert_eq!(one.severity, Severity::Low);
    assert!(
        one.claim.contains("4 tables that are hardly used") && one.claim.contains("of 32 parts"),
        "{}",
        one.claim
    );
    // One that is used has a line of its own, and those that are not recorded count, too.
    parts(&mut scene, "public.visit", 32, &[900 * MB, MB, MB, MB, MB], 9_000);
    let used = scene.explain();
    let worst = of(&used, "DIST-09");
    assert!(worst.claim.contains("one of the 32 parts of public.visit"), "{}", worst.claim);
    assert_eq!(worst.severity, Severity::Medium);
    let mut small = Scene::healthy();
    parts(&mut small, "public.visit", 320, &[90 * MB, MB, MB, MB, MB], 9_000);
    assert!(small.explain().findings.iter().all(|finding| finding.rule != "DIST-09"));
}

#[test]
fn the_end_of_a_run_names_each_rule_before_it_repeats_one() {
    let mut scene = Scene::healthy();
    for table in ["public.a", "public.b", "public.c", "public.d"] {
        parts(&mut scene, table, 5, &[900 * MB, MB, MB, MB, MB], 9_000);
    }
    scene.set("wait", wait("n1", "LWLock", "BufferContent"), json!({"sessions": 4}));
    let found = scene.explain();
    let brief = explain::brief(&found, explain::Sampling::On).join("\n");
    assert!(brief.contains("DIST-09") && brief.contains("DIST-06"), "{brief}");
}

/// A subscription of n2 that follows n1 by this slot, which n1 has or has not.
fn subscribed(replication: &str, fields: serde_json::Value, has_slot: bool) -> Scene {
    let mut scene = Scene::healthy();
    let keys = json!({"node": "n2", "subscription": "from_n1"});
    scene.set("subscription", keys.clone(), json!({"replication": replication, "slot": "pgl_db_n1_from_n1"}));
    scene.set("subscription", keys, fields);
    if has_slot {
        scene.set(
            "slot",
            json!({"node": "n1", "slot": "pgl_db_n1_from_n1"}),
            json!({"active": false, "kind": "logical"}),
        );
    }
    scene.fact(
        json!({"node": "n2"}),
        OWN,
        own::ENABLE,
        "SELECT pglogical.alter_subscription_enable({subscription}, true);",
    );
    scene.fact(
        json!({"node": "n2"}),
        OWN,
        own::ANEW,
        "drop the subscription, and make it again with synchronize_data",
    );
    scene
}

#[test]
fn a_subscription_that_was_disabled_by_hand_is_a_finding_with_the_command_that_enables_it() {
    let off = || json!({"enabled": false, "running": false});
    let found = subscribed("pglogical", off(), true).explain();
    let finding = of(&found, "REP-07");
    assert_eq!(finding.severity, Severity::Medium);
    assert!(finding.claim.contains("pglogical subscription from_n1 is disabled"), "{}", finding.claim);
    assert!(
        commands(finding).contains("alter_subscription_enable('from_n1', true)"),
        "{}",
        commands(finding)
    );
    let native = subscribed("", off(), true).explain();
    assert!(commands(of(&native, "REP-07")).contains("ALTER SUBSCRIPTION \"from_n1\" ENABLE;"));
    // It cannot go on where its slot was dropped.
    let found = subscribed("pglogical", off(), false).explain();
    let finding = of(&found, "REP-07");
    assert!(finding.remedy.text.contains("make it again with synchronize_data"), "{finding:#?}");
}

#[test]
fn a_subscription_without_its_slot_does_not_go_on_by_itself() {
    let down = || json!({"enabled": true, "running": false});
    let found = subscribed("pglogical", down(), true).explain();
    assert!(of(&found, "REP-07").remedy.text.contains("goes on by itself"));
    let gone = subscribed("pglogical", down(), false).explain();
    let finding = of(&gone, "REP-07");
    assert!(finding.claim.contains("has stopped for good: its slot pgl_db_n1_from_n1"), "{}", finding.claim);
    assert!(
        finding.remedy.text.contains("does not go on by itself")
            && finding.remedy.text.contains("synchronize_data")
    );
    // PostgreSQL's own may follow a server that is not watched: there the log decides.
    let mut native = subscribed("", down(), false);
    assert!(of(&native.explain(), "REP-07").claim.ends_with("changes of the other node are not applied"));
    let message =
        "could not start WAL streaming: ERROR:  replication slot \"pgl_db_n1_from_n1\" does not exist";
    native.event(30, event::SERVER_LOG, message, json!({"node": "n2", "severity": "ERROR"}));
    let found = native.explain();
    let finding = of(&found, "REP-07");
    assert!(finding.claim.contains("stopped for good"), "{}", finding.claim);
    assert!(finding.remedy.text.contains("copy_data"), "{finding:#?}");
}

#[test]
fn rollbacks_of_logical_decoding_are_not_those_of_programs() {
    let claims = |change: &dyn Fn(&mut Scene)| {
        let mut scene = Scene::healthy();
        scene.set("server", json!({"node": "n1"}), json!({"xact_rollback": 900, "xact_commit": 1_000}));
        change(&mut scene);
        scene.explain().findings.iter().filter(|finding| finding.rule == "TXN-05").count()
    };
    let slot = |scene: &mut Scene, kind: &str| {
        let keys = json!({"node": "n1", "slot": "pgl_db_n1_from_n1"});
        scene.set("slot", keys, json!({"active": true, "kind": kind}));
    };
    assert_eq!(claims(&|_| {}), 1);
    assert_eq!(claims(&|scene| slot(scene, "physical")), 1);
    assert_eq!(claims(&|scene| slot(scene, "logical")), 0);
    // A worker that starts again and again reads the same transactions each time.
    let again = |scene: &mut Scene| {
        slot(scene, "logical");
        scene.set("server", json!({"node": "n1"}), json!({"xact_rollback": 5_000}));
    };
    assert_eq!(claims(&again), 0);
    // Programs send the others.
    let sent = claims(&|scene| {
        again(scene);
        scene.event(1, event::QUERY, "", json!({"query_id": "70", "text": "ROLLBACK"}));
        let keys = json!({"node": "n1", "database": "db", "query_id": "70"});
        scene.set("statement", keys, json!({"calls": 40_000, "total_ms": 9.0}));
    });
    assert_eq!(sent, 1);
    // One of two transactions in all is no habit.
    let few = claims(&|scene| {
        scene.during("server", json!({"node": "n1"}), 1..=2);
        scene.set("server", json!({"node": "n1"}), json!({"xact_rollback": 9, "xact_commit": 9}));
    });
    assert_eq!(few, 0);
}

#[test]
fn shares_of_the_time_of_a_server_that_hardly_works_are_low() {
    let severity = |active_ms: f64| {
        let mut scene = fired("TXN-01");
        scene.set("server", json!({"node": "n1"}), json!({"active_ms": active_ms}));
        if active_ms < 1_000.0 {
            for (kind, event) in [("CPU", "CPU"), ("IO", "DataFileRead")] {
                scene.set("wait", wait("n1", kind, event), json!({"sessions": 0}));
            }
            let backends = json!({"host": "h1", "node": "n1", "who": "backends"});
            scene.set("schedule", backends, json!({"run_us": 2_000, "wait_us": 0}));
            // One session at a time is seen in its commit now and then.
            scene.set("wait", wait("n1", "IO", "WALSync"), json!({"sessions": 1}));
            scene.during("wait", wait("n1", "IO", "WALSync"), 1..=20);
        }
        let found = scene.explain();
        of(&found, "TXN-01").severity
    };
    assert_eq!(severity(6_000.0), Severity::High);
    for idle in [150.0, 60.0] {
        assert_eq!(severity(idle), Severity::Low);
    }
}

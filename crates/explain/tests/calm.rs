//! What is true of a server with little to do, and no trouble; and sessions that hold locks while they work on.

use crate::advice::{commands, fired, of};
use crate::scene::{Scene, disk, wait};
use record::finding::{Finding, Severity};
use serde_json::json;

fn n1() -> serde_json::Value {
    json!({"node": "n1"})
}

#[test]
fn few_sessions_that_commit_to_a_fast_device_are_no_trouble() {
    let severity = |active_ms: f64, flush_ms: f64| {
        let mut scene = fired("WAL-01");
        scene.set("server", n1(), json!({"active_ms": active_ms, "sessions_active": 1}));
        scene.set("wait", wait("n1", "LWLock", "WALWrite"), json!({"sessions": 1}));
        scene.set("wait", wait("n1", "IO", "WALSync"), json!({"sessions": 0}));
        for idle in [wait("n1", "CPU", "CPU"), wait("n1", "IO", "DataFileRead")] {
            scene.set("wait", idle, json!({"sessions": 0}));
        }
        scene.set(
            "schedule",
            json!({"host": "h1", "node": "n1", "who": "backends"}),
            json!({"run_us": 100_000, "wait_us": 0}),
        );
        scene.set(
            "disk",
            disk("h1", "nvme0n1"),
            json!({"flush_await_ms": flush_ms, "used_for": "pgdata, wal"}),
        );
        let found = scene.explain().findings;
        found.into_iter().find(|finding| finding.rule == "WAL-01").map(|finding| finding.severity)
    };
    assert_eq!(severity(1_300.0, 0.2), Some(Severity::Low));
    // A device that is slow is worth its price from the first session on.
    assert!(severity(1_300.0, 9.0) > Some(Severity::Low));
    let mut crowd = fired("WAL-01");
    crowd.set("disk", disk("h1", "nvme0n1"), json!({"flush_await_ms": 0.2, "used_for": "pgdata, wal"}));
    assert!(of(&crowd.explain(), "WAL-01").severity > Severity::Low);
}

#[test]
fn a_cache_that_fills_is_no_lack_of_memory() {
    let mut scene = fired("IO-07");
    assert!(of(&scene.explain(), "IO-07").severity > Severity::Low);
    scene.set("wait", wait("n1", "IO", "DataFileRead"), json!({"sessions": 1}));
    scene.set("server", n1(), json!({"active_ms": 700.0}));
    let found = scene.explain().findings;
    let severity = |finding: &Finding| finding.severity;
    assert!(
        found.iter().filter(|finding| finding.rule == "IO-07").map(severity).all(|one| one == Severity::Low)
    );
}

/// Sessions behind one that is idle in its transaction at each look, with these statements.
fn held(statements: &[&str]) -> Scene {
    let mut scene = Scene::healthy();
    scene.set("wait", wait("n1", "Lock", "transactionid"), json!({"sessions": 4}));
    scene.set("server", n1(), json!({"active_ms": 5_000.0}));
    for (number, statement) in statements.iter().enumerate() {
        let from = number as u64 * 180 / statements.len() as u64;
        for pid in 11..15u64 {
            let keys = json!({"node": "n1", "pid": pid + 10 * number as u64, "root": 10});
            scene.set("block", keys.clone(), json!({"blocked_by": 10, "root_state": "idle in transaction", "depth": 1,
                "lock_type": "transactionid", "mode": "ShareLock", "relation": "", "query": "update a set n = n + 1 where id = 7",
                "blocker_query": *statement, "wait_s": 9.0}));
            scene.during("block", keys, from + 1..=from + 180 / statements.len() as u64);
        }
    }
    scene
}

#[test]
fn a_job_that_works_on_in_its_transaction_was_not_left_open() {
    let texts: Vec<String> = (0..60)
        .map(|from| format!("update a set tier = 's' where id between {from}01 and {from}99"))
        .collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let found = held(&texts).explain();
    let finding = of(&found, "LCK-01");
    assert!(finding.claim.contains("one statement after another"), "{}", finding.claim);
    assert!(!commands(finding).contains("idle_in_transaction_session_timeout"), "{}", commands(finding));
    let found = held(&["update a set n = 1 where id = 7"]).explain();
    assert!(of(&found, "LCK-01").claim.contains("idle in transaction"), "{}", of(&found, "LCK-01").claim);
    assert!(commands(of(&found, "LCK-01")).contains("idle_in_transaction_session_timeout"));
}

#[test]
fn a_holder_of_another_application_is_no_leader_of_those_that_wait() {
    let worst = |holder: &str| {
        let mut scene = crate::advice::electing(8, "select pg_advisory_lock(99)", 0);
        scene.set(
            "session",
            json!({"node": "n1", "pid": 10}),
            json!({"application": holder, "state": "idle", "query": "select 1"}),
        );
        let findings = scene.explain().findings;
        findings
            .into_iter()
            .filter(|finding| finding.rule.starts_with("LCK-"))
            .map(|finding| finding.severity)
            .max()
    };
    assert_eq!(worst("orders"), Some(Severity::Low));
    assert_eq!(worst("orders-2"), Some(Severity::Low));
    assert!(worst("export-job") >= Some(Severity::Medium));
}

//! Locks that sessions take in turn: an advisory lock held over other work, and the lock that commits after NOTIFY take.

use crate::advice::{commands, electing, fired, of};
use crate::scene::{Scene, wait};
use record::finding::Severity;
use record::watched::NONE_NOTIFIES;
use serde_json::json;

/// Sessions that wait for a lock which session 10 takes again and again: their waits last some seconds, and begin anew.
fn in_turn(count: u64) -> Scene {
    let mut scene = electing(count, "select pg_advisory_lock(99)", 0);
    scene.set("server", json!({"node": "n1"}), json!({"active_ms": count * 1_000 + 500, "xact_rollback": 0}));
    scene.set(
        "session",
        json!({"node": "n1", "pid": 10}),
        json!({"application": "orders-1", "state": "idle", "query": "update task set sent = true where id = 7"}),
    );
    for (kind, event) in [("CPU", "CPU"), ("IO", "DataFileRead")] {
        scene.set("wait", wait("n1", kind, event), json!({"sessions": 0}));
    }
    for pid in 11..11 + count {
        let keys = json!({"node": "n1", "pid": pid, "root": 10});
        scene.set(
            "block",
            keys.clone(),
            json!({"root_state": "idle", "blocker_query": "update task set sent = true where id = 7"}),
        );
        scene.vary("block", keys, "wait_s", move |second| (second % 3) as f64 + 0.1);
    }
    scene
}

#[test]
fn a_lock_that_the_same_session_takes_again_changes_hands() {
    let found = in_turn(5).explain();
    let finding = of(&found, "LCK-03");
    assert!(finding.severity >= Severity::Medium, "{finding:?}");
    assert!(finding.claim.contains("session 10 of orders-1 held it"), "{}", finding.claim);
    assert!(finding.claim.contains("is idle all the time"), "{}", finding.claim);
    assert!(finding.evidence.iter().any(|line| line.contains("began anew")), "{finding:?}");
    assert!(finding.evidence.iter().all(|line| !line.contains("never changed hands")), "{finding:?}");
    assert!(finding.impact.is_some_and(|share| share > 0.3), "{finding:?}");
    // One story: the session that holds it is no finding of its own that should be ended.
    assert!(found.findings.iter().all(|other| other.rule != "LCK-01"), "{:?}", found.findings);
}

#[test]
fn candidates_that_give_up_and_try_again_wait_for_a_leader_all_the_same() {
    let mut scene = in_turn(5);
    // Each of them ends by lock_timeout, which rolls its transaction back.
    scene.set("server", json!({"node": "n1"}), json!({"xact_rollback": 5}));
    let found = scene.explain();
    let finding = of(&found, "LCK-03");
    assert_eq!(finding.severity, Severity::Low, "{finding:?}");
    assert!(finding.numbers.contains_key("sessions_by_design"), "{finding:?}");
    assert!(finding.evidence.iter().all(|line| !line.contains("no wait began anew")), "{finding:?}");
}

fn notifying(field: &str) -> Scene {
    let mut scene = fired("LCK-03");
    scene.drop_source("wait");
    scene.set("wait", wait("n1", "Lock", "object"), json!({"sessions": 4}));
    scene.set(
        "table",
        json!({"node": "n1", "database": "db", "relation": "public.device_position"}),
        json!({"rows_inserted": 6_000, field: "device_position_notify(public.send_map)"}),
    );
    scene
}

#[test]
fn the_trigger_and_the_table_that_send_notify_are_named() {
    let found = notifying("notifying_triggers").explain();
    let finding = of(&found, "LCK-03");
    assert!(finding.claim.contains("public.device_position"), "{}", finding.claim);
    assert!(finding.claim.contains("device_position_notify(public.send_map)"), "{}", finding.claim);
    assert!(finding.claim.contains("sends NOTIFY"), "{}", finding.claim);
    assert!(commands(finding).contains("pg_trigger"), "{}", commands(finding));
    assert!(commands(finding).contains("'public.device_position'::regclass"), "{}", commands(finding));
    // An older recording knows the triggers, and not what they send.
    let found = notifying("trigger_functions").explain();
    assert!(of(&found, "LCK-03").claim.contains("may send NOTIFY"), "{}", of(&found, "LCK-03").claim);
}

/// A recording that knows what triggers send: an audit trigger is not taken for the source.
#[test]
fn a_trigger_that_sends_nothing_is_not_named() {
    let mut scene = notifying("trigger_functions");
    scene.set(
        "table",
        json!({"node": "n1", "database": "db", "relation": "public.device_position"}),
        json!({"notifying_triggers": NONE_NOTIFIES}),
    );
    let found = scene.explain();
    let finding = of(&found, "LCK-03");
    assert!(!finding.claim.contains("device_position"), "{}", finding.claim);
    assert!(!commands(finding).contains("device_position"), "{}", commands(finding));
}

#[test]
fn a_table_whose_trigger_is_not_written_sends_nothing() {
    let mut scene = notifying("notifying_triggers");
    scene.set(
        "table",
        json!({"node": "n1", "database": "db", "relation": "public.device_position"}),
        json!({"rows_inserted": 0, "rows_updated": 0, "rows_deleted": 0}),
    );
    let found = scene.explain();
    assert!(!of(&found, "LCK-03").claim.contains("device_position"), "{}", of(&found, "LCK-03").claim);
}

//! Commits that wait for standbys: what the primary alone shows, and what helps.

use crate::advice::{commands, of};
use crate::fire::outside::{commits, paused};
use crate::scene::{Scene, wait};
use record::Findings;
use record::finding::Severity;
use serde_json::json;

fn confirming(scene: &mut Scene, name: &str, state: &str, flush_us: u64, replay_us: u64) {
    let fields = json!({"state": "streaming", "sync_state": state, "write_lag_us": 100, "flush_lag_us": flush_us, "replay_lag_us": replay_us,
        "flush_lag_bytes": 500, "replay_lag_bytes": 500});
    scene.set("replication", json!({"node": "n1", "standby": name}), fields);
}

fn named(scene: &mut Scene, names: &str) {
    scene.fact(json!({"node": "n1"}), "setting", "synchronous_standby_names", names);
}

/// Rows are written, one a commit, and sessions wait for the commit alone.
fn single_rows(scene: &mut Scene) {
    scene.set(
        "server",
        json!({"node": "n1"}),
        json!({"xact_commit": 900, "tup_inserted": 900, "tup_updated": 0, "tup_deleted": 0}),
    );
    scene.drop_things("wait", "\"n1\"");
}

/// Evidence, text and commands of REP-01.
fn advice(found: &Findings) -> (String, String, String) {
    let finding = of(found, "REP-01");
    let evidence = finding.evidence.join("\n");
    (evidence, finding.remedy.text.clone(), commands(finding))
}

#[test]
fn a_standby_whose_replay_stands_still_has_no_delay_of_its_last_commit() {
    let mut scene = Scene::healthy();
    single_rows(&mut scene);
    commits(&mut scene, "remote_apply");
    scene.set("wait", wait("n1", "IPC", "SyncRep"), json!({"sessions": 20}));
    paused(&mut scene, "s1", 3..9);
    let found = scene.explain();
    let late = of(&found, "REP-18");
    assert!(late.claim.contains("its replay stands still in"), "{}", late.claim);
    assert_eq!(late.severity, Severity::High);
    assert!(commands(late).contains("pg_wal_replay_resume"), "{}", commands(late));
    let (evidence, text, typed) = advice(&found);
    assert!(evidence.contains("it has confirmed nothing in") && !evidence.contains("1.6"), "{evidence}");
    assert!(
        text.contains("look on the standby") && typed.contains("synchronous_commit = 'on'"),
        "{text} {typed}"
    );
    assert!(!found.findings.iter().any(|finding| finding.rule == "TXN-01"), "larger commits hang as well");
    // The same load behind a standby that confirms.
    confirming(&mut scene, "s1", "sync", 400, 900);
    assert!(scene.explain().findings.iter().any(|finding| finding.rule == "TXN-01"));
}

#[test]
fn no_level_of_commits_helps_where_the_standby_is_not_connected() {
    let mut scene = Scene::healthy();
    commits(&mut scene, "on");
    named(&mut scene, "FIRST 1 (elsewhere)");
    confirming(&mut scene, "s1", "async", 400, 900);
    scene.set(
        "server",
        json!({"node": "n1"}),
        json!({"xact_commit": 1, "tup_inserted": 0, "tup_updated": 0, "tup_deleted": 0}),
    );
    let found = scene.explain();
    let (_, text, typed) = advice(&found);
    assert!(
        of(&found, "REP-01").claim.contains("none of them is connected"),
        "{}",
        of(&found, "REP-01").claim
    );
    assert!(
        !typed.contains("synchronous_commit") && typed.contains("synchronous_standby_names = ''"),
        "{typed}"
    );
    assert!(
        !text.contains("disk") && text.contains("connected and not named in it: ") && text.contains("s1"),
        "{text}"
    );
}

#[test]
fn a_quorum_that_is_set_is_not_proposed_and_waits_for_its_fastest_standbys() {
    let of_two = |names: &str| {
        let mut scene = Scene::healthy();
        commits(&mut scene, "remote_apply");
        named(&mut scene, names);
        confirming(&mut scene, "s1", "quorum", 400, 5_650_000);
        confirming(&mut scene, "s2", "quorum", 1_200, 1_300);
        advice(&scene.explain())
    };
    let (evidence, text, typed) = of_two("ANY 1 (s1, s2)");
    assert!(evidence.contains("standby s2") && !evidence.contains("standby s1"), "{evidence}");
    assert!(!typed.contains("ANY 1") && !text.contains("any one"), "{text} {typed}");
    let (evidence, _, typed) = of_two("ANY 2 (s1, s2)");
    assert!(evidence.contains("standby s1") && evidence.contains("standby s2"), "{evidence}");
    assert!(typed.contains("'ANY 1 (\"s1\", \"s2\")'"), "{typed}");
}

#[test]
fn a_level_that_is_set_is_not_proposed() {
    let typed = |mode: &str| {
        let mut scene = Scene::healthy();
        commits(&mut scene, mode);
        confirming(&mut scene, "s1", "sync", 400, 900);
        advice(&scene.explain()).2
    };
    assert_eq!(typed("remote_write"), "");
    assert!(typed("on").contains("'remote_write'"));
}

/// Lags in microseconds: until it has written the WAL, flushed and replayed it.
fn late(scene: &mut Scene, (write, flush, replay): (u64, u64, u64)) {
    let lags = json!({"state": "streaming", "sync_state": "sync", "write_lag_us": write, "flush_lag_us": flush, "replay_lag_us": replay,
        "flush_lag_bytes": 500, "replay_lag_bytes": 500});
    scene.set("replication", json!({"node": "n1", "standby": "s1"}), lags);
}

#[test]
fn the_remedy_is_for_the_stage_that_takes_the_time() {
    let of_lags = |mode: &str, lags: (u64, u64, u64)| {
        let mut scene = Scene::healthy();
        commits(&mut scene, mode);
        late(&mut scene, lags);
        advice(&scene.explain())
    };
    let (evidence, text, typed) = of_lags("on", (40_000, 40_300, 40_500));
    assert!(evidence.contains("most of the delay is the network"), "{evidence}");
    assert!(
        !typed.contains("remote_write") && text.contains("shorten the way"),
        "a flush is nothing of it: {text} {typed}"
    );
    assert!(!text.contains("disk"), "{text}");
    let (_, text, typed) = of_lags("on", (500, 9_000, 9_100));
    assert!(typed.contains("'remote_write'") && text.contains("94 % of the delay"), "{text} {typed}");
    assert!(text.contains("faster disk for its WAL") && !text.contains("shorten the way"), "{text}");
    let (_, text, typed) = of_lags("remote_apply", (500, 700, 90_000));
    assert!(
        typed.contains("synchronous_commit = 'on'") && text.contains("what its replay waits for"),
        "{text} {typed}"
    );
    let (_, text, typed) = of_lags("remote_apply", (30_000, 30_100, 30_400));
    assert!(!typed.contains("synchronous_commit") && text.contains("shorten the way"), "{text} {typed}");
}

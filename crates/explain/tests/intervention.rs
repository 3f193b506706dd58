//! Changes of settings as experiments: when they prove a finding, and everything that must keep them from it.

use crate::scene;
use record::event;
use record::finding::{Finding, Findings, Level, Severity};
use scene::{Scene, vacuum_wait, wait};
use serde_json::json;

fn finding<'a>(findings: &'a Findings, rule: &str) -> Option<&'a Finding> {
    findings.findings.iter().find(|finding| finding.rule == rule && finding.node.as_deref() == Some("n1"))
}

fn found<'a>(findings: &'a Findings, rule: &str) -> &'a Finding {
    finding(findings, rule).unwrap_or_else(|| panic!("{rule} is silent: {:#?}", findings.findings))
}

/// A setting of n1 and its later values, with the seconds from which they are true.
fn setting(scene: &mut Scene, name: &str, first: &str, later: &[(u64, &str)]) {
    scene.fact(json!({"node": "n1"}), "setting", name, first);
    for (second, value) in later {
        // A key of its own per line: a fact that is told again is another line.
        let keys = json!({"node": "n1", "topic": "setting", "name": name, "told": second});
        scene.set("fact", keys.clone(), json!({"value": value})).during("fact", keys, *second..=*second);
    }
}

/// Nine workers that sleep for the cost limit in these seconds, and work in the others.
fn storm(scene: &mut Scene, sleeps: impl Fn(u64) -> bool + Copy + 'static) {
    let sessions = move |second, there: bool| if there == sleeps(second) { 9.0 } else { 0.0 };
    scene.vary("wait", vacuum_wait("n1", "Timeout", "VacuumDelay"), "sessions", move |second| {
        sessions(second, true)
    });
    scene.vary("wait", vacuum_wait("n1", "IO", "DataFileRead"), "sessions", move |second| {
        sessions(second, false)
    });
}

const DELAY: &str = "autovacuum_vacuum_cost_delay";

#[test]
fn a_condition_that_goes_with_one_change_in_three_minutes_is_proved() {
    let mut scene = Scene::healthy();
    setting(&mut scene, DELAY, "50ms", &[(120, "0")]);
    storm(&mut scene, |second| second <= 120);
    let findings = scene.explain();
    let claim = found(&findings, "VAC-01");
    assert_eq!(claim.level, Level::Intervention, "{claim:#?}");
    let told = claim.evidence.iter().find(|sentence| sentence.starts_with("experiment: ")).expect("is told");
    for part in
        ["autovacuum_vacuum_cost_delay 50ms -> 0 at second 120", "90 % of ", "0 % of ", "from the change"]
    {
        assert!(told.contains(part), "{part} is missing in {told}");
    }
    assert!(claim.numbers["intervention_p"] <= 0.05, "{claim:#?}");
    assert_eq!(claim.numbers["switches"], 1.0);
    // The other nodes changed nothing and have nothing.
    assert_eq!(findings.findings.iter().filter(|finding| finding.rule == "VAC-01").count(), 1);
}

#[test]
fn a_condition_that_was_over_early_is_told_as_a_note() {
    let mut scene = Scene::healthy();
    setting(&mut scene, DELAY, "50ms", &[(25, "0")]);
    storm(&mut scene, |second| second <= 25);
    let findings = scene.explain();
    let claim = found(&findings, "VAC-01");
    assert_eq!((claim.level, claim.severity), (Level::Intervention, Severity::Note), "{claim:#?}");
    assert!(claim.claim.contains("as it is now"), "{}", claim.claim);
    assert_eq!(claim.windows.len(), 1);
    // Without the change it is what the rule makes of it: less than half of the samples.
    let mut scene = Scene::healthy();
    storm(&mut scene, |second| second <= 25);
    assert!(finding(&scene.explain(), "VAC-01").is_none());
}

#[test]
fn a_change_that_brought_the_condition_is_an_experiment_too() {
    let mut scene = Scene::healthy();
    setting(&mut scene, "commit_delay", "0", &[(90, "20000")]);
    let keys = wait("n1", "LWLock", "WALWrite");
    scene.vary("wait", keys, "sessions", |second| if second > 90 { 30.0 } else { 0.0 });
    let findings = scene.explain();
    let claim = found(&findings, "WAL-01");
    assert_eq!(claim.level, Level::Intervention, "{claim:#?}");
    assert!(claim.evidence.iter().any(|told| told.contains("rows a second were written")), "{claim:#?}");
}

#[test]
fn a_short_record_needs_the_change_more_than_once() {
    let mut scene = Scene::healthy();
    scene.seconds = 24;
    setting(&mut scene, DELAY, "50ms", &[(16, "0")]);
    storm(&mut scene, |second| second <= 16);
    let findings = scene.explain();
    let claim = found(&findings, "VAC-01");
    assert_eq!(claim.level, Level::DiscriminatingCounter);
    let lacking = claim
        .missing
        .iter()
        .find(|sentence| sentence.contains("change the setting back and forth once more"));
    assert!(lacking.is_some_and(|sentence| sentence.contains("% of the cases")), "{claim:#?}");
    // Back and forth in the same time: nothing by chance keeps such a pace.
    let mut scene = Scene::healthy();
    scene.seconds = 24;
    setting(&mut scene, DELAY, "50ms", &[(8, "0"), (14, "50ms"), (20, "0")]);
    storm(&mut scene, |second| second <= 8 || (15..=20).contains(&second));
    let findings = scene.explain();
    let claim = found(&findings, "VAC-01");
    assert_eq!((claim.level, claim.numbers["switches"]), (Level::Intervention, 3.0), "{claim:#?}");
}

/// Every doubt leaves the level as it was, and is told.
fn doubted(change: impl Fn(&mut Scene), rule: &str, told: &str) {
    let mut scene = Scene::healthy();
    change(&mut scene);
    let findings = scene.explain();
    let claim = found(&findings, rule);
    assert_eq!(claim.level, Level::DiscriminatingCounter, "{claim:#?}");
    let all = claim.missing.iter().chain(&claim.ruled_out).cloned().collect::<Vec<_>>().join("\n");
    assert!(all.contains(told), "{told} is missing in {all}");
}

#[test]
fn what_looks_like_an_experiment_and_is_none_is_told() {
    // The same value twice, and not the same condition.
    doubted(
        |scene| {
            setting(scene, DELAY, "50ms", &[(60, "0"), (100, "50ms"), (140, "0")]);
            storm(scene, |second| !(60..=100).contains(&second));
        },
        "VAC-01",
        "differed between periods",
    );
    // A restart changes more than a setting.
    doubted(
        |scene| {
            setting(scene, DELAY, "50ms", &[(120, "0")]);
            storm(scene, |second| second <= 120);
            scene.event(119, event::RESTART, "n1 was started", json!({"node": "n1"}));
        },
        "VAC-01",
        "restarted in between",
    );
    // Nobody writes any more: of course nobody waits.
    doubted(
        |scene| {
            setting(scene, "commit_delay", "20000", &[(120, "0")]);
            let waits = |second: u64| if second <= 120 { 30.0 } else { 0.0 };
            scene.vary("wait", wait("n1", "LWLock", "WALWrite"), "sessions", waits);
            for field in ["tup_inserted", "tup_updated"] {
                scene.vary(
                    "server",
                    json!({"node": "n1"}),
                    field,
                    |second| if second <= 120 { 1000.0 } else { 0.0 },
                );
            }
        },
        "WAL-01",
        "the work differed",
    );
    // A change that changes nothing rules the setting out.
    doubted(
        |scene| {
            setting(scene, DELAY, "50ms", &[(90, "20ms")]);
            storm(scene, |_| true);
        },
        "VAC-01",
        "autovacuum_vacuum_cost_delay 50ms -> 20ms at second 90: 90 % of the samples before, 90 % after",
    );
    // The workers have gone: what they would wait for is unknown.
    let mut scene = Scene::healthy();
    scene.drop_source("wait");
    setting(&mut scene, DELAY, "50ms", &[(120, "0")]);
    let keys = vacuum_wait("n1", "Timeout", "VacuumDelay");
    scene.set("wait", keys.clone(), json!({"sessions": 3})).during("wait", keys, 1..=120);
    assert_eq!(found(&scene.explain(), "VAC-01").level, Level::DiscriminatingCounter);
    // It ended by itself long before somebody touched the setting.
    doubted(
        |scene| {
            setting(scene, DELAY, "50ms", &[(150, "0")]);
            storm(scene, |second| second <= 110);
        },
        "VAC-01",
        "change the setting back and forth once more",
    );
}

#[test]
fn what_was_changed_by_the_same_reload_is_named() {
    let mut scene = Scene::healthy();
    setting(&mut scene, DELAY, "50ms", &[(120, "0")]);
    setting(&mut scene, "max_wal_size", "1GB", &[(120, "8GB")]);
    storm(&mut scene, |second| second <= 120);
    let findings = scene.explain();
    let claim = found(&findings, "VAC-01");
    assert_eq!(claim.level, Level::Intervention);
    assert!(
        claim.missing.iter().any(|told| told.contains("max_wal_size changed at the same moment")),
        "{claim:#?}"
    );
}

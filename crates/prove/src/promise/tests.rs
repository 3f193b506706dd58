//! Rules and standings by known cases.

use super::*;

#[test]
fn rules_come_from_the_profiles() {
    let of = |engine, standbys, level, anomaly| rule(engine, standbys, level, anomaly);
    use Anomaly::{FracturedRead, LostUpdate, TornCommit, WriteSkew};
    use Level::{ReadCommitted, RepeatableRead, Serializable};
    assert_eq!(of(Engine::Postgres, false, RepeatableRead, WriteSkew), Rule::Allowed);
    assert_eq!(of(Engine::Postgres, false, Serializable, WriteSkew), Rule::Forbidden);
    assert_eq!(of(Engine::Postgres, false, ReadCommitted, LostUpdate), Rule::Allowed);
    assert_eq!(of(Engine::Postgres, true, RepeatableRead, FracturedRead), Rule::Forbidden);
    assert_eq!(of(Engine::FdwSharded, false, Serializable, FracturedRead), Rule::Allowed);
    assert_eq!(of(Engine::FdwSharded, false, ReadCommitted, TornCommit), Rule::Allowed);
}

#[test]
fn zero_is_evidence_only_with_a_control_that_shows_something() {
    let judge = |rule, n, seen, control: Option<u64>| {
        counted(Count {
            workload: "bank",
            promise: "p",
            setting: "s",
            unit: "reads",
            n,
            seen,
            control: control.map(|seen| Control { what: "c".into(), n: 10, seen }),
            rule,
            why: ("forbidden because", "allowed because"),
            change: "this",
        })
    };
    let kept = judge(Rule::Forbidden, 300, 0, Some(4));
    assert_eq!((kept.standing, kept.bound, kept.change.as_str()), (Standing::Kept, Some(0.01), ""));
    assert_eq!(judge(Rule::Forbidden, 300, 0, Some(0)).standing, Standing::NotTested);
    assert_eq!(judge(Rule::Forbidden, 0, 0, None).standing, Standing::NotTested);
    let broken = judge(Rule::Forbidden, 300, 1, Some(0));
    assert_eq!((broken.standing, broken.bound, broken.change.as_str()), (Standing::Broken, None, "this"));
    let known = judge(Rule::Allowed, 300, 1, Some(4));
    assert_eq!((known.standing, known.why.as_str()), (Standing::ByDesign, "allowed because"));
}

#[test]
fn a_setting_excuses_only_the_faults_it_is_weak_against() {
    let settings = |commit: &str, names: &str, fsync: &str| Settings {
        synchronous_commit: commit.into(),
        standby_names: names.into(),
        fsync: fsync.into(),
    };
    let excuse =
        |settings: &Settings, faults: &[Fault]| settings.excuse(faults, true).map(|(_, change)| change);
    let on = settings("on", "", "on");
    assert_eq!(excuse(&on, &[Fault::Kill, Fault::Power]), None);
    assert!(excuse(&on, &[Fault::Kill, Fault::Promote]).unwrap().contains("synchronous_standby_names"));
    assert_eq!(excuse(&settings("on", "FIRST 1 (s1)", "on"), &[Fault::Kill, Fault::Promote]), None);
    assert!(excuse(&settings("off", "", "on"), &[Fault::Kill]).unwrap().contains("synchronous_commit"));
    assert_eq!(excuse(&settings("off", "", "on"), &[Fault::Pause]), None);
    assert_eq!(excuse(&settings("on", "", "off"), &[Fault::Kill]), None);
    assert_eq!(excuse(&settings("on", "", "off"), &[Fault::Power]), Some("set fsync = on"));
}

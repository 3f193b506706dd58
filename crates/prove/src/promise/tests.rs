//! Rules and standings by known cases.

use super::*;
use engines::Engine;

fn site(engine: Engine, roles: &[Role]) -> Site {
    let dir = std::env::temp_dir().join(format!("pgfathom-rules-{}", std::process::id()));
    let journal = std::sync::Arc::new(crate::fault::Journal::begin(&dir).unwrap());
    let spec = connect::ConnSpec::new("localhost", 5432, "nobody", "nothing");
    let node = |role: &Role| crate::fault::Node::spared("n", *role, spec.clone(), "it is no server");
    Site::new(engine, roles.iter().map(node).collect(), journal)
}

#[test]
fn rules_come_from_the_profiles() {
    use Anomaly::{FracturedRead, LongFork, LostUpdate, ReadSkew, StaleRead, TornCommit, WriteSkew};
    use Isolation::{ReadCommitted, RepeatableRead, Serializable};
    let no_settings = Settings::default();
    let one = site(Engine::default(), &[Role::Primary]);
    let of = |level, anomaly| rule(&one, &no_settings, Span::Entry, level, anomaly);
    assert_eq!(of(RepeatableRead, WriteSkew), Rule::Allowed);
    assert_eq!(of(Serializable, WriteSkew), Rule::Forbidden);
    assert_eq!(of(ReadCommitted, LostUpdate), Rule::Allowed);
    assert_eq!(of(ReadCommitted, LongFork), Rule::Forbidden);
    let standby = site(Engine::default(), &[Role::Primary, Role::Standby]);
    // What goes through the entry alone is as on one server.
    assert_eq!(rule(&standby, &no_settings, Span::Entry, Serializable, WriteSkew), Rule::Forbidden);
    assert_eq!(rule(&standby, &no_settings, Span::Everywhere, Serializable, WriteSkew), Rule::Allowed);
    assert_eq!(rule(&standby, &no_settings, Span::Everywhere, ReadCommitted, StaleRead), Rule::Allowed);
    let applied = |all| Settings {
        synchronous_commit: "remote_apply".into(),
        are_all_synchronous: all,
        ..Settings::default()
    };
    assert_eq!(rule(&standby, &applied(true), Span::Everywhere, ReadCommitted, StaleRead), Rule::Forbidden);
    assert_eq!(rule(&standby, &applied(false), Span::Everywhere, ReadCommitted, StaleRead), Rule::Allowed);
    let shards = site(Engine::parse("fdw-sharded").unwrap(), &[Role::Shard, Role::Shard]);
    assert_eq!(rule(&shards, &no_settings, Span::Everywhere, Serializable, FracturedRead), Rule::Allowed);
    assert_eq!(rule(&shards, &no_settings, Span::Everywhere, ReadCommitted, TornCommit), Rule::Allowed);
    let csn = |value: &str| {
        let settings = Settings { csn_snapshot: value.into(), ..Settings::default() };
        let shardman = site(Engine::parse("shardman").unwrap(), &[Role::Shard, Role::Shard]);
        rule(&shardman, &settings, Span::Entry, RepeatableRead, ReadSkew)
    };
    assert_eq!([csn("on"), csn("off"), csn("")], [Rule::Forbidden, Rule::Allowed, Rule::Measured]);
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
            reading: Reading::Statements,
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
    for rule in [Rule::Allowed, Rule::Measured] {
        assert_eq!(judge(rule, 300, 0, Some(4)).standing, Standing::AllowedNotSeen);
    }
}

#[test]
fn reasons_and_advice_fit_the_engine() {
    let transfers = ack::Outcomes { ok: 1000, ..ack::Outcomes::default() };
    let report = bank::Report {
        expected: 8000,
        last_sum: 8100,
        later_sum: 8100,
        last_control: true,
        transfers,
        ..bank::Report::default()
    };
    let peers = site(Engine::parse("multimaster").unwrap(), &[Role::Peer, Role::Peer]);
    let last = bank(&peers, &report, &Settings::default(), Isolation::ReadCommitted, "").remove(1);
    assert_eq!(last.standing, Standing::ByDesign);
    // Each transfer runs on one node.
    assert!(last.why.contains("commits on one node") && !last.change.contains("shard"), "{last:?}");
    let plan: Plan = Plan::default();
    let change = |engine: &str| {
        let site = site(Engine::parse(engine).unwrap(), &[Role::Peer]);
        not_possible(&site, ("ack", ""), &plan, Fault::Partition, "why").change
    };
    for engine in ["mtm", "citus"] {
        assert!(!change(engine).contains("--local KIND"), "{}", change(engine));
    }
    assert!(change("multimaster").contains("--local KIND"));
}

/// A node that catches up is one of a cluster of `up`: the way out is to wait for it, not to make another cluster.
#[test]
fn a_fault_on_a_node_that_does_not_answer_is_possible_when_it_does() {
    let mut mtm = site(Engine::parse("mtm").unwrap(), &[Role::Peer, Role::Peer]);
    mtm.nodes[1] =
        crate::fault::Node::silent("m2", Role::Peer, mtm.nodes[1].spec.clone(), "it does not answer");
    let change = |plan: &str, mtm: &crate::fault::Site| {
        let plan = Plan::parse(plan).unwrap();
        not_possible(mtm, ("bank", ""), &plan, Fault::Kill, "why")
    };
    let silent = change("kill:m2@1s", &mtm);
    assert!(silent.change.contains("when m2 answers") && silent.change.contains("psql '"), "{silent:?}");
    assert!(!silent.promise.contains("acknowledged"), "it is about transfers: {silent:?}");
    assert!(change("kill:n@1s", &mtm).change.contains("on a cluster of pgfathom up"));
}

#[test]
fn a_last_sum_that_still_changes_is_no_lost_money() {
    let citus = site(Engine::parse("citus").unwrap(), &[Role::Coordinator, Role::Worker]);
    let judge = |last_sum, later_sum, last_control| {
        let transfers = ack::Outcomes { ok: 1000, ..ack::Outcomes::default() };
        let report = bank::Report {
            expected: 8000,
            last_sum,
            later_sum,
            last_control,
            transfers,
            ..bank::Report::default()
        };
        let promises = bank(&citus, &report, &Settings::default(), Isolation::ReadCommitted, "");
        (promises[1].standing, promises[1].witness.len())
    };
    assert_eq!(judge(8000, 8000, true), (Standing::Kept, 0));
    assert_eq!(judge(7981, 7981, true), (Standing::Broken, 1));
    assert_eq!(judge(7981, 8000, true), (Standing::NotTested, 0), "the second reading has it all");
    assert_eq!(judge(8000, 7981, true), (Standing::NotTested, 0));
    assert_eq!(judge(7981, 7981, false), (Standing::NotTested, 0), "the control had another sum");
}

#[test]
fn a_setting_excuses_only_the_faults_it_is_weak_against() {
    let settings = |commit: &str, names: &str, fsync: &str| Settings {
        synchronous_commit: commit.into(),
        standby_names: names.into(),
        fsync: fsync.into(),
        ..Settings::default()
    };
    let excuse = |settings: &Settings, faults: &[Fault]| {
        settings.excuse(faults, true, &Observed::default()).map(|it| it.change)
    };
    let on = settings("on", "", "on");
    assert_eq!(excuse(&on, &[Fault::Kill, Fault::Power]), None);
    assert!(excuse(&on, &[Fault::Kill, Fault::Promote]).unwrap().contains("synchronous_standby_names"));
    assert_eq!(excuse(&settings("on", "FIRST 1 (s1)", "on"), &[Fault::Kill, Fault::Promote]), None);
    assert!(excuse(&settings("off", "", "on"), &[Fault::Kill]).unwrap().contains("synchronous_commit"));
    assert_eq!(excuse(&settings("off", "", "on"), &[Fault::Pause]), None);
    assert_eq!(excuse(&settings("on", "", "off"), &[Fault::Kill]), None);
    assert_eq!(excuse(&settings("on", "", "off"), &[Fault::Power]), Some("set fsync = on"));
}

/// A primary that a failover manager stopped, or that hung, takes its role back: what the promoted one acknowledged is gone, with every setting.
#[test]
fn a_primary_that_returns_takes_the_commits_of_the_promoted_one_with_it() {
    for names in ["", "FIRST 1 (s1)"] {
        let settings = Settings {
            synchronous_commit: "on".into(),
            standby_names: names.into(),
            fsync: "on".into(),
            ..Settings::default()
        };
        let change = |last: usize| {
            let observed = Observed::of_timelines(&[4, 5], last);
            settings.excuse(&[], true, &observed).map(|it| it.change)
        };
        assert!(change(0).expect("a reason").contains("fence"));
        assert!(change(1).is_none_or(|change| !change.contains("fence")), "the promoted one stayed");
    }
}

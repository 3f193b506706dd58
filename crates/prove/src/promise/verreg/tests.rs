//! Judging by known cases, and by many random ones.

use super::*;
use crate::check;
use crate::fault::{Journal, Node};
use crate::history::{History, Kind, Model, Op};
use crate::live::ack::Outcomes;
use crate::live::verreg::{Shown, late};
use crate::simulate;
use connect::ConnSpec;
use engines::Engine;
use std::sync::Arc;

fn site(engine: Engine, roles: &[Role]) -> Site {
    let dir = std::env::temp_dir().join(format!("pgfathom-judge-{}", std::process::id()));
    let journal = Arc::new(Journal::begin(&dir).unwrap());
    let spec = ConnSpec::new("localhost", 5432, "nobody", "nothing");
    let nodes = roles.iter().map(|role| Node::spared("n", *role, spec.clone(), "it is no server")).collect();
    Site::new(engine, nodes, journal)
}

fn criteria<'a>(site: &'a Site, settings: &'a Settings, level: Isolation) -> Criteria<'a> {
    Criteria { site, settings, level, excuse: None }
}

#[test]
fn an_anomaly_is_judged_by_engine_level_and_place() {
    use Isolation::{ReadCommitted, RepeatableRead, Serializable};
    let settings = Settings::default();
    let judged =
        |site: &Site, level, class, is_ordered| judge(&criteria(site, &settings, level), class, is_ordered);
    let one = site(Engine::default(), &[Role::Primary]);
    assert_eq!(judged(&one, ReadCommitted, Class::FracturedStatement, false), Rule::Forbidden);
    // Counting up loses nothing at any level.
    assert_eq!(judged(&one, ReadCommitted, Class::DuplicateVersion, false), Rule::Forbidden);
    assert_eq!(judged(&one, RepeatableRead, Class::LongFork, false), Rule::Forbidden);
    assert_eq!(judged(&one, RepeatableRead, Class::ReadSkew, true), Rule::Forbidden);
    assert_eq!(judged(&one, Serializable, Class::WriteSkew, true), Rule::Forbidden);
    // A crash that may take acknowledged transactions away is no violation of a level; a value that no transaction wrote is.
    let excused = Criteria {
        excuse: Some(Excuse { why: String::new(), change: "" }),
        ..criteria(&one, &settings, Serializable)
    };
    assert_eq!(judge(&excused, Class::DuplicateVersion, false), Rule::Allowed);
    assert_eq!(judge(&excused, Class::Garbage, false), Rule::Forbidden);
    let standby = site(Engine::default(), &[Role::Primary, Role::Standby]);
    assert_eq!(judged(&standby, RepeatableRead, Class::LongFork, false), Rule::Allowed);
    assert_eq!(judged(&standby, RepeatableRead, Class::ReadSkew, false), Rule::Forbidden);
    assert_eq!(judged(&standby, RepeatableRead, Class::ReadSkew, true), Rule::Allowed);
    // Its readers are a level below SERIALIZABLE.
    assert_eq!(judged(&standby, Serializable, Class::WriteSkew, false), Rule::Allowed);
    let shards = site(Engine::parse("fdw-sharded").unwrap(), &[Role::Shard, Role::Shard]);
    assert_eq!(judged(&shards, Serializable, Class::FracturedStatement, false), Rule::Allowed);
    assert_eq!(judged(&shards, ReadCommitted, Class::StatementFork, false), Rule::Allowed);
    assert_eq!(judged(&shards, RepeatableRead, Class::LostUpdate, false), Rule::Forbidden);
    assert_eq!(judged(&shards, RepeatableRead, Class::DirtyWrite, false), Rule::Forbidden);
    let peers = site(Engine::parse("multimaster").unwrap(), &[Role::Peer, Role::Peer]);
    for class in
        [Class::DuplicateVersion, Class::IncompatibleOrder, Class::FracturedStatement, Class::DirtyWrite]
    {
        assert_eq!(judged(&peers, RepeatableRead, class, false), Rule::Allowed, "{class:?}");
    }
    assert_eq!(judged(&peers, RepeatableRead, Class::AbortedRead, false), Rule::Forbidden);
}

/// A history that keeps snapshot isolation, and of which some readings are then changed.
fn random(seed: u64, model: Model) -> History {
    let mut draw = simulate::Draw::new(seed);
    let plan = simulate::Plan { seed, model, txns: 40, keys: 4, sessions: 4, ..simulate::Plan::default() };
    let whole = match draw.below(2) {
        0 => simulate::serial(&plan),
        _ => simulate::snapshot_isolation(&plan),
    };
    let mut history = History::new(model);
    let wrong_percent = [0, 0, 5, 30][draw.below(4) as usize];
    for number in 0..whole.txns().len() as u32 {
        let ops: Vec<Op> = whole
            .ops_of(number)
            .iter()
            .map(|op| {
                let is_read = op.kind == Kind::Read;
                let list = if is_read && model == Model::Append { whole.list(op) } else { &[] };
                let seen = match is_read && draw.below(100) < wrong_percent {
                    true => draw.below(op.ver + 1),
                    false => op.ver,
                };
                match (is_read, model) {
                    (true, Model::Append) => {
                        let read = history.read_list(op.key, &list[..(seen as usize).min(list.len())]);
                        Op { statement: op.statement, start_ns: op.start_ns, ..read }
                    }
                    (true, _) if seen < op.ver => Op { ver: 0, tok: 0, ..*op },
                    _ => *op,
                }
            })
            .collect();
        history.push(whole.txns()[number as usize], &ops);
    }
    history
}

/// Levels are a lattice: if a stronger one is kept, every weaker one must be, whatever the history, the engine, the controls and the faults.
#[test]
fn a_stronger_level_is_never_better_than_a_weaker_one() {
    let sites = [
        site(Engine::default(), &[Role::Primary]),
        site(Engine::default(), &[Role::Primary, Role::Standby]),
        site(Engine::parse("fdw-sharded").unwrap(), &[Role::Shard, Role::Shard]),
        site(Engine::parse("multimaster").unwrap(), &[Role::Peer, Role::Peer]),
        site(Engine::parse("citus").unwrap(), &[Role::Coordinator, Role::Worker]),
        site(Engine::parse("shardman").unwrap(), &[Role::Shard, Role::Shard]),
    ];
    let mut standings = std::collections::BTreeSet::new();
    for seed in 0..400 {
        let mut draw = simulate::Draw::new(seed);
        let model = [Model::VersionedRegister, Model::Append][draw.below(2) as usize];
        let history = random(seed, model);
        let checked = check::check(&history, &check::Options::default());
        // The checker itself: what refutes a level refutes every stronger one.
        for weaker in check::Level::all().filter(|level| checked.refutes(*level)) {
            for stronger in check::Level::all().filter(|stronger| weaker.is_implied_by(*stronger)) {
                assert!(checked.refutes(stronger), "{seed}: {weaker} and not {stronger}");
            }
        }
        let site = &sites[draw.below(sites.len() as u32) as usize];
        let level = Isolation::ALL[draw.below(3) as usize];
        let maybe =
            |draw: &mut simulate::Draw| [None, Some(true), Some(true), Some(false)][draw.below(4) as usize];
        let is_refuted = checked.refutes(check::Level::new(base_of(level), Order::Data));
        let report = Report {
            level,
            outcomes: Outcomes { ok: u64::from(draw.below(8) > 0) * 40, ..Outcomes::default() },
            planted: if is_refuted { None } else { maybe(&mut draw) },
            planted_late: maybe(&mut draw),
            late: (level == Isolation::ReadCommitted).then(|| late::find(&history, true)),
            shown: maybe(&mut draw).map(|fork| Shown { fork, late: draw.below(4) > 0 }),
            control: maybe(&mut draw).map(|found| (Isolation::ReadCommitted, 9, u64::from(found))),
            entries: site.nodes.iter().map(|node| node.name.clone()).collect(),
            report: checked,
            ..Report::default()
        };
        let promises = verreg(site, &report, &Settings::default(), "verreg", "");
        let [plain, .., real_time] = promises.as_slice() else { panic!("{promises:#?}") };
        let weaker: &[(&Promise, &Promise)] = match promises.as_slice() {
            [plain, fork, real_time] => &[(fork, plain), (plain, real_time), (fork, real_time)],
            _ => &[(plain, real_time)],
        };
        for (weaker, stronger) in weaker {
            assert_eq!(weaker.standing.bounds(stronger.standing), stronger.standing, "{seed}: {promises:#?}");
        }
        assert!(!is_refuted || plain.standing < Standing::AllowedNotSeen, "{seed}: {promises:#?}");
        for promise in &promises {
            let control = promise.control.as_ref();
            assert!(
                promise.standing != Standing::Kept || control.is_none_or(|control| control.seen > 0),
                "{seed}: kept, and the control saw nothing: {promise:#?}"
            );
            standings.insert(promise.standing);
        }
    }
    // All of them came up.
    assert!(standings.len() >= 5, "{standings:?}");
}

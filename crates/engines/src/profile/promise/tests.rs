//! The tables of promises are consistent with each other and with the documentation.

use super::*;
use crate::Engine;

/// A rule with every setting, with none, and with unknown ones.
fn rules(profile: &Profile, level: Isolation, at: Arrangement, anomaly: Anomaly) -> Vec<Rule> {
    let known: [&dyn Fn(Setting) -> Option<bool>; 3] = [&|_| Some(true), &|_| Some(false), &|_| None];
    let mut rules = Vec::new();
    for is_set in known {
        for is_spread in [false, true] {
            rules.push(profile.rule(&Place { level, at, is_spread, is_set }, anomaly));
        }
    }
    rules
}

const ARRANGEMENTS: [Arrangement; 2] = [Arrangement::Plain, Arrangement::Standbys];

fn engine(name: &str) -> Engine {
    Engine::parse(name).expect("an engine")
}

#[test]
fn anomalies_are_numbered_as_they_stand_in_the_tables() {
    for (place, anomaly) in Anomaly::ALL.into_iter().enumerate() {
        assert_eq!(anomaly as usize, place, "{}", anomaly.name());
    }
    let sharded = engine("fdw-sharded").promises[0];
    assert_eq!(sharded.entry(Anomaly::FracturedRead).verdict, Verdict::Is(Rule::Allowed));
    assert_eq!(sharded.entry(Anomaly::DirtyOrCircular).verdict, Verdict::Is(Rule::Forbidden));
}

/// Every stronger level forbids what a level forbids, and every weaker one allows what a level allows.
#[test]
fn a_stronger_level_promises_all_that_a_weaker_one_does() {
    for engine in Engine::ALL {
        let profile = &*engine;
        for at in ARRANGEMENTS {
            for anomaly in Anomaly::ALL {
                for [weaker, stronger] in
                    [[0, 1], [1, 2], [0, 2]].map(|pair| pair.map(|place| Isolation::ALL[place]))
                {
                    let both = std::iter::zip(
                        rules(profile, weaker, at, anomaly),
                        rules(profile, stronger, at, anomaly),
                    );
                    for (weak, strong) in both {
                        let where_ = format!("{engine} {at:?} {}: {weaker} {stronger}", anomaly.name());
                        assert!(weak != Rule::Forbidden || strong == Rule::Forbidden, "{where_}");
                        assert!(strong != Rule::Allowed || weak == Rule::Allowed, "{where_}");
                    }
                }
            }
        }
    }
}

/// A level without a row is not judged by the row of another one.
#[test]
fn only_rows_make_promises() {
    let rule = |engine: Engine, level, anomaly| {
        engine.rule(&Place { level, at: Arrangement::Plain, is_spread: true, is_set: &|_| None }, anomaly)
    };
    use Isolation::{ReadCommitted, RepeatableRead, Serializable};
    // CockroachDB's and YDB's row is that of SERIALIZABLE.
    for engine in [engine("cockroach"), engine("ydb")] {
        assert_eq!(rule(engine, Serializable, Anomaly::WriteSkew), Rule::Forbidden);
        assert_eq!(rule(engine, ReadCommitted, Anomaly::WriteSkew), Rule::Measured);
    }
    assert_eq!(rule(engine("cockroach"), ReadCommitted, Anomaly::StaleRead), Rule::Allowed);
    // Shardman has none for SERIALIZABLE: it forbids what REPEATABLE READ forbids.
    assert_eq!(rule(engine("shardman"), Serializable, Anomaly::LostUpdate), Rule::Forbidden);
    assert_eq!(rule(engine("shardman"), Serializable, Anomaly::WriteSkew), Rule::Measured);
    // The setting is unknown.
    assert_eq!(rule(engine("shardman"), RepeatableRead, Anomaly::FracturedRead), Rule::Measured);
}

#[test]
fn a_setting_and_a_shard_decide() {
    let rule = |engine: Engine, is_spread, is_on: Option<bool>, anomaly| {
        let place =
            Place { level: Isolation::RepeatableRead, at: Arrangement::Plain, is_spread, is_set: &|_| is_on };
        engine.rule(&place, anomaly)
    };
    assert_eq!(rule(engine("citus"), true, None, Anomaly::ReadSkew), Rule::Allowed);
    assert_eq!(rule(engine("citus"), false, None, Anomaly::ReadSkew), Rule::Forbidden);
    assert_eq!(rule(engine("shardman"), true, Some(true), Anomaly::ReadSkew), Rule::Forbidden);
    assert_eq!(rule(engine("shardman"), true, Some(false), Anomaly::ReadSkew), Rule::Allowed);
}

//! The tables of promises: they fit each other, and the documentation.

use super::*;
use crate::Engine;

/// A rule with every setting, with none, and where nobody knows.
fn rules(profile: &Profile, level: Level, at: Arrangement, anomaly: Anomaly) -> Vec<Rule> {
    let known: [&dyn Fn(Setting) -> Option<bool>; 3] = [&|_| Some(true), &|_| Some(false), &|_| None];
    let mut rules = Vec::new();
    for is_set in known {
        for is_spread in [false, true] {
            rules.push(profile.rule(&Place { level, at, is_spread, is_set }, anomaly));
        }
    }
    rules
}

const ARRANGEMENTS: [Arrangement; 4] =
    [Arrangement::Plain, Arrangement::Standbys, Arrangement::Asynchronous, Arrangement::Majority];

#[test]
fn anomalies_are_numbered_as_they_stand_in_the_tables() {
    for (place, anomaly) in Anomaly::ALL.into_iter().enumerate() {
        assert_eq!(anomaly as usize, place, "{}", anomaly.name());
    }
    let sharded = Engine::FdwSharded.profile().promises[0];
    assert_eq!(sharded.entry(Anomaly::FracturedRead).verdict, Verdict::Is(Rule::Allowed));
    assert_eq!(sharded.entry(Anomaly::DirtyOrCircular).verdict, Verdict::Is(Rule::Forbidden));
}

/// What a level forbids every stronger level forbids, too, and what a strong level allows every weaker one allows.
#[test]
fn a_stronger_level_promises_all_that_a_weaker_one_does() {
    for engine in Engine::ALL {
        let profile = engine.profile();
        for at in ARRANGEMENTS {
            for anomaly in Anomaly::ALL {
                for [weaker, stronger] in
                    [[0, 1], [1, 2], [0, 2]].map(|pair| pair.map(|place| Level::ALL[place]))
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

/// A level without a row of its own is not judged by the row of another one.
#[test]
fn nothing_is_promised_that_no_row_says() {
    let rule = |engine: Engine, level, anomaly| {
        engine
            .profile()
            .rule(&Place { level, at: Arrangement::Plain, is_spread: true, is_set: &|_| None }, anomaly)
    };
    use Level::{ReadCommitted, RepeatableRead, Serializable};
    // CockroachDB's and YDB's row is that of SERIALIZABLE.
    for engine in [Engine::Cockroach, Engine::Ydb] {
        assert_eq!(rule(engine, Serializable, Anomaly::WriteSkew), Rule::Forbidden);
        assert_eq!(rule(engine, ReadCommitted, Anomaly::WriteSkew), Rule::Measured);
    }
    assert_eq!(rule(Engine::Cockroach, ReadCommitted, Anomaly::StaleRead), Rule::Allowed);
    // Shardman has none for SERIALIZABLE: what REPEATABLE READ forbids, it forbids.
    assert_eq!(rule(Engine::Shardman, Serializable, Anomaly::LostUpdate), Rule::Forbidden);
    assert_eq!(rule(Engine::Shardman, Serializable, Anomaly::WriteSkew), Rule::Measured);
    // Nobody knows the setting.
    assert_eq!(rule(Engine::Shardman, RepeatableRead, Anomaly::FracturedRead), Rule::Measured);
}

#[test]
fn a_setting_and_a_shard_decide() {
    let rule = |engine: Engine, is_spread, is_on: Option<bool>, anomaly| {
        let place =
            Place { level: Level::RepeatableRead, at: Arrangement::Plain, is_spread, is_set: &|_| is_on };
        engine.profile().rule(&place, anomaly)
    };
    assert_eq!(rule(Engine::Citus, true, None, Anomaly::ReadSkew), Rule::Allowed);
    assert_eq!(rule(Engine::Citus, false, None, Anomaly::ReadSkew), Rule::Forbidden);
    assert_eq!(rule(Engine::Shardman, true, Some(true), Anomaly::ReadSkew), Rule::Forbidden);
    assert_eq!(rule(Engine::Shardman, true, Some(false), Anomaly::ReadSkew), Rule::Allowed);
}

#[test]
fn the_documentation_has_the_table_of_all_promises() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/engines.md");
    let text = std::fs::read_to_string(path).expect("docs/engines.md");
    let table = table(Engine::ALL.into_iter().map(Engine::profile));
    assert!(text.contains(&table), "the table of promises in docs/engines.md has to be:\n\n{table}");
}

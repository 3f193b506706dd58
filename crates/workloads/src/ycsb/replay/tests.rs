//! A tiny model of a table is driven with the same draws; the replay must accept what it holds and nothing else.

use std::collections::HashMap;

use data::ycsb::{Compressible, KeyOrder, Spec};

use super::*;
use crate::replay::WriterException;
use ::run::client::Exception;
use ::run::routing::KeyOwners;
use ::run::workload::Mix;

const ROWS: u64 = 50;
const SEED: u64 = 11;

fn table() -> Table {
    Table::new(Spec { seed: 1, key_order: KeyOrder::Scattered, compressible: Compressible::default() })
}

fn items(mix: &[(Verb, Distribution, u64)]) -> Vec<(Item, Operation)> {
    mix.iter()
        .map(|&(verb, distribution, weight)| {
            (Item { name: verb.name().into(), weight }, Operation { verb, distribution })
        })
        .collect()
}

/// Runs `transactions` per session against a model table, the sessions one after the other, and returns its fields.
fn model(
    fields: &mut HashMap<(u64, usize), Version>,
    mix: &[(Verb, Distribution, u64)],
    run: u16,
    transactions: &[u64],
    exceptions: &[WriterException],
) -> Writer<WriterSpec> {
    model_with(fields, mix, run, transactions, exceptions, None)
}

/// The same with sessions held to nodes.
fn model_with(
    fields: &mut HashMap<(u64, usize), Version>,
    mix: &[(Verb, Distribution, u64)],
    run: u16,
    transactions: &[u64],
    exceptions: &[WriterException],
    homes: Option<Homes>,
) -> Writer<WriterSpec> {
    let sessions = transactions.len() as u64;
    let ycsb = Ycsb::new(table(), ROWS, ROWS, sessions, run).with_homes(homes).with_items(items(mix));
    let workloads = Mix::of(ycsb.clone()).unwrap();
    let mut inserted_max = 0;
    for (session, &count) in transactions.iter().enumerate() {
        let mut state = YcsbSession::new(session as u64);
        for sequence in 0..count as u32 {
            let mut random = Random::for_transaction(SEED, session as u64, u64::from(sequence));
            let (_, operation) = ycsb.operations()[workloads.choose(&mut random)];
            let draw = ycsb.draw(operation, &state, &mut random);
            let exception = exceptions.iter().find(|e| e.session == session as u64 && e.sequence == sequence);
            let version = Version::new(run, session as u16, sequence);
            let applies = exception.is_none_or(|exception| !exception.failed);
            match operation.verb {
                Verb::Update | Verb::ReadModifyWrite if applies => {
                    fields.insert((draw.row, draw.column), version);
                }
                Verb::Insert if applies => fields.extend((0..10).map(|column| ((draw.row, column), version))),
                _ => {}
            }
            if operation.verb == Verb::Insert {
                state.insert_ended(exception.is_none());
                inserted_max = inserted_max.max(state.inserted());
            }
        }
    }
    let mut spec = WriterSpec::new(workloads.items(), 0, &ycsb, SEED);
    spec.outcomes.exceptions = exceptions.to_vec();
    spec.insert_end = Some(ROWS + inserted_max * sessions);
    Writer { run, epoch: u32::from(run), spec, transactions: Some(transactions.to_vec()) }
}

const UPDATES: &[(Verb, Distribution, u64)] =
    &[(Verb::Read, Distribution::Zipfian, 50), (Verb::Update, Distribution::Zipfian, 50)];
const INSERTS: &[(Verb, Distribution, u64)] = &[
    (Verb::Read, Distribution::Latest, 30),
    (Verb::Insert, Distribution::Latest, 40),
    (Verb::Update, Distribution::Latest, 30),
];

#[test]
fn what_the_model_holds_is_accepted_and_anything_older_is_stale() {
    let mut fields = HashMap::new();
    let first = model(&mut fields, UPDATES, 1, &[300, 200], &[]);
    let before = fields.clone();
    let second = model(&mut fields, UPDATES, 2, &[100], &[]);
    let history = History::replay(&table(), ROWS, vec![first, second]).unwrap();
    let mut stale = 0;
    for row in 0..ROWS {
        for column in 0..10 {
            let version = fields.get(&(row, column)).copied().unwrap_or(Version::LOADED);
            assert_eq!(
                history.judge(row, column, version),
                VersionVerdict::Acceptable,
                "row {row} column {column}"
            );
            if version != Version::LOADED {
                assert!(matches!(history.judge(row, column, Version::LOADED), VersionVerdict::Stale { .. }));
                assert!(history.wrote_row(row));
            }
            if let Some(old) = before.get(&(row, column)).filter(|old| **old != version) {
                assert_eq!(history.judge(row, column, *old), VersionVerdict::Stale { latest: version });
                stale += 1;
            }
        }
    }
    assert!(stale > 10, "the runs overwrote each other in {stale} fields");
    assert_eq!(history.rows_end(), ROWS);
}

#[test]
fn versions_nobody_wrote_are_foreign() {
    let mut fields = HashMap::new();
    let writer = model(&mut fields, UPDATES, 3, &[50], &[]);
    let history = History::replay(&table(), ROWS, vec![writer]).unwrap();
    let (&(row, column), &version) = fields.iter().next().unwrap();
    for wrong in [
        Version::new(4, 0, 0),
        Version::new(3, 1, version.sequence()),
        Version::new(3, 0, 50),
        Version::new(3, 0, u32::MAX),
    ] {
        assert_eq!(history.judge(row, column, wrong), VersionVerdict::Foreign, "{wrong}");
    }
    assert_eq!(history.judge(row, (column + 1) % 10, version), VersionVerdict::Foreign);
    assert_eq!(history.judge(ROWS, 0, Version::LOADED), VersionVerdict::Foreign);
}

#[test]
fn inserted_rows_are_expected_and_failed_ones_are_not() {
    let mut fields = HashMap::new();
    // Make two of the inserts exceptions: one known to have failed, one whose outcome is unknown but which was applied.
    let probe = model(&mut HashMap::new(), INSERTS, 1, &[200, 200], &[]);
    let history = History::replay(&table(), ROWS, vec![probe.clone()]).unwrap();
    let inserts: Vec<Version> = history
        .writes
        .iter()
        .filter(|write| write.field & 15 == WHOLE_ROW)
        .map(|write| write.version())
        .collect();
    let exception = |version: Version, failed| WriterException {
        session: u64::from(version.session()),
        sequence: version.sequence(),
        failed,
    };
    let exceptions = [exception(inserts[3], true), exception(inserts[9], false)];
    let writer = model(&mut fields, INSERTS, 1, &[200, 200], &exceptions);
    let history = History::replay(&table(), ROWS, vec![writer]).unwrap();
    let mut counts = [0; 3];
    for row in ROWS..history.rows_end() {
        let there = fields.contains_key(&(row, 0));
        match history.expects_row(row) {
            RowVerdict::Present => {
                counts[0] += 1;
                assert!(there, "row {row}");
                for column in 0..10 {
                    assert_eq!(
                        history.judge(row, column, fields[&(row, column)]),
                        VersionVerdict::Acceptable
                    );
                }
            }
            RowVerdict::Absent => {
                counts[1] += 1;
                assert!(!there, "row {row}");
            }
            RowVerdict::Either => counts[2] += 1,
        }
    }
    assert_eq!(counts[2], 1, "one outcome is unknown");
    assert_eq!(counts[0], inserts.len() - 2);
}

#[test]
fn a_killed_run_leaves_only_genuine_values_acceptable() {
    let mut fields = HashMap::new();
    let mut writer = model(&mut fields, UPDATES, 1, &[100], &[]);
    writer.transactions = None;
    let history = History::replay(&table(), ROWS, vec![writer]).unwrap();
    let (&(row, column), &version) = fields.iter().next().unwrap();
    assert_eq!(history.judge(row, column, version), VersionVerdict::Acceptable);
    assert_eq!(history.judge(row, column, Version::LOADED), VersionVerdict::Acceptable);
    assert_eq!(history.judge((row + 1) % ROWS, column, version), VersionVerdict::Foreign);
}

#[test]
fn overlapping_runs_do_not_make_each_other_stale() {
    let mut fields = HashMap::new();
    let first = model(&mut fields, UPDATES, 1, &[200], &[]);
    let before = fields.clone();
    let mut second = model(&mut fields, UPDATES, 2, &[200], &[]);
    second.epoch = first.epoch;
    let history = History::replay(&table(), ROWS, vec![first, second]).unwrap();
    for (&(row, column), &version) in before.iter().chain(&fields) {
        assert_eq!(history.judge(row, column, version), VersionVerdict::Acceptable);
    }
}

#[test]
fn the_record_of_a_session_becomes_exceptions() {
    let ycsb = Ycsb::new(table(), ROWS, ROWS, 2, 1).with_items(items(UPDATES));
    let workloads = Mix::of(ycsb.clone()).unwrap();
    let mut spec = WriterSpec::new(workloads.items(), 0, &ycsb, SEED);
    let record = SessionRecord {
        transactions: 9,
        exceptions: vec![Exception { sequence: 4, is_known_failed: true }],
        exceptions_lost: true,
        inserted: 3,
        is_under_way: false,
    };
    spec.finish(&[SessionRecord::default(), record]);
    assert_eq!(spec.outcomes.exceptions, [WriterException { session: 1, sequence: 4, failed: true }]);
    assert_eq!(spec.outcomes.incomplete_sessions, [1]);
    assert_eq!(
        (spec.insert_end, spec.next_insert()),
        (Some(ROWS + 3 * 2), Some(ROWS)),
        "updates only: the next run may insert where this one might"
    );
    let json = serde_json::to_string(&spec).unwrap();
    assert_eq!(serde_json::from_str::<WriterSpec>(&json).unwrap(), spec);
}

/// Three nodes, the partitions distributed unevenly.
fn homes() -> Homes {
    Homes::new(KeyOwners::Hash { nodes: vec![0, 1, 2, 0, 0] }, vec![2, 0, 1], 2).unwrap()
}

#[test]
fn a_run_held_to_nodes_draws_only_their_keys_and_is_replayed_exactly() {
    for (distribution, verb) in [
        (Distribution::Uniform, Verb::Update),
        (Distribution::Zipfian, Verb::ReadModifyWrite),
        (Distribution::Latest, Verb::Update),
    ] {
        let transactions = [60; 7];
        let mix = [(verb, distribution, 1)];
        let mut fields = HashMap::new();
        let held = model_with(&mut fields, &mix, 1, &transactions, &[], Some(homes()));
        let homes = homes();
        let mut nodes_written = [0; 3];
        for (&(row, _), version) in &fields {
            let node = homes.of(u64::from(version.session()));
            assert!(homes.is_home(u64::from(version.session()), &table().key(row)), "row {row} {version}");
            nodes_written[usize::from(node)] += 1;
        }
        assert!(nodes_written.iter().all(|count| *count > 0), "{nodes_written:?}");
        // Through its record, as verification gets it.
        let json = serde_json::to_string(&held.spec).unwrap();
        assert_eq!(held.spec.version, 2);
        let spec: WriterSpec = serde_json::from_str(&json).unwrap();
        let history = History::replay(&table(), ROWS, vec![Writer { spec, ..held.clone() }]).unwrap();
        for row in 0..ROWS {
            for column in 0..10 {
                let version = fields.get(&(row, column)).copied().unwrap_or(Version::LOADED);
                assert_eq!(history.judge(row, column, version), VersionVerdict::Acceptable);
                let stale = history.judge(row, column, Version::LOADED) != VersionVerdict::Acceptable;
                assert_eq!(stale, version != Version::LOADED, "row {row} column {column}");
            }
        }
        // A replay that forgot the nodes would call genuine values foreign: the record is what makes it exact.
        let forgotten = WriterSpec { homes: None, version: 1, ..held.spec.clone() };
        let history = History::replay(&table(), ROWS, vec![Writer { spec: forgotten, ..held }]).unwrap();
        let foreign = fields.iter().filter(|&(&(row, column), version)| {
            history.judge(row, column, *version) == VersionVerdict::Foreign
        });
        assert!(foreign.count() > fields.len() / 4);
    }
}

#[test]
fn a_killed_run_held_to_nodes_is_told_from_foreign_writes() {
    let mut fields = HashMap::new();
    let mix = [(Verb::Update, Distribution::Uniform, 1)];
    let mut writer = model_with(&mut fields, &mix, 1, &[40; 6], &[], Some(homes()));
    writer.transactions = None;
    let history = History::replay(&table(), ROWS, vec![writer]).unwrap();
    for (&(row, column), &version) in &fields {
        assert_eq!(history.judge(row, column, version), VersionVerdict::Acceptable);
        assert_eq!(history.judge((row + 1) % ROWS, column, version), VersionVerdict::Foreign);
    }
}

#[test]
fn a_node_with_one_row_in_the_table_is_still_found() {
    // Sixty-four partitions over fifty rows: most have none or one.
    let lonely = (0..64).find(|&wanted| {
        let owners = KeyOwners::Hash { nodes: (0..64).collect() };
        (0..ROWS).filter(|row| owners.node_of(&table().key(*row)) == wanted).count() == 1
    });
    let lonely = lonely.expect("some partition has one row");
    let homes = Homes::new(KeyOwners::Hash { nodes: (0..64).collect() }, vec![lonely], 1).unwrap();
    assert!(homes.has_rows(lonely, ROWS, |row| table().key(row)));
    let mut fields = HashMap::new();
    model_with(&mut fields, &[(Verb::Update, Distribution::Zipfian, 1)], 1, &[30], &[], Some(homes.clone()));
    let rows: std::collections::HashSet<u64> = fields.keys().map(|(row, _)| *row).collect();
    assert_eq!(rows.len(), 1);
    let empty = (0..64).find(|node| !homes.has_rows(*node, ROWS, |row| table().key(row)));
    assert!(empty.is_some(), "and some partition has none");
}

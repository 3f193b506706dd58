use data::ycsb::{Compressible, FIELD_COUNT, KeyOrder, Spec};

use super::*;
use crate::dataset::Dataset;
use crate::options::Stop;
use crate::verify::catalog::{Catalog, Leaf, TableAt};
use crate::ycsb::Ycsb;

const ROWS: u64 = 1000;

fn ycsb() -> Ycsb {
    Ycsb::new(ROWS, Spec { seed: 1, key_order: KeyOrder::Scattered, compressible: Compressible::NONE })
}

/// A row as it was loaded: its key and fields.
fn row(number: u64) -> Vec<Vec<u8>> {
    let mut fields = [[0; data::ycsb::FIELD_BYTES]; FIELD_COUNT];
    let table = data::ycsb::Table::new(ycsb().spec().clone());
    table.row_fields(number, &mut fields);
    std::iter::once(table.key(number).to_vec()).chain(fields.map(|field| field.to_vec())).collect()
}

/// One plain table.
fn catalog() -> Catalog {
    let leaf = Leaf { at: 0, partition: 0, is_home: true, site: 0, relation: None, blocks: 0 };
    Catalog {
        tables: vec![TableAt { table: 0, node: None, first_leaf: 0, partitions: 1 }],
        leaves: vec![leaf],
        names: vec![TableName::local("usertable")],
        ..Catalog::new()
    }
}

/// Judges rows, and returns what was found, `missing` added as if they had been found missing.
fn findings(setting: &Setting<'_>, rows: &[Vec<Vec<u8>>], missing: &[u64]) -> Findings {
    let mut judge = setting.content.judge(0).expect("it has one of its own");
    let mut findings = Findings::default();
    for row in rows {
        let found: Vec<Option<&[u8]>> = row.iter().map(|value| Some(value.as_slice())).collect();
        let mut of_row = OfRow { findings: &mut findings, setting, leaf: 0, found: &found };
        if let crate::dataset::Presence::Extra(why, number) = judge.judge(&found, &mut of_row) {
            findings.extra_row(setting, 0, why, number, &found);
        }
    }
    for &row in missing {
        findings.add(0, DifferenceKind::Missing, |kind| named(setting, kind, 0, Some(row), None));
    }
    findings
}

fn with_setting<T>(test: impl FnOnce(&Setting<'_>) -> T) -> T {
    let (ycsb, catalog, stop) = (ycsb(), catalog(), Stop::new());
    test(&Setting::without_servers(&ycsb, &catalog, &stop))
}

fn differences(rows: &[Vec<Vec<u8>>], missing: &[u64]) -> Vec<String> {
    with_setting(|setting| {
        let (totals, named) = findings(setting, rows, missing).into_named(setting);
        assert_eq!(totals.iter().sum::<u64>(), named.len() as u64);
        named.iter().map(ToString::to_string).collect()
    })
}

fn key(number: u64) -> String {
    ycsb().key(number)
}

#[test]
fn a_swap_between_rows_names_both_and_where_each_value_comes_from() {
    let (mut one, mut two) = (row(5), row(6));
    std::mem::swap(&mut one[4], &mut two[4]);
    let mut expected = [
        format!("{} (row 5): field3 holds the value of {} field3", key(5), key(6)),
        format!("{} (row 6): field3 holds the value of {} field3", key(6), key(5)),
    ];
    let mut found = differences(&[one, two], &[]);
    expected.sort();
    found.sort();
    assert_eq!(found, expected);
}

#[test]
fn a_swap_within_a_row_is_recognised() {
    let mut one = row(5);
    one.swap(1, 10);
    assert_eq!(
        differences(&[one], &[]),
        [
            format!("{0} (row 5): field0 holds the value of {0} field9", key(5)),
            format!("{0} (row 5): field9 holds the value of {0} field0", key(5)),
        ]
    );
}

#[test]
fn strangers_are_named_by_what_stands_in_their_key() {
    let mut foreign = row(5);
    foreign[0] = b"user5\xff".to_vec();
    assert_eq!(
        differences(&[foreign, row(ROWS)], &[]),
        [
            "user5\\xff: unknown row in usertable, not a key of this dataset".to_owned(),
            format!(
                "{} (row {ROWS}): unknown row in usertable, no run wrote a row of this number",
                key(ROWS)
            ),
        ]
    );
}

#[test]
fn a_stranger_with_a_missing_rows_values_is_a_damaged_key() {
    let mut one = row(5);
    one[0][21] ^= 1;
    let found = differences(&[one], &[4, 5]);
    assert_eq!(found.len(), 2);
    assert_eq!(found[0], format!("{} (row 4): missing from usertable", key(4)));
    assert!(found[1].ends_with(&format!(": damaged key in usertable; the values belong to {}", key(5))));
}

#[test]
fn a_table_full_of_damage_is_counted_and_named_up_to_the_limit() {
    with_setting(|setting| {
        let mut all = Findings::default();
        for thread in 0..2 {
            let rows = (thread * 400..thread * 400 + 400).map(|number| {
                let mut row = row(number);
                row[1] = vec![b'!'; data::ycsb::FIELD_BYTES];
                row[2][50] = b'!';
                row
            });
            all.merge(findings(setting, &rows.collect::<Vec<_>>(), &[]));
        }
        assert_eq!(all.of_leaf, [1600]);
        let (totals, named) = all.into_named(setting);
        assert_eq!((totals[5], totals.iter().sum::<u64>()), (1600, 1600));
        assert_eq!(named.len(), NAMED_MAX);
    });
}

#[test]
fn a_row_of_the_wrong_node_is_reported_at_home_too_only_if_it_is() {
    with_setting(|setting| {
        let home = TableName::on("usertable_p1", "n2");
        let misplaced = |is_home_too| DifferenceKind::WrongNode { home: home.clone(), is_home_too };
        for is_gone in [false, true] {
            let mut findings = Findings::default();
            findings.add(0, misplaced(true), |kind| named(setting, kind, 0, Some(7), None));
            findings.not_home.extend(is_gone.then_some(7));
            let (_, named) = findings.into_named(setting);
            assert_eq!(named[0].kind, misplaced(!is_gone));
        }
    });
}

#[test]
fn what_runs_wrote_is_counted() {
    with_setting(|setting| {
        let mut findings = Findings::default();
        let mut of_row = OfRow { findings: &mut findings, setting, leaf: 0, found: &[] };
        of_row.accepted(3);
        of_row.uncertain();
        of_row.unjudged("the run was killed");
        of_row.unjudged("another reason");
        findings.merge(Findings { updates_accepted: 2, ..Findings::default() });
        let Findings { updates_accepted, rows_uncertain, values_unjudged, unjudged_why, .. } = findings;
        assert_eq!((updates_accepted, rows_uncertain, values_unjudged), (5, 1, 2));
        assert_eq!(unjudged_why, Some("the run was killed"));
    });
}

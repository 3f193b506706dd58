use std::sync::Arc;

use data::ycsb::{Compressible, KeyOrder, Spec, Table};

use super::*;
use load::dataset::Dataset;
use load::history::LedgerHistory;
use load::ledger::Writer;

const LOADED_ROWS: u64 = 1000;

fn spec() -> Spec {
    Spec { seed: 1, key_order: KeyOrder::Scattered, compressible: Compressible::NONE }
}

fn table() -> Table {
    Table::new(spec())
}

/// A row as it was loaded: its key and fields.
fn row(row: u64) -> Vec<Option<Vec<u8>>> {
    let mut fields = [[0; FIELD_BYTES]; FIELD_COUNT];
    table().row_fields(row, &mut fields);
    std::iter::once(Some(table().key(row).to_vec())).chain(fields.map(|field| Some(field.to_vec()))).collect()
}

/// What was found out, in order.
#[derive(Default)]
struct Found {
    wrong: Vec<(u64, DifferenceKind)>,
    aliens: Vec<(u64, usize)>,
    accepted: u64,
    uncertain: u64,
    unjudged: u64,
}

impl Verdicts for Found {
    fn wrong(&mut self, number: u64, kind: DifferenceKind) {
        self.wrong.push((number, kind));
    }

    fn alien(&mut self, number: u64, _: DifferenceKind, column: usize, _: &[u8]) {
        self.aliens.push((number, column));
    }

    fn accepted(&mut self, count: u64) {
        self.accepted += count;
    }

    fn uncertain(&mut self) {
        self.uncertain += 1;
    }

    fn unjudged(&mut self, _: &'static str) {
        self.unjudged += 1;
    }
}

fn judge(ycsb: &Ycsb, row: &[Option<Vec<u8>>]) -> (Presence, Found) {
    let mut found = Found::default();
    let values: Vec<Option<&[u8]>> = row.iter().map(Option::as_deref).collect();
    (YcsbJudge::new(ycsb).judge(&values, &mut found), found)
}

fn loaded() -> Ycsb {
    Ycsb::new(LOADED_ROWS, spec())
}

/// After a run 1 of two sessions with nine writes each.
fn written() -> Ycsb {
    let writer = Writer { run_no: 1, spec: "{}".into(), finished: true, transactions: vec![9, 9] };
    Ycsb { history: Some(Arc::new(LedgerHistory::new(LOADED_ROWS, vec![writer]))), ..loaded() }
}

#[test]
fn right_rows_are_not_mentioned() {
    for number in 0..50 {
        let (presence, found) = judge(&loaded(), &row(number));
        assert_eq!(presence, Presence::Must(number));
        assert_eq!((found.wrong.len(), found.aliens.len(), found.accepted), (0, 0, 0));
    }
}

#[test]
fn nulls_short_and_foreign_values_are_named() {
    let mut one = row(5);
    one[3] = None;
    one[4].as_mut().unwrap().truncate(40);
    one[5] = row(6)[5].clone();
    let (presence, found) = judge(&loaded(), &one);
    assert_eq!(presence, Presence::Must(5), "its key is right");
    let nearest = Some(Version::LOADED);
    let short = DifferenceKind::Damaged { column: 3, first_bad_byte: 40, bad_bytes: 60, nearest };
    assert_eq!(found.wrong, [(5, DifferenceKind::Null { column: 2 }), (5, short)]);
    assert_eq!(found.aliens, [(5, 4)]);
    assert_eq!(loaded().version(0, 6, 4, one[5].as_deref().unwrap()), Some(Version::LOADED));
    assert_eq!(loaded().version(0, 5, 4, one[5].as_deref().unwrap()), None);
}

#[test]
fn strangers_are_known_by_their_keys() {
    let foreign = |key: Option<&[u8]>| {
        let mut row = row(5);
        row[0] = key.map(<[u8]>::to_vec);
        judge(&loaded(), &row).0
    };
    let unknown = Presence::Extra;
    assert_eq!(foreign(Some(b"user5\xff")), unknown(ExtraReason::NoKey, None));
    assert_eq!(foreign(None), unknown(ExtraReason::NoKey, None));
    let beyond = judge(&loaded(), &row(LOADED_ROWS)).0;
    assert_eq!(beyond, unknown(ExtraReason::NeverWritten, Some(LOADED_ROWS)));
    let (inserted, found) = judge(&written(), &row(LOADED_ROWS));
    assert_eq!((inserted, found.uncertain), (Presence::May(LOADED_ROWS), 1), "a run may have inserted it");
}

#[test]
fn updates_of_known_runs_are_accepted_and_others_named() {
    let version = |run| Version::new(run, 1, 7);
    let mut one = row(5);
    for (column, run) in [(2, 1), (3, 2)] {
        let mut value = [0; FIELD_BYTES];
        table().field(5, column, version(run), &mut value);
        one[column + 1] = Some(value.to_vec());
    }
    let (presence, found) = judge(&written(), &one);
    assert_eq!((presence, found.accepted), (Presence::Must(5), 1));
    assert_eq!(found.wrong, [(5, DifferenceKind::UnknownWriter { column: 3, version: version(2) })]);
    assert_eq!(judge(&loaded(), &one).1.wrong.len(), 2, "without a run there were no writes");
}

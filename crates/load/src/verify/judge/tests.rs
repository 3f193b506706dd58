use super::*;
use crate::ledger::Writer;
use crate::verify::history::LedgerHistory;
use data::ycsb::{Compressible, KeyOrder, Spec};

const LOADED_ROWS: u64 = 1000;

fn table() -> Table {
    Table::new(Spec { seed: 1, key_order: KeyOrder::Scattered, compressible: Compressible::NONE })
}

/// A row as it was loaded: its key and fields.
fn row(table: &Table, row: u64) -> Vec<Option<Vec<u8>>> {
    let mut fields = [[0; FIELD_BYTES]; FIELD_COUNT];
    table.row_fields(row, &mut fields);
    std::iter::once(Some(table.key(row).to_vec())).chain(fields.map(|field| Some(field.to_vec()))).collect()
}

fn tuple(values: &[Option<Vec<u8>>]) -> Vec<u8> {
    let mut bytes = (values.len() as u16).to_be_bytes().to_vec();
    for value in values {
        match value {
            None => bytes.extend(u32::MAX.to_be_bytes()),
            Some(value) => {
                bytes.extend((value.len() as u32).to_be_bytes());
                bytes.extend(value);
            }
        }
    }
    bytes
}

/// Judges rows of a plain table and returns the differences, `missing` added as if they had been found missing.
fn differences(rows: &[Vec<Option<Vec<u8>>>], history: &dyn WriterHistory, missing: &[u64]) -> Vec<String> {
    let (table, names) = (table(), [TableName::local("usertable")]);
    let content =
        Content { table: &table, route: Route::new(0), loaded: LOADED_ROWS, history, names: &names };
    let mut judge = RowJudge::new(content);
    for row in rows {
        judge.judge(0, Fields::parse(&tuple(row)).unwrap().unwrap()).unwrap();
    }
    let mut findings = judge.findings;
    for &row in missing {
        findings.add(0, 0, || content.difference(DifferenceKind::Missing, row, 0));
    }
    let (totals, named) = findings.into_named(&content);
    assert_eq!(totals.iter().sum::<u64>(), named.len() as u64);
    named.iter().map(ToString::to_string).collect()
}

fn no_runs() -> LedgerHistory {
    LedgerHistory::new(LOADED_ROWS, Vec::new())
}

fn name(row: u64) -> String {
    format!("{} (row {row})", printable(&table().key(row)))
}

#[test]
fn right_rows_are_not_mentioned() {
    let rows: Vec<_> = (0..50).map(|number| row(&table(), number)).collect();
    assert_eq!(differences(&rows, &no_runs(), &[]), [""; 0]);
}

#[test]
fn nulls_and_short_values_are_named() {
    let mut one = row(&table(), 5);
    one[3] = None;
    one[4].as_mut().unwrap().truncate(40);
    assert_eq!(
        differences(&[one], &no_runs(), &[]),
        [
            format!(
                "{}: field3 is damaged from byte 40 on (60 bytes wrong in the value of the load)",
                name(5)
            ),
            format!("{}: field2 is null", name(5)),
        ]
    );
}

#[test]
fn a_swap_between_rows_names_both_and_where_each_value_comes_from() {
    let (mut one, mut two) = (row(&table(), 5), row(&table(), 6));
    std::mem::swap(&mut one[4], &mut two[4]);
    let mut expected = [
        format!("{}: field3 holds the value of {} field3", name(5), printable(&table().key(6))),
        format!("{}: field3 holds the value of {} field3", name(6), printable(&table().key(5))),
    ];
    let mut found = differences(&[one, two], &no_runs(), &[]);
    expected.sort();
    found.sort();
    assert_eq!(found, expected);
}

#[test]
fn a_swap_within_a_row_is_recognised() {
    let mut one = row(&table(), 5);
    one.swap(1, 10);
    let key = printable(&table().key(5));
    assert_eq!(
        differences(&[one], &no_runs(), &[]),
        [
            format!("{}: field0 holds the value of {key} field9", name(5)),
            format!("{}: field9 holds the value of {key} field0", name(5)),
        ]
    );
}

#[test]
fn strangers_are_named_by_their_keys() {
    let foreign = |key: Option<&[u8]>| {
        let mut row = row(&table(), 5);
        row[0] = key.map(<[u8]>::to_vec);
        row
    };
    let beyond = row(&table(), LOADED_ROWS);
    let found = differences(&[foreign(Some(b"user5\xff")), foreign(None), beyond], &no_runs(), &[]);
    assert_eq!(
        found,
        [
            "null: unknown row in usertable, not a key of this dataset".to_owned(),
            "user5\\xff: unknown row in usertable, not a key of this dataset".to_owned(),
            format!("{}: unknown row in usertable, no run wrote a row of this number", name(LOADED_ROWS)),
        ]
    );
}

#[test]
fn a_stranger_with_a_missing_rows_values_is_a_damaged_key() {
    let mut one = row(&table(), 5);
    one[0].as_mut().unwrap()[21] ^= 1;
    let found = differences(std::slice::from_ref(&one), &no_runs(), &[4, 5]);
    assert_eq!(found.len(), 2);
    assert_eq!(found[0], format!("{}: missing from usertable", name(4)));
    let right_key = printable(&table().key(5));
    assert!(found[1].ends_with(&format!(": damaged key in usertable; the values belong to {right_key}")));
}

#[test]
fn updates_of_known_runs_are_accepted_and_others_named() {
    let version = |run| Version::new(run, 1, 7);
    let mut one = row(&table(), 5);
    for (column, run) in [(2, 1), (3, 2)] {
        let mut value = [0; FIELD_BYTES];
        table().field(5, column, version(run), &mut value);
        one[column + 1] = Some(value.to_vec());
    }
    let writer = Writer { run_no: 1, spec: "{}".into(), finished: true, transactions: vec![9, 9] };
    let history = LedgerHistory::new(LOADED_ROWS, vec![writer]);
    let found = differences(&[one], &history, &[]);
    assert_eq!(
        found,
        [format!("{}: field3 holds run 2, session 1, write 7, which no known run made", name(5))]
    );
}

#[test]
fn a_table_full_of_damage_is_counted_and_named_up_to_the_limit() {
    let (table, names, history) = (table(), [TableName::local("usertable")], no_runs());
    let content = Content {
        table: &table,
        route: Route::new(0),
        loaded: LOADED_ROWS,
        history: &history,
        names: &names,
    };
    let mut parts: Vec<Findings> = Vec::new();
    for thread in 0..2 {
        let mut judge = RowJudge::new(content);
        for number in thread * 400..thread * 400 + 400 {
            let mut row = row(&table, number);
            row[1] = Some(vec![b'!'; FIELD_BYTES]);
            row[2].as_mut().unwrap()[50] = b'!';
            judge.judge(0, Fields::parse(&tuple(&row)).unwrap().unwrap()).unwrap();
        }
        parts.push(judge.findings);
    }
    let mut findings = Findings::default();
    parts.into_iter().for_each(|part| findings.merge(part));
    assert_eq!(findings.rows_found, 800);
    let (totals, named) = findings.into_named(&content);
    assert_eq!((totals[5], totals.iter().sum::<u64>()), (1600, 1600));
    assert_eq!(named.len(), NAMED_MAX);
}

#[test]
fn tuples_of_other_shapes_are_refused() {
    let (table, names, history) = (table(), [TableName::local("usertable")], no_runs());
    let content = Content {
        table: &table,
        route: Route::new(0),
        loaded: LOADED_ROWS,
        history: &history,
        names: &names,
    };
    let mut narrow = row(&table, 1);
    narrow.pop();
    let mut wide = row(&table, 1);
    wide.push(None);
    for row in [narrow, wide, Vec::new()] {
        let bytes = tuple(&row);
        let judged = RowJudge::new(content).judge(0, Fields::parse(&bytes).unwrap().unwrap());
        assert_eq!(judged.err(), Some(CopyError::Shape));
    }
}

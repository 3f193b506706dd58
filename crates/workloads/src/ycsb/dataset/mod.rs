//! The table as a dataset.
//!
//! Only `load` is named here, so that the unit tests of that crate can load this table, too: they compile this folder against themselves.

use std::ops::Range;
use std::sync::Arc;

use data::ycsb::{FIELD_BYTES, FIELD_COUNT, Judgement, KEY_BYTES, Spec, Version};
use engines::hash;
use load::dataset::{
    Buckets, Dataset, Encoder, Expected, Hashing, Numbers, Parameter, Placed, Placement, RowJudge, Table,
};
use load::history::{Expect, LedgerHistory, WriterHistory};
use load::ledger::Writer;
use load::route::{Route, key_hash};
use wire::copy::values::Tuples;

use self::rows::column_names;

mod judge;
mod rows;
mod sums;
mod sys;

pub use self::rows::RowMessage;

/// Its name on the command line and in the ledger.
pub const NAME: &str = "ycsb";

/// Its table.
pub const TABLE: &str = "usertable";

/// Bytes of the values of one row: the key and ten fields. What sizes and rates are counted in; the server adds headers and an
/// index to it.
pub const ROW_VALUE_BYTES: u64 = (KEY_BYTES + FIELD_COUNT * FIELD_BYTES) as u64;

/// How many rows have at least `value_bytes` bytes of values, one at least.
pub(super) fn rows_for_bytes(value_bytes: u64) -> u64 {
    value_bytes.div_ceil(ROW_VALUE_BYTES).max(1)
}

const FIELDS: [&str; FIELD_COUNT] =
    ["field0", "field1", "field2", "field3", "field4", "field5", "field6", "field7", "field8", "field9"];
const _: () = assert!(FIELD_BYTES == 100);

/// A table of so many rows.
#[derive(Clone, Debug)]
pub struct Ycsb {
    content: data::ycsb::Table,
    spec: Spec,
    tables: [Table; 1],
    /// What runs have written; `None`: it is not known, or there was no run.
    history: Option<Arc<dyn WriterHistory>>,
}

impl Ycsb {
    /// With this content.
    pub fn new(rows: u64, spec: Spec) -> Ycsb {
        // Not null from the start: the primary key would have to read every row to add it.
        let key = ("ycsb_key", "varchar(64) not null");
        let fields = FIELDS.map(|name| (name, "varchar(100)"));
        let table = Table {
            name: TABLE,
            rows,
            columns: std::iter::once(key).chain(fields).collect(),
            key: Some("ycsb_key"),
            named_by: None,
            index: None,
            placement: Placement::Hash { column: "ycsb_key", kind: "varchar" },
            mutable: &[],
            fillfactor: None,
        };
        Ycsb { content: data::ycsb::Table::new(spec.clone()), spec, tables: [table], history: None }
    }

    /// Whether a row should be there.
    fn expects(&self, row: u64) -> Expect {
        match &self.history {
            _ if row < self.tables[0].rows => Expect::Present,
            Some(history) => history.expects_row(row),
            None => Expect::Absent,
        }
    }
}

/// The key that hashes are tried with.
const PROBE_KEY: &[u8] = b"user000000000000000042";

impl Dataset for Ycsb {
    fn name(&self) -> &'static str {
        NAME
    }

    fn tables(&self) -> &[Table] {
        &self.tables
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn parameters(&self) -> Vec<Parameter> {
        let parameter = |what, flag, value| Parameter { what, flag, value };
        vec![
            parameter("rows", "--rows", self.tables[0].rows.to_string()),
            parameter("key order", "--key-order", self.spec.key_order.to_string()),
            parameter("compressibility", "--compressible", self.spec.compressible.to_string()),
        ]
    }

    fn row_bytes(&self) -> u64 {
        ROW_VALUE_BYTES
    }

    fn place(&self, rows: Range<u64>, placed: &mut Placed<'_>) {
        for row in rows {
            placed.push(0, key_hash(&self.content.key(row)), ROW_VALUE_BYTES);
        }
    }

    fn key(&self, row: u64) -> String {
        String::from_utf8_lossy(&self.content.key(row)).into_owned()
    }

    fn encoder(&self, message_bytes: usize) -> Box<dyn Encoder + Send + '_> {
        Box::new(FixedEncoder { content: &self.content, message: RowMessage::new(message_bytes) })
    }

    fn number(&self, _: usize, found: &[Option<&[u8]>]) -> Option<u64> {
        self.content.row_of_key((*found.first()?)?)
    }

    fn must_be(&self, _: usize, number: u64) -> bool {
        self.expects(number) == Expect::Present
    }

    fn may_be(&self, _: usize, number: u64) -> bool {
        self.expects(number) != Expect::Absent
    }

    fn numbers_end(&self, _: usize) -> u64 {
        self.history.as_ref().map_or(self.tables[0].rows, |history| history.rows_end())
    }

    fn partition_of(&self, _: usize, number: u64, partitions: u32) -> Option<u32> {
        let hash = |number| key_hash(&self.content.key(number));
        Some(if partitions > 1 { Route::new(partitions).leaf(hash(number)) } else { 0 })
    }

    fn hashing(&self) -> Option<Hashing> {
        let key_hash = hash::text_extended(PROBE_KEY, 0);
        Some(Hashing {
            key: "hashtextextended(ycsb_key, 0)".to_owned(),
            row: format!("hash_record_extended(row({}), hashtextextended(ycsb_key, 0))", column_names()),
            key_probe: ("select hashtextextended('user000000000000000042'::varchar, 0)", key_hash),
            row_probe: (
                "select hash_record_extended(row(k, 'abc'::varchar, 'xyz'::varchar), hashtextextended(k, 0))
                 from (select 'user000000000000000042'::varchar as k) as one",
                hash::text_record(PROBE_KEY, &[*b"abc", *b"xyz"], key_hash),
            ),
        })
    }

    fn key_hash(&self, _: usize, number: u64) -> u64 {
        hash::text_extended(&self.content.key(number), 0)
    }

    fn add_loaded(&self, _: usize, numbers: Range<u64>, buckets: &mut Buckets<'_>) {
        sys::add_loaded_rows(&self.content, numbers, buckets);
    }

    fn judge(&self, _: usize) -> Option<Box<dyn RowJudge + '_>> {
        Some(Box::new(judge::YcsbJudge::new(self)))
    }

    fn version(&self, _: usize, number: u64, column: usize, value: &[u8]) -> Option<Version> {
        match self.content.judge(number, column, value) {
            Judgement::Exact { version } => Some(version),
            Judgement::Damaged { .. } => None,
        }
    }

    fn is_named_by_key(&self) -> bool {
        true
    }

    fn is_read_after_runs(&self) -> bool {
        true
    }

    fn after(&self, history: Arc<dyn WriterHistory>) -> Option<Box<dyn Dataset>> {
        Some(Box::new(Ycsb { history: Some(history), ..self.clone() }))
    }

    fn after_writers(&self, writers: &[Writer]) -> Option<Box<dyn Dataset>> {
        if self.history.is_some() || writers.is_empty() {
            return None;
        }
        let history = LedgerHistory::new(self.tables[0].rows, writers.to_vec());
        self.after(Arc::new(history))
    }

    fn expect(&self, _: usize, number: u64, _: &[Option<&[u8]>], out: &mut Tuples) -> Expected {
        let mut fields = [[0; FIELD_BYTES]; FIELD_COUNT];
        self.content.row_fields(number, &mut fields);
        out.begin(FIELD_COUNT + 1);
        out.text(&self.content.key(number));
        fields.iter().for_each(|field| out.text(field));
        Expected::Loaded
    }
}

/// Rows that are all of one width.
struct FixedEncoder<'a> {
    content: &'a data::ycsb::Table,
    message: RowMessage,
}

impl Encoder for FixedEncoder<'_> {
    fn fill(&mut self, rows: &mut Numbers<'_>) {
        while !self.message.is_full()
            && let Some(row) = rows.next()
        {
            self.message.push(self.content, row);
        }
    }

    fn is_full(&self) -> bool {
        self.message.is_full()
    }

    fn is_empty(&self) -> bool {
        self.message.is_empty()
    }

    fn rows(&self) -> u64 {
        self.message.len() as u64
    }

    fn message(&mut self) -> &[u8] {
        self.message.message()
    }

    fn clear(&mut self) {
        self.message.clear();
    }

    fn reset(&mut self) {
        self.message.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_become_rows() {
        assert_eq!(ROW_VALUE_BYTES, 1022);
        assert_eq!(rows_for_bytes(0), 1);
        assert_eq!(rows_for_bytes(1022), 1);
        assert_eq!(rows_for_bytes(1023), 2);
        assert_eq!(rows_for_bytes(10_000_000_000), 9_784_736);
    }
}

//! What is loaded: a dataset defines its tables and their rows; loading them is the same code for all.
//!
//! # Rows have numbers
//!
//! All rows of a dataset are numbered from 0, table after table in the order of [`Dataset::tables`], unless the dataset has an order of its own
//! ([`Dataset::segments`]). A number may stand for no row, where their count varies ([`Placed::skip`]). A chunk is a range of these numbers, so
//! it may end in one table and begin in another. The [`Placement`] of a table chooses one of its leaves for a row; leaves are numbered through
//! all tables as well ([`Leaves`]), so that one number stands for one partition of one table. Everything else in this crate handles row numbers and leaf
//! numbers: dispatching, ledgers, resuming, moves of partitions, freezing leaf by leaf.
//!
//! # What the hot path pays
//!
//! Two calls are dynamic: [`Dataset::place`], once per chunk or block of rows, and [`Encoder::fill`], once per message of 256 kB. The loops
//! over rows are inside of them, in the dataset's own code, where its key and its columns are known. So the path is compiled once, and a row
//! costs what it costs in code that is written for one table.
//!
//! # What a dataset must keep
//!
//! Rows are pure functions of their number. A row that a run has changed shows it ([`Dataset::expect`]), or is judged by a history of
//! the runs ([`Dataset::judge`]). Values are encoded as the
//! server sends them in binary form: then the server's hash of a row can be computed here.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use data::{Spec, Version};
use wire::copy::values::Tuples;

use crate::error::LoadError;
use crate::history::WriterHistory;
use crate::ledger::Writer;
use crate::plan::{Chunks, PARTITIONS_MAX, names_of};

mod encoder;
mod judge;
mod leaves;
mod sums;

pub(crate) use judge::ByExpectation;
pub use judge::{Presence, RowJudge, Verdicts};
pub(crate) use sums::cell;
pub use sums::{Buckets, Hashing, Sum};

pub use encoder::{Encoder, MESSAGE_BYTES, Numbers, TupleEncoder};
pub(crate) use leaves::leaf_names;
pub use leaves::{Leaves, Placed, Placement, range_partition, table_names};
pub(crate) use leaves::{NO_LEAF, Span};

/// What a dataset is loaded into.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// One server.
    Alone,
    /// So many nodes that share the rows.
    Spread(usize),
    /// Nodes each of which holds all rows and takes writes.
    Copies,
}

/// A reference from one table to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ForeignKey {
    /// Whose rows refer.
    pub table: &'static str,
    /// The name of the constraint.
    pub name: &'static str,
    /// The referring columns.
    pub columns: &'static str,
    /// The table referred to, by its primary key.
    pub referred: &'static str,
}

/// A table of a dataset.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table {
    /// Its name.
    pub name: &'static str,
    /// Row numbers of the load, each of which stands for a row or for none; 0 for a table that only runs write into.
    pub rows: u64,
    /// Columns: name, and type with its constraints.
    pub columns: Vec<(&'static str, &'static str)>,
    /// Columns of the primary key, if there is one.
    pub key: Option<&'static str>,
    /// Columns that rows are named by where there is no key.
    pub named_by: Option<&'static str>,
    /// A further index: its name and columns.
    pub index: Option<(&'static str, &'static str)>,
    /// How rows are divided among partitions.
    pub placement: Placement,
    /// Columns that runs change. What else differs from the load is damage.
    pub mutable: &'static [&'static str],
    /// A fill factor in percent.
    pub fillfactor: Option<u32>,
}

impl Table {
    /// The names of its columns, with commas between.
    pub(crate) fn column_list(&self) -> String {
        self.columns.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
    }

    /// Whether PostgreSQL takes its key on the partitioned table: only with the column that it is partitioned by. Otherwise each leaf has a key of its own.
    pub(crate) fn key_of_parent(&self) -> Option<&'static str> {
        self.key.filter(|key| key.split(", ").any(|column| Some(column) == self.placement.column()))
    }

    /// Whether it has partitions where a dataset has so many.
    pub(crate) fn is_divided(&self, partitions: u32) -> bool {
        partitions > 1 && self.placement != Placement::Whole
    }

    /// The names of its leaves in the order of their numbers: the table itself without partitions, else `usertable_p0` and so on.
    pub(crate) fn leaf_names(&self, partitions: u32) -> Vec<String> {
        names_of(self.name, if self.is_divided(partitions) { partitions } else { 0 })
    }
}

/// The value of a parameter that was not given, and of one that the dataset does not have.
pub const DEFAULT: &str = "default";
/// See [`DEFAULT`].
pub const OFF: &str = "off";

/// Something that a dataset was made with, for the ledger and for messages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parameter {
    /// What it is, in words; its name in the ledger.
    pub what: &'static str,
    /// The flag that sets it.
    pub flag: &'static str,
    /// Its value, as it is typed.
    pub value: String,
}

/// What a row that was found should be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expected {
    /// As it was loaded.
    Loaded,
    /// As a run left it that has changed or inserted it.
    Written,
    /// No load and no run makes such a row.
    NoRow,
}

/// What of a dataset can be proved when runs have written into its tables at places that no run has recorded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AfterRuns {
    /// Tables that no run changes.
    pub unchanged: Vec<usize>,
    /// What was verified, and why.
    pub note: &'static str,
    /// What cannot be judged.
    pub unjudged: &'static str,
}

/// A dataset: see the module.
pub trait Dataset: fmt::Debug + Send + Sync {
    /// Its name on the command line and in the ledger. There is one of a name per database.
    fn name(&self) -> &'static str;

    /// Its tables, in the order of their row numbers.
    fn tables(&self) -> &[Table];

    /// Seed, key order and compressibility.
    fn spec(&self) -> &Spec;

    /// What else its rows depend on: a load that continues must agree.
    fn parameters(&self) -> Vec<Parameter>;

    /// The same dataset, with the parameters that were not given as an earlier load recorded them; `None`: it has none such.
    fn as_recorded(&self, _: &BTreeMap<String, String>) -> Option<Box<dyn Dataset>> {
        None
    }

    /// Refuses a target that it cannot be loaded into with so many partitions, touching no server.
    fn check(&self, _: Target, _partitions: Option<u32>) -> Result<(), LoadError> {
        Ok(())
    }

    /// The most partitions of a table that have rows.
    fn partitions_max(&self) -> u32 {
        PARTITIONS_MAX
    }

    /// Foreign keys to add after the rows.
    fn foreign_keys(&self) -> &[ForeignKey] {
        &[]
    }

    /// Bytes of the values of one row, mean over all: the measure of chunks and rates.
    fn row_bytes(&self) -> u64;

    /// The chunks that suit its rows best, where no length is given; `None`: chunks of one length.
    fn chunks(&self) -> Option<Chunks> {
        None
    }

    /// What the ledger records as the first row of a chunk.
    fn first_row(&self, rows: &Range<u64>) -> u64 {
        rows.start
    }

    /// About how many rows so many numbers stand for, wherever they are.
    fn rows_in(&self, numbers: u64) -> u64 {
        let all = u128::from(self.numbers().max(1));
        u64::try_from(u128::from(numbers) * u128::from(self.rows()) / all).unwrap_or(u64::MAX)
    }

    /// How many rows these numbers stand for.
    fn count(&self, rows: Range<u64>) -> u64 {
        rows.end - rows.start
    }

    /// The tables of these numbers, in their order.
    fn segments(&self, rows: Range<u64>) -> Vec<(usize, Range<u64>)> {
        let mut first = 0;
        let of_table = |(number, table): (usize, &Table)| {
            let segment = rows.start.max(first)..rows.end.min(first + table.rows);
            first += table.rows;
            (!segment.is_empty()).then_some((number, segment))
        };
        self.tables().iter().enumerate().filter_map(of_table).collect()
    }

    /// Leaves into which rows of these numbers go, ascending; `None`: into any.
    fn leaves_of(&self, _: Range<u64>, _: Leaves) -> Option<Vec<u16>> {
        None
    }

    /// Passes to `placed` for each row: its table, the hash of its placement key as the server computes it, and the bytes of its values.
    fn place(&self, rows: Range<u64>, placed: &mut Placed<'_>);

    /// The placement key of a row as text.
    fn key(&self, row: u64) -> String;

    /// The condition in SQL that holds for the rows of one segment and no others that a load makes; `None`: only their keys show it.
    fn condition(&self, _table: usize, _segment: &Range<u64>) -> Option<String> {
        None
    }

    /// Whether [`Dataset::place`] gives the bytes of rows; else the encoder does.
    fn places_bytes(&self) -> bool {
        true
    }

    /// Something that encodes rows.
    fn encoder(&self, message_bytes: usize) -> Box<dyn Encoder + Send + '_>;

    /// The number of a row inside of its table, from the columns that were found, in binary form; `None` for rows that no load makes.
    fn number(&self, table: usize, found: &[Option<&[u8]>]) -> Option<u64>;

    /// The same number in SQL, of type bigint. Null and out of range for rows that no load makes. Not called where there are
    /// [cells](Dataset::cell).
    fn number_sql(&self, _table: usize) -> String {
        "0".to_owned()
    }

    /// The cell of a row in SQL, and how many numbers of a table a cell has; -1 for rows that no load makes. `None`: cells are ranges of
    /// [`Dataset::number_sql`].
    fn cell(&self, _table: usize) -> Option<(String, u64)> {
        None
    }

    /// Whether a row of this number of a table must be there: it was loaded, or a run has inserted it.
    fn must_be(&self, table: usize, number: u64) -> bool {
        number < self.tables()[table].rows
    }

    /// Whether a row of this number may be there.
    fn may_be(&self, _table: usize, _number: u64) -> bool {
        true
    }

    /// From this number of a table on no row must be there.
    fn numbers_end(&self, table: usize) -> u64 {
        self.tables()[table].rows
    }

    /// The partition that a row of this number belongs to; `None`: verification relies on the server's own check of partition bounds.
    fn partition_of(&self, _table: usize, _number: u64, _partitions: u32) -> Option<u32> {
        None
    }

    /// How keys and rows are hashed, where that differs from what is done for every dataset. Its cells are then buckets of keys.
    fn hashing(&self) -> Option<Hashing> {
        None
    }

    /// The hash of a key that [`Hashing::key`] computes on the server.
    fn key_hash(&self, _table: usize, _number: u64) -> u64 {
        0
    }

    /// Adds up the hashes of loaded rows as [`Hashing::row`] does on the server. Used only with [`Dataset::hashing`].
    fn add_loaded(&self, _table: usize, _numbers: Range<u64>, _buckets: &mut Buckets<'_>) {}

    /// Something that judges rows of a table; `None`: they are compared with [`Dataset::expect`].
    fn judge(&self, _table: usize) -> Option<Box<dyn RowJudge + '_>> {
        None
    }

    /// The write that a value of this column of a row comes from, where values say so themselves; columns are counted from the one behind the
    /// key. Values that have changed places are recognised by it.
    fn version(&self, _table: usize, _number: u64, _column: usize, _value: &[u8]) -> Option<Version> {
        None
    }

    /// Whether rows are named by the text of their first column, which is a key that gives the number of the row; else by a condition.
    fn is_named_by_key(&self) -> bool {
        false
    }

    /// Whether every row is read when runs have written into the tables, because only the values show whether an update was lost.
    fn is_read_after_runs(&self) -> bool {
        false
    }

    /// The same dataset as it is after what runs have written; `None`: values do not say which write they come from.
    fn after(&self, _: Arc<dyn WriterHistory>) -> Option<Box<dyn Dataset>> {
        None
    }

    /// The same dataset as it is after these runs of the ledger; `None`: they make no difference to what is expected, or are known already.
    fn after_writers(&self, _: &[Writer]) -> Option<Box<dyn Dataset>> {
        None
    }

    /// The numbers in the table of a segment of [`Dataset::segments`].
    fn numbers_of(&self, table: usize, segment: &Range<u64>) -> Range<u64> {
        let before: u64 = self.tables()[..table].iter().map(|table| table.rows).sum();
        segment.start - before..segment.end - before
    }

    /// Calls `each` with the rows of these numbers of a table, as they were loaded.
    fn each_loaded(&self, table: usize, numbers: Range<u64>, each: &mut dyn FnMut(u64, &Tuples)) {
        let mut out = Tuples::new(1 << 10);
        for number in numbers {
            out.clear();
            self.expect(table, number, &[], &mut out);
            each(number, &out);
        }
    }

    /// What can be proved when runs have written into its tables; `None`: everything.
    fn after_runs(&self) -> Option<AfterRuns> {
        None
    }

    /// Encodes the expected content of the row that these columns identify. `number` is what [`Dataset::number`] made of them.
    fn expect(&self, table: usize, number: u64, found: &[Option<&[u8]>], out: &mut Tuples) -> Expected;

    /// Judges a row whose values are those that [`Dataset::expect`] made of it, by what runs have written. Whether nothing is wrong with it.
    fn judge_written(
        &self,
        _table: usize,
        _number: u64,
        _found: &[Option<&[u8]>],
        _verdicts: &mut dyn Verdicts,
    ) -> bool {
        true
    }

    /// What must hold of the tables together, whatever runs have done.
    fn audit(&self, _: &mut dyn Auditor) -> Result<Audit, crate::verify::error::VerifyError> {
        Ok(Audit::default())
    }

    /// Row numbers of all tables.
    fn numbers(&self) -> u64 {
        self.tables().iter().map(|table| table.rows).sum()
    }

    /// Rows of all tables.
    fn rows(&self) -> u64 {
        self.numbers()
    }

    /// Rows of the tables that every node has whole.
    fn whole_rows(&self) -> u64 {
        let whole = self.tables().iter().filter(|table| table.placement == Placement::Whole);
        whole.map(|table| table.rows).sum()
    }
}

/// Runs the queries of a dataset's [`audit`](Dataset::audit).
pub trait Auditor {
    /// Runs a query for the leaves of one number on the node that has them, and adds up its one number over all leaves. `{name}` in the query stands
    /// for the leaf of the table of that name.
    ///
    /// # Errors
    /// When a server cannot answer.
    fn sum(&mut self, query: &str) -> Result<i128, crate::verify::error::VerifyError>;

    /// Runs a query for the leaves in the same way, and returns the numbers of all its rows from all leaves.
    ///
    /// # Errors
    /// When a server cannot answer.
    fn numbers(&mut self, query: &str) -> Result<Vec<i64>, crate::verify::error::VerifyError>;
}

/// A row that a run has inserted, and that is not there although its commit was acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LostInsert {
    /// Its table.
    pub table: usize,
    /// Its number in the table.
    pub number: u64,
    /// The write that inserted it.
    pub by: Version,
}

/// What an audit came to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Audit {
    /// Sentences about what was looked at and holds.
    pub kept: Vec<String>,
    /// What does not hold.
    pub broken: Vec<String>,
    /// What cannot be decided, and why.
    pub unknown: Vec<String>,
    /// Inserted rows that are missing, [`NAMED_MAX`](crate::difference::NAMED_MAX) of them at most.
    pub lost: Vec<LostInsert>,
    /// How many there are.
    pub lost_total: u64,
}

impl Audit {
    /// Counts an inserted row that is missing, and remembers it while there is room.
    pub fn lose(&mut self, row: LostInsert) {
        self.lost_total += 1;
        if self.lost.len() < crate::difference::NAMED_MAX {
            self.lost.push(row);
        }
    }
}

//! What is loaded: a dataset brings its tables and their rows; how they get into a target is the same for all.
//!
//! # Rows have numbers
//!
//! All rows of a dataset are numbered from 0, table after table in the order of [`Dataset::tables`]. A chunk is a range of these numbers, so
//! it may end in one table and begin in another. The placement key of a row chooses one of its table's leaves; leaves are numbered through
//! all tables as well ([`Leaves`]), so that one number says which table's which partition. Everything else in this crate handles row numbers and leaf
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
//! Rows are pure functions of their number. A row that a run has changed says so itself ([`Dataset::expect`]). Values are encoded as the
//! server sends them in binary form: then the server's hash of a row can be computed here.

use std::fmt;
use std::ops::Range;

use data::ycsb::Spec;
use wire::copy::values::Tuples;

/// A table of a dataset.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table {
    /// Its name.
    pub name: &'static str,
    /// Rows that are loaded; 0 for a table that only runs write into.
    pub rows: u64,
    /// Columns: name, and type with its constraints.
    pub columns: Vec<(&'static str, &'static str)>,
    /// Columns of the primary key, if there is one.
    pub key: Option<&'static str>,
    /// The column that rows are partitioned by, and its type.
    pub placement: (&'static str, &'static str),
    /// Columns that runs change. What else differs from the load is damage.
    pub mutable: &'static [&'static str],
    /// A fill factor in percent.
    pub fillfactor: Option<u32>,
}

impl Table {
    /// The names of its columns, with commas between.
    pub fn column_list(&self) -> String {
        self.columns.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
    }

    /// Whether PostgreSQL takes its key on the partitioned table: only with the column that it is partitioned by. Otherwise each leaf has a key of its own.
    pub fn key_of_parent(&self) -> Option<&'static str> {
        self.key.filter(|key| key.split(", ").any(|column| column == self.placement.0))
    }
}

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
    Stranger,
}

/// A dataset: see the module.
pub trait Dataset: fmt::Debug + Send + Sync {
    /// Its name on the command line and in the ledger. There is one of a name per database.
    fn name(&self) -> &'static str;

    /// Its tables, in the order of their row numbers.
    fn tables(&self) -> &[Table];

    /// Seed, key order and compressibility.
    fn spec(&self) -> &Spec;

    /// What else its rows depend on: whoever continues a load must agree.
    fn parameters(&self) -> Vec<Parameter>;

    /// Bytes of the values of one row, mean over all: what chunks are cut by and rates are told in.
    fn row_bytes(&self) -> u64;

    /// Tells `placed` of each row: its table, the hash of its placement key as the server computes it, and the bytes of its values.
    fn place(&self, rows: Range<u64>, placed: &mut Placed<'_>);

    /// The placement key of a row as text.
    fn key(&self, row: u64) -> String;

    /// Something that encodes rows.
    fn encoder(&self, message_bytes: usize) -> Box<dyn Encoder + Send + '_>;

    /// The number of a row inside of its table, from the columns that were found, in binary form; `None` for rows that no load makes.
    fn number(&self, table: usize, found: &[Option<&[u8]>]) -> Option<u64>;

    /// The same number in SQL, of type bigint. Null and out of range for rows that no load makes.
    fn number_sql(&self, table: usize) -> String;

    /// Encodes what a row should be that says by these columns which one it is. `number` is what [`Dataset::number`] made of them.
    fn expect(&self, table: usize, number: u64, found: &[Option<&[u8]>], out: &mut Tuples) -> Expected;

    /// What must hold of the tables together, whatever runs have done.
    fn audit(&self, _: &mut dyn Auditor) -> Result<Audit, crate::verify::VerifyError> {
        Ok(Audit::default())
    }

    /// Rows of all tables.
    fn rows(&self) -> u64 {
        self.tables().iter().map(|table| table.rows).sum()
    }
}

/// Answers what a dataset's [`audit`](Dataset::audit) asks.
pub trait Auditor {
    /// Runs a query for the leaves of one number on the node that has them, and adds up its one number over all leaves. `{name}` in the query stands
    /// for the leaf of the table of that name.
    ///
    /// # Errors
    /// When a server cannot answer.
    fn sum(&mut self, query: &str) -> Result<i128, crate::verify::VerifyError>;
}

/// What an audit came to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Audit {
    /// Sentences about what was looked at and holds.
    pub kept: Vec<String>,
    /// What does not hold.
    pub broken: Vec<String>,
    /// What cannot be told, and why.
    pub unknown: Vec<String>,
}

/// Rows of one table, on their way to the server.
pub trait Encoder {
    /// Takes rows from `rows` and encodes them, until the message is full or there are no more.
    fn fill(&mut self, rows: &mut Numbers<'_>);

    /// Whether it has to be sent before more can be encoded. Also true in the middle of a row that is longer than a message.
    fn is_full(&self) -> bool;

    /// Whether there is nothing to send.
    fn is_empty(&self) -> bool;

    /// Rows that end in the message.
    fn rows(&self) -> u64;

    /// The CopyData message.
    fn message(&mut self) -> &[u8];

    /// Starts the next message.
    fn clear(&mut self);

    /// Forgets everything, also the rest of a row.
    fn reset(&mut self);
}

/// Encodes rows that are shorter than a message, by a function that appends one of them.
#[derive(Debug)]
pub struct TupleEncoder<F> {
    tuples: Tuples,
    push: F,
}

impl<F: FnMut(u64, &mut Tuples)> TupleEncoder<F> {
    /// Of messages of about this length.
    pub fn new(message_bytes: usize, push: F) -> TupleEncoder<F> {
        TupleEncoder { tuples: Tuples::new(message_bytes), push }
    }
}

impl<F: FnMut(u64, &mut Tuples)> Encoder for TupleEncoder<F> {
    fn fill(&mut self, rows: &mut Numbers<'_>) {
        while !self.tuples.is_full()
            && let Some(row) = rows.next()
        {
            (self.push)(row, &mut self.tuples);
        }
    }

    fn is_full(&self) -> bool {
        self.tuples.is_full()
    }

    fn is_empty(&self) -> bool {
        self.tuples.is_empty()
    }

    fn rows(&self) -> u64 {
        self.tuples.len()
    }

    fn message(&mut self) -> &[u8] {
        self.tuples.message()
    }

    fn clear(&mut self) {
        self.tuples.clear();
    }

    fn reset(&mut self) {
        self.tuples.clear();
    }
}

/// Row numbers, ascending.
#[derive(Clone, Debug)]
pub struct Numbers<'a> {
    first: u64,
    at: u64,
    end: u64,
    /// Offsets from `first`; `None`: all of them, as they come.
    offsets: Option<&'a [u32]>,
}

impl<'a> Numbers<'a> {
    /// All numbers of a range.
    pub fn range(rows: Range<u64>) -> Numbers<'static> {
        Numbers { first: rows.start, at: 0, end: rows.end.saturating_sub(rows.start), offsets: None }
    }

    /// `first` plus each of the offsets, which ascend.
    pub fn picked(first: u64, offsets: &'a [u32]) -> Numbers<'a> {
        Numbers { first, at: 0, end: offsets.len() as u64, offsets: Some(offsets) }
    }

    /// How many are left.
    pub fn count_left(&self) -> u64 {
        self.end - self.at
    }
}

impl Iterator for Numbers<'_> {
    type Item = u64;

    #[inline]
    fn next(&mut self) -> Option<u64> {
        if self.at == self.end {
            return None;
        }
        let offset = match self.offsets {
            None => self.at,
            Some(offsets) => u64::from(offsets[self.at as usize]),
        };
        self.at += 1;
        Some(self.first + offset)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.count_left() as usize;
        (left, Some(left))
    }
}

/// The leaf tables of a dataset: of each table as many as it has partitions, or the table itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Leaves {
    tables: u32,
    partitions: u32,
}

impl Leaves {
    /// Of so many tables; 0 and 1 partitions are plain tables.
    pub fn new(tables: usize, partitions: u32) -> Leaves {
        Leaves { tables: tables as u32, partitions: partitions.max(1) }
    }

    /// How many there are.
    pub fn count(self) -> usize {
        (self.tables * self.partitions) as usize
    }

    /// Partitions of each table, 1 at least.
    pub fn partitions(self) -> u32 {
        self.partitions
    }

    /// The leaf of a row by its table and the hash of its placement key.
    #[inline]
    pub fn of(self, table: u32, key_hash: u64) -> u32 {
        if self.partitions == 1 {
            return table;
        }
        let key = engines::hash::partition_key([Some(key_hash)]);
        table * self.partitions + engines::hash::partition_remainder(key, self.partitions)
    }

    /// The table of a leaf.
    pub fn table(self, leaf: usize) -> usize {
        leaf / self.partitions as usize
    }

    /// The partition of a leaf in its table.
    pub fn partition(self, leaf: usize) -> u32 {
        (leaf % self.partitions as usize) as u32
    }
}

/// The names of all leaf tables, in the order of their numbers: the table itself without partitions, else `usertable_p0` and so on.
pub fn leaf_names(tables: &[Table], partitions: u32) -> Vec<String> {
    tables.iter().flat_map(|table| crate::plan::names_of(table.name, partitions)).collect()
}

/// All tables with this many partitions, each in front of its leaves.
pub fn table_names(tables: &[Table], partitions: u32) -> Vec<String> {
    let leaves =
        |name: &str| if partitions > 1 { crate::plan::names_of(name, partitions) } else { Vec::new() };
    tables.iter().flat_map(|table| std::iter::once(table.name.to_owned()).chain(leaves(table.name))).collect()
}

/// Takes down where the rows of a chunk go.
#[derive(Debug)]
pub struct Placed<'a> {
    pub(crate) leaves: Leaves,
    /// Leaf of each row, in row order; not kept where there is one leaf.
    pub(crate) leaf_of: &'a mut Vec<u16>,
    pub(crate) spans: &'a mut [Span],
}

/// What belongs to one leaf.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Span {
    /// Rows.
    pub(crate) count: u32,
    /// Sum of the hashes of their placement keys modulo 2^64.
    pub(crate) sum: u64,
    /// Bytes of their values.
    pub(crate) bytes: u64,
}

impl Placed<'_> {
    /// The next row.
    #[inline(always)]
    pub fn push(&mut self, table: u32, key_hash: u64, bytes: u64) {
        let leaf = self.leaves.of(table, key_hash);
        let span = &mut self.spans[leaf as usize];
        span.count += 1;
        span.sum = span.sum.wrapping_add(key_hash);
        span.bytes += bytes;
        if self.spans.len() > 1 {
            self.leaf_of.push(leaf as u16);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_a_range_or_picked() {
        assert_eq!(Numbers::range(5..8).collect::<Vec<_>>(), [5, 6, 7]);
        let mut picked = Numbers::picked(100, &[0, 4, 9]);
        assert_eq!((picked.next(), picked.count_left()), (Some(100), 2));
        assert_eq!(picked.collect::<Vec<_>>(), [104, 109]);
        assert_eq!(Numbers::range(5..5).next(), None);
    }

    #[test]
    fn leaves_are_numbered_through_all_tables() {
        let leaves = Leaves::new(3, 4);
        assert_eq!(leaves.count(), 12);
        for table in 0..3 {
            for hash in 0..100 {
                let leaf = leaves.of(table, hash) as usize;
                assert_eq!((leaves.table(leaf) as u32, leaves.partition(leaf) < 4), (table, true));
            }
        }
        assert_eq!((Leaves::new(3, 0).count(), Leaves::new(3, 1).of(2, 99)), (3, 2));
    }
}

//! TPC-C's nine tables, and behind them those of suppliers, nations and regions.
//!
//! Rows, leaves and chunks of TPC-C have the numbers that `load tpcc` gives them; the other three tables are one more chunk, and complete on every
//! node as the items are.

use std::collections::BTreeMap;
use std::ops::Range;

use data::ycsb::Spec;
use engines::hash;
use load::LoadError;
use load::dataset::{
    AfterRuns, Dataset, Encoder, Expected, ForeignKey, Leaves, Parameter, Placed, Table, Target, TupleEncoder,
};
use load::plan::Chunks;
use wire::copy::values::Tuples;

use super::content::{ALL, FOREIGN_KEYS, Own};
use crate::dataset::{Flags, Registration, Request, Size};
use crate::tpcc::Tpcc;

/// Its name in the ledger.
pub(super) const NAME: &str = "chbench";

/// What the command knows of it.
pub const DATASET: Registration = Registration {
    name: NAME,
    about: "the tables of TPC-C with suppliers, nations and regions",
    size: Size::Scale,
    takes: crate::tpcc::DATASET.takes,
    flags: &[],
    example: "pgfathom load chbench -s 10 DBNAME",
    examples: &[],
    scale_unit: Some("warehouses"),
    build,
    recorded,
    replay: None,
};

fn build(request: &Request) -> Result<Box<dyn Dataset>, LoadError> {
    Ok(Box::new(ChBenchTables::new(Tpcc::requested(request)?)))
}

fn recorded(spec: &Spec, flags: &Flags) -> Option<Box<dyn Dataset>> {
    Some(Box::new(ChBenchTables::new(Tpcc::recorded(spec, flags)?)))
}

/// The names of the tables beside those of TPC-C.
pub(super) fn own_names() -> impl Iterator<Item = &'static str> {
    ALL.into_iter().map(|own| own.table().name)
}

/// The tables of so many warehouses.
#[derive(Clone, Debug)]
pub struct ChBenchTables {
    tpcc: Tpcc,
    tables: Vec<Table>,
    foreign_keys: Vec<ForeignKey>,
}

impl ChBenchTables {
    /// Beside these tables of TPC-C.
    pub fn new(tpcc: Tpcc) -> ChBenchTables {
        let mut foreign_keys = tpcc.foreign_keys().to_vec();
        if !foreign_keys.is_empty() {
            foreign_keys.extend(FOREIGN_KEYS);
        }
        let tables = tpcc.tables().iter().cloned().chain(ALL.map(Own::table)).collect();
        ChBenchTables { tpcc, tables, foreign_keys }
    }

    /// The part of row numbers that are TPC-C's.
    fn theirs(&self, rows: &Range<u64>) -> Range<u64> {
        let end = self.tpcc.numbers();
        rows.start.min(end)..rows.end.min(end)
    }

    /// The other part: tables, each with the numbers in it.
    fn own(&self, rows: &Range<u64>) -> impl Iterator<Item = (usize, Own, Range<u64>)> + use<> {
        let rows = rows.clone();
        let mut first = self.tpcc.numbers();
        let before = self.tpcc.tables().len();
        ALL.into_iter().enumerate().filter_map(move |(at, own)| {
            let range =
                rows.start.clamp(first, first + own.rows())..rows.end.clamp(first, first + own.rows());
            let numbers = range.start - first..range.end - first;
            first += own.rows();
            (!numbers.is_empty()).then_some((before + at, own, numbers))
        })
    }

    /// The table of this number, if it is not one of TPC-C.
    fn own_table(&self, table: usize) -> Option<Own> {
        table.checked_sub(self.tpcc.tables().len()).map(|at| ALL[at])
    }

    /// The number of the first row of a table that is not one of TPC-C.
    fn first_of(&self, own: Own) -> u64 {
        let before = ALL.into_iter().take_while(|other| *other != own);
        self.tpcc.numbers() + before.map(Own::rows).sum::<u64>()
    }
}

impl Dataset for ChBenchTables {
    fn name(&self) -> &'static str {
        NAME
    }

    fn tables(&self) -> &[Table] {
        &self.tables
    }

    fn spec(&self) -> &Spec {
        self.tpcc.spec()
    }

    fn parameters(&self) -> Vec<Parameter> {
        self.tpcc.parameters()
    }

    fn as_recorded(&self, recorded: &BTreeMap<String, String>) -> Option<Box<dyn Dataset>> {
        Some(Box::new(ChBenchTables::new(self.tpcc.with_recorded(recorded))))
    }

    fn check(&self, target: Target, partitions: Option<u32>) -> Result<(), LoadError> {
        self.tpcc.check(target, partitions)
    }

    fn partitions_max(&self) -> u32 {
        self.tpcc.partitions_max()
    }

    fn foreign_keys(&self) -> &[ForeignKey] {
        &self.foreign_keys
    }

    fn row_bytes(&self) -> u64 {
        self.tpcc.row_bytes()
    }

    fn chunks(&self) -> Option<Chunks> {
        let own: u64 = ALL.into_iter().map(Own::rows).sum();
        Some(Chunks::of_runs(self.tpcc.runs_of_chunks().into_iter().chain([(own, own)])))
    }

    fn first_row(&self, rows: &Range<u64>) -> u64 {
        if rows.start < self.tpcc.numbers() { self.tpcc.first_row(rows) } else { rows.start }
    }

    fn count(&self, rows: Range<u64>) -> u64 {
        let own: u64 = self.own(&rows).map(|(_, _, numbers)| numbers.end - numbers.start).sum();
        self.tpcc.count(self.theirs(&rows)) + own
    }

    fn segments(&self, rows: Range<u64>) -> Vec<(usize, Range<u64>)> {
        let mut segments = self.tpcc.segments(self.theirs(&rows));
        segments.extend(self.own(&rows).map(|(table, own, numbers)| {
            let first = self.first_of(own);
            (table, first + numbers.start..first + numbers.end)
        }));
        segments
    }

    fn leaves_of(&self, rows: Range<u64>, leaves: Leaves) -> Option<Vec<u16>> {
        let mut found = self.tpcc.leaves_of(self.theirs(&rows), leaves)?;
        found.extend(self.own(&rows).map(|(table, ..)| leaves.at(table as u32, 0) as u16));
        found.sort_unstable();
        Some(found)
    }

    fn place(&self, rows: Range<u64>, placed: &mut Placed<'_>) {
        self.tpcc.place(self.theirs(&rows), placed);
        for (table, _, numbers) in self.own(&rows) {
            let leaf = placed.leaves().at(table as u32, 0);
            numbers
                .for_each(|number| placed.push_at(leaf, hash::int8_extended(number as i64, table as u64), 0));
        }
    }

    fn key(&self, row: u64) -> String {
        match self.own(&(row..row + 1)).next() {
            Some((_, own, numbers)) => own.key(numbers.start).to_string(),
            None => self.tpcc.key(row),
        }
    }

    fn condition(&self, table: usize, segment: &Range<u64>) -> Option<String> {
        let Some(own) = self.own_table(table) else { return self.tpcc.condition(table, segment) };
        let keys: Vec<String> =
            self.numbers_of(table, segment).map(|number| own.key(number).to_string()).collect();
        Some(format!("{} = any ('{{{}}}'::int[])", self.tables[table].columns[0].0, keys.join(",")))
    }

    fn places_bytes(&self) -> bool {
        false
    }

    fn encoder(&self, message_bytes: usize) -> Box<dyn Encoder + Send + '_> {
        let (mut theirs, seed) = (self.tpcc.maker(), self.spec().seed);
        let end = self.tpcc.numbers();
        let push = move |row: u64, out: &mut Tuples| {
            if row < end {
                return theirs(row, out);
            }
            for (_, own, numbers) in self.own(&(row..row + 1)) {
                own.push(seed, numbers.start, out);
            }
        };
        Box::new(TupleEncoder::new(message_bytes, push).telling_bytes())
    }

    fn number(&self, table: usize, found: &[Option<&[u8]>]) -> Option<u64> {
        let Some(own) = self.own_table(table) else { return self.tpcc.number(table, found) };
        own.number(i32::from_be_bytes((*found.first()?)?.try_into().ok()?))
    }

    fn must_be(&self, table: usize, number: u64) -> bool {
        self.own_table(table).map_or_else(|| self.tpcc.must_be(table, number), |own| number < own.rows())
    }

    fn cell(&self, table: usize) -> Option<(String, u64)> {
        self.own_table(table).map_or_else(|| self.tpcc.cell(table), |own| Some(("0".to_owned(), own.rows())))
    }

    fn numbers_of(&self, table: usize, segment: &Range<u64>) -> Range<u64> {
        let Some(own) = self.own_table(table) else { return self.tpcc.numbers_of(table, segment) };
        let first = self.first_of(own);
        segment.start - first..segment.end - first
    }

    fn each_loaded(&self, table: usize, numbers: Range<u64>, each: &mut dyn FnMut(u64, &Tuples)) {
        let Some(own) = self.own_table(table) else { return self.tpcc.each_loaded(table, numbers, each) };
        let mut out = Tuples::new(1 << 10);
        for number in numbers {
            out.clear();
            own.push(self.spec().seed, number, &mut out);
            each(number, &out);
        }
    }

    fn expect(&self, table: usize, number: u64, found: &[Option<&[u8]>], out: &mut Tuples) -> Expected {
        let Some(own) = self.own_table(table) else { return self.tpcc.expect(table, number, found, out) };
        own.push(self.spec().seed, number, out);
        Expected::Loaded
    }

    fn after_runs(&self) -> Option<AfterRuns> {
        let mut after = self.tpcc.after_runs()?;
        after.unchanged.extend(self.tpcc.tables().len()..self.tables.len());
        Some(AfterRuns {
            note: "only item, region, nation and supplier were verified, because no transaction changes them; prove tpcc checks the consistency conditions",
            unjudged: "runs have changed all tables but item, region, nation and supplier",
            ..after
        })
    }

    fn rows(&self) -> u64 {
        self.tpcc.rows() + ALL.into_iter().map(Own::rows).sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use load::route::Buckets;

    fn dataset() -> ChBenchTables {
        ChBenchTables::new(Tpcc::new(2, 3, false, None))
    }

    #[test]
    fn rows_of_tpcc_have_their_numbers_and_the_others_follow() {
        let dataset = dataset();
        let tpcc = Tpcc::new(2, 3, false, None);
        let end = tpcc.numbers();
        assert!(dataset.rows() < dataset.numbers(), "an order has 5 to 15 lines of 16 numbers");
        assert_eq!(dataset.rows_in(dataset.numbers()), dataset.rows(), "progress counts rows");
        assert_eq!(dataset.numbers(), end + 10_067);
        let chunks = dataset.chunks().expect("chunks");
        assert_eq!((chunks.rows(), chunks.count()), (dataset.numbers(), 8));
        assert_eq!(chunks.range(7), end..end + 10_067);
        let segments = dataset.segments(end - 3..end + 70);
        assert_eq!(
            segments[segments.len() - 3..],
            [(9, end..end + 5), (10, end + 5..end + 67), (11, end + 67..end + 70)]
        );
        assert_eq!(dataset.numbers_of(11, &(end + 67..end + 70)), 0..3);
        assert_eq!(dataset.count(end - 3..end + 70), 3 + 70);
        assert_eq!(
            dataset.condition(10, &(end + 15..end + 17)).as_deref(),
            Some("n_nationkey = any ('{65,66}'::int[])")
        );
        assert_eq!(dataset.rows(), tpcc.rows() + 10_067);
    }

    #[test]
    fn every_row_goes_into_a_leaf_of_its_table() {
        let dataset = dataset();
        for partitions in [0, 2] {
            let leaves = Leaves::of_tables(dataset.tables(), partitions);
            let mut buckets = Buckets::new(leaves);
            let rows = dataset.tpcc.numbers() - 10..dataset.numbers();
            buckets.fill(&dataset, rows.clone());
            let filled: Vec<u16> =
                (0..leaves.count() as u16).filter(|leaf| !buckets.is_empty(usize::from(*leaf))).collect();
            assert_eq!(dataset.leaves_of(rows.clone(), leaves), Some(filled.clone()));
            let lengths = |table: usize| -> u64 {
                (0..leaves.count())
                    .filter(|leaf| leaves.table(*leaf) == table)
                    .map(|leaf| buckets.len(leaf))
                    .sum()
            };
            assert_eq!([9, 10, 11].map(lengths), [5, 62, 10_000]);
        }
    }
}

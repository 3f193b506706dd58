//! The nine tables as a dataset.
//!
//! # Numbers
//!
//! Rows are numbered in the order in which they are loaded: groups of tables, and in each of them warehouse after warehouse. A chunk is a
//! warehouse's rows of one group, so a small number of warehouses still feeds several streams, and a kill repeats seconds of work.
//!
//! | chunk | group | tables |
//! |---|---|---|
//! | 0 | items | item |
//! | 1 ..= W | orders | orders, new_order, order_line |
//! | W+1 ..= 2W | stock | stock |
//! | 2W+1 ..= 3W | customers | warehouse, district, customer, history |
//!
//! An order has 5 to 15 lines, and its lines have 16 numbers: so the number of a line follows from its key alone, and numbers behind the last
//! line stand for no row.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::OnceLock;

use data::tpcc::{ITEMS, Population, Table, WAREHOUSES_MAX};
use data::ycsb::{Compressible, KeyOrder, Spec};
use load::LoadError;
use load::dataset::{
    self, AfterRuns, DEFAULT, Dataset, Encoder, Expected, ForeignKey, Leaves, OFF, Parameter, Placed, Target,
    TupleEncoder, range_partition,
};
use load::plan::{Chunks, PARTITIONS_MAX};
use record::number::counted;
use wire::copy::values::Tuples;

use super::rows::{self, LINE_NUMBERS, Maker, Place, numbers};
use super::schema::{self, FOREIGN_KEYS, IN_ORDER, TPCC};
use crate::dataset::{Flags, Registration, Request, Size};

/// What the command knows of it.
pub const DATASET: Registration = Registration {
    name: TPCC,
    about: "the nine tables of TPC-C, about 100 MB for each warehouse of -s",
    size: Size::Scale,
    takes: &["--fillfactor", "--foreign-keys"],
    flags: &[],
    example: "load tpcc is sized by warehouses, about 100 MB each: pgfathom load tpcc -s 10 DBNAME",
    examples: &["tpcc -s 10 DBNAME"],
    scale_unit: Some("warehouses, about 100 MB each"),
    build,
    recorded,
    replay: None,
};

/// Tables whose rows of one warehouse are loaded together, in the order of their numbers.
const GROUPS: [&[Table]; 4] = [
    &[Table::Item],
    &[Table::Orders, Table::NewOrder, Table::OrderLine],
    &[Table::Stock],
    &[Table::Warehouse, Table::District, Table::Customer, Table::History],
];

/// Bytes of the values of a warehouse, as measured, and of the items.
const WAREHOUSE_BYTES: u64 = 70_130_000;
const ITEMS_BYTES: u64 = 7_500_000;
/// Rows of a warehouse, mean: orders have ten lines.
const WAREHOUSE_ROWS: u64 = 499_011;

/// Row numbers of a warehouse in a group.
fn length(group: &[Table]) -> u64 {
    group.iter().map(|table| u64::from(numbers(*table))).sum()
}

/// So many warehouses.
#[derive(Clone, Debug)]
pub struct Tpcc {
    warehouses: u32,
    foreign_keys: bool,
    fillfactor: Option<u32>,
    spec: Spec,
    population: Population,
    tables: Vec<dataset::Table>,
    /// Counted on request: it reads every order.
    rows: OnceLock<u64>,
}

/// Rows of one table and warehouse whose numbers follow each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stretch {
    table: Table,
    /// 0 for the items.
    w_id: u32,
    /// Row number of the first of them, and of the one behind the last.
    first: u64,
    end: u64,
}

impl Stretch {
    /// The place of a row number in it.
    fn place(&self, row: u64) -> Place {
        Place { w_id: self.w_id, number: (row - self.first) as u32 }
    }
}

impl Tpcc {
    /// With the fill factor of the tables that transactions update (`None`: the server's default), and foreign keys or not.
    pub fn new(warehouses: u32, seed: u64, foreign_keys: bool, fillfactor: Option<u32>) -> Tpcc {
        Tpcc {
            warehouses,
            foreign_keys,
            fillfactor,
            spec: Spec { seed, key_order: KeyOrder::Sequential, compressible: Compressible::NONE },
            population: Population::new(seed),
            tables: schema::tables(warehouses, fillfactor),
            rows: OnceLock::new(),
        }
    }

    /// As the user wants it.
    pub(crate) fn requested(request: &Request) -> Result<Tpcc, LoadError> {
        let refuse = |problem: String, hint: String| LoadError::Option { flag: "-s/--scale", problem, hint };
        let scale = request.scale.unwrap_or_default();
        let Ok(warehouses) = u32::try_from(scale) else {
            return Err(refuse("the number is too large".to_owned(), "give a smaller number".to_owned()));
        };
        if warehouses == 0 || warehouses > WAREHOUSES_MAX {
            return Err(refuse(
                format!("{warehouses} warehouses are not possible"),
                format!("give 1 to {WAREHOUSES_MAX}; each takes about 100 MB"),
            ));
        }
        Ok(Tpcc::new(warehouses, request.seed, request.foreign_keys, request.fillfactor))
    }

    /// As the ledger has it.
    pub(crate) fn recorded(spec: &Spec, flags: &Flags) -> Option<Tpcc> {
        let warehouses = super::found::warehouses(flags)?;
        let foreign_keys = super::found::has_foreign_keys(flags);
        Some(Tpcc::new(warehouses, spec.seed, foreign_keys, super::found::fillfactor(flags)))
    }

    /// The same with what was not requested as an earlier load recorded it.
    pub(crate) fn with_recorded(&self, recorded: &Flags) -> Tpcc {
        let foreign_keys = self.foreign_keys || super::found::has_foreign_keys(recorded);
        let fillfactor = self.fillfactor.or_else(|| super::found::fillfactor(recorded));
        Tpcc::new(self.warehouses, self.spec.seed, foreign_keys, fillfactor)
    }

    /// Runs of chunks: row numbers, and the length of a chunk of them.
    pub(crate) fn runs_of_chunks(&self) -> [(u64, u64); GROUPS.len()] {
        GROUPS.map(|group| (self.copies(group) * length(group), length(group)))
    }

    /// Something that appends the row of a number.
    pub(crate) fn maker(&self) -> impl FnMut(u64, &mut Tuples) + Send + '_ {
        let mut maker = Maker::new(&self.population);
        let mut stretch = self.stretch(0);
        move |row: u64, out: &mut Tuples| {
            if !(stretch.first..stretch.end).contains(&row) {
                stretch = self.stretch(row);
            }
            maker.push(stretch.table, stretch.place(row), out);
        }
    }

    /// How many warehouses a group has rows of.
    fn copies(&self, group: &[Table]) -> u64 {
        if group == GROUPS[0] { 1 } else { self.warehouses.into() }
    }

    /// Where a row number is.
    fn stretch(&self, row: u64) -> Stretch {
        let mut first = 0;
        for group in GROUPS {
            let (length, copies) = (length(group), self.copies(group));
            if row < first + copies * length || group == GROUPS[GROUPS.len() - 1] {
                let warehouse = (row - first) / length;
                first += warehouse * length;
                for &table in group {
                    let end = first + u64::from(numbers(table));
                    if row < end {
                        let w_id = if table == Table::Item { 0 } else { warehouse as u32 + 1 };
                        return Stretch { table, w_id, first, end };
                    }
                    first = end;
                }
            }
            first += copies * length;
        }
        unreachable!("row {row} of {}", self.numbers())
    }

    /// The stretches of a range of row numbers, each with what of it is in the range.
    fn stretches(&self, rows: Range<u64>) -> impl Iterator<Item = (Stretch, Range<u64>)> {
        let mut at = rows.start;
        std::iter::from_fn(move || {
            let stretch = (at < rows.end).then(|| self.stretch(at))?;
            let part = at..rows.end.min(stretch.end);
            at = stretch.end;
            Some((stretch, part))
        })
    }

    /// The leaf that the rows of a stretch go into.
    fn leaf(&self, stretch: &Stretch, leaves: Leaves) -> u32 {
        let partition = match stretch.w_id.checked_sub(1) {
            Some(offset) => range_partition(offset, self.warehouses, leaves.partitions()),
            None => 0,
        };
        leaves.at(schema::place_of(stretch.table) as u32, partition)
    }

    /// The place of a row by its number in its table.
    fn place_in(&self, table: Table, number: u64) -> Place {
        let per_warehouse = u64::from(numbers(table));
        let w_id = if table == Table::Item { 0 } else { (number / per_warehouse) as u32 + 1 };
        Place { w_id, number: (number % per_warehouse) as u32 }
    }
}

fn number_in(table: Table, place: Place) -> u64 {
    u64::from(place.w_id.saturating_sub(1)) * u64::from(numbers(table)) + u64::from(place.number)
}

fn build(request: &Request) -> Result<Box<dyn Dataset>, LoadError> {
    Ok(Box::new(Tpcc::requested(request)?))
}

fn recorded(spec: &Spec, flags: &Flags) -> Option<Box<dyn Dataset>> {
    Some(Box::new(Tpcc::recorded(spec, flags)?))
}

impl Dataset for Tpcc {
    fn name(&self) -> &'static str {
        TPCC
    }

    fn tables(&self) -> &[dataset::Table] {
        &self.tables
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn parameters(&self) -> Vec<Parameter> {
        let fillfactor = self.fillfactor.map_or(DEFAULT.to_owned(), |percent| percent.to_string());
        let foreign_keys = if self.foreign_keys { "on" } else { OFF };
        vec![
            Parameter { what: "scale", flag: "--scale", value: self.warehouses.to_string() },
            Parameter { what: "fill factor", flag: "--fillfactor", value: fillfactor },
            Parameter { what: "foreign keys", flag: "--foreign-keys", value: foreign_keys.to_owned() },
        ]
    }

    fn as_recorded(&self, recorded: &BTreeMap<String, String>) -> Option<Box<dyn Dataset>> {
        Some(Box::new(self.with_recorded(recorded)))
    }

    fn check(&self, target: Target, partitions: Option<u32>) -> Result<(), LoadError> {
        let warehouses = self.warehouses;
        let refused = |flag: &'static str, problem: String, hint: String| {
            Err(LoadError::Option { flag, problem, hint })
        };
        let most = self.partitions_max();
        let nodes = match target {
            Target::Alone | Target::Copies if partitions.is_some_and(|wanted| wanted > most) => {
                return refused(
                    "--partitions",
                    format!(
                        "{} cannot be in {} partitions",
                        counted(u64::from(warehouses), "warehouse"),
                        partitions.unwrap_or(0)
                    ),
                    format!("give at most {most}: a partition is a range of warehouses"),
                );
            }
            // Each node of a multimaster is filled as if it were alone.
            Target::Alone | Target::Copies => return Ok(()),
            Target::Spread(nodes) => nodes,
        };
        if self.foreign_keys {
            return refused(
                "--foreign-keys",
                "in PostgreSQL a foreign key cannot refer to rows of other nodes".to_owned(),
                "omit it; prove tpcc checks whether every reference exists".to_owned(),
            );
        }
        if (warehouses as usize) < nodes {
            return refused(
                "-s/--scale",
                format!("{warehouses} warehouses cannot be spread over {nodes} nodes"),
                format!("give at least {nodes}; every node gets the same number"),
            );
        }
        match partitions.filter(|wanted| (*wanted as usize) < nodes || *wanted > most) {
            None => Ok(()),
            Some(wanted) => refused(
                "--partitions",
                format!("{warehouses} warehouses on {nodes} nodes cannot be in {wanted} partitions"),
                format!("give {nodes} to {most}; a multiple of {nodes} spreads them evenly"),
            ),
        }
    }

    fn partitions_max(&self) -> u32 {
        self.warehouses.min(PARTITIONS_MAX)
    }

    fn foreign_keys(&self) -> &[ForeignKey] {
        if self.foreign_keys { &FOREIGN_KEYS } else { &[] }
    }

    fn row_bytes(&self) -> u64 {
        let warehouses = u64::from(self.warehouses);
        (warehouses * WAREHOUSE_BYTES + ITEMS_BYTES) / (warehouses * WAREHOUSE_ROWS + u64::from(ITEMS))
    }

    fn chunks(&self) -> Option<Chunks> {
        Some(Chunks::of_runs(self.runs_of_chunks()))
    }

    fn first_row(&self, rows: &Range<u64>) -> u64 {
        let first = self.stretch(rows.start);
        let group = GROUPS.into_iter().find(|group| group[0] == first.table);
        match group {
            // A chunk of a warehouse bears its number.
            Some(group) if (first.first, first.first + length(group)) == (rows.start, rows.end) => {
                first.w_id.into()
            }
            _ => rows.start,
        }
    }

    fn count(&self, rows: Range<u64>) -> u64 {
        let mut maker = Maker::new(&self.population);
        let mut count = |(stretch, part): (Stretch, Range<u64>)| match stretch.table {
            Table::OrderLine => {
                let mut lines = 0;
                each_order(&mut maker, &stretch, part, |numbers, end| {
                    lines += u64::from(numbers.end.min(end) - numbers.start.min(end));
                });
                lines
            }
            _ => part.end - part.start,
        };
        self.stretches(rows).map(&mut count).sum()
    }

    fn segments(&self, rows: Range<u64>) -> Vec<(usize, Range<u64>)> {
        self.stretches(rows).map(|(stretch, part)| (schema::place_of(stretch.table), part)).collect()
    }

    fn leaves_of(&self, rows: Range<u64>, leaves: Leaves) -> Option<Vec<u16>> {
        let mut found: Vec<u16> =
            self.stretches(rows).map(|(stretch, _)| self.leaf(&stretch, leaves) as u16).collect();
        found.sort_unstable();
        found.dedup();
        Some(found)
    }

    fn place(&self, rows: Range<u64>, placed: &mut Placed<'_>) {
        let mut maker = Maker::new(&self.population);
        for (stretch, part) in self.stretches(rows) {
            let leaf = self.leaf(&stretch, placed.leaves());
            let push = |row: u64| placed.push_at(leaf, stretch.place(row).hash(stretch.table), 0);
            if stretch.table != Table::OrderLine {
                part.for_each(push);
                continue;
            }
            each_order(&mut maker, &stretch, part, |numbers, end| {
                for number in numbers {
                    if number < end {
                        placed.push_at(leaf, Place { w_id: stretch.w_id, number }.hash(stretch.table), 0);
                    } else {
                        placed.skip();
                    }
                }
            });
        }
    }

    fn key(&self, row: u64) -> String {
        self.stretch(row).w_id.to_string()
    }

    fn condition(&self, _: usize, segment: &Range<u64>) -> Option<String> {
        let stretch = self.stretch(segment.start);
        let (first, end) = (segment.start - stretch.first, segment.end - stretch.first);
        let number = schema::number_sql(stretch.table);
        let of_warehouse = schema::warehouse_column(stretch.table)
            .map(|column| format!("{column} = {} and ", stretch.w_id))
            .unwrap_or_default();
        Some(format!("({of_warehouse}{number} >= {first} and {number} < {end})"))
    }

    fn places_bytes(&self) -> bool {
        false
    }

    fn encoder(&self, message_bytes: usize) -> Box<dyn Encoder + Send + '_> {
        Box::new(TupleEncoder::new(message_bytes, self.maker()).telling_bytes())
    }

    fn number(&self, table: usize, found: &[Option<&[u8]>]) -> Option<u64> {
        let table = IN_ORDER[table];
        rows::place(table, self.warehouses, found).map(|place| number_in(table, place))
    }

    fn must_be(&self, table: usize, number: u64) -> bool {
        let is_line = |table| {
            let Place { w_id, number } = self.place_in(table, number);
            number % LINE_NUMBERS < Maker::new(&self.population).lines(w_id, number)
        };
        number < self.tables[table].rows && (IN_ORDER[table] != Table::OrderLine || is_line(IN_ORDER[table]))
    }

    fn cell(&self, table: usize) -> Option<(String, u64)> {
        let table = IN_ORDER[table];
        let sql = match schema::warehouse_column(table) {
            None => "0".to_owned(),
            Some(column) => {
                format!("case when {column} between 1 and {} then {column} - 1 else -1 end", self.warehouses)
            }
        };
        Some((sql, numbers(table).into()))
    }

    fn numbers_of(&self, _: usize, segment: &Range<u64>) -> Range<u64> {
        let stretch = self.stretch(segment.start);
        let first = number_in(stretch.table, stretch.place(segment.start));
        first..first + (segment.end - segment.start)
    }

    fn expect(&self, table: usize, number: u64, _: &[Option<&[u8]>], out: &mut Tuples) -> Expected {
        let table = IN_ORDER[table];
        match Maker::new(&self.population).push(table, self.place_in(table, number), out) {
            true => Expected::Loaded,
            false => Expected::NoRow,
        }
    }

    fn each_loaded(&self, table: usize, numbers: Range<u64>, each: &mut dyn FnMut(u64, &Tuples)) {
        let (table, mut maker) = (IN_ORDER[table], Maker::new(&self.population));
        let mut out = Tuples::new(1 << 10);
        for number in numbers {
            out.clear();
            if maker.push(table, self.place_in(table, number), &mut out) {
                each(number, &out);
            }
        }
    }

    fn after_runs(&self) -> Option<AfterRuns> {
        Some(AfterRuns {
            unchanged: vec![schema::place_of(Table::Item)],
            note: "only item was verified, because no transaction changes it; prove tpcc checks the consistency conditions",
            unjudged: "runs have changed all tables but item",
        })
    }

    fn rows(&self) -> u64 {
        *self.rows.get_or_init(|| self.population.rows(self.warehouses))
    }
}

/// Calls `each` for each order of some line numbers of a warehouse: its numbers, and the end of those that stand for lines.
fn each_order(
    maker: &mut Maker<'_>,
    stretch: &Stretch,
    rows: Range<u64>,
    mut each: impl FnMut(Range<u32>, u32),
) {
    let (mut at, end) = ((rows.start - stretch.first) as u32, (rows.end - stretch.first) as u32);
    while at < end {
        let first = at - at % LINE_NUMBERS;
        each(at..end.min(first + LINE_NUMBERS), first + maker.lines(stretch.w_id, at));
        at = first + LINE_NUMBERS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use load::route::Buckets;

    #[test]
    fn chunks_cover_every_row_once() {
        for warehouses in [1, 2, 7] {
            let tpcc = Tpcc::new(warehouses, 9, false, None);
            let chunks = tpcc.chunks().expect("chunks of warehouses");
            assert_eq!(chunks.count(), 1 + 3 * u64::from(warehouses));
            assert_eq!(chunks.rows(), tpcc.numbers());
            let mut counted = 0;
            for chunk in 0..chunks.count() {
                let rows = chunks.range(chunk);
                let w_id = if chunk == 0 { 0 } else { 1 + (chunk - 1) % u64::from(warehouses) };
                assert_eq!(tpcc.first_row(&rows), w_id, "chunk {chunk}");
                counted += tpcc.count(rows);
            }
            assert_eq!(counted, tpcc.rows());
        }
        let many = Tpcc::new(WAREHOUSES_MAX, 1, false, None).chunks().expect("chunks of warehouses");
        assert!(many.count() < load::plan::CHUNKS_MAX && many.rows() < load::plan::ROWS_MAX);
        assert!(many.range(1).count() as u64 <= load::plan::CHUNK_ROWS_MAX);
    }

    #[test]
    fn every_row_is_placed_once_and_found_again() {
        let tpcc = Tpcc::new(5, 3, false, None);
        for partitions in [0, 3] {
            let leaves = Leaves::of_tables(tpcc.tables(), partitions);
            let mut buckets = Buckets::new(leaves);
            // Pieces that begin and end inside of an order.
            let (mut first, mut seen) = (0, vec![0u64; tpcc.tables().len()]);
            while first < tpcc.numbers() {
                let rows = first..tpcc.numbers().min(first + 999_983);
                buckets.fill(&tpcc, rows.clone());
                let touched = tpcc.leaves_of(rows.clone(), leaves).expect("leaves");
                let mut placed = 0;
                for leaf in 0..leaves.count() {
                    assert!(buckets.is_empty(leaf) || touched.contains(&(leaf as u16)), "leaf {leaf}");
                    for row in buckets.rows(leaf).step_by(1_009) {
                        let stretch = tpcc.stretch(row);
                        assert_eq!(schema::place_of(stretch.table), leaves.table(leaf));
                        let number = number_in(stretch.table, stretch.place(row));
                        assert_eq!(tpcc.place_in(stretch.table, number), stretch.place(row));
                        let mut tuple = Tuples::new(1);
                        let expected = tpcc.expect(leaves.table(leaf), number, &[], &mut tuple);
                        assert_eq!(expected, Expected::Loaded);
                        assert_eq!(tpcc.numbers_of(0, &(row..row + 1)).start, number);
                    }
                    seen[leaves.table(leaf)] += buckets.len(leaf);
                    placed += buckets.len(leaf);
                }
                assert_eq!(placed, tpcc.count(rows.clone()));
                first = rows.end;
            }
            assert_eq!(seen.iter().sum::<u64>(), tpcc.rows());
            assert_eq!((seen[0], seen[8]), (5, u64::from(ITEMS)));
        }
    }

    #[test]
    fn the_mean_of_a_row_is_that_of_the_measured_bytes() {
        let tpcc = Tpcc::new(2, 7, false, None);
        let mean = (2 * WAREHOUSE_BYTES + ITEMS_BYTES) / tpcc.rows();
        assert!(mean.abs_diff(tpcc.row_bytes()) <= 1, "{mean} bytes a row");
    }

    #[test]
    fn what_was_not_asked_for_is_taken_as_it_is() {
        let recorded = Tpcc::new(2, 1, true, Some(90));
        let flags = |tpcc: &dyn Dataset| -> BTreeMap<String, String> {
            tpcc.parameters().into_iter().map(|one| (one.what.to_owned(), one.value)).collect()
        };
        let plain = Tpcc::new(2, 1, false, None);
        let adopted = plain.as_recorded(&flags(&recorded)).expect("a dataset");
        assert_eq!((flags(&*adopted), adopted.tables()), (flags(&recorded), recorded.tables()));
        let other = Tpcc::new(2, 1, false, Some(70)).as_recorded(&flags(&recorded)).expect("a dataset");
        assert_eq!(flags(&*other)["fill factor"], "70");
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_flag() {
        let refused = |result: Result<(), LoadError>| match result {
            Err(LoadError::Option { flag, hint, .. }) => (flag, hint),
            other => panic!("{other:?}"),
        };
        for scale in [0, u64::from(WAREHOUSES_MAX) + 1, 1 << 40] {
            let request = Request { scale: Some(scale), ..Request::default() };
            assert_eq!(refused(build(&request).map(|_| ())).0, "-s/--scale");
        }
        let (four, keys) = (Tpcc::new(4, 1, false, None), Tpcc::new(4, 1, true, None));
        assert!(four.check(Target::Alone, Some(4)).is_ok() && keys.check(Target::Alone, None).is_ok());
        assert!(four.check(Target::Spread(2), None).is_ok());
        assert_eq!(refused(four.check(Target::Alone, Some(5))).0, "--partitions");
        assert_eq!(
            refused(four.check(Target::Spread(2), Some(1))).1,
            "give 2 to 4; a multiple of 2 spreads them evenly"
        );
        assert_eq!(refused(four.check(Target::Spread(5), None)).0, "-s/--scale");
        assert_eq!(refused(keys.check(Target::Spread(2), None)).0, "--foreign-keys");
        assert!(four.check(Target::Copies, None).is_ok());
    }
}

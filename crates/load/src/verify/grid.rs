//! Cells: the parts into which tables are divided. Two sums for each cell show whether its content is as expected.
//!
//! A cell is a range of row numbers, or a bucket of keys in one partition where only the client can compute the number of a row.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Setting;
use super::error::VerifyError;
use super::workers::Workers;
use crate::dataset::{self, Dataset, Sum};

/// All cells of one table: 16 MB per thread that fills them.
const CELLS_MAX: u64 = 1 << 20;
/// About so many bytes of values are in a range of numbers: what is read again when its sums differ.
const CELL_BYTES: u64 = 8 << 20;
/// Buckets of a partition at most: one statement lists those that differ.
const BUCKET_BITS_MAX: u32 = 16;
/// A bucket holds about this many rows as long as the limits above allow.
const ROWS_PER_BUCKET: u64 = 64;
/// Row numbers that a thread takes at once where cells are no ranges of them: some milliseconds of work.
const NUMBERS_AT_ONCE: u64 = 1 << 13;
/// When more than one in this many buckets of a partition differs, all of it is read: a filter would hardly spare anything.
const BUCKETS_PER_READ_ALL: usize = 2;

/// How one table is divided.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Shape {
    /// Not at all: it is left out.
    Out,
    /// Into ranges of so many row numbers. Behind them is one more cell, for rows that no load makes.
    Numbers { per_cell: u64, cells: u64 },
    /// Into buckets of keys, in each partition that has a slot.
    Buckets { bits: u32, slots: Vec<Option<u32>> },
}

impl Shape {
    fn cells(&self) -> usize {
        match self {
            Shape::Out => 0,
            Shape::Numbers { cells, .. } => *cells as usize + 1,
            Shape::Buckets { bits, slots } => slots.iter().flatten().count() << bits,
        }
    }

    /// Ranges of row numbers.
    pub(super) fn numbers(content: &dyn Dataset, table: usize) -> Shape {
        let end = content.numbers_end(table);
        let by_size = (CELL_BYTES / content.row_bytes().max(1)).max(1).ilog2();
        let of_length = || 1 << by_size.max(end.div_ceil(CELLS_MAX).max(1).next_power_of_two().ilog2());
        let per_cell = content.cell(table).map_or_else(of_length, |(_, per_cell)| per_cell);
        Shape::Numbers { per_cell, cells: end.div_ceil(per_cell) }
    }

    /// All of a table as the server can sum it up at once: its partitions, where it cannot tell the numbers of rows.
    pub(super) fn coarse(setting: &Setting<'_>, at: usize) -> Shape {
        match setting.hashing {
            Some(_) => {
                let slots = (0..setting.catalog.tables[at].partitions).map(Some).collect();
                Shape::Buckets { bits: 0, slots }
            }
            None => Shape::numbers(setting.content, setting.catalog.tables[at].table),
        }
    }

    /// The finest buckets over some partitions of a table that the limits allow; `tables`: so many are divided at once.
    pub(super) fn fine(setting: &Setting<'_>, at: usize, chosen: &[u32], tables: u64) -> Shape {
        let partitions = setting.catalog.tables[at].partitions;
        let rows = setting.content.numbers_end(setting.catalog.tables[at].table);
        let wanted = (rows / u64::from(partitions) / ROWS_PER_BUCKET).max(1);
        let allowed = (CELLS_MAX / (chosen.len().max(1) as u64 * tables.max(1))).max(1);
        let bits = wanted.min(allowed).ilog2().min(BUCKET_BITS_MAX);
        let slot = |partition| chosen.iter().position(|one| *one == partition).map(|slot| slot as u32);
        Shape::Buckets { bits, slots: (0..partitions).map(slot).collect() }
    }
}

/// How all tables are divided.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Grid {
    /// The first cell of each table, and its shape.
    tables: Vec<(usize, Shape)>,
    cells: usize,
}

impl Grid {
    pub(super) fn new(shapes: impl IntoIterator<Item = Shape>) -> Grid {
        let mut cells = 0;
        let tables = shapes.into_iter().map(|shape| {
            let first = cells;
            cells += shape.cells();
            (first, shape)
        });
        Grid { tables: tables.collect(), cells }
    }

    /// Sums of zero.
    pub(super) fn zeros(&self) -> Vec<Sum> {
        vec![Sum::default(); self.cells]
    }

    pub(super) fn shape(&self, at: usize) -> &Shape {
        &self.tables[at].1
    }

    pub(super) fn first(&self, at: usize) -> usize {
        self.tables[at].0
    }

    /// The cells of a table.
    pub(super) fn of_table(&self, at: usize) -> std::ops::Range<usize> {
        self.first(at)..self.first(at) + self.shape(at).cells()
    }

    /// The cell that a server named for rows in a partition.
    pub(super) fn named(&self, at: usize, partition: u32, name: i128) -> Option<usize> {
        let (first, shape) = &self.tables[at];
        let cell = match shape {
            Shape::Out => return None,
            Shape::Numbers { cells, .. } => u64::try_from(name).unwrap_or(*cells).min(*cells) as usize,
            Shape::Buckets { bits, slots } => dataset::cell(slots, *bits, partition, name as u64)?,
        };
        Some(first + cell)
    }

    /// The cell of a row of this number; `None`: it is left out.
    pub(super) fn cell(&self, content: &dyn Dataset, at: usize, table: usize, number: u64) -> Option<usize> {
        let (first, shape) = &self.tables[at];
        let cell = match shape {
            Shape::Out => return None,
            Shape::Numbers { per_cell, cells } => (number / per_cell).min(*cells) as usize,
            Shape::Buckets { bits, slots } => {
                let partition = content.partition_of(table, number, slots.len() as u32).unwrap_or(0);
                // The hash of the key is the dearer one.
                slots[partition as usize]?;
                dataset::cell(slots, *bits, partition, content.key_hash(table, number))?
            }
        };
        Some(first + cell)
    }

    /// The partition of a cell; `None`: its rows may be in any.
    pub(super) fn partition(&self, at: usize, cell: usize) -> Option<u32> {
        let (first, shape) = &self.tables[at];
        let Shape::Buckets { bits, slots } = shape else { return None };
        let slot = ((cell - first) >> bits) as u32;
        slots.iter().position(|one| *one == Some(slot)).map(|partition| partition as u32)
    }
}

/// Cells of a grid that are looked at.
#[derive(Clone, Debug)]
pub(super) struct Selection {
    pub(super) grid: Grid,
    /// By cell.
    pub(super) chosen: Vec<bool>,
    /// All cells are.
    pub(super) is_all: bool,
}

/// What has to be read of a partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Part {
    Nothing,
    All,
    /// Rows for which a condition holds.
    Where(String),
}

impl Selection {
    /// All cells of a grid.
    pub(super) fn all(grid: Grid) -> Selection {
        Selection { chosen: vec![true; grid.cells], grid, is_all: true }
    }

    /// These cells.
    pub(super) fn of(grid: Grid, cells: impl IntoIterator<Item = usize>) -> Selection {
        let mut chosen = vec![false; grid.cells];
        cells.into_iter().for_each(|cell| chosen[cell] = true);
        Selection { grid, chosen, is_all: false }
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.chosen.contains(&true)
    }

    /// The chosen cells of a table.
    pub(super) fn of_table(&self, at: usize) -> impl Iterator<Item = usize> + '_ {
        self.grid.of_table(at).filter(|cell| self.chosen[*cell])
    }

    /// What has to be read of a partition of a table, so that all rows of the chosen cells are among it.
    pub(super) fn part(&self, setting: &Setting<'_>, at: usize, partition: u32) -> Part {
        if self.is_all {
            return Part::All;
        }
        let table = setting.catalog.tables[at].table;
        let first = self.grid.first(at);
        let any = |names: Vec<String>, sql: String| match names.is_empty() {
            true => Part::Nothing,
            false => Part::Where(format!("{sql} = any ('{{{}}}'::bigint[])", names.join(","))),
        };
        match (self.grid.shape(at), &setting.hashing) {
            (Shape::Out, _) => Part::Nothing,
            (Shape::Numbers { .. }, Some(_)) => {
                if self.of_table(at).next().is_none() {
                    Part::Nothing
                } else {
                    Part::All
                }
            }
            (Shape::Numbers { cells, .. }, None) => {
                let name = |cell| if cell - first == *cells as usize { -1 } else { (cell - first) as i64 };
                let names = self.of_table(at).map(|cell| name(cell).to_string()).collect();
                any(names, cell_sql(setting.content, table, self.grid.shape(at)))
            }
            (Shape::Buckets { bits, slots }, _) => {
                let Some(slot) = slots.get(partition as usize).copied().flatten() else {
                    return Part::Nothing;
                };
                let from = first + ((slot as usize) << bits);
                let chosen: Vec<usize> = (0..1 << bits).filter(|bucket| self.chosen[from + bucket]).collect();
                if !chosen.is_empty()
                    && (chosen.len() * BUCKETS_PER_READ_ALL > 1 << bits || !setting.catalog.key_hash)
                {
                    return Part::All;
                }
                any(chosen.iter().map(usize::to_string).collect(), bucket_sql(setting, *bits))
            }
        }
    }
}

/// The cell of a row in SQL; -1 for rows that no load makes.
pub(super) fn cell_sql(content: &dyn Dataset, table: usize, shape: &Shape) -> String {
    if let Some((sql, _)) = content.cell(table) {
        return sql;
    }
    let Shape::Numbers { per_cell, .. } = shape else { return "0".to_owned() };
    let (number, rows) = (content.number_sql(table), content.tables()[table].rows);
    format!("case when {number} >= 0 and {number} < {rows} then ({number}) / {per_cell} else -1 end")
}

/// The bucket of a row in SQL. A NULL key counts as bucket 0.
pub(super) fn bucket_sql(setting: &Setting<'_>, bits: u32) -> String {
    let key = setting.hashing.as_ref().map_or("0", |hashing| hashing.key.as_str());
    if bits == 0 { "0".to_owned() } else { format!("coalesce({key} & {}, 0)", (1u64 << bits) - 1) }
}

/// Hands out the row numbers of chosen cells to threads.
pub(super) struct Numbers<'a> {
    selection: &'a Selection,
    /// By table: its place, the chosen cells where they are ranges of numbers, and the first item behind its own.
    tables: Vec<(usize, Vec<usize>, u64)>,
    ends: Vec<u64>,
    next: AtomicU64,
}

/// A table, the cell that its numbers have in common, if there is one, and the numbers.
type Portion = (usize, Option<usize>, std::ops::Range<u64>);

impl<'a> Numbers<'a> {
    pub(super) fn new(setting: &Setting<'_>, selection: &'a Selection) -> Numbers<'a> {
        let (mut tables, mut ends, mut items) = (Vec::new(), Vec::new(), 0);
        for (at, table) in setting.catalog.tables.iter().enumerate() {
            let end = setting.content.numbers_end(table.table);
            let cells: Vec<usize> = match selection.grid.shape(at) {
                Shape::Numbers { .. } => selection.of_table(at).collect(),
                _ => Vec::new(),
            };
            items += match selection.grid.shape(at) {
                Shape::Numbers { .. } => cells.len() as u64,
                Shape::Buckets { .. } if selection.of_table(at).next().is_some() => {
                    end.div_ceil(NUMBERS_AT_ONCE)
                }
                _ => 0,
            };
            tables.push((at, cells, items));
            ends.push(end);
        }
        Numbers { selection, tables, ends, next: AtomicU64::new(0) }
    }

    /// About how many rows these numbers stand for.
    pub(super) fn rows(&self, content: &dyn Dataset) -> u64 {
        content.rows_in(self.total())
    }

    /// About how many numbers there are.
    fn total(&self) -> u64 {
        let of_table = |(at, cells, _): &(usize, Vec<usize>, u64)| match self.selection.grid.shape(*at) {
            Shape::Out => 0,
            Shape::Numbers { per_cell, .. } => (cells.len() as u64 * per_cell).min(self.ends[*at]),
            Shape::Buckets { .. } => self.ends[*at],
        };
        self.tables.iter().map(of_table).sum()
    }

    /// The next numbers of a table, with their cell where they have one in common.
    pub(super) fn take(&self, workers: &Workers<'_>) -> Result<Option<Portion>, VerifyError> {
        workers.check()?;
        let item = self.next.fetch_add(1, Ordering::Relaxed);
        let table = self.tables.partition_point(|(_, _, end)| *end <= item);
        let Some((at, cells, _)) = self.tables.get(table) else { return Ok(None) };
        let before = table.checked_sub(1).map_or(0, |before| self.tables[before].2);
        let (index, end) = (item - before, self.ends[*at]);
        Ok(Some(match self.selection.grid.shape(*at) {
            Shape::Numbers { per_cell, .. } => {
                let cell = cells[index as usize];
                let range = (cell - self.selection.grid.first(*at)) as u64;
                (*at, Some(cell), (range * per_cell).min(end)..((range + 1) * per_cell).min(end))
            }
            _ => (*at, None, index * NUMBERS_AT_ONCE..((index + 1) * NUMBERS_AT_ONCE).min(end)),
        }))
    }
}

#[cfg(test)]
mod tests;

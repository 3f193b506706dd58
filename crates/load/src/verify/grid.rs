//! Sums over cells: two numbers per (leaf table, bucket of keys) say whether everything in it is as expected.
//!
//! A sum modulo 2^64 of 64-bit hashes does not depend on the order of rows, so the server's scan, our regeneration and any split of
//! either among threads can be compared. Two different sets of rows agree by chance once in 2^64.

use data::ycsb::{FIELD_BYTES, FIELD_COUNT, KEY_BYTES, Table};
use engines::hash;

use super::history::{Expect, WriterHistory};
use crate::route::{self, Route};

/// All cells of one grid: 16 MB per thread that fills one.
const CELLS_MAX: u64 = 1 << 20;
/// Buckets of a leaf at most: one statement lists those that differ.
const BUCKET_BITS_MAX: u32 = 16;
/// A bucket holds about this many rows as long as the limits above allow.
const ROWS_PER_BUCKET: u64 = 64;

/// Rows and the sum of their hashes modulo 2^64.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Sum {
    pub(super) rows: u64,
    pub(super) hash: u64,
}

impl Sum {
    #[inline(always)]
    pub(super) fn add(&mut self, rows: u64, hash: u64) {
        self.rows += rows;
        self.hash = self.hash.wrapping_add(hash);
    }
}

/// The hash of a key that chooses its bucket, and that sums of keys sum up: `hashtextextended(ycsb_key, 0)`.
#[inline]
pub(super) fn bucket_hash(key: &[u8]) -> u64 {
    hash::text_extended(key, 0)
}

/// How leaf tables are divided into cells. Leaves without a slot are left out.
#[derive(Clone, Debug)]
pub(super) struct Grid {
    route: Route,
    bucket_bits: u32,
    slots: Vec<Option<u32>>,
    cells: usize,
}

impl Grid {
    /// One cell per table: the leaves by their remainder, and behind them any table in which nothing should be.
    pub(super) fn of_leaves(route: Route, tables: usize) -> Grid {
        Grid::new(route, 0, &(0..tables).collect::<Vec<_>>())
    }

    /// The finest grid over these leaves of a table of `rows` rows that the limits allow.
    pub(super) fn fine(route: Route, rows: u64, leaves: &[usize]) -> Grid {
        let wanted = (rows / route.leaves() as u64 / ROWS_PER_BUCKET).max(1);
        let allowed = (CELLS_MAX / leaves.len().max(1) as u64).max(1);
        Grid::new(route, wanted.min(allowed).ilog2().min(BUCKET_BITS_MAX), leaves)
    }

    fn new(route: Route, bucket_bits: u32, leaves: &[usize]) -> Grid {
        let tables = leaves.iter().map(|leaf| leaf + 1).max().unwrap_or(0).max(route.leaves());
        let mut slots = vec![None; tables];
        for (slot, &leaf) in leaves.iter().enumerate() {
            slots[leaf] = Some(slot as u32);
        }
        Grid { route, bucket_bits, slots, cells: leaves.len() << bucket_bits }
    }

    /// The same leaves with the buckets of this [`Grid::bucket_mask`].
    pub(super) fn with_mask(self, mask: u64) -> Grid {
        let bucket_bits = mask.count_ones();
        let leaves = self.cells >> self.bucket_bits;
        Grid { bucket_bits, cells: leaves << bucket_bits, ..self }
    }

    /// Buckets of each leaf.
    pub(super) fn buckets(&self) -> u64 {
        1 << self.bucket_bits
    }

    /// The bits of a [`bucket_hash`] that number the bucket.
    pub(super) fn bucket_mask(&self) -> u64 {
        self.buckets() - 1
    }

    /// Sums of zero.
    pub(super) fn zeros(&self) -> Vec<Sum> {
        vec![Sum::default(); self.cells]
    }

    /// The cell of a key in a leaf; `None` when the leaf is left out.
    #[inline(always)]
    pub(super) fn cell(&self, leaf: usize, bucket_hash: u64) -> Option<usize> {
        let slot = self.slots[leaf]?;
        Some((slot as usize) << self.bucket_bits | (bucket_hash & self.bucket_mask()) as usize)
    }

    /// Leaf and bucket of a cell.
    pub(super) fn place(&self, cell: usize) -> (usize, u64) {
        let slot = (cell >> self.bucket_bits) as u32;
        let leaf = self.slots.iter().position(|&of_leaf| of_leaf == Some(slot));
        (leaf.expect("each slot belongs to a leaf"), cell as u64 & self.bucket_mask())
    }
}

/// A row of the table, identified: what everything about its place follows from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) leaf: usize,
    pub(super) bucket_hash: u64,
}

/// Where a key belongs.
#[inline(always)]
pub(super) fn place_of(route: Route, key: &[u8]) -> Place {
    let leaf = if route.leaves() == 1 { 0 } else { route.leaf(route::key_hash(key)) as usize };
    Place { leaf, bucket_hash: bucket_hash(key) }
}

/// The hash of a row that is summed up: `hash_record_extended(row, hashtextextended(ycsb_key, 0))`.
///
/// The record hash of one seed for all rows would be a weighted sum of its columns' hashes, so that rows could trade values of a
/// column without changing the sum over rows. A seed per row mixes the key into every column's hash.
fn row_hash(key: &[u8], fields: &[[u8; FIELD_BYTES]; FIELD_COUNT], bucket_hash: u64) -> u64 {
    hash::text_record(key, fields, bucket_hash)
}

/// Rows that are hashed side by side.
const BATCH_ROWS: usize = 4;
const BATCH_LANES: usize = BATCH_ROWS * FIELD_COUNT;

/// Adds rows as they were loaded: the sum of their row hashes. Compiled for more than one kind of processor, see [`super::sys`].
#[inline(always)]
pub(super) fn add_loaded_rows(grid: &Grid, table: &Table, rows: std::ops::Range<u64>, sums: &mut [Sum]) {
    let mut keys = [[0; KEY_BYTES]; BATCH_ROWS];
    let mut fields = [[[0; FIELD_BYTES]; FIELD_COUNT]; BATCH_ROWS];
    let mut seeds = [0; BATCH_ROWS];
    let mut cells = [0; BATCH_ROWS];
    let mut length = 0;
    for row in rows {
        keys[length] = table.key(row);
        let place = place_of(grid.route, &keys[length]);
        let Some(cell) = grid.cell(place.leaf, place.bucket_hash) else { continue };
        table.row_fields(row, &mut fields[length]);
        (seeds[length], cells[length]) = (place.bucket_hash, cell);
        length += 1;
        if length == BATCH_ROWS {
            length = 0;
            let hashes = hash::text_records::<KEY_BYTES, FIELD_BYTES, FIELD_COUNT, BATCH_ROWS, BATCH_LANES>(
                &keys, &fields, &seeds,
            );
            for (&cell, hash) in cells.iter().zip(hashes) {
                sums[cell].add(1, hash);
            }
        }
    }
    for row in 0..length {
        sums[cells[row]].add(1, row_hash(&keys[row], &fields[row], seeds[row]));
    }
}

/// Adds the keys of rows that must be there, loaded (`row < loaded`) or inserted since: the sum of their [`bucket_hash`].
pub(super) fn add_expected_keys(
    grid: &Grid,
    table: &Table,
    loaded: u64,
    history: &dyn WriterHistory,
    rows: std::ops::Range<u64>,
    sums: &mut [Sum],
) {
    for row in rows {
        if let Some((_, place)) = expected_key(grid.route, table, loaded, history, row)
            && let Some(cell) = grid.cell(place.leaf, place.bucket_hash)
        {
            sums[cell].add(1, place.bucket_hash);
        }
    }
}

/// Adds the keys of loaded rows as the ledger sums them up: by leaf, the sum of their [`route::key_hash`].
/// Gives the sum over all leaves.
pub(super) fn add_ledger_keys(
    route: Route,
    table: &Table,
    rows: std::ops::Range<u64>,
    sums: &mut [Sum],
) -> u64 {
    let mut all = 0u64;
    for row in rows {
        let hash = route::key_hash(&table.key(row));
        all = all.wrapping_add(hash);
        sums[route.leaf(hash) as usize].add(1, hash);
    }
    all
}

/// Key and place of a row, if it must be there.
#[inline(always)]
pub(super) fn expected_key(
    route: Route,
    table: &Table,
    loaded: u64,
    history: &dyn WriterHistory,
    row: u64,
) -> Option<([u8; KEY_BYTES], Place)> {
    if row >= loaded && history.expects_row(row) != Expect::Present {
        return None;
    }
    let key = table.key(row);
    Some((key, place_of(route, &key)))
}

#[cfg(test)]
mod tests {
    use super::super::history::LedgerHistory;
    use super::*;
    use data::ycsb::{Compressible, KeyOrder, Spec};

    fn table() -> Table {
        Table::new(Spec { seed: 5, key_order: KeyOrder::Scattered, compressible: Compressible::NONE })
    }

    #[test]
    fn grids_keep_their_limits_and_number_every_cell_once() {
        for (partitions, rows) in [(0, 0), (0, 1_000_000), (3, 100), (70, 1_000_000_000_000), (4096, 1 << 40)]
        {
            let route = Route::new(partitions);
            let leaves: Vec<usize> = (0..route.leaves()).collect();
            let grid = Grid::fine(route, rows, &leaves);
            assert!(grid.zeros().len() as u64 <= CELLS_MAX && grid.buckets() <= 1 << BUCKET_BITS_MAX);
            for cell in [0, grid.zeros().len() / 2, grid.zeros().len() - 1] {
                let (leaf, bucket) = grid.place(cell);
                assert_eq!(grid.cell(leaf, bucket), Some(cell));
                assert_eq!(
                    grid.cell(leaf, bucket | 1 << 63),
                    Some(cell),
                    "only the low bits number a bucket"
                );
            }
        }
        let route = Route::new(0);
        assert_eq!(Grid::fine(route, 1_000_000, &[0]).buckets(), 8192);
    }

    /// Values of one column that change places between two rows must change the sum.
    #[test]
    fn rows_cannot_trade_values_unnoticed() {
        let table = table();
        let rows: [_; 2] = std::array::from_fn(|row| {
            let mut fields = [[0; FIELD_BYTES]; FIELD_COUNT];
            table.row_fields(row as u64, &mut fields);
            (table.key(row as u64), fields)
        });
        let sum = |rows: &[([u8; KEY_BYTES], [[u8; FIELD_BYTES]; FIELD_COUNT])]| {
            let mut sum = Sum::default();
            for (key, fields) in rows {
                sum.add(1, row_hash(key, fields, bucket_hash(key)));
            }
            sum
        };
        let mut traded = rows;
        let [(_, one), (_, two)] = &mut traded;
        std::mem::swap(&mut one[3], &mut two[3]);
        assert_ne!(sum(&traded), sum(&rows));
        let mut within = rows;
        within[0].1.swap(2, 7);
        assert_ne!(sum(&within), sum(&rows));
    }

    #[test]
    fn leaves_without_a_slot_are_left_out() {
        let grid = Grid::fine(Route::new(4), 100_000, &[1, 3]);
        assert_eq!(grid.cell(0, 7), None);
        assert_eq!(grid.place(grid.cell(3, 7).unwrap()), (3, 7));
    }

    /// However rows are divided among threads and cells, the totals are those of one pass.
    #[test]
    fn sums_do_not_depend_on_the_division() {
        let (table, route) = (table(), Route::new(3));
        let coarse = Grid::of_leaves(route, route.leaves());
        let mut whole = coarse.zeros();
        add_loaded_rows(&coarse, &table, 0..3000, &mut whole);
        let fine = Grid::fine(route, 3000, &[0, 1, 2]);
        let mut parts = fine.zeros();
        for start in [0, 7, 1000] {
            let end = match start {
                0 => 7,
                7 => 1000,
                _ => 3000,
            };
            add_loaded_rows(&fine, &table, start..end, &mut parts);
        }
        let mut folded = coarse.zeros();
        for (cell, sum) in parts.iter().enumerate() {
            folded[fine.place(cell).0].add(sum.rows, sum.hash);
        }
        assert_eq!(folded, whole);
        assert_eq!(whole.iter().map(|sum| sum.rows).sum::<u64>(), 3000);
    }

    #[test]
    fn keys_are_expected_when_loaded_or_inserted() {
        struct OneInsert;
        impl WriterHistory for OneInsert {
            fn expects_row(&self, row: u64) -> Expect {
                if row == 105 { Expect::Present } else { Expect::Either }
            }
            fn rows_end(&self) -> u64 {
                110
            }
            fn judge_version(
                &self,
                _: u64,
                _: usize,
                _: data::ycsb::Version,
            ) -> super::super::history::VersionJudgement {
                super::super::history::VersionJudgement::Acceptable
            }
        }
        let (table, route) = (table(), Route::new(0));
        let grid = Grid::of_leaves(route, route.leaves());
        let mut sums = grid.zeros();
        add_expected_keys(&grid, &table, 100, &OneInsert, 0..110, &mut sums);
        let mut expected = Sum::default();
        for row in (0..100).chain([105]) {
            expected.add(1, bucket_hash(&table.key(row)));
        }
        assert_eq!(sums, [expected]);
        let ledger = LedgerHistory::new(100, Vec::new());
        let mut sums = grid.zeros();
        add_expected_keys(&grid, &table, 100, &ledger, 0..110, &mut sums);
        assert_eq!(sums[0].rows, 100);
    }
}

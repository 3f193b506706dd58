//! Sums of the hashes of rows as they were loaded.

use data::ycsb::{FIELD_BYTES, FIELD_COUNT, KEY_BYTES, Table};
use engines::hash;

use load::dataset::Buckets;
use load::route::{Route, key_hash};

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
pub(super) fn add_loaded_rows(table: &Table, rows: std::ops::Range<u64>, buckets: &mut Buckets<'_>) {
    let route = Route::new(buckets.partitions());
    let mut keys = [[0; KEY_BYTES]; BATCH_ROWS];
    let mut fields = [[[0; FIELD_BYTES]; FIELD_COUNT]; BATCH_ROWS];
    let mut seeds = [0; BATCH_ROWS];
    let mut cells = [0; BATCH_ROWS];
    let mut length = 0;
    for row in rows {
        keys[length] = table.key(row);
        let key = &keys[length];
        let partition = if route.leaves() == 1 { 0 } else { route.leaf(key_hash(key)) };
        let seed = hash::text_extended(key, 0);
        let Some(cell) = buckets.cell(partition, seed) else { continue };
        table.row_fields(row, &mut fields[length]);
        (seeds[length], cells[length]) = (seed, cell);
        length += 1;
        if length == BATCH_ROWS {
            length = 0;
            let hashes = hash::text_records::<KEY_BYTES, FIELD_BYTES, FIELD_COUNT, BATCH_ROWS, BATCH_LANES>(
                &keys, &fields, &seeds,
            );
            for (&cell, hash) in cells.iter().zip(hashes) {
                buckets.add(cell, hash);
            }
        }
    }
    for row in 0..length {
        buckets.add(cells[row], row_hash(&keys[row], &fields[row], seeds[row]));
    }
}

#[cfg(test)]
mod tests {
    use data::ycsb::{Compressible, KeyOrder, Spec};

    use super::*;
    use load::dataset::Sum;

    fn table() -> Table {
        Table::new(Spec { seed: 5, key_order: KeyOrder::Scattered, compressible: Compressible::NONE })
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
                sum.add(1, row_hash(key, fields, hash::text_extended(key, 0)));
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

    /// However rows are divided among threads and cells, the totals are those of one pass.
    #[test]
    fn sums_do_not_depend_on_the_division() {
        let table = table();
        let slots = [Some(0), Some(1), Some(2)];
        let mut whole = vec![Sum::default(); 3];
        add_loaded_rows(&table, 0..3000, &mut Buckets::new(&slots, 0, &mut whole));
        let mut parts = vec![Sum::default(); 3 << 4];
        for rows in [0..7, 7..1000, 1000..3000] {
            add_loaded_rows(&table, rows, &mut Buckets::new(&slots, 4, &mut parts));
        }
        let mut folded = vec![Sum::default(); 3];
        for (cell, sum) in parts.iter().enumerate() {
            folded[cell >> 4].add(sum.rows, sum.hash);
        }
        assert_eq!(folded, whole);
        assert_eq!(whole.iter().map(|sum| sum.rows).sum::<u64>(), 3000);
        let mut some = vec![Sum::default(); 1];
        add_loaded_rows(&table, 0..3000, &mut Buckets::new(&[None, Some(0), None], 0, &mut some));
        assert_eq!(some[0], whole[1], "partitions without a slot are left out");
    }
}

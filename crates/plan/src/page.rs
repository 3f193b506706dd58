//! What a table of such rows takes on disk: pages of the heap, of B-trees and of TOAST, and the WAL that writes them.
//!
//! Sources: `RelationPutHeapTuple` and `heap_multi_insert` in `src/backend/access/heap`, `nbtsort.c`, `heaptoast.h`, `bufpage.h`,
//! `xlogrecord.h`. A live test compares the results with a server.

use crate::error::PlanError;
use crate::tuple::{ColumnType, aligned, heap_bytes, index_bytes};
use record::plan::input::TableSize;

/// `SizeOfPageHeaderData`.
const PAGE_HEADER_BYTES: u64 = 24;
/// `sizeof(ItemIdData)`.
const LINE_POINTER_BYTES: u64 = 4;
/// `sizeof(BTPageOpaqueData)`.
const BTREE_SPECIAL_BYTES: u64 = 16;
/// Leaf pages of a new B-tree are filled to this share (`BTREE_DEFAULT_FILLFACTOR`), inner ones to 70 %.
const BTREE_FILL: f64 = 0.9;
const BTREE_INNER_FILL: f64 = 0.7;
/// An inner page has one entry of about this many bytes for each page below: the key is cut off where it still separates.
const BTREE_PIVOT_BYTES: f64 = 24.0;
/// A page of the free space map describes so many pages (`SlotsPerFSMPage`), one of the visibility map so many more.
const FSM_PAGES: u64 = 4_069;
/// Pages in the levels above the leaves of the free space map.
const FSM_UPPER_PAGES: u64 = 2;
/// The server's tuples are stored out of line above a quarter of a page (`TOAST_TUPLES_PER_PAGE`), in chunks of this many to a page.
const TOAST_TUPLES_PER_PAGE: u64 = 4;
/// The pointer that stays in the row.
const TOAST_POINTER_BYTES: u64 = 18;
/// Header and columns of a tuple in a TOAST table, beside the chunk itself.
const TOAST_FRAME_BYTES: u64 = 24 + 4 + 4 + 4;
/// Index entry of a chunk: oid and number.
const TOAST_INDEX_BYTES: u64 = 16 + LINE_POINTER_BYTES;
/// WAL of one record of COPY for a page: record header, block reference, the record's own fields.
const WAL_PAGE_BYTES: f64 = 60.0;
/// WAL of a row beside its data: offset and header, without the 23 bytes of the tuple's own header.
const WAL_TUPLE_BYTES: f64 = 8.0 - 23.0;
/// WAL of a page image beside the page, and a record of a TOAST chunk beside its tuple.
const WAL_IMAGE_BYTES: f64 = 55.0;
const WAL_INSERT_BYTES: f64 = 59.0;
/// Bytes of an entry on a tape of the sort beside the index tuple.
const SORT_ENTRY_BYTES: f64 = 4.0;

/// A table with a sample of its rows.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct TableSample {
    /// Its name.
    pub name: String,
    /// Its rows.
    pub rows: u64,
    /// Whether every node has all of them.
    pub is_whole: bool,
    /// Names and types of its columns, as in SQL.
    pub columns: Vec<(String, String)>,
    /// Columns of each of its indexes.
    pub indexes: Vec<Vec<String>>,
    /// Fill factor in percent.
    pub fillfactor: u64,
    /// Values of sampled rows in binary form, in the order of the columns.
    pub sample: Vec<Vec<Option<Vec<u8>>>>,
}

/// What the sampled rows take.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Sums {
    value: u64,
    tuple: u64,
    toast: u64,
    toast_index: u64,
    toast_wal: f64,
    pages_per_row: f64,
}

impl TableSample {
    /// The table's sizes per row.
    ///
    /// # Errors
    /// When a type or a value is not known, or a row is wider than a page.
    pub fn size(&self, block_bytes: u64) -> Result<TableSize, PlanError> {
        let types = self.columns.iter().map(|(_, definition)| ColumnType::parse(definition));
        let types = types.collect::<Result<Vec<ColumnType>, _>>()?;
        let stored = self.stored(&types)?;
        let heap = self.heap(&types, &stored, block_bytes)?;
        let mut size = TableSize {
            name: self.name.clone(),
            rows: self.rows,
            is_whole: self.is_whole,
            ..TableSize::default()
        };
        if stored.is_empty() {
            return Ok(size);
        }
        let per_row = |sum: f64| sum / stored.len() as f64;
        size.value_bytes_per_row = per_row(heap.value as f64);
        size.tuple_bytes_per_row = per_row(heap.tuple as f64);
        size.heap_bytes_per_row = heap.pages_per_row * block_bytes as f64;
        let pages = (size.heap_bytes_per_row * self.rows as f64 / block_bytes as f64).ceil();
        if self.rows > 0 {
            let maps = (pages / FSM_PAGES as f64).ceil() + FSM_UPPER_PAGES as f64;
            size.map_bytes_per_row = maps * block_bytes as f64 / self.rows as f64;
        }
        size.toast_bytes_per_row = per_row((heap.toast + heap.toast_index) as f64);
        for index in &self.indexes {
            let entry = self.index_entry_bytes(index, &types, &stored)?;
            size.index_bytes_per_row += btree_bytes(entry, block_bytes);
            size.sort_bytes_per_row =
                size.sort_bytes_per_row.max(entry - LINE_POINTER_BYTES as f64 + SORT_ENTRY_BYTES);
        }
        // A new index is logged page by page, without the free space in the middle.
        let pages = size.index_bytes_per_row / block_bytes as f64;
        size.index_wal_bytes_per_row = size.index_bytes_per_row * BTREE_FILL + pages * WAL_IMAGE_BYTES;
        let tuples = per_row(heap.tuple as f64) - LINE_POINTER_BYTES as f64 + WAL_TUPLE_BYTES;
        let copied = tuples + heap.pages_per_row * WAL_PAGE_BYTES + per_row(heap.toast_wal);
        size.wal_bytes_per_row = copied + size.index_wal_bytes_per_row;
        Ok(size)
    }

    /// Bytes on disk of each value of each sampled row.
    fn stored(&self, types: &[ColumnType]) -> Result<Vec<Vec<Option<u64>>>, PlanError> {
        let value = |(column, value): (&ColumnType, &Option<Vec<u8>>)| {
            value.as_ref().map(|value| column.stored_bytes(value)).transpose()
        };
        let row =
            |row: &Vec<Option<Vec<u8>>>| types.iter().zip(row).map(value).collect::<Result<Vec<_>, _>>();
        self.sample.iter().map(row).collect()
    }

    /// Fills pages with the sampled rows as COPY does.
    fn heap(
        &self,
        types: &[ColumnType],
        stored: &[Vec<Option<u64>>],
        block_bytes: u64,
    ) -> Result<Sums, PlanError> {
        let page_bytes = block_bytes - PAGE_HEADER_BYTES;
        let kept_bytes = block_bytes * (100 - self.fillfactor.clamp(10, 100)) / 100;
        let toast_from = toast_tuple_bytes(block_bytes);
        let mut sums = Sums::default();
        let (mut free, mut pages, mut on_page, mut on_pages) = (0, 0u64, 0u64, 0u64);
        for (row, sent) in stored.iter().zip(&self.sample) {
            sums.value += sent.iter().flatten().map(|value| value.len() as u64).sum::<u64>();
            let mut row = row.clone();
            while heap_bytes(types, &row) > toast_from {
                let Some(moved) = move_out(types, &mut row, block_bytes) else { break };
                sums.toast += moved.table_bytes;
                sums.toast_index += moved.index_bytes;
                sums.toast_wal += moved.wal_bytes;
            }
            let tuple = aligned(heap_bytes(types, &row)) + LINE_POINTER_BYTES;
            if tuple > page_bytes {
                return Err(PlanError::TooWide { table: self.name.clone(), bytes: tuple, block_bytes });
            }
            if on_page > 0 && free < tuple + kept_bytes {
                (pages, on_pages, on_page) = (pages + 1, on_pages + on_page, 0);
            }
            free = if on_page == 0 { page_bytes } else { free } - tuple;
            on_page += 1;
            sums.tuple += tuple;
        }
        // The last page of the sample is full only by chance: the pages before it count, if there are any.
        sums.pages_per_row = match pages {
            0 => {
                let mean_tuple = sums.tuple as f64 / stored.len().max(1) as f64;
                1.0 / ((page_bytes - kept_bytes) as f64 / mean_tuple.max(1.0)).floor().max(1.0)
            }
            pages => pages as f64 / on_pages as f64,
        };
        Ok(sums)
    }

    /// The mean entry of an index with its line pointer.
    fn index_entry_bytes(
        &self,
        index: &[String],
        types: &[ColumnType],
        stored: &[Vec<Option<u64>>],
    ) -> Result<f64, PlanError> {
        let place = |name: &String| {
            let missing = || PlanError::Column { table: self.name.clone(), column: name.clone() };
            self.columns.iter().position(|(column, _)| column == name).ok_or_else(missing)
        };
        let places = index.iter().map(place).collect::<Result<Vec<usize>, _>>()?;
        let columns: Vec<ColumnType> = places.iter().map(|place| types[*place]).collect();
        let entry = |row: &Vec<Option<u64>>| {
            let values: Vec<Option<u64>> = places.iter().map(|place| row[*place]).collect();
            index_bytes(&columns, &values) + LINE_POINTER_BYTES
        };
        Ok(stored.iter().map(entry).sum::<u64>() as f64 / stored.len() as f64)
    }
}

/// Bytes of a B-tree per entry: leaves, and the pages above them.
fn btree_bytes(entry_bytes: f64, block_bytes: u64) -> f64 {
    let usable = (block_bytes - PAGE_HEADER_BYTES - BTREE_SPECIAL_BYTES) as f64;
    // The limit is computed of the whole page; the high key takes one entry of every leaf.
    let full = usable - (1.0 - BTREE_FILL) * block_bytes as f64 - entry_bytes;
    let per_leaf = (full / entry_bytes).ceil().max(1.0);
    let leaf = block_bytes as f64 / per_leaf;
    let fan_out = (usable * BTREE_INNER_FILL / BTREE_PIVOT_BYTES).max(2.0);
    leaf * (1.0 + 1.0 / (fan_out - 1.0))
}

/// What a value takes in the TOAST table.
struct Moved {
    table_bytes: u64,
    index_bytes: u64,
    wal_bytes: f64,
}

/// The longest tuple that is not toasted (`TOAST_TUPLE_THRESHOLD`).
fn toast_tuple_bytes(block_bytes: u64) -> u64 {
    let pointers = LINE_POINTER_BYTES * TOAST_TUPLES_PER_PAGE;
    let usable = block_bytes - (PAGE_HEADER_BYTES + pointers).next_multiple_of(8);
    usable / TOAST_TUPLES_PER_PAGE / 8 * 8
}

/// Moves the longest value of a row out of line; `None` if no value is long enough. Compression is not modelled.
fn move_out(types: &[ColumnType], row: &mut [Option<u64>], block_bytes: u64) -> Option<Moved> {
    let movable = |(place, bytes): (usize, &Option<u64>)| {
        let is_long = bytes.is_some_and(|bytes| bytes > TOAST_POINTER_BYTES);
        (is_long && !matches!(types[place], ColumnType::Fixed { .. })).then_some(((*bytes)?, place))
    };
    let (bytes, place) = row.iter().enumerate().filter_map(movable).max()?;
    // The pointer is written without alignment, like a short value.
    row[place] = Some(TOAST_POINTER_BYTES - 1);
    let tuple_bytes = toast_tuple_bytes(block_bytes);
    let chunk_bytes = tuple_bytes - TOAST_FRAME_BYTES;
    let (whole, rest) = (bytes / chunk_bytes, bytes % chunk_bytes);
    let page_share = block_bytes / TOAST_TUPLES_PER_PAGE;
    let last = if rest == 0 { 0 } else { aligned(rest + TOAST_FRAME_BYTES) + LINE_POINTER_BYTES };
    let chunks = whole + u64::from(rest > 0);
    let index_bytes = btree_bytes(TOAST_INDEX_BYTES as f64, block_bytes) * chunks as f64;
    let wal_bytes = bytes as f64
        + chunks as f64 * (WAL_INSERT_BYTES + WAL_INSERT_BYTES + TOAST_INDEX_BYTES as f64 + 13.0);
    Some(Moved { table_bytes: whole * page_share + last, index_bytes: index_bytes as u64, wal_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `usertable` of YCSB with keys of 22 bytes.
    fn usertable(rows: u64, sampled: usize) -> TableSample {
        let field = |at: usize| (format!("field{at}"), "varchar(100)".to_string());
        let columns = std::iter::once(("ycsb_key".to_string(), "varchar(64) not null".to_string()));
        let row = || {
            let fields = std::iter::repeat_with(|| Some(vec![b'x'; 100])).take(10);
            std::iter::once(Some(vec![b'k'; 22])).chain(fields).collect()
        };
        TableSample {
            name: "usertable".into(),
            rows,
            columns: columns.chain((0..10).map(field)).collect(),
            indexes: vec![vec!["ycsb_key".into()]],
            fillfactor: 100,
            sample: std::iter::repeat_with(row).take(sampled).collect(),
            ..TableSample::default()
        }
    }

    #[test]
    fn seven_rows_of_ycsb_fill_a_page() {
        for sampled in [1, 6, 7, 8, 500, 4_096] {
            let size = usertable(1_000_000, sampled).size(8192).expect("a table");
            assert_eq!(size.tuple_bytes_per_row, 1_068.0);
            assert_eq!(size.value_bytes_per_row, 1_022.0);
            assert!((size.heap_bytes_per_row - 8192.0 / 7.0).abs() < 1.0, "{sampled}: {size:?}");
            assert!((38.0..43.0).contains(&size.index_bytes_per_row), "{size:?}");
            assert!((1_055.0..1_120.0).contains(&size.wal_bytes_per_row), "{size:?}");
            assert_eq!(size.toast_bytes_per_row, 0.0);
        }
    }

    #[test]
    fn a_fill_factor_leaves_room_in_every_page() {
        let full = usertable(1_000, 700).size(8192).expect("a table");
        let half = TableSample { fillfactor: 50, ..usertable(1_000, 700) }.size(8192).expect("a table");
        assert!(half.heap_bytes_per_row > 1.7 * full.heap_bytes_per_row, "{half:?}");
    }

    #[test]
    fn long_values_are_moved_out_and_rows_that_cannot_be_are_refused() {
        let document = |bytes: usize| TableSample {
            name: "d".into(),
            rows: 10,
            columns: vec![("id".into(), "bigint".into()), ("body".into(), "bytea".into())],
            fillfactor: 100,
            sample: vec![vec![Some(vec![0; 8]), Some(vec![0; bytes])]; 10],
            ..TableSample::default()
        };
        let short = document(1_000).size(8192).expect("a table");
        assert_eq!(short.toast_bytes_per_row, 0.0);
        let long = document(1_000_000).size(8192).expect("a table");
        // Four chunks of 1996 bytes fill a page.
        assert!((1_020_000.0..1_045_000.0).contains(&long.toast_bytes_per_row), "{long:?}");
        assert!(long.tuple_bytes_per_row < 80.0);
        let wide = TableSample {
            columns: (0..2_000).map(|at| (format!("c{at}"), "bigint".into())).collect(),
            sample: vec![vec![Some(vec![0; 8]); 2_000]],
            ..document(1)
        };
        assert!(matches!(wide.size(8192), Err(PlanError::TooWide { .. })));
    }

    proptest! {
        #[test]
        fn pages_hold_what_they_must(field in 0usize..600, fillfactor in 10u64..=100, kind in 0usize..3) {
            let block_bytes = [8192, 16384, 32768][kind];
            let table = TableSample {
                name: "t".into(), rows: 1_000,
                columns: vec![("a".into(), "int".into()), ("b".into(), "text".into())],
                indexes: vec![vec!["a".into()]], fillfactor,
                sample: vec![vec![Some(vec![0; 4]), Some(vec![0; field])]; 300],
                ..TableSample::default()
            };
            let size = table.size(block_bytes).expect("a table");
            prop_assert!(size.heap_bytes_per_row >= size.tuple_bytes_per_row);
            prop_assert!(size.tuple_bytes_per_row > size.value_bytes_per_row);
            prop_assert!(size.wal_bytes_per_row > size.index_wal_bytes_per_row);
            let more = TableSample { sample: vec![vec![Some(vec![0; 4]), Some(vec![0; field + 8])]; 300], ..table.clone() };
            prop_assert!(more.size(block_bytes).expect("a table").heap_bytes_per_row >= size.heap_bytes_per_row - 1e-6);
        }
    }
}

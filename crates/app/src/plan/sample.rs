//! The tables of a dataset with a sample of their rows, which the dataset computes as `load` would.

use crate::failure::Failure;
use load::dataset::{Dataset, Placement, Table};
use plan::page::TableSample;
use record::plan::input::TableSize;

/// Rows are sampled in this many places of a table, so many in each.
const PLACES: u64 = 64;
const ROWS_OF_A_PLACE: u64 = 64;
/// The sample of a table has at most this many bytes: documents may have 20 MB each.
const SAMPLE_BYTES_MAX: usize = 64 << 20;
/// PostgreSQL's default fill factor of tables.
const FILLFACTOR: u64 = 100;

/// The sizes of all tables.
pub(super) fn tables(content: &dyn Dataset, block_bytes: u64) -> Result<Vec<TableSize>, Failure> {
    let sampled: Vec<(TableSample, f64)> =
        content.tables().iter().enumerate().map(|(at, table)| sample(content, at, table)).collect();
    let mut sizes = Vec::new();
    let whole: u64 = sampled.iter().filter(|(_, share)| *share >= 1.0).map(|(table, _)| table.rows).sum();
    let partial = sampled.iter().filter(|(_, share)| *share < 1.0).count();
    for (mut table, share) in sampled {
        if share < 1.0 {
            // The dataset knows its rows exactly; of several such tables the sample gives the parts.
            table.rows = match partial {
                1 => content.rows().saturating_sub(whole),
                _ => (table.rows as f64 * share).round() as u64,
            };
        }
        sizes.push(table.size(block_bytes)?);
    }
    Ok(sizes)
}

/// A table with its sample, and the share of its numbers that stand for rows.
fn sample(content: &dyn Dataset, at: usize, table: &Table) -> (TableSample, f64) {
    let list = |columns: &str| columns.split(", ").map(str::to_owned).collect::<Vec<String>>();
    let keys = table.key.into_iter().chain(table.index.map(|(_, columns)| columns));
    let mut sampled = TableSample {
        name: table.name.into(),
        rows: table.rows,
        is_whole: table.placement == Placement::Whole,
        columns: table.columns.iter().map(|(name, kind)| ((*name).into(), (*kind).into())).collect(),
        indexes: keys.map(list).collect(),
        fillfactor: table.fillfactor.map_or(FILLFACTOR, u64::from),
        sample: vec![],
    };
    let (mut numbers, mut bytes) = (0, 0);
    let places = PLACES.min(table.rows.div_ceil(ROWS_OF_A_PLACE));
    for place in 0..places {
        let from = (u128::from(table.rows) * u128::from(place) / u128::from(places)) as u64;
        // Single rows, so that one that is large ends the sample.
        for number in from..table.rows.min(from + ROWS_OF_A_PLACE) {
            if bytes >= SAMPLE_BYTES_MAX {
                break;
            }
            numbers += 1;
            content.each_loaded(at, number..number + 1, &mut |_, tuple| {
                bytes += tuple.payload().len();
                sampled.sample.extend(fields(tuple.payload()));
            });
        }
    }
    let share = if numbers == 0 { 1.0 } else { sampled.sample.len() as f64 / numbers as f64 };
    (sampled, share)
}

/// The fields of a tuple of binary COPY: their number, then each behind its length.
fn fields(payload: &[u8]) -> Option<Vec<Option<Vec<u8>>>> {
    let (count, mut rest) = payload.split_first_chunk::<2>()?;
    let mut fields = Vec::new();
    for _ in 0..i16::from_be_bytes(*count) {
        let (length, after) = rest.split_first_chunk::<4>()?;
        rest = after;
        // -1 is a null.
        let Ok(length) = usize::try_from(i32::from_be_bytes(*length)) else {
            fields.push(None);
            continue;
        };
        let (field, after) = rest.split_at_checked(length)?;
        (rest, _) = (after, fields.push(Some(field.to_vec())));
    }
    Some(fields)
}

#[cfg(test)]
mod tests {
    use super::*;
    use workloads::dataset::{DATASETS, Request};

    #[test]
    fn every_dataset_gives_what_a_plan_needs() {
        for registration in DATASETS {
            let request = Request { scale: Some(2), rows: Some(5_000), seed: 1, ..Request::default() };
            let content = (registration.build)(&request).expect("possible");
            let sizes =
                tables(&*content, 8192).unwrap_or_else(|error| panic!("{}: {error:?}", registration.name));
            assert_eq!(sizes.len(), content.tables().len());
            let rows: u64 = sizes.iter().map(|table| table.rows).sum();
            assert_eq!(rows, content.rows(), "{}", registration.name);
            for table in sizes.iter().filter(|table| table.rows > 0) {
                let stored = table.heap_bytes_per_row + table.toast_bytes_per_row;
                assert!(stored > table.value_bytes_per_row * 0.1, "{table:?}");
                assert!(table.tuple_bytes_per_row > 24.0, "{table:?}");
            }
        }
    }

    #[test]
    fn fields_are_taken_apart() {
        assert_eq!(fields(b"\0\x02\0\0\0\x01a\xff\xff\xff\xff"), Some(vec![Some(b"a".to_vec()), None]));
        assert_eq!(fields(b"\0\x02\0\0\0\x05a"), None);
        assert_eq!(fields(b""), None);
    }
}

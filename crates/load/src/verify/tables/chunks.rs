//! Whether the ledger of one server has the chunks that a load makes, and what each of them must have.

use std::ops::Range;

use postgres::Client;

use super::{Setting, Site, sql, sums};
use crate::dataset::{Dataset, Leaves};
use crate::error::LoadError;
use crate::options::Method;
use crate::route::Buckets;
use crate::verify::VerifyError;
use crate::{ledger, schema};

/// Refuses the ledger of a single server whose chunks are not those that a load of this content has: each once, with the rows that it has.
pub(super) fn check(
    sites: &mut [Site],
    dataset: &ledger::Dataset,
    content: &dyn Dataset,
) -> Result<(), VerifyError> {
    // On a cluster a chunk may be recorded in parts, and on several nodes.
    let [Site { name: None, control, .. }] = sites else { return Ok(()) };
    let client: &mut Client = control;
    let doing = "reading pgfathom.chunk";
    let contradiction = |problem: String| {
        Err(VerifyError::from(LoadError::Contradiction { dataset: dataset.name.clone(), problem }))
    };
    let nodes = ledger::layout(client, dataset.id)?.nodes;
    if !nodes.is_empty() {
        let nodes = nodes.join(", ");
        return contradiction(format!("it names the nodes {nodes}, but has all rows on one server"));
    }
    let chunks = schema::chunks_of(dataset, content);
    let expected = schema::chunk_count(dataset, content);
    let (mut count, mut sum) = (0, 0);
    let rows = client.query_raw(
        "select chunk, rows, first_row, coalesce(to_jsonb(c) ->> 'leaf', '0') <> '0' or to_jsonb(c) ->> 'leaves' is not null
         from pgfathom.chunk c where dataset = $1 order by chunk",
        [dataset.id],
    );
    let mut rows = sql(doing, rows)?;
    while let Some(row) = sql(doing, rows.next_row())? {
        let [chunk, found, first] = [0, 1, 2].map(|column| row.get::<_, i64>(column));
        if u64::try_from(chunk) != Ok(count) || count >= expected {
            return contradiction(format!(
                "it has {expected} chunks, but chunk {chunk} where {count} should be"
            ));
        }
        if row.get(3) {
            return contradiction(format!(
                "chunk {chunk} is recorded for some partitions only, but one server has all of them"
            ));
        }
        if dataset.method == Method::Copy {
            let range = chunks.range(count);
            let (first_row, has) = (content.first_row(&range), content.count(range));
            if (u64::try_from(found), u64::try_from(first)) != (Ok(has), Ok(first_row)) {
                return contradiction(format!(
                    "chunk {chunk} is recorded with {found} rows from {first} on, but has {has} from {first_row} on"
                ));
            }
        }
        sum += found.unsigned_abs();
        count += 1;
    }
    if (count, sum) != (expected, dataset.rows) {
        let rows = dataset.rows;
        return contradiction(format!(
            "it has {expected} chunks of {rows} rows, but {count} of {sum} rows are recorded"
        ));
    }
    Ok(())
}

/// What the ledger must have of each chunk: its checksum, and the bytes of its values; `None`: they are not known.
pub(super) fn expected(
    setting: &Setting<'_>,
    compared: &sums::Compared,
    dataset: &ledger::Dataset,
) -> Result<Vec<(u64, Option<u64>)>, VerifyError> {
    let (content, chunks) = (setting.content, schema::chunks_of(dataset, setting.content));
    let leaves = Leaves::of_tables(content.tables(), dataset.partitions);
    let mut buckets = Buckets::new(leaves);
    let of_table = |(table, segment): (usize, Range<u64>)| {
        let at = setting.tables.iter().position(|at| at.table == table)?;
        compared.cells.bytes_expected(setting, at, content.numbers_of(table, &segment))
    };
    let expected = (0..chunks.count()).map(|chunk| {
        setting.workers.check()?;
        let rows = chunks.range(chunk);
        let checksum = buckets.fill(content, rows.clone());
        let bytes = match content.places_bytes() {
            true => Some((0..leaves.count()).map(|leaf| buckets.bytes(leaf)).sum()),
            false => content.segments(rows).into_iter().map(of_table).sum(),
        };
        Ok((checksum, bytes))
    });
    expected.collect()
}

//! What is loaded: `pgfathom.chunk`.

use postgres::{Client, GenericClient};

use super::{Dataset, sql};
use crate::chunk_set::ChunkSet;
use crate::error::LoadError;
use crate::method::Method;

/// What the chunks of a dataset sum up to.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ChunkTotals {
    /// Chunks in the ledger.
    pub chunks: u64,
    /// Rows in them.
    pub rows: u64,
    /// Bytes of values in them.
    pub bytes: u64,
    /// Sum of their checksums modulo 2^64.
    pub checksum: u64,
}

impl ChunkTotals {
    /// Both together.
    pub(crate) fn plus(self, other: ChunkTotals) -> ChunkTotals {
        ChunkTotals {
            chunks: self.chunks + other.chunks,
            rows: self.rows + other.rows,
            bytes: self.bytes + other.bytes,
            checksum: self.checksum.wrapping_add(other.checksum),
        }
    }
}

/// Which chunks are loaded for which leaf tables: one set of chunks per set of leaves that occurs, `None` for all leaves.
pub(crate) type Coverage = Vec<(Option<Vec<u16>>, ChunkSet)>;

/// Reads which chunks the ledger has for which leaves. `count` is how many chunks the dataset has.
pub(crate) fn coverage(client: &mut Client, id: i32, count: u64) -> Result<Coverage, LoadError> {
    let doing = "reading pgfathom.chunk";
    let damaged = |column| LoadError::DamagedLedger { table: "chunk", column };
    let mut coverage: Coverage = Vec::new();
    // Millions of rows and a handful of sets: most rows have the set of the row before.
    let mut last = 0;
    let rows = client.query_raw("select chunk, leaves from pgfathom.chunk where dataset = $1", &[&id]);
    let mut rows = sql(doing, rows)?;
    while let Some(row) = sql(doing, rows.next_row())? {
        let chunk = u64::try_from(row.get::<_, i64>(0)).ok().filter(|chunk| *chunk < count);
        let chunk = chunk.ok_or_else(|| damaged("chunk"))?;
        let leaves: Option<Vec<i16>> = row.get(1);
        let leaves = leaves.map(|leaves| leaves.into_iter().map(u16::try_from).collect());
        let leaves: Option<Vec<u16>> = leaves.transpose().map_err(|_| damaged("leaves"))?;
        if coverage.get(last).is_none_or(|(set, _)| *set != leaves) {
            let found = coverage.iter().position(|(set, _)| *set == leaves);
            last = found.unwrap_or_else(|| {
                coverage.push((leaves, ChunkSet::new(count)));
                coverage.len() - 1
            });
        }
        coverage[last].1.insert(chunk);
    }
    Ok(coverage)
}

/// What the chunks of a dataset sum up to, in this server's ledger.
///
/// # Errors
/// When the query fails or sums are out of range.
pub fn chunk_totals(client: &mut impl GenericClient, id: i32) -> Result<ChunkTotals, LoadError> {
    chunk_totals_in(client, id, 0..i64::MAX as u64)
}

/// The same for a range of chunks.
pub(crate) fn chunk_totals_in(
    client: &mut impl GenericClient,
    id: i32,
    chunks: std::ops::Range<u64>,
) -> Result<ChunkTotals, LoadError> {
    let row = client.query_one(
        "select count(*), coalesce(sum(rows), 0)::text, coalesce(sum(bytes), 0)::text,
                mod(mod(coalesce(sum(checksum), 0), 18446744073709551616) + 18446744073709551616, 18446744073709551616)::text
         from pgfathom.chunk where dataset = $1 and chunk >= $2 and chunk < $3",
        &[&id, &(chunks.start as i64), &(chunks.end as i64)],
    );
    let row = sql("summing up pgfathom.chunk", row)?;
    let damaged = |column| LoadError::DamagedLedger { table: "chunk", column };
    // A sum over foreign rows may have more digits than any number of ours.
    let count = |index: usize, column| row.get::<_, &str>(index).parse().map_err(|_| damaged(column));
    Ok(ChunkTotals {
        chunks: u64::try_from(row.get::<_, i64>(0)).map_err(|_| damaged("chunk"))?,
        rows: count(1, "rows")?,
        bytes: count(2, "bytes")?,
        checksum: row.get::<_, &str>(3).parse().map_err(|_| damaged("checksum"))?,
    })
}

/// Holds checksum and bytes of each chunk against what they must be: the first chunk that differs, and how many do.
pub(crate) fn odd_chunks(
    client: &mut Client,
    id: i32,
    mut is_right: impl FnMut(usize, u64, u64) -> bool,
) -> Result<Option<(u64, u64)>, LoadError> {
    let doing = "reading pgfathom.chunk";
    let mut odd: Option<(u64, u64)> = None;
    let statement = "select chunk, checksum, bytes from pgfathom.chunk where dataset = $1 order by chunk";
    let mut rows = sql(doing, client.query_raw(statement, &[&id]))?;
    while let Some(row) = sql(doing, rows.next_row())? {
        let [chunk, checksum, bytes] = [0, 1, 2].map(|column| row.get::<_, i64>(column) as u64);
        if !is_right(chunk as usize, checksum, bytes) {
            odd = Some(odd.map_or((chunk, 1), |(first, count)| (first, count + 1)));
        }
    }
    Ok(odd)
}

/// The numbers of the chunks that ledgers have, over all nodes that have been added.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    first: i64,
    last: i64,
}

impl Extent {
    /// Of no ledger yet.
    pub(crate) const EMPTY: Extent = Extent { first: 0, last: -1 };

    /// Adds the chunks of one node. A node may have none: where rows went in through another one, that one has the ledger rows.
    pub(crate) fn add(
        &mut self,
        client: &mut impl GenericClient,
        dataset: &Dataset,
    ) -> Result<(), LoadError> {
        let row = client.query_one(
            "select coalesce(max(chunk), -1), coalesce(min(chunk), 0) from pgfathom.chunk where dataset = $1",
            &[&dataset.id],
        );
        let row = sql("reading pgfathom.chunk", row)?;
        self.last = self.last.max(row.get(0));
        self.first = self.first.min(row.get(1));
        Ok(())
    }

    /// Refuses a dataset that has another number of chunks than these: nothing shall be computed for rows that were never loaded.
    pub(crate) fn check(self, dataset: &Dataset, chunks: u64) -> Result<(), LoadError> {
        let Extent { first, last } = self;
        // A leaf without rows may have no chunk.
        let is_too_few = dataset.method == Method::Copy && i128::from(last) + 1 < i128::from(chunks);
        let is_outside = first < 0 || i128::from(last) >= i128::from(chunks.min(crate::plan::CHUNKS_MAX));
        if !is_too_few && !is_outside && dataset.rows <= crate::plan::ROWS_MAX {
            return Ok(());
        }
        let problem = format!(
            "it has {chunks} chunks, but those that are recorded are numbered from {first} to {last}"
        );
        Err(LoadError::Contradiction { dataset: dataset.name.clone(), problem })
    }
}

/// One row of `pgfathom.chunk` as the loader inserts it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    pub(crate) dataset: i32,
    pub(crate) chunk: u64,
    pub(crate) first_row: u64,
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    pub(crate) checksum: u64,
    pub(crate) stream: usize,
}

impl Claim {
    /// The statement that claims a chunk and records it in one: it inserts 1 row, or 0 when the chunk is committed already, and
    /// waits while another transaction holds it.
    pub(crate) fn insert_sql(&self) -> String {
        self.insert_where_sql("true")
    }

    /// The same, but it inserts nothing either when `condition` does not hold.
    pub(crate) fn insert_where_sql(&self, condition: &str) -> String {
        format!(
            "insert into pgfathom.chunk (dataset, chunk, first_row, rows, bytes, checksum, stream) \
             select {}, {}, {}, {}, {}, {}, {} where {condition} on conflict do nothing",
            self.dataset,
            self.chunk,
            self.first_row,
            self.rows,
            self.bytes,
            // The column is signed; two's complement keeps sums modulo 2^64 right.
            self.checksum as i64,
            self.stream
        )
    }

    /// The statement that records a chunk for these leaves only. The caller holds [`super::lock::chunk`] and has seen that the ledger has no
    /// row of the chunk for any of them.
    pub(crate) fn insert_leaves_sql(&self, leaves: &[u16]) -> String {
        let first = leaves.first().copied().unwrap_or_default();
        let listed: Vec<String> = leaves.iter().map(u16::to_string).collect();
        format!(
            "insert into pgfathom.chunk (dataset, chunk, first_row, rows, bytes, checksum, stream, leaf, leaves) \
             values ({}, {}, {}, {}, {}, {}, {}, {first}, '{{{}}}') on conflict do nothing",
            self.dataset,
            self.chunk,
            self.first_row,
            self.rows,
            self.bytes,
            self.checksum as i64,
            self.stream,
            listed.join(",")
        )
    }

    /// The statement that fills in what a claim could not know: the rows of a leaf are counted while they are sent.
    pub(crate) fn update_sql(&self) -> String {
        format!(
            "update pgfathom.chunk set rows = {}, bytes = {}, checksum = {} where dataset = {} and chunk = {}",
            self.rows, self.bytes, self.checksum as i64, self.dataset, self.chunk
        )
    }

    /// The statements that commit it. Where only the encoder knew how many bytes there are, they are filled in; `leaf` is the first one, where
    /// the row is for some leaves.
    pub(crate) fn commit_sql(&self, encoded_bytes: u64, leaf: Option<u16>) -> String {
        if encoded_bytes == 0 {
            return "commit".to_owned();
        }
        let leaf = leaf.map(|leaf| format!(" and leaf = {leaf}")).unwrap_or_default();
        format!(
            "update pgfathom.chunk set bytes = {encoded_bytes} where dataset = {} and chunk = {}{leaf}; commit",
            self.dataset, self.chunk
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_above_the_sign_bit_is_stored_in_twos_complement() {
        let claim =
            Claim { dataset: 1, chunk: 2, first_row: 3, rows: 4, bytes: 5, checksum: u64::MAX, stream: 6 };
        assert!(claim.insert_sql().contains("select 1, 2, 3, 4, 5, -1, 6 where true on conflict do nothing"));
        assert!(
            claim.update_sql().contains("rows = 4, bytes = 5, checksum = -1 where dataset = 1 and chunk = 2")
        );
        assert!(
            claim
                .insert_leaves_sql(&[3, 7])
                .contains("values (1, 2, 3, 4, 5, -1, 6, 3, '{3,7}') on conflict")
        );
    }
}

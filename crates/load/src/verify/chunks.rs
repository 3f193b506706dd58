//! Checks that ledgers have the chunks that a load makes, and computes what each of them must have.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use postgres::Client;

use super::Setting;
use super::catalog::Catalog;
use super::error::{VerifyError, sql};
use super::grid::{Grid, Shape};
use super::problem::Problem;
use super::site::Site;
use super::workers::{Coordinator, Phase, Task};
use crate::dataset::{Dataset, Leaves, Sum};
use crate::error::LoadError;
use crate::options::Method;
use crate::route::Buckets;
use crate::{ledger, schema};

/// Rows that are hashed at once.
const ROWS_AT_ONCE: u64 = 1 << 16;

/// Refuses the ledger of a single server whose chunks are not those that a load of this content has: each once, with the rows that it has.
pub(super) fn check(
    client: &mut Client,
    dataset: &ledger::Dataset,
    content: &dyn Dataset,
) -> Result<(), VerifyError> {
    let doing = "reading pgfathom.chunk";
    let contradiction = |problem: String| {
        Err(VerifyError::from(LoadError::Contradiction { dataset: dataset.name.clone(), problem }))
    };
    let chunks = schema::chunks_of(dataset, content);
    let expected = schema::chunk_count(dataset, content);
    let (mut count, mut sum) = (0, 0);
    let rows = client.query_raw(
        "select chunk, rows, first_row, coalesce(to_jsonb(c) ->> 'leaf', '0') <> '0' or to_jsonb(c) ->> 'leaves' is not null
         from pgfathom.chunk c where dataset = $1 order by chunk",
        &[&dataset.id],
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
                    "chunk {chunk} is recorded with {found} rows from row {first} on, but has {has} from row {first_row} on"
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

/// What the chunks of ledgers must add up to.
#[derive(Clone, Debug)]
pub(super) struct LedgerKeys {
    numbering: Leaves,
    /// By leaf: rows, and the sum of the hashes of their placement keys; bytes of their values.
    leaves: Vec<(Sum, u64)>,
    /// By chunk: the sum of the hashes, and the bytes of the values where they are known.
    chunks: Vec<(u64, Option<u64>)>,
}

/// Computes it. `bytes`: of the values in each cell of a grid, where only encoding gives them.
pub(super) fn ledger_keys(
    setting: &Setting<'_>,
    coordinator: &mut Coordinator<'_>,
    dataset: &ledger::Dataset,
    (grid, bytes): (&Grid, &[u64]),
) -> Result<LedgerKeys, VerifyError> {
    let content = setting.content;
    let (chunks, numbering) =
        (schema::chunks_of(dataset, content), Leaves::of_tables(content.tables(), dataset.partitions));
    let by_chunk: Vec<Mutex<(u64, u64)>> = (0..chunks.count()).map(|_| Mutex::default()).collect();
    let next = AtomicU64::new(0);
    let (chunks, by_chunk) = (&chunks, &by_chunk);
    let tasks = (0..setting.jobs).map(|_| -> Task<'_, Vec<(Sum, u64)>> {
        Box::new(|| {
            let mut leaves = vec![(Sum::default(), 0); numbering.count()];
            let mut buckets = Buckets::new(numbering);
            loop {
                let chunk = next.fetch_add(1, Ordering::Relaxed);
                let Some(of_chunk) = by_chunk.get(chunk as usize) else { return Ok(leaves) };
                let Range { mut start, end } = chunks.range(chunk);
                while start < end {
                    setting.workers.check()?;
                    let rows = start..end.min(start + ROWS_AT_ONCE);
                    let sum = buckets.fill(content, rows.clone());
                    let mut size = 0;
                    for (leaf, (of_leaf, bytes)) in leaves.iter_mut().enumerate() {
                        of_leaf.add(buckets.len(leaf), buckets.checksum(leaf));
                        *bytes += buckets.bytes(leaf);
                        size += buckets.bytes(leaf);
                    }
                    let mut of_chunk = of_chunk.lock().unwrap_or_else(PoisonError::into_inner);
                    *of_chunk = (of_chunk.0.wrapping_add(sum), of_chunk.1 + size);
                    setting.workers.did(content.rows_in(rows.end - rows.start));
                    start = rows.end;
                }
            }
        })
    });
    let mut leaves = vec![(Sum::default(), 0); numbering.count()];
    for share in coordinator.run(&setting.workers, Phase::Ledger, content.rows(), tasks.collect())? {
        for ((sum, bytes), (part, more)) in leaves.iter_mut().zip(share) {
            sum.add(part.rows, part.hash);
            *bytes += more;
        }
    }
    let encoded = |chunk: usize| {
        let segments = content.segments(chunks.range(chunk as u64));
        segments
            .into_iter()
            .map(|(table, segment)| encoded_bytes(setting, table, &segment, grid, bytes))
            .sum()
    };
    let chunk = |(number, of_chunk): (usize, &Mutex<(u64, u64)>)| {
        let (sum, bytes) = *of_chunk.lock().unwrap_or_else(PoisonError::into_inner);
        (sum, if content.places_bytes() { Some(bytes) } else { encoded(number) })
    };
    let chunks = by_chunk.iter().enumerate().map(chunk).collect();
    Ok(LedgerKeys { numbering, leaves, chunks })
}

/// The bytes of the values that must be in a segment of a table; `None`: it is not whole cells.
fn encoded_bytes(
    setting: &Setting<'_>,
    table: usize,
    segment: &Range<u64>,
    grid: &Grid,
    bytes: &[u64],
) -> Option<u64> {
    let at = setting.catalog.tables.iter().position(|at| at.table == table)?;
    let (numbers, rows) = (setting.content.numbers_of(table, segment), setting.content.tables()[table].rows);
    let Shape::Numbers { per_cell, .. } = grid.shape(at) else { return None };
    let is_whole = numbers.start.is_multiple_of(*per_cell)
        && (numbers.end.is_multiple_of(*per_cell) || numbers.end == rows);
    let first = grid.first(at);
    let cells = first + (numbers.start / per_cell) as usize..first + numbers.end.div_ceil(*per_cell) as usize;
    is_whole.then(|| bytes.get(cells).map(|bytes| bytes.iter().sum())).flatten()
}

impl LedgerKeys {
    /// The rows of a leaf of the catalog, and the sum of the hashes of their placement keys.
    pub(super) fn of_leaf(&self, catalog: &Catalog, leaf: usize) -> Sum {
        let leaf = &catalog.leaves[leaf];
        match leaf.is_home {
            true => {
                let table = catalog.tables[leaf.at].table as u32;
                self.leaves[self.numbering.at(table, leaf.partition) as usize].0
            }
            false => Sum::default(),
        }
    }

    /// Compares the chunks of a server that has all rows.
    pub(super) fn odd_chunks(
        &self,
        client: &mut Client,
        dataset: &ledger::Dataset,
        places_bytes: bool,
    ) -> Result<Option<Problem>, VerifyError> {
        let expected = |chunk: usize| match dataset.method {
            Method::Copy => self.chunks.get(chunk).copied(),
            // A chunk is a leaf.
            Method::Freeze => {
                self.leaves.get(chunk).map(|(sum, bytes)| (sum.hash, places_bytes.then_some(*bytes)))
            }
        };
        let is_right = |chunk: usize, checksum, bytes| {
            expected(chunk)
                .is_some_and(|(sum, size)| sum == checksum && size.is_none_or(|size| size == bytes))
        };
        let odd = ledger::odd_chunks(client, dataset.id, is_right)?;
        Ok(odd.map(|(chunk, count)| Problem::LedgerChunks { chunk, count }))
    }

    /// Compares the ledgers of nodes with what was loaded: each node's, for the leaves that the node has now, and all of them
    /// together.
    pub(super) fn check_nodes(
        &self,
        sites: &mut [Site],
        ids: &[Option<i32>],
        catalog: &Catalog,
    ) -> Result<Vec<Problem>, VerifyError> {
        let mut problems = Vec::new();
        let mut has_moved = false;
        let (mut in_ledgers, mut of_nodes) = (Sum::default(), Sum::default());
        for (number, (site, id)) in sites.iter_mut().zip(ids).enumerate() {
            let Some(id) = id else { return Ok(problems) };
            let totals = ledger::chunk_totals(&mut *site.control, *id)?;
            let in_ledger = Sum { rows: totals.rows, hash: totals.checksum };
            let mut loaded = Sum::default();
            let here = |leaf: &usize| catalog.leaves[*leaf].site == number;
            for leaf in (0..catalog.leaves.len()).filter(here) {
                let sum = self.of_leaf(catalog, leaf);
                loaded.add(sum.rows, sum.hash);
            }
            in_ledgers.add(in_ledger.rows, in_ledger.hash);
            of_nodes.add(loaded.rows, loaded.hash);
            problems.extend(compare_ledger(site.name.clone(), in_ledger, loaded));
            has_moved |= self.has_moved(site, *id, number, catalog)?;
        }
        // Leaves that were moved after the load left their chunks in the ledger of the node they came from: then only the total can be compared.
        Ok(match compare_ledger(None, in_ledgers, of_nodes) {
            None => Vec::new(),
            Some(_) if !problems.is_empty() && !has_moved => problems,
            Some(together) => vec![together],
        })
    }

    /// Whether the chunks of a node's ledger speak of leaves that are elsewhere now, or of all leaves, as rows came in through this node.
    fn has_moved(
        &self,
        site: &mut Site,
        id: i32,
        number: usize,
        catalog: &Catalog,
    ) -> Result<bool, VerifyError> {
        let row = site.control.query_one(
            "select bool_or(leaves is null), array(select distinct unnest(leaves) from pgfathom.chunk where dataset = $1)
             from pgfathom.chunk where dataset = $1",
            &[&id],
        );
        let row = sql("reading pgfathom.chunk", row)?;
        let here = catalog.leaves.iter().filter(|leaf| leaf.is_home && leaf.site == number);
        let here: HashSet<usize> = here
            .map(|leaf| self.numbering.at(catalog.tables[leaf.at].table as u32, leaf.partition) as usize)
            .collect();
        let is_here = |leaf: &i16| usize::try_from(*leaf).is_ok_and(|leaf| here.contains(&leaf));
        let leaves: Vec<i16> = row.get(1);
        Ok(row.get::<_, Option<bool>>(0) == Some(true) || !leaves.iter().all(is_here))
    }

    /// Compares the ledger of a node that has all rows.
    pub(super) fn check_copy(
        &self,
        site: &mut Site,
        id: i32,
        catalog: &Catalog,
    ) -> Result<Option<Problem>, VerifyError> {
        let totals = ledger::chunk_totals(&mut *site.control, id)?;
        let mut loaded = Sum::default();
        for leaf in 0..catalog.leaves.len() {
            let sum = self.of_leaf(catalog, leaf);
            loaded.add(sum.rows, sum.hash);
        }
        let in_ledger = Sum { rows: totals.rows, hash: totals.checksum };
        Ok(compare_ledger(site.name.clone(), in_ledger, loaded))
    }
}

fn compare_ledger(node: Option<String>, ledger: Sum, loaded: Sum) -> Option<Problem> {
    if ledger.rows != loaded.rows {
        Some(Problem::LedgerRows { node, ledger: ledger.rows, rows: loaded.rows })
    } else if ledger.hash != loaded.hash {
        Some(Problem::LedgerChecksum { node })
    } else {
        None
    }
}

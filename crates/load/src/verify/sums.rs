//! The fast way: the server sums up a hash of every row, the client computes the same sum, and two numbers per leaf are compared.
//!
//! Where they differ, the same is done for buckets of keys; only rows of buckets that differ have to be read.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Setting;
use super::error::VerifyError;
use super::grid::{Grid, Sum, add_ledger_keys};
use super::sys::add_loaded_rows;
use super::workers::{Coordinator, Phase, Queues, RowCursor, Task, number};
use crate::plan::Chunks;
use crate::rows::column_names;

/// When more than one in this many buckets of a leaf differs, the whole leaf is read: a filter would hardly spare anything.
const BUCKETS_PER_READ_ALL: usize = 2;

/// What is to be read of a leaf.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Selection {
    pub(super) leaf: usize,
    /// `None`: everything.
    pub(super) buckets: Option<Buckets>,
}

/// Some buckets of a leaf.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Buckets {
    pub(super) mask: u64,
    /// Ascending.
    pub(super) numbers: Vec<u64>,
}

impl Buckets {
    /// The condition that a row's key is in one of them. A NULL key counts as bucket 0.
    pub(super) fn condition(&self) -> String {
        let numbers: Vec<String> = self.numbers.iter().map(u64::to_string).collect();
        let bucket = bucket_sql(self.mask);
        format!("{bucket} = any ('{{{}}}'::bigint[])", numbers.join(","))
    }
}

fn bucket_sql(mask: u64) -> String {
    format!("coalesce(hashtextextended(ycsb_key, 0) & {mask}, 0)")
}

/// Sums on both sides of a comparison, by cell.
struct Sides {
    expected: Vec<Sum>,
    found: Vec<Sum>,
}

/// One thread's share of one side.
enum Share {
    Expected(Vec<Sum>),
    Found(Vec<Sum>),
}

/// What comparing all leaves came to.
pub(super) struct Compared {
    /// Leaves that differ.
    pub(super) leaves: Vec<usize>,
    /// Rows that were loaded into each.
    pub(super) expected: Vec<u64>,
    /// Rows that are there.
    pub(super) found: Vec<u64>,
}

/// Compares all leaves.
pub(super) fn compare_leaves(
    setting: &Setting<'_>,
    coordinator: &mut Coordinator<'_>,
) -> Result<Compared, VerifyError> {
    let all: Vec<usize> = (0..setting.catalog.leaves.len()).collect();
    let grid = Grid::of_leaves(setting.content.route, all.len());
    let sides = both_sides(setting, coordinator, Phase::Sum, &grid, &all)?;
    let rows = |sums: &[Sum]| sums.iter().map(|sum| sum.rows).collect();
    let (expected, found) = (rows(&sides.expected), rows(&sides.found));
    let leaves = all.into_iter().filter(|&leaf| sides.expected[leaf] != sides.found[leaf]).collect();
    Ok(Compared { leaves, expected, found })
}

/// Finds out which buckets of these leaves differ.
pub(super) fn narrow(
    setting: &Setting<'_>,
    coordinator: &mut Coordinator<'_>,
    leaves: &[usize],
) -> Result<Vec<Selection>, VerifyError> {
    let grid = Grid::fine(setting.content.route, setting.content.loaded, leaves);
    let sides = both_sides(setting, coordinator, Phase::Narrow, &grid, leaves)?;
    let mut numbers = vec![Vec::new(); setting.catalog.leaves.len()];
    for (cell, (expected, found)) in sides.expected.iter().zip(&sides.found).enumerate() {
        if expected != found {
            let (leaf, bucket) = grid.place(cell);
            numbers[leaf].push(bucket);
        }
    }
    let mut selections = Vec::new();
    for &leaf in leaves {
        let numbers = std::mem::take(&mut numbers[leaf]);
        if numbers.is_empty() {
            continue;
        }
        let most = numbers.len() * BUCKETS_PER_READ_ALL > grid.buckets() as usize;
        let buckets = (!most).then(|| Buckets { mask: grid.bucket_mask(), numbers });
        selections.push(Selection { leaf, buckets });
    }
    Ok(selections)
}

/// What the servers have, for nodes that are compared with each other.
pub(super) fn tables(
    setting: &Setting<'_>,
    coordinator: &mut Coordinator<'_>,
    grid: &Grid,
    tables: &[usize],
) -> Result<Vec<Sum>, VerifyError> {
    let sited = tables.iter().map(|&table| (setting.catalog.leaves[table].site, table));
    let queues = &Queues::new(setting.workers.sites(), sited);
    let tasks = queues.connections(setting.jobs).into_iter().map(|(site, helpers)| -> Task<'_, Vec<Sum>> {
        Box::new(move || server_sums(setting, grid, queues, site, helpers))
    });
    let mut sums = grid.zeros();
    for share in coordinator.run(&setting.workers, Phase::Compare, 0, tasks.collect())? {
        sums.iter_mut().zip(share).for_each(|(sum, part)| sum.add(part.rows, part.hash));
    }
    Ok(sums)
}

fn both_sides(
    setting: &Setting<'_>,
    coordinator: &mut Coordinator<'_>,
    phase: Phase,
    grid: &Grid,
    leaves: &[usize],
) -> Result<Sides, VerifyError> {
    let cursor = RowCursor::new(setting.content.loaded);
    let sited = leaves.iter().map(|&leaf| (setting.catalog.leaves[leaf].site, leaf));
    let queues = Queues::new(setting.workers.sites(), sited);
    // A backend needs more than twice the time for a row than we do.
    let regenerators = setting.jobs.div_ceil(2);
    let mut tasks: Vec<Task<'_, Share>> = Vec::new();
    let queues = &queues;
    for (site, helpers) in queues.connections(setting.jobs) {
        tasks.push(Box::new(move || server_sums(setting, grid, queues, site, helpers).map(Share::Found)));
    }
    for _ in 0..regenerators {
        tasks.push(Box::new(|| client_sums(setting, grid, &cursor).map(Share::Expected)));
    }
    let mut sides = Sides { expected: grid.zeros(), found: grid.zeros() };
    for share in coordinator.run(&setting.workers, phase, setting.content.loaded, tasks)? {
        let (side, share) = match share {
            Share::Expected(share) => (&mut sides.expected, share),
            Share::Found(share) => (&mut sides.found, share),
        };
        for (sum, part) in side.iter_mut().zip(share) {
            sum.add(part.rows, part.hash);
        }
    }
    Ok(sides)
}

/// What the chunks of a ledger must add up to.
#[derive(Clone, Default)]
pub(super) struct LedgerKeys {
    /// By leaf: rows, and the sum of their keys' hashes.
    pub(super) leaves: Vec<Sum>,
    /// By chunk of so many rows: the sum of their keys' hashes.
    pub(super) chunks: Vec<u64>,
}

pub(super) fn ledger_keys(
    setting: &Setting<'_>,
    coordinator: &mut Coordinator<'_>,
    chunks: Chunks,
) -> Result<LedgerKeys, VerifyError> {
    let content = &setting.content;
    let cursor = RowCursor::new(content.loaded);
    let by_chunk: Vec<AtomicU64> = (0..chunks.count()).map(|_| AtomicU64::new(0)).collect();
    let tasks = (0..setting.jobs).map(|_| -> Task<'_, Vec<Sum>> {
        Box::new(|| {
            let mut sums = vec![Sum::default(); content.route.leaves()];
            while let Some(rows) = cursor.take(&setting.workers)? {
                setting.workers.did(rows.end - rows.start);
                let mut next = rows.start;
                while next < rows.end {
                    let chunk = next / chunks.chunk_rows();
                    let end = chunks.range(chunk).end.min(rows.end);
                    let sum = add_ledger_keys(content.route, content.table, next..end, &mut sums);
                    by_chunk[chunk as usize].fetch_add(sum, Ordering::Relaxed);
                    next = end;
                }
            }
            Ok(sums)
        })
    });
    let mut leaves = vec![Sum::default(); content.route.leaves()];
    for share in coordinator.run(&setting.workers, Phase::Ledger, content.loaded, tasks.collect())? {
        leaves.iter_mut().zip(share).for_each(|(sum, part)| sum.add(part.rows, part.hash));
    }
    Ok(LedgerKeys { leaves, chunks: by_chunk.into_iter().map(AtomicU64::into_inner).collect() })
}

fn client_sums(setting: &Setting<'_>, grid: &Grid, cursor: &RowCursor) -> Result<Vec<Sum>, VerifyError> {
    let mut sums = grid.zeros();
    while let Some(rows) = cursor.take(&setting.workers)? {
        setting.workers.did(rows.end - rows.start);
        add_loaded_rows(grid, setting.content.table, rows, &mut sums);
    }
    Ok(sums)
}

/// `helpers`: what a leaf's scan may use of the server beyond its own backend.
fn server_sums(
    setting: &Setting<'_>,
    grid: &Grid,
    queues: &Queues,
    site: usize,
    helpers: usize,
) -> Result<Vec<Sum>, VerifyError> {
    let mut sums = grid.zeros();
    let mut reader = setting.workers.open(site)?;
    reader.execute(
        "enabling parallel workers",
        &format!("set local max_parallel_workers_per_gather = {helpers}"),
    )?;
    while let Some(leaf) = queues.next(site) {
        setting.workers.check()?;
        let Some(relation) = &setting.catalog.leaves[leaf].relation else { continue };
        let doing = format!("summing up {}", setting.catalog.names[leaf]);
        let columns = column_names();
        let bucket = if grid.buckets() == 1 { "0".to_owned() } else { bucket_sql(grid.bucket_mask()) };
        // As a whole-row reference would, but whatever columns were added, and a little faster.
        let sql = format!(
            "select {bucket}, count(*), coalesce(sum(hash_record_extended(row({columns}), hashtextextended(ycsb_key, 0))), 0)
             from only {relation} group by 1"
        );
        reader.query(&doing, &sql, |row| {
            let value = |column: usize| number(&doing, row.get(column).copied().flatten());
            let cell = grid.cell(leaf, value(0)? as u64);
            // The server's sum is exact; ours is modulo 2^64.
            sums[cell.expect("only leaves with cells are asked for")].add(value(1)? as u64, value(2)? as u64);
            Ok(())
        })?;
    }
    Ok(sums)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_number_their_buckets() {
        let buckets = Buckets { mask: 255, numbers: vec![0, 17] };
        assert_eq!(
            buckets.condition(),
            "coalesce(hashtextextended(ycsb_key, 0) & 255, 0) = any ('{0,17}'::bigint[])"
        );
    }
}

//! Naming rows that are missing, or there more than once.
//!
//! Sums say in which cells there are some. The keys found in those cells are read again and held as sorted row numbers, as many at a
//! time as memory is set aside for; then all rows that must be there pass by once and are looked up.

use std::sync::Mutex;

use data::ycsb::Table;

use super::Setting;
use super::error::VerifyError;
use super::grid::{Grid, expected_key, place_of};
use super::history::Expect;
use super::judge::Findings;
use super::report::DifferenceKind;
use super::rows::{Gap, Judged};
use super::sums::Buckets;
use super::workers::{Coordinator, Phase, Queues, RowCursor, Task};

/// Names what is missing from the gaps and what is doubled in them.
pub(super) fn name(
    setting: &Setting<'_>,
    coordinator: &mut Coordinator<'_>,
    judged: &mut Judged,
) -> Result<(), VerifyError> {
    let gaps = std::mem::take(&mut judged.gaps);
    for batch in batches(&gaps, setting.limits.found_rows) {
        name_batch(setting, coordinator, judged, batch)?;
    }
    Ok(())
}

/// Cuts gaps into runs with at most `limit` rows found, or of one gap.
fn batches(gaps: &[Gap], limit: u64) -> Vec<&[Gap]> {
    let mut batches = Vec::new();
    let (mut start, mut rows) = (0, 0);
    for (index, gap) in gaps.iter().enumerate() {
        if rows + gap.found > limit && index > start {
            batches.push(&gaps[start..index]);
            (start, rows) = (index, 0);
        }
        rows += gap.found;
    }
    if start < gaps.len() {
        batches.push(&gaps[start..]);
    }
    batches
}

fn name_batch(
    setting: &Setting<'_>,
    coordinator: &mut Coordinator<'_>,
    judged: &mut Judged,
    batch: &[Gap],
) -> Result<(), VerifyError> {
    let grid = &judged.grid;
    let mut selected = vec![false; grid.zeros().len()];
    let mut buckets = vec![Vec::new(); setting.catalog.leaves.len()];
    for gap in batch {
        selected[gap.cell] = true;
        let (leaf, bucket) = grid.place(gap.cell);
        if gap.found > 0 {
            buckets[leaf].push(bucket);
        }
    }
    let rows_total = batch.iter().map(|gap| gap.found).sum();
    let found = read_rows(setting, coordinator, grid, &selected, &buckets, rows_total)?;
    for (leaf, rows) in found.iter().enumerate() {
        for copies in rows.chunk_by(|a, b| a == b).filter(|copies| copies.len() > 1) {
            let kind = DifferenceKind::Duplicate { copies: copies.len() as u64 };
            let index = kind.index();
            judged.findings.add(leaf, index, || setting.content.difference(kind, copies[0], leaf));
        }
    }
    let rows_end = setting.content.history.rows_end();
    let cursor = RowCursor::new(rows_end);
    let misplaced = std::mem::take(&mut judged.findings.misplaced);
    let (selected, found, misplaced) = (&selected, &found, &misplaced);
    let tasks = (0..setting.jobs).map(|_| -> Task<'_, Findings> {
        Box::new(|| {
            let content = &setting.content;
            let mut findings = Findings::default();
            while let Some(rows) = cursor.take(&setting.workers)? {
                setting.workers.did(rows.end - rows.start);
                for row in rows {
                    let expected =
                        expected_key(content.route, content.table, content.loaded, content.history, row);
                    let Some((_, place)) = expected else { continue };
                    let cell = grid.cell(place.leaf, place.bucket_hash);
                    let here = cell.is_some_and(|cell| selected[cell]);
                    if !here || found[place.leaf].binary_search(&row).is_ok() {
                        continue;
                    }
                    // A row that stands in another partition is named for that.
                    if misplaced.contains(&row) {
                        findings.not_home.insert(row);
                    } else {
                        findings.add(place.leaf, 0, || {
                            content.difference(DifferenceKind::Missing, row, place.leaf)
                        });
                    }
                }
            }
            Ok(findings)
        })
    });
    let shares = coordinator.run(&setting.workers, Phase::Name, rows_end, tasks.collect())?;
    for share in shares {
        judged.findings.merge(share);
    }
    judged.findings.misplaced = misplaced.clone();
    Ok(())
}

/// The row numbers found in selected cells, by leaf, sorted.
fn read_rows(
    setting: &Setting<'_>,
    coordinator: &mut Coordinator<'_>,
    grid: &Grid,
    selected: &[bool],
    buckets: &[Vec<u64>],
    rows_total: u64,
) -> Result<Vec<Vec<u64>>, VerifyError> {
    let sited = (0..buckets.len())
        .filter(|&leaf| !buckets[leaf].is_empty())
        .map(|leaf| (setting.catalog.leaves[leaf].site, leaf));
    let queues = Queues::new(setting.workers.sites(), sited);
    let found: Vec<Mutex<Vec<u64>>> = buckets.iter().map(|_| Mutex::default()).collect();
    let (queues, found_of) = (&queues, &found);
    let tasks = queues.connections(setting.jobs).into_iter().map(|(site, _)| -> Task<'_, ()> {
        Box::new(move || {
            let mut reader = setting.workers.open(site)?;
            while let Some(leaf) = queues.next(site) {
                let Some(relation) = &setting.catalog.leaves[leaf].relation else { continue };
                let doing = format!("reading keys of {}", setting.catalog.names[leaf]);
                let wanted = Buckets { mask: grid.bucket_mask(), numbers: buckets[leaf].clone() };
                // Without the server's hash all keys come, and the others are dropped here.
                let filter = if setting.catalog.text_hash {
                    format!(" where {}", wanted.condition())
                } else {
                    String::new()
                };
                let sql =
                    format!("copy (select ycsb_key from only {relation}{filter}) to stdout (format binary)");
                let mut rows = Vec::new();
                reader.copy_out(&doing, &sql, |mut tuple| {
                    let key = tuple
                        .next_field()
                        .map_err(|source| VerifyError::Copy { doing: doing.clone(), source })?;
                    if let Some(row) =
                        key.flatten().and_then(|key| home_row(setting, grid, selected, leaf, key))
                    {
                        rows.push(row);
                    }
                    Ok(())
                })?;
                setting.workers.did(rows.len() as u64);
                rows.sort_unstable();
                *found_of[leaf].lock().unwrap_or_else(std::sync::PoisonError::into_inner) = rows;
            }
            Ok(())
        })
    });
    coordinator.run(&setting.workers, Phase::Name, rows_total, tasks.collect())?;
    let unlocked =
        found.into_iter().map(|rows| rows.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner));
    Ok(unlocked.collect())
}

/// The row number of a key that must be in this leaf, if its cell is selected.
fn home_row(setting: &Setting<'_>, grid: &Grid, selected: &[bool], leaf: usize, key: &[u8]) -> Option<u64> {
    let content = &setting.content;
    let table: &Table = content.table;
    let row = table.row_of_key(key)?;
    let must = row < content.loaded || content.history.expects_row(row) == Expect::Present;
    let place = place_of(content.route, key);
    let here = place.leaf == leaf && grid.cell(leaf, place.bucket_hash).is_some_and(|cell| selected[cell]);
    (must && here).then_some(row)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_keep_to_the_limit_and_lose_nothing() {
        let gaps: Vec<Gap> = [3, 3, 3, 9, 1, 0, 0].iter().map(|&found| Gap { cell: 0, found }).collect();
        let sizes: Vec<usize> = batches(&gaps, 6).iter().map(|batch| batch.len()).collect();
        assert_eq!(sizes, [2, 1, 1, 3]);
        assert!(batches(&[], 6).is_empty());
    }
}

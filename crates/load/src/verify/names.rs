//! Names rows that are missing or duplicated.
//!
//! Sums show in which cells there are some. The keys found in those cells are read again and held as sorted row numbers, as many at a
//! time as memory is set aside for; then all rows that must be there pass by once and are looked up.

use std::sync::{Mutex, PoisonError};

use super::Setting;
use super::error::VerifyError;
use super::findings::{Findings, named};
use super::grid::{Numbers, Part, Selection};
use super::rows::{Gap, Judged};
use super::workers::{Coordinator, Phase, Task};
use crate::difference::DifferenceKind;

/// Names what is missing from the gaps and what is doubled in them.
pub(super) fn name(
    setting: &Setting<'_>,
    coordinator: &mut Coordinator<'_>,
    selection: &Selection,
    judged: &mut Judged,
) -> Result<(), VerifyError> {
    let gaps = std::mem::take(&mut judged.gaps);
    for batch in batches(&gaps, setting.limits.found_rows) {
        let cells = Selection::of(selection.grid.clone(), batch.iter().map(|gap| gap.cell));
        let rows_total = batch.iter().map(|gap| gap.found).sum();
        let found = read_rows(setting, coordinator, &cells, rows_total)?;
        name_batch(setting, coordinator, judged, &cells, &found)?;
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
    cells: &Selection,
    found: &[Vec<u64>],
) -> Result<(), VerifyError> {
    for (at, rows) in found.iter().enumerate() {
        for copies in rows.chunk_by(|a, b| a == b).filter(|copies| copies.len() > 1) {
            let leaf = setting.leaf_of(at, copies[0]);
            let kind = DifferenceKind::Duplicate { copies: copies.len() as u64, places: Vec::new() };
            judged.findings.add(leaf, kind, |kind| named(setting, kind, leaf, Some(copies[0]), None));
        }
    }
    let numbers = Numbers::new(setting, cells);
    let misplaced = std::mem::take(&mut judged.findings.misplaced);
    let (numbers, misplaced) = (&numbers, &misplaced);
    let tasks = (0..setting.jobs).map(|_| -> Task<'_, Findings> {
        Box::new(move || {
            let mut findings = Findings::default();
            while let Some((at, cell, rows)) = numbers.take(&setting.workers)? {
                setting.workers.did(setting.content.rows_in(rows.end - rows.start));
                let table = setting.catalog.tables[at].table;
                let is_here = |row: u64| {
                    cell.or_else(|| cells.grid.cell(setting.content, at, table, row))
                        .is_some_and(|cell| cells.chosen[cell])
                };
                for row in rows.filter(|row| setting.content.must_be(table, *row)) {
                    if !is_here(row) || found[at].binary_search(&row).is_ok() {
                        continue;
                    }
                    // A row that stands in another place is named for that.
                    if misplaced.contains(&(at, row)) {
                        findings.not_home.insert(row);
                        continue;
                    }
                    let leaf = setting.leaf_of(at, row);
                    let missing = |kind| named(setting, kind, leaf, Some(row), None);
                    findings.add(leaf, DifferenceKind::Missing, missing);
                }
            }
            Ok(findings)
        })
    });
    let shares =
        coordinator.run(&setting.workers, Phase::Name, numbers.rows(setting.content), tasks.collect())?;
    for share in shares {
        judged.findings.merge(share);
    }
    judged.findings.misplaced = misplaced.clone();
    Ok(())
}

/// The row numbers found in chosen cells, by table, sorted.
fn read_rows(
    setting: &Setting<'_>,
    coordinator: &mut Coordinator<'_>,
    cells: &Selection,
    rows_total: u64,
) -> Result<Vec<Vec<u64>>, VerifyError> {
    let leaves = setting.catalog.leaves.iter().enumerate();
    let pieces =
        leaves.filter(|(_, leaf)| leaf.is_home && leaf.relation.is_some()).flat_map(|(number, leaf)| {
            match cells.part(setting, leaf.at, leaf.partition) {
                Part::Nothing => Vec::new(),
                Part::All => setting.pieces(number, None),
                Part::Where(condition) => setting.pieces(number, Some(&condition)),
            }
        });
    let pieces: Vec<_> = pieces.collect();
    let queues = setting.queues(&pieces);
    let found: Vec<Mutex<Vec<u64>>> = setting.catalog.tables.iter().map(|_| Mutex::default()).collect();
    let (queues, pieces, found_of) = (&queues, &pieces, &found);
    let tasks = queues.connections(setting.jobs).into_iter().map(|(site, _)| -> Task<'_, ()> {
        Box::new(move || {
            let mut reader = setting.workers.open(site)?;
            while let Some(piece) = queues.next(site).map(|number| &pieces[number]) {
                setting.workers.check()?;
                let leaf = &setting.catalog.leaves[piece.leaf];
                let table = setting.catalog.tables[leaf.at].table;
                let Some(relation) = &leaf.relation else { continue };
                let doing = format!("reading keys of {}", setting.catalog.names[piece.leaf]);
                let columns = key_columns(setting, table);
                let sql = format!(
                    "copy (select {columns} from only {relation}{}) to stdout (format binary)",
                    piece.filter()
                );
                let count = columns.split(", ").count();
                let mut rows = Vec::new();
                reader.copy_out(&doing, &sql, |mut tuple| {
                    let mut values = Vec::with_capacity(count);
                    for _ in 0..count {
                        let field = tuple.next_field();
                        let field =
                            field.map_err(|source| VerifyError::Copy { doing: doing.clone(), source })?;
                        values.push(field.flatten());
                    }
                    rows.extend(home_row(setting, cells, piece.leaf, &values));
                    Ok(())
                })?;
                setting.workers.did(rows.len() as u64);
                found_of[leaf.at].lock().unwrap_or_else(PoisonError::into_inner).append(&mut rows);
            }
            Ok(())
        })
    });
    coordinator.run(&setting.workers, Phase::Name, rows_total, tasks.collect())?;
    let sorted = found.into_iter().map(|rows| {
        let mut rows = rows.into_inner().unwrap_or_else(PoisonError::into_inner);
        rows.sort_unstable();
        rows
    });
    Ok(sorted.collect())
}

/// The columns of a table, all but those of its key as nulls.
fn key_columns(setting: &Setting<'_>, table: usize) -> String {
    let table = &setting.content.tables()[table];
    let key = table.key.or(table.named_by).unwrap_or_default();
    let is_key = |name: &str| key.is_empty() || key.split(", ").any(|column| column == name);
    let columns = table.columns.iter().map(|(name, _)| if is_key(name) { name } else { "null::text" });
    columns.collect::<Vec<_>>().join(", ")
}

/// The row number of a key that must be in this leaf, if its cell is chosen.
fn home_row(setting: &Setting<'_>, cells: &Selection, leaf: usize, key: &[Option<&[u8]>]) -> Option<u64> {
    let (content, at) = (setting.content, setting.catalog.leaves[leaf].at);
    let table = setting.catalog.tables[at].table;
    let row = content.number(table, key)?;
    let is_home = content.must_be(table, row) && setting.home_of(leaf, row) == leaf;
    let cell = || cells.grid.cell(content, at, table, row).filter(|cell| cells.chosen[*cell]);
    (is_home && cell().is_some()).then_some(row)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_keep_to_the_limit_and_lose_nothing() {
        let gap = |&found: &u64| Gap { at: 0, cell: 0, found };
        let gaps: Vec<Gap> = [3, 3, 3, 9, 1, 0, 0].iter().map(gap).collect();
        let sizes: Vec<usize> = batches(&gaps, 6).iter().map(|batch| batch.len()).collect();
        assert_eq!(sizes, [2, 1, 1, 3]);
        assert!(batches(&[], 6).is_empty());
    }
}

//! The deep way: rows are read to the client and judged one by one, while the keys that must be there are summed up beside it.

use super::Setting;
use super::error::VerifyError;
use super::grid::{Grid, Sum, add_expected_keys};
use super::judge::{Findings, RowJudge};
use super::sums::Selection;
use super::workers::{Coordinator, Phase, Queues, RowCursor, Task};
use crate::rows::column_names;

/// How often a reading thread looks whether to stop and says how far it is.
const ROWS_PER_CHECK: u64 = 1024;

/// A piece of a leaf: a range of blocks, the last one open ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Piece {
    /// Index into the selections.
    selection: usize,
    blocks: Option<(u64, Option<u64>)>,
}

impl Piece {
    fn condition(&self) -> Option<String> {
        let (from, to) = self.blocks?;
        let to = to.map_or(String::new(), |to| format!(" and ctid < '({to},0)'::tid"));
        Some(format!("ctid >= '({from},0)'::tid{to}"))
    }
}

/// A cell in which the keys found are not those that must be there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Gap {
    pub(super) cell: usize,
    /// Keys found in it.
    pub(super) found: u64,
}

/// What judging rows has shown.
pub(super) struct Judged {
    pub(super) findings: Findings,
    pub(super) grid: Grid,
    /// Where rows are missing or more than once there; their keys are not known yet.
    pub(super) gaps: Vec<Gap>,
    /// Rows that must be there, in the cells selected, by leaf.
    pub(super) expected: Vec<u64>,
    /// Rows that were read, by leaf.
    pub(super) read: Vec<u64>,
}

/// One thread's share.
enum Share {
    Expected(Vec<Sum>),
    Found(Vec<Sum>, Box<Findings>, Vec<u64>),
}

/// Reads and judges what is selected.
pub(super) fn judge(
    setting: &Setting<'_>,
    coordinator: &mut Coordinator<'_>,
    selections: &[Selection],
) -> Result<Judged, VerifyError> {
    let leaves: Vec<usize> = selections.iter().map(|selection| selection.leaf).collect();
    let rows_end = setting.content.history.rows_end();
    let mut grid = Grid::fine(setting.content.route, rows_end, &leaves);
    if let Some(buckets) = selections.iter().find_map(|selection| selection.buckets.as_ref()) {
        // What is left out must be a whole number of cells.
        grid = grid.with_mask(buckets.mask);
    }
    if selections.is_empty() {
        let none = vec![0; setting.catalog.leaves.len()];
        return Ok(Judged {
            findings: Findings::default(),
            grid,
            gaps: Vec::new(),
            expected: none.clone(),
            read: none,
        });
    }
    let pieces = pieces(setting, selections);
    let sited = pieces
        .iter()
        .enumerate()
        .map(|(number, piece)| (setting.catalog.leaves[selections[piece.selection].leaf].site, number));
    let queues = Queues::new(setting.workers.sites(), sited);
    let (queues, pieces, grid_of) = (&queues, &pieces, &grid);
    let cursor = RowCursor::new(rows_end);
    let mut tasks: Vec<Task<'_, Share>> = Vec::new();
    for (site, _) in queues.connections(setting.jobs) {
        tasks.push(Box::new(move || {
            judge_pieces(setting, selections, pieces, queues, site, grid_of)
                .map(|(sums, findings, read)| Share::Found(sums, Box::new(findings), read))
        }));
    }
    // Computing a key takes a small part of the time that reading and judging a row takes.
    for _ in 0..setting.jobs.div_ceil(4) {
        tasks.push(Box::new(|| {
            let mut sums = grid.zeros();
            while let Some(rows) = cursor.take(&setting.workers)? {
                let content = &setting.content;
                add_expected_keys(&grid, content.table, content.loaded, content.history, rows, &mut sums);
            }
            Ok(Share::Expected(sums))
        }));
    }
    let (mut expected, mut found) = (grid.zeros(), grid.zeros());
    let mut findings = Findings::default();
    let mut read = vec![0; setting.catalog.leaves.len()];
    for share in coordinator.run(&setting.workers, Phase::Judge, rows_end, tasks)? {
        let (side, share) = match share {
            Share::Expected(share) => (&mut expected, share),
            Share::Found(share, more, rows) => {
                findings.merge(*more);
                read.iter_mut().zip(rows).for_each(|(read, rows)| *read += rows);
                (&mut found, share)
            }
        };
        for (sum, part) in side.iter_mut().zip(share) {
            sum.add(part.rows, part.hash);
        }
    }
    let selected = selected_cells(&grid, selections);
    let cells = (0..expected.len()).filter(|&cell| selected[cell]);
    let gaps = cells.clone().filter(|&cell| expected[cell] != found[cell]);
    let gaps = gaps.map(|cell| Gap { cell, found: found[cell].rows }).collect();
    let mut rows_expected = vec![0; read.len()];
    for cell in cells {
        // Slots of the grid are in the order of the selections.
        rows_expected[leaves[cell / grid.buckets() as usize]] += expected[cell].rows;
    }
    Ok(Judged { findings, grid, gaps, expected: rows_expected, read })
}

/// Which cells are read at all.
fn selected_cells(grid: &Grid, selections: &[Selection]) -> Vec<bool> {
    let mut selected = vec![false; grid.zeros().len()];
    for Selection { leaf, buckets } in selections {
        let all: Vec<u64>;
        let numbers = match buckets {
            Some(buckets) => &buckets.numbers,
            None => {
                all = (0..grid.buckets()).collect();
                &all
            }
        };
        for &number in numbers {
            selected[grid.cell(*leaf, number).expect("the grid covers the selected leaves")] = true;
        }
    }
    selected
}

/// Cuts what is selected into pieces that connections can read side by side.
fn pieces(setting: &Setting<'_>, selections: &[Selection]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for (selection, Selection { leaf, .. }) in selections.iter().enumerate() {
        let leaf = &setting.catalog.leaves[*leaf];
        if leaf.relation.is_none() {
            continue;
        }
        if !setting.catalog.block_ranges {
            pieces.push(Piece { selection, blocks: None });
            continue;
        }
        let at_once = setting.limits.blocks_at_once;
        let count = leaf.blocks.div_ceil(at_once).max(1);
        pieces.extend((0..count).map(|index| {
            let from = index * at_once;
            let to = (index + 1 < count).then_some(from + at_once);
            Piece { selection, blocks: Some((from, to)) }
        }));
    }
    pieces
}

fn judge_pieces(
    setting: &Setting<'_>,
    selections: &[Selection],
    pieces: &[Piece],
    queues: &Queues,
    site: usize,
    grid: &Grid,
) -> Result<(Vec<Sum>, Findings, Vec<u64>), VerifyError> {
    let mut sums = grid.zeros();
    let mut read = vec![0; setting.catalog.leaves.len()];
    let mut judge = RowJudge::new(setting.content);
    let mut reader = setting.workers.open(site)?;
    let mut unreported = 0;
    while let Some(piece) = queues.next(site).map(|number| &pieces[number]) {
        setting.workers.check()?;
        let Selection { leaf, buckets } = &selections[piece.selection];
        let Some(relation) = &setting.catalog.leaves[*leaf].relation else { continue };
        let doing = format!("reading {}", setting.catalog.names[*leaf]);
        let conditions: Vec<String> = piece
            .condition()
            .into_iter()
            .chain(buckets.as_ref().map(super::sums::Buckets::condition))
            .collect();
        let filter = if conditions.is_empty() {
            String::new()
        } else {
            format!(" where {}", conditions.join(" and "))
        };
        let columns = column_names();
        let sql = format!("copy (select {columns} from only {relation}{filter}) to stdout (format binary)");
        let before = judge.findings.rows_found;
        reader.copy_out(&doing, &sql, |tuple| {
            let home = judge.judge(*leaf, tuple);
            let home = home.map_err(|source| VerifyError::Copy { doing: doing.clone(), source })?;
            if let Some(home) = home.filter(|home| home.must)
                && let Some(cell) = grid.cell(*leaf, home.place.bucket_hash)
            {
                sums[cell].add(1, home.place.bucket_hash);
            }
            unreported += 1;
            if unreported == ROWS_PER_CHECK {
                setting.workers.did(std::mem::take(&mut unreported));
                setting.workers.check()?;
            }
            Ok(())
        })?;
        read[*leaf] += judge.findings.rows_found - before;
    }
    setting.workers.did(unreported);
    Ok((sums, judge.findings, read))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_half_open_and_the_last_one_has_no_end() {
        let condition = |blocks| Piece { selection: 0, blocks }.condition();
        assert_eq!(condition(None), None);
        assert_eq!(
            condition(Some((0, Some(8192)))).unwrap(),
            "ctid >= '(0,0)'::tid and ctid < '(8192,0)'::tid"
        );
        assert_eq!(condition(Some((8192, None))).unwrap(), "ctid >= '(8192,0)'::tid");
    }
}

//! The deep method: rows are read into the client and judged one by one, while the expected row numbers are summed up.

use wire::copy::{CopyError, Fields};

use super::error::VerifyError;
use super::findings::{Findings, OfRow, named};
use super::grid::{Grid, Numbers, Part, Selection};
use super::sums::Share;
use super::workers::{Coordinator, Phase, Queues, Task};
use super::{Piece, Setting};
use crate::dataset::{ByExpectation, Presence, RowJudge, Sum};
use crate::difference::DifferenceKind;

/// How often a reading thread looks whether to stop and reports how far it is.
const ROWS_PER_CHECK: u64 = 1024;
/// The most columns of a table.
const COLUMNS_MAX: usize = 32;

/// A cell in which the rows found are not those that must be there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Gap {
    pub(super) at: usize,
    pub(super) cell: usize,
    /// Rows found in it.
    pub(super) found: u64,
}

/// What judging rows has shown.
#[derive(Default)]
pub(super) struct Judged {
    pub(super) findings: Findings,
    /// Where rows are missing or more than once there; which ones is not known yet.
    pub(super) gaps: Vec<Gap>,
    /// Rows that must be there, by table, and bytes of their values by cell, where only encoding gives them.
    pub(super) expected: Vec<u64>,
    pub(super) bytes: Vec<u64>,
    /// Rows that were read, by leaf.
    pub(super) read: Vec<u64>,
}

/// One thread's share.
enum Reading {
    Side(Share),
    Judged(Share, Box<Findings>),
}

/// The hash of a row's number: its sum distinguishes sets of rows.
fn number_hash(number: u64) -> u64 {
    data::mix::word(1, number)
}

/// Reads and judges what is selected, and all of the tables in which nothing should be.
pub(super) fn judge(
    setting: &Setting<'_>,
    coordinator: &mut Coordinator<'_>,
    selection: &Selection,
) -> Result<Judged, VerifyError> {
    let pieces = pieces(setting, selection);
    let queues = setting.queues(&pieces);
    let (queues, pieces, grid) = (&queues, &pieces, &selection.grid);
    let numbers = Numbers::new(setting, selection);
    let mut tasks: Vec<Task<'_, Reading>> = Vec::new();
    for (site, _) in queues.connections(setting.jobs) {
        tasks.push(Box::new(move || {
            let (share, findings) = judge_pieces(setting, selection, pieces, queues, site)?;
            Ok(Reading::Judged(share, Box::new(findings)))
        }));
    }
    // Adding up numbers takes a small part of the time that reading and judging rows takes.
    for _ in 0..setting.jobs.div_ceil(4) {
        tasks.push(Box::new(|| Ok(Reading::Side(expected(setting, selection, &numbers)?))));
    }
    let (mut sums, mut found) = (grid.zeros(), grid.zeros());
    let (mut bytes, mut read) = (vec![0; sums.len()], vec![0; setting.catalog.leaves.len()]);
    let mut findings = Findings::default();
    for share in coordinator.run(&setting.workers, Phase::Judge, numbers.rows(setting.content), tasks)? {
        let share = match share {
            Reading::Side(share) => share,
            Reading::Judged(share, more) => {
                findings.merge(*more);
                share
            }
        };
        share.add_to((&mut sums, &mut bytes), (&mut found, &mut read));
    }
    let tables = 0..setting.catalog.tables.len();
    let gap = |at: usize, cell: usize| Gap { at, cell, found: found[cell].rows };
    let gaps = tables.clone().flat_map(|at| selection.of_table(at).map(move |cell| (at, cell)));
    let gaps = gaps.filter(|(_, cell)| sums[*cell] != found[*cell]).map(|(at, cell)| gap(at, cell)).collect();
    let expected = tables.map(|at| grid.of_table(at).map(|cell| sums[cell].rows).sum()).collect();
    Ok(Judged { findings, gaps, expected, bytes, read })
}

/// Cuts what is selected into pieces that connections can read side by side.
fn pieces(setting: &Setting<'_>, selection: &Selection) -> Vec<Piece> {
    let leaves = setting.catalog.leaves.iter().enumerate();
    let pieces = leaves.filter(|(_, leaf)| leaf.relation.is_some()).flat_map(|(number, leaf)| {
        let table = &setting.content.tables()[setting.catalog.tables[leaf.at].table];
        match selection.part(setting, leaf.at, leaf.partition) {
            _ if !leaf.is_home => setting.pieces(number, None),
            // Into such a table nothing was loaded: what is in it is the audit's business.
            _ if table.rows == 0 && setting.hashing.is_none() => Vec::new(),
            Part::Nothing => Vec::new(),
            Part::All => setting.pieces(number, None),
            Part::Where(condition) => setting.pieces(number, Some(&condition)),
        }
    });
    pieces.collect()
}

/// Sums up the numbers of rows that must be in the selected cells.
fn expected(
    setting: &Setting<'_>,
    selection: &Selection,
    numbers: &Numbers<'_>,
) -> Result<Share, VerifyError> {
    let (content, grid) = (setting.content, &selection.grid);
    let mut sums = grid.zeros();
    let mut bytes = vec![0; sums.len()];
    while let Some((at, cell, rows)) = numbers.take(&setting.workers)? {
        let table = setting.catalog.tables[at].table;
        match cell {
            // What encoding costs is paid for the bytes, which show the numbers as well.
            Some(cell) if !content.places_bytes() => {
                content.each_loaded(table, rows, &mut |number, tuple| {
                    sums[cell].add(1, number_hash(number));
                    bytes[cell] += tuple.value_bytes();
                })
            }
            Some(cell) => {
                let mut sum = Sum::default();
                for number in rows.filter(|number| content.must_be(table, *number)) {
                    sum.add(1, number_hash(number));
                }
                sums[cell] = sum;
            }
            None => {
                for number in rows.filter(|number| content.must_be(table, *number)) {
                    if let Some(cell) = grid.cell(content, at, table, number) {
                        sums[cell].add(1, number_hash(number));
                    }
                }
            }
        }
    }
    Ok(Share::Expected(sums, bytes))
}

fn judge_pieces(
    setting: &Setting<'_>,
    selection: &Selection,
    pieces: &[Piece],
    queues: &Queues,
    site: usize,
) -> Result<(Share, Findings), VerifyError> {
    let mut sums = selection.grid.zeros();
    let mut read = vec![0; setting.catalog.leaves.len()];
    let mut findings = Findings::default();
    let mut reader = setting.workers.open(site)?;
    let mut unreported = 0;
    while let Some(piece) = queues.next(site).map(|number| &pieces[number]) {
        setting.workers.check()?;
        let leaf = &setting.catalog.leaves[piece.leaf];
        let Some(relation) = &leaf.relation else { continue };
        let number = setting.catalog.tables[leaf.at].table;
        let columns = setting.content.tables()[number].column_list();
        let doing = format!("reading {}", setting.catalog.names[piece.leaf]);
        let sql = format!(
            "copy (select {columns} from only {relation}{}) to stdout (format binary)",
            piece.filter()
        );
        let mut judge = setting
            .content
            .judge(number)
            .unwrap_or_else(|| Box::new(ByExpectation::new(setting.content, number)));
        let mut row =
            Row { setting, leaf: piece.leaf, columns: columns.split(", ").count(), judge: &mut *judge };
        reader.copy_out(&doing, &sql, |tuple| {
            read[piece.leaf] += 1;
            let home = row.judge(tuple, &mut findings);
            let home = home.map_err(|source| VerifyError::Copy { doing: doing.clone(), source })?;
            if let Some(home) = home {
                row.add(&selection.grid, home, &mut sums);
            }
            unreported += 1;
            if unreported == ROWS_PER_CHECK {
                setting.workers.did(std::mem::take(&mut unreported));
                setting.workers.check()?;
            }
            Ok(())
        })?;
    }
    setting.workers.did(unreported);
    Ok((Share::Found(sums, read), findings))
}

/// Judges the rows of one leaf.
struct Row<'a> {
    setting: &'a Setting<'a>,
    leaf: usize,
    columns: usize,
    judge: &'a mut dyn RowJudge,
}

impl Row<'_> {
    /// The number of a row that must be there and is where it belongs.
    fn judge(&mut self, mut tuple: Fields<'_>, findings: &mut Findings) -> Result<Option<u64>, CopyError> {
        let mut values = [None; COLUMNS_MAX];
        for value in &mut values[..self.columns] {
            *value = tuple.next_field()?.ok_or(CopyError::Shape)?;
        }
        if tuple.next_field()?.is_some() {
            return Err(CopyError::Shape);
        }
        let (setting, leaf, found) = (self.setting, self.leaf, &values[..self.columns]);
        let presence = self.judge.judge(found, &mut OfRow { findings, setting, leaf, found });
        let (number, must) = match presence {
            Presence::Extra(why, number) => {
                findings.extra_row(setting, leaf, why, number, found);
                return Ok(None);
            }
            Presence::Must(number) => (number, true),
            Presence::May(number) => (number, false),
        };
        let home = setting.home_of(leaf, number);
        if home == leaf {
            return Ok(must.then_some(number));
        }
        let names = &setting.catalog.names;
        let (here, home) = (&names[leaf], names[home].clone());
        let kind = match home.node == here.node {
            true => DifferenceKind::WrongPartition { home },
            // That it is not at home as well shows when the rows that are missing get their names.
            false => DifferenceKind::WrongNode { home, is_home_too: must },
        };
        findings.add(leaf, kind, |kind| named(setting, kind, leaf, Some(number), Some(found)));
        findings.misplace(setting.catalog.leaves[leaf].at, number);
        Ok(None)
    }

    /// Adds a row to the sum of its cell.
    fn add(&self, grid: &Grid, number: u64, sums: &mut [Sum]) {
        let at = self.setting.catalog.leaves[self.leaf].at;
        let table = self.setting.catalog.tables[at].table;
        if let Some(cell) = grid.cell(self.setting.content, at, table, number) {
            sums[cell].add(1, number_hash(number));
        }
    }
}

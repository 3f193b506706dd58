//! Rows and sums per table and cell, on both sides.
//!
//! Fast, the server sums up hashes of its rows. Deep, it sends the rows: each is compared at once, and what is summed up is the hash of
//! its number, so that missing and doubled rows show.

use std::sync::atomic::{AtomicUsize, Ordering};

use wire::copy::values::Tuples;

use super::content::RowHash;
use super::rows::{Found, Judge};
use super::{Piece, Setting, Source};
use crate::verify::VerifyError;
use crate::verify::grid::Sum;
use crate::verify::workers::{Coordinator, Phase, Task, number};

/// How often a reading thread looks whether to stop and says how far it is.
pub(super) const ROWS_PER_CHECK: u64 = 1024;

/// A range of row numbers of one table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Cell {
    /// A place among the tables that are verified.
    pub(super) at: usize,
    /// The last one is for rows that no load makes.
    pub(super) number: u64,
}

/// Sums of all cells on one side.
#[derive(Debug)]
pub(super) struct Side {
    /// By table: one per cell, and one for rows that no load makes.
    sums: Vec<Vec<Sum>>,
}

impl Side {
    fn new(setting: &Setting<'_>) -> Side {
        let cells = |at: usize| vec![Sum::default(); cells_of(setting, at) as usize + 1];
        Side { sums: (0..setting.tables.len()).map(cells).collect() }
    }

    /// The cell of a row number; `None` is for rows that no load makes.
    fn cell(&self, setting: &Setting<'_>, at: usize, number: Option<u64>) -> Cell {
        let last = self.sums[at].len() as u64 - 1;
        let number = number.map_or(last, |number| (number >> setting.tables[at].shift).min(last));
        Cell { at, number }
    }

    fn add(&mut self, cell: Cell, rows: u64, hash: u64) {
        self.sums[cell.at][cell.number as usize].add(rows, hash);
    }

    fn merge(&mut self, other: &Side) {
        for (sum, part) in self.sums.iter_mut().flatten().zip(other.sums.iter().flatten()) {
            sum.add(part.rows, part.hash);
        }
    }

    fn rows(&self, at: usize) -> u64 {
        self.sums[at].iter().map(|sum| sum.rows).sum()
    }
}

/// Cells of a table that hold loaded rows.
pub(super) fn cells_of(setting: &Setting<'_>, at: usize) -> u64 {
    setting.table(at).rows.div_ceil(1 << setting.tables[at].shift)
}

/// Both sides.
#[derive(Debug)]
pub(super) struct Cells {
    expected: Side,
    found: Side,
}

impl Cells {
    pub(super) fn rows_expected(&self, at: usize) -> u64 {
        self.expected.rows(at)
    }

    pub(super) fn rows_found(&self, at: usize) -> u64 {
        self.found.rows(at)
    }
}

/// What the comparison came to.
#[derive(Debug)]
pub(super) struct Compared {
    pub(super) cells: Cells,
    /// Where the sides differ, in order.
    pub(super) differing: Vec<Cell>,
    /// Of a deep comparison: rows that are not as they were loaded.
    pub(super) found: Found,
}

/// One thread's share.
enum Share {
    Expected(Side),
    Found(Side, Box<Found>),
}

/// The cell of a row in SQL; -1 for rows that no load makes.
pub(super) fn cell_sql(setting: &Setting<'_>, at: usize) -> String {
    let (number, rows) = (setting.content.number_sql(setting.tables[at].table), setting.table(at).rows);
    let shift = setting.tables[at].shift;
    format!("case when {number} >= 0 and {number} < {rows} then ({number}) >> {shift} else -1 end")
}

/// The hash of a row's number: summed up, it tells apart sets of rows.
pub(super) fn number_hash(number: u64) -> u64 {
    data::mix::word(1, number)
}

/// Compares all cells.
pub(super) fn compare(
    setting: &Setting<'_>,
    coordinator: &mut Coordinator<'_>,
    deep: bool,
) -> Result<Compared, VerifyError> {
    // What is in a table into which nothing was loaded is the audit's business.
    let pieces = setting.pieces(|source| setting.table(source.at).rows > 0);
    let queues = setting.queues(&pieces);
    let cells: Vec<Cell> = (0..setting.tables.len())
        .flat_map(|at| (0..cells_of(setting, at)).map(move |number| Cell { at, number }))
        .collect();
    let next_cell = AtomicUsize::new(0);
    let mut tasks: Vec<Task<'_, Share>> = Vec::new();
    for (site, _) in queues.connections(setting.jobs) {
        let (pieces, queues) = (&pieces, &queues);
        tasks.push(Box::new(move || {
            let mut side = Side::new(setting);
            let mut found = Found::default();
            let next = || queues.next(site).map(|number| &pieces[number]);
            if deep {
                read(setting, site, &next, &mut side, &mut found)?;
            } else {
                sum(setting, site, &next, &mut side)?;
            }
            Ok(Share::Found(side, Box::new(found)))
        }));
    }
    // A backend needs several times as long for a row as we do.
    for _ in 0..setting.jobs.div_ceil(2) {
        tasks.push(Box::new(|| {
            let mut side = Side::new(setting);
            while let Some(&cell) = cells.get(next_cell.fetch_add(1, Ordering::Relaxed)) {
                setting.workers.check()?;
                let rows = regenerate(setting, cell, deep, &mut side)?;
                if !deep {
                    setting.workers.did(rows);
                }
            }
            Ok(Share::Expected(side))
        }));
    }
    let mut cells = Cells { expected: Side::new(setting), found: Side::new(setting) };
    let mut found = Found::default();
    let phase = if deep { Phase::Judge } else { Phase::Sum };
    let rows_total = (0..setting.tables.len()).map(|at| setting.table(at).rows).sum();
    for share in coordinator.run(&setting.workers, phase, rows_total, tasks)? {
        match share {
            Share::Expected(side) => cells.expected.merge(&side),
            Share::Found(side, more) => {
                cells.found.merge(&side);
                found.merge(*more);
            }
        }
    }
    let all = (0..setting.tables.len())
        .flat_map(|at| (0..=cells_of(setting, at)).map(move |number| Cell { at, number }));
    let differs = |cell: &Cell| {
        let sum = |side: &Side| side.sums[cell.at][cell.number as usize];
        sum(&cells.expected) != sum(&cells.found)
    };
    let differing = all.filter(differs).collect();
    Ok(Compared { cells, differing, found })
}

/// The row numbers of a cell.
pub(super) fn numbers(setting: &Setting<'_>, cell: Cell) -> std::ops::Range<u64> {
    let (shift, rows) = (setting.tables[cell.at].shift, setting.table(cell.at).rows);
    (cell.number << shift).min(rows)..((cell.number + 1) << shift).min(rows)
}

/// Adds up what must be in a cell: hashes of rows, or of their numbers.
fn regenerate(setting: &Setting<'_>, cell: Cell, deep: bool, side: &mut Side) -> Result<u64, VerifyError> {
    let (table, rows) = (setting.tables[cell.at].table, numbers(setting, cell));
    let mut hash = RowHash::new(setting.table(cell.at));
    let mut tuple = Tuples::new(1 << 10);
    let (mut sum, count) = (0u64, rows.end - rows.start);
    for number in rows {
        sum = sum.wrapping_add(if deep {
            number_hash(number)
        } else {
            tuple.clear();
            setting.content.expect(table, number, &[], &mut tuple);
            let doing = || format!("computing rows of {}", setting.table(cell.at).name);
            hash.of(tuple.payload()).map_err(|source| VerifyError::Copy { doing: doing(), source })?
        });
    }
    side.add(cell, count, sum);
    Ok(count)
}

/// Lets the server sum up piece after piece.
fn sum<'p>(
    setting: &Setting<'_>,
    site: usize,
    next: &dyn Fn() -> Option<&'p Piece>,
    side: &mut Side,
) -> Result<(), VerifyError> {
    let mut reader = setting.workers.open(site)?;
    while let Some(Piece { source, blocks }) = next() {
        setting.workers.check()?;
        let Source { at, relation, .. } = &setting.sources[*source];
        let table = setting.table(*at);
        let doing = format!("summing up {}", table.name);
        let filter = blocks.as_ref().map(|blocks| format!(" where {blocks}")).unwrap_or_default();
        let sql = format!(
            "select {}, count(*), sum(hash_record_extended(row(record_send(row({}))), 0)) from only {relation}{filter} group by 1",
            cell_sql(setting, *at),
            table.column_list()
        );
        reader.query(&doing, &sql, |row| {
            let [cell, rows, hash] = row else {
                return Err(VerifyError::Answer { doing: doing.clone(), answer: format!("{row:?}") });
            };
            let last = side.sums[*at].len() as u64 - 1;
            let cell = u64::try_from(number(&doing, *cell)?).unwrap_or(last).min(last);
            // The sum is exact; its lowest 64 bits are those of the sum modulo 2^64.
            let (rows, hash) = (number(&doing, *rows)? as u64, number(&doing, *hash)? as u64);
            side.add(Cell { at: *at, number: cell }, rows, hash);
            Ok(())
        })?;
    }
    Ok(())
}

/// Reads and judges piece after piece.
fn read<'p>(
    setting: &Setting<'_>,
    site: usize,
    next: &dyn Fn() -> Option<&'p Piece>,
    side: &mut Side,
    found: &mut Found,
) -> Result<(), VerifyError> {
    let mut reader = setting.workers.open(site)?;
    let mut unreported = 0;
    while let Some(Piece { source, blocks }) = next() {
        setting.workers.check()?;
        let Source { at, relation, .. } = &setting.sources[*source];
        let table = setting.table(*at);
        let doing = format!("reading {}", table.name);
        let filter = blocks.as_ref().map(|blocks| format!(" where {blocks}")).unwrap_or_default();
        let columns = table.column_list();
        let sql = format!("copy (select {columns} from only {relation}{filter}) to stdout (format binary)");
        let mut judge = Judge::new(setting, *at, true);
        reader.copy_out(&doing, &sql, |tuple| {
            let row = judge.judge(tuple, found);
            let number = row.map_err(|source| VerifyError::Copy { doing: doing.clone(), source })?;
            let cell = side.cell(setting, *at, number);
            // A stranger is counted; it has been named, and no number misses it.
            side.add(cell, 1, number.map_or(0, number_hash));
            unreported += 1;
            if unreported == ROWS_PER_CHECK {
                setting.workers.did(std::mem::take(&mut unreported));
                setting.workers.check()?;
            }
            Ok(())
        })?;
    }
    setting.workers.did(unreported);
    Ok(())
}

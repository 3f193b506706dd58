//! Rows and sums per table and cell, on both sides.
//!
//! Fast, the server sums up hashes of its rows. Deep, it sends the rows: each is compared at once, and what is summed up is the hash of
//! its number, so that missing and doubled rows show.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

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
    /// The bytes of the values in each cell, of what must be there, where only encoding tells.
    bytes: Vec<Vec<u64>>,
}

impl Side {
    fn new(setting: &Setting<'_>) -> Side {
        let cells = |at: usize| vec![Sum::default(); cells_of(setting, at) as usize + 1];
        let sums: Vec<Vec<Sum>> = (0..setting.tables.len()).map(cells).collect();
        let bytes = match setting.content.places_bytes() {
            true => Vec::new(),
            false => sums.iter().map(|cells| vec![0; cells.len()]).collect(),
        };
        Side { sums, bytes }
    }

    /// The cell of a row number; `None` is for rows that no load makes.
    fn cell(&self, setting: &Setting<'_>, at: usize, number: Option<u64>) -> Cell {
        let last = self.sums[at].len() as u64 - 1;
        let number = number.map_or(last, |number| (number / setting.tables[at].per_cell).min(last));
        Cell { at, number }
    }

    fn add(&mut self, cell: Cell, rows: u64, hash: u64) {
        self.sums[cell.at][cell.number as usize].add(rows, hash);
    }

    fn merge(&mut self, other: &Side) {
        for (sum, part) in self.sums.iter_mut().flatten().zip(other.sums.iter().flatten()) {
            sum.add(part.rows, part.hash);
        }
        for (sum, part) in self.bytes.iter_mut().flatten().zip(other.bytes.iter().flatten()) {
            *sum += part;
        }
    }

    fn rows(&self, at: usize) -> u64 {
        self.sums[at].iter().map(|sum| sum.rows).sum()
    }
}

/// Cells of a table that hold loaded rows.
pub(super) fn cells_of(setting: &Setting<'_>, at: usize) -> u64 {
    setting.table(at).rows.div_ceil(setting.tables[at].per_cell)
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

    /// The bytes of the values that must be in these numbers of a table; `None`: they are not whole cells.
    pub(super) fn bytes_expected(
        &self,
        setting: &Setting<'_>,
        at: usize,
        numbers: Range<u64>,
    ) -> Option<u64> {
        let (per_cell, rows) = (setting.tables[at].per_cell, setting.table(at).rows);
        let is_whole = numbers.start.is_multiple_of(per_cell)
            && (numbers.end.is_multiple_of(per_cell) || numbers.end == rows);
        let cells = (numbers.start / per_cell) as usize..numbers.end.div_ceil(per_cell) as usize;
        is_whole.then(|| self.expected.bytes.get(at)?.get(cells).map(|bytes| bytes.iter().sum())).flatten()
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
    if let Some((sql, _)) = setting.content.cell(setting.tables[at].table) {
        return sql;
    }
    let (number, rows) = (setting.content.number_sql(setting.tables[at].table), setting.table(at).rows);
    let per_cell = setting.tables[at].per_cell;
    format!("case when {number} >= 0 and {number} < {rows} then ({number}) / {per_cell} else -1 end")
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
    // What is in a table into which nothing was loaded is the audit's business; what is misplaced is no part of the tables.
    let pieces = setting.pieces(|source| setting.table(source.at).rows > 0 && source.belongs_to.is_none());
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
    let (per_cell, rows) = (setting.tables[cell.at].per_cell, setting.table(cell.at).rows);
    (cell.number * per_cell).min(rows)..((cell.number + 1) * per_cell).min(rows)
}

/// Adds up what must be in a cell: hashes of rows, or of their numbers.
fn regenerate(setting: &Setting<'_>, cell: Cell, deep: bool, side: &mut Side) -> Result<u64, VerifyError> {
    let (table, rows) = (setting.tables[cell.at].table, numbers(setting, cell));
    let (mut sum, mut count, mut bytes) = (0u64, 0, 0);
    let mut failed = None;
    if deep && setting.content.places_bytes() {
        count = rows.end - rows.start;
        sum = rows.map(number_hash).fold(0, u64::wrapping_add);
    } else {
        let mut hash = RowHash::new(setting.table(cell.at));
        setting.content.each_loaded(table, rows, &mut |number, tuple| {
            count += 1;
            bytes += tuple.value_bytes();
            let hashed = if deep { Ok(number_hash(number)) } else { hash.of(tuple.payload()) };
            match hashed {
                Ok(hash) => sum = sum.wrapping_add(hash),
                Err(error) => failed = Some(error),
            }
        });
    }
    if let Some(source) = failed {
        let doing = format!("computing rows of {}", setting.table(cell.at).name);
        return Err(VerifyError::Copy { doing, source });
    }
    side.add(cell, count, sum);
    if let Some(cells) = side.bytes.get_mut(cell.at) {
        cells[cell.number as usize] += bytes;
    }
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

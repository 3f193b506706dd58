//! Rows and sums per table and warehouse, on both sides.
//!
//! Fast, the server sums up hashes of its rows. Deep, it sends the rows: each is compared at once, and what is summed up is the hash of
//! its place, so that missing and doubled rows show.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};

use data::tpcc::Table;

use super::content::RecordHash;
use super::rows::Judge;
use super::{Piece, Setting, Source, TableAt};
use crate::tpcc::encode::{Placed, Sink, each_row, warehouses_of};
use crate::tpcc::plan;
use crate::tpcc::schema::{column_list, warehouse_column};
use crate::verify::VerifyError;
use crate::verify::grid::Sum;
use crate::verify::tables::Findings;
use crate::verify::workers::{Coordinator, Phase, Task, number};

/// How often a reading thread looks whether to stop and says how far it is.
pub(super) const ROWS_PER_CHECK: u64 = 1024;

/// One table's rows of one warehouse.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Cell {
    /// Index of the table among those that are verified.
    pub(super) at: usize,
    /// The warehouse. 0: the items; in other tables, rows that say they belong to no warehouse of the load.
    pub(super) w_id: u32,
}

/// Sums of all cells on one side.
#[derive(Debug)]
pub(super) struct Side {
    warehouses: u32,
    sums: Vec<Sum>,
    /// By chunk of the ledger, of what must be there: its checksum, and the bytes of its values.
    chunks: Vec<(u64, u64)>,
}

impl Side {
    fn new(setting: &Setting<'_>) -> Side {
        let warehouses = setting.content.warehouses;
        let sums = vec![Sum::default(); setting.tables.len() * (warehouses as usize + 1)];
        Side { warehouses, sums, chunks: vec![(0, 0); plan::chunks(warehouses) as usize] }
    }

    fn index(&self, cell: Cell) -> usize {
        cell.at * (self.warehouses as usize + 1) + cell.w_id as usize
    }

    pub(super) fn add(&mut self, cell: Cell, rows: u64, hash: u64) {
        let index = self.index(cell);
        self.sums[index].add(rows, hash);
    }

    fn merge(&mut self, other: &Side) {
        for (sum, part) in self.sums.iter_mut().zip(&other.sums) {
            sum.add(part.rows, part.hash);
        }
        for (sum, part) in self.chunks.iter_mut().zip(&other.chunks) {
            *sum = (sum.0.wrapping_add(part.0), sum.1 + part.1);
        }
    }

    fn rows(&self, at: usize) -> u64 {
        let first = self.index(Cell { at, w_id: 0 });
        self.sums[first..=first + self.warehouses as usize].iter().map(|sum| sum.rows).sum()
    }
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

    /// What the ledger must say of a chunk, where all tables were judged: its checksum, and the bytes of its values.
    pub(super) fn chunk(&self, chunk: usize) -> Option<(u64, u64)> {
        self.expected.chunks.get(chunk).copied()
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
    /// Of a deep comparison: rows that are not as they should be.
    pub(super) findings: Findings,
}

/// One thread's share.
enum Share {
    Expected(Side),
    Found(Side, Box<Findings>),
}

/// The warehouse of a row in SQL, 0 for rows that say they belong to none of the load's.
pub(super) fn warehouse_sql(table: Table, warehouses: u32) -> String {
    match warehouse_column(table) {
        None => "0".to_owned(),
        Some(column) => format!("case when {column} between 1 and {warehouses} then {column} else 0 end"),
    }
}

/// Compares all cells.
pub(super) fn compare(
    setting: &Setting<'_>,
    coordinator: &mut Coordinator<'_>,
    deep: bool,
    rows_total: u64,
) -> Result<Compared, VerifyError> {
    // What is misplaced is no part of the tables.
    let pieces = setting.pieces(|source| source.belongs_to.is_none());
    let queues = setting.queues(&pieces);
    let cells: Vec<Cell> = (0..setting.tables.len())
        .flat_map(|at| {
            let warehouses = warehouses_of(setting.tables[at].table, setting.content.warehouses);
            warehouses.map(move |w_id| Cell { at, w_id })
        })
        .collect();
    let next_cell = AtomicUsize::new(0);
    let mut tasks: Vec<Task<'_, Share>> = Vec::new();
    for (site, _) in queues.connections(setting.jobs) {
        let (pieces, queues) = (&pieces, &queues);
        tasks.push(Box::new(move || {
            let mut side = Side::new(setting);
            let mut findings = Findings::default();
            let next = || queues.next(site).map(|number| &pieces[number]);
            if deep {
                read(setting, site, &next, &mut side, &mut findings)?;
            } else {
                sum(setting, site, &next, &mut side)?;
            }
            Ok(Share::Found(side, Box::new(findings)))
        }));
    }
    // A backend needs several times as long for a row as we do.
    for _ in 0..setting.jobs.div_ceil(2) {
        tasks.push(Box::new(|| {
            let mut side = Side::new(setting);
            while let Some(&cell) = cells.get(next_cell.fetch_add(1, Ordering::Relaxed)) {
                setting.workers.check()?;
                let rows = regenerate(setting, cell, deep, &mut side);
                if !deep {
                    setting.workers.did(rows);
                }
            }
            Ok(Share::Expected(side))
        }));
    }
    let mut cells = Cells { expected: Side::new(setting), found: Side::new(setting) };
    let mut findings = Findings::default();
    let phase = if deep { Phase::Judge } else { Phase::Sum };
    for share in coordinator.run(&setting.workers, phase, rows_total, tasks)? {
        match share {
            Share::Expected(side) => cells.expected.merge(&side),
            Share::Found(side, more) => {
                cells.found.merge(&side);
                findings.merge(*more);
            }
        }
    }
    let all = (0..setting.tables.len())
        .flat_map(|at| (0..=setting.content.warehouses).map(move |w_id| Cell { at, w_id }));
    let differs = |cell: &Cell| {
        let index = cells.expected.index(*cell);
        cells.expected.sums[index] != cells.found.sums[index]
    };
    let differing = all.filter(differs).collect();
    Ok(Compared { cells, differing, findings })
}

/// Adds up what must be in a cell: hashes of rows, or of places.
struct Regenerated<'a> {
    hash: RecordHash,
    deep: bool,
    chunk: usize,
    cell: Cell,
    side: &'a mut Side,
    rows: u64,
}

impl Sink for Regenerated<'_> {
    type Error = Infallible;

    #[inline]
    fn row<R: Placed>(&mut self, table: Table, row: &R) -> Result<(), Infallible> {
        let (place, hash) = (row.place().hash(table), self.hash.of(row));
        self.side.add(self.cell, 1, if self.deep { place } else { hash });
        let (checksum, bytes) = &mut self.side.chunks[self.chunk];
        *checksum = checksum.wrapping_add(place);
        *bytes += self.hash.value_bytes();
        self.rows += 1;
        Ok(())
    }
}

fn regenerate(setting: &Setting<'_>, cell: Cell, deep: bool, side: &mut Side) -> u64 {
    let table = setting.tables[cell.at].table;
    let part = plan::Part { group: plan::Group::of(table), w_id: cell.w_id };
    let chunk = part.chunk(setting.content.warehouses) as usize;
    let mut regenerated = Regenerated { hash: RecordHash::new(table), deep, chunk, cell, side, rows: 0 };
    let Ok(()) = each_row(&setting.content.population, table, cell.w_id, &mut regenerated);
    regenerated.rows
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
        let table = setting.tables[*at].table;
        let doing = format!("summing up {}", table.name());
        let filter = blocks.as_ref().map(|blocks| format!(" where {blocks}")).unwrap_or_default();
        let sql = format!(
            "select {}, count(*), sum(hash_record_extended(row(record_send(row({}))), 0)) from only {relation}{filter} group by 1",
            warehouse_sql(table, setting.content.warehouses),
            column_list(table)
        );
        reader.query(&doing, &sql, |row| {
            let [w_id, rows, hash] = row else {
                return Err(VerifyError::Answer { doing: doing.clone(), answer: format!("{row:?}") });
            };
            let w_id = number(&doing, *w_id)? as u32;
            // The sum is exact; its lowest 64 bits are those of the sum modulo 2^64.
            let (rows, hash) = (number(&doing, *rows)? as u64, number(&doing, *hash)? as u64);
            side.add(Cell { at: *at, w_id: w_id.min(setting.content.warehouses) }, rows, hash);
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
    findings: &mut Findings,
) -> Result<(), VerifyError> {
    let mut reader = setting.workers.open(site)?;
    let mut unreported = 0;
    while let Some(Piece { source, blocks }) = next() {
        setting.workers.check()?;
        let Source { at, relation, .. } = &setting.sources[*source];
        let TableAt { table, node } = &setting.tables[*at];
        let table = *table;
        let doing = format!("reading {}", table.name());
        let filter = blocks.as_ref().map(|blocks| format!(" where {blocks}")).unwrap_or_default();
        let columns = column_list(table);
        let sql = format!("copy (select {columns} from only {relation}{filter}) to stdout (format binary)");
        let mut judge = Judge::new(&setting.content, table, node.as_deref(), true);
        reader.copy_out(&doing, &sql, |tuple| {
            let place = judge.judge(tuple, findings);
            match place.map_err(|source| VerifyError::Copy { doing: doing.clone(), source })? {
                Some(place) => side.add(Cell { at: *at, w_id: place.w_id }, 1, place.hash(table)),
                // Counted; it has been named, and no place misses it.
                None => side.add(Cell { at: *at, w_id: 0 }, 1, 0),
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
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_no_warehouse_are_in_cell_0() {
        assert_eq!(
            warehouse_sql(Table::Stock, 10),
            "case when s_w_id between 1 and 10 then s_w_id else 0 end"
        );
        assert_eq!(warehouse_sql(Table::Item, 10), "0");
    }
}

//! Judging rows one by one, and naming the ones that are missing or there too often.

use std::sync::atomic::{AtomicU64, Ordering};

use wire::copy::values::Tuples;
use wire::copy::{CopyError, Fields};

use super::content::condition;
use super::sums::{Cell, ROWS_PER_CHECK, cell_sql, cells_of, numbers};
use super::{DifferenceKind, Findings, Piece, Setting, Source};
use crate::dataset::{Expected, Table};
use crate::verify::VerifyError;
use crate::verify::workers::{Coordinator, Phase, Task};

/// What judging rows came to.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) findings: Findings,
    /// Rows that runs have changed or inserted, and that are as a run leaves them.
    pub(super) written: u64,
}

impl Found {
    pub(super) fn merge(&mut self, other: Found) {
        self.findings.merge(other.findings);
        self.written += other.written;
    }
}

/// Compares rows of one table with what they must be.
pub(super) struct Judge<'a> {
    setting: &'a Setting<'a>,
    at: usize,
    table: &'a Table,
    /// Whether values are compared, or only numbers looked for.
    values: bool,
    expected: Tuples,
}

impl<'a> Judge<'a> {
    pub(super) fn new(setting: &'a Setting<'a>, at: usize, values: bool) -> Judge<'a> {
        let table = setting.table(at);
        Judge { setting, at, table, values, expected: Tuples::new(1 << 10) }
    }

    /// The number of a row that was found; `None` for one that no load made. What is wrong with it goes into `found`.
    pub(super) fn judge(
        &mut self,
        mut tuple: Fields<'_>,
        found: &mut Found,
    ) -> Result<Option<u64>, CopyError> {
        let mut values = Vec::with_capacity(self.table.columns.len());
        for _ in &self.table.columns {
            values.push(tuple.next_field()?.ok_or(CopyError::Shape)?);
        }
        let (content, table) = (self.setting.content, self.setting.tables[self.at].table);
        let node = self.setting.tables[self.at].node.as_deref();
        let number = content.number(table, &values);
        let loaded = number.filter(|number| *number < self.table.rows);
        if !self.values {
            return Ok(loaded.filter(|number| content.is_row(table, *number)));
        }
        self.expected.clear();
        let expected = number
            .map_or(Expected::Stranger, |number| content.expect(table, number, &values, &mut self.expected));
        if expected == Expected::Stranger {
            found
                .findings
                .add(DifferenceKind::Stranger, self.table.name, node, || condition(self.table, &values));
            return Ok(None);
        }
        let (wrong, is_changed) = self.wrong_columns(&values)?;
        if wrong.is_empty() {
            found.written += u64::from(is_changed || expected == Expected::Written);
        } else {
            let kind = DifferenceKind::Damaged { columns: wrong };
            found.findings.add(kind, self.table.name, node, || condition(self.table, &values));
        }
        Ok(loaded)
    }

    /// The names of columns that differ from the expected tuple and may not, and whether others do.
    fn wrong_columns(&self, found: &[Option<&[u8]>]) -> Result<(Vec<&'static str>, bool), CopyError> {
        let mut expected = Fields::parse(self.expected.payload())?.ok_or(CopyError::Shape)?;
        let (mut wrong, mut is_changed) = (Vec::new(), false);
        for (column, value) in found.iter().enumerate() {
            if expected.next_field()?.ok_or(CopyError::Shape)? == *value {
                continue;
            }
            let name = self.table.columns[column].0;
            match self.table.mutable.contains(&name) && value.is_some() {
                true => is_changed = true,
                false => wrong.push(name),
            }
        }
        Ok((wrong, is_changed))
    }
}

/// Cells of one table that are read together.
#[derive(Debug)]
struct Batch {
    at: usize,
    cells: Vec<u64>,
}

/// Cuts cells into batches of one table each and of so many numbers at most, or of one cell.
fn batches(setting: &Setting<'_>, cells: &[Cell]) -> Vec<Batch> {
    let mut batches: Vec<Batch> = Vec::new();
    for cell in cells {
        let per_cell = setting.tables[cell.at].per_cell;
        match batches.last_mut() {
            Some(batch)
                if batch.at == cell.at
                    && (batch.cells.len() as u64 + 1) * per_cell <= setting.limits.numbers =>
            {
                batch.cells.push(cell.number);
            }
            _ => batches.push(Batch { at: cell.at, cells: vec![cell.number] }),
        }
    }
    batches
}

/// A bit for each row number of some cells of one table.
struct Marks<'a> {
    cells: &'a [u64],
    per_cell: u64,
    words_per_cell: usize,
    words: Vec<AtomicU64>,
}

impl<'a> Marks<'a> {
    fn new(cells: &'a [u64], per_cell: u64) -> Marks<'a> {
        let words_per_cell = per_cell.div_ceil(64) as usize;
        let words = (0..words_per_cell * cells.len()).map(|_| AtomicU64::new(0)).collect();
        Marks { cells, per_cell, words_per_cell, words }
    }

    fn bit(&self, number: u64) -> Option<(&AtomicU64, u64)> {
        let cell = self.cells.binary_search(&(number / self.per_cell)).ok()?;
        let within = number % self.per_cell;
        Some((&self.words[cell * self.words_per_cell + (within / 64) as usize], 1 << (within % 64)))
    }

    /// Marks a number; `false` when it was marked already.
    fn mark(&self, number: u64) -> bool {
        self.bit(number).is_none_or(|(word, bit)| word.fetch_or(bit, Ordering::Relaxed) & bit == 0)
    }

    fn is_marked(&self, number: u64) -> bool {
        self.bit(number).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
    }
}

/// Reads the cells that differ, and names rows that are missing or there too often; with `values` also those that are damaged or
/// strangers.
pub(super) fn name(
    setting: &Setting<'_>,
    coordinator: &mut Coordinator<'_>,
    cells: &[Cell],
    values: bool,
) -> Result<Found, VerifyError> {
    let mut found = Found::default();
    for batch in batches(setting, cells) {
        let (table, per_cell) = (setting.table(batch.at), setting.tables[batch.at].per_cell);
        let marks = Marks::new(&batch.cells, per_cell);
        let pieces = setting.pieces(|source| source.at == batch.at && source.belongs_to.is_none());
        let queues = setting.queues(&pieces);
        let rows_total = batch.cells.len() as u64 * per_cell;
        let tasks = queues.connections(setting.jobs).into_iter().map(|(site, _)| -> Task<'_, Found> {
            let (batch, marks, pieces, queues) = (&batch, &marks, &pieces, &queues);
            Box::new(move || {
                let next = || queues.next(site).map(|number| &pieces[number]);
                read(setting, site, batch, marks, &next, values)
            })
        });
        for share in coordinator.run(&setting.workers, Phase::Name, rows_total, tasks.collect())? {
            found.merge(share);
        }
        let node = setting.tables[batch.at].node.as_deref();
        for &number in &batch.cells {
            setting.workers.check()?;
            let is_row = |row: &u64| setting.content.is_row(setting.tables[batch.at].table, *row);
            let unmarked =
                numbers(setting, Cell { at: batch.at, number }).filter(|row| !marks.is_marked(*row));
            for row in unmarked.filter(is_row) {
                found
                    .findings
                    .add(DifferenceKind::Missing, table.name, node, || row_of(setting, batch.at, row));
            }
        }
    }
    Ok(found)
}

/// A row that should be there, by its key.
fn row_of(setting: &Setting<'_>, at: usize, number: u64) -> String {
    let mut tuple = Tuples::new(1 << 10);
    setting.content.expect(setting.tables[at].table, number, &[], &mut tuple);
    let fields = || -> Option<Vec<Option<&[u8]>>> {
        let mut fields = Fields::parse(tuple.payload()).ok()??;
        setting.table(at).columns.iter().map(|_| fields.next_field().ok()?).collect()
    };
    fields().map_or_else(|| format!("row {number}"), |fields| condition(setting.table(at), &fields))
}

/// Reads pieces of the batch's table.
fn read<'p>(
    setting: &Setting<'_>,
    site: usize,
    batch: &Batch,
    marks: &Marks<'_>,
    next: &dyn Fn() -> Option<&'p Piece>,
    values: bool,
) -> Result<Found, VerifyError> {
    let mut found = Found::default();
    let mut reader = setting.workers.open(site)?;
    let (table, node) = (setting.table(batch.at), setting.tables[batch.at].node.as_deref());
    let mut judge = Judge::new(setting, batch.at, values);
    let mut unreported = 0;
    let doing = format!("reading {}", table.name);
    // The cell behind the last one holds what no load makes.
    let outside = cells_of(setting, batch.at);
    let wanted: Vec<String> = batch
        .cells
        .iter()
        .map(|cell| if *cell == outside { "-1".to_owned() } else { cell.to_string() })
        .collect();
    let wanted = format!("{} = any ('{{{}}}'::bigint[])", cell_sql(setting, batch.at), wanted.join(","));
    while let Some(Piece { source, blocks }) = next() {
        setting.workers.check()?;
        let relation = &setting.sources[*source].relation;
        let conditions: Vec<&str> = blocks.as_deref().into_iter().chain([wanted.as_str()]).collect();
        let sql = format!(
            "copy (select {} from only {relation} where {}) to stdout (format binary)",
            table.column_list(),
            conditions.join(" and ")
        );
        reader.copy_out(&doing, &sql, |tuple| {
            let number = judge.judge(tuple, &mut found);
            let number = number.map_err(|source| VerifyError::Copy { doing: doing.clone(), source })?;
            if let Some(number) = number.filter(|number| !marks.mark(*number)) {
                let name = || row_of(setting, batch.at, number);
                found.findings.add(DifferenceKind::Duplicate, table.name, node, name);
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
    Ok(found)
}

/// Names the rows that nodes have in leaves of others.
pub(super) fn misplaced(
    setting: &Setting<'_>,
    coordinator: &mut Coordinator<'_>,
) -> Result<Found, VerifyError> {
    let pieces = setting.pieces(|source| source.belongs_to.is_some());
    let mut found = Found::default();
    if pieces.is_empty() {
        return Ok(found);
    }
    let queues = setting.queues(&pieces);
    let tasks = queues.connections(setting.jobs).into_iter().map(|(site, _)| -> Task<'_, Found> {
        let (pieces, queues) = (&pieces, &queues);
        Box::new(move || {
            let next = || queues.next(site).map(|number| &pieces[number]);
            read_misplaced(setting, site, &next)
        })
    });
    for share in coordinator.run(&setting.workers, Phase::Name, 0, tasks.collect())? {
        found.merge(share);
    }
    Ok(found)
}

fn read_misplaced<'p>(
    setting: &Setting<'_>,
    site: usize,
    next: &dyn Fn() -> Option<&'p Piece>,
) -> Result<Found, VerifyError> {
    let mut found = Found::default();
    let mut reader = setting.workers.open(site)?;
    while let Some(Piece { source, blocks }) = next() {
        setting.workers.check()?;
        let Source { at, relation, belongs_to, .. } = &setting.sources[*source];
        let table = setting.table(*at);
        let doing = format!("reading {}", table.name);
        let filter = blocks.as_ref().map(|blocks| format!(" where {blocks}")).unwrap_or_default();
        let columns = table.column_list();
        let sql = format!("copy (select {columns} from only {relation}{filter}) to stdout (format binary)");
        reader.copy_out(&doing, &sql, |mut tuple| {
            // Which row it says it is; whether the load made such a row does not matter here.
            let failed = |source| VerifyError::Copy { doing: doing.clone(), source };
            let mut values = Vec::with_capacity(table.columns.len());
            for _ in &table.columns {
                values.push(tuple.next_field().map_err(failed)?.ok_or_else(|| failed(CopyError::Shape))?);
            }
            let kind = DifferenceKind::Misplaced { belongs_to: belongs_to.clone().unwrap_or_default() };
            let node = Some(setting.names[site].as_str());
            found.findings.add(kind, table.name, node, || condition(table, &values));
            Ok(())
        })?;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_marked_once() {
        let cells = [2, 5];
        let marks = Marks::new(&cells, 1024);
        for number in [2048, 2048 + 63, 2048 + 64, 3071, 5120, 6143] {
            assert!(!marks.is_marked(number));
            assert!(marks.mark(number), "{number}");
            assert!(!marks.mark(number) && marks.is_marked(number));
        }
        assert!(!marks.is_marked(2049));
        assert!(marks.mark(1), "a number of another batch is nobody's duplicate");
    }
}

//! Judging rows one by one, and naming the ones that are missing or there too often.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};

use data::tpcc::Table;
use wire::copy::values::Tuples;
use wire::copy::{CopyError, Fields};

use super::content::{Content, IDS_MAX, condition, ids};
use super::sums::{Cell, ROWS_PER_CHECK, warehouse_sql};
use super::{Piece, Setting, Source};
use crate::tpcc::encode::{Place, Placed, Sink, each_row, numbers, push, row_at};
use crate::tpcc::schema::{column_list, columns};
use crate::verify::VerifyError;
use crate::verify::tables::{DifferenceKind, Findings};
use crate::verify::workers::{Coordinator, Phase, Task};

/// The most columns of a table.
const COLUMNS_MAX: usize = 21;
const _: () = assert!(<data::tpcc::rows::Customer as data::tpcc::rows::Row>::COLUMNS == COLUMNS_MAX);

/// Compares rows of one table with what they must be.
pub(super) struct Judge<'a> {
    content: &'a Content,
    table: Table,
    /// Whose copy it is, where every node has one.
    node: Option<&'a str>,
    /// Whether values are compared, or only places looked for.
    values: bool,
    expected: Expected,
    /// The columns in front of the last row, which say which it is.
    ids: [Option<i32>; IDS_MAX],
}

/// The one tuple that must be there.
struct Expected(Tuples);

impl Sink for Expected {
    type Error = Infallible;

    fn row<R: Placed>(&mut self, _: Table, row: &R) -> Result<(), Infallible> {
        self.0.clear();
        push(&mut self.0, row);
        Ok(())
    }
}

impl<'a> Judge<'a> {
    pub(super) fn new(content: &'a Content, table: Table, node: Option<&'a str>, values: bool) -> Judge<'a> {
        Judge { content, table, node, values, expected: Expected(Tuples::new(1 << 10)), ids: [None; IDS_MAX] }
    }

    /// The place of a row that was found; `None` for a stranger. Values that differ and strangers go into `findings`.
    pub(super) fn judge(
        &mut self,
        mut tuple: Fields<'_>,
        findings: &mut Findings,
    ) -> Result<Option<Place>, CopyError> {
        let mut found = [None; COLUMNS_MAX];
        let names = columns(self.table);
        for value in &mut found[..names.len()] {
            *value = tuple.next_field()?.ok_or(CopyError::Shape)?;
        }
        for (id, value) in self.ids.iter_mut().zip(found).take(ids(self.table)) {
            *id = value.and_then(|bytes| Some(i32::from_be_bytes(bytes.try_into().ok()?)));
        }
        let population = &self.content.population;
        let place = self.content.place(self.table, &self.ids);
        let made = place.and_then(|place| row_at(population, self.table, place, &mut self.expected));
        let Some(Ok(())) = made else {
            if self.values {
                findings.add(DifferenceKind::Stranger, self.table.name(), self.node, || self.row());
            }
            return Ok(None);
        };
        if self.values {
            let wrong = self.wrong_columns(&found[..names.len()])?;
            if !wrong.is_empty() {
                let kind = DifferenceKind::Damaged { columns: wrong };
                findings.add(kind, self.table.name(), self.node, || self.row());
            }
        }
        Ok(place)
    }

    /// The last row, as [`condition`] names it.
    pub(super) fn row(&self) -> String {
        condition(self.table, &self.ids)
    }

    /// The names of columns that differ from the expected tuple.
    fn wrong_columns(&self, found: &[Option<&[u8]>]) -> Result<Vec<&'static str>, CopyError> {
        let mut expected = Fields::parse(self.expected.0.payload())?.ok_or(CopyError::Shape)?;
        let mut wrong = Vec::new();
        for (value, (name, _)) in found.iter().zip(columns(self.table)) {
            if expected.next_field()?.ok_or(CopyError::Shape)? != *value {
                wrong.push(*name);
            }
        }
        Ok(wrong)
    }
}

/// Cells of one table that are read together.
#[derive(Debug)]
struct Batch {
    at: usize,
    warehouses: Vec<u32>,
}

/// Cuts cells into batches of one table each and of so many places at most, or of one cell.
fn batches(setting: &Setting<'_>, cells: &[Cell]) -> Vec<Batch> {
    let mut batches: Vec<Batch> = Vec::new();
    for cell in cells {
        let per_cell = u64::from(numbers(setting.tables[cell.at].table));
        match batches.last_mut() {
            Some(batch)
                if batch.at == cell.at
                    && (batch.warehouses.len() as u64 + 1) * per_cell <= setting.limits.places =>
            {
                batch.warehouses.push(cell.w_id);
            }
            _ => batches.push(Batch { at: cell.at, warehouses: vec![cell.w_id] }),
        }
    }
    batches
}

/// A bit for each place of some cells of one table.
struct Marks {
    table: Table,
    warehouses: Vec<u32>,
    words_per_cell: usize,
    words: Vec<AtomicU64>,
}

impl Marks {
    fn new(table: Table, batch: &Batch) -> Marks {
        let words_per_cell = (numbers(table) as usize).div_ceil(64);
        let words = (0..words_per_cell * batch.warehouses.len()).map(|_| AtomicU64::new(0)).collect();
        Marks { table, warehouses: batch.warehouses.clone(), words_per_cell, words }
    }

    fn bit(&self, place: Place) -> Option<(&AtomicU64, u64)> {
        let cell = self.warehouses.binary_search(&place.w_id).ok()?;
        let word = cell * self.words_per_cell + (place.number / 64) as usize;
        Some((&self.words[word], 1 << (place.number % 64)))
    }

    /// Marks a place; `false` when it was marked already.
    fn mark(&self, place: Place) -> bool {
        self.bit(place).is_none_or(|(word, bit)| word.fetch_or(bit, Ordering::Relaxed) & bit == 0)
    }

    fn is_marked(&self, place: Place) -> bool {
        self.bit(place).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
    }
}

/// Notes which places have no mark.
struct Unmarked<'a> {
    marks: &'a Marks,
    node: Option<&'a str>,
    findings: &'a mut Findings,
}

impl Sink for Unmarked<'_> {
    type Error = Infallible;

    fn row<R: Placed>(&mut self, table: Table, row: &R) -> Result<(), Infallible> {
        if !self.marks.is_marked(row.place()) {
            let mut front = Front::default();
            row.columns(&mut front);
            self.findings
                .add(DifferenceKind::Missing, table.name(), self.node, || condition(table, &front.ids));
        }
        Ok(())
    }
}

/// The columns in front of a row.
#[derive(Default)]
struct Front {
    ids: [Option<i32>; IDS_MAX],
    column: usize,
}

impl Front {
    fn take(&mut self, value: Option<i32>) {
        if let Some(id) = self.ids.get_mut(self.column) {
            *id = value;
        }
        self.column += 1;
    }
}

impl data::tpcc::rows::Columns for Front {
    fn int(&mut self, value: i32) {
        self.take(Some(value));
    }
    fn numeric(&mut self, _: i64, _: u8) {
        self.take(None);
    }
    fn text(&mut self, _: &[u8]) {
        self.take(None);
    }
    fn time_us(&mut self, _: i64) {
        self.take(None);
    }
    fn null(&mut self) {
        self.take(None);
    }
}

/// Reads the cells that differ, and names rows that are missing or there too often; with `values` also those that are damaged or
/// strangers.
pub(super) fn name(
    setting: &Setting<'_>,
    coordinator: &mut Coordinator<'_>,
    cells: &[Cell],
    values: bool,
) -> Result<Findings, VerifyError> {
    let mut findings = Findings::default();
    for batch in batches(setting, cells) {
        let table = setting.tables[batch.at].table;
        let marks = Marks::new(table, &batch);
        let node = setting.tables[batch.at].node.as_deref();
        let pieces = setting.pieces(|source| source.at == batch.at && source.belongs_to.is_none());
        let queues = setting.queues(&pieces);
        let rows_total = u64::from(numbers(table)) * batch.warehouses.len() as u64;
        let tasks = queues.connections(setting.jobs).into_iter().map(|(site, _)| -> Task<'_, Findings> {
            let (batch, marks, pieces, queues) = (&batch, &marks, &pieces, &queues);
            Box::new(move || {
                let next = || queues.next(site).map(|number| &pieces[number]);
                read(setting, site, batch, marks, &next, values)
            })
        });
        for share in coordinator.run(&setting.workers, Phase::Name, rows_total, tasks.collect())? {
            findings.merge(share);
        }
        for &w_id in batch.warehouses.iter().filter(|w_id| table == Table::Item || **w_id > 0) {
            setting.workers.check()?;
            let mut unmarked = Unmarked { marks: &marks, node, findings: &mut findings };
            let Ok(()) = each_row(&setting.content.population, table, w_id, &mut unmarked);
        }
    }
    Ok(findings)
}

/// Reads pieces of the batch's table.
fn read<'p>(
    setting: &Setting<'_>,
    site: usize,
    batch: &Batch,
    marks: &Marks,
    next: &dyn Fn() -> Option<&'p Piece>,
    values: bool,
) -> Result<Findings, VerifyError> {
    let mut findings = Findings::default();
    let mut reader = setting.workers.open(site)?;
    let node = setting.tables[batch.at].node.as_deref();
    let mut judge = Judge::new(&setting.content, marks.table, node, values);
    let mut unreported = 0;
    let doing = format!("reading {}", marks.table.name());
    let wanted: Vec<String> = batch.warehouses.iter().map(u32::to_string).collect();
    let wanted = format!(
        "{} = any ('{{{}}}'::int[])",
        warehouse_sql(marks.table, setting.content.warehouses),
        wanted.join(",")
    );
    while let Some(Piece { source, blocks }) = next() {
        setting.workers.check()?;
        let relation = &setting.sources[*source].relation;
        let conditions: Vec<&str> = blocks.as_deref().into_iter().chain([wanted.as_str()]).collect();
        let sql = format!(
            "copy (select {} from only {relation} where {}) to stdout (format binary)",
            column_list(marks.table),
            conditions.join(" and ")
        );
        reader.copy_out(&doing, &sql, |tuple| {
            let place = judge.judge(tuple, &mut findings);
            let place = place.map_err(|source| VerifyError::Copy { doing: doing.clone(), source })?;
            if place.is_some_and(|place| !marks.mark(place)) {
                findings.add(DifferenceKind::Duplicate, marks.table.name(), node, || judge.row());
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
    Ok(findings)
}

/// Names the rows that nodes have of warehouses of others.
pub(super) fn misplaced(
    setting: &Setting<'_>,
    coordinator: &mut Coordinator<'_>,
) -> Result<Findings, VerifyError> {
    let pieces = setting.pieces(|source| source.belongs_to.is_some());
    let mut findings = Findings::default();
    if pieces.is_empty() {
        return Ok(findings);
    }
    let queues = setting.queues(&pieces);
    let tasks = queues.connections(setting.jobs).into_iter().map(|(site, _)| -> Task<'_, Findings> {
        let (pieces, queues) = (&pieces, &queues);
        Box::new(move || {
            let next = || queues.next(site).map(|number| &pieces[number]);
            read_misplaced(setting, site, &next)
        })
    });
    for share in coordinator.run(&setting.workers, Phase::Name, 0, tasks.collect())? {
        findings.merge(share);
    }
    Ok(findings)
}

fn read_misplaced<'p>(
    setting: &Setting<'_>,
    site: usize,
    next: &dyn Fn() -> Option<&'p Piece>,
) -> Result<Findings, VerifyError> {
    let mut findings = Findings::default();
    let mut reader = setting.workers.open(site)?;
    while let Some(Piece { source, blocks }) = next() {
        setting.workers.check()?;
        let Source { at, relation, belongs_to, .. } = &setting.sources[*source];
        let table = setting.tables[*at].table;
        let doing = format!("reading {}", table.name());
        let filter = blocks.as_ref().map(|blocks| format!(" where {blocks}")).unwrap_or_default();
        let columns = column_list(table);
        let sql = format!("copy (select {columns} from only {relation}{filter}) to stdout (format binary)");
        let mut judge = Judge::new(&setting.content, table, None, false);
        let mut ignored = Findings::default();
        reader.copy_out(&doing, &sql, |tuple| {
            // Which row it says it is; whether the load made such a row does not matter here.
            let place = judge.judge(tuple, &mut ignored);
            place.map_err(|source| VerifyError::Copy { doing: doing.clone(), source })?;
            let node = setting.name_of(site);
            let kind = DifferenceKind::Misplaced { belongs_to: belongs_to.clone().unwrap_or_default() };
            findings.add(kind, table.name(), Some(node), || judge.row());
            Ok(())
        })?;
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_marked_once() {
        let batch = Batch { at: 0, warehouses: vec![2, 5] };
        let marks = Marks::new(Table::Stock, &batch);
        for w_id in [2, 5] {
            for number in [0, 63, 64, 99_999] {
                let place = Place { w_id, number };
                assert!(!marks.is_marked(place));
                assert!(marks.mark(place), "{place:?}");
                assert!(!marks.mark(place) && marks.is_marked(place));
            }
        }
        assert!(!marks.is_marked(Place { w_id: 2, number: 1 }));
        assert!(marks.mark(Place { w_id: 3, number: 0 }), "a place of another batch is nobody's duplicate");
    }
}

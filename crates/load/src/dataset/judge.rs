//! Judging rows that were found.

use wire::copy::Fields;
use wire::copy::values::Tuples;

use super::{Dataset, Expected, Table};
use crate::difference::{DifferenceKind, ExtraReason};

/// Whether a row that was found should be there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Presence {
    /// The row of this number must be there.
    Must(u64),
    /// It may be there.
    May(u64),
    /// No load and no run made it. If it is known, its number.
    Extra(ExtraReason, Option<u64>),
}

/// Takes what is wrong with the values of a row, and what is right and worth counting.
pub trait Verdicts {
    /// The row of this number is wrong in this way.
    fn wrong(&mut self, number: u64, kind: DifferenceKind);

    /// The same of a value that is not merely a damaged one of its place: it may be that of another place.
    fn alien(&mut self, number: u64, kind: DifferenceKind, column: usize, value: &[u8]);

    /// So many values, or a whole row, are as a run left them.
    fn accepted(&mut self, count: u64);

    /// It is not known whether the row was committed.
    fn uncertain(&mut self);

    /// A valid value, but it is unknown whether it is the last one.
    fn unjudged(&mut self, why: &'static str);
}

/// Judges rows of one table. Each thread has one of its own.
pub trait RowJudge {
    /// Judges a row by its columns in binary form.
    fn judge(&mut self, found: &[Option<&[u8]>], verdicts: &mut dyn Verdicts) -> Presence;
}

/// Compares rows with what [`Dataset::expect`] makes of their number.
pub(crate) struct ByExpectation<'a> {
    content: &'a dyn Dataset,
    number: usize,
    table: &'a Table,
    expected: Tuples,
}

impl<'a> ByExpectation<'a> {
    /// For rows of this table.
    pub(crate) fn new(content: &'a dyn Dataset, table: usize) -> ByExpectation<'a> {
        ByExpectation {
            content,
            number: table,
            table: &content.tables()[table],
            expected: Tuples::new(1 << 10),
        }
    }

    /// The names of columns that differ from the expected tuple and may not, and whether others do.
    fn wrong_columns(&self, found: &[Option<&[u8]>]) -> (Vec<&'static str>, bool) {
        let (mut wrong, mut is_changed) = (Vec::new(), false);
        let Ok(Some(mut expected)) = Fields::parse(self.expected.payload()) else { return (wrong, false) };
        for (column, value) in found.iter().enumerate() {
            if expected.next_field() == Ok(Some(*value)) {
                continue;
            }
            let name = self.table.columns[column].0;
            match self.table.mutable.contains(&name) && value.is_some() {
                true => is_changed = true,
                false => wrong.push(name),
            }
        }
        (wrong, is_changed)
    }
}

impl RowJudge for ByExpectation<'_> {
    fn judge(&mut self, found: &[Option<&[u8]>], verdicts: &mut dyn Verdicts) -> Presence {
        let extra = |number| Presence::Extra(ExtraReason::NeverMade, number);
        let Some(number) = self.content.number(self.number, found) else { return extra(None) };
        self.expected.clear();
        let expected = self.content.expect(self.number, number, found, &mut self.expected);
        if expected == Expected::NoRow {
            return extra(Some(number));
        }
        let (columns, is_changed) = self.wrong_columns(found);
        if !columns.is_empty() {
            verdicts.wrong(number, DifferenceKind::OtherValues { columns });
        } else if self.content.judge_written(self.number, number, found, verdicts)
            && (is_changed || expected == Expected::Written)
        {
            verdicts.accepted(1);
        }
        if number < self.table.rows { Presence::Must(number) } else { Presence::May(number) }
    }
}

//! Judging rows one by one, and keeping what was found.
//!
//! Nothing here talks to a server: rows come in as tuples of binary COPY, verdicts go out as [`Findings`]. Each thread has findings of
//! its own; they are merged in the end, and only then can values and keys that changed places be matched with each other.

use std::collections::HashSet;

use data::ycsb::{FIELD_BYTES, FIELD_COUNT, Judgement, Table, Version};
use wire::copy::{CopyError, Fields};

use super::grid::{Place, place_of};
use super::history::{Expect, VersionJudgement, WriterHistory};
use super::report::{
    Difference, DifferenceKind, KINDS, NAMED_MAX, StrangerReason, TableName, keep_named, printable,
};
use crate::route::Route;

/// Rows in wrong partitions that are remembered, so that they are not called missing as well.
const MISPLACED_MAX: usize = 1 << 20;
/// A value is kept to be matched with other places only when it may be a field of ours.
const SUSPECT_BYTES_MAX: usize = FIELD_BYTES;

/// What should be in the table.
#[derive(Clone, Copy)]
pub(super) struct Content<'a> {
    pub(super) table: &'a Table,
    pub(super) route: Route,
    /// Rows of the load; runs may have inserted more.
    pub(super) loaded: u64,
    pub(super) history: &'a dyn WriterHistory,
    /// Names of the tables by number: the leaves, then tables in which nothing should be.
    pub(super) names: &'a [TableName],
}

impl Content<'_> {
    /// A difference in a row of ours.
    pub(super) fn difference(&self, kind: DifferenceKind, row: u64, leaf: usize) -> Difference {
        let key = printable(&self.table.key(row));
        Difference { kind, key, row: Some(row), table: self.names[leaf].clone() }
    }
}

/// A row that was found where it belongs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Home {
    pub(super) place: Place,
    /// The row must be there; otherwise it may.
    pub(super) must: bool,
}

/// What was found so far.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) rows_found: u64,
    pub(super) rows_uncertain: u64,
    pub(super) updates_accepted: u64,
    pub(super) values_unjudged: u64,
    /// Why the first of them is.
    pub(super) unjudged_why: Option<&'static str>,
    pub(super) totals: [u64; KINDS],
    /// Which tables are not as they should be; those beyond its end are.
    pub(super) differs: Vec<bool>,
    /// At most [`NAMED_MAX`] of each kind.
    named: Vec<Difference>,
    named_of_kind: [usize; KINDS],
    /// Rows found in wrong partitions.
    pub(super) misplaced: HashSet<u64>,
    /// Those of them that were not found at home as well.
    pub(super) not_home: HashSet<u64>,
    /// More of them were found than are remembered.
    pub(super) misplaced_overflow: bool,
    strangers: Vec<Stranger>,
    suspects: Vec<Suspect>,
}

/// A stranger's values, to be compared with those of missing rows.
#[derive(Debug)]
struct Stranger {
    difference: Difference,
    values: Vec<Option<Vec<u8>>>,
}

/// A value that looks like none that was ever written here, to be compared with other places.
#[derive(Debug)]
struct Suspect {
    difference: Difference,
    row: u64,
    column: usize,
    value: Vec<u8>,
}

impl Findings {
    /// Counts a difference in a table, and names it while there is room.
    pub(super) fn add(&mut self, leaf: usize, kind: usize, difference: impl FnOnce() -> Difference) {
        self.totals[kind] += 1;
        self.mark(leaf);
        if self.named_of_kind[kind] < NAMED_MAX {
            let difference = difference();
            debug_assert_eq!(difference.kind.index(), kind);
            self.named_of_kind[kind] += 1;
            self.named.push(difference);
        }
    }

    /// Notes that a table is not as it should be.
    fn mark(&mut self, leaf: usize) {
        if self.differs.len() <= leaf {
            self.differs.resize(leaf + 1, false);
        }
        self.differs[leaf] = true;
    }

    fn misplace(&mut self, row: u64) {
        if self.misplaced.len() < MISPLACED_MAX {
            self.misplaced.insert(row);
        } else {
            self.misplaced_overflow = true;
        }
    }

    /// Adds what another thread found.
    pub(super) fn merge(&mut self, other: Findings) {
        self.rows_found += other.rows_found;
        self.rows_uncertain += other.rows_uncertain;
        self.updates_accepted += other.updates_accepted;
        self.values_unjudged += other.values_unjudged;
        self.unjudged_why = self.unjudged_why.or(other.unjudged_why);
        for (total, more) in self.totals.iter_mut().zip(other.totals) {
            *total += more;
        }
        for (leaf, _) in other.differs.iter().enumerate().filter(|(_, differs)| **differs) {
            self.mark(leaf);
        }
        self.named.extend(other.named);
        self.misplaced_overflow |= other.misplaced_overflow;
        for row in other.misplaced {
            self.misplace(row);
        }
        self.not_home.extend(other.not_home);
        self.strangers.extend(other.strangers);
        self.suspects.extend(other.suspects);
    }

    /// All named differences in order, after values and keys that changed places were recognised.
    pub(super) fn into_named(mut self, content: &Content<'_>) -> ([u64; KINDS], Vec<Difference>) {
        self.match_strangers(content);
        self.match_suspects(content);
        let Findings { totals, mut named, not_home, .. } = self;
        for difference in &mut named {
            if let DifferenceKind::WrongNode { is_home_too, .. } = &mut difference.kind
                && difference.row.is_some_and(|row| not_home.contains(&row))
            {
                *is_home_too = false;
            }
        }
        // Threads kept up to the limit each.
        keep_named(&mut named);
        (totals, named)
    }

    /// A stranger with the values of a missing row is that row with a damaged key.
    fn match_strangers(&mut self, content: &Content<'_>) {
        for Stranger { mut difference, values } in std::mem::take(&mut self.strangers) {
            let fits = |missing: &Difference| {
                let row = missing.row.filter(|_| missing.kind == DifferenceKind::Missing)?;
                let right = values.iter().enumerate().filter(|(column, value)| {
                    let judge = |bytes: &Vec<u8>| content.table.judge(row, *column, bytes);
                    value.as_ref().map(judge).is_some_and(|j| matches!(j, Judgement::Exact { .. }))
                });
                (right.count() * 2 > FIELD_COUNT).then(|| missing.key.clone())
            };
            let missing =
                self.named.iter().enumerate().find_map(|(index, missing)| Some((index, fits(missing)?)));
            if let Some((index, right_key)) = missing {
                self.named.swap_remove(index);
                self.totals[DifferenceKind::Missing.index()] -= 1;
                self.totals[difference.kind.index()] -= 1;
                difference.kind = DifferenceKind::DamagedKey { right_key };
                self.totals[difference.kind.index()] += 1;
            }
            self.named.push(difference);
        }
    }

    /// A suspect value may be that of another field of its row, of another suspect's place, or of a row that is missing.
    fn match_suspects(&mut self, content: &Content<'_>) {
        let suspects = std::mem::take(&mut self.suspects);
        let mut rows: Vec<u64> = suspects.iter().map(|suspect| suspect.row).collect();
        rows.extend(self.named.iter().filter(|d| d.kind == DifferenceKind::Missing).filter_map(|d| d.row));
        rows.sort_unstable();
        rows.dedup();
        let places: Vec<(u64, usize)> =
            suspects.iter().map(|suspect| (suspect.row, suspect.column)).collect();
        for Suspect { mut difference, row, column, value } in suspects {
            let of_row = (0..FIELD_COUNT).map(|column| (row, column));
            let of_column = rows.iter().map(|&row| (row, column));
            let mut elsewhere = of_row.chain(of_column).chain(places.iter().copied());
            let origin = elsewhere.find(|&(from_row, from_column)| {
                (from_row, from_column) != (row, column)
                    && matches!(content.table.judge(from_row, from_column, &value), Judgement::Exact { .. })
            });
            if let Some((from_row, from_column)) = origin {
                self.totals[difference.kind.index()] -= 1;
                let from_key = printable(&content.table.key(from_row));
                difference.kind = DifferenceKind::Moved { column, from_key, from_column };
                self.totals[difference.kind.index()] += 1;
            }
            self.named.push(difference);
        }
    }
}

/// Judges tuples of (key, ten fields).
pub(super) struct RowJudge<'a> {
    content: Content<'a>,
    pub(super) findings: Findings,
    expected: [[u8; FIELD_BYTES]; FIELD_COUNT],
}

impl<'a> RowJudge<'a> {
    pub(super) fn new(content: Content<'a>) -> RowJudge<'a> {
        RowJudge { content, findings: Findings::default(), expected: [[0; FIELD_BYTES]; FIELD_COUNT] }
    }

    /// Judges one row of a leaf table. The answer is `None` when the row is not at home there.
    ///
    /// # Errors
    /// When the tuple is damaged, or has other columns.
    pub(super) fn judge(&mut self, leaf: usize, mut tuple: Fields<'_>) -> Result<Option<Home>, CopyError> {
        let content = self.content;
        self.findings.rows_found += 1;
        let key = tuple.next_field()?.ok_or(CopyError::Shape)?;
        let Some(row) = key.and_then(|key| content.table.row_of_key(key)) else {
            return self.stranger(leaf, key, None, tuple).map(|()| None);
        };
        let expect = if row < content.loaded { Expect::Present } else { content.history.expects_row(row) };
        if expect == Expect::Absent {
            return self.stranger(leaf, key, Some(row), tuple).map(|()| None);
        }
        self.findings.rows_uncertain += u64::from(expect == Expect::Either);
        self.judge_values(leaf, row, tuple)?;
        let place = place_of(content.route, &content.table.key(row));
        if place.leaf != leaf {
            let home = &content.names[place.leaf];
            let kind = if home.node == content.names[leaf].node {
                DifferenceKind::WrongPartition { home: home.clone() }
            } else {
                // That it is not at home as well shows when the rows that are missing get their names.
                DifferenceKind::WrongNode { home: home.clone(), is_home_too: expect == Expect::Present }
            };
            let index = kind.index();
            self.findings.add(leaf, index, || content.difference(kind, row, leaf));
            self.findings.misplace(row);
            return Ok(None);
        }
        Ok(Some(Home { place, must: expect == Expect::Present }))
    }

    fn judge_values(&mut self, leaf: usize, row: u64, mut tuple: Fields<'_>) -> Result<(), CopyError> {
        let written = self.content.history.wrote_row(row);
        self.content.table.row_fields(row, &mut self.expected);
        for column in 0..FIELD_COUNT {
            let value = tuple.next_field()?.ok_or(CopyError::Shape)?;
            match value {
                None => {
                    let kind = DifferenceKind::Null { column };
                    self.findings.add(leaf, 7, || self.content.difference(kind, row, leaf));
                }
                // Most values are as they were loaded: one comparison.
                Some(bytes) if bytes == self.expected[column] => {
                    if written {
                        self.judge_version(leaf, row, column, Version::LOADED);
                    }
                }
                Some(bytes) => match self.content.table.judge(row, column, bytes) {
                    Judgement::Exact { version } => self.judge_version(leaf, row, column, version),
                    Judgement::Damaged { first_bad_byte, bad_bytes, nearest } => {
                        let kind = DifferenceKind::Damaged { column, first_bad_byte, bad_bytes, nearest };
                        self.damaged(leaf, row, column, kind, nearest.is_none().then_some(bytes));
                    }
                },
            }
        }
        if tuple.next_field()?.is_some() { Err(CopyError::Shape) } else { Ok(()) }
    }

    fn judge_version(&mut self, leaf: usize, row: u64, column: usize, found: Version) {
        let kind = match self.content.history.judge_version(row, column, found) {
            VersionJudgement::Acceptable => {
                self.findings.updates_accepted += u64::from(found != Version::LOADED);
                return;
            }
            VersionJudgement::NotJudgeable { why } => {
                self.findings.values_unjudged += 1;
                self.findings.unjudged_why.get_or_insert(why);
                return;
            }
            VersionJudgement::Stale { latest } => DifferenceKind::Stale { column, found, latest },
            VersionJudgement::UnknownWriter => DifferenceKind::UnknownWriter { column, version: found },
        };
        let index = kind.index();
        self.findings.add(leaf, index, || self.content.difference(kind, row, leaf));
    }

    /// `alien`: the value, when it is not merely a damaged one of this place.
    fn damaged(&mut self, leaf: usize, row: u64, column: usize, kind: DifferenceKind, alien: Option<&[u8]>) {
        match alien {
            Some(value) if value.len() <= SUSPECT_BYTES_MAX && self.findings.suspects.len() < NAMED_MAX => {
                self.findings.totals[kind.index()] += 1;
                self.findings.mark(leaf);
                let difference = self.content.difference(kind, row, leaf);
                self.findings.suspects.push(Suspect { difference, row, column, value: value.to_vec() });
            }
            _ => self.findings.add(leaf, 5, || self.content.difference(kind, row, leaf)),
        }
    }

    fn stranger(
        &mut self,
        leaf: usize,
        key: Option<&[u8]>,
        row: Option<u64>,
        mut tuple: Fields<'_>,
    ) -> Result<(), CopyError> {
        let mut values = Vec::new();
        while let Some(value) = tuple.next_field()? {
            // More than a field can hold is no field of a missing row.
            values.push(value.filter(|value| value.len() <= SUSPECT_BYTES_MAX).map(<[u8]>::to_vec));
        }
        let why = if row.is_some() { StrangerReason::NeverWritten } else { StrangerReason::NoKey };
        let kind = DifferenceKind::Stranger { why };
        self.findings.totals[kind.index()] += 1;
        self.findings.mark(leaf);
        if self.findings.strangers.len() < NAMED_MAX {
            let key = key.map_or_else(|| "null".to_owned(), printable);
            let difference = Difference { kind, key, row, table: self.content.names[leaf].clone() };
            self.findings.strangers.push(Stranger { difference, values });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;

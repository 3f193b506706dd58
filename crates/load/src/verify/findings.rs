//! The differences that were found. Each thread has its own findings; they are merged at the end, because only then can values and keys that
//! changed places be matched.

use std::collections::HashSet;

use super::Setting;
use super::content::{condition, row_condition};
use crate::dataset::{Audit, LostInsert, Verdicts};
use crate::difference::{
    Difference, DifferenceKind, ExtraReason, KINDS, NAMED_MAX, TableName, keep_named, printable,
};

/// Rows in wrong places that are remembered, so that they are not called missing as well.
const MISPLACED_MAX: usize = 1 << 20;
/// A value is kept to be matched with other places only when it is not longer.
const SUSPECT_BYTES_MAX: usize = 100;

/// What was found so far.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) rows_uncertain: u64,
    pub(super) updates_accepted: u64,
    pub(super) values_unjudged: u64,
    /// Why the first of them is.
    pub(super) unjudged_why: Option<&'static str>,
    pub(super) totals: [u64; KINDS],
    /// Differences by leaf; there are none in those beyond its end.
    pub(super) of_leaf: Vec<u64>,
    /// At most [`NAMED_MAX`] of each kind.
    named: Vec<Difference>,
    named_of_kind: [usize; KINDS],
    /// Rows found in wrong places: tables and numbers.
    pub(super) misplaced: HashSet<(usize, u64)>,
    /// Numbers of those of them that were not found at home as well.
    pub(super) not_home: HashSet<u64>,
    /// More of them were found than are remembered.
    pub(super) misplaced_overflow: bool,
    extra: Vec<ExtraRow>,
    suspects: Vec<Suspect>,
}

/// The values of an extra row, to be compared with those of missing rows.
#[derive(Debug)]
struct ExtraRow {
    difference: Difference,
    table: usize,
    values: Vec<Option<Vec<u8>>>,
}

/// A value that looks like none that was ever written here, to be compared with other places.
#[derive(Debug)]
struct Suspect {
    difference: Difference,
    table: usize,
    row: u64,
    column: usize,
    value: Vec<u8>,
}

impl Findings {
    /// Counts a difference in a table, and names it while there is room.
    pub(super) fn add(
        &mut self,
        leaf: usize,
        kind: DifferenceKind,
        name: impl FnOnce(DifferenceKind) -> Difference,
    ) {
        let index = kind.index();
        self.count(leaf, index);
        if self.named_of_kind[index] < NAMED_MAX {
            self.named_of_kind[index] += 1;
            self.named.push(name(kind));
        }
    }

    /// Adds inserted rows that are missing.
    pub(super) fn lose(&mut self, setting: &Setting<'_>, audit: &Audit) {
        for LostInsert { table, number, by } in audit.lost.iter().copied() {
            let Some(at) = setting.catalog.tables.iter().position(|one| one.table == table) else { continue };
            let leaf = setting.leaf_of(at, number);
            let kind = DifferenceKind::LostInsert { by };
            self.add(leaf, kind, |kind| named(setting, kind, leaf, Some(number), None));
        }
        self.totals[DifferenceKind::Missing.index()] += audit.lost_total - audit.lost.len() as u64;
    }

    fn count(&mut self, leaf: usize, kind: usize) {
        self.totals[kind] += 1;
        if self.of_leaf.len() <= leaf {
            self.of_leaf.resize(leaf + 1, 0);
        }
        self.of_leaf[leaf] += 1;
    }

    pub(super) fn misplace(&mut self, at: usize, row: u64) {
        if self.misplaced.len() < MISPLACED_MAX {
            self.misplaced.insert((at, row));
        } else {
            self.misplaced_overflow = true;
        }
    }

    /// A row that no load and no run made.
    pub(super) fn extra_row(
        &mut self,
        setting: &Setting<'_>,
        leaf: usize,
        why: ExtraReason,
        row: Option<u64>,
        found: &[Option<&[u8]>],
    ) {
        let kind = DifferenceKind::Extra { why };
        if !setting.content.is_named_by_key() {
            return self.add(leaf, kind, |kind| named(setting, kind, leaf, row, Some(found)));
        }
        self.count(leaf, kind.index());
        if self.extra.len() < NAMED_MAX {
            // More than a field can hold is no field of a missing row.
            let kept = |value: &&[u8]| value.len() <= SUSPECT_BYTES_MAX;
            let values = found[1..].iter().map(|value| value.filter(kept).map(<[u8]>::to_vec)).collect();
            let difference = named(setting, kind, leaf, row, Some(found));
            self.extra.push(ExtraRow { difference, table: setting.table_of(leaf), values });
        }
    }

    /// Adds what another thread found.
    pub(super) fn merge(&mut self, other: Findings) {
        self.rows_uncertain += other.rows_uncertain;
        self.updates_accepted += other.updates_accepted;
        self.values_unjudged += other.values_unjudged;
        self.unjudged_why = self.unjudged_why.or(other.unjudged_why);
        for (total, more) in self.totals.iter_mut().zip(other.totals) {
            *total += more;
        }
        self.of_leaf.resize(self.of_leaf.len().max(other.of_leaf.len()), 0);
        for (count, more) in self.of_leaf.iter_mut().zip(other.of_leaf) {
            *count += more;
        }
        self.named.extend(other.named);
        self.misplaced_overflow |= other.misplaced_overflow;
        for (at, row) in other.misplaced {
            self.misplace(at, row);
        }
        self.not_home.extend(other.not_home);
        self.extra.extend(other.extra);
        self.suspects.extend(other.suspects);
    }

    /// All named differences in order, after values and keys that changed places were recognised.
    pub(super) fn into_named(mut self, setting: &Setting<'_>) -> ([u64; KINDS], Vec<Difference>) {
        self.match_extra_rows(setting);
        self.match_suspects(setting);
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

    /// An extra row with the values of a missing row is that row with a damaged key.
    fn match_extra_rows(&mut self, setting: &Setting<'_>) {
        for ExtraRow { mut difference, table, values } in std::mem::take(&mut self.extra) {
            let fits = |missing: &Difference| {
                let row = missing.row.filter(|_| missing.kind == DifferenceKind::Missing)?;
                let right = values.iter().enumerate().filter(|(column, value)| {
                    let version = |bytes: &Vec<u8>| setting.content.version(table, row, *column, bytes);
                    value.as_ref().and_then(version).is_some()
                });
                (right.count() * 2 > values.len()).then(|| missing.key.clone())
            };
            let missing =
                self.named.iter().enumerate().find_map(|(index, missing)| Some((index, fits(missing)?)));
            if let Some((index, right_key)) = missing {
                self.named.swap_remove(index);
                self.totals[DifferenceKind::Missing.index()] -= 1;
                self.change(&mut difference, DifferenceKind::DamagedKey { right_key });
            }
            self.named.push(difference);
        }
    }

    /// A suspect value may be that of another field of its row, of another suspect's place, or of a row that is missing.
    fn match_suspects(&mut self, setting: &Setting<'_>) {
        let suspects = std::mem::take(&mut self.suspects);
        let mut rows: Vec<u64> = suspects.iter().map(|suspect| suspect.row).collect();
        rows.extend(self.named.iter().filter(|d| d.kind == DifferenceKind::Missing).filter_map(|d| d.row));
        rows.sort_unstable();
        rows.dedup();
        let places: Vec<(u64, usize)> =
            suspects.iter().map(|suspect| (suspect.row, suspect.column)).collect();
        for Suspect { mut difference, table, row, column, value } in suspects {
            let fields = setting.content.tables()[table].columns.len() - 1;
            let of_row = (0..fields).map(|column| (row, column));
            let of_column = rows.iter().map(|&row| (row, column));
            let mut elsewhere = of_row.chain(of_column).chain(places.iter().copied());
            let origin = elsewhere.find(|&(from_row, from_column)| {
                (from_row, from_column) != (row, column)
                    && setting.content.version(table, from_row, from_column, &value).is_some()
            });
            if let Some((from_row, from_column)) = origin {
                let from_key = printable(setting.content.key(from_row).as_bytes());
                self.change(&mut difference, DifferenceKind::Moved { column, from_key, from_column });
            }
            self.named.push(difference);
        }
    }

    fn change(&mut self, difference: &mut Difference, kind: DifferenceKind) {
        self.totals[difference.kind.index()] -= 1;
        self.totals[kind.index()] += 1;
        difference.kind = kind;
    }
}

/// A difference, with the row by its name: from its columns, where they are there, else from its number.
pub(super) fn named(
    setting: &Setting<'_>,
    kind: DifferenceKind,
    leaf: usize,
    row: Option<u64>,
    found: Option<&[Option<&[u8]>]>,
) -> Difference {
    let (content, number) = (setting.content, setting.table_of(leaf));
    let table = setting.catalog.names[leaf].clone();
    if content.is_named_by_key() {
        let key = match (row, found) {
            (Some(row), _) => printable(content.key(row).as_bytes()),
            (None, Some([Some(key), ..])) => printable(key),
            _ => "null".to_owned(),
        };
        return Difference { kind, key, row, table, subject: None };
    }
    let key = match (found, row) {
        (Some(found), _) => condition(&content.tables()[number], found),
        (None, row) => row_condition(content, number, row.unwrap_or_default()),
    };
    let is_elsewhere = matches!(kind, DifferenceKind::WrongNode { .. });
    let copy = setting.catalog.tables[setting.catalog.leaves[leaf].at].node.clone();
    let node = if is_elsewhere { table.node.clone() } else { copy };
    let subject = Some(TableName { table: content.tables()[number].name.to_owned(), node });
    Difference { kind, key, row: None, table, subject }
}

/// Takes the verdicts on one row.
pub(super) struct OfRow<'a> {
    pub(super) findings: &'a mut Findings,
    pub(super) setting: &'a Setting<'a>,
    pub(super) leaf: usize,
    pub(super) found: &'a [Option<&'a [u8]>],
}

impl Verdicts for OfRow<'_> {
    fn wrong(&mut self, number: u64, kind: DifferenceKind) {
        let (setting, leaf, found) = (self.setting, self.leaf, self.found);
        self.findings.add(leaf, kind, |kind| named(setting, kind, leaf, Some(number), Some(found)));
    }

    fn alien(&mut self, number: u64, kind: DifferenceKind, column: usize, value: &[u8]) {
        if value.len() > SUSPECT_BYTES_MAX || self.findings.suspects.len() >= NAMED_MAX {
            return self.wrong(number, kind);
        }
        self.findings.count(self.leaf, kind.index());
        let difference = named(self.setting, kind, self.leaf, Some(number), Some(self.found));
        let (table, value) = (self.setting.table_of(self.leaf), value.to_vec());
        self.findings.suspects.push(Suspect { difference, table, row: number, column, value });
    }

    fn accepted(&mut self, count: u64) {
        self.findings.updates_accepted += count;
    }

    fn uncertain(&mut self) {
        self.findings.rows_uncertain += 1;
    }

    fn unjudged(&mut self, why: &'static str) {
        self.findings.values_unjudged += 1;
        self.findings.unjudged_why.get_or_insert(why);
    }
}

#[cfg(test)]
mod tests;

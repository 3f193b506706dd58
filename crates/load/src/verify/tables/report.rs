//! What a verification of several tables found.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use crate::dataset::Audit;
use crate::verify::{Method, NAMED_MAX, Problem, Verdict};

/// One difference between a table and what should be in it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Difference {
    /// What is wrong.
    pub kind: DifferenceKind,
    /// Where.
    pub table: &'static str,
    /// On which node, where that is not clear from the row.
    pub node: Option<String>,
    /// The row, as a condition that can be pasted into a query.
    pub row: String,
}

/// What can be wrong with a row.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum DifferenceKind {
    /// The row is not there.
    Missing,
    /// The row is present once too often.
    Duplicate,
    /// A row that the load did not make.
    Stranger,
    /// Values of these columns are not those of the load.
    Damaged {
        /// Their names.
        columns: Vec<&'static str>,
    },
    /// The row is on a node that does not own it, whether it is on its owner, too, or not.
    Misplaced {
        /// Its owner.
        belongs_to: String,
    },
}

/// How many kinds of differences there are.
pub const KINDS: usize = 5;

/// The words for the kinds, in the order of [`DifferenceKind::index`].
pub const KIND_NAMES: [&str; KINDS] = ["missing", "duplicate", "stranger", "damaged", "misplaced"];

impl DifferenceKind {
    /// Number of the kind, into [`KIND_NAMES`] and [`TablesReport::totals`].
    pub fn index(&self) -> usize {
        match self {
            DifferenceKind::Missing => 0,
            DifferenceKind::Duplicate => 1,
            DifferenceKind::Stranger => 2,
            DifferenceKind::Damaged { .. } => 3,
            DifferenceKind::Misplaced { .. } => 4,
        }
    }
}

/// One line: the table and the row first, because that is what people search for.
impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let node = self.node.as_ref().map(|node| format!(" on {node}")).unwrap_or_default();
        write!(f, "{}{node} where {}: ", self.table, self.row)?;
        match &self.kind {
            DifferenceKind::Missing => f.write_str("missing"),
            DifferenceKind::Duplicate => f.write_str("is present once too often"),
            DifferenceKind::Stranger => f.write_str("stranger, not made by the load"),
            DifferenceKind::Damaged { columns } => write!(f, "{} damaged", columns.join(", ")),
            DifferenceKind::Misplaced { belongs_to } => {
                write!(f, "misplaced, its owner is {belongs_to}")
            }
        }
    }
}

/// One table's rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableFound {
    /// Which table.
    pub table: &'static str,
    /// Rows that must be there.
    pub rows_expected: u64,
    /// Rows that are there.
    pub rows_found: u64,
    /// Differences of all kinds.
    pub differences: u64,
}

/// The result of a verification that came to an end.
#[derive(Clone, PartialEq, Debug)]
pub struct TablesReport {
    /// How it was done.
    pub method: Method,
    /// Why it was done that way, when that was not the user's choice; and other things worth knowing. One sentence each.
    pub notes: Vec<String>,
    /// Tables that are defined otherwise than the load made them.
    pub problems: Vec<Problem>,
    /// The tables that were verified.
    pub tables: Vec<TableFound>,
    /// The differences by name: at most [`NAMED_MAX`] of each kind, in order of kind, table and row.
    pub differences: Vec<Difference>,
    /// All differences, by [`DifferenceKind::index`].
    pub totals: [u64; KINDS],
    /// Why something that runs have changed cannot be judged.
    pub unjudged: Option<String>,
    /// Rows that runs have changed or inserted, and that are as a run leaves them.
    pub updates_accepted: u64,
    /// What must hold of the tables together.
    pub audit: Audit,
    /// How long it took.
    pub duration: Duration,
}

impl TablesReport {
    /// Of a verification that began then and has found nothing.
    pub(in crate::verify) fn nothing(start: Instant) -> TablesReport {
        TablesReport {
            method: Method::Deep,
            notes: Vec::new(),
            problems: Vec::new(),
            tables: Vec::new(),
            differences: Vec::new(),
            totals: [0; KINDS],
            unjudged: None,
            updates_accepted: 0,
            audit: Audit::default(),
            duration: start.elapsed(),
        }
    }

    /// What it comes to.
    pub fn verdict(&self) -> Verdict {
        if self.differences_total() > 0 || !self.problems.is_empty() || !self.audit.broken.is_empty() {
            Verdict::Different
        } else if self.unjudged.is_some() || !self.audit.unknown.is_empty() {
            Verdict::CannotTell
        } else {
            Verdict::Exact
        }
    }

    /// Differences of all kinds, named or not.
    pub fn differences_total(&self) -> u64 {
        self.totals.iter().sum()
    }

    /// Rows that must be in the tables that were verified.
    pub fn rows_expected(&self) -> u64 {
        self.tables.iter().map(|table| table.rows_expected).sum()
    }

    /// Rows that are there.
    pub fn rows_found(&self) -> u64 {
        self.tables.iter().map(|table| table.rows_found).sum()
    }
}

/// What was found so far. Each thread has findings of its own; they are merged in the end.
#[derive(Debug, Default)]
pub(in crate::verify) struct Findings {
    totals: [u64; KINDS],
    of_table: BTreeMap<&'static str, u64>,
    /// At most [`NAMED_MAX`] of each kind.
    named: [Vec<Difference>; KINDS],
}

impl Findings {
    /// Counts a difference, and names it unless there are many.
    pub(in crate::verify) fn add(
        &mut self,
        kind: DifferenceKind,
        table: &'static str,
        node: Option<&str>,
        row: impl FnOnce() -> String,
    ) {
        let index = kind.index();
        self.totals[index] += 1;
        *self.of_table.entry(table).or_default() += 1;
        if self.named[index].len() < NAMED_MAX {
            self.named[index].push(Difference { kind, table, node: node.map(str::to_owned), row: row() });
        }
    }

    /// Differences of all kinds in one table.
    pub(in crate::verify) fn of_table(&self, table: &str) -> u64 {
        self.of_table.get(table).copied().unwrap_or_default()
    }

    pub(in crate::verify) fn merge(&mut self, other: Findings) {
        for (table, part) in other.of_table {
            *self.of_table.entry(table).or_default() += part;
        }
        for (index, named) in other.named.into_iter().enumerate() {
            self.totals[index] += other.totals[index];
            let room = NAMED_MAX - self.named[index].len();
            self.named[index].extend(named.into_iter().take(room));
        }
    }

    pub(in crate::verify) fn into_named(self) -> (Vec<Difference>, [u64; KINDS]) {
        let mut differences: Vec<Difference> = self.named.into_iter().flatten().collect();
        differences.sort();
        (differences, self.totals)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(totals: [u64; KINDS], is_changed_by_runs: bool) -> TablesReport {
        TablesReport {
            method: Method::Fast,
            notes: Vec::new(),
            problems: Vec::new(),
            tables: Vec::new(),
            differences: Vec::new(),
            totals,
            unjudged: is_changed_by_runs.then(String::new),
            updates_accepted: 0,
            audit: Audit::default(),
            duration: Duration::ZERO,
        }
    }

    #[test]
    fn the_verdict_is_never_better_than_what_is_known() {
        assert_eq!(report([0; KINDS], false).verdict(), Verdict::Exact);
        assert_eq!(report([0; KINDS], true).verdict(), Verdict::CannotTell);
        assert_eq!(report([0, 0, 1, 0, 0], true).verdict(), Verdict::Different);
    }

    #[test]
    fn many_differences_are_counted_and_some_named() {
        let mut findings = Findings::default();
        for row in 0..250 {
            findings.add(DifferenceKind::Missing, "stock", None, || format!("s_i_id = {row}"));
        }
        let mut all = Findings::default();
        all.add(DifferenceKind::Damaged { columns: vec!["i_name"] }, "item", Some("n2"), || {
            "i_id = 7".into()
        });
        all.merge(findings);
        assert_eq!((all.of_table("stock"), all.of_table("item"), all.of_table("orders")), (250, 1, 0));
        let (named, totals) = all.into_named();
        assert_eq!((named.len(), totals), (NAMED_MAX + 1, [250, 0, 0, 1, 0]));
        assert_eq!(named[NAMED_MAX].to_string(), "item on n2 where i_id = 7: i_name damaged");
        assert_eq!(named[0].to_string(), "stock where s_i_id = 0: missing");
    }
}

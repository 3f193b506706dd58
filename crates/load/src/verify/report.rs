//! The result of a verification: the verdict, the counts, and the keys.

use std::fmt;
use std::time::Duration;

use super::problem::Problem;
use crate::dataset::Audit;
use crate::difference::{Difference, KIND_NAMES, KINDS};

/// What was read, in ascending order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Method {
    /// The server summed up a hash of every row, and the sums are those of the loaded rows.
    Fast,
    /// The sums differed somewhere; the rows in question were read and judged one by one.
    FastThenDeep,
    /// Every row was read and judged.
    Deep,
}

impl Method {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Method::Fast => "fast",
            Method::FastThenDeep => "fast, then deep where sums differ",
            Method::Deep => "deep",
        }
    }
}

/// What a verification comes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Every row and value is as it must be.
    Exact,
    /// Something is not.
    Different,
    /// Nothing wrong was found, but some values, or what is lost, cannot be judged by what is known of the runs.
    CannotTell,
}

/// The result of a verification that came to an end.
#[derive(Clone, PartialEq, Debug)]
pub struct VerifyReport {
    /// How it was done.
    pub method: Method,
    /// Why it was done that way, when that was not the user's choice; and other things worth knowing. One sentence each.
    pub notes: Vec<String>,
    /// Rows that must be there: loaded, or inserted and acknowledged.
    pub rows_expected: u64,
    /// Rows that are there.
    pub rows_found: u64,
    /// Of these, rows of which it is not known whether they were committed.
    pub rows_uncertain: u64,
    /// Values that a run wrote and that are right.
    pub updates_accepted: u64,
    /// Right values that may not be the last ones.
    pub values_unjudged: u64,
    /// The tables that were verified, over all copies.
    pub tables: Vec<TableFound>,
    /// Why something that runs have changed cannot be judged.
    pub unjudged: Option<String>,
    /// What cannot be seen because runs have no end in the ledger.
    pub unfinished: Option<String>,
    /// What must hold of the tables together.
    pub audit: Audit,
    /// The differences by name: at most [`crate::difference::NAMED_MAX`] of each kind, in order of kind and key.
    pub differences: Vec<Difference>,
    /// All differences, by [`crate::difference::DifferenceKind::index`].
    pub totals: [u64; KINDS],
    /// What is wrong with the cluster itself: where its nodes say that tables are, what its ledgers say, replication.
    pub problems: Vec<Problem>,
    /// The nodes of a cluster of several; empty for one server.
    pub nodes: Vec<NodeReport>,
    /// How long it took.
    pub duration: Duration,
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

/// One node's part in a verification.
#[derive(Clone, PartialEq, Debug)]
pub struct NodeReport {
    /// Its name.
    pub name: String,
    /// How it was done there.
    pub method: Method,
    /// Leaf tables that it owns.
    pub leaves: u64,
    /// Rows that must be there.
    pub rows_expected: u64,
    /// Rows that are there.
    pub rows_found: u64,
    /// Tables of it in which something differs.
    pub tables_differing: u64,
    /// Problems of it.
    pub problems: u64,
}

impl VerifyReport {
    /// What it comes to.
    pub fn verdict(&self) -> Verdict {
        let (doubts, wrongs): (Vec<&Problem>, Vec<&Problem>) =
            self.problems.iter().partition(|problem| problem.is_doubt());
        let lag_may_explain =
            doubts.iter().any(|problem| problem.is_of_time()) && wrongs.is_empty() && self.lag_may_explain();
        let is_wrong = !wrongs.is_empty() || !self.audit.broken.is_empty();
        let is_unknown =
            self.unjudged.is_some() || self.unfinished.is_some() || !self.audit.unknown.is_empty();
        if (self.differences_total() > 0 && !lag_may_explain) || is_wrong {
            Verdict::Different
        } else if self.values_unjudged > 0 || !doubts.is_empty() || is_unknown {
            Verdict::CannotTell
        } else {
            Verdict::Exact
        }
    }

    /// Whether everything is as it must be.
    pub fn exact(&self) -> bool {
        self.verdict() == Verdict::Exact
    }

    /// Whether every difference is of a kind that a node has which has not yet applied what others have written.
    fn lag_may_explain(&self) -> bool {
        const LATE: [usize; 4] = [0, 8, 11, 12];
        self.totals.iter().enumerate().all(|(kind, total)| *total == 0 || LATE.contains(&kind))
    }

    /// Differences of all kinds, named or not.
    pub fn differences_total(&self) -> u64 {
        self.totals.iter().sum()
    }

    /// Several lines for people: what is wrong, by kind, with names, and the notes. Empty when there is nothing to report.
    pub fn text(&self) -> String {
        use fmt::Write;
        let mut text = String::new();
        // Writing to a string cannot fail.
        let mut line = |line: fmt::Arguments<'_>| {
            let _ = writeln!(text, "{line}");
        };
        for problem in &self.problems {
            line(format_args!("{problem}"));
        }
        for (kind, &total) in self.totals.iter().enumerate().filter(|(_, total)| **total > 0) {
            line(format_args!("{}: {total}", KIND_NAMES[kind]));
            let named = self.differences.iter().filter(|difference| difference.kind.index() == kind);
            let mut count = 0;
            for difference in named {
                line(format_args!("  {difference}"));
                count += 1;
            }
            if total > count {
                line(format_args!("  and {} more", total - count));
            }
        }
        if let Some(unfinished) = &self.unfinished {
            line(format_args!("{unfinished}"));
        }
        if self.values_unjudged > 0 {
            line(format_args!("values that cannot be judged: {}", self.values_unjudged));
        }
        for note in &self.notes {
            line(format_args!("note: {note}"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::difference::{DifferenceKind, TableName};

    fn report(differences: Vec<Difference>, totals: [u64; KINDS], values_unjudged: u64) -> VerifyReport {
        VerifyReport {
            method: Method::Deep,
            notes: vec!["2 runs have written into this dataset".into()],
            rows_expected: 10,
            rows_found: 9,
            rows_uncertain: 0,
            updates_accepted: 0,
            values_unjudged,
            tables: Vec::new(),
            unjudged: None,
            unfinished: None,
            audit: Audit::default(),
            differences,
            totals,
            problems: Vec::new(),
            nodes: Vec::new(),
            duration: Duration::from_secs(1),
        }
    }

    #[test]
    fn the_text_counts_what_it_does_not_name() {
        let missing = Difference {
            kind: DifferenceKind::Missing,
            key: "k".into(),
            row: None,
            table: TableName::local("usertable"),
            subject: None,
        };
        let mut totals = [0; KINDS];
        totals[0] = 3;
        let report = report(vec![missing], totals, 0);
        assert_eq!(
            report.text(),
            "missing: 3\n  k: missing from usertable\n  and 2 more\nnote: 2 runs have written into this dataset\n"
        );
        assert_eq!(report.verdict(), Verdict::Different);
        assert!(!report.exact());
    }

    /// Rows that a node lacks are missing, whatever could not be looked at beside them.
    #[test]
    fn a_doubt_about_servers_explains_no_missing_row() {
        let doubt =
            Problem::NoMapping { node: "n1".into(), role: "plain".into(), servers: vec!["n2".into()] };
        let with = |missing| {
            let mut totals = [0; KINDS];
            totals[0] = missing;
            VerifyReport { problems: vec![doubt.clone()], ..report(Vec::new(), totals, 0) }.verdict()
        };
        assert_eq!((with(0), with(1)), (Verdict::CannotTell, Verdict::Different));
    }

    #[test]
    fn what_cannot_be_judged_is_not_called_exact() {
        assert_eq!(report(Vec::new(), [0; KINDS], 1).verdict(), Verdict::CannotTell);
        assert_eq!(report(Vec::new(), [0; KINDS], 0).verdict(), Verdict::Exact);
        let killed = VerifyReport { unfinished: Some("why".into()), ..report(Vec::new(), [0; KINDS], 0) };
        assert_eq!(killed.verdict(), Verdict::CannotTell);
    }
}

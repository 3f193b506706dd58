//! What a verification found: the verdict, the counts, and the keys by name.

use std::fmt;
use std::time::Duration;

use data::ycsb::Version;

use super::problem::Problem;
use crate::plan::ROW_VALUE_BYTES;

/// At most this many differences of each kind are named; all are counted.
pub const NAMED_MAX: usize = 100;

/// One difference between the table and what should be in it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Difference {
    /// What is wrong.
    pub kind: DifferenceKind,
    /// The key as it stands in the table, or as it should; bytes that are not ASCII are escaped.
    pub key: String,
    /// The row number of that key; `None` when it is no key of a dataset.
    pub row: Option<u64>,
    /// The leaf table that it was found in, or is missing from.
    pub table: TableName,
}

/// A table that rows are read from.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct TableName {
    /// Its name.
    pub table: String,
    /// The node that it is on, in a cluster of several.
    pub node: Option<String>,
}

impl TableName {
    /// A table of the only node.
    pub fn local(table: impl Into<String>) -> TableName {
        TableName { table: table.into(), node: None }
    }

    /// A table of a node.
    pub fn on(table: impl Into<String>, node: impl Into<String>) -> TableName {
        TableName { table: table.into(), node: Some(node.into()) }
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.node {
            Some(node) => write!(f, "{} on {node}", self.table),
            None => f.write_str(&self.table),
        }
    }
}

/// What can be wrong with a row. Columns are field numbers, bytes are counted from 0.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum DifferenceKind {
    /// The row is not there.
    Missing,
    /// The row is there more than once.
    Duplicate {
        /// How often.
        copies: u64,
    },
    /// The row is in a leaf table that its key is not routed to, on the right node.
    WrongPartition {
        /// The leaf it belongs to.
        home: TableName,
    },
    /// A row that nobody put there.
    Stranger {
        /// How it is known.
        why: StrangerReason,
    },
    /// A row whose values are those of a missing row, and whose key is not.
    DamagedKey {
        /// The key it should have.
        right_key: String,
    },
    /// A value that no write makes.
    Damaged {
        /// The field.
        column: usize,
        /// First wrong byte.
        first_bad_byte: usize,
        /// How many bytes are wrong.
        bad_bytes: usize,
        /// The write that the right bytes come from, when there are enough of them.
        nearest: Option<Version>,
    },
    /// The value of another place.
    Moved {
        /// The field.
        column: usize,
        /// Key of the row it belongs to.
        from_key: String,
        /// Field it belongs to.
        from_column: usize,
    },
    /// NULL, which no write makes.
    Null {
        /// The field.
        column: usize,
    },
    /// A value that an acknowledged write has replaced: that update is lost.
    Stale {
        /// The field.
        column: usize,
        /// What stands there.
        found: Version,
        /// What should.
        latest: Version,
    },
    /// A well-formed value by a writer that nobody knows.
    UnknownWriter {
        /// The field.
        column: usize,
        /// Who claims to have written it.
        version: Version,
    },
    /// The row is on a node that does not own its key.
    WrongNode {
        /// The leaf it belongs to.
        home: TableName,
        /// It is there as well.
        is_home_too: bool,
    },
    /// Nodes that should hold the same hold different values in a row.
    Diverged {
        /// The fields, each with the write that stands there on the node that the difference names, and the one on the other node.
        fields: Vec<(usize, Version, Version)>,
        /// The other node.
        other: String,
    },
    /// Of nodes that should hold the same rows, one has this row and another one does not.
    OnlyOn {
        /// The node that lacks it.
        other: String,
    },
}

/// How a stranger is known.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum StrangerReason {
    /// Its key is NULL or not of the form that keys have.
    NoKey,
    /// Its key belongs to a row number that nobody loaded or inserted.
    NeverWritten,
}

/// How many kinds of differences there are.
pub const KINDS: usize = 13;

/// The words for the kinds, in the order of [`DifferenceKind::index`].
pub const KIND_NAMES: [&str; KINDS] = [
    "missing",
    "duplicate",
    "in the wrong partition",
    "stranger",
    "damaged key",
    "damaged value",
    "value of another place",
    "null",
    "stale value",
    "value of an unknown writer",
    "on the wrong node",
    "row that differs between nodes",
    "row that not every node has",
];

impl DifferenceKind {
    /// Number of the kind, into [`KIND_NAMES`] and [`VerifyReport::totals`].
    pub fn index(&self) -> usize {
        match self {
            DifferenceKind::Missing => 0,
            DifferenceKind::Duplicate { .. } => 1,
            DifferenceKind::WrongPartition { .. } => 2,
            DifferenceKind::Stranger { .. } => 3,
            DifferenceKind::DamagedKey { .. } => 4,
            DifferenceKind::Damaged { .. } => 5,
            DifferenceKind::Moved { .. } => 6,
            DifferenceKind::Null { .. } => 7,
            DifferenceKind::Stale { .. } => 8,
            DifferenceKind::UnknownWriter { .. } => 9,
            DifferenceKind::WrongNode { .. } => 10,
            DifferenceKind::Diverged { .. } => 11,
            DifferenceKind::OnlyOn { .. } => 12,
        }
    }
}

/// One line: the key first, because that is what people search for.
impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.key)?;
        if let Some(row) = self.row {
            write!(f, " (row {row})")?;
        }
        match &self.kind {
            DifferenceKind::Missing => write!(f, ": missing from {}", self.table),
            DifferenceKind::Duplicate { copies } => write!(f, ": {copies} copies in {}", self.table),
            DifferenceKind::WrongPartition { home } => write!(f, ": is in {}, belongs in {home}", self.table),
            DifferenceKind::WrongNode { home, is_home_too: true } => {
                write!(f, ": is in {} as well as in {home}, where it belongs", self.table)
            }
            DifferenceKind::WrongNode { home, is_home_too: false } => {
                write!(f, ": is in {}, belongs in {home}", self.table)
            }
            DifferenceKind::Diverged { fields, other } => {
                write!(f, ": differs between {} and {other}", self.table)?;
                for (index, (column, here, there)) in fields.iter().enumerate() {
                    let mark = if index == 0 { ":" } else { ";" };
                    write!(f, "{mark} field{column} holds {}, there {}", Writer(*here), Writer(*there))?;
                }
                Ok(())
            }
            DifferenceKind::OnlyOn { other } => write!(f, ": is in {}, but not on {other}", self.table),
            DifferenceKind::Stranger { why: StrangerReason::NoKey } => {
                write!(f, ": unknown row in {}, not a key of this dataset", self.table)
            }
            DifferenceKind::Stranger { why: StrangerReason::NeverWritten } => {
                write!(f, ": unknown row in {}, no run wrote a row of this number", self.table)
            }
            DifferenceKind::DamagedKey { right_key } => {
                write!(f, ": damaged key in {}; the values belong to {right_key}", self.table)
            }
            DifferenceKind::Damaged { column, first_bad_byte, bad_bytes, nearest } => {
                write!(
                    f,
                    ": field{column}{} is damaged from byte {first_bad_byte} on ({bad_bytes} ",
                    self.node()
                )?;
                f.write_str(if *bad_bytes == 1 { "byte wrong" } else { "bytes wrong" })?;
                match nearest {
                    Some(version) => write!(f, " in the value of {})", Writer(*version)),
                    None => f.write_str(", matches no written value)"),
                }
            }
            DifferenceKind::Moved { column, from_key, from_column } => {
                write!(f, ": field{column}{} holds the value of {from_key} field{from_column}", self.node())
            }
            DifferenceKind::Null { column } => write!(f, ": field{column}{} is null", self.node()),
            DifferenceKind::Stale { column, found, latest } => {
                write!(
                    f,
                    ": field{column}{} holds {}, but {} was acknowledged",
                    self.node(),
                    Writer(*found),
                    Writer(*latest)
                )
            }
            DifferenceKind::UnknownWriter { column, version } => {
                write!(
                    f,
                    ": field{column}{} holds {}, which no known run made",
                    self.node(),
                    Writer(*version)
                )
            }
        }
    }
}

impl Difference {
    /// In a cluster, where the row is, behind the name of a field.
    fn node(&self) -> String {
        if self.table.node.is_some() { format!(" in {}", self.table) } else { String::new() }
    }
}

/// A version as the subject of a sentence.
struct Writer(Version);

impl fmt::Display for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == Version::LOADED { f.write_str("the load") } else { self.0.fmt(f) }
    }
}

/// Puts differences in order, and of each kind keeps as many as are named.
pub(super) fn keep_named(differences: &mut Vec<Difference>) {
    differences.sort();
    let mut kept = [0; KINDS];
    differences.retain(|difference| {
        let kept = &mut kept[difference.kind.index()];
        *kept += 1;
        *kept <= NAMED_MAX
    });
}

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
    /// Nothing wrong was found, but some values cannot be judged by what is known of the runs.
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
    /// Right values of which cannot be told whether they are the last ones.
    pub values_unjudged: u64,
    /// The differences by name: at most [`NAMED_MAX`] of each kind, in order of kind and key.
    pub differences: Vec<Difference>,
    /// All differences, by [`DifferenceKind::index`].
    pub totals: [u64; KINDS],
    /// What is wrong with the cluster itself: where its nodes say that tables are, what its ledgers say, replication.
    pub problems: Vec<Problem>,
    /// The nodes of a cluster of several; empty for one server.
    pub nodes: Vec<NodeReport>,
    /// How long it took.
    pub duration: Duration,
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
        let lag_may_explain = !doubts.is_empty() && wrongs.is_empty() && self.lag_may_explain();
        if (self.differences_total() > 0 && !lag_may_explain) || !wrongs.is_empty() {
            Verdict::Different
        } else if self.values_unjudged > 0 || !doubts.is_empty() {
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

    /// Bytes of the values of the rows found.
    pub fn bytes(&self) -> u64 {
        self.rows_found.saturating_mul(ROW_VALUE_BYTES)
    }

    /// Several lines for people: what is wrong, by kind, with names, and the notes. Empty when nothing is to be said.
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
        if self.values_unjudged > 0 {
            line(format_args!("values that cannot be judged: {}", self.values_unjudged));
        }
        for note in &self.notes {
            line(format_args!("note: {note}"));
        }
        text
    }
}

/// Bytes found in a table, as text that can be printed and searched for.
pub(super) fn printable(bytes: &[u8]) -> String {
    /// A key column has 64 characters; of longer ones the beginning will do.
    const PRINTED_MAX: usize = 256;
    bytes[..bytes.len().min(PRINTED_MAX)].escape_ascii().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(differences: Vec<Difference>, totals: [u64; KINDS], values_unjudged: u64) -> VerifyReport {
        VerifyReport {
            method: Method::Deep,
            notes: vec!["2 runs have written into this dataset".into()],
            rows_expected: 10,
            rows_found: 9,
            rows_uncertain: 0,
            updates_accepted: 0,
            values_unjudged,
            differences,
            totals,
            problems: Vec::new(),
            nodes: Vec::new(),
            duration: Duration::from_secs(1),
        }
    }

    #[test]
    fn every_difference_says_where_and_what() {
        let of = |kind| {
            let key = "user000000000000000007".to_owned();
            Difference { kind, key, row: Some(7), table: TableName::local("usertable_p1") }.to_string()
        };
        let version = Version::new(3, 2, 9);
        for (kind, text) in [
            (DifferenceKind::Missing, "missing from usertable_p1"),
            (DifferenceKind::Duplicate { copies: 2 }, "2 copies in usertable_p1"),
            (
                DifferenceKind::WrongPartition { home: TableName::local("usertable_p0") },
                "is in usertable_p1, belongs in usertable_p0",
            ),
            (
                DifferenceKind::Damaged {
                    column: 3,
                    first_bad_byte: 17,
                    bad_bytes: 1,
                    nearest: Some(Version::LOADED),
                },
                "field3 is damaged from byte 17 on (1 byte wrong in the value of the load)",
            ),
            (
                DifferenceKind::Damaged { column: 3, first_bad_byte: 0, bad_bytes: 99, nearest: None },
                "field3 is damaged from byte 0 on (99 bytes wrong, matches no written value)",
            ),
            (
                DifferenceKind::Stale { column: 0, found: Version::LOADED, latest: version },
                "field0 holds the load, but run 3, session 2, write 9 was acknowledged",
            ),
            (
                DifferenceKind::UnknownWriter { column: 9, version },
                "field9 holds run 3, session 2, write 9, which no known run made",
            ),
        ] {
            assert_eq!(of(kind), format!("user000000000000000007 (row 7): {text}"));
        }
    }

    #[test]
    fn the_text_counts_what_it_does_not_name() {
        let missing = Difference {
            kind: DifferenceKind::Missing,
            key: "k".into(),
            row: None,
            table: TableName::local("usertable"),
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

    #[test]
    fn what_cannot_be_judged_is_not_called_exact() {
        assert_eq!(report(Vec::new(), [0; KINDS], 1).verdict(), Verdict::CannotTell);
        assert_eq!(report(Vec::new(), [0; KINDS], 0).verdict(), Verdict::Exact);
    }

    #[test]
    fn foreign_bytes_are_escaped() {
        assert_eq!(printable(b"user\xff\n1"), "user\\xff\\n1");
        assert_eq!(printable(&[b'x'; 1000]).len(), 256);
    }
}

//! What can be wrong with a row, and how it is named.

use std::fmt;

use data::Version;

/// At most this many differences of each kind are named; all are counted.
pub const NAMED_MAX: usize = 100;

/// One difference between the table and what should be in it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Difference {
    /// What is wrong.
    pub kind: DifferenceKind,
    /// The row: its key as it stands in the table or should, or a condition that can be pasted into a query. Bytes that are not ASCII are escaped.
    pub key: String,
    /// The number of the row that has this key; `None` where rows are named by a condition, and for what is no key of the dataset.
    pub row: Option<u64>,
    /// The leaf table that it was found in, or is missing from.
    pub table: TableName,
    /// What the condition is about: the table of the dataset, on a node where it is one of several copies. `None`: the row is named by its key.
    pub subject: Option<TableName>,
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
        /// In which parts of the table, where these are known: each once, however often the row is there.
        places: Vec<TableName>,
    },
    /// The row is in a leaf table that its key is not routed to, on the right node.
    WrongPartition {
        /// The leaf it belongs to.
        home: TableName,
    },
    /// A row that no load and no run has written.
    Extra {
        /// How it is known.
        why: ExtraReason,
    },
    /// A row whose values are those of a missing row, and whose key is not.
    DamagedKey {
        /// The key it should have.
        right_key: String,
    },
    /// Values of these columns are not those of the load, and no run has written them.
    OtherValues {
        /// Their names.
        columns: Vec<&'static str>,
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
    /// The value of another row or column.
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
    /// Not there, although the commit of its insert was acknowledged.
    LostInsert {
        /// The write that inserted it.
        by: Version,
    },
    /// A version of a whole row that an acknowledged write has replaced: that update is lost.
    Replaced {
        /// The column that has the version.
        column: &'static str,
        /// What stands there.
        found: u32,
        /// What should.
        latest: u32,
        /// The write that it comes from.
        by: Version,
    },
    /// A version of a whole row that no known run wrote.
    NeverWritten {
        /// The column that has the version.
        column: &'static str,
        /// What stands there.
        found: u32,
    },
    /// A well-formed value of an unknown writer.
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
        /// Which of both is not as the dataset has it.
        wrong: Wrong,
    },
    /// Of nodes that should hold the same rows, one has this row and another one does not.
    OnlyOn {
        /// The node that lacks it.
        other: String,
    },
}

/// Which of two copies of a row is not what was loaded.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Wrong {
    /// Not known: runs may have written the row, or the servers hash rows in their own way.
    #[default]
    Unknown,
    /// The one that the difference names.
    Here,
    /// The one on the other node.
    Other,
    /// Both.
    Both,
}

impl Wrong {
    /// Of copies of which it is known whether each is as it was loaded.
    pub(crate) fn of(is_here_right: bool, is_other_right: bool) -> Wrong {
        match (is_here_right, is_other_right) {
            (true, true) => Wrong::Unknown,
            (false, true) => Wrong::Here,
            (true, false) => Wrong::Other,
            (false, false) => Wrong::Both,
        }
    }
}

/// How an extra row is known.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ExtraReason {
    /// No load and no run makes such a row.
    NeverMade,
    /// Its key is NULL or not of the form that keys have.
    NoKey,
    /// Its key belongs to a row number that was neither loaded nor inserted.
    NeverWritten,
}

/// How many kinds of differences there are.
pub const KINDS: usize = 14;

/// The words for the kinds, in the order of [`DifferenceKind::index`].
pub const KIND_NAMES: [&str; KINDS] = [
    "missing",
    "duplicate",
    "in the wrong partition",
    "extra row",
    "damaged key",
    "damaged value",
    "value of another row or column",
    "null",
    "stale value",
    "value of an unknown writer",
    "on the wrong node",
    "row that differs between nodes",
    "row that not every node has",
    "damaged",
];

impl DifferenceKind {
    /// Number of the kind, into [`KIND_NAMES`] and the totals of a report.
    pub fn index(&self) -> usize {
        match self {
            DifferenceKind::Missing | DifferenceKind::LostInsert { .. } => 0,
            DifferenceKind::Duplicate { .. } => 1,
            DifferenceKind::WrongPartition { .. } => 2,
            DifferenceKind::Extra { .. } => 3,
            DifferenceKind::DamagedKey { .. } => 4,
            DifferenceKind::Damaged { .. } => 5,
            DifferenceKind::Moved { .. } => 6,
            DifferenceKind::Null { .. } => 7,
            DifferenceKind::Stale { .. } | DifferenceKind::Replaced { .. } => 8,
            DifferenceKind::UnknownWriter { .. } | DifferenceKind::NeverWritten { .. } => 9,
            DifferenceKind::WrongNode { .. } => 10,
            DifferenceKind::Diverged { .. } => 11,
            DifferenceKind::OnlyOn { .. } => 12,
            DifferenceKind::OtherValues { .. } => 13,
        }
    }
}

/// One line: the row first, because that is what people search for.
impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(subject) = &self.subject {
            write!(f, "{subject} where {}: ", self.key)?;
            return self.of_condition(f);
        }
        write!(f, "{}", self.key)?;
        if let Some(row) = self.row {
            write!(f, " (row {row})")?;
        }
        f.write_str(": ")?;
        self.of_key(f)
    }
}

impl Difference {
    /// What is wrong with a row that is named by its table and a condition.
    fn of_condition(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            DifferenceKind::Missing => write!(f, "missing{}", self.of_node()),
            DifferenceKind::Duplicate { copies, places } => {
                match copies {
                    2 => f.write_str("is present twice"),
                    more => write!(f, "is present {more} times"),
                }?;
                if places.is_empty() { Ok(()) } else { write!(f, ", in {}", listed(places)) }
            }
            DifferenceKind::Extra { .. } => f.write_str("extra row, not made by the load"),
            DifferenceKind::OtherValues { columns } => write!(f, "{} damaged", columns.join(", ")),
            DifferenceKind::WrongNode { home, .. } => {
                write!(f, "misplaced, its owner is {}", home.node.as_deref().unwrap_or_default())
            }
            _ => self.of_key(f),
        }
    }

    /// What is wrong with a row that is named by its key.
    fn of_key(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            DifferenceKind::Missing => write!(f, "missing from {}", self.table),
            DifferenceKind::LostInsert { by } => self.of_lost_insert(f, *by),
            DifferenceKind::Duplicate { copies, places } => self.of_copies(f, *copies, places),
            DifferenceKind::WrongPartition { home } => write!(f, "is in {}, belongs in {home}", self.table),
            DifferenceKind::WrongNode { home, is_home_too: true } => {
                write!(f, "is in {} as well as in {home}, where it belongs", self.table)
            }
            DifferenceKind::WrongNode { home, is_home_too: false } => {
                write!(f, "is in {}, belongs in {home}", self.table)
            }
            DifferenceKind::Diverged { fields, other, wrong } => {
                write!(f, "differs between {} and {other}{}", self.table, self.wrong_of(*wrong, other))?;
                for (index, (column, here, there)) in fields.iter().enumerate() {
                    let mark = if index == 0 { ":" } else { ";" };
                    write!(f, "{mark} field{column} holds {}, there {}", Writer(*here), Writer(*there))?;
                }
                Ok(())
            }
            DifferenceKind::OnlyOn { other } => write!(f, "is in {}, but not on {other}", self.table),
            DifferenceKind::OtherValues { columns } => {
                write!(f, "{}{} damaged", columns.join(", "), self.node())
            }
            DifferenceKind::Extra { why: ExtraReason::NoKey | ExtraReason::NeverMade } => {
                write!(f, "unknown row in {}, not a key of this dataset", self.table)
            }
            DifferenceKind::Extra { why: ExtraReason::NeverWritten } => {
                write!(f, "unknown row in {}, no run wrote a row of this number", self.table)
            }
            DifferenceKind::DamagedKey { right_key } => {
                write!(f, "damaged key in {}; the values belong to {right_key}", self.table)
            }
            DifferenceKind::Damaged { column, first_bad_byte, bad_bytes, nearest } => {
                write!(
                    f,
                    "field{column}{} is damaged from byte {first_bad_byte} on ({bad_bytes} ",
                    self.node()
                )?;
                f.write_str(if *bad_bytes == 1 { "byte wrong" } else { "bytes wrong" })?;
                match nearest {
                    Some(version) => write!(f, " in the value of {})", Writer(*version)),
                    None => f.write_str(", matches no written value)"),
                }
            }
            DifferenceKind::Moved { column, from_key, from_column } => {
                write!(f, "field{column}{} holds the value of {from_key} field{from_column}", self.node())
            }
            DifferenceKind::Null { column } => write!(f, "field{column}{} is null", self.node()),
            DifferenceKind::Stale { column, found, latest } => {
                write!(
                    f,
                    "field{column}{} holds {}, but {} was acknowledged",
                    self.node(),
                    Writer(*found),
                    Writer(*latest)
                )
            }
            DifferenceKind::Replaced { column, found, latest, by } => {
                write!(f, "{column}{} is {found}, but {latest} of {by} was acknowledged", self.node())
            }
            DifferenceKind::NeverWritten { column, found } => {
                write!(f, "{column}{} is {found}, which no known run wrote", self.node())
            }
            DifferenceKind::UnknownWriter { column, version } => {
                write!(f, "field{column}{} holds {}, which no known run wrote", self.node(), Writer(*version))
            }
        }
    }

    fn of_lost_insert(&self, f: &mut fmt::Formatter<'_>, by: Version) -> fmt::Result {
        write!(f, "missing{}, but its insert by {by} was acknowledged", self.node())
    }

    /// Which of two copies is wrong, as the end of a sentence.
    fn wrong_of(&self, wrong: Wrong, other: &str) -> String {
        match wrong {
            Wrong::Unknown => String::new(),
            Wrong::Here => format!(": {} is wrong, {other} has what was loaded", self.table),
            Wrong::Other => format!(": {other} is wrong, {} has what was loaded", self.table),
            Wrong::Both => ": both are wrong, neither has what was loaded".to_owned(),
        }
    }

    /// In a cluster, the node that lacks a row of a table that is named before.
    fn of_node(&self) -> String {
        let is_named = self.subject.as_ref().is_some_and(|subject| subject.node.is_some());
        let node = self.table.node.as_ref().filter(|_| !is_named);
        node.map(|node| format!(" from {node}")).unwrap_or_default()
    }

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

impl Difference {
    /// Where a row is that is there more than once: the parts of the table, if they are known.
    fn of_copies(&self, f: &mut fmt::Formatter<'_>, copies: u64, places: &[TableName]) -> fmt::Result {
        let places = if places.is_empty() { self.table.to_string() } else { listed(places) };
        write!(f, "{copies} copies in {places}")
    }
}

/// Tables in words.
fn listed(tables: &[TableName]) -> String {
    tables.iter().map(ToString::to_string).collect::<Vec<String>>().join(" and ")
}

/// Puts differences in order, and of each kind keeps as many as are named.
pub(crate) fn keep_named(differences: &mut Vec<Difference>) {
    differences.sort();
    let mut kept = [0; KINDS];
    differences.retain(|difference| {
        let kept = &mut kept[difference.kind.index()];
        *kept += 1;
        *kept <= NAMED_MAX
    });
}

/// Bytes found in a table, as text that can be printed and searched for.
pub(crate) fn printable(bytes: &[u8]) -> String {
    /// A key column has 64 characters; of longer ones the beginning will do.
    const PRINTED_MAX: usize = 256;
    bytes[..bytes.len().min(PRINTED_MAX)].escape_ascii().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_difference_names_its_place_and_its_kind() {
        let of = |kind| {
            let key = "user000000000000000007".to_owned();
            Difference { kind, key, row: Some(7), table: TableName::local("usertable_p1"), subject: None }
                .to_string()
        };
        let version = Version::new(3, 2, 9);
        for (kind, text) in [
            (DifferenceKind::Missing, "missing from usertable_p1"),
            (DifferenceKind::Duplicate { copies: 2, places: Vec::new() }, "2 copies in usertable_p1"),
            (
                DifferenceKind::Duplicate {
                    copies: 3,
                    places: vec![TableName::on("t_1", "w1"), TableName::on("t_2", "w2")],
                },
                "3 copies in t_1 on w1 and t_2 on w2",
            ),
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
                "field9 holds run 3, session 2, write 9, which no known run wrote",
            ),
        ] {
            assert_eq!(of(kind), format!("user000000000000000007 (row 7): {text}"));
        }
    }

    #[test]
    fn foreign_bytes_are_escaped() {
        assert_eq!(printable(b"user\xff\n1"), "user\\xff\\n1");
        assert_eq!(printable(&[b'x'; 1000]).len(), 256);
    }

    #[test]
    fn rows_without_a_text_for_a_key_are_named_by_a_condition() {
        let of = |kind, node: Option<&str>| {
            let subject = Some(TableName { table: "item".into(), node: node.map(str::to_owned) });
            let table = TableName::local("item_p3");
            Difference { kind, key: "i_id = 7".into(), row: None, table, subject }.to_string()
        };
        assert_eq!(of(DifferenceKind::Missing, Some("n2")), "item on n2 where i_id = 7: missing");
        let on_node = Difference {
            kind: DifferenceKind::Missing,
            key: "doc_id = 1".into(),
            row: None,
            table: TableName { table: "documents".into(), node: Some("n2".into()) },
            subject: Some(TableName::local("documents")),
        };
        assert_eq!(on_node.to_string(), "documents where doc_id = 1: missing from n2");
        let damaged = || DifferenceKind::OtherValues { columns: vec!["i_name", "i_data"] };
        assert_eq!(of(DifferenceKind::Missing, None), "item where i_id = 7: missing");
        assert_eq!(of(damaged(), Some("n2")), "item on n2 where i_id = 7: i_name, i_data damaged");
        let copies = |copies| of(DifferenceKind::Duplicate { copies, places: Vec::new() }, None);
        assert_eq!(copies(2), "item where i_id = 7: is present twice");
        let by = Version::new(3, 2, 9);
        let replaced = DifferenceKind::Replaced { column: "i_version", found: 0, latest: 77, by };
        assert_eq!(
            of(replaced, None),
            "item where i_id = 7: i_version is 0, but 77 of run 3, session 2, write 9 was acknowledged"
        );
        assert_eq!(
            of(DifferenceKind::LostInsert { by }, None),
            "item where i_id = 7: missing, but its insert by run 3, session 2, write 9 was acknowledged"
        );
        let never = DifferenceKind::NeverWritten { column: "i_version", found: 5 };
        assert_eq!(of(never, None), "item where i_id = 7: i_version is 5, which no known run wrote");
        assert_eq!(copies(3), "item where i_id = 7: is present 3 times");
        let home = TableName::on("item_p3", "n1");
        assert_eq!(
            of(DifferenceKind::WrongNode { home, is_home_too: true }, Some("n2")),
            "item on n2 where i_id = 7: misplaced, its owner is n1"
        );
    }
}

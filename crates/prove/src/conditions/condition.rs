//! The parts of a benchmark's conditions: what each states, the queries that judge it, and the tables that these read.
//!
//! A query joins aggregates once, for a range of what the benchmark is divided into, and gives for each thing it looks at one boolean per condition, true
//! when the condition is broken there, followed by the columns that name the thing and the two sides of the equation. So one pass counts what was
//! looked at and what is wrong, and a second one, made only when something is, names it.

use record::number;
use std::fmt;

/// A condition. Their numbers order them in the report.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Condition {
    number: u8,
    code: &'static str,
    description: &'static str,
    thing: &'static str,
    things: Option<&'static str>,
    is_wide: bool,
}

impl Condition {
    /// A condition: its place in the report, its code, what must hold, and what it is judged for, one of these each.
    pub const fn new(
        number: u8,
        code: &'static str,
        description: &'static str,
        thing: &'static str,
    ) -> Condition {
        Condition { number, code, description, thing, things: None, is_wide: false }
    }

    /// The same, with a plural that is not made by an `s`.
    #[must_use]
    pub const fn plural(self, things: &'static str) -> Condition {
        Condition { things: Some(things), ..self }
    }

    /// The same, comparing rows that transactions of several ranges wrote: the only conditions that a torn wide commit, or a snapshot that is not
    /// the same on all shards, can break.
    #[must_use]
    pub const fn across(self) -> Condition {
        Condition { is_wide: true, ..self }
    }

    /// Its code, which is also the name of its boolean in lower case.
    pub fn code(self) -> &'static str {
        self.code
    }

    /// What must hold.
    pub fn description(self) -> &'static str {
        self.description
    }

    /// What it is judged for, with its number: `1 warehouse`, `20 branches`.
    pub fn counted(self, count: u64) -> String {
        match self.things {
            Some(things) if count != 1 => format!("{} {things}", number::count(count)),
            _ => number::counted(count, self.thing),
        }
    }

    /// What it is judged for, one of it.
    pub fn thing(self) -> &'static str {
        self.thing
    }

    /// See [`Condition::across`].
    pub fn is_wide(self) -> bool {
        self.is_wide
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code)
    }
}

/// How a query finds the rows of its range.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Access {
    /// It reads a table that has no index on the range: as few ranges as there are connections, because each reads the table once.
    WholeTable,
    /// By primary keys, which begin with what ranges are of.
    ByKey,
    /// It has no range: once on each node.
    Once,
}

/// One query and the conditions that it judges.
#[derive(Debug)]
pub struct Probe {
    /// In the order of the query's boolean columns.
    pub conditions: &'static [Condition],
    /// How it finds its rows.
    pub access: Access,
    /// Names of the columns behind the booleans: first those that name the thing, then its numbers.
    pub columns: &'static [&'static str],
    /// The query, with `{from}` and `{to}` in place of the range, and `{name}` in place of each table.
    pub sql: &'static str,
    /// What it needs of other nodes, where it compares what transactions of several ranges wrote.
    pub others: Option<&'static Others>,
}

/// Rows of other nodes that a query needs about what one node has.
#[derive(Debug)]
pub struct Others {
    /// The place in the query where they come in.
    pub place: &'static str,
    /// The place that has this node's own.
    pub local: &'static str,
    /// What another node has of them.
    pub sql: &'static str,
    /// Their columns: name and type.
    pub columns: &'static [(&'static str, &'static str)],
    /// The column that names their object.
    pub about: &'static str,
    /// What a node has of this.
    pub own: &'static str,
}

impl Probe {
    /// The query for a range, both ends included.
    fn rows(&self, names: &Names, from: i64, to: i64) -> String {
        names.fill(self.sql, from, to)
    }

    fn flag(condition: Condition) -> String {
        condition.code().to_lowercase()
    }

    /// One row: how many things were looked at, then for each condition how many break it. A null where a boolean must be is a break, too.
    pub fn count_sql(&self, names: &Names, from: i64, to: i64) -> String {
        let counts: String = self
            .conditions
            .iter()
            .map(|condition| format!(", count(*) filter (where {} is not false)", Probe::flag(*condition)))
            .collect();
        format!("select count(*){counts} from ({}) probe", self.rows(names, from, to))
    }

    /// The first things that break a condition, in the order of their keys.
    pub fn witness_sql(
        &self,
        condition: Condition,
        names: &Names,
        (from, to): (i64, i64),
        limit: usize,
    ) -> String {
        let columns = self.columns.join(", ");
        format!(
            "select {columns} from ({}) probe where {} is not false order by {columns} limit {limit}",
            self.rows(names, from, to),
            Probe::flag(condition)
        )
    }
}

/// A table that the queries read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Table {
    /// Its place in queries.
    pub place: &'static str,
    /// What it is called by those who implement the benchmark.
    pub called: &'static [&'static str],
    /// Every node has all of its rows.
    pub is_copied: bool,
}

/// What the tables are in the database at hand, ready for SQL: names, or on a node of a cluster what it has of them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Names(Vec<(&'static str, String)>);

impl Names {
    /// What stands at a place.
    pub fn get(&self, place: &str) -> &str {
        self.0.iter().find(|(known, _)| *known == place).map_or("", |(_, sql)| sql)
    }

    /// Puts something at a place, behind all others if it is a new one.
    pub fn set(&mut self, place: &'static str, sql: String) {
        match self.0.iter_mut().find(|(known, _)| *known == place) {
            Some((_, old)) => *old = sql,
            None => self.0.push((place, sql)),
        }
    }

    /// Puts names and range into a query. What comes in at the last places may be long, and nothing is looked for in it.
    pub fn fill(&self, sql: &str, from: i64, to: i64) -> String {
        let sql = sql.replace("{from}", &from.to_string()).replace("{to}", &to.to_string());
        self.0.iter().fold(sql, |sql, (place, name)| sql.replace(&format!("{{{place}}}"), name))
    }
}

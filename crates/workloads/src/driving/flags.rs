//! The flags of benchmarks: how they are declared, and their values in a run.

use std::collections::BTreeMap;
use std::time::Duration;

use engines::profile::Isolation;
use run::script::QueryMode;
use wire::prepared::Wire;

use super::{Entry, Refusal};

/// A flag of a benchmark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flag {
    /// Its name, without dashes.
    pub long: &'static str,
    /// What its value is.
    pub kind: Kind,
    /// Its help.
    pub help: &'static str,
    /// Flags of the same benchmark that it cannot stand beside.
    pub excludes: &'static [&'static str],
}

/// What the value of a flag is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// It has none.
    Switch,
    /// A text that the benchmark reads; what stands for it in the help.
    Text(&'static str),
    /// One of some words; what stands for it in the help, and the words.
    Choice(&'static str, &'static [&'static str]),
    /// A whole number from 1 up.
    Count,
    /// Milliseconds, or a time with its unit.
    Time,
    /// An isolation level.
    Isolation,
    /// A number from 0 to 100.
    Percent,
}

impl Kind {
    /// What stands for the value in the help; `None`: it has none.
    pub fn value_name(self) -> Option<&'static str> {
        match self {
            Kind::Switch => None,
            Kind::Text(name) | Kind::Choice(name, _) => Some(name),
            Kind::Count => Some("N"),
            Kind::Time => Some("TIME"),
            Kind::Isolation => Some("LEVEL"),
            Kind::Percent => Some("PERCENT"),
        }
    }
}

/// The value of a flag.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// Of a [`Kind::Switch`] that was given.
    On,
    /// As it was typed.
    Text(String),
    /// A number.
    Count(u64),
    /// A time.
    Time(Duration),
    /// A level.
    Isolation(Isolation),
    /// A percentage.
    Percent(f64),
}

/// What a run gives to the benchmarks that it mixes.
#[derive(Clone, Debug)]
pub struct Given<'a> {
    /// Sessions of the run.
    pub sessions: u64,
    /// Its seed.
    pub seed: u64,
    /// Messages and formats.
    pub wire: Wire,
    /// How statements are sent.
    pub mode: QueryMode,
    /// The flags of benchmarks that were typed, by their names.
    pub flags: &'a BTreeMap<&'static str, Value>,
    /// Other workloads are in the mix.
    pub is_mixed: bool,
    /// The run has a rate.
    pub has_rate: bool,
    /// Its length is a number of transactions.
    pub counts_transactions: bool,
    /// It draws only keys of a named node.
    pub names_data_node: bool,
    /// The cluster, where its nodes are distinguished.
    pub entry: Option<Entry<'a>>,
}

impl Given<'_> {
    /// The value of a flag that is a text; `default` where it was not typed.
    ///
    /// # Errors
    /// When the value is none of its type; `example` shows one that is.
    pub fn flag<T: std::str::FromStr>(&self, long: &str, default: T, example: &str) -> Result<T, Refusal> {
        let Some(Value::Text(text)) = self.flags.get(long) else { return Ok(default) };
        text.parse().map_err(|_| {
            Refusal::new(format!("--{long} {text}: this value is not possible"))
                .with_hint(format!("write it as --{long} {example}"))
        })
    }

    /// Whether a flag was given.
    pub fn has(&self, long: &str) -> bool {
        self.flags.contains_key(long)
    }

    /// The value of a [`Kind::Count`].
    pub fn count(&self, long: &str) -> Option<u64> {
        match self.flags.get(long)? {
            Value::Count(count) => Some(*count),
            _ => None,
        }
    }

    /// The value of a [`Kind::Time`].
    pub fn time(&self, long: &str) -> Option<Duration> {
        match self.flags.get(long)? {
            Value::Time(time) => Some(*time),
            _ => None,
        }
    }

    /// The value of a [`Kind::Isolation`].
    pub fn isolation(&self, long: &str) -> Option<Isolation> {
        match self.flags.get(long)? {
            Value::Isolation(level) => Some(*level),
            _ => None,
        }
    }

    /// The value of a [`Kind::Percent`].
    pub fn percent(&self, long: &str) -> Option<f64> {
        match self.flags.get(long)? {
            Value::Percent(percent) => Some(*percent),
            _ => None,
        }
    }
}

//! The guarantees of transactions, as values: which anomaly is forbidden at which level, in which arrangement of nodes, among which rows and with which
//! settings.
//!
//! Exit codes follow from these values, so they are typed; the notes beside them are for readers.

use std::fmt;

use super::Profile;

/// An isolation level.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Isolation {
    /// READ COMMITTED.
    #[default]
    ReadCommitted,
    /// REPEATABLE READ.
    RepeatableRead,
    /// SERIALIZABLE.
    Serializable,
}

impl Isolation {
    /// Weakest first.
    pub const ALL: [Isolation; 3] =
        [Isolation::ReadCommitted, Isolation::RepeatableRead, Isolation::Serializable];

    /// The name in SQL.
    pub const fn name(self) -> &'static str {
        match self {
            Isolation::ReadCommitted => "READ COMMITTED",
            Isolation::RepeatableRead => "REPEATABLE READ",
            Isolation::Serializable => "SERIALIZABLE",
        }
    }

    /// The statement that begins a transaction of this level.
    pub fn begin(self) -> String {
        format!("BEGIN ISOLATION LEVEL {}", self.name())
    }

    /// Reads a level as users type it: by its name, or as `rc`, `rr` or `ser`.
    pub fn parse(text: &str) -> Option<Isolation> {
        let wanted = text.trim().replace(['-', '_'], " ").to_uppercase();
        let short = ["RC", "RR", "SER"].iter().position(|short| *short == wanted);
        let place = short.or_else(|| Isolation::ALL.iter().position(|level| level.name() == wanted))?;
        Some(Isolation::ALL[place])
    }
}

impl fmt::Display for Isolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The arrangement of the nodes of a cluster, if promises depend on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Arrangement {
    /// The engine's own; for PostgreSQL, one server.
    #[default]
    Plain,
    /// A primary and hot standbys that are read.
    Standbys,
}

/// The anomalies in promises; the columns of [`Promise::verdicts`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Anomaly {
    /// One SELECT sees half of a transaction.
    FracturedRead,
    /// G0, G1a-c: dirty writes, dirty and intermediate reads, circular information flow.
    DirtyOrCircular,
    /// G-single: read skew within a transaction.
    ReadSkew,
    /// P4.
    LostUpdate,
    /// Two readers see two writes in opposite orders.
    LongFork,
    /// G2-item: write skew.
    WriteSkew,
    /// A read on another node misses an acknowledged write.
    StaleRead,
    /// After a crash, a transaction over several nodes is only partly there.
    TornCommit,
    /// After a crash or a failover, an acknowledged transaction is lost.
    LostCommit,
}

impl Anomaly {
    /// In the order of [`Promise::verdicts`].
    pub const ALL: [Anomaly; 9] = [
        Anomaly::FracturedRead,
        Anomaly::DirtyOrCircular,
        Anomaly::ReadSkew,
        Anomaly::LostUpdate,
        Anomaly::LongFork,
        Anomaly::WriteSkew,
        Anomaly::StaleRead,
        Anomaly::TornCommit,
        Anomaly::LostCommit,
    ];

    /// A short name.
    pub fn name(self) -> &'static str {
        match self {
            Anomaly::FracturedRead => "fractured read",
            Anomaly::DirtyOrCircular => "G0, G1",
            Anomaly::ReadSkew => "read skew",
            Anomaly::LostUpdate => "lost update",
            Anomaly::LongFork => "long fork",
            Anomaly::WriteSkew => "write skew",
            Anomaly::StaleRead => "stale read elsewhere",
            Anomaly::TornCommit => "torn commit",
            Anomaly::LostCommit => "lost commit",
        }
    }
}

/// Whether an anomaly breaks a promise, if all conditions are known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    /// It must never happen: one occurrence is a violation.
    Forbidden,
    /// It may happen.
    Allowed,
    /// No promise was found, or a condition is unknown: it is measured and reported.
    Measured,
}

impl Rule {
    /// One letter for the table.
    fn letter(self) -> &'static str {
        match self {
            Rule::Forbidden => "F",
            Rule::Allowed => "A",
            Rule::Measured => "m",
        }
    }
}

/// A setting that decides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Setting {
    /// Shardman: `enable_csn_snapshot` is on.
    CsnSnapshot,
    /// `synchronous_commit` is `remote_apply`, and every standby that is read is a synchronous one.
    RemoteApply,
    /// Commits wait for the standby that takes over.
    SynchronousStandby,
    /// YDB: sessions request the stale or the online read-only mode.
    StaleReads,
}

impl Setting {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Setting::CsnSnapshot => "`enable_csn_snapshot`",
            Setting::RemoteApply => "`remote_apply` and synchronous standbys",
            Setting::SynchronousStandby => "a synchronous standby",
            Setting::StaleReads => "stale read-only modes",
        }
    }
}

/// The condition under which an anomaly breaks a promise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Always the same.
    Is(Rule),
    /// It cannot be queried.
    NotApplicable,
    /// It depends on whether all rows are on one shard.
    ByShard {
        /// On one shard.
        within: Rule,
        /// On several.
        across: Rule,
    },
    /// It depends on a setting.
    BySetting {
        /// Which.
        setting: Setting,
        /// Where it is so.
        with: Rule,
        /// Where it is not.
        without: Rule,
    },
}

/// A verdict, with a note for readers of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// What decides.
    pub verdict: Verdict,
    /// A short note; may be empty.
    pub note: &'static str,
}

impl Entry {
    /// The same with a note.
    pub(crate) const fn noted(self, note: &'static str) -> Entry {
        Entry { note, ..self }
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.verdict {
            Verdict::Is(rule) => f.write_str(rule.letter())?,
            Verdict::NotApplicable => f.write_str("-")?,
            Verdict::ByShard { within, across } => {
                write!(f, "{} within a shard, {} across", within.letter(), across.letter())?;
            }
            Verdict::BySetting { setting, with, without } => {
                write!(f, "{} with {}, {} without", with.letter(), setting.name(), without.letter())?;
            }
        }
        if self.note.is_empty() { Ok(()) } else { write!(f, ": {}", self.note) }
    }
}

/// The promises of an engine at some isolation levels in one arrangement.
#[derive(Clone, Copy, Debug)]
pub struct Promise {
    /// The levels.
    pub levels: &'static [Isolation],
    /// The arrangement of the nodes.
    pub at: Arrangement,
    /// What the row is called.
    pub title: &'static str,
    /// One entry per [`Anomaly::ALL`].
    pub verdicts: [Entry; 9],
}

impl Promise {
    /// What is promised about one anomaly.
    pub fn entry(&self, anomaly: Anomaly) -> Entry {
        self.verdicts[anomaly as usize]
    }
}

/// Where an anomaly was looked for.
#[derive(Clone, Copy)]
#[expect(missing_debug_implementations, reason = "it contains a query")]
pub struct Place<'a> {
    /// The level of the transactions.
    pub level: Isolation,
    /// The arrangement of the nodes.
    pub at: Arrangement,
    /// Whether rows of several shards took part.
    pub is_spread: bool,
    /// Whether a setting has the value; `None`: unknown.
    pub is_set: &'a dyn Fn(Setting) -> Option<bool>,
}

impl Profile {
    /// The promise about an anomaly. If the level has no row, a weaker one that forbids it and a stronger one that allows it decide,
    /// because every stronger level also has the promises of a level.
    pub fn rule(&self, place: &Place<'_>, anomaly: Anomaly) -> Rule {
        let rows = || self.promises.iter().filter(|promise| promise.at == place.at);
        let decide = |promise: &Promise| match promise.entry(anomaly).verdict {
            Verdict::Is(rule) => rule,
            Verdict::NotApplicable => Rule::Measured,
            Verdict::ByShard { within, across } => {
                if place.is_spread {
                    across
                } else {
                    within
                }
            }
            Verdict::BySetting { setting, with, without } => match (place.is_set)(setting) {
                Some(true) => with,
                Some(false) => without,
                None if with == without => with,
                None => Rule::Measured,
            },
        };
        if let Some(own) = rows().find(|promise| promise.levels.contains(&place.level)) {
            return decide(own);
        }
        let any = |wanted: Rule, is_there: &dyn Fn(Isolation) -> bool| {
            rows().any(|promise| {
                promise.levels.iter().any(|level| is_there(*level)) && decide(promise) == wanted
            })
        };
        if any(Rule::Forbidden, &|level| level < place.level) {
            return Rule::Forbidden;
        }
        if any(Rule::Allowed, &|level| level > place.level) {
            return Rule::Allowed;
        }
        Rule::Measured
    }
}

/// The table of all promises, as in the documentation.
pub fn table<'a>(profiles: impl IntoIterator<Item = &'a Profile>) -> String {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let names = Anomaly::ALL.iter().map(|anomaly| anomaly.name().to_owned());
    let mut out = line(std::iter::once("engine and level".to_owned()).chain(names).collect());
    out.push_str(&format!("|{}\n", "---|".repeat(Anomaly::ALL.len() + 1)));
    for promise in profiles.into_iter().flat_map(|profile| profile.promises) {
        let cells = promise.verdicts.iter().map(|entry| entry.to_string());
        out.push_str(&line(std::iter::once(promise.title.to_owned()).chain(cells).collect()));
    }
    out
}

/// Short names for the tables of promises.
pub(crate) mod short {
    use super::{Entry, Rule, Setting, Verdict};

    const fn always(verdict: Verdict) -> Entry {
        Entry { verdict, note: "" }
    }

    /// Forbidden.
    pub(crate) const F: Entry = always(Verdict::Is(Rule::Forbidden));
    /// Allowed.
    pub(crate) const A: Entry = always(Verdict::Is(Rule::Allowed));
    /// Measured.
    pub(crate) const M: Entry = always(Verdict::Is(Rule::Measured));
    /// It cannot be queried.
    pub(crate) const N: Entry = always(Verdict::NotApplicable);
    /// Forbidden within a shard, allowed across.
    pub(crate) const S: Entry = always(Verdict::ByShard { within: Rule::Forbidden, across: Rule::Allowed });

    /// Forbidden with a setting, allowed without.
    pub(crate) const fn with(setting: Setting) -> Entry {
        always(Verdict::BySetting { setting, with: Rule::Forbidden, without: Rule::Allowed })
    }

    /// Allowed with a setting, forbidden without.
    pub(crate) const fn unless(setting: Setting) -> Entry {
        always(Verdict::BySetting { setting, with: Rule::Allowed, without: Rule::Forbidden })
    }
}

#[cfg(test)]
mod tests;

//! `prove`: what a database promises: the consistency conditions of a benchmark in one snapshot, its isolation by scripts, what a history refutes,
//! and what it keeps
//! under load and under faults.

pub mod check;
pub(crate) mod commits;
pub mod conditions;
pub mod engine;
mod fault_events;
mod hermitage;
mod history;
pub mod live;
mod once;
mod suite;
mod testbed;
mod trial;

/// What can be proved under load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// Scripted interleavings
    Hermitage,
    /// Acknowledged commits
    Ack,
    /// Outages and staleness
    Hb,
    /// Sums over shards
    Bank,
    /// Rows written together
    Twin,
    /// Write skew
    Skew,
    /// The same rows on several nodes
    Conflict,
    /// Round trips of a commit over several nodes
    Wide,
    /// Random transactions on versioned registers
    Verreg,
    /// Random transactions on lists
    Append,
    /// The scripts and all workloads
    All,
}

impl What {
    /// Its name in steps and run directories.
    pub fn word(self) -> &'static str {
        match self {
            What::Hermitage => "hermitage",
            What::Ack => "ack",
            What::Hb => "hb",
            What::Bank => "bank",
            What::Twin => "twin",
            What::Skew => "skew",
            What::Conflict => "conflict",
            What::Wide => "wide",
            What::Verreg => "verreg",
            What::Append => "append",
            What::All => "all",
        }
    }
}

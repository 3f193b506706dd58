//! `check.json`: what the preflight of hosts and nodes measured, and how each figure was judged.

use crate::SCHEMA_VERSION;
use crate::finding::Remedy;
use serde::{Deserialize, Serialize};

/// The whole file.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Checks {
    /// Version of this file.
    pub schema: u32,
    /// Every checked item, in the order of the areas.
    pub items: Vec<Item>,
}

impl Default for Checks {
    fn default() -> Checks {
        Checks { schema: SCHEMA_VERSION, items: Vec::new() }
    }
}

/// One thing that was checked on one subject.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Item {
    /// Stable name of the check: `disk.fsync`, `schema.primary_key`.
    pub check: String,
    /// What it belongs to.
    pub area: Area,
    /// The host, if it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The database node, if it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// What on this host or node: a mount, a device, a setting, a table; empty for the whole of it.
    pub subject: String,
    /// The judgement.
    pub verdict: Verdict,
    /// The measured value, if it is a number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub figure: Option<Figure>,
    /// The limit that it was compared with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// One sentence with the numbers.
    pub claim: String,
    /// Why it matters; for an item that could not be checked: what is missing.
    pub why: String,
    /// What to do about it.
    pub remedy: Remedy,
}

/// What an item belongs to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Area {
    /// Throughput and latency of disks.
    #[default]
    Disk,
    /// Bandwidth, round trips and retransmits between hosts.
    Network,
    /// Bandwidth and latency of memory, NUMA, huge pages.
    Memory,
    /// Speed, frequency and steal of processors.
    Cpu,
    /// Offsets of clocks.
    Clock,
    /// Kernel, mounts, file systems.
    System,
    /// ECC, AER, SMART.
    Hardware,
    /// What differs between hosts that should be equal.
    Contrast,
    /// Settings of the server.
    Settings,
    /// Tables, indexes, sequences, constraints.
    Schema,
    /// Transactions, slots, wraparound, versions: the state of the server.
    State,
}

/// The judgement of an item.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// As it should be.
    Pass,
    /// A fact without a judgement.
    Note,
    /// It could not be checked; `why` gives the reason.
    #[default]
    Unknown,
    /// It will cost something.
    Warn,
    /// It is below what was required, or endangers the data or the run.
    Fail,
}

/// A measured value.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Figure {
    /// In the unit below.
    pub value: f64,
    /// Its unit.
    pub unit: Unit,
}

/// A limit of a figure, in the unit of the figure.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The figure must not be below it.
    AtLeast(f64),
    /// The figure must not be above it.
    AtMost(f64),
}

impl Limit {
    /// Whether a value keeps it.
    pub fn is_kept_by(self, value: f64) -> bool {
        match self {
            Limit::AtLeast(least) => value >= least,
            Limit::AtMost(most) => value <= most,
        }
    }
}

/// Units of figures. Sizes are in bytes and times in microseconds, so that values can be compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// A number of things.
    Count,
    /// A share from 0 to 1.
    Share,
    /// Bytes.
    Bytes,
    /// Bytes per second.
    BytesPerSecond,
    /// Operations per second.
    PerSecond,
    /// Microseconds.
    Microseconds,
    /// Nanoseconds.
    Nanoseconds,
    /// Megahertz.
    Megahertz,
    /// Transactions: ages of transaction ids.
    Transactions,
}

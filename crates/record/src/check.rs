//! `check.json`: what the preflight of hosts and nodes measured, and how each figure was judged.

mod measured;

pub use measured::{
    Counted, Disk, DiskTest, Distribution, Fact, Host, Lack, Memory, Mount, Pair, Pattern, Processor,
    WallClock,
};

use crate::finding::Remedy;
use crate::{RecordError, SCHEMA_VERSION, file, files, number};
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::path::Path;

/// The whole file.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Checks {
    /// Version of this file.
    pub schema: u32,
    /// Every checked item, in the order of the areas.
    pub items: Vec<Item>,
    /// What was measured and read of each host.
    pub hosts: Vec<Host>,
    /// What each disk gave, in every round.
    pub disks: Vec<Disk>,
    /// What the network gave between two hosts, in every round.
    pub pairs: Vec<Pair>,
}

impl Default for Checks {
    fn default() -> Checks {
        Checks { schema: SCHEMA_VERSION, items: vec![], hosts: vec![], disks: vec![], pairs: vec![] }
    }
}

/// The longest `check.json` that is read: a day of rounds on many hosts stays far below.
const BYTES_MAX: u64 = 256 << 20;

impl Checks {
    /// Writes it into a run directory.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, dir: &Path) -> Result<(), RecordError> {
        let path = dir.join(files::CHECKS);
        let text = serde_json::to_vec_pretty(self)
            .map_err(|source| RecordError::Json { what: "check.json", source })?;
        file::replace(&path, &text).map_err(|error| RecordError::io("write", path)(error))
    }

    /// Reads it from a run directory; `None` if the directory has none.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read(dir: &Path) -> Result<Option<Checks>, RecordError> {
        let path = dir.join(files::CHECKS);
        let bytes = match file::read(&path, BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(RecordError::io("read", path)(error)),
        };
        serde_json::from_slice(&bytes).map(Some).map_err(|source| RecordError::Damaged { path, source })
    }

    /// The worst verdict of all items; `None` without items.
    pub fn worst(&self) -> Option<Verdict> {
        self.items.iter().map(|item| item.verdict).max()
    }

    /// How many items have this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.items.iter().filter(|item| item.verdict == verdict).count()
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

impl Item {
    /// An item about a host without figure and judgement.
    pub fn of_host(check: &str, area: Area, host: &str, subject: impl Into<String>) -> Item {
        Item {
            check: check.to_string(),
            area,
            host: Some(host.to_string()),
            subject: subject.into(),
            verdict: Verdict::Note,
            ..Item::default()
        }
    }

    /// The same with a measured value.
    #[must_use]
    pub fn figure(mut self, value: f64, unit: Unit) -> Item {
        self.figure = Some(Figure { value, unit });
        self
    }

    /// The same with a judgement and the sentence that gives the numbers.
    #[must_use]
    pub fn judged(mut self, verdict: Verdict, claim: impl Into<String>) -> Item {
        (self.verdict, self.claim) = (verdict, claim.into());
        self
    }

    /// The same with the reason why it matters.
    #[must_use]
    pub fn why(mut self, why: impl Into<String>) -> Item {
        self.why = why.into();
        self
    }

    /// The same with what to do, and what to type for it.
    #[must_use]
    pub fn remedy(mut self, text: impl Into<String>, commands: &[&str]) -> Item {
        let commands = commands.iter().map(ToString::to_string).collect();
        self.remedy = Remedy { text: text.into(), commands };
        self
    }
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

impl Verdict {
    /// One word for people.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Pass => "pass",
            Verdict::Note => "note",
            Verdict::Unknown => "unknown",
            Verdict::Warn => "warn",
            Verdict::Fail => "fail",
        }
    }
}

impl Area {
    /// One word for people.
    pub fn word(self) -> &'static str {
        match self {
            Area::Disk => "disk",
            Area::Network => "network",
            Area::Memory => "memory",
            Area::Cpu => "cpu",
            Area::Clock => "clock",
            Area::System => "system",
            Area::Hardware => "hardware",
            Area::Contrast => "contrast",
            Area::Settings => "settings",
            Area::Schema => "schema",
            Area::State => "state",
        }
    }
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

impl Figure {
    /// For people.
    pub fn text(self) -> String {
        match self.unit {
            Unit::Count | Unit::Transactions => number::short(self.value),
            Unit::Share => number::percent(self.value),
            Unit::Bytes => number::bytes(self.value),
            Unit::BytesPerSecond => format!("{}/s", number::bytes(self.value)),
            Unit::PerSecond => format!("{}/s", number::short(self.value)),
            Unit::Microseconds => number::latency(self.value),
            Unit::Nanoseconds if self.value < 1000.0 => format!("{} ns", number::three(self.value)),
            Unit::Nanoseconds => number::latency(self.value / 1000.0),
            Unit::Megahertz => format!("{} MHz", number::three(self.value)),
        }
    }
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
    /// For people.
    pub fn text(self, unit: Unit) -> String {
        let (sign, value) = match self {
            Limit::AtLeast(least) => (">=", least),
            Limit::AtMost(most) => ("<=", most),
        };
        format!("{sign} {}", Figure { value, unit }.text())
    }

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

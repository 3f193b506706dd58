//! `plan.json`: what a load and a run are expected to need, how each figure was computed, and the forecast of the fill.
//!
//! `pgfathom plan` writes it. `load` and `run` copy it into their run directory, where `report` compares it with what was measured.

pub mod compared;
pub mod input;

use crate::error::RecordError;
use crate::file;
use crate::{SCHEMA_VERSION, files};
pub use compared::Compared;
pub use input::Input;
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::path::Path;

/// The kind of file, as it stands in the file.
pub const SCHEMA: &str = "pgfathom.plan";

/// The whole file.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Plan {
    /// [`SCHEMA`].
    pub schema: String,
    /// [`SCHEMA_VERSION`] of the writer.
    pub schema_version: u32,
    /// The program that wrote this.
    pub tool_version: String,
    /// What it was computed from.
    pub input: Input,
    /// Everything fits, and is ready in time.
    pub fits: bool,
    /// Why not, worst first.
    pub problems: Vec<String>,
    /// What a reader has to know.
    pub notes: Vec<String>,
    /// Rows and bytes of the whole dataset.
    pub size: Size,
    /// Partitions and volumes.
    #[serde(skip_serializing_if = "is_unknown")]
    pub layout: Layout,
    /// Space on disk.
    #[serde(skip_serializing_if = "is_unknown")]
    pub space: Space,
    /// Rates and times of the load.
    pub time: Time,
    /// Transaction ids.
    #[serde(skip_serializing_if = "is_unknown")]
    pub transactions: Transactions,
    /// Vacuum of everything.
    #[serde(skip_serializing_if = "is_unknown")]
    pub vacuum: Vacuum,
    /// WAL and checkpoints.
    #[serde(skip_serializing_if = "is_unknown")]
    pub wal: Wal,
    /// Connections, clients, replicas.
    pub clients: Clients,
    /// Latencies of a commit.
    pub commits: Vec<CommitLatency>,
    /// Costs, if prices were given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub money: Option<Money>,
    /// The simulated fill.
    pub forecast: Forecast,
    /// How each figure was computed, in order.
    pub formulas: Vec<Formula>,
}

/// Rows and bytes of the whole dataset, without standbys. What is none or unknown is absent.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Size {
    /// Rows of all tables.
    pub rows: u64,
    /// Values as `load` counts them.
    pub value_bytes: u64,
    /// Tables with their maps, without TOAST.
    #[serde(skip_serializing_if = "is_unknown")]
    pub heap_bytes: u64,
    /// Indexes.
    #[serde(skip_serializing_if = "is_unknown")]
    pub index_bytes: u64,
    /// TOAST tables with their indexes.
    #[serde(skip_serializing_if = "is_unknown")]
    pub toast_bytes: u64,
    /// All of these.
    #[serde(skip_serializing_if = "is_unknown")]
    pub disk_bytes: u64,
    /// Per row.
    #[serde(skip_serializing_if = "is_unknown")]
    pub disk_bytes_per_row: f64,
    /// WAL of the load.
    #[serde(skip_serializing_if = "is_unknown")]
    pub wal_bytes: u64,
}

/// Whether a part of a plan was not computed, or has nothing: as where the engine does not store rows as PostgreSQL does.
fn is_unknown<T: Default + PartialEq>(part: &T) -> bool {
    *part == T::default()
}

/// Partitions and volumes.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Layout {
    /// Partitions of each table; 1 is a plain table.
    pub partitions: u64,
    /// The largest table or index that PostgreSQL can have.
    pub relation_bytes_max: u64,
    /// The largest partition of any table.
    pub partition_bytes: u64,
    /// The least partitions of each node by that limit.
    pub partitions_per_node_min: u64,
    /// Volumes of each node.
    pub volumes_per_node: u64,
    /// Which partitions belong to which tablespace, for the first node.
    pub tablespaces: Vec<Tablespace>,
}

/// A tablespace of each node.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Tablespace {
    /// Its name.
    pub name: String,
    /// Partitions of a node in it, each with its indexes.
    pub partitions: u64,
    /// Their bytes, with indexes and TOAST.
    pub bytes: u64,
}

/// Space on the fullest volume, and how many rows fit.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Space {
    /// Whether the capacity is known.
    pub is_known: bool,
    /// Bytes that files can use on a volume.
    pub volume_bytes: u64,
    /// What the dataset takes of it at the end.
    pub final_bytes: u64,
    /// What it takes at most, while indexes are built.
    pub peak_bytes: u64,
    /// What stays free at the end.
    pub keep_free_bytes: u64,
    /// What must be free when the last row was copied: the indexes, and the reserve or what sorting needs of it. The value for `load --keep-free`.
    pub keep_free_while_copying_bytes: u64,
    /// Rows that fit on all volumes.
    pub rows_max: u64,
    /// What these rows take on all nodes.
    pub disk_bytes_max: u64,
    /// Their values.
    pub value_bytes_max: u64,
}

/// Rates and times of the load.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Time {
    /// Rows that are loaded: all, or those that fit.
    pub rows: u64,
    /// The rate that the deadline needs, in bytes of values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub needed_bytes_per_s: Option<f64>,
    /// The same in rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub needed_rows_per_s: Option<f64>,
    /// The measured rate in rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows_per_s: Option<f64>,
    /// Time of copying.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copy_s: Option<f64>,
    /// Time of building the indexes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index_s: Option<f64>,
    /// All of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_s: Option<f64>,
    /// The short end of its range.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_s_low: Option<f64>,
    /// The long end of its range.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_s_high: Option<f64>,
    /// What is left of the deadline; negative: it is missed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spare_s: Option<f64>,
}

/// Transaction ids of one node.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "PlannedTransactions"))]
#[serde(default)]
pub struct Transactions {
    /// Ids that the load takes.
    pub load: u64,
    /// Vacuums against wraparound that begin during the load.
    pub wraparounds_during_load: u64,
    /// Ids left after it until such a vacuum.
    pub left: u64,
    /// How long they last at the workload's rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_s: Option<f64>,
    /// Bytes that this vacuum reads on a node if the load did not freeze the rows.
    pub vacuum_bytes: u64,
    /// The same if it did: only the visibility map.
    pub vacuum_bytes_frozen: u64,
}

/// How long a vacuum of everything takes that freezes all rows, by what limits it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Vacuum {
    /// Workers of a node that have work.
    pub workers: u64,
    /// Rate of one worker that the cost delay allows; absent without a delay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delayed_bytes_per_s: Option<f64>,
    /// By the cost delay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by_delay_s: Option<f64>,
    /// By reading, if the rate of the disks is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by_read_s: Option<f64>,
    /// By writing WAL, if its rate is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by_wal_s: Option<f64>,
    /// WAL of a node.
    pub wal_bytes: u64,
    /// The largest of these.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_s: Option<f64>,
    /// Which one that is: `cost delay`, `reading`, `WAL`.
    pub limited_by: String,
}

/// WAL of the load and its checkpoints, for one node.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "PlannedWal"))]
#[serde(default)]
pub struct Wal {
    /// WAL per byte of values.
    pub per_value_byte: f64,
    /// Rate while rows are copied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_s: Option<f64>,
    /// Bytes of WAL between two checkpoints.
    pub checkpoint_bytes: u64,
    /// Time between two checkpoints.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint_s: Option<f64>,
    /// `max_wal_size` with which checkpoints come by time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_wal_size_wanted: Option<u64>,
}

/// Connections, client hosts, replicas.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Clients {
    /// Connections that the load opens to a node.
    pub connections_per_node: u64,
    /// Connections that the workload opens to a node.
    pub sessions_per_node: u64,
    /// Cores that the load keeps busy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_cores: Option<f64>,
    /// Cores that the workload keeps busy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_cores: Option<f64>,
    /// Client hosts for both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hosts: Option<u64>,
    /// The share of the database hosts' cores that can work for writes.
    pub replica_utilisation: f64,
}

/// The latency that a commit has at least.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct CommitLatency {
    /// The way of committing.
    pub topology: String,
    /// Its sequential round trips.
    pub round_trips: f64,
    /// Latencies in microseconds, in the order of the pings.
    pub latency_us: Vec<f64>,
}

/// Costs in the currency of the prices.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Money {
    /// Of all hosts for an hour.
    pub per_hour: f64,
    /// Of the load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<f64>,
    /// Of a million transactions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_million_transactions: Option<f64>,
}

/// The simulated fill.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Forecast {
    /// Events that were simulated; 0: nothing was simulated, because no rate is known.
    pub events: u64,
    /// When it ends.
    pub end_s: f64,
    /// When the last row is copied.
    pub copied_s: f64,
    /// Rows that are loaded then.
    pub rows: u64,
    /// Why it ends: `complete`, or the stop rule.
    pub outcome: String,
    /// Its state at equal distances.
    pub points: Vec<Point>,
    /// What happened.
    pub happened: Vec<Happened>,
}

/// The state of the fill at one time.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "ForecastPoint"))]
#[serde(default)]
pub struct Point {
    /// Since the start.
    pub t_s: f64,
    /// Rows on all nodes.
    pub rows: u64,
    /// Bytes on all nodes.
    pub disk_bytes: u64,
    /// The share of the fullest volume that is used.
    pub fullest: f64,
    /// Rows of the slowest node as a share of its part.
    pub slowest: f64,
}

/// Something that happened in the simulation.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Happened {
    /// Since the start.
    pub t_s: f64,
    /// What.
    pub what: String,
}

/// How a figure was computed.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Formula {
    /// What it gives.
    pub name: String,
    /// The formula in the names of its inputs.
    pub expression: String,
    /// Its inputs.
    pub inputs: Vec<Term>,
    /// Its result.
    pub result: f64,
    /// The unit of the result.
    pub unit: Unit,
}

/// An input of a formula.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Term {
    /// As it stands in the formula.
    pub name: String,
    /// Its value.
    pub value: f64,
    /// Its unit.
    pub unit: Unit,
}

/// The units of a plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "PlanUnit"))]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// A number of things.
    #[default]
    Count,
    /// A share from 0 to 1.
    Share,
    /// Bytes.
    Bytes,
    /// Bytes for each row, with decimals.
    BytesPerRow,
    /// Bytes per second.
    BytesPerSecond,
    /// Things per second.
    PerSecond,
    /// Seconds.
    Seconds,
    /// Microseconds.
    Microseconds,
    /// Whatever currency the prices have.
    Money,
}

impl Unit {
    /// A value in this unit, for people.
    pub fn text(self, value: f64) -> String {
        use crate::number;
        match self {
            Unit::Count if value.abs() >= 1e6 => number::short(value),
            Unit::Count => number::three(value),
            Unit::Share => number::percent(value),
            Unit::Bytes => number::bytes(value),
            Unit::BytesPerRow => format!("{} B", number::three(value)),
            Unit::BytesPerSecond => format!("{}/s", number::bytes(value)),
            Unit::PerSecond => format!("{}/s", number::short(value)),
            Unit::Seconds => number::duration(value),
            Unit::Microseconds => number::latency(value),
            Unit::Money => number::three(value),
        }
    }
}

impl Plan {
    /// The content of the file: indented, ends with a line feed.
    ///
    /// # Errors
    /// [`RecordError::Json`] if a number has no JSON form.
    pub fn to_json(&self) -> Result<String, RecordError> {
        let text = serde_json::to_string_pretty(self);
        text.map(|text| text + "\n").map_err(|source| RecordError::Json { what: "the plan", source })
    }

    /// Writes `plan.json` into a run directory.
    ///
    /// # Errors
    /// [`RecordError::Io`] if the folder cannot be written.
    pub fn write(&self, dir: &Path) -> Result<(), RecordError> {
        let path = dir.join(files::PLAN);
        file::replace(&path, self.to_json()?.as_bytes()).map_err(RecordError::io("write", path))
    }

    /// Reads a plan that the user named.
    ///
    /// # Errors
    /// [`RecordError::Io`] if it cannot be read, [`RecordError::Damaged`] or [`RecordError::Invalid`] if it is no plan, [`RecordError::Version`]
    /// if a later program wrote it.
    pub fn open(path: &Path) -> Result<Plan, RecordError> {
        let io = |error| RecordError::io("read", path.to_owned())(error);
        Plan::parse(path, &file::read(path, file::WHOLE_BYTES_MAX).map_err(io)?)
    }

    /// Reads `plan.json` of a run directory; `None` if it has none.
    ///
    /// # Errors
    /// As [`Plan::open`].
    pub fn read(dir: &Path) -> Result<Option<Plan>, RecordError> {
        let path = dir.join(files::PLAN);
        match file::read(&path, file::WHOLE_BYTES_MAX) {
            Ok(bytes) => Plan::parse(&path, &bytes).map(Some),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(RecordError::io("read", path)(error)),
        }
    }

    fn parse(path: &Path, bytes: &[u8]) -> Result<Plan, RecordError> {
        let path = path.to_owned();
        let plan: Plan = serde_json::from_slice(bytes)
            .map_err(|source| RecordError::Damaged { path: path.clone(), source })?;
        if plan.schema != SCHEMA {
            let why = format!("it has no \"schema\": \"{SCHEMA}\"; pgfathom plan -o FILE writes a plan");
            return Err(RecordError::Invalid { path, why });
        }
        match plan.schema_version <= SCHEMA_VERSION {
            true => Ok(plan),
            false => {
                Err(RecordError::Version { path, found: plan.schema_version.into(), known: SCHEMA_VERSION })
            }
        }
    }
}

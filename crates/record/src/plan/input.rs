//! What a plan is computed from: the dataset, the hardware, the server's settings, and what was measured.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Everything that a plan depends on: the same input gives the same plan.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Input {
    /// The dataset by its name on the command line.
    pub dataset: String,
    /// What the dataset is made of, by the names of the flags of `load`, without dashes.
    pub flags: BTreeMap<String, String>,
    /// Its tables.
    pub tables: Vec<TableSize>,
    /// Where the sizes of the tables come from.
    pub sizes_from: String,
    /// Nodes and disks.
    pub hardware: Hardware,
    /// Settings of the servers that the figures depend on.
    pub server: Server,
    /// How the rows are loaded.
    pub loading: Loading,
    /// What runs afterwards.
    pub workload: Workload,
    /// The engine of the target, if it stores rows otherwise than PostgreSQL does; absent: as PostgreSQL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other_storage: Option<OtherStorage>,
    /// Round trips between nodes.
    pub pings: Vec<Ping>,
    /// How commits travel between nodes.
    pub topologies: Vec<Topology>,
    /// Prices, if any were given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prices: Option<Prices>,
    /// What goes wrong in the simulation.
    pub what_if: Vec<WhatIf>,
    /// Seed of the simulation.
    pub seed: u64,
}

/// An engine whose bytes on disk, log and upkeep do not follow from PostgreSQL's pages: a plan has none of these figures for it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct OtherStorage {
    /// The engine.
    pub engine: String,
    /// How it stores rows, as the end of a sentence about it.
    pub how: String,
}

/// One table of the dataset, and what a row of it takes. What is unknown for the engine is 0.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "PlannedTable"))]
#[serde(default)]
pub struct TableSize {
    /// Its name.
    pub name: String,
    /// Its rows.
    pub rows: u64,
    /// Whether every node has all of its rows.
    pub is_whole: bool,
    /// Values as `load` counts them.
    pub value_bytes_per_row: f64,
    /// The tuple with its header, its alignment and its line pointer.
    pub tuple_bytes_per_row: f64,
    /// The main fork: tuples, page headers and what stays free in pages.
    pub heap_bytes_per_row: f64,
    /// Free space map and visibility map.
    pub map_bytes_per_row: f64,
    /// All of its indexes.
    pub index_bytes_per_row: f64,
    /// Its TOAST table with its index.
    pub toast_bytes_per_row: f64,
    /// WAL of COPY and of building the indexes.
    pub wal_bytes_per_row: f64,
    /// Of that, the part of building the indexes.
    pub index_wal_bytes_per_row: f64,
    /// Temporary files of sorting for its largest index.
    pub sort_bytes_per_row: f64,
}

/// Nodes and disks.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Hardware {
    /// Nodes that share the rows.
    pub nodes: u64,
    /// Standbys of each node; each holds a full copy of it.
    pub standbys: u64,
    /// Data disks of each node.
    pub disks: u64,
    /// Capacity of each disk.
    pub disk_bytes: u64,
    /// The share of a disk that files can use.
    pub usable_share: f64,
    /// The disks of a node are one volume (RAID 0 or LVM); otherwise each has its own tablespace.
    pub is_one_volume: bool,
    /// What stays free on every volume at the end.
    pub keep_free_bytes: u64,
    /// Sequential read rate of a disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_read_bytes_per_s: Option<f64>,
    /// Rate at which a node can write and flush WAL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wal_bytes_per_s: Option<f64>,
    /// Cores of a client host.
    pub client_cores: u64,
    /// Network rate of a client host.
    pub client_network_bytes_per_s: f64,
}

impl Default for Hardware {
    fn default() -> Hardware {
        Hardware {
            nodes: 1,
            standbys: 0,
            disks: 1,
            disk_bytes: 0,
            usable_share: 1.0,
            is_one_volume: false,
            keep_free_bytes: 0,
            disk_read_bytes_per_s: None,
            wal_bytes_per_s: None,
            client_cores: 1,
            client_network_bytes_per_s: 0.0,
        }
    }
}

/// Settings of the servers, with PostgreSQL's own defaults.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "PlannedServer"))]
#[serde(default)]
pub struct Server {
    /// Where they come from: the defaults, or a live server.
    pub source: String,
    /// `block_size`.
    pub block_bytes: u64,
    /// `max_wal_size`.
    pub max_wal_bytes: u64,
    /// `checkpoint_timeout`.
    pub checkpoint_timeout_s: f64,
    /// `checkpoint_completion_target`.
    pub checkpoint_completion_target: f64,
    /// `full_page_writes`.
    pub is_full_page_writes_on: bool,
    /// `autovacuum_max_workers`.
    pub vacuum_workers: u64,
    /// Cost that the workers of a node may collect together before they sleep: `autovacuum_vacuum_cost_limit`.
    pub vacuum_cost_limit: f64,
    /// `autovacuum_vacuum_cost_delay`; 0 is no delay.
    pub vacuum_cost_delay_ms: f64,
    /// `vacuum_cost_page_miss`.
    pub vacuum_cost_page_miss: f64,
    /// `vacuum_cost_page_dirty`.
    pub vacuum_cost_page_dirty: f64,
    /// `autovacuum_freeze_max_age`.
    pub freeze_max_age: u64,
    /// The age of the oldest database, by the live server.
    pub age: u64,
    /// `max_connections`; 0: unknown.
    pub max_connections: u64,
}

impl Default for Server {
    fn default() -> Server {
        Server {
            source: "PostgreSQL's defaults".into(),
            block_bytes: 8192,
            max_wal_bytes: 1 << 30,
            checkpoint_timeout_s: 300.0,
            checkpoint_completion_target: 0.9,
            is_full_page_writes_on: true,
            vacuum_workers: 3,
            vacuum_cost_limit: 200.0,
            vacuum_cost_delay_ms: 2.0,
            vacuum_cost_page_miss: 2.0,
            vacuum_cost_page_dirty: 20.0,
            freeze_max_age: 200_000_000,
            age: 0,
            max_connections: 100,
        }
    }
}

/// How the rows are loaded.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Loading {
    /// COPY streams over all nodes.
    pub streams: u64,
    /// Client hosts that load together.
    pub agents: u64,
    /// Partitions of each table; absent: as many as the disks and the limit of a table need.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partitions: Option<u64>,
    /// Tablespaces of each node, in the order of its disks.
    pub tablespaces: Vec<String>,
    /// Transactions of the load on each node.
    pub transactions_per_node: u64,
    /// Rows are frozen when they are loaded.
    pub is_frozen: bool,
    /// Time until the load must be complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_s: Option<f64>,
    /// Measured rate of the whole load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// CPU time of the client for a row.
    pub client_us_per_row: f64,
    /// Index entries that one server process sorts and writes in a second.
    pub index_rows_per_s: f64,
}

/// A measured rate, in bytes of values, and its range.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Rate {
    /// The mean.
    pub bytes_per_s: f64,
    /// The low end of the range.
    pub low_bytes_per_s: f64,
    /// The high end of the range.
    pub high_bytes_per_s: f64,
    /// Where it comes from, and what the range is.
    pub source: String,
}

/// What runs after the load.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "PlannedWorkload"))]
#[serde(default)]
pub struct Workload {
    /// Writing transactions per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tps: Option<f64>,
    /// Sessions.
    pub sessions: u64,
    /// CPU time of the client for a transaction.
    pub client_us_per_transaction: f64,
}

/// A measured or given round trip.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Ping {
    /// Between what.
    pub name: String,
    /// Its time in microseconds.
    pub us: f64,
}

/// A way of committing, with its sequential round trips.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Topology {
    /// What it is.
    pub name: String,
    /// Round trips one after another.
    pub round_trips: f64,
    /// Time that it takes beside them.
    pub fixed_us: f64,
}

/// Prices in any one currency.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Prices {
    /// Of a database host for an hour.
    pub node_hour: f64,
    /// Of a client host for an hour.
    pub client_hour: f64,
}

/// Something that happens in the simulation.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct WhatIf {
    /// Seconds after the start.
    pub at_s: f64,
    /// What happens.
    pub what: Happening,
}

/// What can happen. Nodes, disks and partitions are counted from 1, from 1 and from 0, as they are named.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Happening {
    /// A disk gets slower.
    SlowDisk {
        /// Its node, from 1.
        node: u64,
        /// The disk, from 1.
        disk: u64,
        /// Its rate as a share of the rate of the others.
        share: f64,
    },
    /// A client host is lost.
    AgentLost,
    /// A client host comes back.
    AgentBack,
    /// A partition moves to another node.
    Move {
        /// The partition, from 0.
        partition: u64,
        /// Its new node, from 1.
        node: u64,
    },
    /// The nodes are vacuumed while the load goes on, which leaves it this share of its rate.
    Vacuum {
        /// The share.
        share: f64,
        /// For how long, in seconds.
        for_s: f64,
    },
}

//! What `plan` is given of hosts, servers and the load: by flags, or by a file with the same names.

use crate::failure::Failure;
use app::plan::{Given, words};
use app::quantity::{self, ValueError};
use clap::{Args, Parser};
use record::plan::input::{Ping, Prices, WhatIf};
use std::error::Error as _;
use std::path::Path;
use std::time::Duration;

/// The largest file that is read.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Hosts, servers and the load.
#[derive(Clone, Debug, Default, Args)]
pub struct Sizing {
    /// Nodes that share the rows [default: 1, or those of the target]
    #[arg(long, value_name = "N", value_parser = quantity::positive_count, help_heading = "Hosts")]
    pub nodes: Option<u64>,
    /// Standbys of each node
    #[arg(long, value_name = "N", value_parser = quantity::count, help_heading = "Hosts")]
    pub standbys: Option<u64>,
    /// Data disks of each node [default: 1, or the volumes of the target]
    #[arg(long, value_name = "N", value_parser = quantity::positive_count, help_heading = "Hosts")]
    pub disks: Option<u64>,
    /// Capacity of each disk, as 15TB [default: what the target has free, if it is on this host]
    #[arg(long, value_name = "SIZE", value_parser = quantity::size_bytes, help_heading = "Hosts")]
    pub disk: Option<u64>,
    /// Share of a disk that files can use [default: 93.5%, as ext4 leaves; 100% of what a live target has free]
    #[arg(long, value_name = "SHARE", value_parser = words::share, help_heading = "Hosts")]
    pub usable: Option<f64>,
    /// The disks of a node are one volume; otherwise each has a tablespace
    #[arg(long, help_heading = "Hosts")]
    pub raid: bool,
    /// What stays free on each volume at the end [default: 500GB, or a tenth of a smaller one]
    #[arg(long, value_name = "SIZE", value_parser = quantity::size_bytes, help_heading = "Hosts")]
    pub keep_free: Option<u64>,
    /// Read rate of a disk, as 3GB/s: for the duration of vacuum
    #[arg(long, value_name = "RATE", value_parser = words::bytes_per_s, help_heading = "Hosts")]
    pub disk_read: Option<u64>,
    /// Rate at which a node can write WAL, as 1GB/s
    #[arg(long, value_name = "RATE", value_parser = words::bytes_per_s, help_heading = "Hosts")]
    pub wal_rate: Option<u64>,
    /// Cores of a client host [default: 16]
    #[arg(long, value_name = "N", value_parser = quantity::positive_count, help_heading = "Hosts")]
    pub client_cores: Option<u64>,
    /// Partitions of each table [default: as many as disks and PostgreSQL's limit of 32 TB need]
    #[arg(long, value_name = "N", value_parser = quantity::count, help_heading = "Load")]
    pub partitions: Option<u64>,
    /// Tablespaces of a node, in the order of its disks: A,B,C
    #[arg(long, value_name = "NAMES", value_delimiter = ',', help_heading = "Load")]
    pub tablespaces: Vec<String>,
    /// Number of COPY streams [default: one for each disk]
    #[arg(short, long, value_name = "N", value_parser = quantity::positive_count, help_heading = "Load")]
    pub jobs: Option<u64>,
    /// Client hosts that load together [default: 1]
    #[arg(long, value_name = "N", value_parser = quantity::positive_count, help_heading = "Load")]
    pub agents: Option<u64>,
    /// Rows are frozen when they are loaded (load --method freeze)
    #[arg(long, help_heading = "Load")]
    pub freeze: bool,
    /// Rows of a transaction of another loader [default: the chunks of load]
    #[arg(long, value_name = "N", value_parser = quantity::positive_count, help_heading = "Load")]
    pub rows_per_transaction: Option<u64>,
    /// Time until the load must be complete, as 14d
    #[arg(long, value_name = "TIME", value_parser = quantity::duration, help_heading = "Load")]
    pub within: Option<Duration>,
    /// Measured rate of the whole load in bytes of values, as 1.75GB/s
    #[arg(long, value_name = "RATE", value_parser = words::bytes_per_s, help_heading = "Measurements")]
    pub rate: Option<u64>,
    /// Writing transactions per second after the load
    #[arg(long, value_name = "RATE", value_parser = quantity::rate_per_s, help_heading = "Run")]
    pub tps: Option<f64>,
    /// Sessions that drive them
    #[arg(short, long, value_name = "N", value_parser = quantity::count, help_heading = "Run")]
    pub client: Option<u64>,
    /// Round trips between nodes, as zone=1ms,region=20ms
    #[arg(long, value_name = "NAME=TIME", value_delimiter = ',', value_parser = words::ping, help_heading = "Run")]
    pub ping: Vec<Ping>,
    /// Price of a database host for an hour
    #[arg(long, value_name = "MONEY", value_parser = words::price, help_heading = "Run")]
    pub price_node: Option<f64>,
    /// Price of a client host for an hour
    #[arg(long, value_name = "MONEY", value_parser = words::price, help_heading = "Run")]
    pub price_client: Option<f64>,
    /// block_size of the servers [default: 8KiB]
    #[arg(long, value_name = "SIZE", value_parser = block_size, help_heading = "Servers")]
    pub block_size: Option<u64>,
    /// max_wal_size of the servers [default: 1GiB]
    #[arg(long, value_name = "SIZE", value_parser = quantity::size_bytes, help_heading = "Servers")]
    pub max_wal_size: Option<u64>,
    /// autovacuum_max_workers [default: 3]
    #[arg(long, value_name = "N", value_parser = quantity::positive_count, help_heading = "Servers")]
    pub vacuum_workers: Option<u64>,
    /// autovacuum_vacuum_cost_limit, which the workers of a node share [default: 200]
    #[arg(long, value_name = "N", value_parser = quantity::positive_count, help_heading = "Servers")]
    pub vacuum_cost_limit: Option<u64>,
    /// autovacuum_vacuum_cost_delay, 0 for none [default: 2ms]
    #[arg(long, value_name = "TIME", value_parser = words::delay_ms, help_heading = "Servers")]
    pub vacuum_cost_delay: Option<f64>,
    /// Something that goes wrong in the simulation: slow=n2.d3:10%@6h, agent-lost@2d, agent-back@3d, move=p7:n3@1d, vacuum=50%:12h@2d; may be given
    /// several times
    #[arg(long, value_name = "EVENT", value_parser = words::what_if, help_heading = "Simulation")]
    pub what_if: Vec<WhatIf>,
}

/// The flags of a file, read as if they had been typed.
#[derive(Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct Typed {
    #[command(flatten)]
    sizing: Sizing,
}

impl Sizing {
    /// Reads a file of flags.
    pub fn read(path: &Path) -> Result<Sizing, Failure> {
        let hint = "write one flag a line, as nodes = 7 and disk = \"15TB\"; pgfathom plan --help lists them";
        let wrong = |message: String| Failure::usage(format!("{}: {message}", path.display())).hint(hint);
        let bytes = record::file::read(path, FILE_BYTES_MAX).map_err(|error| wrong(error.to_string()))?;
        let text = String::from_utf8(bytes).map_err(|_| wrong("it is not UTF-8".into()))?;
        let table: toml::Table =
            text.parse().map_err(|error: toml::de::Error| wrong(error.message().to_string()))?;
        let mut words = Vec::new();
        for (name, value) in &table {
            let values = match value {
                toml::Value::Array(values) => values.as_slice(),
                one => std::slice::from_ref(one),
            };
            for value in values {
                words.extend(match value {
                    toml::Value::Boolean(true) => Some(format!("--{name}")),
                    toml::Value::Boolean(false) => None,
                    toml::Value::String(text) => Some(format!("--{name}={text}")),
                    toml::Value::Integer(number) => Some(format!("--{name}={number}")),
                    toml::Value::Float(number) => Some(format!("--{name}={number}")),
                    _ => return Err(wrong(format!("{name} is not a value"))),
                });
            }
        }
        Typed::try_parse_from(words).map(|typed| typed.sizing).map_err(|error| {
            let refused = error.source().and_then(|source| source.downcast_ref::<ValueError>());
            let flag = error
                .get(clap::error::ContextKind::InvalidArg)
                .map(|flag| flag.to_string())
                .unwrap_or_default();
            let name = flag.trim_start_matches('-').split([' ', '=']).next().unwrap_or_default().to_string();
            match refused {
                Some(refused) => Failure::usage(format!("{}: {name}: {}", path.display(), refused.message))
                    .hint(&refused.hint),
                None => wrong(format!("{name} is not a flag of plan about hosts, servers or the load")),
            }
        })
    }

    /// These values, and others where there are none.
    #[must_use]
    pub fn or(self, other: Sizing) -> Sizing {
        let list = |own: Vec<String>, other: Vec<String>| if own.is_empty() { other } else { own };
        Sizing {
            nodes: self.nodes.or(other.nodes),
            standbys: self.standbys.or(other.standbys),
            disks: self.disks.or(other.disks),
            disk: self.disk.or(other.disk),
            usable: self.usable.or(other.usable),
            raid: self.raid || other.raid,
            keep_free: self.keep_free.or(other.keep_free),
            disk_read: self.disk_read.or(other.disk_read),
            wal_rate: self.wal_rate.or(other.wal_rate),
            client_cores: self.client_cores.or(other.client_cores),
            partitions: self.partitions.or(other.partitions),
            tablespaces: list(self.tablespaces, other.tablespaces),
            jobs: self.jobs.or(other.jobs),
            agents: self.agents.or(other.agents),
            freeze: self.freeze || other.freeze,
            rows_per_transaction: self.rows_per_transaction.or(other.rows_per_transaction),
            within: self.within.or(other.within),
            rate: self.rate.or(other.rate),
            tps: self.tps.or(other.tps),
            client: self.client.or(other.client),
            ping: if self.ping.is_empty() { other.ping } else { self.ping },
            price_node: self.price_node.or(other.price_node),
            price_client: self.price_client.or(other.price_client),
            block_size: self.block_size.or(other.block_size),
            max_wal_size: self.max_wal_size.or(other.max_wal_size),
            vacuum_workers: self.vacuum_workers.or(other.vacuum_workers),
            vacuum_cost_limit: self.vacuum_cost_limit.or(other.vacuum_cost_limit),
            vacuum_cost_delay: self.vacuum_cost_delay.or(other.vacuum_cost_delay),
            what_if: if self.what_if.is_empty() { other.what_if } else { self.what_if },
        }
    }

    /// The values without their units.
    pub fn given(self) -> Result<Given, Failure> {
        if self.price_client.is_some() && self.price_node.is_none() {
            return Err(Failure::usage("--price-client: the price of a database host is missing")
                .hint("add --price-node MONEY"));
        }
        let rate = |bytes: Option<u64>| bytes.map(|bytes| bytes as f64);
        Ok(Given {
            nodes: self.nodes,
            standbys: self.standbys,
            disks: self.disks,
            disk_bytes: self.disk,
            usable_share: self.usable,
            is_one_volume: self.raid,
            keep_free_bytes: self.keep_free,
            disk_read_bytes_per_s: rate(self.disk_read),
            wal_bytes_per_s: rate(self.wal_rate),
            client_cores: self.client_cores,
            partitions: self.partitions,
            tablespaces: self.tablespaces,
            streams: self.jobs,
            agents: self.agents,
            is_frozen: self.freeze,
            rows_per_transaction: self.rows_per_transaction,
            deadline_s: self.within.map(|within| within.as_secs_f64()),
            bytes_per_s: rate(self.rate),
            tps: self.tps,
            sessions: self.client.unwrap_or(0),
            pings: self.ping,
            prices: self
                .price_node
                .map(|node_hour| Prices { node_hour, client_hour: self.price_client.unwrap_or(0.0) }),
            block_bytes: self.block_size,
            max_wal_bytes: self.max_wal_size,
            vacuum_workers: self.vacuum_workers,
            vacuum_cost_limit: self.vacuum_cost_limit,
            vacuum_cost_delay_ms: self.vacuum_cost_delay,
            what_if: self.what_if,
            seed: 0,
        })
    }
}

/// A block size that PostgreSQL can be built with.
fn block_size(text: &str) -> Result<u64, ValueError> {
    let bytes = quantity::size_bytes(text)?;
    let is_possible = bytes.is_power_of_two() && (1 << 10..=1 << 15).contains(&bytes);
    let refused = || {
        ValueError::new(
            format!("{bytes} bytes are no block size"),
            "give 1KiB, 2KiB, 4KiB, 8KiB, 16KiB or 32KiB",
        )
    };
    if is_possible { Ok(bytes) } else { Err(refused()) }
}

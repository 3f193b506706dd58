//! The flags of `prove` about load and faults.

use ::prove::fault::Plan;
use ::prove::live::Isolation;
use app::prove::live::{self, Faults};
use app::quantity::{self, ValueError};
use clap::{Args, ValueEnum};
use connect::conninfo::{self, Sources};
use std::time::Duration;

/// How long each workload is watched unless -T is given, in seconds.
const TIME_DEFAULT: &str = "10";
/// Sessions that write unless -c is given.
const CLIENTS_DEFAULT: &str = "4";
/// The most repeats: more would not change the distribution.
const REPEATS_MAX: u64 = 1_000;
/// Sessions at most: each is a thread of ours.
const CLIENTS_MAX: u64 = 256;

/// The flags of what is watched under load.
#[derive(Debug, Args)]
pub struct Flags {
    /// Faults to inject: FAULT[:NODE]@TIME, separated by commas, as kill@10s,heal@15s; or random, or random:SEED
    #[arg(long, value_name = "PLAN", value_parser = faults, help_heading = "Faults")]
    pub fault: Option<Faults>,
    /// Permit faults on servers of this host that pgfathom up did not create
    #[arg(long, help_heading = "Faults")]
    pub allow_faults: bool,
    /// Connection string of a proxy or a pooler in front of the cluster: sessions of the load connect to it; the target names the nodes
    #[arg(long, value_name = "CONNINFO", value_parser = front, conflicts_with = "local", help_heading = "Faults")]
    pub through: Option<String>,
    /// Undo the faults that a killed prove left behind, and do nothing else
    #[arg(long, exclusive = true, help_heading = "Faults")]
    pub heal: bool,
    /// Create a cluster for the test and remove it afterwards: single, replicated, sharded, multimaster; all: each in turn
    #[arg(
        long,
        value_name = "KIND",
        value_enum,
        hide_possible_values = true,
        conflicts_with_all = ["target", "host", "port", "dbname", "cluster"],
        help_heading = "Load and faults"
    )]
    pub local: Option<Local>,
    /// A setting in postgresql.conf of that cluster; may be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = setting, requires = "local", help_heading = "Load and faults")]
    pub set: Vec<(String, String)>,
    /// How long each workload runs: seconds, or as 1m
    #[arg(short = 'T', long, value_name = "TIME", default_value = TIME_DEFAULT, value_parser = quantity::duration, help_heading = "Load and faults")]
    pub time: Duration,
    /// Sessions that write
    #[arg(short, long, value_name = "N", default_value = CLIENTS_DEFAULT, value_parser = clients, help_heading = "Load and faults")]
    pub client: u64,
    /// Isolation level: "read committed", "repeatable read" or serializable [default: read committed; skew: serializable]
    #[arg(long, value_name = "LEVEL", value_parser = quantity::isolation, help_heading = "Load and faults")]
    pub isolation: Option<Isolation>,
    /// What each commit waits for: off, local, remote_write, on or remote_apply [default: the server's]
    #[arg(long, value_name = "LEVEL", value_parser = commit_level, help_heading = "Load and faults")]
    pub synchronous_commit: Option<String>,
    /// Repeat each test N times with the same faults, and report the spread of the figures; after a promotion the cluster is created again
    #[arg(long, value_name = "N", default_value = "1", value_parser = repeats, help_heading = "Load and faults")]
    pub repeat: u64,
    /// Seed of every random choice
    #[arg(long, value_name = "SEED", value_parser = quantity::count, help_heading = "Load and faults")]
    pub random_seed: Option<u64>,
}

/// A connection string that can be parsed; the target has what it does not name.
fn front(text: &str) -> Result<String, ValueError> {
    conninfo::parse(text, &Sources::of_process()).map_err(|error| {
        let hint = error.hint().unwrap_or_else(|| "write it as \"host=/run/proxy port=5000\"".to_owned());
        ValueError::new(error.to_string(), hint)
    })?;
    Ok(text.to_owned())
}

/// `--local`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Local {
    /// One server
    Single,
    /// A primary and a synchronous standby
    Replicated,
    /// Two shards by postgres_fdw
    Sharded,
    /// Logical replication both ways
    Multimaster,
    /// All of them, with the faults and settings that belong to each
    All,
}

impl Local {
    /// What the flag selects.
    pub fn value(self) -> live::Local {
        match self {
            Local::Single => live::Local::Single,
            Local::Replicated => live::Local::Replicated,
            Local::Sharded => live::Local::Sharded,
            Local::Multimaster => live::Local::Multimaster,
            Local::All => live::Local::All,
        }
    }
}

fn faults(text: &str) -> Result<Faults, ValueError> {
    let hint = "write random, or random:42 to repeat the same faults";
    match text.strip_prefix("random") {
        Some("") => Ok(Faults::Random(None)),
        Some(seed) => match seed.strip_prefix(':').and_then(|seed| seed.parse().ok()) {
            Some(seed) => Ok(Faults::Random(Some(seed))),
            None => Err(ValueError::new(format!("{text:?} is not a seed"), hint)),
        },
        None => Plan::parse(text)
            .map(Faults::Planned)
            .map_err(|error| ValueError::new(error.to_string(), error.hint())),
    }
}

fn setting(text: &str) -> Result<(String, String), ValueError> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => Ok((name.trim().to_owned(), value.to_owned())),
        _ => {
            Err(ValueError::new(format!("{text:?} is not a setting"), "write NAME=VALUE, as --set fsync=off"))
        }
    }
}

fn clients(text: &str) -> Result<u64, ValueError> {
    match quantity::positive_count(text)? {
        count if count > CLIENTS_MAX => Err(ValueError::new(
            format!("{count} is more than {CLIENTS_MAX} sessions"),
            "give a smaller number",
        )),
        count => Ok(count),
    }
}

fn repeats(text: &str) -> Result<u64, ValueError> {
    match quantity::positive_count(text)? {
        count if count > REPEATS_MAX => Err(ValueError::new(
            format!("{count} is more than {REPEATS_MAX} repeats"),
            "give a smaller number: ten show the spread of a failover",
        )),
        count => Ok(count),
    }
}

fn commit_level(text: &str) -> Result<String, ValueError> {
    match lab::local::CommitLevel::parse(text) {
        Some(level) => Ok(level.name().to_owned()),
        None => Err(ValueError::new(
            format!("{text:?} is not a level of synchronous_commit"),
            "choose off, local, remote_write, on or remote_apply",
        )),
    }
}

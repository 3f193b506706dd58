//! `load`: fill a table with deterministic rows. Running it again continues.

use crate::context::{Context, cpus};
use crate::failure::Failure;
use crate::flags::Watching;
use crate::flags::{Connection, RunDirectory};
use app::load::Plan;
use app::quantity;
use clap::{ArgGroup, Args, ValueEnum};
use record::Exit;
use std::path::PathBuf;
use std::time::Duration;

pub(super) mod content;

/// The flags of `load`.
#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("amount").args(["rows", "size", "scale"]),
    after_help = content::examples()
)]
pub struct Load {
    /// What to fill.
    #[arg(
        value_name = "WHAT",
        value_parser = clap::builder::PossibleValuesParser::new(content::names()),
        hide_possible_values = true,
        help = content::about()
    )]
    pub what: String,
    /// The database.
    #[command(flatten)]
    pub connection: Connection,
    /// Number of rows, as 1000000, 1M, 1e9
    #[arg(long, value_name = "N", value_parser = quantity::count, help_heading = "Data")]
    pub rows: Option<u64>,
    /// Size of the values to load, as 10GB, 1TB; indexes and page overhead are extra
    #[arg(long, value_name = "SIZE", value_parser = quantity::size_bytes, help_heading = "Data")]
    pub size: Option<u64>,
    #[arg(
        short = 's',
        long,
        value_name = "W",
        value_parser = quantity::positive_count,
        conflicts_with_all = ["key_order", "compressible"],
        help_heading = "Data",
        help = content::scales()
    )]
    pub scale: Option<u64>,
    #[arg(long, help_heading = "Data", help = content::of_takers("--foreign-keys", "also add the foreign keys"))]
    pub foreign_keys: bool,
    #[arg(
        long,
        value_name = "PERCENT",
        value_parser = quantity::positive_count,
        help_heading = "Data",
        help = content::of_takers(
            "--fillfactor",
            "fill factor in percent of the tables that transactions update [default: the server's, 100]"
        )
    )]
    pub fillfactor: Option<u64>,
    /// Number of partitions of each table, by hash, or by range of the units of -s; 0: not partitioned [default: 0, that of the cluster, or that of an earlier
    /// load]
    #[arg(long, value_name = "N", value_parser = quantity::count, help_heading = "Data")]
    pub partitions: Option<u64>,
    /// scattered: keys are a pseudo-random bijection of the row number; sequential: they ascend with it
    #[arg(
        long,
        value_name = "ORDER",
        value_enum,
        default_value = "scattered",
        hide_possible_values = true,
        help_heading = "Data"
    )]
    pub key_order: KeyOrder,
    /// Factor by which LZ4 can compress the values, from 1 (not at all) to 6
    #[arg(long, value_name = "RATIO", default_value = "1", value_parser = compressible, help_heading = "Data")]
    pub compressible: data::Compressible,
    /// Flags of single datasets.
    #[command(flatten)]
    pub own: content::OwnFlags,
    /// Seed of keys and values: the same seed and size give the same table, byte for byte
    #[arg(long, value_name = "SEED", default_value = "1", value_parser = quantity::count, help_heading = "Data")]
    pub seed: u64,
    /// Number of COPY streams [default: number of CPUs]
    #[arg(short, long, value_name = "N", value_parser = quantity::positive_count, help_heading = "Load")]
    pub jobs: Option<u64>,
    /// copy: logged, resumes by chunk; freeze: each leaf table is filled and frozen in one transaction (no WAL with wal_level=minimal, no later
    /// freeze), resumes by leaf [default: copy, or that of an earlier load]
    #[arg(long, value_name = "METHOD", value_enum, hide_possible_values = true, help_heading = "Load")]
    pub method: Option<Method>,
    /// Rows of a chunk, the unit of resuming [default: rows of about 96 MiB, or as the dataset requires]
    #[arg(long, value_name = "N", value_parser = quantity::positive_count, help_heading = "Load")]
    pub chunk_rows: Option<u64>,
    /// Tablespace of the table and its index [default: the server's]
    #[arg(long, value_name = "NAME", help_heading = "Load")]
    pub tablespace: Option<String>,
    /// Tablespaces over which the leaf tables are distributed, each with its index, on every node: A,B,C
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        conflicts_with = "tablespace",
        help_heading = "Load"
    )]
    pub tablespaces: Vec<String>,
    /// Unlogged tables: no WAL, and empty after a crash of the server
    #[arg(long, help_heading = "Load")]
    pub unlogged: bool,
    /// Load only the i-th of N shares of the chunks: for several hosts that load together
    #[arg(long, value_name = "i/N", value_parser = segment, help_heading = "Load")]
    pub segment: Option<load::Segment>,
    /// owner: each row directly to the node of its leaf table; connect: all rows through the first node, for comparison; each: streams enter at
    /// all nodes in turn, where the engine itself brings rows to their nodes [default: owner, or that of an earlier load]
    #[arg(long, value_name = "WAY", value_enum, hide_possible_values = true, help_heading = "Load")]
    pub via: Option<Via>,
    /// Stop when less than this is free on a disk of the data, on any node, as 500GB
    #[arg(long, value_name = "SIZE", value_parser = quantity::size_bytes, help_heading = "Stop")]
    pub keep_free: Option<u64>,
    /// Stop after this time (36h, 2d) or at this time, as the server reads it ('2026-01-03 18:00')
    #[arg(long, value_name = "TIME", value_parser = deadline, help_heading = "Stop")]
    pub deadline: Option<load::Deadline>,
    /// Drop the tables of an earlier load, and start over
    #[arg(long, help_heading = "Load")]
    pub restart: bool,
    /// Drop the table of that name even if pgfathom did not make it: its content is lost; may be given several times
    #[arg(long, value_name = "NAME", help_heading = "Load")]
    pub force: Vec<String>,
    /// Load what a plan of pgfathom plan names: its rows, partitions, tablespaces, streams and stop rule; the report then compares both
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["rows", "size", "scale", "foreign_keys", "fillfactor", "key_order", "compressible", "seed"],
        help_heading = "Data"
    )]
    pub plan: Option<PathBuf>,
    /// Seconds between progress lines [default: one line that is redrawn; 5 if stderr is not a terminal]
    #[arg(short = 'P', long, value_name = "TIME", value_parser = quantity::duration, help_heading = "Output")]
    pub progress: Option<Duration>,
    /// Monitoring during the run.
    #[command(flatten)]
    pub watching: Watching,
    /// Destination of results.
    #[command(flatten)]
    pub directory: RunDirectory,
}

/// The order in which keys follow row numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum KeyOrder {
    /// A bijection scatters the keys
    Scattered,
    /// Keys ascend with the row number
    Sequential,
}

impl KeyOrder {
    /// The dataset's word for it.
    pub(super) fn value(self) -> data::KeyOrder {
        match self {
            KeyOrder::Scattered => data::KeyOrder::Scattered,
            KeyOrder::Sequential => data::KeyOrder::Sequential,
        }
    }
}

/// How rows get in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Method {
    /// Binary COPY, logged
    Copy,
    /// Create, fill and freeze a leaf table in one transaction
    Freeze,
}

/// Which way rows take to the nodes of a sharded cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Via {
    /// Straight to the node of their leaf table
    Owner,
    /// Through the first node
    Connect,
    /// Through all nodes in turn
    Each,
}

impl Load {
    /// Fills the target and writes the run directory.
    pub fn run(self, context: &Context) -> Result<Exit, Failure> {
        self.plan()?.run(context)
    }

    fn plan(self) -> Result<Plan, Failure> {
        let planned = self.plan.as_deref().map(app::plan::open).transpose()?;
        let content = match &planned {
            Some(planned) => self.planned_content(planned)?,
            None => self.content()?,
        };
        let mut options = self.options()?;
        if let Some(planned) = &planned {
            app::plan::apply(planned, &mut options, self.jobs.is_some());
        }
        Ok(Plan {
            address: self.connection.address()?,
            content: content.into(),
            options,
            progress: self.progress,
            watching: self.watching.value(),
            planned: planned.map(Box::new),
            directory: self.directory.output_dir,
        })
    }

    fn options(&self) -> Result<load::Options, Failure> {
        let too_large = |flag: &str| {
            Failure::usage(format!("{flag}: the number is too large")).hint("give a smaller number")
        };
        let partitions =
            self.partitions.map(u32::try_from).transpose().map_err(|_| too_large("--partitions"))?;
        let streams = match self.jobs {
            Some(jobs) => usize::try_from(jobs).map_err(|_| too_large("-j/--jobs"))?,
            None => cpus(),
        };
        Ok(load::Options {
            partitions,
            streams,
            method: self.method.map(|method| match method {
                Method::Copy => load::Method::Copy,
                Method::Freeze => load::Method::Freeze,
            }),
            restart: self.restart,
            force: self.force.clone(),
            tablespaces: self.tablespace.iter().chain(&self.tablespaces).cloned().collect(),
            chunk_rows: self.chunk_rows,
            via: self.via.map(|via| match via {
                Via::Owner => load::Via::Owner,
                Via::Connect => load::Via::Connect,
                Via::Each => load::Via::Each,
            }),
            segment: self.segment.unwrap_or(load::Segment::ALL),
            unlogged: self.unlogged,
            keep_free_bytes: self.keep_free,
            deadline: self.deadline.clone(),
            ..load::Options::new()
        })
    }
}

fn segment(text: &str) -> Result<load::Segment, quantity::ValueError> {
    text.parse().map_err(|error: load::options::SegmentError| {
        let hint = "give each of N loaders its own segment, 1/N to N/N, with otherwise equal flags";
        quantity::ValueError::new(error.to_string(), hint)
    })
}

/// A duration, or whatever the server may read as a time.
fn deadline(text: &str) -> Result<load::Deadline, quantity::ValueError> {
    let duration = quantity::duration(text);
    Ok(duration.map_or_else(|_| load::Deadline::At(text.to_string()), load::Deadline::After))
}

pub(super) fn compressible(text: &str) -> Result<data::Compressible, quantity::ValueError> {
    text.parse().map_err(|error: data::CompressibleError| {
        quantity::ValueError::new(error.to_string(), error.hint().unwrap_or_default())
    })
}

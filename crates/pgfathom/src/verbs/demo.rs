//! `demo`: everything at once on a throwaway local PostgreSQL.

use crate::context::Context;
use crate::failure::Failure;
use crate::flags::{RunDirectory, Watching};
use crate::verbs::run::clients;
use app::demo::Plan;
use app::quantity;
use clap::Args;
use record::Exit;
use std::path::PathBuf;
use std::time::Duration;

/// The flags of `demo`.
#[derive(Debug, Args)]
#[command(after_help = "\
The cluster has its own folder, needs no root, and is removed at the end, also after Ctrl-C.
It runs without durability (fsync=off): a durable server is slower.")]
pub struct Demo {
    /// Rows to load, of about 1,100 bytes
    #[arg(long, value_name = "N", default_value = "1M", value_parser = quantity::positive_count, help_heading = "Demo")]
    pub rows: u64,
    /// Number of sessions of each run
    #[arg(short, long, value_name = "N", default_value = "8", value_parser = clients, help_heading = "Demo")]
    pub client: u64,
    /// How long each run measures: seconds, or as 1m
    #[arg(short = 'T', long, value_name = "TIME", default_value = "10", value_parser = quantity::duration,
          help_heading = "Demo")]
    pub time: Duration,
    /// Folder of the PostgreSQL programs (initdb, postgres) [default: PGFATHOM_PG_BIN, else the newest one found]
    #[arg(long, value_name = "DIR", help_heading = "Demo")]
    pub pg_bin: Option<PathBuf>,
    /// Leave the cluster running at the end and print how to connect to it
    #[arg(long, help_heading = "Demo")]
    pub keep: bool,
    /// Monitoring during the run.
    #[command(flatten)]
    pub watching: Watching,
    /// Destination of results.
    #[command(flatten)]
    pub directory: RunDirectory,
}

impl Demo {
    /// Runs the demo.
    pub fn run(self, context: &Context) -> Result<Exit, Failure> {
        let plan = Plan {
            rows: self.rows,
            client: self.client,
            time: self.time,
            pg_bin: self.pg_bin,
            keep: self.keep,
            watching: self.watching.value(),
            directory: self.directory.output_dir,
        };
        plan.run(context)
    }
}

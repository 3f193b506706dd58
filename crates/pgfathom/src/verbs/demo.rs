//! `demo`: everything at once on a throwaway local PostgreSQL.

use crate::cli::RunDirectory;
use crate::quantity;
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// The flags of `demo`.
#[derive(Debug, Args)]
pub struct Demo {
    /// Rows to load, of about 1,100 bytes
    #[arg(long, value_name = "N", default_value = "1M", value_parser = quantity::positive_count, help_heading = "Demo")]
    pub rows: u64,
    /// Number of sessions of each run
    #[arg(short, long, value_name = "N", default_value = "8", value_parser = quantity::positive_count, help_heading = "Demo")]
    pub client: u64,
    /// How long each run measures: seconds, or as 1m
    #[arg(short = 'T', long, value_name = "TIME", default_value = "10", value_parser = quantity::duration,
          help_heading = "Demo")]
    pub time: Duration,
    /// Folder of the PostgreSQL programs (initdb, postgres) [default: PGFATHOM_PG_BIN, else the newest found]
    #[arg(long, value_name = "DIR", help_heading = "Demo")]
    pub pg_bin: Option<PathBuf>,
    /// Leave the cluster running at the end and say how to reach it
    #[arg(long, help_heading = "Demo")]
    pub keep: bool,
    /// Where results go.
    #[command(flatten)]
    pub directory: RunDirectory,
}

//! `verify`: prove that a loaded table holds exactly its rows.

use crate::context::{Context, cpus};
use crate::failure::Failure;
use crate::flags::{Connection, RunDirectory};
use app::quantity;
use app::verify::{Plan, names};
use clap::Args;
use load::verify::MirrorOptions;
use record::Exit;
use std::time::Duration;

/// How long a node may take to apply what others had written, unless `--lag-limit` is given.
const LAG_LIMIT_DEFAULT: &str = "60";

/// The help of what to verify.
fn what() -> String {
    let names: Vec<&str> = workloads::dataset::DATASETS.iter().map(|dataset| dataset.name).collect();
    format!("What to verify: {} [default: what the database holds]", names.join(", "))
}

/// The flags of `verify`.
#[derive(Debug, Args)]
#[command(after_help = "\
The expected content is recorded in the database itself, in the ledger that load wrote (schema pgfathom).
verify reads every node of a cluster (--cluster FILE, or a target that is one of its nodes),
and compares what the catalogs of the nodes record about each other.
Exit code 3: a difference was found; the output names the rows.
Exit code 8: no difference was found, but some values cannot be judged.")]
pub struct Verify {
    #[arg(value_name = "WHAT", help = what())]
    pub what: Option<String>,
    /// The database.
    #[command(flatten)]
    pub connection: Connection,
    /// Read every row into the client and check each value: only updates made by `run` are accepted
    #[arg(long, help_heading = "Verify")]
    pub deep: bool,
    /// Also verify the standbys of the cluster file, each after it has replayed what the primary had written
    #[arg(long, help_heading = "Verify")]
    pub standbys: bool,
    /// How long a node may take to apply what others have written; after that it counts as behind: seconds, or as 5m
    #[arg(
        long,
        value_name = "TIME",
        default_value = LAG_LIMIT_DEFAULT,
        value_parser = quantity::duration_or_zero,
        help_heading = "Verify"
    )]
    pub lag_limit: Duration,
    /// Number of connections, over all nodes; each node gets at least one [default: number of CPUs]
    #[arg(short, long, value_name = "N", value_parser = quantity::positive_count, help_heading = "Verify")]
    pub jobs: Option<u64>,
    /// Seconds between progress lines [default: one line that is redrawn; 5 if stderr is not a terminal]
    #[arg(short = 'P', long, value_name = "TIME", value_parser = quantity::duration, help_heading = "Output")]
    pub progress: Option<Duration>,
    /// Destination of results.
    #[command(flatten)]
    pub directory: RunDirectory,
}

impl Verify {
    /// Verifies and writes the run directory.
    pub fn run(self, context: &Context) -> Result<Exit, Failure> {
        self.plan()?.run(context)
    }

    fn plan(mut self) -> Result<Plan, Failure> {
        let what = self.take_what()?;
        Ok(Plan {
            address: self.connection.address()?,
            what,
            deep: self.deep,
            mirror: MirrorOptions { lag_limit: self.lag_limit, standbys: self.standbys },
            jobs: self.jobs.map_or_else(cpus, |jobs| usize::try_from(jobs).unwrap_or(usize::MAX)),
            progress: self.progress,
            directory: self.directory.output_dir,
        })
    }

    /// The dataset that was named, if one was. A lone argument that names none is the target.
    fn take_what(&mut self) -> Result<Option<&'static str>, Failure> {
        let Some(word) = self.what.take() else { return Ok(None) };
        if let Some(name) = names().find(|name| *name == word) {
            return Ok(Some(name));
        }
        match word.as_str() {
            _ if self.connection.target.is_some() => {
                let known: Vec<&str> = names().collect();
                Err(Failure::usage(format!("WHAT: {word:?} is unknown")).hint(format!(
                    "known: {}; a connection string with spaces is one argument: quote it",
                    known.join(", ")
                )))
            }
            _ => {
                for (is_given, flag) in [
                    (self.connection.dbname.is_some(), "-d/--dbname"),
                    (self.connection.cluster.is_some(), "--cluster"),
                ] {
                    if is_given {
                        return Err(Failure::usage(format!("{flag} and TARGET cannot be used together"))
                            .hint("give only one of them"));
                    }
                }
                self.connection.target = Some(word);
                Ok(None)
            }
        }
    }
}

//! `matrix`: the same select and the same update for every pair of connect node and data node.

use crate::context::Context;
use crate::failure::Failure;
use crate::flags::{Connection, RunDirectory};
use crate::verbs::run::{Wire, clients, jobs};
use app::matrix::Plan;
use app::quantity::{self, ValueError};
use clap::{Args, ValueEnum};
use record::Exit;
use std::time::Duration;

/// Rounds unless --rounds is given.
const ROUNDS_DEFAULT: &str = "3";
/// Most rounds: a visit shorter than its own warm-up measures nothing.
const ROUNDS_MAX: u64 = 100;
/// Time per cell unless -T is given, in seconds.
const TIME_DEFAULT: &str = "6";
/// Sessions unless -c is given.
const CLIENT_DEFAULT: &str = "4";

/// The flags of `matrix`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  pgfathom matrix --cluster cluster.toml                     select and update for every pair of nodes
  pgfathom matrix --cluster cluster.toml -c 20 -T 1m         twenty sessions, a minute per cell
  pgfathom matrix --only select -h node1 shop                the nodes that node1's catalog names; reads only")]
pub struct Matrix {
    /// The cluster.
    #[command(flatten)]
    pub connection: Connection,
    /// Only this operation: select or update [default: both]
    #[arg(long, value_name = "OPERATION", value_enum, hide_possible_values = true, help_heading = "Load")]
    pub only: Option<Operation>,
    /// Number of sessions in each cell
    #[arg(short, long, value_name = "N", default_value = CLIENT_DEFAULT, value_parser = clients, help_heading = "Load")]
    pub client: u64,
    /// Number of worker threads that own the sessions [default: one per 32 sessions, at most the number of CPUs]
    #[arg(short, long, value_name = "N", value_parser = jobs, help_heading = "Load")]
    pub jobs: Option<u64>,
    /// Time of measurement per cell, all rounds together: seconds, or as 1m
    #[arg(short = 'T', long, value_name = "TIME", default_value = TIME_DEFAULT, value_parser = quantity::duration, help_heading = "Load")]
    pub time: Duration,
    /// Number of rounds per cell; each round visits all cells in a different order
    #[arg(long, value_name = "N", default_value = ROUNDS_DEFAULT, value_parser = rounds, help_heading = "Load")]
    pub rounds: u64,
    /// Warm-up of each cell in each round: seconds, or as 2m
    #[arg(long, value_name = "TIME", default_value = "1", value_parser = quantity::duration_or_zero, help_heading = "Load")]
    pub warmup: Duration,
    /// Seed of every random choice
    #[arg(long, value_name = "SEED", value_parser = quantity::count, help_heading = "Load")]
    pub random_seed: Option<u64>,
    /// Protocol messages of a prepared statement: libpq or lean, as for run
    #[arg(
        long,
        value_name = "MODE",
        value_enum,
        default_value = "libpq",
        hide_possible_values = true,
        help_heading = "Load"
    )]
    pub wire: Wire,
    /// Seconds between progress lines
    #[arg(short = 'P', long, value_name = "TIME", value_parser = quantity::duration, help_heading = "Output")]
    pub progress: Option<Duration>,
    /// Destination of results.
    #[command(flatten)]
    pub directory: RunDirectory,
}

/// What a cell does again and again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Operation {
    /// One row by key
    Select,
    /// One field of one row by key
    Update,
}

impl Operation {
    fn value(self) -> app::matrix::Operation {
        match self {
            Operation::Select => app::matrix::Operation::Select,
            Operation::Update => app::matrix::Operation::Update,
        }
    }
}

impl Matrix {
    /// Measures the matrix and writes the run directory.
    pub fn run(self, context: &Context) -> Result<Exit, Failure> {
        let plan = Plan {
            address: self.connection.address()?,
            only: self.only.map(Operation::value),
            client: self.client,
            jobs: self.jobs,
            time: self.time,
            rounds: self.rounds,
            warmup: self.warmup,
            random_seed: self.random_seed,
            wire: self.wire.into(),
            progress: self.progress,
            directory: self.directory.output_dir,
        };
        plan.run(context)
    }
}

fn rounds(text: &str) -> Result<u64, ValueError> {
    match quantity::positive_count(text)? {
        value if value > ROUNDS_MAX => {
            Err(ValueError::new(format!("{value} is more than {ROUNDS_MAX} rounds"), "give a smaller number"))
        }
        value => Ok(value),
    }
}

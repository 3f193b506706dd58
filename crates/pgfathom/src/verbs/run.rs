//! `run`: drive transactions and measure them. pgbench's words where pgbench has them.

mod families;
mod sweep;

use crate::context::Context;
use crate::failure::Failure;
use crate::flags::{Connection, RunDirectory, Watching};
use app::connection::Address;
use app::quantity::{self, ValueError};
use app::run::route::{Route, Way};
use app::run::{Definition, Plan, Sessions, Weighted};
use clap::{Args, ValueEnum};
use record::Exit;
use std::time::Duration;

/// Attempts at a transaction that meets a deadlock or a serialization failure, unless `--max-tries` is given.
const MAX_TRIES_DEFAULT: &str = "10";

/// The flags of `run`.
#[derive(Clone, Debug, Args)]
#[command(after_help = families::examples())]
pub struct Run {
    /// The database.
    #[command(flatten)]
    pub connection: Connection,
    #[arg(
        short,
        long = "builtin",
        value_name = "NAME[@W]",
        value_parser = weighted,
        help_heading = "Workload",
        help = families::builtins()
    )]
    pub builtin: Vec<Weighted>,
    /// pgbench script, with a weight after @; may be given several times
    #[arg(
        short,
        long = "file",
        value_name = "FILE[@W]",
        value_parser = weighted,
        // Standard input may have a weight, too: -f -@3.
        allow_hyphen_values = true,
        help_heading = "Workload"
    )]
    pub file: Vec<Weighted>,
    /// Set a variable for scripts; may be given several times
    #[arg(short = 'D', long, value_name = "VAR=VALUE", value_parser = definition, help_heading = "Workload")]
    pub define: Vec<Definition>,
    /// The variable :scale of your scripts [default: 1]; pgbench's built-in scripts count pgbench_branches instead
    #[arg(short, long, value_name = "N", value_parser = quantity::positive_count, help_heading = "Workload")]
    pub scale: Option<u64>,
    /// Do not vacuum pgbench's tables before the run
    #[arg(short, long, help_heading = "Workload")]
    pub no_vacuum: bool,
    /// The nodes that sessions connect to, and whose rows they read.
    #[command(flatten)]
    pub route: RouteFlags,
    /// Number of sessions (database connections); several, as 1,2,4,8 or 1,2,4,...,256, make a sweep with a step for each
    #[arg(short, long, value_name = "N", default_value = "1", value_parser = session_list, help_heading = "Load")]
    pub client: Sessions,
    /// Number of worker threads that own the sessions [default: one per 32 sessions, at most the number of CPUs]
    #[arg(short, long, value_name = "N", value_parser = jobs, help_heading = "Load")]
    pub jobs: Option<u64>,
    /// How long to measure: seconds, or as 10m, 1h30m [default: 10]
    #[arg(short = 'T', long, value_name = "TIME", value_parser = quantity::duration, help_heading = "Load")]
    pub time: Option<Duration>,
    /// Transactions per session, instead of a time
    #[arg(short, long, value_name = "N", value_parser = quantity::positive_count, conflicts_with = "time",
          help_heading = "Load")]
    pub transactions: Option<u64>,
    /// Mean rate of all sessions in transactions per second, with Poisson arrivals; without it every session starts its next transaction when the
    /// previous one ends
    #[arg(short = 'R', long, value_name = "RATE", value_parser = quantity::rate_per_s, help_heading = "Load")]
    pub rate: Option<f64>,
    /// With -R: arrivals at equal gaps instead of Poisson arrivals
    #[arg(long, requires = "rate", help_heading = "Load")]
    pub regular: bool,
    /// Count transactions slower than this (milliseconds, or as 50ms, 2s); with -R also skip those that would start later than this
    #[arg(short = 'L', long, value_name = "LIMIT", value_parser = quantity::duration_ms, help_heading = "Load")]
    pub latency_limit: Option<Duration>,
    /// Warm-up before the measurement: seconds, or as 2m
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = quantity::duration_or_zero, help_heading = "Load")]
    pub warmup: Duration,
    /// Maximum number of attempts after a deadlock or a serialization failure; 0: until the transaction succeeds or the time is over
    #[arg(long, value_name = "N", default_value = MAX_TRIES_DEFAULT, value_parser = quantity::count, help_heading = "Load")]
    pub max_tries: u64,
    /// Seed of every random choice: with the same seed each session uses the same keys in the same order; or time, rand
    #[arg(long, value_name = "SEED", value_parser = seed, help_heading = "Load")]
    pub random_seed: Option<u64>,
    /// How statements are sent: simple, extended, prepared [default: simple for scripts, as pgbench; prepared for workloads of pgfathom]
    #[arg(
        short = 'M',
        long,
        value_name = "PROTOCOL",
        value_enum,
        hide_possible_values = true,
        help_heading = "Load"
    )]
    pub protocol: Option<Protocol>,
    /// Protocol messages of a prepared statement: libpq sends those of pgbench and most drivers; lean omits Describe and uses binary values, which
    /// costs client and server less. Every result records the mode
    #[arg(
        long,
        value_name = "MODE",
        value_enum,
        default_value = "libpq",
        hide_possible_values = true,
        help_heading = "Load"
    )]
    pub wire: Wire,
    /// How workers wait for sockets: auto (io_uring if the kernel has it, which costs the client less), epoll, io_uring
    #[arg(
        long,
        value_name = "POLLER",
        value_enum,
        default_value = "auto",
        hide_possible_values = true,
        help_heading = "Load"
    )]
    pub poller: Poller,
    /// What belongs to single benchmarks.
    #[command(flatten)]
    pub families: families::Flags,
    /// What makes several runs of it.
    #[command(flatten)]
    pub sweep: sweep::Flags,
    /// The plan of `pgfathom plan` that the run belongs to: the report compares both
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub plan: Option<std::path::PathBuf>,
    /// Seconds between progress lines
    #[arg(short = 'P', long, value_name = "TIME", value_parser = quantity::duration, help_heading = "Output")]
    pub progress: Option<Duration>,
    /// Monitoring during the run.
    #[command(flatten)]
    pub watching: Watching,
    /// Destination of results.
    #[command(flatten)]
    pub directory: RunDirectory,
}

/// The flags about the nodes of a cluster.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Cluster")]
pub struct RouteFlags {
    /// Nodes that sessions connect to: each (all in turn), random, owner (each session connects to a node and uses the rows of that node;
    /// the default of some workloads), or NODE[,NODE...] in turn. Names of nodes come from the cluster file, or from the catalog of the target
    #[arg(long, value_name = "WHERE", value_parser = way)]
    pub connect: Option<Way>,
    /// Draw only keys whose rows live on this node
    #[arg(long, value_name = "NODE")]
    pub data: Option<String>,
}

/// How statements are sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Protocol {
    /// One text per statement, with the values in it
    Simple,
    /// Parsed and bound every time
    Extended,
    /// Parsed once per session, bound every time
    Prepared,
}

impl Protocol {
    fn value(self) -> app::run::Protocol {
        match self {
            Protocol::Simple => app::run::Protocol::Simple,
            Protocol::Extended => app::run::Protocol::Extended,
            Protocol::Prepared => app::run::Protocol::Prepared,
        }
    }
}

impl Run {
    /// Drives the target and writes the run directory.
    pub fn run(self, context: &Context) -> Result<Exit, Failure> {
        if self.builtin.iter().any(|builtin| builtin.name == "list") {
            context.terminal.data(&app::run::list());
            return Ok(Exit::Ok);
        }
        self.plan()?.run(context)
    }

    fn plan(self) -> Result<Plan, Failure> {
        let families = self.families.value();
        let address = match app::run::needs_target(&families) {
            true => self.connection.address()?,
            false => Address::nowhere(),
        };
        Ok(Plan {
            builtin: self.builtin,
            file: self.file,
            define: self.define,
            scale: self.scale,
            no_vacuum: self.no_vacuum,
            route: Route::new(self.route.connect, self.route.data),
            client: self.client,
            jobs: self.jobs,
            time: self.time,
            transactions: self.transactions,
            rate: self.rate,
            regular: self.regular,
            latency_limit: self.latency_limit,
            warmup: self.warmup,
            max_tries: self.max_tries,
            random_seed: self.random_seed,
            protocol: self.protocol.map(Protocol::value),
            wire: self.wire.into(),
            poller: self.poller.into(),
            families,
            sweep: self.sweep.value(),
            progress: self.progress,
            watching: self.watching.value(),
            planned: self.plan.as_deref().map(app::plan::open).transpose()?.map(Box::new),
            directory: self.directory.output_dir,
            ..Plan::new(address)
        })
    }
}

/// Which messages a prepared statement costs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Wire {
    /// As few as possible, binary values
    Lean,
    /// Those of libpq's PQsendQueryPrepared
    Libpq,
}

impl From<Wire> for wire::prepared::Wire {
    fn from(mode: Wire) -> Self {
        match mode {
            Wire::Lean => Self::Lean,
            Wire::Libpq => Self::Libpq,
        }
    }
}

/// How workers wait for sockets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Poller {
    /// The better one of this machine
    Auto,
    /// Readiness
    Epoll,
    /// Completions
    #[value(name = "io_uring")]
    IoUring,
}

impl From<Poller> for run::engine::poller::Choice {
    fn from(poller: Poller) -> Self {
        match poller {
            Poller::Auto => Self::Auto,
            Poller::Epoll => Self::Epoll,
            Poller::IoUring => Self::IoUring,
        }
    }
}

fn weighted(text: &str) -> Result<Weighted, ValueError> {
    let hint = "write NAME or NAME@WEIGHT, as select-only@3";
    // The last @ is the separator, as for pgbench: a path may contain others.
    let (name, weight) = match text.rsplit_once('@') {
        None => (text, 1),
        Some((name, weight)) => {
            let weight = weight.parse::<u64>().map_err(|_| {
                ValueError::new(format!("the weight {weight:?} of {name:?} is not a whole number"), hint)
            })?;
            (name, weight)
        }
    };
    if name.is_empty() {
        return Err(ValueError::new(format!("{text:?} has no name"), hint));
    }
    Ok(Weighted { name: name.to_string(), weight })
}

fn definition(text: &str) -> Result<Definition, ValueError> {
    let hint = "write NAME=VALUE, as -D limit=10; names are letters, digits and underscores";
    let (name, value) =
        text.split_once('=').ok_or_else(|| ValueError::new(format!("{text:?} has no ="), hint))?;
    if name.is_empty() || !name.chars().all(|c| c.is_alphanumeric() || c == '_') {
        return Err(ValueError::new(format!("{name:?} is not a variable name"), hint));
    }
    Ok(Definition { name: name.to_string(), value: value.to_string() })
}

/// A seed: a number, or pgbench's words for one that is not the same every time.
fn seed(text: &str) -> Result<u64, ValueError> {
    use std::hash::{BuildHasher as _, RandomState};
    match text {
        "time" => Ok(record::clock::wall_us()),
        "rand" => Ok(RandomState::new().hash_one(record::clock::wall_us())),
        number => quantity::count(number)
            .map_err(|error| ValueError::new(error.message, "write a whole number, \"time\" or \"rand\"")),
    }
}

fn limited(text: &str, max: u64, what: &str) -> Result<u64, ValueError> {
    match quantity::positive_count(text)? {
        value if value > max => {
            Err(ValueError::new(format!("{value} is more than {max} {what}"), "give a smaller number"))
        }
        value => Ok(value),
    }
}

/// One or several numbers of sessions.
fn session_list(text: &str) -> Result<Sessions, ValueError> {
    app::run::series::parse(text, clients)
}

/// A number of sessions.
pub(crate) fn clients(text: &str) -> Result<u64, ValueError> {
    if text.contains(',') {
        return Err(ValueError::new(
            format!("{text:?} is several numbers"),
            "give one number of sessions; pgfathom run -c 1,2,4,8 makes a sweep over several",
        ));
    }
    limited(text, run::drive::SESSIONS_MAX, "sessions")
}

/// A number of worker threads.
pub(crate) fn jobs(text: &str) -> Result<u64, ValueError> {
    limited(text, run::drive::WORKERS_MAX as u64, "worker threads")
}

fn way(text: &str) -> Result<Way, ValueError> {
    Way::parse(text).ok_or_else(|| {
        ValueError::new(
            format!("{text:?} contains an empty name"),
            "write each, random, owner, or names of nodes as n1,n2",
        )
    })
}

//! `run`: drive transactions and measure them. pgbench's words where pgbench has them.

mod advice;
pub(crate) mod measure;
pub(crate) mod mix;
mod nodes;
mod prepare;
pub(crate) mod route;
pub(crate) mod scripts;
mod sessions;
mod settle;
mod sweep;
mod tpcc;

use crate::cli::{Connection, Format, RunDirectory};
use crate::connection::users_relation;
use crate::context::Context;
use crate::failure::Failure;
use crate::fingerprint;
use crate::quantity::{self, ValueError};
use crate::recording::Recording;
use crate::verbs::load::cpus;
use crate::watching::Watching;
use clap::{Args, FromArgMatches, ValueEnum};
use record::{Exit, StepId};
use sessions::Sessions;
use std::time::Duration;
use target::ConnSpec;
use target::control::Control;

/// Sessions that one worker thread is given unless -j says otherwise.
const SESSIONS_PER_WORKER: u64 = 32;
/// Attempts at a transaction that meets a deadlock or a serialization failure, unless `--max-tries` says otherwise.
const MAX_TRIES_DEFAULT: &str = "10";
/// How long a run lasts when neither -T nor -t says so.
const TIME_DEFAULT: Duration = Duration::from_secs(10);

/// The flags of `run`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  pgfathom run -b ycsb-a -c 8 -T 60 DBNAME              half reads, half updates, eight sessions
  pgfathom run -b ycsb-c@9 -b ycsb-update@1 -c 32 ...   a mix of nine to one
  pgfathom run -f order.sql -R 5000 -L 50 -T 10m ...    a pgbench script at a fixed mean rate
  pgfathom run -b tpcb-like -c 8 -T 60 bench            on tables made by pgbench -i
  pgfathom run -b tpcc -c 16 --warmup 1m -T 10m ...     TPC-C at its own pace, on warehouses of load tpcc
  pgfathom run -b tpcc --no-delays -c 8 -T 60 ...       TPC-C as fast as eight sessions can
  pgfathom run -b ycsb-a -c 1,2,4,...,256 --warmup 10m -T 5m ...         a sweep that names the knee
  pgfathom run --read-update 100/0,50/50,0/100 -c 1,4,16 -T 1m ...       mixes against their pure ones
  pgfathom run -b ycsb-a -c 12 --connect each --cluster cluster.toml    over all nodes of a cluster
  pgfathom run -b ycsb-a -c 12 --connect owner --cluster cluster.toml   each session where its rows are")]
pub struct Run {
    /// Which database.
    #[command(flatten)]
    pub connection: Connection,
    /// Built-in workload, with a weight after @; may be given several times. ycsb-a ... ycsb-f, ycsb-select and ycsb-update
    /// on tables of `load ycsb`; tpcc on those of `load tpcc`; select-only, simple-update and tpcb-like on tables of pgbench -i. `-b list` names them all
    #[arg(short, long = "builtin", value_name = "NAME[@W]", value_parser = weighted, help_heading = "Workload")]
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
    /// How YCSB workloads pick rows, instead of their own way: uniform, zipfian, latest
    #[arg(long, value_name = "WAY", value_enum, hide_possible_values = true, help_heading = "Workload")]
    pub keys: Option<Keys>,
    /// Set a variable for scripts; may be given several times
    #[arg(short = 'D', long, value_name = "VAR=VALUE", value_parser = definition, help_heading = "Workload")]
    pub define: Vec<Definition>,
    /// The variable :scale of your scripts [default: 1]; beside pgbench's own, which count pgbench_branches, it is ignored
    #[arg(short, long, value_name = "N", value_parser = quantity::positive_count, help_heading = "Workload")]
    pub scale: Option<u64>,
    /// Do not vacuum pgbench's tables before the run
    #[arg(short, long, help_heading = "Workload")]
    pub no_vacuum: bool,
    /// Where sessions enter, and whose rows they ask for.
    #[command(flatten)]
    pub route: route::Route,
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
    /// Mean rate over all sessions in transactions per second, with Poisson arrivals; without it every session starts its next
    /// transaction when the last one is done
    #[arg(short = 'R', long, value_name = "RATE", value_parser = quantity::rate_per_s, help_heading = "Load")]
    pub rate: Option<f64>,
    /// With -R: arrivals at equal gaps instead of Poisson arrivals
    #[arg(long, requires = "rate", help_heading = "Load")]
    pub regular: bool,
    /// Count transactions slower than this (milliseconds, or as 50ms, 2s); with -R also skip those already later than this
    #[arg(short = 'L', long, value_name = "LIMIT", value_parser = quantity::duration_ms, help_heading = "Load")]
    pub latency_limit: Option<Duration>,
    /// Drive without measuring first: seconds, or as 2m
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = quantity::duration_or_zero, help_heading = "Load")]
    pub warmup: Duration,
    /// Attempts at a transaction that meets a deadlock or a serialization failure; 0: until it succeeds or the time is over
    #[arg(long, value_name = "N", default_value = MAX_TRIES_DEFAULT, value_parser = quantity::count, help_heading = "Load")]
    pub max_tries: u64,
    /// Seed of every random choice: the same seed drives the same keys in the same order per session; or time, rand
    #[arg(long, value_name = "SEED", value_parser = seed, help_heading = "Load")]
    pub random_seed: Option<u64>,
    /// How statements are sent: simple, extended, prepared [default: simple for scripts, as pgbench; prepared for ycsb and tpcc]
    #[arg(
        short = 'M',
        long,
        value_name = "PROTOCOL",
        value_enum,
        hide_possible_values = true,
        help_heading = "Load"
    )]
    pub protocol: Option<Protocol>,
    /// Messages of a prepared statement: libpq sends what pgbench and most drivers send; lean leaves Describe out and uses binary
    /// values, which spares client and server. Every result carries the mode
    #[arg(
        long,
        value_name = "MODE",
        value_enum,
        default_value = "libpq",
        hide_possible_values = true,
        help_heading = "Load"
    )]
    pub wire: Wire,
    /// How workers wait for sockets: auto takes io_uring where the kernel has it, which costs the client less; epoll, io_uring
    #[arg(
        long,
        value_name = "POLLER",
        value_enum,
        default_value = "auto",
        hide_possible_values = true,
        help_heading = "Load"
    )]
    pub poller: Poller,
    /// What belongs to TPC-C.
    #[command(flatten)]
    pub tpcc: tpcc::Flags,
    /// What makes several runs of it.
    #[command(flatten)]
    pub sweep: sweep::Flags,
    /// The workload, once it has been read.
    #[arg(skip)]
    pub scripts: scripts::Once,
    /// What is told in front of the progress of a step.
    #[arg(skip)]
    pub told: String,
    /// It is a step of a sweep.
    #[arg(skip)]
    pub is_step: bool,
    /// Progress every so many seconds
    #[arg(short = 'P', long, value_name = "TIME", value_parser = quantity::duration, help_heading = "Output")]
    pub progress: Option<Duration>,
    /// What is sampled meanwhile.
    #[command(flatten)]
    pub watching: Watching,
    /// Where results go.
    #[command(flatten)]
    pub directory: RunDirectory,
}

/// How statements are sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Protocol {
    /// One text per statement, values written into it
    Simple,
    /// Parsed and bound every time
    Extended,
    /// Parsed once per session, bound every time
    Prepared,
}

impl Protocol {
    /// The word after -M.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Protocol::Simple => "simple",
            Protocol::Extended => "extended",
            Protocol::Prepared => "prepared",
        }
    }
}

/// How rows are picked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Keys {
    /// All alike
    Uniform,
    /// Some are much more popular than others
    Zipfian,
    /// The newest are the most popular
    Latest,
}

impl From<Keys> for run::workload::ycsb::Distribution {
    fn from(keys: Keys) -> Self {
        match keys {
            Keys::Uniform => Self::Uniform,
            Keys::Zipfian => Self::Zipfian,
            Keys::Latest => Self::Latest,
        }
    }
}

impl Run {
    /// Drives the target and writes the run directory.
    ///
    /// # Errors
    /// When the flags or scripts are wrong, or no session could start.
    pub fn run(mut self, context: &Context) -> Result<Exit, Failure> {
        if self.builtin.iter().any(|builtin| builtin.name == "list") {
            context.terminal.data(&mix::list());
            return Ok(Exit::Ok);
        }
        // Scripts may come from a pipe that nobody writes, tables may be locked: no reason to go on after a signal.
        let idle = context.stop.nothing_in_flight();
        self.check_sweep()?;
        if self.is_sweep() {
            self.check_tpcc_sweep()?;
        }
        if self.is_sweep() { self.check_first_step() } else { self.check_workload() }?;
        for taken in self.builtin.iter().filter_map(|builtin| mix::taken_for(&builtin.name)) {
            context.terminal.say(&taken);
        }
        if self.tpcc.simulate.is_some() {
            drop(idle);
            return self.run_simulated(context);
        }
        let drives_tpcc = self
            .builtin
            .iter()
            .any(|builtin| mix::builtin_name(&builtin.name).is_ok_and(|name| name == tpcc::NAME));
        let spec = self.route.resolve(&self.connection, context, drives_tpcc)?;
        if self.tpcc.until_slo {
            drop(idle);
            return self.run_until_slo(context, &spec);
        }
        if self.is_sweep() {
            return self.run_sweep(context, &spec, idle);
        }
        let mut control = target::control::connect_shared(&spec)?;
        let seed = self.seed();
        let assembled = self.assemble(&mut control, &spec, seed, &context.terminal)?;
        let recording = Recording::begin(context, &self.directory, "run", &assembled.name)?;
        let unbegun = recording.discard_on_forced_exit();
        self.watch(&recording, &spec)?;
        let fingerprint = fingerprint::take(&mut control, &spec);
        recording.dir().edit(|run| run.target = Some(fingerprint))?;
        if assembled.uses_pgbench_tables && !self.no_vacuum {
            vacuum_pgbench(&mut control, &spec)?;
        }
        let step = recording.dir().begin_step("run", &assembled.name)?;
        drop((idle, unbegun));
        let measured = match self.measure(&recording, &step, &spec, Some(&mut control), assembled, seed) {
            Ok(measured) => measured,
            // It broke down in the midst of it: what was measured until then is there.
            Err(failure) if failure.exit() == Exit::Errors => {
                recording.fail(&step, &std::io::Error::other(failure.message()));
                return Err(failure);
            }
            Err(failure) => {
                recording.discard();
                return Err(failure);
            }
        };
        recording.end_watch();
        // Closed before it is told: the page speaks of a run that has ended.
        recording.dir().finish(measured.state)?;
        if context.format == Format::Text {
            context.terminal.data(&recording.text()?);
        }
        recording.finish(measured.state)?;
        Ok(measured.exit)
    }

    /// Begins to watch what is driven, unless it shall not be.
    pub(super) fn watch(&self, recording: &Recording<'_>, spec: &ConnSpec) -> Result<(), Failure> {
        match self.connection.cluster_of_file()? {
            Some(cluster) => self.watching.begin(recording, &cluster.nodes),
            None => self.watching.begin_single(recording, spec),
        }
        Ok(())
    }

    /// These flags, for a command that runs a workload among other things.
    ///
    /// # Errors
    /// When the flags are not those of `run`.
    pub(crate) fn of(flags: &[&str]) -> Result<Run, Failure> {
        let command = clap::Command::new("run").no_binary_name(true).disable_help_flag(true);
        Run::augment_args(command)
            .try_get_matches_from(flags)
            .and_then(|matches| Run::from_arg_matches(&matches))
            .map_err(|error| Failure::caused("the flags of a step are wrong", error))
    }

    /// Drives the target as one step of a run directory; the step is ended, except after an error.
    ///
    /// # Errors
    /// When the target lacks the data, or no session could start.
    pub(crate) fn step(
        &self,
        recording: &Recording<'_>,
        step: &StepId,
        spec: &ConnSpec,
        control: &mut Control,
    ) -> Result<Exit, Failure> {
        let seed = self.seed();
        let assembled = self.assemble(control, spec, seed, &recording.context().terminal)?;
        Ok(self.measure(recording, step, spec, Some(control), assembled, seed)?.exit)
    }

    fn workers(&self) -> usize {
        match self.jobs {
            Some(jobs) => jobs as usize,
            None => (self.client.first().div_ceil(SESSIONS_PER_WORKER) as usize).clamp(1, cpus()),
        }
    }

    /// The seed asked for, or one from the clock: it stands in run.json, so any run can be repeated.
    fn seed(&self) -> u64 {
        self.random_seed.unwrap_or_else(record::clock::wall_us)
    }
}

/// What pgbench does before its built-in scripts, but without emptying pgbench_history: rows are the user's.
fn vacuum_pgbench(control: &mut target::control::Control, spec: &ConnSpec) -> Result<(), Failure> {
    for table in ["pgbench_branches", "pgbench_tellers"] {
        let relation = users_relation(spec, table)?;
        let vacuumed =
            control.outside().and_then(|client| client.batch_execute(&format!("vacuum {relation}")));
        vacuumed.map_err(|error| {
            Failure::caused(format!("cannot vacuum {table}"), error).hint("leave it out with -n")
        })?;
    }
    Ok(())
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

/// A workload and its share: `ycsb-a@3`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Weighted {
    /// Name or file.
    pub name: String,
    /// Share of it among all weights.
    pub weight: u64,
}

/// `-D name=value`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Definition {
    /// Variable.
    pub name: String,
    /// Value, kept as text.
    pub value: String,
}

fn weighted(text: &str) -> Result<Weighted, ValueError> {
    let hint = "write NAME or NAME@WEIGHT, as ycsb-a@3";
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
        return Err(ValueError::new(format!("{text:?} names nothing"), hint));
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
    sessions::parse(text, clients)
}

/// A number of sessions.
pub(crate) fn clients(text: &str) -> Result<u64, ValueError> {
    if text.contains(',') {
        return Err(ValueError::new(
            format!("{text:?} is several numbers"),
            "give one number of sessions; a sweep over several is made by pgfathom run -c 1,2,4,8",
        ));
    }
    limited(text, run::drive::SESSIONS_MAX, "sessions")
}

/// A number of worker threads.
pub(crate) fn jobs(text: &str) -> Result<u64, ValueError> {
    limited(text, run::drive::WORKERS_MAX as u64, "worker threads")
}

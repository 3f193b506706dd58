//! `prove`: tests what a database promises: consistency conditions in one snapshot, isolation levels with scripts and histories, and what holds
//! under load and faults.

mod under_load;

use crate::context::{Context, cpus};
use crate::failure::Failure;
use crate::flags::Watching;
use crate::flags::{Connection, RunDirectory};
use crate::quantity::{self, ValueError};
use ::prove::check::Level;
use ::prove::conditions::{Condition, Conditions};
use ::prove::history::elle::Notation;
use app::prove::live::{self, Place};
use app::prove::{check, conditions, engine};
use clap::{Args, ValueEnum};
use record::Exit;
use std::path::PathBuf;
use std::time::Duration;

/// The flags of `prove`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  pgfathom prove tpcc DBNAME                       after a load, after a run, or during one
  pgfathom prove tpcc --conditions C10,X13 DBNAME  only the conditions on rows that transactions of several warehouses write
  pgfathom prove hermitage DBNAME                  14 interleavings at every isolation level, and their outcomes
  pgfathom prove hermitage --cluster cluster.toml  the same, and the tests for clusters
  pgfathom prove check --level si HISTORY          a history of pgfathom (history.bin) or of Elle (EDN, JSON)
  pgfathom prove ack --local single --fault kill@3s,heal@4s  is anything lost that was acknowledged?
  pgfathom prove bank --cluster cluster.toml       does one SELECT see half of a transfer?
  pgfathom prove hb --local replicated --fault kill@2s,promote@3s -T 8 --repeat 10  ten failovers: min, median, max
  pgfathom prove ack --local replicated --fault partition@3s,promote@4s,heal@6s     split brain: which writes are lost?
  pgfathom prove hb --cluster cluster.toml --fault crash@5s -T 60 --repeat 5   the same with up patroni, which fails over by itself
  pgfathom prove verreg --isolation serializable DBNAME  random transactions, recorded and checked
  pgfathom prove all --local all                   all tests, on temporary clusters
  pgfathom prove engine --cluster cluster.toml     does this cluster behave as the profile of its engine claims?
  pgfathom prove --heal                            undo the faults of a prove that was killed
Faults: kill, crash, pause, restart, promote, switchover, store, power, full, partition, cut, blackhole, blackhole-requests,
blackhole-replies, delay=50ms, rate=BYTES, drop-commit, orphan; heal undoes them. They are injected only into clusters of up and
those of --local, unless --allow-faults is given.
Exit code 3: a promise is broken, and the output names a witness; with --strict also if any anomaly was seen. Exit code 8: none is broken, but some could not be judged.")]
pub struct Prove {
    /// What to test: tpcc, the consistency conditions of TPC-C (clause 3.3.2), and its keys and counts; tpcb, the balances of TPC-B; hermitage,
    /// isolation levels with scripts; check, a history file, given as TARGET; ack, no acknowledged commit is lost; hb, length of outages and
    /// staleness; bank and twin, a transaction is never half visible; skew, write skew is refused; conflict, concurrent writes of the same rows on
    /// several nodes; wide, cost of a commit over several nodes; verreg and append, isolation levels, with random transactions; all, hermitage
    /// and all of these workloads; engine, the claims of the engine's profile, as a file for pgfathom's developers
    #[arg(value_name = "WHAT", value_enum, hide_possible_values = true, required_unless_present = "heal")]
    pub what: Option<What>,
    /// The database.
    #[command(flatten)]
    pub connection: Connection,
    /// Only these conditions: C1 to C12, X13 to X25 of tpcc, B1 to B6 of tpcb, with commas between [default: all]
    #[arg(
        long,
        value_name = "CODES",
        value_parser = condition,
        value_delimiter = ',',
        help_heading = "Prove"
    )]
    pub conditions: Vec<Condition>,
    /// check, verreg, append: also write the history for Elle, to a file that ends in .edn or .json
    #[arg(long, value_name = "FILE", value_parser = elle_file, help_heading = "Prove")]
    pub elle: Option<PathBuf>,
    /// check: exit with 3 if one of these is refuted: read-committed (rc), snapshot-isolation (si), serializable (ser), strict-serializable
    /// (strict), ...
    #[arg(long = "level", value_name = "LEVELS", value_parser = level, value_delimiter = ',', help_heading = "Prove")]
    pub levels: Vec<Level>,
    /// Exit with 3 if any anomaly was seen, even if the engine or a setting allows it
    #[arg(long, help_heading = "Prove")]
    pub strict: bool,
    /// Only these warehouses, or branches of tpcb: N, or FROM-TO [default: all]
    #[arg(long, value_name = "RANGE", value_parser = range, help_heading = "Prove")]
    pub warehouses: Option<(i64, i64)>,
    /// Number of connections [default: number of CPUs]
    #[arg(short, long, value_name = "N", value_parser = quantity::positive_count, help_heading = "Prove")]
    pub jobs: Option<u64>,
    /// Seconds between progress lines [default: one line that is redrawn; 5 if stderr is not a terminal]
    #[arg(short = 'P', long, value_name = "TIME", value_parser = quantity::duration, help_heading = "Output")]
    pub progress: Option<Duration>,
    /// Monitoring during the run.
    #[command(flatten)]
    pub watching: Watching,
    /// Load and faults.
    #[command(flatten)]
    pub live: under_load::Flags,
    /// Destination of results.
    #[command(flatten)]
    pub directory: RunDirectory,
}

/// What can be proved.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum What {
    /// The consistency conditions of TPC-C
    Tpcc,
    /// The balances of TPC-B
    Tpcb,
    /// Scripted interleavings
    Hermitage,
    /// A recorded history
    Check,
    /// Acknowledged commits
    Ack,
    /// Outages and staleness
    Hb,
    /// Sums over shards
    Bank,
    /// Rows written together
    Twin,
    /// Write skew
    Skew,
    /// The same rows on several nodes
    Conflict,
    /// Round trips of a commit over several nodes
    Wide,
    /// Random transactions on versioned registers
    Verreg,
    /// Random transactions on lists
    Append,
    /// The scripts and all workloads
    All,
    /// The claims of an engine's profile
    Engine,
}

fn condition(text: &str) -> Result<Condition, ValueError> {
    workloads::conditions::condition(text).ok_or_else(|| {
        ValueError::new(
            format!("there is no condition {text:?}"),
            "write C1 to C12 or X13 to X25, as --conditions C1,C10; prove tpcb has B1 to B6",
        )
    })
}

fn elle_file(text: &str) -> Result<PathBuf, ValueError> {
    let path = PathBuf::from(text);
    match Notation::of(&path) {
        Some(_) => Ok(path),
        None => Err(ValueError::new(
            format!("the notation of {text:?} is unknown"),
            "give it a name that ends in .edn or .json, as --elle history.edn",
        )),
    }
}

fn level(text: &str) -> Result<Level, ValueError> {
    Level::parse(text).ok_or_else(|| {
        let names = Level::all().map(Level::name).collect::<Vec<_>>().join(", ");
        ValueError::new(
            format!("there is no level {text:?}"),
            format!("write rc, mav, rr, si, ser, strict, or one of {names}"),
        )
    })
}

fn range(text: &str) -> Result<(i64, i64), ValueError> {
    let hint = "write one number or FROM-TO, as --warehouses 1-100";
    let number = |text: &str| text.trim().parse::<u32>().ok().filter(|number| *number > 0).map(i64::from);
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    match (number(from), number(to)) {
        (Some(from), Some(to)) if from <= to => Ok((from, to)),
        (Some(_), Some(_)) => Err(ValueError::new(format!("the range {text:?} ends before it begins"), hint)),
        _ => Err(ValueError::new(format!("{text:?} is not a range of warehouses"), hint)),
    }
}

impl What {
    /// What it is under load; `None` for what needs none.
    fn under_load(self) -> Option<app::prove::What> {
        Some(match self {
            What::Tpcc | What::Tpcb | What::Check | What::Engine => return None,
            What::Hermitage => app::prove::What::Hermitage,
            What::Ack => app::prove::What::Ack,
            What::Hb => app::prove::What::Hb,
            What::Bank => app::prove::What::Bank,
            What::Twin => app::prove::What::Twin,
            What::Skew => app::prove::What::Skew,
            What::Conflict => app::prove::What::Conflict,
            What::Wide => app::prove::What::Wide,
            What::Verreg => app::prove::What::Verreg,
            What::Append => app::prove::What::Append,
            What::All => app::prove::What::All,
        })
    }

    /// The word of the command line.
    fn word(self) -> &'static str {
        match self.under_load() {
            Some(what) => what.word(),
            None if self == What::Tpcc => "tpcc",
            None if self == What::Tpcb => "tpcb",
            None if self == What::Engine => "engine",
            None => "check",
        }
    }
}

impl Prove {
    /// Proves and writes the run directory.
    pub fn run(self, context: &Context) -> Result<Exit, Failure> {
        if let (Some(what), Some(path)) = (self.what, &self.elle) {
            if !matches!(what, What::Check | What::Verreg | What::Append) {
                return Err(Failure::usage(format!("prove {} writes no history for --elle", what.word()))
                    .hint("check, verreg and append write histories"));
            }
            if path.exists() {
                return Err(Failure::usage(format!("--elle: {} already exists", path.display()))
                    .hint("name a new file"));
            }
        }
        match self.what {
            None => live::heal(context),
            Some(What::Engine) => self.engine()?.run(context),
            Some(what) => match (workloads::conditions::named(what.word()), what.under_load()) {
                (Some(benchmark), _) => self.conditions(benchmark)?.run(context),
                (None, Some(what)) => self.under_load(what)?.run(context),
                (None, None) => self.check()?.run(context),
            },
        }
    }

    fn conditions(self, benchmark: &'static dyn Conditions) -> Result<conditions::Plan, Failure> {
        Ok(conditions::Plan {
            benchmark,
            address: self.connection.address()?,
            conditions: self.conditions,
            range: self.warehouses,
            jobs: self.jobs.map_or_else(cpus, |jobs| usize::try_from(jobs).unwrap_or(usize::MAX)),
            progress: self.progress,
            watching: self.watching.value(),
            directory: self.directory.output_dir,
        })
    }

    fn engine(self) -> Result<engine::Plan, Failure> {
        Ok(engine::Plan { address: self.connection.address()?, directory: self.directory.output_dir })
    }

    fn check(self) -> Result<check::Plan, Failure> {
        let Some(file) = self.connection.target else {
            return Err(Failure::usage("prove check: FILE is missing")
                .hint("name a history: pgfathom prove check runs/.../history.bin"));
        };
        Ok(check::Plan {
            file,
            levels: self.levels,
            strict: self.strict,
            elle: self.elle,
            directory: self.directory.output_dir,
        })
    }

    fn under_load(self, what: app::prove::What) -> Result<live::Plan, Failure> {
        let flags = self.live;
        let place = match flags.local {
            Some(local) => Place::Made(local.value(), flags.set),
            None => Place::There(self.connection.address()?),
        };
        Ok(live::Plan {
            what,
            place,
            fault: flags.fault,
            allow_faults: flags.allow_faults,
            through: flags.through.map(|front| *front),
            time: flags.time,
            client: flags.client,
            isolation: flags.isolation,
            synchronous_commit: flags.synchronous_commit,
            repeat: flags.repeat,
            random_seed: flags.random_seed,
            strict: self.strict,
            elle: self.elle,
            directory: self.directory.output_dir,
        })
    }
}

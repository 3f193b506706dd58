//! `prove`: tests what a database promises: consistency conditions in one snapshot, isolation levels with scripts and histories, and what holds
//! under load and faults.

mod under_load;

use crate::context::{Context, cpus};
use crate::failure::Failure;
use crate::flags::Watching;
use crate::flags::{Connection, RunDirectory};
use ::prove::check::Level;
use ::prove::conditions::{Condition, Conditions};
use ::prove::history::elle::Notation;
use app::prove::live::{self, Place};
use app::prove::{check, conditions, engine};
use app::quantity::{self, ValueError};
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::{Args, ValueEnum};
use record::Exit;
use std::path::PathBuf;
use std::time::Duration;
use workloads::conditions::{CONDITIONS, of_each};

/// Examples behind those of benchmarks, and what is to be known.
const EXAMPLES: &str = "\
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
Exit code 3: a promise is broken, and the output names a witness; with --strict also if any anomaly was seen.
Exit code 8: none is broken, but some could not be judged.";

/// The flags of `prove`.
#[derive(Debug, Args)]
#[command(after_help = examples())]
pub struct Prove {
    /// What to test.
    #[arg(
        value_name = "WHAT",
        value_parser = PossibleValuesParser::new(words()).map(|word| What::of(&word)),
        hide_possible_values = true,
        required_unless_present = "heal",
        help = about()
    )]
    pub what: Option<What>,
    /// The database.
    #[command(flatten)]
    pub connection: Connection,
    #[arg(
        long,
        value_name = "CODES",
        value_parser = condition,
        value_delimiter = ',',
        help_heading = "Prove",
        help = format!("Only these conditions, with commas between [default: all]: {}", codes())
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
    #[arg(
        long,
        value_name = "RANGE",
        value_parser = range,
        help_heading = "Prove",
        help = format!(
            "Only rows of this range: N, or FROM-TO [default: all]: {}",
            of_each(|one| format!("{} of {}", one.units(), one.name()))
        )
    )]
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
#[derive(Clone, Copy, Debug)]
pub enum What {
    /// The consistency conditions of a benchmark
    Conditions(&'static dyn Conditions),
    /// A promise of the database
    Promise(Promise),
}

/// What can be proved without the data of a benchmark.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Promise {
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

const ABOUT: &str = "hermitage, \
    isolation levels with scripts; check, a history file, given as TARGET; ack, no acknowledged commit is lost; hb, length of outages and \
    staleness; bank and twin, a transaction is never half visible; skew, write skew is refused; conflict, concurrent writes of the same rows on \
    several nodes; wide, cost of a commit over several nodes; verreg and append, isolation levels, with random transactions; all, hermitage \
    and all of these workloads; engine, the claims of the engine's profile, as a file for pgfathom's developers";

/// The help of WHAT.
fn about() -> String {
    format!("What to test: {}; {ABOUT}", of_each(|one| format!("{}, {}", one.name(), one.about())))
}

/// What WHAT can be.
fn words() -> Vec<&'static str> {
    let benchmarks = CONDITIONS.iter().map(|one| one.name());
    benchmarks.chain(Promise::value_variants().iter().map(|promise| promise.word())).collect()
}

/// Commands that work.
fn examples() -> String {
    let all = CONDITIONS.iter().flat_map(|one| one.examples());
    let lines: String = all.map(|(flags, what)| format!("  pgfathom prove {flags:<32}  {what}\n")).collect();
    format!("Examples:\n{lines}{EXAMPLES}")
}

/// The codes of every benchmark's conditions.
fn codes() -> String {
    of_each(|one| format!("{} of {}", one.codes(), one.name()))
}

fn condition(text: &str) -> Result<Condition, ValueError> {
    workloads::conditions::condition(text).ok_or_else(|| {
        ValueError::new(
            format!("there is no condition {text:?}"),
            format!("write one of {}, as --conditions C1,C10", codes()),
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

impl Promise {
    /// What it is under load; `None` for what needs none.
    fn under_load(self) -> Option<app::prove::What> {
        Some(match self {
            Promise::Check | Promise::Engine => return None,
            Promise::Hermitage => app::prove::What::Hermitage,
            Promise::Ack => app::prove::What::Ack,
            Promise::Hb => app::prove::What::Hb,
            Promise::Bank => app::prove::What::Bank,
            Promise::Twin => app::prove::What::Twin,
            Promise::Skew => app::prove::What::Skew,
            Promise::Conflict => app::prove::What::Conflict,
            Promise::Wide => app::prove::What::Wide,
            Promise::Verreg => app::prove::What::Verreg,
            Promise::Append => app::prove::What::Append,
            Promise::All => app::prove::What::All,
        })
    }

    /// The word of the command line.
    fn word(self) -> &'static str {
        match (self.under_load(), self) {
            (Some(what), _) => what.word(),
            (None, Promise::Engine) => "engine",
            (None, _) => "check",
        }
    }
}

impl What {
    /// What one of [`words`] names.
    fn of(word: &str) -> What {
        let promise = || Promise::value_variants().iter().find(|promise| promise.word() == word);
        match workloads::conditions::named(word) {
            Some(benchmark) => What::Conditions(benchmark),
            None => What::Promise(*promise().expect("the parser lets only these words pass")),
        }
    }

    fn word(self) -> &'static str {
        match self {
            What::Conditions(benchmark) => benchmark.name(),
            What::Promise(promise) => promise.word(),
        }
    }
}

impl Prove {
    /// Proves and writes the run directory.
    pub fn run(self, context: &Context) -> Result<Exit, Failure> {
        if let (Some(what), Some(path)) = (self.what, &self.elle) {
            if !matches!(what, What::Promise(Promise::Check | Promise::Verreg | Promise::Append)) {
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
            Some(What::Conditions(benchmark)) => self.conditions(benchmark)?.run(context),
            Some(What::Promise(Promise::Engine)) => self.engine()?.run(context),
            Some(What::Promise(promise)) => match promise.under_load() {
                Some(what) => self.under_load(what)?.run(context),
                None => self.check()?.run(context),
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
            through: flags.through,
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

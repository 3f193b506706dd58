//! `prove`: what a database promises: its books in one snapshot, its isolation by scripts, what a history refutes, and what it keeps under load and
//! under faults.

mod check;
mod ground;
mod hermitage;
mod history;
mod live;
mod moments;
mod suite;
mod tpcc;

use crate::cli::{Connection, RunDirectory};
use crate::context::Context;
use crate::failure::Failure;
use crate::quantity::{self, ValueError};
use crate::watching::Watching;
use ::prove::check::Level;
use ::prove::history::elle::Notation;
use ::prove::tpcc::Condition;
use clap::{Args, ValueEnum};
use record::Exit;
use std::path::PathBuf;
use std::time::Duration;

/// The flags of `prove`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  pgfathom prove tpcc DBNAME                       after a load, after a run, or while one goes on
  pgfathom prove tpcc --conditions C10,X13 DBNAME  only the books that transactions of several warehouses write
  pgfathom prove hermitage DBNAME                  14 interleavings at every isolation level, and what they come to
  pgfathom prove hermitage --cluster cluster.toml  the same, and what the cluster adds
  pgfathom prove check --level si HISTORY          a history of ours (history.bin) or of Elle (EDN, JSON)
  pgfathom prove ack --local single --fault kill@3s,heal@4s  is anything lost that was acknowledged?
  pgfathom prove bank --cluster cluster.toml       does one SELECT see half of a transfer?
  pgfathom prove hb --local replicated --fault kill@2s,promote@3s -T 8 --repeat 10  ten failovers: min, median, max
  pgfathom prove ack --local replicated --fault partition@3s,promote@4s,heal@6s     split brain: what of it was promised?
  pgfathom prove verreg --isolation serializable DBNAME  random transactions, written down and checked
  pgfathom prove all --local all                   every promise, on clusters made for it
  pgfathom prove --heal                            undo what a proof that was killed has left broken
Faults: kill, pause, restart, promote, power, full, partition, cut, blackhole, blackhole-requests,
blackhole-replies, delay=50ms, rate=BYTES, drop-commit, orphan; heal undoes them. They hurt only clusters of up and
those of --local unless --allow-faults says otherwise.
Exit code 3: a promise is broken, and a witness is named; with --strict also: anything was seen. Exit code 8: none is, but some could not be judged.")]
pub struct Prove {
    /// What to prove: tpcc, the consistency conditions of TPC-C (clause 3.3.2), and its keys and counts; hermitage, the isolation levels by
    /// scripts; check, a history file, named as TARGET; ack, nothing acknowledged is lost; hb, how long it is away and how stale;
    /// bank and twin, no half transaction is seen; skew, write skew is refused; conflict, the same rows written on several nodes;
    /// wide, what a commit over several nodes costs; verreg and append, random transactions refute no level; all, hermitage and
    /// all of these workloads
    #[arg(value_name = "WHAT", value_enum, hide_possible_values = true, required_unless_present = "heal")]
    pub what: Option<What>,
    /// Which database.
    #[command(flatten)]
    pub connection: Connection,
    /// Only these conditions: C1 to C12, X13 to X25, with commas between [default: all]
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
    /// check: exit with 3 when one of these is refuted: read-committed (rc), snapshot-isolation (si), serializable (ser), strict-serializable (strict), ...
    #[arg(long = "level", value_name = "LEVELS", value_parser = level, value_delimiter = ',', help_heading = "Prove")]
    pub levels: Vec<Level>,
    /// Exit with 3 when an anomaly was seen at all, also where the engine or a setting allows it
    #[arg(long, help_heading = "Prove")]
    pub strict: bool,
    /// Only these warehouses: N, or FROM-TO [default: all]
    #[arg(long, value_name = "RANGE", value_parser = range, help_heading = "Prove")]
    pub warehouses: Option<(i64, i64)>,
    /// Number of connections [default: number of CPUs]
    #[arg(short, long, value_name = "N", value_parser = quantity::positive_count, help_heading = "Prove")]
    pub jobs: Option<u64>,
    /// Progress every so many seconds [default: a line that is redrawn; every 5 where stderr is no terminal]
    #[arg(short = 'P', long, value_name = "TIME", value_parser = quantity::duration, help_heading = "Output")]
    pub progress: Option<Duration>,
    /// What is sampled meanwhile.
    #[command(flatten)]
    pub watching: Watching,
    /// Load and faults.
    #[command(flatten)]
    pub live: live::Flags,
    /// Where results go.
    #[command(flatten)]
    pub directory: RunDirectory,
}

/// What can be proved.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum What {
    /// The books of TPC-C
    Tpcc,
    /// Scripted interleavings
    Hermitage,
    /// A recorded history
    Check,
    /// What was acknowledged
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
}

fn condition(text: &str) -> Result<Condition, ValueError> {
    text.parse().map_err(|_| {
        ValueError::new(
            format!("no condition is called {text:?}"),
            "write C1 to C12 or X13 to X25, as --conditions C1,C10",
        )
    })
}

fn elle_file(text: &str) -> Result<PathBuf, ValueError> {
    let path = PathBuf::from(text);
    match Notation::of(&path) {
        Some(_) => Ok(path),
        None => Err(ValueError::new(
            format!("{text:?} does not say which notation it is"),
            "give it a name that ends in .edn or .json, as --elle history.edn",
        )),
    }
}

fn level(text: &str) -> Result<Level, ValueError> {
    Level::parse(text).ok_or_else(|| {
        let names = Level::all().map(Level::name).collect::<Vec<_>>().join(", ");
        ValueError::new(
            format!("no level is called {text:?}"),
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
        _ => Err(ValueError::new(format!("{text:?} is no range of warehouses"), hint)),
    }
}

impl Prove {
    /// Proves and writes the run directory.
    ///
    /// # Errors
    /// When there is nothing to prove, or no answer at all. A broken condition is no error: it is exit code 3.
    pub fn run(self, context: &Context) -> Result<Exit, Failure> {
        if let (Some(what), Some(path)) = (self.what, &self.elle) {
            if !matches!(what, What::Check | What::Verreg | What::Append) {
                return Err(Failure::usage(format!(
                    "prove {} writes no history for --elle",
                    live::word(what)
                ))
                .hint("histories are those of check, verreg and append"));
            }
            if path.exists() {
                return Err(Failure::usage(format!("--elle: {} is there already", path.display()))
                    .hint("name a file that is not there yet"));
            }
        }
        match self.what {
            None => live::heal(context),
            Some(What::Tpcc) => self.run_tpcc(context),
            Some(What::Check) => self.run_check(context),
            Some(what) => self.run_live(what, context),
        }
    }
}

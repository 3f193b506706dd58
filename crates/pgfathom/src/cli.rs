//! The command line: one enum of verbs, the flags of every verb, and what parsing ends with.

use crate::console::ColorChoice;
use crate::failure::Failure;
use crate::usage::{self, NotAVerb};
use crate::verbs::{
    check, demo, down, explain, load, matrix, plan, prove, relay, report, run, selftest, up, verify, watch,
};
use clap::{ArgAction, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;

/// Help is wrapped here, also on wider terminals: long lines are hard to read.
const HELP_COLUMNS_MAX: usize = 110;

const EXIT_CODES: &str = "\
Exit codes:
  0 ok                              5 run invalid (the client was the limit)
  1 usage, configuration, connect   8 cannot tell (verify, see its notes)
  2 errors during the run           130 interrupted, partial result written
  3 verify or prove found a difference
  6 check found a failure, or a plan does not fit

Data goes to stdout, messages and progress to stderr. A connection is given as for psql:
-h -p -U -d, a last argument (name, URI or 'key=value ...'), PG* variables, service file, .pgpass.";

/// Load, drive, check and diagnose PostgreSQL servers and clusters
#[derive(Debug, Parser)]
#[command(
    name = "pgfathom",
    version,
    disable_help_flag = true,
    disable_version_flag = true,
    disable_help_subcommand = true,
    subcommand_value_name = "VERB",
    subcommand_help_heading = "Verbs",
    max_term_width = HELP_COLUMNS_MAX,
    color = clap::ColorChoice::Never,
    after_help = EXIT_CODES
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
    /// Flags of every verb.
    #[command(flatten)]
    pub common: Common,
    /// Print the version
    #[arg(short = 'V', long, action = ArgAction::Version)]
    version: Option<bool>,
}

/// The verbs of this version.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Run up, load, verify, run and report once, on a throwaway local PostgreSQL
    Demo(demo::Demo),
    /// Start a local cluster from installed PostgreSQL binaries
    Up(up::Up),
    /// Stop a local cluster that up made, and delete it
    Down(down::Down),
    /// Size a load before it starts: rows, partitions, disk, WAL, time, vacuum, clients, money
    Plan(Box<plan::Plan>),
    /// Fill a table with deterministic rows; run it again to continue
    Load(load::Load),
    /// Check that a loaded table has exactly its rows; name the rows that differ
    Verify(verify::Verify),
    /// Test what a database promises: consistency, isolation, durability, also under faults
    Prove(prove::Prove),
    /// Drive transactions and measure them
    Run(Box<run::Run>),
    /// Measure every pair of connect node and data node with the same select and update
    Matrix(matrix::Matrix),
    /// Measure hosts before a load depends on them: disks, network, memory, clocks; read the settings and the state of nodes
    Check(Box<check::Check>),
    /// Sample a live system without driving it: its views, its log and its hosts
    Watch(watch::Watch),
    /// Find the causes of a result: findings with evidence, and what to try
    Explain(explain::Explain),
    /// Show a finished run: on the terminal, as JSON, as one HTML page
    Report(report::Report),
    /// Measure this client: how much load it can generate, and how exactly it can time it
    #[command(name = "self")]
    Selftest(selftest::Selftest),
    /// The relays of up --delay
    #[command(hide = true)]
    Relay(relay::Relay),
}

impl Verb {
    /// What it does when it is to stop, while a second request would end it at once.
    pub fn draining(&self) -> &'static str {
        match self {
            Verb::Run(_) | Verb::Matrix(_) | Verb::Prove(_) | Verb::Demo(_) => {
                "waiting for running transactions"
            }
            Verb::Load(_) => "waiting for the chunks in hand to be committed or undone",
            Verb::Verify(_) => "the comparison ends without a result",
            Verb::Check(_) => "the measurement in hand is given up, and what was measured before is kept",
            Verb::Watch(_) => "the last samples are written",
            Verb::Up(_) | Verb::Down(_) => "what was begun is undone",
            Verb::Plan(_) | Verb::Explain(_) | Verb::Report(_) | Verb::Selftest(_) | Verb::Relay(_) => {
                "ending"
            }
        }
    }
}

/// How results are printed on stdout.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Printed {
    /// For people
    Text,
    /// The summary of run.json
    Json,
}

impl From<Printed> for app::context::Format {
    fn from(printed: Printed) -> Self {
        match printed {
            Printed::Text => Self::Text,
            Printed::Json => Self::Json,
        }
    }
}

/// Flags of every verb.
#[derive(Debug, Args)]
#[command(next_help_heading = "Common")]
pub struct Common {
    /// What to print on stdout: text for people, or the summary as JSON
    #[arg(long, global = true, value_enum, default_value = "text", value_name = "FORMAT")]
    pub format: Printed,
    /// Colour in messages: auto (a terminal, NO_COLOR not set), always, never
    #[arg(
        long,
        global = true,
        value_enum,
        default_value = "auto",
        value_name = "WHEN",
        hide_possible_values = true
    )]
    pub color: ColorChoice,
    /// Suppress messages and progress; print only errors, warnings and results
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
    /// More detail on stderr
    #[arg(short, long, global = true)]
    pub verbose: bool,
    /// Print this help (-h is the host, as in psql)
    #[arg(short = '?', long = "help", global = true, action = ArgAction::HelpShort)]
    help: Option<bool>,
}

/// What the arguments request.
#[derive(Debug)]
pub enum Invocation {
    /// A verb to run.
    Verb(Box<Cli>),
    /// Help or version: text for stdout.
    Text(String),
}

/// Parses the arguments, the program's name first.
///
/// # Errors
/// Every mistake, as a [`Failure`] with exit code 1 and a hint.
pub fn parse(arguments: &[OsString]) -> Result<Invocation, Failure> {
    let parsed =
        Cli::command().try_get_matches_from(arguments).and_then(|matches| Cli::from_arg_matches(&matches));
    let error = match parsed {
        Ok(cli) => return Ok(Invocation::Verb(Box::new(cli))),
        Err(error) => error,
    };
    let mut root = Cli::command();
    root.build();
    let named = arguments.iter().skip(1).filter_map(|argument| argument.to_str());
    let verb = named.filter_map(|word| root.find_subcommand(word)).next();
    match usage::translate(&error, verb.map(clap::Command::get_name), verb.unwrap_or(&root)) {
        NotAVerb::Invocation(text) => Ok(Invocation::Text(text)),
        NotAVerb::Mistake(failure) => Err(failure),
    }
}

/// `--color` before parsing has succeeded: mistakes are coloured, too.
pub fn color_of(arguments: &[OsString]) -> ColorChoice {
    let words: Vec<&str> = arguments.iter().filter_map(|argument| argument.to_str()).collect();
    let value = words.iter().enumerate().find_map(|(index, word)| match word.strip_prefix("--color") {
        Some("") => words.get(index + 1).copied(),
        Some(value) => value.strip_prefix('='),
        None => None,
    });
    value.and_then(|value| ColorChoice::from_str(value, false).ok()).unwrap_or(ColorChoice::Auto)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_flag_of_every_verb_is_documented() {
        let mut root = Cli::command();
        root.build();
        for verb in root.get_subcommands() {
            assert!(verb.get_about().is_some(), "{} has no description", verb.get_name());
            for argument in verb.get_arguments() {
                assert!(
                    argument.get_help().is_some(),
                    "{} {} has no help",
                    verb.get_name(),
                    argument.get_id()
                );
            }
        }
    }

    #[test]
    fn color_is_known_even_when_the_rest_is_wrong() {
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert_eq!(color_of(&words("pgfathom --color never --wrong")), ColorChoice::Never);
        assert_eq!(color_of(&words("pgfathom --color=always")), ColorChoice::Always);
        assert_eq!(color_of(&words("pgfathom run --color")), ColorChoice::Auto);
    }
}

//! `explain`: find the causes of a result, with evidence.

use crate::context::Context;
use crate::failure::Failure;
use clap::Args;
use record::Exit;
use std::path::PathBuf;

/// The flags of `explain`.
#[derive(Debug, Args)]
#[command(after_help = "\
Each finding has its evidence, a proof level, the seconds in which it appeared, what was ruled out, and what to try.
Rules without data are listed with what is missing. The findings are also written to RUN/findings.json.

Examples:
  pgfathom explain runs/20261120-101500-run
  pgfathom explain -v runs/20261120-101500-watch      # with evidence, and with rules that found nothing
  pgfathom explain --format json RUN | jq '.findings[] | {rule, severity, claim}'")]
pub struct Explain {
    /// The run directory (the last line of a run's output names it), or a bundle of one
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
}

impl Explain {
    /// Explains the run, writes its findings and prints them.
    pub fn run(self, context: &Context) -> Result<Exit, Failure> {
        app::explain::Plan { run: self.run }.run(context)
    }
}

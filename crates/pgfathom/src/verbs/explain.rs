//! `explain`: find the causes of a result, with evidence.

use crate::context::Context;
use crate::failure::Failure;
use app::explain::{Against, Interval};
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
  pgfathom explain --during 1m-3m RUN                 # these two minutes only
  pgfathom explain --during 60-120 --against 0-60 RUN # what changed after the first minute
  pgfathom explain --against LAST_WEEK RUN            # what changed since another recording
  pgfathom explain --format json RUN | jq '.findings[] | {rule, severity, claim}'")]
pub struct Explain {
    /// The run directory (the last line of a run's output names it), or a bundle of one
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    /// Only this interval of RUN: FROM-TO in seconds, or as 1m-2m30s
    #[arg(long, value_name = "FROM-TO")]
    pub during: Option<Interval>,
    /// What changed since this: another run directory, an interval of RUN, or DIR@FROM-TO
    #[arg(long, value_name = "WHAT")]
    pub against: Option<Against>,
}

impl Explain {
    /// Explains the run, writes its findings and prints them.
    pub fn run(self, context: &Context) -> Result<Exit, Failure> {
        app::explain::Plan { run: self.run, during: self.during, against: self.against }.run(context)
    }
}

//! `report`: show a finished run.

use crate::context::Context;
use crate::failure::Failure;
use clap::Args;
use record::Exit;
use std::path::PathBuf;

/// The flags of `report`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  pgfathom report runs/20261120-101500-run
  pgfathom report --format json runs/20261120-101500-run | jq .tps
  pgfathom report runs/20261120-101500-run --compare 35-48,5-30")]
pub struct Report {
    /// The run directory (the last line of a run's output names it), or a bundle of one
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    /// Write the page to this file instead of RUN/report.html
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub out: Option<PathBuf>,
    /// Compare the run with this plan of `pgfathom plan`, instead of the one that it was started with
    #[arg(long, value_name = "FILE", conflicts_with = "compare")]
    pub plan: Option<PathBuf>,
    /// Compare two intervals of a step, in seconds as its charts show them: FROM-TO,FROM-TO or STEP:FROM-TO,FROM-TO; or a finding of `explain`:
    /// its bad seconds with the good ones
    #[arg(long, value_name = "INTERVALS")]
    pub compare: Option<String>,
    /// Show what disks and network did beside what this check of the same hosts measured; its results are copied into RUN
    #[arg(long, value_name = "CHECK_RUN")]
    pub check: Option<PathBuf>,
}

impl Report {
    /// Prints the run and writes its page.
    pub fn run(self, context: &Context) -> Result<Exit, Failure> {
        app::report::Plan {
            run: self.run,
            out: self.out,
            plan: self.plan,
            compare: self.compare,
            check: self.check,
        }
        .run(context)
    }
}

//! `report`: show a finished run.

use crate::cli::Format;
use crate::context::Context;
use crate::failure::Failure;
use crate::recording;
use clap::Args;
use record::{Exit, files};
use std::path::PathBuf;

/// The flags of `report`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  pgfathom report runs/20261120-101500-run-ycsb-a
  pgfathom report --format json runs/20261120-101500-run-ycsb-a | jq .tps")]
pub struct Report {
    /// The run directory: the last line of every measuring verb names it
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    /// Write the page to this file instead of RUN/report.html
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub out: Option<PathBuf>,
}

impl Report {
    /// Prints the run and writes its page.
    ///
    /// # Errors
    /// When RUN is no run directory, or the page cannot be written.
    pub fn run(self, context: &Context) -> Result<Exit, Failure> {
        let text = match context.format {
            Format::Text => report::text(&self.run),
            Format::Json => report::json(&self.run),
        };
        let text = text.map_err(|error| {
            Failure::from(error).or_hint("name a run directory; ls runs/ shows the runs here")
        })?;
        context.terminal.data(&text);
        let page = self.out.clone().unwrap_or_else(|| self.run.join(files::REPORT));
        let html = report::html(&self.run)?;
        match recording::write_whole(&page, &html) {
            Ok(()) => context.terminal.say(&format!("report: {}", page.display())),
            // Somebody else's directory may be read-only, and the user has got an answer; a page asked for by name is different.
            Err(error) if self.out.is_none() => {
                context.terminal.warn(&format!(
                    "cannot write {}: {error}; --out FILE names another place",
                    page.display()
                ));
            }
            Err(error) => {
                return Err(Failure::caused(format!("cannot write {}", page.display()), error)
                    .hint("name a file in a folder that exists and is yours"));
            }
        }
        Ok(Exit::Ok)
    }
}

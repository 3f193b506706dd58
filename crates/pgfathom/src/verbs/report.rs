//! `report`: show a finished run.

use crate::cli::Format;
use crate::context::Context;
use crate::failure::Failure;
use crate::machines;
use crate::recording;
use clap::Args;
use record::{Exit, files};
use std::path::PathBuf;

/// The flags of `report`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  pgfathom report runs/20261120-101500-run-ycsb-a
  pgfathom report --format json runs/20261120-101500-run-ycsb-a | jq .tps
  pgfathom report runs/20261120-101500-run-ycsb-a --compare 35-48,5-30")]
pub struct Report {
    /// The run directory (the last line of every measuring verb names it), or a bundle of one
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    /// Write the page to this file instead of RUN/report.html
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub out: Option<PathBuf>,
    /// Two intervals of a step side by side, in seconds as its charts show them: FROM-TO,FROM-TO or STEP:FROM-TO,FROM-TO; or a finding of
    /// `explain`: its bad seconds against the good ones
    #[arg(long, value_name = "INTERVALS")]
    pub compare: Option<String>,
}

impl Report {
    /// Prints the run and writes its page.
    ///
    /// # Errors
    /// When RUN is no run directory, or the page cannot be written.
    pub fn run(mut self, context: &Context) -> Result<Exit, Failure> {
        self.run = machines::opened(&self.run, context)?;
        let (text, html) = self.made(context)?;
        context.terminal.data(&text);
        let page = self.out.clone().unwrap_or_else(|| self.run.join(files::REPORT));
        let written = match self.out {
            Some(_) => recording::write_named(&page, &html),
            None => recording::write_whole(&page, &html),
        };
        match written {
            Ok(()) => context.terminal.say(&format!("report: {}", page.display())),
            // Somebody else's directory may be read-only, and the user has got an answer; a page asked for by name is different.
            Err(error) if self.out.is_none() && recording::is_not_ours(&error) => {
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

    /// What is printed, and the page.
    fn made(&self, context: &Context) -> Result<(String, String), Failure> {
        if let Some(intervals) = &self.compare {
            let compared = report::compare(&self.run, intervals).map_err(named)?;
            let text = match context.format {
                Format::Text => compared.text,
                Format::Json => compared.json,
            };
            return Ok((text, compared.html));
        }
        let text = match context.format {
            Format::Text => report::text(&self.run),
            Format::Json => report::json(&self.run),
        };
        let text = text.map_err(named)?;
        Ok((text, report::html(&self.run)?))
    }
}

/// A failure to read a run, with what to type instead.
fn named(error: impl Into<Failure>) -> Failure {
    error.into().or_hint("name a run directory; ls runs/ shows the runs here")
}

//! `explain`: say why a run went as it did, with evidence.

use crate::cli::Format;
use crate::context::Context;
use crate::failure::Failure;
use crate::machines;
use crate::recording;
use ::explain::Detail;
use clap::Args;
use record::{Exit, RecordError, files};
use std::path::PathBuf;

/// The flags of `explain`.
#[derive(Debug, Args)]
#[command(after_help = "\
Each finding says what was found, how well it is proved, when it showed, what was ruled out, and what to try.
Rules that could not look say what is missing. The findings stand in RUN/findings.json, too.

Examples:
  pgfathom explain runs/20261120-101500-run-ycsb-a
  pgfathom explain -v runs/20261120-101500-watch      # with evidence, and with what was looked for in vain
  pgfathom explain --format json RUN | jq '.findings[] | {rule, severity, claim}'")]
pub struct Explain {
    /// The run directory (the last line of every measuring verb names it), or a bundle of one
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
}

impl Explain {
    /// Explains the run, writes its findings and prints them.
    ///
    /// # Errors
    /// When RUN is no run directory.
    pub fn run(mut self, context: &Context) -> Result<Exit, Failure> {
        self.run = machines::opened(&self.run, context)?;
        let findings = ::explain::explain(&self.run, env!("CARGO_PKG_VERSION")).map_err(|error| {
            Failure::from(error).or_hint("name a run directory; ls runs/ shows the runs here")
        })?;
        let text = match context.format {
            Format::Text => {
                let detail = if context.terminal.is_verbose() { Detail::Full } else { Detail::Short };
                ::explain::text(&findings, detail)
            }
            Format::Json => findings.to_json()?,
        };
        context.terminal.data(&text);
        // Somebody else's directory may be read-only, and the user has got an answer.
        match findings.write(&self.run) {
            Ok(()) => {
                context.terminal.say(&format!("findings: {}", self.run.join(files::FINDINGS).display()))
            }
            Err(RecordError::Io { source, path, .. }) if recording::is_not_ours(&source) => {
                context.terminal.warn(&format!(
                    "cannot write {}: {source}; the findings were printed only",
                    path.display()
                ));
            }
            Err(error) => {
                return Err(Failure::from(error).context("the findings were printed only"));
            }
        }
        Ok(Exit::Ok)
    }
}

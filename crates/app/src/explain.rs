//! `explain`: find the causes of a result, with evidence.

use crate::context::{Context, Format};
use crate::failure::Failure;
use crate::machines;
use crate::recording;
use ::explain::Detail;
use record::{Exit, RecordError, files};
use std::path::PathBuf;

/// Which run to explain.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The run directory, or a bundle of one.
    pub run: PathBuf,
}

impl Plan {
    /// Explains the run, writes its findings and prints them.
    ///
    /// # Errors
    /// When RUN is no run directory.
    pub fn run(mut self, context: &Context) -> Result<Exit, Failure> {
        self.run = machines::opened(&self.run, context)?;
        let findings = ::explain::explain(&self.run, env!("CARGO_PKG_VERSION"))
            .map_err(|error| Failure::from(error).or_hint("name a run directory; ls runs/ lists them"))?;
        let text = match context.format {
            Format::Text => {
                let detail = if context.terminal.is_verbose() { Detail::Full } else { Detail::Short };
                ::explain::text(&findings, detail)
            }
            Format::Json => findings.to_json()?,
        };
        context.terminal.data(&text);
        // The directory may be read-only, and the findings are already printed.
        match findings.write(&self.run) {
            Ok(()) => {
                context.terminal.say(&format!("findings: {}", self.run.join(files::FINDINGS).display()))
            }
            Err(RecordError::Io { source, path, .. }) if recording::is_not_ours(&source) => {
                context.terminal.warn(&format!(
                    "cannot write {}: {source}; the findings were only printed",
                    path.display()
                ));
            }
            Err(error) => {
                return Err(Failure::from(error).context("the findings were only printed"));
            }
        }
        Ok(Exit::Ok)
    }
}

//! `report`: show a finished run.

use crate::context::{Context, Format};
use crate::failure::Failure;
use crate::machines;
use crate::recording;
use record::check::Checks;
use record::{Exit, files};
use std::path::PathBuf;

/// Which run to show.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The run directory, or a bundle of one.
    pub run: PathBuf,
    /// The page's place instead of RUN/report.html.
    pub out: Option<PathBuf>,
    /// A plan to compare it with, instead of the run's own.
    pub plan: Option<PathBuf>,
    /// Two intervals to compare, as `--compare` of the command takes them.
    pub compare: Option<String>,
    /// The directory of a check of the same hosts: what it measured is kept in the run, and shown beside what the run used.
    pub check: Option<PathBuf>,
}

impl Plan {
    /// Prints the run and writes its page.
    ///
    /// # Errors
    /// When RUN is no run directory, or the page cannot be written.
    pub fn run(mut self, context: &Context) -> Result<Exit, Failure> {
        self.run = machines::opened(&self.run, context)?;
        if let Some(check) = &self.check {
            let named =
                |error: record::RecordError| Failure::from(error).or_hint("name the directory of a check");
            let Some(checks) = Checks::read(check).map_err(named)? else {
                return Err(Failure::usage(format!("{} has no {}", check.display(), files::CHECKS))
                    .hint("name the run directory of pgfathom check"));
            };
            if record::RunReader::open(&self.run).map_err(named)?.run.verb == "check" {
                return Err(Failure::usage(format!("{} is a check itself", self.run.display()))
                    .hint("name a load or a run, and with --check the check of its hosts"));
            }
            checks.write(&self.run)?;
        }
        let (text, html) = self.made(context)?;
        context.terminal.data(&text);
        let page = self.out.clone().unwrap_or_else(|| self.run.join(files::REPORT));
        let written = match self.out {
            Some(_) => recording::write_named(&page, &html),
            None => recording::write_whole(&page, &html),
        };
        match written {
            Ok(()) => context.terminal.say(&format!("report: {}", page.display())),
            // The directory may be read-only, and the result is already printed; a page with a given name is different.
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
            let compared = ::report::compare(&self.run, intervals).map_err(named)?;
            let text = match context.format {
                Format::Text => compared.text,
                Format::Json => compared.json,
            };
            return Ok((text, compared.html));
        }
        let plan = self.plan.as_deref().map(crate::plan::open).transpose()?;
        let source = ::report::Planned { dir: self.run.clone(), plan };
        let text = match context.format {
            Format::Text => ::report::text(&source),
            Format::Json => ::report::json(&source),
        };
        let text = text.map_err(named)?;
        Ok((text, ::report::html(&source)?))
    }
}

/// A failure to read a run, with what to type instead.
fn named(error: impl Into<Failure>) -> Failure {
    error.into().or_hint("name a run directory; ls runs/ lists them")
}

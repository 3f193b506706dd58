//! The run directory of a measuring verb: made when there is something to measure, closed whatever happens, named at the end.

use crate::cli::{Format, RunDirectory};
use crate::context::Context;
use crate::failure::Failure;
use record::model::Run;
use record::{RunDir, State, What};
use std::path::Path;

/// A run directory being written by a verb.
#[derive(Debug)]
pub struct Recording<'a> {
    context: &'a Context,
    dir: RunDir,
}

impl<'a> Recording<'a> {
    /// Makes the directory. To be called when the target has answered: a refused password leaves no directory behind.
    ///
    /// # Errors
    /// When the directory is in use or cannot be made.
    pub fn begin(
        context: &'a Context,
        directory: &RunDirectory,
        verb: &str,
        name: &str,
    ) -> Result<Recording<'a>, Failure> {
        let what = What {
            verb: verb.to_string(),
            name: name.to_string(),
            argv: context.arguments.clone(),
            tool_version: env!("CARGO_PKG_VERSION").to_string(),
        };
        let dir = RunDir::create(directory.output_dir.as_deref(), &what)
            .map_err(|error| Failure::from(error).or_hint("name another folder with -o DIR"))?;
        Ok(Recording { context, dir })
    }

    /// The directory being written.
    pub fn dir(&self) -> &RunDir {
        &self.dir
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Closes the directory, prints the summary when JSON was asked for, and names the directory: the last line on stderr.
    ///
    /// # Errors
    /// When run.json cannot be written: then there is no result.
    pub fn finish(&self, state: State) -> Result<Run, Failure> {
        let run = self.dir.finish(state)?;
        if self.context.format == Format::Json {
            let summary = serde_json::to_string_pretty(&run.summary)
                .map_err(|error| Failure::caused("cannot print the summary", error))?;
            self.context.terminal.data(&summary);
        }
        self.context.terminal.result(&format!("run: {}", self.path().display()));
        Ok(run)
    }
}

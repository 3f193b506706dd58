//! The skeleton of a verb that works on a target in one step: it opens the run directory when the target has answered, samples beside the
//! work, does the work, and closes the directory whatever happens; then the run is explained and its page is written.

use crate::context::Context;
use crate::failure::{Explained, Failure};
use crate::fingerprint;
use crate::recording::Recording;
use crate::watching::Watching;
use connect::control::Control;
use engines::Cluster;
use record::{Exit, State, StepId};
use serde_json::{Map, Value};
use std::path::Path;

/// A run directory to be opened.
#[derive(Clone, Copy, Debug)]
pub struct Opening<'a> {
    /// The verb.
    pub verb: &'a str,
    /// What it works on: a dataset, a workload.
    pub name: &'a str,
    /// Where the directory is to be; without a name below `runs/`.
    pub directory: Option<&'a Path>,
    /// What is sampled beside the work.
    pub watching: Watching,
}

impl Opening<'_> {
    /// Opens the directory for work on this cluster, and begins to sample. `control` is a connection to the node `entry`: the target has
    /// answered, so a refused password leaves no directory behind.
    ///
    /// # Errors
    /// When the directory is in use or cannot be made.
    pub fn open<'c>(
        &self,
        context: &'c Context,
        cluster: &Cluster,
        (entry, control): (usize, &mut Control),
    ) -> Result<Recording<'c>, Failure> {
        let recording = Recording::begin(context, self.directory, self.verb, self.name)?;
        self.watching.begin(&recording, &cluster.nodes);
        let mut fingerprint = fingerprint::take(control, &cluster.nodes[entry].spec);
        fingerprint.engine = cluster.engine.name().to_string();
        recording.dir().edit(|run| run.target = Some(fingerprint))?;
        Ok(recording)
    }

    /// Works in one step of `recording`, reports what came of it, and closes the directory.
    ///
    /// # Errors
    /// When the work was refused or broke off.
    pub(crate) fn in_one_step<'c>(
        &self,
        recording: Recording<'c>,
        work: impl FnOnce(&Recording<'c>, &StepId) -> Result<Outcome, NoOutcome>,
    ) -> Result<Exit, Failure> {
        let step = recording.dir().begin_step(self.verb, self.name)?;
        let outcome = match work(&recording, &step) {
            Ok(outcome) => outcome,
            Err(NoOutcome::Refused(failure)) => {
                recording.discard();
                return Err(failure);
            }
            Err(NoOutcome::Interrupted(message)) => {
                recording.keep(recording.dir().end_step(&step, State::Interrupted));
                recording.context().terminal.say(message);
                recording.finish(State::Interrupted)?;
                return Ok(Exit::Interrupted);
            }
            Err(NoOutcome::Failed(failure)) => {
                recording.fail(&step, &failure.headline());
                return Err(failure);
            }
        };
        let context = recording.context();
        if context.is_text() {
            if outcome.has_step_line {
                context.terminal.data(&recording.step_line(&step)?);
            }
            outcome.lines.iter().for_each(|line| context.terminal.data(line));
        }
        outcome.messages.iter().for_each(|message| context.terminal.say(message));
        recording.finish_with(outcome.state, outcome.fields)?;
        Ok(outcome.exit)
    }
}

/// What the step came to. It is described in the run directory and ended already.
#[derive(Debug)]
pub struct Outcome {
    /// How the run directory calls it.
    pub state: State,
    /// How the process ends.
    pub exit: Exit,
    /// The report has a line for such a step, which comes first.
    pub has_step_line: bool,
    /// Results for people.
    pub lines: Vec<String>,
    /// What a reader should know of them.
    pub messages: Vec<String>,
    /// Further fields of the summary that `--format json` prints.
    pub fields: Map<String, Value>,
}

impl Outcome {
    /// An outcome with the report's own line only.
    pub fn new(state: State, exit: Exit) -> Outcome {
        let (lines, messages) = (Vec::new(), Vec::new());
        Outcome { state, exit, has_step_line: true, lines, messages, fields: Map::new() }
    }
}

/// Why a step has no outcome.
#[derive(Debug)]
pub enum NoOutcome {
    /// It was refused before anything was measured: the run directory is removed.
    Refused(Failure),
    /// It was interrupted before there was an answer; this is reported.
    Interrupted(&'static str),
    /// It broke off: what was measured until then stays.
    Failed(Failure),
}

/// What the user has to correct is a refusal.
impl<E: Explained> From<E> for NoOutcome {
    fn from(error: E) -> NoOutcome {
        match error.exit() {
            Exit::Usage => NoOutcome::Refused(error.into()),
            _ => NoOutcome::Failed(error.into()),
        }
    }
}

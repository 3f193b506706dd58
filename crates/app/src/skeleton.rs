//! The skeleton of a verb that measures: it opens the run directory when the target has answered, samples beside the work, does the work,
//! and closes the directory whatever happens; then the run is explained and its page is written.

use crate::context::Context;
use crate::failure::{Explained, Failure};
use crate::fingerprint;
pub use crate::recording::Outcome;
use crate::recording::Recording;
use crate::watching::Watching;
use connect::ConnSpec;
use connect::control::Control;
use engines::Cluster;
use record::{Exit, State, StepId};
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
    /// Whether the verb can sample at all.
    may_watch: bool,
}

/// What the work is done on.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The server that describes itself in the run directory.
    pub spec: &'a ConnSpec,
    /// The cluster that it belongs to, if that is known; otherwise its catalog leads to the other nodes that are sampled.
    pub cluster: Option<&'a Cluster>,
}

impl<'a> Target<'a> {
    /// A node of a cluster.
    pub fn node(cluster: &'a Cluster, at: usize) -> Target<'a> {
        Target { spec: &cluster.nodes[at].spec, cluster: Some(cluster) }
    }

    /// A server of which nothing is known.
    pub(crate) fn server(spec: &'a ConnSpec) -> Target<'a> {
        Target { spec, cluster: None }
    }
}

impl<'a> Opening<'a> {
    /// The directory of this verb, with nothing sampled beside the work.
    pub(crate) fn new(verb: &'a str, name: &'a str, directory: Option<&'a Path>) -> Opening<'a> {
        Opening { verb, name, directory, watching: Watching::Off, may_watch: false }
    }

    /// The same, with this sampled beside the work.
    pub(crate) fn watched(self, watching: Watching) -> Opening<'a> {
        Opening { watching, may_watch: true, ..self }
    }

    /// Opens the directory of work without a target, or before there is one.
    ///
    /// # Errors
    /// When the directory is in use or cannot be made.
    pub(crate) fn begin<'c>(&self, context: &'c Context) -> Result<Recording<'c>, Failure> {
        let recording = Recording::begin(context, self.directory, self.verb, self.name)?;
        if self.may_watch {
            recording.may_sample();
        }
        Ok(recording)
    }

    /// Opens the directory for work on this target, and begins to sample. `control` is a connection to its server: it has answered, so a
    /// refused password leaves no directory behind.
    ///
    /// # Errors
    /// As [`Opening::begin`].
    pub fn open<'c>(
        &self,
        context: &'c Context,
        target: Target<'_>,
        control: &mut Control,
    ) -> Result<Recording<'c>, Failure> {
        let recording = self.begin(context)?;
        self.connected(&recording, target, control)?;
        Ok(recording)
    }

    /// Describes the target of a directory that was opened without one, and begins to sample it.
    ///
    /// # Errors
    /// When run.json cannot be written.
    pub(crate) fn connected(
        &self,
        recording: &Recording<'_>,
        target: Target<'_>,
        control: &mut Control,
    ) -> Result<(), Failure> {
        // In a pool of two server processes the mark of a run has one, and the sampler needs the other one.
        let _ = control.release();
        self.watching.begin(recording, target.spec, target.cluster);
        if let Some(cluster) = target.cluster {
            warn_of_unlisted(recording.context(), cluster, control);
        }
        let mut fingerprint = fingerprint::take(control, target.spec);
        // A catalog that this role may not read leaves it with PostgreSQL.
        let engine = match target.cluster {
            Some(cluster) => Some(cluster.engine),
            None => Cluster::engine_of(control).ok(),
        };
        if let Some(engine) = engine {
            fingerprint.engine = engine.name().to_string();
        }
        let _ = control.release();
        Ok(recording.dir().edit(|run| run.target = Some(fingerprint))?)
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
        in_steps(recording, |recording| {
            let step = recording.dir().begin_step(self.verb, self.name)?;
            work(recording, &step)
        })
    }
}

/// Warns of nodes that the engine has and a cluster file does not name.
pub(crate) fn warn_of_unlisted(context: &Context, cluster: &Cluster, control: &mut Control) {
    if cluster.nodes.len() < 2 {
        return;
    }
    for address in cluster.unlisted_nodes(control) {
        context.terminal.warn(&format!(
            "the engine has a node at {address} that the cluster file does not name: add a [[node]] for it; until then it is neither sampled nor entered"
        ));
    }
}

/// Works in the steps that `work` makes in `recording`, reports what came of them, and closes the directory.
///
/// # Errors
/// When the work was refused or broke off.
pub(crate) fn in_steps<'c>(
    recording: Recording<'c>,
    work: impl FnOnce(&Recording<'c>) -> Result<Outcome, NoOutcome>,
) -> Result<Exit, Failure> {
    match work(&recording) {
        Ok(outcome) => recording.finish(outcome),
        Err(NoOutcome::Refused(failure)) => {
            recording.discard();
            Err(failure)
        }
        Err(NoOutcome::Interrupted(message)) => {
            recording.context().terminal.say(message);
            recording.finish(Outcome::plain(State::Interrupted, Exit::Interrupted))
        }
        Err(NoOutcome::Failed(failure)) => {
            recording.fail(&failure);
            Err(failure)
        }
    }
}

/// Why the work has no outcome.
#[derive(Debug)]
pub enum NoOutcome {
    /// It was refused before anything was measured: the run directory is removed.
    Refused(Failure),
    /// It was interrupted before there was a result; this is reported.
    Interrupted(&'static str),
    /// It broke off: what was measured until then stays.
    Failed(Failure),
}

impl NoOutcome {
    /// The same, with another failure in it.
    pub(crate) fn map(self, change: impl FnOnce(Failure) -> Failure) -> NoOutcome {
        match self {
            NoOutcome::Refused(failure) => NoOutcome::Refused(change(failure)),
            NoOutcome::Failed(failure) => NoOutcome::Failed(change(failure)),
            interrupted @ NoOutcome::Interrupted(_) => interrupted,
        }
    }
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

impl From<Failure> for NoOutcome {
    fn from(failure: Failure) -> NoOutcome {
        NoOutcome::Failed(failure)
    }
}

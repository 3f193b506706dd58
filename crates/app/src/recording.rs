//! The run directory of a measuring verb: created when there is something to measure, always closed, and named at the end.

use crate::context::{Context, Format};
use crate::failure::Failure;
use crate::stop::CleanupGuard;
use ::explain::Sampling;
use ::report::Held;
use ::watch::Sampler;
use record::{Exit, RecordError, RunDir, State, StepId, What, file, files};
use serde_json::{Map, Value};
use std::cell::{Cell, RefCell};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A run directory being written by a verb.
#[derive(Debug)]
pub struct Recording<'a> {
    context: &'a Context,
    dir: Arc<RunDir>,
    /// What is sampled beside the work, while it goes on.
    sampler: RefCell<Option<Sampler>>,
    sampling: Cell<Sampling>,
    /// The run has ended and was explained.
    is_concluded: Cell<bool>,
    /// No load and no samples: there is nothing to explain.
    is_no_load: Cell<bool>,
    /// Whether it was reported that the directory is incomplete.
    is_lossy: Cell<bool>,
}

/// A recording larger than this is not explained at the end of its verb, which would take more than some seconds.
const EXPLAINED_BYTES_MAX: u64 = 256 << 20;

impl<'a> Recording<'a> {
    /// Makes the directory; without a name it is `runs/TIME-VERB-NAME`. To be called when the target has answered: a refused password
    /// leaves no directory behind.
    ///
    /// # Errors
    /// When the directory is in use or cannot be made.
    pub(crate) fn begin(
        context: &'a Context,
        directory: Option<&Path>,
        verb: &str,
        name: &str,
    ) -> Result<Recording<'a>, Failure> {
        let what = What {
            verb: verb.to_string(),
            name: name.to_string(),
            argv: context.arguments.clone(),
            tool_version: env!("CARGO_PKG_VERSION").to_string(),
        };
        let dir = RunDir::create(directory, &what)
            .map_err(|error| Failure::from(error).or_hint("name another folder with -o DIR"))?;
        Ok(Recording {
            context,
            dir: Arc::new(dir),
            sampler: RefCell::default(),
            sampling: Cell::new(Sampling::Never),
            is_concluded: Cell::new(false),
            is_no_load: Cell::new(false),
            is_lossy: Cell::new(false),
        })
    }

    /// The directory being written.
    pub fn dir(&self) -> &RunDir {
        &self.dir
    }

    /// The same, for threads that write beside the verb.
    pub(crate) fn shared_dir(&self) -> &Arc<RunDir> {
        &self.dir
    }

    /// This run drives no load and samples nothing: no causes are looked for.
    pub(crate) fn is_no_load(&self) {
        self.is_no_load.set(true);
    }

    /// This verb can sample; it does from [`Recording::carry`] on.
    pub(crate) fn may_sample(&self) {
        self.sampling.set(Sampling::Off);
    }

    /// Takes over what samples beside the work; it ends with [`Recording::end_watch`] or the recording.
    pub fn carry(&self, sampler: Sampler) {
        self.sampling.set(Sampling::On);
        self.sampler.replace(Some(sampler));
    }

    /// Ends the sampling, if there is any: what comes from now on is not of the work.
    pub(crate) fn end_watch(&self) {
        if let Some(sampler) = self.sampler.take() {
            let (_, lost) = sampler.stop();
            self.keep(lost.map_or(Ok(()), Err));
        }
    }

    /// The surroundings of the verb that writes it.
    pub fn context(&self) -> &'a Context {
        self.context
    }

    /// Where it is, to be shown.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The directory itself, to be written into.
    pub fn place(&self) -> PathBuf {
        self.dir.place()
    }

    /// What could not be written must not stop a load of days: it is reported once, the work goes on, and the verb ends with an error.
    pub fn keep(&self, written: Result<(), RecordError>) {
        if let Err(error) = written {
            self.dir.lose(error);
        }
        if let Some(error) = self.dir.lost()
            && !self.is_lossy.replace(true)
        {
            self.context.terminal.warn(&format!("the run directory is incomplete from this moment: {error}"));
        }
    }

    /// The line of the last step, as the report has it.
    ///
    /// # Errors
    /// When the directory cannot be read back.
    pub(crate) fn last_line(&self) -> Result<String, Failure> {
        let held = self.held();
        let last = held.run.steps.last();
        Ok(last.map_or(Ok(String::new()), |step| ::report::step_line(&held, &step.key))?)
    }

    /// The report's lines of all steps.
    pub(crate) fn step_lines(&self) -> Vec<String> {
        let held = self.held();
        let line = |step: &record::model::Step| ::report::step_line(&held, &step.key).unwrap_or_default();
        held.run.steps.iter().map(line).collect()
    }

    /// The run as it is in memory: on a full disk `run.json` is an old one.
    fn held(&self) -> Held {
        let lost = self.dir.lost().map(|error| error.to_string());
        Held { dir: self.path().to_path_buf(), run: self.dir.run(), lost }
    }

    /// Takes the directory away again: what was requested was refused before anything was measured.
    pub fn discard(self) {
        drop(self.sampler.take());
        remove(&self.place(), self.path());
    }

    /// Likewise if the process has to end before the work has begun.
    pub(crate) fn discard_on_forced_exit(&self) -> CleanupGuard {
        let (place, path) = (self.place(), self.path().to_owned());
        self.context.stop.on_forced_exit(move || remove(&place, &path))
    }

    /// Ends a step with an error: what was measured stays, the error is an event.
    pub(crate) fn fail_step(&self, step: &StepId, error: &str) {
        self.keep(self.dir.happened(Some(step), record::event::ERROR, error));
        self.keep(self.dir.edit_step(step, |step| step.verdict.invalidate(error)));
        self.keep(self.dir.end_step(step, State::Failed));
    }

    /// Closes the directory after an error, which belongs to the step that is still open.
    pub(crate) fn fail(&self, failure: &Failure) {
        self.end_watch();
        match self.dir.open_step() {
            Some(step) => self.fail_step(&step, &failure.message()),
            None => self.keep(self.dir.happened(None, record::event::ERROR, &failure.message())),
        }
        if self.finish(Outcome::plain(State::Failed, failure.exit())).is_err() {
            self.context.terminal.warn("the run directory could not be closed");
        }
    }

    /// Ends the run: what comes from now on is not of the work.
    fn end(&self, state: State) -> Result<(), Failure> {
        self.end_watch();
        if self.dir.run().state == State::Running {
            self.dir.finish(state)?;
        }
        Ok(())
    }

    /// Ends the run and looks for causes in what was recorded: `findings.json`, and the findings of the summary. Once; later calls do
    /// nothing.
    ///
    /// # Errors
    /// When run.json cannot be written: then there is no result.
    pub(crate) fn conclude(&self, state: State) -> Result<(), Failure> {
        self.end(state)?;
        if !self.is_concluded.replace(true) && !self.is_no_load.get() {
            self.explain();
        }
        Ok(())
    }

    /// The result is written already: a failure to explain it is reported, and changes nothing.
    fn explain(&self) {
        let terminal = self.context.terminal.as_ref();
        if self.dir.lost().is_some() {
            return terminal.say("findings: not evaluated, the recording is incomplete");
        }
        let bytes = |name: &str| std::fs::metadata(self.place().join(name)).map_or(0, |data| data.len());
        if bytes(files::SAMPLES) + bytes(files::EVENTS) > EXPLAINED_BYTES_MAX {
            let run = self.path().display();
            return terminal
                .say(&format!("findings: not evaluated, the recording is large: pgfathom explain {run}"));
        }
        let findings = match ::explain::explain(self.path(), env!("CARGO_PKG_VERSION")) {
            Ok(findings) => findings,
            Err(error) => return terminal.warn(&format!("the run could not be explained: {error}")),
        };
        if let Err(error) = findings.write(&self.place()) {
            return self.keep(Err(error));
        }
        self.keep(self.dir.edit(|run| run.summary.explained(&findings)));
        ::explain::brief(&findings, self.sampling.get()).iter().for_each(|line| terminal.say(line));
    }

    /// Ends the run, reports what came of it, looks for causes, writes the report page, prints the summary when JSON was requested, and names
    /// the directory: the last line on stderr. If the directory is incomplete, the verb ends with an error, after all results were printed.
    ///
    /// # Errors
    /// When the summary cannot be printed.
    pub(crate) fn finish(&self, outcome: Outcome) -> Result<Exit, Failure> {
        let terminal = self.context.terminal.as_ref();
        self.end(outcome.state)?;
        if self.context.is_text() {
            match outcome.shown {
                Shown::Line => terminal.data(&self.last_line()?),
                Shown::Page => terminal.data(::report::text(&self.held())?.trim_end()),
                Shown::Nothing => {}
            }
            outcome.lines.iter().for_each(|line| terminal.data(line));
        }
        outcome.warnings.iter().for_each(|warning| terminal.warn(warning));
        outcome.messages.iter().for_each(|message| terminal.say(message));
        self.conclude(outcome.state)?;
        let page = self.path().join(files::REPORT);
        let written = ::report::html(&self.held()).and_then(|html| {
            let unwritten = |source| RecordError::Io { action: "write", path: page.clone(), source };
            write_whole(&self.place().join(files::REPORT), &html).map_err(unwritten)
        });
        if let Err(error) = written {
            self.dir.lose(error);
        }
        if self.context.format == Format::Json {
            let failed = |error| Failure::caused("cannot print the summary", error);
            let mut summary = serde_json::to_value(&self.dir.run().summary).map_err(failed)?;
            if let Some(fields) = summary.as_object_mut() {
                fields.extend(outcome.fields);
            }
            terminal.data(&serde_json::to_string_pretty(&summary).map_err(failed)?);
        }
        if let Some(error) = self.dir.lost() {
            let what = format!("the run directory {} is incomplete: {error}", self.path().display());
            let remedy = error.hint().unwrap_or_else(|| "name another folder with -o DIR".to_string());
            let failure = Failure::usage(what).hint(format!(
                "the printed results are complete; run it again for a complete directory: {remedy}"
            ));
            self.context.lose_results(&failure);
        }
        terminal.result(&format!("run: {}", self.path().display()));
        Ok(outcome.exit)
    }
}

/// What the work came to. Its steps are described in the run directory and ended already.
#[derive(Debug)]
pub struct Outcome {
    /// How the run directory calls it.
    pub state: State,
    /// How the process ends.
    pub exit: Exit,
    /// What the report shows of it on the terminal, which comes first.
    pub shown: Shown,
    /// Results for people.
    pub lines: Vec<String>,
    /// What a reader should know of them.
    pub messages: Vec<String>,
    /// What must not be missed, whatever is suppressed: the result is not a whole one.
    pub warnings: Vec<String>,
    /// Further fields of the summary that `--format json` prints.
    pub fields: Map<String, Value>,
}

impl Outcome {
    /// An outcome with the report's own line only.
    pub(crate) fn new(state: State, exit: Exit) -> Outcome {
        Outcome { shown: Shown::Line, ..Outcome::plain(state, exit) }
    }

    /// An outcome with the report's page.
    pub(crate) fn page(state: State, exit: Exit) -> Outcome {
        Outcome { shown: Shown::Page, ..Outcome::plain(state, exit) }
    }

    /// An outcome of which the verb prints what there is to print.
    pub(crate) fn plain(state: State, exit: Exit) -> Outcome {
        let (lines, messages, warnings) = (Vec::new(), Vec::new(), Vec::new());
        Outcome { state, exit, shown: Shown::Nothing, lines, messages, warnings, fields: Map::new() }
    }
}

/// What the report shows on the terminal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shown {
    /// The line of the last step
    Line,
    /// The page of the whole run
    Page,
    /// Nothing: the verb has printed its own results
    Nothing,
}

/// The fields of a JSON object; a null holds no information and is left out.
pub fn fields(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields.into_iter().filter(|(_, value)| !value.is_null()).collect(),
        _ => Map::new(),
    }
}

/// Removes a directory without a measurement, and nothing in it that is not of a recording.
fn remove(place: &Path, path: &Path) {
    let ours = [
        files::RUN,
        files::SAMPLES,
        files::EVENTS,
        files::LATENCY,
        files::FINDINGS,
        files::CHECKS,
        files::PLAN,
    ];
    for name in ours {
        // A file that cannot be removed stays; the refusal is what the user has to learn of.
        let _ = std::fs::remove_file(place.join(name));
    }
    // What was sampled beside the work goes with it; no other process writes into these.
    for name in [files::STACKS, files::STUCK, files::PLANS] {
        let _ = std::fs::remove_dir_all(place.join(name));
    }
    let _ = std::fs::remove_dir(path);
    // Under runs/ of the current folder it may have been the first.
    let _ = std::fs::remove_dir(record::writer::DEFAULT_ROOT);
}

/// Whether a file cannot be written because its folder is of another owner: then no user expects it there.
pub(crate) fn is_not_ours(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem)
}

/// Writes a file that is there wholly or not at all: a disk that fills up leaves no half page. A link of that name, which another user
/// directory may hold, is replaced and not followed.
pub(crate) fn write_whole(path: &Path, text: &str) -> std::io::Result<()> {
    file::replace(path, text.as_bytes())
}

/// The same for a place that the user named: a pipe or a device there is written to, and a link leads where it leads.
pub(crate) fn write_named(path: &Path, text: &str) -> std::io::Result<()> {
    match std::fs::metadata(path) {
        Ok(there) if !there.is_file() => std::fs::write(path, text),
        Ok(_) => file::replace(&std::fs::canonicalize(path)?, text.as_bytes()),
        Err(_) => file::replace(path, text.as_bytes()),
    }
}

//! Writes a run directory during the run.
//!
//! A [`RunDir`] is shared by the threads of one process; its methods take `&self` and a lock, so they belong on the threads
//! that sample and report, never on the hot path. Lines are appended whole and unbuffered (a few a second); `run.json` is
//! replaced by rename. A killed process leaves every line but possibly the last, and a `run.json` with the state "running".
//!
//! A directory that can no longer be written (a full disk) does not stop the work: what could not be written is left out whole, the run
//! stays in memory, and [`RunDir::lost`] returns the first error. The caller that closes the directory has to check it.

use crate::clock::{self, Clock};
use crate::error::RecordError;
use crate::event::{self, Event};
use crate::file::{self, write_atomically};
use crate::files;
use crate::held::Held;
use crate::histogram::Latency;
use crate::hlog::{self, Kind};
use crate::machine::{self, share::Shares};
use crate::model::{Anchor, PHASE_MEASURE, Phase, Run, State, Step, Tool};
use crate::redact;
use crate::sample::{ClientSample, ProgressSample, SOURCE_CLIENT};
use crate::watched::Sampled;
use serde::Serialize;
use serde_json::Map;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

/// The folder of runs whose directory was not named, in the current folder.
pub const DEFAULT_ROOT: &str = "runs";
/// How many names are tried for a directory: `NAME`, `NAME-2`, ...
pub(crate) const NAME_TRIES: u32 = 1000;
/// Longest part of a directory's or step's name that comes from the user's words.
const NAME_CHARS_MAX: usize = 60;
/// Verbs whose result is a rate, which depends on the other processes on the host.
const RATED_VERBS: [&str; 4] = ["run", "load", "matrix", "self"];
/// Room for a line of `watch`; only a guess to spare growing.
const WATCHED_LINE_BYTES: usize = 250;

/// `schema` in the first line of `samples.ndjson`.
pub(crate) const SAMPLES_SCHEMA: &str = "pgfathom.samples";
/// `schema` in the first line of `events.ndjson`.
pub(crate) const EVENTS_SCHEMA: &str = "pgfathom.events";

/// First line of the file.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Header {
    schema: String,
    schema_version: u32,
    /// As in run.json.
    run_id: String,
    /// RFC 3339, UTC.
    started: String,
    /// CLOCK_MONOTONIC of the recording host at `t_us` = 0.
    started_monotonic_us: u64,
}

/// A line of `samples.ndjson`.
#[derive(Serialize)]
struct Line<'a, V> {
    t_us: u64,
    interval_us: u64,
    source: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    step: &'a str,
    #[serde(flatten)]
    values: &'a V,
}

/// What a run is: the facts that are known before anything happens.
#[derive(Clone, Debug, Default)]
pub struct What {
    /// The verb.
    pub verb: String,
    /// What it works on.
    pub name: String,
    /// The command line as typed; secrets are removed before it is stored.
    pub argv: Vec<String>,
    /// This program's version.
    pub tool_version: String,
}

/// Names a step of an open [`RunDir`]. Cheap to clone, free to send.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct StepId {
    index: usize,
    key: Arc<str>,
}

impl StepId {
    /// The key that samples, events and tags carry.
    pub fn key(&self) -> &str {
        &self.key
    }
}

/// A run directory being written.
#[derive(Debug)]
pub struct RunDir {
    path: PathBuf,
    held: Held,
    clock: Clock,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    run: Run,
    samples: Lines,
    events: Lines,
    latency: Lines,
    /// The first thing that could not be written.
    lost: Option<Arc<RecordError>>,
    /// Who had the processors when the present step, or its measured part, began; and what is to be noted of that part.
    shares: Option<Shares>,
    noted: Vec<String>,
}

/// A file of whole lines.
#[derive(Debug)]
struct Lines {
    file: File,
    bytes: u64,
}

impl Lines {
    fn create(path: &Path) -> Result<Lines, RecordError> {
        Ok(Lines { file: file::create(path).map_err(RecordError::io("create", path))?, bytes: 0 })
    }

    /// Appends lines, or nothing: a torn line would spoil the one that is written behind it when there is room again.
    fn append(&mut self, lines: &[u8]) -> std::io::Result<()> {
        let written = self.file.write_all(lines);
        match &written {
            Ok(()) => self.bytes += lines.len() as u64,
            // If that fails as well, readers leave a torn line out.
            Err(_) => drop(self.file.set_len(self.bytes)),
        }
        written
    }
}

impl RunDir {
    /// Makes the directory `at`, or a fresh one under `runs/` of the current folder, and writes the first `run.json`.
    ///
    /// # Errors
    /// [`RecordError::NotEmpty`] if `at` holds files; [`RecordError::Io`] if something cannot be created.
    pub fn create(at: Option<&Path>, what: &What) -> Result<RunDir, RecordError> {
        match at {
            Some(path) => RunDir::create_at(path, what),
            None => RunDir::create_under(Path::new(DEFAULT_ROOT), what),
        }
    }

    /// Makes a fresh directory `<root>/<YYYYMMDD-HHMMSS>-<verb>-<name>` (UTC; `-2`, `-3` ... if that is taken).
    pub(crate) fn create_under(root: &Path, what: &What) -> Result<RunDir, RecordError> {
        let clock = Clock::start();
        fs::create_dir_all(root).map_err(RecordError::io("create", root))?;
        let mut stem = format!("{}-{}", clock::compact(clock.wall_us), file_name(&what.verb));
        if !what.name.is_empty() && what.name != what.verb {
            stem = format!("{stem}-{}", file_name(&what.name));
        }
        for number in 1..=NAME_TRIES {
            let name = if number == 1 { stem.clone() } else { format!("{stem}-{number}") };
            let path = root.join(name);
            // Creating is the test: two runs that start in the same second cannot both succeed.
            match file::create_folder(&path) {
                Ok(()) => {
                    let held = Held::open(&path).map_err(RecordError::io("open", &path))?;
                    return RunDir::fill((&path, held), clock, what);
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(RecordError::io("create", path)(error)),
            }
        }
        Err(RecordError::NoFreeName { path: root.join(stem) })
    }

    fn create_at(path: &Path, what: &What) -> Result<RunDir, RecordError> {
        fs::create_dir_all(path).map_err(RecordError::io("create", path))?;
        // The directory that a user named may be behind a link.
        let real = path.canonicalize().map_err(RecordError::io("find", path))?;
        let held = Held::open(&real).map_err(RecordError::io("open", path))?;
        RunDir::fill((path, held), Clock::start(), what)
    }

    /// Begins a directory that is there. It is held from now on: in a folder into which others may write, they can put a link to another place there while it
    /// is written.
    fn fill((path, held): (&Path, Held), clock: Clock, what: &What) -> Result<RunDir, RecordError> {
        let mut entries = fs::read_dir(held.place()).map_err(RecordError::io("read", path))?;
        if entries.next().is_some() {
            return Err(RecordError::NotEmpty { path: path.to_path_buf() });
        }
        held.make_private();
        let place = held.place();
        let run_id = match path.file_name() {
            Some(name) if !name.is_empty() => name.to_string_lossy().into_owned(),
            _ => format!("{}-{}", clock::compact(clock.wall_us), what.verb),
        };
        let run = Run {
            schema_version: crate::SCHEMA_VERSION,
            run_id: run_id.clone(),
            verb: what.verb.clone(),
            name: what.name.clone(),
            argv: redact::arguments(&what.argv),
            state: State::Running,
            started: Anchor {
                wall_time: clock::rfc3339(clock.wall_us),
                wall_us: clock.wall_us,
                monotonic_us: clock.monotonic_us,
            },
            tool: Tool { name: "pgfathom".to_string(), version: what.tool_version.clone(), revision: None },
            client: machine::this(),
            summary: crate::Summary {
                verb: what.verb.clone(),
                name: what.name.clone(),
                ..crate::Summary::default()
            },
            ..Run::default()
        };
        let inner = Inner {
            run,
            samples: Lines::create(&place.join(files::SAMPLES))?,
            events: Lines::create(&place.join(files::EVENTS))?,
            latency: Lines::create(&place.join(files::LATENCY))?,
            lost: None,
            shares: None,
            noted: vec![],
        };
        let dir = RunDir { path: path.to_path_buf(), held, clock, inner: Mutex::new(inner) };
        let mut inner = dir.lock();
        for (name, schema) in [(files::SAMPLES, SAMPLES_SCHEMA), (files::EVENTS, EVENTS_SCHEMA)] {
            let header = Header {
                schema: schema.to_string(),
                schema_version: crate::SCHEMA_VERSION,
                run_id: run_id.clone(),
                started: clock::rfc3339(clock.wall_us),
                started_monotonic_us: clock.monotonic_us,
            };
            dir.append(&mut inner, name, &json_line("a header", &header)?)?;
        }
        dir.append(&mut inner, files::LATENCY, hlog::header(&run_id, &clock).as_bytes())?;
        dir.write_run(&mut inner)?;
        // Nothing is under way yet: a directory that cannot even be begun is refused, and leaves nothing.
        if let Some(error) = inner.lost.take().and_then(Arc::into_inner) {
            inner.run.state = State::Failed;
            for name in [files::RUN, files::SAMPLES, files::EVENTS, files::LATENCY] {
                let _ = fs::remove_file(dir.place().join(name));
            }
            let _ = fs::remove_dir(&dir.path);
            return Err(error);
        }
        drop(inner);
        Ok(dir)
    }

    /// Its path, to be shown.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directory itself, to be written into.
    pub fn place(&self) -> PathBuf {
        self.held.place()
    }

    /// The run's clock.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Microseconds since the start of the run.
    pub fn now_us(&self) -> u64 {
        self.clock.now_us()
    }

    /// A copy of the run as it stands.
    pub fn run(&self) -> Run {
        self.lock().run.clone()
    }

    /// The first thing that could not be written, if the directory is not whole.
    pub fn lost(&self) -> Option<Arc<RecordError>> {
        self.lock().lost.clone()
    }

    /// Notes that something of the run could not be written: by other code than these methods.
    pub fn lose(&self, error: RecordError) {
        self.lock().lost.get_or_insert(Arc::new(error));
    }

    /// Changes the run's own fields (target, ...) and rewrites `run.json`.
    ///
    /// # Errors
    /// Here and below: only when something has no form in the file. What cannot be written is reported by [`RunDir::lost`].
    pub fn edit(&self, change: impl FnOnce(&mut Run)) -> Result<(), RecordError> {
        let mut inner = self.lock();
        change(&mut inner.run);
        self.write_run(&mut inner)
    }

    /// Begins a step. Its key is `verb-name` (`verb` alone if `name` is empty or the same), numbered if that is taken.
    pub fn begin_step(&self, verb: &str, name: &str) -> Result<StepId, RecordError> {
        self.begin_step_as(verb, name, name)
    }

    /// As [`RunDir::begin_step`], where `word` stands for the name in the key: several steps with one name differ in it.
    pub fn begin_step_as(&self, verb: &str, name: &str, word: &str) -> Result<StepId, RecordError> {
        let mut inner = self.lock();
        let stem = match word {
            "" => file_name(verb),
            same if same == verb => file_name(verb),
            other => format!("{}-{}", file_name(verb), file_name(other)),
        };
        let mut key = stem.clone();
        let mut number = 2;
        while inner.run.step(&key).is_some() {
            key = format!("{stem}-{number}");
            number += 1;
        }
        let id = StepId { index: inner.run.steps.len(), key: key.as_str().into() };
        (inner.shares, inner.noted) = (Shares::now().filter(|_| RATED_VERBS.contains(&verb)), vec![]);
        inner.run.steps.push(Step {
            key,
            verb: verb.to_string(),
            name: name.to_string(),
            state: State::Running,
            start_us: self.clock.now_us(),
            summary: crate::Summary {
                verb: verb.to_string(),
                name: name.to_string(),
                ..crate::Summary::default()
            },
            ..Step::default()
        });
        self.write_run(&mut inner)?;
        Ok(id)
    }

    /// Changes a step (parameters, dataset, statistics, summary, verdict) and rewrites `run.json`.
    pub fn edit_step(&self, step: &StepId, change: impl FnOnce(&mut Step)) -> Result<(), RecordError> {
        let mut inner = self.lock();
        change(&mut inner.run.steps[step.index]);
        self.write_run(&mut inner)
    }

    /// Ends the step's current phase, begins the next and writes the event. Returns the moment.
    pub fn begin_phase(&self, step: &StepId, phase: &str) -> Result<u64, RecordError> {
        let now_us = self.clock.now_us();
        self.begin_phase_at(step, phase, now_us)?;
        Ok(now_us)
    }

    /// [`RunDir::begin_phase`] for a moment that has passed.
    pub fn begin_phase_at(&self, step: &StepId, phase: &str, t_us: u64) -> Result<(), RecordError> {
        let mut inner = self.lock();
        let entry = &mut inner.run.steps[step.index];
        let ends_measuring =
            entry.phases.last().is_some_and(|last| last.name == PHASE_MEASURE && last.end_us.is_none());
        close_phase(entry, t_us);
        if ends_measuring {
            note_shares(&mut inner);
        } else if phase == PHASE_MEASURE && inner.shares.is_some() {
            inner.shares = Shares::now();
        }
        let entry = &mut inner.run.steps[step.index];
        entry.phases.push(Phase { name: phase.to_string(), start_us: t_us, end_us: None });
        self.write_run(&mut inner)?;
        drop(inner);
        let mut more = Map::new();
        more.insert("phase".to_string(), phase.into());
        self.event(&Event {
            t_us,
            kind: event::PHASE.to_string(),
            step: step.key.to_string(),
            message: format!("{phase} begins"),
            more,
            ..Event::default()
        })
    }

    /// Ends a step, now. Statistics, summary and verdict are to be set before, by [`RunDir::edit_step`].
    pub fn end_step(&self, step: &StepId, state: State) -> Result<(), RecordError> {
        let now_us = self.clock.now_us();
        let mut inner = self.lock();
        note_shares(&mut inner);
        let noted = std::mem::take(&mut inner.noted);
        let entry = &mut inner.run.steps[step.index];
        entry.verdict.notes.extend(noted);
        close_phase(entry, now_us);
        entry.end_us = Some(now_us);
        entry.state = state;
        entry.summary.valid = entry.verdict.valid;
        self.write_run(&mut inner)
    }

    /// The step that was begun last, if it is still open.
    pub fn open_step(&self) -> Option<StepId> {
        let inner = self.lock();
        let step = inner.run.steps.last().filter(|step| step.end_us.is_none())?;
        Some(StepId { index: inner.run.steps.len() - 1, key: step.key.as_str().into() })
    }

    /// Appends a sample of the client's counters for the interval that ends at `t_us`.
    pub fn client_sample(
        &self,
        step: &StepId,
        t_us: u64,
        interval_us: u64,
        sample: &ClientSample,
    ) -> Result<(), RecordError> {
        self.sample(Some(step), SOURCE_CLIENT, t_us, interval_us, sample)
    }

    /// Appends a progress sample; `source` is [`crate::sample::SOURCE_LOAD`] or [`crate::sample::SOURCE_VERIFY`].
    pub fn progress_sample(
        &self,
        step: &StepId,
        source: &str,
        t_us: u64,
        interval_us: u64,
        sample: &ProgressSample,
    ) -> Result<(), RecordError> {
        self.sample(Some(step), source, t_us, interval_us, sample)
    }

    /// Appends a sample of any source. `values` must serialise to an object of flat, named numbers and words.
    pub fn sample(
        &self,
        step: Option<&StepId>,
        source: &str,
        t_us: u64,
        interval_us: u64,
        values: &impl Serialize,
    ) -> Result<(), RecordError> {
        let step = step.map_or("", StepId::key);
        let line = json_line("a sample", &Line { t_us, interval_us, source, step, values })?;
        self.append(&mut self.lock(), files::SAMPLES, &line)
    }

    /// Appends lines of `watch`, (`t_us`, `interval_us`, what), in one write: hundreds of them may come in one tick. Returns their bytes.
    pub fn watched(&self, step: Option<&StepId>, lines: &[(u64, u64, Sampled)]) -> Result<u64, RecordError> {
        if lines.is_empty() {
            return Ok(0);
        }
        let step = step.map_or("", StepId::key);
        let mut text = Vec::with_capacity(lines.len() * WATCHED_LINE_BYTES);
        for (t_us, interval_us, values) in lines {
            let line = Line { t_us: *t_us, interval_us: *interval_us, source: values.source(), step, values };
            text.extend(json_line("a sample", &line)?);
        }
        self.append(&mut self.lock(), files::SAMPLES, &text)?;
        Ok(text.len() as u64)
    }

    /// Appends an event. Secrets in it (a server may quote a connection string) are hidden, as in every line and file.
    pub fn event(&self, event: &Event) -> Result<(), RecordError> {
        let line = json_line("an event", event)?;
        self.append(&mut self.lock(), files::EVENTS, &line)
    }

    /// Appends an event of this moment.
    pub fn happened(&self, step: Option<&StepId>, kind: &str, message: &str) -> Result<(), RecordError> {
        self.event(&Event {
            t_us: self.clock.now_us(),
            kind: kind.to_string(),
            step: step.map_or("", StepId::key).to_string(),
            message: message.to_string(),
            ..Event::default()
        })
    }

    /// Appends the latencies of one transaction type and kind in one interval. Empty ones are left out.
    pub fn interval(
        &self,
        step: &StepId,
        transaction_type: &str,
        kind: Kind,
        start_us: u64,
        end_us: u64,
        latency: &Latency,
    ) -> Result<(), RecordError> {
        if latency.is_empty() {
            return Ok(());
        }
        let tag = hlog::tag(&step.key, transaction_type, kind);
        let line = hlog::line(&tag, start_us, end_us, latency)?;
        self.append(&mut self.lock(), files::LATENCY, line.as_bytes())
    }

    /// Ends the run: steps still open get the same state, verdict and summary are drawn from the steps, `run.json` is written.
    pub fn finish(&self, state: State) -> Result<Run, RecordError> {
        let now_us = self.clock.now_us();
        let mut inner = self.lock();
        for step in inner.run.steps.iter_mut().filter(|step| step.end_us.is_none()) {
            close_phase(step, now_us);
            step.end_us = Some(now_us);
            step.state = state;
        }
        inner.run.state = state;
        inner.run.ended_us = Some(now_us);
        inner.run.conclude();
        // A later reader has nothing but the directory.
        let lost = inner.lost.as_ref().map(|error| format!("{INCOMPLETE}: {error}"));
        inner.run.verdict.notes.extend(lost);
        self.write_run(&mut inner)?;
        Ok(inner.run.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A writer that panicked has at worst left a torn line, which readers accept: better to go on than to lose the rest.
        self.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn append(&self, inner: &mut Inner, name: &str, line: &[u8]) -> Result<(), RecordError> {
        let file = match name {
            files::SAMPLES => &mut inner.samples,
            files::EVENTS => &mut inner.events,
            _ => &mut inner.latency,
        };
        if let Err(source) = file.append(line) {
            let path = self.path.join(name);
            inner.lost.get_or_insert(Arc::new(RecordError::Io { action: "write", path, source }));
        }
        Ok(())
    }

    fn write_run(&self, inner: &mut Inner) -> Result<(), RecordError> {
        match write_atomically(&self.place().join(files::RUN), &inner.run) {
            Err(error @ RecordError::Io { .. }) => {
                inner.lost.get_or_insert(Arc::new(error));
                Ok(())
            }
            other => other,
        }
    }
}

/// How a directory is called into which something could not be written.
pub const INCOMPLETE: &str = "the run directory is incomplete";

impl Drop for RunDir {
    /// A run that was not finished ended by an error (or a panic): the directory records that. Nothing can be reported from here.
    fn drop(&mut self) {
        if self.lock().run.state == State::Running {
            let _ = self.finish(State::Failed);
        }
    }
}

/// Notes who had the processors in the part that ends here.
fn note_shares(inner: &mut Inner) {
    if let Some(before) = inner.shares.take()
        && let Some(now) = Shares::now()
    {
        inner.noted = now.notes_since(&before);
    }
}

fn close_phase(step: &mut Step, t_us: u64) {
    if let Some(phase) = step.phases.last_mut().filter(|phase| phase.end_us.is_none()) {
        phase.end_us = Some(t_us);
    }
}

fn json_line(what: &'static str, value: &impl Serialize) -> Result<Vec<u8>, RecordError> {
    let line = serde_json::to_string(value).map_err(|source| RecordError::Json { what, source })?;
    let mut line = redact::line(&line).into_owned().into_bytes();
    line.push(b'\n');
    Ok(line)
}

/// A word of the user's made fit for a file name or a key: letters, digits, dot, dash and underscore.
fn file_name(word: &str) -> String {
    let name: String = word
        .chars()
        .take(NAME_CHARS_MAX)
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_') { c } else { '_' })
        .collect();
    // A name of dots alone would climb out of the folder.
    if name.chars().all(|c| c == '.') { "unnamed".to_string() } else { name }
}

#[cfg(test)]
mod tests;

//! Reading run directories: whole, partial, crashed, of other versions, or made by other programs.
//!
//! The directory of a killed writer is read as far as possible: files may be missing, the last line may be torn. [`RunReader::missing`] lists in
//! sentences what is missing, for the report to show. What pgfathom never writes is an error: an invalid `run.json`, noise in place
//! of the latency log, a later schema version, and links, pipes and devices in place of files.

use crate::SCHEMA_VERSION;
use crate::error::RecordError;
use crate::event::Event;
use crate::file::{self, LINE_BYTES_MAX, Lines, WHOLE_BYTES_MAX};
use crate::files;
use crate::hlog::{self, Decoder, Interval, Log};
use crate::model::{Run, State};
use crate::redact;
use crate::sample::Sample;
use serde_json::Value;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Events kept in memory; those of a run of weeks are some ten thousand.
const EVENTS_MAX: usize = 1_000_000;

/// A run directory, read into memory.
#[derive(Debug)]
pub struct RunReader {
    path: PathBuf,
    /// `run.json`; defaults where it is missing.
    pub run: Run,
    /// True if `run.json` was there and could be read.
    pub has_run: bool,
    /// `samples.ndjson` in file order.
    pub samples: Vec<Sample>,
    /// `events.ndjson` in file order.
    pub events: Vec<Event>,
    /// The lines of `latency.hlog` in file order; [`RunReader::decoder`] gives their histograms.
    pub intervals: Vec<Interval>,
    last_sample_us: u64,
    missing: Vec<String>,
}

impl RunReader {
    /// Reads the directory.
    ///
    /// # Errors
    /// [`RecordError::Io`] if the folder or a file cannot be read, [`RecordError::NotARun`] if it holds no file of a run,
    /// [`RecordError::Invalid`] and [`RecordError::Version`] if a file is none that this program can read.
    pub fn open(path: &Path) -> Result<RunReader, RecordError> {
        let mut samples = vec![];
        let mut reader = RunReader::stream(path, |sample| samples.push(sample))?;
        reader.samples = samples;
        Ok(reader)
    }

    /// Reads the directory and hands over its samples one after another, in file order, instead of keeping them: those of a week may
    /// be larger than memory. [`RunReader::samples`] stays empty.
    ///
    /// # Errors
    /// As [`RunReader::open`].
    pub fn stream(path: &Path, mut take: impl FnMut(Sample)) -> Result<RunReader, RecordError> {
        fs::read_dir(path).map_err(RecordError::io("read", path))?;
        let mut missing = vec![];
        let run_path = path.join(files::RUN);
        let run_file = file::read(&run_path, WHOLE_BYTES_MAX);
        let run = match present(path, files::RUN, run_file, &mut missing)? {
            // Of all that a crash can do to it only a crash of the machine does this.
            Some(bytes) if bytes.iter().all(|byte| *byte == 0 || byte.is_ascii_whitespace()) => {
                missing.push(format!("{} is empty: {}", files::RUN, without(files::RUN)));
                None
            }
            Some(bytes) => Some(read_run(run_path, &bytes)?),
            None => None,
        };
        let mut last_sample_us = 0;
        let taken = |sample: Sample| {
            last_sample_us = last_sample_us.max(sample.t_us);
            take(sample);
        };
        let has_samples = stream(path, files::SAMPLES, Sample::parse, taken, &mut missing)?;
        let (mut events, mut too_many) = (vec![], 0u64);
        let keep = |event: Event| match events.len() < EVENTS_MAX {
            true => events.push(event),
            false => too_many += 1,
        };
        let has_events = stream(path, files::EVENTS, Event::parse, keep, &mut missing)?;
        if too_many > 0 {
            missing.push(format!(
                "{}: {too_many} events after the first {EVENTS_MAX} were skipped",
                files::EVENTS
            ));
        }
        let log = read_log(path, &mut missing)?;
        if run.is_none() && !has_samples && !has_events && log.is_none() {
            return Err(RecordError::NotARun { path: path.to_path_buf() });
        }
        let log = log.unwrap_or_default();
        let has_run = run.is_some();
        let mut reader = RunReader {
            path: path.to_path_buf(),
            run: run.unwrap_or_default(),
            has_run,
            samples: vec![],
            last_sample_us,
            events,
            intervals: log.intervals,
            missing,
        };
        reader.missing.extend(reader.unfinished());
        Ok(reader)
    }

    /// Puts the run that its writer holds in place of the one in `run.json`: that may be an old one.
    pub fn hold(&mut self, run: Run) {
        let unfinished = self.unfinished();
        self.missing.retain(|sentence| Some(sentence) != unfinished.as_ref());
        (self.run, self.has_run) = (run, true);
        self.missing.extend(self.unfinished());
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the histograms of `latency.hlog`; `None` if the file is not there (any more).
    pub fn decoder(&self) -> Option<Decoder<File>> {
        file::open(&self.path.join(files::LATENCY)).ok().map(Decoder::new)
    }

    /// What is missing or damaged, one sentence each; empty for a whole directory.
    pub fn missing(&self) -> &[String] {
        &self.missing
    }

    /// The last moment in any file.
    pub fn last_us(&self) -> u64 {
        let ends = [
            self.run.ended_us,
            Some(self.last_sample_us),
            self.events.iter().map(|event| event.t_us).max(),
            self.intervals.iter().map(|interval| interval.end_us).max(),
        ];
        ends.into_iter().flatten().max().unwrap_or(0)
    }

    /// That it is still under way, if it is.
    fn unfinished(&self) -> Option<String> {
        let is_running = self.has_run && self.run.state == State::Running;
        let seconds = self.last_us() as f64 / 1e6;
        is_running.then(|| {
            format!(
                "the run did not end: its state in run.json is \"running\", its last sample is of second {seconds:.0}; it is still running or was killed"
            )
        })
    }
}

/// The lines of the latency log, read one after another: the file may be larger than memory.
fn read_log(dir: &Path, missing: &mut Vec<String>) -> Result<Option<Log>, RecordError> {
    let path = dir.join(files::LATENCY);
    let Some(file) = present(dir, files::LATENCY, file::open(&path), missing)? else { return Ok(None) };
    let log = hlog::index(file).map_err(RecordError::io("read", &path))?;
    if log.is_foreign() {
        let why = "it is not a log of HdrHistogram".to_string();
        return Err(RecordError::Invalid { path, why });
    }
    missing.extend(log.problems.iter().cloned());
    Ok(Some(log))
}

fn present<T>(
    dir: &Path,
    name: &str,
    read: io::Result<T>,
    missing: &mut Vec<String>,
) -> Result<Option<T>, RecordError> {
    match read {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            missing.push(format!("{name} is missing: {}", without(name)));
            Ok(None)
        }
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            missing.push(format!("{name} cannot be read by this user: {}", without(name)));
            Ok(None)
        }
        Err(error) => Err(RecordError::io("read", dir.join(name))(error)),
    }
}

/// What cannot be reported without a file.
fn without(name: &str) -> &'static str {
    match name {
        files::RUN => "target, command, verdict and totals are unknown",
        files::SAMPLES => "no charts over time",
        files::EVENTS => "no events",
        _ => "no heatmap and no percentile curve",
    }
}

/// `run.json`. It is replaced as a whole, so that no crash of ours leaves half of one: what cannot be read was damaged by something else, or
/// never was of a run.
fn read_run(path: PathBuf, bytes: &[u8]) -> Result<Run, RecordError> {
    let invalid = |path: PathBuf, why: String| RecordError::Invalid { path, why };
    let mut value: Value = match serde_json::from_slice(bytes) {
        Ok(value) => value,
        Err(error) => return Err(invalid(path, error.to_string())),
    };
    match value.get("schema_version").map(Value::as_u64) {
        Some(Some(version)) => known(&path, version)?,
        Some(None) => return Err(invalid(path, "its schema version is not a number".to_string())),
        None => return Err(invalid(path, "it has no schema version".to_string())),
    }
    redact::value(&mut value);
    serde_json::from_value(value).map_err(|error| invalid(path, error.to_string()))
}

fn known(path: &Path, version: u64) -> Result<(), RecordError> {
    match version {
        0 => {
            let why = "its schema version is 0, but versions begin at 1".to_string();
            Err(RecordError::Invalid { path: path.to_path_buf(), why })
        }
        version if version > u64::from(SCHEMA_VERSION) => {
            Err(RecordError::Version { path: path.to_path_buf(), found: version, known: SCHEMA_VERSION })
        }
        _ => Ok(()),
    }
}

/// Hands over what `parse` makes of each line of a file. The header counts as understood; a torn last line and others are noted.
fn stream<T>(
    dir: &Path,
    name: &str,
    parse: fn(&str) -> Option<T>,
    mut take: impl FnMut(T),
    missing: &mut Vec<String>,
) -> Result<bool, RecordError> {
    let path = dir.join(name);
    let Some(file) = present(dir, name, file::open(&path), missing)? else { return Ok(false) };
    let mut lines = Lines::new(file);
    let (mut number, mut unknown, mut too_long) = (0u64, 0u64, 0u64);
    while let Some(line) = lines.next_line().map_err(RecordError::io("read", &path))? {
        // A directory of an earlier version, or of another program, may hold what ours do not.
        let text = String::from_utf8_lossy(line.bytes);
        let text = redact::line(&text);
        match parse(&text) {
            _ if line.is_too_long => too_long += 1,
            Some(item) => take(item),
            None if number == 0 => header(&path, name, &text, missing)?,
            None if line.is_torn => {
                missing.push(format!("{name}: the last line is incomplete and was skipped"))
            }
            None => unknown += u64::from(!text.trim().is_empty()),
        }
        number += 1;
    }
    if unknown > 0 {
        missing.push(format!("{name}: {unknown} lines were not understood and were skipped"));
    }
    if too_long > 0 {
        let mega = LINE_BYTES_MAX >> 20;
        missing.push(format!("{name}: {too_long} lines are longer than {mega} MiB and were skipped"));
    }
    Ok(true)
}

fn header(path: &Path, name: &str, line: &str, missing: &mut Vec<String>) -> Result<(), RecordError> {
    let version =
        serde_json::from_str::<Value>(line).ok().and_then(|value| value.get("schema_version")?.as_u64());
    match version {
        Some(version) => known(path, version),
        None => {
            missing.push(format!("{name} has no header line: it was read as far as possible"));
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests;

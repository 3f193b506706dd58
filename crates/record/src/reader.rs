//! Reading run directories: whole, partial, crashed, of other versions, or made by other programs.
//!
//! Opening fails only if the folder holds nothing of a run. Everything else is degraded reading: what could be read is there,
//! and [`RunReader::missing`] says in sentences what could not, for the report to show.

use crate::SCHEMA_VERSION;
use crate::error::RecordError;
use crate::event::Event;
use crate::files;
use crate::hlog::{self, Decoder, Interval, Log};
use crate::model::{Run, State};
use crate::sample::Sample;
use serde_json::Value;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, ErrorKind};
use std::path::{Path, PathBuf};

/// Bytes read from a file of samples at once.
const READ_BYTES: usize = 1 << 16;

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
    /// [`RecordError::Io`] if the folder cannot be read, [`RecordError::NotARun`] if it holds no file of a run.
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
    pub fn stream(path: &Path, take: impl FnMut(Sample)) -> Result<RunReader, RecordError> {
        fs::read_dir(path).map_err(RecordError::io("read", path))?;
        let mut missing = vec![];
        let run_file = read(path, files::RUN, &mut missing)?;
        let samples_file =
            present(path, files::SAMPLES, File::open(path.join(files::SAMPLES)), &mut missing)?;
        let events_file = read(path, files::EVENTS, &mut missing)?;
        let log = read_log(path, &mut missing)?;
        if run_file.is_none() && samples_file.is_none() && events_file.is_none() && log.is_none() {
            return Err(RecordError::NotARun { path: path.to_path_buf() });
        }
        let run = run_file.and_then(|bytes| read_run(&bytes, &mut missing));
        let last_sample_us = match samples_file {
            Some(file) => stream_samples(path, file, take, &mut missing)?,
            None => 0,
        };
        let events = lines(files::EVENTS, events_file.as_deref(), Event::parse, &mut missing);
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
        reader.note_unfinished();
        Ok(reader)
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the histograms of `latency.hlog`; `None` if the file is not there (any more).
    pub fn decoder(&self) -> Option<Decoder<File>> {
        File::open(self.path.join(files::LATENCY)).ok().map(Decoder::new)
    }

    /// What is missing or damaged, one sentence each; empty for a whole directory.
    pub fn missing(&self) -> &[String] {
        &self.missing
    }

    /// The last moment that any file speaks of.
    pub fn last_us(&self) -> u64 {
        let ends = [
            self.run.ended_us,
            Some(self.last_sample_us),
            self.events.iter().map(|event| event.t_us).max(),
            self.intervals.iter().map(|interval| interval.end_us).max(),
        ];
        ends.into_iter().flatten().max().unwrap_or(0)
    }

    fn note_unfinished(&mut self) {
        if self.has_run && self.run.state == State::Running {
            let seconds = self.last_us() as f64 / 1e6;
            self.missing.push(format!(
                "the run did not end: run.json says \"running\", the last line is of second {seconds:.0}; it is still at work or was killed"
            ));
        }
    }
}

/// The bytes of a file; `None`, and a sentence, if it is not there or may not be read.
fn read(dir: &Path, name: &str, missing: &mut Vec<String>) -> Result<Option<Vec<u8>>, RecordError> {
    present(dir, name, fs::read(dir.join(name)), missing)
}

/// The lines of the latency log, read one after another: the file may be larger than memory.
fn read_log(dir: &Path, missing: &mut Vec<String>) -> Result<Option<Log>, RecordError> {
    let indexed = File::open(dir.join(files::LATENCY)).and_then(|file| hlog::index(BufReader::new(file)));
    let log = present(dir, files::LATENCY, indexed, missing)?;
    missing.extend(log.iter().flat_map(|log| log.problems.iter().cloned()));
    Ok(log)
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
            missing.push(format!("{name} may not be read by this user: {}", without(name)));
            Ok(None)
        }
        Err(error) => Err(RecordError::io("read", dir.join(name))(error)),
    }
}

/// What cannot be said without a file.
fn without(name: &str) -> &'static str {
    match name {
        files::RUN => "target, command, verdict and totals are unknown",
        files::SAMPLES => "no development over time",
        files::EVENTS => "no events",
        _ => "no heatmap and no percentile curve",
    }
}

fn read_run(bytes: &[u8], missing: &mut Vec<String>) -> Option<Run> {
    let value: Value = match serde_json::from_slice(bytes) {
        Ok(value) => value,
        Err(error) => {
            missing.push(format!("run.json is damaged ({error}): {}", without(files::RUN)));
            return None;
        }
    };
    let version = value.get("schema_version").and_then(Value::as_u64);
    let newer = version.filter(|version| *version > u64::from(SCHEMA_VERSION));
    if let Some(version) = newer {
        missing.push(format!(
            "run.json has schema version {version}, this program knows {SCHEMA_VERSION}: what later versions added is not shown"
        ));
    }
    if version.is_none() {
        missing.push("run.json carries no schema version: read as far as it is understood".to_string());
    }
    match serde_json::from_value(value) {
        Ok(run) => Some(run),
        Err(error) => {
            missing.push(format!("run.json cannot be understood ({error}): {}", without(files::RUN)));
            None
        }
    }
}

/// Hands over the samples of an open file; returns the last moment one speaks of.
fn stream_samples(
    dir: &Path,
    file: File,
    mut take: impl FnMut(Sample),
    missing: &mut Vec<String>,
) -> Result<u64, RecordError> {
    let mut file = BufReader::with_capacity(READ_BYTES, file);
    let (mut line, mut number, mut unknown, mut last_us) = (vec![], 0u64, 0u64, 0u64);
    loop {
        line.clear();
        if file.read_until(b'\n', &mut line).map_err(RecordError::io("read", dir.join(files::SAMPLES)))? == 0
        {
            break;
        }
        let text = String::from_utf8_lossy(&line);
        match Sample::parse(&text) {
            Some(sample) => {
                last_us = last_us.max(sample.t_us);
                take(sample);
            }
            None if number == 0 => note_header(files::SAMPLES, &text, missing),
            None if !text.ends_with('\n') => {
                missing.push(format!("{}: the last line is torn and left out", files::SAMPLES));
            }
            None => unknown += u64::from(!text.trim().is_empty()),
        }
        number += 1;
    }
    note_unknown(files::SAMPLES, unknown, missing);
    Ok(last_us)
}

fn note_unknown(name: &str, unknown: u64, missing: &mut Vec<String>) {
    if unknown > 0 {
        missing.push(format!("{name}: {unknown} lines are not understood and left out"));
    }
}

/// The lines of a file that `parse` understands. The header counts as understood; a torn last line and others are said.
fn lines<T>(
    name: &str,
    bytes: Option<&[u8]>,
    parse: fn(&str) -> Option<T>,
    missing: &mut Vec<String>,
) -> Vec<T> {
    let Some(bytes) = bytes else { return vec![] };
    let text = String::from_utf8_lossy(bytes);
    let torn = !text.is_empty() && !text.ends_with('\n');
    let count = text.lines().count();
    let mut found = vec![];
    let mut unknown = 0u64;
    for (number, line) in text.lines().enumerate() {
        match parse(line) {
            Some(item) => found.push(item),
            None if number == 0 => note_header(name, line, missing),
            None if torn && number + 1 == count => {
                missing.push(format!("{name}: the last line is torn and left out"));
            }
            None => unknown += u64::from(!line.trim().is_empty()),
        }
    }
    note_unknown(name, unknown, missing);
    found
}

fn note_header(name: &str, line: &str, missing: &mut Vec<String>) {
    let version =
        serde_json::from_str::<Value>(line).ok().and_then(|value| value.get("schema_version")?.as_u64());
    match version {
        Some(version) if version > u64::from(SCHEMA_VERSION) => missing.push(format!(
            "{name} has schema version {version}, this program knows {SCHEMA_VERSION}: read as far as it is understood"
        )),
        Some(_) => {}
        None => missing.push(format!("{name} has no header line: read as far as it is understood")),
    }
}

#[cfg(test)]
mod tests;

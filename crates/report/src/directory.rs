//! A run directory, read once: the counts of the clients, the samples of `watch`, and the findings of `explain`.
//!
//! Lines of `watch` are kept typed. Those of a long run would not fit into memory, so from [`LINES_MAX`] on only every second tick is
//! kept, then every fourth, and so on: rates and means do not change, only their columns get coarser. A note reports it.

use crate::Source;
use record::check::Checks;
use record::finding::Findings;
use record::plan::Plan;
use record::watched::Sampled;
use record::writer::INCOMPLETE;
use record::{RecordError, RunReader, files};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Lines of `watch` kept in memory.
const LINES_MAX: usize = 400_000;
/// Ticks are distinguished by this.
const TICK_US: u64 = 1_000_000;

/// The newest checks beside a run that are read to find its hosts.
const BESIDE_MAX: usize = 20;

/// Everything a page is made from.
#[derive(Debug)]
pub(crate) struct Directory {
    pub(crate) reader: RunReader,
    pub(crate) watched: Watched,
    /// `None` if the run was not explained yet.
    pub(crate) findings: Option<Findings>,
    /// What a check measured on the hosts: its own directory, or a run that was given one.
    pub(crate) checks: Option<Checks>,
    /// The directory of that check, if it was found beside the run.
    pub(crate) checked_in: Option<String>,
    /// What was planned, if a plan is there.
    pub(crate) planned: Option<Plan>,
    /// Missing parts beside those that the reader reports.
    pub(crate) missing: Vec<String>,
}

impl Directory {
    /// Reads the directory.
    pub(crate) fn open(source: &(impl Source + ?Sized)) -> Result<Directory, RecordError> {
        let dir = source.path();
        let mut samples = vec![];
        let mut watched = Watched { lines: vec![], stride: 1 };
        let mut reader = RunReader::stream(dir, |sample| match Sampled::parse(&sample) {
            Some(what) => watched.take(Line { t_us: sample.t_us, interval_us: sample.interval_us, what }),
            None => samples.push(sample),
        })?;
        reader.samples = samples;
        let mut missing = vec![];
        if let Some((run, lost)) = source.held() {
            reader.hold(run.clone());
            let lost = lost.map(|lost| format!("{INCOMPLETE}: {lost}"));
            missing.extend(lost.filter(|lost| !run.verdict.notes.contains(lost)));
        }
        watched.lines.sort_by_key(|line| line.t_us);
        let findings = Findings::read(dir).unwrap_or_else(|error| {
            missing.push(format!("findings.json cannot be read ({error}): no findings are shown"));
            None
        });
        let mut checks = Checks::read(dir).unwrap_or_else(|error| {
            missing.push(format!("check.json cannot be read ({error}): nothing of it is shown"));
            None
        });
        let mut checked_in = None;
        if checks.is_none() && reader.run.verb != crate::checks::VERB {
            (checks, checked_in) = beside(dir, &watched.hosts()).unzip();
        }
        let planned = match source.plan() {
            Some(plan) => Some(plan.clone()),
            None => Plan::read(dir).unwrap_or_else(|error| {
                missing.push(format!("plan.json cannot be read ({error}): nothing is compared with it"));
                None
            }),
        };
        if watched.stride > 1 {
            missing.push(format!(
                "samples.ndjson has more samples than can be drawn: every {}th second of the monitoring is shown",
                watched.stride
            ));
        }
        Ok(Directory { reader, watched, findings, checks, checked_in, planned, missing })
    }
}

/// The newest check of one of these hosts in a directory beside this one, with that directory's name. What cannot be read
/// is left out, because the user did not name it.
fn beside(dir: &Path, hosts: &BTreeSet<&str>) -> Option<(Checks, String)> {
    let dir = dir.canonicalize().ok()?;
    let others = std::fs::read_dir(dir.parent()?).ok()?.flatten().map(|entry| entry.path());
    let mut found: Vec<(SystemTime, PathBuf)> = others
        .filter(|other| *other != dir)
        .filter_map(|other| {
            Some((std::fs::metadata(other.join(files::CHECKS)).ok()?.modified().ok()?, other))
        })
        .collect();
    found.sort();
    found.into_iter().rev().take(BESIDE_MAX).find_map(|(_, other)| {
        let checks = Checks::read(&other).ok()??;
        let is_same = checks.hosts.iter().any(|host| hosts.contains(host.host.as_str()));
        is_same.then(|| (checks, other.file_name().unwrap_or_default().to_string_lossy().into_owned()))
    })
}

/// A line of `watch`.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Line {
    /// End of its interval.
    pub(crate) t_us: u64,
    /// 0: a reading of a moment.
    pub(crate) interval_us: u64,
    pub(crate) what: Sampled,
}

impl Line {
    pub(crate) fn seconds(&self) -> f64 {
        self.interval_us as f64 / 1e6
    }
}

/// All of them, by time.
#[derive(Debug)]
pub(crate) struct Watched {
    lines: Vec<Line>,
    /// One in this many ticks is kept.
    stride: u64,
}

impl Watched {
    /// These lines, all of them.
    #[cfg(test)]
    pub(crate) fn of(lines: Vec<Line>) -> Watched {
        Watched { lines, stride: 1 }
    }

    fn take(&mut self, line: Line) {
        if !keeps(self.stride, &line) {
            return;
        }
        self.lines.push(line);
        if self.lines.len() > LINES_MAX && self.stride < u64::from(u32::MAX) {
            self.stride *= 2;
            let stride = self.stride;
            self.lines.retain(|line| keeps(stride, line));
        }
    }

    /// The hosts whose disks and networks were sampled.
    pub(crate) fn hosts(&self) -> BTreeSet<&str> {
        self.lines.iter().filter_map(|line| host_of(&line.what)).collect()
    }

    pub(crate) fn all(&self) -> &[Line] {
        &self.lines
    }

    /// The lines whose intervals end after the first time and not after the second.
    pub(crate) fn within(&self, from_us: u64, to_us: u64) -> &[Line] {
        let first = self.lines.partition_point(|line| line.t_us <= from_us);
        let last = self.lines.partition_point(|line| line.t_us <= to_us);
        &self.lines[first..last.max(first)]
    }
}

/// The host of a sample of its disks or networks.
fn host_of(what: &Sampled) -> Option<&str> {
    match what {
        Sampled::Disk(one) => Some(&one.host),
        Sampled::Net(one) => Some(&one.host),
        _ => None,
    }
}

/// Whether a line is kept if one in `stride` ticks is kept. Lines that are added up or appear only once always stay.
fn keeps(stride: u64, line: &Line) -> bool {
    let is_rare = matches!(
        line.what,
        Sampled::Statement(_)
            | Sampled::Table(_)
            | Sampled::Fact(_)
            | Sampled::Missing(_)
            | Sampled::Hardware(_)
            | Sampled::Watching(_)
    );
    is_rare || (line.t_us / TICK_US).is_multiple_of(stride)
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::watched::{Missing, Wait};

    #[test]
    fn what_does_not_fit_is_thinned_evenly_and_rare_lines_stay() {
        let mut watched = Watched { lines: vec![], stride: 1 };
        let wait = || Sampled::Wait(Wait::default());
        watched.take(Line { t_us: 1, interval_us: 0, what: Sampled::Missing(Missing::default()) });
        for tick in 0..LINES_MAX as u64 + 10 {
            watched.take(Line { t_us: tick * TICK_US, interval_us: 0, what: wait() });
        }
        assert_eq!(watched.stride, 2);
        let kept = watched.all().len();
        assert!((LINES_MAX / 2..LINES_MAX / 2 + 10).contains(&kept), "{kept}");
        assert!(watched.all().iter().any(|line| matches!(line.what, Sampled::Missing(_))));
        assert!(watched.within(10 * TICK_US, 20 * TICK_US).len() == 5);
        assert!(watched.within(20, 10).is_empty());
    }
}

//! The record of a run in the ledgers, from which its writes can be computed again: the part that all benchmarks share.
//!
//! A run does not log its writes. They are a pure function of its mix, its seed and how many transactions each session began, so a
//! verification draws them again. Which of them took place is known up to what [`Outcomes`] lists, and which one came last up to the order of
//! commits between sessions ([`supersedes`]).

use data::ycsb::Version;
use engines::Cluster;
use load::LoadError;
use load::dataset::Dataset;
use load::writers::Registry;
use run::client::SessionRecord;
use serde::{Deserialize, Serialize};

use crate::driving::Refusal;

/// Transactions of a run that did not simply commit. Filled at its end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcomes {
    /// Those that were kept.
    #[serde(default)]
    pub exceptions: Vec<WriterException>,
    /// Sessions with more exceptions than were kept.
    #[serde(default)]
    pub incomplete_sessions: Vec<u64>,
}

/// A transaction that did not simply commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriterException {
    /// Session of the run.
    pub session: u64,
    /// Transaction of the session.
    pub sequence: u32,
    /// It is known to have failed; otherwise only the table shows it.
    pub failed: bool,
}

/// What is known about a transaction that was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It has committed.
    Committed,
    /// It has not.
    Failed,
    /// Only the table shows it.
    Unknown,
}

impl Outcomes {
    /// Of what the sessions left behind.
    pub fn of(sessions: &[SessionRecord]) -> Outcomes {
        let mut outcomes = Outcomes::default();
        for (session, record) in sessions.iter().enumerate() {
            let session = session as u64;
            outcomes.exceptions.extend(record.exceptions.iter().map(|exception| WriterException {
                session,
                sequence: exception.sequence,
                failed: exception.is_known_failed,
            }));
            if record.exceptions_lost {
                outcomes.incomplete_sessions.push(session);
            }
        }
        outcomes
    }

    /// Those of one session.
    pub fn of_session(&self, session: u64) -> SessionOutcomes {
        let own = self.exceptions.iter().filter(|exception| exception.session == session);
        SessionOutcomes {
            failed: own.map(|exception| (exception.sequence, exception.failed)).collect(),
            is_incomplete: self.incomplete_sessions.contains(&session),
        }
    }

    /// Whether a transaction is known to have failed.
    pub fn is_known_failed(&self, session: u64, sequence: u32) -> bool {
        self.exceptions.iter().any(|exception| {
            exception.failed && exception.session == session && exception.sequence == sequence
        })
    }
}

/// The transactions of one session that did not simply commit.
#[derive(Clone, Debug)]
pub struct SessionOutcomes {
    /// By their numbers, whether they are known to have failed.
    failed: std::collections::HashMap<u32, bool>,
    is_incomplete: bool,
}

impl SessionOutcomes {
    /// Whether a transaction is among the exceptions that were kept.
    pub(crate) fn is_exception(&self, sequence: u32) -> bool {
        self.failed.contains_key(&sequence)
    }

    /// What is known about a transaction.
    pub fn get(&self, sequence: u32) -> Outcome {
        match self.failed.get(&sequence) {
            Some(true) => Outcome::Failed,
            Some(false) => Outcome::Unknown,
            // Where not all exceptions were kept, none of the session's writes is certain.
            None if self.is_incomplete => Outcome::Unknown,
            None => Outcome::Committed,
        }
    }
}

/// A run as the target's ledger has it.
#[derive(Clone, Debug)]
pub struct Writer<S> {
    /// Its number.
    pub run: u16,
    /// Runs that overlapped in time share an epoch; a higher one began after the lower one had ended.
    pub epoch: u32,
    /// What it was.
    pub spec: S,
    /// Transactions each session began; `None` when the run never reported its end: it was killed.
    pub transactions: Option<Vec<u64>>,
}

/// Why a history cannot be replayed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// Written by another version of this program.
    #[error("run {run} was recorded in format {version}, but this program reads formats up to {known}")]
    Version {
        /// The run.
        run: u16,
        /// Its form.
        version: u32,
        /// The last one that is known.
        known: u32,
    },
    /// Not what this program writes.
    #[error("the record of run {run} is damaged: {what}")]
    Damaged {
        /// The run.
        run: u16,
        /// What is wrong.
        what: String,
    },
}

/// The runs that wrote into a dataset.
#[derive(Debug)]
pub struct Recorded {
    /// The dataset, as the first node's ledger has it.
    pub dataset: load::ledger::Dataset,
    /// Each with its description as text.
    pub writers: Vec<Writer<String>>,
}

impl Recorded {
    /// Reads the ledgers of a cluster, through whatever node; `None` when there is no dataset of this name, or no run wrote into it.
    ///
    /// # Errors
    /// When a ledger cannot be read.
    pub fn read(cluster: &Cluster, name: &str) -> Result<Option<Recorded>, Refusal> {
        let mut registry = match Registry::open(cluster, name) {
            Ok(Some(registry)) => registry,
            // A node that cannot be reached is reported by the verification itself.
            Ok(None) | Err(LoadError::Connect(_) | LoadError::LedgerAway { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let dataset = registry.dataset().clone();
        let writers = registry.writers()?;
        if writers.is_empty() || dataset.rows == 0 {
            return Ok(None);
        }
        let times = registry.times()?;
        let writer = |writer: load::ledger::Writer| Writer {
            run: writer.run_no,
            epoch: epoch(&times, writer.run_no),
            transactions: writer.finished.then_some(writer.transactions),
            spec: writer.spec,
        };
        Ok(Some(Recorded { dataset, writers: writers.into_iter().map(writer).collect() }))
    }
}

/// What runs have written into a dataset.
pub trait Replayed: std::fmt::Debug + Send + Sync {
    /// The dataset as it must be after the runs; `None`: it is none that they can have written into.
    fn after(&self, found: &dyn Dataset) -> Option<Box<dyn Dataset>>;
}

/// `later` was certainly committed after `earlier`: a later epoch, or the same session of the same run with a higher number.
pub(crate) fn supersedes(later: Version, earlier: Version, epoch: impl Fn(u16) -> Option<u32>) -> bool {
    if earlier == Version::LOADED {
        return true;
    }
    if later.run() == earlier.run() && later.session() == earlier.session() {
        return later.sequence() > earlier.sequence();
    }
    match (epoch(later.run()), epoch(earlier.run())) {
        (Some(later), Some(earlier)) => later > earlier,
        _ => false,
    }
}

/// Runs that overlapped in time share an epoch, so that neither makes the other's writes stale; a run without an end is never
/// known to have come first.
fn epoch(times: &[(u16, i64, Option<i64>)], run: u16) -> u32 {
    let mut finished: Vec<(i64, i64, u16)> =
        times.iter().filter_map(|&(run, start, end)| Some((start, end?, run))).collect();
    finished.sort_unstable();
    let mut epoch = 0;
    let mut latest_end = i64::MIN;
    for (start, end, number) in finished {
        if start > latest_end {
            epoch += 1;
        }
        latest_end = latest_end.max(end);
        if number == run {
            return epoch;
        }
    }
    u32::MAX
}

#[cfg(test)]
mod tests {
    use super::epoch;

    #[test]
    fn runs_that_overlap_share_an_epoch() {
        let times =
            [(1, 0, Some(10)), (2, 11, Some(20)), (3, 15, Some(30)), (4, 31, None), (5, 40, Some(50))];
        let epochs: Vec<u32> = (1..=5).map(|run| epoch(&times, run)).collect();
        assert_eq!(epochs, [1, 2, 2, u32::MAX, 3]);
    }
}

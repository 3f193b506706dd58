//! What happened when, on the monotonic clock: the begin of each load, from which the times of a plan count, and what was done to the cluster meanwhile. It is kept whatever
//! becomes of the trial.

use std::sync::{Mutex, PoisonError};

use crate::fault::Happened;

/// One entry.
#[derive(Clone, PartialEq, Debug)]
pub enum LoggedEvent {
    /// A load began.
    Load {
        /// When.
        at_ns: u64,
    },
    /// A step of the plan was done, or could not be.
    Step(Happened),
    /// The load is over, and everything is undone.
    Undone {
        /// When that began.
        at_ns: u64,
        /// When it was done.
        end_ns: u64,
    },
}

/// The entries since they were last taken.
#[derive(Debug, Default)]
pub struct EventLog(Mutex<Vec<LoggedEvent>>);

impl EventLog {
    /// Adds one.
    pub fn note(&self, noted: LoggedEvent) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(noted);
    }

    /// Gives them and forgets them.
    pub fn take(&self) -> Vec<LoggedEvent> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

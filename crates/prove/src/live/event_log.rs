//! The log of events on the monotonic clock: the begin of each load, from which the times of a plan count, and the faults. It is kept even if the trial
//! fails.

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
    /// A step of the plan was done, or failed.
    Step(Happened),
    /// The load is over, and all faults are undone.
    Undone {
        /// When that began.
        at_ns: u64,
        /// When it was done.
        end_ns: u64,
    },
}

/// The entries since the last call.
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

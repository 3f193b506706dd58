//! A lock that another session has.
//!
//! A loader waits for other loaders as long as they need. A session of a role that cannot load has our lock by mistake or to harm: that wait has an end.

use std::time::{Duration, Instant};

use engines::lock::{self, Key};
use postgres::GenericClient;

use crate::error::LoadError;
use crate::progress::LoadEvent;

/// How long a lock is waited for that no loader can have.
const OTHERS_LIMIT: Duration = Duration::from_secs(10);
/// When a wait for another loader is reported at first, and then again and again.
const NOTE_AFTER: Duration = Duration::from_secs(5);
const NOTE_AGAIN: Duration = Duration::from_secs(60);
/// How often the holder is looked up.
const LOOK: Duration = Duration::from_secs(2);

/// The wait for one lock.
#[derive(Debug)]
pub(crate) struct Contention {
    /// What the lock is for.
    what: &'static str,
    key: Key,
    since: Instant,
    looked_at: Option<Instant>,
    noted_at: Option<Instant>,
}

impl Contention {
    /// Begins now: the lock was not free.
    pub(crate) fn begin(what: &'static str, key: Key) -> Contention {
        Contention { what, key, since: Instant::now(), looked_at: None, noted_at: None }
    }

    /// Whether it is time to look who has the lock.
    pub(crate) fn is_due(&self) -> bool {
        self.since.elapsed() >= NOTE_AFTER && self.looked_at.is_none_or(|at| at.elapsed() >= LOOK)
    }

    /// Looks who has the lock, if it is time to. Returns what is to be reported of the wait.
    ///
    /// # Errors
    /// [`LoadError::LockTaken`] when a session has had it for long that cannot be a loader.
    pub(crate) fn look(&mut self, client: &mut impl GenericClient) -> Result<Option<LoadEvent>, LoadError> {
        if !self.is_due() {
            return Ok(None);
        }
        self.looked_at = Some(Instant::now());
        let Some(holder) = lock::holder(client, self.key) else { return Ok(None) };
        if !holder.may_load && self.since.elapsed() >= OTHERS_LIMIT {
            return Err(LoadError::LockTaken {
                what: self.what,
                holder: holder.words,
                remedy: holder.remedy,
            });
        }
        if self.noted_at.is_some_and(|at| at.elapsed() < NOTE_AGAIN) {
            return Ok(None);
        }
        self.noted_at = Some(Instant::now());
        let message = format!("waiting for the lock for {}: {} has it", self.what, holder.words);
        Ok(Some(LoadEvent { kind: record::event::NOTE, message, duration: Some(self.since.elapsed()) }))
    }
}

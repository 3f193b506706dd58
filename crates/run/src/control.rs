//! What the thread that asked for a run and its workers say to each other: a handful of atomics, looked at between events.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::engine::Nanos;

/// Asked from outside, for example by a signal handler.
#[derive(Debug, Default)]
pub struct StopFlag {
    /// How often somebody asked: once drains, twice abandons.
    asked: AtomicUsize,
}

impl StopFlag {
    /// Asks once more.
    pub fn ask(&self) {
        self.asked.fetch_add(1, Ordering::Relaxed);
    }

    /// How often somebody asked.
    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

/// What an outage was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cause {
    /// Not a single session was connected.
    #[default]
    Disconnected,
    /// Sessions were connected, but no transaction ended.
    Stalled,
}

impl Cause {
    /// The word in `run.json`.
    pub fn name(self) -> &'static str {
        match self {
            Cause::Disconnected => "disconnected",
            Cause::Stalled => "stalled",
        }
    }
}

/// A time during which the target was of no use.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outage {
    /// When the last session was lost, or the first second without a transaction began.
    pub from: Nanos,
    /// When the first session was back, or the first second with a transaction began; `None` if that never came.
    pub to: Option<Nanos>,
    /// What it was.
    pub cause: Cause,
    /// What the server, or the system, said first.
    pub message: String,
    /// Transactions per second before it; `None` if it came too early to say.
    pub tps_before: Option<f64>,
    /// When that throughput was back, see [`crate::recovery`].
    pub back: Option<Nanos>,
}

/// Shared by all workers of a run.
#[derive(Debug)]
pub struct Control {
    /// Sessions that are connected and prepared, over all workers.
    pub connected: AtomicUsize,
    /// Sessions that have become ready at least once.
    pub ready: AtomicUsize,
    /// The run's begin on the monotonic clock; 0 while it is not set.
    begin: AtomicU64,
    /// The measured part begins here; only moved forward in time by a warm-up that ends early.
    measure_from: AtomicU64,
    /// Starts end here.
    end: AtomicU64,
    /// Drop everything at once.
    abandon: AtomicBool,
    /// Something changed: workers look at the rest.
    attention: AtomicUsize,
    /// Connections lost in the run.
    pub lost: AtomicU64,
    /// Connections made again in the run.
    pub reconnected: AtomicU64,
    /// Commits that were acknowledged with a warning that the wait for their standbys was cancelled.
    pub weak_commits: AtomicU64,
    outages: Mutex<Vec<Outage>>,
    /// Sessions belong to the server that takes writes, whichever that is.
    follows_writes: AtomicBool,
    /// Why the run cannot start or go on.
    failure: Mutex<Option<Failure>>,
}

/// Why the run cannot start or go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What happened.
    pub message: String,
    /// What to type next.
    pub hint: Option<String>,
}

impl Default for Control {
    fn default() -> Self {
        Control {
            connected: AtomicUsize::new(0),
            ready: AtomicUsize::new(0),
            begin: AtomicU64::new(0),
            measure_from: AtomicU64::new(Nanos::MAX),
            end: AtomicU64::new(Nanos::MAX),
            abandon: AtomicBool::new(false),
            attention: AtomicUsize::new(0),
            lost: AtomicU64::new(0),
            reconnected: AtomicU64::new(0),
            weak_commits: AtomicU64::new(0),
            outages: Mutex::default(),
            follows_writes: AtomicBool::new(false),
            failure: Mutex::default(),
        }
    }
}

impl Control {
    /// Opens the run.
    pub fn open(&self, begin: Nanos, measure_from: Nanos, end: Nanos) {
        self.end.store(end, Ordering::Relaxed);
        self.measure_from.store(measure_from, Ordering::Relaxed);
        self.begin.store(begin, Ordering::Release);
        self.attention.fetch_add(1, Ordering::Release);
    }

    /// Ends the warm-up early: the measured part lasts from `measure_from`, a moment to come, to `end`, if the run does not end before.
    pub fn measure(&self, measure_from: Nanos, end: Nanos) {
        self.end.fetch_min(end, Ordering::Relaxed);
        self.measure_from.fetch_min(measure_from, Ordering::Relaxed);
        self.attention.fetch_add(1, Ordering::Release);
    }

    /// Ends the starts at `now`, or earlier if they end earlier anyway.
    pub fn stop(&self, now: Nanos) {
        self.end.fetch_min(now, Ordering::Relaxed);
        self.attention.fetch_add(1, Ordering::Release);
    }

    /// Tells all workers to drop everything.
    pub fn abandon(&self) {
        self.abandon.store(true, Ordering::Relaxed);
        self.attention.fetch_add(1, Ordering::Release);
    }

    /// Changes whenever workers should look at the rest.
    #[inline]
    pub fn attention(&self) -> usize {
        self.attention.load(Ordering::Acquire)
    }

    /// (begin, end) once the run is open.
    pub fn window(&self) -> Option<(Nanos, Nanos)> {
        match self.begin.load(Ordering::Acquire) {
            0 => None,
            begin => Some((begin, self.end.load(Ordering::Relaxed))),
        }
    }

    /// Where the measured part begins, once the run is open.
    pub fn measure_from(&self) -> Nanos {
        self.measure_from.load(Ordering::Relaxed)
    }

    /// Everything is to be dropped.
    pub fn is_abandoned(&self) -> bool {
        self.abandon.load(Ordering::Relaxed)
    }

    /// A session is connected and prepared.
    pub fn session_connected(&self, now: Nanos, is_first_time: bool) {
        if is_first_time {
            self.ready.fetch_add(1, Ordering::Relaxed);
        } else {
            self.reconnected.fetch_add(1, Ordering::Relaxed);
        }
        if self.connected.fetch_add(1, Ordering::Relaxed) == 0 && !is_first_time {
            let mut outages = self.outages.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(outage) = outages.last_mut() {
                outage.to.get_or_insert(now);
            }
        }
    }

    /// A session lost its connection while the run was on.
    pub fn session_lost(&self, now: Nanos, message: impl FnOnce() -> String) {
        self.lost.fetch_add(1, Ordering::Relaxed);
        if self.connected.fetch_sub(1, Ordering::Relaxed) == 1 {
            let mut outages = self.outages.lock().unwrap_or_else(PoisonError::into_inner);
            outages.push(Outage { from: now, message: message(), ..Outage::default() });
        }
    }

    /// A session ends while connected.
    pub fn session_ended(&self) {
        self.connected.fetch_sub(1, Ordering::Relaxed);
    }

    /// Says whether sessions belong to the server that takes writes.
    pub fn set_follows_writes(&self, follows: bool) {
        self.follows_writes.store(follows, Ordering::Relaxed);
    }

    /// Whether a session whose server takes no writes any more is to look for the one that does.
    pub fn follows_writes(&self) -> bool {
        self.follows_writes.load(Ordering::Relaxed)
    }

    /// Times without a single connection.
    pub fn outages(&self) -> Vec<Outage> {
        self.outages.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes why the run cannot go on; the first reason stays.
    pub fn fail(&self, failure: Failure) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failure);
    }

    /// Why the run cannot go on, if so.
    pub fn failure(&self) -> Option<Failure> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_lasts_from_the_last_loss_to_the_first_return() {
        let control = Control::default();
        control.session_connected(1, true);
        control.session_connected(1, true);
        control.session_lost(10, || "first".into());
        control.session_lost(20, || "second".into());
        control.session_connected(50, false);
        control.session_connected(60, false);
        let outage = Outage { from: 20, to: Some(50), message: "second".into(), ..Outage::default() };
        assert_eq!(control.outages(), [outage]);
        assert_eq!(control.lost.load(Ordering::Relaxed), 2);
        assert_eq!(control.reconnected.load(Ordering::Relaxed), 2);
    }
}

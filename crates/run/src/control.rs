//! The signals between the thread that requested a run and its workers: a few atomics, read between events.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::engine::{NANOS_PER_SECOND, Nanos};

/// Requested from outside, for example by a signal handler.
#[derive(Debug, Default)]
pub struct StopFlag {
    /// How often a stop was requested: once drains, twice abandons.
    requests: AtomicUsize,
}

impl StopFlag {
    /// Requests it once more.
    pub fn request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// How often it was requested.
    pub fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
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
    /// Sessions were connected, and every transaction that ended had failed.
    Failing,
    /// Transactions failed that cannot be tried again, while others committed: a part of the target was of no use.
    Partial,
}

impl Cause {
    /// The word in `run.json`.
    pub fn name(self) -> &'static str {
        match self {
            Cause::Disconnected => "disconnected",
            Cause::Stalled => "stalled",
            Cause::Failing => "failing",
            Cause::Partial => "partial",
        }
    }
}

/// A time during which the target was of no use.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outage {
    /// When the last session was lost, or the last transaction committed.
    pub from: Nanos,
    /// When the first session was back, or the next transaction committed; `None` if that never came.
    pub to: Option<Nanos>,
    /// What it was.
    pub cause: Cause,
    /// Transactions that failed in it, where sessions were connected.
    pub failed: u64,
    /// The first error of the server or the system.
    pub message: String,
    /// Transactions per second before it; `None` if it came too early to say.
    pub tps_before: Option<f64>,
    /// When that throughput was back, see [`crate::recovery`].
    pub back: Option<Nanos>,
}

/// A time without a connection is an outage from this length on, or when sessions came back to another server. Else no session was refused: they came
/// back at their first try, as those do whose script ends its own connection.
pub const OUTAGE_MIN: Nanos = NANOS_PER_SECOND / 20;

/// Times without a single connection.
#[derive(Debug, Default)]
struct Outages {
    list: Vec<Outage>,
    /// How many of them have been reported: those stay.
    reported: usize,
}

impl Outages {
    /// A session is back.
    fn end(&mut self, now: Nanos, is_elsewhere: bool) {
        let Some(outage) = self.list.last_mut() else { return };
        let to = *outage.to.get_or_insert(now);
        let is_short = to.saturating_sub(outage.from) < OUTAGE_MIN && !is_elsewhere;
        if is_short && self.list.len() > self.reported {
            self.list.pop();
        }
    }

    fn until(&mut self, now: Nanos) -> &[Outage] {
        let is_new = |one: &Outage| one.to.is_none() && now.saturating_sub(one.from) < OUTAGE_MIN;
        let known = self.list.len() - usize::from(self.list.last().is_some_and(is_new));
        self.reported = self.reported.max(known);
        &self.list[..self.reported]
    }
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
    /// A stop was requested.
    is_interrupted: AtomicBool,
    /// A thread of the run has ended before its time.
    is_broken: AtomicBool,
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
    /// Failed transactions that would have been tried again, had the run not been over.
    pub cut_off: AtomicU64,
    outages: Mutex<Outages>,
    /// Sessions that ended before the run did, because going on would have made its counts wrong.
    pub aborted: AtomicU64,
    /// Why the first of them did.
    abort: Mutex<Option<String>>,
    /// Sessions belong to the server that takes writes, whichever that is.
    follows_writes: AtomicBool,
    /// As `Dial::isolated`.
    isolated: OnceLock<Vec<&'static str>>,
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

impl Failure {
    /// A thread of the run has ended by a mistake of this program.
    pub(crate) fn of_panic(thread: &str, panic: &(dyn std::any::Any + Send)) -> Failure {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason is known");
        Failure {
            message: format!("the {thread} thread of this client failed: {text}"),
            hint: Some(
                "this is a bug in pgfathom: please report it with the command line and the lines above"
                    .into(),
            ),
        }
    }
}

impl Default for Control {
    fn default() -> Self {
        Control {
            connected: AtomicUsize::new(0),
            ready: AtomicUsize::new(0),
            begin: AtomicU64::new(0),
            measure_from: AtomicU64::new(Nanos::MAX),
            end: AtomicU64::new(Nanos::MAX),
            is_interrupted: AtomicBool::new(false),
            is_broken: AtomicBool::new(false),
            abandon: AtomicBool::new(false),
            attention: AtomicUsize::new(0),
            lost: AtomicU64::new(0),
            reconnected: AtomicU64::new(0),
            weak_commits: AtomicU64::new(0),
            cut_off: AtomicU64::new(0),
            outages: Mutex::default(),
            aborted: AtomicU64::new(0),
            abort: Mutex::default(),
            follows_writes: AtomicBool::new(false),
            isolated: OnceLock::new(),
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

    /// A stop was requested: ends the starts at `now`, or earlier if they end earlier anyway.
    pub fn stop(&self, now: Nanos) {
        self.is_interrupted.store(true, Ordering::Relaxed);
        self.end.fetch_min(now, Ordering::Relaxed);
        self.attention.fetch_add(1, Ordering::Release);
    }

    /// Makes all workers drop everything.
    pub(crate) fn abandon(&self) {
        self.abandon.store(true, Ordering::Relaxed);
        self.attention.fetch_add(1, Ordering::Release);
    }

    /// Changes whenever workers should look at the rest.
    #[inline]
    pub(crate) fn attention(&self) -> usize {
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

    /// A stop was requested.
    pub fn is_interrupted(&self) -> bool {
        self.is_interrupted.load(Ordering::Relaxed)
    }

    /// Everything is to be dropped.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.abandon.load(Ordering::Relaxed)
    }

    /// A session is connected and prepared; `is_elsewhere`: to another server than before.
    pub(crate) fn session_connected(&self, now: Nanos, is_first_time: bool, is_elsewhere: bool) {
        if is_first_time {
            self.ready.fetch_add(1, Ordering::Relaxed);
        } else {
            self.reconnected.fetch_add(1, Ordering::Relaxed);
        }
        if self.connected.fetch_add(1, Ordering::Relaxed) == 0 && !is_first_time {
            let mut outages = self.outages.lock().unwrap_or_else(PoisonError::into_inner);
            outages.end(now, is_elsewhere);
        }
    }

    /// A session lost its connection while the run was on.
    pub(crate) fn session_lost(&self, now: Nanos, message: impl FnOnce() -> String) {
        self.lost.fetch_add(1, Ordering::Relaxed);
        if self.connected.fetch_sub(1, Ordering::Relaxed) == 1 {
            let mut outages = self.outages.lock().unwrap_or_else(PoisonError::into_inner);
            outages.list.push(Outage { from: now, message: message(), ..Outage::default() });
        }
    }

    /// A session ends while connected.
    pub(crate) fn session_ended(&self) {
        self.connected.fetch_sub(1, Ordering::Relaxed);
    }

    /// A session ends while the others go on.
    pub(crate) fn session_aborted(&self, why: impl FnOnce() -> String) {
        self.session_ended();
        self.aborted.fetch_add(1, Ordering::Relaxed);
        self.abort.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(why);
    }

    /// Why the first session ended before the run did.
    pub fn abort(&self) -> Option<String> {
        self.abort.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes over what the dial knows of its servers: whether sessions belong to the one that takes writes, and `Dial::isolated`.
    pub(crate) fn set_dial(&self, follows_writes: bool, isolated: Vec<&'static str>) {
        self.follows_writes.store(follows_writes, Ordering::Relaxed);
        let _ = self.isolated.set(isolated);
    }

    /// Whether a session whose server takes no writes any more is to look for the one that does.
    pub(crate) fn follows_writes(&self) -> bool {
        self.follows_writes.load(Ordering::Relaxed)
    }

    /// Whether this error means that the server refuses every statement for a time.
    pub(crate) fn is_isolated(&self, message: &str) -> bool {
        self.isolated.get().is_some_and(|all| all.iter().any(|begin| message.starts_with(begin)))
    }

    /// Times without a single connection, as of `now`: one that has only begun may be none.
    pub fn outages(&self, now: Nanos) -> Vec<Outage> {
        self.outages.lock().unwrap_or_else(PoisonError::into_inner).until(now).to_vec()
    }

    /// Notes why the run cannot go on; the first reason stays.
    pub fn fail(&self, failure: Failure) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failure);
    }

    /// A thread that the run cannot do without has ended: everybody drops everything, and the run ends with this reason.
    pub(crate) fn break_down(&self, failure: Failure) {
        self.fail(failure);
        self.is_broken.store(true, Ordering::Relaxed);
        self.abandon();
    }

    /// A thread that the run cannot do without has ended.
    pub fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Relaxed)
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
        control.session_connected(1, true, false);
        control.session_connected(1, true, false);
        let (back, end) = (20 + OUTAGE_MIN, 20 + 2 * OUTAGE_MIN);
        control.session_lost(10, || "first".into());
        control.session_lost(20, || "second".into());
        control.session_connected(back, false, false);
        control.session_connected(back + 10, false, false);
        let outage = Outage { from: 20, to: Some(back), message: "second".into(), ..Outage::default() };
        assert_eq!(control.outages(end), [outage]);
        assert_eq!(control.lost.load(Ordering::Relaxed), 2);
        assert_eq!(control.reconnected.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn sessions_that_end_their_own_connections_make_no_outage() {
        let control = Control::default();
        control.session_connected(1, true, false);
        for round in 1..1_000 {
            let from = round * 10 * OUTAGE_MIN;
            control.session_lost(from, || "terminated".into());
            assert_eq!(control.outages(from + 1), [], "it may be back at once");
            control.session_connected(from + OUTAGE_MIN - 1, false, false);
        }
        assert_eq!((control.outages(Nanos::MAX), control.lost.load(Ordering::Relaxed)), (vec![], 999));
        // One that was reported stays, also where the clocks of two threads disagree about its length.
        let from = 20_000 * OUTAGE_MIN;
        control.session_lost(from, || "gone".into());
        assert_eq!(control.outages(from + OUTAGE_MIN).len(), 1);
        control.session_connected(from + OUTAGE_MIN - 1, false, false);
        assert_eq!(control.outages(Nanos::MAX)[0].to, Some(from + OUTAGE_MIN - 1));
    }

    #[test]
    fn a_short_way_to_another_server_is_an_outage() {
        let control = Control::default();
        control.session_connected(1, true, false);
        control.session_lost(10, || "gone".into());
        control.session_connected(11, false, true);
        control.session_lost(20, || "gone again".into());
        control.session_connected(21, false, false);
        let outage = Outage { from: 10, to: Some(11), message: "gone".into(), ..Outage::default() };
        assert_eq!(control.outages(Nanos::MAX), [outage]);
    }
}

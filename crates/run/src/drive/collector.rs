//! The collector: waits until all sessions are ready, starts the run, receives counters from the workers once a second, and ends the run in time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mio::Waker;
use record::clock::monotonic_ns;

use super::worker_thread::Post;
use super::{DRAIN_LIMIT, DriveError, Observer, Second, broke_down, process_cpu};
use crate::control::{Control, StopFlag};
use crate::engine::{NANOS_PER_SECOND, Nanos};
use crate::recovery::{Beat, Watch};
use crate::tally::{Posted, Shape};

/// Between "everybody is ready" and the first start: longer than a worker takes to learn of it.
const START_DELAY: Nanos = NANOS_PER_SECOND / 20;
/// How often the collector looks at flags.
const COLLECTOR_PAUSE: Duration = Duration::from_millis(20);
/// How long after a full second the workers' counts of that second are collected.
const COLLECT_AFTER: Nanos = NANOS_PER_SECOND / 20;
/// How long all sessions together may take to connect and prepare.
const READY_LIMIT: Nanos = 120 * NANOS_PER_SECOND;

pub(super) struct Collector<'a> {
    pub(super) control: &'a Control,
    pub(super) posts: &'a [Arc<Post>],
    pub(super) wakers: &'a [Arc<Waker>],
    pub(super) stop: &'a StopFlag,
    pub(super) shape: Shape,
    pub(super) sessions: u64,
    pub(super) warmup: Nanos,
    pub(super) duration: Option<Nanos>,
}

/// What the collector knows at the end.
pub(super) struct Collected {
    pub(super) posted: Posted,
    pub(super) begin: Nanos,
    pub(super) measure_from: Nanos,
    pub(super) cpu_at_measure_from: Nanos,
    pub(super) cpu_at_end: Nanos,
    pub(super) is_interrupted: bool,
    pub(super) recovery: Watch,
}

/// What has been collected so far.
struct SoFar {
    total: Posted,
    /// Of the current second.
    posted: Posted,
    beat: Beat,
    recovery: Watch,
    second: Ticks,
}

/// How the run is to end.
struct End {
    /// Requests to stop.
    requests: usize,
    /// Transactions that have not ended by then are dropped.
    drain_until: Nanos,
}

/// Ends the waits of all workers.
pub(super) fn wake_all(wakers: &[Arc<Waker>]) {
    for waker in wakers {
        // A worker that has ended does not need to be woken.
        let _ = waker.wake();
    }
}

impl Collector<'_> {
    fn wake_all(&self) {
        wake_all(self.wakers);
    }

    fn is_finished(&self) -> bool {
        self.posts.iter().all(|post| post.is_finished.load(Ordering::Acquire))
    }

    /// Until all sessions are ready.
    fn wait_until_ready(&self) -> Result<(), DriveError> {
        let give_up = monotonic_ns() + READY_LIMIT;
        loop {
            if let Some(failure) = self.control.failure() {
                return Err(DriveError::Failed(failure));
            }
            let ready = self.control.ready.load(Ordering::Relaxed);
            if ready as u64 >= self.sessions {
                return Ok(());
            }
            if self.stop.requests() > 0 {
                return Err(DriveError::Interrupted);
            }
            if monotonic_ns() > give_up {
                let seconds = READY_LIMIT / NANOS_PER_SECOND;
                return Err(DriveError::NotReady { ready, sessions: self.sessions, seconds });
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub(super) fn collect(&self, observer: &mut dyn Observer) -> Result<Collected, DriveError> {
        self.wait_until_ready()?;
        let begin = monotonic_ns() + START_DELAY;
        let mut measure_from = begin + self.warmup;
        let end_of = |measure_from| self.duration.map_or(Nanos::MAX, |duration| measure_from + duration);
        let end = end_of(measure_from);
        self.control.open(begin, measure_from, end);
        self.wake_all();
        observer.begins(begin);
        let mut so_far = SoFar {
            total: Posted::new(self.shape),
            posted: Posted::new(self.shape),
            beat: Beat { from: begin, ..Beat::default() },
            recovery: Watch::default(),
            second: Ticks { from: begin, cpu: process_cpu(), scheduled: 0 },
        };
        let mut end = End { requests: 0, drain_until: end.saturating_add(DRAIN_LIMIT) };
        let mut cpu_at_measure_from = None;
        loop {
            if self.control.is_broken() {
                return Err(broke_down(self.control));
            }
            let now = monotonic_ns();
            let finished = self.is_finished();
            if now >= measure_from && cpu_at_measure_from.is_none() {
                cpu_at_measure_from = Some(process_cpu());
            }
            if finished || now >= so_far.second.from + NANOS_PER_SECOND + COLLECT_AFTER {
                self.collect_second(&mut so_far, (now, finished), measure_from, observer);
            }
            if finished {
                break;
            }
            // The moment lies ahead, so that all workers learn of it before it has come.
            let soon = now + START_DELAY;
            if soon < measure_from && end.requests == 0 && observer.is_settled() {
                measure_from = soon;
                end.drain_until = end_of(soon).saturating_add(DRAIN_LIMIT);
                self.control.measure(soon, end_of(soon));
                self.wake_all();
                observer.measures_from(soon);
            }
            self.end_on_request(&mut end, now);
            std::thread::sleep(COLLECTOR_PAUSE);
        }
        let cpu_at_end = process_cpu();
        Ok(Collected {
            posted: so_far.total,
            begin,
            measure_from,
            cpu_at_measure_from: cpu_at_measure_from.unwrap_or(cpu_at_end),
            cpu_at_end,
            is_interrupted: end.requests > 0,
            recovery: so_far.recovery,
        })
    }

    /// Takes what the workers have posted in a second, or in the rest of one if they have finished.
    fn collect_second(
        &self,
        so_far: &mut SoFar,
        (now, finished): (Nanos, bool),
        measure_from: Nanos,
        observer: &mut dyn Observer,
    ) {
        let SoFar { total, posted, beat, recovery, second } = so_far;
        for post in self.posts {
            post.slot.take(posted);
        }
        total.add(posted);
        let to = if finished { now } else { second.from + NANOS_PER_SECOND };
        beat.to = to;
        add(beat, posted);
        // After a late look one second has the counts of several: they are one beat, or the empty ones would look like a stall.
        if finished || now < to + NANOS_PER_SECOND + COLLECT_AFTER {
            beat.connected = self.control.connected.load(Ordering::Relaxed);
            recovery.second(beat, &self.control.outages(to));
            *beat = Beat { from: to, ..Beat::default() };
        }
        self.report(second, to, posted, measure_from, observer);
        posted.reset();
    }

    /// The first request to stop lets transactions end, for a limited time; the second one, or the end of that time, does not.
    fn end_on_request(&self, end: &mut End, now: Nanos) {
        if self.stop.requests() > end.requests {
            end.requests = self.stop.requests();
            if end.requests == 1 {
                self.control.stop(now);
                end.drain_until = now + DRAIN_LIMIT;
            } else {
                self.control.abandon();
            }
            self.wake_all();
        }
        if now > end.drain_until {
            self.control.abandon();
            self.wake_all();
        }
    }

    fn report(
        &self,
        second: &mut Ticks,
        to: Nanos,
        posted: &Posted,
        measure_from: Nanos,
        observer: &mut dyn Observer,
    ) {
        let cpu = process_cpu();
        let sum = |count: fn(&Post) -> &AtomicU64| {
            self.posts.iter().map(|post| count(post).load(Ordering::Relaxed)).sum::<u64>()
        };
        let scheduled = sum(|post| &post.scheduled);
        observer.second(&Second {
            from: second.from,
            to: to.max(second.from),
            posted,
            connected: self.control.connected.load(Ordering::Relaxed),
            scheduled: scheduled.saturating_sub(second.scheduled),
            backlog: sum(|post| &post.backlog),
            client_cpu: cpu.saturating_sub(second.cpu),
            is_warmup: to <= measure_from,
        });
        *second = Ticks { from: to.max(second.from), cpu, scheduled };
    }
}

/// What was counted belongs to this second.
fn add(beat: &mut Beat, posted: &Posted) {
    for interval in [&posted.measured, &posted.warmup] {
        beat.transactions += interval.transactions();
        beat.failed += interval.failed();
    }
    beat.commits.add(posted.commits);
    let hard = posted.errors.iter().filter(|error| !error.sqlstate.is_retryable());
    beat.hard_errors += hard.map(|error| error.count).sum::<u64>();
    if beat.error.is_none() {
        let first = posted.errors.iter().max_by_key(|error| error.count);
        beat.error = first.map(|error| format!("{}: {}", error.sqlstate, error.first_message));
    }
}

/// Where the collector's current second began.
struct Ticks {
    from: Nanos,
    cpu: Nanos,
    scheduled: u64,
}

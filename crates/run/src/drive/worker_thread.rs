//! A worker thread: its inputs, its periodic work beside the sessions, and its results.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use record::clock::monotonic_ns;
use rustix::time::{ClockId, clock_gettime};

use super::DRAIN_LIMIT;
use crate::client::{Client, Plan, SessionRecord};
use crate::control::Control;
use crate::engine::connector::Connector;
use crate::engine::link::{Link, Traffic};
use crate::engine::poller::Poller;
use crate::engine::reactor::{EpollReactor, Reactor};
use crate::engine::session::Shared;
use crate::engine::uring::UringReactor;
use crate::engine::worker::{Housekeeping, Worker};
use crate::engine::{NANOS_PER_SECOND, Nanos};
use crate::random::Random;
use crate::schedule::{Pace, Schedule};
use crate::tally::{Shape, Slot, Tally};
use crate::terminals::Groups;
use crate::workload::Workload;

/// What a worker thread and the collector share.
#[derive(Debug)]
pub(super) struct Post {
    pub(super) slot: Slot,
    /// Arrivals handed out, skipped or waiting so far.
    pub(super) scheduled: AtomicU64,
    /// Arrivals waiting.
    pub(super) backlog: AtomicU64,
    pub(super) is_finished: AtomicBool,
}

impl Post {
    pub(super) fn new(shape: Shape) -> Post {
        Post {
            slot: Slot::new(shape),
            scheduled: AtomicU64::new(0),
            backlog: AtomicU64::new(0),
            is_finished: AtomicBool::new(false),
        }
    }
}

/// What a worker thread is given.
pub(super) struct Assignment<W> {
    pub(super) plan: Arc<Plan<W>>,
    pub(super) post: Arc<Post>,
    pub(super) first_session: u64,
    pub(super) sessions: usize,
    pub(super) shape: Shape,
    /// The node where each of them enters.
    pub(super) nodes: Vec<u16>,
    pub(super) pace: Pace,
    pub(super) latency_limit: Option<Nanos>,
    pub(super) arrivals: Random,
}

/// What a worker thread leaves behind.
pub(super) struct Worked {
    pub(super) sessions: Vec<SessionRecord>,
    /// As it stood at the worker's end: only the end of the whole run shows which arrivals it still owed.
    pub(super) schedule: Schedule,
    /// Connections that still owed a reply when everything was dropped.
    pub(super) unanswered: Vec<Link>,
    pub(super) traffic: Traffic,
    pub(super) buffer_bytes: usize,
    pub(super) end: Nanos,
    pub(super) measured_cpu: Nanos,
    pub(super) measured_wait: Option<Nanos>,
}

/// The thread's life: drives its sessions until all have ended.
pub(super) fn work<W: Workload>(
    assignment: Assignment<W>,
    poller: Poller,
    epoll: EpollReactor,
    connector: Connector,
) -> std::io::Result<Worked> {
    match poller {
        Poller::Epoll => run_worker(assignment, epoll, connector),
        Poller::IoUring => {
            let reactor = UringReactor::new(epoll, assignment.sessions)?;
            run_worker(assignment, reactor, connector)
        }
    }
}

fn run_worker<W: Workload>(
    assignment: Assignment<W>,
    reactor: impl Reactor,
    connector: Connector,
) -> std::io::Result<Worked> {
    let is_open_loop = assignment.pace != Pace::Closed;
    let skip = assignment.latency_limit.filter(|_| is_open_loop);
    let groups = groups(&assignment);
    let schedule = Schedule::new(assignment.pace, skip, assignment.arrivals).with_groups(groups);
    let shared = Shared::new(schedule, assignment.sessions);
    let tally = Rc::new(RefCell::new(Tally::new(assignment.shape, is_open_loop, assignment.latency_limit)));
    let records: Vec<Rc<RefCell<SessionRecord>>> = (0..assignment.sessions).map(|_| Rc::default()).collect();
    let mut worker =
        Worker::new(reactor, Rc::clone(&shared), Box::new(connector), assignment.sessions, |session| {
            let client = Client {
                plan: Arc::clone(&assignment.plan),
                number: assignment.first_session + session.index as u64,
                node: usize::from(assignment.nodes[session.index]),
                tally: Rc::clone(&tally),
                record: Rc::clone(&records[session.index]),
            };
            Box::pin(client.live(session))
        });
    let mut housekeeper = Housekeeper {
        control: Arc::clone(&assignment.plan.control),
        post: Arc::clone(&assignment.post),
        shared: Rc::clone(&shared),
        tally: Rc::clone(&tally),
        known_version: usize::MAX,
        begin: 0,
        next_tick: 0,
        measure_from: Nanos::MAX,
        at_measure_from: None,
    };
    let outcome = worker.run(&mut housekeeper);
    let end = monotonic_ns();
    housekeeper.publish(end);
    let usage = ThreadUsage::now();
    let (measured_cpu, measured_wait) =
        housekeeper.at_measure_from.map_or((0, None), |before| usage.since(before));
    assignment.post.is_finished.store(true, Ordering::Release);
    outcome?;
    let unanswered = worker.take_unanswered();
    let schedule = shared.schedule.borrow().clone();
    Ok(Worked {
        sessions: records.iter().map(|record| record.borrow().clone().closed()).collect(),
        schedule,
        unanswered,
        traffic: worker.traffic(),
        buffer_bytes: worker.buffer_bytes(),
        end,
        measured_cpu,
        measured_wait,
    })
}

/// Which terminals are whose: where sessions enter at the owner of what they request, those whose rows are there.
fn groups<W: Workload>(assignment: &Assignment<W>) -> Groups {
    let Pace::Terminals(users) = assignment.pace else { return Groups::one() };
    let terminals = users.first..users.first + users.count;
    let nodes: Option<Vec<u16>> =
        terminals.map(|terminal| assignment.plan.mix.node_of_terminal(terminal)).collect();
    nodes.map_or_else(Groups::one, |nodes| Groups::by_node(nodes.into_iter(), &assignment.nodes))
}

/// The worker's own pace: publishes once a second, learns of begin, end and abandonment.
struct Housekeeper {
    control: Arc<Control>,
    post: Arc<Post>,
    shared: Rc<Shared>,
    tally: Rc<RefCell<Tally>>,
    /// The control's attention count when it was last looked at.
    known_version: usize,
    /// When the run began: the collector's seconds count from there, and so do the ticks.
    begin: Nanos,
    next_tick: Nanos,
    measure_from: Nanos,
    at_measure_from: Option<ThreadUsage>,
}

impl Housekeeper {
    fn publish(&mut self, now: Nanos) {
        self.tally.borrow_mut().publish(&self.post.slot);
        let schedule = self.shared.schedule.borrow();
        let backlog = schedule.backlog(now);
        self.post.backlog.store(backlog, Ordering::Relaxed);
        self.post.scheduled.store(schedule.arrivals() + backlog, Ordering::Relaxed);
    }

    fn read_control(&mut self, now: Nanos) {
        let Some((begin, end)) = self.control.window() else { return };
        let measure_from = self.control.measure_from();
        // A stop does not wait for pauses.
        let pauses_end = if self.control.is_interrupted() { 0 } else { end.saturating_add(DRAIN_LIMIT) };
        self.shared.pauses_end.set(pauses_end);
        if self.measure_from == Nanos::MAX {
            (self.begin, self.next_tick) = (begin, begin);
            self.shared.schedule.borrow_mut().open(begin, end);
        } else {
            self.shared.schedule.borrow_mut().stop(end);
        }
        if measure_from < self.measure_from {
            self.measure_from = measure_from;
            self.tally.borrow_mut().measure_from(measure_from);
            self.next_tick = self.next_tick.min(measure_from.max(now + 1));
        }
    }
}

/// The end of the second that has begun, of those that count from `begin`. A tick in between, as at the end of a warm-up, moves none of them: what is
/// published after the collector has looked would be counted in the next second.
fn next_second(begin: Nanos, now: Nanos) -> Nanos {
    begin + NANOS_PER_SECOND * (now.saturating_sub(begin) / NANOS_PER_SECOND + 1)
}

impl Housekeeping for Housekeeper {
    #[inline]
    fn is_due(&self, now: Nanos) -> bool {
        now >= self.next_tick || self.control.attention() != self.known_version
    }

    fn next_tick(&self) -> Nanos {
        self.next_tick
    }

    fn tick(&mut self, now: Nanos) -> bool {
        let attention = self.control.attention();
        if attention != self.known_version {
            self.known_version = attention;
            self.read_control(now);
        }
        if self.measure_from == Nanos::MAX {
            // Not open yet: the waker reports when it is.
            self.next_tick = now + NANOS_PER_SECOND;
        } else if now >= self.next_tick {
            if now >= self.measure_from && self.at_measure_from.is_none() {
                self.at_measure_from = Some(ThreadUsage::now());
            }
            self.publish(now);
            self.next_tick = next_second(self.begin, now);
            if self.at_measure_from.is_none() {
                // A warm-up need not be whole seconds.
                self.next_tick = self.next_tick.min(self.measure_from.max(now + 1));
            }
        }
        !self.control.is_abandoned()
    }
}

/// A thread's CPU time, and the time it waited for a CPU.
#[derive(Clone, Copy, Debug)]
struct ThreadUsage {
    cpu: Nanos,
    wait: Option<Nanos>,
}

impl ThreadUsage {
    fn now() -> ThreadUsage {
        // Run delay is the second number of schedstat; kernels without CONFIG_SCHED_INFO have no such file.
        let wait = std::fs::read_to_string("/proc/thread-self/schedstat")
            .ok()
            .and_then(|text| text.split_ascii_whitespace().nth(1)?.parse().ok());
        ThreadUsage { cpu: thread_cpu(), wait }
    }

    fn since(self, before: ThreadUsage) -> (Nanos, Option<Nanos>) {
        let wait = self.wait.zip(before.wait).map(|(now, before)| now.saturating_sub(before));
        (self.cpu.saturating_sub(before.cpu), wait)
    }
}

fn thread_cpu() -> Nanos {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * NANOS_PER_SECOND + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first second after a warm-up of 200 ms had a fifth of its transactions, the last one had the rest.
    #[test]
    fn the_end_of_a_warm_up_moves_no_second() {
        let (begin, s) = (7 * NANOS_PER_SECOND + 123, NANOS_PER_SECOND);
        for (now, next) in [
            (begin, begin + s),
            (begin + s / 5, begin + s),
            (begin + s - 1, begin + s),
            (begin + s, begin + 2 * s),
            (begin + s + 40_000, begin + 2 * s),
            // A worker that slept through two of them.
            (begin + 3 * s + 1, begin + 4 * s),
        ] {
            assert_eq!(next_second(begin, now), next, "{now}");
        }
    }
}

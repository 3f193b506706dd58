//! The counters of a worker: one [`Tally`] per worker, written by its sessions without locks; once a second it is added to a
//! [`Board`] slot from which the collector takes it.
//!
//! Counters obey two equations, asserted at the end of each run and printed with it:
//!
//! ```text
//! scheduled = started + skipped + unstarted
//! started   = transactions + failed + unfinished
//! ```

use std::sync::{Mutex, PoisonError};

use record::Latency;
use wire::error::SqlState;

use crate::audit::Audits;
use crate::engine::Nanos;
use crate::schedule::Start;

/// Distinct SQLSTATEs that are kept apart; further ones are counted under `?????`.
const ERROR_KINDS_MAX: usize = 64;
/// Stands for "any other code".
const OTHER: SqlState = SqlState(*b"?????");

/// Counts and latencies of one transaction type.
#[derive(Clone, Debug, Default)]
pub struct TypeTally {
    /// Committed transactions.
    pub transactions: u64,
    /// Transactions that ended in an error and were not, or not successfully, tried again.
    pub failed: u64,
    /// Further tries after a serialization failure or deadlock.
    pub retries: u64,
    /// Committed, but later than the latency limit.
    pub late: u64,
    /// From the scheduled start, of committed transactions.
    pub response: Latency,
    /// From the real start, of committed transactions. In a closed loop both are the same and this one stays empty.
    pub service: Latency,
}

/// Counts and latencies of the sessions that enter at one node. Kept only where nodes are distinguished: a histogram each.
#[derive(Clone, Debug, Default)]
pub struct NodeTally {
    /// Committed transactions.
    pub transactions: u64,
    /// Failed ones.
    pub failed: u64,
    /// From the scheduled start, of committed transactions.
    pub response: Latency,
}

/// How many things are counted apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Transaction types.
    pub types: usize,
    /// Nodes where sessions enter; 0 when they are not distinguished.
    pub nodes: usize,
}

impl Shape {
    /// Transaction types only.
    pub fn of_types(types: usize) -> Shape {
        Shape { types, nodes: 0 }
    }
}

/// Errors of one SQLSTATE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorTally {
    /// The code.
    pub sqlstate: SqlState,
    /// How often.
    pub count: u64,
    /// How many of them led to another try.
    pub retried: u64,
    /// The first one's message.
    pub first_message: String,
    /// When that was.
    pub first: Nanos,
    /// The transaction type it hit.
    pub first_type: usize,
}

/// What is counted between two publications.
#[derive(Clone, Debug, Default)]
pub struct Interval {
    /// By transaction type.
    pub types: Vec<TypeTally>,
    /// By connect node, if requested.
    pub nodes: Vec<NodeTally>,
    /// Transactions begun.
    pub started: u64,
    /// Client lateness, open loop only.
    pub lag: Latency,
    /// What the workloads sum up beside all this.
    pub audits: Audits,
}

impl Interval {
    /// An empty interval.
    pub fn new(shape: Shape) -> Interval {
        Interval {
            types: vec![TypeTally::default(); shape.types],
            nodes: vec![NodeTally::default(); shape.nodes],
            started: 0,
            lag: Latency::new(),
            audits: Audits::default(),
        }
    }

    /// Adds `other`.
    pub fn add(&mut self, other: &Interval) {
        self.started += other.started;
        self.audits.add(&other.audits);
        if !other.lag.is_empty() {
            self.lag.merge(&other.lag);
        }
        for (mine, theirs) in self.types.iter_mut().zip(&other.types) {
            mine.transactions += theirs.transactions;
            mine.failed += theirs.failed;
            mine.retries += theirs.retries;
            mine.late += theirs.late;
            for (mine, theirs) in
                [(&mut mine.response, &theirs.response), (&mut mine.service, &theirs.service)]
            {
                if !theirs.is_empty() {
                    mine.merge(theirs);
                }
            }
        }
        for (mine, theirs) in self.nodes.iter_mut().zip(&other.nodes) {
            mine.transactions += theirs.transactions;
            mine.failed += theirs.failed;
            if !theirs.response.is_empty() {
                mine.response.merge(&theirs.response);
            }
        }
    }

    /// Empties it, keeping its memory.
    pub fn reset(&mut self) {
        self.started = 0;
        self.audits.reset();
        if !self.lag.is_empty() {
            self.lag.reset();
        }
        for tally in &mut self.types {
            (tally.transactions, tally.failed, tally.retries, tally.late) = (0, 0, 0, 0);
            for latency in [&mut tally.response, &mut tally.service] {
                if !latency.is_empty() {
                    latency.reset();
                }
            }
        }
        for node in &mut self.nodes {
            (node.transactions, node.failed) = (0, 0);
            if !node.response.is_empty() {
                node.response.reset();
            }
        }
    }

    /// Committed transactions of all types.
    pub fn transactions(&self) -> u64 {
        self.types.iter().map(|tally| tally.transactions).sum()
    }

    /// Failed transactions of all types.
    pub fn failed(&self) -> u64 {
        self.types.iter().map(|tally| tally.failed).sum()
    }

    /// Retries of all types.
    pub fn retries(&self) -> u64 {
        self.types.iter().map(|tally| tally.retries).sum()
    }
}

/// One worker's counters.
#[derive(Debug)]
pub struct Tally {
    /// Transactions scheduled inside the measured window.
    measured: Interval,
    /// Transactions scheduled during warm-up.
    warmup: Interval,
    measure_from: Nanos,
    /// Lag and service are kept only where they say something: with an open loop.
    is_open_loop: bool,
    late_after: Option<Nanos>,
    errors: Vec<ErrorTally>,
    commits: Commits,
}

/// When the first and the last commit were, among those counted together; 0: there was none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Commits {
    /// The first.
    pub first: Nanos,
    /// The last.
    pub last: Nanos,
}

impl Commits {
    #[inline]
    fn note(&mut self, at: Nanos) {
        if self.first == 0 {
            self.first = at;
        }
        self.last = at;
    }

    /// Adds `other`, of the same time or not.
    pub fn add(&mut self, other: Commits) {
        if self.first == 0 || (other.first > 0 && other.first < self.first) {
            self.first = other.first;
        }
        self.last = self.last.max(other.last);
    }
}

impl Tally {
    /// Counters of this shape. Transactions that take longer than `late_after` are late.
    pub fn new(shape: Shape, is_open_loop: bool, late_after: Option<Nanos>) -> Tally {
        Tally {
            measured: Interval::new(shape),
            warmup: Interval::new(shape),
            measure_from: 0,
            is_open_loop,
            late_after,
            errors: Vec::with_capacity(ERROR_KINDS_MAX),
            commits: Commits::default(),
        }
    }

    /// Transactions scheduled before `measure_from` belong to the warm-up.
    pub fn measure_from(&mut self, measure_from: Nanos) {
        self.measure_from = measure_from;
    }

    #[inline]
    fn interval(&mut self, start: Start) -> &mut Interval {
        if start.scheduled >= self.measure_from { &mut self.measured } else { &mut self.warmup }
    }

    /// A transaction begins.
    #[inline]
    pub fn started(&mut self, start: Start) {
        let is_open_loop = self.is_open_loop;
        let interval = self.interval(start);
        interval.started += 1;
        if is_open_loop {
            interval.lag.record_ns(start.lag);
        }
    }

    /// It has committed; its session enters at `node`.
    #[inline]
    pub fn committed(&mut self, start: Start, kind: usize, node: usize, end: Nanos) {
        let (is_open_loop, late_after) = (self.is_open_loop, self.late_after);
        self.commits.note(end);
        let interval = self.interval(start);
        let response = end - start.scheduled;
        if let Some(node) = interval.nodes.get_mut(node) {
            node.transactions += 1;
            node.response.record_ns(response);
        }
        let tally = &mut interval.types[kind];
        tally.transactions += 1;
        tally.response.record_ns(response);
        if is_open_loop {
            tally.service.record_ns(end - start.started);
        }
        if late_after.is_some_and(|limit| response > limit) {
            tally.late += 1;
        }
    }

    /// The sums of the workloads that the transaction which began with `start` belongs to, and how long its user waited for a session.
    #[inline]
    pub fn audits(&mut self, start: Start) -> (Option<Nanos>, &mut Audits) {
        // Apart from the client's own lateness: that is not a wait for a session.
        let waited = start.turn.map(|_| start.started - start.scheduled - start.lag);
        (waited, &mut self.interval(start).audits)
    }

    /// It is being tried again.
    pub fn retried(&mut self, start: Start, kind: usize) {
        self.interval(start).types[kind].retries += 1;
    }

    /// It has failed for good.
    pub fn failed(&mut self, start: Start, kind: usize, node: usize) {
        let interval = self.interval(start);
        interval.types[kind].failed += 1;
        if let Some(node) = interval.nodes.get_mut(node) {
            node.failed += 1;
        }
    }

    /// An error was met, whatever becomes of the transaction.
    pub fn error(
        &mut self,
        sqlstate: SqlState,
        kind: usize,
        now: Nanos,
        will_retry: bool,
        message: impl FnOnce() -> String,
    ) {
        let known = self.errors.iter().position(|error| error.sqlstate == sqlstate);
        let at = match known {
            Some(at) => at,
            None if self.errors.len() + 1 < ERROR_KINDS_MAX || sqlstate == OTHER => {
                let first_message = message();
                self.errors.push(ErrorTally {
                    sqlstate,
                    count: 0,
                    retried: 0,
                    first_message,
                    first: now,
                    first_type: kind,
                });
                self.errors.len() - 1
            }
            None => return self.error(OTHER, kind, now, will_retry, message),
        };
        self.errors[at].count += 1;
        self.errors[at].retried += u64::from(will_retry);
    }

    /// Moves what was counted since the last time into the board's slot.
    pub fn publish(&mut self, slot: &Slot) {
        let mut posted = slot.posted.lock().unwrap_or_else(PoisonError::into_inner);
        posted.measured.add(&self.measured);
        posted.warmup.add(&self.warmup);
        for error in &self.errors {
            merge_error(&mut posted.errors, error);
        }
        posted.commits.add(std::mem::take(&mut self.commits));
        self.measured.reset();
        self.warmup.reset();
        for error in &mut self.errors {
            (error.count, error.retried) = (0, 0);
        }
    }
}

/// What a worker has published and the collector has not taken yet.
#[derive(Clone, Debug)]
pub struct Posted {
    /// Of transactions scheduled in the measured window.
    pub measured: Interval,
    /// Of those scheduled before it.
    pub warmup: Interval,
    /// Errors, warm-up included.
    pub errors: Vec<ErrorTally>,
    /// When commits were, warm-up included.
    pub commits: Commits,
}

impl Posted {
    /// Nothing yet.
    pub fn new(shape: Shape) -> Posted {
        Posted {
            measured: Interval::new(shape),
            warmup: Interval::new(shape),
            errors: Vec::new(),
            commits: Commits::default(),
        }
    }

    /// Adds `other`.
    pub fn add(&mut self, other: &Posted) {
        self.measured.add(&other.measured);
        self.warmup.add(&other.warmup);
        self.commits.add(other.commits);
        for error in &other.errors {
            merge_error(&mut self.errors, error);
        }
    }

    /// Empties it, keeping its memory.
    pub fn reset(&mut self) {
        self.measured.reset();
        self.warmup.reset();
        self.errors.clear();
        self.commits = Commits::default();
    }
}

/// One worker's place where the collector finds its counts. It is locked once a second by each side.
#[derive(Debug)]
pub struct Slot {
    posted: Mutex<Posted>,
}

impl Slot {
    /// An empty slot.
    pub fn new(shape: Shape) -> Slot {
        Slot { posted: Mutex::new(Posted::new(shape)) }
    }

    /// Adds what was posted to `into` and empties the slot.
    pub fn take(&self, into: &mut Posted) {
        let mut posted = self.posted.lock().unwrap_or_else(PoisonError::into_inner);
        into.add(&posted);
        posted.reset();
    }
}

fn merge_error(errors: &mut Vec<ErrorTally>, error: &ErrorTally) {
    if error.count == 0 {
        return;
    }
    match errors.iter_mut().find(|known| known.sqlstate == error.sqlstate) {
        Some(known) => {
            if error.first < known.first {
                known.first = error.first;
                known.first_type = error.first_type;
                known.first_message.clone_from(&error.first_message);
            }
            known.count += error.count;
            known.retried += error.retried;
        }
        None => errors.push(error.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(scheduled: Nanos, started: Nanos) -> Start {
        Start { scheduled, started, lag: 0, turn: None }
    }

    #[test]
    fn warm_up_and_measured_window_are_distinguished_by_the_schedule() {
        let mut tally = Tally::new(Shape { types: 1, nodes: 2 }, true, None);
        tally.measure_from(1_000_000);
        for scheduled in [999_999, 1_000_000] {
            tally.started(start(scheduled, 1_500_000));
            tally.committed(start(scheduled, 1_500_000), 0, 1, 4_000_000);
        }
        tally.failed(start(1_000_000, 1_500_000), 0, 0);
        let shape = Shape { types: 1, nodes: 2 };
        let slot = Slot::new(shape);
        tally.publish(&slot);
        let mut posted = Posted::new(shape);
        slot.take(&mut posted);
        slot.take(&mut posted);
        let nodes: Vec<(u64, u64, u64)> = (posted.measured.nodes.iter())
            .map(|node| (node.transactions, node.failed, node.response.max_us()))
            .collect();
        assert_eq!(nodes, [(0, 1, 0), (1, 0, 3_000)]);
        assert_eq!((posted.warmup.transactions(), posted.measured.transactions()), (1, 1));
        assert_eq!(posted.measured.types[0].response.max_us(), 3_000);
        assert_eq!(posted.measured.types[0].service.max_us(), 2_500);
    }

    #[test]
    fn errors_are_merged_and_keep_the_first_message() {
        let one = Shape::of_types(1);
        let slot = Slot::new(one);
        let (mut first, mut second) = (Tally::new(one, false, None), Tally::new(one, false, None));
        second.error(SqlState(*b"40001"), 0, 20, true, || "later".into());
        first.error(SqlState(*b"40001"), 0, 10, false, || "earlier".into());
        second.publish(&slot);
        first.publish(&slot);
        first.publish(&slot);
        let mut posted = Posted::new(one);
        slot.take(&mut posted);
        assert_eq!(posted.errors.len(), 1);
        let error = &posted.errors[0];
        assert_eq!((error.count, error.retried, error.first_message.as_str()), (2, 1, "earlier"));
    }

    #[test]
    fn a_flood_of_codes_is_bounded() {
        let mut tally = Tally::new(Shape::of_types(1), false, None);
        for code in 0..1_000u32 {
            let text = format!("{code:05}");
            let sqlstate = SqlState(text.as_bytes().try_into().unwrap());
            tally.error(sqlstate, 0, 0, false, || text.clone());
        }
        assert_eq!(tally.errors.len(), ERROR_KINDS_MAX);
        assert_eq!(tally.errors.iter().map(|error| error.count).sum::<u64>(), 1_000);
    }
}

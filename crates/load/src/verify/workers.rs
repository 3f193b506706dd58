//! The threads of a verification, and the snapshot they read: one per server.
//!
//! A coordinating connection exports its snapshot and holds it while threads come and go: every statement of every connection sees the
//! table at the same moment, so rows that a running load updates are neither seen twice nor missed. The coordinating thread only
//! waits, reports progress, and cancels the others' statements when the user stops the verification or one of them fails.
//!
//! Of a cluster several servers are read at once. Each has a coordinating connection and a snapshot of its own: there is no moment that
//! all servers share, and none is needed, since an update does not move a row to another server.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use postgres::Client;

use super::error::{VerifyError, is_foreign_snapshot};
use super::reader::{Reader, Socket};
use crate::options::{Stop, StopLevel};

/// How often the coordinator checks whether it has to stop.
const POLL: Duration = Duration::from_millis(50);
/// How often the observer receives the progress.
const TICK: Duration = Duration::from_secs(1);
/// What a verification is at. A phase is passed over when the one before it left no question.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Phase {
    /// Nodes that send each other what they write are given the time to apply it.
    Wait,
    /// The server sums up leaf tables, the client what should be in them.
    Sum,
    /// The same for buckets of keys, in the leaf tables whose sums differ.
    Narrow,
    /// Rows are read and judged.
    Judge,
    /// Keys are compared, where rows are missing or more than they should be.
    Name,
    /// Rows are looked for in parts of tables that they do not belong in.
    Place,
    /// Nodes that should hold the same are compared with each other.
    Compare,
    /// The keys that the ledgers of a cluster must account for are summed up.
    Ledger,
}

impl Phase {
    /// The word for it in samples and events.
    pub fn as_str(self) -> &'static str {
        match self {
            Phase::Wait => "wait",
            Phase::Sum => "sum",
            Phase::Narrow => "narrow",
            Phase::Judge => "judge",
            Phase::Name => "name",
            Phase::Place => "place",
            Phase::Compare => "compare",
            Phase::Ledger => "ledger",
        }
    }
}

/// A snapshot of how far it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VerifyProgress {
    /// What is being done.
    pub phase: Phase,
    /// Rows done of this phase: computed ones, or judged ones.
    pub rows_done: u64,
    /// About how many there are.
    pub rows_total: u64,
    /// Since the verification began.
    pub elapsed: Duration,
}

impl VerifyProgress {
    /// Before anything is read.
    pub(super) fn waiting(elapsed: Duration) -> VerifyProgress {
        VerifyProgress { phase: Phase::Wait, rows_done: 0, rows_total: 0, elapsed }
    }
}

/// Opens a connection for reading.
pub(super) type Connect<'a> = dyn Fn() -> Result<Box<dyn Socket>, VerifyError> + Sync + 'a;

/// A server that is read.
pub(super) struct Site<'a> {
    connect: &'a Connect<'a>,
    /// Statements that put a new connection into the server's common snapshot.
    begin: String,
    /// Whether they import it.
    imports: bool,
    /// Process ids of the connections' backends.
    backends: Mutex<Vec<i32>>,
}

impl<'a> Site<'a> {
    /// `snapshot`: the result of `pg_export_snapshot()`; without one every connection has a snapshot of its own.
    pub(super) fn new(connect: &'a Connect<'a>, snapshot: Option<&str>) -> Site<'a> {
        let import = snapshot.map_or(String::new(), |name| format!("set transaction snapshot '{name}';"));
        let begin = format!("begin isolation level repeatable read read only; {import} {SETTINGS}");
        Site { connect, begin, imports: snapshot.is_some(), backends: Mutex::new(Vec::new()) }
    }
}

/// What threads share.
pub(super) struct Workers<'a> {
    sites: Vec<Site<'a>>,
    stop: &'a Stop,
    /// One of the threads has failed; the others may as well end.
    abandoned: AtomicBool,
    rows_done: AtomicU64,
}

impl<'a> Workers<'a> {
    pub(super) fn new(sites: Vec<Site<'a>>, stop: &'a Stop) -> Workers<'a> {
        Workers { sites, stop, abandoned: AtomicBool::new(false), rows_done: AtomicU64::new(0) }
    }

    /// How many servers there are.
    pub(super) fn sites(&self) -> usize {
        self.sites.len()
    }

    /// A connection in the common snapshot of a server.
    pub(super) fn open(&self, site: usize) -> Result<Reader<Box<dyn Socket>>, VerifyError> {
        self.check()?;
        let site = &self.sites[site];
        let doing = "opening a snapshot of the table";
        let mut reader = Reader::new((site.connect)()?);
        // Alone: with BEGIN in one message it is a part of the transaction, and Multimaster then has a snapshot already.
        reader.execute(doing, "set client_encoding = 'SQL_ASCII'")?;
        reader.execute(doing, &site.begin).map_err(|error| match error {
            VerifyError::Server { doing, source } if site.imports && is_foreign_snapshot(&source) => {
                VerifyError::Balanced { doing, source }
            }
            error => error,
        })?;
        reader.query(doing, "select pg_backend_pid()", |row| {
            let pid = number(doing, row.first().copied().flatten())? as i32;
            site.backends.lock().unwrap_or_else(PoisonError::into_inner).push(pid);
            Ok(())
        })?;
        // A stop that came before the backend was known has not reached it.
        self.check()?;
        Ok(reader)
    }

    /// Fails when there is no use in going on.
    pub(super) fn check(&self) -> Result<(), VerifyError> {
        let go_on = self.stop.level() == StopLevel::Run && !self.abandoned.load(Ordering::Relaxed);
        if go_on { Ok(()) } else { Err(VerifyError::Interrupted) }
    }

    /// Counts rows for the progress.
    pub(super) fn did(&self, rows: u64) {
        self.rows_done.fetch_add(rows, Ordering::Relaxed);
    }
}

/// Applied to every connection: no timeout may end a scan of a day, but a wait for a lock is reported; and an index may be
/// the very thing that is damaged. Row-level security shall end a statement and not hide rows, and no view of a user is read:
/// see [`crate::connections::SETTINGS`].
pub(super) const SETTINGS: &str = "set local statement_timeout = 0; set local idle_in_transaction_session_timeout = 0; \
     set local lock_timeout = '5s'; set local enable_indexscan = off; set local enable_indexonlyscan = off; \
     set local enable_bitmapscan = off; \
     select set_config(name, case name when 'row_security' then 'off' else 'view' end, true) \
     from pg_settings where name in ('row_security', 'restrict_nonsystem_relation_kind');";

/// A number in an answer.
pub(super) fn number(doing: &str, text: Option<&str>) -> Result<i128, VerifyError> {
    let text = text.unwrap_or("null");
    text.parse().map_err(|_| VerifyError::Answer { doing: doing.to_owned(), answer: text.to_owned() })
}

/// The coordinating thread's own things.
pub(super) struct Coordinator<'a> {
    /// One per site, which cancels its statements.
    controls: Vec<&'a mut Client>,
    observer: &'a mut dyn FnMut(&VerifyProgress),
    start: Instant,
    last_tick: Instant,
}

/// One thread's work.
pub(super) type Task<'a, R> = Box<dyn FnOnce() -> Result<R, VerifyError> + Send + 'a>;

impl<'a> Coordinator<'a> {
    pub(super) fn new(
        controls: Vec<&'a mut Client>,
        observer: &'a mut dyn FnMut(&VerifyProgress),
    ) -> Coordinator<'a> {
        let now = Instant::now();
        Coordinator { controls, observer, start: now, last_tick: now }
    }

    /// Runs each task in a thread and waits for all; the first error that is not a consequence of another is the result.
    pub(super) fn run<R: Send>(
        &mut self,
        workers: &Workers<'_>,
        phase: Phase,
        rows_total: u64,
        tasks: Vec<Task<'_, R>>,
    ) -> Result<Vec<R>, VerifyError> {
        workers.rows_done.store(0, Ordering::Relaxed);
        let mut results = Vec::with_capacity(tasks.len());
        let mut error: Option<VerifyError> = None;
        thread::scope(|scope| {
            let (ended, end) = mpsc::channel();
            let mut threads = Vec::with_capacity(tasks.len());
            for task in tasks {
                let ended = ended.clone();
                threads.push(scope.spawn(move || {
                    let result = task();
                    // The receiver lives until all have ended.
                    let _ = ended.send(result.is_err());
                    result
                }));
            }
            drop(ended);
            loop {
                match end.recv_timeout(POLL) {
                    Ok(failed) => workers.abandoned.fetch_or(failed, Ordering::Relaxed),
                    Err(RecvTimeoutError::Disconnected) => break,
                    Err(RecvTimeoutError::Timeout) => false,
                };
                self.tick(workers, phase, rows_total);
                if workers.check().is_err() {
                    self.cancel(workers);
                }
            }
            for thread in threads {
                match thread.join() {
                    Ok(Ok(result)) => results.push(result),
                    Ok(Err(VerifyError::Interrupted)) => {}
                    Ok(Err(first)) => {
                        error.get_or_insert(first);
                    }
                    Err(panic) => resume_unwind(panic),
                }
            }
        });
        for site in &workers.sites {
            site.backends.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
        if workers.stop.level() != StopLevel::Run {
            return Err(VerifyError::Interrupted);
        }
        error.map_or(Ok(results), Err)
    }

    fn tick(&mut self, workers: &Workers<'_>, phase: Phase, rows_total: u64) {
        let now = Instant::now();
        if now - self.last_tick >= TICK {
            self.last_tick = now;
            let rows_done = workers.rows_done.load(Ordering::Relaxed);
            let elapsed = now - self.start;
            (self.observer)(&VerifyProgress { phase, rows_done, rows_total, elapsed });
        }
    }

    /// Ends the statements that threads are waiting for. If the server does not hear us either, the threads find out by themselves.
    fn cancel(&mut self, workers: &Workers<'_>) {
        for (control, site) in self.controls.iter_mut().zip(&workers.sites) {
            let backends = site.backends.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let _ = control.execute(
                "select pg_cancel_backend(pid) from unnest($1::int[]) as backend (pid)",
                &[&backends],
            );
        }
    }
}

/// Pieces of work that only one server can do, handed out to that server's connections.
pub(super) struct Queues {
    sites: Vec<Queue>,
}

/// One server's.
#[derive(Default)]
struct Queue {
    items: Vec<usize>,
    next: AtomicUsize,
}

impl Queues {
    /// `items`: numbers of pieces with their site.
    pub(super) fn new(sites: usize, items: impl Iterator<Item = (usize, usize)>) -> Queues {
        let mut queues = Queues { sites: (0..sites).map(|_| Queue::default()).collect() };
        for (site, item) in items {
            queues.sites[site].items.push(item);
        }
        queues
    }

    /// Which connections to open: the site of each, and how many further processes each may ask its server for. `jobs` is divided
    /// among the servers that have something to do; each gets one connection at least.
    pub(super) fn connections(&self, jobs: usize) -> Vec<(usize, usize)> {
        let busy = self.sites.iter().filter(|queue| !queue.items.is_empty()).count();
        let share = jobs.div_ceil(busy.max(1)).max(1);
        let mut connections = Vec::new();
        for (site, queue) in self.sites.iter().enumerate().filter(|(_, queue)| !queue.items.is_empty()) {
            let count = share.min(queue.items.len());
            connections.extend((0..count).map(|_| (site, share / count - 1)));
        }
        connections
    }

    /// The next piece for a connection of this site.
    pub(super) fn next(&self, site: usize) -> Option<usize> {
        let queue = &self.sites[site];
        queue.items.get(queue.next.fetch_add(1, Ordering::Relaxed)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workers<'a>(connect: &'a Connect<'a>, stop: &'a Stop) -> Workers<'a> {
        Workers::new(vec![Site::new(connect, Some("00000003-1"))], stop)
    }

    fn no_connection() -> Result<Box<dyn Socket>, VerifyError> {
        Err(VerifyError::NoDataset { wanted: "ycsb" })
    }

    #[test]
    fn a_stop_ends_the_work() {
        let stop = Stop::new();
        let workers = workers(&no_connection, &stop);
        stop.request();
        assert!(matches!(workers.check(), Err(VerifyError::Interrupted)));
        assert!(matches!(workers.open(0), Err(VerifyError::Interrupted)));
    }

    #[test]
    fn pieces_go_to_connections_of_their_own_server() {
        let queues = Queues::new(3, [(0, 10), (2, 12), (0, 11), (2, 13), (2, 14)].into_iter());
        // Four jobs over the two servers that have work.
        assert_eq!(queues.connections(4), [(0, 0), (0, 0), (2, 0), (2, 0)]);
        assert_eq!(queues.connections(1), [(0, 0), (2, 0)], "each server needs one");
        assert_eq!(queues.connections(8), [(0, 1), (0, 1), (2, 0), (2, 0), (2, 0)]);
        assert_eq!(
            (queues.next(0), queues.next(2), queues.next(0), queues.next(0)),
            (Some(10), Some(12), Some(11), None)
        );
        assert_eq!(queues.next(1), None);
        // One server: what one server always got.
        let one = Queues::new(1, (0..2).map(|item| (0, item)));
        assert_eq!(one.connections(6), [(0, 2), (0, 2)]);
        assert!(Queues::new(1, std::iter::empty()).connections(4).is_empty());
    }

    #[test]
    fn numbers_are_read_and_others_refused() {
        assert_eq!(number("x", Some("-18446744073709551617")).unwrap(), -18446744073709551617);
        assert!(matches!(number("x", None), Err(VerifyError::Answer { .. })));
        assert!(matches!(number("x", Some("1.5")), Err(VerifyError::Answer { .. })));
    }
}

//! One run: workers on threads of their own, a collector that receives from them once a second, and the account at the end.

mod collector;
mod leftover;
mod worker_thread;

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use mio::Waker;
use rustix::time::{ClockId, clock_gettime};

use crate::client::{Plan, SessionRecord};
use crate::control::{Control, Failure, Outage, StopFlag};
use crate::engine::connector::{Connector, Dial, Move};
use crate::engine::link::Traffic;
use crate::engine::poller::{Choice, Poller};
use crate::engine::reactor::EpollReactor;
use crate::engine::{NANOS_PER_MICRO, NANOS_PER_SECOND, Nanos};
use crate::random::Random;
use crate::routing::Connects;
use crate::schedule::Pace;
use crate::tally::{Posted, Shape};
use crate::workload::{Mix, Workload};
use collector::{Collected, Collector};
use leftover::Leftover;
use worker_thread::{Assignment, Post, Worked, work};

/// Most sessions of one run: a session's number has 14 bits inside a written value.
pub const SESSIONS_MAX: u64 = 1 << 14;
/// Most worker threads of one run.
pub const WORKERS_MAX: usize = 1_024;
/// How long transactions under way at the end may take to finish before they are dropped and counted as unfinished.
const DRAIN_LIMIT: Nanos = 30 * NANOS_PER_SECOND;

/// What to run.
#[derive(Debug)]
pub struct Options<W> {
    /// The mix.
    pub mix: Mix<W>,
    /// Sessions, `-c`.
    pub sessions: u64,
    /// Worker threads, `-j`.
    pub workers: usize,
    /// When transactions start, for the whole run.
    pub pace: Pace,
    /// Measured time; `None`: until every session has done its transactions.
    pub duration: Option<Duration>,
    /// Time before it that is driven but not measured.
    pub warmup: Duration,
    /// Transactions per session, `-t`.
    pub transactions_per_session: Option<u64>,
    /// `-L`: what takes longer is late; with a rate, what cannot even begin in time is skipped.
    pub latency_limit: Option<Duration>,
    /// Tries of a transaction, the first included; 0: no limit.
    pub tries_max: u64,
    /// Messages and formats.
    pub wire: wire::prepared::Wire,
    /// How workers wait for sockets.
    pub poller: Choice,
    /// Chooses every draw.
    pub seed: u64,
    /// The node where each session enters, where nodes are distinguished.
    pub connects: Connects,
    /// The number of the first session; above 0 where several drives are parts of one run.
    pub first_session: u64,
}

/// What the collector reports while the run is on.
pub trait Observer {
    /// All sessions are connected; the run begins at this moment of the monotonic clock.
    fn begins(&mut self, begin: Nanos);
    /// A second has passed.
    fn second(&mut self, second: &Second<'_>);
    /// Called during the warm-up: whether it may end early because enough has been seen.
    fn is_settled(&mut self) -> bool {
        false
    }
    /// The warm-up ends early: the measured part begins at this moment.
    fn measures_from(&mut self, _moment: Nanos) {}
}

/// One second of a run.
#[derive(Clone, Copy, Debug)]
pub struct Second<'a> {
    /// Its start on the monotonic clock.
    pub from: Nanos,
    /// Its end.
    pub to: Nanos,
    /// What was counted in it.
    pub posted: &'a Posted,
    /// Sessions connected at its end.
    pub connected: usize,
    /// Transactions that were to start in it; in a closed loop those that did.
    pub scheduled: u64,
    /// Arrivals that were due at its end and waited for a session.
    pub backlog: u64,
    /// CPU time of this process in it, user and system.
    pub client_cpu: Nanos,
    /// It belongs to the warm-up.
    pub is_warmup: bool,
}

/// The account of a run.
#[derive(Debug)]
pub struct Account {
    /// Everything counted, apart for warm-up and measured window.
    pub posted: Posted,
    /// Begin of the run (warm-up) on the monotonic clock.
    pub begin: Nanos,
    /// Begin of the measured window.
    pub measure_from: Nanos,
    /// End of the last transaction.
    pub end: Nanos,
    /// Transactions that were to start, warm-up included.
    pub scheduled: u64,
    /// Skipped because they were already later than the latency limit.
    pub skipped: u64,
    /// Due before the end, but every session was busy to the last.
    pub unstarted: u64,
    /// Begun, and dropped before their outcome was known.
    pub unfinished: u64,
    /// Sessions whose statement the server was requested to give up at the end.
    pub cancelled: u64,
    /// Those of them whose statement still went on when that was no longer waited for.
    pub still_at_work: u64,
    /// CPU time of this process in the measured window.
    pub client_cpu: Nanos,
    /// CPU time of the worker thread with the least time to spare, as a share of the measured window, 0 to 1.
    pub worker_cpu_share_max: f64,
    /// The share of the measured window that the same thread was ready to run but had no CPU; `None` where the kernel does not report it.
    pub worker_wait_share_max: Option<f64>,
    /// System calls and bytes of all sessions, connecting and warm-up included.
    pub traffic: Traffic,
    /// How the workers waited for sockets.
    pub poller: Poller,
    /// Times during which the target was of no use, and when its throughput was back.
    pub outages: Vec<Outage>,
    /// Where connections led, if they may lead to several servers: the first one, and each change.
    pub moves: Vec<Move>,
    /// Connections lost, and made again.
    pub lost: u64,
    /// Connections made again.
    pub reconnected: u64,
    /// Commits that were acknowledged although the wait for their standbys was cancelled: they may be on no standby.
    pub weak_commits: u64,
    /// Failed transactions that would have been tried again, had the run not been over.
    pub cut_off: u64,
    /// Sessions that ended before the run did, because their script cannot go on.
    pub aborted: u64,
    /// Why the first of them did.
    pub abort: Option<String>,
    /// A stop was requested.
    pub is_interrupted: bool,
    /// Each session's transactions, in the order of session numbers.
    pub sessions: Vec<SessionRecord>,
    /// Bytes in the sessions' buffers at the end.
    pub buffer_bytes: usize,
}

impl Account {
    /// Length of the measured window.
    pub fn measured(&self) -> Duration {
        Duration::from_nanos(self.end.saturating_sub(self.measure_from))
    }

    /// Transactions that failed, but for those that only the end of the time kept from another try: they are no failure of the target.
    pub fn failed(&self) -> u64 {
        (self.posted.measured.failed() + self.posted.warmup.failed()).saturating_sub(self.cut_off)
    }

    /// The server where sessions went on after an outage, if it was another one.
    pub fn server_after(&self, outage: &Outage) -> Option<&str> {
        let during = outage.from..=outage.to.unwrap_or(self.end);
        let mut changes = self.moves.iter().skip(1);
        changes.find(|change| during.contains(&change.at)).map(|change| change.to.as_str())
    }
}

const RESOURCES_HINT: &str = "raise the limit of open files (ulimit -n) or use fewer sessions (-c)";

/// Why there was no run.
#[derive(Debug, thiserror::Error)]
pub enum DriveError {
    /// A session could not connect or prepare.
    #[error("{}", .0.message)]
    Failed(Failure),
    /// A thread of this client ended in the midst of the run: what was measured until then is in the run directory, without an account.
    #[error("{}", .0.message)]
    BrokeDown(Failure),
    /// Not all sessions were ready in time.
    #[error("only {ready} of {sessions} sessions were connected after {seconds} s")]
    NotReady {
        /// Sessions ready.
        ready: usize,
        /// Sessions wanted.
        sessions: u64,
        /// Time waited.
        seconds: u64,
    },
    /// A stop was requested before it began.
    #[error("interrupted before the run began")]
    Interrupted,
    /// io_uring was requested by name.
    #[error("the kernel of this host refuses an io_uring: {0}")]
    NoRing(#[source] std::io::Error),
    /// The system refused a thread, a timer or an epoll set.
    #[error("this host refused a resource that the run needs: {0}")]
    Io(#[from] std::io::Error),
}

impl DriveError {
    /// No transaction was started.
    pub fn is_before_begin(&self) -> bool {
        match self {
            DriveError::Failed(_)
            | DriveError::NotReady { .. }
            | DriveError::Interrupted
            | DriveError::NoRing(_) => true,
            DriveError::BrokeDown(_) | DriveError::Io(_) => false,
        }
    }

    /// What to type next.
    pub fn hint(&self) -> Option<String> {
        match self {
            DriveError::Failed(failure) | DriveError::BrokeDown(failure) => failure.hint.clone(),
            DriveError::NotReady { .. } => {
                Some("use fewer sessions (-c), or check what the server is doing".into())
            }
            DriveError::Io(_) => Some(RESOURCES_HINT.into()),
            DriveError::NoRing(_) => Some(
                "omit --poller, or use --poller epoll; io_uring needs Linux 6.1 or later and kernel.io_uring_disabled = 0"
                    .into(),
            ),
            DriveError::Interrupted => None,
        }
    }
}

/// Drives a target: returns when every session has ended.
pub fn drive<W: Workload>(
    options: Options<W>,
    dial: Arc<dyn Dial>,
    stop: &StopFlag,
    observer: &mut dyn Observer,
) -> Result<Account, DriveError> {
    let poller = options.poller.resolve().map_err(DriveError::NoRing)?;
    let control = Arc::new(Control::default());
    control.set_dial(dial.follows_writes(), dial.isolated());
    let workers = options.workers.clamp(1, options.sessions.max(1) as usize);
    let shape = Shape { types: options.mix.items().len(), nodes: options.connects.nodes() };
    let plan = Arc::new(Plan {
        mix: options.mix,
        wire: options.wire,
        seed: options.seed,
        tries_max: options.tries_max,
        transactions_per_session: options.transactions_per_session,
        control: Arc::clone(&control),
    });
    let posts: Vec<Arc<Post>> = (0..workers).map(|_| Arc::new(Post::new(shape))).collect();
    // However this function is left, an observer that panics included, no worker goes on without it.
    let mut running = RunningWorkers { control: &control, wakers: Vec::with_capacity(workers) };
    let mut threads = Vec::with_capacity(workers);
    for (index, post) in posts.iter().enumerate() {
        let reactor = EpollReactor::new()?;
        running.wakers.push(reactor.waker());
        let range = part(options.sessions, index, workers);
        let number = options.first_session + range.start;
        let connector = connector(&dial, number, &control, &reactor)?;
        let assignment = Assignment {
            plan: Arc::clone(&plan),
            post: Arc::clone(post),
            first_session: number,
            sessions: (range.end - range.start) as usize,
            shape,
            pace: pace_of(&options.pace, &range, options.sessions, (index as u64, workers as u64)),
            nodes: range.map(|index| options.connects.of(index)).collect(),
            latency_limit: options.latency_limit.map(|limit| limit.as_nanos() as Nanos),
            arrivals: Random::for_stream(options.seed, options.first_session + index as u64),
        };
        let control = Arc::clone(&control);
        let thread = std::thread::Builder::new()
            .name(format!("worker {index}"))
            .spawn(move || watched(&control, || work(assignment, poller, reactor, connector)))?;
        threads.push(thread);
    }
    let collector = Collector {
        control: &control,
        posts: &posts,
        wakers: &running.wakers,
        stop,
        shape,
        sessions: options.sessions,
        warmup: options.warmup.as_nanos() as Nanos,
        duration: options.duration.map(|duration| duration.as_nanos() as Nanos),
    };
    let collected = collector.collect(observer);
    if collected.is_err() {
        running.dismiss();
    }
    let (results, leftover) = join(threads);
    let collected = collected?;
    let (Some(results), false) = (results.into_iter().collect::<Option<Vec<_>>>(), control.is_broken())
    else {
        return Err(broke_down(&control));
    };
    let account = account(collected, results, &control, &posts, poller);
    let Leftover { cancelled, still_at_work } = leftover;
    Ok(Account { moves: dial.moves(), cancelled, still_at_work, ..account })
}

/// Starts the thread that connects a worker's sessions.
fn connector(
    dial: &Arc<dyn Dial>,
    first_session: u64,
    control: &Arc<Control>,
    reactor: &EpollReactor,
) -> Result<Connector, DriveError> {
    let waker = reactor.waker();
    Ok(Connector::start(Arc::clone(dial), first_session, Arc::clone(control), move || waker.wake())?)
}

/// Awaits the workers. One without a result has reported why; then the others have been abandoned, and end at once. However the run has ended, the
/// server is not left with what nothing waits for.
fn join(threads: Vec<JoinHandle<Option<Worked>>>) -> (Vec<Option<Worked>>, Leftover) {
    let mut results: Vec<Option<Worked>> =
        threads.into_iter().map(|thread| thread.join().unwrap_or_default()).collect();
    let left = results.iter_mut().flatten().flat_map(|worked| std::mem::take(&mut worked.unanswered));
    let leftover = leftover::cancel(left.collect());
    (results, leftover)
}

/// The sessions of one worker.
fn part(sessions: u64, worker: usize, workers: usize) -> Range<u64> {
    let (worker, workers) = (worker as u64, workers as u64);
    sessions * worker / workers..sessions * (worker + 1) / workers
}

/// The pace of the worker that has this range of all sessions.
fn pace_of(pace: &Pace, range: &Range<u64>, sessions: u64, (worker, workers): (u64, u64)) -> Pace {
    let share = (range.end - range.start) as f64 / sessions as f64;
    match *pace {
        Pace::Closed => Pace::Closed,
        Pace::Poisson { per_second } => Pace::Poisson { per_second: per_second * share },
        Pace::Regular { per_second } => Pace::Regular { per_second: per_second * share },
        Pace::Terminals(users) => Pace::Terminals(users.part(worker, workers)),
    }
}

/// The workers, as long as they are needed.
struct RunningWorkers<'a> {
    control: &'a Control,
    wakers: Vec<Arc<Waker>>,
}

impl RunningWorkers<'_> {
    /// All of them drop everything.
    fn dismiss(&self) {
        self.control.abandon();
        collector::wake_all(&self.wakers);
    }
}

impl Drop for RunningWorkers<'_> {
    fn drop(&mut self) {
        self.dismiss();
    }
}

/// A worker's life: should it end by an error or a panic, the run does, too, and with its words.
fn watched(control: &Control, work: impl FnOnce() -> std::io::Result<Worked>) -> Option<Worked> {
    let failure = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(worked)) => return Some(worked),
        Ok(Err(error)) => Failure {
            message: format!("this host refused a resource that the run needs: {error}"),
            hint: Some(RESOURCES_HINT.into()),
        },
        Err(panic) => Failure::of_panic("worker", &*panic),
    };
    control.break_down(failure);
    None
}

/// The reason of a run that lost a thread.
fn broke_down(control: &Control) -> DriveError {
    let unknown =
        || Failure { message: "a thread of this client ended before the run did".into(), hint: None };
    DriveError::BrokeDown(control.failure().unwrap_or_else(unknown))
}

/// CPU time of this process, all threads, user and system.
pub(crate) fn process_cpu() -> Nanos {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as u64 * NANOS_PER_SECOND + time.tv_nsec as u64
}

/// What carried the messages: connections with TLS leave the ring nothing to carry.
fn poller_of(traffic: &Traffic, chosen: Poller) -> Poller {
    if traffic.receives > 0 && !traffic.by_ring { Poller::Epoll } else { chosen }
}

fn account(
    collected: Collected,
    results: Vec<Worked>,
    control: &Control,
    posts: &[Arc<Post>],
    poller: Poller,
) -> Account {
    let end = results.iter().map(|result| result.end).max().unwrap_or(collected.measure_from);
    let window = (end.saturating_sub(collected.measure_from)).max(NANOS_PER_MICRO) as f64;
    let mut posted = collected.posted;
    // Whatever was published between the collector's last look and a worker's end.
    for post in posts {
        post.slot.take(&mut posted);
    }
    let mut account = Account {
        begin: collected.begin,
        measure_from: collected.measure_from,
        end,
        scheduled: 0,
        skipped: 0,
        unstarted: 0,
        unfinished: 0,
        cancelled: 0,
        still_at_work: 0,
        client_cpu: collected.cpu_at_end.saturating_sub(collected.cpu_at_measure_from),
        worker_cpu_share_max: 0.0,
        worker_wait_share_max: None,
        traffic: Traffic::default(),
        poller,
        outages: collected.recovery.finish(&control.outages(end)),
        moves: Vec::new(),
        lost: control.lost.load(Ordering::Relaxed),
        reconnected: control.reconnected.load(Ordering::Relaxed),
        weak_commits: control.weak_commits.load(Ordering::Relaxed),
        cut_off: control.cut_off.load(Ordering::Relaxed),
        aborted: control.aborted.load(Ordering::Relaxed),
        abort: control.abort(),
        is_interrupted: collected.is_interrupted,
        sessions: Vec::new(),
        buffer_bytes: 0,
        posted,
    };
    for mut result in results {
        account.unstarted += result.schedule.take_unstarted(end);
        account.scheduled += result.schedule.arrivals();
        account.skipped += result.schedule.skipped();
        account.traffic.add(result.traffic);
        account.buffer_bytes += result.buffer_bytes;
        account.sessions.extend(result.sessions);
        // Of the worker that had the least time to spare.
        let busy = result.measured_cpu as f64 / window;
        let waited = result.measured_wait.map(|wait| wait as f64 / window);
        let known = account.worker_cpu_share_max + account.worker_wait_share_max.unwrap_or(0.0);
        if busy + waited.unwrap_or(0.0) >= known {
            (account.worker_cpu_share_max, account.worker_wait_share_max) = (busy, waited);
        }
    }
    account.poller = poller_of(&account.traffic, poller);
    let started = account.posted.measured.started + account.posted.warmup.started;
    let intervals = [&account.posted.measured, &account.posted.warmup];
    let ended: u64 = intervals.map(|interval| interval.transactions() + interval.failed()).iter().sum();
    account.unfinished = started - ended;
    assert_eq!(
        account.scheduled,
        started + account.skipped + account.unstarted,
        "every scheduled transaction is started, skipped or unstarted"
    );
    account
}

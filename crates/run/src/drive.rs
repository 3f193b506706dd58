//! One run: workers on threads of their own, a collector that hears from them once a second, and the account at the end.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mio::Waker;
use record::clock::monotonic_ns;
use rustix::time::{ClockId, clock_gettime};

use crate::client::{Client, Plan, SessionRecord};
use crate::control::{Control, Failure, Outage, StopFlag};
use crate::engine::connector::{Connector, Dial};
use crate::engine::link::Traffic;
use crate::engine::reactor::EpollReactor;
use crate::engine::session::Shared;
use crate::engine::worker::{Housekeeping, Worker};
use crate::engine::{NANOS_PER_MICRO, NANOS_PER_SECOND, Nanos};
use crate::random::Random;
use crate::schedule::{Pace, Schedule};
use crate::tally::{Posted, Slot, Tally};
use crate::workload::Workload;

/// Between "everybody is ready" and the first start: longer than a worker takes to hear of it.
const START_DELAY: Nanos = NANOS_PER_SECOND / 20;
/// How often the collector looks at flags.
const COLLECTOR_PAUSE: Duration = Duration::from_millis(20);
/// How long after a full second the workers' counts of that second are collected.
const COLLECT_AFTER: Nanos = NANOS_PER_SECOND / 20;
/// How long transactions under way at the end may take to finish before they are dropped and counted as unfinished.
const DRAIN_LIMIT: Nanos = 30 * NANOS_PER_SECOND;
/// How long all sessions together may take to connect and prepare.
const READY_LIMIT: Nanos = 120 * NANOS_PER_SECOND;
/// Most sessions of one run: a session's number has 14 bits inside a written value.
pub const SESSIONS_MAX: u64 = 1 << 14;
/// Most worker threads of one run.
pub const WORKERS_MAX: usize = 1_024;

/// What to run.
#[derive(Debug)]
pub struct Options {
    /// The mix.
    pub workload: Workload,
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
    /// Chooses every draw.
    pub seed: u64,
}

/// What the collector tells while the run is on.
pub trait Observer {
    /// All sessions are connected; the run begins at this moment of the monotonic clock.
    fn begins(&mut self, begin: Nanos);
    /// A second has passed.
    fn second(&mut self, second: &Second<'_>);
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
    /// CPU time of this process in the measured window.
    pub client_cpu: Nanos,
    /// CPU time of the worker thread with the least time to spare, as a share of the measured window, 0 to 1.
    pub worker_cpu_share_max: f64,
    /// The share of the measured window that the same thread was ready to run but had no CPU; `None` where the kernel does not tell.
    pub worker_wait_share_max: Option<f64>,
    /// System calls and bytes of all sessions, connecting and warm-up included.
    pub traffic: Traffic,
    /// Times without a connection.
    pub outages: Vec<Outage>,
    /// Connections lost, and made again.
    pub lost: u64,
    /// Connections made again.
    pub reconnected: u64,
    /// Somebody asked to stop.
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
}

/// Why there was no run.
#[derive(Debug, thiserror::Error)]
pub enum DriveError {
    /// A session could not connect or prepare.
    #[error("{}", .0.message)]
    Failed(Failure),
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
    /// Somebody asked to stop before it began.
    #[error("interrupted before the run began")]
    Interrupted,
    /// The system refused a thread, a timer or an epoll set.
    #[error("this machine refused a resource of the run: {0}")]
    Io(#[from] std::io::Error),
}

impl DriveError {
    /// What to type next.
    pub fn hint(&self) -> Option<String> {
        match self {
            DriveError::Failed(failure) => failure.hint.clone(),
            DriveError::NotReady { .. } => {
                Some("use fewer sessions (-c), or look at what the server is doing".into())
            }
            DriveError::Io(_) => {
                Some("raise the limit of open files (ulimit -n) or use fewer sessions (-c)".into())
            }
            DriveError::Interrupted => None,
        }
    }
}

/// Drives a target: returns when every session has ended.
pub fn drive(
    options: Options,
    dial: Arc<dyn Dial>,
    stop: &StopFlag,
    observer: &mut dyn Observer,
) -> Result<Account, DriveError> {
    let control = Arc::new(Control::default());
    let workers = options.workers.clamp(1, options.sessions.max(1) as usize);
    let kinds = options.workload.items().len();
    let plan = Arc::new(Plan {
        workload: options.workload,
        wire: options.wire,
        seed: options.seed,
        tries_max: options.tries_max,
        transactions_per_session: options.transactions_per_session,
        control: Arc::clone(&control),
    });
    let posts: Vec<Arc<Post>> = (0..workers).map(|_| Arc::new(Post::new(kinds))).collect();
    let mut wakers = Vec::with_capacity(workers);
    let mut threads = Vec::with_capacity(workers);
    for (index, post) in posts.iter().enumerate() {
        let reactor = EpollReactor::new()?;
        wakers.push(reactor.waker());
        let first = options.sessions * index as u64 / workers as u64;
        let last = options.sessions * (index as u64 + 1) / workers as u64;
        let waker = reactor.waker();
        let connector = Connector::start(Arc::clone(&dial), first, move || waker.wake())?;
        let share = (last - first) as f64 / options.sessions as f64;
        let seat = Seat {
            plan: Arc::clone(&plan),
            post: Arc::clone(post),
            first_session: first,
            sessions: (last - first) as usize,
            pace: match options.pace {
                Pace::Closed => Pace::Closed,
                Pace::Poisson { per_second } => Pace::Poisson { per_second: per_second * share },
                Pace::Regular { per_second } => Pace::Regular { per_second: per_second * share },
            },
            warmup: options.warmup.as_nanos() as Nanos,
            latency_limit: options.latency_limit.map(|limit| limit.as_nanos() as Nanos),
            arrivals: Random::for_stream(options.seed, index as u64),
        };
        let thread = std::thread::Builder::new()
            .name(format!("worker {index}"))
            .spawn(move || work(seat, reactor, connector))?;
        threads.push(thread);
    }
    let collector = Collector {
        control: &control,
        posts: &posts,
        wakers: &wakers,
        stop,
        kinds,
        sessions: options.sessions,
        warmup: options.warmup.as_nanos() as Nanos,
        duration: options.duration.map(|duration| duration.as_nanos() as Nanos),
    };
    let collected = collector.collect(observer);
    if collected.is_err() {
        control.abandon();
        collector.wake_all();
    }
    let mut results = Vec::with_capacity(workers);
    for thread in threads {
        // A panic of a worker is a bug: it goes on here, with its message, instead of becoming a wrong account.
        results.push(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
    }
    let collected = collected?;
    Ok(account(collected, results, &control, &posts))
}

/// What a worker thread and the collector share.
#[derive(Debug)]
struct Post {
    slot: Slot,
    /// Arrivals handed out, skipped or waiting so far.
    scheduled: AtomicU64,
    /// Arrivals waiting.
    backlog: AtomicU64,
    is_finished: std::sync::atomic::AtomicBool,
}

impl Post {
    fn new(kinds: usize) -> Post {
        Post {
            slot: Slot::new(kinds),
            scheduled: AtomicU64::new(0),
            backlog: AtomicU64::new(0),
            is_finished: std::sync::atomic::AtomicBool::new(false),
        }
    }
}

/// What a worker thread is given.
struct Seat {
    plan: Arc<Plan>,
    post: Arc<Post>,
    first_session: u64,
    sessions: usize,
    pace: Pace,
    warmup: Nanos,
    latency_limit: Option<Nanos>,
    arrivals: Random,
}

/// What a worker thread leaves behind.
struct Worked {
    sessions: Vec<SessionRecord>,
    scheduled: u64,
    skipped: u64,
    unstarted: u64,
    traffic: Traffic,
    buffer_bytes: usize,
    end: Nanos,
    measured_cpu: Nanos,
    measured_wait: Option<Nanos>,
}

fn work(seat: Seat, reactor: EpollReactor, connector: Connector) -> std::io::Result<Worked> {
    let is_open_loop = seat.pace != Pace::Closed;
    let skip = seat.latency_limit.filter(|_| is_open_loop);
    let shared = Shared::new(Schedule::new(seat.pace, skip, seat.arrivals), seat.sessions);
    let kinds = seat.plan.workload.items().len();
    let tally = Rc::new(RefCell::new(Tally::new(kinds, is_open_loop, seat.latency_limit)));
    let records: Vec<Rc<RefCell<SessionRecord>>> = (0..seat.sessions).map(|_| Rc::default()).collect();
    let mut worker =
        Worker::new(reactor, Rc::clone(&shared), Box::new(connector), seat.sessions, |session| {
            let client = Client {
                plan: Arc::clone(&seat.plan),
                number: seat.first_session + session.index as u64,
                tally: Rc::clone(&tally),
                record: Rc::clone(&records[session.index]),
            };
            Box::pin(client.live(session))
        });
    let mut housekeeper = Housekeeper {
        control: Arc::clone(&seat.plan.control),
        post: Arc::clone(&seat.post),
        shared: Rc::clone(&shared),
        tally: Rc::clone(&tally),
        warmup: seat.warmup,
        heard: usize::MAX,
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
    seat.post.is_finished.store(true, Ordering::Release);
    outcome?;
    let mut schedule = shared.schedule.borrow_mut();
    let unstarted = schedule.take_unstarted();
    Ok(Worked {
        sessions: records.iter().map(|record| record.borrow().clone()).collect(),
        scheduled: schedule.arrivals(),
        skipped: schedule.skipped(),
        unstarted,
        traffic: worker.traffic(),
        buffer_bytes: worker.buffer_bytes(),
        end,
        measured_cpu,
        measured_wait,
    })
}

/// The worker's own pace: publishes once a second, hears of begin, end and abandonment.
struct Housekeeper {
    control: Arc<Control>,
    post: Arc<Post>,
    shared: Rc<Shared>,
    tally: Rc<RefCell<Tally>>,
    warmup: Nanos,
    /// The control's attention count when it was last looked at.
    heard: usize,
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

    fn hear(&mut self, now: Nanos) {
        let Some((begin, end)) = self.control.window() else { return };
        if self.measure_from == Nanos::MAX {
            self.measure_from = begin + self.warmup;
            self.next_tick = begin;
            self.tally.borrow_mut().measure_from(self.measure_from);
            self.shared.schedule.borrow_mut().open(begin, end);
        } else if end <= now {
            self.shared.schedule.borrow_mut().stop(end);
        }
    }
}

impl Housekeeping for Housekeeper {
    #[inline]
    fn is_due(&self, now: Nanos) -> bool {
        now >= self.next_tick || self.control.attention() != self.heard
    }

    fn next_tick(&self) -> Nanos {
        self.next_tick
    }

    fn tick(&mut self, now: Nanos) -> bool {
        let attention = self.control.attention();
        if attention != self.heard {
            self.heard = attention;
            self.hear(now);
        }
        if self.measure_from == Nanos::MAX {
            // Not open yet: the waker tells when it is.
            self.next_tick = now + NANOS_PER_SECOND;
        } else if now >= self.next_tick {
            if now >= self.measure_from && self.at_measure_from.is_none() {
                self.at_measure_from = Some(ThreadUsage::now());
            }
            self.publish(now);
            self.next_tick += NANOS_PER_SECOND * ((now - self.next_tick) / NANOS_PER_SECOND + 1);
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

/// CPU time of this process, all threads, user and system.
pub fn process_cpu() -> Nanos {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as u64 * NANOS_PER_SECOND + time.tv_nsec as u64
}

struct Collector<'a> {
    control: &'a Control,
    posts: &'a [Arc<Post>],
    wakers: &'a [Arc<Waker>],
    stop: &'a StopFlag,
    kinds: usize,
    sessions: u64,
    warmup: Nanos,
    duration: Option<Nanos>,
}

/// What the collector knows at the end.
struct Collected {
    posted: Posted,
    begin: Nanos,
    measure_from: Nanos,
    cpu_at_measure_from: Nanos,
    cpu_at_end: Nanos,
    is_interrupted: bool,
}

impl Collector<'_> {
    fn wake_all(&self) {
        for waker in self.wakers {
            // A worker that has ended does not need to be woken.
            let _ = waker.wake();
        }
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
            if self.stop.asked() > 0 {
                return Err(DriveError::Interrupted);
            }
            if monotonic_ns() > give_up {
                let seconds = READY_LIMIT / NANOS_PER_SECOND;
                return Err(DriveError::NotReady { ready, sessions: self.sessions, seconds });
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn collect(&self, observer: &mut dyn Observer) -> Result<Collected, DriveError> {
        self.wait_until_ready()?;
        let begin = monotonic_ns() + START_DELAY;
        let measure_from = begin + self.warmup;
        let end = self.duration.map_or(Nanos::MAX, |duration| measure_from + duration);
        self.control.open(begin, end);
        self.wake_all();
        observer.begins(begin);
        let mut total = Posted::new(self.kinds);
        let mut posted = Posted::new(self.kinds);
        let mut is_interrupted = false;
        let mut drain_until = end.saturating_add(DRAIN_LIMIT);
        let mut second = Ticks { from: begin, cpu: process_cpu(), scheduled: 0 };
        let mut cpu_at_measure_from = None;
        let mut asked = 0;
        loop {
            let now = monotonic_ns();
            let finished = self.is_finished();
            if now >= measure_from && cpu_at_measure_from.is_none() {
                cpu_at_measure_from = Some(process_cpu());
            }
            if finished || now >= second.from + NANOS_PER_SECOND + COLLECT_AFTER {
                for post in self.posts {
                    post.slot.take(&mut posted);
                }
                total.add(&posted);
                let to = if finished { now } else { second.from + NANOS_PER_SECOND };
                self.report(&mut second, to, &posted, measure_from, observer);
                posted.reset();
            }
            if finished {
                break;
            }
            if self.stop.asked() > asked {
                asked = self.stop.asked();
                is_interrupted = true;
                if asked == 1 {
                    self.control.stop(now);
                    drain_until = now + DRAIN_LIMIT;
                } else {
                    self.control.abandon();
                }
                self.wake_all();
            }
            if now > drain_until {
                self.control.abandon();
                self.wake_all();
            }
            std::thread::sleep(COLLECTOR_PAUSE);
        }
        let cpu_at_end = process_cpu();
        Ok(Collected {
            posted: total,
            begin,
            measure_from,
            cpu_at_measure_from: cpu_at_measure_from.unwrap_or(cpu_at_end),
            cpu_at_end,
            is_interrupted,
        })
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

/// Where the collector's current second began.
struct Ticks {
    from: Nanos,
    cpu: Nanos,
    scheduled: u64,
}

fn account(collected: Collected, results: Vec<Worked>, control: &Control, posts: &[Arc<Post>]) -> Account {
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
        client_cpu: collected.cpu_at_end.saturating_sub(collected.cpu_at_measure_from),
        worker_cpu_share_max: 0.0,
        worker_wait_share_max: None,
        traffic: Traffic::default(),
        outages: control.outages(),
        lost: control.lost.load(Ordering::Relaxed),
        reconnected: control.reconnected.load(Ordering::Relaxed),
        is_interrupted: collected.is_interrupted,
        sessions: Vec::new(),
        buffer_bytes: 0,
        posted,
    };
    for result in results {
        account.scheduled += result.scheduled;
        account.skipped += result.skipped;
        account.unstarted += result.unstarted;
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
    let started = account.posted.measured.started + account.posted.warmup.started;
    let ended = [&account.posted.measured, &account.posted.warmup]
        .map(|interval| interval.transactions() + interval.failed())
        .iter()
        .sum::<u64>();
    account.unfinished = started - ended;
    assert_eq!(
        account.scheduled,
        started + account.skipped + account.unstarted,
        "every scheduled transaction is started, skipped or unstarted"
    );
    account
}

//! Calls every collector on an absolute schedule and writes the results, within a budget of disk space.
//!
//! | state of a collector's thread | left by |
//! |---|---|
//! | waiting for its next start | the start, to asking; the end, to closing |
//! | asking | the collector's answer, to writing |
//! | writing | always, to waiting; starts that passed meanwhile are missed, and reported as one `gap` event |
//! | closing: one last tick, then [`Collect::finish`] | the end of the thread |
//!
//! Starts are `begin + n * interval`, so a slow answer delays no other, and all collectors sample at the same times.
//!
//! Each thread records its own cost: every [`ACCOUNT_EVERY_US`] and at its end it writes a line of [`Watching`].
//!
//! The budget: while more than half of it is free, every start is taken. Each time the free part halves, every second of the remaining starts
//! is left out, and an event reports it: samples of a run of days become coarser before they stop. Events are always written.

use crate::collect::{Batch, Collect, Place, Tick, With};
use record::watched::Watching;
use record::{Clock, RecordError, RunDir, StepId, event, file};
use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Bytes of lines and files that the sampling of one run may write: at a typical 20 kB a second, half of it is seven hours.
pub(crate) const DISK_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// The default time between two ticks.
pub(crate) const INTERVAL: Duration = Duration::from_secs(1);
/// The starts are thinned out to one in this many at most.
pub(crate) const COARSENESS_MAX: u64 = 256;
/// How long the end waits for collectors that are asking.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// The interval of lines about the cost of monitoring: they must not be a cost themselves.
pub(crate) const ACCOUNT_EVERY_US: u64 = 10_000_000;
/// How often the end checks whether a thread has ended without a signal.
const BEAT: Duration = Duration::from_millis(10);
/// A start that is this part of the interval late is missed rather than taken late.
const LATE_PART: u64 = 2;

/// How to sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Time between two ticks.
    pub interval: Duration,
    /// Bytes it may leave on disk.
    pub disk_bytes_max: u64,
    /// How long the end waits for collectors that are asking: a server that was stopped never answers.
    pub patience: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options { interval: INTERVAL, disk_bytes_max: DISK_BYTES_MAX, patience: PATIENCE }
    }
}

/// The totals of all collectors.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Ticks requested and answered.
    pub ticks: u64,
    /// Starts missed because an answer took too long.
    pub missed: u64,
    /// Lines written.
    pub lines: u64,
    /// Events written.
    pub events: u64,
    /// Bytes of lines and files.
    pub bytes: u64,
    /// The final thinning: one start in this many was taken.
    pub coarseness: u64,
}

/// Threads that sample. Ends with [`Sampler::stop`], or when it is dropped.
#[derive(Debug)]
pub struct Sampler {
    shared: Arc<Shared>,
    /// The threads, with the time that the end waits for each.
    threads: Vec<(Place, Duration, JoinHandle<()>)>,
}

#[derive(Debug)]
struct Shared {
    dir: Arc<RunDir>,
    options: Options,
    state: Mutex<State>,
    /// Notified when `State::is_over` becomes true, and when a thread ends.
    over: Condvar,
    coarseness: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    is_over: bool,
    /// Nothing is written any more: later results are dropped.
    is_closed: bool,
    totals: Totals,
    /// The first line that could not be written.
    lost: Option<RecordError>,
}

impl Sampler {
    /// Begins, with one thread per collector; the first tick is now. Lines belong to the step of the directory that is open when they come.
    ///
    /// # Errors
    /// When a thread cannot be started; those that were are ended.
    pub fn start(
        dir: &Arc<RunDir>,
        options: Options,
        collectors: Vec<Box<dyn Collect>>,
    ) -> std::io::Result<Sampler> {
        let shared = Arc::new(Shared {
            dir: Arc::clone(dir),
            options,
            state: Mutex::default(),
            over: Condvar::new(),
            coarseness: AtomicU64::new(1),
        });
        let mut sampler = Sampler { shared: Arc::clone(&shared), threads: Vec::new() };
        let begin_us = dir.now_us();
        for collector in collectors {
            let shared = Arc::clone(&shared);
            let place = collector.place();
            let patience = collector.patience().unwrap_or_default().max(options.patience);
            let thread =
                std::thread::Builder::new().name(format!("watch {}", place.name())).spawn(move || {
                    let ending = Ending(Arc::clone(&shared));
                    shared.run(collector, begin_us);
                    drop(ending);
                })?;
            sampler.threads.push((place, patience, thread));
        }
        Ok(sampler)
    }

    /// How it goes.
    pub fn totals(&self) -> Totals {
        self.shared.totals()
    }

    /// Ends: each collector has one last tick. Waits for them, for a few seconds at most, and returns what they did and the first line
    /// that was lost.
    pub fn stop(mut self) -> (Totals, Option<RecordError>) {
        self.end();
        (self.shared.totals(), self.shared.lock().lost.take())
    }

    fn end(&mut self) {
        let mut state = self.shared.lock();
        state.is_over = true;
        self.shared.over.notify_all();
        let begun = Instant::now();
        let is_awaited = |threads: &[(Place, Duration, JoinHandle<()>)]| {
            threads.iter().any(|(_, patience, thread)| !thread.is_finished() && begun.elapsed() < *patience)
        };
        while is_awaited(&self.threads) {
            state = self.shared.over.wait_timeout(state, BEAT).unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(state);
        for (place, _, thread) in self.threads.drain(..) {
            if thread.is_finished() {
                // A collector that panicked has ended by itself; the others' lines are worth keeping.
                let _ = thread.join();
            } else {
                let message = format!("{}: its last query has not returned", place.name());
                let gap = place.event(self.shared.dir.now_us(), event::GAP, message);
                self.shared.write(&place, Batch { events: vec![gap], ..Batch::default() });
            }
        }
        self.shared.lock().is_closed = true;
    }
}

/// Signals that a thread ends, also when it panics.
struct Ending(Arc<Shared>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.over.notify_all();
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn totals(&self) -> Totals {
        Totals { coarseness: self.coarseness.load(Ordering::Relaxed), ..self.lock().totals }
    }

    fn run(&self, mut collector: Box<dyn Collect>, begin_us: u64) {
        let place = collector.place();
        let interval_us = (self.options.interval.as_micros() as u64).max(1);
        let mut account = Account { t_us: begin_us, ..Account::default() };
        let mut number = 0;
        loop {
            let due_us = begin_us + number * interval_us;
            let is_over = self.wait_until(due_us);
            let coarseness = self.coarseness.load(Ordering::Relaxed);
            let tick = self.tick(interval_us * coarseness);
            let mut batch = Batch::default();
            collector.tick(&tick, &mut batch);
            if is_over {
                collector.finish(&tick, &mut batch);
            }
            self.lock().totals.ticks += 1;
            account.looks += 1;
            account.bytes += self.write(&place, batch);
            if is_over || tick.now_us.saturating_sub(account.t_us) >= ACCOUNT_EVERY_US {
                let now_us = self.dir.now_us();
                let mut batch = Batch::default();
                let mut line = account.line(collector.as_mut());
                line.cadence_us = Some(interval_us * coarseness);
                batch.counted(now_us, now_us - account.t_us, line);
                account.t_us = now_us;
                account.bytes += self.write(&place, batch);
            }
            if is_over {
                return;
            }
            let next =
                next_start(number, coarseness, self.dir.now_us().saturating_sub(begin_us), interval_us);
            if next.missed > 0 {
                self.gap(collector.as_ref(), due_us, next.missed, interval_us * coarseness);
            }
            number = next.number;
        }
    }

    fn tick(&self, cadence_us: u64) -> Tick {
        let clock: Clock = self.dir.clock();
        Tick { now_us: clock.now_us(), clock, cadence_us }
    }

    /// Waits until this time; true if the end came first.
    fn wait_until(&self, due_us: u64) -> bool {
        let mut state = self.lock();
        loop {
            let now_us = self.dir.now_us();
            if state.is_over || now_us >= due_us {
                return state.is_over;
            }
            let left = Duration::from_micros(due_us - now_us);
            state = self.over.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn gap(&self, collector: &dyn Collect, from_us: u64, missed: u64, cadence_us: u64) {
        let (place, subject) = (collector.place(), collector.subject());
        let message = format!("{subject}: {missed} samples missed, the last reply was late");
        let mut gap = place.event(from_us, event::GAP, message).with("ticks", missed);
        // Samples of the node or host itself have no such gap.
        if subject != place.name() {
            gap = gap.with("part", collector.part());
        }
        gap.duration_us = Some(missed * cadence_us);
        self.lock().totals.missed += missed;
        self.write(&place, Batch { events: vec![gap], ..Batch::default() });
    }

    /// Writes the results of a tick. A line that is lost must not end the sampling: the first error is kept and returned at the end. Returns the bytes of
    /// lines and files.
    fn write(&self, place: &Place, mut batch: Batch) -> u64 {
        let used = {
            let state = self.lock();
            if state.is_closed {
                return 0;
            }
            state.totals.bytes
        };
        let step: Option<StepId> = self.dir.open_step();
        let mut bytes = 0;
        let mut lost = None;
        // Files that are not there: an event must not name one.
        let mut unwritten: Vec<&str> = vec![];
        let limit = self.options.disk_bytes_max;
        if used < limit {
            match self.dir.watched(step.as_ref(), &batch.lines) {
                Ok(written) => bytes += written,
                Err(error) => lost = Some(error),
            }
            for (name, content) in &batch.files {
                let path = self.dir.place().join(name);
                let make = || {
                    path.parent().map_or(Ok(()), file::own_folder)?;
                    file::replace(&path, content)
                };
                match make() {
                    Ok(()) => bytes += content.len() as u64,
                    Err(source) => {
                        unwritten.push(name);
                        lost = Some(RecordError::Io {
                            action: "write",
                            path: record::held::shown(&path),
                            source,
                        })
                    }
                }
            }
        } else {
            batch.lines.clear();
            unwritten.extend(batch.files.iter().map(|(name, _)| name.as_str()));
        }
        without_files(place, &mut batch.events, &unwritten);
        batch.events.extend(self.thin_out(place, used + bytes));
        if used < limit && used + bytes >= limit {
            let message = "the recording has reached its size limit: only events are recorded from now on";
            batch.events.push(place.event(self.dir.now_us(), event::NOTE, message));
        }
        for event in &mut batch.events {
            event.step = step.as_ref().map_or_else(String::new, |step| step.key().to_string());
            if let Err(error) = self.dir.event(event) {
                lost = Some(error);
            }
        }
        let mut state = self.lock();
        state.totals.lines += batch.lines.len() as u64;
        state.totals.events += batch.events.len() as u64;
        state.totals.bytes += bytes;
        if state.lost.is_none() {
            state.lost = lost;
        }
        bytes
    }

    /// Takes fewer starts as the budget runs low; and returns an event when that has changed.
    fn thin_out(&self, place: &Place, used: u64) -> Option<event::Event> {
        let wanted = coarseness(used, self.options.disk_bytes_max);
        if self.coarseness.fetch_max(wanted, Ordering::Relaxed) >= wanted {
            return None;
        }
        let mega = 1024 * 1024;
        let message = format!(
            "the recording has {} of {} MiB: from now on it samples every {:.0} s",
            used / mega,
            self.options.disk_bytes_max / mega,
            self.options.interval.as_secs_f64() * wanted as f64
        );
        Some(place.event(self.dir.now_us(), event::NOTE, message))
    }
}

/// The cost of a collector since the last line about it.
#[derive(Debug, Default)]
struct Account {
    t_us: u64,
    cpu_us: u64,
    looks: u64,
    bytes: u64,
}

impl Account {
    /// The line, with which a new account begins. To be called on the collector's own thread.
    fn line(&mut self, collector: &mut dyn Collect) -> Watching {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        let cpu_us = time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1000;
        let spent = collector.spent();
        let (node, host) = match collector.place() {
            Place::Node(name) => (name, String::new()),
            Place::Host(name) => (String::new(), name),
        };
        Watching {
            node,
            host,
            part: collector.part().to_string(),
            cpu_us: Some(cpu_us - std::mem::replace(&mut self.cpu_us, cpu_us)),
            server_cpu_us: spent.server_cpu_us,
            programs_cpu_us: spent.programs_cpu_us,
            asked_us: spent.queried_us,
            questions: spent.questions,
            looks: Some(std::mem::take(&mut self.looks)),
            bytes: Some(std::mem::take(&mut self.bytes)),
            cadence_us: None,
            cores: std::thread::available_parallelism().ok().map(|cores| cores.get() as u64),
        }
    }
}

/// The start after `number`, and how many were missed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Next {
    number: u64,
    missed: u64,
}

/// The next start when `since_us` have passed since the first: the following one, unless it is already too late.
fn next_start(number: u64, coarseness: u64, since_us: u64, interval_us: u64) -> Next {
    let stride = interval_us * coarseness;
    let following = number + coarseness;
    let late_us = since_us.saturating_sub(following * interval_us);
    let missed = if late_us > stride / LATE_PART { late_us.div_ceil(stride) } else { 0 };
    Next { number: following + missed * coarseness, missed }
}

/// The thinning of starts when `used` of `limit` bytes are written.
fn coarseness(used: u64, limit: u64) -> u64 {
    let free = limit.saturating_sub(used);
    let mut coarseness = 1;
    while coarseness < COARSENESS_MAX && free <= limit / (coarseness * 2) {
        coarseness *= 2;
    }
    coarseness
}

/// Turns events that name files which were not written into notes.
fn without_files(place: &Place, events: &mut [event::Event], unwritten: &[&str]) {
    for event in events.iter_mut().filter(|event| event.kind == event::STACKS) {
        let file = event.more.get("file").and_then(|file| file.as_str());
        if file.is_some_and(|file| unwritten.contains(&file)) {
            let message = format!("stacks are lost, because their file was not written: {}", event.message);
            *event = place.event(event.t_us, event::NOTE, message);
        }
    }
}

#[cfg(test)]
mod tests;

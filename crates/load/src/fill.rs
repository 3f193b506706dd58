//! `load ycsb` from beginning to end: the coordinator.
//!
//! One thread of its own (the caller's) prepares, watches and finishes; the streams do the work. It never touches a row, so
//! observers may take their time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use data::ycsb::Table;
use postgres::Client;
use rustix::time::{ClockId, clock_gettime};
use target::ConnSpec;
use target::control::Control;

use crate::error::LoadError;
use crate::index::{self, Finish};
use crate::ledger::{self, ChunkTotals, Dataset, qualified};
use crate::options::{Method, Options, Stop, StopLevel};
use crate::plan::{Chunks, ROW_VALUE_BYTES, TABLE, leaf_names};
use crate::progress::{Counters, LoadEvent, Meter, Observer, Phase, TICK};
use crate::route::{self, Route};
use crate::stream::{DRAIN, Message, SESSION_SETTINGS, Work};
use crate::{copy, freeze, schema};

/// How often the coordinator looks whether the user wants it to stop.
const STOP_LOOK: Duration = Duration::from_millis(50);

/// A stream that has not noticed the stop after this long waits for its server, and is woken by a cancel request.
const STOP_PATIENCE: Duration = Duration::from_secs(2 * DRAIN.as_secs());

/// How a load ended when it did not fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Every row, key and statistic is there.
    Complete,
    /// It was there before; nothing was done.
    AlreadyComplete,
    /// The user stopped it; what is committed stays, and the same command continues.
    Interrupted,
}

/// The pause before a server that the coordinator has lost is tried again.
const RECONNECT_PAUSE: Duration = Duration::from_millis(500);

/// What a load did.
#[derive(Clone, PartialEq, Debug)]
pub struct LoadReport {
    /// How it ended.
    pub outcome: Outcome,
    /// The dataset as the ledger has it.
    pub dataset: Dataset,
    /// What is in the ledger at the end.
    pub totals: ChunkTotals,
    /// Chunks (or leaves) the dataset consists of.
    pub chunks_total: u64,
    /// Rows committed by this load.
    pub rows: u64,
    /// Bytes of their values.
    pub bytes: u64,
    /// Chunks committed by this load.
    pub chunks: u64,
    /// Length of the copy phase.
    pub seconds: f64,
    /// `rows` / `seconds`.
    pub rows_per_s: f64,
    /// `bytes` / `seconds`.
    pub bytes_per_s: f64,
    /// CPU time of this process in the copy phase, user and system.
    pub client_cpu_us: u64,
    /// Chunks begun again after an error.
    pub retries: u64,
    /// Time spent on primary keys.
    pub index_seconds: f64,
    /// Time spent on statistics.
    pub analyze_seconds: f64,
    /// All of it, from the first connection to the last.
    pub total_seconds: f64,
    /// WAL that the server wrote meanwhile, for whomever; `None` when it would not say.
    pub wal_bytes: Option<u64>,
    /// Tables without indexes.
    pub table_bytes_on_disk: u64,
    /// Their indexes.
    pub index_bytes_on_disk: u64,
}

impl LoadReport {
    /// Bytes on disk per row of the dataset, tables and indexes together; `None` while there are no rows.
    pub fn bytes_per_row_on_disk(&self) -> Option<f64> {
        let bytes = self.table_bytes_on_disk + self.index_bytes_on_disk;
        (self.totals.rows > 0).then(|| bytes as f64 / self.totals.rows as f64)
    }

    /// How to go on after an interruption.
    pub fn advice(&self) -> Option<String> {
        (self.outcome == Outcome::Interrupted).then(|| {
            format!(
                "{} of {} chunks are safe, nothing else is there; run the same command again to continue",
                self.totals.chunks, self.chunks_total
            )
        })
    }
}

/// Fills a target with a YCSB dataset, or continues where another load ended.
///
/// The call returns when everything is done, when `stop` was noticed, or on the first error that no repetition cures. It may be called
/// again at any time: it does what is missing. `observer` is called from this thread.
///
/// # Errors
/// See [`LoadError`]; each has a hint. The target is exact after every error.
pub fn load_ycsb(
    spec: &ConnSpec,
    options: &Options,
    stop: &Stop,
    observer: &mut dyn Observer,
) -> Result<LoadReport, LoadError> {
    options.check()?;
    let started = Instant::now();
    let mut control = connect(spec)?;
    let wal_before = wal_position(&mut control);
    let mut voice = Voice { observer, meter: Meter::new(started, cpu_us()) };
    // Counters without streams serve until the dataset is known.
    let mut counters = Counters::new(0, 0, options.rows);
    voice.begin(Phase::Schema, &counters);
    let prepared = schema::prepare(&mut control, options)?;
    let dataset = prepared.dataset;
    let route = Route::new(dataset.partitions);
    let table = Table::new(dataset.spec.clone());
    let parent = qualified(&dataset.schema_name, TABLE);
    route::self_test(&mut *control, &parent, route, &table, dataset.rows)?;

    let chunks_total = schema::chunk_count(&dataset);
    let earlier = ledger::chunk_totals(&mut *control, dataset.id)?;
    let streams = match dataset.method {
        Method::Copy => options.streams,
        Method::Freeze => options.streams.min(route.leaves()),
    };
    counters = Counters::new(streams, chunks_total, dataset.rows);
    counters.rows_earlier = earlier.rows;
    *counters.chunks_done.get_mut() = earlier.chunks;
    let mut report =
        Report { started, control, wal_before, dataset, chunks_total, earlier, spent: Spent::default() };
    if report.dataset.loaded {
        return report.finish(Outcome::AlreadyComplete, &counters);
    }
    let done = ledger::done_chunks(&mut report.control, report.dataset.id, chunks_total)?;
    if !prepared.created {
        let message = format!(
            "continuing: {} of {chunks_total} chunks are in the ledger, {} rows",
            earlier.chunks, earlier.rows
        );
        voice.observer.event(&LoadEvent { kind: record::event::NOTE, message, duration: None });
    }

    voice.begin(Phase::Copy, &counters);
    let (copy_start, cpu_start) = (Instant::now(), cpu_us());
    let (messages, inbox) = channel();
    let work = Work {
        spec,
        dataset: &report.dataset,
        table,
        route,
        counters: &counters,
        stop,
        reconnect_limit: options.reconnect_limit,
        failed: AtomicBool::new(false),
        messages,
        cancels: (0..streams).map(|_| Mutex::new(None)).collect(),
    };
    let copied = coordinate(&work, &inbox, &mut voice, || match work.dataset.method {
        Method::Copy => {
            let chunks = Chunks::of_length(work.dataset.rows, work.dataset.chunk_rows);
            copy::run(&work, &copy::Queue::new(chunks, done))
        }
        Method::Freeze => freeze::run(&work, &done),
    });
    drop(work);
    report.spent.copy = copy_start.elapsed();
    report.spent.cpu_us = cpu_us().saturating_sub(cpu_start);
    voice.tick(&counters);
    let safe = counters.chunks_done.load(Ordering::Relaxed);
    copied.map_err(|error| error.or_disk_full(safe, chunks_total))?;
    // The server may have been restarted under the control connection, which was idle.
    report.reconnect(spec, options.reconnect_limit)?;
    if ledger::chunk_totals(&mut *report.control, report.dataset.id)?.chunks < chunks_total {
        return report.finish(Outcome::Interrupted, &counters);
    }
    let complete = finish(spec, options, stop, &mut report, &mut voice, &counters);
    match complete.map_err(|error| error.or_disk_full(chunks_total, chunks_total))? {
        true => report.finish(Outcome::Complete, &counters),
        false => report.finish(Outcome::Interrupted, &counters),
    }
}

/// Runs the streams, which `streams` starts and waits for, and keeps the observer informed meanwhile.
pub(crate) fn coordinate(
    work: &Work<'_>,
    inbox: &Receiver<Message>,
    voice: &mut Voice<'_>,
    streams: impl FnOnce() -> Result<(), LoadError> + Send,
) -> Result<(), LoadError> {
    std::thread::scope(|scope| {
        let driver = scope.spawn(|| {
            let _end = EndMessage(work);
            streams()
        });
        let mut next_tick = Instant::now() + TICK;
        let mut stop_seen = None;
        loop {
            let now = Instant::now();
            match inbox.recv_timeout(next_tick.saturating_duration_since(now).min(STOP_LOOK)) {
                Ok(Message::Event(event)) => voice.observer.event(&event),
                Ok(Message::Ended) | Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if work.stop_level() > StopLevel::Run && stop_seen.is_none() {
                stop_seen = Some(now);
                if work.stop.level() > StopLevel::Run {
                    let message = "interrupted: chunks in flight are finished or rolled back".to_owned();
                    voice.observer.event(&LoadEvent {
                        kind: record::event::INTERRUPT,
                        message,
                        duration: None,
                    });
                }
            }
            if now >= next_tick {
                next_tick = now + TICK;
                voice.tick(work.counters);
                let patience = if work.stop_level() == StopLevel::Now { TICK } else { STOP_PATIENCE };
                if stop_seen.is_some_and(|seen| seen + patience <= now) {
                    wake_streams(work);
                }
            }
        }
        driver.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Says that the driver has ended, even when it ends by a panic.
struct EndMessage<'a>(&'a Work<'a>);

impl Drop for EndMessage<'_> {
    fn drop(&mut self) {
        // A coordinator that is gone needs no message.
        let _ = self.0.messages.send(Message::Ended);
    }
}

/// Cancels what the streams' servers are at, so that streams that wait for them notice the stop.
fn wake_streams(work: &Work<'_>) {
    for cancel in &work.cancels {
        let cancel = cancel.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(cancel) = cancel {
            // A server that cannot be reached has nothing to cancel.
            let _ = cancel.cancel();
        }
    }
}

/// Keys, statistics, and the mark that all is there. `Ok(false)`: the stop was noticed.
fn finish(
    spec: &ConnSpec,
    options: &Options,
    stop: &Stop,
    report: &mut Report,
    voice: &mut Voice<'_>,
    counters: &Counters,
) -> Result<bool, LoadError> {
    voice.begin(Phase::Index, counters);
    let start = Instant::now();
    if !report.lock(spec, options.reconnect_limit, stop)? {
        return Ok(false);
    }
    let finish = Finish {
        spec,
        dataset: &report.dataset,
        streams: options.streams,
        tablespace: options.tablespace.as_deref(),
        stop,
        reconnect_limit: options.reconnect_limit,
    };
    let keys = finish.keys(&mut |percent| {
        voice.meter.set_percent(percent);
        voice.tick(counters);
    });
    report.spent.index = start.elapsed();
    if !keys? {
        return Ok(false);
    }
    voice.begin(Phase::Analyze, counters);
    let start = Instant::now();
    let analyzed = finish.statistics(&mut || voice.tick(counters));
    report.spent.analyze = start.elapsed();
    if !analyzed? {
        return Ok(false);
    }
    report.reconnect(spec, options.reconnect_limit)?;
    ledger::mark_loaded(&mut *report.control, report.dataset.id)?;
    report.dataset.loaded = true;
    voice.tick(counters);
    Ok(true)
}

/// The observer and what it is told from.
pub(crate) struct Voice<'a> {
    pub(crate) observer: &'a mut dyn Observer,
    pub(crate) meter: Meter,
}

impl Voice<'_> {
    pub(crate) fn begin(&mut self, phase: Phase, counters: &Counters) {
        self.meter.begin(phase, counters, Instant::now());
        let message = phase.as_str().to_owned();
        self.observer.event(&LoadEvent { kind: record::event::PHASE, message, duration: None });
    }

    pub(crate) fn tick(&mut self, counters: &Counters) {
        let (progress, sample, interval) = self.meter.tick(counters, Instant::now(), cpu_us());
        self.observer.progress(&progress, &sample, interval);
    }
}

/// A control connection with the settings of a load.
pub(crate) fn connect(spec: &ConnSpec) -> Result<Control, LoadError> {
    let mut control = target::control::connect(spec).map_err(LoadError::connect)?;
    let set = control.batch_execute(SESSION_SETTINGS);
    set.map_err(|source| LoadError::sql("setting up the session", source))?;
    Ok(control)
}

/// Where the time went.
#[derive(Clone, Copy, Default)]
struct Spent {
    copy: Duration,
    index: Duration,
    analyze: Duration,
    cpu_us: u64,
}

/// Everything the report is made from that is known early.
struct Report {
    started: Instant,
    control: Control,
    wal_before: Option<u64>,
    dataset: Dataset,
    chunks_total: u64,
    earlier: ChunkTotals,
    spent: Spent,
}

impl Report {
    /// Makes sure that the control connection works; waits for a lost server until the limit.
    fn reconnect(&mut self, spec: &ConnSpec, limit: Duration) -> Result<(), LoadError> {
        if self.control.simple_query("").is_ok() {
            return Ok(());
        }
        let lost_at = Instant::now();
        let mut attempts = 0;
        loop {
            attempts += 1;
            let error = match connect(spec) {
                Ok(control) => {
                    self.control = control;
                    return Ok(());
                }
                Err(error) => error,
            };
            let waited = lost_at.elapsed();
            if waited >= limit || !error.is_connection_lost() {
                return Err(LoadError::ServerLost { waited, attempts, source: Box::new(error) });
            }
            std::thread::sleep(RECONNECT_PAUSE);
        }
    }

    /// Takes the lock under which keys and statistics are made. `Ok(false)`: the stop was noticed.
    fn lock(&mut self, spec: &ConnSpec, limit: Duration, stop: &Stop) -> Result<bool, LoadError> {
        loop {
            match index::lock(&mut self.control, stop) {
                Err(error) if error.is_connection_lost() => self.reconnect(spec, limit)?,
                result => return result,
            }
        }
    }

    fn finish(mut self, outcome: Outcome, counters: &Counters) -> Result<LoadReport, LoadError> {
        let totals = ledger::chunk_totals(&mut *self.control, self.dataset.id)?;
        let (table_bytes_on_disk, index_bytes_on_disk) = sizes(&mut self.control, &self.dataset)?;
        let wal_after = wal_position(&mut self.control);
        let rows = counters.committed_rows();
        let seconds = self.spent.copy.as_secs_f64();
        let per_second = |amount: u64| if seconds > 0.0 { amount as f64 / seconds } else { 0.0 };
        Ok(LoadReport {
            outcome,
            totals,
            chunks_total: self.chunks_total,
            rows,
            bytes: rows * ROW_VALUE_BYTES,
            chunks: counters.chunks_done.load(Ordering::Relaxed) - self.earlier.chunks,
            seconds,
            rows_per_s: per_second(rows),
            bytes_per_s: per_second(rows * ROW_VALUE_BYTES),
            client_cpu_us: self.spent.cpu_us,
            retries: counters.retries.load(Ordering::Relaxed),
            index_seconds: self.spent.index.as_secs_f64(),
            analyze_seconds: self.spent.analyze.as_secs_f64(),
            total_seconds: self.started.elapsed().as_secs_f64(),
            wal_bytes: wal_after.zip(self.wal_before).map(|(after, before)| after.saturating_sub(before)),
            table_bytes_on_disk,
            index_bytes_on_disk,
            dataset: self.dataset,
        })
    }
}

/// Where the server's WAL ends, in bytes. A restart on the way does not matter, a missing privilege is no error.
pub(crate) fn wal_position(client: &mut Client) -> Option<u64> {
    let row = client.query_one("select (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint", &[]).ok()?;
    u64::try_from(row.get::<_, i64>(0)).ok()
}

/// Bytes of the leaf tables and of their indexes.
fn sizes(client: &mut Client, dataset: &Dataset) -> Result<(u64, u64), LoadError> {
    let row = client.query_one(
        "select coalesce(sum(pg_table_size(c.oid)), 0)::bigint, coalesce(sum(pg_indexes_size(c.oid)), 0)::bigint
         from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = $1 and c.relname = any($2)",
        &[&dataset.schema_name, &leaf_names(dataset.partitions)],
    );
    let row = row.map_err(|source| LoadError::sql("asking for the tables' sizes", source))?;
    Ok((row.get::<_, i64>(0).unsigned_abs(), row.get::<_, i64>(1).unsigned_abs()))
}

/// CPU time of this process, user and system.
pub(crate) fn cpu_us() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    (time.tv_sec as u64) * 1_000_000 + (time.tv_nsec as u64) / 1_000
}

//! `load tpcc` from beginning to end.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use data::tpcc::{Population, Table};
use postgres::Client;
use target::ConnSpec;
use wire::copy::values::Tuples;

use super::build::Builders;
use super::encode::{Placed, Sink, each_row, push};
use super::plan::{Completion, Part, Queue, chunks};
use super::schema::{self, column_list};
use super::{TpccDataset, TpccOptions};
use crate::error::LoadError;
use crate::fill::{LoadReport, Outcome, Voice, connect, coordinate, cpu_us, wal_position};
use crate::index::{self, Finish};
use crate::ledger::{self, ChunkTotals, Claim, qualified};
use crate::options::{Stop, StopLevel};
use crate::plan::ChunkSet;
use crate::progress::{Counters, LoadEvent, Meter, Observer, Phase, TICK};
use crate::route::Route;
use crate::rows::MESSAGE_BYTES;
use crate::stream::{ChunkError, Pace, Stream, Work};

/// How often it is looked whether the builders are through.
const LOOK: Duration = Duration::from_millis(20);

/// Bytes of the values of a warehouse, as measured, and of the items.
const WAREHOUSE_BYTES: u64 = 70_130_000;
const ITEMS_BYTES: u64 = 7_500_000;

/// Bytes of the values of one row, mean over the tables: what rates and progress are told in. The ledger counts exactly.
pub(crate) fn row_bytes_mean(warehouses: u32, rows: u64) -> u64 {
    (u64::from(warehouses) * WAREHOUSE_BYTES + ITEMS_BYTES) / rows.max(1)
}

/// Fills a database with the TPC-C tables of so many warehouses, or continues where another load ended.
///
/// The call returns when everything is done, when `stop` was noticed, or on the first error that no repetition cures. It may be called
/// again at any time: it does what is missing. `observer` is called from this thread.
///
/// # Errors
/// See [`LoadError`]; each has a hint. The database is exact after every error.
pub fn load_tpcc(
    spec: &ConnSpec,
    options: &TpccOptions,
    stop: &Stop,
    observer: &mut dyn Observer,
) -> Result<LoadReport, LoadError> {
    options.check()?;
    let started = Instant::now();
    let mut control = connect(spec)?;
    let wal_before = wal_position(&mut control);
    let mut voice = Voice { observer, meter: Meter::new(started, cpu_us()) };
    voice.begin(Phase::Schema, &Counters::new(0, 0, 0));
    let prepared = schema::prepare(&mut control, options)?;
    let found = prepared.found;
    let chunks_total = chunks(found.warehouses);
    let earlier = ledger::chunk_totals(&mut *control, found.dataset.id)?;
    let done = ledger::done_chunks(&mut control, found.dataset.id, chunks_total)?;
    drop(control);
    let mut counters = Counters::new(options.streams, chunks_total, found.dataset.rows);
    counters.row_bytes = row_bytes_mean(found.warehouses, found.dataset.rows);
    counters.rows_earlier = earlier.rows;
    *counters.chunks_done.get_mut() = earlier.chunks;
    let mut load = Load {
        finish: Finish {
            spec,
            dataset: &found.dataset,
            streams: options.streams,
            tablespace: options.tablespace.as_deref(),
            stop,
            reconnect_limit: options.reconnect_limit,
        },
        found: &found,
        counters: &counters,
        report: report(&found, chunks_total, earlier),
        started,
        wal_before,
    };
    if found.dataset.loaded {
        return load.close(Outcome::AlreadyComplete);
    }
    if !prepared.created {
        let message = format!(
            "continuing: {} of {chunks_total} chunks are in the ledger, {} rows",
            earlier.chunks, earlier.rows
        );
        voice.observer.event(&LoadEvent { kind: record::event::NOTE, message, duration: None });
    }
    match load.run(&mut voice, done) {
        Ok(outcome) => load.close(outcome),
        Err(error) => {
            let safe = counters.chunks_done.load(Ordering::Relaxed);
            Err(error.or_disk_full(safe, chunks_total))
        }
    }
}

/// Loads all chunks of the queue with all streams; returns when none is left, the stop was noticed, or with the first error.
fn run_streams(
    work: &Work<'_>,
    found: &TpccDataset,
    queue: &Queue,
    completion: &Completion,
) -> Result<(), LoadError> {
    let population = found.population();
    let first_error = Mutex::new(None);
    std::thread::scope(|scope| {
        for index in 0..work.counters.streams.len() {
            let (population, first_error) = (&population, &first_error);
            scope.spawn(move || {
                let mut loader = Loader::new(Stream::new(work, index), found, population);
                if let Err(error) = loader.run(queue, completion) {
                    work.failed.store(true, Ordering::Relaxed);
                    first_error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                }
                loader.stream.finish();
            });
        }
    });
    first_error.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

/// The report before anything was done.
fn report(found: &TpccDataset, chunks_total: u64, earlier: ChunkTotals) -> LoadReport {
    LoadReport {
        outcome: Outcome::AlreadyComplete,
        dataset: found.dataset.clone(),
        totals: earlier,
        chunks_total,
        rows: 0,
        bytes: 0,
        chunks: 0,
        seconds: 0.0,
        rows_per_s: 0.0,
        bytes_per_s: 0.0,
        client_cpu_us: 0,
        retries: 0,
        index_seconds: 0.0,
        analyze_seconds: 0.0,
        total_seconds: 0.0,
        wal_bytes: None,
        table_bytes_on_disk: 0,
        index_bytes_on_disk: 0,
        nodes: Vec::new(),
        reason: None,
    }
}

/// A load under way.
struct Load<'a> {
    finish: Finish<'a>,
    found: &'a TpccDataset,
    counters: &'a Counters,
    /// Filled in as things become known.
    report: LoadReport,
    started: Instant,
    wal_before: Option<u64>,
}

impl Load<'_> {
    /// Rows, keys, foreign keys, and the mark that all is there.
    fn run(&mut self, voice: &mut Voice<'_>, done: ChunkSet) -> Result<Outcome, LoadError> {
        let completion = Completion::new(self.found.warehouses, &done);
        let (messages, inbox) = channel();
        let work = Work {
            spec: self.finish.spec,
            dataset: &self.found.dataset,
            // Those of a YCSB table, which nobody asks here.
            table: data::ycsb::Table::new(self.found.dataset.spec.clone()),
            route: Route::new(0),
            counters: self.counters,
            stop: self.finish.stop,
            reconnect_limit: self.finish.reconnect_limit,
            failed: AtomicBool::new(false),
            messages,
            cancels: self.counters.streams.iter().map(|_| Mutex::new(None)).collect(),
        };
        let (loading, built) = (AtomicBool::new(true), AtomicUsize::new(0));
        let builders = Builders {
            finish: &self.finish,
            found: self.found,
            completion: &completion,
            loading: &loading,
            failed: &work.failed,
            built: &built,
        };
        voice.begin(Phase::Copy, self.counters);
        let (copy_start, cpu_start) = (Instant::now(), cpu_us());
        let (copied, complete) = std::thread::scope(|scope| {
            let building = scope.spawn(|| builders.run());
            let queue = Queue::new(self.found.warehouses, done);
            let copied =
                coordinate(&work, &inbox, voice, || run_streams(&work, self.found, &queue, &completion));
            work.failed.fetch_or(copied.is_err(), Ordering::Relaxed);
            loading.store(false, Ordering::Release);
            self.report.seconds = copy_start.elapsed().as_secs_f64();
            self.report.client_cpu_us = cpu_us().saturating_sub(cpu_start);
            voice.tick(self.counters);
            voice.begin(Phase::Index, self.counters);
            let index_start = Instant::now();
            let mut next_tick = index_start + TICK;
            while !building.is_finished() {
                std::thread::sleep(LOOK);
                if Instant::now() >= next_tick {
                    next_tick += TICK;
                    let share = built.load(Ordering::Relaxed) as f64 / Table::ALL.len() as f64;
                    voice.meter.set_percent(100.0 * share);
                    voice.tick(self.counters);
                }
            }
            let complete = building.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            self.report.index_seconds = index_start.elapsed().as_secs_f64();
            (copied, complete)
        });
        // When streams fail, builders end too, and what they say is a consequence.
        copied?;
        if !complete? {
            return Ok(Outcome::Interrupted);
        }
        self.conclude(&builders)
    }

    /// Foreign keys and the mark of completion.
    fn conclude(&self, builders: &Builders<'_>) -> Result<Outcome, LoadError> {
        let stop = self.finish.stop;
        let give_up = || stop.level() > StopLevel::Run;
        let mut locked = false;
        self.finish.persist(&give_up, &mut |client| {
            locked = index::lock(client, stop)?;
            if locked && self.found.foreign_keys {
                builders.foreign_keys(client)?;
            }
            if locked {
                ledger::mark_loaded(client, self.found.dataset.id)?;
            }
            Ok(())
        })?;
        Ok(if locked { Outcome::Complete } else { Outcome::Interrupted })
    }

    /// The report of what was done.
    fn close(mut self, outcome: Outcome) -> Result<LoadReport, LoadError> {
        let earlier = self.report.totals;
        let (mut totals, mut sizes, mut wal_after) = (earlier, (0, 0), None);
        self.finish.persist(&|| false, &mut |client| {
            totals = ledger::chunk_totals(client, self.found.dataset.id)?;
            sizes = self.sizes(client)?;
            wal_after = wal_position(client);
            Ok(())
        })?;
        let report = &mut self.report;
        report.outcome = outcome;
        report.dataset.loaded |= outcome == Outcome::Complete;
        report.rows = self.counters.committed_rows();
        report.bytes = totals.bytes.saturating_sub(earlier.bytes);
        report.chunks = self.counters.chunks_done.load(Ordering::Relaxed) - earlier.chunks;
        let per_second =
            |amount: u64| if report.seconds > 0.0 { amount as f64 / report.seconds } else { 0.0 };
        (report.rows_per_s, report.bytes_per_s) = (per_second(report.rows), per_second(report.bytes));
        report.totals = totals;
        report.retries = self.counters.retries.load(Ordering::Relaxed);
        report.total_seconds = self.started.elapsed().as_secs_f64();
        report.wal_bytes = wal_after.zip(self.wal_before).map(|(after, before)| after.saturating_sub(before));
        (report.table_bytes_on_disk, report.index_bytes_on_disk) = sizes;
        Ok(self.report)
    }

    /// Bytes of the tables and of their indexes.
    fn sizes(&self, client: &mut Client) -> Result<(u64, u64), LoadError> {
        let names: Vec<&str> = Table::ALL.iter().map(|table| table.name()).collect();
        let row = client.query_one(
            "select coalesce(sum(pg_table_size(c.oid)), 0)::bigint, coalesce(sum(pg_indexes_size(c.oid)), 0)::bigint
             from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = $1 and c.relname = any($2)",
            &[&self.found.dataset.schema_name, &names],
        );
        let row = row.map_err(|source| LoadError::sql("asking for the tables' sizes", source))?;
        Ok((row.get::<_, i64>(0).unsigned_abs(), row.get::<_, i64>(1).unsigned_abs()))
    }
}

/// One stream that loads chunk after chunk.
struct Loader<'a> {
    stream: Stream<'a>,
    found: &'a TpccDataset,
    population: &'a Population,
    tuples: Tuples,
}

impl<'a> Loader<'a> {
    fn new(stream: Stream<'a>, found: &'a TpccDataset, population: &'a Population) -> Loader<'a> {
        Loader { stream, found, population, tuples: Tuples::new(MESSAGE_BYTES) }
    }

    fn run(&mut self, queue: &Queue, completion: &Completion) -> Result<(), LoadError> {
        // The first connection before the first chunk: what is wrong with it is told before any work.
        while self.stream.connect()?
            && self.stream.work.stop_level() == StopLevel::Run
            && let Some(chunk) = queue.take()
        {
            let part = Part::of_chunk(chunk, self.found.warehouses);
            loop {
                match self.load_chunk(chunk, part) {
                    Ok(rows) => {
                        self.stream.committed(rows);
                        completion.committed(part.group);
                        break;
                    }
                    Err(error) => {
                        self.tuples.clear();
                        let again = self.stream.recover(error, &format!("loading {part}"))?;
                        if !again || !self.stream.connect()? {
                            return Ok(());
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// One chunk, one transaction, as [`crate::copy`] says: its ledger row, and the COPYs of its tables in an order that is the same for
    /// all. Returns its rows, whoever loaded them.
    fn load_chunk(&mut self, chunk: u64, part: Part) -> Result<u64, ChunkError> {
        let rows = part.rows(self.population);
        let mut claim = Claim {
            dataset: self.found.dataset.id,
            chunk,
            first_row: part.w_id.into(),
            rows,
            bytes: 0,
            checksum: 0,
            stream: self.stream.index,
        };
        let claimed = self.stream.session().execute(&format!("begin; {}", claim.insert_sql()))?;
        if claimed.rows == Some(0) {
            // Somebody else has loaded it, or we have and never heard of it.
            self.stream.session().execute("rollback")?;
            return Ok(rows);
        }
        let mut sender = Sender {
            stream: &mut self.stream,
            tuples: &mut self.tuples,
            pace: Pace::new(rows),
            bytes: 0,
            checksum: 0,
        };
        for &table in part.group.tables() {
            let name = qualified(&self.found.dataset.schema_name, table.name());
            let command = format!("copy {name} ({}) from stdin (format binary)", column_list(table));
            sender.stream.session().begin_copy(&command)?;
            each_row(self.population, table, part.w_id, &mut sender)?;
            sender.flush()?;
            sender.stream.session().end_copy()?;
        }
        (claim.bytes, claim.checksum) = (sender.bytes, sender.checksum);
        // Every COPY has to be known to be good before the commit: on a failed transaction it would roll back without an error.
        self.stream.session().settle(0)?;
        self.stream.session().execute(&format!("{}; commit", claim.update_sql()))?;
        Ok(rows)
    }
}

/// Rows into the COPY that is open.
struct Sender<'a, 'b> {
    stream: &'a mut Stream<'b>,
    tuples: &'a mut Tuples,
    pace: Pace,
    bytes: u64,
    checksum: u64,
}

impl Sender<'_, '_> {
    fn flush(&mut self) -> Result<(), ChunkError> {
        if self.tuples.is_empty() {
            return Ok(());
        }
        let rows = self.tuples.len();
        self.bytes += self.tuples.value_bytes();
        self.stream.send_encoded(self.tuples.message(), rows, &mut self.pace)?;
        self.tuples.clear();
        Ok(())
    }
}

impl Sink for Sender<'_, '_> {
    type Error = ChunkError;

    #[inline]
    fn row<R: Placed>(&mut self, table: Table, row: &R) -> Result<(), ChunkError> {
        if self.tuples.is_full() {
            self.flush()?;
        }
        self.checksum = self.checksum.wrapping_add(row.place().hash(table));
        push(self.tuples, row);
        Ok(())
    }
}

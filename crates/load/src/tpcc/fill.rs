//! `load tpcc` from beginning to end.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use connect::ConnSpec;
use data::tpcc::{ITEMS, Population, Table};
use engines::Cluster;
use postgres::Client;
use wire::copy::values::Tuples;

use super::build::Builders;
use super::encode::{Placed, Sink, each_row, push};
use super::plan::{Completion, Group, Part, Queue, chunks};
use super::schema::{self, column_list};
use super::spread::{Spread, leaf_name};
use super::{TpccDataset, TpccOptions, cluster};
use crate::dataset::Leaves;
use crate::error::LoadError;
use crate::fill::{LoadReport, NodeReport, Outcome, Reporter, coordinate, cpu_us};
use crate::index::{self, Finish};
use crate::ledger::{self, ChunkTotals, Claim, qualified};
use crate::options::{Stop, StopLevel};
use crate::plan::ChunkSet;
use crate::progress::{Counters, LoadEvent, Meter, NodeCounters, Observer, Phase, TICK};
use crate::rows::MESSAGE_BYTES;
use crate::shape::Shape;
use crate::stream::{ChunkError, Pace, Stream, Work};
use crate::team::{Member, Team, wal_position};
use crate::trust;
use crate::ycsb::Ycsb;

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
    load_tpcc_on(&Cluster::single(spec.clone()), options, stop, observer)
}

/// The same on a cluster: each warehouse on one of its nodes, the items on all of them.
///
/// # Errors
/// As [`load_tpcc`]; also when rows cannot be spread over the nodes of this cluster.
pub fn load_tpcc_on(
    cluster: &Cluster,
    options: &TpccOptions,
    stop: &Stop,
    observer: &mut dyn Observer,
) -> Result<LoadReport, LoadError> {
    options.check()?;
    super::check_cluster(cluster, options)?;
    let started = Instant::now();
    let mut team = Team::connect(cluster)?;
    let mut reporter = Reporter { observer, meter: Meter::new(started, cpu_us()) };
    reporter.begin(Phase::Schema, &Counters::new(0, 0, 0));
    let Prepared { found, spread, created, notes } = prepare(&mut team, cluster, options, stop)?;
    let mut sites = Vec::new();
    for (node, (member, found)) in std::iter::zip(team.members, found).enumerate() {
        let share = Share { spread: spread.as_ref(), node };
        let name = member.name.clone();
        sites.push(Site::new(member, found, share).map_err(|error| error.at(&name))?);
    }
    let model = sites[0].found.clone();
    let chunks_total = sites.iter().map(|site| site.chunks).sum();
    let earlier = sites.iter().fold(ChunkTotals::default(), |sum, site| sum.plus(site.earlier));
    // Every node but the first repeats the items.
    let rows = model.dataset.rows + (sites.len() as u64 - 1) * u64::from(ITEMS);
    let mut counters = Counters::new(options.streams.max(sites.len()), chunks_total, rows);
    counters.row_bytes = row_bytes_mean(model.warehouses, model.dataset.rows);
    counters.rows_earlier = earlier.rows;
    *counters.chunks_done.get_mut() = earlier.chunks;
    if spread.is_some() {
        let node = |name: &str| NodeCounters { name: name.to_owned(), idle: AtomicBool::new(false) };
        counters.nodes = sites.iter().map(|site| node(&site.name)).collect();
    }
    let is_loaded = sites.iter().all(|site| site.found.dataset.loaded);
    let mut load = Load {
        report: report(&model, chunks_total, earlier),
        found: &model,
        nothing: Ycsb::new(0, model.dataset.spec.clone()),
        sites: &sites,
        options,
        stop,
        counters: &counters,
        started,
    };
    if is_loaded {
        return load.close(Outcome::AlreadyComplete);
    }
    let note = |reporter: &mut Reporter<'_>, message: String| {
        reporter.observer.event(&LoadEvent { kind: record::event::NOTE, message, duration: None });
    };
    notes.into_iter().for_each(|message| note(&mut reporter, message));
    if !created {
        let message = format!(
            "continuing: {} of {chunks_total} chunks are in the ledger, {} rows",
            earlier.chunks, earlier.rows
        );
        note(&mut reporter, message);
    }
    match load.run(&mut reporter) {
        Ok(outcome) => load.close(outcome),
        Err(error) => {
            let safe = counters.chunks_done.load(Ordering::Relaxed);
            Err(error.or_disk_full(safe, chunks_total))
        }
    }
}

/// The dataset on every node, and where its warehouses are; one server has them all.
struct Prepared {
    found: Vec<TpccDataset>,
    spread: Option<Spread>,
    created: bool,
    notes: Vec<String>,
}

fn prepare(
    team: &mut Team,
    cluster: &Cluster,
    options: &TpccOptions,
    stop: &Stop,
) -> Result<Prepared, LoadError> {
    match (team.shape, team.members.as_mut_slice()) {
        (Shape::Repeated, _) => Err(LoadError::EveryRowEverywhere { engine: cluster.engine.name() }),
        (Shape::Single, [member, ..]) => {
            let schema::Prepared { found, created, notes } =
                schema::prepare(&mut member.control, &member.spec, options)?;
            Ok(Prepared { found: vec![found], spread: None, created, notes })
        }
        _ => {
            let cluster::Prepared { found, spread, created, notes } =
                cluster::prepare(team, cluster, options, stop)?;
            Ok(Prepared { found, spread: Some(spread), created, notes })
        }
    }
}

/// What of the dataset is one node's.
#[derive(Clone, Copy)]
pub(super) struct Share<'a> {
    /// Where warehouses are; `None`: all on one server.
    spread: Option<&'a Spread>,
    node: usize,
}

impl Share<'_> {
    /// Whether a chunk is to be loaded on this node.
    fn has(self, part: Part) -> bool {
        part.group == Group::Items || self.spread.is_none_or(|spread| spread.node_of(part.w_id) == self.node)
    }

    /// The tables that hold this node's rows of a table, by their unqualified names, each with what the names of its indexes end with.
    pub(super) fn tables(self, table: Table) -> Vec<(String, String)> {
        match self.spread.filter(|_| table != Table::Item) {
            None => vec![(table.name().to_owned(), String::new())],
            Some(spread) => {
                let leaves = spread.leaves_of(self.node);
                leaves.map(|leaf| (leaf_name(table, leaf), format!("_p{leaf}"))).collect()
            }
        }
    }

    /// The table that takes the rows of a warehouse.
    fn table(self, table: Table, w_id: u32) -> String {
        match self.spread.filter(|_| table != Table::Item) {
            None => table.name().to_owned(),
            Some(spread) => leaf_name(table, spread.leaf_of(w_id)),
        }
    }
}

/// A node that is filled.
struct Site<'a> {
    /// Empty when there is only one.
    name: String,
    spec: ConnSpec,
    found: TpccDataset,
    share: Share<'a>,
    /// How many chunks are this node's.
    chunks: u64,
    /// Chunks that need not be loaded here: its ledger has them, or they are other nodes'.
    settled: ChunkSet,
    earlier: ChunkTotals,
    wal_before: Option<u64>,
}

impl<'a> Site<'a> {
    fn new(mut member: Member, found: TpccDataset, share: Share<'a>) -> Result<Site<'a>, LoadError> {
        let total = chunks(found.warehouses);
        let earlier = ledger::chunk_totals(&mut *member.control, found.dataset.id)?;
        let mut settled = ledger::done_chunks(&mut member.control, found.dataset.id, total)?;
        let mut own = 0;
        for chunk in 0..total {
            if share.has(Part::of_chunk(chunk, found.warehouses)) {
                own += 1;
            } else {
                settled.insert(chunk);
            }
        }
        let Member { name, spec, wal_before, .. } = member;
        Ok(Site { name, spec, found, share, chunks: own, settled, earlier, wal_before })
    }
}

/// What the streams of one node share.
struct NodeQueue<'a> {
    site: &'a Site<'a>,
    queue: Queue,
    completion: Completion,
}

/// Loads all chunks of all queues with all streams; returns when none is left, the stop was noticed, or with the first error. Stream `i` is one
/// of node `i % n`.
fn run_streams(work: &Work<'_>, node_queues: &[NodeQueue<'_>]) -> Result<(), LoadError> {
    let first_error = Mutex::new(None);
    std::thread::scope(|scope| {
        for index in 0..work.counters.streams.len() {
            let (node, first_error) = (index % node_queues.len(), &first_error);
            let node_queue = &node_queues[node];
            scope.spawn(move || {
                let stream = Stream::at(work, index, &node_queue.site.spec, &node_queue.site.name);
                let population = node_queue.site.found.population();
                let mut loader = Loader {
                    stream,
                    site: node_queue.site,
                    population: &population,
                    tuples: Tuples::new(MESSAGE_BYTES),
                };
                if let Err(error) = loader.run(&node_queue.queue, &node_queue.completion) {
                    work.failed.store(true, Ordering::Relaxed);
                    let error = error.at(&node_queue.site.name);
                    first_error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                }
                // Whoever has nothing left to do is not slow.
                work.set_idle(node, true);
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
    /// As the first node has it.
    found: &'a TpccDataset,
    /// Rows of a YCSB table, which no stream asks for here.
    nothing: Ycsb,
    sites: &'a [Site<'a>],
    options: &'a TpccOptions,
    stop: &'a Stop,
    counters: &'a Counters,
    /// Filled in as things become known.
    report: LoadReport,
    started: Instant,
}

impl<'a> Load<'a> {
    /// How keys are made on a node.
    fn finish(&self, site: &'a Site<'a>) -> Finish<'a> {
        Finish {
            spec: &site.spec,
            dataset: &site.found.dataset,
            tables: &[],
            streams: self.options.streams.div_ceil(self.sites.len()),
            tablespace: self.options.tablespace.as_deref(),
            stop: self.stop,
            reconnect_limit: self.options.reconnect_limit,
        }
    }

    /// Rows, keys, foreign keys, and the mark that all is there.
    fn run(&mut self, reporter: &mut Reporter<'_>) -> Result<Outcome, LoadError> {
        let sites = self.sites;
        let node_queues: Vec<NodeQueue<'_>> = sites
            .iter()
            .map(|site| NodeQueue {
                site,
                queue: Queue::new(site.found.warehouses, site.settled.clone()),
                completion: Completion::new(site.found.warehouses, &site.settled),
            })
            .collect();
        let (messages, inbox) = channel();
        let work = Work {
            dataset: &self.found.dataset,
            content: &self.nothing,
            leaves: Leaves::new(1, 0),
            counters: self.counters,
            stop: self.stop,
            reconnect_limit: self.options.reconnect_limit,
            failed: AtomicBool::new(false),
            messages,
            cancels: self.counters.streams.iter().map(|_| Mutex::new(None)).collect(),
        };
        let loading = AtomicBool::new(true);
        let finishes: Vec<Finish<'_>> = sites.iter().map(|site| self.finish(site)).collect();
        let builders: Vec<Builders<'_>> = std::iter::zip(&node_queues, &finishes)
            .map(|(node_queue, finish)| Builders {
                finish,
                found: &node_queue.site.found,
                share: node_queue.site.share,
                completion: &node_queue.completion,
                loading: &loading,
                failed: &work.failed,
                built: AtomicUsize::new(0),
            })
            .collect();
        reporter.begin(Phase::Copy, self.counters);
        let (copy_start, cpu_start) = (Instant::now(), cpu_us());
        let (copied, complete) = std::thread::scope(|scope| {
            let building: Vec<_> = std::iter::zip(&builders, sites)
                .map(|(builders, site)| scope.spawn(|| builders.run().map_err(|error| error.at(&site.name))))
                .collect();
            let copied = coordinate(&work, &inbox, reporter, || run_streams(&work, &node_queues));
            work.failed.fetch_or(copied.is_err(), Ordering::Relaxed);
            loading.store(false, Ordering::Release);
            self.report.seconds = copy_start.elapsed().as_secs_f64();
            self.report.client_cpu_us = cpu_us().saturating_sub(cpu_start);
            reporter.tick(self.counters);
            reporter.begin(Phase::Index, self.counters);
            let index_start = Instant::now();
            let mut next_tick = index_start + TICK;
            let tables = (Table::ALL.len() * builders.len()) as f64;
            while !building.iter().all(|thread| thread.is_finished()) {
                std::thread::sleep(LOOK);
                if Instant::now() >= next_tick {
                    next_tick += TICK;
                    let built: usize =
                        builders.iter().map(|builders| builders.built.load(Ordering::Relaxed)).sum();
                    reporter.meter.set_percent(100.0 * built as f64 / tables);
                    reporter.tick(self.counters);
                }
            }
            let ends = building
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            let complete: Result<Vec<bool>, LoadError> = ends.collect();
            self.report.index_seconds = index_start.elapsed().as_secs_f64();
            (copied, complete)
        });
        // When streams fail, builders end too, and what they say is a consequence.
        copied?;
        if !complete?.into_iter().all(|complete| complete) {
            return Ok(Outcome::Interrupted);
        }
        let mut outcome = Outcome::Complete;
        for (builders, site) in std::iter::zip(&builders, sites) {
            let concluded = self.conclude(builders).map_err(|error| error.at(&site.name))?;
            if concluded == Outcome::Interrupted {
                outcome = concluded;
            }
        }
        Ok(outcome)
    }

    /// Foreign keys and the mark of completion, on one node.
    fn conclude(&self, builders: &Builders<'_>) -> Result<Outcome, LoadError> {
        let stop = self.stop;
        let give_up = || stop.level() > StopLevel::Run;
        let mut locked = false;
        builders.finish.persist(&give_up, &mut |client| {
            locked = index::lock(client, stop)?;
            if locked && builders.found.foreign_keys {
                builders.foreign_keys(client)?;
            }
            if locked {
                // What somebody has attached meanwhile may have changed what was loaded.
                trust::check_filled(client, &builders.found.dataset)?;
                ledger::mark_loaded(client, builders.found.dataset.id)?;
            }
            Ok(())
        })?;
        Ok(if locked { Outcome::Complete } else { Outcome::Interrupted })
    }

    /// The report of what was done.
    fn close(mut self, outcome: Outcome) -> Result<LoadReport, LoadError> {
        let earlier = self.report.totals;
        let (mut all, mut bytes, mut wal_bytes) = (ChunkTotals::default(), (0, 0), Some(0u64));
        let mut nodes = Vec::new();
        for (node, site) in self.sites.iter().enumerate() {
            let (mut totals, mut sizes, mut wal_after) = (ChunkTotals::default(), (0, 0), None);
            let closed = self.finish(site).persist(&|| false, &mut |client| {
                totals = ledger::chunk_totals(client, site.found.dataset.id)?;
                sizes = sizes_of(client, site)?;
                wal_after = wal_position(client);
                Ok(())
            });
            closed.map_err(|error| error.at(&site.name))?;
            all = all.plus(totals);
            bytes = (bytes.0 + sizes.0, bytes.1 + sizes.1);
            let wal = wal_after.zip(site.wal_before).map(|(after, before)| after.saturating_sub(before));
            wal_bytes = wal_bytes.zip(wal).map(|(sum, wal)| sum + wal);
            if !self.counters.nodes.is_empty() {
                let rows = self.counters.committed_on(node);
                nodes.push(NodeReport { name: site.name.clone(), rows, totals });
            }
        }
        let report = &mut self.report;
        report.outcome = outcome;
        report.dataset.loaded = matches!(outcome, Outcome::Complete | Outcome::AlreadyComplete);
        report.rows = self.counters.committed_rows();
        report.bytes = all.bytes.saturating_sub(earlier.bytes);
        report.chunks = self.counters.chunks_done.load(Ordering::Relaxed) - earlier.chunks;
        let per_second =
            |amount: u64| if report.seconds > 0.0 { amount as f64 / report.seconds } else { 0.0 };
        (report.rows_per_s, report.bytes_per_s) = (per_second(report.rows), per_second(report.bytes));
        report.totals = all;
        report.retries = self.counters.retries.load(Ordering::Relaxed);
        report.total_seconds = self.started.elapsed().as_secs_f64();
        report.wal_bytes = wal_bytes;
        (report.table_bytes_on_disk, report.index_bytes_on_disk) = bytes;
        report.nodes = nodes;
        Ok(self.report)
    }
}

/// Bytes of a node's tables and of their indexes.
fn sizes_of(client: &mut Client, site: &Site<'_>) -> Result<(u64, u64), LoadError> {
    let tables = Table::ALL.into_iter().flat_map(|table| site.share.tables(table));
    let names: Vec<String> = tables.map(|(name, _)| name).collect();
    let row = client.query_one(
        "select coalesce(sum(pg_table_size(c.oid)), 0)::bigint, coalesce(sum(pg_indexes_size(c.oid)), 0)::bigint
         from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = $1 and c.relname = any($2)",
        &[&site.found.dataset.schema_name, &names],
    );
    let row = row.map_err(|source| LoadError::sql("reading the tables' sizes", source))?;
    Ok((row.get::<_, i64>(0).unsigned_abs(), row.get::<_, i64>(1).unsigned_abs()))
}

/// One stream that loads chunk after chunk.
struct Loader<'a> {
    stream: Stream<'a>,
    site: &'a Site<'a>,
    population: &'a Population,
    tuples: Tuples,
}

impl Loader<'_> {
    fn run(&mut self, queue: &Queue, completion: &Completion) -> Result<(), LoadError> {
        // The first connection before the first chunk: what is wrong with it is told before any work.
        while self.stream.connect()?
            && self.stream.work.stop_level() == StopLevel::Run
            && let Some(chunk) = queue.take()
        {
            let part = Part::of_chunk(chunk, self.site.found.warehouses);
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
            dataset: self.site.found.dataset.id,
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
            let table_name = self.site.share.table(table, part.w_id);
            let name = qualified(&self.site.found.dataset.schema_name, &table_name);
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

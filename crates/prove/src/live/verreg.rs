//! `verreg` and `append`: random transactions over all entry nodes, recorded as they run, and judged by the checker.
//!
//! `verreg` increments versions of rows, `append` appends to lists; in both the order of versions is known, so the check takes linear time. Transactions are
//! short (1 to
//! 4 operations), keys are few and hot, one write in seven inserts a new row: the SERIALIZABLE bug of PostgreSQL up to 12.3 appeared only with those.
//! One transaction in seven reads several rows in one statement, because only such a statement can show half of a transaction.
//!
//! The history goes to a file during the load ([`crate::history::HistoryWriter`]); memory does not grow with time. The check reads it afterwards.
//!
//! "Not refuted" needs controls: the same load at the next weaker level has to show what the level forbids, and the checker has to find an anomaly planted into
//! the same history. The order of real time and the long fork have their own controls ([`shown`]), and another planted anomaly.

pub mod late;
mod session;
mod shown;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use connect::{ConnSpec, cluster_file::Role};
use engines::profile::{EntryPoints, Statements};

use super::ack::Outcomes;
use super::failures::Failures;
use super::servers::Observed;
use super::tables::{self, SCHEMA, Shape, Tables, converge};
pub use shown::Shown;

use super::{Draws, Isolation, Lasting, LiveError, Options, Ran, after_all, under_faults};
use crate::check::{self, Base, Order};
use crate::fault::{Happened, Plan, Site};
use crate::history::{History, HistoryError, HistoryWriter, Kind, Model, Names, Op, Txn};

const REGISTERS: Shape = Shape {
    name: "verreg",
    columns: "k bigint not null, ver int not null, tok bigint not null",
    key: Some("shard, k"),
};
const LISTS: Shape =
    Shape { name: "lists", columns: "k bigint not null, val text not null", key: Some("shard, k") };
/// Keys in use at a time, for each session that writes; half of them are hot and live long, half are new.
const KEYS_PER_SESSION: usize = 4;
/// And at least so many.
const KEYS_MIN: usize = 8;
/// A hot key makes room for a new one after so many writes: lists stay short.
const WRITES_OF_KEY_MAX: u32 = 48;
/// The most transactions in the queue to the file.
const QUEUE_TXNS: usize = 4_096;
/// The most operations of a history: a check of them fits into the memory of a small host. The load goes on, but later transactions are not recorded.
const OPS_MAX: u64 = 20_000_000;
/// The time limit for a statement outside of the load.
const PATIENCE: Duration = Duration::from_secs(30);
/// The share of the time for the control, and its attempts.
const CONTROL_PART: u32 = 4;
const CONTROL_RUNS: u64 = 6;
/// But at least so long.
const CONTROL_MIN: Duration = Duration::from_millis(500);
/// Words of refusals that are kept.
const REFUSALS_MAX: usize = 5;

/// What is written down where.
#[derive(Clone, Copy, Debug)]
pub struct HistoryOptions<'a> {
    /// Versioned registers or lists.
    pub model: Model,
    /// The history's file, which must not exist.
    pub history: &'a Path,
    /// Whether the control at the next weaker level is run.
    pub has_control: bool,
    /// Threads of the checker.
    pub threads: usize,
}

/// What came out.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Report {
    /// The level that was requested.
    pub level: Isolation,
    /// Transactions by outcome.
    pub outcomes: Outcomes,
    /// Inserts of new rows, and all writes.
    pub fresh: [u64; 2],
    /// The result of the history check.
    pub report: check::Report,
    /// The same load at the next weaker level, judged at this level: transactions, anomalies.
    pub control: Option<(Isolation, u64, u64)>,
    /// Whether a planted anomaly was found; `None`: the history has its own.
    pub planted: Option<bool>,
    /// The same for one that only real time shows; `None`: the level is refuted without it.
    pub planted_late: Option<bool>,
    /// Reads that missed writes acknowledged before their statement was sent; at levels where each statement has its own snapshot.
    pub late: Option<late::Late>,
    /// Whether the deliberate fork and late read were found; `None`: they could not be made.
    pub shown: Option<Shown>,
    /// Why they could not.
    pub unshown: String,
    /// The nodes that took transactions.
    pub entries: Vec<String>,
    /// Bytes of the history's file.
    pub bytes: u64,
    /// Transactions that were not recorded, because the history was full.
    pub unwritten: u64,
    /// The first refusals, in words.
    pub refusals: Vec<String>,
    /// The faults that were injected.
    pub happened: Vec<Happened>,
    /// What was refused.
    pub failures: Failures,
    /// What became of the servers.
    pub observed: Observed,
}

/// The promise of a level, in the checker's terms.
pub fn base_of(level: Isolation) -> Base {
    match level {
        Isolation::ReadCommitted => Base::ReadCommitted,
        // PostgreSQL's, and that of its relatives.
        Isolation::RepeatableRead => Base::SnapshotIsolation,
        Isolation::Serializable => Base::Serializable,
    }
}

fn weaker(level: Isolation) -> Option<Isolation> {
    match level {
        Isolation::ReadCommitted => None,
        Isolation::RepeatableRead => Some(Isolation::ReadCommitted),
        Isolation::Serializable => Some(Isolation::RepeatableRead),
    }
}

/// The number of anomalies without an order that refute a level.
pub fn anomalies(report: &check::Report, base: Base, is_ordered: bool) -> Vec<(check::Class, u64)> {
    let mut found: Vec<(check::Class, u64)> = Vec::new();
    let mut known: Vec<String> = Vec::new();
    for witness in &report.witnesses {
        let finding = &witness.finding;
        let fits = (finding.order != Order::Data) == is_ordered
            && finding.refutes().any(|level| level.base.is_implied_by(base));
        let code = finding.code();
        if fits && !known.contains(&code) {
            found.push((finding.class, report.counts.get(&code).copied().unwrap_or(1)));
            known.push(code);
        }
    }
    found
}

/// How often the level is refuted by the order of sessions and of real time alone.
pub fn ordered(report: &check::Report, level: Isolation, late: Option<&late::Late>) -> u64 {
    let of_cycles: u64 = anomalies(report, base_of(level), true).iter().map(|(_, count)| count).sum();
    of_cycles + late.filter(|_| level == Isolation::ReadCommitted).map_or(0, |late| late.late)
}

/// A transaction as it was recorded. Places of read lists count from the beginning of `elements`.
struct Recorded {
    txn: Txn,
    ops: Vec<Op>,
    elements: Vec<u64>,
}

/// An entry of the load.
struct Entry {
    node: u8,
    spec: ConnSpec,
    /// A standby takes reads only.
    is_standby: bool,
}

/// What the sessions share.
struct Shared<'a> {
    site: &'a Site,
    model: Model,
    level: Isolation,
    table: String,
    shards: u32,
    /// The nodes of the shards, where known.
    places: Vec<String>,
    is_spread: bool,
    /// Keys in use: the first half is hot, the second is new.
    pool: Vec<AtomicU32>,
    /// Writes of the hot ones.
    writes: Vec<AtomicU32>,
    next_key: AtomicU32,
    next_session: AtomicU32,
    start: Instant,
    ops: AtomicU64,
    unwritten: AtomicU64,
}

impl<'a> Shared<'a> {
    fn new(site: &'a Site, options: &Options, model: Model, tables: &Tables, keys: usize) -> Shared<'a> {
        Shared {
            site,
            model,
            level: options.level,
            table: format!("{SCHEMA}.{}", shape_of(model).name),
            shards: tables.shards.len().max(1) as u32,
            places: tables.shards.clone(),
            is_spread: tables.is_spread,
            pool: (0..keys as u32).map(AtomicU32::new).collect(),
            writes: (0..keys).map(|_| AtomicU32::new(0)).collect(),
            next_key: AtomicU32::new(keys as u32),
            next_session: AtomicU32::new(0),
            start: Instant::now(),
            ops: AtomicU64::new(0),
            unwritten: AtomicU64::new(0),
        }
    }

    fn now(&self) -> u64 {
        // From 1: the time 0 means "unknown".
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX).max(1)
    }

    /// Whether a transaction through this node, which wrote on these shards (bits), has a commit of several steps. Where the nodes commit one after another,
    /// one foreign shard is enough: that node commits first, and then the entry may still refuse.
    fn is_wide(&self, entry: &Entry, wrote: u64) -> bool {
        let name = &self.site.nodes[usize::from(entry.node)].name;
        let own = self.places.iter().position(|place| place == name).map_or(0, |at| 1 << ((at + 1) % 64));
        self.is_spread
            && (wrote.count_ones() > 1
                || (!self.site.engine.commit.protocol.is_atomic() && wrote & !own != 0))
    }

    fn shard(&self, key: u32) -> u32 {
        key % self.shards + 1
    }
}

/// What one session brings home.
#[derive(Default)]
struct Part {
    outcomes: Outcomes,
    fresh: [u64; 2],
    refusals: Vec<String>,
    /// The load cannot go on: a transaction has a different level than requested, or an answer is not valid.
    trouble: Option<String>,
}

impl Report {
    /// Adds what the sessions did. Returns why one of them could not go on.
    fn add(&mut self, parts: Vec<Part>) -> Option<String> {
        let mut trouble = None;
        for part in parts {
            self.outcomes = self.outcomes.and(part.outcomes);
            self.fresh = [self.fresh[0] + part.fresh[0], self.fresh[1] + part.fresh[1]];
            self.refusals.extend(part.refusals);
            trouble = trouble.or(part.trouble);
        }
        self.refusals.sort();
        self.refusals.dedup();
        self.refusals.truncate(REFUSALS_MAX);
        trouble
    }
}

fn unfit(error: HistoryError) -> LiveError {
    let mut words = error.to_string();
    if let Some(source) = std::error::Error::source(&error) {
        words.push_str(&format!(": {source}"));
    }
    LiveError::Unfit(words)
}

/// Runs it at the level that `options` name, and checks the history.
///
/// # Errors
/// When the tables cannot be made, the history not be written, or a transaction has a different level than requested.
pub fn run(
    site: &Site,
    options: &Options,
    recording: &HistoryOptions<'_>,
    stop: &AtomicBool,
) -> Result<Report, LiveError> {
    let mut report = load(site, options, recording, stop, recording.has_control)?;
    let base = base_of(options.level);
    let level = check::Level::new(base, Order::Data);
    let how = check::Options { threads: recording.threads, ..check::Options::default() };
    let mut history = History::read(recording.history).map_err(unfit)?;
    report.report = check::check(&history, &how);
    let is_by_statement = site.engine.statements == Statements::Fresh;
    let look = |history: &History| {
        (options.level == Isolation::ReadCommitted).then(|| late::find(history, is_by_statement))
    };
    report.late = look(&history);
    if !report.report.refutes(level) {
        if ordered(&report.report, options.level, report.late.as_ref()) == 0 {
            plant_late(&mut history);
            let found = check::check(&history, &how);
            report.planted_late = Some(ordered(&found, options.level, look(&history).as_ref()) > 0);
        }
        plant(&mut history, base);
        report.planted = Some(check::check(&history, &how).refutes(level));
    }
    drop(history);
    if let Some(weaker) = weaker(options.level).filter(|_| recording.has_control) {
        let mut control = (weaker, 0, 0);
        for attempt in 0..CONTROL_RUNS {
            let path = beside(recording.history, "control");
            // Only the count of an attempt is needed, not its file.
            let _ = std::fs::remove_file(&path);
            let options = Options {
                level: weaker,
                duration: (options.duration / CONTROL_PART).max(CONTROL_MIN),
                plan: Plan::default(),
                seed: options.seed.wrapping_add(attempt + 1),
                ..options.clone()
            };
            let recording = HistoryOptions { history: &path, ..*recording };
            let loaded = load(site, &options, &recording, stop, false);
            let read = History::read(&path);
            let _ = std::fs::remove_file(&path);
            loaded?;
            let read = read.map_err(unfit)?;
            let found = check::check(&read, &how);
            control.1 += found.txns.values().sum::<u64>();
            control.2 += anomalies(&found, base, false).iter().map(|(_, count)| count).sum::<u64>();
            if control.2 > 0 || stop.load(Ordering::Relaxed) {
                break;
            }
        }
        report.control = Some(control);
    }
    Ok(report)
}

fn beside(path: &Path, word: &str) -> PathBuf {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    path.with_file_name(format!("{word}-{name}"))
}

/// The entries: every node that takes writes, and every standby.
fn entries(site: &Site, options: &Options) -> Vec<Entry> {
    let of = |role: Role| (0..site.nodes.len()).filter(move |node| site.nodes[*node].role == role);
    let entry = |node: usize, is_standby: bool| Entry {
        node: node as u8,
        spec: options.dressed(site.nodes[node].client_spec()),
        is_standby,
    };
    let mut writers: Vec<Entry> = match site.engine.entry {
        EntryPoints::EveryNode => {
            of(Role::Shard).chain(of(Role::Peer)).map(|node| entry(node, false)).collect()
        }
        EntryPoints::Primary | EntryPoints::Coordinator => Vec::new(),
    };
    if writers.is_empty() {
        // The node that takes writes, also after a promotion.
        writers.push(Entry { spec: options.dressed(site.entry()), ..entry(site.primary(), false) });
    }
    writers.into_iter().chain(of(Role::Standby).map(|node| entry(node, true))).collect()
}

/// Runs the load and records it. `has_shown`: the deliberate controls run before it.
fn load(
    site: &Site,
    options: &Options,
    recording: &HistoryOptions<'_>,
    stop: &AtomicBool,
    has_shown: bool,
) -> Result<Report, LiveError> {
    let entries = entries(site, options);
    let holders: Vec<usize> =
        entries.iter().filter(|entry| !entry.is_standby).map(|entry| usize::from(entry.node)).collect();
    let tables = Tables::make_for(site, &holders, &[shape_of(recording.model)])?;
    let sessions = options.clients.max(1);
    let keys = (sessions * KEYS_PER_SESSION).max(KEYS_MIN);
    let shared = Shared::new(site, options, recording.model, &tables, keys);
    fill(&shared, keys as u32)?;
    if site.engine.layout.publishes() {
        let stuck = converge(site, &holders)?;
        if !stuck.is_empty() {
            return Err(LiveError::Unfit(format!("replication does not work: {}", stuck.join("; "))));
        }
    }
    let shown = has_shown.then(|| shown::play(&shared, &entries));
    let mut names = Names {
        nodes: site.nodes.iter().map(|node| node.name.clone()).collect(),
        shards: tables.shards.clone(),
        ..Names::default()
    };
    let writer = HistoryWriter::create(recording.history, recording.model, &names).map_err(unfit)?;
    let (ran, written) = drive(&shared, &entries, options, writer, stop);
    let Ran { parts, happened, failures, mut observed } = ran;
    let mut writer = written.map_err(unfit)?;
    let all = shared.next_key.load(Ordering::Relaxed);
    // Witnesses name shards; new keys were added during the load.
    names.shard_of_key = (0..all).map(|key| (shared.shard(key) - 1) as u8).collect();
    writer.name(&names).and_then(|()| writer.finish()).map_err(unfit)?;
    let mut report = Report {
        level: options.level,
        entries: entries.iter().map(|entry| site.nodes[usize::from(entry.node)].name.clone()).collect(),
        bytes: std::fs::metadata(recording.history).map_or(0, |data| data.len()),
        unwritten: shared.unwritten.load(Ordering::Relaxed),
        happened,
        failures,
        ..Report::default()
    };
    match shown {
        Some(Ok(shown)) => report.shown = Some(shown),
        Some(Err(error)) => report.unshown = error.to_string(),
        None => {}
    }
    let trouble = report.add(parts);
    // The history is complete without the rows, so a cluster that does not recover does not prevent the verdict.
    match after_all(site, &tables, &mut observed, PATIENCE) {
        Ok(_) | Err(LiveError::NotBack(_) | LiveError::Restless(_)) => {}
        Err(error) => return Err(error),
    }
    report.observed = observed;
    tables.remove(site);
    match trouble {
        Some(words) => Err(LiveError::Unfit(words)),
        None => Ok(report),
    }
}

/// Runs the sessions under the faults, and writes down their transactions beside them.
fn drive(
    shared: &Shared<'_>,
    entries: &[Entry],
    options: &Options,
    writer: HistoryWriter,
    stop: &AtomicBool,
) -> (Ran<Part>, Result<HistoryWriter, HistoryError>) {
    let sessions = options.clients.max(1);
    let writing: Vec<&Entry> = entries.iter().filter(|entry| !entry.is_standby).collect();
    let reading: Vec<&Entry> = entries.iter().filter(|entry| entry.is_standby).collect();
    let (sink, queue) = sync_channel(QUEUE_TXNS);
    std::thread::scope(|scope| {
        let written = scope.spawn(move || write_down(writer, queue));
        let ran = under_faults(shared.site, options, stop, sessions + reading.len(), |number, watch| {
            let entry = match number.checked_sub(sessions) {
                Some(reader) => reading[reader],
                None => writing[number % writing.len()],
            };
            let lasting = Lasting::new(entry.spec.clone(), options.patience);
            let draws = Draws::new(options.seed, number);
            session::run(shared, entry, number, (lasting, draws), &sink, watch)
        });
        drop(sink);
        let written = written.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (ran, written)
    })
}

/// The table of a model.
fn shape_of(model: Model) -> Shape {
    if model == Model::Append { LISTS } else { REGISTERS }
}

/// The initial rows: version 0, or an empty list.
fn fill(shared: &Shared<'_>, keys: u32) -> Result<(), LiveError> {
    let value = if shared.model == Model::Append { "''" } else { "0, 0" };
    let row = |key| format!("{} values ({}, {key}, {value})", shared.table, shared.shard(key));
    tables::fill(shared.site, shared.site.primary(), (0..keys).map(row))
}

/// Writes transactions until the last session has ended.
fn write_down(mut writer: HistoryWriter, queue: Receiver<Recorded>) -> Result<HistoryWriter, HistoryError> {
    let mut result = Ok(());
    for Recorded { txn, ops, elements } in queue {
        // A full disk is reported at the end; sessions that wait for the queue must not hang until then.
        if result.is_ok() {
            result = writer.push(&txn, &ops, &elements);
        }
    }
    result.map(|()| writer)
}

/// Queues a transaction for the file, unless the history is full.
fn hand_over(shared: &Shared<'_>, sink: &SyncSender<Recorded>, recorded: Recorded) {
    let count = recorded.ops.len() as u64;
    if shared.ops.fetch_add(count, Ordering::Relaxed) + count > OPS_MAX {
        shared.unwritten.fetch_add(1, Ordering::Relaxed);
        return;
    }
    // The receiver exists as long as there are sessions.
    let _ = sink.send(recorded);
}

/// Adds transactions, on separate keys, that this level forbids.
fn plant(history: &mut History, base: Base) {
    let key = history.ops().iter().map(|op| op.key).max().map_or(0, |key| key + 1);
    let token = 1 << 60;
    let session = history.txns().iter().map(|txn| txn.session).max().map_or(0, |session| session + 1);
    let begin = history.txns().iter().map(|txn| txn.end_ns).max().unwrap_or(0) + 1;
    let is_list = history.model() == Model::Append;
    let read = |history: &mut History, key: u32, seen: &[u64]| match is_list {
        true => history.read_list(key, seen),
        false => Op::new(Kind::Read, key, seen.len() as u32, seen.last().copied().unwrap_or(0)),
    };
    let write = |key: u32, token: u64| match is_list {
        true => Op::new(Kind::Append, key, 1, token),
        false => Op::new(Kind::Insert, key, 1, token),
    };
    let (one, two) = (write(key, token), write(key + 1, token + 1));
    let txns = match base {
        // Both read two rows, each writes another one.
        Base::Serializable => {
            let reads = [read(history, key, &[]), read(history, key + 1, &[])];
            vec![vec![reads[0], reads[1], one], vec![reads[0], reads[1], two]]
        }
        // One saw only the first write, another one only the second.
        Base::SnapshotIsolation | Base::RepeatableRead => vec![
            vec![one],
            vec![two],
            vec![read(history, key, &[token]), read(history, key + 1, &[])],
            vec![read(history, key, &[]), read(history, key + 1, &[token + 1])],
        ],
        // One statement saw half of a transaction.
        _ => vec![vec![one, two], vec![read(history, key, &[]), read(history, key + 1, &[token + 1])]],
    };
    let is_one_statement =
        !matches!(base, Base::Serializable | Base::SnapshotIsolation | Base::RepeatableRead);
    for (at, ops) in txns.into_iter().enumerate() {
        let ops: Vec<Op> = ops
            .into_iter()
            .enumerate()
            .map(|(statement, op)| Op {
                statement: if is_one_statement && !op.kind.is_write() { 0 } else { statement as u16 },
                ..op
            })
            .collect();
        history.push(Txn::ok(session + at as u32).between(begin, begin + 1), &ops);
    }
}

/// Adds a write and a read that was sent after its acknowledgement and missed it, on a separate key.
fn plant_late(history: &mut History) {
    let key = history.ops().iter().map(|op| op.key).max().map_or(0, |key| key + 1);
    let session = history.txns().iter().map(|txn| txn.session).max().map_or(0, |session| session + 1);
    let begin = history.txns().iter().map(|txn| txn.end_ns).max().unwrap_or(0) + 1;
    let token = 1 << 61;
    let (write, read) = match history.model() {
        Model::Append => (Op::new(Kind::Append, key, 1, token), history.read_list(key, &[])),
        _ => (Op::new(Kind::Insert, key, 1, token), Op::new(Kind::Read, key, 0, 0)),
    };
    history.push(Txn::ok(session).between(begin, begin + 1), &[Op { start_ns: begin, ..write }]);
    history.push(Txn::ok(session + 1).between(begin + 2, begin + 3), &[Op { start_ns: begin + 2, ..read }]);
}

#[cfg(test)]
mod tests;

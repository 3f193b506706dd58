//! The consistency conditions of a benchmark: all of them in one snapshot, over ranges, with several connections at once.
//!
//! ```text
//! control connection: repeatable read, finds the extent, exports its snapshot ──> N connections import it
//!                                                                                  each takes (query, range) after (query, range)
//! ```
//!
//! On a cluster sharded by `postgres_fdw` there is a control connection on each node, with a snapshot of that node, and each of the N workers has
//! connections to every node ([`nodes`]): what one node has is judged there, what several nodes have about each other is brought together.
//!
//! The snapshot makes the answer exact while transactions go on: nothing has to be stopped, during a run neither. Where the server cannot share a
//! snapshot, one connection does all the work, and a note reports it. A query that fails is a failure of its conditions, never a zero.

mod condition;
mod nodes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use connect::hot::{self, CancelToken, HotConnection, QueryError};
use connect::{ConnSpec, ConnectError, sql};
use engines::Cluster;

pub use condition::{Access, Condition, Names, Others, Probe, Table};
pub use nodes::Node;
use nodes::Opened;

/// Things that break a condition are named at most so many times; all are counted.
pub const WITNESSES_MAX: usize = 20;
/// Ranges of the queries by key are cut so that each connection gets about so many: the slowest one then matters little.
const RANGES_PER_CONNECTION: u64 = 4;
/// And no range is longer than this, so that an interrupt need not wait for a long query to be repeated.
const RANGE_MAX: u64 = 500;
/// How often the coordinator checks the stop flag and reports progress.
const TICK: Duration = Duration::from_millis(100);

/// What there is to judge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// The first of what ranges are of.
    pub from: i64,
    /// The last.
    pub to: i64,
    /// How many there are.
    pub count: u64,
    /// What transactions have added since the load, where it can be counted.
    pub added: Option<u64>,
    /// A part of the whole was requested.
    pub is_part: bool,
}

/// The consistency conditions of a benchmark.
pub trait Conditions: std::fmt::Debug + Sync {
    /// The benchmark's name on the command line.
    fn name(&self) -> &'static str;

    /// All of them, in the order of the report.
    fn all(&self) -> &'static [Condition];

    /// Their codes in words.
    fn codes(&self) -> &'static str;

    /// What ranges are of, in the plural.
    fn units(&self) -> &'static str;

    /// What no condition looks at.
    fn not_covered(&self) -> &'static str;

    /// What fills the tables.
    fn fill(&self) -> &'static str;

    /// The tables, in the order in which one that is missing is named.
    fn tables(&self) -> &'static [Table];

    /// Adds the places that follow from those of the tables.
    fn complete(&self, _names: &mut Names) {}

    /// All queries, the most expensive first.
    fn probes(&self) -> &'static [Probe];

    /// Where partitions are foreign tables, each node's rows are read on that node, in a snapshot of its own; else all through the first node.
    fn is_read_by_node(&self) -> bool {
        true
    }

    /// Finds out what there is to judge; `only` is the range that was requested.
    ///
    /// # Errors
    /// When there is nothing, or a query fails.
    fn extent(&self, nodes: &mut [Node], only: Option<(i64, i64)>) -> Result<Extent, ProveError>;

    /// Judges what looks at all nodes together, and what does not apply here: takes those conditions from `wanted`.
    ///
    /// # Errors
    /// When a query fails whose result other conditions need.
    fn judge_whole(
        &self,
        _nodes: &mut [Node],
        _extent: &Extent,
        _wanted: &mut BTreeSet<Condition>,
    ) -> Result<Vec<Answer>, ProveError> {
        Ok(Vec::new())
    }

    /// The condition of this code.
    fn condition(&self, code: &str) -> Option<Condition> {
        self.all().iter().copied().find(|condition| condition.code().eq_ignore_ascii_case(code.trim()))
    }
}

/// What to prove.
#[derive(Clone, Debug)]
pub struct Options {
    /// Connections at once.
    pub jobs: usize,
    /// The conditions to judge.
    pub conditions: BTreeSet<Condition>,
    /// Only this range, both ends included; `None`: all.
    pub range: Option<(i64, i64)>,
}

/// What became of a condition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It holds everywhere.
    Kept,
    /// It does not.
    Broken {
        /// How many things break it.
        count: u64,
        /// The first of them, in words.
        witnesses: Vec<String>,
    },
    /// It proves nothing about this database.
    DoesNotApply {
        /// Why.
        why: String,
    },
    /// It could not be judged everywhere.
    Failed {
        /// What the server reported.
        error: String,
    },
}

/// The answer about one condition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// Which one.
    pub condition: Condition,
    /// Things looked at.
    pub looked_at: u64,
    /// What became of it.
    pub outcome: Outcome,
}

/// The answers.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// In the order of [`Conditions::all`].
    pub answers: Vec<Answer>,
    /// What was looked at.
    pub extent: Extent,
    /// Connections that worked.
    pub jobs: usize,
    /// Snapshots that were read in: one for each node. None spans two of them.
    pub snapshots: usize,
    /// What a reader should know.
    pub notes: Vec<String>,
    /// From first to last.
    pub duration: Duration,
}

impl Report {
    /// Whether any condition is broken.
    pub fn is_broken(&self) -> bool {
        self.answers.iter().any(|answer| matches!(answer.outcome, Outcome::Broken { .. }))
    }

    /// Whether any condition could not be judged.
    pub fn has_failed(&self) -> bool {
        self.answers.iter().any(|answer| matches!(answer.outcome, Outcome::Failed { .. }))
    }
}

/// How far a proof is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Queries done.
    pub done: u64,
    /// Queries in all.
    pub total: u64,
    /// Things looked at so far.
    pub looked_at: u64,
}

/// Why there is no answer at all.
#[derive(Debug, thiserror::Error)]
pub enum ProveError {
    /// No connection.
    #[error("cannot connect to the target")]
    Connect(#[from] ConnectError),
    /// One of the tables is not there.
    #[error("there is no table {table} in this database")]
    NoTable {
        /// Its name.
        table: &'static str,
        /// What fills it.
        fill: &'static str,
    },
    /// A table, or something attached to it, belongs to a role whose code must not run with our rights.
    #[error("{0}")]
    NotTrusted(engines::trust::Distrust),
    /// There is nothing to judge.
    #[error("{what}")]
    Empty {
        /// What is missing.
        what: String,
        /// What to type next.
        hint: String,
    },
    /// A statement before the conditions failed.
    #[error("{doing} failed")]
    Sql {
        /// What it was for.
        doing: &'static str,
        /// What happened.
        source: Box<QueryError>,
    },
    /// The server's answer does not fit the query.
    #[error("{doing}: the server's answer makes no sense")]
    Answer {
        /// What it was for.
        doing: &'static str,
    },
    /// The system refused a thread.
    #[error("this machine refused a thread")]
    Thread(#[from] std::io::Error),
    /// The user stopped it.
    #[error("interrupted before there was an answer")]
    Interrupted,
}

impl ProveError {
    /// What to type next.
    pub fn hint(&self) -> Option<String> {
        match self {
            ProveError::Connect(error) => error.hint(),
            ProveError::NoTable { fill, .. } => {
                Some(format!("load it: {fill}, or name the database that holds the tables"))
            }
            ProveError::NotTrusted(distrust) => Some(distrust.hint()),
            ProveError::Empty { hint, .. } => Some(hint.clone()),
            ProveError::Sql { .. } => {
                Some("the role needs SELECT on the tables; see also the log of the server".into())
            }
            ProveError::Answer { .. } | ProveError::Thread(_) | ProveError::Interrupted => None,
        }
    }
}

impl ProveError {
    /// A statement before the conditions failed.
    pub fn sql(doing: &'static str) -> impl Fn(QueryError) -> ProveError {
        move |source| ProveError::Sql { doing, source: Box::new(source) }
    }
}

/// One query over one range, on one node.
#[derive(Clone, Copy, Debug)]
struct Job {
    probe: &'static Probe,
    /// In the order of the nodes.
    node: usize,
    from: i64,
    to: i64,
}

/// What has been found about a condition.
#[derive(Clone, Debug, Default)]
struct Found {
    looked_at: u64,
    broken: u64,
    /// With the range and the node that they were found in, and in that order, whoever was first.
    witnesses: Vec<(i64, usize, String)>,
    error: Option<String>,
}

/// What the connections share.
#[derive(Debug)]
struct Work<'a> {
    /// What ranges are of.
    units: &'static str,
    jobs: &'a [Job],
    /// What the tables are on each node.
    names: &'a [Names],
    wanted: &'a BTreeSet<Condition>,
    /// What no connection has taken yet, the next one last.
    left: Mutex<Vec<usize>>,
    done: AtomicU64,
    looked_at: AtomicU64,
    found: Mutex<BTreeMap<Condition, Found>>,
    stop: &'a AtomicBool,
}

/// Judges the conditions. `observer` receives how far it is, from this thread.
///
/// # Errors
/// When there is nothing to judge, or the user stopped it. A query that fails is no error of the call: it is the outcome of its conditions.
pub fn prove(
    what: &dyn Conditions,
    spec: &ConnSpec,
    options: &Options,
    stop: &AtomicBool,
    observer: &mut dyn FnMut(Progress),
) -> Result<Report, ProveError> {
    prove_on(what, &Cluster::single(spec.clone()), options, stop, observer)
}

/// The same on a cluster: one sharded by `postgres_fdw` is judged node by node, any other through its first node.
///
/// # Errors
/// As [`prove`].
pub fn prove_on(
    what: &dyn Conditions,
    cluster: &Cluster,
    options: &Options,
    stop: &AtomicBool,
    observer: &mut dyn FnMut(Progress),
) -> Result<Report, ProveError> {
    let watch = Watch { stop, cancels: Mutex::default(), is_over: AtomicBool::new(false) };
    let outcome = std::thread::scope(|scope| {
        std::thread::Builder::new().name("stop".into()).spawn_scoped(scope, || watch.keep())?;
        let outcome = prove_watched(what, cluster, options, &watch, observer);
        watch.is_over.store(true, Ordering::Relaxed);
        outcome
    });
    // Whatever a cancelled query looks like from where it was sent.
    if stop.load(Ordering::Relaxed) { Err(ProveError::Interrupted) } else { outcome }
}

/// Ends running queries when the user stops the proof.
#[derive(Debug)]
struct Watch<'a> {
    stop: &'a AtomicBool,
    cancels: Mutex<Vec<CancelToken>>,
    is_over: AtomicBool,
}

impl Watch<'_> {
    fn keep(&self) {
        while !self.is_over.load(Ordering::Relaxed) {
            if self.stop.load(Ordering::Relaxed) {
                // Again and again: a request that comes between two queries ends neither.
                for cancel in self.cancels.lock().unwrap_or_else(PoisonError::into_inner).iter() {
                    let _ = cancel.cancel();
                }
            }
            std::thread::sleep(TICK);
        }
    }

    /// A connection that a stop reaches, in a transaction of its own.
    fn connect(&self, spec: &ConnSpec) -> Result<HotConnection, ProveError> {
        let mut connection = hot::connect(&spec.pinned())?;
        self.cancels.lock().unwrap_or_else(PoisonError::into_inner).push(connection.cancel_token());
        begin(&mut connection)?;
        Ok(connection)
    }
}

fn prove_watched(
    what: &dyn Conditions,
    cluster: &Cluster,
    options: &Options,
    watch: &Watch<'_>,
    observer: &mut dyn FnMut(Progress),
) -> Result<Report, ProveError> {
    let begun = Instant::now();
    let Opened { mut nodes, mut notes } = nodes::open(what, cluster, watch)?;
    let extent = what.extent(&mut nodes, options.range)?;
    let mut conditions = options.conditions.clone();
    let mut answers: BTreeMap<Condition, Answer> = BTreeMap::new();
    for answer in what.judge_whole(&mut nodes, &extent, &mut conditions)? {
        answers.insert(answer.condition, answer);
    }
    let jobs = options.jobs.max(1);
    let snapshots = nodes::share_snapshots(&mut nodes, &mut notes)?;
    let snapshots_taken = nodes.len();
    let connections = if snapshots.is_some() { jobs } else { 1 };
    let list = jobs_of(what.probes(), &conditions, (extent.from, extent.to), connections, nodes.len());
    let names: Vec<Names> = nodes.iter().map(|node| node.names.clone()).collect();
    let work = Work {
        units: what.units(),
        jobs: &list,
        names: &names,
        wanted: &conditions,
        left: Mutex::new((0..list.len()).rev().collect()),
        done: AtomicU64::new(0),
        looked_at: AtomicU64::new(0),
        found: Mutex::new(conditions.iter().map(|condition| (*condition, Found::default())).collect()),
        stop: watch.stop,
    };
    let mut workers: Vec<Sessions> = Vec::new();
    // The connections that share their snapshots must stay as they are until the others are done.
    let keepers = match snapshots {
        None => {
            workers.push(nodes.into_iter().map(|node| node.control).collect());
            Vec::new()
        }
        Some(snapshots) => {
            for _ in 0..jobs.min(list.len()) {
                let sessions = std::iter::zip(&nodes, &snapshots).map(|(node, snapshot)| {
                    let mut connection = watch.connect(&node.spec)?;
                    let import = format!("set transaction snapshot {}", sql::literal(snapshot));
                    run(&mut connection, "sharing the snapshot", &import)?;
                    Ok(connection)
                });
                workers.push(sessions.collect::<Result<Sessions, ProveError>>()?);
            }
            nodes
        }
    };
    let jobs = workers.iter().map(Vec::len).sum();
    together(workers, &work, observer)?;
    drop(keepers);
    for (condition, found) in work.found.into_inner().unwrap_or_else(PoisonError::into_inner) {
        let outcome = match found.error {
            // A difference that was seen stands, whatever else could not be looked at.
            _ if found.broken > 0 => Outcome::Broken {
                count: found.broken,
                witnesses: found.witnesses.into_iter().map(|(_, _, witness)| witness).collect(),
            },
            Some(error) => Outcome::Failed { error },
            None => Outcome::Kept,
        };
        answers.insert(condition, Answer { condition, looked_at: found.looked_at, outcome });
    }
    Ok(Report {
        answers: answers.into_values().collect(),
        extent,
        jobs,
        snapshots: snapshots_taken,
        notes,
        duration: begun.elapsed(),
    })
}

/// One connection to each node, in their order, in their snapshots.
type Sessions = Vec<HotConnection>;

/// The queries that are needed, cut into ranges, the most expensive first.
fn jobs_of(
    probes: &'static [Probe],
    conditions: &BTreeSet<Condition>,
    (from, to): (i64, i64),
    connections: usize,
    nodes: usize,
) -> Vec<Job> {
    let connections = connections as u64;
    let count = (to - from + 1) as u64;
    let mut jobs = Vec::new();
    for probe in probes.iter().filter(|probe| probe.conditions.iter().any(|one| conditions.contains(one))) {
        let length = match probe.access {
            Access::WholeTable => count.div_ceil(connections),
            Access::ByKey => count.div_ceil(connections * RANGES_PER_CONNECTION).min(RANGE_MAX),
            Access::Once => count,
        }
        .max(1) as i64;
        let mut first = from;
        while first <= to {
            let last = to.min(first + length - 1);
            jobs.extend((0..nodes).map(|node| Job { probe, node, from: first, to: last }));
            first = last + 1;
        }
    }
    jobs
}

/// Runs the list on all connections.
fn together(
    workers: Vec<Sessions>,
    work: &Work<'_>,
    observer: &mut dyn FnMut(Progress),
) -> Result<(), ProveError> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = workers
            .into_iter()
            .map(|sessions| {
                std::thread::Builder::new()
                    .name("prover".into())
                    .spawn_scoped(scope, move || member(sessions, work))
            })
            .collect();
        let mut refused = None;
        let threads: Vec<_> = threads
            .into_iter()
            .filter_map(|thread| thread.map_err(|error| refused = Some(error)).ok())
            .collect();
        while !threads.iter().all(|thread| thread.is_finished()) {
            observer(Progress {
                done: work.done.load(Ordering::Relaxed),
                total: work.jobs.len() as u64,
                looked_at: work.looked_at.load(Ordering::Relaxed),
            });
            std::thread::sleep(TICK);
        }
        for thread in threads {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
        let left = std::mem::take(&mut *work.left.lock().unwrap_or_else(PoisonError::into_inner));
        match refused {
            // Fewer hands do the same work, as long as there is one.
            Some(error) if !left.is_empty() => Err(error.into()),
            _ => {
                for at in left {
                    note_error(work, &work.jobs[at], "every connection was lost before this was looked at");
                }
                Ok(())
            }
        }
    })
}

/// One worker's part.
fn member(mut sessions: Sessions, work: &Work<'_>) {
    let left = || work.left.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        if work.stop.load(Ordering::Relaxed) {
            return;
        }
        let Some(at) = left().pop() else { return };
        let job = &work.jobs[at];
        // The snapshot survives an error only behind a savepoint.
        let requested =
            || if job.probe.others.is_some() { 0..work.names.len() } else { job.node..job.node + 1 };
        if requested().any(|node| run_quietly(&mut sessions[node], "savepoint here").is_err()) {
            left().push(at);
            return;
        }
        if let Err(error) = judge(&mut sessions, work, job) {
            note_error(work, job, &error.to_string());
            // If this fails, too, the next savepoint does, and the others take over.
            requested().for_each(|node| drop(run_quietly(&mut sessions[node], "rollback to savepoint here")));
        }
        work.done.fetch_add(1, Ordering::Relaxed);
    }
}

fn note_error(work: &Work<'_>, job: &Job, error: &str) {
    let mut found = work.found.lock().unwrap_or_else(PoisonError::into_inner);
    for condition in job.probe.conditions {
        if let Some(found) = found.get_mut(condition) {
            let place = format!("{} {} to {}: {error}", work.units, job.from, job.to);
            found.error.get_or_insert(place);
        }
    }
}

/// One query, and those that name what it counted.
fn judge(sessions: &mut Sessions, work: &Work<'_>, job: &Job) -> Result<(), QueryError> {
    let wider;
    let names = match job.probe.others.filter(|_| work.names.len() > 1) {
        Some(others) => {
            wider = nodes::with_others(sessions, work.names, job, others)?;
            &wider
        }
        None => &work.names[job.node],
    };
    let connection = &mut sessions[job.node];
    let rows = connection.simple_query(&job.probe.count_sql(names, job.from, job.to))?;
    let nonsense = || QueryError::Io(std::io::Error::other("the server's counts make no sense"));
    let counts: Vec<u64> = rows
        .first()
        .ok_or_else(nonsense)?
        .iter()
        .map(|value| text_of(value.as_deref()).parse().map_err(|_| nonsense()))
        .collect::<Result<_, _>>()?;
    if counts.len() != 1 + job.probe.conditions.len() {
        return Err(nonsense());
    }
    for (condition, &broken) in job.probe.conditions.iter().zip(&counts[1..]) {
        if !work.wanted.contains(condition) {
            continue;
        }
        let mut witnesses = Vec::new();
        if broken > 0 {
            let sql = job.probe.witness_sql(*condition, names, (job.from, job.to), WITNESSES_MAX);
            witnesses = connection.simple_query(&sql)?.iter().map(|row| witness(job.probe, row)).collect();
        }
        let mut found = work.found.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(found) = found.get_mut(condition) else { continue };
        found.looked_at += counts[0];
        found.broken += broken;
        found.witnesses.extend(witnesses.into_iter().map(|witness| (job.from, job.node, witness)));
        found.witnesses.sort_by_key(|(from, node, _)| (*from, *node));
        found.witnesses.truncate(WITNESSES_MAX);
    }
    work.looked_at.fetch_add(counts[0], Ordering::Relaxed);
    Ok(())
}

/// `w_id 3, w_ytd 300000.00, district_ytd 299990.00`
fn witness(probe: &Probe, row: &[Option<Vec<u8>>]) -> String {
    let pairs = probe.columns.iter().zip(row);
    pairs
        .map(|(name, value)| match value {
            Some(value) => format!("{name} {}", String::from_utf8_lossy(value)),
            None => format!("{name} missing"),
        })
        .collect::<Vec<_>>()
        .join(", ")
}

fn text_of(value: Option<&[u8]>) -> String {
    value.map(|value| String::from_utf8_lossy(value).into_owned()).unwrap_or_default()
}

fn begin(connection: &mut HotConnection) -> Result<(), ProveError> {
    run(connection, "beginning a transaction", "begin isolation level repeatable read, read only")
}

fn run(connection: &mut HotConnection, doing: &'static str, sql: &str) -> Result<(), ProveError> {
    run_quietly(connection, sql).map_err(ProveError::sql(doing))
}

fn run_quietly(connection: &mut HotConnection, sql: &str) -> Result<(), QueryError> {
    connection.simple_query(sql).map(drop)
}

fn text(connection: &mut HotConnection, sql: &str) -> Result<String, QueryError> {
    let rows = connection.simple_query(sql)?;
    Ok(rows.first().and_then(|row| row.first()).map(|value| text_of(value.as_deref())).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Condition = Condition::new(1, "A", "a", "row");
    const B: Condition = Condition::new(2, "B", "b", "row");
    const C: Condition = Condition::new(3, "C", "c", "row");

    const fn probe(conditions: &'static [Condition], access: Access) -> Probe {
        Probe { conditions, access, columns: &["w_id", "w_ytd", "district_ytd"], sql: "", others: None }
    }

    static PROBES: [Probe; 3] =
        [probe(&[A], Access::WholeTable), probe(&[B, C], Access::ByKey), probe(&[C], Access::Once)];

    #[test]
    fn ranges_cover_everything_once_for_each_query() {
        let all: BTreeSet<Condition> = [A, B, C].into();
        for (from, to) in [(1, 1), (1, 2), (3, 10), (1, 15_000), (7, 100_000)] {
            for connections in [1, 2, 7, 64] {
                let jobs = jobs_of(&PROBES, &all, (from, to), connections, 2);
                for (probe, node) in PROBES.iter().flat_map(|probe| [(probe, 0), (probe, 1)]) {
                    let mut next = from;
                    let own = |job: &&Job| std::ptr::eq(job.probe, probe) && job.node == node;
                    for job in jobs.iter().filter(own) {
                        assert_eq!(job.from, next);
                        assert!(job.to >= job.from);
                        next = job.to + 1;
                    }
                    assert_eq!(next, to + 1, "{probe:?}");
                }
            }
        }
    }

    #[test]
    fn only_what_is_asked_for_is_read() {
        let jobs = |wanted: Condition| jobs_of(&PROBES, &[wanted].into(), (1, 9), 1, 1);
        assert!(jobs(A).iter().all(|job| job.probe.conditions == [A]));
        // Two conditions share a query: requesting one of them runs it once.
        assert_eq!(jobs(B).len(), RANGES_PER_CONNECTION as usize - 1);
    }

    #[test]
    fn a_witness_names_each_number() {
        let row = [Some(b"3".to_vec()), Some(b"300000.00".to_vec()), None];
        assert_eq!(witness(&PROBES[0], &row), "w_id 3, w_ytd 300000.00, district_ytd missing");
    }
}

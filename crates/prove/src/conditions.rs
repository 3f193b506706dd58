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
//! The snapshot makes the result exact while transactions continue, also during a run. Where the server cannot share a
//! snapshot, one connection does all the work, and a note reports it. A query that fails is a failure of its conditions, never a zero.

mod condition;
mod copied;
mod error;
mod jobs;
mod nodes;
mod workers;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use connect::hot::{self, CancelToken, HotConnection, QueryError};
use connect::{ConnSpec, sql};
use engines::Cluster;
use engines::profile::Layout;

pub use condition::{Access, Condition, Names, Others, Probe, Table};
pub use error::ProveError;
use jobs::{Job, jobs_of};
pub use nodes::Node;
use nodes::Opened;
use workers::{Found, Sessions, Work, together};

/// Things that break a condition are named at most so many times; all are counted.
pub const WITNESSES_MAX: usize = 20;
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

    /// What they are about, after the name in the help of `prove`.
    fn about(&self) -> &'static str;

    /// Commands that work: what follows `prove`, and what it does.
    fn examples(&self) -> &'static [(&'static str, &'static str)];

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

    /// Judges what must be the same on all nodes, where the engine keeps whole tables on each of them: takes those conditions from `wanted`. The nodes have
    /// only the tables of which every node has a copy.
    fn judge_copies(&self, _copies: &mut [Node], _wanted: &mut BTreeSet<Condition>) -> Vec<Answer> {
        Vec::new()
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

impl Report {
    /// The same with the name of the node before what was found on it.
    fn of_node(mut self, name: &str) -> Report {
        let at = |words: &mut String| *words = format!("{name}: {words}");
        for answer in &mut self.answers {
            match &mut answer.outcome {
                Outcome::Broken { witnesses, .. } => witnesses.iter_mut().for_each(at),
                Outcome::Failed { error } => at(error),
                Outcome::DoesNotApply { .. } | Outcome::Kept => {}
            }
        }
        self.notes.iter_mut().for_each(at);
        self
    }

    /// What two nodes come to together.
    fn and(mut self, other: Report) -> Report {
        for (answer, other) in self.answers.iter_mut().zip(other.answers) {
            answer.looked_at += other.looked_at;
            answer.outcome = std::mem::replace(&mut answer.outcome, Outcome::Kept).and(other.outcome);
        }
        self.notes.extend(other.notes);
        Report {
            jobs: self.jobs.max(other.jobs),
            snapshots: self.snapshots + other.snapshots,
            duration: self.duration + other.duration,
            ..self
        }
    }
}

impl Outcome {
    /// The worse one of two nodes; what breaks a condition on both is counted together.
    fn and(self, other: Outcome) -> Outcome {
        match (self, other) {
            (
                Outcome::Broken { count, mut witnesses },
                Outcome::Broken { count: more, witnesses: others },
            ) => {
                witnesses.extend(others);
                witnesses.truncate(WITNESSES_MAX);
                Outcome::Broken { count: count + more, witnesses }
            }
            (broken @ Outcome::Broken { .. }, _) | (_, broken @ Outcome::Broken { .. }) => broken,
            (failed @ Outcome::Failed { .. }, _) | (_, failed @ Outcome::Failed { .. }) => failed,
            // Where it proves nothing about one of the nodes, it does not hold for all.
            (not @ Outcome::DoesNotApply { .. }, _) | (_, not @ Outcome::DoesNotApply { .. }) => not,
            (Outcome::Kept, Outcome::Kept) => Outcome::Kept,
        }
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

/// The same on a cluster: one sharded by `postgres_fdw` is judged node by node. Where every node holds every row, each is judged by itself. Any other is
/// judged through its first node.
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
        let outcome = match copies(cluster).as_slice() {
            [] => prove_watched(what, cluster, options, &watch, observer),
            copies => prove_each(what, copies, options, &watch, observer),
        };
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

    /// A connection that a stop reaches, in a separate transaction.
    fn connect(&self, spec: &ConnSpec) -> Result<HotConnection, ProveError> {
        let mut connection = hot::connect(&spec.pinned())?;
        self.cancels.lock().unwrap_or_else(PoisonError::into_inner).push(connection.cancel_token());
        begin(&mut connection)?;
        Ok(connection)
    }
}

/// The nodes that each hold every row and take writes, if there are several: what one has proves nothing about another.
fn copies(cluster: &Cluster) -> Vec<(String, Cluster)> {
    if !matches!(cluster.engine.layout, Layout::Copies(_)) || cluster.nodes.len() < 2 {
        return Vec::new();
    }
    cluster
        .data_nodes()
        .map(|node| &cluster.nodes[node])
        .map(|node| (node.name.clone(), Cluster::single(node.spec.clone())))
        .collect()
}

/// Judges each of these nodes by itself. A condition is kept if all of them keep it.
fn prove_each(
    what: &dyn Conditions,
    copies: &[(String, Cluster)],
    options: &Options,
    watch: &Watch<'_>,
    observer: &mut dyn FnMut(Progress),
) -> Result<Report, ProveError> {
    let mut all: Option<Report> = None;
    let mut conditions = options.conditions.clone();
    let compared = compare_copies(what, copies, &mut conditions, watch)?;
    let options = Options { conditions, ..options.clone() };
    for (name, cluster) in copies {
        let report = prove_watched(what, cluster, &options, watch, observer).map_err(at(name))?.of_node(name);
        all = Some(match all {
            None => report,
            Some(all) => all.and(report),
        });
    }
    let mut all = all.ok_or(ProveError::Answer { doing: "looking for the nodes" })?;
    all.answers.extend(compared);
    all.answers.sort_by_key(|answer| answer.condition);
    let names: Vec<&str> = copies.iter().map(|(name, _)| name.as_str()).collect();
    all.notes.push(format!(
        "each of the nodes {} holds every row and was judged by itself, in its own snapshot; whether they have the same rows is what verify shows",
        names.join(", ")
    ));
    Ok(all)
}

/// What must be the same on all of these nodes, each read in a snapshot of its own; the other conditions stay in `wanted`.
fn compare_copies(
    what: &dyn Conditions,
    copies: &[(String, Cluster)],
    wanted: &mut BTreeSet<Condition>,
    watch: &Watch<'_>,
) -> Result<Vec<Answer>, ProveError> {
    let mut nodes = Vec::with_capacity(copies.len());
    for (name, cluster) in copies {
        let opened = nodes::open(what, cluster, watch).map_err(at(name))?;
        nodes.extend(opened.nodes.into_iter().map(|node| Node { name: name.clone(), ..node }));
    }
    Ok(what.judge_copies(&mut nodes, wanted))
}

fn at(node: &str) -> impl FnOnce(ProveError) -> ProveError {
    let node = node.to_owned();
    move |source| ProveError::OnNode { node, source: Box::new(source) }
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
    let mut copies = match nodes.as_mut_slice() {
        [only] => copied::open(what, cluster, only, watch)?,
        _ => Vec::new(),
    };
    notes.extend(copied::note(cluster, nodes.len(), copies.len()));
    let extent = what.extent(&mut nodes, options.range)?;
    let mut conditions = options.conditions.clone();
    let mut answers: BTreeMap<Condition, Answer> = BTreeMap::new();
    let judged = if copies.len() > 1 { what.judge_copies(&mut copies, &mut conditions) } else { Vec::new() };
    drop(copies);
    for answer in judged.into_iter().chain(what.judge_whole(&mut nodes, &extent, &mut conditions)?) {
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
    // The connections that share their snapshots must stay as they are until the others are done.
    let (workers, keepers) = match snapshots {
        None => (vec![nodes.into_iter().map(|node| node.control).collect()], Vec::new()),
        Some(snapshots) => {
            let import = |_| import_snapshots(&nodes, &snapshots, watch);
            ((0..jobs.min(list.len())).map(import).collect::<Result<_, _>>()?, nodes)
        }
    };
    let jobs = workers.iter().map(Sessions::len).sum();
    together(workers, &work, observer)?;
    drop(keepers);
    for (condition, found) in work.found.into_inner().unwrap_or_else(PoisonError::into_inner) {
        answers.insert(condition, found.answer(condition));
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

/// One connection to each node, in the snapshot of that node.
fn import_snapshots(nodes: &[Node], snapshots: &[String], watch: &Watch<'_>) -> Result<Sessions, ProveError> {
    std::iter::zip(nodes, snapshots)
        .map(|(node, snapshot)| {
            let mut connection = watch.connect(&node.spec)?;
            let import = format!("set transaction snapshot {}", sql::literal(snapshot));
            run(&mut connection, "sharing the snapshot", &import)?;
            Ok(connection)
        })
        .collect()
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

    #[test]
    fn what_one_node_breaks_no_other_node_mends() {
        const A: Condition = Condition::new(1, "A", "a", "row");
        let report = |outcome: Outcome| Report {
            answers: vec![Answer { condition: A, looked_at: 3, outcome }],
            extent: Extent { from: 1, to: 1, count: 1, added: None, is_part: false },
            jobs: 1,
            snapshots: 1,
            notes: vec!["as it came".to_owned()],
            duration: Duration::ZERO,
        };
        let broken = || Outcome::Broken { count: 1, witnesses: vec!["aid 1".to_owned()] };
        let failed = || Outcome::Failed { error: "no".to_owned() };
        let both = |one: Outcome, other: Outcome| report(one).of_node("m1").and(report(other).of_node("m3"));
        let found = both(Outcome::Kept, broken());
        assert!(found.is_broken() && found.snapshots == 2 && found.answers[0].looked_at == 6);
        let Outcome::Broken { count: 1, witnesses } = &found.answers[0].outcome else { panic!("{found:?}") };
        assert_eq!(witnesses, &["m3: aid 1"]);
        assert_eq!(found.notes, ["m1: as it came", "m3: as it came"]);
        assert!(both(broken(), failed()).is_broken());
        assert!(both(failed(), Outcome::Kept).has_failed());
        assert!(matches!(both(broken(), broken()).answers[0].outcome, Outcome::Broken { count: 2, .. }));
    }
}

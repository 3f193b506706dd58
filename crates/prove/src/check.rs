//! The checker: which isolation levels a history refutes, and the shortest proof for people.
//!
//! ```text
//! history ── versions: which version each operation wrote or read, in which order ── direct findings (G1a, G1b, lost versions, ...)
//!                └── graph: ww, wr, rw, session, real time ── components of everything ── nothing in a cycle: no level is refuted
//!                                                                    └── components per level, within those ── shortest cycles
//! ```
//!
//! Every step is linear in the number of operations. The graph of all edges holds the graph of every level, so one search for components clears all levels
//! of a clean history at once, and for the others only the transactions in its components are checked again.
//!
//! The answer is *refuted* or *not refuted*, never proved: a history shows what happened, not what can happen. After Adya (Weak Consistency, 1999), Elle
//! (Kingsbury and Alvaro, 2020); the linear time for snapshot isolation comes from doubling the graph (module `graph`).
//!
//! Where a history does not say in which order the versions of a key were written, a level is refuted only if every order breaks it (module `orders`); where
//! that cannot be decided, [`Report::incomplete`] gives the reason.
//!
//! A history must meet these conditions, else there are false alarms: tokens and elements are never used twice, a key starts without a row or with version 0 (a
//! load of other rows is a transaction of the history), no pooler repeats a statement, and times come from one clock or `epsilon_ns` covers
//! their difference.

mod anomaly;
mod cycle;
mod direct;
mod graph;
mod hash;
mod levels;
mod lists;
mod orders;
mod registers;
mod scc;
mod statements;
mod versions;
mod witness;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

pub use anomaly::{Base, Class, Finding, Level, Order, Reason, Step};

use crate::history::{History, Model, Outcome};
use graph::{Graph, Kinds};
use orders::Orders;
use scc::{Components, View, components};
use versions::{Part, Versions};

/// How to check.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The largest difference between the clocks of the recording hosts, in nanoseconds; 0: it was one clock.
    pub epsilon_ns: u64,
    /// Threads for the levels; everything else runs in one thread.
    pub threads: usize,
    /// Witnesses of each kind of anomaly at most; all are counted.
    pub witnesses_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options { epsilon_ns: 0, threads: 1, witnesses_max: 3 }
    }
}

/// An anomaly that people can read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Witness {
    /// In numbers.
    pub finding: Finding,
    /// Lines: the transactions as SQL, and why no order of them is possible.
    pub text: Vec<String>,
}

/// Where an anomaly may have been missed: the history does not say in which order a key's versions were written, not every order has been tried, and the one
/// that was tried does not fit.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Incomplete {
    /// Keys whose order of versions is unknown.
    pub keys: u64,
    /// The levels that are neither refuted nor known to be kept.
    pub levels: Vec<Level>,
}

/// The answer.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Operations of the history.
    pub ops: u64,
    /// Transactions, by what became of them.
    pub txns: BTreeMap<&'static str, u64>,
    /// Acknowledged transactions with operations: without any there is nothing to judge.
    pub acknowledged: u64,
    /// Transactions of unknown outcome that another transaction has seen.
    pub joined: u64,
    /// Edges between transactions because of data.
    pub edges: u64,
    /// The number of findings of each kind; cycles are counted by component.
    pub counts: BTreeMap<String, u64>,
    /// Some of each kind.
    pub witnesses: Vec<Witness>,
    /// The levels that are refuted, with everything that they imply.
    pub refuted: Vec<Level>,
    /// What could not be judged wholly.
    pub incomplete: Incomplete,
    /// What a reader should know.
    pub notes: Vec<String>,
}

impl Report {
    /// Whether a level is refuted.
    pub fn refutes(&self, level: Level) -> bool {
        self.refuted.contains(&level)
    }

    /// Whether a level is undecided: it is not refuted, but an anomaly may have been missed.
    pub fn is_open(&self, level: Level) -> bool {
        self.incomplete.levels.contains(&level)
    }

    /// The weakest refuted levels: all others follow from them.
    pub fn weakest_refuted(&self) -> Vec<Level> {
        let is_weakest = |level: &&Level| {
            !self.refuted.iter().any(|other| other != *level && level.is_stronger_than(*other))
        };
        self.refuted.iter().filter(is_weakest).copied().collect()
    }

    /// The strongest levels that are not refuted.
    pub fn strongest_left(&self) -> Vec<Level> {
        let left: Vec<Level> = Level::all().filter(|level| !self.refutes(*level)).collect();
        let is_strongest = |level: &&Level| !left.iter().any(|other| other.is_stronger_than(**level));
        left.iter().filter(is_strongest).copied().collect()
    }
}

impl Level {
    fn is_stronger_than(self, weaker: Level) -> bool {
        self != weaker && weaker.is_implied_by(self)
    }
}

/// The graphs that are checked. Monotonic atomic view has none of its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Shape {
    Writes,
    Reads,
    Snapshot,
    All,
}

impl Shape {
    const EACH: [Shape; 4] = [Shape::Writes, Shape::Reads, Shape::Snapshot, Shape::All];

    fn kinds(self) -> Kinds {
        match self {
            Shape::Writes => Kinds::WW,
            Shape::Reads => Kinds::WW.and(Kinds::WR),
            Shape::Snapshot | Shape::All => Kinds::WW.and(Kinds::WR).and(Kinds::RW),
        }
    }

    /// The classes that only this graph's cycles have, and the weakest levels that any of its cycles refutes.
    fn classes(self) -> &'static [Class] {
        match self {
            Shape::Writes => &[Class::DirtyWrite],
            Shape::Reads => &[Class::CircularFlow],
            Shape::Snapshot => &[Class::ReadSkew, Class::LongFork],
            Shape::All => &[Class::WriteSkew],
        }
    }

    fn refutes(self) -> &'static [Base] {
        match self {
            Shape::Writes => &[Base::ReadUncommitted],
            Shape::Reads => &[Base::ReadCommitted],
            Shape::Snapshot => &[Base::SnapshotIsolation],
            Shape::All => &[Base::RepeatableRead],
        }
    }
}

/// One graph with one order, and its components if it has cycles.
struct Judged<'a> {
    shape: Shape,
    order: Order,
    view: View<'a>,
    cycles: Cow<'a, Components>,
}

/// Findings with their text. The text is made at once, because the known order of versions differs between levels.
#[derive(Debug, Default)]
struct Found {
    all: Vec<(Finding, Vec<String>)>,
    counts: BTreeMap<String, u64>,
    witnesses_max: u64,
}

impl Found {
    fn show(&mut self, versions: &Versions<'_>, mut finding: Finding) {
        let ops = versions.history.ops();
        let is_joined = |txn: u32| versions.parts[txn as usize] == Part::Writer;
        finding.is_joined = finding.cycle.iter().any(|step| is_joined(step.from))
            || finding.ops.iter().any(|at| is_joined(ops[*at as usize].txn));
        let count = self.counts.entry(finding.code()).or_default();
        *count += 1;
        let text = if *count <= self.witnesses_max { witness::text(versions, &finding) } else { Vec::new() };
        self.all.push((finding, text));
    }

    fn show_all(&mut self, versions: &Versions<'_>, findings: impl IntoIterator<Item = Finding>) {
        findings.into_iter().for_each(|finding| self.show(versions, finding));
    }

    fn has_cycle(&self, order: Order) -> bool {
        self.all.iter().any(|(finding, _)| !finding.cycle.is_empty() && finding.order <= order)
    }
}

/// Checks a history against all levels.
pub fn check(history: &History, options: &Options) -> Report {
    let mut versions = Versions::of(history);
    let mut found = Found { witnesses_max: options.witnesses_max as u64, ..Found::default() };
    let first = std::mem::take(&mut versions.findings);
    found.show_all(&versions, first);
    found.show_all(&versions, direct::walk(&versions));
    let orders = Orders::of(&versions);
    let judgement = match &orders {
        Some(orders) if history.model() == Model::Register => {
            let judgement = levels::judge(&mut versions, orders, options, &mut found);
            if judgement.is_clean {
                return report(&versions, judgement, found);
            }
            levels::draw_known(&mut versions, orders, (Shape::Reads, Order::Data), options);
            let graph = Graph::of(&versions, options.epsilon_ns);
            let kinds = Shape::All.kinds();
            let cycles = components(&View { graph: &graph, kinds, is_doubled: false, within: None });
            look_closer(&versions, &cycles, options, &mut found);
            judgement
        }
        _ => judge(&mut versions, orders.as_ref(), options, &mut found),
    };
    report(&versions, judgement, found)
}

fn report(versions: &Versions<'_>, judgement: levels::Judgement, mut found: Found) -> Report {
    let mut report = summary(versions, judgement.edges);
    let mut weakest = judgement.refuted;
    weakest.extend(found.all.iter().flat_map(|(finding, _)| finding.refutes()));
    report.refuted =
        Level::all().filter(|level| weakest.iter().any(|weaker| weaker.is_implied_by(*level))).collect();
    report.incomplete.levels = judgement.open;
    report.incomplete.levels.retain(|level| !report.refuted.contains(level));
    if !report.incomplete.levels.is_empty() {
        report.incomplete.keys = judgement.keys;
    }
    report.counts = found.counts;
    found.all.sort_by_key(|(finding, _)| (finding.order, finding.class));
    let shown = found.all.into_iter().filter(|(_, text)| !text.is_empty());
    report.witnesses = shown.map(|(finding, text)| Witness { finding, text }).collect();
    report
}

/// Judges all levels where versions have an order, except for appends that were never read.
fn judge(
    versions: &mut Versions<'_>,
    orders: Option<&Orders>,
    options: &Options,
    found: &mut Found,
) -> levels::Judgement {
    let (mut judgement, requested) = judge_read(versions, options, found);
    // Other levels cannot depend on an order that was never seen: one that fits the other edges closes no cycle. Two such writers that each read what
    // the other overwrote are a lost update in either order.
    if let Some(orders) = orders {
        let tails = levels::judge_tails(versions, orders, &requested, options, found);
        judgement.refuted.extend(tails.refuted);
        (judgement.open, judgement.keys) = (tails.open, tails.keys);
    }
    if versions.ambiguous_keys > 0 || versions.undrawn > 0 {
        judgement.keys = judgement.keys.max(versions.ambiguous_keys);
        judgement.open = Level::all().collect();
    }
    judgement
}

/// Judges all levels by the versions that were read; and the orders at which snapshot isolation may still depend on others.
fn judge_read(
    versions: &mut Versions<'_>,
    options: &Options,
    found: &mut Found,
) -> (levels::Judgement, Vec<Order>) {
    let graph = Graph::of(versions, options.epsilon_ns);
    let everything = View {
        graph: &graph,
        kinds: Shape::All.kinds().with_order(Order::RealTime),
        is_doubled: false,
        within: None,
    };
    let all_cycles = components(&everything);
    let judged = match all_cycles.count {
        0 => Vec::new(),
        _ => judge_levels(&graph, &all_cycles, options.threads),
    };
    let plain = judged.iter().find(|one| one.shape == Shape::All && one.order == Order::Data);
    if let Some(plain) = plain {
        look_closer(versions, &plain.cycles, options, found);
    }
    found.show_all(versions, cycles(&graph, &judged, &all_cycles, options.witnesses_max));
    let mut judgement = levels::Judgement { edges: graph.edge_count() as u64, ..Default::default() };
    for one in &judged {
        let bases = match one.shape {
            Shape::Writes if !is_sure(versions, one, options) => Shape::Reads.refutes(),
            shape => shape.refutes(),
        };
        judgement.refuted.extend(bases.iter().map(|base| Level::new(*base, one.order)));
    }
    let has = |shape: Shape, order: Order| judged.iter().any(|one| one.shape == shape && one.order <= order);
    let is_requested = |order: &Order| has(Shape::All, *order) && !has(Shape::Snapshot, *order);
    (judgement, Order::ALL.into_iter().filter(is_requested).collect())
}

/// Whether a cycle of writes remains without the transactions of unknown outcome, which may have been rolled back.
fn is_sure(versions: &Versions<'_>, one: &Judged<'_>, options: &Options) -> bool {
    let txns = versions.parts.len() as u32;
    let is_joined = |txn: u32| versions.parts[txn as usize] == Part::Writer;
    if !one.cycles.members().take_while(|node| *node < txns).any(is_joined) {
        return true;
    }
    let graph = Graph::of(&versions.without_joined(), options.epsilon_ns);
    components(&View { graph: &graph, within: None, ..one.view }).count > 0
}

/// Findings within cycles, operation by operation and statement by statement.
fn look_closer(versions: &Versions<'_>, cycles: &Components, options: &Options, found: &mut Found) {
    if cycles.count == 0 {
        return;
    }
    found.show_all(versions, direct::closer(versions, cycles));
    let is_known = found.all.iter().any(|(finding, _)| finding.class == Class::FracturedStatement);
    let of_statements = statements::find(versions, cycles, options.witnesses_max);
    // Two transactions in a cycle through one statement have been reported already, operation by operation.
    let new = of_statements.into_iter().filter(|finding| !is_known || finding.cycle.len() > 2);
    found.show_all(versions, new);
}

/// The components of every graph with every order, within those of the graph that holds them all.
fn judge_levels<'a>(graph: &'a Graph, all: &'a Components, threads: usize) -> Vec<Judged<'a>> {
    // Graphs that contain others come first: if they have no cycle, the others have none.
    let jobs: Vec<(Shape, Order)> = Order::ALL
        .into_iter()
        .rev()
        .flat_map(|order| Shape::EACH.into_iter().rev().map(move |shape| (shape, order)))
        .collect();
    let clear: Mutex<Vec<(Shape, Order)>> = Mutex::default();
    let judge = |(shape, order): (Shape, Order)| {
        let known = || clear.lock().unwrap_or_else(PoisonError::into_inner);
        if known().iter().any(|(wider, longer)| shape <= *wider && order <= *longer) {
            return None;
        }
        let view = View {
            graph,
            kinds: shape.kinds().with_order(order),
            is_doubled: shape == Shape::Snapshot,
            within: Some(all),
        };
        // The graph of everything is the one whose components are known.
        let cycles = match (shape, order) {
            (Shape::All, Order::RealTime) => Cow::Borrowed(all),
            _ => Cow::Owned(components(&view)),
        };
        if cycles.count == 0 {
            known().push((shape, order));
            return None;
        }
        Some(Judged { shape, order, view, cycles })
    };
    let next = std::sync::atomic::AtomicUsize::new(0);
    let mut judged: Vec<Judged<'a>> = std::thread::scope(|scope| {
        let work = || {
            let mut mine = Vec::new();
            while let Some(job) = jobs.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) {
                mine.extend(judge(*job));
            }
            mine
        };
        let helpers: Vec<_> = (1..threads.min(jobs.len()))
            .filter_map(|_| std::thread::Builder::new().name("checker".into()).spawn_scoped(scope, work).ok())
            .collect();
        // If the system refuses a thread, it only takes longer: this one does the rest.
        let mut judged = work();
        for helper in helpers {
            match helper.join() {
                Ok(mine) => judged.extend(mine),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        judged
    });
    judged.sort_by_key(|one| (one.shape, one.order));
    judged
}

/// The shortest cycles of every class, worst first; an order is looked at only for graphs that have no cycle without it.
fn cycles(graph: &Graph, judged: &[Judged<'_>], all: &Components, count: usize) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    for one in judged {
        let is_new = !judged.iter().any(|other| other.shape == one.shape && other.order < one.order);
        // A cycle that the graph of a weaker level has already shown with this order is not shown again for a stronger one.
        if !is_new {
            continue;
        }
        let before = findings.len();
        for class in one.shape.classes() {
            let wanted = cycle::Wanted { class: *class, order: one.order, is_derived: false };
            // In the doubled graph a transaction has two components; the plain one has those that hold both.
            let cycles = if one.view.is_doubled { all } else { &*one.cycles };
            for steps in cycle::find(graph, cycles, wanted, count) {
                let (class, order) = cycle::classify(&steps);
                findings.push(Finding { order, ..Finding::cycle(class, steps) });
            }
        }
        let is_weaker_known = judged.iter().any(|other| other.shape < one.shape && other.order <= one.order);
        if findings.len() == before
            && !is_weaker_known
            && let Some(steps) = cycle::any(&one.view, &one.cycles)
        {
            let (class, order) = cycle::classify(&steps);
            findings.push(Finding { order, ..Finding::cycle(class, steps) });
        }
    }
    findings
}

fn summary(versions: &Versions<'_>, edges: u64) -> Report {
    let history = versions.history;
    let mut report = Report { ops: history.ops().len() as u64, edges, ..Report::default() };
    for txn in history.txns() {
        *report.txns.entry(txn.outcome.name()).or_default() += 1;
    }
    report.joined = versions.parts.iter().filter(|part| **part == Part::Writer).count() as u64;
    let has_done =
        |number: &usize| versions.parts[*number] == Part::Whole && !history.range(*number as u32).is_empty();
    report.acknowledged = (0..history.txns().len()).filter(has_done).count() as u64;
    if report.acknowledged == 0 {
        report.notes.push("no acknowledged transaction did anything: there is nothing to judge".into());
    }
    if history.is_cut {
        report.notes.push(
            "the end of the history is missing: the operations that were running then are not judged".into(),
        );
    }
    if versions.unknown_reads > 0 {
        let count = versions.unknown_reads;
        report.notes.push(format!("{count} reads returned a value whose writer is not in the history"));
    }
    if versions.undrawn > 0 {
        let count = versions.undrawn;
        report.notes.push(format!(
            "{count} relations between unordered versions were left out: fewer anomalies may be found"
        ));
    }
    if history.txns().iter().all(|txn| txn.begin_ns == 0) && !history.txns().is_empty() {
        report.notes.push("no transaction has a time, so the order in real time is not checked".into());
    }
    let weak = history.txns().iter().filter(|txn| txn.outcome == Outcome::OkWeak).count();
    if weak > 0 {
        report.notes.push(format!(
            "{weak} transactions were acknowledged with a warning; here they count as committed"
        ));
    }
    report
}

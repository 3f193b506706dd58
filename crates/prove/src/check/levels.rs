//! Levels whose order of versions is unknown: is there an order that the level allows?
//!
//! ```text
//! what follows from reads, sessions and time ── graph ── a cycle: no order is allowed, the level is refuted
//!        └── more follows from its paths <──┘    └── none, and nothing more follows ── try an order ── its graph has no cycle: the level is possible
//!                                                                                                 └── it has: it is unknown, and reported as that
//! ```
//!
//! Finding an order is hard in general (NP-complete for serializable histories). The checker tries the order of a scheduler that starts transactions as early
//! as the history allows, so it recognises nearly every history of a database that keeps the level.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::anomaly::{Base, Finding, Level, Order, Reason, Step};
use super::cycle::{self, Wanted};
use super::graph::Graph;
use super::orders::{BEFORE, Orders, view_of};
use super::scc::{Components, View, components};
use super::versions::Versions;
use super::{Found, Options, Shape, direct};

/// What is known about one level.
enum Answer {
    Refuted(Graph),
    /// An allowed order was found; `is_total`: it is the only one, any two versions can be compared, and no view went back.
    Possible {
        is_total: bool,
    },
    Open {
        keys: u64,
    },
}

/// What is known about all levels.
#[derive(Debug, Default)]
pub(super) struct Judgement {
    /// Refuted by cycles.
    pub(super) refuted: Vec<Level>,
    /// Neither refuted nor known to be possible.
    pub(super) open: Vec<Level>,
    /// Keys whose order of versions is unknown: the maximum over the open levels.
    pub(super) keys: u64,
    /// Edges of the graph with the most that is known.
    pub(super) edges: u64,
    /// Nothing is refuted, at any level.
    pub(super) is_clean: bool,
}

/// Judges every level of a history of registers.
pub(super) fn judge(
    versions: &mut Versions<'_>,
    orders: &Orders,
    options: &Options,
    found: &mut Found,
) -> Judgement {
    let mut judgement = Judgement::default();
    let mut known: Vec<(Shape, Order, Answer)> = Vec::new();
    // An order that the strongest level allows is allowed at all others, and usually there is one.
    let strongest = answer(versions, orders, (Shape::All, Order::RealTime), options, true);
    judgement.edges = match &strongest {
        Answer::Refuted(graph) => graph.edge_count() as u64,
        _ => Graph::of(versions, options.epsilon_ns).edge_count() as u64,
    };
    judgement.is_clean = matches!(strongest, Answer::Possible { .. });
    if judgement.is_clean {
        known.push((Shape::All, Order::RealTime, strongest));
    } else {
        drop(strongest);
        for order in Order::ALL {
            for shape in Shape::EACH {
                level(versions, orders, options, (shape, order), &mut known, found);
            }
        }
    }
    conclude(&known, versions.ambiguous_keys, &mut judgement);
    judgement
}

/// Judges snapshot isolation where appends that no transaction has read have no order; no other level depends on it.
pub(super) fn judge_tails(
    versions: &mut Versions<'_>,
    orders: &Orders,
    candidates: &[Order],
    options: &Options,
    found: &mut Found,
) -> Judgement {
    let mut judgement = Judgement::default();
    let mut refuted = None;
    // What fits the longest order fits the shorter ones: a database that keeps its promise is judged once.
    for order in candidates.iter().rev() {
        match answer(versions, orders, (Shape::Snapshot, *order), options, true) {
            Answer::Refuted(_) => refuted = Some(*order),
            Answer::Possible { .. } => break,
            Answer::Open { keys } => {
                judgement.keys = judgement.keys.max(keys);
                judgement.open.push(Level::new(Base::SnapshotIsolation, *order));
            }
        }
    }
    // A longer order has the same cycles, so those of the shortest one are shown; for them the known order of versions has to be added again.
    if let Some(order) = refuted {
        if let Answer::Refuted(graph) = answer(versions, orders, (Shape::Snapshot, order), options, true) {
            cycles(versions, &graph, (Shape::Snapshot, order), options, found);
        }
        judgement.refuted.push(Level::new(Base::SnapshotIsolation, order));
    }
    judgement
}

fn level(
    versions: &mut Versions<'_>,
    orders: &Orders,
    options: &Options,
    (shape, order): (Shape, Order),
    known: &mut Vec<(Shape, Order, Answer)>,
    found: &mut Found,
) {
    let is_refuted = |one: &&(Shape, Order, Answer)| {
        matches!(one.2, Answer::Refuted(_)) && one.0 <= shape && one.1 <= order
    };
    // A longer order has the same cycles.
    if known.iter().any(|one| is_refuted(&one) && one.0 == shape) {
        return;
    }
    let is_implied = known.iter().any(|one| is_refuted(&one));
    let mut answer = answer(versions, orders, (shape, order), options, !is_implied);
    match &mut answer {
        Answer::Refuted(graph) => cycles(versions, graph, (shape, order), options, found),
        // Views have no graph; those that need no order are shown later, with everything else.
        Answer::Possible { is_total } if shape == Shape::Reads && *is_total => {
            let views = direct::views(versions);
            *is_total = views.is_empty();
            let shown = views.into_iter().filter(|_| order > Order::Data);
            found.show_all(versions, shown.map(|finding| Finding { order, ..finding }));
        }
        _ => {}
    }
    known.push((shape, order, answer));
}

/// Adds the known order of versions at a level to `versions`.
pub(super) fn draw_known(
    versions: &mut Versions<'_>,
    orders: &Orders,
    (shape, order): (Shape, Order),
    options: &Options,
) {
    let mut relations = orders.seed(versions, (shape, order), options.epsilon_ns);
    loop {
        orders.draw(versions, &relations);
        let graph = Graph::of(versions, options.epsilon_ns);
        let view = view_of(&graph, shape, order);
        if components(&view).count > 0 || !orders.extend(&view, shape, &mut relations) {
            return;
        }
    }
}

/// The result for one level; `is_deep` requests the full search.
fn answer(
    versions: &mut Versions<'_>,
    orders: &Orders,
    (shape, order): (Shape, Order),
    options: &Options,
    is_deep: bool,
) -> Answer {
    let mut relations = orders.seed(versions, (shape, order), options.epsilon_ns);
    let mut is_first = true;
    loop {
        orders.draw(versions, &relations);
        let mut graph = Graph::of(versions, options.epsilon_ns);
        if components(&view_of(&graph, shape, order)).count > 0 {
            return Answer::Refuted(graph);
        }
        let keys = orders.open(&relations);
        let is_known = keys == 0 && versions.undrawn == 0;
        // Replaying the history takes a fraction of the time and memory of following all paths, and usually finds an order. Whether that order is
        // the only one matters to views alone.
        if is_deep && std::mem::take(&mut is_first) && !is_known && shape != Shape::Reads {
            let chosen = schedule(versions, orders, &view_of(&graph, shape, order), shape, By::End);
            // A second graph at the same time would be the peak of memory.
            drop(graph);
            if fits(versions, orders, chosen, (shape, order), options) {
                return Answer::Possible { is_total: false };
            }
            orders.draw(versions, &relations);
            graph = Graph::of(versions, options.epsilon_ns);
        }
        let view = view_of(&graph, shape, order);
        if is_deep && orders.extend(&view, shape, &mut relations) {
            continue;
        }
        if is_known {
            return Answer::Possible { is_total: orders.is_small() };
        }
        let is_possible = is_deep
            && [By::End, By::Begin, By::Late].into_iter().any(|by| {
                let chosen = schedule(versions, orders, &view, shape, by);
                fits(versions, orders, chosen, (shape, order), options)
            });
        return match is_possible {
            true => Answer::Possible { is_total: false },
            false => Answer::Open { keys },
        };
    }
}

/// Whether the order that a scheduler has chosen closes no cycle.
fn fits(
    versions: &mut Versions<'_>,
    orders: &Orders,
    chosen: Option<Vec<Vec<u32>>>,
    (shape, order): (Shape, Order),
    options: &Options,
) -> bool {
    let Some(chosen) = chosen else { return false };
    orders.draw_total(versions, &chosen);
    drop(chosen);
    let graph = Graph::of(versions, options.epsilon_ns);
    components(&view_of(&graph, shape, order)).count == 0
}

/// The shortest cycles of a level that is refuted.
fn cycles(
    versions: &Versions<'_>,
    graph: &Graph,
    (shape, order): (Shape, Order),
    options: &Options,
    found: &mut Found,
) {
    let view = view_of(graph, shape, order);
    let members = components(&view);
    // In the doubled graph a transaction has two components; the plain one has those that hold both.
    let plain: Option<Components> =
        view.is_doubled.then(|| components(&View { is_doubled: false, within: None, ..view }));
    // An order that only this level requires must not refute weaker ones, whatever the cycle is.
    let weakest = shape.classes()[0];
    let finding = |steps: Vec<Step>| {
        let (class, _) = cycle::classify(&steps);
        Finding { order, ..Finding::cycle(class.max(weakest), steps) }
    };
    let mut is_shown = false;
    for class in shape.classes() {
        let wanted = Wanted { class: *class, order, is_derived: true };
        for steps in cycle::find(graph, plain.as_ref().unwrap_or(&members), wanted, options.witnesses_max) {
            is_shown = true;
            found.show(versions, finding(steps));
        }
    }
    if !is_shown
        && !found.has_cycle(order)
        && let Some(steps) = cycle::any(&view, &members)
    {
        found.show(versions, finding(steps));
    }
}

fn conclude(known: &[(Shape, Order, Answer)], ambiguous_keys: u64, judgement: &mut Judgement) {
    for (shape, order, answer) in known {
        if let Answer::Refuted(_) = answer {
            judgement.refuted.extend(shape.refutes().iter().map(|base| Level::new(*base, *order)));
        }
    }
    let is_refuted = |level: Level| judgement.refuted.iter().any(|weaker| weaker.is_implied_by(level));
    let is_possible = |level: Level| {
        known.iter().any(|(shape, order, answer)| {
            let Answer::Possible { is_total } = answer else { return false };
            // Monotonic views have no graph: where the order of versions is known, every such view was checked.
            let strongest = match shape {
                Shape::Writes => Base::ReadUncommitted,
                Shape::Reads if *is_total => Base::MonotonicAtomicView,
                Shape::Reads => Base::ReadCommitted,
                Shape::Snapshot => Base::SnapshotIsolation,
                Shape::All => Base::Serializable,
            };
            level.is_implied_by(Level::new(strongest, *order))
        })
    };
    let open: Vec<Level> = Level::all()
        .filter(|level| !is_refuted(*level) && (ambiguous_keys > 0 || !is_possible(*level)))
        .collect();
    judgement.open = open;
    if !judgement.open.is_empty() {
        let keys = known.iter().map(|(_, _, answer)| match answer {
            Answer::Open { keys } => *keys,
            _ => 0,
        });
        // A view of three reads may need an order for a weaker level only: that of one key.
        judgement.keys = keys.max().unwrap_or(0).max(ambiguous_keys).max(1);
    }
}

/// The scheduler's choice among transactions that may continue.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    /// What ended first.
    End,
    /// What began first.
    Begin,
    /// The one that ended first; a snapshot is taken as late as possible.
    Late,
}

/// Runs the history again. Each transaction is one event, or two for snapshot isolation: it takes its snapshot, and it commits. An event waits for those before
/// it in the graph; a commit also waits until all readers of the versions that it overwrites have read them.
struct Schedule<'a> {
    versions: &'a Versions<'a>,
    view: &'a View<'a>,
    is_snapshot: bool,
    by: By,
    /// For each event: the number of events that it waits for.
    waits: Vec<u32>,
    ready: BinaryHeap<Reverse<(u64, u32)>>,
    /// The keys that transactions write, with the place in the key's groups.
    writes: Touched,
    /// The versions that they read.
    reads: Touched,
    /// For each key and version, from the first version on: transactions that still have to read it.
    readers: Vec<Vec<u32>>,
    /// For each key: the current version, the transaction that will write it, events that wait for it, and all versions so far.
    current: Vec<u32>,
    owner: Vec<Option<u32>>,
    blocked: Vec<Vec<u32>>,
    chosen: Vec<Vec<u32>>,
}

/// Keys and versions of transactions: a flat list, sorted by transaction.
struct Touched(Vec<(u32, u32, u32)>);

impl Touched {
    fn of(mut list: Vec<(u32, u32, u32)>) -> Touched {
        list.sort_unstable();
        list.dedup();
        Touched(list)
    }

    fn by(&self, txn: u32) -> impl Iterator<Item = (u32, u32)> {
        let from = self.0.partition_point(|(other, ..)| *other < txn);
        self.0[from..]
            .iter()
            .take_while(move |(other, ..)| *other == txn)
            .map(|(_, key, version)| (*key, *version))
    }
}

fn schedule(
    versions: &Versions<'_>,
    orders: &Orders,
    view: &View<'_>,
    shape: Shape,
    by: By,
) -> Option<Vec<Vec<u32>>> {
    let (mut writes, mut reads) = (Vec::new(), Vec::new());
    let has_reads = shape >= Shape::Snapshot;
    for (place, key) in orders.keys.iter().enumerate() {
        let place = place as u32;
        writes.extend(key.groups.iter().enumerate().map(|(at, group)| (group.txn, place, at as u32)));
        let known = key.reads.iter().filter(|(_, version)| has_reads && *version != super::versions::NONE);
        reads.extend(known.map(|(reader, version)| (*reader, place, *version)));
    }
    let (writes, reads) = (Touched::of(writes), Touched::of(reads));
    let mut readers: Vec<Vec<u32>> = orders.keys.iter().map(|key| vec![0; key.groups.len() + 1]).collect();
    for (_, place, version) in &reads.0 {
        readers[*place as usize][slot_of(*version)] += 1;
    }
    let schedule = Schedule {
        versions,
        view,
        is_snapshot: shape == Shape::Snapshot,
        by,
        waits: Vec::new(),
        ready: BinaryHeap::new(),
        writes,
        reads,
        readers,
        current: vec![BEFORE; orders.keys.len()],
        owner: vec![None; orders.keys.len()],
        blocked: vec![Vec::new(); orders.keys.len()],
        chosen: vec![Vec::new(); orders.keys.len()],
    };
    schedule.run()
}

/// The index of a version in a table that begins with the initial state.
fn slot_of(version: u32) -> usize {
    if version == BEFORE { 0 } else { version as usize + 1 }
}

impl Schedule<'_> {
    fn txns(&self) -> u32 {
        self.view.graph.txns
    }

    /// Events: for snapshot isolation 2t is t's snapshot, 2t + 1 its commit; points in time follow.
    fn events(&self) -> u32 {
        self.view.graph.nodes() + if self.is_snapshot { self.txns() } else { 0 }
    }

    fn next(&self, event: u32, cursor: &mut u32) -> Option<u32> {
        let (txns, graph, kinds) = (self.txns(), self.view.graph, self.view.kinds);
        if !self.is_snapshot {
            return graph.next(event, kinds, cursor).map(|(to, _)| to);
        }
        let is_txn = event < 2 * txns;
        let base = if is_txn { event / 2 } else { event - txns };
        let is_start = is_txn && event.is_multiple_of(2);
        if is_start && *cursor == 0 {
            *cursor = 1;
            return Some(event + 1);
        }
        loop {
            let mut at = *cursor - u32::from(is_start);
            let next = graph.next(base, kinds, &mut at);
            *cursor = at + u32::from(is_start);
            let (to, reason) = next?;
            // A snapshot comes before the commit of any transaction that overwrites what it shows; everything else follows the commit.
            let is_rw = reason == Reason::ReadBefore;
            if is_txn && is_rw != is_start {
                continue;
            }
            return Some(match to {
                to if to >= txns => to + txns,
                to if is_rw => 2 * to + 1,
                to => 2 * to,
            });
        }
    }

    fn priority(&self, event: u32) -> u64 {
        let txns = self.txns();
        let is_txn = event < if self.is_snapshot { 2 * txns } else { txns };
        if !is_txn {
            return 0;
        }
        let number = if self.is_snapshot { event / 2 } else { event };
        let txn = &self.versions.history.txns()[number as usize];
        let is_start = self.is_snapshot && event.is_multiple_of(2);
        let end = if txn.end_ns > 0 { txn.end_ns } else { txn.begin_ns };
        match self.by {
            By::End if is_start => txn.begin_ns,
            By::Begin => txn.begin_ns,
            By::End | By::Late => end,
        }
    }

    fn run(mut self) -> Option<Vec<Vec<u32>>> {
        self.waits = vec![0; self.events() as usize];
        for event in 0..self.events() {
            let mut cursor = 0;
            while let Some(to) = self.next(event, &mut cursor) {
                self.waits[to as usize] += 1;
            }
        }
        for event in 0..self.events() {
            if self.waits[event as usize] == 0 {
                self.ready.push(Reverse((self.priority(event), event)));
            }
        }
        let mut done = 0;
        while let Some(Reverse((_, event))) = self.ready.pop() {
            if let Some(key) = self.obstacle(event) {
                self.blocked[key as usize].push(event);
                continue;
            }
            done += 1;
            self.happen(event);
            let mut cursor = 0;
            while let Some(to) = self.next(event, &mut cursor) {
                self.waits[to as usize] -= 1;
                if self.waits[to as usize] == 0 {
                    self.ready.push(Reverse((self.priority(to), to)));
                }
            }
        }
        (done == self.events()).then_some(self.chosen)
    }

    /// The transaction of an event, whether it reads then, and whether it writes.
    fn meaning(&self, event: u32) -> Option<(u32, bool, bool)> {
        match self.is_snapshot {
            false => (event < self.txns()).then_some((event, true, true)),
            true => (event < 2 * self.txns()).then_some((
                event / 2,
                event.is_multiple_of(2),
                !event.is_multiple_of(2),
            )),
        }
    }

    /// The key that an event has to wait for.
    fn obstacle(&self, event: u32) -> Option<u32> {
        let (txn, is_start, is_commit) = self.meaning(event)?;
        let mut keys = self.writes.by(txn).map(|(key, _)| key);
        if self.is_snapshot && is_start {
            return keys.find(|key| self.owner[*key as usize].is_some());
        }
        let is_waited_for = |key: &u32| {
            let current = self.current[*key as usize];
            let others = self.readers[*key as usize][slot_of(current)];
            let own = u32::from(!self.is_snapshot && self.reads.by(txn).any(|read| read == (*key, current)));
            others > own
        };
        keys.filter(|_| is_commit).find(is_waited_for)
    }

    fn happen(&mut self, event: u32) {
        let Some((txn, is_start, is_commit)) = self.meaning(event) else { return };
        let mut freed: Vec<u32> = Vec::new();
        if is_start {
            for (key, version) in self.reads.by(txn) {
                let readers = &mut self.readers[key as usize][slot_of(version)];
                *readers -= 1;
                // The remaining one may be the waiting event itself.
                if *readers <= 1 {
                    freed.push(key);
                }
            }
        }
        for (key, version) in self.writes.by(txn) {
            let at = key as usize;
            if self.is_snapshot && is_start {
                self.owner[at] = Some(txn);
            }
            if is_commit {
                self.owner[at] = None;
                self.current[at] = version;
                self.chosen[at].push(version);
                freed.push(key);
            }
        }
        for key in freed {
            for event in std::mem::take(&mut self.blocked[key as usize]) {
                self.ready.push(Reverse((self.priority(event), event)));
            }
        }
    }
}

//! The order of transactions: one graph for all levels, in flat arrays; each level uses some of its edges.
//!
//! ```text
//! nodes   0 .. n          transactions
//!         n .. n + m      instants: the time chain, one for each acknowledged end
//! edges   ww, wr, rw      between transactions, in one array, the kind in the two highest bits
//!         session         the next acknowledged transaction of the same session
//!         real time       transaction -> the instant of its end -> the next instant ... -> every transaction that began after it
//! ```
//!
//! The time chain makes real time linear: 2n + m edges instead of one for each pair (Elle prunes the pairs with a frontier instead).
//!
//! For snapshot isolation each transaction is in the graph twice, as "came in by rw" and "came in by something else", and only the latter has outgoing rw
//! edges. A cycle in that graph is a cycle without two adjacent rw edges, which is found in linear time.

use super::anomaly::{Order, Reason};
use super::versions::{INITIAL, NONE, Part, Versions};

const KIND_SHIFT: u32 = 30;
const TARGET: u32 = (1 << KIND_SHIFT) - 1;

/// A set of kinds of edges.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Kinds(u8);

impl Kinds {
    pub(super) const WW: Kinds = Kinds(1);
    pub(super) const WR: Kinds = Kinds(2);
    pub(super) const RW: Kinds = Kinds(4);
    pub(super) const SESSION: Kinds = Kinds(8);
    pub(super) const REAL_TIME: Kinds = Kinds(16);

    pub(super) const fn and(self, other: Kinds) -> Kinds {
        Kinds(self.0 | other.0)
    }

    pub(super) fn has(self, other: Kinds) -> bool {
        self.0 & other.0 != 0
    }

    pub(super) fn with_order(self, order: Order) -> Kinds {
        match order {
            Order::Data => self,
            Order::Session => self.and(Kinds::SESSION),
            // The order of a session is part of real time, unless times are missing.
            Order::RealTime => self.and(Kinds::SESSION).and(Kinds::REAL_TIME),
        }
    }
}

/// All edges.
#[derive(Debug)]
pub(super) struct Graph {
    /// Transactions.
    pub(super) txns: u32,
    /// Where each transaction's edges begin.
    first: Vec<u32>,
    /// Target and kind.
    edges: Vec<u32>,
    /// The next one of the session.
    session_next: Vec<u32>,
    /// The moment of each transaction's end.
    end_moment: Vec<u32>,
    /// Transactions by begin.
    by_begin: Vec<u32>,
    /// For each instant, the index in `by_begin` of the first transaction that began after it.
    moment_first: Vec<u32>,
}

impl Graph {
    pub(super) fn of(versions: &Versions<'_>, epsilon_ns: u64) -> Graph {
        let txns = versions.parts.len() as u32;
        let mut first = vec![0u32; txns as usize + 1];
        for_each_edge(versions, |from, _, _| first[from as usize] += 1);
        // Counts become end positions; filling from the back turns them into start positions.
        let mut sum = 0u32;
        for slot in &mut first {
            sum += *slot;
            *slot = sum;
        }
        let mut edges = vec![0u32; sum as usize];
        for_each_edge(versions, |from, to, kind| {
            let at = &mut first[from as usize];
            *at -= 1;
            edges[*at as usize] = to | kind << KIND_SHIFT;
        });
        let mut graph = Graph {
            txns,
            first,
            edges,
            session_next: session_order(versions),
            end_moment: Vec::new(),
            by_begin: Vec::new(),
            moment_first: Vec::new(),
        };
        graph.add_time(versions, epsilon_ns);
        graph
    }

    /// A graph of any nodes and edges (from, to, kind), without sessions and time.
    pub(super) fn of_edges(nodes: u32, list: &[(u32, u32, u32)]) -> Graph {
        let mut first = vec![0u32; nodes as usize + 1];
        for (from, _, _) in list {
            first[*from as usize] += 1;
        }
        let mut sum = 0u32;
        for slot in &mut first {
            sum += *slot;
            *slot = sum;
        }
        let mut edges = vec![0u32; sum as usize];
        for (from, to, kind) in list {
            let at = &mut first[*from as usize];
            *at -= 1;
            edges[*at as usize] = to | kind << KIND_SHIFT;
        }
        Graph {
            txns: nodes,
            first,
            edges,
            session_next: vec![NONE; nodes as usize],
            end_moment: vec![NONE; nodes as usize],
            by_begin: Vec::new(),
            moment_first: Vec::new(),
        }
    }

    fn add_time(&mut self, versions: &Versions<'_>, epsilon_ns: u64) {
        let txns = versions.history.txns();
        let numbers = || (0..self.txns).filter(|number| versions.parts[*number as usize] != Part::Out);
        // A transaction without an acknowledgement may still be running.
        let has_end = |number: &u32| {
            versions.parts[*number as usize] == Part::Whole && txns[*number as usize].end_ns > 0
        };
        let mut by_end: Vec<u32> = numbers().filter(has_end).collect();
        by_end.sort_by_key(|number| txns[*number as usize].end_ns);
        let mut by_begin: Vec<u32> = numbers().filter(|number| txns[*number as usize].begin_ns > 0).collect();
        by_begin.sort_by_key(|number| txns[*number as usize].begin_ns);
        let mut end_moment = vec![NONE; self.txns as usize];
        for (moment, number) in by_end.iter().enumerate() {
            end_moment[*number as usize] = moment as u32;
        }
        // The number of ends before each begin: both are sorted, so one pass finds all.
        let mut moment_first = Vec::with_capacity(by_end.len() + 1);
        for (at, number) in by_begin.iter().enumerate() {
            let begin = txns[*number as usize].begin_ns;
            while let Some(end) = by_end.get(moment_first.len())
                && txns[*end as usize].end_ns.saturating_add(epsilon_ns) < begin
            {
                moment_first.push(at as u32);
            }
        }
        moment_first.resize(by_end.len() + 1, by_begin.len() as u32);
        (self.end_moment, self.by_begin, self.moment_first) = (end_moment, by_begin, moment_first);
    }

    /// Edges between transactions because of data.
    pub(super) fn edge_count(&self) -> usize {
        self.edges.len()
    }

    /// Transactions and instants.
    pub(super) fn nodes(&self) -> u32 {
        self.txns + self.instants()
    }

    fn instants(&self) -> u32 {
        self.moment_first.len().saturating_sub(1) as u32
    }

    /// The next edge behind the cursor: the target and why.
    pub(super) fn next(&self, node: u32, kinds: Kinds, cursor: &mut u32) -> Option<(u32, Reason)> {
        if node >= self.txns {
            return self.next_of_moment(node - self.txns, cursor);
        }
        let from = self.first[node as usize];
        let edges = &self.edges[from as usize..self.first[node as usize + 1] as usize];
        while let Some(edge) = edges.get(*cursor as usize) {
            *cursor += 1;
            let kind = edge >> KIND_SHIFT;
            if kinds.has(Kinds(1 << kind)) {
                let reason = match kind {
                    WW => Reason::Overwrote,
                    WR => Reason::Read,
                    _ => Reason::ReadBefore,
                };
                return Some((edge & TARGET, reason));
            }
        }
        let step = *cursor - edges.len() as u32;
        if step == 0 {
            *cursor += 1;
            let next = self.session_next[node as usize];
            if kinds.has(Kinds::SESSION) && next != NONE {
                return Some((next, Reason::Session));
            }
        }
        if *cursor - edges.len() as u32 == 1 {
            *cursor += 1;
            let moment = self.end_moment[node as usize];
            if kinds.has(Kinds::REAL_TIME) && moment != NONE {
                return Some((self.txns + moment, Reason::RealTime));
            }
        }
        None
    }

    fn next_of_moment(&self, moment: u32, cursor: &mut u32) -> Option<(u32, Reason)> {
        let at = moment as usize;
        let step = *cursor;
        *cursor += 1;
        let begun = &self.by_begin[self.moment_first[at] as usize..self.moment_first[at + 1] as usize];
        if let Some(txn) = begun.get(step as usize) {
            return Some((*txn, Reason::RealTime));
        }
        let is_last = moment + 1 >= self.instants();
        (step as usize == begun.len() && !is_last).then_some((self.txns + moment + 1, Reason::RealTime))
    }
}

pub(super) const WW: u32 = 0;
pub(super) const WR: u32 = 1;
pub(super) const RW: u32 = 2;

/// Calls `f` with every edge that the data implies: from, to, kind.
pub(super) fn for_each_edge(versions: &Versions<'_>, mut f: impl FnMut(u32, u32, u32)) {
    let ops = versions.history.ops();
    for (op, slot) in ops.iter().zip(&versions.slots) {
        if *slot == NONE {
            continue;
        }
        let txn = op.txn;
        let writer = versions.writers[*slot as usize];
        if op.kind.is_write() {
            // The second of two writers of one version has the slot, but no position in the order.
            if writer == txn {
                versions.successors(*slot, |next| {
                    if next != txn {
                        f(txn, next, WW);
                    }
                });
            }
            continue;
        }
        if writer == txn {
            continue;
        }
        if writer < INITIAL {
            f(writer, txn, WR);
        }
        versions.successors(*slot, |next| {
            if next != txn {
                f(txn, next, RW);
            }
        });
    }
}

/// The next transaction of the same session, of each acknowledged one. One of unknown outcome is the last of its session: later ones may not have waited for
/// it.
fn session_order(versions: &Versions<'_>) -> Vec<u32> {
    let mut last: super::hash::Map<u32, u32> = super::hash::Map::default();
    let mut next = vec![NONE; versions.parts.len()];
    for (number, txn) in versions.history.txns().iter().enumerate() {
        match versions.parts[number] {
            Part::Out => {}
            Part::Whole => {
                if let Some(before) = last.insert(txn.session, number as u32) {
                    next[before as usize] = number as u32;
                }
            }
            Part::Writer => {
                if let Some(before) = last.get(&txn.session)
                    && next[*before as usize] == NONE
                {
                    next[*before as usize] = number as u32;
                }
            }
        }
    }
    next
}

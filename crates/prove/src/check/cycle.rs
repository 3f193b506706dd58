//! The shortest cycle of each class, for people to read. The components have already shown whether there is one at all.

use std::collections::VecDeque;

use super::anomaly::{Class, Order, Reason, Step};
use super::graph::{Graph, Kinds};
use super::hash::Map;
use super::scc::{ALONE, Components};

/// Components searched at most, the smallest first: their cycles are the easiest to read.
const COMPONENTS_MAX: usize = 64;
/// Edges to begin with, in one component.
const STARTS_MAX: usize = 256;
/// Nodes visited from one edge. A search that gives up does not change the verdict, only perhaps the witness.
const PLACES_MAX: usize = 100_000;

/// The pattern of a cycle.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) class: Class,
    pub(super) order: Order,
    /// The order of versions follows from sessions or time, so the cycle needs no further edge of these kinds.
    pub(super) is_derived: bool,
}

impl Wanted {
    fn kinds(self) -> Kinds {
        let data = match self.class {
            Class::DirtyWrite => Kinds::WW,
            Class::CircularFlow => Kinds::WW.and(Kinds::WR),
            _ => Kinds::WW.and(Kinds::WR).and(Kinds::RW),
        };
        data.with_order(self.order)
    }

    /// The edge that every cycle of this class contains: the search begins there.
    fn first(self) -> Reason {
        match self.class {
            Class::DirtyWrite => Reason::Overwrote,
            Class::CircularFlow => Reason::Read,
            _ => Reason::ReadBefore,
        }
    }
}

/// What a search has passed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Passed {
    /// The last edge was rw.
    last_rw: bool,
    /// More than one rw.
    two: bool,
    /// Two rw one after the other.
    adjacent: bool,
    /// A session's order.
    session: bool,
    /// Real time.
    real_time: bool,
}

impl Passed {
    /// The state after one more edge; `None`: no cycle of this class continues like this.
    fn and(mut self, reason: Reason, wanted: Wanted) -> Option<Passed> {
        let is_rw = reason == Reason::ReadBefore;
        if is_rw {
            match wanted.class {
                Class::ReadSkew => return None,
                Class::LongFork if self.last_rw => return None,
                _ => {}
            }
            self.two = true;
            self.adjacent |= self.last_rw;
        }
        self.last_rw = is_rw;
        self.session |= reason == Reason::Session;
        self.real_time |= reason == Reason::RealTime;
        Some(self)
    }

    /// Whether a cycle that began with the first edge and ends here matches.
    fn is(self, wanted: Wanted) -> bool {
        let is_ordered = match wanted.order {
            _ if wanted.is_derived => true,
            Order::Data => true,
            Order::Session => self.session,
            Order::RealTime => self.real_time,
        };
        is_ordered
            && match wanted.class {
                Class::LongFork => self.two && !self.last_rw,
                Class::WriteSkew => self.two && (self.adjacent || self.last_rw),
                _ => true,
            }
    }

    fn bits(self) -> u64 {
        u64::from(self.last_rw)
            | u64::from(self.two) << 1
            | u64::from(self.adjacent) << 2
            | u64::from(self.session) << 3
            | u64::from(self.real_time) << 4
    }
}

/// Shortest cycles of a class, at most one per component, at most `count`.
pub(super) fn find(graph: &Graph, cycles: &Components, wanted: Wanted, count: usize) -> Vec<Vec<Step>> {
    let mut found: Vec<Vec<Step>> = Vec::new();
    for members in smallest(graph, cycles).into_iter().take(COMPONENTS_MAX) {
        if found.len() >= count {
            break;
        }
        let mut best: Option<Vec<Step>> = None;
        let mut starts = 0;
        'members: for from in members {
            let mut cursor = 0;
            while let Some((to, reason)) = graph.next(from, wanted.kinds(), &mut cursor) {
                if reason != wanted.first() || cycles.of(to) != cycles.of(from) {
                    continue;
                }
                starts += 1;
                if starts > STARTS_MAX {
                    break 'members;
                }
                let limit = best.as_ref().map_or(usize::MAX, Vec::len);
                if let Some(cycle) = back(graph, cycles, wanted, (from, to), limit) {
                    let is_shortest = cycle.len() == 2;
                    best = Some(cycle);
                    if is_shortest {
                        break 'members;
                    }
                }
            }
        }
        found.extend(best);
    }
    found.sort_by_key(Vec::len);
    found
}

/// The transactions of each component, small components first.
fn smallest(graph: &Graph, cycles: &Components) -> Vec<Vec<u32>> {
    let mut groups: Map<u32, Vec<u32>> = Map::default();
    for node in cycles.members().take_while(|node| *node < graph.txns) {
        groups.entry(cycles.of(node)).or_default().push(node);
    }
    let mut groups: Vec<Vec<u32>> = groups.into_values().collect();
    groups.sort_unstable_by_key(|group| (group.len(), group.first().copied()));
    groups
}

/// The shortest way from the end of the first edge back to its beginning, shorter than `limit` edges in all.
fn back(
    graph: &Graph,
    cycles: &Components,
    wanted: Wanted,
    (from, to): (u32, u32),
    limit: usize,
) -> Option<Vec<Step>> {
    let start = Passed { last_rw: wanted.first() == Reason::ReadBefore, ..Passed::default() };
    let place = |node: u32, passed: Passed| u64::from(node) << 5 | passed.bits();
    let mut before: Map<u64, Reached> = Map::default();
    let mut queue = VecDeque::from([(to, start, 1)]);
    before.insert(place(to, start), Reached { length: 1, from: u64::MAX, reason: wanted.first() });
    while let Some((node, passed, length)) = queue.pop_front() {
        if length >= limit || before.len() > PLACES_MAX {
            return None;
        }
        let here = place(node, passed);
        if before.get(&here).is_some_and(|reached| reached.length < length) {
            continue;
        }
        let mut cursor = 0;
        while let Some((next, reason)) = graph.next(node, wanted.kinds(), &mut cursor) {
            if cycles.of(next) != cycles.of(from) || cycles.of(next) == ALONE {
                continue;
            }
            let Some(now) = passed.and(reason, wanted) else { continue };
            if next == from {
                if now.is(wanted) {
                    let cycle = unwind(graph, &before, here, reason, (from, to), wanted.first());
                    return is_simple(&cycle).then_some(cycle);
                }
                continue;
            }
            // Points in time are not printed, so passing through them costs nothing: the shortest cycle has the fewest transactions.
            let is_free = next >= graph.txns;
            let length = if is_free { length } else { length + 1 };
            let there = place(next, now);
            if before.get(&there).is_none_or(|reached| reached.length > length) {
                before.insert(there, Reached { length, from: here, reason });
                if is_free {
                    queue.push_front((next, now, length));
                } else {
                    queue.push_back((next, now, length));
                }
            }
        }
    }
    None
}

/// A path that passes a transaction twice is two cycles, which may be of other classes.
fn is_simple(cycle: &[Step]) -> bool {
    let mut seen: Map<u32, ()> = Map::default();
    cycle.iter().all(|step| seen.insert(step.from, ()).is_none())
}

/// How a place was reached.
#[derive(Clone, Copy)]
struct Reached {
    /// Edges between transactions since the beginning.
    length: usize,
    from: u64,
    reason: Reason,
}

fn unwind(
    graph: &Graph,
    before: &Map<u64, Reached>,
    last: u64,
    reason: Reason,
    (from, to): (u32, u32),
    first: Reason,
) -> Vec<Step> {
    let mut steps = Vec::new();
    let (mut end, mut why, mut at) = (from, reason, last);
    loop {
        let node = (at >> 5) as u32;
        // Points in time lie between two transactions; the step is from one to the other.
        if node < graph.txns {
            steps.push(Step { from: node, to: end, reason: why });
            end = node;
        }
        let Some(reached) = before.get(&at).filter(|reached| reached.from != u64::MAX) else { break };
        if node < graph.txns {
            why = reached.reason;
        }
        at = reached.from;
    }
    steps.push(Step { from, to, reason: first });
    steps.reverse();
    steps
}

/// The class of a cycle.
pub(super) fn classify(cycle: &[Step]) -> (Class, Order) {
    let has = |reason: Reason| cycle.iter().any(|step| step.reason == reason);
    let is_rw = |at: usize| cycle[at % cycle.len()].reason == Reason::ReadBefore;
    let rw = (0..cycle.len()).filter(|at| is_rw(*at)).count();
    let is_adjacent = (0..cycle.len()).any(|at| is_rw(at) && is_rw(at + 1));
    let class = match rw {
        0 if !has(Reason::Read) => Class::DirtyWrite,
        0 => Class::CircularFlow,
        1 => Class::ReadSkew,
        _ if !is_adjacent => Class::LongFork,
        _ => Class::WriteSkew,
    };
    let order = match () {
        () if has(Reason::RealTime) => Order::RealTime,
        () if has(Reason::Session) => Order::Session,
        () => Order::Data,
    };
    (class, order)
}

/// Any cycle of a component, shown when the search for a specific one gave up. In the doubled graph it may pass a transaction twice.
pub(super) fn any(view: &super::scc::View<'_>, cycles: &Components) -> Option<Vec<Step>> {
    let start = cycles.members().next()?;
    let mut before: Map<u32, (u32, Reason)> = Map::default();
    let mut queue = VecDeque::from([start]);
    while let Some(node) = queue.pop_front() {
        let mut cursor = 0;
        while let Some((next, reason)) = view.next_with_reason(node, &mut cursor) {
            if cycles.of(next) != cycles.of(start) {
                continue;
            }
            if next == start {
                let mut steps = Vec::new();
                let (mut end, mut why, mut at) = (view.base(start), reason, node);
                loop {
                    let base = view.base(at);
                    if base < view.graph.txns {
                        steps.push(Step { from: base, to: end, reason: why });
                        end = base;
                    }
                    let Some((previous, reason)) = before.get(&at) else { break };
                    if base < view.graph.txns {
                        why = *reason;
                    }
                    at = *previous;
                }
                steps.reverse();
                return Some(steps);
            }
            if let std::collections::hash_map::Entry::Vacant(entry) = before.entry(next) {
                entry.insert((node, reason));
                queue.push_back(next);
            }
        }
    }
    None
}

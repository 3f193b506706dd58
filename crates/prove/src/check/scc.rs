//! Strongly connected components, without recursion and with one number per node (Pearce: A space-efficient algorithm for finding strongly connected
//! components, 2016). There is a cycle if and only if a component has more than one node.

use super::anomaly::Reason;
use super::graph::{Graph, Kinds};

/// A node in no cycle.
pub(super) const ALONE: u32 = u32::MAX;

/// What one level looks at.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a> {
    pub(super) graph: &'a Graph,
    pub(super) kinds: Kinds,
    /// Every transaction twice: no two adjacent rw edges.
    pub(super) is_doubled: bool,
    /// Components of a graph that contains this one: only edges within one of them can be in a cycle.
    pub(super) within: Option<&'a Components>,
}

/// The component of each node, [`ALONE`] for most.
#[derive(Clone, Debug)]
pub(super) struct Components {
    of: Vec<u32>,
    pub(super) count: u32,
}

impl Components {
    pub(super) fn of(&self, node: u32) -> u32 {
        self.of[node as usize]
    }

    /// Whether it is in no cycle.
    pub(super) fn is_alone(&self, node: u32) -> bool {
        self.of(node) == ALONE
    }

    /// Nodes that are in some cycle.
    pub(super) fn members(&self) -> impl Iterator<Item = u32> {
        (0..self.of.len() as u32).filter(|node| self.of[*node as usize] != ALONE)
    }
}

impl View<'_> {
    /// Nodes, doubled ones counted twice. Of a doubled transaction t, 2t is "came in by something else", 2t + 1 "came in by rw"; points in time follow.
    pub(super) fn nodes(&self) -> u32 {
        self.graph.nodes() + if self.is_doubled { self.graph.txns } else { 0 }
    }

    /// The node of the graph behind a node of the view.
    pub(super) fn base(&self, node: u32) -> u32 {
        let txns = self.graph.txns;
        match self.is_doubled {
            false => node,
            true if node < 2 * txns => node / 2,
            true => node - txns,
        }
    }

    /// The node of a transaction; if there are two, the one that is entered by rw, or the other one.
    pub(super) fn node_of(&self, txn: u32, by_rw: bool) -> u32 {
        if self.is_doubled { 2 * txn + u32::from(by_rw) } else { txn }
    }

    /// Whether this is the node of a transaction that is entered by rw only.
    pub(super) fn came_by_rw(&self, node: u32) -> bool {
        self.is_doubled && node < 2 * self.graph.txns && node % 2 == 1
    }

    fn next(&self, node: u32, cursor: &mut u32) -> Option<u32> {
        self.next_with_reason(node, cursor).map(|(to, _)| to)
    }

    /// The next edge behind the cursor, in nodes of the view.
    pub(super) fn next_with_reason(&self, node: u32, cursor: &mut u32) -> Option<(u32, Reason)> {
        let base = self.base(node);
        let txns = self.graph.txns;
        let came_by_rw = self.came_by_rw(node);
        loop {
            let (to, reason) = self.graph.next(base, self.kinds, cursor)?;
            if let Some(within) = self.within
                && within.of(base) != within.of(to)
            {
                continue;
            }
            if !self.is_doubled {
                return Some((to, reason));
            }
            let is_rw = reason == Reason::ReadBefore;
            if is_rw && came_by_rw {
                continue;
            }
            return Some((if to < txns { 2 * to + u32::from(is_rw) } else { to + txns }, reason));
        }
    }

    fn starts(&self) -> impl Iterator<Item = u32> {
        (0..self.nodes()).filter(|node| self.within.is_none_or(|within| within.of(self.base(*node)) != ALONE))
    }
}

#[derive(Clone, Copy)]
struct Frame {
    node: u32,
    cursor: u32,
    is_root: bool,
}

/// Finds the components.
pub(super) fn components(view: &View<'_>) -> Components {
    let mut index = vec![0u32; view.nodes() as usize];
    let mut next_index = 1u32;
    // Numbers of components descend from the maximum, so that every finished node compares as larger than every open one.
    let mut component = ALONE - 1;
    let mut open: Vec<u32> = Vec::new();
    let mut frames: Vec<Frame> = Vec::new();
    for start in view.starts() {
        if index[start as usize] != 0 {
            continue;
        }
        index[start as usize] = next_index;
        next_index += 1;
        frames.push(Frame { node: start, cursor: 0, is_root: true });
        while let Some(frame) = frames.last_mut() {
            let node = frame.node as usize;
            if let Some(to) = view.next(frame.node, &mut frame.cursor) {
                let seen = index[to as usize];
                if seen == 0 {
                    index[to as usize] = next_index;
                    next_index += 1;
                    frames.push(Frame { node: to, cursor: 0, is_root: true });
                } else if seen < index[node] {
                    index[node] = seen;
                    frame.is_root = false;
                }
                continue;
            }
            let done = *frame;
            frames.pop();
            if !done.is_root {
                open.push(done.node);
            } else {
                next_index -= 1;
                let mut number = ALONE;
                while let Some(member) = open.last()
                    && index[*member as usize] >= index[node]
                {
                    number = component;
                    index[*member as usize] = number;
                    open.pop();
                    next_index -= 1;
                }
                index[node] = number;
                if number != ALONE {
                    component -= 1;
                }
            }
            if let Some(parent) = frames.last_mut()
                && index[node] < index[parent.node as usize]
            {
                index[parent.node as usize] = index[node];
                parent.is_root = false;
            }
        }
    }
    for at in index.iter_mut().filter(|at| **at == 0) {
        *at = ALONE;
    }
    Components { of: index, count: ALONE - 1 - component }
}

/// The nodes of a view without cycles, each after all its successors.
pub(super) fn backwards(view: &View<'_>) -> Vec<u32> {
    let nodes = view.nodes();
    let mut line = Vec::with_capacity(nodes as usize);
    let mut is_seen = vec![false; nodes as usize];
    let mut stack: Vec<(u32, u32)> = Vec::new();
    for start in 0..nodes {
        if std::mem::replace(&mut is_seen[start as usize], true) {
            continue;
        }
        stack.push((start, 0));
        while let Some((node, cursor)) = stack.last_mut() {
            match view.next_with_reason(*node, cursor) {
                Some((to, _)) => {
                    if !std::mem::replace(&mut is_seen[to as usize], true) {
                        stack.push((to, 0));
                    }
                }
                None => {
                    line.push(*node);
                    stack.pop();
                }
            }
        }
    }
    line
}

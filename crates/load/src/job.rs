//! What the streams of all nodes share, and what they report about a chunk.

use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::dataset::{Numbers, leaf_names};
use crate::dispatch::{Dispatcher, NodePlan, Task};
use crate::error::LoadError;
use crate::ledger::Layout;
use crate::options::Via;
use crate::place::Place;
use crate::plan::Chunks;
use crate::route::{Buckets, Sorted};
use crate::shape::Shape;
use crate::shard;
use crate::stream::Work;

/// What the streams of all nodes share.
pub(crate) struct Job<'a> {
    pub(crate) work: &'a Work<'a>,
    /// The nodes that streams work for, in the order of the dispatcher.
    pub(crate) places: &'a [Place],
    /// Where streams connect to, in turn: the same, unless one node's work enters at all of them.
    pub(crate) entries: &'a [Place],
    /// All nodes that hold rows.
    pub(crate) nodes: &'a [Place],
    pub(crate) layout: &'a Layout,
    pub(crate) shape: Shape,
    pub(crate) dispatcher: &'a Dispatcher,
    pub(crate) chunks: Chunks,
}

/// Makes a new plan when the old one is not true any more.
pub(crate) type Replan<'a> = dyn FnMut() -> Result<Vec<NodePlan>, LoadError> + 'a;

impl Job<'_> {
    /// A transaction on this node loads some leaves of a chunk and records which; else it loads all of them.
    pub(crate) fn in_parts(&self, node: usize) -> bool {
        self.shape == Shape::Sharded && !self.by_entry(node)
    }

    /// This node sends on what belongs to others.
    pub(crate) fn by_entry(&self, node: usize) -> bool {
        self.shape == Shape::Sharded && self.layout.via == Via::Connect && node == 0
    }

    /// Where streams that work for a node may enter instead of where they are: at all entries, if these are not the nodes themselves.
    pub(crate) fn entries_of(&self, node: usize) -> &[Place] {
        if self.places.len() == 1 { self.entries } else { &self.entries[node..=node] }
    }

    /// The relation that rows of a leaf are copied into.
    pub(crate) fn target(&self, task: &Task, leaf: u16) -> String {
        match task.owned.get(&leaf) {
            Some(Some(attachment)) => attachment.relation.clone(),
            _ => self.work.leaf(leaf),
        }
    }

    /// Applies a new plan when one is needed, and reports what has moved.
    pub(crate) fn follow(&self, replan: &mut Replan<'_>) -> Result<(), LoadError> {
        let before = self.dispatcher.owned();
        let begun = Instant::now();
        let plans = replan()?;
        let after: Vec<_> = plans.iter().map(|plan| (*plan.owned).clone()).collect();
        let nodes: Vec<&str> = self.places.iter().map(|place| place.name.as_str()).collect();
        let leaves = leaf_names(self.work.content.tables(), self.work.dataset.partitions);
        for message in shard::moves(&before, &after, &nodes, &leaves) {
            self.work.report(record::event::NOTE, message, Some(begun.elapsed()));
        }
        self.dispatcher.replan(plans);
        let counters = self.work.counters;
        let todo: u64 = self.dispatcher.todo().iter().sum();
        let total = counters.chunks_done.load(Ordering::Relaxed) + todo;
        counters.chunks_total.store(total, Ordering::Relaxed);
        Ok(())
    }
}

/// How the attempt to load a part ended, when it did not fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PartEnd {
    /// With so many rows committed.
    Loaded(u64),
    /// The ledger has it: another process has loaded it, or we have and never got the reply.
    There,
    /// Another loader has the chunk in its hands.
    Busy,
    /// The plan is not true: a leaf has moved, or the ledger has some of the leaves.
    Stale,
}

/// The rows of a chunk by leaf. The client or the server has hashed them.
pub(crate) enum Rows<'a> {
    Own(&'a Buckets),
    Shared(&'a Sorted),
}

impl Rows<'_> {
    pub(crate) fn count(&self, leaf: u16) -> u64 {
        match self {
            Rows::Own(buckets) => buckets.len(usize::from(leaf)),
            Rows::Shared(sorted) => sorted.count(leaf).unwrap_or_default(),
        }
    }

    /// The row numbers of a leaf.
    pub(crate) fn numbers(&self, leaf: u16) -> Numbers<'_> {
        match self {
            Rows::Own(buckets) => buckets.rows(usize::from(leaf)),
            Rows::Shared(sorted) => sorted.rows(leaf),
        }
    }

    pub(crate) fn bytes(&self, leaf: u16) -> u64 {
        match self {
            Rows::Own(buckets) => buckets.bytes(usize::from(leaf)),
            Rows::Shared(sorted) => sorted.bytes(leaf),
        }
    }

    pub(crate) fn checksum(&self, leaf: u16) -> u64 {
        match self {
            Rows::Own(buckets) => buckets.checksum(usize::from(leaf)),
            Rows::Shared(sorted) => sorted.checksum(leaf),
        }
    }
}

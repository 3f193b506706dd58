//! Which stream loads what next: the chunks that are missing, node by node.
//!
//! A stream belongs to one node and loads parts of chunks there: the rows of a chunk whose leaf tables that node owns. A transaction writes
//! to one node, so a part is what one transaction loads and one ledger row records. On a single server a part is a whole chunk.
//!
//! **Each row is hashed once.** Only its hash shows which leaf a row belongs to, and the hash is the same on all nodes. So the stream that
//! needs a chunk first hashes it and leaves the other nodes' shares here ([`Dispatcher::share`]); their streams take what is prepared before they
//! hash anything themselves. A node that falls behind would let its shares pile up, so they are kept up to [`PREPARED_ROWS_MAX`] rows per
//! node; what does not fit is hashed again when that node gets to it, at a tenth of the price of making the rows. Thus a slow node
//! holds up no other: every node goes through the chunks at its own pace.
//!
//! **Parts change** when a leaf moves. What is missing is kept as classes: sets of chunks that miss the same leaves on the same node.
//! Before anything has happened there is one class per node; [`missing`] makes them from what the ledgers say, and [`Dispatcher::replan`]
//! puts new ones in place while streams are at work: a part that is on its way is finished under the plan it was taken
//! from, which the checks inside its transaction allow or not, and then subtracted from the new plan.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::chunk_set::ChunkSet;
use crate::ledger::Coverage;
use crate::route::Sorted;

/// Rows that other streams have hashed for a node and that wait for it, at four bytes each: 64 MB of memory for 16 GB of values.
pub(crate) const PREPARED_ROWS_MAX: u64 = 1 << 24;

/// The pause before a chunk that another loader works on is looked at again.
pub(crate) const BUSY_PAUSE: Duration = Duration::from_millis(500);

/// How long a chunk that one stream is about to hash is left to it by the streams of other nodes. Hashing takes milliseconds; a stream that has
/// not come to it by now waits for its server.
const HASHING_PATIENCE: Duration = Duration::from_secs(1);

/// Leaf tables, by their numbers, ascending.
pub(crate) type Leaves = Arc<[u16]>;

/// What identifies the attachment of a leaf to its parent on the node that owns it. It changes when the leaf is detached and attached
/// again, also when it comes back as the same table.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Attachment {
    /// The leaf table.
    pub(crate) oid: u32,
    /// `xmin` of its row in `pg_inherits`: the transaction that attached it.
    pub(crate) xmin: String,
    /// Its name, qualified and quoted.
    pub(crate) relation: String,
    /// The partitioned table, qualified and quoted.
    pub(crate) parent: String,
}

/// What a node owns, by leaf.
pub(crate) type Owned = BTreeMap<u16, Option<Attachment>>;

/// Chunks that miss the same leaves on the same node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Class {
    pub(crate) leaves: Leaves,
    pub(crate) chunks: ChunkSet,
}

/// What a node has to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct NodePlan {
    /// The leaves that are there, and how to recognise them.
    pub(crate) owned: Arc<Owned>,
    /// What is missing; no chunk is in two classes.
    pub(crate) classes: Vec<Class>,
}

impl NodePlan {
    /// What a node with these leaves misses of `chunks`, given the ledgers. `leaves_of` lists the leaves of a chunk; `None`: into any.
    pub(crate) fn new(
        owned: Owned,
        chunks: &ChunkSet,
        coverage: &[(Option<Vec<u16>>, ChunkSet)],
        leaves_of: &dyn Fn(u64) -> Option<Vec<u16>>,
    ) -> NodePlan {
        let mut classes = Vec::new();
        for (leaves, chunks) in by_leaves(&owned, chunks, leaves_of) {
            classes.extend(missing(&leaves, &chunks, coverage));
        }
        NodePlan { classes, owned: Arc::new(owned) }
    }

    /// A plan in which each of these chunks is one leaf, whole.
    pub(crate) fn of_leaves(owned: Arc<Owned>, chunks: ChunkSet) -> NodePlan {
        let leaves: Leaves = owned.keys().copied().collect();
        let classes = if chunks.is_empty() { Vec::new() } else { vec![Class { leaves, chunks }] };
        NodePlan { owned, classes }
    }

    /// Parts to load.
    pub(crate) fn parts(&self) -> u64 {
        self.classes.iter().map(|class| class.chunks.len()).sum()
    }
}

/// The chunks by those of the owned leaves into which they go.
fn by_leaves(
    owned: &Owned,
    chunks: &ChunkSet,
    leaves_of: &dyn Fn(u64) -> Option<Vec<u16>>,
) -> BTreeMap<Vec<u16>, ChunkSet> {
    let mut sets: BTreeMap<Vec<u16>, ChunkSet> = BTreeMap::new();
    let mut empty = chunks.clone();
    empty.clear();
    let mut at = chunks.next_from(0);
    while let Some(chunk) = at {
        let Some(mut leaves) = leaves_of(chunk) else {
            return BTreeMap::from([(owned.keys().copied().collect(), chunks.clone())]);
        };
        leaves.retain(|leaf| owned.contains_key(leaf));
        sets.entry(leaves).or_insert_with(|| empty.clone()).insert(chunk);
        at = chunks.next_from(chunk + 1);
    }
    sets
}

/// Which of `chunks` miss which of `leaves`.
fn missing(leaves: &[u16], chunks: &ChunkSet, coverage: &[(Option<Vec<u16>>, ChunkSet)]) -> Vec<Class> {
    let mut classes: Vec<Class> = Vec::new();
    if !leaves.is_empty() && !chunks.is_empty() {
        classes.push(Class { leaves: leaves.into(), chunks: chunks.clone() });
    }
    for (covered, done) in coverage {
        let mut smaller = Vec::new();
        for class in &mut classes {
            let left = left_of(&class.leaves, covered.as_deref());
            if left.len() < class.leaves.len() {
                smaller.push((left, class.chunks.take(done)));
            }
        }
        for (left, chunks) in
            smaller.into_iter().filter(|(left, chunks)| !left.is_empty() && !chunks.is_empty())
        {
            add_class(&mut classes, left, &chunks);
        }
        classes.retain(|class| !class.chunks.is_empty());
    }
    classes
}

/// `leaves` without those that are covered; `None` covers all.
fn left_of(leaves: &[u16], covered: Option<&[u16]>) -> Vec<u16> {
    match covered {
        None => Vec::new(),
        Some(covered) => leaves.iter().copied().filter(|leaf| covered.binary_search(leaf).is_err()).collect(),
    }
}

fn add_class(classes: &mut Vec<Class>, leaves: Vec<u16>, chunks: &ChunkSet) {
    match classes.iter_mut().find(|class| *class.leaves == *leaves) {
        Some(class) => class.chunks.add(chunks),
        None => classes.push(Class { leaves: leaves.into(), chunks: chunks.clone() }),
    }
}

/// A part that a stream shall load.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) chunk: u64,
    pub(crate) leaves: Leaves,
    pub(crate) owned: Arc<Owned>,
    /// Its rows, when a stream has hashed them.
    pub(crate) sorted: Option<Arc<Sorted>>,
}

/// What a stream shall do next.
#[derive(Clone, Debug)]
pub(crate) enum Next {
    /// Load this.
    Task(Task),
    /// Ask again after [`Dispatcher::wait`] with this: others are at what is left, or a new plan is being made.
    Wait(u64),
    /// Nothing is left anywhere.
    End,
}

#[derive(Debug)]
struct Queue {
    owned: Arc<Owned>,
    /// Classes, each with the chunk from which to look for the next one.
    classes: Vec<(Class, u64)>,
    /// Shares that others have hashed. Each chunk of it is in a class, and its leaves are that class's.
    prepared: BTreeMap<u64, Arc<Sorted>>,
    prepared_rows: u64,
    /// Chunks that streams of this node have in their hands. They stay in their classes until they are loaded.
    flying: BTreeSet<u64>,
    /// Chunks that another loader had in its hands, and when to look again.
    busy: VecDeque<(Instant, u64)>,
}

impl Queue {
    fn new(plan: NodePlan) -> Queue {
        Queue {
            owned: plan.owned,
            classes: plan.classes.into_iter().map(|class| (class, 0)).collect(),
            prepared: BTreeMap::new(),
            prepared_rows: 0,
            flying: BTreeSet::new(),
            busy: VecDeque::new(),
        }
    }

    fn todo(&self) -> u64 {
        self.classes.iter().map(|(class, _)| class.chunks.len()).sum()
    }

    fn leaves_of(&self, chunk: u64) -> Option<Leaves> {
        let class = self.classes.iter().find(|(class, _)| class.chunks.contains(chunk));
        class.map(|(class, _)| Arc::clone(&class.leaves))
    }

    /// The first chunk that no stream of ours has in hand.
    fn first_free(&mut self, hashing: &BTreeMap<u64, Instant>, now: Instant) -> Option<u64> {
        let taken = |chunk: &u64| {
            self.flying.contains(chunk)
                || hashing.get(chunk).is_some_and(|until| now < *until)
                || self.busy.iter().any(|(_, busy)| busy == chunk)
        };
        for (class, from) in &mut self.classes {
            // What lies before the first chunk of the class is loaded.
            *from = class.chunks.next_from(*from).unwrap_or(u64::MAX);
            let mut at = *from;
            while let Some(chunk) = class.chunks.next_from(at) {
                if !taken(&chunk) {
                    return Some(chunk);
                }
                at = chunk + 1;
            }
        }
        None
    }

    /// These leaves of a chunk are loaded.
    fn cover(&mut self, chunk: u64, leaves: Option<&[u16]>) {
        let Some(place) = self.classes.iter().position(|(class, _)| class.chunks.contains(chunk)) else {
            return;
        };
        let left = left_of(&self.classes[place].0.leaves, leaves);
        if left.len() == self.classes[place].0.leaves.len() {
            return;
        }
        self.classes[place].0.chunks.remove(chunk);
        if let Some(sorted) = self.prepared.remove(&chunk) {
            self.prepared_rows -= sorted.len();
        }
        if left.is_empty() {
            return;
        }
        match self.classes.iter_mut().find(|(class, _)| *class.leaves == *left) {
            Some((class, from)) => {
                class.chunks.insert(chunk);
                *from = (*from).min(chunk);
            }
            None => {
                let mut chunks = self.classes[place].0.chunks.clone();
                chunks.clear();
                chunks.insert(chunk);
                self.classes.push((Class { leaves: left.into(), chunks }, chunk));
            }
        }
    }
}

#[derive(Debug)]
struct State {
    queues: Vec<Queue>,
    /// Chunks that a stream is about to hash for others too, and until when they are left to it.
    hashing: BTreeMap<u64, Instant>,
    /// A stream has found that the plan is not true any more; no stream takes anything until there is a new one.
    stale: bool,
    /// Nodes that have to catch their breath.
    paused: BTreeSet<usize>,
    /// Counts the changes that a waiting stream could need.
    changes: u64,
}

/// Hands out parts to the streams of all nodes.
#[derive(Debug)]
pub(crate) struct Dispatcher {
    /// What is loaded on one node need not be loaded on another: rows are spread over the nodes, not repeated on each.
    spread: bool,
    /// But for leaves from this one on, which every node has whole.
    whole_from: u16,
    state: Mutex<State>,
    changed: Condvar,
}

impl Dispatcher {
    pub(crate) fn new(spread: bool, plans: Vec<NodePlan>) -> Dispatcher {
        let queues = plans.into_iter().map(Queue::new).collect();
        let state =
            State { queues, hashing: BTreeMap::new(), stale: false, paused: BTreeSet::new(), changes: 0 };
        Dispatcher { spread, whole_from: u16::MAX, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Leaves from this one on are loaded on every node.
    pub(crate) fn with_whole(self, whole_from: usize) -> Dispatcher {
        Dispatcher { whole_from: u16::try_from(whole_from).unwrap_or(u16::MAX), ..self }
    }

    /// A panic of another stream leaves nothing half done: whatever it had in hand stays in its class.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a stream of this node shall do next.
    pub(crate) fn next(&self, node: usize, now: Instant) -> Next {
        let mut state = self.state();
        let State { queues, hashing, stale, paused, changes } = &mut *state;
        if *stale || (paused.contains(&node) && queues[node].todo() > 0) {
            return Next::Wait(*changes);
        }
        let alone = queues.len() == 1;
        let queue = &mut queues[node];
        let ready = queue.prepared.keys().find(|chunk| {
            !queue.flying.contains(chunk) && !queue.busy.iter().any(|(_, busy)| busy == *chunk)
        });
        let chunk = ready.copied().or_else(|| queue.first_free(hashing, now)).or_else(|| {
            let (when, _) = queue.busy.front()?;
            if *when > now {
                return None;
            }
            let (_, chunk) = queue.busy.pop_front()?;
            (!queue.flying.contains(&chunk)).then_some(chunk)
        });
        let found = chunk.and_then(|chunk| Some((chunk, queue.leaves_of(chunk)?)));
        let Some((chunk, leaves)) = found else {
            let over = queues.iter().all(|queue| queue.todo() == 0);
            return if over { Next::End } else { Next::Wait(*changes) };
        };
        queue.flying.insert(chunk);
        let sorted = queue.prepared.remove(&chunk);
        if let Some(sorted) = &sorted {
            queue.prepared_rows -= sorted.len();
        } else if !alone {
            hashing.insert(chunk, now + HASHING_PATIENCE);
        }
        Next::Task(Task { chunk, leaves, owned: Arc::clone(&queue.owned), sorted })
    }

    /// A stream of this node has hashed the chunk of its task: keeps what other nodes need of it. `sort` picks the rows of some leaves.
    pub(crate) fn share(&self, node: usize, chunk: u64, sort: impl Fn(&[u16]) -> Sorted) {
        // Picking is done without the lock; a plan that changes during it makes it useless, not wrong.
        let wanted: Vec<(usize, Leaves)> = {
            let state = self.state();
            let others = state.queues.iter().enumerate().filter(|(other, queue)| {
                *other != node && !queue.flying.contains(&chunk) && queue.prepared_rows < PREPARED_ROWS_MAX
            });
            others.filter_map(|(other, queue)| Some((other, queue.leaves_of(chunk)?))).collect()
        };
        let mut made: Vec<(Leaves, Arc<Sorted>)> = Vec::new();
        for (_, leaves) in &wanted {
            if !made.iter().any(|(done, _)| done == leaves) {
                made.push((Arc::clone(leaves), Arc::new(sort(leaves))));
            }
        }
        let mut state = self.state();
        state.hashing.remove(&chunk);
        for (other, leaves) in wanted {
            let queue = &mut state.queues[other];
            let sorted = made.iter().find(|(done, _)| *done == leaves).map(|(_, sorted)| Arc::clone(sorted));
            if let Some(sorted) = sorted
                && queue.leaves_of(chunk).is_some_and(|now| now == leaves)
                && !queue.flying.contains(&chunk)
                && !queue.prepared.contains_key(&chunk)
            {
                queue.prepared_rows += sorted.len();
                queue.prepared.insert(chunk, sorted);
            }
        }
        self.publish(state);
    }

    /// A stream has no more to do with the task's chunk: `covered` leaves of it are loaded (`None`: all), by whomever; `Some(&[])` if none.
    pub(crate) fn end(&self, node: usize, chunk: u64, covered: Option<&[u16]>) {
        let mut state = self.state();
        state.hashing.remove(&chunk);
        state.queues[node].flying.remove(&chunk);
        let divided: Option<Vec<u16>> =
            covered.map(|covered| covered.iter().copied().filter(|leaf| *leaf < self.whole_from).collect());
        for (other, queue) in state.queues.iter_mut().enumerate() {
            if other == node {
                queue.cover(chunk, covered);
            } else if self.spread {
                queue.cover(chunk, divided.as_deref());
            }
        }
        self.publish(state);
    }

    /// The same where a chunk is a leaf.
    pub(crate) fn end_leaf(&self, node: usize, leaf: u64) {
        if leaf < u64::from(self.whole_from) {
            return self.end(node, leaf, None);
        }
        let mut state = self.state();
        state.queues[node].flying.remove(&leaf);
        state.queues[node].cover(leaf, None);
        self.publish(state);
    }

    /// Another loader has the task's chunk in its hands.
    pub(crate) fn set_aside(&self, node: usize, chunk: u64, now: Instant) {
        let mut state = self.state();
        state.hashing.remove(&chunk);
        let queue = &mut state.queues[node];
        queue.flying.remove(&chunk);
        queue.busy.push_back((now + BUSY_PAUSE, chunk));
        self.publish(state);
    }

    /// Gives a node nothing new, or something again. Returns whether that is a change.
    pub(crate) fn set_paused(&self, node: usize, pause: bool) -> bool {
        let mut state = self.state();
        let changed = if pause { state.paused.insert(node) } else { state.paused.remove(&node) };
        self.publish(state);
        changed
    }

    /// The plan is not true any more: no stream gets anything before [`Dispatcher::replan`].
    pub(crate) fn set_stale(&self) {
        let mut state = self.state();
        state.stale = true;
        self.publish(state);
    }

    /// Whether a new plan is wanted.
    pub(crate) fn is_stale(&self) -> bool {
        self.state().stale
    }

    /// Puts a new plan in place. What streams have in their hands stays with them.
    pub(crate) fn replan(&self, plans: Vec<NodePlan>) {
        let mut state = self.state();
        for (queue, plan) in state.queues.iter_mut().zip(plans) {
            let flying = std::mem::take(&mut queue.flying);
            *queue = Queue { flying, ..Queue::new(plan) };
        }
        state.stale = false;
        self.publish(state);
    }

    /// What each node owns by the present plan.
    pub(crate) fn owned(&self) -> Vec<Arc<Owned>> {
        self.state().queues.iter().map(|queue| Arc::clone(&queue.owned)).collect()
    }

    /// The chunks that a node misses, ascending.
    pub(crate) fn chunks(&self, node: usize) -> Vec<u64> {
        let state = self.state();
        let classes = state.queues[node].classes.iter();
        let mut chunks: Vec<u64> = classes
            .flat_map(|(class, _)| {
                std::iter::successors(class.chunks.next_from(0), |at| class.chunks.next_from(at + 1))
            })
            .collect();
        chunks.sort_unstable();
        chunks
    }

    /// Parts that are not loaded, by node.
    pub(crate) fn todo(&self) -> Vec<u64> {
        self.state().queues.iter().map(Queue::todo).collect()
    }

    /// Ends the waits of [`Dispatcher::wait`].
    pub(crate) fn wake(&self) {
        self.publish(self.state());
    }

    /// Waits until something has changed since `seen`, at most this long.
    pub(crate) fn wait(&self, seen: u64, at_most: Duration) {
        let waited = self.changed.wait_timeout_while(self.state(), at_most, |state| state.changes == seen);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// What has been seen so far, for [`Dispatcher::wait`].
    pub(crate) fn seen(&self) -> u64 {
        self.state().changes
    }

    /// Counts the change and wakes those who wait for one.
    fn publish(&self, mut state: MutexGuard<'_, State>) {
        state.changes += 1;
        drop(state);
        self.changed.notify_all();
    }
}

/// What is loaded for one node by the ledgers of all, where rows are spread over the nodes: of leaves from `whole_from` on, which every node has
/// whole, only its own ledger counts.
pub(crate) fn united(ledgers: &[Coverage], node: usize, whole_from: usize, leaves: usize) -> Coverage {
    let mut all = Coverage::new();
    for (owner, ledger) in ledgers.iter().enumerate() {
        for (covered, chunks) in ledger {
            let covered = match covered {
                covered if owner == node || whole_from == leaves => covered.clone(),
                None => Some((0..whole_from as u16).collect()),
                Some(covered) => {
                    Some(covered.iter().copied().filter(|leaf| usize::from(*leaf) < whole_from).collect())
                }
            };
            match all.iter_mut().find(|(known, _)| *known == covered) {
                Some((_, known)) => known.add(chunks),
                None => all.push((covered, chunks.clone())),
            }
        }
    }
    all
}

#[cfg(test)]
mod tests;

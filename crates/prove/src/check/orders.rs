//! The order of versions where the history does not show it: all writes of registers, and appends that were never read.
//!
//! What is known about it depends on the level that is judged, for a level is refuted only if *every* order of versions breaks it. A level forbids cycles of
//! certain edges, so if one transaction comes before another by such edges, its version is the older one: otherwise the new edge would close a cycle
//! that the level forbids. `B reads before it writes` is the simplest case. The order of a session, or of real time, is another; it counts
//! only for levels that promise this order.
//!
//! | judged | A before B by | the older version |
//! |---|---|---|
//! | all | the level's own edges | A's write, of A's and B's writes of a key |
//! | snapshot isolation, serializable | the same | A's write, of it and what B read of the key |

use super::Shape;
use super::anomaly::Order;
use super::graph::Graph;
use super::hash::Map;
use super::scc::{View, backwards};
use super::versions::{INITIAL, Keys, NONE, OLDER_STEPS_MAX, Part, Versions};
use crate::history::Model;

/// The version that all others of a key come after.
pub(super) const BEFORE: u32 = u32::MAX - 1;
/// A key with at most this many versions has a table of ordered pairs; with more, only neighbours are ordered.
const TABLE_VERSIONS_MAX: usize = 512;
/// The most nodes of a graph times transactions whose predecessors are computed: these are bit sets.
const PAST_BITS_MAX: usize = 1 << 31;
/// Transactions whose predecessors are found in one pass over the graph.
const BLOCK: usize = 512;
const WORDS: usize = BLOCK / 64;

/// The writes of one transaction to one key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    pub(super) txn: u32,
    first: u32,
    last: u32,
}

/// The operations of one transaction on one key.
#[derive(Clone, Copy, Debug)]
struct Touch {
    txn: u32,
    /// The version it read first and the one it read last, before it wrote any: a place in the key's groups, [`BEFORE`], or [`NONE`].
    read_first: u32,
    read_last: u32,
    /// Its own version, or [`NONE`].
    group: u32,
}

/// A key whose versions have no known order.
#[derive(Clone, Debug)]
pub(super) struct KeyOrder {
    /// The slot that all its groups come after.
    before: u32,
    pub(super) groups: Vec<Group>,
    /// In the order of the history.
    touches: Vec<Touch>,
    /// Foreign reads: the transaction and the version.
    pub(super) reads: Vec<(u32, u32)>,
}

/// The known order of one key. For most keys nothing is known, so the first pair creates the tables.
#[derive(Clone, Debug, Default)]
pub(super) struct Relation {
    versions: usize,
    /// The versions that are known to come after each one; empty: nothing is known.
    pub(super) after: Vec<Vec<u32>>,
    /// Ordered pairs, also indirect ones; also empty for keys with very many versions.
    table: Vec<u64>,
}

impl Relation {
    fn new(versions: usize) -> Relation {
        Relation { versions, ..Relation::default() }
    }

    fn has_table(&self) -> bool {
        self.versions <= TABLE_VERSIONS_MAX
    }

    fn row(&self) -> usize {
        self.versions.div_ceil(64)
    }

    /// Whether `a` is known to be older than `b`.
    pub(super) fn has(&self, a: u32, b: u32) -> bool {
        match self.table.is_empty() {
            true => self.after.get(a as usize).is_some_and(|after| after.contains(&b)),
            false => self.table[a as usize * self.row() + b as usize / 64] >> (b % 64) & 1 == 1,
        }
    }

    /// Puts `a` before `b`; false if that was known.
    fn add(&mut self, a: u32, b: u32) -> bool {
        if a == b || self.has(a, b) {
            return false;
        }
        let row = self.row();
        if self.after.is_empty() {
            self.after.resize(self.versions, Vec::new());
            self.table.resize(if self.has_table() { self.versions * row } else { 0 }, 0);
        }
        self.after[a as usize].push(b);
        if self.table.is_empty() {
            return true;
        }
        let mut younger = self.table[b as usize * row..][..row].to_vec();
        younger[b as usize / 64] |= 1 << (b % 64);
        for older in 0..self.versions as u32 {
            if older == a || self.has(older, a) {
                let line = &mut self.table[older as usize * row..][..row];
                line.iter_mut().zip(&younger).for_each(|(line, bits)| *line |= bits);
            }
        }
        true
    }

    /// Whether only one order fits.
    fn is_total(&self) -> bool {
        if self.after.is_empty() {
            return self.versions < 2;
        }
        let mut older = vec![0u32; self.versions];
        self.after.iter().flatten().for_each(|version| older[*version as usize] += 1);
        let mut ready: Vec<u32> =
            (0..older.len() as u32).filter(|version| older[*version as usize] == 0).collect();
        let mut is_total = true;
        while let Some(version) = ready.pop() {
            is_total &= ready.is_empty();
            for next in &self.after[version as usize] {
                older[*next as usize] -= 1;
                if older[*next as usize] == 0 {
                    ready.push(*next);
                }
            }
        }
        is_total
    }
}

/// All keys whose versions have no known order.
#[derive(Debug)]
pub(super) struct Orders {
    pub(super) keys: Vec<KeyOrder>,
}

impl Orders {
    /// `None` where the history shows every order.
    pub(super) fn of(versions: &Versions<'_>) -> Option<Orders> {
        let orders = match versions.history.model() {
            Model::VersionedRegister => return None,
            Model::Register => registers(versions),
            Model::Append => tails(versions),
        };
        (!orders.keys.is_empty()).then_some(orders)
    }

    /// The order that follows from each transaction's own reads, from sessions and from real time, within each key.
    pub(super) fn seed(
        &self,
        versions: &Versions<'_>,
        (shape, order): (Shape, Order),
        epsilon_ns: u64,
    ) -> Vec<Relation> {
        let txns = versions.history.txns();
        let mut relations = Vec::with_capacity(self.keys.len());
        for key in &self.keys {
            let mut relation = Relation::new(key.groups.len());
            let mut add = |older: u32, newer: u32| {
                if older < BEFORE && newer < BEFORE {
                    relation.add(older, newer);
                }
            };
            let is_reading = shape >= Shape::Reads;
            if is_reading {
                for touch in key.touches.iter().filter(|touch| touch.group != NONE) {
                    add(touch.read_first, touch.group);
                    add(touch.read_last, touch.group);
                }
            }
            let newest = |touch: &Touch| match touch.group {
                NONE if is_reading => touch.read_last,
                group => group,
            };
            let oldest = |touch: &Touch| match touch.read_first {
                NONE => touch.group,
                _ if shape < Shape::Snapshot => touch.group,
                read => read,
            };
            if order >= Order::Session {
                let mut last: Map<u32, u32> = Map::default();
                for touch in &key.touches {
                    let txn = &txns[touch.txn as usize];
                    if let Some(before) = last.get(&txn.session) {
                        add(*before, oldest(touch));
                    }
                    let is_over = versions.parts[touch.txn as usize] == Part::Whole;
                    if is_over && newest(touch) < BEFORE {
                        last.insert(txn.session, newest(touch));
                    }
                }
            }
            if order == Order::RealTime {
                key.in_real_time(versions, epsilon_ns, (newest, oldest), add);
            }
            relations.push(relation);
        }
        relations
    }

    /// Adds the known order to `versions`, for the next graph.
    pub(super) fn draw(&self, versions: &mut Versions<'_>, relations: &[Relation]) {
        versions.undrawn = 0;
        for (key, relation) in self.keys.iter().zip(relations) {
            let mut is_root = vec![true; key.groups.len()];
            for (at, group) in key.groups.iter().enumerate() {
                let after = relation.after.get(at).map_or(&[][..], Vec::as_slice);
                after.iter().for_each(|next| is_root[*next as usize] = false);
                match after {
                    // Slots beyond the ordered ones have no next slot, so there is nothing to add.
                    [] if group.last as usize >= versions.ordered => drop(versions.fans.remove(&group.last)),
                    _ => {
                        let firsts = after.iter().map(|next| key.groups[*next as usize].first);
                        versions.fans.insert(group.last, firsts.collect());
                    }
                }
            }
            let roots = key.groups.iter().zip(is_root).filter(|(_, is_root)| *is_root);
            versions.fans.insert(key.before, roots.map(|(group, _)| group.first).collect());
        }
        versions.limit_fans();
    }

    /// Adds one order of every key, chosen by [`levels`].
    pub(super) fn draw_total(&self, versions: &mut Versions<'_>, chosen: &[Vec<u32>]) {
        for (key, line) in self.keys.iter().zip(chosen) {
            let mut before = key.before;
            for version in line {
                let group = &key.groups[*version as usize];
                versions.fans.insert(before, vec![group.first]);
                before = group.last;
            }
            match before as usize >= versions.ordered {
                true => drop(versions.fans.remove(&before)),
                false => drop(versions.fans.insert(before, Vec::new())),
            }
        }
    }

    /// Whether every key has few enough versions to compare any two of them.
    pub(super) fn is_small(&self) -> bool {
        self.keys.iter().all(|key| key.groups.len() < OLDER_STEPS_MAX)
    }

    /// How many keys have more than one possible order.
    pub(super) fn open(&self, relations: &[Relation]) -> u64 {
        relations.iter().filter(|relation| !relation.is_total()).count() as u64
    }

    /// Orders versions by other orders of their transactions; false if nothing is new.
    pub(super) fn extend(&self, view: &View<'_>, shape: Shape, relations: &mut [Relation]) -> bool {
        let mut requested: Vec<u32> = Vec::new();
        for (key, relation) in self.keys.iter().zip(&*relations) {
            if key.groups.len() > 1 && relation.has_table() && !relation.is_total() {
                requested.extend(key.groups.iter().map(|group| group.txn));
                requested.extend(key.reads.iter().map(|(txn, _)| *txn));
            }
        }
        requested.sort_unstable();
        requested.dedup();
        if view.nodes() as usize * requested.len() > PAST_BITS_MAX {
            return false;
        }
        let line = backwards(view);
        let mut is_new = false;
        for block in requested.chunks(BLOCK) {
            let past = Past::of(view, &line, block);
            for (key, relation) in self.keys.iter().zip(&mut *relations) {
                if relation.has_table() {
                    is_new |= key.extend(&past, shape, relation);
                }
            }
        }
        is_new
    }
}

impl KeyOrder {
    /// Pairs in real-time order (one ended before the other began), without those that follow from others.
    fn in_real_time(
        &self,
        versions: &Versions<'_>,
        epsilon_ns: u64,
        (newest, oldest): (impl Fn(&Touch) -> u32, impl Fn(&Touch) -> u32),
        mut add: impl FnMut(u32, u32),
    ) {
        let txns = versions.history.txns();
        let time = |touch: &Touch| &txns[touch.txn as usize];
        let is_over = |touch: &&Touch| {
            versions.parts[touch.txn as usize] == Part::Whole
                && time(touch).end_ns > 0
                && newest(touch) < BEFORE
        };
        let mut ends: Vec<&Touch> = self.touches.iter().filter(is_over).collect();
        ends.sort_by_key(|touch| time(touch).end_ns);
        let has_begin = |touch: &&Touch| time(touch).begin_ns > 0 && oldest(touch) < BEFORE;
        let mut begins: Vec<&Touch> = self.touches.iter().filter(has_begin).collect();
        begins.sort_by_key(|touch| time(touch).begin_ns);
        // Transactions that ended before the latest of these began are older through it.
        let (mut ended, mut latest_begin) = (0, 0);
        for touch in begins {
            let begin = time(touch).begin_ns;
            while let Some(end) = ends.get(ended)
                && time(end).end_ns.saturating_add(epsilon_ns) < begin
            {
                // Only a version with a position in the order can be between two others.
                if oldest(end) < BEFORE {
                    latest_begin = latest_begin.max(time(end).begin_ns);
                }
                ended += 1;
            }
            for end in ends[..ended].iter().rev() {
                if time(end).end_ns.saturating_add(epsilon_ns) < latest_begin {
                    break;
                }
                add(newest(end), oldest(touch));
            }
        }
    }

    fn extend(&self, past: &Past<'_>, shape: Shape, relation: &mut Relation) -> bool {
        let mut is_new = false;
        for (b, newer) in self.groups.iter().enumerate() {
            let Some(column) = past.column(newer.txn) else { continue };
            for (a, older) in self.groups.iter().enumerate() {
                if a != b && !relation.has(a as u32, b as u32) && past.has(older.txn, column) {
                    is_new |= relation.add(a as u32, b as u32);
                }
            }
        }
        if shape < Shape::Snapshot {
            return is_new;
        }
        for (reader, read) in self.reads.iter().filter(|(_, read)| *read < BEFORE) {
            let Some(column) = past.column(*reader) else { continue };
            for (a, older) in self.groups.iter().enumerate() {
                let is_open = a as u32 != *read && !relation.has(a as u32, *read);
                if is_open && older.txn != *reader && past.is_seen(older.txn, column) {
                    is_new |= relation.add(a as u32, *read);
                }
            }
        }
        is_new
    }
}

/// The transactions of a set that can be reached from each node.
struct Past<'a> {
    view: &'a View<'a>,
    /// The transactions, sorted.
    block: &'a [u32],
    /// For each node: the reached ones, then those reached by an edge other than rw.
    rows: Vec<[u64; 2 * WORDS]>,
}

impl<'a> Past<'a> {
    /// `line`: the nodes, each after all its successors.
    fn of(view: &'a View<'a>, line: &[u32], block: &'a [u32]) -> Past<'a> {
        let mut past = Past { view, block, rows: vec![[0; 2 * WORDS]; view.nodes() as usize] };
        for node in line {
            let mut row = [0u64; 2 * WORDS];
            let mut cursor = 0;
            while let Some((to, _)) = view.next_with_reason(*node, &mut cursor) {
                row.iter_mut().zip(&past.rows[to as usize]).for_each(|(row, bits)| *row |= bits);
                if let Some(column) = past.column(view.base(to)) {
                    row[column / 64] |= 1 << (column % 64);
                    if !view.came_by_rw(to) {
                        row[WORDS + column / 64] |= 1 << (column % 64);
                    }
                }
            }
            past.rows[*node as usize] = row;
        }
        past
    }

    fn column(&self, txn: u32) -> Option<usize> {
        self.block.binary_search(&txn).ok()
    }

    /// Whether the transaction comes before that of the column: then its write does, too.
    fn has(&self, txn: u32, column: usize) -> bool {
        let row = &self.rows[self.view.node_of(txn, false) as usize];
        row[column / 64] >> (column % 64) & 1 == 1
    }

    /// Whether a reader in the column must see the transaction's write: at snapshot isolation a path that begins or ends with rw does not imply it, since
    /// the edge that would close the cycle is rw, too.
    fn is_seen(&self, txn: u32, column: usize) -> bool {
        let row = &self.rows[self.view.node_of(txn, true) as usize];
        row[WORDS + column / 64] >> (column % 64) & 1 == 1
    }
}

/// All keys of a history of registers.
fn registers(versions: &Versions<'_>) -> Orders {
    let history = versions.history;
    let ops = history.ops();
    let places = Keys::of(history);
    let mut keys: Vec<KeyOrder> = (0..places.len() as u32)
        .map(|before| KeyOrder { before, groups: Vec::new(), touches: Vec::new(), reads: Vec::new() })
        .collect();
    // The group of each slot of a write; the slots of the groups of a key are known before the reads are processed.
    let mut group_of: Vec<u32> = vec![NONE; versions.writers.len()];
    for (at, op) in ops.iter().enumerate().filter(|(_, op)| op.kind.is_write()) {
        let slot = versions.slots[at];
        if slot == NONE {
            continue;
        }
        let groups = &mut keys[places.place(op.key)].groups;
        match groups.last_mut() {
            Some(last) if last.txn == op.txn => last.last = slot,
            _ => groups.push(Group { txn: op.txn, first: slot, last: slot }),
        }
        group_of[slot as usize] = groups.len() as u32 - 1;
    }
    for txn in 0..versions.parts.len() as u32 {
        if versions.parts[txn as usize] == Part::Out {
            continue;
        }
        for at in history.range(txn) {
            let (op, slot) = (&ops[at], versions.slots[at]);
            if slot == NONE {
                continue;
            }
            let key = &mut keys[places.place(op.key)];
            if key.touches.last().is_none_or(|last| last.txn != txn) {
                key.touches.push(Touch { txn, read_first: NONE, read_last: NONE, group: NONE });
            }
            let Some(touch) = key.touches.last_mut() else { continue };
            if op.kind.is_write() {
                touch.group = group_of[slot as usize];
                continue;
            }
            // After its own write a transaction reads no write of others; if it does, that is a separate anomaly.
            if touch.group != NONE || versions.writers[slot as usize] == txn {
                continue;
            }
            let read =
                if versions.writers[slot as usize] == INITIAL { BEFORE } else { group_of[slot as usize] };
            if touch.read_first == NONE {
                touch.read_first = read;
            }
            touch.read_last = read;
            key.reads.push((txn, read));
        }
    }
    keys.retain(|key| !key.groups.is_empty());
    Orders { keys }
}

/// The appends that were never read, where several transactions made them.
fn tails(versions: &Versions<'_>) -> Orders {
    let mut keys = Vec::new();
    for (before, fan) in &versions.fans {
        let mut groups: Vec<Group> = Vec::new();
        for slot in fan {
            let txn = versions.writers[*slot as usize];
            match groups.iter_mut().rev().find(|group| group.txn == txn) {
                Some(group) => group.last = *slot,
                None => groups.push(Group { txn, first: *slot, last: *slot }),
            }
        }
        if groups.len() > 1 {
            keys.push(KeyOrder { before: *before, groups, touches: Vec::new(), reads: Vec::new() });
        }
    }
    // A map has no order; results must not depend on it.
    keys.sort_by_key(|key| key.before);
    for key in &keys {
        debug_assert!(key.groups.iter().all(|group| group.first <= group.last));
    }
    Orders { keys }
}

/// Whether a graph has a cycle among the edges of a level.
pub(super) fn view_of(graph: &Graph, shape: Shape, order: Order) -> View<'_> {
    View { graph, kinds: shape.kinds().with_order(order), is_doubled: shape == Shape::Snapshot, within: None }
}

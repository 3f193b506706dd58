//! Which version each operation read or wrote, and in which order the versions of a key were installed.
//!
//! Every version of every key gets a *slot*: a number, so that what follows is a walk over arrays. The first slot of a key is the state before its first
//! write; in the models whose order is total, the next version of a key is the next slot that has a writer. A slot without a writer is a hole: its writer
//! is unknown, or not in this history. Where the order is only partly known (registers, elements that were never read), [`Versions::fans`] holds the
//! known successors.
//!
//! Transactions of unknown outcome join as writers, and only if another transaction read what they wrote.

use std::collections::HashSet;

use super::anomaly::{Class, Finding};
use super::hash::Map;
use crate::history::{History, Kind, Model, Op, Outcome};

/// No slot, no writer.
pub(super) const NONE: u32 = u32::MAX;
/// The writer of the first slot of a key.
pub(super) const INITIAL: u32 = u32::MAX - 1;
/// Slots of a key are indexed by version if at most this many per operation are unused; otherwise its versions are sorted.
const SLOTS_PER_OP_MAX: usize = 2;
/// And a few are always allowed.
const SLOTS_FREE: usize = 1 << 16;
/// Readers of a version times its known successors, beyond which only some edges are drawn: the check stays sound, but is less complete.
const FAN_EDGES_MAX: usize = 1 << 22;

/// Versions of a register visited to find out whether one is older than another.
pub(super) const OLDER_STEPS_MAX: usize = 256;

/// Whether a transaction takes part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    /// It had no effect, or no transaction saw one.
    Out,
    /// Its outcome is unknown, but a write of it was read.
    Writer,
    /// It was acknowledged.
    Whole,
}

/// The versions of a history and their order.
#[derive(Debug)]
pub(super) struct Versions<'h> {
    pub(super) history: &'h History,
    pub(super) parts: Vec<Part>,
    /// For each operation: the slot read or written; [`NONE`]: unknown, or its transaction is left out.
    pub(super) slots: Vec<u32>,
    /// For each slot: the transaction that wrote it, [`INITIAL`], or [`NONE`].
    pub(super) writers: Vec<u32>,
    /// The number of ordered slots, key after key. Later ones have no known successor.
    pub(super) ordered: usize,
    /// Known successors that are not the next slot.
    pub(super) fans: Map<u32, Vec<u32>>,
    /// What is wrong already.
    pub(super) findings: Vec<Finding>,
    /// Reads whose writer is not in the history.
    pub(super) unknown_reads: u64,
    /// Edges that were not drawn because there are too many of them.
    pub(super) undrawn: u64,
    /// Keys with a value that two writes have set: it is unknown which one was read.
    pub(super) ambiguous_keys: u64,
}

/// Keys as places in arrays.
pub(super) enum Keys {
    Dense(usize),
    Mapped(Map<u32, u32>),
}

impl Keys {
    pub(super) fn of(history: &History) -> Keys {
        let max = history.ops().iter().map(|op| op.key).max().unwrap_or(0) as usize;
        if max <= history.ops().len() * 4 + 1024 {
            return Keys::Dense(max + 1);
        }
        let mut places = Map::default();
        for op in history.ops() {
            let next = places.len() as u32;
            places.entry(op.key).or_insert(next);
        }
        Keys::Mapped(places)
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Keys::Dense(count) => *count,
            Keys::Mapped(places) => places.len(),
        }
    }

    pub(super) fn place(&self, key: u32) -> usize {
        match self {
            Keys::Dense(_) => key as usize,
            Keys::Mapped(places) => places.get(&key).copied().unwrap_or(0) as usize,
        }
    }
}

impl<'h> Versions<'h> {
    /// Finds the slots of all operations.
    pub(super) fn of(history: &'h History) -> Versions<'h> {
        let parts = history.txns().iter().map(|txn| match txn.outcome {
            Outcome::Ok | Outcome::OkWeak => Part::Whole,
            Outcome::Fail | Outcome::Info | Outcome::Partial => Part::Out,
        });
        let mut versions = Versions {
            history,
            parts: parts.collect(),
            slots: vec![NONE; history.ops().len()],
            writers: Vec::new(),
            ordered: 0,
            fans: Map::default(),
            findings: Vec::new(),
            unknown_reads: 0,
            undrawn: 0,
            ambiguous_keys: 0,
        };
        let keys = Keys::of(history);
        match history.model() {
            Model::VersionedRegister => versions.counted(&keys),
            Model::Append => versions.appended(&keys),
            Model::Register => versions.registers(&keys),
        }
        versions
    }

    /// The next version of the same key that is known to have been installed; [`NONE`]: none, or see [`Versions::fans`].
    pub(super) fn next(&self, slot: u32) -> u32 {
        let ordered = &self.writers[..self.ordered];
        let mut at = slot as usize + 1;
        loop {
            match ordered.get(at) {
                Some(&NONE) => at += 1,
                Some(&INITIAL) | None => return NONE,
                Some(_) => return at as u32,
            }
        }
    }

    /// Whether one version of a key is known to be older than another one of it.
    pub(super) fn is_older(&self, one: u32, other: u32) -> bool {
        if self.history.model() != Model::Register {
            return one < other;
        }
        if self.writers[one as usize] == INITIAL {
            return one != other;
        }
        let mut seen = vec![one];
        let mut at = 0;
        while let Some(slot) = seen.get(at).copied().filter(|_| at < OLDER_STEPS_MAX) {
            at += 1;
            for next in self.fans.get(&slot).into_iter().flatten() {
                if *next == other {
                    return true;
                }
                if !seen.contains(next) {
                    seen.push(*next);
                }
            }
        }
        false
    }

    /// Calls `f` with the writers of the versions that are known to come directly after this one.
    pub(super) fn successors(&self, slot: u32, mut f: impl FnMut(u32)) {
        if let Some(fan) = (!self.fans.is_empty()).then(|| self.fans.get(&slot)).flatten() {
            fan.iter().for_each(|slot| f(self.writers[*slot as usize]));
            return;
        }
        let next = self.next(slot);
        if next != NONE {
            f(self.writers[next as usize]);
        }
    }

    /// The same without the transactions of unknown outcome, for a level at which they may have been rolled back although they were read.
    pub(super) fn without_joined(&self) -> Versions<'h> {
        let is_joined = |txn: u32| txn < INITIAL && self.parts[txn as usize] == Part::Writer;
        let ops = self.history.ops();
        let slots = self.slots.iter().zip(ops);
        let writers = self.writers.iter();
        Versions {
            history: self.history,
            parts: self
                .parts
                .iter()
                .map(|part| if *part == Part::Writer { Part::Out } else { *part })
                .collect(),
            slots: slots.map(|(slot, op)| if is_joined(op.txn) { NONE } else { *slot }).collect(),
            writers: writers.map(|txn| if is_joined(*txn) { NONE } else { *txn }).collect(),
            ordered: self.ordered,
            fans: self
                .fans
                .iter()
                .map(|(slot, fan)| {
                    let is_left = |slot: &&u32| !is_joined(self.writers[**slot as usize]);
                    (*slot, fan.iter().filter(is_left).copied().collect())
                })
                .collect(),
            findings: Vec::new(),
            unknown_reads: 0,
            undrawn: 0,
            ambiguous_keys: 0,
        }
    }

    pub(super) fn is_whole(&self, op: &Op) -> bool {
        self.parts[op.txn as usize] == Part::Whole
    }

    pub(super) fn find(&mut self, class: Class, ops: &[usize]) {
        self.findings.push(Finding::of(class, ops.iter().map(|op| *op as u32).collect()));
    }

    /// Versioned registers: the version is the slot.
    fn counted(&mut self, keys: &Keys) {
        let ops = self.history.ops();
        let mut highest = vec![0u32; keys.len()];
        for op in ops {
            let place = keys.place(op.key);
            highest[place] = highest[place].max(op.ver);
        }
        // A version that no counter can have reached would need unlimited memory.
        let limit = (ops.len() * SLOTS_PER_OP_MAX + SLOTS_FREE) as u64;
        let mut sparse: Map<usize, Vec<u32>> = Map::default();
        if highest.iter().map(|ver| u64::from(*ver) + 1).sum::<u64>() > limit {
            for op in ops {
                let place = keys.place(op.key);
                if highest[place] as usize > SLOTS_FREE {
                    sparse.entry(place).or_insert_with(|| vec![0]).push(op.ver);
                }
            }
            for (place, list) in &mut sparse {
                list.sort_unstable();
                list.dedup();
                highest[*place] = list.len() as u32 - 1;
            }
        }
        let base = self.make_slots(highest.iter().map(|ver| *ver as usize + 1));
        let slot_of = |op: &Op| {
            let place = keys.place(op.key);
            let ver = match sparse.get(&place) {
                Some(list) => list.binary_search(&op.ver).unwrap_or(0) as u32,
                None => op.ver,
            };
            base[place] + ver
        };
        let mut taken = Vec::new();
        for (at, op) in ops.iter().enumerate() {
            if op.kind.is_write() && self.is_whole(op) {
                self.install(at, slot_of(op), &mut taken);
            }
        }
        let mut odd = Vec::new();
        for (at, op) in ops.iter().enumerate() {
            if op.kind.is_write() || !self.is_whole(op) {
                continue;
            }
            let slot = slot_of(op);
            let writer = self.writers[slot as usize];
            if writer == INITIAL || (writer != NONE && ops[writer as usize].tok == op.tok) {
                self.slots[at] = slot;
            } else {
                odd.push(at);
            }
        }
        if !odd.is_empty() {
            self.resolve_odd(&odd, &slot_of, &mut taken);
        }
        for (first, second) in taken {
            // A client that computes the version loses an update as any application does; a server that counts must not hand one out twice.
            let is_counted = [first, second].iter().all(|at| ops[*at].kind != Kind::Write);
            self.find(if is_counted { Class::DuplicateVersion } else { Class::LostUpdate }, &[first, second]);
        }
        self.dirty_updates(&slot_of);
        self.operations_to_transactions();
    }

    /// Slots for keys with these numbers of versions, the initial one included; returns the start of each key.
    pub(super) fn make_slots(&mut self, counts: impl Iterator<Item = usize>) -> Vec<u32> {
        let mut base = Vec::new();
        let mut end = 0;
        for count in counts {
            base.push(end as u32);
            end += count;
        }
        self.writers = vec![NONE; end];
        self.ordered = end;
        for first in &base {
            self.writers[*first as usize] = INITIAL;
        }
        base
    }

    /// Puts the operation into its slot. While slots are being filled, they hold operations, not transactions.
    fn install(&mut self, at: usize, slot: u32, taken: &mut Vec<(usize, usize)>) {
        self.slots[at] = slot;
        let writer = &mut self.writers[slot as usize];
        match *writer {
            NONE => *writer = at as u32,
            INITIAL => {
                self.slots[at] = NONE;
                self.find(Class::Garbage, &[at]);
            }
            other => taken.push((other as usize, at)),
        }
    }

    fn operations_to_transactions(&mut self) {
        let ops = self.history.ops();
        for writer in self.writers.iter_mut().filter(|writer| **writer < INITIAL) {
            *writer = ops[*writer as usize].txn;
        }
    }

    /// Reads whose writer is not in the slot: of a failed transaction, of one of unknown outcome (which joins because of this), of the second of two
    /// writers of one version, or of none.
    fn resolve_odd(&mut self, odd: &[usize], slot_of: &impl Fn(&Op) -> u32, taken: &mut Vec<(usize, usize)>) {
        let ops = self.history.ops();
        let undecided = ops.iter().enumerate().filter(|(_, op)| op.kind.is_write() && !self.is_whole(op));
        let undecided: Map<(u32, u64), usize> = undecided.map(|(at, op)| ((op.key, op.tok), at)).collect();
        let mut read_at: Map<(u32, u64), u32> = Map::default();
        let mut joined = Vec::new();
        for at in odd {
            let token = (ops[*at].key, ops[*at].tok);
            let Some(write) = undecided.get(&token) else { continue };
            read_at.insert(token, slot_of(&ops[*at]));
            let txn = ops[*write].txn;
            if self.history.txns()[txn as usize].outcome == Outcome::Fail {
                self.find(Class::AbortedRead, &[*write, *at]);
            } else if self.parts[txn as usize] == Part::Out {
                self.parts[txn as usize] = Part::Writer;
                joined.push(txn);
            }
        }
        for at in joined.into_iter().flat_map(|txn| self.history.range(txn)) {
            let op = &ops[at];
            // A client that lost its connection may not know the version; a reader of the token does.
            let slot = match op.ver {
                0 => read_at.get(&(op.key, op.tok)).copied(),
                _ => Some(slot_of(op)),
            };
            if let (true, Some(slot)) = (op.kind.is_write(), slot) {
                self.install(at, slot, taken);
            }
        }
        let doubled: HashSet<u64> = taken.iter().map(|(_, second)| ops[*second].tok).collect();
        for at in odd {
            let op = &ops[*at];
            let slot = slot_of(op);
            let writer = self.writers[slot as usize];
            let is_found = writer < INITIAL && ops[writer as usize].tok == op.tok;
            if is_found {
                self.slots[*at] = slot;
            } else if doubled.contains(&op.tok) {
                // The order contains only the first of two writers of one version.
            } else if !undecided.contains_key(&(op.key, op.tok)) {
                self.unknown(*at);
                // The writer is unknown, but the position in the order is known.
                self.slots[*at] = if self.history.is_cut { slot } else { NONE };
            }
        }
    }

    pub(super) fn unknown(&mut self, at: usize) {
        // If the end of a history is missing, the writer may be missing, too.
        if self.history.is_cut {
            self.unknown_reads += 1;
        } else {
            self.find(Class::Garbage, &[at]);
        }
    }

    /// Versions that a failed transaction counted and that others built on.
    fn dirty_updates(&mut self, slot_of: &impl Fn(&Op) -> u32) {
        let is_hole = |pair: &[u32]| pair[0] == NONE && pair[1] < INITIAL;
        // If the end of a history is missing, holes are expected.
        if self.history.is_cut || !self.writers.windows(2).any(is_hole) {
            return;
        }
        let ops = self.history.ops();
        let mut failed: Map<u32, usize> = Map::default();
        for (at, op) in ops.iter().enumerate() {
            let outcome = self.history.txns()[op.txn as usize].outcome;
            if op.kind.is_write() && outcome == Outcome::Fail && op.ver > 0 {
                let slot = slot_of(op);
                let is_open = self.writers[slot as usize] == NONE;
                if is_open && self.writers.get(slot as usize + 1).is_some_and(|next| *next < INITIAL) {
                    failed.insert(slot, at);
                }
            }
        }
        // A transaction of unknown outcome may have counted the same version, and then nothing is wrong.
        for (at, op) in ops.iter().enumerate() {
            let outcome = self.history.txns()[op.txn as usize].outcome;
            if op.kind.is_write() && matches!(outcome, Outcome::Info | Outcome::Partial) && op.ver > 0 {
                failed.remove(&slot_of(&ops[at]));
            }
        }
        let mut failed: Vec<_> = failed.into_iter().collect();
        failed.sort_unstable();
        for (slot, at) in failed {
            let next = self.writers[slot as usize + 1] as usize;
            self.find(Class::DirtyUpdate, &[at, next]);
        }
    }

    /// Keeps the number of edges linear, also for histories made to break this.
    pub(super) fn limit_fans(&mut self) {
        let mut readers: Map<u32, usize> = Map::default();
        for (at, op) in self.history.ops().iter().enumerate() {
            let slot = self.slots[at];
            if !op.kind.is_write() && self.fans.contains_key(&slot) {
                *readers.entry(slot).or_default() += 1;
            }
        }
        for (slot, fan) in &mut self.fans {
            let count = readers.get(slot).copied().unwrap_or(0).max(1);
            let limit = (FAN_EDGES_MAX / count).max(1);
            if fan.len() > limit {
                self.undrawn += ((fan.len() - limit) * count) as u64;
                fan.truncate(limit);
            }
        }
    }
}

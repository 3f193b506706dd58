//! Versions of lists: the longest read of a key shows in which order its elements were appended.
//!
//! Key by key, with one reused table: a table of all elements of a history would be the largest object in memory, and most lookups would miss the
//! caches.

use std::collections::HashSet;

use super::anomaly::Class;
use super::versions::{Keys, NONE, Part, Versions};
use crate::history::{History, Outcome};

/// The appends of each key, in the order of the history.
struct Appends {
    /// Places of operations, key after key.
    ops: Vec<u32>,
    /// The start positions of each key, and the end of the last one.
    first: Vec<u32>,
}

impl Appends {
    fn of(history: &History, keys: &Keys) -> Appends {
        let appends = || history.ops().iter().enumerate().filter(|(_, op)| op.kind.is_write());
        let mut first = vec![0u32; keys.len() + 1];
        for (_, op) in appends() {
            first[keys.place(op.key)] += 1;
        }
        // Counts become end positions; filling from the back turns them into start positions.
        let mut sum = 0;
        for count in &mut first {
            sum += *count;
            *count = sum;
        }
        let mut ops = vec![0u32; sum as usize];
        for (at, op) in appends().rev() {
            let next = &mut first[keys.place(op.key)];
            *next -= 1;
            ops[*next as usize] = at as u32;
        }
        Appends { ops, first }
    }

    fn of_key(&self, place: usize) -> &[u32] {
        &self.ops[self.first[place] as usize..self.first[place + 1] as usize]
    }
}

/// The appends of one key by element, those of one element in the order of the history.
#[derive(Default)]
struct Table(Vec<(u64, u32)>);

impl Table {
    fn fill(&mut self, history: &History, appends: &[u32]) {
        self.0.clear();
        self.0.extend(appends.iter().map(|at| (history.ops()[*at as usize].tok, *at)));
        self.0.sort_unstable();
    }

    /// The appends of this element: one, unless the workload has used it twice.
    fn of(&self, element: u64) -> &[(u64, u32)] {
        let from = self.0.partition_point(|(other, _)| *other < element);
        let count = self.0[from..].iter().take_while(|(other, _)| *other == element).count();
        &self.0[from..from + count]
    }
}

impl Versions<'_> {
    /// Lists: the place in the longest list is the slot.
    pub(super) fn appended(&mut self, keys: &Keys) {
        let history = self.history;
        let ops = history.ops();
        let mut longest = vec![NONE; keys.len()];
        for (at, op) in ops.iter().enumerate().filter(|(_, op)| !op.kind.is_write()) {
            let place = keys.place(op.key);
            let is_longer = longest[place] == NONE || ops[longest[place] as usize].ver < op.ver;
            if self.is_whole(op) && is_longer {
                longest[place] = at as u32;
            }
        }
        let list_of = |place: usize| match longest[place] {
            NONE => &[][..],
            at => history.list(&ops[at as usize]),
        };
        // A read may show that a transaction of unknown outcome has happened, so outcomes are decided before slots are assigned.
        let appends = Appends::of(history, keys);
        let mut table = Table::default();
        let mut doubled: HashSet<u32> = HashSet::new();
        for (place, reader) in longest.iter().enumerate() {
            table.fill(history, appends.of_key(place));
            let before = doubled.len();
            for pair in table.0.windows(2).filter(|pair| pair[0].0 == pair[1].0) {
                // The two cannot be distinguished; that is a mistake of the workload, not of the database.
                self.find(Class::AmbiguousWrite, &[pair[0].1 as usize, pair[1].1 as usize]);
                doubled.extend([pair[0].1, pair[1].1]);
            }
            self.ambiguous_keys += u64::from(doubled.len() > before);
            if *reader != NONE {
                self.put_in_order(&table, *reader as usize, list_of(place));
            }
        }
        drop((appends, table));
        let base = self.make_slots((0..keys.len()).map(|place| list_of(place).len() + 1));
        for (at, op) in ops.iter().enumerate() {
            let place = keys.place(op.key);
            if op.kind.is_write() {
                match (self.parts[op.txn as usize], self.slots[at]) {
                    (Part::Out, _) => self.slots[at] = NONE,
                    // The read value has no known position.
                    _ if doubled.contains(&(at as u32)) => self.slots[at] = NONE,
                    (_, NONE) => {
                        // No transaction has read it: it comes after the last one that was read; the order among several such is unknown.
                        let last = base[place] + list_of(place).len() as u32;
                        self.slots[at] = self.writers.len() as u32;
                        self.fans.entry(last).or_default().push(self.slots[at]);
                        self.writers.push(op.txn);
                    }
                    (_, position) => {
                        self.slots[at] = base[place] + position;
                        self.writers[self.slots[at] as usize] = op.txn;
                    }
                }
            } else if self.is_whole(op) {
                if list_of(place).starts_with(history.list(op)) {
                    self.slots[at] = base[place] + op.ver;
                } else {
                    self.find(Class::IncompatibleOrder, &[longest[place] as usize, at]);
                }
            }
        }
        self.limit_fans();
    }

    /// Goes through the longest list of a key. Until then, the slots of its appends hold their positions in it, from 1 on.
    fn put_in_order(&mut self, table: &Table, reader: usize, list: &[u64]) {
        let history = self.history;
        let ops = history.ops();
        let mut unwritten = HashSet::new();
        let mut failed: Option<usize> = None;
        for (position, element) in list.iter().enumerate() {
            let writes = table.of(*element);
            let Some((_, write)) = writes.last() else {
                match unwritten.insert(*element) {
                    true => self.unknown(reader),
                    false => self.find(Class::DuplicateElement, &[reader]),
                }
                continue;
            };
            if writes.len() > 1 {
                continue;
            }
            let write = *write as usize;
            if self.slots[write] != NONE {
                self.find(Class::DuplicateElement, &[reader]);
                continue;
            }
            self.slots[write] = position as u32 + 1;
            let txn = ops[write].txn as usize;
            match (self.parts[txn], history.txns()[txn].outcome) {
                (_, Outcome::Fail) => {
                    self.find(Class::AbortedRead, &[write, reader]);
                    failed = Some(write);
                }
                (Part::Out, _) => self.parts[txn] = Part::Writer,
                (Part::Whole | Part::Writer, _) => {
                    if let Some(failed) = failed.take().filter(|failed| ops[*failed].txn != ops[write].txn) {
                        self.find(Class::DirtyUpdate, &[failed, write]);
                    }
                }
            }
        }
    }
}

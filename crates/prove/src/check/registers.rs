//! Versions of registers: values are versions. It is known which write a read saw, but little about the order of the writes (module `orders`).

use std::collections::HashSet;

use super::anomaly::Class;
use super::hash::Map;
use super::versions::{INITIAL, Keys, NONE, Part, Versions};
use crate::history::{NIL, Outcome};

impl Versions<'_> {
    /// Registers: the first slots are the initial states of the keys; then each write has one.
    pub(super) fn registers(&mut self, keys: &Keys) {
        let history = self.history;
        let ops = history.ops();
        let mut writes: Map<(u32, u64), u32> = Map::default();
        // Two writes have set this value: it is unknown which one a read saw, so such reads prove nothing.
        let mut doubled: HashSet<(u32, u64)> = HashSet::new();
        for (at, op) in ops.iter().enumerate().filter(|(_, op)| op.kind.is_write()) {
            let value = (op.key, op.tok);
            if let Some(first) = writes.insert(value, at as u32) {
                self.find(Class::AmbiguousWrite, &[first as usize, at]);
                doubled.insert(value);
            } else if op.tok == NIL {
                // The initial state looks the same.
                doubled.insert(value);
            }
        }
        for (at, op) in ops.iter().enumerate() {
            if op.kind.is_write() || op.ver == 0 || !self.is_whole(op) {
                continue;
            }
            let value = (op.key, op.tok);
            match writes.get(&value) {
                None => self.unknown(at),
                Some(_) if doubled.contains(&value) => {}
                Some(write) => {
                    let txn = ops[*write as usize].txn as usize;
                    match history.txns()[txn].outcome {
                        Outcome::Fail => self.find(Class::AbortedRead, &[*write as usize, at]),
                        _ if self.parts[txn] == Part::Out => self.parts[txn] = Part::Writer,
                        _ => {}
                    }
                }
            }
        }
        self.writers = vec![INITIAL; keys.len()];
        for (at, op) in ops.iter().enumerate() {
            if op.kind.is_write() && self.parts[op.txn as usize] != Part::Out {
                self.slots[at] = self.writers.len() as u32;
                self.writers.push(op.txn);
            }
        }
        for (at, op) in ops.iter().enumerate() {
            if op.kind.is_write() || !self.is_whole(op) {
                continue;
            }
            let value = (op.key, if op.ver == 0 { NIL } else { op.tok });
            self.slots[at] = match writes.get(&value) {
                Some(_) if doubled.contains(&value) => NONE,
                None if op.ver == 0 => keys.place(op.key) as u32,
                None => NONE,
                Some(write) => self.slots[*write as usize],
            };
        }
        self.ambiguous_keys = doubled.iter().map(|(key, _)| key).collect::<HashSet<_>>().len() as u64;
        // Until an order is found, only the writes within a transaction are ordered.
        for number in 0..self.parts.len() as u32 {
            let mut last: Map<u32, u32> = Map::default();
            for at in history.range(number).filter(|at| ops[*at].kind.is_write()) {
                if self.slots[at] != NONE
                    && let Some(before) = last.insert(ops[at].key, self.slots[at])
                {
                    self.fans.insert(before, vec![self.slots[at]]);
                }
            }
        }
    }
}

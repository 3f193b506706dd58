//! Anomalies that need no search for cycles: one pass over the transactions, and a closer check of those within cycles.

use super::anomaly::{Class, Finding};
use super::hash::Map;
use super::scc::Components;
use super::versions::{INITIAL, NONE, Part, Versions};
use crate::history::{Model, Op};

/// Transactions up to this length are searched, longer ones indexed.
const SHORT_OPS_MAX: usize = 32;
/// Pairs of a transaction's reads and of the writes behind them, looked at for fractures at most; the cycle is found in any case.
const FRACTURE_PAIRS_MAX: usize = 1 << 14;

/// Looks at every acknowledged transaction: does it see its own writes, and only final versions of others?
pub(super) fn walk(versions: &Versions<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, part) in versions.parts.iter().enumerate() {
        if *part != Part::Out {
            reordered(versions, number as u32, &mut findings);
        }
        if *part == Part::Whole {
            own(versions, number as u32, &mut findings);
            // Where the order of versions is unknown, two of them are not a cycle.
            if versions.history.model() == Model::Register {
                repeated(versions, &foreign_reads(versions, number as u32), &mut findings);
            }
        }
    }
    findings
}

/// The order of a transaction's own writes: each must come after its earlier ones.
fn reordered(versions: &Versions<'_>, txn: u32, findings: &mut Vec<Finding>) {
    let ops = versions.history.ops();
    let range = versions.history.range(txn);
    let is_long = range.len() > SHORT_OPS_MAX;
    let mut last: Map<u32, usize> = Map::default();
    // Registers have no order to compare with.
    let has_place = |at: usize| (versions.slots[at] as usize) < versions.ordered;
    for at in range.clone().filter(|at| ops[*at].kind.is_write() && has_place(*at)) {
        let before = match is_long {
            true => last.insert(ops[at].key, at),
            false => (range.start..at).rev().find(|other| {
                ops[*other].kind.is_write() && ops[*other].key == ops[at].key && has_place(*other)
            }),
        };
        if let Some(before) = before.filter(|before| versions.slots[*before] > versions.slots[at]) {
            findings.push(Finding::of(Class::ReorderedWrites, vec![before as u32, at as u32]));
        }
    }
}

fn own(versions: &Versions<'_>, txn: u32, findings: &mut Vec<Finding>) {
    let range = versions.history.range(txn);
    let ops = versions.history.ops();
    let mut index: Map<u32, usize> = Map::default();
    let is_long = range.len() > SHORT_OPS_MAX;
    for at in range.clone() {
        let (op, slot) = (&ops[at], versions.slots[at]);
        if op.kind.is_write() {
            if is_long {
                index.insert(op.key, at);
            }
            continue;
        }
        if slot == NONE {
            continue;
        }
        let written = match is_long {
            true => index.get(&op.key).copied(),
            false => {
                (range.start..at).rev().find(|other| ops[*other].kind.is_write() && ops[*other].key == op.key)
            }
        };
        let writer = versions.writers[slot as usize];
        match written {
            Some(write) if versions.slots[write] != slot && versions.slots[write] != NONE => {
                findings.push(Finding::of(Class::Internal, vec![write as u32, at as u32]));
            }
            Some(_) => {}
            None if writer == txn => {
                let write =
                    range.clone().find(|other| ops[*other].kind.is_write() && versions.slots[*other] == slot);
                findings.push(Finding::of(
                    Class::FutureRead,
                    [Some(at), write].into_iter().flatten().map(|at| at as u32).collect(),
                ));
            }
            None if writer < INITIAL => {
                let mut is_intermediate = false;
                versions.successors(slot, |next| is_intermediate |= next == writer);
                if is_intermediate {
                    let write = versions.history.range(writer).find(|other| versions.slots[*other] == slot);
                    findings.push(Finding::of(
                        Class::IntermediateRead,
                        write.into_iter().chain([at]).map(|at| at as u32).collect(),
                    ));
                }
            }
            None => {}
        }
    }
}

/// Checks the transactions within cycles: each of these anomalies is a cycle, so no other transaction can have them.
pub(super) fn closer(versions: &Versions<'_>, cycles: &Components) -> Vec<Finding> {
    let mut findings = Vec::new();
    // The first transaction found that read a version before it wrote the key.
    let mut read_before_write: Map<u32, u32> = Map::default();
    let txns = versions.parts.len() as u32;
    for txn in cycles.members().take_while(|node| *node < txns) {
        if versions.parts[txn as usize] != Part::Whole {
            continue;
        }
        let reads = foreign_reads(versions, txn);
        lost(versions, txn, &reads, &mut read_before_write, &mut findings);
        if versions.history.model() != Model::Register {
            repeated(versions, &reads, &mut findings);
        }
        fractured(versions, &reads, &mut findings);
    }
    findings
}

/// The operations that read what others wrote.
pub(super) fn foreign_reads(versions: &Versions<'_>, txn: u32) -> Vec<usize> {
    let ops = versions.history.ops();
    let mut written: Map<u32, ()> = Map::default();
    let mut reads = Vec::new();
    for at in versions.history.range(txn) {
        if ops[at].kind.is_write() {
            written.insert(ops[at].key, ());
        } else if versions.slots[at] != NONE && !written.contains_key(&ops[at].key) {
            reads.push(at);
        }
    }
    reads
}

fn repeated(versions: &Versions<'_>, reads: &[usize], findings: &mut Vec<Finding>) {
    let ops = versions.history.ops();
    let mut seen: Map<u32, usize> = Map::default();
    for at in reads {
        let first = *seen.entry(ops[*at].key).or_insert(*at);
        if versions.slots[first] != versions.slots[*at] {
            findings.push(Finding::of(Class::NonRepeatableRead, vec![first as u32, *at as u32]));
        }
    }
}

fn lost(
    versions: &Versions<'_>,
    txn: u32,
    reads: &[usize],
    read_before_write: &mut Map<u32, u32>,
    findings: &mut Vec<Finding>,
) {
    let ops = versions.history.ops();
    let range = versions.history.range(txn);
    let mut keys: Map<u32, ()> = Map::default();
    for at in reads {
        let key = ops[*at].key;
        let writes = |other: &Op| other.kind.is_write() && other.key == key;
        let is_first = keys.insert(key, ()).is_none();
        if is_first && ops[*at..range.end].iter().any(writes) {
            let first = *read_before_write.entry(versions.slots[*at]).or_insert(*at as u32);
            if first != *at as u32 {
                findings.push(Finding::of(Class::LostUpdate, vec![first, *at as u32]));
            }
        }
    }
}

/// Views that went back: a later statement missed what an earlier one had seen.
pub(super) fn views(versions: &Versions<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, part) in versions.parts.iter().enumerate() {
        if *part == Part::Whole {
            let reads = foreign_reads(versions, number as u32);
            fractured(versions, &reads, &mut findings);
        }
    }
    findings.retain(|finding| finding.class == Class::NonMonotonicView);
    findings
}

fn fractured(versions: &Versions<'_>, reads: &[usize], findings: &mut Vec<Finding>) {
    let ops = versions.history.ops();
    let mut left = FRACTURE_PAIRS_MAX;
    // The worst anomaly of a transaction is enough.
    let mut worst: Option<Finding> = None;
    for new in reads {
        let writer = versions.writers[versions.slots[*new] as usize];
        if writer >= INITIAL || writer == ops[*new].txn {
            continue;
        }
        for write in versions.history.range(writer) {
            if !ops[write].kind.is_write() || versions.slots[write] == NONE {
                continue;
            }
            let Some(rest) = left.checked_sub(reads.len()) else { break };
            left = rest;
            for old in reads {
                if ops[*old].key != ops[write].key
                    || !versions.is_older(versions.slots[*old], versions.slots[write])
                {
                    continue;
                }
                let is_one_statement = ops[*old].statement == ops[*new].statement;
                let class = match () {
                    // For one key, no view may go back; `repeated` covers views that go forward.
                    () if ops[*old].key == ops[*new].key && (is_one_statement || old < new) => continue,
                    () if is_one_statement => Class::FracturedStatement,
                    () if old > new => Class::NonMonotonicView,
                    () => Class::FracturedRead,
                };
                if worst.as_ref().is_none_or(|worst| class < worst.class) {
                    worst = Some(Finding::of(class, vec![*new as u32, write as u32, *old as u32]));
                }
            }
        }
    }
    findings.extend(worst);
}

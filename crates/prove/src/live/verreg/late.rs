//! Reads that miss writes acknowledged before they were sent.
//!
//! At READ COMMITTED every statement has its own snapshot, so the real-time order of transactions, which the checker knows, refutes nothing there. Sessions
//! rely on more: a statement sees every transaction that had ended before it was sent.

use std::collections::HashMap;

use crate::history::{History, Model, Op, Txn};

/// What was found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Late {
    /// Readings by acknowledged transactions.
    pub reads: u64,
    /// Those that missed something.
    pub late: u64,
    /// The first one, in words.
    pub witness: Vec<String>,
}

/// The versions (or elements) of a key from acknowledged transactions, with the end of each writer. Sorted by version.
type Ends = HashMap<u32, Vec<(u64, u64)>>;

/// Checks every read. `is_by_statement`: each statement has its own snapshot, else each transaction has one, from its begin.
pub fn find(history: &History, is_by_statement: bool) -> Late {
    let ends = ends(history);
    let mut found = Late::default();
    for (txn, number) in std::iter::zip(history.txns(), 0u32..) {
        if !txn.outcome.is_acknowledged() {
            continue;
        }
        for op in history.ops_of(number).iter().filter(|op| !op.kind.is_write()) {
            let sent_ns = if is_by_statement { op.start_ns } else { txn.begin_ns };
            if sent_ns == 0 {
                continue;
            }
            found.reads += 1;
            let missed = ends.get(&op.key).and_then(|ends| missed(history, op, sent_ns, ends));
            if let Some((version, end_ns)) = missed {
                found.late += 1;
                if found.witness.is_empty() {
                    found.witness = witness(history, (op, sent_ns), (version, end_ns), txn);
                }
            }
        }
    }
    found
}

fn ends(history: &History) -> Ends {
    let mut ends = Ends::new();
    for (txn, number) in std::iter::zip(history.txns(), 0u32..) {
        if !txn.outcome.is_acknowledged() || txn.end_ns == 0 {
            continue;
        }
        for op in history.ops_of(number).iter().filter(|op| op.kind.is_write() && op.ver > 0) {
            let version = if history.model() == Model::Append { op.tok } else { u64::from(op.ver) };
            ends.entry(op.key).or_default().push((version, txn.end_ns));
        }
    }
    if history.model() != Model::Append {
        for versions in ends.values_mut() {
            versions.sort_unstable();
            // For each version: the earliest end of its writer and all later ones.
            let mut earliest = u64::MAX;
            for (_, end_ns) in versions.iter_mut().rev() {
                earliest = earliest.min(*end_ns);
                *end_ns = earliest;
            }
        }
    }
    ends
}

/// A version that had been acknowledged when a read was sent, and that the read missed.
fn missed(history: &History, op: &Op, sent_ns: u64, ends: &[(u64, u64)]) -> Option<(u64, u64)> {
    match history.model() {
        Model::Append => {
            let list = history.list(op);
            ends.iter().find(|(element, end_ns)| *end_ns < sent_ns && !list.contains(element)).copied()
        }
        Model::VersionedRegister => {
            let newer = ends.partition_point(|(version, _)| *version <= u64::from(op.ver));
            ends.get(newer).filter(|(_, end_ns)| *end_ns < sent_ns).copied()
        }
        // The order of its versions is not known.
        Model::Register => None,
    }
}

fn witness(
    history: &History,
    (op, sent_ns): (&Op, u64),
    (version, end_ns): (u64, u64),
    reader: &Txn,
) -> Vec<String> {
    let node = history.names.node(op.node).unwrap_or("the server");
    let what = if history.model() == Model::Append { "element" } else { "version" };
    let seen = match history.model() {
        Model::Append => format!("a list of {} without it", op.ver),
        _ => format!("version {}", op.ver),
    };
    vec![format!(
        "late: session {} read key {} on {node} {:.3} ms after {what} {version} or a later one had been acknowledged, and saw {seen}",
        reader.session,
        history.names.key(op.key),
        sent_ns.saturating_sub(end_ns) as f64 / 1e6,
    )]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Kind, Outcome};

    fn read(history: &mut History, seen: &[u64], start_ns: u64) -> Op {
        let op = match history.model() {
            Model::Append => history.read_list(0, seen),
            _ => Op::new(Kind::Read, 0, seen.len() as u32, seen.last().copied().unwrap_or(0)),
        };
        Op { start_ns, ..op }
    }

    #[test]
    fn only_what_had_been_acknowledged_can_be_missed() {
        for model in [Model::VersionedRegister, Model::Append] {
            let is_late = |outcome: Outcome, sent_ns: u64, seen: &[u64]| {
                let mut history = History::new(model);
                let write = |ver: u32, tok: u64| match model {
                    Model::Append => Op::new(Kind::Append, 0, 1, tok),
                    _ => Op::new(Kind::Update, 0, ver, tok),
                };
                history.push(Txn::ok(1).between(10, 20), &[write(1, 71)]);
                history.push(Txn::ok(2).between(30, 40).ending(outcome), &[write(2, 72)]);
                let op = read(&mut history, seen, sent_ns);
                history.push(Txn::ok(3).between(5, 90), &[op]);
                let found = find(&history, true);
                assert_eq!((found.reads, found.witness.len() as u64), (1, found.late), "{model:?}");
                // A snapshot from its begin, before all writes, misses nothing.
                assert_eq!(find(&history, false).late, 0);
                found.late > 0
            };
            assert!(is_late(Outcome::Ok, 50, &[71]) && is_late(Outcome::Ok, 50, &[]), "{model:?}");
            assert!(is_late(Outcome::Fail, 50, &[]), "{model:?}: the first was acknowledged");
            assert!(!is_late(Outcome::Ok, 50, &[71, 72]) && !is_late(Outcome::Ok, 35, &[71]), "{model:?}");
            assert!(!is_late(Outcome::Info, 50, &[71]) && !is_late(Outcome::Ok, 15, &[]), "{model:?}");
        }
    }
}

//! A brute-force oracle: a direct implementation of the definitions. It enumerates every simple cycle of a small history and names its class.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::simulate::{Draw, Plan, snapshot_isolation};
use proptest::prelude::*;

type Edge = (u32, u32, Reason);

/// Edges by definition, for versioned registers of transactions that were all acknowledged: every version has one writer, every read its version.
fn edges(history: &History, epsilon_ns: u64) -> BTreeSet<Edge> {
    let ops = history.ops();
    let writes: Vec<&Op> = ops.iter().filter(|op| op.kind.is_write()).collect();
    let next_after = |key: u32, ver: u32| {
        writes.iter().filter(|op| op.key == key && op.ver > ver).min_by_key(|op| op.ver).map(|op| op.txn)
    };
    let writer =
        |key: u32, ver: u32| writes.iter().find(|op| op.key == key && op.ver == ver).map(|op| op.txn);
    let mut edges = BTreeSet::new();
    for op in ops {
        let next = next_after(op.key, op.ver);
        let author = writer(op.key, op.ver);
        if op.kind.is_write() {
            edges.extend(next.map(|next| (op.txn, next, Reason::Overwrote)));
        } else if author != Some(op.txn) {
            edges.extend(author.map(|author| (author, op.txn, Reason::Read)));
            edges.extend(next.map(|next| (op.txn, next, Reason::ReadBefore)));
        }
    }
    let txns = history.txns();
    for (a, first) in txns.iter().enumerate() {
        for (b, second) in txns.iter().enumerate() {
            let edge = |reason| (a as u32, b as u32, reason);
            if first.session == second.session && a < b {
                edges.insert(edge(Reason::Session));
            }
            if first.end_ns > 0 && first.end_ns + epsilon_ns < second.begin_ns {
                edges.insert(edge(Reason::RealTime));
            }
        }
    }
    edges.retain(|(from, to, _)| from != to);
    edges
}

/// The classes of all simple cycles, with the order that each needs.
fn cycles(edges: &BTreeSet<Edge>, txns: u32) -> BTreeSet<(Class, Order)> {
    let mut found = BTreeSet::new();
    let mut from: BTreeMap<u32, Vec<(u32, Reason)>> = BTreeMap::new();
    for (a, b, reason) in edges {
        from.entry(*a).or_default().push((*b, *reason));
    }
    for start in 0..txns {
        let mut path: Vec<Step> = Vec::new();
        extend(&from, start, start, &mut path, &mut found);
    }
    found
}

fn extend(
    from: &BTreeMap<u32, Vec<(u32, Reason)>>,
    start: u32,
    at: u32,
    path: &mut Vec<Step>,
    found: &mut BTreeSet<(Class, Order)>,
) {
    for (to, reason) in from.get(&at).into_iter().flatten() {
        let step = Step { from: at, to: *to, reason: *reason };
        if *to == start {
            path.push(step);
            found.insert(name(path));
            path.pop();
        } else if *to > start && !path.iter().any(|step| step.from == *to) {
            path.push(step);
            extend(from, start, *to, path, found);
            path.pop();
        }
    }
}

/// The class of a cycle, by definition.
fn name(cycle: &[Step]) -> (Class, Order) {
    let count = |reason: Reason| cycle.iter().filter(|step| step.reason == reason).count();
    let rw: Vec<bool> = cycle.iter().map(|step| step.reason == Reason::ReadBefore).collect();
    let is_adjacent = (0..rw.len()).any(|at| rw[at] && rw[(at + 1) % rw.len()]);
    let class = match count(Reason::ReadBefore) {
        0 if count(Reason::Read) == 0 => Class::DirtyWrite,
        0 => Class::CircularFlow,
        1 => Class::ReadSkew,
        _ if !is_adjacent => Class::LongFork,
        _ => Class::WriteSkew,
    };
    let order = match (count(Reason::RealTime), count(Reason::Session)) {
        (0, 0) => Order::Data,
        (0, _) => Order::Session,
        _ => Order::RealTime,
    };
    (class, order)
}

/// What a level's cycles are.
fn refuted_by_cycles(found: &BTreeSet<(Class, Order)>) -> BTreeSet<Level> {
    let refutes = |(class, order): &(Class, Order)| {
        class.refutes().iter().map(|base| Level::new(*base, *order)).collect::<Vec<_>>()
    };
    let weakest: Vec<Level> = found.iter().flat_map(refutes).collect();
    Level::all().filter(|level| weakest.iter().any(|weaker| weaker.is_implied_by(*level))).collect()
}

/// A small history without any promise: versions are assigned at random, and every version below the last one of a key exists.
pub(super) fn adversarial(seed: u64, txns: u32, keys: u32, ops_max: u32) -> History {
    let mut draw = Draw::new(seed);
    let mut writers: Vec<Vec<u32>> = vec![Vec::new(); keys as usize];
    let mut plan: Vec<Vec<(u32, bool)>> = Vec::new();
    for txn in 0..txns {
        let count = 1 + draw.below(ops_max);
        let ops: Vec<(u32, bool)> = (0..count).map(|_| (draw.below(keys), draw.below(2) == 0)).collect();
        // One write of a key in a transaction: others are intermediate versions, which are judged without cycles.
        let written: BTreeSet<u32> =
            ops.iter().filter(|(_, is_write)| *is_write).map(|(key, _)| *key).collect();
        for key in written {
            let place = draw.below(writers[key as usize].len() as u32 + 1) as usize;
            // Mostly at the end: an entirely random history has every anomaly at once.
            let place = if draw.below(4) > 0 { writers[key as usize].len() } else { place };
            writers[key as usize].insert(place, txn);
        }
        plan.push(ops);
    }
    let mut history = History::new(Model::VersionedRegister);
    let mut clock = 0;
    let mut free_at = vec![0u64; 3];
    for (txn, ops) in plan.iter().enumerate() {
        let mut list: Vec<Op> = Vec::new();
        for (key, is_write) in ops {
            let versions = &writers[*key as usize];
            let own = versions.iter().position(|writer| *writer == txn as u32).map(|at| at as u32 + 1);
            let has_written = list.iter().any(|op| op.key == *key && op.kind.is_write());
            let op = match (is_write, own) {
                (true, Some(ver)) if !has_written => w(*key, ver),
                (true, Some(ver)) => r(*key, ver),
                (_, Some(ver)) if has_written => r(*key, ver),
                _ => {
                    let near = versions.len() as u32 + 1;
                    let ver = near.saturating_sub(1 + draw.below(3));
                    // Its own version is not there yet.
                    r(*key, if Some(ver) == own { ver.saturating_sub(1) } else { ver })
                }
            };
            list.push(Op { statement: list.len() as u16 + 1, ..op });
        }
        clock += u64::from(draw.below(8)) + 1;
        let end = clock + 1 + u64::from(draw.below(30));
        // A session runs one transaction at a time; if all are busy, a new one is added.
        let free: Vec<usize> = (0..free_at.len()).filter(|session| free_at[*session] < clock).collect();
        let session = match free.len() {
            0 => {
                free_at.push(0);
                free_at.len() - 1
            }
            count => free[draw.below(count as u32) as usize],
        };
        free_at[session] = end;
        history.push(Txn::ok(session as u32).between(clock, end), &list);
    }
    history
}

fn agree(history: &History, epsilon_ns: u64) -> Result<(), TestCaseError> {
    let options = Options { epsilon_ns, ..Options::default() };
    let report = check(history, &options);
    let txns = history.txns().len() as u32;
    let found = cycles(&edges(history, epsilon_ns), txns);
    let mut expected = refuted_by_cycles(&found);
    // Anomalies that are not cycles themselves: they refute weaker levels than their cycle does.
    for finding in report.witnesses.iter().map(|witness| &witness.finding) {
        if finding.cycle.is_empty() {
            prop_assert!(
                found.iter().any(|(class, _)| *class >= Class::DirtyWrite),
                "{finding:?} without a cycle"
            );
            let also = |level: &Level| finding.refutes().any(|weaker| weaker.is_implied_by(*level));
            expected.extend(Level::all().filter(also));
        } else {
            // A witness is a cycle of real edges, and of the class it claims.
            let edges = edges(history, epsilon_ns);
            for step in &finding.cycle {
                prop_assert!(edges.contains(&(step.from, step.to, step.reason)), "{step:?} is no edge");
            }
            prop_assert_eq!((finding.class, finding.order), name(&finding.cycle));
            prop_assert!(found.contains(&(finding.class, finding.order)));
        }
    }
    let got: BTreeSet<Level> = report.refuted.iter().copied().collect();
    prop_assert_eq!(&got, &expected, "{:#?}\n{:#?}\n{:#?}", found, report, history.ops());
    // Every class that needs no order is reported, or the worse one of the same transactions.
    for (class, order) in &found {
        let is_named = report.counts.contains_key(class.code());
        let is_worse_named = *class >= Class::LongFork && report.counts.contains_key(Class::ReadSkew.code());
        if *order == Order::Data {
            prop_assert!(is_named || is_worse_named, "{} is missing in {:?}", class.code(), report.counts);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn small_histories_of_chaos(seed in any::<u64>(), txns in 2..7u32, keys in 1..4u32, ops_max in 1..5u32, epsilon_ns in 0..5u64) {
        agree(&adversarial(seed, txns, keys, ops_max), epsilon_ns)?;
    }

    #[test]
    fn small_histories_of_snapshots(seed in any::<u64>(), txns in 2..8u32, keys in 1..4u32) {
        let plan = Plan { seed, txns, keys, sessions: 4, ops_max: 4, fail_percent: 0, versions_max: 4, ..Plan::default() };
        let history = snapshot_isolation(&plan);
        // The oracle knows acknowledged transactions only.
        let mut kept = History::new(Model::VersionedRegister);
        for (number, txn) in history.txns().iter().enumerate() {
            if txn.outcome == Outcome::Ok {
                kept.push(*txn, history.ops_of(number as u32));
            }
        }
        agree(&kept, 0)?;
    }
}

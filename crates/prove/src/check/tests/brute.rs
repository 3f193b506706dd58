//! Brute force over tiny histories whose versions have no order of their own: every outcome of unknown transactions, every serial order, every interleaving of
//! snapshots and commits, every order of versions. It does not use cycles: it simulates a database.
//!
//! A level that some execution fits must never be refuted; a level that none fits must be refuted, or the report must say that it does not know.

use std::collections::BTreeMap;

use super::*;
use crate::simulate::Draw;

/// Histories in the test suite; `PGFATHOM_BRUTE_SEEDS` requests more.
const SEEDS: u64 = 600;

/// Values of a key that a transaction can see: one for a register, all for a list.
type State = BTreeMap<u32, Vec<u64>>;

/// A history in the oracle's words.
struct Tiny<'h> {
    history: &'h History,
    /// The transactions of an execution: acknowledged ones, and those of unknown outcome that are assumed to be committed.
    txns: Vec<u32>,
}

impl Tiny<'_> {
    fn is_list(&self) -> bool {
        self.history.model() == Model::Append
    }

    fn is_ok(&self, txn: u32) -> bool {
        self.history.txns()[txn as usize].outcome == Outcome::Ok
    }

    fn writes(&self, txn: u32, key: u32) -> bool {
        self.history.ops_of(txn).iter().any(|op| op.kind.is_write() && op.key == key)
    }

    fn conflicts(&self, a: u32, b: u32) -> bool {
        self.history.ops_of(a).iter().any(|op| op.kind.is_write() && self.writes(b, op.key))
    }

    /// Whether `a` has to come before `b`.
    fn is_before(&self, a: u32, b: u32, order: Order) -> bool {
        let (first, second) = (&self.history.txns()[a as usize], &self.history.txns()[b as usize]);
        let session = self.is_ok(a) && first.session == second.session && a < b;
        let time = self.is_ok(a) && first.end_ns > 0 && first.end_ns < second.begin_ns;
        match order {
            Order::Data => false,
            Order::Session => session,
            Order::RealTime => session || time,
        }
    }

    /// What an acknowledged read saw.
    fn seen(&self, op: &Op) -> Vec<u64> {
        match self.is_list() {
            true => self.history.list(op).to_vec(),
            false if op.ver == 0 => Vec::new(),
            false => vec![op.tok],
        }
    }

    fn write(&self, op: &Op, state: &mut State) {
        let value = state.entry(op.key).or_default();
        if !self.is_list() {
            value.clear();
        }
        value.push(op.tok);
    }

    /// Runs a transaction on a state; false if it read something else.
    fn run(&self, txn: u32, state: &mut State) -> bool {
        for op in self.history.ops_of(txn) {
            if op.kind.is_write() {
                self.write(op, state);
            } else if self.is_ok(txn) && state.get(&op.key).cloned().unwrap_or_default() != self.seen(op) {
                return false;
            }
        }
        true
    }

    /// Whether there is a serial execution.
    fn is_serial(&self, order: Order, done: &mut Vec<u32>, state: &State) -> bool {
        if done.len() == self.txns.len() {
            return true;
        }
        self.txns.iter().any(|txn| {
            let is_next = !done.contains(txn)
                && self.txns.iter().all(|other| done.contains(other) || !self.is_before(*other, *txn, order));
            let mut after = state.clone();
            if !is_next || !self.run(*txn, &mut after) {
                return false;
            }
            done.push(*txn);
            let is_found = self.is_serial(order, done, &after);
            done.pop();
            is_found
        })
    }

    /// Whether there is an execution of snapshots and commits; `open` has those that took their snapshot and have not committed.
    fn is_snapshot(&self, order: Order, done: &mut Vec<u32>, open: &mut Vec<u32>, state: &State) -> bool {
        if done.len() == self.txns.len() {
            return true;
        }
        for txn in &self.txns {
            if done.contains(txn) {
                continue;
            }
            if let Some(place) = open.iter().position(|other| other == txn) {
                open.remove(place);
                done.push(*txn);
                let mut after = state.clone();
                for op in self.history.ops_of(*txn).iter().filter(|op| op.kind.is_write()) {
                    self.write(op, &mut after);
                }
                let is_found = self.is_snapshot(order, done, open, &after);
                done.pop();
                open.insert(place, *txn);
                if is_found {
                    return true;
                }
                continue;
            }
            let is_next =
                self.txns.iter().all(|other| done.contains(other) || !self.is_before(*other, *txn, order));
            let has_conflict = open.iter().any(|other| self.conflicts(*other, *txn));
            if is_next && !has_conflict && self.run(*txn, &mut state.clone()) {
                open.push(*txn);
                let is_found = self.is_snapshot(order, done, open, state);
                open.pop();
                if is_found {
                    return true;
                }
            }
        }
        false
    }

    /// Whether an order of versions fits read committed, with monotonic views or without; registers only.
    fn is_committed(&self, order: Order, is_monotonic: bool) -> bool {
        let Some(reads) = self.committed_reads() else { return false };
        let mut keys: Vec<u32> = self.history.ops().iter().map(|op| op.key).collect();
        keys.sort_unstable();
        keys.dedup();
        let mut edges: Vec<(u32, u32)> = reads
            .iter()
            .filter_map(|(reader, _, _, writer)| writer.map(|writer| (writer, *reader)))
            .collect();
        for a in &self.txns {
            let after = self.txns.iter().filter(|b| self.is_before(*a, **b, order));
            edges.extend(after.map(|b| (*a, *b)));
        }
        self.has_version_order(&keys, &mut Vec::new(), &edges, &reads, is_monotonic)
    }

    /// Foreign reads (reader, index, key, writer); none if one saw a version that no order allows.
    #[allow(clippy::type_complexity, reason = "a test's table")]
    fn committed_reads(&self) -> Option<Vec<(u32, usize, u32, Option<u32>)>> {
        let mut reads = Vec::new();
        for reader in self.txns.iter().filter(|txn| self.is_ok(**txn)) {
            let mut own: BTreeMap<u32, u64> = BTreeMap::new();
            for at in self.history.range(*reader) {
                let op = &self.history.ops()[at];
                if op.kind.is_write() {
                    own.insert(op.key, op.tok);
                    continue;
                }
                if let Some(own) = own.get(&op.key) {
                    if op.ver == 0 || *own != op.tok {
                        return None;
                    }
                    continue;
                }
                let last_of = |txn: &&u32| {
                    let ops = self.history.ops_of(**txn);
                    ops.iter()
                        .rev()
                        .find(|other| other.kind.is_write() && other.key == op.key)
                        .map(|op| op.tok)
                        == Some(op.tok)
                };
                let writer = self.txns.iter().find(last_of).copied();
                if op.ver > 0 && (writer.is_none() || writer == Some(*reader)) {
                    return None;
                }
                reads.push((*reader, at, op.key, if op.ver == 0 { None } else { writer }));
            }
        }
        Some(reads)
    }

    fn has_version_order(
        &self,
        keys: &[u32],
        lines: &mut Vec<(u32, Vec<u32>)>,
        edges: &[(u32, u32)],
        reads: &[(u32, usize, u32, Option<u32>)],
        is_monotonic: bool,
    ) -> bool {
        let Some(key) = keys.get(lines.len()) else {
            return is_acyclic(edges) && (!is_monotonic || is_view(self, lines, reads));
        };
        let writers: Vec<u32> = self.txns.iter().copied().filter(|txn| self.writes(*txn, *key)).collect();
        permutations(&writers).into_iter().any(|line| {
            let mut edges = edges.to_vec();
            edges.extend(line.windows(2).map(|pair| (pair[0], pair[1])));
            lines.push((*key, line));
            let is_found = self.has_version_order(keys, lines, &edges, reads, is_monotonic);
            lines.pop();
            is_found
        })
    }
}

/// A transaction that has seen part of another one sees all of it from then on.
fn is_view(tiny: &Tiny<'_>, lines: &[(u32, Vec<u32>)], reads: &[(u32, usize, u32, Option<u32>)]) -> bool {
    let place = |key: u32, writer: Option<u32>| {
        let line = lines.iter().find(|(other, _)| *other == key).map(|(_, line)| line);
        writer.and_then(|writer| line?.iter().position(|other| *other == writer)).map_or(0, |place| place + 1)
    };
    reads.iter().all(|(reader, at, _, writer)| {
        let Some(writer) = writer else { return true };
        reads.iter().filter(|(other, later, _, _)| other == reader && later > at).all(|(_, _, key, seen)| {
            !tiny.writes(*writer, *key) || place(*key, *seen) >= place(*key, Some(*writer))
        })
    })
}

fn is_acyclic(edges: &[(u32, u32)]) -> bool {
    let mut edges = edges.to_vec();
    loop {
        let before = edges.len();
        let targets: Vec<u32> = edges.iter().map(|(_, to)| *to).collect();
        edges.retain(|(from, _)| targets.contains(from));
        match edges.len() {
            0 => return true,
            after if after == before => return false,
            _ => {}
        }
    }
}

fn permutations(items: &[u32]) -> Vec<Vec<u32>> {
    let Some((first, rest)) = items.split_first() else { return vec![Vec::new()] };
    let mut all = Vec::new();
    for line in permutations(rest) {
        for place in 0..=line.len() {
            let mut line = line.clone();
            line.insert(place, *first);
            all.push(line);
        }
    }
    all
}

/// Whether some execution fits the level; `None`: this oracle cannot decide.
fn is_possible(history: &History, level: Level) -> Option<bool> {
    let unknown: Vec<u32> = (0..history.txns().len() as u32)
        .filter(|txn| history.txns()[*txn as usize].outcome == Outcome::Info)
        .collect();
    let is_list = history.model() == Model::Append;
    if is_list && level.base < Base::RepeatableRead || level.base == Base::ReadUncommitted {
        return None;
    }
    Some((0..1u32 << unknown.len()).any(|fates| {
        let has_happened = |txn: &u32| match history.txns()[*txn as usize].outcome {
            Outcome::Info => {
                unknown.iter().position(|other| other == txn).is_some_and(|place| fates >> place & 1 == 1)
            }
            outcome => outcome == Outcome::Ok,
        };
        let txns = (0..history.txns().len() as u32).filter(has_happened).collect();
        let tiny = Tiny { history, txns };
        match level.base {
            Base::ReadUncommitted => true,
            Base::ReadCommitted => tiny.is_committed(level.order, false),
            Base::MonotonicAtomicView => tiny.is_committed(level.order, true),
            Base::SnapshotIsolation => {
                tiny.is_snapshot(level.order, &mut Vec::new(), &mut Vec::new(), &State::new())
            }
            Base::RepeatableRead | Base::Serializable => {
                tiny.is_serial(level.order, &mut Vec::new(), &State::new())
            }
        }
    }))
}

/// A tiny history: blind writes, sessions, times that overlap, failed transactions and unknown outcomes. In half of them the reads are those of some
/// serial execution, in the others they are random.
fn tiny(seed: u64, model: Model) -> History {
    let mut draw = Draw::new(seed);
    let (txns, keys, sessions) = (2 + draw.below(3), 1 + draw.below(2), 1 + draw.below(3));
    let is_honest = draw.below(2) == 0;
    // Some workloads use a value twice; then it is unknown which write was read.
    let is_unique = model == Model::Append || draw.below(8) > 0;
    let mut history = History::new(model);
    let mut tokens: Vec<u64> = vec![0; keys as usize];
    let mut state = State::new();
    let mut all: State = State::new();
    let mut free: Vec<u64> = vec![0; sessions as usize];
    let mut names: Vec<u32> = (0..sessions).collect();
    let mut next_name = sessions;
    let mut clock = 0u64;
    for _ in 0..txns {
        let outcome = match draw.below(10) {
            0 => Outcome::Fail,
            1 | 2 => Outcome::Info,
            _ => Outcome::Ok,
        };
        let mut after = state.clone();
        let mut ops = Vec::new();
        for _ in 0..1 + draw.below(3) {
            let key = draw.below(keys);
            if draw.below(2) == 0 {
                let token = &mut tokens[key as usize];
                *token = if is_unique { *token + 1 } else { 1 + u64::from(draw.below(2)) };
                let kind = if model == Model::Append { Kind::Append } else { Kind::Write };
                ops.push(Op::new(kind, key, 1, *token));
                let value = after.entry(key).or_default();
                if model == Model::Register {
                    value.clear();
                }
                value.push(*token);
                all.entry(key).or_default().push(*token);
                continue;
            }
            let mut seen = after.get(&key).cloned().unwrap_or_default();
            if !is_honest && draw.below(2) == 0 {
                let written = all.get(&key).cloned().unwrap_or_default();
                let place = draw.below(written.len() as u32 + 1) as usize;
                seen = match model {
                    Model::Append => written[..place].to_vec(),
                    _ => written.get(place).copied().into_iter().collect(),
                };
                if model == Model::Append && seen.len() > 1 && draw.below(3) == 0 {
                    let last = seen.len() - 1;
                    seen.swap(last, last - 1);
                }
            }
            if outcome == Outcome::Ok {
                ops.push(match model {
                    Model::Append => history.read_list(key, &seen),
                    _ => Op::new(Kind::Read, key, seen.len() as u32, seen.last().copied().unwrap_or(0)),
                });
            }
        }
        if outcome == Outcome::Ok || (outcome == Outcome::Info && draw.below(2) == 0) {
            state = after;
        }
        let session = draw.below(sessions);
        let begin = (free[session as usize] + 1).max(clock.saturating_sub(u64::from(draw.below(6))));
        let end = begin + 1 + u64::from(draw.below(6));
        clock = clock.max(end);
        let ops: Vec<Op> =
            ops.iter().enumerate().map(|(place, op)| Op { statement: place as u16, ..*op }).collect();
        let txn =
            Txn::ok(names[session as usize]).between(begin, if outcome == Outcome::Info { 0 } else { end });
        history.push(txn.ending(outcome), &ops);
        free[session as usize] = end;
        if outcome == Outcome::Info {
            // Its session continues under another number.
            names[session as usize] = next_name;
            next_name += 1;
        }
    }
    history
}

/// How often each pair of answers was given: possible or not, and refuted, open or not.
#[derive(Debug, Default)]
struct Tally {
    possible: u64,
    possible_open: u64,
    impossible: u64,
    impossible_open: u64,
}

fn compare(model: Model, seeds: u64) -> Tally {
    let mut tally = Tally::default();
    for seed in 0..seeds {
        let history = tiny(seed, model);
        let report = check(&history, &Options::default());
        for level in Level::all() {
            let Some(is_possible) = is_possible(&history, level) else { continue };
            let (is_refuted, is_open) = (report.refutes(level), report.is_open(level));
            assert!(!(is_refuted && is_open));
            let what = || {
                format!("{model:?} {seed} {level}\n{:#?}\n{:#?}\n{report:#?}", history.txns(), history.ops())
            };
            // Where a value was written twice, "incomplete" is the only correct answer; elsewhere it has to be rare.
            let counted = u64::from(!report.counts.contains_key("ambiguous-write"));
            if is_possible {
                assert!(!is_refuted, "falsely refuted: {}", what());
                tally.possible += counted;
                tally.possible_open += counted * u64::from(is_open);
            } else {
                assert!(is_refuted || is_open, "missed without a word: {}", what());
                tally.impossible += counted;
                tally.impossible_open += counted * u64::from(is_open);
            }
        }
    }
    tally
}

fn seeds() -> u64 {
    std::env::var("PGFATHOM_BRUTE_SEEDS").ok().and_then(|count| count.parse().ok()).unwrap_or(SEEDS)
}

#[test]
fn registers_with_blind_writes_agree_with_brute_force() {
    let tally = compare(Model::Register, seeds());
    println!("{tally:?}");
    assert!(tally.possible > 0 && tally.impossible > 0);
    // "Incomplete" in all cases would agree, too.
    assert!(tally.possible_open * 20 < tally.possible, "{tally:?}");
    assert!(tally.impossible_open * 10 < tally.impossible, "{tally:?}");
}

#[test]
fn lists_agree_with_brute_force() {
    let tally = compare(Model::Append, seeds());
    println!("{tally:?}");
    assert!(tally.possible > 0 && tally.impossible > 0);
    assert!(tally.possible_open * 100 < tally.possible, "{tally:?}");
    assert!(tally.impossible_open * 100 < tally.impossible, "{tally:?}");
}

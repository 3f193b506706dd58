//! The checker against histories whose answer is known: planted anomalies of every class, simulators that keep a promise, a brute-force oracle that knows
//! only the definitions, and the adya crate.

mod brute;
mod foreign;
mod oracle;
mod planted;
mod simulated;

use super::*;
use crate::history::{Kind, Model, Op, Txn};

/// Builds histories from short notes.
struct Notes {
    history: History,
    clock: u64,
}

impl Notes {
    fn new(model: Model) -> Notes {
        Notes { history: History::new(model), clock: 0 }
    }

    /// A transaction that overlaps with none.
    fn after(&mut self, session: u32, ops: &[Op]) -> u32 {
        self.clock += 10;
        let ops = number(ops);
        self.history.push(Txn::ok(session).between(self.clock, self.clock + 5), &ops)
    }

    /// A transaction that overlaps with all others.
    fn beside(&mut self, session: u32, ops: &[Op]) -> u32 {
        self.ending(session, Outcome::Ok, ops)
    }

    fn ending(&mut self, session: u32, outcome: Outcome, ops: &[Op]) -> u32 {
        let ops = number(ops);
        self.history.push(Txn::ok(session).between(1, 1_000_000).ending(outcome), &ops)
    }

    fn check(&self) -> Report {
        check(&self.history, &Options::default())
    }
}

/// Each operation is its own statement, unless one is given.
fn number(ops: &[Op]) -> Vec<Op> {
    let one = |(place, op): (usize, &Op)| Op {
        statement: if op.statement == 0 { place as u16 + 1 } else { op.statement },
        ..*op
    };
    ops.iter().enumerate().map(one).collect()
}

/// A token that encodes where it was written.
fn tok(key: u32, ver: u32) -> u64 {
    u64::from(key) * 1000 + u64::from(ver)
}

fn r(key: u32, ver: u32) -> Op {
    Op::new(Kind::Read, key, ver, if ver == 0 { 0 } else { tok(key, ver) })
}

fn w(key: u32, ver: u32) -> Op {
    Op::new(Kind::Update, key, ver, tok(key, ver))
}

fn plain(base: Base) -> Level {
    Level::new(base, Order::Data)
}

/// Exactly the levels that follow from these are refuted.
fn assert_refuted(report: &Report, weakest: &[Level]) {
    let expected: Vec<Level> =
        Level::all().filter(|level| weakest.iter().any(|weaker| weaker.is_implied_by(*level))).collect();
    assert_eq!(report.refuted, expected, "{report:#?}");
}

fn assert_found(report: &Report, code: &str) {
    assert!(report.counts.contains_key(code), "no {code} in {report:#?}");
    assert!(report.witnesses.iter().any(|witness| witness.finding.code() == code));
}

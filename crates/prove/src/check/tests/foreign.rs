//! Against the adya crate, another author's port of Elle: the same histories, through Elle's notation, must be judged the same.

use super::oracle::adversarial;
use super::*;
use crate::history::elle::{self, Notation};
use crate::simulate::{Plan, snapshot_isolation};
use adya::{Opts, Valid, Workload};
use proptest::prelude::*;

/// The levels that both know.
fn common() -> [(&'static str, Level); 9] {
    use Base::{ReadCommitted, ReadUncommitted, RepeatableRead, Serializable, SnapshotIsolation};
    use Order::{Data, RealTime, Session};
    [
        ("read-uncommitted", Level::new(ReadUncommitted, Data)),
        ("read-committed", Level::new(ReadCommitted, Data)),
        ("repeatable-read", Level::new(RepeatableRead, Data)),
        ("snapshot-isolation", Level::new(SnapshotIsolation, Data)),
        ("serializable", Level::new(Serializable, Data)),
        ("strong-session-snapshot-isolation", Level::new(SnapshotIsolation, Session)),
        ("strong-session-serializable", Level::new(Serializable, Session)),
        ("strong-snapshot-isolation", Level::new(SnapshotIsolation, RealTime)),
        ("strict-serializable", Level::new(Serializable, RealTime)),
    ]
}

fn agree(text: &str, workload: Workload) -> Result<Report, TestCaseError> {
    let theirs = adya::History::parse(text).map_err(|error| TestCaseError::fail(error.to_string()))?;
    let ours = elle::parse(text.as_bytes()).map_err(|error| TestCaseError::fail(error.to_string()))?;
    let report = check(&ours, &Options::default());
    // Elle leaves out appends that were never read; here snapshot isolation is refuted, too, where no order of them fits.
    let has_tails = Orders::of(&Versions::of(&ours)).is_some();
    use Base::ReadUncommitted;
    for (model, level) in common() {
        // The order of registers is learnt from who reads before it writes, in both programs.
        let options = Opts { models: vec![model.into()], wfr_keys: true, ..Opts::default() };
        let answer = adya::check(&theirs, workload, &options);
        // Elle requires only of snapshot isolation that a transaction sees its own writes and no row twice; here every level that forbids it reports it.
        let by_itself = |finding: &Finding| {
            matches!(finding.class, Class::Internal | Class::FutureRead | Class::NonRepeatableRead)
                && finding.refutes().any(|weaker| weaker.is_implied_by(level))
        };
        let is_ours = report.witnesses.iter().any(|witness| by_itself(&witness.finding));
        if workload == Workload::RwRegister {
            // More is known here about the order of registers, from sessions, real time and other keys. What reads before writes imply about it is
            // not used at read uncommitted, which promises nothing about reads.
            prop_assert!(
                answer.valid != Valid::False || report.refutes(level) || level.base == ReadUncommitted,
                "{}: {:?}\n{:?}\n{}",
                model,
                answer.anomaly_types,
                report.counts,
                text
            );
            continue;
        }
        let is_ours = is_ours || (has_tails && level.base == Base::SnapshotIsolation);
        prop_assert_eq!(
            answer.valid == Valid::False || (is_ours && report.refutes(level)),
            report.refutes(level),
            "{}: {:?}\n{:?}\n{}",
            model,
            answer.anomaly_types,
            report.counts,
            text
        );
    }
    Ok(report)
}

/// The same history with lists: reads see the elements of all versions up to theirs.
fn as_lists(history: &History) -> History {
    let mut lists = History::new(Model::Append);
    let mut writes: Vec<&Op> = history.ops().iter().filter(|op| op.kind.is_write()).collect();
    writes.sort_by_key(|op| (op.key, op.ver));
    for (number, txn) in history.txns().iter().enumerate() {
        let mut ops = Vec::new();
        for op in history.ops_of(number as u32) {
            if op.kind.is_write() {
                ops.push(Op::new(Kind::Append, op.key, 1, op.tok));
                continue;
            }
            let seen = writes.iter().filter(|write| write.key == op.key && write.ver <= op.ver);
            let elements: Vec<u64> = seen.map(|write| write.tok).collect();
            ops.push(lists.read_list(op.key, &elements));
        }
        lists.push(*txn, &ops);
    }
    lists
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn chaos_is_judged_the_same(seed in any::<u64>(), txns in 2..40u32, keys in 1..8u32, ops_max in 1..6u32) {
        let history = as_lists(&adversarial(seed, txns, keys, ops_max));
        for notation in [Notation::Json, Notation::Edn] {
            agree(&elle::write(&history, notation), Workload::ListAppend)?;
        }
    }

    #[test]
    fn snapshots_are_judged_the_same(seed in any::<u64>(), txns in 2..120u32, keys in 1..10u32) {
        let plan = Plan {
            seed, txns, keys, model: Model::Append, sessions: 5, ops_max: 4, fail_percent: 10, info_percent: 10, versions_max: 6, ..Plan::default()
        };
        agree(&elle::write(&snapshot_isolation(&plan), Notation::Json), Workload::ListAppend)?;
    }
}

/// The other author's simulator, at every level it knows, its faults included.
#[test]
fn their_histories_are_judged_the_same() {
    use adya::r#gen::GenOpts;
    let mut refuted = 0;
    for (kind, workload) in [
        (adya::r#gen::Kind::ListAppend, Workload::ListAppend),
        (adya::r#gen::Kind::RwRegister, Workload::RwRegister),
    ] {
        for name in
            ["read-uncommitted", "read-committed", "snapshot-isolation", "serializable", "lost-update"]
        {
            let isolation = adya::sim::Isolation::parse(name).unwrap();
            for seed in 0..8 {
                let options = adya::sim::SimOpts {
                    isolation,
                    seed,
                    txns: 60,
                    r#gen: GenOpts { kind, ..GenOpts::default() },
                    ..adya::sim::SimOpts::default()
                };
                let report = agree(&adya::sim::run(&options), workload).unwrap();
                refuted += usize::from(!report.refuted.is_empty());
            }
        }
    }
    assert!(refuted > 20, "only {refuted} of their histories were refuted at any level");
}

//! Simulators that keep a promise: their histories must not be refuted.

use super::*;
use crate::simulate::{Plan, serial, snapshot_isolation};
use proptest::prelude::*;

fn plan() -> impl Strategy<Value = Plan> {
    let model = prop::sample::select(vec![Model::VersionedRegister, Model::Append]);
    (any::<u64>(), model, 1..150u32, 1..8u32, 1..6u32, 2..12u32, 1..6u32, 0..10u32).prop_map(
        |(seed, model, txns, sessions, keys, versions_max, ops_max, info_percent)| Plan {
            seed,
            model,
            txns,
            sessions,
            keys,
            versions_max,
            ops_max,
            read_percent: 50,
            fail_percent: 10,
            info_percent,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_serial_execution_is_never_refuted(plan in plan()) {
        let report = check(&serial(&plan), &Options::default());
        prop_assert!(report.refuted.is_empty() && report.witnesses.is_empty(), "{report:#?}");
    }

    /// Snapshots are taken when transactions begin, so real time is kept as well.
    #[test]
    fn snapshot_isolation_is_never_refuted_at_its_level(plan in plan()) {
        let report = check(&snapshot_isolation(&plan), &Options::default());
        prop_assert!(!report.refutes(Level::new(Base::SnapshotIsolation, Order::RealTime)), "{report:#?}");
        prop_assert!(report.counts.keys().all(|code| code.starts_with("G2-item")), "{report:#?}");
    }

    #[test]
    fn threads_do_not_change_the_answer(plan in plan()) {
        let history = snapshot_isolation(&plan);
        let one = check(&history, &Options::default());
        let three = check(&history, &Options { threads: 3, ..Options::default() });
        prop_assert_eq!(one, three);
    }
}

#[test]
fn write_skew_of_a_simulator_is_found() {
    let plan = Plan { txns: 2000, keys: 8, ops_max: 4, ..Plan::default() };
    for model in [Model::VersionedRegister, Model::Append] {
        let report = check(&snapshot_isolation(&Plan { model, ..plan }), &Options::default());
        assert_found(&report, "G2-item");
        assert!(report.refutes(plain(Base::Serializable)));
        assert!(!report.refutes(plain(Base::SnapshotIsolation)));
    }
}

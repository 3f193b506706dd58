use super::*;
use crate::simulate;

#[test]
fn what_is_planted_against_real_time_refutes_nothing_without_it() {
    for model in [Model::VersionedRegister, Model::Append] {
        for level in Isolation::ALL {
            let plan = simulate::Plan { model, txns: 200, ..simulate::Plan::default() };
            let mut history = simulate::serial(&plan);
            let look = |history: &History| {
                let report = check::check(history, &check::Options::default());
                let late = late::find(history, true);
                let plain = report.refutes(check::Level::new(base_of(level), Order::Data));
                (plain, ordered(&report, level, Some(&late)) > 0)
            };
            assert_eq!(look(&history), (false, false), "{model:?} {level}");
            plant_late(&mut history);
            assert_eq!(look(&history), (false, true), "{model:?} {level}");
        }
    }
}

#[test]
fn what_is_planted_is_found_at_its_level_and_not_below() {
    for model in [Model::VersionedRegister, Model::Append] {
        for (level, weaker) in [
            (Isolation::ReadCommitted, Base::ReadUncommitted),
            (Isolation::RepeatableRead, Base::MonotonicAtomicView),
            (Isolation::Serializable, Base::SnapshotIsolation),
        ] {
            let plan = simulate::Plan { model, txns: 200, ..simulate::Plan::default() };
            let mut history = simulate::serial(&plan);
            let base = base_of(level);
            let refutes = |history: &History, base| {
                check::check(history, &check::Options::default())
                    .refutes(check::Level::new(base, Order::Data))
            };
            assert!(!refutes(&history, base));
            plant(&mut history, base);
            assert!(refutes(&history, base), "{model:?} {level}");
            assert!(!refutes(&history, weaker), "{model:?} {level}");
        }
    }
}

#[test]
fn anomalies_are_counted_by_level_and_order() {
    let mut history = History::new(Model::VersionedRegister);
    let op = |kind, key, ver| Op::new(kind, key, ver, u64::from(key) * 10 + u64::from(ver));
    let reads = [Op::new(Kind::Read, 0, 0, 0), Op::new(Kind::Read, 1, 0, 0)];
    for key in [0, 1] {
        history.push(Txn::ok(key).between(1, 9), &[reads[0], reads[1], op(Kind::Insert, key, 1)]);
    }
    let report = check::check(&history, &check::Options::default());
    assert!(anomalies(&report, Base::SnapshotIsolation, false).is_empty());
    assert_eq!(anomalies(&report, Base::Serializable, false), [(check::Class::WriteSkew, 1)]);
    assert!(anomalies(&report, Base::Serializable, true).is_empty());
}

#[test]
fn a_control_stands_beside_its_history() {
    assert_eq!(beside(Path::new("runs/x/history.bin"), "control"), Path::new("runs/x/control-history.bin"));
}

//! Random transactions on every PostgreSQL found, recorded and checked: what a level promises is not refuted, and the level below it shows that the load could have.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use prove::check::{Base, Level, Options, Order, Report, check};
use prove::history::{History, Isolation, Model};
use prove::workload::{Plan, record};
use target::throwaway::{Throwaway, installations};

const SER: Level = Level::new(Base::Serializable, Order::Data);
const SI: Level = Level::new(Base::SnapshotIsolation, Order::Data);

/// Runs until the history refutes the level, at most so often: what sessions meet is up to the machine.
fn until_refuted(mut run: impl FnMut(u64) -> Report, level: Level) -> Report {
    let mut last = run(1);
    for seed in 2..12 {
        if last.refutes(level) {
            break;
        }
        last = run(seed);
    }
    last
}

#[test]
fn each_level_keeps_its_promise_and_not_more() {
    let found = installations();
    assert!(!found.is_empty(), "no PostgreSQL on this machine: run make test, which installs it");
    std::thread::scope(|scope| {
        for installation in &found {
            scope.spawn(move || {
                // Keys come in any order, so there are deadlocks; nobody learns anything by waiting for them.
                let server = Throwaway::start(installation, &[("deadlock_timeout", "10ms")]).unwrap();
                for model in [Model::VersionedRegister, Model::Append] {
                    let run = |isolation: Isolation, seed: u64| -> (History, Report) {
                        let plan =
                            Plan { seed, model, isolation, sessions: 6, txns: 60, keys: 4, ops_max: 4 };
                        let history = record(&server.spec(), &plan).unwrap();
                        let report = check(&history, &Options::default());
                        (history, report)
                    };
                    let weak = until_refuted(|seed| run(Isolation::ReadCommitted, seed).1, SI);
                    assert!(weak.refutes(SI), "{weak:#?}");
                    // On one server also the view of READ COMMITTED never goes back.
                    assert!(!weak.refutes(Level::new(Base::MonotonicAtomicView, Order::Data)), "{weak:#?}");
                    let snapshot = until_refuted(|seed| run(Isolation::RepeatableRead, seed).1, SER);
                    assert!(
                        !snapshot.refutes(Level::new(Base::SnapshotIsolation, Order::RealTime)),
                        "{snapshot:#?}"
                    );
                    assert!(snapshot.counts.contains_key("G2-item"), "{snapshot:#?}");
                    let (history, serializable) = run(Isolation::Serializable, 1);
                    assert!(!serializable.refutes(SER), "{serializable:#?}");
                    assert!(serializable.txns["ok"] > 0 && history.ops().len() > 300);
                }
                assert_eq!(
                    server
                        .value("select count(*)::text from pg_class where relname ~ '^pgfathom'")
                        .unwrap()
                        .unwrap(),
                    "0"
                );
            });
        }
    });
}

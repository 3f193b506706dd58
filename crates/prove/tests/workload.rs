//! Random transactions on live servers, written down and checked: what a level promises is not refuted, and the level below it shows that the load could have;
//! shards by postgres_fdw are refuted, by design.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use crate::local;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use lab::local::Topology;
use lab::throwaway::{Throwaway, ThrowawayCluster};
use prove::check::{self, Base, Order, check};
use prove::fault::{Plan, Site};
use prove::history::{History, Model, elle};
use prove::live::verreg::{self, HistoryOptions, Report};
use prove::live::{Isolation, Options};
use prove::promise::{self, Settings};
use record::promise::Standing;

const SI: check::Level = check::Level::new(Base::SnapshotIsolation, Order::Data);

fn options(level: Isolation, seed: u64) -> Options {
    Options { duration: Duration::from_millis(600), clients: 6, level, seed, ..Options::default() }
}

fn run(site: &Site, dir: &Path, model: Model, options: &Options, has_control: bool) -> Report {
    let path = dir.join("history.bin");
    let _ = std::fs::remove_file(&path);
    let paper = HistoryOptions { model, history: &path, has_control, threads: 1 };
    verreg::run(site, options, &paper, &AtomicBool::new(false)).unwrap()
}

#[test]
fn each_level_keeps_its_promise_and_not_more() {
    let (dir, journal) = local::journal("levels");
    // Keys come in any order, so there are deadlocks; nobody learns anything by waiting for them.
    let server = Throwaway::start(&local::newest(), &[("deadlock_timeout", "10ms")]).unwrap();
    let site = local::site_of_one(&server, &journal);
    for model in [Model::VersionedRegister, Model::Append] {
        // READ COMMITTED loses updates sooner or later: what sessions meet is up to the machine.
        let weak = (1..30)
            .map(|seed| run(&site, &dir, model, &options(Isolation::ReadCommitted, seed), false))
            .find(|report| report.report.refutes(SI))
            .expect("READ COMMITTED showed nothing in all that time");
        // But each of its statements sees a whole, and none sees less than the one before.
        assert!(
            !weak.report.refutes(check::Level::new(Base::MonotonicAtomicView, Order::RealTime)),
            "{weak:#?}"
        );
        assert_eq!(weak.planted, Some(true));
        for level in [Isolation::RepeatableRead, Isolation::Serializable] {
            // How much happens in the time is up to the machine, too.
            let report = (1..30)
                .map(|seed| run(&site, &dir, model, &options(level, seed), true))
                .find(|report| report.outcomes.ok > 20 && report.fresh[0] > 0)
                .expect("next to nothing happened in all that time");
            let promised = check::Level::new(verreg::base_of(level), Order::RealTime);
            assert!(!report.report.refutes(promised), "{report:#?}");
            assert_eq!(report.planted, Some(true), "{report:#?}");
            let outcomes = report.outcomes;
            assert!(outcomes.info + outcomes.partial + outcomes.ok_weak == 0, "{report:#?}");
            assert!(report.fresh[0] <= report.fresh[1], "{report:#?}");
            let promises = promise::verreg(&site, &report, &Settings::default(), word(model), "single");
            let control = report.control.unwrap();
            let expected = if control.2 > 0 { Standing::Kept } else { Standing::NotTested };
            assert_eq!(promises[0].standing, expected, "{promises:#?}");
            assert_eq!((promises.len(), promises[1].standing), (2, expected), "{promises:#?}");
        }
        // The file is the same history, and Elle can have it.
        let history = History::read(&dir.join("history.bin")).unwrap();
        assert!(!history.is_cut && history.names.nodes == ["single"] && !history.ops().is_empty());
        let exported = elle::parse(elle::write(&history, elle::Notation::Edn).as_bytes()).unwrap();
        assert_eq!(exported.txns().len(), history.txns().len());
        assert!(!check(&exported, &check::Options::default()).refutes(SI));
    }
    let left = "select count(*)::text from pg_namespace where nspname = 'pgfathom_prove'";
    assert_eq!(server.value(left).unwrap().as_deref(), Some("0"));
    drop((site, journal));
    std::fs::remove_dir_all(dir).unwrap();
}

fn word(model: Model) -> &'static str {
    if model == Model::Append { "append" } else { "verreg" }
}

/// Changes a setting, and waits until new sessions have it: a backend that is forked before the postmaster has read it again works with the old one.
fn set(server: &Throwaway, name: &str, value: &str) {
    server.execute(&format!("alter system set {name} = '{value}'")).unwrap();
    server.execute("select pg_reload_conf()").unwrap();
    let begin = std::time::Instant::now();
    while server.value(&format!("show {name}")).unwrap().as_deref() != Some(value) {
        assert!(begin.elapsed() < Duration::from_secs(60), "no session has {name} = {value}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A standby that is a second behind: each statement on it is late, which is allowed, and no line that contains the order of real time may say that it was kept.
#[test]
fn the_order_of_real_time_is_not_kept_where_a_standby_lags() {
    let (dir, journal) = local::journal("lag");
    let cluster = ThrowawayCluster::replicated(&local::newest(), 1, "async").unwrap();
    set(cluster.node(1), "recovery_min_apply_delay", "1s");
    let site = local::site_of(&cluster, &journal);
    let levels = [Isolation::RepeatableRead, Isolation::ReadCommitted];
    let is_thorough = testing::is_thorough("a standby that lags at both levels: at REPEATABLE READ");
    for level in levels.into_iter().take(if is_thorough { 2 } else { 1 }) {
        let report = (1..10)
            .map(|seed| {
                let longer = Options { duration: Duration::from_millis(2_500), ..options(level, seed) };
                run(&site, &dir, Model::VersionedRegister, &longer, true)
            })
            .find(|report| verreg::ordered(&report.report, level, report.late.as_ref()) > 0)
            .expect("a standby that lags showed nothing late in all that time");
        let settings = Settings::of(&site.entry(), &options(level, 1)).unwrap();
        let promises = promise::verreg(&site, &report, &settings, "verreg", "replicated");
        let [plain, fork, real_time] = promises.as_slice() else { panic!("{promises:#?}") };
        assert_eq!(real_time.standing, Standing::ByDesign, "{promises:#?}");
        assert!(!real_time.witness.is_empty() && real_time.seen > 0, "{promises:#?}");
        // Each has a control of its own, and they showed something.
        for promise in [fork, real_time] {
            assert!(promise.control.as_ref().is_some_and(|control| control.seen > 0), "{promises:#?}");
        }
        assert_eq!(report.shown, Some(verreg::Shown { fork: true, late: true }), "{}", report.unshown);
        assert_ne!(plain.standing, Standing::Kept, "a long fork is allowed here: {promises:#?}");
        // With remote_apply and a standby that is waited for the same would be a violation.
        let applied = Settings {
            synchronous_commit: "remote_apply".into(),
            are_all_synchronous: true,
            ..Settings::default()
        };
        let promises = promise::verreg(&site, &report, &applied, "verreg", "replicated");
        assert_eq!(promises[2].standing, Standing::Broken, "{promises:#?}");
    }
    drop((site, journal));
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn shards_are_refuted_by_design() {
    let (dir, journal) = local::journal("spread");
    let topology = Topology::Sharded { nodes: 2, partitions: 2 };
    let settings = [("deadlock_timeout", "10ms")];
    let cluster = ThrowawayCluster::start(&local::newest(), &topology, &settings).unwrap();
    // A deadlock over two nodes would end the load otherwise.
    for node in cluster.nodes() {
        let servers = node.execute("select srvname from pg_foreign_server").unwrap();
        for server in servers.iter().flatten().flatten() {
            let limit = "-c lock_timeout=200ms -c deadlock_timeout=10ms";
            node.execute(&format!("alter server {server} options (set options '{limit}')")).unwrap();
        }
        set(node, "lock_timeout", "200ms");
    }
    let site = local::site_of(&cluster, &journal);
    for level in Isolation::ALL {
        let base = check::Level::new(verreg::base_of(level), Order::Data);
        let report = (1..30)
            .map(|seed| run(&site, &dir, Model::VersionedRegister, &options(level, seed), false))
            .find(|report| report.report.refutes(base))
            .expect("shards without a common snapshot showed no half in all that time");
        assert_eq!(report.entries, ["n1", "n2"]);
        let promises = promise::verreg(&site, &report, &Settings::default(), "verreg", "sharded");
        assert_eq!(promises[0].standing, Standing::ByDesign, "{promises:#?}");
        assert!(
            promises[0].seen > 0 && promises[0].witness.iter().any(|line| line.contains("n1")),
            "{promises:#?}"
        );
        assert!(promises.iter().all(|promise| promise.standing != Standing::Broken), "{promises:#?}");
    }
    drop((site, journal));
    std::fs::remove_dir_all(dir).unwrap();
}

/// A server that dies in the middle: what was acknowledged stays in one order with what comes after, and nothing is known of what was not answered.
#[test]
fn a_crash_in_the_middle_refutes_nothing() {
    let (dir, journal) = local::journal("crash");
    let server =
        Throwaway::start(&local::newest(), &[("fsync", "on"), ("deadlock_timeout", "10ms")]).unwrap();
    let site = local::site_of_one(&server, &journal);
    let options = Options {
        plan: Plan::parse("kill@200ms,heal@300ms").unwrap(),
        ..options(Isolation::RepeatableRead, 1)
    };
    let report = (1..10)
        .map(|_| run(&site, &dir, Model::VersionedRegister, &options, false))
        .find(|report| report.outcomes.ok > 0 && report.outcomes.fail + report.outcomes.info > 0)
        .expect("the crash met nobody in all those attempts");
    assert_eq!(report.happened.len(), 2, "{report:#?}");
    assert!(
        !report.report.refutes(check::Level::new(Base::SnapshotIsolation, Order::RealTime)),
        "{report:#?}"
    );
    drop((site, journal));
    std::fs::remove_dir_all(dir).unwrap();
}

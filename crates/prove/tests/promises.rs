//! The workloads on real clusters: what must be seen there is seen, what must not be is not, and the verdicts say so.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use crate::local;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use connect::cluster_file::Role;
use engines::Engine;
use lab::throwaway::{Throwaway, ThrowawayCluster};
use local::{journal, newest, on_each, site_of};
use prove::fault::{Node, Plan, Site};
use prove::live::{Isolation, Options, bank, conflict, heartbeat, skew, twin, wide};
use prove::promise::{self, Settings};
use record::promise::Standing;

fn options(level: Isolation, seconds: f64) -> Options {
    Options { duration: Duration::from_secs_f64(seconds), level, ..Options::default() }
}

fn no_stop() -> AtomicBool {
    AtomicBool::new(false)
}

/// postgres_fdw has no snapshot for all nodes: sums are wrong at every level, and the control on one server shows that they need not be.
#[test]
fn sums_over_shards_are_wrong_at_every_level_and_on_one_server_never() {
    on_each(|installation| {
        let (dir, journal) = journal("bank");
        let cluster = ThrowawayCluster::sharded(installation, 2, 4).unwrap();
        let mut sharded = site_of(&cluster, &journal);
        sharded.use_links();
        for level in Isolation::ALL {
            // Until it is seen: how long that takes depends on the machine.
            let found = (0..20).find_map(|_| {
                let report = bank::run(&sharded, &options(level, 0.5), &no_stop()).unwrap();
                // Without a crash a transfer is torn only where the entry node refuses its own part after the other one has committed.
                let is_whole = report.last_sum == report.expected;
                assert!(
                    is_whole || (level == Isolation::Serializable && report.transfers.partial > 0),
                    "{report:?}"
                );
                (report.wrong > 0).then_some(report)
            });
            let report = found.unwrap_or_else(|| panic!("{level}: no wrong sum was seen"));
            let promises = promise::bank(&sharded, &report, &Settings::default(), level, "");
            assert_eq!(promises[0].standing, Standing::ByDesign, "{promises:?}");
            assert!(promises[0].witness[0].contains("instead of") && !promises[0].change.is_empty());
            let is_whole = report.last_sum == report.expected;
            let standing = if is_whole { Standing::AllowedNotSeen } else { Standing::ByDesign };
            assert_eq!(promises[1].standing, standing, "{promises:?}");
        }
        // The shard itself commits for nothing, another one for a round trip, and with parallel_commit both for no more.
        let found = (0..10).find_map(|_| {
            let report =
                wide::run(&sharded, &options(Isolation::ReadCommitted, 0.3), false, &no_stop()).unwrap();
            let promises = promise::wide(&report, "");
            promises.iter().all(|promise| promise.standing == Standing::Kept).then_some(report)
        });
        let report = found.expect("no ten measurements came to the predicted round trips");
        let predicted: Vec<f64> = report.costs.iter().map(|cost| cost.predicted).collect();
        assert_eq!(predicted, [0.0, 1.0, 1.0], "{report:?}");
        assert!(report.control[1] > 0 && report.costs[2].nodes == ["n1", "n2"], "{report:?}");
        let found = (0..20).find_map(|_| {
            let report = twin::run(&sharded, &options(Isolation::ReadCommitted, 0.5), &no_stop()).unwrap();
            let [statement, transaction, _] = &report.ways;
            (statement.fractured > 0 && transaction.fractured > 0).then_some(report)
        });
        let report = found.expect("no fractured read was seen");
        assert!(report.ways[0].distance_max > 0 && report.writes > 0 && report.torn == 0, "{report:?}");
        let promises = promise::twin(&sharded, &report, &Settings::default(), Isolation::ReadCommitted, "");
        assert!(promises.iter().all(|promise| promise.standing == Standing::ByDesign), "{promises:?}");
        drop((sharded, cluster, journal));
        std::fs::remove_dir_all(dir).unwrap();
    });
    let (dir, journal) = journal("bank-one");
    let server = Throwaway::start(&newest(), &[]).unwrap();
    let node = Node::hurtable("single", Role::Primary, server.spec(), server.instance());
    let single = Site::new(Engine::default(), vec![node], Arc::clone(&journal));
    for level in Isolation::ALL {
        let report = bank::run(&single, &options(level, 0.5), &no_stop()).unwrap();
        assert!(report.reads > 0 && report.wrong == 0, "{report:?}");
        let promises = promise::bank(&single, &report, &Settings::default(), level, "");
        assert_eq!(promises[0].seen, 0);
        // With so few readings the control may show nothing: then nothing is claimed.
        let expected = if report.control_wrong > 0 { Standing::Kept } else { Standing::NotTested };
        assert_eq!(promises[0].standing, expected, "{promises:?}");
    }
    let report = twin::run(&single, &options(Isolation::ReadCommitted, 0.5), &no_stop()).unwrap();
    assert_eq!((report.ways[0].fractured, report.ways[1].fractured, report.torn), (0, 0, 0), "{report:?}");
    // Write skew: REPEATABLE READ lets both through, SERIALIZABLE never.
    let report = skew::run(&single, &options(Isolation::Serializable, 0.4), &no_stop()).unwrap();
    assert!(report.rows.pairs > 0 && report.predicates.pairs > 0, "{report:?}");
    assert_eq!((report.rows.both, report.predicates.both), (0, 0), "{report:?}");
    assert_eq!(report.control.both, report.control.pairs, "{report:?}");
    let promises = promise::skew(&single, &report, &Settings::default(), Isolation::Serializable, "");
    assert!(promises.iter().all(|promise| promise.standing == Standing::Kept), "{promises:?}");
    let report = skew::run(&single, &options(Isolation::RepeatableRead, 0.1), &no_stop()).unwrap();
    assert!(report.rows.both > 0 && report.predicates.both > 0, "{report:?}");
    let promises = promise::skew(&single, &report, &Settings::default(), Isolation::RepeatableRead, "");
    assert_eq!(promises[0].standing, Standing::ByDesign);
    assert_eq!(promises[0].witness.len(), 4);
    // Increments on one server: nothing is overwritten.
    let report = conflict::run(&single, &options(Isolation::ReadCommitted, 1.0), &no_stop()).unwrap();
    assert!(
        report.contended.is_whole() && report.owned.is_whole() && report.contended.acknowledged > 0,
        "{report:?}"
    );
    // Clients that are careless overwrite each other on one server, too: the same comparison sees it.
    assert!(report.careless.as_ref().is_some_and(|fight| fight.overwritten > 0), "{report:?}");
    for promise in promise::conflict(&single, &report, &Settings::default(), "") {
        assert!(
            promise.standing == Standing::Kept && promise.control.is_some_and(|control| control.seen > 0)
        );
    }
    // Nothing of ours is left behind.
    assert_eq!(
        server.value("select count(*) from pg_namespace where nspname ~ 'pgfathom'").unwrap().as_deref(),
        Some("0")
    );
    server.execute("create schema pgfathom_prove").unwrap();
    let foreign = skew::run(&single, &options(Isolation::Serializable, 0.1), &no_stop()).unwrap_err();
    assert!(
        foreign.to_string().contains("pgfathom did not make it")
            && foreign.hint().unwrap().contains("drop schema"),
        "{foreign}"
    );
    // What a proof makes and drops would run what the role writes.
    server
        .execute(
            "drop schema pgfathom_prove; create role mallory; create function noted() returns event_trigger language plpgsql as 'begin end'; \
             alter function noted() owner to mallory; create event trigger noted on ddl_command_end execute function noted()",
        )
        .unwrap();
    let refused = skew::run(&single, &options(Isolation::Serializable, 0.1), &no_stop()).unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("the event trigger noted uses public.noted(), which belongs to the role mallory")
            && refused.hint().unwrap().contains("alter event trigger"),
        "{refused}"
    );
    drop((single, server, journal));
    std::fs::remove_dir_all(dir).unwrap();
}

/// A server that is killed in the middle cuts off one pair. The others make a verdict, and what is waited for is announced.
#[test]
fn pairs_go_on_when_a_killed_server_is_back() {
    let (dir, journal) = journal("skew-cut");
    let mut server = Throwaway::start(&newest(), &[]).unwrap();
    let node = Node::hurtable("single", Role::Primary, server.spec(), server.instance());
    let site = Site::new(Engine::default(), vec![node], Arc::clone(&journal));
    let (sender, announced) = std::sync::mpsc::channel();
    site.announce_to(Some(sender));
    let report = std::thread::scope(|scope| {
        let site = &site;
        let running =
            scope.spawn(move || skew::run(site, &options(Isolation::Serializable, 4.0), &no_stop()).unwrap());
        let pairs = "select count(*) > 60 from pgfathom_prove.skew";
        testing::wait_for("pairs are played", || {
            server.value(pairs).is_ok_and(|found| found.as_deref() == Some("t"))
        });
        server.kill9().unwrap();
        let words = announced.recv_timeout(testing::PATIENCE).expect("the wait is announced");
        assert!(words.contains("waiting for"), "{words}");
        server.start_again().unwrap();
        running.join().unwrap()
    });
    assert!(report.rows.pairs >= 30 && report.predicates.pairs >= 30, "{report:?}");
    assert_eq!((report.rows.both, report.predicates.both), (0, 0), "{report:?}");
    let notes = site.take_notes();
    assert!(notes.iter().any(|note| note.contains("were cut off")), "{notes:?}");
    let promises = promise::skew(&site, &report, &Settings::default(), Isolation::Serializable, "");
    assert!(promises.iter().all(|promise| promise.standing == Standing::Kept), "{promises:?}");
    drop((site, server, journal));
    std::fs::remove_dir_all(dir).unwrap();
}

/// Logical replication both ways: rows that every node writes diverge, rows that have an owner do not.
#[test]
fn a_multimaster_diverges_under_contention_and_converges_under_ownership() {
    let installation = newest();
    if installation.version.major < 16 {
        let why = "only there subscriptions can leave out what came by replication";
        return testing::skip(&testing::Lack::new("postgres-16", why));
    }
    let (dir, journal) = journal("conflict");
    let cluster = ThrowawayCluster::multimaster(&installation, 2).unwrap();
    let site = site_of(&cluster, &journal);
    let found = (0..10).find_map(|_| {
        let report = conflict::run(&site, &options(Isolation::ReadCommitted, 1.0), &no_stop()).unwrap();
        assert!(report.owned.is_whole() && report.owned.acknowledged > 0, "{report:?}");
        (!report.contended.is_whole()).then_some(report)
    });
    let report = found.expect("no conflict was seen");
    assert!(report.contended.overwritten > 0 || report.contended.diverged > 0, "{report:?}");
    let promises = promise::conflict(&site, &report, &Settings::default(), "");
    assert_eq!(promises[0].standing, Standing::Kept, "{promises:?}");
    assert_eq!(promises[1].standing, Standing::ByDesign, "{promises:?}");
    drop((site, cluster, journal));
    std::fs::remove_dir_all(dir).unwrap();
}

/// Writes are away between the kill and the promotion, and back after it; what was answered by the survivor stays. A standby shows what was acknowledged
/// later than the acknowledgement, unless remote_apply is waited for.
#[test]
fn heartbeats_tell_how_long_writes_are_away_and_how_old_a_standby_is() {
    let (dir, journal) = journal("hb");
    let cluster = ThrowawayCluster::replicated(&newest(), 1, "FIRST 1 (s1)").unwrap();
    let mut site = site_of(&cluster, &journal);
    site.use_links();
    let mut calm = options(Isolation::ReadCommitted, 3.5);
    calm.settings.push(("synchronous_commit".to_owned(), "remote_apply".to_owned()));
    let report = heartbeat::run(&site, &calm, &no_stop()).unwrap();
    let settings = Settings::of(&site.entry(), &calm).unwrap();
    assert_eq!(settings.synchronous_commit, "remote_apply");
    assert!(report.staleness[0].reads > 0 && report.staleness[0].stale == 0, "{report:?}");
    let promises = promise::heartbeat(&site, &report, &settings, "");
    assert!(promises.iter().all(|promise| promise.standing == Standing::Kept), "{promises:?}");
    assert!(promises.iter().all(|promise| promise.control.as_ref().is_some_and(|control| control.seen > 0)));
    // The standby's answer is waited for: one round trip.
    calm.duration = Duration::from_millis(800);
    let found = (0..10).any(|_| {
        let report = wide::run(&site, &calm, settings.waits_for_standbys(), &no_stop()).unwrap();
        assert_eq!(report.costs[0].predicted, 1.0, "{report:?}");
        promise::wide(&report, "")[0].standing == Standing::Kept
    });
    assert!(found, "no ten measurements came to one round trip");
    let mut failover = options(Isolation::ReadCommitted, 6.0);
    failover.plan = Plan::parse("kill@0.6s,promote@0.8s").unwrap();
    let report = heartbeat::run(&site, &failover, &no_stop()).unwrap();
    assert!(report.happened.iter().all(|one| one.error.is_none()), "{:?}", report.happened);
    let [write, read] = report.shards[0].outages[0];
    // Not before the promotion was asked for.
    assert!(write.back_us.unwrap() >= 190_000 && read.back_us.is_some(), "{report:?}");
    assert!(write.unavailable_s > 0.1, "{report:?}");
    assert_eq!(report.shards[0].doomed, 0, "{report:?}");
    drop((site, cluster, journal));
    std::fs::remove_dir_all(dir).unwrap();
}

//! Failover while driving: the primary of a replicated cluster goes away, is restarted, is demoted, or waits for a standby that is gone. Sessions follow, the
//! books stay right, and what it cost is told. On every PostgreSQL found, each scenario on a cluster of its own.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use connect::conninfo::{Pinned, Sources};
use lab::throwaway::{StopMode, Throwaway, ThrowawayCluster, installations};
use run::control::{Cause, StopFlag};
use run::dial::TargetDial;
use run::drive::{Account, Observer, Options, Second, drive};
use run::engine::poller::Choice;
use run::engine::{NANOS_PER_SECOND, Nanos};
use run::schedule::Pace;
use run::script::{Mix, Options as ScriptOptions, Predefined, QueryMode, Source};
use run::verdict;
use run::workload;
use run::workload::script::Scripts;
use wire::prepared::Wire;

const SESSIONS: u64 = 4;
/// Arrivals of both workers.
const RATE_TPS: f64 = 40.0;
/// What must be over by then, on the slowest machine.
const SECONDS_MAX: u64 = 90;

/// One row for each transaction, so that what was acknowledged can be counted.
fn marks() -> workload::Mix<Scripts> {
    let source = Source {
        name: "mark.sql".into(),
        text: "INSERT INTO marks (session) VALUES (:client_id);\n".into(),
        weight: 1,
    };
    let mode = QueryMode::Prepared;
    let mix = Mix::compile(&[source], &ScriptOptions { mode, defines: Vec::new() }).unwrap();
    let predefined = Predefined { client_id: 0, scale: 1, random_seed: 1, default_seed: 1 };
    workload::Mix::of(Scripts::new(Arc::new(mix), mode, predefined)).unwrap()
}

/// In which second, and what. In a thread of its own: whoever hears of the seconds must not hold them up.
type Disturbance = (usize, fn(&mut ThrowawayCluster));

/// Hears of every second; ends the run once the disturbance is over and long enough ago, or when it takes far too long.
struct Watch {
    cluster: Arc<Mutex<ThrowawayCluster>>,
    seconds: usize,
    disturb: &'static [Disturbance],
    is_disturbed: bool,
    good: usize,
    stop: Arc<StopFlag>,
}

/// The second in which the disturbance comes, and the good ones after which the run ends: enough to see that throughput is back.
const DISTURBED_AT: usize = 4;
const GOOD_SECONDS: usize = 6;

impl Observer for Watch {
    fn begins(&mut self, _begin: Nanos) {}

    fn second(&mut self, second: &Second<'_>) {
        self.seconds += 1;
        for (_, act) in self.disturb.iter().filter(|(second, _)| *second == self.seconds) {
            let cluster = Arc::clone(&self.cluster);
            std::thread::spawn(move || act(&mut cluster.lock().unwrap()));
        }
        self.is_disturbed |= second.posted.measured.transactions() < 5 || second.connected == 0;
        let is_good = second.posted.measured.transactions() > 5 && self.seconds > DISTURBED_AT;
        self.good = if is_good { self.good + 1 } else { 0 };
        if self.good == GOOD_SECONDS {
            self.stop.request();
        }
    }
}

/// Drives a cluster with one standby while `disturb` does its work in the fourth second; gives the account, what the books of the table say, and the cluster.
fn follow(
    installation: &lab::throwaway::Installation,
    sync: &str,
    disturb: &'static [Disturbance],
) -> (Account, Arc<Mutex<ThrowawayCluster>>) {
    let cluster = ThrowawayCluster::replicated(installation, 1, sync).unwrap();
    // A transaction takes its time, so that throughput is the target's and not the noise of a busy machine.
    cluster
        .node(0)
        .execute(
            "create table marks (id bigint generated always as identity, session int);
             create function pace() returns trigger language plpgsql as 'begin perform pg_sleep(0.02); return new; end';
             create trigger pace before insert on marks for each row execute function pace()",
        )
        .unwrap();
    // A script of the user's has the user's search path.
    let spec = cluster.file().entry(&Sources::of_process()).unwrap().spec.with_pinned(Pinned::Nothing);
    let cluster = Arc::new(Mutex::new(cluster));
    let stop = Arc::new(StopFlag::default());
    let mut watch = Watch {
        cluster: Arc::clone(&cluster),
        seconds: 0,
        disturb,
        is_disturbed: false,
        good: 0,
        stop: Arc::clone(&stop),
    };
    let options = Options {
        mix: marks(),
        sessions: SESSIONS,
        workers: 2,
        // A rate that the busiest machine keeps: whether throughput is back depends on the target alone.
        pace: Pace::Regular { per_second: RATE_TPS / 2.0 },
        duration: Some(Duration::from_secs(SECONDS_MAX)),
        warmup: Duration::ZERO,
        transactions_per_session: None,
        latency_limit: None,
        tries_max: 1,
        wire: Wire::Libpq,
        poller: Choice::Auto,
        seed: 3,
        connects: Default::default(),
        first_session: 0,
    };
    let account = drive(options, Arc::new(TargetDial::new(spec)), &stop, &mut watch).unwrap();
    assert!(watch.is_disturbed, "the disturbance was felt");
    (account, cluster)
}

/// No transaction is counted twice, and none that was acknowledged is missing: with a synchronous standby that holds across a failover.
fn check_books(account: &Account, survivor: &Throwaway) {
    let measured = &account.posted.measured;
    assert_eq!(account.scheduled, measured.started + account.skipped + account.unstarted);
    assert_eq!(measured.started, measured.transactions() + measured.failed() + account.unfinished);
    let begun: u64 = account.sessions.iter().map(|session| session.transactions).sum();
    assert_eq!(begun, measured.started);
    let rows: BTreeMap<u64, u64> = survivor
        .execute("select session, count(*) from marks group by session")
        .unwrap()
        .into_iter()
        .map(|row| (row[0].as_ref().unwrap().parse().unwrap(), row[1].as_ref().unwrap().parse().unwrap()))
        .collect();
    for (number, session) in (0..).zip(&account.sessions) {
        let exceptions = session.exceptions.len() as u64;
        let known_failed =
            session.exceptions.iter().filter(|exception| exception.is_known_failed).count() as u64;
        let rows = rows.get(&number).copied().unwrap_or(0);
        let acknowledged = session.transactions - exceptions;
        // The outcome of a transaction under way when its connection went is known to nobody: it may be there or not.
        let at_most = session.transactions - known_failed;
        assert!(
            (acknowledged..=at_most).contains(&rows),
            "session {number}: {acknowledged} acknowledged, {rows} there, at most {at_most}"
        );
    }
}

fn seconds(from: Nanos, to: Nanos) -> f64 {
    (to - from) as f64 / NANOS_PER_SECOND as f64
}

#[test]
fn sessions_follow_to_the_new_primary_when_the_old_one_is_lost() {
    std::thread::scope(|scope| {
        for installation in installations() {
            scope.spawn(move || {
                let (account, cluster) = follow(
                    &installation,
                    "FIRST 1 (s1)",
                    &[(DISTURBED_AT, |cluster| {
                        cluster.node_mut(0).kill9().unwrap();
                        cluster.node(1).value("select pg_promote()").unwrap();
                    })],
                );
                let cluster = cluster.lock().unwrap();
                check_books(&account, cluster.node(1));
                assert_eq!(account.outages.len(), 1, "{:?}", account.outages);
                let outage = &account.outages[0];
                assert_eq!(outage.cause, Cause::Disconnected);
                let length = seconds(outage.from, outage.to.unwrap());
                assert!(length > 0.0 && length < 60.0, "{length} s");
                assert!(outage.tps_before.unwrap() > 10.0, "{outage:?}");
                let back = outage.back.expect("95 % is reached again");
                assert!(back >= outage.to.unwrap());
                assert_eq!((account.lost, account.reconnected), (SESSIONS, SESSIONS));
                let (old, new) = (cluster.node(0).spec(), cluster.node(1).spec());
                let there: Vec<&str> = account.moves.iter().map(|change| change.to.as_str()).collect();
                assert_eq!(there, [old.hosts[0].to_string(), new.hosts[0].to_string()]);
                let note = verdict::judge(&account, None)
                    .notes
                    .into_iter()
                    .find(|note| note.starts_with("outage of"))
                    .unwrap();
                assert!(note.contains(&format!("sessions went on at {}", new.hosts[0])), "{note}");
                assert!(note.contains("back to 95 % of"), "{note}");
                for error in &account.posted.errors {
                    let class = &error.sqlstate.as_str()[..2];
                    assert!(class == "57" || class == "08", "{error:?}");
                }
            });
        }
    });
}

#[test]
fn sessions_come_back_to_a_primary_that_restarts() {
    std::thread::scope(|scope| {
        for installation in installations() {
            scope.spawn(move || {
                let (account, cluster) = follow(
                    &installation,
                    "async",
                    &[(DISTURBED_AT, |cluster| {
                        cluster.node_mut(0).stop(StopMode::Fast).unwrap();
                        cluster.node_mut(0).start_again().unwrap();
                    })],
                );
                let cluster = cluster.lock().unwrap();
                check_books(&account, cluster.node(0));
                assert_eq!(account.outages.len(), 1, "{:?}", account.outages);
                assert!(
                    account.outages[0].message.contains("administrator command"),
                    "{:?}",
                    account.outages
                );
                assert!(account.outages[0].back.is_some());
                assert_eq!(account.moves.len(), 1, "the standby was never the right one");
                for error in &account.posted.errors {
                    let class = &error.sqlstate.as_str()[..2];
                    assert!(class == "57" || class == "08", "{error:?}");
                }
            });
        }
    });
}

/// Nobody ends a connection here: the old primary only stops to take writes, as managed services do it.
#[test]
fn sessions_leave_a_primary_that_takes_no_writes_any_more() {
    std::thread::scope(|scope| {
        for installation in installations() {
            scope.spawn(move || {
                let (account, cluster) = follow(
                    &installation,
                    "async",
                    &[(DISTURBED_AT, |cluster| {
                        let demote = "alter system set default_transaction_read_only = on";
                        cluster.node(0).execute(demote).unwrap();
                        cluster.node(0).reload().unwrap();
                        // Until new sessions have it, some of ours may still write there.
                        let shown = "show default_transaction_read_only";
                        let begin = std::time::Instant::now();
                        while cluster.node(0).value(shown).unwrap().as_deref() != Some("on") {
                            assert!(begin.elapsed() < Duration::from_secs(60), "the setting was not read");
                            std::thread::sleep(Duration::from_millis(5));
                        }
                        std::thread::sleep(Duration::from_millis(1_500));
                        cluster.node(1).value("select pg_promote()").unwrap();
                    })],
                );
                let cluster = cluster.lock().unwrap();
                check_books(&account, cluster.node(1));
                assert!(account.posted.errors.iter().any(|error| error.sqlstate.as_str() == "25006"));
                assert_eq!(account.moves.len(), 2, "{:?}", account.moves);
                assert!(account.outages.iter().all(|outage| outage.to.is_some()), "{:?}", account.outages);
            });
        }
    });
}

/// Sessions stay connected, and every commit waits: a stall, over when the standby is back.
#[test]
fn a_primary_that_waits_for_its_standby_is_a_stall() {
    std::thread::scope(|scope| {
        for installation in installations() {
            scope.spawn(move || {
                let (account, cluster) = follow(
                    &installation,
                    "FIRST 1 (s1)",
                    &[
                        (DISTURBED_AT, |cluster| cluster.node_mut(1).kill9().unwrap()),
                        (DISTURBED_AT + 3, |cluster| {
                            let cancel = "select pg_cancel_backend(pid) from pg_stat_activity where wait_event = 'SyncRep'";
                            cluster.node(0).execute(cancel).unwrap();
                            cluster.node_mut(1).start_again().unwrap();
                        }),
                    ],
                );
                let cluster = cluster.lock().unwrap();
                check_books(&account, cluster.node(0));
                assert_eq!(account.lost, 0);
                assert_eq!(account.outages.len(), 1, "{:?}", account.outages);
                // Whoever waited was told "COMMIT", and only a warning said that nobody else has it.
                assert!((1..=SESSIONS).contains(&account.weak_commits), "{}", account.weak_commits);
                let stall = &account.outages[0];
                assert_eq!(stall.cause, Cause::Stalled);
                assert!(seconds(stall.from, stall.to.unwrap()) >= 1.0 && stall.back.is_some(), "{stall:?}");
                assert!(
                    verdict::judge(&account, None).notes.iter().any(|note| note.starts_with("stall of")),
                    "{:?}",
                    verdict::judge(&account, None)
                );
            });
        }
    });
}

//! `load tpcc` killed, cut off from its server, and run twice at once: the tables are those of the ledger at every moment, and another
//! load completes them.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use crate::support;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use connect::ConnSpec;
use engines::Cluster;
use lab::throwaway::{Installation, Throwaway, installations};
use load::verify::Verdict;
use load::{LoadError, LoadEvent, LoadReport, Observer, Options, Outcome, Progress, Stop};
use postgres::Client;
use support::random::Random;
use support::tpcc::{options, verify_tpcc};
use workloads::tpcc::{Tpcc, find};

/// What the loading process is told in its environment: socket folder, port.
const CHILD: &str = "PGFATHOM_TEST_TPCC_LOADER";

/// Kills per load.
fn kills() -> u64 {
    if testing::is_thorough("8 kills of a load of TPC-C: 5 of them") { 8 } else { 5 }
}

fn each_postgres(test: impl Fn(&Installation) + Sync) {
    testing::on_each(&installations(), test);
}

fn load_tpcc(target: &ConnSpec, observer: &mut dyn Observer) -> Result<LoadReport, LoadError> {
    let dataset = Tpcc::new(2, 1, true, None);
    let asked = Options { reconnect_limit: Duration::from_secs(60), ..options() };
    load::load(&Cluster::single(target.clone()), &dataset, &asked, &Stop::new(), observer)
}

/// Remembers what happened.
#[derive(Default)]
struct Notes(Vec<LoadEvent>);

impl Observer for Notes {
    fn progress(&mut self, _: &Progress, _: &record::ProgressSample, _: Duration) {}
    fn event(&mut self, event: &LoadEvent) {
        self.0.push(event.clone());
    }
}

/// The other half of the tests that kill a process: this program, started again by [`spawn_loader`].
#[test]
#[ignore = "the process that other tests of this file start and kill"]
fn tpcc_loader_process() {
    let order = std::env::var(CHILD).expect("started by another test");
    let (dir, port) = order.rsplit_once(' ').unwrap();
    let target = ConnSpec::unix(Path::new(dir), port.parse().unwrap(), "postgres", "postgres");
    load_tpcc(&target, &mut Notes::default()).unwrap();
}

fn spawn_loader(cluster: &Throwaway) -> Child {
    testing::again(module_path!(), "tpcc_loader_process")
        .arg("--ignored")
        .env(CHILD, format!("{} {}", cluster.socket_dir().display(), cluster.port()))
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .spawn()
        .expect("the test program starts again")
}

fn connect(target: &ConnSpec) -> Client {
    connect::control::connect(target).expect("the cluster accepts connections").into_client()
}

/// Rows of all tables and rows and chunks of the ledger, seen by one snapshot; `None` before they exist.
fn rows_and_ledger(client: &mut Client) -> Option<(i64, i64, i64)> {
    let row = client.query_one(
        "select (select count(*) from warehouse) + (select count(*) from district) + (select count(*) from customer)
              + (select count(*) from history) + (select count(*) from new_order) + (select count(*) from orders)
              + (select count(*) from order_line) + (select count(*) from item) + (select count(*) from stock),
                sum(rows)::bigint, count(*) from pgfathom.chunk",
        &[],
    );
    let row = row.ok()?;
    Some((row.get(0), row.get::<_, Option<i64>>(1).unwrap_or(0), row.get(2)))
}

/// Waits until the ledger holds at least this many chunks, or the load has ended.
fn await_chunks(client: &mut Client, chunks: i64, mut is_over: impl FnMut() -> bool) {
    testing::wait_for("so many chunks", || {
        let found = client.query_one("select count(*) from pgfathom.chunk", &[]);
        found.is_ok_and(|row| row.get::<_, i64>(0) >= chunks) || is_over()
    });
}

fn assert_exact(target: &ConnSpec) {
    let report = verify_tpcc(target, false).unwrap();
    assert_eq!(report.verdict(), Verdict::Exact, "{:?}", report.differences);
    let mut client = connect(target);
    let found = find(&mut client).unwrap().expect("a dataset");
    assert!(found.dataset.loaded);
    assert_eq!(report.rows_found, found.dataset.rows);
    let row = client
        .query_one(
            "select count(*) filter (where contype = 'f' and convalidated), count(*) filter (where contype = 'p')
             from pg_constraint where connamespace = 'public'::regnamespace",
            &[],
        )
        .unwrap();
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (10, 8), "foreign and primary keys");
}

#[test]
fn a_load_survives_kill_at_any_moment() {
    each_postgres(|installation| {
        let cluster = Throwaway::start(installation, &[]).unwrap();
        let mut client = connect(&cluster.spec());
        let (mut random, kills) = (Random::new(), kills());
        let (mut last, mut in_copy) = (0, 0);
        for kill in 0..kills {
            let mut child = spawn_loader(&cluster);
            // The first ones while it prepares, the others while chunks, keys and foreign keys are made.
            if kill > 1 {
                await_chunks(&mut client, last + 1, || child.try_wait().unwrap().is_some());
            }
            std::thread::sleep(Duration::from_micros(random.below(300_000)));
            child.kill().unwrap();
            let status = child.wait().unwrap();
            if let Some((rows, ledger, chunks)) = rows_and_ledger(&mut client) {
                assert_eq!(rows, ledger, "kill {kill}: rows are those of the ledger");
                assert!(chunks >= last, "kill {kill}: what was safe stays safe");
                in_copy += u64::from(chunks < 7 && !status.success());
                last = chunks;
            }
        }
        println!("{in_copy} of {kills} kills hit rows under way, {last} of 7 chunks were safe at the end");
        assert!(in_copy >= 2, "only {in_copy} kills hit the copy phase");
        load_tpcc(&cluster.spec(), &mut Notes::default()).unwrap();
        assert_exact(&cluster.spec());
    });
}

#[test]
fn a_server_that_crashes_is_waited_for() {
    each_postgres(|installation| {
        let mut cluster = Throwaway::start(installation, &[]).unwrap();
        let target = cluster.spec();
        let mut notes = Notes::default();
        let report = std::thread::scope(|scope| {
            let loader = scope.spawn(|| load_tpcc(&target, &mut notes));
            await_chunks(&mut connect(&target), 2, || false);
            cluster.kill9().unwrap();
            std::thread::sleep(Duration::from_millis(300));
            cluster.start_again().unwrap();
            loader.join().unwrap()
        });
        assert_eq!(report.unwrap().outcome, Outcome::Complete);
        assert!(notes.0.iter().any(|event| event.kind == record::event::RECONNECT));
        assert_exact(&target);
    });
}

#[test]
fn two_loaders_at_once_load_everything_once() {
    each_postgres(|installation| {
        let cluster = Throwaway::start(installation, &[]).unwrap();
        let target = cluster.spec();
        let load = || load_tpcc(&target, &mut Notes::default()).unwrap();
        let reports =
            std::thread::scope(|scope| [scope.spawn(load), scope.spawn(load)].map(|it| it.join().unwrap()));
        assert!(reports.iter().all(|report| report.totals.chunks == 7), "{reports:?}");
        assert_exact(&target);
    });
}

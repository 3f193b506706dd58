//! Loads that are killed, stopped, cut off from their server or run into a full disk: whatever happens, the target is exact at once and
//! complete after another load.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use crate::support;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use connect::ConnSpec;
use lab::throwaway::{Installation, StopMode, Throwaway};
use load::{LoadError, Method, Outcome, Stop};
use postgres::Client;
use support::random::Random;
use support::{Notes, Options, assert_exact, connect, each_postgres, load, load_ycsb, options, spec, start};
use workloads::ycsb::dataset as ycsb;

/// What the loading process is told in its environment: socket folder, port, rows, partitions, method.
const CHILD: &str = "PGFATHOM_TEST_LOADER";

/// Kills per load.
fn kills() -> u64 {
    if testing::is_thorough("20 kills of each load: 10 of them") { 20 } else { 10 }
}

/// The other half of the tests that kill a process: this program, started again by [`spawn_loader`].
#[test]
#[ignore = "the process that other tests of this file start and kill"]
fn loader_process() {
    let order = std::env::var(CHILD).expect("started by another test");
    let parts: Vec<&str> = order.split(' ').collect();
    let [dir, port, rows, partitions, method] = parts[..] else { panic!("{order}") };
    let target = ConnSpec::unix(Path::new(dir), port.parse().unwrap(), "postgres", "postgres");
    let asked = loader_options(rows.parse().unwrap(), partitions.parse().unwrap(), method.parse().unwrap());
    let (stop, signalled) = (Stop::new(), Arc::new(AtomicBool::new(false)));
    signal_hook::flag::register(signal_hook::consts::SIGTERM, signalled.clone()).unwrap();
    let outcome = std::thread::scope(|scope| {
        let (ends, stop) = (testing::Stop::new(), &stop);
        let over = ends.flag();
        scope.spawn(move || {
            while !over.load(Ordering::Relaxed) {
                if signalled.swap(false, Ordering::Relaxed) {
                    stop.request();
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        load_ycsb(&target, &asked, stop, &mut Notes::default()).unwrap().outcome
    });
    std::process::exit(if outcome == Outcome::Interrupted { 130 } else { 0 });
}

fn loader_options(rows: u64, partitions: u32, method: Method) -> Options {
    Options { method: Some(method), streams: 2, chunk_rows: Some(300), ..options(rows, partitions) }
}

fn spawn_loader(cluster: &Throwaway, rows: u64, partitions: u32, method: Method) -> Child {
    let order = format!("{} {} {rows} {partitions} {method}", cluster.socket_dir().display(), cluster.port());
    testing::again(module_path!(), "loader_process")
        .arg("--ignored")
        .env(CHILD, order)
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .spawn()
        .expect("the test program starts again")
}

/// Rows in the table and rows in the ledger, seen by one snapshot; `None` before they exist.
fn rows_and_ledger(client: &mut Client) -> Option<(i64, i64)> {
    let row = client
        .query_one(
            "select (select count(*) from usertable),
                    (select coalesce(sum(rows), 0)::bigint from pgfathom.chunk)",
            &[],
        )
        .ok()?;
    Some((row.get(0), row.get(1)))
}

/// Waits until the ledger holds at least this many chunks.
fn await_chunks(client: &mut Client, chunks: i64) {
    await_chunks_or(client, chunks, || false);
}

/// The same, or until `over` says that they will not come.
fn await_chunks_or(client: &mut Client, chunks: i64, mut over: impl FnMut() -> bool) {
    testing::wait_for("so many chunks", || {
        let found = client.query_one("select count(*) from pgfathom.chunk", &[]);
        found.is_ok_and(|row| row.get::<_, i64>(0) >= chunks) || over()
    });
}

/// `step`: a load may commit this many chunks before it is killed at a moment that nobody chooses.
fn killed_at_random_moments(
    installation: &Installation,
    method: Method,
    rows: u64,
    partitions: u32,
    step: u64,
) {
    let cluster = start(installation);
    let mut client = connect(&cluster.spec());
    let (mut random, kills) = (Random::new(), kills());
    let (mut in_copy, mut last) = (0, 0);
    for kill in 0..kills {
        let chunks = load::ledger::find_dataset(&mut client, ycsb::NAME)
            .unwrap()
            .map_or(0, |dataset| load::ledger::chunk_totals(&mut client, dataset.id).unwrap().chunks);
        let mut child = spawn_loader(&cluster, rows, partitions, method);
        // The first ones come before the first rows: while the process starts, connects and makes the tables.
        if kill >= kills / 5 {
            let goal = (chunks + 1 + random.below(step)) as i64;
            await_chunks_or(&mut client, goal, || child.try_wait().unwrap().is_some());
        }
        std::thread::sleep(Duration::from_micros(random.below(30_000)));
        child.kill().unwrap();
        let status = child.wait().unwrap();
        if let Some((table, ledger)) = rows_and_ledger(&mut client) {
            assert_eq!(table, ledger, "kill {kill}: rows are those of the ledger");
            assert!(ledger >= last, "kill {kill}: what was safe stays safe");
            in_copy += u64::from(ledger > last && (ledger as u64) < rows && !status.success());
            last = ledger;
        }
    }
    println!("{in_copy} of {kills} kills hit rows under way, {last} of {rows} rows were safe at the end");
    assert!(in_copy >= kills / 2, "only {in_copy} kills hit the copy phase");
    let report = load(&cluster.spec(), &loader_options(rows, partitions, method)).unwrap();
    assert_eq!(report.totals.rows, rows);
    assert_exact(&cluster.spec(), rows, partitions, &spec(1), true);
}

#[test]
fn a_copy_load_survives_kill_at_any_moment() {
    each_postgres(|installation| {
        killed_at_random_moments(installation, Method::Copy, 60_013, 3, 8);
    });
}

#[test]
fn a_plain_table_survives_kill_at_any_moment() {
    each_postgres(|installation| {
        killed_at_random_moments(installation, Method::Copy, 90_021, 0, 8);
    });
}

#[test]
fn a_freeze_load_survives_kill_at_any_moment() {
    each_postgres(|installation| {
        killed_at_random_moments(installation, Method::Freeze, 20_011, 100, 3);
    });
}

#[test]
fn sigterm_ends_the_load_soon_and_exactly() {
    each_postgres(|installation| {
        let cluster = start(installation);
        let mut client = connect(&cluster.spec());
        for (method, wait_for) in [(Method::Copy, 20), (Method::Freeze, 3)] {
            let (rows, partitions) = (80_021, 40);
            let mut child = spawn_loader(&cluster, rows, partitions, method);
            await_chunks(&mut client, wait_for);
            let pid = rustix::process::Pid::from_child(&child);
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
            let status: ExitStatus = child.wait().unwrap();
            assert_eq!(status.code(), Some(130), "{method}: it says that it was interrupted");
            let (table, ledger) = rows_and_ledger(&mut client).unwrap();
            assert_eq!(table, ledger);
            assert!(ledger > 0 && (ledger as u64) < rows);
            let report = load(&cluster.spec(), &loader_options(rows, partitions, method)).unwrap();
            assert_eq!(report.rows, rows - ledger as u64, "{method}: only the rest is loaded");
            assert_exact(&cluster.spec(), rows, partitions, &spec(1), true);
            client.batch_execute("drop table usertable; drop schema pgfathom cascade").unwrap();
        }
    });
}

/// How a server goes away.
#[derive(Clone, Copy, Debug)]
enum Outage {
    Fast,
    Immediate,
    Kill9,
    /// An administrator ends the loading sessions.
    Terminate,
}

#[test]
fn a_server_that_goes_away_and_comes_back_is_survived() {
    each_postgres(|installation| {
        let mut cluster = start(installation);
        let target = cluster.spec();
        for (method, outage) in [
            (Method::Copy, Outage::Fast),
            (Method::Copy, Outage::Immediate),
            (Method::Copy, Outage::Kill9),
            (Method::Copy, Outage::Terminate),
            (Method::Freeze, Outage::Immediate),
            (Method::Freeze, Outage::Terminate),
        ] {
            let is_like_another = matches!(
                (method, outage),
                (Method::Copy, Outage::Immediate) | (Method::Freeze, Outage::Terminate)
            );
            if is_like_another && !testing::is_thorough("each outage with each method") {
                continue;
            }
            let (rows, partitions) = (60_017, 20);
            let asked = loader_options(rows, partitions, method);
            let mut notes = Notes::default();
            let report = std::thread::scope(|scope| {
                let loader = scope.spawn(|| load_ycsb(&target, &asked, &Stop::new(), &mut notes));
                let mut client = connect(&target);
                await_chunks(&mut client, if method == Method::Copy { 5 } else { 2 });
                match outage {
                    Outage::Fast => cluster.stop(StopMode::Fast).unwrap(),
                    Outage::Immediate => cluster.stop(StopMode::Immediate).unwrap(),
                    Outage::Kill9 => cluster.kill9().unwrap(),
                    Outage::Terminate => {
                        let ended = client
                            .query(
                                "select pg_terminate_backend(pid) from pg_stat_activity
                                 where backend_type = 'client backend' and pid <> pg_backend_pid()",
                                &[],
                            )
                            .unwrap();
                        assert!(ended.len() >= 2, "two streams and their coordinator");
                    }
                }
                if !matches!(outage, Outage::Terminate) {
                    std::thread::sleep(Duration::from_millis(300));
                    cluster.start_again().unwrap();
                }
                loader.join().unwrap()
            });
            let report = report.unwrap_or_else(|error| panic!("{method} {outage:?}: {error}"));
            assert_eq!(report.outcome, Outcome::Complete);
            assert!(report.retries > 0, "{method} {outage:?}: a chunk was begun again");
            assert_eq!(report.totals.rows, rows);
            assert!(notes.events.iter().any(|event| event.kind == record::event::RECONNECT));
            assert_exact(&target, rows, partitions, &spec(1), true);
            cluster.execute("drop table usertable; drop schema pgfathom cascade").unwrap();
        }
    });
}

#[test]
fn a_server_that_stays_away_is_given_up_and_continued_later() {
    each_postgres(|installation| {
        let mut cluster = start(installation);
        let target = cluster.spec();
        let asked =
            Options { reconnect_limit: Duration::from_secs(2), ..loader_options(60_029, 3, Method::Copy) };
        let error = std::thread::scope(|scope| {
            let loader = scope.spawn(|| load(&target, &asked));
            await_chunks(&mut connect(&target), 5);
            cluster.stop(StopMode::Immediate).unwrap();
            loader.join().unwrap().unwrap_err()
        });
        assert!(matches!(error, LoadError::ServerLost { .. }), "{error}");
        assert!(error.to_string().contains("and not restored"), "{error}");
        assert!(error.hint().unwrap().contains("same command again"));
        cluster.start_again().unwrap();
        load(&target, &asked).unwrap();
        assert_exact(&target, 60_029, 3, &spec(1), true);
    });
}

/// Waits until somebody waits for an exclusive lock on the table.
fn await_blocked(client: &mut Client, table: &str) {
    let waits = "select exists (select from pg_locks where relation = $1::text::regclass and not granted)";
    testing::wait_for("somebody who wants the lock", || {
        client.query_one(waits, &[&table]).unwrap().get::<_, bool>(0)
    });
}

#[test]
fn keys_are_continued_after_a_stop_and_after_a_restart() {
    each_postgres(|installation| {
        let mut cluster = start(installation);
        let target = cluster.spec();
        let (rows, partitions) = (9_001, 4);
        let asked = loader_options(rows, partitions, Method::Copy);
        // Somebody reads one leaf for a long time, so that its key has to wait.
        let hold = |client: &mut Client| {
            await_chunks(client, 1);
            client.batch_execute("begin; lock table usertable_p1 in access share mode").unwrap();
        };
        let stop = Stop::new();
        let mut notes = Notes::default();
        let heard = notes.heard.clone();
        let report = std::thread::scope(|scope| {
            let loader = scope.spawn(|| load_ycsb(&target, &asked, &stop, &mut notes).unwrap());
            let mut reader = connect(&target);
            hold(&mut reader);
            await_blocked(&mut connect(&target), "usertable_p1");
            heard.wait_for("progress Index, percent known");
            stop.request();
            loader.join().unwrap()
        });
        assert_eq!((report.outcome, report.totals.rows), (Outcome::Interrupted, rows));
        let progress = notes.last.unwrap();
        assert_eq!(progress.phase, load::Phase::Index);
        assert!(progress.percent.is_some_and(|percent| (0.0..100.0).contains(&percent)), "{progress:?}");
        assert_exact(&target, rows, partitions, &spec(1), false);

        let report = std::thread::scope(|scope| {
            let mut reader = connect(&target);
            hold(&mut reader);
            let loader = scope.spawn(|| load(&target, &asked).unwrap());
            await_blocked(&mut connect(&target), "usertable_p1");
            cluster.stop(StopMode::Immediate).unwrap();
            cluster.start_again().unwrap();
            loader.join().unwrap()
        });
        assert_eq!((report.outcome, report.rows), (Outcome::Complete, 0));
        assert_exact(&target, rows, partitions, &spec(1), true);
    });
}

/// A file system of its own in memory; unmounted at the end.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(name: &str, owner: u32, mib: u32) -> SmallDisk {
        let path = std::env::temp_dir().join(format!("pgfathom-disk-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        let disk = SmallDisk(path);
        let options = format!("size={mib}m,uid={owner},mode=0700");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &options, "none"]).arg(&disk.0).status();
        assert!(mounted.unwrap().success());
        disk
    }

    fn grow(&self, mib: u32) {
        let options = format!("remount,size={mib}m");
        let status = Command::new("mount").args(["-o", &options]).arg(&self.0).status().unwrap();
        assert!(status.success());
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).stderr(Stdio::null()).status();
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn a_full_disk_is_told_clearly_and_the_load_continues_when_there_is_space() {
    if let Err(lack) = testing::needs::mounts() {
        return testing::skip(&lack);
    }
    each_postgres(|installation| {
        let cluster = start(installation);
        let owner = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(cluster.data_dir()).unwrap());
        for method in [Method::Copy, Method::Freeze] {
            let name = format!("{}-{method}", cluster.port() + installation.version.to_string().len() as u16);
            let name = format!("{name}-{}", cluster.socket_dir().file_name().unwrap().to_string_lossy());
            let disk = SmallDisk::mount(&name, owner, 24);
            cluster
                .execute(&format!("create tablespace small_{method} location '{}'", disk.0.display()))
                .unwrap();
            let (rows, partitions) = (30_011, 6);
            let asked = Options {
                tablespaces: vec![format!("small_{method}")],
                chunk_rows: Some(1000),
                ..loader_options(rows, partitions, method)
            };
            let error = load(&cluster.spec(), &asked).unwrap_err();
            let LoadError::DiskFull { done, total, source } = &error else { panic!("{method}: {error}") };
            assert!(*done > 0 && done < total, "{method}: {done} of {total}");
            // The kernel refuses a whole block, or takes a part of one (`mdextend` in md.c).
            let words = ["No space left on device", "wrote only "];
            assert!(words.iter().any(|words| source.to_string().contains(words)), "{source}");
            assert!(error.to_string().starts_with("the server's disk is full ("), "{error}");
            assert!(error.hint().unwrap().contains("free space"));
            let (table, ledger) = rows_and_ledger(&mut connect(&cluster.spec())).unwrap();
            assert_eq!(table, ledger, "{method}");
            // Still full: the same answer, not a worse state.
            let again = load(&cluster.spec(), &asked).unwrap_err();
            assert!(matches!(again, LoadError::DiskFull { .. }), "{method}: {again}");
            disk.grow(400);
            let report = load(&cluster.spec(), &asked).unwrap();
            assert!(report.rows < rows, "{method}: only the rest is loaded");
            assert_exact(&cluster.spec(), rows, partitions, &spec(1), true);
            let outside: Vec<_> = cluster
                .execute(&format!(
                    "select relname from pg_class c left join pg_tablespace t on t.oid = c.reltablespace
                     where relname like 'usertable%' and relkind in ('r', 'i')
                       and t.spcname is distinct from 'small_{method}'"
                ))
                .unwrap();
            assert!(outside.is_empty(), "tables and indexes lie in the tablespace: {outside:?}");
            cluster
                .execute("drop table usertable; drop schema pgfathom cascade")
                .and_then(|_| cluster.execute(&format!("drop tablespace small_{method}")))
                .unwrap();
        }
    });
}

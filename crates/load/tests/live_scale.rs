//! What a load of days on a cluster meets: loaders that are killed, a node that hangs, disks and time that end, tablespaces, crashes.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

mod killed;

use crate::support;
use killed::{in_ledgers, killed_options, verified};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use connect::ConnSpec;
use connect::cluster_file::ClusterFile;
use connect::conninfo::Sources;
use engines::Cluster;
use lab::throwaway::{Installation, ThrowawayCluster};
use load::verify::{MirrorOptions, VerifyOptions, VerifyReport};
use load::{Deadline, LoadError, LoadReport, Method, Outcome, Stop, Via, ledger};
use postgres::Client;
use support::cluster::{assert_exact_on, cluster_of, rows_and_ledgers};
use support::verify_ycsb_on;
use support::{
    Notes, Options, assert_exact, connect, each_postgres, load, load_ycsb_on, options, spec, start,
};
use workloads::ycsb::dataset as ycsb;

/// Ends a load when the test ends, also when it fails.
struct Ends<'a>(&'a Stop);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.request();
    }
}

/// Stops a server process for as long as the value lives.
struct Stopped(rustix::process::Pid);

impl Stopped {
    fn new(pid: i32) -> Stopped {
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
        Stopped(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = rustix::process::kill_process(self.0, rustix::process::Signal::CONT);
    }
}

#[test]
fn a_node_that_hangs_is_named_and_holds_up_nobody() {
    each_postgres(|installation| {
        let nodes = ThrowawayCluster::sharded(installation, 3, 6).unwrap();
        let target = cluster_of(&nodes);
        let stop = Stop::new();
        let asked = Options {
            chunk_rows: Some(3_000),
            ..killed_options(20_000_000, 3_000, Method::Copy, Via::Owner)
        };
        let mut notes = Notes::default();
        let heard = notes.heard.clone();
        let report = std::thread::scope(|scope| {
            let loader = scope.spawn(|| load_ycsb_on(&target, &asked, &stop, &mut notes).unwrap());
            let ends = Ends(&stop);
            let mut clients: Vec<Client> = nodes.nodes().iter().map(|node| connect(&node.spec())).collect();
            testing::wait_for("30,000 rows", || in_ledgers(&mut clients) >= 30_000);
            let copying =
                "select pid from pg_stat_activity where query like 'copy %' and pid <> pg_backend_pid()";
            let hung: Vec<Stopped> = testing::value_of("a stream at work", || {
                let found = clients[1].query(copying, &[]).unwrap();
                (!found.is_empty())
                    .then(|| found.iter().map(|row| Stopped::new(row.get::<_, i32>(0))).collect())
            });
            let before = in_ledgers(&mut clients);
            heard.wait_for("n2 is slow: ");
            testing::wait_for("the other nodes go on", || in_ledgers(&mut clients) > before + 6_000);
            drop(hung);
            drop(ends);
            loader.join().unwrap()
        });
        assert_eq!(report.outcome, Outcome::Interrupted);
        let slow: Vec<&str> = notes
            .events
            .iter()
            .map(|event| event.message.as_str())
            .filter(|message| message.contains(" is slow: "))
            .collect();
        assert!(slow.iter().any(|message| message.starts_with("n2 is slow: ")), "{slow:?}");
        assert!(notes.samples.iter().any(
            |sample| sample.slowest_node.as_deref() == Some("n2") && sample.slowest_node_rows == Some(0)
        ));
        let mut clients: Vec<Client> = nodes.nodes().iter().map(|node| connect(&node.spec())).collect();
        let (table, ledger) = rows_and_ledgers(&mut clients);
        assert_eq!(table, ledger);
    });
}

#[test]
fn a_deadline_ends_a_load_in_order() {
    each_postgres(|installation| {
        let nodes = ThrowawayCluster::sharded(installation, 3, 6).unwrap();
        let asked = killed_options(50_000_000, 2_000, Method::Copy, Via::Owner);
        let run = |deadline: Deadline| {
            let options = Options { deadline: Some(deadline), ..asked.clone() };
            load_ycsb_on(&cluster_of(&nodes), &options, &Stop::new(), &mut Notes::default())
        };
        let report = run(Deadline::After(Duration::from_secs(4))).unwrap();
        assert_eq!(report.outcome, Outcome::Stopped);
        assert!(
            report.advice().unwrap().contains("the deadline has passed (4.0 s after the start)"),
            "{:?}",
            report.advice()
        );
        assert!(report.rows > 0, "it has loaded until then");
        // The time to connect and to read the ledgers counts, and a busy machine may need all of the first ones for it.
        let went_on = [3, 20, 60].into_iter().any(|seconds| {
            let moment = format!("select (clock_timestamp() + interval '{seconds} s')::text");
            let moment = nodes.node(0).value(&moment).unwrap().unwrap();
            let again = run(Deadline::At(moment.clone())).unwrap();
            assert_eq!(again.outcome, Outcome::Stopped);
            assert!(again.reason.unwrap().contains(&moment[..16]));
            again.totals.rows > report.totals.rows
        });
        assert!(went_on, "it went on");
        for (text, message) in [
            ("teatime", "--deadline: \"teatime\" is neither a duration nor a time"),
            ("2001-01-01", "is in the past"),
        ] {
            let error = run(Deadline::At(text.to_owned())).unwrap_err();
            assert!(error.to_string().contains(message), "{error}");
            assert!(error.hint().unwrap().contains("36h"));
        }
        let mut clients: Vec<Client> = nodes.nodes().iter().map(|node| connect(&node.spec())).collect();
        let (table, ledger) = rows_and_ledgers(&mut clients);
        assert_eq!(table, ledger);

        // The history has the rows of both loads, per node.
        let mut kept = 0;
        for (node, client) in clients.iter_mut().enumerate() {
            let dataset = ledger::find_dataset(client, ycsb::NAME).unwrap().unwrap();
            let points = ledger::history(client, dataset.id, Duration::from_secs(3600)).unwrap();
            assert!(!points.is_empty() && points.iter().all(|point| point.node == format!("n{}", node + 1)));
            kept += points.iter().map(|point| point.rows).sum::<u64>();
            assert!(points.iter().all(|point| point.bytes == point.rows * 1022));
            let loaders: i64 =
                client.query_one("select count(distinct loader) from pgfathom.progress", &[]).unwrap().get(0);
            assert_eq!(loaders, 2);
        }
        assert_eq!(kept as i64, ledger);
    });
}

/// A file system of its own in memory; unmounted at the end.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(name: &str, megabytes: u32) -> SmallDisk {
        let path = std::env::temp_dir().join(format!("pgfathom-disk-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        let status = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={megabytes}m,mode=0777"), "tmpfs"])
            .arg(&path)
            .status()
            .unwrap();
        assert!(status.success());
        let disk = SmallDisk(path);
        let own = Command::new("chown").arg("postgres").arg(&disk.0).status().unwrap();
        assert!(own.success());
        disk
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn a_disk_that_runs_low_ends_a_load_in_order() {
    if let Err(lack) = testing::needs::mounts() {
        return testing::skip(&lack);
    }
    each_postgres(|installation| {
        let major = installation.version.major;
        let disk = SmallDisk::mount(&format!("low-{major}"), 400);
        let nodes = ThrowawayCluster::sharded(installation, 2, 4).unwrap();
        // One disk of one node of the cluster is small.
        for node in 0..2 {
            let far = tempdir(&format!("far-{major}-{node}"));
            let path = if node == 1 { &disk.0 } else { &far.0 };
            nodes
                .node(node)
                .execute(&format!("create tablespace small location '{}'", path.display()))
                .unwrap();
            std::mem::forget(far);
        }
        let keep = 200 << 20;
        let asked = Options {
            tablespaces: vec!["small".into()],
            keep_free_bytes: Some(keep),
            ..killed_options(100_000_000, 1_000, Method::Copy, Via::Owner)
        };
        let report = load_ycsb_on(&cluster_of(&nodes), &asked, &Stop::new(), &mut Notes::default()).unwrap();
        assert_eq!(report.outcome, Outcome::Stopped);
        let advice = report.advice().unwrap();
        assert!(advice.contains("of n2, but --keep-free requires 210 MB"), "{advice}");
        assert!(report.rows > 0);
        let free = rustix::fs::statvfs(&disk.0).unwrap();
        assert!(free.f_bavail * free.f_frsize > 0, "it ended before the disk was full");
        let again = load_ycsb_on(&cluster_of(&nodes), &asked, &Stop::new(), &mut Notes::default()).unwrap();
        assert_eq!(again.outcome, Outcome::Stopped, "the same command refuses to fill the rest");
        let mut clients: Vec<Client> = nodes.nodes().iter().map(|node| connect(&node.spec())).collect();
        let (table, ledger) = rows_and_ledgers(&mut clients);
        assert_eq!(table, ledger);

        // Who may not look cannot keep the rule.
        let single = start(installation);
        single.execute("create role poor login; grant create on database postgres to poor; grant create on schema public to poor").unwrap();
        let poor = single.spec().with_user("poor");
        let error = load(&poor, &Options { keep_free_bytes: Some(1), ..options(10, 0) }).unwrap_err();
        assert!(matches!(error, LoadError::Unwatchable { .. }), "{error}");
        assert_eq!(error.to_string(), "--keep-free: the free space of the server cannot be monitored");
        assert!(error.hint().unwrap().contains("pg_execute_server_program"));
        load(&poor, &options(10, 0)).unwrap();
    });
}

/// A folder of the server's, removed at the end.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn tempdir(name: &str) -> Folder {
    let path = std::env::temp_dir().join(format!("pgfathom-ts-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    // Without the account the tests run as the server's own user.
    let _ = Command::new("chown").arg("postgres").arg(&path).status();
    Folder(path)
}

fn tablespaces(client: &mut Client) -> Vec<(String, String, String)> {
    let rows = client
        .query(
            "select c.relname::text, coalesce(t.spcname, 'pg_default')::text, coalesce(u.spcname, 'pg_default')::text
             from pg_class c left join pg_tablespace t on t.oid = c.reltablespace
             join pg_index i on i.indrelid = c.oid join pg_class x on x.oid = i.indexrelid
             left join pg_tablespace u on u.oid = x.reltablespace
             where c.relname like 'usertable\\_p%' and c.relkind = 'r' order by length(c.relname), 1",
            &[],
        )
        .unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect()
}

#[test]
fn leaves_and_their_indexes_are_dealt_out_to_tablespaces() {
    each_postgres(|installation| {
        let major = installation.version.major;
        let folders: Vec<Folder> = ["s0a", "s0b", "n0a", "n0b", "n1a", "n1b"]
            .iter()
            .map(|name| tempdir(&format!("{major}-{name}")))
            .collect();
        let make = |client: &mut Client, name: &str, folder: &Folder| {
            client
                .batch_execute(&format!("create tablespace {name} location '{}'", folder.0.display()))
                .unwrap();
        };
        let map = vec!["disk_a".to_owned(), "disk_b".to_owned()];
        let single = start(installation);
        let mut client = connect(&single.spec());
        make(&mut client, "disk_a", &folders[0]);
        make(&mut client, "disk_b", &folders[1]);
        for method in [Method::Copy, Method::Freeze] {
            let asked =
                Options { tablespaces: map.clone(), method: Some(method), restart: true, ..options(500, 5) };
            load(&single.spec(), &asked).unwrap();
            assert_exact(&single.spec(), 500, 5, &spec(1), true);
            for (leaf, (name, table, index)) in tablespaces(&mut client).into_iter().enumerate() {
                assert_eq!(name, format!("usertable_p{leaf}"));
                assert_eq!(
                    (table.as_str(), index.as_str()),
                    (map[leaf % 2].as_str(), map[leaf % 2].as_str())
                );
            }
        }
        // R0's third of January: partitions on one disk, forgotten indexes on another.
        client.batch_execute("alter index usertable_p3_pkey set tablespace disk_a; update pgfathom.dataset set loaded_at = null").unwrap();
        let error = load(&single.spec(), &options(500, 5)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "usertable_p3 is in tablespace disk_b, its index usertable_p3_pkey in disk_a"
        );
        assert!(error.hint().unwrap().contains("alter index usertable_p3_pkey set tablespace disk_b"));
        client.batch_execute("alter index usertable_p3_pkey set tablespace disk_b").unwrap();
        let other = Options { tablespaces: vec!["disk_b".into(), "disk_a".into()], ..options(500, 5) };
        let error = load(&single.spec(), &other).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("has tablespaces disk_a,disk_b, but this load specifies disk_b,disk_a"),
            "{error}"
        );
        load(&single.spec(), &options(500, 5)).unwrap();
        client.batch_execute("drop table usertable; drop schema pgfathom cascade").unwrap();

        let nodes = ThrowawayCluster::sharded(installation, 2, 6).unwrap();
        let mut clients: Vec<Client> = nodes.nodes().iter().map(|node| connect(&node.spec())).collect();
        make(&mut clients[0], "disk_a", &folders[2]);
        make(&mut clients[0], "disk_b", &folders[3]);
        make(&mut clients[1], "disk_a", &folders[4]);
        let asked = Options { tablespaces: map.clone(), partitions: None, ..options(700, 0) };
        let run =
            |asked: &Options| load_ycsb_on(&cluster_of(&nodes), asked, &Stop::new(), &mut Notes::default());
        let error = run(&asked).unwrap_err();
        assert!(error.to_string().contains("node n2 failed"), "{error}");
        assert!(error.hint().unwrap().contains("create the tablespace first (on every node"));
        make(&mut clients[1], "disk_b", &folders[5]);
        run(&asked).unwrap();
        assert_exact_on(&nodes, 700, 6, &spec(1));
        for client in &mut clients {
            let found = tablespaces(client);
            assert_eq!(found.len(), 3);
            for (place, (_, table, index)) in found.into_iter().enumerate() {
                assert_eq!(
                    (table.as_str(), index.as_str()),
                    (map[place % 2].as_str(), map[place % 2].as_str())
                );
            }
        }
    });
}

#[test]
fn unlogged_tables_are_loaded_and_their_loss_is_noticed() {
    each_postgres(|installation| {
        let mut cluster = start(installation);
        let asked = Options { unlogged: true, ..options(9_000, 3) };
        let report: LoadReport = load(&cluster.spec(), &asked).unwrap();
        assert_exact(&cluster.spec(), 9_000, 3, &spec(1), true);
        assert!(report.wal_bytes.unwrap() < 9_000 * 1022 / 2, "{:?} bytes of WAL", report.wal_bytes);
        let kinds = "select string_agg(distinct relpersistence::text, '') from pg_class where relname like 'usertable\\_p_'";
        assert_eq!(cluster.value(kinds).unwrap().as_deref(), Some("u"));
        let error = load(&cluster.spec(), &Options { rows: 9_001, ..asked.clone() }).unwrap_err();
        assert!(error.to_string().contains("has rows 9000"), "{error}");
        assert_eq!(load(&cluster.spec(), &asked).unwrap().outcome, Outcome::AlreadyComplete);

        cluster.kill9().unwrap();
        cluster.start_again().unwrap();
        let mut client = connect(&cluster.spec());
        assert_eq!(client.query_one("select count(*) from usertable", &[]).unwrap().get::<_, i64>(0), 0);
        let dataset = ledger::find_dataset(&mut client, ycsb::NAME).unwrap().unwrap();
        assert!(!dataset.loaded, "what a crash has emptied is not loaded");
        let error = load(&cluster.spec(), &asked).unwrap_err();
        assert!(matches!(error, LoadError::Emptied), "{error}");
        assert!(error.hint().unwrap().contains("--restart"));

        // In the middle of a load.
        let slow = Options { restart: true, chunk_rows: Some(300), unlogged: true, ..options(400_000, 3) };
        let target = cluster.spec();
        let error = std::thread::scope(|scope| {
            let loader = scope.spawn(|| load(&target, &slow));
            // More than the dataset before had.
            await_rows(&target, 12_000);
            cluster.kill9().unwrap();
            cluster.start_again().unwrap();
            loader.join().unwrap().unwrap_err()
        });
        assert!(matches!(error, LoadError::Emptied), "{error}");
        let small = Options { restart: true, ..asked.clone() };
        load(&cluster.spec(), &small).unwrap();
        assert_exact(&cluster.spec(), 9_000, 3, &spec(1), true);
    });
}

fn await_rows(target: &ConnSpec, rows: i64) {
    let mut client = connect(target);
    let sum = "select coalesce(sum(rows), 0)::bigint from pgfathom.chunk where dataset = (select max(id) from pgfathom.dataset)";
    testing::wait_for("so many rows", || {
        client.query_one(sum, &[]).is_ok_and(|row| row.get::<_, i64>(0) >= rows)
    });
}

#[test]
fn every_node_of_a_multimaster_is_filled_and_then_published() {
    each_postgres(|installation| {
        if installation.version.major < 16 {
            let error = ThrowawayCluster::multimaster(installation, 2).unwrap_err();
            assert!(error.to_string().contains("16"), "{error}");
            return;
        }
        let nodes = ThrowawayCluster::multimaster(installation, 3).unwrap();
        let target = cluster_of(&nodes);
        for (method, partitions, rows) in [(Method::Copy, 0, 2_003), (Method::Freeze, 4, 1_501)] {
            let asked =
                Options { restart: true, method: Some(method), streams: 4, ..options(rows, partitions) };
            let mut notes = Notes::default();
            let report = load_ycsb_on(&target, &asked, &Stop::new(), &mut notes).unwrap();
            assert_eq!(
                (report.outcome, report.rows),
                (Outcome::Complete, 3 * rows),
                "each node has all rows"
            );
            for node in nodes.nodes() {
                assert_exact(&node.spec(), rows, partitions, &spec(1), true);
            }
            let told =
                notes.events.iter().any(|event| event.message.contains("loaded on 3 nodes separately"));
            assert!(told, "{:?}", notes.events);
            let verified = verified(&target);
            assert!(verified.problems.is_empty() && verified.totals.iter().sum::<u64>() == 0, "{verified:?}");
            // Nothing was sent while it was loaded, and everything is from now on.
            nodes.node(1).execute("update usertable set field3 = 'new' where ycsb_key = (select min(ycsb_key) from usertable)").unwrap();
            let seen = "select count(*) from usertable where field3 = 'new'";
            let limit = Instant::now() + Duration::from_secs(60);
            for node in nodes.nodes() {
                while node.value(seen).unwrap().as_deref() != Some("1") {
                    assert!(Instant::now() < limit, "the update is replicated");
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
        }
        // Interrupted and continued: each ledger speaks for its own node.
        let stop = Stop::new();
        let asked = Options { restart: true, chunk_rows: Some(200), ..options(30_000, 0) };
        std::thread::scope(|scope| {
            let loader = scope.spawn(|| load_ycsb_on(&target, &asked, &stop, &mut Notes::default()));
            std::thread::sleep(Duration::from_millis(200));
            await_rows(&nodes.node(0).spec(), 1_000);
            stop.request();
            loader.join().unwrap().unwrap()
        });
        let report = load_ycsb_on(
            &target,
            &Options { restart: false, ..asked.clone() },
            &Stop::new(),
            &mut Notes::default(),
        );
        assert_eq!(report.unwrap().outcome, Outcome::Complete);
        for node in nodes.nodes() {
            assert_exact(&node.spec(), 30_000, 0, &spec(1), true);
        }
        // A publication of all tables would send every row to nodes that load it themselves.
        nodes.node(2).execute("create publication everything for all tables").unwrap();
        let error = load_ycsb_on(&target, &asked, &Stop::new(), &mut Notes::default()).unwrap_err();
        assert!(matches!(error.innermost(), LoadError::Published { .. }), "{error}");
        assert!(error.hint().unwrap().contains("alter publication everything"));
    });
}

//! What servers do to a COMMIT and what faults do to servers, live: on PostgreSQL 15 and 18 where both are there.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use crate::local;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use connect::cluster_file::Role;
use engines::Engine;
use lab::local::{Instance, Replication, SyncStandbys, Topology};
use lab::throwaway::{Throwaway, ThrowawayCluster};
use local::{folder, journal, on_each, wait_for};
use prove::client::Client;
use prove::fault::{Disk, Fault, Journal, Node, Plan, Site, disk, journal as journals};
use prove::live::{Options, ack};
use prove::outcome::{At, Outcome, of_broken, of_reply};
use prove::promise::Settings;
use record::promise::Standing;

const COMMIT: At = At::Commit { wide: false };
const PATIENCE: Duration = Duration::from_secs(30);

/// The outcome of the COMMIT of one row, of which `meanwhile` is told the backend's process id.
fn commit(cluster: &Throwaway, id: i32, meanwhile: impl FnOnce(u32) + Send) -> Outcome {
    let mut client = Client::connect(&cluster.spec(), PATIENCE).unwrap();
    let asked = client.request("select pg_backend_pid()").unwrap();
    let pid = asked.rows()[0][0]
        .as_deref()
        .and_then(|text| std::str::from_utf8(text).ok())
        .unwrap()
        .parse()
        .unwrap();
    client.execute(&format!("begin; insert into public.t values ({id})")).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || meanwhile(pid));
        match client.request("commit") {
            Ok(reply) => of_reply(Engine::default(), COMMIT, &reply).outcome,
            Err(broken) => of_broken(Engine::default(), COMMIT, &broken).outcome,
        }
    })
}

#[test]
fn a_commit_is_worth_what_its_tag_warnings_and_end_say() {
    on_each(|installation| {
        let cluster = Throwaway::start(installation, &[("synchronous_standby_names", "nosuch")]).unwrap();
        cluster.execute("set synchronous_commit = local; create table t (id int primary key)").unwrap();
        let in_wait = |pid: u32, act: &str| {
            wait_for("the wait for a standby", || {
                let waits = format!("select wait_event = 'SyncRep' from pg_stat_activity where pid = {pid}");
                cluster.value(&waits).unwrap().as_deref() == Some("t")
            });
            cluster.value(&format!("select {act}({pid})")).unwrap();
        };
        let cancelled = commit(&cluster, 1, |pid| in_wait(pid, "pg_cancel_backend"));
        assert_eq!(cancelled, Outcome::OkWeak, "a success that takes a promise back");
        let terminated = commit(&cluster, 2, |pid| in_wait(pid, "pg_terminate_backend"));
        assert_eq!(terminated, Outcome::Info, "no answer is no answer");
        // And both are there.
        assert_eq!(cluster.value("select count(*) from t").unwrap().as_deref(), Some("2"));
        let mut client = Client::connect(&cluster.spec(), PATIENCE).unwrap();
        client.execute("set synchronous_commit = local").unwrap();
        let refused = client.request("begin; insert into public.t values (1)").unwrap();
        assert_eq!(of_reply(Engine::default(), At::BeforeCommit, &refused).outcome, Outcome::Fail);
        let left = client.request("commit").unwrap();
        assert_eq!((left.tag(), left.error.is_none()), ("ROLLBACK", true), "no error at all");
        assert_eq!(of_reply(Engine::default(), COMMIT, &left).outcome, Outcome::Fail);
        let own = client.request("insert into public.t values (3)").unwrap();
        assert_eq!(of_reply(Engine::default(), COMMIT, &own).outcome, Outcome::Ok);
    });
}

fn site(cluster: &Throwaway, journal: &std::sync::Arc<Journal>) -> Site {
    let node = Node::hurtable("single", Role::Primary, cluster.spec(), cluster.instance());
    Site::new(Engine::default(), vec![node], std::sync::Arc::clone(journal))
}

fn options(plan: &str, seconds: f64) -> Options {
    Options {
        duration: Duration::from_secs_f64(seconds),
        plan: Plan::parse(plan).unwrap(),
        ..Options::default()
    }
}

fn ack(site: &Site, options: &Options) -> ack::Report {
    let report = ack::run(site, options, &AtomicBool::new(false)).unwrap();
    for one in &report.happened {
        assert_eq!(one.error, None, "{one}");
    }
    assert!(report.findings.acknowledged() > 0, "{report:?}");
    report
}

/// With `synchronous_commit` off the short tail that the WAL writer had not written is lost; with on nothing is.
#[test]
fn a_kill_loses_the_tail_of_asynchronous_commits_and_nothing_else() {
    on_each(|installation| {
        let (dir, journal) = journal("kill");
        // The WAL writer sleeps for a while, so that there is a tail at whatever moment the fault comes, and a head.
        let settings = [("fsync", "on"), ("wal_writer_delay", "300ms"), ("wal_writer_flush_after", "1GB")];
        let cluster = Throwaway::start(installation, &settings).unwrap();
        let site = site(&cluster, &journal);
        let mut options = options("kill@0.6s,heal@0.7s", 0.8);
        let on = ack(&site, &options);
        assert!(!on.findings.is_broken(), "{on:?}");
        assert_eq!(on.control, Some(true), "a lost row would have been seen");
        options.settings.push(("synchronous_commit".to_owned(), "off".to_owned()));
        // When the WAL writer has just been at work, all that is lost was answered during the kill itself: another kill finds a tail before it.
        let mut with_tail = (0..5).map(|_| {
            let off = ack(&site, &options);
            // Nothing behind the lost ones survived.
            assert_eq!((off.findings.holes, off.findings.torn, off.findings.risen), (0, 0, 0), "{off:?}");
            off
        });
        let off = with_tail.find(|off| off.findings.lost > 0 && off.findings.rpo_us > 0);
        let off = off.expect("five kills lost nothing that was acknowledged before them");
        assert!(off.findings.rpo_bytes.is_some_and(|bytes| bytes > 0), "{off:?}");
        drop((site, cluster, journal));
        std::fs::remove_dir_all(dir).unwrap();
    });
}

/// kill -9 does not test fsync: the page cache survives it. A power cut does.
#[test]
fn only_a_power_cut_tells_whether_fsync_is_on() {
    if let Err(lack) = loop_devices() {
        return testing::skip(&lack);
    }
    on_each(|installation| {
        let (dir, journal) = journal("power");
        for fsync in ["on", "off"] {
            let disk = Disk::make(&journal, disk::DISK_BYTES).unwrap();
            let options_of_cluster = lab::throwaway::Options {
                settings: [("fsync", fsync), ("full_page_writes", "on"), ("wal_writer_delay", "10ms")]
                    .map(|(name, value)| (name.to_owned(), value.to_owned()))
                    .to_vec(),
                data_dir: Some(disk.path().to_owned()),
                ..lab::throwaway::Options::default()
            };
            let cluster = options_of_cluster.start(installation).unwrap();
            // What initdb has written is on the disk before anything is proved.
            sync(disk.path());
            let mut site = site(&cluster, &journal);
            site.nodes[0].disk = Some(disk);
            let survived = ack(&site, &options("kill@0.4s,heal@0.5s", 0.6));
            assert!(!survived.findings.is_broken(), "fsync={fsync} and kill -9: {survived:?}");
            if fsync == "on" {
                let survived = ack(&site, &options("power@0.4s,heal@0.5s", 0.6));
                assert!(!survived.findings.is_broken(), "fsync=on and a power cut: {survived:?}");
            } else {
                // What was written since the disk was settled is gone, unless the kernel has written it by chance; the table itself was there before, so the
                // loss has a size.
                let report =
                    ack::run(&site, &options("power@0.4s,heal@0.5s", 0.6), &AtomicBool::new(false)).unwrap();
                assert!(report.findings.lost > 0 && report.findings.rpo_us > 0, "{report:?}");
                assert_eq!(report.missing, None, "the table is gone, too: {report:?}");
                let settings = Settings::of(&site.entry(), &options("power@0.4s", 0.1)).unwrap();
                let promises = prove::promise::ack(&site, &report, &settings, "");
                assert_eq!(promises[0].standing, Standing::ByDesign, "{promises:?}");
            }
            drop((cluster, site));
        }
        drop(journal);
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0, "nothing is left to be undone");
        std::fs::remove_dir_all(dir).unwrap();
    });
}

/// A process with mounts of its own keeps a file system that is cut off: it can be mounted anew only when that process is gone.
#[test]
fn a_disk_comes_back_when_nobody_holds_it_any_more() {
    if let Err(lack) = loop_devices() {
        return testing::skip(&lack);
    }
    let (dir, journal) = journal("held");
    let namespace = |pid: u32| std::fs::read_link(format!("/proc/{pid}/ns/mnt")).unwrap();
    let disk = Disk::make(&journal, 8 << 20).unwrap();
    let holder = Command::new("unshare").args(["--mount", "cat"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut holder = testing::Running::new(holder);
    wait_for("the other mounts", || namespace(holder.id()) != namespace(std::process::id()));
    disk.cut_power().unwrap();
    std::thread::scope(|scope| {
        let power_on = scope.spawn(|| disk.power_on());
        // It holds the disk while the mount is tried, and then ends, as its standard input does.
        std::thread::sleep(Duration::from_millis(300));
        assert!(!power_on.is_finished(), "the disk is still held: nothing can be written there");
        drop(holder.stdin.take());
        power_on.join().unwrap().unwrap();
    });
    std::fs::write(disk.path().join("file"), "is written").unwrap();
    drop((disk, holder, journal));
    std::fs::remove_dir_all(dir).unwrap();
}

/// What power cuts and full disks need; the probe of `prove` must say the same.
fn loop_devices() -> Result<(), testing::Lack> {
    let found = testing::needs::loop_devices();
    let (dir, journal) = journal("probe");
    let ours = disk::probe(&journal);
    assert_eq!(ours.is_ok(), found.is_ok(), "prove says {ours:?}, mount says {found:?}");
    drop(journal);
    std::fs::remove_dir_all(dir).unwrap();
    found
}

/// Everything written so far reaches the disk.
fn sync(path: &Path) {
    assert!(Command::new("sync").arg("-f").arg(path).status().unwrap().success());
}

/// The proxy loses one reply to COMMIT in three: what became of those the table knows, and nothing that was acknowledged is missing.
#[test]
fn lost_replies_to_commit_are_resolved() {
    on_each(|installation| {
        let (dir, journal) = journal("drop");
        let cluster = Throwaway::start(installation, &[]).unwrap();
        let mut site = site(&cluster, &journal);
        site.use_proxies().unwrap();
        let report = ack(&site, &options("drop-commit@0.1s,heal@0.5s", 0.6));
        let found = &report.findings;
        assert!(report.dropped > 0 && !found.is_broken(), "{report:?}");
        // Each dropped reply is one transaction without an answer, and each of these was committed.
        assert_eq!(
            (found.outcomes.info, found.info_committed),
            (report.dropped, report.dropped),
            "{report:?}"
        );
        drop((site, cluster, journal));
        std::fs::remove_dir_all(dir).unwrap();
    });
}

/// A full disk stops the server from acknowledging, and what it had acknowledged stays; a stopped server and a cut connection lose nothing either. An orphan
/// is found and rolled back.
#[test]
fn other_faults_are_injected_and_undone() {
    let installation = local::newest();
    let (dir, journal) = journal("others");
    let can_fill = loop_devices().inspect_err(testing::skip).is_ok();
    let disk = can_fill.then(|| Disk::make(&journal, 192 << 20).unwrap());
    let options_of_cluster = lab::throwaway::Options {
        settings: [("max_prepared_transactions", "4"), ("max_wal_size", "64MB"), ("min_wal_size", "32MB")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec(),
        data_dir: disk.as_ref().map(|disk| disk.path().to_owned()),
        ..lab::throwaway::Options::default()
    };
    let cluster = options_of_cluster.start(&installation).unwrap();
    let mut site = site(&cluster, &journal);
    site.nodes[0].disk = disk;
    assert!(site.can(Fault::Promote, None).unwrap_err().contains("no standby"));
    assert!(site.can(Fault::Kill, Some("nosuch")).unwrap_err().contains("there is no node"));
    if !can_fill {
        assert!(site.can(Fault::Power, None).is_err());
    }
    site.use_proxies().unwrap();
    let plan = "orphan@0.1s,pause@0.2s,heal@0.5s,cut@0.6s,blackhole-replies@0.7s,heal@0.9s,restart@1s,delay=5ms@1.2s,rate=100000@1.3s,heal@1.5s";
    let report = ack(&site, &options(plan, 1.6));
    assert!(!report.findings.is_broken(), "{report:?}");
    assert_eq!(report.happened.len(), 10);
    assert_eq!(cluster.value("select count(*) from pg_prepared_xacts").unwrap().as_deref(), Some("0"));
    if can_fill {
        let report = ack(&site, &options("full@0.2s,heal@1.2s", 1.5));
        assert!(!report.findings.is_broken(), "{report:?}");
        assert!(journal.open().iter().all(|(_, undo)| !undo.description().contains("ballast")));
    }
    drop((cluster, site, journal));
    std::fs::remove_dir_all(dir).unwrap();
}

/// A cluster as `up` leaves it: its servers are told how to reach each other, and have to be told again.
fn lasting(cluster: &ThrowawayCluster, journal: &std::sync::Arc<Journal>) -> Site {
    let nodes = std::iter::zip(&cluster.file().node, cluster.nodes()).map(|(node, server)| {
        let bin_dir = &server.installation().bin_dir;
        let instance = Instance::at(bin_dir, &server.data_dir(), &server.log_path()).unwrap();
        Node::hurtable(&node.name, Role::parse(&node.role).unwrap(), server.spec(), instance)
    });
    let mut site = Site::new(
        Engine::parse(&cluster.file().engine).unwrap(),
        nodes.collect(),
        std::sync::Arc::clone(journal),
    );
    assert!(site.can(Fault::Partition, None).unwrap_err().contains("through proxies"));
    site.use_links();
    assert_eq!(site.can(Fault::Partition, None), Ok(0));
    site
}

/// The disk of the primary of a cluster, and of its standby; none where none can be made.
fn disks(journal: &std::sync::Arc<Journal>) -> Vec<Disk> {
    match loop_devices().inspect_err(testing::skip) {
        Ok(()) => (0..2).map(|_| Disk::make(journal, disk::DISK_BYTES).unwrap()).collect(),
        Err(_) => Vec::new(),
    }
}

/// Both nodes of a replicated cluster live through a power cut and a full disk. A primary that is cut off from its standby acknowledges what waits for nobody; after
/// a promotion that is lost, by design, and the old primary is ended before the network is mended.
#[test]
fn a_replicated_cluster_loses_its_power_its_disk_and_its_network() {
    let (dir, journal) = journal("network");
    let disks = disks(&journal);
    let data_dirs: Vec<PathBuf> = disks.iter().map(|disk| disk.path().to_owned()).collect();
    let topology = Topology::Replicated(Replication {
        standbys: 1,
        sync: SyncStandbys::parse("FIRST 1 (s1)", 1).unwrap(),
        commit: None,
    });
    let settings =
        [("fsync", "on"), ("full_page_writes", "on"), ("max_wal_size", "64MB"), ("min_wal_size", "32MB")];
    let cluster = ThrowawayCluster::start_in(&local::newest(), &topology, &settings, &data_dirs).unwrap();
    disks.iter().for_each(|disk| disk.sync().unwrap());
    let mut site = lasting(&cluster, &journal);
    let can_cut = !disks.is_empty();
    std::iter::zip(&mut site.nodes, disks).for_each(|(node, disk)| node.disk = Some(disk));
    if can_cut {
        for plan in ["power@0.3s,heal@0.4s,power:s1@0.7s,heal@0.8s", "full@0.2s,heal@0.6s"] {
            let report = ack(&site, &options(plan, 0.8));
            assert!(!report.findings.is_broken(), "{plan}: {report:?}");
        }
    }
    // What is written while the nodes are apart is on the other side only afterwards. The standby may still be on its way back from the fault before.
    let (primary, standby) = (cluster.node(0), cluster.node(1));
    let on_standby =
        |what: &str| standby.value(&format!("select to_regclass('{what}') is not null")).unwrap();
    primary.execute("create table before ()").unwrap();
    wait_for("the standby", || on_standby("before").as_deref() == Some("t"));
    site.inject(Fault::Partition, 0).unwrap();
    primary.execute("set synchronous_commit = local; create table apart ()").unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(on_standby("apart").as_deref(), Some("f"), "nothing passes");
    site.heal(None).unwrap();
    wait_for("what was written meanwhile", || on_standby("apart").as_deref() == Some("t"));
    let mut options = options("partition@0.3s,heal@0.6s", 0.8);
    let report = ack(&site, &options);
    assert!(!report.findings.is_broken(), "{report:?}");
    options.plan = Plan::parse("partition@0.2s,promote@0.3s,heal@0.8s").unwrap();
    options.settings.push(("synchronous_commit".to_owned(), "local".to_owned()));
    let settings = Settings::of(&site.entry(), &options).unwrap();
    let report = ack(&site, &options);
    assert!(report.findings.lost > 0 && report.findings.torn == 0, "{report:?}");
    assert_eq!((report.control, report.control_whole), (Some(true), Some(true)), "{report:?}");
    let promises = prove::promise::ack(&site, &report, &settings, "");
    assert_eq!(promises[0].standing, Standing::ByDesign, "{promises:?}");
    assert_eq!(site.primary(), 1);
    assert!(!cluster.node(0).instance().is_up(), "it would be a second primary");
    // A disk takes its server with it.
    let disks: Vec<Disk> = site.nodes.iter_mut().filter_map(|node| node.disk.take()).collect();
    drop(site);
    // The standby, now a primary, knows the way that it knew before.
    let conninfo = standby.value("select current_setting('primary_conninfo')").unwrap().unwrap();
    assert!(!conninfo.contains("127.0.0.1"), "{conninfo}");
    drop((cluster, disks, journal));
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0, "nothing is left to be undone");
    std::fs::remove_dir_all(dir).unwrap();
}

/// A promoted synchronous standby has everything that was acknowledged, even by a primary that was cut off from it.
#[test]
fn a_promoted_synchronous_standby_has_every_acknowledged_row() {
    let (dir, journal) = journal("promote");
    let cluster = ThrowawayCluster::replicated(&local::newest(), 1, "FIRST 1 (s1)").unwrap();
    let site = lasting(&cluster, &journal);
    let report = ack(&site, &options("partition@0.4s,promote@0.6s,heal@1s", 1.2));
    assert!(!report.findings.is_broken(), "{report:?}");
    assert_eq!(site.primary(), 1);
    // The old primary stays down: it would be a second one.
    assert!(!cluster.node(0).instance().is_up());
    drop((site, cluster, journal));
    std::fs::remove_dir_all(dir).unwrap();
}

/// Shards that cannot reach each other hang and lose nothing; a multimaster that is apart catches up.
#[test]
fn shards_and_peers_are_cut_off_from_each_other() {
    let (dir, journal) = journal("apart");
    let cluster = ThrowawayCluster::sharded(&local::newest(), 2, 4).unwrap();
    let site = lasting(&cluster, &journal);
    let report = ack(&site, &options("partition:n2@0.2s,heal@0.5s", 0.8));
    assert!(!report.findings.is_broken(), "{report:?}");
    drop(site);
    let options_of = "select srvoptions::text from pg_foreign_server";
    for node in cluster.nodes() {
        let options = node.value(options_of).unwrap().unwrap();
        assert!(options.contains("host=/") && !options.contains("127.0.0.1"), "{options}");
    }
    drop(cluster);
    if local::newest().version.major < 16 {
        let why = "only there subscriptions can leave out what came by replication";
        testing::skip(&testing::Lack::new("postgres-16", why));
    } else {
        let cluster = ThrowawayCluster::multimaster(&local::newest(), 2).unwrap();
        let site = lasting(&cluster, &journal);
        let [one, other] = [cluster.node(0), cluster.node(1)];
        for node in [one, other] {
            node.execute("create table t (id int primary key); alter publication pgfathom add table t")
                .unwrap();
        }
        for (node, from) in [(one, "m1_from_m2"), (other, "m2_from_m1")] {
            let refresh =
                format!("alter subscription pgfathom_{from} refresh publication with (copy_data = false)");
            node.execute(&refresh).unwrap();
        }
        let there = |id: u32| other.value(&format!("select count(*) from t where id = {id}")).unwrap();
        one.execute("insert into t values (1)").unwrap();
        wait_for("the first row", || there(1).as_deref() == Some("1"));
        site.inject(Fault::Partition, 0).unwrap();
        one.execute("insert into t values (2)").unwrap();
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(there(2).as_deref(), Some("0"), "nothing passes");
        site.heal(None).unwrap();
        wait_for("the second row", || there(2).as_deref() == Some("1"));
        drop(site);
        let conninfo = other.value("select subconninfo from pg_subscription").unwrap().unwrap();
        assert!(!conninfo.contains("127.0.0.1"), "{conninfo}");
        one.execute("insert into t values (3)").unwrap();
        wait_for("a row on the direct way", || there(3).as_deref() == Some("1"));
    }
    drop(journal);
    std::fs::remove_dir_all(dir).unwrap();
}

/// The part of the test below that dies: makes a disk and a server on it, stops the server, says so, and waits for its end.
#[test]
#[ignore = "the child of the next test"]
fn the_one_that_dies() {
    let Some(dir) = std::env::var_os("PROVE_TEST_STATE").map(PathBuf::from) else { return };
    let journal = std::sync::Arc::new(Journal::begin(&dir).unwrap());
    let disk = loop_devices().is_ok().then(|| Disk::make(&journal, 192 << 20).unwrap());
    let options = lab::throwaway::Options {
        data_dir: disk.as_ref().map(|disk| disk.path().to_owned()),
        ..lab::throwaway::Options::default()
    };
    let cluster = options.start(&local::newest()).unwrap();
    let mut site = site(&cluster, &journal);
    site.nodes[0].disk = disk;
    if site.nodes[0].disk.is_some() {
        site.inject(Fault::Full, 0).unwrap();
    }
    site.inject(Fault::Pause, 0).unwrap();
    println!("data {}", cluster.data_dir().display());
    println!("ready");
    std::thread::sleep(Duration::from_secs(600));
}

#[test]
fn what_a_killed_process_has_broken_is_healed() {
    let has_disk = loop_devices().inspect_err(testing::skip).is_ok();
    let dir = folder("healed");
    let child = testing::again(module_path!(), "the_one_that_dies")
        .args(["--ignored", "--nocapture"])
        .env("PROVE_TEST_STATE", &dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut child = testing::Running::new(child);
    let lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    let mut data = PathBuf::new();
    for line in lines.map_while(Result::ok) {
        if let Some((_, path)) = line.split_once("data ") {
            data = PathBuf::from(path);
        }
        if line == "ready" {
            break;
        }
    }
    assert!(data.is_dir(), "the child made no server");
    assert_eq!(journals::heal(&dir).alive, 1, "whoever lives is left alone");
    child.kill().unwrap();
    child.wait().unwrap();
    let stopped = lab::local::servers_in(&data);
    assert!(!stopped.is_empty(), "stopped processes do not hear that their parent is gone");
    assert_eq!(disk::is_mounted(&data), has_disk);
    let healed = journals::heal(&dir);
    assert_eq!((healed.failed.as_slice(), healed.alive), (&[][..], 0), "{healed:?}");
    assert!(!healed.undone.is_empty());
    wait_for("the end of the servers", || lab::local::servers_in(&data).is_empty());
    if has_disk {
        assert!(!disk::is_mounted(&data) && !data.exists() && !data.with_extension("img").exists());
        let loops = Command::new("losetup").arg("-a").output().map(|out| out.stdout).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&loops).contains(&*data.to_string_lossy()));
    }
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0, "the journal is done");
    std::fs::remove_dir_all(dir).unwrap();
}

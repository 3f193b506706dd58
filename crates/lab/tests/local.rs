//! `up single` and `down` on every PostgreSQL found, with everything that goes wrong on the way.
#![allow(clippy::unwrap_used)] // Helpers of tests fail as tests do.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use connect::cluster_file::ClusterFile;
use connect::conninfo::Sources;
use connect::{control, hot};
use lab::local::{
    Installation, LocalCluster, LocalError, Registry, Replication, SyncStandbys, Topology, UpOptions, down,
    installations, up,
};
use testing::wait_for;

/// A folder for one test, with a registry of its own; clusters that a failed test left are removed with it.
pub(crate) struct Place(PathBuf);

impl Place {
    pub(crate) fn new() -> Place {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("pgfathom-up-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Place(path)
    }

    pub(crate) fn options(&self, installation: &Installation) -> UpOptions {
        UpOptions {
            settings: vec![("shared_buffers".into(), "16MB".into())],
            initdb: vec!["--no-sync".into()],
            registry: self.registry(),
            ..UpOptions::new(&self.0.join("c"), installation.clone())
        }
    }

    pub(crate) fn registry(&self) -> Registry {
        Registry::at(&self.0.join("registry"))
    }

    /// Nothing of the cluster is left: no process, no folder, no entry.
    pub(crate) fn assert_gone(&self, dir: &Path) {
        assert!(!dir.exists(), "{} is still there", dir.display());
        // A process that exits has no program any more for a moment, but still a working directory.
        wait_for("its processes are gone", || processes_below(dir).is_empty());
        assert!(self.registry().clusters().is_empty());
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for dir in self.registry().clusters() {
            let _ = down(&dir, &self.registry());
        }
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn processes_below(dir: &Path) -> Vec<u32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid: &u32| {
            fs::read_link(format!("/proc/{pid}/cwd"))
                .is_ok_and(|cwd| cwd.to_string_lossy().starts_with(&*dir.to_string_lossy()))
        })
        .collect()
}

pub(crate) fn postmaster_pid(cluster: &LocalCluster) -> u32 {
    let text = fs::read_to_string(cluster.dir.join("data/postmaster.pid")).unwrap();
    text.lines().next().unwrap().parse().unwrap()
}

pub(crate) fn signal(name: &str, pid: u32) {
    assert!(is_signalled(name, pid));
}

/// Whether the process was still there to get the signal.
fn is_signalled(name: &str, pid: u32) -> bool {
    Command::new("kill").args([name, &pid.to_string()]).status().unwrap().success()
}

#[test]
fn a_cluster_goes_up_is_written_down_and_goes_away() {
    std::thread::scope(|scope| {
        for installation in installations() {
            scope.spawn(move || {
                let place = Place::new();
                let options = UpOptions { tcp: true, checksums: Some(true), ..place.options(&installation) };
                let cluster = up(&options).unwrap();
                assert!(cluster.initdb_s > 0.0 && cluster.start_s > 0.0);
                assert!(lab::local::is_up(&cluster.dir) && !lab::local::is_up(&place.0));
                assert_eq!(place.registry().clusters(), std::slice::from_ref(&cluster.dir));

                let file = ClusterFile::read(&cluster.dir).unwrap();
                assert_eq!(crate::topologies::as_written(&file), cluster.file);
                let spec = file.resolve(&file.node[0].connection, &Sources::of_process()).unwrap().spec;
                assert_eq!(spec.hosts, cluster.spec.hosts);
                let mut client = control::connect(&spec).unwrap();
                let shown = |client: &mut control::Control, name: &str| -> String {
                    client.query_one(&format!("show {name}"), &[]).unwrap().get(0)
                };
                assert_eq!(shown(&mut client, "shared_buffers"), "16MB");
                assert_eq!(shown(&mut client, "fsync"), "on");
                assert_eq!(shown(&mut client, "data_checksums"), "on");
                assert_eq!(shown(&mut client, "max_wal_size"), "4GB");

                // TCP is there, and wants a password.
                let mut tcp = cluster.spec.clone();
                tcp.hosts[0].host = connect::conninfo::Host::Tcp("127.0.0.1".into());
                let error = hot::connect(&tcp).unwrap_err();
                assert!(error.to_string().contains("requests a password"), "{error}");

                let error = up(&options).unwrap_err();
                assert!(matches!(error, LocalError::AlreadyUp { .. }), "{error}");
                assert!(error.hint().unwrap().contains("pgfathom down"));

                // A session is open: a fast stop ends it.
                let removed = down(&cluster.dir, &place.registry()).unwrap();
                assert_eq!((removed.stopped, removed.left.len()), (1, 0));
                place.assert_gone(&cluster.dir);
                let error = down(&cluster.dir, &place.registry()).unwrap_err();
                assert!(matches!(error, LocalError::NotOurs { there: false, .. }), "{error}");
            });
        }
    });
}

#[test]
fn a_stopped_cluster_starts_again_whatever_its_pid_file_says() {
    let place = Place::new();
    let options = place.options(&installations()[0]);
    let cluster = up(&options).unwrap();
    control::connect(&cluster.spec).unwrap().batch_execute("create table public.t as select 1 as i").unwrap();
    for recycled in [false, true] {
        signal("-KILL", postmaster_pid(&cluster));
        wait_for("the server dies", || processes_below(&cluster.dir).is_empty());
        let path = cluster.dir.join("data/postmaster.pid");
        let text = fs::read_to_string(&path).unwrap();
        if recycled {
            // The number now belongs to another process: this one.
            let (_, rest) = text.split_once('\n').unwrap();
            fs::write(&path, format!("{}\n{rest}", std::process::id())).unwrap();
        }
        let again = up(&options).unwrap();
        assert_eq!(again.initdb_s, 0.0);
        assert_eq!(again.spec.hosts, cluster.spec.hosts);
        let row = control::connect(&again.spec).unwrap().query_one("select i from public.t", &[]).unwrap();
        assert_eq!(row.get::<_, i32>(0), 1);
    }
    // And the same for down: it must not signal the process that has the number now.
    signal("-KILL", postmaster_pid(&cluster));
    wait_for("the server dies", || processes_below(&cluster.dir).is_empty());
    let mut bystander = Command::new("sleep").arg("600").spawn().unwrap();
    fs::write(cluster.dir.join("data/postmaster.pid"), format!("{}\n", bystander.id())).unwrap();
    let removed = down(&cluster.dir, &place.registry()).unwrap();
    assert_eq!(removed.stopped, 0);
    assert!(bystander.try_wait().unwrap().is_none());
    bystander.kill().unwrap();
    bystander.wait().unwrap();
    place.assert_gone(&cluster.dir);
}

#[test]
fn a_server_without_its_pid_file_is_found_and_stopped() {
    let place = Place::new();
    let cluster = up(&place.options(&installations()[0])).unwrap();
    fs::remove_file(cluster.dir.join("data/postmaster.pid")).unwrap();
    assert_eq!(down(&cluster.dir, &place.registry()).unwrap().stopped, 1);
    place.assert_gone(&cluster.dir);
}

#[test]
fn folders_of_others_are_refused_and_their_files_kept() {
    let place = Place::new();
    let installation = &installations()[0];
    let options = place.options(installation);
    fs::create_dir_all(&options.dir).unwrap();
    fs::write(options.dir.join("letter"), "dear").unwrap();
    let error = up(&options).unwrap_err();
    assert!(error.to_string().contains("is not empty, and pgfathom did not make it"), "{error}");
    let error = down(&options.dir, &place.registry()).unwrap_err();
    assert!(error.to_string().contains("has no marker of pgfathom"), "{error}");
    assert_eq!(fs::read_to_string(options.dir.join("letter")).unwrap(), "dear");

    fs::remove_file(options.dir.join("letter")).unwrap();
    let cluster = up(&options).unwrap();
    fs::write(options.dir.join("notes"), "mine").unwrap();
    let removed = down(&cluster.dir, &place.registry()).unwrap();
    assert_eq!(removed.left, [cluster.dir.join("notes")]);
    assert_eq!(fs::read_dir(&cluster.dir).unwrap().count(), 1);
}

/// A folder that another person marked leads to anything: by its owner, by a node that is a link, and by the programs that its file names.
#[test]
fn what_a_marked_folder_leads_to_is_kept() {
    let place = Place::new();
    let victim = place.0.join("victim");
    fs::create_dir_all(victim.join("data")).unwrap();
    fs::write(victim.join("data/precious"), "").unwrap();
    let marked = |name: &str| {
        let dir = place.0.join(name);
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join(".pgfathom-cluster"), "pgfathom cluster 1\npid 1\nsocket_dir /none\nnode n1\n")
            .unwrap();
        std::os::unix::fs::symlink(&victim, dir.join("n1")).unwrap();
        dir
    };
    let refused = |dir: &Path, problem: &str| {
        let error = down(dir, &place.registry()).unwrap_err();
        assert!(matches!(error, LocalError::OfOther { .. }), "{error}");
        assert!(error.to_string().contains(problem) && error.hint().is_some(), "{error}");
        assert!(victim.join("data/precious").exists() && dir.join("n1").exists());
    };
    refused(&marked("link"), "it is no folder");
    if rustix_is_root() {
        let other = marked("other");
        std::os::unix::fs::chown(&other, Some(12_345), None).unwrap();
        refused(&other, "it belongs to user 12345");
        let programs = place.0.join("programs");
        fs::create_dir_all(&programs).unwrap();
        for name in ["postgres", "initdb"] {
            fs::write(programs.join(name), "#!/bin/sh\necho postgres (PostgreSQL) 15.1\n").unwrap();
        }
        std::os::unix::fs::chown(&programs, Some(12_345), None).unwrap();
        let why = Installation::recorded(&programs).unwrap_err();
        assert!(why.contains("could be changed by others than root"), "{why}");
    }
}

#[test]
fn clashes_of_ports_sockets_and_paths_are_told() {
    let place = Place::new();
    let installation = &installations()[0];
    let sockets = place.0.join("s");
    let first =
        up(&UpOptions { socket_dir: Some(sockets.clone()), port: Some(5999), ..place.options(installation) });
    let first = first.unwrap();
    let second = UpOptions { dir: place.0.join("d"), ..place.options(installation) };
    let error =
        up(&UpOptions { socket_dir: Some(sockets.clone()), port: Some(5999), ..second.clone() }).unwrap_err();
    assert!(
        error.to_string().contains("port 5999 is taken") && error.hint().unwrap().contains("--port"),
        "{error}"
    );
    assert!(!second.dir.exists());

    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let error = up(&UpOptions { tcp: true, port: Some(port), ..second.clone() }).unwrap_err();
    assert!(error.to_string().contains(&format!("127.0.0.1:{port}")), "{error}");

    let long = place.0.join("x".repeat(120));
    let error = up(&UpOptions { socket_dir: Some(long.clone()), ..second.clone() }).unwrap_err();
    assert!(error.to_string().contains("the limit is 107"), "{error}");
    assert!(!second.dir.exists());

    // A long folder alone is no trouble: the socket goes elsewhere, and leaves with the cluster.
    let deep = up(&UpOptions { dir: long.clone(), ..second }).unwrap();
    let socket_dir = deep.spec.hosts[0].socket_path().unwrap().parent().unwrap().to_owned();
    assert!(socket_dir.starts_with("/tmp"));
    control::connect(&deep.spec).unwrap();
    down(&long, &place.registry()).unwrap();
    assert!(!socket_dir.exists());

    down(&first.dir, &place.registry()).unwrap();
    assert_eq!(fs::read_dir(&sockets).unwrap().count(), 0);
    place.assert_gone(&first.dir);
}

#[test]
fn a_failed_up_leaves_nothing() {
    let place = Place::new();
    let installation = &installations()[0];
    let wrong_setting =
        UpOptions { settings: vec![("shared_bufers".into(), "1".into())], ..place.options(installation) };
    let error = up(&wrong_setting).unwrap_err();
    assert!(error.to_string().contains("unrecognized configuration parameter \"shared_bufers\""), "{error}");
    place.assert_gone(&wrong_setting.dir);
    let wrong_argument = UpOptions { initdb: vec!["--no-such-flag".into()], ..place.options(installation) };
    let error = up(&wrong_argument).unwrap_err();
    assert!(
        error.to_string().contains("initdb failed") && error.to_string().contains("no-such-flag"),
        "{error}"
    );
    place.assert_gone(&wrong_argument.dir);

    if rustix_is_root() {
        let closed = place.0.join("closed");
        fs::create_dir(&closed).unwrap();
        fs::set_permissions(&closed, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        let error = up(&UpOptions { dir: closed.join("c"), ..place.options(installation) }).unwrap_err();
        assert!(error.to_string().contains(&format!("{} is not open to it", closed.display())), "{error}");
        assert!(error.hint().unwrap().contains("/var/lib/pgfathom"));
        assert!(!closed.join("c").exists());
    }
}

fn several() -> [Topology; 3] {
    [
        Topology::Sharded { nodes: 2, partitions: 4 },
        Topology::Replicated(Replication { standbys: 1, sync: SyncStandbys::default_for(1), commit: None }),
        Topology::Multimaster { nodes: 2 },
    ]
}

fn shown(spec: &connect::ConnSpec, sql: &str) -> Vec<String> {
    let mut client = control::connect(spec).unwrap();
    client.query(sql, &[]).unwrap().iter().map(|row| row.get(0)).collect()
}

/// Over TCP, which the nodes then use among each other with a password that nobody has typed.
#[test]
fn clusters_of_several_go_up_start_again_and_go_away() {
    std::thread::scope(|scope| {
        let each = installations().into_iter().flat_map(|i| several().map(|topology| (i.clone(), topology)));
        for ((installation, topology), number) in each.zip(0..) {
            scope.spawn(move || {
                let place = Place::new();
                // Ports of its own: the port of a node that is down would soon be another's.
                let port = u16::try_from(21_000 + std::process::id() % 500 * 16 + number * 2).unwrap();
                let options =
                    UpOptions { topology, tcp: true, port: Some(port), ..place.options(&installation) };
                if matches!(options.topology, Topology::Multimaster { .. }) && installation.version.major < 16
                {
                    let error = up(&options).unwrap_err();
                    assert!(error.to_string().contains("PostgreSQL 16 or newer"), "{error}");
                    assert!(!options.dir.exists());
                    return;
                }
                let cluster = up(&options).unwrap();
                let written = ClusterFile::read(&cluster.dir).unwrap();
                assert_eq!(crate::topologies::as_written(&written), cluster.file);
                assert_eq!(cluster.file.node.len(), 2);
                let specs: Vec<connect::ConnSpec> = cluster
                    .file
                    .node
                    .iter()
                    .map(|node| cluster.file.resolve(&node.connection, &Sources::of_process()).unwrap().spec)
                    .collect();
                let links = match &options.topology {
                    Topology::Sharded { .. } => {
                        "select array_to_string(srvoptions, ' ') from pg_foreign_server"
                    }
                    Topology::Replicated(_) => "select conninfo from pg_stat_wal_receiver",
                    _ => "select subconninfo from pg_subscription",
                };
                let found = shown(&specs[1], links);
                assert!(found.len() == 1 && found[0].contains("host=127.0.0.1"), "{found:?}");
                let waits = "select sync_state from pg_stat_replication";
                if options.topology.kind() == "replicated" {
                    assert_eq!(shown(&specs[0], waits), ["sync"]);
                    assert_eq!(cluster.spec.hosts.len(), 2);
                }

                // One node dies: up starts it again, and only it.
                let pid = |node: usize| -> u32 {
                    let data_dir = cluster.file.node[node].data_directory.clone().unwrap();
                    let text = fs::read_to_string(data_dir.join("postmaster.pid")).unwrap();
                    text.lines().next().unwrap().parse().unwrap()
                };
                let (first, second) = (pid(0), pid(1));
                signal("-KILL", second);
                let data_dir = cluster.file.node[1].data_directory.clone().unwrap();
                wait_for("the node dies", || processes_below(&data_dir).is_empty());
                up(&options).unwrap();
                assert!(pid(0) == first && pid(1) != second);
                control::connect(&specs[1]).unwrap();
                let error = up(&options).unwrap_err();
                assert!(matches!(error, LocalError::AlreadyUp { .. }), "{error}");
                let error = up(&UpOptions { topology: Topology::Single, ..options.clone() }).unwrap_err();
                assert!(error.to_string().contains("not single"), "{error}");

                // One is dead when everything goes.
                signal("-KILL", pid(1));
                wait_for("the node dies", || processes_below(&data_dir).is_empty());
                let removed = down(&cluster.dir, &place.registry()).unwrap();
                assert_eq!((removed.stopped, removed.left.len()), (1, 0));
                place.assert_gone(&cluster.dir);
            });
        }
    });
}

#[test]
fn a_primary_that_was_replaced_is_not_started_beside_the_new_one() {
    let place = Place::new();
    let replication = Replication { standbys: 1, sync: SyncStandbys::ASYNC, commit: None };
    let options =
        UpOptions { topology: Topology::Replicated(replication), ..place.options(&installations()[0]) };
    let cluster = up(&options).unwrap();
    let end = |node: usize| {
        let data_dir = cluster.file.node[node].data_directory.clone().unwrap();
        let text = fs::read_to_string(data_dir.join("postmaster.pid")).unwrap();
        signal("-QUIT", text.lines().next().unwrap().parse().unwrap());
        wait_for("the node ends", || processes_below(&data_dir).is_empty());
    };
    let spec = |node: usize| {
        cluster.file.resolve(&cluster.file.node[node].connection, &Sources::of_process()).unwrap().spec
    };
    end(0);
    assert_eq!(shown(&spec(1), "select pg_promote()::text"), ["true"]);
    let error = up(&options).unwrap_err();
    assert!(error.to_string().contains("node primary is not started: s1 was promoted"), "{error}");
    assert!(error.hint().unwrap().contains("pgfathom down"));
    end(1);
    let again = up(&options).unwrap();
    assert!(again.notes[0].starts_with("node primary is not started: s1 was promoted"), "{:?}", again.notes);
    assert_eq!(control::connect(&again.spec).unwrap().host_index(), 1);
    assert_eq!(down(&cluster.dir, &place.registry()).unwrap().stopped, 1);
    place.assert_gone(&cluster.dir);
}

#[test]
fn more_nodes_than_multimaster_knows_are_refused_before_anything_is_made() {
    let place = Place::new();
    let options = UpOptions { topology: Topology::Mtm { nodes: 17 }, ..place.options(&installations()[0]) };
    let error = up(&options).unwrap_err();
    assert!(error.to_string().contains("17 nodes of Multimaster"), "{error}");
    assert!(error.hint().unwrap().contains("--nodes 16"));
    assert!(!options.dir.exists());
}

#[test]
fn what_goes_wrong_on_one_node_names_it() {
    let place = Place::new();
    let installation = &installations()[0];
    let sharded = Topology::Sharded { nodes: 3, partitions: 3 };
    let sockets = place.0.join("s");
    let neighbour =
        UpOptions { socket_dir: Some(sockets.clone()), port: Some(5990), ..place.options(installation) };
    up(&neighbour).unwrap();
    let options = UpOptions {
        topology: sharded,
        dir: place.0.join("d"),
        socket_dir: Some(sockets),
        port: Some(5989),
        ..place.options(installation)
    };
    let error = up(&options).unwrap_err();
    assert!(error.to_string().starts_with("node n2: "), "{error}");
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains("port 5990 is taken") && error.hint().unwrap().contains("--port"), "{cause}");
    assert!(!options.dir.exists());

    // Files of others in a node's folder stay, and so does the folder.
    let cluster = up(&UpOptions { port: None, ..options }).unwrap();
    fs::write(cluster.dir.join("n2/notes"), "mine").unwrap();
    let removed = down(&cluster.dir, &place.registry()).unwrap();
    assert_eq!((removed.stopped, removed.left), (3, vec![cluster.dir.join("n2")]));
    assert_eq!(fs::read_to_string(cluster.dir.join("n2/notes")).unwrap(), "mine");

    // A frozen server hears no signal but one.
    fs::remove_dir_all(&cluster.dir).unwrap();
    let cluster = up(&UpOptions {
        dir: place.0.join("e"),
        topology: Topology::Sharded { nodes: 2, partitions: 2 },
        ..place.options(installation)
    })
    .unwrap();
    // A worker that vacuums may end before its signal comes.
    let processes = processes_below(&cluster.dir.join("n1"));
    let stopped = processes.into_iter().filter(|pid| is_signalled("-STOP", *pid)).count();
    assert!(stopped > 1, "the server and its processes were stopped");
    assert_eq!(down(&cluster.dir, &place.registry()).unwrap().stopped, 2);
    assert!(!cluster.dir.exists() && processes_below(&cluster.dir).is_empty());
}

fn rustix_is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").unwrap().uid() == 0
}

#[test]
fn a_full_disk_is_told() {
    let place = Place::new();
    let disk = place.0.join("disk");
    fs::create_dir(&disk).unwrap();
    if let Err(lack) = testing::needs::mounts() {
        return testing::skip(&lack);
    }
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=16m", "tmpfs"]).arg(&disk).status();
    assert!(mounted.unwrap().success());
    let options = UpOptions { dir: disk.join("c"), ..place.options(&installations()[0]) };
    let result = up(&options);
    // A cluster that fits, on a disk that fills up while it is stopped.
    let resized =
        Command::new("mount").args(["-o", "remount,size=120m"]).arg(&disk).status().unwrap().success();
    let second = resized.then(|| {
        let cluster = up(&options).unwrap();
        signal("-INT", postmaster_pid(&cluster));
        wait_for("the server stops", || processes_below(&cluster.dir).is_empty());
        let _ = fs::write(disk.join("ballast"), vec![1; 200 << 20]);
        let error = up(&options).unwrap_err();
        fs::remove_file(disk.join("ballast")).unwrap();
        let removed = down(&cluster.dir, &place.registry()).unwrap();
        (error, removed)
    });
    assert!(Command::new("umount").arg(&disk).status().unwrap().success());
    let error = result.unwrap_err();
    assert!(error.to_string().contains("No space left on device"), "{error}");
    assert!(error.hint().unwrap().contains("df -h"), "{:?}", error.hint());
    let (error, removed) = second.unwrap();
    assert!(error.hint().unwrap().contains("df -h"), "{error}\n{:?}", error.hint());
    assert!(removed.left.is_empty());
}

/// Set for the copy of this test that is to be killed.
const VICTIM: &str = "PGFATHOM_TEST_UP_VICTIM";
/// What it is to make: a kind, or a single server.
const VICTIM_KIND: &str = "PGFATHOM_TEST_UP_VICTIM_KIND";

#[test]
fn whatever_step_is_interrupted_down_removes_the_rest() {
    if let Some(place) = std::env::var_os(VICTIM) {
        let place = Place(PathBuf::from(place));
        let kind = std::env::var(VICTIM_KIND).unwrap_or_default();
        let topology = several().into_iter().find(|topology| topology.kind() == kind);
        let options =
            UpOptions { topology: topology.unwrap_or_default(), ..place.options(&installations()[0]) };
        let cluster = up(&options).unwrap();
        println!("\nup {}", cluster.dir.display());
        std::thread::sleep(Duration::from_secs(600));
    }
    std::thread::scope(|scope| {
        for kind in ["single", "sharded", "replicated", "multimaster"] {
            scope.spawn(move || interrupt_every_step(kind));
        }
    });
}

fn interrupt_every_step(kind: &str) {
    let place = Place::new();
    let dir = place.0.join("c");
    let begin = Instant::now();
    let topology = several().into_iter().find(|topology| topology.kind() == kind).unwrap_or_default();
    let options = UpOptions { topology, ..place.options(&installations()[0]) };
    let victim = |wait_ms: u64, signal_name: &str| -> bool {
        let mut victim = testing::again(module_path!(), "whatever_step_is_interrupted_down_removes_the_rest")
            .arg("--nocapture")
            .env(VICTIM, &place.0)
            .env(VICTIM_KIND, kind)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(wait_ms));
        signal(signal_name, victim.id());
        victim.wait().unwrap();
        let complete = dir.join("cluster.toml").exists();
        if dir.join(".pgfathom-cluster").exists() {
            if !complete {
                let error = up(&options).unwrap_err();
                assert!(matches!(error, LocalError::Incomplete { .. } | LocalError::Busy { .. }), "{error}");
            }
            // initdb gets its signal together with us and may still be tidying up.
            wait_for("down", || down(&dir, &place.registry()).is_ok());
        } else if dir.exists() {
            // Killed before the marker: an empty folder, which up takes again.
            assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
            fs::remove_dir(&dir).unwrap();
        }
        wait_for("no process is left", || processes_below(&dir).is_empty());
        place.assert_gone(&dir);
        complete
    };
    // From before the marker to after the end, in steps that land in initdb, in the start and behind it.
    // Not SIGINT: it is ignored by whatever a shell script has started in the background, and so it is by its children.
    let mut wait_ms = 5;
    while !victim(wait_ms, if wait_ms % 2 == 0 { "-TERM" } else { "-KILL" }) {
        wait_ms = wait_ms * 5 / 4 + if kind == "single" { 15 } else { 120 };
        assert!(begin.elapsed() < Duration::from_secs(240), "up never came to its end");
    }
}

#[test]
fn cluster_files_are_checked() {
    let place = Place::new();
    let path = place.0.join("cluster.toml");
    for (text, words) in [
        ("format = 1\nengine = \"postgres\"\nnode = []\n", "it has no [[node]]"),
        ("format = 2\nengine = \"postgres\"\nnode = []\n", "format 2 is not known"),
        ("format = 1\nengine = \"postgres\"\n", "missing field `node`"),
        (
            "format = 1\nengine = \"postgres\"\n[[node]]\nname = \"a\"\nrole = \"primary\"\nconection = \"x\"\n",
            "unknown field `conection`",
        ),
        ("format = \n", "line 1"),
    ] {
        fs::write(&path, text).unwrap();
        let error = ClusterFile::read(&path).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
        assert!(error.hint().unwrap().contains("[[node]]"));
    }
    assert!(ClusterFile::read(&place.0.join("none.toml")).unwrap_err().to_string().contains("cannot read"));
}

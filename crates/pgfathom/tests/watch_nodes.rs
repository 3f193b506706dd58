//! `watch` pointed at one node of several: every node that can be reached is watched, and of the others it is said why not.

use crate::support;
use lab::throwaway::{StopMode, Throwaway, ThrowawayCluster, installations};
use record::RunReader;
use record::event;
use record::watched::Sampled;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use support::{Ended, Folder, pgfathom};

/// What has not come by then will not come.
const PATIENCE: Duration = Duration::from_secs(120);

fn uri(server: &Throwaway) -> String {
    format!("host={} port={} user=postgres dbname=postgres", server.socket_dir().display(), server.port())
}

/// A watch that goes on.
struct Watch<'a> {
    folder: &'a Folder,
    name: &'a str,
    child: Option<Child>,
}

impl Watch<'_> {
    fn begin<'a>(folder: &'a Folder, name: &'a str, target: &str) -> Watch<'a> {
        let mut command = pgfathom(folder.path());
        command.args(["watch", "--no-host", "--interval", "200ms", "-o", name, target]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
        Watch { folder, name, child: Some(child) }
    }

    /// Waits until the directory holds what is looked for.
    fn until(&self, what: &str, holds: impl Fn(&RunReader) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        let path = self.folder.path().join(self.name);
        while !RunReader::open(&path).is_ok_and(|reader| holds(&reader)) {
            assert!(
                Instant::now() < deadline,
                "{what}: {:?}",
                RunReader::open(&path).map(|reader| missing(&reader))
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn end(mut self) -> (Ended, RunReader) {
        let child = self.child.take().expect("it goes on");
        let killed = std::process::Command::new("kill").args(["-s", "INT", &child.id().to_string()]).status();
        assert!(killed.expect("kill starts").success());
        let ended: Ended = child.wait_with_output().expect("ends").into();
        let reader = RunReader::open(&self.folder.path().join(self.name)).expect("a run directory");
        (ended, reader)
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Looks at a node so far.
fn looks(reader: &RunReader, node: &str) -> usize {
    let is_look = |line: &Sampled| matches!(line, Sampled::Server(server) if server.node == node);
    reader.samples.iter().filter_map(Sampled::parse).filter(is_look).count()
}

/// What is missing at the end: (node, what, why).
fn missing(reader: &RunReader) -> Vec<(String, String, String)> {
    let mut all: Vec<(String, String, String)> = vec![];
    for line in reader.samples.iter().filter_map(Sampled::parse) {
        if let Sampled::Missing(missing) = line {
            all.retain(|(node, what, _)| (node, what) != (&missing.node, &missing.what));
            if !missing.why.is_empty() {
                all.push((missing.node, missing.what, missing.why));
            }
        }
    }
    all
}

fn away(reader: &RunReader, node: &str) -> Option<String> {
    missing(reader).into_iter().find(|(at, what, _)| at == node && what == "server").map(|(_, _, why)| why)
}

#[test]
fn the_entry_of_a_sharded_cluster_leads_to_every_node() {
    let installation = installations().into_iter().next().expect("a PostgreSQL");
    let mut cluster = ThrowawayCluster::sharded(&installation, 3, 6).expect("a cluster");
    let folder = Folder::new();
    let watch = Watch::begin(&folder, "whole", &uri(cluster.node(0)));
    for node in ["n1", "n2", "n3"] {
        watch.until(node, |reader| looks(reader, node) >= 2);
    }
    // One goes away, is missed, and comes back; the others are looked at meanwhile.
    cluster.node_mut(2).stop(StopMode::Immediate).expect("stops");
    watch.until("n3 is missed", |reader| away(reader, "n3").is_some());
    let before = RunReader::open(&folder.path().join("whole")).map_or(0, |reader| looks(&reader, "n2"));
    watch.until("n2 is still watched", |reader| looks(reader, "n2") >= before + 2);
    cluster.node_mut(2).start_again().expect("starts");
    watch.until("n3 is back", |reader| away(reader, "n3").is_none());
    let (ended, reader) = watch.end();
    assert_eq!(ended.exit, Some(0), "{}", ended.stderr);
    for node in ["n1", "n2", "n3"] {
        assert!(ended.stdout.contains(&format!("{node}: ")), "{node} is missing in {}", ended.stdout);
    }
    let gone =
        |event: &&event::Event| event.kind == event::RESTART && event.message.starts_with("n3 went away");
    assert!(reader.events.iter().any(|event| gone(&event)), "{:?}", reader.events);

    // A node that is down from the beginning keeps nobody from watching the rest, and is watched when it comes.
    cluster.node_mut(1).stop(StopMode::Immediate).expect("stops");
    let watch = Watch::begin(&folder, "broken", &uri(cluster.node(0)));
    watch.until("n2 is missing", |reader| {
        away(reader, "n2").is_some_and(|why| why.contains("the catalog of") && why.contains("--cluster"))
    });
    watch.until("the others are watched", |reader| looks(reader, "n1") > 0 && looks(reader, "n3") > 0);
    cluster.node_mut(1).start_again().expect("starts");
    watch.until("n2 is watched", |reader| looks(reader, "n2") > 0 && away(reader, "n2").is_none());
    // A script drives one node; what its sessions wait for may lie on another.
    folder.write("script.sql", "SELECT 1;\n");
    let target = uri(cluster.node(0));
    let ended = support::run(
        folder.path(),
        &["run", "-n", "-f", "script.sql", "-c", "1", "-T", "1", "-o", "driven", &target],
    );
    assert_eq!(ended.exit, Some(0), "{}", ended.stderr);
    let reader = RunReader::open(&folder.path().join("driven")).expect("a run directory");
    for node in ["n1", "n2", "n3"] {
        assert!(looks(&reader, node) > 0, "{node} was not looked at");
    }
}

#[test]
fn both_sides_of_streaming_replication_are_found_as_far_as_anybody_knows() {
    let installation = installations().into_iter().next().expect("a PostgreSQL");
    let cluster = ThrowawayCluster::replicated(&installation, 1, "async").expect("a cluster");
    let (primary, standby) = (cluster.node(0), cluster.node(1));
    let folder = Folder::new();
    // A standby knows where its WAL comes from.
    let watch = Watch::begin(&folder, "standby", &uri(standby));
    watch.until("both", |reader| looks(reader, "standby") > 0 && looks(reader, "primary") > 0);
    drop(watch);
    // A primary does not know where its standbys listen: it says so, and what to type.
    let watch = Watch::begin(&folder, "primary", &uri(primary));
    watch.until("the standby is missing", |reader| {
        away(reader, "s1")
            .is_some_and(|why| why.contains("does not know the port") && why.contains("-h HOST1,HOST2"))
    });
    drop(watch);
    // Which is enough.
    let typed = format!(
        "host={},{} port={},{} user=postgres dbname=postgres",
        primary.socket_dir().display(),
        standby.socket_dir().display(),
        primary.port(),
        standby.port()
    );
    let watch = Watch::begin(&folder, "typed", &typed);
    let name = format!("local:{}", standby.port());
    watch.until("both", |reader| looks(reader, "primary") > 0 && looks(reader, &name) > 0);
    let (_, reader) = watch.end();
    assert!(missing(&reader).iter().all(|(_, what, _)| what != "server"), "{:?}", missing(&reader));
}

/// The address of a standby as the server shows it ends with the length of a network mask: with it no host can be found.
#[test]
fn a_standby_on_the_network_is_reported_with_its_address() {
    let installation = installations().into_iter().next().expect("a PostgreSQL");
    let mut cluster = ThrowawayCluster::replicated(&installation, 1, "async").expect("a cluster");
    // An address of the loopback that no other test uses: then the port is free there.
    let id = std::process::id();
    let address = format!("127.{}.{}.{}", 1 + id / 65_536 % 250, id / 256 % 256, 1 + id % 250);
    let primary = cluster.node_mut(0);
    let rules = primary.data_dir().join("pg_hba.conf");
    let before = std::fs::read_to_string(&rules).expect("it has rules");
    let more = "host all all 127.0.0.0/8 trust\nhost replication all 127.0.0.0/8 trust\n";
    std::fs::write(&rules, format!("{more}{before}")).expect("they can be written");
    primary.execute(&format!("alter system set listen_addresses = '{address}'")).expect("set");
    primary.stop(StopMode::Fast).expect("stops");
    primary.start_again().expect("starts");
    let conninfo = format!("host={address} port={} user=postgres application_name=far", primary.port());
    let standby = cluster.node(1);
    standby.execute(&format!("alter system set primary_conninfo = '{conninfo}'")).expect("set");
    standby.execute("select pg_reload_conf()").expect("reloads");
    testing::wait_for("a stream of WAL over the network", || {
        let streams = "select count(*) from pg_stat_replication where state = 'streaming' and client_addr is not null and replay_lsn is not null";
        cluster.node(0).value(streams).is_ok_and(|streams| streams.as_deref() == Some("1"))
    });
    let folder = Folder::new();
    let watch = Watch::begin(&folder, "network", &uri(cluster.node(0)));
    watch.until("the standby is missing", |reader| {
        away(reader, "far").is_some_and(|why| why.contains("streams from the primary (127.0.0.1)"))
    });
}

/// A program that receives the WAL replays nothing: there is no server behind it that could be missed.
#[test]
fn a_program_that_receives_the_wal_is_no_standby() {
    let has_receiver = |one: &lab::local::Installation| one.bin_dir.join("pg_receivewal").exists();
    let installation =
        installations().into_iter().find(has_receiver).expect("a PostgreSQL with pg_receivewal");
    let server = lab::throwaway::Throwaway::start(&installation, &[]).expect("a server");
    let folder = Folder::new();
    std::fs::create_dir(folder.path().join("wal")).expect("a folder for the WAL");
    let mut receiver = std::process::Command::new(installation.bin_dir.join("pg_receivewal"));
    let (socket, port) = (server.socket_dir().display().to_string(), server.port().to_string());
    receiver.args(["-h", &socket, "-p", &port, "-U", "postgres", "-D", "wal"]).current_dir(folder.path());
    let _receiver = testing::Running::new(receiver.stderr(Stdio::null()).spawn().expect("it starts"));
    testing::wait_for("a stream of WAL", || {
        let streams = server.value("select count(*) from pg_stat_replication where state = 'streaming'");
        streams.is_ok_and(|streams| streams.as_deref() == Some("1"))
    });
    let watch = Watch::begin(&folder, "received", &uri(&server));
    watch.until("looks", |reader| looks(reader, "single") >= 3);
    let (ended, reader) = watch.end();
    assert_eq!(ended.exit, Some(0), "{}", ended.stderr);
    assert!(missing(&reader).iter().all(|(_, what, _)| what != "server"), "{:?}", missing(&reader));
}

//! Cluster files of servers that hold each other's partitions: a node of another cluster, and one behind a proxy.

use crate::labs::{ClusterLab, expect};
use crate::relay::Relay;
use crate::support::pgfathom;
use lab::local::Topology;
use lab::throwaway::{ThrowawayCluster, installations};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The cluster file with the connection of the second node replaced.
fn with_second(lab: &ClusterLab, name: &str, connection: &str) -> PathBuf {
    let text = std::fs::read_to_string(lab.servers.cluster_toml()).expect("it is there");
    let second = lab.servers.node(1);
    // Nodes differ in their folder or in their port.
    let own = [format!("host={} ", second.socket_dir().display()), format!("port={} ", second.port())];
    let replaced: Vec<String> = text
        .lines()
        .map(|line| match line.starts_with("connection") && own.iter().all(|one| line.contains(one)) {
            true => format!("connection = \"{connection}\""),
            false => line.to_string(),
        })
        .collect();
    assert!(replaced.iter().any(|line| line.contains(connection)), "{text}");
    let path = lab.folder.path().join(name);
    std::fs::write(&path, replaced.join("\n") + "\n").expect("it is written");
    path
}

fn typed(lab: &ClusterLab, exit: i32, arguments: &str, file: &Path) -> String {
    let mut command = pgfathom(lab.folder.path());
    command.args(arguments.split_whitespace()).arg("--cluster").arg(file);
    let ended = expect(exit, command, arguments);
    format!("{}{}", ended.stdout, ended.stderr)
}

/// A server of another cluster in the place of a shard: `run` registered in its ledger, and its own rows then looked lost.
#[test]
fn a_shard_of_another_cluster_is_refused_and_one_behind_a_proxy_is_known_by_its_identity() {
    let installation = installations().into_iter().next().expect("make test installs one");
    let topology = Topology::Sharded { nodes: 3, partitions: 6 };
    let servers = ThrowawayCluster::start(&installation, &topology, &[]).expect("a throwaway cluster starts");
    let lab = ClusterLab::new(servers);
    lab.expect(0, "load ycsb --rows 2000 --watch off -o load");
    let other =
        ThrowawayCluster::start(&installation, &Topology::Single, &[]).expect("another server starts");
    let stranger = other.node(0);
    let at = |host: String, port: u16| format!("dbname=postgres host={host} port={port} user=postgres");
    let wrong =
        with_second(&lab, "wrong.toml", &at(stranger.socket_dir().display().to_string(), stranger.port()));
    for verb in [
        "run -b ycsb-a -t 5 -o run1",
        "verify ycsb",
        "matrix -T 1 -o m1",
        "prove bank -T 1 -o b1",
        "check --skip network",
    ] {
        let text = typed(&lab, 1, verb, &wrong);
        assert!(text.contains("no node of the cluster file is that server"), "{verb}: {text}");
        assert!(text.contains("correct the connection of the [[node]] that is \"n2\""), "{verb}: {text}");
    }
    let second = lab.servers.node(1);
    let proxy = Relay::start(second.socket_dir(), second.port(), Duration::ZERO);
    let behind = with_second(&lab, "behind.toml", &at(proxy.folder().display().to_string(), second.port()));
    let text = typed(&lab, 0, "verify ycsb", &behind);
    assert!(text.contains("2,000 rows exact"), "{text}");
    typed(&lab, 0, "run -b ycsb-a -c 3 -t 20 --connect owner --watch off -o owner", &behind);
    // Whoever writes a file calls the nodes as he likes: the foreign servers that lead to them are known by their addresses.
    let text = std::fs::read_to_string(lab.servers.cluster_toml()).expect("it is there");
    let renamed = lab.folder.path().join("renamed.toml");
    std::fs::write(&renamed, text.replace("name = \"n", "name = \"shard ")).expect("it is written");
    for (verb, words) in [
        ("prove bank -T 6 -o bank", "shard 2"),
        ("prove wide -T 2 -o wide", "a commit on shard 1, shard 2"),
        ("prove engine -o engine", " agree, 0 differ"),
    ] {
        let text = typed(&lab, 0, verb, &renamed);
        assert!(text.contains(words), "{verb}: {text}");
    }
}

/// One server under two names: `run` waited for half a minute for a lock that it held itself.
#[test]
fn two_names_of_one_shard_are_refused_by_run() {
    let installation = installations().into_iter().next().expect("make test installs one");
    let topology = Topology::Sharded { nodes: 2, partitions: 6 };
    let servers = ThrowawayCluster::start(&installation, &topology, &[]).expect("a throwaway cluster starts");
    let lab = ClusterLab::new(servers);
    lab.expect(0, "load ycsb --rows 500 --watch off -o load");
    let first = lab.servers.node(0);
    let proxy = Relay::start(first.socket_dir(), first.port(), Duration::ZERO);
    let connection =
        format!("dbname=postgres host={} port={} user=postgres", proxy.folder().display(), first.port());
    let twice = with_second(&lab, "twice.toml", &connection);
    let text = typed(&lab, 1, "run -b ycsb-a -t 5 -o run1", &twice);
    assert!(text.contains("are the same database"), "{text}");
}

//! A cluster that fails over by itself: `up patroni`, faults under load on it, directly and through haproxy, and `down`. Where the programs are installed.

use crate::support;
use lab::local::{self, servers_in};
use serde_json::Value;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Instant;
use support::{Ended, Folder, run};
use testing::needs;

/// The lease of the primary in seconds: short, so that a failover is.
const TTL_S: &str = "6";
/// Ports of a cluster of two nodes: servers, haproxy, REST interfaces, etcd.
const PORTS: u16 = 8;

/// Whether the programs are there; else the test is counted as skipped.
fn is_installed() -> bool {
    for name in ["patroni", "etcd", "haproxy"] {
        if let Err(lack) = needs::program(name) {
            testing::skip(&lack);
            return false;
        }
    }
    true
}

/// As many free ports in a row, away from those that the system hands out by itself.
fn free_ports() -> u16 {
    let from = 10_000 + (std::process::id() % 2_000) as u16 * 10;
    let is_free = |first: &u16| (0..PORTS).all(|at| TcpListener::bind(("127.0.0.1", first + at)).is_ok());
    (from..32_000).step_by(usize::from(PORTS)).find(is_free).expect("free ports")
}

/// A cluster in a folder of the servers' user; removed with the test.
struct Managed {
    folder: Folder,
    dir: PathBuf,
    made: Value,
}

impl Managed {
    fn start(mode: &str) -> Managed {
        let folder = Folder::new();
        let dir = std::env::temp_dir().join(format!("pgfathom-manager-{}-{mode}", std::process::id()));
        let port = free_ports().to_string();
        let arguments = [
            "up",
            "patroni",
            "--nodes",
            "2",
            "--synchronous-mode",
            mode,
            "--ttl",
            TTL_S,
            "--preset",
            "laptop",
            "--port",
            &port,
            "--dir",
            &dir.display().to_string(),
            "--format",
            "json",
        ];
        let up = run(folder.path(), &arguments);
        assert_eq!(up.exit, Some(0), "{}{}", up.stdout, up.stderr);
        let made = serde_json::from_str(&up.stdout).expect("up prints JSON");
        Managed { folder, dir, made }
    }

    fn file(&self) -> String {
        self.dir.join("cluster.toml").display().to_string()
    }

    /// The address of haproxy for writes.
    fn front(&self) -> String {
        let proxies = self.made["proxies"].as_array().expect("a list");
        let writes = proxies.iter().find(|one| one["name"] == "writes").expect("one for writes");
        writes["connection"].as_str().expect("a connection string").to_owned()
    }

    fn pgfathom(&self, arguments: &[&str]) -> Ended {
        let ended = run(self.folder.path(), arguments);
        eprintln!("$ pgfathom {}\n{}{}", arguments.join(" "), ended.stdout, ended.stderr);
        ended
    }

    fn record(&self, directory: &str) -> Value {
        let text = std::fs::read_to_string(self.folder.path().join(directory).join("run.json"));
        serde_json::from_str(&text.expect("run.json is there")).expect("run.json is whole")
    }

    fn node(&self, name: &str) -> PathBuf {
        self.dir.join(name).join("data")
    }
}

impl Drop for Managed {
    fn drop(&mut self) {
        if local::is_ours(&self.dir) {
            let _ = run(self.folder.path(), &["down", &self.dir.display().to_string()]);
        }
    }
}

/// The promise that measured the failover.
fn measured(record: &Value) -> &Value {
    let promises = record["steps"][0]["promises"].as_array().expect("promises");
    promises.iter().find(|promise| promise["failover"].is_object()).expect("one measured the failover")
}

fn standing<'a>(record: &'a Value, words: &str) -> &'a str {
    let promises = record["steps"][0]["promises"].as_array().expect("promises");
    let of = |promise: &&Value| promise["promise"].as_str().is_some_and(|text| text.contains(words));
    promises.iter().find(of).and_then(|promise| promise["standing"].as_str()).expect("such a promise")
}

/// No program works in the folder any more, whatever it is called.
fn is_empty(dir: &Path) -> bool {
    let works_there =
        |pid: &u32| std::fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(dir));
    let processes = std::fs::read_dir("/proc").expect("Linux").flatten();
    !processes
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .any(|pid| works_there(&pid))
}

#[test]
fn commits_that_wait_for_a_standby_survive_the_loss_of_the_primary_by_every_way_in() {
    if !is_installed() {
        return;
    }
    let cluster = Managed::start("on");
    let file = cluster.file();
    // Directly, twice: the old primary has come back as a standby before the second time.
    let crash = ["--fault", "crash@2s", "-T", "12", "-o", "lost"];
    let arguments = [&["prove", "ack", "--cluster", &file, "--repeat", "2"][..], &crash].concat();
    let ended = cluster.pgfathom(&arguments);
    assert_eq!(ended.exit, Some(0), "{}{}", ended.stdout, ended.stderr);
    let record = cluster.record("lost");
    assert_eq!(standing(&record, "no acknowledged write is lost"), "kept");
    let failover = &measured(&record)["failover"];
    assert_eq!(
        (&failover["repeats"], &failover["lost_commits"]["max"]),
        (&2.into(), &0.0.into()),
        "{failover}"
    );

    // A new cluster: the old primary of this one has not become a standby again yet.
    drop(cluster);
    let cluster = Managed::start("on");
    let (file, front) = (cluster.file(), cluster.front());
    // Through haproxy, with the time until writes are answered again.
    let arguments = [
        "prove",
        "hb",
        "--cluster",
        &file,
        "--through",
        &front,
        "--fault",
        "crash@2s",
        "-T",
        "30",
        "-o",
        "away",
    ];
    let ended = cluster.pgfathom(&arguments);
    assert_eq!(ended.exit, Some(0), "{}{}", ended.stdout, ended.stderr);
    let record = cluster.record("away");
    let failover = &measured(&record)["failover"];
    let rto_us = failover["rto_write_us"]["median"].as_f64().expect("writes came back");
    // The lease has to end first, and nothing takes as long as the rest of the measurement.
    assert!((1e6..28e6).contains(&rto_us), "{failover}");
    let downtime = failover["downtime_write_percent"]["median"].as_f64().expect("measured");
    assert!(downtime > 5.0 && downtime < 95.0, "{failover}");
    assert_eq!(standing(&record, "acknowledged are kept"), "kept");

    let ended = cluster.pgfathom(&["down", &cluster.dir.display().to_string()]);
    assert_eq!(ended.exit, Some(0), "{}", ended.stderr);
    assert!(!cluster.dir.exists());
    assert!(is_empty(&cluster.dir));
}

#[test]
fn the_manager_starts_what_a_fault_has_ended_and_pgfathom_does_not() {
    if !is_installed() {
        return;
    }
    let cluster = Managed::start("off");
    let file = cluster.file();
    let begin = Instant::now();
    for (fault, words) in [
        ("kill:n1@1s,heal@2s", "acknowledged are kept"),
        ("switchover@1s", "acknowledged are kept"),
        ("store@1s,heal@12s", "are answered, and resume"),
    ] {
        let name = fault.split(['@', ':']).next().expect("a word");
        let arguments = ["prove", "hb", "--cluster", &file, "--fault", fault, "-T", "25", "-o", name];
        let ended = cluster.pgfathom(&arguments);
        let record = cluster.record(name);
        // On a busy host it may take longer than the measurement: then it cannot tell.
        assert!(matches!(ended.exit, Some(0 | 8)), "{fault}: {}{}", ended.stdout, ended.stderr);
        assert_ne!(standing(&record, words), "broken", "{fault}");
        let events = std::fs::read_to_string(cluster.folder.path().join(name).join("events.ndjson"));
        assert!(!events.expect("events").contains("not done"), "{fault}");
        // One server in each folder, whoever started it.
        for node in ["n1", "n2"] {
            let of_one = servers_in(&cluster.node(node)).len();
            assert!(of_one > 0, "{fault}: {node} is down {:?} after the begin", begin.elapsed());
        }
    }
    // What only a manager decides is refused with what to use.
    let ended = cluster.pgfathom(&[
        "prove",
        "hb",
        "--cluster",
        &file,
        "--fault",
        "promote@1s",
        "-T",
        "3",
        "-o",
        "no",
    ]);
    assert_eq!(ended.exit, Some(8), "{}{}", ended.stdout, ended.stderr);
    assert!(
        ended.stdout.split_whitespace().collect::<Vec<_>>().join(" ").contains("use switchover"),
        "{}",
        ended.stdout
    );
}

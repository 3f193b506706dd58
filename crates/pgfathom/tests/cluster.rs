//! `up` and `down` as the user meets them: a cluster that other verbs find by its file, and nothing left at the end.

use crate::support;
use support::{Ended, Folder, pgfathom, run};

/// Whatever a failing test leaves behind is removed: the registry lies in the test's own home.
struct Removed<'a>(&'a Folder);

impl Drop for Removed<'_> {
    fn drop(&mut self) {
        run(self.0.path(), &["down", "--all"]);
    }
}

#[test]
fn a_cluster_comes_is_used_and_goes() {
    let folder = Folder::new();
    let _removed = Removed(&folder);
    let dir = folder.path().join("cluster");
    let dir = dir.to_str().expect("the temporary folder is UTF-8");
    let up = run(
        folder.path(),
        &["up", "single", "--dir", dir, "--preset", "careless", "--set", "shared_buffers=64MB"],
    );
    assert_eq!(up.exit, Some(0), "{}", up.stderr);
    let lines: Vec<&str> =
        up.stdout.lines().map(|line| line.split_whitespace().next().unwrap_or_default()).collect();
    assert_eq!(lines, ["up", "cluster", "connect", "next", "remove"], "{}", up.stdout);
    let file = format!("{dir}/cluster.toml");

    let twice = run(folder.path(), &["up", "single", "--dir", dir]);
    assert_eq!(twice.exit, Some(1));
    assert!(
        twice.stderr.starts_with(&format!("error: the cluster in {dir} is already up")),
        "{}",
        twice.stderr
    );
    assert!(
        twice.stderr.contains(&format!("hint: use it as it is, or remove it: pgfathom down {dir}")),
        "{}",
        twice.stderr
    );

    // A file that names an engine which this database is no part of: the rows would be on this server alone.
    let text = std::fs::read_to_string(&file).expect("the cluster file is there");
    for (engine, title) in [("citus", "Citus"), ("mtm", "Postgres Pro Multimaster")] {
        folder.write("other.toml", &text.replace("engine = \"postgres\"", &format!("engine = \"{engine}\"")));
        let other = run(folder.path(), &["load", "ycsb", "--rows", "100", "--cluster", "other.toml"]);
        assert_eq!(other.exit, Some(1), "{}", other.stderr);
        let error =
            format!("error: the engine of the cluster file is {engine}, and the database \"postgres\"");
        assert!(other.stderr.contains(&error) && other.stderr.contains(title), "{}", other.stderr);
        assert!(other.stderr.contains("hint: name the database that is"), "{}", other.stderr);
    }

    // The file, and the folder it lies in, both name the cluster.
    let load =
        run(folder.path(), &["load", "ycsb", "--rows", "1000", "--partitions", "3", "--cluster", &file]);
    assert_eq!(load.exit, Some(0), "{}", load.stderr);
    let verify = run(folder.path(), &["verify", "--cluster", dir]);
    assert_eq!(
        (verify.exit, verify.stdout.contains("1,000 rows exact")),
        (Some(0), true),
        "{}",
        verify.stderr
    );

    let list = run(folder.path(), &["down"]);
    assert_eq!((list.exit, list.stdout.trim()), (Some(0), dir), "{}", list.stderr);
    let down = run(folder.path(), &["down", &file]);
    assert_eq!(down.exit, Some(0), "{}", down.stderr);
    assert!(down.stdout.contains("stopped and removed"), "{}", down.stdout);
    assert!(!std::path::Path::new(dir).exists(), "the folder is gone");
    let again = run(folder.path(), &["down", dir]);
    assert_eq!(again.exit, Some(1), "{}", again.stdout);
    assert!(again.stderr.contains("does not exist"), "{}", again.stderr);
    assert_eq!(run(folder.path(), &["down"]).stdout, "");
}

#[test]
fn json_tells_scripts_how_to_connect() {
    let folder = Folder::new();
    let _removed = Removed(&folder);
    let dir = folder.path().join("cluster");
    let dir = dir.to_str().expect("the temporary folder is UTF-8");
    let up: Ended = pgfathom(folder.path())
        .args(["up", "single", "--dir", dir, "--preset", "careless", "--format", "json", "--port", "5555"])
        .output()
        .expect("starts")
        .into();
    assert_eq!(up.exit, Some(0), "{}", up.stderr);
    let told: serde_json::Value = serde_json::from_str(&up.stdout).expect("stdout is JSON and nothing else");
    assert_eq!(told["cluster_file"], format!("{dir}/cluster.toml"));
    let connection = told["connection"].as_str().expect("a connection string");
    assert!(connection.contains("port=5555"), "{connection}");
    let nothing = run(folder.path(), &["verify", connection]);
    assert!(nothing.stderr.starts_with("error: this database has no dataset"), "{}", nothing.stderr);
    let down = run(folder.path(), &["down", "--all", "--format", "json"]);
    let told: serde_json::Value =
        serde_json::from_str(&down.stdout).expect("stdout is JSON and nothing else");
    assert_eq!(told["stopped"], 1);
    assert!(!std::path::Path::new(dir).exists());
}

#[test]
fn flags_of_other_kinds_and_impossible_clusters_are_refused() {
    let folder = Folder::new();
    let refused = |arguments: &[&str], error: &str, hint: &str| {
        let ended = run(folder.path(), &[&["up"], arguments].concat());
        assert_eq!(ended.exit, Some(1), "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.starts_with(&format!("error: {error}")), "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(hint), "{arguments:?}: {}", ended.stderr);
    };
    refused(&["single", "--nodes", "3"], "--nodes does not apply to up single", "pgfathom up sharded");
    refused(
        &["sharded", "--standbys", "1"],
        "--standbys does not apply to up sharded",
        "pgfathom up replicated",
    );
    refused(
        &["replicated", "--standbys", "1", "--sync", "FIRST 2 (s1, s2)"],
        "--sync \"FIRST 2 (s1, s2)\": no standby is called \"s2\"",
        "hint: write \"FIRST 1 (s1)\"",
    );
    refused(&["sharded", "--nodes", "65"], "a local cluster has 1 to 64 nodes, not 65", "--nodes 3");
    refused(&["sharded", "--partitions", "2"], "2 partitions on 3 nodes", "--partitions 12");
    refused(
        &["single", "--preset", "replication-1"],
        "preset replication-1: up single has no standbys",
        "up replicated",
    );
    refused(
        &["replicated", "--set", "synchronous_standby_names=s1"],
        "synchronous_standby_names cannot be set before the standbys are there",
        "--sync",
    );
    refused(
        &["patroni", "--delay", "n1-n2=1ms"],
        "--delay \"n1-n2=1ms\": Patroni itself writes how the nodes connect",
        "hint: omit --delay, or: pgfathom up replicated --delay 'primary-*=1ms'",
    );
    refused(
        &["sharded", "--delay", "n1-n4=1ms"],
        "--delay \"n1-n4=1ms\": no node is called \"n4\"",
        "--delay n1-n2=1ms",
    );
    refused(&["sharded", "--delay", "n1-n2=1"], "--delay \"n1-n2=1\": \"1\" is no time", "--delay n1-n2=1ms");
    refused(
        &["citus", "--delay", "w1-w2=1ms"],
        "--delay \"w1-w2=1ms\": all nodes use one address of w1",
        "--delay '*-*=1ms'",
    );
    refused(&["citus", "--dir", "citus", "--nodes", "2"], "the extension citus is not installed", "--pg-bin");
    assert!(!folder.path().join("citus").exists(), "a failed up leaves nothing");
}

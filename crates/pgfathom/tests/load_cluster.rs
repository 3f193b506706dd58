//! Clusters are filled by the command: every PostgreSQL found, each on a throwaway cluster of three nodes.

use crate::{labs, support};
use lab::throwaway::{ThrowawayCluster, installations};
use labs::{ClusterLab, expect};
use serde_json::Value;
use support::{Ended, pgfathom};

/// Types a command with this connection instead of the cluster file.
fn with_connection(lab: &ClusterLab, exit: i32, arguments: &str, connection: &[&str]) -> Ended {
    let mut command = pgfathom(lab.folder.path());
    command.args(arguments.split_whitespace()).args(connection);
    expect(exit, command, arguments)
}

fn on_each(test: impl Fn(&ClusterLab)) {
    let found = installations();
    assert!(!found.is_empty(), "these tests need a PostgreSQL");
    for installation in &found {
        let servers = ThrowawayCluster::sharded(installation, 3, 6).expect("a throwaway cluster starts");
        test(&ClusterLab::new(servers));
    }
}

#[test]
fn a_cluster_is_filled_in_segments_and_verified() {
    on_each(|lab| {
        let first = lab.expect(0, "load ycsb --rows 6000 -j 3 --chunk-rows 500 --segment 1/2 -o first");
        assert!(first.stderr.contains("this segment is complete ("), "{}", first.stderr);
        let second = lab.expect(0, "load ycsb --rows 6000 -j 3 --segment 2/2 --format json -o second");
        let summary: Value = serde_json::from_str(&second.stdout).expect("the summary");
        assert_eq!(summary["rows"], 3000);
        let run = lab.run_json("second");
        assert_eq!(run["target"]["engine"], "fdw-sharded");
        let nodes = run["steps"][0]["totals"]["nodes"].as_array().expect("the nodes").clone();
        let names: Vec<&str> = nodes.iter().filter_map(|node| node["name"].as_str()).collect();
        assert_eq!(names, ["n1", "n2", "n3"]);
        let in_ledgers: u64 = nodes.iter().filter_map(|node| node["rows_in_ledger"].as_u64()).sum();
        assert_eq!(in_ledgers, 6000);
        let samples =
            std::fs::read_to_string(lab.folder.path().join("first/samples.ndjson")).expect("samples");
        assert!(samples.contains("\"rows_goal\":3000"), "{samples}");
        let verified = lab.expect(0, "verify");
        assert!(verified.stdout.contains("exact"), "{}", verified.stdout);
        // From any node without the file.
        let entry = lab.servers.node(1);
        let (host, port) = (entry.socket_dir().display().to_string(), entry.port().to_string());
        let plain = ["-h", &host, "-p", &port, "-U", "postgres", "-d", "postgres"];
        let again = with_connection(lab, 0, "load ycsb --rows 6000", &plain);
        assert!(again.stderr.contains("all rows were already loaded"), "{}", again.stderr);
        let shown = lab.expect(0, "load ycsb --rows 900 --restart --via connect -o slow");
        assert!(shown.stdout.contains("nodes    n1 900 rows"), "{}", shown.stdout);
        lab.expect(0, "verify --deep");
    });
}

#[test]
fn stop_rules_and_mistakes_end_with_their_codes() {
    on_each(|lab| {
        let stopped = lab.expect(2, "load ycsb --rows 50M -j 3 --chunk-rows 2000 --deadline 3s -o cut");
        assert!(
            stopped.stderr.contains("the deadline has passed (3.0 s after the start): "),
            "{}",
            stopped.stderr
        );
        assert!(stopped.stderr.contains("run the same command again to continue"), "{}", stopped.stderr);
        assert_eq!(lab.run_json("cut")["steps"][0]["state"], "interrupted");
        let low = lab.expect(2, "load ycsb --rows 50M -j 3 --keep-free 1000PB -o low");
        assert!(low.stderr.contains("--keep-free requires 1 EB"), "{}", low.stderr);
        let cases = [
            ("load ycsb --rows 9 --segment 3/2", "\"3/2\" is not a segment", "1/N to N/N"),
            ("load ycsb --rows 9 --via magic", "--via: \"magic\" is unknown", "owner, connect"),
            (
                "load ycsb --rows 50M --deadline teatime",
                "\"teatime\" is neither a duration nor a time",
                "36h",
            ),
            (
                "load ycsb --rows 50M --via connect",
                "has via owner, but this load specifies connect",
                "--via owner",
            ),
            (
                "load ycsb --rows 50M --unlogged",
                "has tables logged, but this load specifies unlogged",
                "--restart",
            ),
            (
                "load ycsb --rows 9 --restart --tablespaces nowhere,else",
                "node n1 failed",
                "on every node of a cluster",
            ),
            ("load tpcc -s 1 --segment 1/2", "1 warehouses cannot be spread over", "give at least"),
        ];
        for (arguments, message, hint) in cases {
            let ended = lab.expect(1, arguments);
            let (error, told) = ended.stderr.split_once("hint:").unwrap_or((&ended.stderr, &ended.stderr));
            assert!(error.contains(message), "{arguments}: {error}");
            assert!(told.contains(hint), "{arguments}: {told}");
        }
        for node in lab.servers.nodes() {
            node.execute("create role poor login").expect("a role is made");
        }
        let file = lab.servers.cluster_toml().display().to_string();
        let ended =
            with_connection(lab, 1, "load ycsb --rows 9 --restart", &["--cluster", &file, "-U", "poor"]);
        assert!(ended.stderr.contains("node n1 failed"), "{}", ended.stderr);
        assert!(ended.stderr.contains("belongs to another role"), "{}", ended.stderr);
    });
}

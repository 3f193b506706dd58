//! Clusters are verified, driven and verified again, by the command: every PostgreSQL found, each on a throwaway cluster of three nodes.

use crate::labs::ClusterLab;
use std::path::Path;

use connect::conninfo::Sources;
use data::ycsb::{Compressible, KeyOrder, Spec};
use engines::Cluster;
use lab::local::LocalError;
use lab::throwaway::{ThrowawayCluster, installations};
use load::progress::Silent;
use load::{Options, Outcome, Stop};
use serde_json::Value;

const ROWS: u64 = 3000;
const PARTITIONS: u32 = 6;

fn on_each(test: impl Fn(&ClusterLab)) {
    for installation in &installations() {
        test(&lab(ThrowawayCluster::sharded(installation, 3, PARTITIONS), Some(PARTITIONS)));
    }
}

/// Loads the dataset into a cluster.
fn lab(servers: Result<ThrowawayCluster, LocalError>, partitions: Option<u32>) -> ClusterLab {
    let servers = servers.expect("a throwaway cluster starts");
    let cluster = Cluster::from_file(servers.file(), &Sources::of_process()).expect("its file is right");
    let spec = Spec { seed: 7, key_order: KeyOrder::Scattered, compressible: Compressible::NONE };
    let dataset = workloads::ycsb::dataset::Ycsb::new(ROWS, spec);
    let options = Options { partitions, streams: 3, ..Options::new() };
    let report = load::load(&cluster, &dataset, &options, &Stop::new(), &mut Silent).expect("it loads");
    assert_eq!(report.outcome, Outcome::Complete);
    ClusterLab::new(servers)
}

fn keys_in(text: &str) -> Vec<&str> {
    let mut keys: Vec<&str> =
        text.split_whitespace().filter(|word| word.len() == 22 && word.starts_with("user")).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

#[test]
fn every_node_is_told_and_what_is_wrong_is_named() {
    on_each(|lab| {
        let told = lab.expect(0, "verify -o exact").stdout;
        for node in ["n1", "n2", "n3"] {
            assert!(told.contains(&format!("  {node}   2 leaf tables")), "{told}");
        }
        assert_eq!(told.matches("exact").count(), 4, "{told}");
        for node in 0..3 {
            lab.expect_at(0, "verify", node);
        }
        let run = lab.run_json("exact");
        assert_eq!(run["target"]["engine"], "fdw-sharded");
        assert_eq!(run["summary"]["nodes"].as_array().map(Vec::len), Some(3));

        // A row of leaf 1 (on n2) smuggled into leaf 0 (on n1), and a foreign table turned to the wrong node.
        let key = lab.sql(1, "select min(ycsb_key) from usertable_p1");
        lab.sql(
            0,
            &format!(
                "create table stray as select * from usertable where ycsb_key = '{key}';
                 update pg_class set relispartition = false where relname = 'usertable_p0'; select 1"
            ),
        );
        lab.sql(
            0,
            "insert into usertable_p0 select * from stray;
             update pg_class set relispartition = true where relname = 'usertable_p0';
             drop foreign table usertable_p4;
             create foreign table usertable_p4 partition of usertable for values with (modulus 6, remainder 4)
                 server n3 options (schema_name 'public', table_name 'usertable_p4'); select 1",
        );
        let ended = lab.expect(3, "verify -o wrong");
        assert_eq!(keys_in(&ended.stdout), [key.as_str()], "{}", ended.stdout);
        for line in [
            "): is in usertable_p0 on n1 as well as in usertable_p1 on n2, where it belongs".to_string(),
            "  usertable_p4: the catalog of n1 points to usertable_p4 on n3, but it is on n2".to_string(),
            "1 table differs, 1 problem".to_string(),
        ] {
            assert!(ended.stdout.contains(&line), "{line}\n{}", ended.stdout);
        }
        let run = lab.run_json("wrong");
        let nodes = run["summary"]["nodes"].as_array().expect("nodes").clone();
        let valid: Vec<Option<bool>> = nodes.iter().map(|node| node["valid"].as_bool()).collect();
        assert_eq!(valid, [Some(false), Some(true), Some(true)]);
        let json = lab.expect(3, "verify --format json").stdout;
        let summary: Value = serde_json::from_str(&json).expect("the summary is JSON");
        assert_eq!(summary["nodes"], run["summary"]["nodes"]);
        assert!(Path::new(&lab.folder.path().join("wrong/report.html")).exists());
    });
}

/// Runs enter through any node; whoever verifies finds them all, and misses no lost update.
#[test]
fn what_runs_write_through_any_node_is_accepted_and_a_lost_update_is_not() {
    on_each(|lab| {
        lab.sql(1, "create table before as select ycsb_key, field3 from usertable_p1; select 1");
        lab.expect(0, "run -b ycsb-a -c 4 -t 200");
        lab.expect_at(0, "run -b ycsb-update -c 2 -t 300", 2);
        lab.expect_at(0, "run -b ycsb-d -c 2 -t 100", 1);
        for node in 0..3 {
            let runs = lab.sql(
                node,
                "select string_agg(run_no || ' ' || finished, ', ' order by run_no) from pgfathom.writer",
            );
            assert_eq!(runs, "1 true, 2 true, 3 true", "every node knows every run");
        }
        let told = lab.expect(0, "verify --deep -o written").stdout;
        assert!(told.contains("accepted"), "{told}");
        let accepted = lab.run_json("written")["steps"][0]["totals"]["updates_accepted"].as_u64();
        assert!(accepted > Some(300), "{accepted:?}");
        lab.expect_at(0, "verify", 2);

        let changed = "select min(u.ycsb_key) from usertable_p1 u join before b using (ycsb_key) where u.field3 <> b.field3";
        let key = lab.sql(1, changed);
        lab.sql(
            1,
            &format!("update usertable_p1 u set field3 = b.field3 from before b where u.ycsb_key = b.ycsb_key and u.ycsb_key = '{key}'; select 1"),
        );
        for node in 0..3 {
            let told = lab.expect_at(3, "verify", node).stdout;
            assert_eq!(keys_in(&told), [key.as_str()], "{told}");
            assert!(told.contains("field3 in usertable_p1 on n2 holds the load, but run "), "{told}");
        }
    });
}

#[test]
fn peers_are_verified_and_compared() {
    let Some(installation) = installations().into_iter().find(|found| found.version.major >= 16) else {
        return testing::skip(&testing::Lack::new("postgres-16", "no PostgreSQL 16 or later is installed"));
    };
    let lab = lab(ThrowawayCluster::multimaster(&installation, 2), None);
    let told = lab.expect(0, "verify").stdout;
    assert_eq!(told.matches("3,000 rows   exact").count(), 2, "{told}");
    lab.expect(0, "run -b ycsb-a -c 2 -t 100");
    let told = lab.expect(0, "verify --deep -o written").stdout;
    assert!(told.contains("accepted"), "{told}");
    // A value that a run wrote on one node, set back on the other alone: each by itself would do for a run that was killed.
    let key = lab.sql(0, "select min(ycsb_key) from usertable");
    lab.sql(
        1,
        &format!(
            "set session_replication_role = replica; delete from usertable where ycsb_key = '{key}'; select 1"
        ),
    );
    let told = lab.expect(3, "verify --lag-limit 5").stdout;
    assert_eq!(keys_in(&told), [key.as_str()], "{told}");
    let node = &lab.servers.file().node[1].name;
    assert!(told.contains(&format!("missing from usertable on {node}")), "{told}");
}

#[test]
fn standbys_are_verified_when_asked_for() {
    for installation in &installations() {
        let lab = lab(ThrowawayCluster::replicated(installation, 2, "ANY 1 (s1, s2)"), None);
        let alone = lab.expect(0, "verify").stdout;
        assert!(!alone.contains("s1"), "{alone}");
        lab.expect(0, "run -b ycsb-a -c 2 -t 100");
        let told = lab.expect(0, "verify --standbys").stdout;
        for node in ["primary", "s1", "s2"] {
            assert!(told.contains(&format!("  {node:7}   1 leaf table   3,000 rows   exact")), "{told}");
        }
        let refused = lab.expect_at(1, "verify --standbys", 0).stderr;
        assert!(refused.contains("--cluster cluster.toml"), "{refused}");
    }
}

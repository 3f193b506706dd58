//! Mistakes about the nodes of a cluster, with the answers they get.

use crate::mistakes;
use mistakes::{check, usage};

#[test]
fn wrong_nodes() {
    let node = |name: &str, role: &str| {
        format!(
            "[[node]]\nname = \"{name}\"\nrole = \"{role}\"\nconnection = \"host=/nowhere/{name} dbname=d\"\n"
        )
    };
    check(
        &[
            usage(
                "run -b ycsb-a --cluster three.toml --connect n1,n9",
                "--connect: this cluster has no node \"n9\"",
                "its nodes are n1, n2 and n3",
            ),
            usage(
                "run -b ycsb-a --cluster three.toml --data n9",
                "--data: this cluster has no node \"n9\"",
                "its nodes are n1, n2 and n3",
            ),
            usage(
                "run -b ycsb-a --cluster three.toml --connect n1,,n2",
                "--connect: \"n1,,n2\" contains an empty name",
                "n1,n2",
            ),
            usage(
                "run -b ycsb-a --cluster three.toml --connect owner --data n2",
                "--connect owner already decides which rows each session reads",
                "--connect n2",
            ),
            usage(
                "run -b ycsb-a --cluster citus.toml --data head",
                "--data: head is a coordinator and owns no rows",
                "nodes with rows are w1,w2",
            ),
            usage(
                "run -b ycsb-a --cluster one.toml --connect each",
                "--connect chooses among the nodes of a cluster, and this target is one server",
                "--cluster FILE",
            ),
            usage(
                "run ycsb --cluster three.toml",
                "TARGET and --cluster cannot be used together",
                "a workload is named by -b: pgfathom run -b ycsb-a ...",
            ),
            usage(
                "run -b ycsb-a --cluster twice.toml --connect each",
                "twice.toml is wrong",
                "name each node once",
            ),
            usage("matrix --cluster nothing.toml", "cannot read nothing.toml", "cluster.toml"),
            usage("matrix --only delete", "--only: \"delete\" is unknown", "select, update"),
            usage("matrix --rounds 0", "--rounds: must be at least 1", "whole number"),
            usage("matrix --rounds 1000", "--rounds: 1000 is more than 100 rounds", "smaller"),
            usage("matrix -c 1,2", "-c/--client: \"1,2\" is several numbers", "run -c 1,2,4,8"),
        ],
        |folder| {
            let file = |engine: &str, nodes: &[(&str, &str)]| {
                let nodes: Vec<String> = nodes.iter().map(|(name, role)| node(name, role)).collect();
                format!("format = 1\nengine = \"{engine}\"\n{}", nodes.concat())
            };
            let shards = [("n1", "shard"), ("n2", "shard"), ("n3", "shard")];
            folder
                .write("three.toml", &file("fdw-sharded", &shards))
                .write("twice.toml", &file("fdw-sharded", &shards).replace("/nowhere/n2", "/nowhere/n1"))
                .write("one.toml", &file("postgres", &[("n1", "primary")]))
                .write(
                    "citus.toml",
                    &file("citus", &[("head", "coordinator"), ("w1", "worker"), ("w2", "worker")]),
                );
        },
    );
}

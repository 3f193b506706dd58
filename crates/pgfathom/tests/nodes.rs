//! Sessions sent to the nodes of real clusters, and the matrix of them: what the servers themselves counted is what was asked for.

mod support;

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use support::{Ended, Folder, pgfathom};
use target::local::Topology;
use target::throwaway::{ThrowawayCluster, installations};

const ROWS: &str = "3000";
const NODES: usize = 3;
const PARTITIONS: usize = 6;

/// A cluster, and a folder to type commands in.
struct Lab {
    cluster: ThrowawayCluster,
    folder: Folder,
}

impl Lab {
    /// Types a command; `CLUSTER` in it stands for the cluster file.
    fn command(&self, arguments: &str) -> Command {
        let mut command = pgfathom(self.folder.path());
        let file = self.cluster.cluster_toml().display().to_string();
        command.args(arguments.split_whitespace().map(|word| word.replace("CLUSTER", &file)));
        command
    }

    fn type_(&self, arguments: &str) -> Ended {
        let ended: Ended = self.command(arguments).output().expect("the command starts").into();
        eprintln!("$ pgfathom {arguments}\n{}{}", ended.stdout, ended.stderr);
        ended
    }

    fn expect(&self, exit: i32, arguments: &str) -> Ended {
        let ended = self.type_(arguments);
        assert_eq!(ended.exit, Some(exit), "$ pgfathom {arguments}\n{}{}", ended.stdout, ended.stderr);
        ended
    }

    fn sql(&self, node: usize, sql: &str) -> String {
        let value = self.cluster.node(node).value(sql);
        value.unwrap_or_else(|error| panic!("n{}: {sql}: {error}", node + 1)).unwrap_or_default()
    }

    fn do_(&self, node: usize, sql: &str) {
        self.cluster.node(node).execute(sql).unwrap_or_else(|error| panic!("n{}: {sql}: {error}", node + 1));
    }

    fn json(&self, path: &str) -> Value {
        json(&self.folder.path().join(path))
    }
}

fn json(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).expect("whole JSON")
}

/// Runs `test` on every installation, in parallel, on a cluster of this kind.
fn on_each(topology: &Topology, settings: &[(&str, &str)], test: impl Fn(&Lab) + Sync) {
    let found = installations();
    assert!(!found.is_empty(), "no PostgreSQL on this machine: run make test, which installs it");
    std::thread::scope(|scope| {
        for installation in &found {
            let test = &test;
            scope.spawn(move || {
                let cluster = ThrowawayCluster::start(installation, topology, settings)
                    .expect("a throwaway cluster starts");
                test(&Lab { cluster, folder: Folder::new() });
            });
        }
    });
}

/// Fills the table on the first node and gives partition r to node r % n, as an owner of a growing cluster would.
fn load_and_spread(lab: &Lab) {
    let first = lab.cluster.node(0);
    let typed = format!("load ycsb --rows {ROWS} --partitions {PARTITIONS} -o loaded");
    let mut command = pgfathom(lab.folder.path());
    command
        .env("PGHOST", first.socket_dir())
        .env("PGPORT", first.port().to_string())
        .env("PGUSER", target::throwaway::SUPERUSER)
        .env("PGDATABASE", "postgres")
        .args(typed.split_whitespace());
    let ended: Ended = command.output().expect("the command starts").into();
    assert_eq!(ended.exit, Some(0), "{}{}", ended.stdout, ended.stderr);
    let fields: String = (0..10).map(|field| format!(", field{field} varchar(100)")).collect();
    let columns = format!("ycsb_key varchar(64) not null{fields}");
    for node in 1..NODES {
        lab.do_(node, &format!("create table usertable ({columns}) partition by hash (ycsb_key)"));
    }
    // A parent with foreign partitions has no key of its own; its local leaves keep theirs.
    lab.do_(0, "alter table usertable drop constraint usertable_pkey");
    for partition in (0..PARTITIONS).step_by(NODES) {
        lab.do_(0, &format!("alter table usertable_p{partition} add primary key (ycsb_key)"));
    }
    for partition in 0..PARTITIONS {
        let leaf = format!("usertable_p{partition}");
        let bound = format!("for values with (modulus {PARTITIONS}, remainder {partition})");
        let owner = partition % NODES;
        let foreign = |kind: &str| {
            format!(
                "create foreign table {kind} server n{} options (schema_name 'public', table_name '{leaf}')",
                owner + 1
            )
        };
        if owner != 0 {
            lab.do_(owner, &format!("create table {leaf} partition of usertable {bound}; alter table {leaf} add primary key (ycsb_key)"));
            lab.do_(0, &foreign(&format!("moving ({columns})")));
            lab.do_(
                0,
                &format!(
                    "insert into moving select * from {leaf}; drop foreign table moving; drop table {leaf}"
                ),
            );
        }
        for node in (0..NODES).filter(|node| *node != owner) {
            lab.do_(node, &foreign(&format!("{leaf} partition of usertable {bound}")));
        }
    }
    lab.do_(0, "create table before as table usertable");
}

/// Leaf tables with rows that differ from what was there before.
fn changed(lab: &Lab) -> Vec<String> {
    let sql = "select coalesce(string_agg(distinct u.tableoid::regclass::text, ' ' order by u.tableoid::regclass::text), '')
               from usertable u join before b using (ycsb_key) where u is distinct from b";
    lab.sql(0, sql).split_whitespace().map(str::to_string).collect()
}

#[test]
fn sessions_enter_and_draw_where_they_are_sent() {
    let topology = Topology::Sharded { nodes: NODES as u32, partitions: PARTITIONS as u32 };
    on_each(&topology, &[("shared_preload_libraries", "pg_stat_statements")], |lab| {
        load_and_spread(lab);
        for node in 0..NODES {
            lab.do_(node, "create extension pg_stat_statements");
        }
        // One node's keys through another node.
        lab.expect(0, "run -b ycsb-update -c 3 -t 40 --connect n1 --data n2 --cluster CLUSTER -o pinned");
        assert_eq!(changed(lab), ["usertable_p1", "usertable_p4"]);
        let step = &lab.json("pinned/run.json")["steps"][0];
        assert_eq!(
            (&step["parameters"]["connect"], &step["parameters"]["data"]),
            (&"n1".into(), &"n2".into())
        );
        assert_eq!(step["nodes"].as_array().map(Vec::len), Some(1));
        assert_eq!(
            (&step["nodes"][0]["name"], &step["nodes"][0]["transactions"]),
            (&"n1".into(), &120.into())
        );

        // Every node by turns; each second's lines add up to the totals.
        lab.expect(0, "run -b ycsb-a -c 6 -t 30 --connect each --cluster CLUSTER -o each");
        let step = &lab.json("each/run.json")["steps"][0];
        let nodes = step["nodes"].as_array().expect("nodes");
        let told: Vec<_> = nodes
            .iter()
            .map(|node| (&node["name"], &node["role"], &node["sessions"], &node["transactions"]))
            .collect();
        let (shard, two, sixty) = ("shard".into(), 2.into(), 60.into());
        assert_eq!(
            told,
            [
                (&"n1".into(), &shard, &two, &sixty),
                (&"n2".into(), &shard, &two, &sixty),
                (&"n3".into(), &shard, &two, &sixty)
            ]
        );
        let samples =
            std::fs::read_to_string(lab.folder.path().join("each/samples.ndjson")).expect("samples");
        let counted: u64 = samples
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .filter(|sample| sample["source"] == "node" && sample["node"] == "n2")
            .filter_map(|sample| sample["transactions"].as_u64())
            .sum();
        assert_eq!(counted, 60);

        // Sessions that ask each node for its own rows cause no traffic between the nodes.
        let remote = || -> u64 {
            let sql = "select coalesce(sum(calls), 0)::text from pg_stat_statements where query like 'START TRANSACTION ISOLATION%'";
            (0..NODES).map(|node| lab.sql(node, sql).parse::<u64>().expect("a count")).sum()
        };
        assert!(remote() > 100, "the runs before went between the nodes: {}", remote());
        let before = remote();
        lab.expect(0, "run -b ycsb-f --keys zipfian -c 6 -t 30 --connect owner --cluster CLUSTER -o owner");
        assert_eq!(remote(), before, "no row was asked for through another node");
        let nodes = lab.json("owner/run.json")["steps"][0]["nodes"].as_array().map(Vec::len);
        assert_eq!(nodes, Some(NODES));

        let random = "run -b ycsb-c -c 40 -t 5 --connect random --random-seed 7 --cluster CLUSTER -o";
        let sessions = |path: &str| -> Vec<u64> {
            lab.expect(0, &format!("{random} {path}"));
            let run = lab.json(&format!("{path}/run.json"));
            let nodes = run["steps"][0]["nodes"].as_array().expect("nodes").clone();
            nodes.iter().filter_map(|node| node["sessions"].as_u64()).collect()
        };
        assert_eq!(sessions("random-1"), sessions("random-2"), "the seed decides");

        let refused = lab.expect(1, "run -b ycsb-d -c 2 -t 5 --data n2 --cluster CLUSTER");
        assert!(refused.stderr.contains("--data cannot hold inserts to a node"), "{}", refused.stderr);
        lab.folder.write("own.sql", "select 1;\n");
        let refused = lab.expect(1, "run -f own.sql -c 2 -t 5 --data n2 --cluster CLUSTER");
        assert!(refused.stderr.contains("a script draws its own"), "{}", refused.stderr);
        lab.expect(0, "run -f own.sql -c 4 -t 5 --connect n2,n3 --cluster CLUSTER -o script");
    });
}

#[test]
fn the_matrix_of_a_sharded_cluster_shows_its_distances() {
    let topology = Topology::Sharded { nodes: NODES as u32, partitions: PARTITIONS as u32 };
    on_each(&topology, &[("shared_preload_libraries", "pg_stat_statements")], |lab| {
        load_and_spread(lab);
        for node in 0..NODES {
            lab.do_(node, "create extension pg_stat_statements");
        }
        let typed =
            "matrix --cluster CLUSTER -c 2 -T 600ms --rounds 2 --warmup 100ms -P 1 -o square --format json";
        let ended = lab.type_(typed);
        // A full machine may make a cell's client the limit, which the directory says; errors there must be none.
        assert!(matches!(ended.exit, Some(0 | 5)), "{}{}", ended.stdout, ended.stderr);
        let summary: Value = serde_json::from_str(&ended.stdout).expect("the summary is JSON");
        let operations = summary["matrix"]["operations"].as_array().expect("operations");
        assert_eq!(operations.len(), 2);
        for operation in operations {
            let name = operation["name"].as_str().expect("a name");
            let cells = operation["cells"].as_array().expect("cells");
            assert_eq!(cells.len(), NODES * NODES, "{name}");
            for cell in cells {
                let own = cell["connect"] == cell["data"];
                assert!(cell["transactions"].as_u64() > Some(0), "{cell}");
                assert_eq!(cell["errors"], 0, "{cell}");
                // What postgres_fdw is known to take, counted by the data node.
                let expected = match name {
                    _ if own => Value::Null,
                    "select" => 5.0.into(),
                    _ => 3.0.into(),
                };
                assert_eq!(cell["round_trips"], expected, "{name} {cell}");
                assert_eq!(cell["round_trips_by"].as_str(), (!own).then_some("counted"), "{cell}");
                assert_eq!(cell["predicted_us_p50"].is_number(), !own, "{cell}");
            }
            let times =
                operation["own_median"].as_f64().unwrap() / operation["remote_median"].as_f64().unwrap();
            assert!(times > 1.5, "{name}: own rows are only {times} times as fast");
        }
        assert_eq!(changed(lab).len(), PARTITIONS);
        let run = lab.json("square/run.json");
        let steps = run["steps"].as_array().expect("steps");
        assert_eq!(steps.len(), 2 * NODES * NODES);
        for step in steps {
            let measured: Vec<_> = step["phases"]
                .as_array()
                .expect("phases")
                .iter()
                .filter(|phase| phase["name"] == "measure")
                .collect();
            assert_eq!(measured.len(), 2, "{}: a visit in each round", step["key"]);
            assert_eq!(step["state"], "finished");
        }
        assert!(summary["findings"].as_array().expect("findings").iter().any(|finding| {
            finding["code"] == "matrix-distance"
                && finding["claim"].as_str().is_some_and(|claim| claim.contains("5 round trips"))
        }));
        let told = lab.expect(0, "report square").stdout;
        for word in ["select", "update", "n1", "n2", "n3", "median"] {
            assert!(told.contains(word), "{word} is missing in:\n{told}");
        }
    });
}

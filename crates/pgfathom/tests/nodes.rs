//! Sessions sent to the nodes of real clusters, and the matrix of them: what the servers themselves counted is what was asked for.

use crate::labs::{self, ClusterLab};
use crate::{relay, support};
use std::time::Duration;

use lab::local::{CommitLevel, Replication, SyncStandbys, Topology};
use lab::throwaway::{ThrowawayCluster, installations};
use relay::Relay;
use serde_json::Value;
use support::{Ended, pgfathom};

const ROWS: &str = "3000";
const NODES: usize = 3;
const PARTITIONS: usize = 6;

/// A cluster, and a folder to type commands in.
impl ClusterLab {
    /// Types a command; `CLUSTER` in it stands for the cluster file.
    fn typed_with_file(&self, arguments: &str) -> Ended {
        labs::typed(self.command_with_file(arguments), arguments)
    }

    fn expect_with_file(&self, exit: i32, arguments: &str) -> Ended {
        labs::expect(exit, self.command_with_file(arguments), arguments)
    }

    fn json(&self, path: &str) -> Value {
        labs::json(&self.folder.path().join(path))
    }
}

/// Runs `test` on every installation, in parallel, on a cluster of this kind.
fn on_each(topology: &Topology, settings: &[(&str, &str)], test: impl Fn(&ClusterLab) + Sync) {
    let found = installations();
    assert!(!found.is_empty(), "no PostgreSQL on this machine: run make test, which installs it");
    std::thread::scope(|scope| {
        for installation in &found {
            let test = &test;
            scope.spawn(move || {
                let cluster = ThrowawayCluster::start(installation, topology, settings)
                    .expect("a throwaway cluster starts");
                test(&ClusterLab::new(cluster));
            });
        }
    });
}

/// Fills the table, every row on its own node, and keeps a copy of what was there.
fn load(lab: &ClusterLab) {
    lab.expect_with_file(0, &format!("load ycsb --rows {ROWS} --cluster CLUSTER -o loaded"));
    lab.execute(0, "create table before as table usertable");
}

/// Leaf tables with rows that differ from what was there before.
fn changed(lab: &ClusterLab) -> Vec<String> {
    let sql = "select coalesce(string_agg(distinct u.tableoid::regclass::text, ' ' order by u.tableoid::regclass::text), '')
               from usertable u join before b using (ycsb_key) where u is distinct from b";
    lab.sql(0, sql).split_whitespace().map(str::to_string).collect()
}

#[test]
fn sessions_enter_and_draw_where_they_are_sent() {
    let topology = Topology::Sharded { nodes: NODES as u32, partitions: PARTITIONS as u32 };
    on_each(&topology, &[("shared_preload_libraries", "pg_stat_statements")], |lab| {
        load(lab);
        for node in 0..NODES {
            lab.execute(node, "create extension pg_stat_statements");
        }
        // One node's keys through another node.
        lab.expect_with_file(
            0,
            "run -b ycsb-update -c 3 -t 40 --connect n1 --data n2 --cluster CLUSTER -o pinned",
        );
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
        lab.expect_with_file(0, "run -b ycsb-a -c 6 -t 30 --connect each --cluster CLUSTER -o each");
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
        lab.expect_with_file(
            0,
            "run -b ycsb-f --keys zipfian -c 6 -t 30 --connect owner --cluster CLUSTER -o owner",
        );
        assert_eq!(remote(), before, "no row was asked for through another node");
        let nodes = lab.json("owner/run.json")["steps"][0]["nodes"].as_array().map(Vec::len);
        assert_eq!(nodes, Some(NODES));

        // Whatever was written, by whom and where, is what verification expects: the replay knows who was held to which node.
        lab.expect_with_file(0, "verify --deep --cluster CLUSTER -o proven");

        let random = "run -b ycsb-c -c 40 -t 5 --connect random --random-seed 7 --cluster CLUSTER -o";
        let sessions = |path: &str| -> Vec<u64> {
            lab.expect_with_file(0, &format!("{random} {path}"));
            let run = lab.json(&format!("{path}/run.json"));
            let nodes = run["steps"][0]["nodes"].as_array().expect("nodes").clone();
            nodes.iter().filter_map(|node| node["sessions"].as_u64()).collect()
        };
        assert_eq!(sessions("random-1"), sessions("random-2"), "the seed decides");

        let refused = lab.expect_with_file(1, "run -b ycsb-d -c 2 -t 5 --data n2 --cluster CLUSTER");
        assert!(refused.stderr.contains("--data cannot keep inserts on one node"), "{}", refused.stderr);
        lab.folder.write("own.sql", "select 1;\n");
        let refused = lab.expect_with_file(1, "run -f own.sql -c 2 -t 5 --data n2 --cluster CLUSTER");
        assert!(refused.stderr.contains("a script chooses its own keys"), "{}", refused.stderr);
        lab.expect_with_file(0, "run -f own.sql -c 4 -t 5 --connect n2,n3 --cluster CLUSTER -o script");
    });
}

#[test]
fn the_matrix_of_a_sharded_cluster_shows_its_distances() {
    let topology = Topology::Sharded { nodes: NODES as u32, partitions: PARTITIONS as u32 };
    on_each(&topology, &[("shared_preload_libraries", "pg_stat_statements")], |lab| {
        load(lab);
        for node in 0..NODES {
            lab.execute(node, "create extension pg_stat_statements");
        }
        let typed =
            "matrix --cluster CLUSTER -c 2 -T 600ms --rounds 2 --warmup 100ms -P 1 -o square --format json";
        let ended = lab.typed_with_file(typed);
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
                // Where a busy machine's noise hides the ping nothing is predicted; the distances below cannot be hidden.
                assert!(!own || cell["ping_us"].is_null(), "{cell}");
                assert_eq!(cell["predicted_us_p50"].is_number(), cell["ping_us"].is_number(), "{cell}");
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
            finding["rule"] == "matrix-distance"
                && finding["claim"].as_str().is_some_and(|claim| claim.contains("5 round trips"))
        }));
        lab.expect_with_file(0, "verify --deep --cluster CLUSTER -o proven");
        let told = lab.expect_with_file(0, "report square").stdout;
        for word in ["select", "update", "n1", "n2", "n3", "median"] {
            assert!(told.contains(word), "{word} is missing in:\n{told}");
        }
    });
}

/// Puts a relay in front of each node, for the other nodes and for us, and writes `far.toml` that names them.
fn distance(lab: &ClusterLab, delays: [Duration; NODES]) -> Vec<Relay> {
    let relays: Vec<Relay> = delays
        .iter()
        .enumerate()
        .map(|(at, delay)| {
            let node = lab.servers.node(at);
            Relay::start(node.socket_dir(), node.port(), *delay)
        })
        .collect();
    let mut file = std::fs::read_to_string(lab.servers.cluster_toml()).expect("the cluster file");
    for (to, relay) in relays.iter().enumerate() {
        let host = relay.folder().display().to_string();
        let there = lab.servers.node(to).socket_dir().display().to_string();
        file = file.replace(&format!("host={there} "), &format!("host={host} "));
        for from in (0..NODES).filter(|from| *from != to) {
            lab.execute(from, &format!("alter server n{} options (set host '{host}')", to + 1));
        }
    }
    assert_eq!(file.matches("pgf-relay").count(), NODES, "{file}");
    lab.folder.write("far.toml", &file);
    relays
}

#[test]
fn a_distance_is_counted_predicted_and_found_by_a_relay_as_well() {
    let topology = Topology::Sharded { nodes: NODES as u32, partitions: PARTITIONS as u32 };
    on_each(&topology, &[("shared_preload_libraries", "pg_stat_statements")], |lab| {
        load(lab);
        for node in 0..NODES {
            lab.execute(node, "create extension pg_stat_statements");
        }
        let relays = distance(lab, [Duration::from_millis(5); NODES]);
        // What the wire says: so many requests for so many statements, beyond what opens the connections.
        for (workload, each) in [("ycsb-select", 5), ("ycsb-update", 3)] {
            let run = |transactions: u64| {
                let before = [relays[1].requests(), relays[2].requests()];
                // Whoever watches asks, too.
                let sent = format!(
                    "run -b {workload} -c 1 -t {transactions} --connect n1 --data n2 --cluster far.toml --watch off"
                );
                lab.expect_with_file(0, &format!("{sent} -o {workload}-{transactions}"));
                [relays[1].requests() - before[0], relays[2].requests() - before[1]]
            };
            let (few, many) = (run(10), run(110));
            assert_eq!(many[0] - few[0], 100 * each, "{workload}");
            assert_eq!(many[1], few[1], "{workload}: n3 has no part in it");
        }
        let typed = "matrix --cluster far.toml -c 1 -T 600ms --rounds 2 --warmup 100ms -o far --format json";
        let ended = lab.typed_with_file(typed);
        assert!(matches!(ended.exit, Some(0 | 5)), "{}{}", ended.stdout, ended.stderr);
        let summary: Value = serde_json::from_str(&ended.stdout).expect("the summary is JSON");
        for operation in summary["matrix"]["operations"].as_array().expect("operations") {
            let mut shares = vec![];
            let cells = operation["cells"].as_array().expect("cells");
            for cell in cells.iter().filter(|cell| cell["connect"] != cell["data"]) {
                let number =
                    |field: &str| cell[field].as_f64().unwrap_or_else(|| panic!("{field} of {cell}"));
                assert!(number("ping_us") >= 5_000.0, "{cell}");
                shares.push(number("predicted_us_p50") / number("latency_us_p50"));
            }
            // A full machine delays single cells at will.
            shares.sort_by(f64::total_cmp);
            let share = shares[shares.len() / 2];
            assert!((0.7..1.4).contains(&share), "predicted is {share} of what was measured: {operation}");
        }
        let explained = summary["findings"].as_array().expect("findings").iter().find(|finding| {
            finding["rule"] == "matrix-distance"
                && finding["claim"].as_str().is_some_and(|claim| claim.starts_with("select"))
        });
        let explained = explained.expect("the distance is a finding");
        assert_eq!(explained["level"], "discriminating_counter", "{explained}");
        let told = lab.expect_with_file(0, "report far").stdout;
        assert!(told.contains("5 round trips between the nodes, counted by pg_stat_statements"), "{told}");
    });
}

#[test]
fn a_sick_node_is_named() {
    let topology = Topology::Sharded { nodes: NODES as u32, partitions: PARTITIONS as u32 };
    on_each(&topology, &[], |lab| {
        load(lab);
        // Every way to n3 is long, ours too, as if its network were sick.
        let mut relays = distance(lab, [1, 1, 20].map(Duration::from_millis));
        let ended = lab.typed_with_file(
            "matrix --only select --cluster far.toml -c 1 -T 1s --rounds 2 --warmup 100ms -o sick",
        );
        assert!(matches!(ended.exit, Some(0 | 5)), "{}{}", ended.stdout, ended.stderr);
        let run = lab.json("sick/run.json");
        let findings = run["summary"]["findings"].as_array().expect("findings").clone();
        let claims: Vec<&str> = findings.iter().filter_map(|finding| finding["claim"].as_str()).collect();
        // Whether it is called slow as a whole or by row and column depends on how busy this machine is; that it is n3 does not.
        assert!(claims[0].contains("n3") && claims[0].contains(" at 0."), "{claims:#?}");
        let is_named = |node: &str| claims.iter().any(|claim| claim.contains(node));
        assert!(!is_named("n1") && !is_named("n2"), "{claims:#?}");
        // Without pg_stat_statements round trips are those that the engine is known to need, and the output names them so.
        let cell = &run["summary"]["matrix"]["operations"][0]["cells"];
        let ways: Vec<&Value> =
            cell.as_array().expect("cells").iter().map(|cell| &cell["round_trips_by"]).collect();
        assert!(ways.iter().all(|way| way.is_null() || *way == "known"), "{ways:?}");
        assert!(
            ended.stdout.contains("as this engine needs them for such a statement, not counted"),
            "{}",
            ended.stdout
        );

        // Without any way to n3 the rest is measured, and nothing is updated that its ledger would not know of.
        drop(relays.pop());
        let ended =
            lab.expect_with_file(2, "matrix --cluster far.toml -c 1 -T 300ms --rounds 1 --warmup 0 -o holes");
        assert!(ended.stdout.contains("updates are not measured"), "{}", ended.stdout);
        let operations = &lab.json("holes/run.json")["summary"]["matrix"]["operations"];
        assert_eq!(operations.as_array().expect("operations").len(), 1, "{operations}");
        let cells = operations[0]["cells"].as_array().expect("cells");
        let is_there = |connect: &str, data: &str| {
            cells.iter().any(|cell| cell["connect"] == connect && cell["data"] == data)
        };
        assert!(is_there("n1", "n2") && is_there("n2", "n1") && !is_there("n3", "n1"), "{cells:#?}");
    });
}

#[test]
fn copies_have_one_column() {
    let sync = SyncStandbys::default_for(2);
    let replication = Replication { standbys: 2, sync, commit: Some(CommitLevel::RemoteApply) };
    let topology = Topology::Replicated(replication);
    on_each(&topology, &[], |lab| {
        let typed = format!("load ycsb --rows {ROWS} --cluster CLUSTER -o loaded");
        lab.expect_with_file(0, &typed);
        let ended =
            lab.typed_with_file("matrix --cluster CLUSTER -c 2 -T 500ms --rounds 1 --warmup 100ms -o copies");
        assert!(matches!(ended.exit, Some(0 | 5)), "{}{}", ended.stdout, ended.stderr);
        assert!(
            ended.stderr.contains("every node holds every row, so there is one column, and it is read only"),
            "{}",
            ended.stderr
        );
        let run = lab.json("copies/run.json");
        let operations = run["summary"]["matrix"]["operations"].as_array().expect("operations").clone();
        assert_eq!((operations.len(), &operations[0]["name"]), (1, &"select".into()));
        assert_eq!(operations[0]["cells"].as_array().map(Vec::len), Some(3));
        let refused = lab.expect_with_file(1, "matrix --only update --cluster CLUSTER");
        assert!(refused.stderr.contains("a standby takes no writes"), "{}", refused.stderr);
        let refused = lab.expect_with_file(1, "run -b ycsb-a -c 3 -t 5 --connect each --cluster CLUSTER");
        assert!(refused.stderr.contains("can only read: it is a standby"), "{}", refused.stderr);
        let refused = lab.expect_with_file(1, "run -b ycsb-c -c 3 -t 5 --data primary --cluster CLUSTER");
        assert!(refused.stderr.contains("every node holds every row"), "{}", refused.stderr);
        lab.expect_with_file(0, "run -b ycsb-c -c 3 -t 5 --connect each --cluster CLUSTER -o reads");
        one_server_under_two_names_is_sampled_once(lab);
    });
}

/// The second name leads to the server through a relay.
fn one_server_under_two_names_is_sampled_once(lab: &ClusterLab) {
    let primary = lab.servers.node(0);
    let relay = Relay::start(primary.socket_dir(), primary.port(), Duration::ZERO);
    let node = |name: &str, folder: &std::path::Path| {
        let (folder, port) = (folder.display(), primary.port());
        format!(
            "[[node]]\nname = \"{name}\"\nrole = \"primary\"\nconnection = \"host={folder} port={port} dbname=postgres user=postgres\"\n"
        )
    };
    let nodes = node("a", primary.socket_dir()) + &node("b", relay.folder());
    let text = format!("format = 1\nengine = \"postgres\"\n{nodes}");
    std::fs::write(lab.folder.path().join("twice.toml"), text).expect("it is written");
    let mut command = pgfathom(lab.folder.path());
    command.args("run -b ycsb-c -T 2 -o twice --cluster twice.toml".split_whitespace());
    labs::expect(0, command, "run of one server under two names");
    let samples = std::fs::read_to_string(lab.folder.path().join("twice/samples.ndjson")).expect("samples");
    let is_sampled = |node: &str| samples.contains(&format!("\"node\":\"{node}\""));
    assert!(is_sampled("a") && !is_sampled("b"), "{samples}");
}

#[test]
fn a_single_server_is_a_matrix_of_one_cell() {
    on_each(&Topology::Single, &[], |lab| {
        lab.expect_with_file(0, &format!("load ycsb --rows {ROWS} --cluster CLUSTER -o loaded"));
        let ended =
            lab.typed_with_file("matrix --cluster CLUSTER -c 1 -T 300ms --rounds 1 --warmup 0 -o one");
        assert!(matches!(ended.exit, Some(0 | 5)), "{}{}", ended.stdout, ended.stderr);
        assert!(ended.stderr.contains("one server makes a matrix of one cell"), "{}", ended.stderr);
        let run = lab.json("one/run.json");
        let operations = run["summary"]["matrix"]["operations"].as_array().expect("operations").clone();
        assert_eq!(operations.len(), 2);
        assert!(operations.iter().all(|operation| operation["cells"].as_array().map(Vec::len) == Some(1)));
    });
}

//! Where an engine puts tables, and how far its nodes are from each other.

use super::{built, trial};
use crate::support::{Ended, Folder, pgfathom};
use lab::local::Topology;
use serde_json::Value;
use std::path::Path;

/// Where Citus keeps all tables of a new schema on one node, a schema of ours is none of these; in one of the user's, tables stay where it puts them.
#[test]
fn citus_with_schema_based_sharding_is_loaded_and_proved() {
    let Some(trial) = trial("engine-citus", &Topology::Citus { nodes: 3 }, None) else { return };
    let lab = &trial.lab;
    for node in 0..3 {
        lab.execute(node, "alter system set citus.enable_schema_based_sharding = on");
        lab.execute(node, "select pg_catalog.pg_reload_conf()");
    }
    lab.execute(0, "create schema tenant");
    let kinds = "select string_agg(distinct citus_table_type || ' in ' || split_part(table_name::text, '.', 1), ', ') from citus_tables";
    let in_tenant = |words: &str, exit: i32| {
        let mut command = pgfathom(lab.folder.path());
        command.env("PGOPTIONS", "-c search_path=tenant").args(words.split(' '));
        let ended: Ended =
            command.arg("--cluster").arg(lab.servers.cluster_toml()).output().expect("it starts").into();
        assert_eq!(ended.exit, Some(exit), "{words}: {}{}", ended.stdout, ended.stderr);
        ended.stdout
    };
    in_tenant("load tpcc -s 1 --watch off", 0);
    in_tenant("load documents --rows 60 --document-size 1kB..2kB --watch off", 0);
    in_tenant("run -b documents-tx -t 5 --watch off", 0);
    in_tenant("verify documents", 0);
    assert_eq!(lab.sql(0, kinds), "schema in tenant");
    assert!(in_tenant("verify tpcc", 0).contains("exact"));
    assert!(in_tenant("prove tpcc", 0).contains("conditions kept"));
    lab.expect(0, "load ycsb --rows 2000 --watch off");
    assert!(lab.sql(0, kinds).starts_with("distributed in usertable"), "{}", lab.sql(0, kinds));
    lab.expect(0, "run -b ycsb-a -c 2 -t 20 --connect owner --watch off");
    lab.expect(0, "verify ycsb");
    for proof in ["bank -T 6", "hermitage"] {
        lab.expect(0, &format!("prove {proof} --watch off"));
    }
}

/// The engines make the connections between their nodes themselves: the distance that `up` puts there shows the round trips of their commits.
#[test]
fn commits_of_engines_are_counted_by_the_distance_of_their_nodes() {
    for (need, kind, trips) in [("engine-citus", "citus", &[1.0, 2.0][..]), ("engine-mtm", "mtm", &[3.0])] {
        let Some(programs) = built(need, kind) else { continue };
        let folder = Folder::new();
        let prefix = programs.parent().and_then(Path::parent).expect("a folder of engines");
        let dir = std::env::temp_dir().join(format!("pgf-far-{kind}-{}", std::process::id()));
        let at = dir.display().to_string();
        let typed = |arguments: &str| -> Ended {
            let mut command = pgfathom(folder.path());
            command.env("PGFATHOM_ENGINES", prefix).args(arguments.split(' '));
            command.output().expect("the command starts").into()
        };
        let up = typed(&format!(
            "up {kind} --dir {at} --preset careless --set shared_buffers=64MB --delay *-*=20ms"
        ));
        let file = format!("{at}/cluster.toml");
        let wide = typed(&format!("prove wide --cluster {file} -T 4 --watch off -o wide"));
        let loaded = typed(&format!("load ycsb --rows 500 --cluster {file} --watch off"));
        let run = typed(&format!("run -b ycsb-update -t 10 --cluster {file} --watch off -o run"));
        let matrix = typed(&format!("matrix -c 1 -T 1 --rounds 1 --warmup 0 --cluster {file} -o matrix"));
        let down = typed(&format!("down {at}"));
        assert_eq!(up.exit, Some(0), "{}{}", up.stdout, up.stderr);
        assert_eq!(down.exit, Some(0), "{}{}", down.stdout, down.stderr);
        assert_eq!(
            (loaded.exit, run.exit),
            (Some(0), Some(0)),
            "{}{}{}",
            loaded.stderr,
            run.stdout,
            run.stderr
        );
        let json = |name: &str| -> Value {
            let text = std::fs::read_to_string(folder.path().join(name).join("run.json")).expect("run.json");
            serde_json::from_str(&text).expect("JSON")
        };
        assert_eq!(matrix.exit, Some(0), "{}{}", matrix.stdout, matrix.stderr);
        assert!(matrix.stdout.contains("commit latency"), "{}", matrix.stdout);
        let matrix = json("matrix")["summary"]["matrix"].clone();
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let nodes = list(&matrix["connect"]);
        let cells = list(&matrix["operations"]).into_iter().flat_map(|one| list(&one["cells"]));
        for cell in cells.filter(|cell| nodes.contains(&cell["data"]) && cell["connect"] != cell["data"]) {
            // The client is near to every node, so only the way between both explains what such a row takes.
            let [predicted, measured] = ["predicted_us_p50", "latency_us_p50"]
                .map(|name| cell[name].as_f64().unwrap_or_else(|| panic!("{kind}: no {name}: {cell}")));
            assert!(predicted >= 20_000.0 && measured + 15_000.0 > predicted, "{kind}: {cell}");
        }
        let promises = json("wide")["steps"][0]["promises"].as_array().cloned().unwrap_or_default();
        let predicted: Vec<_> =
            promises.iter().map(|one| one["figures"]["round_trips_predicted"].as_f64()).collect();
        assert_eq!(predicted, trips.iter().copied().map(Some).collect::<Vec<_>>(), "{}", wide.stdout);
        for promise in &promises {
            let measured = promise["figures"]["round_trips_measured"].as_f64().expect("a count");
            let predicted = promise["figures"]["round_trips_predicted"].as_f64().expect("a count");
            assert!((measured - predicted).abs() < 1.0, "{kind}: {}", wide.stdout);
        }
        // Each row: round trips, the time of one, what the model predicts, and what a commit took.
        let found = json("run")["summary"]["benchmarks"].clone();
        let commits = found.as_array().and_then(|all| all.iter().find(|one| one["name"] == "commit latency"));
        let rows =
            commits.expect("commit latency")["tables"][0]["rows"].as_array().cloned().unwrap_or_default();
        assert_eq!(rows.len(), trips.len(), "{kind}: {rows:?}");
        for (row, trips) in rows.iter().zip(trips) {
            let [count, trip, predicted, measured] =
                [0, 1, 2, 3].map(|column| row["values"][column].as_f64().expect("a number"));
            assert!(count == *trips && trip >= 20_000.0 && predicted >= 20_000.0 * count, "{kind}: {row}");
            assert!((measured - predicted).abs() < 15_000.0, "{kind}: {row}");
        }
    }
}

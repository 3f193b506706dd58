//! The engines that `scripts/engines` has built, each on a cluster of three nodes: loaded, verified, driven and proved by the command.

use crate::every_verb::Trial;
use crate::labs::ClusterLab;
use std::path::Path;

use crate::support;
use lab::local::{Installation, Topology};
use lab::throwaway::{ThrowawayCluster, installations};
use serde_json::Value;
use support::{Ended, Folder, pgfathom};

/// The cluster, or nothing where the engine is not built.
fn trial(need: &'static str, topology: &Topology, extension: Option<&str>) -> Option<Trial> {
    let programs = built(need, topology.kind())?;
    let installation = Installation::at(Path::new(&programs)).expect("an engine that was built has a server");
    let servers = ThrowawayCluster::start(&installation, topology, &[]).expect("a throwaway cluster starts");
    Some(Trial::new(ClusterLab::new(servers), topology.kind(), extension))
}

/// The programs of an engine; nothing, and a skip, where it is not built.
fn built(need: &'static str, engine: &str) -> Option<std::path::PathBuf> {
    testing::needs::engine(need, engine).map_err(|lack| testing::skip(&lack)).ok()
}

#[test]
fn citus_is_loaded_verified_driven_and_proved() {
    let Some(trial) = trial("engine-citus", &Topology::Citus { nodes: 3 }, Some("citus")) else { return };
    let lab = &trial.lab;
    trial.load_and_verify();
    for routed in ["each", "owner"] {
        lab.expect(0, &format!("run -b ycsb-a -c 6 -t 20 --connect {routed} -o {routed}"));
        assert_eq!(lab.run_json(routed)["target"]["engine"], "citus");
    }
    // A worker names the coordinator, which has the ledger.
    let told = lab.expect_at(0, "verify ycsb", 2).stdout;
    assert!(told.contains("accepted"), "{told}");
    let refused = lab.expect_at(1, "run -b ycsb-a -t 5", 2).stderr;
    assert!(refused.contains("hint: ") && refused.contains("coordinator"), "{refused}");
    trial.run();
    trial.look();
    trial.prove();
}

#[test]
fn postgres_pro_multimaster_is_loaded_verified_driven_and_proved() {
    let Some(trial) = trial("engine-mtm", &Topology::Mtm { nodes: 3 }, None) else { return };
    let lab = &trial.lab;
    trial.load_and_verify();
    lab.expect(0, "run -b ycsb-a -c 3 -t 20 --connect each -o each");
    assert_eq!(lab.run_json("each")["target"]["engine"], "mtm");
    for node in [0, 2] {
        lab.expect_at(0, "verify ycsb", node);
    }
    lab.expect(0, "run -b ycsb-a -c 3 -T 6 --connect each -o sampled");
    let findings =
        std::fs::read_to_string(lab.folder.path().join("sampled/findings.json")).expect("findings");
    assert!(!findings.contains("mtm_sub_"), "Multimaster's own subscriptions are no finding: {findings}");
    trial.run();
    trial.look();
    trial.prove();
}

#[test]
fn pgactive_is_loaded_verified_driven_and_proved() {
    let topology = Topology::Pgactive { nodes: 2 };
    let Some(trial) = trial("engine-pgactive", &topology, Some("pgactive")) else { return };
    every_node_has_what_one_wrote(&trial);
}

/// Of a package, or of `scripts/engines`.
#[test]
fn pglogical_is_loaded_verified_driven_and_proved() {
    const NEED: &str = "engine-pglogical";
    let topology = Topology::Pglogical { nodes: 2 };
    let of_package = installations().into_iter().find(|installation| topology.suits(installation));
    let built = testing::needs::engine(NEED, topology.kind()).ok();
    let built =
        built.map(|programs| Installation::at(&programs).expect("an engine that was built has a server"));
    let Some(installation) = built.or(of_package) else {
        return testing::skip(&testing::Lack::new(NEED, "no PostgreSQL here has the extension pglogical"));
    };
    let servers = ThrowawayCluster::start(&installation, &topology, &[]).expect("a throwaway cluster starts");
    every_node_has_what_one_wrote(&Trial::new(ClusterLab::new(servers), "pglogical", Some("pglogical")));
}

/// Of engines that replicate after the commit: loads, runs and proofs through one node leave the others with the same rows.
fn every_node_has_what_one_wrote(trial: &Trial) {
    trial.load_and_verify();
    trial.run();
    trial.look();
    trial.prove();
    // Rows without a key of their own are removed, too.
    for what in ["skew", "hb"] {
        let promises = trial.proved(what);
        assert!(!promises.to_string().contains("not_tested"), "{what}: {promises}");
    }
    trial.lab.expect_at(0, "verify ycsb", 1);
}

#[test]
fn up_takes_the_server_of_the_engine_and_finds_the_cluster_from_any_node() {
    for (need, kind, nodes) in
        [("engine-citus", "citus", 2), ("engine-mtm", "mtm", 3), ("engine-pgactive", "pgactive", 2)]
    {
        let Some(programs) = built(need, kind) else { continue };
        let folder = Folder::new();
        let prefix = programs.parent().and_then(Path::parent).expect("a folder of engines");
        // The default folder of a cluster may not be open to the server's user, the temporary one is.
        let dir = std::env::temp_dir().join(format!("pgf-up-{kind}-{}", std::process::id()));
        let typed = |arguments: &[&str]| -> Ended {
            let mut command = pgfathom(folder.path());
            command.env("PGFATHOM_ENGINES", prefix).args(arguments);
            command.output().expect("the command starts").into()
        };
        let at = dir.display().to_string();
        let count = nodes.to_string();
        let up = typed(&[
            "up",
            kind,
            "--dir",
            &at,
            "--nodes",
            &count,
            "--preset",
            "careless",
            "--set",
            "shared_buffers=64MB",
        ]);
        let port = connection_port(&dir, nodes);
        let run = port.map(|port| {
            let socket = dir.join("run").display().to_string();
            typed(&[
                "watch", "-T", "1", "-h", &socket, "-p", &port, "-U", "postgres", "-o", "seen", "postgres",
            ])
        });
        let down = typed(&["down", &at]);
        assert_eq!(up.exit, Some(0), "{}{}", up.stdout, up.stderr);
        let run = run.expect("a cluster file has nodes");
        assert_eq!(run.exit, Some(0), "{}{}", run.stdout, run.stderr);
        let seen = std::fs::read_to_string(folder.path().join("seen/run.json")).expect("run.json");
        let seen: Value = serde_json::from_str(&seen).expect("JSON");
        let found = seen["steps"][0]["parameters"]["nodes"].as_array().map(Vec::len);
        assert_eq!(found, Some(nodes), "{kind}: {}", seen["steps"][0]["parameters"]);
        assert_eq!(down.exit, Some(0), "{}{}", down.stdout, down.stderr);
    }
}

/// The port of the last node in the cluster file.
fn connection_port(dir: &Path, nodes: usize) -> Option<String> {
    let text = std::fs::read_to_string(dir.join("cluster.toml")).ok()?;
    let mut ports = text.split("port=").skip(1).map(|rest| rest.split([' ', '"']).next().unwrap_or_default());
    ports.nth(nodes - 1).map(str::to_owned)
}

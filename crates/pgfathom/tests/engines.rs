//! The engines that `scripts/engines` has built, each on a cluster of three nodes: loaded, verified, driven and proved by the command.

use crate::labs::{self, ClusterLab};
use std::path::Path;

use crate::support;
use lab::local::{Installation, Topology};
use lab::throwaway::ThrowawayCluster;
use serde_json::Value;
use support::{Ended, Folder, pgfathom};

const DATASETS: [&str; 4] = ["ycsb", "tpcc", "tpcb", "documents"];

impl ClusterLab {
    /// Nothing, where the engine is not built.
    fn start(need: &'static str, topology: &Topology) -> Option<ClusterLab> {
        let programs = built(need, topology.kind())?;
        let installation =
            Installation::at(Path::new(&programs)).expect("an engine that was built has a server");
        let servers =
            ThrowawayCluster::start(&installation, topology, &[]).expect("a throwaway cluster starts");
        Some(ClusterLab::new(servers))
    }

    fn load_and_verify(&self) {
        for what in
            ["ycsb --rows 3000", "tpcc -s 1", "tpcb -s 1", "documents --rows 20 --document-size 1kB..16kB"]
        {
            let told = self.expect(0, &format!("load {what}")).stdout;
            assert!(!told.contains(" 0 bytes a row"), "{told}");
        }
        for dataset in DATASETS {
            for how in ["", " --deep"] {
                let told = self.expect(0, &format!("verify {dataset}{how}")).stdout;
                assert!(told.contains("exact"), "{told}");
            }
        }
    }

    /// Proves what the engine promises; the conditions of TPC-C are those after the run.
    fn prove(&self) {
        self.expect(0, "run -b tpcc -c 2 -t 20 --no-delays");
        self.expect(0, "prove tpcc");
        self.expect(0, "prove engine -o profile");
        let claims = crate::conformance::claims(&self.folder.path().join("profile"));
        for check in
            ["copy: binary", "savepoints", "routing: text", "sizes", "isolation: P4 at REPEATABLE READ"]
        {
            let result = claims.get(check).map(String::as_str);
            assert_eq!(result, Some("agrees"), "{check}: {claims:#?}");
        }
        for what in ["bank", "ack", "hermitage"] {
            let arguments = format!("prove {what} -T 3 -o {what}");
            let ended = labs::typed(self.command(&arguments), &arguments);
            // Three seconds on a busy host may be too few for a verdict (8), but a promise that was broken is another code.
            assert!(
                matches!(ended.exit, Some(0 | 8)),
                "$ pgfathom {arguments}\n{}{}",
                ended.stdout,
                ended.stderr
            );
            let run = self.run_json(what);
            let promises = run["steps"][0]["promises"].as_array().expect("promises").len();
            assert!(promises > 0, "{what}: {run}");
        }
    }
}

/// The programs of an engine; nothing, and a skip, where it is not built.
fn built(need: &'static str, engine: &str) -> Option<std::path::PathBuf> {
    testing::needs::engine(need, engine).map_err(|lack| testing::skip(&lack)).ok()
}

#[test]
fn citus_is_loaded_verified_driven_and_proved() {
    let Some(lab) = ClusterLab::start("engine-citus", &Topology::Citus { nodes: 3 }) else { return };
    lab.load_and_verify();
    for routed in ["each", "owner"] {
        lab.expect(0, &format!("run -b ycsb-a -c 6 -t 20 --connect {routed} -o {routed}"));
        assert_eq!(lab.run_json(routed)["target"]["engine"], "citus");
    }
    // A worker names the coordinator, which has the ledger.
    let told = lab.expect_at(0, "verify ycsb", 2).stdout;
    assert!(told.contains("accepted"), "{told}");
    let refused = lab.expect_at(1, "run -b ycsb-a -t 5", 2).stderr;
    assert!(refused.contains("hint: ") && refused.contains("coordinator"), "{refused}");
    lab.prove();
}

#[test]
fn postgres_pro_multimaster_is_loaded_verified_driven_and_proved() {
    let Some(lab) = ClusterLab::start("engine-mtm", &Topology::Mtm { nodes: 3 }) else { return };
    lab.load_and_verify();
    lab.expect(0, "run -b ycsb-a -c 3 -t 20 --connect each -o each");
    assert_eq!(lab.run_json("each")["target"]["engine"], "mtm");
    for node in [0, 2] {
        lab.expect_at(0, "verify ycsb", node);
    }
    lab.expect(0, "run -b ycsb-a -c 3 -T 6 --connect each -o watched");
    let findings =
        std::fs::read_to_string(lab.folder.path().join("watched/findings.json")).expect("findings");
    assert!(!findings.contains("mtm_sub_"), "Multimaster's own subscriptions are no finding: {findings}");
    lab.prove();
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

//! Cluster files that name the engine, the roles or the address of a node wrongly, on the engines that `scripts/engines` has built.

use crate::labs::{self, ClusterLab};
use crate::support::pgfathom;
use lab::local::Topology;

/// Types a command about a cluster file with this text; what it printed, in one line.
fn typed(lab: &ClusterLab, exit: i32, arguments: &str, text: &str) -> String {
    let path = lab.folder.path().join("named.toml");
    std::fs::write(&path, text).expect("a file");
    let mut command = pgfathom(lab.folder.path());
    command.args(arguments.split_whitespace()).arg("--cluster").arg(&path);
    let ended = labs::expect(exit, command, arguments);
    format!("{}{}", ended.stdout, ended.stderr).split_whitespace().collect::<Vec<_>>().join(" ")
}

fn file(lab: &ClusterLab) -> String {
    std::fs::read_to_string(lab.servers.cluster_toml()).expect("a cluster file")
}

/// Tables that are made on one node of a group stopped the replication to the others for good.
#[test]
fn a_group_of_pgactive_is_no_servers_of_postgres() {
    let topology = Topology::Pgactive { nodes: 2 };
    let Some(trial) = super::trial("engine-pgactive", &topology, Some("pgactive")) else { return };
    let lab = &trial.lab;
    let text = file(lab).replace("\"multimaster\"", "\"postgres\"").replace("\"peer\"", "\"primary\"");
    let (alone, _) = text.rsplit_once("[[node]]").expect("nodes");
    for verb in [
        "load documents --rows 50 --document-size 1kB..2kB",
        "verify ycsb",
        "run -b ycsb-a -t 5",
        "prove ack -T 1",
    ] {
        for text in [&text, alone] {
            let refused = typed(lab, 1, verb, text);
            assert!(refused.contains("of node \"m1\" is one of Multimaster"), "{verb}: {refused}");
            assert!(
                refused.contains("write engine = \"multimaster\" in the cluster file"),
                "{verb}: {refused}"
            );
        }
    }
    assert_eq!(lab.sql(0, "select pg_catalog.to_regnamespace('pgfathom')::text"), "", "nothing was made");
}

#[test]
fn a_file_of_citus_with_a_wrong_engine_role_or_address_shows_it() {
    let Some(trial) = super::trial("engine-citus", &Topology::Citus { nodes: 3 }, Some("citus")) else {
        return;
    };
    let lab = &trial.lab;
    let whole = file(lab);
    let plain = ["coordinator", "worker", "shard"]
        .iter()
        .fold(whole.replace("\"citus\"", "\"postgres\""), |text, role| {
            text.replace(&format!("role = \"{role}\""), "role = \"primary\"")
        });
    let refused = typed(lab, 1, "run -b ycsb-a -t 5", &plain);
    assert!(refused.contains("is one of Citus") && refused.contains("write engine = \"citus\""), "{refused}");

    // The file names one of two workers, and a second one at another address.
    let (short, last) = whole.rsplit_once("[[node]]").expect("nodes");
    let loaded = typed(lab, 0, "load ycsb --rows 300 -o short", short);
    assert!(!loaded.contains("has one node"), "{loaded}");
    let port = lab.servers.node(2).port();
    let away = last.replace(&format!("port={port} "), "port=1 ");
    assert_ne!(away, last);
    let away = format!("{short}[[node]]{away}");
    for (exit, verb) in
        [(0, "load ycsb --rows 300 --restart"), (8, "verify ycsb"), (1, "run -b ycsb-c -t 5 --connect owner")]
    {
        let shown = typed(lab, exit, verb, &away);
        assert!(shown.contains("do not answer: w2 ("), "{verb}: {shown}");
        assert!(shown.contains(&format!("{port}, which the file does not name")), "{verb}: {shown}");
    }

    // Coordinator and worker have exchanged their roles.
    let exchanged = whole
        .replacen("role = \"coordinator\"", "role = \"first\"", 1)
        .replacen("role = \"worker\"", "role = \"coordinator\"", 1)
        .replacen("role = \"first\"", "role = \"worker\"", 1);
    assert_ne!(exchanged, whole);
    let proved = typed(lab, 0, "prove engine -o engine", &exchanged);
    assert!(proved.contains("0 differ"), "{proved}");
}

//! Hints of refused loads, typed as they are printed: at a worker of Citus, which creates no schema, they lead to the coordinator.

use crate::labs;
use lab::local::Topology;
use std::process::Command;

/// The statement of a hint, and the settings that it gives to the same command.
fn parts(hint: &str) -> (&str, &str) {
    let from = hint.find("psql '").expect("a hint names psql and the place");
    let (statement, rest) = hint[from..].split_once(", then ").expect("what comes after the statement");
    let setting = rest.split_once("PGOPTIONS='").and_then(|(_, rest)| rest.split_once('\''));
    (statement, setting.expect("a setting").0)
}

/// A table of the user's own has the name of one of ours.
#[test]
fn hints_of_refused_loads_help_at_a_worker_of_citus() {
    let Some(trial) = super::trial("engine-citus", &Topology::Citus { nodes: 3 }, Some("citus")) else {
        return;
    };
    let lab = &trial.lab;
    const LOADS: [(&str, &str); 3] = [
        ("documents --rows 20 --document-size 1kB..4kB", "documents"),
        ("tpcb -s 1", "pgbench_accounts"),
        ("tpcc -s 1", "warehouse"),
    ];
    lab.execute(0, "create schema ours");
    for (load, table) in LOADS {
        lab.execute(0, &format!("create table ours.{table} (mine int primary key)"));
        let at_worker = |exit: i32, settings: &str| {
            let arguments = format!("load {load} -q -o {table}-{exit}");
            let mut command = lab.command_at(&arguments, 2);
            command.env("PGOPTIONS", settings);
            labs::expect(exit, command, &arguments)
        };
        let refused = at_worker(1, "-c search_path=ours").stderr;
        let (statement, setting) = parts(&refused);
        let typed = Command::new("sh").args(["-c", statement]).output().expect("sh starts");
        assert!(typed.status.success(), "{statement}: {}", String::from_utf8_lossy(&typed.stderr));
        at_worker(0, setting);
        lab.execute(0, "drop schema bench cascade");
        lab.execute(0, "drop schema pgfathom cascade");
    }
}

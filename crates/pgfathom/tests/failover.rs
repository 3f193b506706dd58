//! `run --cluster` through a failover: it goes on at the new primary, tells what that cost, and what it had acknowledged is there.

use crate::support;
use lab::throwaway::{ThrowawayCluster, installations};
use std::process::Stdio;
use std::time::{Duration, Instant};
use support::{Ended, Folder, pgfathom, run};

#[test]
fn a_run_goes_on_at_the_new_primary_and_loses_nothing() {
    let installation =
        installations().into_iter().next().expect("no PostgreSQL on this machine: make test installs it");
    let mut cluster =
        ThrowawayCluster::replicated(&installation, 1, "FIRST 1 (s1)").expect("the servers start");
    let folder = Folder::new();
    let file = cluster.cluster_toml().display().to_string();
    let load = run(folder.path(), &["load", "ycsb", "--rows", "2000", "--cluster", &file]);
    assert_eq!(load.exit, Some(0), "{}", load.stderr);

    let drive = ["run", "-b", "ycsb-a", "-c", "4", "-T", "12", "--cluster", &file, "-o", "driven"];
    let child = testing::Running::new(
        pgfathom(folder.path())
            .args(drive)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command starts"),
    );
    let record = folder.path().join("driven/run.json");
    let deadline = Instant::now() + testing::PATIENCE;
    while !std::fs::read_to_string(&record).is_ok_and(|text| text.contains("\"measure\"")) {
        assert!(Instant::now() < deadline, "the run never began");
        std::thread::sleep(Duration::from_millis(20));
    }
    // A throughput from before is known once there are whole seconds.
    let seconds = folder.path().join("driven/samples.ndjson");
    testing::wait_for("three seconds of the run", || {
        std::fs::read_to_string(&seconds).is_ok_and(|text| text.matches("\"source\":\"client\"").count() >= 3)
    });
    cluster.node_mut(0).kill9().expect("the primary is killed");
    let promoted = cluster.node(1).value("select pg_promote()").expect("the standby answers");
    assert_eq!(promoted.as_deref(), Some("t"));
    let ended: Ended = child.output().expect("ends").into();
    // Transactions under way were lost: a result with errors.
    assert_eq!(ended.exit, Some(2), "{}{}", ended.stdout, ended.stderr);
    let server = cluster.node(1).spec().hosts[0].to_string();
    let told = ended.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(told.contains("outage of "), "{}", ended.stdout);
    assert!(told.contains(&format!("sessions went on at {server}")), "{}", ended.stdout);
    let text = std::fs::read_to_string(&record).expect("run.json is there");
    let told: serde_json::Value = serde_json::from_str(&text).expect("run.json is whole");
    let step = &told["steps"][0];
    let outage = &step["outages"][0];
    assert_eq!((&outage["cause"], &outage["server"]), (&"disconnected".into(), &server.into()), "{outage}");
    assert!(outage["duration_us"].as_u64().is_some_and(|duration| duration > 0), "{outage}");
    assert!(outage["tps_before"].as_f64().is_some_and(|tps| tps > 0.0), "{outage}");
    assert!(step["totals"]["outage_s"].as_f64().is_some_and(|seconds| seconds > 0.0), "{step}");

    // The standby was synchronous: every update that was acknowledged is on it.
    let verify = run(folder.path(), &["verify", "--cluster", &file]);
    assert_eq!(verify.exit, Some(0), "{}{}", verify.stdout, verify.stderr);
    assert!(verify.stdout.contains("2,000 rows exact"), "{}", verify.stdout);
}

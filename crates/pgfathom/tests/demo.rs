//! The demo, small: the whole way on every PostgreSQL of this machine, and nothing left behind, whatever ends it.

use crate::support;
use lab::throwaway::installations;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};
use support::{Ended, Folder, pgfathom, run};

/// Folders of throwaway clusters that belong to this process id.
fn clusters_of(pid: u32) -> Vec<PathBuf> {
    let mine = format!("pgfathom-t-{pid}-");
    let entries =
        std::fs::read_dir(std::env::temp_dir()).expect("the temporary folder is readable").flatten();
    entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(&mine))
        .map(|entry| entry.path())
        .collect()
}

fn run_json(folder: &Path) -> serde_json::Value {
    let text = std::fs::read_to_string(folder.join("demo/run.json")).expect("run.json is there");
    serde_json::from_str(&text).expect("run.json is whole")
}

#[test]
fn the_whole_way_on_every_postgresql() {
    let found = installations();
    assert!(!found.is_empty(), "no PostgreSQL on this machine: make test installs it");
    std::thread::scope(|scope| {
        for installation in &found {
            scope.spawn(move || {
                let folder = Folder::new();
                let bin = installation.bin_dir.display().to_string();
                // 4,321 rows divide by nothing.
                let flags =
                    ["demo", "--rows", "4321", "-c", "2", "-T", "1200ms", "-o", "demo", "--pg-bin", &bin];
                let ended = run(folder.path(), &flags);
                // A machine that is busy with other tests may make the client the limit (5): told, and no failure of the demo.
                assert!(
                    matches!(ended.exit, Some(0 | 5)),
                    "{installation}: {}{}",
                    ended.stdout,
                    ended.stderr
                );
                // Indented lines say why a step is invalid, on a machine that is busy.
                let lines: Vec<&str> = ended.stdout.lines().filter(|line| !line.starts_with(' ')).collect();
                assert!(
                    lines[0].starts_with(&format!("pgfathom demo   PostgreSQL {}", installation.version)),
                    "{lines:?}"
                );
                let starts = [
                    "pgfathom demo",
                    "up ",
                    "load ycsb",
                    "verify ycsb",
                    "run ycsb-c",
                    "run ycsb-a",
                    "verify ycsb",
                    "report ",
                ];
                assert_eq!(lines.len(), starts.len(), "{lines:#?}");
                for (line, start) in lines.iter().zip(starts) {
                    assert!(line.starts_with(start), "{line:?} does not start with {start:?}");
                }
                assert!(
                    lines[2].contains("4,321 rows") && lines[3].contains("4,321 rows exact"),
                    "{lines:#?}"
                );
                assert_eq!(ended.stderr.lines().last(), Some("run: demo"));
                let run = run_json(folder.path());
                assert_eq!(run["state"], "finished");
                let keys: Vec<&str> = run["steps"]
                    .as_array()
                    .expect("steps")
                    .iter()
                    .filter_map(|step| step["key"].as_str())
                    .collect();
                assert_eq!(keys, ["load-ycsb", "verify-ycsb", "run-ycsb-c", "run-ycsb-a", "verify-ycsb-2"]);
                assert_eq!(run["target"]["engine"], "postgres");
                let updates = run["steps"][4]["totals"]["updates_accepted"].as_u64();
                assert!(
                    updates.is_some_and(|updates| updates > 0),
                    "ycsb-a updates, and the deep verification sees it"
                );
                let page =
                    std::fs::metadata(folder.path().join("demo/report.html")).expect("the page is there");
                assert!(page.len() > 10_000 && page.len() <= report::PAGE_BYTES_MAX as u64);
                let again = support::run(folder.path(), &["report", "demo", "--format", "json"]);
                assert_eq!(again.exit, Some(0), "{}", again.stderr);
            });
        }
    });
}

#[test]
fn json_is_the_summary_and_nothing_else() {
    let folder = Folder::new();
    let ended = run(
        folder.path(),
        &["demo", "--rows", "100", "-c", "1", "-T", "1", "-o", "demo", "--format", "json"],
    );
    let summary: serde_json::Value =
        serde_json::from_str(&ended.stdout).expect("stdout is JSON and nothing else");
    assert_eq!(summary["verb"], "demo");
    assert_eq!(summary["rows"], 100);
    assert_eq!(summary["steps"].as_array().map(Vec::len), Some(5));
}

#[test]
fn nothing_stays_behind_after_ctrl_c_in_any_step() {
    for step in ["load-ycsb", "run-ycsb-c", "verify-ycsb-2"] {
        let folder = Folder::new();
        let child = testing::Running::new(
            pgfathom(folder.path())
                .args(["demo", "--rows", "30000", "-T", "2", "-c", "2", "-o", "demo"])
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("the command starts"),
        );
        let pid = child.id();
        let deadline = Instant::now() + testing::PATIENCE;
        let file = folder.path().join("demo/run.json");
        while !std::fs::read_to_string(&file).is_ok_and(|text| text.contains(&format!("\"key\": \"{step}\"")))
        {
            assert!(Instant::now() < deadline, "{step} never began");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(clusters_of(pid).len(), 1, "the cluster is there while it is needed");
        let kill = std::process::Command::new("kill").args(["-s", "INT", &pid.to_string()]).status();
        assert!(kill.expect("kill starts").success());
        let ended: Ended = child.output().expect("ends").into();
        // The last step may have been through before the signal came.
        let codes: &[i32] = if step == "verify-ycsb-2" { &[130, 0, 5] } else { &[130] };
        assert!(
            ended.exit.is_some_and(|exit| codes.contains(&exit)),
            "{step}: {:?} {}",
            ended.exit,
            ended.stderr
        );
        assert_eq!(ended.stderr.lines().last(), Some("run: demo"), "{step}");
        assert_eq!(clusters_of(pid), Vec::<PathBuf>::new(), "{step}: the cluster is gone");
        let state = run_json(folder.path())["state"].clone();
        assert!(state == "interrupted" || ended.exit != Some(130), "{step}: {state}");
    }
}

#[test]
fn a_killed_demo_takes_its_server_along() {
    let folder = Folder::new();
    let mut child = testing::Running::new(
        pgfathom(folder.path())
            .args(["demo", "--rows", "1000", "-T", "60", "-o", "demo"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the command starts"),
    );
    let deadline = Instant::now() + testing::PATIENCE;
    let file = folder.path().join("demo/run.json");
    while !std::fs::read_to_string(&file).is_ok_and(|text| text.contains("\"name\": \"measure\"")) {
        assert!(Instant::now() < deadline, "the run never began");
        std::thread::sleep(Duration::from_millis(20));
    }
    let cluster = clusters_of(child.id()).pop().expect("the cluster is there");
    let postmaster = std::fs::read_to_string(cluster.join("data/postmaster.pid")).expect("the server runs");
    let postmaster: u32 =
        postmaster.lines().next().and_then(|line| line.parse().ok()).expect("its first line is the pid");
    child.kill().expect("SIGKILL");
    child.wait().expect("ends");
    let deadline = Instant::now() + testing::PATIENCE;
    while std::fs::read_to_string(format!("/proc/{postmaster}/comm"))
        .is_ok_and(|name| name.trim() == "postgres")
    {
        assert!(Instant::now() < deadline, "the server of a killed demo still runs");
        std::thread::sleep(Duration::from_millis(50));
    }
    // The folder stays until the next throwaway cluster sweeps it, a minute later; here the test does.
    let _ = std::fs::remove_dir_all(&cluster);
}

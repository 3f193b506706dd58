//! Ctrl-C and SIGTERM: once ends early with a partial result, twice ends at once; both exit 130.

mod support;

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use support::{Ended, Folder, pgfathom};

fn start(folder: &Folder, arguments: &[&str]) -> Child {
    pgfathom(folder.path())
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts")
}

fn signal(child: &Child, name: &str) {
    let status = std::process::Command::new("kill").args(["-s", name, &child.id().to_string()]).status();
    assert!(status.expect("kill starts").success());
}

/// Waits until the run directory says that the step has begun.
fn await_phase(folder: &Folder, run: &str, phase: &str) {
    let deadline = Instant::now() + Duration::from_secs(20);
    let file = folder.path().join(run).join("run.json");
    while !std::fs::read_to_string(&file).is_ok_and(|text| text.contains(phase)) {
        assert!(Instant::now() < deadline, "{phase} never began");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn the_first_signal_ends_early_and_leaves_a_partial_result() {
    for name in ["INT", "TERM"] {
        let folder = Folder::new();
        let child = start(&folder, &["self", "-T", "60", "-o", "partial"]);
        await_phase(&folder, "partial", "generator");
        let begun = Instant::now();
        signal(&child, name);
        let ended: Ended = child.wait_with_output().expect("ends").into();
        assert!(begun.elapsed() < Duration::from_secs(10), "{name} took {:?}", begun.elapsed());
        assert_eq!(ended.exit, Some(130), "{}", ended.stderr);
        assert_eq!(ended.stderr.lines().last(), Some("run: partial"));
        let run = std::fs::read_to_string(folder.path().join("partial/run.json")).expect("run.json is there");
        let run: serde_json::Value = serde_json::from_str(&run).expect("run.json is whole");
        assert_eq!(run["state"], "interrupted");
    }
}

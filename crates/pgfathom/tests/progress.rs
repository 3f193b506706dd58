//! Progress: one line that is redrawn on a terminal, plain lines elsewhere, nothing with -q, and never anything on stdout.

use crate::support;
use lab::throwaway::{Throwaway, installations};
use std::process::{Command, Stdio};
use support::{Ended, Folder, pgfathom, run};

#[test]
fn progress_is_redrawn_on_a_terminal_and_plain_elsewhere() {
    let installation =
        installations().into_iter().next().expect("no PostgreSQL on this machine: make test installs it");
    let cluster = Throwaway::start(&installation, &[]).expect("the throwaway server starts");
    let folder = Folder::new();
    let target = format!("host={} port={} user=postgres", cluster.socket_dir().display(), cluster.port());
    let loaded = run(folder.path(), &["load", "ycsb", "--rows", "1000", &target]);
    assert_eq!(loaded.exit, Some(0), "{}", loaded.stderr);

    let drive = ["run", "-b", "ycsb-c", "-T", "2", "-P", "1", &target];
    let ended = run(folder.path(), &drive);
    let told: Vec<&str> = ended.stderr.lines().filter(|line| line.starts_with("progress: ")).collect();
    assert!((1..=3).contains(&told.len()), "a line a second: {}", ended.stderr);
    assert!(told.iter().all(|line| line.contains(" tps, lat ")), "{told:?}");
    assert!(!ended.stderr.contains(['\r', '\x1b']), "a file holds nothing but text: {:?}", ended.stderr);
    assert!(!ended.stdout.contains("progress"), "progress is talk: {}", ended.stdout);

    let quiet: Ended = pgfathom(folder.path()).args(drive).arg("-q").output().expect("starts").into();
    assert_eq!(quiet.stderr.lines().count(), 1, "{}", quiet.stderr);

    // script(1) makes the terminal to try it on.
    if let Err(lack) = testing::needs::program("script") {
        return testing::skip(&lack);
    }
    let line = format!("{} run -b ycsb-c -T 2 -o pty '{target}'", env!("CARGO_BIN_EXE_pgfathom"));
    let mut script = Command::new("script");
    script
        .args(["-qec", &line, "/dev/null"])
        .current_dir(folder.path())
        .env("TERM", "xterm")
        .stdin(Stdio::null());
    let output = script.output().expect("script starts");
    let screen = String::from_utf8_lossy(&output.stdout).into_owned();
    let redrawn = screen.matches("\r\x1b[2K").count();
    assert!(redrawn >= 2, "drawn at least once and taken away: {screen:?}");
    let last = screen.rsplit("\r\x1b[2K").next().unwrap_or_default();
    assert!(last.contains("run: pty") && !last.contains('\x1b'), "what stays is clean: {last:?}");
    assert!(!screen.contains("progress: "), "{screen:?}");
}

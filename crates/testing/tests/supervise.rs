//! The supervisor of suites: what hangs is ended, with all that it has started.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const SUPERVISE: &str = env!("CARGO_BIN_EXE_supervise");

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("pgfathom-supervise-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.join(name)).unwrap().trim().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn supervise(folder: &Folder, limit_s: &str, grace_s: &str, script: &str) -> Output {
    let mut command = Command::new(SUPERVISE);
    command
        .args([limit_s, grace_s])
        .arg(folder.0.join("usage"))
        .args(["sh", "-c", script])
        .current_dir(&folder.0);
    command.output().unwrap()
}

fn is_alive(pid: &str) -> bool {
    Path::new("/proc").join(pid).join("exe").exists()
}

#[test]
fn a_suite_that_ends_keeps_its_exit_code() {
    let folder = Folder::new("code");
    for code in [0, 1, 101] {
        let ended = supervise(&folder, "600", "60", &format!("echo said; exit {code}"));
        assert_eq!((ended.status.code(), ended.stdout.as_slice()), (Some(code), &b"said\n"[..]));
    }
    let killed = supervise(&folder, "600", "60", "kill -9 $$");
    assert_eq!(killed.status.code(), Some(128 + 9));
    assert!(folder.read("usage").ends_with(" 0"), "nothing was left: {}", folder.read("usage"));
}

#[test]
fn a_suite_that_hangs_is_killed_with_its_daemons() {
    let folder = Folder::new("hang");
    // Its server left the process group and the parent, as `pg_ctl` lets one do.
    let script = "(setsid sh -c 'echo $$ >daemon; exec sleep 600' &) ; echo $$ >suite; sleep 600";
    let ended = supervise(&folder, "10", "60", script);
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(124), "{said}");
    assert!(said.contains("no end after 10 s") && said.contains("sleep 600"), "{said}");
    for name in ["daemon", "suite"] {
        assert!(!is_alive(&folder.read(name)), "{name} lives: {said}");
    }
}

#[test]
fn what_a_suite_has_left_running_is_named_and_killed() {
    let folder = Folder::new("left");
    let ended = supervise(&folder, "600", "1", "(setsid sleep 601 & echo $! >daemon)");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(0), "{said}");
    assert!(said.contains("left running") && said.contains("sleep 601"), "{said}");
    assert!(!is_alive(&folder.read("daemon")) && folder.read("usage").ends_with(" 1"), "{said}");
}

#[test]
fn what_cannot_be_started_is_told() {
    let folder = Folder::new("nothing");
    let mut command = Command::new(SUPERVISE);
    let ended =
        command.args(["5", "5"]).arg(folder.0.join("usage")).arg("./no such program").output().unwrap();
    assert_eq!(ended.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&ended.stderr).contains("no such program"));
}

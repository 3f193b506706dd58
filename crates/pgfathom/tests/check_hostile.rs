//! `check` with hosts and files that are not as they should be: hosts that do not answer, or send something else; interrupts between rounds.

use crate::support;
use serde_json::Value;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};
use support::{Folder, pgfathom, run};

/// In place of ssh: what each host does by its name.
const SSH: &str = r#"#!/bin/sh
while [ "$1" != -- ]; do shift; done
printf '%s\n' "$2" >>asked
case $2 in
good) exec sh -c "$3" ;;
banner) printf 'Welcome {"Hello"}\n\033[31mto this host\033[0m\n'; echo 'motd' >&2; exec sh -c "$3" ;;
mute) exec sleep 300 ;;
endless) exec yes 'this host never ends' ;;
flood) exec yes '{"Hello":{"protocol":1,"pid":1}}' ;;
wide) exec tr '\0' x </dev/zero ;;
closed) printf 'ssh: \033[2Jconnection refused\n' >&2; exit 255 ;;
esac
"#;

fn with_ssh() -> (Folder, String) {
    let folder = Folder::new();
    folder.write("ssh", SSH).write("data/here", "");
    let ssh = folder.path().join("ssh");
    std::fs::set_permissions(&ssh, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("ours");
    let ssh = ssh.display().to_string();
    (folder, ssh)
}

fn checks(folder: &Path, name: &str) -> Value {
    let path = folder.join(name).join("check.json");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn hosts_that_answer_wrongly_or_never_are_named_and_the_others_are_checked() {
    let (folder, ssh) = with_ssh();
    let program = env!("CARGO_BIN_EXE_pgfathom");
    let mut arguments = vec!["check", "--ssh-program", &ssh, "--program", program, "-o", "checked"];
    arguments.extend(["--skip", "memory,processor,network"]);
    for host in ["good", "banner", "mute", "endless", "flood", "wide", "closed"] {
        arguments.extend(["--ssh", host]);
    }
    let begun = Instant::now();
    let ended = run(folder.path(), &arguments);
    let output = format!("{}{}", ended.stdout, ended.stderr);
    assert_eq!(ended.exit, Some(6), "{output}");
    // The greeting is waited for once, of all hosts together.
    assert!(begun.elapsed() < Duration::from_secs(90), "{:?}", begun.elapsed());
    let found = checks(folder.path(), "checked");
    let items = found["items"].as_array().expect("items");
    let reached = |host: &str| {
        let item = items.iter().find(|item| item["check"] == "host.reached" && item["host"] == host);
        let item = item.unwrap_or_else(|| panic!("{host} is missing: {output}"));
        (item["verdict"].as_str().expect("a verdict"), item["claim"].as_str().expect("a claim"))
    };
    for host in ["good", "banner"] {
        assert_eq!(reached(host).0, "pass", "{:?}", reached(host));
    }
    for host in ["mute", "endless", "wide", "closed"] {
        assert_eq!(reached(host).0, "fail", "{:?}", reached(host));
    }
    assert!(reached("mute").1.contains("no reply for 20 s"), "{:?}", reached("mute"));
    // One that greets again and again is not taken for a probe that answered, and does not differ from the others in every fact.
    let of_flood = |verdict: &str| {
        items.iter().filter(|item| item["host"] == "flood" && item["verdict"] == verdict).count()
    };
    assert!(of_flood("fail") > 0 && of_flood("warn") == 0, "{output}");
    // What a host sends does not move the cursor or clear the screen.
    assert!(!ended.stdout.contains('\u{1b}') && !ended.stderr.contains('\u{1b}'), "{output:?}");
}

#[test]
fn names_that_are_options_or_commands_never_reach_ssh() {
    let (folder, ssh) = with_ssh();
    for host in [
        "-oProxyCommand=touch${IFS}made",
        "good;touch made",
        "a b",
        "good address=$(touch${IFS}made)",
        "u@-x",
    ] {
        // A value that begins with a minus has to be joined to its flag.
        let host = format!("--ssh={host}");
        let ended = run(folder.path(), &["check", "--ssh-program", &ssh, &host, "-o", "checked"]);
        assert_eq!(ended.exit, Some(1), "{host}: {}{}", ended.stdout, ended.stderr);
    }
    assert!(!folder.path().join("asked").exists() && !folder.path().join("made").exists());
    // A directory is a word of a shell, whatever it holds.
    let odd = folder.path().join("it's $(touch made) `touch made`; touch made\n\"!x\" {a,b}");
    std::fs::create_dir(&odd).expect("a folder");
    let odd = odd.display().to_string();
    let mut arguments =
        vec!["check", "--ssh-program", &ssh, "--program", "/nowhere/pgfathom", "--ssh", "good"];
    arguments.extend(["--disk", &odd, "--size", "32MiB", "--probe-time", "50ms", "--depths", "1"]);
    arguments.extend(["--skip", "memory,processor,network", "-o", "checked"]);
    let ended = run(folder.path(), &arguments);
    let disk = &checks(folder.path(), "checked")["disks"][0];
    match testing::needs::program("fio") {
        Ok(_) => assert_eq!(disk["tests"].as_array().map(Vec::len), Some(5), "{disk} {}", ended.stderr),
        Err(_) => assert!(disk["refused"].as_str().is_some_and(|why| why.contains("fio")), "{disk}"),
    }
    assert!(!folder.path().join("made").exists());
    assert_eq!(std::fs::read_dir(&odd).expect("a folder").count(), 0);
}

#[test]
fn rounds_are_kept_as_they_come_and_an_interrupt_between_two_ends_at_once() {
    let folder = Folder::new();
    folder.write("data/here", "");
    let begin = |name: &str| {
        let mut command = pgfathom(folder.path());
        command.args(["check", "--disk", "data", "--size", "32MiB", "--probe-time", "50ms", "--depths", "1"]);
        command.args(["--skip", "memory,processor,network", "--every", "10m", "--for", "24h", "-o", name]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the command starts");
        let written = folder.path().join(name).join("check.json");
        testing::wait_for("the first round", || written.exists());
        child
    };
    let mut child = begin("interrupted");
    let begun = Instant::now();
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it lives");
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());

    let mut child = begin("killed");
    child.kill().expect("it lives");
    child.wait().expect("it ends");
    for name in ["interrupted", "killed"] {
        let found = checks(folder.path(), name);
        assert_eq!(found["disks"].as_array().map(Vec::len), Some(1), "{name}");
        let items = found["items"].as_array().expect("items");
        assert!(items.iter().any(|item| item["check"] == "disk.sync"), "{name}");
        let shown = run(folder.path(), &["report", name]);
        assert_eq!(shown.exit, Some(0), "{name}: {}", shown.stderr);
        assert!(folder.path().join(name).join("report.html").exists(), "{name}");
    }
    assert_eq!(std::fs::read_dir(folder.path().join("data")).expect("a folder").count(), 1);
}

//! `check` on this host: what it writes, how it judges by a contract, and that it leaves nothing behind.

use crate::support;
use lab::throwaway::{Throwaway, installations};
use serde_json::Value;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};
use support::{Folder, pgfathom, run};

/// The smallest check with a disk.
const SMALL: [&str; 9] = [
    "check",
    "--size",
    "32MiB",
    "--probe-time",
    "50ms",
    "--depths",
    "1,2",
    "--skip",
    "memory,processor,network",
];

fn checks(folder: &Path, name: &str) -> Value {
    let path = folder.join(name).join("check.json");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).expect("JSON")
}

fn verdicts<'a>(checks: &'a Value, check: &str) -> Vec<&'a str> {
    let items = checks["items"].as_array().expect("items");
    items.iter().filter(|item| item["check"] == check).filter_map(|item| item["verdict"].as_str()).collect()
}

fn arguments<'a>(more: &[&'a str]) -> Vec<&'a str> {
    SMALL.iter().copied().chain(more.iter().copied()).collect()
}

#[test]
fn a_contract_that_is_not_kept_ends_with_6() {
    let folder = Folder::new();
    folder.write(
        "kept.toml",
        "[[require]]\ncheck = \"disk.sequential_write.q1\"\nat_least = \"1 kB/s\"\n[[require]]\ncheck = \"disk.sync\"\nat_most = \"1000 s\"\n",
    );
    folder.write(
        "broken.toml",
        "[[require]]\ncheck = \"disk.random_read.q2\"\nat_least = \"1000 M/s\"\nwhy = \"contract\"\n",
    );
    folder.write("data/here", "");
    let kept = run(folder.path(), &arguments(&["--disk", "data", "--accept", "kept.toml", "-o", "kept"]));
    let found = checks(folder.path(), "kept");
    assert_eq!(verdicts(&found, "accept.disk.sequential_write.q1"), ["pass"]);
    assert_eq!(verdicts(&found, "accept.disk.sync"), ["pass"]);
    // Whatever else this host is, an accepted figure is no failure.
    assert!(matches!(kept.exit, Some(0 | 6)), "{}{}", kept.stdout, kept.stderr);

    let arguments =
        arguments(&["--disk", "data", "--accept", "broken.toml", "-o", "broken", "--format", "json"]);
    let broken = run(folder.path(), &arguments);
    assert_eq!(broken.exit, Some(6), "{}{}", broken.stdout, broken.stderr);
    let summary: Value = serde_json::from_str(&broken.stdout).expect("JSON");
    assert_eq!(verdicts(&summary["check"], "accept.disk.random_read.q2"), ["fail"]);
    assert_eq!(verdicts(&checks(folder.path(), "broken"), "accept.disk.random_read.q2"), ["fail"]);
    let shown = run(folder.path(), &["report", "broken"]);
    assert!(
        shown.stdout.contains("accept.disk.random_read.q2") && shown.stdout.contains("required >= 1G/s"),
        "{}",
        shown.stdout
    );
    let itself = run(folder.path(), &["report", "broken", "--check", "kept"]);
    assert_eq!(itself.exit, Some(1));
    assert!(itself.stderr.contains("broken is a check itself"), "{}", itself.stderr);
    // A run of which nothing was sampled: the check is kept in it, and the page does not guess.
    folder.write("run/run.json", "{\"schema_version\": 1, \"verb\": \"run\"}");
    let compared = run(folder.path(), &["report", "run", "--check", "kept"]);
    assert_eq!(compared.exit, Some(0), "{}", compared.stderr);
    let page = std::fs::read_to_string(folder.path().join("run/report.html")).expect("a page");
    assert!(
        page.contains("Did it reach the hardware?") && page.contains("Cannot tell: the run has no samples")
    );
    // Nothing but the user's own file is left.
    assert_eq!(std::fs::read_dir(folder.path().join("data")).expect("a folder").count(), 1);
}

#[test]
fn rounds_show_the_spread() {
    let folder = Folder::new();
    folder.write("data/here", "");
    let arguments = arguments(&["--disk", "data", "--every", "500ms", "--for", "1500ms", "-o", "rounds"]);
    let ended = run(folder.path(), &arguments);
    let found = checks(folder.path(), "rounds");
    assert_eq!(found["disks"].as_array().expect("disks").len(), 3, "{}{}", ended.stdout, ended.stderr);
    assert_eq!(verdicts(&found, "spread.disk.random_read.q2").len(), 1, "{}{}", ended.stdout, ended.stderr);
    assert_eq!(verdicts(&found, "disk.sync").len(), 1, "only the last round is judged");
}

#[test]
fn fio_measures_by_request_and_its_output_is_kept() {
    if let Err(lack) = testing::needs::program("fio") {
        return testing::skip(&lack);
    }
    let folder = Folder::new();
    folder.write("data/here", "");
    let ended = run(folder.path(), &arguments(&["--disk", "data", "--tools", "installed", "-o", "checked"]));
    let output = format!("{}{}", ended.stdout, ended.stderr);
    let disk = &checks(folder.path(), "checked")["disks"][0];
    assert_eq!(
        (disk["tool"].as_str(), disk["tests"].as_array().map(Vec::len)),
        (Some("fio"), Some(9)),
        "{disk} {output}"
    );
    assert_eq!(
        std::fs::read_dir(folder.path().join("checked/tools")).expect("outputs").count(),
        9,
        "{output}"
    );
    assert_eq!(std::fs::read_dir(folder.path().join("data")).expect("a folder").count(), 1, "{output}");
}

#[test]
fn a_foreign_folder_is_refused_and_kept() {
    let folder = Folder::new();
    folder.write("data/pgfathom-check/letters", "mine");
    let ended = run(folder.path(), &arguments(&["--disk", "data", "-o", "refused"]));
    assert_eq!(ended.exit, Some(6), "{}{}", ended.stdout, ended.stderr);
    // Sentences are folded at the width of a terminal.
    let words = ended.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("is not a folder of pgfathom check"), "{words}");
    assert!(folder.path().join("data/pgfathom-check/letters").exists());
}

#[test]
fn the_disk_of_a_database_is_measured_beside_its_data() {
    let installation = installations().into_iter().next().expect("a PostgreSQL");
    let server = Throwaway::start(&installation, &[]).expect("a throwaway server starts");
    let folder = Folder::new();
    let (host, port) = (server.socket_dir().display().to_string(), server.port().to_string());
    let target =
        ["-h", &host, "-p", &port, "-U", lab::throwaway::SUPERUSER, "-d", "postgres", "-o", "checked"];
    let ended = run(folder.path(), &arguments(&target));
    let output = format!("{}{}", ended.stdout, ended.stderr);
    let found = checks(folder.path(), "checked");
    let disk = &found["disks"][0];
    assert_eq!(disk["tests"].as_array().map(Vec::len), Some(9), "{disk} {output}");
    let data = disk["directory"].as_str().expect("a directory");
    assert!(Path::new(data).join("PG_VERSION").exists(), "{data}");
    assert_eq!(verdicts(&found, "mount.pgdata").len(), 1, "{output}");
    assert_eq!(verdicts(&found, "node.reached"), Vec::<&str>::new(), "{output}");
    assert!(!Path::new(data).join("pgfathom-check").exists());
}

#[test]
fn an_interrupt_and_a_kill_leave_nothing_or_what_the_next_check_removes() {
    let folder = Folder::new();
    folder.write("data/here", "");
    let scratch = folder.path().join("data/pgfathom-check");
    let begin = |name: &str| {
        let mut command = pgfathom(folder.path());
        let long = [
            "check",
            "--disk",
            "data",
            "--size",
            "32MiB",
            "--probe-time",
            "60",
            "--skip",
            "memory,processor,network",
        ];
        command.args(long).args(["-o", name]).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().expect("the command starts");
        testing::wait_for("the disk probe", || scratch.join("made-by-pgfathom").exists());
        child
    };
    let mut child = begin("interrupted");
    let begun = Instant::now();
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("the process lives");
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
    assert!(begun.elapsed() < Duration::from_secs(30), "the tests of 60 s were not waited for");
    assert!(!scratch.exists());

    let mut child = begin("killed");
    child.kill().expect("the process lives");
    child.wait().expect("it ends");
    let names: Vec<_> =
        std::fs::read_dir(&scratch).expect("it is left").flatten().map(|one| one.file_name()).collect();
    assert_eq!(names, ["made-by-pgfathom"], "the data has no name, and its space is free");
    let next = run(folder.path(), &arguments(&["--disk", "data", "-o", "next"]));
    assert_eq!(verdicts(&checks(folder.path(), "next"), "disk.probe"), Vec::<&str>::new(), "{}", next.stdout);
    assert!(!scratch.exists());
}

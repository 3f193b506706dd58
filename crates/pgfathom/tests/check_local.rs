//! `check` on this host: what it writes, how it judges by a contract, and that it leaves nothing behind.

use crate::support;
use lab::throwaway::{Throwaway, ThrowawayCluster, installations};
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

    folder.write("unit.toml", "[[require]]\ncheck = \"disk.sync\"\nat_most = \"200 MB/s\"\n");
    let refused = run(folder.path(), &arguments(&["--disk", "data", "--accept", "unit.toml", "-o", "unit"]));
    assert_eq!(refused.exit, Some(1), "{}{}", refused.stdout, refused.stderr);
    let why = "unit.toml is wrong: disk.sync: at_most = \"200 MB/s\" is a rate in bytes";
    assert!(refused.stderr.contains(why), "{}", refused.stderr);
    // Nothing was measured for it.
    assert!(!folder.path().join("unit").exists());

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
    let arguments = arguments(&["--disk", "data", "--every", "3s", "--for", "9s", "-o", "rounds"]);
    let ended = run(folder.path(), &arguments);
    let found = checks(folder.path(), "rounds");
    assert_eq!(found["disks"].as_array().expect("disks").len(), 3, "{}{}", ended.stdout, ended.stderr);
    assert_eq!(verdicts(&found, "spread.disk.random_read.q2").len(), 1, "{}{}", ended.stdout, ended.stderr);
    assert_eq!(verdicts(&found, "disk.sync").len(), 1, "only the last round is judged");
}

#[test]
fn rounds_end_at_their_time_even_if_each_takes_longer_than_the_interval() {
    let folder = Folder::new();
    folder.write("data/here", "");
    // A round takes nine tests of 50 ms at least: of the 20 starts in 2 s, five can be reached.
    let arguments = arguments(&["--disk", "data", "--every", "100ms", "--for", "2s", "-o", "rounds"]);
    let ended = run(folder.path(), &arguments);
    let rounds = checks(folder.path(), "rounds")["disks"].as_array().expect("disks").len();
    assert!((1..=5).contains(&rounds), "{rounds} {}{}", ended.stdout, ended.stderr);
}

#[test]
fn a_probe_that_is_lost_in_one_round_is_reached_again_in_the_next() {
    let folder = Folder::new();
    folder.write("data/here", "");
    // The shell in place of ssh becomes the probe: its number is that of the process to kill.
    folder.write("no-ssh", "#!/bin/sh\nfor last; do :; done\necho $$ >>pids\nexec sh -c \"$last\"\n");
    let ssh = folder.path().join("no-ssh");
    std::fs::set_permissions(&ssh, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("ours");
    let data = folder.path().join("data").display().to_string();
    let (ssh, program) = (ssh.display().to_string(), env!("CARGO_BIN_EXE_pgfathom"));
    let mut command = pgfathom(folder.path());
    let more = ["--ssh", "far", "--ssh-program", &ssh, "--program", program, "--disk", &data];
    command.args(arguments(&more)).args(["--every", "3s", "--for", "9s", "-o", "rounds"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command starts");
    let marker = folder.path().join("data/pgfathom-check/made-by-pgfathom");
    testing::wait_for("the first round", || marker.exists());
    let pids = std::fs::read_to_string(folder.path().join("pids")).expect("a probe");
    let pid = pids.lines().next().and_then(|pid| pid.parse().ok()).and_then(rustix::process::Pid::from_raw);
    rustix::process::kill_process(pid.expect("a number"), rustix::process::Signal::KILL).expect("it lives");
    let output = child.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let found = checks(folder.path(), "rounds");
    let disks = found["disks"].as_array().expect("disks");
    let is_refused: Vec<bool> = disks.iter().map(|disk| disk["refused"].is_string()).collect();
    assert!(
        is_refused.len() > 1 && is_refused[0] && is_refused[1..].iter().all(|one| !one),
        "{disks:#?} {text}"
    );
    assert_eq!(verdicts(&found, "disk.probe"), ["warn"], "{text}");
}

#[test]
fn a_directory_is_judged_by_the_file_system_behind_its_link() {
    let folder = Folder::new();
    let memory = Path::new("/dev/shm").join(format!("pgfathom-check-test-{}", std::process::id()));
    std::fs::create_dir(&memory).expect("a folder in memory");
    std::os::unix::fs::symlink(&memory, folder.path().join("data")).expect("a link");
    let ended = run(folder.path(), &arguments(&["--disk", "data", "--disk", "data", "-o", "checked"]));
    std::fs::remove_dir(&memory).expect("nothing is left in it");
    let found = checks(folder.path(), "checked");
    let disks = found["disks"].as_array().expect("disks");
    // What is named twice is measured once.
    assert_eq!(disks.len(), 1, "{disks:#?}");
    assert_eq!(disks[0]["real_directory"].as_str().map(Path::new), Some(memory.as_path()));
    assert_eq!(verdicts(&found, "mount.volatile"), ["fail"], "{}{}", ended.stdout, ended.stderr);
}

#[test]
fn fio_removes_what_a_killed_probe_left_and_nothing_else() {
    if let Err(lack) = testing::needs::program("fio") {
        return testing::skip(&lack);
    }
    let folder = Folder::new();
    let first = "pgfathom check: files of a disk probe, removed at its end";
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("a boot");
    let boot = boot.trim();
    let stat = std::fs::read_to_string("/proc/self/stat").expect("this process");
    let start = stat.rsplit_once(')').expect("a name").1.split_whitespace().nth(19).expect("a start");
    let pid = std::process::id();
    let scratch = folder.path().join("data/pgfathom-check");
    // Its process is gone: another start of the same number.
    folder.write("data/pgfathom-check/made-by-pgfathom", &format!("{first}\n{boot} {pid} {start}9\n"));
    folder.write("data/pgfathom-check/data", "left");
    let ended = run(folder.path(), &arguments(&["--disk", "data", "--tools", "installed", "-o", "cleaned"]));
    let output = format!("{}{}", ended.stdout, ended.stderr);
    assert_eq!(
        checks(folder.path(), "cleaned")["disks"][0]["tests"].as_array().map(Vec::len),
        Some(9),
        "{output}"
    );
    assert!(!scratch.exists(), "{output}");
    // It lives, or the folder is not ours: nothing is touched.
    for (name, marker) in
        [("living", format!("{first}\n{boot} {pid} {start}\n")), ("foreign", "mine\n".to_string())]
    {
        folder.write("data/pgfathom-check/made-by-pgfathom", &marker);
        run(folder.path(), &arguments(&["--disk", "data", "--tools", "installed", "-o", name]));
        assert_eq!(verdicts(&checks(folder.path(), name), "disk.probe"), ["fail"], "{name}");
        assert_eq!(std::fs::read_to_string(scratch.join("made-by-pgfathom")).expect("kept"), marker);
    }
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
fn data_directories_on_one_file_system_are_measured_once_and_share_the_memory() {
    let installation = installations().into_iter().next().expect("a PostgreSQL");
    let cluster = ThrowawayCluster::replicated(&installation, 1, "").expect("a primary and a standby");
    let folder = Folder::new();
    let node = |at: usize| {
        let server = cluster.node(at);
        format!(
            "[[node]]\nname = \"n{at}\"\nrole = \"{}\"\nconnection = \"host={} port={} user={} dbname=postgres\"\n",
            if at == 0 { "primary" } else { "standby" },
            server.socket_dir().display(),
            server.port(),
            lab::throwaway::SUPERUSER
        )
    };
    folder.write("cluster.toml", &format!("format = 1\nengine = \"postgres\"\n{}{}", node(0), node(1)));
    let ended = run(folder.path(), &arguments(&["--cluster", "cluster.toml", "-o", "checked"]));
    let output = format!("{}{}", ended.stdout, ended.stderr);
    let found = checks(folder.path(), "checked");
    let disks = found["disks"].as_array().expect("disks");
    assert_eq!(disks.len(), 2, "{output}");
    let tests = |at: usize| disks[at]["tests"].as_array().map(Vec::len);
    assert_eq!((tests(0), tests(1)), (Some(9), Some(0)), "{output}");
    assert_eq!(disks[1]["same_as"], disks[0]["directory"], "{output}");
    assert_eq!(verdicts(&found, "disk.probe"), ["note"], "{output}");
    // Only the primary answers what a primary knows, and the same of both nodes is one paragraph.
    assert_eq!(verdicts(&found, "state.standby_lag").len(), 1, "{output}");
    assert!(ended.stdout.contains("n0, n1: "), "{output}");
    let items = found["items"].as_array().expect("items");
    let buffers = items.iter().find(|item| item["check"] == "settings.shared_buffers").expect("an item");
    let claim = buffers["claim"].as_str().expect("a claim");
    assert!(claim.contains("for each of 2 servers"), "{claim}");
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
        command.args(long).args(["-o", name]).stdout(Stdio::null()).stderr(Stdio::piped());
        let child = command.spawn().expect("the command starts");
        testing::wait_for("the disk probe", || scratch.join("made-by-pgfathom").exists());
        child
    };
    let child = begin("interrupted");
    let begun = Instant::now();
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("the process lives");
    let ended = child.wait_with_output().expect("it ends");
    assert_eq!(ended.status.code(), Some(130));
    let words = String::from_utf8_lossy(&ended.stderr);
    assert!(words.contains("interrupted: the measurement in hand is given up"), "{words}");
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

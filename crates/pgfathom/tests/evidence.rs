//! Evidence that leaves the house: watched here, explained and reported elsewhere, without what was to stay.

use crate::support;
use lab::throwaway::{Throwaway, installations};
use record::RunReader;
use record::watched::Sampled;
use std::fs;
use std::path::Path;
use support::{Folder, run};

/// Stand in the watched system, and in no redacted bundle of it.
const SECRETS: [&str; 4] = ["acme_shop", "carol_of_acme", "set number = ", "4929000011112222"];

fn server() -> Throwaway {
    let installation = installations().into_iter().next().expect("a PostgreSQL");
    Throwaway::start(&installation, &[]).expect("a server")
}

/// All bytes below a folder, names included.
fn everything(folder: &Path) -> String {
    let mut text = String::new();
    for entry in fs::read_dir(folder).expect("readable").flatten() {
        text += &format!("{}\n", entry.file_name().to_string_lossy());
        text += &match entry.path().is_dir() {
            true => everything(&entry.path()),
            false => String::from_utf8_lossy(&fs::read(entry.path()).expect("readable")).into_owned(),
        };
    }
    text
}

#[test]
fn a_minute_of_a_customer_is_explained_elsewhere_and_tells_no_secret() {
    let (folder, server) = (Folder::new(), server());
    server.execute("create database acme_shop").expect("made");
    server.execute("create role carol_of_acme superuser login").expect("made");
    server
        .execute_in("acme_shop", "create table card_numbers (id int primary key, number text)")
        .expect("made");
    server.execute_in("acme_shop", "insert into card_numbers values (1, '4929000011112222')").expect("made");
    // Two sessions in each other's way are worth a line each second: with their statements.
    let uri = |user: &str| {
        format!("host={} port={} user={user} dbname=acme_shop", server.socket_dir().display(), server.port())
    };
    let connect = || {
        let spec =
            connect::ConnSpec { user: "carol_of_acme".into(), dbname: "acme_shop".into(), ..server.spec() };
        connect::control::connect(&spec).expect("connected")
    };
    let mut holder = connect();
    holder
        .batch_execute("begin; update card_numbers set number = '4929000011112222' where id = 1")
        .expect("held");
    let mut waiter = connect();
    let pid: i32 = waiter.query_one("select pg_backend_pid()", &[]).expect("answered").get(0);
    let waiting = std::thread::spawn(move || {
        // Ends with the server at the latest.
        let _ = waiter.batch_execute("update card_numbers set number = '4929000011112222' where id = 1");
    });
    let words = [
        "watch",
        "-T",
        "3",
        "--interval",
        "200ms",
        "--perf",
        "off",
        "-o",
        "seen",
        "--bundle=evidence.tar.gz",
    ];
    let target = uri("postgres");
    let arguments: Vec<&str> = words.into_iter().chain(["--redact", "hosts,sql", target.as_str()]).collect();
    let ended = run(folder.path(), &arguments);
    assert_eq!(ended.exit, Some(0), "{}", ended.stderr);
    let last: Vec<&str> = ended.stderr.lines().rev().take(2).collect();
    assert_eq!(last, ["run: seen", "bundle: evidence.tar.gz"]);
    holder.batch_execute("rollback").expect("ended");
    waiting.join().expect("ended");
    let here = everything(&folder.path().join("seen"));
    for secret in SECRETS {
        assert!(here.contains(secret), "the test would prove nothing: {secret}");
    }

    // Elsewhere: another folder, the archive alone.
    let elsewhere = Folder::new();
    fs::copy(folder.path().join("evidence.tar.gz"), elsewhere.path().join("evidence.tar.gz"))
        .expect("carried");
    let explained = run(elsewhere.path(), &["explain", "evidence.tar.gz"]);
    assert_eq!(explained.exit, Some(0), "{}", explained.stderr);
    assert!(explained.stderr.contains("unpacked: evidence"), "{}", explained.stderr);
    let reported = run(elsewhere.path(), &["report", "evidence.tar.gz"]);
    assert_eq!(reported.exit, Some(0), "{}", reported.stderr);
    assert!(!reported.stderr.contains("unpacked"), "once is enough: {}", reported.stderr);
    let unpacked = elsewhere.path().join("evidence");
    assert!(unpacked.join("report.html").is_file() && unpacked.join("findings.json").is_file());
    let there = everything(&unpacked);
    for secret in SECRETS {
        let around = there.find(secret).map(|at| &there[at.saturating_sub(200)..(at + 60).min(there.len())]);
        assert_eq!(around, None, "{secret}");
        assert!(!explained.stdout.contains(secret) && !reported.stdout.contains(secret), "{secret}");
    }
    let reader = RunReader::open(&unpacked).expect("a run directory");
    let is_waiter =
        |line: Sampled| matches!(line, Sampled::Block(line) if line.pid == u64::from(pid.unsigned_abs()));
    assert!(
        reader.samples.iter().filter_map(Sampled::parse).any(is_waiter),
        "which sessions block others is still there"
    );

    // A core dump is of a server process or of none.
    let refused = run(
        folder.path(),
        &[
            "watch",
            "-T",
            "200ms",
            "--perf",
            "off",
            "--no-host",
            "-o",
            "core",
            "--core",
            &std::process::id().to_string(),
            &target,
        ],
    );
    assert_eq!(refused.exit, Some(0), "what was watched is kept: {}", refused.stderr);
    assert!(refused.stderr.contains("not a server process of PostgreSQL"), "{}", refused.stderr);
}

#[test]
fn a_recorded_machine_takes_this_ones_place() {
    let (folder, server) = (Folder::new(), server());
    folder.write("tree/proc/stat", "cpu  1 0 1 8 0 0 0 0 0 0\ncpu0 1 0 1 8 0 0 0 0 0 0\nctxt 5\n");
    folder.write("tree/proc/sys/kernel/osrelease", "4.19.0-recorded\n");
    let uri = format!(
        "host={} port={} user=postgres dbname=postgres",
        server.socket_dir().display(),
        server.port()
    );
    let ended = run(
        folder.path(),
        &["watch", "-T", "500ms", "--interval", "100ms", "--sysroot", "tree", "-o", "seen", &uri],
    );
    assert_eq!(ended.exit, Some(0), "{}", ended.stderr);
    let reader = RunReader::open(&folder.path().join("seen")).expect("a run directory");
    let lines: Vec<Sampled> = reader.samples.iter().filter_map(Sampled::parse).collect();
    let releases: Vec<&str> = lines
        .iter()
        .filter_map(|line| match line {
            Sampled::Fact(fact) if fact.name == "release" => Some(fact.value.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(releases, ["4.19.0-recorded"]);
    assert!(lines.iter().any(|line| matches!(line, Sampled::Missing(missing) if missing.what == "pressure")));
}

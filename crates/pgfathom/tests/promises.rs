//! `prove` on clusters that are made for it: what is said, what the exit code is, and that nothing is left.

use crate::{mistakes, support};
use mistakes::{check, usage};
use support::{Folder, run};

#[test]
fn what_is_wrong_with_a_proof_is_said_before_it_begins() {
    check(
        &[
            usage(
                "prove hermitage --fault kill@1s",
                "prove hermitage runs scripts...",
                "prove bank --local single --fault kill@2s",
            ),
            usage(
                "prove skew --fault kill@1s",
                "prove skew runs two sessions...",
                "prove bank --local single --fault kill@2s",
            ),
            usage(
                "prove wide --fault kill@1s",
                "prove wide measures commits...",
                "prove ack --local single --fault kill@2s",
            ),
            usage(
                "prove ack --elle x.edn",
                "prove ack writes no history for --elle",
                "check, verreg and append",
            ),
            usage(
                "prove verreg --elle x.txt",
                "--elle: the notation of \"x.txt\" is unknown",
                ".edn or .json",
            ),
            usage("prove check h.bin --elle here.edn", "--elle: here.edn already exists", "new file"),
            usage(
                "prove verreg --isolation snapshot",
                "--isolation: \"snapshot\" is not an isolation level",
                "repeatable read",
            ),
        ],
        |folder| {
            folder.write("here.edn", "");
        },
    );
}

#[test]
fn random_transactions_are_written_down_and_checked() {
    let folder = Folder::new();
    let typed = "prove verreg --local single --isolation serializable -T 4 --elle load.edn -o load";
    let proved = run(folder.path(), &typed.split(' ').collect::<Vec<_>>());
    // Whether the control shows something in so short a time is up to the machine; that nothing is refuted is not.
    assert!(matches!(proved.exit, Some(0 | 8)), "{}\n{}", proved.stdout, proved.stderr);
    for words in [
        "verreg: random transactions do not refute SERIALIZABLE",
        "control (the same load at REPEATABLE",
        "share fresh",
    ] {
        let page: Vec<&str> = proved.stdout.split_whitespace().collect();
        assert!(page.join(" ").contains(words), "{words:?} is missing in:\n{}", proved.stdout);
    }
    for history in ["load/history.bin", "load.edn"] {
        let checked = run(folder.path(), &["prove", "check", history, "--level", "serializable"]);
        assert_eq!(checked.exit, Some(0), "{history}: {}\n{}", checked.stdout, checked.stderr);
    }
}

#[test]
fn promises_are_watched_on_clusters_made_for_it() {
    let folder = Folder::new();
    let kept = run(
        folder.path(),
        &[
            "prove",
            "ack",
            "--local",
            "single",
            "--fault",
            "kill@300ms,heal@400ms",
            "-T",
            "1",
            "--repeat",
            "2",
            "-o",
            "kept",
        ],
    );
    assert_eq!(kept.exit, Some(0), "{}\n{}", kept.stdout, kept.stderr);
    for words in [
        "kept",
        "ack: no acknowledged write is lost",
        "kill -9",
        "with 95 % confidence",
        "control (",
        "2 of 2",
        "(min / median / max of 2)",
    ] {
        assert!(kept.stdout.contains(words), "{words:?} is missing in:\n{}", kept.stdout);
    }
    let page = std::fs::read_to_string(folder.path().join("kept/report.html")).expect("a page");
    assert!(page.contains("id=\"promises\""));
    // What was not read in one snapshot is not said to be.
    assert!(
        !page.contains("in one snapshot")
            && page.contains("each SELECT separately, without a common snapshot")
    );
    faults_stand_where_they_happened(&folder.path().join("kept"));
    let sharded = run(folder.path(), &["prove", "bank", "--local", "sharded", "-T", "6", "-o", "sharded"]);
    assert_eq!(sharded.exit, Some(0), "{}\n{}", sharded.stdout, sharded.stderr);
    assert!(sharded.stdout.contains("by design") && sharded.stdout.contains("change:"), "{}", sharded.stdout);
    let strict =
        run(folder.path(), &["prove", "bank", "--local", "sharded", "-T", "6", "--strict", "-o", "strict"]);
    let is_seen = strict.stdout.contains("by design");
    assert_eq!(strict.exit, Some(if is_seen { 3 } else { 0 }), "{}\n{}", strict.stdout, strict.stderr);
    // A server alone cannot be cut off from others: that is an answer, and not a skipped test.
    let impossible = run(
        folder.path(),
        &["prove", "ack", "--local", "single", "--fault", "partition@1s", "-T", "1", "-o", "impossible"],
    );
    assert_eq!(impossible.exit, Some(8), "{}\n{}", impossible.stdout, impossible.stderr);
    assert!(
        impossible.stdout.contains("not possible here")
            && impossible.stdout.contains("there is no other node"),
        "{}",
        impossible.stdout
    );
    let healed = run(folder.path(), &["prove", "--heal"]);
    assert_eq!(healed.exit, Some(0), "{}\n{}", healed.stdout, healed.stderr);
    let more = run(folder.path(), &["prove", "--heal", "--local", "single"]);
    assert_eq!(more.exit, Some(1), "--heal stands alone: {}", more.stderr);
}

/// Two repeats of `kill@300ms,heal@400ms`: each has a load of its own, from whose begin the times of the plan count.
fn faults_stand_where_they_happened(dir: &std::path::Path) {
    let text = std::fs::read_to_string(dir.join("events.ndjson")).expect("events");
    let events: Vec<serde_json::Value> =
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let at = |event: &serde_json::Value| event["t_us"].as_u64().expect("a time");
    let phase = |name: &str| {
        let is_it = |event: &&serde_json::Value| event["kind"] == "phase" && event["phase"] == name;
        at(events.iter().find(is_it).unwrap_or_else(|| panic!("no phase {name:?}: {text}")))
    };
    for repeat in [1, 2] {
        let [begin, end] = ["load", "judge"].map(|word| phase(&format!("{word}, repeat {repeat}")));
        let mine = |event: &&serde_json::Value| event["kind"] == "fault" && event["repeat"] == repeat;
        let faults: Vec<&serde_json::Value> = events.iter().filter(mine).collect();
        let words: Vec<&str> = faults.iter().filter_map(|event| event["fault"].as_str()).collect();
        assert_eq!(words, ["kill", "heal", "heal"], "{text}");
        for (fault, planned_us) in std::iter::zip(&faults, [300_000, 400_000]) {
            // As late as the machine was busy, and never early; never after the end, when all of it was written down.
            assert!((begin + planned_us..end).contains(&at(fault)), "{begin} {end} {fault}");
            assert_eq!(fault["planned_s"].as_f64(), Some(planned_us as f64 / 1e6));
        }
        assert!(
            at(faults[1]) >= at(faults[0]) + faults[0]["duration_us"].as_u64().expect("it lasted"),
            "{text}"
        );
    }
    assert!(phase("load, repeat 2") >= phase("judge, repeat 1"));
}

/// Two proofs of one database would drop each other's tables: the second one is refused, with a word about the first, and changes nothing.
#[test]
fn a_second_proof_of_the_same_database_is_refused() {
    let installation = lab::throwaway::installations()
        .into_iter()
        .next()
        .expect("no PostgreSQL on this machine: make test installs it");
    let server = lab::throwaway::Throwaway::start(&installation, &[]).expect("the server starts");
    let folder = Folder::new();
    let spec = server.spec();
    let database = format!(
        "host={} port={} user={} dbname={}",
        server.socket_dir().display(),
        server.port(),
        spec.user,
        spec.dbname
    );
    let first = support::pgfathom(folder.path())
        .args(["prove", "ack", "-T", "6", "-o", "first", &database])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("the command starts");
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    let tables = "select count(*) from pg_class where relname = 'ack' and relkind = 'r'";
    while server.value(tables).expect("the server answers").as_deref() != Some("1") {
        assert!(std::time::Instant::now() < deadline, "the first proof never began");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let second = run(folder.path(), &["prove", "bank", "-T", "1", "-o", "second", &database]);
    assert_eq!(second.exit, Some(1), "{}{}", second.stdout, second.stderr);
    for words in
        ["another proof is running in this database", "pid ", "pgfathom prove", "hint: wait for its end"]
    {
        assert!(second.stderr.contains(words), "{words:?} is missing in:\n{}", second.stderr);
    }
    let first: support::Ended = first.wait_with_output().expect("it ends").into();
    assert_eq!(first.exit, Some(0), "{}{}", first.stdout, first.stderr);
    assert!(!first.stdout.contains("BROKEN"), "{}", first.stdout);
    let third = run(folder.path(), &["prove", "skew", "-T", "1", "-o", "third", &database]);
    assert_eq!(third.exit, Some(0), "{}{}", third.stdout, third.stderr);
}

#[test]
fn wrong_trials() {
    check(
        &[
            usage("prove hb --repeat 0", "--repeat: must be at least 1", "whole number"),
            usage("prove hb --repeat 5000", "--repeat: 5000 is more than 1000 repeats", "ten show"),
            usage(
                "prove hb --repeat 3 --fault kill@1s,promote@2s",
                "a promotion cannot be repeated on the same cluster",
                "--local replicated",
            ),
            usage("prove ack --fault partition", "--fault: \"partition\" has no time", "partition"),
            usage("prove ack --fault partition=3@1s", "--fault: partition takes no value", "heal"),
        ],
        |_| {},
    );
}

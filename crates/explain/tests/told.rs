//! What is told of a directory: where the clients' time went, the page on the terminal, and directories that are old, torn or foreign.

use crate::scene;
use explain::{Detail, decompose};
use record::finding::{CheckState, Window};
use scene::{Scene, disk, explain_folder, vacuum_wait, wait};
use serde_json::json;
use std::fs;

#[test]
fn the_parts_of_client_time_add_up_to_it_with_the_remainder_last() {
    let findings = Scene::healthy().explain();
    let time = &findings.client_time[0];
    assert_eq!((time.step.as_str(), time.transactions, time.response_us_mean), ("run", 540_000, 8000.0));
    let sum: f64 = time.parts.iter().map(|part| part.share).sum();
    assert!((sum - 1.0).abs() < 1e-9, "{time:#?}");
    let share = |name: &str| {
        time.parts.iter().find(|part| part.name == name).map(|part| (part.share * 1000.0).round())
    };
    // 15 sessions on CPU at 3000 transactions a second are 5 ms of 8; a round trip of 200 us; 50 us of lag.
    assert_eq!(share("CPU"), Some(625.0));
    assert_eq!(share("IO"), Some(250.0));
    assert_eq!(share(decompose::ROUND_TRIPS), Some(25.0));
    assert_eq!(share(decompose::LAG), Some(6.0));
    assert_eq!(time.parts.last().map(|part| part.name.as_str()), Some(decompose::UNEXPLAINED));
    assert_eq!(share(decompose::UNEXPLAINED), Some(94.0));
}

#[test]
fn without_a_round_trip_or_waits_less_is_said_and_not_more() {
    let mut scene = Scene::healthy();
    scene.without(&explain::rule::Need::Field("clock", "error_us"));
    let time = scene.explain().client_time.remove(0);
    assert!(time.parts.iter().all(|part| part.name != decompose::ROUND_TRIPS));
    assert!(time.notes.iter().any(|note| note.contains("not measured")), "{:?}", time.notes);
    scene.drop_source("wait");
    let time = scene.explain().client_time.remove(0);
    assert_eq!(time.parts.len(), 2, "a server that is never seen at work has no waits: {:#?}", time.parts);
    scene.missing("wait");
    assert!(scene.explain().client_time.is_empty(), "without a look at the waits nothing is decomposed");
}

/// What the scheduler says of our sessions on each node and of the client's threads.
fn scheduled(scene: &mut Scene) {
    for (node, _) in scene::NODES {
        // 20 sessions of which 10 are read: together 1 s of CPU and 2 s without one in each second.
        let ours = json!({"host": "here", "node": node, "who": "sessions"});
        let took = json!({"tasks": 20, "looked": 10, "run_us": 500_000, "wait_us": 1_000_000, "turns": 900});
        scene.set("schedule", ours, took);
    }
    let client = json!({"host": "here", "who": "client"});
    scene.set(
        "schedule",
        client,
        json!({"tasks": 1, "looked": 1, "run_us": 300_000, "wait_us": 600_000, "turns": 1500}),
    );
}

#[test]
fn the_schedulers_account_replaces_what_sessions_were_seen_computing() {
    let mut scene = Scene::healthy();
    scheduled(&mut scene);
    let time = scene.explain().client_time.remove(0);
    let us = |name: &str| time.parts.iter().find(|part| part.name == name).map(|part| part.us.round());
    // 3 nodes, 1 s a second at 3000 transactions a second: 1 ms each.
    assert_eq!(us(decompose::SERVER_CPU), Some(1000.0), "{time:#?}");
    assert_eq!(us(decompose::SERVER_QUEUE), Some(2000.0));
    // 100 us of CPU and 200 us without, two replies a turn: 200 and 300 at least. Busy in nine tenths of the time: 7155 us at most. In no
    // process of the server were 8000 - 50 - 1000 - 2000 - 2000 - 2000 us.
    assert_eq!(us(decompose::CLIENT), Some(950.0), "{time:#?}");
    assert_eq!(us(decompose::UNEXPLAINED), Some(0.0));
    // Seen computing were 5 ms: 2 ms more than ours were counted for, by somebody else.
    assert_eq!(us("CPU"), Some(2000.0));
    assert_eq!(us(decompose::ROUND_TRIPS), None, "on one machine there is no way between them");
    assert!(time.notes.iter().any(|note| note.contains("share a host")), "{:?}", time.notes);
    let sum: f64 = time.parts.iter().map(|part| part.share).sum();
    assert!((sum - 1.0).abs() < 1e-9, "{time:#?}");
    assert_eq!(time.parts.last().map(|part| part.name.as_str()), Some(decompose::UNEXPLAINED));
    assert!(!time.notes.iter().any(|note| note.contains("waited for a CPU for")), "{:?}", time.notes);
    // The same sessions from a client on another machine: the way is between them.
    scene.drop_source("schedule");
    scheduled(&mut scene);
    scene.set("schedule", json!({"host": "here", "who": "client"}), json!({"host": "elsewhere"}));
    let time = scene.explain().client_time.remove(0);
    let trips = time.parts.iter().find(|part| part.name == decompose::ROUND_TRIPS).map(|part| part.us);
    assert_eq!(trips, Some(200.0), "{time:#?}");
}

#[test]
fn an_empty_round_trip_is_better_than_the_clocks_error() {
    let mut scene = Scene::healthy();
    for (node, _) in scene::NODES {
        scene.set("server", json!({"node": node}), json!({"rtt_us": 50, "asked_us": 2000}));
    }
    let time = scene.explain().client_time.remove(0);
    let trips = time.parts.iter().find(|part| part.name == decompose::ROUND_TRIPS).map(|part| part.us);
    assert_eq!(trips, Some(50.0));
}

#[test]
fn a_starved_server_explains_why_so_little_is_explained() {
    let starved = |findings: &record::Findings| {
        findings.client_time[0].notes.iter().any(|note| note.contains("waited for a CPU for 40 %"))
    };
    assert!(!starved(&Scene::healthy().explain()));
    let mut scene = Scene::healthy();
    for (node, host) in scene::NODES {
        let process = json!({"host": host, "node": node, "pid": 100, "backend": "client backend"});
        scene.set("backend", process, json!({"run_queue_us": 400_000}));
    }
    assert!(starved(&scene.explain()));
}

#[test]
fn overlapping_parts_leave_no_negative_remainder_and_a_note_with_the_error() {
    let mut scene = Scene::healthy();
    scene.set("wait", wait("n1", "Lock", "tuple"), json!({"sessions": 20}));
    let time = scene.explain().client_time.remove(0);
    let rest = time.parts.last().expect("a remainder");
    assert_eq!((rest.name.as_str(), rest.share, rest.us), (decompose::UNEXPLAINED, 0.0, 0.0));
    assert!(time.parts.iter().all(|part| part.share >= 0.0), "{:?}", time.parts);
    assert!(time.notes.iter().any(|note| note.contains("together are too large by")), "{:?}", time.notes);
}

#[test]
fn the_terminal_page_ranks_and_gives_evidence_on_demand() {
    let mut scene = Scene::healthy();
    scene.set("wait", wait("n1", "LWLock", "WALWrite"), json!({"sessions": 9}));
    scene.fact(json!({"host": "h3"}), "kernel", "release", "6.12.1-amd64");
    let findings = scene.explain();
    let short = explain::text(&findings, Detail::Short);
    let first = short.lines().find(|line| line.starts_with("  1 ")).expect("a finding");
    assert!(first.starts_with("  1 HIGH") && first.contains("wait for the WAL"), "{short}");
    // Where the time went comes first, node by node.
    let (at_time, at_finding) = (short.find("time of all sessions at n3: "), short.find(first));
    assert!(short.starts_with("time of all sessions at n1: ") && at_time < at_finding, "{short}");
    for part in [
        "WAL-01, proof: discriminating counter",
        "of client time",
        "#t=0-180",
        "try: ",
        "$ pg_test_fsync",
        "NOTE",
        "client time of run",
        "unexplained",
        "checked, nothing found: ",
    ] {
        assert!(short.contains(part), "{part} is missing in:\n{short}");
    }
    assert!(!short.contains("because: "), "{short}");
    assert!(
        short.is_ascii() && short.lines().all(|line| line.len() <= 200 && line == line.trim_end()),
        "{short}"
    );
    let full = explain::text(&findings, Detail::Full);
    for part in ["because: ", "not: ", "see: https://", "nothing found\n", "IO-01"] {
        assert!(full.contains(part), "{part} is missing in:\n{full}");
    }
    let nothing = explain::text(&Scene::healthy().explain(), Detail::Short);
    assert!(nothing.contains("\nnothing found\n") && nothing.contains("cannot tell: 0 rules"), "{nothing}");
}

#[test]
fn the_time_of_all_sessions_is_an_answer_where_no_rule_has_one() {
    let mut scene = Scene::healthy();
    scene.event(
        1,
        record::event::QUERY,
        "",
        json!({"query_id": "1", "text": "select v\n  from t where k = $1"}),
    );
    let statement = json!({"node": "n1", "database": "db", "query_id": "1"});
    scene.set("statement", statement, json!({"total_ms": 42_000.0, "wal_bytes": 0}));
    let findings = scene.explain();
    assert!(findings.findings.is_empty(), "{:#?}", findings.findings);
    let short = explain::text(&findings, Detail::Short);
    for part in [
        "time of all sessions at n1: 6.00 active on average over 180 s",
        "  on a CPU                     50 %     3.00  counted\n",
        "  unaccounted",
        "70 %  statement 1, 1,000 calls/s, 4.20 ms, 1 row, 4.30 blocks, 0.30 of them read",
        "select v from t where k = $1",
    ] {
        assert!(short.contains(part), "{part} is missing in:\n{short}");
    }
    assert!(!short.contains("note: waits are divided"), "{short}");
    assert!(
        explain::text(&findings, Detail::Full)
            .contains("note: waits are divided in proportion to 180 samples")
    );
    let brief = explain::brief(&findings, explain::Sampling::On);
    assert!(
        brief[0].starts_with("time: n1: 6.0 active sessions: 50 % on a CPU, ")
            && brief[0].ends_with("; 70 % in statement 1"),
        "{brief:?}"
    );
    // A server that does nothing is called idle.
    for (node, _) in scene::NODES {
        scene.set("server", json!({"node": node}), json!({"active_ms": 0.0}));
    }
    scene.drop_source("wait").drop_source("schedule").missing("nothing");
    let idle = explain::text(&scene.explain(), Detail::Short);
    assert!(idle.contains("the server is idle"), "{idle}");
}

/// The findings of a rule, as severity and claim.
fn claims<'a>(findings: &'a record::Findings, rule: &str) -> Vec<(record::finding::Severity, &'a str)> {
    let all = findings.findings.iter().filter(|finding| finding.rule == rule);
    all.map(|finding| (finding.severity, finding.claim.as_str())).collect()
}

#[test]
fn an_idle_holder_of_a_lock_is_the_first_cause() {
    let mut scene = Scene::healthy();
    scene.set("wait", wait("n1", "Lock", "transactionid"), json!({"sessions": 9}));
    for pid in 71..80 {
        let waiter = json!({"node": "n1", "root": "70", "pid": pid});
        scene.set("block", waiter, json!({"wait_s": 12.0, "root_state": "idle in transaction"}));
    }
    let findings = scene.explain();
    let first = &findings.findings[0];
    assert_eq!(
        (first.rule.as_str(), first.severity),
        ("LCK-01", record::finding::Severity::High),
        "{findings:#?}"
    );
}

#[test]
fn a_server_that_is_gone_one_that_was_restarted_and_one_that_froze_are_three_things() {
    use record::event::RESTART;
    use record::finding::Severity;
    let node = || json!({"node": "n1"});
    let away = || json!({"node": "n1", "what": record::event::AWAY});
    let started = json!({"node": "n1", "what": record::event::STARTED});
    let mut scene = Scene::healthy();
    scene.event(100, RESTART, "n1 went away: no answer", away()).event(
        104,
        RESTART,
        "n1 was started",
        started,
    );
    let restarted = scene.explain();
    let found = claims(&restarted, "OBS-01");
    assert!(matches!(found[..], [(Severity::Low, claim)] if claim.contains("restarted 1 time")), "{found:?}");

    // It was away for so long that its users have seen it, and its log has the reason.
    let mut scene = Scene::healthy();
    scene.run.steps.retain(|step| step.verb != "prove");
    let stopped = json!({"node": "n1", "severity": "LOG"});
    scene
        .event(100, RESTART, "n1 went away: no answer", away())
        .event(100, record::event::SERVER_LOG, "received fast shutdown request", stopped)
        .event(104, RESTART, "n1 was started", json!({"node": "n1", "what": record::event::STARTED}));
    scene.during("server", node(), 106..=160);
    let stopped = scene.explain();
    let found = claims(&stopped, "OBS-01");
    assert!(
        matches!(found[..], [(Severity::Medium, claim)] if claim.contains("away for 4 s: received fast shutdown")),
        "{found:?}"
    );

    // One process crashed: all sessions ended, but the server did not.
    let mut scene = Scene::healthy();
    scene.event(100, RESTART, "n1 went away: no answer", away());
    let crashed = scene.explain();
    let found = claims(&crashed, "OBS-01");
    assert!(matches!(found[..], [(Severity::Low, claim)] if claim.contains("came back 1 time")), "{found:?}");

    let mut scene = Scene::healthy();
    scene.run.steps.retain(|step| step.verb != "prove");
    scene.event(100, RESTART, "n1 went away: no answer", away());
    scene.during("server", node(), 1..=100);
    let gone = scene.explain();
    let found = claims(&gone, "OBS-01");
    assert!(
        found.iter().any(
            |(severity, claim)| *severity == Severity::High && claim.contains("unreachable for the last")
        ),
        "{found:?}"
    );
    assert!(found.iter().all(|(_, claim)| !claim.contains("restarted")), "{found:?}");
}

#[test]
fn almost_no_data_is_not_a_clean_bill() {
    let mut findings = Scene::healthy().explain();
    for checked in findings.checked.iter_mut().skip(2) {
        checked.state = CheckState::CannotTell;
    }
    let text = explain::text(&findings, Detail::Short);
    assert!(text.contains("cannot tell: only 2 of "), "{text}");
    assert!(!text.contains("nothing found\n"), "{text}");
}

#[test]
fn nothing_that_others_wrote_steers_the_terminal_or_forges_a_line() {
    let mut findings = Scene::healthy().explain();
    let hostile = "\u{1b}]0;owned\u{7}\u{1b}[2J\nforged\r\u{9b}31m";
    let time = record::finding::NodeTime {
        node: hostile.to_string(),
        seconds: 10.0,
        active: 2.0,
        parts: vec![record::finding::NodePart {
            name: hostile.to_string(),
            sessions: 2.0,
            share: 1.0,
            is_counted: false,
            woken: None,
            events: vec![(hostile.to_string(), 1.0)],
        }],
        statements: vec![record::finding::StatementTime {
            query_id: hostile.to_string(),
            text: hostile.to_string(),
            share: 0.5,
            ..Default::default()
        }],
        notes: vec![hostile.to_string()],
        ..Default::default()
    };
    findings.node_time = vec![time];
    findings.findings.push(record::Finding {
        claim: hostile.to_string(),
        evidence: vec![hostile.to_string()],
        remedy: record::finding::Remedy { text: hostile.to_string(), commands: vec![hostile.to_string()] },
        ..Default::default()
    });
    let mut text = explain::text(&findings, Detail::Full);
    text.extend(explain::brief(&findings, explain::Sampling::On).into_iter().map(|line| line + "\n"));
    assert!(text.chars().all(|c| c == '\n' || c.is_ascii() && !c.is_ascii_control()), "{text:?}");
    assert!(text.contains("owned") && !text.lines().any(|line| line.starts_with("forged")), "{text}");
}

#[test]
fn torn_partial_and_foreign_directories_are_explained_as_far_as_they_go() {
    let mut scene = Scene::healthy();
    scene.set("wait", wait("n1", "LWLock", "WALWrite"), json!({"sessions": 9}));
    let folder = scene.write();
    // Killed: no end, a torn last line, and lines of a program that nobody knows.
    let samples = folder.0.join("samples.ndjson");
    let mut text = fs::read_to_string(&samples).expect("reads");
    text.push_str(
        "{\"t_us\":5,\"source\":\"weather\",\"rain_mm\":{\"deep\":[1]}}\n{\"t_us\":181000000,\"sou",
    );
    fs::write(&samples, text).expect("writes");
    fs::remove_file(folder.0.join("events.ndjson")).expect("was there");
    fs::write(folder.0.join("run.json"), "{\"schema_version\": 1, \"state\": \"running\"}").expect("writes");
    let findings = explain_folder(&folder.0);
    assert!(findings.findings.iter().any(|finding| finding.rule == "WAL-01"));
    for part in ["events.ndjson is missing", "incomplete", "did not end"] {
        assert!(
            findings.missing.iter().any(|sentence| sentence.contains(part)),
            "{part}: {:?}",
            findings.missing
        );
    }
    let unknown = findings.checked.iter().find(|checked| checked.rule == "DIST-02").expect("was asked");
    assert_eq!(unknown.state, CheckState::CannotTell);
    // Written twice, read back, and not in its own way.
    findings.write(&folder.0).expect("writes");
    assert_eq!(explain_folder(&folder.0), findings, "findings.json changes nothing");
    fs::remove_file(folder.0.join("run.json")).expect("was there");
    assert!(explain_folder(&folder.0).findings.iter().any(|finding| finding.rule == "WAL-01"));
    fs::remove_file(&samples).expect("was there");
    let _ = fs::remove_dir_all(folder.0.join("stacks"));
    fs::remove_file(folder.0.join("findings.json")).expect("was there");
    let error = explain::explain(&folder.0, "test").expect_err("nothing of a run is left");
    assert!(error.hint().is_some(), "{error}");
}

#[test]
fn windows_of_a_condition_that_comes_and_goes_are_its_own() {
    let mut scene = Scene::healthy();
    let keys = wait("n1", "LWLock", "WALWrite");
    scene.set("wait", keys.clone(), json!({"sessions": 60})).during("wait", keys, 35..=48);
    scene.drop_source("disk");
    let findings = scene.explain();
    let finding = findings.findings.iter().find(|finding| finding.rule == "WAL-01").expect("found");
    // IO:WALSync is there all the time: the window is where either of them was seen.
    assert!(
        finding
            .windows
            .iter()
            .any(|window| window.overlap_us(Window::new(34_000_000, 48_000_000)) == 14_000_000)
    );
    assert!(finding.missing.iter().any(|sentence| sentence.contains("disk")), "{:?}", finding.missing);
}

#[test]
fn a_client_that_stood_still_is_told_from_a_target_that_hung() {
    let stalled = |findings: &record::Findings| -> Vec<String> {
        let claims = findings.findings.iter().filter(|finding| finding.rule == "GEN-04");
        claims.map(|finding| finding.claim.clone()).collect()
    };
    // The process was stopped: one line for 13 seconds, with the work of one.
    let mut scene = Scene::healthy();
    let (before, after) = (json!({"step": "run"}), json!({"step": "run", "again": true}));
    let line = json!({"phase": "measure", "scheduled": 3000, "started": 3000, "transactions": 3000, "sessions": 24, "response_us_mean": 8000.0, "response_us_p99": 15_000});
    scene.during("client", before, 1..=60).set("client", after.clone(), line).during(
        "client",
        after.clone(),
        73..=180,
    );
    scene.vary("client", after, "interval_us", |second| if second == 73 { 13e6 } else { 1e6 });
    let told = stalled(&scene.explain());
    assert!(told.len() == 1 && told[0].contains("the client itself stopped"), "{told:?}");
    // A client that tells of its zeros was alive; what it waited for meanwhile decides, not what it waits for usually.
    let mut scene = Scene::healthy();
    scene.vary("client", json!({"step": "run"}), "transactions", |second| {
        if (60..80).contains(&second) { 0.0 } else { 3000.0 }
    });
    let lock = wait("n1", "Lock", "relation");
    scene.set("wait", lock.clone(), json!({"sessions": 8})).during("wait", lock, 60..=79);
    let findings = scene.explain();
    let finding = findings.findings.iter().find(|finding| finding.rule == "GEN-04").expect("a stall");
    assert!(finding.claim.contains("the target hung"), "{}", finding.claim);
    assert!(
        finding.evidence.iter().any(|told| told.contains("most in Lock:relation")),
        "{:?}",
        finding.evidence
    );
    // Nobody looked in those seconds: no side can be named.
    scene.drop_source("wait").drop_source("server");
    let told = stalled(&scene.explain());
    assert!(told.len() == 1 && told[0].contains("the server was not sampled"), "{told:?}");
}

/// R0's storm: it slept for its cost limit, somebody took the limit away, and the WAL was next. Whichever phase was longer, both are told.
#[test]
fn a_vacuum_that_slept_and_then_waited_for_the_wal_has_two_causes() {
    let phases = |slept_s: u64| {
        let mut scene = Scene::healthy();
        for (kind, event, seconds) in
            [("Timeout", "VacuumDelay", 1..=slept_s), ("LWLock", "WALWrite", slept_s + 1..=scene.seconds)]
        {
            let keys = vacuum_wait("n1", kind, event);
            scene.set("wait", keys.clone(), json!({"sessions": 3})).during("wait", keys, seconds);
        }
        let findings = scene.explain();
        let found = |rule: &str| findings.findings.iter().find(|finding| finding.rule == rule).cloned();
        (found("VAC-01"), found("VAC-02"))
    };
    for slept_s in [40, 140] {
        let (Some(slept), Some(waited)) = phases(slept_s) else { panic!("a phase of {slept_s} s is lost") };
        let edge_us = slept_s * 1_000_000;
        assert!(slept.windows.iter().all(|window| window.to_us <= edge_us), "{slept:#?}");
        assert!(waited.windows.iter().all(|window| window.from_us >= edge_us), "{waited:#?}");
        assert!(slept.numbers["delay_share"] >= 0.5 && waited.numbers["wal_share"] >= 0.5);
    }
    let (slept, waited) = phases(140);
    assert!(slept.is_some());
    let told = waited.expect("found").evidence.join(" ");
    assert!(told.contains("slept for its cost limit (VAC-01)"), "{told}");
    let (slept, waited) = phases(170);
    assert!(slept.is_some() && waited.is_none(), "ten seconds are no phase");
}

#[test]
fn wal_and_tables_on_two_partitions_share_a_disk_all_the_same() {
    let told = |wal: &str| {
        let mut scene = Scene::healthy();
        scene.set("wait", wait("n1", "LWLock", "WALWrite"), json!({"sessions": 9}));
        let host = json!({"host": "h1"});
        scene.fact(host.clone(), "disk", "n1 pgdata lies on", "nvme0n1,nvme1n1").fact(
            host,
            "disk",
            "n1 wal lies on",
            wal,
        );
        let findings = scene.explain().findings;
        findings.into_iter().find(|finding| finding.rule == "WAL-05").map(|finding| finding.claim)
    };
    assert_eq!(told("nvme2n1"), None);
    let claim = told("nvme1n1").expect("they share it");
    assert!(claim.contains("two file systems of one disk (nvme1n1)"), "{claim}");
}

#[test]
fn a_data_directory_behind_a_link_is_a_mount_point_if_the_machine_says_so() {
    let told = |is_point: &str| {
        let mut scene = Scene::healthy();
        scene.fact(json!({"node": "n1"}), "server", "data_directory", "/var/lib/pg").fact(
            json!({"host": "h1"}),
            "mount",
            "n1 pgdata is a mount point",
            is_point,
        );
        let findings = scene.explain().findings;
        findings.into_iter().find(|finding| finding.rule == "FS-04").map(|finding| finding.claim)
    };
    assert_eq!(told("no"), None);
    assert_eq!(told("yes").as_deref(), Some("n1: the data directory /var/lib/pg is a mount point itself"));
}

#[test]
fn waits_for_the_wal_are_known_by_their_old_and_their_new_names() {
    for event in ["WALSync", "WalSync", "WalWrite", "WalInitWrite"] {
        let mut scene = Scene::healthy();
        scene.set("wait", wait("n1", "IO", event), json!({"sessions": 20}));
        let keys = vacuum_wait("n1", "IO", event);
        scene.set("wait", keys, json!({"sessions": 3}));
        let findings = scene.explain().findings;
        for rule in ["WAL-01", "VAC-02"] {
            assert!(findings.iter().any(|finding| finding.rule == rule), "{rule} does not know {event}");
        }
    }
    let mut scene = Scene::healthy();
    scene.set("wait", wait("n1", "IO", "WalsenderTimelineHistoryRead"), json!({"sessions": 20}));
    assert!(scene.explain().findings.iter().all(|finding| finding.rule != "WAL-01"));
}

/// A disk that took what it needed and then stays as it is does not fill, however a line through all of it may slope.
#[test]
fn a_disk_that_has_stopped_filling_is_not_full_soon() {
    let told = |falls_until_s: u64| {
        let mut scene = Scene::healthy();
        let keys = json!({"host": "h1", "mount": "/wal"});
        scene.vary("mount", keys, "free_bytes", move |second| 9e11 - second.min(falls_until_s) as f64 * 2e9);
        let findings = scene.explain().findings;
        findings.into_iter().find(|finding| finding.rule == "CAP-03").map(|finding| finding.claim)
    };
    assert_eq!(told(60), None);
    let claim = told(180).expect("it is full in minutes");
    assert!(claim.contains("full in"), "{claim}");
}

/// A server writes in waves: between two of them the slowest disk answers at once, and its rate is none.
#[test]
fn a_slow_disk_with_moments_of_rest_is_slow_and_at_its_limit() {
    let mut scene = Scene::healthy();
    let keys = disk("h1", "nvme3n1");
    let rests = |second: u64| second.is_multiple_of(9);
    scene.set("disk", keys.clone(), json!({"queue": 20.0}));
    for (field, busy, rest) in [("writes", 300.0, 2.0), ("write_await_ms", 150.0, 0.25)] {
        scene.vary("disk", keys.clone(), field, move |second| {
            if rests(second) { rest } else { busy + (second % 2) as f64 }
        });
    }
    let findings = scene.explain().findings;
    for rule in ["IO-01", "IO-05", "IO-06"] {
        let found = findings.iter().find(|finding| finding.rule == rule).unwrap_or_else(|| panic!("{rule}"));
        assert!(found.claim.contains("nvme3n1"), "{}", found.claim);
        assert!(found.windows.iter().any(|window| window.length_us() > 100_000_000), "{found:#?}");
    }
}

/// From far away the server seems to do nothing at all: no session is ever seen at work, and all of the time is on the way.
#[test]
fn round_trips_to_a_server_that_is_never_seen_at_work_are_found() {
    let mut scene = Scene::healthy();
    scene.drop_source("wait");
    for (node, _) in scene::NODES {
        scene.set("clock", json!({"node": node}), json!({"error_us": 4_000}));
    }
    let findings = scene.explain().findings;
    assert!(findings.iter().any(|finding| finding.rule == "NET-03"), "{findings:#?}");
}

#[test]
fn peaks_of_seconds_at_checkpoints_are_not_hidden_by_peaks_of_milliseconds() {
    let scene_with = |tall: &'static [u64]| {
        let mut scene = Scene::healthy();
        for second in [13, 47, 71, 120, 161] {
            let more = json!({"node": "n1", "reason": "wal"});
            scene.event(second, record::event::CHECKPOINT, "checkpoint starting: wal", more);
        }
        // As measured on a braked disk: 1 ms, 3 s with each checkpoint, and 4 to 13 ms now and then.
        scene.vary("client", json!({"step": "run"}), "response_us_p99", move |second| match second {
            second if tall.contains(&second) => 3_000_000.0,
            5 | 30 | 62 | 86 | 101 | 140 | 150 | 175 => 4_500.0,
            _ => 1_000.0,
        });
        scene.explain().findings.into_iter().find(|finding| finding.rule == "WAL-02")
    };
    let found = scene_with(&[14, 15, 48, 49, 73, 74, 121, 163, 164]).expect("WAL-02");
    assert!(found.claim.contains("5 of 5 latency peaks"), "{}", found.claim);
    assert_eq!(scene_with(&[25, 26, 58, 59, 92, 110, 135, 136, 172]), None, "tall peaks elsewhere");
}

#[test]
fn claims_name_the_reason_and_not_only_what_takes_the_time() {
    let all = crate::fire::surplus::TOLD.iter().chain(crate::fire::fit::TOLD).chain(crate::fire::each::TOLD);
    for (rule, change, words) in all.chain(crate::fire::alike::TOLD).chain(crate::fire::hidden::TOLD) {
        let claim = crate::fire::surplus::claim_of(rule, *change);
        assert!(claim.contains(words), "{rule}: {claim}");
    }
}

#[test]
fn what_a_failed_transaction_refuses_is_no_error_of_its_own() {
    let all = crate::fire::fit::failing();
    assert_eq!(all.len(), 1, "{all:?}");
    assert!(all[0].contains("prepared statement of that name"), "{all:?}");
}

#[test]
fn standbys_that_are_there_are_not_missing() {
    let claim = crate::fire::fit::enough_standbys();
    assert!(claim.as_str().is_some_and(|claim| !claim.contains("must confirm")), "{claim}");
}

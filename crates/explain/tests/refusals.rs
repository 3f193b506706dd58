//! What a server cannot do, by lines of its log that are no errors of a statement; and errors that are rare, but end long statements.

use crate::scene::{Scene, wait};
use record::event;
use record::finding::{Finding, Findings, Severity};
use serde_json::{Value, json};

fn of<'a>(found: &'a Findings, rule: &str) -> Option<&'a Finding> {
    found.findings.iter().find(|finding| finding.rule == rule)
}

/// A line of the log of n1, so many times at each of these seconds.
fn logged(scene: &mut Scene, seconds: &[u64], message: &str, more: Value) {
    let mut fields = json!({"node": "n1", "severity": "LOG"});
    fields.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    for second in seconds {
        scene.event(*second, event::SERVER_LOG, message, fields.clone());
    }
}

const FORK: &str = "could not fork new process for connection: Resource temporarily unavailable";

#[test]
fn processes_that_the_system_refuses_are_refused_connections_and_the_limit_is_named() {
    let mut scene = Scene::healthy();
    logged(&mut scene, &[5, 6, 7], FORK, json!({"repeated": 18}));
    let found = scene.explain();
    let finding = of(&found, "SES-04").expect("refused");
    assert_eq!(finding.severity, Severity::High);
    assert!(
        finding.claim.contains("57 processes") && !finding.claim.contains("pids.max"),
        "{}",
        finding.claim
    );

    let group = json!({"host": "h1", "node": "n1"});
    scene.set("cgroup", group.clone(), json!({"path": "/pg", "pids_max": 42, "pids": 42, "pids_refused": 3}));
    let found = scene.explain();
    let finding = of(&found, "SES-04").expect("refused");
    for words in ["57 processes", "pids.max", "42"] {
        assert!(finding.claim.contains(words), "{words}: {}", finding.claim);
    }
    assert!(format!("{:?}", finding.remedy).contains("TasksMax"), "{finding:?}");

    // The counter of the group is enough where no log is read; a limit that refuses nothing is none.
    let mut scene = Scene::healthy();
    scene.set("cgroup", group.clone(), json!({"path": "/pg", "pids_max": 42, "pids": 42, "pids_refused": 3}));
    assert!(of(&scene.explain(), "SES-04").is_some());
    scene.set("cgroup", group, json!({"path": "/pg", "pids_max": 42, "pids": 40, "pids_refused": 0}));
    assert!(of(&scene.explain(), "SES-04").is_none());
}

#[test]
fn open_files_that_the_system_refuses_are_named_with_whose_limit_it_is() {
    let claim = |message: &str| {
        let mut scene = Scene::healthy();
        logged(&mut scene, &[5], message, json!({"repeated": 40}));
        of(&scene.explain(), "SES-04").map(|finding| finding.claim.clone()).unwrap_or_default()
    };
    let own = claim("could not accept new connection: Too many open files");
    assert!(own.contains("LimitNOFILE"), "{own}");
    let all = claim("could not accept new connection: Too many open files in system");
    assert!(all.contains("fs.file-max"), "{all}");
    assert!(claim("out of file descriptors: Too many open files; release and retry").contains("LimitNOFILE"));
    let memory = claim("could not fork worker process: Cannot allocate memory");
    assert!(memory.contains("memory"), "{memory}");
    // A text that a client chose.
    assert_eq!(
        claim(
            "statement: select 'could not fork new process for connection: Resource temporarily unavailable'"
        ),
        ""
    );
}

#[test]
fn what_the_servers_processes_report_is_named_when_it_comes_often() {
    let claim = |message: &str, times: u64| {
        let mut scene = Scene::healthy();
        logged(&mut scene, &[5], message, json!({"repeated": times}));
        of(&scene.explain(), "TXN-13").map(|finding| finding.claim.clone()).unwrap_or_default()
    };
    let packets = claim("invalid length of startup packet", 600);
    assert!(packets.contains("does not speak"), "{packets}");
    assert_eq!(claim("invalid length of startup packet", 5), "");
    let gone = claim("could not receive data from client: Connection reset by peer", 600);
    assert!(gone.contains("without ending"), "{gone}");
    assert_eq!(claim("could not receive data from client: Connection reset by peer", 20), "");
    assert!(claim("pg_hba.conf was not reloaded", 0).contains("not in force"));
    assert_eq!(claim("unexpected message of an extension", 900), "");
}

const EXPORT: &str = "SELECT json_agg(d) FROM contract_document d JOIN customers c ON c.id = d.customer_id";

/// An export of one session that takes most of the session time and never ends otherwise than with this error.
fn export(scene: &mut Scene, message: &str, more: &Value, seconds: &[u64]) {
    let mut fields = json!({"severity": "ERROR", "statement": EXPORT});
    fields.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    logged(scene, seconds, message, fields);
    let text = json!({"node": "n1", "query_id": "77", "text": EXPORT, "user": "etl", "from": "sessions"});
    scene.event(1, event::QUERY, "a statement seen for the first time", text);
    let mut at_work = wait("n1", "CPU", "CPU");
    at_work["query_id"] = Value::from("77");
    scene.set("wait", at_work, json!({"sessions": 3}));
}

#[test]
fn a_rare_error_that_ends_a_long_statement_is_weighed_by_the_time_it_wastes() {
    let too_long =
        json!({"detail": "Cannot enlarge string buffer containing 1073741822 bytes by 1 more bytes."});
    for (message, more, words) in [
        ("out of memory", too_long.clone(), "1 GB"),
        (
            "string buffer exceeds maximum allowed length (1073741823 bytes)",
            json!({"sqlstate": "54000"}),
            "1 GB",
        ),
        ("invalid memory alloc request size 1073741824", json!({"sqlstate": "XX000"}), "1 GB"),
        (
            "temporary file size exceeds temp_file_limit (1048576kB)",
            json!({"sqlstate": "53400"}),
            "temp_file_limit",
        ),
        ("division by zero", json!({"sqlstate": "22012"}), "division by zero"),
    ] {
        let mut scene = Scene::healthy();
        export(&mut scene, message, &more, &[20, 40, 60]);
        let found = scene.explain();
        let finding = of(&found, "TXN-13").unwrap_or_else(|| panic!("{message}"));
        assert!(finding.severity >= Severity::Medium, "{message}: {:?}", finding.severity);
        assert!(finding.claim.contains(words) && finding.claim.contains("json_agg"), "{}", finding.claim);
        assert!(finding.claim.contains("% of the session time"), "{}", finding.claim);
    }
    // Another statement has the time; once is no habit; and a statement whose executions succeed wastes what those take that fail.
    let mut scene = Scene::healthy();
    export(&mut scene, "out of memory", &too_long, &[]);
    logged(&mut scene, &[20, 40], "out of memory", json!({"severity": "ERROR", "statement": "SELECT 1"}));
    assert!(of(&scene.explain(), "TXN-13").is_none());
    let mut scene = Scene::healthy();
    export(&mut scene, "division by zero", &json!({"sqlstate": "22012"}), &[20]);
    assert!(of(&scene.explain(), "TXN-13").is_none());
    let mut scene = Scene::healthy();
    export(&mut scene, "division by zero", &json!({"sqlstate": "22012"}), &[20, 40]);
    scene.set(
        "statement",
        json!({"node": "n1", "database": "db", "query_id": "77"}),
        json!({"calls": 300, "total_ms": 3_000.0, "rows": 300}),
    );
    assert!(of(&scene.explain(), "TXN-13").is_none());
}

#[test]
fn a_standby_that_is_refused_is_not_to_be_stopped() {
    let mut scene = Scene::healthy();
    let fields = json!({"severity": "FATAL", "sqlstate": "53300", "repeated": 900});
    logged(
        &mut scene,
        &[5],
        "number of requested standby connections exceeds max_wal_senders (currently 1)",
        fields,
    );
    let found = scene.explain();
    let finding = of(&found, "TXN-13").expect("a finding");
    assert!(finding.claim.contains("all walsenders are in use"), "{}", finding.claim);
    assert!(finding.remedy.text.contains("do not stop"), "{}", finding.remedy.text);
}

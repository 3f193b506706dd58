//! Run directories as files: who may read them, what a strange one does to its reader, and what is said of causes.

use crate::support;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use support::{Folder, pgfathom, run};

/// A run of three seconds, with a name that would act on a terminal everywhere where a stranger's words can stand.
const ESCAPE: &str = "\u{1b}[2J\u{9b}31m\u{202e}\r\u{7}";

fn write_run(folder: &Folder) {
    let run = json!({
        "schema_version": 1, "run_id": format!("r{ESCAPE}"), "verb": "run", "name": format!("n{ESCAPE}"), "state": "finished",
        "started": {"wall_us": 1_763_633_700_000_000u64, "monotonic_us": 77}, "argv": ["pgfathom", format!("run{ESCAPE}")],
        "target": {"engine": "postgres", "server_version": format!("15{ESCAPE}"), "connection": format!("c{ESCAPE}")},
        "steps": [{"key": "run-a", "verb": "run", "name": format!("a{ESCAPE}"), "state": "finished", "start_us": 0, "end_us": 3_000_000,
            "verdict": {"valid": true, "notes": [format!("note{ESCAPE}")]},
            "errors": [{"sqlstate": "40001", "count": 1, "first_message": format!("message{ESCAPE}")}],
            "summary": {"verb": "run", "name": format!("a{ESCAPE}"), "valid": true, "duration_s": 3.0, "transactions": 10, "tps": 3.3, "findings": []}}],
        "verdict": {"valid": true, "notes": [format!("note{ESCAPE}")]},
        "summary": {"verb": "run", "valid": true, "duration_s": 3.0, "transactions": 10, "tps": 3.3, "findings": []},
    });
    folder.write("r/run.json", &run.to_string());
    let mut samples = String::from("{\"schema\":\"pgfathom.samples\",\"schema_version\":1}\n");
    for second in 1..=3u64 {
        let line = json!({"t_us": second * 1_000_000, "interval_us": 1_000_000, "source": "host", "host": format!("h{ESCAPE}"), "cores": 2,
            "cpu_user_pct": 20.0, "cpu_steal_pct": 33.0});
        samples += &format!("{line}\n");
    }
    let line = json!({"t_us": 1, "source": "missing", "node": format!("n{ESCAPE}"), "what": format!("w{ESCAPE}"), "why": "y", "lost": "l"});
    folder.write("r/samples.ndjson", &format!("{samples}{line}\n"));
    let event = json!({"t_us": 5, "kind": "error", "message": format!("application{ESCAPE}"), "node": format!("n{ESCAPE}")});
    folder.write("r/events.ndjson", &format!("{{\"schema_version\":1}}\n{event}\n"));
}

fn is_safe(text: &str) -> bool {
    !text.contains(['\u{1b}', '\r', '\u{7}', '\u{9b}', '\u{202e}'])
}

#[test]
fn names_in_a_foreign_run_directory_do_not_act_on_the_terminal_or_the_page() {
    let folder = Folder::new();
    write_run(&folder);
    for arguments in [
        &["explain", "-v", "r"][..],
        &["explain", "--format", "json", "r"],
        &["report", "r"],
        &["report", "--format", "json", "r"],
        &["report", "r", "--compare", "0-1,1-3"],
        &["report", "\u{1b}[2Jnowhere\u{202e}"],
    ] {
        let ended = run(folder.path(), arguments);
        assert!(
            is_safe(&ended.stdout) && is_safe(&ended.stderr),
            "{arguments:?}: {:?} {:?}",
            ended.stdout,
            ended.stderr
        );
        if arguments.contains(&"json") {
            let value: Value = serde_json::from_str(&ended.stdout).expect("JSON");
            assert!(value.to_string().contains("findings"), "{value}");
        }
    }
    let page = fs::read_to_string(folder.path().join("r/report.html")).expect("a page");
    assert!(is_safe(&page.replace("\r\n", "\n")) && page.contains("\\u202e"));
}

#[test]
fn findings_are_null_where_nobody_looked_and_those_of_explain_where_somebody_did() {
    let folder = Folder::new();
    write_run(&folder);
    let findings = |folder: &Folder| {
        let ended = run(folder.path(), &["report", "--format", "json", "r"]);
        let value: Value = serde_json::from_str(&ended.stdout).expect("JSON");
        value["findings"].clone()
    };
    assert_eq!(findings(&folder), Value::Null);
    let explained = run(folder.path(), &["explain", "--format", "json", "r"]);
    let explained: Value = serde_json::from_str(&explained.stdout).expect("JSON");
    let told = findings(&folder);
    let claims = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().map(|finding| finding["claim"].to_string()).collect()
    };
    assert!(told.is_array(), "{told}");
    assert_eq!(claims(&told), claims(&explained["findings"]));
    // A third of the machine was stolen: nobody calls that valid without a word.
    let text = run(folder.path(), &["explain", "r"]).stdout;
    assert!(text.contains("validity:") && text.contains("33 %") && text.contains("steal"), "{text}");
}

#[test]
fn what_no_run_has_written_ends_with_its_name_and_1() {
    let valid = r#"{"schema_version":1,"verb":"run","state":"finished"}"#;
    for (name, content, part) in [
        ("run.json", r#"{"schema_version":1,"verb":"#, "run.json is not valid"),
        ("run.json", r#"{"schema_version":1,"steps":7}"#, "run.json is not valid"),
        ("run.json", r#"{"schema_version":2}"#, "has schema version 2"),
        ("samples.ndjson", "{\"schema_version\":3}\n", "has schema version 3"),
        ("latency.hlog", "noise\nmore noise\n\u{1}\u{2}\n", "not a log of HdrHistogram"),
    ] {
        let folder = Folder::new();
        folder.write("r/run.json", valid).write(&format!("r/{name}"), content);
        for verb in ["explain", "report"] {
            let ended = run(folder.path(), &[verb, "r"]);
            assert_eq!((ended.exit, ended.stdout.as_str()), (Some(1), ""), "{verb} {name}");
            assert!(ended.stderr.contains(part) && ended.stderr.contains("hint: "), "{}", ended.stderr);
        }
    }
    // A killed run has no run.json that is half of one: it has none, or the one before.
    let folder = Folder::new();
    folder.write("r/samples.ndjson", "{\"schema_version\":1}\n{\"t_us\":5,\"sour");
    for verb in ["explain", "report"] {
        assert_eq!(run(folder.path(), &[verb, "r"]).exit, Some(0), "{verb}");
    }
}

#[test]
fn links_and_pipes_of_a_foreign_directory_lead_nowhere() {
    let folder = Folder::new();
    write_run(&folder);
    folder.write("precious", "precious");
    let path = |name: &str| folder.path().join("r").join(name);
    for name in ["report.html", "findings.json"] {
        symlink(folder.path().join("precious"), path(name)).expect("linked");
    }
    assert_eq!(run(folder.path(), &["explain", "r"]).exit, Some(0));
    assert_eq!(run(folder.path(), &["report", "r"]).exit, Some(0));
    assert_eq!(fs::read_to_string(folder.path().join("precious")).expect("there"), "precious");
    assert!(fs::symlink_metadata(path("report.html")).expect("there").is_file());
    fs::remove_file(path("events.ndjson")).expect("there");
    symlink("/etc/passwd", path("events.ndjson")).expect("linked");
    let ended = run(folder.path(), &["report", "r"]);
    assert!(ended.exit == Some(1) && ended.stderr.contains("symbolic link"), "{}", ended.stderr);
    fs::remove_file(path("events.ndjson")).expect("there");
    let made = std::process::Command::new("mkfifo").arg(path("events.ndjson")).status().expect("mkfifo");
    assert!(made.success());
    let ended = run(folder.path(), &["explain", "r"]);
    assert!(ended.exit == Some(1) && ended.stderr.contains("pipe"), "{}", ended.stderr);
}

/// Two transactions: one appends, the other reads it.
const HISTORY: &str = "{:type :invoke, :f :txn, :value [[:append 1 1]], :process 0, :index 0}
{:type :ok, :f :txn, :value [[:append 1 1]], :process 0, :index 1}
{:type :invoke, :f :txn, :value [[:r 1 nil]], :process 1, :index 2}
{:type :ok, :f :txn, :value [[:r 1 [1]]], :process 1, :index 3}
";

fn modes(folder: &Path, found: &mut Vec<(String, u32)>) {
    for entry in fs::read_dir(folder).expect("readable").flatten() {
        let data = entry.metadata().expect("there");
        found.push((entry.path().display().to_string(), data.mode() & 0o7777));
        if data.is_dir() {
            modes(&entry.path(), found);
        }
    }
}

#[test]
fn a_run_directory_is_its_owners_alone_and_explained_at_its_end() {
    for mask in ["000", "022", "277"] {
        let folder = Folder::new();
        folder.write("history.edn", HISTORY);
        let history = folder.path().join("history.edn");
        let program = pgfathom(folder.path()).get_program().to_owned();
        // The shell sets the mask; the command is the same.
        let mut command = pgfathom(folder.path());
        let shell = format!("umask {mask}; exec \"$0\" prove check \"$1\" -o r --format json");
        let environment: Vec<_> =
            command.get_envs().map(|(name, value)| (name.to_owned(), value.map(ToOwned::to_owned))).collect();
        command = std::process::Command::new("sh");
        command.current_dir(folder.path()).args(["-c", &shell]).arg(&program).arg(&history);
        for (name, value) in environment {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let output = command.output().expect("it starts");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let directory = folder.path().join("r");
        let mode = fs::metadata(&directory)
            .unwrap_or_else(|error| panic!("{mask}: {error}: {text}"))
            .permissions()
            .mode();
        assert_eq!(mode & 0o7777, 0o700, "{mask}");
        let mut found = vec![];
        modes(&directory, &mut found);
        assert!(found.len() >= 6, "{found:?}");
        for (name, mode) in found {
            assert_eq!(
                mode,
                if Path::new(&name).is_dir() { 0o700 } else { 0o600 },
                "{name} with umask {mask}"
            );
        }
        let summary: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert!(summary["findings"].is_array(), "{summary}");
        assert!(directory.join("findings.json").is_file(), "{text}");
        // This one has no server, so nothing could have been sampled.
        assert!(!text.contains("findings: "), "{text}");
    }
}

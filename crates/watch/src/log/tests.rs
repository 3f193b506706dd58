mod forged;
mod languages;
mod raised;

use super::*;
use record::Clock;
use serde_json::{Value, json};
use std::io::Write;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("pgfathom-log-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A clock whose run began an hour ago, so that entries of the last minutes are within the run.
fn tick() -> Tick {
    let now = Clock::start();
    let hour_us = 3_600_000_000;
    let clock =
        Clock { monotonic_us: now.monotonic_us.saturating_sub(hour_us), wall_us: now.wall_us - hour_us };
    Tick { now_us: clock.now_us(), clock, cadence_us: 1_000_000 }
}

/// The present second in a zone that is `hours` ahead of UTC, as the server writes it.
fn now_in(hours: i64) -> String {
    let wall_us = record::clock::wall_us() as i64 + hours * 3_600_000_000;
    record::clock::rfc3339(wall_us as u64).get(..19).expect("ASCII").replace('T', " ")
}

fn follower(path: &Path, format: Format, prefix: &str) -> Follower {
    let source = Source { path: path.to_path_buf(), format, collected_in: None };
    let style = Style { line_prefix: prefix.to_string(), language: "C".to_string(), is_terse: false };
    Follower::new(Place::Node("n1".to_string()), source, style)
}

fn read(follower: &mut Follower) -> Vec<event::Event> {
    let (mut batch, mut reported) = (Batch::default(), Recorded::default());
    follower.read(&tick(), 0, &mut reported, &mut batch);
    batch.events
}

fn append(path: &Path, text: &str) {
    let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path).expect("opens");
    file.write_all(text.as_bytes()).expect("writes");
}

const MESSAGES: [&str; 7] = [
    "checkpoint starting: wal",
    "checkpoint complete: wrote 3042 buffers (18.6%), wrote 2 SLRU buffers; 0 WAL file(s) added, 1 removed, 4 recycled; write=2.153 s, sync=0.021 s, \
        total=2.201 s; sync files=12, longest=0.009 s, average=0.002 s; distance=81915 kB, estimate=81915 kB; lsn=0/5000, redo lsn=0/4000",
    "process 77 still waiting for ShareLock on transaction 749 after 1000.123 ms",
    "temporary file: path \"base/pgsql_tmp/pgsql_tmp77.0\", size 14000000",
    "checkpoints are occurring too frequently (3 seconds apart)",
    "automatic aggressive vacuum to prevent wraparound of table \"shop.public.orders\": index scans: 2\npages: 0 removed, 4425 remain, 4425 scanned (100.00% \
        of total)\ntuples: 100 removed, 900 remain, 50 are dead but not yet removable\nremovable cutoff: 745, which was 12 XIDs old when operation \
        ended\nsystem usage: CPU: user: 0.05 s, system: 0.00 s, elapsed: 1.50 s",
    "checkpoint",
];

/// Whether sessions write it; other processes serve no client.
fn is_of_session(message: &str) -> bool {
    message.starts_with("process ") || message.starts_with("temporary file")
}

/// The expected events of the messages above, in every format.
fn check_messages(events: &[event::Event]) {
    let kinds: Vec<&str> = events.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(kinds, ["checkpoint", "checkpoint", "lock_wait", "temp_file", "autovacuum", "server_log"]);
    let field = |index: usize, name: &str| events[index].more.get(name).cloned().unwrap_or(Value::Null);
    assert_eq!((field(0, "reason"), events[0].duration_us), (json!("wal"), None));
    assert_eq!((field(1, "reason"), events[1].duration_us), (json!("wal"), Some(2_201_000)));
    assert_eq!(
        (field(1, "buffers"), field(1, "write_ms"), field(1, "longest_sync_ms")),
        (json!(3042.0), json!(2153.0), json!(9.0))
    );
    assert_eq!(
        (field(2, "pid"), field(2, "mode"), field(2, "wait_ms"), field(2, "acquired")),
        (json!(77), json!("ShareLock"), json!(1000.123), json!(false))
    );
    assert_eq!(field(3, "bytes"), json!(14_000_000));
    assert_eq!(
        (field(4, "relation"), field(4, "wraparound"), field(4, "index_scans")),
        (json!("shop.public.orders"), json!(true), json!(2.0))
    );
    assert_eq!(
        (field(4, "rows_removed"), field(4, "rows_not_removable"), field(4, "cutoff_age_xids")),
        (json!(100.0), json!(50.0), json!(12.0))
    );
    assert_eq!(events[4].duration_us, Some(1_500_000));
    assert!(events[5].message.contains("too frequently"));
    // All in this second, whatever the time zone of the server.
    let now_us = tick().now_us;
    for event in events.iter().filter(|event| event.duration_us.is_none()) {
        assert!(now_us.abs_diff(event.t_us) < 60_000_000, "{event:?} at {now_us}");
    }
}

/// A role writes lines of any kind into its statement; the server begins each of them with a tab.
#[test]
fn lines_that_a_statement_makes_up_are_none_of_the_server() {
    let time = "2024-05-06 07:08:09.123 UTC";
    let log = format!(
        "{time} [71] ERROR:  division by zero\n{time} [71] STATEMENT:  select 1/0 /*\n\t{time} [4711] PANIC:  could not write to file\n\
         \t{time} [4711] ERROR:  deadlock detected\n\t{time} [4711] LOG:  x */;\n{time} [71] LOG:  next\n"
    );
    let mut splitter = super::parse::Splitter::new(Format::Stderr, "%m [%p] ");
    let mut entries = splitter.push(log.as_bytes());
    entries.extend(splitter.finish());
    let seen: Vec<_> = entries.iter().map(|entry| (entry.pid, entry.severity.as_str())).collect();
    assert_eq!(seen, [(Some(71), "ERROR"), (Some(71), "LOG")]);
    assert!(entries[0].statement.ends_with("LOG:  x */;"), "{entries:?}");
}

#[test]
fn plain_logs_are_read_with_several_prefixes_and_zones() {
    for (index, prefix) in
        ["%m [%p] ", "%t [%p]: [%l-1] user=%u,db=%d ", "%m [%p] %q%u@%d ", "%p|%n|"].iter().enumerate()
    {
        let folder = Folder::new(&format!("plain{index}"));
        let path = folder.0.join("log");
        append(&path, "what stood there before\n");
        let mut follower = follower(&path, Format::Stderr, prefix);
        assert_eq!(read(&mut follower), []);
        let time = now_in(3);
        for message in MESSAGES {
            let is_of_session = is_of_session(message);
            let head = match index {
                0 => format!("{time}.500 MSK [77] "),
                1 if is_of_session => format!("{time} +03 [77]: [5-1] user=bob,db=shop "),
                1 => format!("{time} +03 [77]: [5-1] user=,db= "),
                2 if is_of_session => format!("{time}.500 MSK [77] bob@shop "),
                2 => format!("{time}.500 MSK [77] "),
                _ => format!("77|{}.000|", record::clock::wall_us() / 1_000_000),
            };
            append(&path, &format!("{head}LOG:  {}\n", message.replace('\n', "\n\t")));
        }
        check_messages(&read(&mut follower));
    }
}

#[test]
fn csv_and_json_logs_say_the_same() {
    let folder = Folder::new("formats");
    for format in [Format::Csv, Format::Json] {
        let path = folder.0.join(format.name());
        append(&path, "");
        let mut follower = follower(&path, format, "");
        assert_eq!(read(&mut follower), []);
        let time = format!("{}.500 CET", now_in(1));
        for message in MESSAGES {
            let quoted = message.replace('"', "\"\"");
            let (names, backend) = match is_of_session(message) {
                true => (["\"bob\"", "\"shop\"", "\"[local]\""], "client backend"),
                false => (
                    [""; 3],
                    if message.starts_with("automatic") { "autovacuum worker" } else { "checkpointer" },
                ),
            };
            let [user, database, host] = names;
            let line = match format {
                Format::Csv => format!(
                    "{time},{user},{database},77,{host},6638a1b2.4d,5,\"idle\",{time},3/5,0,LOG,00000,\"{quoted}\",,,,,,,,,\"\",\"{backend}\",,0\n"
                ),
                _ => format!(
                    "{}\n",
                    json!({"timestamp": time, "pid": 77, "error_severity": "LOG", "state_code": "00000", "message": message})
                ),
            };
            append(&path, &line);
        }
        check_messages(&read(&mut follower));
    }
}

#[test]
fn a_deadlock_keeps_its_detail_and_errors_are_counted() {
    let folder = Folder::new("errors");
    let path = folder.0.join("log");
    append(&path, "");
    let mut follower = follower(&path, Format::Stderr, "%m [%p] ");
    read(&mut follower);
    let head = |pid: u32| format!("{}.000 UTC [{pid}] ", now_in(0));
    append(
        &path,
        &format!(
            "{0}ERROR:  deadlock detected\n{0}DETAIL:  Process 5 waits for ShareLock on transaction 7; blocked by process 6.\n\tProcess 6 waits for ShareLock \
                on transaction 8; blocked by process 5.\n\tProcess 5: {1}\n\tProcess 6: delete from t\n{0}HINT:  See server log for query \
                details.\n{0}STATEMENT:  update t set v = 1\n",
            head(5),
            "x".repeat(900)
        ),
    );
    for number in 0..3 {
        append(
            &path,
            &format!(
                "{0}ERROR:  duplicate key value violates unique constraint \"k{number}\"\n{1}STATEMENT:  not of this message\n",
                head(7),
                head(8)
            ),
        );
    }
    append(&path, &format!("{}FATAL:  terminating connection due to administrator command\n", head(9)));
    append(&path, &format!("{}LOG:  statement: select 1\n", head(9)));
    let events = read(&mut follower);
    let kinds: Vec<&str> = events.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(kinds, ["deadlock", "server_log", "server_log"]);
    // The last line has a statement as well, behind a long one.
    assert!(events[0].more["detail"].as_str().expect("text").ends_with("Process 6: delete from t"));
    assert_eq!(events[0].more["statement"], "update t set v = 1");
    let repeated = events.iter().find_map(|event| event.more.get("repeated")).expect("one was repeated");
    assert_eq!(repeated, 2);
}

#[test]
fn a_vacuum_that_was_cancelled_has_its_table() {
    let folder = Folder::new("cancelled");
    let context = "while scanning block 7 of relation \"public.orders\"\nautomatic vacuum of table \"shop.public.orders\"";
    for format in [Format::Stderr, Format::Csv, Format::Json] {
        let path = folder.0.join(format.name());
        append(&path, "");
        let mut follower = follower(&path, format, "%m [%p] ");
        assert_eq!(read(&mut follower), []);
        let time = format!("{}.000 UTC", now_in(0));
        let line = |sqlstate: &str, message: &str, context: &str| match format {
            Format::Stderr => {
                let context = context.replace('\n', "\n\t");
                let supplement = if context.is_empty() {
                    String::new()
                } else {
                    format!("{time} [77] CONTEXT:  {context}\n")
                };
                format!("{time} [77] ERROR:  {message}\n{supplement}")
            }
            Format::Csv => format!(
                "{time},,,77,,6638a1b2.4d,1,,{time},3/5,0,ERROR,{sqlstate},\"{message}\",,,,,\"{}\",,,,\"\",\"autovacuum worker\",,0\n",
                context.replace('"', "\"\"")
            ),
            Format::Json => format!(
                "{}\n",
                json!({"timestamp": time, "pid": 77, "error_severity": "ERROR", "state_code": sqlstate, "message": message, "context": context})
            ),
        };
        append(&path, &line("57014", "canceling statement due to statement timeout", ""));
        append(&path, &line("57014", "canceling autovacuum task", context));
        append(&path, &line("57014", "canceling autovacuum task", context));
        let events = read(&mut follower);
        let found: Vec<_> = events.iter().filter(|event| event.more.contains_key("relation")).collect();
        assert_eq!((events.len(), found.len()), (2, 1), "{format:?}: {events:?}");
        assert_eq!(found[0].message, "canceling autovacuum task");
        assert_eq!(
            (&found[0].more["relation"], &found[0].more["repeated"]),
            (&json!("shop.public.orders"), &json!(1))
        );
    }
}

#[test]
fn truncated_and_replaced_files_are_followed() {
    let folder = Folder::new("rotation");
    let path = folder.0.join("log");
    let line = |words: &str| format!("{}.000 UTC [5] FATAL:  {words}\n", now_in(0));
    append(&path, &line("old"));
    let mut follower = follower(&path, Format::Stderr, "%m [%p] ");
    assert_eq!(read(&mut follower), []);
    // In the middle of a line, then the rest.
    let text = line("first");
    append(&path, &text[..20]);
    assert_eq!(read(&mut follower), []);
    append(&path, &text[20..]);
    assert_eq!(read(&mut follower)[0].message, "first");
    // Truncated in place.
    std::fs::write(&path, "").expect("truncates");
    append(&path, &line("second"));
    assert_eq!(read(&mut follower)[0].message, "second");
    // Moved away, still written to; then a new one in its place.
    let moved = folder.0.join("log.1");
    std::fs::rename(&path, &moved).expect("moves");
    append(&moved, &line("third"));
    assert_eq!(read(&mut follower)[0].message, "third");
    append(&moved, &line("fourth"));
    append(&path, &line("fifth"));
    let messages: Vec<String> = read(&mut follower).into_iter().map(|event| event.message).collect();
    assert_eq!(messages, ["fifth", "fourth"].map(String::from), "both files, kinds in order of their words");
    // Gone for good, the name too.
    std::fs::remove_file(&path).expect("removes");
    assert_eq!(read(&mut follower), []);
}

#[test]
fn a_collected_log_goes_on_in_the_file_that_the_server_names() {
    let folder = Folder::new("collected");
    let data = folder.0.join("data");
    std::fs::create_dir_all(data.join("log")).expect("a folder");
    let line = |words: &str| {
        json!({"timestamp": format!("{}.0 UTC", now_in(0)).replace(".0 ", ".000 "), "pid": 1, "error_severity": "FATAL", "message": words}).to_string() + "\n"
    };
    std::fs::write(data.join(CURRENT_LOGFILES), "stderr log/a.log\njsonlog log/a.json\n").expect("writes");
    append(&data.join("log/a.json"), "");
    let wanted = Wanted {
        is_local: true,
        data_directory: Some(&data),
        destination: "stderr, jsonlog",
        collects: true,
        file_of: &|_| None,
    };
    let source = find(&wanted).expect("both are listed, JSON has more fields");
    assert_eq!((source.format, source.path.clone()), (Format::Json, data.join("log/a.json")));
    let mut follower = Follower::new(Place::Node("n1".to_string()), source, Style::default());
    read(&mut follower);
    append(&data.join("log/a.json"), &line("last of a"));
    append(&data.join("log/b.json"), &line("first of b"));
    std::fs::write(data.join(CURRENT_LOGFILES), "stderr log/b.log\njsonlog log/b.json\n").expect("writes");
    let messages: Vec<String> = read(&mut follower).into_iter().map(|event| event.message).collect();
    assert_eq!(messages.len(), 2, "{messages:?}");
}

#[test]
fn a_log_that_cannot_be_followed_has_a_reason() {
    let wanted = |is_local, data: Option<&'static str>, destination: &'static str| {
        find(&Wanted {
            is_local,
            data_directory: data.map(Path::new),
            destination,
            collects: false,
            file_of: &|_| None,
        })
        .expect_err("nothing is there")
    };
    assert!(wanted(false, Some("/nowhere"), "stderr").contains("another host"));
    assert!(wanted(true, None, "stderr").contains("pg_monitor"));
    assert!(wanted(true, Some("/nowhere"), "syslog").contains("syslog"));
    assert!(wanted(true, Some("/nowhere"), "stderr").contains("postmaster.pid"));
}

#[test]
fn messages_that_functions_raise_are_counted_by_function_and_not_kept() {
    let folder = Folder::new("raised");
    let path = folder.0.join("log");
    append(&path, "");
    let mut follower = follower(&path, Format::Stderr, "%m [%p] ");
    read(&mut follower);
    let line = |severity: &str, text: &str| format!("{}.000 UTC [7] {severity}:  {text}\n", now_in(0));
    let raised = |context: &str| {
        line("LOG", "old 41, new 42") + &line("CONTEXT", context) + &line("STATEMENT", "UPDATE t SET n = 42")
    };
    let mut text = String::new();
    for _ in 0..3 {
        text += &raised("PL/pgSQL function s.noted(integer, text) line 3 at RAISE");
    }
    text += &raised("PL/pgSQL-Funktion s.noted(integer, text) Zeile 3 bei RAISE");
    // An error is an event of its own, and a statement inside of a function is no message of it.
    text += &(line("ERROR", "not now") + &line("CONTEXT", "PL/pgSQL function s.checked() line 2 at RAISE"));
    text += &raised("SQL statement \"SELECT 1\"\nPL/pgSQL function s.other() line 3 at RAISE");
    text += &line("LOG", "a message of the server");
    append(&path, &text);
    let events = read(&mut follower);
    let raised: Vec<_> = events.iter().filter(|event| event.kind == event::RAISED).collect();
    let [raised] = raised[..] else { panic!("{events:#?}") };
    let field = |name: &str| raised.more.get(name).cloned().unwrap_or(Value::Null);
    assert_eq!((field("function"), field("severity")), (json!("s.noted(integer, text)"), json!("LOG")));
    assert_eq!((field("repeated"), field("messages")), (json!(4), json!(7)));
    assert_eq!(field("log_bytes"), json!(text.len()));
    assert!(!format!("{events:?}").contains("new 42"), "{events:#?}");
}

#[test]
fn why_a_connection_is_refused_stands_in_the_detail_alone() {
    let folder = Folder::new("refused");
    let path = folder.0.join("log");
    append(&path, "");
    let mut follower = follower(&path, Format::Stderr, "%m [%p] ");
    read(&mut follower);
    let line = |severity: &str, text: &str| format!("{}.000 UTC [7] {severity}:  {text}\n", now_in(0));
    let refused = line("FATAL", "password authentication failed for user \"hr\"")
        + &line("DETAIL", "User \"hr\" has an expired password.\n\tConnection matched pg_hba.conf line 3");
    let error = line("ERROR", "duplicate key value violates unique constraint \"k\"")
        + &line("DETAIL", "Key (name)=(Eve) already exists.");
    append(&path, &(refused + &error + &line("LOG", "next")));
    let events = read(&mut follower);
    let detail = |begin: &str| {
        let event = events.iter().find(|event| event.message.starts_with(begin)).expect("an event");
        event.more.get("detail").and_then(Value::as_str).unwrap_or_default().to_string()
    };
    assert!(detail("password").contains("has an expired password"), "{events:#?}");
    assert_eq!(detail("duplicate"), "", "it has the values of a row");
}

#[test]
fn what_the_servers_own_processes_report_is_counted_and_what_clients_write_is_not() {
    let folder = Folder::new("reported");
    let path = folder.0.join("log");
    append(&path, "");
    let mut follower = follower(&path, Format::Stderr, "%m [%p] ");
    read(&mut follower);
    let head = format!("{}.000 UTC [7] ", now_in(0));
    let fork = "could not fork new process for connection: Resource temporarily unavailable";
    let other = "could not accept new connection: Too many open files";
    append(
        &path,
        &format!(
            "{head}LOG:  {fork}\n{head}LOG:  {fork}\n{head}LOG:  {other}\n{head}LOG:  statement: select '{fork}'\n{head}LOG:  {fork}\n\
             {head}CONTEXT:  PL/pgSQL function f() line 1 at RAISE\n{head}ERROR:  out of memory\n\
             {head}DETAIL:  Cannot enlarge string buffer containing 1073741822 bytes by 1 more bytes.\n{head}ERROR:  duplicate key value\n\
             {head}DETAIL:  Key (mail)=(a@b) already exists.\n{head}LOG:  next\n"
        ),
    );
    let events = read(&mut follower);
    let of = |message: &str| events.iter().find(|event| event.message == message);
    assert_eq!(of(fork).expect("read").times(), 2.0, "{events:?}");
    assert_eq!(of(other).expect("read").more["severity"], json!("LOG"));
    let detail = |message: &str| of(message).expect("read").more.get("detail").cloned();
    assert!(
        detail("out of memory").is_some_and(|detail| detail.to_string().contains("1073741822")),
        "{events:?}"
    );
    assert_eq!(detail("duplicate key value"), None, "it has a value of a user");
}

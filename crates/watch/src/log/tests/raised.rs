//! What functions of users write into the log is no line of the server, in each format.

use super::*;

/// A line as a process of the server writes it.
#[derive(Clone, Copy, Default)]
struct Line<'a> {
    pid: u32,
    /// The name of its kind; a client's has a user and a database.
    backend: &'a str,
    severity: &'a str,
    sqlstate: &'a str,
    message: &'a str,
    context: &'a str,
    statement: &'a str,
    /// With `log_error_verbosity = verbose`.
    function: &'a str,
}

/// What a session writes for a statement.
const OF_SESSION: Line<'_> = Line {
    pid: 77,
    backend: "client backend",
    severity: "LOG",
    sqlstate: "00000",
    message: "",
    context: "",
    statement: "select f()",
    function: "",
};

const DEFAULT: &str = "%m [%p] ";
const NAMES: &str = "%m [%p] %q%u@%d ";
const KINDS: &str = "%m [%p] %b ";
const MAIN: u32 = 500;

impl Line<'_> {
    fn is_client(&self) -> bool {
        self.backend == "client backend"
    }

    fn write(&self, format: Format, prefix: &str) -> String {
        let time = format!("{}.000 UTC", now_in(0));
        let Line { pid, backend, severity, sqlstate, message, context, statement, function } = *self;
        let quoted = |text: &str| {
            if text.is_empty() { String::new() } else { format!("\"{}\"", text.replace('"', "\"\"")) }
        };
        let [user, database, host] = if self.is_client() { ["app", "shop", "[local]"] } else { [""; 3] };
        let location = if function.is_empty() { String::new() } else { format!("{function}, file.c:1") };
        match format {
            Format::Csv => format!(
                "{time},{},{},{pid},{},6638a1b2.4d,1,,{time},3/5,0,{severity},{sqlstate},{},,,,,{},{},,{},,{},,0\n",
                quoted(user),
                quoted(database),
                quoted(host),
                quoted(message),
                quoted(context),
                quoted(statement),
                quoted(&location),
                quoted(backend)
            ),
            Format::Json => {
                let mut value = json!({"timestamp": time, "pid": pid, "error_severity": severity, "state_code": sqlstate, "message": message, "backend_type": backend});
                for (name, text) in [
                    ("user", user),
                    ("dbname", database),
                    ("remote_host", host),
                    ("context", context),
                    ("statement", statement),
                    ("func_name", function),
                ] {
                    if !text.is_empty() {
                        value[name] = json!(text);
                    }
                }
                format!("{value}\n")
            }
            Format::Stderr => {
                let names = if self.is_client() { "app@shop " } else { "" };
                let prefix =
                    prefix.replace("%m", &time).replace("%p", &pid.to_string()).replace("%b", backend);
                let prefix = prefix.replace("%q%u@%d ", names);
                let mut text = format!("{prefix}{severity}:  {}\n", message.replace('\n', "\n\t"));
                for (word, more) in
                    [("CONTEXT", context), ("LOCATION", location.as_str()), ("STATEMENT", statement)]
                {
                    if !more.is_empty() {
                        text += &format!("{prefix}{word}:  {}\n", more.replace('\n', "\n\t"));
                    }
                }
                text
            }
        }
    }
}

/// The events of lines in each format and with each prefix; the name of the format for the message of a test.
fn in_each(lines: &[Line<'_>]) -> Vec<(String, Vec<event::Event>)> {
    let folder = Folder::new(&format!("raised-{:?}", std::thread::current().id()));
    let mut all = vec![];
    let kinds = [
        (Format::Csv, ""),
        (Format::Json, ""),
        (Format::Stderr, DEFAULT),
        (Format::Stderr, NAMES),
        (Format::Stderr, KINDS),
    ];
    for (index, (format, prefix)) in kinds.into_iter().enumerate() {
        let path = folder.0.join(index.to_string());
        append(&path, "");
        let mut follower = follower(&path, format, prefix);
        follower.know_main(Some(MAIN));
        read(&mut follower);
        let text: String = lines.iter().map(|line| line.write(format, prefix)).collect();
        append(&path, &text);
        all.push((format!("{format:?} {prefix}"), read(&mut follower)));
    }
    all
}

const CONTEXTS: [&str; 6] = [
    "PL/pgSQL function inline_code_block line 3 at RAISE",
    "PL/pgSQL function s.logit(text) line 3 at RAISE\nSQL statement \"select s.logit('x')\"",
    "PL/Python anonymous code block",
    "PL/Python function \"logit\"",
    "PL/Perl function \"logit\"",
    "PL/pgSQL function inline_code_block line 1 at ASSERT",
];

/// Beginnings of those that count at level LOG only.
const LOGGED: [&str; 7] = [
    "checkpoint starting",
    "checkpoint complete",
    "process 77",
    "temporary file",
    "automatic ",
    "incomplete",
    "configuration",
];

/// Lines of each kind that findings rest on.
const GRAVE: [&str; 21] = [
    "could not fork new process for connection: Resource temporarily unavailable",
    "could not fork new process for connection: Cannot allocate memory",
    "server process (PID 4711) was terminated by signal 9: Killed",
    "out of memory",
    "could not extend file \"base/5/16384\": No space left on device",
    "could not write to file \"pg_wal/xlogtemp.1\": No space left on device",
    "database system is shut down",
    "could not accept new connection: Too many open files",
    "checkpoints are occurring too frequently (1 second apart)",
    "invalid page in block 7 of relation base/5/16384",
    "sorry, too many clients already",
    "checkpoint starting: wal",
    "checkpoint complete: wrote 999999 buffers (90.0%); 0 WAL file(s) added, 0 removed, 0 recycled; write=1.000 s, sync=900.000 s, total=0.500 s; sync files=1, longest=900.000 s, average=1.000 s; distance=99999999 kB, estimate=1 kB",
    "process 77 still waiting for AccessExclusiveLock on relation 16384 of database 5 after 99000.123 ms",
    "process 77 acquired AccessExclusiveLock on relation 16384 of database 5 after 99000.123 ms",
    "temporary file: path \"base/pgsql_tmp/pgsql_tmp77.0\", size 9999999999999",
    "deadlock detected",
    "automatic aggressive vacuum to prevent wraparound of table \"postgres.public.ledger\": index scans: 9\ntuples: 1 removed, 2 remain, 99999999 are dead",
    "canceling autovacuum task",
    "incomplete startup packet",
    "configuration file \"postgresql.conf\" contains errors; unaffected changes were applied",
];

#[test]
fn what_a_function_logs_is_no_event() {
    for context in CONTEXTS {
        for severity in ["LOG", "WARNING"] {
            let lines = GRAVE.map(|message| Line { severity, message, context, ..OF_SESSION });
            for (format, mut events) in in_each(&lines) {
                events.retain(|event| event.kind != event::RAISED);
                assert_eq!(events, [], "{format} {severity} {context}");
            }
        }
    }
}

/// An index on an expression calls a function of its owner in a process of the server.
#[test]
fn what_a_function_logs_in_a_vacuum_or_beside_a_query_is_no_event() {
    for backend in ["autovacuum worker", "parallel worker", "logical replication worker"] {
        let lines = GRAVE.map(|message| Line {
            pid: 77,
            backend,
            severity: "LOG",
            sqlstate: "00000",
            message,
            context: "PL/pgSQL function s.logit(text) line 3 at RAISE",
            ..Line::default()
        });
        for (format, mut events) in in_each(&lines) {
            events.retain(|event| event.kind != event::RAISED);
            assert_eq!(events, [], "{format} {backend}");
        }
    }
}

#[test]
fn an_error_of_a_function_has_neither_the_words_nor_the_sqlstate_of_the_server() {
    for (sqlstate, severity) in
        [("53100", "ERROR"), ("53300", "ERROR"), ("40P01", "ERROR"), ("P0001", "ERROR"), ("53300", "FATAL")]
    {
        for context in CONTEXTS {
            for message in
                GRAVE.into_iter().filter(|message| !LOGGED.iter().any(|begin| message.starts_with(begin)))
            {
                let line = Line { severity, sqlstate, message, context, ..OF_SESSION };
                for (format, events) in in_each(&[line]) {
                    let seen = format!("{format} {sqlstate} {context} {message}: {events:?}");
                    let [event] = &events[..] else { panic!("{seen}") };
                    assert_eq!(event.kind, event::SERVER_LOG, "{seen}");
                    assert!(!GRAVE.iter().any(|words| event.message.contains(&words[..12])), "{seen}");
                    let state = event.more.get("sqlstate").cloned().unwrap_or(json!("P0001"));
                    assert_eq!(state, json!("P0001"), "{seen}");
                }
            }
        }
    }
    let mine = Line {
        message: "not now",
        severity: "ERROR",
        sqlstate: "P0001",
        context: CONTEXTS[1],
        pid: 7,
        backend: "client backend",
        ..Line::default()
    };
    for (format, events) in in_each(&[mine]) {
        assert_eq!(events[0].message, "not now", "{format}");
    }
}

#[test]
fn names_that_look_like_messages_of_the_server_are_cut() {
    for (message, expected) in [
        (
            "duplicate key value violates unique constraint \"could not fork new process for connection_pkey\"",
            "duplicate key value violates unique constraint \" ...",
        ),
        ("relation \"x No space left on device\" does not exist", "relation \"x ..."),
        ("column t.out of memory does not exist", "column t. ..."),
        ("relation \"x\" was terminated by signal 9 \"y\" does not exist", "relation \"x\" ..."),
        ("relation \"x y\" does not exist", "relation \"x y\" does not exist"),
        ("could not open relation \"No space left on device\": x", "could not open relation \" ..."),
        // Those of the server itself stay whole, with what it puts in front.
        (
            "nextval: reached maximum value of sequence \"events_id_seq\" (2147483647)",
            "nextval: reached maximum value of sequence \"events_id_seq\" (2147483647)",
        ),
        (
            "could not resize shared memory segment \"/PostgreSQL.1\" to 8388608 bytes: No space left on device",
            "could not resize shared memory segment \"/PostgreSQL.1\" to 8388608 bytes: No space left on device",
        ),
        ("sorry, too many clients already", "sorry, too many clients already"),
        (
            "database is not accepting commands to avoid wraparound data loss in database \"app\"",
            "database is not accepting commands to avoid wraparound data loss in database \"app\"",
        ),
        (
            "duplicate key value violates unique constraint \"t_pkey\"",
            "duplicate key value violates unique constraint \"t_pkey\"",
        ),
    ] {
        let line = Line {
            pid: 77,
            backend: "client backend",
            severity: "ERROR",
            sqlstate: "42P01",
            message,
            statement: "select 1",
            ..Line::default()
        };
        for (format, events) in in_each(&[line]) {
            assert_eq!(events[0].message, expected, "{format}");
        }
    }
}

#[test]
fn true_lines_of_each_kind_count() {
    let server = |pid: u32, backend: &'static str, message: &'static str| Line {
        pid,
        backend,
        severity: "LOG",
        sqlstate: "00000",
        message,
        ..Line::default()
    };
    let session =
        |severity: &'static str, sqlstate: &'static str, message: &'static str, context: &'static str| Line {
            severity,
            sqlstate,
            message,
            context,
            ..OF_SESSION
        };
    let inside = "SQL statement \"update t set v = 1\"\nPL/pgSQL function f() line 3 at SQL statement";
    let returned = "PL/pgSQL function f() line 3 at RETURN QUERY";
    let lines = [
        (server(MAIN, "postmaster", GRAVE[0]), event::SERVER_LOG),
        (server(MAIN, "postmaster", GRAVE[2]), event::SERVER_LOG),
        (server(MAIN, "postmaster", GRAVE[7]), event::SERVER_LOG),
        (server(9, "checkpointer", GRAVE[6]), event::SERVER_LOG),
        (server(9, "checkpointer", GRAVE[8]), event::SERVER_LOG),
        (server(9, "checkpointer", GRAVE[11]), event::CHECKPOINT),
        (server(9, "checkpointer", GRAVE[12]), event::CHECKPOINT),
        (server(10, "autovacuum worker", GRAVE[17]), event::AUTOVACUUM),
        (
            session("LOG", "00000", GRAVE[13], "while updating tuple (0,1) in relation \"t\""),
            event::LOCK_WAIT,
        ),
        (session("LOG", "00000", GRAVE[14], inside), event::LOCK_WAIT),
        (session("LOG", "00000", GRAVE[15], returned), event::TEMP_FILE),
        (session("ERROR", "40P01", GRAVE[16], inside), event::DEADLOCK),
        (session("ERROR", "53100", GRAVE[4], ""), event::SERVER_LOG),
        (session("ERROR", "53200", GRAVE[3], inside), event::SERVER_LOG),
        (Line { statement: "", ..session("FATAL", "53300", GRAVE[10], "") }, event::SERVER_LOG),
        (Line { statement: "", ..session("LOG", "08P01", GRAVE[19], "") }, event::SERVER_LOG),
        (
            session("LOG", "08006", "could not receive data from client: Connection reset by peer", ""),
            event::SERVER_LOG,
        ),
        (
            Line { severity: "ERROR", sqlstate: "57014", ..server(10, "autovacuum worker", GRAVE[18]) },
            event::SERVER_LOG,
        ),
    ];
    for (line, kind) in lines {
        for function in ["", "ReportTemporaryFileUsage", "ProcSleep", "DeadLockReport"] {
            let is_right = match kind {
                event::TEMP_FILE => function != "ProcSleep" && function != "DeadLockReport",
                event::LOCK_WAIT => function != "ReportTemporaryFileUsage" && function != "DeadLockReport",
                event::DEADLOCK => function != "ReportTemporaryFileUsage" && function != "ProcSleep",
                _ => function.is_empty(),
            };
            if !is_right {
                continue;
            }
            for (format, events) in in_each(&[Line { function, ..line }]) {
                let seen = format!("{format} {}: {events:?}", line.message);
                assert_eq!(
                    events.iter().map(|event| event.kind.as_str()).collect::<Vec<_>>(),
                    [kind],
                    "{seen}"
                );
                if kind == event::SERVER_LOG {
                    assert_eq!(events[0].message, line.message, "{seen}");
                }
            }
        }
    }
}

#[test]
fn a_location_shows_who_wrote_a_line() {
    let line = |message: &'static str, function: &'static str| Line {
        pid: 77,
        backend: "client backend",
        severity: "LOG",
        sqlstate: "00000",
        message,
        statement: "select f()",
        function,
        ..Line::default()
    };
    for function in ["pltcl_elog", "exec_stmt_raise", "elog_of_another_language"] {
        for (format, events) in
            in_each(&[GRAVE[13], GRAVE[14], GRAVE[15]].map(|message| line(message, function)))
        {
            assert_eq!(events, [], "{format} {function}");
        }
    }
}

/// Only the main process starts and ends others; any other process that shows no user may be a session.
#[test]
fn lines_of_the_main_process_come_from_it() {
    for message in [GRAVE[0], GRAVE[2], GRAVE[7], GRAVE[20]] {
        let line = Line { pid: 77, severity: "LOG", sqlstate: "00000", message, ..Line::default() };
        for (format, events) in in_each(&[line]) {
            assert_eq!(events, [], "{format} {message}");
        }
    }
}

/// Without CONTEXT a plain log does not show whether a function wrote a line.
#[test]
fn a_terse_log_is_not_believed_where_it_cannot_tell() {
    let folder = Folder::new("terse");
    let path = folder.0.join("log");
    append(&path, "");
    for (prefix, expected) in [(DEFAULT, 0), (KINDS, 1)] {
        let mut follower = follower(&path, Format::Stderr, prefix);
        follower.restyle(Style { is_terse: true, ..follower.style.clone() });
        read(&mut follower);
        let session =
            |severity: &'static str, message: &'static str| Line { severity, message, ..OF_SESSION };
        let checkpoint =
            Line { pid: 9, backend: "checkpointer", severity: "LOG", message: GRAVE[11], ..Line::default() };
        for line in
            [session("LOG", GRAVE[13]), session("LOG", GRAVE[15]), session("ERROR", GRAVE[16]), checkpoint]
        {
            append(&path, &line.write(Format::Stderr, prefix));
        }
        let events = read(&mut follower);
        let of = |kind: &str| events.iter().filter(|event| event.kind == kind).count();
        assert_eq!(
            (of(event::LOCK_WAIT), of(event::TEMP_FILE), of(event::DEADLOCK)),
            (0, 0, 0),
            "{events:?}"
        );
        assert_eq!(of(event::CHECKPOINT), expected, "{prefix}: {events:?}");
        assert!(!events.iter().any(|event| event.message.contains("deadlock")), "{events:?}");
    }
}

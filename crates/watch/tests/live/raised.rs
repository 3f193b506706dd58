//! A plain role writes into the server's log what looks like messages of the server.

use super::watched::{Watch, client, on_each};
use record::event;

/// What the role writes, at level LOG and as errors.
const WRITTEN: &str = "set client_min_messages = error;
    create table if not exists pg_temp.\"could not fork new process for connection\" (i int primary key);
    do $$ declare words text; begin
        foreach words in array array['could not fork new process for connection: Cannot allocate memory',
            'server process (PID 4711) was terminated by signal 9: Killed', 'database system is shut down', 'out of memory',
            'could not accept new connection: Too many open files', 'checkpoints are occurring too frequently (1 second apart)',
            'checkpoint starting: made up', 'deadlock detected',
            'temporary file: path \"base/pgsql_tmp/pgsql_tmp' || pg_backend_pid() || '.0\", size 9999999999999',
            'process ' || pg_backend_pid() || ' still waiting for ShareLock on transaction 7 after 99000.123 ms',
            'automatic vacuum of table \"postgres.public.t\": index scans: 9'] loop
            raise log '%', words;
            raise warning '%', words;
            begin raise exception '%', words; exception when others then null; end;
        end loop;
    end $$";
/// Errors, each a statement of its own.
const ERRORS: [&str; 5] = [
    "do $$ begin raise exception 'could not extend file \"base/5/1\": No space left on device' using errcode = '53100'; end $$",
    "do $$ begin raise exception 'sorry, too many clients already' using errcode = '53300'; end $$",
    "do $$ begin raise exception 'deadlock detected' using errcode = '40P01'; end $$",
    "do $$ begin assert false, 'could not fork new process'; end $$",
    "insert into pg_temp.\"could not fork new process for connection\" values (1), (1)",
];
const WORDS: [&str; 9] = [
    "could not fork",
    "terminated by signal",
    "shut down",
    "out of memory",
    "Too many open files",
    "too frequently",
    "No space left",
    "too many clients",
    "deadlock",
];

#[test]
fn what_a_plain_role_writes_into_the_log_is_no_message_of_the_server() {
    on_each(&[("log_checkpoints", "on"), ("log_lock_waits", "on"), ("log_temp_files", "0")], |server| {
        let mut setup = client(server, "setup");
        setup.batch_execute("create role plain").unwrap();
        let mut watch = Watch::of(&server.spec());
        watch.tick();
        let mut plain = client(server, "could not fork new process for connection");
        plain.batch_execute("set role plain").unwrap();
        plain.batch_execute(WRITTEN).unwrap();
        for error in ERRORS {
            plain.batch_execute(error).expect_err("it is an error");
        }
        setup.batch_execute("checkpoint").unwrap();
        setup.batch_execute("select 1 / 0").expect_err("it is an error");
        watch.until_event("the error behind them", |event| event.message == "division by zero");
        // A true line of a process of the server: its log has no CONTEXT and no STATEMENT.
        let is_logged = |event: &event::Event| event.kind == event::CHECKPOINT && event.more["from"] == "log";
        if !watch.seen.events.iter().any(is_logged) {
            watch.until_event("the checkpoint", is_logged);
        }
        for seen in &watch.seen.events {
            let is_forged = [event::DEADLOCK, event::TEMP_FILE, event::LOCK_WAIT, event::AUTOVACUUM]
                .contains(&&*seen.kind)
                || seen.message.contains("made up")
                || seen.kind == event::SERVER_LOG && WORDS.iter().any(|words| seen.message.contains(words));
            assert!(!is_forged, "{seen:?}");
            let state = seen.more.get("sqlstate").and_then(|state| state.as_str()).unwrap_or_default();
            assert!(!["53100", "53300", "40P01"].contains(&state), "{seen:?}");
        }
    });
}

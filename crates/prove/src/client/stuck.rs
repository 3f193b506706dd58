//! What a statement waits for that has not returned, by a question in another session of the same server.

use std::time::Duration;

use connect::{ConnSpec, sql};

use super::{Client, first_words, number, text};

/// How long the other session may take: the answer comes after a long wait already.
const LOOK_TIMEOUT: Duration = Duration::from_secs(3);
/// Sessions in the way that are named.
const BLOCKERS_MAX: usize = 3;
/// So much of a statement distinguishes it from others.
const BEGIN_CHARS: usize = 60;
/// What a commit waits for while it waits for a standby; pgstat's `WAIT_EVENT_SYNC_REP`.
const SYNC_REP: &str = "SyncRep";

/// The wait of one backend that runs `statement`, and the standbys of the server. No row if the backend is gone, or is another one: a pooler gives numbers
/// of its own.
fn question(pid: u32, statement: &str) -> String {
    let begin: String = statement.chars().take(BEGIN_CHARS).collect();
    format!(
        "select coalesce(wait_event_type, ''), coalesce(wait_event, ''), pg_catalog.current_setting('synchronous_standby_names'), \
         (select coalesce(pg_catalog.string_agg(pg_catalog.format('%s (%s)', application_name, sync_state), ', ' order by pid), '') \
         from pg_catalog.pg_stat_replication), \
         pg_catalog.array_to_string(pg_catalog.pg_blocking_pids(pid), ',') \
         from pg_catalog.pg_stat_activity where pid = {pid} and pg_catalog.left(query, {BEGIN_CHARS}) = {}",
        sql::literal(&begin)
    )
}

/// The sessions with these process ids: id, role, state, seconds in it, statement. Prepared transactions have the id 0, and stand in no such row.
fn blockers(pids: &str) -> String {
    format!(
        "select pid, coalesce(usename, ''), coalesce(state, ''), \
         coalesce(extract(epoch from pg_catalog.clock_timestamp() - state_change)::bigint, 0), coalesce(query, '') \
         from pg_catalog.pg_stat_activity where pid in ({pids}) order by xact_start nulls last limit {BLOCKERS_MAX}"
    )
}

/// What the backend `pid` of this server waits for and what to do about it, as a hint. `None`: the server does not know that backend, as behind a pooler.
pub(super) fn why(spec: &ConnSpec, pid: u32, statement: &str) -> Option<String> {
    let mut client = match Client::connect(spec, LOOK_TIMEOUT) {
        Ok(client) => client,
        Err(error) => {
            return Some(format!(
                "the server takes no other session either, so it hangs or cannot be reached: {error}"
            ));
        }
    };
    let reply = client.request(&question(pid, statement)).ok()?;
    let row: Vec<String> =
        reply.rows().first()?.iter().map(|column| text(column).unwrap_or_default()).collect();
    let [kind, event, standby_names, standbys, pids] = row.as_slice() else { return None };
    if event == SYNC_REP {
        return Some(standby(standby_names, standbys));
    }
    if !pids.is_empty() {
        return Some(lock(&mut client, pids));
    }
    Some(match kind.is_empty() {
        true => format!(
            "its session (pid {pid}) waits for nothing: it is at work, or its answer is lost on the way"
        ),
        false => format!("its session (pid {pid}) waits for {kind} {event}"),
    })
}

/// A commit that waits for a standby.
fn standby(names: &str, connected: &str) -> String {
    let connected = match connected {
        "" => "no standby is connected".to_owned(),
        some => format!("connected: {some}"),
    };
    format!(
        "its COMMIT waits for a synchronous standby: synchronous_standby_names is {names:?}, and {connected}; start the standby, or, without waiting \
         for it: ALTER SYSTEM SET synchronous_standby_names = '', then SELECT pg_reload_conf()"
    )
}

/// A statement that waits for a lock of these sessions.
fn lock(client: &mut Client, pids: &str) -> String {
    let listed: Vec<&str> = pids.split(',').collect();
    let mut words = Vec::new();
    if listed.contains(&"0") {
        words.push("a prepared transaction: select gid, owner, prepared from pg_prepared_xacts".to_owned());
    }
    let sessions = client.request(&blockers(pids)).map(|reply| reply.rows().to_vec()).unwrap_or_default();
    for row in &sessions {
        let column = |at: usize| row.get(at).and_then(text).unwrap_or_default();
        let seconds = row.get(3).and_then(number).unwrap_or_default();
        words.push(format!(
            "pid {} ({}, {} for {seconds} s: {})",
            column(0),
            column(1),
            column(2),
            first_words(&column(4))
        ));
    }
    if words.is_empty() {
        words.push(format!("pid {pids}"));
    }
    format!("its session waits for a lock that is held by {}", words.join(" and by "))
}

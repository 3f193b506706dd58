//! Sessions and their blockers. Queried only when a session waits, because this query locks the lock manager for a moment.

use crate::collect::Batch;
use crate::sql::core::{self, QUERY_CHARS};
use crate::sql::json::{age, count, list, text};
use crate::sql::probe::{Probe, column};
use engines::profile::Own;
use record::watched::{Block, Sampled, Session};
use serde_json::Value;
use std::collections::HashMap;

/// The longest chain followed; a cycle is a deadlock that the server has not broken yet.
const DEPTH_MAX: u64 = 64;
/// `root_state` of a prepared transaction, which has no session.
const PREPARED: &str = "prepared transaction";
/// The modes that keep more than one kind of statement out, the strongest first.
const STRONG: &str =
    "'{AccessExclusiveLock,ExclusiveLock,ShareRowExclusiveLock,ShareLock,ShareUpdateExclusiveLock}'::text[]";

/// The query; its parameter is the list of waiting processes.
pub(crate) fn question(probe: &Probe) -> String {
    let waitstart = column(&probe.locks_columns, "waitstart", "null::timestamptz");
    format!(
        "with w as materialized (select pid, pg_catalog.pg_blocking_pids(pid) blockers from pg_catalog.unnest($1::int[]) pid),
          a as materialized (select pid, backend_type backend, application_name application, pg_catalog.pg_get_userbyid(usesysid) \"user\", coalesce(state, \
          '') state,
             coalesce(wait_event_type, '') wait_type, coalesce(wait_event, '') wait_event, extract(epoch from clock_timestamp() - xact_start) xact_age_s,
             extract(epoch from clock_timestamp() - state_change) state_age_s, pg_catalog.age(backend_xmin) xmin_age_xids, query_start, backend_start::text, \
             pg_catalog.left(query, {QUERY_CHARS}) query
           from {} where pid in (select pid from w union select b from w, pg_catalog.unnest(blockers) b)),
          k as materialized (select * from pg_catalog.pg_locks),
          l as materialized (select * from k where not granted)
         select json_build_object(
           'waiting', (select json_agg(r) from (select w.pid, w.blockers, l.locktype lock_type, l.objsubid lock_class, l.mode, extract(epoch from
             clock_timestamp() - coalesce({waitstart}, a.query_start)) wait_s,
               case when l.database = (select oid from pg_catalog.pg_database where datname = current_database()) then l.relation::regclass::text else \
               l.relation::text end relation,
               (select k.relation::regclass::text from k where k.granted and k.locktype = 'tuple' and k.pid = w.pid and l.locktype = 'transactionid'
                 and k.database = (select oid from pg_catalog.pg_database where datname = current_database()) limit 1) row_of,
               (select k.mode from k where k.granted and k.locktype = 'relation' and (k.database, k.relation, k.pid) = (l.database, l.relation, w.blockers[1])
                 and k.mode = any({STRONG}) order by pg_catalog.array_position({STRONG}, k.mode) limit 1) held_mode,
               a.query, nullif(a.backend, 'client backend') backend
             from w join a using (pid) left join l using (pid)) r),
           'sessions', (select json_agg(a) from a))::text",
        probe.activity
    )
}

/// The processes that wait for a lock, for a role that may not see what other roles' sessions wait for: `pg_locks` hides nothing.
pub(crate) fn waiting() -> String {
    format!(
        "select json_build_object('lockers', (select json_agg(pid) from (select distinct pid from pg_catalog.pg_locks where not granted and pid is \
            not null limit {}) l))::text",
        core::LOCKERS_MAX
    )
}

/// Turns an answer into lines: one per waiting session, one per root that is a session.
pub(crate) fn answer(node: &str, t_us: u64, answer: &Value, own: &[Own], batch: &mut Batch) {
    let sessions: HashMap<i64, &Value> =
        list(answer, "sessions").iter().filter_map(|row| Some((row["pid"].as_i64()?, row))).collect();
    let waiting = list(answer, "waiting");
    let first = |row: &Value| list(row, "blockers").first().and_then(Value::as_i64);
    let edges: HashMap<i64, i64> =
        waiting.iter().filter_map(|row| Some((row["pid"].as_i64()?, first(row)?))).collect();
    let mut roots: Vec<i64> = Vec::new();
    for row in waiting {
        // A session without a blocker has just got its lock.
        let (Some(pid), Some(blocker)) = (row["pid"].as_i64(), first(row)) else { continue };
        let (root, depth) = root_of(pid, &edges);
        let root_state = match sessions.get(&root) {
            Some(session) => text(session, "state"),
            None if root == 0 => PREPARED.to_string(),
            None => String::new(),
        };
        if !roots.contains(&root) {
            roots.push(root);
        }
        let query = |pid: i64| sessions.get(&pid).map_or_else(String::new, |row| text(row, "query"));
        batch.reading(
            t_us,
            Block {
                node: node.to_string(),
                pid: pid as u64,
                backend: text(row, "backend"),
                blocked_by: u64::try_from(blocker).ok(),
                root: u64::try_from(root).ok(),
                root_state,
                depth: Some(depth),
                wait_s: age(row, "wait_s"),
                lock_type: text(row, "lock_type"),
                own: is_own(row, own),
                mode: text(row, "mode"),
                relation: text(row, "relation"),
                row_of: text(row, "row_of"),
                held_mode: Some(text(row, "held_mode")).filter(|_| depth == 1).unwrap_or_default(),
                query: text(row, "query"),
                blocker_query: query(blocker),
            },
        );
    }
    for root in roots {
        let session: Option<Session> = sessions.get(&root).map(|row| core::session(node, row));
        // An old or idle one was already reported.
        let is_named = |session: &Session| {
            batch
                .lines
                .iter()
                .any(|(_, _, line)| matches!(line, Sampled::Session(other) if other.pid == session.pid))
        };
        if let Some(session) = session.filter(|session| !is_named(session)) {
            batch.reading(t_us, session);
        }
    }
}

/// Whether the engine takes the lock itself; `None` if it has no locks of its own.
fn is_own(row: &Value, own: &[Own]) -> Option<bool> {
    let mut classes = own.iter().filter_map(|own| own.advisory).peekable();
    classes.peek()?;
    let class = count(row, "lock_class").unwrap_or(0);
    let is_one = |(first, last): (u16, u16)| (u64::from(first)..=u64::from(last)).contains(&class);
    Some(row["lock_type"].as_str() == Some("advisory") && classes.any(is_one))
}

/// Follows the first blocker of each; returns the end of the chain and its length. In a cycle it stops at the maximum length.
fn root_of(pid: i64, edges: &HashMap<i64, i64>) -> (i64, u64) {
    let (mut at, mut depth) = (pid, 0);
    while let Some(next) = edges.get(&at) {
        if depth == DEPTH_MAX || (depth > 0 && at == pid) {
            break;
        }
        at = *next;
        depth += 1;
    }
    (at, depth)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn chains_end_at_the_session_that_does_not_wait() {
        let edges = HashMap::from([(1, 2), (2, 3), (4, 3)]);
        assert_eq!([1, 2, 4].map(|pid| root_of(pid, &edges)), [(3, 2), (3, 1), (3, 1)]);
        let cycle = HashMap::from([(1, 2), (2, 1), (5, 1)]);
        assert_eq!(root_of(1, &cycle), (1, 2));
        assert_eq!(root_of(5, &cycle).1, DEPTH_MAX);
    }

    #[test]
    fn a_prepared_transaction_can_be_the_root_and_the_just_served_do_not_wait() {
        let answer_json = json!({
            "waiting": [
                {"pid": 1, "blockers": [0], "lock_type": "transactionid", "mode": "ShareLock", "wait_s": 2.5, "query": "update",
                 "backend": "logical replication worker"},
                {"pid": 2, "blockers": []},
            ],
            "sessions": [{"pid": 1, "state": "active", "query": "update"}],
        });
        let mut batch = Batch::default();
        answer("n1", 5, &answer_json, &[], &mut batch);
        let [(5, 0, Sampled::Block(block))] = batch.lines.as_slice() else { panic!("{batch:?}") };
        assert_eq!((block.root, block.root_state.as_str(), block.depth), (Some(0), PREPARED, Some(1)));
        assert_eq!((block.wait_s, block.query.as_str()), (Some(2.5), "update"));
        assert_eq!(block.backend, "logical replication worker");
    }
}

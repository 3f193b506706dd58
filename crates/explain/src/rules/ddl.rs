//! LCK-04: a statement that wants a strong lock of a table waits, and everything else on that table queues behind it.

use crate::case::{Case, Thing, Waiter};
use crate::node_time;
use crate::rule::Need::Looked;
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use record::escape::one_line;
use record::finding::{Level, Severity};

pub(super) const RULES: &[Rule] = &[Rule {
    id: "LCK-04",
    title: "a request for a strong lock of a table waits, and others queue behind it",
    needs: &[Looked("block")],
    limits: "a request for a lock of a table that conflicts with reads or writes, waiting for 1 s, with 1 session behind it, or for 5 s; or 3 requests \
        of other sessions one after another that hold up others for 20 % of the session time; high with 5 sessions behind it, after 30 s, or if half of \
        the session time goes into waits for tables (ours)",
    judge: queue,
    links: &["https://www.postgresql.org/docs/current/explicit-locking.html#LOCKING-TABLES"],
}];

/// Modes that statements which only read or write rows never want.
const STRONG: [&str; 5] = [
    "AccessExclusiveLock",
    "ExclusiveLock",
    "ShareRowExclusiveLock",
    "ShareLock",
    "ShareUpdateExclusiveLock",
];
/// Seconds with others behind it.
const WAIT_S: f64 = 1.0;
/// Seconds without.
const ALONE_S: f64 = 5.0;
/// Seconds of a request that gave up.
const REPEATED_WAIT_S: f64 = 0.1;
/// Requests that gave up.
const REPEATED_MIN: usize = 3;
/// The share of the session time in waits for tables from which on these matter.
const REPEATED_SHARE_MIN: f64 = 0.2;
/// Sessions behind it from which on it is high.
const BEHIND_HIGH: usize = 5;
/// Seconds likewise.
const WAIT_HIGH_S: f64 = 30.0;
/// The share of the session time in waits for tables likewise, of a wait that lasts.
const SHARE_HIGH: f64 = 0.5;
/// How an autovacuum worker shows what it does (`autovacuum_do_vac_analyze` in `autovacuum.c`).
const AUTOVACUUM: &str = "autovacuum: ";
/// Characters of a statement in a sentence.
const STATEMENT_CHARS: usize = 120;

/// What ends a session: not one that got the number of its process later. `None` for a process that is not known to exist.
pub(super) fn end_of(function: &str, pid: u64, backend_start: &str) -> Option<String> {
    let is_plain = backend_start.chars().all(|c| c.is_ascii_digit() || " -:.+".contains(c));
    match pid {
        0 => None,
        _ if backend_start.is_empty() || !is_plain => Some(format!(
            "SELECT pid, backend_start, state, query FROM pg_stat_activity WHERE pid = {pid}; -- if it is still this session: SELECT {function}({pid});"
        )),
        _ => Some(format!(
            "SELECT {function}(pid) FROM pg_stat_activity WHERE pid = {pid} AND backend_start = '{backend_start}';"
        )),
    }
}

/// The state of a session that sends a result which its client does not take, or waits for data that it does not send.
pub(super) const UNREAD: &str = "active, and waits for its client, which does not read the result";
pub(super) const UNSENT: &str = "active, and waits for data that its client does not send";

/// Whether an active session waits for its own client, by the event that its last look saw.
pub(super) fn at_its_client(session: &Thing<'_>) -> Option<&'static str> {
    match (session.lines.word("state"), session.lines.word("wait_event")) {
        ("active", "ClientWrite") => Some(UNREAD),
        ("active", "ClientRead") => Some(UNSENT),
        _ => None,
    }
}

/// Whether a statement empties a table.
fn is_truncate(query: &str) -> bool {
    query.split_whitespace().next().is_some_and(|word| word.eq_ignore_ascii_case("truncate"))
}

/// Whether a statement is LOCK TABLE, by which a program takes a table for its work: no schema change.
fn is_lock_command(query: &str) -> bool {
    query
        .split(';')
        .any(|one| one.split_whitespace().next().is_some_and(|word| word.eq_ignore_ascii_case("lock")))
}

/// Sessions whose chain leads through this one.
fn behind(waiters: &[&Waiter], head: u64) -> usize {
    let mut found: Vec<u64> = vec![head];
    let mut at = 0;
    while at < found.len() {
        let next = waiters.iter().filter(|waiter| waiter.blocked_by == found[at]).map(|waiter| waiter.pid);
        let new: Vec<u64> = next.filter(|pid| !found.contains(pid)).collect();
        found.extend(new);
        at += 1;
    }
    found.len() - 1
}

fn queue(case: &Case) -> Answer {
    let mut claims = vec![];
    let nodes: Vec<&str> = case.nodes();
    for node in nodes {
        let waiters: Vec<&Waiter> = case.waiters(node).collect();
        let before = claims.len();
        for head in waiters
            .iter()
            .filter(|waiter| waiter.lock_type == "relation" && STRONG.contains(&waiter.mode.as_str()))
        {
            let others = behind(&waiters, head.pid);
            let is_long = head.wait_s >= ALONE_S || head.wait_s >= WAIT_S && others > 0;
            if is_long {
                claims.push(claim(case, node, head, others));
            }
        }
        if claims.len() == before {
            claims.extend(repeated(case, node, &waiters));
        }
    }
    Answer::of(claims, || {
        "sessions that waited for strong locks of tables, and those behind them".to_string()
    })
}

/// A schema change that gives up after a short wait and comes again: each request is short, and together they hold up the others for much of the time.
fn repeated(case: &Case, node: &str, waiters: &[&Waiter]) -> Option<Claim> {
    let share = node_time::share_waiting(case, node, |kind, event| (kind, event) == ("Lock", "relation"));
    share.filter(|share| *share >= REPEATED_SHARE_MIN)?;
    let is_strong = |waiter: &&&Waiter| {
        waiter.lock_type == "relation"
            && STRONG.contains(&waiter.mode.as_str())
            && waiter.wait_s >= REPEATED_WAIT_S
            // Sessions that lock a table in turn are LCK-07's: none of them gives up.
            && !is_lock_command(&waiter.query)
    };
    let heads: Vec<(&Waiter, usize)> =
        waiters.iter().filter(is_strong).map(|head| (*head, behind(waiters, head.pid))).collect();
    // Those who wait are known by their last wait only, so not every request still has its own.
    let (worst, others) = heads.iter().max_by_key(|(_, others)| *others).filter(|(_, others)| *others > 0)?;
    let of_table = heads.iter().filter(|(head, _)| head.relation == worst.relation).count();
    (of_table >= REPEATED_MIN).then(|| {
        claim(case, node, worst, *others).number("requests", of_table as f64).because(format!(
            "{of_table} sessions wanted such a lock of this table one after another: the schema change gives up and is repeated, and each time the \
                others queue behind it; a shorter lock_timeout with longer pauses holds them up less"
        ))
    })
}

/// What kind of command it is, with an article and without.
fn kind_of(query: &str) -> (&'static str, &'static str) {
    match (is_lock_command(query), is_truncate(query)) {
        (true, _) => ("its LOCK TABLE", "LOCK TABLE"),
        (_, true) => ("the TRUNCATE", "TRUNCATE"),
        _ => ("the schema change", "schema change"),
    }
}

/// The session at the root, with its state, or with its work if that is vacuum of the server's own.
fn named(root: u64, state: &str, query: &str) -> String {
    match root {
        _ if query.starts_with(AUTOVACUUM) => format!("session {root} ({query})"),
        0 => "a prepared transaction".to_string(),
        pid if state.is_empty() => format!("session {pid}"),
        pid => format!("session {pid} ({state})"),
    }
}

fn claim(case: &Case, node: &str, head: &Waiter, others: usize) -> Claim {
    let session = |pid: u64| case.at("session", node).find(|session| session.name == pid.to_string());
    let word = |pid: u64, field: &str| session(pid).map_or("", |session| session.lines.word(field));
    let statement = one_line(&head.query, STATEMENT_CHARS);
    let root_query = one_line(word(head.root, "query"), STATEMENT_CHARS);
    let at_its_client = session(head.root).and_then(|session| at_its_client(&session));
    let root_state = match (at_its_client, head.root_state.as_str()) {
        (Some(state), _) => state,
        (None, "") => word(head.root, "state"),
        (None, state) => state,
    };
    let root = named(head.root, root_state, &root_query);
    let age = session(head.root).and_then(|session| session.lines.max("xact_age_s"));
    let relation = if head.relation.is_empty() { "a table" } else { head.relation.as_str() };
    let share = node_time::share_waiting(case, node, |kind, event| (kind, event) == ("Lock", "relation"));
    let is_outage = head.wait_s >= ALONE_S && others > 0 && share.is_some_and(|share| share >= SHARE_HIGH);
    let is_high = others >= BEHIND_HIGH || head.wait_s >= WAIT_HIGH_S || is_outage;
    let mut claim = Claim::new(
        if is_high { Severity::High } else { Severity::Medium },
        Level::DiscriminatingCounter,
        format!(
            "{node}: session {} waited {} for {} of {relation} behind {root}, and {} queued behind it: {statement}",
            head.pid,
            units::seconds(head.wait_s),
            head.mode,
            units::counted(others, "session")
        ),
    )
    .on_node(node)
    .during([head.ticks.window()])
    .number("wait_s", head.wait_s)
    .number("behind", others as f64)
    .with(share, |claim, share| claim.number("share", share))
    .because(format!("a lock that conflicts with {} is granted in the order of the requests: later ones wait behind this one", head.mode))
    .with(age, |claim, age| claim.because(format!("the transaction of {root} was {} old", units::seconds(age))))
    .not("the queue itself: it ends with the session at its root");
    if !root_query.is_empty() {
        claim = claim.because(format!("the last statement of {root}: {root_query}"));
    }
    let names = kind_of(&head.query);
    let mut commands: Vec<String> = vec![];
    let cancel = end_of("pg_cancel_backend", head.pid, word(head.pid, "backend_start"))
        .map(|cancel| format!("{cancel} -- gives up {}: the queue goes on", names.0));
    // What is cancelled comes again, and waits for the same session.
    let is_root_first = at_its_client.is_some();
    commands.extend(cancel.clone().filter(|_| !is_root_first));
    match head.root {
        0 => commands.push("SELECT gid, prepared, owner FROM pg_prepared_xacts ORDER BY prepared; -- then COMMIT PREPARED or ROLLBACK PREPARED, as \
            its coordinator decided".to_string()),
        root => commands.extend(end_of("pg_terminate_backend", root, word(root, "backend_start")).map(|end| format!("{end} -- ends the session at the root"))),
    }
    commands.extend(cancel.filter(|_| is_root_first));
    commands.push(format!(
        "SET lock_timeout = '2s'; -- before the next {}, which is then repeated until it gets its lock",
        names.1
    ));
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    let text = if is_root_first {
        "end the session at the root, and look at its client: a program that stands still, a pipe that is full, a network that is cut. Until it has read all, \
            the \
         statement keeps its locks, and it may not heed pg_cancel_backend or statement_timeout"
    } else if is_lock_command(&head.query) {
        "end the transaction at the root; let programs lock rows (SELECT ... FOR UPDATE) or a key (pg_advisory_xact_lock) instead of the table, or take the \
         table's lock with a lock_timeout, so that it never holds up others for long"
    } else {
        "end the transaction at the root, or cancel the schema change and repeat it with a lock_timeout, so that it never holds up others for long"
    };
    claim.remedy(text, &commands)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_ended_by_its_process_and_its_start() {
        assert_eq!(end_of("f", 0, "2026-01-01"), None, "no process has the number 0");
        // Without its start, or with one that is no time, a look comes first: the number may belong to another session by now.
        let look = "SELECT pid, backend_start, state, query FROM pg_stat_activity WHERE pid = 7; -- if it is still this session: SELECT f(7);";
        assert_eq!(end_of("f", 7, "").as_deref(), Some(look));
        assert_eq!(end_of("f", 7, "x'; drop table t --").as_deref(), Some(look));
        assert_eq!(
            end_of("f", 7, "2026-01-01 10:00:00.1+00").as_deref(),
            Some(
                "SELECT f(pid) FROM pg_stat_activity WHERE pid = 7 AND backend_start = '2026-01-01 10:00:00.1+00';"
            )
        );
    }

    #[test]
    fn a_command_that_locks_is_no_schema_change() {
        assert!(is_lock_command("LOCK TABLE invoices IN EXCLUSIVE MODE"));
        assert!(is_lock_command("begin; lock invoices"));
        assert!(!is_lock_command("alter table locks add column lock int"));
    }

    #[test]
    fn chains_are_counted_to_their_end_and_cycles_once() {
        let waiter = |pid, blocked_by| Waiter { pid, blocked_by, ..Waiter::default() };
        let all = [waiter(2, 1), waiter(3, 2), waiter(4, 3), waiter(5, 1), waiter(6, 7), waiter(7, 6)];
        let all: Vec<&Waiter> = all.iter().collect();
        assert_eq!((behind(&all, 2), behind(&all, 1), behind(&all, 6)), (2, 4, 1));
    }
}

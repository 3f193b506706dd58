//! LCK: sessions that wait for each other, and promises that were broken.

use crate::case::{Case, Thing};
use crate::node_time;
use crate::rule::Need::{Looked, Proof};
use crate::rule::{Answer, Claim, Rule};
use crate::statistics;
use crate::units;
use crate::waits::Who;
use record::escape::one_line;
use record::finding::{Level, Severity};
use record::model::CheckResult;

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "LCK-01",
        title: "one session blocks others",
        needs: &[Looked("block")],
        limits: "3 sessions blocked by one session for 1 s, or one for 5 s (ours)",
        judge: tree,
        links: &["https://www.postgresql.org/docs/current/explicit-locking.html"],
    },
    Rule {
        id: "LCK-02",
        title: "an isolation promise was broken",
        needs: &[Proof],
        limits: "any violation that prove found",
        judge: anomaly,
        links: &["docs/prove.md"],
    },
    Rule {
        id: "LCK-03",
        title: "sessions queue for an advisory lock or for the lock of NOTIFY",
        needs: &[Looked("wait")],
        limits: "20 % of the session time of one active session or more in Lock:advisory or Lock:object (ours)",
        judge: queue,
        links: &["https://www.postgresql.org/docs/current/explicit-locking.html#ADVISORY-LOCKS"],
    },
];

/// The share of the session time in such a queue.
const QUEUE_SHARE_MIN: f64 = 0.2;
/// From this share on it is high.
const QUEUE_SHARE_HIGH: f64 = 0.5;
/// Characters of a statement in a sentence.
const STATEMENT_CHARS: usize = 160;

/// Locks that wait for a program's order, and not for a row: event, what it is, what to do, and the command.
const QUEUES: [(&str, &str, &str, &str); 2] = [
    (
        "advisory",
        "an advisory lock, which the application takes",
        "hold it for a shorter time, or take several locks with different keys instead of one; to find the holder:",
        "SELECT l.pid, a.application_name, a.state, now() - a.xact_start AS since, l.classid, l.objid \
         FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE l.locktype = 'advisory' AND l.granted;",
    ),
    (
        "object",
        "the lock of an object that is not a table: all commits after NOTIFY queue for one lock (objid 0)",
        "send NOTIFY from fewer transactions, or from one process for all of them; to find the holder:",
        "SELECT l.pid, a.application_name, a.state, l.classid::regclass, l.objid, left(a.query, 60) AS query \
         FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE l.locktype = 'object' AND l.granted;",
    ),
];

fn queue(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in node_time::all(case).iter().filter(|time| time.active >= 1.0) {
        let Some(waits) = case.waits(&time.node) else { continue };
        for (event, what, text, command) in QUEUES {
            let fits = |kind: &str, name: &str| kind == "Lock" && name == event;
            let share = node_time::share_waiting(case, &time.node, fits).unwrap_or(0.0);
            if share < QUEUE_SHARE_MIN {
                continue;
            }
            claims.push(
                Claim::new(
                    if share >= QUEUE_SHARE_HIGH { Severity::High } else { Severity::Medium },
                    Level::DiscriminatingCounter,
                    format!("{}: {} of the active sessions wait for {what}", time.node, units::percent(share)),
                )
                .on_node(&time.node)
                .during(waits.windows(Who::Client, fits))
                .number("share", share)
                .number("sessions", share * time.active)
                .because(format!("Lock:{event} takes {} of the session time", units::percent(share)))
                .with(waits.worst_statement(fits), |claim, (query_id, share)| {
                    let text = case.query(query_id).map_or(query_id, |text| text);
                    claim.because(format!("{} of them run: {}", units::percent(share), one_line(text, STATEMENT_CHARS)))
                })
                .not("rows or tables: those waits have other names (Lock:tuple, Lock:transactionid, Lock:relation)")
                .remedy(text, &[command]),
            );
        }
    }
    Answer::of(claims, || "waits for advisory locks and for NOTIFY".to_string())
}

/// Sessions behind one root.
const BLOCKED_MIN: f64 = 3.0;
/// Seconds that at least one session must have waited: a hot row always has waiters, but they change.
const CROWD_WAIT_S: f64 = 1.0;
/// Seconds of one of them.
const WAIT_S: f64 = 5.0;
/// Sessions behind one root at which the finding is high.
const BLOCKED_HIGH: f64 = 10.0;
/// Seconds likewise.
const WAIT_HIGH_S: f64 = 30.0;

/// What to do about a blocking session in this state, and the commands.
fn advice(state: &str, session: &str, backend_start: &str, query: &str) -> (&'static str, Vec<String>) {
    let end = |function: &str| {
        super::ddl::end_of(function, session.parse().unwrap_or(0), backend_start).unwrap_or_else(|| {
            "SELECT pid, pg_blocking_pids(pid) AS blocked_by FROM pg_stat_activity WHERE wait_event_type = 'Lock';".to_string()
        })
    };
    match state {
        _ if session == "0" => (
            "a prepared transaction holds the lock: finish it as its coordinator decided",
            vec!["SELECT gid, prepared, owner FROM pg_prepared_xacts ORDER BY prepared; -- then COMMIT PREPARED or ROLLBACK PREPARED".to_string()],
        ),
        state if state.starts_with("idle in transaction") => (
            "the application left its transaction open: end the session, and set a timeout that ends such sessions",
            vec![
                end("pg_terminate_backend"),
                "ALTER SYSTEM SET idle_in_transaction_session_timeout = '1min'; SELECT pg_reload_conf();"
                    .into(),
            ],
        ),
        _ if refreshed(query).is_some() => (
            "refresh the materialized view CONCURRENTLY (it needs a unique index on whole columns): readers then do not wait; or refresh it more rarely",
            vec![
                format!("REFRESH MATERIALIZED VIEW CONCURRENTLY {};", refreshed(query).unwrap_or_default()),
                end("pg_cancel_backend"),
            ],
        ),
        _ => (
            "shorten the blocking transaction or take its lock last; give schema changes a lock_timeout, so that they do not block the queue",
            vec![
                end("pg_cancel_backend"),
                "SET lock_timeout = '2s'; -- before ALTER TABLE and the like".into(),
            ],
        ),
    }
}

/// The materialized view that a statement refreshes while it keeps readers out.
fn refreshed(query: &str) -> Option<&str> {
    let mut words = query.split([' ', '\n', '\t', ';']).filter(|word| !word.is_empty());
    let mut fits = |wanted: &str| words.next().is_some_and(|word| word.eq_ignore_ascii_case(wanted));
    if !(fits("refresh") && fits("materialized") && fits("view")) {
        return None;
    }
    words.next().filter(|name| !name.eq_ignore_ascii_case("concurrently"))
}

/// The state of a session that blocks others.
fn state_of<'a>(case: &'a Case, root: &Thing<'a>) -> &'a str {
    match root.lines.word("root_state") {
        "" => {
            let session = case.at("session", root.place).find(|session| session.name == root.name);
            session.map_or("", |session| session.lines.word("state"))
        }
        state => state,
    }
}

/// Whether a session that does nothing in its transaction has blocked others for seconds. Of those behind it, each seems to block the next.
pub(super) fn is_held_by_an_idle_session(case: &Case, node: &str) -> bool {
    case.at("block", node).any(|root| {
        root.lines.max("wait_s").is_some_and(|waited| waited >= WAIT_S)
            && state_of(case, &root).starts_with("idle in transaction")
    })
}

/// The share of the session time that others spent behind a root, as the account has it.
fn share_behind(case: &Case, node: &str, root: &str) -> Option<f64> {
    let time = node_time::all(case).iter().find(|time| time.node == node)?;
    let by = time.by.iter().find(|by| by.name == "lock root")?;
    let is_root = |name: &str| match root {
        "0" => name == "a prepared transaction",
        _ => name.strip_prefix("session ").is_some_and(|rest| rest.split(':').next() == Some(root)),
    };
    by.shares.iter().find(|(name, _)| is_root(name)).map(|(_, share)| *share)
}

fn tree(case: &Case) -> Answer {
    let mut claims = vec![];
    for root in case.things("block") {
        let lines = root.lines;
        let blocked =
            statistics::quantile(lines.ticks.points().iter().map(|point| point.sum), 1.0).unwrap_or(0.0);
        let waited = lines.max("wait_s").unwrap_or(0.0);
        let is_crowd = blocked >= BLOCKED_MIN && waited >= CROWD_WAIT_S;
        if !is_crowd && waited < WAIT_S {
            continue;
        }
        let session = case.at("session", root.place).find(|session| session.name == root.name);
        let state = state_of(case, &root);
        // It is the cause of all of these waits, if it waits for nothing itself.
        let lost = node_time::share_waiting(case, root.place, |kind, _| kind == "Lock").unwrap_or(0.0);
        let behind = share_behind(case, root.place, root.name);
        let is_the_cause = lost >= QUEUE_SHARE_HIGH && waited >= WAIT_S;
        let query = session
            .map(|session| session.lines.word("query"))
            .filter(|query| !query.is_empty())
            .or(Some(lines.word("blocker_query")).filter(|query| !query.is_empty()));
        let backend_start = session.map_or("", |session| session.lines.word("backend_start"));
        let (text, commands) = advice(state, root.name, backend_start, query.unwrap_or_default());
        let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
        let relation = Some(lines.word("relation")).filter(|relation| !relation.is_empty());
        claims.push(
            Claim::new(
                if blocked >= BLOCKED_HIGH || waited >= WAIT_HIGH_S || is_the_cause {
                    Severity::High
                } else {
                    Severity::Medium
                },
                Level::DiscriminatingCounter,
                format!(
                    "{}: session {} blocked {} for up to {}{}",
                    root.place,
                    root.name,
                    units::counted(blocked as usize, "other"),
                    units::seconds(waited),
                    if state.is_empty() { String::new() } else { format!(", and is itself {state}") }
                ),
            )
            .on_node(root.place)
            .during(lines.ticks.stretches(0, |point| point.sum > 0.0))
            .number("blocked", blocked)
            .number("wait_s", waited)
            .with(behind, |claim, share| claim.number("share", share))
            .number("depth", lines.max("depth").unwrap_or(1.0))
            .because(format!(
                "lock {} {}, wanted as {}",
                lines.word("lock_type"),
                relation.unwrap_or(""),
                lines.word("mode")
            ))
            .with(query, |claim, query| claim.because(format!("its last statement: {query}")))
            .with(Some(lines.word("query")).filter(|query| !query.is_empty()), |claim, query| {
                claim.because(format!("a waiting statement: {query}"))
            })
            .not("a deadlock: the blocking session waits for no lock")
            .remedy(text, &commands),
        );
    }
    Answer::of(claims, || "sessions that waited for locks, and the sessions that blocked them".to_string())
}

fn anomaly(case: &Case) -> Answer {
    let mut claims = vec![];
    // `prove engine` compares claims about an engine with a server: a difference is no anomaly of the server.
    let proofs = case.run.steps.iter().filter(|step| step.verb == "prove" && step.name != "engine");
    for step in proofs.clone() {
        for check in step.checks.iter().filter(|check| check.result == CheckResult::Fail) {
            claims.push(
                Claim::new(
                    Severity::High,
                    Level::DiscriminatingCounter,
                    format!("{}: {} ({}): {}", step.key, check.name, check.scope, check.detail),
                )
                .during([record::finding::Window::new(step.start_us, step.end_us.unwrap_or(case.span.to_us))])
                .number("rows", check.rows as f64)
                .with(check.counterexamples.first(), |claim, example| {
                    claim.because(format!("for example {example}"))
                })
                .remedy("this concerns correctness, not speed: use an isolation level that excludes it", &[]),
            );
        }
    }
    if claims.is_empty()
        && proofs.clone().all(|step| step.checks.iter().all(|check| check.result != CheckResult::Ok))
    {
        return Answer::CannotTell("no promise was checked".to_string());
    }
    Answer::of(claims, || "what prove checked".to_string())
}

//! REP-20: a worker that applies the changes of another node and waits for a lock that a session of its own node holds.

use crate::case::waiter::Waiter;
use crate::case::{Case, Thing};
use crate::rule::{Answer, Claim};
use crate::rules::costly::plain;
use crate::rules::ddl;
use crate::units;
use record::finding::{Level, Severity};

/// How the kinds of such workers begin.
const WORKER: &str = "logical replication";
/// Looks at which one waits, at least, and of all.
const LOOKS_MIN: f64 = 3.0;
const LOOKS_SHARE_MIN: f64 = 0.3;
/// One wait of so many seconds is enough; from the second on it is high.
const WAIT_S: f64 = 5.0;
const WAIT_HIGH_S: f64 = 10.0;
/// The same of the looks.
const LOOKS_SHARE_HIGH: f64 = 0.5;
/// The number of a finding with the process that holds the lock.
pub(crate) const HOLDER: &str = "holder_pid";
/// Characters of a statement, and of a name.
const STATEMENT_CHARS: usize = 80;
const NAME_CHARS: usize = 60;

/// REP-20.
pub(super) fn judge(case: &Case) -> Answer {
    let claims = case.nodes().into_iter().filter_map(|node| of_node(case, node)).collect();
    Answer::of(claims, || "what the workers of subscriptions waited for".to_string())
}

/// Whether a process at the root applies changes itself.
fn is_worker(case: &Case, node: &str, pid: u64) -> bool {
    case.at("subscription", node).any(|one| one.lines.last("pid") == Some(pid as f64))
}

fn of_node(case: &Case, node: &str) -> Option<Claim> {
    let workers: Vec<&Waiter> = case
        .waiters(node)
        .filter(|waiter| waiter.backend.starts_with(WORKER) && !is_worker(case, node, waiter.root))
        .collect();
    let longest = workers.iter().max_by(|left, right| left.wait_s.total_cmp(&right.wait_s))?;
    let looks = case.looks(node, &[case.span]).max(1.0);
    let seen = workers.iter().map(|waiter| waiter.ticks.readings() as f64).fold(0.0, f64::max);
    let of_looks = (seen / looks).min(1.0);
    let is_long = longest.wait_s >= WAIT_S;
    if !is_long && (seen < LOOKS_MIN || of_looks < LOOKS_SHARE_MIN) {
        return None;
    }
    let is_high = longest.wait_s >= WAIT_HIGH_S || of_looks >= LOOKS_SHARE_HIGH;
    let mut subscriptions = case.at("subscription", node).filter(|one| one.lines.flag("own") != Some(true));
    let is_its = |one: &Thing<'_>| one.lines.last("pid") == Some(longest.pid as f64);
    let subscription = case
        .at("subscription", node)
        .find(is_its)
        .or_else(|| subscriptions.next().filter(|_| subscriptions.next().is_none()));
    let behind = subscription.as_ref().and_then(|one| behind(case, node, one));
    let holder = case.at("session", node).find(|session| session.name == longest.root.to_string());
    let claim = Claim::new(
        if is_high { Severity::High } else { Severity::Medium },
        Level::DiscriminatingCounter,
        format!(
            "{node}: the worker that applies the changes of {} waits for {}: in {} of the looks, for up to {}, in which it applies nothing{}",
            subscription.map_or("a subscription".to_string(), |one| format!("subscription {}", plain(one.name, NAME_CHARS))),
            who(holder.as_ref(), longest),
            units::percent(of_looks),
            units::seconds(longest.wait_s),
            behind.as_ref().map_or(String::new(), |words| format!("; {words}"))
        ),
    )
    .on_node(node)
    .during(longest.ticks.stretches(0, |_| true))
    .number("looks_share", of_looks)
    .number("wait_s", longest.wait_s)
    .number(HOLDER, longest.root as f64)
    .because(lock(longest))
    .because("one worker applies all changes of a subscription in the order of their commits: while it waits for a lock, all of them wait, of every table")
    .with(holder.and_then(|session| session.lines.max("xact_age_s")), |claim, age| {
        claim.because(format!("that transaction is open for {}", units::seconds(age)))
    })
    .not("a standby's replay, and errors of the worker (REP-07): it goes on as soon as it gets the lock");
    let start = holder.map_or("", |session| session.lines.word("backend_start"));
    let end = ddl::end_of("pg_terminate_backend", longest.root, start);
    let look = "SELECT s.subname, w.pid, pg_blocking_pids(w.pid) AS blocked_by, w.last_msg_receipt_time FROM pg_stat_subscription w JOIN pg_subscription s ON \
        s.oid = w.subid;";
    let idle = "ALTER SYSTEM SET idle_in_transaction_session_timeout = '30s'; SELECT pg_reload_conf();";
    let commands: Vec<&str> = end.as_deref().into_iter().chain([look, idle]).collect();
    Some(claim.remedy(
        "end or commit that transaction; do not write to replicated tables here, or only in short transactions; run schema changes and LOCK TABLE here with a \
            lock_timeout, and in the moment in which the other node is quiet",
        &commands,
    ))
}

/// The session that holds the lock.
fn who(holder: Option<&Thing<'_>>, waiter: &Waiter) -> String {
    if waiter.root == 0 {
        return "a prepared transaction of this node".to_string();
    }
    let Some(session) = holder else { return format!("session {}", waiter.root) };
    let application = session.lines.word("application");
    let of = match application {
        "" => String::new(),
        name => format!(" of {}", plain(name, NAME_CHARS)),
    };
    let query = plain(session.lines.word("query"), STATEMENT_CHARS);
    let state = ddl::at_its_client(session).unwrap_or(session.lines.word("state"));
    format!("session {}{of}, which is {state} ({query})", waiter.root)
}

/// What it waits for, in words.
fn lock(waiter: &Waiter) -> String {
    let of = match (waiter.relation.as_str(), waiter.row_of.as_str()) {
        ("", "") if waiter.lock_type == "transactionid" => {
            "the end of a transaction that has changed the row which it wants to change, or a row of the same key".to_string()
        }
        ("", "") => format!("a lock ({})", waiter.lock_type),
        ("", table) => format!("a row of {table}"),
        (table, _) => format!("{table}, as {}", waiter.mode),
    };
    format!("it waits for {of}")
}

/// How far the node that it follows is ahead, if that is watched as well.
fn behind(case: &Case, node: &str, subscription: &Thing<'_>) -> Option<String> {
    let slot = subscription.lines.word("slot");
    let is_its = |one: &Thing<'_>| one.name == slot && !slot.is_empty();
    let slot = case.things("slot").filter(|one| one.place != node).find(is_its);
    let of_slot = slot.and_then(|one| {
        let kept = one.lines.max("retained_bytes").filter(|bytes| *bytes > 0.0)?;
        Some(format!("slot {} on {} keeps up to {} of WAL for it", one.name, one.place, units::bytes(kept)))
    });
    of_slot.or_else(|| {
        let lag = subscription.lines.max("lag_bytes").filter(|bytes| *bytes > 0.0)?;
        Some(format!("{} are received and not applied", units::bytes(lag)))
    })
}

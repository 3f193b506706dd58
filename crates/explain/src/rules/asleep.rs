//! SES-12: statements that sleep inside of a function or a trigger.

use super::costly::{busy, in_a_line, lowered, plain, severity};
use crate::case::Case;
use crate::rule::Need::Field;
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use record::finding::{Level, NodeTime, Severity, StatementTime};
use record::statement::{self, Verb};
use record::watched::FUNCTION_TEXT;

pub(super) const RULES: &[Rule] = &[Rule {
    id: "SES-12",
    title: "a function or trigger sleeps",
    needs: &[Field("server", "sessions_active")],
    limits: "20 % of the session time in a statement that does not name pg_sleep, and whose sessions sleep (Timeout:PgSleep) in 5 % of their samples (ours)",
    judge,
    links: &["https://www.postgresql.org/docs/current/functions-datetime.html#FUNCTIONS-DATETIME-DELAY"],
}];

/// The share of the session time of the statement.
const SHARE_MIN: f64 = 0.2;
/// Of its samples, those in which it sleeps.
const ASLEEP_MIN: f64 = 0.05;
/// Characters of names in a claim.
const NAME_CHARS: usize = 80;

/// Of the samples of a statement, those in which it sleeps.
fn asleep(statement: &StatementTime) -> f64 {
    let sleeps = statement.events.iter().filter(|(event, _)| event == "Timeout:PgSleep");
    sleeps.map(|(_, share)| share).sum()
}

/// Seconds of an execution that is long, and by how much it is longer than transactions are old.
const LONG_S: f64 = 2.0;
const LONGER: f64 = 2.0;

/// Whether its sessions sleep between their own transactions, as a worker that looks for jobs does: executions are longer than the oldest transaction of the
/// server is old, so they commit in between, and hold nothing for which others wait. A statement without counts beside counted ones runs all the time.
fn commits(case: &Case, time: &NodeTime, one: &StatementTime) -> bool {
    let is_counting = case.at("statement", &time.node).next().is_some();
    let running_s = match one.mean_ms {
        Some(ms) => ms / 1e3,
        None if is_counting => time.seconds,
        None => 0.0,
    };
    let oldest_s = case.one("server", &time.node).and_then(|server| server.max("oldest_transaction_s"));
    let is_shorter = |oldest_s: f64| running_s >= LONG_S && running_s >= oldest_s * LONGER;
    oldest_s.is_some_and(is_shorter) && case.waiters(&time.node).next().is_none()
}

/// Whether it may commit before it sleeps, as a procedure and a block can. A text that is not known may be one.
fn may_commit(case: &Case, time: &NodeTime, one: &StatementTime) -> bool {
    let text = lowered(&one.text);
    let is_able = text.is_empty() || ["call ", "do "].iter().any(|verb| text.starts_with(verb));
    is_able && case.waiters(&time.node).next().is_none()
}

/// A worker that sleeps: its time is no work, and no fault.
fn worker(case: &Case, time: &NodeTime, one: &StatementTime, share: f64) -> Claim {
    let text = format!(
        "{}: a statement that takes {} of the session time sleeps in {} of its samples, between its transactions, as a worker does that looks for jobs",
        time.node,
        units::percent(one.share),
        units::percent(share)
    );
    Claim::new(Severity::Note, Level::DiscriminatingCounter, text)
        .on_node(&time.node)
        .during(case.one("server", &time.node).map(|server| server.ticks.window()))
        .number("share", one.share)
        .number("asleep", share)
        .because(format!("the statement: {}", in_a_line(one)))
        .because("its sessions were seen in Timeout:PgSleep, and it runs for longer than any transaction is open: it commits in between")
        .not("locks and snapshots that it keeps while it sleeps: no session waits, and no transaction is old")
        .remedy(
            "nothing, if it is meant: it takes one connection and no CPU; a worker outside of the server, or LISTEN and NOTIFY, would take none while idle",
            &["SELECT pid, usename, state, wait_event, now() - xact_start AS transaction, left(query, 60) AS query FROM pg_stat_activity WHERE wait_event = \
                'PgSleep';"],
        )
}

/// What may call it: a function that the statement names and whose text has it, or the triggers of its tables.
fn caller(case: &Case, time: &NodeTime, one: &StatementTime) -> String {
    let called = statement::names(&one.text);
    let mut functions = case.facts(FUNCTION_TEXT).filter(|fact| fact.node == time.node);
    if let Some(function) =
        functions.find(|fact| called.contains(&fact.name) && fact.value.contains("pg_sleep"))
    {
        return format!("function {}() calls pg_sleep", plain(&function.name, NAME_CHARS));
    }
    let triggers = case.at("table", &time.node).filter(|table| {
        let is_named = super::costly::names_table(one, table.lines.word("relation"));
        is_named && !table.lines.word("trigger_functions").is_empty()
    });
    match triggers.into_iter().next() {
        Some(table) => format!(
            "a function that it leads to calls pg_sleep: {} has the trigger {}",
            plain(table.lines.word("relation"), NAME_CHARS),
            plain(table.lines.word("trigger_functions"), NAME_CHARS)
        ),
        None => "a function, trigger, default or policy that it leads to calls pg_sleep".to_string(),
    }
}

/// A read for which no session waits may be meant to sleep until there is something to return (a long poll).
fn severity_of(case: &Case, time: &NodeTime, one: &StatementTime) -> Severity {
    let parsed = statement::parse(&one.text);
    let is_read = parsed.is_ok_and(|parsed| parsed.verb == Verb::Select && !parsed.tables.is_empty());
    match severity(one.share) {
        _ if may_commit(case, time, one) => Severity::Low,
        found if is_read && case.waiters(&time.node).next().is_none() => found.min(Severity::Medium),
        found => found,
    }
}

fn judge(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        for one in time.statements.iter().filter(|one| one.share >= SHARE_MIN) {
            let share = asleep(one);
            if share < ASLEEP_MIN || lowered(&one.text).contains("pg_sleep") {
                continue;
            }
            if commits(case, time, one) {
                claims.push(worker(case, time, one, share));
                continue;
            }
            let locks: f64 = one
                .events
                .iter()
                .filter(|(event, _)| event.starts_with("Lock:"))
                .map(|(_, share)| share)
                .sum();
            let behind = if locks >= share {
                "; the others wait for the locks that it holds while it sleeps"
            } else {
                ""
            };
            claims.push(
                Claim::new(
                    severity_of(case, time, one),
                    Level::DiscriminatingCounter,
                    format!(
                        "{}: a statement that takes {} of the session time sleeps in {} of its samples, on purpose: {}{behind}",
                        time.node,
                        units::percent(one.share),
                        units::percent(share),
                        caller(case, time, one)
                    ),
                )
                .on_node(&time.node)
                .during(case.one("server", &time.node).map(|server| server.ticks.window()))
                .number("share", one.share)
                .number("asleep", share)
                .because(format!("the statement: {}", in_a_line(one)))
                .because("its sessions were seen in Timeout:PgSleep")
                .not("work: a session that sleeps uses no CPU, and keeps its locks, its snapshot and its connection")
                .remedy(
                    "take pg_sleep out of the function or trigger: let the program wait before or after the transaction instead",
                    &["SELECT oid::regprocedure, left(prosrc, 60) AS source FROM pg_proc WHERE prosrc ~* 'pg_sleep' AND pronamespace <> \
                        'pg_catalog'::regnamespace;"],
                ),
            );
        }
    }
    Answer::of(claims, || "statements whose sessions sleep".to_string())
}

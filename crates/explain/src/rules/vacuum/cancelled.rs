//! VAC-12: autovacuum that is cancelled again and again. It makes way for a session that waits for a lock on its table for deadlock_timeout, and begins
//! anew after autovacuum_naptime.

use crate::case::{Case, Thing};
use crate::rule::Need::{Field, Looked};
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use record::event;
use record::finding::{Level, Severity};
use record::statement;
use std::collections::BTreeSet;

pub(super) const RULE: Rule = Rule {
    id: "VAC-12",
    title: "autovacuum of a table is cancelled again and again",
    needs: &[Looked("progress"), Field("table", "autovacuums"), Field("table", "dead_rows")],
    limits: "3 automatic vacuums of a table cancelled, by the server's log; or 3 of them seen and none finished; with 1,000 dead rows. Medium from 10,000, \
        or a fifth of the table (ours)",
    judge: cancelled,
    links: &["https://www.postgresql.org/docs/current/routine-vacuuming.html#AUTOVACUUM"],
};

/// Vacuums that were cancelled.
const TIMES_MIN: f64 = 3.0;
/// Dead rows of a table.
const DEAD_MIN: f64 = 1_000.0;
/// Dead rows from which on it is medium.
const DEAD_MEDIUM: f64 = 10_000.0;
/// Likewise, of all rows.
const DEAD_SHARE_MEDIUM: f64 = 0.2;
/// Commands whose lock on a table autovacuum is in the way of.
const COMMANDS: [&str; 11] = [
    "alter", "analyze", "cluster", "comment", "create", "drop", "lock", "refresh", "reindex", "truncate",
    "vacuum",
];
/// The begin of the server's message.
const CANCELLED: &str = "canceling autovacuum task";
/// Characters of a statement.
const STATEMENT_CHARS: usize = 120;

/// Schema and name of a table without the quotes that the server does not write in messages.
fn plain_name(relation: &str) -> String {
    relation.replace('"', "")
}

/// How often the log reports that the vacuum of a table was cancelled.
fn by_log(case: &Case, table: &Thing<'_>) -> f64 {
    let (database, relation) = (table.lines.word("database"), plain_name(table.lines.word("relation")));
    let is_it = |event: &&event::Event| {
        let name = Case::word_of(event, "relation");
        let is_there = [table.place, ""].contains(&Case::word_of(event, "node"));
        let is_named = if database.is_empty() {
            name.ends_with(&relation)
        } else {
            name == format!("{database}.{relation}")
        };
        event.message.starts_with(CANCELLED) && is_there && is_named
    };
    case.events_of(event::SERVER_LOG).filter(is_it).map(event::Event::times).sum()
}

/// Automatic vacuums of a table that were seen at work, each in a process of its own.
fn seen(case: &Case, table: &Thing<'_>) -> usize {
    let relation = table.lines.word("relation");
    let bare = relation.rsplit('.').next().unwrap_or(relation);
    let is_it = |progress: &Thing<'_>| {
        let lines = progress.lines;
        let is_auto = lines.word("command") == "vacuum" && lines.flag("auto") == Some(true);
        is_auto && (lines.word("relation") == relation || lines.word("relation") == bare)
    };
    let pids: BTreeSet<&str> = case
        .at("progress", table.place)
        .filter(is_it)
        .map(|progress| progress.name.split(' ').next().unwrap_or_default())
        .collect();
    pids.len()
}

/// The statement that most often asks for a strong lock on a table, and its executions.
fn locker<'a>(case: &'a Case, table: &Thing<'a>) -> Option<(&'a str, f64)> {
    let relation = table.lines.word("relation");
    let name = relation.rsplit('.').next().unwrap_or(relation).trim_matches('"');
    let asks = |line: Thing<'a>| {
        let text = case.query(line.lines.word("query_id"))?;
        let first = text.split_whitespace().next()?.to_ascii_lowercase();
        let is_it =
            COMMANDS.contains(&first.as_str()) && statement::names(text).iter().any(|word| word == name);
        is_it.then(|| (text, line.lines.sum("calls").unwrap_or(0.0)))
    };
    let counted = case.at("statement", table.place).filter_map(asks);
    let most = counted.max_by(|left, right| left.1.total_cmp(&right.1));
    // Without pg_stat_statements a session that waits for such a lock shows it.
    let waiting = || {
        let is_it = |waiter: &&crate::case::Waiter| {
            waiter.relation.rsplit('.').next() == relation.rsplit('.').next()
                && [
                    "AccessExclusiveLock",
                    "ExclusiveLock",
                    "ShareRowExclusiveLock",
                    "ShareLock",
                    "ShareUpdateExclusiveLock",
                ]
                .contains(&waiter.mode.as_str())
        };
        let waiter = case.waiters(table.place).find(is_it)?;
        Some((waiter.query.as_str(), 1.0))
    };
    most.or_else(waiting)
}

fn cancelled(case: &Case) -> Answer {
    let mut claims = vec![];
    for table in case.things("table") {
        let lines = table.lines;
        let (Some(dead), live) = (lines.last("dead_rows"), lines.last("live_rows").unwrap_or(0.0)) else {
            continue;
        };
        let (logged, seen) = (by_log(case, &table), seen(case, &table));
        let is_unfinished = seen as f64 >= TIMES_MIN && lines.sum("autovacuums") == Some(0.0);
        if dead < DEAD_MIN || logged < TIMES_MIN && !is_unfinished {
            continue;
        }
        claims.push(claim(case, &table, logged, seen, dead / (dead + live)));
    }
    Answer::of(claims, || "cancelled and unfinished automatic vacuums, by table".to_string())
}

fn claim(case: &Case, table: &Thing<'_>, logged: f64, seen: usize, dead_share: f64) -> Claim {
    let lines = table.lines;
    let relation = lines.word("relation");
    let dead = lines.last("dead_rows").unwrap_or(0.0);
    let is_medium = dead >= DEAD_MEDIUM || dead_share >= DEAD_SHARE_MEDIUM;
    let is_logged = logged >= TIMES_MIN;
    let what = match is_logged {
        true => format!("was cancelled {} times", units::short(logged)),
        false => format!("began {seen} times and was never finished"),
    };
    let locker = locker(case, table);
    let by = locker.map_or(String::new(), |(text, _)| {
        let words: Vec<&str> = text.split_whitespace().take(2).collect();
        format!(
            ", for the lock that {} asks for",
            crate::rules::costly::plain(&words.join(" ").to_ascii_uppercase(), 40)
        )
    });
    Claim::new(
        if is_medium { Severity::Medium } else { Severity::Low },
        if is_logged { Level::DiscriminatingCounter } else { Level::CoOccurrence },
        format!("{}: autovacuum of {relation} {what}{by}; the table has {} dead rows", table.place, units::count(dead)),
    )
    .on_node(table.place)
    .during([lines.ticks.window()])
    .number("cancelled", logged)
    .number("vacuums_seen", seen as f64)
    .number("dead_rows", dead)
    .number("dead_share", dead_share)
    .because("a session that waits for a lock which autovacuum holds is let in after deadlock_timeout: the vacuum ends without result, and begins anew")
    .with(is_logged.then_some(()), |claim, ()| claim.because(format!("the server's log: {CANCELLED} ({} times)", units::short(logged))))
    .with(lines.sum("autovacuums").filter(|_| seen > 0), |claim, finished| {
        claim.because(format!(
            "{} were seen at work, and {} were finished (autovacuum_count)",
            units::counted(seen, "automatic vacuum"),
            units::short(finished)
        ))
    })
    .with(locker, |claim, (text, calls)| {
        let text = record::escape::one_line(text, STATEMENT_CHARS);
        claim.because(format!("executed {} times, the statement: {text}", units::count(calls)))
    })
    .with((!is_logged).then_some(()), |claim, ()| {
        claim.lacking(format!("what ended them: the server's log has a line '{CANCELLED}' for each that made way for a lock"))
    })
    .remedy(
        "let the job that takes the lock run rarely, and only if it changes something; a VACUUM by command is not cancelled by them, so run it once now; for \
         autovacuum, fewer pauses make it ready before the next request comes (this command itself cancels a running one)",
        &[
            &format!("VACUUM (VERBOSE, ANALYZE) {relation};"),
            &format!("ALTER TABLE {relation} SET (autovacuum_vacuum_cost_delay = 0);"),
            "ALTER SYSTEM SET log_lock_waits = on; SELECT pg_reload_conf(); -- names the sessions that wait",
        ],
    )
}

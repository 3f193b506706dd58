//! SES-10: long statements that are started again before they have ended.

use super::costly::{ages, busy, in_a_line, plain};
use crate::case::Case;
use crate::rule::Need::{Field, Looked};
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use record::finding::{Level, NodeTime, Severity, StatementTime};

pub(super) const RULES: &[Rule] = &[Rule {
    id: "SES-10",
    title: "a long statement runs several times at once",
    needs: &[Looked("wait"), Field("server", "sessions_active"), Looked("activity")],
    limits: "a statement of 1 s or more, or that has not ended, which two sessions or more execute at any time, with 30 % of the session time; without \
        pg_stat_statements one that two sessions or more were seen with for 1 s; low below two sessions for each CPU and half of the session time (ours)",
    judge,
    links: &["https://www.postgresql.org/docs/current/functions-admin.html#FUNCTIONS-ADVISORY-LOCKS"],
}];

/// Milliseconds of an execution.
const MEAN_MS_MIN: f64 = 1_000.0;
/// Sessions in it at any time.
const AT_ONCE_MIN: f64 = 2.0;
/// The share of the session time.
const SHARE_MIN: f64 = 0.3;
/// The application that most of the time belongs to, by its share.
const OF_APPLICATION_MIN: f64 = 0.3;

/// The application with the most time, if it has about that of the statement.
fn application<'a>(time: &'a NodeTime, statement: &StatementTime) -> Option<&'a str> {
    let by = time.by.iter().find(|by| by.name == "application")?;
    let near =
        |share: f64| (share - statement.share).abs() <= statement.share * 0.3 && share >= OF_APPLICATION_MIN;
    by.shares.iter().find(|(name, share)| !name.is_empty() && near(*share)).map(|(name, _)| name.as_str())
}

/// Of the looks at a statement, those in which it computed, read or wrote: one that waits for a lock or sleeps overlaps for another reason.
fn works_share(statement: &StatementTime) -> f64 {
    let works = |event: &str| event == "CPU" || event.starts_with("IO:");
    statement.events.iter().filter(|(event, _)| works(event)).map(|(_, share)| share).sum()
}

/// How long the executions of a statement last.
enum Lasts {
    /// By the server's count, in milliseconds.
    Mean(f64),
    /// The server counts statements when they end, and not this one.
    Unended,
    /// A session was seen with it for so many seconds.
    Seen(f64),
}

impl Lasts {
    /// `None` if it is short, or if nothing shows how long: a statement that is seen at every look may be another execution each time.
    fn of(case: &Case, time: &NodeTime, statement: &StatementTime) -> Option<Lasts> {
        if let Some(ms) = statement.mean_ms {
            return (ms >= MEAN_MS_MIN).then_some(Lasts::Mean(ms));
        }
        if statement.is_counted {
            return None;
        }
        if case.at("statement", &time.node).next().is_some() {
            return Some(Lasts::Unended);
        }
        let seen = ages(case, &time.node, &statement.query_id);
        let long: Vec<f64> = seen.filter(|age| age * 1e3 >= MEAN_MS_MIN).collect();
        (long.len() as f64 >= AT_ONCE_MIN).then(|| Lasts::Seen(long.into_iter().fold(0.0, f64::max)))
    }

    fn words(&self) -> String {
        match self {
            Lasts::Mean(ms) => format!("takes {} each time", units::us(ms * 1e3)),
            Lasts::Unended => "has not ended within the recording".to_string(),
            Lasts::Seen(seconds) => format!("was seen to run for {}", units::seconds(*seconds)),
        }
    }
}

/// Of the looks at a statement, those in which it works.
const WORKS_MIN: f64 = 0.5;

/// Sessions for each CPU with which copies of a statement keep all others waiting, and their share of the time.
const PER_CPU_MANY: f64 = 2.0;
const SHARE_MANY: f64 = 0.5;

fn of_many(case: &Case, time: &NodeTime, at_once: f64, share: f64) -> Severity {
    let cores = case.host_of(&time.node).and_then(|host| case.one("host", host)?.last("cores"));
    let is_many = cores.is_some_and(|cores| at_once >= cores * PER_CPU_MANY) && share >= SHARE_MANY;
    if is_many { Severity::Medium } else { Severity::Low }
}

fn judge(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        for statement in time.statements.iter().filter(|statement| statement.share >= SHARE_MIN) {
            // Parallel workers, and time that was counted at the end of a statement that began before the recording, are no sessions.
            let looks = case.looks(&time.node, &[case.span]).max(1.0);
            let seen =
                case.waits(&time.node).map_or(0.0, |waits| waits.sessions_with(&statement.query_id)) / looks;
            let at_once = (statement.share * time.active).min(seen);
            if at_once < AT_ONCE_MIN || works_share(statement) < WORKS_MIN {
                continue;
            }
            let Some(lasts) = Lasts::of(case, time, statement).map(|lasts| lasts.words()) else { continue };
            let who =
                application(time, statement).map_or(String::new(), |name| format!(" of {}", plain(name, 60)));
            claims.push(
                Claim::new(
                    of_many(case, time, at_once, statement.share),
                    Level::CoOccurrence,
                    format!(
                        "{}: {} sessions{who} execute the same statement at once, which {lasts}, {} of the session time: jobs that are started before \
                         the last one has finished overlap like this",
                        time.node,
                        units::short(at_once),
                        units::percent(statement.share)
                    ),
                )
                .on_node(&time.node)
                .during(case.one("server", &time.node).map(|server| server.ticks.window()))
                .number("share", statement.share)
                .number("sessions_at_once", at_once)
                // What it does is another finding, so this one does not take its place.
                .because(format!("what runs at once: {}", in_a_line(statement)))
                .lacking("who starts it: cron, a scheduler, or people who ask for the same report at once")
                .remedy(
                    "let a job end before it is started again: a scheduler that waits, or pg_try_advisory_lock at its begin, which ends the second one; let \
                     several readers share one result (a materialized view)",
                    &["SELECT pid, application_name, usename, backend_start, now() - query_start AS runs, left(query, 60) AS query FROM pg_stat_activity \
                       WHERE state = 'active' ORDER BY query_start LIMIT 10;"],
                ),
            );
        }
    }
    Answer::of(claims, || "long statements, and the sessions that execute them".to_string())
}

//! LOG-03: functions that write messages into the server's log, as RAISE LOG in a trigger does for each row.

use super::costly::{busy, in_a_line, severity, table_named};
use super::inside::{bare, triggers_of};
use super::paste::literal;
use crate::case::Case;
use crate::rule::Need::{Any, Field};
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use record::event::{self, Event};
use record::finding::{Level, NodeTime, Severity, StatementTime, Window};
use record::statement;
use std::collections::BTreeMap;

pub(super) const RULES: &[Rule] = &[Rule {
    id: "LOG-03",
    title: "a function writes messages into the server's log all the time",
    needs: &[Any(&[Field("statement", "calls"), Field("server", "xact_commit")])],
    limits: "200 messages of one function (RAISE) a second or more, or 1 MB of log in which most lines are its messages (ours)",
    judge,
    links: &["https://www.postgresql.org/docs/current/plpgsql-errors-and-messages.html"],
}];

/// Messages of one function a second.
const MESSAGES_PER_S_MIN: f64 = 200.0;
/// Bytes of the log a second.
const BYTES_PER_S_MIN: f64 = 1e6;
/// Of the messages that were read, those of the function.
const OF_MESSAGES_MIN: f64 = 0.5;
/// The share of the session time of a statement that calls it.
const SHARE_MIN: f64 = 0.1;

/// What the log has of one function.
#[derive(Default)]
struct Raised<'a> {
    messages: f64,
    /// All messages of the looks in which it was seen.
    read: f64,
    /// What the log grew by.
    bytes: f64,
    severity: &'a str,
    windows: Vec<Window>,
}

fn number(event: &Event, name: &str) -> f64 {
    event.more.get(name).and_then(serde_json::Value::as_f64).unwrap_or(0.0)
}

fn by_function<'a>(case: &'a Case, node: &str) -> BTreeMap<&'a str, Raised<'a>> {
    let mut found: BTreeMap<&str, Raised<'a>> = BTreeMap::new();
    for event in case.events_of(event::RAISED).filter(|event| Case::word_of(event, "node") == node) {
        let raised = found.entry(Case::word_of(event, "function")).or_default();
        raised.messages += number(event, record::event::REPEATED);
        raised.read += number(event, "messages");
        raised.bytes += number(event, "log_bytes");
        raised.severity = Case::word_of(event, "severity");
        raised.windows.push(Window::new(event.t_us, event.t_us + 1_000_000));
    }
    found
}

/// The statement that takes the most time of those that call the function, and how.
fn caller<'a>(case: &'a Case, time: &'a NodeTime, function: &str) -> Option<(&'a StatementTime, String)> {
    let name = bare(function);
    let mut callers =
        time.statements.iter().filter(|statement| statement.share >= SHARE_MIN).filter_map(|statement| {
            if statement::names(&statement.text).iter().any(|word| word == name) {
                return Some((statement, "by its name".to_string()));
            }
            let parsed = statement::parse(&statement.text).ok()?;
            let table = table_named(case, &time.node, statement, parsed.tables.first()?)?;
            let (trigger, _) = triggers_of(&table).into_iter().find(|(_, called)| *called == name)?;
            Some((statement, format!("by trigger {trigger} of {}", table.lines.word("relation"))))
        });
    callers.next()
}

fn judge(case: &Case) -> Answer {
    let mut claims = vec![];
    for node in case.nodes() {
        let seconds = (case.span.length_us() as f64 / 1e6).max(1.0);
        for (function, raised) in by_function(case, node) {
            let (messages, bytes) = (raised.messages / seconds, raised.bytes / seconds);
            let is_most = raised.messages >= raised.read * OF_MESSAGES_MIN;
            if messages < MESSAGES_PER_S_MIN && !(bytes >= BYTES_PER_S_MIN && is_most) {
                continue;
            }
            let time = busy(case).find(|time| time.node == node);
            let caller = time.and_then(|time| caller(case, time, function));
            let called = caller.as_ref().map_or(String::new(), |(statement, how)| {
                format!(
                    "; a statement that takes {} of the session time calls it {how}",
                    units::percent(statement.share)
                )
            });
            claims.push(
                Claim::new(
                    caller.as_ref().map_or(Severity::Medium, |(statement, _)| severity(statement.share)),
                    if caller.is_some() { Level::DiscriminatingCounter } else { Level::CoOccurrence },
                    format!(
                        "{node}: function {function} writes messages into the server's log all the time (RAISE {}): the log grows by {} a second{called}",
                        raised.severity,
                        units::bytes(bytes),
                    ),
                )
                .on_node(node)
                .during(raised.windows)
                .with(caller.as_ref(), |claim, (statement, _)| {
                    claim.number("share", statement.share).because(format!("the statement: {}", in_a_line(statement)))
                })
                .number("log_bytes_per_s", bytes)
                .because(format!(
                    "{} of the messages in the part of the log that was read are from it",
                    units::percent((raised.messages / raised.read.max(1.0)).min(1.0))
                ))
                .because("each message is written with its context and the statement, and the session waits until it is")
                .remedy(
                    "take RAISE out of the function, or give it a level that log_min_messages leaves out (DEBUG)",
                    &[
                        &format!("SELECT oid::regprocedure, prosrc FROM pg_proc WHERE proname = {};", literal(bare(function))),
                        "SELECT name, setting, source FROM pg_settings WHERE name IN ('log_min_messages', 'log_error_verbosity');",
                    ],
                ),
            );
        }
    }
    Answer::of(claims, || "messages of functions in the server's log".to_string())
}

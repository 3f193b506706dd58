//! PLAN-91: statements whose texts differ each time, so that the extension that counts them keeps none for long.

use super::costly::{busy, lowered, plain};
use super::plan::UNSURE;
use crate::case::Case;
use crate::node_time;
use crate::rule::Need::Field;
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use record::event;
use record::finding::{Level, NodeTime, Severity};
use std::collections::HashMap;

pub(super) const RULES: &[Rule] = &[Rule {
    id: "PLAN-91",
    title: "statements have another text each time, and none is counted for long",
    needs: &[Field("statement", "calls"), Field("server", "sessions_active")],
    limits: "pg_stat_statements throws 5 entries away a second, and half of the session time is that of no statement, or sessions wait 10 % of their time \
        for its lock (ours)",
    judge,
    links: &[
        "https://www.postgresql.org/docs/current/pgstatstatements.html#PGSTATSTATEMENTS-PG-STAT-STATEMENTS-INFO",
    ],
}];

/// Entries that are thrown away in a second.
const ENTRIES_PER_S_MIN: f64 = 5.0;
/// The share of the session time that no counted statement has.
const UNKNOWN_MIN: f64 = 0.5;
/// The share of the session time in waits for the extension's lock.
const LOCK_SHARE_MIN: f64 = 0.1;
/// Each time these entries go: a twentieth of all, ten at least (`USAGE_DEALLOC_PERCENT` in pg_stat_statements.c).
const PART_THROWN: f64 = 0.05;
const LEAST_THROWN: f64 = 10.0;
/// The default of pg_stat_statements.max.
const MAX_DEFAULT: f64 = 5_000.0;
/// Characters at the begin of a text by which its form is known.
const FORM_CHARS: usize = 24;
/// Characters of a text in a claim.
const TEXT_CHARS: usize = 120;

/// The form that most of the texts have, how many, and one of them.
fn commonest<'a>(case: &'a Case, node: &str) -> Option<(usize, &'a str)> {
    let mut forms: HashMap<String, (usize, &str)> = HashMap::new();
    for one in case.events_of(event::QUERY).filter(|one| Case::word_of(one, "node") == node) {
        let (id, text) = (Case::word_of(one, "query_id"), Case::word_of(one, "text"));
        if !text.is_empty() && !case.is_own_statement(id) {
            let words = lowered(text);
            let form = words.chars().filter(|c| c.is_ascii_alphabetic() || *c == ' ').take(FORM_CHARS);
            forms.entry(form.collect()).or_insert((0, text)).0 += 1;
        }
    }
    forms.into_values().max_by(|left, right| left.0.cmp(&right.0).then_with(|| right.1.cmp(left.1)))
}

/// Entries that are thrown away in a second.
fn thrown_per_s(case: &Case, node: &str) -> Option<f64> {
    let evictions = case.one("statement_rest", node)?.rate("evictions")?;
    let most = case.setting(node, "pg_stat_statements.max").and_then(|value| value.parse::<f64>().ok());
    Some(evictions * (most.unwrap_or(MAX_DEFAULT) * PART_THROWN).max(LEAST_THROWN))
}

/// Average sessions in executions that were counted, those without a line of their own included.
fn counted_sessions(case: &Case, node: &str) -> f64 {
    let rest = case.one("statement_rest", node);
    let waits = case.waits(node);
    // The extension counts the time of the session alone; its parallel workers are part of the node's.
    let of_statements: f64 = case
        .at("statement", node)
        .filter_map(|one| {
            let workers = waits.map_or(1.0, |waits| waits.with_workers(one.lines.word("query_id")));
            Some(one.lines.sum("total_ms")? * workers)
        })
        .sum();
    let total_ms = of_statements + rest.and_then(|lines| lines.sum("total_ms")).unwrap_or(0.0);
    total_ms * 1e3 / (case.span.length_us() as f64).max(1.0)
}

fn judge(case: &Case) -> Answer {
    let claims = busy(case).filter_map(|time| of_node(case, time)).collect();
    Answer::of(claims, || "entries that pg_stat_statements throws away".to_string())
}

fn of_node(case: &Case, time: &NodeTime) -> Option<Claim> {
    let thrown = thrown_per_s(case, &time.node).filter(|per_s| *per_s >= ENTRIES_PER_S_MIN)?;
    // A statement of which no execution has ended, or ended without an error, is not counted either, and is known all the same.
    let unended: f64 = time
        .statements
        .iter()
        .filter(|one| !one.is_counted && !one.text.is_empty())
        .map(|one| one.sessions)
        .sum();
    let known = counted_sessions(case, &time.node) + unended;
    let unknown = (1.0 - known / time.active.max(f64::MIN_POSITIVE)).max(0.0);
    let in_lock = node_time::share_waiting(case, &time.node, |kind, event| {
        kind == "LWLock" && event.to_ascii_lowercase().contains("pg_stat_statements")
    })
    .unwrap_or(0.0);
    if unknown < UNKNOWN_MIN && in_lock < LOCK_SHARE_MIN {
        return None;
    }
    let most = case.setting(&time.node, "pg_stat_statements.max").unwrap_or("5000");
    let form = commonest(case, &time.node).filter(|(count, _)| *count > 1);
    let example = form.map_or(String::new(), |(_, text)| format!(", such as {}", plain(text, TEXT_CHARS)));
    let raised = most.parse::<f64>().map_or(MAX_DEFAULT, |most| (most * 4.0).max(MAX_DEFAULT * 2.0));
    let raise = format!(
        "ALTER SYSTEM SET pg_stat_statements.max = {raised}; -- from the next start on: until the program is mended"
    );
    let server = case.one("server", &time.node);
    Some(
        Claim::new(
            Severity::Medium,
            Level::DiscriminatingCounter,
            format!(
                "{}: statements have another text each time: pg_stat_statements throws {} entries away a second, so that {} of the session time is that of no \
                 statement it knows{example}",
                time.node,
                units::short(thrown),
                units::percent(unknown)
            ),
        )
        .on_node(&time.node)
        .during(server.map(|server| server.ticks.window()))
        .number("share", unknown.max(in_lock))
        .number("thrown_per_s", thrown)
        .number(UNSURE, 1.0)
        .because(format!("pg_stat_statements.max is {most}; pg_stat_statements_info counts how often entries were thrown away"))
        .with(form, |claim, (count, _)| {
            claim.because(format!("{count} of the texts that were seen begin like that one"))
        })
        .with((in_lock > 0.0).then_some(in_lock), |claim, share| {
            claim.because(format!(
                "sessions wait {} of their time for the lock of pg_stat_statements: a new entry keeps all others out",
                units::percent(share)
            ))
        })
        .because("each of them is parsed and planned anew, no prepared statement and no cached plan serves it")
        .lacking("how much of the time is parsing and planning, and which statements are costly: the counters are thrown away before they can be read")
        .remedy(
            "let the program send one text with parameters for each kind of statement: values, lists (= ANY ($1)) and optional conditions as parameters, not \
             in the text, and no names of columns, tables or schemas that it makes up each time",
            &[
                "SELECT left(query, 40) AS begins, count(*), sum(calls) AS calls FROM pg_stat_statements GROUP BY 1 ORDER BY 2 DESC LIMIT 10;",
                &raise,
            ],
        ),
    )
}

//! Inserts with ON CONFLICT that hardly ever store a row: the program looks for a free key by trying, or stores what it gets several times.

use crate::case::Case;
use crate::rule::Claim;
use crate::rules::costly::plain;
use crate::units;
use record::finding::{Level, Severity};

/// Executions a second.
const CALLS_PER_S_MIN: f64 = 1_000.0;
/// Rows that an execution stores.
const STORED_MAX: f64 = 0.05;
/// Characters of the statement in a claim.
const TEXT_CHARS: usize = 120;

const DRAWN: &str = "do not look for a free key by trying: take the next one from a sequence (and disguise it, if it must not be guessed), keep the free \
    ones in a table and take one with FOR UPDATE SKIP LOCKED, or make the range of the keys far larger than the number of rows";
const EITHER: &str = "if the program looks for a free key by trying, take the next one from a sequence, or a free one from a table of them (FOR UPDATE SKIP \
    LOCKED); if it stores events that come several times, this is right, and a short memory of the last keys in the program would spare most of the calls";

/// Whether the program learns from the statement if it stored a row, as one that tries keys must: one that only leaves out what is there needs no answer.
/// The record does not hold whether it tries again. It may count the rows instead.
fn is_trial(text: &str) -> bool {
    text.to_lowercase().rsplit("on conflict").next().is_some_and(|behind| behind.contains("returning"))
}

pub(super) fn claims(case: &Case) -> Vec<Claim> {
    let of = |statement: crate::case::Thing<'_>| {
        let text = case.query(statement.lines.word("query_id"))?;
        let is_it = text.to_lowercase().contains("on conflict");
        let (calls, rows) = (statement.lines.rate("calls")?, statement.lines.rate("rows")?);
        let stored = rows / calls.max(f64::MIN_POSITIVE);
        let (severity, end, remedy) = match is_trial(text) {
            true => (Severity::Medium, "the others are in vain", DRAWN),
            false => (Severity::Low, "the others leave what is there", EITHER),
        };
        (is_it && calls >= CALLS_PER_S_MIN && stored <= STORED_MAX).then(|| {
            Claim::new(
                severity,
                Level::DiscriminatingCounter,
                format!(
                    "{}: {} times a second an INSERT .. ON CONFLICT finds its key taken already: one in {} executions stores a row, {end}",
                    statement.place,
                    units::short(calls),
                    units::short(1.0 / stored.max(1e-6))
                ),
            )
            .on_node(statement.place)
            .during([statement.lines.ticks.window()])
            .number("calls_per_s", calls)
            .number("rows_per_call", stored)
            .because(format!("the statement: {}", plain(text, TEXT_CHARS)))
            .not("a slow statement: each execution is short, there are so many of them")
            .lacking("whether the program tries another key then, or only leaves out what it has stored before")
            .remedy(remedy, &[])
        })
    };
    case.things("statement").filter_map(of).collect()
}

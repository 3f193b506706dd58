//! Inserts with ON CONFLICT that hardly ever store a row: the program looks for a free key by trying.

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

pub(super) fn claims(case: &Case) -> Vec<Claim> {
    let of = |statement: crate::case::Thing<'_>| {
        let text = case.query(statement.lines.word("query_id"))?;
        let is_it = text.to_lowercase().contains("on conflict");
        let (calls, rows) = (statement.lines.rate("calls")?, statement.lines.rate("rows")?);
        let stored = rows / calls.max(f64::MIN_POSITIVE);
        (is_it && calls >= CALLS_PER_S_MIN && stored <= STORED_MAX).then(|| {
            Claim::new(
                Severity::Medium,
                Level::DiscriminatingCounter,
                format!(
                    "{}: {} times a second an INSERT .. ON CONFLICT finds its key taken already: one in {} executions stores a row, the others are in vain",
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
            .remedy(
                "do not look for a free key by trying: take the next one from a sequence (and disguise it, if it must not be guessed), keep the free ones in a \
                 table and take one with FOR UPDATE SKIP LOCKED, or make the range of the keys far larger than the number of rows",
                &[],
            )
        })
    };
    case.things("statement").filter_map(of).collect()
}

//! TXN-22: cursors WITH HOLD. When their transaction ends, the server executes the whole query and keeps all of its rows (`PersistHoldablePortal` in
//! portalcmds.c), however few of them are fetched.

use super::costly::{busy, lowered, plain, severity};
use crate::case::Case;
use crate::rule::Need::{Any, Field, Looked};
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use record::event;
use record::finding::{Level, NodeTime, StatementTime};

pub(super) const RULES: &[Rule] = &[Rule {
    id: "TXN-22",
    title: "the whole result of a cursor WITH HOLD is computed and kept",
    needs: &[Any(&[Field("statement", "calls"), Looked("wait")]), Field("server", "sessions_active")],
    limits: "10 % of the session time in DECLARE ... WITH HOLD, or in COMMIT beside one while it computes, reads or writes temporary files (ours)",
    judge,
    links: &["https://www.postgresql.org/docs/current/sql-declare.html"],
}];

/// The share of the session time.
const SHARE_MIN: f64 = 0.1;
/// Characters of a cursor's query in a claim.
const QUERY_CHARS: usize = 140;
/// Waits of a COMMIT that computes a result, and does not write the WAL.
const COMPUTES: [&str; 3] = ["CPU", "IO:BufFile", "IO:DataFileRead"];

/// Of a COMMIT, what it must compute: any other one is on a processor for a moment, too.
const COMPUTING_MIN: f64 = 0.5;

fn holds(text: &str) -> bool {
    let text = lowered(text);
    text.starts_with("declare ") && text.contains(" with hold")
}

fn judge(case: &Case) -> Answer {
    let claims = busy(case).filter_map(|time| of_node(case, time)).collect();
    Answer::of(claims, || "cursors that outlive their transactions".to_string())
}

/// Of a COMMIT, the part in which it executes queries.
fn computing(statement: &StatementTime) -> f64 {
    let is_end =
        ["commit", "end", "commit transaction"].contains(&lowered(&statement.text).trim_end_matches(';'));
    let computes = |name: &str| COMPUTES.iter().any(|begin| name.starts_with(begin));
    let part: f64 = statement.events.iter().filter(|(name, _)| computes(name)).map(|(_, share)| share).sum();
    if is_end && part >= COMPUTING_MIN { statement.share * part } else { 0.0 }
}

fn of_node(case: &Case, time: &NodeTime) -> Option<Claim> {
    let mut texts = case.events_of(event::QUERY).filter(|one| Case::word_of(one, "node") == time.node);
    let seen = texts.find(|one| holds(Case::word_of(one, "text"))).map(|one| Case::word_of(one, "text"))?;
    let declaring = || time.statements.iter().filter(|one| holds(&one.text));
    let largest = declaring().max_by(|left, right| left.share.total_cmp(&right.share));
    let share =
        declaring().map(|one| one.share).sum::<f64>() + time.statements.iter().map(computing).sum::<f64>();
    if share < SHARE_MIN {
        return None;
    }
    let server = case.one("server", &time.node)?;
    let spilled = server.rate("temp_bytes").unwrap_or(0.0);
    Some(
        Claim::new(
            severity(share),
            Level::CoOccurrence,
            format!(
                "{}: {} of the session time executes the whole query of cursors WITH HOLD: when their transaction ends, the server computes all rows and keeps \
                    them, however few are fetched: {}",
                time.node,
                units::percent(share),
                plain(largest.map_or(seen, |one| one.text.as_str()), QUERY_CHARS)
            ),
        )
        .on_node(&time.node)
        .during([server.ticks.window()])
        .number("share", share)
        .with((spilled > 0.0).then_some(spilled), |claim, spilled| {
            claim.because(format!("{} of temporary files a second: results that do not fit into work_mem", units::bytes(spilled)))
        })
        .not("a missing index: all rows are computed with any plan")
        .remedy(
            "ask for a page with LIMIT, and for the next one from its last key on; or fetch inside of the transaction from a cursor without HOLD, and close it",
            &["SELECT name, creation_time, statement FROM pg_cursors WHERE is_holdable; -- in a session of the application: cursors that are still open"],
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_declaration_of_a_cursor_with_hold_is_one() {
        assert!(holds("DECLARE grid CURSOR WITH HOLD FOR select 1"));
        assert!(holds("declare \"Grid\" binary insensitive scroll cursor\n with hold for select 1"));
        for other in [
            "declare c cursor for select 1",
            "declare c cursor without hold for select 1",
            "select ' with hold'",
        ] {
            assert!(!holds(other), "{other}");
        }
    }
}

//! Statements with much of the time whose plans were not recorded, and why: every rule about plans, indexes and estimates is blind for them.

use crate::case::Case;
use crate::units;
use record::finding::{NodeTime, StatementTime};
use record::statement::{self, Verb};

/// The share of a node's time of a statement from which on its plan matters.
const SHARE_MIN: f64 = 0.2;
/// What was not recorded, as `watch` calls it.
const PLANS: &str = "plans";

/// Of statements that have no plan.
const NOT_PLANNED: &str = "only SELECT";

/// Whether a statement has a plan that matters: one that only inserts values has none of it.
fn is_planned(statement: &StatementTime) -> bool {
    statement::parse(&statement.text).is_ok_and(|parsed| match parsed.verb {
        Verb::Other => false,
        Verb::Insert => parsed.tables.len() > 1,
        Verb::Select | Verb::Update | Verb::Delete | Verb::Merge => true,
    })
}

/// Why there is no plan of a statement. Each reason stands behind the statements that have it: `statement 5: ...; 2 statements (7, 9): ...`. Recordings of
/// former versions do not name them where they are several.
fn reason<'a>(why: &'a str, statement: &StatementTime) -> Option<&'a str> {
    let id = statement.query_id.as_str();
    let is_named = |begin: &str| {
        let ids = begin.strip_prefix("statement ").or_else(|| begin.split_once('(')?.1.strip_suffix(')'));
        ids.is_some_and(|ids| ids.split(", ").any(|other| other == id))
    };
    let is_unnamed = |begin: &str| begin.ends_with(" statements");
    let find = |fits: &dyn Fn(&str) -> bool| {
        let mut parts = why.match_indices(": ").map(|(at, _)| {
            let begin = why[..at].rfind("; ").map_or(0, |last| last + 2);
            (&why[begin..at], &why[at + 2..])
        });
        parts.find(|(begin, _)| fits(begin)).map(|(_, rest)| rest)
    };
    let rest = find(&is_named).or_else(|| find(&is_unnamed))?;
    // The next one's reason follows behind a semicolon.
    let is_next = |part: &str| {
        let begin = part.split(": ").next().unwrap_or_default();
        begin.starts_with("statement ") || begin.contains(" statements")
    };
    let end =
        rest.match_indices("; ").find(|(at, _)| is_next(&rest[at + 2..])).map_or(rest.len(), |(at, _)| at);
    Some(&rest[..end])
}

/// A line for each node with such statements.
pub(super) fn lines(case: &Case, times: &[NodeTime]) -> Vec<String> {
    let of_node = |time: &NodeTime| {
        let gap = case.gaps.iter().find(|gap| gap.what == PLANS && gap.node == time.node)?;
        let has_plan = |statement: &StatementTime| {
            case.at("plan", &time.node).any(|plan| plan.lines.word("query_id") == statement.query_id)
        };
        let is_large = |one: &&StatementTime| one.share >= SHARE_MIN && is_planned(one) && !has_plan(one);
        let statement = time.statements.iter().find(is_large)?;
        // A reason of other statements.
        let why = reason(&gap.why, statement).filter(|why| !why.starts_with(NOT_PLANNED))?;
        Some(format!(
            "{}: the plan of the statement with {} of the time was not recorded, so that rules about plans, indexes and estimates cannot tell for it: {why}",
            time.node,
            units::percent(statement.share)
        ))
    };
    times.iter().filter(|time| !time.is_idle()).filter_map(of_node).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_of_a_statement_is_found_among_those_of_others() {
        let why = "statement 5: not readable; statement -7: table t is in no schema; 2 statements (9, 11): REVOKE it; or not";
        let of = |id: &str, why: &'static str| {
            reason(why, &StatementTime { query_id: id.to_string(), ..StatementTime::default() })
        };
        assert_eq!(of("-7", why), Some("table t is in no schema"));
        assert_eq!(of("11", why), Some("REVOKE it; or not"));
        assert_eq!(of("1", why), None);
        assert_eq!(of("-7", "2 statements: table t is in no schema"), Some("table t is in no schema"));
        assert_eq!(of("-7", "statement 5: not readable"), None);
    }
}

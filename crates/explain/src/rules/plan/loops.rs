//! PLAN-13: nested loops that were chosen for far fewer rows than there are.

use super::{Planned, ROWS_MIN, SHARE_MIN, WRONG_FACTOR, planned, severity, statistics};
use crate::case::{Case, Thing};
use crate::rule::Answer;
use crate::units;
use record::finding::Level;
use record::statement;

/// Nodes above which fewer rows leave the plan than the node returns.
const REDUCES: [&str; 5] = ["Aggregate", "Limit", "Group", "Unique", "SetOp"];

/// A nested loop that returns many more rows than it was chosen for.
pub(super) fn wrong_loop<'a>(planned: &Planned<'a>) -> Option<Thing<'a>> {
    let counted = planned.statement.rows.filter(|rows| *rows >= ROWS_MIN && !planned.is_of_one_constant())?;
    // Lists that multiply each other: the loop is right for the rows that there are.
    if statement::shape(&planned.statement.text).is_ok_and(|shape| shape.side_by_side.len() > 1) {
        return None;
    }
    let loops = planned.nodes.iter().filter(|node| node.lines.word("kind") == "Nested Loop");
    let is_wrong = |node: &&Thing<'_>| {
        let expected = node.lines.last("rows_planned").unwrap_or(f64::MAX);
        expected * WRONG_FACTOR <= counted && !planned.above(node).iter().any(|kind| REDUCES.contains(kind))
    };
    loops.into_iter().find(is_wrong).copied()
}

pub(super) fn nested_loop(case: &Case) -> Answer {
    let mut claims = vec![];
    for planned in planned(case, SHARE_MIN) {
        let Some(node) = wrong_loop(&planned) else { continue };
        let expected = node.lines.last("rows_planned").unwrap_or(0.0);
        let counted = planned.statement.rows.unwrap_or(0.0);
        let commands = statistics(&planned);
        let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
        let text = format!(
            "a statement that takes {} of the session time joins by a nested loop planned for {} rows, and returns {}",
            planned.share(),
            units::short(expected),
            units::short(counted)
        );
        claims.push(
            planned
                .claim(case, Level::CoOccurrence, severity(planned.statement.share), text)
                .number("rows_planned", expected)
                .number("rows_per_call", counted)
                .because(planned.file())
                .because("a nested loop reads its inner side once for each outer row: it is chosen when few are expected")
                .lacking("the time of another join: with SET enable_nestloop = off in one session EXPLAIN (ANALYZE) shows it")
                .remedy("renew the statistics of its tables, so that the planner can choose a hash or merge join", &commands),
        );
    }
    Answer::of(claims, || "nested loops of plans, against rows per execution".to_string())
}

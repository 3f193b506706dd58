//! PLAN-13: nested loops that were chosen for far fewer rows than there are.

use super::hidden::compared_together;
use super::{Planned, ROWS_MIN, SHARE_MIN, WRONG_FACTOR, inputs, planned, severity, statistics};
use crate::case::{Case, Thing};
use crate::rule::{Answer, Claim};
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

/// A loop whose inner side is read far more often than its plan expects, by the rows that an index gave for its outer side.
struct Repeated<'a> {
    /// The table of the outer side.
    relation: &'a str,
    /// Its rows for each execution, as planned and as counted.
    expected: f64,
    counted: f64,
    /// Rows of the inner side, each time.
    inner: f64,
}

/// Rows that the loops combine in an execution, from which on another join would save much.
const COMBINED_MIN: f64 = 50_000.0;
/// Of the rows that indexes of a table gave, those that belong to one statement.
const OWN_SHARE_MIN: f64 = 0.5;

/// Rows that the indexes of a table give for an execution of this statement, without those of other statements that name the table.
fn rows_by_index(case: &Case, planned: &Planned<'_>, relation: &str) -> Option<f64> {
    let calls = planned.statement.calls_per_s.filter(|calls| *calls > 0.0)?;
    let tables = || case.at("table", &planned.time.node);
    let all = tables().find(|table| table.lines.word("relation") == relation)?.lines.rate("index_rows")?;
    let name = relation.rsplit('.').next().unwrap_or(relation).trim_matches('"');
    let is_other = |line: &Thing<'_>| {
        let id = line.lines.word("query_id");
        id != planned.statement.query_id && case.query(id).is_none_or(|text| text.contains(name))
    };
    let of_line = |line: Thing<'_>| {
        let rate = |field: &str| line.lines.rate(field).unwrap_or(0.0);
        rate("calls").max(rate("rows"))
    };
    let others: f64 = case.at("statement", &planned.time.node).filter(is_other).map(of_line).sum();
    let own = all - others;
    (own >= all * OWN_SHARE_MIN).then_some(own / calls)
}

/// The nodes that are executed once, from the top: of a loop its outer side only.
fn once<'a>(planned: &Planned<'a>, node: &Thing<'a>, found: &mut Vec<Thing<'a>>) {
    found.push(*node);
    let is_loop = node.lines.word("kind") == "Nested Loop";
    for (index, input) in inputs(planned, node).enumerate() {
        if index == 0 || !is_loop {
            once(planned, &input, found);
        }
    }
}

/// The loop of a plan that combines far more rows than it was chosen for, where fewer leave the plan than it returns.
fn repeated<'a>(case: &Case, planned: &Planned<'a>) -> Option<Repeated<'a>> {
    let top = planned.nodes.iter().find(|node| node.lines.last("above") == Some(0.0))?;
    let mut nodes = vec![];
    once(planned, top, &mut nodes);
    let rows = |node: &Thing<'_>| node.lines.last("rows_planned").unwrap_or(0.0).max(1.0);
    let of_loop = |node: &Thing<'a>| {
        let mut sides = inputs(planned, node);
        let (outer, inner) = (sides.next()?, sides.next()?);
        let is_index =
            ["Index Scan", "Index Only Scan", "Bitmap Heap Scan"].contains(&outer.lines.word("kind"));
        let relation = planned.relation_of(&outer);
        let counted = rows_by_index(case, planned, relation).filter(|_| is_index)?;
        let one = Repeated { relation, expected: rows(&outer), counted, inner: rows(&inner) };
        (one.counted >= one.expected * WRONG_FACTOR && one.counted * one.inner >= COMBINED_MIN).then_some(one)
    };
    let loops = nodes.iter().filter(|node| node.lines.word("kind") == "Nested Loop");
    loops
        .filter_map(of_loop)
        .max_by(|left, right| (left.counted * left.inner).total_cmp(&(right.counted * right.inner)))
}

fn repeated_claim(case: &Case, planned: &Planned<'_>, found: &Repeated<'_>) -> Claim {
    let Repeated { relation, expected, counted, inner } = found;
    let together = compared_together(planned).map_or(String::new(), |(of, columns)| {
        format!("; the conditions on {} of {of} are taken as independent of each other", columns.join(", "))
    });
    let text = format!(
        "a statement that takes {} of the session time joins by a nested loop planned for {} of {relation}, and an execution gets {}: for each of them the \
         loop goes through {} of its other side{together}",
        planned.share(),
        units::counted(*expected as usize, "row"),
        units::short(*counted),
        units::counted(*inner as usize, "row"),
    );
    let commands = statistics(planned);
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    planned
        .claim(case, Level::DiscriminatingCounter, severity(planned.statement.share), text)
        .number("rows_planned", *expected)
        .number("rows_per_call", *counted)
        .because(planned.file())
        .because(format!("pg_stat_user_tables: the indexes of {relation} give {} rows for each execution", units::short(*counted)))
        .because("a nested loop goes through its inner side once for each outer row: it is chosen when few are expected")
        .lacking("the time of another join: with SET enable_nestloop = off in one session EXPLAIN (ANALYZE) shows it")
        .remedy(
            "conditions on columns that depend on each other are taken as independent: create extended statistics for them, then analyse, so that the planner \
             can choose a hash or merge join",
            &commands,
        )
}

pub(super) fn nested_loop(case: &Case) -> Answer {
    let mut claims = vec![];
    for planned in planned(case, SHARE_MIN) {
        let Some(node) = wrong_loop(&planned) else {
            if let Some(found) = repeated(case, &planned) {
                claims.push(repeated_claim(case, &planned, &found));
            }
            continue;
        };
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

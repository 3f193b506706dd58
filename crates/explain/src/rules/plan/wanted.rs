//! How many of the rows that a scan reads its statement needs. An aggregate returns one row for many, and the server counts only those that leave the
//! statement: what fits a condition below `count(*)` or GROUP BY is in the planner's estimate alone, and for a range between unknown values that is a guess.

use super::{KEPT_SHARE_MAX, Planned, skew};
use crate::case::Thing;
use crate::rules::costly::lowered;
use record::statement::{self, Condition, Use};

/// A condition that keeps more of the rows wants most of the table.
const MOST: f64 = 0.5;
/// Processes that the planner divides the rows of a parallel scan by, with two workers (`get_parallel_divisor` in costsize.c).
const PROCESSES: f64 = 2.4;
/// Nodes that return fewer rows than they need.
const AGGREGATES: [&str; 2] = ["Aggregate", "Group"];
/// By how much the most frequent value is above the average one where rare ones may be what is searched for.
const UNEVEN: f64 = 2.0;

/// The number of a finding whose remedy may save nothing, because how many rows fit is not known.
pub(crate) const UNSURE: &str = "rows_not_known";

/// The number of a finding about a statement that does no more than its text asks for, as far as that can be seen.
pub(crate) const WHAT_IT_IS_FOR: &str = "reads_all_by_design";

/// What would prove more about such a scan.
pub(in crate::rules) const HOW_MANY_FIT: &str = "how many rows fit the condition: an aggregate takes them, and no counter has them; SELECT count(*) with the \
    statement's own values shows it, and an index gains only where it is a small part of the table";

/// What a statement needs of a table that its plan scans with a condition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::rules) enum Wanted {
    /// Few rows, or as many as it returns.
    Few,
    /// An aggregate takes them, and how many fit is not known.
    Unknown,
    /// So many that a scan is right.
    Many,
}

/// What a statement needs of a table, by its plan.
pub(in crate::rules) fn wanted(planned: &Planned<'_>, relation: &str) -> Wanted {
    let all: Vec<Wanted> = readers(planned, relation).map(|node| of_scan(planned, node, relation)).collect();
    match all.as_slice() {
        [] => Wanted::Few,
        all if all.iter().all(|one| *one == Wanted::Many) => Wanted::Many,
        all if all.contains(&Wanted::Unknown) => Wanted::Unknown,
        _ => Wanted::Few,
    }
}

fn of_scan(planned: &Planned<'_>, node: &Thing<'_>, relation: &str) -> Wanted {
    let filter = node.lines.word("filter");
    let (rows, kept) = (node.lines.last("table_rows"), node.lines.last("rows_planned"));
    let Some((rows, kept)) = rows.zip(kept).filter(|(rows, _)| *rows > 0.0) else { return Wanted::Few };
    let above = planned.above(node);
    let is_aggregated = is_aggregated(planned, node);
    // A walk in the order of an index may end early, unless an aggregate takes all of its rows.
    let is_walk = ["Index Scan", "Index Only Scan"].contains(&node.lines.word("kind"))
        && node.lines.word("condition").is_empty();
    let is_whole = node.lines.word("kind") == "Seq Scan" || is_walk && is_aggregated;
    if !is_whole || filter.is_empty() {
        return Wanted::Few;
    }
    // Of a scan by several processes these are the rows of each.
    let is_shared = above.iter().any(|kind| kind.starts_with("Gather"));
    let share = kept / rows * if is_shared { PROCESSES } else { 1.0 };
    let conditions = statement::conditions(filter).unwrap_or_default();
    // Of the rare values of a column there are far fewer rows than of the average one.
    let is_uneven = skew::most_frequent(planned, relation).is_some_and(|(_, most)| most >= share * UNEVEN);
    let is_known = !is_guessed(filter, &conditions) && !is_uneven;
    match share >= KEPT_SHARE_MAX {
        _ if share > MOST => Wanted::Many,
        _ if !is_aggregated => Wanted::Few,
        true if is_known => Wanted::Many,
        true => Wanted::Unknown,
        false if is_guess_only(filter, &conditions) => Wanted::Unknown,
        false => Wanted::Few,
    }
}

/// The same by the text alone: an aggregate over rows that only a range of values or a pattern chooses.
pub(in crate::rules) fn is_unknown_by_text(text: &str, of_table: &[Condition]) -> bool {
    statement::shape(text).is_ok_and(|shape| shape.aggregates) && has_guess_only(of_table)
}

/// Whether a range of values or a pattern is the only condition that an index could serve: how many rows fit it depends on the values alone.
fn has_guess_only(conditions: &[Condition]) -> bool {
    let has = |fits: fn(Use) -> bool| conditions.iter().any(|one| fits(one.how) && one.inside.is_none());
    has(|how| how == Use::Range || how.is_pattern()) && !has(|how| matches!(how, Use::Equality | Use::Join))
}

/// The same of a filter; of conditions that OR connects, one is enough.
fn is_guess_only(filter: &str, conditions: &[Condition]) -> bool {
    match conditions {
        [] => statement::alternatives(filter).unwrap_or_default().iter().any(|side| has_guess_only(side)),
        all => has_guess_only(all),
    }
}

/// Nodes that join two inputs.
const JOINS: [&str; 3] = ["Nested Loop", "Hash Join", "Merge Join"];

/// Whether a statement joins.
pub(in crate::rules) fn joins(planned: &Planned<'_>) -> bool {
    planned.nodes.iter().any(|node| JOINS.contains(&node.lines.word("kind")))
}

/// Nodes of a plan that read a table.
fn readers<'p, 'a>(planned: &'p Planned<'a>, relation: &str) -> impl Iterator<Item = &'p Thing<'a>> {
    // What writes the table names it as well.
    let is_reader = |node: &&Thing<'_>| node.lines.word("kind") != "ModifyTable";
    planned.nodes.iter().filter(is_reader).filter(move |node| node.lines.word("relation") == relation)
}

/// Whether a plan reads all rows of a table because nothing compares any of its columns: neither a filter, nor a join below an aggregate.
pub(in crate::rules) fn needs_all(planned: &Planned<'_>, relation: &str) -> bool {
    let is_whole = |node: &Thing<'_>| {
        // What is above a subquery or an aggregate is no condition of the rows that these read.
        let mut is_inside = node.lines.flag("subquery") != Some(true);
        let mut above = planned.ancestors(node).into_iter().take_while(|one| {
            let is_of_it = is_inside && !AGGREGATES.contains(&one.lines.word("kind"));
            is_inside = is_of_it && one.lines.flag("subquery") != Some(true);
            is_of_it
        });
        node.lines.word("kind") == "Seq Scan"
            && node.lines.word("filter").is_empty()
            && !above.any(|one| JOINS.contains(&one.lines.word("kind")))
    };
    readers(planned, relation).next().is_some() && readers(planned, relation).all(is_whole)
}

/// Whether a plan speaks against an index that is missing, although executions scan the table: it reads it by one, or an aggregate takes what a scan reads.
pub(in crate::rules) fn is_in_doubt(planned: &Planned<'_>, relation: &str) -> bool {
    readers(planned, relation)
        .any(|node| node.lines.word("kind") != "Seq Scan" || is_aggregated(planned, node))
}

/// Whether an aggregate takes the rows of a node.
pub(super) fn is_aggregated(planned: &Planned<'_>, node: &Thing<'_>) -> bool {
    // DISTINCT by a sort counts groups as well; DISTINCT ON returns a row of each.
    let is_distinct = || !lowered(&planned.statement.text).contains("distinct on");
    let above = planned.above(node);
    above.iter().any(|kind| AGGREGATES.contains(kind) || *kind == "Unique" && is_distinct())
}

/// The rows that an execution is for, if that is known: those that it returns, or, where an aggregate takes them, what the planner expects of known values.
pub(in crate::rules) fn rows_wanted(planned: &Planned<'_>, node: &Thing<'_>) -> Option<f64> {
    match (is_aggregated(planned, node), is_guess(planned)) {
        (false, _) => planned.statement.rows,
        (true, false) => node.lines.last("rows_planned"),
        (true, true) => None,
    }
}

/// Whether the planner has only a default for how many rows fit: ranges between unknown values, patterns, functions and subqueries. How many different values
/// a column has is known, so that the share of one of them is a good estimate.
fn is_guessed(filter: &str, conditions: &[Condition]) -> bool {
    const SIGNS: [&str; 7] = [" < ", " > ", " <= ", " >= ", "~", "@", "SubPlan"];
    let calls = filter.match_indices('(').any(|(at, _)| {
        filter[..at].chars().next_back().is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '"')
    });
    calls
        || SIGNS.iter().any(|sign| filter.contains(sign))
        || conditions.iter().any(|one| one.inside.is_some())
}

/// Why an estimate of a plan for unknown values shows nothing about the statistics.
pub(super) const GUESSED: &str = "the recorded plan is one for unknown values, and its condition is a range, a pattern or a call, for which the planner then \
    takes a fixed share: executions that are planned with their values may have a good estimate";

/// Whether a condition of a plan is one of which the planner knows nothing without values.
pub(super) fn is_guess(planned: &Planned<'_>) -> bool {
    planned.nodes.iter().any(|node| {
        ["filter", "condition"].iter().any(|field| {
            let text = node.lines.word(field);
            let is_scan = !planned.relation_of(node).is_empty();
            is_scan
                && text.contains('$')
                && is_guessed(text, &statement::conditions(text).unwrap_or_default())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_many_rows_fit_is_known_for_values_and_a_guess_for_ranges_patterns_and_calls() {
        let guessed = |filter: &str| is_guessed(filter, &statement::conditions(filter).unwrap_or_default());
        for known in
            ["(visit.kind <> $1)", "(region = $1)", "(open AND (state = ANY ($1)))", "(closed IS NULL)"]
        {
            assert!(!guessed(known), "{known}");
        }
        for unknown in [
            "(visit.ts >= $1)",
            "((ms >= $1) AND (ms <= $2))",
            "(name ~~ $1)",
            "(lower(name) = $1)",
            "public.can_see(branch)",
            "(NOT (hashed SubPlan 1))",
        ] {
            assert!(guessed(unknown), "{unknown}");
        }
    }

    #[test]
    fn a_range_beside_a_value_is_narrowed_by_the_value() {
        let of = |filter: &str| is_guess_only(filter, &statement::conditions(filter).unwrap_or_default());
        assert!(of("(nn ~~ $1)") && of("((nn ~~ $1) OR (nn ~~ $2))") && of("((kind = $1) OR (nn ~~* $2))"));
        assert!(!of("((kind = $1) AND (nn ~~ $2))") && !of("((kind = $1) OR (state = $2))"));
        assert!(of("((ms >= $1) AND (ms <= $2))") && of("(at > $1)"));
        assert!(!of("((customer = $1) AND (at > $2))") && !of("(customer = $1)") && !of("(kind <> $1)"));
        let text = "select count(*) from visit where at > $1";
        let by_text = |text: &str| is_unknown_by_text(text, &statement::parse(text).expect("SQL").conditions);
        assert!(by_text(text) && !by_text("select * from visit where at > $1"));
        assert!(!by_text("select count(*) from visit where at > $1 and customer = $2"));
    }
}

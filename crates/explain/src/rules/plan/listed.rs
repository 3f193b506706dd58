//! PLAN-28: lists of NOT IN that are searched row by row.

use super::{Planned, SHARE_MIN, planned, recorded, severity};
use crate::case::Case;
use crate::rule::{Answer, Claim};
use crate::rules::costly::{busy, in_a_line, lowered};
use crate::units;
use record::finding::{Level, NodeTime, StatementTime};

/// What to write, and what to type until then.
const INSTEAD: &str = "write NOT EXISTS (SELECT ... WHERE inner.column = outer.column) instead of NOT IN: the planner can then join; or raise work_mem for \
    the role, so that the list is hashed";
const FOR_LIST: &str = "SET work_mem = '64MB'; -- in the session that runs it";
/// Functions that go through a list that is kept for all rows: a list that is hashed has none of these (`ExecScanSubPlan` in nodeSubplan.c reads a Material
/// node).
const OF_LIST: [&str; 4] =
    ["tuplestore_gettupleslot", "tuplestore_gettuple", "ExecMaterial", "ExecScanSubPlan"];
/// Of the processor time of a statement, what these take.
const OF_LIST_MIN: f64 = 0.15;

/// Statements without a recorded plan, of which the stacks show what the plan would.
fn unplanned(case: &Case) -> Vec<Claim> {
    let all = busy(case).flat_map(|time| time.statements.iter().map(move |statement| (time, statement)));
    let large = all.filter(|(_, statement)| statement.share >= SHARE_MIN);
    large.filter_map(|(time, statement)| by_stacks(case, time, statement)).collect()
}

fn by_stacks(case: &Case, time: &NodeTime, statement: &StatementTime) -> Option<Claim> {
    if !has_list(&statement.text) || recorded(case, time, statement).is_some() {
        return None;
    }
    let listed = statement.functions.iter().filter(|(name, _)| OF_LIST.contains(&name.as_str()));
    let share: f64 = listed.map(|(_, share)| share).sum();
    (share >= OF_LIST_MIN).then(|| {
        let text = format!(
            "{}: a statement that takes {} of the session time compares each row with the whole result of a subquery, as NOT IN (SELECT ...) does whose list \
                is no hash table",
            time.node,
            units::percent(statement.share)
        );
        Claim::new(severity(statement.share), Level::CoOccurrence, text)
            .on_node(&time.node)
            .during(case.one("server", &time.node).map(|server| server.ticks.window()))
            .number("share", statement.share)
            .because(format!("the statement: {}", in_a_line(statement)))
            .because(format!("{} of its processor time goes through a list that is kept, row by row", units::percent(share)))
            .not("a missing index: no index serves NOT IN")
            .lacking("its plan, which was not recorded (see what is missing)")
            .remedy(INSTEAD, &[FOR_LIST])
    })
}

/// Whether a text has NOT IN with a subquery, or a comparison with all of its rows.
fn has_list(text: &str) -> bool {
    let text = lowered(text).replace("( ", "(");
    ["not in (select", "<> all (select", "<> all(select"].iter().any(|words| text.contains(words))
}

/// The filter of a plan that compares each row with a list that is no hash table.
pub(super) fn list_filter<'a>(planned: &Planned<'a>) -> Option<&'a str> {
    let filters = planned.nodes.iter().map(|node| node.lines.word("filter"));
    let mut fits = filters.filter(|filter| {
        filter.contains("(SubPlan")
            && (filter.contains("ANY (") || filter.contains("ALL (") || filter.contains("NOT (SubPlan"))
    });
    fits.next()
}

fn is_not_in(text: &str) -> bool {
    lowered(text).contains("not in (")
}

pub(super) fn not_in(case: &Case) -> Answer {
    let mut claims = unplanned(case);
    for planned in planned(case, SHARE_MIN) {
        let Some(filter) = list_filter(&planned) else { continue };
        let text = format!(
            "a statement that takes {} of the session time compares each row with the whole result of a subquery{}",
            planned.share(),
            if is_not_in(&planned.statement.text) {
                ", as NOT IN (SELECT ...) does whose list is no hash table"
            } else {
                ""
            }
        );
        let work_mem = case.setting(&planned.time.node, "work_mem").unwrap_or("unknown");
        claims.push(
            planned
                .claim(case, Level::CoOccurrence, severity(planned.statement.share), text)
                .because(format!("the plan filters by {filter}"))
                .because(format!("a plan with a hash table would name a hashed SubPlan: it did not fit into work_mem ({work_mem}), or the types forbid it"))
                .because(planned.file())
                .not("a missing index: no index serves NOT IN")
                .remedy(INSTEAD, &[FOR_LIST]),
        );
    }
    Answer::of(claims, || "subqueries in the conditions of plans".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_a_subquery_and_no_row_of_constants() {
        assert!(has_list("delete from a where b not in (select id from c)"));
        assert!(has_list("SELECT 1 FROM a WHERE b <> ALL (\n SELECT id FROM c)"));
        for other in ["delete from a where b not in ($1, $2)", "select not in_stock from (select 1) s"] {
            assert!(!has_list(other), "{other}");
        }
    }
}

//! PLAN-92: two tables that are joined by a condition with OR. Only a nested loop can check it, for every pair of rows: hash and merge joins need something
//! that is equal. The text shows it, so it is found without a plan as well.

use super::costly::{busy, plain, severity};
use super::plan::{UNSURE, inputs, plan_of};
use super::statement::explain_it;
use crate::case::Case;
use crate::rule::Need::Field;
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use record::finding::{Level, NodeTime, Severity, StatementTime};
use record::statement::{self, OrJoin};

pub(super) const RULES: &[Rule] = &[Rule {
    id: "PLAN-92",
    title: "tables are joined by a condition with OR, which no hash or merge join can use",
    needs: &[Field("statement", "calls"), Field("server", "sessions_active")],
    limits: "10 % of the session time in a statement of 20 ms or more for an execution that joins two tables by OR (or IS NOT DISTINCT FROM) and by no \
        equality, \
        and whose plan, if there is one, has a nested loop for 1,000,000 pairs of rows or more; without a plan medium at most (ours)",
    judge,
    links: &["https://www.postgresql.org/docs/current/planner-optimizer.html"],
}];

const SHARE_MIN: f64 = 0.1;
/// Milliseconds of an execution.
const MEAN_MS_MIN: f64 = 20.0;
/// Pairs of rows of a nested loop.
const PAIRS_MIN: f64 = 1e6;
/// Characters of the condition.
const TEXT_CHARS: usize = 160;

/// Pairs of rows that a nested loop compares by a filter with OR, by the plan; `None` if the plan has no such loop.
fn pairs(case: &Case, time: &NodeTime, one: &StatementTime) -> Option<Option<f64>> {
    let Some(planned) = plan_of(case, time, one) else { return Some(None) };
    let is_it = |kind: &str, filter: &str| {
        kind == "Nested Loop" && (filter.contains(" OR ") || filter.contains("DISTINCT FROM"))
    };
    let node = planned.nodes.iter().find(|node| {
        is_it(node.lines.word("kind"), &[node.lines.word("filter"), node.lines.word("condition")].join(" "))
    })?;
    let inputs = inputs(&planned, node);
    let pairs: f64 =
        inputs.filter_map(|input| input.lines.last("rows_planned")).map(|rows| rows.max(1.0)).product();
    (pairs >= PAIRS_MIN).then_some(Some(pairs))
}

fn judge(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        for one in time.statements.iter().filter(|one| one.share >= SHARE_MIN) {
            if one.mean_ms.is_some_and(|ms| ms < MEAN_MS_MIN) {
                continue;
            }
            let Some(found) = statement::or_joins(&one.text).into_iter().next() else { continue };
            if let Some(pairs) = pairs(case, time, one) {
                claims.push(of_join(case, time, one, &found, pairs));
            }
        }
    }
    Answer::of(claims, || "conditions of joins with OR in the statements that take the time".to_string())
}

fn of_join(case: &Case, time: &NodeTime, one: &StatementTime, found: &OrJoin, pairs: Option<f64>) -> Claim {
    let OrJoin { text, tables: (left, right), is_null_safe } = found;
    let usual = severity(one.share).max(Severity::Medium);
    let each = one.mean_ms.map_or(String::new(), |ms| format!(", {} each time", units::us(ms * 1e3)));
    let compared = pairs.map_or("every pair of their rows".to_string(), |pairs| {
        format!("{} pairs of rows", units::short(pairs))
    });
    let remedy = match is_null_safe {
        true => {
            "join by an equality: replace NULL by a value that does not occur on both sides (COALESCE(a, '') = COALESCE(b, '')), make the columns NOT NULL, or \
            join twice, by the equality and by both being NULL, and combine the two with UNION ALL"
        }
        false => {
            "join once by each of the conditions, and combine the results with UNION (UNION ALL if no pair can fit two of them); or add an equality that \
            holds in any case, by which rows can be hashed"
        }
    };
    let explain = explain_it(case, &time.node, one);
    Claim::new(
        if pairs.is_some() { usual } else { usual.min(Severity::Medium) },
        Level::CoOccurrence,
        format!(
            "{}: a statement that takes {} of the session time{each} joins {left} and {right} by a condition that no hash or merge join can use, so that \
                {compared} \
             are compared: {}",
            time.node,
            units::percent(one.share),
            plain(text, TEXT_CHARS)
        ),
    )
    .on_node(&time.node)
    .during(case.one("server", &time.node).map(|server| server.ticks.window()))
    .number("share", one.share)
    .with(pairs, |claim, pairs| claim.number("pairs", pairs))
    .with(pairs.is_none().then_some(1.0), |claim, one| claim.number(UNSURE, one))
    .because(format!("the statement: {}", plain(&one.text, TEXT_CHARS)))
    .with(pairs.is_none().then_some(()), |claim, ()| {
        claim.lacking("its plan, and how many rows the tables give the join: the text alone shows the condition")
    })
    .not("a missing index: an index helps the loop only if one side of the OR finds few rows by it")
    .remedy(remedy, &[&explain])
}

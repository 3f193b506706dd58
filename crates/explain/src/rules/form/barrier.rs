//! PLAN-32: what is computed as a whole before a condition is applied to it.

use super::{BLOCKS_MIN, Found, Seen, excess, kept};
use crate::rules::paste::AS_THE_APPLICATION;
use crate::rules::statement::explain_it;
use record::statement;

/// Cost of a plan that reads much, where no counter shows what it does.
const COST_MIN: f64 = 10_000.0;

pub(super) fn barrier(seen: &Seen<'_>) -> Option<Found> {
    let planned = crate::rules::plan::plan_of(seen.case, seen.time, seen.statement);
    let filter = planned.as_ref().and_then(|planned| planned.filter_of("CTE Scan")).map(str::to_string);
    let name = seen.shape.materialized.first();
    let is_recursive = planned.as_ref().is_some_and(excess::recurses);
    let is_wanted = planned.as_ref().is_some_and(|planned| excess::wants_most(planned, seen.rows()));
    // Without counters the plan alone shows what is read.
    let cost = planned.as_ref().and_then(|planned| planned.plan.lines.last("cost_total")).unwrap_or(0.0);
    let is_much = match seen.statement.blocks {
        Some(blocks) => blocks >= BLOCKS_MIN && seen.rows() < blocks,
        None => cost >= COST_MIN,
    };
    let is_wasteful = is_much && !is_wanted;
    if is_wasteful && name.is_none() && filter.is_none() {
        return match planned.as_ref() {
            Some(planned) => excess::late(seen, planned),
            None => excess::of_view(seen),
        };
    }
    if !is_wasteful {
        return None;
    }
    let cte = planned.as_ref().and_then(kept::cte_of);
    let view = kept::in_view(seen, cte.as_deref());
    let text = match (name, &view) {
        (Some(name), _) => format!(
            "one statement with WITH {name} AS MATERIALIZED: all of it is computed before a condition is applied to it"
        ),
        (None, Some(view)) => view.words(),
        _ if is_recursive => {
            "one statement with WITH RECURSIVE: the recursion computes all of its rows before a condition is applied to them"
                .to_string()
        }
        _ => format!(
            "one statement with WITH{}: all of it is computed (a CTE) before a condition is applied to it",
            cte.map_or(String::new(), |name| format!(" {name}"))
        ),
    };
    let look = explain_it(seen.case, &seen.time.node, seen.statement);
    let without = statement::plannable(&seen.statement.text)
        .ok()
        .filter(|_| name.is_some() && !look.starts_with("SELECT"))
        .map(|text| format!("EXPLAIN (GENERIC_PLAN) {}; {AS_THE_APPLICATION}", without_materialized(&text)));
    let remedy = if is_recursive { excess::BEGIN_THERE } else { excess::NOT_KEPT };
    let definition = view.filter(|_| name.is_none()).map(|view| view.command());
    let commands = definition.into_iter().chain([look]).chain(without).collect();
    let mut found = seen.found(text, remedy, commands);
    if let Some(filter) = filter {
        found.not = Some(
            "a missing index for that condition: the plan applies it to the CTE, and not to a table"
                .to_string(),
        );
        found.evidence.push(format!("the plan filters the CTE by {filter}"));
    }
    Some(found)
}

/// The text with the opposite hint.
fn without_materialized(text: &str) -> String {
    let words = text.split(' ').map(|word| {
        let is_hint = word.trim_end_matches('(').eq_ignore_ascii_case("materialized");
        if is_hint { format!("NOT {word}") } else { word.to_string() }
    });
    words.collect::<Vec<_>>().join(" ")
}

//! Settings of the planner: those that the role of a statement has for itself, while watch plans it with those of another; and others that give a cheaper plan.

use super::{Planned, ROWS_MIN};
use crate::case::Case;
use crate::rule::{Answer, Claim};
use crate::units;
use record::finding::{Level, Severity};
use record::watched::OWN_SETTING;

/// A cheaper plan.
const CHEAPER_FACTOR: f64 = 0.5;

/// What the planner is set to for a role that may execute the statement and not for that of watch: the setting, its value, and whose it is.
pub(super) fn own_setting<'a>(case: &'a Case, planned: &Planned<'_>) -> Option<(&'a str, &'a str, &'a str)> {
    let own = case.facts(OWN_SETTING).filter(|fact| fact.node == planned.time.node);
    let is_of_planner = |name: &str, value: &str| match name {
        "plan_cache_mode" => value == "force_generic_plan",
        "effective_cache_size" => true,
        _ => {
            name.starts_with("enable_") && value == "off"
                || name.ends_with("_page_cost")
                || name.starts_with("cpu_")
        }
    };
    let settings = own.filter_map(|fact| {
        let (name, owner) = fact.name.split_once(" of ")?;
        Some((name, fact.value.as_str(), owner))
    });
    settings.into_iter().find(|(name, value, owner)| {
        let is_role = owner.starts_with("role ");
        is_role
            && is_of_planner(name, value)
            && case.may_execute(&planned.time.node, owner, planned.statement)
    })
}

/// PLAN-19.
pub(super) fn cheaper(case: &Case) -> Answer {
    let mut claims = vec![];
    for trial in case.things("what_if").filter(|trial| trial.lines.word("kind") == "setting") {
        let (Some(before), Some(after)) = (trial.lines.last("cost_before"), trial.lines.last("cost_after"))
        else {
            continue;
        };
        if after > before * CHEAPER_FACTOR || before < ROWS_MIN {
            continue;
        }
        let (change, id) = (trial.lines.word("change"), trial.lines.word("query_id"));
        claims.push(
            Claim::new(
                Severity::Low,
                Level::WhatIf,
                format!(
                    "{}: with {} the planner's cost of statement {id} falls from {} to {}",
                    trial.place,
                    change.trim_end_matches(';'),
                    units::short(before),
                    units::short(after)
                ),
            )
            .on_node(trial.place)
            .during(case.one("server", trial.place).map(|server| server.ticks.window()))
            .number("cost_before", before)
            .number("cost_after", after)
            .because("EXPLAIN with this setting in the session of watch; nothing was run")
            .lacking("the time of an execution: costs are estimates")
            .remedy("try it in one session with EXPLAIN (ANALYZE) before it is set for a role", &[change]),
        );
    }
    Answer::of(claims, || "settings that were tried by EXPLAIN".to_string())
}

//! PLAN-04: statements that are planned for longer than they run.

use crate::case::engine::reset_command;
use crate::case::{Case, Thing};
use crate::rule::{Answer, Claim};
use crate::rules::costly::{busy, in_a_line, lowered, severity};
use crate::units;
use record::finding::{Level, NodeTime, StatementTime};
use record::statement;

/// The share of the time that is planning.
const PLAN_SHARE_MIN: f64 = 0.2;
/// Milliseconds of planning that matter where the server does not count it.
const PLANNING_MS_MIN: f64 = 1.0;
/// By how much planning is longer than running, and samples show more than executions took.
const LONGER: f64 = 3.0;
/// Of what samples show, the part that planning explains.
const EXPLAINED_MIN: f64 = 0.3;

const PREPARED: &str =
    "SELECT name, generic_plans, custom_plans, left(statement, 60) FROM pg_prepared_statements;";
const PREPARE_REMEDY: &str = "prepare the statement once per session (a pooler must support prepared statements), so that the server can use a generic plan; \
    many partitions or indexes make each plan expensive";
const FORCED_REMEDY: &str = "let the server decide again, and set force_custom_plan in the session, or for the role, of the statement that needs it";

/// Whose setting makes prepared statements be planned at each execution, as the end of a phrase, and the command that takes it back.
fn forces_custom_plans(case: &Case, time: &NodeTime) -> Option<(String, String)> {
    const NAME: &str = "plan_cache_mode";
    let mut own = case.own_settings(&time.node, NAME);
    let is_forced = |value: &str| value == "force_custom_plan";
    let owner = own.find(|(owner, value)| is_forced(value) && case.is_at_work(&time.node, owner, ""));
    match owner {
        Some((owner, _)) => Some((format!(" for {owner}"), reset_command(owner, NAME))),
        None => case
            .setting(&time.node, NAME)
            .filter(|value| is_forced(value))
            .map(|_| (String::new(), format!("ALTER SYSTEM RESET {NAME}; SELECT pg_reload_conf();"))),
    }
}

/// Of statements that are planned for longer than they run: the share of the session time that is planning, as the server counts it, and the worst of them.
fn counted(time: &NodeTime) -> Option<(f64, &StatementTime)> {
    let plan_share = |statement: &StatementTime| {
        let (plan_ms, mean_ms) = (statement.plan_ms?, statement.mean_ms?);
        (plan_ms > mean_ms).then(|| statement.share * plan_ms / (plan_ms + mean_ms))
    };
    let share: f64 = time.statements.iter().filter_map(plan_share).sum();
    let worst = time.statements.iter().filter_map(|one| Some((one, plan_share(one)?)));
    let (worst, _) = worst.max_by(|left, right| left.1.total_cmp(&right.1))?;
    (share >= PLAN_SHARE_MIN).then_some((share, worst))
}

/// The share of the session time that is planning, if it is long, and the statement with most of it.
pub(in crate::rules) fn share(case: &Case, time: &NodeTime) -> Option<(f64, StatementTime)> {
    let of_uncounted = || {
        let found = longest(case, time)?;
        let statement = found.statement(case);
        Some((found.share, statement))
    };
    counted(time).map(|(share, worst)| (share, worst.clone())).or_else(of_uncounted)
}

pub(super) fn planned(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        let Some((share, worst)) = counted(time) else {
            claims.extend(longest(case, time).map(|found| of_uncounted(case, time, &found)));
            continue;
        };
        let (plan_ms, mean_ms) = (worst.plan_ms.unwrap_or(0.0), worst.mean_ms.unwrap_or(0.0));
        let forced = forces_custom_plans(case, time);
        let plan = case.at("plan", &time.node).find(|plan| plan.lines.word("query_id") == worst.query_id);
        let (why, text, commands) = match (&forced, reason(plan.as_ref(), worst)) {
            (Some((owner, reset)), _) => {
                let why = format!(
                    ": plan_cache_mode is force_custom_plan{owner}, so that prepared statements are planned at each execution"
                );
                (why, FORCED_REMEDY, vec![reset.as_str(), PREPARED])
            }
            (None, Some((why, text))) => (why, text, vec![PREPARED]),
            (None, None) => (String::new(), PREPARE_REMEDY, vec![PREPARED]),
        };
        claims.push(
            Claim::new(
                severity(share),
                Level::DiscriminatingCounter,
                format!(
                    "{}: {} of the session time is planning of statements that take less time to run{why}",
                    time.node,
                    units::percent(share)
                ),
            )
            .on_node(&time.node)
            .during(case.one("server", &time.node).map(|server| server.ticks.window()))
            .number("share", share)
            .because(format!(
                "{} of planning for {} of execution: {}",
                units::us(plan_ms * 1e3),
                units::us(mean_ms * 1e3),
                in_a_line(worst)
            ))
            .remedy(text, &commands),
        );
    }
    Answer::of(claims, || "planning of the statements that take the time".to_string())
}

/// A statement that is planned for most of its time where the server does not count planning: what `watch` measured by EXPLAIN fits with how long samples
/// show sessions at work with it.
fn longest<'a>(case: &'a Case, time: &'a NodeTime) -> Option<Unplanned<'a>> {
    let plans = case.at("plan", &time.node).filter_map(|plan| {
        let planning_ms = plan.lines.last("planning_ms").filter(|ms| *ms >= PLANNING_MS_MIN)?;
        let id = plan.lines.word("query_id");
        let counted = case.at("statement", &time.node).find(|one| one.lines.word("query_id") == id)?;
        let (calls, total_ms) = (counted.lines.sum("calls")?, counted.lines.sum("total_ms")?);
        let (mean_ms, calls_per_s) = (total_ms / calls.max(1.0), counted.lines.rate("calls")?);
        let looks = case.looks(&time.node, &[case.span]).max(1.0);
        let seen = case.waits(&time.node)?.computing_with(id) / looks;
        let (running, planning) = (calls_per_s * mean_ms / 1e3, calls_per_s * planning_ms / 1e3);
        let is_hidden =
            planning_ms >= mean_ms * LONGER && seen >= running * LONGER && planning >= seen * EXPLAINED_MIN;
        let share = (seen.min(planning) / time.active).min(1.0);
        (is_hidden && share >= PLAN_SHARE_MIN).then_some(Unplanned {
            plan,
            planning_ms,
            mean_ms,
            calls_per_s,
            share,
        })
    });
    plans.max_by(|left, right| left.share.total_cmp(&right.share))
}

/// A statement with what planning it takes.
struct Unplanned<'a> {
    plan: Thing<'a>,
    planning_ms: f64,
    mean_ms: f64,
    calls_per_s: f64,
    share: f64,
}

impl Unplanned<'_> {
    fn statement(&self, case: &Case) -> StatementTime {
        let id = self.plan.lines.word("query_id");
        StatementTime {
            query_id: id.to_string(),
            text: case.query(id).unwrap_or_default().to_string(),
            ..StatementTime::default()
        }
    }
}

fn of_uncounted(case: &Case, time: &NodeTime, found: &Unplanned<'_>) -> Claim {
    let Unplanned { plan, planning_ms, mean_ms, calls_per_s, share } = found;
    let statement = found.statement(case);
    let (why, text) = reason(Some(plan), &statement).unwrap_or((String::new(), PREPARE_REMEDY));
    Claim::new(
        severity(*share),
        Level::CoOccurrence,
        format!(
            "{}: {} of the session time is planning of one statement: it takes {} to plan and {} to run, {} times a second{why}",
            time.node,
            units::percent(*share),
            units::us(planning_ms * 1e3),
            units::us(mean_ms * 1e3),
            units::short(*calls_per_s)
        ),
    )
    .on_node(&time.node)
    .during(case.one("server", &time.node).map(|server| server.ticks.window()))
    .number("share", *share)
    .number("planning_ms", *planning_ms)
    .because(format!("the statement: {}", in_a_line(&statement)))
    .because("sessions are seen to compute with it for far longer than pg_stat_statements counts for its executions")
    .because(format!("watch planned it by EXPLAIN, twice in one session: {}", units::us(planning_ms * 1e3)))
    .lacking("the time of planning as the server counts it: pg_stat_statements.track_planning = on")
    .remedy(text, &[PREPARED, "ALTER SYSTEM SET pg_stat_statements.track_planning = on; SELECT pg_reload_conf();"])
}

/// Why planning is long, as the end of a sentence, and what helps.
fn reason(plan: Option<&Thing<'_>>, statement: &StatementTime) -> Option<(String, &'static str)> {
    let number = |field: &str| plan.and_then(|plan| plan.lines.last(field)).unwrap_or(0.0);
    let (partitions, removed) = (number("partitions"), number("partitions_removed"));
    let tables = joined_tables(&statement.text);
    // Where all are left out, the key is compared with a parameter of our own plan: of a constant the planner knows the value.
    if partitions >= PARTITIONS_MIN && removed >= partitions {
        return (tables >= TABLES_MIN).then(|| (of_tables(tables), TABLES_REMEDY));
    }
    if partitions >= PARTITIONS_MIN && removed > 0.0 {
        let why = format!(
            ": all {} partitions are planned, and only when it runs {} of them are left out, because the planner does not know the value of the condition",
            units::short(partitions),
            units::short(removed)
        );
        return Some((why, KEY_REMEDY));
    }
    if partitions >= PARTITIONS_MIN {
        return Some((format!(": {} partitions are planned", units::short(partitions)), KEY_REMEDY));
    }
    (tables >= TABLES_MIN).then(|| (of_tables(tables), TABLES_REMEDY))
}

fn of_tables(tables: usize) -> String {
    format!(": it joins {tables} tables, whose orders the planner compares")
}

/// Tables that a statement joins; those of the branches of a UNION are not joined with each other.
pub(in crate::rules) fn joined_tables(text: &str) -> usize {
    let lowered = lowered(text);
    let is_union = [" union ", " except ", " intersect "].iter().any(|word| lowered.contains(word));
    statement::parse(text).map_or(0, |parsed| if is_union { 0 } else { parsed.tables.len() })
}

const KEY_REMEDY: &str = "compare the partition key with a constant or a parameter, of which the planner knows the value (instead of a function such as \
    current_setting), \
    or name the partition: then one is planned; or prepare the statement once per session, so that a generic plan is kept";
const TABLES_REMEDY: &str = "prepare the statement once per session (a pooler must support prepared statements), so that the server can use a generic plan; \
    or join fewer tables: what every row has from a small table can be a column";
/// Tables of a statement whose orders take long to compare.
const TABLES_MIN: usize = 8;
/// Partitions that make planning long.
const PARTITIONS_MIN: f64 = 8.0;

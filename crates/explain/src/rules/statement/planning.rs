//! PLAN-04: statements that are planned for longer than they run.

mod wordy;

use crate::case::engine::reset_command;
use crate::case::{Case, Thing};
use crate::rule::{Answer, Claim};
use crate::rules::costly::{CLOCKS, ages, busy, in_a_line, lowered, peculiar_of, plain, severity};
use crate::units;
use record::finding::{Level, NodeTime, StatementTime};
use record::statement::{self, Verb};

/// The share of the time that is planning.
const PLAN_SHARE_MIN: f64 = 0.2;
/// Characters of a statement in a claim.
const STATEMENT_CHARS: usize = 90;
/// Milliseconds of planning that matter where the server does not count it.
const PLANNING_MS_MIN: f64 = 1.0;
/// By how much planning is longer than running, and samples show more than executions took.
const LONGER: f64 = 3.0;
/// Of what samples show, the part that planning explains.
const EXPLAINED_MIN: f64 = 0.3;
/// Milliseconds of an execution that samples show and the server does not count, where nothing shows how long planning takes.
const HIDDEN_MS_MIN: f64 = 20.0;
/// By how much they are longer than what the server counts.
const HIDDEN_TIMES_MIN: f64 = 10.0;
/// Executions from which on this is not one of them that has not ended.
const CALLS_MIN: f64 = 20.0;
/// Seconds of an execution that fails: sessions in longer ones have lines of their own, so that fewer failures cannot take the time that is seen.
const FAILING_S: f64 = 3.0;
/// By how much one that has not ended is longer than the others.
const UNENDED_TIMES: f64 = 3.0;
/// A text of so many characters takes long to parse as well.
const TEXT_CHARS_MAX: usize = 3_000;

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
        let found = uncounted(case, time)?;
        let statement = found.statement(case);
        Some((found.share, statement))
    };
    counted(time).map(|(share, worst)| (share, worst.clone())).or_else(of_uncounted)
}

/// The statement with most of it where the server does not count it.
fn uncounted<'a>(case: &'a Case, time: &'a NodeTime) -> Option<Unplanned<'a>> {
    longest(case, time).or_else(|| hidden(case, time)).or_else(|| wordy::wordy(case, time))
}

/// Whether executions that fail, or are cancelled, and so are not counted however long they take, can be what so many sessions are seen in.
fn is_failing(case: &Case, time: &NodeTime, seen: f64) -> bool {
    let rolled_back = case.one("server", &time.node).and_then(|server| server.rate("xact_rollback"));
    rolled_back.unwrap_or(0.0) * FAILING_S >= seen
}

pub(super) fn planned(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        let Some((share, worst)) = counted(time) else {
            let found = uncounted(case, time);
            claims.extend(found.map(|found| of_uncounted(case, time, &found)));
            continue;
        };
        let (plan_ms, mean_ms) = (worst.plan_ms.unwrap_or(0.0), worst.mean_ms.unwrap_or(0.0));
        let forced = forces_custom_plans(case, time);
        let plan = case.at("plan", &time.node).find(|plan| plan.lines.word("query_id") == worst.query_id);
        let calls = worst.calls_per_s.unwrap_or(f64::MAX);
        let reason = reason(case, time, plan.as_ref(), worst, calls);
        let resets: Vec<String>;
        let (why, text, commands) = match (&forced, reason) {
            (Some((owner, reset)), _) => {
                let why = format!(
                    ": plan_cache_mode is force_custom_plan{owner}, so that prepared statements are planned at each execution"
                );
                (why, FORCED_REMEDY, vec![reset.as_str(), PREPARED])
            }
            (None, Some((why, text, commands))) => {
                resets = commands;
                (why, text, resets.iter().map(String::as_str).chain([PREPARED]).collect())
            }
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
            id,
            plan: Some(plan),
            planning_ms,
            mean_ms,
            calls_per_s,
            share,
            is_wordy: false,
        })
    });
    plans.max_by(|left, right| left.share.total_cmp(&right.share))
}

/// The same where no plan was made: sessions compute with a SELECT far longer than its executions take, and what they do before an execution is planning.
fn hidden<'a>(case: &'a Case, time: &'a NodeTime) -> Option<Unplanned<'a>> {
    let looks = case.looks(&time.node, &[case.span]).max(1.0);
    let statements = case.at("statement", &time.node).filter_map(|one| {
        let id = one.lines.word("query_id");
        let is_planned = || {
            let mut plans = case.at("plan", &time.node);
            plans.any(|plan| plan.lines.word("query_id") == id && plan.lines.last("planning_ms").is_some())
        };
        let (calls, total_ms) = (one.lines.sum("calls")?, one.lines.sum("total_ms")?);
        let (mean_ms, calls_per_s) = (total_ms / calls.max(1.0), one.lines.rate("calls")?);
        let seen = case.waits(&time.node)?.computing_with(id) / looks;
        let hidden_ms = seen / calls_per_s.max(f64::MIN_POSITIVE) * 1e3 - mean_ms;
        let share = (hidden_ms / 1e3 * calls_per_s / time.active).min(1.0);
        let is_much = hidden_ms >= HIDDEN_MS_MIN.max(mean_ms * HIDDEN_TIMES_MIN) && share >= PLAN_SHARE_MIN;
        if !is_much || calls < CALLS_MIN || is_failing(case, time, seen) || is_planned() {
            return None;
        }
        let text = case.query(id).unwrap_or_default();
        let is_short = text.len() < TEXT_CHARS_MAX && !case.is_own_statement(id);
        let is_read = || statement::parse(text).is_ok_and(|parsed| parsed.verb == Verb::Select);
        let is_unended = || ages(case, &time.node, id).any(|age| age * 1e3 > hidden_ms * UNENDED_TIMES);
        (is_short && is_read() && !is_unended()).then_some(Unplanned {
            id,
            plan: None,
            planning_ms: hidden_ms,
            mean_ms,
            calls_per_s,
            share,
            is_wordy: false,
        })
    });
    statements.max_by(|left, right| left.share.total_cmp(&right.share))
}

/// A statement with what planning it takes.
struct Unplanned<'a> {
    id: &'a str,
    /// Absent where sessions alone show it.
    plan: Option<Thing<'a>>,
    planning_ms: f64,
    mean_ms: f64,
    calls_per_s: f64,
    share: f64,
    /// Whether what takes long is its text.
    is_wordy: bool,
}

impl Unplanned<'_> {
    fn statement(&self, case: &Case) -> StatementTime {
        StatementTime {
            query_id: self.id.to_string(),
            text: case.query(self.id).unwrap_or_default().to_string(),
            ..StatementTime::default()
        }
    }
}

fn of_uncounted(case: &Case, time: &NodeTime, found: &Unplanned<'_>) -> Claim {
    let Unplanned { plan, planning_ms, mean_ms, calls_per_s, share, is_wordy, .. } = found;
    let statement = found.statement(case);
    let of_text = || {
        let chars = units::short(statement.text.len() as f64);
        (
            format!(": its text has {chars} characters or more, which are parsed anew each time"),
            TEXT_REMEDY,
            vec![],
        )
    };
    let reason =
        if *is_wordy { Some(of_text()) } else { reason(case, time, plan.as_ref(), &statement, *calls_per_s) };
    let (why, text, commands) = reason.unwrap_or((String::new(), PREPARE_REMEDY, vec![]));
    let each = units::us(planning_ms * 1e3);
    let which = match is_wordy {
        true => String::new(),
        false => format!(" ({})", plain(&statement.text, STATEMENT_CHARS)),
    };
    let proof = match plan {
        Some(_) => format!("watch planned it by EXPLAIN, twice in one session: {each}"),
        None => format!(
            "sessions compute for {each} more than each execution takes: a SELECT is parsed and planned before it is executed"
        ),
    };
    const COUNT_IT: &str =
        "ALTER SYSTEM SET pg_stat_statements.track_planning = on; SELECT pg_reload_conf();";
    let commands: Vec<&str> = commands.iter().map(String::as_str).chain([PREPARED, COUNT_IT]).collect();
    Claim::new(
        severity(*share),
        Level::CoOccurrence,
        format!(
            "{}: {} of the session time is {} of one statement{which}: it takes {each} to plan and {} to run, {} times a second{why}",
            time.node,
            units::percent(*share),
            if *is_wordy { "parsing and planning" } else { "planning" },
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
    .because(proof)
    .lacking("the time of planning as the server counts it: pg_stat_statements.track_planning = on")
    .remedy(text, &commands)
}

/// Why planning is long, as the end of a sentence, what helps, and the commands.
type Why = (String, &'static str, Vec<String>);

/// Settings that let the planner compare more orders of joined tables at once than by default, with the number of tables up to which it does.
fn raised(case: &Case, time: &NodeTime) -> Option<(f64, Vec<(&'static str, String)>)> {
    let number = |name: &str| case.setting(&time.node, name).and_then(|value| value.parse::<f64>().ok());
    let limits = ["join_collapse_limit", "from_collapse_limit"];
    let most = limits.into_iter().filter_map(number).fold(0.0, f64::max);
    if most <= COLLAPSE_LIMIT {
        return None;
    }
    // The genetic search takes over from geqo_threshold on.
    let is_off = case.setting(&time.node, "geqo") == Some("off");
    let threshold = number("geqo_threshold").unwrap_or(GEQO_THRESHOLD);
    let searched = if is_off { most } else { most.min(threshold - 1.0) };
    let differs = |name: &&'static str| match *name {
        "geqo" => is_off && most >= GEQO_THRESHOLD,
        "geqo_threshold" => !is_off && threshold > GEQO_THRESHOLD,
        limit => number(limit).is_some_and(|value| value > COLLAPSE_LIMIT),
    };
    let all = ["join_collapse_limit", "from_collapse_limit", "geqo", "geqo_threshold"];
    let set = all.into_iter().filter(differs);
    let set =
        set.map(|name| (name, case.setting(&time.node, name).unwrap_or_default().to_string())).collect();
    Some((searched, set))
}

/// Tables that are read about as often as a statement runs: those of a view are not in its text.
fn tables_read(case: &Case, time: &NodeTime, calls_per_s: f64) -> usize {
    let scans = |table: &Thing<'_>| {
        ["seq_scans", "index_scans"].iter().filter_map(|field| table.lines.rate(field)).sum::<f64>()
    };
    let is_as_often = |scans: f64| scans * 2.0 >= calls_per_s && scans <= calls_per_s * SCANS_PER_CALL_MAX;
    case.at("table", &time.node).filter(|table| is_as_often(scans(table))).count()
}

/// Scans of a table for each execution that joins it, those of the planner included, which looks up the ends of indexes again and again.
const SCANS_PER_CALL_MAX: f64 = 100.0;

/// The settings of the planner that make planning long for a statement that joins enough tables.
fn of_settings(case: &Case, time: &NodeTime, statement: &StatementTime, calls_per_s: f64) -> Option<Why> {
    let tables = joined_tables(&statement.text).max(tables_read(case, time, calls_per_s));
    let values = |all: &[(&str, String)]| {
        all.iter().map(|(name, value)| format!("{name} = {value}")).collect::<Vec<_>>().join(", ")
    };
    let reset = |all: &[(&str, String)]| {
        let resets = all.iter().map(|(name, _)| format!("ALTER SYSTEM RESET {name};"));
        resets.chain(["SELECT pg_reload_conf();".to_string()]).collect::<Vec<_>>().join(" ")
    };
    if let Some((most, set)) = raised(case, time).filter(|_| tables as f64 > COLLAPSE_LIMIT) {
        let why = format!(
            ": {} let the planner compare all orders of up to {} tables at once, and {tables} tables are read as often as it runs, or more often",
            values(&set),
            units::short(most)
        );
        return Some((why, ORDERS_REMEDY, vec![reset(&set)]));
    }
    let target =
        case.setting(&time.node, "default_statistics_target").and_then(|value| value.parse::<f64>().ok());
    let is_large = target.is_some_and(|target| target >= TARGET_MIN) && tables >= 2;
    is_large.then(|| {
        let set = [("default_statistics_target", units::short(target.unwrap_or_default()))];
        let why = format!(
            ": default_statistics_target is {}, and for each join the planner compares the lists of the most frequent values of both sides",
            set[0].1
        );
        (why, TARGET_REMEDY, vec![reset(&set), "ANALYZE;".to_string()])
    })
}

/// Defaults of join_collapse_limit and from_collapse_limit, and of geqo_threshold.
const COLLAPSE_LIMIT: f64 = 8.0;
const GEQO_THRESHOLD: f64 = 12.0;
/// A default_statistics_target from which on planning reads long lists of values.
const TARGET_MIN: f64 = 1_000.0;
const ORDERS_REMEDY: &str = "take the settings back (the number of orders grows with the factorial of the tables), or keep them for the session of the one \
    report that needs them (SET LOCAL); a prepared statement is planned once per session";
const OWN_TARGET_REMEDY: &str = "take the target back to the default, or to some hundreds, and analyse: plans then take a hundredth of the time; a prepared \
    statement is planned five times in each session before its plan is kept";
const TARGET_REMEDY: &str = "take the setting back, and give the few columns that need it a target of their own (ALTER TABLE ... ALTER COLUMN ... SET \
    STATISTICS); prepare the statement once per session";

/// What shows why: partitions in the plan, settings, or tables in the text.
fn reason(
    case: &Case,
    time: &NodeTime,
    plan: Option<&Thing<'_>>,
    statement: &StatementTime,
    calls_per_s: f64,
) -> Option<Why> {
    let number = |field: &str| plan.and_then(|plan| plan.lines.last(field)).unwrap_or(0.0);
    if let Some(why) = of_targets(case, time, statement) {
        return Some(why);
    }
    let (partitions, removed) = (number("partitions"), number("partitions_removed"));
    if partitions < PARTITIONS_MIN
        && let Some(why) = of_settings(case, time, statement, calls_per_s)
    {
        return Some(why);
    }
    let tables = joined_tables(&statement.text);
    if partitions >= PARTITIONS_MIN
        && removed > 0.0
        && let Some(clock) = clock_of(&statement.text)
    {
        let why = format!(
            ": all {} partitions are planned, and left out only when it runs: {clock} has no value before",
            units::short(partitions)
        );
        return Some((why, CLOCK_REMEDY, vec![]));
    }
    // Where all are left out, the key is compared with a parameter of our own plan: of a constant the planner knows the value.
    if partitions >= PARTITIONS_MIN && removed >= partitions {
        return (tables >= TABLES_MIN).then(|| (of_tables(tables), TABLES_REMEDY, vec![]));
    }
    if partitions >= PARTITIONS_MIN && removed > 0.0 {
        let why = format!(
            ": all {} partitions are planned, and only when it runs {} of them are left out, because the planner does not know the value of the condition",
            units::short(partitions),
            units::short(removed)
        );
        return Some((why, KEY_REMEDY, vec![]));
    }
    if partitions >= PARTITIONS_MIN {
        return Some((format!(": {} partitions are planned", units::short(partitions)), KEY_REMEDY, vec![]));
    }
    (tables >= TABLES_MIN).then(|| (of_tables(tables), TABLES_REMEDY, vec![]))
}

/// The time of the statement in its condition, as it is written.
fn clock_of(text: &str) -> Option<&'static str> {
    let text = lowered(text);
    let (_, behind) = text.split_once(" where ")?;
    let is_written = |clock: &&str| {
        let clock = clock.to_ascii_lowercase();
        let mut places = behind.match_indices(&clock).map(|(at, _)| &behind[..at]);
        places.any(|before| !before.ends_with(|c: char| c.is_alphanumeric() || c == '_'))
    };
    CLOCKS.into_iter().find(is_written)
}

/// Columns of the tables of a statement with so high a target of statistics of their own that the planner compares long lists of values.
fn of_targets(case: &Case, time: &NodeTime, statement: &StatementTime) -> Option<Why> {
    const BEGIN: &str = "statistics target ";
    let mut found: Vec<(f64, &str, &str)> = vec![];
    for fact in peculiar_of(case, &time.node, &statement.text) {
        let targets = fact.value.split("; ").find_map(|part| part.strip_prefix(BEGIN)).unwrap_or_default();
        for (target, column) in targets.split(", ").filter_map(|one| one.split_once(" for column ")) {
            let target = target.parse().unwrap_or(0.0);
            if target >= TARGET_MIN {
                found.push((target, &fact.name, column));
            }
        }
    }
    let named = statement::names(&statement.text);
    found.retain(|(_, _, column)| named.iter().any(|name| name == column.trim_matches('"')));
    let (largest, relation, column) = *found.first()?;
    let others = if found.len() > 1 { format!(", as {} more have", found.len() - 1) } else { String::new() };
    let why = format!(
        ": column {column} of {relation} has a statistics target of {}{others}, and the planner reads and compares lists of so many values each time",
        units::short(largest)
    );
    let reset = found.iter().map(|(_, relation, column)| {
        format!("ALTER TABLE {relation} ALTER COLUMN {column} SET STATISTICS -1;")
    });
    let mut tables: Vec<&str> = found.iter().map(|(_, relation, _)| *relation).collect();
    tables.dedup();
    let analyze = tables.iter().map(|relation| format!("ANALYZE {relation};"));
    Some((why, OWN_TARGET_REMEDY, vec![reset.chain(analyze).collect::<Vec<_>>().join(" ")]))
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

const TEXT_REMEDY: &str = "send values as array parameters instead of as text: for pairs of keys JOIN unnest($1, $2) AS k (a, b) in place of an OR of \
    conditions or a list of VALUES, or COPY them into a temporary table and join that; where the values come from another statement, join with that; and \
    prepare the statement, whose text is then always the same";
const KEY_REMEDY: &str = "compare the partition key with a constant or a parameter, of which the planner knows the value (instead of a function such as \
    current_setting), or name the partition: then one is planned; or prepare the statement once per session, so that a generic plan is kept";
const CLOCK_REMEDY: &str = "let the program compute the time and send it as a constant or a parameter: then the planner leaves out the other partitions; \
    or prepare the statement once per session, so that a generic plan is kept; or keep fewer partitions (months instead of days)";
const TABLES_REMEDY: &str = "prepare the statement once per session (a pooler must support prepared statements), so that the server can use a generic plan; \
    or join fewer tables: what every row has from a small table can be a column";
/// Tables of a statement whose orders take long to compare.
const TABLES_MIN: usize = 8;
/// Partitions that make planning long.
const PARTITIONS_MIN: f64 = 8.0;

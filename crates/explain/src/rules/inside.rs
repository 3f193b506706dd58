//! PLAN-41: statements that call a function, and what runs inside of it. What triggers do is PLAN-25, which reads the same sources: functions that the
//! server counts (track_functions), and statements that only run inside of others (pg_stat_statements.track = all).

use super::built_in::is_built_in;
use super::costly::{busy, in_extension, lowered, plain, severity};
use super::paste::literal;
use crate::case::{Case, Thing};
use crate::rule::Need::Field;
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use record::escape::one_line;
use record::finding::{Level, NodeTime, Severity, StatementTime};
use record::statement;
use record::watched::FUNCTION_TEXT;

pub(super) const RULES: &[Rule] = &[Rule {
    id: "PLAN-41",
    title: "the time is spent inside of a function",
    needs: &[Field("statement", "calls"), Field("server", "sessions_active")],
    limits: "20 % of the session time in a statement that only calls a function of the application; no longer low if a statement inside of it runs 100 times \
        for each call and takes half of its time (ours)",
    judge,
    links: &["https://www.postgresql.org/docs/current/plpgsql-control-structures.html"],
}];

/// The share of the session time of a statement.
const SHARE_MIN: f64 = 0.2;
/// Of the time of a call, that of a statement inside of it which is named.
const INNER_SHARE_MIN: f64 = 0.2;
/// Likewise, of one that makes the call slow.
const INNER_SHARE_MOST: f64 = 0.5;
/// How often such a statement runs for each call: it works row by row.
const TIMES_MIN: f64 = 100.0;
/// Two counters are not read at the same moment.
const NEAR: f64 = 1.1;
/// Characters of a statement in a claim, and in evidence.
const CLAIMED_CHARS: usize = 80;
const STATEMENT_CHARS: usize = 160;
/// The function that a statement consists of: `SELECT f(...)`, `SELECT * FROM f(...)`, `CALL f(...)`.
fn called(text: &str) -> Option<String> {
    let text = lowered(text);
    let rest = ["select * from ", "select ", "call "].iter().find_map(|begin| text.strip_prefix(begin))?;
    let (name, arguments) = rest.split_at(rest.find('(')?);
    let name = name.trim_end();
    let is_name = |c: char| c.is_alphanumeric() || "_.\"".contains(c);
    if name.is_empty() || !name.chars().all(is_name) || name.starts_with("pg_catalog.") {
        return None;
    }
    let mut depth = 0_usize;
    let end = arguments.char_indices().find(|(_, c)| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        depth == 0
    })?;
    // Another name for the result may follow, and nothing else.
    let after = arguments[end.0 + 1..].trim_end_matches(';').trim();
    let is_alias = after.split(' ').count() <= 2
        && after.chars().all(|c| is_name(c) || c == ' ')
        && !after.starts_with("from ");
    let bare = name.rsplit('.').next()?.trim_matches('"').to_string();
    (is_alias && !is_built_in(&bare)).then_some(bare)
}

/// A name without schema, quotes and arguments.
pub(super) fn bare(function: &str) -> &str {
    let name = function.split('(').next().unwrap_or(function);
    name.rsplit('.').next().unwrap_or(name).trim_matches('"')
}

/// What the server counted of a function: calls a second, and the share of the session time in it, with all that it calls.
pub(super) fn counted(case: &Case, time: &NodeTime, function: &str) -> Option<(f64, f64)> {
    let of_it =
        case.at("function", &time.node).find(|found| bare(found.lines.word("function")) == function)?;
    let (calls, ms) = (of_it.lines.rate("calls")?, of_it.lines.rate("total_ms")?);
    (time.active > 0.0).then_some((calls, (ms / 1e3 / time.active).min(1.0)))
}

/// What pg_stat_statements counted of a statement over the whole recording.
fn line<'a>(case: &'a Case, time: &'a NodeTime, statement: &StatementTime) -> Option<Thing<'a>> {
    let is_it = |line: &Thing<'_>| {
        line.lines.word("query_id") == statement.query_id && line.lines.word("database") == statement.database
    };
    case.at("statement", &time.node).find(is_it)
}

/// The statement inside of another one that takes the most of its time; `None` if none is known to run only inside of others.
pub(super) fn inner<'a>(case: &Case, time: &'a NodeTime, outer: &StatementTime) -> Option<&'a StatementTime> {
    let calls = outer.calls_per_s?;
    let is_inside = |other: &&StatementTime| {
        let is_nested = line(case, time, other).is_some_and(|line| line.lines.flag("nested") == Some(true));
        let fits =
            other.calls_per_s.is_some_and(|rate| rate * NEAR >= calls) && other.share <= outer.share * NEAR;
        is_nested && fits && other.database == outer.database && other.share >= outer.share * INNER_SHARE_MIN
    };
    time.statements.iter().filter(is_inside).max_by(|left, right| left.share.total_cmp(&right.share))
}

/// The commands in the recorded text of a function that work on whole tables and have no plan, such as REFRESH MATERIALIZED VIEW.
pub(super) fn commands_of(case: &Case, node: &str, function: &str) -> Vec<String> {
    let mut texts = case.facts(FUNCTION_TEXT).filter(|fact| fact.node == node && fact.name == function);
    texts.next().map(|fact| statement::commands(&fact.value)).unwrap_or_default()
}

/// What to do about a materialized view that is computed anew again and again.
pub(super) const REFRESH_APART: &str = "refresh the materialized view from a job of its own (every minute, CONCURRENTLY, which needs a unique index), and not \
    with each write: each refresh computes all of it; or keep the sums in a table that the trigger changes by the rows that are written";

/// Whether one of these commands is such.
pub(super) fn refreshes(commands: &[String]) -> bool {
    commands.iter().any(|command| lowered(command).starts_with("refresh materialized view"))
}

/// Triggers of a table with the functions that they call, as they are recorded: `trigger(function)`.
pub(super) fn triggers_of<'a>(table: &Thing<'a>) -> Vec<(&'a str, &'a str)> {
    let written = table.lines.word("trigger_functions");
    let of_one = |part: &'a str| {
        let (trigger, function) = part.split_once('(')?;
        Some((trigger, bare(function.trim_end_matches(')'))))
    };
    written.split("; ").filter_map(of_one).collect()
}

/// What makes the server count calls of functions, and shows them.
pub(super) const COUNT_FUNCTIONS: &str = "ALTER SYSTEM SET track_functions = 'pl'; SELECT pg_reload_conf(); -- then: SELECT * FROM \
    pg_stat_user_functions ORDER BY total_time DESC;";

/// What makes the server count what runs inside of statements, as far as it does not yet.
pub(super) fn to_count_it(case: &Case, node: &str) -> Vec<&'static str> {
    let mut commands = vec![];
    if case.setting(node, "pg_stat_statements.track") != Some("all") {
        commands.push("ALTER SYSTEM SET pg_stat_statements.track = 'all'; SELECT pg_reload_conf(); -- also counts statements inside of functions");
    }
    if !["pl", "all"].contains(&case.setting(node, "track_functions").unwrap_or("none")) {
        commands.push(COUNT_FUNCTIONS);
    }
    commands
}

/// Of functions that the server counted, the one with the most time of its own, and its share of the session time.
pub(super) fn costliest<'a>(case: &'a Case, time: &'a NodeTime) -> Option<(&'a str, f64)> {
    let of_one = |found: Thing<'a>| {
        let share = found.lines.rate("self_ms")? / 1e3 / time.active.max(f64::MIN_POSITIVE);
        Some((found.lines.word("function"), share.min(1.0)))
    };
    let all = case.at("function", &time.node).filter_map(of_one);
    all.max_by(|left, right| left.1.total_cmp(&right.1)).filter(|(_, share)| *share >= SHARE_MIN / 2.0)
}

/// From which share of them on the plans inside do not explain a statement.
const EXTENSION_MIN: f64 = 0.1;

fn judge(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        for statement in time.statements.iter().filter(|statement| statement.share >= SHARE_MIN) {
            let sent = if statement.outer.is_empty() { &statement.text } else { &statement.outer };
            if let Some(function) = called(sent) {
                claims.push(claim(case, time, statement, &function));
            }
        }
    }
    Answer::of(claims, || "statements that call a function, and what runs inside of them".to_string())
}

const AT_ONCE: &str = "replace the loop by one statement for all of its rows; a block with EXCEPTION inside of a loop also makes a subtransaction for each \
    row. The command shows the function";
const LOOK_INSIDE: &str = "look at what the function does: the statements inside of it can be improved as others are. The first command shows it";

/// What takes the time inside of a call, as the end of a claim. `times`: how often a statement runs in a loop for each call.
fn work_inside(
    outer: &StatementTime,
    inner: Option<&StatementTime>,
    times: Option<f64>,
    commands: &[String],
) -> String {
    match (inner, times) {
        (Some(inner), Some(times)) => format!(
            ", which works row by row: for each call it runs {} times {}",
            units::short(times),
            plain(&inner.text, CLAIMED_CHARS)
        ),
        (Some(inner), _) => format!(", most of it in {}", plain(&inner.text, CLAIMED_CHARS)),
        // The plans of the statements inside have no part in what it waits for.
        _ if in_extension(outer) >= EXTENSION_MIN => {
            format!(
                ", whose sessions wait in an extension (dblink, a foreign server) in {} of their samples",
                units::percent(in_extension(outer).min(1.0))
            )
        }
        _ if !outer.outer.is_empty() => {
            format!(", by the plans of its statements most of it in {}", plain(&outer.text, CLAIMED_CHARS))
        }
        _ if !commands.is_empty() => format!(", which runs {}", plain(&commands.join(", "), CLAIMED_CHARS)),
        _ => ": which statement inside of it takes the time is not counted".to_string(),
    }
}

fn claim(case: &Case, time: &NodeTime, outer: &StatementTime, function: &str) -> Claim {
    let inner = inner(case, time, outer);
    let times = inner.and_then(|inner| Some(inner.calls_per_s? / outer.calls_per_s?.max(f64::MIN_POSITIVE)));
    let is_loop = inner.is_some_and(|inner| inner.share >= outer.share * INNER_SHARE_MOST)
        && times.is_some_and(|times| times >= TIMES_MIN);
    let commands = commands_of(case, &time.node, function);
    let is_refresh = inner.is_none() && refreshes(&commands);
    let what = work_inside(outer, inner, times.filter(|_| is_loop), &commands);
    let to_count = to_count_it(case, &time.node);
    let source =
        format!("SELECT oid::regprocedure, prosrc FROM pg_proc WHERE proname = {};", literal(function));
    let typed: Vec<&str> = std::iter::once(source.as_str())
        .chain(to_count.iter().copied().filter(|_| inner.is_none()))
        .collect();
    Claim::new(
        if is_loop { severity(outer.share) } else { Severity::Low },
        if inner.is_some() { Level::DiscriminatingCounter } else { Level::CoOccurrence },
        format!(
            "{}: {} of the session time is calls of function {}(){what}",
            time.node,
            units::percent(outer.share),
            plain(function, CLAIMED_CHARS)
        ),
    )
    .on_node(&time.node)
    .during(case.one("server", &time.node).map(|server| server.ticks.window()))
    .number("share", outer.share)
    .number("calls_per_s", outer.calls_per_s.unwrap_or(0.0))
    .with(times, |claim, times| claim.number("inner_per_call", times))
    .because(format!("the statement: {}", one_line(&outer.text, STATEMENT_CHARS)))
    .with(inner, |claim, inner| {
        let figures = format!(
            "{} of the session time, {} times a second, inside of it: {}",
            units::percent(inner.share),
            units::short(inner.calls_per_s.unwrap_or(0.0)),
            one_line(&inner.text, STATEMENT_CHARS)
        );
        claim.because(figures)
    })
    .with(counted(case, time, function), |claim, (calls, share)| {
        claim.because(format!(
            "pg_stat_user_functions: {} calls a second of {function}(), {} of the session time",
            units::short(calls),
            units::percent(share)
        ))
    })
    .with(inner.is_none().then_some(()), |claim, ()| {
        claim.lacking("the statements of the function: pg_stat_statements.track = all counts them, track_functions = pl the functions that it calls")
    })
    .remedy(
        match is_loop {
            _ if is_refresh => REFRESH_APART,
            true => AT_ONCE,
            false => LOOK_INSIDE,
        },
        &typed,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_that_is_a_call_has_its_function() {
        for (text, function) in [
            ("SELECT renew($1)", Some("renew")),
            ("select * from shop.\"Visit\"($1, ($2))", Some("visit")),
            ("CALL pay($1);", Some("pay")),
            ("SELECT renew($1) AS done", Some("renew")),
            ("SELECT renew($1) FROM holder", None),
            ("SELECT renew($1), other($2)", None),
            ("SELECT pg_sleep($1)", None),
            ("SELECT count(*)", None),
            ("SELECT id FROM t WHERE lower(a) = $1", None),
            ("UPDATE t SET a = f($1)", None),
            ("SELECT ($1)", None),
            ("", None),
        ] {
            assert_eq!(called(text).as_deref(), function, "{text}");
        }
    }

    #[test]
    fn a_function_is_known_by_its_bare_name() {
        assert_eq!(
            (bare("shop.renew(integer)"), bare("\"Renew\""), bare("renew")),
            ("renew", "Renew", "renew")
        );
    }
}

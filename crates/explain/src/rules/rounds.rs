//! TXN-11: programs that fetch the rows of a result one by one, each by a statement of its own (N+1). Each execution is short, so no account of time
//! shows it:
//! what shows it is that one statement runs as often as another returns rows.

use super::costly::{busy, plain};
use crate::case::{Case, Thing};
use crate::rule::Need::Field;
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use record::finding::{Level, NodeTime, Severity, StatementTime};
use record::statement::{self, Use, Verb};

pub(super) const RULES: &[Rule] = &[Rule {
    id: "TXN-11",
    title: "the rows of a result are fetched one by one",
    needs: &[Field("statement", "calls"), Field("server", "sessions_active")],
    limits: "a statement for one row by its key runs 200 times a second or more, as often as another one returns rows (5 or more an execution, within a \
        tenth); \
        medium if it is 60 % of all executions and 1,000 a second; low if it is 90 % of them and runs 10 to 2,000 times for each of the next SELECT; or a \
        FETCH of one row, 200 times a second and 60 % of all executions: medium from 1,000 on, or if a session is at it at four of five \
        looks (ours)",
    judge: one_by_one,
    links: &[
        "https://www.postgresql.org/docs/current/functions-comparisons.html#FUNCTIONS-COMPARISONS-ANY-SOME",
    ],
}];

/// Executions a second of the statement for one row.
const CALLS_PER_S_MIN: f64 = 200.0;
/// Rows of the result.
const ROWS_MIN: f64 = 5.0;
/// How far the two rates may differ: they are counted together, but an execution may lie on the border.
const NEAR: f64 = 0.1;
/// A key finds no more.
const ROWS_OF_KEY_MAX: f64 = 1.1;
/// What belongs to one row of the result, as the lines of an order: more is a list of its own.
const ROWS_OF_CHILDREN_MAX: f64 = 50.0;
/// Of all executions.
const OF_CALLS_MIN: f64 = 0.6;
/// The same where no other statement returns as many rows.
const OF_CALLS_FEW_MIN: f64 = 0.9;
/// Executions for each one of the next statement: fewer are an application's own mix, more have nothing to do with it.
const EACH: std::ops::RangeInclusive<f64> = 10.0..=2_000.0;
/// Executions a second that are more than a hint.
const CALLS_PER_S_MEDIUM: f64 = 1_000.0;

/// Whether a statement looks up one row of one table by equality, or what belongs to one.
fn is_lookup(statement: &StatementTime) -> bool {
    let Ok(parsed) = statement::parse(&statement.text) else { return false };
    let by_key = |one: &statement::Condition| one.how == Use::Equality && one.inside.is_none();
    matches!(parsed.verb, Verb::Select | Verb::Update | Verb::Delete)
        && parsed.tables.len() == 1
        && !parsed.conditions.is_empty()
        && parsed.conditions.iter().all(by_key)
        && statement.rows.is_some_and(|rows| rows > 0.0 && rows <= ROWS_OF_CHILDREN_MAX)
}

/// Whether it finds one row at most.
fn is_by_key(statement: &StatementTime) -> bool {
    statement.rows.is_some_and(|rows| rows <= ROWS_OF_KEY_MAX)
}

/// A statement whose rows are looked up. It may take so little time that no account has it.
struct Parent {
    text: String,
    calls_per_s: f64,
    /// Of an execution.
    rows: f64,
}

/// All statements that return rows, those of one text as one.
fn parents(case: &Case, time: &NodeTime) -> Vec<Parent> {
    let mut found: Vec<Parent> = vec![];
    for one in case.at("statement", &time.node) {
        let Some(text) = case.query(one.lines.word("query_id")) else { continue };
        let (calls, rows) = (one.lines.rate("calls").unwrap_or(0.0), one.lines.rate("rows").unwrap_or(0.0));
        match found.iter_mut().find(|other| other.text == text) {
            Some(same) => {
                let all = same.rows * same.calls_per_s + rows;
                same.calls_per_s += calls;
                same.rows = all / same.calls_per_s.max(f64::MIN_POSITIVE);
            }
            None => found.push(Parent {
                text: text.to_string(),
                calls_per_s: calls,
                rows: rows / calls.max(f64::MIN_POSITIVE),
            }),
        }
    }
    found.retain(|one| one.rows >= ROWS_MIN && reads_a_table(&one.text));
    found
}

/// The one that returns as many rows a second as the other runs.
fn parent<'a>(all: &'a [Parent], lookup: &StatementTime) -> Option<&'a Parent> {
    let wanted = lookup.calls_per_s?;
    let fits = |one: &&Parent| {
        one.text != lookup.text && (one.calls_per_s * one.rows - wanted).abs() <= wanted * NEAR
    };
    all.iter().find(fits)
}

/// A statement for one row that is nearly all that runs, many times for each execution of another one: a program that walks through a list it has from there.
fn among_few(case: &Case, time: &NodeTime, lookup: &StatementTime, all: f64) -> Option<Claim> {
    let calls = lookup.calls_per_s?;
    let others = case.at("statement", &time.node).filter(|one| one.lines.word("query_id") != lookup.query_id);
    let next = others
        .filter(|one| case.query(one.lines.word("query_id")).is_some_and(reads_a_table))
        .filter_map(|one| one.lines.rate("calls"))
        .max_by(f64::total_cmp)?;
    let each = calls / next.max(f64::MIN_POSITIVE);
    if calls < CALLS_PER_S_MEDIUM || calls < all * OF_CALLS_FEW_MIN || !EACH.contains(&each) {
        return None;
    }
    Some(
        Claim::new(
            Severity::Low,
            Level::CoOccurrence,
            format!(
                "{}: rows may be fetched one by one (N+1): a statement for one row is {} of all executions, {} for each execution of the next one: {}",
                time.node,
                units::percent(calls / all),
                units::short(each),
                plain(&lookup.text, 80)
            ),
        )
        .on_node(&time.node)
        .during(case.one("server", &time.node).map(|server| server.ticks.window()))
        .number("calls_per_s", calls)
        .number("of_all_calls", calls / all)
        .because(format!("{} executions a second: each costs a round trip, parsing and planning, however short it is", units::short(calls)))
        .lacking("the program: one that looks up single rows by design does the same")
        .remedy(
            "if it walks through a list, fetch the rows with one statement: a join, or a list of keys (= ANY of an array); object \
             mappers call it eager loading or a batch size",
            &["SELECT queryid, calls, rows, left(query, 80) AS query FROM pg_stat_statements ORDER BY calls DESC LIMIT 5;"],
        ),
    )
}

/// Whether a text is a SELECT from a table.
fn reads_a_table(text: &str) -> bool {
    statement::parse(text).is_ok_and(|parsed| parsed.verb == Verb::Select && !parsed.tables.is_empty())
}

fn one_by_one(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        let rates = case.at("statement", &time.node).filter_map(|statement| statement.lines.rate("calls"));
        let all: f64 = rates.sum::<f64>().max(f64::MIN_POSITIVE);
        let parents = parents(case, time);
        let lookups = time
            .statements
            .iter()
            .filter(|one| one.calls_per_s.is_some_and(|calls| calls >= CALLS_PER_S_MIN));
        // An object mapper that saves a list reads and writes each of its rows: these belong together.
        let mut rounds: Vec<(&Parent, Vec<&StatementTime>)> = vec![];
        for lookup in lookups.filter(|one| is_lookup(one)) {
            let Some(parent) = parent(&parents, lookup) else {
                let is_alone = is_by_key(lookup) && !is_write(lookup);
                claims.extend(among_few(case, time, lookup, all).filter(|_| is_alone));
                continue;
            };
            match rounds.iter_mut().find(|(other, _)| other.text == parent.text) {
                Some((_, of_it)) => of_it.push(lookup),
                None => rounds.push((parent, vec![lookup])),
            }
        }
        claims.extend(rounds.iter().map(|(parent, of_it)| of_round(case, time, parent, of_it, all)));
        claims.extend(time.statements.iter().filter_map(|one| of_cursor(case, time, one, all)));
    }
    for node in case.nodes() {
        if claims.is_empty() {
            claims
                .extend(case.at("session", node).filter_map(|session| of_seen_cursor(case, node, &session)));
        }
    }
    Answer::of(claims, || {
        "how often statements for one row run, against the rows that others return".to_string()
    })
}

/// A cursor whose rows are fetched one after the other.
fn of_cursor(case: &Case, time: &NodeTime, fetch: &StatementTime, all: f64) -> Option<Claim> {
    let is_fetch =
        fetch.text.split_whitespace().next().is_some_and(|verb| verb.eq_ignore_ascii_case("fetch"));
    let calls =
        fetch.calls_per_s.filter(|calls| *calls >= CALLS_PER_S_MIN && *calls >= all * OF_CALLS_MIN)?;
    let is_single = fetch.rows.is_some_and(|rows| rows <= ROWS_OF_KEY_MAX);
    if !is_fetch || !is_single {
        return None;
    }
    let claim = Claim::new(
        if calls >= CALLS_PER_S_MEDIUM { Severity::Medium } else { Severity::Low },
        Level::DiscriminatingCounter,
        format!(
            "{}: {} of all executions fetch one row of a cursor, {} times a second: {}",
            time.node,
            units::percent(calls / all),
            units::short(calls),
            plain(&fetch.text, 80)
        ),
    );
    Some(
        claim
            .on_node(&time.node)
            .during(case.one("server", &time.node).map(|server| server.ticks.window()))
            .number("calls_per_s", calls)
            .number("of_all_calls", calls / all)
            .because("each costs a round trip between client and server, which is far more than the row: the server counts only the execution")
            .remedy(
                "fetch many rows at a time (FETCH 1000, the fetch size of the driver), or read the result without a cursor where it fits into memory",
                &["SELECT queryid, calls, rows, left(query, 80) AS query FROM pg_stat_statements WHERE query ILIKE 'fetch%' ORDER BY calls DESC LIMIT 5;"],
            ),
    )
}

/// A session that is at one FETCH of a row after the other, whenever it is looked at: what a driver prepares is counted once for all of its executions, so
/// their number is not known.
fn of_seen_cursor(case: &Case, node: &str, session: &Thing<'_>) -> Option<Claim> {
    let (lines, server) = (session.lines, case.one("server", node)?);
    let ages = lines.series("state_age_s")?;
    let looks = server.series("sessions_active")?.readings();
    let is_always = ages.readings() >= LOOKS_MIN && ages.readings() as f64 >= looks as f64 * OF_LOOKS_MIN;
    // Between two of them it is idle for a moment.
    let is_quick = lines.max("state_age_s")? <= PAUSE_S_MAX && lines.max("xact_age_s")? >= LONG_S_MIN;
    let query = lines.word("query");
    if !is_always || !is_quick || !is_fetch_of_one(query) {
        return None;
    }
    let application = plain(lines.word("application"), 40);
    Some(
        Claim::new(
            Severity::Medium,
            Level::CoOccurrence,
            format!(
                "{node}: session {} of {application} fetches one row of a cursor after the other, for {}: {}",
                session.name,
                units::seconds(lines.max("xact_age_s").unwrap_or(0.0)),
                plain(query, 80)
            ),
        )
        .on_node(node)
        .during([lines.ticks.window()])
        .number("looks", ages.readings() as f64)
        .because(format!("at {} of {looks} looks it was at it, and for less than {} each time", ages.readings(), units::seconds(PAUSE_S_MAX)))
        .because("each costs a round trip between client and server, which is far more than the row")
        .lacking("how many rows a second: of what a driver prepares, the server counts no single FETCH")
        .remedy(
            "fetch many rows at a time (FETCH 1000, the fetch size of the driver), or read the result without a cursor where it fits into memory",
            &["SELECT pid, application_name, state, now() - xact_start AS open, query FROM pg_stat_activity WHERE query ILIKE 'fetch%';"],
        ),
    )
}

/// `FETCH`, `FETCH NEXT`, `FETCH 1`, `FETCH FORWARD 1` of a cursor.
fn is_fetch_of_one(query: &str) -> bool {
    let text = query.trim().trim_end_matches(';').to_ascii_lowercase();
    let words: Vec<&str> = text.split_whitespace().collect();
    match words.as_slice() {
        ["fetch", _] | ["fetch", "next" | "1" | "forward" | "from" | "in", ..] => {
            !words.iter().any(|word| *word == "all" || word.parse::<u64>().is_ok_and(|rows| rows > 1))
        }
        _ => false,
    }
}

/// Looks that say something, and of all looks those at which it is at it.
const LOOKS_MIN: u64 = 5;
const OF_LOOKS_MIN: f64 = 0.8;
/// Seconds between two of them at most, and of the whole at least.
const PAUSE_S_MAX: f64 = 1.0;
const LONG_S_MIN: f64 = 3.0;

fn is_write(statement: &StatementTime) -> bool {
    statement::parse(&statement.text).is_ok_and(|parsed| parsed.verb != Verb::Select)
}

/// Statements for one row each that run as often as another one returns rows.
fn of_round(case: &Case, time: &NodeTime, parent: &Parent, of_it: &[&StatementTime], all: f64) -> Claim {
    let calls: f64 = of_it.iter().filter_map(|one| one.calls_per_s).sum();
    let rows = parent.rows;
    let is_most = calls >= all * OF_CALLS_MIN && calls >= CALLS_PER_S_MEDIUM;
    let writes = of_it.iter().any(|one| is_write(one));
    let each = units::short(rows * of_it.len() as f64);
    let done = if writes { "fetched and written" } else { "fetched" };
    let shown = of_it.iter().find(|one| is_write(one)).or_else(|| of_it.first());
    let remedy = if writes {
        "write only what has changed, and all of it with one statement: UPDATE ... FROM (VALUES ...) or unnest of arrays, INSERT ... ON CONFLICT DO UPDATE, or \
         at least batches of the driver (pipelining); fetch the rows with one statement"
    } else {
        "fetch the rows with one statement: a join with the first, or a list of keys (= ANY of an array); object mappers call it eager loading or a batch size"
    };
    Claim::new(
        if is_most { Severity::Medium } else { Severity::Low },
        Level::CoOccurrence,
        format!(
            "{}: the rows of a result are {done} one by one (N+1): {} statements a second for one row or what belongs to it, {each} for each execution of \
                another: {}",
            time.node,
            units::short(calls),
            plain(shown.map_or("", |one| one.text.as_str()), 80)
        ),
    )
    .on_node(&time.node)
    .during(case.one("server", &time.node).map(|server| server.ticks.window()))
    .number("calls_per_s", calls)
    .number("of_all_calls", calls / all)
    .because(format!(
        "the statement that returns the rows, {} times a second: {}",
        units::short(parent.calls_per_s),
        plain(&parent.text, 200)
    ))
    .because(format!(
        "{} of all executions are for these single rows: each costs a round trip, parsing and planning, however short it is",
        units::percent(calls / all)
    ))
    .lacking("the program: that they belong together is concluded from their numbers")
    .remedy(
        remedy,
        &["SELECT queryid, calls, rows, left(query, 80) AS query FROM pg_stat_statements ORDER BY calls DESC LIMIT 5;"],
    )
}

//! SES-08: programs that ask again and again for work that is not there.

use super::costly::{busy, in_a_line, lowered, plain};
use crate::case::{Case, Thing};
use crate::node_time;
use crate::rule::Need::Field;
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use record::finding::{Level, Severity, StatementTime};
use record::statement::{self, Verb};

pub(super) const RULES: &[Rule] = &[Rule {
    id: "SES-08",
    title: "a program asks again and again, and finds nothing",
    needs: &[Field("statement", "calls"), Field("statement", "rows"), Field("server", "sessions_active")],
    limits: "a SELECT, UPDATE or DELETE of a table that runs 500 times a second, 40 % of all statements, and returns or changes one row in 1,000 executions \
        or fewer (20 with an order or a limit); high with 1,000 a second and 70 %, or with 30 % of the session time waiting for a CPU; low without an order or \
        a limit, where it compares a column with a value; the same of a SELECT that tries to get an advisory lock, whatever it returns: never high (ours)",
    judge,
    links: &["https://www.postgresql.org/docs/current/sql-notify.html"],
}];

/// Executions a second.
const CALLS_PER_S_MIN: f64 = 500.0;
/// Of all statements.
const OF_CALLS_MIN: f64 = 0.4;
/// Rows for each execution.
const ROWS_MAX: f64 = 0.001;
/// The same of one that takes the next row of an order: now and then there is work.
const ROWS_OF_QUEUE_MAX: f64 = 0.02;
/// From here on it is high.
const CALLS_PER_S_HIGH: f64 = 1_000.0;
/// The share of its calls; with sessions that wait for a CPU, [`OF_CALLS_MIN`] is enough.
const OF_CALLS_HIGH: f64 = 0.7;
const WAITING_HIGH: f64 = 0.3;
/// Characters of a statement in a claim.
const STATEMENT_CHARS: usize = 100;

/// What the program has sent: of a function or procedure a statement inside of it is shown, and the rows are those of the call.
fn sent(statement: &StatementTime) -> &str {
    if statement.outer.is_empty() { &statement.text } else { &statement.outer }
}

/// Whether a statement takes the next row of an order, as the worker of a queue does, or compares no column with a value: one that compares a key with
/// changing values looks the same as one that asks for a state.
fn takes_the_next(text: &str) -> bool {
    let text = lowered(text);
    let ordered = [" limit ", " order by ", "skip locked", " fetch first "];
    ordered.iter().any(|words| text.contains(words)) || !text.contains("= $") && !text.contains("=$")
}

/// Whether a statement looks into tables, so that no row means that nothing was found.
fn looks(text: &str) -> bool {
    let verbs = [Verb::Select, Verb::Update, Verb::Delete];
    statement::parse(text).is_ok_and(|parsed| verbs.contains(&parsed.verb) && !parsed.tables.is_empty())
}

/// Whether a statement only tries to get an advisory lock: its one row holds whether it got it.
fn tries_a_lock(text: &str) -> bool {
    text.contains("pg_try_advisory")
        && statement::parse(text).is_ok_and(|parsed| parsed.verb == Verb::Select && parsed.tables.is_empty())
}

fn judge(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        let rate = |query_id: &str, field: &str| {
            let lines = case
                .at("statement", time.node.as_str())
                .filter(|line| line.lines.word("query_id") == query_id);
            lines.filter_map(|line| line.lines.rate(field)).sum::<f64>()
        };
        // What begins and ends transactions belongs to their work.
        let is_work =
            |line: &Thing<'_>| !case.query(line.lines.word("query_id")).is_some_and(statement::is_frame);
        let all = case.at("statement", time.node.as_str()).filter(is_work);
        let all: f64 = all.filter_map(|line| line.lines.rate("calls")).sum();
        let Some(server) = case.one("server", &time.node) else { continue };
        for one in &time.statements {
            let (calls, rows) = (rate(&one.query_id, "calls"), rate(&one.query_id, "rows"));
            let share = calls / all.max(f64::MIN_POSITIVE);
            let tries = tries_a_lock(sent(one));
            let is_queue = takes_the_next(sent(one));
            let most = if is_queue { ROWS_OF_QUEUE_MAX } else { ROWS_MAX };
            let finds_nothing = tries || rows <= calls * most && looks(sent(one));
            if calls < CALLS_PER_S_MIN || share < OF_CALLS_MIN || !finds_nothing {
                continue;
            }
            if tries {
                claims.push(of_lock(&time.node, one, calls, share).during([server.ticks.window()]));
                continue;
            }
            let is_many = calls >= CALLS_PER_S_HIGH
                && (share >= OF_CALLS_HIGH
                    || node_time::share_of_part(time, node_time::FOR_CPU) >= WAITING_HIGH);
            claims.push(
                of_nothing(&time.node, one, (calls, share), (is_queue, is_many))
                    .during([server.ticks.window()]),
            );
        }
    }
    Answer::of(claims, || "rows of the most frequent statements".to_string())
}

/// A claim with what it has in common with others about a statement that is sent so often.
fn with_figures(claim: Claim, node: &str, one: &StatementTime, (calls, share): (f64, f64)) -> Claim {
    claim
        .on_node(node)
        .number("calls_per_s", calls)
        .number("share_of_calls", share)
        .because(format!("the statement: {}", in_a_line(one)))
        .because("each execution is short; most of what it costs is the way between client and server, and the CPU time of both")
}

/// The claim about a statement that finds nothing: whether it takes the next row of an order, and whether it is sent very often.
fn of_nothing(
    node: &str,
    one: &StatementTime,
    (calls, share): (f64, f64),
    (is_queue, is_many): (bool, bool),
) -> Claim {
    let as_what = if is_queue {
        ", as a program does that polls without a pause"
    } else {
        ": a program polls without a pause, or looks for keys that are mostly not there"
    };
    let claim = Claim::new(
        match (is_queue, is_many) {
            (false, _) => Severity::Low,
            (true, false) => Severity::Medium,
            (true, true) => Severity::High,
        },
        Level::DiscriminatingCounter,
        format!(
            "{}: {} of all statements are one that finds nothing, {} times a second{as_what}: {}",
            node,
            units::percent(share),
            units::short(calls),
            plain(&one.text, STATEMENT_CHARS)
        ),
    );
    with_figures(claim, node, one, (calls, share))
        .lacking("whether its values differ each time: searches for keys that are not there look the same, and need no pause")
        .not("statements that return nothing by their kind (INSERT, SET): this one looks for rows in a table")
        .remedy(
        "let the workers wait between two attempts, longer after each that finds nothing; or let the program that adds work wake them: \
         LISTEN and NOTIFY",
        &[
            "SELECT queryid, calls, rows, left(query, 80) AS query FROM pg_stat_statements WHERE rows = 0 ORDER BY calls DESC LIMIT 5;",
            "LISTEN work; -- in the worker; NOTIFY work; -- in the transaction that adds a row",
        ],
    )
}

/// The claim about attempts to get an advisory lock.
fn of_lock(node: &str, one: &StatementTime, calls: f64, share: f64) -> Claim {
    let claim = Claim::new(
        Severity::Medium,
        Level::CoOccurrence,
        format!(
            "{node}: {} of all statements are an attempt to get an advisory lock, {} times a second, as programs do that try again without a pause: {}",
            units::percent(share),
            units::short(calls),
            plain(&one.text, STATEMENT_CHARS)
        ),
    );
    with_figures(claim, node, one, (calls, share))
        .lacking("whether the attempts get the lock: they return it, and no counter has it")
        .remedy(
        "wait for the lock instead of asking (pg_advisory_lock, with lock_timeout), or pause between two attempts",
        &["SELECT l.pid, l.granted, a.application_name, a.state, l.classid, l.objid FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid WHERE l.locktype \
            = 'advisory' LIMIT 20;"],
    )
}

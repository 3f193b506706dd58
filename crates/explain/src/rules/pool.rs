//! SES-06: statements that a pool or a driver sends beside the work: tests of connections, settings, and what resets a session.

mod savepoints;

use super::costly::{lowered, plain};
use super::paste::literal;
use crate::case::Case;
use crate::node_time;
use crate::rule::Need::Field;
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use record::finding::{Level, NodeTime, Severity};

pub(super) const RULES: &[Rule] = &[Rule {
    id: "SES-06",
    title: "a pool or a driver sends statements beside the work",
    needs: &[Field("statement", "calls"), Field("server", "sessions_active")],
    limits: "100 tests, settings and resets of sessions a second (SELECT 1, SET, SHOW, RESET, DISCARD), a quarter of all statements or 5 % of the session \
        time; medium from 40 % or 10 % on; or 100 savepoints a second, 0.4 for each statement that works; medium from 30 % of all statements on, high from \
        half (ours)",
    judge,
    links: &["https://www.pgbouncer.org/config.html#server_reset_query"],
}];

/// Such statements a second.
const PER_S_MIN: f64 = 100.0;
/// Of all statements: each is a round trip.
const CALLS_SHARE_MIN: f64 = 0.25;
/// Likewise, from where on it is medium.
const CALLS_SHARE_MEDIUM: f64 = 0.4;
/// Of the session time.
const TIME_SHARE_MIN: f64 = 0.05;
/// Likewise.
const TIME_SHARE_MEDIUM: f64 = 0.1;
/// Kinds that are named.
const NAMED_MAX: usize = 4;
/// Queries without a table by which drivers test a connection or look around.
const TESTS: [&str; 8] = [
    "select 1",
    "select $1",
    "select version()",
    "select current_schema()",
    "select current_database()",
    "select pg_is_in_recovery()",
    "select pg_advisory_unlock_all()",
    "select now()",
];
/// What begins and ends transactions is no work of its own either, and belongs to it.
const FRAMES: [&str; 8] = ["begin", "commit", "rollback", "start", "end", "savepoint", "release", "abort"];

/// The text in lower case, in one line, without the comments in front of it.
fn normal(text: &str) -> String {
    let mut rest = text.trim_start();
    while let Some(inside) = rest.strip_prefix("/*") {
        let Some((_, after)) = inside.split_once("*/") else { break };
        rest = after.trim_start();
    }
    lowered(rest).trim_end_matches([';', ' ']).to_string()
}

/// How a statement is named that does nothing for the application; `None` for work.
fn beside_work(text: &str) -> Option<String> {
    let text = normal(text);
    let words: Vec<&str> = text.split(' ').collect();
    let is_test = TESTS.contains(&text.as_str())
        || text.strip_prefix("select $1 as ").is_some_and(|name| !name.contains(' '));
    match words.as_slice() {
        _ if is_test => Some(text.replace("$1", "1").replacen("select", "SELECT", 1)),
        ["discard", what] => Some(format!("DISCARD {}", what.to_ascii_uppercase())),
        ["deallocate" | "close", "all"] | ["unlisten", "*"] => Some(text.to_ascii_uppercase()),
        ["reset", ..] => Some(format!("RESET {}", words.get(1).unwrap_or(&"").to_ascii_uppercase())),
        ["show", ..] => Some("SHOW".to_string()),
        // A setting of one transaction is part of its work, as its isolation level is.
        ["set", "local" | "transaction" | "constraints", ..] => None,
        ["set", "session", "characteristics", ..] => Some("SET SESSION CHARACTERISTICS".to_string()),
        ["set", "session", name, ..] | ["set", name, ..] => {
            Some(format!("SET {}", name.split('=').next().unwrap_or_default()))
        }
        _ => None,
    }
}

/// What a node's statements consist of.
#[derive(Debug, Default)]
struct Mix {
    /// Statements beside the work, by their names: calls and milliseconds.
    beside: Vec<(String, f64, f64)>,
    /// All statements, and those that do work.
    calls: f64,
    working: f64,
}

impl Mix {
    fn of(case: &Case, node: &str) -> Mix {
        let mut mix = Mix::default();
        for line in case.at("statement", node) {
            let text = case.query(line.lines.word("query_id")).unwrap_or_default();
            if case.is_own_statement(line.lines.word("query_id")) {
                continue;
            }
            let sum = |field: &str| line.lines.sum(field).unwrap_or(0.0);
            mix.calls += sum("calls");
            let Some(name) = beside_work(text) else {
                let first = normal(text).split(' ').next().unwrap_or_default().to_string();
                mix.working += if FRAMES.contains(&first.as_str()) { 0.0 } else { sum("calls") };
                continue;
            };
            match mix.beside.iter_mut().find(|(other, _, _)| *other == name) {
                Some((_, calls, ms)) => (*calls, *ms) = (*calls + sum("calls"), *ms + sum("total_ms")),
                None => mix.beside.push((name, sum("calls"), sum("total_ms"))),
            }
        }
        mix.beside.sort_by(|left, right| right.1.total_cmp(&left.1));
        mix
    }

    fn has(&self, word: &str) -> bool {
        self.beside.iter().any(|(name, _, _)| name.starts_with(word))
    }
}

fn judge(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in node_time::all(case) {
        let mix = Mix::of(case, &time.node);
        let covered_s = node_time::polled_s(case, &time.node, &node_time::windows(case));
        claims.extend(savepoints::claim(case, time, covered_s));
        let calls: f64 = mix.beside.iter().map(|(_, calls, _)| calls).sum();
        let ms: f64 = mix.beside.iter().map(|(_, _, ms)| ms).sum();
        if covered_s <= 0.0 || calls / covered_s < PER_S_MIN {
            continue;
        }
        let of_calls = calls / mix.calls;
        let of_time = if time.active > 0.0 { ms / 1e3 / covered_s / time.active } else { 0.0 };
        if of_calls >= CALLS_SHARE_MIN || of_time >= TIME_SHARE_MIN {
            claims.push(claim(case, time, &mix, (calls / covered_s, of_calls, of_time)));
        }
    }
    Answer::of(claims, || "tests, settings and resets of sessions among the statements".to_string())
}

/// `figures`: such statements a second, and their shares of all statements and of the session time.
fn claim(case: &Case, time: &NodeTime, mix: &Mix, figures: (f64, f64, f64)) -> Claim {
    let (per_s, of_calls, of_time) = figures;
    let names: Vec<&str> = mix.beside.iter().take(NAMED_MAX).map(|(name, _, _)| name.as_str()).collect();
    let is_medium = of_calls >= CALLS_SHARE_MEDIUM || of_time >= TIME_SHARE_MEDIUM;
    let all: f64 = mix.beside.iter().map(|(_, calls, _)| calls).sum();
    let per_work = all / mix.working.max(1.0);
    let rtt = case.one("server", &time.node).and_then(|server| server.mean("rtt_us"));
    let mut claim = Claim::new(
        if is_medium { Severity::Medium } else { Severity::Low },
        Level::DiscriminatingCounter,
        format!(
            "{}: {} of the statements do no work, but test, set or reset a session for a pool: {}; {} a second, {} for each statement that works",
            time.node,
            units::percent(of_calls),
            plain(&names.join(", "), 200),
            units::short(per_s),
            units::short(per_work)
        ),
    )
    .on_node(&time.node)
    .during(case.one("server", &time.node).map(|server| server.ticks.window()))
    .number("calls_share", of_calls)
    .number("calls_per_s", per_s)
    .number("calls_per_working_statement", per_work)
    .number("time_share", of_time)
    .because(format!("they take {} of the session time; for the client each is a round trip", units::percent(of_time)))
    .with(rtt, |claim, rtt| {
        claim.because(format!("a round trip takes {} from here: from the application it may take longer", units::us(rtt)))
    });
    for (name, calls, _) in mix.beside.iter().take(NAMED_MAX) {
        claim = claim.because(format!("{name}: {} of all statements", units::percent(calls / mix.calls)));
    }
    if mix.has("DISCARD ALL") || mix.has("DISCARD PLANS") || mix.has("DEALLOCATE") {
        claim = claim
            .because("it also drops the prepared statements of the session: each is parsed and planned again")
            .lacking("how long that takes: pg_stat_statements.track_planning counts planning; no view counts parsing");
    }
    claim
        .not("work of the application: none of them names a table")
        .remedy(remedy(mix), &[&who(), "SELECT application_name, usename, client_addr, count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' \
            GROUP BY 1, 2, 3 ORDER BY 4 DESC LIMIT 10;"])
}

/// Lists them with their numbers.
fn who() -> String {
    let pattern = r"^\s*(discard|reset|show|set\s|deallocate all|unlisten|close all|select\s+(\$1|1|version\(\)|now\(\))\s*$)";
    format!(
        "SELECT calls, round(total_exec_time) AS ms, left(query, 60) AS query FROM pg_stat_statements WHERE query ~* {} ORDER BY calls DESC LIMIT 10;",
        literal(pattern)
    )
}

fn remedy(mix: &Mix) -> String {
    let mut parts = vec![];
    if mix.has("DISCARD")
        || mix.has("RESET")
        || mix.has("DEALLOCATE")
        || mix.has("UNLISTEN")
        || mix.has("CLOSE")
    {
        parts.push(
            "reset a session only when it goes to another application (pgbouncer: pool_mode = transaction needs no server_reset_query, and \
             server_reset_query_always = 0; Npgsql: No Reset On Close=true)",
        );
    }
    if mix.has("SELECT") || mix.has("SHOW") {
        parts.push(
            "test a connection when it fails or has been idle, and not before each use (no connectionTestQuery with HikariCP; testOnBorrow=false with \
             testWhileIdle=true for DBCP and Tomcat; pool_pre_ping=False with pool_recycle for SQLAlchemy; pgbouncer: server_check_delay)",
        );
    }
    if mix.has("SET") {
        parts.push("give settings once, in the connection string or with ALTER ROLE ... SET, instead of before each transaction");
    }
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_pool_sends_is_no_work() {
        for (text, name) in [
            ("SELECT $1", Some("SELECT 1")),
            ("/* ping */ SELECT 1;", Some("SELECT 1")),
            ("DISCARD ALL", Some("DISCARD ALL")),
            ("reset all", Some("RESET ALL")),
            ("SET application_name = $1", Some("SET application_name")),
            ("SET search_path=a, b", Some("SET search_path")),
            ("set session statement_timeout to $1", Some("SET statement_timeout")),
            ("SHOW transaction_read_only", Some("SHOW")),
            ("SET LOCAL app.tenant = $1", None),
            ("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE", None),
            ("SELECT $1 FROM orders", None),
            ("SELECT n FROM basket WHERE id = $1", None),
            ("BEGIN", None),
            ("", None),
        ] {
            assert_eq!(beside_work(text).as_deref(), name, "{text}");
        }
    }
}

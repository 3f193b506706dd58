//! TXN-09: programs that send the statements of a transaction one by one, and those that are far from the server: it waits for them, with their locks and
//! snapshots.

use crate::case::{Case, Thing};
use crate::rule::{Answer, Claim};
use crate::rules::costly::plain;
use crate::series::Series;
use crate::statistics;
use crate::units;
use record::finding::{Level, Severity};

/// Of the time of transactions, what many small statements execute at most: the rest is spent on sending, reading and planning them.
const EXECUTING_MAX: f64 = 1.0 / 3.0;
/// Sessions that wait for a statement, of those that are active.
const IDLE_SHARE_MIN: f64 = 0.25;
/// Statements a second, so that they are many.
const CALLS_PER_S_MIN: f64 = 1_000.0;
/// Statements of a transaction.
const STATEMENTS_MIN: f64 = 10.0;
/// Sessions that wait for the next statement of their transaction.
const IDLE_MIN: f64 = 0.3;
/// Sessions that wait so for a client that is away ...
const AWAY_SESSIONS_MIN: f64 = 2.0;
/// ... as a multiple of those that are active ...
const AWAY_FACTOR_MIN: f64 = 5.0;
/// ... for so long after each statement ...
const AWAY_MS_MIN: f64 = 5.0;
/// ... of so many ...
const AWAY_STATEMENTS_MIN: f64 = 2.0;
/// ... in transactions of these seconds at most: others are left open.
const SHORT_S: f64 = 5.0;
/// A round trip from which on it is a network's.
const ROUND_TRIP_US: f64 = 300.0;

/// Sessions that plan and execute statements, on average.
fn executing(case: &Case, node: &str) -> f64 {
    let of_one = |statement: Thing<'_>| {
        Some(statement.lines.rate("total_ms")? + statement.lines.rate("plan_ms").unwrap_or(0.0))
    };
    case.at("statement", node).filter_map(of_one).sum::<f64>() / 1e3
}

/// What transactions do between their statements.
struct Pace {
    /// Statements and transactions a second.
    calls: f64,
    ended: f64,
    /// Sessions that wait for the next statement of their transaction, and those that are active.
    idle: f64,
    active: f64,
    /// Those that execute.
    executing: f64,
    is_short: bool,
    round_trip_us: f64,
}

impl Pace {
    fn of(case: &Case, server: &Thing<'_>) -> Pace {
        let rate = |field: &str| server.lines.rate(field).unwrap_or(0.0);
        let calls = case.at("statement", server.place).filter_map(|statement| statement.lines.rate("calls"));
        // The shortest ones: the others waited for a CPU.
        let trips = server.lines.series("rtt_us").map(Series::values).unwrap_or_default();
        Pace {
            calls: calls.sum(),
            ended: rate("xact_commit") + rate("xact_rollback"),
            idle: rate("idle_in_transaction_ms") / 1e3,
            active: rate("active_ms") / 1e3,
            executing: executing(case, server.place),
            is_short: server.lines.max("oldest_transaction_s").is_some_and(|oldest| oldest <= SHORT_S),
            round_trip_us: statistics::quantile(trips, 0.1).unwrap_or(0.0),
        }
    }

    /// Statements of a transaction.
    fn each(&self) -> f64 {
        self.calls / self.ended.max(f64::MIN_POSITIVE)
    }

    /// How long a session waits for its client after a statement.
    fn gap_ms(&self) -> f64 {
        self.idle * 1e3 / self.calls.max(f64::MIN_POSITIVE)
    }

    /// Whether each statement waits for the one before it to reach a client that is far, or busy.
    fn is_away(&self) -> bool {
        self.idle >= AWAY_SESSIONS_MIN.max(self.active * AWAY_FACTOR_MIN)
            && self.is_short
            && self.gap_ms() >= AWAY_MS_MIN
            && self.each() >= AWAY_STATEMENTS_MIN
    }

    /// How the time of transactions goes, if it does not go into work.
    fn how(&self) -> Option<String> {
        if self.idle < IDLE_MIN || self.ended < 1.0 {
            return None;
        }
        if self.is_away() {
            return Some(format!(
                "after each of them its session waits {} for its client: {} sessions wait so, and {} work",
                units::us(self.gap_ms() * 1e3),
                units::short(self.idle),
                units::short(self.active)
            ));
        }
        let is_many = self.each() >= STATEMENTS_MIN;
        if is_many && self.idle >= self.active {
            let times = units::short(self.idle / self.active.max(1e-3));
            return Some(format!(
                "sessions wait for their client in it for {times} times as long as they work"
            ));
        }
        // Active sessions may wait for their commit, which no statement's time contains.
        let all = self.idle + self.active;
        let is_overhead = self.idle >= self.active * IDLE_SHARE_MIN
            && self.calls >= CALLS_PER_S_MIN
            && self.executing <= all * EXECUTING_MAX;
        (is_many && is_overhead).then(|| {
            format!(
                "sessions execute them in {} of its time: the rest is messages, parsing, planning, and waiting for the client",
                units::percent(self.executing / all)
            )
        })
    }
}

pub(super) fn judge(case: &Case) -> Answer {
    let found = case.things("server").filter_map(|server| {
        let pace = Pace::of(case, &server);
        let how = pace.how()?;
        Some(claim(case, &server, &pace, &how))
    });
    Answer::of(found.collect(), || {
        "statements for each transaction, and time idle in transactions".to_string()
    })
}

fn claim(case: &Case, server: &Thing<'_>, pace: &Pace, how: &str) -> Claim {
    let (each, node) = (pace.each(), server.place);
    let busiest = case
        .at("statement", node)
        .filter_map(|statement| Some((statement.lines.word("query_id"), statement.lines.rate("calls")?)))
        .max_by(|left, right| left.1.total_cmp(&right.1));
    let is_medium = pace.round_trip_us >= ROUND_TRIP_US || pace.is_away();
    Claim::new(
        if is_medium { Severity::Medium } else { Severity::Low },
        Level::CoOccurrence,
        format!("{node}: {} statements of a transaction come one by one, and {how}", units::short(each)),
    )
    .on_node(node)
    .during([server.lines.ticks.window()])
    .number("statements_per_transaction", each)
    .number("idle_in_transaction_sessions", pace.idle)
    .number("wait_for_client_ms", pace.gap_ms())
    .because(format!("{} statements and {} transactions a second", units::short(pace.calls), units::short(pace.ended)))
    .because(format!("{} sessions are idle in a transaction at any time, {} are active", units::short(pace.idle), units::short(pace.active)))
    .with(busiest, |claim, (id, rate)| {
        let text = case.query(id).unwrap_or(id);
        claim.because(format!("most often, {} times a second: {}", units::short(rate), plain(text, 160)))
    })
    .because(format!("a round trip takes {} to this server", units::us(pace.round_trip_us)))
    .lacking("the program's own work between two statements: it may be that, and not the way")
    .remedy(
        "fetch what belongs together with one statement (a list of keys: = ANY of an array, a join), or send statements in a pipeline; a client that is \
            far away pays its way for each statement: let the program run near the server, or do the transaction in one call of a procedure; until \
            it commits, its locks are held",
        &["SELECT queryid, calls, rows / calls AS rows, mean_exec_time AS ms, left(query, 80) AS query FROM pg_stat_statements WHERE calls > 0 \
            ORDER BY calls DESC LIMIT 5;"],
    )
}

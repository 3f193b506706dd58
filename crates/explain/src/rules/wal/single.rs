//! WAL-14: rows that one program writes one after another, each in a transaction of its own, on a slow disk and on a fast one.

use crate::case::Case;
use crate::node_time;
use crate::rule::{Answer, Claim};
use crate::rules::costly::{busy, in_a_line, plain};
use crate::units;
use record::finding::{Level, NodeTime, Severity, StatementTime};
use record::statement::{self, Verb};

/// The share of the session time in which sessions wait for the WAL.
const SHARE_MIN: f64 = 0.4;
const SHARE_HIGH: f64 = 0.7;
/// Active sessions: one that never rests, or two. More of them share the flushes of the WAL (WAL-01).
const ACTIVE: std::ops::RangeInclusive<f64> = 0.85..=2.2;
/// Commits a second.
const COMMITS_PER_S_MIN: f64 = 50.0;
/// Of all commits, those of the statement.
const OF_COMMITS_MIN: f64 = 0.75;
/// WAL of an execution: with more it is its volume that takes the time (WAL-11).
const WAL_BYTES_MAX: f64 = 8_192.0;
/// Rows that an execution writes.
const ROWS_MAX: f64 = 1.1;

/// The statement for one row that nearly every transaction consists of.
fn single<'a>(case: &Case, time: &'a NodeTime) -> Option<(&'a StatementTime, f64)> {
    let commits =
        case.one("server", &time.node)?.rate("xact_commit").filter(|rate| *rate >= COMMITS_PER_S_MIN)?;
    let writes = |one: &&StatementTime| {
        let parsed = statement::parse(&one.text);
        let is_write =
            parsed.is_ok_and(|parsed| matches!(parsed.verb, Verb::Insert | Verb::Update | Verb::Delete));
        let is_small = one.wal_bytes.is_none_or(|bytes| bytes <= WAL_BYTES_MAX);
        is_write && is_small && one.rows.is_some_and(|rows| rows > 0.0 && rows <= ROWS_MAX)
    };
    let rate = |one: &StatementTime| one.calls_per_s.unwrap_or(0.0);
    let most =
        time.statements.iter().filter(writes).max_by(|left, right| rate(left).total_cmp(&rate(right)))?;
    let others = time.statements.iter().filter(|one| one.query_id != most.query_id);
    // A transaction of several statements has them all as often.
    let is_alone =
        others.filter(|one| rate(one) >= rate(most) * OF_COMMITS_MIN).all(|one| !is_of_table(&one.text));
    let is_each = rate(most) >= commits * OF_COMMITS_MIN && rate(most) <= commits / OF_COMMITS_MIN;
    (is_alone && is_each).then_some((most, commits))
}

/// Whether a statement reads or writes a table: BEGIN and COMMIT are counted as well.
fn is_of_table(text: &str) -> bool {
    statement::parse(text).is_ok_and(|parsed| !parsed.tables.is_empty())
}

/// Active sessions of one program that sends a row when the last one is committed.
const ONE_MAX: f64 = 1.1;
/// Rows a second of an import; what people and devices cause is less.
const IMPORT_PER_S_MIN: f64 = 500.0;
/// Of the session time, that of its application.
const ONE_APPLICATION_MIN: f64 = 0.9;

/// The same on a disk that is so fast that commits hardly wait for it: what remains is a round trip and the work of a transaction for each row.
fn fast(case: &Case, time: &NodeTime, waits: f64) -> Option<Claim> {
    let (single, commits) = single(case, time)?;
    let is_insert = statement::parse(&single.text).is_ok_and(|parsed| parsed.verb == Verb::Insert);
    let (application, of_all) = time.by.iter().find(|by| by.name == "application")?.shares.first()?;
    if !is_insert || commits < IMPORT_PER_S_MIN || time.active > ONE_MAX || *of_all < ONE_APPLICATION_MIN {
        return None;
    }
    let (each_us, server_us) = (1e6 / commits, 1e6 * time.active / commits);
    let text = format!(
        "{}: application {} inserts {} rows a second, each in a transaction of its own: of {} for a row the server works {}, and the rest is the way to the \
         program and back",
        time.node,
        plain(application, 80),
        units::short(commits),
        units::us(each_us),
        units::us(server_us.min(each_us))
    );
    Some(
        Claim::new(Severity::Low, Level::CoOccurrence, text)
            .on_node(&time.node)
            .during(case.one("server", &time.node).map(|server| server.ticks.window()))
            .number("commits_per_s", commits)
            .number("wal_share", waits)
            .because(format!("the statement: {}", in_a_line(single)))
            .not(format!("the disk of the WAL: {} of the session time waits for commits", units::percent(waits)))
            .lacking("whether it is an import at all, and whether each row must be safe before the next one is sent")
            .remedy(
                "put many rows into one INSERT or a COPY, or some thousand into a transaction, and send them in a pipeline: a faster disk, or \
                 synchronous_commit = off, would change little",
                &["SELECT application_name, usename, client_addr, state, left(query, 60) AS query FROM pg_stat_activity WHERE query ILIKE 'insert%';"],
            ),
    )
}

pub(super) fn judge(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        let part = time.parts.iter().find(|part| part.name == node_time::COMMITTING);
        let waits = part.map_or(0.0, |part| part.share);
        let Some(share) = Some(waits).filter(|share| *share >= SHARE_MIN && ACTIVE.contains(&time.active))
        else {
            claims.extend(fast(case, time, waits));
            continue;
        };
        let Some((single, commits)) = single(case, time) else { continue };
        let who = time.by.iter().find(|by| by.name == "application").and_then(|by| by.shares.first());
        let text = format!(
            "{}: {} of the session time is waiting for commits, {} a second, and nearly each is of one row: {}",
            time.node,
            units::percent(share),
            units::short(commits),
            plain(&single.text, 80)
        );
        claims.push(
            Claim::new(
                if share >= SHARE_HIGH { Severity::High } else { Severity::Medium },
                Level::DiscriminatingCounter,
                text,
            )
            .on_node(&time.node)
            .during(case.one("server", &time.node).map(|server| server.ticks.window()))
            .number("share", share)
            .number("commits_per_s", commits)
            .because(format!("the statement: {}", in_a_line(single)))
            .because(format!(
                "{} active sessions on average: the next row waits until the commit of the last one is on the disk",
                units::short(time.active)
            ))
            .with(who, |claim, (name, _)| claim.because(format!("most of the session time belongs to application {name}")))
            .not("many sessions that commit at once: they would share a flush")
            .lacking("whether each row must be safe before the next one is sent: an import need not, a payment must")
            .remedy(
                "put many rows into a transaction (BEGIN ... COMMIT around some thousand, autocommit off), or better into one INSERT of many rows or a COPY; \
                 where the last part of a second may be lost in a crash, synchronous_commit = off for this session takes the wait away and keeps all else",
                &["SET synchronous_commit = off; -- in the session of the import: the last 0.6 s may be lost in a crash, nothing else"],
            ),
        );
    }
    Answer::of(claims, || "commits a second, against statements that write one row".to_string())
}

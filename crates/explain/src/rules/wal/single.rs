//! WAL-14: rows that one program writes one after another, each in a transaction of its own.

use super::COMMITTING;
use crate::case::Case;
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

pub(super) fn judge(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case).filter(|time| ACTIVE.contains(&time.active)) {
        let part = time.parts.iter().find(|part| part.name == COMMITTING);
        let Some(share) = part.map(|part| part.share).filter(|share| *share >= SHARE_MIN) else {
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

//! Commands that are right now and then, and are repeated all the time: maintenance (VAC-15), decoding without moving on (REP-14), rows that a foreign
//! server gets one by one (EXT-02).

mod sender;

use super::costly::{busy, in_a_line, plain, severity};
use super::plan;
use super::remote::{self, fetched_per_s, is_fetch, rows_per_s};
use crate::case::Case;
use crate::node_time;
use crate::rule::Need::{Any, Field, Looked};
use crate::rule::{Answer, Claim, Need, Rule};
use crate::units;
use record::finding::{Level, NodeTime, Severity, StatementTime};

const NEEDS: &[Need] =
    &[Any(&[Field("statement", "calls"), Field("wait", "*")]), Field("server", "sessions_active")];

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "VAC-15",
        title: "commands of maintenance are repeated all the time",
        needs: &[Any(&[Field("statement", "calls"), Looked("wait")]), Field("server", "sessions_active")],
        limits: "15 % of the session time in ANALYZE, VACUUM, CHECKPOINT, CREATE INDEX, REINDEX, CLUSTER or REFRESH of one kind, with an execution in \
            5 s (ours)",
        judge: maintenance,
        links: &["https://www.postgresql.org/docs/current/routine-vacuuming.html"],
    },
    Rule {
        id: "REP-14",
        title: "changes of a slot are decoded by a function again and again",
        needs: NEEDS,
        limits: "15 % of the session time in pg_logical_slot_peek_changes or pg_logical_slot_get_changes (ours)",
        judge: decoding,
        links: &["https://www.postgresql.org/docs/current/logicaldecoding-example.html"],
    },
    Rule {
        id: "EXT-02",
        title: "a foreign table gets its rows one by one",
        needs: &[Field("statement", "calls"), Field("server", "sessions_active")],
        limits: "1,000 statements a second of sessions of postgres_fdw that insert, change or delete one row each; or 15 % of the session time in a statement \
            that writes 20 rows of a foreign table for each execution without batch_size, and waits for it in 30 % of its samples (ours)",
        judge: one_by_one,
        links: &["https://www.postgresql.org/docs/current/postgres-fdw.html#POSTGRES-FDW-OPTIONS"],
    },
    Rule {
        id: "EXT-03",
        title: "rows of a foreign table are fetched to be thrown away",
        needs: &[Field("statement", "calls"), Field("server", "sessions_active")],
        limits: "15 % of the session time in a statement that waits in an extension, while a server sends 10,000 rows a second to cursors of postgres_fdw, 20 \
            for each row that the statement returns (ours)",
        judge: thrown_away,
        links: &[
            "https://www.postgresql.org/docs/current/postgres-fdw.html#POSTGRES-FDW-REMOTE-QUERY-OPTIMIZATION",
        ],
    },
];

/// Rows that a foreign server sends a second, and of them for each that is left here.
const FETCHED_PER_S_MIN: f64 = 10_000.0;
const FETCHED_PER_ROW_MIN: f64 = 20.0;
/// The share of the session time.
const SHARE_MIN: f64 = 0.15;
/// Executions a second.
const CALLS_PER_S_MIN: f64 = 0.2;
/// Statements of a foreign server a second.
const REMOTE_PER_S_MIN: f64 = 1_000.0;
/// Characters of a statement in a claim.
const STATEMENT_CHARS: usize = 90;

/// A command, how its texts begin, and what to do instead.
struct Command {
    begins: &'static [&'static str],
    what: &'static str,
    text: &'static str,
}

const COMMANDS: [Command; 5] = [
    Command {
        begins: &["ANALYZE", "ANALYSE"],
        what: "reads a sample of the whole table each time, and the planner gains nothing as long as few of its rows change",
        text: "analyse once after a whole import, or leave it to autovacuum, which comes when a tenth of the rows have changed \
            (autovacuum_analyze_scale_factor)",
    },
    Command {
        begins: &["VACUUM"],
        what: "reads the pages that changed and all indexes each time",
        text: "leave it to autovacuum, with a smaller autovacuum_vacuum_scale_factor for tables that change much, or run it once after a large change",
    },
    Command {
        begins: &["CHECKPOINT"],
        what: "writes all changed pages at once, and makes the WAL carry images of them again",
        text: "leave checkpoints to checkpoint_timeout and max_wal_size; a base backup makes its own",
    },
    Command {
        begins: &["CREATE INDEX", "CREATE UNIQUE INDEX", "REINDEX", "CLUSTER"],
        what: "reads the whole table and sorts its keys each time",
        text: "keep the index, and rebuild it only when it is bloated or damaged",
    },
    Command {
        begins: &["REFRESH MATERIALIZED VIEW"],
        what: "runs the view's whole query each time",
        text: "refresh it as rarely as its readers can bear, or keep sums that the writer maintains",
    },
];

/// The command that a text is, if it is one of maintenance.
fn command(text: &str) -> Option<&'static Command> {
    let text = text.trim_start().to_ascii_uppercase();
    COMMANDS.iter().find(|command| {
        command.begins.iter().any(|begin| {
            text.strip_prefix(begin)
                .is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_'))
        })
    })
}

/// Statements of a node that fit, with the time of all of them.
fn of_kind(time: &NodeTime, fits: impl Fn(&str) -> bool) -> Option<(&StatementTime, f64, f64)> {
    let all: Vec<&StatementTime> = time.statements.iter().filter(|statement| fits(&statement.text)).collect();
    let share: f64 = all.iter().map(|statement| statement.share).sum();
    let calls: f64 = all.iter().filter_map(|statement| statement.calls_per_s).sum();
    let largest = all.into_iter().max_by(|left, right| left.share.total_cmp(&right.share))?;
    (share > 0.0).then_some((largest, share, calls))
}

fn claim(
    case: &Case,
    time: &NodeTime,
    (statement, share, calls): (&StatementTime, f64, f64),
    text: String,
) -> Claim {
    // On a server with so little to do nothing waits for it.
    let most = if time.active < QUIET_SESSIONS { Severity::Low } else { Severity::High };
    Claim::new(
        severity(share).min(most),
        Level::DiscriminatingCounter,
        format!("{}: {} of the session time is {text}", time.node, units::percent(share)),
    )
    .on_node(&time.node)
    .during(case.one("server", &time.node).map(|server| server.ticks.window()))
    .number("share", share)
    .because(format!("the statement: {}", in_a_line(statement)))
    .with(Some(calls).filter(|calls| *calls > 0.0), |claim, calls| {
        claim.number("calls_per_s", calls).because(format!("{} executions a second", units::short(calls)))
    })
    .with(statement.mean_ms, |claim, ms| claim.because(format!("{} each", units::us(ms * 1e3))))
}

/// Average sessions at work, below which such a command is in no session's way.
const QUIET_SESSIONS: f64 = 0.7;
/// What loads a table anew, or drops its indexes for that.
const LOADS: [&str; 5] = ["TRUNCATE", "DROP INDEX", "DROP TABLE", "CREATE TABLE", "COPY "];
/// Of the builds of indexes, its executions.
const LOADS_PER_BUILD_MIN: f64 = 0.3;
/// The remedy where a load has dropped the index.
const LOADED: &str = "nothing, if a load drops the index on purpose to fill the table faster; build several indexes of one table one after another, with more \
    maintenance_work_mem and max_parallel_maintenance_workers, and load only what has changed";

/// A statement that empties, fills or makes a table about as often as indexes are built.
fn loaded_anew(case: &Case, time: &NodeTime, builds_per_s: f64) -> Option<String> {
    case.at("statement", &time.node).find_map(|statement| {
        let text = case.query(statement.lines.word("query_id"))?;
        let first = text.trim_start().to_ascii_uppercase();
        let calls = statement.lines.rate("calls").unwrap_or(0.0);
        let is_load = LOADS.iter().any(|load| first.starts_with(load)) && !first.starts_with("COPY (");
        (is_load && calls >= builds_per_s * LOADS_PER_BUILD_MIN).then(|| plain(text, STATEMENT_CHARS))
    })
}

/// VAC-15.
fn maintenance(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        for one in &COMMANDS {
            let fits = |text: &str| command(text).is_some_and(|found| found.what == one.what);
            let Some((statement, share, calls)) = of_kind(time, fits) else { continue };
            let text = plain(&statement.text, STATEMENT_CHARS);
            let text = match calls > 0.0 {
                true => format!("{text}, {} times a second: it {}", units::short(calls), one.what),
                false => format!("{text}: it {}", one.what),
            };
            let look = "SELECT application_name, usename, client_addr, left(query, 60) AS query FROM pg_stat_activity \
                WHERE query ~* '^ *(analy|vacuum|checkpoint|create.*index|reindex|cluster|refresh)';";
            let is_refresh = one.begins == ["REFRESH MATERIALIZED VIEW"];
            let locks = |kind: &str, event: &str| kind == "Lock" && event == "relation";
            let locked = node_time::share_waiting(case, &time.node, locks).filter(|share| {
                is_refresh
                    && *share >= SHARE_MIN
                    && !statement.text.to_ascii_uppercase().contains("CONCURRENTLY")
            });
            // Once in a recording it is what it is for, and samples alone do not count executions; that others wait for it all the time, they show.
            let is_often = statement.is_counted && calls >= CALLS_PER_S_MIN && share >= SHARE_MIN;
            if !is_often && locked.is_none() {
                continue;
            }
            let (text, advice) = match locked {
                Some(share) => (
                    format!(
                        "{text}. Readers of the view wait for it in {} of the session time: without CONCURRENTLY a refresh locks them out",
                        units::percent(share)
                    ),
                    "REFRESH MATERIALIZED VIEW CONCURRENTLY lets them read the old rows meanwhile (the view needs a unique index); \
                     and refresh it as rarely as its readers can bear",
                ),
                None => (text, one.text),
            };
            let loaded =
                one.begins.contains(&"CREATE INDEX").then(|| loaded_anew(case, time, calls)).flatten();
            let claim = claim(case, time, (statement, share, calls), text);
            claims.push(match loaded {
                // Dropped on purpose: an index that is built once behind the rows costs less than one that each row is put into.
                Some(load) => claim
                    .at_most(Severity::Low)
                    .because(format!("as often as this, something empties or fills a table anew: {load}"))
                    .remedy(LOADED, &[look]),
                None => claim.remedy(advice, &[look]),
            });
        }
    }
    Answer::of(claims, || "commands of maintenance among the statements that take the time".to_string())
}

/// REP-14.
fn decoding(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        let is_peek = |text: &str| text.contains("pg_logical_slot_peek_");
        let fits = |text: &str| is_peek(text) || text.contains("pg_logical_slot_get_");
        let Some((statement, share, calls)) = of_kind(time, fits).filter(|(_, share, _)| *share >= SHARE_MIN)
        else {
            continue;
        };
        let (what, text) = match is_peek(&statement.text) {
            true => (
                "pg_logical_slot_peek_changes, which does not move the slot on: each call decodes all changes since the slot's position again, and more of \
                 them each time",
                "confirm what was taken over: pg_logical_slot_get_changes, or pg_replication_slot_advance to the last position; or follow the slot by the \
                 replication protocol (pg_recvlogical), which decodes each change once",
            ),
            false => (
                "pg_logical_slot_get_changes, which decodes all changes of all tables up to now in a session, and starts anew each time",
                "follow the slot by the replication protocol (pg_recvlogical, a subscription): it stays connected, and decodes each change once; limit the \
                 tables by a publication",
            ),
        };
        let slots: Vec<String> = case
            .at("slot", &time.node)
            .filter(|slot| slot.lines.word("kind") == "logical")
            .filter_map(|slot| {
                let kept = slot.lines.last("retained_bytes")?;
                Some(format!("slot {} keeps {} of WAL", slot.name, units::bytes(kept)))
            })
            .collect();
        let mut found = claim(case, time, (statement, share, calls), what.to_string());
        for sentence in slots {
            found = found.because(sentence);
        }
        claims.push(found.remedy(
            text,
            &["SELECT slot_name, active, confirmed_flush_lsn, pg_size_pretty(pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn)) AS behind \
               FROM pg_replication_slots WHERE slot_type = 'logical';"],
        ));
    }
    Answer::of(claims, || "decoding by functions among the statements that take the time".to_string())
}

/// EXT-02.
fn one_by_one(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        let is_remote = case
            .at("activity", &time.node)
            .any(|group| group.lines.word("application").starts_with("postgres_fdw"));
        if !is_remote {
            continue;
        }
        let is_row = |text: &str| {
            let text = text.trim_start().to_ascii_uppercase();
            text.starts_with("INSERT INTO ") && text.contains("VALUES ($1") && text.matches("($").count() <= 2
                || (text.starts_with("UPDATE ") || text.starts_with("DELETE ")) && text.contains("CTID = $1")
        };
        let rows = time.statements.iter().filter(|statement| is_row(&statement.text));
        let Some(statement) = rows
            .filter(|statement| statement.calls_per_s.is_some_and(|calls| calls >= REMOTE_PER_S_MIN))
            .max_by(|left, right| {
                left.calls_per_s.partial_cmp(&right.calls_per_s).unwrap_or(std::cmp::Ordering::Equal)
            })
        else {
            continue;
        };
        let calls = statement.calls_per_s.unwrap_or(0.0);
        // The sender waits as long, and its statement is the large one if both are on this server.
        let sender = time.statements.iter().find(|one| {
            one.events.iter().any(|(event, share)| event.starts_with("Extension:") && *share >= SHARE_MIN)
        });
        let share = statement.share + sender.map_or(0.0, |sender| sender.share);
        claims.push(
            Claim::new(
                if share >= SHARE_MIN { severity(share) } else { Severity::Low },
                Level::DiscriminatingCounter,
                format!(
                    "{}: sessions of postgres_fdw send {} rows a second one by one, each as a statement and a round trip of its own, as with \
                        batch_size = 1: {}",
                    time.node,
                    units::short(calls),
                    plain(&statement.text, STATEMENT_CHARS)
                ),
            )
            .on_node(&time.node)
            .during(case.one("server", &time.node).map(|server| server.ticks.window()))
            .number("share", share)
            .number("calls_per_s", calls)
            .because(format!("the statement: {}", in_a_line(statement)))
            .with(sender, |claim, sender| claim.because(format!("the sender: {}", in_a_line(sender))))
            .because("the option batch_size of a foreign server or table is 1 by default")
            .lacking("batch_size of the sender, which may be another server; changes and deletes that are not pushed down cannot be sent together")
            .remedy(
                "let the sender put rows together: batch_size of the foreign server or table (PostgreSQL 14 and later, for INSERT and COPY); write UPDATE and \
                 DELETE so that the foreign server can do them itself (Remote SQL in EXPLAIN VERBOSE); or COPY to that server directly",
                &[
                    "SELECT srvname, srvoptions FROM pg_foreign_server; -- on the sender",
                    "ALTER SERVER remote OPTIONS (ADD batch_size '100'); -- on the sender, with the name of its server",
                ],
            ),
        );
    }
    // Where the other server is watched as well, it has counted them.
    if claims.is_empty() {
        claims = sender::claims(case);
    }
    Answer::of(claims, || "statements of postgres_fdw".to_string())
}

/// What throws rows away here. What the plan shows to be sent is not missing there.
fn what_is_not_sent(case: &Case, time: &NodeTime, statement: &StatementTime) -> &'static str {
    let planned = plan::plan_of(case, time, statement);
    let sent: Vec<Option<bool>> = planned
        .map(|planned| remote::scans(&planned).iter().map(|scan| remote::sends_condition(scan)).collect())
        .unwrap_or_default();
    match sent.as_slice() {
        all if all.contains(&Some(true)) => {
            "conditions are sent there, and most of what fits them is thrown away here by a join, a condition or an aggregate that is not sent"
        }
        [] => {
            "a condition, a join or an aggregate is not sent there, so rows are fetched and thrown away here"
        }
        _ => "its conditions are not sent there, so all rows are fetched and thrown away here",
    }
}

/// EXT-03.
fn thrown_away(case: &Case) -> Answer {
    let fetched = fetched_per_s(case);
    let mut claims = vec![];
    for time in busy(case).filter(|_| fetched >= FETCHED_PER_S_MIN) {
        let waits = |one: &&StatementTime| {
            let of_extension = |(event, _): &&(String, f64)| event.starts_with("Extension:");
            one.share >= SHARE_MIN
                && !is_fetch(&one.text)
                && one.events.iter().find(of_extension).is_some_and(|(_, share)| *share >= SHARE_MIN)
        };
        let Some(statement) = time.statements.iter().find(waits) else { continue };
        let returned = rows_per_s(statement).unwrap_or(0.0);
        if fetched < returned * FETCHED_PER_ROW_MIN {
            continue;
        }
        claims.push(
            claim(
                case,
                time,
                (statement, statement.share, statement.calls_per_s.unwrap_or(0.0)),
                format!(
                    "one statement on foreign tables, for which the other server sends {} rows a second, while it returns {}: {}: {}",
                    units::short(fetched),
                    units::short(returned),
                    what_is_not_sent(case, time, statement),
                    plain(&statement.text, STATEMENT_CHARS)
                ),
            )
            .number("fetched_per_s", fetched)
            .number("returned_per_s", returned)
            .because("rows of FETCH ... FROM cN, as postgres_fdw reads its cursors, by pg_stat_statements of the sending server")
            .remedy(
                "EXPLAIN (VERBOSE) shows the remote statement as \"Remote SQL\", and what is left to this side as \"Filter\" or as a join. postgres_fdw \
                 sends only conditions of built-in types with immutable functions: put now() or current_date into a parameter, name an extension whose \
                 functions both sides have, or read a view of the other server that has the condition; of a join with a table of this side it sends \
                 nothing: send the keys as one array (= ANY)",
                &["ALTER SERVER name OPTIONS (ADD extensions 'name'); -- lets functions and operators of that extension be sent"],
            ),
        );
    }
    Answer::of(claims, || "rows that postgres_fdw fetches, against those that statements return".to_string())
}

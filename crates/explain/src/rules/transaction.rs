//! TXN: transactions that are too small, too large, or never finished.

mod chatty;
mod rollbacks;

use super::vacuum::is_wal;
use super::{isolation, synchronous};
use crate::case::{Case, Thing};
use crate::decompose;
use crate::node_time;
use crate::rule::Need::{Field, Looked};
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use crate::waits::Who;
use record::event;
use record::finding::{Level, Severity};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "TXN-01",
        title: "autocommit: committing takes most of the time",
        needs: &[Field("server", "xact_commit"), Field("server", "tup_inserted"), Looked("wait")],
        limits: "fewer than 2 rows written per commit, and half of the active sessions wait for the commit (R3: 99 %, 28 % after batching)",
        judge: autocommit,
        links: &["https://www.postgresql.org/docs/current/populate.html#DISABLE-AUTOCOMMIT"],
    },
    Rule {
        id: "TXN-02",
        title: "large transactions spill to disk during logical decoding",
        needs: &[Looked("slot")],
        limits: "1 GB spilled by a slot, or 1 MB and 3 % of the session time in waits for these files (ours; R3: the out-of-memory killer)",
        judge: spill,
        links: &[
            "https://www.postgresql.org/docs/current/runtime-config-resource.html#GUC-LOGICAL-DECODING-WORK-MEM",
        ],
    },
    Rule {
        id: "TXN-03",
        title: "very large rows",
        needs: &[Field("server", "wal_bytes"), Field("server", "xact_commit")],
        limits: "1 MB of WAL per commit, with few rows, of 10 rows or more; on a node that applies changes of others only WAL of its own statements \
            counts (R3: documents of 20 MB)",
        judge: large_rows,
        links: &["https://www.postgresql.org/docs/current/storage-toast.html"],
    },
    Rule {
        id: "TXN-04",
        title: "prepared transactions are never finished",
        needs: &[Field("server", "prepared_xacts")],
        limits: "older than 10 s, high from 10 min: a coordinator needs milliseconds (ours; R3, R4)",
        judge: orphans,
        links: &["https://www.postgresql.org/docs/current/sql-prepare-transaction.html"],
    },
    Rule {
        id: "TXN-05",
        title: "many transactions fail and are repeated",
        needs: &[Field("server", "xact_rollback"), Field("server", "xact_commit")],
        limits: "a fifth of the transactions rolled back, 5 a second or more, and 30 of them; those of logical decoding, and our own, are not counted (ours)",
        judge: rolled_back,
        links: &["https://www.postgresql.org/docs/current/mvcc-serialization-failure-handling.html"],
    },
    Rule {
        id: "TXN-09",
        title: "transactions send their statements one by one",
        needs: &[
            Field("server", "idle_in_transaction_ms"),
            Field("server", "active_ms"),
            Field("statement", "calls"),
        ],
        limits: "10 statements for each commit, and 0.3 sessions idle in a transaction, for longer than they are active, or for a \
            quarter of that with 1,000 statements a second that execute for less than a third of the time; medium from a round trip of 0.3 ms on; or 2 \
            statements, and 2 sessions idle in transactions of 5 s at most, for five times as long as they are active and 5 ms for each statement: medium \
            (ours)",
        judge: chatty::judge,
        links: &["https://www.postgresql.org/docs/current/libpq-pipeline-mode.html"],
    },
];

/// Of all transactions.
const ROLLED_BACK_SHARE: f64 = 0.2;
/// From this share on it is high.
const ROLLED_BACK_HIGH: f64 = 0.5;
/// Rollbacks a second.
const ROLLED_BACK_PER_S: f64 = 5.0;

/// The share of all rollbacks in one of so many readings that makes it a jump of a counter.
const JUMP_SHARE_MIN: f64 = 0.9;
const JUMP_POINTS_MIN: usize = 5;

/// Failed transactions a second of programs that do not pause before they try again.
const STORM_PER_S: f64 = 100.0;
/// Whether nearly all rollbacks were counted at once: processes that end (a node that leaves the cluster) report all that they counted before.
fn is_jump(server: &Thing<'_>) -> bool {
    server.lines.series("xact_rollback").is_some_and(|series| {
        let points = series.points();
        let most = points.iter().map(|point| point.sum).fold(0.0, f64::max);
        points.len() >= JUMP_POINTS_MIN && most > series.sum() * JUMP_SHARE_MIN
    })
}

/// What to do about transactions that conflict.
const REPEAT: &str = "repeat them with a pause that grows; keep the transactions short; touch fewer common rows (a sequential scan locks the whole \
    table at SERIALIZABLE: give \
    its condition an index); use READ COMMITTED with explicit locks where that is enough";

/// `is_known`: they conflict; `is_meant`: programs end them so.
fn rolled_back_severity(share: f64, per_s: f64, (is_known, is_meant): (bool, bool)) -> Severity {
    match share {
        _ if is_meant => Severity::Note,
        // What fails so often is repeated without a pause, whatever the error is.
        share if !is_known && share >= ROLLED_BACK_HIGH && per_s >= STORM_PER_S => Severity::Medium,
        _ if !is_known => Severity::Low,
        share if share >= ROLLED_BACK_HIGH => Severity::High,
        _ => Severity::Medium,
    }
}

/// The share of the sampled sessions that wait for lists of predicate locks.
fn predicates(case: &Case, node: &str) -> f64 {
    let is_such = |kind: &str, event: &str| {
        kind == "LWLock" && (event.contains("Predicate") || event.starts_with("Serializable"))
    };
    case.waits(node).and_then(|waits| waits.share(Who::Client, is_such)).unwrap_or(0.0)
}

/// Serialization failures, deadlocks, errors, and programs that use ROLLBACK to end what they have read.
fn rolled_back(case: &Case) -> Answer {
    let mut claims = vec![];
    for server in case.things("server") {
        let rate = |field: &str| server.lines.rate(field).unwrap_or(0.0);
        let committed = rate("xact_commit");
        let failed = rollbacks::of_programs(case, &server);
        let share = failed / (failed + committed).max(f64::MIN_POSITIVE);
        if share < ROLLED_BACK_SHARE || failed < ROLLED_BACK_PER_S || is_jump(&server) {
            continue;
        }
        let (level, whose) = isolation::level(case, server.place);
        let is_strict = isolation::STRICT.contains(&level);
        let reset = isolation::reset(case, server.place).filter(|_| is_strict).unwrap_or_default();
        let conflict = case.events_of(event::SERVER_LOG).find(|event| {
            Case::word_of(event, "sqlstate") == SERIALIZATION_FAILURE
                && [server.place, ""].contains(&Case::word_of(event, "node"))
        });
        let predicates = predicates(case, server.place);
        let is_known = is_strict || conflict.is_some() || predicates >= PREDICATES_SHARE_MIN;
        let is_meant = !is_known && rollbacks::is_on_purpose(case, &server, failed);
        let usual = rollbacks::usual_error(case, &server, failed).filter(|_| !is_known && !is_meant);
        if is_meant && rollbacks::are_of_decoding(case, server.place, failed) {
            continue;
        }
        // Errors that most of them end with, and that sessions are busy with, are the reason for what is lost.
        let is_lost = usual.as_ref().is_some_and(|usual| usual.is_costly(share, failed));
        let is_proved = is_known || usual.as_ref().is_some_and(|usual| usual.is_most());
        claims.push(
            Claim::new(
                rolled_back_severity(share, failed, (is_known || is_lost, is_meant)),
                if is_proved { Level::DiscriminatingCounter } else { Level::Symptom },
                format!(
                    "{}: {} of the transactions are rolled back, {} a second{}",
                    server.place,
                    units::percent(share),
                    units::short(failed),
                    match &usual {
                        _ if is_known => isolation::conflicting(is_strict, level, &whose),
                        _ if is_meant => ", by their programs: the server's log has no error for most of them".to_string(),
                        Some(usual) => usual.words(),
                        None => String::new(),
                    }
                ),
            )
            .on_node(server.place)
            .during([server.lines.ticks.window()])
            .number("rolled_back_share", share)
            .number("rollbacks_per_s", failed)
            .because(format!("pg_stat_database counts {} rollbacks and {} commits a second", units::short(failed), units::short(committed)))
            .with(is_strict.then_some(()), |claim, ()| claim.because(format!("default_transaction_isolation is {level}: of two transactions that \
                conflict, one fails")))
            .with(conflict, |claim, event| claim.because(format!("the server's log: {}", event.message)))
            .with((predicates > 0.0).then_some(()), |claim, ()| claim.because(format!("{} of the sampled sessions wait for lists of predicate \
                locks", units::percent(predicates))))
            .with(usual.as_ref(), |claim, usual| usual.described(claim))
            .with((!is_proved).then_some(()), |claim, ()| claim.lacking("the reason: the errors are in the server's log, or the program rolls back on purpose"))
            .remedy(
                usual.as_ref().map_or(REPEAT, rollbacks::Usual::remedy),
                &[
                    reset.as_str(),
                    "SELECT datname, xact_commit, xact_rollback, deadlocks, conflicts FROM pg_stat_database ORDER BY xact_rollback DESC LIMIT 5;",
                    "SELECT name, setting, source FROM pg_settings WHERE name = 'default_transaction_isolation';",
                ][usize::from(reset.is_empty())..],
            ),
        );
    }
    Answer::of(claims, || "rollbacks against commits".to_string())
}

/// SQLSTATE of a transaction that conflicted with another.
const SERIALIZATION_FAILURE: &str = "40001";
/// Samples in the lists of predicate locks from which on the isolation level is the reason.
const PREDICATES_SHARE_MIN: f64 = 0.02;

/// Rows written per commit.
const ROWS_MIN: f64 = 2.0;
/// Of the active sessions.
const COMMIT_SHARE: f64 = 0.5;
/// Writing commits a second below which their cost does not matter.
const COMMITS_MIN_PER_S: f64 = 5.0;
/// Bytes spilled that matter where sessions wait for these files for this share of the time.
const SPILL_BYTES_WAITED: f64 = 1e6;
const SPILL_SHARE: f64 = 0.03;
/// Bytes spilled.
const SPILL_BYTES: f64 = 1e9;
/// WAL per commit.
const WAL_PER_COMMIT_BYTES: f64 = 1e6;
/// WAL per row written that makes rows large, not transactions.
const WAL_PER_ROW_BYTES: f64 = 100_000.0;
/// Rows and commits from which on WAL for each of them means something.
const LARGE_MIN: f64 = 10.0;
/// Commands that write WAL and no rows.
const UPKEEP: [&str; 8] = ["alter", "analyze", "cluster", "create", "drop", "refresh", "reindex", "vacuum"];
/// The share of a node's WAL that its statements account for, from which on all of it is theirs.
const OF_STATEMENTS_MIN: f64 = 0.5;
/// Rows of the database for each of its tables, so that most of them are pieces of large values.
const PIECES_MIN: f64 = 10.0;
/// Age of a prepared transaction.
const PREPARED_S: f64 = 10.0;
/// The limit of a high finding.
const PREPARED_HIGH_S: f64 = 600.0;

/// Rows inserted, updated and deleted.
fn written(lines: &crate::case::Lines) -> f64 {
    ["tup_inserted", "tup_updated", "tup_deleted"].iter().filter_map(|field| lines.sum(field)).sum()
}

fn is_commit(kind: &str, event: &str) -> bool {
    is_wal(kind, event) || (kind, event) == ("IPC", "SyncRep")
}

fn autocommit(case: &Case) -> Answer {
    let mut claims = vec![];
    for server in case.things("server") {
        let (Some(waits), Some(commits)) = (case.waits(server.place), server.lines.series("xact_commit"))
        else {
            continue;
        };
        let rows = written(server.lines);
        let per_commit = rows / commits.sum().max(1.0);
        let agreeing = |kind: &str, event: &str| case.is_agreement(server.place, kind, event);
        let hung = synchronous::hung(case, server.place);
        let is_commit =
            |kind: &str, event: &str| (is_commit(kind, event) || agreeing(kind, event)) && !hung(kind, event);
        let Some(share) = node_time::share_of(case, server.place, is_commit) else { continue };
        // Readers commit, too: at least half of the commits must write.
        if !(0.5..ROWS_MIN).contains(&per_commit)
            || share < COMMIT_SHARE
            || commits.rate() < COMMITS_MIN_PER_S
        {
            continue;
        }
        // A commit's part of the time, where most sessions have nothing to do.
        let time = node_time::all(case).iter().find(|time| time.node == server.place);
        let each_ms = time.map(|time| share * time.active * 1e3 / commits.rate().max(f64::MIN_POSITIVE));
        let is_unhurried = super::wal::spare::is_unhurried(case, server.place, each_ms);
        claims.push(
            Claim::new(
                if is_unhurried { Severity::Low } else { Severity::High },
                Level::DiscriminatingCounter,
                format!(
                    "{}: {} rows are written per commit, and sessions spend {} of their time in commits",
                    server.place,
                    units::short(per_commit),
                    units::percent(share)
                ),
            )
            .on_node(server.place)
            .during(waits.windows(Who::Client, is_commit))
            .number("rows_per_commit", per_commit)
            .number("commit_share", share)
            .number("commits_per_s", commits.rate())
            .with(node_time::share_of(case, server.place, agreeing).filter(|share| *share > 0.0), |claim, share| {
                claim.number("agreement_share", share).because(format!(
                    "in {} of their time other nodes have to agree: that is a round trip between the nodes, and more, for each commit",
                    units::percent(share)
                ))
            })
            .of_client_time(decompose::share_of(case, is_commit))
            .because(format!("{} commits, {} rows written", units::count(commits.sum()), units::count(rows)))
            .because(format!("seen in {}", waits.top_in_words(Who::Client)))
            .with(case.applies(server.place).then_some(()), |claim, ()| {
                claim.at_level(Level::CoOccurrence).lacking(
                    "the rows and commits of clients alone: workers that apply other nodes' changes may be counted with them",
                )
            })
            .not(format!("locks: {} of the samples", units::percent(waits.share(Who::Client, |kind, _| kind == "Lock").unwrap_or(0.0))))
            .remedy(
                "put 100 to 1000 rows into one transaction; if losing the last transactions in a crash is acceptable, commit asynchronously",
                &[
                    "SELECT queryid, calls, rows, left(query, 80) FROM pg_stat_statements WHERE query ~* '^\\s*(insert|update|delete|merge)' ORDER BY calls \
                        DESC LIMIT 5; -- what to put into BEGIN and COMMIT",
                    "SET synchronous_commit = off; -- in the session that may lose its last transactions",
                ],
            ),
        );
    }
    Answer::of(claims, || "rows written per commit, and what commits waited for".to_string())
}

fn spill(case: &Case) -> Answer {
    let mut claims = vec![];
    for slot in case.things("slot") {
        let bytes = slot.lines.sum("spill_bytes").unwrap_or(0.0);
        let waiting = |_: &str, event: &str| event.starts_with("ReorderBuffer");
        let share = node_time::share_waiting(case, slot.place, waiting).unwrap_or(0.0);
        if bytes < SPILL_BYTES && !(bytes >= SPILL_BYTES_WAITED && share >= SPILL_SHARE) {
            continue;
        }
        let transactions = slot.lines.sum("spill_txns").unwrap_or(0.0);
        claims.push(
            Claim::new(
                Severity::Medium,
                Level::DiscriminatingCounter,
                format!(
                    "{}: decoding for slot {} spilled {} of {} to disk",
                    slot.place, slot.name, units::bytes(bytes), units::counted(transactions as usize, "transaction"),
                ),
            )
            .on_node(slot.place)
            .during(slot.lines.series("spill_bytes").map(|series| series.stretches(0, |point| point.sum > 0.0)).unwrap_or_default())
            .number("spill_bytes", bytes)
            .number("spill_txns", transactions)
            .because("changes that do not fit into logical_decoding_work_mem are written to disk and read again at commit")
            .remedy(
                "split large transactions; stream them while they run (PostgreSQL 14, parallel from 16); raise the memory only if every walsender can have it",
                &[
                    "ALTER SUBSCRIPTION s SET (streaming = parallel); -- on the subscriber",
                    "ALTER SYSTEM SET logical_decoding_work_mem = '256MB'; SELECT pg_reload_conf();",
                ],
            ),
        );
    }
    Answer::of(claims, || "bytes spilled by replication slots".to_string())
}

/// Rows that tables of users got. `pg_stat_database` also counts the pieces into which a large value is cut, each of 2 kB; where these are most of its
/// rows, the statistics of the tables have the true figure.
fn rows_of_tables(case: &Case, node: &str, counted: f64) -> f64 {
    let of_tables: f64 = case
        .at("table", node)
        .flat_map(|table| {
            ["rows_inserted", "rows_updated", "rows_deleted"].map(|field| table.lines.sum(field))
        })
        .flatten()
        .sum();
    if of_tables > 0.0 && of_tables * PIECES_MIN <= counted { of_tables } else { counted }
}

/// WAL of commands that write no rows of their own: indexes, vacuums, rewritten tables.
fn is_upkeep(text: &str) -> bool {
    let first = text.trim_start().split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or("");
    UPKEEP.iter().any(|word| word.eq_ignore_ascii_case(first))
}

/// The WAL that sessions of clients wrote for rows. The node's own figure also contains what standbys' and subscriptions' workers apply, whose rows are
/// not always counted, and what commands write that change no rows. `None` where that cannot be distinguished.
fn wal_of_rows(case: &Case, node: &str) -> Option<f64> {
    let all = case.one("server", node)?.sum("wal_bytes")?;
    let (mut known, mut of_rows) = (false, 0.0);
    for statement in case.at("statement", node) {
        let Some(bytes) = statement.lines.sum("wal_bytes") else { continue };
        known = true;
        if !case.query(statement.lines.word("query_id")).is_some_and(is_upkeep) {
            of_rows += bytes;
        }
    }
    match known {
        // Statements that have not ended, and COMMIT itself, are not counted there.
        true if of_rows >= all * OF_STATEMENTS_MIN => Some(all),
        true => Some(of_rows),
        false if case.applies(node) => None,
        false if case.at("progress", node).any(|command| command.lines.word("command") != "copy") => None,
        false => Some(all),
    }
}

fn large_rows(case: &Case) -> Answer {
    let mut claims = vec![];
    for server in case.things("server") {
        // A standby commits nothing: its WAL is the primary's.
        if server.lines.flag("in_recovery") == Some(true) {
            continue;
        }
        let (Some(wal), Some(commits)) = (wal_of_rows(case, server.place), server.lines.sum("xact_commit"))
        else {
            continue;
        };
        let rows = rows_of_tables(case, server.place, written(server.lines));
        let (per_commit, per_row) = (wal / commits.max(1.0), wal / rows.max(1.0));
        if per_commit < WAL_PER_COMMIT_BYTES
            || per_row < WAL_PER_ROW_BYTES
            || commits < LARGE_MIN
            || rows < LARGE_MIN
        {
            continue;
        }
        let images = server.lines.sum("wal_fpi").map(|images| images * 8_192.0 / wal.max(1.0));
        claims.push(
            Claim::new(
                Severity::Low,
                Level::CoOccurrence,
                format!(
                    "{}: a commit writes {} of WAL, {} per row",
                    server.place,
                    units::bytes(per_commit),
                    units::bytes(per_row)
                ),
            )
            .on_node(server.place)
            .during([case.span])
            .number("wal_bytes_per_commit", per_commit)
            .number("wal_bytes_per_row", per_row)
            .because(format!(
                "{} of WAL for {} rows in {} commits",
                units::bytes(wal),
                units::count(rows),
                units::count(commits)
            ))
            .with(images, |claim, share| {
                claim.not(format!("full page images: at most {} of the WAL", units::percent(share.min(1.0))))
            })
            .lacking("sizes of single rows (pg_column_size)")
            .remedy(
                "compress large values better, or split them so that an update changes a small part",
                &["SELECT attrelid::regclass AS table, attname, attcompression, attstorage, avg_width FROM pg_attribute a JOIN pg_class c ON c.oid = \
                    attrelid JOIN pg_stats s ON s.attname = a.attname AND s.tablename = c.relname WHERE attstorage IN ('x', 'e') ORDER BY avg_width DESC \
                    LIMIT 5; -- then ALTER TABLE ... ALTER COLUMN ... SET COMPRESSION lz4"],
            ),
        );
    }
    Answer::of(claims, || "WAL per commit and per row".to_string())
}

fn orphans(case: &Case) -> Answer {
    let mut claims = vec![];
    for server in case.things("server") {
        let (Some(age), Some(count)) =
            (server.lines.series("prepared_age_s_max"), server.lines.last("prepared_xacts"))
        else {
            continue;
        };
        if count < 1.0 || age.last().unwrap_or(0.0) < PREPARED_S {
            continue;
        }
        let oldest = age.max();
        let names: Vec<String> = case
            .at("horizon", server.place)
            .filter(|holder| holder.lines.word("kind") == "prepared")
            .map(|holder| holder.lines.word("name").to_string())
            .collect();
        let all =
            || "SELECT gid, prepared, owner, database FROM pg_prepared_xacts ORDER BY prepared;".to_string();
        let is_engines = names.first().is_some_and(|name| case.is_own_transaction(server.place, name));
        let (text, commands) = match names.first() {
            Some(name) => super::paste::ending(case, server.place, name),
            None => {
                ("find its outcome at the coordinator, and end it the same way here".to_string(), vec![all()])
            }
        };
        let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
        claims.push(
            Claim::new(
                if oldest >= PREPARED_HIGH_S { Severity::High } else { Severity::Low },
                Level::DiscriminatingCounter,
                format!(
                    "{}: {} unfinished, the oldest for {}",
                    server.place,
                    units::counted(count as usize, "prepared transaction"),
                    units::seconds(oldest)
                ),
            )
            .on_node(server.place)
            .during(age.stretches(0, |point| point.mean() >= PREPARED_S))
            .number("prepared_age_s", oldest)
            .number("prepared_xacts", count)
            .because(
                "it holds its locks and the xmin horizon until it is committed or rolled back, even across a restart",
            )
            .with(names.first(), |claim, name| {
                claim.because(format!(
                    "the one that holds back the horizon is {name}{}",
                    if is_engines { ", which the cluster's engine prepared" } else { "" }
                ))
            })
            .remedy(text, &commands),
        );
    }
    Answer::of(claims, || "prepared transactions and their age".to_string())
}

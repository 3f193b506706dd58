//! TXN: transactions that are too small, too large, or never finished.

use super::vacuum::is_wal;
use crate::case::Case;
use crate::decompose;
use crate::node_time;
use crate::rule::Need::{Field, Looked};
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use crate::waits::Who;
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
        limits: "1 GB spilled by a slot (ours; R3: the out-of-memory killer)",
        judge: spill,
        links: &[
            "https://www.postgresql.org/docs/current/runtime-config-resource.html#GUC-LOGICAL-DECODING-WORK-MEM",
        ],
    },
    Rule {
        id: "TXN-03",
        title: "very large rows",
        needs: &[Field("server", "wal_bytes"), Field("server", "xact_commit")],
        limits: "1 MB of WAL per commit, with few rows (R3: documents of 20 MB)",
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
];

/// Rows written per commit.
const ROWS_MIN: f64 = 2.0;
/// Of the active sessions.
const COMMIT_SHARE: f64 = 0.5;
/// Writing commits a second below which their cost does not matter.
const COMMITS_MIN_PER_S: f64 = 5.0;
/// Bytes spilled.
const SPILL_BYTES: f64 = 1e9;
/// WAL per commit.
const WAL_PER_COMMIT_BYTES: f64 = 1e6;
/// WAL per row written that makes rows large, not transactions.
const WAL_PER_ROW_BYTES: f64 = 100_000.0;
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
        let Some(share) = node_time::share_of(case, server.place, is_commit) else { continue };
        // Readers commit, too: at least half of the commits must write.
        if !(0.5..ROWS_MIN).contains(&per_commit)
            || share < COMMIT_SHARE
            || commits.rate() < COMMITS_MIN_PER_S
        {
            continue;
        }
        claims.push(
            Claim::new(
                Severity::High,
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
            .of_client_time(decompose::share_of(case, is_commit))
            .because(format!("{} commits, {} rows written", units::count(commits.sum()), units::count(rows)))
            .because(format!("seen in {}", waits.top_in_words(Who::Client)))
            .not(format!("locks: {} of the samples", units::percent(waits.share(Who::Client, |kind, _| kind == "Lock").unwrap_or(0.0))))
            .remedy(
                "put 100 to 1000 rows into one transaction; if losing the last transactions in a crash is acceptable, commit asynchronously",
                &["BEGIN; INSERT ...; INSERT ...; COMMIT;", "SET synchronous_commit = off; -- only for data that may be lost"],
            ),
        );
    }
    Answer::of(claims, || "rows written per commit, and what commits waited for".to_string())
}

fn spill(case: &Case) -> Answer {
    let mut claims = vec![];
    for slot in case.things("slot") {
        let bytes = slot.lines.sum("spill_bytes").unwrap_or(0.0);
        if bytes < SPILL_BYTES {
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

fn large_rows(case: &Case) -> Answer {
    let mut claims = vec![];
    for server in case.things("server") {
        let (Some(wal), Some(commits)) = (server.lines.sum("wal_bytes"), server.lines.sum("xact_commit"))
        else {
            continue;
        };
        let rows = written(server.lines).max(1.0);
        let (per_commit, per_row) = (wal / commits.max(1.0), wal / rows);
        if per_commit < WAL_PER_COMMIT_BYTES || per_row < WAL_PER_ROW_BYTES || commits < 10.0 {
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
                &[
                    "ALTER TABLE t ALTER COLUMN c SET COMPRESSION lz4;",
                    "SELECT max(pg_column_size(t.*)) FROM t TABLESAMPLE SYSTEM (1);",
                ],
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
        let command = match names.first() {
            Some(name) => {
                format!("ROLLBACK PREPARED '{name}'; -- or COMMIT PREPARED, as its coordinator decided")
            }
            None => {
                "SELECT gid, prepared, owner, database FROM pg_prepared_xacts ORDER BY prepared;".to_string()
            }
        };
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
                claim.because(format!("the one that holds back the horizon is {name}"))
            })
            .remedy("find its outcome at the coordinator, and end it the same way here", &[&command]),
        );
    }
    Answer::of(claims, || "prepared transactions and their age".to_string())
}

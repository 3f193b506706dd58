//! WAL: flushes that commits wait for, and checkpoints.

mod forced;
mod group;
mod peaks;
mod single;
pub(crate) mod size;
pub(super) mod spare;
mod switched;

use super::paste::{COMPRESSION, columns_of_a_key, data_directory};
use super::vacuum::is_wal;
use super::{costly, volume};
use crate::case::Case;
use crate::decompose;
use crate::node_time;
use crate::rule::Need::{Any, Driven, Facts, Field, Looked};
use crate::rule::{Answer, Claim, Rule};
use crate::series::Series;
use crate::statistics;
use crate::units;
use crate::waits::{self, Who};
use record::event;
use record::finding::{Level, Severity, Window};
use record::watched::own;
use std::collections::BTreeSet;

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "WAL-13",
        title: "files of the WAL are closed by command again and again",
        needs: &[Field("statement", "calls")],
        limits: "pg_switch_wal() every 2 s; medium or high by the share of the session time in the WAL from one a second on (ours)",
        judge: switched::switched,
        links: &["https://www.postgresql.org/docs/current/functions-admin.html#FUNCTIONS-ADMIN-BACKUP"],
    },
    Rule {
        id: "WAL-14",
        title: "a program commits each row that it writes by itself",
        needs: &[Field("statement", "calls"), Looked("wait")],
        limits: "40 % of the session time in the WAL; 0.85 to 2.2 active sessions; 50 commits a second, of which three quarters are a statement for one \
            row; high \
            from 70 % on; low without waits for the WAL, from 500 rows a second on that one application inserts (ours)",
        judge: single::judge,
        links: &["https://www.postgresql.org/docs/current/populate.html#DISABLE-AUTOCOMMIT"],
    },
    Rule {
        id: "WAL-01",
        title: "commits wait for the WAL to reach the disk",
        needs: &[Looked("wait")],
        limits: "30 % of the active sessions in LWLock:WALWrite, IO:WALSync or IO:WALWrite (ours)",
        judge: flush_bound,
        links: &["https://www.postgresql.org/docs/current/wal-configuration.html"],
    },
    Rule {
        id: "WAL-02",
        title: "latency peaks come with checkpoints",
        needs: &[
            Driven,
            Field("client", "response_us_p99"),
            Any(&[Field("server", "checkpoints_timed"), Field("server", "checkpoints_requested")]),
        ],
        limits: "3 peaks, 70 % of them 1 s before to 5 s after a checkpoint began, p < 0.01 by permutation (R4)",
        judge: peaks::peaks,
        links: &["https://www.postgresql.org/docs/current/wal-configuration.html"],
    },
    Rule {
        id: "WAL-03",
        title: "checkpoints are forced: max_wal_size is too small",
        needs: &[Field("server", "checkpoints_requested")],
        limits: "10 % of the checkpoints requested, at least 2 of them (pg_gather), or the server's log reports it; high from 3 on, one a minute, with 30 % \
            of the WAL in full page images or of the session time in I/O and the WAL (ours)",
        judge: forced::requested,
        links: &["https://www.postgresql.org/docs/current/runtime-config-wal.html#GUC-MAX-WAL-SIZE"],
    },
    Rule {
        id: "WAL-04",
        title: "the WAL contains more than its readers need",
        needs: &[Facts("setting"), Field("server", "wal_bytes")],
        limits: "wal_level logical without a logical slot, or changes of tables with REPLICA IDENTITY FULL (R3: up to 3 times the cost)",
        judge: extra,
        links: &["https://www.postgresql.org/docs/current/runtime-config-wal.html#GUC-WAL-LEVEL"],
    },
    Rule {
        id: "WAL-05",
        title: "WAL and tables share a device",
        needs: &[Field("mount", "used_for"), Looked("wait")],
        limits: "one device, and commits wait for it (WAL-01) (R4: 3 + 1 against 2 + 2 disks)",
        judge: shared_device,
        links: &["https://www.postgresql.org/docs/current/wal-internals.html"],
    },
    Rule {
        id: "WAL-06",
        title: "wal_buffers are too small",
        needs: &[Field("server", "wal_buffers_full"), Field("server", "xact_commit")],
        limits: "full once in 100 transactions, of 100 or more; medium once in each, with less than 1 MB; not on a node that applies changes of others (ours)",
        judge: buffers,
        links: &["https://www.postgresql.org/docs/current/runtime-config-wal.html#GUC-WAL-BUFFERS"],
    },
    Rule {
        id: "WAL-10",
        title: "commits sleep for commit_delay",
        needs: &[
            Facts("setting"),
            Field("server", "xact_commit"),
            Field("server", "tup_inserted"),
            Looked("wait"),
        ],
        limits: "commit_delay above 0; commits that write, multiplied by it, are 10 % of the session time, and commit_siblings lets them sleep (ours)",
        judge: group::delayed,
        links: &["https://www.postgresql.org/docs/current/runtime-config-wal.html#GUC-COMMIT-DELAY"],
    },
];

/// Of the active sessions.
pub(crate) const WAL_SHARE: f64 = 0.3;
/// The limit of a high finding.
const WAL_SHARE_HIGH: f64 = 0.5;
/// A commit waits for the flush that runs, and then for its own; with room for a queue of one more.
const FLUSHES_PER_COMMIT: f64 = 3.0;
/// A wait of a commit that is short in any case.
const FLUSH_MS_MIN: f64 = 2.0;
/// A flush from which on a faster device is worth its price.
const FLUSH_SLOW_MS: f64 = 1.0;
/// Commits a second from which on their mean wait means something.
const COMMITS_PER_S_MIN: f64 = 1.0;
/// The share of a wait in which its sessions had been woken and had no CPU.
const WOKEN_SHARE_MIN: f64 = 0.5;
/// Commits of a recording from which on a count per commit means something: one COPY fills the buffers again and again.
const COMMITS_MIN: f64 = 100.0;
/// Mean number of active sessions below which shares of them mean nothing.
const ACTIVE_MIN: f64 = 0.5;
/// Below this, commits that take less than half of the time are no trouble.
const ACTIVE_MUCH: f64 = 1.0;
/// Times that the buffers were full, per commit.
const FULL_PER_COMMIT: f64 = 0.01;

/// The share of the WAL in the time of a node's clients, if enough sessions were seen.
fn wal_share(case: &Case, node: &str, waits: &waits::Waits) -> Option<f64> {
    let active = waits.seen(Who::Client) / case.looks(node, &[case.span]).max(1.0);
    node_time::share_of(case, node, is_wal).filter(|share| *share >= WAL_SHARE && active >= ACTIVE_MIN)
}

/// The disks below a node's WAL, with the mean time of a flush there.
fn flushes<'a>(case: &'a Case, node: &str) -> Vec<(&'a str, f64)> {
    let host = case.host_of(node);
    let below = case.things("disk").filter(|disk| {
        disk.lines.word("used_for").contains("wal") && host.is_none_or(|host| host == disk.place)
    });
    below
        .filter_map(|disk| {
            let flush = disk.lines.series("flush_await_ms").or(disk.lines.series("write_await_ms"))?;
            Some((disk.name, flush.mean()))
        })
        .collect()
}

/// What the sessions of a node were seen in, and what else they were not.
fn with_waits(claim: Claim, waits: &waits::Waits) -> Claim {
    let share = |fits: fn(&str, &str) -> bool| waits.share(Who::Client, fits).unwrap_or(0.0);
    claim
        .because(format!("seen in {}", waits.top_in_words(Who::Client)))
        .not(format!(
            "locks between sessions: {} of the samples in Lock",
            units::percent(share(|kind, _| kind == "Lock"))
        ))
        .not(format!(
            "synchronous standbys: {} in IPC:SyncRep",
            units::percent(share(|kind, event| (kind, event) == ("IPC", "SyncRep")))
        ))
}

fn flush_bound(case: &Case) -> Answer {
    let mut claims = vec![];
    for (node, waits) in case.waiting_nodes() {
        let Some(share) = wal_share(case, node, waits) else { continue };
        let flushes = flushes(case, node);
        let wal = case.one("server", node).and_then(|server| server.rate("wal_bytes"));
        let flush_ms = flushes.iter().map(|(_, ms)| *ms).reduce(f64::max);
        let each_ms = commit_ms(case, node, share);
        // A commit waits for the flush that runs and for its own. If it waits for far longer, what is short is not the device.
        let is_fast = flush_ms
            .zip(each_ms)
            .is_some_and(|(flush, each)| each > (flush * FLUSHES_PER_COMMIT).max(FLUSH_MS_MIN));
        if is_fast && is_woken(case, node) {
            continue;
        }
        // One session that commits now and then waits for nothing else, nor do a few if the device is fast.
        let time = node_time::all(case).iter().find(|time| time.node == node);
        let active = time.map_or(f64::MAX, |time| time.active);
        let is_slow = flush_ms.is_none_or(|ms| ms >= FLUSH_SLOW_MS);
        let is_idle =
            active < ACTIVE_MUCH && share < WAL_SHARE_HIGH || active < ACTIVE_MUCH * 2.0 && !is_slow;
        let mut claim = Claim::new(
            match () {
                () if is_idle || !is_slow && spare::is_unhurried(case, node, each_ms) => Severity::Low,
                () if share >= WAL_SHARE_HIGH => Severity::High,
                () => Severity::Medium,
            },
            Level::DiscriminatingCounter,
            format!(
                "{node}: {} of the active sessions wait for the WAL to be written",
                units::percent(share)
            ),
        )
        .on_node(node)
        .during(waits.windows(Who::Client, is_wal))
        .number("wal_share", share)
        .with(wal, |claim, wal| claim.number("wal_bytes_per_s", wal))
        .of_client_time(decompose::share_of(case, is_wal));
        claim = with_waits(claim, waits);
        for (device, await_ms) in &flushes {
            claim = claim
                .number("flush_await_ms", *await_ms)
                .because(format!("a flush of {device} takes {} ms", units::short(*await_ms)));
        }
        if flushes.is_empty() {
            claim = claim.lacking("samples of the disk below the WAL: how long a flush takes there");
        }
        claim = claim.with(each_ms, |claim, ms| {
            claim
                .number("wait_ms_per_commit", ms)
                .because(format!("a commit waits {} ms for the WAL on average", units::short(ms)))
        });
        if is_fast {
            claim = claim.at_level(Level::CoOccurrence).because(
                "that is longer than two flushes of the device take: the queue for the WAL, or a limit above the device, is longer than its work",
            );
        }
        claims.push(with_flush_remedy(case, node, claim, flush_ms.filter(|_| !is_fast)));
    }
    Answer::of(claims, || "what active sessions waited for".to_string())
}

/// What to do: a faster device only where a flush is slow, or not known. `flush_ms`: of a device that explains the wait.
fn with_flush_remedy(case: &Case, node: &str, claim: Claim, flush_ms: Option<f64>) -> Claim {
    let is_known = !flushes(case, node).is_empty();
    let text = match flush_ms {
        Some(ms) if ms < FLUSH_SLOW_MS => DEVICE_IS_FAST,
        None if is_known => DEVICE_IS_FAST,
        _ => {
            "give the WAL a device of its own with a protected write cache, put more rows into a transaction (TXN-01), let commits share a flush (commit_delay)"
        }
    };
    let folder = data_directory(case, node);
    // Where commits sleep on purpose already, that comes first, and no more of it is proposed.
    let delay = group::delay(case, node);
    let (text, command) = match &delay {
        Some(delay) => (SLEEPS, delay.off()),
        None => (text, SHARES_A_FLUSH.to_string()),
    };
    claim.remedy(
        text,
        &[&format!("$ pg_test_fsync -f {folder}/pg_wal/pg_test_fsync.out"), &command, COMPRESSION],
    )
}

/// How commits share a flush, and what comes first where they sleep for that already.
const SHARES_A_FLUSH: &str =
    "ALTER SYSTEM SET commit_delay = 100; SELECT pg_reload_conf(); -- microseconds; measure with and without";
const SLEEPS: &str = "commit_delay makes commits sleep before they flush, and those behind them wait for that as well: take it away first, and \
    measure again; then \
    put more rows into a transaction (TXN-01), and see whether the device is slow";
/// The remedy where a faster device would not help.
const DEVICE_IS_FAST: &str = "the device is fast: put more rows into a transaction (TXN-01), let commits share a flush (commit_delay), and look for a limit \
    above it (IO-09) and for full CPUs";

/// How long a commit waits for the WAL on average; `None` if commits are too few for an average, or not all of them are those of sessions.
fn commit_ms(case: &Case, node: &str, share: f64) -> Option<f64> {
    if case.applies(node) {
        return None;
    }
    let time = node_time::all(case).iter().find(|time| time.node == node)?;
    let server = case.one("server", node)?;
    let commits = server.series("xact_commit")?.within(&node_time::windows(case)).rate();
    (commits >= COMMITS_PER_S_MIN).then(|| share * time.active / commits * 1e3)
}

/// Whether most of the sessions that seem to wait for the WAL had been woken and had no CPU.
fn is_woken(case: &Case, node: &str) -> bool {
    let time = node_time::all(case).iter().find(|time| time.node == node);
    let part = time.and_then(|time| time.parts.iter().find(|part| part.name == node_time::COMMITTING));
    part.is_some_and(|part| part.woken.unwrap_or(0.0) >= part.sessions * WOKEN_SHARE_MIN)
}

/// Whether the engine of the node moves data by logical replication: it has slots only while it does.
fn moves_data(case: &Case, node: &str) -> bool {
    case.own(node, own::SLOTS).is_some()
}

/// `full`: tables whose old rows are written whole; `wal`: bytes of WAL a second.
fn whole_old_rows(case: &Case, node: &str, full: &[&str], wal: f64) -> Claim {
    let time = node_time::all(case).iter().find(|time| time.node == node);
    let writer = time.and_then(|time| volume::writer(case, time)).filter(|writer| writer.full.is_some());
    let of_writer = writer.as_ref().and_then(|writer| Some((writer, writer.full?)));
    let relation = of_writer.map_or(full[0], |(_, relation)| relation);
    let words = match of_writer {
        Some((writer, relation)) => format!(
            "{node}: sessions wait {} of their time for the WAL, and one statement writes {} of it: {} for each row it changes, as the whole old row of \
             {relation} is written with its large values, whether they change or not (REPLICA IDENTITY FULL)",
            units::percent(writer.share),
            units::percent(writer.of_wal),
            units::bytes(writer.each)
        ),
        None => format!(
            "{node}: every update and delete writes the whole old row into the WAL, for {}",
            full.iter().take(5).copied().collect::<Vec<_>>().join(", ")
        ),
    };
    let severity = of_writer.map_or(Severity::Low, |(writer, _)| costly::severity(writer.share));
    let table = case.at("table", node).find(|table| table.lines.word("relation") == relation);
    let is_keyed = table.is_some_and(|table| table.lines.flag("primary_key") == Some(true));
    let claim = Claim::new(severity, Level::CoOccurrence, words)
        .on_node(node)
        .during([case.span])
        .number("wal_bytes_per_s", wal)
        .number("tables", full.len() as f64)
        .because("REPLICA IDENTITY FULL with wal_level logical")
        .lacking("the same load with a key as replica identity: how much WAL it saves");
    let claim = match of_writer {
        Some((writer, _)) => writer.beneath(claim),
        None => claim,
    };
    by_key(claim, relation, is_keyed)
}

/// How a table is replicated by a key instead of by whole rows.
pub(super) fn by_key(claim: Claim, relation: &str, is_keyed: bool) -> Claim {
    let alter = format!("ALTER TABLE {relation} REPLICA IDENTITY DEFAULT;");
    match is_keyed {
        true => claim.remedy(
            "replicate it by its primary key, unless a consumer needs the old values of other columns; then keep large values in a table of their own",
            &[&alter],
        ),
        false => claim.remedy(
            "give it a primary key, and use that as the replica identity",
            &[&columns_of_a_key(relation), &format!("{alter} -- once it has a primary key")],
        ),
    }
}

fn extra(case: &Case) -> Answer {
    let mut claims = vec![];
    for fact in case.facts("setting").filter(|fact| fact.name == "wal_level") {
        let node = fact.node.as_str();
        let wal = case.one("server", node).and_then(|server| server.rate("wal_bytes")).unwrap_or(0.0);
        let logical = case.at("slot", node).any(|slot| slot.lines.word("kind") == "logical");
        let full: Vec<&str> = case
            .at("table", node)
            .filter(|table| table.lines.word("replica_identity") == "full")
            .filter(|table| {
                table.lines.sum("rows_updated").unwrap_or(0.0)
                    + table.lines.sum("rows_deleted").unwrap_or(0.0)
                    > 0.0
            })
            .map(|table| table.lines.word("relation"))
            .collect();
        if fact.value != "logical" || wal < 1e5 {
            continue;
        }
        if !full.is_empty() {
            claims.push(whole_old_rows(case, node, &full, wal));
        } else if !logical && !moves_data(case, node) && !is_standby(case, node) {
            claims.push(
                Claim::new(
                    Severity::Note,
                    Level::Symptom,
                    format!("{node}: wal_level is logical, and no logical slot reads it"),
                )
                .on_node(node)
                .during([case.span])
                .number("wal_bytes_per_s", wal)
                .because("logical detail is written with every change (R3: up to three times the cost)")
                .lacking("the same load with wal_level replica: the difference is the cost")
                .remedy(
                    "lower it if no consumer needs it; the restart stops the database, and all sessions end",
                    &[
                        "ALTER SYSTEM SET wal_level = replica;",
                        &format!("$ pg_ctl restart -D {} -m fast", data_directory(case, node)),
                    ],
                ),
            );
        }
    }
    Answer::of(claims, || "wal_level, logical slots, replica identities".to_string())
}

/// A standby gets the slots of its primary's consumers after a failover.
fn is_standby(case: &Case, node: &str) -> bool {
    case.one("server", node).is_some_and(|server| server.flag("in_recovery") == Some(true))
}

/// What WAL and tables of a node share, as text: one file system, or several on the same disk.
fn meeting(case: &Case, node: &str) -> Option<(String, Option<String>)> {
    let host = case.host_of(node);
    let shared = case.things("mount").find(|mount| {
        let parts: Vec<&str> = mount.lines.word("used_for").split(',').map(str::trim).collect();
        let tables = parts.iter().any(|part| *part == "pgdata" || part.starts_with("tablespace"));
        tables && parts.contains(&"wal") && host.is_none_or(|host| host == mount.place)
    });
    if let Some(mount) = shared {
        let wording = format!("are on {} ({})", mount.name, mount.lines.word("device"));
        return Some((wording, Some(mount.place.to_string())));
    }
    let disks = |of_tables: bool| -> BTreeSet<&str> {
        let parts = case.facts("disk").filter_map(|fact| {
            let part = fact.name.strip_prefix(node)?.strip_prefix(' ')?.strip_suffix(" lies on")?;
            let is_table = part == "pgdata" || part.starts_with("tablespace");
            (if of_tables { is_table } else { part == "wal" }).then_some(fact.value.as_str())
        });
        parts.flat_map(|disks| disks.split(',')).filter(|disk| !disk.is_empty()).collect()
    };
    let (wal, tables) = (disks(false), disks(true));
    let disk = wal.intersection(&tables).next()?;
    Some((format!("are on two file systems of one disk ({disk})"), host.map(str::to_string)))
}

fn shared_device(case: &Case) -> Answer {
    let mut claims = vec![];
    for (node, waits) in case.waiting_nodes() {
        let Some(share) = wal_share(case, node, waits) else { continue };
        let Some((wording, host)) = meeting(case, node) else { continue };
        let host = host.unwrap_or_default();
        let reads: f64 = case
            .at("disk", &host)
            .filter(|disk| disk.lines.word("used_for").contains("wal"))
            .filter_map(|disk| disk.lines.rate("read_bytes"))
            .sum();
        claims.push(
            Claim::new(
                Severity::Low,
                Level::CoOccurrence,
                format!("{node}: WAL and tables {wording}, and {} of the active sessions wait for the WAL", units::percent(share)),
            )
            .on_node(node)
            .on_host(&host)
            .during([case.span])
            .number("wal_share", share)
            .number("read_bytes_per_s", reads)
            .because("each commit's flush waits behind the reads and the checkpoint's writes of the same device")
            .lacking("the same load with the WAL on another device")
            .remedy(
                "this stops the database, and all sessions end: move the WAL to a device of its own (here mounted at /wal, writable for the server's user)",
                &[&move_the_wal(case, node)],
            ),
        );
    }
    Answer::of(claims, || "file systems and disks of WAL and tables, waits for the WAL".to_string())
}

/// Moves the WAL, step by step: each only if the one before succeeded.
fn move_the_wal(case: &Case, node: &str) -> String {
    let folder = data_directory(case, node);
    format!(
        "$ d={folder} && test -d /wal && pg_ctl stop -D \"$d\" -m fast && cp -a \"$d/pg_wal\" /wal/pg_wal && mv \"$d/pg_wal\" \"$d/pg_wal.old\" && \
         ln -s /wal/pg_wal \"$d/pg_wal\" && pg_ctl start -D \"$d\""
    )
}

/// The least that the server chooses by itself with 32 MB of shared_buffers.
const BUFFERS_TINY: f64 = 1_048_576.0;

fn buffers(case: &Case) -> Answer {
    let mut claims = vec![];
    for server in case.things("server") {
        let (Some(full), Some(commits)) =
            (server.lines.series("wal_buffers_full"), server.lines.sum("xact_commit"))
        else {
            continue;
        };
        let per_commit = full.sum() / commits.max(1.0);
        // Workers that apply others' changes fill them as well, and not all of their commits are counted.
        let is_local = !case.applies(server.place);
        if per_commit <= FULL_PER_COMMIT || full.sum() < 10.0 || commits < COMMITS_MIN || !is_local {
            continue;
        }
        let now = case.setting(server.place, "wal_buffers").unwrap_or("unknown");
        let is_tiny = units::setting(now).is_some_and(|bytes| bytes < BUFFERS_TINY);
        claims.push(
            Claim::new(if is_tiny && per_commit >= 1.0 { Severity::Medium } else { Severity::Low }, Level::DiscriminatingCounter, format!("{}: WAL \
                buffers were full {} times, {} per commit", server.place, units::count(full.sum()), units::short(per_commit)))
                .on_node(server.place)
                .during(full.stretches(0, |point| point.sum > 0.0))
                .number("wal_buffers_full", full.sum())
                .number("per_commit", per_commit)
                .because(format!("wal_buffers is {now}; a session that finds them full must write WAL itself, during its transaction"))
                .remedy(
                    "increase wal_buffers; the restart stops the database, and all sessions end",
                    &["ALTER SYSTEM SET wal_buffers = '64MB';", &format!("$ pg_ctl restart -D {} -m fast", data_directory(case, server.place))],
                ),
        );
    }
    Answer::of(claims, || "how often WAL buffers were full".to_string())
}

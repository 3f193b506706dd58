//! REP: standbys, slots, subscriptions, clocks.

mod subscription;

use crate::case::{Case, Thing};
use crate::rule::Need::{Field, Looked, Peers};
use crate::rule::{Answer, Claim, Rule};
use crate::rules::paste::{OF_ENGINE, literal, slot_of_engine};
use crate::series::Series;
use crate::units;
use record::finding::{Level, Severity};
use record::watched::own;

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "REP-02",
        title: "WAL replay by a single process is the limit",
        needs: &[Looked("replication"), Looked("backend")],
        limits: "the startup process at 90 % of a processor for 30 s while replay falls behind and flush does not (R4)",
        judge: replay,
        links: &["https://www.postgresql.org/docs/current/runtime-config-wal.html#GUC-RECOVERY-PREFETCH"],
    },
    Rule {
        id: "REP-03",
        title: "a replication slot fills the WAL's disk",
        needs: &[Looked("slot")],
        limits: "it keeps half of what is free or fills it within an hour; unreserved or lost (R3: 57 min); \
            low if it has no consumer and keeps 64 MB and more and \
            more, medium from 1 GB or 10 min on (ours)",
        judge: slot_fills,
        links: &[
            "https://www.postgresql.org/docs/current/runtime-config-replication.html#GUC-MAX-SLOT-WAL-KEEP-SIZE",
        ],
    },
    Rule {
        id: "REP-04",
        title: "the surviving node's disk fills while its peer is down",
        needs: &[Looked("slot"), Peers("server", 2)],
        limits: "slots without a consumer grow on two nodes (R3: 40 min later)",
        judge: cascade,
        links: &[],
    },
    Rule {
        id: "REP-05",
        title: "clocks differ",
        needs: &[Field("clock", "offset_us")],
        limits: "more than the measurement error, one round trip and 10 ms; high from 100 ms (ours)",
        judge: clocks,
        links: &["https://chrony-project.org/documentation.html"],
    },
    Rule {
        id: "REP-06",
        title: "a replicated table has no primary key",
        needs: &[Field("table", "published")],
        limits: "any table that a publication or an engine replicates, without primary key or replica identity (R3)",
        judge: no_key,
        links: &[
            "https://www.postgresql.org/docs/current/logical-replication-publication.html#LOGICAL-REPLICATION-PUBLICATION-REPLICA-IDENTITY",
        ],
    },
    Rule {
        id: "REP-07",
        title: "applying replicated changes fails",
        needs: &[Looked("subscription")],
        limits: "any error of an apply worker, a subscription that is disabled, by an error or by hand, or one that has stopped; subscriptions that an \
            engine keeps for its own use, or disables itself, do not count",
        judge: subscription::apply_fails,
        links: &["https://www.postgresql.org/docs/current/logical-replication-conflicts.html"],
    },
];

/// Of one processor.
const REPLAY_BUSY: f64 = 0.9;
/// For so long.
const REPLAY_US: u64 = 30_000_000;
/// Replay this far behind flush is falling behind.
const REPLAY_LAG_BYTES: f64 = 16e6;
/// Of what is free.
const RETAINED_SHARE: f64 = 0.5;
/// Until the disk is full.
const FULL_S: f64 = 3_600.0;
/// What a slot without a consumer keeps, and for how long, before it is a finding although the disk has room.
const FORGOTTEN_BYTES_MIN: f64 = 64e6;
const FORGOTTEN_BYTES_MEDIUM: f64 = 1e9;
const FORGOTTEN_S: f64 = 600.0;
/// Retained WAL below which nothing is in danger.
const RETAINED_BYTES_MIN: f64 = 32e6;
/// Beyond the error of measuring.
const OFFSET_US: f64 = 10_000.0;
/// From here on a distributed database can return wrong results.
const OFFSET_HIGH_US: f64 = 100_000.0;

fn replay(case: &Case) -> Answer {
    let mut claims = vec![];
    for process in case.things("backend").filter(|process| process.lines.word("backend") == "startup") {
        let Some(cpu) = process.lines.series("cpu_us") else { continue };
        let windows = cpu.stretches(REPLAY_US, |point| point.rate() / 1e6 >= REPLAY_BUSY);
        let behind = case.things("replication").find(|standby| {
            let lag =
                |field: &str| standby.lines.series(field).map_or(0.0, |series| series.within(&windows).max());
            lag("replay_lag_bytes") - lag("flush_lag_bytes") >= REPLAY_LAG_BYTES
        });
        if windows.is_empty() {
            continue;
        }
        let share = cpu.within(&windows).rate() / 1e6;
        let node = process.lines.word("node");
        let mut claim = Claim::new(
            if behind.is_some() { Severity::High } else { Severity::Low },
            if behind.is_some() { Level::DiscriminatingCounter } else { Level::Symptom },
            format!(
                "{}: the process that replays the WAL uses {} of one processor",
                if node.is_empty() { process.place } else { node },
                units::percent(share)
            ),
        )
        .on_node(node)
        .on_host(process.place)
        .during(windows)
        .number("replay_busy_share", share);
        claim = match behind {
            Some(standby) => claim
                .number("replay_lag_bytes", standby.lines.max("replay_lag_bytes").unwrap_or(0.0))
                .because(format!(
                    "{}: {} are flushed there and not replayed",
                    standby.name,
                    units::bytes(standby.lines.max("replay_lag_bytes").unwrap_or(0.0))
                ))
                .not("the network and the standby's disk: WAL is received and flushed in time"),
            None => claim.lacking("how far replay is behind flush (pg_stat_replication of the primary)"),
        };
        claims.push(claim.remedy(
            "only one process replays: reduce its waits (recovery_prefetch), give it a faster processor, or write less WAL (fillfactor and HOT, \
             fewer indexes, fewer full page images)",
            &["ALTER SYSTEM SET recovery_prefetch = 'try'; SELECT pg_reload_conf(); -- on the standby", "ALTER TABLE t SET (fillfactor = 90);"],
        ));
    }
    if claims.is_empty()
        && case.things("replication").next().is_some()
        && !case.things("backend").any(|process| process.lines.word("backend") == "startup")
    {
        return Answer::CannotTell(
            "there are standbys, but their processes were not monitored: monitor their hosts, too"
                .to_string(),
        );
    }
    Answer::of(claims, || "processes that replay WAL".to_string())
}

/// Free space on the file system of a node's WAL.
pub(super) fn free_for_wal(case: &Case, node: &str) -> Option<f64> {
    let host = case.host_of(node);
    let holds = |mount: &Thing<'_>, what: &str| {
        mount.lines.word("used_for").split(',').any(|part| part.trim() == what)
    };
    let here = |mount: &Thing<'_>| host.is_none_or(|host| mount.place == host);
    let mounts: Vec<Thing<'_>> = case.things("mount").filter(here).collect();
    let of = |what: &str| {
        mounts.iter().find(|mount| holds(mount, what)).and_then(|mount| mount.lines.last("free_bytes"))
    };
    of("wal").or(of("pgdata"))
}

/// What limits the WAL that slots keep, by the space that there is: a quarter of what is free and of what they keep already, in whole gigabytes.
pub(super) fn keep_size_command(case: &Case, node: &str) -> String {
    const GB: f64 = 1e9;
    const SHARE: f64 = 0.25;
    let kept = case.at("slot", node).filter_map(|slot| slot.lines.last("retained_bytes")).fold(0.0, f64::max);
    let size = free_for_wal(case, node).map(|free| ((free * SHARE + kept) / GB).floor().max(1.0));
    // Nothing is known of the disk: the value must be chosen by hand.
    let (size, hint) = match size {
        Some(size) => (format!("{size:.0}GB"), ""),
        None => ("100GB".to_string(), " -- less than is free on the disk of the WAL"),
    };
    format!("ALTER SYSTEM SET max_slot_wal_keep_size = '{size}'; SELECT pg_reload_conf();{hint}")
}

/// A slot that does not fill the disk today, but has no reader, and keeps more and more; `None` if that is little, or the engine's own.
fn forgotten(case: &Case, slot: &Thing<'_>, kept: f64) -> Option<Severity> {
    if kept < FORGOTTEN_BYTES_MIN || case.is_own(slot.place, own::SLOTS, slot.name) {
        return None;
    }
    let inactive_s = slot.lines.last("inactive_s").unwrap_or(0.0);
    let is_long = inactive_s >= FORGOTTEN_S || kept >= FORGOTTEN_BYTES_MEDIUM;
    Some(if is_long { Severity::Medium } else { Severity::Low })
}

/// What to do about a slot whose consumer begins again and again.
const COMES_AND_GOES: &str = "find out why its consumer ends: the server's log (\"terminating walsender process due to replication timeout\", an error of \
    decoding), and its own. A wal_sender_timeout below the time that it works on one transaction cuts it off each time: a minute is the default. Do not \
    drop the slot: what its consumer has not got yet would be lost; set a limit, so that a slot is lost and not the server";

/// What to do about a slot that keeps too much, and the command.
fn what_to_do(case: &Case, slot: &Thing<'_>, is_coming: bool) -> (&'static str, String) {
    match case.is_own(slot.place, own::SLOTS, slot.name) {
        true => (OF_ENGINE, slot_of_engine(slot.name)),
        false if is_coming => (
            COMES_AND_GOES,
            format!(
                "SELECT active, active_pid, restart_lsn, confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = {}; \
            SHOW wal_sender_timeout;",
                literal(slot.name)
            ),
        ),
        false => (
            "bring its consumer back, or drop the slot; set a limit, so that a slot is lost and not the server",
            format!("SELECT pg_drop_replication_slot({});", literal(slot.name)),
        ),
    }
}

fn slot_fills(case: &Case) -> Answer {
    let mut claims = vec![];
    for slot in case.things("slot") {
        // A lost slot keeps no WAL, but it is reported.
        let nothing = Series::default();
        let retained = slot.lines.series("retained_bytes").unwrap_or(&nothing);
        let (now, status) = (retained.last().unwrap_or(0.0), slot.lines.word("wal_status"));
        let idle = slot.lines.flag("active") == Some(false);
        let free = free_for_wal(case, slot.place);
        let growth = retained.slope().unwrap_or(0.0);
        let left_s = free.filter(|_| growth > 0.0).map(|free| free / growth);
        let full = free.is_some_and(|free| now >= RETAINED_BYTES_MIN && now >= (free + now) * RETAINED_SHARE);
        let soon = idle && now >= RETAINED_BYTES_MIN && left_s.is_some_and(|left| left < FULL_S);
        let is_lost = matches!(status, "lost" | "unreserved");
        // What is cut off and comes back must not lose its slot.
        let is_coming = slot.lines.changes("active") >= 2;
        let is_urgent = (full || soon || is_lost).then_some(Severity::High);
        let is_growing = (idle || is_coming) && growth > 0.0;
        let least = if is_coming { Severity::Medium } else { Severity::Low };
        let later = || forgotten(case, &slot, now).map(|severity| severity.max(least)).filter(|_| is_growing);
        let Some(severity) = is_urgent.or_else(later) else { continue };
        let limited = slot.lines.last("safe_wal_bytes").is_some();
        let (text, command) = what_to_do(case, &slot, is_coming);
        let detail = match (is_lost, left_s) {
            (true, _) => format!("; its WAL is {status}"),
            (false, Some(left)) => format!("; the disk is full in {}", units::seconds(left)),
            (false, None) => String::new(),
        };
        claims.push(
            Claim::new(
                severity,
                Level::DiscriminatingCounter,
                format!(
                    "{}: slot {} keeps {} of WAL{}{detail}",
                    slot.place,
                    slot.name,
                    units::bytes(now),
                    match idle {
                        _ if is_coming => ", and its consumer is there at some looks and away at others",
                        true => " and has no consumer",
                        false => "",
                    }
                ),
            )
            .on_node(slot.place)
            .during([slot.lines.ticks.window()])
            .number("retained_bytes", now)
            .number("growth_bytes_per_s", growth)
            .with(free, |claim, free| claim.number("free_bytes", free))
            .with(left_s, |claim, left| claim.number("until_full_s", left))
            .with(slot.lines.last("inactive_s"), |claim, age| {
                claim.because(format!("it has had no consumer for {}", units::seconds(age)))
            })
            .with(case.setting(slot.place, "wal_sender_timeout").filter(|_| is_coming), |claim, timeout| {
                claim.because(format!("wal_sender_timeout is {timeout}: a consumer that answers later is cut off, comes back, and begins where it was"))
            })
            .because(if limited {
                "max_slot_wal_keep_size will invalidate it before the disk is full"
            } else {
                "max_slot_wal_keep_size is -1: it grows until the disk is full, then the server stops"
            })
            .with(if free.is_none() { Some(()) } else { None }, |claim, ()| {
                claim.lacking("free space of the WAL's disk (monitor its host)")
            })
            .remedy(text, &[&command, &keep_size_command(case, slot.place)]),
        );
    }
    Answer::of(claims, || "WAL kept by replication slots, free space".to_string())
}

fn cascade(case: &Case) -> Answer {
    let growing: Vec<Thing<'_>> = case
        .things("slot")
        .filter(|slot| slot.lines.flag("active") == Some(false))
        .filter(|slot| {
            slot.lines.series("retained_bytes").is_some_and(|series| {
                series.max() >= RETAINED_BYTES_MIN && series.slope().is_some_and(|slope| slope > 0.0)
            })
        })
        .collect();
    let mut nodes: Vec<&str> = growing.iter().map(|slot| slot.place).collect();
    nodes.dedup();
    if nodes.len() < 2 {
        return Answer::Clean("slots without a consumer on every node".to_string());
    }
    let mut claim = Claim::new(
        Severity::High,
        Level::CoOccurrence,
        format!(
            "slots without a consumer keep more and more WAL on {} nodes: {}",
            nodes.len(),
            nodes.join(", ")
        ),
    )
    .during([case.span])
    .number("nodes", nodes.len() as f64);
    for slot in &growing {
        let speed = slot.lines.series("retained_bytes").and_then(Series::slope).unwrap_or(0.0);
        let left = free_for_wal(case, slot.place)
            .filter(|_| speed > 0.0)
            .map(|free| format!(", full in {}", units::seconds(free / speed)));
        claim = claim.because(format!(
            "{} {}: {} a second{}",
            slot.place,
            slot.name,
            units::bytes(speed),
            left.unwrap_or_default()
        ));
    }
    let are_engines = growing.iter().all(|slot| case.is_own(slot.place, own::SLOTS, slot.name));
    let text = match are_engines {
        true => OF_ENGINE,
        false => {
            "decide which node survives: drop the slots for the lost one before the survivor's disk is full"
        }
    };
    Answer::Found(vec![claim.remedy(
        text,
        &["SELECT slot_name, pg_size_pretty(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)) FROM pg_replication_slots WHERE NOT active;"],
    )])
}

fn clocks(case: &Case) -> Answer {
    let mut claims = vec![];
    for clock in case.things("clock") {
        let Some(offset) = clock.lines.series("offset_us") else { continue };
        let error = clock.lines.mean("error_us").unwrap_or(0.0);
        let rtt =
            case.one("server", clock.place).and_then(|server| server.mean("rtt_us")).unwrap_or(error * 2.0);
        let middle = crate::statistics::median(offset.values()).unwrap_or(0.0);
        let sure = middle.abs() - error;
        if sure <= rtt.max(OFFSET_US) {
            continue;
        }
        let chrony = case
            .facts("clock")
            .find(|fact| fact.name == "chrony offset")
            .map(|fact| format!("{}: chrony reports {}", fact.host, fact.value));
        claims.push(
            Claim::new(
                if sure >= OFFSET_HIGH_US { Severity::High } else { Severity::Medium },
                Level::DiscriminatingCounter,
                format!(
                    "{}: its clock is {} {} of ours, plus or minus {}",
                    clock.place, units::us(middle.abs()), if middle > 0.0 { "ahead" } else { "behind" }, units::us(error),
                ),
            )
            .on_node(clock.place)
            .during([offset.window()])
            .number("offset_us", middle)
            .number("error_us", error)
            .because("the server's clock_timestamp() compared with the middle of a round trip; the error is half of the round trip")
            .with(chrony, |claim, chrony| claim.because(chrony))
            .lacking("which of the two clocks is wrong: it may be ours")
            .remedy(
                "synchronise all hosts with the same source; distributed databases order transactions by these clocks",
                &[
                    "$ chronyc tracking",
                    "$ systemctl enable --now chronyd",
                ],
            ),
        );
    }
    Answer::of(claims, || "clocks of the nodes compared with ours".to_string())
}

fn no_key(case: &Case) -> Answer {
    let mut claims = vec![];
    for table in case.things("table").filter(|table| table.lines.flag("published") == Some(true)) {
        let identity = table.lines.word("replica_identity");
        let keyed = table.lines.flag("primary_key") != Some(false);
        if identity == "index" || (keyed && identity != "full" && identity != "nothing") {
            continue;
        }
        let relation = table.lines.word("relation");
        let changes =
            table.lines.sum("rows_updated").unwrap_or(0.0) + table.lines.sum("rows_deleted").unwrap_or(0.0);
        let there = case
            .things("table")
            .filter(|other| other.place != table.place && other.lines.word("relation") == relation)
            .max_by(|left, right| {
                left.lines
                    .sum("seq_rows")
                    .unwrap_or(0.0)
                    .total_cmp(&right.lines.sum("seq_rows").unwrap_or(0.0))
            });
        let scanned = there
            .and_then(|other| other.lines.sum("seq_rows"))
            .filter(|rows| changes > 0.0 && *rows / changes > 100.0);
        // An engine that keeps subscriptions for its own use replicates such tables, by whole rows.
        let is_engine =
            case.at("subscription", table.place).any(|one| one.lines.flag("own") == Some(true)) && !keyed;
        let keyless_only = keyed && identity == "full";
        let claim = Claim::new(
                match (scanned.is_some(), changes > 0.0) {
                    (true, _) => Severity::High,
                    (false, true) => Severity::Medium,
                    (false, false) => Severity::Low,
                },
                Level::DiscriminatingCounter,
                if keyless_only {
                    format!("{}: {relation} is replicated with REPLICA IDENTITY FULL although it has a primary key", table.place)
                } else {
                    format!("{}: {relation} is replicated and has no primary key (replica identity {identity})", table.place)
                },
            )
            .on_node(table.place)
            .during([case.span])
            .number("changes", changes)
            .because(match identity {
                _ if is_engine => {
                    "the other nodes search the row of every change by all columns: one scan of the table per row, and each commit waits for it"
                }
                "full" => "the subscriber searches the row of every change by all columns: one scan of the table per row",
                _ => "updates and deletes of it fail, or are not replicated",
            })
            .with(scanned, |claim, rows| {
                claim.number("rows_scanned_per_change", rows / changes).because(format!("{}: the subscriber scanned {} rows for {} \
                    changes", there.map_or("", |other| other.place), units::count(rows), units::count(changes)))
            })
;
        claims.push(super::wal::by_key(claim, relation, keyless_only));
    }
    Answer::of(claims, || "published tables and their keys".to_string())
}

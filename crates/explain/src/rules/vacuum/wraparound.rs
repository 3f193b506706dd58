//! The age of the oldest transaction id, and how long a complete vacuum takes.

use super::horizon::freeze_max_age;
use super::{AGE_SHARE_HIGH, SAMPLES_MIN, is_delay, is_wal, pace, vacuums};
use crate::case::{Case, Lines, Thing};
use crate::rule::{Answer, Claim};
use crate::units;
use crate::waits::Who;
use record::finding::{Level, Severity};

/// Of autovacuum_freeze_max_age, before the vacuum begins.
const WRAPAROUND_SHARE: f64 = 0.8;

/// Sooner than this.
const WRAPAROUND_SOON_S: f64 = 86_400.0;

/// At this multiple of autovacuum_freeze_max_age vacuum cannot keep up.
const WRAPAROUND_LOST: f64 = 4.0;

/// Rows below which a table's wraparound needs no plan.
const LOADED_ROWS_MIN: f64 = 1_000.0;

pub(super) fn wraparound(case: &Case) -> Answer {
    let mut claims = vec![];
    for server in case.things("server") {
        let Some(age) = server.lines.series("database_age_xids") else { continue };
        let most = freeze_max_age(case, server.place);
        let now = age.last().unwrap_or(0.0);
        // Vacuum lowers the age: only what transactions add gives the rate. Commits do not: those that only read take no id.
        let burn = age.slope().filter(|slope| *slope > 0.0).unwrap_or(0.0);
        let left_s = if burn > 0.0 { (most - now).max(0.0) / burn } else { f64::INFINITY };
        let long_watched = age.window().length_us() >= 10_000_000;
        let is_near = now >= most * WRAPAROUND_SHARE;
        let is_soon = left_s < WRAPAROUND_SOON_S && now >= most * AGE_SHARE_HIGH && long_watched;
        if !is_near && !is_soon {
            continue;
        }
        let severity = match now / most {
            lost if lost >= WRAPAROUND_LOST => Severity::High,
            begun if begun >= 1.0 => Severity::Medium,
            _ => Severity::Low,
        };
        let detail = if now >= most {
            "vacuum against wraparound is due now".to_string()
        } else if burn > 0.0 {
            format!("vacuum against wraparound begins in {}", units::seconds(left_s))
        } else {
            "vacuum against wraparound is near, at an unknown time".to_string()
        };
        let claim = Claim::new(
            severity,
            Level::DiscriminatingCounter,
            format!("{}: {detail}: the oldest row is {} transactions old; vacuum is forced at {}", server.place, units::count(now), units::count(most)),
        )
        .on_node(server.place)
        .during([age.window()])
        .number("age_xids", now)
        .number("freeze_max_age_xids", most)
        .number("xids_per_s", burn)
        .number("until_wraparound_vacuum_s", left_s)
        .remedy(
            "freeze the tables at a time of your choice, before vacuum is forced; batches use fewer transaction ids than single rows",
            &[
                "VACUUM (FREEZE, INDEX_CLEANUP OFF, PARALLEL 0) t; -- each large table, several at once",
                "$ vacuumdb --all --freeze --jobs 8 --min-xid-age 50000000",
            ],
        );
        claims.push(advise(case, server.place, server.lines, claim));
    }
    Answer::of(claims, || "age of the oldest transaction id against autovacuum_freeze_max_age".to_string())
}

/// The cost of a complete vacuum: the bytes to read, the present rate, its limit, and the effect of each setting.
fn advise(case: &Case, node: &str, server: &Lines, mut claim: Claim) -> Claim {
    let tables: Vec<Thing<'_>> = case
        .at("table", node)
        .filter(|table| table.lines.last("live_rows").unwrap_or(0.0) >= LOADED_ROWS_MIN)
        .collect();
    let bytes: f64 = tables.iter().filter_map(|table| table.lines.last("bytes")).sum();
    let largest = tables.iter().filter_map(|table| table.lines.last("bytes")).fold(0.0, f64::max);
    let speeds: Vec<f64> = vacuums(case, node).filter_map(|progress| Some(pace(progress.lines)?.0)).collect();
    let workers = server.max("autovacuum_workers_max").unwrap_or(3.0).max(1.0);
    if bytes > 0.0 {
        claim = claim.number("bytes_to_read", bytes).because(format!(
            "{} of heap in {} must be read once",
            units::bytes(bytes),
            units::counted(tables.len(), "table")
        ));
    }
    let speed: f64 = speeds.iter().sum();
    if speed > 0.0 && bytes > 0.0 {
        // One table is one worker's: the largest decides if there are enough workers.
        let each = speed / speeds.len() as f64;
        let time = (bytes / (each * workers)).max(largest / each);
        claim = claim.number("predicted_s", time).because(format!(
            "at {} a second for each of {} workers this takes {}",
            units::bytes(each),
            units::short(workers),
            units::seconds(time)
        ));
    } else {
        claim = claim.lacking(
            "no vacuum ran during the recording, so its speed is unknown; monitor one with pgfathom watch",
        );
    }
    let Some(waits) = case.waits(node).filter(|waits| waits.seen(Who::Vacuum) >= SAMPLES_MIN) else {
        return claim;
    };
    let delay = waits.share(Who::Vacuum, is_delay).unwrap_or(0.0);
    let wal = waits.share(Who::Vacuum, is_wal).unwrap_or(0.0);
    let io = waits.share(Who::Vacuum, |kind, event| kind == "IO" && !is_wal(kind, event)).unwrap_or(0.0);
    let limit = [
        ("the cost limit (autovacuum_vacuum_cost_delay)", delay),
        ("the WAL", wal),
        ("reading and writing tables", io),
        ("CPU", 1.0 - delay - wal - io),
    ]
    .into_iter()
    .max_by(|left, right| left.1.total_cmp(&right.1));
    claim = claim.with(limit, |claim, (name, share)| {
        claim.because(format!("its limit now: {name}, {} of its time", units::percent(share)))
    });
    if delay > 0.0 {
        claim = claim.because(format!(
            "autovacuum_vacuum_cost_delay = 0 saves at most {} of its time",
            units::percent(delay)
        ));
    }
    claim.because(format!("a faster WAL saves at most {}; more workers help only if there are more tables than workers and the cost limit is \
        raised", units::percent(wal)))
}

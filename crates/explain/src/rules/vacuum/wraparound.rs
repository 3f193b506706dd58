//! The age of the oldest transaction id, and how long a complete vacuum takes.

use super::horizon::freeze_max_age;
use super::{AGE_SHARE_HIGH, SAMPLES_MIN, is_delay, is_wal, pace, vacuums};
use crate::case::{Case, Lines, Thing};
use crate::node_time;
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

/// Freezes tables at a time of choice.
const FREEZE: &str = "VACUUM (FREEZE, INDEX_CLEANUP OFF, PARALLEL 0) t; -- each large table, several at once";
const FREEZE_ALL: &str = "$ vacuumdb --all --freeze --jobs 8 --min-xid-age 50000000";
/// Vacuums at once from which on they are a storm.
const RUNNING_MIN: usize = 2;
/// The share of the session time in the WAL, in reads and in waits for a CPU that is felt while they run.
const FELT_MIN: f64 = 0.3;
/// Names of tables in a claim.
const NAMES_MAX: usize = 3;
/// The number of a claim about vacuums that run while it is watched.
pub(crate) const RUNNING: &str = "wraparound_vacuums_running";

/// Vacuums against wraparound of several tables at the same time, as after a restore or a large load, whose tables reach the age together.
struct Running {
    count: usize,
    /// The end of the claim.
    words: String,
    /// Whether sessions are slowed by what the vacuums use.
    is_felt: bool,
    /// Whether nothing slows the vacuums down.
    is_unbraked: bool,
}

impl Running {
    fn of(case: &Case, node: &str) -> Option<Running> {
        let mut tables: Vec<&str> = vacuums(case, node)
            .filter(|progress| progress.lines.flag("wraparound") == Some(true))
            .map(|progress| progress.lines.word("relation"))
            .collect();
        tables.sort_unstable();
        tables.dedup();
        if tables.len() < RUNNING_MIN {
            return None;
        }
        let is_unbraked =
            case.setting(node, "autovacuum_vacuum_cost_delay").is_some_and(|delay| delay.starts_with('0'));
        let time = node_time::all(case).iter().find(|time| time.node == node && !time.is_idle());
        let of = |names: [&str; 3]| {
            time.map_or(0.0, |time| names.iter().map(|name| node_time::share_of_part(time, name)).sum())
        };
        let share: f64 = of([node_time::COMMITTING, node_time::READING, node_time::FOR_CPU]);
        let more = tables.len().saturating_sub(NAMES_MAX);
        let named = tables.iter().take(NAMES_MAX).copied().collect::<Vec<_>>().join(", ");
        let words = format!(
            "; {} of them run at once or one after the other while sessions work ({named}{}){}",
            tables.len(),
            if more > 0 { format!(" and {more} more") } else { String::new() },
            if is_unbraked { ", and nothing slows them down (autovacuum_vacuum_cost_delay = 0)" } else { "" }
        );
        Some(Running { count: tables.len(), words, is_felt: share >= FELT_MIN, is_unbraked })
    }

    fn advise(&self, claim: Claim) -> Claim {
        let brake: &[&str] = match self.is_unbraked {
            true => &[
                "ALTER SYSTEM SET autovacuum_vacuum_cost_delay = '2ms'; SELECT pg_reload_conf(); -- running vacuums take it over as well",
                FREEZE_ALL,
            ],
            false => &[
                "ALTER SYSTEM SET autovacuum_vacuum_cost_limit = 200; SELECT pg_reload_conf(); -- running vacuums take it over as well",
                FREEZE_ALL,
            ],
        };
        claim.number(RUNNING, self.count as f64).remedy(
            "slow the vacuums down while the load is high (they must end, but not within the hour), and freeze tables one after the other at quiet times \
             before they reach the age: after a restore or a large load they reach it together. A higher autovacuum_freeze_max_age (from the next start on) \
             puts it off",
            brake,
        )
    }
}

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
        let running = Running::of(case, server.place).filter(|_| now >= most);
        let severity = match now / most {
            _ if running.as_ref().is_some_and(|running| running.is_felt) => Severity::High,
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
            format!(
                "{}: {detail}: the oldest row is {} transactions old; vacuum is forced at {}{}",
                server.place,
                units::count(now),
                units::count(most),
                running.as_ref().map_or("", |running| &running.words)
            ),
        )
        .on_node(server.place)
        .during([age.window()])
        .number("age_xids", now)
        .number("freeze_max_age_xids", most)
        .number("xids_per_s", burn)
        .number("until_wraparound_vacuum_s", left_s);
        let claim = match running {
            Some(running) => running.advise(claim),
            None => claim.remedy(
                "freeze the tables at a time of your choice, before vacuum is forced; batches use fewer transaction ids than single rows",
                &[FREEZE, FREEZE_ALL],
            ),
        };
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

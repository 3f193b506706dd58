//! VAC: vacuum, and what hinders it. After a big load it runs for days, so these rules also estimate how long it will take.

mod ahead;
mod cancelled;
mod eager;
mod forgotten;
mod horizon;
mod off;
pub(crate) mod pacing;
mod stepped;
mod wraparound;

use crate::case::{Case, Lines, Thing};
use crate::node_time;
use crate::rule::Need::{Facts, Field, Looked};
use crate::rule::{Answer, Claim, Rule};
use crate::rules::costly::severity;
use crate::rules::paste::COMPRESSION;
use crate::series::Series;
use crate::units;
use crate::waits::{Waits, Who};
use horizon::{holder_words, is_harmful, is_old};
use off::off;
use record::finding::{Level, Severity, Window};
use std::borrow::Cow;
pub(crate) use wraparound::RUNNING;
use wraparound::wraparound;

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "VAC-01",
        title: "autovacuum sleeps for its cost limit",
        needs: &[Field("server", "autovacuum_workers"), Looked("wait")],
        limits: "half of the samples of autovacuum workers in Timeout:VacuumDelay, of all or for 30 s (R0: a day for 3.2 of 9.3 TB); medium if dead rows are a \
            fifth of the living ones and it takes over ten minutes (ours)",
        judge: delayed,
        links: &["https://www.postgresql.org/docs/current/routine-vacuuming.html#VACUUM-FOR-WRAPAROUND"],
    },
    Rule {
        id: "VAC-02",
        title: "vacuum waits for the WAL",
        needs: &[Field("server", "autovacuum_workers"), Looked("wait")],
        limits: "half of the samples of autovacuum workers in LWLock:WALWrite, IO:WALSync or IO:WALWrite, of all or for 30 s (R0)",
        judge: wal_bound,
        links: &[],
    },
    Rule {
        id: "VAC-03",
        title: "all autovacuum workers are busy",
        needs: &[Field("server", "autovacuum_workers_max")],
        limits: "all of them in 80 % of the samples, for 30 s; high from 5 min (R1: 50 of 50); or all of them in all samples, while a table that none works \
            on has \
            more dead rows than live ones",
        judge: saturated,
        links: &["https://www.postgresql.org/docs/current/routine-vacuuming.html#AUTOVACUUM"],
    },
    Rule {
        id: "VAC-04",
        title: "vacuum runs repeatedly without result",
        needs: &[Field("table", "autovacuums"), Field("table", "dead_rows")],
        limits: "60 runs an hour on a table, or 3 runs that leave its dead rows (R1: 20,000 a day)",
        judge: fruitless,
        links: &[],
    },
    Rule {
        id: "VAC-16",
        title: "autovacuum goes through large tables for a handful of rows",
        needs: &[Field("table", "live_rows"), Field("server", "autovacuum_workers")],
        limits: "a table of 50,000 rows for which autovacuum comes after 0.2 % of changed rows or fewer, with 3 runs, or at work while 0.3 workers are \
            at any time \
            (ours)",
        judge: eager::eager_vacuums,
        links: &["https://www.postgresql.org/docs/current/routine-vacuuming.html#AUTOVACUUM"],
    },
    Rule {
        id: "VAC-05",
        title: "the xmin horizon is held back",
        needs: &[Looked("horizon")],
        limits: "an hour, or 5 % of autovacuum_freeze_max_age; high from 50 % (R1, R3); or 15 s while vacuums leave 10,000 dead rows (ours)",
        judge: horizon::horizon,
        links: &["https://www.postgresql.org/docs/current/routine-vacuuming.html#VACUUM-BASICS"],
    },
    Rule {
        id: "VAC-06",
        title: "vacuum scans the indexes several times",
        needs: &[Looked("progress")],
        limits: "2 passes: the memory for dead rows was too small",
        judge: passes,
        links: &[
            "https://www.postgresql.org/docs/current/runtime-config-resource.html#GUC-AUTOVACUUM-WORK-MEM",
        ],
    },
    Rule {
        id: "VAC-07",
        title: "wraparound vacuum is near",
        needs: &[Field("server", "database_age_xids"), Field("server", "freeze_max_age_xids")],
        limits: "80 % of autovacuum_freeze_max_age, or within 24 h at the present rate; high from 4 times that age",
        judge: wraparound,
        links: &["https://www.postgresql.org/docs/current/routine-vacuuming.html#VACUUM-FOR-WRAPAROUND"],
    },
    Rule {
        id: "VAC-08",
        title: "autovacuum is off while rows change",
        needs: &[Facts("setting"), Field("server", "tup_updated")],
        limits: "autovacuum or track_counts off, and 10 rows updated or deleted a second; high with a fifth of a table of 10,000 rows dead; or off \
            for a table with 10,000 dead rows, and more than living ones (ours)",
        judge: off,
        links: &["https://www.postgresql.org/docs/current/routine-vacuuming.html#AUTOVACUUM"],
    },
    cancelled::RULE,
    forgotten::RULE,
];

/// Share of a worker's samples.
pub(crate) const SHARE: f64 = 0.5;
/// Samples of workers below which a share is meaningless.
const SAMPLES_MIN: f64 = 5.0;
/// A phase of a longer recording counts separately from this length on ...
const PHASE_US: u64 = 30_000_000;
/// ... if it has this share of all samples: a week contains half a minute of everything.
const PHASE_SHARE: f64 = 0.02;
/// Share of the ticks with all workers busy.
const SATURATION: f64 = 0.8;
/// For so long.
const SATURATION_US: u64 = 30_000_000;
/// Looks of a shorter recording.
const LOOKS_MIN: usize = 8;
/// The limit of a high finding.
const SATURATION_HIGH_US: u64 = 300_000_000;
/// Runs an hour on one table.
const RUNS_PER_H: f64 = 60.0;
/// Runs in a row without result.
const RUNS_MIN: f64 = 3.0;
/// Dead rows below which a table is small.
const DEAD_ROWS_MIN: f64 = 1_000.0;
/// Dead rows of a table that a young holder keeps.
const DEAD_ROWS_HARM: f64 = 10_000.0;
/// Of its live rows.
const DEAD_SHARE_HARM: f64 = 0.2;
/// The limit of a high finding.
const AGE_SHARE_HIGH: f64 = 0.5;
pub(crate) fn is_delay(_: &str, event: &str) -> bool {
    event == "VacuumDelay"
}

/// Waits for the WAL.
pub(crate) fn is_wal(kind: &str, event: &str) -> bool {
    (kind, event) == ("LWLock", "WALWrite") || is_wal_io(kind, event)
}

/// Writing the WAL, or waiting until it is on disk: `WALSync` until 16, `WalSync` since 17 (`wait_event_names.txt`), also of a new segment.
fn is_wal_io(kind: &str, event: &str) -> bool {
    const EVENTS: [&str; 4] = ["WalSync", "WalWrite", "WalInitSync", "WalInitWrite"];
    kind == "IO" && EVENTS.iter().any(|name| name.eq_ignore_ascii_case(event))
}

/// Vacuums of a node at work, with their progress.
fn vacuums<'a>(case: &'a Case, node: &'a str) -> impl Iterator<Item = Thing<'a>> {
    case.at("progress", node).filter(|progress| progress.lines.word("command") == "vacuum")
}

/// How fast a vacuum scans, and when it will have scanned all: bytes a second and seconds left. `done` and `total` are blocks.
fn pace(lines: &Lines) -> Option<(f64, f64)> {
    let (done, total) = (lines.series("done")?, lines.max("total")?);
    let slope = done.slope().filter(|slope| *slope > 0.0)?;
    Some((slope * block_bytes(lines), (total - done.last()?).max(0.0) / slope))
}

fn block_bytes(lines: &Lines) -> f64 {
    const BLOCK_BYTES: f64 = 8_192.0;
    if lines.word("unit") == "bytes" { 1.0 } else { BLOCK_BYTES }
}

/// Describes the progress of each wraparound vacuum.
fn with_pace(case: &Case, node: &str, mut claim: Claim) -> Claim {
    let mut worst: f64 = 0.0;
    for progress in vacuums(case, node) {
        let forced =
            if progress.lines.word("wraparound") == "true" { " (to prevent wraparound)" } else { "" };
        if let Some((speed, left)) = pace(progress.lines) {
            worst = worst.max(left);
            claim = claim.because(format!(
                "{}{forced} scans {} a second: {} left",
                progress.lines.word("relation"),
                units::bytes(speed),
                units::seconds(left)
            ));
        }
    }
    if worst > 0.0 { claim.number("left_s", worst) } else { claim }
}

/// The periods in which vacuum waited mostly for one event, and the share of its samples: the whole time, or one phase. The vacuums of R0 slept for a day,
/// and waited for the WAL after the limit was lifted: each is a finding.
struct Phase {
    share: f64,
    within: Window,
}

impl Phase {
    fn of(waits: &Waits, fits: impl Fn(&str, &str) -> bool + Copy) -> Option<Phase> {
        let all = waits.seen(Who::Vacuum);
        let whole = Window::new(0, u64::MAX);
        let phase = match waits.share(Who::Vacuum, fits)? {
            share if share >= SHARE => Phase { share, within: whole },
            _ => {
                let within = waits.densest(Who::Vacuum, SHARE, fits)?;
                let share = waits.share_within(Who::Vacuum, &[within], fits)?;
                Phase { share, within }
            }
        };
        let seen = waits.seen_within(Who::Vacuum, &[phase.within]);
        let is_long = phase.within.length_us() >= PHASE_US && seen >= all * PHASE_SHARE;
        (seen >= SAMPLES_MIN && is_long).then_some(phase)
    }

    /// When, for the claim: the times of the samples.
    fn windows(&self, waits: &Waits, fits: impl Fn(&str, &str) -> bool) -> Vec<Window> {
        match self.is_whole() {
            true => waits.windows(Who::Vacuum, fits),
            false => vec![self.within],
        }
    }

    fn is_whole(&self) -> bool {
        self.within.to_us == u64::MAX
    }

    fn share_of(&self, waits: &Waits, fits: impl Fn(&str, &str) -> bool) -> f64 {
        waits.share_within(Who::Vacuum, &[self.within], fits).unwrap_or(0.0)
    }

    /// The samples of the phase, without the rest of the recording.
    fn series<'a>(&self, lines: &'a Lines, field: &str) -> Option<Cow<'a, Series>> {
        let series = lines.series(field)?;
        Some(if self.is_whole() { Cow::Borrowed(series) } else { Cow::Owned(series.within(&[self.within])) })
    }
}

fn delayed(case: &Case) -> Answer {
    let mut claims = vec![];
    for (node, waits) in case.waiting_nodes() {
        let Some(phase) = Phase::of(waits, is_delay) else { continue };
        let share = phase.share;
        let forced = vacuums(case, node).any(|progress| progress.lines.word("wraparound") == "true");
        // The value at that time: after a change, the finding must not blame a delay of 0 for the sleep.
        let pacing = ahead::Pacing::of(case, node, phase.within.from_us);
        let left = ahead::slowest(case, node, &pacing);
        let is_soon = left.as_ref().is_some_and(ahead::Ahead::is_soon);
        let workers = case
            .one("server", node)
            .and_then(|server| phase.series(server, "autovacuum_workers"))
            .map_or(1.0, |series| series.max());
        let severity = match left.as_ref().is_some_and(ahead::Ahead::is_behind) {
            _ if forced && !is_soon => Severity::High,
            true => Severity::Medium,
            false => Severity::Low,
        };
        let claim = Claim::new(
            severity,
            Level::DiscriminatingCounter,
            format!(
                "{node}: {} slept for the cost limit during {} of the time{}{}",
                units::counted(workers as usize, "autovacuum worker"),
                units::percent(share),
                if forced { " although they must prevent wraparound" } else { "" },
                left.as_ref().map_or(String::new(), |left| format!("; {left}"))
            ),
        )
        .on_node(node)
        .during(phase.windows(waits, is_delay))
        .number("delay_share", share)
        .number("workers", workers)
        .because(format!("{} of their samples are in Timeout:VacuumDelay", units::percent(share)))
        .because(format!(
            "autovacuum_vacuum_cost_delay is {}, the limit {}, shared by all workers: more workers divide it, they do not raise it",
            pacing.delay, pacing.limit
        ))
        .with(left.as_ref(), |claim, left| claim.because(left.because()))
        .not(format!("disk or WAL: only {} of their samples wait for those", units::percent(phase.share_of(waits, |kind, _| kind == "IO"))));
        let claim = with_pace(case, node, claim).because(format!(
            "without the delay it runs up to {} times as fast, until another resource is the limit (VAC-02: the WAL)",
            units::short(1.0 / (1.0 - share).max(0.01)),
        ));
        claims.push(pacing::without_delay(case, node, claim));
    }
    Answer::of(claims, || "what autovacuum workers waited for".to_string())
}

fn wal_bound(case: &Case) -> Answer {
    let mut claims = vec![];
    for (node, waits) in case.waiting_nodes() {
        let Some(phase) = Phase::of(waits, is_wal) else { continue };
        let share = phase.share;
        let wal = case
            .one("server", node)
            .and_then(|server| phase.series(server, "wal_bytes"))
            .map_or(0.0, |series| series.rate());
        let holder = holder(waits, phase.within);
        let slept = waits.densest(Who::Vacuum, SHARE, is_delay).filter(|slept| {
            slept.to_us <= phase.within.from_us && slept.length_us() >= PHASE_US && !phase.is_whole()
        });
        let claim = Claim::new(
            Severity::High,
            Level::DiscriminatingCounter,
            format!("{node}: vacuum waits {} of its time for the WAL, at {} a second", units::percent(share), units::bytes(wal)),
        )
        .on_node(node)
        .during(phase.windows(waits, is_wal))
        .number("wal_share", share)
        .number("wal_bytes_per_s", wal)
        .because(format!("seen in {}", waits.top_in_words_within(Who::Vacuum, &[phase.within])))
        .with(holder, |claim, detail| claim.because(detail))
        .with(slept, |claim, slept| claim.because(format!("until {} into the recording it slept for its cost limit (VAC-01): that was the first \
            limit, the WAL is the next", units::seconds(slept.to_us as f64 / 1e6))))
        .not(format!("the cost limit: {} of the samples sleep for it", units::percent(phase.share_of(waits, is_delay))))
        .lacking("pg_stat_wal adds a backend's time only when its transaction ends: it shows nothing while a vacuum runs");
        claims.push(with_pace(case, node, claim).remedy(
            "use a faster device for the WAL, larger wal_buffers, wal_compression; more workers do not help. Keep the WAL in memory only for data \
             that can be loaded again: a power failure then destroys the database",
            &[
                "ALTER SYSTEM SET wal_buffers = '64MB'; -- then restart: all sessions end",
                COMPRESSION,
                "ALTER SYSTEM SET max_wal_size = '64GB'; SELECT pg_reload_conf(); -- fewer full page images",
            ],
        ));
    }
    Answer::of(claims, || "what autovacuum workers waited for".to_string())
}

/// One writes, the others queue: the pattern of a WAL at its limit.
fn holder(waits: &Waits, within: Window) -> Option<String> {
    let share = |fits: fn(&str, &str) -> bool| waits.share_within(Who::Vacuum, &[within], fits);
    let queue = share(|kind, event| (kind, event) == ("LWLock", "WALWrite"))?;
    let writing = share(is_wal_io)?;
    (queue > writing && writing > 0.0)
        .then(|| format!("one worker writes and {} queue behind it", units::short(queue / writing)))
}

/// Tables with more dead rows than autovacuum waits for.
fn tables_above_threshold<'a>(case: &'a Case, node: &'a str) -> Vec<&'a str> {
    case.at("table", node)
        .filter(|table| {
            table.lines.last("dead_rows").unwrap_or(0.0)
                > DEAD_ROWS_MIN + 0.2 * table.lines.last("live_rows").unwrap_or(0.0)
        })
        .map(|table| table.lines.word("relation"))
        .collect()
}

/// The table with more dead rows than live ones that no vacuum works on.
fn left_alone<'a>(case: &'a Case, node: &'a str) -> Option<Thing<'a>> {
    let at_work: Vec<String> =
        vacuums(case, node).map(|progress| progress.lines.word("relation").to_string()).collect();
    let dead = |table: &Thing<'_>| table.lines.last("dead_rows").unwrap_or(0.0);
    case.at("table", node)
        .filter(|table| {
            dead(table) > DEAD_ROWS_MIN
                && dead(table) > table.lines.last("live_rows").unwrap_or(0.0)
                && !at_work.iter().any(|relation| relation == table.lines.word("relation"))
        })
        .max_by(|left, right| dead(left).total_cmp(&dead(right)))
}

/// The share of the session time in a table.
fn share_in(case: &Case, table: &Thing<'_>) -> f64 {
    let time = node_time::all(case).iter().find(|time| time.node == table.place);
    let by = time.and_then(|time| time.by.iter().find(|by| by.name == "relation"));
    let relation = table.lines.word("relation");
    by.and_then(|by| by.shares.iter().find(|(name, _)| name == relation)).map_or(0.0, |(_, share)| *share)
}

/// The claim about busy workers: how many there are, in which share of the samples they were, and the table that waits for one.
fn busy_text(server: &Thing<'_>, (most, full): (f64, f64), left: Option<&Thing<'_>>) -> String {
    let who = match most > 1.0 {
        true => format!("all {most:.0} autovacuum workers were"),
        false => "the only autovacuum worker was".to_string(),
    };
    let rows = |table: &Thing<'_>, field: &str| units::short(table.lines.last(field).unwrap_or(0.0));
    let waits = left.map(|table| {
        let (dead, live) = (rows(table, "dead_rows"), rows(table, "live_rows"));
        format!(
            ", and none gets to {}, which has {dead} dead rows for {live} live ones",
            table.lines.word("relation")
        )
    });
    format!(
        "{}: {who} busy in {} of the samples{}",
        server.place,
        units::percent(full),
        waits.unwrap_or_default()
    )
}

fn saturated(case: &Case) -> Answer {
    let mut claims = vec![];
    for server in case.things("server") {
        let (Some(busy), Some(most)) =
            (server.lines.series("autovacuum_workers"), server.lines.max("autovacuum_workers_max"))
        else {
            continue;
        };
        let full = busy.points().iter().filter(|point| point.mean() >= most).count() as f64
            / busy.points().len().max(1) as f64;
        let mut windows = busy.stretches(SATURATION_US, |point| point.mean() >= most);
        let left = left_alone(case, server.place);
        if windows.is_empty() && full >= 1.0 && busy.points().len() >= LOOKS_MIN && left.is_some() {
            windows = vec![busy.window()];
        }
        if most <= 0.0 || full < SATURATION || windows.is_empty() {
            continue;
        }
        let length = windows.iter().map(|window| window.length_us()).max().unwrap_or(0);
        let waiting = tables_above_threshold(case, server.place);
        let held = case.at("horizon", server.place).next().is_some_and(|holder| is_old(case, &holder));
        let forced = vacuums(case, server.place)
            .filter(|progress| progress.lines.word("wraparound") == "true")
            .count();
        let costs = left.as_ref().map_or(0.0, |table| share_in(case, table));
        let least = if length >= SATURATION_HIGH_US { Severity::High } else { Severity::Medium };
        let mut claim = Claim::new(
            least.max(severity(costs)),
            Level::DiscriminatingCounter,
            busy_text(&server, (most, full), left.as_ref()),
        )
        .on_node(server.place)
        .during(windows)
        .number("workers", most)
        .number("full_share", full)
        .number("wraparound_vacuums", forced as f64);
        if !waiting.is_empty() {
            claim = claim.because(format!(
                "{} above their threshold during that time: {}",
                units::counted(waiting.len(), "table"),
                waiting.iter().take(5).copied().collect::<Vec<_>>().join(", ")
            ));
        }
        if held {
            claim = claim.because(
                "the xmin horizon is held back (VAC-05): the workers run but cannot remove anything",
            );
        }
        let delay = case.waits(server.place).and_then(|waits| waits.share(Who::Vacuum, is_delay));
        claim = claim.with(delay, |claim, share| {
            claim.number("delay_share", share).because(format!(
                "they slept for the cost limit during {} of their time",
                units::percent(share)
            ))
        });
        claims.push(claim.remedy(
            "first end what holds back the horizon, then raise the cost limit; more workers only divide the same limit",
            &[
                "ALTER SYSTEM SET autovacuum_vacuum_cost_limit = 2000; SELECT pg_reload_conf();",
                "ALTER SYSTEM SET autovacuum_max_workers = 10; -- only with a higher cost limit; then restart: all sessions end",
            ],
        ));
    }
    Answer::of(claims, || "busy autovacuum workers, and how many there can be".to_string())
}

/// Rows may become dead for twice the time between two runs: a run takes time itself.
const RUNS_LATE: f64 = 2.0;

/// Rows that become dead between two runs of autovacuum.
fn since_run(table: &Thing<'_>, runs: &Series) -> f64 {
    let rate = |field: &str| table.lines.rate(field).unwrap_or(0.0);
    let between_s = runs.window().length_us() as f64 / 1e6 / runs.sum();
    (rate("rows_updated") + rate("rows_deleted")) * between_s * RUNS_LATE
}

/// What is known of what keeps dead rows, where no holder of the horizon is old enough to explain them.
fn young_holder(case: &Case, place: &str) -> String {
    let age_s = |holder: &Thing<'_>| holder.lines.max("age_s").unwrap_or(0.0);
    let oldest = case.at("horizon", place).max_by(|a, b| age_s(a).total_cmp(&age_s(b)));
    match oldest {
        Some(holder) => format!(
            "what keeps the rows: of what holds back the horizon, {} was seen, {} old at most; a query, a cursor or a slot that is older may have been \
             there between two samples, or many young ones take turns",
            holder_words(&holder),
            units::seconds(age_s(&holder))
        ),
        None => "what keeps the rows: nothing that holds back the horizon was seen; a long query, a cursor or a slot may have been there between two samples"
            .to_string(),
    }
}

fn fruitless(case: &Case) -> Answer {
    let mut claims = vec![];
    for table in case.things("table") {
        let (Some(runs), Some(dead)) = (table.lines.series("autovacuums"), table.lines.series("dead_rows"))
        else {
            continue;
        };
        let hours = (runs.window().length_us() as f64 / 3.6e9).max(1.0 / 60.0);
        let (first, last) = (dead.first().unwrap_or(0.0), dead.last().unwrap_or(0.0));
        let stays = last >= DEAD_ROWS_MIN && last >= first * 0.9;
        if runs.sum() < RUNS_MIN || (!stays && runs.sum() / hours < RUNS_PER_H) || last < DEAD_ROWS_MIN {
            continue;
        }
        let relation = table.lines.word("relation");
        let live = table.lines.last("live_rows").unwrap_or(0.0);
        let log = case
            .events_of(record::event::AUTOVACUUM)
            .filter(|event| Case::word_of(event, "relation") == relation)
            .last();
        let held: Vec<String> = case
            .at("horizon", table.place)
            .filter(|holder| is_old(case, holder) || is_harmful(case, holder))
            .map(|holder| holder_words(&holder))
            .collect();
        // What became dead since the last run is no failure of it.
        if held.is_empty() && (last < live * DEAD_SHARE_HARM || last <= since_run(&table, runs)) {
            continue;
        }
        let mut claim = Claim::new(
            Severity::Medium,
            if held.is_empty() { Level::CoOccurrence } else { Level::DiscriminatingCounter },
            format!(
                "{}: {relation} was vacuumed {} and still has {} dead rows",
                table.place,
                units::counted(runs.sum() as usize, "time"),
                units::count(last)
            ),
        )
        .on_node(table.place)
        .during([runs.window()])
        .number("runs", runs.sum())
        .number("runs_per_h", runs.sum() / hours)
        .number("dead_rows", last)
        .with(log, |claim, event| claim.because(format!("the server's log: {}", event.message)));
        for holder in &held {
            claim = claim.because(format!(
                "the horizon is held back by {holder}: rows deleted since then cannot be removed"
            ));
        }
        claims.push(if held.is_empty() {
            claim.lacking(young_holder(case, table.place)).remedy(
                "look for what holds back the horizon while it lasts; if there is nothing, the rows become dead faster than the cost limit lets \
                    vacuum remove them",
                &["SELECT pid, state, age(backend_xmin) AS xmin_age, now() - xact_start AS age, left(query, 60) AS query FROM pg_stat_activity WHERE \
                    backend_xmin IS NOT NULL ORDER BY 3 DESC LIMIT 5;",
                  "SELECT slot_name, active, age(xmin), age(catalog_xmin) FROM pg_replication_slots;"],
            )
        } else {
            claim.remedy(
                "end what holds back the horizon (VAC-05): until then every run reads the table without effect",
                &["SELECT pid, state, age(backend_xmin) AS xmin_age, now() - xact_start AS age, left(query, 60) AS query FROM pg_stat_activity WHERE \
                    backend_xmin IS NOT NULL ORDER BY 3 DESC LIMIT 5;"],
            )
        });
    }
    Answer::of(claims, || "runs of autovacuum and dead rows by table".to_string())
}

fn passes(case: &Case) -> Answer {
    let mut claims = vec![];
    for progress in case.things("progress") {
        let Some(most) = progress.lines.max("index_passes").filter(|passes| *passes >= 2.0) else { continue };
        let memory = case
            .setting(progress.place, "autovacuum_work_mem")
            .filter(|value| *value != "-1")
            .or(case.setting(progress.place, "maintenance_work_mem"));
        claims.push(
            Claim::new(
                Severity::Medium,
                Level::DiscriminatingCounter,
                format!("{}: vacuum of {} scanned its indexes {most:.0} times", progress.place, progress.lines.word("relation")),
            )
            .on_node(progress.place)
            .during([progress.lines.ticks.window()])
            .number("index_passes", most)
            .because("its dead rows did not fit into memory, and each pass reads every index completely")
            .with(memory, |claim, memory| claim.because(format!("it may use {memory}")))
            .remedy(
                "give vacuum more memory for dead rows (PostgreSQL uses at most 1 GB before version 17), use fewer indexes, or upgrade to PostgreSQL 17",
                &["ALTER SYSTEM SET autovacuum_work_mem = '1GB'; SELECT pg_reload_conf();"],
            ),
        );
    }
    Answer::of(claims, || "index passes of the observed vacuums".to_string())
}

//! REP-11, by the standby's own account: how old what it shows is, and why: a delay that is set, nothing that is received, or a replay that is slow.

use super::{BEHIND_S, BUSY_SHARE, reason};
use crate::case::{Case, Thing};
use crate::rule::Claim;
use crate::rules::costly::plain;
use crate::units;
use crate::waits::Who;
use record::event::{self, Event};
use record::finding::{Level, Severity};

/// WAL that is received and not replayed.
const BEHIND_BYTES: f64 = 1e6;
/// From here on it is high, and from this age on.
const BEHIND_BYTES_HIGH: f64 = 256e6;
const BEHIND_HIGH_S: f64 = 60.0;
/// Seconds of age that each second adds, from which on nothing is replayed.
const AGING_MIN: f64 = 0.8;
/// Commits a second of sessions that read there.
const READS_PER_S_MIN: f64 = 1.0;
/// Looks in which the process that replays waits for one thing, of all.
const LOOKS_SHARE: f64 = 0.2;
/// Characters of a line of the log.
const LINE_CHARS: usize = 160;

/// The wait of a replay that is delayed on purpose.
fn is_delay(_: &str, event: &str) -> bool {
    event == "RecoveryApplyDelay"
}

/// Lines of the log that explain why nothing is received, by a part of their message, and what to do.
const REFUSALS: [(&str, &str, &str); 8] = [
    (
        "has already been removed",
        "the primary no longer has the WAL that it needs",
        "get the WAL from an archive (restore_command), or make the standby anew; and give it a replication slot, so that the primary keeps what it needs",
    ),
    (
        "replication slot",
        "its replication slot is not there, or is in use",
        "make the slot at the primary under the name of primary_slot_name, or correct the name; look for another standby that uses it",
    ),
    (
        "timeline",
        "its history is that of another timeline than the primary's",
        "point it at the server that was promoted, or rewind it with pg_rewind (or make it anew)",
    ),
    (
        "authentication failed",
        "the primary refuses its password",
        "correct the password of primary_conninfo (or its passfile), and pg_hba.conf of the primary",
    ),
    (
        "no pg_hba.conf entry",
        "pg_hba.conf of the primary has no line for it",
        "add a line for replication with its role and address, and reload the primary",
    ),
    (
        "number of requested standby connections exceeds max_wal_senders",
        "the primary has no room for one more standby (max_wal_senders)",
        "raise max_wal_senders at the primary, or end what takes them",
    ),
    (
        "could not connect to the primary",
        "it cannot connect to its primary",
        "look at primary_conninfo, at the network, and whether the primary runs",
    ),
    (
        "could not receive data from WAL stream",
        "the connection to its primary breaks",
        "look at the network, at wal_receiver_timeout and wal_sender_timeout, and at the primary's log",
    ),
];

/// What the log has about a receiver that fails.
fn refusal<'a>(case: &'a Case, node: &str) -> Option<(&'a Event, &'static str, &'static str)> {
    let of_node = |event: &&Event| [node, ""].contains(&Case::word_of(event, "node"));
    REFUSALS.iter().find_map(|(words, what, text)| {
        let line =
            case.events_of(event::SERVER_LOG).filter(of_node).find(|event| event.message.contains(words))?;
        Some((line, *what, *text))
    })
}

/// A standby in figures.
struct Figures {
    bytes: f64,
    age_s: f64,
    /// Commits a second of what reads there.
    reads_per_s: f64,
    /// It gets older all the time.
    is_aging: bool,
    /// Its replay is delayed on purpose.
    delay: Option<String>,
    /// Nothing receives WAL, at any look.
    is_alone: bool,
}

fn figures(case: &Case, server: &Thing<'_>) -> Option<Figures> {
    let last = |field: &str| server.lines.last(field);
    let delay = case.setting(server.place, "recovery_min_apply_delay").filter(|delay| *delay != "0");
    let waits = case.waits(server.place);
    let is_waiting = waits.is_some_and(|waits| waits.seen_in(Who::Background, is_delay) > 0.0);
    let known = last("replay_behind_bytes").is_some() || last("receivers").is_some();
    (known || is_waiting).then(|| Figures {
        bytes: last("replay_behind_bytes").unwrap_or(0.0),
        age_s: last("replay_age_s").unwrap_or(0.0),
        reads_per_s: server.lines.rate("xact_commit").unwrap_or(0.0),
        is_aging: server
            .lines
            .series("replay_age_s")
            .and_then(crate::series::Series::slope)
            .is_some_and(|slope| slope >= AGING_MIN),
        delay: delay
            .map(str::to_string)
            .or(is_waiting.then(|| "set".to_string()))
            .filter(|_| is_waiting || last("replay_behind_bytes").is_some_and(|bytes| bytes > 0.0)),
        is_alone: server.lines.max("receivers").is_some_and(|count| count <= 0.0),
    })
}

/// Why a standby is behind.
enum Why<'a> {
    Delay(String),
    Alone(Option<(&'a Event, &'static str, &'static str)>),
    Slow,
}

fn why<'a>(case: &'a Case, server: &Thing<'_>, figures: &Figures) -> Option<Why<'a>> {
    let node = server.place;
    let is_late = || {
        let least = |field: &str| {
            server.lines.series(field).map_or(0.0, |series| {
                series.points().iter().map(|point| point.mean()).fold(f64::MAX, f64::min)
            })
        };
        least("replay_behind_bytes") >= BEHIND_BYTES && figures.age_s >= BEHIND_S
    };
    if let Some(delay) = &figures.delay {
        return Some(Why::Delay(delay.clone()));
    }
    let refusal = refusal(case, node).filter(|_| figures.is_alone);
    // A standby that is filled from an archive alone receives nothing, and one of a primary that does nothing grows old as well.
    let has_primary = case.setting(node, "primary_slot_name").is_some_and(|slot| !slot.is_empty());
    if figures.is_alone && (refusal.is_some() || has_primary && figures.is_aging) {
        return Some(Why::Alone(refusal));
    }
    // REP-10 and REP-12 have these.
    let is_paused = server.lines.flag("replay_paused") == Some(true);
    let is_held = case.waits(node).is_some_and(|waits| {
        let is_held = |kind: &str, event: &str| kind == "Lock" || event.starts_with("RecoveryConflict");
        waits.seen_in(Who::Background, is_held) >= super::HELD_LOOKS_MIN
    });
    (is_late() && !is_paused && !is_held).then_some(Why::Slow)
}

/// The one standby that is watched, whatever name it gives to its primary; `None` of several.
pub(super) fn only(case: &Case) -> Option<&str> {
    let is_standby = |server: &Thing<'_>| server.lines.flag("in_recovery") == Some(true);
    let mut all = case.things("server").filter(is_standby);
    let first = all.next()?;
    let is_one = all.next().is_none() && case.things("replication").count() == 1;
    is_one.then_some(first.place)
}

/// Whether a standby shows itself why it is behind.
pub(super) fn is_behind(case: &Case, node: &str) -> bool {
    let mut servers = case.things("server").filter(|server| server.place == node);
    servers.any(|server| {
        server.lines.flag("in_recovery") == Some(true)
            && figures(case, &server).is_some_and(|figures| why(case, &server, &figures).is_some())
    })
}

/// What standbys show of themselves.
pub(super) fn behind(case: &Case) -> Vec<Claim> {
    let standbys = case.things("server").filter(|server| server.lines.flag("in_recovery") == Some(true));
    let of_one = |server: Thing<'_>| {
        let figures = figures(case, &server)?;
        let why = why(case, &server, &figures)?;
        Some(of_standby(case, &server, &figures, &why))
    };
    standbys.filter_map(of_one).collect()
}

/// How old what it shows is.
fn age_in_words(figures: &Figures) -> String {
    let mut words = vec![];
    if figures.age_s > 0.0 {
        words.push(format!("the last transaction that it shows is {} old", units::seconds(figures.age_s)));
    }
    if figures.bytes > 0.0 {
        words.push(format!("{} are received there and not replayed", units::bytes(figures.bytes)));
    }
    words.join("; ")
}

fn of_standby(case: &Case, server: &Thing<'_>, figures: &Figures, why: &Why<'_>) -> Claim {
    let node = server.place;
    let is_read = figures.reads_per_s >= READS_PER_S_MIN;
    let (severity, text) = match why {
        Why::Delay(delay) => (
            // It is a decision, and not a fault; who reads there may not know of it.
            if is_read { Severity::Low } else { Severity::Note },
            format!(
                "{node}: this standby replays every commit late on purpose (recovery_min_apply_delay = {delay}){}",
                if is_read { ": sessions that read here do not see what was written since" } else { "" }
            ),
        ),
        Why::Alone(refusal) => (
            Severity::High,
            format!(
                "{node}: this standby receives nothing from a primary{}",
                refusal.map_or(String::new(), |(_, what, _)| format!(": {what}"))
            ),
        ),
        Why::Slow => {
            let is_high = figures.bytes >= BEHIND_BYTES_HIGH || figures.age_s >= BEHIND_HIGH_S;
            (
                if is_high && is_read { Severity::High } else { Severity::Medium },
                format!(
                    "{node}: this standby receives the WAL and replays it late{}",
                    busy(case, node).map_or(String::new(), |busy| format!(
                        ": its one process that replays uses {} of a CPU",
                        units::percent(busy)
                    ))
                ),
            )
        }
    };
    let age = age_in_words(figures);
    let text = if age.is_empty() { text } else { format!("{text}; {age}") };
    let claim = Claim::new(severity, Level::DiscriminatingCounter, text)
        .on_node(node)
        .during([server.lines.ticks.window()])
        .number("replay_behind_bytes", figures.bytes)
        .number("replay_age_s", figures.age_s)
        .because("pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn() and pg_last_xact_replay_timestamp() of the standby");
    advised(case, node, figures, why, claim)
}

/// CPU of the process that replays, if that is nearly one.
fn busy(case: &Case, node: &str) -> Option<f64> {
    let startup = startup(case, node)?;
    let used = startup.lines.rate("cpu_us")? / 1e6;
    (used >= BUSY_SHARE).then_some(used)
}

fn startup<'a>(case: &'a Case, node: &str) -> Option<Thing<'a>> {
    case.things("backend")
        .find(|process| process.lines.word("backend") == "startup" && process.lines.word("node") == node)
}

fn advised(case: &Case, node: &str, figures: &Figures, why: &Why<'_>, claim: Claim) -> Claim {
    let settings = "SELECT name, setting, source FROM pg_settings WHERE name IN ('recovery_min_apply_delay', 'max_standby_streaming_delay', \
        'recovery_prefetch', 'primary_conninfo', 'primary_slot_name', 'restore_command'); -- on the standby";
    let reads = (figures.reads_per_s >= READS_PER_S_MIN)
        .then(|| format!("sessions end {} transactions a second on it", units::short(figures.reads_per_s)));
    let claim = claim.with(reads, Claim::because);
    match why {
        Why::Delay(_) => claim
            .because("the process that replays waits until each commit is as old as the setting wants (Timeout:RecoveryApplyDelay)")
            .not("the network, the disk and the CPU of the standby: it waits on purpose")
            .remedy(
                "keep a delayed standby for mistakes (a DROP that can be taken back), and send reads to one without a delay; or remove the delay",
                &["ALTER SYSTEM SET recovery_min_apply_delay = 0; SELECT pg_reload_conf(); -- on the standby", settings],
            ),
        Why::Alone(refusal) => {
            let text = refusal.map_or("look into the standby's log, and at primary_conninfo and primary_slot_name", |(_, _, text)| text);
            claim
                .because("pg_stat_wal_receiver has no row at any look")
                .with(refusal.as_ref(), |claim, (line, _, _)| claim.because(format!("its log: {}", plain(&line.message, LINE_CHARS))))
                .remedy(
                    text,
                    &[
                        "SELECT pid, status, slot_name, sender_host, sender_port FROM pg_stat_wal_receiver; -- on the standby",
                        "SELECT slot_name, active, wal_status, pg_size_pretty(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)) AS keeps FROM \
                            pg_replication_slots; -- on the primary",
                        settings,
                    ],
                )
        }
        Why::Slow => {
            let (text, mut words) = reason(startup(case, node).map(|process| process.lines), &[]);
            let looks = case.looks(node, &[case.span]).max(1.0);
            if let Some(waits) = case.waits(node) {
                let seen = waits.seen_in(Who::Background, |kind, _| kind == "IO");
                if seen >= looks * LOOKS_SHARE {
                    words.push(format!(
                        "processes of the server waited for I/O in {} of {} looks: {}",
                        units::short(seen.min(looks)),
                        units::short(looks),
                        waits.top_in_words(Who::Background)
                    ));
                }
            }
            let claim = words.into_iter().fold(claim, Claim::because);
            claim.not("the network: what is received is there").remedy(
                text,
                &[
                    "SELECT pid, wait_event_type, wait_event FROM pg_stat_activity WHERE backend_type = 'startup'; -- on the standby",
                    settings,
                ],
            )
        }
    }
}

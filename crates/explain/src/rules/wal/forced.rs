//! WAL-03: checkpoints that the volume of the WAL forces.

use super::size::{self, PAGE_BYTES, Proposal, Size};
use super::{ACTIVE_MIN, is_wal};
use crate::case::Case;
use crate::node_time;
use crate::rule::{Answer, Claim};
use crate::units;
use record::event;
use record::finding::{Level, Severity};

/// Requested checkpoints of all.
const REQUESTED_SHARE: f64 = 0.1;
/// Requested checkpoints at least: one may be a command's.
const REQUESTED_MIN: f64 = 2.0;
/// The WAL forces a checkpoint when at least a third of max_wal_size has been written since the last one (`CalculateCheckpointSegments` in xlog.c,
/// with checkpoint_completion_target at most 1); with less than this share per checkpoint, commands, backups or new databases requested them.
const FORCED_DISTANCE_MIN: f64 = 0.25;
/// Forced checkpoints from which on their rate means something.
const FORCED_MIN: f64 = 3.0;
/// Full page images of the WAL, or the session time in I/O and the WAL, from which on forced checkpoints cost much.
const FORCED_COST_SHARE: f64 = 0.3;

/// WAL-03.
pub(super) fn requested(case: &Case) -> Answer {
    let mut claims = vec![];
    for server in case.things("server") {
        let requested = server.lines.series("checkpoints_requested");
        let count = requested.map_or(0.0, crate::series::Series::sum);
        let timed = server.lines.sum("checkpoints_timed").unwrap_or(0.0);
        let reported = case.events_of(event::SERVER_LOG).find(|event| {
            event.message.contains("too frequently")
                && matches!(Case::word_of(event, "node"), node if node.is_empty() || node == server.place)
        });
        let share = count / (count + timed).max(1.0);
        if reported.is_none() && (count < REQUESTED_MIN || share <= REQUESTED_SHARE) {
            continue;
        }
        let now = case.setting(server.place, "max_wal_size").unwrap_or("unknown");
        let size = size::of(case, server.place, None);
        let (text, commands) = advice(size.as_ref());
        let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
        let seconds = server.lines.ticks.window().length_us() as f64 / 1e6;
        let reason = case
            .events_of(event::CHECKPOINT)
            .filter(|event| Case::word_of(event, "reason").contains("wal"))
            .count();
        let written = server.lines.sum("wal_bytes").map(|bytes| bytes / count.max(1.0));
        let is_requested = units::setting(now)
            .zip(written)
            .is_some_and(|(limit, written)| written < limit * FORCED_DISTANCE_MIN);
        if reported.is_none() && reason == 0 && is_requested {
            continue;
        }
        claims.push(
            Claim::new(
                forced_severity(case, server.place, count, seconds),
                Level::DiscriminatingCounter,
                format!(
                    "{}: {count:.0} of {:.0} checkpoints were forced, every {} on average",
                    server.place,
                    count + timed,
                    units::seconds(seconds / count.max(1.0))
                ),
            )
            .on_node(server.place)
            .during(requested.map(|series| series.stretches(0, |point| point.sum > 0.0)).unwrap_or_default())
            .number("checkpoints_requested", count)
            .number("checkpoints_timed", timed)
            .with(size.as_ref(), |claim, size| with_size(claim, now, size))
            .with(reported, |claim, event| claim.because(format!("the server's log: {}", event.message)))
            .with(Some(reason).filter(|count| *count > 0), |claim, count| {
                claim.because(format!("the log gives the WAL as the reason for {count} of them"))
            })
            .with(if reason == 0 && reported.is_none() { Some(()) } else { None }, |claim, ()| {
                claim.lacking(
                    "the reason for each checkpoint: a command or a backup can also force one (log_checkpoints)",
                )
            })
            .remedy(text, &commands),
        );
    }
    Answer::of(claims, || "timed and forced checkpoints".to_string())
}

/// By what they cost: pages that are written whole after each checkpoint, and sessions that wait for the WAL or for disks at that time.
fn forced_severity(case: &Case, node: &str, count: f64, seconds: f64) -> Severity {
    let Some(server) = case.one("server", node) else { return Severity::Low };
    let images =
        server.sum("wal_fpi").unwrap_or(0.0) * PAGE_BYTES / server.sum("wal_bytes").unwrap_or(0.0).max(1.0);
    let is_read =
        |event: &str| event.ends_with("Read") || event.ends_with("Prefetch") || event.starts_with("Aio");
    let is_writing = |kind: &str, event: &str| is_wal(kind, event) || kind == "IO" && !is_read(event);
    let waiting = node_time::share_of(case, node, is_writing).unwrap_or(0.0);
    let time = node_time::all(case).iter().find(|time| time.node == node);
    let is_idle = time.is_some_and(|time| time.active < ACTIVE_MIN);
    let is_frequent = count >= FORCED_MIN && count / seconds.max(1.0) > 1.0 / 60.0;
    match (is_frequent, images >= FORCED_COST_SHARE || waiting >= FORCED_COST_SHARE) {
        _ if is_idle || count < REQUESTED_MIN => Severity::Low,
        (true, true) => Severity::High,
        _ => Severity::Medium,
    }
}

/// Adds how much WAL there is, and what it needs.
fn with_size(claim: Claim, now: &str, size: &Size) -> Claim {
    let images = match size.is_bounded {
        true => format!(
            " ({} of it full page images: each page once in that time, and these are all pages of the tables and indexes)",
            units::bytes(size.images)
        ),
        false => String::new(),
    };
    claim.number("wal_bytes_per_s", size.per_s).number("max_wal_size_needed_bytes", size.needed).because(
        format!(
            "max_wal_size is {now}; {} of WAL a second need {} for checkpoints every {}{images}",
            units::bytes(size.per_s),
            units::bytes(size.needed),
            units::seconds(size.interval_s)
        ),
    )
}

/// What to do about forced checkpoints: a larger `max_wal_size`, as far as the disk has room for it.
fn advice(size: Option<&Size>) -> (String, Vec<String>) {
    let text = "raise max_wal_size until it holds the WAL of a whole checkpoint_timeout; crash recovery then reads as much".to_string();
    let Some(size) = size else {
        return (
            text,
            vec!["SHOW max_wal_size; -- how much WAL is written was not recorded: double it".to_string()],
        );
    };
    match size.proposal() {
        Proposal::Whole(bytes) => (text, vec![size::command(bytes)]),
        Proposal::Part(bytes) => (
            format!(
                "{text}; that needs {}, and the disk of the WAL has room for half of what is free: {}",
                units::bytes(size.needed),
                units::bytes(bytes)
            ),
            vec![size::command(bytes)],
        ),
        Proposal::NoRoom => (
            format!(
                "write less WAL (fewer indexes, wal_compression, larger transactions) or give it a larger disk: a max_wal_size of {} does not fit",
                units::bytes(size.needed)
            ),
            vec!["ALTER SYSTEM SET wal_compression = on; SELECT pg_reload_conf();".to_string()],
        ),
    }
}

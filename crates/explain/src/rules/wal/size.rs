//! How large `max_wal_size` should be, by the WAL that was measured: for one checkpoint in each `checkpoint_timeout`, as far as the disk has room.

use crate::case::Case;
use crate::rules::replication;
use crate::units;

/// Bytes of a page, by default.
pub(super) const PAGE_BYTES: f64 = 8_192.0;
/// Of the free space, what the WAL may take.
const FREE_SHARE: f64 = 0.5;
/// A setting that grows by less is not worth a change.
const RAISE_MIN: f64 = 1.2;
/// `checkpoint_timeout` and `checkpoint_completion_target` if they were not recorded: the defaults.
const TIMEOUT_S: f64 = 300.0;
const COMPLETION_TARGET: f64 = 0.9;
/// `max_wal_size` by default: a smaller one is no advice.
const DEFAULT_BYTES: f64 = 1e9;

/// What `max_wal_size` has to hold.
pub(crate) struct Size {
    /// WAL a second.
    pub(super) per_s: f64,
    /// Full page images among the WAL of one interval between checkpoints.
    pub(super) images: f64,
    /// Whether they are fewer than the measured rate of images would give, because a page is written whole only once between two checkpoints.
    pub(super) is_bounded: bool,
    /// The interval in seconds.
    pub(super) interval_s: f64,
    pub(super) needed: f64,
    /// The setting now.
    now: f64,
    /// The most that the disk of the WAL has room for.
    room: Option<f64>,
}

/// What is proposed.
pub(crate) enum Proposal {
    /// So many bytes, which hold the WAL of an interval.
    Whole(f64),
    /// As many as the disk has room for.
    Part(f64),
    /// The disk has no room for more.
    NoRoom,
}

impl Size {
    pub(crate) fn proposal(&self) -> Proposal {
        match self.room {
            Some(room) if room < self.needed && room >= self.now * RAISE_MIN => Proposal::Part(room),
            Some(room) if room < self.needed => Proposal::NoRoom,
            // Where the mean rate needs no more than there is, bursts force the checkpoints.
            _ => {
                let wanted = self.needed.max(self.now * 2.0).max(DEFAULT_BYTES);
                Proposal::Whole(self.room.map_or(wanted, |room| wanted.min(room)))
            }
        }
    }
}

/// Bytes of the tables and indexes of a node that were sampled.
fn bytes_of_tables(case: &Case, node: &str) -> Option<f64> {
    let of =
        |field: &str| case.at("table", node).filter_map(move |table| table.lines.last(field)).sum::<f64>();
    Some(of("bytes") + of("index_bytes")).filter(|bytes| *bytes > 0.0)
}

/// The size that a node needs for checkpoints this far apart, or as far as its `checkpoint_timeout`; `None` where its WAL was not counted.
pub(crate) fn of(case: &Case, node: &str, interval_s: Option<f64>) -> Option<Size> {
    let server = case.one("server", node)?;
    let per_s = server.rate("wal_bytes")?;
    let setting = |name: &str| case.setting(node, name).and_then(units::setting);
    let interval_s = interval_s.or_else(|| Some(setting("checkpoint_timeout")? / 1e3)).unwrap_or(TIMEOUT_S);
    let target = setting("checkpoint_completion_target").unwrap_or(COMPLETION_TARGET);
    let now = setting("max_wal_size").unwrap_or(0.0);
    let images_per_s = (server.rate("wal_fpi").unwrap_or(0.0) * PAGE_BYTES).min(per_s);
    let by_rate = images_per_s * interval_s;
    // After a checkpoint a page is written whole once: between two of them not more than all pages, and those between the ones that were seen.
    let checkpoints = ["checkpoints_timed", "checkpoints_requested"]
        .iter()
        .filter_map(|field| server.sum(field))
        .sum::<f64>();
    let between = server.sum("wal_fpi").unwrap_or(0.0) * PAGE_BYTES / (checkpoints + 1.0);
    let images = bytes_of_tables(case, node).map_or(by_rate, |all| by_rate.min(all.max(between)));
    // `CalculateCheckpointSegments` in xlog.c: a checkpoint begins when this part of the setting has been written.
    let needed = ((per_s - images_per_s) * interval_s + images) * (1.0 + target);
    // The WAL that is there now will be reused.
    let room = replication::free_for_wal(case, node).map(|free| now + free * FREE_SHARE);
    Some(Size { per_s, images, is_bounded: images < by_rate, interval_s, needed, now, room })
}

/// So many bytes as the value of a setting.
pub(crate) fn megabytes(bytes: f64) -> String {
    format!("{}MB", (bytes / f64::from(1 << 20)).floor() as u64)
}

/// The command for so many bytes.
pub(super) fn command(bytes: f64) -> String {
    format!("ALTER SYSTEM SET max_wal_size = '{}'; SELECT pg_reload_conf();", megabytes(bytes))
}

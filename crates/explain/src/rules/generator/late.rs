//! Deadlocks that are noticed late, because `deadlock_timeout` was raised.

use crate::case::Case;
use crate::node_time;
use crate::rules::overhead::setting_seconds;

/// A deadlock_timeout that is long: the default is 1 s.
const TIMEOUT_LONG_S: f64 = 3.0;
/// The share of the session time in waits for locks.
const WAITS_SHARE_MIN: f64 = 0.2;

/// Of the time in waits for locks, that of deadlocks that are not noticed yet.
const OF_WAITS_MIN: f64 = 0.3;

/// The value of deadlock_timeout, if it is so long that sessions spend much of their time in deadlocks that are not noticed yet.
pub(super) fn noticed_late<'a>(case: &'a Case, node: &'a str, deadlocks: f64) -> Option<&'a str> {
    let limit = case.setting(node, "deadlock_timeout")?;
    let limit_s = setting_seconds(limit).filter(|seconds| *seconds >= TIMEOUT_LONG_S)?;
    let waits = node_time::share_waiting(case, node, |kind, _| kind == "Lock")?;
    let time = node_time::all(case).iter().find(|time| time.node == node)?;
    // Two sessions at least wait for so long each time.
    let of_waits = deadlocks * limit_s * 2.0 / (waits * time.active * time.seconds).max(f64::MIN_POSITIVE);
    (waits >= WAITS_SHARE_MIN && of_waits >= OF_WAITS_MIN).then_some(limit)
}

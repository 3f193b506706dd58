//! Deadlocks that are noticed late, because `deadlock_timeout` was raised.

use crate::case::Case;
use crate::node_time;
use crate::rules::overhead::setting_seconds;

/// A deadlock_timeout that is long: the default is 1 s.
const TIMEOUT_LONG_S: f64 = 3.0;
/// The share of the session time in waits for locks.
const WAITS_SHARE_MIN: f64 = 0.2;

/// The value of deadlock_timeout, if it is so long that sessions spend much of their time in deadlocks that are not noticed yet.
pub(super) fn noticed_late<'a>(case: &'a Case, node: &'a str) -> Option<&'a str> {
    let limit = case.setting(node, "deadlock_timeout")?;
    let is_long = setting_seconds(limit).is_some_and(|seconds| seconds >= TIMEOUT_LONG_S);
    let waits = node_time::share_waiting(case, node, |kind, _| kind == "Lock")?;
    (is_long && waits >= WAITS_SHARE_MIN).then_some(limit)
}

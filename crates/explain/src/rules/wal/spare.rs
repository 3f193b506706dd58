//! A server that keeps the rate which its clients want: most of its sessions have nothing to do, or all together little, and a commit waits for
//! milliseconds.

use crate::case::Case;
use crate::node_time;

/// Sessions for each one that is active: the programs have many more than they use, so none of their work waits for a session.
const SESSIONS_PER_ACTIVE_MIN: f64 = 8.0;
/// Sessions that are active on average, below which clients rather wait for their own next step.
const QUIET_ACTIVE_MAX: f64 = 0.5;
/// What a commit waits at most (milliseconds), where no client is held up by it.
const WAIT_MS_MAX: f64 = 10.0;

/// Whether commits are a part of the time that is small in itself.
pub(in crate::rules) fn is_unhurried(case: &Case, node: &str, wait_ms: Option<f64>) -> bool {
    let Some(server) = case.one("server", node) else { return false };
    let (total, active) = (server.mean("sessions_total"), server.mean("sessions_active"));
    let has_many =
        total.zip(active).is_some_and(|(total, active)| total >= active.max(1.0) * SESSIONS_PER_ACTIVE_MIN);
    let is_quiet =
        node_time::all(case).iter().any(|time| time.node == node && time.active < QUIET_ACTIVE_MAX);
    (has_many || is_quiet) && wait_ms.is_some_and(|ms| ms < WAIT_MS_MAX)
}

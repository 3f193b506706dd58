//! Sessions that wait for advisory locks which the engine takes itself: no application can hold them for a shorter time.

use crate::case::{Case, Waiter};
use crate::node_time::{self};
use crate::rule::Claim;
use crate::rules::own;
use crate::units;
use crate::waits::{Waits, Who};
use record::finding::{Level, NodeTime, Severity};
use std::collections::BTreeMap;

/// Sessions that wait for the engine's locks of one purpose.
#[derive(Debug)]
pub(super) struct Waiting {
    /// What the engine takes the lock for.
    pub(super) purpose: String,
    /// Their average number.
    pub(super) sessions: f64,
}

/// Whether a session waits for an advisory lock of the engine.
pub(super) fn is_of_engine(waiter: &Waiter) -> bool {
    !waiter.own_lock.is_empty()
}

/// The sessions that wait for the engine's locks, by their purpose. `seen`: all that wait for an advisory lock, by the samples of waits: only some of many
/// waiters are looked at.
pub(super) fn waiting(case: &Case, node: &str, seen: f64) -> Vec<Waiting> {
    let mut by_purpose: BTreeMap<&str, f64> = BTreeMap::new();
    let mut all = 0.0;
    for waiter in case.waiters(node).filter(|waiter| waiter.lock_type == "advisory") {
        let readings = waiter.ticks.readings() as f64;
        all += readings;
        if is_of_engine(waiter) {
            *by_purpose.entry(waiter.own_lock.as_str()).or_default() += readings;
        }
    }
    by_purpose
        .into_iter()
        .filter(|_| all > 0.0)
        .map(|(purpose, readings)| Waiting { purpose: purpose.to_string(), sessions: seen * readings / all })
        .collect()
}

/// Sessions that queue for a lock of the engine.
pub(super) fn claim(case: &Case, time: &NodeTime, waits: &Waits, waiting: &Waiting) -> Claim {
    let is_advisory = |kind: &str, event: &str| (kind, event) == ("Lock", "advisory");
    let share = (waiting.sessions / time.active.max(1.0)).min(1.0);
    let words = own::lock(case, &time.node, &waiting.purpose);
    Claim::new(
        if share >= super::QUEUE_SHARE_HIGH { Severity::High } else { Severity::Medium },
        Level::DiscriminatingCounter,
        format!(
            "{}: {} of the active sessions wait for an advisory lock that the engine takes itself, for {}",
            time.node,
            units::percent(share),
            waiting.purpose
        ),
    )
    .on_node(&time.node)
    .during(waits.windows(Who::Client, is_advisory))
    .number("sessions", waiting.sessions)
    .number("share", share)
    .with(node_time::share_waiting(case, &time.node, is_advisory), |claim, share| {
        claim.because(format!("Lock:advisory takes {} of the session time", units::percent(share)))
    })
    .because("pg_locks shows the lock with a class that only the engine uses (objsubid)")
    .not("a lock of the application: pg_advisory_lock takes locks of other classes")
    .remedy(&words.otherwise, &words.commands())
}

//! Sessions that wait for an advisory lock by design: so services elect a leader, or make sure that a job runs once. They hold no work back.
//!
//! Where work queues for a lock, the lock changes hands. Here one session has it all the time, and the others never get it: their waits do not begin anew.

use super::mutex;
use crate::case::{Case, Waiter};

/// Sessions behind one holder: more than these may be an application that stands still.
const FEW: usize = 5;
/// The share of the looks at which each of them waits.
const SHARE: f64 = 0.9;
/// Active sessions of the same application besides those that wait: its leader may work.
const BESIDE_MAX: f64 = 1.2;
/// Commits a second of a server that works while many sessions wait.
const COMMITS_PER_S_MIN: f64 = 10.0;
/// Sessions that are looked at in one tick: with so many, there may be more.
const LOOKED_MAX: f64 = 30.0;

/// A holder, and the sessions that wait for it by design.
#[derive(Debug)]
pub(super) struct Standing {
    /// The session that has the lock.
    pub(super) holder: u64,
    /// How many wait.
    pub(super) waiting: usize,
    /// The same, as average sessions.
    pub(super) sessions: f64,
    /// Whether nothing speaks against it; else the application also works in other sessions.
    pub(super) is_certain: bool,
    /// What the sessions call themselves; empty if it is not known.
    pub(super) application: String,
    /// How often their waits began anew.
    pub(super) anew: u64,
}

/// Whether most of the sessions that waited for an advisory lock waited for one that the engine takes itself.
pub(super) fn is_of_engine(case: &Case, node: &str) -> bool {
    let looks = |is_own: bool| -> u64 {
        let all =
            case.waiters(node).filter(|waiter| waiter.lock_type == "advisory" && waiter.is_own == is_own);
        all.map(|waiter| waiter.ticks.readings()).sum()
    };
    looks(true) > looks(false)
}

/// Whether a statement only takes a lock of the session. A lock of a transaction is taken by work.
fn takes_session_lock(query: &str) -> bool {
    let text = query.to_ascii_lowercase();
    text.contains("pg_advisory_lock") && !text.contains("xact")
}

/// What a waiting session calls itself.
fn application(case: &Case, node: &str, waiting: &[&Waiter]) -> Option<String> {
    let named = waiting
        .iter()
        .find_map(|waiter| case.at("session", node).find(|session| session.name == waiter.pid.to_string()))?;
    Some(named.lines.word("application").to_string())
}

/// Whether a holder is of another application than those that wait: instances of a service call themselves alike, but for a number or a host.
fn is_of_another(case: &Case, node: &str, holder: u64, application: &str) -> bool {
    let stem = |name: &str| {
        let end = name.find(|c: char| c.is_ascii_digit()).unwrap_or(name.len());
        name[..end].trim_end_matches(['-', '_', ' ', ':', '/', '@', '#', '(']).to_ascii_lowercase()
    };
    let session = case.at("session", node).find(|session| session.name == holder.to_string());
    let held_by = session.map_or("", |session| session.lines.word("application"));
    !held_by.is_empty() && !application.is_empty() && {
        let (left, right) = (stem(held_by), stem(application));
        !left.starts_with(&right) && !right.starts_with(&left)
    }
}

/// Active sessions of an application besides those that wait; `None` if the groups of sessions were not recorded.
fn beside(case: &Case, node: &str, application: &str, sessions: f64, looks: f64) -> Option<f64> {
    let own = case.at("activity", node).filter(|group| group.lines.word("application") == application);
    let seen = own.filter_map(|group| group.lines.sum("sessions")).reduce(|left, right| left + right)?;
    Some(seen / looks - sessions)
}

fn of_holder(case: &Case, node: &str, holder: u64, waiting: &[&Waiter]) -> Option<Standing> {
    let looks = case.looks(node, &[case.span]).max(1.0);
    let held = case.at("block", node).find(|root| root.name == holder.to_string())?;
    let is_there = |readings: u64| readings as f64 >= looks * SHARE;
    let stands = |waiter: &&Waiter| {
        is_there(waiter.ticks.readings())
            && !waiter.root_state.starts_with("idle in transaction")
            && (waiter.query.is_empty() || takes_session_lock(&waiter.query))
    };
    let is_held = is_there(held.lines.ticks.readings()) && waiting.iter().all(stands);
    if !is_held || mutex::changes_hands(case, node, holder, waiting) {
        return None;
    }
    let sessions = waiting.iter().map(|waiter| waiter.ticks.readings() as f64).sum::<f64>() / looks;
    let application = application(case, node, waiting);
    let is_alone = application
        .as_ref()
        .and_then(|name| beside(case, node, name, sessions, looks))
        .map(|others| others <= BESIDE_MAX);
    if application.as_ref().is_some_and(|name| is_of_another(case, node, holder, name)) {
        return None;
    }
    let is_few = waiting.len() <= FEW;
    let is_known = waiting.iter().all(|waiter| takes_session_lock(&waiter.query));
    let commits = case.one("server", node).and_then(|server| server.rate("xact_commit")).unwrap_or(0.0);
    let is_by_design = is_few || is_known && (is_alone == Some(true) || commits >= COMMITS_PER_S_MIN);
    is_by_design.then(|| Standing {
        holder,
        waiting: waiting.len(),
        sessions,
        is_certain: if is_few { is_alone != Some(false) } else { is_alone == Some(true) },
        application: application.unwrap_or_default(),
        anew: waiting.iter().map(|waiter| waiter.anew).sum(),
    })
}

/// Every holder of an advisory lock for which sessions wait by design.
pub(super) fn all(case: &Case, node: &str) -> Vec<Standing> {
    let mut holders: Vec<u64> = case.advisory_waiters(node).map(|waiter| waiter.root).collect();
    holders.sort_unstable();
    holders.dedup();
    // A holder that waits itself is one of those that take turns.
    holders.retain(|holder| case.advisory_waiters(node).all(|waiter| waiter.pid != *holder));
    let of_one = |holder: u64| {
        let waiting: Vec<&Waiter> =
            case.advisory_waiters(node).filter(|waiter| waiter.root == holder).collect();
        of_holder(case, node, holder, &waiting)
    };
    holders.into_iter().filter_map(of_one).collect()
}

/// Average sessions that wait for an advisory lock in turn, besides those that wait by design. `seen`: of both together, by the samples of waits.
pub(super) fn in_turn(case: &Case, node: &str, standing: &[Standing], seen: f64) -> f64 {
    let looks = case.looks(node, &[case.span]).max(1.0);
    let is_other = |waiter: &&Waiter| standing.iter().all(|one| one.holder != waiter.root);
    let others: f64 = case
        .advisory_waiters(node)
        .filter(is_other)
        .map(|waiter| waiter.ticks.readings() as f64)
        .sum::<f64>()
        / looks;
    let by_design: f64 = standing.iter().map(|one| one.sessions).sum();
    if others + by_design >= LOOKED_MAX { others.max(seen - by_design) } else { others }
}

//! An advisory lock that sessions take in turn: a mutex of the application. Its holder may hold it over work outside of the database.
//!
//! Who holds it at each look proves no election of a leader: where the same session takes the lock again before the others, they have it only between
//! looks. That their waits begin anew shows it.

use super::turns;
use crate::case::{Case, Waiter};

/// Waits that began anew, of all sessions together.
const ANEW_MIN: u64 = 2;
/// The share of the waiting sessions of which one began anew.
const SESSIONS_MIN: f64 = 0.5;
/// Statements of the holder: it works on between two holds.
const STATEMENTS_MIN: usize = 2;
/// The share of the looks in which a session holds the lock to be named.
const HOLDER_SHARE_MIN: f64 = 0.5;

/// Whether those that wait for a holder get the lock in between, and wait again. Those that give up after a timeout and try again are rolled back.
pub(super) fn changes_hands(case: &Case, node: &str, holder: u64, waiting: &[&Waiter]) -> bool {
    let anew: u64 = waiting.iter().map(|waiter| waiter.anew).sum();
    let sessions = waiting.iter().filter(|waiter| waiter.anew > 0).count() as f64;
    if anew < ANEW_MIN || sessions < waiting.len() as f64 * SESSIONS_MIN {
        return false;
    }
    let rolled_back = case.one("server", node).and_then(|server| server.sum("xact_rollback")).unwrap_or(0.0);
    let works_on = case.statements_of_root(node, &holder.to_string()) >= STATEMENTS_MIN;
    rolled_back < anew as f64 || works_on
}

/// Who holds the lock for which others queue.
#[derive(Debug)]
pub(super) struct Holder {
    /// The session, with its application.
    pub(super) who: String,
    /// Whether it is idle while it holds it: what it holds the lock for is no work of the server.
    pub(super) is_idle: bool,
    /// What it executed last.
    pub(super) query: String,
    /// How often waits of others began anew.
    pub(super) anew: u64,
}

/// The session that has an advisory lock at most of the looks, if it is one.
pub(super) fn holder(case: &Case, node: &str) -> Option<Holder> {
    let waiting: Vec<&Waiter> = case.advisory_waiters(node).collect();
    let looks = |root: u64| -> u64 {
        waiting.iter().filter(|one| one.root == root).map(|one| one.ticks.readings()).sum()
    };
    let all: u64 = waiting.iter().map(|one| one.ticks.readings()).sum();
    let first = waiting.iter().max_by_key(|one| (looks(one.root), one.wait_s.to_bits()))?;
    let root = case.at("block", node).find(|root| root.name == first.root.to_string())?;
    if (looks(first.root) as f64) < all as f64 * HOLDER_SHARE_MIN || first.root == 0 {
        return None;
    }
    let application = turns::application(case, &root);
    let who = match application {
        "" => format!("session {}", root.name),
        name => turns::named(root.name, name, 0),
    };
    Some(Holder {
        who,
        is_idle: first.root_state.starts_with("idle"),
        query: root.lines.word("blocker_query").to_string(),
        anew: waiting.iter().map(|one| one.anew).sum(),
    })
}

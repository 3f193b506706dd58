//! Whether the user wants to end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long a wait for a server goes on once the user wants to end.
pub(crate) const LAST_WAIT: Duration = Duration::from_secs(2);

/// The user wants to end.
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// The user wants to end: waits for a server that does not answer end soon. May be called more than once.
pub fn end() {
    IS_ENDING.store(true, Ordering::Relaxed);
}

/// A wait was given up before its limit, because the user wants to end.
static HAS_GIVEN_UP: AtomicBool = AtomicBool::new(false);

/// Whether a wait was given up because the user wants to end: what failed with it has not failed by itself.
pub fn has_given_up() -> bool {
    HAS_GIVEN_UP.load(Ordering::Relaxed)
}

/// A wait is given up because the user wants to end.
pub(crate) fn give_up() {
    HAS_GIVEN_UP.store(true, Ordering::Relaxed);
}

/// Whether the user wants to end.
pub fn is_ending() -> bool {
    IS_ENDING.load(Ordering::Relaxed)
}

//! Whether the user wants to end.

use std::sync::atomic::{AtomicBool, Ordering};

/// The user wants to end.
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// The user wants to end: waits for a server that does not answer end soon. May be called more than once.
pub fn end() {
    IS_ENDING.store(true, Ordering::Relaxed);
}

/// Whether the user wants to end.
pub(crate) fn is_ending() -> bool {
    IS_ENDING.load(Ordering::Relaxed)
}

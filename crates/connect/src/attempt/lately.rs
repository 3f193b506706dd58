//! Which servers have not answered lately, so that a frozen node or a firewall costs its whole limit once, and not at every step of a verb.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::DEFAULT_TIMEOUT;

/// After a server had its whole limit and did not answer, further attempts have this one, unless the user has set another.
pub(super) const SHORT: Duration = Duration::from_secs(3);
/// For so long.
const SHORTENED: Duration = Duration::from_secs(120);
/// A server that did not answer a question that may be left out does not get the next one so soon.
const UNASKED: Duration = Duration::from_secs(10);

/// When a place did not answer at all, and when it did not within the whole default limit.
#[derive(Clone, Copy, Debug)]
struct Silence {
    any: Instant,
    whole: Option<Instant>,
}

/// By the names of the places.
static SILENT: Mutex<Option<HashMap<String, Silence>>> = Mutex::new(None);
/// Whether there are any: nearly never, so that a connection costs nothing more.
static IS_ANY: AtomicBool = AtomicBool::new(false);

fn silent() -> MutexGuard<'static, Option<HashMap<String, Silence>>> {
    SILENT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// This place did not answer within this limit.
pub(super) fn timed_out(place: String, limit: Duration) {
    IS_ANY.store(true, Ordering::Relaxed);
    let now = Instant::now();
    let mut silent = silent();
    let found = silent.get_or_insert_default().entry(place).or_insert(Silence { any: now, whole: None });
    found.any = now;
    if limit >= DEFAULT_TIMEOUT {
        found.whole = Some(now);
    }
}

/// It did.
pub(super) fn answered(place: &str) {
    if IS_ANY.load(Ordering::Relaxed)
        && let Some(silent) = silent().as_mut()
    {
        silent.remove(place);
    }
}

/// Whether it had its whole limit and did not answer.
pub(super) fn was_silent(place: &str) -> bool {
    let found = || silent().as_ref().and_then(|silent| silent.get(place).copied());
    IS_ANY.load(Ordering::Relaxed)
        && found().and_then(|found| found.whole).is_some_and(|at| at.elapsed() < SHORTENED)
}

/// Whether it did not answer a moment ago.
pub(super) fn is_unasked(place: &str) -> bool {
    let found = || silent().as_ref().and_then(|silent| silent.get(place).copied());
    IS_ANY.load(Ordering::Relaxed) && found().is_some_and(|found| found.any.elapsed() < UNASKED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_place_is_known_until_it_answers() {
        let (place, other) = ("test-of-silence:1".to_owned(), "test-of-silence:2");
        assert!(!is_unasked(&place) && !was_silent(&place));
        timed_out(place.clone(), SHORT);
        assert!(is_unasked(&place) && !was_silent(&place), "it may be slow");
        timed_out(place.clone(), DEFAULT_TIMEOUT);
        timed_out(place.clone(), SHORT);
        assert!(is_unasked(&place) && was_silent(&place));
        assert!(!is_unasked(other) && !was_silent(other));
        answered(&place);
        assert!(!is_unasked(&place) && !was_silent(&place));
    }
}

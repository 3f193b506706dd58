//! Reports which server a verb waits for, so that the program is not silent while a node hangs.
//!
//! An attempt may take as long as `connect_timeout`, 30 s by default. The command registers where such reports go, once per process; until
//! then, as in tests and in programs that use this crate, nothing is reported and nothing runs beside the attempts.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// An attempt that takes longer is slow: a server that answers does so within milliseconds, and under heavy load within this.
const SLOW: Duration = Duration::from_secs(3);
/// The same server is not named again within this time, unless a later attempt may take longer than the one that was reported.
const AGAIN: Duration = Duration::from_secs(60);
/// How often the attempts are looked at.
const LOOK: Duration = Duration::from_millis(500);

static ATTEMPTS: OnceLock<Mutex<Attempts>> = OnceLock::new();

/// Calls `report` with a sentence about each server that is slow to answer a new session.
///
/// Only the first call in a process has an effect. A thread of its own calls `report`.
pub fn when_slow(report: impl Fn(&str) + Send + 'static) {
    if ATTEMPTS.set(Mutex::default()).is_err() {
        return;
    }
    // Without the thread the program waits in silence, which is no reason to end it.
    let _ = thread::Builder::new().name("slow-connects".to_owned()).spawn(move || {
        loop {
            thread::sleep(LOOK);
            // The words are printed without the lock: a terminal may be slower than an attempt.
            let slow = attempts().map(|mut attempts| attempts.slow(Instant::now())).unwrap_or_default();
            slow.iter().for_each(|words| report(words));
        }
    });
}

fn attempts() -> Option<MutexGuard<'static, Attempts>> {
    Some(ATTEMPTS.get()?.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Reports something else that keeps the program waiting, unless the same was reported lately; `key`: what it is about.
pub(crate) fn note(key: &str, words: String) {
    if let Some(mut attempts) = attempts() {
        attempts.note(key, words, Instant::now());
    }
}

/// An attempt that is under way.
pub(super) struct Waiting(Option<u64>);

impl Waiting {
    /// For a server as messages call it, and the time that the attempt may take.
    pub(super) fn begin(place: impl FnOnce() -> String, limit: Duration) -> Waiting {
        Waiting(attempts().map(|mut attempts| attempts.begin(place(), limit, Instant::now())))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let (Some(id), Some(mut attempts)) = (self.0, attempts()) {
            attempts.open.remove(&id);
        }
    }
}

#[derive(Default)]
struct Attempts {
    next: u64,
    open: BTreeMap<u64, Open>,
    reported: BTreeMap<String, (Instant, Duration)>,
    /// Sentences that are reported at the next look.
    notes: Vec<String>,
}

struct Open {
    place: String,
    limit: Duration,
    began: Instant,
}

impl Attempts {
    fn begin(&mut self, place: String, limit: Duration, began: Instant) -> u64 {
        self.next += 1;
        self.open.insert(self.next, Open { place, limit, began });
        self.next
    }

    fn note(&mut self, key: &str, words: String, now: Instant) {
        if self.reported.insert(key.to_owned(), (now, Duration::MAX)).is_none() {
            self.notes.push(words);
        }
    }

    /// A sentence for each server that is slow and was not named lately.
    fn slow(&mut self, now: Instant) -> Vec<String> {
        self.reported.retain(|_, (at, _)| now.duration_since(*at) < AGAIN);
        let mut words = std::mem::take(&mut self.notes);
        for Open { place, limit, began } in self.open.values() {
            let waited = now.duration_since(*began);
            let is_news = self.reported.get(place).is_none_or(|(_, reported)| limit > reported);
            if waited >= SLOW && *limit > SLOW && is_news {
                self.reported.insert(place.clone(), (now, *limit));
                words.push(format!(
                    "{place} has not answered a new session for {} s; the limit is {} s (connect_timeout)",
                    waited.as_secs(),
                    limit.as_secs()
                ));
            }
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);

    #[test]
    fn a_slow_server_is_named_once_a_minute_however_many_sessions_wait() {
        let (mut attempts, begin) = (Attempts::default(), Instant::now());
        attempts.begin("n2".to_owned(), LIMIT, begin);
        attempts.begin("n2".to_owned(), LIMIT, begin);
        assert!(attempts.slow(begin + Duration::from_secs(2)).is_empty());
        let words = attempts.slow(begin + Duration::from_millis(3_400));
        assert_eq!(words, ["n2 has not answered a new session for 3 s; the limit is 30 s (connect_timeout)"]);
        assert!(attempts.slow(begin + Duration::from_secs(20)).is_empty());
        assert_eq!(attempts.slow(begin + Duration::from_secs(70)).len(), 1);
    }

    #[test]
    fn an_attempt_that_may_take_longer_is_reported_although_a_short_one_was() {
        let (mut attempts, begin) = (Attempts::default(), Instant::now());
        let short = attempts.begin("n2".to_owned(), Duration::from_secs(5), begin);
        assert_eq!(attempts.slow(begin + Duration::from_secs(4)).len(), 1);
        attempts.open.remove(&short);
        attempts.begin("n2".to_owned(), LIMIT, begin + Duration::from_secs(5));
        let words = attempts.slow(begin + Duration::from_secs(9));
        assert_eq!(words, ["n2 has not answered a new session for 4 s; the limit is 30 s (connect_timeout)"]);
        assert!(attempts.slow(begin + Duration::from_secs(20)).is_empty());
    }

    #[test]
    fn what_else_it_waits_for_is_reported_once_a_minute() {
        let (mut attempts, begin) = (Attempts::default(), Instant::now());
        attempts.note("n1: a lock", "n1 waits 10 s".to_owned(), begin);
        attempts.note("n1: a lock", "n1 waits 11 s".to_owned(), begin + Duration::from_secs(1));
        attempts.note("n2: a lock", "n2 waits 10 s".to_owned(), begin);
        assert_eq!(attempts.slow(begin + Duration::from_secs(1)), ["n1 waits 10 s", "n2 waits 10 s"]);
        assert!(attempts.slow(begin + Duration::from_secs(59)).is_empty());
        attempts.slow(begin + Duration::from_secs(62));
        attempts.note("n1: a lock", "n1 waits 62 s".to_owned(), begin + Duration::from_secs(62));
        assert_eq!(attempts.slow(begin + Duration::from_secs(63)), ["n1 waits 62 s"]);
    }

    #[test]
    fn an_attempt_that_ended_and_one_that_ends_soon_are_not_reported() {
        let (mut attempts, begin) = (Attempts::default(), Instant::now());
        let id = attempts.begin("n2".to_owned(), LIMIT, begin);
        attempts.begin("n3".to_owned(), SLOW, begin);
        attempts.open.remove(&id);
        assert!(attempts.slow(begin + Duration::from_secs(10)).is_empty());
    }
}

//! Which servers have not answered lately, so that a frozen node or a firewall costs its whole limit once, and not at every step of a verb.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::DEFAULT_TIMEOUT;

/// After a server had its whole limit and did not answer, further attempts have this one, unless the user has set another.
pub(super) const SHORT: Duration = Duration::from_secs(3);
/// For so long.
const SHORTENED: Duration = Duration::from_secs(120);
/// A server that did not answer a question that may be left out does not get the next one so soon.
const UNASKED: Duration = Duration::from_secs(10);

/// When a host did not answer, by its name, and when an address of it did not within the whole default limit.
#[derive(Default)]
struct Silent {
    hosts: HashMap<String, Instant>,
    addresses: HashMap<String, Instant>,
}

static SILENT: LazyLock<Mutex<Silent>> = LazyLock::new(Mutex::default);
/// Whether there are any: nearly never, so that a connection costs nothing more.
static IS_ANY: AtomicBool = AtomicBool::new(false);

fn silent() -> Option<MutexGuard<'static, Silent>> {
    IS_ANY.load(Ordering::Relaxed).then(|| SILENT.lock().unwrap_or_else(PoisonError::into_inner))
}

/// An address of a host did not answer within this limit.
pub(super) fn timed_out(host: &str, address: &str, limit: Duration) {
    IS_ANY.store(true, Ordering::Relaxed);
    let Some(mut silent) = silent() else { return };
    silent.hosts.insert(host.to_owned(), Instant::now());
    if limit >= DEFAULT_TIMEOUT {
        silent.addresses.insert(address.to_owned(), Instant::now());
    }
}

/// It did.
pub(super) fn answered(host: &str, address: &str) {
    if let Some(mut silent) = silent() {
        silent.hosts.remove(host);
        silent.addresses.remove(address);
    }
}

/// Whether an address had its whole limit and did not answer.
pub(super) fn was_silent(address: &str) -> bool {
    silent().is_some_and(|silent| silent.addresses.get(address).is_some_and(|at| at.elapsed() < SHORTENED))
}

/// Whether a host did not answer a moment ago.
pub(super) fn is_unasked(host: &str) -> bool {
    silent().is_some_and(|silent| silent.hosts.get(host).is_some_and(|at| at.elapsed() < UNASKED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_host_is_known_until_it_answers() {
        let (host, address, other) = ("test-of-silence:1", "192.0.2.1:1", "192.0.2.2:1");
        assert!(!is_unasked(host) && !was_silent(address));
        timed_out(host, address, SHORT);
        assert!(is_unasked(host) && !was_silent(address), "it may be slow");
        timed_out(host, address, DEFAULT_TIMEOUT);
        timed_out(host, address, SHORT);
        assert!(is_unasked(host) && was_silent(address));
        assert!(
            !is_unasked("test-of-silence:2") && !was_silent(other),
            "another address of the host has its own limit"
        );
        answered(host, other);
        assert!(!is_unasked(host) && was_silent(address), "the host answers at its other address");
        answered(host, address);
        assert!(!was_silent(address));
    }
}

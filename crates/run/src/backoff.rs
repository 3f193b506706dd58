//! The pause of a session whose server takes no statements now: it starts, shuts down or has no room, or a pooler in front of it cannot reach it.
//!
//! The first failure has no pause: after a failover another server is often there at once. Each further one doubles it, up to a limit: so much later than the
//! server itself a session comes back at most. A server that executes a statement ends the series, even if it refuses that statement.

use std::cell::Cell;

use wire::error::SqlState;

use crate::engine::{NANOS_PER_SECOND, Nanos};

/// The pause after the second failure.
const FIRST: Nanos = NANOS_PER_SECOND / 20;
/// The longest pause: it blurs the end of an outage.
const MAX: Nanos = NANOS_PER_SECOND / 4;

/// The failures of a session since its server last executed a statement.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    failures: Cell<u32>,
}

impl Backoff {
    /// The server executes statements.
    pub(crate) fn reset(&self) {
        self.failures.set(0);
    }

    /// Counts a failure. Returns the pause before the next attempt.
    pub(crate) fn next(&self) -> Nanos {
        let before = self.failures.get();
        self.failures.set(before.saturating_add(1));
        match before {
            0 => 0,
            // So many doublings exceed the limit.
            again => (FIRST << (again - 1).min(8)).min(MAX),
        }
    }
}

/// Whether an error means that the server takes no statements for a while, whatever they are: it lost another server that it needs or is a pooler that did
/// (class 08), has no room on its disk (53100) or for connections (53300), starts or shuts down (57P01 to 57P05), or is no primary (25006). Memory and limits
/// (53200, 53400) are those of one statement.
pub(crate) fn is_not_now(sqlstate: SqlState) -> bool {
    let code = sqlstate.as_str();
    ["08", "53100", "53300", "57P"].iter().any(|class| code.starts_with(class)) || code == "25006"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_their_limit_and_begin_anew() {
        let backoff = Backoff::default();
        let milliseconds = || (0..7).map(|_| backoff.next() / 1_000_000).collect::<Vec<_>>();
        assert_eq!(milliseconds(), [0, 50, 100, 200, 250, 250, 250]);
        backoff.reset();
        assert_eq!(milliseconds(), [0, 50, 100, 200, 250, 250, 250]);
        backoff.failures.set(u32::MAX);
        assert_eq!(backoff.next(), MAX);
    }

    #[test]
    fn what_a_statement_did_is_no_reason_to_pause() {
        let is = |code: &[u8; 5]| is_not_now(SqlState(*code));
        for code in [b"08P01", b"08006", b"08001", b"53300", b"53100", b"57P01", b"57P02", b"57P03", b"25006"]
        {
            assert!(is(code), "{code:?}");
        }
        for code in [b"40001", b"40P01", b"23505", b"57014", b"42P01", b"55P03", b"25P02", b"XX000", b"53400"]
        {
            assert!(!is(code), "{code:?}");
        }
    }
}

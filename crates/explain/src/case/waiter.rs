//! Sessions that waited for locks, one line for each session and look.

use super::{Case, THINGS_MAX};
use crate::series::Series;
use serde_json::{Map, Value};

/// A wait that has lasted less than this part of the time since the look before, at which the session waited as well, is another wait.
const ANEW_MAX: f64 = 0.5;
/// How far two clocks may differ, in seconds.
const CLOCKS_S: f64 = 0.05;

/// A session that waited for a lock.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Waiter {
    /// Its process.
    pub pid: u64,
    /// Which kind of process it is; empty for a client's session.
    pub backend: String,
    /// Whom it waited for, and who was at the end of that chain; 0 is a prepared transaction.
    pub blocked_by: u64,
    /// The session that waited for no other.
    pub root: u64,
    /// The state of the root.
    pub root_state: String,
    /// `relation`, `transactionid`, ...
    pub lock_type: String,
    /// Whether it is an advisory lock that the engine takes itself.
    pub is_own: bool,
    /// The mode it wanted.
    pub mode: String,
    /// The relation; empty for other locks.
    pub relation: String,
    /// The table whose row it waits for; empty if that is not known.
    pub row_of: String,
    /// Its statement.
    pub query: String,
    /// Its longest wait.
    pub wait_s: f64,
    /// The looks at which it waited.
    pub ticks: Series,
    /// How often a wait was another one than at the look before: the session got the lock, or gave up, and waits again.
    pub anew: u64,
    /// The looks at which the root was idle in a transaction.
    pub idle_looks: u64,
    /// The last look that knows for how long it had waited: its time, and that.
    pub(crate) last: Option<(u64, f64)>,
}

impl Waiter {
    /// Whether it waits for an advisory lock that an application takes.
    pub(crate) fn is_for_advisory(&self) -> bool {
        self.lock_type == "advisory" && !self.is_own
    }

    /// Takes a look at its wait.
    fn look(&mut self, t_us: u64, wait_s: f64) {
        let is_anew = self.last.is_some_and(|(last_us, last_s)| {
            let since_s = t_us.saturating_sub(last_us) as f64 / 1e6;
            let is_other = wait_s + CLOCKS_S < last_s || wait_s + CLOCKS_S < since_s * ANEW_MAX;
            // A session that waits for several locks at one look has several lines.
            t_us > last_us && is_other
        });
        self.anew += u64::from(is_anew);
        self.ticks.push(t_us, 0, 1.0);
        self.last = Some((t_us, wait_s));
    }
}

impl Case {
    /// The details are those of the longest wait: a process id may wait several times.
    pub(super) fn keep_waiter(&mut self, t_us: u64, values: &Map<String, Value>) {
        let number = |field: &str| values.get(field).and_then(Value::as_u64).unwrap_or(0);
        let word = |field: &str| values.get(field).and_then(Value::as_str).unwrap_or("").to_string();
        let key = (word("node"), number("pid"));
        self.keep_queue(
            &key.0,
            number("root"),
            [word("relation"), word("mode"), word("query"), word("blocker_query")],
        );
        if self.waiters.len() >= THINGS_MAX && !self.waiters.contains_key(&key) {
            return;
        }
        let known_s = values.get("wait_s").and_then(Value::as_f64);
        let wait_s = known_s.unwrap_or(0.0);
        let waiter = self.waiters.entry(key).or_default();
        match known_s {
            Some(wait_s) => waiter.look(t_us, wait_s),
            None => waiter.ticks.push(t_us, 0, 1.0),
        }
        waiter.idle_looks += u64::from(word("root_state").starts_with("idle in transaction"));
        if waiter.pid == 0 || wait_s >= waiter.wait_s {
            *waiter = Waiter {
                pid: number("pid"),
                backend: word("backend"),
                blocked_by: number("blocked_by"),
                root: number("root"),
                root_state: word("root_state"),
                lock_type: word("lock_type"),
                is_own: values.get("own").and_then(Value::as_bool) == Some(true),
                mode: word("mode"),
                relation: word("relation"),
                row_of: word("row_of"),
                query: word("query"),
                wait_s,
                ticks: std::mem::take(&mut waiter.ticks),
                anew: waiter.anew,
                idle_looks: waiter.idle_looks,
                last: waiter.last,
            };
        }
    }

    /// Sessions of a node that waited for locks.
    pub(crate) fn waiters<'a>(&'a self, node: &'a str) -> impl Iterator<Item = &'a Waiter> {
        self.waiters.iter().filter(move |((other, _), _)| other == node).map(|(_, waiter)| waiter)
    }

    /// Those of a node that wait for an advisory lock which an application takes.
    pub(crate) fn advisory_waiters<'a>(&'a self, node: &'a str) -> impl Iterator<Item = &'a Waiter> {
        self.waiters(node).filter(|waiter| waiter.is_for_advisory())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looked(looks: &[(f64, f64)]) -> u64 {
        let mut waiter = Waiter::default();
        for (at_s, wait_s) in looks {
            waiter.look((at_s * 1e6) as u64, *wait_s);
        }
        waiter.anew
    }

    #[test]
    fn a_wait_that_is_shorter_than_at_the_look_before_is_another_one() {
        assert_eq!(looked(&[(1.0, 1.1), (2.0, 2.1), (3.0, 3.1)]), 0);
        // Late looks, and clocks that differ a little.
        assert_eq!(looked(&[(1.0, 3.0), (2.4, 4.0), (2.5, 4.45), (4.0, 6.0)]), 0);
        assert_eq!(looked(&[(1.0, 3.1), (2.0, 0.1), (3.0, 1.1), (4.0, 0.9)]), 2);
        // It waited for 0.2 s at the first look, and for 0.3 s a second later: it cannot be the same wait.
        assert_eq!(looked(&[(1.0, 0.2), (2.0, 0.3), (2.0, 0.3)]), 1);
    }
}

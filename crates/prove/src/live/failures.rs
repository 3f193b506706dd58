//! Refusals during a proof: with thousands of refused transactions, "kept" would describe the load and not the promise.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use wire::error::{ServerError, SqlState};

use crate::client::Reply;

/// Different messages that are kept.
const MESSAGES_MAX: usize = 5;
/// A demoted primary, or a session that found a standby: `read_only_sql_transaction`.
const READ_ONLY: SqlState = SqlState(*b"25006");

/// Counts of answers and refusals.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Failures {
    /// Answered transactions and reads, over the whole time.
    pub tried: u64,
    /// Those that the server refused, other than for a conflict or its own end.
    pub refused: u64,
    /// The same, without the time of our faults.
    pub calm: [u64; 2],
    /// The first messages, with their counts.
    pub messages: Vec<(String, u64)>,
}

impl Failures {
    /// The share of refusals while none of our faults was active.
    pub(crate) fn calm_share(&self) -> f64 {
        let [tried, refused] = self.calm;
        refused as f64 / tried.max(1) as f64
    }

    /// Both together.
    #[must_use]
    pub fn and(mut self, other: &Failures) -> Failures {
        self.tried += other.tried;
        self.refused += other.refused;
        self.calm = [self.calm[0] + other.calm[0], self.calm[1] + other.calm[1]];
        for (message, count) in &other.messages {
            match self.messages.iter().position(|(known, _)| known == message) {
                Some(known) => self.messages[known].1 += count,
                None if self.messages.len() < MESSAGES_MAX => self.messages.push((message.clone(), *count)),
                None => {}
            }
        }
        self
    }
}

/// Counts for all sessions of a workload.
#[derive(Debug, Default)]
pub(super) struct Tally {
    tried: AtomicU64,
    refused: AtomicU64,
    calm: [AtomicU64; 2],
    messages: Mutex<BTreeMap<String, u64>>,
}

impl Tally {
    /// One answer; `is_calm`: none of our faults is active.
    pub(super) fn count(&self, error: Option<&ServerError>, is_calm: bool) {
        let refusal = error.filter(|error| !is_expected(error.sqlstate));
        self.tried.fetch_add(1, Ordering::Relaxed);
        self.calm[0].fetch_add(u64::from(is_calm), Ordering::Relaxed);
        let Some(error) = refusal else { return };
        self.refused.fetch_add(1, Ordering::Relaxed);
        self.calm[1].fetch_add(u64::from(is_calm), Ordering::Relaxed);
        let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        let words = format!("{}: {}", error.sqlstate, error.message);
        let is_full = messages.len() >= MESSAGES_MAX;
        match messages.get_mut(&words) {
            Some(count) => *count += 1,
            None if !is_full => drop(messages.insert(words, 1)),
            None => {}
        }
    }

    /// The same for a whole reply.
    pub(super) fn reply(&self, reply: &Reply, is_calm: bool) {
        self.count(reply.error.as_ref(), is_calm);
    }

    pub(super) fn into_failures(self) -> Failures {
        let mut messages: Vec<(String, u64)> =
            self.messages.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().collect();
        messages.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let [tried, refused] = self.calm;
        Failures {
            tried: self.tried.into_inner(),
            refused: self.refused.into_inner(),
            calm: [tried.into_inner(), refused.into_inner()],
            messages,
        }
    }
}

/// Whether a healthy load gets this error at times: conflicts (class 40), a server that ends or begins (57P0x), a primary that has become a standby. Outcomes
/// and outages show their cost.
fn is_expected(sqlstate: SqlState) -> bool {
    let code = sqlstate.as_str();
    code.starts_with("40") || code.starts_with("57P") || code.starts_with("08") || sqlstate == READ_ONLY
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(code: [u8; 5], message: &str) -> ServerError {
        ServerError {
            severity: "ERROR".to_owned(),
            sqlstate: SqlState(code),
            message: message.to_owned(),
            detail: None,
            hint: None,
            position: None,
        }
    }

    #[test]
    fn conflicts_and_ends_of_servers_are_no_failures_and_missing_tables_are() {
        let tally = Tally::default();
        for code in [*b"40001", *b"40P01", *b"57P01", *b"57P03", *b"25006"] {
            tally.count(Some(&error(code, "expected")), true);
        }
        tally.count(None, true);
        for _ in 0..3 {
            tally.count(Some(&error(*b"42P01", "relation does not exist")), true);
        }
        tally.count(Some(&error(*b"53100", "no space left")), false);
        let failures = tally.into_failures();
        assert_eq!((failures.tried, failures.refused, failures.calm), (10, 4, [9, 3]));
        assert_eq!(failures.messages[0], ("42P01: relation does not exist".to_owned(), 3));
        assert!((failures.calm_share() - 1.0 / 3.0).abs() < 1e-9);
        let both = failures.clone().and(&failures);
        assert_eq!((both.tried, both.messages[0].1), (20, 6));
    }
}

//! The outcome of a COMMIT, from its command tag, warnings, SQLSTATE and the engine.
//!
//! "No error" does not mean "committed permanently", and "error" does not mean "nothing happened". The rules, with the measurements behind them:
//!
//! - a failed block answers COMMIT with the tag `ROLLBACK` and no error at all;
//! - a wait for a synchronous standby that was cancelled is a success with WARNING 01000: the row is here, and on no standby;
//! - if a session is terminated during that wait, its connection ends, and its row is visible;
//! - when the reply to COMMIT is lost, only the table shows the outcome;
//! - postgres_fdw commits the other nodes one after another before its own commit: an error then does not mean that nothing was committed.

use std::fmt;

use engines::Engine;
use wire::error::{ServerError, SqlState};

use crate::client::{Broken, Reply};

/// The outcome of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Outcome {
    /// Acknowledged without reservation: the tag `COMMIT`, and no warning.
    Ok,
    /// Acknowledged, but with a warning that revokes a promise: not replicated, or not yet committed everywhere.
    OkWeak,
    /// Certainly without effect.
    Fail,
    /// It is unknown: only the table can show it.
    Info,
    /// Refused by an engine whose commit over several nodes is not atomic: a part may have been committed.
    Partial,
}

impl Outcome {
    /// All of them, best first.
    pub const ALL: [Outcome; 5] =
        [Outcome::Ok, Outcome::OkWeak, Outcome::Fail, Outcome::Info, Outcome::Partial];

    /// The word in reports.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Ok => "ok",
            Outcome::OkWeak => "ok_weak",
            Outcome::Fail => "fail",
            Outcome::Info => "info",
            Outcome::Partial => "partial",
        }
    }

    /// The server acknowledged it, with or without a warning.
    pub(crate) fn is_acknowledged(self) -> bool {
        matches!(self, Outcome::Ok | Outcome::OkWeak)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An outcome and what shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ended {
    /// What it was worth.
    pub outcome: Outcome,
    /// Why, in words.
    pub why: String,
    /// The code of the error or warning that decided.
    pub sqlstate: Option<SqlState>,
}

impl Ended {
    fn new(outcome: Outcome, why: impl Into<String>, sqlstate: Option<SqlState>) -> Ended {
        Ended { outcome, why: why.into(), sqlstate }
    }
}

/// Where a transaction stood when it ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum At {
    /// Before the committing statement was sent: BEGIN, a statement of a block, a refused connection.
    BeforeCommit,
    /// The reply to COMMIT, or to a statement that commits by itself. `wide`: the transaction wrote on several nodes.
    Commit {
        /// Whether several nodes take part.
        wide: bool,
    },
}

/// `no_active_sql_transaction`: COMMIT without BEGIN, or the block was lost with its session (a pooler).
const NO_TRANSACTION: SqlState = SqlState(*b"25P01");
/// `statement_completion_unknown`, CockroachDB's "result is ambiguous".
const UNKNOWN: SqlState = SqlState(*b"40003");

/// The outcome of a complete reply.
pub fn of_reply(engine: Engine, at: At, reply: &Reply) -> Ended {
    if let Some(error) = &reply.error {
        return of_error(engine, at, error);
    }
    let At::Commit { .. } = at else {
        return Ended::new(Outcome::Fail, "the transaction block ended before COMMIT", None);
    };
    let tag = reply.tag();
    if tag == "ROLLBACK" {
        return Ended::new(Outcome::Fail, "COMMIT was answered with ROLLBACK: the block had failed", None);
    }
    if tag.is_empty() {
        return Ended::new(Outcome::Info, "COMMIT was answered without a command tag", None);
    }
    let mut warnings = reply.notices.iter().filter(|notice| notice.severity == "WARNING");
    if let Some(warning) = reply.notices.iter().find(|notice| notice.sqlstate == NO_TRANSACTION) {
        // Each statement of the block was committed, or lost, separately.
        return Ended::new(Outcome::Info, warning.message.clone(), Some(warning.sqlstate));
    }
    match warnings.next() {
        Some(warning) => Ended::new(Outcome::OkWeak, warning.message.clone(), Some(warning.sqlstate)),
        None => Ended::new(Outcome::Ok, "", None),
    }
}

/// The outcome when the connection broke, or the client's time limit was over.
pub fn of_broken(engine: Engine, at: At, broken: &Broken) -> Ended {
    // A server that is shutting down may report it first.
    if let Some(error) = &broken.reply.error {
        return of_error(engine, at, error);
    }
    match at {
        At::BeforeCommit => {
            Ended::new(Outcome::Fail, format!("the connection broke before COMMIT: {}", broken.cause), None)
        }
        At::Commit { .. } if !broken.was_sent => {
            // The message was not sent completely: the server cannot have read it.
            Ended::new(Outcome::Fail, format!("COMMIT could not be sent: {}", broken.cause), None)
        }
        At::Commit { .. } => {
            let reported = broken.reply.notices.iter().find(|notice| notice.severity == "WARNING");
            let words = reported.map_or_else(
                || format!("no reply to COMMIT: {}", broken.cause),
                |warning| format!("no reply to COMMIT, after the warning: {}", warning.message),
            );
            Ended::new(Outcome::Info, words, reported.map(|warning| warning.sqlstate))
        }
    }
}

fn of_error(engine: Engine, at: At, error: &ServerError) -> Ended {
    let end = |outcome| Ended::new(outcome, error.message.clone(), Some(error.sqlstate));
    let At::Commit { wide } = at else { return end(Outcome::Fail) };
    let may_be_torn = wide && !engine.commit.protocol.is_atomic();
    let code = error.sqlstate.as_str();
    if error.sqlstate == UNKNOWN || code.starts_with("08") {
        return end(if may_be_torn { Outcome::Partial } else { Outcome::Info });
    }
    // The server ended the session, or itself, and the point it had reached is unknown.
    if error.severity == "FATAL" || error.severity == "PANIC" || error.sqlstate.ends_session() {
        // Only a server that was never reached, or that refuses all writes, has certainly done nothing.
        let refused = error.sqlstate == SqlState::CANNOT_CONNECT_NOW;
        return end(if refused { Outcome::Fail } else { Outcome::Info });
    }
    if may_be_torn {
        return end(Outcome::Partial);
    }
    let reports_undone = error.sqlstate.is_retryable() || code.starts_with("23") || code == "25006";
    if reports_undone || engine.commit.error_undoes {
        return end(Outcome::Fail);
    }
    end(Outcome::Info)
}

#[cfg(test)]
mod tests;

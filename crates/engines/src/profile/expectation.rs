//! The expected results of scripted cases, and explanations for a witness.

use std::fmt;

/// The isolation levels of an engine, compared with PostgreSQL: whether scripts recorded on PostgreSQL apply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Levels {
    /// PostgreSQL's: the same anomalies at the same levels, and every step ends the same way.
    Postgres,
    /// PostgreSQL's code below another layer: the effective levels are not documented.
    Derived,
    /// The engine's own, which prevent the same anomalies at the same levels, at other steps of a script (Hermitage's tables).
    Equivalent,
    /// The engine's own. Their guarantees under PostgreSQL's names are not documented.
    Own,
}

impl Levels {
    /// Whether it is known which anomalies a level permits.
    pub fn expects_outcomes(self) -> bool {
        matches!(self, Levels::Postgres | Levels::Equivalent)
    }

    /// Whether it is known how each step of a script ends.
    pub fn expects_steps(self) -> bool {
        self == Levels::Postgres
    }

    /// Whether a level shares only its name with PostgreSQL.
    pub fn are_own(self) -> bool {
        matches!(self, Levels::Equivalent | Levels::Own)
    }
}

/// When statements at READ COMMITTED get a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Statements {
    /// Each has a new one.
    Fresh,
    /// On another node, all statements use the snapshot of the first one that reached it.
    FirstUse,
    /// Not known for every node.
    Unknown,
}

/// A scripted case that needs several nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Case {
    /// DD: a deadlock over two nodes that no server detects.
    Deadlock,
    /// ID: a two-phase commit that stops half-way.
    InDoubt,
    /// LF: two nodes show two writes in opposite orders.
    LongFork,
    /// SC: a commit whose wait for a standby is cancelled stays.
    CancelledWait,
    /// SC, and the client gets no warning.
    SilentCancelledWait,
    /// ST: SERIALIZABLE on a standby or between peers.
    Serializable,
    /// RYW: a write that was acknowledged on one node is missing on another.
    ReadYourWrites,
    /// RYW, with `remote_apply` and the node as a synchronous standby.
    ReadYourWritesApplied,
    /// MC: two nodes write the same row, key or unique value at once.
    Conflict,
}

impl Case {
    /// Its name in reports. Two cases that differ only in a setting or a warning share one.
    pub fn code(self) -> &'static str {
        match self {
            Case::Deadlock => "DD",
            Case::InDoubt => "ID",
            Case::LongFork => "LF",
            Case::CancelledWait | Case::SilentCancelledWait => "SC",
            Case::Serializable => "ST",
            Case::ReadYourWrites | Case::ReadYourWritesApplied => "RYW",
            Case::Conflict => "MC",
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Case::Deadlock => "A deadlock over two nodes that is never detected",
            Case::InDoubt => "A two-phase commit that stops halfway",
            Case::LongFork => "Two nodes that show two writes in opposite orders",
            Case::CancelledWait => "A commit that stays although its wait for a standby was cancelled",
            Case::SilentCancelledWait => "The same without a warning",
            Case::Serializable => "SERIALIZABLE that does not hold on another node",
            Case::ReadYourWrites => "An acknowledged write that is missing on another node",
            Case::ReadYourWritesApplied => "The same with remote_apply and a synchronous standby",
            Case::Conflict => "Two nodes that write the same row at once and both succeed",
        })
    }
}

/// What is expected of a case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expectation {
    /// Which.
    pub case: Case,
    /// Whether the anomaly may happen; `None`: no promise was found.
    pub may_happen: Option<bool>,
    /// Why.
    pub why: &'static str,
    /// What to change about it.
    pub change: &'static str,
}

/// Explanations for a witness.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reasons {
    /// Why one SELECT may see half of a transaction.
    pub fractured_read: &'static str,
    /// Why a transaction may be there in part.
    pub torn_commit: &'static str,
    /// What to change about that.
    pub torn_commit_change: &'static str,
    /// Why nodes may show commits in different orders.
    pub order: &'static str,
    /// What to change about that.
    pub order_change: &'static str,
}

impl Reasons {
    /// For an engine without specific knowledge.
    pub(crate) const GENERAL: Reasons = Reasons {
        fractured_read: "the engine does not promise one snapshot for all nodes",
        torn_commit: "the engine does not promise that a commit is one step for all nodes",
        torn_commit_change: "keep rows that are written together on one shard, or use an engine with two-phase commit",
        order: "the engine's documentation",
        order_change: "read on one node what must be in order",
    };
}

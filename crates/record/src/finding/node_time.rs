//! The account of a node's time: by state, by statement, by relation and whom it belongs to.

use crate::escape::one_line;
use crate::number;
use serde::{Deserialize, Serialize};

/// Where the time of a node's sessions went, as average sessions: two sessions in a state all the time, or four half of it, are 2.0.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct NodeTime {
    /// The node.
    pub node: String,
    /// The time that was looked at.
    pub seconds: f64,
    /// Samples of the sessions in that time.
    pub samples: u64,
    /// Sessions running a statement, on average: what the parts add up to.
    pub active: f64,
    /// Whether `active` is the server's own count (`pg_stat_database.active_time`), and not that of the samples.
    pub is_counted: bool,
    /// Sessions idle in a transaction, on average: not part of `active`.
    pub idle_in_transaction: f64,
    /// The parts, the largest first; `unaccounted` is last and always there. No part is negative.
    pub parts: Vec<NodePart>,
    /// The statements that took the most of the time, the costliest first; empty without pg_stat_statements and query ids.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub statements: Vec<StatementTime>,
    /// The same time by other properties of the sessions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub by: Vec<Dimension>,
    /// What a careful reader should know about them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// The time of a node by one property of its sessions: relation, application, user, database, client host, or the root of lock waits.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Dimension {
    /// `relation`, `application`, `user`, `database`, `client host`, `lock root`.
    pub name: String,
    /// How the time was shared out.
    pub how: String,
    /// The largest values with their shares of the DB time.
    pub shares: Vec<(String, f64)>,
}

/// Below so many average sessions a node is idle: what few samples found there is no answer to anything.
const BUSY_MIN: f64 = 0.1;
/// Parts below this share are not worth a line.
const PART_SHARE_MIN: f64 = 0.005;
/// Parts named in one line.
const PARTS_IN_A_LINE: usize = 3;
/// Characters of a statement in it.
const NAME_CHARS: usize = 60;

impl StatementTime {
    /// `statement 42`, by its id in `pg_stat_statements`; the beginning of its text where the server has no id for it.
    fn name(&self) -> String {
        if self.is_counted || self.text.is_empty() {
            format!("statement {}", self.query_id)
        } else {
            one_line(&self.text, NAME_CHARS)
        }
    }
}

impl NodeTime {
    /// Hardly any session ran a statement.
    pub fn is_idle(&self) -> bool {
        self.active < BUSY_MIN
    }

    /// `time: n1: 8.1 active sessions: 63 % waiting for a CPU, 21 % on a CPU; 63 % in statement 42`; `None` of an idle node.
    pub fn in_a_line(&self) -> Option<String> {
        if self.is_idle() {
            return None;
        }
        let largest = self.parts.iter().filter(|part| part.is_worth_a_line()).take(PARTS_IN_A_LINE);
        let parts: Vec<String> =
            largest.map(|part| format!("{} {}", number::percent(part.share), part.name)).collect();
        let statement = self.statements.first().map_or(String::new(), |statement| {
            format!("; {} in {}", number::percent(statement.share), statement.name())
        });
        Some(format!(
            "time: {}: {:.1} active sessions: {}{statement}",
            self.node,
            self.active,
            parts.join(", ")
        ))
    }
}

impl NodePart {
    /// Large enough to be shown.
    pub fn is_worth_a_line(&self) -> bool {
        self.share >= PART_SHARE_MIN
    }
}

/// A part of a node's session time.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct NodePart {
    /// `on a CPU`, `waiting for a CPU`, `reading`, `WAL and commit`, `locks`, ..., `unaccounted`.
    pub name: String,
    /// Average sessions.
    pub sessions: f64,
    /// Of the active sessions.
    pub share: f64,
    /// Whether counters measured it, and not samples.
    pub is_counted: bool,
    /// Of `sessions`, those that had got what they waited for and had no CPU yet: they still show the wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub woken: Option<f64>,
    /// The largest wait events in it, with their shares; empty if it has none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<(String, f64)>,
}

/// What a statement took of a node's session time. Figures of an execution are means.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct StatementTime {
    /// `queryid`.
    pub query_id: String,
    /// Its database; empty where only samples know the statement.
    pub database: String,
    /// Its text, constants replaced; empty if it is not known.
    pub text: String,
    /// The statement that is executed, if `text` is one inside of a function that it calls, which the server does not count apart; else empty. The figures are
    /// those of the whole.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub outer: String,
    /// How many entries of `pg_stat_statements` it is, if they are several: it has another id for each length of its lists, and for each schema or temporary
    /// table that its names mean.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entries: Option<u64>,
    /// Average sessions that ran it.
    pub sessions: f64,
    /// Of the active sessions.
    pub share: f64,
    /// Whether `pg_stat_statements` counted it, and not samples.
    pub is_counted: bool,
    /// Executions a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls_per_s: Option<f64>,
    /// Time of an execution.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean_ms: Option<f64>,
    /// Time of planning it; absent without `pg_stat_statements.track_planning`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan_ms: Option<f64>,
    /// Just-in-time compilation in the time of an execution; absent before `pg_stat_statements` 1.10 (PostgreSQL 15).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jit_ms: Option<f64>,
    /// Rows that it returns or changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows: Option<f64>,
    /// Blocks that it touches in shared buffers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocks: Option<f64>,
    /// Of these, blocks that had to be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocks_read: Option<f64>,
    /// Bytes of temporary files that it writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temp_bytes: Option<f64>,
    /// WAL that it writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wal_bytes: Option<f64>,
    /// What its sessions were seen waiting for, with the shares of its samples.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<(String, f64)>,
    /// The server's functions that compute for it, with the shares of the samples of its processor time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub functions: Vec<(String, f64)>,
}

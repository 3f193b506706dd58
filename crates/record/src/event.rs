//! `events.ndjson`: things that happened at a moment or lasted a while, one JSON object per line after a header line.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A phase of a step began. Fields: `phase`.
pub const PHASE: &str = "phase";
/// The first error with its SQLSTATE. Fields: `sqlstate`.
pub const ERROR: &str = "error";
/// No session was connected. Fields: `duration_us`.
pub const OUTAGE: &str = "outage";
/// Sessions connected again. Fields: `sessions`.
pub const RECONNECT: &str = "reconnect";
/// The user pressed Ctrl-C or the process got SIGTERM.
pub const INTERRUPT: &str = "interrupt";
/// The server made a checkpoint. Fields as far as known: `node`, `duration_us` (absent: it begins here), `reason`, `buffers`, `write_ms`,
/// `sync_ms`, `longest_sync_ms`, `from` (`log`, `counters`). `t_us` is its begin where that is known, else its end (`end_only` true).
pub const CHECKPOINT: &str = "checkpoint";
/// An automatic vacuum or analyze ended. Fields: `node`, `command`, `relation`, `wraparound`, `aggressive`, `duration_us`, `index_scans`,
/// `rows_removed`, `rows_not_removable`, `cutoff_age_xids`.
pub const AUTOVACUUM: &str = "autovacuum";
/// A session waited for a lock longer than `deadlock_timeout`. Fields: `node`, `pid`, `mode`, `wait_ms`, `acquired`.
pub const LOCK_WAIT: &str = "lock_wait";
/// A deadlock was broken. Fields: `node`, `pid`, `detail`.
pub const DEADLOCK: &str = "deadlock";
/// A temporary file was written. Fields: `node`, `pid`, `bytes`.
pub const TEMP_FILE: &str = "temp_file";
/// A line of the server's log that a reader should see. Fields: `node`, `pid`, `severity`, `sqlstate`, `repeated`.
pub const SERVER_LOG: &str = "server_log";
/// A function writes messages that are no errors into the server's log (RAISE). Fields: `node`, `function`, `severity`, `repeated` (its messages in what was
/// read), `messages` (all in it), `log_bytes` (what the log has grown by since the last look).
pub const RAISED: &str = "raised";
/// A line of the kernel's log. Fields: `host`, `topic`.
pub const KERNEL: &str = "kernel";
/// A collector could not look. Fields: `node` or `host`, `duration_us`, `ticks`.
pub const GAP: &str = "gap";
/// Counters of the server went back to zero. Fields: `node`, `what`.
pub const RESET: &str = "reset";
/// `what` of the counters of databases, with which those of their tables are reset.
pub const DATABASES: &str = "pg_stat_database";
/// The server was started again, or went away. Fields: `node`, `what` ([`AWAY`] or [`STARTED`]; absent in old directories).
pub const RESTART: &str = "restart";
/// `what` of a server that no longer answers.
pub const AWAY: &str = "away";
/// `what` of a server that has started since the last sample.
pub const STARTED: &str = "started";
/// The configuration was loaded again. Fields: `node`.
pub const SETTINGS_CHANGED: &str = "settings_changed";
/// The text of a statement, once. Fields: `node`, `query_id`, `text`.
pub const QUERY: &str = "query";
/// A statement has another plan than before. Fields: `node`, `query_id`, `before`, `after` (hashes of the shapes).
pub const PLAN_CHANGED: &str = "plan_changed";
/// A slice of stacks was kept. Fields: `host`, `file`, `reason`, `duration_us`.
pub const STACKS: &str = "stacks";
/// Something a careful reader should know.
pub const NOTE: &str = "note";
/// Something was broken on purpose, or mended: `kill@10s on n1`.
pub const FAULT: &str = "fault";

/// The field of a message of the server's log: how often it came again.
pub const REPEATED: &str = "repeated";
/// The field of a statement's text: whether the statement is one of pgfathom's own, as far as the recorder knows what it has sent.
pub const OWN: &str = "own";
/// The field of a statement's text: its parameters that are names of fields of documents, with those names as the text of a session has
/// them: `$1 customer`, separated by `; `.
pub const DOCUMENT_KEYS: &str = "document_keys";
/// The field of a gap in the server's log, beside the bytes that were skipped: the bytes that were read since the last such gap.
pub const LOG_READ_BYTES: &str = "read_bytes";

/// One event.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Event {
    /// When it happened or began.
    pub t_us: u64,
    /// One of the constants of this module, or a word of a later version.
    pub kind: String,
    /// Key of the step; empty if it belongs to none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub step: String,
    /// One sentence.
    pub message: String,
    /// How long it lasted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_us: Option<u64>,
    /// More, by kind.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

impl Event {
    /// Reads one line; `None` if it is no event (the header, a torn line).
    pub fn parse(line: &str) -> Option<Event> {
        let event: Event = serde_json::from_str(line).ok()?;
        (!event.kind.is_empty()).then_some(event)
    }

    /// How often it happened: one event stands for a message of a server's log and its repetitions ([`REPEATED`]).
    pub fn times(&self) -> f64 {
        1.0 + self.more.get(REPEATED).and_then(Value::as_f64).unwrap_or(0.0)
    }
}

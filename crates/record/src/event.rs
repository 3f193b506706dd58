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
/// The server made a checkpoint. Fields as far as known: `duration_us`, `reason`.
pub const CHECKPOINT: &str = "checkpoint";
/// Something a careful reader should know.
pub const NOTE: &str = "note";

/// One event.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
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
}

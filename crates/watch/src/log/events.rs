//! Turns entries of the log into events. The messages are those of the server's sources: `xlog.c` (checkpoints), `vacuumlazy.c` and `autovacuum.c`,
//! `proc.c` (lock waits), `deadlock.c`, `fd.c` (temporary files), `postmaster.c` (crashes).

use super::parse::Entry;
use crate::collect::{Batch, Place, Tick, With};
use record::event::{self, Event};
use record::statement::parameterized;
use std::collections::{BTreeMap, BTreeSet};

/// Different errors recorded per tick: the first of each, with the number of the others.
const ERRORS_PER_TICK: usize = 10;
/// Lock waits and temporary files recorded per tick.
const EVENTS_PER_TICK: usize = 50;
/// Characters of a message that are kept.
const MESSAGE_CHARS: usize = 300;
/// Characters of what is written about a deadlock: it has the statements of all that take part.
const DEADLOCK_CHARS: usize = 4_000;
/// Characters of a statement that are read.
const STATEMENT_CHARS: usize = 4_000;
/// SQLSTATE of a deadlock: the same in every language.
/// Citus ends one of the sessions of a deadlock over several nodes with this message.
const DISTRIBUTED: &str = "involved in a distributed deadlock";
const DEADLOCK_DETECTED: &str = "40P01";
/// A vacuum that made way for a lock request (`ProcessInterrupts` in postgres.c).
const CANCELLED: &str = "canceling autovacuum task";
/// Time zones are multiples of this from each other.
const ZONE_STEP_US: i64 = 15 * 60 * 1_000_000;

/// Other lines that are recorded, by a part of the message, with any severity.
const TELLING: [&str; 19] = [
    "too frequently",
    "was terminated by signal",
    "exited with exit code",
    "terminating any other active server processes",
    "database system is shut down",
    "database system is ready to accept",
    "database system was interrupted",
    "redo done at",
    "redo in progress",
    "syncing data directory",
    "received fast shutdown request",
    "received immediate shutdown request",
    "received smart shutdown request",
    "archive command failed",
    "wraparound",
    "could not write to log file",
    "invalidating obsolete replication slot",
    "terminating process",
    "using stale statistics",
];

/// Makes events of entries.
#[derive(Debug)]
pub(crate) struct Reader {
    place: Place,
    tick: Option<Tick>,
    offset_us: i64,
    checkpoint_reason: String,
    errors: BTreeMap<String, Event>,
    reported: usize,
    untold: u64,
    /// Entries of this tick.
    messages: u64,
    /// Those that functions have raised, by function and severity.
    raised: BTreeMap<(String, String), u64>,
    /// What the log has grown by since the last tick.
    grown_bytes: u64,
    /// Server processes of our own connections.
    own: BTreeSet<u32>,
}

impl Reader {
    pub(crate) fn new(place: Place) -> Reader {
        Reader {
            place,
            tick: None,
            offset_us: 0,
            checkpoint_reason: String::new(),
            errors: BTreeMap::new(),
            reported: 0,
            untold: 0,
            messages: 0,
            raised: BTreeMap::new(),
            grown_bytes: 0,
            own: BTreeSet::new(),
        }
    }

    /// The clock for the next entries; `offset_us` is the server's minus ours.
    pub(crate) fn set_clock(&mut self, tick: &Tick, offset_us: i64) {
        (self.tick, self.offset_us) = (Some(*tick), offset_us);
    }

    /// `t_us` of an entry. A log has local times, and names of time zones are ambiguous; but entries are read soon after they are written, so
    /// the time zone is the difference to now, in quarters of an hour.
    fn t_us(&self, entry: &Entry) -> u64 {
        let Some(tick) = &self.tick else { return 0 };
        let Some(time_us) = entry.time_us else { return tick.now_us };
        if entry.is_absolute {
            return tick.of_wall(time_us, self.offset_us);
        }
        let server_now_us = record::clock::wall_us() as i64 + self.offset_us;
        let ahead_us = time_us.saturating_sub(server_now_us);
        let zone_us = ((ahead_us as f64 / ZONE_STEP_US as f64).round() as i64).saturating_mul(ZONE_STEP_US);
        tick.of_wall(time_us.saturating_sub(zone_us), self.offset_us)
    }

    /// The server processes of our own connections: a statement's text shows nothing, because any role can write one.
    pub(crate) fn know(&mut self, own: &BTreeSet<u32>) {
        self.own.clone_from(own);
    }

    /// The log has grown by so much.
    pub(crate) fn grown(&mut self, bytes: u64) {
        self.grown_bytes += bytes;
    }

    /// Takes an entry.
    pub(crate) fn entry(&mut self, entry: &Entry, batch: &mut Batch) {
        self.messages += 1;
        let t_us = self.t_us(entry);
        let message = entry.message.as_str();
        if let Some(event) = self.checkpoint(message, t_us) {
            batch.event(event);
        } else if let Some(event) = self.autovacuum(message, t_us) {
            batch.event(event);
        } else if message.starts_with("deadlock detected")
            || message.contains(DISTRIBUTED)
            || entry.sqlstate == DEADLOCK_DETECTED
        {
            let event = self.place.event(t_us, event::DEADLOCK, "deadlock detected");
            batch.event(
                with_pid(event, entry)
                    .with("detail", entry.detail.chars().take(DEADLOCK_CHARS).collect::<String>())
                    .with("statement", shortened(&entry.statement)),
            );
        } else if let Some(event) = self.bounded(entry, t_us) {
            if self.reported < EVENTS_PER_TICK {
                self.reported += 1;
                batch.event(event);
            } else {
                self.untold += 1;
            }
        } else if ["ERROR", "FATAL", "PANIC"].contains(&entry.severity.as_str())
            || TELLING.iter().any(|words| message.contains(words))
        {
            self.error(entry, t_us);
        } else if let Some(function) = raised_by(entry) {
            let key = (shortened(function), entry.severity.clone());
            if self.raised.len() < ERRORS_PER_TICK || self.raised.contains_key(&key) {
                *self.raised.entry(key).or_default() += 1;
            }
        }
    }

    /// Reports the entries of the tick.
    pub(crate) fn end_of_tick(&mut self, batch: &mut Batch) {
        self.reported = 0;
        for (_, event) in std::mem::take(&mut self.errors) {
            batch.event(event);
        }
        let (messages, grown) = (std::mem::take(&mut self.messages), std::mem::take(&mut self.grown_bytes));
        for ((function, severity), repeated) in std::mem::take(&mut self.raised) {
            let t_us = self.tick.map_or(0, |tick| tick.now_us);
            let event = self.place.event(t_us, event::RAISED, format!("function {function} writes messages"));
            let event =
                event.with("function", function).with("severity", severity).with(event::REPEATED, repeated);
            batch.event(event.with("messages", messages).with("log_bytes", grown));
        }
        let untold = std::mem::take(&mut self.untold);
        if untold > 0 {
            let t_us = self.tick.map_or(0, |tick| tick.now_us);
            let message = format!("{untold} more lines of this second");
            batch.event(self.place.event(t_us, event::SERVER_LOG, message).with(event::REPEATED, untold));
        }
    }

    /// Errors come in thousands: one event per kind and tick, with their number.
    fn error(&mut self, entry: &Entry, t_us: u64) {
        // What was refused to us is no error of the application.
        if entry.pid.is_some_and(|pid| self.own.contains(&pid)) {
            return;
        }
        let table = cancelled(entry);
        let key = match (table, entry.sqlstate.as_str()) {
            // A timeout of a statement has the same SQLSTATE.
            (Some(table), _) => format!("{CANCELLED} {table}"),
            // The message without its values: two unique violations differ in the key.
            (None, "" | "00000") => entry.message.chars().filter(|c| !c.is_ascii_digit()).take(40).collect(),
            (None, state) => format!("{}{state}", entry.severity),
        };
        if let Some(known) = self.errors.get_mut(&key) {
            let repeated = known.more.get(event::REPEATED).and_then(serde_json::Value::as_u64).unwrap_or(0);
            known.more.insert(event::REPEATED.to_string(), (repeated + 1).into());
        } else if self.errors.len() < ERRORS_PER_TICK {
            let event = self.place.event(t_us, event::SERVER_LOG, shortened(&entry.message));
            let mut event = with_pid(event, entry).with("severity", entry.severity.clone());
            if !entry.sqlstate.is_empty() {
                event = event.with("sqlstate", entry.sqlstate.clone());
            }
            if let Some(table) = table {
                event = event.with("relation", table);
            }
            if !entry.statement.is_empty() {
                // Its values are the users', and not needed.
                event = event.with("statement", shortened(&parameterized(&head(&entry.statement))));
            }
            self.errors.insert(key, event);
        } else {
            self.untold += 1;
        }
    }

    fn checkpoint(&mut self, message: &str, t_us: u64) -> Option<Event> {
        let (what, rest) =
            message.split_once(' ').filter(|(what, _)| ["checkpoint", "restartpoint"].contains(what))?;
        if let Some(reason) = rest.strip_prefix("starting:") {
            self.checkpoint_reason = reason.trim().to_string();
            let event = self.place.event(
                t_us,
                event::CHECKPOINT,
                format!("{what} starting: {}", self.checkpoint_reason),
            );
            return Some(event.with("reason", self.checkpoint_reason.clone()).with("from", "log"));
        }
        let rest = rest.strip_prefix("complete:")?;
        let seconds = |name: &str| number_after(rest, name).map(|seconds| seconds * 1000.0);
        let total_us = (seconds("total=")? * 1000.0) as u64;
        let mut event = self
            .place
            .event(
                t_us.saturating_sub(total_us),
                event::CHECKPOINT,
                shortened(&format!("{what} complete:{rest}")),
            )
            .with("reason", std::mem::take(&mut self.checkpoint_reason))
            .with("from", "log");
        event.duration_us = Some(total_us);
        for (field, value) in [
            ("buffers", number_after(rest, "wrote ")),
            ("write_ms", seconds("write=")),
            ("sync_ms", seconds("sync=")),
            ("longest_sync_ms", seconds("longest=")),
            ("distance_kb", number_after(rest, "distance=")),
        ] {
            if let Some(value) = value {
                event = event.with(field, value);
            }
        }
        Some(event)
    }

    fn autovacuum(&self, message: &str, t_us: u64) -> Option<Event> {
        let (head, rest) = message.strip_prefix("automatic ")?.split_once("of table \"")?;
        let (relation, rest) = rest.split_once('"')?;
        let command = if head.contains("analyze") { "analyze" } else { "vacuum" };
        let elapsed_us = number_after(rest, "elapsed: ").map(|seconds| (seconds * 1e6) as u64);
        let mut event = self
            .place
            .event(
                t_us.saturating_sub(elapsed_us.unwrap_or(0)),
                event::AUTOVACUUM,
                format!("automatic {command} of {relation}"),
            )
            .with("command", command)
            .with("relation", relation)
            .with("wraparound", head.contains("wraparound"))
            .with("aggressive", head.contains("aggressive"));
        event.duration_us = elapsed_us;
        let before = |words: &str| number_before(rest, words);
        for (field, value) in [
            ("index_scans", number_after(rest, "index scans: ")),
            ("rows_removed", number_after(rest, "tuples: ")),
            ("rows_not_removable", before(" are dead but not yet removable")),
            ("cutoff_age_xids", before(" XIDs old")),
            ("delay_ms", number_after(rest, "delay time: ")),
        ] {
            if let Some(value) = value {
                event = event.with(field, value);
            }
        }
        Some(event)
    }

    /// Kinds that may be frequent.
    fn bounded(&self, entry: &Entry, t_us: u64) -> Option<Event> {
        let message = entry.message.as_str();
        if let Some(rest) = message.strip_prefix("process ") {
            let (pid, rest) = rest.split_once(' ')?;
            let (acquired, rest) =
                match (rest.strip_prefix("still waiting for "), rest.strip_prefix("acquired ")) {
                    (Some(rest), _) => (false, rest),
                    (_, Some(rest)) => (true, rest),
                    _ => return None,
                };
            let wait_ms = number_after(rest, "after ")?;
            let event = self.place.event(t_us, event::LOCK_WAIT, shortened(message));
            return Some(
                event
                    .with("pid", pid.parse::<u64>().ok()?)
                    .with("mode", rest.split(' ').next().unwrap_or_default())
                    .with("wait_ms", wait_ms)
                    .with("acquired", acquired)
                    .with("detail", shortened(&entry.detail)),
            );
        }
        if message.starts_with("temporary file: ") {
            let bytes = number_after(message, "size ")?;
            let event = self.place.event(t_us, event::TEMP_FILE, shortened(message));
            return Some(
                with_pid(event, entry)
                    .with("bytes", bytes as u64)
                    .with("statement", shortened(&entry.statement)),
            );
        }
        None
    }
}

/// The table whose automatic vacuum was cancelled, with its database and schema in front.
fn cancelled(entry: &Entry) -> Option<&str> {
    let (_, rest) =
        entry.context.split_once("of table \"").filter(|_| entry.message.starts_with(CANCELLED))?;
    rest.split('"').next().filter(|table| !table.is_empty())
}

/// The function whose RAISE wrote an entry: `PL/pgSQL function f(integer) line 3 at RAISE` is the first line of its context, in any language.
fn raised_by(entry: &Entry) -> Option<&str> {
    let line = entry.context.lines().next().filter(|line| line.trim_end().ends_with("RAISE"))?;
    let open = line.find('(')?;
    let from = line[..open].rfind(' ').map_or(0, |space| space + 1);
    let to = open + line[open..].find(')')? + 1;
    Some(&line[from..to])
}

fn with_pid(event: Event, entry: &Entry) -> Event {
    match entry.pid {
        Some(pid) => event.with("pid", pid),
        None => event,
    }
}

/// The number that follows `words`.
fn number_after(text: &str, words: &str) -> Option<f64> {
    let rest = &text[text.find(words)? + words.len()..];
    let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
    rest[..end].trim_end_matches('.').parse().ok()
}

/// The number that stands before `words`.
fn number_before(text: &str, words: &str) -> Option<f64> {
    let head = &text[..text.find(words)?];
    let from = head.rfind(|c: char| !c.is_ascii_digit()).map_or(0, |at| at + 1);
    head[from..].parse().ok()
}

/// As much of a statement as its beginning needs: one may be a document of megabytes.
fn head(text: &str) -> String {
    text.chars().take(STATEMENT_CHARS).collect()
}

fn shortened(text: &str) -> String {
    text.chars().take(MESSAGE_CHARS).collect()
}

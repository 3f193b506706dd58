//! Turns entries of the log into events. The messages are those of the server's sources: `xlog.c` (checkpoints), `vacuumlazy.c` and `autovacuum.c`,
//! `proc.c` (lock waits), `deadlock.c`, `fd.c` (temporary files), `postmaster.c` (crashes).

use super::author::{self, By, Judge, is_raised, raised_by};
use super::parse::Entry;
use super::writer::Writer;
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
/// Citus ends one of the sessions of a deadlock over several nodes with this message.
const DISTRIBUTED: &str = "canceling the transaction since it was involved in a distributed deadlock";
/// SQLSTATE of a deadlock: the same in every language.
const DEADLOCK_DETECTED: &str = "40P01";
/// A vacuum that made way for a lock request (`ProcessInterrupts` in postgres.c).
const CANCELLED: &str = "canceling autovacuum task";
/// Time zones are multiples of this from each other.
const ZONE_STEP_US: i64 = 15 * 60 * 1_000_000;

/// Other lines that are recorded, by a part of the message, with any severity: whose lines they are.
const TELLING: [(&str, By); 48] = [
    ("checkpoints are occurring too frequently", By::Server),
    ("was terminated by signal", By::Main),
    ("exited with exit code", By::Main),
    ("terminating any other active server processes", By::Main),
    ("database system is shut down", By::Server),
    ("database system is ready to accept", By::Server),
    ("database system was interrupted", By::Server),
    ("redo done at", By::Server),
    ("redo in progress", By::Server),
    ("syncing data directory", By::Server),
    ("received fast shutdown request", By::Main),
    ("received immediate shutdown request", By::Main),
    ("received smart shutdown request", By::Main),
    ("archive command failed", By::Server),
    ("wraparound", By::Server),
    ("could not write to log file", By::Server),
    ("invalidating obsolete replication slot", By::Server),
    ("terminating process", By::Server),
    ("using stale statistics", By::Any),
    // What the postmaster, and processes without a client, are refused by the system: `postmaster.c`, `launch_backend.c`, `pqcomm.c`, `fd.c`, `sysv_sema.c`.
    ("could not fork", By::Main),
    ("could not accept new connection", By::Main),
    ("out of file descriptors", By::Any),
    ("could not create semaphores", By::Main),
    ("could not bind", By::Main),
    ("could not open statistics file", By::Any),
    ("could not open temporary statistics file", By::Server),
    ("could not rename temporary statistics file", By::Server),
    ("could not write temporary statistics file", By::Server),
    ("Too many open files", By::Any),
    ("Cannot allocate memory", By::Any),
    ("No space left on device", By::Any),
    // No place for one more worker: `launcher.c` of logical replication, `bgworker.c`.
    ("out of logical replication worker slots", By::Any),
    ("out of background worker slots", By::Any),
    // What the services that decide about logins answer, or do not: `auth.c`.
    ("timeout waiting for RADIUS response", By::Any),
    ("could not perform initial LDAP", By::Any),
    ("could not search LDAP", By::Any),
    ("could not initialize LDAP", By::Any),
    ("could not connect to Ident server", By::Any),
    ("could not receive response from Ident server", By::Any),
    ("could not receive RADIUS response", By::Any),
    // What clients and files of settings do: `backend_startup.c`, `pqcomm.c`, `be-secure.c`, `hba.c`, `guc-file.l`.
    ("invalid length of startup packet", By::Any),
    ("invalid startup packet", By::Any),
    ("incomplete startup packet", By::Any),
    ("expected terminator as last byte of startup packet", By::Any),
    ("could not receive data from client", By::Any),
    ("could not accept SSL connection", By::Any),
    ("was not reloaded", By::Main),
    ("contains errors; unaffected changes were applied", By::Main),
];
/// SQLSTATEs, and words where the log has none, of errors about what is used up: their DETAIL has the size, and no value of a user.
const OF_RESOURCES: [&str; 2] = ["53", "54"];
const WORDS_OF_RESOURCES: [&str; 3] =
    ["out of memory", "string buffer exceeds", "could not resize shared memory"];

/// What of an error is believed.
struct Credible<'a> {
    message: String,
    /// Empty if a function has chosen it.
    sqlstate: &'a str,
    is_raised: bool,
}

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
    judge: Judge,
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
            judge: Judge { mains: BTreeSet::new(), shows_context: true },
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

    /// The main process of the server. It may be another one after a restart, and lines of the one before may be unread.
    pub(crate) fn know_main(&mut self, main: u32) {
        self.judge.mains.insert(main);
    }

    /// Whether a line of the log has its CONTEXT.
    pub(crate) fn show_context(&mut self, shows_context: bool) {
        self.judge.shows_context = shows_context;
    }

    /// The log has grown by so much.
    pub(crate) fn grown(&mut self, bytes: u64) {
        self.grown_bytes += bytes;
    }

    /// Takes an entry.
    pub(crate) fn entry(&mut self, entry: &Entry, batch: &mut Batch) {
        self.messages += 1;
        let t_us = self.t_us(entry);
        if let Some(event) = self.of_server(entry, t_us) {
            batch.event(event);
        } else if self.is_deadlock(entry) {
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
        } else if ["ERROR", "FATAL", "PANIC"].contains(&entry.severity.as_str()) || self.is_telling(entry) {
            self.error(entry, t_us);
        } else if let Some(function) = raised_by(entry) {
            let key = (shortened(function), entry.severity.clone());
            if self.raised.len() < ERRORS_PER_TICK || self.raised.contains_key(&key) {
                *self.raised.entry(key).or_default() += 1;
            }
        }
    }

    /// A checkpoint or an automatic vacuum: of a process that serves no client.
    fn of_server(&mut self, entry: &Entry, t_us: u64) -> Option<Event> {
        let is_of_server = entry.severity == "LOG" && self.judge.believes(entry, By::Server);
        is_of_server.then_some(())?;
        self.checkpoint(&entry.message, t_us).or_else(|| self.autovacuum(&entry.message, t_us))
    }

    fn is_deadlock(&self, entry: &Entry) -> bool {
        let is_it = entry.message.starts_with("deadlock detected")
            || entry.message.starts_with(DISTRIBUTED)
            || entry.sqlstate == DEADLOCK_DETECTED;
        is_it
            && entry.severity == "ERROR"
            && self.judge.believes(entry, By::Any)
            && author::is_at(entry, &["DeadLockReport", ""])
    }

    /// Whether a line that is no error is about the server. Statement logging and the like have the text of a statement behind words of their own, so a
    /// line of a session counts only with such words at its beginning, or as what the system has refused to the server:
    /// `could not open file "base/5/1": Too many open files`.
    fn is_telling(&self, entry: &Entry) -> bool {
        let message = entry.message.as_str();
        // The first kind decides: what the main process was refused ends with words of the system, as what others were refused.
        let Some((at, by)) = TELLING.iter().find_map(|(words, by)| Some((message.find(words)?, *by))) else {
            return false;
        };
        let is_there = by != By::Any || at == 0 || message.starts_with("could not ");
        let is_no_name = at == 0 || by == By::Main || author::without_forged_names(message) == message;
        is_there && is_no_name && self.judge.believes(entry, by)
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
        let Credible { message, sqlstate, is_raised } = self.credible(entry);
        let table = cancelled(entry).filter(|_| !is_raised);
        let key = match (table, sqlstate) {
            // A timeout of a statement has the same SQLSTATE.
            (Some(table), _) => format!("{CANCELLED} {table}"),
            // The message without its values: two unique violations differ in the key.
            (None, "" | "00000") => message.chars().filter(|c| !c.is_ascii_digit()).take(40).collect(),
            (None, _) if entry.severity == "LOG" => {
                message.chars().filter(|c| !c.is_ascii_digit()).take(40).collect()
            }
            (None, state) => format!("{}{state}", entry.severity),
        };
        if let Some(known) = self.errors.get_mut(&key) {
            let repeated = known.more.get(event::REPEATED).and_then(serde_json::Value::as_u64).unwrap_or(0);
            known.more.insert(event::REPEATED.to_string(), (repeated + 1).into());
        } else if self.errors.len() < ERRORS_PER_TICK {
            let event = self.place.event(t_us, event::SERVER_LOG, shortened(&message));
            let mut event = with_pid(event, entry).with("severity", entry.severity.clone());
            if !sqlstate.is_empty() {
                event = event.with("sqlstate", sqlstate);
            }
            if let Some(table) = table {
                event = event.with("relation", table);
            }
            // Why a connection is refused stands there, and the client is not informed of it; or what was too large.
            let has_reason = !is_raised && (entry.severity == "FATAL" || is_of_resources(entry));
            if has_reason && !entry.detail.is_empty() {
                event = event.with("detail", shortened(&entry.detail));
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

    /// What of an error is believed. A function can raise one with any words and any SQLSTATE: it is an error of the application, and none of the server.
    fn credible<'a>(&self, entry: &'a Entry) -> Credible<'a> {
        let message = entry.message.as_str();
        if author::writer(entry) == Writer::Server && !is_raised(entry) || entry.severity == "LOG" {
            return Credible { message: message.into(), sqlstate: &entry.sqlstate, is_raised: false };
        }
        if !self.judge.may_be_raised(entry) {
            let believed = author::without_forged_names(message);
            let cut = if believed.len() < message.len() { " ..." } else { "" };
            return Credible {
                message: format!("{believed}{cut}"),
                sqlstate: &entry.sqlstate,
                is_raised: false,
            };
        }
        let is_certain = is_raised(entry);
        let is_own = author::is_of_functions(&entry.sqlstate);
        let message = match (author::is_grave(message), raised_by(entry)) {
            (false, _) => message.to_string(),
            (true, Some(function)) => format!("an error that function {function} raises"),
            (true, None) if is_certain => "an error that a function raises".to_string(),
            (true, None) => "an error that a function may have raised".to_string(),
        };
        let is_kept = is_own || !is_certain && !author::is_of_the_system(&entry.sqlstate);
        Credible { message, sqlstate: if is_kept { &entry.sqlstate } else { "" }, is_raised: is_certain }
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

    /// Whether a line that sessions write as well is the one of this function of the server.
    fn is_of_session(&self, entry: &Entry, function: &str) -> bool {
        entry.severity == "LOG"
            && self.judge.believes(entry, By::Any)
            && author::is_at(entry, &[function, ""])
    }

    /// Kinds that may be frequent.
    fn bounded(&self, entry: &Entry, t_us: u64) -> Option<Event> {
        let message = entry.message.as_str();
        if let Some(rest) = message.strip_prefix("process ") {
            let (pid, rest) = rest.split_once(' ')?;
            self.is_of_session(entry, "ProcSleep").then_some(())?;
            // A process writes it about itself.
            let pid: u32 = pid.parse().ok().filter(|pid| entry.pid.is_none_or(|own| own == *pid))?;
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
                    .with("pid", pid)
                    .with("mode", rest.split(' ').next().unwrap_or_default())
                    .with("wait_ms", wait_ms)
                    .with("acquired", acquired)
                    .with("detail", shortened(&entry.detail)),
            );
        }
        if message.starts_with("temporary file: ") && self.is_of_session(entry, "ReportTemporaryFileUsage") {
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

/// Whether an error is about what is used up.
fn is_of_resources(entry: &Entry) -> bool {
    OF_RESOURCES.iter().any(|class| entry.sqlstate.starts_with(class))
        || WORDS_OF_RESOURCES.iter().any(|words| entry.message.starts_with(words))
}

/// The table whose automatic vacuum was cancelled, with its database and schema in front.
fn cancelled(entry: &Entry) -> Option<&str> {
    let (_, rest) =
        entry.context.split_once("of table \"").filter(|_| entry.message.starts_with(CANCELLED))?;
    rest.split('"').next().filter(|table| !table.is_empty())
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

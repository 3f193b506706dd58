//! Runs a script with several sessions, and records the result of each statement.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use connect::ConnSpec;

use super::cases::Case;
use super::transcript::{Event, Transcript};
use super::{HermitageError, TABLE};
use crate::client::{Client, Reply, row_text};
use crate::live::{LiveError, tables};
use crate::session::Session;
use engines::profile::Isolation;

/// The interval at which locks are queried while a statement has no answer.
const LOOK: Duration = Duration::from_millis(5);
/// Where no view shows locks, a statement without an answer for so long counts as waiting.
const QUIET: Duration = Duration::from_millis(250);
/// The time limit for a script. Generous: the host may be busy, and no script waits for time to pass.
const LIMIT: Duration = Duration::from_secs(60);

/// The sessions, and one that monitors them.
pub(super) struct Stage {
    sessions: BTreeMap<char, Session>,
    watcher: Session,
    spec: ConnSpec,
    /// Whether the server has `pg_blocking_pids`.
    sees_locks: bool,
    /// The comment on the schema, so that this proof drops only its own schema.
    token: String,
}

impl Stage {
    pub(super) fn open(spec: &ConnSpec) -> Result<Stage, HermitageError> {
        let spec = &tables::of_one_node(spec).map_err(LiveError::from)?;
        let mut watcher = Session::open(spec)?;
        let probe = watcher.request("select pg_catalog.pg_blocking_pids(0)", LIMIT)?;
        let sees_locks = probe.error.is_none();
        let token =
            format!("hermitage of process {} at backend {}", std::process::id(), watcher.process_id());
        Ok(Stage { sessions: BTreeMap::new(), watcher, spec: spec.clone(), sees_locks, token })
    }

    fn execute(&mut self, doing: &'static str, sql: &str) -> Result<Reply, HermitageError> {
        let reply = self.watcher.request(sql, LIMIT)?;
        match &reply.error {
            Some(error) => Err(HermitageError::Refused { doing, message: error.to_string() }),
            None => Ok(reply),
        }
    }

    /// Makes the table, in the schema of all proofs and with its checks.
    pub(super) fn make_table(&mut self) -> Result<(), HermitageError> {
        let mut client = Client::connect(&self.spec, LIMIT).map_err(LiveError::from)?;
        tables::refuse_replicated(&mut client, "this server", &[])?;
        tables::make_schema(&mut client, &self.token)?;
        self.execute("making the table", &format!("CREATE TABLE {TABLE} (id int PRIMARY KEY, value int)"))?;
        Ok(())
    }

    pub(super) fn drop_table(&mut self) -> Result<(), HermitageError> {
        self.sessions.clear();
        let mut client = Client::connect(&self.spec, LIMIT).map_err(LiveError::from)?;
        Ok(tables::drop_schema(&mut client, &self.token)?)
    }

    /// Runs one case. An error is the reason why it did not end.
    pub(super) fn play(&mut self, case: &Case, level: Isolation) -> Result<Transcript, String> {
        let reset = format!("DELETE FROM {TABLE}; INSERT INTO {TABLE} VALUES (1, 10), (2, 20)");
        self.execute("filling the table", &reset).map_err(|error| error.to_string())?;
        let played = self.steps(case, level);
        if played.is_err() {
            // A hanging session must not block the next script.
            self.sessions.clear();
        }
        let mut transcript = played?;
        for session in self.sessions.values_mut() {
            session.request("ROLLBACK", LIMIT).map_err(|error| error.to_string())?;
        }
        let rows = self.execute("reading the table", &format!("SELECT id, value FROM {TABLE} ORDER BY id"));
        transcript.last = rows_text(&rows.map_err(|error| error.to_string())?);
        Ok(transcript)
    }

    fn steps(&mut self, case: &Case, level: Isolation) -> Result<Transcript, String> {
        let deadline = Instant::now() + LIMIT;
        let mut transcript = Transcript::default();
        let mut begun: Vec<char> = Vec::new();
        // Statements without an answer yet: whether they are a COMMIT.
        let mut waiting: BTreeMap<char, bool> = BTreeMap::new();
        for (number, (who, _)) in case.steps.iter().enumerate() {
            let sql = case.sql(number);
            if let Some(is_commit) = waiting.remove(who) {
                // The script has released the lock that this session waits for.
                let event = self.answer(*who, is_commit, deadline, true)?;
                transcript.events.extend(event.map(|event| (*who, event)));
            }
            if !begun.contains(who) {
                begun.push(*who);
                self.begin(*who, level)?;
            }
            let is_commit = sql == "COMMIT";
            self.session(*who)?.send(&sql).map_err(|error| error.to_string())?;
            match self.answer(*who, is_commit, deadline, false)? {
                Some(event) => transcript.events.push((*who, event)),
                None => {
                    transcript.events.push((*who, Event::Waits));
                    waiting.insert(*who, is_commit);
                }
            }
            // If this statement released a lock, others continue; their answers belong here.
            for other in waiting.keys().copied().collect::<Vec<_>>() {
                if other != *who
                    && let Some(event) = self.answer(other, waiting[&other], deadline, false)?
                {
                    transcript.events.push((other, event));
                    waiting.remove(&other);
                }
            }
        }
        for (who, is_commit) in waiting {
            let event = self.answer(who, is_commit, deadline, true)?;
            transcript.events.extend(event.map(|event| (who, event)));
        }
        Ok(transcript)
    }

    fn session(&mut self, who: char) -> Result<&mut Session, String> {
        if !self.sessions.contains_key(&who) {
            let session = Session::open(&self.spec).map_err(|error| error.to_string())?;
            self.sessions.insert(who, session);
        }
        self.sessions.get_mut(&who).ok_or_else(|| "a session is missing".to_string())
    }

    fn begin(&mut self, who: char, level: Isolation) -> Result<(), String> {
        let sql = format!("{}; SHOW transaction_isolation", level.begin());
        let reply = self.session(who)?.request(&sql, LIMIT).map_err(|error| error.to_string())?;
        if let Some(error) = &reply.error {
            return Err(format!("{level} is refused: {error}"));
        }
        // A pooler or a setting may change the requested level.
        let got = reply.text(0).unwrap_or_default();
        match got.eq_ignore_ascii_case(level.name()) {
            true => Ok(()),
            false => Err(format!("{level} was requested, the transaction has {got}")),
        }
    }

    /// The answer to a session's statement; `None`: it waits for a lock. With `must_come` this waits for the answer in any case.
    fn answer(
        &mut self,
        who: char,
        is_commit: bool,
        deadline: Instant,
        must_come: bool,
    ) -> Result<Option<Event>, String> {
        let sent = Instant::now();
        loop {
            let session = self.session(who)?;
            let pid = session.process_id();
            let reply = session.reply_within(LOOK).map_err(|error| format!("{who}: {error}"))?;
            if let Some(reply) = reply {
                return Ok(Some(event(&reply, is_commit)));
            }
            if !must_come && self.is_blocked(pid, sent)? {
                return Ok(None);
            }
            if Instant::now() > deadline {
                return Err(format!("{who} got no reply for {} s", LIMIT.as_secs()));
            }
        }
    }

    fn is_blocked(&mut self, pid: u32, sent: Instant) -> Result<bool, String> {
        if !self.sees_locks {
            return Ok(sent.elapsed() >= QUIET);
        }
        let sql = format!("select pg_catalog.pg_blocking_pids({pid}) <> '{{}}'");
        let reply = self.execute("looking at locks", &sql).map_err(|error| error.to_string())?;
        Ok(reply.text(0).as_deref() == Some("t"))
    }
}

/// Rows of id and value as one word each.
fn rows_text(reply: &Reply) -> String {
    let rows: Vec<String> = reply.all_rows().map(row_text).map(|row| row.replacen(',', "=", 1)).collect();
    rows.join(" ")
}

fn event(reply: &Reply, is_commit: bool) -> Event {
    match (reply.sqlstate(), reply.tag()) {
        (Some(code), _) => Event::Refused(code.to_owned(), is_commit),
        (None, "COMMIT") => Event::Committed,
        (None, "ROLLBACK") => Event::RolledBack,
        (None, tag) if tag.starts_with("SELECT") => Event::Read(rows_text(reply)),
        _ => Event::Done,
    }
}

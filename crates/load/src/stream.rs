//! A stream: one thread with one connection that loads chunk after chunk, and reconnects when the server is back.
//!
//! Here is what the two methods share: connecting, reconnecting, classifying errors, and stopping.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use connect::ConnSpec;
use connect::hot::{CancelToken, HotConnection};
use rustix::event::{PollFd, PollFlags, Timespec};
use wire::error::SqlState;

use crate::absent::{self, Waiting};
use crate::contention::Contention;
use crate::dataset::{self, Encoder, Leaves, Numbers};
use crate::error::{LoadError, is_of_absent_node};
use crate::ledger::{Dataset, qualified};
use crate::options::{Stop, StopLevel};
use crate::pace::Pace;
use crate::place::Place;
use crate::progress::{Counters, LoadEvent, StreamCounters};
use crate::session::{Session, SessionError, Socket};

/// The first pause before a lost server is tried again; it doubles from time to time.
const BACKOFF_FIRST: Duration = Duration::from_millis(50);

/// The longest pause. A server that comes back is found this late at worst.
const BACKOFF_MAX: Duration = Duration::from_secs(2);

/// While it pauses, a stream looks this often whether it shall stop.
const STOP_LOOK: Duration = Duration::from_millis(50);

/// How often a chunk is begun again after errors that are not about the connection.
const ATTEMPTS_MAX: u32 = 10;

/// How often the connection may be lost over one chunk: a server that the chunk itself brings down is not tried for ever.
const LOSSES_MAX: u32 = 50;

/// A chunk that will end within this time is finished when the user stops the load; a longer one is rolled back.
pub(crate) const DRAIN: Duration = Duration::from_secs(5);

/// What every session of a load sets, each setting only where the server knows it. Time limits that protect a server from forgotten
/// sessions would end long chunks; a client machine that vanishes without a word shall not hold its chunk for hours; and messages that
/// are not read in time could fill the socket while we fill it from the other side.
pub(crate) const SESSION_SETTINGS: &str = "
select set_config(v.name, v.value, false)
from (values ('statement_timeout', '0'), ('lock_timeout', '0'), ('idle_in_transaction_session_timeout', '0'),
             ('transaction_timeout', '0'), ('idle_session_timeout', '0'),
             ('default_transaction_isolation', 'read committed'), ('default_transaction_deferrable', 'off'),
             ('client_min_messages', 'error'),
             ('tcp_keepalives_idle', '60'), ('tcp_keepalives_interval', '10'), ('tcp_keepalives_count', '6')) v (name, value)
where exists (select from pg_settings s where s.name = v.name)";

/// Rows are ASCII in every encoding that a server can have, so they need no conversion. (Names of schemas do.)
const NO_CONVERSION: &str = "select set_config('client_encoding', getdatabaseencoding()::text, false)";

/// What streams report to the coordinator.
#[derive(Debug)]
pub(crate) enum Message {
    /// Something happened.
    Event(LoadEvent),
    /// All streams are through.
    Ended,
}

/// What all streams of a load share.
pub(crate) struct Work<'a> {
    pub(crate) dataset: &'a Dataset,
    /// Its tables and rows.
    pub(crate) content: &'a dyn dataset::Dataset,
    pub(crate) leaves: Leaves,
    pub(crate) counters: &'a Counters,
    pub(crate) stop: &'a Stop,
    pub(crate) reconnect_limit: Duration,
    /// The engine's SQLSTATE values for another node that does not answer.
    pub(crate) node_lost: &'static [&'static str],
    /// Another stream has failed for good.
    pub(crate) failed: AtomicBool,
    /// Reports to the coordinator what happened.
    pub(crate) messages: Sender<Message>,
    /// How to wake each stream that waits for its server; written when it connects.
    pub(crate) cancels: Vec<Mutex<Option<CancelToken>>>,
}

impl<'a> Work<'a> {
    /// How urgently streams have to stop, for whatever reason.
    pub(crate) fn stop_level(&self) -> StopLevel {
        if self.failed.load(Ordering::Relaxed) { StopLevel::Now } else { self.stop.level() }
    }

    /// Reports to the coordinator what happened.
    pub(crate) fn report(&self, kind: &'static str, message: String, duration: Option<Duration>) {
        // A coordinator that is gone needs no report.
        let _ = self.messages.send(Message::Event(LoadEvent { kind, message, duration }));
    }

    /// Notes whether a node has nothing to do, so that it is not taken for a slow one.
    pub(crate) fn set_idle(&self, node: usize, idle: bool) {
        if let Some(node) = self.counters.nodes.get(node) {
            node.idle.store(idle, Ordering::Relaxed);
        }
    }

    /// A leaf table, qualified and quoted.
    pub(crate) fn leaf(&self, leaf: u16) -> String {
        let table = self.table_of(leaf);
        let name = match table.is_divided(self.dataset.partitions) {
            false => table.name.to_owned(),
            true => format!("{}_p{}", table.name, self.leaves.partition(usize::from(leaf))),
        };
        qualified(&self.dataset.schema_name, &name)
    }

    /// About how many rows a leaf has.
    pub(crate) fn share_of(&self, leaf: u16) -> u64 {
        let (table, partitions) = (self.table_of(leaf), self.leaves.partitions());
        table.rows / if table.is_divided(partitions) { u64::from(partitions) } else { 1 }
    }

    /// The table of a leaf.
    pub(crate) fn table_of(&self, leaf: u16) -> &'a dataset::Table {
        &self.content.tables()[self.leaves.table(usize::from(leaf))]
    }
}

/// The command that copies rows into a table or one of its leaves; `options` begin with a comma.
pub(crate) fn copy_command(relation: &str, table: &dataset::Table, options: &str) -> String {
    format!("copy {relation} ({}) from stdin (format binary{options})", table.column_list())
}

impl Socket for HotConnection {
    fn readable(&self) -> io::Result<bool> {
        let mut fds = [PollFd::new(self.socket(), PollFlags::IN)];
        // Bytes that TLS has decrypted already are not seen here; they are read with the next message at the latest.
        Ok(rustix::event::poll(&mut fds, Some(&Timespec::default()))? > 0)
    }
}

/// Why a chunk was not loaded.
#[derive(Debug)]
pub(crate) enum ChunkError {
    /// The stop was noticed; everything is rolled back.
    Stopped,
    /// The session failed.
    Session(SessionError),
    /// A crash of the server has emptied the unlogged tables.
    Emptied,
    /// Something beside the stream's own connection failed for good.
    Failed(Box<LoadError>),
}

impl From<SessionError> for ChunkError {
    fn from(error: SessionError) -> ChunkError {
        ChunkError::Session(error)
    }
}

/// How a stream goes on after an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum AfterError {
    /// The same chunk again over a new connection, as often as the time limit allows: the server was restarted, crashed or cut off.
    Reconnect,
    /// The same chunk again after a pause, as often as the time limit allows: the server answers, but another node that it needs does not.
    Await,
    /// The same chunk again, [`ATTEMPTS_MAX`] times: the transaction was a victim of others.
    Repeat,
    /// Nothing a repetition could cure.
    Fail,
}

fn fate(error: &SessionError, node_lost: &[&str]) -> AfterError {
    let SessionError::Server(server) = error else {
        return if matches!(error, SessionError::Io(_)) { AfterError::Reconnect } else { AfterError::Fail };
    };
    if !server.is_fatal() && is_of_absent_node(server.sqlstate, &server.message, node_lost) {
        return AfterError::Await;
    }
    match &server.sqlstate.0 {
        // Admin shutdown, crash shutdown, cannot connect now; connection exceptions; a standby that a failover left behind.
        b"57P01" | b"57P02" | b"57P03" | b"25006" => AfterError::Reconnect,
        [b'0', b'8', ..] => AfterError::Reconnect,
        // Query cancelled, lock timeout, serialization failure, deadlock: by others, as our settings and locks cause none.
        b"57014" | b"55P03" | b"40001" | b"40P01" => AfterError::Repeat,
        _ if server.is_fatal() => AfterError::Reconnect,
        _ => AfterError::Fail,
    }
}

/// One stream's connection and buffers.
pub(crate) struct Stream<'a> {
    pub(crate) work: &'a Work<'a>,
    pub(crate) index: usize,
    /// Where it connects to.
    spec: &'a ConnSpec,
    /// The name of that node; empty when there is only one.
    node: &'a str,
    /// Where it may connect to instead when that node does not answer.
    entries: &'a [Place],
    session: Option<Session<HotConnection>>,
    encoder: Box<dyn Encoder + Send + 'a>,
    /// Failures of the chunk in hand that were not about the connection.
    attempts: u32,
    /// Connections lost over the chunk in hand.
    losses: u32,
    /// Since when no row has got through; `None` while they do.
    lost_at: Option<Instant>,
    /// The wait for another node that the server needs; `None` while all answer.
    away: Option<Waiting>,
    /// The next pause before connecting. Only rows that get through make it short again: a server that accepts connections and
    /// nothing else must not be queried in a busy loop.
    backoff: Duration,
}

impl<'a> Stream<'a> {
    /// A stream to a node; its name is empty when there is only one.
    pub(crate) fn at(work: &'a Work<'a>, index: usize, spec: &'a ConnSpec, node: &'a str) -> Stream<'a> {
        let encoder = work.content.encoder(dataset::MESSAGE_BYTES);
        Stream {
            work,
            index,
            spec,
            node,
            entries: &[],
            session: None,
            encoder,
            attempts: 0,
            losses: 0,
            lost_at: None,
            away: None,
            backoff: BACKOFF_FIRST,
        }
    }

    /// The same, which goes on at the next one of these when its own does not answer.
    pub(crate) fn entering(self, entries: &'a [Place]) -> Stream<'a> {
        Stream { entries, ..self }
    }

    /// Turns to the next entry, if there are several.
    fn turn_to_next(&mut self) {
        let at = self.entries.iter().position(|entry| entry.name == self.node);
        let next = at.and_then(|at| self.entries.iter().cycle().nth(at + 1));
        if let Some(entry) = next.filter(|_| self.entries.len() > 1) {
            (self.spec, self.node) = (&entry.spec, &entry.name);
        }
    }

    /// What people call it.
    fn name(&self) -> String {
        match self.node {
            "" => format!("stream {}", self.index),
            node => format!("stream {} ({node})", self.index),
        }
    }

    pub(crate) fn counters(&self) -> &'a StreamCounters {
        &self.work.counters.streams[self.index]
    }

    /// The connection. [`Stream::connect`] has made one.
    pub(crate) fn session(&mut self) -> &mut Session<HotConnection> {
        self.session.as_mut().expect("a stream connects before it loads")
    }

    /// Makes sure that there is a connection; a lost server is waited for until the time limit. `Ok(false)`: the stop was noticed.
    ///
    /// The first connection has no more reason to fail than a later one, as the coordinator has just made one to the same place, with
    /// one exception: a server that has no room for so many streams is reported at once.
    pub(crate) fn connect(&mut self) -> Result<bool, LoadError> {
        let mut attempts = 0u32;
        while self.session.is_none() {
            if self.lost_at.is_some() {
                if !self.pause(self.backoff) {
                    return Ok(false);
                }
                self.backoff = (self.backoff * 2).min(BACKOFF_MAX);
            }
            attempts += 1;
            let lost = self.work.node_lost;
            match (self.try_connect(), self.lost_at) {
                (Ok(session), lost_at) => {
                    self.session = Some(session);
                    self.counters().set_connected(true);
                    if let Some(lost_at) = lost_at {
                        let waited = lost_at.elapsed();
                        let message = format!("{} has reconnected", self.name());
                        self.report(record::event::RECONNECT, message, Some(waited));
                    }
                }
                (Err(error), None) if !error.may_come_back(lost) || error.is_no_room() => return Err(error),
                (Err(_), None) => self.lose_connection(),
                (Err(error), Some(lost_at)) => {
                    let waited = lost_at.elapsed();
                    if waited >= self.work.reconnect_limit || !error.may_come_back(lost) {
                        return Err(LoadError::ServerLost { waited, attempts, source: Box::new(error) });
                    }
                    self.turn_to_next();
                }
            }
        }
        Ok(true)
    }

    fn try_connect(&self) -> Result<Session<HotConnection>, LoadError> {
        let connection = crate::connections::hot(self.spec).map_err(LoadError::connect)?;
        let cancel = connection.cancel_token();
        *self.work.cancels[self.index].lock().unwrap_or_else(PoisonError::into_inner) = Some(cancel);
        let mut session = Session::new(connection);
        let mut settings = SESSION_SETTINGS.to_owned();
        if self.work.dataset.schema_name.is_ascii() {
            settings = format!("{settings}; {NO_CONVERSION}");
        }
        match session.execute(&settings) {
            Ok(_) => Ok(session),
            Err(error) => Err(self.fatal("setting up the session".into(), error)),
        }
    }

    /// Sleeps; `false` when the stop was noticed.
    pub(crate) fn pause(&self, pause: Duration) -> bool {
        let until = Instant::now() + pause;
        while Instant::now() < until {
            if self.work.stop_level() > StopLevel::Run {
                return false;
            }
            std::thread::sleep(STOP_LOOK.min(pause));
        }
        true
    }

    /// Generates rows and sends them into the COPY that is open, but for the last ones, which [`Stream::flush`] sends. `pace` decides
    /// whether a request to stop waits for the end of the transaction.
    pub(crate) fn send_rows(&mut self, mut rows: Numbers<'_>, pace: &mut Pace) -> Result<(), ChunkError> {
        loop {
            self.encoder.fill(&mut rows);
            if !self.encoder.is_full() {
                return Ok(());
            }
            self.flush(pace)?;
        }
    }

    /// Sends the rows that are encoded, if any.
    pub(crate) fn flush(&mut self, pace: &mut Pace) -> Result<(), ChunkError> {
        if self.encoder.is_empty() {
            return Ok(());
        }
        let rows = self.encoder.rows();
        pace.encoded(self.encoder.value_bytes());
        self.pass(pace)?;
        let session = self.session.as_mut().expect("a stream connects before it loads");
        session.send(self.encoder.message(), rows)?;
        self.encoder.clear();
        self.sent(rows, pace);
        Ok(())
    }

    /// Whether more may be sent, or the stop ends the transaction.
    fn pass(&self, pace: &Pace) -> Result<(), ChunkError> {
        match self.work.stop_level() {
            StopLevel::Run => Ok(()),
            StopLevel::Drain if pace.remaining() <= DRAIN => Ok(()),
            StopLevel::Drain | StopLevel::Now => Err(ChunkError::Stopped),
        }
    }

    /// Rows have got through.
    fn sent(&mut self, rows: u64, pace: &mut Pace) {
        self.counters().add_sent(rows);
        self.lost_at = None;
        self.backoff = BACKOFF_FIRST;
        pace.sent(rows);
    }

    /// The transaction in hand is over: committed with this many rows.
    pub(crate) fn committed(&mut self, rows: u64) {
        self.counters().commit(rows);
        self.done();
    }

    /// Notes that another loader has committed a chunk, of about this many rows.
    pub(crate) fn found(&mut self, rows: u64) {
        self.work.counters.rows_elsewhere.fetch_add(rows, Ordering::Relaxed);
        self.work.counters.chunks_elsewhere.fetch_add(1, Ordering::Relaxed);
        self.done();
    }

    /// A chunk is in the ledger, so the connection works.
    fn done(&mut self) {
        self.work.counters.chunks_done.fetch_add(1, Ordering::Relaxed);
        self.attempts = 0;
        self.losses = 0;
        if let Some(away) = self.away.take() {
            let message = format!("{}: all nodes answer again", self.name());
            self.report(record::event::RECONNECT, message, Some(away.lasted()));
        }
    }

    /// Waits for another node that the server needs. `Ok(false)`: the stop was noticed.
    fn await_node(&mut self, what: &str, error: SessionError) -> Result<bool, LoadError> {
        let limit = self.work.reconnect_limit;
        let error = self.fatal(what.to_owned(), error);
        let is_new = self.away.is_none();
        if is_new {
            let message = absent::message(&self.name(), &error.reason(), limit);
            self.report(record::event::ERROR, message, None);
        }
        let pause = self.away.get_or_insert_with(Waiting::begin).next(limit, error)?;
        // Meanwhile the progress counts the stream as one that cannot work.
        self.counters().set_connected(false);
        let goes_on = self.pause(pause);
        self.counters().set_connected(self.session.is_some());
        Ok(goes_on)
    }

    /// Undoes the transaction in hand after an error and decides what comes next. `Ok(true)`: again; `Ok(false)`: the stop was
    /// noticed. `what` names the chunk.
    pub(crate) fn recover(&mut self, error: ChunkError, what: &str) -> Result<bool, LoadError> {
        self.counters().rolled_back();
        self.encoder.reset();
        let error = match error {
            ChunkError::Stopped => {
                self.roll_back();
                return Ok(false);
            }
            ChunkError::Emptied => {
                self.roll_back();
                return Err(LoadError::Emptied);
            }
            ChunkError::Failed(error) => {
                self.roll_back();
                return Err(*error);
            }
            ChunkError::Session(error) => error,
        };
        if self.work.stop_level() == StopLevel::Now {
            // Whatever it is, the stop caused it or makes it irrelevant.
            self.roll_back();
            return Ok(false);
        }
        match fate(&error, self.work.node_lost) {
            AfterError::Fail => {
                self.roll_back();
                return Err(self.fatal(what.to_owned(), error));
            }
            AfterError::Repeat if self.attempts >= ATTEMPTS_MAX => {
                self.roll_back();
                let (attempts, doing) = (self.attempts, what.to_owned());
                return Err(LoadError::TooManyAttempts { doing, attempts, source: Box::new(error) });
            }
            AfterError::Repeat => {
                self.attempts += 1;
                self.report(record::event::ERROR, format!("{what} is repeated: {error}"), None);
                self.roll_back();
            }
            AfterError::Await => {
                self.roll_back();
                if !self.await_node(what, error)? {
                    return Ok(false);
                }
            }
            AfterError::Reconnect if self.losses >= LOSSES_MAX => {
                let (attempts, doing) = (self.losses, what.to_owned());
                return Err(LoadError::TooManyAttempts { doing, attempts, source: Box::new(error) });
            }
            AfterError::Reconnect => {
                self.losses += 1;
                self.report(
                    record::event::ERROR,
                    format!("{} lost the connection: {error}", self.name()),
                    None,
                );
                self.lose_connection();
            }
        }
        self.work.counters.retries.fetch_add(1, Ordering::Relaxed);
        Ok(true)
    }

    /// Rolls back on a connection that may live; a dead one is dropped, which rolls back as well.
    fn roll_back(&mut self) {
        if let Some(session) = &mut self.session
            && session.roll_back().is_err()
        {
            self.lose_connection();
        }
    }

    fn lose_connection(&mut self) {
        self.session = None;
        self.counters().set_connected(false);
        self.lost_at.get_or_insert_with(Instant::now);
    }

    /// The load's error for a session's error that ends it.
    fn fatal(&self, doing: String, error: SessionError) -> LoadError {
        match error {
            SessionError::Server(source) if source.sqlstate == SqlState::DISK_FULL => {
                let counters = self.work.counters;
                let done = counters.chunks_done.load(Ordering::Relaxed);
                let total = counters.chunks_total.load(Ordering::Relaxed);
                LoadError::DiskFull { done, total, source }
            }
            // The dataset's row is gone, and with it the chunk's right to exist.
            SessionError::Server(source) if &source.sqlstate.0 == b"23503" => LoadError::Restarted,
            SessionError::Server(source) => LoadError::Stream { doing, source },
            SessionError::Protocol(source) => LoadError::Protocol { doing, source },
            SessionError::RowCount { sent, counted } => LoadError::RowCount { doing, sent, counted },
            SessionError::Io(source) => LoadError::Lost { doing, source },
        }
    }

    /// Ends the load if a lock that this stream has met again and again is that of a session which cannot be a loader. Waits for others are not reported.
    pub(crate) fn refuse_non_loader(&self, contention: &mut Contention) -> Result<(), LoadError> {
        if contention.is_due() {
            // A server that does not answer now is the matter of the next chunk.
            let Ok(mut control) = crate::connections::control(self.spec) else { return Ok(()) };
            contention.look(&mut *control).map_err(|error| error.at(self.node))?;
        }
        Ok(())
    }

    pub(crate) fn report(&self, kind: &'static str, message: String, duration: Option<Duration>) {
        self.work.report(kind, message, duration);
    }

    /// Ends the stream in order.
    pub(crate) fn finish(mut self) {
        self.counters().set_connected(false);
        if let Some(session) = self.session.take() {
            session.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::backend::ProtocolError;
    use wire::error::ServerError;

    fn refused(severity: &str, code: &[u8; 5]) -> SessionError {
        SessionError::Server(Box::new(ServerError {
            severity: severity.into(),
            sqlstate: SqlState(*code),
            message: "no".into(),
            detail: None,
            hint: None,
            position: None,
        }))
    }

    #[test]
    fn errors_have_the_fate_that_cures_them() {
        for (error, expected) in [
            (SessionError::Io(io::ErrorKind::BrokenPipe.into()), AfterError::Reconnect),
            (refused("FATAL", b"57P01"), AfterError::Reconnect),
            (refused("FATAL", b"57P02"), AfterError::Reconnect),
            (refused("FATAL", b"57P03"), AfterError::Reconnect),
            (refused("FATAL", b"XX000"), AfterError::Reconnect),
            (refused("ERROR", b"08006"), AfterError::Await),
            (refused("ERROR", b"57P01"), AfterError::Await),
            (refused("ERROR", b"58030"), AfterError::Await),
            (refused("FATAL", b"08006"), AfterError::Reconnect),
            (refused("ERROR", b"25006"), AfterError::Reconnect),
            (refused("ERROR", b"40001"), AfterError::Repeat),
            (refused("ERROR", b"40P01"), AfterError::Repeat),
            (refused("ERROR", b"57014"), AfterError::Repeat),
            (refused("ERROR", b"55P03"), AfterError::Repeat),
            (refused("ERROR", b"53100"), AfterError::Fail),
            (refused("ERROR", b"23503"), AfterError::Fail),
            (refused("ERROR", b"23514"), AfterError::Fail),
            (refused("ERROR", b"42P01"), AfterError::Fail),
            (SessionError::RowCount { sent: 2, counted: 1 }, AfterError::Fail),
            (SessionError::Protocol(ProtocolError::Unexpected { tag: b'?' }), AfterError::Fail),
        ] {
            assert_eq!(fate(&error, &["58030"]), expected, "{error}");
        }
    }

    #[test]
    fn a_copy_names_its_columns() {
        let spec = data::ycsb::Spec {
            seed: 1,
            key_order: data::ycsb::KeyOrder::Scattered,
            compressible: data::ycsb::Compressible::NONE,
        };
        let ycsb = crate::ycsb::Ycsb::new(1, spec);
        let table = &dataset::Dataset::tables(&ycsb)[0];
        let command = copy_command("\"public\".\"usertable_p3\"", table, ", freeze");
        assert!(command.starts_with("copy \"public\".\"usertable_p3\" (ycsb_key, field0, "), "{command}");
        assert!(command.ends_with("field9) from stdin (format binary, freeze)"), "{command}");
    }
}

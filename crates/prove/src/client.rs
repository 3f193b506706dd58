//! A session that returns everything a server sends: command tags and warnings, not only rows and errors.
//!
//! Most drivers drop both, and both decide the outcome of a COMMIT: the COMMIT of a failed block returns the tag `ROLLBACK` and no error, and a
//! cancelled wait for a standby is a success with a warning. So proofs use this client, which is slow and blocking, and
//! keeps everything.

mod stuck;

use std::io::{self, Read, Write};
use std::time::Duration;

use connect::hot::{self, CancelToken, HotConnection, TextRow};
use connect::{ConnSpec, ConnectError};
use engines::directions::QueryError;
use wire::backend::{self, TransactionStatus, tag};
use wire::error::ServerError;
use wire::frontend;

/// How much is read at once.
const READ_BYTES: usize = 16 * 1024;

/// A connected session.
#[derive(Debug)]
pub struct Client {
    connection: HotConnection,
    /// How another session of the same server can be had.
    spec: ConnSpec,
    /// Received bytes that were not consumed yet.
    received: Vec<u8>,
}

/// One statement's part of a reply.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Done {
    /// The command tag: `INSERT 0 1`, `COMMIT`, `ROLLBACK`.
    pub tag: String,
    /// Its rows, in text form.
    pub rows: Vec<TextRow>,
}

/// Everything a server sent in reply to one request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Reply {
    /// The statements that were done.
    pub done: Vec<Done>,
    /// The error that ended the request.
    pub error: Option<ServerError>,
    /// Notices and warnings.
    pub notices: Vec<ServerError>,
    /// Transaction status at the end; `None` when there was no end.
    pub status: Option<TransactionStatus>,
}

impl Reply {
    /// The command tag of the last statement; empty if there was none.
    pub fn tag(&self) -> &str {
        self.done.last().map_or("", |done| done.tag.as_str())
    }

    /// The SQLSTATE of the error.
    pub fn sqlstate(&self) -> Option<&str> {
        self.error.as_ref().map(|error| error.sqlstate.as_str())
    }

    /// The rows of all statements.
    pub(crate) fn all_rows(&self) -> impl Iterator<Item = &TextRow> {
        self.done.iter().flat_map(|done| &done.rows)
    }

    /// One of these rows with commas between its columns, as `1,10`; NULL is empty.
    pub fn text(&self, row: usize) -> Option<String> {
        self.all_rows().nth(row).map(row_text)
    }

    /// The last statement's rows.
    pub fn rows(&self) -> &[TextRow] {
        self.done.last().map_or(&[], |done| &done.rows)
    }

    /// The single value of the last statement, as text; `None` for NULL, and without a row.
    pub fn value(&self) -> Option<String> {
        text(self.rows().first()?.first()?)
    }

    /// The single value of the last statement, as a number.
    pub fn number(&self) -> Option<i64> {
        number(self.rows().first()?.first()?)
    }
}

/// A column as a number.
pub fn number(column: &Option<Vec<u8>>) -> Option<i64> {
    std::str::from_utf8(column.as_deref()?).ok()?.parse().ok()
}

/// A row's columns with commas between; NULL is empty.
pub(crate) fn row_text(row: &TextRow) -> String {
    row.iter().map(|column| text(column).unwrap_or_default()).collect::<Vec<_>>().join(",")
}

/// A column as text.
pub fn text(column: &Option<Vec<u8>>) -> Option<String> {
    column.as_ref().map(|bytes| String::from_utf8_lossy(bytes).into_owned())
}

/// The connection broke, or the server sent nothing for too long, before the reply was complete.
#[derive(Debug, thiserror::Error)]
#[error("{}{cause}", if is_silent(cause) { "" } else { "the connection broke: " })]
pub struct Broken {
    /// Whether the whole request had been handed to the kernel: then the server may have read it.
    pub was_sent: bool,
    /// What had come by then.
    pub reply: Box<Reply>,
    /// What its session was waiting for in the server, and what to do about it, where that was looked at.
    pub waits: Option<String>,
    /// Why.
    #[source]
    pub cause: io::Error,
}

/// Whether the connection stands, and only no answer has come.
fn is_silent(cause: &io::Error) -> bool {
    cause.kind() == io::ErrorKind::TimedOut
}

/// Why a request that must succeed failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The connection broke.
    #[error(transparent)]
    Broken(#[from] Broken),
    /// The server refused.
    #[error("{error}, at: {sql}")]
    Refused {
        /// Its words.
        #[source]
        error: Box<ServerError>,
        /// The statement.
        sql: String,
    },
    /// No server could be reached.
    #[error(transparent)]
    Connect(#[from] ConnectError),
}

impl QueryError for ClientError {
    fn refusal(&self) -> Option<String> {
        match self {
            ClientError::Refused { error, .. } if &error.sqlstate.0 == b"42501" => {
                Some(error.message.clone())
            }
            _ => None,
        }
    }
}

impl ClientError {
    /// What the user can type next.
    pub fn hint(&self) -> Option<String> {
        match self {
            ClientError::Connect(error) => error.hint(),
            ClientError::Refused { error, sql }
                if &error.sqlstate.0 == b"42501" && sql.starts_with("create schema") =>
            {
                Some("the tables of a proof stand in a schema of their own: GRANT CREATE ON DATABASE ... TO ..., or another role (-U)".to_owned())
            }
            ClientError::Refused { error, .. } if &error.sqlstate.0 == b"42501" && error.hint.is_none() => Some(
                "grant the role what the statement needs (a proof makes, fills and drops its own tables), or connect as another one (-U)".to_owned(),
            ),
            // The server's own words about it have no hint.
            ClientError::Refused { error, .. } if &error.sqlstate.0 == b"25006" => Some(READ_ONLY.to_owned()),
            ClientError::Refused { error, .. } => error.hint.clone(),
            ClientError::Broken(broken) if is_silent(&broken.cause) => {
                Some(broken.waits.clone().unwrap_or_else(|| WHAT_IT_WAITS_FOR.to_owned()))
            }
            ClientError::Broken(_) => None,
        }
    }
}

/// What to do where sessions only read.
const READ_ONLY: &str = "connect to a server that takes writes; if the database or the role sets default_transaction_read_only: \
    PGOPTIONS='-c default_transaction_read_only=off' in front of the command";

/// How to see why a statement does not return, where that could not be looked at: behind a pooler, say.
const WHAT_IT_WAITS_FOR: &str = "look at what its session waits for: select pid, wait_event_type, wait_event, pg_blocking_pids(pid), left(query, 60) as \
    query from \
    pg_stat_activity where state <> 'idle'; with IPC and SyncRep a commit waits for a synchronous standby that is away (synchronous_standby_names), with \
    Lock for \
    another session";

/// The time limit for one of several hosts: after it the next one is tried.
const HOST_TIMEOUT_MAX: Duration = Duration::from_secs(2);
/// Its minimum: a distant host has to answer several times.
const HOST_TIMEOUT_MIN: Duration = Duration::from_millis(250);

/// How long a connection to one of so many hosts may take, when all of them have `timeout`.
fn host_timeout(hosts: usize, timeout: Duration) -> Duration {
    match u32::try_from(hosts) {
        Ok(0 | 1) => timeout,
        Ok(hosts) => timeout.min((timeout / hosts).clamp(HOST_TIMEOUT_MIN, HOST_TIMEOUT_MAX)),
        Err(_) => HOST_TIMEOUT_MIN,
    }
}

impl Client {
    /// Connects. A server that sends nothing for `timeout` counts as unreachable. Several hosts share that time, so that a dead one does not use up the
    /// time of the others.
    ///
    /// # Errors
    /// As [`hot::connect`].
    pub fn connect(spec: &ConnSpec, timeout: Duration) -> Result<Client, ConnectError> {
        let mut spec = spec.pinned();
        let limit = host_timeout(spec.hosts.len(), timeout);
        spec.connect_timeout = Some(spec.connect_timeout.map_or(limit, |other| other.min(limit)));
        let client = Client::of(hot::connect(&spec)?, &spec);
        // A socket that accepts no timeout could block until the server ends.
        let _ = client.connection.socket().set_timeout(Some(timeout));
        Ok(client)
    }

    /// Another session of the same server, with the same settings.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub(crate) fn beside(&self, timeout: Duration) -> Result<Client, ConnectError> {
        Client::connect(&self.spec, timeout)
    }

    /// On an existing connection that was made by `spec`, without a time limit: the server may be waiting for a lock.
    pub fn of(connection: HotConnection, spec: &ConnSpec) -> Client {
        let spec = spec.clone().with_only_host(connection.host_index());
        Client { connection, spec, received: Vec::new() }
    }

    /// Changes the time limit for the server; `None`: no limit.
    pub fn set_timeout(&self, timeout: Option<Duration>) {
        let _ = self.connection.socket().set_timeout(timeout);
    }

    /// A setting that the server reports.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.connection.parameters().get(name).map(String::as_str)
    }

    /// The host that answered, in words.
    pub fn host(&self) -> String {
        self.connection.host().to_string()
    }

    /// Which of the hosts of its specification it is, from 0.
    pub fn host_index(&self) -> usize {
        self.connection.host_index()
    }

    /// A handle that cancels a running statement.
    pub fn cancel_token(&self) -> CancelToken {
        self.connection.cancel_token()
    }

    /// Sends SQL by the simple protocol (several statements may be separated by semicolons) and reads the whole reply. A refusal of the server is part of the
    /// reply.
    ///
    /// # Errors
    /// [`Broken`]: the session is over then.
    pub fn request(&mut self, sql: &str) -> Result<Reply, Broken> {
        self.send(sql)?;
        self.receive()
    }

    /// The first half of [`Client::ask`].
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub fn send(&mut self, sql: &str) -> Result<(), Broken> {
        let mut out = Vec::new();
        frontend::query(&mut out, sql);
        let sent = self.connection.write_all(&out).and_then(|()| self.connection.flush());
        sent.map_err(|cause| Broken { was_sent: false, reply: Box::default(), waits: None, cause })
    }

    /// The second half of [`Client::ask`].
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub fn receive(&mut self) -> Result<Reply, Broken> {
        let mut reply = Reply::default();
        loop {
            match read_reply(&mut self.received, &mut reply) {
                Ok(true) => return Ok(reply),
                Ok(false) => {}
                Err(cause) => {
                    return Err(Broken { was_sent: true, reply: Box::new(reply), waits: None, cause });
                }
            }
            let start = self.received.len();
            self.received.resize(start + READ_BYTES, 0);
            let result = self.connection.read(&mut self.received[start..]);
            self.received.truncate(start + result.as_ref().copied().unwrap_or(0));
            let cause = match result {
                Ok(0) => io::ErrorKind::UnexpectedEof.into(),
                Ok(_) => continue,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                // The system's words for it are "Resource temporarily unavailable".
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    io::Error::new(io::ErrorKind::TimedOut, "no answer within the time limit")
                }
                Err(error) => error,
            };
            return Err(Broken { was_sent: true, reply: Box::new(reply), waits: None, cause });
        }
    }

    /// The same for statements that must succeed: a refusal is an error. When no answer comes, it is looked up what the session waits for, which can
    /// take some seconds more.
    ///
    /// # Errors
    /// [`ClientError::Refused`] and [`ClientError::Broken`].
    pub fn execute(&mut self, sql: &str) -> Result<Reply, ClientError> {
        let reply = self.request(sql).map_err(|mut broken| {
            if is_silent(&broken.cause) {
                broken.waits = stuck::why(&self.spec, self.cancel_token().process_id(), sql);
            }
            broken
        })?;
        match reply.error {
            Some(error) => Err(ClientError::Refused { error: Box::new(error), sql: first_words(sql) }),
            None => Ok(reply),
        }
    }
}

/// The beginning of a statement, for a message.
fn first_words(sql: &str) -> String {
    const CHARS_MAX: usize = 120;
    let mut words: String = sql.split_whitespace().collect::<Vec<_>>().join(" ");
    if words.chars().count() > CHARS_MAX {
        words = words.chars().take(CHARS_MAX).chain("...".chars()).collect();
    }
    words
}

/// Takes the whole messages off the front of `received` and adds them to `reply`; true when it is complete. A FATAL error completes it, too: nothing
/// follows it but the end.
pub(crate) fn read_reply(received: &mut Vec<u8>, reply: &mut Reply) -> io::Result<bool> {
    let mut taken = 0;
    let mut rows = std::mem::take(&mut reply.done).into_iter().collect::<Vec<Done>>();
    // The running statement is the last entry without a tag.
    let mut complete = false;
    while !complete {
        let Some((frame, bytes)) = backend::frame(&received[taken..]).map_err(io::Error::other)? else {
            break;
        };
        match frame.tag {
            tag::DATA_ROW => {
                let mut columns = backend::Columns::new(frame.body).map_err(io::Error::other)?;
                let mut row = Vec::new();
                while let Some(column) = columns.next_column().map_err(io::Error::other)? {
                    row.push(column.map(<[u8]>::to_vec));
                }
                match rows.last_mut() {
                    Some(last) if last.tag.is_empty() => last.rows.push(row),
                    _ => rows.push(Done { tag: String::new(), rows: vec![row] }),
                }
            }
            tag::COMMAND_COMPLETE => {
                let words = String::from_utf8_lossy(backend::command_tag(frame.body)).into_owned();
                match rows.last_mut() {
                    Some(last) if last.tag.is_empty() => last.tag = words,
                    _ => rows.push(Done { tag: words, rows: Vec::new() }),
                }
            }
            tag::ERROR_RESPONSE => {
                let error = ServerError::parse(frame.body);
                reply.error.get_or_insert(error);
            }
            tag::NOTICE_RESPONSE => reply.notices.push(ServerError::parse(frame.body)),
            tag::READY_FOR_QUERY => {
                reply.status = frame.body.first().copied().and_then(TransactionStatus::from_byte);
                complete = true;
            }
            tag::COPY_IN_RESPONSE | tag::COPY_OUT_RESPONSE => {
                return Err(io::Error::other("COPY is not possible here"));
            }
            _ => {}
        }
        taken += bytes;
    }
    received.drain(..taken);
    // Rows of a statement that ended in an error are not a result.
    if complete {
        rows.retain(|done| !done.tag.is_empty());
    }
    reply.done = rows;
    Ok(complete)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_that_only_reads_has_a_way_out() {
        let error =
            ServerError::parse(b"C25006\0Mcannot execute CREATE SCHEMA in a read-only transaction\0\0");
        let refused = ClientError::Refused { error: Box::new(error), sql: "create schema".to_owned() };
        assert!(refused.hint().is_some_and(|hint| hint.contains("default_transaction_read_only=off")));
    }
}

//! One session that is asked statement by statement, with everything that the server says: rows, command tags, warnings, errors.
//!
//! A COMMIT that the server turned into a rollback comes back without an error, only its tag says `ROLLBACK`; and one whose synchronous wait was cancelled
//! comes back with a warning. Whoever judges promises has to see both, so the libraries for everyday use will not do here.
//!
//! [`Session`] puts the connection on a thread of its own, so that a statement can wait for a lock while others go on.

use std::io::{self, Read, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use target::hot::{self, CancelToken, HotConnection, TextRow};
use target::{ConnSpec, ConnectError};
use wire::backend::{self, Frames, ReplyScanner, Scan, tag};
use wire::error::ServerError;
use wire::frontend;

/// How much is read at once.
const READ_BYTES: usize = 8 * 1024;

/// All that came back.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Reply {
    /// Rows of all statements, in text form.
    pub rows: Vec<TextRow>,
    /// Command tags, for example `UPDATE 1`.
    pub tags: Vec<String>,
    /// Notices and warnings.
    pub notices: Vec<ServerError>,
    /// The error that ended it.
    pub error: Option<ServerError>,
}

impl Reply {
    /// The last command tag.
    pub fn tag(&self) -> &str {
        self.tags.last().map_or("", String::as_str)
    }

    /// The SQLSTATE of the error.
    pub fn sqlstate(&self) -> Option<&str> {
        self.error.as_ref().map(|error| error.sqlstate.as_str())
    }

    /// A row's columns with commas between, as `1,10`; NULL is empty.
    pub fn text(&self, row: usize) -> Option<String> {
        let column = |column: &Option<Vec<u8>>| {
            column.as_deref().map(String::from_utf8_lossy).unwrap_or_default().into_owned()
        };
        self.rows.get(row).map(|row| row.iter().map(column).collect::<Vec<_>>().join(","))
    }
}

/// Sends one simple query and reads its whole reply.
///
/// # Errors
/// When the connection breaks. What the server refuses is part of the reply.
pub fn ask(connection: &mut HotConnection, sql: &str) -> io::Result<Reply> {
    let mut out = Vec::new();
    frontend::query(&mut out, sql);
    connection.write_all(&out)?;
    connection.flush()?;
    let mut scanner = ReplyScanner::default();
    let mut bytes = Vec::new();
    let end = loop {
        match scanner.scan(&bytes).map_err(io::Error::other)? {
            Scan::Complete { end, .. } => break end,
            Scan::Copy { .. } => return Err(io::Error::other("COPY is no query for this place")),
            Scan::Incomplete { .. } => {
                let start = bytes.len();
                bytes.resize(start + READ_BYTES, 0);
                let count = connection.read(&mut bytes[start..])?;
                bytes.truncate(start + count);
                if count == 0 {
                    return Err(last_words(&bytes)
                        .map_or_else(|| io::ErrorKind::UnexpectedEof.into(), io::Error::other));
                }
            }
        }
    };
    let mut reply = Reply::default();
    for frame in Frames::new(&bytes[..end]) {
        match frame.tag {
            tag::ERROR_RESPONSE => reply.error = Some(ServerError::parse(frame.body)),
            tag::NOTICE_RESPONSE => reply.notices.push(ServerError::parse(frame.body)),
            tag::COMMAND_COMPLETE => {
                let text = String::from_utf8_lossy(backend::command_tag(frame.body)).into_owned();
                reply.tags.push(text);
            }
            tag::DATA_ROW => {
                let mut columns = backend::Columns::new(frame.body).map_err(io::Error::other)?;
                let mut row = TextRow::new();
                while let Some(column) = columns.next_column().map_err(io::Error::other)? {
                    row.push(column.map(<[u8]>::to_vec));
                }
                reply.rows.push(row);
            }
            _ => {}
        }
    }
    Ok(reply)
}

/// What a server said before it hung up.
fn last_words(bytes: &[u8]) -> Option<ServerError> {
    Frames::new(bytes)
        .filter(|frame| frame.tag == tag::ERROR_RESPONSE)
        .map(|frame| ServerError::parse(frame.body))
        .last()
}

/// A session on a thread of its own.
#[derive(Debug)]
pub struct Session {
    statements: Option<Sender<String>>,
    replies: Receiver<io::Result<Reply>>,
    thread: Option<JoinHandle<()>>,
    cancel: CancelToken,
    process_id: u32,
    is_waiting: bool,
}

impl Session {
    /// Connects.
    ///
    /// # Errors
    /// As for any connection; also when the system refuses a thread.
    pub fn open(spec: &ConnSpec) -> Result<Session, TalkError> {
        let mut connection = hot::connect(spec)?;
        let (cancel, process_id) = (connection.cancel_token(), connection.process_id());
        let (statements, to_do) = channel::<String>();
        let (done, replies) = channel();
        let work = move || {
            for sql in to_do {
                let reply = ask(&mut connection, &sql);
                let is_broken = reply.is_err();
                if done.send(reply).is_err() || is_broken {
                    break;
                }
            }
        };
        let thread = std::thread::Builder::new().name("session".into()).spawn(work)?;
        Ok(Session {
            statements: Some(statements),
            replies,
            thread: Some(thread),
            cancel,
            process_id,
            is_waiting: false,
        })
    }

    /// The server's process.
    pub fn process_id(&self) -> u32 {
        self.process_id
    }

    /// Whether a statement has been sent whose reply has not been taken.
    pub fn is_waiting(&self) -> bool {
        self.is_waiting
    }

    /// Sends a statement without waiting.
    ///
    /// # Errors
    /// When the connection is broken.
    pub fn send(&mut self, sql: &str) -> io::Result<()> {
        let sent = self.statements.as_ref().is_some_and(|statements| statements.send(sql.to_owned()).is_ok());
        self.is_waiting = sent;
        if sent { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
    }

    /// The reply, if it comes within this time; `None`: not yet.
    ///
    /// # Errors
    /// When the connection breaks.
    pub fn reply_within(&mut self, time: Duration) -> io::Result<Option<Reply>> {
        let reply = match self.replies.recv_timeout(time) {
            Ok(reply) => reply,
            Err(RecvTimeoutError::Timeout) => return Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(io::ErrorKind::BrokenPipe.into()),
        };
        self.is_waiting = false;
        reply.map(Some)
    }

    /// Sends a statement and waits for its reply.
    ///
    /// # Errors
    /// When the connection breaks, or the time is over.
    pub fn ask(&mut self, sql: &str, limit: Duration) -> io::Result<Reply> {
        self.send(sql)?;
        self.reply_within(limit)?.ok_or_else(|| io::ErrorKind::TimedOut.into())
    }

    /// Ends the running statement from outside.
    ///
    /// # Errors
    /// When the server cannot be reached.
    pub fn cancel(&self) -> io::Result<()> {
        self.cancel.cancel()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.statements = None;
        if self.is_waiting {
            // Otherwise the thread would wait as long as the statement does.
            let _ = self.cancel.cancel();
            let _ = self.replies.recv_timeout(Duration::from_secs(1));
        }
        if let Some(thread) = self.thread.take().filter(JoinHandle::is_finished) {
            let _ = thread.join();
        }
    }
}

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
pub enum TalkError {
    /// No connection.
    #[error("cannot connect to the target")]
    Connect(#[from] ConnectError),
    /// No thread, or the connection broke.
    #[error("the session broke")]
    Io(#[from] io::Error),
}

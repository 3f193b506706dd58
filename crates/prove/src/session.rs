//! A [`Client`] on a separate thread, so that a statement can wait for a lock while others continue.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use connect::hot::{self, CancelToken};
use connect::{ConnSpec, ConnectError};

pub use crate::client::Reply;

use crate::client::{Broken, Client};

/// The server's last message before it closed the connection, or why the connection broke.
fn last_words(broken: Broken) -> io::Error {
    match broken.reply.error {
        Some(error) => io::Error::other(error),
        None => broken.cause,
    }
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
    pub fn open(spec: &ConnSpec) -> Result<Session, SessionError> {
        let spec = spec.pinned();
        let mut connection = hot::connect(&spec)?;
        let process_id = connection.backend_pid().map_err(io::Error::other)?;
        let mut client = Client::of(connection, &spec);
        let cancel = client.cancel_token();
        let (statements, to_do) = channel::<String>();
        let (done, replies) = channel();
        let work = move || {
            for sql in to_do {
                let reply = client.request(&sql).map_err(last_words);
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
    pub(crate) fn is_waiting(&self) -> bool {
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
    pub(crate) fn reply_within(&mut self, time: Duration) -> io::Result<Option<Reply>> {
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
    pub fn request(&mut self, sql: &str, limit: Duration) -> io::Result<Reply> {
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
pub enum SessionError {
    /// No connection.
    #[error("cannot connect to the target")]
    Connect(#[from] ConnectError),
    /// No thread, or the connection broke.
    #[error("the session broke")]
    Io(#[from] io::Error),
}

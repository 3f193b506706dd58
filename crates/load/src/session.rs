//! One loading connection: simple queries and COPY over a blocking socket, with our own framing.
//!
//! COPY commands are pipelined: [`Session::begin_copy`] does not wait for the server's permission, and the next command follows the last
//! row of the previous one. That is within the protocol: a server that refuses a COPY drops the data that was already under way ("a
//! frontend still sending after receipt of a COPY failure", `src/backend/tcop/postgres.c`), and each command answers for itself in
//! order. So a chunk over 70 partitions costs the round trips of two commands, not of 140. What bounds it: replies that are not read
//! must never fill the sockets' buffers, or both sides wait for each other; hence [`REPLIES_OWED_MAX`].

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::ops::Range;

use wire::backend::{self, ProtocolError, TransactionStatus, tag};
use wire::copy;
use wire::error::ServerError;
use wire::frontend;

/// Replies that may be outstanding while data is sent. One is about 60 bytes, so all fit a small socket buffer.
pub(crate) const REPLIES_OWED_MAX: usize = 32;

/// First size of the receive buffer; a longer message makes it grow.
const INPUT_BYTES: usize = 8 << 10;

/// What a stream needs from its connection.
pub(crate) trait Socket: Read + Write {
    /// Whether something can be read without waiting.
    fn readable(&self) -> io::Result<bool>;
}

/// Why a statement or COPY failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionError {
    /// The connection is gone.
    #[error("the connection to the server was lost")]
    Io(#[source] io::Error),
    /// The server refused; the connection lives unless the error is fatal.
    #[error(transparent)]
    Server(Box<ServerError>),
    /// Not the protocol: the connection is of no use any more.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// The server took another number of rows than it was sent.
    #[error("{sent} rows were sent, but the server counted {counted}")]
    RowCount { sent: u64, counted: u64 },
}

impl SessionError {
    /// Whether the connection can still be used.
    pub(crate) fn connection_lives(&self) -> bool {
        match self {
            SessionError::Server(error) => !error.is_fatal() && !error.sqlstate.ends_session(),
            SessionError::RowCount { .. } => true,
            SessionError::Io(_) | SessionError::Protocol(_) => false,
        }
    }
}

/// Statements of one message whose row counts are kept one by one.
pub(crate) const COUNTS_MAX: usize = 4;

/// The end of one command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Reply {
    /// Rows of the last command tag that has a number.
    pub(crate) rows: Option<u64>,
    /// Rows of the first [`COUNTS_MAX`] command tags that have a number; 0 where there were fewer.
    pub(crate) counts: [u64; COUNTS_MAX],
    pub(crate) status: TransactionStatus,
}

/// A connection with its buffers.
#[derive(Debug)]
pub(crate) struct Session<S> {
    socket: S,
    input: Vec<u8>,
    /// The unread part of `input`.
    start: usize,
    end: usize,
    out: Vec<u8>,
    /// The reply that is being read.
    partial: Partial,
    /// Rows sent by each ended COPY whose reply is not read yet.
    owed: VecDeque<u64>,
    /// Rows sent by the COPY that is open; `None`: none is.
    open_copy: Option<u64>,
}

/// What was seen of a reply that is not complete.
#[derive(Debug, Default)]
struct Partial {
    rows: Option<u64>,
    counts: [u64; COUNTS_MAX],
    counted: usize,
    /// The first error; later ones follow from it.
    error: Option<Box<ServerError>>,
}

impl<S: Socket> Session<S> {
    /// Takes a connection that is ready for queries.
    pub(crate) fn new(socket: S) -> Session<S> {
        Session {
            socket,
            input: vec![0; INPUT_BYTES],
            start: 0,
            end: 0,
            out: Vec::with_capacity(INPUT_BYTES),
            partial: Partial::default(),
            owed: VecDeque::with_capacity(REPLIES_OWED_MAX + 1),
            open_copy: None,
        }
    }

    /// Runs one or several statements and waits for the end.
    pub(crate) fn execute(&mut self, sql: &str) -> Result<Reply, SessionError> {
        debug_assert!(self.owed.is_empty() && self.open_copy.is_none(), "end and settle copies first");
        self.out.clear();
        frontend::query(&mut self.out, sql);
        self.flush()?;
        self.reply()
    }

    /// Starts a `COPY ... FROM STDIN (FORMAT binary)` without waiting.
    pub(crate) fn begin_copy(&mut self, sql: &str) -> Result<(), SessionError> {
        debug_assert!(self.open_copy.is_none(), "one COPY at a time");
        self.out.clear();
        frontend::query(&mut self.out, sql);
        copy::data(&mut self.out, &copy::HEADER);
        self.open_copy = Some(0);
        self.flush()
    }

    /// Sends one CopyData message with this many rows, unless the server has refused this or an earlier COPY by now.
    pub(crate) fn send(&mut self, message: &[u8], rows: u64) -> Result<(), SessionError> {
        self.poll_replies()?;
        if let Some(sent) = &mut self.open_copy {
            *sent += rows;
        }
        let sent = self.socket.write_all(message);
        self.sent(sent)
    }

    /// Ends the COPY that is open, without waiting; returns the rows sent.
    pub(crate) fn end_copy(&mut self) -> Result<u64, SessionError> {
        let sent = self.open_copy.take().unwrap_or_default();
        self.out.clear();
        copy::data(&mut self.out, &copy::TRAILER);
        frontend::copy_done(&mut self.out);
        self.owed.push_back(sent);
        self.flush()?;
        self.settle(REPLIES_OWED_MAX)?;
        Ok(sent)
    }

    /// Waits for the replies of all ended COPYs but this many, and checks that every row was counted.
    pub(crate) fn settle(&mut self, owed_max: usize) -> Result<(), SessionError> {
        while self.owed.len() > owed_max {
            let reply = self.reply();
            self.copy_ended(reply)?;
        }
        Ok(())
    }

    /// Gives up whatever is under way and rolls back. Afterwards the session is as good as new, or the error reports that its connection
    /// is not.
    pub(crate) fn roll_back(&mut self) -> Result<(), SessionError> {
        self.out.clear();
        let mut replies = self.owed.len() + 1;
        self.owed.clear();
        if self.open_copy.take().is_some() {
            frontend::copy_fail(&mut self.out, "the load was stopped or begins this chunk again");
            replies += 1;
        }
        frontend::query(&mut self.out, "rollback");
        self.flush()?;
        for _ in 0..replies {
            match self.reply() {
                // Errors of the commands that are given up are no news.
                Ok(_) => {}
                Err(error) if error.connection_lives() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Ends the session. Errors do not matter.
    pub(crate) fn close(mut self) {
        self.out.clear();
        frontend::terminate(&mut self.out);
        let _ = self.socket.write_all(&self.out);
    }

    fn flush(&mut self) -> Result<(), SessionError> {
        let sent = self.socket.write_all(&self.out);
        self.sent(sent)
    }

    /// After a failed write: a server that shuts down reports it before it closes the connection, and that is the better message.
    fn sent(&mut self, result: io::Result<()>) -> Result<(), SessionError> {
        let Err(io) = result.and_then(|()| self.socket.flush()) else { return Ok(()) };
        loop {
            match self.reply() {
                Err(SessionError::Server(error)) if error.is_fatal() => {
                    return Err(SessionError::Server(error));
                }
                Err(SessionError::Io(_) | SessionError::Protocol(_)) => return Err(SessionError::Io(io)),
                Ok(_) | Err(_) => {}
            }
        }
    }

    /// Reads what the server has sent so far, without waiting.
    fn poll_replies(&mut self) -> Result<(), SessionError> {
        loop {
            while let Some((tag, body)) = self.buffered_message()? {
                if let Some(reply) = self.take(tag, body)? {
                    self.copy_ended(reply)?;
                }
            }
            // The end of a reply with an error follows at once.
            if self.partial.error.is_none() && !self.socket.readable().map_err(SessionError::Io)? {
                return Ok(());
            }
            self.receive()?;
        }
    }

    /// Judges the reply of the oldest COPY.
    fn copy_ended(&mut self, reply: Result<Reply, SessionError>) -> Result<(), SessionError> {
        // A server that answers the COPY that is still open has refused it; there is nothing left to end.
        let sent = self.owed.pop_front().or_else(|| self.open_copy.take()).unwrap_or_default();
        let counted = reply?.rows.unwrap_or_default();
        if counted == sent { Ok(()) } else { Err(SessionError::RowCount { sent, counted }) }
    }

    /// Reads until ReadyForQuery. The first error is the reply's error; the rest of the reply is read all the same.
    fn reply(&mut self) -> Result<Reply, SessionError> {
        loop {
            while let Some((tag, body)) = self.buffered_message()? {
                if let Some(reply) = self.take(tag, body)? {
                    return reply;
                }
            }
            if let Err(lost) = self.receive() {
                return Err(self.partial.error.take().map_or(lost, SessionError::Server));
            }
        }
    }

    /// Takes one message into account; the reply when it ends here. An error of ours (not the reply's) ends the session.
    fn take(
        &mut self,
        tag: u8,
        body: Range<usize>,
    ) -> Result<Option<Result<Reply, SessionError>>, SessionError> {
        let body = &self.input[body];
        match tag {
            tag::ERROR_RESPONSE => {
                let refused = ServerError::parse(body);
                if refused.is_fatal() {
                    return Err(SessionError::Server(Box::new(refused)));
                }
                self.partial.error.get_or_insert_with(|| Box::new(refused));
            }
            tag::COMMAND_COMPLETE => {
                if let Some(rows) = backend::rows_affected(body) {
                    self.partial.rows = Some(rows);
                    if let Some(count) = self.partial.counts.get_mut(self.partial.counted) {
                        *count = rows;
                        self.partial.counted += 1;
                    }
                }
            }
            tag::READY_FOR_QUERY => {
                let status = body.first().copied().and_then(TransactionStatus::from_byte);
                let status = status.ok_or(ProtocolError::Body { tag })?;
                let Partial { rows, counts, error, .. } = std::mem::take(&mut self.partial);
                return Ok(Some(match error {
                    Some(error) => Err(SessionError::Server(error)),
                    None => Ok(Reply { rows, counts, status }),
                }));
            }
            tag::COPY_IN_RESPONSE
            | tag::ROW_DESCRIPTION
            | tag::DATA_ROW
            | tag::EMPTY_QUERY_RESPONSE
            | tag::NOTICE_RESPONSE
            | tag::NOTIFICATION_RESPONSE
            | tag::PARAMETER_STATUS => {}
            tag => return Err(ProtocolError::Unexpected { tag }.into()),
        }
        Ok(None)
    }

    /// The next message that is there as a whole: its tag, and where its body lies in `input`.
    fn buffered_message(&mut self) -> Result<Option<(u8, Range<usize>)>, SessionError> {
        let Some((frame, bytes)) = backend::frame(&self.input[self.start..self.end])? else {
            return Ok(None);
        };
        let (tag, body_bytes) = (frame.tag, frame.body.len());
        self.start += bytes;
        Ok(Some((tag, self.start - body_bytes..self.start)))
    }

    /// Waits for bytes of the server.
    fn receive(&mut self) -> Result<(), SessionError> {
        if self.start > 0 {
            self.input.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.input.len() {
            self.input.resize(self.input.len() * 2, 0);
        }
        loop {
            match self.socket.read(&mut self.input[self.end..]) {
                Ok(0) => return Err(SessionError::Io(io::ErrorKind::UnexpectedEof.into())),
                Ok(bytes) => {
                    self.end += bytes;
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(SessionError::Io(error)),
            }
        }
    }
}

#[cfg(test)]
mod tests;

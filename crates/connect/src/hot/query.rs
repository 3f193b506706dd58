//! Queries by the simple protocol, before the real work of a connection.

use std::io::{self, Read, Write};

use wire::backend::{self, Frames, tag};
use wire::error::ServerError;
use wire::frontend;

use super::{HotConnection, READ_BYTES};

/// Why a [`HotConnection::simple_query`] failed.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// The server refused. The session continues, unless the error is fatal.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// The connection is broken.
    #[error("the connection broke")]
    Io(#[from] io::Error),
}

/// A row in text form; NULL is `None`.
pub type TextRow = Vec<Option<Vec<u8>>>;

impl HotConnection {
    /// The server's process, as in `pg_stat_activity`. It is queried: a pooler makes up the number that comes with the key for cancelling.
    ///
    /// # Errors
    /// When the connection breaks.
    pub fn backend_pid(&mut self) -> Result<u32, QueryError> {
        let rows = self.simple_query("select pg_catalog.pg_backend_pid()")?;
        let pid = rows
            .first()
            .and_then(|row| row.first()?.as_deref())
            .and_then(|text| std::str::from_utf8(text).ok());
        pid.and_then(|text| text.parse().ok())
            .ok_or_else(|| QueryError::Io(io::ErrorKind::InvalidData.into()))
    }

    /// Runs SQL by the simple protocol and waits for its end; returns all rows in text form. For the few queries before the real work.
    pub fn simple_query(&mut self, sql: &str) -> Result<Vec<TextRow>, QueryError> {
        let mut out = Vec::new();
        frontend::query(&mut out, sql);
        let sent = self.write_all(&out).and_then(|()| self.flush());
        let mut reply = Vec::new();
        let end = match sent.and_then(|()| self.receive(&mut reply)) {
            Ok(end) => end,
            Err(error) => return Err(self.last_words(reply, error)),
        };
        let mut rows = Vec::new();
        for frame in Frames::new(&reply[..end]) {
            match frame.tag {
                tag::ERROR_RESPONSE => return Err(ServerError::parse(frame.body).into()),
                tag::DATA_ROW => {
                    let mut columns = backend::Columns::new(frame.body).map_err(io::Error::other)?;
                    let mut row = Vec::new();
                    while let Some(column) = columns.next_column().map_err(io::Error::other)? {
                        row.push(column.map(<[u8]>::to_vec));
                    }
                    rows.push(row);
                }
                _ => {}
            }
        }
        Ok(rows)
    }

    /// Receives the complete answer to one request; returns its length.
    fn receive(&mut self, reply: &mut Vec<u8>) -> io::Result<usize> {
        let mut scanner = backend::ReplyScanner::default();
        loop {
            match scanner.scan(reply).map_err(io::Error::other)? {
                backend::Scan::Complete { end, .. } => return Ok(end),
                backend::Scan::Copy { .. } => {
                    return Err(io::Error::other("COPY is not possible here"));
                }
                backend::Scan::Incomplete { .. } => self.read_some(reply)?,
            }
        }
    }

    /// Reads what comes next.
    fn read_some(&mut self, reply: &mut Vec<u8>) -> io::Result<()> {
        let start = reply.len();
        reply.resize(start + READ_BYTES, 0);
        let count = self.read(&mut reply[start..]);
        reply.truncate(start + count.as_ref().map_or(0, |count| *count));
        if count? == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }

    /// A server that ends a session sends the reason before it closes the socket, also if the client was about to send a query.
    fn last_words(&mut self, mut reply: Vec<u8>, error: io::Error) -> QueryError {
        if error.kind() == io::ErrorKind::BrokenPipe {
            let _ = self.read_some(&mut reply);
        }
        let mut frames = Frames::new(&reply);
        match frames.find(|frame| frame.tag == tag::ERROR_RESPONSE) {
            Some(frame) => ServerError::parse(frame.body).into(),
            None => QueryError::Io(error),
        }
    }
}

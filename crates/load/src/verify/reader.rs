//! A connection for reading: simple queries and COPY TO STDOUT over a blocking socket, with our own framing.
//!
//! Rows are lent out of the receive buffer, one at a time: judging a terabyte allocates nothing.

use std::io::{self, Read, Write};
use std::ops::Range;

use wire::backend::{self, Columns, ProtocolError, tag};
use wire::copy::{self, Fields};
use wire::error::ServerError;
use wire::frontend;

use super::error::VerifyError;

/// First size of the receive buffer: some hundred rows, still in a core's second cache.
const INPUT_BYTES: usize = 256 << 10;

/// A blocking byte stream to a server.
pub(super) trait Socket: Read + Write + Send {}

impl<S: Read + Write + Send> Socket for S {}

/// A connection that is ready for queries.
pub(super) struct Reader<S> {
    socket: S,
    input: Vec<u8>,
    /// The unread part of `input`.
    unread: Range<usize>,
}

impl<S: Socket> Reader<S> {
    pub(super) fn new(socket: S) -> Reader<S> {
        Reader { socket, input: vec![0; INPUT_BYTES], unread: 0..0 }
    }

    /// Runs statements and hands each row of text to `row`.
    pub(super) fn query(
        &mut self,
        doing: &str,
        sql: &str,
        mut row: impl FnMut(&[Option<&str>]) -> Result<(), VerifyError>,
    ) -> Result<(), VerifyError> {
        self.send(doing, sql)?;
        self.reply(doing, |tag, body| {
            if tag != tag::DATA_ROW {
                return Ok(());
            }
            let protocol = |source| VerifyError::Protocol { doing: doing.to_owned(), source };
            let mut columns = Columns::new(body).map_err(protocol)?;
            let mut values = Vec::new();
            while let Some(value) = columns.next_column().map_err(protocol)? {
                values.push(value.map(std::str::from_utf8).transpose().map_err(|_| VerifyError::Answer {
                    doing: doing.to_owned(),
                    answer: String::from_utf8_lossy(value.unwrap_or_default()).into_owned(),
                })?);
            }
            row(&values)
        })
    }

    /// Runs statements whose rows do not matter.
    pub(super) fn execute(&mut self, doing: &str, sql: &str) -> Result<(), VerifyError> {
        self.query(doing, sql, |_| Ok(()))
    }

    /// Runs a `COPY ... TO STDOUT (FORMAT binary)` and hands each tuple to `each`. An error of `each` leaves the connection in the
    /// middle of the stream: it must be dropped.
    pub(super) fn copy_out(
        &mut self,
        doing: &str,
        sql: &str,
        mut each: impl FnMut(Fields<'_>) -> Result<(), VerifyError>,
    ) -> Result<(), VerifyError> {
        self.send(doing, sql)?;
        let mut first = true;
        self.reply(doing, |tag, body| {
            if tag != tag::COPY_DATA {
                return Ok(());
            }
            let damaged = |source| VerifyError::Copy { doing: doing.to_owned(), source };
            let tuple =
                if std::mem::take(&mut first) { copy::strip_header(body).map_err(damaged)? } else { body };
            if tuple.is_empty() {
                return Ok(());
            }
            // The trailer is no tuple.
            Fields::parse(tuple).map_err(damaged)?.map_or(Ok(()), &mut each)
        })
    }

    fn send(&mut self, doing: &str, sql: &str) -> Result<(), VerifyError> {
        let mut out = Vec::new();
        frontend::query(&mut out, sql);
        let sent = self.socket.write_all(&out).and_then(|()| self.socket.flush());
        sent.map_err(|source| VerifyError::Lost { doing: doing.to_owned(), source })
    }

    /// Hands every message up to ReadyForQuery to `message`. The server's first error is the reply's error.
    fn reply(
        &mut self,
        doing: &str,
        mut message: impl FnMut(u8, &[u8]) -> Result<(), VerifyError>,
    ) -> Result<(), VerifyError> {
        let protocol = |source| VerifyError::Protocol { doing: doing.to_owned(), source };
        let mut refused: Option<Box<ServerError>> = None;
        loop {
            while let Some((frame, bytes)) =
                backend::frame(&self.input[self.unread.clone()]).map_err(protocol)?
            {
                self.unread.start += bytes;
                match frame.tag {
                    tag::READY_FOR_QUERY => {
                        let refused =
                            refused.map(|source| VerifyError::Server { doing: doing.to_owned(), source });
                        return refused.map_or(Ok(()), Err);
                    }
                    tag::ERROR_RESPONSE => {
                        let error = Box::new(ServerError::parse(frame.body));
                        if error.is_fatal() {
                            return Err(VerifyError::Server { doing: doing.to_owned(), source: error });
                        }
                        refused.get_or_insert(error);
                    }
                    tag::DATA_ROW | tag::COPY_DATA => message(frame.tag, frame.body)?,
                    tag::COPY_OUT_RESPONSE
                    | tag::COPY_DONE
                    | tag::COMMAND_COMPLETE
                    | tag::EMPTY_QUERY_RESPONSE
                    | tag::ROW_DESCRIPTION
                    | tag::NOTICE_RESPONSE
                    | tag::NOTIFICATION_RESPONSE
                    | tag::PARAMETER_STATUS => {}
                    tag => return Err(protocol(ProtocolError::Unexpected { tag })),
                }
            }
            self.receive().map_err(|source| VerifyError::Lost { doing: doing.to_owned(), source })?;
        }
    }

    fn receive(&mut self) -> io::Result<()> {
        self.input.copy_within(self.unread.clone(), 0);
        self.unread = 0..self.unread.len();
        if self.unread.end == self.input.len() {
            // A message that is longer than the buffer; its length was checked against the protocol's limit.
            self.input.resize(self.input.len() * 2, 0);
        }
        loop {
            match self.socket.read(&mut self.input[self.unread.end..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => {
                    self.unread.end += bytes;
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests;

//! Messages of the server: framing, and the few bodies that the hot path reads.
//!
//! A [`Frame`] borrows from the receive buffer. The reply to one request is complete when ReadyForQuery arrives; the
//! [`ReplyScanner`] finds that end without reading a byte twice, so that a session is resumed only when its
//! reply is complete.

use crate::{MESSAGE_BYTES_MAX, REPLY_BYTES_MAX, TEXT_MESSAGE_BYTES_MAX};

/// Message types sent by a server.
pub mod tag {
    /// Authentication request of any kind.
    pub const AUTHENTICATION: u8 = b'R';
    /// Process id and secret key for cancel requests.
    pub const BACKEND_KEY_DATA: u8 = b'K';
    /// Bind is done.
    pub const BIND_COMPLETE: u8 = b'2';
    /// A command is done; the body is its tag, for example `UPDATE 1`.
    pub const COMMAND_COMPLETE: u8 = b'C';
    /// A piece of COPY data.
    pub const COPY_DATA: u8 = b'd';
    /// COPY data ends.
    pub const COPY_DONE: u8 = b'c';
    /// The server waits for COPY data.
    pub const COPY_IN_RESPONSE: u8 = b'G';
    /// COPY data follows.
    pub const COPY_OUT_RESPONSE: u8 = b'H';
    /// One row.
    pub const DATA_ROW: u8 = b'D';
    /// The query string was empty.
    pub const EMPTY_QUERY_RESPONSE: u8 = b'I';
    /// An error.
    pub const ERROR_RESPONSE: u8 = b'E';
    /// The statement returns no rows.
    pub const NO_DATA: u8 = b'n';
    /// A notice or warning.
    pub const NOTICE_RESPONSE: u8 = b'N';
    /// NOTIFY from another session.
    pub const NOTIFICATION_RESPONSE: u8 = b'A';
    /// Types of a statement's parameters.
    pub const PARAMETER_DESCRIPTION: u8 = b't';
    /// A setting the client should know, such as `client_encoding`.
    pub const PARAMETER_STATUS: u8 = b'S';
    /// Parse is done.
    pub const PARSE_COMPLETE: u8 = b'1';
    /// The server waits for the next request; the body is the transaction status.
    pub const READY_FOR_QUERY: u8 = b'Z';
    /// Shape of the rows that follow.
    pub const ROW_DESCRIPTION: u8 = b'T';
}

/// Length of a message header: type byte and 32-bit length.
pub const HEADER_BYTES: usize = 5;

/// One message, borrowed from the receive buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Message type, see [`tag`].
    pub tag: u8,
    /// Body without type and length.
    pub body: &'a [u8],
}

/// The stream violates the protocol: nothing after this point can be trusted, and the connection has to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// A length field below 4 or beyond what a message of its type may have ([`MESSAGE_BYTES_MAX`], [`TEXT_MESSAGE_BYTES_MAX`]).
    #[error(
        "the server sent a message of type {tag:#04x} with the length {length}, and at most {} bytes are taken: it is too long, the stream is \
         damaged, or this is not a PostgreSQL server",
        message_bytes_max(*tag)
    )]
    Length {
        /// Type byte of the message.
        tag: u8,
        /// The length it claims.
        length: u32,
    },
    /// A body that is shorter than its format demands.
    #[error("the server sent a message of type {tag:#04x} whose body is damaged")]
    Body {
        /// Type byte of the message.
        tag: u8,
    },
    /// A message that is not allowed here.
    #[error("the server sent a message of type {tag:#04x} where it is not allowed")]
    Unexpected {
        /// Type byte of the message.
        tag: u8,
    },
    /// More than any valid answer to a request.
    #[error("the server sent more than {limit} {what}: it is broken, or this is not a PostgreSQL server")]
    TooMuch {
        /// The limit that was reached.
        limit: u64,
        /// Of what.
        what: &'static str,
    },
    /// More than a server sends before a session begins.
    #[error(
        "the server sent more than {limit} bytes before the session began: this is not a PostgreSQL server"
    )]
    Greeting {
        /// What it may be at most.
        limit: usize,
    },
}

impl ProtocolError {
    /// A reply beyond [`REPLY_BYTES_MAX`].
    pub fn too_long_a_reply() -> ProtocolError {
        ProtocolError::TooMuch { limit: REPLY_BYTES_MAX as u64, what: "bytes in reply to one request" }
    }
}

/// Reads the length of the message at the start of `bytes`, header included; `None` when fewer than five bytes are there.
#[inline]
pub(crate) fn frame_bytes(bytes: &[u8]) -> Result<Option<usize>, ProtocolError> {
    bytes.first_chunk().map(message_bytes).transpose()
}

/// The length of a message by its header, header included.
///
/// # Errors
/// [`ProtocolError::Length`] if no message of this type can have it.
#[inline]
pub fn message_bytes(header: &[u8; HEADER_BYTES]) -> Result<usize, ProtocolError> {
    let length = u32::from_be_bytes([header[1], header[2], header[3], header[4]]);
    if length < 4 || length as usize > message_bytes_max(header[0]) {
        return Err(ProtocolError::Length { tag: header[0], length });
    }
    Ok(length as usize + 1)
}

#[inline]
fn message_bytes_max(tag: u8) -> usize {
    match tag {
        tag::ERROR_RESPONSE
        | tag::NOTICE_RESPONSE
        | tag::NOTIFICATION_RESPONSE
        | tag::PARAMETER_STATUS
        | tag::AUTHENTICATION => TEXT_MESSAGE_BYTES_MAX,
        _ => MESSAGE_BYTES_MAX,
    }
}

/// The first message of `bytes` and how many bytes it takes; `None` while it is incomplete.
#[inline]
pub fn frame(bytes: &[u8]) -> Result<Option<(Frame<'_>, usize)>, ProtocolError> {
    match frame_bytes(bytes)? {
        Some(total) if bytes.len() >= total => {
            Ok(Some((Frame { tag: bytes[0], body: &bytes[HEADER_BYTES..total] }, total)))
        }
        _ => Ok(None),
    }
}

/// Walks over the complete messages of a buffer that is known to be well formed (a [`ReplyScanner`] has seen it).
#[derive(Clone, Copy, Debug)]
pub struct Frames<'a> {
    rest: &'a [u8],
}

impl<'a> Frames<'a> {
    /// Frames of `bytes`; stops at the first incomplete or impossible one.
    pub fn new(bytes: &'a [u8]) -> Self {
        Frames { rest: bytes }
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Frame<'a>;

    #[inline]
    fn next(&mut self) -> Option<Frame<'a>> {
        let (frame, bytes) = frame(self.rest).ok()??;
        self.rest = &self.rest[bytes..];
        Some(frame)
    }
}

/// Transaction status in ReadyForQuery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionStatus {
    /// Outside a transaction block.
    Idle,
    /// Inside a transaction block.
    Active,
    /// Inside a transaction block that has failed: everything but ROLLBACK is refused.
    Failed,
}

impl TransactionStatus {
    /// From the status byte of ReadyForQuery.
    pub fn from_byte(byte: u8) -> Option<TransactionStatus> {
        match byte {
            b'I' => Some(TransactionStatus::Idle),
            b'T' => Some(TransactionStatus::Active),
            b'E' => Some(TransactionStatus::Failed),
            _ => None,
        }
    }
}

/// Finds the end of a reply in a growing receive buffer.
///
/// `scanned` bytes at the front consist of whole messages already seen; each call looks only at what came since.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplyScanner {
    scanned: usize,
    errors: u32,
    notices: u32,
    rollbacks: u32,
}

/// A whole CommandComplete with ROLLBACK, without its type byte.
const ROLLBACK_COMPLETE: &[u8] = b"\0\0\0\x0dROLLBACK\0";

/// What a scan found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scan {
    /// The reply is not complete; at least this many bytes are wanted in the buffer in all (a hint for its capacity).
    Incomplete {
        /// Bytes from the start of the buffer.
        wanted: usize,
    },
    /// The reply ends at this offset; further bytes, if any, belong to the next one.
    Complete {
        /// Length of the reply, ReadyForQuery included.
        end: usize,
        /// Status the server reports.
        status: TransactionStatus,
        /// ErrorResponse messages seen in the reply.
        errors: u32,
        /// The same for NoticeResponse messages, which include warnings.
        notices: u32,
        /// Commands that ended as `ROLLBACK`: a COMMIT that the server did not perform ends in this way, without an error.
        rollbacks: u32,
    },
    /// The server waits for COPY data (CopyInResponse), or sends some (CopyOutResponse): no ReadyForQuery until then.
    Copy {
        /// Length of what was seen, the response included.
        end: usize,
    },
}

impl ReplyScanner {
    /// Continues over `buffer`, whose front is the same as at the last call.
    #[inline]
    pub fn scan(&mut self, buffer: &[u8]) -> Result<Scan, ProtocolError> {
        loop {
            let rest = &buffer[self.scanned..];
            let Some(total) = frame_bytes(rest)? else {
                return Ok(Scan::Incomplete { wanted: self.scanned + HEADER_BYTES });
            };
            if self.scanned + total > REPLY_BYTES_MAX {
                return Err(ProtocolError::too_long_a_reply());
            }
            if rest.len() < total {
                return Ok(Scan::Incomplete { wanted: self.scanned + total });
            }
            self.scanned += total;
            match rest[0] {
                tag::READY_FOR_QUERY => {
                    let status = (total == HEADER_BYTES + 1)
                        .then(|| TransactionStatus::from_byte(rest[HEADER_BYTES]))
                        .flatten()
                        .ok_or(ProtocolError::Body { tag: tag::READY_FOR_QUERY })?;
                    let ReplyScanner { scanned: end, errors, notices, rollbacks } = *self;
                    return Ok(Scan::Complete { end, status, errors, notices, rollbacks });
                }
                tag::ERROR_RESPONSE => self.errors += 1,
                tag::NOTICE_RESPONSE => self.notices += 1,
                tag::COMMAND_COMPLETE if rest[1..total] == *ROLLBACK_COMPLETE => self.rollbacks += 1,
                tag::COPY_IN_RESPONSE | tag::COPY_OUT_RESPONSE => {
                    return Ok(Scan::Copy { end: self.scanned });
                }
                _ => {}
            }
        }
    }

    /// Starts over for the next reply, which begins at the front of the buffer.
    pub fn reset(&mut self) {
        *self = ReplyScanner::default();
    }
}

/// The columns of a DataRow body, in order: `None` is NULL.
#[derive(Clone, Copy, Debug)]
pub struct Columns<'a> {
    rest: &'a [u8],
    left: u16,
}

impl<'a> Columns<'a> {
    /// From the body of a DataRow.
    pub fn new(body: &'a [u8]) -> Result<Self, ProtocolError> {
        let (count, rest) =
            body.split_first_chunk::<2>().ok_or(ProtocolError::Body { tag: tag::DATA_ROW })?;
        Ok(Columns { rest, left: u16::from_be_bytes(*count) })
    }

    /// The next column; `Ok(None)` after the last one.
    #[inline]
    pub fn next_column(&mut self) -> Result<Option<Option<&'a [u8]>>, ProtocolError> {
        const DAMAGED: ProtocolError = ProtocolError::Body { tag: tag::DATA_ROW };
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let (length, rest) = self.rest.split_first_chunk::<4>().ok_or(DAMAGED)?;
        let length = i32::from_be_bytes(*length);
        if length == -1 {
            self.rest = rest;
            return Ok(Some(None));
        }
        let length = usize::try_from(length).map_err(|_| DAMAGED)?;
        if rest.len() < length {
            return Err(DAMAGED);
        }
        let (value, rest) = rest.split_at(length);
        self.rest = rest;
        Ok(Some(Some(value)))
    }
}

/// The names of the columns in a RowDescription body.
pub fn column_names(body: &[u8]) -> Result<Vec<String>, ProtocolError> {
    const DAMAGED: ProtocolError = ProtocolError::Body { tag: tag::ROW_DESCRIPTION };
    /// Table OID, attribute number, type OID, type length, type modifier, format code.
    const AFTER_NAME_BYTES: usize = 4 + 2 + 4 + 2 + 4 + 2;
    let (count, mut rest) = body.split_first_chunk::<2>().ok_or(DAMAGED)?;
    let mut names = Vec::new();
    for _ in 0..u16::from_be_bytes(*count) {
        let end = rest.iter().position(|&b| b == 0).ok_or(DAMAGED)?;
        names.push(String::from_utf8_lossy(&rest[..end]).into_owned());
        rest = rest.get(end + 1 + AFTER_NAME_BYTES..).ok_or(DAMAGED)?;
    }
    Ok(names)
}

/// The text of a CommandComplete body without its terminating zero, for example `b"UPDATE 1"`.
pub fn command_tag(body: &[u8]) -> &[u8] {
    body.strip_suffix(&[0]).unwrap_or(body)
}

/// The row count at the end of a command tag: `UPDATE 3` is 3, `INSERT 0 5` is 5, `BEGIN` has none.
pub fn rows_affected(body: &[u8]) -> Option<u64> {
    let text = command_tag(body);
    let digits = text.rsplit(|&b| b == b' ').next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message(tag: u8, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![tag];
        bytes.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
        bytes.extend_from_slice(body);
        bytes
    }

    #[test]
    fn a_reply_ends_at_ready_for_query_wherever_it_is_torn() {
        let mut reply = message(tag::BIND_COMPLETE, b"");
        reply.extend(message(tag::DATA_ROW, &[0, 1, 0, 0, 0, 2, b'4', b'2']));
        reply.extend(message(tag::ERROR_RESPONSE, b"SERROR\0C40001\0Mx\0\0"));
        reply.extend(message(tag::NOTICE_RESPONSE, b"SWARNING\0C01000\0Mx\0\0"));
        reply.extend(message(tag::READY_FOR_QUERY, b"T"));
        let end = reply.len();
        reply.extend(message(tag::BIND_COMPLETE, b""));
        for cut in 0..end {
            let mut scanner = ReplyScanner::default();
            assert!(
                matches!(scanner.scan(&reply[..cut]), Ok(Scan::Incomplete { wanted }) if wanted > cut && wanted <= end)
            );
            let scan = scanner.scan(&reply);
            assert_eq!(
                scan,
                Ok(Scan::Complete {
                    end,
                    status: TransactionStatus::Active,
                    errors: 1,
                    notices: 1,
                    rollbacks: 0
                })
            );
        }
    }

    #[test]
    fn commands_that_ended_as_rollback_are_counted() {
        let mut reply = Vec::new();
        for command in ["ROLLBACK", "COMMIT", "ROLLBACK PREPARED", "ROLLBACK", "rollback"] {
            reply.extend(message(tag::COMMAND_COMPLETE, format!("{command}\0").as_bytes()));
        }
        reply.extend(message(tag::READY_FOR_QUERY, b"I"));
        assert!(matches!(ReplyScanner::default().scan(&reply), Ok(Scan::Complete { rollbacks: 2, .. })));
    }

    #[test]
    fn impossible_lengths_are_refused() {
        for length in [0u32, 3, (MESSAGE_BYTES_MAX as u32) + 1, u32::MAX] {
            let mut bytes = vec![b'D'];
            bytes.extend_from_slice(&length.to_be_bytes());
            assert_eq!(frame(&bytes), Err(ProtocolError::Length { tag: b'D', length }));
        }
    }

    #[test]
    fn long_errors_and_endless_replies_are_refused() {
        let long = (crate::TEXT_MESSAGE_BYTES_MAX as u32 + 1).to_be_bytes();
        for tag in
            [tag::ERROR_RESPONSE, tag::NOTICE_RESPONSE, tag::NOTIFICATION_RESPONSE, tag::PARAMETER_STATUS]
        {
            let bytes = [&[tag][..], &long].concat();
            assert!(matches!(frame(&bytes), Err(ProtocolError::Length { .. })), "{}", char::from(tag));
        }
        let row = message(tag::DATA_ROW, &vec![0; 1 << 20]);
        let mut reply = vec![];
        let mut scanner = ReplyScanner::default();
        let error = (0..100).find_map(|_| {
            reply.extend_from_slice(&row);
            scanner.scan(&reply).err()
        });
        assert_eq!(error, Some(ProtocolError::too_long_a_reply()));
        assert!(reply.len() <= REPLY_BYTES_MAX + row.len());
    }

    #[test]
    fn columns_are_read_in_order() {
        let body = [0, 3, 0, 0, 0, 1, b'7', 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];
        let mut columns = Columns::new(&body).unwrap();
        assert_eq!(columns.next_column(), Ok(Some(Some(&b"7"[..]))));
        assert_eq!(columns.next_column(), Ok(Some(None)));
        assert_eq!(columns.next_column(), Ok(Some(Some(&b""[..]))));
        assert_eq!(columns.next_column(), Ok(None));
    }

    #[test]
    fn command_tags_contain_the_rows() {
        assert_eq!(rows_affected(b"UPDATE 3\0"), Some(3));
        assert_eq!(rows_affected(b"INSERT 0 5\0"), Some(5));
        assert_eq!(rows_affected(b"BEGIN\0"), None);
        assert_eq!(rows_affected(b""), None);
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_decoders_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = ReplyScanner::default().scan(&bytes);
            for frame in Frames::new(&bytes) {
                let _ = column_names(frame.body);
            }
            if let Ok(mut columns) = Columns::new(&bytes) {
                while let Ok(Some(_)) = columns.next_column() {}
            }
            let _ = (column_names(&bytes), rows_affected(&bytes));
        }
    }
}

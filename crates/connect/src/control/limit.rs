//! A limit on what a server may send in answer to one request.
//!
//! The library keeps everything it receives: rows of a query, notifications, settings. A server that never stops sending (broken, hostile, or not
//! PostgreSQL) would fill our memory. So the stream below the library counts messages, and fails beyond the largest possible answer to our
//! queries. It reads in pieces of the socket's size and buffers no message.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::silence::Silence;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, TlsStream};
use wire::backend::{HEADER_BYTES, ProtocolError, message_bytes, tag};

/// Bytes of the answer to one request. The longest are lists of chunks: tens of bytes for each of some million.
pub(crate) const ANSWER_BYTES_MAX: u64 = 256 << 20;
/// Rows of the answer to one request: the library takes some hundred bytes for each, however short it is.
pub(crate) const ANSWER_ROWS_MAX: u64 = 4_000_000;
/// Notices, notifications, settings and errors beside the answer to one request.
pub(crate) const ANSWER_NOTES_MAX: u64 = 100_000;
/// Notifications and settings over the whole session, which the library keeps to its end.
pub(crate) const SESSION_NOTES_MAX: u64 = 100_000;
/// Their bytes.
pub(crate) const SESSION_NOTES_BYTES_MAX: u64 = 16 << 20;
/// Messages about authentication.
pub(crate) const AUTHENTICATION_MESSAGES_MAX: u64 = 100;

/// What has come.
#[derive(Debug, Default)]
struct Counts {
    header: [u8; HEADER_BYTES],
    /// Received bytes of the header.
    headed: usize,
    /// Missing bytes of the body.
    left: u64,
    bytes: u64,
    rows: u64,
    notes: u64,
    session_notes: u64,
    session_notes_bytes: u64,
    authentications: u64,
    /// The number of the server process, as far as it has come: the begin of the first message with the key for cancel requests.
    pid: Vec<u8>,
    /// The message that comes is that one.
    has_pid: bool,
}

impl Counts {
    /// A request was sent: its answer begins.
    fn begin(&mut self) {
        (self.bytes, self.rows, self.notes) = (0, 0, 0);
    }

    fn take(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            if self.left > 0 {
                let passed = bytes.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
                if self.has_pid {
                    let missing = size_of::<i32>().saturating_sub(self.pid.len());
                    self.pid.extend(&bytes[..passed.min(missing)]);
                }
                self.left -= passed as u64;
                bytes = &bytes[passed..];
                continue;
            }
            let part = bytes.len().min(HEADER_BYTES - self.headed);
            self.header[self.headed..self.headed + part].copy_from_slice(&bytes[..part]);
            self.headed += part;
            bytes = &bytes[part..];
            if self.headed == HEADER_BYTES {
                self.headed = 0;
                let length = message_bytes(&self.header).map_err(io::Error::other)?;
                self.left = (length - HEADER_BYTES) as u64;
                self.message(self.header[0], length as u64)?;
                self.has_pid = self.header[0] == tag::BACKEND_KEY_DATA && self.pid.is_empty();
            }
        }
        Ok(())
    }

    /// The server process, once it is known.
    fn pid(&self) -> Option<i32> {
        Some(i32::from_be_bytes(self.pid.as_slice().try_into().ok()?))
    }

    fn message(&mut self, tag: u8, bytes: u64) -> io::Result<()> {
        self.bytes += bytes;
        match tag {
            tag::DATA_ROW | tag::COPY_DATA => self.rows += 1,
            tag::AUTHENTICATION => self.authentications += 1,
            tag::NOTIFICATION_RESPONSE | tag::PARAMETER_STATUS => {
                self.notes += 1;
                self.session_notes += 1;
                self.session_notes_bytes += bytes;
            }
            tag::NOTICE_RESPONSE | tag::ERROR_RESPONSE => self.notes += 1,
            _ => {}
        }
        let limits = [
            (self.bytes, ANSWER_BYTES_MAX, "bytes in reply to one request"),
            (self.rows, ANSWER_ROWS_MAX, "rows in reply to one request"),
            (self.notes, ANSWER_NOTES_MAX, "notices, notifications and settings beside one answer"),
            (self.session_notes, SESSION_NOTES_MAX, "notifications and settings"),
            (self.session_notes_bytes, SESSION_NOTES_BYTES_MAX, "bytes of notifications and settings"),
            (self.authentications, AUTHENTICATION_MESSAGES_MAX, "messages about authentication"),
        ];
        match limits.into_iter().find(|(count, limit, _)| count > limit) {
            Some((_, limit, what)) => Err(io::Error::other(ProtocolError::TooMuch { limit, what })),
            None => Ok(()),
        }
    }
}

/// A stream that breaks when the server sends more than any valid reply.
#[derive(Debug)]
pub(super) struct Limited<S> {
    stream: S,
    counts: Counts,
    silence: Arc<Silence>,
}

impl<S> Limited<S> {
    pub(super) fn new(stream: S, silence: Arc<Silence>) -> Limited<S> {
        Limited { stream, counts: Counts::default(), silence }
    }
}

impl<S: TlsStream + Unpin> TlsStream for Limited<S> {
    fn channel_binding(&self) -> ChannelBinding {
        self.stream.channel_binding()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Limited<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        match read {
            Poll::Ready(Ok(())) => {
                let was_known = self.counts.pid().is_some();
                self.counts.take(&buf.filled()[before..])?;
                if let Some(pid) = self.counts.pid().filter(|_| !was_known) {
                    self.silence.set_pid(pid);
                }
                Poll::Ready(Ok(()))
            }
            other => other,
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Limited<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        if matches!(written, Poll::Ready(Ok(_))) {
            self.silence.query_text(buf);
            self.counts.begin();
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(tag: u8, length: u32) -> Vec<u8> {
        let mut bytes = vec![tag];
        bytes.extend(length.to_be_bytes());
        bytes.extend(vec![b'x'; (length as usize).saturating_sub(4).min(100)]);
        bytes
    }

    /// Sends a message repeatedly; returns the error, if one occurs within this many times.
    fn flood(tag: u8, length: u32, times: u64) -> Option<String> {
        let mut counts = Counts::default();
        let bytes = message(tag, length);
        (0..times).find_map(|_| counts.take(&bytes).err()).map(|error| error.to_string())
    }

    #[test]
    fn endless_answers_break_with_the_limit_they_reached() {
        for (tag, length, part) in [
            (tag::DATA_ROW, 6, "rows in reply to one request"),
            (tag::COPY_DATA, 104, "reply to one request"),
            (tag::NOTICE_RESPONSE, 20, "notices"),
            (tag::NOTIFICATION_RESPONSE, 20, "notifications"),
            (tag::PARAMETER_STATUS, 20, "settings"),
            (tag::AUTHENTICATION, 8, "messages about authentication"),
            (tag::ERROR_RESPONSE, 200 << 20, "with the length"),
            (tag::DATA_ROW, 2 << 30, "with the length"),
            (tag::DATA_ROW, u32::MAX, "with the length"),
            (tag::DATA_ROW, 3, "with the length"),
        ] {
            let error = flood(tag, length, 1 + ANSWER_ROWS_MAX.max(ANSWER_BYTES_MAX / 100)).expect("it ends");
            assert!(error.contains(part), "{}: {error}", char::from(tag));
        }
    }

    #[test]
    fn the_server_process_is_known_however_its_key_is_torn() {
        let key = [&[tag::BACKEND_KEY_DATA, 0, 0, 0, 12][..], &[0, 0, 1, 2], &[9, 9, 9, 9]].concat();
        let mut stream = message(tag::AUTHENTICATION, 8);
        stream.extend(&key);
        stream.extend(message(tag::READY_FOR_QUERY, 5));
        for piece in 1..stream.len() {
            let mut counts = Counts::default();
            stream.chunks(piece).for_each(|part| counts.take(part).expect("a calm server"));
            assert_eq!(counts.pid(), Some(258), "in pieces of {piece}");
        }
        // Without a number there is none.
        let mut counts = Counts::default();
        counts.take(&[tag::BACKEND_KEY_DATA, 0, 0, 0, 6, 1, 2]).expect("short");
        assert_eq!(counts.pid(), None);
    }

    #[test]
    fn what_a_server_has_to_say_passes_however_it_is_torn() {
        let mut counts = Counts::default();
        let mut stream = vec![];
        for tag in [tag::AUTHENTICATION, tag::PARAMETER_STATUS, tag::DATA_ROW, tag::READY_FOR_QUERY] {
            stream.extend(message(tag, 54));
        }
        for _ in 0..100_000 / 4 {
            counts.begin();
            stream.chunks(7).for_each(|part| counts.take(part).expect("a calm server"));
            counts.authentications = 0;
        }
        assert_eq!((counts.rows, counts.left, counts.headed), (1, 0, 0));
    }
}

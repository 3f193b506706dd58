//! One connection's buffers: what is to be sent, what was received, and where the reply ends.

mod error;
mod stream;

use std::io::{self, Read, Write};
use std::os::fd::RawFd;

use super::thin::{THIN_FROM, Thinned, thin};
use connect::hot::CancelToken;
pub use error::LinkError;
use error::{is_too_long, too_long_or_damaged};
use rustls::ClientConnection;
pub use stream::{Pipe, Stream};
use wire::backend::{Frames, ProtocolError, ReplyScanner, Scan, TransactionStatus, tag};
use wire::error::ServerError;

/// First size of a receive buffer: as large as libpq's.
const RECEIVE_BUFFER_BYTES: usize = 16 * 1024;
/// First size of a send buffer.
const SEND_BUFFER_BYTES: usize = 4 * 1024;

/// A server that sends this much without a pause is not waited for: the other sessions of the worker are.
const READ_AT_ONCE_MAX: u64 = 1 << 30;

/// A whole reply, still in the receive buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    end: usize,
    /// Transaction status after it.
    pub status: TransactionStatus,
    /// ErrorResponse messages in it.
    pub errors: u32,
    /// NoticeResponse messages in it.
    pub notices: u32,
    /// Commands in it that ended as `ROLLBACK`.
    pub rollbacks: u32,
}

/// System calls and bytes, for the counts that tests assert.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Calls of write.
    pub sends: u64,
    /// Calls of read.
    pub receives: u64,
    /// Bytes written.
    pub sent_bytes: u64,
    /// Bytes read.
    pub received_bytes: u64,
    /// Whether an io_uring carried some of it: connections with TLS use none.
    pub by_ring: bool,
}

impl Traffic {
    /// Adds another count.
    pub fn add(&mut self, other: Traffic) {
        self.sends += other.sends;
        self.receives += other.receives;
        self.sent_bytes += other.sent_bytes;
        self.received_bytes += other.received_bytes;
        self.by_ring |= other.by_ring;
    }
}

/// One connection.
#[derive(Debug)]
pub struct Link {
    stream: Stream,
    tls: Option<Box<ClientConnection>>,
    /// Received bytes are `incoming[..filled]`; the vector's length is its usable size.
    incoming: Vec<u8>,
    filled: usize,
    /// The front that belongs to replies already handed out.
    consumed: usize,
    scanner: ReplyScanner,
    /// Nothing reads the rows of the reply that is being received.
    drops_rows: bool,
    /// So many bytes that are still to come, behind `filled` as it was then, belong to a message that is not kept.
    skip: usize,
    skip_from: usize,
    outgoing: Vec<u8>,
    sent: usize,
    /// A ring holds the socket, too: closing it here would not notify the peer.
    is_in_ring: bool,
    /// How the server is requested to give up what it executes, where it sent a key.
    cancel: Option<Box<CancelToken>>,
    /// Which of the hosts that were named it leads to.
    server: usize,
    /// Counts since the connection was made.
    pub traffic: Traffic,
}

impl Link {
    /// A link over a non-blocking stream that has been through authentication. `received` is what came with the last bytes
    /// of the handshake (usually nothing).
    pub fn new(stream: Stream, tls: Option<Box<ClientConnection>>, received: &[u8]) -> Link {
        let mut incoming = vec![0; RECEIVE_BUFFER_BYTES.max(received.len())];
        incoming[..received.len()].copy_from_slice(received);
        Link {
            stream,
            tls,
            incoming,
            filled: received.len(),
            consumed: 0,
            scanner: ReplyScanner::default(),
            drops_rows: false,
            skip: 0,
            skip_from: 0,
            outgoing: Vec::with_capacity(SEND_BUFFER_BYTES),
            sent: 0,
            is_in_ring: false,
            cancel: None,
            server: 0,
            traffic: Traffic::default(),
        }
    }

    /// The same to this one of several hosts.
    #[must_use]
    pub(crate) fn with_server(mut self, number: usize) -> Link {
        self.server = number;
        self
    }

    /// Which of several hosts it leads to, counted from 0 in the order in which they were named.
    pub fn server(&self) -> usize {
        self.server
    }

    /// The same with the way to have its statements cancelled.
    #[must_use]
    pub(crate) fn with_cancel(mut self, token: CancelToken) -> Link {
        self.cancel = Some(Box::new(token));
        self
    }

    /// How the server is requested to give up what it executes.
    pub fn cancel_token(&self) -> Option<&CancelToken> {
        self.cancel.as_deref()
    }

    /// The server has closed the connection. What came before is read and forgotten: for a link that nothing reads any more.
    pub fn has_ended(&mut self) -> bool {
        let mut scratch = [0; 4096];
        loop {
            match self.stream.read(&mut scratch) {
                Ok(1..) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => return true,
            }
        }
    }

    /// The descriptor to watch.
    pub fn fd(&self) -> Option<RawFd> {
        self.stream.fd()
    }

    /// Where the next request is written. What the last reply left in the receive buffer is forgotten.
    #[inline]
    pub fn request(&mut self) -> &mut Vec<u8> {
        self.forget_reply();
        self.drops_rows = false;
        &mut self.outgoing
    }

    /// Nothing reads the rows of the replies to what was requested: a long result need not be kept. Until the next request.
    #[inline]
    pub fn drop_rows(&mut self) {
        self.drops_rows = true;
    }

    /// Drops what need not be kept of the reply that is being received. Returns whether more of it has to come before it can be looked at.
    #[cold]
    fn thin(&mut self) -> bool {
        if self.consumed > 0 {
            return false;
        }
        if self.skip > 0 {
            let come = (self.filled - self.skip_from).min(self.skip);
            self.incoming.copy_within(self.skip_from + come..self.filled, self.skip_from);
            self.filled -= come;
            self.skip -= come;
            if self.skip > 0 {
                return true;
            }
        }
        let Thinned { kept, skip, waits } = thin(&mut self.incoming[..self.filled], self.drops_rows);
        (self.filled, self.skip_from, self.skip) = (kept, kept, skip);
        // What was kept is few, and is looked at again.
        self.scanner.reset();
        skip > 0 || waits
    }

    /// Room for what comes, at least `bytes`: by letting go of what is not kept, else by a larger buffer.
    #[cold]
    fn make_room(&mut self, bytes: usize) -> Result<(), LinkError> {
        if self.filled >= THIN_FROM {
            self.thin();
        }
        if self.filled + bytes > self.incoming.len() || self.filled > self.incoming.len() / 2 {
            Link::check_unread(self.filled - self.consumed)?;
            let larger = (self.filled + bytes).next_power_of_two().max(self.incoming.len() * 2);
            self.incoming.resize(larger, 0);
        }
        Ok(())
    }

    #[inline]
    fn forget_reply(&mut self) {
        if self.consumed == 0 {
            return;
        }
        self.incoming.copy_within(self.consumed..self.filled, 0);
        self.filled -= self.consumed;
        self.consumed = 0;
        self.scanner.reset();
    }

    /// The next reply if it is complete.
    #[inline]
    pub fn reply(&mut self) -> Result<Option<Reply>, LinkError> {
        self.forget_reply();
        if self.skip > 0 && self.thin() {
            return Ok(None);
        }
        let mut scanned = self.scanner.scan(&self.incoming[..self.filled]);
        let is_long = match &scanned {
            Ok(Scan::Incomplete { wanted }) => *wanted > self.incoming.len().max(THIN_FROM),
            Err(error) => is_too_long(error),
            Ok(_) => false,
        };
        if is_long {
            if self.thin() {
                return Ok(None);
            }
            scanned = self.scanner.scan(&self.incoming[..self.filled]);
        }
        match scanned.map_err(too_long_or_damaged)? {
            Scan::Complete { end, status, errors, notices, rollbacks } => {
                self.consumed = end;
                Ok(Some(Reply { end, status, errors, notices, rollbacks }))
            }
            Scan::Incomplete { wanted } => {
                if wanted > self.incoming.len() {
                    // A message larger than the buffer: grow once to what it needs, with room for what follows.
                    self.incoming.resize((wanted + RECEIVE_BUFFER_BYTES).next_power_of_two(), 0);
                }
                Ok(None)
            }
            // The hot path never copies through a session: a script with such a COPY is refused before it starts, and one that
            // makes it from a variable ends its session.
            Scan::Copy { .. } => Err(LinkError::Copy),
        }
    }

    /// The messages of the reply last handed out.
    #[inline]
    pub fn frames(&self, reply: Reply) -> Frames<'_> {
        Frames::new(&self.incoming[..reply.end.min(self.consumed)])
    }

    /// Bytes wait to be sent.
    #[inline]
    pub(crate) fn has_output(&self) -> bool {
        self.sent < self.outgoing.len() || self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    /// Sends as much as the socket takes. What is left goes out at the next writable edge.
    #[inline]
    pub fn send(&mut self) -> Result<(), LinkError> {
        if self.tls.is_some() {
            return self.send_tls();
        }
        while self.sent < self.outgoing.len() {
            self.traffic.sends += 1;
            match self.stream.write(&self.outgoing[self.sent..]) {
                Ok(bytes) => {
                    self.sent += bytes;
                    self.traffic.sent_bytes += bytes as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.outgoing.clear();
        self.sent = 0;
        Ok(())
    }

    fn send_tls(&mut self) -> Result<(), LinkError> {
        let Some(tls) = self.tls.as_mut() else { return Ok(()) };
        loop {
            if self.sent < self.outgoing.len() {
                self.sent += tls.writer().write(&self.outgoing[self.sent..])?;
                if self.sent == self.outgoing.len() {
                    self.outgoing.clear();
                    self.sent = 0;
                }
            }
            if !tls.wants_write() {
                return Ok(());
            }
            self.traffic.sends += 1;
            match tls.write_tls(&mut self.stream) {
                Ok(bytes) => self.traffic.sent_bytes += bytes as u64,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Takes what the socket holds. A short read means that it is drained, and no second call is made to learn that; but when the
    /// peer has closed (`to_the_end`), it is read until that shows, because no further event will come.
    #[inline]
    pub fn receive(&mut self, to_the_end: bool) -> Result<(), LinkError> {
        if self.tls.is_some() {
            return self.receive_tls();
        }
        let before = self.traffic.received_bytes;
        loop {
            if self.filled == self.incoming.len() {
                if self.traffic.received_bytes - before > READ_AT_ONCE_MAX {
                    return Err(ProtocolError::too_long_a_reply().into());
                }
                self.make_room(1)?;
            }
            let room = self.incoming.len() - self.filled;
            self.traffic.receives += 1;
            match self.stream.read(&mut self.incoming[self.filled..]) {
                Ok(0) => return Err(self.closed()),
                Ok(bytes) => {
                    self.filled += bytes;
                    self.traffic.received_bytes += bytes as u64;
                    if bytes < room && !to_the_end {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed(error)),
            }
        }
    }

    /// A server that sends faster than it is read would keep a call reading for ever: the scanner sees its bytes only after that.
    fn check_unread(bytes: usize) -> Result<(), LinkError> {
        match bytes > wire::REPLY_BYTES_MAX {
            true => Err(LinkError::TooLong),
            false => Ok(()),
        }
    }

    fn receive_tls(&mut self) -> Result<(), LinkError> {
        loop {
            if self.filled >= THIN_FROM && self.filled > self.incoming.len() / 2 {
                self.thin();
            }
            let Some(tls) = self.tls.as_mut() else { return Ok(()) };
            self.traffic.receives += 1;
            match tls.read_tls(&mut self.stream) {
                Ok(0) => return Err(self.closed()),
                Ok(bytes) => self.traffic.received_bytes += bytes as u64,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.failed(error)),
            }
            match tls.process_new_packets() {
                Ok(state) => {
                    let plain = state.plaintext_bytes_to_read();
                    Link::check_unread(self.filled - self.consumed)?;
                    if self.filled + plain > self.incoming.len() {
                        self.incoming.resize((self.filled + plain).next_power_of_two(), 0);
                    }
                    tls.reader().read_exact(&mut self.incoming[self.filled..self.filled + plain])?;
                    self.filled += plain;
                    if state.peer_has_closed() {
                        return Err(self.closed());
                    }
                }
                Err(error) => return Err(self.broken(error)),
            }
        }
    }

    /// The socket has failed: with what the server reported before. One that closes with a request unread resets the connection behind its last words.
    #[cold]
    fn failed(&self, error: io::Error) -> LinkError {
        match self.closed() {
            LinkError::Closed => error.into(),
            reported => reported,
        }
    }

    /// TLS has failed: with what the server reported before, if anything.
    #[cold]
    fn broken(&mut self, error: rustls::Error) -> LinkError {
        if let Some(tls) = self.tls.as_mut() {
            // What was good in front of the bad record; nothing at all is an error here.
            let mut last = Vec::new();
            let _ = tls.reader().read_to_end(&mut last);
            self.incoming.truncate(self.filled);
            self.incoming.extend_from_slice(&last);
            self.filled = self.incoming.len();
            // The server gets the alert, as far as its socket takes it.
            let _ = tls.write_tls(&mut self.stream);
        }
        match self.closed() {
            LinkError::Closed => LinkError::Tls(error),
            reported => reported,
        }
    }

    /// The descriptor, if an io_uring can carry the bytes: a socket without TLS.
    pub(super) fn plain_fd(&self) -> Option<RawFd> {
        if self.tls.is_some() { None } else { self.fd() }
    }

    /// From now on an io_uring carries the bytes, which needs a socket that is not in non-blocking mode.
    pub(super) fn travels_by_ring(&mut self) -> io::Result<()> {
        self.stream.set_nonblocking(false)?;
        self.is_in_ring = true;
        self.traffic.by_ring = true;
        Ok(())
    }

    /// What a ring has received.
    #[inline]
    pub(super) fn deliver(&mut self, bytes: &[u8]) {
        self.traffic.receives += 1;
        self.traffic.received_bytes += bytes.len() as u64;
        if self.filled + bytes.len() > self.incoming.len() {
            if self.filled >= THIN_FROM {
                self.thin();
            }
            let end = self.filled + bytes.len();
            if end > self.incoming.len() {
                self.incoming.resize(end.next_power_of_two(), 0);
            }
        }
        let end = self.filled + bytes.len();
        self.incoming[self.filled..end].copy_from_slice(bytes);
        self.filled = end;
    }

    /// What is to be sent.
    #[inline]
    pub(super) fn unsent(&self) -> &[u8] {
        &self.outgoing[self.sent..]
    }

    /// A ring has what was unsent. The bytes stay here until it is sure of them, see [`Link::forget_sent`], because it may give back some.
    #[inline]
    pub(super) fn handed_over(&mut self) {
        self.traffic.sends += 1;
        self.traffic.sent_bytes += self.unsent().len() as u64;
        self.sent = self.outgoing.len();
    }

    /// The ring is sure of all that it has.
    #[inline]
    pub(super) fn forget_sent(&mut self) {
        self.outgoing.drain(..self.sent);
        self.sent = 0;
    }

    /// The last so many bytes were not sent after all.
    pub(super) fn take_back(&mut self, bytes: usize) {
        let bytes = bytes.min(self.sent);
        self.sent -= bytes;
        self.traffic.sent_bytes = self.traffic.sent_bytes.saturating_sub(bytes as u64);
    }

    /// Ends both directions.
    pub(super) fn shut_down(&self) {
        self.stream.shut_down();
    }

    /// The connection has ended: with the server's last words if it left any in the buffer.
    pub(super) fn closed(&self) -> LinkError {
        Frames::new(&self.incoming[self.consumed..self.filled])
            .filter(|frame| frame.tag == tag::ERROR_RESPONSE)
            .map(|frame| ServerError::parse(frame.body))
            .find(ServerError::is_fatal)
            .map_or(LinkError::Closed, LinkError::Fatal)
    }

    /// Sends Terminate, best effort: a server that is gone does not need it.
    pub fn terminate(&mut self) {
        wire::frontend::terminate(&mut self.outgoing);
        let _ = self.send();
        if let Some(tls) = self.tls.as_mut() {
            tls.send_close_notify();
            let _ = self.send();
        }
    }

    /// The bytes its buffers hold, for the memory test.
    pub fn buffer_bytes(&self) -> usize {
        self.incoming.capacity() + self.outgoing.capacity()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if self.is_in_ring {
            self.stream.shut_down();
        }
    }
}

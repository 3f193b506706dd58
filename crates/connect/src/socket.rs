//! A stream to a server, over TCP or a Unix socket, opened with a deadline.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};

use crate::attempt::Endpoint;
use crate::conninfo::Keepalives;
use crate::ending::{LAST_WAIT, give_up, is_ending};

/// The end of `connect_timeout`; `None` waits for ever.
pub(crate) type Deadline = Option<Instant>;

/// The length of one wait, between checks whether the user wants to end.
const SLICE: Duration = Duration::from_millis(250);

/// One slice of a wait that began some time ago; an error when the time is over, or the user wants to end and has waited long enough.
fn slice(deadline: Deadline, began: Instant) -> io::Result<Option<Duration>> {
    let left = remaining(deadline)?;
    if left.is_some() && is_ending() && began.elapsed() >= LAST_WAIT {
        give_up();
        return Err(io::ErrorKind::TimedOut.into());
    }
    Ok(left.map(|left| left.min(SLICE)))
}

/// The time left until `deadline`; an error if none is.
pub(crate) fn remaining(deadline: Deadline) -> io::Result<Option<Duration>> {
    match deadline {
        None => Ok(None),
        Some(deadline) => match deadline.checked_duration_since(Instant::now()) {
            Some(left) if !left.is_zero() => Ok(Some(left)),
            _ => Err(io::ErrorKind::TimedOut.into()),
        },
    }
}

/// A connected stream.
#[derive(Debug)]
pub enum Socket {
    /// TCP, with `TCP_NODELAY`.
    Tcp(TcpStream),
    /// Unix socket.
    Unix(UnixStream),
}

impl Socket {
    /// Connects, blocking until it works, fails or the deadline is over.
    pub(crate) fn open(
        endpoint: &Endpoint,
        keepalives: &Keepalives,
        deadline: Deadline,
    ) -> io::Result<Socket> {
        match endpoint {
            Endpoint::Tcp(address) => open_tcp(address, keepalives, deadline).map(Socket::Tcp),
            Endpoint::Unix(path) => open_unix(path, deadline).map(Socket::Unix),
        }
    }

    /// Makes reads and writes return `WouldBlock` instead of waiting.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        match self {
            Socket::Tcp(stream) => stream.set_nonblocking(nonblocking),
            Socket::Unix(stream) => stream.set_nonblocking(nonblocking),
        }
    }

    /// Limits how long a read or write may wait.
    pub fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Socket::Tcp(stream) => {
                stream.set_read_timeout(timeout).and_then(|()| stream.set_write_timeout(timeout))
            }
            Socket::Unix(stream) => {
                stream.set_read_timeout(timeout).and_then(|()| stream.set_write_timeout(timeout))
            }
        }
    }

    /// The user that runs the other end of a Unix socket.
    #[cfg(target_os = "linux")]
    pub(crate) fn peer_uid(&self) -> io::Result<u32> {
        Ok(sockopt::socket_peercred(self)?.uid.as_raw())
    }
}

fn open_tcp(address: &SocketAddr, keepalives: &Keepalives, deadline: Deadline) -> io::Result<TcpStream> {
    let stream = connect_tcp(address, deadline)?;
    stream.set_nodelay(true)?;
    if keepalives.enabled {
        sockopt::set_socket_keepalive(&stream, true)?;
        if let Some(idle) = keepalives.idle {
            sockopt::set_tcp_keepidle(&stream, idle)?;
        }
        if let Some(interval) = keepalives.interval {
            sockopt::set_tcp_keepintvl(&stream, interval)?;
        }
        if let Some(count) = keepalives.count {
            sockopt::set_tcp_keepcnt(&stream, count)?;
        }
    }
    #[cfg(target_os = "linux")]
    if let Some(timeout) = keepalives.user_timeout {
        sockopt::set_tcp_user_timeout(&stream, u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX))?;
    }
    Ok(stream)
}

/// Not through the standard library: its wait cannot be ended by the user.
fn connect_tcp(address: &SocketAddr, deadline: Deadline) -> io::Result<TcpStream> {
    let began = Instant::now();
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&socket, address) {
        Err(rustix::io::Errno::INPROGRESS) => loop {
            let wait = slice(deadline, began)?.map(Timespec::try_from).transpose().ok().flatten();
            let mut polled = [PollFd::new(&socket, PollFlags::OUT)];
            match rustix::event::poll(&mut polled, wait.as_ref()) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => break sockopt::socket_error(&socket)??,
                Err(error) => return Err(error.into()),
            }
        },
        done => done?,
    }
    let stream = TcpStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Not through the standard library: it has no timeout here, and a server with a full listen queue blocks the connect.
fn open_unix(path: &Path, deadline: Deadline) -> io::Result<UnixStream> {
    let address = match path.as_os_str().as_bytes().strip_prefix(b"@") {
        #[cfg(target_os = "linux")]
        Some(name) => SocketAddrUnix::new_abstract_name(name)?,
        _ => SocketAddrUnix::new(path)?,
    };
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let began = Instant::now();
    loop {
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, slice(deadline, began)?)?;
        match rustix::net::connect(&socket, &address) {
            Ok(()) => break,
            // The kernel reports a timeout in this way.
            Err(rustix::io::Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
    }
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, None)?;
    Ok(UnixStream::from(socket))
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.read(buffer),
            Socket::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.write(bytes),
            Socket::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Tcp(stream) => stream.as_fd(),
            Socket::Unix(stream) => stream.as_fd(),
        }
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl From<Socket> for OwnedFd {
    fn from(socket: Socket) -> OwnedFd {
        match socket {
            Socket::Tcp(stream) => stream.into(),
            Socket::Unix(stream) => stream.into(),
        }
    }
}

/// A socket whose every wait ends at one deadline.
#[derive(Debug)]
pub(crate) struct Timed<'a> {
    pub(crate) socket: &'a mut Socket,
    pub(crate) deadline: Deadline,
}

impl Timed<'_> {
    /// Repeats the operation while its wait is only a slice.
    fn within(&mut self, mut act: impl FnMut(&mut Socket) -> io::Result<usize>) -> io::Result<usize> {
        let began = Instant::now();
        loop {
            if let Some(wait) = slice(self.deadline, began)? {
                self.socket.set_timeout(Some(wait))?;
            }
            match act(self.socket) {
                // The wait ended by its own timeout, with a deadline set.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && self.deadline.is_some() => {}
                result => return result,
            }
        }
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.within(|socket| socket.read(buffer))
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.within(|socket| socket.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

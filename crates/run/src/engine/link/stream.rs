//! A byte stream that never blocks: a socket, or a simulated network.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::net::UnixStream;

use rustix::net::{RecvFlags, SendFlags};

/// A byte stream that never blocks.
pub trait Pipe: std::fmt::Debug + Send {
    /// As `Read::read` on a non-blocking socket.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize>;
    /// As `Write::write` on a non-blocking socket.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;
}

/// The ways to reach a server.
#[derive(Debug)]
pub enum Stream {
    /// A unix socket.
    Unix(UnixStream),
    /// A TCP socket.
    Tcp(TcpStream),
    /// A simulated network, for tests.
    Simulated(Box<dyn Pipe>),
}

impl Stream {
    /// Makes a socket non-blocking; a simulated stream always is.
    pub fn set_nonblocking(&self, is_nonblocking: bool) -> io::Result<()> {
        match self {
            Stream::Unix(stream) => stream.set_nonblocking(is_nonblocking),
            Stream::Tcp(stream) => stream.set_nonblocking(is_nonblocking),
            Stream::Simulated(_) => Ok(()),
        }
    }

    /// Nothing more is sent or received; the peer learns it. Best effort: the peer may be gone.
    pub(super) fn shut_down(&self) {
        let _ = match self {
            Stream::Unix(stream) => stream.shutdown(Shutdown::Both),
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Stream::Simulated(_) => Ok(()),
        };
    }

    /// The descriptor to watch; a simulated stream has none.
    pub fn fd(&self) -> Option<RawFd> {
        match self {
            Stream::Unix(stream) => Some(stream.as_raw_fd()),
            Stream::Tcp(stream) => Some(stream.as_raw_fd()),
            Stream::Simulated(_) => None,
        }
    }
}

impl Read for Stream {
    #[inline]
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => receive(stream, buffer),
            Stream::Tcp(stream) => receive(stream, buffer),
            Stream::Simulated(pipe) => pipe.read(buffer),
        }
    }
}

impl Write for Stream {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => send(stream, bytes),
            Stream::Tcp(stream) => send(stream, bytes),
            Stream::Simulated(pipe) => pipe.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The system call without libc's wrapper, whose cancellation points cost every call of a process with threads. It never waits, whatever
/// the socket's own mode: an io_uring needs sockets that are not in non-blocking mode.
#[inline]
fn receive(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<usize> {
    let (received, _) = rustix::net::recv(socket, buffer, RecvFlags::DONTWAIT)?;
    Ok(received)
}

/// Likewise; a peer that is gone is an error and not a signal.
#[inline]
fn send(socket: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    Ok(rustix::net::send(socket, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?)
}

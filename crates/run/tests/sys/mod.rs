//! The one module of this crate's tests with unsafe code: a socket option that no safe library here knows.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Limits the bytes of a segment in both directions of the connections that a listening socket accepts (tcp(7), TCP_MAXSEG).
pub(crate) fn set_segment_bytes_max(socket: impl AsFd, bytes: libc::c_int) -> io::Result<()> {
    // SAFETY: the descriptor is open as long as it is borrowed, and the value is an int of the size that is given.
    let code = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_MAXSEG,
            (&raw const bytes).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

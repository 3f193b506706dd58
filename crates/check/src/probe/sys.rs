//! The only unsafe code of this crate: what the kernel knows of a TCP connection.

#![allow(unsafe_code)]

use std::net::TcpStream;
use std::os::fd::AsRawFd;

/// What the kernel counted on a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct TcpCounters {
    /// Segments sent again.
    pub(super) retransmits: u64,
    /// Segments sent; 0 from kernels that do not report it.
    pub(super) segments: u64,
}

/// Reads TCP_INFO; `None` if the kernel refuses.
pub(super) fn tcp_counters(stream: &TcpStream) -> Option<TcpCounters> {
    // SAFETY: all fields of the structure are numbers, for which zero is a value.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = libc::socklen_t::try_from(size_of::<libc::tcp_info>()).ok()?;
    // SAFETY: the kernel writes at most `length` bytes into the structure, and the descriptor is open.
    let status = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut length,
        )
    };
    if status != 0 {
        return None;
    }
    let mut long = LongTcpInfo::default();
    let mut length = libc::socklen_t::try_from(size_of::<LongTcpInfo>()).ok()?;
    // SAFETY: as above.
    let status = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut long).cast(),
            &raw mut length,
        )
    };
    let has_segments = status == 0 && length as usize >= size_of::<LongTcpInfo>();
    let segments = if has_segments { u64::from(long.segs_out) } else { 0 };
    Some(TcpCounters { retransmits: u64::from(info.tcpi_total_retrans), segments })
}

/// The kernel's structure up to the number of segments (Linux 4.2), which libc does not have.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct LongTcpInfo {
    bytes: [u8; 8],
    words: [u32; 24],
    pacing_rate: u64,
    max_pacing_rate: u64,
    bytes_acked: u64,
    bytes_received: u64,
    segs_out: u32,
    segs_in: u32,
}

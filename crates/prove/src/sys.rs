//! The one system call here that no crate wraps: cutting a file system off its disk.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::path::Path;

/// `EXT4_IOC_SHUTDOWN`, the same number as XFS's: `_IOR('X', 125, __u32)` (`fs/ext4/ext4.h`).
const SHUTDOWN: rustix::ioctl::Opcode = 0x8004_587D;
/// `EXT4_GOING_FLAGS_NOLOGFLUSH`: neither data nor journal reach the disk any more.
const NO_LOG_FLUSH: u32 = 2;

/// Cuts the file system that is mounted at `mount` off its disk: from now on every write fails, and what was not on the disk never will be. Only
/// an unmount and a new mount end that.
///
/// # Errors
/// When it is no ext4 (or XFS), or we are not root.
pub(crate) fn cut_off(mount: &Path) -> io::Result<()> {
    let dir = File::open(mount)?;
    // SAFETY: the request reads one u32 through the pointer that `Setter` passes, and keeps nothing of it.
    unsafe {
        let request = rustix::ioctl::Setter::<SHUTDOWN, u32>::new(NO_LOG_FLUSH);
        rustix::ioctl::ioctl(&dir, request)?;
    }
    Ok(())
}

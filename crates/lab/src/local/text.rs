//! Small files that others may have written or replaced.

use std::io;
use std::path::Path;

/// The longest marker, pid file, lock file or file of relays. Others may write into the folders where they are, so no more is read.
pub(super) const TEXT_BYTES_MAX: u64 = 256 << 10;

/// The text of a small plain file. Links, pipes and devices are not opened, because others may have put them there.
pub(crate) fn text_of(path: &Path) -> io::Result<String> {
    let bytes = record::file::read(path, TEXT_BYTES_MAX)?;
    String::from_utf8(bytes).map_err(io::Error::other)
}

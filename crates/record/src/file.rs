//! Files of run directories: private when they are written, and read without trust.
//!
//! Only its owner may read a run directory (statements, names, settings), whatever the umask: folders are 0700, files 0600. A directory
//! may come from any source: a link, a pipe or a device in it is refused before it is opened for good, lines and
//! files have a largest size.

use crate::error::RecordError;
use crate::held::FOLDER_MODE;
use crate::redact;
use rustix::fs::{Mode, OFlags};
use serde::Serialize;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Mode of a file of ours.
const FILE_MODE: u32 = 0o600;
/// A line of a run directory is at most this long; the longest are statements and what the server's log reports about them.
pub const LINE_BYTES_MAX: usize = 4 << 20;
/// A file that is read as a whole (`run.json`, `findings.json`) is at most this long.
pub const WHOLE_BYTES_MAX: u64 = 64 << 20;
/// Bytes read at once.
const READ_BYTES: usize = 1 << 16;

/// Makes a folder for its owner alone. The folder above must be there, the folder itself must not.
///
/// # Errors
/// Those of the system; [`ErrorKind::AlreadyExists`] if there is anything of that name.
pub fn create_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(FOLDER_MODE).create(path)?;
    // A umask may have taken bits of the owner's.
    fs::set_permissions(path, Permissions::from_mode(FOLDER_MODE))
}

/// A folder for its owner alone that may be there already: then it must be a folder of ours and no link. It is made private.
///
/// # Errors
/// Those of the system, or that it belongs to another user.
pub fn own_folder(path: &Path) -> io::Result<()> {
    match create_folder(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        made => return made,
    }
    let there = fs::symlink_metadata(path)?;
    if !there.is_dir() || there.uid() != rustix::process::geteuid().as_raw() {
        return Err(io::Error::other("it exists, and is not a folder of this user"));
    }
    fs::set_permissions(path, Permissions::from_mode(FOLDER_MODE))
}

/// Makes a file for its owner alone, to be written. There must be nothing of that name, not even a link.
///
/// # Errors
/// Those of the system; [`ErrorKind::AlreadyExists`] if there is anything of that name.
pub fn create(path: &Path) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::from_raw_mode(FILE_MODE))?);
    file.set_permissions(Permissions::from_mode(FILE_MODE))?;
    Ok(file)
}

/// Writes a file that is there wholly or not at all, for its owner alone. A file or link of that name is replaced, never written through.
///
/// # Errors
/// Those of the system; then nothing is left behind.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let name =
        path.file_name().ok_or_else(|| io::Error::other("it is not the name of a file"))?.to_string_lossy();
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let part = path.with_file_name(format!(".{name}.{}-{number}", std::process::id()));
    // Of a process that was killed and had our number.
    let _ = fs::remove_file(&part);
    let write = || -> io::Result<()> {
        let mut file = create(&part)?;
        file.write_all(content)?;
        file.sync_data()?;
        fs::rename(&part, path)
    };
    let written = write();
    if written.is_err() {
        let _ = fs::remove_file(&part);
    }
    written
}

/// Opens a plain file to be appended to, and makes it for its owner alone if there is none: no link, no pipe (which blocks until another process reads it),
/// no device.
///
/// # Errors
/// Those of [`open`].
pub fn append(path: &Path) -> io::Result<File> {
    open_plain(path, OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE)
}

/// Writes a plain file anew, which stays the same file for those that have it open; makes it for its owner alone if there is none.
///
/// # Errors
/// Those of [`open`].
pub fn overwrite(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = open_plain(path, OFlags::WRONLY | OFlags::CREATE)?;
    file.set_len(0)?;
    file.set_permissions(Permissions::from_mode(FILE_MODE))?;
    file.write_all(content)
}

/// Opens a plain file to be read: no link, no pipe, no device, no socket.
///
/// # Errors
/// Those of the system, or what it is instead of a file.
pub fn open(path: &Path) -> io::Result<File> {
    open_plain(path, OFlags::RDONLY)
}

fn open_plain(path: &Path, flags: OFlags) -> io::Result<File> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::from_raw_mode(FILE_MODE)) {
        Ok(file) => File::from(file),
        Err(rustix::io::Errno::LOOP) => {
            return Err(io::Error::other("it is a symbolic link, which is not followed"));
        }
        Err(rustix::io::Errno::NXIO) => return Err(io::Error::other("it is a socket or a pipe, not a file")),
        Err(error) => return Err(error.into()),
    };
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is a folder, a pipe or a device, not a file")),
    }
}

/// Reads a plain file as a whole.
///
/// # Errors
/// Those of [`open`], or that it is larger than `bytes_max`.
pub fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![];
    // One more than allowed: a file may grow, and its length may be a lie.
    let read = open(path)?.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    match read as u64 > bytes_max {
        true => Err(io::Error::other(format!("it is larger than {} MiB", bytes_max >> 20))),
        false => Ok(bytes),
    }
}

/// The plain files of a folder in a run directory, by name. A folder that is a link is not followed.
pub fn list(folder: &Path) -> Vec<PathBuf> {
    if !fs::symlink_metadata(folder).is_ok_and(|there| there.is_dir()) {
        return vec![];
    }
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()))
        .map(|entry| entry.path())
        .collect();
    files.sort();
    files
}

/// One line of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Line<'a> {
    /// Without its line feed; empty if it was too long.
    pub bytes: &'a [u8],
    /// Where it begins in the file.
    pub offset: u64,
    /// It is the last one and has no line feed: its writer was killed.
    pub is_torn: bool,
    /// It is longer than [`LINE_BYTES_MAX`]: only its length is known.
    pub is_too_long: bool,
}

/// Reads lines one after another in bounded memory.
#[derive(Debug)]
pub struct Lines<R> {
    reader: BufReader<R>,
    line: Vec<u8>,
    offset: u64,
}

impl<R: Read> Lines<R> {
    /// Lines from here on.
    pub fn new(reader: R) -> Lines<R> {
        Lines { reader: BufReader::with_capacity(READ_BYTES, reader), line: vec![], offset: 0 }
    }

    /// The next line; `None` at the end.
    ///
    /// # Errors
    /// Those of reading.
    pub fn next_line(&mut self) -> io::Result<Option<Line<'_>>> {
        self.line.clear();
        let offset = self.offset;
        let (mut length, mut is_torn) = (0u64, true);
        loop {
            let buffer = match self.reader.fill_buf() {
                Ok(buffer) => buffer,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if buffer.is_empty() {
                break;
            }
            let feed = buffer.iter().position(|byte| *byte == b'\n');
            let part = &buffer[..feed.unwrap_or(buffer.len())];
            if self.line.len() <= LINE_BYTES_MAX {
                self.line.extend_from_slice(&part[..part.len().min(LINE_BYTES_MAX + 1 - self.line.len())]);
            }
            let used = part.len() + usize::from(feed.is_some());
            length += used as u64;
            self.reader.consume(used);
            if feed.is_some() {
                is_torn = false;
                break;
            }
        }
        if length == 0 {
            return Ok(None);
        }
        self.offset += length;
        let is_too_long = self.line.len() > LINE_BYTES_MAX;
        let bytes = if is_too_long { &[] } else { self.line.as_slice() };
        Ok(Some(Line { bytes, offset, is_torn, is_too_long }))
    }
}

/// Replaces a JSON file so that a reader, or a crash, finds the old or the new one, never half of it.
pub(crate) fn write_atomically(path: &Path, value: &impl Serialize) -> Result<(), RecordError> {
    let json = |source| RecordError::Json { what: "a file", source };
    let mut value = serde_json::to_value(value).map_err(json)?;
    redact::value(&mut value);
    let mut text = serde_json::to_vec_pretty(&value).map_err(json)?;
    text.push(b'\n');
    replace(path, &text).map_err(RecordError::io("write", path))
}

#[cfg(test)]
mod tests;

//! Reads a foreign tar archive: it extracts only what a bundle can contain.
//!
//! Archives are read here and not by the system's tar, to check everything before a byte is written: kind and name of an entry, and
//! its size. A link, a device, a sparse file or a name that leads outside refuses the whole archive; files that no run directory
//! has are ignored. The programs that unpack (`gzip`, `zstd`, `xz`) write into a pipe, which is closed as soon as they write too much.

use record::{file, files};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Component, Path, PathBuf};

/// Entries of an archive at most.
pub(crate) const ENTRIES_MAX: usize = 10_000;
/// Bytes of all files of a bundle: samples and stacks may take 1 GiB, latencies of weeks as much again.
pub const UNPACKED_BYTES_MAX: u64 = 4 << 30;
/// Bytes of samples, events or latencies.
const LINES_BYTES_MAX: u64 = 2 << 30;
/// Bytes of one slice of stacks, and of the data of a stuck backend.
const SLICE_BYTES_MAX: u64 = 64 << 20;
/// The highest ratio of compression: real lines shrink to a fiftieth; only forged archives exceed this.
const RATIO_MAX: u64 = 250;
/// Archives below this size may have any ratio: short ones are often full of zeros.
const RATIO_FROM_BYTES: u64 = 64 << 20;
/// Length of a header; entries are rounded up to it.
const BLOCK: usize = 512;
/// A long name or a list of attributes, which are separate entries.
const EXTENSION_BYTES_MAX: u64 = 64 << 10;
/// Bytes copied at once.
const COPY_BYTES: usize = 1 << 16;

/// What is wrong with an archive.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// It contains something that a bundle never contains.
    #[error("{0}")]
    Foreign(String),
    /// It cannot be read, or its content cannot be written.
    #[error(transparent)]
    Io(#[from] io::Error),
}

fn foreign(why: impl Into<String>) -> ArchiveError {
    ArchiveError::Foreign(why.into())
}

/// How many bytes an archive of this size may unpack to.
pub(crate) fn unpacked_bytes_max(packed_bytes: u64) -> u64 {
    packed_bytes.saturating_mul(RATIO_MAX).clamp(RATIO_FROM_BYTES, UNPACKED_BYTES_MAX)
}

/// The largest size of a file by its name inside the run's folder; `None` if no run has a file of that name.
fn bytes_max(name: &str) -> Option<u64> {
    match name {
        files::RUN | files::FINDINGS | super::MANIFEST => Some(file::WHOLE_BYTES_MAX),
        files::SAMPLES | files::EVENTS | files::LATENCY => Some(LINES_BYTES_MAX),
        _ => {
            let (folder, rest) = name.split_once('/')?;
            let end = super::FOLDERS.iter().find(|(known, _)| *known == folder)?.1;
            (rest.ends_with(end) && !rest.contains('/')).then_some(SLICE_BYTES_MAX)
        }
    }
}

/// Unpacks the files of a run from a tar stream into a folder of ours. Returns the folder of the run and the names of its files.
///
/// # Errors
/// [`ArchiveError::Foreign`] for anything that a bundle never contains; the caller removes files that were already written.
pub fn unpack(
    tar: impl Read,
    into: &Path,
    unpacked_max: u64,
) -> Result<(PathBuf, Vec<String>), ArchiveError> {
    let mut reader =
        Reader { tar, left: unpacked_max.saturating_add((ENTRIES_MAX * BLOCK) as u64), unpacked_max };
    let mut names: Vec<String> = vec![];
    let mut top: Option<PathBuf> = None;
    let mut count = 0;
    while let Some(entry) = reader.next_entry()? {
        count += 1;
        if count > ENTRIES_MAX {
            return Err(foreign(format!("it has more than {ENTRIES_MAX} entries")));
        }
        let parts = parts(&entry.name)?;
        let (folder, name) = match parts.as_slice() {
            [] => (PathBuf::new(), String::new()),
            [file] if !entry.is_folder => (PathBuf::new(), file.clone()),
            [first, rest @ ..] if bytes_max(&parts.join("/")).is_none() => {
                (PathBuf::from(first), rest.join("/"))
            }
            all => (PathBuf::new(), all.join("/")),
        };
        let is_wanted = !entry.is_folder && bytes_max(&name).is_some();
        if !is_wanted {
            reader.skip(entry.bytes)?;
            continue;
        }
        if top.as_ref().is_some_and(|top| *top != folder) {
            return Err(foreign("it has more than one run"));
        }
        let limit = bytes_max(&name).unwrap_or(0);
        if entry.bytes > limit {
            return Err(foreign(format!(
                "{name} would take {} bytes, but in a run it has at most {limit}",
                entry.bytes
            )));
        }
        let folder = top.get_or_insert(folder).clone();
        reader.copy(entry.bytes, &into.join(folder), &name)?;
        names.push(name);
    }
    match top {
        Some(folder) => Ok((into.join(folder), names)),
        None => Err(foreign(if count == 0 { "it is empty" } else { "it has no run" })),
    }
}

/// The parts of a name that does not lead outside.
fn parts(name: &str) -> Result<Vec<String>, ArchiveError> {
    let outside = || foreign(format!("{name:?} leads outside"));
    let mut parts = vec![];
    for part in Path::new(name).components() {
        match part {
            Component::Normal(part) => parts.push(part.to_str().ok_or_else(outside)?.to_string()),
            Component::CurDir => {}
            _ => return Err(outside()),
        }
    }
    Ok(parts)
}

/// A file or folder.
struct Entry {
    name: String,
    bytes: u64,
    is_folder: bool,
}

struct Reader<R> {
    tar: R,
    /// Bytes that may still come.
    left: u64,
    unpacked_max: u64,
}

impl<R: Read> Reader<R> {
    /// The next file or folder; its content follows in the stream. `None` at the end.
    fn next_entry(&mut self) -> Result<Option<Entry>, ArchiveError> {
        let (mut long_name, mut long_bytes) = (None, None);
        loop {
            let Some(header) = self.header()? else { return Ok(None) };
            let bytes = long_bytes.take().map_or_else(|| number(&header[124..136]), Ok)?;
            let name = long_name.take().unwrap_or_else(|| header_name(&header));
            match header[156] {
                b'0' | 0 => {
                    // Before POSIX a folder was a file whose name ends with a slash.
                    let is_folder = name.ends_with('/');
                    return Ok(Some(Entry { name, bytes, is_folder }));
                }
                b'5' => return Ok(Some(Entry { name, bytes: 0, is_folder: true })),
                b'L' => long_name = Some(text(&self.extension(bytes)?)),
                b'x' => {
                    for (key, value) in attributes(&self.extension(bytes)?)? {
                        match key.as_str() {
                            "path" => long_name = Some(value),
                            "size" => {
                                let size = value.parse().map_err(|_| foreign("an entry has no size"))?;
                                long_bytes = Some(size);
                            }
                            sparse if sparse.starts_with("GNU.sparse") => {
                                return Err(foreign("it contains a sparse file"));
                            }
                            _ => {}
                        }
                    }
                }
                // Attributes of all following entries: none matters here.
                b'g' => drop(self.extension(bytes)?),
                _ => return Err(foreign(format!("{name:?} is neither a file nor a folder"))),
            }
        }
    }

    /// A block with a header; `None` at the end of the archive.
    fn header(&mut self) -> Result<Option<[u8; BLOCK]>, ArchiveError> {
        let mut block = [0; BLOCK];
        let mut filled = 0;
        while filled < BLOCK {
            match self.tar.read(&mut block[filled..]) {
                Ok(0) if filled == 0 => return Ok(None),
                Ok(0) => return Err(io::Error::from(ErrorKind::UnexpectedEof).into()),
                Ok(read) => filled += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.spend(BLOCK as u64)?;
        if block.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        // The checksum counts its own field as spaces.
        let sum =
            |range: std::ops::Range<usize>| block[range].iter().map(|byte| u64::from(*byte)).sum::<u64>();
        let expected = sum(0..148) + 8 * u64::from(b' ') + sum(156..BLOCK);
        match number(&block[148..156]) {
            Ok(found) if found == expected => Ok(Some(block)),
            _ => Err(foreign("it is not a tar archive, or it is damaged")),
        }
    }

    fn spend(&mut self, bytes: u64) -> Result<(), ArchiveError> {
        match self.left.checked_sub(bytes) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(foreign(format!(
                "it would take more than {} MiB, too much for a bundle of its size",
                self.unpacked_max >> 20
            ))),
        }
    }

    fn extension(&mut self, bytes: u64) -> Result<Vec<u8>, ArchiveError> {
        if bytes > EXTENSION_BYTES_MAX {
            return Err(foreign("the name of an entry is too long"));
        }
        let mut content = vec![0; rounded(bytes) as usize];
        self.spend(rounded(bytes))?;
        self.tar.read_exact(&mut content)?;
        content.truncate(bytes as usize);
        Ok(content)
    }

    fn skip(&mut self, bytes: u64) -> Result<(), ArchiveError> {
        self.spend(rounded(bytes))?;
        let skipped = io::copy(&mut self.tar.by_ref().take(rounded(bytes)), &mut io::sink())?;
        if skipped < rounded(bytes) { Err(io::Error::from(ErrorKind::UnexpectedEof).into()) } else { Ok(()) }
    }

    /// Writes the content of an entry to a new file.
    fn copy(&mut self, bytes: u64, folder: &Path, name: &str) -> Result<(), ArchiveError> {
        self.spend(rounded(bytes))?;
        let path = folder.join(name);
        for above in path.ancestors().skip(1).collect::<Vec<_>>().into_iter().rev() {
            if !above.exists() {
                file::create_folder(above)?;
            }
        }
        let mut out = match file::create(&path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                return Err(foreign(format!("{name} is in it twice")));
            }
            made => made?,
        };
        let mut buffer = vec![0; COPY_BYTES];
        let mut left = bytes;
        while left > 0 {
            let part = &mut buffer[..COPY_BYTES.min(usize::try_from(left).unwrap_or(COPY_BYTES))];
            self.tar.read_exact(part)?;
            out.write_all(part)?;
            left -= part.len() as u64;
        }
        let mut padding = [0; BLOCK];
        self.tar.read_exact(&mut padding[..(rounded(bytes) - bytes) as usize])?;
        Ok(())
    }
}

fn rounded(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK as u64).saturating_mul(BLOCK as u64)
}

/// A number in octal digits, or in binary where the first bit is set (GNU).
fn number(field: &[u8]) -> Result<u64, ArchiveError> {
    let wrong = || foreign("it is not a tar archive, or it is damaged");
    if let Some((first, rest)) = field.split_first().filter(|(first, _)| **first & 0x80 != 0) {
        let (high, low) = rest.split_at(rest.len().saturating_sub(8));
        if *first != 0x80 || high.iter().any(|byte| *byte != 0) {
            return Err(foreign("it would take more bytes than any bundle"));
        }
        return Ok(low.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)));
    }
    let digits = text(field);
    let digits = digits.trim_matches(' ');
    if digits.is_empty() {
        return Ok(0);
    }
    u64::from_str_radix(digits, 8).map_err(|_| wrong())
}

/// Text up to the first zero.
fn text(field: &[u8]) -> String {
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    String::from_utf8_lossy(&field[..end]).into_owned()
}

fn header_name(header: &[u8; BLOCK]) -> String {
    let name = text(&header[..100]);
    let prefix = if &header[257..263] == b"ustar\0" { text(&header[345..500]) } else { String::new() };
    if prefix.is_empty() { name } else { format!("{prefix}/{name}") }
}

/// `LENGTH KEY=VALUE\n`, as POSIX has it.
fn attributes(content: &[u8]) -> Result<Vec<(String, String)>, ArchiveError> {
    let wrong = || foreign("the attributes of an entry are damaged");
    let mut found = vec![];
    let mut rest = content;
    while !rest.is_empty() {
        let space = rest.iter().position(|byte| *byte == b' ').ok_or_else(wrong)?;
        let length: usize = std::str::from_utf8(&rest[..space])
            .ok()
            .and_then(|digits| digits.parse().ok())
            .ok_or_else(wrong)?;
        if length <= space + 1 || length > rest.len() {
            return Err(wrong());
        }
        let record = String::from_utf8_lossy(&rest[space + 1..length]).into_owned();
        let (key, value) = record.trim_end_matches('\n').split_once('=').ok_or_else(wrong)?;
        found.push((key.to_string(), value.to_string()));
        rest = &rest[length..];
    }
    Ok(found)
}

//! The folder for the files of a disk probe: of our own, with a marker, removed whatever happens.
//!
//! | state of `DIR/pgfathom-check` | what happens |
//! |---|---|
//! | not there | it is made, and the marker written into it |
//! | with a marker whose process is gone | a killed probe left it: its files are removed, and it is made anew |
//! | with a marker whose process lives | refused: two probes of one disk measure each other |
//! | empty | removed: a probe was killed between its first two steps |
//! | anything else | refused: it is not ours |
//!
//! The data file is unlinked as soon as it is open, so the kernel frees it with the process, even after kill -9. The file of commits keeps its
//! name, because some file systems treat a file without one differently (see `disk`); it is as long as a segment of WAL.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, mkdirat, openat, unlinkat};

/// The name of the folder.
pub const FOLDER: &str = "pgfathom-check";
/// The file in it that shows that it is ours.
pub(crate) const MARKER: &str = "made-by-pgfathom";
/// The first line of the marker.
pub(crate) const FIRST_LINE: &str = "pgfathom check: files of a disk probe, removed at its end";
/// The data file.
pub(crate) const DATA: &str = "data";
/// The file of commits.
pub(crate) const COMMITS: &str = "commits";
/// The longest marker that is read.
pub(crate) const MARKER_BYTES_MAX: u64 = 4096;

/// Why there is no folder.
#[derive(Debug, thiserror::Error)]
pub enum ScratchError {
    /// The directory is no directory.
    #[error("{path} is not a directory")]
    NoDirectory {
        /// The directory.
        path: PathBuf,
    },
    /// The folder is not ours.
    #[error("{path} is not a folder of pgfathom check; move it, or name another directory")]
    Foreign {
        /// The folder.
        path: PathBuf,
    },
    /// Another probe is at work there.
    #[error("another check measures there: process {pid} made {path}")]
    Busy {
        /// The folder.
        path: PathBuf,
        /// Its process.
        pid: u32,
    },
    /// A system call failed.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// What was to be done.
        action: &'static str,
        /// Where.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ScratchError {
    let path = path.to_path_buf();
    move |source| ScratchError::Io { action, path, source }
}

/// The folder; it is removed when this is dropped. It is held, because the directory may belong to another user, who could put a link in its place.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    directory: File,
    folder: File,
}

impl Scratch {
    /// Makes the folder below `directory`.
    ///
    /// # Errors
    /// When there is a folder of that name that is not ours or in use, or none can be made.
    pub fn make(directory: &Path) -> Result<Scratch, ScratchError> {
        if !directory.is_dir() {
            return Err(ScratchError::NoDirectory { path: directory.to_path_buf() });
        }
        let path = directory.join(FOLDER);
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(directory, flags, Mode::empty())
            .map_err(|error| failed("open", directory)(error.into()))?
            .into();
        remove_leftover(&directory, &path)?;
        let foreign = || ScratchError::Foreign { path: path.clone() };
        mkdirat(&directory, FOLDER, Mode::RWXU).map_err(|error| match io::Error::from(error) {
            // Another probe was faster.
            error if error.kind() == ErrorKind::AlreadyExists => foreign(),
            error => failed("make", &path)(error),
        })?;
        let folder = held(&directory).map_err(|_| foreign())?;
        // It could be another one by now.
        let owner = folder.metadata().map_err(failed("read", &path))?.uid();
        if owner != rustix::process::geteuid().as_raw() {
            return Err(foreign());
        }
        let scratch = Scratch { path, directory, folder };
        let text = format!("{FIRST_LINE}\n{}\n", own_identity());
        let write = || scratch.create(MARKER, OFlags::empty())?.write_all(text.as_bytes());
        write().map_err(failed("write", &scratch.path.join(MARKER)))?;
        Ok(scratch)
    }

    /// Opens a new data file without a name; `flags` are those of open(2).
    ///
    /// # Errors
    /// When the file system refuses, O_DIRECT for example.
    pub fn open(&self, flags: i32) -> io::Result<File> {
        let file = self.create(DATA, bits(flags));
        match unlinkat(&self.folder, DATA, AtFlags::empty()) {
            Err(error) if file.is_ok() => Err(error.into()),
            _ => file,
        }
    }

    /// Opens the file of commits, which keeps its name.
    ///
    /// # Errors
    /// When the file system refuses.
    pub(crate) fn open_commits(&self, flags: i32) -> io::Result<File> {
        self.create(COMMITS, bits(flags))
    }

    /// Makes a file in the folder; there must be nothing of that name.
    fn create(&self, name: &str, flags: OFlags) -> io::Result<File> {
        let flags = flags | OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(openat(&self.folder, name, flags, Mode::RUSR | Mode::WUSR)?.into())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// The flags of open(2).
fn bits(flags: i32) -> OFlags {
    OFlags::from_bits_retain(flags.cast_unsigned())
}

/// Opens the folder in this directory, and no link to one.
fn held(directory: &File) -> rustix::io::Result<File> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(directory, FOLDER, flags, Mode::empty()).map(File::from)
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed now is removed by the next probe.
        for name in [DATA, COMMITS, MARKER] {
            let _ = unlinkat(&self.folder, name, AtFlags::empty());
        }
        let _ = unlinkat(&self.directory, FOLDER, AtFlags::REMOVEDIR);
    }
}

/// Removes what a killed probe left.
fn remove_leftover(directory: &File, path: &Path) -> Result<(), ScratchError> {
    let foreign = || ScratchError::Foreign { path: path.to_path_buf() };
    let folder = match held(directory) {
        Err(rustix::io::Errno::NOENT) => return Ok(()),
        Err(rustix::io::Errno::NOTDIR | rustix::io::Errno::LOOP) => return Err(foreign()),
        held => held.map_err(|error| failed("read", path)(error.into()))?,
    };
    // An empty folder holds nothing to lose; this fails if it is not empty.
    if unlinkat(directory, FOLDER, AtFlags::REMOVEDIR).is_ok() {
        return Ok(());
    }
    let marker = marker_in(&folder).map_err(|_| foreign())?;
    let Some(identity) = marker.strip_prefix(FIRST_LINE).map(str::trim) else { return Err(foreign()) };
    if let Some(pid) = living(identity) {
        return Err(ScratchError::Busy { path: path.to_path_buf(), pid });
    }
    for name in [DATA, COMMITS, MARKER] {
        match unlinkat(&folder, name, AtFlags::empty()) {
            Err(rustix::io::Errno::NOENT) | Ok(()) => {}
            Err(error) => return Err(failed("remove", path)(error.into())),
        }
    }
    unlinkat(directory, FOLDER, AtFlags::REMOVEDIR).map_err(|_| foreign())
}

/// The text of the marker in this folder: of a plain file, and no more than a marker can have.
fn marker_in(folder: &File) -> io::Result<String> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(openat(folder, MARKER, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![];
    file.take(MARKER_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// `BOOT PID START` of this process: a process id alone is used again.
fn own_identity() -> String {
    let pid = std::process::id();
    format!("{} {pid} {}", boot_id(), start_of(pid).unwrap_or_default())
}

fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|id| id.trim().to_string()).unwrap_or_default()
}

/// The start of a process in clock ticks after boot, field 22 of its stat.
fn start_of(pid: u32) -> Option<u64> {
    const FIELD_AFTER_NAME: usize = 19;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may hold spaces and brackets; the last bracket ends it.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(FIELD_AFTER_NAME)?.parse().ok()
}

/// The process of an identity, if it still lives.
fn living(identity: &str) -> Option<u32> {
    let mut words = identity.split_ascii_whitespace();
    let (boot, pid, start) = (words.next()?, words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    (boot == boot_id() && start_of(pid) == Some(start)).then_some(pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("pgfathom-scratch-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a folder for the test");
        path
    }

    #[test]
    fn nothing_stays_and_only_the_file_of_commits_has_a_name() {
        let directory = directory("plain");
        {
            let scratch = Scratch::make(&directory).expect("a folder");
            let _file = scratch.open(0).expect("a file");
            let names: Vec<_> =
                fs::read_dir(scratch.path()).expect("ours").flatten().map(|e| e.file_name()).collect();
            assert_eq!(names, [MARKER], "the data file has no name");
            let commits = scratch.open_commits(0).expect("a file");
            let links = std::os::unix::fs::MetadataExt::nlink(&commits.metadata().expect("it is open"));
            assert_eq!(links, 1, "file systems log nothing of a file without a name");
            let error = Scratch::make(&directory).expect_err("one at a time");
            assert!(matches!(error, ScratchError::Busy { pid, .. } if pid == std::process::id()), "{error}");
        }
        assert_eq!(fs::read_dir(&directory).expect("a folder").count(), 0);
        fs::remove_dir(&directory).expect("empty");
    }

    #[test]
    fn what_a_dead_process_left_is_removed_and_a_foreign_folder_is_not() {
        let directory = directory("left");
        let folder = directory.join(FOLDER);
        fs::create_dir(&folder).expect("a folder");
        fs::write(folder.join(MARKER), format!("{FIRST_LINE}\n{} 1 12345678901\n", boot_id()))
            .expect("a marker");
        fs::write(folder.join(DATA), "x").expect("data");
        fs::write(folder.join(COMMITS), "x").expect("data");
        drop(Scratch::make(&directory).expect("the owner is gone"));
        assert!(!folder.exists());

        fs::create_dir(&folder).expect("a folder");
        fs::write(folder.join("letters"), "mine").expect("a file of a user");
        assert!(matches!(Scratch::make(&directory), Err(ScratchError::Foreign { .. })));
        assert!(folder.join("letters").exists());

        // Our marker beside a user's file: ours goes, the user's stays.
        fs::write(folder.join(MARKER), format!("{FIRST_LINE}\n{} 1 12345678901\n", boot_id()))
            .expect("a marker");
        assert!(matches!(Scratch::make(&directory), Err(ScratchError::Foreign { .. })));
        assert!(folder.join("letters").exists());
        fs::remove_dir_all(&directory).expect("ours");
        assert!(matches!(Scratch::make(&directory), Err(ScratchError::NoDirectory { .. })));
    }
}

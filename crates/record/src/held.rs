//! A folder that is used by what it is, not by its path.

use crate::owner;
use rustix::fs::{Mode, OFlags};
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Mode of a folder of ours.
pub(crate) const FOLDER_MODE: u32 = 0o700;

/// A folder that stays the same one while it is used, whatever its path leads to by then: who may write into a folder above it can put another there.
#[derive(Debug)]
pub struct Held {
    open: File,
    path: PathBuf,
}

impl Held {
    /// Opens a folder, and no link to one.
    ///
    /// # Errors
    /// Those of the system.
    pub fn open(path: &Path) -> io::Result<Held> {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = File::from(rustix::fs::open(path, flags, Mode::empty())?);
        Ok(Held { open, path: path.to_owned() })
    }

    /// A path to it, for this process and its children while this process lives.
    pub fn place(&self) -> PathBuf {
        if cfg!(target_os = "linux") {
            PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), self.open.as_raw_fd()))
        } else {
            self.path.clone()
        }
    }

    /// The path by which it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder itself.
    pub fn file(&self) -> &File {
        &self.open
    }

    /// Makes it private, unless it is shared (`/tmp`) or of another owner.
    pub(crate) fn make_private(&self) {
        if self.open.metadata().is_ok_and(|there| !owner::is_shared(&there)) {
            // The mode of another owner's folder cannot be changed; the files in it are private all the same.
            let _ = self.open.set_permissions(Permissions::from_mode(FOLDER_MODE));
        }
    }
}

/// A path below [`Held::place`] as people know it; any other path as it is.
pub fn shown(path: &Path) -> PathBuf {
    let Ok(below) = path.strip_prefix(format!("/proc/{}/fd", std::process::id())) else {
        return path.to_owned();
    };
    let mut parts = below.components();
    let folder = parts
        .next()
        .and_then(|number| fs::read_link(Path::new("/proc/self/fd").join(number.as_os_str())).ok());
    folder.map_or_else(|| path.to_owned(), |folder| folder.join(parts.as_path()))
}

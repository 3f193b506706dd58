//! A separate disk for a data directory: an ext4 in a file, mounted by a loop device. Its power can be cut, and it can be filled, without any effect
//! on others.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::journal::{Journal, Undo};
pub use super::mount::is_mounted;
use super::mount::{run, unmount};
use super::{Fault, FaultError};
use crate::sys;
use record::owner::Others;

/// Names of mounts and images begin with this.
const PREFIX: &str = "pgfathom-d-";
/// The time limit for mounting a disk again after a power cut: the last mount namespace that holds it must be gone.
const POWER_ON_TIMEOUT: Duration = Duration::from_secs(180);
/// Between two tries.
const POWER_ON_PAUSE: Duration = Duration::from_millis(100);
/// The size of a disk for the probe.
const PROBE_BYTES: u64 = 4 << 20;
/// The size of a disk for a small cluster. The file is sparse: it takes what is written.
pub const DISK_BYTES: u64 = 640 << 20;

/// A mounted file system in a file. Unmounted and removed when it is dropped, or by `prove --heal`.
#[derive(Debug)]
pub struct Disk {
    mount: PathBuf,
    image: PathBuf,
    journal: Arc<Journal>,
    id: u64,
}

impl Disk {
    /// Makes and mounts one, empty.
    ///
    /// # Errors
    /// When a step is refused; [`probe`] gives the reason as text.
    pub fn make(journal: &Arc<Journal>, bytes: u64) -> Result<Disk, FaultError> {
        check_temporary(&std::env::temp_dir())?;
        let (mount, image) = unused_names();
        let id = journal.note(Undo::Unmount { mount: mount.clone(), image: image.clone() })?;
        let disk = Disk { mount, image, journal: Arc::clone(journal), id };
        record::file::create_folder(&disk.mount).map_err(FaultError::io("create", &disk.mount))?;
        // A new file, private: others may have put a link into the folder for temporary files, and rows of the server will be in it.
        let file = record::file::create(&disk.image).map_err(FaultError::io("create", &disk.image))?;
        file.set_len(bytes).map_err(FaultError::io("size", &disk.image))?;
        drop(file);
        run("mkfs.ext4", &["-q", "-F", "-E", "nodiscard", "-m", "0"], &[&disk.image])?;
        disk.mount()?;
        // A server refuses a data directory that others may read.
        fs::set_permissions(&disk.mount, fs::Permissions::from_mode(0o700))
            .map_err(FaultError::io("chmod", &disk.mount))?;
        // initdb needs an empty folder.
        let lost = disk.mount.join("lost+found");
        fs::remove_dir(&lost).map_err(FaultError::io("remove", &lost))?;
        Ok(disk)
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.mount
    }

    fn mount(&self) -> Result<(), FaultError> {
        run("mount", &["-o", "loop"], &[&self.image, &self.mount])
    }

    /// Syncs everything written so far to the disk.
    ///
    /// # Errors
    /// When the kernel reports a failure.
    pub fn sync(&self) -> Result<(), FaultError> {
        let dir = File::open(&self.mount).map_err(FaultError::io("open", &self.mount))?;
        rustix::fs::syncfs(dir).map_err(|error| FaultError::io("sync", &self.mount)(error.into()))
    }

    /// Cuts it off: unsynced data is lost. The processes that use it keep running and get errors; kill them, then
    /// [`Disk::power_on`].
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn cut_power(&self) -> Result<(), FaultError> {
        sys::cut_off(&self.mount).map_err(FaultError::io("cut off", &self.mount))
    }

    /// Mounts it again, with the synced data.
    ///
    /// # Errors
    /// When a process still uses it.
    pub fn power_on(&self) -> Result<(), FaultError> {
        let begin = Instant::now();
        let probe = self.mount.join("pgfathom-probe");
        loop {
            unmount(&self.mount)?;
            self.mount()?;
            // A process with a mount namespace of its own (a browser's sandbox, a network namespace) copied all mounts when it was started: as long as it
            // lives, the file system is mounted there, and mounting it here is only another view of the dead disk.
            match fs::create_dir(&probe).and_then(|()| fs::remove_dir(&probe)) {
                Ok(()) => return Ok(()),
                Err(_) if begin.elapsed() < POWER_ON_TIMEOUT => std::thread::sleep(POWER_ON_PAUSE),
                Err(error) => return Err(FaultError::io("write on the newly mounted", &self.mount)(error)),
            }
        }
    }

    /// Fills it to the last block with one file, which is the way to undo it.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn fill(&self) -> Result<u64, FaultError> {
        let path = self.mount.join("pgfathom-ballast");
        let id = self.journal.note(Undo::Remove { path: path.clone() })?;
        // The folder belongs to the server's user, who may have put a link there.
        let file = record::file::create(&path).map_err(FaultError::io("create", &path))?;
        let free = |path: &Path| {
            rustix::fs::statvfs(path).map(|stat| (stat.f_bavail.saturating_mul(stat.f_frsize), stat.f_frsize))
        };
        let mut bytes = 0;
        // Free space shrinks by more than the file grows (extents need blocks, too): so in ever smaller pieces down to one block.
        while let Ok((left, block)) = free(&self.mount) {
            if left < block || block == 0 {
                break;
            }
            let mut piece = left;
            loop {
                match rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), bytes, piece) {
                    Ok(()) => break bytes += piece,
                    Err(_) if piece > block => piece = (piece / 2).max(block),
                    Err(_) => return Ok(id),
                }
            }
        }
        Ok(id)
    }
}

/// The programs that make and mount a file system take paths. So no other user may be able to put something else under a path of ours: each folder above it
/// must be root's, with no other writers, or be one such as `/tmp` where users rename only what is their own.
fn check_temporary(folder: &Path) -> Result<(), FaultError> {
    let real = folder.canonicalize().map_err(FaultError::io("find", folder))?;
    let us = rustix::process::geteuid().as_raw();
    for folder in real.ancestors() {
        let there = fs::metadata(folder).map_err(FaultError::io("look at", folder))?;
        if let Some(others) = Others::of(&there, &[us, 0]) {
            let why = io::Error::other(format!("{others}; set TMPDIR to a folder that only you can change"));
            return Err(FaultError::io("make a file system below", folder)(why));
        }
    }
    Ok(())
}

/// Names of a mount and its image that nothing has yet, in the folder for temporary files, where other users may have guessed the first ones.
fn unused_names() -> (PathBuf, PathBuf) {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    loop {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let mount = std::env::temp_dir().join(format!("{PREFIX}{}-{number}", std::process::id()));
        let image = mount.with_extension("img");
        if [&mount, &image].iter().all(|path| fs::symlink_metadata(path).is_err()) {
            return (mount, image);
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // A failed step stays in the journal, for `prove --heal`.
        let _ = self.journal.undo(self.id);
    }
}

/// Why a separate disk cannot be made here; tested once per process, by making one.
pub fn probe(journal: &Arc<Journal>) -> Result<(), String> {
    static ANSWER: OnceLock<Result<(), String>> = OnceLock::new();
    let probe = || {
        if !cfg!(target_os = "linux") {
            return Err("only Linux can cut a file system off its disk".to_owned());
        }
        if !rustix::process::geteuid().is_root() {
            return Err("only root can mount a file system".to_owned());
        }
        let disk = Disk::make(journal, PROBE_BYTES).map_err(|error| error.to_string())?;
        disk.cut_power().map_err(|error| error.to_string())?;
        disk.power_on().map_err(|error| error.to_string())
    };
    ANSWER.get_or_init(probe).clone()
}

/// [`probe`] as an error about a fault.
pub fn require(journal: &Arc<Journal>, fault: Fault) -> Result<(), FaultError> {
    probe(journal).map_err(|why| FaultError::NotPossible { fault, why })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_file_system_is_made_where_others_can_change_the_path() {
        let folder = std::env::temp_dir().join(format!("pgfathom-disk-{}", std::process::id()));
        let inner = folder.join("inner");
        fs::create_dir_all(&inner).expect("made");
        let refused = |mode: u32| {
            fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).expect("changed");
            check_temporary(&inner).err().map(|error| error.to_string())
        };
        assert_eq!(refused(0o755), None);
        assert_eq!(refused(0o1777), None);
        assert!(refused(0o777).is_some_and(|why| why.contains("below") && why.contains("pgfathom-disk")));
        fs::remove_dir_all(&folder).expect("ours");
    }
}

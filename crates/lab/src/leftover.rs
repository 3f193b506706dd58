//! Temporary folders, and the search for those of killed programs.
//!
//! Each has a marker with its process (pid, start time, and boot id), and is listed in a registry, because
//! it may be anywhere. A folder is removed only if the marker is ours and its process has ended.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use record::file;

use crate::local::state_dir;

/// The marker file of a folder.
const MARKER_NAME: &str = ".pgfathom-temporary";
/// Its first line.
const MARKER_FIRST_LINE: &str = "pgfathom temporary folder 1";
/// The longest marker.
const MARKER_BYTES_MAX: u64 = 4096;
/// The prefix of folders in the system's folder for temporary files.
const PREFIX: &str = "pgfathom-";

/// One of our folders; dropping it removes it with everything in it.
#[derive(Debug)]
pub struct Leftover {
    path: PathBuf,
    entry: Option<Entry>,
}

/// Its line in the registry.
#[derive(Debug)]
struct Entry {
    file: PathBuf,
    /// The parent folders made for it, the innermost first: they are removed with the last entry.
    made: Vec<PathBuf>,
}

impl Leftover {
    /// Makes the folder, accessible to its owner only.
    ///
    /// # Errors
    /// Those of the system.
    pub fn create(path: &Path) -> io::Result<Leftover> {
        Leftover::create_listed(path, &registry())
    }

    fn create_listed(path: &Path, registry: &Path) -> io::Result<Leftover> {
        // A folder of a killed process with the same name.
        if path.symlink_metadata().is_ok() {
            remove_if_dead(path);
        }
        file::create_folder(path)?;
        let path = fs::canonicalize(path)?;
        let text = format!("{MARKER_FIRST_LINE}\n{}\n", Process::this().line());
        let marked = file::replace(&path.join(MARKER_NAME), text.as_bytes());
        if let Err(error) = marked {
            let _ = fs::remove_dir_all(&path);
            return Err(error);
        }
        // Without an entry it is only found next to other temporary folders.
        let entry = enter(&path, registry).ok();
        Ok(Leftover { path, entry })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Leftover {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
        if let Some(entry) = &self.entry {
            let _ = fs::remove_file(&entry.file);
            // A folder that is not empty is in use.
            let _ = entry.made.iter().try_for_each(fs::remove_dir);
        }
    }
}

/// A process of this host, distinguished from a later one with the same pid.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Process {
    pid: u32,
    /// Field 22 of `/proc/PID/stat`: ticks since the machine started.
    started: String,
    /// Of this run of the machine.
    boot: String,
}

impl Process {
    fn this() -> Process {
        Process::of(std::process::id()).unwrap_or(Process {
            pid: std::process::id(),
            started: "0".to_owned(),
            boot: boot(),
        })
    }

    fn of(pid: u32) -> Option<Process> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let started = stat.rsplit_once(") ")?.1.split_ascii_whitespace().nth(19)?.to_owned();
        Some(Process { pid, started, boot: boot() })
    }

    fn line(&self) -> String {
        format!("pid {} started {} boot {}", self.pid, self.started, self.boot)
    }

    fn read(line: &str) -> Option<Process> {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let ["pid", pid, "started", started, "boot", boot] = words.as_slice() else { return None };
        Some(Process { pid: pid.parse().ok()?, started: (*started).to_owned(), boot: (*boot).to_owned() })
    }

    fn is_gone(&self) -> bool {
        self.boot != boot() || Process::of(self.pid).is_none_or(|now| now.started != self.started)
    }
}

fn boot() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let id = id.trim();
    if id.is_empty() { "unknown".to_owned() } else { id.to_owned() }
}

fn registry() -> PathBuf {
    state_dir().join("temporary")
}

/// Lists a folder.
fn enter(folder: &Path, registry: &Path) -> io::Result<Entry> {
    let made = registry.ancestors().take_while(|folder| folder.symlink_metadata().is_err());
    let made = made.map(Path::to_owned).collect();
    fs::create_dir_all(registry)?;
    let hash = record::statement::fnv(folder.as_os_str().as_encoded_bytes().iter().copied());
    let name = format!("{}-{hash:x}", std::process::id());
    let entry = registry.join(name);
    file::replace(&entry, folder.as_os_str().as_encoded_bytes())?;
    Ok(Entry { file: entry, made })
}

/// The process that made a folder; `None` if the folder is not ours.
fn maker(folder: &Path) -> Option<Process> {
    let there = fs::symlink_metadata(folder).ok()?;
    let marker = folder.join(MARKER_NAME);
    let marked = fs::symlink_metadata(&marker).ok()?;
    // A folder of another owner is not trusted.
    if !there.is_dir() || there.uid() != rustix::process::geteuid().as_raw() || marked.uid() != there.uid() {
        return None;
    }
    let text = String::from_utf8(file::read(&marker, MARKER_BYTES_MAX).ok()?).ok()?;
    let mut lines = text.lines();
    (lines.next() == Some(MARKER_FIRST_LINE)).then(|| lines.next().and_then(Process::read)).flatten()
}

fn remove_if_dead(folder: &Path) -> bool {
    maker(folder).is_some_and(|process| process.is_gone()) && fs::remove_dir_all(folder).is_ok()
}

/// Removes the folders of programs that were killed; returns which.
pub fn remove_leftovers() -> Vec<PathBuf> {
    remove_in(&registry(), &std::env::temp_dir())
}

fn remove_in(registry: &Path, temporary: &Path) -> Vec<PathBuf> {
    let mut removed = vec![];
    for entry in file::list(registry) {
        let Ok(bytes) = file::read(&entry, MARKER_BYTES_MAX) else { continue };
        let folder = PathBuf::from(String::from_utf8_lossy(&bytes).into_owned());
        if remove_if_dead(&folder) {
            removed.push(folder.clone());
        }
        if folder.symlink_metadata().is_err() {
            let _ = fs::remove_file(&entry);
        }
    }
    for entry in fs::read_dir(temporary).into_iter().flatten().flatten() {
        let is_named_so = entry.file_name().to_string_lossy().starts_with(PREFIX);
        if is_named_so && remove_if_dead(&entry.path()) {
            removed.push(entry.path());
        }
    }
    removed.sort();
    removed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_dead_processes_are_removed_and_no_others() {
        let root = std::env::temp_dir().join(format!("leftover-test-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        let (registry, temporary) = (root.join("registry"), root.join("tmp"));
        fs::create_dir_all(&temporary).expect("made");
        let alive = Leftover::create_listed(&root.join("alive"), &registry).expect("made");
        let made = |path: &Path, marker: &str| {
            fs::create_dir_all(path).expect("made");
            fs::write(path.join(MARKER_NAME), marker).expect("written");
            fs::write(path.join("content"), "x").expect("written");
        };
        let dead = Process { started: "1".to_owned(), ..Process::this() };
        let other_boot = Process { boot: "earlier".to_owned(), ..Process::this() };
        let text = |process: &Process| format!("{MARKER_FIRST_LINE}\n{}\n", process.line());
        // Anywhere, known by the registry; and in the folder for temporary files, known by name.
        made(&root.join("elsewhere"), &text(&dead));
        enter(&root.join("elsewhere"), &registry).expect("listed");
        made(&temporary.join("pgfathom-x"), &text(&other_boot));
        made(&temporary.join("other"), &text(&dead));
        made(&temporary.join("pgfathom-foreign"), "of another program\n");
        made(&temporary.join("pgfathom-alive"), &text(&Process::this()));
        let removed = remove_in(&registry, &temporary);
        assert_eq!(removed, [root.join("elsewhere"), temporary.join("pgfathom-x")]);
        for stays in [
            alive.path(),
            &temporary.join("other"),
            &temporary.join("pgfathom-foreign"),
            &temporary.join("pgfathom-alive"),
        ] {
            assert!(stays.exists(), "{}", stays.display());
        }
        // With the last entry the folder of the registry is removed.
        let entries = || fs::read_dir(&registry).map_or(0, Iterator::count);
        assert_eq!(entries(), 1, "the dead one's entry is gone");
        let path = alive.path().to_owned();
        drop(alive);
        assert!(!path.exists() && entries() == 0);
        // The name of a folder that a killed process left can be used again.
        made(&root.join("alive"), &text(&dead));
        drop(Leftover::create_listed(&root.join("alive"), &registry).expect("made anew"));
        fs::remove_dir_all(&root).expect("ours");
    }
}

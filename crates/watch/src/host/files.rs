//! The source of kernel files: this host, a recorded tree (`--sysroot DIR`), or the shipment of a remote host.
//!
//! Every parser of this folder takes text, and every reader takes [`Files`], so that the same code reads a live host, a
//! fixture, and the other end of an ssh pipe.
//!
//! The parsers are our own, not `procfs-core`'s. That crate fails a whole file for one odd field (an I/O count in flight below
//! zero, `/proc/pressure/cpu` of kernels that have no `full` line), panics on a torn pressure line, and leaves the octal escapes in
//! mount points; and it lacks half of the files that are read here. Monitoring must continue with the remaining data.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The longest file under /proc or /sys that is read here; longer ones are cut.
pub(crate) const FILE_BYTES_MAX: usize = 4 << 20;
/// First size of the read buffer; it grows to what the longest file needs and stays.
const BUFFER_BYTES: usize = 64 << 10;
/// Handles kept open at most; files beyond that are opened for each read.
const HANDLES_MAX: usize = 256;

/// Why there is no text.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Absent {
    /// No such file: the kernel, the hardware or the process does not have it.
    #[error("not there")]
    Missing,
    /// Reading needs a privilege that this process lacks.
    #[error("permission denied")]
    Denied,
    /// Anything else: the device refused, the kernel has the facility switched off.
    #[error("could not be read")]
    Unreadable,
}

impl Absent {
    fn of(error: &io::Error) -> Absent {
        match error.kind() {
            // Reading a file of a process after its end fails with ESRCH.
            io::ErrorKind::NotFound => Absent::Missing,
            io::ErrorKind::PermissionDenied => Absent::Denied,
            _ if error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => Absent::Missing,
            _ => Absent::Unreadable,
        }
    }
}

/// A tree of kernel files. Paths are absolute, as on the described host.
pub trait Files {
    /// The text of a file that is read rarely.
    fn text(&mut self, path: &str) -> Result<&str, Absent>;

    /// The text of a file that is read every tick: its handle may be kept.
    fn kept(&mut self, path: &str) -> Result<&str, Absent> {
        self.text(path)
    }

    /// The names in a folder, in natural order (`mc2` before `mc10`); empty if there is none.
    fn entries(&mut self, folder: &str) -> Vec<String>;

    /// Where a symbolic link points to, as stored.
    fn link(&mut self, path: &str) -> Option<String>;

    /// Whether this host itself can be queried (statvfs, st_dev, programs): false for a recording and a remote host.
    fn is_live(&self) -> bool {
        false
    }
}

/// One trimmed word or number out of a one-line file.
pub fn word(files: &mut dyn Files, path: &str) -> Option<String> {
    files.text(path).ok().map(|text| text.trim().to_string()).filter(|text| !text.is_empty())
}

/// A one-line file's number.
pub fn number(files: &mut dyn Files, path: &str) -> Option<u64> {
    files.text(path).ok()?.trim().parse().ok()
}

/// Files under a root folder: `/` is this host, any other folder a recorded tree.
#[derive(Debug)]
pub struct Tree {
    root: PathBuf,
    live: bool,
    kept: HashMap<String, File>,
    buffer: Vec<u8>,
    /// Text converted to UTF-8.
    lossy: String,
    opened: u64,
}

impl Tree {
    /// This machine.
    pub fn live() -> Tree {
        Tree { live: true, ..Tree::recorded(Path::new("/")) }
    }

    /// A recorded tree.
    pub fn recorded(root: &Path) -> Tree {
        Tree {
            root: root.to_path_buf(),
            live: false,
            kept: HashMap::new(),
            buffer: vec![0; BUFFER_BYTES],
            lossy: String::new(),
            opened: 0,
        }
    }

    /// The number of files opened so far: opening is expensive.
    pub fn opened(&self) -> u64 {
        self.opened
    }

    fn open(&mut self, path: &str) -> Result<File, Absent> {
        self.opened += 1;
        File::open(self.at(path)).map_err(|error| Absent::of(&error))
    }

    /// Continues with another tree, a later recording of the same host.
    pub fn move_to(&mut self, root: &Path) {
        self.root = root.to_path_buf();
        self.kept.clear();
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Reads from the beginning. A read at offset 0 generates kernel files again, so a kept handle gives fresh numbers and
    /// saves the look-up of the path.
    fn fill(buffer: &mut Vec<u8>, file: &File) -> io::Result<usize> {
        let mut length = 0;
        loop {
            if length == buffer.len() {
                if length >= FILE_BYTES_MAX {
                    return Ok(length);
                }
                buffer.resize(length * 2, 0);
            }
            match file.read_at(&mut buffer[length..], length as u64) {
                Ok(0) => return Ok(length),
                Ok(count) => length += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn as_text(&mut self, length: usize) -> &str {
        match std::str::from_utf8(&self.buffer[..length]) {
            Ok(_) => {}
            Err(_) => {
                self.lossy = String::from_utf8_lossy(&self.buffer[..length]).into_owned();
                return &self.lossy;
            }
        }
        // Checked just above; a second look-up is cheaper than a copy.
        std::str::from_utf8(&self.buffer[..length]).unwrap_or_default()
    }
}

impl Files for Tree {
    fn text(&mut self, path: &str) -> Result<&str, Absent> {
        let file = self.open(path)?;
        let length = Tree::fill(&mut self.buffer, &file).map_err(|error| Absent::of(&error))?;
        Ok(self.as_text(length))
    }

    fn kept(&mut self, path: &str) -> Result<&str, Absent> {
        if !self.kept.contains_key(path) {
            if self.kept.len() >= HANDLES_MAX {
                return self.text(path);
            }
            let file = self.open(path)?;
            self.kept.insert(path.to_string(), file);
        }
        let read = Tree::fill(&mut self.buffer, &self.kept[path]);
        match read {
            Ok(length) => Ok(self.as_text(length)),
            Err(error) => {
                self.kept.remove(path);
                Err(Absent::of(&error))
            }
        }
    }

    fn entries(&mut self, folder: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.at(folder)) else { return vec![] };
        let mut names: Vec<String> =
            entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        sort_naturally(&mut names);
        names
    }

    fn link(&mut self, path: &str) -> Option<String> {
        fs::read_link(self.at(path)).ok().map(|target| target.to_string_lossy().into_owned())
    }

    fn is_live(&self) -> bool {
        self.live
    }
}

/// Files that another program read and sent: a remote machine's shipment, or a test's.
#[derive(Clone, Debug, Default)]
pub struct Shipped {
    texts: BTreeMap<String, String>,
    links: BTreeMap<String, String>,
}

impl Shipped {
    /// Puts or replaces a file.
    pub fn put(&mut self, path: &str, text: String) {
        self.texts.insert(path.to_string(), text);
    }

    /// Puts a symbolic link.
    pub(crate) fn put_link(&mut self, path: &str, target: &str) {
        self.links.insert(path.to_string(), target.to_string());
    }

    /// Forgets the files and links whose path is one of these.
    pub(crate) fn forget_where(&mut self, is_one: fn(&str) -> bool) {
        self.texts.retain(|path, _| !is_one(path));
        self.links.retain(|path, _| !is_one(path));
    }

    /// How many files there are.
    pub fn len(&self) -> usize {
        self.texts.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }
}

impl Files for Shipped {
    fn text(&mut self, path: &str) -> Result<&str, Absent> {
        self.texts.get(path).map(String::as_str).ok_or(Absent::Missing)
    }

    fn entries(&mut self, folder: &str) -> Vec<String> {
        let folder = format!("{}/", folder.trim_end_matches('/'));
        let mut names: Vec<String> = vec![];
        for path in self.texts.keys().chain(self.links.keys()) {
            let Some(rest) = path.strip_prefix(&folder) else { continue };
            let name = rest.split('/').next().unwrap_or_default().to_string();
            if !name.is_empty() && !names.contains(&name) {
                names.push(name);
            }
        }
        sort_naturally(&mut names);
        names
    }

    fn link(&mut self, path: &str) -> Option<String> {
        self.links.get(path).cloned()
    }
}

/// Sorts so that numbers inside names count as numbers.
fn sort_naturally(names: &mut [String]) {
    names.sort_by_cached_key(|name| {
        let mut key: Vec<(String, u64)> = vec![];
        let mut rest = name.as_str();
        while !rest.is_empty() {
            let digit = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
            let (letters, tail) = rest.split_at(digit);
            let end = tail.find(|c: char| !c.is_ascii_digit()).unwrap_or(tail.len());
            key.push((letters.to_string(), tail[..end].parse().unwrap_or(u64::MAX)));
            rest = &tail[end..];
        }
        key
    });
}

/// A number with only its significant digits, because days of samples are written.
pub fn rounded(value: f64) -> f64 {
    const STEPS: f64 = 10_000.0;
    (value * STEPS).round() / STEPS
}

/// The growth of a counter. It handles 32-bit counters that wrapped; one that was reset gives `None`.
pub fn growth(before: u64, now: u64) -> Option<u64> {
    const WRAP: u64 = 1 << 32;
    match now.checked_sub(before) {
        Some(growth) => Some(growth),
        // Only a counter in the upper half of 32 bits can have wrapped between two ticks; any other went back.
        None if (WRAP / 2..WRAP).contains(&before) && now < WRAP / 2 => Some(now + WRAP - before),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_kept_handle_reads_what_was_written_since() {
        let root = std::env::temp_dir().join(format!("pgfathom-files-{}", std::process::id()));
        fs::create_dir_all(root.join("proc")).expect("a folder");
        let mut file = File::create(root.join("proc/stat")).expect("a file");
        file.write_all(b"one\n").expect("written");
        let mut tree = Tree::recorded(&root);
        assert_eq!(tree.kept("/proc/stat"), Ok("one\n"));
        file.write_all(b"two \xff\n").expect("written");
        assert_eq!(tree.kept("/proc/stat"), Ok("one\ntwo \u{fffd}\n"));
        assert_eq!(tree.text("/proc/nothing"), Err(Absent::Missing));
        assert_eq!(tree.text("/proc"), Err(Absent::Unreadable), "a folder is no file");
        fs::remove_dir_all(&root).expect("removed");
    }

    #[test]
    fn a_file_longer_than_the_buffer_is_read_whole() {
        let path = std::env::temp_dir().join(format!("pgfathom-long-{}", std::process::id()));
        fs::write(&path, "x".repeat(BUFFER_BYTES * 3 + 1)).expect("written");
        let mut tree = Tree::recorded(Path::new("/"));
        assert_eq!(tree.text(&path.to_string_lossy()).map(str::len), Ok(BUFFER_BYTES * 3 + 1));
        fs::remove_file(&path).expect("removed");
    }

    #[test]
    fn shipped_files_form_folders() {
        let mut shipped = Shipped::default();
        for name in ["mc10/ce_count", "mc2/ce_count", "mc2/dimm0/dimm_ce_count"] {
            shipped.put(&format!("/edac/{name}"), "1\n".to_string());
        }
        assert_eq!(shipped.entries("/edac"), ["mc2", "mc10"]);
        assert_eq!(shipped.entries("/edac/mc2"), ["ce_count", "dimm0"]);
        assert_eq!(number(&mut shipped, "/edac/mc2/ce_count"), Some(1));
        shipped.forget_where(|path| path.starts_with("/edac/mc2/"));
        assert_eq!(shipped.entries("/edac"), ["mc10"]);
    }

    #[test]
    fn counters_wrap_and_are_set_back() {
        assert_eq!(growth(5, 7), Some(2));
        assert_eq!(growth(u64::from(u32::MAX), 4), Some(5));
        assert_eq!(growth(1 << 40, 4), None, "a 64-bit counter does not wrap");
        assert_eq!(growth(1000, 4), None, "set back by a reboot or a hot-plug");
    }
}

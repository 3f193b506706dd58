//! What is known of the sampled processes when the ring is read: their names, and which files are mapped where.
//!
//! | the process | its mappings are those of |
//! |---|---|
//! | is there | itself |
//! | has ended, and began while the ring recorded | its parent: server processes are forks of the postmaster. Not if it loaded another program |
//! | has ended, and was there before | a process, or the parent of one, with a file mapped wherever it ran: programs are loaded at random addresses |

use super::records::{Sample, Samples};
use record::file;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Processes whose mappings are read, those with the most samples.
const PROCESSES_MAX: usize = 1024;
/// Generations that are followed to a process that is still there.
const GENERATIONS_MAX: usize = 16;
/// Below, programs are loaded at fixed addresses, so an address does not identify one.
const RANDOM_FROM: u64 = 1 << 32;
/// The name of memory without a file, as perf prints it.
const ANONYMOUS: &str = "//anon";
/// The end of the name of a file that was removed.
const DELETED: &str = " (deleted)";

/// A part of memory with code.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Mapping {
    start: u64,
    end: u64,
    offset: u64,
    /// The place in [`Captured::mapped`].
    pub(super) what: usize,
}

impl Mapping {
    /// The offset of an address in the file.
    pub(super) fn offset_of(&self, address: u64) -> u64 {
        (address - self.start).wrapping_add(self.offset)
    }
}

/// What is mapped.
#[derive(Debug)]
pub(super) struct Mapped {
    /// The path in the view of the process, or `[vdso]`.
    pub(super) name: String,
    pub(super) file: Option<File>,
}

/// The processes of some samples.
#[derive(Debug, Default)]
pub(super) struct Captured {
    /// Different sets of mappings, each by address.
    spaces: Vec<Vec<Mapping>>,
    space_of: BTreeMap<u32, usize>,
    commands: BTreeMap<u32, String>,
    pub(super) mapped: Vec<Mapped>,
}

impl Captured {
    /// Looks at the processes of the samples. `proc` is `/proc`, or that of a test.
    pub(super) fn of(samples: &Samples, proc: &Path) -> Captured {
        let mut capture = Capture {
            proc: proc.to_path_buf(),
            captured: Captured::default(),
            known_spaces: BTreeMap::new(),
            known_files: BTreeMap::new(),
        };
        let mut counts: BTreeMap<u32, u64> = BTreeMap::new();
        for sample in samples.all.iter().filter(|sample| sample.user_leaf().is_some()) {
            *counts.entry(sample.pid).or_default() += 1;
        }
        let mut pids: Vec<(u64, u32)> = counts.into_iter().map(|(pid, count)| (count, pid)).collect();
        pids.sort_unstable_by(|left, right| right.cmp(left));
        let mut gone: Vec<u32> = pids.into_iter().take(PROCESSES_MAX).map(|(_, pid)| pid).collect();
        gone.retain(|pid| !capture.read_maps(*pid));
        capture.name_threads(samples);
        gone.retain(|pid| !capture.follow_parents(*pid, samples));
        if !gone.is_empty() {
            capture.match_addresses(&gone, samples);
        }
        capture.captured
    }

    /// The number of a process's set of mappings.
    pub(super) fn space(&self, pid: u32) -> Option<usize> {
        self.space_of.get(&pid).copied()
    }

    /// The mapping of an address.
    pub(super) fn mapping(&self, space: usize, address: u64) -> Option<Mapping> {
        let mappings = self.spaces.get(space)?;
        let after = mappings.partition_point(|mapping| mapping.start <= address);
        mappings[..after].last().filter(|mapping| address < mapping.end).copied()
    }

    /// The name of a thread; that of its process if it is unknown.
    pub(super) fn command(&self, sample: &Sample) -> Option<&str> {
        let name = self.commands.get(&sample.tid).or_else(|| self.commands.get(&sample.pid));
        name.map(String::as_str)
    }

    /// Takes names from earlier looks, for processes that have ended since and have none.
    pub(super) fn take_names(&mut self, samples: &Samples, names: &BTreeMap<u32, String>) {
        for sample in &samples.all {
            if self.command(sample).is_none()
                && let Some(name) = names.get(&sample.pid)
            {
                self.commands.insert(sample.pid, name.clone());
            }
        }
    }

    fn is_file_at(&self, space: usize, address: u64) -> bool {
        let mapping = self.mapping(space, address);
        mapping.is_some_and(|mapping| self.mapped[mapping.what].name.starts_with('/'))
    }
}

/// A [`Captured`] while it is made.
#[derive(Debug)]
struct Capture {
    proc: PathBuf,
    captured: Captured,
    known_spaces: BTreeMap<Vec<Mapping>, usize>,
    known_files: BTreeMap<(String, String), usize>,
}

impl Capture {
    fn text(&self, path: &str) -> Option<String> {
        fs::read(self.proc.join(path)).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    fn command(&self, pid: u32, tid: u32) -> Option<String> {
        Some(self.text(&format!("{pid}/task/{tid}/comm"))?.trim_end_matches('\n').to_string())
    }

    /// Reads the mappings of a process; false if it has none (any more).
    fn read_maps(&mut self, pid: u32) -> bool {
        if self.captured.space_of.contains_key(&pid) {
            return true;
        }
        let Some(text) = self.text(&format!("{pid}/maps")) else { return false };
        let space: Vec<Mapping> = text.lines().filter_map(|line| self.mapping(pid, line)).collect();
        if space.is_empty() {
            return false;
        }
        // Forks have the same mappings of code.
        let number = self.known_spaces.get(&space).copied().unwrap_or_else(|| {
            self.captured.spaces.push(space.clone());
            self.captured.spaces.len() - 1
        });
        self.known_spaces.insert(space, number);
        self.captured.space_of.insert(pid, number);
        true
    }

    /// `55c508480000-55c508495000 r-xp 00004000 fe:00 1234   /usr/bin/dash`, if it is code.
    fn mapping(&mut self, pid: u32, line: &str) -> Option<Mapping> {
        let (range, rest) = line.split_once(' ')?;
        let (access, rest) = rest.split_once(' ')?;
        let (offset, rest) = rest.split_once(' ')?;
        let (device, rest) = rest.split_once(' ')?;
        let (inode, name) = rest.split_once(' ').unwrap_or((rest, ""));
        if !access.contains('x') {
            return None;
        }
        let (start, end) = range.split_once('-')?;
        let hex = |word: &str| u64::from_str_radix(word, 16).ok();
        let (start, end, offset) = (hex(start)?, hex(end)?, hex(offset)?);
        let name = match name.trim_start() {
            "" => ANONYMOUS,
            name => name,
        };
        let key = (format!("{device} {inode}"), name.to_string());
        let what = self.known_files.get(&key).copied().unwrap_or_else(|| {
            let file = name.starts_with('/').then(|| self.open(pid, start, end, name)).flatten();
            self.captured.mapped.push(Mapped { name: name.to_string(), file });
            self.captured.mapped.len() - 1
        });
        self.known_files.insert(key, what);
        Some(Mapping { start, end, offset, what })
    }

    /// Opens the mapped file itself if that is permitted (root), also when it was replaced; else by its path in the view of the process.
    fn open(&self, pid: u32, start: u64, end: u64, name: &str) -> Option<File> {
        // Unlike in `maps`, addresses there begin with no zeros.
        let itself = self.proc.join(format!("{pid}/map_files/{start:x}-{end:x}"));
        let opened = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(itself);
        let is_file = |file: &File| file.metadata().is_ok_and(|data| data.is_file());
        if let Some(file) = opened.ok().filter(is_file) {
            return Some(file);
        }
        let path = name.strip_prefix('/').filter(|name| !name.ends_with(DELETED) && !name.contains(".."))?;
        file::open(&self.proc.join(format!("{pid}/root")).join(path)).ok()
    }

    /// The present name of each thread, or the one that the ring has.
    fn name_threads(&mut self, samples: &Samples) {
        let threads: BTreeSet<(u32, u32)> = samples
            .all
            .iter()
            .flat_map(|sample| [(sample.pid, sample.tid), (sample.pid, sample.pid)])
            .collect();
        for (pid, tid) in threads {
            let name = match pid {
                // The idle task of each CPU.
                0 => Some("swapper".to_string()),
                _ => self.command(pid, tid).or_else(|| samples.commands.get(&tid).cloned()),
            };
            let name = name.or_else(|| self.inherited(pid, samples));
            self.captured.commands.extend(name.map(|name| (tid, name)));
        }
    }

    /// The parent of a process and its ancestors, as far as the records of forks name them, until one that loaded its own program.
    fn parents<'samples>(
        &self,
        pid: u32,
        samples: &'samples Samples,
    ) -> impl Iterator<Item = u32> + use<'samples> {
        let parent = |pid: &u32| {
            let parent = samples.parents.get(pid).copied()?;
            (!samples.executed.contains(pid)).then_some(parent)
        };
        std::iter::successors(parent(&pid), move |pid| parent(pid)).take(GENERATIONS_MAX)
    }

    fn inherited(&self, pid: u32, samples: &Samples) -> Option<String> {
        let name = |pid: u32| self.command(pid, pid).or_else(|| samples.commands.get(&pid).cloned());
        self.parents(pid, samples).find_map(name)
    }

    /// Takes the mappings of a parent.
    fn follow_parents(&mut self, pid: u32, samples: &Samples) -> bool {
        let parents: Vec<u32> = self.parents(pid, samples).collect();
        let Some(parent) = parents.into_iter().find(|parent| self.read_maps(*parent)) else { return false };
        let space = self.captured.space_of[&parent];
        self.captured.space_of.insert(pid, space);
        true
    }

    /// Takes the mappings that fit.
    fn match_addresses(&mut self, gone: &[u32], samples: &Samples) {
        let there: Vec<u32> = self.captured.space_of.keys().copied().collect();
        let parents: BTreeSet<u32> = there.iter().filter_map(|pid| self.parent_now(*pid)).collect();
        for parent in parents.into_iter().take(PROCESSES_MAX) {
            self.read_maps(parent);
        }
        let mut leaves: BTreeMap<u32, BTreeSet<u64>> = BTreeMap::new();
        for sample in samples.all.iter().filter(|sample| gone.contains(&sample.pid)) {
            leaves.entry(sample.pid).or_default().extend(sample.user_leaf());
        }
        let owners: BTreeMap<usize, u32> =
            self.captured.space_of.iter().map(|(pid, space)| (*space, *pid)).collect();
        for (pid, leaves) in leaves {
            let captured = &self.captured;
            let fits = |space: usize| {
                leaves.iter().all(|leaf| *leaf >= RANDOM_FROM && captured.is_file_at(space, *leaf))
            };
            let Some((space, owner)) = owners.iter().find(|(space, _)| fits(**space)) else { continue };
            let name = self.command(*owner, *owner);
            self.captured.space_of.insert(pid, *space);
            if let Some(name) = name {
                self.captured.commands.entry(pid).or_insert(name);
            }
        }
    }

    fn parent_now(&self, pid: u32) -> Option<u32> {
        let text = self.text(&format!("{pid}/stat"))?;
        // The scheduler's first process and those of the kernel have no mappings.
        crate::host::process::stat(&text).map(|stat| stat.parent).filter(|parent| *parent > 1)
    }
}

#[cfg(test)]
mod tests;

//! Folded stacks from the output of `perf script`, with families of functions.
//!
//! A family stands for one activity of the kernel: compilers inline functions (`ext4_mb_good_group` is gone in Linux 6.18), so a rule that looked
//! for a single name would miss it.

use record::{file, files};
use std::collections::BTreeMap;
use std::path::Path;

/// Different stacks kept; samples of others count without their frames.
pub const STACKS_MAX: usize = 50_000;
/// Bytes read of one slice.
const SLICE_BYTES_MAX: u64 = 256 << 20;

/// The allocator of ext4 looking for free blocks.
pub const EXT4_ALLOCATOR: &[&str] = &[
    "ext4_mb_good_group",
    "ext4_mb_scan_",
    "ext4_mb_regular_allocator",
    "ext4_mb_find_good_group",
    "ext4_mb_choose_next_group",
    "ext4_get_group_info",
];
/// Functions in which a CPU spins or queues for a lock of the kernel.
pub const KERNEL_LOCKS: &[&str] = &[
    "osq_lock",
    "native_queued_spin_lock_slowpath",
    "queued_spin_lock_slowpath",
    "__pv_queued_spin_lock_slowpath",
    "rwsem_down_write_slowpath",
    "rwsem_down_read_slowpath",
    "rwsem_spin_on_owner",
    "mutex_spin_on_owner",
];
/// The counters and the cache of ZFS.
pub const ZFS_COUNTERS: &[&str] = &["aggsum_", "arc_", "dbuf_"];
/// Auditing of system calls.
pub const AUDIT: &[&str] = &["audit_", "__audit_", "kauditd_"];

/// Samples by stack, frames from the leaf to the root.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stacks {
    folded: BTreeMap<Vec<String>, u64>,
    samples: u64,
}

impl Stacks {
    /// All slices of a run directory; `None` if there are none with a sample. Unreadable ones are reported.
    pub fn read(dir: &Path) -> (Option<Stacks>, Vec<String>) {
        let mut problems = vec![];
        let mut stacks = Stacks::default();
        let folder = dir.join(files::STACKS);
        for slice in file::list(&folder) {
            match file::read(&slice, SLICE_BYTES_MAX) {
                Ok(bytes) => stacks.take(&String::from_utf8_lossy(&bytes)),
                Err(error) => problems.push(format!("{}: {error}", slice.display())),
            }
        }
        ((stacks.samples > 0).then_some(stacks), problems)
    }

    /// Reads the text of `perf script`: a line per sample, its frames indented below it from the leaf to the root, then an empty line.
    pub fn take(&mut self, text: &str) {
        let mut frames: Vec<String> = vec![];
        let mut open = false;
        for line in text.lines().chain([""]) {
            if line.starts_with('#') {
                continue;
            }
            let is_frame = line.starts_with([' ', '\t']);
            if open && !is_frame {
                self.add(std::mem::take(&mut frames));
                open = false;
            }
            if is_frame {
                frames.extend(symbol(line));
            } else if !line.trim().is_empty() {
                open = true;
            }
        }
    }

    fn add(&mut self, frames: Vec<String>) {
        // perf's bookkeeping event has no stack; a sample without frames does not show where time went.
        if frames.is_empty() {
            return;
        }
        self.samples += 1;
        if self.folded.len() < STACKS_MAX || self.folded.contains_key(&frames) {
            *self.folded.entry(frames).or_default() += 1;
        }
    }

    /// Samples with a stack.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// The share of samples with a function of the family anywhere in their stack.
    pub fn share_with(&self, family: &[&str]) -> f64 {
        self.share(|frames| frames.iter().any(|frame| is_of(frame, family)))
    }

    /// The share of samples whose leaf is of the family.
    pub fn share_in(&self, family: &[&str]) -> f64 {
        self.share(|frames| frames.first().is_some_and(|frame| is_of(frame, family)))
    }

    /// The share of samples whose leaf is of one family and that came there through another.
    pub fn share_in_through(&self, leaf: &[&str], through: &[&str]) -> f64 {
        self.share(|frames| {
            frames.first().is_some_and(|frame| is_of(frame, leaf))
                && frames.iter().any(|frame| is_of(frame, through))
        })
    }

    /// The functions that called a leaf of the family, with their share of those samples: lock functions and what wraps them left out.
    pub fn callers(&self, leaf: &[&str], most: usize) -> Vec<(String, f64)> {
        const WRAPPERS: [&str; 8] =
            ["mutex_", "__mutex_", "_raw_spin_", "rwsem_", "down_", "queued_", "native_", "__pv_"];
        let mut callers: BTreeMap<&str, u64> = BTreeMap::new();
        let mut all = 0;
        for (frames, count) in &self.folded {
            if !frames.first().is_some_and(|frame| is_of(frame, leaf)) {
                continue;
            }
            let named = |frame: &&String| !is_of(frame, leaf) && !is_of(frame, &WRAPPERS);
            if let Some(caller) = frames.iter().find(named) {
                *callers.entry(caller).or_default() += count;
            }
            all += count;
        }
        let mut callers: Vec<(String, f64)> = callers
            .into_iter()
            .map(|(name, count)| (name.to_string(), count as f64 / all.max(1) as f64))
            .collect();
        callers.sort_by(|left, right| right.1.total_cmp(&left.1));
        callers.truncate(most);
        callers
    }

    fn share(&self, fits: impl Fn(&[String]) -> bool) -> f64 {
        let seen = self
            .folded
            .iter()
            .filter(|(frames, _)| fits(frames))
            .map(|(_, count)| *count)
            .fold(0, u64::saturating_add);
        seen as f64 / self.samples.max(1) as f64
    }
}

fn is_of(frame: &str, family: &[&str]) -> bool {
    family.iter().any(|name| frame.starts_with(name))
}

/// The symbol of a frame: `ffffffff81 osq_lock+0x1a ([kernel.kallsyms])`. `None` of what is no frame.
fn symbol(line: &str) -> Option<String> {
    let mut words = line.split_whitespace();
    let address = words.next()?;
    if !address.chars().all(|c| c.is_ascii_hexdigit()) {
        return None;
    }
    let name = words.next()?;
    Some(name.split('+').next().unwrap_or(name).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_perf_script_is_folded() {
        let mut stacks = Stacks::default();
        stacks.take(include_str!("../tests/fixtures/osq_lock_aggsum.perf"));
        assert_eq!(stacks.samples(), 8);
        assert_eq!(stacks.share_in_through(KERNEL_LOCKS, ZFS_COUNTERS), 3.0 / 8.0);
        assert_eq!(stacks.share_with(EXT4_ALLOCATOR), 0.0);
        let callers = stacks.callers(KERNEL_LOCKS, 3);
        assert_eq!(callers[0], ("aggsum_add".to_string(), 1.0));
    }

    #[test]
    fn what_is_no_sample_is_none() {
        let mut stacks = Stacks::default();
        stacks.take("# clock: monotonic\n\npostgres 1 1.0: cpu-clock:\n\ngarbage\n   zzz\n");
        assert_eq!(stacks.samples(), 0);
        assert_eq!(stacks.share_with(AUDIT), 0.0);
    }
}

//! Folded stacks, with families of functions, and those of each statement.
//!
//! A family stands for one activity of the kernel: compilers inline functions (`ext4_mb_good_group` is gone in Linux 6.18), so a rule that looked
//! for a single name would miss it.

use record::stacks::{self, AtWork, Slice, Stack};
use std::collections::BTreeMap;
use std::path::Path;

/// Different stacks kept; samples of others count without their frames.
pub const STACKS_MAX: usize = 50_000;
/// A process is at work with one statement if this share of the looks at it say so ...
const LOOKS_SHARE_MIN: f64 = 0.8;
/// ... of so many.
const LOOKS_MIN: usize = 2;
/// Samples of a statement that show what it does: two fifths of so many are known to within a sixth of all.
pub const SAMPLES_MIN: u64 = 40;
/// Else a sample is of the statement that was seen before and after it, if these looks are not further away.
const NEAR_US: u64 = 1_500_000;

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

/// What server processes do to log a session in.
pub(crate) const LOG_IN: &[&str] = &[
    "ClientAuthentication",
    "PerformAuthentication",
    "CheckSASLAuth",
    "CheckPWChallengeAuth",
    "pg_be_scram_",
    "scram_",
    "pg_hmac_",
    "secure_open_server",
    "be_tls_open_server",
];
/// Libraries that compute for them, and have no frame pointers: who called them is not known.
const CRYPTO: [&str; 2] = ["libcrypto.so", "libssl.so"];

/// Names of the server's program.
const SERVERS: [&str; 2] = ["postgres", "postmaster"];

/// A statement: its node, and its id.
type Named = (String, String);

/// Samples by stack, frames from the leaf to the root.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stacks {
    folded: BTreeMap<Vec<String>, u64>,
    samples: u64,
    of_server: u64,
    /// Those of server processes without a statement: in functions that log a session in, and in the libraries that compute for these.
    log_in: u64,
    crypto: u64,
    modules: BTreeMap<String, u64>,
    functions: BTreeMap<String, u64>,
    /// Those of processes that were seen at work with a statement.
    of_statements: BTreeMap<Named, Stacks>,
}

impl Stacks {
    /// All slices of a run directory whose run began at this time; `None` if there are none with a sample. Unreadable ones are reported.
    pub fn read(dir: &Path, started_us: u64) -> (Option<Stacks>, Vec<String>) {
        let (slices, problems) = stacks::read(dir, started_us);
        let mut found = Stacks::default();
        slices.iter().for_each(|slice| found.take(slice));
        ((found.samples > 0).then_some(found), problems)
    }

    /// Adds the samples of a slice.
    pub fn take(&mut self, slice: &Slice) {
        let mut looks: BTreeMap<u64, Vec<&AtWork>> = BTreeMap::new();
        slice.at_work.iter().for_each(|look| looks.entry(look.pid).or_default().push(look));
        let usual: BTreeMap<u64, Option<&AtWork>> =
            looks.iter().map(|(pid, looks)| (*pid, usual(looks))).collect();
        for stack in &slice.stacks {
            let looks = looks.get(&stack.pid).map_or(&[][..], Vec::as_slice);
            let statement = usual.get(&stack.pid).copied().flatten().or_else(|| around(looks, stack.t_us));
            if let Some(look) = statement {
                let name = (look.node.clone(), look.query_id.clone());
                self.of_statements.entry(name).or_default().add(stack);
            } else if is_server(stack) {
                let is_crypto = |file: &str| CRYPTO.iter().any(|library| file.starts_with(library));
                if stack.frames.iter().any(|frame| is_of(frame, LOG_IN)) {
                    self.log_in += 1;
                } else if stack.file.as_deref().is_some_and(is_crypto) {
                    self.crypto += 1;
                }
            }
            self.add(stack);
        }
    }

    fn add(&mut self, stack: &Stack) {
        self.samples += 1;
        self.of_server += u64::from(is_server(stack));
        if let Some(module) = &stack.module {
            *self.modules.entry(module.clone()).or_default() += 1;
        }
        if let Some(function) = &stack.function {
            *self.functions.entry(function.clone()).or_default() += 1;
        }
        if self.folded.len() < STACKS_MAX || self.folded.contains_key(&stack.frames) {
            *self.folded.entry(stack.frames.clone()).or_default() += 1;
        }
    }

    /// Samples of server processes.
    pub(crate) fn of_server(&self) -> u64 {
        self.of_server
    }

    /// Samples of server processes that log sessions in: those known by their functions, and those in libraries for encryption. The latter also
    /// encrypt what is sent.
    pub(crate) fn log_in(&self) -> (u64, u64) {
        (self.log_in, self.crypto)
    }

    /// The samples of a statement.
    pub fn of_statement(&self, node: &str, query_id: &str) -> Option<&Stacks> {
        self.of_statements.get(&(node.to_string(), query_id.to_string()))
    }

    /// The innermost functions of the server in the samples of a statement with these ids: those with this share or more, the largest first, at most so many.
    /// None of fewer samples than [`SAMPLES_MIN`].
    pub(crate) fn functions_of(
        &self,
        node: &str,
        ids: &[String],
        share_min: f64,
        most: usize,
    ) -> Vec<(String, f64)> {
        let all: Vec<&Stacks> = ids.iter().filter_map(|id| self.of_statement(node, id)).collect();
        let samples: u64 = all.iter().map(|one| one.samples).sum();
        if samples < SAMPLES_MIN {
            return vec![];
        }
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        for (name, count) in all.iter().flat_map(|one| &one.functions) {
            *counts.entry(name).or_default() += count;
        }
        let mut shares: Vec<(String, f64)> = counts
            .into_iter()
            .map(|(name, count)| (name.to_string(), count as f64 / samples as f64))
            .collect();
        shares.retain(|(_, share)| *share >= share_min);
        shares.sort_by(|left, right| right.1.total_cmp(&left.1));
        shares.truncate(most);
        shares
    }

    /// The module of the server in which most of the samples are, with their share.
    pub fn module(&self) -> Option<(&str, f64)> {
        let (name, count) = self.modules.iter().max_by_key(|(_, count)| **count)?;
        Some((name, *count as f64 / self.samples.max(1) as f64))
    }

    /// Functions of the family in the stacks, with the share of the samples that have each, the largest first.
    pub fn members(&self, family: &[&str]) -> Vec<(&str, f64)> {
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        for (frames, count) in &self.folded {
            let mut of_family: Vec<&str> =
                frames.iter().map(String::as_str).filter(|frame| is_of(frame, family)).collect();
            of_family.sort_unstable();
            of_family.dedup();
            for name in of_family {
                *counts.entry(name).or_default() += count;
            }
        }
        let mut shares: Vec<(&str, f64)> = counts
            .into_iter()
            .map(|(name, count)| (name, count as f64 / self.samples.max(1) as f64))
            .collect();
        shares.sort_by(|left, right| right.1.total_cmp(&left.1));
        shares
    }

    /// Samples with a stack.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// The share of samples with a function of the family anywhere in their stack.
    pub fn share_with(&self, family: &[&str]) -> f64 {
        self.share(|frames| frames.iter().any(|frame| is_of(frame, family)))
    }

    /// The share of samples with a function of the family in their stack, one of another family beside it, if that has any, and none of a third.
    pub(crate) fn share_of(&self, family: &[&str], beside: &[&str], without: &[&str]) -> f64 {
        let has = |frames: &[String], family: &[&str]| frames.iter().any(|frame| is_of(frame, family));
        self.share(|frames| {
            has(frames, family) && (beside.is_empty() || has(frames, beside)) && !has(frames, without)
        })
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

fn is_server(stack: &Stack) -> bool {
    SERVERS.contains(&stack.command.as_str())
}

/// The statement that nearly all looks at a process show.
fn usual<'a>(looks: &[&'a AtWork]) -> Option<&'a AtWork> {
    let mut counts: BTreeMap<(&str, &str), (usize, &'a AtWork)> = BTreeMap::new();
    for look in looks {
        counts.entry((&look.node, &look.query_id)).or_insert((0, look)).0 += 1;
    }
    let (most, look) = counts.into_values().max_by_key(|(count, _)| *count)?;
    (looks.len() >= LOOKS_MIN && most as f64 >= LOOKS_SHARE_MIN * looks.len() as f64).then_some(look)
}

/// The statement that a process was seen at work with before a time and after it. The looks are in order.
fn around<'a>(looks: &[&'a AtWork], t_us: u64) -> Option<&'a AtWork> {
    let after = looks.partition_point(|look| look.t_us < t_us);
    let (before, after) = (looks.get(after.checked_sub(1)?)?, looks.get(after)?);
    let is_near = |look: &AtWork| look.t_us.abs_diff(t_us) <= NEAR_US;
    let is_same = before.query_id == after.query_id && before.node == after.node;
    (is_same && is_near(before) && is_near(after)).then_some(*before)
}

fn is_of(frame: &str, family: &[&str]) -> bool {
    family.iter().any(|name| frame.starts_with(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice_of(text: &str) -> Slice {
        stacks::slice(Path::new("1-busy.perf"), text, 0)
    }

    #[test]
    fn text_of_perf_script_is_folded() {
        let mut stacks = Stacks::default();
        stacks.take(&slice_of(include_str!("../tests/fixtures/osq_lock_aggsum.perf")));
        assert_eq!(stacks.samples(), 8);
        assert_eq!(stacks.share_in_through(KERNEL_LOCKS, ZFS_COUNTERS), 3.0 / 8.0);
        assert_eq!(stacks.share_with(EXT4_ALLOCATOR), 0.0);
        let callers = stacks.callers(KERNEL_LOCKS, 3);
        assert_eq!(callers[0], ("aggsum_add".to_string(), 1.0));
    }

    #[test]
    fn what_is_no_sample_is_none() {
        let mut stacks = Stacks::default();
        stacks.take(&slice_of("# clock: monotonic\n\npostgres 1 1.0: cpu-clock:\n\ngarbage\n   zzz\n"));
        assert_eq!(stacks.samples(), 0);
        assert_eq!(stacks.share_with(AUDIT), 0.0);
    }

    /// Looks at processes, and samples of them at these tenths of a second.
    fn sampled(looks: &[(u64, u64, &str)], samples: &[(u64, u64)]) -> Stacks {
        let mut text = "# pgfathom stacks 1\n# started_monotonic_us: 0\n".to_string();
        for (tenths, pid, id) in looks {
            let (t_us, query_id, node) = (tenths * 100_000, (*id).to_string(), "n1".to_string());
            AtWork { t_us, pid: *pid, query_id, node }.write(&mut text);
        }
        for (tenths, pid) in samples {
            let (seconds, rest) = (tenths / 10, tenths % 10);
            text += &format!(
                "postgres {pid}/{pid} [000] {seconds}.{rest}00000: cpu-clock: \n\t 1 f (/usr/lib/vector.so)\n\t 2 g (/x/postgres)\n\n"
            );
        }
        let mut stacks = Stacks::default();
        stacks.take(&slice_of(&text));
        stacks
    }

    #[test]
    fn samples_are_of_the_statement_that_their_process_was_seen_with() {
        let of = |stacks: &Stacks, id: &str| stacks.of_statement("n1", id).map_or(0, Stacks::samples);
        // One process has one statement nearly always, also where it was not looked at; another has two in turn.
        let always = [(10, 7, "a"), (20, 7, "a"), (30, 7, "a"), (40, 7, "b"), (50, 7, "a"), (60, 7, "a")];
        let found = sampled(&always, &[(1, 7), (38, 7), (99, 7), (30, 8)]);
        assert_eq!((of(&found, "a"), of(&found, "b"), found.samples()), (3, 0, 4));
        assert_eq!(found.of_statement("n1", "a").and_then(Stacks::module), Some(("vector.so", 1.0)));
        let in_turn = [(10, 7, "a"), (20, 7, "a"), (30, 7, "b"), (40, 7, "b"), (80, 7, "b")];
        let found = sampled(&in_turn, &[(5, 7), (15, 7), (25, 7), (35, 7), (60, 7), (99, 7)]);
        assert_eq!(
            (of(&found, "a"), of(&found, "b")),
            (1, 1),
            "between two looks at the same, and near to both"
        );
        assert!(sampled(&[], &[(1, 7)]).of_statement("n1", "a").is_none());
    }

    #[test]
    fn the_innermost_functions_of_a_statement_are_known_from_enough_samples() {
        let seen = [(10, 7, "a"), (20, 7, "a"), (10, 8, "b"), (20, 8, "b")];
        let samples = |count: usize, pid: u64| vec![(15, pid); count];
        let found = sampled(&seen, &[samples(30, 7), samples(10, 8)].concat());
        let ids = ["a".to_string(), "b".to_string()];
        assert_eq!(found.functions_of("n1", &ids, 0.1, 3), [("f".to_string(), 1.0)]);
        assert!(found.functions_of("n1", &ids[..1], 0.1, 3).is_empty(), "30 samples");
        assert!(found.functions_of("n1", &ids, 0.1, 0).is_empty());
    }

    #[test]
    fn members_of_a_family_are_counted_once_for_each_sample() {
        let found = sampled(&[(10, 7, "a"), (20, 7, "a")], &[(1, 7), (2, 7)]);
        assert_eq!(found.members(&["g", "f"]), [("f", 1.0), ("g", 1.0)]);
        assert!(found.members(&["x"]).is_empty());
    }
}

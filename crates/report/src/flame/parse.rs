//! The text of `perf script`: a line per sample, its frames indented below it from the leaf to the root, then an empty line.

use record::{RunReader, file, files};
use std::path::Path;

/// Bytes read of one slice.
const SLICE_BYTES_MAX: u64 = 64 << 20;
/// The most slices read; a run with more has a lasting problem, and its slices look alike.
const SLICES_MAX: usize = 200;
/// Samples kept in all.
const STACKS_MAX: usize = 500_000;
/// A slice whose first sample is further than this from the moment in its name has a different clock than the run.
const CLOCK_US_MAX: u64 = 300_000_000;

/// The line of a slice with the begin of its run, on the clock of its samples.
const STARTED: &str = "# started_monotonic_us:";

/// One sample.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Stack {
    /// On the run's clock.
    pub(super) t_us: u64,
    pub(super) pid: u64,
    pub(super) command: String,
    /// From the leaf to the root.
    pub(super) frames: Vec<String>,
}

/// The samples of one file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Slice {
    reason: String,
    pub(super) stacks: Vec<Stack>,
}

impl Slice {
    /// Kept for comparison, or because every slice is kept; not for an anomaly.
    pub(super) fn is_baseline(&self) -> bool {
        ["baseline", "calm", "always"].iter().any(|word| self.reason.contains(word))
    }
}

/// All slices of a directory, and notes about unreadable ones.
pub(super) fn read(reader: &RunReader) -> (Vec<Slice>, Vec<String>) {
    let (mut slices, mut problems) = (vec![], vec![]);
    let folder = reader.path().join(files::STACKS);
    let mut paths = file::list(&folder);
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "perf"));
    if paths.len() > SLICES_MAX {
        problems.push(format!("only the first {SLICES_MAX} of {} slices are drawn", paths.len()));
        paths.truncate(SLICES_MAX);
    }
    let mut room = STACKS_MAX;
    for path in paths {
        match file::read(&path, SLICE_BYTES_MAX) {
            Ok(bytes) => {
                let mut slice =
                    slice(&path, &String::from_utf8_lossy(&bytes), reader.run.started.monotonic_us);
                slice.stacks.truncate(room);
                room -= slice.stacks.len();
                slices.push(slice);
            }
            Err(error) => problems.push(format!("{}: {error}", path.display())),
        }
    }
    (slices, problems)
}

/// `<t_us>-<reason>.perf`.
fn slice(path: &Path, text: &str, started_us: u64) -> Slice {
    let name = path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let (at, reason) = name.split_once('-').unwrap_or(("", &name));
    let mut stacks = stacks(text);
    let detail =
        text.lines().take_while(|line| line.starts_with('#')).find_map(|line| line.strip_prefix(STARTED));
    let started_us = detail.and_then(|value| value.trim().parse().ok()).unwrap_or(started_us);
    // perf writes the host's monotonic time, the run counts from its own start. A slice of another host has another clock;
    // its name has the time when it was taken.
    if let Ok(taken_us) = at.parse::<u64>() {
        let first_us = stacks.iter().map(|stack| stack.t_us).min().unwrap_or(0);
        let shifted = first_us.saturating_sub(started_us);
        let same_clock = first_us >= started_us && shifted.abs_diff(taken_us) < CLOCK_US_MAX;
        let origin = if same_clock { started_us } else { first_us.saturating_sub(taken_us) };
        stacks.iter_mut().for_each(|stack| stack.t_us = stack.t_us.saturating_sub(origin));
    }
    Slice { reason: reason.to_string(), stacks }
}

fn stacks(text: &str) -> Vec<Stack> {
    let mut found: Vec<Stack> = vec![];
    let mut open: Option<Stack> = None;
    for line in text.lines().chain([""]) {
        if line.starts_with('#') {
            continue;
        }
        let is_frame = line.starts_with([' ', '\t']) && open.is_some();
        if !is_frame {
            found.extend(open.take().filter(|stack| !stack.frames.is_empty()));
        }
        match (is_frame, &mut open) {
            (true, Some(stack)) => stack.frames.extend(symbol(line)),
            _ => open = head(line),
        }
    }
    found
}

/// `postgres  4711 [001] 12345.678901:   10101010 cpu-clock:u:`; the command may contain spaces, the CPU may be missing.
fn head(line: &str) -> Option<Stack> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let is_time = |word: &&str| {
        word.strip_suffix(':').and_then(|word| word.split_once('.')).is_some_and(|(seconds, part)| {
            let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            digits(seconds) && digits(part)
        })
    };
    let at = words.iter().position(is_time)?;
    let (seconds, part) = words[at].trim_end_matches(':').split_once('.')?;
    let micro: String = part.chars().chain("000000".chars()).take(6).collect();
    let t_us = seconds.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(micro.parse().ok()?)?;
    let before = &words[..at];
    let before = match before.last() {
        Some(cpu) if cpu.starts_with('[') => &before[..before.len() - 1],
        _ => before,
    };
    let (pid, command) = before.split_last()?;
    // `pid/tid` with some options.
    let pid = pid.split('/').next()?.parse().ok()?;
    Some(Stack { t_us, pid, command: command.join(" "), frames: vec![] })
}

/// `ffff8100 osq_lock+0x1f ([kernel.kallsyms])`: the name without address, offset and file.
fn symbol(line: &str) -> Option<String> {
    let rest = line.trim().split_once(' ')?.1.trim();
    let name = match rest.rfind(" (") {
        Some(at) => &rest[..at],
        None => rest,
    };
    let name = match name.rfind("+0x") {
        Some(at) => &name[..at],
        None => name,
    };
    (!name.is_empty()).then(|| name.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# clock: monotonic\n\
        postgres: joe b 4711/4711 [001] 1912.500000:   10101010 cpu-clock:u: \n\
        \t  ffff8100 osq_lock+0x1f ([kernel.kallsyms])\n\
        \t  55d0 operator new(unsigned long) (/usr/lib/libstdc++.so.6)\n\
        \t  55d1 [unknown] (/usr/lib/x (deleted))\n\n\
        perf 1 1912.7: 1 dummy:\n\n";

    #[test]
    fn samples_have_a_moment_a_process_and_frames_from_the_leaf() {
        let found = stacks(TEXT);
        assert_eq!(found.len(), 1, "a sample without frames is dropped");
        assert_eq!(
            (found[0].t_us, found[0].pid, found[0].command.as_str()),
            (1_912_500_000, 4711, "postgres: joe b")
        );
        assert_eq!(found[0].frames, ["osq_lock", "operator new(unsigned long)", "[unknown] (/usr/lib/x"]);
    }

    #[test]
    fn times_are_those_of_the_run_even_with_another_clock() {
        let same = slice(Path::new("400000-tps.perf"), TEXT, 1_912_000_000);
        assert_eq!((same.stacks[0].t_us, same.is_baseline()), (500_000, false));
        let reported = format!("# pgfathom stacks 1\n# started_monotonic_us: 1912000000\n{TEXT}");
        assert_eq!(slice(Path::new("400000-always.perf"), &reported, 0).stacks[0].t_us, 500_000);
        let other = slice(Path::new("31000000-baseline.perf"), TEXT, 9_000_000_000_000);
        assert_eq!((other.stacks[0].t_us, other.is_baseline()), (31_000_000, true));
    }

    #[test]
    fn nonsense_is_no_sample() {
        for text in ["", "\t\t\n", "a b c", "x 1 2.3.4:", "x 99999999999999999999 1.0:\n\tf g\n", "\u{0}\n 1"]
        {
            assert!(stacks(text).is_empty(), "{text:?}");
        }
    }
}

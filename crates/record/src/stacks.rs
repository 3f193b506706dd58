//! Slices of stacks: the text of `perf script`, a line per sample, its frames indented below it from the leaf to the root, then an empty line. Lines in front
//! begin with `#`; those of [`AT_WORK`] name the statements of the processes.

use crate::{file, files};
use std::fmt::Write;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Bytes read of one slice.
const SLICE_BYTES_MAX: u64 = 64 << 20;
/// The most slices read; a run with more has a lasting problem, and its slices look alike.
const SLICES_MAX: usize = 200;
/// Bytes read of all slices: several times what a recording keeps.
const BYTES_MAX: u64 = 256 << 20;
/// Samples kept in all.
const STACKS_MAX: usize = 500_000;
/// Frames kept of a sample: the kernel records at most 127 (`perf_event_max_stack`).
const FRAMES_MAX: usize = 512;
/// Frames kept in all: a line of text is short, and a frame in memory is not.
const ALL_FRAMES_MAX: usize = 2_000_000;
/// Looks at processes kept in all.
const LOOKS_MAX: usize = 200_000;
/// Characters kept of a name.
const NAME_CHARS_MAX: usize = 1_000;
/// A slice whose first sample is further than this from the moment in its name has a different clock than the run.
const CLOCK_US_MAX: u64 = 300_000_000;

/// The line of a slice with the begin of its run, on the clock of its samples.
const STARTED: &str = "# started_monotonic_us:";
/// The lines of a slice with the processes that were seen at work: the time on the run's clock, the process, the statement, and the node.
const AT_WORK: &str = "# at work:";

/// The end of a module's name: unlike those of libraries, it has no version behind it.
const MODULE: &str = ".so";
/// The program of the server.
const SERVER: &str = "postgres";
/// A function whose name is not known.
const UNKNOWN: &str = "[unknown]";

/// One sample.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stack {
    /// On the run's clock.
    pub t_us: u64,
    /// Its process.
    pub pid: u64,
    /// The name of the thread.
    pub command: String,
    /// Names from the leaf to the root.
    pub frames: Vec<String>,
    /// The module that the server has loaded (`vector.so`) in which it was, if it was in none of the server's own functions.
    pub module: Option<String>,
    /// The innermost function of the server, or of a module, whose name is known.
    pub function: Option<String>,
    /// The file of the innermost frame, without its folder.
    pub file: Option<String>,
}

/// A look at a server process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AtWork {
    /// On the run's clock.
    pub t_us: u64,
    /// The process.
    pub pid: u64,
    /// Its statement.
    pub query_id: String,
    /// The node.
    pub node: String,
}

impl AtWork {
    /// The line of a slice.
    pub fn write(&self, text: &mut String) {
        let AtWork { t_us, pid, query_id, node } = self;
        let node = node.replace(char::is_control, "?");
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{AT_WORK} {t_us} {pid} {query_id} {node}");
    }

    fn read(line: &str) -> Option<AtWork> {
        let mut words = line.strip_prefix(AT_WORK)?.trim_start().splitn(4, ' ');
        let (t_us, pid) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some(AtWork { t_us, pid, query_id: words.next()?.to_string(), node: words.next()?.to_string() })
    }
}

/// The samples of one file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Slice {
    reason: String,
    /// What its processes were seen at work with, in order.
    pub at_work: Vec<AtWork>,
    /// Its samples.
    pub stacks: Vec<Stack>,
}

impl Slice {
    /// Kept for comparison, or because every slice is kept, or as the server was at work; not for an anomaly.
    pub fn is_baseline(&self) -> bool {
        ["baseline", "calm", "always", "busy"].iter().any(|word| self.reason.contains(word))
    }
}

/// What may still be kept, and what was left out.
#[derive(Debug)]
struct Room {
    bytes: u64,
    stacks: usize,
    frames: usize,
    looks: usize,
    left_out: LeftOut,
}

/// What was left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct LeftOut {
    slices: u64,
    stacks: u64,
    frames: u64,
    looks: u64,
}

impl Room {
    fn new() -> Room {
        let left_out = LeftOut::default();
        Room { bytes: BYTES_MAX, stacks: STACKS_MAX, frames: ALL_FRAMES_MAX, looks: LOOKS_MAX, left_out }
    }

    /// Notes about what was left out.
    fn problems(&self) -> Vec<String> {
        let LeftOut { slices, stacks, frames, looks } = self.left_out;
        let all = [
            (slices, format!("slices, because all together are larger than {} MiB", BYTES_MAX >> 20)),
            (stacks, format!("samples, of more than {STACKS_MAX} or with more than {ALL_FRAMES_MAX} frames")),
            (frames, format!("frames of samples with more than {FRAMES_MAX}")),
            (looks, format!("lines about processes at work, of more than {LOOKS_MAX}")),
        ];
        let left_out = all.into_iter().filter(|(count, _)| *count > 0);
        left_out.map(|(count, what)| format!("stacks: {count} {what}, are left out")).collect()
    }

    /// Whether a sample with so many frames is kept.
    fn takes(&mut self, frames: usize) -> bool {
        let has_room = self.stacks > 0 && self.frames >= frames;
        if has_room {
            self.stacks -= 1;
            self.frames -= frames;
        } else {
            // What follows is not kept either: a gap in the middle would look like a pause.
            self.stacks = 0;
            self.left_out.stacks += 1;
        }
        has_room
    }
}

/// All slices of a run directory, and notes about unreadable ones and about what was left out. The run began at this time of its host's monotonic clock.
pub fn read(dir: &Path, started_us: u64) -> (Vec<Slice>, Vec<String>) {
    let mut slices = vec![];
    let (mut paths, mut problems) = paths(&dir.join(files::STACKS));
    if paths.len() > SLICES_MAX {
        problems.push(format!("only the first {SLICES_MAX} of {} slices are read", paths.len()));
        paths.truncate(SLICES_MAX);
    }
    let mut room = Room::new();
    for path in paths {
        match file::read(&path, SLICE_BYTES_MAX) {
            Ok(bytes) if bytes.len() as u64 > room.bytes => {
                room.bytes = 0;
                room.left_out.slices += 1;
            }
            Ok(bytes) => {
                room.bytes -= bytes.len() as u64;
                slices.push(slice_within(&path, &String::from_utf8_lossy(&bytes), started_us, &mut room));
            }
            Err(error) => problems.push(format!("{}: {error}", path.display())),
        }
    }
    problems.extend(room.problems());
    (slices, problems)
}

/// The files of slices, and what stands in place of their folder. What has the name of a slice and is no file is among them: its reader reports it.
fn paths(folder: &Path) -> (Vec<PathBuf>, Vec<String>) {
    let entries = match fs::symlink_metadata(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return (vec![], vec![]),
        Ok(there) if !there.is_dir() => Err("it is not a folder".to_string()),
        Ok(_) => fs::read_dir(folder).map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    match entries {
        Ok(entries) => {
            let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
            paths.retain(|path| path.extension().is_some_and(|extension| extension == "perf"));
            paths.sort();
            (paths, vec![])
        }
        Err(why) => (vec![], vec![format!("{}: {why}", folder.display())]),
    }
}

/// A slice from its file `<t_us>-<reason>.perf`.
pub fn slice(path: &Path, text: &str, started_us: u64) -> Slice {
    slice_within(path, text, started_us, &mut Room::new())
}

fn slice_within(path: &Path, text: &str, started_us: u64, room: &mut Room) -> Slice {
    let name = path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let (at, reason) = name.split_once('-').unwrap_or(("", &name));
    let mut stacks = stacks(text, room);
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
    let looks = text.lines().take_while(|line| line.starts_with('#')).filter_map(AtWork::read);
    let mut at_work = vec![];
    for look in looks {
        if room.looks == 0 {
            room.left_out.looks += 1;
            continue;
        }
        room.looks -= 1;
        at_work.push(look);
    }
    Slice { reason: reason.to_string(), at_work, stacks }
}

fn stacks(text: &str, room: &mut Room) -> Vec<Stack> {
    let mut found: Vec<Stack> = vec![];
    let mut open: Option<Stack> = None;
    // Whether the module of the open one is known.
    let mut is_decided = false;
    for line in text.lines().chain([""]) {
        if line.starts_with('#') {
            continue;
        }
        let is_frame = line.starts_with([' ', '\t']) && open.is_some();
        if !is_frame {
            let complete = open.take().filter(|stack| !stack.frames.is_empty());
            found.extend(complete.filter(|stack| room.takes(stack.frames.len())));
        }
        match (is_frame, &mut open) {
            (true, Some(stack)) if stack.frames.len() == FRAMES_MAX => room.left_out.frames += 1,
            (true, Some(stack)) => is_decided = add_frame(stack, line, is_decided),
            _ => (open, is_decided) = (head(line), false),
        }
    }
    found
}

/// Adds a frame to a sample. Takes and returns whether its module is known.
fn add_frame(stack: &mut Stack, line: &str, is_decided: bool) -> bool {
    let name = symbol(line);
    let file = file_of(line).unwrap_or("");
    stack.file.get_or_insert_with(|| file.chars().take(NAME_CHARS_MAX).collect());
    let (is_module, is_server) = (file.ends_with(MODULE), file == SERVER);
    if !is_decided {
        stack.module = is_module.then(|| file.chars().take(NAME_CHARS_MAX).collect());
    }
    if stack.function.is_none() && (is_module || is_server) {
        stack.function = name.clone().filter(|name| name != UNKNOWN);
    }
    stack.frames.extend(name);
    is_decided || is_module || is_server
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
    let command = command.join(" ").chars().take(NAME_CHARS_MAX).collect();
    Some(Stack { t_us, pid, command, frames: vec![], module: None, function: None, file: None })
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
    (!name.is_empty()).then(|| name.chars().take(NAME_CHARS_MAX).collect())
}

/// The file of a frame without its folder.
fn file_of(line: &str) -> Option<&str> {
    let file = line.trim_end().strip_suffix(')')?;
    file[file.rfind(" (")? + 2..].rsplit('/').next()
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
        let found = stacks(TEXT, &mut Room::new());
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
    fn processes_and_modules_are_named() {
        let mut text = "# pgfathom stacks 1\n".to_string();
        let seen = AtWork { t_us: 7, pid: 4711, query_id: "-12".into(), node: "a node".into() };
        seen.write(&mut text);
        text.push_str("# at work: x\npostgres 4711 1.0: x:\n\t 1 f (/lib/libc.so.6)\n\t 2 g (/usr/lib/vector.so)\n\t 3 h (/usr/lib/vector.so)\n\n");
        let slice = slice(Path::new("1-busy.perf"), &text, 0);
        assert_eq!((slice.at_work, slice.stacks[0].module.as_deref()), (vec![seen], Some("vector.so")));
        assert!(slice.stacks[0].frames == ["f", "g", "h"] && slice.reason == "busy");
    }

    #[test]
    fn nonsense_is_no_sample() {
        for text in ["", "\t\t\n", "a b c", "x 1 2.3.4:", "x 99999999999999999999 1.0:\n\tf g\n", "\u{0}\n 1"]
        {
            assert!(stacks(text, &mut Room::new()).is_empty(), "{text:?}");
        }
    }

    #[test]
    fn what_is_too_much_is_left_out_and_counted() {
        let mut room = Room { frames: 1_000, stacks: 3, looks: 1, ..Room::new() };
        let look = "# at work: 1 2 3 n\n";
        let deep = format!("{look}{look}{look}x 1 1.0: y:\n{}", " a b\n".repeat(10_000));
        let slice = slice_within(Path::new("1-busy.perf"), &deep, 0, &mut room);
        assert_eq!(
            (slice.stacks.len(), slice.stacks[0].frames.len(), slice.at_work.len()),
            (1, FRAMES_MAX, 1)
        );
        assert_eq!((room.left_out.frames, room.left_out.looks), (10_000 - FRAMES_MAX as u64, 2));
        // Two more would fit by their number, but not with their frames.
        let wide = format!("x 1 1.0: y:\n{}\n", " a b\n".repeat(300)).repeat(3);
        assert_eq!(stacks(&wide, &mut room).len(), 1);
        assert_eq!((room.left_out.stacks, room.problems().len()), (2, 3));
        let long = format!("x 1 1.0: y:\n 1 {}\n\n", "y".repeat(100_000));
        assert_eq!(stacks(&long, &mut Room::new())[0].frames[0].len(), NAME_CHARS_MAX);
    }

    #[test]
    fn what_is_no_file_is_reported() {
        let dir = std::env::temp_dir().join(format!("pgfathom-slices-{}", std::process::id()));
        let folder = dir.join(files::STACKS);
        let _ = fs::remove_dir_all(&dir);
        assert_eq!(read(&dir, 0), (vec![], vec![]), "it has none");
        fs::create_dir_all(folder.join("1-busy.perf")).expect("a folder");
        std::os::unix::fs::symlink("/dev/zero", folder.join("2-busy.perf")).expect("a link");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            folder.join("3-busy.perf"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .expect("a pipe");
        fs::write(folder.join("4-busy.perf"), TEXT).expect("a file");
        fs::write(folder.join("notes"), "x").expect("a file");
        let (slices, problems) = read(&dir, 0);
        assert_eq!((slices.len(), problems.len()), (1, 3), "{problems:?}");
        fs::remove_dir_all(&folder).expect("removed");
        std::os::unix::fs::symlink("/", &folder).expect("a link");
        let (slices, problems) = read(&dir, 0);
        assert_eq!((slices.len(), problems.len()), (0, 1), "{problems:?}");
        fs::remove_dir_all(&dir).expect("removed");
    }
}

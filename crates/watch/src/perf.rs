//! Stacks of the bad seconds: the system's `perf` records slice after slice, and only those around an anomaly are kept.
//!
//! `perf record` samples a software clock (no hardware counters needed, so it works in virtual machines), follows frame pointers, and
//! stamps with CLOCK_MONOTONIC, the axis of everything else. Each slice is a process that ends by itself, so nothing is left behind
//! if we die. What is kept is the raw text of `perf script`, time stamps and all, under `stacks/`: a flame graph of any part of it, or the
//! difference of two parts, can be made later.
//!
//! | slice | next |
//! |---|---|
//! | recording | ends by itself, to judged; the next one begins at once |
//! | judged: something was odd during it, or `always` | to printing, together with the calm slice before it |
//! | judged: calm | remembered until the next one is judged |
//! | printing (`perf script`) | to a file under `stacks/` and an event |

mod client;
pub mod detect;

use crate::board::Board;
use crate::collect::{Batch, Collect, Place, Tick, With};
use crate::host::{Pulse, tools};
use client::ClientTail;
use detect::{Detector, Oddity, Second};
use record::event;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Length of a slice.
pub const SLICE: Duration = Duration::from_secs(15);
/// Samples per second and processor. Not 100, so that they do not march in step with timers.
const FREQUENCY: &str = "99";
/// Text kept of one slice; the rest is cut at a line's end.
const TEXT_BYTES_MAX: u64 = 8 << 20;
/// Text kept of a run.
const KEPT_BYTES_MAX: u64 = 64 << 20;
/// Slices kept for one kind of oddity: a machine that is always odd is not recorded for ever.
const KEPT_PER_ODDITY_MAX: u32 = 8;
/// Slices that may wait to be printed.
const QUEUE_MAX: usize = 4;
/// Recordings that may fail one after the other before it is given up.
const FAILURES_MAX: u32 = 3;
/// How long the end of the last slice and its printing are waited for.
const FINISH_PATIENCE: Duration = Duration::from_secs(5);
/// The fields of `perf script`, said explicitly because its default differs between versions.
const FIELDS: &str = "comm,pid,tid,cpu,time,event,ip,sym,dso";
/// What cannot be said without stacks.
const LOST: &str = "in which functions the processors spend their time";

/// When stacks are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// Every slice, until the budget is used up.
    Always,
    /// Slices around an anomaly.
    #[default]
    Auto,
    /// None: `perf` is not started.
    Off,
}

impl std::str::FromStr for Mode {
    type Err = String;

    fn from_str(word: &str) -> Result<Mode, String> {
        match word {
            "always" => Ok(Mode::Always),
            "auto" => Ok(Mode::Auto),
            "off" => Ok(Mode::Off),
            _ => Err(format!("{word} is not one of always, auto, off")),
        }
    }
}

/// How to record.
#[derive(Clone, Debug)]
pub struct Options {
    /// The machine's name in the record.
    pub host: String,
    /// When stacks are kept. Not [`Mode::Off`].
    pub mode: Mode,
    /// Where the client's seconds are read.
    pub run_dir: PathBuf,
    /// Length of a slice.
    pub slice: Duration,
    /// `perf`, or what a test brings in its place.
    pub program: Option<PathBuf>,
    /// Text kept of a run.
    pub kept_bytes_max: u64,
}

impl Options {
    /// The system's `perf` with the usual limits.
    pub fn new(host: &str, mode: Mode, run_dir: &Path) -> Options {
        Options {
            host: host.to_string(),
            mode,
            run_dir: run_dir.to_path_buf(),
            slice: SLICE,
            program: tools::find("perf"),
            kept_bytes_max: KEPT_BYTES_MAX,
        }
    }
}

#[derive(Debug)]
struct Recording {
    child: Child,
    path: PathBuf,
    complaint: PathBuf,
    from_us: u64,
    odd: Option<Oddity>,
}

#[derive(Debug)]
struct Slice {
    path: PathBuf,
    from_us: u64,
    to_us: u64,
    reason: &'static str,
}

/// The collector of stacks.
#[derive(Debug)]
pub struct Stacks {
    options: Options,
    board: Arc<Board>,
    pulse: Pulse,
    client: ClientTail,
    detector: Detector,
    /// Raw slices live here.
    folder: PathBuf,
    number: u64,
    recording: Option<Recording>,
    /// The last slice that was calm: what the odd one is compared with.
    calm: Option<Slice>,
    queue: VecDeque<Slice>,
    printing: Option<(Child, Slice, PathBuf)>,
    kept_bytes: u64,
    /// The budget is used up.
    is_full: bool,
    kept: BTreeMap<&'static str, u32>,
    failures: u32,
    /// It was said that nothing is recorded (any more).
    is_given_up: bool,
    /// When the last line of each node was seen, so that an old rate is not seen twice.
    seen_us: u64,
}

impl Stacks {
    /// A collector that begins at its first tick. `pulse` is the machine's collector's.
    pub fn new(options: Options, board: Arc<Board>, pulse: Pulse) -> Stacks {
        let folder =
            std::env::temp_dir().join(format!("pgfathom-perf-{}-{}", std::process::id(), options.host));
        Stacks {
            client: ClientTail::new(&options.run_dir),
            options,
            board,
            pulse,
            detector: Detector::default(),
            folder,
            number: 0,
            recording: None,
            calm: None,
            queue: VecDeque::new(),
            printing: None,
            kept_bytes: 0,
            is_full: false,
            kept: BTreeMap::new(),
            failures: 0,
            is_given_up: false,
            seen_us: 0,
        }
    }

    /// What is known of the last second. The client's own numbers are better than the server's: they are what users feel.
    fn second(&mut self) -> Second {
        let system_pct = self.pulse.system_pct();
        if let Some(client) = self.client.newest() {
            return Second { rate: Some(client.rate), latency_us_p99: client.latency_us_p99, system_pct };
        }
        let nodes = self.board.nodes();
        let newest_us = nodes.values().map(|node| node.t_us).max().unwrap_or(0);
        let is_new = std::mem::replace(&mut self.seen_us, newest_us) != newest_us;
        let rate = is_new.then(|| nodes.values().map(|node| node.transactions_per_s).sum());
        Second { rate, latency_us_p99: None, system_pct }
    }

    fn give_up(&mut self, tick: &Tick, why: String, batch: &mut Batch) {
        self.is_given_up = true;
        batch.reading(tick.now_us, self.place().missing("perf", why, LOST));
    }

    fn record(&mut self, tick: &Tick, batch: &mut Batch) {
        let Some(program) = self.options.program.clone() else {
            return self.give_up(tick, "perf is not installed".to_string(), batch);
        };
        let started = fs::create_dir_all(&self.folder).and_then(|()| {
            self.number += 1;
            let path = self.folder.join(format!("{}.data", self.number));
            let complaint = self.folder.join(format!("{}.err", self.number));
            let mut command = Command::new(&program);
            command.args([
                "record",
                "-q",
                "-e",
                "cpu-clock",
                "-F",
                FREQUENCY,
                "-a",
                "-g",
                "-k",
                "mono",
                "-o",
            ]);
            command.arg(&path).args(["--", "sleep", &self.options.slice.as_secs_f64().to_string()]);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&complaint)?);
            // Ctrl-C is for us.
            let child = command.process_group(0).spawn()?;
            Ok(Recording { child, path, complaint, from_us: tick.clock.now_us(), odd: None })
        });
        match started {
            Ok(recording) => self.recording = Some(recording),
            Err(error) => self.give_up(tick, format!("perf could not be started: {error}"), batch),
        }
    }

    /// Looks whether the slice has ended, and judges it.
    fn judge(&mut self, tick: &Tick, batch: &mut Batch) {
        let Some(recording) = &mut self.recording else { return };
        let Ok(Some(status)) = recording.child.try_wait() else { return };
        let Some(recording) = self.recording.take() else { return };
        let complaint = fs::read_to_string(&recording.complaint).unwrap_or_default();
        let _ = fs::remove_file(&recording.complaint);
        let has_data = fs::metadata(&recording.path).is_ok_and(|data| data.len() > 0);
        if !has_data {
            self.failures += 1;
            if self.failures >= FAILURES_MAX {
                let line = complaint
                    .lines()
                    .find(|line| !line.trim().is_empty())
                    .unwrap_or("no reason given")
                    .trim();
                let why = format!(
                    "perf record ended with {status}: {line} (needs root, CAP_PERFMON, or kernel.perf_event_paranoid <= 0)"
                );
                self.give_up(tick, why, batch);
            }
            return;
        }
        self.failures = 0;
        let slice =
            Slice { path: recording.path, from_us: recording.from_us, to_us: tick.now_us, reason: "calm" };
        match (recording.odd, self.options.mode) {
            (Some(oddity), _) => self.keep(Slice { reason: oddity.word(), ..slice }),
            (None, Mode::Always) => self.keep(Slice { reason: "always", ..slice }),
            (None, _) => {
                if let Some(old) = self.calm.replace(slice) {
                    let _ = fs::remove_file(&old.path);
                }
            }
        }
    }

    fn keep(&mut self, slice: Slice) {
        let kept = self.kept.entry(slice.reason).or_default();
        let is_limited = self.options.mode == Mode::Auto && *kept >= KEPT_PER_ODDITY_MAX;
        if is_limited || self.queue.len() >= QUEUE_MAX || self.is_full {
            let _ = fs::remove_file(&slice.path);
            return;
        }
        *kept += 1;
        self.queue.extend(self.calm.take());
        self.queue.push_back(slice);
    }

    /// Starts and ends the printing of slices, one at a time.
    fn print(&mut self, tick: &Tick, batch: &mut Batch) {
        if let Some((child, _, _)) = &mut self.printing
            && let Ok(Some(status)) = child.try_wait()
            && let Some((_, slice, text)) = self.printing.take()
        {
            self.printed(tick, status.success(), &slice, &text, batch);
        }
        let Some(program) = self.options.program.clone().filter(|_| self.printing.is_none()) else { return };
        let Some(slice) = self.queue.pop_front() else { return };
        let text = slice.path.with_extension("txt");
        let started = File::create(&text).and_then(|out| {
            let mut command = Command::new(&program);
            command.args(["script", "-F", FIELDS, "-i"]).arg(&slice.path);
            command.stdin(Stdio::null()).stdout(out).stderr(Stdio::null()).process_group(0).spawn()
        });
        match started {
            Ok(child) => self.printing = Some((child, slice, text)),
            Err(_) => {
                let _ = fs::remove_file(&slice.path);
            }
        }
    }

    fn printed(&mut self, tick: &Tick, is_whole: bool, slice: &Slice, path: &Path, batch: &mut Batch) {
        let left = self.options.kept_bytes_max.saturating_sub(self.kept_bytes).min(TEXT_BYTES_MAX);
        let mut text = vec![];
        let read = File::open(path).and_then(|file| file.take(left).read_to_end(&mut text));
        let is_cut = read.as_ref().is_ok_and(|read| *read as u64 == left);
        let _ = fs::remove_file(path);
        let _ = fs::remove_file(&slice.path);
        if is_cut {
            // Stacks are separated by empty lines; half of one would be read as another one.
            let end = text.windows(2).rposition(|pair| pair == b"\n\n").map_or(0, |at| at + 2);
            text.truncate(end);
        }
        if text.is_empty() {
            return self.note_full(tick, left, is_cut, batch);
        }
        let header = format!(
            "# pgfathom stacks 1\n# clock: monotonic\n# started_monotonic_us: {}\n# host: {}\n# from_us: {}\n# to_us: {}\n# reason: {}\n# whole: {}\n",
            tick.clock.monotonic_us,
            self.options.host,
            slice.from_us,
            slice.to_us,
            slice.reason,
            is_whole && !is_cut
        );
        let mut content = header.into_bytes();
        content.extend(text);
        self.kept_bytes += content.len() as u64;
        let name = format!("stacks/{}-{}.perf", slice.from_us, slice.reason);
        let message = format!("stacks of {} kept: {}", self.options.host, slice.reason);
        let mut told = self.place().event(slice.from_us, event::STACKS, message);
        told = told.with("file", name.as_str()).with("reason", slice.reason).with("bytes", content.len());
        told.duration_us = Some(slice.to_us.saturating_sub(slice.from_us));
        batch.event(told);
        batch.file(name, content);
        self.note_full(tick, left, is_cut, batch);
    }

    /// Says once that the budget is used up: when a text had to be cut for it.
    fn note_full(&mut self, tick: &Tick, left: u64, is_cut: bool, batch: &mut Batch) {
        if is_cut && left < TEXT_BYTES_MAX && !self.is_full {
            self.is_full = true;
            let text = format!("{} KiB of stacks are kept: no more from here on", self.kept_bytes >> 10);
            batch.event(self.place().event(tick.now_us, event::NOTE, text));
        }
    }

    fn clean(&mut self) {
        if let Some(mut recording) = self.recording.take() {
            let _ = recording.child.kill();
            let _ = recording.child.wait();
        }
        if let Some((mut child, _, _)) = self.printing.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Collect for Stacks {
    fn place(&self) -> Place {
        Place::Host(self.options.host.clone())
    }

    fn tick(&mut self, tick: &Tick, batch: &mut Batch) {
        let second = self.second();
        let odd = self.detector.see(second);
        if let (Some(recording), Some(odd)) = (&mut self.recording, odd) {
            // The first oddity names the slice: what follows is often its consequence.
            recording.odd.get_or_insert(odd);
        }
        self.judge(tick, batch);
        self.print(tick, batch);
        if self.recording.is_none() && !self.is_given_up && !self.is_full {
            self.record(tick, batch);
        }
    }

    fn finish(&mut self, tick: &Tick, batch: &mut Batch) {
        let deadline = Instant::now() + FINISH_PATIENCE;
        let is_wanted = |recording: &Recording| recording.odd.is_some() || self.options.mode == Mode::Always;
        if let Some(recording) = self.recording.as_ref().filter(|recording| is_wanted(recording)) {
            // perf writes what it has when it is asked to end. SIGTERM, because SIGINT is ignored below a background job.
            if let Some(pid) = i32::try_from(recording.child.id()).ok().and_then(Pid::from_raw) {
                let _ = kill_process(pid, Signal::TERM);
            }
            while self.recording.is_some() && Instant::now() < deadline {
                self.judge(tick, batch);
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        while (self.printing.is_some() || !self.queue.is_empty()) && Instant::now() < deadline {
            self.print(tick, batch);
            std::thread::sleep(Duration::from_millis(10));
        }
        self.clean();
    }
}

impl Drop for Stacks {
    fn drop(&mut self) {
        self.clean();
    }
}

#[cfg(test)]
mod tests;

//! Stacks of the bad seconds: the system's `perf` records into a ring in memory, and only the seconds around an anomaly are kept.
//!
//! `perf record` samples a software clock (no hardware counters needed, so it works in virtual machines), follows frame pointers, and
//! stamps with CLOCK_MONOTONIC, the axis of everything else. It ends when we do. The raw text of `perf script`, with time
//! stamps, is kept under `stacks/`: a flame graph of any part of it, or the difference of two parts, can be made later.
//!
//! | the ring is | next |
//! |---|---|
//! | none: too early, given up, or the budget is used up | started if possible, to turning |
//! | turning | an oddity, to odd; `always`: the slice is full, to requested |
//! | odd: half a slice more is recorded, so that it contains the bad seconds, too | to requested, or to turning if this kind was kept often enough |
//! | requested: perf writes its samples | its file, to the queue; the ring continues |
//!
//! The queue is printed (`perf script`, at the lowest priority) while the cost stays within [`BUDGET_SHARE`] of the elapsed CPU time, else after the
//! measurement: printing one slice takes a second of CPU, a hundred times as much as recording it.
//!
//! A printed ring is cut where the oddity began: the earlier part is the normal slice to compare with.

mod client;
pub mod detect;
mod ring;
mod text;

use crate::board::Board;
use crate::collect::{Batch, Collect, Place, Spent, Tick, With};
use crate::host::{Pulse, tools};
use crate::meter::Meter;
use client::ClientTail;
use detect::{Detector, Oddity, Second};
use lab::leftover::{self, Leftover};
use record::event;
use ring::Ring;
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
/// Text kept of one slice; the rest is cut at a line's end.
const TEXT_BYTES_MAX: u64 = 8 << 20;
/// Text read of one printed ring, before it is cut.
const PRINTED_BYTES_MAX: u64 = 4 * TEXT_BYTES_MAX;
/// Text kept of a run.
const KEPT_BYTES_MAX: u64 = 64 << 20;
/// Slices kept for one kind of oddity: a host that is always odd is not recorded for ever.
const KEPT_PER_ODDITY_MAX: u32 = 8;
/// The same for kernel time, which usually stays high and then always has the same stacks.
const KEPT_OF_LEVEL_MAX: u32 = 2;
/// Slices that may wait to be printed.
const QUEUE_MAX: usize = 4;
/// Failed recordings in a row after which it gives up.
const FAILURES_MAX: u32 = 3;
/// Share of all CPUs that programs may use during a measurement, without the recording.
const BUDGET_SHARE: f64 = 0.002;
/// The assumed cost of printing a slice, until it is measured.
const PRINT_US: u64 = 1_000_000;
/// A ring that has not written its samples for so long gets the request again.
const RETRY_US: u64 = 5_000_000;
/// How long the end waits for the last slice and its printing.
const FINISH_PATIENCE: Duration = Duration::from_secs(30);
/// The same for stacks that were recorded because something looked odd: on a full host printing takes longer than this, and CPU from the server.
const FINISH_PATIENCE_AUTO: Duration = Duration::from_secs(6);
/// The fields of `perf script`, named because the default differs between versions.
const FIELDS: &str = "comm,pid,tid,cpu,time,event,ip,sym,dso";
/// The prefix of a folder with raw slices; the process id and the host follow.
const FOLDER: &str = "pgfathom-perf-";
/// What cannot be reported without stacks.
const LOST: &str = "in which functions the CPUs spend their time";

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
    /// `perf`, or a test's replacement.
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

/// What perf handed out.
#[derive(Debug)]
struct Slice {
    path: PathBuf,
    /// The end of the samples that were already written.
    from_us: u64,
    to_us: u64,
    /// What is odd, and since when.
    odd: Option<(Oddity, u64)>,
}

/// A `perf script` at work.
#[derive(Debug)]
struct Printing {
    child: Child,
    meter: Option<Meter>,
    slice: Slice,
    text: PathBuf,
    took_us: u64,
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
    /// Marks it as ours while this process runs.
    kept_folder: Option<Leftover>,
    number: u64,
    /// Slices that were handed out.
    taken: u64,
    ring: Option<Ring>,
    /// The oddity in the ring's seconds, and its begin.
    odd: Option<(Oddity, u64)>,
    /// When the ring was last requested to write.
    requested_us: Option<u64>,
    /// The end of the samples that were written so far.
    until_us: u64,
    queue: VecDeque<Slice>,
    printing: Vec<Printing>,
    /// The time of the first tick, the cost of printing since then, and that of the last slice.
    begun_us: Option<u64>,
    printed_us: u64,
    print_us: u64,
    kept_bytes: u64,
    /// The budget is used up.
    is_full: bool,
    kept: BTreeMap<Oddity, u32>,
    failures: u32,
    /// It was reported that nothing is recorded (any more).
    is_given_up: bool,
    /// The time of the last line of each node, so that an old rate is not used twice.
    seen_us: u64,
    /// CPU time of programs that was not reported yet.
    programs_us: u64,
}

impl Stacks {
    /// A collector that begins at its first tick. `pulse` comes from the collector of the host.
    pub fn new(options: Options, board: Arc<Board>, pulse: Pulse) -> Stacks {
        let folder = std::env::temp_dir().join(format!("{FOLDER}{}-{}", std::process::id(), options.host));
        Stacks {
            client: ClientTail::new(&options.run_dir),
            options,
            board,
            pulse,
            detector: Detector::default(),
            folder,
            kept_folder: None,
            number: 0,
            taken: 0,
            ring: None,
            odd: None,
            requested_us: None,
            until_us: 0,
            queue: VecDeque::new(),
            printing: vec![],
            begun_us: None,
            printed_us: 0,
            print_us: PRINT_US,
            kept_bytes: 0,
            is_full: false,
            kept: BTreeMap::new(),
            failures: 0,
            is_given_up: false,
            seen_us: 0,
            programs_us: 0,
        }
    }

    /// The data of the last second. The client's numbers are preferred to the server's: they are what users experience.
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

    fn slice_us(&self) -> u64 {
        self.options.slice.as_micros() as u64
    }

    fn record(&mut self, tick: &Tick, batch: &mut Batch) {
        let Some(program) = self.options.program.clone() else {
            return self.give_up(tick, "perf is not installed".to_string(), batch);
        };
        if self.number == 0 {
            // The remains of killed programs: their `perf` ended with them.
            leftover::remove_leftovers();
            self.kept_folder = Leftover::create(&self.folder).ok();
        }
        self.number += 1;
        (self.requested_us, self.until_us) = (None, tick.clock.now_us());
        match Ring::start(&program, &self.folder, self.number, self.options.mode == Mode::Always) {
            Ok(ring) => self.ring = Some(ring),
            Err(error) => self.give_up(tick, format!("perf could not be started: {error}"), batch),
        }
    }

    /// Whether this oddity was kept often enough.
    fn is_worn(&self, oddity: Oddity) -> bool {
        let most = if oddity == Oddity::SystemTime { KEPT_OF_LEVEL_MAX } else { KEPT_PER_ODDITY_MAX };
        self.kept.get(&oddity).copied().unwrap_or(0) >= most
    }

    /// Takes the written samples, checks whether the ring has ended, and requests more when it is time.
    fn turn(&mut self, tick: &Tick, batch: &mut Batch) {
        let Some(ring) = &mut self.ring else { return };
        self.programs_us += ring.spent_us();
        let ended = ring.ended();
        // Nothing was requested, so perf has written nothing.
        let files =
            if self.requested_us.is_some() || ended.is_some() { ring.take(&mut self.taken) } else { vec![] };
        let has_files = !files.is_empty();
        if has_files {
            let to_us = self.requested_us.take().unwrap_or(tick.clock.now_us());
            let from_us = std::mem::replace(&mut self.until_us, to_us);
            let odd = self.odd.take();
            self.failures = 0;
            for path in files {
                self.keep(Slice { path, from_us, to_us, odd });
            }
        }
        if let Some(status) = ended {
            let complaint = self.ring.take().map(|ring| ring.complaint()).unwrap_or_default();
            self.failures += u32::from(!has_files);
            if self.failures >= FAILURES_MAX {
                let why = format!(
                    "perf record ended with {status}: {complaint} (needs root, CAP_PERFMON, or kernel.perf_event_paranoid <= 0)"
                );
                self.give_up(tick, why, batch);
            }
            return;
        }
        let now_us = tick.clock.now_us();
        // A signal that comes before perf samples is lost.
        if self.requested_us.is_some_and(|requested_us| now_us.saturating_sub(requested_us) < RETRY_US) {
            return;
        }
        let slice_us = self.slice_us();
        let is_due = match (self.odd, self.options.mode) {
            (_, Mode::Always) => now_us.saturating_sub(self.until_us) >= slice_us,
            (Some((_, since_us)), _) => now_us.saturating_sub(since_us) >= slice_us / 2,
            (None, _) => false,
        };
        if is_due && self.ring.as_ref().is_some_and(Ring::ask) {
            self.requested_us = Some(now_us);
        }
    }

    fn keep(&mut self, slice: Slice) {
        let is_limited =
            self.options.mode == Mode::Auto && slice.odd.is_none_or(|(oddity, _)| self.is_worn(oddity));
        if is_limited || self.queue.len() >= QUEUE_MAX || self.is_full {
            let _ = fs::remove_file(&slice.path);
            return;
        }
        if let Some((oddity, _)) = slice.odd {
            *self.kept.entry(oddity).or_default() += 1;
        }
        self.queue.push_back(slice);
    }

    /// Whether another slice may be printed during a measurement. With `always` every slice is printed at once.
    fn may_print(&self, now_us: u64) -> bool {
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        let passed_us = now_us.saturating_sub(self.begun_us.unwrap_or(now_us));
        let budget_us = (passed_us * cores as u64) as f64 * BUDGET_SHARE;
        self.options.mode == Mode::Always || (self.printed_us + self.print_us) as f64 <= budget_us
    }

    /// Takes the printed text, and starts to print more, `most` slices at a time.
    fn print(&mut self, tick: &Tick, most: usize, batch: &mut Batch) {
        for mut printing in std::mem::take(&mut self.printing) {
            let took_us = printing.meter.as_mut().and_then(Meter::spent).unwrap_or(0);
            printing.took_us += took_us;
            self.printed_us += took_us;
            // Printing at the end disturbs no measurement.
            self.programs_us += if most <= 1 { took_us } else { 0 };
            match printing.child.try_wait() {
                Ok(Some(status)) => {
                    self.print_us = printing.took_us;
                    self.printed(tick, status.success(), &printing.slice, &printing.text, batch);
                }
                _ => self.printing.push(printing),
            }
        }
        // At the end nothing has priority over printing, and there is little time.
        let is_beside = most <= 1;
        while self.printing.len() < most && self.start_print(is_beside) {}
    }

    /// Starts to print the next slice; false if there is none.
    fn start_print(&mut self, is_beside: bool) -> bool {
        let Some(program) = self.options.program.clone() else { return false };
        let Some(slice) = self.queue.pop_front() else { return false };
        let mut text = slice.path.clone().into_os_string();
        text.push(".txt");
        let text = PathBuf::from(text);
        let started = File::create(&text).and_then(|out| {
            let mut command = Command::new(&program);
            // Inlined functions count as their callers: resolving them takes many times as long.
            command.args(["script", "--no-inline", "-F", FIELDS, "-i"]).arg(&slice.path);
            command.stdin(Stdio::null()).stdout(out).stderr(Stdio::null()).process_group(0).spawn()
        });
        match started {
            Ok(child) => {
                if is_beside {
                    ring::lowest_priority(&child);
                }
                let meter = Meter::of(child.id());
                self.printing.push(Printing { child, meter, slice, text, took_us: 0 });
            }
            Err(_) => {
                let _ = fs::remove_file(&slice.path);
            }
        }
        true
    }

    /// Keeps the printed text: the odd seconds, and separately the normal ones before.
    fn printed(&mut self, tick: &Tick, is_whole: bool, slice: &Slice, path: &Path, batch: &mut Batch) {
        let mut printed = vec![];
        let read = File::open(path).and_then(|file| file.take(PRINTED_BYTES_MAX).read_to_end(&mut printed));
        let is_whole = is_whole && read.as_ref().is_ok_and(|read| (*read as u64) < PRINTED_BYTES_MAX);
        let _ = fs::remove_file(path);
        let _ = fs::remove_file(&slice.path);
        let origin_us = tick.clock.monotonic_us;
        let Some((oddity, since_us)) = slice.odd else {
            return self.keep_text(tick, printed, is_whole, (slice.from_us, slice.to_us), "always", batch);
        };
        // Seconds that were kept for an earlier oddity are not kept twice.
        let odd_us = since_us.max(slice.from_us);
        let calm_us = slice.from_us.max(odd_us.saturating_sub(self.slice_us()));
        let before = text::between(&printed, origin_us + calm_us, origin_us + odd_us);
        let after = text::between(&printed, origin_us + odd_us, u64::MAX);
        if !before.is_empty() && self.options.mode == Mode::Auto {
            self.keep_text(tick, before, is_whole, (calm_us, odd_us), "calm", batch);
        } else if !before.is_empty() {
            self.keep_text(tick, before, is_whole, (calm_us, odd_us), "always", batch);
        }
        self.keep_text(tick, after, is_whole, (odd_us, slice.to_us), oddity.word(), batch);
    }

    fn keep_text(
        &mut self,
        tick: &Tick,
        mut text: Vec<u8>,
        is_whole: bool,
        (from_us, to_us): (u64, u64),
        reason: &str,
        batch: &mut Batch,
    ) {
        let left = self.options.kept_bytes_max.saturating_sub(self.kept_bytes).min(TEXT_BYTES_MAX);
        let is_cut = text.len() as u64 > left;
        if is_cut {
            // Stacks are separated by empty lines; half of one would be read as a different one.
            text.truncate(left as usize);
            text::truncate(&mut text);
        }
        if text.is_empty() {
            return self.note_full(tick, left, is_cut, batch);
        }
        let header = format!(
            "# pgfathom stacks 1\n# clock: monotonic\n# started_monotonic_us: {}\n# host: {}\n# from_us: {from_us}\n# to_us: {to_us}\n# reason: \
             {reason}\n# whole: {}\n",
            tick.clock.monotonic_us,
            self.options.host,
            is_whole && !is_cut
        );
        let mut content = header.into_bytes();
        content.extend(text);
        self.kept_bytes += content.len() as u64;
        let name = format!("stacks/{from_us}-{reason}.perf");
        let message = format!("stacks of {} kept: {reason}", self.options.host);
        let mut detail = self.place().event(from_us, event::STACKS, message);
        detail = detail.with("file", name.as_str()).with("reason", reason).with("bytes", content.len());
        detail.duration_us = Some(to_us.saturating_sub(from_us));
        batch.event(detail);
        batch.file(name, content);
        self.note_full(tick, left, is_cut, batch);
    }

    /// Reports once that the budget is used up: when a text had to be cut for it.
    fn note_full(&mut self, tick: &Tick, left: u64, is_cut: bool, batch: &mut Batch) {
        if is_cut && left < TEXT_BYTES_MAX && !self.is_full {
            self.is_full = true;
            let text =
                format!("the limit of {} KiB of stacks is reached: no more are kept", self.kept_bytes >> 10);
            batch.event(self.place().event(tick.now_us, event::NOTE, text));
        }
    }

    /// How long the end may print: stacks that no flag requested must not outlast a short recording, nor cost more than it.
    fn finish_patience(&self) -> Duration {
        if self.options.mode == Mode::Always { FINISH_PATIENCE } else { FINISH_PATIENCE_AUTO }
    }

    fn clean(&mut self) {
        self.ring = None;
        for mut printing in self.printing.drain(..) {
            let _ = printing.child.kill();
            let _ = printing.child.wait();
        }
        self.kept_folder = None;
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Collect for Stacks {
    fn place(&self) -> Place {
        Place::Host(self.options.host.clone())
    }

    fn part(&self) -> &'static str {
        "stacks"
    }

    /// On a busy host printing a slice takes many seconds instead of one.
    fn patience(&self) -> Option<Duration> {
        Some(self.finish_patience() + Duration::from_secs(2))
    }

    fn spent(&mut self) -> Spent {
        Spent { programs_cpu_us: Some(std::mem::take(&mut self.programs_us)), ..Spent::default() }
    }

    fn tick(&mut self, tick: &Tick, batch: &mut Batch) {
        let second = self.second();
        if let Some(oddity) = self.detector.see(second).filter(|oddity| !self.is_worn(*oddity)) {
            // The first oddity names the slice: what follows is often its consequence.
            let since_us = tick.now_us.saturating_sub(oddity.seconds() * tick.cadence_us);
            self.odd.get_or_insert((oddity, since_us));
        }
        self.begun_us.get_or_insert(tick.now_us);
        self.turn(tick, batch);
        self.print(tick, usize::from(self.may_print(tick.now_us)), batch);
        if self.is_full {
            self.ring = None;
        } else if self.ring.is_none() && !self.is_given_up {
            self.record(tick, batch);
        }
    }

    fn finish(&mut self, tick: &Tick, batch: &mut Batch) {
        let deadline = Instant::now() + self.finish_patience();
        let is_wanted = self.odd.is_some() || self.options.mode == Mode::Always;
        if let Some(ring) = self.ring.as_mut().filter(|_| is_wanted) {
            ring.end();
            while self.ring.is_some() && Instant::now() < deadline {
                self.turn(tick, batch);
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        self.print(tick, 0, batch);
        // A slice that is being printed at the lowest priority begins again at the usual one: only root may raise a priority.
        for mut printing in self.printing.drain(..) {
            let _ = printing.child.kill();
            let _ = printing.child.wait();
            self.queue.push_front(printing.slice);
        }
        // All of them at once: the measurement has ended, and the CPUs are idle.
        while !(self.printing.is_empty() && self.queue.is_empty()) && Instant::now() < deadline {
            self.print(tick, QUEUE_MAX + 1, batch);
            std::thread::sleep(Duration::from_millis(10));
        }
        if let Some(ring) = &mut self.ring {
            self.programs_us += ring.spent_us();
        }
        let lost = self.printing.len() + self.queue.len();
        if lost > 0 {
            let text = format!("{lost} slices of stacks were not written in time and are lost");
            batch.event(self.place().event(tick.now_us, event::NOTE, text));
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

//! Stacks of the bad seconds: the kernel records into a ring in memory, and only the seconds around an anomaly are kept.
//!
//! The kernel samples a software clock (no hardware counters needed, so it works in virtual machines), follows frame pointers, and
//! stamps with CLOCK_MONOTONIC, the axis of everything else. It ends when we do. The text is that of `perf script`, with time
//! stamps, and is kept under `stacks/`: a flame graph of any part of it, or the difference of two parts, can be made later.
//!
//! | the ring is | next |
//! |---|---|
//! | none: too early, given up, or the budget is used up | started if possible, to turning |
//! | turning | an oddity, to odd; `always`: the slice is full, or the ring soon is: it is read, to turning |
//! | odd, or busy: half a slice more is recorded, with the bad seconds | it is read, or passed over if its kind was kept often enough, to turning |
//!
//! With the samples goes what is known of their processes ([`capture`]): they may have ended before the slice is printed. The queue is printed (in
//! a thread at the lowest priority) while the cost stays within [`BUDGET_SHARE`] of the elapsed CPU time, else after the measurement.
//!
//! A printed ring is cut where the oddity began: the earlier part is the normal slice to compare with.

mod capture;
mod client;
pub mod detect;
mod elf;
mod print;
mod records;
mod ring;
mod symbols;

use crate::board::{Board, NodeState, Process};
use crate::collect::{Batch, Collect, Place, Spent, Tick, With};
use crate::host::Pulse;
use capture::Captured;
use client::ClientTail;
use detect::{Detector, Oddity, Second};
use print::{Part, Printing, Slice};
use record::event;
use record::stacks::AtWork;
use ring::{Denied, Rings, Source};
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use symbols::Symbols;

/// Length of a slice.
pub const SLICE: Duration = Duration::from_secs(15);
/// Samples kept of a slice: hosts with more than 8 CPUs have more. Half of them is known to within a hundredth.
const SAMPLES_MAX: usize = 8_000;
/// Text kept of a run.
const KEPT_BYTES_MAX: u64 = 64 << 20;
/// Slices kept for one kind of oddity: a host that is always odd is not recorded for ever.
const KEPT_PER_ODDITY_MAX: u32 = 8;
/// The same for what may last: it then always has the same stacks.
const KEPT_OF_LEVEL_MAX: u32 = 2;
/// CPU time of a host, in percent of all its processors, that is worth a slice although no session of its server is seen at work.
const BUSY_HOST_PCT: f64 = 50.0;
/// Looks at processes at work that are kept, for the slices that are read next.
const LOOKS_MAX: usize = 16_384;
/// Slices that may wait to be printed.
const QUEUE_MAX: usize = 4;
/// Share of all CPUs that printing may use during a measurement.
const BUDGET_SHARE: f64 = 0.002;
/// The assumed cost of printing a slice, until it is measured.
const PRINT_US: u64 = 100_000;
/// How long the end waits for the last slice and its printing.
const FINISH_PATIENCE: Duration = Duration::from_secs(30);
/// The same for stacks that were recorded because something looked odd.
const FINISH_PATIENCE_AUTO: Duration = Duration::from_secs(6);
/// How long the end waits for a slice that is being printed at the lowest priority, before it prints it itself.
const STOP_PATIENCE: Duration = Duration::from_millis(200);
const PAUSE: Duration = Duration::from_millis(5);
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
    /// None: nothing is recorded.
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
    /// Text kept of a run.
    pub kept_bytes_max: u64,
}

impl Options {
    /// The usual limits.
    pub fn new(host: &str, mode: Mode, run_dir: &Path) -> Options {
        Options {
            host: host.to_string(),
            mode,
            run_dir: run_dir.to_path_buf(),
            slice: SLICE,
            kept_bytes_max: KEPT_BYTES_MAX,
        }
    }
}

/// The collector of stacks.
#[derive(Debug)]
pub struct Stacks {
    options: Options,
    board: Arc<Board>,
    pulse: Pulse,
    client: ClientTail,
    detector: Detector,
    /// Begins to record.
    open: fn() -> Result<Box<dyn Source>, Denied>,
    ring: Option<Box<dyn Source>>,
    /// The oddity in the ring's seconds, and its begin.
    odd: Option<(Oddity, u64)>,
    /// What the server processes of this host were seen at work with: the samples of the ring have no statements.
    at_work: VecDeque<AtWork>,
    /// The names of processes that were seen at work: one that has ended when its samples are read has none any more.
    names: BTreeMap<u32, String>,
    /// The end of the samples that were taken or passed over so far.
    until_us: u64,
    queue: VecDeque<Arc<Slice>>,
    printing: Option<Printing>,
    /// Those that were read so far; the thread that prints has them.
    symbols: Symbols,
    /// The time of the first tick, the cost of printing since then, and that of the last slice.
    begun_us: Option<u64>,
    printed_us: u64,
    print_us: u64,
    kept_bytes: u64,
    /// The budget is used up.
    is_full: bool,
    kept: BTreeMap<Oddity, u32>,
    /// It was reported that nothing is recorded (any more).
    is_given_up: bool,
    /// The time of the last line of each node, so that an old rate is not used twice.
    seen_us: u64,
    /// CPU time of printing threads that was not reported yet.
    threads_us: u64,
}

impl Stacks {
    /// A collector that begins at its first tick. `pulse` comes from the collector of the host.
    pub fn new(options: Options, board: Arc<Board>, pulse: Pulse) -> Stacks {
        Stacks {
            client: ClientTail::new(&options.run_dir),
            options,
            board,
            pulse,
            detector: Detector::default(),
            open: Rings::open,
            ring: None,
            odd: None,
            at_work: VecDeque::new(),
            names: BTreeMap::new(),
            until_us: 0,
            queue: VecDeque::new(),
            printing: None,
            symbols: Symbols::default(),
            begun_us: None,
            printed_us: 0,
            print_us: PRINT_US,
            kept_bytes: 0,
            is_full: false,
            kept: BTreeMap::new(),
            is_given_up: false,
            seen_us: 0,
            threads_us: 0,
        }
    }

    /// The data of the last second. The client's numbers are preferred to the server's: they are what users experience.
    fn second(&mut self) -> Second {
        let cpu = self.pulse.cpu();
        let system_pct = cpu.map(|(_, system)| system);
        let nodes = self.board.nodes();
        let newest_us = nodes.values().map(|node| node.t_us).max().unwrap_or(0);
        let seen_us = std::mem::replace(&mut self.seen_us, newest_us);
        // What logs in, archives or writes for sessions is no session at work.
        let has_busy_host = cpu.is_some_and(|(user, system)| user + system >= BUSY_HOST_PCT)
            && nodes.values().any(|node| node.is_local);
        let is_at_work = self.look(&nodes, seen_us) || has_busy_host;
        if let Some(client) = self.client.newest() {
            let latency_us_p99 = client.latency_us_p99;
            return Second { rate: Some(client.rate), latency_us_p99, system_pct, is_at_work };
        }
        let rate = (seen_us != newest_us).then(|| nodes.values().map(|node| node.transactions_per_s).sum());
        Second { rate, latency_us_p99: None, system_pct, is_at_work }
    }

    /// Keeps what the processes of this host were seen at work with since that time; whether one used the CPU.
    fn look(&mut self, nodes: &BTreeMap<String, NodeState>, seen_us: u64) -> bool {
        let mut is_at_work = false;
        for (name, node) in nodes.iter().filter(|(_, node)| node.is_local && node.t_us > seen_us) {
            let uses_cpu = |process: &&Process| process.wait.is_empty() || process.wait.starts_with("IO:");
            for process in node.active.iter().filter(uses_cpu) {
                is_at_work |= process.wait.is_empty();
                learn_name(&mut self.names, process.pid, Path::new("/proc"));
                let Some(query_id) = process.query_id.clone() else { continue };
                if self.at_work.len() == LOOKS_MAX {
                    self.at_work.pop_front();
                }
                let (t_us, pid, node) = (node.t_us, process.pid.into(), name.clone());
                self.at_work.push_back(AtWork { t_us, pid, query_id, node });
            }
        }
        is_at_work
    }

    fn give_up(&mut self, tick: &Tick, why: String, batch: &mut Batch) {
        self.is_given_up = true;
        batch.reading(tick.now_us, self.place().missing("perf", why, LOST));
    }

    fn slice_us(&self) -> u64 {
        self.options.slice.as_micros() as u64
    }

    fn record(&mut self, tick: &Tick, batch: &mut Batch) {
        match (self.open)() {
            Ok(ring) => (self.ring, self.until_us) = (Some(ring), tick.clock.now_us()),
            Err(denied) => self.give_up(tick, denied.to_string(), batch),
        }
    }

    /// Whether this oddity was kept often enough.
    fn is_worn(&self, oddity: Oddity) -> bool {
        let most = if oddity.is_level() { KEPT_OF_LEVEL_MAX } else { KEPT_PER_ODDITY_MAX };
        self.kept.get(&oddity).copied().unwrap_or(0) >= most
    }

    /// Reads the ring when it is time.
    fn turn(&mut self, tick: &Tick) {
        let Some(ring) = &self.ring else { return };
        let (now_us, slice_us) = (tick.clock.now_us(), self.slice_us());
        let is_due = match (self.odd, self.options.mode) {
            (_, Mode::Always) => now_us.saturating_sub(self.until_us) >= slice_us || ring.is_filling(),
            (Some((_, since_us)), _) => now_us.saturating_sub(since_us) >= slice_us / 2,
            (None, _) => false,
        };
        if is_due {
            self.take(tick, now_us);
        }
    }

    /// Takes the samples up to now, if they are kept.
    fn take(&mut self, tick: &Tick, now_us: u64) {
        const NS_PER_US: u64 = 1000;
        let slice_us = self.slice_us();
        let (from_us, odd) = (std::mem::replace(&mut self.until_us, now_us), self.odd.take());
        let is_kept = self.is_kept(odd);
        self.detector.forget_busy();
        let Some(ring) = &mut self.ring else { return };
        if !is_kept {
            return ring.skip();
        }
        let from_us = odd.map_or(from_us, |(_, since_us)| from_us.max(since_us.saturating_sub(slice_us)));
        let mut samples = ring.take();
        samples.forget_before((tick.clock.monotonic_us + from_us) * NS_PER_US);
        samples.thin_out(SAMPLES_MAX);
        if let Some((oddity, _)) = odd {
            *self.kept.entry(oddity).or_default() += 1;
        }
        let mut captured = Captured::of(&samples, Path::new("/proc"));
        captured.take_names(&samples, &self.names);
        let origin_us = tick.clock.monotonic_us;
        let of_slice = self.at_work.iter().filter(|seen| seen.t_us >= from_us);
        let at_work = of_slice.cloned().collect();
        let slice = Slice { samples, captured, from_us, to_us: now_us, origin_us, odd, at_work };
        self.queue.push_back(Arc::new(slice));
    }

    fn is_kept(&self, odd: Option<(Oddity, u64)>) -> bool {
        let is_limited =
            self.options.mode == Mode::Auto && odd.is_none_or(|(oddity, _)| self.is_worn(oddity));
        !is_limited && self.queue.len() < QUEUE_MAX && !self.is_full
    }

    /// Whether another slice may be printed during a measurement. With `always` every slice is printed at once.
    fn may_print(&self, now_us: u64) -> bool {
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        let passed_us = now_us.saturating_sub(self.begun_us.unwrap_or(now_us));
        let budget_us = (passed_us * cores as u64) as f64 * BUDGET_SHARE;
        self.options.mode == Mode::Always || (self.printed_us + self.print_us) as f64 <= budget_us
    }

    /// Takes what was printed, and starts to print the next slice if it may.
    fn print(&mut self, tick: &Tick, batch: &mut Batch) {
        if let Some(printing) = self.printing.take_if(|printing| printing.is_finished()) {
            self.printed(tick, printing, batch);
        }
        if self.printing.is_none()
            && self.may_print(tick.now_us)
            && let Some(slice) = self.queue.pop_front()
        {
            match Printing::start(slice, std::mem::take(&mut self.symbols)) {
                Ok(printing) => self.printing = Some(printing),
                Err(error) => self.lost(
                    tick,
                    &format!("a slice of stacks is lost: no thread to print it ({error})"),
                    batch,
                ),
            }
        }
    }

    /// Takes what a thread has left. A slice that it did not finish waits again.
    fn printed(&mut self, tick: &Tick, printing: Printing, batch: &mut Batch) {
        let slice = printing.slice();
        let Some(printed) = printing.join() else {
            return self.lost(tick, "a slice of stacks is lost: printing it failed", batch);
        };
        self.symbols = printed.symbols;
        self.print_us = printed.cpu_us;
        self.printed_us += printed.cpu_us;
        self.threads_us += printed.cpu_us;
        match printed.parts {
            Some(parts) => self.keep(tick, parts, batch),
            None => self.queue.push_front(slice),
        }
    }

    /// Keeps the printed text: the odd seconds, and separately the normal ones before.
    fn keep(&mut self, tick: &Tick, parts: Vec<Part>, batch: &mut Batch) {
        for part in parts {
            let is_before = part.oddity.is_none() && self.options.mode == Mode::Auto;
            let reason = part.oddity.map_or(if is_before { "calm" } else { "always" }, Oddity::word);
            self.keep_text(tick, part, reason, batch);
        }
    }

    /// Prints what waits, at the usual priority: the measurement has ended.
    fn print_rest(&mut self, tick: &Tick, deadline: Instant, batch: &mut Batch) {
        if let Some(printing) = self.printing.take() {
            printing.stop();
            let stop_by = Instant::now() + STOP_PATIENCE;
            while !printing.is_finished() && Instant::now() < stop_by {
                std::thread::sleep(PAUSE);
            }
            match printing.is_finished() {
                true => self.printed(tick, printing, batch),
                false => self.queue.push_front(printing.slice()),
            }
        }
        let mut lost = 0;
        let is_over = || Instant::now() >= deadline;
        while let Some(slice) = self.queue.pop_front() {
            match slice.print(&mut self.symbols, &is_over) {
                Some(parts) => self.keep(tick, parts, batch),
                None => lost += 1,
            }
        }
        if lost > 0 {
            self.lost(tick, &format!("{lost} slices of stacks were not written in time and are lost"), batch);
        }
    }

    /// Notes stacks that are lost, and what cannot be known without them.
    fn lost(&self, tick: &Tick, why: &str, batch: &mut Batch) {
        batch.event(self.place().event(tick.now_us, event::NOTE, why));
        if self.kept_bytes == 0 {
            batch.reading(tick.now_us, self.place().missing("perf", why, LOST));
        }
    }

    fn keep_text(&mut self, tick: &Tick, mut part: Part, reason: &str, batch: &mut Batch) {
        let left = self.options.kept_bytes_max.saturating_sub(self.kept_bytes);
        let is_cut = part.text.len() as u64 > left;
        if is_cut {
            part.cut(left as usize);
        }
        let Part { from_us, to_us, at_work, text, is_whole, .. } = part;
        if text.is_empty() {
            return self.note_full(tick, is_cut, batch);
        }
        let header = format!(
            "# pgfathom stacks 1\n# clock: monotonic\n# started_monotonic_us: {}\n# host: {}\n# from_us: {from_us}\n# to_us: {to_us}\n# reason: \
             {reason}\n# whole: {}\n",
            tick.clock.monotonic_us, self.options.host, is_whole
        );
        let content = (header + &at_work + &text).into_bytes();
        self.kept_bytes += content.len() as u64;
        let name = format!("stacks/{from_us}-{reason}.perf");
        let message = format!("stacks of {} kept: {reason}", self.options.host);
        let mut detail = self.place().event(from_us, event::STACKS, message);
        detail = detail.with("file", name.as_str()).with("reason", reason).with("bytes", content.len());
        detail.duration_us = Some(to_us.saturating_sub(from_us));
        batch.event(detail);
        batch.file(name, content);
        self.note_full(tick, is_cut, batch);
    }

    /// Reports once that the budget is used up: when a text had to be cut for it.
    fn note_full(&mut self, tick: &Tick, is_cut: bool, batch: &mut Batch) {
        if is_cut && !self.is_full {
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
}

/// Keeps the name of a process, once.
fn learn_name(names: &mut BTreeMap<u32, String>, pid: u32, proc: &Path) {
    if names.len() >= LOOKS_MAX || names.contains_key(&pid) {
        return;
    }
    let name = std::fs::read(proc.join(format!("{pid}/comm")));
    names.extend(name.ok().map(|name| (pid, String::from_utf8_lossy(&name).trim_end().to_string())));
}

impl Collect for Stacks {
    fn place(&self) -> Place {
        Place::Host(self.options.host.clone())
    }

    fn part(&self) -> &'static str {
        "stacks"
    }

    fn subject(&self) -> String {
        format!("the stacks of {}", self.options.host)
    }

    /// On a busy host printing may take seconds.
    fn patience(&self) -> Option<Duration> {
        Some(self.finish_patience() + Duration::from_secs(2))
    }

    fn spent(&mut self) -> Spent {
        Spent { programs_cpu_us: Some(std::mem::take(&mut self.threads_us)), ..Spent::default() }
    }

    fn tick(&mut self, tick: &Tick, batch: &mut Batch) {
        let second = self.second();
        let oddity = self.detector.see(second).filter(|oddity| !self.is_worn(*oddity));
        // The end has a slice of the server at work as well, which may be about something else.
        let is_for_end = |oddity: &Oddity| *oddity == Oddity::Busy && self.kept.contains_key(oddity);
        if let Some(oddity) = oddity.filter(|oddity| !is_for_end(oddity)) {
            // The first oddity names the slice: what follows is often its consequence.
            let since_us = tick.now_us.saturating_sub(oddity.seconds() * tick.cadence_us);
            // Work as usual gives way to it.
            self.odd = match self.odd {
                Some(odd) if odd.0 != Oddity::Busy => Some(odd),
                Some(odd) if oddity == Oddity::Busy => Some(odd),
                _ => Some((oddity, since_us)),
            };
        }
        self.begun_us.get_or_insert(tick.now_us);
        self.turn(tick);
        self.print(tick, batch);
        if self.is_full {
            self.ring = None;
        } else if self.ring.is_none() && !self.is_given_up {
            self.record(tick, batch);
        }
    }

    fn finish(&mut self, tick: &Tick, batch: &mut Batch) {
        if self.odd.is_none() && self.detector.is_busy_at_end() && !self.is_worn(Oddity::Busy) {
            self.odd = Some((Oddity::Busy, tick.clock.now_us()));
        }
        if self.odd.is_some() || self.options.mode == Mode::Always {
            self.take(tick, tick.clock.now_us());
        }
        // Nothing is recorded while it is printed.
        self.ring = None;
        self.print_rest(tick, Instant::now() + self.finish_patience(), batch);
    }
}

#[cfg(test)]
mod tests;

//! Prints a slice as `perf script` does, in the collector's thread or in one of its own at the lowest priority.

use super::capture::Captured;
use super::detect::Oddity;
use super::records::Samples;
use super::symbols::Symbols;
use record::stacks::AtWork;
use rustix::process::setpriority_process;
use rustix::time::{ClockId, clock_gettime};
use std::fmt::Write;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Text kept of one slice; the rest is left out.
const TEXT_BYTES_MAX: usize = 8 << 20;
/// The lowest priority: the measurement has priority over printing.
const LOWEST: i32 = 19;

/// Samples that were handed out.
#[derive(Debug)]
pub(super) struct Slice {
    pub(super) samples: Samples,
    pub(super) captured: Captured,
    /// The end of the samples that were already kept.
    pub(super) from_us: u64,
    pub(super) to_us: u64,
    /// The start of the run on the clock of the samples.
    pub(super) origin_us: u64,
    /// What is odd, and since when.
    pub(super) odd: Option<(Oddity, u64)>,
    /// What the processes were seen at work with.
    pub(super) at_work: Vec<AtWork>,
}

/// A part of a slice that becomes a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Part {
    pub(super) from_us: u64,
    pub(super) to_us: u64,
    /// `None` if the seconds are normal.
    pub(super) oddity: Option<Oddity>,
    /// The lines with what its processes were seen at work with.
    pub(super) at_work: String,
    pub(super) text: String,
    pub(super) is_whole: bool,
}

impl Part {
    /// Cuts the text to at most this length, behind a sample: half of a stack would be read as a different one.
    pub(super) fn cut(&mut self, bytes_max: usize) {
        let kept = &self.text.as_bytes()[..bytes_max.min(self.text.len())];
        let end = kept.windows(2).rposition(|pair| pair == b"\n\n").map_or(0, |at| at + 2);
        self.text.truncate(end);
        self.is_whole = false;
    }
}

impl Slice {
    /// The normal seconds and the odd ones, printed. `None` if `is_over` came true before the end.
    pub(super) fn print(&self, symbols: &mut Symbols, is_over: &dyn Fn() -> bool) -> Option<Vec<Part>> {
        let mut parts = vec![];
        let mut part = |from_us: u64, to_us: u64, oddity| -> Option<()> {
            let (text, is_whole) = self.text(from_us, to_us, symbols, is_over)?;
            let mut at_work = String::new();
            let of_part = self.at_work.iter().filter(|seen| (from_us..=to_us).contains(&seen.t_us));
            of_part.for_each(|seen| seen.write(&mut at_work));
            parts.push(Part { from_us, to_us, oddity, at_work, text, is_whole });
            Some(())
        };
        match self.odd {
            None => part(self.from_us, self.to_us, None)?,
            // There is nothing to compare it with.
            Some((Oddity::Busy, _)) => part(self.from_us, self.to_us, Some(Oddity::Busy))?,
            Some((oddity, since_us)) => {
                // Seconds that were kept for an earlier oddity are not kept twice.
                let odd_us = since_us.max(self.from_us);
                part(self.from_us, odd_us, None)?;
                part(odd_us, self.to_us, Some(oddity))?;
            }
        }
        Some(parts)
    }

    /// The samples from one time to another, and whether these are all.
    fn text(
        &self,
        from_us: u64,
        to_us: u64,
        symbols: &mut Symbols,
        is_over: &dyn Fn() -> bool,
    ) -> Option<(String, bool)> {
        const NS_PER_US: u64 = 1000;
        let (from_us, to_us) = (self.origin_us + from_us, self.origin_us.saturating_add(to_us));
        let mut is_whole = !self.samples.is_thinned && self.samples.complete_from_ns / NS_PER_US <= from_us;
        let (mut text, mut sample_text) = (String::new(), String::new());
        let mut names = symbols.of(&self.captured);
        for sample in &self.samples.all {
            let t_us = sample.t_ns / NS_PER_US;
            if !(from_us..to_us).contains(&t_us) {
                continue;
            }
            if is_over() {
                return None;
            }
            sample_text.clear();
            let (seconds, micros) = (t_us / 1_000_000, t_us % 1_000_000);
            let (pid, tid, cpu) = (sample.pid, sample.tid, sample.cpu);
            let unknown = format!(":{tid}");
            let command = self.captured.command(sample).unwrap_or(&unknown).replace(char::is_control, "?");
            let _ = writeln!(
                sample_text,
                "{command} {pid:>5}/{tid:<5} [{cpu:03}] {seconds:>5}.{micros:06}: cpu-clock: "
            );
            let space = self.captured.space(pid);
            for frame in &sample.frames {
                sample_text.push_str(names.line(space, *frame));
            }
            sample_text.push('\n');
            if text.len() + sample_text.len() > TEXT_BYTES_MAX {
                is_whole = false;
                break;
            }
            text.push_str(&sample_text);
        }
        Some((text, is_whole))
    }
}

/// A slice that is being printed.
#[derive(Debug)]
pub(super) struct Printing {
    slice: Arc<Slice>,
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Printed>,
}

/// What a thread leaves.
#[derive(Debug)]
pub(super) struct Printed {
    pub(super) parts: Option<Vec<Part>>,
    pub(super) symbols: Symbols,
    pub(super) cpu_us: u64,
}

impl Printing {
    /// Starts to print, at the lowest priority.
    pub(super) fn start(slice: Arc<Slice>, mut symbols: Symbols) -> io::Result<Printing> {
        let is_over = Arc::new(AtomicBool::new(false));
        let (its, ended) = (Arc::clone(&slice), Arc::clone(&is_over));
        let thread = std::thread::Builder::new().name("watch stacks".to_string()).spawn(move || {
            lowest_priority();
            let parts = its.print(&mut symbols, &|| ended.load(Ordering::Relaxed));
            Printed { parts, symbols, cpu_us: thread_cpu_us() }
        })?;
        Ok(Printing { slice, is_over, thread })
    }

    /// Whether [`Printing::join`] returns at once.
    pub(super) fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// What it left; `None` if it panicked.
    pub(super) fn join(self) -> Option<Printed> {
        self.thread.join().ok()
    }

    /// Its slice.
    pub(super) fn slice(&self) -> Arc<Slice> {
        Arc::clone(&self.slice)
    }

    /// Ends it soon.
    pub(super) fn stop(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// Of the calling thread: on Linux, "this process" means that. Only root may raise it again, so the thread ends with its slice.
fn lowest_priority() {
    let _ = setpriority_process(None, LOWEST);
}

/// CPU time of this thread.
fn thread_cpu_us() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_thread_that_prints_has_the_lowest_priority() {
        let nice = || {
            let stat = std::fs::read_to_string("/proc/thread-self/stat").expect("read");
            // Field 19 of proc(5); the first after the name is field 3.
            let field = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(19 - 3));
            field.and_then(|field| field.parse::<i32>().ok()).expect("a number")
        };
        let before = nice();
        let thread = std::thread::spawn(move || {
            lowest_priority();
            nice()
        });
        assert_eq!(thread.join().expect("ended"), LOWEST);
        assert_eq!(nice(), before);
    }

    #[test]
    fn text_is_cut_behind_a_sample() {
        let cut = |bytes_max: usize| {
            let text = "a\n\tb\n\nc\n\td\n\n".to_string();
            let (oddity, at_work) = (None, String::new());
            let mut part = Part { from_us: 0, to_us: 1, oddity, at_work, text, is_whole: true };
            part.cut(bytes_max);
            (part.text, part.is_whole)
        };
        assert_eq!(cut(11), ("a\n\tb\n\n".to_string(), false));
        assert_eq!(cut(12).0, "a\n\tb\n\nc\n\td\n\n");
        assert_eq!((cut(5).0.as_str(), cut(0).0.as_str()), ("", ""));
    }
}

//! How much CPU time a process took, from the scheduler's own account of it.
//!
//! `/proc/PID/schedstat` counts nanoseconds, where `/proc/PID/stat` counts ticks of 10 ms: a process that takes 3 ms a second would show nothing
//! for seconds there. It can be read until the parent of the process has called wait. It is the account of one thread; a
//! server process and `ssh` have only one.

use crate::host::process::{self, Schedule};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Longer than any line of it.
const LINE_BYTES: usize = 96;

/// Reads one process or thread repeatedly, from a file that stays open.
#[derive(Debug)]
pub(crate) struct Meter {
    file: File,
    reported_ns: u64,
}

impl Meter {
    /// For a process of this host, counted from its start; `None` if it cannot be read.
    pub(crate) fn of(pid: u32) -> Option<Meter> {
        Meter::open(&format!("/proc/{pid}/schedstat"))
    }

    /// Of a thread of this process.
    pub(crate) fn of_thread(id: u32) -> Option<Meter> {
        Meter::open(&format!("/proc/self/task/{id}/schedstat"))
    }

    fn open(path: &str) -> Option<Meter> {
        let file = File::open(path).ok()?;
        let mut meter = Meter { file, reported_ns: 0 };
        meter.read().map(|_| meter)
    }

    /// The present account; `None` if the process has ended.
    pub(crate) fn read(&mut self) -> Option<Schedule> {
        let mut line = [0; LINE_BYTES];
        let length = self.file.read_at(&mut line, 0).ok()?;
        process::schedule(std::str::from_utf8(&line[..length]).ok()?)
    }

    /// Microseconds on a CPU since the last call.
    pub(crate) fn spent(&mut self) -> Option<u64> {
        const NS_PER_US: u64 = 1000;
        let spent_us = self.read()?.run_ns.saturating_sub(self.reported_ns) / NS_PER_US;
        // Less than a microsecond is counted the next time.
        self.reported_ns += spent_us * NS_PER_US;
        Some(spent_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_counted_once() {
        let mut meter = Meter::of(std::process::id()).expect("we are there");
        let first_us = meter.spent().expect("counted");
        // The main thread of a test program only waits, but it has started.
        let again_us = meter.spent().expect("counted");
        assert!(first_us > 0 && again_us < first_us, "{first_us} {again_us}");
        assert!(Meter::of(u32::MAX >> 1).is_none(), "there is no such process");
    }
}

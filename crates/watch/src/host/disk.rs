//! Block devices: `/proc/diskstats`, and the requests between two samples of it.
//!
//! Formulas (sysstat's, in milliseconds and seconds): reads/s is the growth of field 4 (counted from the major number as 1), a read's
//! mean wait the growth of field 7 over that of field 4, likewise 11 over 8 for writes and 20 over 19 for flushes; the mean queue is the
//! growth of field 14 over the time, and utilisation that of field 13. Utilisation means little on a device that works on many
//! requests at once (NVMe, RAID). The kernel keeps milliseconds: below about a hundred requests per second the waits are coarse.

use super::files::{growth, rounded};
use std::collections::BTreeMap;

/// A sector of `/proc/diskstats`, whatever the device's own.
const SECTOR_BYTES: u64 = 512;

/// One line of `/proc/diskstats`, since boot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Device numbers.
    pub number: (u32, u32),
    /// Reads completed.
    pub reads: u64,
    /// Sectors read.
    pub read_sectors: u64,
    /// Time spent by all reads.
    pub read_ms: u64,
    /// Writes completed.
    pub writes: u64,
    /// Sectors written.
    pub write_sectors: u64,
    /// Time spent by all writes.
    pub write_ms: u64,
    /// Requests in flight. May be below zero because of a race in the kernel.
    pub in_flight: i64,
    /// Time in which at least one request was in flight.
    pub busy_ms: u64,
    /// The same, weighted by how many.
    pub queue_ms: u64,
    /// Flushes completed (kernel 5.5).
    pub flushes: Option<u64>,
    /// Time spent by all flushes.
    pub flush_ms: Option<u64>,
}

impl Counters {
    /// Whether the device ever did anything.
    pub fn has_worked(&self) -> bool {
        self.reads > 0 || self.writes > 0
    }
}

/// Reads `/proc/diskstats` with 14 (before 4.18), 18 or 20 fields per line, by device name. Shorter lines (partitions before 2.6.25)
/// and torn ones are ignored.
pub fn diskstats(text: &str) -> BTreeMap<String, Counters> {
    let mut found = BTreeMap::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        if words.len() < 14 {
            continue;
        }
        let number = |index: usize| words.get(index).and_then(|word| word.parse::<u64>().ok());
        let counters = || {
            Some(Counters {
                number: (words[0].parse().ok()?, words[1].parse().ok()?),
                reads: number(3)?,
                read_sectors: number(5)?,
                read_ms: number(6)?,
                writes: number(7)?,
                write_sectors: number(9)?,
                write_ms: number(10)?,
                in_flight: words[11].parse().unwrap_or(0),
                busy_ms: number(12)?,
                queue_ms: number(13)?,
                flushes: number(18),
                flush_ms: number(19),
            })
        };
        if let Some(counters) = counters() {
            found.insert(words[2].to_string(), counters);
        }
    }
    found
}

/// The activity of a device in an interval.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Work {
    /// Reads completed.
    pub reads: u64,
    /// Writes completed.
    pub writes: u64,
    /// Completed flushes, if the kernel counts them.
    pub flushes: Option<u64>,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Mean wait of a read; `None` without one.
    pub read_await_ms: Option<f64>,
    /// Mean wait of a write.
    pub write_await_ms: Option<f64>,
    /// Mean wait of a flush.
    pub flush_await_ms: Option<f64>,
    /// Mean number of requests under way.
    pub queue: f64,
    /// Share of the time with a request in flight.
    pub util_pct: f64,
    /// Requests under way at the end.
    pub in_flight: u64,
}

/// The difference between two samples; `None` if a counter was reset (the device was replaced) or no time passed.
pub fn work(before: &Counters, now: &Counters, interval_us: u64) -> Option<Work> {
    if interval_us == 0 {
        return None;
    }
    let reads = growth(before.reads, now.reads)?;
    let writes = growth(before.writes, now.writes)?;
    let flushes = before.flushes.zip(now.flushes).and_then(|(before, now)| growth(before, now));
    let flush_ms = before.flush_ms.zip(now.flush_ms).and_then(|(before, now)| growth(before, now));
    let mean = |time_ms: Option<u64>, count: u64| {
        (count > 0).then_some(time_ms).flatten().map(|time_ms| rounded(time_ms as f64 / count as f64))
    };
    let interval_ms = interval_us as f64 / 1000.0;
    Some(Work {
        reads,
        writes,
        flushes,
        read_bytes: growth(before.read_sectors, now.read_sectors)?.saturating_mul(SECTOR_BYTES),
        write_bytes: growth(before.write_sectors, now.write_sectors)?.saturating_mul(SECTOR_BYTES),
        read_await_ms: mean(growth(before.read_ms, now.read_ms), reads),
        write_await_ms: mean(growth(before.write_ms, now.write_ms), writes),
        flush_await_ms: mean(flush_ms, flushes.unwrap_or(0)),
        queue: rounded(growth(before.queue_ms, now.queue_ms).unwrap_or(0) as f64 / interval_ms),
        util_pct: rounded(
            (100.0 * growth(before.busy_ms, now.busy_ms).unwrap_or(0) as f64 / interval_ms).min(100.0),
        ),
        in_flight: now.in_flight.max(0) as u64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_US: u64 = 1_000_000;

    #[test]
    fn lines_of_three_kernels() {
        let text = "   8       0 sda 1 2 3 4 5 6 7 8 9 10 11\n\
                    259       0 nvme0n1 100 0 800 50 200 0 1600 400 -1 300 450 7 0 9 1\n\
                    254       0 vda 10 0 80 5 20 0 160 40 2 30 45 7 0 9 1 33 66\n\
                    garbage\n   8 1 sda1 1 2 3 4\n  8 2 sda2 x 2 3 4 5 6 7 8 9 10 11\n";
        let found = diskstats(text);
        assert_eq!(found.keys().collect::<Vec<_>>(), ["nvme0n1", "sda", "vda"]);
        assert_eq!((found["sda"].flushes, found["nvme0n1"].flushes), (None, None));
        assert_eq!((found["vda"].flushes, found["vda"].flush_ms), (Some(33), Some(66)));
        assert_eq!(found["nvme0n1"].in_flight, -1, "one odd field does not invalidate the line");
        assert_eq!(found["vda"].number, (254, 0));
    }

    #[test]
    fn waits_queue_and_utilisation() {
        let before = Counters { flushes: Some(10), flush_ms: Some(100), ..Counters::default() };
        let now = Counters {
            reads: 100,
            read_sectors: 800,
            read_ms: 15,
            writes: 200,
            write_sectors: 3200,
            write_ms: 1128,
            in_flight: -1,
            busy_ms: 900,
            queue_ms: 2500,
            flushes: Some(20),
            flush_ms: Some(150),
            ..Counters::default()
        };
        let work = work(&before, &now, SECOND_US).expect("time passed");
        assert_eq!((work.reads, work.writes, work.flushes), (100, 200, Some(10)));
        assert_eq!((work.read_bytes, work.write_bytes), (409_600, 1_638_400));
        assert_eq!(work.read_await_ms, Some(0.15));
        assert_eq!(work.write_await_ms, Some(5.64));
        assert_eq!(work.flush_await_ms, Some(5.0));
        assert_eq!((work.queue, work.util_pct, work.in_flight), (2.5, 90.0, 0));
    }

    #[test]
    fn an_idle_device_has_no_wait_and_a_new_one_no_work() {
        let idle = Counters { reads: 5, ..Counters::default() };
        let none = work(&idle, &idle, SECOND_US).expect("time passed");
        assert_eq!((none.read_await_ms, none.flushes, none.flush_await_ms), (None, None, None));
        assert_eq!(work(&idle, &Counters::default(), SECOND_US), None, "the count went back: another device");
        assert_eq!(work(&idle, &idle, 0), None);
    }

    #[test]
    fn a_wrapped_counter_is_understood() {
        let before = Counters {
            writes: u64::from(u32::MAX) - 9,
            write_ms: u64::from(u32::MAX),
            ..Counters::default()
        };
        let now = Counters { writes: 90, write_ms: 299, ..Counters::default() };
        let work = work(&before, &now, SECOND_US).expect("time passed");
        assert_eq!((work.writes, work.write_await_ms), (100, Some(3.0)));
    }
}

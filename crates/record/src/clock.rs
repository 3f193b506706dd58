//! Time: CLOCK_MONOTONIC microseconds for everything measured, one wall-clock anchor to date it, and RFC 3339 in UTC.
//!
//! CLOCK_MONOTONIC is read raw (not through `Instant`) because the kernel stamps stacks with the same clock, as do other recorders
//! of the same host, and the anchor is for readers who align them.

use rustix::time::{ClockId, clock_getres, clock_gettime};
use std::time::{SystemTime, UNIX_EPOCH};

const NS_PER_S: u64 = 1_000_000_000;
const US_PER_S: u64 = 1_000_000;
const SECONDS_PER_DAY: u64 = 86_400;

/// Nanoseconds of CLOCK_MONOTONIC (since boot on Linux). Costs one vDSO call.
#[inline]
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // CLOCK_MONOTONIC never goes below zero.
    now.tv_sec as u64 * NS_PER_S + now.tv_nsec as u64
}

/// Microseconds of CLOCK_MONOTONIC.
#[inline]
pub fn monotonic_us() -> u64 {
    monotonic_ns() / 1000
}

/// Microseconds since the Unix epoch by the wall clock; 0 if that clock stands before 1970.
pub fn wall_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

/// Resolution of CLOCK_MONOTONIC in nanoseconds, as the kernel states it.
pub(crate) fn resolution_ns() -> u64 {
    let resolution = clock_getres(ClockId::Monotonic);
    resolution.tv_sec as u64 * NS_PER_S + resolution.tv_nsec as u64
}

/// The clock of one run: a monotonic origin and the wall-clock time that belongs to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Clock {
    /// CLOCK_MONOTONIC microseconds at the start of the run: `t_us` = 0.
    pub monotonic_us: u64,
    /// Wall-clock microseconds since the Unix epoch at the same moment.
    pub wall_us: u64,
}

impl Clock {
    /// A clock that starts now.
    pub fn start() -> Clock {
        Clock { monotonic_us: monotonic_us(), wall_us: wall_us() }
    }

    /// Microseconds since the start of the run.
    #[inline]
    pub fn now_us(&self) -> u64 {
        monotonic_us().saturating_sub(self.monotonic_us)
    }

    /// `t_us` of a moment given in CLOCK_MONOTONIC nanoseconds.
    #[inline]
    pub fn t_us(&self, monotonic_ns: u64) -> u64 {
        (monotonic_ns / 1000).saturating_sub(self.monotonic_us)
    }

    /// RFC 3339 wall-clock time of `t_us`.
    pub fn wall_time(&self, t_us: u64) -> String {
        rfc3339(self.wall_us.saturating_add(t_us))
    }
}

/// Year, month and day of a count of days since 1970-01-01 in the proleptic Gregorian calendar
/// (H. Hinnant, "chrono-compatible low-level date algorithms", civil_from_days).
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

/// `2026-11-20T10:15:00.123456Z` of microseconds since the Unix epoch. Always UTC, always six decimals, so strings sort.
pub fn rfc3339(wall_us: u64) -> String {
    let seconds = wall_us / US_PER_S;
    let (year, month, day) = civil(seconds / SECONDS_PER_DAY);
    let second = seconds % SECONDS_PER_DAY;
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:06}Z",
        second / 3600,
        second / 60 % 60,
        second % 60,
        wall_us % US_PER_S
    )
}

/// `20261120-101500` of microseconds since the Unix epoch, UTC: the time part of a run directory's name.
pub(crate) fn compact(wall_us: u64) -> String {
    let text = rfc3339(wall_us);
    let digits: String = text.chars().take(19).filter(char::is_ascii_digit).collect();
    format!("{}-{}", &digits[..8], &digits[8..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_instants_are_formatted() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000000Z");
        assert_eq!(rfc3339(951_782_400_000_000), "2000-02-29T00:00:00.000000Z");
        assert_eq!(rfc3339(1_763_633_700_123_456), "2025-11-20T10:15:00.123456Z");
        assert_eq!(rfc3339(4_107_542_399_999_999), "2100-02-28T23:59:59.999999Z");
        assert_eq!(rfc3339(4_107_542_400_000_000), "2100-03-01T00:00:00.000000Z");
        assert_eq!(compact(1_763_633_700_123_456), "20251120-101500");
    }

    #[test]
    fn every_day_of_four_centuries_follows_the_one_before() {
        let (mut year, mut month, mut day) = civil(0);
        assert_eq!((year, month, day), (1970, 1, 1));
        for days in 1..146_097 {
            let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let last =
                [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31][month as usize - 1];
            day += 1;
            if day > last {
                (day, month) = (1, month + 1);
            }
            if month > 12 {
                (month, year) = (1, year + 1);
            }
            assert_eq!(civil(days), (year, month, day));
        }
    }

    #[test]
    fn the_run_clock_counts_from_its_start() {
        let clock = Clock::start();
        let first = clock.now_us();
        let second = clock.now_us();
        assert!(first <= second && second < 60 * US_PER_S);
        assert_eq!(clock.t_us((clock.monotonic_us + 5) * 1000 + 999), 5);
        assert_eq!(clock.t_us(0), 0, "a moment before the start is the start");
    }
}

//! A simple detector of anomalies, second by second: it decides for which seconds stacks are kept.
//!
//! It compares with the median of the last minute, so that a lasting level becomes the normal one, and a single odd second does not
//! move it. It only decides what is kept; findings explain what it means.

use std::collections::VecDeque;

/// Seconds of the median.
const WINDOW: usize = 60;
/// Seconds that must be known before anything counts as odd.
const BASELINE_MIN: usize = 10;
/// Throughput below this share of the median ...
const DROP_PART: f64 = 0.5;
/// ... for this many seconds; one slow second is normal.
const DROP_SECONDS: u32 = 2;
/// Less throughput than this per second is too little to judge.
const RATE_MIN: f64 = 10.0;
/// A 99th percentile above this multiple of its median ...
const JUMP_TIMES: f64 = 3.0;
/// ... and above the median by this much.
const JUMP_US: f64 = 1000.0;
/// Kernel time of all processors in percent ...
const SYSTEM_PCT: f64 = 30.0;
/// ... for so many seconds.
const SYSTEM_SECONDS: u32 = 3;
/// Seconds, in all, in which sessions use the CPU: what they do with it is worth a slice.
const BUSY_SECONDS: u32 = 5;
/// The same where the recording ends before.
const BUSY_SECONDS_AT_END: u32 = 2;

/// What is odd.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Oddity {
    /// Far fewer transactions than in the minute before.
    RateDrop,
    /// Far higher latency.
    LatencyJump,
    /// The kernel uses much of the CPU.
    SystemTime,
    /// Nothing odd: sessions of a server use the CPU.
    Busy,
}

impl Oddity {
    /// The word in file names and events.
    pub fn word(self) -> &'static str {
        match self {
            Oddity::RateDrop => "rate-drop",
            Oddity::LatencyJump => "latency-jump",
            Oddity::SystemTime => "system-time",
            Oddity::Busy => "busy",
        }
    }

    /// Seconds that it lasts before it is reported.
    pub fn seconds(self) -> u64 {
        match self {
            Oddity::RateDrop => DROP_SECONDS.into(),
            Oddity::LatencyJump => 1,
            Oddity::SystemTime => SYSTEM_SECONDS.into(),
            Oddity::Busy => BUSY_SECONDS.into(),
        }
    }

    /// Whether it may last for as long as the recording does, with the same stacks all the time.
    pub(super) fn is_level(self) -> bool {
        matches!(self, Oddity::SystemTime | Oddity::Busy)
    }
}

/// What is known of one second.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Second {
    /// Transactions per second.
    pub rate: Option<f64>,
    /// 99th percentile of the response time.
    pub latency_us_p99: Option<f64>,
    /// Kernel time of all processors.
    pub system_pct: Option<f64>,
    /// Whether a session of a server here was seen to use the CPU.
    pub is_at_work: bool,
}

/// Sees one second after the other.
#[derive(Debug, Default)]
pub struct Detector {
    rates: Window,
    latencies: Window,
    slow_seconds: u32,
    system_seconds: u32,
    busy_seconds: u32,
}

impl Detector {
    /// Takes the data of a second; returns what is odd about it.
    pub fn see(&mut self, second: Second) -> Option<Oddity> {
        let is_slow = second
            .rate
            .zip(self.rates.median())
            .is_some_and(|(rate, median)| median >= RATE_MIN && rate < DROP_PART * median);
        self.slow_seconds = if is_slow { self.slow_seconds + 1 } else { 0 };
        let has_jumped = second
            .latency_us_p99
            .zip(self.latencies.median())
            .is_some_and(|(latency, median)| latency > JUMP_TIMES * median && latency > median + JUMP_US);
        let is_system = second.system_pct.is_some_and(|pct| pct > SYSTEM_PCT);
        self.system_seconds = if is_system { self.system_seconds + 1 } else { 0 };
        self.busy_seconds += u32::from(second.is_at_work);
        self.rates.add(second.rate);
        self.latencies.add(second.latency_us_p99);
        if self.slow_seconds >= DROP_SECONDS {
            Some(Oddity::RateDrop)
        } else if has_jumped {
            Some(Oddity::LatencyJump)
        } else if self.system_seconds >= SYSTEM_SECONDS {
            Some(Oddity::SystemTime)
        } else if self.busy_seconds >= BUSY_SECONDS {
            Some(Oddity::Busy)
        } else {
            None
        }
    }

    /// Whether the busy seconds are worth a slice, now that no more follow.
    pub(super) fn is_busy_at_end(&self) -> bool {
        self.busy_seconds >= BUSY_SECONDS_AT_END
    }

    /// Counts busy seconds anew: those so far have their slice.
    pub(super) fn forget_busy(&mut self) {
        self.busy_seconds = 0;
    }
}

#[derive(Debug, Default)]
struct Window(VecDeque<f64>);

impl Window {
    fn add(&mut self, value: Option<f64>) {
        let Some(value) = value.filter(|value| value.is_finite()) else { return };
        if self.0.len() == WINDOW {
            self.0.pop_front();
        }
        self.0.push_back(value);
    }

    fn median(&self) -> Option<f64> {
        if self.0.len() < BASELINE_MIN {
            return None;
        }
        record::statistics::median(self.0.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(detector: &mut Detector, rates: &[f64]) -> Vec<Option<Oddity>> {
        rates.iter().map(|rate| detector.see(Second { rate: Some(*rate), ..Second::default() })).collect()
    }

    #[test]
    fn a_drop_that_lasts_is_odd_and_then_becomes_normal() {
        let mut detector = Detector::default();
        assert!(rates(&mut detector, &[1000.0; 30]).iter().all(Option::is_none));
        assert_eq!(rates(&mut detector, &[400.0, 990.0]), [None, None], "one slow second");
        let detail = rates(&mut detector, &[100.0; 90]);
        assert_eq!(detail[..2], [None, Some(Oddity::RateDrop)]);
        assert_eq!(detail[89], None, "a minute later it is the level");
    }

    #[test]
    fn little_or_short_is_not_judged() {
        let mut detector = Detector::default();
        assert!(
            rates(&mut detector, &[1000.0, 1.0, 1.0, 1.0]).iter().all(Option::is_none),
            "no baseline yet"
        );
        let mut detector = Detector::default();
        assert!(rates(&mut detector, &[5.0; 30]).iter().all(Option::is_none));
        assert!(
            rates(&mut detector, &[0.0; 5]).iter().all(Option::is_none),
            "5 a second to none may be chance"
        );
        assert_eq!(detector.see(Second::default()), None);
    }

    #[test]
    fn latency_must_jump_by_much_and_by_something() {
        let see = |detector: &mut Detector, p99: f64| {
            detector.see(Second { latency_us_p99: Some(p99), ..Second::default() })
        };
        let mut detector = Detector::default();
        for _ in 0..20 {
            see(&mut detector, 200.0);
        }
        assert_eq!(see(&mut detector, 900.0), None, "4.5 times, but 0.7 ms");
        assert_eq!(see(&mut detector, 1300.0), Some(Oddity::LatencyJump));
        assert_eq!(see(&mut detector, f64::NAN), None);
    }

    #[test]
    fn a_server_at_work_is_worth_a_slice() {
        let mut detector = Detector::default();
        let mut see = |is_at_work: bool| detector.see(Second { is_at_work, ..Second::default() });
        let detail = [true, false, true, true, false, true, true].map(&mut see);
        assert_eq!(detail.iter().position(Option::is_some), Some(6), "{detail:?}");
        assert!(detector.is_busy_at_end() && !Detector::default().is_busy_at_end());
        detector.forget_busy();
        assert_eq!(detector.see(Second { is_at_work: true, ..Second::default() }), None);
        assert!(!detector.is_busy_at_end(), "one second");
    }

    #[test]
    fn kernel_time_counts_after_three_seconds() {
        let mut detector = Detector::default();
        let mut see = |pct: f64| detector.see(Second { system_pct: Some(pct), ..Second::default() });
        let detail = [31.0, 60.0, 10.0, 40.0, 40.0, 40.0].map(&mut see);
        assert_eq!(detail, [None, None, None, None, None, Some(Oddity::SystemTime)]);
    }
}

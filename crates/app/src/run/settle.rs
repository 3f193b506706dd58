//! Whether throughput has settled: the last windows of a warm-up lie close together.

use std::time::Duration;

/// Windows that are compared. Two can agree by chance while a cache still fills.
const WINDOWS: usize = 3;
/// A warm-up is divided into so many windows at least, as long as they are whole seconds.
const WINDOWS_IN_WARMUP: u64 = 20;
/// Longest window: what has not moved in three half minutes has settled for a step of minutes.
const WINDOW_S_MAX: u64 = 30;

/// Watches the seconds of a warm-up.
#[derive(Clone, Debug)]
pub(super) struct Settling {
    window_s: u64,
    /// How far the windows may lie apart, as a share of their mean; `None`: only looked at.
    limit: Option<f64>,
    /// Transactions and seconds of the window that is not full yet.
    open: (u64, f64),
    /// Throughput of the last full windows, oldest first.
    windows: Vec<f64>,
}

impl Settling {
    /// For a warm-up of at most `warmup`, whose windows may differ by `percent` of their mean.
    pub(super) fn new(warmup: Duration, percent: Option<f64>) -> Settling {
        let window_s = (warmup.as_secs() / WINDOWS_IN_WARMUP).clamp(1, WINDOW_S_MAX);
        Settling {
            window_s,
            limit: percent.map(|percent| percent / 100.0),
            open: (0, 0.0),
            windows: Vec::new(),
        }
    }

    /// So many transactions were committed in so many seconds.
    pub(super) fn add(&mut self, transactions: u64, seconds: f64) {
        self.open.0 += transactions;
        self.open.1 += seconds;
        // A second that is a hair short is a second.
        if self.open.1 >= self.window_s as f64 - 0.1 {
            self.windows.push(self.open.0 as f64 / self.open.1);
            self.open = (0, 0.0);
            if self.windows.len() > WINDOWS {
                self.windows.remove(0);
            }
        }
    }

    /// How far the last windows lie apart, in percent of their mean; `None` before there are enough, or when nothing was committed.
    pub(super) fn spread_percent(&self) -> Option<f64> {
        if self.windows.len() < WINDOWS {
            return None;
        }
        let mean = self.windows.iter().sum::<f64>() / self.windows.len() as f64;
        let low = self.windows.iter().copied().fold(f64::INFINITY, f64::min);
        let high = self.windows.iter().copied().fold(0.0, f64::max);
        (mean > 0.0).then(|| (high - low) / mean * 100.0)
    }

    /// Whether they lie within the limit; `None` if that is unknown.
    pub(super) fn is_settled(&self) -> Option<bool> {
        Some(self.spread_percent()? <= self.limit? * 100.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(warmup_s: u64, seconds: &[u64]) -> Settling {
        let mut settling = Settling::new(Duration::from_secs(warmup_s), Some(5.0));
        seconds.iter().for_each(|count| settling.add(*count, 1.0));
        settling
    }

    #[test]
    fn three_windows_close_together_have_settled() {
        assert_eq!(after(10, &[100, 100]).is_settled(), None, "two windows are too few");
        assert_eq!(after(10, &[100, 101, 99]).is_settled(), Some(true));
        assert_eq!(after(10, &[10, 50, 100]).is_settled(), Some(false));
        assert_eq!(
            after(10, &[10, 50, 100, 101, 102]).is_settled(),
            Some(true),
            "the first ones are forgotten"
        );
        assert_eq!(after(10, &[100, 100, 100, 100, 90]).is_settled(), Some(false));
        assert_eq!(after(10, &[0, 0, 0, 0]).is_settled(), None, "a server that does nothing has not settled");
    }

    #[test]
    fn windows_grow_with_the_warm_up() {
        let mut settling = after(60, &[100, 200, 100, 100, 200, 100]);
        assert_eq!(settling.spread_percent(), None, "two windows of three seconds");
        [100, 200, 100].iter().for_each(|count| settling.add(*count, 1.0));
        assert_eq!(settling.spread_percent(), Some(0.0));
        assert_eq!(Settling::new(Duration::from_secs(3600), None).window_s, WINDOW_S_MAX);
    }

    #[test]
    fn without_a_limit_nothing_is_judged() {
        let mut settling = Settling::new(Duration::from_secs(10), None);
        (0..5).for_each(|_| settling.add(100, 1.0));
        assert_eq!((settling.spread_percent(), settling.is_settled()), (Some(0.0), None));
    }
}

//! Latency recording for the hot path, with fixed memory and exact extremes.
//!
//! A [`Latency`] is an HDR histogram in whole microseconds with three significant digits from 1 us to 1 hour. The first sample makes it at
//! its full size (about 180 KiB), and no later one allocates: a run keeps dozens of recorders, most of which (warm-up, service time of closed
//! loops, types that never run) never see a sample. What the histogram cannot hold is not clamped silently:
//! longer times are counted in [`Latency::overflow`], and maximum and mean are kept apart, exact, in nanoseconds. Histograms of
//! sessions, workers and hosts are merged by adding counters; percentiles are never averaged.

use crate::latency_summary::LatencySummary;
use hdrhistogram::Histogram;
use std::sync::LazyLock;

/// The longest latency with a bucket of its own: one hour.
pub(crate) const HIGHEST_US: u64 = 3_600_000_000;
/// Significant decimal digits of a bucket: a value is off by at most 0.1 %.
pub(crate) const SIGNIFICANT_DIGITS: u8 = 3;
/// A percentile is drawn in curves only if at least this many samples lie beyond it; fewer make it a matter of chance.
pub const SAMPLES_BEYOND_MIN: u64 = 100;

/// What a recorder without samples holds.
static EMPTY: LazyLock<Histogram<u64>> = LazyLock::new(made);

fn made() -> Histogram<u64> {
    Histogram::new_with_bounds(1, HIGHEST_US, SIGNIFICANT_DIGITS)
        .expect("constant bounds are valid: 2 <= high, 0 <= digits <= 5")
}

/// A latency recorder. The first sample allocates; no other does.
#[derive(Clone, Debug)]
pub struct Latency {
    /// `None` until there is something to hold.
    histogram: Option<Histogram<u64>>,
    overflow: u64,
    max_ns: u64,
    sum_ns: u128,
}

impl Default for Latency {
    fn default() -> Self {
        Latency::new()
    }
}

impl PartialEq for Latency {
    fn eq(&self, other: &Self) -> bool {
        self.histogram() == other.histogram()
            && self.overflow == other.overflow
            && self.max_ns == other.max_ns
            && self.sum_ns == other.sum_ns
    }
}

impl Latency {
    /// An empty recorder.
    pub fn new() -> Latency {
        Latency { histogram: None, overflow: 0, max_ns: 0, sum_ns: 0 }
    }

    /// Counts one latency given in nanoseconds; stored rounded to the nearest microsecond.
    #[inline]
    pub fn record_ns(&mut self, ns: u64) {
        if self.histogram.get_or_insert_with(made).record(ns.saturating_add(500) / 1000).is_err() {
            self.overflow += 1;
        }
        self.max_ns = self.max_ns.max(ns);
        self.sum_ns += u128::from(ns);
    }

    /// Counts one latency given in microseconds.
    #[inline]
    pub fn record_us(&mut self, us: u64) {
        self.record_ns(us.saturating_mul(1000));
    }

    /// Adds all samples of `other`. The result is as if every sample had been recorded here.
    pub fn merge(&mut self, other: &Latency) {
        if let Some(samples) = other.histogram.as_ref().filter(|samples| !samples.is_empty()) {
            let own = self.histogram.get_or_insert_with(made);
            own.add(samples).expect("all recorders have the same fixed bounds");
        }
        self.overflow += other.overflow;
        self.max_ns = self.max_ns.max(other.max_ns);
        self.sum_ns += other.sum_ns;
    }

    /// Forgets everything, keeping the memory.
    pub fn reset(&mut self) {
        if let Some(histogram) = &mut self.histogram {
            histogram.reset();
        }
        self.overflow = 0;
        self.max_ns = 0;
        self.sum_ns = 0;
    }

    /// Number of samples, overflow included.
    pub fn count(&self) -> u64 {
        self.histogram().len() + self.overflow
    }

    /// True if nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// Samples beyond [`HIGHEST_US`]: counted, and in mean and max, but without a bucket.
    pub fn overflow(&self) -> u64 {
        self.overflow
    }

    /// The exact longest latency in microseconds (rounded up, so that no percentile exceeds it); 0 if empty.
    pub fn max_us(&self) -> u64 {
        self.max_ns.div_ceil(1000)
    }

    /// The exact mean in microseconds; 0 if empty.
    pub fn mean_us(&self) -> f64 {
        if self.is_empty() { 0.0 } else { self.sum_ns as f64 / 1000.0 / self.count() as f64 }
    }

    /// The latency in microseconds that the fraction `quantile` (0..=1) of samples does not exceed; 0 if empty.
    /// Samples in overflow rank above all others and answer with the maximum.
    pub fn quantile_us(&self, quantile: f64) -> u64 {
        let count = self.count();
        if count == 0 {
            return 0;
        }
        let rank = ((quantile.clamp(0.0, 1.0) * count as f64).ceil() as u64).clamp(1, count);
        let bucketed = self.histogram().len();
        if rank > bucketed {
            return self.max_us();
        }
        // Half a sample below the rank: the library multiplies back and rounds up, which must not land on the next rank.
        self.histogram().value_at_quantile((rank as f64 - 0.5) / bucketed as f64).min(self.max_us())
    }

    /// Mean, percentiles and maximum; `None` if empty.
    pub fn summary(&self) -> Option<LatencySummary> {
        (!self.is_empty()).then(|| LatencySummary {
            mean: self.mean_us(),
            p50: self.quantile_us(0.50),
            p90: self.quantile_us(0.90),
            p95: self.quantile_us(0.95),
            p99: self.quantile_us(0.99),
            p999: self.quantile_us(0.999),
            max: self.max_us(),
        })
    }

    /// The percentile curve: (quantile, microseconds), from the median up in `per_decade` steps per nine, ending where fewer
    /// than [`SAMPLES_BEYOND_MIN`] samples lie beyond.
    pub fn curve(&self, per_decade: u32) -> Vec<(f64, u64)> {
        let count = self.count() as f64;
        let mut points = vec![];
        for step in 0.. {
            // 1 - q goes down from 1 by a factor of ten every `per_decade` steps: even distances on an axis of nines.
            let beyond = 10f64.powf(-f64::from(step) / f64::from(per_decade.max(1)));
            if beyond * count < SAMPLES_BEYOND_MIN as f64 {
                return points;
            }
            points.push((1.0 - beyond, self.quantile_us(1.0 - beyond)));
        }
        points
    }

    /// Buckets that hold samples: (lowest microseconds, highest microseconds, count), ascending.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        let histogram = self.histogram();
        histogram.iter_recorded().map(|bucket| {
            let value = bucket.value_iterated_to();
            let count = bucket.count_since_last_iteration();
            (histogram.lowest_equivalent(value), histogram.highest_equivalent(value), count)
        })
    }

    /// The histogram as such, for encoding. Overflow is not in it.
    pub(crate) fn histogram(&self) -> &Histogram<u64> {
        self.histogram.as_ref().unwrap_or(&EMPTY)
    }

    /// Adds a decoded histogram of any bounds: counts are exact per bucket, mean and maximum as good as its buckets.
    pub(crate) fn merge_histogram(&mut self, other: &Histogram<u64>) {
        for bucket in other.iter_recorded() {
            let value = bucket.value_iterated_to();
            let count = bucket.count_since_last_iteration();
            self.sum_ns += u128::from(other.median_equivalent(value)) * 1000 * u128::from(count);
            if self.histogram.get_or_insert_with(made).record_n(value, count).is_err() {
                self.overflow = self.overflow.saturating_add(count);
            }
        }
        self.max_ns = self.max_ns.max(other.max().saturating_mul(1000));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_empty_recorder_has_no_values() {
        let latency = Latency::new();
        assert!(latency.is_empty());
        assert_eq!(latency.summary(), None);
        assert_eq!(latency.quantile_us(0.99), 0);
        assert!(latency.curve(10).is_empty());
    }

    #[test]
    fn out_of_range_is_counted_and_never_clamped() {
        let mut latency = Latency::new();
        latency.record_us(10);
        latency.record_us(2 * HIGHEST_US);
        assert_eq!((latency.count(), latency.overflow()), (2, 1));
        assert_eq!(latency.max_us(), 2 * HIGHEST_US);
        assert_eq!(latency.quantile_us(0.5), 10);
        assert_eq!(latency.quantile_us(0.99), 2 * HIGHEST_US);
        assert_eq!(latency.mean_us(), (10 + 2 * HIGHEST_US) as f64 / 2.0);
    }

    #[test]
    fn maximum_and_mean_are_exact() {
        let mut latency = Latency::new();
        for ns in [1_499, 1_500, 123_456_789] {
            latency.record_ns(ns);
        }
        assert_eq!(latency.max_us(), 123_457);
        assert_eq!(latency.mean_us(), (1_499 + 1_500 + 123_456_789) as f64 / 3000.0);
        assert_eq!(latency.quantile_us(0.1), 1, "1499 ns rounds down");
        assert_eq!(latency.quantile_us(0.5), 2, "1500 ns rounds up");
    }

    #[test]
    fn the_curve_stops_where_samples_run_out() {
        let mut latency = Latency::new();
        for us in 1..=10_000 {
            latency.record_us(us);
        }
        let curve = latency.curve(10);
        let (last, _) = curve[curve.len() - 1];
        assert!((last - 0.99).abs() < 1e-9, "100 of 10,000 samples lie beyond p99: {last}");
        let mut few = Latency::new();
        (0..99).for_each(|us| few.record_us(us));
        assert!(few.curve(10).is_empty());
    }

    #[test]
    fn recording_keeps_the_memory_of_the_first_sample() {
        let mut latency = Latency::new();
        assert!(latency.histogram.is_none(), "nothing is kept for nothing");
        latency.merge(&Latency::new());
        latency.reset();
        assert!(latency.histogram.is_none() && latency == Latency::new());
        latency.record_ns(1);
        let before = latency.histogram().distinct_values();
        (0..64).for_each(|bit| latency.record_ns(1 << bit));
        assert_eq!(latency.histogram().distinct_values(), before);
        latency.reset();
        assert!(latency.histogram.is_some() && latency == Latency::new());
    }

    proptest! {
        #[test]
        fn merging_is_recording_everything_in_one(
            left in prop::collection::vec(0u64..10_000_000_000_000, 0..200),
            right in prop::collection::vec(0u64..10_000_000_000_000, 0..200),
        ) {
            let record = |values: &[u64]| {
                let mut latency = Latency::new();
                values.iter().for_each(|ns| latency.record_ns(*ns));
                latency
            };
            let mut merged = record(&left);
            merged.merge(&record(&right));
            let all: Vec<u64> = left.iter().chain(&right).copied().collect();
            prop_assert_eq!(merged, record(&all));
        }

        #[test]
        fn quantiles_are_within_three_digits_of_the_sorted_samples(
            mut values in prop::collection::vec(1u64..3_000_000_000, 1..400), quantile in 0.0f64..1.0,
        ) {
            let mut latency = Latency::new();
            values.iter().for_each(|us| latency.record_us(*us));
            values.sort_unstable();
            let rank = ((quantile * values.len() as f64).ceil() as usize).clamp(1, values.len());
            let exact = values[rank - 1] as f64;
            let found = latency.quantile_us(quantile) as f64;
            prop_assert!(found >= exact && found <= exact * 1.001 + 1.0, "{found} for {exact}");
            prop_assert!(found as u64 <= latency.max_us());
        }
    }
}

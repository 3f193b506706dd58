//! The statistics of the rules: robust outliers among peers, windows that coincide more often than by chance, the moment a level changed, periods,
//! slopes.
//!
//! All of it is exact arithmetic over short series or seeded, so that the same directory always gives the same findings.

pub use record::statistics::{mean, median, quantile};

/// 1.4826 median absolute deviations are one standard deviation of a normal distribution.
const DEVIATION_PER_MAD: f64 = 1.4826;

/// Standard deviation as a share of the mean; `None` below two values or around zero.
pub fn variation(values: &[f64]) -> Option<f64> {
    let mean = mean(values)?;
    if values.len() < 2 || mean.abs() < f64::EPSILON {
        return None;
    }
    let square: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some((square / (values.len() - 1) as f64).sqrt() / mean.abs())
}

/// The median absolute deviation from the median, in units of a standard deviation.
pub fn deviation(values: &[f64]) -> Option<f64> {
    let middle = median(values.iter().copied())?;
    Some(DEVIATION_PER_MAD * median(values.iter().map(|value| (value - middle).abs()))?)
}

/// How one of several peers differs from the others.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Contrast {
    /// Its place in the list.
    pub index: usize,
    /// Its value.
    pub value: f64,
    /// The median of the others.
    pub others: f64,
    /// `value / others`; infinite if the others are at zero.
    pub ratio: f64,
    /// Its distance from the others' median in their robust standard deviations; infinite if they are all equal.
    pub deviations: f64,
}

/// Every value against the median of the others. Empty below two values: there is no peer.
pub(crate) fn contrasts(values: &[f64]) -> Vec<Contrast> {
    if values.len() < 2 {
        return vec![];
    }
    let contrast = |(index, value): (usize, &f64)| {
        let others: Vec<f64> =
            values.iter().enumerate().filter(|(other, _)| *other != index).map(|(_, value)| *value).collect();
        let middle = median(others.iter().copied())?;
        let spread = deviation(&others)?;
        let distance = value - middle;
        Some(Contrast {
            index,
            value: *value,
            others: middle,
            ratio: if middle > 0.0 { value / middle } else { f64::INFINITY },
            deviations: if spread > 0.0 { distance / spread } else { distance.signum() * f64::INFINITY },
        })
    };
    values.iter().enumerate().filter_map(contrast).collect()
}

/// Slope of a least-squares line through points, per unit of x; `None` if x does not vary.
pub(crate) fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let count = points.len() as f64;
    let (sum_x, sum_y) = points.iter().fold((0.0, 0.0), |(x, y), point| (x + point.0, y + point.1));
    let (mean_x, mean_y) = (sum_x / count, sum_y / count);
    let square: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    let product: f64 = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    (points.len() >= 2 && square > 0.0).then(|| product / square)
}

/// Where the mean of a series changed most, by the cumulative sum of the differences from it (Page, "Continuous inspection schemes",
/// Biometrika 1954; the estimator of W. A. Taylor, "Change-point analysis", 2000).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Change {
    /// First value after the change.
    pub at: usize,
    /// Mean before.
    pub before: f64,
    /// Mean after.
    pub after: f64,
    /// Share of shuffled series whose cumulative sum strays as far: below 0.05 the change is real.
    pub p: f64,
}

/// Shuffles of a permutation test. The smallest p it can give is 1 / (this + 1).
pub(crate) const PERMUTATIONS: u32 = 1_000;
/// After so many shuffles that stray as far the change is chance: all of them would give a p of 0.1 or more, and most series have no change.
const BY_CHANCE: u32 = 100;
/// Series longer than this are thinned before they are shuffled.
const CHANGE_VALUES_MAX: usize = 600;

/// The change of a series; `None` below four values or if it never varies.
pub fn change(values: &[f64]) -> Option<Change> {
    let thin = values.len().div_ceil(CHANGE_VALUES_MAX).max(1);
    let thinned: Vec<f64> = values.chunks(thin).filter_map(mean).collect();
    let middle = mean(&thinned)?;
    if thinned.len() < 4 {
        return None;
    }
    let stray = |values: &[f64]| {
        let (mut sum, mut low, mut high, mut far, mut at) = (0.0f64, 0.0f64, 0.0f64, 0.0f64, 0);
        for (index, value) in values.iter().enumerate() {
            sum += value - middle;
            (low, high) = (low.min(sum), high.max(sum));
            // The last sum is zero again: a change needs a value after it.
            if sum.abs() > far && index + 1 < values.len() {
                (far, at) = (sum.abs(), index + 1);
            }
        }
        (high - low, at)
    };
    let (found, at) = stray(&thinned);
    if found <= f64::EPSILON * middle.abs() || at == 0 {
        return None;
    }
    let mut random = Random::new(values.len() as u64);
    let mut shuffled = thinned.clone();
    let (mut as_far, mut tried) = (0, 0);
    while tried < PERMUTATIONS && as_far < BY_CHANCE {
        random.shuffle(&mut shuffled);
        as_far += u32::from(stray(&shuffled).0 >= found);
        tried += 1;
    }
    Some(Change {
        at: (at * thin).min(values.len() - 1),
        before: mean(&thinned[..at])?,
        after: mean(&thinned[at..])?,
        p: f64::from(as_far + 1) / f64::from(tried + 1),
    })
}

/// The strongest period of a series.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Period {
    /// Its length in values.
    pub lag: usize,
    /// The autocorrelation there, up to 1.
    pub correlation: f64,
}

/// Cycles that must fit into a series before they are called a period.
const CYCLES_MIN: usize = 3;

/// The first peak of the autocorrelation that reaches `least`; at least three cycles must be there. `None` without one.
pub fn period(values: &[f64], least: f64) -> Option<Period> {
    let middle = mean(values)?;
    let centred: Vec<f64> = values.iter().map(|value| value - middle).collect();
    let power: f64 = centred.iter().map(|value| value * value).sum();
    if power <= f64::EPSILON {
        return None;
    }
    let longest = values.len() / CYCLES_MIN;
    let at = |lag: usize| {
        let products: f64 = centred.iter().zip(&centred[lag..]).map(|(left, right)| left * right).sum();
        // The shorter overlap of a longer lag must not make it look weaker.
        products / power * values.len() as f64 / (values.len() - lag) as f64
    };
    let correlations: Vec<f64> = (0..=longest).map(at).collect();
    // A period shows as a rise after the fall from lag 0; a slow drift never falls and is none. Its multiples are peaks, too: the first
    // counts, and a maximum at the end of what was looked at may still be rising.
    let trough = correlations.iter().position(|correlation| *correlation < 0.0)?;
    let is_peak = |lag: &usize| {
        correlations[*lag] >= least
            && correlations[*lag] >= correlations[lag - 1]
            && correlations[*lag] > correlations[lag + 1]
    };
    let lag = (trough.max(1)..longest).find(is_peak)?;
    Some(Period { lag, correlation: correlations[lag].min(1.0) })
}

/// How many of the `times_us` follow a mark (from `before_us` before it to `after_us` after it), and how likely so many would by chance: as
/// many points in time are placed at random on the span, again and again. The smallest p is 1 / ([`PERMUTATIONS`] + 1).
pub(crate) fn coincidence(
    times_us: &[u64],
    marks: &[u64],
    span_us: u64,
    before_us: u64,
    after_us: u64,
) -> (usize, f64) {
    let follows = |moment: u64| {
        marks.iter().any(|mark| (mark.saturating_sub(before_us)..=mark + after_us).contains(&moment))
    };
    let found = times_us.iter().filter(|moment| follows(**moment)).count();
    let mut random = Random::new(span_us ^ times_us.len() as u64);
    let mut as_many = 0;
    for _ in 0..PERMUTATIONS {
        let hits = times_us.iter().filter(|_| follows(random.below(span_us))).count();
        as_many += u32::from(hits >= found);
    }
    (found, f64::from(as_many + 1) / f64::from(PERMUTATIONS + 1))
}

/// A small generator (xorshift64*, Marsaglia/Vigna): shuffles only need to be the same everywhere.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) % bound.max(1)
    }

    fn shuffle(&mut self, values: &mut [f64]) {
        for end in (1..values.len()).rev() {
            values.swap(end, self.below(end as u64 + 1) as usize);
        }
    }
}

#[cfg(test)]
mod tests;

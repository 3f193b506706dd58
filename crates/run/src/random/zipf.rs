//! Zipf's law with any exponent above zero, over any number of values, without tables.

use super::Random;

/// Draws k in `[1, n]` with probability proportional to k^-s, by rejection-inversion (Hörmann and Derflinger, "Rejection-inversion
/// to generate variates from monotone discrete distributions", ACM TOMACS 1996).
///
/// pgbench uses Devroye's rejection method for the same distribution; that one degrades without bound as s approaches 1, this one
/// accepts at least three draws in four for every s and n. Making one costs a handful of logarithms and powers; a draw costs two.
#[derive(Clone, Debug, PartialEq)]
pub struct Zipf {
    n: u64,
    s: f64,
    /// Integral of the hat at 3/2, less the mass of k = 1.
    integral_low: f64,
    /// Integral of the hat at n + 1/2.
    integral_high: f64,
    /// A candidate this close above the inverted point is accepted without looking at its mass.
    squeeze: f64,
}

impl Zipf {
    /// A sampler over `[1, n]` (an `n` of 0 counts as 1) with exponent `s` (above zero and finite, or draws are meaningless).
    #[must_use]
    pub fn new(n: u64, s: f64) -> Zipf {
        let n = n.max(1);
        let integral_low = integral(1.5, s) - 1.0;
        let integral_high = integral(n as f64 + 0.5, s);
        let squeeze = 2.0 - inverse_integral(integral(2.5, s) - libm::exp(-s * core::f64::consts::LN_2), s);
        Zipf { n, s, integral_low, integral_high, squeeze }
    }

    /// The number of values this sampler was made for.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.n
    }

    /// The exponent this sampler was made for.
    #[must_use]
    pub fn exponent(&self) -> f64 {
        self.s
    }

    /// A value in `[1, n]`.
    pub fn sample(&self, random: &mut Random) -> u64 {
        loop {
            let point = self.integral_high + random.uniform() * (self.integral_low - self.integral_high);
            let x = inverse_integral(point, self.s);
            // The float-to-integer cast saturates, so NaN and infinities become in-range candidates too.
            let k = ((x + 0.5) as u64).clamp(1, self.n);
            let candidate = k as f64;
            if candidate - x <= self.squeeze
                || point >= integral(candidate + 0.5, self.s) - libm::exp(-self.s * libm::log(candidate))
            {
                return k;
            }
        }
    }
}

/// Integral of x^-s from 1 to x: (x^(1-s) - 1) / (1-s), which tends to ln x where s tends to 1.
fn integral(x: f64, s: f64) -> f64 {
    let log_x = libm::log(x);
    expm1_over(log_x * (1.0 - s)) * log_x
}

/// The x whose [`integral`] is `area`.
fn inverse_integral(area: f64, s: f64) -> f64 {
    // Rounding may carry the product a little below -1, where the logarithm ends.
    let product = (area * (1.0 - s)).max(-1.0);
    libm::exp(log1p_over(product) * area)
}

/// (e^x - 1) / x, exact in the limit 0.
fn expm1_over(x: f64) -> f64 {
    if x.abs() > 1e-8 { libm::expm1(x) / x } else { 1.0 + x * 0.5 * (1.0 + x / 3.0) }
}

/// ln(1 + x) / x, exact in the limit 0.
fn log1p_over(x: f64) -> f64 {
    if x.abs() > 1e-8 { libm::log1p(x) / x } else { 1.0 - x * (0.5 - x / 3.0) }
}

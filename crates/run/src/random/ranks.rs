//! Distributions over row ranks, as YCSB requests them: uniform, zipfian and latest.
//!
//! The zipfian generator is the one of Gray, Sundaresan, Englert, Baclawski and Weinberger, "Quickly generating billion-record
//! synthetic databases" (SIGMOD 1994), with YCSB's constant 0.99. It needs zeta(n), the sum of k^-theta for k up to n; adding a
//! trillion terms would take hours, so the tail is summed by the Euler-Maclaurin formula, which is exact to the last few bits.
//!
//! Ranks come out with the popular ones first (0 is the most popular). YCSB "scrambles" them so that popular rows are not
//! neighbours; here the caller sends the rank through the dataset's key bijection, which never maps two ranks onto one row.

use super::Random;

/// YCSB's zipfian constant.
pub(crate) const THETA: f64 = 0.99;

/// Terms of zeta that are added one by one before the Euler-Maclaurin tail takes over: with three correction terms the error at
/// 32 is below 1e-16 relative, for every theta in (0, 2).
const EXACT_TERMS: u64 = 32;

/// Sum of k^-theta for k in `[first, last]`.
fn exact_sum(first: u64, last: u64, theta: f64) -> f64 {
    // Smallest terms first, so that they are not lost against a large sum.
    (first..=last).rev().map(|k| libm::pow(k as f64, -theta)).sum()
}

/// zeta(n, theta): the sum of k^-theta for k in `[1, n]`, in constant time.
#[must_use]
pub fn zeta(n: u64, theta: f64) -> f64 {
    Tail::new(theta).zeta(n)
}

/// What of zeta does not depend on n, kept so that a growing domain costs two powers, not thirty.
#[derive(Clone, Debug, PartialEq)]
struct Tail {
    theta: f64,
    /// Sum of the first [`EXACT_TERMS`] terms.
    head: f64,
    /// Integral and half-term corrections at the lower end of the tail.
    lower: f64,
}

impl Tail {
    fn new(theta: f64) -> Tail {
        Tail {
            theta,
            head: exact_sum(1, EXACT_TERMS, theta),
            lower: corrections(EXACT_TERMS as f64, theta, -1.0),
        }
    }

    fn zeta(&self, n: u64) -> f64 {
        if n <= EXACT_TERMS {
            return exact_sum(1, n, self.theta);
        }
        // The head holds the term at EXACT_TERMS wholly; the trapezoid counts half of it again, which `lower` takes back.
        self.head
            + (integral(n as f64, self.theta) - integral(EXACT_TERMS as f64, self.theta))
            + corrections(n as f64, self.theta, 1.0)
            + self.lower
    }
}

/// Antiderivative of x^-theta.
fn integral(x: f64, theta: f64) -> f64 {
    if theta == 1.0 { libm::log(x) } else { libm::pow(x, 1.0 - theta) / (1.0 - theta) }
}

/// Everything of Euler-Maclaurin at one end but the integral: half the end term, and B2/2! f' + B4/4! f''' + B6/6! f^(5). At the
/// lower end the derivatives change sign, and so does the half term, because the sum there starts after the end.
fn corrections(x: f64, theta: f64, sign: f64) -> f64 {
    let f = libm::pow(x, -theta);
    let d1 = -theta * f / x;
    let d3 = d1 * (theta + 1.0) * (theta + 2.0) / (x * x);
    let d5 = d3 * (theta + 3.0) * (theta + 4.0) / (x * x);
    sign * (f / 2.0 + d1 / 12.0 - d3 / 720.0 + d5 / 30_240.0)
}

/// Zipfian ranks in `[0, n)`, rank 0 the most popular, P(rank) proportional to (rank + 1)^-theta (the first two ranks exactly, the
/// rest through Gray's continuous approximation, as in YCSB).
#[derive(Clone, Debug, PartialEq)]
pub struct Zipfian {
    n: u64,
    tail: Tail,
    zeta_n: f64,
    zeta_2: f64,
    eta: f64,
    /// 1 / (1 - theta).
    exponent: f64,
}

impl Zipfian {
    /// YCSB's generator over `n` ranks, with [`THETA`].
    #[must_use]
    pub fn new(n: u64) -> Zipfian {
        Zipfian::with_theta(n, THETA)
    }

    /// The generator with another skew, `0 < theta < 1` (values outside are brought to the nearest sensible one: Gray's formula
    /// has no meaning there; for steeper laws see [`super::zipf::Zipf`]).
    #[must_use]
    pub fn with_theta(n: u64, theta: f64) -> Zipfian {
        let theta = if theta.is_nan() { THETA } else { theta.clamp(0.01, 0.999_9) };
        let mut this = Zipfian {
            n: 0,
            tail: Tail::new(theta),
            zeta_n: 0.0,
            zeta_2: exact_sum(1, 2, theta),
            eta: 0.0,
            exponent: 1.0 / (1.0 - theta),
        };
        this.set_domain(n);
        this
    }

    /// Changes the number of ranks; two powers, so it may follow every insert. An `n` of 0 counts as 1.
    pub fn set_domain(&mut self, n: u64) {
        let n = n.max(1);
        if n == self.n {
            return;
        }
        self.n = n;
        self.zeta_n = self.tail.zeta(n);
        self.eta = if n <= 2 {
            // Both ranks are decided before eta is looked at.
            0.0
        } else {
            (1.0 - libm::pow(2.0 / n as f64, 1.0 - self.tail.theta)) / (1.0 - self.zeta_2 / self.zeta_n)
        };
    }

    /// The number of ranks.
    #[must_use]
    pub fn domain(&self) -> u64 {
        self.n
    }

    /// A rank in `[0, n)`.
    #[inline]
    pub fn sample(&self, random: &mut Random) -> u64 {
        let uniform = random.uniform();
        let mass = uniform * self.zeta_n;
        if mass < 1.0 {
            return 0;
        }
        if mass < self.zeta_2 {
            return 1.min(self.n - 1);
        }
        // Gray's power, written as exp and log: half the price, and as exact as a random number needs to be.
        let power = libm::exp(self.exponent * libm::log(self.eta * uniform - self.eta + 1.0));
        let rank = self.n as f64 * power;
        (rank as u64).min(self.n - 1)
    }
}

/// How a workload picks rows out of `[0, n)`, where row n - 1 is the newest.
#[derive(Clone, Debug, PartialEq)]
pub enum Chooser {
    /// Every row alike.
    Uniform { n: u64 },
    /// Popular ranks first; scatter them with the dataset's bijection.
    Zipfian(Zipfian),
    /// The newest rows are the most popular: n - 1 - zipfian, as YCSB's workload D.
    Latest(Zipfian),
}

impl Chooser {
    /// Every row of `[0, n)` alike; an `n` of 0 counts as 1.
    #[must_use]
    pub fn uniform(n: u64) -> Chooser {
        Chooser::Uniform { n: n.max(1) }
    }

    /// YCSB's zipfian over `[0, n)`.
    #[must_use]
    pub fn zipfian(n: u64) -> Chooser {
        Chooser::Zipfian(Zipfian::new(n))
    }

    /// YCSB's latest over `[0, n)`.
    #[must_use]
    pub fn latest(n: u64) -> Chooser {
        Chooser::Latest(Zipfian::new(n))
    }

    /// Follows a dataset that grew (or shrank) to `n` rows.
    pub fn set_domain(&mut self, n: u64) {
        match self {
            Chooser::Uniform { n: count } => *count = n.max(1),
            Chooser::Zipfian(zipfian) | Chooser::Latest(zipfian) => zipfian.set_domain(n),
        }
    }

    /// The number of rows chosen from.
    #[must_use]
    pub fn domain(&self) -> u64 {
        match self {
            Chooser::Uniform { n } => *n,
            Chooser::Zipfian(zipfian) | Chooser::Latest(zipfian) => zipfian.domain(),
        }
    }

    /// A row or rank in `[0, n)`.
    #[inline]
    pub fn sample(&self, random: &mut Random) -> u64 {
        match self {
            Chooser::Uniform { n } => random.below(*n),
            Chooser::Zipfian(zipfian) => zipfian.sample(random),
            Chooser::Latest(zipfian) => zipfian.domain() - 1 - zipfian.sample(random),
        }
    }
}

//! The Universal Scalability Law, fitted to measured throughput: how much of the work is serial, how much the workers slow each
//! other down, and from where more of them do not help.
//!
//! Source: N. J. Gunther, "Guerrilla Capacity Planning" (2007), chapters 4 to 6. With N sessions the throughput is
//!
//! ```text
//! X(N) = lambda N / (1 + sigma (N - 1) + kappa N (N - 1))
//! ```
//!
//! `lambda` is the throughput of one session, `sigma` the share of the work that is done one after another (contention, 0 to 1),
//! `kappa` what each session costs each other one (coherency). sigma = kappa = 0 is linear scaling, kappa = 0 Amdahl's law,
//! sigma = 1 with kappa = 0 a throughput that does not depend on the sessions. The fit minimises the sum of the squared
//! differences in throughput, within these bounds.

/// Numbers of sessions that must have been measured: three parameters go through any three points.
pub(crate) const DISTINCT_MIN: usize = 4;
/// sigma at most: everything is done one after another.
const SIGMA_MAX: f64 = 1.0;
/// Steps of the iteration; a few dozen are usual.
const ITERATIONS_MAX: usize = 400;
/// Damping beyond which no step leads downhill any more.
const DAMPING_MAX: f64 = 1e14;
/// A sum of squares that is lower by less than this share is the same.
const COST_ROUNDING: f64 = 1e-10;
/// Throughput of one session at least, as a share of the highest measured: keeps the parameter above zero.
const LAMBDA_MIN: f64 = 1e-9;

/// The law with its parameters.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Usl {
    /// Throughput of one session, in the unit of what was measured.
    pub lambda: f64,
    /// Contention, 0 to 1.
    pub sigma: f64,
    /// Coherency, 0 or more.
    pub kappa: f64,
}

impl Usl {
    /// Throughput with so many sessions.
    pub fn at(&self, sessions: f64) -> f64 {
        let others = sessions - 1.0;
        self.lambda * sessions / (1.0 + self.sigma * others + self.kappa * sessions * others)
    }

    /// Where the throughput is highest, N* = sqrt((1 - sigma) / kappa), and how high; `None` without coherency, where it never falls.
    pub fn peak(&self) -> Option<(f64, f64)> {
        (self.kappa > 0.0).then(|| {
            let sessions = ((1.0 - self.sigma) / self.kappa).sqrt().max(1.0);
            (sessions, self.at(sessions))
        })
    }

    /// The throughput that is never passed: that of the peak, or lambda / sigma without coherency. `None` where it grows for ever.
    pub fn ceiling(&self) -> Option<f64> {
        match self.peak() {
            Some((_, throughput)) => Some(throughput),
            None => (self.sigma > 0.0).then(|| self.lambda / self.sigma),
        }
    }

    /// From how many sessions on doubling them gains less than `gain` (0.1: a tenth). `None` if it always gains more.
    ///
    /// Doubling gains less with every session, so there is one such number; it follows from X(2N) = (1 + gain) X(N).
    pub fn knee(&self, gain: f64) -> Option<f64> {
        // (1 - g) + sigma ((2N - 2) - (1 + g)(2N - 1)) + kappa (2N (N - 1) - (1 + g) 2N (2N - 1)) = 0, with g the gain.
        let (sigma, kappa, ratio) = (self.sigma, self.kappa, 1.0 + gain);
        let constant = 2.0 - ratio + sigma * (ratio - 2.0);
        let linear = sigma * (2.0 - 2.0 * ratio) + kappa * (2.0 * ratio - 2.0);
        let square = kappa * (2.0 - 4.0 * ratio);
        let root = if square == 0.0 {
            if linear >= 0.0 {
                return (constant <= 0.0).then_some(1.0);
            }
            -constant / linear
        } else {
            // The parabola opens downwards and is not negative at 0: its larger root is the only one at the right.
            (-linear - (linear * linear - 4.0 * square * constant).max(0.0).sqrt()) / (2.0 * square)
        };
        Some(root.max(1.0))
    }
}

/// A law and how well it describes what was measured.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Fitted {
    /// The law.
    pub usl: Usl,
    /// The share of the throughput's variation that the law explains, at most 1; `None` if the throughput never varied.
    pub r2: Option<f64>,
    /// Root mean square of the differences, as a share of the mean throughput.
    pub error: f64,
    /// Points it was fitted to.
    pub points: usize,
}

/// Why there is no fit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoFit {
    /// Any curve would go through them.
    #[error(
        "{distinct} different numbers of sessions are too few for three parameters: measure at least {DISTINCT_MIN}"
    )]
    TooFew {
        /// How many there were.
        distinct: usize,
    },
    /// A throughput of zero, or none at all.
    #[error("throughput was zero with some numbers of sessions")]
    NoThroughput,
}

/// Fits the law to (sessions, throughput); several points with the same number of sessions are repeats.
///
/// # Errors
/// With too few different numbers of sessions, or a point without throughput.
pub fn fit(points: &[(f64, f64)]) -> Result<Fitted, NoFit> {
    let mut sessions: Vec<f64> = points.iter().map(|(sessions, _)| *sessions).collect();
    sessions.sort_by(f64::total_cmp);
    sessions.dedup();
    if sessions.len() < DISTINCT_MIN {
        return Err(NoFit::TooFew { distinct: sessions.len() });
    }
    let sound = |(sessions, throughput): &(f64, f64)| {
        *sessions >= 1.0 && sessions.is_finite() && *throughput > 0.0 && throughput.is_finite()
    };
    if !points.iter().all(sound) {
        return Err(NoFit::NoThroughput);
    }
    let highest = points.iter().map(|(_, throughput)| *throughput).fold(0.0, f64::max);
    let scaled: Vec<(f64, f64)> =
        points.iter().map(|(sessions, throughput)| (*sessions, throughput / highest)).collect();
    let (best, cost) = search(&scaled);
    let mean = scaled.iter().map(|(_, throughput)| throughput).sum::<f64>() / scaled.len() as f64;
    let variation: f64 = scaled.iter().map(|(_, throughput)| (throughput - mean).powi(2)).sum();
    // A sum of squares of rounding errors is no variation.
    let varies = variation > scaled.len() as f64 * f64::EPSILON;
    Ok(Fitted {
        usl: Usl { lambda: best.lambda * highest, ..best },
        r2: varies.then(|| 1.0 - cost / variation),
        error: (cost / scaled.len() as f64).sqrt() / mean,
        points: points.len(),
    })
}

/// Which parameters a search may change; the others lie on their bounds.
type Free = [bool; 3];

/// The best of several descents: inside the bounds and along each of them, so that an optimum on a bound is found exactly.
fn search(points: &[(f64, f64)]) -> (Usl, f64) {
    let first = points.iter().copied().min_by(|left, right| left.0.total_cmp(&right.0)).unwrap_or((1.0, 1.0));
    let lambda = first.1 / first.0;
    let mut starts = vec![linearised(points)];
    for sigma in [0.001, 0.1, 0.9] {
        for kappa in [1e-7, 1e-4, 1e-2] {
            starts.push(Usl { lambda, sigma, kappa });
        }
    }
    // The simplest law first: a freer one must describe the points better by more than rounding.
    let faces: [(Free, Option<f64>, Option<f64>); 6] = [
        ([true, false, false], Some(0.0), Some(0.0)),
        ([true, false, false], Some(SIGMA_MAX), Some(0.0)),
        ([true, true, false], None, Some(0.0)),
        ([true, false, true], Some(0.0), None),
        ([true, false, true], Some(SIGMA_MAX), None),
        ([true, true, true], None, None),
    ];
    let mut best = (Usl { lambda, sigma: 0.0, kappa: 0.0 }, f64::INFINITY);
    for (free, sigma, kappa) in faces {
        for start in &starts {
            let start =
                Usl { sigma: sigma.unwrap_or(start.sigma), kappa: kappa.unwrap_or(start.kappa), ..*start };
            let found = descend(points, bounded(start), free);
            if found.1 < best.1 * (1.0 - COST_ROUNDING) - COST_ROUNDING * COST_ROUNDING {
                best = found;
            }
        }
    }
    best
}

/// N / X(N) is linear in (1, N - 1, N (N - 1)): its least squares are exact without noise and a good start with some.
fn linearised(points: &[(f64, f64)]) -> Usl {
    let mut normal = [[0.0; 3]; 3];
    let mut right = [0.0; 3];
    for (sessions, throughput) in points {
        let row = [1.0, sessions - 1.0, sessions * (sessions - 1.0)];
        // Weighted so that a relative error counts alike everywhere.
        let weight = (throughput / sessions).powi(2);
        for i in 0..3 {
            right[i] += weight * row[i] * sessions / throughput;
            for j in 0..3 {
                normal[i][j] += weight * row[i] * row[j];
            }
        }
    }
    match solve(normal, right, [true; 3]) {
        Some([inverse, sigma, kappa]) if inverse > 0.0 => {
            Usl { lambda: 1.0 / inverse, sigma: sigma / inverse, kappa: kappa / inverse }
        }
        _ => Usl { lambda: points[0].1 / points[0].0, sigma: 0.1, kappa: 0.0 },
    }
}

fn bounded(usl: Usl) -> Usl {
    Usl {
        lambda: usl.lambda.max(LAMBDA_MIN),
        sigma: usl.sigma.clamp(0.0, SIGMA_MAX),
        kappa: usl.kappa.max(0.0),
    }
}

fn cost(points: &[(f64, f64)], usl: &Usl) -> f64 {
    points.iter().map(|(sessions, throughput)| (throughput - usl.at(*sessions)).powi(2)).sum()
}

/// Levenberg-Marquardt (Marquardt 1963) with steps cut off at the bounds.
fn descend(points: &[(f64, f64)], start: Usl, free: Free) -> (Usl, f64) {
    let (mut at, mut best) = (start, cost(points, &start));
    let mut damping = 1e-3;
    for _ in 0..ITERATIONS_MAX {
        let (normal, downhill) = derivatives(points, &at);
        let mut improved = false;
        while damping < DAMPING_MAX {
            let mut damped = normal;
            for i in 0..3 {
                damped[i][i] += damping * normal[i][i].max(f64::MIN_POSITIVE);
            }
            let next = solve(damped, downhill, free).map(|step| {
                bounded(Usl {
                    lambda: at.lambda + step[0],
                    sigma: at.sigma + step[1],
                    kappa: at.kappa + step[2],
                })
            });
            let there = next.map(|next| (next, cost(points, &next)));
            match there {
                Some((next, lower)) if lower < best => {
                    improved = best - lower > COST_ROUNDING * best;
                    (at, best) = (next, lower);
                    damping = (damping / 10.0).max(1e-12);
                    break;
                }
                _ => damping *= 10.0,
            }
        }
        if !improved {
            break;
        }
    }
    (at, best)
}

/// The normal matrix and the direction of steepest descent.
fn derivatives(points: &[(f64, f64)], usl: &Usl) -> ([[f64; 3]; 3], [f64; 3]) {
    let mut normal = [[0.0; 3]; 3];
    let mut downhill = [0.0; 3];
    for (sessions, throughput) in points {
        let others = sessions - 1.0;
        let divisor = 1.0 + usl.sigma * others + usl.kappa * sessions * others;
        let by_sigma = -usl.lambda * sessions * others / (divisor * divisor);
        let row = [sessions / divisor, by_sigma, by_sigma * sessions];
        let difference = throughput - usl.at(*sessions);
        for i in 0..3 {
            downhill[i] += row[i] * difference;
            for j in 0..3 {
                normal[i][j] += row[i] * row[j];
            }
        }
    }
    (normal, downhill)
}

/// Solves the symmetric system for the free unknowns, the others are 0; `None` if it has no single solution.
#[expect(clippy::needless_range_loop, reason = "rows and columns of one matrix")]
fn solve(mut matrix: [[f64; 3]; 3], mut right: [f64; 3], free: Free) -> Option<[f64; 3]> {
    for i in (0..3).filter(|i| !free[*i]) {
        for j in 0..3 {
            matrix[i][j] = 0.0;
            matrix[j][i] = 0.0;
        }
        matrix[i][i] = 1.0;
        right[i] = 0.0;
    }
    // The unknowns differ by many powers of ten: with a diagonal of ones the elimination stays exact enough.
    let mut scale = [1.0; 3];
    for i in 0..3 {
        if matrix[i][i] <= 0.0 {
            return None;
        }
        scale[i] = 1.0 / matrix[i][i].sqrt();
    }
    for i in 0..3 {
        right[i] *= scale[i];
        for j in 0..3 {
            matrix[i][j] *= scale[i] * scale[j];
        }
    }
    for pivot in 0..3 {
        if matrix[pivot][pivot].abs() < f64::EPSILON {
            return None;
        }
        for row in pivot + 1..3 {
            let factor = matrix[row][pivot] / matrix[pivot][pivot];
            right[row] -= factor * right[pivot];
            for column in pivot..3 {
                matrix[row][column] -= factor * matrix[pivot][column];
            }
        }
    }
    let mut found = [0.0; 3];
    for row in (0..3).rev() {
        let known: f64 = (row + 1..3).map(|column| matrix[row][column] * found[column]).sum();
        found[row] = (right[row] - known) / matrix[row][row];
    }
    let found = [0, 1, 2].map(|i| found[i] * scale[i]);
    found.iter().all(|value| value.is_finite()).then_some(found)
}

#[cfg(test)]
mod tests;

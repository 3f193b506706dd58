//! A sweep: the same workload with one number of sessions after another, and what follows from it: the curve of throughput over
//! sessions, its fit, its knees, and how a mix of reads and updates compares with the pure ones.
//!
//! Everything here is computed from the steps of a run, so it can be computed again from an old, partial or killed directory. Only
//! finished and valid steps count; the others stay in the list with the reason.

mod of_steps;

use crate::usl::{self, Usl};
use serde::{Deserialize, Serialize};

/// A fit that explains less of the throughput's variation than this is not believed ...
pub(crate) const R2_MIN: f64 = 0.9;
/// ... unless it is nowhere far from what was measured: where hardly anything varies there is nothing to explain.
pub(crate) const FIT_ERROR_MAX: f64 = 0.05;
/// Beyond the knee, doubling the sessions gains less than this share.
pub const KNEE_GAIN: f64 = 0.1;
/// Numbers of sessions for a knee of the latency: between two there is no inside.
pub const LATENCY_KNEE_POINTS_MIN: usize = 3;
/// A mix that reaches less than this share of what its pure mixes lead to expect has collapsed.
pub const COLLAPSE_FACTOR: f64 = 0.8;
/// A mix that reaches more than this share of it gains by mixing.
pub const GAIN_FACTOR: f64 = 1.25;
/// Percent of a pure mix.
const WHOLE: u64 = 100;

/// What a sweep was to do; in `run.json` as `sweep`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Plan {
    /// Numbers of sessions, in the order of the first pass.
    pub sessions: Vec<u64>,
    /// Percents of reads of the mixes, in the order requested; empty without a read/update mix.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub read_percent: Vec<u64>,
    /// Passes over all of them; every second one goes backwards.
    pub repeats: u64,
    /// Steps in all.
    pub steps: u64,
    /// Longest warm-up of a step.
    pub warmup_s: f64,
    /// How far the last windows of a warm-up may lie apart when it ends early; absent if every warm-up took its whole time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settle_percent: Option<f64>,
    /// Tables whose statistics were gathered before the first step: `node: table`.
    pub analyzed: Vec<String>,
    /// A checkpoint was made on every node before each step.
    pub checkpoints: bool,
    /// What could not be done before a step, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}

/// Which point of a sweep a step is; in a step of `run.json` as `sweep`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Place {
    /// Sessions.
    pub sessions: u64,
    /// The pass it belongs to, from 1.
    pub repeat: u64,
    /// Percent of reads among its reads and updates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_percent: Option<u64>,
    /// How long it was driven before it was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warmup_s: Option<f64>,
    /// Whether throughput had settled by then; absent where the warm-up was too short to judge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settled: Option<bool>,
    /// How far the last windows of the warm-up lay apart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread_percent: Option<f64>,
}

/// What a sweep found; in a summary as `sweep`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Sweep {
    /// One per workload or mix, in the order they were measured first.
    pub curves: Vec<Curve>,
    /// Mixes of reads and updates against their pure ones, per number of sessions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mixes: Vec<Mix>,
}

/// Throughput and latency of one workload over sessions.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Curve {
    /// The workload: `ycsb-a`, `read/update 50/50`.
    pub name: String,
    /// Percent of reads, in a sweep over mixes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_percent: Option<u64>,
    /// By sessions, ascending.
    pub points: Vec<Point>,
    /// Sessions of the highest measured throughput.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best_sessions: Option<u64>,
    /// That throughput.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best_tps: Option<f64>,
    /// The Universal Scalability Law, where there are points enough.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fit: Option<Fit>,
    /// Why the fit names no knee; absent if it is believed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cannot_tell: Option<String>,
    /// From here on, doubling the sessions gains less than a tenth. Only inside what was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub knee_sessions: Option<f64>,
    /// Measured sessions with the most throughput per p99: beyond them latency grows faster than throughput.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_knee_sessions: Option<u64>,
}

/// One number of sessions.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Point {
    /// Sessions.
    pub sessions: u64,
    /// Mean throughput of the repeats that count; absent if none does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tps: Option<f64>,
    /// p50 of the slowest of these repeats: percentiles are never averaged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_us: Option<u64>,
    /// p99, likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_us: Option<u64>,
    /// What each step measured.
    pub repeats: Vec<Repeat>,
}

/// One step of a sweep.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Repeat {
    /// Key of the step.
    pub step: String,
    /// Committed per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tps: Option<f64>,
    /// Half of the responses took at most this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_us: Option<u64>,
    /// 99 % of the responses took at most this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_us: Option<u64>,
    /// Why it counts in nothing; absent if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_out: Option<String>,
    /// Whether throughput had settled when it began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settled: Option<bool>,
}

/// The Universal Scalability Law with its parameters, see [`crate::usl`].
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Fit {
    /// Throughput of one session.
    pub lambda_tps: f64,
    /// Contention: share of the work that is done one after another.
    pub sigma: f64,
    /// Coherency: what each session costs each other one.
    pub kappa: f64,
    /// Share of the variation explained; absent if the throughput never varied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r2: Option<f64>,
    /// Root mean square of the differences, as a share of the mean throughput.
    pub error: f64,
    /// Steps it was fitted to.
    pub points: u64,
    /// N* = sqrt((1 - sigma) / kappa): sessions of the highest throughput; absent where it never falls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_sessions: Option<f64>,
    /// The throughput that is never passed; absent where it grows for ever.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ceiling_tps: Option<f64>,
}

impl Fit {
    /// The law.
    pub fn usl(&self) -> Usl {
        Usl { lambda: self.lambda_tps, sigma: self.sigma, kappa: self.kappa }
    }
}

/// A mix of reads and updates against its pure ones, with one number of sessions.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Mix {
    /// Sessions.
    pub sessions: u64,
    /// Percent of reads.
    pub read_percent: u64,
    /// Measured.
    pub tps: f64,
    /// Mean of the pure throughputs, weighted by their shares of the transactions. It expects too much whenever they differ: a
    /// session spends more of its time in the slower ones.
    pub weighted_mean_tps: f64,
    /// Mean weighted by the time that sessions spend (harmonic): what sessions reach that do not disturb each other.
    pub time_weighted_tps: f64,
    /// `tps` / `time_weighted_tps`.
    pub factor: f64,
    /// Mean time of a read here, as a multiple of that in the pure mix.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_slowdown: Option<f64>,
    /// Mean time of an update here, as a multiple of that in the pure mix.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub update_slowdown: Option<f64>,
    /// What that means.
    pub outcome: Outcome,
}

/// How a mix compares with its pure ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// About what they lead to expect.
    #[default]
    Expected,
    /// Less than [`COLLAPSE_FACTOR`] of it: reads and updates are in each other's way.
    Collapse,
    /// More than [`GAIN_FACTOR`] of it: they use different things, and share them better.
    Gain,
    /// A word of a newer version.
    #[serde(other)]
    Unknown,
}

impl Curve {
    /// Sessions and throughput of the points that count, by sessions.
    pub fn measured(&self) -> impl Iterator<Item = (u64, f64)> {
        self.points.iter().filter_map(|point| Some((point.sessions, point.tps?)))
    }

    /// The most sessions that were measured.
    pub fn sessions_max(&self) -> Option<u64> {
        self.measured().map(|(sessions, _)| sessions).max()
    }

    /// Kleinrock's power: the knee of the latency is where throughput per latency is highest (L. Kleinrock, "Power and deterministic
    /// rules of thumb for probabilistic problems in computer communications", ICC 1979); here per p99.
    fn latency_knee(&self) -> Option<u64> {
        let power = |point: &Point| Some((point.sessions, point.tps? / point.p99_us?.max(1) as f64));
        let all: Vec<(u64, f64)> = self.points.iter().filter_map(power).collect();
        if all.len() < LATENCY_KNEE_POINTS_MIN {
            return None;
        }
        let best = all.iter().copied().max_by(|left, right| left.1.total_cmp(&right.1))?;
        // At the far end there may be more to come.
        (best.0 != all.last()?.0).then_some(best.0)
    }

    fn fit(&mut self) {
        let counted = self.points.iter().flat_map(|point| {
            let repeats = point.repeats.iter().filter(|repeat| repeat.left_out.is_none());
            repeats.filter_map(|repeat| Some((point.sessions as f64, repeat.tps?)))
        });
        let fitted = match usl::fit(&counted.collect::<Vec<_>>()) {
            Ok(fitted) => fitted,
            Err(error) => {
                self.cannot_tell = Some(error.to_string());
                return;
            }
        };
        let law = fitted.usl;
        self.fit = Some(Fit {
            lambda_tps: law.lambda,
            sigma: law.sigma,
            kappa: law.kappa,
            r2: fitted.r2,
            error: fitted.error,
            points: fitted.points as u64,
            peak_sessions: law.peak().map(|(sessions, _)| sessions),
            ceiling_tps: law.ceiling(),
        });
        let explained = fitted.r2.is_none_or(|r2| r2 >= R2_MIN);
        if !explained && fitted.error > FIT_ERROR_MAX {
            self.cannot_tell = Some(format!(
                "the measured points do not follow the law: R2 {:.2}, {:.0} % away on average",
                fitted.r2.unwrap_or(0.0),
                fitted.error * 100.0
            ));
            return;
        }
        let farthest = self.sessions_max().unwrap_or(0) as f64;
        self.knee_sessions = law.knee(KNEE_GAIN).filter(|knee| *knee <= farthest);
    }
}

#[cfg(test)]
mod tests;

//! Mean and percentiles of a latency.

use serde::{Deserialize, Serialize};

/// Latency in microseconds: response time counts from the scheduled start, service time from the real start.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct LatencySummary {
    /// Exact arithmetic mean.
    pub mean: f64,
    /// Half of the samples took at most this.
    pub p50: u64,
    /// 90 %.
    pub p90: u64,
    /// 95 %.
    pub p95: u64,
    /// 99 %.
    pub p99: u64,
    /// 99.9 %.
    pub p999: u64,
    /// Exact maximum.
    pub max: u64,
}

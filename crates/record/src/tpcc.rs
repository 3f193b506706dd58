//! What a run of TPC-C found: throughput against the limit, response times against theirs, the shares that the specification
//! prescribes, nodes touched per transaction, and whether client and server agree about the number of orders.

use crate::latency_summary::LatencySummary;
use serde::{Deserialize, Serialize};

/// What every report of such a run has.
pub const DISCLAIMER: &str =
    "not a TPC result: unaudited, not comparable with results published by the TPC (see docs/tpcc.md)";

/// The answer of a run of TPC-C.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Tpcc {
    /// That this is no TPC result.
    pub disclaimer: String,
    /// Warehouses that were driven.
    pub warehouses: u64,
    /// Simulated users with keying and think times; absent without such users.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminals: Option<u64>,
    /// No database was driven: a transaction took so long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub simulated_ms: Option<f64>,
    /// `READ COMMITTED`, ...
    pub isolation: String,
    /// `weights 45/43/4/4/4` or `deck`.
    pub mix: String,
    /// What was batched, in words.
    pub batching: String,
    /// New-Orders per minute in the measured part, with those that the specification has rolled back.
    pub tpmc: f64,
    /// The same without them.
    pub committed_per_minute: f64,
    /// `tpmc` against the most that keying and think times allow; absent without them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub efficiency_percent: Option<f64>,
    /// The five profiles.
    pub profiles: Vec<TpccProfile>,
    /// Time a terminal waited until a session was free.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_wait_us: Option<LatencySummary>,
    /// Time from the real start of a transaction to its end, tries included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transaction_us: Option<LatencySummary>,
    /// Of that, time between requests and their answers, last try.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub database_us: Option<LatencySummary>,
    /// Awaited requests per transaction.
    pub round_trips: f64,
    /// Shares that the specification prescribes.
    pub audit: Vec<TpccShare>,
    /// Orders delivered.
    pub delivered: u64,
    /// Districts in which a Delivery found nothing to deliver.
    pub skipped_deliveries: u64,
    /// Transactions by the number of nodes they touched: one node first.
    pub nodes: Vec<u64>,
    /// Nodes touched per transaction.
    pub nodes_mean: f64,
    /// Transactions that wrote on more than one node, and so had to commit in two phases, in percent.
    pub two_phase_percent: f64,
    /// Client and server about the orders of the whole run, warm-up included; absent where there is no server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub orders: Option<TpccOrders>,
    /// Response times, and efficiency where there is one, are within their limits.
    pub passes: bool,
    /// Why not.
    pub misses: Vec<String>,
}

/// One profile.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct TpccProfile {
    /// `New-Order`, ...
    pub name: String,
    /// Reached their end in the measured part.
    pub transactions: u64,
    /// Response times at the 90th percentile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_us_p90: Option<u64>,
    /// What it may be at most.
    pub limit_us: u64,
    /// By the number of nodes they touched, one node first; empty where rows are not spread over nodes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<u64>,
}

/// A share that the specification prescribes.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct TpccShare {
    /// What it is a share of: `New-Orders rolled back`.
    pub name: String,
    /// The clause.
    pub clause: String,
    /// How many were.
    pub count: u64,
    /// Of how many.
    pub of: u64,
    /// The least allowed.
    pub percent_min: f64,
    /// The most allowed.
    pub percent_max: f64,
    /// Whether it is kept.
    pub result: TpccShareResult,
}

/// Whether a share is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TpccShareResult {
    /// Within the bounds, or as close to them as chance explains.
    Ok,
    /// Outside the bounds, and chance does not explain it.
    Outside,
    /// So few that chance alone may lead beyond the bounds, or inside.
    InsufficientData,
    /// There is nothing to count, for example remote lines with a single warehouse.
    #[default]
    NotApplicable,
    /// An answer of a newer version.
    #[serde(other)]
    Unknown,
}

impl TpccShareResult {
    /// For people.
    pub fn word(self) -> &'static str {
        match self {
            TpccShareResult::Ok => "ok",
            TpccShareResult::Outside => "OUTSIDE",
            TpccShareResult::InsufficientData => "insufficient data",
            TpccShareResult::NotApplicable => "not applicable",
            TpccShareResult::Unknown => "?",
        }
    }
}

/// Orders by the client's count and by the server's own: sum of D_NEXT_O_ID after the run less that before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct TpccOrders {
    /// New-Orders whose COMMIT the client saw.
    pub client: u64,
    /// Those whose connection was lost, or that were dropped: they may have committed.
    pub unknown: u64,
    /// Orders that the server has more than before.
    pub server: i64,
    /// `client <= server <= client + unknown`.
    pub agree: bool,
}

impl TpccOrders {
    /// Compares the two.
    pub fn new(client: u64, unknown: u64, before: i64, after: i64) -> TpccOrders {
        let server = after - before;
        let agree = u64::try_from(server).is_ok_and(|server| (client..=client + unknown).contains(&server));
        TpccOrders { client, unknown, server, agree }
    }
}

/// Two-sided 99 % of the normal distribution.
const Z: f64 = 2.576;

impl TpccShare {
    /// Judges a share that must lie between two percentages. Chance is taken into account by Wilson's interval of 99 %.
    pub fn judge(name: &str, clause: &str, count: u64, of: u64, percent: (f64, f64)) -> TpccShare {
        let (percent_min, percent_max) = percent;
        let result = if of == 0 {
            TpccShareResult::NotApplicable
        } else {
            let (low, high) = wilson(count, of);
            // Far more doubt than the room between the bounds, or around a single one, leaves.
            let room = if percent_max < 100.0 { percent_max - percent_min } else { percent_min / 5.0 };
            match () {
                () if high < percent_min || low > percent_max => TpccShareResult::Outside,
                () if high - low > room => TpccShareResult::InsufficientData,
                () => TpccShareResult::Ok,
            }
        };
        TpccShare {
            name: name.to_string(),
            clause: clause.to_string(),
            count,
            of,
            percent_min,
            percent_max,
            result,
        }
    }

    /// The share in percent.
    pub fn percent(&self) -> f64 {
        if self.of == 0 { 0.0 } else { self.count as f64 * 100.0 / self.of as f64 }
    }
}

/// Wilson's score interval of a binomial share, in percent (Wilson 1927).
fn wilson(count: u64, of: u64) -> (f64, f64) {
    let (n, share) = (of as f64, count as f64 / of as f64);
    let scale = 1.0 + Z * Z / n;
    let middle = (share + Z * Z / (2.0 * n)) / scale;
    let half = Z * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt() / scale;
    (100.0 * (middle - half), 100.0 * (middle + half))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_judged_with_regard_to_chance() {
        let judge = |count, of| TpccShare::judge("rollbacks", "2.4.1.4", count, of, (0.9, 1.1)).result;
        assert_eq!(judge(0, 0), TpccShareResult::NotApplicable);
        assert_eq!(judge(1, 100), TpccShareResult::InsufficientData);
        assert_eq!(judge(0, 100), TpccShareResult::InsufficientData, "none of a hundred is no wonder");
        assert_eq!(judge(0, 10_000), TpccShareResult::Outside, "none of ten thousand is");
        assert_eq!(judge(10, 100), TpccShareResult::Outside);
        assert_eq!(judge(10_000, 1_000_000), TpccShareResult::Ok);
        assert_eq!(judge(12_000, 1_000_000), TpccShareResult::Outside);
        let least = |count, of| TpccShare::judge("Payment", "5.2.3", count, of, (43.0, 100.0)).result;
        assert_eq!(least(43, 100), TpccShareResult::InsufficientData);
        assert_eq!(least(42_950, 100_000), TpccShareResult::Ok, "chance explains that");
        assert_eq!(least(42_000, 100_000), TpccShareResult::Outside);
        let (low, high) = wilson(50, 100);
        assert!((low - 37.5).abs() < 0.3 && (high - 62.5).abs() < 0.3, "{low} {high}");
    }

    #[test]
    fn counts_of_orders_agree_up_to_what_nobody_knows() {
        assert!(TpccOrders::new(10, 0, 100, 110).agree);
        assert!(!TpccOrders::new(10, 0, 100, 111).agree);
        assert!(!TpccOrders::new(10, 0, 100, 109).agree);
        assert!(TpccOrders::new(10, 2, 100, 112).agree);
        assert!(!TpccOrders::new(10, 2, 100, 90).agree);
    }
}

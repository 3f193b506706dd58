//! `samples.ndjson`: one JSON object per line. The first line is a header with the schema version; each other line carries
//! `t_us` (end of the interval it describes), `interval_us`, `source`, `step` and flat, named numbers. Counts are of that
//! interval, not running totals, unless the name ends in `_total`. Tools can read the file as a table of columns.
//! Lines about servers and machines are those of [`crate::watched`].

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Source of [`ClientSample`] lines.
pub(crate) const SOURCE_CLIENT: &str = "client";
/// Source of [`ProgressSample`] lines of a load.
pub const SOURCE_LOAD: &str = "load";
/// Source of [`ProgressSample`] lines of a verification.
pub const SOURCE_VERIFY: &str = "verify";
/// Source of samples of the sessions that enter at one node: `node` names it, `transactions`, `errors` and `response_us_*` are as in
/// [`ClientSample`], whose lines count them, too.
pub const SOURCE_NODE: &str = "node";

/// What the load-driving client counted in one interval.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ClientSample {
    /// `warmup`, `measure` or `drain`.
    pub phase: String,
    /// Transactions whose scheduled start fell into the interval; closed loop: equals `started`.
    pub scheduled: u64,
    /// Transactions begun.
    pub started: u64,
    /// Transactions committed.
    pub transactions: u64,
    /// Transactions failed for good.
    pub errors: u64,
    /// Attempts repeated.
    pub retries: u64,
    /// Response time (from the scheduled start) of the transactions that ended in the interval; absent if none did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_us_mean: Option<f64>,
    /// Median.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_us_p50: Option<u64>,
    /// 99 %.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_us_p99: Option<u64>,
    /// Exact maximum.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_us_max: Option<u64>,
    /// Service time (from the real start), likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_us_mean: Option<f64>,
    /// Median.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_us_p50: Option<u64>,
    /// 99 %.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_us_p99: Option<u64>,
    /// Exact maximum.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_us_max: Option<u64>,
    /// Lag: a session was free but the client started late; 99 %.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag_us_p99: Option<u64>,
    /// Exact maximum of the lag.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag_us_max: Option<u64>,
    /// Transactions that were due but waited for a busy session at the end of the interval.
    pub backlog: u64,
    /// Sessions connected at the end of the interval.
    pub sessions: u64,
    /// CPU time of this process in the interval, user and system.
    pub client_cpu_us: u64,
}

impl ClientSample {
    /// Fills the response time fields from the interval's histogram.
    pub fn set_response(&mut self, latency: &crate::Latency) {
        if !latency.is_empty() {
            self.response_us_mean = Some(latency.mean_us());
            self.response_us_p50 = Some(latency.quantile_us(0.5));
            self.response_us_p99 = Some(latency.quantile_us(0.99));
            self.response_us_max = Some(latency.max_us());
        }
    }

    /// Fills the service time fields from the interval's histogram.
    pub fn set_service(&mut self, latency: &crate::Latency) {
        if !latency.is_empty() {
            self.service_us_mean = Some(latency.mean_us());
            self.service_us_p50 = Some(latency.quantile_us(0.5));
            self.service_us_p99 = Some(latency.quantile_us(0.99));
            self.service_us_max = Some(latency.max_us());
        }
    }

    /// Fills the lag fields from the interval's histogram.
    pub fn set_lag(&mut self, latency: &crate::Latency) {
        if !latency.is_empty() {
            self.lag_us_p99 = Some(latency.quantile_us(0.99));
            self.lag_us_max = Some(latency.max_us());
        }
    }
}

/// How far a load or a verification came in one interval.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ProgressSample {
    /// `copy`, `index`, `analyze`, `fast`, `deep`, ...
    pub phase: String,
    /// Rows done in the interval.
    pub rows: u64,
    /// Bytes sent or read in the interval.
    pub bytes: u64,
    /// Rows done since the beginning, rows of an earlier, resumed load included.
    pub rows_total: u64,
    /// Rows to do in all.
    pub rows_goal: u64,
    /// Chunks committed in the interval.
    pub chunks: u64,
    /// Streams at work at the end of the interval.
    pub streams: u64,
    /// The slowest stream of the interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slowest_stream: Option<String>,
    /// Rows it did in the interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slowest_rows: Option<u64>,
    /// The slowest node of the interval, of those that had something to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slowest_node: Option<String>,
    /// Rows it did in the interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slowest_node_rows: Option<u64>,
    /// CPU time of this process in the interval, user and system.
    pub client_cpu_us: u64,
}

/// One line, as read.
#[derive(Clone, PartialEq, Debug)]
pub struct Sample {
    /// End of the interval.
    pub t_us: u64,
    /// Its length; 0 if the line is a reading of a moment.
    pub interval_us: u64,
    /// Key of the step; empty if the sample belongs to none.
    pub step: String,
    /// Who counted, and what.
    pub body: Body,
}

/// The content of a line.
#[derive(Clone, PartialEq, Debug)]
pub enum Body {
    /// Source `client`.
    Client(ClientSample),
    /// Source `load`.
    Load(ProgressSample),
    /// Source `verify`.
    Verify(ProgressSample),
    /// Any other source, with its values as they are.
    Other {
        /// The source's name.
        source: String,
        /// All fields but those of [`Sample`].
        values: Map<String, Value>,
    },
}

impl Sample {
    /// Reads one line; `None` if it is no sample (a header, or not an object with `t_us` and `source`).
    pub fn parse(line: &str) -> Option<Sample> {
        let mut values: Map<String, Value> = serde_json::from_str(line).ok()?;
        let t_us = values.remove("t_us")?.as_u64()?;
        let source = values.remove("source")?.as_str()?.to_string();
        let interval_us = values.remove("interval_us").and_then(|value| value.as_u64()).unwrap_or(0);
        let step =
            values.remove("step").and_then(|value| value.as_str().map(str::to_string)).unwrap_or_default();
        let body = match source.as_str() {
            SOURCE_CLIENT => Body::Client(serde_json::from_value(Value::Object(values)).ok()?),
            SOURCE_LOAD => Body::Load(serde_json::from_value(Value::Object(values)).ok()?),
            SOURCE_VERIFY => Body::Verify(serde_json::from_value(Value::Object(values)).ok()?),
            _ => Body::Other { source, values },
        };
        Some(Sample { t_us, interval_us, step, body })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_unknown_and_missing_fields_is_read() {
        let line = r#"{"t_us":5,"source":"client","transactions":7,"invented_later":[1]}"#;
        let sample = Sample::parse(line).expect("a sample");
        let Body::Client(client) = sample.body else { panic!("client expected") };
        assert_eq!((sample.t_us, sample.interval_us, client.transactions, client.errors), (5, 0, 7, 0));
        assert_eq!(client.response_us_p99, None);
    }

    #[test]
    fn sources_of_later_versions_keep_their_values() {
        let sample =
            Sample::parse(r#"{"t_us":5,"source":"weather","step":"run","rain_mm":3}"#).expect("a sample");
        let Body::Other { source, values } = sample.body else { panic!("other expected") };
        assert_eq!(
            (source.as_str(), values["rain_mm"].as_u64(), sample.step.as_str()),
            ("weather", Some(3), "run")
        );
    }

    #[test]
    fn headers_and_torn_lines_are_no_samples() {
        for line in
            [r#"{"schema":"pgfathom.samples","schema_version":1}"#, r#"{"t_us":5,"sou"#, "", "null", "[]"]
        {
            assert_eq!(Sample::parse(line), None, "{line}");
        }
    }
}

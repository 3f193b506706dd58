//! The results of a benchmark in a form that every report can show: settings, figures, tables, prescribed shares, and conditions on its tables. The benchmark's
//! own folder makes it; no other code needs to know which benchmark it is.

mod share;

use crate::latency_summary::LatencySummary;
use serde::{Deserialize, Serialize};
pub use share::{Share, ShareResult};

/// Times in microseconds: a report shows them in the unit that fits.
pub const MICROSECONDS: &str = "us";
/// Percent.
pub const PERCENT: &str = "%";
/// Counts have no unit.
pub const COUNT: &str = "";

/// The answer of one benchmark.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Benchmark {
    /// Its name.
    pub name: String,
    /// What its figures are not.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub disclaimer: String,
    /// What was driven, and how.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<Setting>,
    /// Its figures, the most important one first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub figures: Vec<Figure>,
    /// Figures of the same kind for several things.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tables: Vec<Table>,
    /// Shares that its specification prescribes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shares: Vec<Share>,
    /// What was checked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<Check>,
    /// What a reader has to know about the figures.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Requests that were awaited, where the benchmark counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<Requests>,
    /// Whether its limits are kept; absent where it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub passes: Option<bool>,
    /// Why not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub misses: Vec<String>,
}

/// How a benchmark was driven.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "BenchmarkSetting"))]
#[serde(default)]
pub struct Setting {
    /// What it is: `warehouses`, `isolation`.
    pub name: String,
    /// Its value, where it is a number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// For people: `10 warehouses`.
    pub text: String,
}

impl Setting {
    /// A setting that is a number.
    pub fn number(name: &str, value: f64, text: String) -> Setting {
        Setting { name: name.into(), value: Some(value), text }
    }

    /// A setting in words.
    pub fn words(name: &str, text: &str) -> Setting {
        Setting { name: name.into(), value: None, text: text.into() }
    }
}

/// A figure with its unit.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "BenchmarkFigure"))]
#[serde(default)]
pub struct Figure {
    /// What it is.
    pub name: String,
    /// Its value.
    pub value: f64,
    /// Its unit; empty for counts.
    pub unit: String,
    /// What it must be at least.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_least: Option<f64>,
    /// Whether that is reached, with regard to chance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub met: Option<bool>,
    /// What else belongs to it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

impl Figure {
    /// A figure.
    pub fn new(name: &str, value: f64, unit: &str) -> Figure {
        Figure { name: name.into(), value, unit: unit.into(), ..Figure::default() }
    }
}

/// Figures of the same kind for several things.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "BenchmarkTable"))]
#[serde(default)]
pub struct Table {
    /// What its rows are: `profile`.
    pub name: String,
    /// Its columns, without the one of the rows' names.
    pub columns: Vec<Column>,
    /// Its rows.
    pub rows: Vec<Row>,
    /// The values of a row are counts of the parts of one whole: a report shows their shares of it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub are_parts: bool,
}

/// A column of a table.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "BenchmarkColumn"))]
#[serde(default)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// The unit of its values; empty for counts.
    pub unit: String,
}

impl Column {
    /// A column.
    pub fn new(name: &str, unit: &str) -> Column {
        Column { name: name.into(), unit: unit.into() }
    }
}

/// A row of a table.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "BenchmarkRow"))]
#[serde(default)]
pub struct Row {
    /// What it is about.
    pub name: String,
    /// A value for each column; `null` where nothing was measured.
    pub values: Vec<Option<f64>>,
    /// Whether what the table requires of it is kept; absent where nothing is required or measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub met: Option<bool>,
}

impl Table {
    /// Latencies of several things; those without any are left out.
    pub fn of_latencies<'a>(
        name: &str,
        rows: impl IntoIterator<Item = (&'a str, Option<LatencySummary>)>,
    ) -> Table {
        let columns = ["mean", "p50", "p90", "p95", "p99", "p99.9", "max"];
        let row = |(name, latency): (&str, Option<LatencySummary>)| {
            let LatencySummary { mean, p50, p90, p95, p99, p999, max } = latency?;
            let values = [p50, p90, p95, p99, p999, max].map(|us| Some(us as f64));
            let values = [Some(mean)].into_iter().chain(values).collect();
            Some(Row { name: name.into(), values, met: None })
        };
        Table {
            name: name.into(),
            columns: columns.map(|column| Column::new(column, MICROSECONDS)).into(),
            rows: rows.into_iter().filter_map(row).collect(),
            are_parts: false,
        }
    }
}

/// Requests that were awaited: each of them is a round trip.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "BenchmarkRequests"))]
#[serde(default)]
pub struct Requests {
    /// How many.
    pub awaited: u64,
    /// Of so many transactions.
    pub transactions: u64,
}

/// Something that must hold.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "BenchmarkCheck"))]
#[serde(default)]
pub struct Check {
    /// What must hold.
    pub name: String,
    /// Whether it does; absent where it was not looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holds: Option<bool>,
    /// What was found.
    pub detail: String,
    /// The same as numbers, where a count was compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<Count>,
}

/// A count of the server's against what the client knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "BenchmarkCount"))]
#[serde(default)]
pub struct Count {
    /// What the client saw commit.
    pub client: u64,
    /// What may have committed: connections that were lost, transactions that were dropped.
    pub unknown: u64,
    /// What the server has more than before.
    pub server: i64,
}

impl Count {
    /// Whether the server has all that the client saw, and nothing that it does not know of.
    pub fn agrees(&self) -> bool {
        let allowed = self.client..=self.client.saturating_add(self.unknown);
        u64::try_from(self.server).is_ok_and(|server| allowed.contains(&server))
    }
}

impl Check {
    /// Whether it holds, in one word.
    pub fn word(&self) -> &'static str {
        match self.holds {
            Some(true) => "holds",
            Some(false) => "BROKEN",
            None => "skipped",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_and_server_agree_within_what_the_client_does_not_know() {
        let agrees = |client, unknown, server| Count { client, unknown, server }.agrees();
        assert!(agrees(10, 0, 10));
        assert!(!agrees(10, 0, 11));
        assert!(!agrees(10, 0, 9));
        assert!(agrees(10, 2, 12));
        assert!(!agrees(10, 2, -10));
    }

    #[test]
    fn latencies_without_a_value_have_no_row() {
        let known = LatencySummary { mean: 1.5, p50: 1, p90: 2, p95: 3, p99: 4, p999: 5, max: 6 };
        let table = Table::of_latencies("time", [("one", None), ("other", Some(known))]);
        assert_eq!(table.rows.len(), 1);
        assert_eq!(table.rows[0].values.len(), table.columns.len());
        assert_eq!((table.rows[0].values[0], table.rows[0].values[6]), (Some(1.5), Some(6.0)));
    }
}

//! The short answer of a run: what `--format json` prints and what scripts read.

mod of_run;

use crate::benchmark::Benchmark;
use crate::finding::{Finding, Findings, worst_first};
pub use crate::latency_summary::LatencySummary;
use crate::matrix::{self, Matrix};
use crate::sweep::Sweep;
use serde::{Deserialize, Serialize};

/// What was found on one node of a cluster.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct NodeResult {
    /// The node's name.
    pub name: String,
    /// Leaf tables that it owns.
    pub leaves: u64,
    /// Rows that are there.
    pub rows: u64,
    /// Rows that must be.
    pub rows_expected: u64,
    /// Nothing is wrong there.
    pub valid: bool,
    /// One line: "exact", "1 table differs".
    pub detail: String,
}

/// A step of a search for the largest number of something with which a benchmark passes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Tried {
    /// The number.
    pub number: u64,
    /// One of what it counts: `warehouse`.
    pub unit: String,
    /// The benchmark kept its limits.
    pub passes: bool,
}

/// The `summary` of `run.json` and of each of its steps. Fields that do not apply are left out.
///
/// For a command of several steps the outer summary adds up what can be added (duration, transactions, errors, retries), takes
/// rows from the loads, leaves out latency (percentiles of different workloads do not add) and lists the steps' own in `steps`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Summary {
    /// The verb: `load`, `verify`, `run`, `demo`, ...
    pub verb: String,
    /// What was loaded or driven: a benchmark, a workload, a script's name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// False if the result proves nothing about the target, or the proof failed.
    pub valid: bool,
    /// Length of the measured part in seconds: without warm-up, to the end of the last transaction that began in time.
    pub duration_s: f64,
    /// Transactions that committed in the measured part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transactions: Option<u64>,
    /// `transactions` / `duration_s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tps: Option<f64>,
    /// Transactions that failed for good.
    pub errors: u64,
    /// Attempts repeated: by `run` after a serialization failure or a deadlock, by `load` after a lost connection.
    pub retries: u64,
    /// Response time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_us: Option<LatencySummary>,
    /// Service time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_us: Option<LatencySummary>,
    /// CPU time of this client, user and system, divided by transactions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_cpu_us_per_transaction: Option<f64>,
    /// Rows loaded or verified.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows: Option<u64>,
    /// `rows` / `duration_s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows_per_s: Option<f64>,
    /// Bytes sent or read per second, as the protocol carries them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_s: Option<f64>,
    /// What was found on each node, where a cluster was verified.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeResult>,
    /// What a sweep over numbers of sessions found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sweep: Option<Sweep>,
    /// What the same transaction gave for every pair of nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub matrix: Option<Matrix>,
    /// What benchmarks found about themselves, each workload of a mix for itself.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub benchmarks: Vec<Benchmark>,
    /// What this step tried, if the command searches for the largest number with which a benchmark passes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tried: Option<Tried>,
    /// Claims about causes, worst first; `null` if they were not looked for.
    pub findings: Option<Vec<Finding>>,
    /// Summaries of the steps, if the command had several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Summary>,
}

impl Summary {
    /// Puts in what `explain` claims. Of what the run found by itself only the cost of distance in a matrix stays: `explain` claims the rest, too,
    /// and repeats a large cost in the same words.
    pub fn explained(&mut self, findings: &Findings) {
        let mut all = self.findings.take().unwrap_or_default();
        all.retain(|finding| finding.rule == matrix::DISTANCE);
        let new = |finding: &&Finding| all.iter().all(|own| own.claim != finding.claim);
        let new: Vec<Finding> = findings.findings.iter().filter(new).cloned().collect();
        all.extend(new);
        worst_first(&mut all);
        self.findings = Some(all);
    }

    /// The summary of a command of several steps; see the type's description for what is added up and what is left out.
    pub fn of_steps(verb: &str, name: &str, steps: Vec<Summary>) -> Summary {
        let sum = |field: fn(&Summary) -> Option<u64>| {
            steps.iter().filter_map(field).reduce(|left, right| left.saturating_add(right))
        };
        let duration_s: f64 = steps.iter().map(|step| step.duration_s).sum();
        let loaded = |step: &&Summary| step.verb == "load";
        let loaded_s: f64 = steps.iter().filter(loaded).map(|step| step.duration_s).sum();
        let loaded_rows =
            steps.iter().filter(loaded).filter_map(|step| step.rows).reduce(u64::saturating_add);
        let bytes = steps
            .iter()
            .filter(loaded)
            .filter_map(|step| Some(step.bytes_per_s? * step.duration_s))
            .reduce(|left, right| left + right);
        let per_second = |amount: f64, seconds: f64| (seconds > 0.0).then(|| amount / seconds);
        let driven_s: f64 =
            steps.iter().filter(|step| step.transactions.is_some()).map(|step| step.duration_s).sum();
        let transactions = sum(|step| step.transactions);
        Summary {
            verb: verb.to_string(),
            name: name.to_string(),
            valid: steps.iter().all(|step| step.valid),
            duration_s,
            transactions,
            tps: transactions.and_then(|count| per_second(count as f64, driven_s)),
            errors: steps.iter().fold(0, |sum, step| step.errors.saturating_add(sum)),
            retries: steps.iter().fold(0, |sum, step| step.retries.saturating_add(sum)),
            rows: loaded_rows,
            rows_per_s: loaded_rows.and_then(|rows| per_second(rows as f64, loaded_s)),
            bytes_per_s: bytes.and_then(|bytes| per_second(bytes, loaded_s)),
            steps,
            ..Summary::default()
        }
    }
}

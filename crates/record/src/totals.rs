//! The totals of a step, one type for each kind of step: what writes them and what reads them agree on names and meaning.
//!
//! In `run.json` they are one object. Totals of an older or a newer version are read as far as they are known.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The totals of a step, for the schema: which of them it has depends on its verb.
#[cfg(test)]
#[derive(Serialize, schemars::JsonSchema)]
#[serde(untagged)]
#[allow(dead_code, reason = "only its schema is read")]
pub(crate) enum Totals {
    Run(RunTotals),
    Cell(CellTotals),
    Load(LoadTotals),
    Verify(VerifyTotals),
    Client(ClientTotals),
    Conditions(ConditionTotals),
    Scripts(ScriptTotals),
    History(HistoryTotals),
}

/// What a run of transactions counted beside its summary.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct RunTotals {
    /// Starts that the schedule requested.
    pub scheduled: u64,
    /// Transactions that were started, those of the warmup included.
    pub started: u64,
    /// Starts that `--latency-limit` left out.
    pub skipped: u64,
    /// Starts that no session was free for until the end.
    pub unstarted: u64,
    /// Transactions that were still running at the end.
    pub unfinished: u64,
    /// Of those, cancelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancelled: Option<u64>,
    /// Of those, still running on the server when the client ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub still_at_work: Option<u64>,
    /// Transactions of the warmup.
    pub warmup_transactions: u64,
    /// Above `--latency-limit`; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late: Option<u64>,
    /// How late the client started transactions that had a session; absent in a closed loop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag_us_p99: Option<u64>,
    /// The largest of these.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag_us_max: Option<u64>,
    /// Connections that were lost.
    pub connections_lost: u64,
    /// Connections that were made again.
    pub reconnected: u64,
    /// Commits that did not wait for standbys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weak_commits: Option<u64>,
    /// Transactions whose connection was cut while they ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut_off: Option<u64>,
    /// Sessions that ended by an error of their script.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sessions_aborted: Option<u64>,
    /// Time without a connection.
    pub outage_s: f64,
    /// Time without an answer.
    pub stalled_s: f64,
    /// Time in which everything failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failing_s: Option<f64>,
    /// Processor time of the client.
    pub client_cpu_us: u64,
    /// The busiest worker's share of a processor.
    pub worker_cpu_share_max: f64,
    /// The largest share of the time that a worker waited for a processor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_wait_share_max: Option<f64>,
    /// System calls that sent.
    pub sends: u64,
    /// System calls that received.
    pub receives: u64,
    /// Sent to the server.
    pub sent_bytes: u64,
    /// Received from the server.
    pub received_bytes: u64,
    /// Buffers of all sessions.
    pub session_buffer_bytes: usize,
}

/// Of one cell of a node matrix.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct CellTotals {
    /// Transactions that were still running at the end.
    pub unfinished: u64,
    /// Processor time of the client.
    pub client_cpu_us: u64,
    /// The rate of each round.
    pub round_tps: Vec<f64>,
    /// How far the two nodes are apart.
    #[serde(flatten)]
    pub distance: Distance,
}

/// What is known of the way between the two nodes of a cell.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Distance {
    /// Round trips for one transaction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub round_trips: Option<f64>,
    /// How these are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub round_trips_by: Option<RoundTripsBy>,
    /// One round trip.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ping_us: Option<f64>,
    /// The slower of the two nodes' own medians, and the counted round trips times the ping.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predicted_us_p50: Option<f64>,
}

/// How round trips are known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RoundTripsBy {
    /// The data node's `pg_stat_statements` counted the statements that came from the connect node; each is one round trip.
    Counted,
    /// What an engine needs for a statement of this kind, as its profile has it: measured with a known delay between the nodes.
    Known,
    /// What the cell's median has beyond the nodes' own, divided by the ping: it holds everything else that takes longer there, too.
    Estimated,
    /// A way of a newer version.
    #[serde(other)]
    Unknown,
}

impl RoundTripsBy {
    /// The word in `run.json`.
    pub fn word(self) -> &'static str {
        match self {
            RoundTripsBy::Counted => "counted",
            RoundTripsBy::Known => "known",
            RoundTripsBy::Estimated => "estimated",
            RoundTripsBy::Unknown => "unknown",
        }
    }
}

/// Of `load`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct LoadTotals {
    /// Bytes that were sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Chunks that were loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chunks: Option<u64>,
    /// Chunks of the dataset.
    pub chunks_total: u64,
    /// Rows that the ledger has, those of earlier loads included.
    pub rows_in_ledger: u64,
    /// Processor time of the client in the copy phase.
    pub client_cpu_us: u64,
    /// Time spent on primary keys.
    pub index_seconds: f64,
    /// Time spent on statistics.
    pub analyze_seconds: f64,
    /// All of it, from the first connection to the last.
    pub total_seconds: f64,
    /// WAL that the server wrote during the interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wal_bytes: Option<u64>,
    /// The same by node, of those that answered before and after; empty for one server.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub wal_by_node: BTreeMap<String, u64>,
    /// Tables without indexes.
    pub table_bytes_on_disk: u64,
    /// Their indexes.
    pub index_bytes_on_disk: u64,
    /// Both, per row; absent while there are no rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_row_on_disk: Option<f64>,
    /// The nodes of a cluster.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<LoadedNode>,
}

/// What a load did on one node.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct LoadedNode {
    /// The node's name.
    pub name: String,
    /// Rows that were loaded.
    pub rows: u64,
    /// Rows that its ledger has.
    pub rows_in_ledger: u64,
    /// Chunks that its ledger has.
    pub chunks_in_ledger: u64,
}

/// Of `verify`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct VerifyTotals {
    /// Rows that the ledger promises.
    pub rows_expected: u64,
    /// Rows that are there.
    pub rows_found: u64,
    /// Rows that a load which still runs may have added.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows_uncertain: Option<u64>,
    /// Values that a run has written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub updates_accepted: Option<u64>,
    /// Values that cannot be judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub values_unjudged: Option<u64>,
    /// Differences of all kinds.
    pub differences: u64,
    /// Problems of a cluster beside its rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problems: Option<u64>,
    /// Differences by their kind, those that were found.
    #[serde(flatten, deserialize_with = "counts")]
    pub kinds: BTreeMap<String, u64>,
}

/// The counts among the other fields; fields of a newer version may be something else.
fn counts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, u64>, D::Error> {
    let fields = Map::<String, Value>::deserialize(deserializer)?;
    Ok(fields.into_iter().filter_map(|(name, value)| Some((name, value.as_u64()?))).collect())
}

/// Of `self`: what this client can do at most. What was not measured is absent.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ClientTotals {
    /// Rows that one core makes, thrown away.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generator_rows_per_s: Option<f64>,
    /// The bytes of their values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generator_bytes_per_s: Option<f64>,
    /// Rows that one core makes into messages of COPY, not sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub null_sink_rows_per_s: Option<f64>,
    /// The bytes of their values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub null_sink_bytes_per_s: Option<f64>,
    /// One worker's transactions against a server that answers at once, with the fewest messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub null_server_lean_tps: Option<f64>,
    /// Processor time of one of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub null_server_lean_client_us: Option<f64>,
    /// The same with the messages of libpq.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub null_server_libpq_tps: Option<f64>,
    /// Processor time of one of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub null_server_libpq_client_us: Option<f64>,
    /// What a reading of the clock costs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_reading_ns: Option<f64>,
    /// How fine the clock is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_step_ns: Option<f64>,
    /// How late a thread returns from sleep.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sleep_late_us_p50: Option<f64>,
    /// Late ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sleep_late_us_p99: Option<f64>,
    /// The latest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sleep_late_us_max: Option<f64>,
}

/// Of `prove tpcc`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ConditionTotals {
    /// Warehouses that were checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warehouses: Option<u64>,
    /// Orders that are not of the load.
    pub orders_since_load: u64,
    /// Conditions that hold; absent in a step that never got so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conditions_kept: Option<u64>,
    /// Conditions that some rows violate.
    pub conditions_broken: u64,
    /// Conditions whose query failed.
    pub conditions_not_judged: u64,
    /// Connections at once.
    pub connections: usize,
    /// How many snapshots the conditions were checked in: one per node. Older versions did not write it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshots: Option<u64>,
    /// What no condition covers.
    pub not_covered: String,
}

/// Of `prove hermitage`: scripts by their verdict.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ScriptTotals {
    /// Did what is promised.
    pub kept: usize,
    /// Showed an anomaly that the level allows.
    pub by_design: usize,
    /// Did not show an anomaly that the level allows.
    pub allowed_not_seen: usize,
    /// Showed an anomaly that the level forbids.
    pub broken: usize,
    /// Came to no end.
    pub not_tested: usize,
    /// Cannot be played on this target.
    pub not_possible: usize,
}

/// Of `prove check`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct HistoryTotals {
    /// Operations of the history.
    pub operations: u64,
    /// Transactions by their outcome.
    pub transactions: BTreeMap<String, u64>,
    /// Transactions of unknown outcome whose writes were read.
    pub transactions_joined: u64,
    /// Edges of the dependency graph.
    pub edges: u64,
    /// Anomalies by their class.
    pub anomalies: BTreeMap<String, u64>,
    /// The weakest levels that are refuted.
    pub refuted: Vec<String>,
    /// Keys whose order of versions is not known.
    pub incomplete_keys: u64,
    /// Levels that could not be judged completely.
    pub incomplete: Vec<String>,
    /// The strongest levels that are not refuted.
    pub not_refuted: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Step;
    use serde_json::{Value, json};

    #[test]
    fn totals_are_one_flat_object_and_come_back() {
        let distance = Distance {
            round_trips: Some(5.0),
            round_trips_by: Some(RoundTripsBy::Counted),
            ..Distance::default()
        };
        let totals = CellTotals { unfinished: 2, round_tps: vec![1.5], distance, ..CellTotals::default() };
        let mut step = Step::default();
        step.set_totals(&totals);
        let wanted = json!({
            "unfinished": 2, "client_cpu_us": 0, "round_tps": [1.5], "round_trips": 5.0, "round_trips_by": "counted"
        });
        assert_eq!(Value::Object(step.totals.clone()), wanted);
        assert_eq!(step.totals_as::<CellTotals>(), totals);
    }

    #[test]
    fn kinds_of_differences_stand_beside_the_totals() {
        let kinds = [("in the wrong partition".to_owned(), 2)].into();
        let totals = VerifyTotals { rows_found: 7, differences: 2, kinds, ..VerifyTotals::default() };
        let mut step = Step::default();
        step.set_totals(&totals);
        let wanted =
            json!({"rows_expected": 0, "rows_found": 7, "differences": 2, "in the wrong partition": 2});
        assert_eq!(Value::Object(step.totals.clone()), wanted);
        step.totals.insert("of_a_newer_version".to_owned(), json!("word"));
        assert_eq!(step.totals_as::<VerifyTotals>(), totals);
    }

    #[test]
    fn totals_of_other_versions_are_read_as_far_as_they_are_known() {
        let mut step = Step::default();
        assert_eq!(step.totals_as::<ConditionTotals>(), ConditionTotals::default());
        step.totals.insert("warehouses".to_owned(), json!(3));
        step.totals.insert("of_a_newer_version".to_owned(), json!([]));
        assert_eq!(step.totals_as::<ConditionTotals>().warehouses, Some(3));
        assert_eq!(step.totals_as::<ConditionTotals>().conditions_kept, None);
    }
}

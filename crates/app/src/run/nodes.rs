//! What the sessions of each connect node did: a sample per node and second, and their totals.

use super::silence::Silences;
use crate::recording::{Recording, fields};
use engines::Cluster;
use record::StepId;
use record::model::NodeStatistics;
use record::sample::SOURCE_NODE;
use run::drive::Account;
use run::engine::NANOS_PER_MICRO;
use run::routing::Connects;
use run::tally::{Interval, Posted, Shape};
use serde_json::json;

/// A node's throughput this far from its sessions' share of the whole is noted.
const IMBALANCE_NOTED: f64 = 1.5;

/// The nodes that sessions enter at, where they are distinguished.
#[derive(Clone, Debug, Default)]
pub(super) struct Nodes {
    names: Vec<String>,
    roles: Vec<&'static str>,
    sessions: Vec<u64>,
}

impl Nodes {
    pub(super) fn of(cluster: Option<&Cluster>, connects: &Connects) -> Nodes {
        let Some(cluster) = cluster else { return Nodes::default() };
        Nodes {
            names: cluster.nodes.iter().map(|node| node.name.clone()).collect(),
            roles: cluster.nodes.iter().map(|node| node.role.name()).collect(),
            sessions: connects.sessions(),
        }
    }

    /// What is counted apart with so many transaction types.
    pub(super) fn shape(&self, types: usize) -> Shape {
        Shape { types, nodes: self.names.len() }
    }

    /// Writes a second down, a line for each node that has sessions.
    pub(super) fn keep(
        &self,
        recording: &Recording<'_>,
        step: &StepId,
        phase: &str,
        (from_us, to_us): (u64, u64),
        posted: &Posted,
    ) {
        for (at, node) in self.names.iter().enumerate() {
            if self.sessions[at] == 0 {
                continue;
            }
            let tallies = [&posted.warmup.nodes[at], &posted.measured.nodes[at]];
            let mut response = record::Latency::new();
            tallies
                .iter()
                .filter(|tally| !tally.response.is_empty())
                .for_each(|tally| response.merge(&tally.response));
            let mut sample = fields(json!({
                "node": node,
                "phase": phase,
                "transactions": tallies.iter().map(|tally| tally.transactions).sum::<u64>(),
                "errors": tallies.iter().map(|tally| tally.failed).sum::<u64>(),
            }));
            if !response.is_empty() {
                sample.extend(fields(json!({
                    "response_us_mean": response.mean_us(),
                    "response_us_p50": response.quantile_us(0.5),
                    "response_us_p99": response.quantile_us(0.99),
                    "response_us_max": response.max_us(),
                })));
            }
            let interval_us = to_us.saturating_sub(from_us);
            recording.keep(recording.dir().sample(Some(step), SOURCE_NODE, to_us, interval_us, &sample));
        }
    }

    /// What the sessions of each node completed and what failed; nodes without sessions are `None`. Empty where there are no two nodes to compare.
    pub(super) fn done(&self, posted: &Posted) -> Vec<Option<(u64, u64)>> {
        let of = |(at, sessions): (usize, &u64)| {
            let tallies = [&posted.warmup.nodes[at], &posted.measured.nodes[at]];
            let transactions = tallies.iter().map(|tally| tally.transactions).sum();
            (*sessions > 0).then(|| (transactions, tallies.iter().map(|tally| tally.failed).sum()))
        };
        let all: Vec<_> = self.sessions.iter().take(self.names.len()).enumerate().map(of).collect();
        if all.iter().flatten().count() < 2 { vec![] } else { all }
    }

    /// Writes down what each node did, and what is remarkable about it.
    pub(super) fn write(
        &self,
        recording: &Recording<'_>,
        step: &StepId,
        (account, seconds): (&Account, f64),
        silences: &Silences,
    ) {
        let per_node = self.statistics(&account.posted.measured, seconds);
        let silent = self.notes_of(silences, account.begin / NANOS_PER_MICRO);
        // A node that was away for a time did less, of course.
        let imbalance = imbalance(&per_node).filter(|_| silent.is_empty());
        recording.keep(recording.dir().edit_step(step, |step| {
            step.verdict.notes.extend(silent.into_iter().chain(imbalance));
            step.nodes = per_node;
        }));
    }

    /// Notes about nodes that completed nothing for a time.
    fn notes_of(&self, silences: &Silences, begin_us: u64) -> Vec<String> {
        silences.notes(&self.names, begin_us)
    }

    /// The measured part per node.
    fn statistics(&self, measured: &Interval, seconds: f64) -> Vec<NodeStatistics> {
        let nodes = self.names.iter().zip(&self.roles).zip(&self.sessions).zip(&measured.nodes);
        nodes
            .filter(|((_, sessions), _)| **sessions > 0)
            .map(|(((name, role), sessions), tally)| NodeStatistics {
                name: name.clone(),
                role: role.to_string(),
                sessions: *sessions,
                transactions: tally.transactions,
                errors: tally.failed,
                tps: if seconds > 0.0 { tally.transactions as f64 / seconds } else { 0.0 },
                latency_us: tally.response.summary(),
            })
            .collect()
    }
}

/// Reports it when a node's sessions did far more or far less than the others'.
fn imbalance(nodes: &[NodeStatistics]) -> Option<String> {
    let (transactions, sessions) = nodes.iter().fold((0, 0), |(transactions, sessions), node| {
        (transactions + node.transactions, sessions + node.sessions)
    });
    if nodes.len() < 2 || transactions == 0 {
        return None;
    }
    let mean = transactions as f64 / sessions as f64;
    let per_session = |node: &NodeStatistics| node.transactions as f64 / node.sessions as f64 / mean;
    let odd = |node: &&NodeStatistics| {
        let times = per_session(node);
        times >= IMBALANCE_NOTED || times <= 1.0 / IMBALANCE_NOTED
    };
    let far = |node: &&NodeStatistics| per_session(node).max(f64::MIN_POSITIVE).ln().abs();
    let farthest = nodes.iter().filter(odd).max_by(|left, right| far(left).total_cmp(&far(right)))?;
    Some(format!(
        "nodes are not in balance: a session at {} completed {:.2} times the transactions of the mean session",
        farthest.name,
        per_session(farthest)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, sessions: u64, transactions: u64) -> NodeStatistics {
        NodeStatistics { name: name.into(), sessions, transactions, ..NodeStatistics::default() }
    }

    #[test]
    fn balance_counts_per_session() {
        assert_eq!(imbalance(&[node("a", 2, 1000), node("b", 1, 520)]), None);
        assert_eq!(imbalance(&[node("a", 2, 10)]), None);
        assert_eq!(imbalance(&[node("a", 2, 0), node("b", 2, 0)]), None);
        let detail = imbalance(&[node("a", 1, 1000), node("b", 1, 1000), node("c", 1, 100)]);
        assert_eq!(
            detail.as_deref(),
            Some(
                "nodes are not in balance: a session at c completed 0.14 times the transactions of the mean session"
            )
        );
    }
}

//! What a matrix says, in sentences: claims with their numbers, the same for the terminal, the page and `run.json`.

use super::{Matrix, Operation, Outlier, Part, RoundTripsBy, polish};
use crate::model::Finding;

/// Proof level of a comparison of equals.
const PEER_CONTRAST: &str = "peer contrast";
/// Proof level of a counter that only one explanation moves.
const COUNTER: &str = "discriminating counter";
/// Proof level of two things that go together.
const CO_OCCURRENCE: &str = "co-occurrence";
/// A node's own rows must be this many times as fast before that is worth a sentence.
const OWN_PER_REMOTE_TOLD: f64 = 1.25;
/// A prediction this close to the measurement explains it.
const EXPLAINED: std::ops::RangeInclusive<f64> = 0.67..=1.5;

/// A part of the matrix that is odd in one operation or several.
struct Odd<'a> {
    outlier: &'a Outlier,
    /// `select 0.31`, ...
    ratios: Vec<(&'a str, f64)>,
}

impl Matrix {
    /// Nodes, rows, columns and paths that differ from their peers, then what another node's rows cost; worst first.
    pub fn findings(&self) -> Vec<Finding> {
        let odd = self.odd();
        let mut findings = vec![];
        // A node that is odd both as an entry and as an owner is one finding, not two.
        let both = |name: &Option<String>| {
            let row = odd.iter().find(|odd| odd.outlier.what == Part::Row && odd.outlier.connect == *name)?;
            let column =
                odd.iter().find(|odd| odd.outlier.what == Part::Column && odd.outlier.data == *name)?;
            let same_way = (row.outlier.ratio < 1.0) == (column.outlier.ratio < 1.0);
            same_way.then_some((row, column))
        };
        let own = |name: &Option<String>| {
            odd.iter().find(|odd| odd.outlier.what == Part::Own && odd.outlier.connect == *name)
        };
        for one in &odd {
            let Outlier { what, connect, data, ratio, .. } = one.outlier;
            let name = connect.as_ref().or(data.as_ref()).cloned();
            let node = name.as_deref().unwrap_or_default();
            let pace = if *ratio < 1.0 { "slow" } else { "fast" };
            let ratios = one.told();
            let finding = match (what, both(&name)) {
                (Part::Row, Some((_, column))) => {
                    let own = own(&name)
                        .map(|own| format!(", and its own rows through itself at {}", own.told()))
                        .unwrap_or_default();
                    let claim = format!(
                        "{} is {pace}: sessions that enter there work at {ratios} times the rate of the others, its rows are served at {}{own}",
                        called(node),
                        column.told()
                    );
                    finding("matrix-node", "high", claim, self.look_at(node))
                }
                // Told with its row.
                (Part::Column, Some(_)) => continue,
                (Part::Own, Some(_)) => continue,
                (Part::Row, None) => finding(
                    "matrix-row",
                    "medium",
                    format!(
                        "sessions that enter at {node} work at {ratios} times the rate of the others, whatever rows they ask for"
                    ),
                    format!(
                        "look at what only an entry does on {node}: its CPU, its planner settings, its network"
                    ),
                ),
                (Part::Column, None) => finding(
                    "matrix-column",
                    "medium",
                    format!(
                        "rows of {node} are served at {ratios} times the rate of the others, from every entry"
                    ),
                    format!(
                        "look at what only an owner of rows does on {node}: its disks, its cache, its locks"
                    ),
                ),
                (Part::Own, None) => finding(
                    "matrix-own",
                    "medium",
                    format!(
                        "{} serves its own rows at {ratios} times the rate at which the others serve theirs",
                        called(node)
                    ),
                    format!(
                        "the network has no part in it: compare hardware, settings and disks of {node} with the others"
                    ),
                ),
                (Part::Path, _) => {
                    let (connect, data) = (connect.as_deref(), data.as_deref());
                    let (connect, data) = (connect.unwrap_or_default(), data.unwrap_or_default());
                    finding(
                        "matrix-path",
                        "medium",
                        format!(
                            "the path from {connect} to {data} runs at {ratios} times the rate that both nodes have on other paths"
                        ),
                        format!("look at the network between {connect} and {data}"),
                    )
                }
            };
            findings.push(finding);
        }
        findings.extend(self.operations.iter().filter_map(cost_of_distance));
        findings.sort_by_key(|finding| match finding.severity.as_str() {
            "high" => 0,
            "medium" => 1,
            _ => 2,
        });
        findings
    }

    /// The odd parts, each once, with the ratios of every operation in which it is odd.
    fn odd(&self) -> Vec<Odd<'_>> {
        let mut odd: Vec<Odd<'_>> = vec![];
        for operation in &self.operations {
            for outlier in &operation.outliers {
                let same = |known: &&mut Odd<'_>| {
                    known.outlier.what == outlier.what
                        && known.outlier.connect == outlier.connect
                        && known.outlier.data == outlier.data
                        && (known.outlier.ratio < 1.0) == (outlier.ratio < 1.0)
                };
                let ratio = (operation.name.as_str(), outlier.ratio);
                match odd.iter_mut().find(same) {
                    Some(known) => known.ratios.push(ratio),
                    None => odd.push(Odd { outlier, ratios: vec![ratio] }),
                }
            }
        }
        odd
    }

    fn look_at(&self, node: &str) -> String {
        format!(
            "compare {node} with the others: CPU, disks (iostat), file system and mount options, settings, network; then run the matrix again"
        )
    }
}

impl Odd<'_> {
    /// `0.31 (select) and 0.40 (update)`.
    fn told(&self) -> String {
        let ratios: Vec<String> =
            self.ratios.iter().map(|(name, ratio)| format!("{ratio:.2} ({name})")).collect();
        ratios.join(" and ")
    }
}

/// `node 7`, but not `node node7`.
fn called(node: &str) -> String {
    if node.starts_with("node") { node.to_string() } else { format!("node {node}") }
}

fn finding(code: &str, severity: &str, claim: String, remedy: String) -> Finding {
    Finding {
        code: code.to_string(),
        severity: severity.to_string(),
        proof: PEER_CONTRAST.to_string(),
        claim,
        remedy: Some(remedy),
    }
}

/// What another node's rows cost, and whether round trips explain it.
fn cost_of_distance(operation: &Operation) -> Option<Finding> {
    let times = operation.own_per_remote().filter(|times| *times >= OWN_PER_REMOTE_TOLD)?;
    let mut claim = format!(
        "{}: a node's own rows are {} times as fast as another node's ({} against {} transactions/s)",
        operation.name,
        short(times),
        short(operation.own_median?),
        short(operation.remote_median?),
    );
    let remote = || operation.cells.iter().filter(|cell| !cell.is_own());
    let counted = remote().filter(|cell| cell.round_trips_by == Some(RoundTripsBy::Counted));
    let round_trips = polish::median(counted.clone().filter_map(|cell| cell.round_trips));
    let shares = counted.filter_map(|cell| Some(cell.predicted_us_p50? / (cell.latency_us_p50 as f64)));
    let mut proof = PEER_CONTRAST;
    if let Some(round_trips) = round_trips {
        proof = CO_OCCURRENCE;
        claim.push_str(&format!("; each takes {} between the nodes", trips(round_trips)));
        match polish::median(shares.filter(|share| share.is_finite())) {
            Some(share) if EXPLAINED.contains(&share) => {
                proof = COUNTER;
                claim.push_str(&format!(", which times the ping predicts {} of its median", percent(share)));
            }
            Some(share) => claim.push_str(&format!(
                ", but these times the ping predict {} of its median: something else takes part",
                percent(share)
            )),
            None => {}
        }
    }
    let remedy = "send each session to the node that owns its rows (run --connect owner shows what that gives), or batch statements into transactions";
    Some(Finding {
        code: "matrix-distance".to_string(),
        severity: "low".to_string(),
        proof: proof.to_string(),
        claim,
        remedy: Some(remedy.to_string()),
    })
}

fn trips(count: f64) -> String {
    if (count - count.round()).abs() < 0.05 {
        format!("{count:.0} round trip{}", if count.round() == 1.0 { "" } else { "s" })
    } else {
        format!("{count:.1} round trips")
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// Three digits, thousands separated.
fn short(value: f64) -> String {
    if value < 99.95 {
        return if value < 9.995 { format!("{value:.2}") } else { format!("{value:.1}") };
    }
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

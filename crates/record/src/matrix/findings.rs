//! The findings of a matrix as sentences with their numbers, the same for the terminal, the page and `run.json`.

use super::{Cell, Matrix, Operation, Outlier, Part, RoundTripsBy};
use crate::finding::{Finding, Level, Remedy, Severity};
use crate::number;
use crate::statistics::median;

/// The rule that reports what the rows of other nodes cost; the others name a node or path that is odd.
pub const DISTANCE: &str = "matrix-distance";
/// A node's own rows must be this many times as fast before that is worth a sentence.
const OWN_PER_REMOTE_MIN: f64 = 1.25;
/// At less than this share of the rate of a node's own rows, another node's rows are far.
const FAR_SHARE: f64 = 0.2;
/// Rounds of one cell that differ by more than this factor did not measure the same thing.
const ROUNDS_APART_MAX: f64 = 3.0;
/// A prediction this close to the measurement explains it.
const EXPLAINED: std::ops::RangeInclusive<f64> = 0.67..=1.5;

/// A part of the matrix that is odd in one operation or several.
struct OddPart<'a> {
    outlier: &'a Outlier,
    /// `select 0.31`, ...
    ratios: Vec<(&'a str, f64)>,
}

impl Matrix {
    /// Nodes, rows, columns and paths that differ from their peers, then what another node's rows cost; worst first.
    pub fn findings(&self) -> Vec<Finding> {
        let odd = self.odd();
        let mut findings = self.failing();
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
            let Outlier { what, connect, data, ratio, deviations } = one.outlier;
            let name = connect.as_ref().or(data.as_ref()).cloned();
            let pair = both(&name);
            // Reported with its row.
            if pair.is_some() && matches!(what, Part::Column | Part::Own) {
                continue;
            }
            let node = name.as_deref().unwrap_or_default();
            let finding = match pair {
                Some((_, column)) if *what == Part::Row => self.slow_both_ways(one, column, own(&name), node),
                _ => one.finding(node),
            };
            let node = Some(node.to_string()).filter(|node| !node.is_empty());
            let numbers = [("ratio".to_string(), *ratio), ("deviations".to_string(), *deviations)].into();
            findings.push(Finding { node, numbers, ..finding });
        }
        findings.extend(self.operations.iter().filter_map(cost_of_distance));
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        findings
    }

    /// A node that is odd both as an entry and as an owner.
    fn slow_both_ways(
        &self,
        row: &OddPart<'_>,
        column: &OddPart<'_>,
        own: Option<&OddPart<'_>>,
        node: &str,
    ) -> Finding {
        let pace = if row.outlier.ratio < 1.0 { "slow" } else { "fast" };
        let own = own
            .map(|own| format!(", and its own rows through itself at {}", own.ratio_text()))
            .unwrap_or_default();
        let claim = format!(
            "{} is {pace}: sessions that connect to it reach {} times the rate of the others, and its rows are served at {}{own}",
            called(node),
            row.ratio_text(),
            column.ratio_text()
        );
        finding("matrix-node", Severity::High, claim, self.look_at(node))
    }

    /// The odd parts, each once, with the ratios of every operation in which it is odd.
    fn odd(&self) -> Vec<OddPart<'_>> {
        let mut odd: Vec<OddPart<'_>> = vec![];
        for operation in &self.operations {
            for outlier in operation.outliers.iter().filter(|outlier| !is_by_chance(operation, outlier)) {
                let same = |known: &&mut OddPart<'_>| {
                    known.outlier.what == outlier.what
                        && known.outlier.connect == outlier.connect
                        && known.outlier.data == outlier.data
                        && (known.outlier.ratio < 1.0) == (outlier.ratio < 1.0)
                };
                let ratio = (operation.name.as_str(), outlier.ratio);
                match odd.iter_mut().find(same) {
                    Some(known) => known.ratios.push(ratio),
                    None => odd.push(OddPart { outlier, ratios: vec![ratio] }),
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

/// Whether something else than the part itself made it slow: a cell of it was much faster in another round, as it is when a server is away for one of them.
fn is_by_chance(operation: &Operation, outlier: &Outlier) -> bool {
    let is_of = |name: &Option<String>, of: &str| name.as_deref().is_none_or(|name| name == of);
    let unsteady = |cell: &&Cell| {
        let slowest = cell.round_tps.iter().copied().fold(f64::INFINITY, f64::min);
        let fastest = cell.round_tps.iter().copied().fold(0.0, f64::max);
        cell.round_tps.len() > 1 && fastest > slowest * ROUNDS_APART_MAX
    };
    let cells = operation.cells.iter();
    let mut own =
        cells.filter(|cell| is_of(&outlier.connect, &cell.connect) && is_of(&outlier.data, &cell.data));
    outlier.ratio < 1.0 && own.any(|cell| unsteady(&cell))
}

impl OddPart<'_> {
    /// The finding about one part alone; `node`: the one that it is about.
    fn finding(&self, node: &str) -> Finding {
        let ratios = self.ratio_text();
        let Outlier { what, connect, data, .. } = self.outlier;
        match what {
            Part::Row => finding(
                "matrix-row",
                Severity::Medium,
                format!(
                    "sessions that connect to {node} reach {ratios} times the rate of the others, for the rows of every node"
                ),
                format!(
                    "check what only an entry node does on {node}: its CPU, its planner settings, its network"
                ),
            ),
            Part::Column => finding(
                "matrix-column",
                Severity::Medium,
                format!(
                    "rows of {node} are served at {ratios} times the rate of the others, from every entry node"
                ),
                format!("check what only an owner of rows does on {node}: its disks, its cache, its locks"),
            ),
            Part::Own => finding(
                "matrix-own",
                Severity::Medium,
                format!(
                    "{} serves its own rows at {ratios} times the rate at which the others serve theirs",
                    called(node)
                ),
                format!(
                    "the network is not involved: compare hardware, settings and disks of {node} with the others"
                ),
            ),
            Part::Path => {
                let (connect, data) = (connect.as_deref(), data.as_deref());
                let (connect, data) = (connect.unwrap_or_default(), data.unwrap_or_default());
                finding(
                    "matrix-path",
                    Severity::Medium,
                    format!(
                        "the path from {connect} to {data} runs at {ratios} times the rate that both nodes have on other paths"
                    ),
                    format!("check the network between {connect} and {data}"),
                )
            }
        }
    }

    /// `0.31 (select) and 0.40 (update)`.
    fn ratio_text(&self) -> String {
        let ratios: Vec<String> =
            self.ratios.iter().map(|(name, ratio)| format!("{ratio:.2} ({name})")).collect();
        ratios.join(" and ")
    }
}

/// `node 7`, but not `node node7`.
pub(super) fn called(node: &str) -> String {
    if node.starts_with("node") { node.to_string() } else { format!("node {node}") }
}

pub(super) fn finding(rule: &str, severity: Severity, claim: String, remedy: String) -> Finding {
    Finding {
        id: rule.to_string(),
        rule: rule.to_string(),
        severity,
        level: Level::PeerContrast,
        claim,
        remedy: Remedy { text: remedy, ..Remedy::default() },
        ..Finding::default()
    }
}

/// What another node's rows cost, and whether round trips explain it.
fn cost_of_distance(operation: &Operation) -> Option<Finding> {
    let times = operation.own_per_remote().filter(|times| *times >= OWN_PER_REMOTE_MIN)?;
    let (own_tps, remote_tps) = (operation.own_median?, operation.remote_median?);
    let mut claim = format!(
        "{}: a node's own rows are {} times as fast as another node's ({} against {} transactions/s)",
        operation.name,
        number::three(times),
        number::three(own_tps),
        number::three(remote_tps),
    );
    let remote = || operation.cells.iter().filter(|cell| !cell.is_own() && !cell.is_broken());
    let is_counted = |cell: &&Cell| cell.round_trips_by == Some(RoundTripsBy::Counted);
    let is_known = |cell: &&Cell| is_counted(cell) || cell.round_trips_by == Some(RoundTripsBy::Known);
    let known = remote().filter(is_known);
    let round_trips = median(known.clone().filter_map(|cell| cell.round_trips));
    let shares = known.filter_map(|cell| Some(cell.predicted_us_p50? / (cell.latency_us_p50 as f64)));
    let mut level = Level::PeerContrast;
    if let Some(round_trips) = round_trips {
        level = Level::CoOccurrence;
        claim.push_str(&format!("; each takes {} between the nodes", trips(round_trips)));
        match median(shares.filter(|share| share.is_finite())) {
            Some(share) if EXPLAINED.contains(&share) => {
                if remote().any(|cell| is_counted(&cell)) {
                    level = Level::DiscriminatingCounter;
                }
                claim.push_str(&format!(
                    "; multiplied by the ping this predicts {} of its median",
                    number::percent(share)
                ));
            }
            Some(share) => claim.push_str(&format!(
                ", but multiplied by the ping they predict {} of its median: there is another cause",
                number::percent(share)
            )),
            None => {}
        }
    }
    let severity = if remote_tps < own_tps * FAR_SHARE { Severity::Medium } else { Severity::Low };
    let ping_us = median(remote().filter_map(|cell| cell.ping_us));
    let numbers = [
        ("own_tps", Some(own_tps)),
        ("remote_tps", Some(remote_tps)),
        ("round_trips", round_trips),
        ("ping_us", ping_us),
    ];
    let numbers = numbers.into_iter().filter_map(|(name, number)| Some((name.to_string(), number?)));
    let remedy = Remedy {
        text: "send each session to the node that owns its rows, or batch statements into transactions"
            .to_string(),
        commands: vec!["$ pgfathom run --connect owner ...".to_string()],
    };
    let finding = finding(DISTANCE, severity, claim, String::new());
    Some(Finding { level, numbers: numbers.collect(), remedy, ..finding })
}

fn trips(count: f64) -> String {
    let count = if (count - count.round()).abs() < 0.05 { count.round() } else { count };
    format!("{} round trip{}", number::three(count), if count == 1.0 { "" } else { "s" })
}

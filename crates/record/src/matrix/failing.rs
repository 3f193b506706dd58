//! Nodes whose cells fail: away, full, or refusing. What such a cell reached before is no measure of the speed of a node.

use super::{Cell, EVERY_NODE, Matrix, Operation};
use crate::finding::{Finding, Severity};
use crate::number;
use std::collections::BTreeSet;

/// From this share of failed transactions on, a cell measures the fault.
const FAILED_SHARE_MIN: f64 = 0.1;
/// This many cells of a node, and this share of them, are broken before the node is named.
const CELLS_MIN: usize = 2;
const CELLS_SHARE_MIN: f64 = 0.5;

/// The cells of one node.
struct Failing<'a> {
    node: &'a str,
    /// Broken ones, and all.
    cells: (usize, usize),
    failed: u64,
}

impl Cell {
    /// Whether so much failed that its rate is not one of a healthy cell.
    pub(super) fn is_broken(&self) -> bool {
        let tried = self.transactions + self.errors;
        self.errors > 0 && self.errors as f64 >= tried as f64 * FAILED_SHARE_MIN
    }
}

impl Operation {
    /// Whether the cell of a pair is broken: many failures, or nothing at all where others were measured.
    fn lacks(&self, connect: &str, data: &str) -> bool {
        self.cell(connect, data).is_none_or(|cell| cell.is_broken() || cell.transactions == 0)
    }

    fn errors(&self, connect: &str, data: &str) -> u64 {
        self.cell(connect, data).map_or(0, |cell| cell.errors)
    }
}

impl Matrix {
    /// Their names.
    pub(super) fn failing_nodes(&self) -> Vec<String> {
        self.failing().into_iter().filter_map(|finding| finding.node).collect()
    }

    /// The nodes with which most cells fail: the one that explains most of them first, then those that explain what is left.
    pub(super) fn failing(&self) -> Vec<Finding> {
        let mut named: BTreeSet<&str> = BTreeSet::new();
        let mut findings = vec![];
        // Rates alone, without a count, cannot fail.
        let is_counted =
            self.operations.iter().flat_map(|operation| &operation.cells).any(|cell| cell.transactions > 0);
        while is_counted && let Some(worst) = self.worst(&named) {
            named.insert(worst.node);
            findings.push(worst.finding());
        }
        findings
    }

    fn worst<'a>(&'a self, named: &BTreeSet<&str>) -> Option<Failing<'a>> {
        let nodes: BTreeSet<&str> = self
            .connect
            .iter()
            .chain(&self.data)
            .map(String::as_str)
            .filter(|node| *node != EVERY_NODE)
            .collect();
        let of = |node: &'a str| {
            let pairs = self.operations.iter().flat_map(|operation| {
                let pairs = self
                    .connect
                    .iter()
                    .flat_map(|row| self.data.iter().map(move |column| (row.as_str(), column.as_str())));
                pairs.map(move |(row, column)| (operation, row, column))
            });
            let mut failing = Failing { node, cells: (0, 0), failed: 0 };
            for (operation, row, column) in pairs {
                let is_other = |name: &str| name == node || !named.contains(name);
                if (row != node && column != node) || !is_other(row) || !is_other(column) {
                    continue;
                }
                failing.cells.1 += 1;
                failing.cells.0 += usize::from(operation.lacks(row, column));
                failing.failed += operation.errors(row, column);
            }
            failing
        };
        let broken = self.broken(named);
        // Of a node that came back, fewer cells are broken; then it is the one that all of them have in common. Cells that were not visited, as after an
        // interrupt, are no sign by themselves.
        nodes
            .into_iter()
            .filter(|node| !named.contains(node))
            .map(of)
            .filter(|one| {
                let is_most = one.cells.0 as f64 >= one.cells.1 as f64 * CELLS_SHARE_MIN;
                one.failed > 0 && one.cells.0 >= CELLS_MIN && (is_most || one.cells.0 >= broken)
            })
            .max_by_key(|one| (one.cells.0, one.failed))
    }

    /// Measured cells with many failures, without those of nodes that are named already.
    fn broken(&self, named: &BTreeSet<&str>) -> usize {
        let cells = self.operations.iter().flat_map(|operation| &operation.cells);
        let is_other =
            |cell: &&Cell| !named.contains(cell.connect.as_str()) && !named.contains(cell.data.as_str());
        cells.filter(is_other).filter(|cell| cell.is_broken()).count()
    }
}

impl Failing<'_> {
    fn finding(&self) -> Finding {
        let Failing { node, cells: (broken, all), failed } = self;
        let claim = format!(
            "{} was away or refused: {broken} of the {all} cells with it failed or could not be measured ({} failed)",
            super::findings::called(node),
            number::counted(*failed, "transaction")
        );
        let remedy = format!(
            "look at the log of {node}, and whether it runs; then run the matrix again: these cells are not compared"
        );
        let finding = super::findings::finding("matrix-failing", Severity::High, claim, remedy);
        let numbers = [("cells".to_string(), *broken as f64), ("failed".to_string(), *failed as f64)].into();
        Finding { node: Some((*node).to_string()), numbers, ..finding }
    }
}

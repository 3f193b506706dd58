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

/// What the cells of one node show.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// Its own rows through itself, or requests in both directions.
    Whole,
    /// Only its requests to other nodes.
    Out,
    /// Only the requests of other nodes to it.
    In,
}

/// The cells of one node.
struct Failing<'a> {
    node: &'a str,
    shape: Shape,
    /// Broken ones, and all.
    cells: (usize, usize),
    failed: u64,
    /// The most frequent message of a cell.
    error: Option<&'a str>,
}

/// Cells of two nodes with each other, where their own rows through themselves are served.
struct Pair<'a> {
    /// Where sessions entered, and whose rows they wanted.
    ends: (&'a str, &'a str),
    /// Whether the other way fails as well.
    is_both_ways: bool,
    cells: usize,
    failed: u64,
    error: Option<&'a str>,
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

/// The message of the cell in which most transactions failed.
fn message<'a>(cells: impl Iterator<Item = &'a Cell>) -> Option<&'a str> {
    cells.max_by_key(|cell| cell.errors)?.error.as_deref()
}

impl Matrix {
    /// Their names.
    pub(super) fn failing_nodes(&self) -> Vec<String> {
        self.failing().into_iter().filter_map(|finding| finding.node).collect()
    }

    /// The nodes with which most cells fail: the one that explains most of them first, then those that explain what is left. Where all of them belong to two
    /// nodes that serve their own rows, it is what is between them.
    pub(super) fn failing(&self) -> Vec<Finding> {
        if let Some(pair) = self.failing_pair() {
            return vec![pair.finding()];
        }
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

    fn failing_pair(&self) -> Option<Pair<'_>> {
        let cells = || self.operations.iter().flat_map(|operation| &operation.cells);
        let broken: Vec<&Cell> = cells().filter(|cell| cell.is_broken()).collect();
        let first = broken.iter().max_by_key(|cell| cell.errors).filter(|cell| !cell.is_own())?;
        let ends = (first.connect.as_str(), first.data.as_str());
        let is_way = |cell: &Cell| (cell.connect.as_str(), cell.data.as_str()) == ends;
        let is_back = |cell: &Cell| (cell.data.as_str(), cell.connect.as_str()) == ends;
        let serves = |node: &str| self.operations.iter().all(|operation| !operation.lacks(node, node));
        let is_it =
            broken.iter().all(|cell| is_way(cell) || is_back(cell)) && serves(ends.0) && serves(ends.1);
        let is_both_ways = broken.iter().any(|cell| is_back(cell));
        is_it.then(|| Pair {
            ends: if is_both_ways { (ends.0.min(ends.1), ends.0.max(ends.1)) } else { ends },
            is_both_ways,
            cells: broken.len(),
            failed: broken.iter().map(|cell| cell.errors).sum(),
            error: first.error.as_deref(),
        })
    }

    /// Which part of a node's cells is broken.
    fn shape_of(&self, node: &str) -> Shape {
        let others = |names: &[String], lacks: &dyn Fn(&Operation, &str) -> bool| -> Vec<bool> {
            let of =
                |operation| names.iter().filter(|name| *name != node).map(move |name| lacks(operation, name));
            self.operations.iter().flat_map(of).collect()
        };
        let way_out = others(&self.data, &|operation, other| operation.lacks(node, other));
        let way_in = others(&self.connect, &|operation, other| operation.lacks(other, node));
        let is_all = |way: &[bool]| !way.is_empty() && way.iter().all(|is_broken| *is_broken);
        let is_none = |way: &[bool]| way.iter().all(|is_broken| !is_broken);
        match self.operations.iter().any(|operation| operation.lacks(node, node)) {
            true => Shape::Whole,
            false if is_all(&way_out) && is_none(&way_in) => Shape::Out,
            false if is_all(&way_in) && is_none(&way_out) => Shape::In,
            false => Shape::Whole,
        }
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
            let own = self.operations.iter().flat_map(|operation| &operation.cells);
            let error = message(own.filter(|cell| cell.connect == node || cell.data == node));
            let mut failing = Failing { node, shape: self.shape_of(node), cells: (0, 0), failed: 0, error };
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

/// The finding about so many broken cells with so many failed transactions, and where to look.
fn failing(claim: String, look: &str, cells: usize, failed: u64) -> Finding {
    let remedy = format!("{look}; then run the matrix again: these cells are not compared");
    let finding = super::findings::finding("matrix-failing", Severity::High, claim, remedy);
    let numbers = [("cells".to_string(), cells as f64), ("failed".to_string(), failed as f64)].into();
    Finding { numbers, ..finding }
}

/// The message as the end of a sentence.
fn with_message(error: Option<&str>) -> String {
    error.map_or_else(String::new, |error| format!(": {error}"))
}

impl Failing<'_> {
    fn finding(&self) -> Finding {
        let Failing { node, shape, cells: (broken, all), failed, error } = self;
        let called = super::findings::called(node);
        let failed_words = number::counted(*failed, "failed transaction");
        let (begin, look) = match shape {
            Shape::Whole => (
                format!(
                    "{called} was away or refused: {broken} of the {all} cells with it failed or could not be measured"
                ),
                format!("look at the log of {node}, and whether it runs"),
            ),
            Shape::Out => (
                format!(
                    "{called} serves its own rows, and its requests to all other nodes fail, {broken} of the {all} cells with it"
                ),
                format!(
                    "look at how {node} logs in at the others (its user mappings, its passwords) and reaches them"
                ),
            ),
            Shape::In => (
                format!(
                    "{called} serves its own rows, and the requests of all other nodes to it fail, {broken} of the {all} cells with it"
                ),
                format!(
                    "look at the log of {node}, its pg_hba.conf, and the user mappings for it on the other nodes"
                ),
            ),
        };
        let claim = format!("{begin} ({failed_words}){}", with_message(*error));
        Finding { node: Some((*node).to_string()), ..failing(claim, &look, *broken, *failed) }
    }
}

impl Pair<'_> {
    fn finding(&self) -> Finding {
        let Pair { ends: (from, to), is_both_ways, cells, failed, error } = self;
        let (from_node, to_node) = (super::findings::called(from), super::findings::called(to));
        let (ways, look) = match is_both_ways {
            true => (
                format!("requests between {from_node} and {to_node} fail"),
                format!("look at the network between {from} and {to}, and at their logs"),
            ),
            false => (
                format!("requests of {from_node} to {to_node} fail"),
                format!(
                    "look at how {from} logs in at {to} (on {from}: its user mapping for {to}) and reaches it, and at the log of {to}"
                ),
            ),
        };
        let claim = format!(
            "{ways}, and both serve their own rows: {} ({}){}",
            number::counted(*cells as u64, "cell"),
            number::counted(*failed, "failed transaction"),
            with_message(*error)
        );
        failing(claim, &look, *cells, *failed)
    }
}

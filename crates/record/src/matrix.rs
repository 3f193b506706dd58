//! The node matrix: the same transaction for every pair of connect node and data node, and its outliers.
//!
//! A matrix is read from the steps of a run directory, one step per cell and operation, so an interrupted run still has a matrix, with
//! missing cells. What stands out is judged robustly: rates are compared as ratios (logarithms), rows and columns are separated by
//! a median polish (Tukey, "Exploratory Data Analysis", 1977) over the cells that are not a node's own, and what lies beyond
//! [`DEVIATIONS_MIN`] median absolute deviations *and* beyond [`RATIO_MIN`] is named. One slow node affects its whole row and column; with
//! means it would affect the result for the others, too.

mod failing;
mod findings;
mod of_steps;
mod polish;

use crate::statistics::median;
use crate::totals::RoundTripsBy;
pub use findings::DISTANCE;
pub use of_steps::verdict;
use polish::{Effects, Grid};
use serde::{Deserialize, Serialize};

/// Verb of the steps that are cells.
pub const VERB: &str = "matrix";
/// Parameter of a cell's step: `select`, `update`.
pub const OPERATION: &str = "operation";
/// Parameter of a cell's step: the node where its sessions enter.
pub const CONNECT: &str = "connect";
/// Parameter of a cell's step: the node where its rows live; absent when every node holds every row.
pub const DATA: &str = "data";
/// Name of the only column when every node holds every row.
pub(crate) const EVERY_NODE: &str = "every node";
/// A rate that differs less than this from the others' is not named, however even the others are.
pub(crate) const RATIO_MIN: f64 = 1.5;
/// Nor is one within so many robust standard deviations (1.4826 median absolute deviations) of the others.
pub const DEVIATIONS_MIN: f64 = 3.0;
/// Nor is one that any single round does not confirm with at least this ratio.
pub(crate) const REPEATED_MIN: f64 = 1.25;
/// Fewer nodes than this cannot tell which of them differs.
pub const NODES_MIN: usize = 3;

/// All of it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Matrix {
    /// Names of the rows: nodes where sessions entered.
    pub connect: Vec<String>,
    /// Names of the columns: nodes where the rows live.
    pub data: Vec<String>,
    /// One table each.
    pub operations: Vec<Operation>,
}

/// One operation, over all pairs.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Operation {
    /// `select`, `update`.
    pub name: String,
    /// Those that were measured, row by row.
    pub cells: Vec<Cell>,
    /// Median rate of each row, a node's own cell left out; null where nothing was measured.
    pub row_medians: Vec<Option<f64>>,
    /// Of each column likewise.
    pub column_medians: Vec<Option<f64>>,
    /// Median rate of the cells on the diagonal: a node's own rows, queried through itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own_median: Option<f64>,
    /// Median rate of all other cells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote_median: Option<f64>,
    /// What differs, worst first.
    pub outliers: Vec<Outlier>,
}

/// One pair of nodes.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Cell {
    /// Where the sessions entered.
    pub connect: String,
    /// Where the rows live.
    pub data: String,
    /// Committed per second.
    pub tps: f64,
    /// Committed per second in each round.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub round_tps: Vec<f64>,
    /// Committed.
    pub transactions: u64,
    /// Failed for good.
    pub errors: u64,
    /// What the server wrote of the most frequent failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Response time, median.
    pub latency_us_p50: u64,
    /// Response time, 99 %.
    pub latency_us_p99: u64,
    /// Round trips between the nodes for one transaction; absent where it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub round_trips: Option<f64>,
    /// How that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub round_trips_by: Option<RoundTripsBy>,
    /// One round trip between the two nodes, as it was measured or stands in for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ping_us: Option<f64>,
    /// The slower of the two nodes' own medians, and the counted round trips times the ping.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predicted_us_p50: Option<f64>,
}

/// What differs from its peers.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Outlier {
    /// Which part of the matrix.
    pub what: Part,
    /// The connect node, of a row or path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connect: Option<String>,
    /// The data node, of a column or path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// Its rate as a multiple of its peers'.
    pub ratio: f64,
    /// The same in robust standard deviations of the logarithm.
    pub deviations: f64,
}

/// A part of the matrix.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Sessions that enter at this node, whatever they request.
    Row,
    /// Rows of this node, from wherever they are requested.
    Column,
    /// A node's own rows through itself.
    Own,
    /// This one pair.
    #[default]
    Path,
}

impl Cell {
    /// The node's own rows, queried through itself.
    pub fn is_own(&self) -> bool {
        self.connect == self.data
    }
}

impl Matrix {
    /// A matrix of rates alone, row by row; `None` is a cell that was not measured.
    pub fn of_rates(nodes: &[&str], operation: &str, rates: &[Vec<Option<f64>>]) -> Matrix {
        let names: Vec<String> = nodes.iter().map(ToString::to_string).collect();
        let cells = rates.iter().zip(nodes).flat_map(|(row, connect)| {
            row.iter().zip(nodes).filter_map(|(rate, data)| {
                Some(Cell {
                    connect: connect.to_string(),
                    data: data.to_string(),
                    tps: (*rate)?,
                    ..Cell::default()
                })
            })
        });
        let name = operation.to_string();
        let operations = vec![Operation { name, cells: cells.collect(), ..Operation::default() }];
        let mut matrix = Matrix { connect: names.clone(), data: names, operations };
        matrix.judge();
        matrix
    }

    fn judge(&mut self) {
        let failing = self.failing_nodes();
        let Matrix { connect, data, operations } = self;
        for operation in operations {
            operation.judge(connect, data, &failing);
        }
    }
}

impl Operation {
    /// The cell of this pair, if it was measured.
    pub fn cell(&self, connect: &str, data: &str) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.connect == connect && cell.data == data)
    }

    /// How many times as fast a node's own rows are.
    pub fn own_per_remote(&self) -> Option<f64> {
        Some(self.own_median? / self.remote_median.filter(|rate| *rate > 0.0)?)
    }

    /// Cells of nodes that are `failing` are not compared, whenever they were measured.
    fn judge(&mut self, connect: &[String], data: &[String], failing: &[String]) {
        let is_judged = |cell: &Cell| {
            !cell.is_broken() && !failing.contains(&cell.connect) && !failing.contains(&cell.data)
        };
        let (grid, own) = self.measured(connect, data, |cell| Some(cell.tps).filter(|_| is_judged(cell)));
        self.row_medians = grid.row_medians();
        self.column_medians = grid.column_medians();
        self.own_median = median(own.iter().flatten().copied());
        self.remote_median = grid.median();
        let all = Effects::of(&grid, &own);
        // Rounds in which a cell was not visited prove nothing of it; a single one repeats nothing.
        let rounds = self.cells.iter().map(|cell| cell.round_tps.len()).max().unwrap_or(0);
        let rounds: Vec<Effects> = (0..rounds)
            .filter(|_| rounds > 1)
            .map(|round| {
                let of_round = |cell: &Cell| cell.round_tps.get(round).copied().filter(|_| is_judged(cell));
                let (grid, own) = self.measured(connect, data, of_round);
                Effects::of(&grid, &own)
            })
            .collect();
        self.outliers = polish::outliers(&all, &rounds, connect, data);
    }

    /// Some rate of all cells: those between nodes, and the own ones of the rows.
    fn measured(
        &self,
        connect: &[String],
        data: &[String],
        rate: impl Fn(&Cell) -> Option<f64>,
    ) -> (Grid, Vec<Option<f64>>) {
        let rate =
            |row: &String, column: &String| self.cell(row, column).and_then(&rate).filter(|tps| *tps > 0.0);
        let rates: Vec<Vec<Option<f64>>> =
            connect.iter().map(|row| data.iter().map(|column| rate(row, column)).collect()).collect();
        let is_own = |row: usize, column: usize| connect[row] == data[column];
        let own = connect.iter().map(|row| data.contains(row).then(|| rate(row, row)).flatten()).collect();
        (Grid::of(&rates, is_own), own)
    }
}

#[cfg(test)]
mod tests;

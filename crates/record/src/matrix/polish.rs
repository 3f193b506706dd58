//! Rows, columns and single cells distinguished: a two-way fit of logarithms by medians.

use super::{DEVIATIONS_MIN, NODES_MIN, Outlier, Part, RATIO_MIN, REPEATED_MIN};
use crate::statistics::median;

/// Rounds of the polish. With two cells to a row its steps halve the error, so these are enough for doubles.
const ROUNDS_MAX: usize = 60;
/// A change of the fit that is none.
const SETTLED: f64 = 1e-9;
/// Peers are never taken to be more even than this: three rates that happen to be equal would make any fourth one infinitely odd.
const SPREAD_MIN: f64 = 0.05;
/// From the median absolute deviation to the standard deviation of a normal distribution.
const MAD_TO_SIGMA: f64 = 1.4826;

/// The cells of a matrix that are not a node's own, as logarithms of their rates.
pub(super) struct Grid {
    cells: Vec<Vec<Option<f64>>>,
    columns: usize,
}

/// Logarithm of a cell = middle + row + column + rest.
struct Fit {
    rows: Vec<f64>,
    columns: Vec<f64>,
    middle: f64,
}

impl Grid {
    pub(super) fn of(rates: &[Vec<Option<f64>>], is_own: impl Fn(usize, usize) -> bool) -> Grid {
        let cell = |row: usize, column: usize, rate: &Option<f64>| {
            rate.filter(|_| !is_own(row, column)).map(f64::ln)
        };
        let cells: Vec<Vec<Option<f64>>> = rates
            .iter()
            .enumerate()
            .map(|(row, rates)| {
                rates.iter().enumerate().map(|(column, rate)| cell(row, column, rate)).collect()
            })
            .collect();
        let columns = rates.iter().map(Vec::len).max().unwrap_or(0);
        Grid { cells, columns }
    }

    fn row(&self, row: usize) -> impl Iterator<Item = (usize, f64)> + '_ {
        self.cells[row].iter().enumerate().filter_map(|(column, cell)| Some((column, (*cell)?)))
    }

    fn column(&self, column: usize) -> impl Iterator<Item = (usize, f64)> + '_ {
        self.cells.iter().enumerate().filter_map(move |(row, cells)| Some((row, (*cells.get(column)?)?)))
    }

    fn all(&self) -> impl Iterator<Item = (usize, usize, f64)> + '_ {
        (0..self.cells.len()).flat_map(|row| self.row(row).map(move |(column, log)| (row, column, log)))
    }

    /// The median of some cells as a rate: of two in the middle the geometric mean, in micro-transactions, so that a logarithm's last
    /// digits are not seen.
    fn rate(logs: impl Iterator<Item = f64>) -> Option<f64> {
        median(logs).map(|log| (log.exp() * 1e6).round() / 1e6)
    }

    /// Median rate of each row.
    pub(super) fn row_medians(&self) -> Vec<Option<f64>> {
        (0..self.cells.len()).map(|row| Grid::rate(self.row(row).map(|(_, log)| log))).collect()
    }

    /// Median rate of each column.
    pub(super) fn column_medians(&self) -> Vec<Option<f64>> {
        (0..self.columns).map(|column| Grid::rate(self.column(column).map(|(_, log)| log))).collect()
    }

    /// Median rate of all.
    pub(super) fn median(&self) -> Option<f64> {
        Grid::rate(self.all().map(|(.., log)| log))
    }

    fn polish(&self) -> Fit {
        let mut fit = Fit {
            rows: vec![0.0; self.cells.len()],
            columns: vec![0.0; self.columns],
            middle: median(self.all().map(|(.., log)| log)).unwrap_or(0.0),
        };
        for _ in 0..ROUNDS_MAX {
            let mut change = 0.0f64;
            for row in 0..fit.rows.len() {
                let rest =
                    median(self.row(row).map(|(column, log)| log - fit.at(row, column))).unwrap_or(0.0);
                fit.rows[row] += rest;
                change = change.max(rest.abs());
            }
            for column in 0..fit.columns.len() {
                let rest = median(self.column(column).map(|(row, log)| log - fit.at(row, column)));
                let rest = rest.unwrap_or(0.0);
                fit.columns[column] += rest;
                change = change.max(rest.abs());
            }
            if change < SETTLED {
                break;
            }
        }
        // Rows and columns count from their own middles: an effect is a difference from the peers.
        for effects in [&mut fit.rows, &mut fit.columns] {
            let middle = median(effects.iter().copied()).unwrap_or(0.0);
            effects.iter_mut().for_each(|effect| *effect -= middle);
            fit.middle += middle;
        }
        fit
    }
}

impl Fit {
    fn at(&self, row: usize, column: usize) -> f64 {
        self.middle + self.rows[row] + self.columns[column]
    }
}

/// One measurement of all cells, taken apart: how far each part lies from the median of its peers, as logarithms.
pub(super) struct Effects {
    rows: Vec<Option<f64>>,
    columns: Vec<Option<f64>>,
    own: Vec<Option<f64>>,
    /// Row by row, as wide as the matrix has columns.
    paths: Vec<Option<f64>>,
}

impl Effects {
    /// `own` are the rates of each row's own cell.
    pub(super) fn of(grid: &Grid, own: &[Option<f64>]) -> Effects {
        let fit = grid.polish();
        let measured = |has: bool, effect: &f64| has.then_some(*effect);
        let rows =
            fit.rows.iter().enumerate().map(|(row, e)| measured(grid.row(row).next().is_some(), e)).collect();
        let columns = fit.columns.iter().enumerate();
        let columns = columns.map(|(at, e)| measured(grid.column(at).next().is_some(), e)).collect();
        let mut paths = vec![None; fit.rows.len() * fit.columns.len()];
        for (row, column, log) in grid.all() {
            paths[row * fit.columns.len() + column] = Some(log - fit.at(row, column));
        }
        let own = own.iter().map(|rate| rate.map(f64::ln)).collect();
        Effects { rows: centred(rows), columns: centred(columns), own: centred(own), paths: centred(paths) }
    }
}

fn centred(mut values: Vec<Option<f64>>) -> Vec<Option<f64>> {
    let middle = median(values.iter().flatten().copied()).unwrap_or(0.0);
    values.iter_mut().flatten().for_each(|value| *value -= middle);
    values
}

/// What differs, worst first. Of the effects in single rounds, where there are such, none may say the opposite or next to nothing: what
/// happened in one round happened to the machine and not to the node.
pub(super) fn outliers(
    all: &Effects,
    rounds: &[Effects],
    connect: &[String],
    data: &[String],
) -> Vec<Outlier> {
    let mut found = vec![];
    if connect.len().max(data.len()) < NODES_MIN {
        return found;
    }
    let odd = |part: fn(&Effects) -> &Vec<Option<f64>>| {
        let in_rounds: Vec<&Vec<Option<f64>>> = rounds.iter().map(part).collect();
        odd(part(all), &in_rounds)
    };
    for (row, odd) in odd(|effects| &effects.rows) {
        found.push(Outlier { what: Part::Row, connect: Some(connect[row].clone()), ..odd });
    }
    for (column, odd) in odd(|effects| &effects.columns) {
        found.push(Outlier { what: Part::Column, data: Some(data[column].clone()), ..odd });
    }
    for (node, odd) in odd(|effects| &effects.own) {
        let name = Some(connect[node].clone());
        found.push(Outlier { what: Part::Own, connect: name.clone(), data: name, ..odd });
    }
    // A single path needs a row and a column that show what is usual.
    if connect.len().min(data.len()) >= NODES_MIN {
        for (path, odd) in odd(|effects| &effects.paths) {
            let (row, column) = (path / data.len(), path % data.len());
            let (connect, data) = (Some(connect[row].clone()), Some(data[column].clone()));
            found.push(Outlier { what: Part::Path, connect, data, ..odd });
        }
    }
    found.sort_by(|left, right| right.ratio.ln().abs().total_cmp(&left.ratio.ln().abs()));
    found
}

/// The values that lie far from the median of all, which is 0, with how far.
fn odd(values: &[Option<f64>], rounds: &[&Vec<Option<f64>>]) -> Vec<(usize, Outlier)> {
    let there: Vec<f64> = values.iter().flatten().copied().collect();
    if there.len() < NODES_MIN {
        return vec![];
    }
    let spread = median(there.iter().map(|value| value.abs())).unwrap_or(0.0);
    let spread = (spread * MAD_TO_SIGMA).max(SPREAD_MIN);
    let odd = |(at, value): (usize, &Option<f64>)| {
        let difference = (*value)?;
        let deviations = difference / spread;
        let repeats = |effect: f64| effect * difference.signum() >= REPEATED_MIN.ln();
        let is_odd = difference.abs() >= RATIO_MIN.ln()
            && deviations.abs() >= DEVIATIONS_MIN
            && rounds.iter().filter_map(|round| round[at]).all(repeats);
        is_odd.then(|| (at, Outlier { ratio: difference.exp(), deviations, ..Outlier::default() }))
    };
    values.iter().enumerate().filter_map(odd).collect()
}

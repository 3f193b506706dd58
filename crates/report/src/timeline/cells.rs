//! Values per object and column, and the lines that distinguish peers from the outlier.

use crate::chart::{Chart, Dash, Range, Series, Tone, tidy};
use record::number;
use std::collections::BTreeMap;

/// The most lines of a chart; more peers are drawn as their median and range.
const LINES_MAX: usize = 7;
/// The least objects of which one can be an outlier.
const PEERS_MIN: usize = 3;
/// An outlier's mean is at least this multiple of its peers' median.
const OUTLIER_RATIO: f64 = 1.5;

/// A value in the making.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    sum: f64,
    weight: f64,
    max: f64,
}

/// Columns of cells by object: a node, a device, a class of waits.
#[derive(Clone, Debug)]
pub(super) struct Cells {
    columns: usize,
    by_thing: BTreeMap<String, Vec<Cell>>,
}

impl Cells {
    pub(super) fn new(columns: usize) -> Cells {
        Cells { columns, by_thing: BTreeMap::new() }
    }

    /// Adds an amount with its weight: a count and its seconds, a reading and 1, a time per request times requests and requests.
    pub(super) fn add(&mut self, thing: &str, column: usize, amount: f64, weight: f64) {
        if !amount.is_finite() || !weight.is_finite() || weight < 0.0 {
            return;
        }
        if !self.by_thing.contains_key(thing) {
            self.by_thing.insert(thing.to_string(), vec![Cell::default(); self.columns]);
        }
        let Some(cell) = self.by_thing.get_mut(thing).and_then(|cells| cells.get_mut(column)) else { return };
        cell.sum += amount;
        cell.weight += weight;
        if weight > 0.0 {
            cell.max = cell.max.max(amount / weight);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_thing.is_empty()
    }

    pub(super) fn things(&self) -> Vec<&str> {
        self.by_thing.keys().map(String::as_str).collect()
    }

    /// Leaves out objects that were never above a value.
    pub(super) fn drop_below(&mut self, least: f64) {
        self.by_thing.retain(|_, cells| cells.iter().any(|cell| cell.max > least));
    }

    /// Keeps what is wanted.
    pub(super) fn keep(&mut self, wanted: impl Fn(&str) -> bool) {
        self.by_thing.retain(|thing, _| wanted(thing));
    }

    /// The weighted mean of each column.
    pub(super) fn means(&self, thing: &str) -> Vec<Option<f64>> {
        self.values(thing, |cell| cell.sum / cell.weight)
    }

    /// The largest value in each column.
    pub(super) fn peaks(&self, thing: &str) -> Vec<Option<f64>> {
        self.values(thing, |cell| cell.max)
    }

    fn values(&self, thing: &str, value: fn(&Cell) -> f64) -> Vec<Option<f64>> {
        let cells = self.by_thing.get(thing).map(Vec::as_slice).unwrap_or_default();
        let mut values: Vec<Option<f64>> =
            cells.iter().map(|cell| (cell.weight > 0.0).then(|| tidy(value(cell)))).collect();
        hold(&mut values);
        values
    }

    /// The mean over all columns.
    pub(super) fn mean(&self, thing: &str) -> f64 {
        let cells = self.by_thing.get(thing).map(Vec::as_slice).unwrap_or_default();
        let (sum, weight) =
            cells.iter().fold((0.0, 0.0), |(sum, weight), cell| (sum + cell.sum, weight + cell.weight));
        if weight > 0.0 { sum / weight } else { 0.0 }
    }

    /// The largest value and its column.
    pub(super) fn peak(&self, thing: &str) -> (f64, usize) {
        let cells = self.by_thing.get(thing).map(Vec::as_slice).unwrap_or_default();
        let best = cells.iter().enumerate().max_by(|left, right| left.1.max.total_cmp(&right.1.max));
        best.map_or((0.0, 0), |(column, cell)| (cell.max, column))
    }
}

/// A slightly late tick leaves a column empty although no sample is missing: then the previous value holds. Two empty columns in a row
/// are a real gap.
fn hold(values: &mut [Option<f64>]) {
    for at in 1..values.len().saturating_sub(1) {
        if values[at].is_none() && values[at + 1].is_some() {
            values[at] = values[at - 1];
        }
    }
}

/// The value of a column that is drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Draw {
    /// Their mean.
    Means,
    /// The largest.
    Peaks,
}

/// Draws objects that should be similar: one line each if they are few, peers grey, the highest one coloured. Returns a
/// clause about the result, without a full stop.
pub(super) fn peers(chart: &mut Chart, cells: &Cells, draw: Draw, what: &str) -> String {
    let values = |thing: &str| match draw {
        Draw::Means => cells.means(thing),
        Draw::Peaks => cells.peaks(thing),
    };
    let unit = chart.unit;
    let mut ranked: Vec<(&str, f64)> =
        cells.things().into_iter().map(|thing| (thing, cells.mean(thing))).collect();
    ranked.sort_by(|left, right| right.1.total_cmp(&left.1));
    let in_unit = |value: f64| super::in_unit(unit, value);
    match ranked.as_slice() {
        [] => String::new(),
        [(only, mean)] => {
            chart.series.push(Series::new(only, Tone::Main, Dash::Solid, values(only)).filled());
            let (peak, column) = cells.peak(only);
            let at = number::duration(column as f64 * chart.column_s);
            format!("{} on average, at most {} at {at}", in_unit(*mean), in_unit(peak))
        }
        [(first, high), (second, low)] => {
            chart.series.push(Series::new(first, Tone::Main, Dash::Solid, values(first)));
            chart.series.push(Series::new(second, Tone::Second, Dash::Dashed, values(second)));
            format!("{first} {} and {second} {} on average", in_unit(*high), in_unit(*low))
        }
        [(first, high), rest @ ..] => {
            let median = rest[rest.len() / 2].1;
            let stands_out = ranked.len() >= PEERS_MIN && *high > median * OUTLIER_RATIO;
            quiet_peers(chart, rest, &values, what);
            let tone = if stands_out { Tone::Second } else { Tone::Main };
            chart.series.push(Series::new(first, tone, Dash::Solid, values(first)));
            let low = rest.last().map_or(0.0, |(_, mean)| *mean);
            if stands_out && median > 0.0 {
                let ratio = number::three(high / median);
                format!(
                    "{first} is an outlier: {} on average, {ratio} times the median of its {} peers ({})",
                    in_unit(*high),
                    rest.len(),
                    in_unit(median)
                )
            } else if stands_out {
                format!("{first} alone: {} on average", in_unit(*high))
            } else {
                format!(
                    "{} {what}, on average between {} and {} ({first})",
                    ranked.len(),
                    in_unit(low),
                    in_unit(*high)
                )
            }
        }
    }
}

type Values<'a> = &'a dyn Fn(&str) -> Vec<Option<f64>>;

fn quiet_peers(chart: &mut Chart, rest: &[(&str, f64)], values: Values, what: &str) {
    let dashes = [Dash::Solid, Dash::Dashed, Dash::Dotted];
    if rest.len() < LINES_MAX {
        for (at, (thing, _)) in rest.iter().enumerate() {
            chart.series.push(Series::new(thing, Tone::Quiet, dashes[at % dashes.len()], values(thing)));
        }
        return;
    }
    let all: Vec<Vec<Option<f64>>> = rest.iter().map(|(thing, _)| values(thing)).collect();
    let (mut middle, mut low, mut high) = (vec![], vec![], vec![]);
    for column in 0..chart.x.len() {
        let mut here: Vec<f64> =
            all.iter().filter_map(|values| values.get(column).copied().flatten()).collect();
        here.sort_by(f64::total_cmp);
        middle.push(here.get(here.len() / 2).copied());
        low.push(here.first().copied());
        high.push(here.last().copied());
    }
    let name = format!("median of {} other {what}", rest.len());
    let range = Some(Range { low, high });
    chart.series.push(Series::new(&name, Tone::Quiet, Dash::Solid, middle).with_range(range));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_tick_is_bridged_and_a_hole_is_not() {
        let mut values = [Some(1.0), None, Some(2.0), None, None, Some(3.0)];
        hold(&mut values);
        assert_eq!(values, [Some(1.0), Some(1.0), Some(2.0), None, None, Some(3.0)]);
    }

    #[test]
    fn counts_become_rates_and_the_mean_is_weighted_by_time() {
        let mut cells = Cells::new(2);
        cells.add("n1", 0, 300.0, 1.0);
        cells.add("n1", 0, 300.0, 2.0);
        cells.add("n1", 1, 0.0, 3.0);
        assert_eq!(cells.means("n1"), [Some(200.0), Some(0.0)]);
        assert_eq!(cells.peaks("n1"), [Some(300.0), Some(0.0)]);
        assert_eq!((cells.mean("n1"), cells.peak("n1")), (100.0, (300.0, 0)));
    }
}

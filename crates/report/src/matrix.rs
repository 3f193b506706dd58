//! The node matrix as text and numbers; the terminal's tables are in `screen`, the page's in `page`.
//!
//! A cell is compared with its peers: a node's own rows with the other nodes' own rows, all other cells among themselves. Compared with
//! one median for all, only the diagonal would stand out.

mod page;
mod screen;

pub(crate) use page::section;
pub(crate) use screen::print;

use crate::tile::Tile;
use record::Matrix;
use record::matrix::{Cell, Operation, Outlier, Part};
use record::number;
use record::totals::RoundTripsBy;

/// Key of the section on the page.
pub(crate) const KEY: &str = "matrix";
/// Ratios to the median of its peers from which a cell is shown as slightly, much, and far off. Noise may reach the first one.
const STEPS: [f64; 3] = [1.25, 2.0, 4.0];

/// The distance of a rate from its peers: -3 (a fourth or less), 0 (similar) to 3 (four times or more).
fn shade(ratio: f64) -> i8 {
    let size = ratio.max(ratio.recip());
    let steps = STEPS.iter().filter(|step| size >= **step).count() as i8;
    if ratio < 1.0 { -steps } else { steps }
}

/// A cell's rate as a multiple of its peers' median.
fn ratio(operation: &Operation, cell: &Cell) -> Option<f64> {
    let peers = if cell.is_own() { operation.own_median } else { operation.remote_median };
    Some(cell.tps / peers.filter(|rate| *rate > 0.0)?)
}

/// The matrix in clauses of a sentence. `is_valid`: every cell is.
pub(crate) fn clauses(matrix: &Matrix, is_valid: bool) -> Vec<String> {
    let findings = matrix.findings();
    let odd = findings.iter().filter(|finding| finding.rule != record::matrix::DISTANCE);
    let odd: Vec<String> = odd.map(|finding| finding.claim.clone()).take(1).collect();
    if !odd.is_empty() {
        return odd;
    }
    if matrix.connect.len() == 1 && matrix.data.len() == 1 {
        let rates = matrix.operations.iter().filter_map(|operation| {
            Some(format!(
                "{} at {} transactions/s",
                operation.name,
                number::three(operation.cells.first()?.tps)
            ))
        });
        return vec![format!("one node: {}", rates.collect::<Vec<_>>().join(", "))];
    }
    let times: Vec<String> = matrix
        .operations
        .iter()
        .filter_map(|operation| {
            Some(format!("{} ({})", number::three(operation.own_per_remote()?), operation.name))
        })
        .collect();
    if times.is_empty() {
        // A cell without a rate is compared with nothing.
        let idle = |cell: &Cell| cell.tps <= 0.0;
        if matrix.operations.iter().any(|operation| operation.cells.iter().any(idle)) {
            return vec!["some nodes could not be measured, so they are not compared".to_string()];
        }
        if !is_valid {
            return vec!["the nodes are not compared, because the run is not valid".to_string()];
        }
        return vec![format!(
            "{} are similar: none differs from the others by more than half",
            number::counted(matrix.connect.len() as u64, "node")
        )];
    }
    vec![
        format!("a node's own rows are {} times as fast as another node's", times.join(" and ")),
        "no node, row, column or path is an outlier".to_string(),
    ]
}

fn tile(label: String, value: String, unit: &str, detail: String) -> Tile {
    Tile { label, value, unit: unit.to_string(), detail, key: KEY.to_string() }
}

/// Three numbers: own rows, other nodes' rows, and their ratio.
pub(crate) fn tiles(matrix: &Matrix) -> Vec<Tile> {
    let Some(first) = matrix.operations.first() else { return vec![] };
    let others = |rate: fn(&Operation) -> Option<f64>| {
        let wording =
            matrix.operations.iter().skip(1).filter_map(|operation| {
                Some(format!("{} {}", operation.name, number::three(rate(operation)?)))
            });
        wording.collect::<Vec<_>>().join(" · ")
    };
    let per_second = "transactions/s";
    let mut tiles = vec![];
    let square = matrix.operations.iter().any(|operation| operation.own_median.is_some());
    if let Some(own) = first.own_median {
        let detail = others(|operation| operation.own_median);
        tiles.push(tile(format!("{}, own rows", first.name), number::three(own), per_second, detail));
    }
    if let Some(remote) = first.remote_median {
        let label = if square { "another node's rows" } else { "median of the nodes" };
        let detail = others(|operation| operation.remote_median);
        tiles.push(tile(format!("{}, {label}", first.name), number::three(remote), per_second, detail));
    }
    if let Some(times) = first.own_per_remote() {
        let detail = others(Operation::own_per_remote);
        tiles.push(tile("own per other".to_string(), number::three(times), "x", detail));
    }
    tiles
}

/// `5 round trips, counted; one takes 98 µs to 120 µs`; `None` where nothing is known.
fn trips_words(operation: &Operation) -> Option<String> {
    let remote = || operation.cells.iter().filter(|cell| !cell.is_own());
    let mut words = vec![];
    for (by, wording) in [
        (RoundTripsBy::Counted, "counted by pg_stat_statements of the data node"),
        (RoundTripsBy::Known, "as this engine needs them for such a statement, not counted"),
        (
            RoundTripsBy::Estimated,
            "estimated from latency and ping, not counted: all that takes longer there is in it",
        ),
    ] {
        let counts =
            remote().filter(|cell| cell.round_trips_by == Some(by)).filter_map(|cell| cell.round_trips);
        if let Some((low, high)) = range(counts) {
            let text = if low == high { trips(low) } else { format!("{} to {}", three(low), trips(high)) };
            words.push(format!("{text} between the nodes, {wording}"));
        }
    }
    if let Some((low, high)) = range(remote().filter_map(|cell| cell.ping_us)) {
        let time = |us: f64| number::latency(us.round());
        words.push(match low.round() == high.round() {
            true => format!("one takes {}", time(low)),
            false => format!("one takes {} to {}", time(low), time(high)),
        });
    }
    (!words.is_empty()).then(|| words.join("; "))
}

/// The prediction from own rows and round trips, compared with the measurement.
fn prediction_words(operation: &Operation) -> Option<String> {
    let predicted = || operation.cells.iter().filter(|cell| cell.predicted_us_p50.is_some());
    let (low, high) = range(predicted().filter_map(|cell| cell.predicted_us_p50))?;
    let share = |cell: &Cell| cell.predicted_us_p50.map(|us| us / cell.latency_us_p50.max(1) as f64 * 100.0);
    let (least, most) = range(predicted().filter_map(share))?;
    let time = |us: f64| number::latency(us.round());
    Some(format!(
        "own rows and round trips together predict a p50 of {} to {}, {least:.0} % to {most:.0} % of the measured one",
        time(low),
        time(high)
    ))
}

/// Lowest and highest.
fn range(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.fold(None, |range, value| match range {
        None => Some((value, value)),
        Some((low, high)) => Some((f64::min(low, value), f64::max(high, value))),
    })
}

fn three(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value:.0}") } else { number::three(value) }
}

fn trips(count: f64) -> String {
    format!("{} round trip{}", three(count), if count == 1.0 { "" } else { "s" })
}

/// The ratio of an outlier row or column of this name.
fn odd(operation: &Operation, part: Part, name: &str) -> Option<f64> {
    let is_it = |odd: &&Outlier| {
        let named = match part {
            Part::Column => &odd.data,
            _ => &odd.connect,
        };
        odd.what == part && named.as_deref() == Some(name)
    };
    operation.outliers.iter().find(is_it).map(|odd| odd.ratio)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shades_are_symmetric() {
        let ratios = [0.1, 0.25, 0.5, 0.8, 0.9, 1.0, 1.2, 1.25, 2.0, 4.0, 9.0];
        assert_eq!(ratios.map(shade), [-3, -3, -2, -1, 0, 0, 0, 1, 2, 3, 3]);
    }

    #[test]
    fn round_trips_are_shown_with_their_source() {
        let cell = |round_trips, by| Cell {
            connect: "a".into(),
            data: "b".into(),
            round_trips: Some(round_trips),
            round_trips_by: Some(by),
            ping_us: Some(100.4),
            ..Cell::default()
        };
        let with = |cells| Operation { cells, ..Operation::default() };
        let counted = with(vec![cell(5.0, RoundTripsBy::Counted)]);
        assert_eq!(
            trips_words(&counted).unwrap(),
            "5 round trips between the nodes, counted by pg_stat_statements of the data node; one takes 100 us"
        );
        let guessed = with(vec![cell(4.7, RoundTripsBy::Estimated), cell(6.0, RoundTripsBy::Estimated)]);
        assert_eq!(
            trips_words(&guessed).unwrap(),
            "4.70 to 6 round trips between the nodes, estimated from latency and ping, not counted: all that takes longer there is in it; one takes 100 us"
        );
        let known = with(vec![cell(1.0, RoundTripsBy::Known)]);
        assert!(
            trips_words(&known)
                .unwrap()
                .starts_with("1 round trip between the nodes, as this engine needs them")
        );
        assert_eq!(trips_words(&with(vec![])), None);
    }

    #[test]
    fn nodes_without_a_rate_are_not_called_similar() {
        let matrix = |rates: &[f64]| {
            let cell = |tps: &f64| Cell { tps: *tps, ..Cell::default() };
            let cells = rates.iter().map(cell).collect();
            let names = || (1..=rates.len()).map(|node| format!("m{node}")).collect();
            let operations = vec![Operation { name: "select".to_string(), cells, ..Operation::default() }];
            Matrix { connect: names(), data: vec!["every node".to_string()], operations }
        };
        let words = |rates: &[f64], is_valid| clauses(&matrix(rates), is_valid).concat();
        assert!(words(&[100.0, 101.0, 99.0], true).contains("3 nodes are similar"));
        for (rates, is_valid) in [([100.0, 0.0, 99.0], true), ([100.0, 101.0, 99.0], false)] {
            let words = words(&rates, is_valid);
            assert!(words.contains("not compared") && !words.contains("similar"), "{words}");
        }
    }
}

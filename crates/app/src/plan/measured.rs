//! What a load measured: sizes that correct the computed ones, and rates.

use super::sample;
use crate::failure::Failure;
use record::RunReader;
use record::number;
use record::plan::input::{Rate, TableSize};
use record::sample::Body;
use record::statistics::quantile;
use record::totals::LoadTotals;
use std::path::Path;
use workloads::dataset::{Registration, Request, Size};

/// The rates of a load are taken from this many equal parts of it; with fewer samples there is no range.
const PARTS: usize = 10;
/// Fewer rows say nothing about sizes: pages, maps and metadata that every table has would count as those of its rows.
const ROWS_MIN: u64 = 5_000;

/// What a load measured.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Measured {
    /// What was loaded, and where.
    pub(super) source: String,
    /// The computed sizes of what was loaded.
    pub(super) computed: Vec<TableSize>,
    pub(super) table_bytes: u64,
    pub(super) index_bytes: u64,
    pub(super) wal_bytes: Option<u64>,
    pub(super) rate: Option<Rate>,
    pub(super) client_us_per_row: Option<f64>,
    pub(super) index_rows_per_s: Option<f64>,
}

impl Measured {
    /// Corrects computed sizes by what was measured of the same tables; gives the source of the result.
    pub(super) fn correct(&self, tables: &mut [TableSize]) -> String {
        let sum = |of: &dyn Fn(&TableSize) -> f64| -> f64 {
            self.computed.iter().map(|table| table.rows as f64 * of(table)).sum()
        };
        let factor =
            |measured: u64, computed: f64| if computed > 0.0 { measured as f64 / computed } else { 1.0 };
        let heap = factor(
            self.table_bytes,
            sum(&|table| table.heap_bytes_per_row + table.map_bytes_per_row + table.toast_bytes_per_row),
        );
        let index = factor(self.index_bytes, sum(&|table| table.index_bytes_per_row));
        let wal = self.wal_bytes.map_or(1.0, |bytes| factor(bytes, sum(&|table| table.wal_bytes_per_row)));
        for table in tables {
            // Long values are what the computation knows least: they are compressed, the rows in the heap are not.
            if table.toast_bytes_per_row > table.heap_bytes_per_row {
                table.toast_bytes_per_row *= heap;
            } else {
                table.heap_bytes_per_row *= heap;
            }
            table.index_bytes_per_row *= index;
            table.wal_bytes_per_row *= wal;
            table.index_wal_bytes_per_row *= wal;
        }
        let difference = |factor: f64| format!("{:+.1} %", (factor - 1.0) * 100.0);
        format!(
            "measured by {}: tables {}, indexes {}, WAL {} against the computed sizes",
            self.source,
            difference(heap),
            difference(index),
            difference(wal)
        )
    }
}

/// What the load of a run directory measured.
pub(super) fn of_run(path: &Path, dataset: &Registration, request: &Request) -> Result<Measured, Failure> {
    let reader = RunReader::open(path).map_err(|error| {
        Failure::from(error).hint("name the run directory of a load: its last line names it")
    })?;
    let name = path.display();
    let load = |step: &&record::Step| step.verb == "load" && step.name == dataset.name;
    let step = reader.run.steps.iter().find(load).ok_or_else(|| {
        Failure::usage(format!("{name} has no load of {}", dataset.name))
            .hint(format!("name a run directory of pgfathom load {}, or give --rate", dataset.name))
    })?;
    let totals: LoadTotals = step.totals_as();
    let rows = step.summary.rows.unwrap_or(0);
    if rows == 0 || step.summary.duration_s <= 0.0 {
        return Err(Failure::usage(format!("the load in {name} loaded no rows")).hint("name a load that did"));
    }
    let bytes = totals.bytes.unwrap_or(0) as f64;
    let samples = reader.samples.iter().filter(|sample| sample.step == step.key);
    let intervals = samples.filter_map(|sample| match &sample.body {
        Body::Load(body) => Some((sample.interval_us as f64 / 1e6, body.bytes as f64)),
        _ => None,
    });
    let parts = parts(&intervals.collect::<Vec<(f64, f64)>>());
    let mean = bytes / step.summary.duration_s;
    let (low, high) = range(&parts);
    let rate = Rate {
        bytes_per_s: mean,
        low_bytes_per_s: low.unwrap_or(mean).min(mean),
        high_bytes_per_s: high.unwrap_or(mean).max(mean),
        source: match low {
            Some(_) => format!("measured by {name}; the range is that of its tenths"),
            None => format!("measured by {name}, which is too short for a range"),
        },
    };
    let streams = step.parameters.get("streams").and_then(serde_json::Value::as_u64).unwrap_or(1).max(1);
    let mut measured = Measured {
        source: format!("{name} ({})", number::counted(rows, "row")),
        rate: Some(rate).filter(|rate| rate.bytes_per_s > 0.0 && rate.low_bytes_per_s > 0.0),
        client_us_per_row: Some(totals.client_cpu_us as f64 / rows as f64).filter(|us| *us > 0.0),
        index_rows_per_s: (totals.index_seconds > 0.01)
            .then(|| totals.rows_in_ledger as f64 / totals.index_seconds / streams as f64),
        ..Measured::default()
    };
    if totals.rows_in_ledger >= ROWS_MIN && totals.table_bytes_on_disk > 0 {
        let amount = match dataset.size {
            Size::Rows => Request { rows: Some(totals.rows_in_ledger), bytes: None, ..request.clone() },
            // The ledger of the run has the scale among its parameters.
            Size::Scale => Request { scale: scale_of(step).or(request.scale), ..request.clone() },
        };
        measured.computed =
            sample::tables(&*(dataset.build)(&amount)?, record::plan::input::Server::default().block_bytes)?;
        measured.table_bytes = totals.table_bytes_on_disk;
        measured.index_bytes = totals.index_bytes_on_disk;
        measured.wal_bytes = totals.wal_bytes.filter(|_| totals.rows_in_ledger == rows);
    }
    Ok(measured)
}

/// The number that a load was scaled by.
fn scale_of(step: &record::Step) -> Option<u64> {
    let parameters = &step.dataset.as_ref()?.parameters;
    let number = |value: &serde_json::Value| value.as_u64().or_else(|| value.as_str()?.parse().ok());
    ["warehouses", "scale", "branches"].iter().find_map(|name| parameters.get(*name).and_then(number))
}

/// The low and the high rate of the parts. A part in which nothing arrived, because the load stood still, is in the mean: a low rate of nothing would leave
/// no plan.
fn range(parts: &[f64]) -> (Option<f64>, Option<f64>) {
    let lowest = parts.iter().copied().filter(|rate| *rate > 0.0).min_by(f64::total_cmp);
    let low = quantile(parts.iter().copied(), 0.1).map(|low| low.max(lowest.unwrap_or(0.0)));
    (low.filter(|low| *low > 0.0), quantile(parts.iter().copied(), 0.9))
}

/// The rates of equal parts of a series of lengths and amounts.
fn parts(intervals: &[(f64, f64)]) -> Vec<f64> {
    // The first and the last interval are not full of work.
    let inner = intervals.get(1..intervals.len().saturating_sub(1)).unwrap_or_default();
    if inner.len() < PARTS {
        return vec![];
    }
    let rate = |part: &[(f64, f64)]| {
        let (seconds, amount) =
            part.iter().fold((0.0, 0.0), |(s, a), (seconds, amount)| (s + seconds, a + amount));
        (seconds > 0.0).then(|| amount / seconds)
    };
    inner.chunks(inner.len() / PARTS).filter_map(rate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_without_a_byte_leaves_a_rate() {
        let stalled: Vec<f64> = [0.0, 0.0, 0.0].into_iter().chain([50.0; 8]).collect();
        assert_eq!(range(&stalled), (Some(50.0), Some(50.0)));
        assert_eq!(range(&[0.0; 12]), (None, Some(0.0)));
        assert_eq!(range(&[]), (None, None));
    }

    #[test]
    fn rates_have_the_range_of_their_tenths() {
        let mut intervals = vec![(1.0, 100.0); 100];
        for slow in &mut intervals[40..60] {
            slow.1 = 50.0;
        }
        let parts = parts(&intervals);
        assert!(parts.len() >= PARTS);
        let low = quantile(parts.iter().copied(), 0.1).expect("a range");
        // A part that is slow for two thirds of its time, at least.
        assert!((50.0..70.0).contains(&low), "{low}");
        assert_eq!(quantile(parts, 0.9), Some(100.0));
        assert_eq!(super::parts(&[(1.0, 1.0); 5]), Vec::<f64>::new());
    }

    #[test]
    fn measured_sizes_correct_computed_ones() {
        let table = |rows| TableSize {
            rows,
            heap_bytes_per_row: 100.0,
            index_bytes_per_row: 10.0,
            wal_bytes_per_row: 110.0,
            ..TableSize::default()
        };
        let measured = Measured {
            computed: vec![table(10_000)],
            table_bytes: 1_100_000,
            index_bytes: 90_000,
            wal_bytes: None,
            source: "a run".into(),
            ..Measured::default()
        };
        let mut tables = [table(1_000_000)];
        let words = measured.correct(&mut tables);
        assert!(words.contains("tables +10.0 %") && words.contains("indexes -10.0 %"), "{words}");
        assert!((tables[0].heap_bytes_per_row - 110.0).abs() < 1e-9);
        assert!((tables[0].index_bytes_per_row - 9.0).abs() < 1e-9);
    }
}

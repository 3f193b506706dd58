//! The charts of `watch`'s samples of a step, on the step's own time axis: waits, events, WAL, the
//! hosts of the database, standbys, locks and the xmin horizon. Charts without data are omitted.
//!
//! Several nodes or hosts are lines of one chart: peers grey, the outlier coloured and named; or, where layers are
//! needed, separate charts.

mod cells;
pub(crate) mod lanes;
mod machine;
mod server;
pub(crate) mod waits;

use crate::chart::{Chart, ChartKind, Columns, Unit};
use crate::directory::Line;
use crate::facts::StepFacts;
use record::finding::Findings;
use record::number;
use record::watched::Sampled;

/// The least columns for charts; a step of two seconds has only tables.
const COLUMNS_MIN: usize = 3;
/// The most nodes or hosts with a chart of layers each; with more, there are charts of the total and of the busiest.
const MULTIPLES_MAX: usize = 3;

/// A step with its columns: the input of every chart here.
#[derive(Clone, Copy)]
pub(crate) struct Scene<'a> {
    step: &'a StepFacts<'a>,
    columns: Columns,
    lines: &'a [Line],
    /// How often things are looked at.
    period_us: u64,
}

impl Scene<'_> {
    /// The column of a line with counts: that of its interval.
    fn column(&self, line: &Line) -> usize {
        match line.interval_us {
            0 => self.column_at(line.t_us),
            interval_us => self.columns.of(line.t_us.saturating_sub(interval_us), line.t_us),
        }
    }

    /// The column of a sample: it stands for the time since the sample before, and samples come a little late.
    fn column_at(&self, t_us: u64) -> usize {
        self.columns.of(t_us.saturating_sub(self.period_us), t_us)
    }

    /// A chart over time without series.
    fn chart(&self, name: &str, title: &str, kind: ChartKind, unit: Unit) -> Chart {
        Chart {
            id: format!("{}-{name}", self.step.step.key),
            title: title.to_string(),
            kind,
            unit,
            x: self.columns.middles_s(),
            column_s: self.columns.width_s(),
            x_max: self.columns.end_s(),
            series: vec![],
            heat: None,
            axis: None,
            lanes: None,
            sentence: String::new(),
        }
    }
}

/// All charts of a step, in the order of display.
pub(crate) fn charts(step: &StepFacts, findings: Option<&Findings>) -> Vec<Chart> {
    if step.watched.is_empty() || step.latencies.columns.count < COLUMNS_MIN {
        return vec![];
    }
    let period_us = (period_s(step.watched) * 1e6) as u64;
    let scene = Scene { step, columns: step.latencies.columns, lines: step.watched, period_us };
    let mut charts = vec![];
    if step.client.is_empty() {
        charts.extend(server::transactions(&scene));
    }
    charts.extend(waits::charts(&scene));
    charts.extend(lanes::chart(&scene, findings));
    charts.extend(server::wal(&scene));
    charts.extend(machine::charts(&scene));
    charts.extend(server::replication(&scene));
    charts.extend(server::blocked(&scene));
    charts.extend(server::horizon(&scene));
    charts
}

/// The sampling interval of a node: the median interval of its totals.
pub(crate) fn period_s(lines: &[Line]) -> f64 {
    let mut lengths: Vec<u64> = lines
        .iter()
        .filter(|line| matches!(line.what, Sampled::Server(_)) && line.interval_us > 0)
        .map(|line| line.interval_us)
        .collect();
    lengths.sort_unstable();
    lengths.get(lengths.len() / 2).map_or(1.0, |length| *length as f64 / 1e6)
}

/// A value formatted for a sentence.
fn in_unit(unit: Unit, value: f64) -> String {
    match unit {
        Unit::BytesPerSecond => format!("{}/s", number::bytes(value)),
        Unit::Bytes => number::bytes(value),
        Unit::Us => number::latency(value),
        Unit::Percent => format!("{} %", number::three(value)),
        Unit::PerSecond | Unit::TransactionsPerSecond | Unit::RowsPerSecond => {
            format!("{}/s", number::three(value))
        }
        _ => number::three(value),
    }
}

//! The data of a chart, between the run directory and the page: columns of numbers, how to draw them, and a sentence with the
//! same content. The page's script draws only this.

use serde::Serialize;

/// The most columns of a chart; longer runs are aggregated.
pub(crate) const COLUMNS_MAX: usize = 600;

/// The id of the forecast of a plan.
pub(crate) const FORECAST: &str = "plan-forecast";

/// One chart.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Chart {
    /// Unique in the page.
    pub(crate) id: String,
    pub(crate) title: String,
    pub(crate) kind: ChartKind,
    /// Of the y axis.
    pub(crate) unit: Unit,
    /// Middle of each column: seconds since the start of the step, or nines for a percentile curve.
    pub(crate) x: Vec<f64>,
    /// Width of a column in seconds; 0 for a percentile curve.
    pub(crate) column_s: f64,
    /// Right end of the x axis.
    pub(crate) x_max: f64,
    pub(crate) series: Vec<Series>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) heat: Option<Heat>,
    /// The x axis of a chart that is not over time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) axis: Option<Axis>,
    /// What happened, for [`ChartKind::Lanes`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lanes: Option<Lanes>,
    /// The chart in one sentence. It is in the page itself, not drawn by its script.
    #[serde(skip)]
    pub(crate) sentence: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ChartKind {
    /// Lines over time from zero.
    Time,
    /// Heatmap with lines over it, logarithmic y.
    Heat,
    /// Percentile curve: x in nines, logarithmic y.
    Nines,
    /// Points over a number other than time; see [`Axis`].
    Curve,
    /// Stacked areas over time, and separate lines.
    Stack,
    /// Events over time: one lane per kind. `x` has the begins, in order.
    Lanes,
}

/// Lanes and what stands in them.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub(crate) struct Lanes {
    /// Names as short as the axis is wide.
    pub(crate) names: Vec<&'static str>,
    /// One for each `x` of the chart.
    pub(crate) items: Vec<Item>,
}

/// Something that happened.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub(crate) struct Item {
    /// Which lane.
    pub(crate) lane: usize,
    /// Its end in seconds; equal to its begin if it has no length.
    pub(crate) to: f64,
    /// In a few words.
    pub(crate) text: String,
    /// It is bad in itself.
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) bad: bool,
}

/// The x axis of a [`ChartKind::Curve`].
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub(crate) struct Axis {
    /// What x counts: `sessions`.
    pub(crate) name: &'static str,
    /// Equal ratios take equal room.
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) log: bool,
    /// The y axis is logarithmic, too.
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) log_y: bool,
    /// Places marked by a line.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) marks: Vec<Mark>,
    /// A label for each point of the first series.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) labels: Vec<String>,
    /// The order in which the points of the first series are connected, if it is not that of x.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) path: Vec<usize>,
}

/// A curve that the page computes: the Universal Scalability Law.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(crate) struct Law {
    pub(crate) lambda: f64,
    pub(crate) sigma: f64,
    pub(crate) kappa: f64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Unit {
    TransactionsPerSecond,
    RowsPerSecond,
    BytesPerSecond,
    PerSecond,
    Us,
    Count,
    Cores,
    Factor,
    Sessions,
    Percent,
    Bytes,
    Transactions,
}

/// One line of a chart.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) tone: Tone,
    pub(crate) dash: Dash,
    /// Filled down to zero.
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) fill: bool,
    pub(crate) values: Vec<Option<f64>>,
    /// Lowest and highest value in each column, if columns have several samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) range: Option<Range>,
    /// Drawn instead of a line through the points.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) law: Option<Law>,
    /// A line joins the points.
    #[serde(skip_serializing_if = "is_true")]
    pub(crate) joined: bool,
    /// A layer of the stack, in this colour and pattern of [`AREAS_MAX`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) area: Option<usize>,
}

/// Colours and patterns of areas. More layers could not be distinguished.
pub(crate) const AREAS_MAX: usize = 8;

#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Range {
    pub(crate) low: Vec<Option<f64>>,
    pub(crate) high: Vec<Option<f64>>,
}

fn is_false(flag: &bool) -> bool {
    !*flag
}

fn is_true(flag: &bool) -> bool {
    *flag
}

/// The role of a colour; the page's style sheet has the colours.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Tone {
    /// The answer.
    Main,
    /// What it is compared with.
    Quiet,
    /// Second in rank.
    Second,
    /// Errors.
    Bad,
    /// Neutral ink.
    Ink,
}

/// Distinguishes lines without colour.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Dash {
    Solid,
    Dashed,
    Dotted,
}

/// Counts over time and logarithmic latency bands.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Heat {
    /// Borders of the bands in microseconds, ascending; one more than bands.
    pub(crate) edges: Vec<f64>,
    /// Per column: first band, then the counts from there up; empty: nothing was counted.
    pub(crate) columns: Vec<Vec<u64>>,
}

/// An interval of a step that is marked in the background of its charts.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Band {
    pub(crate) from: f64,
    pub(crate) to: f64,
    pub(crate) label: String,
    /// `phase`, `aside` (samples that do not count) or `outage`.
    pub(crate) kind: &'static str,
}

/// A point in time that is marked on a step's charts.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Mark {
    pub(crate) at: f64,
    pub(crate) label: String,
}

impl Series {
    pub(crate) fn new(name: &str, tone: Tone, dash: Dash, values: Vec<Option<f64>>) -> Series {
        Series {
            name: name.to_string(),
            tone,
            dash,
            fill: false,
            values,
            range: None,
            law: None,
            joined: true,
            area: None,
        }
    }

    /// A layer of a pile.
    pub(crate) fn area(name: &str, area: usize, values: Vec<Option<f64>>) -> Series {
        Series { area: Some(area.min(AREAS_MAX - 1)), ..Series::new(name, Tone::Ink, Dash::Solid, values) }
    }

    pub(crate) fn filled(self) -> Series {
        Series { fill: true, ..self }
    }

    pub(crate) fn with_range(self, range: Option<Range>) -> Series {
        Series { range, ..self }
    }
}

/// Equal columns over an interval of time. Every sample is in exactly one.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Columns {
    pub(crate) origin_us: u64,
    pub(crate) width_us: u64,
    pub(crate) count: usize,
}

impl Columns {
    /// Columns for samples of about `interval_us` each: one per interval, or whole multiples if there were more than `most`.
    pub(crate) fn over(origin_us: u64, end_us: u64, interval_us: u64, most: usize) -> Columns {
        let interval_us = interval_us.max(1);
        let span_us = end_us.saturating_sub(origin_us).max(1);
        let wanted = span_us.div_ceil(interval_us);
        // A slightly shortened last interval gets no separate column.
        let rest_us = span_us % interval_us;
        let sliver = wanted > 1 && rest_us > 0 && rest_us < interval_us / 20;
        let wanted = wanted - u64::from(sliver);
        let factor = wanted.div_ceil(most.max(1) as u64).max(1);
        Columns {
            origin_us,
            width_us: interval_us.saturating_mul(factor),
            count: wanted.div_ceil(factor) as usize,
        }
    }

    /// The column of an interval, by its middle; intervals outside go into the nearest column.
    pub(crate) fn of(&self, start_us: u64, end_us: u64) -> usize {
        let middle_us = start_us.midpoint(end_us).saturating_sub(self.origin_us);
        ((middle_us / self.width_us) as usize).min(self.count - 1)
    }

    /// Middles in seconds since the origin.
    pub(crate) fn middles_s(&self) -> Vec<f64> {
        (0..self.count).map(|column| tidy((column as f64 + 0.5) * self.width_s())).collect()
    }

    pub(crate) fn width_s(&self) -> f64 {
        self.width_us as f64 / 1e6
    }

    pub(crate) fn end_s(&self) -> f64 {
        tidy(self.count as f64 * self.width_s())
    }

    /// True if a column may hold several samples of `interval_us`.
    pub(crate) fn are_coarser_than(&self, interval_us: u64) -> bool {
        self.width_us > interval_us.saturating_mul(3) / 2
    }
}

/// Rounds to what a chart can show (six significant digits), so that the page has no invisible digits.
pub(crate) fn tidy(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return 0.0;
    }
    let scale = 10f64.powi(5 - value.abs().log10().floor() as i32);
    (value * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn short_runs_get_a_column_per_second_and_slivers_none() {
        let columns = Columns::over(5_000_000, 15_010_000, 1_000_000, 600);
        assert_eq!((columns.count, columns.width_us), (10, 1_000_000));
        assert_eq!(Columns::over(0, 10_400_000, 1_000_000, 600).count, 11);
        assert_eq!(Columns::over(7, 7, 1_000_000, 600).count, 1, "a step of no length");
        assert_eq!(columns.middles_s()[0], 0.5);
    }

    proptest! {
        #[test]
        fn no_chart_has_too_many_columns_and_no_sample_gets_lost(
            origin in 0u64..1_000_000_000, span in 0u64..10_000_000_000_000, interval in 1u64..10_000_000, most in 1usize..700,
        ) {
            let columns = Columns::over(origin, origin + span, interval, most);
            prop_assert!((1..=most).contains(&columns.count));
            prop_assert!(columns.width_us * columns.count as u64 + interval / 20 >= span);
            for at in [0, span / 3, span, span + 5_000_000] {
                prop_assert!(columns.of(origin + at, origin + at) < columns.count);
            }
        }
    }

    #[test]
    fn tidied_numbers_keep_six_digits() {
        assert_eq!(
            [0.0, 88_214.123_456, 0.000_123_456_78, f64::NAN].map(tidy),
            [0.0, 88_214.1, 0.000_123_457, 0.0]
        );
    }
}

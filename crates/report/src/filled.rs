//! The charts of a load and of a verification: rows, bytes, streams.

use crate::chart::{Chart, Columns, Dash, Range, Series, Tone, Unit, tidy};
use crate::driven::time_chart;
use crate::facts::{StepFacts, total};
use record::number;

/// The least samples for a chart; with fewer, the table of totals is enough.
const SAMPLES_MIN: usize = 3;

/// The sums of one column of time.
#[derive(Clone, Debug, Default)]
struct Column {
    seconds: f64,
    rows: u64,
    bytes: u64,
    rate_low: Option<f64>,
    rate_high: Option<f64>,
    /// Rows per second of the average stream and of the slowest, in the worst interval of the column.
    mean_stream: Option<f64>,
    slowest_stream: Option<f64>,
}

/// All charts of the step, in the order of display.
pub(crate) fn charts(step: &StepFacts) -> Vec<Chart> {
    if step.progress.len() < SAMPLES_MIN {
        return vec![];
    }
    let (columns, interval_us) = (step.latencies.columns, step.interval_us());
    let sums = add_up(step, &columns);
    let coarse = columns.are_coarser_than(interval_us);
    let mut charts = vec![rows(step, &columns, &sums, coarse)];
    if sums.iter().any(|column| column.bytes > 0) {
        charts.push(bytes(step, &columns, &sums));
    }
    if sums.iter().any(|column| column.slowest_stream.is_some()) {
        charts.push(streams(step, &columns, &sums));
    }
    charts
}

fn add_up(step: &StepFacts, columns: &Columns) -> Vec<Column> {
    let mut sums = vec![Column::default(); columns.count];
    for (sample, body) in &step.progress {
        let column = &mut sums[columns.of(sample.t_us.saturating_sub(sample.interval_us), sample.t_us)];
        let seconds = sample.interval_us as f64 / 1e6;
        column.seconds += seconds;
        column.rows = column.rows.saturating_add(body.rows);
        column.bytes = column.bytes.saturating_add(body.bytes);
        if seconds <= 0.0 {
            continue;
        }
        let rate = body.rows as f64 / seconds;
        column.rate_low = Some(column.rate_low.map_or(rate, |low| low.min(rate)));
        column.rate_high = Some(column.rate_high.map_or(rate, |high| high.max(rate)));
        // In the last interval of a load all streams have ended already.
        let streams =
            if body.streams > 0 { body.streams } else { step.parameter_u64("streams").unwrap_or(0) };
        if let Some(rows) = body.slowest_rows.filter(|_| streams > 0) {
            let slowest = rows as f64 / seconds;
            if column.slowest_stream.is_none_or(|so_far| slowest < so_far) {
                column.slowest_stream = Some(slowest);
                column.mean_stream = Some(rate / streams as f64);
            }
        }
    }
    sums
}

fn per_second(amount: u64, column: &Column) -> Option<f64> {
    (column.seconds > 0.0).then(|| tidy(amount as f64 / column.seconds))
}

fn rows(step: &StepFacts, columns: &Columns, sums: &[Column], coarse: bool) -> Chart {
    let mut chart = time_chart(step, columns, "rows", "Rows", Unit::RowsPerSecond);
    let values: Vec<Option<f64>> = sums.iter().map(|column| per_second(column.rows, column)).collect();
    let range = coarse.then(|| Range {
        low: sums.iter().map(|column| column.rate_low.map(tidy)).collect(),
        high: sums.iter().map(|column| column.rate_high.map(tidy)).collect(),
    });
    let all = total(sums.iter().map(|column| column.rows));
    let fastest = values.iter().flatten().fold(0.0f64, |best, value| best.max(*value));
    let idle = values.iter().flatten().filter(|value| **value == 0.0).count();
    let idle = if idle == 0 {
        String::new()
    } else {
        format!("; none in {}", number::duration(idle as f64 * columns.width_s()))
    };
    chart.sentence =
        format!("{} in all, up to {} rows/s{idle}.", number::counted(all, "row"), number::three(fastest));
    chart.series.push(Series::new("rows", Tone::Main, Dash::Solid, values).filled().with_range(range));
    chart
}

fn bytes(step: &StepFacts, columns: &Columns, sums: &[Column]) -> Chart {
    let mut chart = time_chart(step, columns, "bytes", "Bytes", Unit::BytesPerSecond);
    let values: Vec<Option<f64>> = sums.iter().map(|column| per_second(column.bytes, column)).collect();
    let all = total(sums.iter().map(|column| column.bytes));
    let fastest = values.iter().flatten().fold(0.0f64, |best, value| best.max(*value));
    chart.sentence = format!("{} in all, up to {}/s.", number::bytes(all as f64), number::bytes(fastest));
    chart.series.push(Series::new("bytes", Tone::Main, Dash::Solid, values).filled());
    chart
}

fn streams(step: &StepFacts, columns: &Columns, sums: &[Column]) -> Chart {
    let mut chart = time_chart(step, columns, "streams", "Streams", Unit::RowsPerSecond);
    let mean: Vec<Option<f64>> = sums.iter().map(|column| column.mean_stream.map(tidy)).collect();
    let slowest: Vec<Option<f64>> = sums.iter().map(|column| column.slowest_stream.map(tidy)).collect();
    // The stream that was slowest most often is reported.
    let mut names: Vec<(&str, u64)> = vec![];
    for name in step.progress.iter().filter_map(|(_, body)| body.slowest_stream.as_deref()) {
        match names.iter_mut().find(|(known, _)| *known == name) {
            Some((_, count)) => *count += 1,
            None => names.push((name, 1)),
        }
    }
    let samples = step.progress.iter().filter(|(_, body)| body.slowest_stream.is_some()).count();
    let sum = |values: &[Option<f64>]| values.iter().flatten().sum::<f64>();
    let share = if sum(&mean) > 0.0 { sum(&slowest) / sum(&mean) } else { 1.0 };
    let most_often = names.iter().max_by_key(|(_, count)| *count);
    let name =
        |name: &str| if name.parse::<u64>().is_ok() { format!("stream {name}") } else { name.to_string() };
    chart.sentence = match most_often.map(|(text, count)| (name(text), count)) {
        Some((name, count)) => format!(
            "The slowest stream of each interval reached {} of the mean; {name} was the slowest in {count} of {samples}.",
            number::percent_of(share, 1.0)
        ),
        None => {
            format!(
                "The slowest stream of each interval reached {} of the mean.",
                number::percent_of(share, 1.0)
            )
        }
    };
    chart.series.push(Series::new("average stream", Tone::Quiet, Dash::Dashed, mean));
    chart.series.push(Series::new("slowest stream", Tone::Main, Dash::Solid, slowest));
    chart
}

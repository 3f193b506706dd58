//! The charts of a driven workload: rate, latency heatmap, errors, lag, backlog, client CPU, percentile curve.

use crate::chart::{Chart, ChartKind, Columns, Dash, Heat, Range, Series, Tone, Unit, tidy};
use crate::facts::{StepFacts, total};
use crate::latencies::{BANDS_PER_DECADE, ColumnLatency};
use record::number;

/// Points per factor of ten on a percentile curve: enough to show a step at its position.
const CURVE_STEPS_PER_NINE: u32 = 20;
/// Most latency bands of a heatmap.
const HEAT_BANDS_MAX: usize = 48;
/// A column of this width is called a second.
const INTERVAL_US: u64 = 1_000_000;
/// Offered and achieved rate are shown separately if they differ by more than this share anywhere.
const RATE_DIFFERENCE: f64 = 0.01;

/// The sums of one column of time.
#[derive(Clone, Debug, Default)]
struct Column {
    seconds: f64,
    scheduled: u64,
    transactions: u64,
    errors: u64,
    retries: u64,
    rate_low: Option<f64>,
    rate_high: Option<f64>,
    p50_us: Option<u64>,
    p99_us: Option<u64>,
    max_us: Option<u64>,
    lag_p99_us: Option<u64>,
    lag_max_us: Option<u64>,
    backlog: u64,
    cpu_us: u64,
}

/// All charts of the step, in the order of display; those of `watch` are between the clients' view of the target and
/// the client's own figures.
pub(crate) fn charts(step: &StepFacts, watched: Vec<Chart>) -> Vec<Chart> {
    let columns = step.latencies.columns;
    let coarse = columns.are_coarser_than(step.interval_us());
    let sums = add_up(step, &columns);
    let mut charts = vec![];
    if !step.client.is_empty() {
        charts.push(rate(step, &columns, &sums, coarse));
    }
    charts.extend(heat(step, &columns, &sums));
    if sums.iter().any(|column| column.errors.max(column.retries) > 0) {
        charts.push(errors(step, &columns, &sums));
    }
    charts.extend(watched);
    if sums.iter().any(|column| column.lag_p99_us.is_some()) {
        charts.push(lag(step, &columns, &sums));
    }
    if sums.iter().any(|column| column.backlog > 0) {
        charts.push(backlog(step, &columns, &sums));
    }
    if sums.iter().any(|column| column.cpu_us > 0) {
        charts.push(client_cpu(step, &columns, &sums));
    }
    charts.extend(curve(step));
    charts
}

fn add_up(step: &StepFacts, columns: &Columns) -> Vec<Column> {
    let mut sums = vec![Column::default(); columns.count];
    for (sample, body) in &step.client {
        let column = &mut sums[columns.of(sample.t_us.saturating_sub(sample.interval_us), sample.t_us)];
        let seconds = sample.interval_us as f64 / 1e6;
        column.seconds += seconds;
        column.scheduled = column.scheduled.saturating_add(body.scheduled);
        column.transactions = column.transactions.saturating_add(body.transactions);
        column.errors = column.errors.saturating_add(body.errors);
        column.retries = column.retries.saturating_add(body.retries);
        column.cpu_us = column.cpu_us.saturating_add(body.client_cpu_us);
        column.backlog = column.backlog.max(body.backlog);
        if seconds > 0.0 {
            let rate = body.transactions as f64 / seconds;
            column.rate_low = Some(column.rate_low.map_or(rate, |low| low.min(rate)));
            column.rate_high = Some(column.rate_high.map_or(rate, |high| high.max(rate)));
        }
        // Percentiles are never averaged: of several samples in a column the worst is kept. Below they are replaced by
        // percentiles of the merged histograms, if there are any.
        column.p50_us = column.p50_us.max(body.response_us_p50);
        column.p99_us = column.p99_us.max(body.response_us_p99);
        column.max_us = column.max_us.max(body.response_us_max);
        column.lag_p99_us = column.lag_p99_us.max(body.lag_us_p99);
        column.lag_max_us = column.lag_max_us.max(body.lag_us_max);
    }
    for (column, latency) in sums.iter_mut().zip(&step.latencies.by_column) {
        if let Some(latency) = latency {
            column.p50_us = Some(latency.p50_us);
            column.p99_us = Some(latency.p99_us);
            // The sample's maximum is exact, the histogram's only as good as its bucket.
            column.max_us = column.max_us.or(Some(latency.max_us));
        }
    }
    sums
}

/// An empty chart of a step over its time.
pub(crate) fn time_chart(step: &StepFacts, columns: &Columns, name: &str, title: &str, unit: Unit) -> Chart {
    Chart {
        id: format!("{}-{name}", step.step.key),
        title: title.to_string(),
        kind: ChartKind::Time,
        unit,
        x: columns.middles_s(),
        column_s: columns.width_s(),
        x_max: columns.end_s(),
        series: vec![],
        heat: None,
        axis: None,
        lanes: None,
        sentence: String::new(),
    }
}

fn per_second(amount: u64, column: &Column) -> Option<f64> {
    (column.seconds > 0.0).then(|| tidy(amount as f64 / column.seconds))
}

/// Index and value of the extreme that `better` prefers among the measured columns.
fn extreme(
    step: &StepFacts,
    columns: &Columns,
    values: &[Option<f64>],
    better: fn(f64, f64) -> bool,
) -> Option<(f64, f64)> {
    let (from_us, to_us) = step.measured_us();
    let mut best: Option<(f64, f64)> = None;
    for (middle_s, value) in columns.middles_s().into_iter().zip(values) {
        let middle_us = step.step.start_us.saturating_add((middle_s * 1e6) as u64);
        let Some(value) = value.filter(|_| (from_us..to_us).contains(&middle_us)) else { continue };
        if best.is_none_or(|(_, so_far)| better(value, so_far)) {
            best = Some((middle_s, value));
        }
    }
    best
}

fn second(middle_s: f64, columns: &Columns) -> String {
    let from = (middle_s / columns.width_s()).floor() * columns.width_s();
    number::duration(from)
}

fn rate(step: &StepFacts, columns: &Columns, sums: &[Column], coarse: bool) -> Chart {
    let achieved: Vec<Option<f64>> =
        sums.iter().map(|column| per_second(column.transactions, column)).collect();
    let offered: Vec<Option<f64>> = sums.iter().map(|column| per_second(column.scheduled, column)).collect();
    let apart = achieved.iter().zip(&offered).any(|pair| match pair {
        (Some(achieved), Some(offered)) => (offered - achieved).abs() > RATE_DIFFERENCE * offered.max(1.0),
        _ => false,
    });
    let range = coarse.then(|| Range {
        low: sums.iter().map(|column| column.rate_low.map(tidy)).collect(),
        high: sums.iter().map(|column| column.rate_high.map(tidy)).collect(),
    });
    let mut chart = time_chart(step, columns, "rate", "Rate", Unit::TransactionsPerSecond);
    if apart {
        chart.series.push(Series::new("offered", Tone::Quiet, Dash::Dashed, offered));
    }
    let low = extreme(step, columns, &achieved, |value, best| value < best);
    let high = extreme(step, columns, &achieved, |value, best| value > best);
    chart.series.push(Series::new("achieved", Tone::Main, Dash::Solid, achieved).filled().with_range(range));
    let all = total(sums.iter().map(|column| column.transactions));
    chart.sentence = match (low, high) {
        (Some((low_s, low)), Some((high_s, high))) => format!(
            "{} transactions/s at {} (lowest) to {} at {} (highest){}.",
            number::three(low),
            second(low_s, columns),
            number::three(high),
            second(high_s, columns),
            if apart {
                "; offered and achieved rate differ"
            } else {
                "; the whole offered rate was achieved"
            }
        ),
        _ => format!("{} in all.", number::counted(all, "transaction")),
    };
    chart
}

fn whole(value: Option<u64>) -> Option<f64> {
    value.map(|value| value as f64)
}

fn heat(step: &StepFacts, columns: &Columns, sums: &[Column]) -> Option<Chart> {
    let line = |field: fn(&Column) -> Option<u64>| {
        sums.iter().map(|column| whole(field(column))).collect::<Vec<_>>()
    };
    let (p50, p99, max) =
        (line(|column| column.p50_us), line(|column| column.p99_us), line(|column| column.max_us));
    if max.iter().all(Option::is_none) {
        return None;
    }
    let mut chart = time_chart(step, columns, "latency", "Response time", Unit::Us);
    chart.kind = ChartKind::Heat;
    chart.heat = heat_counts(step);
    let worst = extreme(step, columns, &max, |value, best| value > best);
    let high = extreme(step, columns, &p99, |value, best| value > best);
    let low = extreme(step, columns, &p99, |value, best| value < best);
    chart.sentence = match (worst, low, high) {
        (Some((worst_s, worst)), Some((_, low)), Some((_, high))) => format!(
            "99 % of responses took at most {} to {}, second by second; the longest took {}, at {}.",
            number::latency(low),
            number::latency(high),
            number::latency(worst),
            second(worst_s, columns),
        ),
        _ => "No response in the measured part.".to_string(),
    };
    if columns.width_us > INTERVAL_US {
        chart.sentence = chart.sentence.replace(", second by second;", ", column by column;");
    }
    chart.series.push(Series::new("p50", Tone::Ink, Dash::Solid, p50));
    chart.series.push(Series::new("p99", Tone::Second, Dash::Dashed, p99));
    chart.series.push(Series::new("max", Tone::Second, Dash::Dotted, max));
    Some(chart)
}

/// Counts per column and latency band; `None` without histograms.
fn heat_counts(step: &StepFacts) -> Option<Heat> {
    let counted = || step.latencies.by_column.iter().flatten();
    let first = counted().filter_map(|column| column.bands.iter().position(|count| *count > 0)).min()?;
    let last = counted().filter_map(|column| column.bands.iter().rposition(|count| *count > 0)).max()?;
    // Neighbouring bands are merged, two by two, until they are few enough.
    let mut merge = 1;
    while last / merge - first / merge + 1 > HEAT_BANDS_MAX {
        merge *= 2;
    }
    let (first, last) = (first / merge, last / merge);
    let edge = |band: usize| tidy(10f64.powf((band * merge) as f64 / BANDS_PER_DECADE as f64));
    let column = |latency: &Option<ColumnLatency>| {
        let Some(latency) = latency else { return vec![] };
        let merged: Vec<u64> = latency.bands.chunks(merge).map(|bands| bands.iter().sum()).collect();
        let counts = &merged[first..=last];
        let Some(from) = counts.iter().position(|count| *count > 0) else { return vec![] };
        let to = counts.iter().rposition(|count| *count > 0).unwrap_or(from);
        std::iter::once(from as u64).chain(counts[from..=to].iter().copied()).collect()
    };
    Some(Heat {
        columns: step.latencies.by_column.iter().map(column).collect(),
        edges: (first..=last + 1).map(edge).collect(),
    })
}

fn errors(step: &StepFacts, columns: &Columns, sums: &[Column]) -> Chart {
    let mut chart = time_chart(step, columns, "errors", "Errors and retries", Unit::PerSecond);
    let rate =
        |field: fn(&Column) -> u64| sums.iter().map(|column| per_second(field(column), column)).collect();
    let retries = Series::new("retries", Tone::Second, Dash::Dashed, rate(|column| column.retries));
    let errors = Series::new("errors", Tone::Bad, Dash::Solid, rate(|column| column.errors)).filled();
    chart.series = vec![retries, errors];
    let count = |field: fn(&Column) -> u64| total(sums.iter().map(field));
    let (errors, retries) = (count(|column| column.errors), count(|column| column.retries));
    let troubled = sums.iter().filter(|column| column.errors.max(column.retries) > 0).count() as u64;
    let retries =
        if retries == 1 { "1 retry".to_string() } else { format!("{} retries", number::count(retries)) };
    let all = columns.count as u64;
    let columns = if columns.width_us == INTERVAL_US {
        number::counted(all, "second")
    } else {
        format!("{} of {}", number::counted(all, "column"), number::duration(columns.width_s()))
    };
    chart.sentence =
        format!("{} and {retries}, in {troubled} of {columns}.", number::counted(errors, "error"));
    chart
}

fn lag(step: &StepFacts, columns: &Columns, sums: &[Column]) -> Chart {
    let mut chart = time_chart(step, columns, "lag", "Client lag", Unit::Us);
    let p99: Vec<Option<f64>> = sums.iter().map(|column| whole(column.lag_p99_us)).collect();
    let max: Vec<Option<f64>> = sums.iter().map(|column| whole(column.lag_max_us)).collect();
    let worst_p99 = extreme(step, columns, &p99, |value, best| value > best).map_or(0.0, |(_, value)| value);
    let worst = extreme(step, columns, &max, |value, best| value > best).map_or(0.0, |(_, value)| value);
    chart.sentence = format!(
        "Delay of the client itself when starting transactions: p99 at most {}, maximum {}.",
        number::latency(worst_p99),
        number::latency(worst),
    );
    chart.series.push(Series::new("max", Tone::Second, Dash::Dotted, max));
    chart.series.push(Series::new("p99", Tone::Main, Dash::Solid, p99).filled());
    chart
}

fn backlog(step: &StepFacts, columns: &Columns, sums: &[Column]) -> Chart {
    let mut chart = time_chart(step, columns, "backlog", "Backlog", Unit::Count);
    let values: Vec<Option<f64>> =
        sums.iter().map(|column| (column.seconds > 0.0).then_some(column.backlog as f64)).collect();
    let worst = values.iter().flatten().fold(0.0f64, |worst, value| worst.max(*value));
    chart.sentence = format!(
        "Transactions that were due while every session was busy: at most {}.",
        number::count(worst as u64)
    );
    chart.series.push(Series::new("waiting", Tone::Main, Dash::Solid, values).filled());
    chart
}

fn client_cpu(step: &StepFacts, columns: &Columns, sums: &[Column]) -> Chart {
    let mut chart = time_chart(step, columns, "cpu", "Client CPU", Unit::Cores);
    let values: Vec<Option<f64>> = sums
        .iter()
        .map(|column| (column.seconds > 0.0).then(|| tidy(column.cpu_us as f64 / 1e6 / column.seconds)))
        .collect();
    let worst = values.iter().flatten().fold(0.0f64, |worst, value| worst.max(*value));
    chart.sentence = match step.step.summary.client_cpu_us_per_transaction {
        Some(us) => {
            format!("{} of client CPU per transaction; at most {worst:.2} cores busy.", number::latency(us))
        }
        None => format!("At most {worst:.2} cores busy in the client."),
    };
    chart.series.push(Series::new("cores", Tone::Main, Dash::Solid, values).filled());
    chart
}

/// The percentile curve of the measured part; `None` without enough samples.
fn curve(step: &StepFacts) -> Option<Chart> {
    let (response, service) = (&step.latencies.response, &step.latencies.service);
    let points = response.curve(CURVE_STEPS_PER_NINE);
    let (last_quantile, last_us) = *points.last()?;
    let nines = |quantile: f64| tidy(-(1.0 - quantile).log10());
    let x: Vec<f64> = points.iter().map(|(quantile, _)| nines(*quantile)).collect();
    let values = points.iter().map(|(_, us)| Some((*us).max(1) as f64)).collect();
    let mut series = vec![Series::new("response", Tone::Main, Dash::Solid, values)];
    if !service.is_empty() {
        let at = |(quantile, _): &(f64, u64)| Some(service.quantile_us(*quantile).max(1) as f64);
        series.push(Series::new("service", Tone::Second, Dash::Dashed, points.iter().map(at).collect()));
    }
    Some(Chart {
        id: format!("{}-percentiles", step.step.key),
        title: "Percentiles".to_string(),
        kind: ChartKind::Nines,
        unit: Unit::Us,
        x_max: x.last().copied().unwrap_or(1.0).max(1.0),
        x,
        column_s: 0.0,
        series,
        heat: None,
        axis: None,
        lanes: None,
        sentence: format!(
            "Half of the responses took at most {}, 99 % at most {}; drawn up to {} ({}); fewer than {} samples lie beyond.",
            number::latency(response.quantile_us(0.5) as f64),
            number::latency(response.quantile_us(0.99) as f64),
            quantile_name(last_quantile),
            number::latency(last_us as f64),
            record::histogram::SAMPLES_BEYOND_MIN,
        ),
    })
}

/// `p99.97`: as many digits as the nines need, so that it never rounds to 100.
fn quantile_name(quantile: f64) -> String {
    let digits = ((-(1.0 - quantile).log10()).ceil() as usize).saturating_sub(1);
    let text = format!("p{:.digits$}", quantile * 100.0);
    if digits == 0 { text } else { text.trim_end_matches('0').trim_end_matches('.').to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_named_with_the_digits_they_need() {
        let names = [0.5, 0.9, 0.99, 0.999, 0.9997].map(quantile_name);
        assert_eq!(names, ["p50", "p90", "p99", "p99.9", "p99.97"]);
    }
}

//! The charts of a sweep: throughput over sessions with its fit, latency over sessions, latency over throughput, and mixes compared with
//! pure mixes.

use super::{KEY, knee_clause, latency_words, law_words, mix_clause, range, worst};
use crate::chart::{Axis, Chart, ChartKind, Dash, Law, Mark, Range, Series, Tone, Unit, tidy};
use record::number;
use record::sweep::{Curve, Sweep};

/// From this ratio between the most and the fewest sessions on, the axis is logarithmic.
const LOG_AXIS_RATIO: u64 = 8;
/// Styles of several curves in one chart; further curves are distinguished by the legend only.
const LOOKS: [(Tone, Dash); 5] = [
    (Tone::Main, Dash::Solid),
    (Tone::Second, Dash::Dashed),
    (Tone::Ink, Dash::Dotted),
    (Tone::Bad, Dash::Dashed),
    (Tone::Quiet, Dash::Solid),
];

/// All charts, in the order they are shown; none for a sweep of one point.
pub(crate) fn charts(sweep: &Sweep) -> Vec<Chart> {
    let sessions = all_sessions(sweep);
    let mut charts = vec![];
    if sessions.len() > 1 {
        charts.push(throughput(sweep, &sessions));
        charts.push(latency(sweep, &sessions));
        if let [curve] = sweep.curves.as_slice() {
            charts.extend(hockey_stick(curve));
        }
        if !sweep.mixes.is_empty() {
            charts.push(factors(sweep, &sessions));
        }
    } else if !sweep.mixes.is_empty() {
        charts.push(shares(sweep));
    }
    charts
}

fn all_sessions(sweep: &Sweep) -> Vec<u64> {
    let mut all: Vec<u64> =
        sweep.curves.iter().flat_map(|curve| &curve.points).map(|point| point.sessions).collect();
    all.sort_unstable();
    all.dedup();
    all
}

fn chart(name: &str, title: &str, unit: Unit, x: Vec<f64>, axis: Axis) -> Chart {
    Chart {
        id: format!("{KEY}-{name}"),
        title: title.to_string(),
        kind: ChartKind::Curve,
        unit,
        x_max: x.last().copied().unwrap_or(1.0),
        x,
        column_s: 0.0,
        series: vec![],
        heat: None,
        axis: Some(axis),
        lanes: None,
        sentence: String::new(),
    }
}

fn sessions_axis(sessions: &[u64]) -> Axis {
    let (first, last) = (sessions.first().copied().unwrap_or(1), sessions.last().copied().unwrap_or(1));
    Axis { name: "sessions", log: last >= first.saturating_mul(LOG_AXIS_RATIO), ..Axis::default() }
}

/// The values of a curve at each number of sessions; `None` where it was not measured.
fn values(
    curve: &Curve,
    sessions: &[u64],
    of: impl Fn(&record::sweep::Point) -> Option<f64>,
) -> Vec<Option<f64>> {
    let at = |wanted: &u64| of(curve.points.iter().find(|point| point.sessions == *wanted)?).map(tidy);
    sessions.iter().map(at).collect()
}

fn xs(sessions: &[u64]) -> Vec<f64> {
    sessions.iter().map(|sessions| *sessions as f64).collect()
}

/// Lowest and highest repeat at each number of sessions.
fn ranges(curve: &Curve, sessions: &[u64]) -> Option<Range> {
    let low = values(curve, sessions, |point| range(point).map(|(low, _)| low));
    let high = values(curve, sessions, |point| range(point).map(|(_, high)| high));
    low.iter().any(Option::is_some).then_some(Range { low, high })
}

fn throughput(sweep: &Sweep, sessions: &[u64]) -> Chart {
    let mut chart = chart(
        "throughput",
        "Throughput over sessions",
        Unit::TransactionsPerSecond,
        xs(sessions),
        sessions_axis(sessions),
    );
    let alone = sweep.curves.len() == 1;
    for (curve, (tone, dash)) in sweep.curves.iter().zip(LOOKS.into_iter().cycle()) {
        let name = if alone { "measured" } else { &curve.name };
        let law = curve.fit.filter(|_| curve.cannot_tell.is_none());
        let measured = values(curve, sessions, |point| point.tps);
        // If a law is drawn, the points are separate; else they are connected.
        let mut series = Series::new(name, tone, dash, measured).with_range(ranges(curve, sessions));
        series.law = law.map(|fit| Law { lambda: fit.lambda_tps, sigma: fit.sigma, kappa: fit.kappa });
        series.joined = law.is_none();
        chart.series.push(series);
        let left_out = values(curve, sessions, |point| {
            let tps = |repeat: &record::sweep::Repeat| repeat.left_out.as_ref().and(repeat.tps);
            point.repeats.iter().filter_map(tps).reduce(f64::max)
        });
        if left_out.iter().any(Option::is_some) {
            let name = if alone { "left out".to_string() } else { format!("{}, left out", curve.name) };
            let mut series = Series::new(&name, Tone::Bad, Dash::Solid, left_out);
            series.joined = false;
            chart.series.push(series);
        }
    }
    if let ([curve], Some(axis)) = (sweep.curves.as_slice(), &mut chart.axis) {
        let farthest = sessions.last().copied().unwrap_or(1) as f64;
        let knee = curve.knee_sessions.map(|at| Mark { at: tidy(at), label: "knee".to_string() });
        let peak = curve.fit.filter(|_| curve.cannot_tell.is_none()).and_then(|fit| fit.peak_sessions);
        let peak =
            peak.filter(|at| *at <= farthest).map(|at| Mark { at: tidy(at), label: "peak".to_string() });
        axis.marks.extend(knee.into_iter().chain(peak));
    }
    chart.sentence = match sweep.curves.as_slice() {
        [curve] => {
            let law = curve.fit.filter(|_| curve.cannot_tell.is_none());
            let law = law
                .map(|fit| format!(" Points are measured; the line is the fitted law {}.", law_words(&fit)));
            format!("{}.{}", capital(&knee_clause(curve)), law.unwrap_or_default())
        }
        curves => {
            let detail = curves.iter().map(|curve| format!("{}: {}.", curve.name, knee_clause(curve)));
            detail.collect::<Vec<_>>().join(" ")
        }
    };
    chart
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

fn whole(us: Option<u64>) -> Option<f64> {
    us.map(|us| us.max(1) as f64)
}

fn latency(sweep: &Sweep, sessions: &[u64]) -> Chart {
    let axis = Axis { log_y: true, ..sessions_axis(sessions) };
    let mut chart = chart("latency", "Response time over sessions", Unit::Us, xs(sessions), axis);
    if let [curve] = sweep.curves.as_slice() {
        let p50 = values(curve, sessions, |point| whole(point.p50_us));
        let p99 = values(curve, sessions, |point| whole(point.p99_us));
        chart.series.push(Series::new("p50", Tone::Ink, Dash::Solid, p50));
        chart.series.push(Series::new("p99", Tone::Second, Dash::Dashed, p99));
        if let (Some(at), Some(axis)) = (curve.latency_knee_sessions, &mut chart.axis) {
            axis.marks.push(Mark { at: at as f64, label: "most throughput per p99".to_string() });
        }
        chart.sentence = latency_words(curve).map_or(String::new(), |words| format!("{}.", capital(&words)));
    } else {
        for (curve, (tone, dash)) in sweep.curves.iter().zip(LOOKS.into_iter().cycle()) {
            let p99 = values(curve, sessions, |point| whole(point.p99_us));
            chart.series.push(Series::new(&format!("{} p99", curve.name), tone, dash, p99));
        }
        chart.sentence = "99 % of the responses took at most this.".to_string();
    }
    chart
}

/// p99 over throughput: the points go up with the sessions, and back if throughput falls.
fn hockey_stick(curve: &Curve) -> Option<Chart> {
    let mut points: Vec<(f64, f64, u64)> = curve
        .points
        .iter()
        .filter_map(|point| Some((tidy(point.tps?), whole(point.p99_us)?, point.sessions)))
        .collect();
    if points.len() < 2 {
        return None;
    }
    points.sort_by(|left, right| left.0.total_cmp(&right.0));
    let mut path: Vec<usize> = (0..points.len()).collect();
    path.sort_by_key(|at| points[*at].2);
    let axis = Axis {
        name: "transactions/s",
        log_y: true,
        labels: points.iter().map(|(_, _, sessions)| number::count(*sessions)).collect(),
        path,
        ..Axis::default()
    };
    let x = points.iter().map(|(tps, _, _)| *tps).collect();
    let mut chart = chart("stick", "p99 over throughput", Unit::Us, x, axis);
    let mut series =
        Series::new("p99", Tone::Second, Dash::Solid, points.iter().map(|(_, p99, _)| Some(*p99)).collect());
    series.joined = false;
    chart.series.push(series);
    chart.sentence = "Each point is a number of sessions. A curve that rises without moving right shows waiting; one that turns left shows falling \
                      throughput.".to_string();
    Some(chart)
}

fn factors(sweep: &Sweep, sessions: &[u64]) -> Chart {
    let mut chart = chart(
        "factors",
        "Mixes compared with their pure mixes",
        Unit::Factor,
        xs(sessions),
        sessions_axis(sessions),
    );
    chart.series.push(Series::new("expected", Tone::Quiet, Dash::Dashed, vec![Some(1.0); sessions.len()]));
    let mut percents: Vec<u64> = sweep.mixes.iter().map(|mix| mix.read_percent).collect();
    percents.dedup();
    for (percent, (tone, dash)) in percents.into_iter().zip(LOOKS.into_iter().cycle()) {
        let at = |wanted: &u64| {
            let found = sweep.mixes.iter().find(|mix| mix.sessions == *wanted && mix.read_percent == percent);
            found.map(|mix| tidy(mix.factor))
        };
        let name = format!("read/update {percent}/{}", 100 - percent.min(100));
        chart.series.push(Series::new(&name, tone, dash, sessions.iter().map(at).collect()));
    }
    chart.sentence = worst(sweep).map_or(String::new(), |mix| format!("{}.", capital(&mix_clause(mix))));
    chart
}

/// Throughput over the share of reads, for a single number of sessions.
fn shares(sweep: &Sweep) -> Chart {
    let mut measured: Vec<(u64, f64)> =
        sweep.curves.iter().filter_map(|curve| Some((curve.read_percent?, curve.best_tps?))).collect();
    measured.sort_by_key(|(percent, _)| *percent);
    let axis = Axis { name: "% reads", ..Axis::default() };
    let x = measured.iter().map(|(percent, _)| *percent as f64).collect();
    let mut chart =
        chart("shares", "Throughput over the share of reads", Unit::TransactionsPerSecond, x, axis);
    let expected = |of: fn(&record::sweep::Mix) -> f64| {
        let at = |(percent, tps): &(u64, f64)| {
            // For pure mixes the expectation is their own value.
            let mix = sweep.mixes.iter().find(|mix| mix.read_percent == *percent);
            Some(tidy(mix.map_or(*tps, of)))
        };
        measured.iter().map(at).collect::<Vec<_>>()
    };
    let means = [
        Series::new("weighted mean", Tone::Quiet, Dash::Dotted, expected(|mix| mix.weighted_mean_tps)),
        Series::new("time-weighted mean", Tone::Quiet, Dash::Dashed, expected(|mix| mix.time_weighted_tps)),
    ];
    chart.series.extend(means);
    let values = measured.iter().map(|(_, tps)| Some(tidy(*tps))).collect();
    chart.series.push(Series::new("measured", Tone::Main, Dash::Solid, values));
    chart.sentence = worst(sweep).map_or(String::new(), |mix| format!("{}.", capital(&mix_clause(mix))));
    chart
}

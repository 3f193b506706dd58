//! The plan on the page: planned against measured, and the forecast of the fill as a chart.

use super::{cells, compared, sentence};
use crate::chart::{Chart, ChartKind, Dash, FORECAST, Mark, Series, Tone, Unit, tidy};
use crate::facts::Facts;
use crate::html::markup::{Cell, Row, escape, table};
use crate::html::steps::figure;
use record::number;
use record::plan::{Compared, Plan, Point};

/// The key of the section, as of a step.
pub(crate) const KEY: &str = "plan";
/// Most events of the simulation that are marked.
const MARKS_MAX: usize = 40;
/// Columns of the forecast.
const COLUMNS: usize = 120;
/// A measured value this far from the planned one stands out.
const APART: f64 = 0.1;

/// For the page.
pub(crate) fn section(out: &mut String, facts: &Facts) {
    let Some(plan) = &facts.directory.planned else { return };
    let all = compared(facts);
    open(out, "Planned against measured");
    out.push_str(&format!("<p>{}</p>\n", escape(&sentence(plan, facts, !all.is_empty()))));
    if !all.is_empty() {
        let row = |one: &Compared| {
            let [name, planned, measured, apart] = cells(one);
            let stands_out = one.difference.is_none_or(|share| share.abs() > APART);
            let apart = Cell::number(apart).class(if stands_out { "bad" } else { "" });
            Row::new(vec![Cell::words(name), Cell::number(planned), Cell::number(measured), apart])
        };
        let rows: Vec<Row> = all.iter().map(row).collect();
        let head = [("figure", true), ("planned", false), ("measured", false), ("difference", false)];
        table(out, "Figures of the plan that this run measured", &head, &rows);
    }
    if let Some(chart) = forecast(plan) {
        figure(out, &chart);
    }
    out.push_str("</section>\n");
}

fn open(out: &mut String, title: &str) {
    out.push_str(&format!("<section class=\"step\" id=\"step={KEY}\" tabindex=\"-1\"><h2>{title}</h2>\n"));
}

/// A plan that no load has followed yet: the answer, the forecast, and what the terminal shows.
pub(crate) fn alone(plan: &Plan, text: &str) -> String {
    let mut out = format!(
        "<header class=\"top\"><p><span><strong>pgfathom plan {}</strong></span></p><button type=\"button\" id=\"theme\">Dark</button></header>\n\
         <main id=\"main\">\n",
        escape(&plan.input.dataset)
    );
    let verdict = match plan.input.other_storage {
        Some(_) => "Whether the plan fits is not known",
        None if plan.fits => "The plan fits",
        None => "The plan does not fit",
    };
    let rows = number::counted(plan.size.rows, "row");
    out.push_str(&format!(
        "<h1>{}</h1>\n",
        escape(&format!("{verdict}: {} with {rows}", plan.input.dataset))
    ));
    let list = |out: &mut String, class: &str, lines: &[String]| {
        if !lines.is_empty() {
            let items: String = lines.iter().map(|line| format!("<li>{}</li>", escape(line))).collect();
            out.push_str(&format!("<ul class=\"reasons {class}\">{items}</ul>\n"));
        }
    };
    list(&mut out, "invalid", &plan.problems);
    list(&mut out, "notes", &plan.notes);
    open(&mut out, "Forecast");
    match forecast(plan) {
        Some(chart) => figure(&mut out, &chart),
        None if plan.input.other_storage.is_some() => {
            out.push_str(
                "<p>What rows take on disk is unknown for this engine, so nothing was simulated.</p>\n",
            );
        }
        None => out.push_str("<p>No rate is known, so nothing was simulated.</p>\n"),
    }
    let figures = format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"figures\"><pre>{}</pre></div>",
        escape(text)
    );
    out.push_str(&format!("</section>\n<section><h2>Figures</h2>\n{figures}\n</section>\n</main>\n"));
    out
}

/// The simulated fill of the fullest volume against its capacity and the stop rule; without a capacity the bytes of all nodes. `None` if nothing was
/// simulated.
pub(crate) fn forecast(plan: &Plan) -> Option<Chart> {
    let (forecast, space) = (&plan.forecast, &plan.space);
    if forecast.points.len() < 2 || forecast.end_s <= 0.0 {
        return None;
    }
    let volume = space.volume_bytes as f64;
    let bytes = |point: &Point| if space.is_known { point.fullest * volume } else { point.disk_bytes as f64 };
    let column_s = forecast.end_s / COLUMNS as f64;
    let x: Vec<f64> = (0..COLUMNS).map(|at| tidy((at as f64 + 0.5) * column_s)).collect();
    let values = x.iter().map(|t_s| Some(tidy(between(&forecast.points, *t_s, &bytes)))).collect();
    let all = |value: f64| vec![Some(tidy(value)); COLUMNS];
    let stop = volume - space.keep_free_while_copying_bytes as f64;
    let title = if space.is_known { "Fill of the fullest volume" } else { "Fill of all nodes" };
    let mut series = vec![Series::new("on disk", Tone::Main, Dash::Solid, values).filled()];
    if space.is_known {
        series.push(Series::new("capacity", Tone::Ink, Dash::Dashed, all(volume)));
        series.push(Series::new(
            "stop rule while rows are copied",
            Tone::Bad,
            Dash::Dotted,
            all(stop.max(0.0)),
        ));
    }
    let last = forecast.points.last().map_or(0.0, bytes);
    let of = if space.is_known {
        format!(
            " of {} on it; the load stops when {} are free",
            number::bytes(volume),
            number::bytes(space.keep_free_while_copying_bytes as f64)
        )
    } else {
        " on all nodes; the capacity is not known".to_string()
    };
    Some(Chart {
        id: FORECAST.to_string(),
        title: title.to_string(),
        kind: ChartKind::Time,
        unit: Unit::Bytes,
        x_max: tidy(forecast.end_s),
        x,
        column_s: tidy(column_s),
        series,
        heat: None,
        axis: None,
        lanes: None,
        sentence: format!(
            "Simulated: after {} there are {}{of}. It ends: {}.",
            number::duration(forecast.end_s),
            number::bytes(last),
            forecast.outcome
        ),
    })
}

/// A value at a time between two points of the simulation.
fn between(points: &[Point], t_s: f64, value: &impl Fn(&Point) -> f64) -> f64 {
    let after = points.iter().position(|point| point.t_s >= t_s).unwrap_or(points.len() - 1).max(1);
    let (left, right) = (&points[after - 1], &points[after]);
    let share = ((t_s - left.t_s) / (right.t_s - left.t_s).max(f64::MIN_POSITIVE)).clamp(0.0, 1.0);
    value(left) + (value(right) - value(left)) * share
}

/// What happened in the simulation.
pub(crate) fn marks(plan: &Plan) -> Vec<Mark> {
    let happened = plan.forecast.happened.iter().take(MARKS_MAX);
    happened.map(|one| Mark { at: tidy(one.t_s), label: one.what.clone() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::plan::{Forecast, Space};

    #[test]
    fn the_forecast_is_drawn_against_capacity_and_stop_rule() {
        let point = |t_s, fullest, disk_bytes| Point { t_s, fullest, disk_bytes, ..Point::default() };
        let points = vec![point(0.0, 0.0, 0), point(50.0, 0.5, 500), point(100.0, 0.8, 800)];
        let mut plan = Plan {
            forecast: Forecast { points, end_s: 100.0, outcome: "complete".into(), ..Forecast::default() },
            space: Space {
                is_known: true,
                volume_bytes: 1_000,
                keep_free_while_copying_bytes: 100,
                ..Space::default()
            },
            ..Plan::default()
        };
        let chart = forecast(&plan).expect("a chart");
        let value = |series: usize, at: usize| chart.series[series].values[at].expect("a value");
        // The middle of the first half, and of the second one.
        assert!(
            (value(0, COLUMNS / 4) - 250.0).abs() < 5.0 && (value(0, COLUMNS * 3 / 4) - 650.0).abs() < 5.0
        );
        assert_eq!((value(1, 0), value(2, 0)), (1_000.0, 900.0));
        assert!(chart.sentence.contains("800 B of 1 kB"), "{}", chart.sentence);
        plan.space.is_known = false;
        let chart = forecast(&plan).expect("a chart");
        assert_eq!(chart.series.len(), 1);
        assert!(chart.series[0].values.iter().flatten().all(|value| (0.0..=800.0).contains(value)));
        plan.forecast.points.clear();
        assert!(forecast(&plan).is_none());
    }
}

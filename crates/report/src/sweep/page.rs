//! The sweep on the web page: its charts, a table of its steps with links to each of them, and the mixes.

use super::{
    KEY, factor, fit_words, mix_name, mixes_words, outcome, peak_words, share, slowdown, small, warm_up,
};
use crate::chart::Chart;
use crate::facts::Facts;
use crate::html::markup::{Cell, Row, escape, table};
use crate::html::steps::figure;
use record::number;
use record::sweep::{Curve, Outcome, Plan, Repeat, Sweep};

/// The section.
pub(crate) fn section(out: &mut String, facts: &Facts, sweep: &Sweep, charts: &[Chart]) {
    out.push_str(&format!("<section class=\"step\" id=\"step={KEY}\" tabindex=\"-1\"><h2>Sweep</h2>\n"));
    if let Some(plan) = &facts.reader.run.sweep {
        how(out, plan);
    }
    for chart in charts {
        figure(out, chart);
    }
    match sweep.curves.as_slice() {
        [curve] => fit(out, curve),
        curves => side_by_side(out, curves),
    }
    mixes(out, sweep);
    for curve in &sweep.curves {
        steps(out, facts, curve);
    }
    out.push_str("</section>\n");
}

/// How the steps were prepared.
fn how(out: &mut String, plan: &Plan) {
    let mut words = vec![number::counted(plan.steps, "step")];
    if plan.repeats > 1 {
        words.push(format!("{} passes, every second one in reverse order", plan.repeats));
    }
    words.push(match plan.analyzed.as_slice() {
        [] => "statistics not gathered".to_string(),
        tables if tables.len() > 4 => {
            format!("statistics of {} gathered", number::counted(tables.len() as u64, "table"))
        }
        tables => format!("statistics gathered of {}", tables.join(", ")),
    });
    words.push(if plan.checkpoints { "a checkpoint before each step" } else { "no checkpoints" }.to_string());
    words.push(match (plan.warmup_s, plan.settle_percent) {
        (0.0, _) => "no warm-up".to_string(),
        (longest, Some(percent)) => format!(
            "warm-up until throughput stays within {percent} % for three windows, at most {}",
            number::duration(longest)
        ),
        (all, None) => format!("warm-up {}", number::duration(all)),
    });
    let words: Vec<String> = words.iter().map(|word| format!("<span>{}</span>", escape(word))).collect();
    out.push_str(&format!("<p class=\"facts-line\">{}</p>\n", words.join("")));
}

/// What the charts of a single curve do not show yet.
fn fit(out: &mut String, curve: &Curve) {
    let Some(fit) = &curve.fit else { return };
    out.push_str("<div class=\"block\"><dl class=\"tested\">");
    let mut row = |name: &str, text: String| {
        out.push_str(&format!("<dt>{name}</dt><dd>{}.</dd>", escape(&text)));
    };
    row("Fit", fit_words(fit));
    if curve.cannot_tell.is_none() {
        row("Limit", peak_words(curve, fit));
    }
    out.push_str("</dl></div>\n");
}

/// Several curves: knees and fits in a table.
fn side_by_side(out: &mut String, curves: &[Curve]) {
    if curves.iter().all(|curve| curve.points.len() < 2) {
        return;
    }
    let head = [
        ("", false),
        ("highest", false),
        ("sessions", false),
        ("knee", false),
        ("of p99", false),
        ("contention", false),
        ("coherency", false),
        ("R²", false),
        ("peak", false),
        ("", true),
    ];
    let or_dash = |text: Option<String>| Cell::number(text.unwrap_or_else(|| "-".to_string()));
    let rows = curves.iter().map(|curve| {
        let believed = curve.fit.filter(|_| curve.cannot_tell.is_none());
        Row::new(vec![
            Cell::words(&curve.name),
            or_dash(curve.best_tps.map(number::three)),
            or_dash(curve.best_sessions.map(number::count)),
            or_dash(curve.knee_sessions.map(|knee| format!("{:.0}", knee.max(1.0)))),
            or_dash(curve.latency_knee_sessions.map(number::count)),
            or_dash(curve.fit.map(|fit| share(fit.sigma))),
            or_dash(curve.fit.map(|fit| small(fit.kappa))),
            or_dash(curve.fit.and_then(|fit| fit.r2).map(|r2| format!("{r2:.3}"))),
            or_dash(believed.and_then(|fit| fit.peak_sessions).map(|peak| format!("{peak:.0}"))),
            Cell::words(curve.cannot_tell.as_deref().unwrap_or_default()),
        ])
    });
    out.push_str("<div class=\"block\">");
    table(out, "Knees and fits", &head, &rows.collect::<Vec<_>>());
    out.push_str("</div>\n");
}

fn mixes(out: &mut String, sweep: &Sweep) {
    if sweep.mixes.is_empty() {
        return;
    }
    let head = [
        ("mix", false),
        ("sessions", false),
        ("per second", false),
        ("weighted mean", false),
        ("time-weighted", false),
        ("factor", false),
        ("read", false),
        ("update", false),
        ("", true),
    ];
    let rows: Vec<Row> = sweep
        .mixes
        .iter()
        .map(|mix| {
            let class = if mix.outcome == Outcome::Collapse { "bad" } else { "" };
            Row::new(vec![
                Cell::words(mix_name(mix)),
                Cell::number(number::count(mix.sessions)),
                Cell::number(number::three(mix.tps)),
                Cell::number(number::three(mix.weighted_mean_tps)),
                Cell::number(number::three(mix.time_weighted_tps)),
                Cell::number(factor(mix.factor)).class(class),
                Cell::number(slowdown(mix.read_slowdown)),
                Cell::number(slowdown(mix.update_slowdown)),
                Cell::word(outcome(mix.outcome)),
            ])
        })
        .collect();
    out.push_str("<div class=\"block\">");
    table(out, "Reads and updates together", &head, &rows);
    out.push_str(&format!("<p class=\"under\">{}</p></div>\n", escape(&mixes_words())));
}

/// Every step of a curve, with a link to its section.
fn steps(out: &mut String, facts: &Facts, curve: &Curve) {
    let fitted = curve.fit.filter(|_| curve.cannot_tell.is_none());
    let mut head = vec![("sessions", false), ("per second", false)];
    if fitted.is_some() {
        head.push(("fit", false));
    }
    head.extend([("p50", false), ("p99", false), ("client/tx", false), ("warm-up", true), ("", true)]);
    let mut rows = vec![];
    for point in &curve.points {
        for repeat in &point.repeats {
            let step = facts.steps.iter().find(|step| step.step.key == repeat.step);
            let mut cells = vec![
                Cell::html(format!(
                    "<a href=\"#step={}\">{}</a>",
                    escape(&repeat.step),
                    number::count(point.sessions)
                )),
                Cell::number(repeat.tps.map_or("-".to_string(), number::three)),
            ];
            if let Some(fit) = fitted {
                cells.push(Cell::number(number::three(fit.usl().at(point.sessions as f64))).class("second"));
            }
            let time = |us: Option<u64>| us.map_or("-".to_string(), |us| number::latency(us as f64));
            let cost = step.and_then(|step| step.step.summary.client_cpu_us_per_transaction);
            cells.push(Cell::number(time(repeat.p50_us)));
            cells.push(Cell::number(time(repeat.p99_us)));
            cells.push(Cell::number(cost.map_or("-".to_string(), number::latency)));
            cells.push(Cell::word(warm_up(facts, std::slice::from_ref(repeat))));
            cells.push(remark(repeat));
            rows.push(Row { class: if repeat.left_out.is_some() { "aside" } else { "" }, cells });
        }
    }
    out.push_str("<div class=\"block\">");
    table(out, &curve.name, &head, &rows);
    out.push_str("</div>\n");
}

fn remark(repeat: &Repeat) -> Cell {
    match &repeat.left_out {
        Some(why) => Cell::words(format!("left out: {why}")).class("text bad"),
        None => Cell::word(""),
    }
}

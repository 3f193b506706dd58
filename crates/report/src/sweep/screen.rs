//! The sweep on the terminal page: a table per curve with a bar for each throughput, the fit, and the mixes.

use super::{
    factor, fit_words, knee_entry, latency_words, law_words, mix_name, mixes_words, outcome, peak_words,
    range, slowdown, warm_up,
};
use crate::facts::Facts;
use crate::layout::{columns, fold, push};
use record::number;
use record::sweep::{Curve, Point, Sweep};

/// Characters of the longest bar.
const BAR_WIDTH: usize = 20;

/// Prints all of it.
pub(crate) fn print(out: &mut String, facts: &Facts, sweep: &Sweep) {
    let highest = sweep.curves.iter().filter_map(|curve| curve.best_tps).fold(0.0, f64::max);
    for (at, curve) in sweep.curves.iter().enumerate() {
        if at > 0 {
            out.push('\n');
        }
        if sweep.curves.len() > 1 {
            push(out, &curve.name);
        }
        table(out, facts, curve, highest);
        if curve.points.len() > 1 {
            conclusions(out, curve);
        }
    }
    mixes(out, sweep);
}

fn table(out: &mut String, facts: &Facts, curve: &Curve, highest: f64) {
    let fitted = curve.cannot_tell.is_none().then_some(curve.fit).flatten();
    let has_repeats = curve.points.iter().any(|point| range(point).is_some());
    let mut head = vec!["sessions", "tps", ""];
    if has_repeats {
        head.push("spread");
    }
    if fitted.is_some() {
        head.push("fit");
    }
    head.extend(["p50", "p99", "client/tx", "warm-up"]);
    let time = |us: Option<u64>| us.map_or("-".to_string(), |us| number::latency(us as f64));
    let mut rows = vec![head.iter().map(ToString::to_string).collect::<Vec<_>>()];
    for point in &curve.points {
        let mut row = vec![number::count(point.sessions)];
        row.push(point.tps.map_or("-".to_string(), number::three));
        row.push(bar(point.tps, highest));
        if has_repeats {
            row.push(
                range(point).map_or("-".to_string(), |(low, high)| number::percent_of(high - low, high)),
            );
        }
        if let Some(fit) = fitted {
            row.push(number::three(fit.usl().at(point.sessions as f64)));
        }
        row.extend([
            time(point.p50_us),
            time(point.p99_us),
            client_cost(facts, point),
            warm_up(facts, &point.repeats),
        ]);
        rows.push(row);
    }
    columns(out, &rows, |column| column == 2 || column + 1 == head.len());
}

fn bar(tps: Option<f64>, highest: f64) -> String {
    let share = tps.map_or(0.0, |tps| if highest > 0.0 { tps / highest } else { 0.0 });
    "#".repeat((share * BAR_WIDTH as f64).round() as usize)
}

/// Client CPU per transaction of the most expensive repeat.
fn client_cost(facts: &Facts, point: &Point) -> String {
    let cost = |step: &&str| {
        facts.steps.iter().find(|facts| facts.step.key == **step)?.step.summary.client_cpu_us_per_transaction
    };
    let keys: Vec<&str> = point.repeats.iter().map(|repeat| repeat.step.as_str()).collect();
    let dearest = keys.iter().filter_map(cost).reduce(f64::max);
    dearest.map_or("-".to_string(), number::latency)
}

fn conclusions(out: &mut String, curve: &Curve) {
    out.push('\n');
    if let Some(fit) = &curve.fit {
        push(out, &format!("  fit       {}", law_words(fit)));
        fold(out, "            ", &fit_words(fit));
        if curve.cannot_tell.is_none() {
            fold(out, "            ", &peak_words(curve, fit));
        }
    }
    fold(out, "  knee      ", &knee_entry(curve));
    if let Some(words) = latency_words(curve) {
        fold(out, "  latency   ", &words);
    }
}

fn mixes(out: &mut String, sweep: &Sweep) {
    if sweep.mixes.is_empty() {
        return;
    }
    out.push('\n');
    push(out, "reads and updates together");
    let head = ["mix", "sessions", "tps", "weighted mean", "time-weighted", "factor", "read", "update", ""];
    let mut rows = vec![head.map(str::to_string).to_vec()];
    for mix in &sweep.mixes {
        rows.push(vec![
            mix_name(mix),
            number::count(mix.sessions),
            number::three(mix.tps),
            number::three(mix.weighted_mean_tps),
            number::three(mix.time_weighted_tps),
            factor(mix.factor),
            slowdown(mix.read_slowdown),
            slowdown(mix.update_slowdown),
            outcome(mix.outcome).to_string(),
        ]);
    }
    columns(out, &rows, |column| column == 0 || column == 8);
    fold(out, "  ", &mixes_words());
}

//! The curves and mixes that the steps of a sweep measured.

use super::{COLLAPSE_FACTOR, Curve, GAIN_FACTOR, Mix, Outcome, Place, Point, Repeat, Sweep, WHOLE};
use crate::model::{State, Step};

impl Sweep {
    /// What the steps of a sweep have found; `None` if no step belongs to one.
    pub fn of(steps: &[Step]) -> Option<Sweep> {
        let placed: Vec<(&Step, &Place)> =
            steps.iter().filter_map(|step| Some((step, step.sweep.as_ref()?))).collect();
        if placed.is_empty() {
            return None;
        }
        let mut names: Vec<(&str, Option<u64>)> = vec![];
        for (step, place) in &placed {
            let name = (step.name.as_str(), place.read_percent);
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let curves = names.into_iter().map(|(name, read_percent)| {
            let mine =
                |(step, place): &&(&Step, &Place)| step.name == name && place.read_percent == read_percent;
            Curve::of(name, read_percent, &placed.iter().filter(mine).copied().collect::<Vec<_>>())
        });
        let curves: Vec<Curve> = curves.collect();
        let mixes = mixes(&curves, steps);
        Some(Sweep { curves, mixes })
    }
}

impl Curve {
    fn of(name: &str, read_percent: Option<u64>, steps: &[(&Step, &Place)]) -> Curve {
        let mut sessions: Vec<u64> = steps.iter().map(|(_, place)| place.sessions).collect();
        sessions.sort_unstable();
        sessions.dedup();
        let points = sessions.into_iter().map(|sessions| {
            let here = steps.iter().filter(|(_, place)| place.sessions == sessions);
            Point::of(sessions, here.map(|(step, place)| Repeat::of(step, place)).collect())
        });
        let mut curve =
            Curve { name: name.to_string(), read_percent, points: points.collect(), ..Curve::default() };
        let best = curve.measured().max_by(|left, right| left.1.total_cmp(&right.1));
        (curve.best_sessions, curve.best_tps) = best.unzip();
        curve.latency_knee_sessions = curve.latency_knee();
        curve.fit();
        curve
    }
}

impl Point {
    fn of(sessions: u64, repeats: Vec<Repeat>) -> Point {
        let counting: Vec<&Repeat> = repeats.iter().filter(|repeat| repeat.left_out.is_none()).collect();
        let throughputs: Vec<f64> = counting.iter().filter_map(|repeat| repeat.tps).collect();
        let mean = throughputs.iter().sum::<f64>() / throughputs.len() as f64;
        Point {
            sessions,
            tps: (!throughputs.is_empty()).then_some(mean),
            p50_us: counting.iter().filter_map(|repeat| repeat.p50_us).max(),
            p99_us: counting.iter().filter_map(|repeat| repeat.p99_us).max(),
            repeats,
        }
    }
}

impl Repeat {
    fn of(step: &Step, place: &Place) -> Repeat {
        let summary = &step.summary;
        Repeat {
            step: step.key.clone(),
            tps: summary.tps,
            p50_us: summary.latency_us.map(|latency| latency.p50),
            p99_us: summary.latency_us.map(|latency| latency.p99),
            left_out: left_out(step),
            settled: place.settled,
        }
    }
}

/// Why a step counts in no curve.
fn left_out(step: &Step) -> Option<String> {
    let reason = || step.verdict.reasons.first().cloned();
    match step.state {
        State::Finished if !step.verdict.valid => Some(reason().unwrap_or_else(|| "invalid".to_string())),
        State::Finished if step.summary.tps.is_none_or(|tps| tps <= 0.0) => {
            Some("nothing was committed".to_string())
        }
        State::Finished => None,
        State::Interrupted => Some("interrupted".to_string()),
        State::Failed => Some(reason().unwrap_or_else(|| "failed".to_string())),
        State::Running | State::Unknown => Some("it did not end".to_string()),
    }
}

/// Each mix against the pure ones, where all three were measured.
fn mixes(curves: &[Curve], steps: &[Step]) -> Vec<Mix> {
    let of = |read_percent| curves.iter().find(|curve| curve.read_percent == Some(read_percent));
    let (Some(reads), Some(updates)) = (of(WHOLE), of(0)) else { return vec![] };
    let point = |curve: &Curve, sessions| {
        curve.points.iter().find(|point| point.sessions == sessions && point.tps.is_some()).cloned()
    };
    let mut found = vec![];
    for curve in curves {
        let Some(percent) = curve.read_percent.filter(|percent| (1..WHOLE).contains(percent)) else {
            continue;
        };
        for (sessions, tps) in curve.measured() {
            let here = [point(reads, sessions), point(curve, sessions), point(updates, sessions)];
            let [Some(read), Some(mixed), Some(update)] = here else { continue };
            let (read_tps, update_tps) = (read.tps.unwrap_or(0.0), update.tps.unwrap_or(0.0));
            let share = percent as f64 / WHOLE as f64;
            let time_weighted_tps = 1.0 / (share / read_tps + (1.0 - share) / update_tps);
            let factor = tps / time_weighted_tps;
            // Reads stand before updates in a mix; a pure one has a single type.
            let slowdown = |at, pure: &Point| Some(mean_us(steps, &mixed, at)? / mean_us(steps, pure, 0)?);
            found.push(Mix {
                sessions,
                read_percent: percent,
                tps,
                weighted_mean_tps: share * read_tps + (1.0 - share) * update_tps,
                time_weighted_tps,
                factor,
                read_slowdown: slowdown(0, &read),
                update_slowdown: slowdown(1, &update),
                outcome: match factor {
                    factor if factor < COLLAPSE_FACTOR => Outcome::Collapse,
                    factor if factor > GAIN_FACTOR => Outcome::Gain,
                    _ => Outcome::Expected,
                },
            });
        }
    }
    found
}

/// Mean response time of a point's transaction type number `at`, over the repeats that count.
fn mean_us(steps: &[Step], point: &Point, at: usize) -> Option<f64> {
    let counting = point.repeats.iter().filter(|repeat| repeat.left_out.is_none());
    let types =
        counting.filter_map(|repeat| steps.iter().find(|step| step.key == repeat.step)?.types.get(at));
    let (sum, count) = types
        .filter_map(|one| Some((one.latency_us?.mean * one.transactions as f64, one.transactions as f64)))
        .fold((0.0, 0.0), |(sum, count), (time, transactions)| (sum + time, count + transactions));
    (count > 0.0 && sum > 0.0).then(|| sum / count)
}

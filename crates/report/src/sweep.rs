//! A sweep as text: its results as clauses of the answer, as numbers at the top, and as the sentences under its tables and
//! charts. Terminal page and web page take them from here.

mod charts;
mod page;
mod screen;

pub(crate) use charts::charts;
pub(crate) use page::section;
pub(crate) use screen::print;

use crate::facts::Facts;
use crate::tile::Tile;
use record::number;
use record::sweep::{
    COLLAPSE_FACTOR, Curve, Fit, GAIN_FACTOR, KNEE_GAIN, Mix, Outcome, Place, Point, Repeat, Sweep,
};

/// The key of the sweep's charts and section on the page.
pub(crate) const KEY: &str = "sweep";
/// Most curves described one by one in the answer.
const CURVES_NAMED: usize = 3;

/// `doubling them gains less than 10 %`.
fn knee_words() -> String {
    format!("doubling them gains less than {:.0} %", KNEE_GAIN * 100.0)
}

/// A number of sessions that a fit gives.
fn about(sessions: f64) -> String {
    number::counted(sessions.round().max(1.0) as u64, "session")
}

fn rate(tps: f64) -> String {
    format!("{} transactions/s", number::three(tps))
}

/// The clauses of the answer: mixes compared with pure reads and updates, if there are any, else the curves.
pub(crate) fn clauses(sweep: &Sweep) -> Vec<String> {
    if let Some(mix) = worst(sweep) {
        return vec![mix_clause(mix)];
    }
    sweep.curves.iter().take(CURVES_NAMED).map(curve_clause).collect()
}

/// The mix that is farthest below the expectation from its pure mixes.
fn worst(sweep: &Sweep) -> Option<&Mix> {
    sweep.mixes.iter().min_by(|left, right| left.factor.total_cmp(&right.factor))
}

fn mix_name(mix: &Mix) -> String {
    format!("{}/{}", mix.read_percent, 100 - mix.read_percent.min(100))
}

fn mix_clause(mix: &Mix) -> String {
    let at = number::counted(mix.sessions, "session");
    match mix.outcome {
        Outcome::Collapse => format!(
            "the {} mix of reads and updates collapses to {} of the throughput expected from its pure mixes, with {at}: {} instead of {}",
            mix_name(mix),
            factor(mix.factor),
            number::three(mix.tps),
            rate(mix.time_weighted_tps)
        ),
        _ => format!(
            "no mix of reads and updates falls below {COLLAPSE_FACTOR:.1}x of the throughput expected from its pure mixes; the lowest reaches {}, {} with {at}",
            factor(mix.factor),
            mix_name(mix),
        ),
    }
}

/// `0.42x`.
fn factor(factor: f64) -> String {
    format!("{factor:.2}x")
}

/// One curve in a clause.
fn curve_clause(curve: &Curve) -> String {
    let name = &curve.name;
    let (Some(best), Some(tps)) = (curve.best_sessions, curve.best_tps) else {
        return format!("{name} has no valid step");
    };
    if let [point] = curve.points.as_slice() {
        let repeats = range(point).map(|(low, high)| {
            format!(", {} to {} over {} passes", number::three(low), number::three(high), point.repeats.len())
        });
        let sessions = number::counted(best, "session");
        return format!("{name} reached {} with {sessions}{}", rate(tps), repeats.unwrap_or_default());
    }
    format!(
        "throughput of {name} is highest with {}, at {}; {}",
        number::counted(best, "session"),
        rate(tps),
        knee_clause(curve)
    )
}

/// The knee, or why there is none, as part of a sentence about a curve.
fn knee_clause(curve: &Curve) -> String {
    match (&curve.cannot_tell, curve.knee_sessions) {
        (Some(_), _) => format!("no knee was found: {}", knee(curve)),
        (None, Some(_)) => format!("its knee is {}", knee(curve)),
        (None, None) => format!("it has no knee {}", knee(curve)),
    }
}

/// The same beside the word knee.
fn knee_entry(curve: &Curve) -> String {
    match (&curve.cannot_tell, curve.knee_sessions) {
        (None, Some(_)) => knee(curve),
        (Some(_), _) => format!("cannot tell: {}", knee(curve)),
        (None, None) => format!("none {}", knee(curve)),
    }
}

fn knee(curve: &Curve) -> String {
    let first = curve.points.first().map_or(1.0, |point| point.sessions as f64);
    match (&curve.cannot_tell, curve.knee_sessions) {
        (Some(why), _) => why.clone(),
        (None, Some(knee)) if knee <= first => {
            format!("at or before the first step: from there on, {}", knee_words())
        }
        (None, Some(knee)) => format!("at {}: from there on, {}", about(knee), knee_words()),
        (None, None) => {
            let beyond = curve.fit.and_then(|fit| fit.usl().knee(KNEE_GAIN));
            format!(
                "up to {}: doubling them still gains more than {:.0} %{}",
                number::counted(curve.sessions_max().unwrap_or(1), "session"),
                KNEE_GAIN * 100.0,
                beyond.map_or(String::new(), |knee| format!(
                    "; the fit puts it at {}, not measured",
                    about(knee)
                ))
            )
        }
    }
}

/// Lowest and highest throughput of the valid repeats, if there are several.
fn range(point: &Point) -> Option<(f64, f64)> {
    let all: Vec<f64> = point
        .repeats
        .iter()
        .filter(|repeat| repeat.left_out.is_none())
        .filter_map(|repeat| repeat.tps)
        .collect();
    (all.len() > 1)
        .then(|| (all.iter().copied().fold(f64::INFINITY, f64::min), all.iter().copied().fold(0.0, f64::max)))
}

/// The parameters of the fit and how well it fits.
fn fit_words(fit: &Fit) -> String {
    let r2 = fit.r2.map_or(String::new(), |r2| format!(", R2 {r2:.3}"));
    format!(
        "contention {}, coherency {}{r2}, {:.1} % away on average over {}",
        share(fit.sigma),
        small(fit.kappa),
        fit.error * 100.0,
        number::counted(fit.points, "step")
    )
}

/// `X(N) = 1,005 N / (1 + 0.0481 (N-1) + 1.05e-3 N (N-1))`.
fn law_words(fit: &Fit) -> String {
    let lambda = number::three(fit.lambda_tps);
    format!("X(N) = {lambda} N / (1 + {} (N-1) + {} N (N-1))", small(fit.sigma), small(fit.kappa))
}

/// A share as percent.
fn share(value: f64) -> String {
    match value * 100.0 {
        0.0 => "0 %".to_string(),
        tiny if tiny < 0.01 => format!("{tiny:.1e} %"),
        percent => format!("{percent:.2} %"),
    }
}

/// A number that may be tiny.
fn small(value: f64) -> String {
    match value {
        0.0 => "0".to_string(),
        tiny if tiny < 0.01 => format!("{tiny:.2e}"),
        some => format!("{some:.4}"),
    }
}

/// The sessions of the law's highest throughput, and whether they were measured.
fn peak_words(curve: &Curve, fit: &Fit) -> String {
    let farthest = curve.sessions_max().unwrap_or(1) as f64;
    match (fit.peak_sessions, fit.ceiling_tps) {
        (Some(sessions), Some(tps)) if sessions <= farthest => {
            format!("peak predicted at {}: {}", about(sessions), rate(tps))
        }
        (Some(sessions), Some(tps)) => {
            format!("peak predicted beyond the measured range: {}, {}", about(sessions), rate(tps))
        }
        (None, Some(tps)) => format!("never falls; at most {} with any number of sessions", rate(tps)),
        _ => "no limit seen: throughput grows with the sessions".to_string(),
    }
}

/// The latency at the knee.
fn latency_words(curve: &Curve) -> Option<String> {
    match curve.latency_knee_sessions {
        Some(sessions) => Some(format!(
            "most throughput per p99 with {}: beyond them p99 grows faster than throughput",
            number::counted(sessions, "session")
        )),
        None if curve.measured().count() >= record::sweep::LATENCY_KNEE_POINTS_MIN => {
            Some("throughput per p99 still grows at the last step".to_string())
        }
        None => None,
    }
}

/// The length of the warm-ups of a point, and whether throughput settled in them.
fn warm_up(facts: &Facts, repeats: &[Repeat]) -> String {
    let place = |repeat: &Repeat| {
        facts
            .steps
            .iter()
            .find(|step| step.step.key == repeat.step)?
            .step
            .sweep
            .clone()
            .filter(|place| place.warmup_s > Some(0.0))
    };
    let places: Vec<Place> = repeats.iter().filter_map(place).collect();
    let Some(longest) = places.iter().filter_map(|place| place.warmup_s).reduce(f64::max) else {
        return String::new();
    };
    let longest = number::duration(longest);
    let moved: Vec<f64> = places
        .iter()
        .filter(|place| place.settled == Some(false))
        .filter_map(|place| place.spread_percent)
        .collect();
    let of = if places.len() > 1 { format!("{} of {} ", moved.len(), places.len()) } else { String::new() };
    match moved.into_iter().reduce(f64::max) {
        Some(spread) => format!("{longest}, {of}varied {spread:.0} %"),
        None if places.iter().all(|place| place.settled == Some(true)) => format!("settled in {longest}"),
        None => longest,
    }
}

/// The meaning of the columns of the table of mixes.
fn mixes_words() -> String {
    format!(
        "Weighted mean: the pure throughputs by their shares of the transactions. Time-weighted: by the time that sessions spend in each \
         (harmonic mean), which is what sessions reach if they do not slow each other down; the factor is relative to it. Below {COLLAPSE_FACTOR:.1}x is \
         a collapse, above {GAIN_FACTOR:.2}x a gain. Read and update: their mean times, as multiples of those in the pure mixes."
    )
}

fn outcome(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Collapse => "collapse",
        Outcome::Gain => "gain",
        Outcome::Expected => "as expected",
        Outcome::Unknown => "",
    }
}

/// `3.1x`.
fn slowdown(times: Option<f64>) -> String {
    times.map_or("-".to_string(), |times| format!("{times:.1}x"))
}

/// The numbers at the head of the page.
pub(crate) fn tiles(sweep: &Sweep) -> Vec<Tile> {
    let tile = |label: String, value: String, unit: &str, detail: String| Tile {
        label,
        value,
        unit: unit.to_string(),
        detail,
        key: KEY.to_string(),
    };
    let best = |curve: &Curve| {
        let sessions = curve.best_sessions?;
        let point = curve.points.iter().find(|point| point.sessions == sessions)?;
        let time = |us: u64| number::latency(us as f64);
        let latency = point.p99_us.map_or(String::new(), |p99| format!(" · p99 {}", time(p99)));
        let detail = format!("with {}{latency}", number::counted(sessions, "session"));
        Some(tile(
            format!("{}, highest", curve.name),
            number::three(curve.best_tps?),
            "transactions/s",
            detail,
        ))
    };
    let mut tiles = vec![];
    if let Some(mix) = worst(sweep) {
        let detail = format!(
            "{} of {} with {}",
            number::three(mix.tps),
            rate(mix.time_weighted_tps),
            number::counted(mix.sessions, "session")
        );
        tiles.push(tile(
            format!("{} mix, lowest", mix_name(mix)),
            format!("{:.2}", mix.factor),
            "x expected",
            detail,
        ));
        let pure = |percent| sweep.curves.iter().find(|curve| curve.read_percent == Some(percent));
        tiles.extend([pure(100), pure(0)].into_iter().flatten().filter_map(best));
        return tiles;
    }
    if let [curve] = sweep.curves.as_slice() {
        tiles.extend(best(curve));
        if let (Some(knee), Some(fit), None) = (curve.knee_sessions, &curve.fit, &curve.cannot_tell) {
            let detail = fit_words(fit).split(", ").take(3).collect::<Vec<_>>().join(" · ");
            tiles.push(tile(
                "knee of the throughput".to_string(),
                format!("{:.0}", knee.max(1.0)),
                "sessions",
                detail,
            ));
        }
        if let Some(sessions) = curve.latency_knee_sessions {
            let detail = "most throughput per p99".to_string();
            tiles.push(tile("knee of the latency".to_string(), number::count(sessions), "sessions", detail));
        }
        return tiles;
    }
    sweep.curves.iter().take(3).filter_map(best).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::usl::Usl;

    fn curve(usl: Usl, sessions: &[u64]) -> Curve {
        let point = |sessions: &u64| {
            let tps = Some(usl.at(*sessions as f64));
            let repeat = Repeat { step: format!("c{sessions}"), tps, ..Repeat::default() };
            Point { sessions: *sessions, tps, repeats: vec![repeat], ..Point::default() }
        };
        let points: Vec<Point> = sessions.iter().map(point).collect();
        let best = points.iter().max_by(|left, right| left.tps.partial_cmp(&right.tps).expect("numbers"));
        let fit = Fit {
            lambda_tps: usl.lambda,
            sigma: usl.sigma,
            kappa: usl.kappa,
            r2: Some(1.0),
            ..Fit::default()
        };
        Curve {
            name: "orders".into(),
            best_sessions: best.map(|point| point.sessions),
            best_tps: best.and_then(|point| point.tps),
            fit: Some(fit),
            knee_sessions: usl.knee(KNEE_GAIN).filter(|knee| *knee <= sessions[sessions.len() - 1] as f64),
            points,
            ..Curve::default()
        }
    }

    const AMDAHL: Usl = Usl { lambda: 1000.0, sigma: 0.01, kappa: 0.0 };

    #[test]
    fn a_knee_beyond_the_measured_range_is_marked() {
        let curve = curve(AMDAHL, &[1, 8, 64]);
        assert_eq!(
            knee_entry(&curve),
            "none up to 64 sessions: doubling them still gains more than 10 %; the fit puts it at 445 sessions, not measured"
        );
        assert!(curve_clause(&curve).starts_with(
            "throughput of orders is highest with 64 sessions, at 39,264 transactions/s; it has no knee up to"
        ));
        let fit = curve.fit.expect("a fit");
        assert_eq!(
            peak_words(&curve, &Fit { ceiling_tps: AMDAHL.ceiling(), ..fit }),
            "never falls; at most 100,000 transactions/s with any number of sessions"
        );
        assert_eq!(peak_words(&curve, &fit), "no limit seen: throughput grows with the sessions");
    }

    #[test]
    fn unknown_knees_are_not_shown() {
        let curve =
            Curve { cannot_tell: Some("too few".into()), knee_sessions: None, ..curve(AMDAHL, &[1, 2]) };
        assert!(curve_clause(&curve).ends_with("no knee was found: too few"), "{}", curve_clause(&curve));
        assert_eq!(knee_entry(&curve), "cannot tell: too few");
        let none = Curve { name: "orders".into(), ..Curve::default() };
        assert_eq!(curve_clause(&none), "orders has no valid step");
    }

    #[test]
    fn a_flat_curve_and_a_single_point_have_their_own_words() {
        let flat = curve(Usl { sigma: 1.0, ..AMDAHL }, &[4, 8, 16, 32]);
        assert!(
            knee_clause(&flat).starts_with("its knee is at or before the first step"),
            "{}",
            knee_clause(&flat)
        );
        let mut single = curve(AMDAHL, &[8]);
        let repeat = Repeat { tps: Some(7000.0), ..Repeat::default() };
        single.points[0].repeats.push(repeat);
        assert_eq!(
            curve_clause(&single),
            "orders reached 7,477 transactions/s with 8 sessions, 7,000 to 7,477 over 2 passes"
        );
    }

    #[test]
    fn small_numbers_keep_their_digits() {
        assert_eq!([0.0, 0.000_012_34, 0.0312].map(small), ["0", "1.23e-5", "0.0312"]);
        assert_eq!([0.0, 0.000_012, 0.0312].map(share), ["0 %", "1.2e-3 %", "3.12 %"]);
    }
}

use super::*;
use crate::model::{Run, State, Step, TypeStatistics, Verdict};
use crate::{LatencySummary, Summary};

fn step(name: &str, place: Place, tps: f64, p99_us: u64) -> Step {
    let latency = LatencySummary { mean: 100.0, p50: p99_us / 2, p99: p99_us, ..LatencySummary::default() };
    Step {
        key: format!("run-{name}-c{}-r{}", place.sessions, place.repeat),
        verb: "run".into(),
        name: name.into(),
        state: State::Finished,
        verdict: Verdict::valid(),
        summary: Summary {
            verb: "run".into(),
            valid: true,
            duration_s: 10.0,
            transactions: Some((tps * 10.0) as u64),
            tps: Some(tps),
            latency_us: Some(latency),
            ..Summary::default()
        },
        sweep: Some(place),
        ..Step::default()
    }
}

fn place(sessions: u64, repeat: u64) -> Place {
    Place { sessions, repeat, settled: Some(true), ..Place::default() }
}

/// Steps of a law, with latencies as a closed loop has them.
fn planted(usl: Usl, sessions: &[u64]) -> Vec<Step> {
    let at = |n: &u64| {
        let tps = usl.at(*n as f64);
        step("ycsb-c", place(*n, 1), tps, (*n as f64 / tps * 2e6) as u64)
    };
    sessions.iter().map(at).collect()
}

const LAW: Usl = Usl { lambda: 1000.0, sigma: 0.05, kappa: 0.001 };
const DOUBLING: [u64; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

fn only_curve(steps: &[Step]) -> Curve {
    let mut sweep = Sweep::of(steps).expect("a sweep");
    assert_eq!((sweep.curves.len(), sweep.mixes.len()), (1, 0));
    sweep.curves.remove(0)
}

#[test]
fn a_curve_has_its_best_point_its_fit_and_both_knees() {
    let curve = only_curve(&planted(LAW, &DOUBLING));
    assert_eq!((curve.name.as_str(), curve.points.len()), ("ycsb-c", 8));
    assert_eq!(curve.best_sessions, Some(32));
    let fit = curve.fit.expect("eight points");
    assert!((fit.sigma - 0.05).abs() < 1e-6 && (fit.kappa - 0.001).abs() < 1e-8, "{fit:?}");
    assert!((fit.peak_sessions.expect("coherency") - 30.82).abs() < 0.01, "{fit:?}");
    assert_eq!(curve.cannot_tell, None);
    let knee = curve.knee_sessions.expect("inside 1 to 128");
    assert!((LAW.at(2.0 * knee) / LAW.at(knee) - 1.1).abs() < 1e-6, "{knee}");
    // Power is X(N)^2 / N here.
    let power = |n: &&u64| LAW.at(**n as f64).powi(2) / **n as f64;
    let most = DOUBLING.iter().max_by(|left, right| power(left).total_cmp(&power(right)));
    assert_eq!(curve.latency_knee_sessions.as_ref(), most);
}

#[test]
fn a_knee_beyond_what_was_measured_is_not_named() {
    let curve = only_curve(&planted(LAW, &[1, 2, 3, 4]));
    assert!(curve.fit.is_some() && curve.cannot_tell.is_none());
    assert_eq!((curve.knee_sessions, curve.latency_knee_sessions), (None, None));
    let linear = Usl { sigma: 0.0, kappa: 0.0, ..LAW };
    let curve = only_curve(&planted(linear, &DOUBLING));
    assert_eq!((curve.knee_sessions, curve.fit.expect("a fit").ceiling_tps), (None, None));
}

#[test]
fn too_few_points_and_points_without_a_law_report_that_there_is_no_law() {
    for few in [1, 2, 3] {
        let curve = only_curve(&planted(LAW, &DOUBLING[..few]));
        assert!(curve.fit.is_none() && curve.knee_sessions.is_none());
        assert!(curve.cannot_tell.expect("why").contains(&format!("{few} different")), "{few}");
        assert!(curve.best_sessions.is_some());
    }
    let saw = [10.0, 90.0, 12.0, 85.0, 9.0];
    let steps: Vec<Step> =
        DOUBLING.iter().zip(saw).map(|(n, tps)| step("x", place(*n, 1), tps, 1000)).collect();
    let curve = only_curve(&steps);
    assert!(curve.cannot_tell.expect("why").contains("do not follow the law: R2"));
    assert!(curve.fit.is_some() && curve.knee_sessions.is_none(), "the fit is there to be looked at");
    // Noise on a flat curve has a poor R2 as well, and yet the law describes it.
    let flat = [1000.0, 1012.0, 991.0, 1003.0, 998.0, 1010.0];
    let steps: Vec<Step> =
        DOUBLING.iter().zip(flat).map(|(n, tps)| step("x", place(*n, 1), tps, 1000 * n)).collect();
    let curve = only_curve(&steps);
    assert_eq!(
        (curve.cannot_tell, curve.knee_sessions, curve.latency_knee_sessions),
        (None, Some(1.0), Some(1))
    );
}

#[test]
fn steps_that_do_not_count_stay_in_the_list_with_their_reason() {
    let mut steps = planted(LAW, &DOUBLING);
    steps[7].verdict.invalidate("this client was the limit");
    steps[7].summary.tps = Some(9.0);
    steps[6].state = State::Interrupted;
    steps[5].state = State::Failed;
    steps[5].summary = Summary::default();
    steps[5].verdict = Verdict { reasons: vec!["too many clients".into()], ..Verdict::default() };
    let curve = only_curve(&steps);
    let why: Vec<Option<&str>> =
        curve.points.iter().map(|point| point.repeats[0].left_out.as_deref()).collect();
    assert_eq!(why[..5], [None; 5]);
    assert_eq!(why[5..], [Some("too many clients"), Some("interrupted"), Some("this client was the limit")]);
    assert_eq!(curve.points[7].tps, None);
    assert_eq!(curve.points[7].repeats[0].tps, Some(9.0));
    assert!((curve.fit.expect("five points").sigma - LAW.sigma).abs() < 1e-6);
}

#[test]
fn repeats_are_averaged_and_their_slowest_percentile_kept() {
    let mut steps = planted(LAW, &[1, 2, 4, 8]);
    steps.extend([8u64, 4, 2, 1].map(|n| step("ycsb-c", place(n, 2), LAW.at(n as f64) * 1.1, 50)));
    let curve = only_curve(&steps);
    assert_eq!(curve.points.len(), 4);
    let point = &curve.points[2];
    assert!((point.tps.expect("measured") / LAW.at(4.0) - 1.05).abs() < 1e-9);
    assert_eq!(point.p99_us, steps[2].summary.latency_us.map(|latency| latency.p99));
    assert_eq!(curve.fit.expect("a fit").points, 8);
}

fn typed(mut step: Step, means: &[f64]) -> Step {
    let one = |mean: &f64| TypeStatistics {
        transactions: 100,
        latency_us: Some(LatencySummary { mean: *mean, ..LatencySummary::default() }),
        ..TypeStatistics::default()
    };
    step.types = means.iter().map(one).collect();
    step
}

#[test]
fn a_mix_is_compared_with_both_means_of_the_pure_ones() {
    let mix = |percent: u64, tps: f64, means: &[f64]| {
        let place = Place { read_percent: Some(percent), ..place(8, 1) };
        typed(step(&format!("read/update {percent}/{}", 100 - percent), place, tps, 900), means)
    };
    let steps = [
        mix(100, 9000.0, &[100.0]),
        mix(50, 1000.0, &[400.0, 600.0]),
        mix(25, 3600.0, &[110.0, 310.0]),
        mix(0, 3000.0, &[300.0]),
    ];
    let sweep = Sweep::of(&steps).expect("a sweep");
    assert_eq!((sweep.curves.len(), sweep.mixes.len()), (4, 2));
    let half = &sweep.mixes[0];
    assert_eq!((half.sessions, half.read_percent, half.outcome), (8, 50, Outcome::Collapse));
    assert!((half.weighted_mean_tps - 6000.0).abs() < 1e-9);
    assert!(
        (half.time_weighted_tps - 4500.0).abs() < 1e-9,
        "a session needs 1/9000 or 1/3000 of a second in turn"
    );
    assert!((half.factor - 1000.0 / 4500.0).abs() < 1e-9);
    assert_eq!((half.read_slowdown, half.update_slowdown), (Some(4.0), Some(2.0)));
    assert_eq!(
        (sweep.mixes[1].outcome, sweep.mixes[1].time_weighted_tps.round()),
        (Outcome::Expected, 3600.0)
    );
    // Without a pure mix there is nothing to compare with.
    assert_eq!(Sweep::of(&steps[..3]).expect("a sweep").mixes, []);
}

#[test]
fn a_run_of_a_sweep_stands_while_one_step_does() {
    let plan = Plan { steps: 9, missing: vec!["no checkpoint: permission denied".into()], ..Plan::default() };
    let mut run =
        Run { verb: "run".into(), steps: planted(LAW, &DOUBLING), sweep: Some(plan), ..Run::default() };
    run.steps[7].verdict.invalidate("this client was the limit");
    run.steps[3].verdict.notes.push("a worker waited".into());
    if let Some(place) = &mut run.steps[0].sweep {
        place.settled = Some(false);
    }
    run.conclude();
    assert!(run.verdict.valid && run.summary.valid);
    assert_eq!(
        run.verdict.notes,
        [
            "run-ycsb-c-c128-r1 does not count: this client was the limit",
            "1 step was not started",
            "throughput had not settled when the measurement began, in 1 of 8 steps",
            "no checkpoint: permission denied",
            "1 of 8 steps have their own notes",
        ]
    );
    assert_eq!((run.summary.tps, run.summary.steps.len()), (None, 8));
    for step in &mut run.steps {
        step.verdict = Verdict::default();
        step.verdict.invalidate("this client was the limit");
    }
    run.conclude();
    assert!(!run.verdict.valid);
    assert_eq!(run.verdict.reasons.len(), 8);
}

#[test]
fn a_run_without_places_is_no_sweep() {
    assert_eq!(Sweep::of(&[]), None);
    assert_eq!(Sweep::of(&[Step::default()]), None);
}

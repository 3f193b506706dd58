use super::*;
use proptest::prelude::*;

/// Doubling session counts, as a sweep has them.
const SESSIONS: [f64; 9] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];

fn planted(usl: Usl, noise: impl Fn(usize) -> f64) -> Vec<(f64, f64)> {
    SESSIONS.iter().enumerate().map(|(at, n)| (*n, usl.at(*n) * (1.0 + noise(at)))).collect()
}

fn assert_near(found: f64, planted: f64, tolerance: f64, what: &str) {
    assert!((found - planted).abs() <= tolerance, "{what}: {found} is not {planted}");
}

fn usl() -> impl Strategy<Value = Usl> {
    let sigma = prop_oneof![Just(0.0), (1e-4f64..0.6)];
    let kappa = prop_oneof![Just(0.0), (-6.0f64..-1.5).prop_map(|power| 10f64.powf(power))];
    (1.0f64..6.0, sigma, kappa).prop_map(|(power, sigma, kappa)| Usl {
        lambda: 10f64.powf(power),
        sigma,
        kappa,
    })
}

proptest! {
    #[test]
    fn planted_parameters_are_found_again(usl in usl()) {
        let found = fit(&planted(usl, |_| 0.0)).expect("nine points");
        prop_assert!(found.error < 1e-6, "{found:?}");
        prop_assert!((found.usl.lambda / usl.lambda - 1.0).abs() < 1e-4, "{found:?}");
        prop_assert!((found.usl.sigma - usl.sigma).abs() < 1e-4 * (usl.sigma + 0.01), "{found:?}");
        prop_assert!((found.usl.kappa - usl.kappa).abs() < 1e-4 * (usl.kappa + 1e-5), "{found:?}");
        prop_assert!(found.r2.is_none_or(|r2| r2 > 0.999_999), "{found:?}");
    }

    #[test]
    fn noise_moves_the_curve_by_no_more_than_itself(
        usl in usl(), noise in proptest::collection::vec(-0.03f64..0.03, SESSIONS.len()),
    ) {
        let points = planted(usl, |at| noise[at]);
        let found = fit(&points).expect("nine points");
        // The optimum cannot be worse than the planted curve itself.
        let of = |usl: &Usl| cost(&points, usl);
        prop_assert!(of(&found.usl) <= of(&usl) * (1.0 + 1e-9), "{found:?}");
        let highest = points.iter().map(|(_, throughput)| *throughput).fold(0.0, f64::max);
        for n in SESSIONS {
            prop_assert!((found.usl.at(n) - usl.at(n)).abs() < 0.09 * highest, "{n}: {found:?}");
        }
        prop_assert!((0.0..=1.0).contains(&found.usl.sigma) && found.usl.kappa >= 0.0);
    }

    #[test]
    fn no_points_of_any_kind_break_it(
        points in proptest::collection::vec((1u32..2000, 0.001f64..1e9), 0..20),
    ) {
        let points: Vec<(f64, f64)> = points.iter().map(|(n, x)| (f64::from(*n), *x)).collect();
        if let Ok(found) = fit(&points) {
            let Usl { lambda, sigma, kappa } = found.usl;
            prop_assert!(lambda > 0.0 && (0.0..=1.0).contains(&sigma) && kappa >= 0.0 && kappa.is_finite(), "{found:?}");
            prop_assert!(found.r2.is_none_or(|r2| (-1e-6..=1.0).contains(&r2)), "a constant is one of the laws: {found:?}");
            prop_assert!(found.usl.peak().is_none_or(|(n, x)| n >= 1.0 && x > 0.0), "{found:?}");
        }
    }

    #[test]
    fn the_knee_is_where_doubling_gains_a_tenth(usl in usl()) {
        match usl.knee(0.1) {
            Some(knee) => {
                let gain = |n: f64| usl.at(2.0 * n) / usl.at(n) - 1.0;
                let is_there = if knee > 1.0 { (gain(knee) - 0.1).abs() < 1e-6 } else { gain(1.0) <= 0.1 + 1e-9 };
                prop_assert!(is_there, "{knee}");
                prop_assert!(gain(knee * 1.5) < 0.1);
                prop_assert!(usl.peak().is_none_or(|(peak, _)| knee <= peak + 1e-6), "before the peak");
            }
            None => prop_assert!(usl.sigma == 0.0 && usl.kappa == 0.0),
        }
    }
}

#[test]
fn the_law_has_its_known_limits() {
    let law = Usl { lambda: 1000.0, sigma: 0.02, kappa: 0.0005 };
    assert_near(law.at(1.0), 1000.0, 1e-9, "one session");
    let (sessions, throughput) = law.peak().expect("coherency");
    assert_near(sessions, (0.98f64 / 0.0005).sqrt(), 1e-9, "N*");
    for beside in [sessions - 1.0, sessions + 1.0] {
        assert!(law.at(beside) < throughput);
    }
    let amdahl = Usl { kappa: 0.0, ..law };
    assert_eq!((amdahl.peak(), amdahl.ceiling()), (None, Some(50_000.0)));
    assert_near(amdahl.knee(0.1).expect("contention"), 4.5 * 0.98 / 0.02, 1e-6, "knee");
    let linear = Usl { sigma: 0.0, kappa: 0.0, ..law };
    assert_eq!((linear.peak(), linear.ceiling(), linear.knee(0.1)), (None, None, None));
    let flat = Usl { sigma: 1.0, kappa: 0.0, ..law };
    assert_eq!((flat.ceiling(), flat.knee(0.1)), (Some(1000.0), Some(1.0)));
}

#[test]
fn too_few_points_are_refused_and_repeats_are_not_counted_as_more() {
    let of = |points: &[(f64, f64)]| fit(points).expect_err("too few");
    assert_eq!(of(&[]), NoFit::TooFew { distinct: 0 });
    assert_eq!(of(&[(1.0, 5.0)]), NoFit::TooFew { distinct: 1 });
    assert_eq!(of(&[(1.0, 5.0), (2.0, 9.0)]), NoFit::TooFew { distinct: 2 });
    let repeats = [(1.0, 5.0), (1.0, 5.1), (2.0, 9.0), (2.0, 9.1), (4.0, 15.0)];
    assert_eq!(of(&repeats), NoFit::TooFew { distinct: 3 });
    assert_eq!(of(&[(1.0, 5.0), (2.0, 0.0), (4.0, 9.0), (8.0, 9.0)]), NoFit::NoThroughput);
    assert_eq!(of(&[(1.0, 5.0), (2.0, f64::NAN), (4.0, 9.0), (8.0, 9.0)]), NoFit::NoThroughput);
}

#[test]
fn a_throughput_that_never_changes_is_all_contention() {
    let found = fit(&SESSIONS.map(|n| (n, 700.0))).expect("nine points");
    assert_near(found.usl.sigma, 1.0, 1e-9, "sigma");
    assert_near(found.usl.lambda, 700.0, 1e-6, "lambda");
    assert_eq!(found.r2, None, "there is nothing to explain");
    assert!(found.error < 1e-9);
    assert_eq!(found.usl.knee(0.1), Some(1.0));
}

#[test]
fn linear_scaling_has_neither_contention_nor_knee() {
    let found = fit(&SESSIONS.map(|n| (n, 700.0 * n))).expect("nine points");
    assert_eq!((found.usl.sigma, found.usl.kappa), (0.0, 0.0));
    assert_near(found.usl.lambda, 700.0, 1e-6, "lambda");
    assert_eq!(found.usl.knee(0.1), None);
    // More than linear, as caches that fill up give it, is beyond the law: the bound holds.
    let found = fit(&SESSIONS.map(|n| (n, 700.0 * n.powf(1.2)))).expect("nine points");
    assert_eq!((found.usl.sigma, found.usl.kappa), (0.0, 0.0));
}

#[test]
fn a_throughput_that_only_falls_peaks_at_one_session() {
    let found = fit(&SESSIONS.map(|n| (n, 5000.0 / n))).expect("nine points");
    let (sessions, throughput) = found.usl.peak().expect("it falls");
    assert_near(sessions, 1.0, 0.2, "N*");
    assert_near(throughput, 5000.0, 100.0, "peak");
    assert!(found.r2.is_some_and(|r2| r2 > 0.99), "{found:?}");
    assert_eq!(found.usl.knee(0.1), Some(1.0));
}

#[test]
fn points_that_follow_no_law_have_a_poor_fit() {
    let saw = [(1.0, 10.0), (2.0, 90.0), (4.0, 12.0), (8.0, 85.0), (16.0, 9.0), (32.0, 95.0)];
    let found = fit(&saw).expect("six points");
    assert!(found.r2.is_some_and(|r2| r2 < 0.4) && found.error > 0.3, "{found:?}");
}

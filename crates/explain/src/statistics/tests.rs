use super::*;
use proptest::prelude::*;

#[test]
fn one_peer_in_five_stands_out() {
    let found = contrasts(&[0.15, 0.16, 5.0, 0.14, 0.15]);
    let slow = found[2];
    assert!(slow.ratio > 30.0 && slow.deviations > 100.0, "{slow:?}");
    assert!(found.iter().filter(|contrast| contrast.ratio > 3.0).count() == 1, "{found:?}");
    assert_eq!(contrasts(&[1.0]), [], "no peer to compare with");
}

#[test]
fn a_step_is_dated_and_noise_is_not() {
    let step: Vec<f64> = (0..100).map(|i| if i < 60 { 100.0 } else { 50.0 } + f64::from(i % 7)).collect();
    let found = change(&step).expect("a change");
    assert_eq!(found.at, 60);
    assert!(found.p < 0.01 && found.before > 100.0 && found.after < 60.0, "{found:?}");
    let even: Vec<f64> = (0..100).map(|i| 100.0 + f64::from(i * 37 % 11)).collect();
    assert!(change(&even).is_none_or(|change| change.p > 0.05), "{:?}", change(&even));
    assert_eq!(change(&[5.0; 50]), None, "what never varies has not changed");
}

#[test]
fn a_saw_has_its_period_and_a_ramp_has_none() {
    let saw: Vec<f64> = (0..120).map(|i| f64::from(i % 20) * 4.0).collect();
    let found = period(&saw, 0.5).expect("a period");
    assert_eq!(found.lag, 20);
    let ramp: Vec<f64> = (0..120).map(f64::from).collect();
    assert_eq!(period(&ramp, 0.5), None);
    let mut random = Random::new(7);
    let noise: Vec<f64> = (0..120).map(|_| random.below(100) as f64).collect();
    assert_eq!(period(&noise, 0.5), None);
    assert_eq!(period(&[3.0; 60], 0.5), None);
}

#[test]
fn peaks_behind_checkpoints_are_no_chance_and_scattered_ones_are() {
    let second = 1_000_000;
    let uneven: Vec<u64> = [13, 71, 160, 222, 349, 401].map(|s| s * second).to_vec();
    let behind: Vec<u64> = uneven.iter().map(|mark| mark + 2 * second).collect();
    let (hits, p) = coincidence(&behind, &uneven, 480 * second, second, 5 * second);
    assert!(hits == 6 && p < 0.01, "{p}");
    let scattered: Vec<u64> = (0..6).map(|i| (i * 83 + 40) * second).collect();
    let (_, p) = coincidence(&scattered, &uneven, 480 * second, second, 5 * second);
    assert!(p > 0.05, "{p}");
    assert_eq!(coincidence(&[], &uneven, 480 * second, second, 5 * second), (0, 1.0));
}

proptest! {
    #[test]
    fn a_median_lies_among_its_values(values in proptest::collection::vec(-1e6f64..1e6, 1..50)) {
        let middle = median(values.iter().copied()).expect("a median");
        let below = values.iter().filter(|value| **value <= middle).count();
        let above = values.iter().filter(|value| **value >= middle).count();
        prop_assert!(below * 2 >= values.len() && above * 2 >= values.len());
    }

    #[test]
    fn the_slope_of_a_line_is_its_slope(a in -100.0f64..100.0, b in -1e3f64..1e3, n in 2usize..40) {
        let points: Vec<(f64, f64)> = (0..n).map(|x| (x as f64, a * x as f64 + b)).collect();
        let found = slope(&points).expect("x varies");
        prop_assert!((found - a).abs() < 1e-6 * (1.0 + a.abs()));
    }

    #[test]
    fn a_quantile_is_one_of_the_values_and_grows(values in proptest::collection::vec(0.0f64..1e6, 1..50)) {
        let found: Vec<f64> = [0.0, 0.25, 0.5, 0.99, 1.0].iter().map(|q| quantile(values.iter().copied(), *q).expect("a value")).collect();
        prop_assert!(found.windows(2).all(|pair| pair[0] <= pair[1]));
        prop_assert!(found.iter().all(|value| values.contains(value)));
    }

    #[test]
    fn scaling_everything_keeps_who_stands_out(values in proptest::collection::vec(0.1f64..100.0, 3..12), factor in 0.01f64..100.0) {
        let scaled: Vec<f64> = values.iter().map(|value| value * factor).collect();
        for (left, right) in contrasts(&values).iter().zip(contrasts(&scaled)) {
            prop_assert!((left.ratio - right.ratio).abs() < 1e-6 * left.ratio.abs().max(1.0));
        }
    }
}

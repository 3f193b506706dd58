//! Frozen sequences, known answers of pgbench and YCSB, and goodness of fit on fixed seeds (so that a pass is a pass forever).

use super::pgbench::{exponential, gaussian, hash_fnv1a, hash_murmur2, permute, zipfian};
use super::ranks::{Chooser, THETA, Zipfian, zeta};
use super::zipf::Zipf;
use super::*;

const SEED: u64 = 20_261_120;

/// Fails when the counts are further from the expected ones than 4.5 standard deviations of the chi-square distribution: with a
/// right generator that is about one seed in 10^5, and the seeds are fixed.
fn assert_fits(name: &str, counts: &[u64], probabilities: &[f64]) {
    let total: u64 = counts.iter().sum();
    let mut statistic = 0.0;
    for (count, probability) in counts.iter().zip(probabilities) {
        let expected = probability * total as f64;
        assert!(
            expected >= 5.0,
            "{name}: a cell expects only {expected} of {total} draws; the test shows nothing"
        );
        statistic += (*count as f64 - expected).powi(2) / expected;
    }
    let freedom = (counts.len() - 1) as f64;
    let limit = freedom + 4.5 * (2.0 * freedom).sqrt();
    assert!(statistic < limit, "{name}: chi-square {statistic:.1} over {limit:.1}: {counts:?}");
    assert!(
        (probabilities.iter().sum::<f64>() - 1.0).abs() < 1e-9,
        "{name}: the expectation is no distribution"
    );
}

fn tally(cells: usize, draws: u64, mut draw: impl FnMut() -> u64) -> Vec<u64> {
    let mut counts = vec![0; cells];
    for _ in 0..draws {
        counts[draw() as usize] += 1;
    }
    counts
}

#[test]
fn the_sequence_of_a_transaction_is_frozen() {
    let mut random = Random::for_transaction(1, 0, 0);
    let first: Vec<u64> = (0..4).map(|_| random.next_u64()).collect();
    assert_eq!(first, GOLDEN_1_0_0);
    let mut random = Random::for_transaction(42, 31, 1_000_000_007);
    let far: Vec<u64> = (0..4).map(|_| random.next_u64()).collect();
    assert_eq!(far, GOLDEN_42_31);
    let mut random = Random::for_stream(u64::MAX, 3);
    assert_eq!(random.next_u64(), GOLDEN_STREAM);
}

#[test]
fn the_generator_is_xoshiro256_plus_plus() {
    // First outputs of the authors' C code from the state 1, 2, 3, 4.
    let mut random = Random { state: [1, 2, 3, 4] };
    for expected in [41_943_041, 58_720_359, 3_588_806_011_781_223, 3_591_011_842_654_386] {
        assert_eq!(random.next_u64(), expected);
    }
}

#[test]
fn what_scripts_draw_is_frozen() {
    let mut random = Random::for_transaction(7, 1, 2);
    let uniform: Vec<i64> = (0..4).map(|_| random.between(1, 100_000)).collect();
    assert_eq!(uniform, GOLDEN_BETWEEN);
    let normal: Vec<i64> = (0..4).map(|_| gaussian(&mut random, 1, 1_000_000, 2.5)).collect();
    assert_eq!(normal, GOLDEN_GAUSSIAN);
    let falling: Vec<i64> = (0..4).map(|_| exponential(&mut random, 1, 1_000_000, 5.0)).collect();
    assert_eq!(falling, GOLDEN_EXPONENTIAL);
    let sampler = Zipf::new(1_000_000_000, 1.07);
    let ranked: Vec<i64> = (0..4).map(|_| zipfian(&mut random, 1, &sampler)).collect();
    assert_eq!(ranked, GOLDEN_ZIPFIAN);
    let zipfian = Zipfian::new(1_000_000_000_000);
    let ranks: Vec<u64> = (0..6).map(|_| zipfian.sample(&mut random)).collect();
    assert_eq!(ranks, GOLDEN_RANKS);
    assert_eq!(random.exponential(250.0).to_bits(), GOLDEN_WAIT_BITS);
}

#[test]
fn a_transaction_replays_alone_and_differs_from_its_neighbours() {
    let mut again = Random::for_transaction(SEED, 3, 99);
    let mut original = Random::for_transaction(SEED, 3, 99);
    for _ in 0..100 {
        assert_eq!(original.next_u64(), again.next_u64());
    }
    let mut firsts: Vec<u64> = Vec::new();
    for session in 0..100 {
        for sequence in 0..100 {
            firsts.push(Random::for_transaction(SEED, session, sequence).next_u64());
            firsts.push(Random::for_transaction(SEED + 1, session, sequence).next_u64());
        }
    }
    for stream in 0..100 {
        firsts.push(Random::for_stream(SEED, stream).next_u64());
    }
    firsts.sort_unstable();
    firsts.dedup();
    assert_eq!(firsts.len(), 20_100, "two transactions start with the same 64 bits");
}

#[test]
fn first_draws_across_neighbouring_transactions_are_uniform() {
    // A weak seeding shows here: each transaction draws once, only the transaction number moves.
    let mut sequence = 0;
    let counts = tally(64, 200_000, || {
        sequence += 1;
        Random::for_transaction(1, 0, sequence).below(64)
    });
    assert_fits("by sequence", &counts, &[1.0 / 64.0; 64]);
    let mut session = 0;
    let counts = tally(64, 200_000, || {
        session += 1;
        let mut random = Random::for_transaction(1, session, 1);
        random.next_u64();
        random.next_u64() >> 58
    });
    assert_fits("by session, second draw", &counts, &[1.0 / 64.0; 64]);
}

#[test]
fn below_is_uniform_and_in_range_for_awkward_bounds() {
    let mut random = Random::for_transaction(SEED, 0, 0);
    let counts = tally(7, 100_000, || random.below(7));
    assert_fits("below 7", &counts, &[1.0 / 7.0; 7]);
    // The bound where a plain multiplication is most biased: 2/3 of the range hit twice as often.
    let bound = (u64::MAX / 3) * 2;
    let counts = tally(2, 100_000, || u64::from(random.below(bound) >= bound / 2));
    assert_fits("below 2/3 of 2^64", &counts, &[0.5; 2]);
    for bound in [1, 2, 1 << 31, (1 << 32) + 1, 1_000_000_000_000, u64::MAX] {
        for _ in 0..1000 {
            assert!(random.below(bound) < bound);
        }
    }
    assert_eq!(random.below(0), 0);
}

#[test]
fn between_takes_both_ends_and_the_whole_range() {
    let mut random = Random::for_transaction(SEED, 0, 1);
    let mut seen = [false; 3];
    for _ in 0..200 {
        seen[(random.between(-1, 1) + 1) as usize] = true;
    }
    assert_eq!(seen, [true; 3]);
    assert_eq!(random.between(5, 5), 5);
    assert_eq!(random.between(5, 4), 5);
    let negatives = (0..10_000).filter(|_| random.between(i64::MIN, i64::MAX) < 0).count();
    assert!((4_700..5_300).contains(&negatives), "{negatives} of 10000 are negative");
    for _ in 0..1000 {
        assert!(random.between(i64::MAX - 1, i64::MAX) >= i64::MAX - 1);
        assert!(random.between(i64::MIN, i64::MIN + 1) <= i64::MIN + 1);
    }
}

#[test]
fn uniform_normal_and_waiting_times_have_their_mean_and_variance() {
    let mut random = Random::for_transaction(SEED, 0, 2);
    let draws = 200_000;
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let flat: Vec<f64> = (0..draws).map(|_| random.uniform()).collect();
    assert!(flat.iter().all(|u| (0.0..1.0).contains(u)));
    assert!((mean(&flat) - 0.5).abs() < 0.003);
    let normal: Vec<f64> = (0..draws).map(|_| random.gaussian()).collect();
    assert!(mean(&normal).abs() < 0.01);
    let variance = normal.iter().map(|x| x * x).sum::<f64>() / f64::from(draws);
    assert!((variance - 1.0).abs() < 0.015, "{variance}");
    let within = normal.iter().filter(|x| x.abs() < 1.0).count() as f64 / f64::from(draws);
    assert!((within - 0.682_689).abs() < 0.005, "{within}");
    let waits: Vec<f64> = (0..draws).map(|_| random.exponential(250.0)).collect();
    assert!(waits.iter().all(|w| *w >= 0.0 && w.is_finite()));
    assert!((mean(&waits) - 250.0).abs() < 3.0, "{}", mean(&waits));
    let late = waits.iter().filter(|w| **w > 500.0).count() as f64 / f64::from(draws);
    assert!((late - (-2.0_f64).exp()).abs() < 0.004, "{late}");
    let often = (0..draws).filter(|_| random.chance(0.05)).count() as f64 / f64::from(draws);
    assert!((often - 0.05).abs() < 0.003);
}

#[test]
fn gaussian_cells_have_the_manuals_probabilities() {
    // The manual of pgbench: value i of [min, max] is drawn with probability
    // (PHI(2p(i - min - mu + 0.5)/(max - min + 1)) - PHI(2p(i - min - mu - 0.5)/(max - min + 1))) / (2 PHI(p) - 1),
    // mu = (max - min) / 2, PHI the normal distribution function.
    let phi = |x: f64| 0.5 * (1.0 + libm::erf(x / std::f64::consts::SQRT_2));
    for parameter in [2.0, 3.5, 5.0] {
        let mut random = Random::for_transaction(SEED, 1, parameter as u64);
        let cells = 11;
        let counts = tally(cells, 400_000, || (gaussian(&mut random, 100, 110, parameter) - 100) as u64);
        let edge = |i: f64| phi(2.0 * parameter * (i - 5.5) / 11.0);
        let norm = 2.0 * phi(parameter) - 1.0;
        let expected: Vec<f64> = (0..cells).map(|i| (edge(i as f64 + 1.0) - edge(i as f64)) / norm).collect();
        assert_fits(&format!("gaussian {parameter}"), &counts, &expected);
    }
}

#[test]
fn exponential_cells_have_the_manuals_probabilities() {
    // The manual of pgbench: value i is drawn with probability f(i) - f(i + 1),
    // f(x) = (exp(-p (x - min) / (max - min + 1)) - exp(-p)) / (1 - exp(-p)).
    for parameter in [0.5, 2.0, 10.0] {
        let mut random = Random::for_transaction(SEED, 2, parameter as u64);
        let counts = tally(10, 400_000, || (exponential(&mut random, -5, 4, parameter) + 5) as u64);
        let tail = libm::exp(-parameter);
        let f = |i: f64| ((-parameter * i / 10.0).exp() - tail) / (1.0 - tail);
        let expected: Vec<f64> = (0..10).map(|i| f(f64::from(i)) - f(f64::from(i) + 1.0)).collect();
        assert_fits(&format!("exponential {parameter}"), &counts, &expected);
    }
    // A parameter too small to distinguish from a uniform one, and one that leaves only the first value.
    let mut random = Random::for_transaction(SEED, 2, 99);
    let counts = tally(4, 100_000, || exponential(&mut random, 0, 3, 1e-300) as u64);
    assert_fits("exponential 1e-300", &counts, &[0.25; 4]);
    assert!((0..1000).all(|_| exponential(&mut random, 7, 1_000_000, 1e12) == 7));
}

#[test]
fn shaped_distributions_stay_inside_extreme_ranges() {
    let mut random = Random::for_transaction(SEED, 3, 0);
    for (low, high) in [(0, 0), (i64::MAX, i64::MAX), (0, i64::MAX - 1), (i64::MIN, -2), (i64::MIN, i64::MIN)]
    {
        let sampler = Zipf::new((high as u64).wrapping_sub(low as u64).wrapping_add(1), 1.001);
        for _ in 0..2000 {
            for value in [
                gaussian(&mut random, low, high, 2.0),
                exponential(&mut random, low, high, 1e-9),
                zipfian(&mut random, low, &sampler),
            ] {
                assert!((low..=high).contains(&value), "{value} outside [{low}, {high}]");
            }
        }
    }
}

#[test]
fn zipf_follows_the_power_law_for_every_exponent() {
    for (n, exponent) in
        [(5, 1.001), (20, 1.001), (20, 1.5), (12, 2.5), (6, 4.0), (20, 0.99), (10, 0.5), (10, 1.0)]
    {
        let mut random = Random::for_transaction(SEED, 4, (exponent * 1000.0) as u64);
        let sampler = Zipf::new(n, exponent);
        let counts = tally(n as usize, 300_000, || sampler.sample(&mut random) - 1);
        let weights: Vec<f64> = (1..=n).map(|k| (k as f64).powf(-exponent)).collect();
        let total: f64 = weights.iter().sum();
        let expected: Vec<f64> = weights.iter().map(|w| w / total).collect();
        assert_fits(&format!("zipf n={n} s={exponent}"), &counts, &expected);
    }
}

#[test]
fn zipf_takes_the_extremes() {
    let mut random = Random::for_transaction(SEED, 5, 0);
    let steep = Zipf::new(u64::MAX, 1000.0);
    assert!((0..1000).all(|_| steep.sample(&mut random) == 1));
    let single = Zipf::new(1, 1.5);
    assert!((0..1000).all(|_| single.sample(&mut random) == 1));
    assert_eq!(Zipf::new(0, 1.5).count(), 1);
    let wide = Zipf::new(1 << 62, 1.001);
    let beyond = (0..10_000).filter(|_| wide.sample(&mut random) > 1_000_000).count();
    // With s near 1 the mass is nearly flat in log k: about 2/3 lies above 10^6 of 4.6 * 10^18.
    assert!((6_000..7_500).contains(&beyond), "{beyond}");
}

#[test]
fn zeta_agrees_with_the_plain_sum() {
    for theta in [0.01, 0.5, 0.9, 0.99, 0.999_9, 1.0, 1.5] {
        let mut sum = 0.0;
        // Compensated, or the reference itself would be off by more than what is asserted.
        let mut lost = 0.0;
        for k in 1..=1_000_000_u64 {
            let term = libm::pow(k as f64, -theta) - lost;
            let next = sum + term;
            lost = (next - sum) - term;
            sum = next;
            if [1, 2, 3, 31, 32, 33, 34, 100, 1_000, 65_536, 1_000_000].contains(&k) {
                let fast = zeta(k, theta);
                assert!((fast / sum - 1.0).abs() < 1e-12, "zeta({k}, {theta}) = {fast}, summed {sum}");
            }
        }
    }
}

#[test]
fn zeta_agrees_with_the_constant_in_ycsb() {
    // ScrambledZipfianGenerator.ZETAN in YCSB: zeta for 10^10 items, summed there term by term.
    let reference = 26.469_028_201_783_02;
    assert!((zeta(10_000_000_000, THETA) / reference - 1.0).abs() < 1e-9);
    // Far out it keeps growing by the integral: zeta(10^12) - zeta(10^10) = (10^0.12 - 10^0.10) / 0.01 to first order.
    let grown = zeta(1_000_000_000_000, THETA) - zeta(10_000_000_000, THETA);
    let area = (10_f64.powf(0.12) - 10_f64.powf(0.10)) / 0.01;
    assert!((grown / area - 1.0).abs() < 1e-6, "{grown} against {area}");
}

#[test]
fn ycsb_zipfian_has_the_published_shape() {
    let n = 1_000;
    let mut random = Random::for_transaction(SEED, 6, 0);
    let zipfian = Zipfian::new(n);
    let draws = 400_000;
    let counts = tally(n as usize, draws, || zipfian.sample(&mut random));
    let zeta_n = zeta(n, THETA);
    // The first two ranks are exact; the rest follows Gray's curve, whose distribution function is written out here.
    let eta = (1.0 - (2.0 / n as f64).powf(0.01)) / (1.0 - zeta(2, THETA) / zeta_n);
    let curve = |rank: f64| 1.0 + ((rank / n as f64).powf(0.01) - 1.0) / eta;
    let bounds = [2.0, 3.0, 5.0, 10.0, 30.0, 100.0, 300.0, 1000.0];
    let mut cells = vec![counts[0], counts[1]];
    let mut expected = vec![1.0 / zeta_n, 0.5_f64.powf(THETA) / zeta_n];
    let mut below = zeta(2, THETA) / zeta_n;
    for pair in bounds.windows(2) {
        cells.push(counts[pair[0] as usize..pair[1] as usize].iter().sum());
        expected.push(curve(pair[1]) - below);
        below = curve(pair[1]);
    }
    assert_fits("ycsb zipfian", &cells, &expected);
    // And the curve is close to the law it approximates: the hottest tenth takes its share by the zeta law, within two points.
    let top: u64 = counts[..100].iter().sum();
    let share = top as f64 / draws as f64;
    assert!((share - zeta(100, THETA) / zeta_n).abs() < 0.02, "{share}");
}

#[test]
fn choosers_cover_their_domain_and_follow_its_growth() {
    let mut random = Random::for_transaction(SEED, 7, 0);
    for n in [0, 1, 2, 3, 10] {
        for mut chooser in [Chooser::uniform(n), Chooser::zipfian(n), Chooser::latest(n)] {
            let domain = n.max(1);
            assert_eq!(chooser.domain(), domain);
            let counts = tally(domain as usize, 3_000, || chooser.sample(&mut random));
            assert!(counts.iter().all(|count| *count > 0), "{chooser:?}: {counts:?}");
            chooser.set_domain(1_000_000_000_000);
            assert!((0..1000).all(|_| chooser.sample(&mut random) < 1_000_000_000_000));
        }
    }
    // Growing step by step ends where starting there begins.
    let mut grown = Zipfian::new(1);
    for n in 2..=5_000 {
        grown.set_domain(n);
    }
    assert_eq!(grown, Zipfian::new(5_000));
    let latest = Chooser::latest(1_000_000);
    let new = (0..10_000).filter(|_| latest.sample(&mut random) >= 990_000).count();
    assert!(new > 6_000, "latest drew only {new} of 10000 from the newest hundredth");
    let flat = Chooser::uniform(1 << 40);
    let upper = (0..10_000).filter(|_| flat.sample(&mut random) >= 1 << 39).count();
    assert!((4_700..5_300).contains(&upper));
}

#[test]
fn zipfian_with_an_odd_theta_stays_in_range() {
    let mut random = Random::for_transaction(SEED, 8, 0);
    for theta in [-1.0, 0.0, 0.5, 1.0, 2.0, f64::NAN, f64::INFINITY] {
        let zipfian = Zipfian::with_theta(1000, theta);
        assert!((0..1000).all(|_| zipfian.sample(&mut random) < 1000));
    }
}

#[test]
fn permute_answers_what_pgbench_answers() {
    // (value, size, seed, answer of pgbench 15.18)
    for (value, size, seed, answer) in [
        (0, 2, 0, 0),
        (1, 2, 0, 1),
        (0, 3, 5432, 0),
        (1, 3, 5432, 1),
        (2, 3, 5432, 2),
        (0, 5, 54321, 0),
        (4, 5, 54321, 3),
        (7, 10, 1, 8),
        (-1, 10, 1, 3),
        (42, 1_000_000, 123_456_789, 170_009),
        (999_999, 1_000_000, 123_456_789, 791_626),
        (123_456, 2_147_483_648, -1, 555_882_111),
        (1, 4_294_967_297, 17, 128_588_591),
        (123_456_789_012, 1_000_000_000_000, 17, 458_266_716_599),
        (5, i64::MAX, 5432, 1_714_532_105_801_689_870),
        (i64::MIN, i64::MAX, i64::MIN, 2_787_068_492_670_133_621),
        (0, 1, 9, 0),
        (1_048_575, 1_048_576, 3, 236_093),
    ] {
        assert_eq!(permute(value, size, seed), answer, "permute({value}, {size}, {seed})");
    }
    assert_eq!(permute(5, 0, 1), 0);
    assert_eq!(permute(5, -7, 1), 0);
}

#[test]
fn permute_is_a_permutation() {
    for size in [1, 2, 3, 4, 7, 8, 100, 1023, 1024, 1025] {
        for seed in [0, 1, -1, 987_654_321] {
            let mut image: Vec<i64> = (0..size).map(|value| permute(value, size, seed)).collect();
            image.sort_unstable();
            assert_eq!(image, (0..size).collect::<Vec<_>>(), "size {size} seed {seed}");
        }
    }
}

#[test]
fn hashes_answer_what_pgbench_answers() {
    assert_eq!(hash_fnv1a(0, 0), -6_284_781_860_667_377_211);
    assert_eq!(hash_fnv1a(10, 5432), -7_793_829_335_365_542_153);
    assert_eq!(hash_fnv1a(-1, -1), 9_116_541_788_052_886_162);
    assert_eq!(hash_fnv1a(i64::MAX, 1_234_567_890_123), -2_252_585_722_205_779_034);
    assert_eq!(hash_murmur2(0, 0), 8_217_090_173_679_840_641);
    assert_eq!(hash_murmur2(10, 5432), -5_817_877_081_768_721_676);
    assert_eq!(hash_murmur2(-1, -1), 1_317_380_444_104_773_032);
    assert_eq!(hash_murmur2(i64::MAX, 1_234_567_890_123), -8_786_206_679_053_829_016);
}

// The frozen answers. A change here means that recorded runs no longer replay: it needs a new version of the run format, not an
// edit of these lines.
const GOLDEN_1_0_0: [u64; 4] = [
    13_402_462_244_660_247_466,
    12_127_307_754_895_770_674,
    5_057_700_422_840_661_101,
    6_496_441_402_164_678_915,
];
const GOLDEN_42_31: [u64; 4] = [
    13_867_516_140_243_344_374,
    8_124_755_538_881_114_776,
    12_367_280_633_547_319_957,
    13_105_291_050_932_384_632,
];
const GOLDEN_STREAM: u64 = 672_756_922_959_094_633;
const GOLDEN_BETWEEN: [i64; 4] = [72_882, 85_193, 3649, 77_335];
const GOLDEN_GAUSSIAN: [i64; 4] = [427_671, 152_759, 368_429, 265_493];
const GOLDEN_EXPONENTIAL: [i64; 4] = [264_204, 47_525, 113_941, 88_745];
const GOLDEN_ZIPFIAN: [i64; 4] = [13, 971, 8_618_178, 6];
const GOLDEN_RANKS: [u64; 6] = [3_662_580, 11_958_053, 14_695, 6, 36_939_632_749, 121_429_701_775];
const GOLDEN_WAIT_BITS: u64 = 4_625_951_047_916_388_122;

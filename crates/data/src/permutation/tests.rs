use super::*;
use proptest::prelude::*;

#[test]
fn covers_every_small_domain_exactly_once() {
    for domain in 1..=600 {
        for seed in [0, 1, u64::MAX] {
            let permutation = Permutation::new(seed, 3, domain);
            let mut seen = vec![false; domain as usize];
            for i in 0..domain {
                let v = permutation.apply(i);
                assert!(!std::mem::replace(&mut seen[v as usize], true), "domain {domain}: {v} twice");
                assert_eq!(permutation.invert(v), i, "domain {domain}");
            }
        }
    }
}

#[test]
fn covers_a_domain_of_a_million_exactly_once() {
    let domain = 1_000_003;
    let permutation = Permutation::new(42, 0, domain);
    let mut seen = vec![false; domain as usize];
    for i in 0..domain {
        seen[permutation.apply(i) as usize] = true;
    }
    assert!(seen.iter().all(|&hit| hit));
}

/// Scattered keys must be spread evenly: with 64 buckets over images of consecutive numbers, chi squared with 63
/// degrees of freedom stays below 120 (p < 10^-5). The seed is fixed, so this either holds or it does not.
#[test]
fn spreads_consecutive_numbers_evenly() {
    for domain in [1_000_000, 1 << 32, crate::ycsb::KEY_SPACE] {
        let permutation = Permutation::new(7, 0, domain);
        let mut buckets = [0u64; 64];
        for i in 0..64_000 {
            buckets[(u128::from(permutation.apply(i)) * 64 / u128::from(domain)) as usize] += 1;
        }
        let chi_squared: u64 = buckets.iter().map(|&n| (n as i64 - 1000).pow(2) as u64).sum::<u64>() / 1000;
        assert!(chi_squared < 120, "domain {domain}: chi squared {chi_squared}");
    }
}

#[test]
fn differs_by_seed_and_by_stream() {
    let domain = 1 << 40;
    let images = |seed, stream| -> Vec<u64> {
        let permutation = Permutation::new(seed, stream, domain);
        (0..8).map(|i| permutation.apply(i)).collect()
    };
    assert_ne!(images(1, 0), images(2, 0));
    assert_ne!(images(1, 0), images(1, 1));
}

#[test]
#[should_panic(expected = "outside the permutation's domain")]
fn refuses_a_number_outside() {
    let _ = Permutation::new(1, 0, 10).apply(10);
}

proptest! {
    #[test]
    fn inverse_undoes_apply(seed: u64, stream: u64, domain in 1u64..=DOMAIN_MAX, pick: u64) {
        let permutation = Permutation::new(seed, stream, domain);
        let i = pick % domain;
        let v = permutation.apply(i);
        prop_assert!(v < domain);
        prop_assert_eq!(permutation.invert(v), i);
        prop_assert_eq!(permutation.apply(permutation.invert(i)), i);
    }

    #[test]
    fn edges_of_powers_of_two(seed: u64, bits in 1u32..=62, offset in -1i64..=1, pick: u64) {
        let domain = (1u64 << bits).wrapping_add_signed(offset);
        let permutation = Permutation::new(seed, 0, domain);
        for i in [0, domain - 1, pick % domain] {
            let v = permutation.apply(i);
            prop_assert!(v < domain);
            prop_assert_eq!(permutation.invert(v), i);
        }
    }
}

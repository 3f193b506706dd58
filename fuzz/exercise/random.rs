//! Draws from every distribution with any arguments that a script can pass: results stay in range, nothing panics or loops.

use run::random::Random;
use run::random::pgbench::{
    GAUSSIAN_PARAMETER_MIN, ZIPFIAN_PARAMETER_MAX, ZIPFIAN_PARAMETER_MIN, exponential, gaussian, permute,
    zipfian,
};
use run::random::ranks::{Chooser, Zipfian, zeta};
use run::random::zipf::Zipf;

/// Bytes of one input: a seed, two numbers and a parameter.
const INPUT_BYTES: usize = 32;

pub(crate) fn exercise(data: &[u8]) {
    let Some(input) = data.first_chunk::<INPUT_BYTES>() else { return };
    let word = |index: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&input[index * 8..index * 8 + 8]);
        u64::from_le_bytes(bytes)
    };
    let (seed, first, second, parameter) = (word(0), word(1), word(2), f64::from_bits(word(3)));
    let mut random = Random::for_transaction(seed, first, second);
    assert!(first == 0 || random.below(first) < first);

    let (low, high) = ((first as i64).min(second as i64), (first as i64).max(second as i64));
    assert!((low..=high).contains(&random.between(low, high)));

    // Scripts refuse ranges whose size is no i64, and parameters out of range, before they draw.
    if let Some(count) = high.checked_sub(low).and_then(|span| span.checked_add(1)) {
        let within = |value: i64| assert!((low..=high).contains(&value), "{value} outside [{low}, {high}]");
        if parameter >= GAUSSIAN_PARAMETER_MIN {
            within(gaussian(&mut random, low, high, parameter));
        }
        if parameter > 0.0 {
            within(exponential(&mut random, low, high, parameter));
        }
        if (ZIPFIAN_PARAMETER_MIN..=ZIPFIAN_PARAMETER_MAX).contains(&parameter) {
            within(zipfian(&mut random, low, &Zipf::new(count as u64, parameter)));
        }
        assert!((0..count).contains(&permute(seed as i64, count, second as i64)));
    }

    let mut choosers = [Chooser::uniform(first), Chooser::zipfian(first), Chooser::latest(first)];
    for chooser in &mut choosers {
        assert!(chooser.sample(&mut random) < first.max(1));
        chooser.set_domain(second);
        assert!(chooser.sample(&mut random) < second.max(1));
    }
    assert!(Zipfian::with_theta(first, parameter).sample(&mut random) < first.max(1));
    let (fewer, more) = (first.min(second), first.max(second));
    assert!(zeta(fewer, 0.99) <= zeta(more, 0.99) * (1.0 + 1e-12));
}

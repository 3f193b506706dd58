//! pgbench's random functions, hashes and permutation, as its manual defines them.
//!
//! The three shaped distributions have pgbench's definitions (range, parameter, density) but this program's draws: pgbench's own
//! sequence of numbers for a seed is not part of its interface. `permute` and the hashes are: they answer bit for bit what pgbench
//! 15 to 18 answers (`src/bin/pgbench/pgbench.c`, known answers in the tests), because scripts use them to pick keys.

use super::Random;
use super::zipf::Zipf;

/// Smallest parameter of `random_gaussian`: below it, rejection would loop too often.
pub const GAUSSIAN_PARAMETER_MIN: f64 = 2.0;
/// Range of the exponent of `random_zipfian`.
pub const ZIPFIAN_PARAMETER_MIN: f64 = 1.001;
/// Largest exponent of `random_zipfian`.
pub const ZIPFIAN_PARAMETER_MAX: f64 = 1000.0;

const FNV_OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;
const MURMUR2_MULTIPLIER: u64 = 0xc6a4_a793_5bd1_e995;
const MURMUR2_SHIFT: u32 = 47;
/// Bytes hashed: the length enters murmur2's initial state.
const HASHED_BYTES: u64 = 8;

/// Puts `fraction` in `[0, 1)` onto `[low, high]`. The range must have passed the caller's check that `high - low + 1` fits an i64.
fn onto_range(low: i64, high: i64, fraction: f64) -> i64 {
    let count = high.wrapping_sub(low).wrapping_add(1);
    // A range above 2^53 can round up to `count` itself; the last value absorbs it.
    let offset = ((count as f64 * fraction) as i64).clamp(0, count.saturating_sub(1).max(0));
    low.wrapping_add(offset)
}

/// `random_gaussian(low, high, parameter)`: a bell over the range, cut at `parameter` standard deviations on both sides.
/// `parameter` must be at least [`GAUSSIAN_PARAMETER_MIN`].
pub fn gaussian(random: &mut Random, low: i64, high: i64, parameter: f64) -> i64 {
    // With the smallest parameter one draw in twenty-two is rejected.
    let deviate = loop {
        let deviate = random.gaussian();
        if deviate >= -parameter && deviate < parameter {
            break deviate;
        }
    };
    onto_range(low, high, (deviate + parameter) / (parameter * 2.0))
}

/// `random_exponential(low, high, parameter)`: density falls from the first value to the last by the factor exp(-parameter).
/// `parameter` must be above zero.
pub fn exponential(random: &mut Random, low: i64, high: i64, parameter: f64) -> i64 {
    let cut = libm::exp(-parameter);
    let uniform = 1.0 - random.uniform();
    let fraction = -libm::log(cut + (1.0 - cut) * uniform) / parameter;
    // A parameter so small that cut rounds to 1 has a flat density, which the formula turns into 0/0-like noise.
    let fraction = if cut >= 1.0 { 1.0 - uniform } else { fraction };
    onto_range(low, high, fraction)
}

/// `random_zipfian(low, high, parameter)`: the k-th value of the range has probability proportional to k^-parameter.
/// `sampler` must have been made for `high - low + 1` values ([`Zipf::new`]); it is passed in because making it costs more than a
/// draw and scripts draw from the same range again and again.
pub fn zipfian(random: &mut Random, low: i64, sampler: &Zipf) -> i64 {
    low.wrapping_add((sampler.sample(random) - 1) as i64)
}

/// `hash_fnv1a(value, seed)`: FNV-1a over the eight bytes of `value`, least significant first.
#[must_use]
pub fn hash_fnv1a(value: i64, seed: i64) -> i64 {
    let mut hash = FNV_OFFSET_BASIS ^ seed as u64;
    for byte in value.to_le_bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME);
    }
    hash as i64
}

/// `hash_murmur2(value, seed)`, also called `hash`: MurmurHash2 (64A, Austin Appleby) of the eight bytes of `value`.
#[must_use]
pub fn hash_murmur2(value: i64, seed: i64) -> i64 {
    let mut block = (value as u64).wrapping_mul(MURMUR2_MULTIPLIER);
    block ^= block >> MURMUR2_SHIFT;
    block = block.wrapping_mul(MURMUR2_MULTIPLIER);

    let mut hash = seed as u64 ^ MURMUR2_MULTIPLIER.wrapping_mul(HASHED_BYTES);
    hash = (hash ^ block).wrapping_mul(MURMUR2_MULTIPLIER);
    hash = (hash ^ (hash >> MURMUR2_SHIFT)).wrapping_mul(MURMUR2_MULTIPLIER);
    (hash ^ (hash >> MURMUR2_SHIFT)) as i64
}

/// PostgreSQL's own generator (`src/common/pg_prng.c`: xoroshiro128** seeded through SplitMix64), here only because `permute`
/// is defined by its output.
struct PostgresRandom {
    s0: u64,
    s1: u64,
}

impl PostgresRandom {
    fn new(seed: u64) -> Self {
        let s0 = super::mix(seed.wrapping_add(super::GOLDEN));
        let s1 = super::mix(seed.wrapping_add(super::GOLDEN.wrapping_mul(2)));
        PostgresRandom { s0, s1 }
    }

    fn next_u64(&mut self) -> u64 {
        let s0 = self.s0;
        let crossed = self.s1 ^ s0;
        let result = s0.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        self.s0 = s0.rotate_left(24) ^ crossed ^ (crossed << 16);
        self.s1 = crossed.rotate_left(37);
        result
    }

    /// A number in `[0, last]`, by taking just enough of the high bits and rejecting what lies above.
    fn up_to(&mut self, last: u64) -> u64 {
        if last == 0 {
            return 0;
        }
        let shift = last.leading_zeros();
        loop {
            let value = self.next_u64() >> shift;
            if value <= last {
                return value;
            }
        }
    }
}

/// Rounds of `permute`: part of its definition.
const PERMUTE_ROUNDS: u32 = 6;

/// `permute(value, size, seed)`: where `value` goes in a pseudorandom permutation of `[0, size)`; `value` is taken modulo `size`
/// (as an unsigned number). A size below 2 gives 0; sizes below 1 are the caller's error to report.
#[must_use]
pub fn permute(value: i64, size: i64, seed: i64) -> i64 {
    if size < 2 {
        return 0;
    }
    let size = size as u64;
    let mut value = value as u64 % size;
    let mut random = PostgresRandom::new(seed as u64);
    // The largest power of two not above size; the two halves worked on (from below, from above) overlap when size is none.
    let bits = 63 - size.leading_zeros();
    let mask = (1_u64 << bits) - 1;
    // Multiply by an odd number and xor, modulo the power of two; then bring the well mixed top bit down.
    let scramble = |value: u64, multiplier: u64, flips: u64| {
        let value = (value.wrapping_mul(multiplier) ^ flips) & mask;
        ((value << 1) & mask) | (value >> (bits - 1))
    };
    for _ in 0..PERMUTE_ROUNDS {
        let multiplier = (random.next_u64() & mask) | 1;
        let flips = random.next_u64() & mask;
        if value <= mask {
            value = scramble(value, multiplier, flips);
        }
        let multiplier = (random.next_u64() & mask) | 1;
        let flips = random.next_u64() & mask;
        let from_above = size - 1 - value;
        if from_above <= mask {
            value = size - 1 - scramble(from_above, multiplier, flips);
        }
        // size is at most 2^63 - 1, so the sum cannot wrap.
        value = (value + random.up_to(size - 1)) % size;
    }
    value as i64
}

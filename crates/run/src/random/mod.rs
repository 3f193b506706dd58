//! The run's random numbers: pure, seeded, the same on every host.
//!
//! A session's n-th transaction draws from [`Random::for_transaction`]`(seed, session, n)`, so any single transaction of a
//! finished run can be replayed alone, in O(1), without replaying the ones before it; and a retried transaction that starts
//! from the same triple repeats its draws exactly, which is what pgbench does when it retries after a serialization failure.
//!
//! Floating point appears only in distributions, and every transcendental function comes from `libm` (pure Rust, one result
//! everywhere), never from the platform's C library, so that a replay on another host gives the same values.

pub mod pgbench;
pub mod ranks;
pub mod zipf;

#[cfg(test)]
mod tests;

/// Odd constant of the golden ratio, the usual step of a Weyl sequence.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Finalizer of SplitMix64 (Steele, Lea, Flood 2014): a bijection of u64 in which every input bit reaches every output bit.
#[inline]
pub(crate) const fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// A stream of random numbers: xoshiro256++ (Blackman and Vigna 2018), 32 bytes, about a nanosecond a draw.
///
/// The output of a given seed is frozen (golden vectors in the tests): a run recorded today replays tomorrow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Random {
    state: [u64; 4],
}

impl Random {
    /// The draws of transaction number `sequence` of session `session` in a run seeded with `seed`.
    ///
    /// Two different triples never share a state: the first word is a bijection of a 64-bit digest of the triple, and where two
    /// digests collide the raw numbers, folded into the other words, still distinguish the triples.
    #[must_use]
    pub fn for_transaction(seed: u64, session: u64, sequence: u64) -> Random {
        let digest = mix(seed.wrapping_add(GOLDEN));
        let digest = mix(digest ^ session.wrapping_mul(GOLDEN)).wrapping_add(GOLDEN);
        let digest = mix(digest ^ sequence.wrapping_mul(GOLDEN));
        let word = |n: u64| mix(digest.wrapping_add(GOLDEN.wrapping_mul(n)));
        let mut state = [word(1), word(2) ^ sequence, word(3) ^ session, word(4) ^ seed];
        // The all-zero state is the one fixed point of the generator.
        if state == [0; 4] {
            state[0] = GOLDEN;
        }
        Random { state }
    }

    /// A stream for something that happens once per run or per worker (arrivals, the choice of a default seed), apart from every
    /// transaction's: sessions are numbered from zero up, streams of this kind from the top down.
    #[must_use]
    pub fn for_stream(seed: u64, stream: u64) -> Random {
        Random::for_transaction(seed, u64::MAX, stream)
    }

    /// The next 64 random bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let [s0, s1, s2, s3] = self.state;
        let result = s0.wrapping_add(s3).rotate_left(23).wrapping_add(s0);
        let s2 = s2 ^ s0;
        let s3 = s3 ^ s1;
        self.state = [s0 ^ s3, s1 ^ s2, s2 ^ (s1 << 17), s3.rotate_left(45)];
        result
    }

    /// A number in `[0, n)`, every one exactly as likely (Lemire 2019: one multiplication, a division only when a draw falls into
    /// the short biased part). `below(0)` is 0, so that no input panics.
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        let mut product = u128::from(self.next_u64()) * u128::from(n);
        if (product as u64) < n {
            // 2^64 mod n: draws whose low half is below it would make some results one draw likelier than others.
            let threshold = n.wrapping_neg() % n;
            while (product as u64) < threshold {
                product = u128::from(self.next_u64()) * u128::from(n);
            }
        }
        (product >> 64) as u64
    }

    /// A number in `[low, high]`, both ends included, over the whole i64 range. An empty range (`low > high`) gives `low`.
    #[inline]
    pub fn between(&mut self, low: i64, high: i64) -> i64 {
        if low >= high {
            return low;
        }
        let count = (high as u64).wrapping_sub(low as u64).wrapping_add(1);
        // The count wraps to zero only for the full range, where 64 raw bits are the answer.
        let offset = if count == 0 { self.next_u64() } else { self.below(count) };
        (low as u64).wrapping_add(offset) as i64
    }

    /// A double in `[0, 1)`, a multiple of 2^-53.
    #[inline]
    pub fn uniform(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
    }

    /// True with the given probability (below 0 never, above 1 always).
    #[inline]
    pub fn chance(&mut self, probability: f64) -> bool {
        self.uniform() < probability
    }

    /// An exponential waiting time with the given mean, in the unit of the mean: the gaps of Poisson arrivals.
    #[inline]
    pub fn exponential(&mut self, mean: f64) -> f64 {
        // uniform() never reaches 1, so the logarithm's argument stays above zero; the largest gap is about 36.7 means.
        -libm::log(1.0 - self.uniform()) * mean
    }

    /// A normal deviate with mean 0 and standard deviation 1 (Box and Muller 1958, one of the pair; the other is not kept, so that
    /// a draw never depends on what was drawn before it was needed).
    pub fn gaussian(&mut self) -> f64 {
        let radius = libm::sqrt(-2.0 * libm::log(1.0 - self.uniform()));
        radius * libm::sin(2.0 * core::f64::consts::PI * self.uniform())
    }
}

//! A keyed bijection of [0, domain) for any domain up to 2^63, in constant memory.
//!
//! Keys must look scattered and yet never collide: a hash of the row number collides at 10^12 rows, so that a loader
//! either fails or needs `ON CONFLICT`. A Feistel network over just enough bits is a bijection by construction, and
//! *cycle walking* (Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002) cuts it down to a domain
//! that is no power of two: a result outside the domain is fed back until it falls inside. Fewer than two steps are
//! expected, because the domain fills more than half of the bits. The inverse walks the same cycle backwards.

use crate::mix::{mix, subkey};

/// Rounds of the network. Four give a pseudo-random permutation of large domains (Luby and Rackoff); two more cost
/// little and help the small ones.
const ROUNDS: usize = 6;
/// The largest domain.
const DOMAIN_MAX: u64 = 1 << 63;
/// Distinguishes the keys of permutations from every other use of a seed.
const PURPOSE: u64 = 0x7065_726D_7574_6531;

/// Bijection of [0, domain) chosen by (seed, stream); integers only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permutation {
    domain: u64,
    /// Bits of the low half; the high half has as many or one fewer.
    low_bits: u32,
    low_mask: u64,
    high_mask: u64,
    keys: [u64; ROUNDS],
}

impl Permutation {
    /// The permutation number `stream` of `[0, domain)` under `seed`.
    ///
    /// # Panics
    /// When `domain` is 0 or above 2^63.
    #[must_use]
    pub fn new(seed: u64, stream: u64, domain: u64) -> Self {
        assert!((1..=DOMAIN_MAX).contains(&domain), "a permutation needs a domain of 1..=2^63, not {domain}");
        // Two bits at least, so that both halves exist; ceil(log2(domain)) otherwise.
        let bits = (u64::BITS - (domain - 1).leading_zeros()).max(2);
        let low_bits = bits.div_ceil(2);
        let base = subkey(seed, PURPOSE) ^ mix(stream);
        Permutation {
            domain,
            low_bits,
            low_mask: (1 << low_bits) - 1,
            high_mask: (1 << (bits - low_bits)) - 1,
            keys: std::array::from_fn(|round| subkey(base, round as u64)),
        }
    }

    /// The size of the domain.
    #[must_use]
    pub fn domain(&self) -> u64 {
        self.domain
    }

    /// The image of `i`.
    ///
    /// # Panics
    /// When `i` is outside the domain: walking from there would reach the image of another number.
    #[inline]
    #[must_use]
    pub fn apply(&self, i: u64) -> u64 {
        assert!(i < self.domain, "{i} is outside the permutation's domain of {}", self.domain);
        let mut value = i;
        loop {
            value = self.forward(value);
            if value < self.domain {
                return value;
            }
        }
    }

    /// The number whose image is `v`.
    ///
    /// # Panics
    /// When `v` is outside the domain.
    #[inline]
    #[must_use]
    pub fn invert(&self, v: u64) -> u64 {
        assert!(v < self.domain, "{v} is outside the permutation's domain of {}", self.domain);
        let mut value = v;
        loop {
            value = self.backward(value);
            if value < self.domain {
                return value;
            }
        }
    }

    /// One pass through the network: halves take turns in being masked by a function of the other.
    #[inline]
    fn forward(&self, value: u64) -> u64 {
        let mut low = value & self.low_mask;
        let mut high = value >> self.low_bits;
        for pair in self.keys.chunks_exact(2) {
            high ^= mix(low ^ pair[0]) & self.high_mask;
            low ^= mix(high ^ pair[1]) & self.low_mask;
        }
        high << self.low_bits | low
    }

    /// The same pass undone, rounds in reverse.
    #[inline]
    fn backward(&self, value: u64) -> u64 {
        let mut low = value & self.low_mask;
        let mut high = value >> self.low_bits;
        for pair in self.keys.chunks_exact(2).rev() {
            low ^= mix(high ^ pair[1]) & self.low_mask;
            high ^= mix(low ^ pair[0]) & self.high_mask;
        }
        high << self.low_bits | low
    }
}

#[cfg(test)]
mod tests;

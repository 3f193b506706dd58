//! The one pseudo-random function of format v1: a counter through a 64-bit finaliser.
//!
//! Word `i` of the stream that starts at `state` is `mix(state + i * GAMMA)`. This is SplitMix64 (Steele, Lea, Flood,
//! "Fast splittable pseudorandom number generators", OOPSLA 2014) read as a counter-based function, with the finaliser
//! "variant 13" of David Stafford. It has no carried state, so any word can be computed alone, and consecutive words
//! do not wait for each other in the pipeline. It hides nothing from an adversary and need not.

/// 2^64 divided by the golden ratio, made odd: the step between the words of one stream.
pub(crate) const GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

/// A bijection of u64 in which every input bit reaches every output bit.
#[inline(always)]
pub fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

/// Word `index` of the stream that starts at `state`.
#[inline(always)]
pub fn word(state: u64, index: u64) -> u64 {
    mix(state.wrapping_add(index.wrapping_mul(GAMMA)))
}

/// An independent key for `purpose` under `seed`: two different purposes never share a stream by accident.
pub fn subkey(seed: u64, purpose: u64) -> u64 {
    mix(mix(seed.wrapping_add(GAMMA)) ^ purpose.wrapping_mul(GAMMA))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published first outputs of SplitMix64 with seed 1234567 (Vigna's reference, as quoted on Rosetta Code).
    #[test]
    fn is_splitmix64() {
        let words: Vec<u64> = (1..=5).map(|index| word(1_234_567, index)).collect();
        assert_eq!(
            words,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423,
                4_593_380_528_125_082_431,
                16_408_922_859_458_223_821
            ]
        );
    }
}

//! Non-uniform random numbers (clause 2.1.6), the rule for their constants (clause 2.1.6.1), and last names (clause 4.3.2.3).

use std::ops::RangeInclusive;

use crate::mix::{subkey, word};

use super::rows::Text;

/// A of NURand for C_LAST.
pub const C_LAST_A: u32 = 255;
/// A of NURand for C_ID.
pub const C_ID_A: u32 = 1_023;
/// A of NURand for OL_I_ID.
pub const OL_I_ID_A: u32 = 8_191;

/// The values of C-Delta that clause 2.1.6.1 allows, but for [`C_DELTA_EXCLUDED`].
pub(crate) const C_DELTA: RangeInclusive<u32> = 65..=119;
/// The two values in between that it does not.
pub(crate) const C_DELTA_EXCLUDED: [u32; 2] = [96, 112];

/// The ten syllables of last names (clause 4.3.2.3).
pub(crate) const SYLLABLES: [&str; 10] =
    ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];

/// Distinguishes the draws of constants from every other use of a seed: `tpcC`.
const PURPOSE: u64 = 0x7470_6343_0000;

/// NURand(A, x, y) = (((random(0, A) | random(x, y)) + C) % (y - x + 1)) + x, where the two random numbers are `r1` and `r2`.
#[inline]
#[must_use]
pub fn nurand(a: u32, range: RangeInclusive<u32>, c: u32, r1: u32, r2: u32) -> u32 {
    let (x, y) = range.into_inner();
    debug_assert!(r1 <= a && c <= a && (x..=y).contains(&r2));
    ((r1 | r2) + c) % (y - x + 1) + x
}

/// C-Load: the constant for C_LAST while the database is populated, within [0 .. 255].
#[must_use]
pub fn c_load(seed: u64) -> u32 {
    draw(seed, 0, C_LAST_A)
}

/// Whether a run may use this constant for C_LAST on a database that was loaded with `c_load`.
#[must_use]
pub fn is_allowed(c_load: u32, c_run: u32) -> bool {
    let delta = c_load.abs_diff(c_run);
    c_run <= C_LAST_A && C_DELTA.contains(&delta) && !C_DELTA_EXCLUDED.contains(&delta)
}

/// The constants of a measured run: the same for all its terminals.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Constants {
    /// C-Run, for C_LAST.
    pub c_last: u32,
    /// For C_ID.
    pub c_id: u32,
    /// For OL_I_ID.
    pub ol_i_id: u32,
}

impl Constants {
    /// Constants that follow from what the ledger reports about the load, so that every process of a run has the same ones. `seed` is the
    /// run's to choose; each gives other constants, and each keeps the rule.
    ///
    /// # Panics
    /// When `c_load` is not within [0 .. 255].
    #[must_use]
    pub fn for_run(c_load: u32, seed: u64) -> Constants {
        assert!(c_load <= C_LAST_A, "C-Load is within [0 .. {C_LAST_A}], not {c_load}");
        let count = (0..=C_LAST_A).filter(|&c_run| is_allowed(c_load, c_run)).count() as u32;
        let chosen = draw(seed, 1, count - 1) as usize;
        let c_last = (0..=C_LAST_A).filter(|&c_run| is_allowed(c_load, c_run)).nth(chosen);
        Constants {
            c_last: c_last.expect("the number was chosen below the count"),
            c_id: draw(seed, 2, C_ID_A),
            ol_i_id: draw(seed, 3, OL_I_ID_A),
        }
    }
}

/// Number `index` within [0 .. `last`] of a seed.
fn draw(seed: u64, index: u64, last: u32) -> u32 {
    let word = word(subkey(seed, PURPOSE), index);
    ((u128::from(word) * u128::from(last + 1)) >> 64) as u32
}

/// The last name that belongs to a number of three digits: a syllable for each.
///
/// # Panics
/// When `number` is above 999.
#[must_use]
pub fn last_name(number: u32) -> Text<16> {
    assert!(number <= 999, "a last name has three syllables, {number} would have more");
    let mut bytes = [0; 16];
    let mut length = 0;
    for digit in [number / 100, number / 10 % 10, number % 10] {
        let syllable = SYLLABLES[digit as usize].as_bytes();
        bytes[length..length + syllable.len()].copy_from_slice(syllable);
        length += syllable.len();
    }
    Text::new(bytes, length)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of clause 4.3.2.3, and the longest name.
    #[test]
    fn last_names_are_those_of_the_specification() {
        assert_eq!(last_name(371).as_bytes(), b"PRICALLYOUGHT");
        assert_eq!(last_name(0).as_bytes(), b"BARBARBAR");
        assert_eq!(last_name(999).as_bytes(), b"EINGEINGEING");
        let longest = (0..=999).map(|number| last_name(number).len()).max();
        assert_eq!(longest, Some(15));
    }

    #[test]
    fn names_of_different_numbers_differ() {
        let names: std::collections::BTreeSet<Vec<u8>> =
            (0..=999).map(|number| last_name(number).as_bytes().to_vec()).collect();
        assert_eq!(names.len(), 1000);
    }

    #[test]
    fn nurand_is_the_formula() {
        assert_eq!(nurand(255, 0..=999, 0, 0, 0), 0);
        assert_eq!(nurand(255, 0..=999, 123, 255, 999), (1023 + 123) % 1000);
        assert_eq!(nurand(1023, 1..=3000, 259, 0b1010, 0b0101), 0b1111 + 259 + 1);
        assert_eq!(nurand(8191, 1..=100_000, 8191, 8191, 100_000), (106_495 + 8191) % 100_000 + 1);
    }

    #[test]
    fn a_run_keeps_its_distance_from_every_load() {
        for c_load in 0..=C_LAST_A {
            let mut seen = std::collections::BTreeSet::new();
            for seed in 0..300 {
                let constants = Constants::for_run(c_load, seed);
                let delta = c_load.abs_diff(constants.c_last);
                assert!(
                    (65..=119).contains(&delta) && delta != 96 && delta != 112,
                    "{c_load}: {constants:?}"
                );
                assert!(constants.c_last <= 255 && constants.c_id <= 1023 && constants.ol_i_id <= 8191);
                seen.insert(constants.c_last);
            }
            assert!(seen.len() > 20, "{c_load}: runs differ, {seen:?}");
            assert_eq!(Constants::for_run(c_load, 7), Constants::for_run(c_load, 7));
        }
        assert!(!is_allowed(100, 196) && !is_allowed(0, 112) && !is_allowed(0, 64) && !is_allowed(255, 135));
        assert!(is_allowed(0, 65) && is_allowed(0, 119) && is_allowed(255, 136));
    }

    #[test]
    fn loads_differ_in_their_constant() {
        let seen: std::collections::BTreeSet<u32> = (0..2_000).map(c_load).collect();
        assert!(seen.len() > 240 && seen.iter().all(|c| *c <= 255));
    }
}

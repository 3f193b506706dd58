//! The stream of random words that belongs to one row, and the values of clause 4.3.2 that are drawn from it.
//!
//! Word number `column << 8 | draw` of the row's stream is draw `draw` of column `column`. No draw depends on another, so that columns
//! can be computed separately and letters in parallel.

use std::ops::RangeInclusive;

use crate::mix::{mix, word};

use super::rows::Text;

/// Draw of a column that decides whether ORIGINAL stands in it, and the one that decides where. Texts end long before.
const ORIGINAL_DRAW: u64 = 254;
const POSITION_DRAW: u64 = 255;

/// The word that clause 4.3.3.1 wants in a tenth of I_DATA and S_DATA.
pub(super) const ORIGINAL: [u8; 8] = *b"ORIGINAL";

/// Letters per word of the stream: 16 bits each, so that one letter in 62 is not likelier than another by more than 1 in 1,000.
const LETTERS_PER_WORD: usize = 4;
/// Letters that are made at once.
const LETTERS_AT_ONCE: usize = 64;
/// What the compiler makes vectors of; a multiple of it leaves nothing to be done one by one.
const VECTOR_LANES: usize = 16;

/// Characters of an a-string (clause 4.3.2.2): digits, upper-case and lower-case letters.
const ALPHANUMERIC: u32 = 62;
/// Characters of an n-string.
const NUMERIC: u32 = 10;

/// The random words of one row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draws {
    state: u64,
}

impl Draws {
    /// Finalised twice, so that neighbouring rows share nothing.
    #[inline(always)]
    pub(super) fn new(table_key: u64, row: u64) -> Draws {
        Draws { state: mix(word(table_key, row)) }
    }

    #[inline(always)]
    fn draw(&self, column: u64, draw: u64) -> u64 {
        word(self.state, column << 8 | draw)
    }

    /// A number below `bound`: the high half of a 128-bit product, which favours no number by more than `bound` / 2^64.
    #[inline(always)]
    pub(super) fn below(&self, column: u64, bound: u64) -> u64 {
        scale(self.draw(column, 0), bound)
    }

    /// Random within [x .. y] (clause 4.3.2.5).
    #[inline(always)]
    pub(super) fn uniform(&self, column: u64, range: RangeInclusive<u32>) -> u32 {
        within(self.draw(column, 0), range)
    }

    /// A second number for the same column, independent of the first.
    #[inline(always)]
    pub(super) fn second(&self, column: u64, range: RangeInclusive<u32>) -> u32 {
        within(self.draw(column, 1), range)
    }

    /// True for a tenth of the rows, selected at random.
    #[inline(always)]
    pub(super) fn one_in_ten(&self, column: u64) -> bool {
        self.below(column, 10) == 0
    }

    /// Random a-string [x .. y] (clause 4.3.2.2). `MAX` is y.
    #[inline(always)]
    pub(super) fn a_string<const MAX: usize>(&self, column: u64, range: RangeInclusive<u32>) -> Text<MAX> {
        debug_assert_eq!(*range.end() as usize, MAX);
        let length = self.uniform(column, range) as usize;
        let mut bytes = [0; MAX];
        self.characters::<ALPHANUMERIC>(column, &mut bytes[..length]);
        Text::new(bytes, length)
    }

    /// Random a-string of a fixed length.
    #[inline(always)]
    pub(super) fn letters<const LENGTH: usize>(&self, column: u64) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        self.characters::<ALPHANUMERIC>(column, &mut bytes);
        bytes
    }

    /// Random n-string of a fixed length (clause 4.3.2.2).
    #[inline(always)]
    pub(super) fn n_string<const LENGTH: usize>(&self, column: u64) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        self.characters::<NUMERIC>(column, &mut bytes);
        bytes
    }

    /// A zip code (clause 4.3.2.7): four random digits and `11111`.
    #[inline(always)]
    pub(super) fn zip(&self, column: u64) -> [u8; 9] {
        let mut bytes = *b"000011111";
        self.characters::<NUMERIC>(column, &mut bytes[..4]);
        bytes
    }

    /// I_DATA and S_DATA: random a-string [26 .. 50]; in a tenth of the rows, selected at random, eight consecutive characters at a
    /// random position are ORIGINAL.
    #[inline(always)]
    pub(super) fn data_string(&self, column: u64) -> Text<50> {
        let mut text = self.a_string::<50>(column, 26..=50);
        if scale(self.draw(column, ORIGINAL_DRAW), 10) == 0 {
            let positions = (text.len() - ORIGINAL.len() + 1) as u64;
            text.replace(scale(self.draw(column, POSITION_DRAW), positions) as usize, &ORIGINAL);
        }
        text
    }

    /// Character `n` is made from bits `16 * (n % 4)` and up of draw `1 + n / 4`.
    #[inline(always)]
    fn characters<const LETTERS: u32>(&self, column: u64, out: &mut [u8]) {
        let mut draw = 1;
        for piece in out.chunks_mut(LETTERS_AT_ONCE) {
            let used = piece.len().div_ceil(LETTERS_PER_WORD);
            let mut lanes = [0u16; LETTERS_AT_ONCE];
            for lanes in lanes.chunks_exact_mut(LETTERS_PER_WORD).take(used) {
                let word = self.draw(column, draw);
                for (n, lane) in lanes.iter_mut().enumerate() {
                    *lane = (word >> (16 * n)) as u16;
                }
                draw += 1;
            }
            let mut letters = [0; LETTERS_AT_ONCE];
            let whole = piece.len().next_multiple_of(VECTOR_LANES);
            translate::<LETTERS>(&lanes[..whole], &mut letters[..whole]);
            piece.copy_from_slice(&letters[..piece.len()]);
        }
    }
}

/// Makes characters from random bits. Not inlined: among the arithmetic of the words it would not become vector instructions.
#[inline(never)]
fn translate<const LETTERS: u32>(lanes: &[u16], out: &mut [u8]) {
    for (out, lane) in out.iter_mut().zip(lanes) {
        *out = character(((u32::from(*lane) * LETTERS) >> 16) as u16) as u8;
    }
}

#[inline(always)]
fn scale(word: u64, bound: u64) -> u64 {
    ((u128::from(word) * u128::from(bound)) >> 64) as u64
}

#[inline(always)]
fn within(word: u64, range: RangeInclusive<u32>) -> u32 {
    let (first, last) = range.into_inner();
    first + scale(word, u64::from(last - first + 1)) as u32
}

/// Digits, upper case, lower case: in the order of ASCII, whose gaps are 7 and 6 wide. Without branches or a table.
#[inline(always)]
fn character(number: u16) -> u16 {
    48 + number + if number > 9 { 7 } else { 0 } + if number > 35 { 6 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_are_digits_then_letters() {
        let all: Vec<u8> = (0..62).map(|number| character(number) as u8).collect();
        assert_eq!(all, b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz");
    }

    #[test]
    fn ranges_are_reached_at_both_ends_and_never_left() {
        assert_eq!((within(0, 5..=15), within(u64::MAX, 5..=15)), (5, 15));
        assert_eq!((within(0, 0..=0), within(u64::MAX, 0..=u32::MAX - 1)), (0, u32::MAX - 1));
        let draws = |row| Draws::new(7, row);
        let mut seen = [0u32; 11];
        for row in 0..11_000 {
            seen[(draws(row).uniform(3, 5..=15) - 5) as usize] += 1;
        }
        assert!(seen.iter().all(|count| (850..1_150).contains(count)), "{seen:?}");
    }

    #[test]
    fn every_character_is_as_likely_as_another() {
        let mut seen = [0u32; 256];
        for row in 0..2_000 {
            for byte in Draws::new(1, row).letters::<310>(2) {
                seen[usize::from(byte)] += 1;
            }
        }
        let counts: Vec<u32> = seen.into_iter().filter(|count| *count > 0).collect();
        assert_eq!(counts.len(), 62);
        // 10,000 each, give or take four standard deviations.
        assert!(counts.iter().all(|count| (9_600..10_400).contains(count)), "{counts:?}");
    }

    #[test]
    fn a_text_is_the_beginning_of_a_longer_one() {
        let draws = Draws::new(1, 2);
        let long = draws.letters::<100>(3);
        assert_eq!(draws.letters::<24>(3), long[..24]);
        assert_eq!(draws.letters::<1>(3), long[..1]);
        assert_ne!(draws.letters::<100>(4), long, "columns do not share their letters");
    }
}

//! The sizes of documents: one size, or a range in which every doubling is equally frequent.
//!
//! Real collections have many small documents and few large ones that hold most of the bytes. A range from 1 kB to
//! 20 MB has fourteen doublings; one document in fourteen is larger than 10 MB, and their mean is about 2 MB.

use std::fmt;
use std::str::FromStr;

use data::mix::word;

/// The smallest document: what its fixed fields need, and some text.
const DOCUMENT_BYTES_MIN: u64 = 256;

/// The largest document. Strings and arrays of `jsonb` end at 256 MiB.
const DOCUMENT_BYTES_MAX: u64 = 64 << 20;

/// Sizes of documents in bytes of their text form.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sizes {
    least: u64,
    most: u64,
}

impl Sizes {
    /// 1 kB to 20 MB.
    pub const DEFAULT: Sizes = Sizes { least: 1_000, most: 20_000_000 };

    /// From `least` to `most` bytes, both possible; `None` where that is empty or beyond the limits.
    pub fn new(least: u64, most: u64) -> Option<Sizes> {
        let is_possible = DOCUMENT_BYTES_MIN <= least && least <= most && most <= DOCUMENT_BYTES_MAX;
        is_possible.then_some(Sizes { least, most })
    }

    /// The size of the document for which `state` was drawn.
    #[inline]
    pub fn draw(self, state: u64) -> u64 {
        // Every doubling counts as many parts as it covers of its own length, so the last one may be cut short.
        let part = below(word(state, 1), self.parts());
        let octave = part / PARTS_PER_DOUBLING;
        let start = self.least << octave;
        let first = start + start * (part % PARTS_PER_DOUBLING) / PARTS_PER_DOUBLING;
        let end = start + start * (part % PARTS_PER_DOUBLING + 1) / PARTS_PER_DOUBLING;
        (first + below(word(state, 2), (end - first).max(1))).min(self.most)
    }

    /// How many parts of doublings lie between the two ends.
    fn parts(self) -> u64 {
        let doublings = u64::from((self.most / self.least).ilog2());
        let start = self.least << doublings;
        doublings * PARTS_PER_DOUBLING + ((self.most - start) * PARTS_PER_DOUBLING).div_ceil(start).max(1)
    }

    /// The mean size of many documents.
    pub fn mean(self) -> u64 {
        let middle = |part: u64| {
            let start = self.least << (part / PARTS_PER_DOUBLING);
            let at = |nth: u64| start + start * nth / PARTS_PER_DOUBLING;
            let nth = part % PARTS_PER_DOUBLING;
            (at(nth).min(self.most) + at(nth + 1).min(self.most)) / 2
        };
        (0..self.parts()).map(middle).sum::<u64>() / self.parts()
    }
}

/// A doubling is cut into so many parts of equal length.
const PARTS_PER_DOUBLING: u64 = 64;

/// A number below `bound` from 64 random bits.
#[inline]
fn below(random: u64, bound: u64) -> u64 {
    ((u128::from(random) * u128::from(bound)) >> 64) as u64
}

/// As it is typed: `20MB`, `1kB..20MB`; whole numbers, powers of 1000.
impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |bytes: u64| match bytes {
            _ if bytes.is_multiple_of(1_000_000) => format!("{}MB", bytes / 1_000_000),
            _ if bytes.is_multiple_of(1_000) => format!("{}kB", bytes / 1_000),
            _ => bytes.to_string(),
        };
        if self.least == self.most {
            return f.write_str(&text(self.least));
        }
        write!(f, "{}..{}", text(self.least), text(self.most))
    }
}

/// The text is no size of documents.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "\"{0}\" is not a size of documents: a size or a range from {DOCUMENT_BYTES_MIN} bytes to 64 MiB is expected"
)]
pub struct SizesError(String);

impl FromStr for Sizes {
    type Err = SizesError;

    fn from_str(text: &str) -> Result<Sizes, SizesError> {
        let wrong = || SizesError(text.to_owned());
        let bytes = |text: &str| load::plan::parse_quantity(text).map_err(|_| wrong());
        let (least, most) = text.split_once("..").unwrap_or((text, text));
        Sizes::new(bytes(least)?, bytes(most)?).ok_or_else(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_they_are_written() {
        for text in ["1kB..20MB", "20MB", "300..1kB", "1024..65536"] {
            assert_eq!(text.parse::<Sizes>().map(|sizes| sizes.to_string()), Ok(text.to_owned()));
        }
        assert_eq!("1Ki..64Ki".parse::<Sizes>(), Ok(Sizes { least: 1_024, most: 65_536 }));
        for text in ["", "0", "255", "1kB..", "2kB..1kB", "1kB..65MiB", "small"] {
            assert!(text.parse::<Sizes>().is_err(), "{text}");
        }
    }

    #[test]
    fn every_doubling_is_as_frequent_as_the_others_and_the_mean_is_told() {
        for sizes in [Sizes::DEFAULT, Sizes { least: 1_000, most: 64_000 }, Sizes { least: 300, most: 301 }] {
            let drawn: Vec<u64> = (0..40_000u64).map(|row| sizes.draw(data::mix::mix(row))).collect();
            assert!(drawn.iter().all(|size| (sizes.least..=sizes.most).contains(size)), "{sizes}");
            let mean = drawn.iter().sum::<u64>() / drawn.len() as u64;
            assert!(mean.abs_diff(sizes.mean()) * 20 <= mean, "{sizes}: {mean} and {}", sizes.mean());
            if sizes.most >= 4 * sizes.least {
                let first = drawn.iter().filter(|size| **size < 2 * sizes.least).count();
                let second = drawn.iter().filter(|size| (2..4).contains(&(**size / sizes.least))).count();
                assert!(first.abs_diff(second) * 10 < first, "{sizes}: {first} and {second}");
            }
        }
        assert_eq!(Sizes { least: 5_000, most: 5_000 }.draw(7), 5_000);
    }
}

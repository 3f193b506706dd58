//! How far values compress: the `--compressible RATIO` knob.
//!
//! Storage that compresses (ZFS, btrfs, a smart SSD) makes a benchmark on repetitive values a benchmark of the
//! compressor, so values are random unless the user gives the ratio of his own data. RATIO means: LZ4 shrinks the rows, as
//! binary `COPY` sends them, to 1/RATIO.
//!
//! LZ4 has no entropy coder: a random character costs a byte, a repeated stretch a few bytes however long it is. So
//! each field is a random part and a filler that repeats, and the ratio is chosen by where the one ends.

use super::{FIELD_BYTES, FIELD_COUNT, KEY_BYTES, VERSION_BYTES};

/// Random characters that every field keeps behind its version, so that a value of another row is noticed.
const RANDOM_BYTES_MIN: usize = 2;
/// A row in binary `COPY`: the number of columns, and a length before each of them.
const COPY_ROW_BYTES: usize = 2 + (4 + KEY_BYTES) + FIELD_COUNT * (4 + FIELD_BYTES);
/// What a row costs in LZ4 beyond its fields: the digits of the key, their token, and the offset of a match.
const LZ4_KEY_BYTES: usize = 27;
/// What a field costs in LZ4 beyond its random part: a token, an offset, and one byte each of longer lengths.
const LZ4_FIELD_BYTES: usize = 5;
/// From here on a run of random bytes needs a byte for its length.
const LZ4_SHORT_RUN_BYTES: usize = 15;

/// The ratio by which LZ4 compresses the rows, about, in hundredths: 100 is incompressible.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Compressible {
    percent: u16,
}

impl Compressible {
    /// Random throughout.
    pub const NONE: Compressible = Compressible { percent: 100 };
    /// The most that leaves every field its version and something to recognise it by.
    pub const MAX: Compressible = Compressible { percent: 600 };

    /// The ratio `percent` / 100.
    ///
    /// # Errors
    /// When it is below 100 or above 600.
    pub fn from_percent(percent: u16) -> Result<Compressible, CompressibleError> {
        let range = Compressible::NONE.percent..=Compressible::MAX.percent;
        if range.contains(&percent) {
            Ok(Compressible { percent })
        } else {
            Err(CompressibleError::OutOfRange)
        }
    }

    /// Hundredths of the ratio.
    #[must_use]
    pub fn percent(self) -> u16 {
        self.percent
    }

    /// Characters of each field before its filler starts.
    pub(super) fn literal_bytes(self) -> [u8; FIELD_COUNT] {
        if self == Compressible::NONE {
            return [FIELD_BYTES as u8; FIELD_COUNT];
        }
        let row_bytes = COPY_ROW_BYTES * 100 / usize::from(self.percent);
        let fixed_bytes = LZ4_KEY_BYTES + FIELD_COUNT * (LZ4_FIELD_BYTES + VERSION_BYTES);
        let mut random_bytes = row_bytes.saturating_sub(fixed_bytes);
        // Shorter runs save the byte of their length, which pays for one random character more.
        let short_run_bytes = FIELD_COUNT * (LZ4_SHORT_RUN_BYTES - VERSION_BYTES);
        if random_bytes < short_run_bytes {
            random_bytes = short_run_bytes.min(random_bytes + FIELD_COUNT);
        }
        let random_bytes =
            random_bytes.clamp(FIELD_COUNT * RANDOM_BYTES_MIN, FIELD_COUNT * (FIELD_BYTES - VERSION_BYTES));
        // Whole bytes per field; the remainder goes to the first fields, one byte each.
        std::array::from_fn(|column| {
            let random = random_bytes / FIELD_COUNT + usize::from(column < random_bytes % FIELD_COUNT);
            (VERSION_BYTES + random) as u8
        })
    }
}

impl Default for Compressible {
    fn default() -> Self {
        Compressible::NONE
    }
}

/// `1.0`, `2.5`, `3.25`: at least one decimal, at most two.
impl std::fmt::Display for Compressible {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (whole, hundredths) = (self.percent / 100, self.percent % 100);
        if hundredths.is_multiple_of(10) {
            write!(f, "{whole}.{}", hundredths / 10)
        } else {
            write!(f, "{whole}.{hundredths:02}")
        }
    }
}

/// Why a text is no compression ratio.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CompressibleError {
    /// Not a number with at most two decimals.
    NotANumber(String),
    /// Below 1.0 or above 6.0.
    OutOfRange,
}

impl CompressibleError {
    /// What to type instead.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        Some(format!(
            "give a ratio from {} (random) to {}, for example 2.5",
            Compressible::NONE,
            Compressible::MAX
        ))
    }
}

impl std::fmt::Display for CompressibleError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CompressibleError::NotANumber(text) => {
                write!(
                    f,
                    "\"{text}\" is not a compression ratio: a number with at most two decimals is expected"
                )
            }
            CompressibleError::OutOfRange => {
                write!(
                    f,
                    "the compression ratio must be from {} to {}",
                    Compressible::NONE,
                    Compressible::MAX
                )
            }
        }
    }
}

impl std::error::Error for CompressibleError {}

impl std::str::FromStr for Compressible {
    type Err = CompressibleError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let not_a_number = || CompressibleError::NotANumber(text.to_owned());
        let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(whole) || !digits(decimals) || decimals.len() > 2 {
            return Err(not_a_number());
        }
        // Too many digits for u16 are a number all the same, only far out of range.
        let Ok(whole) = whole.parse::<u16>() else { return Err(CompressibleError::OutOfRange) };
        let hundredths: u16 = format!("{decimals:0<2}").parse().map_err(|_| not_a_number())?;
        let percent = whole.checked_mul(100).and_then(|percent| percent.checked_add(hundredths));
        Compressible::from_percent(percent.ok_or(CompressibleError::OutOfRange)?)
    }
}

#[cfg(test)]
mod tests;

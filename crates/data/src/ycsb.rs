//! The YCSB table: `usertable(ycsb_key, field0..field9)`, about 1,100 bytes a row.
//!
//! # Format v1
//!
//! **Key**: `user` and 18 decimal digits. The digits are the row number itself (sequential) or its image under a
//! [`Permutation`] of [0, 10^18) (scattered). The domain is fixed, so a dataset may grow without changing a key, and a
//! key found in a database gives back its row number.
//!
//! **Field**: 100 characters of the alphabet `-0..9A..Z_a..z`, six bits each, in ascending order of ASCII.
//!
//! | characters | content |
//! |---|---|
//! | 0..10 | the [`Version`], six bits a character, highest first |
//! | 10 | the exclusive or of those ten, so that any single wrong character of the eleven is detected |
//! | 11.. | random, a function of (seed, row, column, version) |
//! | the rest | filler, the same in every field; none at [`Compressible::NONE`] |
//!
//! The first eleven are masked by exclusive or with a pad that is a function of (seed, row, column): they look random,
//! and a value moved to another row or column decodes to a version that was never written. Since version 0 encodes as eleven
//! zeros, a loaded row is nothing but its random stream: byte `n` of the 1,000 bytes of a row is byte `n % 8` of word
//! `n / 8 + 1` of the stream, cut to six bits. A later version takes its random part from a stream of its own.

use crate::mix::{GAMMA, mix, subkey, word};
use crate::permutation::Permutation;

pub use compressible::{Compressible, CompressibleError};
pub use judge::Judgement;
pub use version::Version;

mod alphabet;
mod compressible;
mod judge;
mod version;

/// Fields of a row.
pub const FIELD_COUNT: usize = 10;
/// Bytes, and characters, of a field.
pub const FIELD_BYTES: usize = 100;
/// Bytes of a key: `user` and 18 digits.
pub const KEY_BYTES: usize = 22;
/// The number of keys that exist: fixed, so a dataset can grow without changing any key.
pub const KEY_SPACE: u64 = 1_000_000_000_000_000_000;
/// Characters of a field that hold the version, its check character included.
pub(crate) const VERSION_BYTES: usize = version::CHARACTERS + 1;

/// Bytes of all fields of a row.
const ROW_BYTES: usize = FIELD_COUNT * FIELD_BYTES;
const KEY_PREFIX: [u8; 4] = *b"user";
const WORD_BYTES: usize = size_of::<u64>();
/// Words that cover one field wherever it starts inside a word.
const FIELD_WORDS: usize = FIELD_BYTES.div_ceil(WORD_BYTES);
const _: () = assert!(ROW_BYTES.is_multiple_of(WORD_BYTES));
const _: () = assert!(FIELD_BYTES % WORD_BYTES + FIELD_BYTES <= FIELD_WORDS * WORD_BYTES);

/// What the independent streams of one seed are for.
mod purpose {
    pub(super) const ROW: u64 = 1;
    pub(super) const VERSION: u64 = 2;
    pub(super) const FILLER: u64 = 3;
    /// The stream number of the key permutation.
    pub(super) const KEY: u64 = 1;
}

/// The order in which keys follow row numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum KeyOrder {
    /// A bijection scatters the keys, as a hash would, without collisions.
    #[default]
    Scattered,
    /// Keys ascend with the row number.
    Sequential,
}

impl KeyOrder {
    /// The word for it on the command line and in the ledger.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            KeyOrder::Scattered => "scattered",
            KeyOrder::Sequential => "sequential",
        }
    }
}

impl std::fmt::Display for KeyOrder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The text is neither `scattered` nor `sequential`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyOrderError(String);

impl std::fmt::Display for KeyOrderError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "unknown key order \"{}\": expected scattered or sequential", self.0)
    }
}

impl std::error::Error for KeyOrderError {}

impl std::str::FromStr for KeyOrder {
    type Err = KeyOrderError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "scattered" => Ok(KeyOrder::Scattered),
            "sequential" => Ok(KeyOrder::Sequential),
            _ => Err(KeyOrderError(text.to_owned())),
        }
    }
}

/// The identity of a dataset's content: two tables of the same `Spec` are equal byte for byte.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Spec {
    /// Chooses keys, values and filler.
    pub seed: u64,
    /// How keys follow row numbers.
    pub key_order: KeyOrder,
    /// How far values can be compressed.
    pub compressible: Compressible,
}

/// Every key and field of a dataset, computed on demand. Cheap to clone; all methods are pure and allocate nothing.
#[derive(Clone, Debug)]
pub struct Table {
    spec: Spec,
    permutation: Permutation,
    row_key: u64,
    version_key: u64,
    /// Characters before the filler, per field.
    literal_bytes: [u8; FIELD_COUNT],
    filler: [u8; FIELD_BYTES],
}

impl Table {
    /// The table of `spec`.
    #[must_use]
    pub fn new(spec: Spec) -> Table {
        let mut filler = [0; FIELD_BYTES];
        fill_stream(subkey(spec.seed, purpose::FILLER), 0, &mut filler);
        alphabet::letters(&mut filler);
        Table {
            permutation: Permutation::new(spec.seed, purpose::KEY, KEY_SPACE),
            row_key: subkey(spec.seed, purpose::ROW),
            version_key: subkey(spec.seed, purpose::VERSION),
            literal_bytes: spec.compressible.literal_bytes(),
            filler,
            spec,
        }
    }

    /// What the table was made from.
    #[must_use]
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// The key of a row.
    ///
    /// # Panics
    /// When `row` is not below [`KEY_SPACE`].
    #[inline]
    #[must_use]
    pub fn key(&self, row: u64) -> [u8; KEY_BYTES] {
        assert!(row < KEY_SPACE, "row {row} has no key: there are {KEY_SPACE}");
        let number = match self.spec.key_order {
            KeyOrder::Scattered => self.permutation.apply(row),
            KeyOrder::Sequential => row,
        };
        let mut key = [0; KEY_BYTES];
        key[..4].copy_from_slice(&KEY_PREFIX);
        // Two halves of nine digits: 32-bit divisions, and the halves do not wait for each other.
        let (mut high, mut low) = ((number / 1_000_000_000) as u32, (number % 1_000_000_000) as u32);
        for digit in (0..9).rev() {
            key[4 + digit] = b'0' + (high % 10) as u8;
            key[13 + digit] = b'0' + (low % 10) as u8;
            high /= 10;
            low /= 10;
        }
        key
    }

    /// The row number of a key; `None` when the bytes are no key of any dataset.
    ///
    /// Every well-formed key belongs to some row below [`KEY_SPACE`]; whether that row was loaded is the caller's to
    /// know.
    #[must_use]
    pub fn row_of_key(&self, key: &[u8]) -> Option<u64> {
        let digits = <&[u8; KEY_BYTES]>::try_from(key).ok()?.strip_prefix(&KEY_PREFIX)?;
        let mut number = 0;
        for &digit in digits {
            if !digit.is_ascii_digit() {
                return None;
            }
            number = number * 10 + u64::from(digit - b'0');
        }
        Some(match self.spec.key_order {
            KeyOrder::Scattered => self.permutation.invert(number),
            KeyOrder::Sequential => number,
        })
    }

    /// The value of one field as `version` wrote it.
    ///
    /// # Panics
    /// When `column` is not below [`FIELD_COUNT`].
    pub fn field(&self, row: u64, column: usize, version: Version, out: &mut [u8; FIELD_BYTES]) {
        let literal = self.literal(column);
        let state = self.row_state(row);
        fill_field(state, column, &mut out[..literal]);
        if version != Version::LOADED {
            for (byte, character) in out.iter_mut().zip(version.characters()) {
                *byte ^= character;
            }
            // The stream of (row, version) replaces the random part behind the version.
            let mut body = [0; FIELD_BYTES];
            fill_field(mix(state ^ word(self.version_key, version.as_u64())), column, &mut body[..literal]);
            out[VERSION_BYTES..literal].copy_from_slice(&body[VERSION_BYTES..literal]);
        }
        alphabet::letters(&mut out[..literal]);
        out[literal..].copy_from_slice(&self.filler[literal..]);
    }

    /// All fields of a row as they were loaded: the same bytes as [`Table::field`] with [`Version::LOADED`], faster.
    // Inlined always, so that a caller compiled for a newer processor has this compiled for it, too.
    #[inline(always)]
    pub fn row_fields(&self, row: u64, out: &mut [[u8; FIELD_BYTES]; FIELD_COUNT]) {
        let state = self.row_state(row);
        if self.spec.compressible == Compressible::NONE {
            let bytes = out.as_flattened_mut();
            fill_stream(state, 0, bytes);
            alphabet::letters(bytes);
            return;
        }
        for (column, field) in out.iter_mut().enumerate() {
            let literal = self.literal(column);
            // The whole array and then the filler over its end: fixed lengths copy faster than exact ones.
            *field = self.filler;
            fill_field(state, column, &mut field[..literal]);
            alphabet::letters(&mut field[..literal]);
        }
    }

    /// Characters of a field before its filler.
    fn literal(&self, column: usize) -> usize {
        usize::from(self.literal_bytes[column])
    }

    /// Where the stream of a row starts. Finalised twice, so that neighbouring rows share nothing.
    #[inline]
    fn row_state(&self, row: u64) -> u64 {
        mix(word(self.row_key, row))
    }
}

/// The part of a row's stream that belongs to `column`, as raw bytes.
fn fill_field(state: u64, column: usize, out: &mut [u8]) {
    let start = column * FIELD_BYTES;
    let mut words = [0; FIELD_WORDS * WORD_BYTES];
    let shift = start % WORD_BYTES;
    fill_stream(state, start / WORD_BYTES, &mut words[..(shift + out.len()).next_multiple_of(WORD_BYTES)]);
    out.copy_from_slice(&words[shift..shift + out.len()]);
}

/// Words `first + 1..` of the stream at `state`, as many as `out` has room for (the last one may be cut).
#[inline(always)]
fn fill_stream(state: u64, first: usize, out: &mut [u8]) {
    let mut state = state.wrapping_add((first as u64).wrapping_mul(GAMMA));
    let mut chunks = out.chunks_exact_mut(WORD_BYTES);
    for chunk in &mut chunks {
        state = state.wrapping_add(GAMMA);
        chunk.copy_from_slice(&mix(state).to_le_bytes());
    }
    let rest = chunks.into_remainder();
    let length = rest.len();
    rest.copy_from_slice(&mix(state.wrapping_add(GAMMA)).to_le_bytes()[..length]);
}

#[cfg(test)]
mod tests;

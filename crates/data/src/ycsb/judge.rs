//! Judging bytes found in a database: which version wrote them, or where they are wrong.

use super::alphabet::{self, FOREIGN};
use super::{FIELD_BYTES, Table, VERSION_BYTES, Version, fill_field};

/// What a field's bytes are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Judgement {
    /// Byte for byte what `version` writes into this row and column.
    Exact {
        /// Who wrote it.
        version: Version,
    },
    /// No version writes this.
    Damaged {
        /// The first byte, counted from 0, that differs from what `nearest` (or else the load) writes.
        first_bad_byte: usize,
        /// How many bytes differ from that, missing and surplus ones included.
        bad_bytes: usize,
        /// The version the rest of the value belongs to; `None` when too little of it belongs to any.
        nearest: Option<Version>,
    },
}

/// How a value compares with what some version writes.
struct Comparison {
    first_bad_byte: usize,
    bad_bytes: usize,
    /// Right bytes among the random ones that only this version writes.
    right_random: usize,
}

impl Table {
    /// Reports which version wrote `bytes` into this row and column, or where they are wrong.
    ///
    /// Any single wrong byte is noticed: in the version by its check character, behind it by comparison. Bytes of
    /// another row, column or seed decode to an arbitrary version, whose random part then differs; by chance it agrees
    /// once in 64^n, with n random characters behind the version (89 when incompressible, 2 at the least).
    ///
    /// # Panics
    /// When `column` is not below [`super::FIELD_COUNT`].
    #[must_use]
    pub fn judge(&self, row: u64, column: usize, bytes: &[u8]) -> Judgement {
        let mut expected = [0; FIELD_BYTES];
        let Some(found) = self.unmask(row, column, bytes) else {
            return self.diagnose(row, column, bytes, None);
        };
        if found.iter().fold(0, |check, character| check ^ character) == 0 {
            let version = Version::of_characters(&found);
            self.field(row, column, version, &mut expected);
            if bytes == expected {
                return Judgement::Exact { version };
            }
        }
        self.diagnose(row, column, bytes, Some(found))
    }

    /// The version's characters as six-bit groups; [`FOREIGN`] bits stay set where a byte is no letter. `None` when
    /// the value is too short to have them.
    fn unmask(&self, row: u64, column: usize, bytes: &[u8]) -> Option<[u8; VERSION_BYTES]> {
        let letters: &[u8; VERSION_BYTES] = bytes.first_chunk()?;
        let mut pad = [0; VERSION_BYTES];
        fill_field(self.row_state(row), column, &mut pad);
        Some(std::array::from_fn(|position| match alphabet::value(letters[position]) {
            FOREIGN => FOREIGN,
            value => value ^ (pad[position] & 63),
        }))
    }

    /// Finds the version that explains most of a wrong value. Kept apart and cold: almost no value gets here.
    #[cold]
    fn diagnose(
        &self,
        row: u64,
        column: usize,
        bytes: &[u8],
        found: Option<[u8; VERSION_BYTES]>,
    ) -> Judgement {
        let compare = |version| self.compare(row, column, version, bytes);
        let compared = self.literal(column).min(bytes.len()).saturating_sub(VERSION_BYTES);
        let loaded = compare(Version::LOADED);
        let mut best = (Version::LOADED, compare(Version::LOADED));
        for version in found.iter().flat_map(candidates) {
            let comparison = compare(version);
            let (_, leader) = &best;
            if (comparison.right_random, leader.bad_bytes) > (leader.right_random, comparison.bad_bytes) {
                best = (version, comparison);
            }
        }
        // With less than half of it right, a value counts as foreign rather than damaged.
        let belongs = compared > 0 && best.1.right_random * 2 >= compared;
        let (nearest, comparison) = if belongs { (Some(best.0), best.1) } else { (None, loaded) };
        Judgement::Damaged {
            first_bad_byte: comparison.first_bad_byte,
            bad_bytes: comparison.bad_bytes,
            nearest,
        }
    }

    fn compare(&self, row: u64, column: usize, version: Version, bytes: &[u8]) -> Comparison {
        let mut expected = [0; FIELD_BYTES];
        self.field(row, column, version, &mut expected);
        let shared = bytes.len().min(FIELD_BYTES);
        let wrong = |position: &usize| bytes[*position] != expected[*position];
        Comparison {
            first_bad_byte: (0..shared).find(wrong).unwrap_or(shared),
            bad_bytes: (0..shared).filter(wrong).count() + bytes.len().abs_diff(FIELD_BYTES),
            right_random: (VERSION_BYTES..self.literal(column).min(shared)).filter(|at| !wrong(at)).count(),
        }
    }
}

/// The versions from which `found` is at most one wrong character away.
fn candidates(found: &[u8; VERSION_BYTES]) -> impl Iterator<Item = Version> + use<> {
    let found = *found;
    let as_it_stands = Version::of_characters(&found);
    let repaired = (0..VERSION_BYTES - 1).map(move |position| {
        let mut repaired = found;
        // The check character gives this one, if all the others are right.
        repaired[position] = 0;
        repaired[position] = repaired.iter().fold(0, |check, character| check ^ character) & 63;
        Version::of_characters(&repaired)
    });
    std::iter::once(as_it_stands).chain(repaired)
}

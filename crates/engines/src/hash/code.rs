//! YugabyteDB's 16-bit hash code of a row key: Jenkins' 64-bit lookup2 under a fixed seed, folded.
//!
//! `src/yb/gutil/hash/jenkins.cc` and `YBPartition::HashColumnCompoundValue`. Columns are put one after the other as the partition key
//! writes them: integers big-endian, text and bytea as they are.

use super::Key;

/// The seed of the partition hash.
const SEED: u64 = 97;
/// lookup2's arbitrary start value for 64 bits.
const START: u64 = 0xE08C_1D66_8B75_6F82;
const BLOCK_BYTES: usize = 24;

fn mix(mut a: u64, mut b: u64, mut c: u64) -> (u64, u64, u64) {
    macro_rules! step {
        ($x:ident, $y:ident, $z:ident, $shifted:expr) => {
            $x = $x.wrapping_sub($y).wrapping_sub($z) ^ $shifted;
        };
    }
    step!(a, b, c, c >> 43);
    step!(b, c, a, a << 9);
    step!(c, a, b, b >> 8);
    step!(a, b, c, c >> 38);
    step!(b, c, a, a << 23);
    step!(c, a, b, b >> 5);
    step!(a, b, c, c >> 35);
    step!(b, c, a, a << 49);
    step!(c, a, b, b >> 11);
    step!(a, b, c, c >> 12);
    step!(b, c, a, a << 18);
    step!(c, a, b, b >> 22);
    (a, b, c)
}

/// Up to eight bytes as a little-endian number.
fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

/// `Hash64StringWithSeed`.
#[must_use]
pub(crate) fn lookup2(bytes: &[u8], seed: u64) -> u64 {
    let (mut a, mut b, mut c) = (START, START, seed);
    let mut blocks = bytes.chunks_exact(BLOCK_BYTES);
    for block in &mut blocks {
        a = a.wrapping_add(word(&block[..8]));
        b = b.wrapping_add(word(&block[8..16]));
        c = c.wrapping_add(word(&block[16..]));
        (a, b, c) = mix(a, b, c);
    }
    let rest = blocks.remainder();
    let part = |from: usize| &rest[from.min(rest.len())..(from + 8).min(rest.len())];
    a = a.wrapping_add(word(part(0)));
    b = b.wrapping_add(word(part(8)));
    // The lowest byte of the last word is reserved for the length.
    c = c.wrapping_add(bytes.len() as u64).wrapping_add(word(part(16)) << 8);
    mix(a, b, c).2
}

/// `yb_hash_code`: the code of a row whose hash columns have these values. `None`: a NULL, which a primary key cannot hold, or a type
/// whose bytes in the partition key are not known here.
#[must_use]
pub fn hash_code(columns: &[Option<Key<'_>>]) -> Option<u16> {
    let mut bytes = Vec::with_capacity(64);
    for column in columns {
        match (*column)? {
            Key::Int2(value) => bytes.extend(i32::from(value).to_be_bytes()),
            Key::Int4(value) => bytes.extend(value.to_be_bytes()),
            Key::Int8(value) => bytes.extend(value.to_be_bytes()),
            Key::Text(text) => bytes.extend(text),
            Key::Bytea(value) => bytes.extend(value),
            _ => return None,
        }
    }
    let hash = lookup2(&bytes, SEED);
    let folded = (hash >> 48) ^ (3 * (hash >> 32)) ^ (5 * (hash >> 16)) ^ (7 * (hash & 0xFFFF));
    Some(folded as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex")).collect()
    }

    /// Codes from YugabyteDB's own tests and from servers, as engines.md lists them.
    #[test]
    fn codes_are_those_of_the_server() {
        for (value, code) in [(1, 0x1210), (2, 0xc0c4), (3, 0xfca0), (4, 0x9eaf)] {
            assert_eq!(hash_code(&[Some(Key::Int4(value))]), Some(code), "{value}");
        }
        for (value, hex, code) in [
            (7, "a94a8fe5ccb19ba61c4c0873d391e987982fbbd3", 25484),
            (0, "00", 38972),
            (1, "0102030405", 43708),
            (i32::MAX, "ff", 48239),
            (i32::MIN, "6b6579", 52240),
            (-1, "deadbeef", 59218),
        ] {
            let key = [Some(Key::Int4(value)), Some(Key::Bytea(&bytes(hex)))];
            assert_eq!(hash_code(&key), Some(code), "{value}");
        }
        for (value, text, code) in [(-5, "senzing", 4373), (i64::MAX, "kv", 6310), (0, "a", 54981)] {
            let key = [Some(Key::Int8(value)), Some(Key::Text(text.as_bytes()))];
            assert_eq!(hash_code(&key), Some(code), "{value}");
        }
        // Computed from the source, not queried.
        assert_eq!(hash_code(&[Some(Key::Text(b"user1"))]), Some(20739));
        assert_eq!(hash_code(&[Some(Key::Int8(1))]), Some(60841));
        let raw = bytes("c7251d5d753a4e4622294d6c677aa82571");
        assert_eq!(lookup2(&raw, 97), 1_789_751_740_810_280_356);
        assert_eq!(hash_code(&[None]), None);
        assert_eq!(hash_code(&[Some(Key::Float8(1.0))]), None);
    }
}

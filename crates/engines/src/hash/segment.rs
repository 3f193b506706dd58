//! Greenplum's choice of a segment (`src/backend/cdb/cdbhash.c`).
//!
//! Since version 6 it is PostgreSQL's own 32-bit hashes, rotated together, and a consistent ("jump") hash onto the segments. Tables that
//! come from older versions keep FNV-1 and a modulo; its operator classes, and not the version, show which of the two a table uses.

use super::Key;

/// The segment of a row from the plain hashes of its key columns; NULL is `None`.
///
/// # Panics
/// When `segments` is 0.
#[must_use]
pub fn segment(columns: impl IntoIterator<Item = Option<u32>>, segments: u32) -> u32 {
    let hash = columns.into_iter().fold(0u32, |hash, column| hash.rotate_left(1) ^ column.unwrap_or(0));
    jump(u64::from(hash), segments)
}

/// Lamping and Veach, "A Fast, Minimal Memory, Consistent Hash Algorithm" (2014).
///
/// # Panics
/// When `buckets` is 0.
#[must_use]
pub fn jump(mut key: u64, buckets: u32) -> u32 {
    assert!(buckets > 0, "there is a bucket");
    let (mut bucket, mut next) = (0i64, 0i64);
    while next < i64::from(buckets) {
        bucket = next;
        key = key.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(1);
        next = ((bucket + 1) as f64 * ((1u64 << 31) as f64 / ((key >> 33) + 1) as f64)) as i64;
    }
    bucket as u32
}

const FNV_START: u32 = 0x811C_9DC5;
const FNV_PRIME: u32 = 0x0100_0193;
/// What a NULL hashes as.
const FNV_NULL: u32 = 0xF0F0_F0F1;

/// FNV-1, 32 bits, continued from `hash`.
fn fnv(hash: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(hash, |hash, &byte| hash.wrapping_mul(FNV_PRIME) ^ u32::from(byte))
}

/// The segment of a row of a table with the operator classes `cdbhash_*_ops`. The result is `None` for types other than integers and text.
///
/// # Panics
/// When `segments` is 0.
#[must_use]
pub(crate) fn legacy_segment(columns: &[Option<Key<'_>>], segments: u32) -> Option<u32> {
    assert!(segments > 0, "there is a segment");
    let mut hash = FNV_START;
    for column in columns {
        hash = match *column {
            None => fnv(hash, &FNV_NULL.to_le_bytes()),
            Some(Key::Int2(value)) => fnv(hash, &i64::from(value).to_le_bytes()),
            Some(Key::Int4(value)) => fnv(hash, &i64::from(value).to_le_bytes()),
            Some(Key::Int8(value)) => fnv(hash, &value.to_le_bytes()),
            Some(Key::Text(bytes) | Key::Bpchar(bytes)) => fnv(hash, super::key::without_blanks(bytes)),
            Some(_) => return None,
        };
    }
    Some(if segments.is_power_of_two() { hash & (segments - 1) } else { hash % segments })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_as_published_and_as_computed_from_the_source() {
        assert_eq!(jump(256, 1024), 520);
        assert_eq!(jump(0, 1), 0);
        let int = |value: i32| Some(Key::Int4(value).plain());
        let segments: Vec<u32> = (1..=12).map(|value| segment([int(value)], 3)).collect();
        assert_eq!(segments, [1, 0, 0, 0, 2, 2, 0, 0, 2, 2, 2, 1]);
        let text = |text: &'static str| Some(Key::Text(text.as_bytes()).plain());
        assert_eq!((segment([text("user1")], 3), segment([text("user1")], 8)), (1, 1));
        assert_eq!((segment([text("user1000000")], 3), segment([text("user1000000")], 8)), (0, 4));
        assert_eq!(segment([int(1), text("user1")], 3), 1);
        // A NULL only rotates: alone it is bucket 0, and before another column nothing.
        assert_eq!(segment([None], 3), jump(0, 3));
        assert_eq!(segment([None, int(5)], 3), segment([int(5)], 3));
    }

    #[test]
    fn buckets_are_kept_or_left_for_the_new_one() {
        for key in 0..2000u64 {
            let key = key.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            for buckets in [1, 2, 3, 7, 100] {
                let (old, new) = (jump(key, buckets), jump(key, buckets + 1));
                assert!(new == old || new == buckets, "{key} {buckets}: {old} -> {new}");
            }
        }
    }

    #[test]
    fn fnv_is_the_published_one() {
        // From the test suite of FNV's authors (FNV-1, 32 bits).
        for (text, hash) in [("", 0x811c_9dc5), ("a", 0x050c_5d7e), ("foobar", 0x31f0_b262)] {
            assert_eq!(fnv(FNV_START, text.as_bytes()), hash, "{text}");
        }
        let foobar = Key::Text(b"foobar  ");
        assert_eq!(legacy_segment(&[Some(foobar)], 8), Some(0x31f0_b262 & 7));
        assert_eq!(legacy_segment(&[Some(foobar)], 3), Some(0x31f0_b262 % 3));
        // Equal numbers of any width go together.
        for segments in [3, 16] {
            let two = legacy_segment(&[Some(Key::Int2(-7)), None], segments);
            assert_eq!(two, legacy_segment(&[Some(Key::Int4(-7)), None], segments));
            assert_eq!(two, legacy_segment(&[Some(Key::Int8(-7)), None], segments));
        }
        assert_eq!(legacy_segment(&[Some(Key::Float8(1.0))], 3), None);
    }
}

//! CockroachDB's ordered key encoding (`pkg/util/encoding/encoding.go`): no hash, keys compare as bytes.
//!
//! A row's key is the table's number, the index's number and the columns in ascending order, each so that the order of the bytes is the
//! order of the values. Only the types in primary keys of workload tables are here.

use super::Key;

/// Markers below this are negative numbers by length, those from [`INT_SMALL_START`] on small numbers.
const INT_SMALL_START: u8 = 0x88;
/// Numbers up to this are one byte.
const INT_SMALL_MAX: u64 = 109;
/// A longer number is this plus the count of its bytes, then the bytes.
const INT_LONG: u8 = 0xF5;
const BYTES_MARKER: u8 = 0x12;
const ESCAPE: u8 = 0x00;
const ESCAPED_TERMINATOR: u8 = 0x01;
const ESCAPED_00: u8 = 0xFF;
const NULL: u8 = 0x00;

fn unsigned(out: &mut Vec<u8>, value: u64) {
    if value <= INT_SMALL_MAX {
        out.push(INT_SMALL_START + value as u8);
        return;
    }
    let bytes = value.to_be_bytes();
    let length = 8 - value.leading_zeros() as usize / 8;
    out.push(INT_LONG + length as u8);
    out.extend(&bytes[8 - length..]);
}

fn signed(out: &mut Vec<u8>, value: i64) {
    let Ok(value) = u64::try_from(value) else {
        // A negative number is greater if its magnitude needs fewer bytes.
        let length = 8 - value.unsigned_abs().leading_zeros() as usize / 8;
        out.push(INT_SMALL_START - length as u8);
        out.extend(&value.to_be_bytes()[8 - length..]);
        return;
    };
    unsigned(out, value);
}

fn escaped(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(BYTES_MARKER);
    for &byte in bytes {
        out.push(byte);
        if byte == ESCAPE {
            out.push(ESCAPED_00);
        }
    }
    out.extend([ESCAPE, ESCAPED_TERMINATOR]);
}

/// The key of a row of a table, by the table's and the index's numbers. `None` for types that are not encoded here.
#[must_use]
pub(crate) fn ordered_key(table: u64, index: u64, columns: &[Option<Key<'_>>]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(64);
    unsigned(&mut out, table);
    unsigned(&mut out, index);
    for column in columns {
        match *column {
            None => out.push(NULL),
            Some(Key::Int2(value)) => signed(&mut out, i64::from(value)),
            Some(Key::Int4(value)) => signed(&mut out, i64::from(value)),
            Some(Key::Int8(value)) => signed(&mut out, value),
            Some(Key::Text(bytes) | Key::Bytea(bytes)) => escaped(&mut out, bytes),
            Some(Key::Uuid(bytes)) => escaped(&mut out, &bytes),
            Some(_) => return None,
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `/Table/53/1/"user1"` and its like, written out from the rules of encoding.go.
    #[test]
    fn keys_are_written_as_documented() {
        assert_eq!(ordered_key(53, 1, &[]), Some(vec![0xbd, 0x89]));
        assert_eq!(
            ordered_key(104, 1, &[Some(Key::Text(b"user1"))]),
            Some(b"\xf0\x89\x12user1\x00\x01".to_vec())
        );
        assert_eq!(ordered_key(110, 2, &[None]), Some(vec![0xf6, 110, 0x8a, 0x00]));
        assert_eq!(
            ordered_key(1000, 1, &[Some(Key::Bytea(b"\0"))]),
            Some(b"\xf7\x03\xe8\x89\x12\0\xff\0\x01".to_vec())
        );
        for (value, bytes) in [
            (0i64, vec![0x88]),
            (109, vec![0xf5]),
            (110, vec![0xf6, 110]),
            (256, vec![0xf7, 1, 0]),
            (-1, vec![0x87, 0xff]),
            (-255, vec![0x87, 0x01]),
            (-256, vec![0x86, 0xff, 0x00]),
            (-257, vec![0x86, 0xfe, 0xff]),
            (i64::MAX, vec![0xfd, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
            (i64::MIN, vec![0x80, 0x80, 0, 0, 0, 0, 0, 0, 0]),
        ] {
            let mut out = Vec::new();
            signed(&mut out, value);
            assert_eq!(out, bytes, "{value}");
        }
        assert_eq!(ordered_key(53, 1, &[Some(Key::Float8(1.0))]), None);
    }

    proptest! {
        #[test]
        fn the_order_of_keys_is_the_order_of_values(a: i64, b: i64, small in -300i64..300, s: Vec<u8>, t: Vec<u8>) {
            let key = |key: Key<'_>| ordered_key(7, 1, &[Some(key)]);
            for (a, b) in [(a, b), (a, small), (small, small + 1)] {
                prop_assert_eq!(key(Key::Int8(a)).cmp(&key(Key::Int8(b))), a.cmp(&b));
            }
            prop_assert_eq!(key(Key::Bytea(&s)).cmp(&key(Key::Bytea(&t))), s.cmp(&t));
            // A prefix sorts before the longer value, also with zeros.
            let mut longer = s.clone();
            longer.push(0);
            prop_assert!(key(Key::Bytea(&s)) < key(Key::Bytea(&longer)));
        }
    }
}

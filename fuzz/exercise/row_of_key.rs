//! Any bytes as a key: either no key of a dataset, or exactly the key of the row they are said to belong to.

use data::ycsb::{Compressible, KEY_BYTES, KEY_SPACE, KeyOrder, Spec, Table};

/// Bytes before the key: the seed.
const SEED_BYTES: usize = 8;

pub(crate) fn exercise(data: &[u8]) {
    let Some((seed, key)) = data.split_first_chunk::<SEED_BYTES>() else { return };
    for key_order in [KeyOrder::Scattered, KeyOrder::Sequential] {
        let seed = u64::from_le_bytes(*seed);
        let table = Table::new(Spec { seed, key_order, compressible: Compressible::NONE });
        let row = table.row_of_key(key);
        let well_formed =
            key.len() == KEY_BYTES && key.starts_with(b"user") && key[4..].iter().all(u8::is_ascii_digit);
        assert_eq!(row.is_some(), well_formed);
        if let Some(row) = row {
            assert!(row < KEY_SPACE);
            assert_eq!(&table.key(row)[..], key);
        }
    }
}

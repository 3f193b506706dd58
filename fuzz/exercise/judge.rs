//! Any bytes as a field: called exact only when they are, byte for byte, what the version they are said to be of writes.

use data::ycsb::{
    Compressible, FIELD_BYTES, FIELD_COUNT, Judgement, KEY_SPACE, KeyOrder, Spec, Table, Version,
};

/// Bytes before the field: seed, row, compressibility, column.
const HEAD_BYTES: usize = 20;

pub(crate) fn exercise(data: &[u8]) {
    let Some((head, value)) = data.split_first_chunk::<HEAD_BYTES>() else { return };
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| head[at + byte]));
    let percent = 100 + u16::from_le_bytes([head[16], head[17]]) % 501;
    let compressible = Compressible::from_percent(percent).expect("100 to 600 is allowed");
    let table = Table::new(Spec { seed: word(0), key_order: KeyOrder::Scattered, compressible });
    let (row, column) = (word(8) % KEY_SPACE, usize::from(head[18]) % FIELD_COUNT);

    let mut expected = [0; FIELD_BYTES];
    match table.judge(row, column, value) {
        Judgement::Exact { version } => {
            table.field(row, column, version, &mut expected);
            assert_eq!(value, expected);
        }
        Judgement::Damaged { first_bad_byte, bad_bytes, nearest } => {
            table.field(row, column, nearest.unwrap_or(Version::LOADED), &mut expected);
            assert!(bad_bytes > 0 && first_bad_byte <= FIELD_BYTES.min(value.len()));
            assert_eq!(value[..first_bad_byte], expected[..first_bad_byte]);
        }
    }
    // What the table writes itself, with one byte replaced by the input's.
    let version = Version::new(1, u16::from(head[19]), word(0) as u32);
    table.field(row, column, version, &mut expected);
    assert_eq!(table.judge(row, column, &expected), Judgement::Exact { version });
    if let [position, byte, ..] = *value {
        let position = usize::from(position) % FIELD_BYTES;
        if expected[position] != byte {
            expected[position] = byte;
            assert!(matches!(table.judge(row, column, &expected), Judgement::Damaged { .. }));
        }
    }
}

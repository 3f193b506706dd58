use super::super::{FIELD_BYTES, FIELD_COUNT, KEY_BYTES, KeyOrder, Spec, Table};
use super::*;

/// Rows as binary `COPY` sends them, about a megabyte of them.
fn copy_rows(ratio: Compressible, seed: u64, first_row: u64) -> Vec<u8> {
    let table = Table::new(Spec { seed, key_order: KeyOrder::Scattered, compressible: ratio });
    let mut bytes = Vec::new();
    let mut fields = [[0; FIELD_BYTES]; FIELD_COUNT];
    for row in first_row..first_row + 1000 {
        bytes.extend((FIELD_COUNT as u16 + 1).to_be_bytes());
        bytes.extend((KEY_BYTES as u32).to_be_bytes());
        bytes.extend(table.key(row));
        table.row_fields(row, &mut fields);
        for field in &fields {
            bytes.extend((FIELD_BYTES as u32).to_be_bytes());
            bytes.extend(field);
        }
    }
    assert_eq!(bytes.len(), 1000 * COPY_ROW_BYTES);
    bytes
}

#[test]
fn lz4_reaches_the_ratio_wished_for() {
    for wish in ["1.0", "1.1", "1.25", "1.5", "2", "2.5", "3", "4", "5", "6"] {
        let ratio: Compressible = wish.parse().unwrap();
        for (seed, first_row) in [(1, 0), (42, 1 << 32)] {
            let rows = copy_rows(ratio, seed, first_row);
            let achieved = 100 * rows.len() / lz4_flex::compress(&rows).len();
            let wished = usize::from(ratio.percent());
            println!("wished {wish}, achieved {achieved} %");
            assert!(achieved.abs_diff(wished) * 10 <= wished, "wished {wish}, achieved {achieved} %");
        }
    }
}

#[test]
fn the_version_stays_and_something_random_behind_it() {
    for percent in 100..=600 {
        let literals = Compressible::from_percent(percent).unwrap().literal_bytes();
        for literal in literals.map(usize::from) {
            assert!((VERSION_BYTES + RANDOM_BYTES_MIN..=FIELD_BYTES).contains(&literal), "{percent}");
        }
    }
}

#[test]
fn reads_and_writes_ratios() {
    for (text, percent, written) in [
        ("1", 100, "1.0"),
        ("1.0", 100, "1.0"),
        ("2.5", 250, "2.5"),
        ("3.25", 325, "3.25"),
        ("6.00", 600, "6.0"),
    ] {
        let ratio: Compressible = text.parse().unwrap();
        assert_eq!(ratio.percent(), percent);
        assert_eq!(ratio.to_string(), written);
        assert_eq!(written.parse(), Ok(ratio));
    }
    for text in ["", ".", "1.", ".5", "2,5", "2.555", "-1", "+2", "two", " 2", "1e1"] {
        assert_eq!(
            text.parse::<Compressible>(),
            Err(CompressibleError::NotANumber(text.to_owned())),
            "{text}"
        );
    }
    for text in ["0", "0.99", "6.01", "7", "655", "656", "99999999999999999999"] {
        assert_eq!(text.parse::<Compressible>(), Err(CompressibleError::OutOfRange), "{text}");
    }
}

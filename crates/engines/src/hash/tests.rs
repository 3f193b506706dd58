use super::*;
use proptest::prelude::*;

const SEED: u64 = PARTITION_SEED;

/// (value, hash under seed 0, hash under the partition seed, 32-bit hash, partition of 70); answers of PostgreSQL 13,
/// 15 and 18, which agree.
const TEXTS: [(&str, i64, i64, Option<i32>, u32); 7] = [
    ("", -6939563903564495251, -5700645584453517373, Some(-1477818771), 36),
    ("a", 3591986179850072241, -6705225459120232837, None, 52),
    ("user1", -548550277032800196, 3699271815326339916, Some(-335245252), 9),
    ("user1000000", -4482248749111851646, 8296858732952841705, Some(-1170225790), 48),
    ("user6284781860667377211", -6198119333600467085, 8073484651582111896, None, 39),
    ("ключ-éü€", -4830659094156772991, 4708246133999842719, None, 22),
    ("0123456789abcdefghijkl", -1354784642855662079, 9071070509583110137, None, 0),
];

/// (value, hash under seed 0, hash under the partition seed, 32-bit hash, partition of 16).
const INTEGERS: [(i64, i64, i64, i32, u32); 7] = [
    (0, 4154612158245552303, -4403592609991167795, -272711505, 0),
    (1, -3670598878359251130, 5968994663651403477, -1905060026, 8),
    (-1, -1888257769727981238, -5017072347659237694, 385747274, 5),
    (42, 8010225493015854792, 7363975540656877951, 1509752520, 2),
    (4_294_967_296, -3670598878359251130, 5968994663651403477, -1905060026, 8),
    (i64::MAX, 1977219185673256887, 4938542303000433043, -1524351049, 6),
    (i64::MIN, -9109110466470504941, -6050265599104649060, -96758253, 15),
];

const UUID: [u8; 16] = 0x0011_2233_4455_6677_8899_AABB_CCDD_EEFFu128.to_be_bytes();

#[test]
fn the_partition_seed_is_the_documented_one() {
    assert_eq!(PARTITION_SEED as i64, 8816678312871386365);
}

#[test]
fn texts_hash_and_route_as_on_a_server() {
    for (text, seed_0, partition_seed, bits_32, partition_of_70) in TEXTS {
        let text_bytes = text.as_bytes();
        assert_eq!(text_extended(text_bytes, 0) as i64, seed_0, "{text}");
        assert_eq!(text_extended(text_bytes, SEED) as i64, partition_seed, "{text}");
        if let Some(bits_32) = bits_32 {
            assert_eq!(bytes(text_bytes) as i32, bits_32, "{text}");
        }
        assert_eq!(partition_remainder(partition_text_key(text_bytes), 70), partition_of_70, "{text}");
    }
    assert_eq!(partition_text_key(b"user1"), 0x7CF7_68FA_E609_BC2F);
    assert_eq!(partition_remainder(partition_text_key(b"user1"), 6), 5);
}

#[test]
fn integers_hash_and_route_as_on_a_server() {
    for (value, seed_0, partition_seed, bits_32, partition_of_16) in INTEGERS {
        assert_eq!(int8_extended(value, 0) as i64, seed_0, "{value}");
        assert_eq!(int8_extended(value, SEED) as i64, partition_seed, "{value}");
        assert_eq!(int8_extended(value, 0) as i32, bits_32, "{value}");
        let key = partition_key([Some(int8_extended(value, SEED))]);
        assert_eq!(partition_remainder(key, 16), partition_of_16, "{value}");
        if let Ok(value) = i32::try_from(value) {
            assert_eq!(int4_extended(value, SEED) as i64, partition_seed, "{value}");
        }
        if let Ok(value) = i16::try_from(value) {
            assert_eq!(int2_extended(value, SEED) as i64, partition_seed, "{value}");
        }
    }
    assert_eq!(bool_extended(true, SEED), int4_extended(1, SEED));
    assert_eq!(bool_extended(false, 0), int4_extended(0, 0));
}

#[test]
fn uuids_and_byte_strings_hash_as_on_a_server() {
    assert_eq!(uuid_extended(&UUID, SEED) as i64, -8699738442285490013);
    assert_eq!(bytes(&UUID) as i32, 776152245);
    assert_eq!(bytes_extended(&[0x00, 0xFF, 0x80], SEED) as i64, 8118802338838502619);
}

#[test]
fn keys_of_several_columns_route_as_on_a_server() {
    let int = Some(int4_extended(1, SEED));
    let text = Some(text_extended(b"x", SEED));
    let uuid = Some(uuid_extended(&UUID, SEED));
    for (columns, partition) in
        [([int, text, uuid], 12), ([int, None, uuid], 13), ([None, text, None], 15), ([None; 3], 0)]
    {
        assert_eq!(partition_remainder(partition_key(columns), 16), partition);
    }
}

proptest! {
    #[test]
    fn the_short_hash_is_half_of_the_long_one(value: Vec<u8>) {
        prop_assert_eq!(bytes(&value), bytes_extended(&value, 0) as u32);
    }

    #[test]
    fn small_integers_of_any_width_hash_alike(value: i16, seed: u64) {
        prop_assert_eq!(int2_extended(value, seed), int8_extended(i64::from(value), seed));
        prop_assert_eq!(int4_extended(i32::from(value), seed), int8_extended(i64::from(value), seed));
        prop_assert_eq!(uint32_extended(value as u32, seed), bytes_extended(&(value as u32).to_le_bytes(), seed));
    }

    #[test]
    fn lanes_hash_as_one_field_at_a_time(keys: [[u8; 22]; 4], content: Vec<u8>, seeds: [u64; 4]) {
        // As wide as YCSB, and every remainder after strides and blocks.
        check_lanes::<100, 10, 40>(&keys, &content, [0, 1, seeds[2], seeds[3]])?;
        macro_rules! lengths {
            ($($length:literal)*) => { $( check_lanes::<$length, 3, 12>(&keys, &content, seeds)?; )* };
        }
        lengths!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 24 35 47 48 49 60 95 96 97);
    }
}

fn check_lanes<const BYTES: usize, const FIELDS: usize, const LANES: usize>(
    keys: &[[u8; 22]; 4],
    content: &[u8],
    seeds: [u64; 4],
) -> Result<(), TestCaseError> {
    let byte =
        |at: usize| content.get(at % content.len().max(1)).map_or(at as u8, |byte| byte ^ (at / 251) as u8);
    let fields: [[[u8; BYTES]; FIELDS]; 4] = std::array::from_fn(|row| {
        std::array::from_fn(|field| std::array::from_fn(|at| byte((row * FIELDS + field) * BYTES + at)))
    });
    let hashes = text_records::<22, BYTES, FIELDS, 4, LANES>(keys, &fields, &seeds);
    for row in 0..4 {
        let columns = std::iter::once(&keys[row][..]).chain(fields[row].iter().map(|field| &field[..]));
        let expected = record(columns.map(|column| Some(text_extended(column, seeds[row]))));
        prop_assert_eq!(hashes[row], expected);
        prop_assert_eq!(text_record(&keys[row], &fields[row], seeds[row]), expected);
    }
    Ok(())
}

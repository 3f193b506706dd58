//! Values of a distribution key, and how each type hashes.
//!
//! Only types whose hash is a function of their bytes alone are here. An enum hashes its OID, which differs between clusters; a
//! nondeterministic collation hashes a sort key of ICU's; `numeric` hashes digits after a normalisation that is not implemented here.
//! They have no [`KeyType`], so no code here can hash them by accident.

use super::{bytes_extended, int4_extended, int8_extended};

/// A type of key column whose hash the client may compute.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum KeyType {
    /// `text`, `varchar` and their domains, under a deterministic collation.
    Text,
    /// `char(n)`: trailing blanks do not count.
    Bpchar,
    /// `boolean`.
    Bool,
    /// `"char"`, one byte.
    Char,
    /// `smallint`.
    Int2,
    /// `integer`.
    Int4,
    /// `bigint`.
    Int8,
    /// `oid`.
    Oid,
    /// `date`.
    Date,
    /// `timestamp` with and without time zone.
    Timestamp,
    /// `time` without time zone.
    Time,
    /// `uuid`.
    Uuid,
    /// `bytea`.
    Bytea,
    /// `real`.
    Float4,
    /// `double precision`.
    Float8,
}

/// One value of a key column.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Key<'a> {
    /// In the server's encoding.
    Text(&'a [u8]),
    /// In the server's encoding, with or without the trailing blanks.
    Bpchar(&'a [u8]),
    /// A truth value.
    Bool(bool),
    /// One byte.
    Char(i8),
    /// A number.
    Int2(i16),
    /// A number.
    Int4(i32),
    /// A number.
    Int8(i64),
    /// An object's number.
    Oid(u32),
    /// Days since 2000-01-01.
    Date(i32),
    /// Microseconds since 2000-01-01.
    Timestamp(i64),
    /// Microseconds since midnight.
    Time(i64),
    /// In the order in which they are written.
    Uuid([u8; 16]),
    /// Raw bytes.
    Bytea(&'a [u8]),
    /// A number.
    Float4(f32),
    /// A number.
    Float8(f64),
}

impl Key<'_> {
    /// The type it is of.
    pub(crate) fn key_type(&self) -> KeyType {
        match self {
            Key::Text(_) => KeyType::Text,
            Key::Bpchar(_) => KeyType::Bpchar,
            Key::Bool(_) => KeyType::Bool,
            Key::Char(_) => KeyType::Char,
            Key::Int2(_) => KeyType::Int2,
            Key::Int4(_) => KeyType::Int4,
            Key::Int8(_) => KeyType::Int8,
            Key::Oid(_) => KeyType::Oid,
            Key::Date(_) => KeyType::Date,
            Key::Timestamp(_) => KeyType::Timestamp,
            Key::Time(_) => KeyType::Time,
            Key::Uuid(_) => KeyType::Uuid,
            Key::Bytea(_) => KeyType::Bytea,
            Key::Float4(_) => KeyType::Float4,
            Key::Float8(_) => KeyType::Float8,
        }
    }

    /// The extended hash function of the type's default operator class.
    #[must_use]
    pub fn extended(&self, seed: u64) -> u64 {
        match *self {
            Key::Text(bytes) | Key::Bytea(bytes) => bytes_extended(bytes, seed),
            Key::Bpchar(bytes) => bytes_extended(without_blanks(bytes), seed),
            Key::Bool(value) => int4_extended(i32::from(value), seed),
            Key::Char(value) => int4_extended(i32::from(value), seed),
            Key::Int2(value) => int4_extended(i32::from(value), seed),
            Key::Int4(value) | Key::Date(value) => int4_extended(value, seed),
            Key::Oid(value) => int4_extended(value as i32, seed),
            Key::Int8(value) | Key::Timestamp(value) | Key::Time(value) => int8_extended(value, seed),
            Key::Uuid(bytes) => bytes_extended(&bytes, seed),
            Key::Float4(value) => float8_extended(f64::from(value), seed),
            Key::Float8(value) => float8_extended(value, seed),
        }
    }

    /// The type's plain 32-bit hash function.
    #[must_use]
    pub fn plain(&self) -> u32 {
        self.extended(0) as u32
    }
}

/// `hashfloat8extended`: both zeros are equal, so they must have the same hash, and so must all NaNs. `src/backend/access/hash/hashfunc.c`.
#[must_use]
pub(crate) fn float8_extended(value: f64, seed: u64) -> u64 {
    if value == 0.0 {
        return seed;
    }
    // `get_float8_nan()`: the C library's NAN.
    let value = if value.is_nan() { f64::from_bits(0x7FF8_0000_0000_0000) } else { value };
    bytes_extended(&value.to_bits().to_le_bytes(), seed)
}

/// `bcTruelen`: a `char(n)` without its padding.
pub(super) fn without_blanks(bytes: &[u8]) -> &[u8] {
    let length = bytes.iter().rposition(|&byte| byte != b' ').map_or(0, |last| last + 1);
    &bytes[..length]
}

impl KeyType {
    /// The type behind a hash support function of PostgreSQL's own (`amprocnum` 2 of the operator class, schema `pg_catalog`). A function
    /// serves several types if their values have the same hash; `column` is the column's type, for those.
    pub(crate) fn of_function(function: &str, column: &str) -> Option<KeyType> {
        Some(match function {
            "hashtextextended" => KeyType::Text,
            "hashbpcharextended" => KeyType::Bpchar,
            // Before PostgreSQL 18 boolean used the function of "char", date that of int4, and bytea that of varlena.
            "hashboolextended" => KeyType::Bool,
            "hashcharextended" if column == "boolean" => KeyType::Bool,
            "hashcharextended" => KeyType::Char,
            "hashint2extended" => KeyType::Int2,
            "hashint4extended" if column == "date" => KeyType::Date,
            "hashint4extended" => KeyType::Int4,
            "hashdateextended" => KeyType::Date,
            "hashint8extended" => KeyType::Int8,
            "hashoidextended" => KeyType::Oid,
            "timestamp_hash_extended" | "timestamptz_hash_extended" => KeyType::Timestamp,
            "time_hash_extended" => KeyType::Time,
            "uuid_hash_extended" => KeyType::Uuid,
            "hashvarlenaextended" if column == "bytea" => KeyType::Bytea,
            "hashbyteaextended" => KeyType::Bytea,
            "hashfloat4extended" => KeyType::Float4,
            "hashfloat8extended" => KeyType::Float8,
            _ => return None,
        })
    }

    /// The type by the name that `format_type` gives it.
    pub fn of_name(name: &str) -> Option<KeyType> {
        Some(match name {
            "text" | "character varying" | "varchar" => KeyType::Text,
            "bpchar" | "character" => KeyType::Bpchar,
            "boolean" => KeyType::Bool,
            "\"char\"" => KeyType::Char,
            "smallint" => KeyType::Int2,
            "integer" => KeyType::Int4,
            "bigint" => KeyType::Int8,
            "oid" => KeyType::Oid,
            "date" => KeyType::Date,
            "timestamp without time zone" | "timestamp with time zone" => KeyType::Timestamp,
            "time without time zone" => KeyType::Time,
            "uuid" => KeyType::Uuid,
            "bytea" => KeyType::Bytea,
            "real" => KeyType::Float4,
            "double precision" => KeyType::Float8,
            _ => return None,
        })
    }

    /// A key from its text form; `None` for text that is not a value of the type, and for types whose text form depends on settings (dates and
    /// times).
    pub fn parse(self, text: &[u8]) -> Option<Key<'_>> {
        let number = || std::str::from_utf8(text).ok();
        Some(match self {
            KeyType::Text => Key::Text(text),
            KeyType::Bpchar => Key::Bpchar(text),
            KeyType::Bool => match text {
                b"t" | b"true" => Key::Bool(true),
                b"f" | b"false" => Key::Bool(false),
                _ => return None,
            },
            KeyType::Int2 => Key::Int2(number()?.parse().ok()?),
            KeyType::Int4 => Key::Int4(number()?.parse().ok()?),
            KeyType::Int8 => Key::Int8(number()?.parse().ok()?),
            KeyType::Oid => Key::Oid(number()?.parse().ok()?),
            KeyType::Uuid => Key::Uuid(uuid(text)?),
            KeyType::Char
            | KeyType::Date
            | KeyType::Timestamp
            | KeyType::Time
            | KeyType::Bytea
            | KeyType::Float4
            | KeyType::Float8 => return None,
        })
    }
}

/// `00112233-4455-6677-8899-aabbccddeeff`, the form that the server writes.
fn uuid(text: &[u8]) -> Option<[u8; 16]> {
    let dashes = text.len() == 36 && [8, 13, 18, 23].iter().all(|&place| text[place] == b'-');
    if !dashes {
        return None;
    }
    let mut digits = text.iter().filter(|&&byte| byte != b'-').map(|&byte| char::from(byte).to_digit(16));
    let mut bytes = [0; 16];
    for byte in &mut bytes {
        *byte = (digits.next()?? << 4 | digits.next()??) as u8;
    }
    digits.next().is_none().then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::PARTITION_SEED;

    /// The answers of PostgreSQL 13, 15 and 18, as signed numbers.
    #[test]
    fn known_answers_of_servers() {
        const DAYS: i32 = 9110; // 2024-12-10
        let uuid = KeyType::Uuid.parse(b"00112233-4455-6677-8899-aabbccddeeff").expect("a uuid");
        for (key, hash) in [
            (uuid, -8_699_738_442_285_490_013i64),
            (Key::Float8(1.5), -2_826_383_321_045_882_978),
            (Key::Float4(1.5), -2_826_383_321_045_882_978),
            (Key::Float8(f64::NAN), -6_475_869_854_796_787_835),
            (Key::Float8(-0.0), PARTITION_SEED as i64),
            (Key::Date(DAYS), 1_933_029_059_345_685_373),
            (Key::Timestamp(i64::from(DAYS) * 86_400_000_000), 2_523_306_546_954_178_210),
            (Key::Bytea(&[0x00, 0xff, 0x80]), 8_118_802_338_838_502_619),
            (Key::Text("ключ-éü€".as_bytes()), 4_708_246_133_999_842_719),
            (Key::Int2(-1), -5_017_072_347_659_237_694),
            (Key::Int8(i64::MIN), -6_050_265_599_104_649_060),
        ] {
            assert_eq!(key.extended(PARTITION_SEED) as i64, hash, "{key:?}");
        }
        assert_eq!(uuid.plain() as i32, 776_152_245);
        assert_eq!(Key::Text(b"").plain() as i32, -1_477_818_771);
        assert_eq!(Key::Bpchar(b"user1   ").plain() as i32, -335_245_252);
    }

    #[test]
    fn functions_are_taken_for_the_types_that_use_them() {
        assert_eq!(KeyType::of_function("hashcharextended", "boolean"), Some(KeyType::Bool));
        assert_eq!(KeyType::of_function("hashcharextended", "\"char\""), Some(KeyType::Char));
        assert_eq!(KeyType::of_function("hashvarlenaextended", "bytea"), Some(KeyType::Bytea));
        for refused in
            ["hash_numeric_extended", "hashenumextended", "hashvarlenaextended", "jsonb_hash_extended"]
        {
            assert_eq!(KeyType::of_function(refused, "x"), None, "{refused}");
        }
        for refused in ["numeric", "mood", "interval", "time with time zone", "text[]"] {
            assert_eq!(KeyType::of_name(refused), None, "{refused}");
        }
    }
}

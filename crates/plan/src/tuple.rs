//! How long PostgreSQL makes a row on disk: types, alignment, headers.
//!
//! Sources: `heap_compute_data_size` and `heap_form_tuple` in `src/backend/access/common/heaptuple.c`, `index_form_tuple` in `indextuple.c`,
//! `src/include/varatt.h`, the catalog `pg_type`.

use crate::error::PlanError;

/// `MAXIMUM_ALIGNOF` of every platform that PostgreSQL is built for today.
const ALIGN_BYTES_MAX: u64 = 8;
/// `SizeofHeapTupleHeader`.
const HEAP_HEADER_BYTES: u64 = 23;
/// `sizeof(IndexTupleData)`.
const INDEX_HEADER_BYTES: u64 = 8;
/// The most bytes of a value with a header of one byte (`VARATT_SHORT_MAX` without the header).
const SHORT_BYTES_MAX: u64 = 126;
/// A header of four bytes is aligned to this.
const LONG_ALIGN_BYTES: u64 = 4;
/// The header of a numeric in its short form, and of every numeric on the wire.
const NUMERIC_SHORT_BYTES: u64 = 2;
const NUMERIC_WIRE_BYTES: u64 = 8;
/// A jsonb on the wire begins with its version.
const JSONB_WIRE_BYTES: usize = 1;
/// Headers of a container and of one entry of it in a jsonb.
const JSONB_ENTRY_BYTES: u64 = 4;

/// The storage of a type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ColumnType {
    /// So many bytes, aligned to so many.
    Fixed {
        /// Length.
        bytes: u64,
        /// Alignment.
        align: u64,
    },
    /// Text of any kind, and bytea: stored as it is sent.
    Text,
    /// Stored in groups of four decimal digits.
    Numeric,
    /// Stored as a tree.
    Jsonb,
}

impl ColumnType {
    /// The type of a column by its definition in SQL, as `varchar(64) not null`.
    ///
    /// # Errors
    /// [`PlanError::Type`] for a type whose storage is not known here.
    pub fn parse(definition: &str) -> Result<ColumnType, PlanError> {
        let word: String = definition
            .trim_start()
            .chars()
            .take_while(|c| c.is_ascii_alphanumeric() || *c == '_')
            .collect::<String>()
            .to_ascii_lowercase();
        let fixed = |bytes, align| ColumnType::Fixed { bytes, align };
        Ok(match word.as_str() {
            "bool" | "boolean" => fixed(1, 1),
            "smallint" | "int2" => fixed(2, 2),
            "int" | "integer" | "int4" | "date" | "real" | "float4" | "oid" => fixed(4, 4),
            "bigint" | "int8" | "timestamp" | "timestamptz" | "time" | "float8" | "double" => fixed(8, 8),
            "uuid" => fixed(16, 1),
            "text" | "varchar" | "char" | "character" | "bpchar" | "bytea" => ColumnType::Text,
            "numeric" | "decimal" => ColumnType::Numeric,
            "jsonb" => ColumnType::Jsonb,
            _ => return Err(PlanError::Type { definition: definition.into() }),
        })
    }

    /// Bytes of a value on disk without its length header, from the value as it is sent in binary form.
    ///
    /// # Errors
    /// [`PlanError::Json`] if a jsonb is not what it should be.
    pub(crate) fn stored_bytes(self, wire: &[u8]) -> Result<u64, PlanError> {
        let length = wire.len() as u64;
        Ok(match self {
            ColumnType::Fixed { bytes, .. } => bytes,
            ColumnType::Text => length,
            ColumnType::Numeric => numeric_bytes(length),
            ColumnType::Jsonb => {
                let text = wire.get(JSONB_WIRE_BYTES..).unwrap_or_default();
                let value = serde_json::from_slice(text).map_err(|source| PlanError::Json { source })?;
                jsonb_bytes(&value)
            }
        })
    }

    /// The end of a value that begins behind so many bytes.
    fn end(self, from: u64, stored_bytes: u64) -> u64 {
        match self {
            ColumnType::Fixed { bytes, align } => from.next_multiple_of(align) + bytes,
            _ if stored_bytes <= SHORT_BYTES_MAX => from + 1 + stored_bytes,
            _ => from.next_multiple_of(LONG_ALIGN_BYTES) + 4 + stored_bytes,
        }
    }
}

/// A numeric on disk: the short form holds every weight and scale that occurs in practice.
fn numeric_bytes(wire_bytes: u64) -> u64 {
    NUMERIC_SHORT_BYTES + wire_bytes.saturating_sub(NUMERIC_WIRE_BYTES)
}

/// A jsonb on disk: a container has a header, an entry for each key and value, the keys, and the values. Numbers are aligned numerics.
fn jsonb_bytes(value: &serde_json::Value) -> u64 {
    fn number(digits: &str, at: u64) -> u64 {
        let digits = digits.bytes().filter(u8::is_ascii_digit).count() as u64;
        // Header of the value, header of the numeric, and two bytes for four digits.
        at.next_multiple_of(LONG_ALIGN_BYTES) + 4 + NUMERIC_SHORT_BYTES + 2 * digits.div_ceil(4)
    }
    /// The end of a value that begins at `at`.
    fn end(value: &serde_json::Value, at: u64) -> u64 {
        use serde_json::Value::{Array, Bool, Null, Number, Object, String};
        match value {
            Null | Bool(_) => at,
            Number(digits) => number(&digits.to_string(), at),
            String(text) => at + text.len() as u64,
            Array(values) => {
                let head =
                    at.next_multiple_of(LONG_ALIGN_BYTES) + JSONB_ENTRY_BYTES * (1 + values.len() as u64);
                values.iter().fold(head, |at, value| end(value, at))
            }
            Object(values) => {
                let entries = JSONB_ENTRY_BYTES * (1 + 2 * values.len() as u64);
                let keys: u64 = values.keys().map(|key| key.len() as u64).sum();
                let head = at.next_multiple_of(LONG_ALIGN_BYTES) + entries + keys;
                values.values().fold(head, |at, value| end(value, at))
            }
        }
    }
    end(value, 0)
}

/// Bytes of the data of a tuple: values one behind the other, each aligned. `None` is a null.
fn data_bytes(columns: &[ColumnType], stored: &[Option<u64>]) -> u64 {
    let values = columns.iter().zip(stored).filter_map(|(column, bytes)| Some((column, (*bytes)?)));
    values.fold(0, |from, (column, bytes)| column.end(from, bytes))
}

/// Bytes of a heap tuple without its line pointer, not aligned at its end.
pub(crate) fn heap_bytes(columns: &[ColumnType], stored: &[Option<u64>]) -> u64 {
    let has_nulls = stored.iter().any(Option::is_none);
    let nulls = if has_nulls { (columns.len() as u64).div_ceil(8) } else { 0 };
    (HEAP_HEADER_BYTES + nulls).next_multiple_of(ALIGN_BYTES_MAX) + data_bytes(columns, stored)
}

/// Bytes of an index tuple without its line pointer, aligned at its end.
pub(crate) fn index_bytes(columns: &[ColumnType], stored: &[Option<u64>]) -> u64 {
    // The bitmap of nulls has a fixed length of 32 bits.
    let nulls = if stored.iter().any(Option::is_none) { 4 } else { 0 };
    let head = (INDEX_HEADER_BYTES + nulls).next_multiple_of(ALIGN_BYTES_MAX);
    aligned(head + data_bytes(columns, stored))
}

/// `MAXALIGN`.
pub(crate) fn aligned(bytes: u64) -> u64 {
    bytes.next_multiple_of(ALIGN_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn types_are_known_by_their_definitions() {
        let parse = |text: &str| ColumnType::parse(text).expect("known");
        assert_eq!(parse("int not null"), ColumnType::Fixed { bytes: 4, align: 4 });
        assert_eq!(parse("varchar(16) collate \"C\" not null"), ColumnType::Text);
        assert_eq!(parse("numeric(12,2)"), ColumnType::Numeric);
        assert_eq!(parse("timestamp"), ColumnType::Fixed { bytes: 8, align: 8 });
        assert!(ColumnType::parse("polygon").expect_err("unknown").hint().is_some());
    }

    /// By `select pg_column_size(row(...))` and the page of `pageinspect` on PostgreSQL 15.
    #[test]
    fn tuples_have_the_length_that_the_server_gives_them() {
        let int = ColumnType::Fixed { bytes: 4, align: 4 };
        let long = ColumnType::Fixed { bytes: 8, align: 8 };
        // select pg_column_size(row(1::int, 2::bigint)) = 40
        assert_eq!(heap_bytes(&[int, long], &[Some(4), Some(8)]), 40);
        // select pg_column_size(row('abc'::text, 1::int)) = 32: 24 + 4 + 4
        assert_eq!(heap_bytes(&[ColumnType::Text, int], &[Some(3), Some(4)]), 32);
        // A null costs nothing here: the bitmap fits beside the header.
        assert_eq!(heap_bytes(&[ColumnType::Text, int], &[None, Some(4)]), 28);
        // From 127 bytes on a text has a header of four bytes, which is aligned.
        assert_eq!(heap_bytes(&[ColumnType::Text], &[Some(126)]), 24 + 127);
        assert_eq!(heap_bytes(&[ColumnType::Text], &[Some(127)]), 24 + 131);
        assert_eq!(index_bytes(&[ColumnType::Text], &[Some(22)]), 32);
        assert_eq!(index_bytes(&[int, int, int], &[Some(4), Some(4), Some(4)]), 24);
    }

    #[test]
    fn numerics_and_documents_are_stored_differently_from_what_is_sent() {
        // 12345.67 is sent with three digits: 8 + 6 bytes; select pg_column_size(12345.67) = 3 + 6 = 9 with its header in a table.
        assert_eq!(ColumnType::Numeric.stored_bytes(&[0; 14]).expect("a numeric"), 8);
        // select pg_column_size('{"a": "bc"}'::jsonb) is 19: 4 of a header, 4 + 8 of the object, 1 + 2.
        assert_eq!(ColumnType::Jsonb.stored_bytes(b"\x01{\"a\": \"bc\"}").expect("a document"), 15);
        assert!(ColumnType::Jsonb.stored_bytes(b"\x01{").is_err());
    }

    proptest! {
        #[test]
        fn a_longer_value_never_makes_a_shorter_row(lengths in prop::collection::vec(0u64..3_000, 1..12), at in 0usize..12, more in 0u64..500) {
            let columns = vec![ColumnType::Text; lengths.len()];
            let stored: Vec<Option<u64>> = lengths.iter().copied().map(Some).collect();
            let mut longer = stored.clone();
            let at = at % longer.len();
            longer[at] = longer[at].map(|bytes| bytes + more);
            prop_assert!(heap_bytes(&columns, &longer) >= heap_bytes(&columns, &stored));
            prop_assert!(index_bytes(&columns, &longer) >= index_bytes(&columns, &stored));
        }
    }
}

//! Rows as they go over the wire: binary COPY tuples in one reused message.

use data::ycsb::{FIELD_BYTES, FIELD_COUNT, KEY_BYTES, Table};
use wire::copy::{FixedTuples, TupleShape};

/// Columns of the table in the order of the tuple.
pub(super) fn column_names() -> String {
    let fields = (0..FIELD_COUNT).map(|column| format!(", field{column}"));
    std::iter::once("ycsb_key".to_owned()).chain(fields).collect()
}

/// One message of encoded rows.
#[derive(Debug)]
pub struct RowMessage {
    tuples: FixedTuples,
    key_offset: usize,
    field_offsets: [usize; FIELD_COUNT],
    fields: [[u8; FIELD_BYTES]; FIELD_COUNT],
}

impl RowMessage {
    /// An empty message of at most `message_bytes`.
    pub fn new(message_bytes: usize) -> RowMessage {
        let mut widths = [FIELD_BYTES; FIELD_COUNT + 1];
        widths[0] = KEY_BYTES;
        let shape = TupleShape::new(&widths);
        RowMessage {
            key_offset: shape.offset(0),
            field_offsets: std::array::from_fn(|column| shape.offset(column + 1)),
            tuples: FixedTuples::new(shape, message_bytes),
            fields: [[0; FIELD_BYTES]; FIELD_COUNT],
        }
    }

    /// Appends one row as it is loaded. Allocates nothing.
    ///
    /// # Panics
    /// When the message is full.
    #[inline]
    pub fn push(&mut self, table: &Table, row: u64) {
        table.row_fields(row, &mut self.fields);
        let tuple = self.tuples.next_tuple();
        tuple[self.key_offset..][..KEY_BYTES].copy_from_slice(&table.key(row));
        for (offset, field) in self.field_offsets.iter().zip(&self.fields) {
            tuple[*offset..][..FIELD_BYTES].copy_from_slice(field);
        }
    }

    /// Whether it has to be sent before the next row.
    pub fn is_full(&self) -> bool {
        self.tuples.is_full()
    }

    /// Rows in it.
    pub fn len(&self) -> usize {
        self.tuples.len()
    }

    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.tuples.is_empty()
    }

    /// The CopyData message.
    pub fn message(&mut self) -> &[u8] {
        self.tuples.message()
    }

    /// Starts the next message.
    pub fn clear(&mut self) {
        self.tuples.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use data::ycsb::{Compressible, Judgement, KeyOrder, Spec, Version};
    use wire::copy::Fields;

    #[test]
    fn columns_are_the_tables() {
        assert!(column_names().starts_with("ycsb_key, field0, field1"));
        assert!(column_names().ends_with(", field9"));
    }

    #[test]
    fn tuples_decode_to_the_rows() {
        let table =
            Table::new(Spec { seed: 3, key_order: KeyOrder::Scattered, compressible: Compressible::NONE });
        let mut message = RowMessage::new(5 + 3 * 1068);
        for first in [0, 1_000_000_000_000] {
            message.clear();
            for row in first..first + 3 {
                message.push(&table, row);
            }
            assert!(message.is_full());
            let bytes = message.message().to_vec();
            assert_eq!(bytes.len(), 5 + 3 * 1068);
            for (tuple, row) in bytes[5..].chunks(1068).zip(first..) {
                let mut fields = Fields::parse(tuple).unwrap().unwrap();
                let key = fields.next_field().unwrap().unwrap().unwrap();
                assert_eq!(table.row_of_key(key), Some(row));
                for column in 0..FIELD_COUNT {
                    let value = fields.next_field().unwrap().unwrap().unwrap();
                    assert_eq!(
                        table.judge(row, column, value),
                        Judgement::Exact { version: Version::LOADED },
                        "row {row} column {column}"
                    );
                }
                assert_eq!(fields.next_field(), Ok(None));
            }
        }
    }
}

//! The cost of its rows without a server, for `self`: content alone, and as binary COPY.

use std::hint::black_box;

use data::ycsb::{Compressible, FIELD_BYTES, FIELD_COUNT, KeyOrder, Spec, Table};

use super::dataset::{ROW_VALUE_BYTES, RowMessage};
use crate::dataset::{Generator, Messages};

/// Computes rows and throws them away.
pub const GENERATOR: Generator =
    Generator { about: "keys and values of YCSB rows", row_bytes: ROW_VALUE_BYTES, rows, messages };

fn table() -> Table {
    Table::new(Spec { seed: 1, key_order: KeyOrder::Scattered, compressible: Compressible::NONE })
}

fn rows() -> Box<dyn FnMut(u64)> {
    let table = table();
    let mut fields = [[0u8; FIELD_BYTES]; FIELD_COUNT];
    Box::new(move |row| {
        black_box(table.key(row));
        table.row_fields(row, &mut fields);
        black_box(&fields);
    })
}

fn messages(message_bytes: usize) -> Messages {
    let table = table();
    let mut message = RowMessage::new(message_bytes);
    Box::new(move |row| {
        message.push(&table, row);
        message.is_full().then(|| {
            let bytes = black_box(message.message()).len();
            message.clear();
            bytes
        })
    })
}

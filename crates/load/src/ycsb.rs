//! The YCSB table as a dataset.

use std::ops::Range;

use data::ycsb::{FIELD_BYTES, FIELD_COUNT, KEY_BYTES, Spec};
use wire::copy::values::Tuples;

use crate::dataset::{Dataset, Encoder, Expected, Numbers, Parameter, Placed, Placement, Table};
use crate::ledger::YCSB;
use crate::plan::{ROW_VALUE_BYTES, TABLE};
use crate::route::key_hash;
use crate::rows::RowMessage;

const FIELDS: [&str; FIELD_COUNT] =
    ["field0", "field1", "field2", "field3", "field4", "field5", "field6", "field7", "field8", "field9"];
const _: () = assert!(FIELD_BYTES == 100);

/// A table of so many rows.
#[derive(Clone, Debug)]
pub struct Ycsb {
    content: data::ycsb::Table,
    spec: Spec,
    tables: [Table; 1],
}

impl Ycsb {
    /// With this content.
    pub fn new(rows: u64, spec: Spec) -> Ycsb {
        // Not null from the start: the primary key would have to read every row to add it.
        let key = ("ycsb_key", "varchar(64) not null");
        let fields = FIELDS.map(|name| (name, "varchar(100)"));
        let table = Table {
            name: TABLE,
            rows,
            columns: std::iter::once(key).chain(fields).collect(),
            key: Some("ycsb_key"),
            named_by: None,
            index: None,
            placement: Placement::Hash { column: "ycsb_key", kind: "varchar" },
            mutable: &[],
            fillfactor: None,
        };
        Ycsb { content: data::ycsb::Table::new(spec.clone()), spec, tables: [table] }
    }
}

impl Dataset for Ycsb {
    fn name(&self) -> &'static str {
        YCSB
    }

    fn tables(&self) -> &[Table] {
        &self.tables
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn parameters(&self) -> Vec<Parameter> {
        let parameter = |what, flag, value| Parameter { what, flag, value };
        vec![
            parameter("rows", "--rows", self.tables[0].rows.to_string()),
            parameter("key order", "--key-order", self.spec.key_order.to_string()),
            parameter("compressibility", "--compressible", self.spec.compressible.to_string()),
        ]
    }

    fn row_bytes(&self) -> u64 {
        ROW_VALUE_BYTES
    }

    fn place(&self, rows: Range<u64>, placed: &mut Placed<'_>) {
        for row in rows {
            placed.push(0, key_hash(&self.content.key(row)), ROW_VALUE_BYTES);
        }
    }

    fn key(&self, row: u64) -> String {
        String::from_utf8_lossy(&self.content.key(row)).into_owned()
    }

    fn encoder(&self, message_bytes: usize) -> Box<dyn Encoder + Send + '_> {
        Box::new(FixedEncoder { content: &self.content, message: RowMessage::new(message_bytes) })
    }

    fn number(&self, _: usize, found: &[Option<&[u8]>]) -> Option<u64> {
        let key: &[u8; KEY_BYTES] = (*found.first()?)?.try_into().ok()?;
        self.content.row_of_key(key).filter(|row| *row < self.tables[0].rows)
    }

    fn expect(&self, _: usize, number: u64, _: &[Option<&[u8]>], out: &mut Tuples) -> Expected {
        let mut fields = [[0; FIELD_BYTES]; FIELD_COUNT];
        self.content.row_fields(number, &mut fields);
        out.begin(FIELD_COUNT + 1);
        out.text(&self.content.key(number));
        fields.iter().for_each(|field| out.text(field));
        Expected::Loaded
    }
}

/// Rows that are all of one width.
struct FixedEncoder<'a> {
    content: &'a data::ycsb::Table,
    message: RowMessage,
}

impl Encoder for FixedEncoder<'_> {
    fn fill(&mut self, rows: &mut Numbers<'_>) {
        while !self.message.is_full()
            && let Some(row) = rows.next()
        {
            self.message.push(self.content, row);
        }
    }

    fn is_full(&self) -> bool {
        self.message.is_full()
    }

    fn is_empty(&self) -> bool {
        self.message.is_empty()
    }

    fn rows(&self) -> u64 {
        self.message.len() as u64
    }

    fn message(&mut self) -> &[u8] {
        self.message.message()
    }

    fn clear(&mut self) {
        self.message.clear();
    }

    fn reset(&mut self) {
        self.message.clear();
    }
}

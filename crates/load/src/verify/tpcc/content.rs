//! What must be in the tables: rows made again, in the forms in which they are compared.

use data::tpcc::rows::{Columns, Row};
use data::tpcc::{
    CUSTOMERS_PER_DISTRICT, DISTRICTS_PER_WAREHOUSE, FIRST_NEW_ORDER, ITEMS, LINES_PER_ORDER_MAX,
    NEW_ORDERS_PER_DISTRICT, ORDERS_PER_DISTRICT, Population, STOCK_PER_WAREHOUSE, Table,
};
use engines::hash;
use wire::copy::values::{numeric, timestamp, with_length};

use crate::tpcc::encode::Place;
use crate::tpcc::schema::{columns, primary_key};

/// The most columns that say which row it is.
pub(super) const IDS_MAX: usize = 4;

/// The dataset.
#[derive(Debug)]
pub(super) struct Content {
    pub(super) population: Population,
    pub(super) warehouses: u32,
}

impl Content {
    pub(super) fn new(population: Population, warehouses: u32) -> Content {
        Content { population, warehouses }
    }

    /// The place of a row that says it is this one, by the columns in front of it; `None` when the load made no row of these numbers.
    /// (An order may still have fewer lines.)
    pub(super) fn place(&self, table: Table, ids: &[Option<i32>]) -> Option<Place> {
        let id = |column: usize, first: u32, count: u32| -> Option<u32> {
            let id = u32::try_from(ids[column]?).ok()?;
            id.checked_sub(first).filter(|offset| *offset < count)
        };
        let warehouse = |column: usize| id(column, 1, self.warehouses).map(|offset| offset + 1);
        let district = |column: usize| id(column, 1, DISTRICTS_PER_WAREHOUSE);
        let (w_id, number) = match table {
            Table::Warehouse => (warehouse(0)?, 0),
            Table::District => (warehouse(1)?, district(0)?),
            Table::Item => (0, id(0, 1, ITEMS)?),
            Table::Stock => (warehouse(1)?, id(0, 1, STOCK_PER_WAREHOUSE)?),
            Table::Customer | Table::History => {
                let c_id = id(0, 1, CUSTOMERS_PER_DISTRICT)?;
                (warehouse(2)?, district(1)? * CUSTOMERS_PER_DISTRICT + c_id)
            }
            Table::NewOrder => {
                let o_id = id(0, FIRST_NEW_ORDER, NEW_ORDERS_PER_DISTRICT)?;
                (warehouse(2)?, district(1)? * NEW_ORDERS_PER_DISTRICT + o_id)
            }
            Table::Orders => {
                let o_id = id(0, 1, ORDERS_PER_DISTRICT)?;
                (warehouse(2)?, district(1)? * ORDERS_PER_DISTRICT + o_id)
            }
            Table::OrderLine => {
                let (o_id, number) = (id(0, 1, ORDERS_PER_DISTRICT)?, id(3, 1, LINES_PER_ORDER_MAX)?);
                let order = district(1)? * ORDERS_PER_DISTRICT + o_id;
                (warehouse(2)?, order * (LINES_PER_ORDER_MAX + 1) + number)
            }
        };
        Some(Place { w_id, number })
    }
}

/// How many columns in front of a row say which it is.
pub(super) fn ids(table: Table) -> usize {
    match table {
        Table::Warehouse | Table::Item => 1,
        Table::District | Table::Stock => 2,
        Table::Customer | Table::History | Table::NewOrder | Table::Orders => 3,
        Table::OrderLine => IDS_MAX,
    }
}

/// A row by its key, as a condition that can be pasted into a query: `c_w_id = 1 and c_d_id = 2 and c_id = 3`.
pub(super) fn condition(table: Table, ids: &[Option<i32>]) -> String {
    // HISTORY has no key; the load made one row per customer.
    let key = primary_key(table).unwrap_or("h_c_w_id, h_c_d_id, h_c_id");
    let part = |name: &str| {
        let column = columns(table).iter().position(|(column, _)| *column == name);
        match column.and_then(|column| ids[column]) {
            Some(id) => format!("{name} = {id}"),
            None => format!("{name} is null"),
        }
    };
    key.split(", ").map(part).collect::<Vec<_>>().join(" and ")
}

/// The type of a column as the server numbers it (`src/include/catalog/pg_type.dat`), from its declaration.
pub(super) fn type_oid(declared: &str) -> u32 {
    const KINDS: [(&str, u32); 5] =
        [("int", 23), ("varchar(", 1043), ("char(", 1042), ("numeric(", 1700), ("timestamp", 1114)];
    let kind = KINDS.iter().find(|(name, _)| declared.starts_with(name));
    kind.expect("the tables have columns of these types only").1
}

/// Hashes rows as the server does: `hash_record_extended(row(record_send(row(<columns>))), 0)`.
///
/// `record_send` (`src/backend/utils/adt/rowtypes.c`) is the number of columns, and for each its type, its length (-1 for null) and its
/// value in binary form. A record of one column has that column's hash; a bytea is hashed as a text is.
#[derive(Debug)]
pub(super) struct RecordHash {
    oids: Vec<u32>,
    bytes: Vec<u8>,
    column: usize,
}

impl RecordHash {
    pub(super) fn new(table: Table) -> RecordHash {
        let oids = columns(table).iter().map(|(_, declared)| type_oid(declared)).collect();
        RecordHash { oids, bytes: Vec::new(), column: 0 }
    }

    /// The hash of one row.
    #[inline]
    pub(super) fn of<R: Row>(&mut self, row: &R) -> u64 {
        self.bytes.clear();
        self.bytes.extend_from_slice(&(R::COLUMNS as i32).to_be_bytes());
        self.column = 0;
        row.columns(self);
        hash::record([Some(hash::bytes_extended(&self.bytes, 0))])
    }

    /// How many bytes the values of the last row have.
    #[inline]
    pub(super) fn value_bytes(&self) -> u64 {
        // The number of columns, and the type and the length of each, are no values.
        (self.bytes.len() - 4 - 8 * self.oids.len()) as u64
    }

    #[inline(always)]
    fn oid(&mut self) {
        self.bytes.extend_from_slice(&self.oids[self.column].to_be_bytes());
        self.column += 1;
    }

    #[inline(always)]
    fn value(&mut self, value: &[u8]) {
        self.oid();
        self.bytes.extend_from_slice(&(value.len() as i32).to_be_bytes());
        self.bytes.extend_from_slice(value);
    }
}

impl Columns for RecordHash {
    #[inline(always)]
    fn int(&mut self, value: i32) {
        self.value(&value.to_be_bytes());
    }
    #[inline(always)]
    fn numeric(&mut self, value: i64, scale: u8) {
        self.oid();
        with_length(&mut self.bytes, |out| numeric(out, value, scale));
    }
    #[inline(always)]
    fn text(&mut self, value: &[u8]) {
        self.value(value);
    }
    #[inline(always)]
    fn time_us(&mut self, value: i64) {
        self.value(&timestamp(value));
    }
    #[inline(always)]
    fn null(&mut self) {
        self.oid();
        self.bytes.extend_from_slice(&(-1i32).to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tpcc::encode::{Placed, Sink, each_row};
    use std::convert::Infallible;

    /// The columns in front of a row.
    #[derive(Default)]
    struct Ids(Vec<Option<i32>>);

    impl Columns for Ids {
        fn int(&mut self, value: i32) {
            self.0.push(Some(value));
        }
        fn numeric(&mut self, _: i64, _: u8) {
            self.0.push(None);
        }
        fn text(&mut self, _: &[u8]) {
            self.0.push(None);
        }
        fn time_us(&mut self, _: i64) {
            self.0.push(None);
        }
        fn null(&mut self) {
            self.0.push(None);
        }
    }

    /// Asks for the place of every row.
    struct Asked<'a>(&'a Content);

    impl Sink for Asked<'_> {
        type Error = Infallible;

        fn row<R: Placed>(&mut self, table: Table, row: &R) -> Result<(), Infallible> {
            let mut columns = Ids::default();
            row.columns(&mut columns);
            columns.0.truncate(ids(table));
            assert_eq!(self.0.place(table, &columns.0), Some(row.place()), "{table:?}");
            for column in 0..columns.0.len() {
                for wrong in [None, Some(0), Some(-1), Some(200_000)] {
                    let mut columns = columns.0.clone();
                    columns[column] = wrong;
                    assert_eq!(self.0.place(table, &columns), None, "{table:?} {columns:?}");
                }
            }
            Ok(())
        }
    }

    #[test]
    fn rows_say_their_place_and_others_have_none() {
        let content = Content::new(Population::new(1), 2);
        for table in Table::ALL {
            let w_id = if table == Table::Item { 0 } else { 2 };
            let Ok(()) = each_row(&content.population, table, w_id, &mut Asked(&content));
        }
    }

    #[test]
    fn conditions_are_sql() {
        let ids = [Some(3), Some(2), Some(1), Some(7)];
        assert_eq!(condition(Table::Customer, &ids), "c_w_id = 1 and c_d_id = 2 and c_id = 3");
        assert_eq!(condition(Table::History, &ids), "h_c_w_id = 1 and h_c_d_id = 2 and h_c_id = 3");
        assert_eq!(
            condition(Table::OrderLine, &ids),
            "ol_w_id = 1 and ol_d_id = 2 and ol_o_id = 3 and ol_number = 7"
        );
        assert_eq!(condition(Table::Item, &[None]), "i_id is null");
    }

    #[test]
    fn declarations_have_types() {
        for (declared, oid) in
            [("int not null", 23), ("varchar(16) collate \"C\" not null", 1043), ("char(2)", 1042)]
        {
            assert_eq!(type_oid(declared), oid);
        }
        for table in Table::ALL {
            assert!(columns(table).iter().all(|(_, declared)| type_oid(declared) > 0));
        }
    }
}

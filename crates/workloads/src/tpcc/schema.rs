//! The nine tables in SQL: columns and keys by clause 1.3.
//!
//! Identifiers and counts are `int`: four bytes hold every value that clause 1.3 asks for. Money and rates are `numeric`, because the
//! consistency conditions (clause 3.3.2) compare sums for equality. Two columns of names have the collation "C", so that their index is
//! sorted by bytes, which is fast and the same on every host.

use data::tpcc::{DISTRICTS_PER_WAREHOUSE, Table};
use load::dataset::{self, ForeignKey, Placement};

use super::rows::numbers;

/// The name of the dataset in the ledger. One per database: its tables have fixed names.
pub const TPCC: &str = "tpcc";

/// Columns of a table with their types, in the order of clause 1.3.
type Columns = &'static [(&'static str, &'static str)];

const WAREHOUSE: Columns = &[
    ("w_id", "int not null"),
    ("w_name", "varchar(10) not null"),
    ("w_street_1", "varchar(20) not null"),
    ("w_street_2", "varchar(20) not null"),
    ("w_city", "varchar(20) not null"),
    ("w_state", "char(2) not null"),
    ("w_zip", "char(9) not null"),
    ("w_tax", "numeric(4,4) not null"),
    ("w_ytd", "numeric(12,2) not null"),
];

const DISTRICT: Columns = &[
    ("d_id", "int not null"),
    ("d_w_id", "int not null"),
    ("d_name", "varchar(10) not null"),
    ("d_street_1", "varchar(20) not null"),
    ("d_street_2", "varchar(20) not null"),
    ("d_city", "varchar(20) not null"),
    ("d_state", "char(2) not null"),
    ("d_zip", "char(9) not null"),
    ("d_tax", "numeric(4,4) not null"),
    ("d_ytd", "numeric(12,2) not null"),
    ("d_next_o_id", "int not null"),
];

const CUSTOMER: Columns = &[
    ("c_id", "int not null"),
    ("c_d_id", "int not null"),
    ("c_w_id", "int not null"),
    ("c_first", "varchar(16) collate \"C\" not null"),
    ("c_middle", "char(2) not null"),
    ("c_last", "varchar(16) collate \"C\" not null"),
    ("c_street_1", "varchar(20) not null"),
    ("c_street_2", "varchar(20) not null"),
    ("c_city", "varchar(20) not null"),
    ("c_state", "char(2) not null"),
    ("c_zip", "char(9) not null"),
    ("c_phone", "char(16) not null"),
    ("c_since", "timestamp not null"),
    ("c_credit", "char(2) not null"),
    ("c_credit_lim", "numeric(12,2) not null"),
    ("c_discount", "numeric(4,4) not null"),
    ("c_balance", "numeric(12,2) not null"),
    ("c_ytd_payment", "numeric(12,2) not null"),
    ("c_payment_cnt", "int not null"),
    ("c_delivery_cnt", "int not null"),
    ("c_data", "varchar(500) not null"),
];

const HISTORY: Columns = &[
    ("h_c_id", "int not null"),
    ("h_c_d_id", "int not null"),
    ("h_c_w_id", "int not null"),
    ("h_d_id", "int not null"),
    ("h_w_id", "int not null"),
    ("h_date", "timestamp not null"),
    ("h_amount", "numeric(6,2) not null"),
    ("h_data", "varchar(24) not null"),
];

const NEW_ORDER: Columns =
    &[("no_o_id", "int not null"), ("no_d_id", "int not null"), ("no_w_id", "int not null")];

const ORDERS: Columns = &[
    ("o_id", "int not null"),
    ("o_d_id", "int not null"),
    ("o_w_id", "int not null"),
    ("o_c_id", "int not null"),
    ("o_entry_d", "timestamp not null"),
    ("o_carrier_id", "int"),
    ("o_ol_cnt", "int not null"),
    ("o_all_local", "int not null"),
];

const ORDER_LINE: Columns = &[
    ("ol_o_id", "int not null"),
    ("ol_d_id", "int not null"),
    ("ol_w_id", "int not null"),
    ("ol_number", "int not null"),
    ("ol_i_id", "int not null"),
    ("ol_supply_w_id", "int not null"),
    ("ol_delivery_d", "timestamp"),
    ("ol_quantity", "int not null"),
    ("ol_amount", "numeric(6,2) not null"),
    ("ol_dist_info", "char(24) not null"),
];

const ITEM: Columns = &[
    ("i_id", "int not null"),
    ("i_im_id", "int not null"),
    ("i_name", "varchar(24) not null"),
    ("i_price", "numeric(5,2) not null"),
    ("i_data", "varchar(50) not null"),
];

const STOCK: Columns = &[
    ("s_i_id", "int not null"),
    ("s_w_id", "int not null"),
    ("s_quantity", "int not null"),
    ("s_dist_01", "char(24) not null"),
    ("s_dist_02", "char(24) not null"),
    ("s_dist_03", "char(24) not null"),
    ("s_dist_04", "char(24) not null"),
    ("s_dist_05", "char(24) not null"),
    ("s_dist_06", "char(24) not null"),
    ("s_dist_07", "char(24) not null"),
    ("s_dist_08", "char(24) not null"),
    ("s_dist_09", "char(24) not null"),
    ("s_dist_10", "char(24) not null"),
    ("s_ytd", "int not null"),
    ("s_order_cnt", "int not null"),
    ("s_remote_cnt", "int not null"),
    ("s_data", "varchar(50) not null"),
];

/// The columns of a table.
pub(super) const fn columns(table: Table) -> Columns {
    match table {
        Table::Warehouse => WAREHOUSE,
        Table::District => DISTRICT,
        Table::Customer => CUSTOMER,
        Table::History => HISTORY,
        Table::NewOrder => NEW_ORDER,
        Table::Orders => ORDERS,
        Table::OrderLine => ORDER_LINE,
        Table::Item => ITEM,
        Table::Stock => STOCK,
    }
}

/// Columns of the primary key; HISTORY has none.
pub(super) const fn primary_key(table: Table) -> Option<&'static str> {
    match table {
        Table::Warehouse => Some("w_id"),
        Table::District => Some("d_w_id, d_id"),
        Table::Customer => Some("c_w_id, c_d_id, c_id"),
        Table::History => None,
        Table::NewOrder => Some("no_w_id, no_d_id, no_o_id"),
        Table::Orders => Some("o_w_id, o_d_id, o_id"),
        Table::OrderLine => Some("ol_w_id, ol_d_id, ol_o_id, ol_number"),
        Table::Item => Some("i_id"),
        Table::Stock => Some("s_w_id, s_i_id"),
    }
}

/// A further index: its name and columns. Payment and Order-Status look for customers by name (clauses 2.5.2.2 and 2.6.2.2), Order-Status
/// for a customer's last order.
pub(super) const fn index(table: Table) -> Option<(&'static str, &'static str)> {
    match table {
        Table::Customer => Some(("customer_by_name", "c_w_id, c_d_id, c_last, c_first")),
        Table::Orders => Some(("orders_by_customer", "o_w_id, o_d_id, o_c_id, o_id")),
        _ => None,
    }
}

const fn reference(table: Table, name: &'static str, columns: &'static str, referred: Table) -> ForeignKey {
    ForeignKey { table: table.name(), name, columns, referred: referred.name() }
}

/// The foreign keys of clause 1.3.
pub(super) const FOREIGN_KEYS: [ForeignKey; 10] = [
    reference(Table::District, "district_warehouse", "d_w_id", Table::Warehouse),
    reference(Table::Customer, "customer_district", "c_w_id, c_d_id", Table::District),
    reference(Table::History, "history_customer", "h_c_w_id, h_c_d_id, h_c_id", Table::Customer),
    reference(Table::History, "history_district", "h_w_id, h_d_id", Table::District),
    reference(Table::Orders, "orders_customer", "o_w_id, o_d_id, o_c_id", Table::Customer),
    reference(Table::NewOrder, "new_order_orders", "no_w_id, no_d_id, no_o_id", Table::Orders),
    reference(Table::OrderLine, "order_line_orders", "ol_w_id, ol_d_id, ol_o_id", Table::Orders),
    reference(Table::OrderLine, "order_line_stock", "ol_supply_w_id, ol_i_id", Table::Stock),
    reference(Table::Stock, "stock_warehouse", "s_w_id", Table::Warehouse),
    reference(Table::Stock, "stock_item", "s_i_id", Table::Item),
];

/// Whether transactions update rows of a table, so that a fill factor serves it.
const fn is_updated(table: Table) -> bool {
    !matches!(table, Table::History | Table::NewOrder | Table::Item)
}

/// The column with the warehouse to which a row belongs.
pub(super) const fn warehouse_column(table: Table) -> Option<&'static str> {
    match table {
        Table::Warehouse => Some("w_id"),
        Table::District => Some("d_w_id"),
        Table::Customer => Some("c_w_id"),
        Table::History => Some("h_c_w_id"),
        Table::NewOrder => Some("no_w_id"),
        Table::Orders => Some("o_w_id"),
        Table::OrderLine => Some("ol_w_id"),
        Table::Item => None,
        Table::Stock => Some("s_w_id"),
    }
}

/// The number of a row in its warehouse, in SQL, as [`super::rows::Place`] counts. The checksum of a chunk is the sum of
/// `hashint8extended(warehouse << 32 | number, number of the table)` over its rows.
pub(super) const fn number_sql(table: Table) -> &'static str {
    match table {
        Table::Warehouse => "0",
        Table::District => "d_id - 1",
        Table::Customer => "(c_d_id - 1) * 3000 + c_id - 1",
        Table::History => "(h_c_d_id - 1) * 3000 + h_c_id - 1",
        Table::NewOrder => "(no_d_id - 1) * 900 + no_o_id - 2101",
        Table::Orders => "(o_d_id - 1) * 3000 + o_id - 1",
        Table::OrderLine => "((ol_d_id - 1) * 3000 + ol_o_id - 1) * 16 + ol_number - 1",
        Table::Item => "i_id - 1",
        Table::Stock => "s_i_id - 1",
    }
}

/// Districts must be numbered in SQL as here.
const _: () = assert!(DISTRICTS_PER_WAREHOUSE == 10);

/// The tables as a dataset has them. All but ITEM are partitioned by range of their warehouse, with the same bounds, so that leaves of one number
/// hold the same warehouses: what a transaction does in its home warehouse is local there. HISTORY goes by H_W_ID, the warehouse where the payment was made.
///
/// **Range, not hash**: a hash spreads few warehouses unevenly (of three warehouses on three nodes all may fall on one), ranges give each node
/// as many as the others to within one leaf. A list of numbers would do that, too, but PostgreSQL compares every row that comes in with every
/// number of the list. **Several leaves per node**, assigned in turn, because a run may drive only the first N warehouses
/// (`--warehouses N`): with one stretch per node these would all be on the first ones.
///
/// ITEM belongs to no warehouse and never changes: every node has a whole copy of its own.
pub(super) fn tables(warehouses: u32, fillfactor: Option<u32>) -> Vec<dataset::Table> {
    let one = |table: Table| {
        let placed_by = if table == Table::History { Some("h_w_id") } else { warehouse_column(table) };
        let copies = if table == Table::Item { 1 } else { u64::from(warehouses) };
        dataset::Table {
            name: table.name(),
            rows: copies * u64::from(numbers(table)),
            columns: columns(table).to_vec(),
            key: primary_key(table),
            named_by: (table == Table::History).then_some("h_c_w_id, h_c_d_id, h_c_id"),
            index: index(table),
            placement: placed_by.map_or(Placement::Whole, |column| Placement::Range {
                column,
                first: 1,
                count: warehouses,
            }),
            mutable: &[],
            fillfactor: fillfactor.filter(|_| is_updated(table)),
        }
    };
    IN_ORDER.map(one).to_vec()
}

/// The tables in the order of a dataset, in which those that every node has whole are last.
pub(super) const IN_ORDER: [Table; 9] = [
    Table::Warehouse,
    Table::District,
    Table::Customer,
    Table::History,
    Table::NewOrder,
    Table::Orders,
    Table::OrderLine,
    Table::Stock,
    Table::Item,
];

/// The place of a table among them.
pub(super) const fn place_of(table: Table) -> usize {
    match table {
        Table::Stock => Table::Item as usize,
        Table::Item => Table::Stock as usize,
        table => table as usize,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use data::tpcc::rows::{
        Customer, District, History, Item, NewOrder, Order, OrderLine, Row, Stock, Warehouse,
    };

    #[test]
    fn rows_and_tables_have_the_same_columns() {
        for (table, count) in [
            (Table::Warehouse, Warehouse::COLUMNS),
            (Table::District, District::COLUMNS),
            (Table::Customer, Customer::COLUMNS),
            (Table::History, History::COLUMNS),
            (Table::NewOrder, NewOrder::COLUMNS),
            (Table::Orders, Order::COLUMNS),
            (Table::OrderLine, OrderLine::COLUMNS),
            (Table::Item, Item::COLUMNS),
            (Table::Stock, Stock::COLUMNS),
        ] {
            assert_eq!(columns(table).len(), count, "{table:?}");
            let known = |name: &str| columns(table).iter().any(|(column, _)| *column == name);
            let named = primary_key(table).into_iter().chain(index(table).map(|(_, columns)| columns));
            assert!(named.flat_map(|list| list.split(", ")).all(known), "{table:?}");
            assert!(warehouse_column(table).is_none_or(known), "{table:?}");
        }
        let named = |name: &str| Table::ALL.into_iter().find(|table| table.name() == name).expect("a table");
        for ForeignKey { table, columns: list, referred, .. } in FOREIGN_KEYS {
            let known = |name: &str| columns(named(table)).iter().any(|(column, _)| *column == name);
            assert!(list.split(", ").all(known));
            let key = primary_key(named(referred)).expect("a key to refer to");
            assert_eq!(list.split(", ").count(), key.split(", ").count());
        }
    }

    #[test]
    fn a_fill_factor_is_for_tables_that_are_updated() {
        let tables = tables(3, Some(80));
        let filled: Vec<&str> =
            tables.iter().filter(|table| table.fillfactor == Some(80)).map(|table| table.name).collect();
        assert_eq!(filled, ["warehouse", "district", "customer", "orders", "order_line", "stock"]);
        for (place, table) in IN_ORDER.into_iter().enumerate() {
            assert_eq!((place_of(table), tables[place].name), (place, table.name()));
        }
    }
}

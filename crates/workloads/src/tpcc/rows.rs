//! Rows of the nine tables: as tuples of binary COPY, and as row numbers.

use data::tpcc::rows::{Columns, Order, Row};
use data::tpcc::{
    CUSTOMERS_PER_DISTRICT, DISTRICTS_PER_WAREHOUSE, FIRST_NEW_ORDER, ITEMS, LINES_PER_ORDER_MAX,
    NEW_ORDERS_PER_DISTRICT, ORDERS_PER_DISTRICT, Orders, Population, STOCK_PER_WAREHOUSE, Table,
};
use engines::hash;
use wire::copy::values::Tuples;

/// Line numbers per order in the numbering of order lines: one more than there can be, so that it is a power of two.
pub(super) const LINE_NUMBERS: u32 = LINES_PER_ORDER_MAX + 1;

/// Takes columns as fields of the tuple that was begun.
struct Fields<'a>(&'a mut Tuples);

impl Columns for Fields<'_> {
    #[inline(always)]
    fn int(&mut self, value: i32) {
        self.0.int4(value);
    }
    #[inline(always)]
    fn numeric(&mut self, value: i64, scale: u8) {
        self.0.numeric(value, scale);
    }
    #[inline(always)]
    fn text(&mut self, value: &[u8]) {
        self.0.text(value);
    }
    #[inline(always)]
    fn time_us(&mut self, value: i64) {
        self.0.timestamp(value);
    }
    #[inline(always)]
    fn null(&mut self) {
        self.0.null();
    }
}

/// Appends a row.
#[inline(always)]
fn push<R: Row>(tuples: &mut Tuples, row: &R) {
    tuples.begin(R::COLUMNS);
    row.columns(&mut Fields(tuples));
}

/// Which row of a table it is: its warehouse (0: of none), and its number among the warehouse's rows. The numbers of order lines have
/// gaps, those of all other tables count from 0 without one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Place {
    pub(super) w_id: u32,
    pub(super) number: u32,
}

impl Place {
    /// What a row adds to the checksum of its chunk; see [`super::schema::number_sql`] for the same in SQL.
    #[inline(always)]
    pub(super) fn hash(self, table: Table) -> u64 {
        let place = u64::from(self.w_id) << 32 | u64::from(self.number);
        hash::int8_extended(place as i64, table as u64)
    }
}

/// One more than the highest number of a warehouse's rows.
pub(super) fn numbers(table: Table) -> u32 {
    match table {
        Table::Warehouse => 1,
        Table::District => DISTRICTS_PER_WAREHOUSE,
        Table::Customer | Table::History => DISTRICTS_PER_WAREHOUSE * CUSTOMERS_PER_DISTRICT,
        Table::NewOrder => DISTRICTS_PER_WAREHOUSE * NEW_ORDERS_PER_DISTRICT,
        Table::Orders => DISTRICTS_PER_WAREHOUSE * ORDERS_PER_DISTRICT,
        Table::OrderLine => DISTRICTS_PER_WAREHOUSE * ORDERS_PER_DISTRICT * LINE_NUMBERS,
        Table::Item => ITEMS,
        Table::Stock => STOCK_PER_WAREHOUSE,
    }
}

/// Makes rows. What rows in a row have in common, their district and their order, is made once.
pub(super) struct Maker<'a> {
    population: &'a Population,
    /// The orders of a district: warehouse, district.
    orders: Option<(u32, u32, Orders<'a>)>,
    order: Option<Order>,
}

impl<'a> Maker<'a> {
    pub(super) fn new(population: &'a Population) -> Maker<'a> {
        Maker { population, orders: None, order: None }
    }

    #[inline]
    fn orders(&mut self, w_id: u32, d_id: u32) -> &Orders<'a> {
        if !matches!(&self.orders, Some((warehouse, district, _)) if (*warehouse, *district) == (w_id, d_id))
        {
            self.order = None;
            self.orders = None;
        }
        let population = self.population;
        let (_, _, orders) = self.orders.get_or_insert_with(|| (w_id, d_id, population.orders(w_id, d_id)));
        orders
    }

    /// The order of a line number, and the number of the line.
    #[inline]
    fn line(&mut self, w_id: u32, number: u32) -> (Order, u32) {
        let (order, line) = (number / LINE_NUMBERS, number % LINE_NUMBERS);
        let (d_id, o_id) = (1 + order / ORDERS_PER_DISTRICT, 1 + order % ORDERS_PER_DISTRICT);
        // Of another district it forgets the order.
        self.orders(w_id, d_id);
        let made = match self.order {
            Some(order) if order.o_id == o_id => order,
            _ => {
                let order = self.orders(w_id, d_id).order(o_id);
                self.order = Some(order);
                order
            }
        };
        (made, line + 1)
    }

    /// How many lines the order has in which a line number is.
    pub(super) fn lines(&mut self, w_id: u32, number: u32) -> u32 {
        self.line(w_id, number).0.o_ol_cnt
    }

    /// Appends the row of a place; `false`: the load put none there, as an order has fewer lines. Numbers are below [`numbers`].
    #[inline]
    pub(super) fn push(&mut self, table: Table, place: Place, out: &mut Tuples) -> bool {
        let Place { w_id, number } = place;
        // District and the rest of the number, where a district has `rows` numbers.
        let split = |rows: u32| (1 + number / rows, 1 + number % rows);
        let population = self.population;
        match table {
            Table::Warehouse => push(out, &population.warehouse(w_id)),
            Table::District => push(out, &population.district(w_id, number + 1)),
            Table::Item => push(out, &population.item(number + 1)),
            Table::Stock => push(out, &population.stock(w_id, number + 1)),
            Table::Customer => {
                let (d_id, c_id) = split(CUSTOMERS_PER_DISTRICT);
                push(out, &population.customer(w_id, d_id, c_id));
            }
            Table::History => {
                let (d_id, c_id) = split(CUSTOMERS_PER_DISTRICT);
                push(out, &population.history(w_id, d_id, c_id));
            }
            Table::Orders => {
                let (d_id, o_id) = split(ORDERS_PER_DISTRICT);
                push(out, &self.orders(w_id, d_id).order(o_id));
            }
            Table::NewOrder => {
                let (d_id, nth) = split(NEW_ORDERS_PER_DISTRICT);
                let Some(row) = self.orders(w_id, d_id).new_order(FIRST_NEW_ORDER - 1 + nth) else {
                    return false;
                };
                push(out, &row);
            }
            Table::OrderLine => {
                let (order, line) = self.line(w_id, number);
                if line > order.o_ol_cnt {
                    return false;
                }
                push(out, &self.orders(w_id, order.o_d_id).line(&order, line));
            }
        }
        true
    }
}

/// The place of a row, by its key columns; `None` when the load made no row of these numbers. (An order may
/// still have fewer lines.)
pub(super) fn place(table: Table, warehouses: u32, found: &[Option<&[u8]>]) -> Option<Place> {
    let id = |column: usize, first: u32, count: u32| -> Option<u32> {
        let id = i32::from_be_bytes((*found.get(column)?)?.try_into().ok()?);
        u32::try_from(id).ok()?.checked_sub(first).filter(|offset| *offset < count)
    };
    let warehouse = |column: usize| id(column, 1, warehouses).map(|offset| offset + 1);
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
            (warehouse(2)?, order * LINE_NUMBERS + number)
        }
    };
    Some(Place { w_id, number })
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::copy::Fields as Parsed;

    fn columns(tuple: &[u8]) -> Vec<Option<&[u8]>> {
        let mut fields = Parsed::parse(tuple).expect("a tuple").expect("no end");
        let mut values = Vec::new();
        while let Some(value) = fields.next_field().expect("a tuple") {
            values.push(value);
        }
        values
    }

    #[test]
    fn rows_say_their_place_and_others_have_none() {
        let population = Population::new(4);
        for table in Table::ALL {
            let w_id = if table == Table::Item { 0 } else { 2 };
            let (mut maker, mut alone) = (Maker::new(&population), 0);
            for number in 0..numbers(table) {
                let place = Place { w_id, number };
                let mut tuple = Tuples::new(1);
                let is_row = maker.push(table, place, &mut tuple);
                assert!(
                    is_row || table == Table::OrderLine && number % LINE_NUMBERS >= 5,
                    "{table:?} {number}"
                );
                if !is_row {
                    assert_eq!(tuple.len(), 0);
                    continue;
                }
                let found = columns(tuple.payload());
                assert_eq!(super::place(table, 2, &found), Some(place), "{table:?}");
                if number % 997 == 0 || number + 1 == numbers(table) {
                    // Whatever was made before it, a row is the same.
                    let mut one = Tuples::new(1);
                    assert!(Maker::new(&population).push(table, place, &mut one));
                    assert_eq!(one.payload(), tuple.payload(), "{table:?}");
                    alone += 1;
                }
            }
            assert!(alone > 0, "{table:?}");
        }
    }

    #[test]
    fn ids_that_no_load_makes_have_no_place() {
        let population = Population::new(1);
        for (table, ids) in
            [(Table::Warehouse, 1), (Table::District, 2), (Table::Customer, 3), (Table::OrderLine, 4)]
        {
            let mut tuple = Tuples::new(1);
            Maker::new(&population).push(table, Place { w_id: 1, number: 0 }, &mut tuple);
            for column in 0..ids {
                for wrong in [None, Some(0i32), Some(-1), Some(200_000)] {
                    let wrong = wrong.map(i32::to_be_bytes);
                    let mut found = columns(tuple.payload());
                    found[column] = wrong.as_ref().map(<[u8; 4]>::as_slice);
                    assert_eq!(place(table, 2, &found), None, "{table:?} {column}");
                }
            }
        }
    }

    #[test]
    fn tuples_have_the_columns_of_the_table() {
        let population = Population::new(1);
        let mut tuple = Tuples::new(1);
        Maker::new(&population).push(Table::Orders, Place { w_id: 1, number: 2_999 }, &mut tuple);
        let lengths: Vec<Option<usize>> =
            columns(tuple.payload()).iter().map(|value| value.map(<[u8]>::len)).collect();
        // An order that is not delivered has no carrier.
        assert_eq!(lengths, [Some(4), Some(4), Some(4), Some(4), Some(8), None, Some(4), Some(4)]);
        assert_eq!(lengths.len(), super::super::schema::columns(Table::Orders).len());
    }
}

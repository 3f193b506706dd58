//! Rows of the nine tables on their way: as tuples of binary COPY, and as numbers that say which row it is.

use std::ops::Range;

use data::tpcc::rows::{
    Columns, Customer, District, History, Item, NewOrder, Order, OrderLine, Row, Stock, Warehouse,
};
use data::tpcc::{
    CUSTOMERS_PER_DISTRICT, DISTRICTS_PER_WAREHOUSE, FIRST_NEW_ORDER, ITEMS, LINES_PER_ORDER_MAX,
    NEW_ORDERS_PER_DISTRICT, ORDERS_PER_DISTRICT, Population, STOCK_PER_WAREHOUSE, Table,
};
use engines::hash;
use wire::copy::values::Tuples;

/// Line numbers per order in the numbering of order lines: one more than there can be, so that it is a power of two.
const LINE_NUMBERS: u32 = LINES_PER_ORDER_MAX + 1;

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
pub(crate) fn push<R: Row>(tuples: &mut Tuples, row: &R) {
    tuples.begin(R::COLUMNS);
    row.columns(&mut Fields(tuples));
}

/// Which row of a table it is: its warehouse (0: of none), and its number among the warehouse's rows. The numbers of order lines have
/// gaps, those of all other tables count from 0 without one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Place {
    pub(crate) w_id: u32,
    pub(crate) number: u32,
}

impl Place {
    /// What a row adds to the checksum of its chunk; see [`super::schema::place_sql`] for the same in SQL.
    #[inline(always)]
    pub(crate) fn hash(self, table: Table) -> u64 {
        let place = u64::from(self.w_id) << 32 | u64::from(self.number);
        hash::int8_extended(place as i64, table as u64)
    }
}

/// A row that knows its place.
pub(crate) trait Placed: Row {
    fn place(&self) -> Place;
}

macro_rules! placed {
    ($row:ty, $name:ident => $w_id:expr, $number:expr) => {
        impl Placed for $row {
            #[inline(always)]
            fn place(&self) -> Place {
                let $name = self;
                Place { w_id: $w_id, number: $number }
            }
        }
    };
}

placed!(Warehouse, row => row.w_id, 0);
placed!(District, row => row.d_w_id, row.d_id - 1);
placed!(Customer, row => row.c_w_id, (row.c_d_id - 1) * CUSTOMERS_PER_DISTRICT + row.c_id - 1);
placed!(History, row => row.h_c_w_id, (row.h_c_d_id - 1) * CUSTOMERS_PER_DISTRICT + row.h_c_id - 1);
placed!(NewOrder, row => row.no_w_id, (row.no_d_id - 1) * NEW_ORDERS_PER_DISTRICT + row.no_o_id - FIRST_NEW_ORDER);
placed!(Order, row => row.o_w_id, (row.o_d_id - 1) * ORDERS_PER_DISTRICT + row.o_id - 1);
placed!(OrderLine, row => row.ol_w_id,
    ((row.ol_d_id - 1) * ORDERS_PER_DISTRICT + row.ol_o_id - 1) * LINE_NUMBERS + row.ol_number - 1);
placed!(Item, row => 0, row.i_id - 1);
placed!(Stock, row => row.s_w_id, row.s_i_id - 1);

/// One more than the highest number of a warehouse's rows.
pub(crate) fn numbers(table: Table) -> u32 {
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

/// Takes rows of any of the tables.
pub(crate) trait Sink {
    /// Why it takes no more.
    type Error;

    fn row<R: Placed>(&mut self, table: Table, row: &R) -> Result<(), Self::Error>;
}

/// Hands every row that a warehouse has in a table to `sink`, in the order of their numbers. For the items, `w_id` is 0.
pub(crate) fn each_row<S: Sink>(
    population: &Population,
    table: Table,
    w_id: u32,
    sink: &mut S,
) -> Result<(), S::Error> {
    match table {
        Table::Warehouse => return sink.row(table, &population.warehouse(w_id)),
        Table::Item => return (1..=ITEMS).try_for_each(|i_id| sink.row(table, &population.item(i_id))),
        Table::Stock => {
            return (1..=STOCK_PER_WAREHOUSE)
                .try_for_each(|i_id| sink.row(table, &population.stock(w_id, i_id)));
        }
        _ => {}
    }
    for d_id in 1..=DISTRICTS_PER_WAREHOUSE {
        let customers = || 1..=CUSTOMERS_PER_DISTRICT;
        match table {
            Table::District => sink.row(table, &population.district(w_id, d_id))?,
            Table::Customer => {
                customers().try_for_each(|c_id| sink.row(table, &population.customer(w_id, d_id, c_id)))?;
            }
            Table::History => {
                customers().try_for_each(|c_id| sink.row(table, &population.history(w_id, d_id, c_id)))?;
            }
            _ => each_order(population, table, w_id, d_id, sink)?,
        }
    }
    Ok(())
}

/// The same for a district's rows of the three tables about orders.
fn each_order<S: Sink>(
    population: &Population,
    table: Table,
    w_id: u32,
    d_id: u32,
    sink: &mut S,
) -> Result<(), S::Error> {
    let orders = population.orders(w_id, d_id);
    for o_id in 1..=ORDERS_PER_DISTRICT {
        match table {
            Table::Orders => sink.row(table, &orders.order(o_id))?,
            Table::NewOrder => orders.new_order(o_id).map_or(Ok(()), |row| sink.row(table, &row))?,
            _ => {
                let order = orders.order(o_id);
                (1..=order.o_ol_cnt).try_for_each(|number| sink.row(table, &orders.line(&order, number)))?;
            }
        }
    }
    Ok(())
}

/// The one row of a place; `None` when the load put none there: a line that its order does not have. Numbers are below [`numbers`].
pub(crate) fn row_at<S: Sink>(
    population: &Population,
    table: Table,
    place: Place,
    sink: &mut S,
) -> Option<Result<(), S::Error>> {
    let Place { w_id, number } = place;
    // District and the rest of the number, where a district has `rows` numbers.
    let split = |rows: u32| (1 + number / rows, 1 + number % rows);
    Some(match table {
        Table::Warehouse => sink.row(table, &population.warehouse(w_id)),
        Table::District => sink.row(table, &population.district(w_id, number + 1)),
        Table::Item => sink.row(table, &population.item(number + 1)),
        Table::Stock => sink.row(table, &population.stock(w_id, number + 1)),
        Table::Customer => {
            let (d_id, c_id) = split(CUSTOMERS_PER_DISTRICT);
            sink.row(table, &population.customer(w_id, d_id, c_id))
        }
        Table::History => {
            let (d_id, c_id) = split(CUSTOMERS_PER_DISTRICT);
            sink.row(table, &population.history(w_id, d_id, c_id))
        }
        Table::Orders => {
            let (d_id, o_id) = split(ORDERS_PER_DISTRICT);
            sink.row(table, &population.orders(w_id, d_id).order(o_id))
        }
        Table::NewOrder => {
            let (d_id, nth) = split(NEW_ORDERS_PER_DISTRICT);
            let row = population.orders(w_id, d_id).new_order(FIRST_NEW_ORDER - 1 + nth)?;
            sink.row(table, &row)
        }
        Table::OrderLine => {
            let (d_id, nth) = split(ORDERS_PER_DISTRICT * LINE_NUMBERS);
            let (o_id, ol_number) = (1 + (nth - 1) / LINE_NUMBERS, 1 + (nth - 1) % LINE_NUMBERS);
            let orders = population.orders(w_id, d_id);
            let order = orders.order(o_id);
            if ol_number > order.o_ol_cnt {
                return None;
            }
            sink.row(table, &orders.line(&order, ol_number))
        }
    })
}

/// The warehouses whose rows a table has: 0 stands for the catalogue's.
pub(crate) fn warehouses_of(table: Table, warehouses: u32) -> Range<u32> {
    if table == Table::Item { 0..1 } else { 1..warehouses + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    /// The tuples and places of all rows.
    struct All(Vec<(Place, Vec<u8>)>);

    impl Sink for All {
        type Error = Infallible;

        fn row<R: Placed>(&mut self, _: Table, row: &R) -> Result<(), Infallible> {
            let mut tuples = Tuples::new(1);
            push(&mut tuples, row);
            self.0.push((row.place(), tuples.payload().to_vec()));
            Ok(())
        }
    }

    #[test]
    fn a_row_is_found_again_by_its_place() {
        let population = Population::new(4);
        for table in Table::ALL {
            let w_id = if table == Table::Item { 0 } else { 3 };
            let mut all = All(Vec::new());
            let Ok(()) = each_row(&population, table, w_id, &mut all);
            assert!(all.0.is_sorted_by(|(a, _), (b, _)| a < b), "{table:?}: places ascend");
            assert!(all.0.iter().all(|(place, _)| place.w_id == w_id && place.number < numbers(table)));
            if table != Table::OrderLine {
                assert_eq!(all.0.len(), numbers(table) as usize, "{table:?}: without gaps");
            }
            for (place, tuple) in all.0.iter().step_by(all.0.len() / 50 + 1).chain(all.0.last()) {
                let mut one = All(Vec::new());
                row_at(&population, table, *place, &mut one).expect("there is a row").expect("it is taken");
                assert_eq!(one.0, [(*place, tuple.clone())], "{table:?}");
            }
        }
        let sixteenth = Place { w_id: 3, number: 15 };
        assert!(row_at(&population, Table::OrderLine, sixteenth, &mut All(Vec::new())).is_none());
    }

    #[test]
    fn tuples_have_the_columns_of_the_table() {
        let population = Population::new(1);
        let mut all = All(Vec::new());
        let Ok(()) = each_row(&population, Table::Orders, 1, &mut all);
        let undelivered = &all.0[2_999].1;
        let mut fields = wire::copy::Fields::parse(undelivered).unwrap().unwrap();
        let mut values = Vec::new();
        while let Some(value) = fields.next_field().unwrap() {
            values.push(value.map(<[u8]>::len));
        }
        assert_eq!(values, [Some(4), Some(4), Some(4), Some(4), Some(8), None, Some(4), Some(4)]);
        assert_eq!(values.len(), super::super::schema::columns(Table::Orders).len());
    }
}

//! The nine tables of TPC-C (standard specification, revision 5.11, clause 4.3.3.1), as format v1.
//!
//! Every value is a pure function of (seed, table, row, column), so a row can be computed alone: by the loader, by a verification,
//! and by a run that wants to know what a customer was called at the beginning. That is the one freedom taken with the specification:
//! where it has "the current date and time", a time of the day [`LOAD_DAY_US`] stands here, because a clock cannot be verified.
//!
//! # Format v1
//!
//! A row has a stream of 64-bit words: `word(mix(word(table key, row number)), column << 8 | draw)`. The table key is
//! `subkey(seed, 0x7470_6363_0000 + table)` with tables numbered as in [`Table`], columns as in clause 1.3 from 0, rows from 0 as
//! [`Population`]'s methods define. Draw 0 is the value of a number, or the length of a text whose letters follow from draw 1 on, four to
//! a word. See `draw.rs`.
//!
//! | clause | here |
//! |---|---|
//! | 1.3 layouts of the tables | [`rows`] |
//! | 2.1.6 NURand, and the rule for its constants (2.1.6.1) | [`nurand`] |
//! | 4.3.2.2 a-strings and n-strings | `draw.rs` |
//! | 4.3.2.3 last names | [`nurand::last_name`] |
//! | 4.3.2.7 zip codes | `draw.rs` |
//! | 4.3.3.1 population | [`Population`] |

use std::ops::RangeInclusive;

use crate::mix::subkey;
use crate::permutation::Permutation;

use draw::Draws;
use nurand::{C_LAST_A, last_name};
use rows::{
    Address, Customer, District, History, Item, NewOrder, Order, OrderLine, STOCK_DISTRICTS, Stock, Warehouse,
};

mod draw;
pub mod nurand;
pub mod rows;

/// Rows of ITEM (clause 1.2.1): the catalogue is the same for every number of warehouses.
pub const ITEMS: u32 = 100_000;
/// Rows of STOCK per warehouse.
pub const STOCK_PER_WAREHOUSE: u32 = ITEMS;
/// Districts of a warehouse.
pub const DISTRICTS_PER_WAREHOUSE: u32 = 10;
/// Customers of a district, and rows of HISTORY.
pub const CUSTOMERS_PER_DISTRICT: u32 = 3_000;
/// Orders of a district after the load: one per customer.
pub const ORDERS_PER_DISTRICT: u32 = CUSTOMERS_PER_DISTRICT;
/// The first order that is not delivered: it and those after it have a row in NEW-ORDER, no carrier, and amounts.
pub const FIRST_NEW_ORDER: u32 = 2_101;
/// Rows of NEW-ORDER per district.
pub const NEW_ORDERS_PER_DISTRICT: u32 = ORDERS_PER_DISTRICT + 1 - FIRST_NEW_ORDER;
/// Customers whose last name counts up; those after them get theirs by NURand.
pub(crate) const CUSTOMERS_WITH_COUNTED_NAMES: u32 = 1_000;
/// Lines of an order.
pub const LINES_PER_ORDER: RangeInclusive<u32> = 5..=15;
/// The most lines of an order.
pub const LINES_PER_ORDER_MAX: u32 = *LINES_PER_ORDER.end();
/// The most warehouses: row numbers, chunks and four-byte keys have room for more, but no disk is that large (100 TB).
pub const WAREHOUSES_MAX: u32 = 1_000_000;

/// 2026-01-01 00:00:00 in microseconds since 1970: where the specification has "current date and time", a time of this day stands.
pub const LOAD_DAY_US: i64 = 1_767_225_600_000_000;
const DAY_US: u64 = 86_400_000_000;
/// Orders of a district are entered at this pace, so that their times ascend with their numbers and fill most of the day.
const ORDER_INTERVAL_US: u64 = 28_000_000;
const _: () = assert!((ORDERS_PER_DISTRICT as u64 + 1) * ORDER_INTERVAL_US < DAY_US);

/// Distinguishes the streams of these tables from every other use of a seed: `tpcc`, and room for the table.
const PURPOSE: u64 = 0x7470_6363_0000;
/// Stream number of the permutation of customers in the orders of the first district; the others follow.
const PERMUTATION_STREAM: u64 = 0x7470_6363_0000_0000;

/// The tables, in the order of clause 1.3. Their numbers are part of the format.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Table {
    /// WAREHOUSE
    Warehouse,
    /// DISTRICT
    District,
    /// CUSTOMER
    Customer,
    /// HISTORY
    History,
    /// NEW-ORDER
    NewOrder,
    /// ORDER
    Orders,
    /// ORDER-LINE
    OrderLine,
    /// ITEM
    Item,
    /// STOCK
    Stock,
}

impl Table {
    /// All nine.
    pub const ALL: [Table; 9] = [
        Table::Warehouse,
        Table::District,
        Table::Customer,
        Table::History,
        Table::NewOrder,
        Table::Orders,
        Table::OrderLine,
        Table::Item,
        Table::Stock,
    ];

    /// The name in SQL. ORDER is a reserved word there.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Table::Warehouse => "warehouse",
            Table::District => "district",
            Table::Customer => "customer",
            Table::History => "history",
            Table::NewOrder => "new_order",
            Table::Orders => "orders",
            Table::OrderLine => "order_line",
            Table::Item => "item",
            Table::Stock => "stock",
        }
    }
}

/// Money is counted in cents.
const fn dollars(amount: i64) -> i64 {
    100 * amount
}

/// The number of a district among all: 0 is district 1 of warehouse 1.
fn district_number(w_id: u32, d_id: u32) -> u64 {
    debug_assert!(w_id >= 1 && (1..=DISTRICTS_PER_WAREHOUSE).contains(&d_id));
    u64::from(w_id - 1) * u64::from(DISTRICTS_PER_WAREHOUSE) + u64::from(d_id - 1)
}

/// The initial population of the database (clause 4.3.3.1), computed row by row. Cheap to clone; all methods are pure and allocate
/// nothing. Ids count from 1, as in the specification; an id that the specification does not have is a programming error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Population {
    seed: u64,
    c_load: u32,
    keys: [u64; Table::ALL.len()],
}

impl Population {
    /// The population under `seed`, with the C-Load that [`nurand::c_load`] derives from it.
    #[must_use]
    pub fn new(seed: u64) -> Population {
        let keys = std::array::from_fn(|table| subkey(seed, PURPOSE + table as u64));
        Population { seed, c_load: nurand::c_load(seed), keys }
    }

    /// What it was made from.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// C-Load of clause 2.1.6.1: the constant with which C_LAST was generated. A run has to keep its distance from it.
    #[must_use]
    pub fn c_load(&self) -> u32 {
        self.c_load
    }

    #[inline(always)]
    fn draws(&self, table: Table, row: u64) -> Draws {
        Draws::new(self.keys[table as usize], row)
    }

    /// ITEM `i_id`. Row number: `i_id - 1`.
    #[inline]
    #[must_use]
    pub fn item(&self, i_id: u32) -> Item {
        let draws = self.draws(Table::Item, u64::from(i_id - 1));
        Item {
            i_id,
            i_im_id: draws.uniform(1, 1..=10_000),
            i_name: draws.a_string(2, 14..=24),
            // 1.00 to 100.00.
            i_price_cents: draws.uniform(3, 100..=10_000),
            i_data: draws.data_string(4),
        }
    }

    /// WAREHOUSE `w_id`. Row number: `w_id - 1`.
    #[must_use]
    pub fn warehouse(&self, w_id: u32) -> Warehouse {
        let draws = self.draws(Table::Warehouse, u64::from(w_id - 1));
        Warehouse {
            w_id,
            w_name: draws.a_string(1, 6..=10),
            w_address: address(&draws, 2),
            // 0.0000 to 0.2000.
            w_tax_e4: draws.uniform(7, 0..=2_000),
            w_ytd_cents: dollars(300_000),
        }
    }

    /// DISTRICT `d_id` of a warehouse. Row number: that of the district among all.
    #[must_use]
    pub fn district(&self, w_id: u32, d_id: u32) -> District {
        let draws = self.draws(Table::District, district_number(w_id, d_id));
        District {
            d_id,
            d_w_id: w_id,
            d_name: draws.a_string(2, 6..=10),
            d_address: address(&draws, 3),
            d_tax_e4: draws.uniform(8, 0..=2_000),
            d_ytd_cents: dollars(30_000),
            d_next_o_id: ORDERS_PER_DISTRICT + 1,
        }
    }

    /// CUSTOMER `c_id` of a district. Row number: 3,000 times that of the district, and `c_id - 1`.
    #[inline]
    #[must_use]
    pub fn customer(&self, w_id: u32, d_id: u32, c_id: u32) -> Customer {
        let draws = self.draws(Table::Customer, customer_number(w_id, d_id, c_id));
        Customer {
            c_id,
            c_d_id: d_id,
            c_w_id: w_id,
            c_first: draws.a_string(3, 8..=16),
            c_middle: *b"OE",
            c_last: last_name(self.name_number(&draws, c_id)),
            c_address: address(&draws, 6),
            c_phone: draws.n_string(11),
            c_since_us: LOAD_DAY_US + draws.below(12, DAY_US) as i64,
            // For 10 % of the rows, selected at random.
            c_credit: if draws.one_in_ten(13) { *b"BC" } else { *b"GC" },
            c_credit_lim_cents: dollars(50_000),
            // 0.0000 to 0.5000.
            c_discount_e4: draws.uniform(15, 0..=5_000),
            c_balance_cents: -dollars(10),
            c_ytd_payment_cents: dollars(10),
            c_payment_cnt: 1,
            c_delivery_cnt: 0,
            c_data: draws.a_string(20, 300..=500),
        }
    }

    /// The number from which the last name of a customer is made: counted for the first 1,000, NURand(255, 0, 999) for the others.
    fn name_number(&self, draws: &Draws, c_id: u32) -> u32 {
        if c_id <= CUSTOMERS_WITH_COUNTED_NAMES {
            return c_id - 1;
        }
        let (r1, r2) = (draws.uniform(5, 0..=C_LAST_A), draws.second(5, 0..=999));
        nurand::nurand(C_LAST_A, 0..=999, self.c_load, r1, r2)
    }

    /// The HISTORY row of a customer. Row number: as the customer's.
    #[inline]
    #[must_use]
    pub fn history(&self, w_id: u32, d_id: u32, c_id: u32) -> History {
        let draws = self.draws(Table::History, customer_number(w_id, d_id, c_id));
        History {
            h_c_id: c_id,
            h_c_d_id: d_id,
            h_c_w_id: w_id,
            h_d_id: d_id,
            h_w_id: w_id,
            h_date_us: LOAD_DAY_US + draws.below(5, DAY_US) as i64,
            h_amount_cents: dollars(10),
            h_data: draws.a_string(7, 12..=24),
        }
    }

    /// The orders of a district, in which every customer occurs once.
    #[must_use]
    pub fn orders(&self, w_id: u32, d_id: u32) -> Orders<'_> {
        let number = district_number(w_id, d_id);
        let stream = PERMUTATION_STREAM + number;
        Orders {
            population: self,
            w_id,
            d_id,
            number,
            customers: Permutation::new(self.seed, stream, u64::from(CUSTOMERS_PER_DISTRICT)),
        }
    }

    /// STOCK of an item in a warehouse. Row number: 100,000 times that of the warehouse, and `i_id - 1`.
    #[inline]
    #[must_use]
    pub fn stock(&self, w_id: u32, i_id: u32) -> Stock {
        let row = u64::from(w_id - 1) * u64::from(STOCK_PER_WAREHOUSE) + u64::from(i_id - 1);
        let draws = self.draws(Table::Stock, row);
        Stock {
            s_i_id: i_id,
            s_w_id: w_id,
            s_quantity: draws.uniform(2, 10..=100),
            s_dist: draws.letters::<STOCK_DISTRICTS>(3),
            s_ytd: 0,
            s_order_cnt: 0,
            s_remote_cnt: 0,
            s_data: draws.data_string(16),
        }
    }

    /// Rows of all nine tables together, which takes a look at every order: some nanoseconds each.
    #[must_use]
    pub fn rows(&self, warehouses: u32) -> u64 {
        (1..=warehouses).map(|w_id| self.rows_of_warehouse(w_id)).sum::<u64>() + u64::from(ITEMS)
    }

    /// Rows of a warehouse in all tables but ITEM.
    #[must_use]
    pub(crate) fn rows_of_warehouse(&self, w_id: u32) -> u64 {
        let per_district = 1 + 2 * CUSTOMERS_PER_DISTRICT + ORDERS_PER_DISTRICT + NEW_ORDERS_PER_DISTRICT;
        let fixed = 1 + DISTRICTS_PER_WAREHOUSE * per_district + STOCK_PER_WAREHOUSE;
        u64::from(fixed) + self.lines_of_warehouse(w_id)
    }

    /// Rows of ORDER-LINE of a warehouse.
    #[must_use]
    pub(crate) fn lines_of_warehouse(&self, w_id: u32) -> u64 {
        let first = district_number(w_id, 1) * u64::from(ORDERS_PER_DISTRICT);
        let orders = first..first + u64::from(DISTRICTS_PER_WAREHOUSE * ORDERS_PER_DISTRICT);
        orders.map(|order| u64::from(line_count(&self.draws(Table::Orders, order)))).sum()
    }
}

fn customer_number(w_id: u32, d_id: u32, c_id: u32) -> u64 {
    debug_assert!((1..=CUSTOMERS_PER_DISTRICT).contains(&c_id));
    district_number(w_id, d_id) * u64::from(CUSTOMERS_PER_DISTRICT) + u64::from(c_id - 1)
}

/// The five columns of an address, from `column` on.
#[inline(always)]
fn address(draws: &Draws, column: u64) -> Address {
    Address {
        street_1: draws.a_string(column, 10..=20),
        street_2: draws.a_string(column + 1, 10..=20),
        city: draws.a_string(column + 2, 10..=20),
        state: draws.letters::<2>(column + 3),
        zip: draws.zip(column + 4),
    }
}

/// O_OL_CNT.
#[inline(always)]
fn line_count(draws: &Draws) -> u32 {
    draws.uniform(6, LINES_PER_ORDER)
}

/// The orders of one district with their lines. Row number of an order: 3,000 times that of the district, and `o_id - 1`; of a line: 16
/// times that of the order, and `ol_number - 1`.
#[derive(Clone, Debug)]
pub struct Orders<'a> {
    population: &'a Population,
    w_id: u32,
    d_id: u32,
    number: u64,
    customers: Permutation,
}

impl Orders<'_> {
    fn order_number(&self, o_id: u32) -> u64 {
        debug_assert!((1..=ORDERS_PER_DISTRICT).contains(&o_id));
        self.number * u64::from(ORDERS_PER_DISTRICT) + u64::from(o_id - 1)
    }

    /// ORDER `o_id`.
    #[must_use]
    pub fn order(&self, o_id: u32) -> Order {
        let draws = self.population.draws(Table::Orders, self.order_number(o_id));
        let delivered = o_id < FIRST_NEW_ORDER;
        Order {
            o_id,
            o_d_id: self.d_id,
            o_w_id: self.w_id,
            // Selected sequentially from a random permutation of [1..3,000].
            o_c_id: self.customers.apply(u64::from(o_id - 1)) as u32 + 1,
            o_entry_d_us: entry_time_us(&draws, o_id),
            o_carrier_id: delivered.then(|| draws.uniform(5, 1..=10)),
            o_ol_cnt: line_count(&draws),
            o_all_local: 1,
        }
    }

    /// ORDER-LINE `ol_number` of an order that was made by [`Orders::order`].
    #[inline]
    #[must_use]
    pub fn line(&self, order: &Order, ol_number: u32) -> OrderLine {
        debug_assert!((1..=order.o_ol_cnt).contains(&ol_number));
        let row = self.order_number(order.o_id) * 16 + u64::from(ol_number - 1);
        let draws = self.population.draws(Table::OrderLine, row);
        let delivered = order.o_carrier_id.is_some();
        OrderLine {
            ol_o_id: order.o_id,
            ol_d_id: self.d_id,
            ol_w_id: self.w_id,
            ol_number,
            ol_i_id: draws.uniform(4, 1..=ITEMS),
            ol_supply_w_id: self.w_id,
            ol_delivery_d_us: delivered.then_some(order.o_entry_d_us),
            ol_quantity: 5,
            // 0.00 for delivered orders, otherwise 0.01 to 9,999.99.
            ol_amount_cents: if delivered { 0 } else { draws.uniform(8, 1..=999_999) },
            ol_dist_info: draws.letters::<24>(9),
        }
    }

    /// NEW-ORDER of an order that has one.
    #[must_use]
    pub fn new_order(&self, o_id: u32) -> Option<NewOrder> {
        (FIRST_NEW_ORDER..=ORDERS_PER_DISTRICT).contains(&o_id).then_some(NewOrder {
            no_o_id: o_id,
            no_d_id: self.d_id,
            no_w_id: self.w_id,
        })
    }
}

fn entry_time_us(draws: &Draws, o_id: u32) -> i64 {
    let begin = u64::from(o_id) * ORDER_INTERVAL_US;
    LOAD_DAY_US + (begin + draws.below(4, ORDER_INTERVAL_US)) as i64
}

#[cfg(test)]
mod tests;

//! The input data of the five transactions (clauses 2.4.1, 2.5.1, 2.6.1, 2.7.1, 2.8.1): what a user would key in.
//!
//! Everything is drawn before the first statement is sent, from the transaction's own stream, so that a further try has the same data.

use data::tpcc::nurand::{C_ID_A, C_LAST_A, Constants, OL_I_ID_A, last_name, nurand};
use data::tpcc::rows::Text;
use data::tpcc::{
    CUSTOMERS_PER_DISTRICT, DISTRICTS_PER_WAREHOUSE, ITEMS, LINES_PER_ORDER, LINES_PER_ORDER_MAX,
};

use super::{TERMINALS_PER_WAREHOUSE, Tpcc};
use run::random::Random;

/// Lines of the longest order.
pub const LINES_MAX: usize = LINES_PER_ORDER_MAX as usize;
/// An item number that the catalogue does not have (clause 2.4.1.5 item 1).
pub(crate) const UNUSED_ITEM: u32 = ITEMS + 1;
/// Percent of New-Orders with an unused item (clause 2.4.1.4).
pub(crate) const ROLLBACK_PERCENT: u64 = 1;
/// Percent of order lines that another warehouse supplies (clause 2.4.1.5 item 2).
pub(crate) const REMOTE_LINE_PERCENT: u64 = 1;
/// Percent of payments by a customer of another warehouse (clause 2.5.1.2).
pub(crate) const REMOTE_PAYMENT_PERCENT: u64 = 15;
/// Percent of customers who are found by their last name (clauses 2.5.1.2 and 2.6.1.2).
pub(crate) const BY_NAME_PERCENT: u64 = 60;

/// Where a terminal stands: its warehouse and its district never change (clauses 2.4.1.1 and 2.8.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Home {
    /// W_ID.
    pub w_id: u32,
    /// D_ID of Stock-Level; the other profiles draw theirs.
    pub d_id: u32,
}

impl Home {
    /// Of terminal number `terminal`, counted from 0.
    pub(crate) fn of_terminal(terminal: u32) -> Home {
        Home { w_id: terminal / TERMINALS_PER_WAREHOUSE + 1, d_id: terminal % TERMINALS_PER_WAREHOUSE + 1 }
    }
}

/// A number within [x .. y].
fn uniform(random: &mut Random, x: u32, y: u32) -> u32 {
    x + random.below(u64::from(y - x + 1)) as u32
}

/// True for so many of a hundred.
fn percent(random: &mut Random, percent: u64) -> bool {
    random.below(100) < percent
}

fn district(random: &mut Random) -> u32 {
    uniform(random, 1, DISTRICTS_PER_WAREHOUSE)
}

/// A warehouse other than `home`; `home` itself where there is no other.
fn other_warehouse(random: &mut Random, home: u32, warehouses: u32) -> u32 {
    if warehouses < 2 {
        return home;
    }
    let drawn = uniform(random, 1, warehouses - 1);
    if drawn >= home { drawn + 1 } else { drawn }
}

/// NURand(1023, 1, 3000).
pub fn c_id(random: &mut Random, constants: &Constants) -> u32 {
    let (r1, r2) = (uniform(random, 0, C_ID_A), uniform(random, 1, CUSTOMERS_PER_DISTRICT));
    nurand(C_ID_A, 1..=CUSTOMERS_PER_DISTRICT, constants.c_id, r1, r2)
}

/// NURand(8191, 1, 100000).
pub fn ol_i_id(random: &mut Random, constants: &Constants) -> u32 {
    let (r1, r2) = (uniform(random, 0, OL_I_ID_A), uniform(random, 1, ITEMS));
    nurand(OL_I_ID_A, 1..=ITEMS, constants.ol_i_id, r1, r2)
}

/// The number of a last name: NURand(255, 0, 999).
pub fn name_number(random: &mut Random, constants: &Constants) -> u32 {
    let (r1, r2) = (uniform(random, 0, C_LAST_A), uniform(random, 0, 999));
    nurand(C_LAST_A, 0..=999, constants.c_last, r1, r2)
}

/// How a customer is requested (clauses 2.5.1.2 and 2.6.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Customer {
    /// By C_ID.
    Id(u32),
    /// By C_LAST.
    Name(Text<16>),
}

impl Customer {
    fn draw(random: &mut Random, constants: &Constants) -> Customer {
        if percent(random, BY_NAME_PERCENT) {
            Customer::Name(last_name(name_number(random, constants)))
        } else {
            Customer::Id(c_id(random, constants))
        }
    }

    /// By C_LAST.
    pub(crate) fn is_by_name(&self) -> bool {
        matches!(self, Customer::Name(_))
    }
}

/// One line of an order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// OL_I_ID.
    pub i_id: u32,
    /// OL_SUPPLY_W_ID.
    pub supply_w_id: u32,
    /// OL_QUANTITY.
    pub quantity: u32,
}

/// Clause 2.4.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewOrder {
    /// W_ID.
    pub w_id: u32,
    /// D_ID.
    pub d_id: u32,
    /// C_ID.
    pub c_id: u32,
    lines: [Line; LINES_MAX],
    count: usize,
}

impl NewOrder {
    /// Draws an order of a terminal at `home`.
    pub fn draw(random: &mut Random, tpcc: &Tpcc, home: Home) -> NewOrder {
        let d_id = district(random); // 2.4.1.2
        let c_id = c_id(random, &tpcc.constants);
        let count = uniform(random, *LINES_PER_ORDER.start(), *LINES_PER_ORDER.end()) as usize; // 2.4.1.3
        let rbk = percent(random, ROLLBACK_PERCENT); // 2.4.1.4
        let mut lines = [Line::default(); LINES_MAX];
        for (at, line) in lines[..count].iter_mut().enumerate() {
            // 2.4.1.5: item, supplying warehouse, quantity.
            let i_id = ol_i_id(random, &tpcc.constants);
            let is_remote = percent(random, REMOTE_LINE_PERCENT);
            let supply_w_id =
                if is_remote { other_warehouse(random, home.w_id, tpcc.warehouses) } else { home.w_id };
            let quantity = uniform(random, 1, 10);
            let is_unused = rbk && at + 1 == count;
            *line = Line { i_id: if is_unused { UNUSED_ITEM } else { i_id }, supply_w_id, quantity };
        }
        NewOrder { w_id: home.w_id, d_id, c_id, lines, count }
    }

    /// The lines.
    pub fn lines(&self) -> &[Line] {
        &self.lines[..self.count]
    }

    /// Lines that another warehouse supplies.
    pub fn remote_lines(&self) -> u64 {
        self.lines().iter().filter(|line| line.supply_w_id != self.w_id).count() as u64
    }
}

/// Clause 2.5.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payment {
    /// W_ID.
    pub w_id: u32,
    /// D_ID.
    pub d_id: u32,
    /// C_W_ID.
    pub c_w_id: u32,
    /// C_D_ID.
    pub c_d_id: u32,
    /// Who pays.
    pub customer: Customer,
    /// H_AMOUNT in cents.
    pub h_amount_cents: u32,
}

impl Payment {
    /// Draws a payment at a terminal at `home`.
    pub fn draw(random: &mut Random, tpcc: &Tpcc, home: Home) -> Payment {
        let d_id = district(random); // 2.5.1.1
        // 2.5.1.2: of the home district, or of any district of another warehouse.
        let is_remote = percent(random, REMOTE_PAYMENT_PERCENT);
        let (c_w_id, c_d_id) = if is_remote {
            let district = district(random);
            (other_warehouse(random, home.w_id, tpcc.warehouses), district)
        } else {
            (home.w_id, d_id)
        };
        let customer = Customer::draw(random, &tpcc.constants);
        let h_amount_cents = uniform(random, 100, 500_000); // 2.5.1.3
        Payment { w_id: home.w_id, d_id, c_w_id, c_d_id, customer, h_amount_cents }
    }
}

/// Clause 2.6.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderStatus {
    /// W_ID.
    pub w_id: u32,
    /// D_ID.
    pub d_id: u32,
    /// Who asks.
    pub customer: Customer,
}

impl OrderStatus {
    /// Draws a question at a terminal at `home`.
    pub fn draw(random: &mut Random, tpcc: &Tpcc, home: Home) -> OrderStatus {
        let d_id = district(random); // 2.6.1.1
        OrderStatus { w_id: home.w_id, d_id, customer: Customer::draw(random, &tpcc.constants) }
    }
}

/// Clause 2.7.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// W_ID.
    pub w_id: u32,
    /// O_CARRIER_ID.
    pub o_carrier_id: u32,
}

impl Delivery {
    /// Draws a delivery of a terminal at `home`.
    pub fn draw(random: &mut Random, home: Home) -> Delivery {
        Delivery { w_id: home.w_id, o_carrier_id: uniform(random, 1, 10) } // 2.7.1.2
    }
}

/// Clause 2.8.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StockLevel {
    /// W_ID.
    pub w_id: u32,
    /// D_ID: the terminal's own.
    pub d_id: u32,
    /// Stock below it counts as low.
    pub threshold: u32,
}

impl StockLevel {
    /// Draws a question at a terminal at `home`.
    pub fn draw(random: &mut Random, home: Home) -> StockLevel {
        StockLevel { w_id: home.w_id, d_id: home.d_id, threshold: uniform(random, 10, 20) } // 2.8.1.2
    }
}

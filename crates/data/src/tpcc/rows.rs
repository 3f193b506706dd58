//! The rows of the nine tables: their columns in the order of clause 1.3, and the interface that receives their values one by one.
//!
//! Money is counted in cents and rates in ten-thousandths, as everything here is an integer.

/// Characters of S_DIST_01 to S_DIST_10 together.
pub(crate) const STOCK_DISTRICTS: usize = 10 * DIST_INFO;
/// Characters of one S_DIST and of OL_DIST_INFO.
pub const DIST_INFO: usize = 24;

/// A text of at most `MAX` bytes of ASCII, without a heap.
#[derive(Clone, Copy, Debug)]
pub struct Text<const MAX: usize> {
    bytes: [u8; MAX],
    length: usize,
}

impl<const MAX: usize> Text<MAX> {
    #[inline(always)]
    pub(super) fn new(bytes: [u8; MAX], length: usize) -> Text<MAX> {
        debug_assert!(length <= MAX);
        Text { bytes, length }
    }

    /// The bytes.
    #[inline(always)]
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    pub(super) fn replace(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

impl<const MAX: usize> PartialEq for Text<MAX> {
    fn eq(&self, other: &Text<MAX>) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl<const MAX: usize> Eq for Text<MAX> {}

/// Takes the columns of a row, one call each, in the order of clause 1.3.
pub trait Columns {
    /// An identifier or a count.
    fn int(&mut self, value: i32);
    /// A number with `scale` digits behind the point: `value` / 10^`scale`.
    fn numeric(&mut self, value: i64, scale: u8);
    /// A fixed or variable text.
    fn text(&mut self, value: &[u8]);
    /// A date and time in microseconds since 1970.
    fn time_us(&mut self, value: i64);
    /// Null.
    fn null(&mut self);
}

/// A row of one of the tables.
pub trait Row {
    /// How many columns it has.
    const COLUMNS: usize;

    /// Hands every column to `out`.
    fn columns(&self, out: &mut impl Columns);
}

/// The columns of an address, which three tables share: STREET_1, STREET_2, CITY, STATE, ZIP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Address {
    /// STREET_1
    pub street_1: Text<20>,
    /// STREET_2
    pub street_2: Text<20>,
    /// CITY
    pub city: Text<20>,
    /// STATE
    pub state: [u8; 2],
    /// ZIP
    pub zip: [u8; 9],
}

impl Address {
    #[inline(always)]
    fn columns(&self, out: &mut impl Columns) {
        out.text(self.street_1.as_bytes());
        out.text(self.street_2.as_bytes());
        out.text(self.city.as_bytes());
        out.text(&self.state);
        out.text(&self.zip);
    }
}

/// WAREHOUSE
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names are those of clause 1.3")]
pub struct Warehouse {
    pub w_id: u32,
    pub w_name: Text<10>,
    pub w_address: Address,
    pub w_tax_e4: u32,
    pub w_ytd_cents: i64,
}

impl Row for Warehouse {
    const COLUMNS: usize = 9;

    #[inline(always)]
    fn columns(&self, out: &mut impl Columns) {
        out.int(self.w_id as i32);
        out.text(self.w_name.as_bytes());
        self.w_address.columns(out);
        out.numeric(self.w_tax_e4.into(), 4);
        out.numeric(self.w_ytd_cents, 2);
    }
}

/// DISTRICT
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names are those of clause 1.3")]
pub struct District {
    pub d_id: u32,
    pub d_w_id: u32,
    pub d_name: Text<10>,
    pub d_address: Address,
    pub d_tax_e4: u32,
    pub d_ytd_cents: i64,
    pub d_next_o_id: u32,
}

impl Row for District {
    const COLUMNS: usize = 11;

    #[inline(always)]
    fn columns(&self, out: &mut impl Columns) {
        out.int(self.d_id as i32);
        out.int(self.d_w_id as i32);
        out.text(self.d_name.as_bytes());
        self.d_address.columns(out);
        out.numeric(self.d_tax_e4.into(), 4);
        out.numeric(self.d_ytd_cents, 2);
        out.int(self.d_next_o_id as i32);
    }
}

/// CUSTOMER
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names are those of clause 1.3")]
pub struct Customer {
    pub c_id: u32,
    pub c_d_id: u32,
    pub c_w_id: u32,
    pub c_first: Text<16>,
    pub c_middle: [u8; 2],
    pub c_last: Text<16>,
    pub c_address: Address,
    pub c_phone: [u8; 16],
    pub c_since_us: i64,
    pub c_credit: [u8; 2],
    pub c_credit_lim_cents: i64,
    pub c_discount_e4: u32,
    pub c_balance_cents: i64,
    pub c_ytd_payment_cents: i64,
    pub c_payment_cnt: u32,
    pub c_delivery_cnt: u32,
    pub c_data: Text<500>,
}

impl Row for Customer {
    const COLUMNS: usize = 21;

    #[inline(always)]
    fn columns(&self, out: &mut impl Columns) {
        out.int(self.c_id as i32);
        out.int(self.c_d_id as i32);
        out.int(self.c_w_id as i32);
        out.text(self.c_first.as_bytes());
        out.text(&self.c_middle);
        out.text(self.c_last.as_bytes());
        self.c_address.columns(out);
        out.text(&self.c_phone);
        out.time_us(self.c_since_us);
        out.text(&self.c_credit);
        out.numeric(self.c_credit_lim_cents, 2);
        out.numeric(self.c_discount_e4.into(), 4);
        out.numeric(self.c_balance_cents, 2);
        out.numeric(self.c_ytd_payment_cents, 2);
        out.int(self.c_payment_cnt as i32);
        out.int(self.c_delivery_cnt as i32);
        out.text(self.c_data.as_bytes());
    }
}

/// HISTORY
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names are those of clause 1.3")]
pub struct History {
    pub h_c_id: u32,
    pub h_c_d_id: u32,
    pub h_c_w_id: u32,
    pub h_d_id: u32,
    pub h_w_id: u32,
    pub h_date_us: i64,
    pub h_amount_cents: i64,
    pub h_data: Text<24>,
}

impl Row for History {
    const COLUMNS: usize = 8;

    #[inline(always)]
    fn columns(&self, out: &mut impl Columns) {
        out.int(self.h_c_id as i32);
        out.int(self.h_c_d_id as i32);
        out.int(self.h_c_w_id as i32);
        out.int(self.h_d_id as i32);
        out.int(self.h_w_id as i32);
        out.time_us(self.h_date_us);
        out.numeric(self.h_amount_cents, 2);
        out.text(self.h_data.as_bytes());
    }
}

/// NEW-ORDER
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names are those of clause 1.3")]
pub struct NewOrder {
    pub no_o_id: u32,
    pub no_d_id: u32,
    pub no_w_id: u32,
}

impl Row for NewOrder {
    const COLUMNS: usize = 3;

    #[inline(always)]
    fn columns(&self, out: &mut impl Columns) {
        out.int(self.no_o_id as i32);
        out.int(self.no_d_id as i32);
        out.int(self.no_w_id as i32);
    }
}

/// ORDER
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names are those of clause 1.3")]
pub struct Order {
    pub o_id: u32,
    pub o_d_id: u32,
    pub o_w_id: u32,
    pub o_c_id: u32,
    pub o_entry_d_us: i64,
    pub o_carrier_id: Option<u32>,
    pub o_ol_cnt: u32,
    pub o_all_local: u32,
}

impl Row for Order {
    const COLUMNS: usize = 8;

    #[inline(always)]
    fn columns(&self, out: &mut impl Columns) {
        out.int(self.o_id as i32);
        out.int(self.o_d_id as i32);
        out.int(self.o_w_id as i32);
        out.int(self.o_c_id as i32);
        out.time_us(self.o_entry_d_us);
        match self.o_carrier_id {
            Some(carrier) => out.int(carrier as i32),
            None => out.null(),
        }
        out.int(self.o_ol_cnt as i32);
        out.int(self.o_all_local as i32);
    }
}

/// ORDER-LINE
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names are those of clause 1.3")]
pub struct OrderLine {
    pub ol_o_id: u32,
    pub ol_d_id: u32,
    pub ol_w_id: u32,
    pub ol_number: u32,
    pub ol_i_id: u32,
    pub ol_supply_w_id: u32,
    pub ol_delivery_d_us: Option<i64>,
    pub ol_quantity: u32,
    pub ol_amount_cents: u32,
    pub ol_dist_info: [u8; DIST_INFO],
}

impl Row for OrderLine {
    const COLUMNS: usize = 10;

    #[inline(always)]
    fn columns(&self, out: &mut impl Columns) {
        out.int(self.ol_o_id as i32);
        out.int(self.ol_d_id as i32);
        out.int(self.ol_w_id as i32);
        out.int(self.ol_number as i32);
        out.int(self.ol_i_id as i32);
        out.int(self.ol_supply_w_id as i32);
        match self.ol_delivery_d_us {
            Some(time_us) => out.time_us(time_us),
            None => out.null(),
        }
        out.int(self.ol_quantity as i32);
        out.numeric(self.ol_amount_cents.into(), 2);
        out.text(&self.ol_dist_info);
    }
}

/// ITEM
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names are those of clause 1.3")]
pub struct Item {
    pub i_id: u32,
    pub i_im_id: u32,
    pub i_name: Text<24>,
    pub i_price_cents: u32,
    pub i_data: Text<50>,
}

impl Row for Item {
    const COLUMNS: usize = 5;

    #[inline(always)]
    fn columns(&self, out: &mut impl Columns) {
        out.int(self.i_id as i32);
        out.int(self.i_im_id as i32);
        out.text(self.i_name.as_bytes());
        out.numeric(self.i_price_cents.into(), 2);
        out.text(self.i_data.as_bytes());
    }
}

/// STOCK
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names are those of clause 1.3")]
pub struct Stock {
    pub s_i_id: u32,
    pub s_w_id: u32,
    pub s_quantity: u32,
    /// S_DIST_01 to S_DIST_10, one after the other.
    pub s_dist: [u8; STOCK_DISTRICTS],
    pub s_ytd: u32,
    pub s_order_cnt: u32,
    pub s_remote_cnt: u32,
    pub s_data: Text<50>,
}

impl Row for Stock {
    const COLUMNS: usize = 17;

    #[inline(always)]
    fn columns(&self, out: &mut impl Columns) {
        out.int(self.s_i_id as i32);
        out.int(self.s_w_id as i32);
        out.int(self.s_quantity as i32);
        for dist in self.s_dist.chunks_exact(DIST_INFO) {
            out.text(dist);
        }
        out.int(self.s_ytd as i32);
        out.int(self.s_order_cnt as i32);
        out.int(self.s_remote_cnt as i32);
        out.text(self.s_data.as_bytes());
    }
}

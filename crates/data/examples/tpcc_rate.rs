//! How fast the TPC-C tables are made, into a sink that only looks at them: nanoseconds a row, by table.
//!
//! ```text
//! cargo run --release -p pgfathom-data --example tpcc_rate
//! ```

use std::hint::black_box;
use std::time::Instant;

use data::tpcc::rows::{Columns, Row};
use data::tpcc::{CUSTOMERS_PER_DISTRICT, DISTRICTS_PER_WAREHOUSE, ITEMS, ORDERS_PER_DISTRICT, Population};

/// Counts the bytes of the values.
#[derive(Default)]
struct Bytes(u64);

impl Columns for Bytes {
    fn int(&mut self, value: i32) {
        black_box(value);
        self.0 += 4;
    }
    fn numeric(&mut self, value: i64, _: u8) {
        black_box(value);
        self.0 += 8;
    }
    fn text(&mut self, value: &[u8]) {
        black_box(value);
        self.0 += value.len() as u64;
    }
    fn time_us(&mut self, value: i64) {
        black_box(value);
        self.0 += 8;
    }
    fn null(&mut self) {}
}

/// Each measurement is repeated and the best taken: other programs can only make it slower.
const ROUNDS: usize = 30;

/// The best time for all rows, in nanoseconds.
fn timed<R: Row, I: Iterator<Item = R>>(name: &str, times: u64, rows: impl Fn() -> I) -> f64 {
    let (mut best_ns, mut bytes, mut count) = (f64::MAX, 0, 0u64);
    for _ in 0..ROUNDS {
        let (start, mut sink) = (Instant::now(), Bytes::default());
        count = 0;
        for row in rows() {
            row.columns(&mut sink);
            count += 1;
        }
        best_ns = best_ns.min(start.elapsed().as_nanos() as f64);
        bytes = sink.0;
    }
    println!("{name:<11} {:>7.1} ns/row {:>6.2} GB/s", best_ns / count as f64, bytes as f64 / best_ns);
    best_ns * times as f64
}

fn main() {
    let population = Population::new(1);
    let customers = || 1..=CUSTOMERS_PER_DISTRICT;
    let orders = population.orders(1, 1);
    let districts = u64::from(DISTRICTS_PER_WAREHOUSE);
    let stock = || (1..=ITEMS / 20).map(|i_id| population.stock(1, i_id));
    let mut ns = timed("stock", 20, stock);
    ns += timed("customer", districts, || customers().map(|c_id| population.customer(1, 1, c_id)));
    ns += timed("history", districts, || customers().map(|c_id| population.history(1, 1, c_id)));
    ns += timed("orders", districts, || (1..=ORDERS_PER_DISTRICT).map(|o_id| orders.order(o_id)));
    let lines = || {
        (1..=ORDERS_PER_DISTRICT).flat_map(|o_id| {
            let (orders, order) = (&orders, orders.order(o_id));
            (1..=order.o_ol_cnt).map(move |ol_number| orders.line(&order, ol_number))
        })
    };
    ns += timed("order_line", districts, lines);
    println!("one warehouse: {:.1} ms", ns / 1e6);
}

//! How fast one core makes rows: keys and fields into one buffer that nobody reads.
//!
//! `cargo run --release -p pgfathom-data --example generator_rate [ROWS]`

use data::ycsb::{Compressible, FIELD_BYTES, FIELD_COUNT, KEY_BYTES, KeyOrder, Spec, Table};
use std::hint::black_box;
use std::time::Instant;

/// Rows per measurement unless an argument says otherwise.
const ROWS: u64 = 2_000_000;
/// Each measurement is repeated and the best taken: other programs can only make it slower.
const ROUNDS: usize = 5;

fn main() {
    let rows: u64 = std::env::args().nth(1).map_or(ROWS, |text| text.parse().expect("ROWS is a number"));
    for ratio in ["1.0", "2.0", "6.0"] {
        for key_order in [KeyOrder::Scattered, KeyOrder::Sequential] {
            let compressible: Compressible = ratio.parse().expect("a valid ratio");
            let table = Table::new(Spec { seed: 42, key_order, compressible });
            let best_ns = (0..ROUNDS).map(|_| measure_ns(&table, rows)).min().unwrap_or(1);
            let bytes = u128::from(rows) * (KEY_BYTES + FIELD_COUNT * FIELD_BYTES) as u128;
            println!(
                "compressible {ratio}  {key_order:<10}  {:>4} ns/row  {:.2} GB/s",
                best_ns / u128::from(rows),
                bytes as f64 / best_ns as f64
            );
        }
    }
}

fn measure_ns(table: &Table, rows: u64) -> u128 {
    let mut fields = [[0; FIELD_BYTES]; FIELD_COUNT];
    let start = Instant::now();
    for row in 0..rows {
        black_box(table.key(black_box(row)));
        table.row_fields(row, &mut fields);
        black_box(&fields);
    }
    start.elapsed().as_nanos()
}

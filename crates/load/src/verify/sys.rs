//! The one module of this crate with unsafe code: choosing, at run time, code that was compiled for the processor at hand.
//!
//! Nothing here names an instruction. [`grid::add_loaded_rows`] is inlined with everything it calls, so the compiler vectorises it
//! once for any processor and once for those with AVX2, which need little more than half the time for it.
#![allow(unsafe_code)]

use std::ops::Range;

use data::ycsb::Table;

use super::grid::{self, Grid, Sum};

/// [`grid::add_loaded_rows`], as fast as this processor can.
pub(super) fn add_loaded_rows(grid: &Grid, table: &Table, rows: Range<u64>, sums: &mut [Sum]) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi2") {
        // SAFETY: the only precondition of the function is that the processor has the features it was compiled for, which has just
        // been asked.
        unsafe { with_avx2(grid, table, rows, sums) };
        return;
    }
    grid::add_loaded_rows(grid, table, rows, sums);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi2")]
fn with_avx2(grid: &Grid, table: &Table, rows: Range<u64>, sums: &mut [Sum]) {
    grid::add_loaded_rows(grid, table, rows, sums);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::Route;
    use data::ycsb::{Compressible, KeyOrder, Spec};

    /// Whatever the processor, the sums are those of the plain code.
    #[test]
    fn every_way_computes_the_same() {
        for ratio in ["1.0", "3.0"] {
            let compressible: Compressible = ratio.parse().unwrap();
            let table = Table::new(Spec { seed: 3, key_order: KeyOrder::Scattered, compressible });
            let grid = Grid::fine(Route::new(3), 10_000, &[0, 2]);
            let (mut plain, mut chosen) = (grid.zeros(), grid.zeros());
            grid::add_loaded_rows(&grid, &table, 5..1234, &mut plain);
            add_loaded_rows(&grid, &table, 5..1234, &mut chosen);
            assert_eq!(chosen, plain);
            assert!(plain.iter().map(|sum| sum.rows).sum::<u64>() > 700);
        }
    }
}

//! The one module of this crate with unsafe code: choosing, at run time, code that was compiled for this CPU.
//!
//! Nothing here names an instruction. [`sums::add_loaded_rows`] is inlined with everything it calls, so the compiler vectorises it
//! once for any processor and once for those with AVX2, which need little more than half the time for it.
#![allow(unsafe_code)]

use std::ops::Range;

use data::ycsb::Table;

use super::sums;
use load::dataset::Buckets;

/// [`sums::add_loaded_rows`], as fast as this processor can.
pub(super) fn add_loaded_rows(table: &Table, rows: Range<u64>, buckets: &mut Buckets<'_>) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi2") {
        // SAFETY: the only precondition of the function is that the processor has the features it was compiled for, which has just
        // been called.
        unsafe { with_avx2(table, rows, buckets) };
        return;
    }
    sums::add_loaded_rows(table, rows, buckets);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi2")]
fn with_avx2(table: &Table, rows: Range<u64>, buckets: &mut Buckets<'_>) {
    sums::add_loaded_rows(table, rows, buckets);
}

#[cfg(test)]
mod tests {
    use data::ycsb::{Compressible, KeyOrder, Spec};

    use super::*;
    use load::dataset::Sum;

    /// Whatever the processor, the sums are those of the plain code.
    #[test]
    fn every_way_computes_the_same() {
        for ratio in ["1.0", "3.0"] {
            let compressible: Compressible = ratio.parse().unwrap();
            let table = Table::new(Spec { seed: 3, key_order: KeyOrder::Scattered, compressible });
            let slots = [Some(0), None, Some(1)];
            let (mut plain, mut chosen) = (vec![Sum::default(); 2 << 5], vec![Sum::default(); 2 << 5]);
            sums::add_loaded_rows(&table, 5..1234, &mut Buckets::new(&slots, 5, &mut plain));
            add_loaded_rows(&table, 5..1234, &mut Buckets::new(&slots, 5, &mut chosen));
            assert_eq!(chosen, plain);
            assert!(plain.iter().map(|sum| sum.rows).sum::<u64>() > 700);
        }
    }
}

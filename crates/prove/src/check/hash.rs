//! Hash maps of numbers: multiplication and a fold, without the standard library's protection against chosen keys, which costs a third of a check.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map whose keys are numbers or tuples of them.
pub(super) type Map<K, V> = HashMap<K, V, BuildHasherDefault<Mixer>>;

#[derive(Default)]
pub(super) struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        // The multiplier is that of splitmix64's second step (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
        let product = u128::from(self.0.rotate_left(5) ^ number ^ 0x9e37_79b9_7f4a_7c15)
            * u128::from(0x94d0_49bb_1331_11eb_u64);
        self.0 = (product as u64) ^ (product >> 64) as u64;
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }
}

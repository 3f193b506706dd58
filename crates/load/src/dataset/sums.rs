//! Sums of hashes: two numbers show whether a set of rows is as expected.
//!
//! A sum modulo 2^64 of 64-bit hashes does not depend on the order of rows, so the server's scan, our regeneration and any split of
//! either among threads can be compared. Two different sets of rows agree by chance once in 2^64.

/// Rows and the sum of their hashes modulo 2^64.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Sum {
    /// Rows.
    pub rows: u64,
    /// The sum.
    pub hash: u64,
}

impl Sum {
    /// Adds rows with the sum of their hashes.
    #[inline(always)]
    pub fn add(&mut self, rows: u64, hash: u64) {
        self.rows += rows;
        self.hash = self.hash.wrapping_add(hash);
    }
}

/// How the keys and rows of a dataset are hashed, here and on the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hashing {
    /// The hash of a row's key in SQL, of type bigint.
    pub key: String,
    /// The hash of a row in SQL, of type bigint.
    pub row: String,
    /// A query that hashes a key, and what it must come to.
    pub key_probe: (&'static str, u64),
    /// A query that hashes a row, and what it must come to.
    pub row_probe: (&'static str, u64),
}

/// The cells of one table: by partition, and in each by the lowest bits of the keys' hashes.
#[derive(Debug)]
pub struct Buckets<'a> {
    pub(crate) partitions: u32,
    /// By partition: which one of those that have cells; `None`: it is left out.
    pub(crate) slots: &'a [Option<u32>],
    pub(crate) bits: u32,
    pub(crate) sums: &'a mut [Sum],
}

impl<'a> Buckets<'a> {
    /// Of all partitions, each with `2^bits` cells; `sums` are their sums.
    pub fn new(slots: &'a [Option<u32>], bits: u32, sums: &'a mut [Sum]) -> Buckets<'a> {
        Buckets { partitions: slots.len() as u32, slots, bits, sums }
    }

    /// How many partitions the table has, 1 at least.
    #[inline]
    pub fn partitions(&self) -> u32 {
        self.partitions
    }

    /// The cell of a row; `None`: its partition is left out.
    #[inline(always)]
    pub fn cell(&self, partition: u32, key_hash: u64) -> Option<usize> {
        cell(self.slots, self.bits, partition, key_hash)
    }

    /// Adds a row's hash to a cell.
    #[inline(always)]
    pub fn add(&mut self, cell: usize, hash: u64) {
        self.sums[cell].add(1, hash);
    }
}

/// See [`Buckets::cell`].
#[inline(always)]
pub(crate) fn cell(slots: &[Option<u32>], bits: u32, partition: u32, key_hash: u64) -> Option<usize> {
    let slot = slots[partition as usize]?;
    Some((slot as usize) << bits | (key_hash & ((1 << bits) - 1)) as usize)
}

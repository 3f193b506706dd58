//! PostgreSQL's hash functions, computed in the client.
//!
//! Two features need them. Loading: a row goes directly into its leaf table, because the client computes the same partition as
//! the server. Verification: the server sums a hash of every row and returns two numbers, and the client
//! computes the same sum from the expected rows.
//!
//! Everything is Bob Jenkins' lookup3 (`src/common/hashfn.c`) on little-endian words, unchanged since PostgreSQL 11. A
//! query detects a server with another byte order or another hash (the known answers are in the
//! tests); nothing is inferred from a version number.
//!
//! Types not listed hash in ways that depend on the cluster (an enum hashes its OID) or on ICU (a nondeterministic
//! collation hashes a sort key): they are deliberately left out.

mod code;
mod key;
mod lanes;
mod order;
mod segment;

pub use code::hash_code;
pub use key::{Key, KeyType};
pub use lanes::text_records;
pub(crate) use order::ordered_key;
pub(crate) use segment::legacy_segment;
pub use segment::{jump, segment};

/// The seed with which hash partitioning hashes its keys: `HASH_PARTITION_SEED` in `src/include/catalog/partition.h`.
pub const PARTITION_SEED: u64 = 0x7A5B_2236_7996_DCFD;

/// The initial internal state, before the length is added: `0x9e3779b9 + 3923095` in `hashfn.c`.
const INITIAL: u32 = 0x9E37_79B9u32.wrapping_add(3_923_095);
const BLOCK_BYTES: usize = 12;

/// The three words of lookup3.
#[derive(Clone, Copy)]
struct State {
    a: u32,
    b: u32,
    c: u32,
}

impl State {
    #[inline(always)]
    fn new(length: usize, seed: u64) -> State {
        // PostgreSQL keeps the length in 32 bits as well: no value is longer than 1 GB.
        let initial = INITIAL.wrapping_add(length as u32);
        let mut state = State { a: initial, b: initial, c: initial };
        if seed != 0 {
            state.a = state.a.wrapping_add((seed >> 32) as u32);
            state.b = state.b.wrapping_add(seed as u32);
            state.mix();
        }
        state
    }

    #[inline(always)]
    fn add(&mut self, a: u32, b: u32, c: u32) {
        self.a = self.a.wrapping_add(a);
        self.b = self.b.wrapping_add(b);
        self.c = self.c.wrapping_add(c);
    }

    #[inline(always)]
    fn mix(&mut self) {
        let State { mut a, mut b, mut c } = *self;
        macro_rules! step {
            ($x:ident, $y:ident, $z:ident, $bits:literal) => {
                $x = $x.wrapping_sub($z) ^ $z.rotate_left($bits);
                $z = $z.wrapping_add($y);
            };
        }
        step!(a, b, c, 4);
        step!(b, c, a, 6);
        step!(c, a, b, 8);
        step!(a, b, c, 16);
        step!(b, c, a, 19);
        step!(c, a, b, 4);
        *self = State { a, b, c };
    }

    #[inline(always)]
    fn finish(mut self) -> u64 {
        let State { a, b, c } = &mut self;
        macro_rules! step {
            ($x:ident, $y:ident, $bits:literal) => {
                *$x = (*$x ^ *$y).wrapping_sub($y.rotate_left($bits));
            };
        }
        step!(c, b, 14);
        step!(a, c, 11);
        step!(b, a, 25);
        step!(c, b, 16);
        step!(a, c, 4);
        step!(b, a, 14);
        step!(c, b, 24);
        u64::from(self.b) << 32 | u64::from(self.c)
    }
}

#[inline(always)]
fn little_endian(bytes: &[u8]) -> u32 {
    let mut word = [0; 4];
    word[..bytes.len()].copy_from_slice(bytes);
    u32::from_le_bytes(word)
}

/// `hash_bytes_extended`: 64 bits of hash of `bytes` under `seed`.
#[must_use]
pub fn bytes_extended(bytes: &[u8], seed: u64) -> u64 {
    let mut state = State::new(bytes.len(), seed);
    let mut blocks = bytes.chunks_exact(BLOCK_BYTES);
    for block in &mut blocks {
        state.add(little_endian(&block[..4]), little_endian(&block[4..8]), little_endian(&block[8..]));
        state.mix();
    }
    let mut tail = [0; BLOCK_BYTES];
    let rest = blocks.remainder();
    // The lowest byte of the last word is reserved for the length, so the ninth byte goes into the second lowest.
    let split = rest.len().min(8);
    tail[..split].copy_from_slice(&rest[..split]);
    tail[9..9 + rest.len() - split].copy_from_slice(&rest[split..]);
    state.add(little_endian(&tail[..4]), little_endian(&tail[4..8]), little_endian(&tail[8..]));
    state.finish()
}

/// `hash_bytes`: 32 bits of hash of `bytes`, which are the low half of [`bytes_extended`] under seed 0.
#[must_use]
pub fn bytes(bytes: &[u8]) -> u32 {
    bytes_extended(bytes, 0) as u32
}

/// `hash_bytes_uint32_extended`: the hash of integer types up to 32 bits.
#[must_use]
pub(crate) fn uint32_extended(word: u32, seed: u64) -> u64 {
    let mut state = State::new(size_of::<u32>(), seed);
    state.add(word, 0, 0);
    state.finish()
}

/// `hashtextextended`, for `text` and `varchar` under a deterministic collation. `text` is in the server's encoding.
#[must_use]
pub fn text_extended(text: &[u8], seed: u64) -> u64 {
    bytes_extended(text, seed)
}

/// `hashint2extended`.
#[must_use]
pub fn int2_extended(value: i16, seed: u64) -> u64 {
    int4_extended(i32::from(value), seed)
}

/// `hashint4extended`.
#[must_use]
pub fn int4_extended(value: i32, seed: u64) -> u64 {
    uint32_extended(value as u32, seed)
}

/// `hashint8extended`: folded to 32 bits so that equal numbers of all integer types have the same hash.
#[must_use]
pub fn int8_extended(value: i64, seed: u64) -> u64 {
    let high = (value >> 32) as u32;
    uint32_extended(value as u32 ^ if value >= 0 { high } else { !high }, seed)
}

/// `hashcharextended`, which is what `boolean` uses.
#[must_use]
pub fn bool_extended(value: bool, seed: u64) -> u64 {
    int4_extended(i32::from(value), seed)
}

/// `uuid_hash_extended`, of the sixteen bytes in the order they are written.
#[must_use]
pub fn uuid_extended(value: &[u8; 16], seed: u64) -> u64 {
    bytes_extended(value, seed)
}

/// The hash of a row's partition key, from the hashes of its columns under [`PARTITION_SEED`] in key order; `None` is
/// NULL. `compute_partition_hash_value` in `src/backend/partitioning/partbounds.c`.
#[must_use]
pub fn partition_key(columns: impl IntoIterator<Item = Option<u64>>) -> u64 {
    columns.into_iter().flatten().fold(0, combine)
}

/// The hash of a partition key that is one text column.
#[must_use]
pub fn partition_text_key(text: &[u8]) -> u64 {
    combine(0, text_extended(text, PARTITION_SEED))
}

/// Which hash partition a row belongs to: its key's hash modulo the greatest modulus of the table's partitions. With
/// N partitions of modulus N the answer is the partition's remainder.
///
/// # Panics
/// When `modulus` is 0.
#[must_use]
pub fn partition_remainder(key_hash: u64, modulus: u32) -> u32 {
    (key_hash % u64::from(modulus)) as u32
}

/// `hash_combine64` in `src/include/common/hashfn.h`.
#[inline(always)]
fn combine(left: u64, right: u64) -> u64 {
    left ^ right.wrapping_add(0x49A0_F4DD_15E5_A8E3).wrapping_add(left << 54).wrapping_add(left >> 7)
}

/// `hash_record_extended`, from the hashes of the record's columns under the same seed; `None` is NULL.
/// `src/backend/utils/adt/rowtypes.c`, PostgreSQL 14 and later.
#[must_use]
pub fn record(columns: impl IntoIterator<Item = Option<u64>>) -> u64 {
    columns.into_iter().fold(0, |hash, column| record_step(hash, column.unwrap_or(0)))
}

/// [`record`] of a row of text: a key, then fields.
#[must_use]
pub fn text_record<const BYTES: usize>(key: &[u8], fields: &[[u8; BYTES]], seed: u64) -> u64 {
    fields.iter().fold(text_extended(key, seed), |hash, field| record_step(hash, text_extended(field, seed)))
}

#[inline(always)]
fn record_step(hash: u64, column: u64) -> u64 {
    (hash << 5).wrapping_sub(hash).wrapping_add(column)
}

#[cfg(test)]
mod tests;

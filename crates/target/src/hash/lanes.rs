//! The hash of a row of equally long fields, computed side by side.
//!
//! lookup3 is one chain of dependent steps: a core that hashes one value at a time mostly waits. The fields of a YCSB row
//! are equally long, so their chains run in step, one per lane of a vector. The arrays below are written so that the
//! compiler makes vector code of them for any machine; no instruction is named.

use super::{BLOCK_BYTES, State, record_step, text_extended};

/// One word of the state of every lane.
type Words<const LANES: usize> = [u32; LANES];

/// `hash_record_extended(row, seed)` of a row of text: a key, then fields of `BYTES` bytes each.
///
/// Equal to [`super::record`] over [`text_extended`] of each column, twice as fast.
#[inline(always)]
#[must_use]
pub fn text_record<const BYTES: usize, const FIELDS: usize>(
    key: &[u8],
    fields: &[[u8; BYTES]; FIELDS],
    seed: u64,
) -> u64 {
    let hashes = equally_long(fields, seed);
    hashes.iter().fold(text_extended(key, seed), |hash, &field| record_step(hash, field))
}

/// The hashes of fields of one length under one seed.
#[inline(always)]
fn equally_long<const BYTES: usize, const FIELDS: usize>(
    fields: &[[u8; BYTES]; FIELDS],
    seed: u64,
) -> [u64; FIELDS] {
    // Length and seed are all that the chains start from, so they start alike.
    let state = State::new(BYTES, seed);
    let (mut a, mut b, mut c) = ([state.a; FIELDS], [state.b; FIELDS], [state.c; FIELDS]);
    let blocks = BYTES / BLOCK_BYTES;
    for block in 0..blocks {
        let start = block * BLOCK_BYTES;
        add(&mut a, fields, start, 4, 0);
        add(&mut b, fields, start + 4, 4, 0);
        add(&mut c, fields, start + 8, 4, 0);
        mix(&mut a, &mut b, &mut c);
    }
    let (start, rest) = (blocks * BLOCK_BYTES, BYTES % BLOCK_BYTES);
    add(&mut a, fields, start, rest.min(4), 0);
    add(&mut b, fields, start + 4, rest.saturating_sub(4).min(4), 0);
    // The lowest byte of the last word is reserved for the length.
    add(&mut c, fields, start + 8, rest.saturating_sub(8), 1);
    finish(&mut a, &mut b, &mut c);
    std::array::from_fn(|lane| u64::from(b[lane]) << 32 | u64::from(c[lane]))
}

/// Adds to each lane the little-endian word of `length` bytes at `start` of its field, above `reserved` zero bytes.
#[inline(always)]
fn add<const BYTES: usize, const FIELDS: usize>(
    words: &mut Words<FIELDS>,
    fields: &[[u8; BYTES]; FIELDS],
    start: usize,
    length: usize,
    reserved: usize,
) {
    if length == 0 {
        return;
    }
    for (word, field) in words.iter_mut().zip(fields) {
        let mut bytes = [0; 4];
        bytes[reserved..reserved + length].copy_from_slice(&field[start..start + length]);
        *word = word.wrapping_add(u32::from_le_bytes(bytes));
    }
}

#[inline(always)]
fn mix<const LANES: usize>(a: &mut Words<LANES>, b: &mut Words<LANES>, c: &mut Words<LANES>) {
    #[inline(always)]
    fn step<const LANES: usize>(x: &mut Words<LANES>, y: &Words<LANES>, z: &mut Words<LANES>, bits: u32) {
        for lane in 0..LANES {
            x[lane] = x[lane].wrapping_sub(z[lane]) ^ z[lane].rotate_left(bits);
            z[lane] = z[lane].wrapping_add(y[lane]);
        }
    }
    step(a, b, c, 4);
    step(b, c, a, 6);
    step(c, a, b, 8);
    step(a, b, c, 16);
    step(b, c, a, 19);
    step(c, a, b, 4);
}

#[inline(always)]
fn finish<const LANES: usize>(a: &mut Words<LANES>, b: &mut Words<LANES>, c: &mut Words<LANES>) {
    #[inline(always)]
    fn step<const LANES: usize>(x: &mut Words<LANES>, y: &Words<LANES>, bits: u32) {
        for lane in 0..LANES {
            x[lane] = (x[lane] ^ y[lane]).wrapping_sub(y[lane].rotate_left(bits));
        }
    }
    step(c, b, 14);
    step(a, c, 11);
    step(b, a, 25);
    step(c, b, 16);
    step(a, c, 4);
    step(b, a, 14);
    step(c, b, 24);
}

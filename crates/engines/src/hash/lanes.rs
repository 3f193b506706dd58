//! The hashes of several rows of equally long fields, computed side by side.
//!
//! lookup3 is one chain of dependent steps: a core that hashes one value at a time is mostly idle. The fields of YCSB rows are equally
//! long, so their chains run in step, one per lane of a vector. The loops below are written so that the compiler makes vector code
//! of them for any target CPU; they name no instruction. This needs two properties: all steps of one
//! lane are in the body of one loop over lanes, and words reach their lanes through 4x4 transpositions of what is loaded at once.

use super::{BLOCK_BYTES, State, little_endian, record_step, text_extended};

/// Lanes that are transposed at once, and words loaded at once.
const QUAD: usize = 4;
/// Words of the shortest run of both whole blocks and whole loads: four blocks, three loads.
const STRIDE_WORDS: usize = 12;
const STRIDE_BYTES: usize = STRIDE_WORDS * 4;
const WORDS_PER_BLOCK: usize = BLOCK_BYTES / 4;

/// `hash_record_extended(row, seed)` of rows of text, each a key and fields of `BYTES` bytes, each with its own seed.
/// `LANES` is `ROWS * FIELDS`, a multiple of 4.
///
/// Equal to [`super::record`] over [`text_extended`] of each column; twice as fast with 40 lanes, four times with AVX2.
#[inline(always)]
#[must_use]
pub fn text_records<
    const KEY_BYTES: usize,
    const BYTES: usize,
    const FIELDS: usize,
    const ROWS: usize,
    const LANES: usize,
>(
    keys: &[[u8; KEY_BYTES]; ROWS],
    fields: &[[[u8; BYTES]; FIELDS]; ROWS],
    seeds: &[u64; ROWS],
) -> [u64; ROWS] {
    const { assert!(LANES == ROWS * FIELDS && LANES.is_multiple_of(QUAD)) }
    let values = fields.as_flattened();
    let mut lanes = Lanes::<LANES> { a: [0; LANES], b: [0; LANES], c: [0; LANES] };
    for (row, &seed) in seeds.iter().enumerate() {
        // A chain starts from length and seed only.
        let start = State::new(BYTES, seed);
        lanes.a[row * FIELDS..][..FIELDS].fill(start.a);
        lanes.b[row * FIELDS..][..FIELDS].fill(start.b);
        lanes.c[row * FIELDS..][..FIELDS].fill(start.c);
    }
    let strides = BYTES / STRIDE_BYTES;
    for stride in 0..strides {
        let words = transpose::<BYTES, LANES>(values, stride * STRIDE_BYTES);
        for [a, b, c] in words.as_chunks::<WORDS_PER_BLOCK>().0 {
            lanes.mix(a, b, c);
        }
    }
    let mut start = strides * STRIDE_BYTES;
    while start + BLOCK_BYTES <= BYTES {
        let [a, b, c] = [0, 4, 8].map(|offset| gather::<BYTES, LANES>(values, start + offset, 4, 0));
        lanes.mix(&a, &b, &c);
        start += BLOCK_BYTES;
    }
    let rest = BYTES - start;
    let a = gather::<BYTES, LANES>(values, start, rest.min(4), 0);
    let b = gather::<BYTES, LANES>(values, start + 4, rest.saturating_sub(4).min(4), 0);
    // The lowest byte of the last word is reserved for the length.
    let c = gather::<BYTES, LANES>(values, start + 8, rest.saturating_sub(8), 1);
    let hashes = lanes.finish(&a, &b, &c);
    std::array::from_fn(|row| {
        let fields = &hashes[row * FIELDS..][..FIELDS];
        fields.iter().fold(text_extended(&keys[row], seeds[row]), |hash, &field| record_step(hash, field))
    })
}

/// The state of every lane.
struct Lanes<const LANES: usize> {
    a: [u32; LANES],
    b: [u32; LANES],
    c: [u32; LANES],
}

impl<const LANES: usize> Lanes<LANES> {
    #[inline(always)]
    fn mix(&mut self, a: &[u32; LANES], b: &[u32; LANES], c: &[u32; LANES]) {
        for lane in 0..LANES {
            let mut state = State { a: self.a[lane], b: self.b[lane], c: self.c[lane] };
            state.add(a[lane], b[lane], c[lane]);
            state.mix();
            (self.a[lane], self.b[lane], self.c[lane]) = (state.a, state.b, state.c);
        }
    }

    #[inline(always)]
    fn finish(&self, a: &[u32; LANES], b: &[u32; LANES], c: &[u32; LANES]) -> [u64; LANES] {
        let mut hashes = [0; LANES];
        for lane in 0..LANES {
            let mut state = State { a: self.a[lane], b: self.b[lane], c: self.c[lane] };
            state.add(a[lane], b[lane], c[lane]);
            hashes[lane] = state.finish();
        }
        hashes
    }
}

/// [`STRIDE_WORDS`] words of each value from byte `start` on, word by word.
#[inline(always)]
fn transpose<const BYTES: usize, const LANES: usize>(
    values: &[[u8; BYTES]],
    start: usize,
) -> [[u32; LANES]; STRIDE_WORDS] {
    let mut words = [[0; LANES]; STRIDE_WORDS];
    for (quad, values) in values.chunks_exact(QUAD).enumerate() {
        for first in (0..STRIDE_WORDS).step_by(QUAD) {
            let loaded: [[u32; QUAD]; QUAD] = std::array::from_fn(|lane| {
                let bytes = &values[lane][start + first * 4..][..QUAD * 4];
                std::array::from_fn(|word| little_endian(&bytes[word * 4..][..4]))
            });
            for word in 0..QUAD {
                let lanes: [u32; QUAD] = std::array::from_fn(|lane| loaded[lane][word]);
                words[first + word][quad * QUAD..][..QUAD].copy_from_slice(&lanes);
            }
        }
    }
    words
}

/// The word of `length` bytes at `start` of each value, above `reserved` zero bytes.
#[inline(always)]
fn gather<const BYTES: usize, const LANES: usize>(
    values: &[[u8; BYTES]],
    start: usize,
    length: usize,
    reserved: usize,
) -> [u32; LANES] {
    let mut words = [0; LANES];
    if length > 0 {
        for (word, value) in words.iter_mut().zip(values) {
            let mut bytes = [0; 4];
            bytes[reserved..reserved + length].copy_from_slice(&value[start..start + length]);
            *word = u32::from_le_bytes(bytes);
        }
    }
    words
}

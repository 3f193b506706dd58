//! Rows on their way to the server.

use std::ops::Range;

use wire::copy::values::Tuples;

/// Bytes of one CopyData message. Large enough that system calls cost nothing, small enough to stay in a core's second cache,
/// where the kernel still finds it when it copies it into the socket.
pub const MESSAGE_BYTES: usize = 256 << 10;

/// Rows of one table, on their way to the server.
pub trait Encoder {
    /// Takes rows from `rows` and encodes them, until the message is full or there are no more.
    fn fill(&mut self, rows: &mut Numbers<'_>);

    /// Whether it has to be sent before more can be encoded. Also true in the middle of a row that is longer than a message.
    fn is_full(&self) -> bool;

    /// Whether there is nothing to send.
    fn is_empty(&self) -> bool;

    /// Rows that end in the message.
    fn rows(&self) -> u64;

    /// Bytes of their values, where [`Dataset::place`] does not give them; else 0.
    fn value_bytes(&self) -> u64 {
        0
    }

    /// The CopyData message.
    fn message(&mut self) -> &[u8];

    /// Starts the next message.
    fn clear(&mut self);

    /// Forgets everything, also the rest of a row.
    fn reset(&mut self);
}

/// Encodes rows that are shorter than a message, by a function that appends one of them.
#[derive(Debug)]
pub struct TupleEncoder<F> {
    tuples: Tuples,
    push: F,
    counts_bytes: bool,
}

impl<F: FnMut(u64, &mut Tuples)> TupleEncoder<F> {
    /// Of messages of about this length.
    pub fn new(message_bytes: usize, push: F) -> TupleEncoder<F> {
        TupleEncoder { tuples: Tuples::new(message_bytes), push, counts_bytes: false }
    }

    /// It gives the bytes of the values, because the dataset does not know them when it places rows.
    #[must_use]
    pub fn telling_bytes(self) -> TupleEncoder<F> {
        TupleEncoder { counts_bytes: true, ..self }
    }
}

impl<F: FnMut(u64, &mut Tuples)> Encoder for TupleEncoder<F> {
    fn fill(&mut self, rows: &mut Numbers<'_>) {
        while !self.tuples.is_full()
            && let Some(row) = rows.next()
        {
            (self.push)(row, &mut self.tuples);
        }
    }

    fn is_full(&self) -> bool {
        self.tuples.is_full()
    }

    fn is_empty(&self) -> bool {
        self.tuples.is_empty()
    }

    fn rows(&self) -> u64 {
        self.tuples.len()
    }

    fn value_bytes(&self) -> u64 {
        if self.counts_bytes { self.tuples.value_bytes() } else { 0 }
    }

    fn message(&mut self) -> &[u8] {
        self.tuples.message()
    }

    fn clear(&mut self) {
        self.tuples.clear();
    }

    fn reset(&mut self) {
        self.tuples.clear();
    }
}

/// Row numbers, ascending.
#[derive(Clone, Debug)]
pub struct Numbers<'a> {
    first: u64,
    at: u64,
    end: u64,
    /// Offsets from `first`; `None`: all of them, as they come.
    offsets: Option<&'a [u32]>,
}

impl<'a> Numbers<'a> {
    /// All numbers of a range.
    pub fn range(rows: Range<u64>) -> Numbers<'static> {
        Numbers { first: rows.start, at: 0, end: rows.end.saturating_sub(rows.start), offsets: None }
    }

    /// `first` plus each of the offsets, which ascend.
    pub fn picked(first: u64, offsets: &'a [u32]) -> Numbers<'a> {
        Numbers { first, at: 0, end: offsets.len() as u64, offsets: Some(offsets) }
    }

    /// How many are left.
    pub(crate) fn count_left(&self) -> u64 {
        self.end - self.at
    }
}

impl Iterator for Numbers<'_> {
    type Item = u64;

    #[inline]
    fn next(&mut self) -> Option<u64> {
        if self.at == self.end {
            return None;
        }
        let offset = match self.offsets {
            None => self.at,
            Some(offsets) => u64::from(offsets[self.at as usize]),
        };
        self.at += 1;
        Some(self.first + offset)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.count_left() as usize;
        (left, Some(left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_a_range_or_picked() {
        assert_eq!(Numbers::range(5..8).collect::<Vec<_>>(), [5, 6, 7]);
        let mut picked = Numbers::picked(100, &[0, 4, 9]);
        assert_eq!((picked.next(), picked.count_left()), (Some(100), 2));
        assert_eq!(picked.collect::<Vec<_>>(), [104, 109]);
        assert_eq!(Numbers::range(5..5).next(), None);
    }
}

//! Values in PostgreSQL's binary form, and tuples of any width, for tables whose rows differ in length.
//!
//! Sources: `numeric_send` and `numeric_recv` in `src/backend/utils/adt/numeric.c`, `timestamp_recv` in `timestamp.c`,
//! `int4recv` in `int.c`. The output is byte for byte what the server itself would send for the same value.

use super::{FRAME_BYTES, frame_length};

/// Microseconds from 1970 to 2000, from where PostgreSQL counts time (`POSTGRES_EPOCH_JDATE`).
pub(crate) const POSTGRES_EPOCH_US: i64 = 946_684_800_000_000;

/// Digits of a numeric are in base 10,000.
const NUMERIC_BASE: u64 = 10_000;
/// Decimal digits in one of them, and the most digits behind the point that [`numeric`] takes.
pub(crate) const NUMERIC_SCALE_MAX: u8 = 4;
/// Sign words of a numeric.
const NUMERIC_POSITIVE: [u8; 2] = [0x00, 0x00];
const NUMERIC_NEGATIVE: [u8; 2] = [0x40, 0x00];
/// Base-10,000 digits before the point of any 64-bit number: 10^20 has 21 decimal digits.
const WHOLE_DIGITS_MAX: usize = 5;

/// Appends `value` / 10^`scale` as a numeric with `scale` digits behind the point.
///
/// # Panics
/// When `scale` is above [`NUMERIC_SCALE_MAX`].
pub fn numeric(out: &mut Vec<u8>, value: i64, scale: u8) {
    assert!(scale <= NUMERIC_SCALE_MAX, "a scale of {scale} does not fit one digit");
    let unit = 10u64.pow(scale.into());
    let magnitude = value.unsigned_abs();
    let (mut whole, fraction) = (magnitude / unit, magnitude % unit * (NUMERIC_BASE / unit));
    // The fraction is one digit of weight -1; digits before the point have weights 0 and up.
    let mut digits = [0u16; WHOLE_DIGITS_MAX + 1];
    digits[WHOLE_DIGITS_MAX] = fraction as u16;
    let mut first = WHOLE_DIGITS_MAX;
    while whole > 0 {
        first -= 1;
        digits[first] = (whole % NUMERIC_BASE) as u16;
        whole /= NUMERIC_BASE;
    }
    // As the server stores it: no zero digits at either end; zero has none at all, and weight 0.
    let mut end = digits.len();
    while end > first && digits[end - 1] == 0 {
        end -= 1;
    }
    let weight = if end == first { 0 } else { WHOLE_DIGITS_MAX as i16 - first as i16 - 1 };
    out.extend_from_slice(&((end - first) as i16).to_be_bytes());
    out.extend_from_slice(&weight.to_be_bytes());
    out.extend_from_slice(if value < 0 { &NUMERIC_NEGATIVE } else { &NUMERIC_POSITIVE });
    out.extend_from_slice(&i16::from(scale).to_be_bytes());
    for digit in &digits[first..end] {
        out.extend_from_slice(&digit.to_be_bytes());
    }
}

/// A timestamp of so many microseconds since 1970, as the server sends it.
pub fn timestamp(unix_us: i64) -> [u8; 8] {
    unix_us.wrapping_sub(POSTGRES_EPOCH_US).to_be_bytes()
}

/// Appends a value behind its length, which is not known before.
pub(crate) fn with_length(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    write(out);
    let length = i32::try_from(out.len() - start - 4).expect("a value is shorter than 1 GiB");
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

/// One reused CopyData message of tuples that are not all of one width: [`Tuples::begin`], its fields, again, until
/// [`is_full`](Tuples::is_full); send [`message`](Tuples::message), [`clear`](Tuples::clear).
#[derive(Debug)]
pub struct Tuples {
    buffer: Vec<u8>,
    limit: usize,
    count: u64,
    value_bytes: u64,
}

impl Tuples {
    /// An empty message that is full at `message_bytes`; the last tuple may reach beyond.
    pub fn new(message_bytes: usize) -> Tuples {
        let mut tuples = Tuples {
            buffer: Vec::with_capacity(message_bytes + message_bytes / 8),
            limit: message_bytes,
            count: 0,
            value_bytes: 0,
        };
        tuples.clear();
        tuples
    }

    /// Begins the next tuple, which has so many fields.
    #[inline]
    pub fn begin(&mut self, fields: usize) {
        self.count += 1;
        self.buffer.extend_from_slice(&(fields as i16).to_be_bytes());
    }

    /// A field of four bytes.
    #[inline]
    pub fn int4(&mut self, value: i32) {
        let mut field = [0, 0, 0, 4, 0, 0, 0, 0];
        field[4..].copy_from_slice(&value.to_be_bytes());
        self.buffer.extend_from_slice(&field);
        self.value_bytes += 4;
    }

    /// A field of eight bytes.
    #[inline]
    pub fn int8(&mut self, value: i64) {
        let mut field = [0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0];
        field[4..].copy_from_slice(&value.to_be_bytes());
        self.buffer.extend_from_slice(&field);
        self.value_bytes += 8;
    }

    /// A field of text or bytes that `write` appends.
    pub fn written(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.buffer.len();
        with_length(&mut self.buffer, write);
        self.value_bytes += (self.buffer.len() - start - 4) as u64;
    }

    /// A field of text.
    #[inline]
    pub fn text(&mut self, value: &[u8]) {
        self.buffer.extend_from_slice(&(value.len() as i32).to_be_bytes());
        self.buffer.extend_from_slice(value);
        self.value_bytes += value.len() as u64;
    }

    /// A numeric field; see [`numeric`].
    #[inline]
    pub fn numeric(&mut self, value: i64, scale: u8) {
        let start = self.buffer.len();
        with_length(&mut self.buffer, |out| numeric(out, value, scale));
        self.value_bytes += (self.buffer.len() - start - 4) as u64;
    }

    /// A timestamp field, of microseconds since 1970.
    #[inline]
    pub fn timestamp(&mut self, unix_us: i64) {
        let mut field = [0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0];
        field[4..].copy_from_slice(&timestamp(unix_us));
        self.buffer.extend_from_slice(&field);
        self.value_bytes += 8;
    }

    /// A field that is null.
    #[inline]
    pub fn null(&mut self) {
        self.buffer.extend_from_slice(&[0xff; 4]);
    }

    /// Whether it has to be sent before the next tuple.
    pub fn is_full(&self) -> bool {
        self.buffer.len() >= self.limit
    }

    /// Tuples in it.
    pub fn len(&self) -> u64 {
        self.count
    }

    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes of the values in it, without lengths and field counts.
    pub fn value_bytes(&self) -> u64 {
        self.value_bytes
    }

    /// The tuples as they stand, without the message around them.
    pub fn payload(&self) -> &[u8] {
        &self.buffer[FRAME_BYTES..]
    }

    /// The CopyData message.
    pub fn message(&mut self) -> &[u8] {
        let length = frame_length(self.buffer.len() - FRAME_BYTES);
        self.buffer[1..FRAME_BYTES].copy_from_slice(&length);
        &self.buffer
    }

    /// Starts the next message.
    pub fn clear(&mut self) {
        self.buffer.clear();
        self.buffer.extend_from_slice(b"d\0\0\0\0");
        (self.count, self.value_bytes) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::super::Fields;
    use super::*;
    use proptest::prelude::*;

    fn encoded(value: i64, scale: u8) -> Vec<i16> {
        let mut out = Vec::new();
        numeric(&mut out, value, scale);
        out.chunks(2).map(|pair| i16::from_be_bytes([pair[0], pair[1]])).collect()
    }

    /// Words as `numeric_send` gives them: `select numeric_send(12345.67)` is 3, 1, 0, 2, 1, 2345, 6700.
    #[test]
    fn numerics_are_those_of_the_server() {
        for (value, scale, words) in [
            (0, 2, vec![0, 0, 0, 2]),
            (0, 4, vec![0, 0, 0, 4]),
            (1, 2, vec![1, -1, 0, 2, 100]),
            (1, 4, vec![1, -1, 0, 4, 1]),
            (2_000, 4, vec![1, -1, 0, 4, 2_000]),
            (1_000, 2, vec![1, 0, 0, 2, 10]),
            (-1_000, 2, vec![1, 0, 0x4000, 2, 10]),
            (30_000_000, 2, vec![1, 1, 0, 2, 30]),
            (5_000_000, 2, vec![1, 1, 0, 2, 5]),
            (1_234_567, 2, vec![3, 1, 0, 2, 1, 2_345, 6_700]),
            (999_999, 2, vec![2, 0, 0, 2, 9_999, 9_900]),
            (42, 0, vec![1, 0, 0, 0, 42]),
            (i64::MIN, 2, vec![6, 4, 0x4000, 2, 9, 2_233, 7_203, 6_854, 7_758, 800]),
        ] {
            assert_eq!(encoded(value, scale), words, "{value} scale {scale}");
        }
    }

    #[test]
    fn time_counts_from_2000() {
        assert_eq!(timestamp(POSTGRES_EPOCH_US), [0; 8]);
        assert_eq!(i64::from_be_bytes(timestamp(0)), -946_684_800_000_000);
        assert_eq!(i64::from_be_bytes(timestamp(1_767_225_600_000_001)), 820_540_800_000_001);
    }

    #[test]
    fn tuples_are_read_back_field_by_field() {
        let mut tuples = Tuples::new(64);
        assert!(tuples.is_empty() && !tuples.is_full());
        tuples.begin(5);
        tuples.int4(-2);
        tuples.text(b"abc");
        tuples.null();
        tuples.numeric(1_000, 2);
        tuples.timestamp(POSTGRES_EPOCH_US + 1);
        assert_eq!((tuples.len(), tuples.value_bytes()), (1, 4 + 3 + 10 + 8));
        let mut fields = Fields::parse(tuples.payload()).unwrap().unwrap();
        for value in [
            Some(&b"\xff\xff\xff\xfe"[..]),
            Some(b"abc"),
            None,
            Some(b"\0\x01\0\0\0\0\0\x02\0\x0a"),
            Some(b"\0\0\0\0\0\0\0\x01"),
        ] {
            assert_eq!(fields.next_field(), Ok(Some(value)));
        }
        assert_eq!(fields.next_field(), Ok(None));
        let bytes = tuples.payload().len();
        let message = tuples.message();
        assert_eq!((message[0], message.len()), (b'd', 5 + bytes));
        assert_eq!(u32::from_be_bytes(message[1..5].try_into().unwrap()) as usize, 4 + bytes);
        tuples.begin(1);
        tuples.text(&[b'x'; 60]);
        assert!(tuples.is_full());
        tuples.clear();
        assert!(tuples.is_empty() && tuples.value_bytes() == 0 && tuples.payload().is_empty());
        assert_eq!(tuples.message(), b"d\0\0\0\x04");
    }

    proptest! {
        /// The digits, put together again, are the number; and none of them could be left out.
        #[test]
        fn numerics_say_what_they_were_made_from(value: i64, scale in 0u8..=4) {
            let words = encoded(value, scale);
            let (count, weight) = (words[0] as usize, i32::from(words[1]));
            prop_assert_eq!(words.len(), 4 + count);
            let mut sum = 0i128;
            for (digit, place) in words[4..].iter().zip(0..) {
                let power = weight - place;
                prop_assert!((0..10_000).contains(digit) && power >= -1);
                sum += i128::from(*digit) * 10_000i128.pow((power + 1) as u32);
            }
            prop_assert_eq!(sum * 10i128.pow(scale.into()), i128::from(value.unsigned_abs()) * 10_000);
            prop_assert_eq!(words[2] == 0x4000, value < 0);
            prop_assert!(words.get(4) != Some(&0) && (count == 0 || words.last() != Some(&0)));
        }
    }
}

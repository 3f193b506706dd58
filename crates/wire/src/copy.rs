//! Binary COPY: tuples of fixed width framed as CopyData, and the reader for the way back.
//!
//! A table whose every value has the same width (YCSB: a key of 22 bytes and ten fields of 100) gives tuples of one width, so the
//! field counts and lengths are written once when the buffer is made, and a row only overwrites its values: [`FixedTuples`]. With that, one
//! large CopyData message per system call and no allocation per row, the loader uses less CPU than a `psql \copy` of a
//! file that another program has already encoded. For other tables see [`values`].
//!
//! Source of the formats: PostgreSQL documentation, COPY, section "Binary Format", and "Message Formats" (CopyData; CopyDone and
//! CopyFail are in [`crate::frontend`]); `src/backend/commands/copyfromparse.c`.

pub mod values;

/// The first bytes of a binary COPY stream: signature, flags (no OIDs), length of the header extension (none).
pub const HEADER: [u8; 19] = *b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";

/// The last bytes of a binary COPY stream: a tuple with -1 fields.
pub const TRAILER: [u8; 2] = [0xff, 0xff];

/// Bytes before the payload of a message: a tag and a length that counts itself.
const FRAME_BYTES: usize = 5;

/// Bytes before the fields of a tuple: the number of fields.
const FIELD_COUNT_BYTES: usize = 2;

/// Bytes before the value of a field: its length, -1 for null.
const FIELD_LENGTH_BYTES: usize = 4;

/// Appends one CopyData message.
///
/// # Panics
/// When the payload does not fit the protocol's 32-bit length.
pub fn data(out: &mut Vec<u8>, payload: &[u8]) {
    out.push(b'd');
    out.extend_from_slice(&frame_length(payload.len()));
    out.extend_from_slice(payload);
}

fn frame_length(payload_bytes: usize) -> [u8; 4] {
    i32::try_from(payload_bytes + 4).expect("a message is shorter than 2 GiB").to_be_bytes()
}

/// Where the values of a fixed-width tuple lie: offsets from the start of the tuple.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TupleShape {
    /// Offset and width of each value, in field order.
    values: Vec<(usize, usize)>,
    bytes: usize,
}

impl TupleShape {
    /// The shape of a tuple whose values have these widths in bytes.
    ///
    /// # Panics
    /// With more than 1600 fields (PostgreSQL's limit of columns) or a value of 1 GiB: such a shape is a programming error.
    pub fn new(widths_bytes: &[usize]) -> TupleShape {
        assert!(widths_bytes.len() <= 1600, "a table has at most 1600 columns");
        let mut at = FIELD_COUNT_BYTES;
        let mut values = Vec::with_capacity(widths_bytes.len());
        for &width in widths_bytes {
            assert!(width < 1 << 30, "a value is shorter than 1 GiB");
            at += FIELD_LENGTH_BYTES;
            values.push((at, width));
            at += width;
        }
        TupleShape { values, bytes: at }
    }

    /// Width of the encoded tuple in bytes, its field count and lengths included.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Offset of a value from the start of the tuple.
    pub fn offset(&self, field: usize) -> usize {
        self.values[field].0
    }

    /// Writes everything but the values.
    fn write_frame(&self, tuple: &mut [u8]) {
        tuple[..FIELD_COUNT_BYTES].copy_from_slice(&(self.values.len() as i16).to_be_bytes());
        for &(offset, width) in &self.values {
            tuple[offset - FIELD_LENGTH_BYTES..offset].copy_from_slice(&(width as i32).to_be_bytes());
        }
    }
}

/// One reused CopyData message full of fixed-width tuples.
///
/// The use of the buffer: [`next_tuple`](Self::next_tuple) until [`is_full`](Self::is_full), send
/// [`message`](Self::message), [`clear`](Self::clear), again. Nothing is allocated after [`new`](Self::new).
#[derive(Debug)]
pub struct FixedTuples {
    shape: TupleShape,
    /// CopyData frame, then `capacity` tuples whose counts and lengths stay as they are.
    buffer: Vec<u8>,
    capacity: usize,
    count: usize,
}

impl FixedTuples {
    /// A buffer whose message is at most `message_bytes` long, and holds one tuple at least.
    pub fn new(shape: TupleShape, message_bytes: usize) -> FixedTuples {
        let capacity = (message_bytes.saturating_sub(FRAME_BYTES) / shape.bytes()).max(1);
        let mut buffer = vec![0; FRAME_BYTES + capacity * shape.bytes()];
        buffer[0] = b'd';
        for tuple in buffer[FRAME_BYTES..].chunks_exact_mut(shape.bytes()) {
            shape.write_frame(tuple);
        }
        FixedTuples { shape, buffer, capacity, count: 0 }
    }

    /// The shape of its tuples.
    pub fn shape(&self) -> &TupleShape {
        &self.shape
    }

    /// How many tuples a message holds.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Tuples taken since the last clear.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether no tuple was taken since the last clear.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether the message has to be sent before the next tuple.
    pub fn is_full(&self) -> bool {
        self.count == self.capacity
    }

    /// Takes the next tuple, `shape().bytes()` long. The caller overwrites every value (see [`TupleShape::offset`]) and nothing
    /// else: the lengths between the values are already there.
    ///
    /// # Panics
    /// When the message is full.
    pub fn next_tuple(&mut self) -> &mut [u8] {
        assert!(!self.is_full(), "send and clear a full message first");
        let start = FRAME_BYTES + self.count * self.shape.bytes;
        self.count += 1;
        &mut self.buffer[start..start + self.shape.bytes]
    }

    /// The CopyData message with the tuples taken so far.
    pub fn message(&mut self) -> &[u8] {
        let end = FRAME_BYTES + self.count * self.shape.bytes;
        self.buffer[1..FRAME_BYTES].copy_from_slice(&frame_length(end - FRAME_BYTES));
        &self.buffer[..end]
    }

    /// Starts the next message.
    pub fn clear(&mut self) {
        self.count = 0;
    }
}

/// Errors in a binary COPY stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CopyError {
    /// The first bytes are not PostgreSQL's signature.
    #[error("the COPY stream does not start with PostgreSQL's binary signature")]
    Signature,
    /// A flag is set that this reader does not know and must not ignore (bits 16 to 31 are critical by definition).
    #[error("the COPY stream sets an unknown critical flag: {0:#010x}")]
    Flags(u32),
    /// A tuple or its header ends too early, or goes on after its last field.
    #[error("a COPY tuple is cut short or too long")]
    Shape,
}

/// Splits the header off the first CopyData payload; the server puts it in front of the first tuple.
///
/// # Errors
/// When the bytes are no binary COPY header or carry a critical flag.
pub fn strip_header(payload: &[u8]) -> Result<&[u8], CopyError> {
    let (signature, rest) = payload.split_at_checked(11).ok_or(CopyError::Signature)?;
    if signature != &HEADER[..11] {
        return Err(CopyError::Signature);
    }
    let (flags, rest) = take_u32(rest)?;
    if flags >> 16 != 0 {
        return Err(CopyError::Flags(flags));
    }
    let (extension_bytes, rest) = take_u32(rest)?;
    rest.get(extension_bytes as usize..).ok_or(CopyError::Shape)
}

/// The fields of one tuple as the server sent them; `None` is null.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a> {
    remaining: usize,
    bytes: &'a [u8],
}

impl<'a> Fields<'a> {
    /// Reads the tuple of one CopyData payload; `None` for the trailer.
    ///
    /// # Errors
    /// When the payload is too short to hold a field count or has a negative one that is not the trailer's.
    pub fn parse(payload: &'a [u8]) -> Result<Option<Fields<'a>>, CopyError> {
        let (count, bytes) = payload.split_first_chunk::<2>().ok_or(CopyError::Shape)?;
        match i16::from_be_bytes(*count) {
            -1 if bytes.is_empty() => Ok(None),
            count => {
                let remaining = usize::try_from(count).map_err(|_| CopyError::Shape)?;
                Ok(Some(Fields { remaining, bytes }))
            }
        }
    }

    /// Fields that were not read yet.
    pub fn remaining(&self) -> usize {
        self.remaining
    }

    /// The next field, or `None` after the last one.
    ///
    /// # Errors
    /// When the field reaches beyond the tuple, or the tuple goes on after its last field.
    pub fn next_field(&mut self) -> Result<Option<Option<&'a [u8]>>, CopyError> {
        if self.remaining == 0 {
            return if self.bytes.is_empty() { Ok(None) } else { Err(CopyError::Shape) };
        }
        let (length, rest) = take_u32(self.bytes)?;
        self.remaining -= 1;
        if length == u32::MAX {
            self.bytes = rest;
            return Ok(Some(None));
        }
        let (value, rest) = rest.split_at_checked(length as usize).ok_or(CopyError::Shape)?;
        self.bytes = rest;
        Ok(Some(Some(value)))
    }
}

fn take_u32(bytes: &[u8]) -> Result<(u32, &[u8]), CopyError> {
    let (value, rest) = bytes.split_first_chunk::<4>().ok_or(CopyError::Shape)?;
    Ok((u32::from_be_bytes(*value), rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn header_is_the_documented_one() {
        assert_eq!(&HEADER[..11], b"PGCOPY\n\xff\r\n\0");
        assert_eq!(&HEADER[11..], [0; 8]);
        assert_eq!(i16::from_be_bytes(TRAILER), -1);
    }

    #[test]
    fn framing_counts_the_length_itself_but_not_the_tag() {
        let mut out = Vec::new();
        data(&mut out, b"abc");
        data(&mut out, b"");
        assert_eq!(out, b"d\0\0\0\x07abcd\0\0\0\x04");
    }

    #[test]
    fn fixed_tuples_equal_tuples_written_by_hand() {
        let mut tuples = FixedTuples::new(TupleShape::new(&[2, 3]), 5 + 2 * 15);
        assert_eq!((tuples.capacity(), tuples.shape().bytes()), (2, 15));
        for (a, b) in [(b"aa", b"bbb"), (b"cc", b"ddd")] {
            let (first, second) = (tuples.shape().offset(0), tuples.shape().offset(1));
            let tuple = tuples.next_tuple();
            tuple[first..first + 2].copy_from_slice(a);
            tuple[second..second + 3].copy_from_slice(b);
        }
        assert!(tuples.is_full());
        let mut expected = b"d\0\0\0\x22".to_vec();
        expected.extend_from_slice(b"\0\x02\0\0\0\x02aa\0\0\0\x03bbb\0\x02\0\0\0\x02cc\0\0\0\x03ddd");
        assert_eq!(tuples.message(), expected);

        tuples.clear();
        assert!(tuples.is_empty());
        tuples.next_tuple();
        assert_eq!(tuples.len(), 1);
        assert_eq!(tuples.message().len(), 5 + 15, "a half-filled message ends after its last tuple");
    }

    #[test]
    fn a_message_holds_one_tuple_even_when_it_is_wider_than_requested() {
        let tuples = FixedTuples::new(TupleShape::new(&[100]), 10);
        assert_eq!(tuples.capacity(), 1);
    }

    #[test]
    #[should_panic(expected = "send and clear")]
    fn a_full_message_refuses_another_tuple() {
        let mut tuples = FixedTuples::new(TupleShape::new(&[100]), 10);
        tuples.next_tuple();
        tuples.next_tuple();
    }

    #[test]
    fn reader_takes_back_what_the_writer_wrote() {
        let mut tuples = FixedTuples::new(TupleShape::new(&[1, 0, 4]), 64);
        let offset = tuples.shape().offset(2);
        tuples.next_tuple()[offset..offset + 4].copy_from_slice(b"wxyz");
        let stream = [&HEADER, &tuples.message()[5..]].concat();
        let mut fields = Fields::parse(strip_header(&stream).unwrap()).unwrap().unwrap();
        assert_eq!(fields.remaining(), 3);
        assert_eq!(fields.next_field(), Ok(Some(Some(&b"\0"[..]))));
        assert_eq!(fields.next_field(), Ok(Some(Some(&b""[..]))));
        assert_eq!(fields.next_field(), Ok(Some(Some(&b"wxyz"[..]))));
        assert_eq!(fields.next_field(), Ok(None));
        assert!(Fields::parse(&TRAILER).unwrap().is_none());
    }

    #[test]
    fn reader_refuses_what_is_not_a_copy_stream() {
        assert_eq!(strip_header(b"PGCOPY"), Err(CopyError::Signature));
        assert_eq!(strip_header(b"PGCOPY\n\xff\n\n\0\0\0\0\0\0\0\0\0"), Err(CopyError::Signature));
        let mut flags = HEADER;
        flags[12] = 1;
        assert_eq!(strip_header(&flags), Err(CopyError::Flags(0x0001_0000)));
        let mut extension = HEADER;
        extension[18] = 1;
        assert_eq!(strip_header(&extension), Err(CopyError::Shape));
        assert_eq!(Fields::parse(b"\xff\xfe").unwrap_err(), CopyError::Shape);
        assert_eq!(Fields::parse(b"\xff\xff\0").unwrap_err(), CopyError::Shape);
        assert_eq!(Fields::parse(b"\0").unwrap_err(), CopyError::Shape);
        let null = b"\0\x01\xff\xff\xff\xff";
        assert_eq!(Fields::parse(null).unwrap().unwrap().next_field(), Ok(Some(None)));
        let short = b"\0\x01\0\0\0\x05abcd";
        assert_eq!(Fields::parse(short).unwrap().unwrap().next_field(), Err(CopyError::Shape));
        let mut long = Fields::parse(b"\0\0x").unwrap().unwrap();
        assert_eq!(long.next_field(), Err(CopyError::Shape));
    }

    proptest! {
        #[test]
        fn reader_never_panics_on_any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = strip_header(&bytes);
            if let Ok(Some(mut fields)) = Fields::parse(&bytes) {
                let mut read = 0;
                while let Ok(Some(_)) = fields.next_field() {
                    read += 1;
                }
                prop_assert!(read <= bytes.len());
            }
        }

        #[test]
        fn any_shape_round_trips(widths in proptest::collection::vec(0usize..40, 1..20), count in 1usize..6, fill in any::<u8>()) {
            let shape = TupleShape::new(&widths);
            let mut tuples = FixedTuples::new(shape.clone(), 5 + count * shape.bytes());
            for _ in 0..count {
                let tuple = tuples.next_tuple();
                for (field, width) in widths.iter().enumerate() {
                    tuple[shape.offset(field)..][..*width].fill(fill);
                }
            }
            let message = tuples.message();
            prop_assert_eq!(message.len(), 5 + count * shape.bytes());
            for tuple in message[5..].chunks(shape.bytes()) {
                let mut fields = Fields::parse(tuple).unwrap().unwrap();
                for width in &widths {
                    let expected = vec![fill; *width];
                    prop_assert_eq!(fields.next_field(), Ok(Some(Some(&expected[..]))));
                }
                prop_assert_eq!(fields.next_field(), Ok(None));
            }
        }
    }
}

use super::*;
use std::io::Cursor;

/// A server whose replies are prepared, a few bytes at a time.
struct Script {
    replies: Cursor<Vec<u8>>,
    received: Vec<u8>,
    bytes_at_once: usize,
}

impl Read for Script {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = buffer.len().min(self.bytes_at_once);
        self.replies.read(&mut buffer[..length])
    }
}

impl Write for Script {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.received.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut message = vec![tag];
    message.extend((body.len() as u32 + 4).to_be_bytes());
    message.extend(body);
    message
}

fn reader(messages: &[(u8, &[u8])], bytes_at_once: usize) -> Reader<Script> {
    let replies = messages.iter().flat_map(|(tag, body)| message(*tag, body)).collect();
    Reader::new(Script { replies: Cursor::new(replies), received: Vec::new(), bytes_at_once })
}

const READY: (u8, &[u8]) = (b'Z', b"I");
const ERROR: (u8, &[u8]) = (b'E', b"SERROR\0VERROR\0C57014\0Mcancelled\0\0");

/// A tuple of one column `value`.
fn tuple(value: &[u8]) -> Vec<u8> {
    let mut bytes = 1u16.to_be_bytes().to_vec();
    bytes.extend((value.len() as u32).to_be_bytes());
    bytes.extend(value);
    bytes
}

fn values(reader: &mut Reader<Script>) -> (Result<(), VerifyError>, Vec<Vec<u8>>) {
    let mut values = Vec::new();
    let result = reader.copy_out("reading", "copy", |mut tuple| {
        values.push(tuple.next_field().unwrap().unwrap().unwrap().to_vec());
        Ok(())
    });
    (result, values)
}

#[test]
fn tuples_come_whole_however_the_bytes_come() {
    let first = [&copy::HEADER[..], &tuple(b"one")].concat();
    let long = tuple(&vec![b'x'; INPUT_BYTES * 3]);
    for bytes_at_once in [1, 7, 4096, usize::MAX] {
        let messages: [(u8, &[u8]); 7] = [
            (b'H', b"\x01\0\x01\0\x01"),
            (b'd', &first),
            (b'd', &long),
            (b'd', &copy::TRAILER),
            (b'c', b""),
            (b'C', b"COPY 2\0"),
            READY,
        ];
        let mut reader = reader(&messages, bytes_at_once);
        let (result, values) = values(&mut reader);
        result.unwrap();
        assert_eq!(values.len(), 2);
        assert_eq!((values[0].as_slice(), values[1].len()), (&b"one"[..], INPUT_BYTES * 3));
        assert_eq!(reader.socket.received, b"Q\0\0\0\x09copy\0");
    }
}

#[test]
fn an_empty_table_is_a_header_and_a_trailer() {
    let only = [&copy::HEADER[..], &copy::TRAILER].concat();
    for messages in
        [vec![(b'd', &only[..]), READY], vec![(b'd', &copy::HEADER[..]), (b'd', &copy::TRAILER[..]), READY]]
    {
        let (result, values) = values(&mut reader(&messages, 9));
        result.unwrap();
        assert!(values.is_empty());
    }
}

#[test]
fn refusals_lost_connections_and_other_protocols_are_distinguished() {
    let (result, _) = values(&mut reader(&[ERROR, READY], 9));
    assert!(matches!(result, Err(VerifyError::Server { source, .. }) if source.message == "cancelled"));
    let (result, _) = values(&mut reader(&[(b'H', b"\x01\0\x01\0\x01")], 9));
    assert!(matches!(result, Err(VerifyError::Lost { .. })));
    let (result, _) = values(&mut reader(&[(b'G', b"\x01\0\x01\0\x01")], 9));
    assert!(matches!(result, Err(VerifyError::Protocol { .. })));
    let (result, _) = values(&mut reader(&[(b'd', b"nonsense"), READY], 9));
    assert!(matches!(result, Err(VerifyError::Copy { .. })));
}

#[test]
fn rows_of_text_are_handed_over() {
    let row = b"\0\x02\0\0\0\x0242\xff\xff\xff\xff";
    let mut reader = reader(&[(b'T', b"\0\0"), (b'D', row), (b'C', b"SELECT 1\0"), READY, ERROR, READY], 3);
    let mut rows = Vec::new();
    reader
        .query("asking", "select", |row| {
            rows.push(row.iter().map(|value| value.map(str::to_owned)).collect::<Vec<_>>());
            Ok(())
        })
        .unwrap();
    assert_eq!(rows, [[Some("42".to_owned()), None]]);
    assert!(matches!(reader.execute("asking", "select"), Err(VerifyError::Server { .. })));
}

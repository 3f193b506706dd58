//! Messages of the client: encoders that append to a reused buffer.

/// Length of the longest name or query that fits a message with its header.
const LENGTH_BYTES_MAX: usize = i32::MAX as usize;

/// Appends one message: type byte, length, and the body that `body` writes.
#[inline]
fn message(out: &mut Vec<u8>, tag: u8, body: impl FnOnce(&mut Vec<u8>)) {
    out.push(tag);
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    body(out);
    let length = out.len() - start;
    assert!(length <= LENGTH_BYTES_MAX, "a protocol message longer than 2 GiB");
    out[start..start + 4].copy_from_slice(&(length as u32).to_be_bytes());
}

/// Appends `text` and its terminating zero. A zero inside would end the string early on the server, so it is a bug of the caller.
fn zero_terminated(out: &mut Vec<u8>, text: &str) {
    debug_assert!(!text.as_bytes().contains(&0), "a zero byte inside protocol text");
    out.extend_from_slice(text.as_bytes());
    out.push(0);
}

/// Simple query.
pub fn query(out: &mut Vec<u8>, sql: &str) {
    message(out, b'Q', |out| zero_terminated(out, sql));
}

/// Simple query whose text is written by `text` (without the terminating zero).
pub fn query_with(out: &mut Vec<u8>, text: impl FnOnce(&mut Vec<u8>)) {
    message(out, b'Q', |out| {
        text(out);
        out.push(0);
    });
}

/// Parse: prepares `sql` under `name` (empty: unnamed); a type of 0 leaves the choice to the server.
pub fn parse(out: &mut Vec<u8>, name: &str, sql: &str, parameter_types: &[u32]) {
    message(out, b'P', |out| {
        zero_terminated(out, name);
        zero_terminated(out, sql);
        out.extend_from_slice(&(parameter_types.len() as u16).to_be_bytes());
        for oid in parameter_types {
            out.extend_from_slice(&oid.to_be_bytes());
        }
    });
}

/// Format of a parameter or result column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Format {
    /// The type's text form.
    Text = 0,
    /// The type's binary form.
    Binary = 1,
}

/// Bind to the unnamed portal. `write_parameter(i, out)` appends the value of parameter `i` and returns false for NULL.
#[inline]
pub fn bind(
    out: &mut Vec<u8>,
    statement: &str,
    parameter_formats: &[Format],
    parameter_count: u16,
    result_format: Format,
    mut write_parameter: impl FnMut(u16, &mut Vec<u8>) -> bool,
) {
    message(out, b'B', |out| {
        out.push(0);
        zero_terminated(out, statement);
        out.extend_from_slice(&(parameter_formats.len() as u16).to_be_bytes());
        for format in parameter_formats {
            out.extend_from_slice(&(*format as u16).to_be_bytes());
        }
        out.extend_from_slice(&parameter_count.to_be_bytes());
        for index in 0..parameter_count {
            let start = out.len();
            out.extend_from_slice(&(-1i32).to_be_bytes());
            if write_parameter(index, out) {
                let length = (out.len() - start - 4) as u32;
                out[start..start + 4].copy_from_slice(&length.to_be_bytes());
            } else {
                out.truncate(start + 4);
            }
        }
        match result_format {
            // libpq always names one format for all columns, also when it is text: the same bytes for a fair comparison.
            Format::Text => out.extend_from_slice(&[0, 1, 0, 0]),
            Format::Binary => out.extend_from_slice(&[0, 1, 0, 1]),
        }
    });
}

/// Describe of the unnamed portal.
pub fn describe_portal(out: &mut Vec<u8>) {
    out.extend_from_slice(b"D\0\0\0\x06P\0");
}

/// Describe of a prepared statement.
pub fn describe_statement(out: &mut Vec<u8>, name: &str) {
    message(out, b'D', |out| {
        out.push(b'S');
        zero_terminated(out, name);
    });
}

/// Execute of the unnamed portal without a row limit.
pub fn execute(out: &mut Vec<u8>) {
    out.extend_from_slice(b"E\0\0\0\x09\0\0\0\0\0");
}

/// Sync: ends an extended-protocol request; the server answers ReadyForQuery.
pub fn sync(out: &mut Vec<u8>) {
    out.extend_from_slice(b"S\0\0\0\x04");
}

/// Flush: requests what is ready without ending the request.
pub fn flush(out: &mut Vec<u8>) {
    out.extend_from_slice(b"H\0\0\0\x04");
}

/// Terminate: the proper end of a session.
pub fn terminate(out: &mut Vec<u8>) {
    out.extend_from_slice(b"X\0\0\0\x04");
}

/// CopyDone: all COPY data was sent.
pub fn copy_done(out: &mut Vec<u8>) {
    out.extend_from_slice(b"c\0\0\0\x04");
}

/// CopyFail: the client gives COPY up; the server answers with an error that quotes `reason`.
pub fn copy_fail(out: &mut Vec<u8>, reason: &str) {
    message(out, b'f', |out| zero_terminated(out, reason));
}

/// CancelRequest, sent alone on a connection of its own.
pub fn cancel_request(out: &mut Vec<u8>, process_id: u32, secret_key: &[u8]) {
    const CANCEL_REQUEST_CODE: u32 = 80_877_102;
    out.extend_from_slice(&(12 + secret_key.len() as u32).to_be_bytes());
    out.extend_from_slice(&CANCEL_REQUEST_CODE.to_be_bytes());
    out.extend_from_slice(&process_id.to_be_bytes());
    out.extend_from_slice(secret_key);
}

/// Appends the decimal digits of `value`, as `%ld` would print it.
#[inline]
pub fn decimal(out: &mut Vec<u8>, value: i64) {
    /// `-9223372036854775808`.
    const DIGITS_MAX: usize = 20;
    let mut digits = [0u8; DIGITS_MAX];
    let mut at = DIGITS_MAX;
    let mut rest = value.unsigned_abs();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        at -= 1;
        digits[at] = b'-';
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn messages_are_as_documented() {
        let mut out = Vec::new();
        query(&mut out, "select 1");
        assert_eq!(out, b"Q\0\0\0\x0dselect 1\0");
        out.clear();
        parse(&mut out, "s", "select $1", &[crate::oid::INT8]);
        assert_eq!(out, b"P\0\0\0\x16s\0select $1\0\0\x01\0\0\0\x14");
        out.clear();
        bind(&mut out, "s", &[], 2, Format::Text, |index, out| {
            out.extend_from_slice(b"42");
            index == 0
        });
        assert_eq!(
            out,
            b"B\0\0\0\x19\0s\0\0\0\0\x02\0\0\0\x0242\xff\xff\xff\xff\0\x01\0\0".to_vec().as_slice()
        );
        out.clear();
        describe_portal(&mut out);
        execute(&mut out);
        sync(&mut out);
        assert_eq!(out, b"D\0\0\0\x06P\0E\0\0\0\x09\0\0\0\0\0S\0\0\0\x04");
        out.clear();
        copy_fail(&mut out, "no");
        assert_eq!(out, b"f\0\0\0\x07no\0");
        out.clear();
        cancel_request(&mut out, 7, &[1, 2, 3, 4]);
        assert_eq!(out, [0, 0, 0, 16, 4, 210, 22, 46, 0, 0, 0, 7, 1, 2, 3, 4]);
    }

    proptest! {
        #[test]
        fn decimals_are_printed_as_the_standard_library_does(value: i64) {
            let mut out = Vec::new();
            decimal(&mut out, value);
            prop_assert_eq!(out, value.to_string().into_bytes());
        }
    }
}

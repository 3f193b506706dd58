//! Executing a statement from a template: all bytes but the parameters are laid out once, at prepare time.
//!
//! The statement is prepared on the server ([`Template::new`]), parsed with each execution ([`Template::extended`]), or a text that the values are
//! written into ([`Template::simple`]): a connection pooler may give each transaction another server process, which knows nothing of
//! what an earlier one has prepared.
//!
//! Two forms, recorded in every result ([`Wire`]), because skipping messages also saves work of the server:
//! `libpq` sends what `PQsendQueryPrepared` sends (text parameters, Bind + Describe portal + Execute), `lean` sends binary
//! parameters where the type is known and leaves Describe out.

use crate::frontend::{self, Format};
use crate::oid;

/// Which messages and formats a session uses for prepared statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Wire {
    /// The same messages as libpq and thus pgbench: text parameters and results, Describe on every execution.
    #[default]
    Libpq,
    /// Binary parameters and results where the type is one this client knows, no Describe.
    Lean,
}

impl Wire {
    /// The name on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            Wire::Libpq => "libpq",
            Wire::Lean => "lean",
        }
    }
}

/// How one parameter travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Text.
    Text,
    /// Two bytes, big-endian.
    Int2,
    /// Four bytes, big-endian.
    Int4,
    /// Eight bytes, big-endian.
    Int8,
    /// Eight bytes, IEEE 754, big-endian.
    Float8,
}

impl Encoding {
    /// The encoding for a parameter of type `oid` in the given wire mode.
    pub fn of(wire: Wire, oid: u32) -> Encoding {
        const INT2: u32 = 21;
        match (wire, oid) {
            (Wire::Libpq, _) => Encoding::Text,
            (Wire::Lean, INT2) => Encoding::Int2,
            (Wire::Lean, oid::INT4) => Encoding::Int4,
            (Wire::Lean, oid::INT8) => Encoding::Int8,
            (Wire::Lean, oid::FLOAT8) => Encoding::Float8,
            (Wire::Lean, _) => Encoding::Text,
        }
    }

    fn format(self) -> Format {
        if self == Encoding::Text { Format::Text } else { Format::Binary }
    }
}

/// The laid-out bytes of one statement's execution: `head`, the parameters, `tail`.
#[derive(Clone, Debug)]
pub struct Template {
    head: Vec<u8>,
    tail: Vec<u8>,
    /// Where in `head` the message begins that the parameters belong to.
    message_at: usize,
    /// How much of `tail` belongs to it.
    message_tail_bytes: usize,
    encodings: Vec<Encoding>,
    /// Of a text: what stands behind each parameter.
    between: Vec<Vec<u8>>,
}

impl Template {
    /// Lays out the execution of `statement`, whose parameters have the types `parameter_types` (as the server's
    /// ParameterDescription names them; 0 where unknown). `result` is the format of all result columns: a caller that
    /// reads values as text requests text in either wire mode.
    pub fn new(wire: Wire, statement: &str, parameter_types: &[u32], result: Format) -> Template {
        let encodings: Vec<Encoding> = parameter_types.iter().map(|&oid| Encoding::of(wire, oid)).collect();
        let formats: Vec<Format> = match wire {
            // libpq users who pass no formats send none at all, and so does pgbench.
            Wire::Libpq => Vec::new(),
            Wire::Lean if encodings.iter().all(|e| *e == Encoding::Text) => Vec::new(),
            Wire::Lean => encodings.iter().map(|e| e.format()).collect(),
        };
        // A Bind without parameters is built and cut in two where the parameters go: behind their count.
        let mut bind = Vec::new();
        frontend::bind(&mut bind, statement, &formats, 0, result, |_, _| false);
        const RESULT_FORMAT_BYTES: usize = 4;
        let cut = bind.len() - RESULT_FORMAT_BYTES;
        let mut tail = bind.split_off(cut);
        bind[cut - 2..].copy_from_slice(&(encodings.len() as u16).to_be_bytes());
        if wire == Wire::Libpq {
            frontend::describe_portal(&mut tail);
        }
        frontend::execute(&mut tail);
        let (message_at, message_tail_bytes, between) = (0, RESULT_FORMAT_BYTES, Vec::new());
        Template { head: bind, tail, message_at, message_tail_bytes, encodings, between }
    }

    /// Lays out an execution that parses `sql` each time, as the unnamed statement, with all values as text: what libpq's PQsendQueryParams
    /// sends. `sql` has `parameters` parameters.
    pub fn extended(sql: &str, parameters: u16) -> Template {
        let bound = Template::new(Wire::Libpq, "", &vec![0; usize::from(parameters)], Format::Text);
        let mut head = Vec::new();
        frontend::parse(&mut head, "", sql, &[]);
        let message_at = head.len();
        head.extend_from_slice(&bound.head);
        Template { head, message_at, ..bound }
    }

    /// Lays out a simple query: values are written into the text as literals. The parameters of `sql` stand in order, each once. The caller
    /// adds no Sync: the server takes a simple query as one.
    pub fn simple(sql: &str) -> Template {
        let mut parts: Vec<&str> = Vec::new();
        let mut rest = sql;
        while let Some((before, behind)) = rest.split_once(&format!("${}", parts.len() + 1)) {
            parts.push(before);
            rest = behind;
        }
        let encodings = vec![Encoding::Text; parts.len()];
        parts.push(rest);
        let mut head = vec![b'Q', 0, 0, 0, 0];
        head.extend_from_slice(parts[0].as_bytes());
        let mut between: Vec<Vec<u8>> = parts[1..].iter().map(|part| part.as_bytes().to_vec()).collect();
        // The zero that ends the text stands behind the last parameter, or behind the text without any.
        between.last_mut().unwrap_or(&mut head).push(0);
        Template { head, tail: Vec::new(), message_at: 0, message_tail_bytes: 0, encodings, between }
    }

    /// Begins an execution: parameters follow in order, then [`Execution::finish`].
    #[inline]
    pub fn begin<'a>(&'a self, out: &'a mut Vec<u8>) -> Execution<'a> {
        let start = out.len() + self.message_at;
        out.extend_from_slice(&self.head);
        Execution { template: self, out, start, next: 0 }
    }
}

/// An execution being written.
#[derive(Debug)]
pub struct Execution<'a> {
    template: &'a Template,
    out: &'a mut Vec<u8>,
    start: usize,
    next: usize,
}

impl Execution<'_> {
    #[inline]
    fn next_encoding(&mut self) -> Encoding {
        let encoding = self.encoding();
        self.next += 1;
        encoding
    }

    /// How the next parameter travels. One too many travels as text: the server refuses the whole message, which is an error of one
    /// statement and no end of a worker.
    #[inline]
    fn encoding(&self) -> Encoding {
        self.template.encodings.get(self.next).copied().unwrap_or(Encoding::Text)
    }

    /// The next parameter is an integer.
    #[inline]
    pub fn integer(&mut self, value: i64) {
        match self.next_encoding() {
            Encoding::Text => self.text_with(|out| frontend::decimal(out, value)),
            Encoding::Int8 => self.bytes(&value.to_be_bytes()),
            Encoding::Int4 => match i32::try_from(value) {
                Ok(value) => self.bytes(&value.to_be_bytes()),
                Err(_) => self.misfit(),
            },
            Encoding::Int2 => match i16::try_from(value) {
                Ok(value) => self.bytes(&value.to_be_bytes()),
                Err(_) => self.misfit(),
            },
            Encoding::Float8 => self.bytes(&(value as f64).to_be_bytes()),
        }
    }

    /// The next parameter is a double; `text` writes its text form.
    pub fn double(&mut self, value: f64, text: impl FnOnce(&mut Vec<u8>)) {
        /// Doubles below it in size are exact integers when they have no fraction.
        const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
        match self.encoding() {
            Encoding::Float8 => {
                self.next += 1;
                self.bytes(&value.to_be_bytes());
            }
            Encoding::Text => {
                self.next += 1;
                self.text_with(text);
            }
            _ if value.fract() == 0.0 && value.abs() < EXACT_MAX => self.integer(value as i64),
            _ => {
                self.next += 1;
                self.misfit();
            }
        }
    }

    /// The next parameter is text, which is read as a number where the parameter travels as one.
    pub fn text(&mut self, value: &[u8]) {
        let number = || std::str::from_utf8(value).ok().map(str::trim);
        match self.encoding() {
            Encoding::Text => self.raw(value),
            Encoding::Float8 => match number().and_then(|text| text.parse::<f64>().ok()) {
                Some(value) => self.double(value, |_| ()),
                None => {
                    self.next += 1;
                    self.misfit();
                }
            },
            _ => match number().and_then(|text| text.parse().ok()) {
                Some(value) => self.integer(value),
                None => {
                    self.next += 1;
                    self.misfit();
                }
            },
        }
    }

    /// A value that its binary type cannot hold goes out as one byte, which no number type accepts: the server refuses it with
    /// an error of its own instead of storing something else.
    fn misfit(&mut self) {
        self.bytes(&[0]);
    }

    /// The next parameter's bytes as they are (text, or binary in the statement's own encoding).
    #[inline]
    pub fn raw(&mut self, value: &[u8]) {
        self.next += 1;
        self.bytes(value);
    }

    /// The text after the last written parameter.
    fn behind(&mut self) {
        if let Some(text) = self.template.between.get(self.next - 1) {
            self.out.extend_from_slice(text);
        }
    }

    /// A value inside a text. The server takes a literal for whatever type is wanted in its place.
    fn literal(&mut self, value: &[u8]) {
        // This form means the same with either value of standard_conforming_strings.
        self.out.extend_from_slice(if value.contains(&b'\\') { b" E'" } else { b"'" });
        for &byte in value {
            if matches!(byte, b'\'' | b'\\') {
                self.out.push(byte);
            }
            self.out.push(byte);
        }
        self.out.push(b'\'');
        self.behind();
    }

    /// The next parameter is NULL.
    pub fn null(&mut self) {
        self.next += 1;
        if !self.template.between.is_empty() {
            self.out.extend_from_slice(b"NULL");
            return self.behind();
        }
        self.out.extend_from_slice(&(-1i32).to_be_bytes());
    }

    #[inline]
    fn bytes(&mut self, value: &[u8]) {
        if !self.template.between.is_empty() {
            return self.literal(value);
        }
        self.out.extend_from_slice(&(value.len() as u32).to_be_bytes());
        self.out.extend_from_slice(value);
    }

    #[inline]
    fn text_with(&mut self, text: impl FnOnce(&mut Vec<u8>)) {
        if !self.template.between.is_empty() {
            let mut value = Vec::new();
            text(&mut value);
            return self.literal(&value);
        }
        let start = self.out.len();
        self.out.extend_from_slice(&[0; 4]);
        text(self.out);
        let length = (self.out.len() - start - 4) as u32;
        self.out[start..start + 4].copy_from_slice(&length.to_be_bytes());
    }

    /// Ends the execution (Bind, Describe in libpq's form, Execute); the caller adds Sync, except to a simple query. Who prepares a statement compares its
    /// parameters with those that will be written; should the numbers differ all the same, the server refuses the Bind.
    #[inline]
    pub fn finish(self) {
        let message_bytes = self.out.len() + self.template.message_tail_bytes - self.start - 1;
        self.out[self.start + 1..self.start + 5].copy_from_slice(&(message_bytes as u32).to_be_bytes());
        self.out.extend_from_slice(&self.template.tail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_libpq_form_is_byte_for_byte_what_the_encoders_write() {
        let template = Template::new(Wire::Libpq, "P0_1", &[oid::INT4, oid::TEXT], Format::Text);
        let mut out = Vec::new();
        let mut execution = template.begin(&mut out);
        execution.integer(-42);
        execution.raw(b"user1");
        execution.finish();
        let mut expected = Vec::new();
        frontend::bind(&mut expected, "P0_1", &[], 2, Format::Text, |index, out| {
            out.extend_from_slice(if index == 0 { b"-42" } else { b"user1" });
            true
        });
        frontend::describe_portal(&mut expected);
        frontend::execute(&mut expected);
        assert_eq!(out, expected);
    }

    #[test]
    fn a_parameter_too_many_is_written_for_the_server_to_refuse() {
        let template = Template::new(Wire::Lean, "s", &[oid::INT4], Format::Text);
        let mut out = Vec::new();
        let mut execution = template.begin(&mut out);
        execution.integer(1);
        execution.integer(2);
        execution.double(0.5, |out| out.extend_from_slice(b"0.5"));
        execution.text(b"x");
        execution.null();
        execution.finish();
        // One message still: its length is that of what was written, and its count is the statement's.
        let (_, bytes) = crate::backend::frame(&out).unwrap().expect("a whole Bind");
        assert_eq!(out[bytes], b'E', "Execute follows");
        assert!(out[..bytes].ends_with(b"\0\0\0\x03\x30\x2e\x35\0\0\0\x01x\xff\xff\xff\xff\0\x01\0\0"));
        let mut short = Vec::new();
        template.begin(&mut short).finish();
        assert!(matches!(crate::backend::frame(&short), Ok(Some(_))), "and so it is with one too few");
    }

    #[test]
    fn the_unprepared_forms_are_what_the_encoders_write() {
        let sql = "UPDATE t SET a = $1 WHERE b = $2 AND c > $3";
        let template = Template::extended(sql, 3);
        // Something that waits to be sent stands before it.
        let (mut out, mut expected) = (b"before".to_vec(), b"before".to_vec());
        let mut execution = template.begin(&mut out);
        execution.raw(b"it's");
        execution.integer(-7);
        execution.raw(b"");
        execution.finish();
        frontend::parse(&mut expected, "", sql, &[]);
        frontend::bind(&mut expected, "", &[], 3, Format::Text, |index, out| {
            out.extend_from_slice([&b"it's"[..], b"-7", b""][usize::from(index)]);
            true
        });
        frontend::describe_portal(&mut expected);
        frontend::execute(&mut expected);
        assert_eq!(out, expected);

        for (values, text) in [
            ([&b"it's"[..], b"x"], "UPDATE t SET a = 'it''s' WHERE b = 'x' AND c > NULL"),
            ([b"a\\b'", b""], "UPDATE t SET a =  E'a\\\\b''' WHERE b = '' AND c > NULL"),
        ] {
            let (mut out, mut expected) = (b"before".to_vec(), b"before".to_vec());
            let template = Template::simple(sql);
            let mut execution = template.begin(&mut out);
            values.iter().for_each(|value| execution.raw(value));
            execution.null();
            execution.finish();
            frontend::query(&mut expected, text);
            assert_eq!(String::from_utf8_lossy(&out), String::from_utf8_lossy(&expected));
        }
        let mut out = Vec::new();
        Template::simple("COMMIT").begin(&mut out).finish();
        let mut expected = Vec::new();
        frontend::query(&mut expected, "COMMIT");
        assert_eq!(out, expected);
    }

    #[test]
    fn the_lean_form_sends_known_types_in_binary() {
        let template =
            Template::new(Wire::Lean, "s", &[oid::INT4, oid::INT8, oid::FLOAT8, 1043], Format::Binary);
        let mut out = Vec::new();
        let mut execution = template.begin(&mut out);
        execution.integer(7);
        execution.integer(1 << 40);
        execution.double(1.5, |_| unreachable!("a float8 parameter is binary"));
        execution.null();
        execution.finish();
        let mut misfits = Vec::new();
        let mut execution = template.begin(&mut misfits);
        execution.integer(1 << 40);
        execution.double(0.5, |_| ());
        execution.text(b"1.25");
        execution.text(b"as it is");
        execution.finish();
        for part in [&b"\0\0\0\x01\0\0\0\0\x01\0"[..], b"\0\0\0\x08\x3f\xf4\0\0\0\0\0\0\0\0\0\x08as it is"] {
            assert!(misfits.windows(part.len()).any(|window| window == part), "{part:?} in {misfits:?}");
        }
        let mut expected = Vec::new();
        let formats = [Format::Binary, Format::Binary, Format::Binary, Format::Text];
        frontend::bind(&mut expected, "s", &formats, 4, Format::Binary, |index, out| {
            match index {
                0 => out.extend_from_slice(&7i32.to_be_bytes()),
                1 => out.extend_from_slice(&(1i64 << 40).to_be_bytes()),
                2 => out.extend_from_slice(&1.5f64.to_be_bytes()),
                _ => return false,
            }
            true
        });
        frontend::execute(&mut expected);
        assert_eq!(out, expected);
    }
}

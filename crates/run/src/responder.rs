//! The server's side of the extended and simple protocol, as small as a client needs: for the null server that measures this
//! client alone, and for the scripted server of the tests. It knows no SQL; a [`Backend`] decides what a statement does.

use wire::backend::{frame, tag};

/// What executing a statement comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Executed<'a> {
    /// A command tag, for example `UPDATE 1`, after one row of one text column if there is one.
    Done {
        /// CommandComplete's text.
        tag: &'a str,
        /// The row, if the statement returns one.
        row: Option<&'a [u8]>,
    },
    /// The same after any number of rows.
    Rows {
        /// CommandComplete's text.
        tag: &'a str,
        /// DataRow messages, whole.
        messages: &'a [u8],
    },
    /// An error: SQLSTATE and message.
    Error {
        /// The code.
        sqlstate: &'a str,
        /// The text.
        message: &'a str,
    },
}

/// Decides what statements do.
pub trait Backend {
    /// Executes a statement. `parameters` are the values of a Bind, in order, as they came.
    fn execute(&mut self, sql: &str, parameters: Parameters<'_>) -> Executed<'_>;
}

/// The parameter values of a Bind message; `None` is NULL.
#[derive(Clone, Copy, Debug)]
pub struct Parameters<'a> {
    rest: &'a [u8],
    left: u16,
}

impl<'a> Iterator for Parameters<'a> {
    type Item = Option<&'a [u8]>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let (length, rest) = self.rest.split_first_chunk::<4>()?;
        let Ok(length) = usize::try_from(i32::from_be_bytes(*length)) else {
            // -1: NULL.
            self.rest = rest;
            return Some(None);
        };
        let (value, rest) = rest.split_at_checked(length)?;
        self.rest = rest;
        Some(Some(value))
    }
}

/// One connection's state on the server's side.
#[derive(Debug, Default)]
pub struct Responder {
    /// Prepared statements: name, text, parameter count.
    statements: Vec<(Vec<u8>, String, u16)>,
    bound: usize,
    /// What the last Bind carried, copied: its message is gone when Execute comes.
    bound_parameters: Vec<u8>,
    bound_count: u16,
    /// After an error everything up to Sync is ignored.
    skips_to_sync: bool,
    is_in_block: bool,
    /// The client sent Terminate.
    pub is_terminated: bool,
}

impl Responder {
    /// Answers the whole messages at the front of `incoming`, appends the answers to `out` and returns how many bytes were used.
    pub fn answer(&mut self, incoming: &[u8], backend: &mut impl Backend, out: &mut Vec<u8>) -> usize {
        let mut used = 0;
        while let Ok(Some((message, bytes))) = frame(&incoming[used..]) {
            used += bytes;
            self.message(message.tag, message.body, backend, out);
        }
        used
    }

    fn message(&mut self, kind: u8, body: &[u8], backend: &mut impl Backend, out: &mut Vec<u8>) {
        match kind {
            b'X' => self.is_terminated = true,
            b'S' => {
                self.skips_to_sync = false;
                self.ready(out);
            }
            b'Q' => {
                let sql = String::from_utf8_lossy(body.strip_suffix(&[0]).unwrap_or(body));
                self.run(&sql, Parameters { rest: &[], left: 0 }, backend, out);
                self.skips_to_sync = false;
                self.ready(out);
            }
            _ if self.skips_to_sync => {}
            b'P' => {
                let mut parts = body.splitn(3, |&byte| byte == 0);
                let name = parts.next().unwrap_or_default().to_vec();
                let sql = String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
                let parameters =
                    (1..).take_while(|number| sql.contains(&format!("${number}"))).count() as u16;
                self.statements.retain(|(known, ..)| *known != name);
                self.statements.push((name, sql, parameters));
                message(out, tag::PARSE_COMPLETE, &[]);
            }
            b'D' if body.first() == Some(&b'S') => {
                let count = self.find(&body[1..body.len() - 1]).map_or(0, |at| self.statements[at].2);
                let mut description = count.to_be_bytes().to_vec();
                (0..count).for_each(|_| description.extend_from_slice(&wire::oid::TEXT.to_be_bytes()));
                message(out, tag::PARAMETER_DESCRIPTION, &description);
                message(out, tag::NO_DATA, &[]);
            }
            b'D' => message(out, tag::ROW_DESCRIPTION, ROW_DESCRIPTION),
            b'B' => {
                self.bind(body);
                message(out, tag::BIND_COMPLETE, &[]);
            }
            b'E' => {
                let Some((_, sql, _)) = self.statements.get_mut(self.bound) else { return };
                let sql = std::mem::take(sql);
                let bound = std::mem::take(&mut self.bound_parameters);
                self.run(&sql, Parameters { rest: &bound, left: self.bound_count }, backend, out);
                self.bound_parameters = bound;
                self.statements[self.bound].1 = sql;
            }
            _ => {}
        }
    }

    fn bind(&mut self, body: &[u8]) {
        // Portal name, statement name, formats, values, result formats.
        let mut parts = body.splitn(3, |&byte| byte == 0);
        let (_, name, rest) =
            (parts.next(), parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        self.bound = self.find(name).unwrap_or(usize::MAX);
        let Some((formats, rest)) = rest.split_first_chunk::<2>() else { return };
        let rest = rest.get(usize::from(u16::from_be_bytes(*formats)) * 2..).unwrap_or_default();
        let Some((count, rest)) = rest.split_first_chunk::<2>() else { return };
        self.bound_count = u16::from_be_bytes(*count);
        self.bound_parameters.clear();
        self.bound_parameters.extend_from_slice(rest);
    }

    fn find(&self, name: &[u8]) -> Option<usize> {
        self.statements.iter().position(|(known, ..)| known == name)
    }

    fn run(&mut self, sql: &str, parameters: Parameters<'_>, backend: &mut impl Backend, out: &mut Vec<u8>) {
        match backend.execute(sql, parameters) {
            Executed::Rows { tag: text, messages } => {
                out.extend_from_slice(messages);
                let start = open(out, tag::COMMAND_COMPLETE);
                out.extend_from_slice(text.as_bytes());
                out.push(0);
                close(out, start);
            }
            Executed::Done { tag: text, row } => {
                if let Some(row) = row {
                    let start = open(out, tag::DATA_ROW);
                    out.extend_from_slice(&1u16.to_be_bytes());
                    out.extend_from_slice(&(row.len() as u32).to_be_bytes());
                    out.extend_from_slice(row);
                    close(out, start);
                }
                let start = open(out, tag::COMMAND_COMPLETE);
                out.extend_from_slice(text.as_bytes());
                out.push(0);
                close(out, start);
                match text {
                    "BEGIN" => self.is_in_block = true,
                    "COMMIT" | "ROLLBACK" => self.is_in_block = false,
                    _ => {}
                }
            }
            Executed::Error { sqlstate, message } => {
                let start = open(out, tag::ERROR_RESPONSE);
                for (field, text) in [(b'S', "ERROR"), (b'V', "ERROR"), (b'C', sqlstate), (b'M', message)] {
                    out.push(field);
                    out.extend_from_slice(text.as_bytes());
                    out.push(0);
                }
                out.push(0);
                close(out, start);
                self.skips_to_sync = true;
            }
        }
    }

    fn ready(&self, out: &mut Vec<u8>) {
        message(out, tag::READY_FOR_QUERY, if self.is_in_block { b"T" } else { b"I" });
    }
}

/// One text column named `value`.
const ROW_DESCRIPTION: &[u8] = b"\0\x01value\0\0\0\0\0\0\0\0\0\0\x19\xff\xff\xff\xff\xff\xff\0\0";

fn message(out: &mut Vec<u8>, tag: u8, body: &[u8]) {
    let start = open(out, tag);
    out.extend_from_slice(body);
    close(out, start);
}

fn open(out: &mut Vec<u8>, tag: u8) -> usize {
    out.push(tag);
    out.extend_from_slice(&[0; 4]);
    out.len() - 4
}

fn close(out: &mut [u8], start: usize) {
    let length = (out.len() - start) as u32;
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

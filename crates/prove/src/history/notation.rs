//! The notation of Elle's histories: EDN and JSON, read operation by operation by one small parser that tracks its line.
//!
//! JSON is nearly a part of EDN: commas are white space in both, and a colon behind a map's key is skipped. Of the file only the operation that is being read
//! is in memory.

use std::borrow::Cow;
use std::io::Read as Input;
use std::path::Path;

use super::HistoryError;

/// The deepest nesting of maps and lists: untrusted input must not overflow the parser's stack.
const DEPTH_MAX: usize = 64;
/// Read from the file at once.
const CHUNK_BYTES: usize = 256 * 1024;
/// No operation is longer.
const OPERATION_BYTES_MAX: usize = 256 * 1024 * 1024;

/// One value.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Value<'a> {
    /// `nil`, `null`.
    Nil,
    /// A whole number of 64 bits.
    Integer(i64),
    /// A keyword, without its colon.
    Keyword(&'a [u8]),
    /// A string, without quotes and escapes.
    Text(Cow<'a, [u8]>),
    /// A symbol, character, truth value or other number, as it is written.
    Symbol(&'a [u8]),
    /// A list or vector.
    List(Vec<Value<'a>>),
    /// A set.
    Set(Vec<Value<'a>>),
    /// Keys and values in turn.
    Map(Vec<(Value<'a>, Value<'a>)>),
    /// A tag and the value behind it.
    Tagged(&'a [u8], Box<Value<'a>>),
}

impl<'a> Value<'a> {
    /// Without tags: a reader of the fields does not need the tag of a record.
    pub(super) fn bare(&self) -> &Value<'a> {
        match self {
            Value::Tagged(_, value) => value.bare(),
            value => value,
        }
    }

    /// The value of a map's key.
    pub(super) fn get(&self, name: &str) -> Option<&Value<'a>> {
        let Value::Map(pairs) = self.bare() else { return None };
        pairs.iter().find(|(key, _)| key.word() == Some(name.as_bytes())).map(|(_, value)| value)
    }

    /// A string, keyword or symbol.
    pub(super) fn word(&self) -> Option<&[u8]> {
        match self {
            Value::Keyword(word) | Value::Symbol(word) => Some(word),
            Value::Text(word) => Some(word),
            _ => None,
        }
    }

    /// As EDN; only equal values have the same text.
    pub(super) fn name(&self) -> String {
        let mut text = String::new();
        self.write(&mut text);
        text
    }

    fn write(&self, text: &mut String) {
        let several = |open: &str, mut names: Vec<String>, is_sorted: bool, close: &str| {
            if is_sorted {
                names.sort_unstable();
            }
            format!("{open}{}{close}", names.join(" "))
        };
        let names = |values: &[Value<'_>]| values.iter().map(Value::name).collect::<Vec<_>>();
        match self {
            Value::Nil => text.push_str("nil"),
            Value::Integer(number) => text.push_str(&number.to_string()),
            Value::Keyword(word) => {
                text.push(':');
                text.push_str(&plain(word));
            }
            Value::Symbol(word) => text.push_str(&plain(word)),
            Value::Text(word) => {
                text.push('"');
                text.push_str(&plain(word).replace('\\', "\\\\").replace('"', "\\\""));
                text.push('"');
            }
            Value::List(values) => text.push_str(&several("[", names(values), false, "]")),
            Value::Set(values) => text.push_str(&several("#{", names(values), true, "}")),
            Value::Map(pairs) => {
                let pairs = pairs.iter().map(|(key, value)| format!("{} {}", key.name(), value.name()));
                text.push_str(&several("{", pairs.collect(), true, "}"));
            }
            Value::Tagged(tag, value) => {
                text.push_str(&plain(tag));
                text.push(' ');
                value.write(text);
            }
        }
    }
}

/// Text as it is; invalid bytes and control characters as numbers, so that different ones stay different.
fn plain(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character.is_control() {
                true => text.push_str(&format!("\u{fffd}{:x}.", u32::from(character))),
                false => text.push(character),
            }
        }
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!("\u{fffd}{byte:02x}")));
    }
    text
}

type Read<T> = Result<T, HistoryError>;

/// Why a parser has stopped.
enum Stop {
    /// The input continues after the buffered bytes.
    More,
    Error(HistoryError),
}

type Parsed<T> = Result<T, Stop>;

/// Reads the operations of a history one by one.
pub(super) struct Operations<R> {
    source: R,
    buffer: Vec<u8>,
    /// The used part of the buffer.
    used: usize,
    line: usize,
    is_begun: bool,
    is_end: bool,
    /// The closing brackets of the lists that hold all operations.
    open: Vec<u8>,
}

/// What stands outside of all operations.
enum Outside<'a> {
    End,
    Open(u8),
    Close(u8),
    Operation(usize, Value<'a>),
}

impl<R: Input> Operations<R> {
    pub(super) fn new(source: R) -> Self {
        Operations {
            source,
            buffer: Vec::new(),
            used: 0,
            line: 1,
            is_begun: false,
            is_end: false,
            open: Vec::new(),
        }
    }

    /// Calls `f` with the next value that is in no list or in the outermost one, and the line on which it begins; false at the end.
    pub(super) fn next(&mut self, mut f: impl FnMut(usize, &Value<'_>) -> Read<()>) -> Read<bool> {
        loop {
            self.skip_plain_space();
            let text = self.buffer.get(self.used..).unwrap_or_default();
            let mut parser = Parser { text, at: 0, line: self.line, is_end: self.is_end };
            match parser.outside(self.open.is_empty()) {
                Err(Stop::More) => {
                    self.refill()?;
                    continue;
                }
                Err(Stop::Error(error)) => return Err(error),
                Ok(Outside::Operation(line, value)) => {
                    f(line, &value)?;
                    drop(value);
                    (self.used, self.line) = (self.used + parser.at, parser.line);
                    return Ok(true);
                }
                Ok(outside) => {
                    let (at, line) = (parser.at, parser.line);
                    let error = |what: &str| Err(HistoryError::Notation { line, what: what.to_owned() });
                    match outside {
                        Outside::End if self.open.is_empty() => return Ok(false),
                        Outside::End => return error("the file ends within a list"),
                        Outside::Open(byte) => self.open.push(byte),
                        Outside::Close(byte) if self.open.pop() != Some(byte) => {
                            return error(&format!("an unexpected {:?}", char::from(byte)));
                        }
                        Outside::Close(_) | Outside::Operation(..) => {}
                    }
                    (self.used, self.line) = (self.used + at, line);
                }
            }
        }
    }

    /// So that white space never fills the buffer.
    fn skip_plain_space(&mut self) {
        while let Some(byte) = self.buffer.get(self.used) {
            match byte {
                b'\n' => self.line += 1,
                b',' => {}
                byte if byte.is_ascii_whitespace() => {}
                _ => break,
            }
            self.used += 1;
        }
    }

    fn refill(&mut self) -> Read<()> {
        self.buffer.drain(..self.used);
        self.used = 0;
        if self.buffer.len() > OPERATION_BYTES_MAX {
            let what = format!("an operation of more than {} MB", OPERATION_BYTES_MAX >> 20);
            return Err(HistoryError::Notation { line: self.line, what });
        }
        // A value that does not fit is parsed again each time, so the buffer doubles each time.
        let wanted = self.buffer.len().max(CHUNK_BYTES) as u64;
        let got = self.source.by_ref().take(wanted).read_to_end(&mut self.buffer);
        let got = got.map_err(|source| HistoryError::Io {
            doing: "read",
            path: Path::new("the history").to_owned(),
            source,
        })?;
        self.is_end = (got as u64) < wanted;
        if !std::mem::replace(&mut self.is_begun, true) && self.buffer.starts_with(b"\xef\xbb\xbf") {
            // A byte order mark.
            self.used = 3;
        }
        Ok(())
    }
}

/// Reads values from some bytes.
struct Parser<'a> {
    text: &'a [u8],
    at: usize,
    line: usize,
    /// Nothing comes after these bytes.
    is_end: bool,
}

impl<'a> Parser<'a> {
    fn error<T>(&self, what: impl Into<String>) -> Parsed<T> {
        Err(Stop::Error(HistoryError::Notation { line: self.line, what: what.into() }))
    }

    /// The input ends within a value.
    fn broken_off<T>(&self, within: &str) -> Parsed<T> {
        if self.is_end { self.error(format!("the file ends within a {within}")) } else { Err(Stop::More) }
    }

    fn outside(&mut self, is_first: bool) -> Parsed<Outside<'a>> {
        self.skip_space()?;
        match self.peek() {
            None if self.is_end => Ok(Outside::End),
            None => Err(Stop::More),
            Some(byte @ (b'[' | b'(')) if is_first => {
                self.at += 1;
                Ok(Outside::Open(if byte == b'[' { b']' } else { b')' }))
            }
            Some(byte @ (b']' | b')' | b'}')) => {
                self.at += 1;
                Ok(Outside::Close(byte))
            }
            Some(_) => {
                let line = self.line;
                Ok(Outside::Operation(line, self.value(0)?))
            }
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn step(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        if byte == b'\n' {
            self.line += 1;
        }
        Some(byte)
    }

    /// White space, commas, comments, and values that `#_` hides.
    fn skip_space(&mut self) -> Parsed<()> {
        loop {
            match self.peek() {
                Some(byte) if byte.is_ascii_whitespace() || byte == b',' => {
                    self.step();
                }
                Some(b';') => {
                    while self.peek().is_some_and(|byte| byte != b'\n') {
                        self.at += 1;
                    }
                }
                Some(b'#') if self.text.get(self.at + 1) == Some(&b'_') => {
                    self.at += 2;
                    self.value(1)?;
                }
                _ => return Ok(()),
            }
        }
    }

    fn value(&mut self, depth: usize) -> Parsed<Value<'a>> {
        if depth > DEPTH_MAX {
            return self.error("lists and maps are nested too deeply");
        }
        self.skip_space()?;
        let Some(byte) = self.peek() else { return self.broken_off("value") };
        match byte {
            b'[' | b'(' => {
                self.at += 1;
                Ok(Value::List(self.list(if byte == b'[' { b']' } else { b')' }, depth)?))
            }
            b'{' => {
                self.at += 1;
                self.map(depth)
            }
            b'"' => {
                self.at += 1;
                Ok(Value::Text(self.string()?))
            }
            b'#' => match self.text.get(self.at + 1) {
                None => self.broken_off("value"),
                Some(b'{') => {
                    self.at += 2;
                    Ok(Value::Set(self.list(b'}', depth)?))
                }
                // A number that is none, `##NaN`.
                Some(b'#') => Ok(Value::Symbol(self.word()?)),
                Some(_) => {
                    let tag = self.word()?;
                    Ok(Value::Tagged(tag, Box::new(self.value(depth + 1)?)))
                }
            },
            b'^' => {
                self.at += 1;
                self.value(depth + 1)?;
                self.value(depth + 1)
            }
            b']' | b')' | b'}' => self.error(format!("an unexpected {:?}", char::from(byte))),
            _ => self.atom(),
        }
    }

    fn list(&mut self, end: u8, depth: usize) -> Parsed<Vec<Value<'a>>> {
        let mut values = Vec::new();
        loop {
            self.skip_space()?;
            match self.peek() {
                Some(byte) if byte == end => {
                    self.at += 1;
                    return Ok(values);
                }
                None => return self.broken_off("list"),
                Some(_) => values.push(self.value(depth + 1)?),
            }
        }
    }

    fn map(&mut self, depth: usize) -> Parsed<Value<'a>> {
        let mut pairs = Vec::with_capacity(8);
        loop {
            self.skip_space()?;
            match self.peek() {
                Some(b'}') => {
                    self.at += 1;
                    return Ok(Value::Map(pairs));
                }
                None => return self.broken_off("map"),
                Some(_) => {
                    let is_string = self.peek() == Some(b'"');
                    let key = self.value(depth + 1)?;
                    self.skip_space()?;
                    if is_string && self.peek() == Some(b':') {
                        self.at += 1;
                    }
                    self.skip_space()?;
                    if self.peek() == Some(b'}') {
                        return self.error("a map's key has no value");
                    }
                    pairs.push((key, self.value(depth + 1)?));
                }
            }
        }
    }

    /// A string after its first quote; one without escapes is not copied.
    fn string(&mut self) -> Parsed<Cow<'a, [u8]>> {
        let start = self.at;
        while let Some(byte) = self.step() {
            match byte {
                b'"' => return Ok(Cow::Borrowed(&self.text[start..self.at - 1])),
                b'\\' => {
                    self.at -= 1;
                    return self.escaped(self.text[start..self.at].to_vec()).map(Cow::Owned);
                }
                _ => {}
            }
        }
        self.broken_off("string")
    }

    fn escaped(&mut self, mut bytes: Vec<u8>) -> Parsed<Vec<u8>> {
        loop {
            match self.step() {
                None => return self.broken_off("string"),
                Some(b'"') => return Ok(bytes),
                Some(b'\\') => match self.step() {
                    Some(b'n') => bytes.push(b'\n'),
                    Some(b't') => bytes.push(b'\t'),
                    Some(b'r') => bytes.push(b'\r'),
                    Some(b'b') => bytes.push(8),
                    Some(b'f') => bytes.push(12),
                    Some(b'u') => {
                        let character = self.character()?;
                        bytes.extend(character.as_bytes());
                    }
                    Some(other) => bytes.push(other),
                    None => return self.broken_off("string"),
                },
                Some(byte) => bytes.push(byte),
            }
        }
    }

    /// The character behind `\u`: characters beyond 16 bits are two numbers.
    fn character(&mut self) -> Parsed<String> {
        let first = self.code()?;
        if !(0xd800..0xe000).contains(&first) {
            return Ok(char::from_u32(u32::from(first)).map(String::from).unwrap_or_default());
        }
        let rest = &self.text[self.at..];
        if rest.len() < 6 && !self.is_end {
            return Err(Stop::More);
        }
        if rest.starts_with(b"\\u") {
            let at = self.at;
            self.at += 2;
            let second = self.code()?;
            if let Some(Ok(character)) = char::decode_utf16([first, second]).next() {
                return Ok(character.to_string());
            }
            self.at = at;
        }
        // Half of a surrogate pair is not a character; its number distinguishes it from others.
        Ok(format!("\u{fffd}{first:04x}"))
    }

    fn code(&mut self) -> Parsed<u16> {
        let digits = self.text.get(self.at..self.at + 4);
        if digits.is_none() && !self.is_end {
            return Err(Stop::More);
        }
        let is_number = |digits: &&[u8]| digits.iter().all(u8::is_ascii_hexdigit);
        let code = digits
            .filter(is_number)
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u16::from_str_radix(digits, 16).ok());
        let Some(code) = code else { return self.error("\\u without four hexadecimal digits") };
        self.at += 4;
        Ok(code)
    }

    /// The characters up to the next separator; at least one.
    fn word(&mut self) -> Parsed<&'a [u8]> {
        let start = self.at;
        // In a character, `\[`, the second byte is not a separator.
        let is_character = self.peek() == Some(b'\\');
        self.step();
        if is_character {
            self.step();
        }
        while let Some(byte) = self.peek() {
            if byte.is_ascii_whitespace() || b",;\"()[]{}".contains(&byte) {
                return Ok(&self.text[start..self.at]);
            }
            self.at += 1;
        }
        if self.is_end { Ok(&self.text[start..self.at]) } else { Err(Stop::More) }
    }

    fn atom(&mut self) -> Parsed<Value<'a>> {
        let word = self.word()?;
        if let Some(number) = integer(word) {
            return Ok(Value::Integer(number));
        }
        Ok(match word {
            b"nil" | b"null" => Value::Nil,
            [b':', rest @ ..] => Value::Keyword(rest),
            word => Value::Symbol(word),
        })
    }
}

/// A 64-bit integer; an `N` behind it means that larger ones are allowed.
fn integer(word: &[u8]) -> Option<i64> {
    let digits = word.strip_suffix(b"N").unwrap_or(word);
    let (is_negative, digits) = match digits {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        digits => (false, digits),
    };
    if digits.is_empty() || digits.len() > 19 {
        return None;
    }
    let mut number = 0i64;
    for digit in digits {
        let digit = i64::from(digit.checked_sub(b'0').filter(|digit| *digit < 10)?);
        let signed = if is_negative { -digit } else { digit };
        number = number.checked_mul(10)?.checked_add(signed)?;
    }
    Some(number)
}

//! The notation of Elle's histories: EDN and JSON, read by one small parser that knows on which line it is.
//!
//! JSON is nearly a part of EDN: commas are white space in both, and a colon behind a map's key is skipped. Symbols, keywords and strings are
//! the same to who reads the values, so it does not matter that `"type":null` could be read as a keyword.

use super::HistoryError;

/// Maps and lists in each other at most: input may be anybody's, and the parser's stack is ours.
const DEPTH_MAX: usize = 64;

/// One value.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Value {
    /// `nil`, `null`.
    Nil,
    /// A whole number of 64 bits.
    Integer(i64),
    /// A string, keyword, symbol, character, truth value or other number, as it is written (strings without quotes and escapes).
    Word(String),
    /// A list, vector or set.
    List(Vec<Value>),
    /// Keys and values in turn.
    Map(Vec<(Value, Value)>),
}

impl Value {
    /// The value of a map's key.
    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        let Value::Map(pairs) = self else { return None };
        pairs.iter().find(|(key, _)| key.word() == Some(name)).map(|(_, value)| value)
    }

    /// A string, keyword or symbol.
    pub(super) fn word(&self) -> Option<&str> {
        match self {
            Value::Word(word) => Some(word),
            _ => None,
        }
    }
}

/// Reads the operations of a history one by one.
pub(super) struct Parser<'a> {
    text: &'a [u8],
    at: usize,
    line: usize,
    /// The closing brackets of the lists that hold all operations.
    open: Vec<u8>,
}

type Read<T> = Result<T, HistoryError>;

impl<'a> Parser<'a> {
    pub(super) fn new(text: &'a [u8]) -> Self {
        // What some editors put before the first character.
        let at = if text.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
        Parser { text, at, line: 1, open: Vec::new() }
    }

    /// An error on the line where the parser stands.
    pub(super) fn error<T>(&self, what: impl Into<String>) -> Read<T> {
        Err(HistoryError::Notation { line: self.line, what: what.into() })
    }

    /// The next value that is in no list or in the outermost one, with the line on which it begins.
    pub(super) fn next_operation(&mut self) -> Read<Option<(usize, Value)>> {
        loop {
            self.skip_space()?;
            match self.peek() {
                None if self.open.is_empty() => return Ok(None),
                None => return self.error("the file ends within a list"),
                Some(byte @ (b'[' | b'(')) if self.open.is_empty() => {
                    self.open.push(if byte == b'[' { b']' } else { b')' });
                    self.at += 1;
                }
                Some(byte @ (b']' | b')' | b'}')) => {
                    if self.open.pop() != Some(byte) {
                        return self.error(format!("an unexpected {:?}", char::from(byte)));
                    }
                    self.at += 1;
                }
                Some(_) => {
                    let line = self.line;
                    return Ok(Some((line, self.value(0)?)));
                }
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
    fn skip_space(&mut self) -> Read<()> {
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

    fn value(&mut self, depth: usize) -> Read<Value> {
        if depth > DEPTH_MAX {
            return self.error("lists and maps are nested too deeply");
        }
        self.skip_space()?;
        let Some(byte) = self.peek() else { return self.error("the file ends within a value") };
        match byte {
            b'[' | b'(' => {
                self.at += 1;
                self.list(if byte == b'[' { b']' } else { b')' }, depth)
            }
            b'{' => {
                self.at += 1;
                self.map(depth)
            }
            b'"' => {
                self.at += 1;
                self.string()
            }
            b'#' if self.text.get(self.at + 1) == Some(&b'{') => {
                self.at += 2;
                self.list(b'}', depth)
            }
            // A tag, as of a record: the value behind it is what counts.
            b'#' => {
                self.at += 1;
                self.word();
                self.value(depth + 1)
            }
            b'^' => {
                self.at += 1;
                self.value(depth + 1)?;
                self.value(depth + 1)
            }
            b']' | b')' | b'}' => self.error(format!("an unexpected {:?}", char::from(byte))),
            _ => Ok(self.atom()),
        }
    }

    fn list(&mut self, end: u8, depth: usize) -> Read<Value> {
        let mut values = Vec::new();
        loop {
            self.skip_space()?;
            match self.peek() {
                Some(byte) if byte == end => {
                    self.at += 1;
                    return Ok(Value::List(values));
                }
                None => return self.error("the file ends within a list"),
                Some(_) => values.push(self.value(depth + 1)?),
            }
        }
    }

    fn map(&mut self, depth: usize) -> Read<Value> {
        let mut pairs = Vec::new();
        loop {
            self.skip_space()?;
            match self.peek() {
                Some(b'}') => {
                    self.at += 1;
                    return Ok(Value::Map(pairs));
                }
                None => return self.error("the file ends within a map"),
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

    fn string(&mut self) -> Read<Value> {
        let mut bytes = Vec::new();
        loop {
            match self.step() {
                None => return self.error("the file ends within a string"),
                Some(b'"') => return Ok(Value::Word(String::from_utf8_lossy(&bytes).into_owned())),
                Some(b'\\') => match self.step() {
                    Some(b'n') => bytes.push(b'\n'),
                    Some(b't') => bytes.push(b'\t'),
                    Some(b'r') => bytes.push(b'\r'),
                    Some(b'b') => bytes.push(8),
                    Some(b'f') => bytes.push(12),
                    Some(b'u') => {
                        let digits = self.text.get(self.at..self.at + 4);
                        let code = digits
                            .and_then(|digits| std::str::from_utf8(digits).ok())
                            .and_then(|digits| u32::from_str_radix(digits, 16).ok());
                        let Some(code) = code else {
                            return self.error("\\u without four hexadecimal digits");
                        };
                        self.at += 4;
                        // Half of a pair names no character by itself; keys of histories do not need the other half.
                        let character = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
                        bytes.extend(character.to_string().as_bytes());
                    }
                    Some(other) => bytes.push(other),
                    None => return self.error("the file ends within a string"),
                },
                Some(byte) => bytes.push(byte),
            }
        }
    }

    /// The characters up to the next separator; at least one.
    fn word(&mut self) -> &'a [u8] {
        let start = self.at;
        self.step();
        while let Some(byte) = self.peek() {
            if byte.is_ascii_whitespace() || b",;\"()[]{}".contains(&byte) {
                break;
            }
            self.at += 1;
        }
        &self.text[start..self.at]
    }

    fn atom(&mut self) -> Value {
        let word = String::from_utf8_lossy(self.word()).into_owned();
        match word.strip_prefix(':').unwrap_or(&word) {
            "nil" | "null" => Value::Nil,
            plain => match plain.strip_suffix('N').unwrap_or(plain).parse() {
                Ok(number) => Value::Integer(number),
                Err(_) => Value::Word(plain.to_owned()),
            },
        }
    }
}

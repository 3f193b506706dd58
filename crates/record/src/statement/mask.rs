//! Hides the constants of a statement, whether or not it parses.
//!
//! The lexer is conservative: a character is kept only if it is outside of a literal by every reading. Where the readings differ (a backslash in front of a
//! quote, whose meaning depends on `standard_conforming_strings`) and where a literal, a comment or a name is not closed (texts are cut at
//! `track_activity_query_size`), the rest of the text is hidden.

use crate::redact::HIDDEN;
use std::fmt::Write;

/// Stands for a number.
const NUMBER: &str = "?";
/// Stands for a string.
const STRING: &str = "'***'";
/// What PostgreSQL 18 writes for the rest of a list of constants.
pub(super) const SQUASHED: &str = "/*, ... */";

/// The statement with its strings, numbers and comments hidden. Names, keywords, signs and parameters (`$1`) stay.
pub fn mask(text: &str) -> String {
    written(text, None)
}

/// The statement with parameters in place of its constants, in one line, as `pg_stat_statements` keeps it: `WHERE id = 7 AND name = 'x'` becomes `WHERE id =
/// $1 AND name = $2`. Of a list behind IN only the first constant stays, because lists of all lengths are one statement. A text that was cut ends with the
/// same sign as in [`mask`].
pub fn parameterized(text: &str) -> String {
    let next = super::parameters(text).saturating_add(1);
    let written = written(text, Some(Parameters { next, list: List::None }));
    written.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
}

fn written(text: &str, parameters: Option<Parameters>) -> String {
    let mut output = Output { text: String::with_capacity(text.len()), parameters };
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let Some(length) = token(rest, first, &mut output) else {
            output.push_str(HIDDEN);
            break;
        };
        rest = &rest[length..];
    }
    output.text
}

/// What is written, and what becomes of constants.
struct Output {
    text: String,
    /// None: a constant is hidden. Else it becomes a parameter.
    parameters: Option<Parameters>,
}

/// The number of the next parameter, and whether it would be one of a list.
struct Parameters {
    next: usize,
    list: List,
}

/// Where the text is in `IN (1, 2, 3)`.
///
/// | state | left by |
/// |---|---|
/// | none | the word IN, to in |
/// | in | a parenthesis, to open; anything else, to none |
/// | open | a constant, to first; anything else, to none |
/// | first | a comma, to more; anything else, to none |
/// | more: constants and commas are left out | anything else, to none |
#[derive(Clone, Copy, PartialEq)]
enum List {
    None,
    In,
    Open,
    First,
    More,
}

impl Output {
    /// Writes what is no constant.
    fn push_str(&mut self, text: &str) {
        if let Some(parameters) = &mut self.parameters {
            let is_space = text.chars().all(char::is_whitespace);
            parameters.list = match (parameters.list, text) {
                (list, _) if is_space => list,
                (List::None, word) if word.eq_ignore_ascii_case("in") => List::In,
                (List::In, "(") => List::Open,
                (List::First, ",") => {
                    self.text.push(' ');
                    self.text.push_str(SQUASHED);
                    List::More
                }
                (List::More, ",") => List::More,
                _ => List::None,
            };
            if parameters.list == List::More {
                return;
            }
        }
        self.text.push_str(text);
    }

    fn push(&mut self, c: char) {
        self.push_str(c.encode_utf8(&mut [0; 4]));
    }

    /// Writes a parameter of the text itself. A list of them stays as it is: a gap in their numbers could not be planned.
    fn parameter(&mut self, text: &str) {
        if let Some(parameters) = &mut self.parameters {
            parameters.list = List::None;
        }
        self.text.push_str(text);
    }

    /// Writes a constant, which `hidden` stands for. Letters in front of its quote belong to it.
    fn constant(&mut self, letters: &str, hidden: &str) {
        let Some(parameters) = &mut self.parameters else {
            self.text.push_str(letters);
            self.text.push_str(hidden);
            return;
        };
        match parameters.list {
            List::More => return,
            List::Open => parameters.list = List::First,
            _ => parameters.list = List::None,
        }
        let _ = write!(self.text, "${}", parameters.next);
        parameters.next += 1;
    }
}

/// Writes the token at the beginning of `rest`. Returns its length in bytes; `None` if the rest of the text must be hidden.
fn token(rest: &str, first: char, output: &mut Output) -> Option<usize> {
    if is_name_start(first) {
        return word(rest, output);
    }
    match first {
        '\'' => string(rest, "", false, output),
        '"' => {
            let length = quoted_length(rest)?;
            output.push_str(&rest[..length]);
            Some(length)
        }
        '$' => dollar(rest, output),
        _ if starts_number(rest) => {
            output.constant("", NUMBER);
            Some(rest.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '.')).unwrap_or(rest.len()))
        }
        '-' if rest.starts_with("--") => {
            output.push(' ');
            // A comment ends with its line: a text in one line may have lost the end.
            rest.find(['\n', '\r'])
        }
        '/' if rest.starts_with(SQUASHED) => {
            output.push_str(SQUASHED);
            Some(SQUASHED.len())
        }
        '/' if rest.starts_with("/*") => {
            output.push(' ');
            comment(rest)
        }
        _ => {
            output.push(first);
            Some(first.len_utf8())
        }
    }
}

/// The server takes every character above ASCII for a letter.
pub(super) fn is_name_start(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_' || !c.is_ascii()
}

/// Length of the name without quotes, or the keyword, that a text begins with.
pub(super) fn name_length(text: &str) -> usize {
    let is_part = |c: char| is_name_start(c) || c.is_ascii_digit() || c == '$';
    text.find(|c: char| !is_part(c)).unwrap_or(text.len())
}

fn starts_number(text: &str) -> bool {
    let mut bytes = text.bytes();
    match bytes.next() {
        Some(byte) if byte.is_ascii_digit() => true,
        Some(b'.') => bytes.next().is_some_and(|byte| byte.is_ascii_digit()),
        _ => false,
    }
}

/// A keyword or name, or a string with letters in front (`E'...'`, `U&'...'`, `X'...'`).
fn word(rest: &str, output: &mut Output) -> Option<usize> {
    let length = name_length(rest);
    let (name, after) = rest.split_at(length);
    if after.starts_with('\'') {
        let is_letter = ["e", "b", "x", "n"].iter().any(|letter| name.eq_ignore_ascii_case(letter));
        if !is_letter {
            output.push_str(name);
        }
        let letters = if is_letter { name } else { "" };
        return Some(length + string(after, letters, name.eq_ignore_ascii_case("e"), output)?);
    }
    if name.eq_ignore_ascii_case("u") && after.starts_with("&'") {
        return Some(length + 1 + string(&after[1..], &rest[..=length], false, output)?);
    }
    output.push_str(name);
    Some(length)
}

/// `'...'`, with the letters in front of it. With `escapes`, a backslash hides the next character; without, one in front of a quote leaves the end of the
/// string open.
fn string(text: &str, letters: &str, escapes: bool, output: &mut Output) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = 1;
    let mut backslashes = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => backslashes += 1,
            b'\'' if backslashes % 2 == 1 => {
                if !escapes {
                    return open_string(letters, output);
                }
                backslashes = 0;
            }
            b'\'' if bytes.get(at + 1) == Some(&b'\'') => {
                at += 1;
                backslashes = 0;
            }
            b'\'' => {
                output.constant(letters, STRING);
                return Some(at + 1);
            }
            _ => backslashes = 0,
        }
        at += 1;
    }
    open_string(letters, output)
}

/// The end of the string is not known: all of the rest is hidden.
fn open_string(letters: &str, output: &mut Output) -> Option<usize> {
    output.push_str(letters);
    output.push('\'');
    None
}

/// Length of the name in quotes that a text begins with, with its quotes; `None` if it is not closed.
pub(super) fn quoted_length(text: &str) -> Option<usize> {
    let mut at = 1;
    loop {
        at += text[at..].find('"')? + 1;
        if !text[at..].starts_with('"') {
            return Some(at);
        }
        at += 1;
    }
}

/// The name between two quotes.
pub(super) fn unquoted(inside: &str) -> String {
    inside.replace("\"\"", "\"")
}

/// `$1`, or `$tag$...$tag$`.
fn dollar(text: &str, output: &mut Output) -> Option<usize> {
    let digits = text[1..].bytes().take_while(u8::is_ascii_digit).count();
    if digits > 0 {
        output.parameter(&text[..=digits]);
        return Some(1 + digits);
    }
    let is_part = |c: char| is_name_start(c) || c.is_ascii_digit();
    let end = 1 + text[1..].find(|c: char| !is_part(c)).unwrap_or(text.len() - 1);
    if !text[end..].starts_with('$') {
        output.push('$');
        return Some(1);
    }
    let tag = &text[..=end];
    let length = text[tag.len()..].find(tag)?;
    output.constant("", STRING);
    Some(tag.len() + length + tag.len())
}

/// Length of a comment with those inside of it; `None` if it is not closed.
fn comment(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let (mut at, mut depth) = (2, 1_u64);
    while at + 1 < bytes.len() {
        match &bytes[at..at + 2] {
            b"/*" => depth += 1,
            b"*/" => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

//! Hides the constants of a statement, whether or not it parses.
//!
//! The lexer is conservative: a character is kept only if it is outside of a literal by every reading. Where the readings differ (a backslash in front of a
//! quote, whose meaning depends on `standard_conforming_strings`) and where a literal, a comment or a name is not closed (texts are cut at
//! `track_activity_query_size`), the rest of the text is hidden.

use crate::redact::HIDDEN;

/// Stands for a number.
const NUMBER: char = '?';
/// What PostgreSQL 18 writes for the rest of a list of constants.
pub(super) const SQUASHED: &str = "/*, ... */";

/// The statement with its strings, numbers and comments hidden. Names, keywords, signs and parameters (`$1`) stay.
pub fn mask(text: &str) -> String {
    let mut output = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let Some(length) = token(rest, first, &mut output) else {
            output.push_str(HIDDEN);
            return output;
        };
        rest = &rest[length..];
    }
    output
}

/// Writes the token at the beginning of `rest`. Returns its length in bytes; `None` if the rest of the text must be hidden.
fn token(rest: &str, first: char, output: &mut String) -> Option<usize> {
    if is_name_start(first) {
        return word(rest, output);
    }
    match first {
        '\'' => string(rest, false, output),
        '"' => {
            let length = quoted_name(rest)?;
            output.push_str(&rest[..length]);
            Some(length)
        }
        '$' => dollar(rest, output),
        _ if starts_number(rest) => {
            output.push(NUMBER);
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

fn starts_number(text: &str) -> bool {
    let mut bytes = text.bytes();
    match bytes.next() {
        Some(byte) if byte.is_ascii_digit() => true,
        Some(b'.') => bytes.next().is_some_and(|byte| byte.is_ascii_digit()),
        _ => false,
    }
}

/// A keyword or name, or a string with letters in front (`E'...'`, `U&'...'`, `X'...'`).
fn word(rest: &str, output: &mut String) -> Option<usize> {
    let is_part = |c: char| is_name_start(c) || c.is_ascii_digit() || c == '$';
    let length = rest.find(|c: char| !is_part(c)).unwrap_or(rest.len());
    let (name, after) = rest.split_at(length);
    output.push_str(name);
    if after.starts_with('\'') {
        return Some(length + string(after, name.eq_ignore_ascii_case("e"), output)?);
    }
    if name.eq_ignore_ascii_case("u") && after.starts_with("&'") {
        output.push('&');
        return Some(length + 1 + string(&after[1..], false, output)?);
    }
    Some(length)
}

/// `'...'`. With `escapes`, a backslash hides the next character; without, one in front of a quote leaves the end of the string open.
fn string(text: &str, escapes: bool, output: &mut String) -> Option<usize> {
    output.push('\'');
    let bytes = text.as_bytes();
    let mut at = 1;
    let mut backslashes = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => backslashes += 1,
            b'\'' if backslashes % 2 == 1 => {
                if !escapes {
                    return None;
                }
                backslashes = 0;
            }
            b'\'' if bytes.get(at + 1) == Some(&b'\'') => {
                at += 1;
                backslashes = 0;
            }
            b'\'' => {
                output.push_str(HIDDEN);
                output.push('\'');
                return Some(at + 1);
            }
            _ => backslashes = 0,
        }
        at += 1;
    }
    None
}

/// Length of `"..."`; `None` if it is not closed.
fn quoted_name(text: &str) -> Option<usize> {
    let mut at = 1;
    loop {
        at += text[at..].find('"')? + 1;
        if !text[at..].starts_with('"') {
            return Some(at);
        }
        at += 1;
    }
}

/// `$1`, or `$tag$...$tag$`.
fn dollar(text: &str, output: &mut String) -> Option<usize> {
    let digits = text[1..].bytes().take_while(u8::is_ascii_digit).count();
    if digits > 0 {
        output.push_str(&text[..=digits]);
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
    output.push('\'');
    output.push_str(HIDDEN);
    output.push('\'');
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

//! Passwords and verifiers in SQL, in the server's log and in files of passwords.
//!
//! What follows the word is hidden whatever it is quoted with, to the end of the text where the quote is not closed: `pg_stat_activity`
//! cuts long statements, and half a password is too much. Rather too much is hidden than too little.

use super::{HIDDEN, is_secret_name};
use std::borrow::Cow;

/// Verifiers as `pg_authid` holds them: what they begin with.
const SCRAM: &str = "SCRAM-SHA-256$";
const MD5: &str = "md5";
/// Digits of an MD5 verifier.
const MD5_DIGITS: usize = 32;
/// Fields of a line of a file of passwords.
const PASSFILE_FIELDS: usize = 5;

/// Whether a text is worth a closer look. Every line of a recording passes here, so it is one pass over its bytes.
pub(super) fn may_hold(text: &[u8]) -> bool {
    let is = |at: usize, word: &[u8]| {
        text.get(at..at + word.len()).is_some_and(|found| found.eq_ignore_ascii_case(word))
    };
    text.iter().enumerate().any(|(at, byte)| match byte {
        b'p' | b'P' => is(at, b"pass") || is(at, b"pwd"),
        b's' | b'S' => is(at, b"secret") || is(at, b"scram"),
        b'm' | b'M' => is(at, MD5.as_bytes()),
        b':' => {
            let digits =
                text[at + 1..].iter().take_while(|byte| byte.is_ascii_digit() || **byte == b'*').count();
            is(at, b"://") || (digits > 0 && text.get(at + 1 + digits) == Some(&b':'))
        }
        _ => false,
    })
}

/// Hides what stands behind the word `password` and its like in SQL: `PASSWORD 'x'`, `password E'x'`, `PASSWORD $$x$$`, `OPTIONS (password 'x')`.
pub(super) fn hide_literals(input: &str) -> String {
    let mut output = String::with_capacity(input.len());
    let mut rest = input;
    while let Some((name, tail)) = next_secret_name(rest) {
        let (before, _) = rest.split_at(name.end);
        output.push_str(before);
        rest = tail;
        let gap = gap(rest);
        let Some(length) = literal(&rest[gap..]) else { continue };
        output.push_str(&rest[..gap]);
        output.push('\'');
        output.push_str(HIDDEN);
        output.push('\'');
        rest = &rest[gap + length + continued(&rest[gap + length..])..];
    }
    output + rest
}

/// Length of the pieces that a literal goes on with: SQL joins literals between which a line ends. Where that is unknown, on one line
/// of a list or in a text whose ends of lines are escaped, too much is hidden.
fn continued(text: &str) -> usize {
    let mut length = 0;
    loop {
        let rest = &text[length..];
        let gap = line_gap(rest);
        let is_piece = gap > 0 && rest[gap..].starts_with(['\'', '"', '\\']);
        match literal(&rest[gap..]).filter(|_| is_piece) {
            Some(piece) => length += gap + piece,
            None => return length,
        }
    }
}

/// Length of white space and comments, if a line ends in them.
fn line_gap(text: &str) -> usize {
    let mut rest = text;
    let mut ends_line = false;
    loop {
        let trimmed = rest.trim_start_matches(|c: char| {
            ends_line |= matches!(c, '\n' | '\r');
            c.is_whitespace()
        });
        let escaped = ["\\\\n", "\\\\r", "\\n", "\\r", "\\\\t", "\\t", "#012", "#011", "#015"];
        rest = if let Some(sign) = escaped.iter().find(|sign| trimmed.starts_with(**sign)) {
            ends_line |= !sign.ends_with('t') && *sign != "#011";
            &trimmed[sign.len()..]
        } else if let Some(comment) = trimmed.strip_prefix("--") {
            comment.find(['\n', '\r']).or_else(|| comment.find("\\n")).map_or("", |end| &comment[end..])
        } else if let Some(comment) = trimmed.strip_prefix("/*") {
            ends_line |= comment.find("*/").is_some_and(|end| comment[..end].contains('\n'));
            comment.find("*/").map_or("", |end| &comment[end + 2..])
        } else {
            return if ends_line { text.len() - trimmed.len() } else { 0 };
        };
    }
}

/// The next word that names a secret, and what follows it and the quote around it.
fn next_secret_name(text: &str) -> Option<(std::ops::Range<usize>, &str)> {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-' || byte >= 0x80;
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        if !is_part(bytes[at]) {
            at += 1;
            continue;
        }
        let length = bytes[at..].iter().position(|byte| !is_part(*byte)).unwrap_or(bytes.len() - at);
        let end = at + length;
        // Bytes above 0x7f are parts of words, so both ends lie between characters.
        if is_secret_name(text[at..end].trim_start_matches('-')) {
            let end = end + usize::from(bytes.get(end) == Some(&b'"'));
            return Some((at..end, &text[end..]));
        }
        at = end;
    }
    None
}

/// Length of white space, comments and signs of assignment between a word and its value.
fn gap(text: &str) -> usize {
    let mut rest = text;
    let mut signs = [":=", "=>", ":", "="].as_slice();
    loop {
        let trimmed = rest.trim_start();
        rest = if let Some(comment) = trimmed.strip_prefix("--") {
            comment.find('\n').map_or("", |end| &comment[end..])
        } else if let Some(comment) = trimmed.strip_prefix("/*") {
            comment.find("*/").map_or("", |end| &comment[end + 2..])
        } else if let Some(after) = signs.iter().find_map(|sign| trimmed.strip_prefix(sign)) {
            signs = &[];
            after
        } else {
            return text.len() - trimmed.len();
        };
    }
}

/// Length of a literal at the beginning of a text, to its end if it is not closed; `None` if there is none.
pub(super) fn literal(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let prefix = match bytes {
        [b'e' | b'E' | b'n' | b'N' | b'b' | b'B' | b'x' | b'X', b'\'', ..] => 1,
        [b'u' | b'U', b'&', b'\'', ..] => 2,
        // In a string that is itself escaped: `\'x\'`.
        [b'\\', b'\'' | b'"', ..] => 1,
        _ => 0,
    };
    let body = &text[prefix..];
    match body.as_bytes().first()? {
        quote @ (b'\'' | b'"') => Some(prefix + quoted(body, *quote)),
        b'$' => dollar_quoted(body),
        _ => None,
    }
}

/// Length of what stands between quotes. A doubled quote is one in the text, unless the literal began with two and more follows: then it
/// stands inside of another literal, where every quote is doubled.
fn quoted(text: &str, quote: u8) -> usize {
    let bytes = text.as_bytes();
    let run = |at: usize| bytes[at..].iter().take_while(|byte| **byte == quote).count();
    let opening = run(0);
    if opening % 2 == 0 {
        // What ends an empty literal may also begin a password; a second doubled quote further on leaves that open, and then it is hidden.
        let goes_on =
            bytes.get(opening).is_some_and(|byte| !byte.is_ascii_whitespace() && !b";,)".contains(byte));
        if !goes_on && !(opening..bytes.len()).any(|at| run(at) >= 2) {
            return opening;
        }
    }
    let mut at = opening;
    while at < bytes.len() {
        match bytes[at] {
            // Whether a backslash escapes depends on a setting and on a prefix; if it does not, more is hidden than need be.
            b'\\' => at += 2,
            byte if byte == quote => {
                let closing = run(at);
                at += closing;
                let closes = if opening % 2 == 0 { closing >= 2 } else { closing % 2 == 1 };
                if closes {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    text.len()
}

/// Length of `$tag$...$tag$`; `None` for a parameter (`$1`) and anything else.
fn dollar_quoted(text: &str) -> Option<usize> {
    let tag_end = 1 + text[1..].find('$')?;
    let tag = &text[..=tag_end];
    let inner = &tag[1..tag_end];
    let is_name = inner.chars().all(|c| c.is_alphanumeric() || c == '_');
    if !is_name || inner.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let body = &text[tag.len()..];
    Some(body.find(tag).map_or(text.len(), |end| tag.len() + end + tag.len()))
}

/// Hides verifiers: `md5` with its digits, and `SCRAM-SHA-256$...`.
pub(super) fn hide_verifiers(input: &str) -> String {
    let mut output = String::with_capacity(input.len());
    let mut rest = input;
    let is_word = |c: char| c.is_ascii_alphanumeric();
    while let Some(at) = rest.find(['m', 'M', 'S', 's']) {
        let (before, from) = rest.split_at(at);
        output.push_str(before);
        let starts = !output.ends_with(is_word);
        let has = |word: &str| from.get(..word.len()).is_some_and(|text| text.eq_ignore_ascii_case(word));
        let taken = if starts && has(SCRAM) {
            output.push_str(&from[..SCRAM.len()]);
            let end =
                from.find(|c: char| c.is_whitespace() || matches!(c, '\'' | '"' | ',' | ')' | ';' | '\\'));
            output.push_str(HIDDEN);
            end.unwrap_or(from.len())
        } else if starts && has(MD5) && is_md5(&from[MD5.len()..]) {
            output.push_str(&from[..MD5.len()]);
            output.push_str(HIDDEN);
            MD5.len() + MD5_DIGITS
        } else {
            output.push_str(&from[..1]);
            1
        };
        rest = &from[taken..];
    }
    output + rest
}

fn is_md5(digits: &str) -> bool {
    let length = digits.bytes().take_while(u8::is_ascii_hexdigit).count();
    length == MD5_DIGITS && !digits[length..].starts_with(|c: char| c.is_alphanumeric())
}

/// Hides the last field of `host:port:database:user:password`.
pub(super) fn hide_passfile(input: &str) -> Cow<'_, str> {
    if !input.split_whitespace().any(is_passfile_line) {
        return Cow::Borrowed(input);
    }
    let mut output = String::with_capacity(input.len());
    for word in input.split_inclusive(char::is_whitespace) {
        let line = word.trim_end();
        match is_passfile_line(line) {
            true => {
                let end = fields(line).nth(PASSFILE_FIELDS - 1).map_or(line.len(), |(start, _)| start);
                output.push_str(&line[..end]);
                output.push_str(HIDDEN);
                output.push_str(&word[line.len()..]);
            }
            false => output.push_str(word),
        }
    }
    Cow::Owned(output)
}

/// The fields of a line with the places where they begin; a colon behind a backslash is part of a field.
fn fields(line: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut starts = vec![0];
    let mut escaped = false;
    for (at, c) in line.char_indices() {
        if c == ':' && !escaped {
            starts.push(at + 1);
        }
        escaped = c == '\\' && !escaped;
    }
    let ends: Vec<usize> = starts.iter().skip(1).map(|start| start - 1).chain([line.len()]).collect();
    starts.into_iter().zip(ends).map(move |(start, end)| (start, &line[start..end]))
}

/// Whether a word is a line of a file of passwords, and neither an address nor a time.
fn is_passfile_line(word: &str) -> bool {
    /// Of a port.
    const DIGITS_MAX: usize = 5;
    if word.bytes().filter(|byte| *byte == b':').count() < PASSFILE_FIELDS - 1 || word.contains("://") {
        return false;
    }
    let found: Vec<&str> = fields(word).map(|(_, field)| field).collect();
    let Some([host, port, database, user]) = found.first_chunk::<4>() else { return false };
    let is_port = *port == "*"
        || ((2..=DIGITS_MAX).contains(&port.len()) && port.bytes().all(|byte| byte.is_ascii_digit()));
    let is_hex = |field: &&str| field.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_address = [host, database, user].into_iter().all(is_hex);
    found.len() >= PASSFILE_FIELDS
        && is_port
        && !is_address
        && ![host, database, user].iter().any(|f| f.is_empty())
        && !found[PASSFILE_FIELDS - 1].is_empty()
}

//! `key=value` connection strings (`conninfo_parse` in `fe-connect.c`).

use super::ConninfoError;

/// The pairs in their order; a later one overrides an earlier one of the same name.
pub(super) fn parse(text: &str) -> Result<Vec<(String, String)>, ConninfoError> {
    let mut pairs = Vec::new();
    let mut rest = text.trim_start_matches(blank);
    while !rest.is_empty() {
        let end = rest.find(|c| c == '=' || blank(c)).unwrap_or(rest.len());
        let name = &rest[..end];
        let after = rest[end..].trim_start_matches(blank);
        let Some(value) = after.strip_prefix('=') else {
            // The word itself is not shown: it may be the second half of a password that lacks its quotes.
            let at = text[..text.len() - rest.len()].chars().count() + 1;
            return Err(ConninfoError::KeyValueSyntax(format!(
                "missing \"=\" after the word at character {at}"
            )));
        };
        if name.is_empty() {
            return Err(ConninfoError::KeyValueSyntax("missing parameter name before \"=\"".to_owned()));
        }
        let (value, after) = parse_value(value.trim_start_matches(blank))?;
        pairs.push((name.to_owned(), value));
        rest = after.trim_start_matches(blank);
    }
    Ok(pairs)
}

/// One value, quoted or bare, and the rest of the text. A backslash makes the next character literal.
fn parse_value(text: &str) -> Result<(String, &str), ConninfoError> {
    let quoted = text.starts_with('\'');
    let text = if quoted { &text[1..] } else { text };
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => value.extend(chars.next().map(|(_, escaped)| escaped)),
            '\'' if quoted => return Ok((value, &text[at + 1..])),
            c if !quoted && blank(c) => return Ok((value, &text[at..])),
            c => value.push(c),
        }
    }
    if quoted {
        return Err(ConninfoError::KeyValueSyntax("unterminated quoted string".to_owned()));
    }
    Ok((value, ""))
}

/// C's `isspace` in the C locale.
pub(super) fn blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c')
}

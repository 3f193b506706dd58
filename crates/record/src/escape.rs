//! Text from outside, made safe for a terminal and a page.
//!
//! The name of a table may contain an escape sequence, a server's message may move the cursor, and a name may reverse the writing direction:
//! none of that may take effect on output. Such characters are shown by their number, in the form in which JSON writes them, so that JSON
//! stays the same JSON.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Whether a character acts on a terminal or on the text around it, where it should only be seen. Line feeds and tabs are left to the
/// layout of the text.
pub fn is_active(c: char) -> bool {
    match c {
        '\n' | '\t' => false,
        // Marks, embeddings, overrides and isolates of direction; separators of lines and paragraphs.
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        // A byte order mark in the middle of a text is invisible.
        '\u{feff}' => true,
        c => c.is_control(),
    }
}

/// The text with every active character as `\u001b`.
pub fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(is_active) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_active(c) {
            let _ = write!(out, "\\u{:04x}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// All in one line, and no longer than `most` characters; what was cut ends with an ellipsis.
pub fn one_line(text: &str, most: usize) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

/// For terminals: ASCII without control characters, in one line. Letters of other scripts stay, because names are written with them.
pub fn ascii(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            'µ' => out.push('u'),
            '–' | '—' => out.push('-'),
            '…' => out.push_str("..."),
            '×' => out.push('x'),
            plain if plain.is_ascii() && !plain.is_ascii_control() => out.push(plain),
            letter if letter.is_alphanumeric() => out.push(letter),
            '\n' | '\t' => out.push(' '),
            _ => out.push('?'),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_act_on_a_terminal_is_seen_instead() {
        for (text, expected) in [
            ("plain text, \u{e4}\u{1f4a9}\n\tindented", "plain text, \u{e4}\u{1f4a9}\n\tindented"),
            ("\u{1b}[2J\u{1b}]0;title\u{7}", "\\u001b[2J\\u001b]0;title\\u0007"),
            ("over\rwritten\u{8}", "over\\u000dwritten\\u0008"),
            ("\u{9b}31m", "\\u009b31m"),
            ("a\u{202e}b\u{2066}c\u{200f}", "a\\u202eb\\u2066c\\u200f"),
            ("\u{7f}\0", "\\u007f\\u0000"),
        ] {
            assert_eq!(visible(text), expected);
        }
    }

    #[test]
    fn json_stays_the_same_json() {
        let value = serde_json::json!({"name": "\u{9b}31m \u{202e} \u{1b}[0m \u{7f}"});
        let text = serde_json::to_string_pretty(&value).expect("has a form");
        let shown = visible(&text);
        assert!(!shown.contains(is_active));
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).expect("JSON"), value);
    }

    #[test]
    fn foreign_text_stays_in_its_line_and_cannot_steer_a_terminal() {
        assert_eq!(one_line("select\n  1", 20), "select 1");
        assert_eq!(one_line("sélect 1", 3), "sél…");
        assert_eq!(ascii(&one_line("a b c d", 3)), "a b...");
        assert_eq!(ascii("w-é, узел 1, ノード \u{1f4a9}"), "w-é, узел 1, ノード ?");
        assert_eq!(ascii("12 µs – \u{1b}[31m\u{7f}\u{9b}2J"), "12 us - ?[31m??2J");
    }
}

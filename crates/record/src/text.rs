//! Text that a server or a kernel has written, made fit for a line of ours: it may hold anything.

/// All in one line, and no longer than `most` characters; what was cut ends with an ellipsis.
pub fn one_line(text: &str, most: usize) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

/// For terminals: ASCII without control characters, in one line.
pub fn ascii(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            'µ' => out.push('u'),
            '–' | '—' => out.push('-'),
            '…' => out.push_str("..."),
            '×' => out.push('x'),
            plain if plain.is_ascii() && !plain.is_ascii_control() => out.push(plain),
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
    fn foreign_text_stays_in_its_line_and_cannot_steer_a_terminal() {
        assert_eq!(one_line("select\n  1", 20), "select 1");
        assert_eq!(one_line("sélect 1", 3), "sél…");
        assert_eq!(ascii(&one_line("a b c d", 3)), "a b...");
        assert_eq!(ascii("12 µs – \u{1b}[31m\u{7f}\u{9b}2J"), "12 us - ?[31m??2J");
    }
}

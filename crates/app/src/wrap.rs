//! Lines for a terminal that is narrower than they are: broken between words, and continued under their text.

/// The least width at which lines are broken: below, hardly a word fits.
const WIDTH_MIN: usize = 20;
/// How much further a continued line is indented than the line itself.
const CONTINUED: usize = 2;

/// The text with no line longer than `width` characters, as far as words allow; as it is without a width. What is to be copied stays whole: documents, and
/// lines that are a command.
pub fn wrapped(text: &str, width: Option<usize>) -> String {
    let Some(width) = width else { return text.to_string() };
    if width < WIDTH_MIN
        || text.starts_with(['{', '['])
        || text.lines().all(|line| line.chars().count() <= width)
    {
        return text.to_string();
    }
    let mut out = String::with_capacity(text.len() + text.len() / width);
    for (at, line) in text.split('\n').enumerate() {
        if at > 0 {
            out.push('\n');
        }
        match line.chars().count() > width && !is_command(line) {
            true => fold(&mut out, line, width),
            false => out.push_str(line),
        }
    }
    out
}

/// Whether a line is something to type: a shell line or a statement.
fn is_command(line: &str) -> bool {
    let text = line.trim();
    text.starts_with("$ ") || text.ends_with(';') || text.contains("; --")
}

fn fold(out: &mut String, line: &str, width: usize) {
    let indent = line.chars().take_while(|c| *c == ' ').count();
    let continued = " ".repeat((indent + CONTINUED).min(width / 2));
    let (mut used, mut has_word) = (0, false);
    // Spaces between words are kept as they are: they separate the fields of a result.
    for piece in line.split_inclusive(' ') {
        let length = piece.trim_end().chars().count();
        if used + length > width && has_word && length > 0 {
            out.truncate(out.trim_end_matches(' ').len());
            out.push('\n');
            out.push_str(&continued);
            used = continued.len();
        }
        out.push_str(piece);
        used += piece.chars().count();
        has_word |= length > 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_between_words_and_continued_under_their_text() {
        let text = "note   the sessions of a run that wait for a pool\n  run   short";
        assert_eq!(wrapped(text, Some(100)), text);
        assert_eq!(
            wrapped(text, Some(24)),
            "note   the sessions of a\n  run that wait for a\n  pool\n  run   short"
        );
        for width in 20..60 {
            let folded = wrapped(text, Some(width));
            assert!(folded.lines().all(|line| line.chars().count() <= width), "{width}: {folded}");
            assert_eq!(
                folded.split_whitespace().collect::<Vec<_>>(),
                text.split_whitespace().collect::<Vec<_>>()
            );
        }
    }

    #[test]
    fn what_is_copied_stays_whole() {
        for text in [
            "    CREATE INDEX CONCURRENTLY ON orders (customer);",
            "    $ pgfathom load ycsb --rows 3k --restart",
            "{\"verb\": \"verify\", \"rows\": 3000, \"differences\": 0}",
        ] {
            assert_eq!(wrapped(text, Some(20)), text);
        }
        // A word that does not fit is not cut.
        assert_eq!(
            wrapped("a /tmp/a/very/long/path/to/a/file b", Some(20)),
            "a\n  /tmp/a/very/long/path/to/a/file\n  b"
        );
    }
}

//! What the keywords of a statement show before it is sent: whether it rolls back, whether it copies.
//!
//! Only words outside of quotes, comments and parentheses count. A variable can stand for any word.

use super::scan::Piece;

/// What is known of a statement's commands; `\;` joins several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Commands {
    /// Commands that end as `ROLLBACK` when they do what they say, or may.
    pub(super) rollbacks: u32,
    /// The first command that copies rows from or to the client: how it reports it.
    pub(super) copy: Option<&'static str>,
}

/// Reads the commands of a statement of `source`.
pub(super) fn commands(source: &str, pieces: &[Piece]) -> Commands {
    let mut reported = Commands::default();
    let mut command = Command::default();
    // Quotes and comments can hold variables and go on behind them: the text is read as one.
    let mut text = String::new();
    for piece in pieces {
        match piece {
            Piece::Text(span) => {
                text.push_str(source.get(span.start as usize..span.end as usize).unwrap_or(""));
            }
            Piece::Escaped(';') => {
                command.read(&text);
                text.clear();
                std::mem::take(&mut command).end(&mut reported);
            }
            Piece::Escaped(character) => text.push(*character),
            Piece::Variable { .. } => text.push(VARIABLE),
        }
    }
    command.read(&text);
    command.end(&mut reported);
    reported
}

/// Stands for a variable: no script has it, a NUL byte is refused.
const VARIABLE: char = '\0';

/// One command, as far as it was read.
#[derive(Debug, Default)]
struct Command {
    first: Option<First>,
    copy: Option<&'static str>,
}

/// How a command begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    /// With ROLLBACK or ABORT, or with a variable, which may be that.
    MayRollBack,
    Copy,
    Other,
}

impl Command {
    fn read(&mut self, text: &str) {
        let mut depth = 0_u32;
        let mut direction = "";
        let mut rest = text;
        while let Some(next) = rest.chars().next() {
            let skipped = skipped(rest);
            if skipped > 0 {
                // Space and comments stand between words that belong together, quotes do not.
                if !next.is_whitespace() && !rest.starts_with("--") && !rest.starts_with("/*") {
                    direction = "";
                    self.first.get_or_insert(First::Other);
                }
                rest = &rest[skipped..];
                continue;
            }
            let word: &str = {
                let end =
                    rest.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '$')).unwrap_or(rest.len());
                &rest[..end]
            };
            let is = |other: &str| word.eq_ignore_ascii_case(other);
            let first = *self.first.get_or_insert(match () {
                () if next == VARIABLE || is("rollback") || is("abort") => First::MayRollBack,
                () if is("copy") => First::Copy,
                () => First::Other,
            });
            if first != First::Copy {
                return;
            }
            match next {
                '(' => depth += 1,
                ')' => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth == 0 && (is("stdin") || is("stdout")) {
                match direction {
                    "from" => self.copy = self.copy.or(Some("COPY FROM STDIN")),
                    "to" => self.copy = self.copy.or(Some("COPY TO STDOUT")),
                    _ => {}
                }
            }
            direction = ["from", "to"].into_iter().find(|direction| is(direction)).unwrap_or("");
            rest = &rest[word.len().max(next.len_utf8())..];
        }
    }

    fn end(self, reported: &mut Commands) {
        reported.rollbacks += u32::from(self.first == Some(First::MayRollBack));
        reported.copy = reported.copy.or(self.copy);
    }
}

/// How many bytes of space, comment or quoted text `text` begins with. A quote that never ends goes to the end; the scanner has refused it.
fn skipped(text: &str) -> usize {
    let through =
        |from: usize, end: &str| text[from..].find(end).map_or(text.len(), |at| from + at + end.len());
    let bytes = text.as_bytes();
    match bytes {
        [b'-', b'-', ..] => through(2, "\n"),
        [b'/', b'*', ..] => comment(text),
        [b'\'', ..] => quoted(bytes, 1, b'\'', false),
        [b'e' | b'E', b'\'', ..] => quoted(bytes, 2, b'\'', true),
        [b'"', ..] => quoted(bytes, 1, b'"', false),
        [b'$', ..] => {
            let tag =
                text[1..].find(|c: char| !(c.is_alphanumeric() || c == '_')).map_or(text.len(), |at| at + 1);
            let is_tag = bytes.get(tag) == Some(&b'$') && !bytes[1].is_ascii_digit();
            if is_tag { through(tag + 1, &text[..=tag]) } else { 0 }
        }
        _ => text.chars().next().filter(|c| c.is_whitespace()).map_or(0, char::len_utf8),
    }
}

fn comment(text: &str) -> usize {
    let (bytes, mut at, mut depth) = (text.as_bytes(), 0, 0_u32);
    while at < bytes.len() {
        match (bytes[at], bytes.get(at + 1)) {
            (b'/', Some(b'*')) => (depth, at) = (depth + 1, at + 2),
            (b'*', Some(b'/')) => {
                (depth, at) = (depth - 1, at + 2);
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    text.len()
}

fn quoted(bytes: &[u8], opening: usize, quote: u8, escapes: bool) -> usize {
    let mut at = opening;
    while at < bytes.len() {
        match bytes[at] {
            byte if byte == quote && bytes.get(at + 1) == Some(&quote) => at += 2,
            byte if byte == quote => return at + 1,
            b'\\' if escapes => at += 2,
            _ => at += 1,
        }
    }
    bytes.len()
}

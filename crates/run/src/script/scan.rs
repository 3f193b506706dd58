//! Finds where an SQL statement of a script ends and where its variables stand.
//!
//! The rules are psql's scanner's, which pgbench uses: quotes (with escapes in `E''` only), dollar quotes, nested block comments,
//! parentheses and the bodies of `CREATE FUNCTION ... BEGIN ... END` hide a semicolon; a backslash outside quotes begins a meta
//! command, except `\;`, which joins statements, and `\:`, which is a plain colon.

use super::error::{Problem, Span};
use super::expression::Misplaced;
use super::names::{continues_name, starts_name};

/// Where in a statement a variable stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Where an expression may stand: a parameter in the extended and prepared modes.
    Bare,
    /// Between square brackets, where `[1:n]` is a slice: a variable only if there is one of that name.
    Bracket,
    /// Inside quotes: text substitution, in the simple mode only.
    Quoted(&'static str),
}

/// A stretch of a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Text(Span),
    /// `;` of a `\;`, or `:` of a `\:`.
    Escaped(char),
    /// `:name`; the span includes the colon.
    Variable {
        span: Span,
        place: Place,
    },
}

/// How a statement ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Semicolon,
    /// At a backslash, which is not consumed.
    MetaCommand,
    EndOfText,
}

/// A scanned statement; no pieces where there was only space and comments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Scanned {
    pub(super) pieces: Vec<Piece>,
    pub(super) ending: Ending,
    /// Where scanning goes on.
    pub(super) next: usize,
    /// Whether `\;` joins several statements.
    pub(super) joined: bool,
    /// From the first to behind the last byte of the statement.
    pub(super) span: Span,
}

/// Scans from `at` to the end of the statement there.
pub(super) fn statement(source: &str, at: usize) -> Result<Scanned, Misplaced> {
    let start = skip_insignificant(source.as_bytes(), at);
    let mut scanner = Scanner {
        source,
        bytes: source.as_bytes(),
        at: start,
        text_from: start,
        pieces: Vec::new(),
        parentheses: Vec::new(),
        brackets: 0,
        body: Body::default(),
        joined: false,
        significant: false,
    };
    scanner.run(start)
}

/// Space and `--` comments before a statement are dropped.
fn skip_insignificant(bytes: &[u8], mut at: usize) -> usize {
    loop {
        while bytes.get(at).is_some_and(|byte| byte.is_ascii_whitespace() || *byte == 0x0b) {
            at += 1;
        }
        if !bytes[at..].starts_with(b"--") {
            return at;
        }
        at = line_end(bytes, at);
    }
}

fn line_end(bytes: &[u8], at: usize) -> usize {
    bytes[at..].iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |length| at + length)
}

/// Recognizes `CREATE [OR REPLACE] FUNCTION|PROCEDURE ... BEGIN ... END`, whose body has semicolons of its own.
#[derive(Debug, Default)]
struct Body {
    /// First letters of the statement's first words, where they are among the words that matter.
    words: Vec<u8>,
    depth: u32,
}

impl Body {
    /// Words at the head of a statement that are looked at.
    const WORDS_MAX: usize = 4;

    fn word(&mut self, word: &str) {
        let is = |other: &str| word.eq_ignore_ascii_case(other);
        if self.words.len() < Self::WORDS_MAX {
            let known =
                ["create", "function", "procedure", "or", "replace"].into_iter().find(|known| is(known));
            self.words.push(known.map_or(b'-', |known| known.as_bytes()[0]));
        }
        if !matches!(self.words[..], [b'c', b'f' | b'p', ..] | [b'c', b'o', b'r', b'f' | b'p', ..]) {
            return;
        }
        if is("begin") || (is("case") && self.depth > 0) {
            self.depth += 1;
        } else if is("end") {
            self.depth = self.depth.saturating_sub(1);
        }
    }
}

struct Scanner<'a> {
    source: &'a str,
    bytes: &'a [u8],
    at: usize,
    /// Start of the text not yet put into a piece.
    text_from: usize,
    pieces: Vec<Piece>,
    /// Where the open parentheses stand.
    parentheses: Vec<usize>,
    brackets: u32,
    body: Body,
    joined: bool,
    /// Whether anything but space and comments was seen.
    significant: bool,
}

impl Scanner<'_> {
    fn byte(&self, ahead: usize) -> u8 {
        self.bytes.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn run(&mut self, start: usize) -> Result<Scanned, Misplaced> {
        while self.at < self.bytes.len() {
            let byte = self.byte(0);
            match (byte, self.byte(1)) {
                (b'-', b'-') => self.at = line_end(self.bytes, self.at),
                (b'/', b'*') => self.block_comment()?,
                (b' ' | b'\t' | b'\r' | b'\n' | 0x0b | 0x0c, _) => self.at += 1,
                (b'\\', b';' | b':') => {
                    let escaped = self.byte(1);
                    self.flush(self.at);
                    self.pieces.push(Piece::Escaped(char::from(escaped)));
                    self.at += 2;
                    self.text_from = self.at;
                    self.joined |= escaped == b';';
                    self.significant = true;
                }
                (b'\\', _) => return self.finish(start, Ending::MetaCommand),
                (b';', _) if self.parentheses.is_empty() && self.body.depth == 0 => {
                    self.at += 1;
                    self.significant = true;
                    return self.finish(start, Ending::Semicolon);
                }
                _ => {
                    self.significant = true;
                    self.token(byte)?;
                }
            }
        }
        self.finish(start, Ending::EndOfText)
    }

    /// A token of the statement proper.
    fn token(&mut self, byte: u8) -> Result<(), Misplaced> {
        match byte {
            b'\'' => self.quoted(1, b'\'', false, "a quoted string"),
            b'"' => self.quoted(1, b'"', false, "a quoted identifier"),
            b'$' => self.dollar(),
            b':' => self.colon(),
            b'(' => {
                self.parentheses.push(self.at);
                self.at += 1;
                Ok(())
            }
            b')' => {
                self.parentheses.pop();
                self.at += 1;
                Ok(())
            }
            b'[' => {
                self.brackets += 1;
                self.at += 1;
                Ok(())
            }
            b']' => {
                self.brackets = self.brackets.saturating_sub(1);
                self.at += 1;
                Ok(())
            }
            _ if starts_name(byte) => {
                let start = self.at;
                while continues_name(self.byte(0)) || self.byte(0) == b'$' {
                    self.at += 1;
                }
                let word = &self.source[start..self.at];
                if word.eq_ignore_ascii_case("e") && self.byte(0) == b'\'' {
                    return self.quoted(1, b'\'', true, "a quoted string");
                }
                if self.parentheses.is_empty() {
                    self.body.word(word);
                }
                Ok(())
            }
            _ if byte.is_ascii_digit() => {
                while self.byte(0).is_ascii_alphanumeric() || matches!(self.byte(0), b'.' | b'_') {
                    self.at += 1;
                }
                Ok(())
            }
            _ => {
                self.at += 1;
                Ok(())
            }
        }
    }

    /// Puts the text up to `end` into a piece.
    fn flush(&mut self, end: usize) {
        if end > self.text_from {
            self.pieces.push(Piece::Text(Span::new(self.text_from, end)));
        }
        self.text_from = end;
    }

    fn finish(&mut self, start: usize, ending: Ending) -> Result<Scanned, Misplaced> {
        let next = self.at;
        let closed = match ending {
            Ending::Semicolon => true,
            Ending::MetaCommand | Ending::EndOfText => self.parentheses.is_empty(),
        };
        if let (false, Some(open)) = (closed, self.parentheses.last()) {
            let span = Span::new(*open, open + 1);
            let problem = if ending == Ending::MetaCommand {
                let rest = &self.source[self.at + 1..];
                let command = rest.split(|c: char| c.is_whitespace()).next().unwrap_or_default();
                Problem::UnclosedBefore { command: command.chars().take(20).collect() }
            } else {
                Problem::Unclosed { what: "parenthesis" }
            };
            return Err((problem, span));
        }
        let mut pieces = std::mem::take(&mut self.pieces);
        let mut end = next;
        if self.significant {
            end = self.source[..next].trim_end().len().max(self.text_from);
            if end > self.text_from {
                pieces.push(Piece::Text(Span::new(self.text_from, end)));
            }
        } else {
            pieces.clear();
        }
        Ok(Scanned { pieces, ending, next, joined: self.joined, span: Span::new(start, end) })
    }

    /// Quotes: `skip` bytes of opening, then everything to the closing quote; two quotes in a row stand for one.
    fn quoted(&mut self, skip: usize, quote: u8, escapes: bool, what: &'static str) -> Result<(), Misplaced> {
        let open = self.at;
        self.at += skip;
        loop {
            if self.at >= self.bytes.len() {
                return Err((Problem::Unclosed { what }, Span::new(open, open + skip)));
            }
            match self.byte(0) {
                byte if byte == quote && self.byte(1) == quote => self.at += 2,
                byte if byte == quote => {
                    self.at += 1;
                    // A string goes on after a line break; a second part keeps the escapes of the first.
                    match escapes.then(|| self.continuation()).flatten() {
                        Some(at) => self.at = at,
                        None => return Ok(()),
                    }
                }
                b'\\' if escapes => self.at += 2,
                b':' => self.quoted_colon(what),
                _ => self.at += 1,
            }
        }
    }

    /// Behind a closed string: where its continuation begins, if only space with a line break lies between.
    fn continuation(&self) -> Option<usize> {
        let gap = self.bytes[self.at..].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        let broken = self.bytes[self.at..self.at + gap].contains(&b'\n');
        (broken && self.bytes.get(self.at + gap) == Some(&b'\'')).then_some(self.at + gap + 1)
    }

    /// `$tag$ ... $tag$`, or a plain dollar sign.
    fn dollar(&mut self) -> Result<(), Misplaced> {
        let open = self.at;
        let mut end = open + 1;
        if self.bytes.get(end).copied().is_some_and(starts_name) {
            while self.bytes.get(end).copied().is_some_and(continues_name) {
                end += 1;
            }
        }
        if self.bytes.get(end) != Some(&b'$') {
            self.at = open + 1;
            // $1 is a parameter of the statement itself; its digits are no number that could go on.
            while self.byte(0).is_ascii_digit() {
                self.at += 1;
            }
            return Ok(());
        }
        let tag = &self.bytes[open..=end];
        self.at = end + 1;
        loop {
            if self.at >= self.bytes.len() {
                return Err((Problem::Unclosed { what: "a dollar quote" }, Span::new(open, end + 1)));
            }
            if self.bytes[self.at..].starts_with(tag) {
                self.at += tag.len();
                return Ok(());
            }
            if self.byte(0) == b':' {
                self.quoted_colon("a dollar quote");
            } else {
                self.at += 1;
            }
        }
    }

    fn block_comment(&mut self) -> Result<(), Misplaced> {
        let open = self.at;
        let mut depth = 0_u32;
        loop {
            match (self.byte(0), self.byte(1)) {
                _ if self.at >= self.bytes.len() => {
                    return Err((Problem::Unclosed { what: "a comment" }, Span::new(open, open + 2)));
                }
                (b'/', b'*') => {
                    depth += 1;
                    self.at += 2;
                }
                (b'*', b'/') => {
                    depth -= 1;
                    self.at += 2;
                    if depth == 0 {
                        return Ok(());
                    }
                }
                _ => self.at += 1,
            }
        }
    }

    /// The length of a variable reference at this colon, if it is one: a single colon with a name behind it.
    fn reference(&self) -> Option<usize> {
        if !starts_name(self.byte(1)) {
            return None;
        }
        let name = self.bytes[self.at + 1..].iter().take_while(|byte| continues_name(**byte)).count();
        Some(1 + name)
    }

    fn variable(&mut self, length: usize, place: Place) {
        self.flush(self.at);
        let span = Span::new(self.at, self.at + length);
        self.pieces.push(Piece::Variable { span, place });
        self.at += length;
        self.text_from = self.at;
    }

    fn skip_colons(&mut self) {
        while self.byte(0) == b':' {
            self.at += 1;
        }
    }

    fn quoted_colon(&mut self, what: &'static str) {
        match self.reference() {
            Some(length) => self.variable(length, Place::Quoted(what)),
            None => self.skip_colons(),
        }
    }

    /// A colon outside quotes: a variable, a cast `::`, an assignment `:=`, a slice `[1:2]`.
    fn colon(&mut self) -> Result<(), Misplaced> {
        if let Some(length) = self.reference() {
            let place = if self.brackets > 0 { Place::Bracket } else { Place::Bare };
            self.variable(length, place);
            return Ok(());
        }
        if let (quote @ (b'\'' | b'"'), 0) = (self.byte(1), self.brackets) {
            let span = Span::new(self.at, self.at + 2);
            return Err((Problem::QuotedSubstitution { quote: char::from(quote) }, span));
        }
        self.skip_colons();
        Ok(())
    }
}

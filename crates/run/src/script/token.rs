//! Words of pgbench's expression language.
//!
//! An expression ends with its line; a backslash at the end of the line carries it over to the next one.

use super::error::{Problem, Span};
use super::names::{continues_name, starts_name};
use super::value::parse_double;

/// A word of an expression. Keywords are known in any case.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Token<'a> {
    Plus,
    Minus,
    Star,
    Slash,
    Percent,
    Open,
    Close,
    Comma,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Equal,
    Unequal,
    ShiftLeft,
    ShiftRight,
    And,
    Or,
    Xor,
    Complement,
    Not,
    LogicalAnd,
    LogicalOr,
    Is,
    IsNull,
    NotNull,
    Case,
    When,
    Then,
    Else,
    End,
    Null,
    Bool(bool),
    Int(i64),
    /// 9223372036854775808, which exists only behind a minus.
    IntMinMagnitude,
    Double(f64),
    /// `:name`, without the colon.
    Variable(&'a str),
    /// Any other name: a function.
    Word(&'a str),
    /// The end of the line or of the text.
    EndOfLine,
}

const KEYWORDS: &[(&str, Token<'static>)] = &[
    ("and", Token::LogicalAnd),
    ("or", Token::LogicalOr),
    ("not", Token::Not),
    ("is", Token::Is),
    ("isnull", Token::IsNull),
    ("notnull", Token::NotNull),
    ("case", Token::Case),
    ("when", Token::When),
    ("then", Token::Then),
    ("else", Token::Else),
    ("end", Token::End),
    ("null", Token::Null),
    ("true", Token::Bool(true)),
    ("false", Token::Bool(false)),
];

/// Takes words off a text.
#[derive(Debug)]
pub(super) struct Lexer<'a> {
    source: &'a str,
    at: usize,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(source: &'a str, at: usize) -> Lexer<'a> {
        Lexer { source, at }
    }

    /// Where the next word would be looked for.
    pub(super) fn position(&self) -> usize {
        self.at
    }

    pub(super) fn text(&self, span: Span) -> &'a str {
        self.source.get(span.start as usize..span.end as usize).unwrap_or("")
    }

    fn byte(&self, ahead: usize) -> u8 {
        self.source.as_bytes().get(self.at + ahead).copied().unwrap_or(0)
    }

    fn skip_space(&mut self) {
        loop {
            match self.byte(0) {
                b' ' | b'\t' | b'\r' | 0x0b | 0x0c => self.at += 1,
                b'\\' => match continuation(&self.source.as_bytes()[self.at..]) {
                    Some(length) => self.at += length,
                    None => return,
                },
                _ => return,
            }
        }
    }

    fn take_while(&mut self, accept: impl Fn(u8) -> bool) -> &'a str {
        let start = self.at;
        while self.at < self.source.len() && accept(self.byte(0)) {
            self.at += 1;
        }
        // Every predicate used accepts the bytes of a multi-byte character together or not at all.
        self.source.get(start..self.at).unwrap_or("")
    }

    /// The next word. At the end of the line it stays there.
    pub(super) fn next(&mut self) -> Result<(Token<'a>, Span), (Problem, Span)> {
        self.skip_space();
        let start = self.at;
        let token = self.word().map_err(|problem| (problem, Span::new(start, self.at.max(start + 1))))?;
        Ok((token, Span::new(start, self.at)))
    }

    fn word(&mut self) -> Result<Token<'a>, Problem> {
        let first = self.byte(0);
        if self.at >= self.source.len() || first == b'\n' {
            return Ok(Token::EndOfLine);
        }
        if first.is_ascii_digit() || (first == b'.' && self.byte(1).is_ascii_digit()) {
            return self.number();
        }
        if first == b':' && continues_name(self.byte(1)) {
            self.at += 1;
            return Ok(Token::Variable(self.take_while(continues_name)));
        }
        if starts_name(first) {
            let word = self.take_while(continues_name);
            let keyword = KEYWORDS.iter().find(|(name, _)| name.eq_ignore_ascii_case(word));
            return Ok(keyword.map_or(Token::Word(word), |(_, token)| *token));
        }
        let (token, length) = match (first, self.byte(1)) {
            (b'<', b'=') => (Token::LessOrEqual, 2),
            (b'<', b'>') | (b'!', b'=') => (Token::Unequal, 2),
            (b'<', b'<') => (Token::ShiftLeft, 2),
            (b'>', b'=') => (Token::GreaterOrEqual, 2),
            (b'>', b'>') => (Token::ShiftRight, 2),
            (b'<', _) => (Token::Less, 1),
            (b'>', _) => (Token::Greater, 1),
            (b'=', _) => (Token::Equal, 1),
            (b'+', _) => (Token::Plus, 1),
            (b'-', _) => (Token::Minus, 1),
            (b'*', _) => (Token::Star, 1),
            (b'/', _) => (Token::Slash, 1),
            (b'%', _) => (Token::Percent, 1),
            (b'(', _) => (Token::Open, 1),
            (b')', _) => (Token::Close, 1),
            (b',', _) => (Token::Comma, 1),
            (b'&', _) => (Token::And, 1),
            (b'|', _) => (Token::Or, 1),
            (b'#', _) => (Token::Xor, 1),
            (b'~', _) => (Token::Complement, 1),
            _ => {
                let character = self.source[self.at..].chars().next().unwrap_or('\u{fffd}');
                return Err(Problem::UnexpectedCharacter { character });
            }
        };
        self.at += length;
        Ok(token)
    }

    /// Digits make an integer; with a point or an exponent they make a double.
    fn number(&mut self) -> Result<Token<'a>, Problem> {
        let start = self.at;
        self.take_while(|byte| byte.is_ascii_digit());
        let mut double = false;
        if self.byte(0) == b'.' {
            double = true;
            self.at += 1;
            self.take_while(|byte| byte.is_ascii_digit());
        }
        let sign = usize::from(matches!(self.byte(1), b'+' | b'-'));
        if matches!(self.byte(0), b'e' | b'E') && self.byte(1 + sign).is_ascii_digit() {
            double = true;
            self.at += 1 + sign;
            self.take_while(|byte| byte.is_ascii_digit());
        }
        let text = &self.source[start..self.at];
        if double {
            let value = parse_double(text);
            return value.map(Token::Double).ok_or_else(|| Problem::DoubleRange { text: text.to_owned() });
        }
        match text.parse::<u64>() {
            Ok(magnitude) if magnitude == 1 << 63 => Some(Token::IntMinMagnitude),
            Ok(magnitude) => i64::try_from(magnitude).map(Token::Int).ok(),
            Err(_) => None,
        }
        .ok_or_else(|| Problem::IntegerRange { text: text.to_owned() })
    }
}

/// The length of a backslash with the end of the line behind it, if the text begins with one.
pub(super) fn continuation(bytes: &[u8]) -> Option<usize> {
    match bytes {
        [b'\\', b'\n', ..] => Some(2),
        [b'\\', b'\r', b'\n', ..] => Some(3),
        _ => None,
    }
}

//! The names of a text as the server's lexer finds them, and the same text with a schema in front of each table.
//!
//! [`chains`] is for decisions about safety, so it reads the text alone and not what a parser makes of it. The text must be of [`super::plannable`]: one line
//! without literals, comments and backslashes.

use super::mask::{is_name_start, name_length, quoted_length, unquoted};
use super::{Unread, spans};
use sqlparser::tokenizer::Location;

/// The server cuts longer names (`NAMEDATALEN`), so they would not be those in the text.
const NAME_BYTES_MAX: usize = 63;

/// A name with all that stands in front of it: `schema.table.column`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chain {
    /// Each part as the server spells it.
    pub parts: Vec<String>,
    /// The word in lower case, or the sign, before it; empty at the start of the text. A name in quotes keeps the first one.
    pub before: String,
    /// Whether an opening parenthesis follows: a call, a list of columns, or a word of the language.
    pub is_open: bool,
}

enum Token {
    Name(String),
    Quoted(String),
    Sign(String),
}

impl Token {
    fn into_name(self) -> Option<String> {
        match self {
            Token::Name(name) | Token::Quoted(name) => Some(name),
            Token::Sign(_) => None,
        }
    }

    /// As it stands before another one.
    fn before(&self) -> String {
        match self {
            Token::Name(text) | Token::Sign(text) => text.clone(),
            Token::Quoted(name) => format!("\"{name}"),
        }
    }

    fn is_sign(&self, sign: &str) -> bool {
        matches!(self, Token::Sign(other) if other == sign)
    }
}

/// Every name of a text, those of the language as well.
///
/// # Errors
/// A name that the server would cut.
pub fn chains(text: &str) -> Result<Vec<Chain>, Unread> {
    let mut tokens = tokens(text)?.into_iter().peekable();
    let mut found: Vec<Chain> = vec![];
    let mut before = String::new();
    while let Some(token) = tokens.next() {
        let mut last = token.before();
        let Some(name) = token.into_name() else {
            before = last;
            continue;
        };
        let mut parts = vec![name];
        while tokens.next_if(|next| next.is_sign(".")).is_some() {
            // `table.*` ends with a sign.
            let Some(next) = tokens.next() else { break };
            last = next.before();
            let Some(name) = next.into_name() else { break };
            parts.push(name);
        }
        let is_open = tokens.peek().is_some_and(|next| next.is_sign("("));
        found.push(Chain { parts, before, is_open });
        before = last;
    }
    Ok(found)
}

fn tokens(text: &str) -> Result<Vec<Token>, Unread> {
    // `U&"..."` is a name with escapes. The server folds letters above ASCII as its locale wants.
    if text.to_ascii_lowercase().contains("u&\"") {
        return Err(Unread::NotPlain);
    }
    let mut found = vec![];
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = if first == '"' {
            let length = quoted_length(rest).ok_or(Unread::NotPlain)?;
            found.push(Token::Quoted(unquoted(&rest[1..length - 1])));
            length
        } else if is_name_start(first) {
            let length = name_length(rest);
            if !rest[..length].is_ascii() {
                return Err(Unread::NotPlain);
            }
            found.push(Token::Name(rest[..length].to_ascii_lowercase()));
            length
        } else {
            let is_cast = rest.starts_with("::");
            let length = if is_cast { 2 } else { first.len_utf8() };
            if first != ' ' {
                found.push(Token::Sign(rest[..length].to_string()));
            }
            length
        };
        if matches!(found.last(), Some(Token::Name(name) | Token::Quoted(name)) if name.len() > NAME_BYTES_MAX)
        {
            return Err(Unread::TooLarge);
        }
        rest = &rest[length..];
    }
    Ok(found)
}

/// The text with a schema in front of each table that has none: `of` returns it for a table's name, ready to be written.
///
/// # Errors
/// A text that is not read, or a table without a schema.
pub fn qualified(text: &str, of: impl Fn(&str) -> Option<String>) -> Result<String, Unread> {
    let mut inserted = vec![];
    for (name, at) in spans(text)? {
        let schema = of(&name).ok_or(Unread::Syntax)?;
        inserted.push((offset(text, at).ok_or(Unread::Syntax)?, schema));
    }
    inserted.sort();
    let mut whole = String::with_capacity(text.len() + inserted.len() * 16);
    let mut from = 0;
    for (at, schema) in inserted {
        whole.push_str(&text[from..at]);
        whole.push_str(&schema);
        whole.push('.');
        from = at;
    }
    whole.push_str(&text[from..]);
    Ok(whole)
}

/// The place of a character of the first line, counted from 1.
fn offset(text: &str, at: Location) -> Option<usize> {
    let before = usize::try_from(at.column).ok()?.checked_sub(1)?;
    (at.line == 1).then(|| text.char_indices().nth(before).map(|(offset, _)| offset))?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<String> {
        let written = |chain: &Chain| {
            format!("{} {}{}", chain.before, chain.parts.join("."), if chain.is_open { "(" } else { "" })
        };
        chains(text).unwrap().iter().map(written).collect()
    }

    #[test]
    fn names_are_read_with_what_stands_in_front_of_them_and_whether_they_may_be_calls() {
        assert_eq!(
            of("select app . f (u.name, v.*) from App.\"Tab\"\"le\" \"from\" x.y where $1::app.kind = u.*"),
            [
                " select",
                "select app.f(",
                "( u.name",
                ", v",
                ") from",
                "from app.Tab\"le",
                "\"Tab\"le from",
                "\"from x.y",
                "y where",
                ":: app.kind",
                "= u"
            ]
        );
        // A number may end where a name begins.
        assert_eq!(of("select 1app.f(2)"), [" select", "1 app.f("]);
        assert!(chains("select \u{391}\u{3a3}.x").is_err() && chains("select \"\u{3a3}\".x").is_ok());
        assert!(chains("select s.u&\"f\"($1)").is_err() && chains("select U&\"f\"").is_err());
        assert!(chains(&format!("select {}", "a".repeat(64))).is_err());
        assert!(chains("select \"a").is_err());
    }

    #[test]
    fn tables_get_their_schema_wherever_they_are_named_and_those_of_with_do_not() {
        let of = |text: &str| qualified(text, |name| (name != "unknown").then(|| "\"S 1\"".to_string()));
        for (text, expected) in [
            ("select * from orders", "select * from \"S 1\".orders"),
            (
                "select * from Orders o, app.items join \"Lines\" using (id)",
                "select * from \"S 1\".Orders o, app.items join \"S 1\".\"Lines\" using (id)",
            ),
            (
                "with x as (select * from a) select * from x where id in (select id from b where é = (select max(c) from c))",
                "with x as (select * from \"S 1\".a) select * from x where id in (select id from \"S 1\".b where é = (select max(c) from \"S 1\".c))",
            ),
            (
                "insert into a (b) select c from d on conflict do nothing",
                "insert into \"S 1\".a (b) select c from \"S 1\".d on conflict do nothing",
            ),
            (
                "update a set b = $1 from c where a.id = c.id",
                "update \"S 1\".a set b = $1 from \"S 1\".c where a.id = c.id",
            ),
            (
                "delete from a using b where a.id = b.id",
                "delete from \"S 1\".a using \"S 1\".b where a.id = b.id",
            ),
        ] {
            assert_eq!(of(text).unwrap(), expected);
        }
        assert!(of("select * from unknown").is_err());
    }
}

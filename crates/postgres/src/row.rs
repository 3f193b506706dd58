//! Rows whose texts can always be read.
//!
//! A database with the encoding SQL_ASCII keeps any bytes, and names of roles and databases are shared by all databases of a server: a role that may make one
//! can make a text that is not UTF-8. The library refuses such a value, and its callers would end. Here its wrong bytes are replacement characters.

use std::fmt::{self, Display};

use tokio_postgres::row::RowIndex;
use tokio_postgres::types::{FromSql, Kind, Type};
use tokio_postgres::{Column, Error};

/// A row of an answer.
#[derive(Debug)]
pub struct Row {
    row: tokio_postgres::Row,
    /// Columns whose bytes are not UTF-8, with such bytes replaced.
    mended: Vec<(usize, Vec<u8>)>,
}

/// The bytes of any value.
struct Bytes<'a>(&'a [u8]);

impl<'a> FromSql<'a> for Bytes<'a> {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Bytes<'a>, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Bytes(raw))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// A reply without the columns that the query has. [`Row::get`] ends the work with it as the payload of a panic, so that no caller goes on with a value
/// that is not there; the program reports it as a failure of what replied.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WrongReply(String);

impl fmt::Display for WrongReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WrongReply(what) = self;
        write!(f, "the reply to a query of pgfathom is not what that query returns: {what}")
    }
}

impl std::error::Error for WrongReply {}

impl From<tokio_postgres::Row> for Row {
    fn from(row: tokio_postgres::Row) -> Row {
        let mut mended = vec![];
        for (index, column) in row.columns().iter().enumerate() {
            let mend = match column.type_() {
                kind if is_text(kind) => mended_text,
                kind if matches!(kind.kind(), Kind::Array(element) if is_text(element)) => mended_array,
                _ => continue,
            };
            let value = row.try_get::<_, Option<Bytes<'_>>>(index).ok().flatten();
            mended.extend(value.and_then(|Bytes(raw)| mend(raw)).map(|bytes| (index, bytes)));
        }
        Row { row, mended }
    }
}

impl Row {
    /// Its columns.
    pub fn columns(&self) -> &[Column] {
        self.row.columns()
    }

    /// Their number.
    pub fn len(&self) -> usize {
        self.row.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.row.is_empty()
    }

    /// A value of a type that the query has.
    ///
    /// # Panics
    /// With a [`WrongReply`] if the value has another type, or is null and `T` is no option: then what replied is no server that read the query.
    #[track_caller]
    pub fn get<'a, I: RowIndex + Display, T: FromSql<'a>>(&'a self, index: I) -> T {
        let name = index.to_string();
        match self.try_get(index) {
            Ok(value) => value,
            Err(error) => std::panic::panic_any(WrongReply(format!("column {name}: {error}"))),
        }
    }

    /// The same for a value whose type is not certain.
    ///
    /// # Errors
    /// If it has another type.
    pub fn try_get<'a, I: RowIndex + Display, T: FromSql<'a>>(&'a self, index: I) -> Result<T, Error> {
        if !self.mended.is_empty() {
            let name = index.to_string();
            let is_it = |at: usize| at.to_string() == name || self.columns()[at].name() == name;
            if let Some((at, bytes)) = self.mended.iter().find(|(at, _)| is_it(*at)) {
                let kind = self.columns()[*at].type_();
                // What it is not accepted as is refused by the library, in its words.
                if T::accepts(kind)
                    && let Ok(value) = T::from_sql(kind, bytes)
                {
                    return Ok(value);
                }
            }
        }
        self.row.try_get(index)
    }
}

fn is_text(kind: &Type) -> bool {
    [Type::TEXT, Type::VARCHAR, Type::BPCHAR, Type::NAME, Type::UNKNOWN, Type::JSON].contains(kind)
}

/// A text with its wrong bytes replaced; `None` if it has none.
fn mended_text(raw: &[u8]) -> Option<Vec<u8>> {
    match std::str::from_utf8(raw) {
        Ok(_) => None,
        Err(_) => Some(String::from_utf8_lossy(raw).into_owned().into_bytes()),
    }
}

/// The same for the elements of an array (`array_send` in arrayfuncs.c): dimensions, whether there are nulls, the type, two numbers for each dimension, and the
/// elements behind their lengths.
fn mended_array(raw: &[u8]) -> Option<Vec<u8>> {
    let word = |at: usize| Some(i32::from_be_bytes(raw.get(at..at + 4)?.try_into().ok()?));
    let dimensions = usize::try_from(word(0)?).ok()?;
    let mut at = 12 + dimensions.checked_mul(8)?;
    let mut mended = raw.get(..at)?.to_vec();
    let mut is_changed = false;
    while at < raw.len() {
        let length = word(at)?;
        at += 4;
        let Ok(length) = usize::try_from(length) else {
            mended.extend((-1i32).to_be_bytes());
            continue;
        };
        let element = raw.get(at..at + length)?;
        at += length;
        let text = mended_text(element);
        is_changed |= text.is_some();
        let element = text.as_deref().unwrap_or(element);
        mended.extend(i32::try_from(element.len()).ok()?.to_be_bytes());
        mended.extend(element);
    }
    is_changed.then_some(mended)
}

/// An answer to the simple protocol.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SimpleQueryMessage {
    /// A row.
    Row(SimpleRow),
    /// The end of a statement, with the rows that it changed or returned.
    CommandComplete(u64),
    /// What the rows of a statement consist of.
    RowDescription,
}

impl From<tokio_postgres::SimpleQueryMessage> for SimpleQueryMessage {
    fn from(message: tokio_postgres::SimpleQueryMessage) -> SimpleQueryMessage {
        match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => {
                let names = row.columns().iter().map(|column| column.name().to_owned()).collect();
                // The library keeps the bytes of a text that is not UTF-8 to itself.
                let value = |at: usize| match row.try_get(at) {
                    Ok(value) => value.map(str::to_owned),
                    Err(_) => Some(char::REPLACEMENT_CHARACTER.to_string()),
                };
                SimpleQueryMessage::Row(SimpleRow { names, values: (0..row.len()).map(value).collect() })
            }
            tokio_postgres::SimpleQueryMessage::CommandComplete(rows) => {
                SimpleQueryMessage::CommandComplete(rows)
            }
            _ => SimpleQueryMessage::RowDescription,
        }
    }
}

/// A row of the simple protocol: texts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SimpleRow {
    names: Vec<String>,
    values: Vec<Option<String>>,
}

impl SimpleRow {
    /// The names of its columns.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The number of columns.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// A value; `None` for null and for a column that is not there. One that is not UTF-8 is a replacement character.
    pub fn get(&self, at: usize) -> Option<&str> {
        self.values.get(at)?.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_bytes_of_texts_and_of_elements_become_replacement_characters() {
        assert_eq!(mended_text("caf\u{e9}".as_bytes()), None);
        assert_eq!(mended_text(b"caf\xe9").as_deref(), Some("caf\u{fffd}".as_bytes()));
        let array = |elements: &[Option<&[u8]>]| {
            let head = [1i32, 0, 25, i32::try_from(elements.len()).unwrap(), 1];
            let mut raw: Vec<u8> = head.iter().flat_map(|word| word.to_be_bytes()).collect();
            for element in elements {
                let length = element.map_or(-1, |element| i32::try_from(element.len()).unwrap());
                raw.extend(length.to_be_bytes());
                raw.extend(element.unwrap_or_default());
            }
            raw
        };
        assert_eq!(mended_array(&array(&[Some(b"a"), None, Some(b"")])), None);
        let wrong = array(&[Some(b"a\xff"), None, Some(b"b")]);
        let mended = mended_array(&wrong).expect("mended");
        assert_eq!(mended, array(&[Some("a\u{fffd}".as_bytes()), None, Some(b"b")]));
        let read = Vec::<Option<String>>::from_sql(&Type::TEXT_ARRAY, &mended).expect("an array");
        assert_eq!(read, [Some("a\u{fffd}".to_owned()), None, Some("b".to_owned())]);
        assert_eq!(mended_array(&wrong[..wrong.len() - 1]), None, "torn");
    }
}

//! Queries of a server's catalog, with values and results as text.
//!
//! Every engine of the family supports the simple protocol and text in the same way; binary forms of `name`, `oid` or arrays differ.

pub(crate) use connect::sql::{identifier, literal, qualified};
use postgres::error::SqlState;
use postgres::{GenericClient, SimpleQueryMessage};

/// One row of an answer; NULL is `None`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TextRow(Vec<Option<String>>);

impl FromIterator<Option<String>> for TextRow {
    fn from_iter<I: IntoIterator<Item = Option<String>>>(values: I) -> TextRow {
        TextRow(values.into_iter().collect())
    }
}

impl TextRow {
    /// The value of a column, `None` for NULL and for a missing column.
    pub(crate) fn get(&self, column: usize) -> Option<&str> {
        self.0.get(column)?.as_deref()
    }

    /// A truth value as any engine writes it: `t`, `true`.
    pub(crate) fn is_true(&self, column: usize) -> bool {
        matches!(self.get(column), Some("t" | "true"))
    }
}

/// The error of a session whose queries read catalogs.
pub trait QueryError {
    /// The server's message, if the role may not read what was queried (SQLSTATE 42501).
    fn refusal(&self) -> Option<String>;
}

impl QueryError for postgres::Error {
    fn refusal(&self) -> Option<String> {
        let error = self.as_db_error()?;
        (*error.code() == SqlState::INSUFFICIENT_PRIVILEGE).then(|| error.message().to_owned())
    }
}

/// All rows that `sql` gives.
pub(crate) fn rows(client: &mut impl GenericClient, sql: &str) -> Result<Vec<TextRow>, postgres::Error> {
    let messages = client.simple_query(sql)?.into_iter();
    Ok(messages
        .filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => {
                Some((0..row.len()).map(|column| row.get(column).map(str::to_owned)).collect())
            }
            _ => None,
        })
        .collect())
}

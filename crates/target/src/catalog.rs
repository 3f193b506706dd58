//! Questions to a server's catalog, asked and answered in text.
//!
//! The simple protocol and text are what every engine of the family speaks alike; binary forms of `name`, `oid` or arrays are not.

use postgres::{GenericClient, SimpleQueryMessage};

/// One row of an answer; NULL is `None`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TextRow(Vec<Option<String>>);

impl TextRow {
    /// The value of a column, `None` for NULL and for a column that the answer does not have.
    pub(crate) fn get(&self, column: usize) -> Option<&str> {
        self.0.get(column)?.as_deref()
    }

    /// A truth value as any engine writes it: `t`, `true`.
    pub(crate) fn is_true(&self, column: usize) -> bool {
        matches!(self.get(column), Some("t" | "true"))
    }
}

/// All rows that `sql` gives.
pub(crate) fn rows(client: &mut impl GenericClient, sql: &str) -> Result<Vec<TextRow>, postgres::Error> {
    let messages = client.simple_query(sql)?.into_iter();
    Ok(messages
        .filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => {
                Some(TextRow((0..row.len()).map(|column| row.get(column).map(str::to_owned)).collect()))
            }
            _ => None,
        })
        .collect())
}

/// A string constant of SQL, right whatever `standard_conforming_strings` says.
pub(crate) fn literal(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('\'', "''");
    if escaped.contains('\\') { format!("E'{escaped}'") } else { format!("'{escaped}'") }
}

/// A quoted identifier.
pub(crate) fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A qualified, quoted name.
pub(crate) fn qualified(schema: &str, name: &str) -> String {
    format!("{}.{}", identifier(schema), identifier(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_breaks_out_of_its_quotes() {
        assert_eq!(literal("it's"), "'it''s'");
        assert_eq!(literal(r"a\' or 1"), r"E'a\\'' or 1'");
        assert_eq!(qualified("public", "my \"table\""), "\"public\".\"my \"\"table\"\"\"");
    }
}

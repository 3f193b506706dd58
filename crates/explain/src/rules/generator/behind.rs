//! Which sequence hands out values that its table has already, when inserts fail at a unique index.

use crate::case::Case;
use crate::rules::costly::is_name_of;
use crate::rules::paste::literal;
use record::event::{self, Event};
use record::statement::{self, Verb};

/// A sequence behind its table.
pub(super) struct Behind<'a> {
    relation: &'a str,
    column: &'a str,
    sequence: &'a str,
}

impl<'a> Behind<'a> {
    /// The sequence behind the unique index that an error in the server's log names: the index has one column, with a default from a sequence, and the
    /// statement of the error, or an INSERT that is known, leaves the column to it. One that always fails is in no statistics of statements.
    pub(super) fn of_error(case: &'a Case, node: &'a str, error: &Event) -> Option<Behind<'a>> {
        let mut found = case.at("table", node).flat_map(|table| {
            let written = table.lines.word("key_sequences").split("; ");
            let one = move |part: &'a str| {
                let (index, rest) = part.split_once('(')?;
                let (column, sequence) = rest.split_once(") from ")?;
                let (relation, column) = (table.lines.word("relation"), column.trim_matches('"'));
                Some((index.trim_matches('"'), Behind { relation, column, sequence }))
            };
            written.filter_map(one).collect::<Vec<_>>()
        });
        let (_, behind) = found.find(|(index, _)| error.message.contains(&format!("\"{index}\"")))?;
        let known = case.events_of(event::QUERY).map(|event| Case::word_of(event, "text"));
        let mut texts = known.chain([Case::word_of(error, "statement")]);
        texts.any(|text| is_insert_without(text, behind.relation, behind.column)).then_some(behind)
    }

    /// As the end of a claim.
    pub(super) fn words(&self) -> String {
        format!(
            ": sequence {} is behind the rows of {}, so the {} that it gives to a new row exists already",
            self.sequence, self.relation, self.column
        )
    }

    /// Sets the sequence behind the last row, in SQL.
    pub(super) fn command(&self) -> String {
        format!(
            "SELECT setval({}, (SELECT max({}) FROM {}));",
            literal(self.sequence),
            statement::quoted(self.column),
            self.relation
        )
    }
}

/// Whether a text inserts into a relation, and its list of columns does not have this one.
fn is_insert_without(text: &str, relation: &str, column: &str) -> bool {
    let is_there = statement::parse(text).is_ok_and(|parsed| {
        parsed.verb == Verb::Insert && parsed.tables.first().is_some_and(|table| is_name_of(table, relation))
    });
    // Without a list, VALUES or a query comes before the first parenthesis.
    let begin = text.split_once('(').filter(|(begin, _)| {
        begin
            .split_whitespace()
            .all(|word| !["values", "select", "with"].contains(&word.to_ascii_lowercase().as_str()))
    });
    let list = begin.and_then(|(_, rest)| rest.split_once(')')).map(|(list, _)| list);
    let names =
        |list: &str| list.split(',').any(|name| name.trim().trim_matches('"').eq_ignore_ascii_case(column));
    is_there && list.is_some_and(|list| !names(list))
}

#[cfg(test)]
mod tests {
    use super::is_insert_without;

    #[test]
    fn a_column_that_is_given_is_not_left_to_its_default() {
        let leaves = |text: &str| is_insert_without(text, "s.t", "id");
        assert!(leaves("INSERT INTO s.t (a, b) VALUES ($1, $2)"));
        assert!(leaves("insert into t (a) select a from u"));
        assert!(!leaves("INSERT INTO s.t (id, a) VALUES ($1, $2)"));
        assert!(!leaves("INSERT INTO s.t (a, \"id\") VALUES ($1, $2)"));
        assert!(!leaves("INSERT INTO s.t VALUES ($1, $2)"));
        assert!(!leaves("INSERT INTO s.u (a) VALUES ($1)"));
        assert!(!leaves("SELECT f(a) FROM s.t"));
    }
}

//! Collations of indexes, conditions and orders: an index has its texts in the order of one collation, and serves only what compares them by the same one.

use crate::case::Thing;
use record::statement::{self, Condition};

/// A collation as it is written, without quotes and schema.
fn name(written: &str) -> &str {
    match written.strip_suffix('"') {
        Some(quoted) => quoted.rsplit('"').next().unwrap_or(quoted),
        None => written.rsplit('.').next().unwrap_or(written),
    }
}

/// The collation that a part of SQL names behind a column.
fn written_in(text: &str) -> Option<String> {
    let (_, behind) = text.split_once(" COLLATE ")?;
    let end = match behind.strip_prefix('"') {
        Some(inside) => inside.find('"').map_or(behind.len(), |at| at + 2),
        None => behind.find([' ', ')', ',']).unwrap_or(behind.len()),
    };
    Some(name(&behind[..end]).to_string()).filter(|name| !name.is_empty())
}

/// The columns of an index as its definition writes them.
fn keys(definition: &str) -> Vec<&str> {
    let Some((_, inside)) = definition.split_once(" USING ").and_then(|(_, rest)| rest.split_once('('))
    else {
        return vec![];
    };
    let (mut depth, mut begin, mut found, mut is_quoted) = (0_usize, 0, vec![], false);
    for (at, c) in inside.char_indices() {
        match c {
            '"' => is_quoted = !is_quoted,
            _ if is_quoted => {}
            '(' => depth += 1,
            ')' if depth > 0 => depth -= 1,
            ',' | ')' if depth == 0 => {
                found.push(inside[begin..at].trim());
                begin = at + 1;
                if c == ')' {
                    break;
                }
            }
            _ => {}
        }
    }
    found
}

/// The collation that an index names for one of its columns: only one that is not the column's own is written in its definition.
fn of_key(index: &Thing<'_>, position: usize) -> Option<String> {
    keys(index.lines.word("definition")).get(position).and_then(|key| written_in(key))
}

/// Collation of a column in a list of names and collations.
fn of_column<'a>(collations: &'a str, column: &str) -> &'a str {
    let of = |one: &'a str| one.strip_prefix(column)?.strip_prefix(' ');
    collations.split("; ").find_map(of).unwrap_or_default()
}

/// What is compared by one collation, and an index has in the order of another one.
pub(super) struct Differs {
    /// That of the index.
    pub(super) index: String,
    /// That of the condition or the order.
    pub(super) wanted: String,
    /// As the wanted one stands in a command behind the column; empty for the column's own.
    pub(super) clause: String,
}

impl Differs {
    fn of(index: String, wanted: String, is_own: bool) -> Differs {
        let clause = if is_own { String::new() } else { format!(" COLLATE {}", statement::quoted(&wanted)) };
        Differs { index, wanted, clause }
    }
}

/// How a collation that is not named is called.
fn own(collation: &str) -> String {
    if collation.is_empty() { "its own collation".to_string() } else { collation.to_string() }
}

/// Whether a filter compares a column by another collation than that of an index. `collations` are those of the columns.
pub(super) fn of_condition(
    (filter, collations): (&str, &str),
    index: &Thing<'_>,
    position: usize,
    column: &str,
) -> Option<Differs> {
    let of_column = of_column(collations, column);
    let parts = statement::conjuncts(filter).unwrap_or_default();
    let part = parts.iter().find(|part| part.columns.iter().any(|one| one.column == column));
    let wanted = part.and_then(|part| written_in(&part.text));
    match (of_key(index, position), wanted) {
        (None, None) => None,
        (Some(of_index), Some(wanted)) if of_index == wanted => None,
        (None, Some(wanted)) if wanted == of_column => None,
        (Some(of_index), None) => Some(Differs::of(of_index, own(of_column), true)),
        (of_index, Some(wanted)) => {
            Some(Differs::of(of_index.unwrap_or_else(|| own(of_column)), wanted, false))
        }
    }
}

/// Whether the first column of an order is sorted by another collation than that of an index. Plans name a collation there if it is not the database's.
pub(super) fn of_order(key: &str, index: &Thing<'_>, position: usize) -> Option<Differs> {
    let first = key.split(", ").next().unwrap_or_default();
    let recorded = index.lines.word("collations").split("; ").nth(position).unwrap_or_default();
    match (of_key(index, position), written_in(first)) {
        (None, None) => None,
        (Some(of_index), None) => Some(Differs::of(of_index, "that of the database".to_string(), true)),
        (_, Some(wanted)) if recorded.is_empty() || recorded == wanted => None,
        (_, Some(wanted)) => Some(Differs::of(recorded.to_string(), wanted, false)),
    }
}

/// An index in the order of another collation.
pub(super) fn obstacle(
    relation: &str,
    condition: &Condition,
    name: &str,
    differs: &Differs,
) -> (String, Option<String>) {
    let Differs { index, wanted, clause } = differs;
    let column = &condition.column;
    let why = format!(
        "index {name} has {column} in the order of collation {index}, and the condition compares it by {wanted}: an index serves only its own collation"
    );
    let command = format!(
        "CREATE INDEX CONCURRENTLY ON {} ({}{clause}); -- or write the collation of the index into the condition",
        relation,
        statement::quoted(column)
    );
    (why, Some(command))
}

/// An index that finds equal values alone: a hash index, or an operator class without the usual order.
pub(super) fn no_order(relation: &str, condition: &Condition, index: &Thing<'_>) -> (String, Option<String>) {
    let (name, column) = (index.lines.word("index"), condition.column.clone());
    let kind = match index.lines.word("method") {
        "hash" => "a hash index, which has no order".to_string(),
        _ => format!("one of {}, which is ordered for patterns", index.lines.word("operator_classes")),
    };
    let why = format!(
        "index {name} on {column} is {kind}: it finds equal values alone, and the condition compares a range"
    );
    (why, Some(statement::index_command(relation, &[column], true)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collation_is_read_where_it_is_written() {
        for (text, found) in [
            ("mail COLLATE \"C\"", Some("C")),
            ("mail COLLATE \"en-x-icu\" text_pattern_ops DESC", Some("en-x-icu")),
            ("(code = $1 COLLATE \"en-x-icu\")", Some("en-x-icu")),
            ("((code COLLATE \"C\") = $1)", Some("C")),
            ("code COLLATE pg_catalog.\"C\"", Some("C")),
            ("name COLLATE \"en_US.utf8\" DESC", Some("en_US.utf8")),
            ("mail", None),
        ] {
            assert_eq!(written_in(text).as_deref(), found, "{text}");
        }
    }

    #[test]
    fn the_columns_of_an_index_are_divided_outside_of_parentheses() {
        let definition = "CREATE INDEX i ON s.t USING btree (a, lower((b)::text) COLLATE \"C\", \"x,y\") INCLUDE (d) WHERE (e > 0)";
        assert_eq!(keys(definition), ["a", "lower((b)::text) COLLATE \"C\"", "\"x,y\""]);
        assert!(keys("").is_empty());
    }
}

//! PLAN-11 where an index holds nearly what a condition compares: the same function with other arguments, or another function of the same column.

use crate::case::Thing;
use record::statement::{self, Condition};

/// An expression without what its writers differ in: the names of tables and schemas, types, blanks, quotes and parentheses. Constants and parameters are
/// one sign: an application may send the constant that a plan for unknown values lacks.
fn outline(text: &str) -> String {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut out = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix("::") {
            rest = without_type(after);
        } else if c == '\'' {
            out.push('?');
            rest = rest[1..].split_once('\'').map_or("", |(_, after)| after);
        } else if c == '$' {
            out.push('?');
            rest = rest[1..].trim_start_matches(|c: char| c.is_ascii_digit());
        } else if is_word(c) {
            let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            match after.strip_prefix('.') {
                Some(after) => rest = after,
                None => {
                    out.push_str(&word.to_lowercase());
                    rest = after;
                }
            }
        } else {
            if !c.is_whitespace() && !matches!(c, '"' | '(' | ')') {
                out.push(c);
            }
            rest = &rest[c.len_utf8()..];
        }
    }
    out
}

/// What follows the name of a type.
fn without_type(text: &str) -> &str {
    const MORE: [&str; 4] = [" without time zone", " with time zone", " varying", " precision"];
    let is_word = |c: char| c.is_alphanumeric() || "_.\"".contains(c);
    let mut rest = text.trim_start_matches(is_word);
    if let Some(more) = MORE.iter().find(|more| rest.starts_with(**more)) {
        rest = &rest[more.len()..];
    }
    if rest.starts_with('(') && rest[1..].starts_with(|c: char| c.is_ascii_digit()) {
        rest = rest.split_once(')').map_or("", |(_, after)| after);
    }
    rest.strip_prefix("[]").unwrap_or(rest)
}

/// The expressions of an index, from its definition.
fn expressions(definition: &str) -> Vec<&str> {
    let Some(inside) =
        definition.split_once(" USING ").and_then(|(_, rest)| rest.split_once('(')).map(|(_, rest)| rest)
    else {
        return vec![];
    };
    let (mut depth, mut begin, mut found) = (0, 0, vec![]);
    for (at, c) in inside.char_indices() {
        match c {
            '(' => depth += 1,
            ')' if depth > 0 => depth -= 1,
            ',' if depth == 0 => {
                found.push(inside[begin..at].trim());
                begin = at + 1;
            }
            ')' => {
                found.push(inside[begin..at].trim());
                break;
            }
            _ => {}
        }
    }
    found.retain(|part| part.contains('('));
    found
}

/// Words in a text that are followed by `(`, or not.
fn words(text: &str, are_called: bool) -> Vec<String> {
    let outside = text.split('\'').step_by(2).collect::<Vec<_>>().join("?");
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut all = vec![];
    let mut rest = outside.as_str();
    while let Some(begin) = rest.find(is_word) {
        let from = &rest[begin..];
        let end = from.find(|c| !is_word(c)).unwrap_or(from.len());
        if from[end..].starts_with('(') == are_called {
            all.push(from[..end].to_lowercase());
        }
        rest = &from[end..];
    }
    all
}

/// The index whose expression is nearly what the filter of a scan compares, as the end of a claim.
pub(super) fn nearly(
    filter: &str,
    conditions: &[Condition],
    index: &Thing<'_>,
) -> Option<(String, Option<String>)> {
    let compared = outline(filter);
    let called = words(filter, true);
    let named = words(filter, false);
    let inside: Vec<&str> = conditions
        .iter()
        .filter(|one| one.inside.as_ref().is_some_and(|inside| inside.starts_with("function ")))
        .map(|one| one.column.as_str())
        .collect();
    let definition = index.lines.word("definition");
    let found = expressions(definition).into_iter().find(|expression| {
        let columns = words(expression, false);
        let is_near = words(expression, true).iter().any(|function| called.contains(function))
            && columns.iter().any(|column| named.contains(column))
            || columns.iter().any(|column| inside.contains(&column.as_str()));
        is_near && !compared.contains(&outline(expression))
    })?;
    let name = index.lines.word("index");
    let shown = statement::mask(found);
    let why = format!(
        "index {name} holds {shown}, and the condition compares another expression, {}: the planner uses an index on an expression only for the same one",
        filter
    );
    Some((why, None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_types_and_names_of_tables_do_not_matter() {
        let same = [
            (
                "to_tsvector('***'::regconfig, summary)",
                "(to_tsvector($2::regconfig, book.summary) @@ plainto_tsquery($1))",
            ),
            ("lower((email)::text)", "(lower((account.email)::text) = $1)"),
            ("date_trunc('***'::text, (at)::timestamp without time zone)", "(date_trunc('***', o.at) >= $1)"),
        ];
        for (index, filter) in same {
            assert!(outline(filter).contains(&outline(index)), "{} {}", outline(filter), outline(index));
        }
        assert!(
            !outline("(to_tsvector(book.summary) @@ $1)")
                .contains(&outline("to_tsvector('***'::regconfig, summary)"))
        );
    }

    #[test]
    fn expressions_are_the_parts_with_calls() {
        let definition =
            "CREATE INDEX i ON s.t USING btree (shop, lower((name)::text) DESC, ((a + b))) WHERE (c > 0)";
        assert_eq!(expressions(definition), ["lower((name)::text) DESC", "((a + b))"]);
        assert!(expressions("CREATE INDEX i ON s.t USING btree (a, b)").is_empty());
        assert!(expressions("").is_empty());
    }
}

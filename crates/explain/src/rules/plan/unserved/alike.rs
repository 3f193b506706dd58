//! Expressions that differ in a constant: an index on one serves only the statement that has it word for word.

use super::{Place, Reason};
use crate::case::Thing;
use crate::rules::costly::plain;
use crate::rules::paste::literal;

/// Characters of an expression in a claim.
const EXPRESSION_CHARS: usize = 80;

/// Without what writers of expressions differ in.
fn bare(text: &str) -> String {
    let is_kept = |c: &char| !c.is_whitespace() && !matches!(c, '"' | '(' | ')');
    text.chars().filter(is_kept).flat_map(char::to_lowercase).collect()
}

/// Whether an index is on an expression.
pub(super) fn is_held(place: &Place<'_, '_>, computed: &str) -> bool {
    place.indexes.iter().any(|(index, _)| bare(index.lines.word("definition")).contains(&bare(computed)))
}

/// The same with a mark in the place of each constant and parameter: `to_tsvector(?,body`.
fn without_constants(text: &str) -> String {
    let text = bare(text);
    let mut rest = text.as_str();
    let mut written = String::new();
    while let Some(at) = rest.find(['$', '\'']) {
        written.push_str(&rest[..at]);
        written.push('?');
        let is_string = rest[at..].starts_with('\'');
        rest = &rest[at + 1..];
        let end = match is_string {
            true => rest.find('\'').map_or(rest.len(), |end| end + 1),
            false => rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len()),
        };
        rest = &rest[end..];
        // The type of a constant.
        if let Some(kind) = rest.strip_prefix("::") {
            rest = &kind[kind.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(kind.len())..];
        }
    }
    written + rest
}

/// An index on the same expression with another constant, or one that the planner does not know.
pub(super) fn alike(place: &Place<'_, '_>, computed: &str) -> Option<Reason> {
    let wanted = without_constants(computed);
    let is_alike = |index: &Thing<'_>| {
        let definition = index.lines.word("definition");
        wanted.contains('?') && without_constants(definition).contains(&wanted)
    };
    let (index, _) = place.indexes.iter().find(|(index, _)| is_alike(index))?;
    let name = index.lines.word("index");
    let words = format!(
        "index {name} is on the same expression with another constant than the statement has in {}: it is used only where both are the same, word for word \
            (the \
         configuration of a text search, the unit of date_trunc, a time zone, the key of a document)",
        plain(computed, EXPRESSION_CHARS)
    );
    let command = format!("SELECT indexdef FROM pg_indexes WHERE indexname = {};", literal(name));
    Some(Reason::of(
        words,
        "write the expression as the index has it, with the constant in the text of the statement and not as a parameter; or create an index on what the \
         statement computes",
        vec![command],
    ))
}

#[cfg(test)]
mod tests {
    use super::without_constants;

    #[test]
    fn constants_and_parameters_are_the_same_mark() {
        let definition = "CREATE INDEX i ON t USING gin (to_tsvector('english'::regconfig, body))";
        assert!(without_constants(definition).contains(&without_constants("to_tsvector($1, body)")));
        assert!(!without_constants(definition).contains(&without_constants("to_tsvector($1, title)")));
        assert_eq!(without_constants("date_trunc('day'::text, \"at\")"), "date_trunc?,at");
        assert_eq!(without_constants("(payload ->> $12)"), "payload->>?");
        assert_eq!(without_constants("f('"), "f?");
    }
}

//! Names of the fields of documents that a statement reads: `pg_stat_statements` has a parameter for each, and the text of a session has the name.

/// Operators that read a field of a document, the longer ones first.
const READS: [&str; 4] = ["#>>", "->>", "#>", "->"];
/// Characters of a name.
const NAME_CHARS: usize = 64;

/// What stands behind each operator that reads a field, outside of constants and names in quotes.
fn behind_operators(text: &str) -> Vec<&str> {
    let (mut found, mut rest) = (vec![], text);
    while let Some(first) = rest.chars().next() {
        if let Some(operator) = READS.iter().find(|operator| rest.starts_with(**operator)) {
            rest = rest[operator.len()..].trim_start();
            found.push(rest);
            continue;
        }
        let quoted = matches!(first, '\'' | '"').then(|| rest[1..].find(first)).flatten();
        rest = &rest[quoted.map_or(first.len_utf8(), |end| end + 2)..];
    }
    found
}

/// A constant that is a plain name.
fn name(text: &str) -> Option<&str> {
    let (name, rest) = text.strip_prefix('\'')?.split_once('\'')?;
    let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '{' | '}' | ',');
    // Two quotes are one in the constant.
    (!name.is_empty() && !rest.starts_with('\'') && name.len() <= NAME_CHARS && name.chars().all(is_plain))
        .then_some(name)
}

/// A parameter at the beginning of a text.
fn parameter(text: &str) -> Option<&str> {
    let digits = text.strip_prefix('$')?.bytes().take_while(u8::is_ascii_digit).count();
    (digits > 0).then(|| &text[..=digits])
}

/// Parameters of a statement that stand for fields of documents, each with the name that the text of a session has for it: `$1 customer`. Empty if the two
/// texts do not have as many.
pub fn document_keys(statement: &str, of_session: &str) -> Vec<String> {
    let (parameters, names) = (behind_operators(statement), behind_operators(of_session));
    if parameters.len() != names.len() {
        return vec![];
    }
    let pairs = parameters.into_iter().zip(names);
    pairs.filter_map(|(number, text)| Some(format!("{} {}", parameter(number)?, name(text)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_fields_are_taken_from_the_text_of_a_session() {
        let statement = "SELECT id FROM e WHERE payload->>$1 = $2||$3 AND payload -> $4 ->> $5 = $6";
        let text = "SELECT id FROM e WHERE payload->>'merchant_ref' = 'x->>y'||'z' AND payload -> 'a b' ->> 'no' = 'it''s -> 1'";
        assert_eq!(document_keys(statement, text), ["$1 merchant_ref", "$5 no"]);
        assert_eq!(document_keys(statement, "SELECT id FROM e WHERE payload->>'merchant_ref'"), [""; 0]);
        assert_eq!(document_keys("select a->>$1 from e", "select a->>$1 from e"), [""; 0]);
        assert_eq!(document_keys("select a->>$1 from e", "select a->>'it''s' from e"), [""; 0]);
    }
}

//! Quotes names and constants for statements. It follows PostgreSQL's own rules, right with either value of `standard_conforming_strings`.

pub use postgres_protocol::escape::{escape_identifier as identifier, escape_literal as literal};

/// `"schema"."name"`.
pub fn qualified(schema: &str, name: &str) -> String {
    format!("{}.{}", identifier(schema), identifier(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_breaks_out_of_its_quotes() {
        assert_eq!(literal("it's"), "'it''s'");
        assert_eq!(literal(r"a\' or 1").trim_start(), r"E'a\\'' or 1'");
        assert_eq!(qualified("public", "my \"table\""), "\"public\".\"my \"\"table\"\"\"");
    }
}

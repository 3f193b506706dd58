//! Operators that give a distance, of PostgreSQL, PostGIS, pg_trgm and pgvector: an index has them for ORDER BY alone.

use record::statement::{self, Conjunct, Form};

/// The operators.
pub(super) const DISTANCES: [&str; 7] = ["<->", "<#>", "<=>", "<+>", "<<->>", "<->>", "<<->"];

/// The operator in a condition that compares a distance, and the column that it is from: `(orders.place <-> point($1, $2)) < $3`.
pub(super) fn of(part: &Conjunct) -> Option<(&str, String)> {
    let sign = part
        .text
        .split_whitespace()
        .find(|word| DISTANCES.contains(word))
        .filter(|_| part.form == Form::Compared)?;
    let (left, right) = part.text.split_once(&format!(" {sign} "))?;
    let right = right.split([')', ' ']).next().unwrap_or(right);
    let name = [left, right]
        .into_iter()
        .map(|side| side.trim_matches(['(', ')', ' ']))
        .find(|side| !side.starts_with('$') && statement::is_name(side))?;
    let column = name.rsplit('.').next().unwrap_or(name).trim_matches('"');
    Some((sign, column.to_string()))
}

/// Whether a condition compares a distance: a column that it compares besides is no reason for an index.
pub(super) fn is_compared(filter: &str) -> bool {
    statement::conjuncts(filter).unwrap_or_default().iter().any(|part| of(part).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_column_of_a_distance_is_found_on_either_side() {
        let found = |text: &str| {
            let parts = statement::conjuncts(text).expect("reads");
            parts.iter().find_map(|part| of(part).map(|(sign, column)| (sign.to_string(), column)))
        };
        let expected = |sign: &str, column: &str| Some((sign.to_string(), column.to_string()));
        assert_eq!(
            found("((c.kind = $4) AND ((c.\"position\" <-> point($1, $2)) < $3))"),
            expected("<->", "position")
        );
        assert_eq!(found("(($1 <=> embedding) < $2)"), expected("<=>", "embedding"));
        assert_eq!(found("(c.kind = $4)"), None);
        assert_eq!(found("(lower(name) = $1)"), None);
    }
}

//! Distances that a condition compares: an index has them for ORDER BY alone, and the same condition in another form is what it serves.

use super::{Place, Reason};
use crate::rules::costly::plain;
use crate::rules::plan::distance;
use record::statement::{self, Conjunct};

/// Characters of an expression.
const EXPRESSION_CHARS: usize = 80;

/// The form of the condition that an index serves, by the type of the column.
fn form(kind: &str, column: &str) -> String {
    let kind = kind.rsplit_once('.').map_or(kind, |(_, name)| name);
    match kind {
        "geometry" | "geography" => format!("ST_DWithin({column}, point, distance)"),
        "text" | "character varying" | "character" => {
            format!("{column} % 'word', with pg_trgm.similarity_threshold for how near")
        }
        "vector" | "halfvec" | "sparsevec" => {
            format!("ORDER BY {column} <-> vector LIMIT n, and leave out the far ones of these")
        }
        "cube" => format!("{column} <@ cube_enlarge(centre, distance, dimensions)"),
        _ => format!("{column} <@ circle(centre, distance)"),
    }
}

/// Why a distance is not served.
pub(super) fn reason(place: &Place<'_, '_>, part: &Conjunct) -> Option<Reason> {
    let (sign, name) = distance::of(part)?;
    let column = statement::quoted(&name);
    let own = place.indexes.iter().find(|(index, columns)| {
        columns.contains(&name.as_str())
            && ["gist", "spgist", "hnsw", "ivfflat"].contains(&index.lines.word("method"))
    });
    let beside = match own {
        Some((index, _)) => format!("index {} has distances for ORDER BY alone", index.lines.word("index")),
        None => "and no GiST index is on it".to_string(),
    };
    let words = format!(
        "it compares the distance {}, which no index serves in a condition: {beside}",
        plain(&place.without_alias(&part.text), EXPRESSION_CHARS)
    );
    let create = format!("CREATE INDEX CONCURRENTLY ON {} USING gist ({column});", place.relation);
    Some(Reason::of(
        words,
        format!("write the condition without {sign}: {}", form(place.kind(&name), &column)),
        own.is_none().then_some(create).into_iter().collect(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_has_a_form_that_an_index_serves() {
        assert_eq!(form("point", "position"), "position <@ circle(centre, distance)");
        assert!(form("public.geometry", "at").starts_with("ST_DWithin(at, "));
        assert!(form("text", "name").starts_with("name % "));
    }
}

//! Conditions of a statement that have to wait for the policy of its table. The server checks a policy before everything that could give away values of rows
//! which it hides (`restriction_is_securely_promotable` in restrictinfo.c), and what is not marked LEAKPROOF might, by an error. So an index is not searched
//! for
//! a condition with LIKE, a function, or an operator of numeric, and the superuser, to whom no policy applies, does not see it.

use super::index_on;
use crate::case::Case;
use crate::rules::costly::plain;
use crate::rules::plan::Planned;
use crate::rules::statement::conditions_on;
use record::finding::{NodeTime, StatementTime};
use record::statement::{self, Condition, Use};

/// Characters of a name.
const NAME_CHARS: usize = 80;
/// Types whose operators are not LEAKPROOF, as `proleakproof` of PostgreSQL 13 to 18 has it.
const LEAKING: [&str; 7] = ["numeric", "json", "jsonb", "tsvector", "record", "xml", "point"];

/// Why a condition has to wait.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Why {
    /// LIKE, ILIKE or a regular expression.
    Pattern,
    /// The column is given to this function.
    Function(String),
    /// The operators of its type.
    Type(String),
}

/// A condition that waits.
pub(super) struct Held<'a> {
    pub(super) column: String,
    pub(super) why: Why,
    /// An index that begins with its column.
    pub(super) index: Option<&'a str>,
}

/// The type of a column, of those that the plan of the statement compares.
fn type_of<'a>(planned: Option<&Planned<'a>>, relation: &str, column: &str) -> Option<&'a str> {
    let nodes = planned?.nodes.iter().filter(|node| node.lines.word("relation") == relation);
    let mut types = nodes.flat_map(|node| node.lines.word("column_types").split("; "));
    types.find_map(|one| one.strip_prefix(column)?.strip_prefix(' '))
}

fn is_leaking(kind: &str) -> bool {
    let name = kind.split('(').next().unwrap_or(kind);
    LEAKING.contains(&name) || kind.ends_with("[]") || kind.ends_with("range")
}

/// Whether values are searched by operators of their own, by GIN or GiST.
fn is_searched(kind: &str) -> bool {
    ["tsvector", "jsonb"].contains(&kind) || kind.ends_with("[]") || kind.ends_with("range")
}

fn why(one: &Condition, kind: Option<&str>) -> Option<Why> {
    // What is not a call is a cast or a collation, of which most are LEAKPROOF.
    let function = one.inside.as_deref().and_then(|inside| inside.strip_prefix("function "));
    match (one.how, function) {
        // `@@`, `@>` and `&&` look like `<>` here, which is rare for these types.
        (Use::Other, None) if one.inside.is_none() => {
            kind.filter(|kind| is_searched(kind)).map(|kind| Why::Type(kind.to_string()))
        }
        (Use::Other, _) => None,
        (_, Some(function)) => Some(Why::Function(function.to_string())),
        (Use::Pattern | Use::AnyCase, None) => Some(Why::Pattern),
        (_, None) if one.inside.is_none() => {
            kind.filter(|kind| is_leaking(kind)).map(|kind| Why::Type(kind.to_string()))
        }
        _ => None,
    }
}

/// The condition of a statement on a table with a policy that waits for it, unless an index serves another condition on that table.
pub(super) fn of<'a>(
    case: &'a Case,
    time: &'a NodeTime,
    statement: &StatementTime,
    relation: &str,
    planned: Option<&Planned<'a>>,
) -> Option<Held<'a>> {
    let conditions = conditions_on(statement, relation);
    let whys: Vec<_> =
        conditions.iter().map(|one| why(one, type_of(planned, relation, &one.column))).collect();
    let is_served = conditions.iter().zip(&whys).any(|(one, why)| {
        let is_free = why.is_none() && one.inside.is_none() && one.how.is_compared();
        is_free && index_on(case, time, relation, &one.column).is_some()
    });
    let held = conditions.iter().zip(whys).find_map(|(one, why)| {
        let index = index_on(case, time, relation, &one.column);
        // Of an unknown operator only an index shows that it is one that indexes serve.
        let is_known = one.how != Use::Other || index.is_some();
        Some(Held { column: one.column.clone(), why: why.filter(|_| is_known)?, index })
    });
    held.filter(|_| !is_served)
}

impl Held<'_> {
    /// What is compared, for a sentence.
    fn what(&self) -> String {
        let column = plain(&self.column, NAME_CHARS);
        match &self.why {
            Why::Pattern => format!("the pattern for {column}"),
            Why::Function(function) => format!("{}({column})", plain(function, NAME_CHARS)),
            Why::Type(kind) => format!("{column}, which is {kind},"),
        }
    }

    /// The end of a claim, behind the name of the table.
    pub(super) fn sentence(&self, policy: &str, rows: &str) -> String {
        let index = match self.index {
            Some(index) => format!("index {} is not used for it", plain(index, NAME_CHARS)),
            None => "no index would be used for it".to_string(),
        };
        let lack = match &self.why {
            Why::Pattern => "LIKE and regular expressions are",
            Why::Function(_) => "that function is",
            Why::Type(_) => "the operators of that type are",
        };
        format!(
            "whose condition on {} is checked only behind policy {policy}, for {rows}: {lack} not LEAKPROOF, so {index}",
            self.what()
        )
    }

    /// What helps.
    pub(super) fn advice(&self) -> String {
        let column = plain(&self.column, NAME_CHARS);
        let own = match &self.why {
            Why::Pattern => format!(
                "if the first characters are searched, write {column} ^@ 'abc' (before PostgreSQL 15 {column} ~>=~ 'abc' AND {column} ~<~ 'abd'): these are \
                    LEAKPROOF, \
                 and an index with text_pattern_ops serves them in front of the policy"
            ),
            Why::Function(function) => format!(
                "store what is compared: a generated column of {}({column}), STORED, with an index: to compare a text, a number or a date with = or < is \
                    LEAKPROOF",
                plain(function, NAME_CHARS)
            ),
            Why::Type(kind) => format!(
                "compare another type where the values permit it: operators of integers, texts, dates, uuid and double precision are LEAKPROOF, those of \
                    {kind} are not"
            ),
        };
        format!(
            "{own}; otherwise let a function with SECURITY DEFINER search, which compares the column of the policy itself. A superuser can declare a function \
                LEAKPROOF, \
             if no value that it is given can be seen in its errors; of a function of the server an upgrade undoes that"
        )
    }

    /// What to type.
    pub(super) fn commands(&self, relation: &str, literal: &str) -> Vec<String> {
        let shown = format!(
            "SELECT indexdef FROM pg_indexes WHERE format('%I.%I', schemaname, tablename) = {literal};"
        );
        match (&self.why, self.index) {
            (Why::Pattern, None) => {
                vec![format!(
                    "CREATE INDEX CONCURRENTLY ON {relation} ({} text_pattern_ops);",
                    statement::quoted(&self.column)
                )]
            }
            _ => vec![shown],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_without_leakproof_operators_are_known() {
        for kind in ["numeric", "numeric(12,2)", "jsonb", "integer[]", "tstzrange", "int4multirange"] {
            assert!(is_leaking(kind), "{kind}");
        }
        for kind in ["integer", "text", "character varying(20)", "date", "uuid", "boolean"] {
            assert!(!is_leaking(kind), "{kind}");
        }
    }

    #[test]
    fn what_waits_is_a_pattern_a_call_or_an_operator() {
        let of = |text: &str, kind: Option<&str>| {
            let conditions = statement::conditions(text).expect("reads");
            conditions.iter().find_map(|one| why(one, kind))
        };
        assert_eq!(of("(ref ~~ $1)", Some("text")), Some(Why::Pattern));
        assert_eq!(of("(lower(ref) = $1)", None), Some(Why::Function("lower".to_string())));
        assert_eq!(of("(amount = $1)", Some("numeric")), Some(Why::Type("numeric".to_string())));
        assert_eq!(
            of("(tsv @@ plainto_tsquery($1))", Some("tsvector")),
            Some(Why::Type("tsvector".to_string()))
        );
        assert_eq!(of("(tags && $1)", Some("text[]")), Some(Why::Type("text[]".to_string())));
        for free in ["(ref = $1)", "(ref <> $1)", "((ref)::text = $1)", "(ref >= $1)"] {
            assert_eq!(of(free, Some("text")), None, "{free}");
        }
    }
}

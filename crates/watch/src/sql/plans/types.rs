//! Types and values for parameters that stand where constants were: without a type the server refuses some statements, and Citus plans some for given values
//! only.

use super::{Failed, Session};
use serde_json::Value;

/// What stands for the parameters of a statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Values {
    /// Nothing: the plan is for any value.
    Unknown,
    /// A value of its type.
    Any,
}

/// Why there is no plan.
#[derive(Debug)]
pub(super) enum NotPlanned {
    /// It must not be planned, or the server refused.
    Why(String),
    /// The server found no operator or function for the types of its parameters.
    Type(String),
    /// One of its tables, or the catalog of schemas, is locked by another session.
    Locked(String),
    /// A table of others is named, and no session of the role that ran the statement was seen to use it yet.
    Unproved(String),
    /// The connection is gone.
    Gone(Failed),
}

impl From<Failed> for NotPlanned {
    fn from(failed: Failed) -> NotPlanned {
        match failed {
            Failed::Refused { sqlstate, message } if OF_TYPES.contains(&sqlstate.as_str()) => {
                NotPlanned::Type(message)
            }
            Failed::Refused { sqlstate, message } if sqlstate == LOCK_NOT_AVAILABLE => {
                NotPlanned::Locked(message)
            }
            Failed::Refused { message, .. } => NotPlanned::Why(message),
            gone => NotPlanned::Gone(gone),
        }
    }
}

/// Part of the message with which Citus refuses to plan for unknown values.
pub(super) const WANTS_VALUES: &str = "could not create distributed plan";

/// Types that are tried one after another for parameters that are computed together; then also for those that are computed with anything else.
pub(super) const TYPES: [(Alone, &str); 6] = [
    (Alone::Kept, "bigint"),
    (Alone::Kept, "integer"),
    (Alone::Kept, "text"),
    (Alone::Typed, "integer"),
    (Alone::Typed, "interval"),
    (Alone::Typed, "numeric"),
];

/// What is done with a parameter that is computed with something else than a parameter: `date + $1` has several meanings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Alone {
    /// It has the type that the server finds for it.
    Kept,
    /// It gets a type.
    Typed,
}

/// SQLSTATE of a lock that was not free within the limit.
const LOCK_NOT_AVAILABLE: &str = "55P03";

/// SQLSTATE: undefined function or operator, undefined type.
pub(super) const IS_UNDEFINED: [&str; 2] = ["42883", "42704"];

/// SQLSTATE: undefined function or operator, ambiguous function, datatype mismatch, indeterminate datatype.
const OF_TYPES: [&str; 4] = ["42883", "42725", "42804", "42P18"];

/// Gives the first of two parameters that are computed together a type: `$1 + $2` has none, and the server refuses it. All integer types compare with
/// bigint through the same indexes; where the server refuses that, too, another one of [`TYPES`] was meant.
pub(super) fn typed(plain: &str, (alone, kind): (Alone, &str)) -> String {
    let signs = ['+', '-', '*', '/', '%'];
    let mut out = String::with_capacity(plain.len());
    let mut rest = plain;
    while let Some(at) = rest.find('$') {
        let digits = rest[at + 1..].find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len() - at - 1);
        let end = at + 1 + digits;
        out.push_str(&rest[..at]);
        let follows = out.trim_end().ends_with(signs) || is_element(&out);
        let is_cast = out.trim_end().to_ascii_lowercase().ends_with("cast(");
        out.push_str(&rest[at..end]);
        rest = &rest[end..];
        let after = rest.trim_start();
        let is_computed = digits > 0 && after.starts_with(signs);
        let is_output = is_named(after) && !is_cast;
        let is_alone = digits > 0 && (follows || is_computed || is_output) && !after.starts_with("::");
        if is_computed && after[1..].trim_start().starts_with('$') || alone == Alone::Typed && is_alone {
            out.push_str("::");
            out.push_str(kind);
        }
    }
    out.push_str(rest);
    out
}

/// Whether a name follows: a constant that a query returns, such as the level of a recursive one. Without a type it would be a text, and `level + $2` would
/// have no operator.
fn is_named(after: &str) -> bool {
    after.get(..3).is_some_and(|word| word.eq_ignore_ascii_case("as "))
}

/// Whether what follows is an element of a list, or an argument of a function, of which several types fit.
fn is_element(before: &str) -> bool {
    let before = before.trim_end();
    let lower = before.to_ascii_lowercase();
    lower.ends_with("array[") || lower.ends_with("generate_series(")
}

/// The command that plans the prepared statement with some value for each parameter.
pub(super) fn with_any_values(session: &mut Session) -> Result<String, Failed> {
    let types = session.query(
        "select pg_catalog.to_json(parameter_types::pg_catalog.text[])::text from pg_catalog.pg_prepared_statements where name = 'pgfathom_plan'",
        &[],
    )?;
    let list: Vec<&str> =
        types.as_array().into_iter().flatten().filter_map(Value::as_str).map(any_value).collect();
    let list = if list.is_empty() { String::new() } else { format!("({})", list.join(", ")) };
    session.plain("set local plan_cache_mode = 'force_custom_plan'")?;
    Ok(format!("explain (verbose, format json) execute pgfathom_plan{list}"))
}

/// A constant of a type; NULL for types whose constants have a form of their own.
fn any_value(kind: &str) -> &'static str {
    match kind {
        "smallint" | "integer" | "bigint" | "numeric" | "real" | "double precision" | "oid" => "1",
        "text" | "character varying" | "character" | "name" => "'a'",
        "boolean" => "true",
        "date" | "timestamp without time zone" | "timestamp with time zone" => "'2000-01-01'",
        "uuid" => "'00000000-0000-0000-0000-000000000001'",
        _ => "null",
    }
}

#[cfg(test)]
mod tests {
    use super::{Alone, any_value, typed};

    #[test]
    fn each_type_has_a_value_or_null() {
        assert_eq!(["bigint", "text", "jsonb"].map(any_value), ["1", "'a'", "null"]);
    }

    #[test]
    fn parameters_that_are_computed_together_get_a_type() {
        assert_eq!(
            typed("select $1+$2, a - $3 from t where b = $4 * $5", (Alone::Kept, "bigint")),
            "select $1::bigint+$2, a - $3 from t where b = $4::bigint * $5"
        );
        assert_eq!(
            typed("select a from t where b = $1 and c || $2", (Alone::Kept, "integer")),
            "select a from t where b = $1 and c || $2"
        );
        assert_eq!(
            typed(
                "select a from t where b between current_date + $1 and c - $2::int and d -> $3 = $4",
                (Alone::Typed, "integer")
            ),
            "select a from t where b between current_date + $1::integer and c - $2::int and d -> $3 = $4"
        );
        assert_eq!(
            typed(
                "with recursive r as (select id, $1 AS level from t union all select t.id, r.level + $2 from t join r on t.above = r.id) \
                 select level, cast($3 as date) from r",
                (Alone::Typed, "integer")
            ),
            "with recursive r as (select id, $1::integer AS level from t union all select t.id, r.level + $2::integer from t join r on t.above = r.id) \
             select level, cast($3 as date) from r"
        );
        assert_eq!(
            typed("select a from t where b @> array[$1, $2] and c in ($3)", (Alone::Typed, "integer")),
            "select a from t where b @> array[$1::integer, $2] and c in ($3)"
        );
    }
}

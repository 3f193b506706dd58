//! Indexes that PostgreSQL refuses to create: with a column that the table does not have, or with an expression that is not IMMUTABLE. The catalog of the
//! recorded server shows that; what it does not show is no proof.

use crate::case::{Case, Thing};
use crate::rules::costly::parts_of;
use record::statement::{self, Call, Index};

/// Types whose texts depend on settings of the session (`*_out` in pg_proc.dat), and those whose input does (`*_in`).
const TEXT_DEPENDS: [&str; 6] =
    ["date", "timestamp without time zone", "timestamp with time zone", "interval", "money", "regclass"];
const INPUT_DEPENDS: [&str; 10] = [
    "date",
    "time",
    "timetz",
    "timestamp",
    "timestamptz",
    "interval",
    "money",
    "regclass",
    "regconfig",
    "timestamp with time zone",
];
/// Types of texts, as columns have them and as casts name them.
const TEXTS: [&str; 6] = ["text", "character varying", "character", "varchar", "char", "bpchar"];
const ZONED: &str = "timestamp with time zone";

/// A type without its length.
fn bare(kind: &str) -> &str {
    kind.split('(').next().unwrap_or(kind).trim_end()
}

/// Whether the result of a cast depends on a setting of the session: its time zone, the style of its dates (pg_cast.dat, and I/O conversions).
fn is_unstable(from: &str, to: &str) -> bool {
    let (from, to) = (bare(from), bare(to));
    let is_zoned = |kind: &str| kind == ZONED || kind == "timestamptz";
    let is_time =
        |kind: &str| ["date", "timestamp", "timestamp without time zone", "time", "timetz"].contains(&kind);
    let is_text = |kind: &str| TEXTS.contains(&kind);
    is_zoned(from) && is_time(to)
        || is_time(from) && is_zoned(to)
        || TEXT_DEPENDS.contains(&from) && is_text(to)
        || is_text(from) && INPUT_DEPENDS.contains(&to)
}

/// What the catalog has of a table.
fn table<'a>(case: &'a Case, node: &'a str, index: &Index) -> Option<Thing<'a>> {
    let mut tables = case.at("plan_table", node).filter(|table| {
        let (schema, name) = parts_of(table.lines.word("relation"));
        match index.table.as_slice() {
            [of, own] => *of == schema && *own == name,
            [own] => *own == name,
            _ => false,
        }
    });
    // Databases may have tables of one name with different columns.
    tables.next().filter(|_| tables.next().is_none())
}

/// The type of a column of a table; `None` if it has none of that name.
fn kind_of<'a>(table: &Thing<'a>, column: &str) -> Option<&'a str> {
    let columns = table.lines.word("columns").split("; ");
    columns.into_iter().find_map(|one| one.strip_prefix(column)?.strip_prefix(' '))
}

/// Whether a function of these types may be the one that is called.
fn fits(types: &str, call: &Call, table: &Thing<'_>) -> bool {
    if types.ends_with("...") {
        return true;
    }
    let types: Vec<&str> = types.split(", ").filter(|kind| !kind.is_empty()).collect();
    types.len() == call.arguments.len()
        && types.iter().zip(&call.arguments).all(|(kind, argument)| {
            let own = argument.as_ref().and_then(|column| kind_of(table, column));
            // What is converted to the type of an argument without a word of the statement is left out where a function takes the type itself.
            own.is_none_or(|own| bare(own) == bare(kind))
        })
}

/// Why a call is not IMMUTABLE, by all functions of its name that take such arguments.
fn unstable_call(case: &Case, node: &str, call: &Call, table: &Thing<'_>) -> Option<String> {
    let function = case.at("plan_function", node).find(|one| one.lines.word("name") == call.name)?;
    let all: Vec<(&str, &str)> =
        function.lines.word("overloads").split("; ").filter_map(|one| one.split_once(' ')).collect();
    let of = |is_it: &dyn Fn(&str) -> bool| -> Vec<(&str, &str)> {
        all.iter().copied().filter(|(_, types)| is_it(types)).collect()
    };
    let exact = of(&|types| fits(types, call, table));
    // Where no function takes exactly these types, any with so many arguments may be meant.
    let candidates =
        if exact.is_empty() { of(&|types| types.split(", ").count() == call.arguments.len()) } else { exact };
    let (volatility, types) = candidates.first()?;
    let is_immutable = candidates.iter().any(|(volatility, _)| *volatility == "i");
    let word = if *volatility == "s" { "STABLE" } else { "VOLATILE" };
    let zoned = call
        .arguments
        .iter()
        .flatten()
        .find(|column| kind_of(table, column).is_some_and(|kind| bare(kind) == ZONED));
    let otherwise =
        zoned.filter(|_| all.iter().any(|(volatility, _)| *volatility == "i")).map(|column| at_zone(column));
    (!is_immutable).then(|| {
        format!("{}({types}) is {word}, and {ONLY_IMMUTABLE}{}", call.name, otherwise.unwrap_or_default())
    })
}

/// What an index takes.
const ONLY_IMMUTABLE: &str = "an index takes only what is IMMUTABLE";

/// What is IMMUTABLE instead of a time of the session's time zone.
fn at_zone(column: &str) -> String {
    format!(
        " (of {} AT TIME ZONE 'UTC' it is, if the statement is written so as well)",
        statement::quoted(column)
    )
}

/// Why PostgreSQL refuses the index of a command; `None` if nothing proves it.
pub(super) fn why(case: &Case, node: &str, sql: &str) -> Option<String> {
    let index = statement::index(sql).ok()?;
    let table = table(case, node, &index)?;
    let relation = table.lines.word("relation");
    if let Some(column) = index.columns.iter().find(|column| kind_of(&table, column).is_none()) {
        return Some(format!("{relation} has no column {}", statement::quoted(column)));
    }
    let cast = index.casts.iter().find_map(|(column, to)| {
        let from = kind_of(&table, column)?;
        is_unstable(from, to).then(|| {
            let otherwise = if bare(from) == ZONED { at_zone(column) } else { String::new() };
            format!(
                "a cast of {from} to {to} depends on settings of the session, and {ONLY_IMMUTABLE}{otherwise}"
            )
        })
    });
    cast.or_else(|| index.calls.iter().find_map(|call| unstable_call(case, node, call, &table)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn casts_that_a_time_zone_or_a_style_decides_are_known() {
        for (from, to, is_one) in [
            ("timestamp with time zone", "date", true),
            ("timestamp without time zone", "date", false),
            ("date", "text", true),
            ("integer", "text", false),
            ("text", "date", true),
            ("character varying(20)", "timestamptz", true),
            ("character varying(20)", "integer", false),
            ("uuid", "text", false),
        ] {
            assert_eq!(is_unstable(from, to), is_one, "{from} {to}");
        }
    }
}

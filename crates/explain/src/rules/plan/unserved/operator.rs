//! Operators that no B-tree knows: which kind of index and operator class answers them, and whether one is there.

use super::alike::{alike, is_held};
use super::{Place, Reason};
use crate::rules::costly::plain;
use crate::rules::plan::distance::DISTANCES;
use crate::rules::plan::index::class_of;
use record::statement::{self, Condition, Conjunct};

/// Which kind of index serves an operator, and with which operator class if it is not the default one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Served {
    pub(super) method: &'static str,
    pub(super) class: &'static str,
    /// The extension that has it.
    pub(super) extension: &'static str,
}

const fn by(method: &'static str, class: &'static str, extension: &'static str) -> Served {
    Served { method, class, extension }
}

/// Operators of kinds of types, and what serves them (`pg_amop.dat`, and the scripts of the extensions).
const SERVED: &[(&[&str], &[&str], Served)] = &[
    (&["range"], &["&&", "@>", "<@", "-|-", "<<", ">>", "&<", "&>"], by("gist", "", "")),
    (&["[]"], &["&&", "@>", "<@"], by("gin", "", "")),
    (&["jsonb"], &["@>", "?", "?|", "?&", "@?", "@@"], by("gin", "", "")),
    (&["tsvector"], &["@@", "@@@"], by("gin", "", "")),
    (&["hstore"], &["@>", "?", "?|", "?&"], by("gin", "", "")),
    (&["inet", "cidr"], &["&&", "<<", "<<=", ">>", ">>="], by("gist", "inet_ops", "")),
    (&["ltree"], &["<@", "@>", "~", "?", "@"], by("gist", "", "")),
    (
        &["point", "box", "circle", "polygon"],
        &["&&", "@>", "<@", "~=", "<<", ">>", "&<", "&>", "<<|", "|>>", "&<|", "|&>", "<^", ">^"],
        by("gist", "", ""),
    ),
    (&["geometry", "geography"], &["&&", "@", "~", "~=", "&&&"], by("gist", "", "")),
    (&["cube"], &["&&", "@>", "<@"], by("gist", "", "")),
    (&["text", "character"], &["%", "<%", "%>", "<<%", "%>>"], by("gin", "gin_trgm_ops", "pg_trgm")),
    (&["text", "character"], &["^@"], by("spgist", "text_ops", "")),
];

/// Types that are plain values in an order.
const SCALARS: [&str; 8] =
    ["integer", "bigint", "smallint", "numeric", "date", "timestamp", "double precision", "real"];

/// What serves an operator on a type; `None` if nothing that is known.
pub(super) fn served(kind: &str, sign: &str) -> Option<Served> {
    // Types of extensions come with their schema.
    let kind = kind.rsplit_once('.').map_or(kind, |(_, name)| name);
    let is_of = |name: &&str| match *name {
        "[]" => kind.ends_with("[]"),
        "range" => kind.contains("range"),
        name => kind.starts_with(name) && !kind.ends_with("[]"),
    };
    SERVED
        .iter()
        .find(|(kinds, signs, _)| kinds.iter().any(&is_of) && signs.contains(&sign))
        .map(|found| found.2)
}

/// The words for a method.
fn name_of(method: &str) -> &'static str {
    match method {
        "gist" => "GiST",
        "gin" => "GIN",
        _ => "SP-GiST",
    }
}

/// Operators that ask for keys of a document, which `jsonb_path_ops` does not know.
const KEYS: [&str; 3] = ["?", "?|", "?&"];

/// Operators that the extension intarray has for arrays of integers.
const OF_INTARRAY: [&str; 3] = ["@>", "<@", "&&"];

/// An index that is there for it, and why it is not used; `None` if there is none, or nothing is known to speak against it.
enum There {
    Missing,
    Suited,
    Unsuited(String, Vec<String>),
}

fn there(place: &Place<'_, '_>, column: &str, sign: &str) -> There {
    let mut of_column = place.indexes.iter().filter(|(index, columns)| {
        !["btree", "hash", "brin"].contains(&index.lines.word("method")) && columns.contains(&column)
    });
    let Some((index, _)) = of_column.next() else { return There::Missing };
    let name = index.lines.word("index");
    if index.lines.flag("valid") == Some(false) {
        let schema = statement::schema_of(place.relation);
        let command = format!("REINDEX INDEX CONCURRENTLY {schema}.{};", statement::quoted(name));
        return There::Unsuited(format!("index {name} on it is invalid: its creation failed"), vec![command]);
    }
    if KEYS.contains(&sign) && class_of(index) == "jsonb_path_ops" {
        let why = format!(
            "index {name} on it is one of jsonb_path_ops, which knows @> and jsonpath, and not {sign}"
        );
        return There::Unsuited(why, vec![]);
    }
    let is_of_intarray = place.has_intarray && OF_INTARRAY.contains(&sign);
    if is_of_intarray && place.kind(column) == "integer[]" && class_of(index) == "array_ops" {
        let why = format!(
            "index {name} on it is one of array_ops, while {sign} means the operator of the extension intarray here, which fits arrays of integers better \
             and belongs to gin__int_ops"
        );
        let column = statement::quoted(column);
        let command =
            format!("CREATE INDEX CONCURRENTLY ON {} USING gin ({column} gin__int_ops);", place.relation);
        let other = format!("-- or write OPERATOR(pg_catalog.{sign}) instead of {sign} in the statement");
        return There::Unsuited(why, vec![command, other]);
    }
    let definition = index.lines.word("definition");
    if let Some((_, only)) =
        definition.split_once(" WHERE ").filter(|_| index.lines.flag("partial") == Some(true))
    {
        let why = format!(
            "index {name} on it is partial, for the rows WHERE {only} alone, which the condition does not have in that form"
        );
        return There::Unsuited(why, vec![]);
    }
    There::Suited
}

/// `column <@ range` of a plain value.
fn in_range(place: &Place<'_, '_>, column: &str) -> Reason {
    let words = format!(
        "{column} <@ range is an operator on plain values that no index serves, whatever index {column} has: with both ends compared a B-tree does"
    );
    let is_indexed = place.indexes.iter().any(|(_, columns)| columns.first() == Some(&column));
    let command = statement::index_command(place.relation, &[column.to_string()], true);
    Reason::of(
        words,
        format!("write {column} >= lower end AND {column} < upper end instead of {column} <@ range"),
        (!is_indexed).then_some(command).into_iter().collect(),
    )
}

/// The commands that make the index: alone, and with the columns that are compared besides.
fn commands(place: &Place<'_, '_>, what: &str, served: Served) -> Vec<String> {
    let Served { method, class, extension } = served;
    let class = if class.is_empty() { String::new() } else { format!(" {class}") };
    let mut all: Vec<String> = vec![];
    if !extension.is_empty() {
        all.push(format!("CREATE EXTENSION IF NOT EXISTS {extension};"));
    }
    all.push(format!("CREATE INDEX CONCURRENTLY ON {} USING {method} ({what}{class});", place.relation));
    let equal: Vec<String> = place.equal().iter().map(|column| statement::quoted(column)).collect();
    if !equal.is_empty() && method != "spgist" {
        all.push(format!(
            "CREATE INDEX CONCURRENTLY ON {} USING {method} ({}, {what}{class}); -- instead, with the extension btree_{method}: it finds both at once",
            place.relation,
            equal.join(", ")
        ));
    }
    all.push(format!("ANALYZE {};", place.relation));
    all
}

/// `value = ANY (column)`.
fn member(place: &Place<'_, '_>, column: &str) -> Reason {
    let is_there = place
        .indexes
        .iter()
        .any(|(index, columns)| index.lines.word("method") == "gin" && columns.contains(&column));
    let words = format!(
        "value = ANY ({column}) is served by no index; {column} @> ARRAY[value], which means the same, is by a GIN index"
    );
    let served = by("gin", "", "");
    let commands = if is_there { vec![] } else { commands(place, &statement::quoted(column), served) };
    Reason::of(words, format!("write {column} @> ARRAY[value], with a GIN index on the column"), commands)
}

/// Functions that make a range of two values (`rangetypes.sql`).
const RANGES: [&str; 6] = ["int4range", "int8range", "numrange", "tsrange", "tstzrange", "daterange"];

/// A range that is made of two columns of the row, as `tstzrange(begins, ends)`, which an operator compares with another one.
fn of_made_range(place: &Place<'_, '_>, part: &Conjunct, sign: &str) -> Option<Reason> {
    let (left, right) = part.text.split_once(&format!(" {sign} "))?;
    let is_made = |side: &&str| {
        let name = side.split('(').next().unwrap_or_default();
        RANGES.contains(&name) && side.ends_with(')') && !side.contains('$')
    };
    let made = place.without_alias([left, right].into_iter().find(is_made)?);
    if is_held(place, &made) {
        return None;
    }
    let served = by("gist", "", "");
    let words =
        format!("{sign} looks into {}, and only a GiST index on that expression serves it", plain(&made, 80));
    Some(Reason::of(
        words,
        "create the index, with the columns that are compared besides in front; where such rows must not be there at once, an exclusion constraint has that \
            index \
         and takes the place of the query",
        commands(place, &made, served),
    ))
}

/// Why an operator is not served.
pub(super) fn reason(place: &Place<'_, '_>, part: &Conjunct, sign: &str) -> Option<Reason> {
    if let Some(reason) = of_made_range(place, part, sign) {
        return Some(reason);
    }
    let Condition { column, inside, computed, .. } = place.own(part)?;
    if sign == "= ANY" {
        return Some(member(place, column));
    }
    let kind = place.kind(column);
    if sign == "<@"
        && inside.is_none()
        && SCALARS.iter().any(|name| kind.starts_with(name))
        && !kind.ends_with("[]")
    {
        return Some(in_range(place, column));
    }
    if DISTANCES.contains(&sign) {
        return None;
    }
    // What a text search makes of a text is of another type.
    let is_vector = inside.as_deref() == Some("function to_tsvector");
    let served = served(if is_vector { "tsvector" } else { kind }, sign)?;
    if let Some(inside) = inside {
        let shown = computed.as_deref().unwrap_or(column);
        if let Some(reason) = alike(place, shown) {
            return Some(reason);
        }
        let words = format!(
            "{sign} looks into {} ({inside} of {column}), and only an index on that expression serves it",
            plain(shown, 80)
        );
        let is_there = place
            .indexes
            .iter()
            .any(|(index, columns)| columns.contains(&"") && index.lines.word("method") == served.method);
        return (!is_there).then(|| on_expression(place, words, shown, served));
    }
    let method = name_of(served.method);
    match there(place, column, sign) {
        There::Suited => None,
        There::Missing => Some(Reason::of(
            format!("{sign} on {column} ({kind}) is served by no B-tree, and no {method} index is on it"),
            format!(
                "create a {method} index, the kind that knows {sign}; it is slower to write than a B-tree. Where rows must not overlap at all, an exclusion \
                 constraint has such an index"
            ),
            commands(place, &statement::quoted(column), served),
        )),
        There::Unsuited(why, mut all) => {
            if all.is_empty() {
                all = commands(place, &statement::quoted(column), served);
            }
            let words = format!("{sign} on {column} ({kind}) is served by no B-tree, and {why}");
            Some(Reason::of(words, "make the index one that the condition can use", all))
        }
    }
}

/// An index on an expression; one with a parameter in it is not offered for pasting.
fn on_expression(place: &Place<'_, '_>, words: String, shown: &str, served: Served) -> Reason {
    match shown.contains('$') {
        true => Reason::of(
            words,
            format!(
                "create a {} index on {shown}, with the constant of the application instead of the parameter",
                name_of(served.method)
            ),
            vec![],
        ),
        false => Reason::of(
            words,
            format!("create a {} index on that expression", name_of(served.method)),
            commands(place, &format!("({shown})"), served),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operator_has_its_kind_of_index_by_the_type() {
        let of = |kind: &str, sign: &str| served(kind, sign).map(|served| (served.method, served.class));
        assert_eq!(of("tsrange", "&&"), Some(("gist", "")));
        assert_eq!(of("int4multirange", "@>"), Some(("gist", "")));
        assert_eq!(of("integer[]", "&&"), Some(("gin", "")));
        assert_eq!(of("jsonb", "?"), Some(("gin", "")));
        assert_eq!(of("inet", "<<="), Some(("gist", "inet_ops")));
        assert_eq!(of("text", "%"), Some(("gin", "gin_trgm_ops")));
        assert_eq!(of("character varying(80)", "^@"), Some(("spgist", "text_ops")));
        assert_eq!(of("point", "<@"), Some(("gist", "")));
        // A remainder, and what nothing serves.
        assert_eq!(of("integer", "%"), None);
        assert_eq!(of("json", "->"), None);
        assert_eq!(of("text[]", "%"), None);
    }
}

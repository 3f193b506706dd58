//! The reason of each form of a condition's part but that of an operator.

use super::alike::{alike, is_held};
use super::{Place, Reason, distance, operator};
use crate::rules::costly::plain;
use crate::rules::paste::literal;
use crate::rules::plan::index::{class_of, serves};
use crate::rules::plan::number;
use record::statement::{self, Condition, Conjunct, Form, Use};

/// The share of the rows of a column's most frequent value, from which on those that differ from it are few.
const MOST_MIN: f64 = 0.9;
/// Characters of a condition in a claim.
const CONDITION_CHARS: usize = 100;
/// What the record does not show of columns that are compared with each other, and of functions.
const UNKNOWN: &str = "how many rows fit: the planner has no statistics of it";

/// Why no index serves a part of a condition; `None` if one does, or nothing is known.
pub(super) fn reason(place: &Place<'_, '_>, part: &Conjunct) -> Option<Reason> {
    match &part.form {
        Form::Operator(sign) => operator::reason(place, part, sign),
        Form::Unequal => unequal(place, part),
        Form::Fixed => fixed(place, part),
        Form::Compared => distance::reason(place, part).or_else(|| compared(place, place.own(part)?)),
        Form::Pattern => pattern(place, place.own(part)?),
        Form::Columns => columns(place, part),
        Form::Either => either(place, part),
        Form::Other => called(place, part),
    }
}

/// A part of a condition as an index has it, and as a claim shows it.
fn shown(place: &Place<'_, '_>, part: &Conjunct) -> (String, String) {
    let text = place.without_alias(&part.text);
    let short = plain(&text, CONDITION_CHARS);
    (text, short)
}

/// The columns of an index for few rows that a partial condition leaves: those compared with one value, else the one that is looked at.
fn keys(place: &Place<'_, '_>, column: &str) -> String {
    let equal: Vec<String> =
        place.equal().iter().filter(|one| *one != column).map(|one| statement::quoted(one)).collect();
    let above = place.planned.ancestors(&place.node);
    let sort = above.iter().find(|node| node.lines.word("kind").ends_with("Sort"));
    let order = sort.map(|node| place.without_alias(node.lines.word("condition"))).unwrap_or_default();
    let is_plain = !order.is_empty() && !order.contains(['.', '$', '(']);
    let all: Vec<String> = equal.into_iter().chain(is_plain.then_some(order)).collect();
    if all.is_empty() { statement::quoted(column) } else { all.join(", ") }
}

/// A partial index of the table whose condition names a column.
fn partial_on<'a>(place: &Place<'_, 'a>, column: &str) -> Option<(&'a str, &'a str)> {
    place.indexes.iter().find_map(|(index, _)| {
        let only = index.lines.word("definition").split_once(" WHERE ")?.1;
        let is_name = |c: char| c.is_alphanumeric() || c == '_';
        let names = only.split(|c: char| !is_name(c)).any(|word| word == column);
        (names && index.lines.flag("valid") != Some(false)).then_some((index.lines.word("index"), only))
    })
}

/// `<>` and its kin.
fn unequal(place: &Place<'_, '_>, part: &Conjunct) -> Option<Reason> {
    let Condition { column, .. } = place.own(part).filter(|one| one.inside.is_none())?;
    let most = place.most(column).filter(|share| *share >= MOST_MIN)?;
    let kept = place.rows() * (1.0 - most);
    // Of what another index has found, the same share differs.
    let reached = if place.is_scan() { place.rows() } else { number(&place.node, "rows_planned") };
    let left = reached * (1.0 - most);
    let (_, short) = shown(place, part);
    let differ = format!(
        "one value of {column} has {:.1} % of the rows, so that about {} differ from it",
        most * 100.0,
        crate::units::count(kept)
    );
    if let Some((index, only)) = partial_on(place, column) {
        let words = format!(
            "{short} could be answered by index {index}, which holds only the rows WHERE {}, but the planner must see the same constant in the statement, and \
             not a parameter",
            plain(only, CONDITION_CHARS)
        );
        let text = "write the condition of the index into the statement, with its constant; a prepared statement with a parameter instead cannot use the index \
                    once its plan is made for all values (plan_cache_mode = force_custom_plan plans for each)";
        return Some(Reason { kept: Some(left), ..Reason::of(words, text, vec![]) });
    }
    // The most frequent value is in the statistics of the server alone: they write the command.
    let keys = keys(place, column);
    let body = format!(
        "CREATE INDEX CONCURRENTLY ON {} ({keys}) WHERE {} <> %L;",
        place.relation.replace('%', "%%"),
        statement::quoted(column).replace('%', "%%")
    );
    let command = format!(
        "SELECT format({}, (most_common_vals::text::text[])[1]) FROM pg_stats WHERE format('%I.%I', schemaname, tablename) = {} AND attname = {}; -- prints \
         the command: it is right if the statement excludes this value",
        literal(&body),
        literal(place.relation),
        literal(column)
    );
    let words = format!(
        "{short} is served by no index as it is: an order of values has no place for all but one; {differ}"
    );
    let text = "create a partial index that leaves out the frequent value, and keep that value as a constant in the statement; or ask for the few other \
                values by = ANY, which an index on the column serves";
    Some(Reason {
        kept: Some(left),
        ..Reason::of(words, text, vec![command, format!("ANALYZE {};", place.relation)])
    })
}

/// What is the same for each execution: a flag, IS NOT NULL.
fn fixed(place: &Place<'_, '_>, part: &Conjunct) -> Option<Reason> {
    let Condition { column, .. } = place.own(part).filter(|one| one.inside.is_none())?;
    let is_there = place.indexes.iter().any(|(index, columns)| {
        columns.first() == Some(&column.as_str())
            && serves(index, Use::Equality)
            && index.lines.flag("valid") != Some(false)
    });
    if is_there
        || partial_on(place, column).is_some()
        || place.most(column).is_some_and(|share| share < MOST_MIN)
    {
        return None;
    }
    let (text, short) = shown(place, part);
    let words =
        format!("{short} is checked for each row that is read, and no index holds only the rows that fit it");
    let command =
        format!("CREATE INDEX CONCURRENTLY ON {} ({}) WHERE {text};", place.relation, keys(place, column));
    Some(Reason::of(
        words,
        "create a partial index with this condition: it holds only the rows that fit, and is as small as they are few",
        vec![command, format!("ANALYZE {};", place.relation)],
    ))
}

/// A column, or what is computed from it, with a value.
fn compared(place: &Place<'_, '_>, one: &Condition) -> Option<Reason> {
    if let Some(inside) = &one.inside {
        return of_expression(place, one, inside);
    }
    if !one.how.is_compared() {
        return None;
    }
    let mut wanted: Vec<Condition> = place.searched();
    wanted.push(one.clone());
    let columns = statement::index_columns(&wanted);
    let has_all = |(_, of_index): &&(crate::case::Thing<'_>, Vec<&str>)| {
        columns.iter().all(|column| of_index.contains(&column.as_str()))
    };
    let (partial, whole): (Vec<_>, Vec<_>) = place
        .indexes
        .iter()
        .filter(has_all)
        .partition(|(index, _)| index.lines.flag("partial") == Some(true));
    if !columns.contains(&one.column) || !whole.is_empty() {
        return None;
    }
    let only = partial.first().and_then(|(index, _)| {
        let only = index.lines.word("definition").split_once(" WHERE ")?.1;
        Some(format!(
            "; index {} has them, but holds only the rows WHERE {}, which the condition does not ask for in that form",
            index.lines.word("index"),
            plain(only, CONDITION_CHARS)
        ))
    });
    let is_first = place.indexes.iter().find(|(index, of_index)| {
        let is_whole = index.lines.flag("partial") != Some(true);
        is_whole && of_index.first() == Some(&one.column.as_str()) && serves(index, one.how)
    });
    let words = match is_first {
        Some((index, _)) => format!(
            "index {} has {}, and none has it together with {}: the rows that one of them finds are read and compared with the other",
            index.lines.word("index"),
            one.column,
            columns.iter().filter(|column| **column != one.column).cloned().collect::<Vec<_>>().join(", ")
        ),
        None => format!("no index begins with {}", columns.join(", ")),
    };
    Some(Reason::of(
        format!("{words}{}", only.unwrap_or_default()),
        "create an index of these columns, those compared by equality first; it can take the place of one that begins in the same way",
        vec![
            statement::index_command(place.relation, &columns, true),
            format!("ANALYZE {};", place.relation),
        ],
    ))
}

/// What is computed from a column.
fn of_expression(place: &Place<'_, '_>, one: &Condition, inside: &str) -> Option<Reason> {
    let computed = one.computed.as_deref()?;
    if is_held(place, computed) || matches!(one.how, Use::Other) {
        return None;
    }
    if let Some(reason) = alike(place, computed) {
        return Some(reason);
    }
    let own = place.indexes.iter().find(|(_, columns)| columns.first() == Some(&one.column.as_str()));
    let beside = own.map_or(String::new(), |(index, _)| {
        format!(", and index {} is on {} itself", index.lines.word("index"), one.column)
    });
    let words = format!(
        "the condition compares {inside} of {}{beside}: no index holds {}",
        one.column,
        plain(computed, CONDITION_CHARS)
    );
    if computed.contains('$') {
        let text = format!(
            "compare the column itself, or create an index on {}, with the constant that the application sends in the place of the parameter",
            plain(computed, CONDITION_CHARS)
        );
        return Some(Reason::of(words, text, vec![]));
    }
    let command = format!(
        "CREATE INDEX CONCURRENTLY ON {} (({computed})); -- refused if it is not immutable",
        place.relation
    );
    Some(Reason::of(
        words,
        "compare the column itself with a value of its own type, or create an index on what is compared",
        vec![command, format!("ANALYZE {};", place.relation)],
    ))
}

/// A pattern beside an index of other columns.
fn pattern(place: &Place<'_, '_>, one: &Condition) -> Option<Reason> {
    let column = statement::quoted(&one.column);
    let trigrams = place.indexes.iter().find(|(index, columns)| {
        class_of(index).ends_with("_trgm_ops") && columns.first() == Some(&one.column.as_str())
    });
    if let Some((index, _)) = trigrams {
        let words = format!(
            "index {} has the trigrams of {}, and is not used: a pattern with fewer than three letters or digits in a row has none to look for",
            index.lines.word("index"),
            one.column
        );
        let text = "do not search before three characters are typed; for shorter ones show the rows that begin with them";
        return Some(Reason {
            lacking: Some("how long the patterns are"),
            ..Reason::of(words, text, vec![])
        });
    }
    if one.inside.is_some() {
        return None;
    }
    let words = format!(
        "{} is searched by a pattern, for which no index of it is there (trigrams; or text_pattern_ops if the pattern begins with fixed characters)",
        one.column
    );
    Some(Reason {
        lacking: Some("what the patterns begin with"),
        ..Reason::of(
            words,
            "create an index with trigrams, which finds a pattern anywhere in a text",
            vec![
                "CREATE EXTENSION IF NOT EXISTS pg_trgm;".to_string(),
                format!("CREATE INDEX CONCURRENTLY ON {} USING gin ({column} gin_trgm_ops);", place.relation),
            ],
        )
    })
}

/// Two columns of one row.
fn columns(place: &Place<'_, '_>, part: &Conjunct) -> Option<Reason> {
    let (text, short) = shown(place, part);
    let first = &place.own(part)?.column;
    if partial_on(place, first).is_some() {
        return None;
    }
    let words =
        format!("{short} compares two columns of the same row, which no index on either of them finds");
    let command =
        format!("CREATE INDEX CONCURRENTLY ON {} ({}) WHERE {text};", place.relation, keys(place, first));
    // The rows that an execution returns show how few fit, where nothing takes them together.
    let is_summed = super::is_aggregated(place.planned, &place.node);
    let few = place
        .planned
        .statement
        .rows
        .filter(|rows| !is_summed && *rows <= place.rows() * super::KEPT_SHARE_MAX);
    Some(Reason {
        kept: few,
        lacking: few.is_none().then_some(UNKNOWN),
        ..Reason::of(
            words,
            "create a partial index with this condition; where it is compared with a value as well, an index on the difference of both",
            vec![command, format!("ANALYZE {};", place.relation)],
        )
    })
}

/// OR.
fn either(place: &Place<'_, '_>, part: &Conjunct) -> Option<Reason> {
    let (_, short) = shown(place, part);
    let is_subquery = short.contains("SubPlan");
    let words = format!(
        "{short} is an OR, which is answered by indexes only if each side of it has one, and none of them decides it beside the rest"
    );
    let text = match is_subquery {
        true => "write a UNION of two statements, one for each side: each can read its rows by an index",
        false => {
            "write a UNION of one statement for each side, each with an index for its side and the rest of the condition"
        }
    };
    Some(Reason { lacking: Some(UNKNOWN), ..Reason::of(words, text, vec![]) })
}

/// A function that decides about each row.
fn called(place: &Place<'_, '_>, part: &Conjunct) -> Option<Reason> {
    let (text, short) = shown(place, part);
    let name = text.split('(').next().filter(|name| statement::is_name(name) && text.contains('('))?;
    let is_known =
        text.contains("SubPlan") || name.eq_ignore_ascii_case("not") || name.eq_ignore_ascii_case("exists");
    if is_known {
        return None;
    }
    let words =
        format!("{short} is decided by a function for each row that is read, and no index holds its results");
    let last = name.rsplit('.').next().unwrap_or(name);
    Some(Reason {
        lacking: Some(UNKNOWN),
        ..Reason::of(
            words,
            "add a condition on the columns themselves that an index can search, so that the function is called for few rows; or write what the function \
             compares as a condition; one without a value of the statement, and IMMUTABLE, can be the condition of a partial index",
            vec![format!(
                "SELECT oid::regprocedure, provolatile FROM pg_proc WHERE proname = {};",
                literal(last)
            )],
        )
    })
}

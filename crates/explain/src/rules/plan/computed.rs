//! PLAN-50: conditions and joins that compare what is computed from a column, where no index holds the result.

use super::KEPT_SHARE_MAX;
use super::index::{indexes, scans_of};
use super::unusable::is_obstructed;
use super::{Planned, SHARE_MIN, planned, severity, step};
use crate::case::Case;
use crate::rule::{Answer, Claim};
use crate::rules::costly::{closing, lowered, plain};
use crate::rules::paste;
use crate::rules::statement::explain_it;
use crate::units;
use record::event;
use record::finding::{Level, Severity};
use record::statement::{self, Condition, Use};

/// A table that is read as a whole for it.
struct Found<'a> {
    relation: &'a str,
    rows: f64,
    condition: Condition,
    /// The condition as the plan has it.
    shown: &'a str,
    is_join: bool,
}

/// What an index of the result would serve.
fn is_served(condition: &Condition) -> bool {
    let is_of_collation = condition.inside.as_deref().is_some_and(|inside| inside.starts_with("collation "));
    condition.computed.is_some()
        && !is_of_collation
        && matches!(condition.how, Use::Equality | Use::Join | Use::Range)
}

/// A scan for few rows by nothing but what is computed.
fn of_scan<'a>(planned: &Planned<'a>) -> Option<Found<'a>> {
    let mut scans = scans_of(planned);
    scans.retain(|scan| scan.keeps_few() && statement::index_columns(&scan.conditions).is_empty());
    let scan = scans.into_iter().max_by(|left, right| left.rows.total_cmp(&right.rows))?;
    let condition = scan.conditions.into_iter().find(is_served)?;
    Some(Found { relation: scan.relation, rows: scan.rows, condition, shown: scan.filter, is_join: false })
}

fn of_join<'a>(planned: &Planned<'a>) -> Option<Found<'a>> {
    let join = step::join_of_few(planned, |_, condition| is_served(condition).then(|| condition.clone()))?;
    Some(Found {
        relation: join.relation,
        rows: join.rows,
        condition: join.found,
        shown: join.condition,
        is_join: true,
    })
}

/// An expression without what its writers differ in: blanks, quotes, parentheses, and the case of letters.
fn bare(text: &str) -> String {
    let is_kept = |c: &char| !c.is_whitespace() && !matches!(c, '"' | '(' | ')');
    text.chars().filter(is_kept).flat_map(char::to_lowercase).collect()
}

/// Whether an index holds the result: it is there and the plan does without it, so that another one would not help.
fn is_indexed(case: &Case, planned: &Planned<'_>, found: &Found<'_>) -> bool {
    let computed = bare(found.condition.computed.as_deref().unwrap_or_default());
    let holds = |definition: &str| bare(definition).contains(&computed);
    indexes(case, planned, found.relation).iter().any(|(index, _)| holds(index.lines.word("definition")))
}

/// Whether the statement returns so many rows that a scan is right, whatever the planner guesses of a computed value.
fn returns_many(planned: &Planned<'_>, found: &Found<'_>) -> bool {
    planned.statement.rows.is_some_and(|rows| rows > found.rows * KEPT_SHARE_MAX)
}

/// What is computed, with the names of the fields of documents as sessions sent them, in the place of parameters.
fn with_keys(case: &Case, planned: &Planned<'_>, computed: &str) -> String {
    let of_it = case
        .events_of(event::QUERY)
        .filter(|event| Case::word_of(event, "query_id") == planned.statement.query_id);
    let keys = of_it.map(|event| Case::word_of(event, event::DOCUMENT_KEYS)).find(|keys| !keys.is_empty());
    let known = |number: &str| {
        let mut pairs = keys.unwrap_or_default().split("; ").filter_map(|pair| pair.split_once(' '));
        pairs.find(|(parameter, _)| *parameter == number).map(|(_, name)| name)
    };
    let mut pieces = computed.split('$');
    let begin = pieces.next().unwrap_or_default().to_string();
    pieces.fold(begin, |text, piece| {
        let digits = piece.bytes().take_while(u8::is_ascii_digit).count();
        match known(&format!("${}", &piece[..digits])) {
            Some(name) => format!("{text}{}{}", paste::literal(name), &piece[digits..]),
            None => format!("{text}${piece}"),
        }
    })
}

/// That an index on the column is there, and what it serves instead.
fn other_operators(all: &[(crate::case::Thing<'_>, Vec<&str>)], condition: &Condition) -> Option<String> {
    let (index, _) = all.iter().find(|(index, columns)| {
        index.lines.word("method") == "gin" && columns.first() == Some(&condition.column.as_str())
    })?;
    let classes = index.lines.word("operator_classes");
    let serves = match classes.split("; ").next().unwrap_or_default() {
        "jsonb_path_ops" => "@>, @? and @@",
        "jsonb_ops" => "@>, ?, ?|, ?&, @? and @@",
        "hstore_ops" => "@>, ?, ?& and ?|",
        "array_ops" => "@>, <@, && and =",
        _ => return None,
    };
    Some(format!(
        "; index {} (GIN) on {} serves only {serves}: a search written with one of these can use it, too",
        index.lines.word("index"),
        condition.column
    ))
}

/// Text and commands of the remedy.
/// Functions of pgcrypto that give the plain value.
const DECRYPTS: [&str; 6] = [
    "pgp_sym_decrypt",
    "pgp_sym_decrypt_bytea",
    "pgp_pub_decrypt",
    "pgp_pub_decrypt_bytea",
    "decrypt",
    "decrypt_iv",
];

/// What to do about a search for a value that is stored encrypted: an index on the plain value would give it away.
fn of_secret(relation: &str, condition: &Condition) -> Option<(String, Vec<String>)> {
    let function = condition.inside.as_deref()?.strip_prefix("function ")?;
    let column = &condition.column;
    let hashed = statement::quoted(&format!("{column}_hmac"));
    let is_secret = DECRYPTS.contains(&function.rsplit('.').next()?);
    is_secret.then(|| {
        (
            "keep a keyed hash of the value beside it (a blind index), search by that, and decrypt only the rows that are found; an index on the plain value \
                would hold it in the clear"
                .to_string(),
            vec![
                format!("ALTER TABLE {relation} ADD COLUMN {hashed} bytea; -- hmac(value, key, 'sha256'), computed where the key is; fill it in batches"),
                format!("CREATE INDEX CONCURRENTLY ON {relation} ({hashed}); -- then WHERE {hashed} = hmac(...)"),
            ],
        )
    })
}

fn remedy(case: &Case, planned: &Planned<'_>, found: &Found<'_>) -> (String, Vec<String>) {
    let Found { relation, condition, .. } = found;
    let computed = with_keys(case, planned, condition.computed.as_deref().unwrap_or_default());
    let column = statement::quoted(&condition.column);
    if let Some(remedy) = of_secret(relation, condition) {
        return remedy;
    }
    let has_parameter = computed.contains('$');
    let mut commands = vec![];
    let all = indexes(case, planned, relation);
    let own = all.iter().find(|(_, columns)| columns.first() == Some(&condition.column.as_str()));
    let is_cast = condition.inside.as_deref().is_some_and(|inside| inside.starts_with("a cast"));
    let mut text = match own {
        Some((index, _)) if is_cast => format!(
            "give both sides the same type: cast the other side instead of {column}, and {} serves it (better still, let both columns have one type), or \
             create an index on what is compared",
            index.lines.word("index")
        ),
        _ if is_cast && found.is_join => {
            format!("give both columns the same type and create an index on {column}, or create an index on what is compared")
        }
        _ => "create an index on what is compared, written as the statement writes it, or keep the result in a generated column and index that".to_string(),
    };
    if let Some(words) = other_operators(&all, condition) {
        text.push_str(&words);
    }
    if has_parameter {
        text.push_str("; the index needs the constant that the application sends instead of the parameter (the name of a field of a document, for instance)");
        // Not by its query_id, which the view has from PostgreSQL 14 on.
        let table = relation.rsplit('.').next().unwrap_or(relation).trim_matches('"');
        commands.push(format!(
            "SELECT pid, query FROM pg_stat_activity WHERE state = 'active' AND pid <> pg_backend_pid() AND query ILIKE {}; -- with its constants",
            paste::literal(&format!("%{table}%"))
        ));
    } else {
        commands.push(format!(
            "CREATE INDEX CONCURRENTLY ON {relation} (({computed})); -- refused if it is not immutable (a time zone, a locale)"
        ));
        commands.push(format!("ANALYZE {relation};"));
    }
    commands.push(explain_it(case, &planned.time.node, planned.statement));
    (text, commands)
}

/// What is looked for among the elements that a function makes of a column: `value = ANY (string_to_array(column, ','))`.
fn list_of(filter: &str) -> Option<(&str, &str)> {
    let (_, list) = filter.split_once("= ANY (")?;
    let name = list
        .split('(')
        .next()
        .filter(|name| !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "_.".contains(c)))?;
    let call = &list[..=name.len() + closing(&list[name.len()..])?];
    let makes_list = MAKE_LISTS.iter().any(|made| name.rsplit('.').next().is_some_and(|bare| bare == *made));
    (call.contains('.') && makes_list).then_some((name, call))
}

/// Functions that make a list of a text.
const MAKE_LISTS: [&str; 3] = ["string_to_array", "regexp_split_to_array", "regexp_match"];

/// A scan that makes a list of each row to look into it.
fn of_list(case: &Case, planned: &Planned<'_>) -> Option<Claim> {
    let scans = scans_of(planned);
    let (scan, (function, call)) = scans.iter().find_map(|scan| Some((scan, list_of(scan.filter)?)))?;
    let text = format!(
        "a statement that takes {} of the session time reads all {} rows of {} and takes a text apart in each, to look for one element of {}",
        planned.share(),
        units::short(scan.rows),
        scan.relation,
        plain(call, CALL_CHARS)
    );
    Some(
        planned
            .claim(case, Level::CoOccurrence, severity(planned.statement.share).max(Severity::Medium), text)
            .number("rows_of_table", scan.rows)
            .because(format!("the plan has nothing but a sequential scan for {}", scan.filter))
            .because(planned.file())
            .not("a missing index on the column: in the order of whole texts nothing inside of them is found")
            .remedy(
                format!(
                    "keep the elements as rows of a table of their own, with an index; or as an array with a GIN index, searched by column @> ARRAY[value] (an \
                     index on {function}() of the column serves that as well, if the function is immutable)"
                ),
                &[&explain_it(case, &planned.time.node, planned.statement)],
            ),
    )
}

/// Functions that make rows of the elements of a value.
const ELEMENTS: [&str; 16] = [
    "jsonb_array_elements_text",
    "jsonb_array_elements",
    "json_array_elements_text",
    "json_array_elements",
    "jsonb_each_text",
    "jsonb_each",
    "json_each",
    "jsonb_object_keys",
    "jsonb_path_query",
    "jsonb_to_recordset",
    "json_to_recordset",
    "unnest",
    "string_to_table",
    "regexp_split_to_table",
    "regexp_matches",
    "xmltable",
];

/// A call in the text of a statement that makes rows of the elements of a column: the function, the table as it is written in front of the column, and the
/// column.
fn elements_of(text: &str) -> Option<(&'static str, String, String)> {
    let text = lowered(text);
    let is_word = |c: char| c.is_alphanumeric() || "_.\"".contains(c);
    ELEMENTS.into_iter().find_map(|function| {
        text.match_indices(function).find_map(|(at, _)| {
            let inside = text[at + function.len()..].trim_start().strip_prefix('(')?;
            let is_whole = !text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
            let argument: String =
                inside.trim_start_matches(['(', ' ']).chars().take_while(|c| is_word(*c)).collect();
            let (table, column) = argument.rsplit_once('.').unwrap_or(("", &argument));
            let is_column = column.starts_with(|c: char| c.is_alphabetic() || c == '_' || c == '"');
            (is_whole && is_column).then(|| (function, table.replace('"', ""), column.replace('"', "")))
        })
    })
}

/// How the elements of a value are chosen: by the condition of the scan that asks a subquery for them, or by that of the step that makes them rows.
/// Without one, all of them are wanted.
fn choice<'a>(planned: &Planned<'a>, scan: &crate::case::Thing<'a>) -> Option<&'a str> {
    let of_scan = Some(scan.lines.word("filter")).filter(|filter| filter.contains("SubPlan"));
    let makes_rows = ["Function Scan", "Table Function Scan", "Subquery Scan", "ProjectSet", "Result"];
    let steps = planned.nodes.iter().filter(|node| makes_rows.contains(&node.lines.word("kind")));
    let of_step = steps.map(|node| node.lines.word("filter")).find(|filter| !filter.is_empty());
    of_step.or(of_scan)
}

/// A scan of all rows that takes a value apart in each, to look for something among its elements.
fn of_elements(case: &Case, planned: &Planned<'_>) -> Option<Claim> {
    let (function, written, column) = elements_of(&planned.statement.text)?;
    let is_its = |node: &&crate::case::Thing<'_>| {
        let (alias, relation) = (node.lines.word("alias"), node.lines.word("relation"));
        let bare = relation.rsplit('.').next().unwrap_or(relation).trim_matches('"');
        let is_named = written.is_empty() || alias.eq_ignore_ascii_case(&written) || bare == written;
        let filter = node.lines.word("filter");
        let is_whole = filter.is_empty() || filter.contains("SubPlan");
        is_named
            && is_whole
            && node.lines.word("kind") == "Seq Scan"
            && node.lines.last("table_rows").is_some()
    };
    let scan = planned.nodes.iter().filter(is_its).max_by(|left, right| {
        super::number(left, "table_rows").total_cmp(&super::number(right, "table_rows"))
    })?;
    let (relation, rows) = (scan.lines.word("relation"), super::number(scan, "table_rows"));
    let returned = planned.statement.rows.unwrap_or(f64::MAX);
    if rows < ROWS_MIN || returned > rows * KEPT_SHARE_MAX {
        return None;
    }
    let choice = choice(planned, scan)?;
    // An order among values, as > or <, is none of containment, which a GIN index answers.
    let is_ordered = [" > ", " < ", " >= ", " <= "].iter().any(|operator| choice.contains(operator));
    let gin = indexes(case, planned, relation).into_iter().find(|(index, columns)| {
        index.lines.word("method") == "gin" && columns.first() == Some(&column.as_str())
    });
    let there = gin.as_ref().map_or(String::new(), |(index, _)| {
        format!("; index {} on it answers {column} @> value, and not this", index.lines.word("index"))
    });
    let text = format!(
        "a statement that takes {} of the session time reads all {} rows of {relation} and takes {column} of each apart with {function}(), to look for \
            something among its elements{there}",
        planned.share(),
        units::short(rows),
    );
    let command = (gin.is_none() && !is_ordered).then(|| {
        format!(
            "CREATE INDEX CONCURRENTLY ON {relation} USING gin ({}); -- for {column} @> value",
            statement::quoted(&column)
        )
    });
    let explain = explain_it(case, &planned.time.node, planned.statement);
    let commands: Vec<&str> = command.as_deref().into_iter().chain([explain.as_str()]).collect();
    Some(
        planned
            .claim(case, Level::CoOccurrence, severity(planned.statement.share).max(Severity::Medium), text)
            .number("rows_of_table", rows)
            .because(planned.file())
            .not("a missing index on a column: the condition is on elements that the function makes")
            .because(format!("the condition on the elements: {}", plain(choice, CALL_CHARS)))
            .lacking("whether few rows have such an element: it may need most of them")
            .remedy(if is_ordered { OF_ROWS } else { BY_CONTAINMENT }, &commands),
    )
}

/// What to do about a search for equal elements, and about one by their order.
const BY_CONTAINMENT: &str = "write the search as containment (documents: doc @> '{\"items\": [{\"no\": 7}]}'; arrays: column @> ARRAY[value]), which a GIN \
    index answers; or keep the elements as rows of a table of their own";
const OF_ROWS: &str = "keep the elements as rows of a table of their own, with an index on what is compared: no index of the documents or arrays is in the \
    order of their elements";

/// Rows of a table that are taken apart.
const ROWS_MIN: f64 = 1_000.0;
/// Characters of a call in a claim.
const CALL_CHARS: usize = 80;

/// PLAN-50.
pub(super) fn computed(case: &Case) -> Answer {
    let mut claims = vec![];
    for planned in planned(case, SHARE_MIN).filter(|planned| !is_obstructed(case, planned)) {
        let Some(found) = of_scan(&planned).or_else(|| of_join(&planned)) else {
            claims.extend(of_list(case, &planned).or_else(|| of_elements(case, &planned)));
            continue;
        };
        if is_indexed(case, &planned, &found) || returns_many(&planned, &found) {
            continue;
        }
        let computed = found.condition.computed.clone().unwrap_or_default();
        let what = found.condition.inside.clone().unwrap_or_default();
        let text = format!(
            "a statement that takes {} of the session time reads all {} rows of {} to compare {computed} with {}: {what} of {} is in no index",
            planned.share(),
            units::short(found.rows),
            found.relation,
            if found.is_join { "a column of another table" } else { "a value" },
            found.condition.column
        );
        let (advice, commands) = remedy(case, &planned, &found);
        let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
        claims.push(
            planned
                .claim(
                    case,
                    Level::CoOccurrence,
                    severity(planned.statement.share).max(Severity::Medium),
                    text,
                )
                .number("rows_of_table", found.rows)
                .because(format!("the plan has nothing but a sequential scan for {}", found.shown))
                .because(planned.file())
                .lacking("how many rows satisfy it: the planner guesses that of a computed value, and a condition that many rows satisfy needs the scan")
                .remedy(advice, &commands),
        );
    }
    Answer::of(claims, || "conditions of plans on what is computed from a column".to_string())
}

/// Whether PLAN-50 names a value that is taken apart in each row.
pub(super) fn is_taken_apart(case: &Case, planned: &Planned<'_>) -> bool {
    planned.statement.share >= SHARE_MIN && of_elements(case, planned).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_column_that_is_taken_apart_is_the_first_argument() {
        let of =
            |text: &str| elements_of(text).map(|(name, table, column)| format!("{name} {table} {column}"));
        assert_eq!(
            of("SELECT 1 FROM o WHERE EXISTS (SELECT FROM jsonb_array_elements(o.doc -> $1) r WHERE r ->> $2 = $3)").as_deref(),
            Some("jsonb_array_elements o doc")
        );
        assert_eq!(of("select id from t where $1 in (select unnest(tags))").as_deref(), Some("unnest  tags"));
        assert_eq!(of("select * from unnest($1::int[])"), None);
        assert_eq!(of("select my_unnest(a) from t"), None);
    }
}

//! PLAN-79, PLAN-80: types of columns that make statements dear: documents that are kept as text, and values that are padded with blanks.

use super::costly::{busy, in_a_line, is_name_of, plain, severity, table_named};
use crate::case::{Case, Thing};
use crate::rule::Need::Field;
use crate::rule::{Answer, Claim, Rule};
use crate::rules::statement::explain_it;
use crate::units;
use record::finding::{Level, NodeTime, Severity, StatementTime};
use record::statement;
use record::watched::{COLUMN_KINDS, FUNCTION_TEXT};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "PLAN-79",
        title: "documents of type json are parsed for each of their fields",
        needs: &[Field("server", "sessions_active")],
        limits: "20 % of the session time in a statement that takes three fields or more from a column of type json (->, ->>, json_...) of 500 rows or more, \
            and computes in 60 % of the samples (ours)",
        judge: parsed,
        links: &["https://www.postgresql.org/docs/current/datatype-json.html"],
    },
    Rule {
        id: "PLAN-80",
        title: "a table is large because its values are padded with blanks",
        needs: &[Field("table", "bytes"), Field("server", "sessions_active")],
        limits: "20 % of the session time in a statement on a table with columns of type character(n) that make up half of its size, 10 MB or more; low where \
            they are shorter than 200 (ours)",
        judge: padded,
        links: &["https://www.postgresql.org/docs/current/datatype-character.html"],
    },
];

/// The share of the session time of the statement.
const SHARE_MIN: f64 = 0.2;
/// Fields that are taken from the column.
const FIELDS_MIN: usize = 3;
/// Of the samples of the statement, those in which it computes.
const COMPUTING_MIN: f64 = 0.6;
/// Bytes of a table that matters.
const BYTES_MIN: f64 = 10e6;
/// The part of a table that padded columns make up at most.
const PADDED_SHARE_MIN: f64 = 0.5;
/// Characters of these columns in a row.
const CHARACTERS_MIN: f64 = 200.0;
/// Characters of one column: a code or a hash of full length, which has no blanks, is shorter.
const COLUMN_MIN: f64 = 200.0;
/// Blocks of an execution.
const BLOCKS_MIN: f64 = 1_000.0;
/// Characters of names in a claim.
const NAME_CHARS: usize = 120;

/// Columns of a table with their types, as the record has them: `body json; name character(200)`.
fn kinds(value: &str) -> impl Iterator<Item = (&str, &str)> {
    value.split("; ").filter_map(|column| {
        let (name, kind) = column.rsplit_once(' ')?;
        statement::is_name(name).then_some((name, kind))
    })
}

/// Tables that a statement names and that have such columns.
fn named<'a>(case: &'a Case, time: &'a NodeTime, statement: &StatementTime) -> Vec<(&'a str, &'a str)> {
    let Ok(parsed) = statement::parse(&statement.text) else { return vec![] };
    let facts = case.facts(COLUMN_KINDS).filter(|fact| fact.node == time.node);
    facts
        .filter(|fact| parsed.tables.iter().any(|table| is_name_of(table, &fact.name)))
        .map(|fact| (fact.name.as_str(), fact.value.as_str()))
        .collect()
}

/// How often a text takes something from a column by an operator or a function for documents. `names`: what the table is called in front of a column; with
/// several tables a column without that may be another one's.
fn fields_of(text: &str, column: &str, (names, is_only): (&[&str], bool)) -> usize {
    let name = column.trim_matches('"');
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let ends = text
        .match_indices(name)
        .filter(|(at, _)| !text[..*at].ends_with(is_name))
        .map(|(at, _)| (at, at + name.len()));
    ends.filter(|(at, end)| {
        let after = text[*end..].trim_start_matches('"').trim_start();
        // The column may have its table in front.
        let whole = &text[..*at];
        let before = whole.trim_end_matches(|c| is_name(c) || c == '.' || c == '"');
        let table = whole[before.len()..]
            .trim_end_matches(['.', '"'])
            .rsplit('.')
            .next()
            .unwrap_or_default()
            .trim_matches('"');
        let is_its = if table.is_empty() { is_only } else { names.contains(&table) };
        let call = before.strip_suffix('(').unwrap_or_default();
        let function = call.rsplit(|c| !is_name(c)).next().unwrap_or_default().to_lowercase();
        is_its && (after.starts_with("->") || after.starts_with("#>") || function.starts_with("json_"))
    })
    .count()
}

/// The same for a table of a statement.
fn fields_in(one: &StatementTime, relation: &str, column: &str) -> usize {
    let Ok(parsed) = statement::parse(&one.text) else { return 0 };
    let own = parsed.tables.iter().filter(|table| is_name_of(table, relation));
    let names: Vec<&str> =
        own.flat_map(|table| [Some(table.name.as_str()), table.alias.as_deref()]).flatten().collect();
    fields_of(&one.text, column, (&names, parsed.tables.len() == 1))
}

/// Rows whose fields a statement takes: for a few they are no work.
const ROWS_MIN: f64 = 500.0;
/// Steps above a scan that need the fields of each of its rows, and return fewer.
const REDUCES: [&str; 5] = ["Aggregate", "Group", "Unique", "WindowAgg", "Sort"];

/// Whether the fields of a column are taken in many rows: in all that a scan reads if its filter takes them, in those that fit if they are summed up or
/// sorted, and else in those that are returned.
fn reads_many(case: &Case, time: &NodeTime, one: &StatementTime, (relation, column): (&str, &str)) -> bool {
    let nodes =
        || case.at("plan_node", &time.node).filter(|node| node.lines.word("query_id") == one.query_id);
    let is_reduced = nodes().any(|node| REDUCES.contains(&node.lines.word("kind")));
    nodes().filter(|node| node.lines.word("relation") == relation).any(|node| {
        let rows = |field: &str| node.lines.last(field).unwrap_or(0.0);
        let filter = node.lines.word("filter");
        let is_in_filter = ["->", "#>", "json_"].iter().any(|taken| filter.contains(taken))
            && statement::names(filter).iter().any(|name| name == column.trim_matches('"'));
        let most = match (is_in_filter && node.lines.word("kind") == "Seq Scan", is_reduced) {
            (true, _) => rows("table_rows"),
            (false, true) => rows("rows_planned"),
            (false, false) => one.rows.unwrap_or(rows("rows_planned")),
        };
        most >= ROWS_MIN
    })
}

fn parsed(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        for one in time.statements.iter().filter(|one| one.share >= SHARE_MIN) {
            let computing: f64 =
                one.events.iter().filter(|(event, _)| event == "CPU").map(|(_, share)| share).sum();
            let tables = named(case, time, one).into_iter();
            let found = tables
                .flat_map(|(table, value)| kinds(value).map(move |(column, kind)| (table, column, kind)));
            let found = found
                .filter(|(_, _, kind)| *kind == "json")
                .filter(|(table, column, _)| reads_many(case, time, one, (table, column)))
                .map(|(table, column, _)| (table, column, fields_in(one, table, column)))
                .filter(|(.., fields)| *fields >= FIELDS_MIN)
                .max_by_key(|(.., fields)| *fields);
            let Some((table, column, fields)) = found.filter(|_| computing >= COMPUTING_MIN) else {
                continue;
            };
            claims.push(of_document(case, time, one, (table, column, fields)));
        }
    }
    Answer::of(claims, || "columns of type json in the statements that take the time".to_string())
}

/// A function of the application that a statement calls: it may be what computes.
fn function_of<'a>(case: &'a Case, time: &NodeTime, one: &StatementTime) -> Option<&'a str> {
    let called = statement::names(&one.text);
    let mut functions = case.facts(FUNCTION_TEXT).filter(|fact| fact.node == time.node);
    functions.find(|fact| called.contains(&fact.name)).map(|fact| fact.name.as_str())
}

fn of_document(case: &Case, time: &NodeTime, one: &StatementTime, found: (&str, &str, usize)) -> Claim {
    let (table, column, fields) = found;
    let function = function_of(case, time, one);
    Claim::new(
        if function.is_some() { Severity::Low } else { severity(one.share) },
        Level::CoOccurrence,
        format!(
            "{}: {} of the session time is a statement that takes {fields} fields from {}, a column of type json: it is kept as text, and each -> or ->> \
                parses \
             the whole document again (jsonb is parsed once, when it is written)",
            time.node,
            units::percent(one.share),
            plain(&format!("{table}.{column}"), NAME_CHARS)
        ),
    )
    .on_node(&time.node)
    .during(case.one("server", &time.node).map(|server| server.ticks.window()))
    .number("share", one.share)
    .number("fields", fields as f64)
    .because(format!("the statement: {}", in_a_line(one)))
    .because("its sessions were seen computing, not waiting")
    .with(function, |claim, name| {
        claim.lacking(format!("the time within {}(), which it calls as well: track_functions counts it", plain(name, NAME_CHARS)))
    })
    .lacking("the time of the same statement on jsonb: compare it on a copy")
    .remedy(
        "change the column to jsonb (the order of keys, blanks and duplicate keys are lost; the table is written anew, and no other session can use it \
            until that is done), or give \
         the fields in use columns of their own, generated ones for instance; a statement can also parse once: FROM t, json_to_record(body) AS \
         r(...)",
        &[
            &format!(
                "ALTER TABLE {table} ALTER COLUMN {column} TYPE jsonb USING {column}::jsonb; -- writes the table anew, and keeps all others out"
            ),
            &explain_it(case, &time.node, one),
        ],
    )
}

/// The padded columns, with their types.
fn padded_columns(value: &str) -> impl Iterator<Item = (&str, &str)> {
    kinds(value).filter(|(_, kind)| kind.starts_with("character("))
}

/// Characters of the padded columns in a row that have so many at least.
fn padded_characters(value: &str, least: f64) -> f64 {
    let length = |kind: &str| kind.strip_prefix("character(")?.strip_suffix(')')?.parse::<f64>().ok();
    kinds(value).filter_map(|(_, kind)| length(kind)).filter(|length| *length >= least).sum()
}

/// Rows of a table, as the last ANALYZE or VACUUM has found them, else as the counters have them: these count rows twice that were inserted before it.
fn rows_of(table: &Thing<'_>) -> f64 {
    table.lines.last("planned_rows").or(table.lines.last("live_rows")).unwrap_or(0.0)
}

fn padded(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        for one in time.statements.iter().filter(|one| one.share >= SHARE_MIN) {
            let Ok(parsed) = statement::parse(&one.text) else { continue };
            for (name, value) in named(case, time, one) {
                let written = parsed.tables.iter().find(|table| is_name_of(table, name));
                let Some(table) = written.and_then(|table| table_named(case, &time.node, one, table)) else {
                    continue;
                };
                let (bytes, rows) = (table.lines.last("bytes").unwrap_or(0.0), rows_of(&table));
                let of_row = padded_characters(value, 1.0);
                let of_table = |of_row: f64| of_row * rows / bytes.max(1.0);
                let share = of_table(of_row);
                // Shorter columns may be hashes and codes that fill them: the record does not hold how long the values are.
                let is_sure = of_table(padded_characters(value, COLUMN_MIN)) >= PADDED_SHARE_MIN;
                // More than the table has: the values are compressed or moved out.
                let is_scan = one.blocks.is_none_or(|blocks| blocks >= BLOCKS_MIN);
                if bytes < BYTES_MIN
                    || of_row < CHARACTERS_MIN
                    || !is_scan
                    || !(PADDED_SHARE_MIN..=1.1).contains(&share)
                {
                    continue;
                }
                claims.push(of_blanks(case, time, one, (name, value, of_row, bytes, rows), is_sure));
            }
        }
    }
    Answer::of(claims, || {
        "columns of type character(n) in the tables of the statements that take the time".to_string()
    })
}

fn of_blanks(
    case: &Case,
    time: &NodeTime,
    one: &StatementTime,
    found: (&str, &str, f64, f64, f64),
    is_sure: bool,
) -> Claim {
    let (name, value, of_row, bytes, rows) = found;
    let columns: Vec<String> =
        padded_columns(value).map(|(column, kind)| format!("{column} {kind}")).collect();
    let changes: Vec<String> = padded_columns(value)
        .map(|(column, _)| format!("ALTER COLUMN {column} TYPE text USING rtrim({column})"))
        .collect();
    Claim::new(
        severity(one.share).min(if is_sure { Severity::Medium } else { Severity::Low }),
        Level::CoOccurrence,
        format!(
            "{}: {} of the session time is a statement on {name}, whose rows {} be wide because {} {} padded with blanks to the full length: {} of \
                {} a row",
            time.node,
            units::percent(one.share),
            if is_sure { "seem to" } else { "may" },
            plain(&columns.join(", "), NAME_CHARS),
            if columns.len() == 1 { "is" } else { "are" },
            units::bytes(of_row),
            units::bytes(bytes / rows.max(1.0))
        ),
    )
    .on_node(&time.node)
    .during(case.one("server", &time.node).map(|server| server.ticks.window()))
    .number("share", one.share)
    .number("padded_bytes_per_row", of_row)
    .number("bytes", bytes)
    .because(format!("the statement: {}", in_a_line(one)))
    .because("character(n) stores n characters, blanks at the end included, in the table, in its indexes and in memory")
    .lacking("how long the values are without the blanks: the first command shows it")
    .remedy(
        "make them text or varchar (the table is written anew, and no other session can use it until that is done): blanks at the end then \
            count in comparisons",
        &[
            &format!("SELECT {} FROM {name} TABLESAMPLE SYSTEM (1);", padded_columns(value)
                .map(|(column, _)| format!("avg(length({column}))")).collect::<Vec<_>>().join(", ")),
            &format!("ALTER TABLE {name} {}; -- writes the table anew, and keeps all others out", changes.join(", ")),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_a_document_are_counted_by_its_column() {
        let text = "select avg((body ->> 'a')::int), max((r.body->'b'->>'c')::int), json_extract_path(body, 'd'), antibody ->> 'e', abody from r where \
            body is not null";
        assert_eq!(fields_of(text, "body", (&["r"], true)), 3);
        assert_eq!(fields_of(text, "body", (&["r"], false)), 1, "which table has it is not written");
        assert_eq!(fields_of(text, "body", (&["other"], true)), 2);
        assert_eq!(fields_of("select \"Doc\" ->> 'a'", "\"Doc\"", (&[], true)), 1);
        assert_eq!(fields_of("", "x", (&[], true)), 0);
    }

    #[test]
    fn padded_characters_are_those_of_character_columns() {
        assert_eq!(padded_characters("body json; name character(200); \"a b\" character(40)", 1.0), 240.0);
        assert_eq!(padded_characters("name character(200); hash character(64)", COLUMN_MIN), 200.0);
        assert_eq!(padded_characters("body json", 1.0), 0.0);
    }
}

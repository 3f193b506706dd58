//! Where NOTIFY comes from: triggers whose functions send it, on tables that are written, and statements that send it themselves.

use crate::case::{Case, Thing};
use crate::rules::costly::{lowered, plain};
use crate::rules::paste::literal;
use crate::units;
use record::finding::NodeTime;
use record::watched::NONE_NOTIFIES;

/// Tables and statements that are named.
const SOURCES_MAX: usize = 3;
/// Characters of a list of triggers, and of a statement.
const TEXT_CHARS: usize = 120;
/// Rows written a second into a table whose trigger may matter.
const WRITTEN_PER_S_MIN: f64 = 1.0;

fn written(table: &Thing<'_>) -> f64 {
    ["rows_inserted", "rows_updated", "rows_deleted"].iter().filter_map(|field| table.lines.rate(field)).sum()
}

/// The field with the triggers of a table that send NOTIFY.
const NOTIFYING: &str = "notifying_triggers";

/// Tables with triggers that send NOTIFY, those that are written the most first. Of older recordings, which do not know what a trigger sends, all that have
/// triggers.
fn tables<'a>(case: &'a Case, time: &'a NodeTime) -> Vec<(Thing<'a>, &'static str)> {
    let of = |field: &'static str| {
        let fits = move |table: &Thing<'_>| {
            !["", NONE_NOTIFIES].contains(&table.lines.word(field)) && written(table) >= WRITTEN_PER_S_MIN
        };
        let mut found: Vec<_> =
            case.at("table", &time.node).filter(fits).map(|table| (table, field)).collect();
        found.sort_by(|left, right| written(&right.0).total_cmp(&written(&left.0)));
        found.truncate(SOURCES_MAX);
        found
    };
    let known = of(NOTIFYING);
    if known.is_empty() && is_unknown(case, &time.node) { of("trigger_functions") } else { known }
}

/// Whether the recording does not have what triggers send.
fn is_unknown(case: &Case, node: &str) -> bool {
    case.at("table", node).all(|table| table.lines.word(NOTIFYING).is_empty())
}

/// Statements that send NOTIFY themselves.
fn statements<'a>(case: &'a Case, time: &'a NodeTime) -> impl Iterator<Item = &'a str> {
    let of_node = case.at("statement", &time.node).map(|line| line.lines.word("query_id"));
    let ids = of_node.filter(|id| !case.is_own_statement(id));
    let texts = ids.filter_map(|id| case.query(id));
    texts.filter(|text| {
        let text = lowered(text);
        text.starts_with("notify ") || text.contains("pg_notify(")
    })
}

/// Where NOTIFY comes from, as evidence.
pub(super) fn sources(case: &Case, time: &NodeTime) -> Vec<String> {
    let tables = tables(case, time);
    let are_known = tables.iter().all(|(_, field)| *field == NOTIFYING);
    let of_tables = tables.into_iter().map(|(table, field)| {
        let sends = if field == NOTIFYING { "sends NOTIFY" } else { "may send NOTIFY" };
        format!(
            "table {}, {} rows written a second, has a trigger that {sends}: {}",
            table.lines.word("relation"),
            units::short(written(&table)),
            plain(table.lines.word(field), TEXT_CHARS)
        )
    });
    let mut texts: Vec<String> = statements(case, time)
        .map(|text| format!("a statement sends NOTIFY: {}", plain(text, TEXT_CHARS)))
        .collect();
    texts.dedup();
    texts.truncate(SOURCES_MAX);
    // What is certain comes first.
    if are_known { of_tables.chain(texts).collect() } else { texts.into_iter().chain(of_tables).collect() }
}

/// The first source, as a part of the claim.
pub(super) fn in_claim(sources: &[String]) -> String {
    sources.first().map_or(String::new(), |source| format!("; {source}"))
}

/// Shows the functions that send it, and the triggers that call them.
pub(super) fn command(case: &Case, time: &NodeTime) -> String {
    let of_tables: Vec<String> = tables(case, time)
        .iter()
        .map(|(table, _)| format!("{}::regclass", literal(table.lines.word("relation"))))
        .collect();
    let tables = match of_tables.is_empty() {
        true => String::new(),
        false => format!(" AND (t.tgrelid IS NULL OR t.tgrelid IN ({}))", of_tables.join(", ")),
    };
    format!(
        "SELECT t.tgrelid::regclass AS table, t.tgname AS trigger, p.oid::regprocedure AS function, p.prosrc FROM pg_proc p LEFT JOIN pg_trigger t ON \
         t.tgfoid = p.oid WHERE p.prosrc ~* '\\m(pg_notify|notify)\\M' AND p.pronamespace <> 'pg_catalog'::regnamespace{tables};"
    )
}

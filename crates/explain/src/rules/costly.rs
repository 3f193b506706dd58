//! Which statements take much of a node's time, and which of them scan tables: what several rules start from.

use super::built_in::calls_others;
use crate::case::{Case, Thing};
use crate::node_time;
use record::escape::{ascii, one_line};
use record::event::QUERY;
use record::finding::{NodeTime, Severity, StatementTime};
use record::statement::{self, TableName, Verb};
use record::watched::{Fact, PECULIAR};

/// A node with fewer active sessions has no problem with its time.
const ACTIVE_MIN: f64 = 0.25;
/// A share of the time from which on a finding is high.
const SHARE_HIGH: f64 = 0.5;
/// The share of the time of a statement that scans.
const SCAN_SHARE_MIN: f64 = 0.2;
/// Executions a second: a report that is run now and then may scan.
const SCAN_CALLS_PER_S_MIN: f64 = 2.0;
/// Blocks that an execution touches.
const SCAN_BLOCKS_MIN: f64 = 100.0;
/// Rows of a scan: small tables are scanned rightly.
const SCAN_ROWS_MIN: f64 = 1_000.0;
/// Scans of the table per execution; half, as the two are not polled at the same time.
const SCANS_PER_CALL_MIN: f64 = 0.5;
/// Rows that fit into a block (`MaxHeapTuplesPerPage`).
const ROWS_OF_BLOCK_MAX: f64 = 291.0;
/// Characters of a statement in a sentence.
const STATEMENT_CHARS: usize = 160;

pub(super) fn severity(share: f64) -> Severity {
    if share >= SHARE_HIGH { Severity::High } else { Severity::Medium }
}

/// Whether the sessions of a node are at work.
pub(super) fn is_busy(time: &NodeTime) -> bool {
    time.active >= ACTIVE_MIN
}

/// Nodes whose sessions are at work.
pub(super) fn busy(case: &Case) -> impl Iterator<Item = &NodeTime> {
    node_time::all(case).iter().filter(|time| is_busy(time))
}

/// The share of the time of a statement on a node with little to do.
const LITTLE_SHARE_MIN: f64 = 0.5;

/// Statements with this share of the time of their node. On a node with little to do only those that have most of it: what wastes most of its time does that
/// at any load.
pub(super) fn large(case: &Case, share_min: f64) -> impl Iterator<Item = (&NodeTime, &StatementTime)> {
    node_time::all(case).iter().filter(|time| !time.is_idle()).flat_map(move |time| {
        let least = if time.active < ACTIVE_MIN { share_min.max(LITTLE_SHARE_MIN) } else { share_min };
        time.statements.iter().filter(move |one| one.share >= least).map(move |one| (time, one))
    })
}

/// Whether a statement that no counter has runs since before the recording, or longer: the node counts statements, and knows this one by its id. Without
/// pg_stat_statements nothing is counted, and a statement that is known by its text alone may be counted as another one.
pub(super) fn has_not_ended(case: &Case, node: &str, statement: &StatementTime) -> bool {
    let is_by_text = statement.query_id.starts_with("text-");
    !statement.is_counted && !is_by_text && case.at("statement", node).next().is_some()
}

/// A statement in one line, or its id.
pub(crate) fn in_a_line(statement: &StatementTime) -> String {
    match one_line(&statement.text, STATEMENT_CHARS) {
        text if text.is_empty() => format!("statement {}", statement.query_id),
        text if statement.outer.is_empty() => text,
        text => format!("{text} (inside of: {})", one_line(&statement.outer, STATEMENT_CHARS)),
    }
}

/// A statement in lower case, with one blank between its words: what is searched for phrases.
pub(super) fn lowered(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").to_ascii_lowercase()
}

/// Where the parenthesis is closed that a text begins with. Those in quotes are not counted.
pub(super) fn closing(text: &str) -> Option<usize> {
    let (mut depth, mut is_literal, mut is_quoted) = (0_usize, false, false);
    for (at, c) in text.char_indices() {
        match c {
            '\'' if !is_quoted => is_literal = !is_literal,
            '"' if !is_literal => is_quoted = !is_quoted,
            '(' if !is_literal && !is_quoted => depth += 1,
            ')' if !is_literal && !is_quoted => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

/// How long each session was seen at work with a statement at most, in seconds.
pub(super) fn ages<'a>(case: &'a Case, node: &'a str, query_id: &'a str) -> impl Iterator<Item = f64> + 'a {
    let sessions = case.at("session", node).filter(move |session| {
        session.lines.word("query_id") == query_id && session.lines.word("state") == "active"
    });
    sessions.filter_map(|session| session.lines.max("state_age_s"))
}

/// Characters of a statement that is named with its role, and of the role.
const NAMED_CHARS: usize = 100;

/// The first statement of a node that fits, with the role that it was seen of.
pub(super) fn seen_with_role(case: &Case, node: &str, fits: impl Fn(&str) -> bool) -> Option<String> {
    let mut all = case.events_of(QUERY).filter(|one| Case::word_of(one, "node") == node);
    let found = all.find(|one| fits(Case::word_of(one, "text")))?;
    let (text, user) = (plain(Case::word_of(found, "text"), NAMED_CHARS), Case::word_of(found, "user"));
    Some(if user.is_empty() { text } else { format!("{text} of role {}", plain(user, NAMED_CHARS)) })
}

/// A text for a claim: in one line, cut, in ASCII.
pub(crate) fn plain(text: &str, most: usize) -> String {
    ascii(&one_line(text, most).replace('…', "..."))
}

/// Whether a name in a statement may be that of a relation, which has its schema in front. A schema that is not written may be any.
pub(super) fn is_name_of(named: &TableName, relation: &str) -> bool {
    let (schema, name) = parts_of(relation);
    named.name == name && named.schema.as_ref().is_none_or(|written| *written == schema)
}

/// Schema and name of a relation as they are, from the form in which the server quotes them.
pub(crate) fn parts_of(relation: &str) -> (String, String) {
    let mut is_quoted = false;
    let dot = relation.char_indices().find(|(_, c)| {
        is_quoted ^= *c == '"';
        *c == '.' && !is_quoted
    });
    let (schema, name) = dot.map_or(("", relation), |(at, _)| (&relation[..at], &relation[at + 1..]));
    let plain = |part: &str| match part.strip_prefix('"').and_then(|part| part.strip_suffix('"')) {
        Some(inside) => inside.replace("\"\"", "\""),
        None => part.to_string(),
    };
    (plain(schema), plain(name))
}

/// What is unusual about the tables and views that a text names.
pub(super) fn peculiar_of<'a>(case: &'a Case, node: &str, text: &str) -> Vec<&'a Fact> {
    let parsed = statement::parse(text).map(|parsed| parsed.tables);
    let names = statement::names(text);
    let is_named = |relation: &str| match &parsed {
        Ok(tables) => tables.iter().any(|table| is_name_of(table, relation)),
        Err(_) => names.contains(&parts_of(relation).1),
    };
    case.facts(PECULIAR).filter(|fact| fact.node == node && is_named(&fact.name)).collect()
}

/// Of the samples of a statement, those in waits for locks.
pub(super) fn in_locks(statement: &StatementTime) -> f64 {
    statement.events.iter().filter(|(name, _)| name.starts_with("Lock:")).map(|(_, share)| share).sum()
}

/// The times of a statement or transaction, as the server writes them: known when a statement runs, and not when it is planned.
pub(super) const CLOCKS: [&str; 8] = [
    "now()",
    "CURRENT_TIMESTAMP",
    "CURRENT_DATE",
    "CURRENT_TIME",
    "LOCALTIMESTAMP",
    "clock_timestamp()",
    "statement_timestamp()",
    "transaction_timestamp()",
];

/// Of the samples of a statement, those in waits of an extension: dblink, foreign tables, and what others bring.
pub(super) fn in_extension(statement: &StatementTime) -> f64 {
    let waits = statement.events.iter().filter(|(name, _)| name.starts_with("Extension:"));
    waits.map(|(_, share)| share).sum()
}

/// Whether the text of a statement names a relation; one that cannot be parsed may.
pub(super) fn names_table(statement: &StatementTime, relation: &str) -> bool {
    let (_, name) = parts_of(relation);
    match statement::parse(&statement.text) {
        Ok(parsed) => parsed.tables.iter().any(|table| is_name_of(table, relation)),
        Err(_) => statement::names(&statement.text).contains(&name) || statement.text.is_empty(),
    }
}

/// The statistics of a table that a statement names, in the statement's database. `None` if several schemas have such a table and the statement does
/// not write which: it may be any of them.
pub(super) fn table_named<'a>(
    case: &'a Case,
    node: &'a str,
    statement: &StatementTime,
    named: &TableName,
) -> Option<Thing<'a>> {
    let is_it = |table: &Thing<'_>| {
        let is_there = table.lines.word("database") == statement.database || statement.database.is_empty();
        is_there && is_name_of(named, table.lines.word("relation"))
    };
    let mut found = case.at("table", node).filter(is_it);
    let only = found.next();
    only.filter(|_| found.next().is_none())
}

/// Whether a statement names the table whose partition this one is.
pub(super) fn names_whole(statement: &StatementTime, table: &Thing<'_>) -> bool {
    statement::parse(&statement.text).is_ok_and(|all| all.tables.iter().any(|one| is_part_of(one, table)))
}

/// Whether a table is a partition of the one with this name.
fn is_part_of(named: &TableName, table: &Thing<'_>) -> bool {
    let (schema, name) = parts_of(table.lines.word("partition_of"));
    let is_schema = |written: &String| schema.is_empty() || *written == schema;
    !name.is_empty() && named.name == name && named.schema.as_ref().is_none_or(is_schema)
}

/// Whether a statement reads a table by its text, or by its recorded plan, which has the tables of a view as well.
fn reads(case: &Case, node: &str, statement: &StatementTime, table: &Thing<'_>) -> bool {
    let relation = table.lines.word("relation");
    let in_plan = || {
        case.at("plan_node", node).any(|found| {
            found.lines.word("query_id") == statement.query_id && found.lines.word("relation") == relation
        })
    };
    names_table(statement, relation) || names_whole(statement, table) || in_plan()
}

/// Executions a second of other statements that read a table and may be those that scan it: each touches enough blocks to read all of its rows.
fn calls_of_others(case: &Case, node: &str, statement: &StatementTime, table: &Thing<'_>) -> f64 {
    let (scans, rows) = (table.lines.sum("seq_scans"), table.lines.sum("seq_rows"));
    let blocks = rows.unwrap_or(0.0) / scans.unwrap_or(0.0).max(1.0) / ROWS_OF_BLOCK_MAX;
    let times = node_time::all(case).iter().filter(|time| time.node == node);
    let others = times.flat_map(|time| &time.statements).filter(|other| {
        // One whose text is not known names any table.
        let is_known = other.query_id != statement.query_id && !other.text.is_empty();
        is_known && other.blocks.is_none_or(|touched| touched >= blocks) && reads(case, node, other, table)
    });
    others.filter_map(|other| other.calls_per_s).sum()
}

/// What the record has of a table with policies, as a peculiarity.
pub(super) const SECURED: &str = "row-level security";

/// Whether a statement may read tables that its text does not have: by triggers and foreign keys of what it writes, functions, views and policies.
fn may_read_others(case: &Case, node: &str, statement: &StatementTime) -> bool {
    let Ok(parsed) = statement::parse(&statement.text) else { return true };
    let is_plain = |named: &TableName| {
        let mut tables = case.at("table", node);
        tables.any(|table| is_name_of(named, table.lines.word("relation")) || is_part_of(named, &table))
    };
    parsed.verb != Verb::Select
        || !parsed.tables.iter().all(is_plain)
        || calls_others(&lowered(&statement.text))
        || peculiar_of(case, node, &statement.text).iter().any(|fact| fact.value.contains(SECURED))
}

/// A table of the statement's database that is scanned about as often as the statement runs, and the rows of a scan. One that the statement reads by its
/// text or its plan comes first. Another one may be that of a trigger, a function or a view, if no other statement is known to scan it.
pub(super) fn scanned<'a>(
    case: &'a Case,
    node: &'a str,
    statement: &StatementTime,
) -> Option<(Thing<'a>, f64, f64)> {
    let calls_per_s = statement.calls_per_s?;
    let scans = case.at("table", node).filter_map(|table| {
        let same = table.lines.word("database") == statement.database || statement.database.is_empty();
        let (scans, rows) = (table.lines.sum("seq_scans")?, table.lines.sum("seq_rows")?);
        let per_s = table.lines.rate("seq_scans")?;
        let fits = same && per_s >= calls_per_s * SCANS_PER_CALL_MIN;
        // Each parallel worker counts a scan of its own: rows for each execution are the table's figure. Statements that read the same table share its scans.
        let all_calls = calls_per_s + if fits { calls_of_others(case, node, statement, &table) } else { 0.0 };
        let each = (rows / scans.max(1.0)) * (per_s / all_calls).max(1.0);
        let fits = fits && each >= SCAN_ROWS_MIN;
        fits.then_some((table, each, per_s))
    });
    let (own, foreign): (Vec<_>, Vec<_>) =
        scans.partition(|(table, _, _)| reads(case, node, statement, table));
    let is_possible = |(table, _, per_s): &(Thing<'a>, f64, f64)| {
        calls_of_others(case, node, statement, table) < per_s * SCANS_PER_CALL_MIN
    };
    let most = |left: &(Thing<'a>, f64, f64), right: &(Thing<'a>, f64, f64)| {
        (left.1 * left.2).total_cmp(&(right.1 * right.2))
    };
    let of_others = || {
        let foreign = foreign.into_iter().filter(|_| may_read_others(case, node, statement));
        foreign.filter(is_possible).max_by(most)
    };
    own.into_iter().max_by(most).or_else(of_others)
}

/// Rows of a table that an execution reads: those of all scans, shared out to the statements that name the table by their time.
pub(super) fn rows_read(
    case: &Case,
    time: &NodeTime,
    statement: &StatementTime,
    relation: &str,
) -> Option<f64> {
    let is_it = |table: &Thing<'_>| {
        let is_there = statement.database.is_empty() || table.lines.word("database") == statement.database;
        is_there && [table.lines.word("relation"), table.lines.word("partition_of")].contains(&relation)
    };
    let tables = case.at("table", &time.node).filter(is_it);
    let read: f64 = tables
        .flat_map(|table| ["seq_rows", "index_rows"].map(|field| table.lines.rate(field).unwrap_or(0.0)))
        .sum();
    let all: f64 = time.statements.iter().filter(|one| names_table(one, relation)).map(|one| one.share).sum();
    let calls = statement.calls_per_s.filter(|calls| *calls > 0.0)?;
    Some(read * statement.share / all.max(statement.share) / calls)
}

/// Executions a second, and blocks of each, of a statement that touches many for few rows.
pub(super) fn wasteful(statement: &StatementTime) -> Option<(f64, f64)> {
    let (calls, blocks) = (statement.calls_per_s?, statement.blocks?);
    let is_wasteful = blocks >= SCAN_BLOCKS_MIN && statement.rows.unwrap_or(0.0) < blocks;
    // What has neither a condition nor a join needs all rows. A text that cannot be parsed may have one.
    let is_filtered = statement::parse(&statement.text).map_or(true, |parsed| parsed.is_filtered);
    // The first rows of an order that is computed: others could be left out.
    let is_ordered =
        || statement::shape(&statement.text).is_ok_and(|shape| shape.ordered_by_function.is_some());
    let is_filtered = is_filtered || is_ordered();
    let is_frequent = statement.share >= SCAN_SHARE_MIN && calls >= SCAN_CALLS_PER_S_MIN;
    (is_wasteful && is_filtered && is_frequent).then_some((calls, blocks))
}

/// Whether PLAN-01 has a finding about the statement.
pub(super) fn scans(case: &Case, node: &str, statement: &StatementTime) -> bool {
    wasteful(statement).is_some() && scanned(case, node, statement).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_as_they_are_and_not_as_they_are_quoted() {
        let of = |relation: &str| parts_of(relation);
        let pair = |schema: &str, name: &str| (schema.to_string(), name.to_string());
        assert_eq!(of("public.orders"), pair("public", "orders"));
        assert_eq!(of("\"my.schema\".\"a \"\"b\"\"\""), pair("my.schema", "a \"b\""));
        assert_eq!(of("orders"), pair("", "orders"));
        assert_eq!(of(""), pair("", ""));
    }
}

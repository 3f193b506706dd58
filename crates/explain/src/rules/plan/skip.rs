//! PLAN-83: indexes that are searched by their later columns.

use super::index::indexes;
use super::{NEEDS, Planned, judge, number, severity};
use crate::case::{Case, Thing};
use crate::rule::{Claim, Rule};
use crate::rules::statement::explain_it;
use crate::units;
use record::finding::Level;
use record::statement;

pub(in crate::rules) const RULES: &[Rule] = &[Rule {
    id: "PLAN-83",
    title: "an index is searched by a column that is not its first",
    needs: NEEDS,
    limits: "10 % of the session time; a B-tree whose first column the statement does not compare, while no other index begins with one that it compares; or \
        one whose first column it compares by a range, and a later one by equality; 100 blocks, and twice as many as the planner expects rows (ours)",
    judge: |case| {
        judge(
            case,
            |case, planned| skipped(case, planned).or_else(|| behind_range(case, planned)),
            "first columns of the indexes that plans use",
        )
    },
    links: &["https://www.postgresql.org/docs/current/indexes-multicolumn.html"],
}];

/// Blocks of an execution.
const BLOCKS_MIN: f64 = 100.0;
/// Blocks for each row that is expected: one of the table and a part of one of the index are right.
const BLOCKS_PER_ROW_MIN: f64 = 1.6;

/// The columns that a node compares by its index.
fn compared(node: &Thing<'_>) -> Vec<String> {
    let all = statement::conditions(node.lines.word("condition")).unwrap_or_default();
    let own = all.into_iter().filter(|one| one.inside.is_none() && one.how.is_compared());
    let mut columns: Vec<String> = own.map(|one| one.column).collect();
    columns.dedup();
    columns
}

fn skipped(case: &Case, planned: &Planned<'_>) -> Option<Claim> {
    let blocks = planned.statement.blocks.unwrap_or(0.0);
    planned.nodes.iter().filter(|node| !node.lines.word("index").is_empty()).find_map(|node| {
        let (relation, index) = (planned.relation_of(node), node.lines.word("index"));
        let columns = compared(node);
        let all = indexes(case, planned, relation);
        let (_, of_index) = all
            .iter()
            .find(|(one, _)| one.lines.word("index") == index && one.lines.word("method") == "btree")?;
        let first = of_index.first().filter(|first| !first.is_empty())?;
        let is_later = |column: &String| of_index[1..].contains(&column.as_str());
        let begins = |(_, of_other): &(Thing<'_>, Vec<&str>)| {
            of_other.first().is_some_and(|first| columns.iter().any(|column| column == first))
        };
        // What a loop repeats is searched by the other table's values.
        let is_repeated = planned.above(node).contains(&"Nested Loop");
        if !is_wasteful(planned, node) || is_scanned(case, planned, node) || is_repeated || !columns.iter().any(is_later) || all.iter().any(begins) {
            return None;
        }
        let listed = columns.join(", ");
        let text = format!(
            "a statement that takes {} of the session time searches index {index} of {relation} by {listed}, but that index begins with {first}, and no index \
             begins with {listed}: it reads the whole index, or (from PostgreSQL 18 on) skips from one value of {first} to the next",
            planned.share()
        );
        Some(
            planned
                .claim(case, Level::CoOccurrence, severity(planned.statement.share), text)
                .number("blocks_per_call", blocks)
                .because(format!(
                    "an execution touches {} blocks, and the planner expects {} rows",
                    units::short(blocks),
                    units::short(number(node, "rows_planned"))
                ))
                .because(planned.file())
                .not("a missing index for other columns: the plan uses this one for the condition")
                .lacking("how often it skips: EXPLAIN (ANALYZE) of PostgreSQL 18 has it as Index Searches")
                .remedy(
                    "create an index that begins with what is searched; the present one stays for statements that compare its first column",
                    &[
                        &statement::index_command(relation, &columns, true),
                        &explain_it(case, &planned.time.node, planned.statement),
                    ],
                ),
        )
    })
}

/// Scans of the table for each execution, from which on these do not use the index.
const SCANS_MIN: f64 = 0.5;

/// Whether executions scan the table, or another partition of the same one: the plan is for unknown values, of which a range may be any part of the table, and
/// with its own values the planner chose a scan and left the other partitions out.
fn is_scanned(case: &Case, planned: &Planned<'_>, node: &Thing<'_>) -> bool {
    let table = |relation: &str| {
        case.at("table", &planned.time.node).find(|table| table.lines.word("relation") == relation)
    };
    let relation = planned.relation_of(node);
    let whole = table(relation).map_or("", |table| table.lines.word("partition_of"));
    let is_part = |other: &Thing<'_>| !whole.is_empty() && other.lines.word("partition_of") == whole;
    let of_plan = planned.nodes.iter().filter_map(|node| table(planned.relation_of(node)));
    let scans = of_plan
        .filter(|other| other.lines.word("relation") == relation || is_part(other))
        .filter_map(|table| table.lines.rate("seq_scans"))
        .fold(0.0, f64::max);
    scans > 0.0 && scans >= planned.statement.calls_per_s.unwrap_or(f64::MAX) * SCANS_MIN
}

/// Whether an execution touches more blocks than the rows of a node are worth.
fn is_wasteful(planned: &Planned<'_>, node: &Thing<'_>) -> bool {
    let blocks = planned.statement.blocks.unwrap_or(0.0);
    let wanted = number(node, "rows_planned").max(planned.statement.rows.unwrap_or(0.0)).max(1.0);
    blocks >= BLOCKS_MIN && blocks >= wanted * BLOCKS_PER_ROW_MIN
}

/// The columns of an index in the order that would serve its condition, where that has a range of the first column and is equal to a later one: the index is
/// read for the whole range, whatever the later column has. The first of each pair is the column of the range.
fn misordered(case: &Case, planned: &Planned<'_>, node: &Thing<'_>) -> Option<(String, Vec<String>)> {
    let all = indexes(case, planned, planned.relation_of(node));
    let (_, of_index) = all.iter().find(|(one, _)| {
        one.lines.word("index") == node.lines.word("index") && one.lines.word("method") == "btree"
    })?;
    let conditions: Vec<_> = statement::conditions(node.lines.word("condition"))
        .unwrap_or_default()
        .into_iter()
        .filter(|one| one.inside.is_none())
        .collect();
    let is = |column: &str, how: statement::Use| {
        conditions.iter().any(|one| one.column == column && one.how == how)
    };
    let first = of_index.first().filter(|first| !first.is_empty() && is(first, statement::Use::Range))?;
    let equal: Vec<String> = of_index[1..]
        .iter()
        .filter(|column| is(column, statement::Use::Equality) && !is(column, statement::Use::Range))
        .map(|column| (*column).to_string())
        .collect();
    let begins = |(_, of_other): &(Thing<'_>, Vec<&str>)| {
        of_other.first().is_some_and(|first| equal.iter().any(|column| column == first))
    };
    let is_equal_itself = is(first, statement::Use::Equality);
    if equal.is_empty() || is_equal_itself || all.iter().any(begins) {
        return None;
    }
    Some(((*first).to_string(), equal.into_iter().chain([(*first).to_string()]).collect()))
}

/// Whether this rule explains a statement that reads an index for a whole range.
pub(super) fn is_explained(case: &Case, planned: &Planned<'_>) -> bool {
    behind_range(case, planned).is_some()
}

fn behind_range(case: &Case, planned: &Planned<'_>) -> Option<Claim> {
    planned.nodes.iter().filter(|node| !node.lines.word("index").is_empty()).find_map(|node| {
        let is_repeated = planned.above(node).contains(&"Nested Loop");
        let (first, columns) =
            misordered(case, planned, node).filter(|_| is_wasteful(planned, node) && !is_repeated)?;
        if is_scanned(case, planned, node) {
            return None;
        }
        let (relation, index) = (planned.relation_of(node), node.lines.word("index"));
        let equal = columns[..columns.len() - 1].join(", ");
        let blocks = planned.statement.blocks.unwrap_or(0.0);
        let text = format!(
            "a statement that takes {} of the session time searches index {index} of {relation} by a range of {first}, its first column, and by {equal} behind \
             it: it reads all entries of the range, whatever they have as {equal}, {} blocks per execution",
            planned.share(),
            units::short(blocks)
        );
        Some(
            planned
                .claim(case, Level::CoOccurrence, severity(planned.statement.share), text)
                .number("blocks_per_call", blocks)
                .because(planned.file())
                .not("a missing index for other columns: the plan uses this one for all of the condition")
                .lacking("how many entries the range has: EXPLAIN (ANALYZE, BUFFERS) with real values shows it")
                .remedy(
                    "create an index that begins with what is compared by equality: its entries of the range lie together; the present one stays for \
                     statements that compare its first column alone",
                    &[
                        &statement::index_command(relation, &columns, true),
                        &explain_it(case, &planned.time.node, planned.statement),
                    ],
                ),
        )
    })
}

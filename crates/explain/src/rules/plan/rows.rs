//! PLAN-61 of a function without declared rows: the planner takes it for 1,000 rows, and reads a whole table for them where a search by an index for each of
//! the few that it returns would do.

use super::function;
use super::index::indexes;
use super::{Planned, severity};
use crate::case::{Case, Thing};
use crate::rule::Claim;
use crate::rules::statement::explain_it;
use crate::units;
use record::finding::{Level, Severity};

/// Rows of a function for which a table is read as a whole.
const EXPECTED_MIN: f64 = 100.0;
/// Rows of the table, and of these, those that the scan returns.
const TABLE_MIN: f64 = 10_000.0;
const WHOLE: f64 = 0.5;
/// By how much the rows that the function reads are fewer than those it is taken for.
const FEWER: f64 = 10.0;

/// A function that is joined with a table which is read as a whole.
struct Joined<'a> {
    function: &'a str,
    expected: f64,
    relation: &'a str,
    rows: f64,
    index: &'a str,
    column: String,
    /// Rows that it reads from tables with each execution, where the counters show it.
    read: Option<f64>,
}

/// The column of this alias that a join compares for equality.
fn joined_column(condition: &str, alias: &str) -> Option<String> {
    let mut words = condition.split(|c: char| !(c.is_alphanumeric() || "_.".contains(c)));
    let column = words.find_map(|word| word.strip_prefix(alias)?.strip_prefix('.'))?;
    (!column.is_empty() && condition.contains(" = ")).then(|| column.to_string())
}

/// Rows that the tables named in a function's text are read for, for each execution.
fn read_by(case: &Case, planned: &Planned<'_>, text: &str) -> Option<f64> {
    let calls = planned.statement.calls_per_s.filter(|calls| *calls > 0.0)?;
    let words: Vec<&str> = text.split(|c: char| !(c.is_alphanumeric() || c == '_')).collect();
    let is_named = |table: &Thing<'_>| {
        let name = table.lines.word("relation").rsplit('.').next().unwrap_or_default();
        words.contains(&name)
    };
    let rate = |table: &Thing<'_>, field: &str| table.lines.rate(field).unwrap_or(0.0);
    let tables: Vec<Thing<'_>> = case.at("table", &planned.time.node).filter(is_named).collect();
    let scans: f64 = tables.iter().map(|table| rate(table, "index_scans") + rate(table, "seq_scans")).sum();
    let rows: f64 = tables.iter().map(|table| rate(table, "index_rows") + rate(table, "seq_rows")).sum();
    (scans >= calls / 2.0).then(|| rows / calls)
}

fn joined<'a>(case: &'a Case, planned: &Planned<'a>) -> Option<Joined<'a>> {
    let word = |node: &Thing<'a>, field: &str| node.lines.word(field);
    let scan = planned.nodes.iter().find(|node| word(node, "kind") == "Function Scan")?;
    let expected = scan.lines.last("rows_planned").filter(|rows| *rows >= EXPECTED_MIN)?;
    let function = function::function_for(case, planned, expected)?;
    let of_function = word(scan, "alias");
    let joins = planned.nodes.iter().filter(|node| ["Hash Join", "Merge Join"].contains(&word(node, "kind")));
    let conditions =
        joins.map(|node| word(node, "condition")).filter(|text| text.contains(&format!("{of_function}.")));
    let conditions: Vec<&str> = conditions.collect();
    let wholes = planned.nodes.iter().filter(|node| {
        let rows = node.lines.last("table_rows").unwrap_or(0.0);
        word(node, "kind") == "Seq Scan"
            && rows >= TABLE_MIN
            && node.lines.last("rows_planned").unwrap_or(0.0) >= rows * WHOLE
    });
    let mut found = wholes.filter_map(|node| {
        let column = conditions.iter().find_map(|text| joined_column(text, word(node, "alias")))?;
        let relation = planned.relation_of(node);
        let (index, _) = indexes(case, planned, relation).into_iter().find(|(index, columns)| {
            columns.first() == Some(&column.as_str()) && index.lines.word("method") == "btree"
        })?;
        Some(Joined {
            function: &function.name,
            expected,
            relation,
            rows: node.lines.last("table_rows")?,
            index: index.lines.word("index"),
            column,
            read: read_by(case, planned, &function.value),
        })
    });
    found.next()
}

pub(super) fn claim(case: &Case, planned: &Planned<'_>) -> Option<Claim> {
    let found = joined(case, planned)?;
    let Joined { function, expected, relation, rows, index, column, read } = &found;
    // As many as it is taken for, or nearly: then the plan is right.
    if read.is_some_and(|read| read > expected / FEWER) {
        return None;
    }
    let usual = severity(planned.statement.share);
    let text = format!(
        "a statement that takes {} of the session time reads all {} rows of {relation}, because the planner takes function {function}() for {} rows, which \
         nothing counts: for the few that it may return, index {index} on {column} would find theirs",
        planned.share(),
        units::short(*rows),
        units::short(*expected)
    );
    let command = function::declare(function, 5);
    let known = match read {
        Some(_) => usual,
        None => usual.min(Severity::Medium),
    };
    Some(
        planned
            .claim(case, Level::CoOccurrence, known, text)
            .number("rows_planned", *expected)
            .because(planned.file())
            .with(*read, |claim, read| {
                claim.because(format!(
                    "the tables that the function reads give it {} for each execution, by the counters (index-only scans are not among them)",
                    units::counted(read.round() as usize, "row")
                ))
            })
            .lacking("how many rows it returns: SELECT count(*) FROM the function, with the arguments of the application")
            .remedy(
                "declare how many rows the function returns, on average (ROWS), or write it in SQL, so that the planner puts its query in its place: the rest \
                 of the plan then fits the rows that there are",
                &[&command, &explain_it(case, &planned.time.node, planned.statement)],
            ),
    )
}

#[cfg(test)]
mod tests {
    use super::joined_column;

    #[test]
    fn an_alias_is_a_whole_word() {
        assert_eq!(joined_column("(bd.branch = d.office)", "d").as_deref(), Some("office"));
        assert_eq!(joined_column("(b.branch = d.office)", "b").as_deref(), Some("branch"));
        assert_eq!(joined_column("(b.branch > d.office)", "d"), None);
    }
}

//! PLAN-01 of a function in FROM that the planner cannot put its query in the place of: it returns all of its rows, and then the condition is applied.

use super::{NAME_CHARS, Scan, TEXT_CHARS, explain_it};
use crate::case::Case;
use crate::rule::Claim;
use crate::rules::costly::{lowered, plain, severity};
use crate::rules::paste::literal;
use crate::rules::plan::Planned;
use record::statement;
use record::watched::{FUNCTION_SETTINGS, FUNCTION_TEXT, Fact};

/// Scans of a table for each execution of a function that is called once.
pub(super) const ONCE_MAX: f64 = 1.5;
/// Rows that the query inside returns, for each that is left of them.
const MADE_PER_ROW_MIN: f64 = 20.0;
/// The number of a claim about a function that returns all of its rows before a condition is applied.
pub(crate) const WHOLE_FUNCTION: &str = "function_as_a_whole";

/// The function in FROM of the statement that is executed, if what takes the time is the query inside of it, which returns many rows for each one that is left
/// when the condition outside is applied: an index for the condition inside does not help.
pub(super) fn of_outer<'a>(case: &'a Case, scan: &Scan<'_>, planned: &Planned<'_>) -> Option<&'a Fact> {
    let (inner, outer) = (&scan.statement.text, lowered(&scan.statement.outer));
    let made = planned.plan.lines.last("rows_planned")?;
    let is_for_few = scan.statement.rows.is_some_and(|rows| made >= rows.max(1.0) * MADE_PER_ROW_MIN);
    if outer.is_empty() || !is_for_few || scan.scans / scan.calls.max(f64::MIN_POSITIVE) > ONCE_MAX {
        return None;
    }
    let tables = statement::names(inner);
    let mut functions = case.facts(FUNCTION_TEXT).filter(|fact| fact.node == scan.time.node);
    functions.find(|fact| {
        let called = format!("{}(", fact.name.to_lowercase());
        let is_filtered = outer.split_once(&called).is_some_and(|(before, behind)| {
            // Without its schema.
            let begin = before.rfind([' ', ',']).map_or(0, |at| at + 1);
            let before = if before.ends_with('.') { &before[..begin] } else { before };
            let is_source =
                ["from", "join", "lateral", ","].iter().any(|word| before.trim_end().ends_with(word));
            is_source && behind.contains(" where ")
        });
        let names = statement::names(&fact.value);
        is_filtered && tables.iter().all(|name| names.contains(name))
    })
}

/// The function stands in FROM: all of its rows are made, and then the condition of the statement is applied.
pub(super) fn claim(case: &Case, scan: &Scan<'_>, function: &Fact) -> Claim {
    let name = plain(&function.name, NAME_CHARS);
    let node = &scan.time.node;
    let settings =
        case.facts(FUNCTION_SETTINGS).find(|fact| fact.node == *node && fact.name == function.name);
    let why = match settings {
        _ if !function.value.starts_with("sql ") => "it is not written in SQL".to_string(),
        Some(fact) => format!("it has settings of its own ({})", plain(&fact.value, TEXT_CHARS)),
        None => {
            "one of these keeps it from that: VOLATILE, STRICT, SECURITY DEFINER, or more than one statement"
                .to_string()
        }
    };
    let lack = format!(
        "function {name}() reads it and returns all of its rows, before a condition of the statement is applied: the planner cannot put its query in its place \
         (inline it), because {why}"
    );
    let quoted = literal(&function.name);
    let mut claim = scan.claim(Some(lack)).number(WHOLE_FUNCTION, 1.0);
    // That the rows are written to files between is its doing, too.
    claim = claim.at_least(severity(scan.statement.share));
    claim
        .because(format!("the function: {}", plain(&function.value, TEXT_CHARS)))
        .lacking("the plan inside of the function: auto_explain.log_nested_statements shows it")
        .remedy(
            "let it be one SELECT in SQL, STABLE or IMMUTABLE, neither STRICT nor SECURITY DEFINER, and without SET (write names with their schemas instead); \
                or \
             make it a view, or give it the value that is compared as an argument: then an index can serve the condition",
            &[
                &format!("SELECT format('ALTER FUNCTION %s STABLE RESET ALL;', oid::regprocedure) AS command, prosrc FROM pg_proc WHERE proname = {quoted};"),
                &explain_it(case, node, scan.statement),
            ],
        )
}

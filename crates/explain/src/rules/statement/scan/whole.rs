//! PLAN-01 of a function in FROM that the planner cannot put its query in the place of: it returns all of its rows, and then the condition is applied.

use super::{NAME_CHARS, Scan, TEXT_CHARS, explain_it};
use crate::case::Case;
use crate::rule::Claim;
use crate::rules::costly::{plain, severity};
use crate::rules::paste::literal;
use record::watched::{FUNCTION_SETTINGS, Fact};

/// Scans of a table for each execution of a function that is called once.
pub(super) const ONCE_MAX: f64 = 1.5;
/// The number of a claim about a function that returns all of its rows before a condition is applied.
pub(crate) const WHOLE_FUNCTION: &str = "function_as_a_whole";

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

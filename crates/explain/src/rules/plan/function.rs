//! Functions that stand where a statement reads tables: which one it is, and the command that declares its rows.

use super::Planned;
use crate::case::Case;
use crate::rules::paste::literal;
use record::statement;
use record::watched::{FUNCTION_TEXT, Fact};

/// The function that a statement calls and the planner takes for so many rows. Users choose names: only a plain word stands in a command.
pub(super) fn function_for<'a>(case: &'a Case, planned: &Planned<'_>, rows: f64) -> Option<&'a Fact> {
    let names = statement::names(&planned.statement.text);
    let is_it = |fact: &&Fact| {
        fact.node == planned.time.node
            && names.contains(&fact.name)
            && fact.value.contains(&format!("returning {rows:.0} rows"))
    };
    case.facts(FUNCTION_TEXT).find(is_it).filter(|fact| is_plain_name(&fact.name))
}

/// The command that writes the one which declares so many rows of a function, with its arguments.
pub(super) fn declare(function: &str, rows: u32) -> String {
    format!(
        "SELECT format('ALTER FUNCTION %s ROWS {rows};', oid::regprocedure) AS command, prorows FROM pg_proc WHERE proname = {};",
        literal(function)
    )
}

/// Whether a name needs no quotes anywhere.
pub(super) fn is_plain_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

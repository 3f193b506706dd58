//! Where a statement runs that the application does not send: a trigger, or a function that another statement calls.

use super::Planned;
use crate::case::{Case, Thing};
use crate::rules::costly::plain;
use record::watched::PECULIAR;

/// Characters of a name.
const NAME_CHARS: usize = 80;
/// What the record has of a table with constraints, or triggers, that wait for the end of the transaction.
const DEFERRABLE: &str = "deferrable constraints";

/// The trigger of a table that calls a function: `trigger(schema.function)`, separated by `; `.
fn trigger<'a>(table: &Thing<'a>, function: &str) -> Option<&'a str> {
    table.lines.word("trigger_functions").split("; ").find_map(|one| {
        let (name, called) = one.split_once('(')?;
        let called = called.trim_end_matches(')');
        (called.rsplit('.').next()?.trim_matches('"') == function).then_some(name)
    })
}

/// As the end of a claim; empty for a statement of the application.
pub(super) fn in_words(case: &Case, planned: &Planned<'_>) -> String {
    let function = planned.plan.lines.word("function");
    if function.is_empty() {
        return String::new();
    }
    let mut tables = case.at("table", &planned.time.node);
    let found = tables.find_map(|table| Some((table.lines.word("relation"), trigger(&table, function)?)));
    let Some((relation, name)) = found else {
        return format!("; it runs inside of function {}()", plain(function, NAME_CHARS));
    };
    let is_late = case.facts(PECULIAR).any(|fact| {
        fact.node == planned.time.node && fact.name == relation && fact.value.contains(DEFERRABLE)
    });
    format!(
        "; it runs inside of trigger {} of {}{}",
        plain(name, NAME_CHARS),
        plain(relation, NAME_CHARS),
        if is_late {
            ", for each row, and at COMMIT where the trigger is DEFERRABLE"
        } else {
            ", for each row"
        }
    )
}

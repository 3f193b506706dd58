//! How much of the session time inserts rows into a table, by the texts of statements and of the functions that they call.

use crate::case::{Case, Thing};
use crate::rules::costly::lowered;
use record::finding::{NodeTime, StatementTime};
use record::statement;
use record::watched::FUNCTION_TEXT;

/// Whether a text has an INSERT into the relation, with or without its schema.
fn inserts(text: &str, relation: &str) -> bool {
    let (text, relation) = (lowered(text).replace('"', ""), relation.to_lowercase().replace('"', ""));
    let name = relation.rsplit('.').next().unwrap_or(&relation);
    text.match_indices("insert into ").any(|(at, words)| {
        let rest = text[at + words.len()..].trim_start();
        let end = rest.find(|c: char| !c.is_alphanumeric() && !"_.$".contains(c)).unwrap_or(rest.len());
        rest[..end] == *name || rest[..end] == *relation
    })
}

/// The share of the session time of statements that insert into the table themselves, or call a function that does, and one such function.
pub(super) fn share_of<'a>(case: &'a Case, time: &NodeTime, relation: &str) -> (f64, Option<&'a str>) {
    let facts =
        case.facts(FUNCTION_TEXT).filter(|fact| fact.node == time.node && inserts(&fact.value, relation));
    let functions: Vec<&str> = facts.map(|fact| fact.name.as_str()).collect();
    let called = |one: &StatementTime| {
        let mut plans = case
            .at("plan", &time.node)
            .filter(|plan: &Thing<'_>| plan.lines.word("query_id") == one.query_id);
        let inner = plans.find_map(|plan| Some(plan.lines.word("function")).filter(|name| !name.is_empty()));
        let names = statement::names(if one.outer.is_empty() { &one.text } else { &one.outer });
        functions
            .iter()
            .find(|name| inner == Some(**name) || names.iter().any(|other| other == *name))
            .copied()
    };
    let of_functions = time.statements.iter().filter_map(|one| Some((one.share, called(one)?)));
    let of_functions: Vec<(f64, &str)> = of_functions.collect();
    let own: f64 = time
        .statements
        .iter()
        .filter(|one| called(one).is_none() && inserts(&one.text, relation))
        .map(|one| one.share)
        .sum();
    let first = of_functions.first().map(|(_, name)| *name);
    (own + of_functions.iter().map(|(share, _)| share).sum::<f64>(), first)
}

/// Executions a second of statements that insert into the table themselves.
pub(super) fn calls_per_s(time: &NodeTime, relation: &str) -> f64 {
    let own = time.statements.iter().filter(|one| inserts(&one.text, relation));
    own.filter_map(|one| one.calls_per_s).sum()
}

#[cfg(test)]
mod tests {
    use super::inserts;

    #[test]
    fn an_insert_names_its_table_with_or_without_the_schema() {
        let text = "begin INSERT INTO contact(source) values (1); insert into public.\"Log\" select 1";
        assert!(inserts(text, "public.contact") && inserts(text, "public.\"Log\""));
        assert!(
            !inserts(text, "public.contact_log")
                && !inserts(text, "other.log2")
                && !inserts("select 1", "public.x")
        );
    }
}

//! What the condition of a policy costs for each row: which function it calls and how, by its text from the catalog.

use crate::rules::costly::closing;
use record::statement::{self, Use};
use record::watched::policy::{Function, Policy};

/// What a policy does for each row that a statement would read without it. The worst comes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Kind {
    /// It calls a function with a column of the row.
    OfColumn,
    /// It calls a VOLATILE function without one: its value may differ from row to row, so that no index is searched for it.
    Volatile,
    /// It has a subquery.
    Subquery,
    /// It calls another function without a column: that of an index search is called once, and that of a scan for each row.
    Constant,
    /// It compares with what the server's own functions return.
    Value,
}

/// A policy by its costliest part.
pub(super) struct Work<'a> {
    pub(super) policy: &'a Policy,
    pub(super) kind: Kind,
    pub(super) function: Option<&'a Function>,
    /// The call of that function as the condition has it.
    pub(super) call: String,
    /// The column that is given to the function, or compared with its value.
    pub(super) column: Option<String>,
}

/// A call in a condition.
struct Call<'t> {
    /// From the name to the closing parenthesis.
    text: &'t str,
    arguments: &'t str,
    /// Whether it is a subquery of its own, `(SELECT f())`, which is computed once.
    is_alone: bool,
}

/// The costliest part of a policy.
pub(super) fn of(policy: &Policy) -> Work<'_> {
    let condition = in_one_line(&policy.condition);
    let calls = policy.functions.iter().flat_map(|function| {
        calls_of(&condition, &function.name).into_iter().map(move |call| of_call(policy, function, &call))
    });
    let compared = || column_compared(&condition);
    let own = Work { policy, kind: Kind::Value, function: None, call: String::new(), column: compared() };
    let subquery = has_subquery(&condition).then(|| Work {
        policy,
        kind: Kind::Subquery,
        function: None,
        call: String::new(),
        column: compared(),
    });
    calls.flatten().chain(subquery).min_by_key(|work| work.kind).unwrap_or(own)
}

fn of_call<'a>(policy: &'a Policy, function: &'a Function, call: &Call<'_>) -> Option<Work<'a>> {
    let given = column_of(call.arguments);
    let kind = match given.is_some() {
        true => Kind::OfColumn,
        false if call.is_alone => return None,
        false if function.volatility == "VOLATILE" => Kind::Volatile,
        false => Kind::Constant,
    };
    let column = given.or_else(|| column_compared(&in_one_line(&policy.condition)));
    Some(Work { policy, kind, function: Some(function), call: call.text.to_string(), column })
}

/// A column that the condition compares with one value, or with those of a list.
fn column_compared(condition: &str) -> Option<String> {
    let conditions = statement::conditions(condition).unwrap_or_default();
    let is_compared = |how: Use| matches!(how, Use::Equality | Use::Join);
    conditions.into_iter().find(|one| is_compared(one.how) && one.inside.is_none()).map(|one| one.column)
}

/// Whether a subquery stands in a condition that is more than a call of its own.
fn has_subquery(condition: &str) -> bool {
    condition.match_indices("SELECT ").any(|(at, _)| condition[at..].contains(" FROM "))
}

fn in_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || "_.\"$".contains(c)
}

/// The calls of a function in a condition.
fn calls_of<'t>(condition: &'t str, name: &str) -> Vec<Call<'t>> {
    let begun = format!("{name}(");
    let found = condition.match_indices(&begun).filter_map(|(at, _)| {
        let before = &condition[..at];
        if name.is_empty() || before.chars().next_back().is_some_and(is_of_name) {
            return None;
        }
        let open = at + name.len();
        let end = open + closing(&condition[open..])?;
        let after = &condition[end + 1..];
        let is_alone = before.trim_end().ends_with("SELECT")
            && before.trim_end().trim_end_matches("SELECT").trim_end().ends_with('(')
            && after.split(')').next().is_some_and(|rest| !rest.contains(" FROM "));
        Some(Call { text: &condition[at..=end], arguments: &condition[open + 1..end], is_alone })
    });
    found.collect()
}

/// A column among the arguments of a call: a word that is no function, type, constant or keyword.
fn column_of(arguments: &str) -> Option<String> {
    const KEYWORDS: [&str; 14] = [
        "true",
        "false",
        "null",
        "array",
        "row",
        "case",
        "when",
        "then",
        "else",
        "end",
        "select",
        "as",
        "current_user",
        "session_user",
    ];
    // A subquery has columns of its own tables.
    if arguments.contains("SELECT ") {
        return None;
    }
    let mut rest = arguments;
    while let Some(at) = rest.find(|c: char| is_of_name(c) || c == '\'') {
        if rest[at..].starts_with('\'') {
            let end = rest[at + 1..].find('\'')?;
            rest = &rest[at + end + 2..];
            continue;
        }
        let before = &rest[..at];
        let word = &rest[at..];
        let length = word.find(|c: char| !is_of_name(c)).unwrap_or(word.len());
        let (name, after) = word.split_at(length);
        let is_type = before.ends_with("::");
        let is_number = name.starts_with(|c: char| c.is_ascii_digit() || c == '$');
        let is_keyword = KEYWORDS.iter().any(|one| name.eq_ignore_ascii_case(one));
        if !is_type && !is_number && !is_keyword && !after.starts_with('(') {
            let column = name.rsplit('.').next().unwrap_or(name);
            return Some(column.trim_matches('"').to_string());
        }
        // The words of `timestamp with time zone` are one type.
        rest = if is_type {
            after.trim_start_matches(|c: char| c.is_alphabetic() || " \"[]".contains(c))
        } else {
            after
        };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(condition: &str, volatility: &str) -> Policy {
        let function =
            Function { name: "app.f".to_string(), volatility: volatility.to_string(), ..Function::default() };
        Policy { condition: condition.to_string(), functions: vec![function], ..Policy::default() }
    }

    #[test]
    fn what_a_policy_does_for_each_row_is_read_from_its_condition() {
        for (condition, volatility, kind, column) in [
            ("app.f(branch_id)", "STABLE", Kind::OfColumn, Some("branch_id")),
            ("app.f('***'::text, (note.branch_id)::bigint)", "IMMUTABLE", Kind::OfColumn, Some("branch_id")),
            ("( SELECT app.f(note.branch_id) AS f)", "STABLE", Kind::OfColumn, Some("branch_id")),
            ("(tenant_id = app.f())", "VOLATILE", Kind::Volatile, Some("tenant_id")),
            ("(tenant_id = app.f('***'::character varying))", "STABLE", Kind::Constant, Some("tenant_id")),
            ("(tenant_id = ( SELECT app.f() AS f))", "VOLATILE", Kind::Value, Some("tenant_id")),
            ("(tenant_id = (current_setting('***'::text))::integer)", "", Kind::Value, Some("tenant_id")),
            (
                "(EXISTS ( SELECT 1\\n FROM app.member m\\n WHERE (m.branch = note.branch_id)))",
                "",
                Kind::Subquery,
                None,
            ),
            ("(branch_id IN ( SELECT m.branch\\n FROM app.member m))", "", Kind::Subquery, None),
            ("(app.other_f(branch_id) AND open)", "", Kind::Value, None),
        ] {
            let policy = policy(&condition.replace("\\n", "\n"), volatility);
            let work = of(&policy);
            assert_eq!(work.kind, kind, "{condition}");
            if column.is_some() {
                assert_eq!(work.column.as_deref(), column, "{condition}");
            }
        }
    }

    #[test]
    fn a_condition_that_is_cut_or_hostile_is_no_call() {
        for condition in ["app.f(branch", "app.f('", "app.f", "app.f(\"", ")app.f("] {
            assert_eq!(of(&policy(condition, "VOLATILE")).kind, Kind::Value, "{condition}");
        }
        assert_eq!(column_of("1, '***', $1, true, ARRAY[2]"), None);
        assert_eq!(column_of("'***'::timestamp with time zone, at"), Some("at".to_string()));
        assert_eq!(column_of("lower(name)"), Some("name".to_string()));
    }
}

//! What is written about a policy: what it does, and what helps. Which of the usual means help depends on whether its function takes a column of the row.

use super::work::Kind;
use super::{Secured, literal};
use crate::rules::costly::plain;
use crate::units;
use record::finding::StatementTime;
use record::statement;

/// Characters of a condition, of a name and of a list in words.
pub(super) const CONDITION_CHARS: usize = 300;
const NAME_CHARS: usize = 120;

const OF_COLUMN: &str = "a function that takes a column of the row is called for each of them, whether it is STABLE or not, and (SELECT f(column)) changes \
    nothing about that: let a function without a column return all permitted keys at once, STABLE, and compare: column = ANY (ARRAY(SELECT permitted())); \
    this is computed once, and an index on the column finds the rows. Marking the function LEAKPROOF does not make it cheaper";
const VOLATILE: &str = "it takes no column of the row, so one value serves for all of them: declare the function STABLE, if it only reads, or write \
    (SELECT f()) in the policy; both let an index on the column be searched for it, and the second one is computed once also where rows are scanned";
const SUBQUERY: &str = "let the policy compare a column with keys that are found once: column = ANY (ARRAY(SELECT ...)) with a query that names no column of \
    the row, and an index on that column; IN (SELECT ...) and EXISTS are checked row by row. For keys that stay the same in a transaction, let the \
    application set them (SET LOCAL app.branch = ...), and the policy compare with current_setting()";
const CONSTANT: &str = "create an index on the column that the policy compares: its function is then called once for the search; write (SELECT f()) in the \
    policy besides, so that scans call it once, too";
const VALUE: &str = "create an index on the column that the policy compares: each statement on the table gets that condition, also where its own text has \
    none; with other columns behind it, it serves the statement's order as well";

/// What the policy does, as the end of a claim.
pub(super) fn sentence(found: &Secured<'_>) -> String {
    let work = &found.work;
    let policy = plain(&work.policy.name, NAME_CHARS);
    let rows = found.rows.map_or("each row".to_string(), |rows| {
        format!("each of the {} rows that an execution reads", units::count(rows))
    });
    let column = work.column.as_deref().map(|column| plain(column, NAME_CHARS)).unwrap_or_default();
    let function = work.function.map_or(String::new(), |function| {
        format!(
            "function {} ({}, {})",
            plain(&function.signature, NAME_CHARS),
            function.language,
            function.volatility
        )
    });
    if let Some(held) = &found.held {
        return held.sentence(&policy, &rows);
    }
    match (work.kind, found.index) {
        (Kind::OfColumn, _) => {
            format!("whose policy {policy} calls {function} with column {column} for {rows}")
        }
        (Kind::Volatile, Some(index)) => format!(
            "whose policy {policy} calls {function} for {rows}: for a VOLATILE function index {index} on {column} is not used"
        ),
        (Kind::Volatile, None) => format!("whose policy {policy} calls {function} for {rows}"),
        (Kind::Subquery, _) => format!("whose policy {policy} asks a subquery for {rows}"),
        (Kind::Constant, _) if column.is_empty() => {
            format!("whose policy {policy} calls {function} for {rows}")
        }
        (Kind::Constant, _) => {
            format!("whose policy {policy} calls {function} for {rows}: no index begins with {column}")
        }
        (Kind::Value, _) => {
            format!("whose policy {policy} compares {column} for {rows}: no index begins with {column}")
        }
    }
}

/// What helps.
pub(super) fn text(found: &Secured<'_>) -> String {
    if let Some(held) = &found.held {
        return held.advice();
    }
    let text = match found.work.kind {
        Kind::OfColumn => OF_COLUMN,
        Kind::Volatile => VOLATILE,
        Kind::Subquery => SUBQUERY,
        Kind::Constant => CONSTANT,
        Kind::Value => VALUE,
    };
    text.to_string()
}

/// What to type.
pub(super) fn commands(found: &Secured<'_>) -> Vec<String> {
    let work = &found.work;
    let policy = work.policy;
    if let Some(held) = &found.held {
        return held.commands(&policy.relation, &literal(&policy.relation));
    }
    let mut commands = vec![];
    if let Some(function) = work.function {
        commands.push(format!("SELECT pg_get_functiondef({}::regprocedure);", literal(&function.signature)));
        if work.kind == Kind::Volatile {
            commands.push(format!("ALTER FUNCTION {} STABLE; -- if it only reads", function.signature));
        }
        if matches!(work.kind, Kind::Volatile | Kind::Constant) && !policy.condition.contains("***") {
            let once = policy.condition.replacen(&work.call, &format!("(SELECT {})", work.call), 1);
            let once = once.split_whitespace().collect::<Vec<_>>().join(" ");
            commands.push(format!("ALTER POLICY {} ON {} USING ({once});", policy.name, policy.relation));
        }
    }
    if commands.is_empty() {
        commands.push(format!(
            "SELECT polname, pg_get_expr(polqual, polrelid) FROM pg_policy WHERE polrelid = {}::regclass;",
            literal(&policy.relation)
        ));
    }
    if let (Some(column), None) = (&work.column, found.index) {
        commands.push(statement::index_command(&policy.relation, std::slice::from_ref(column), true));
    }
    commands
}

/// A condition of the statement itself that has to wait for the policy, because what it calls is not known to keep the rows' values to itself.
pub(super) fn held_back(statement: &StatementTime) -> Option<&'static str> {
    let parsed = statement::parse(&statement.text).ok()?;
    let is_held = parsed.conditions.iter().any(|one| one.inside.is_some() || one.how.is_pattern());
    is_held.then_some(
        "conditions of the statement that call functions or operators without LEAKPROOF (lower(), LIKE) are checked behind the policy, and no index serves \
         them there",
    )
}

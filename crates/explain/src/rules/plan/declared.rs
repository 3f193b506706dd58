//! PLAN-61: estimates that are wrong because they were declared: rows of a function, distinct values of a column.

use super::function::{self, is_plain_name};
use super::hidden::does_more;
use super::{NEEDS, Planned, judge, severity, wrong_rows};
use crate::case::{Case, Thing};
use crate::rule::{Claim, Rule};
use crate::rules::statement::explain_it;
use crate::units;
use record::finding::{Level, Severity};
use record::watched::PECULIAR;

pub(in crate::rules) const RULES: &[Rule] = &[Rule {
    id: "PLAN-61",
    title: "the planner believes a number that was declared, and it is wrong",
    needs: NEEDS,
    limits: "10 % of the session time in a statement that touches far more blocks than its plan costs, by a nested loop, and reads a function that is declared \
        with few rows, or a table with n_distinct set for a column of its conditions; or whose plan expects ten times the rows that it returns, 1,000 or more, \
        with such a table; or that reads a table of 10,000 rows as a whole to join it with a function that is taken for 100 rows or more, though an index \
        is on the column, where the function reads a tenth of these (medium where the counters do not show it); or touches 1,000 blocks, and has a condition \
        of a column \
        whose statistics target is 0: medium (ours)",
    judge: |case| judge(case, claim, "declared rows of functions, and declared numbers of values"),
    links: &["https://www.postgresql.org/docs/current/sql-createfunction.html"],
}];

/// Blocks of an execution of a plan that was chosen by a guess.
const GUESSED_BLOCKS_MIN: f64 = 1_000.0;
/// Rows of a function for which a nested loop looks cheap.
const ROWS_MAX: f64 = 10.0;

/// A declaration: what it is, what to do, and the command.
struct Declared {
    what: String,
    text: &'static str,
    command: String,
}

fn of_function(case: &Case, planned: &Planned<'_>) -> Option<Declared> {
    let scan = planned.nodes.iter().find(|node| node.lines.word("kind") == "Function Scan")?;
    let expected = scan.lines.last("rows_planned").filter(|rows| *rows <= ROWS_MAX)?;
    let name = &function::function_for(case, planned, expected)?.name;
    Some(Declared {
        what: format!(
            "it expects {} of function {name}(), because the function is declared so (ROWS {expected:.0})",
            units::counted(expected as usize, "row")
        ),
        text: "declare how many rows the function returns, on average: the planner then chooses a join for that many",
        command: function::declare(name, 1_000),
    })
}

/// Columns of a table with a declared number of values: `column n_distinct=-1`, separated by `; `.
fn options<'a>(table: &Thing<'a>) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
    table.lines.word("column_options").split("; ").filter_map(|one| {
        let (column, options) = one.split_once(' ')?;
        options.contains("n_distinct").then_some((column, options))
    })
}

/// A column of a condition whose statistics are switched off: `statistics target 0 for column state`.
fn without_statistics(case: &Case, planned: &Planned<'_>) -> Option<Declared> {
    planned.nodes.iter().find_map(|node| {
        let relation = planned.relation_of(node);
        let fact = case.facts(PECULIAR).find(|fact| fact.node == planned.time.node && fact.name == relation)?;
        let texts = [node.lines.word("condition"), node.lines.word("filter")].join(" ");
        let mut off = fact.value.split("0 for column ").skip(1).filter_map(|rest| rest.split([',', ';']).next());
        let column = off.find(|column| is_plain_name(column) && texts.contains(column))?;
        Some(Declared {
            what: format!("column {column} of {relation} is left out of ANALYZE (its statistics target is 0), so the planner guesses"),
            text: "give the column statistics again and analyse",
            command: format!("ALTER TABLE {relation} ALTER COLUMN {column} SET STATISTICS -1; ANALYZE {relation};"),
        })
    })
}

fn of_column(case: &Case, planned: &Planned<'_>) -> Option<Declared> {
    planned.nodes.iter().find_map(|node| {
        let relation = planned.relation_of(node);
        let table = case.at("table", planned.time.node.as_str()).find(|table| table.lines.word("relation") == relation)?;
        let texts = [node.lines.word("condition"), node.lines.word("filter")].join(" ");
        let mut declared = options(&table).filter(|(column, _)| is_plain_name(column));
        let (column, options) = declared.find(|(column, _)| texts.contains(column))?;
        Some(Declared {
            what: format!("the number of values of {relation}.{column} was declared ({options}) instead of counted"),
            text: "take the declaration back and analyse: the planner then uses what it counts; n_distinct is for columns whose sample misleads it",
            command: format!("ALTER TABLE {relation} ALTER COLUMN {column} RESET (n_distinct, n_distinct_inherited); ANALYZE {relation};"),
        })
    })
}

fn claim(case: &Case, planned: &Planned<'_>) -> Option<Claim> {
    let has_loop = planned.nodes.iter().any(|node| node.lines.word("kind") == "Nested Loop");
    if !has_loop || !does_more(case, planned) {
        return too_many(case, planned)
            .or_else(|| super::rows::claim(case, planned))
            .or_else(|| guessed(case, planned));
    }
    let Declared { what, text, command } = of_function(case, planned)
        .or_else(|| of_column(case, planned))
        .or_else(|| without_statistics(case, planned))?;
    let (blocks, cost) = (planned.statement.blocks?, planned.plan.lines.last("cost_total")?);
    let claim = planned.claim(
        case,
        Level::CoOccurrence,
        severity(planned.statement.share),
        format!(
            "a statement that takes {} of the session time touches {} blocks per execution, and its plan costs only {}: {what}",
            planned.share(),
            units::short(blocks),
            units::short(cost)
        ),
    );
    Some(
        claim
            .number("blocks_per_call", blocks)
            .because(planned.file())
            .because("the plan has a nested loop, which is right for few rows only")
            .lacking("the rows of each step: EXPLAIN (ANALYZE, BUFFERS) with real values shows where the estimate goes wrong")
            .remedy(text, &[&command, &explain_it(case, &planned.time.node, planned.statement)]),
    )
}

/// The same where the declaration makes the planner expect far more rows than there are, so that it scans and hashes where a search would do.
/// A plan that touches many blocks, and guesses how many rows a condition leaves: whichever way it takes is chosen by chance.
fn guessed(case: &Case, planned: &Planned<'_>) -> Option<Claim> {
    let blocks = planned.statement.blocks.filter(|blocks| *blocks >= GUESSED_BLOCKS_MIN)?;
    let Declared { what, text, command } = without_statistics(case, planned)?;
    let claim = planned.claim(
        case,
        Level::CoOccurrence,
        Severity::Medium,
        format!(
            "a statement that takes {} of the session time touches {} blocks per execution: {what}",
            planned.share(),
            units::short(blocks)
        ),
    );
    Some(
        claim
            .number("blocks_per_call", blocks)
            .because(planned.file())
            .because("without statistics a condition is taken for one of 200 values, or for a fixed share of the rows: the choice of an index is a guess")
            .lacking("the plan that it takes with statistics")
            .remedy(text, &[&command, &explain_it(case, &planned.time.node, planned.statement)]),
    )
}

fn too_many(case: &Case, planned: &Planned<'_>) -> Option<Claim> {
    let (expected, counted) = wrong_rows(planned).filter(|(expected, counted)| expected > counted)?;
    let Declared { what, text, command } = of_column(case, planned)?;
    let claim = planned.claim(
        case,
        Level::CoOccurrence,
        severity(planned.statement.share),
        format!(
            "a statement that takes {} of the session time is planned for {} rows and returns {}: {what}",
            planned.share(),
            units::short(expected),
            units::short(counted)
        ),
    );
    Some(
        claim
            .number("rows_planned", expected)
            .number("rows_per_call", counted)
            .because(planned.file())
            .because("for so many rows the planner scans and hashes, where a search by an index would find the few that there are")
            .lacking("the rows of each step: EXPLAIN (ANALYZE, BUFFERS) with real values shows where the estimate goes wrong")
            .remedy(text, &[&command, &explain_it(case, &planned.time.node, planned.statement)]),
    )
}

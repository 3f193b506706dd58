//! PLAN-93: conditions on expressions, of which the planner knows nothing: it takes an equality for one row of 200, and joins by loops for so few.

use super::{NEEDS, Planned, judge, severity, tree};
use crate::case::Case;
use crate::rule::{Claim, Rule};
use crate::rules::costly::plain;
use crate::rules::paste::literal;
use crate::rules::statement::explain_it;
use crate::units;
use record::finding::Level;
use record::statement::{self, Form};

pub(in crate::rules) const RULES: &[Rule] = &[Rule {
    id: "PLAN-93",
    title: "the planner guesses how many rows a condition on an expression keeps",
    needs: NEEDS,
    limits: "10 % of the session time in a statement with a nested loop that returns ten times the rows that it is planned for, 100 or more, and scans a table \
        of 1,000 rows by an expression that is compared for equality, planned to keep a hundredth of them or less (ours)",
    judge: |case| judge(case, claim, "conditions on expressions, and the rows that plans expect of them"),
    links: &["https://www.postgresql.org/docs/current/planner-stats.html#PLANNER-STATS-EXTENDED"],
}];

/// Rows of an execution, and by how much they are more than planned.
const ROWS_MIN: f64 = 100.0;
const MORE: f64 = 10.0;
/// Rows of a table, and the part of them that is expected.
const TABLE_MIN: f64 = 1_000.0;
const KEPT_MAX: f64 = 0.01;
/// Characters of an expression in a claim.
const CHARS: usize = 80;

/// The first expression that a filter compares for equality.
fn compared(filter: &str) -> Option<String> {
    let all = statement::conjuncts(filter).ok()?;
    all.into_iter().filter(|one| one.form == Form::Compared && one.text.contains(" = ")).find_map(|one| {
        let of_column = one.columns.first().and_then(|column| column.computed.clone());
        // Which columns a CASE looks at is not read.
        let of_case = || {
            one.text
                .contains("CASE WHEN ")
                .then(|| one.text.rsplit_once(" = ").map(|(left, _)| left.to_string()))
        };
        of_column.or_else(|| of_case().flatten())
    })
}

fn claim(case: &Case, planned: &Planned<'_>) -> Option<Claim> {
    let rows = planned.statement.rows.filter(|rows| *rows >= ROWS_MIN)?;
    let expected = planned.plan.lines.last("rows_planned")?.max(1.0);
    let has_loop = planned.nodes.iter().any(|node| node.lines.word("kind") == "Nested Loop");
    if rows < expected * MORE || !has_loop {
        return None;
    }
    let guessed = planned.nodes.iter().filter_map(|node| {
        let has = node.lines.last("table_rows").filter(|has| *has >= TABLE_MIN)?;
        let keeps = tree::number(node, "rows_planned");
        let expression = compared(node.lines.word("filter"))?;
        (keeps <= has * KEPT_MAX).then(|| (planned.relation_of(node), expression, has, keeps))
    });
    let (relation, expression, has, keeps) = guessed.max_by(|left, right| left.2.total_cmp(&right.2))?;
    let text = format!(
        "a statement that takes {} of the session time is planned for {} and returns {}, by a nested loop: the planner has no statistics of the expression {} \
            of \
         {relation}, which it compares, and expects {} of its {} rows",
        planned.share(),
        units::counted(expected as usize, "row"),
        units::short(rows),
        plain(&expression, CHARS),
        units::short(keeps),
        units::short(has)
    );
    let (schema, table) = relation.rsplit_once('.').unwrap_or(("public", relation));
    let look = format!(
        "SELECT statistics_name, expr FROM pg_stats_ext_exprs WHERE schemaname = {} AND tablename = {}; -- is there one of the expression already",
        literal(schema.trim_matches('"')),
        literal(table.trim_matches('"'))
    );
    Some(
        planned
            .claim(case, Level::CoOccurrence, severity(planned.statement.share), text)
            .number("rows_planned", expected)
            .number("rows_per_call", rows)
            .because(planned.file())
            .because("of an expression without statistics the planner takes an equality for one row of 200, whatever it keeps")
            .lacking("how many rows it keeps: EXPLAIN (ANALYZE) with real values shows it")
            .remedy(
                "give the expression statistics (CREATE STATISTICS ... ON (expression) FROM the table, from PostgreSQL 14 on; an index on the expression \
                    gives it \
                 some, too) and analyse; or compare the column itself (NOT NULL with a default instead of COALESCE)",
                &[&look, &format!("ANALYZE {relation};"), &explain_it(case, &planned.time.node, planned.statement)],
            ),
    )
}

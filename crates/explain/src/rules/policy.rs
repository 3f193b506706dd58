//! PLAN-67: policies of row-level security that are evaluated for each row. The plan that our role gets may be one without them.

use super::costly::severity;
use super::paste::literal;
use super::plan::{does_more, planned};
use crate::case::Case;
use crate::rule::Need::Field;
use crate::rule::{Answer, Rule};
use crate::units;
use record::finding::Level;
use record::watched::PECULIAR;

pub(super) const RULES: &[Rule] = &[Rule {
    id: "PLAN-67",
    title: "a policy of row-level security is evaluated for each row",
    needs: &[Field("plan", "cost_total"), Field("statement", "calls"), Field("server", "sessions_active")],
    limits: "20 % of the session time in a statement on a table with row-level security that touches 1,000 blocks, 8 for each unit of the planner's \
        cost (ours)",
    judge,
    links: &["https://www.postgresql.org/docs/current/ddl-rowsecurity.html"],
}];

/// The share of the session time of the statement.
const SHARE_MIN: f64 = 0.2;
/// The name of such a table's peculiarity in the record.
const SECURED: &str = "row-level security";

fn judge(case: &Case) -> Answer {
    let mut claims = vec![];
    for planned in planned(case, SHARE_MIN).filter(does_more) {
        let is_of_plan = |name: &str| planned.nodes.iter().any(|node| node.lines.word("relation") == name);
        let secured = case.facts(PECULIAR).find(|fact| {
            fact.node == planned.time.node && fact.value.contains(SECURED) && is_of_plan(&fact.name)
        });
        let Some(table) = secured.map(|fact| fact.name.as_str()) else { continue };
        let blocks = planned.statement.blocks.unwrap_or(0.0);
        let text = format!(
            "a statement that takes {} of the session time touches {} blocks per execution of {table}, which has row-level security: what its policies ask is \
             evaluated for each row, by a query or a function (one that is not STABLE, or that takes a column of the row)",
            units::percent(planned.statement.share),
            units::short(blocks)
        );
        claims.push(
            planned
                .claim(case, Level::CoOccurrence, severity(planned.statement.share), text)
                .number("blocks_per_call", blocks)
                .because(format!(
                    "the planner's cost for our role, to which the policies may not apply, is only {}",
                    units::short(planned.plan.lines.last("cost_total").unwrap_or(0.0))
                ))
                .lacking("the policies' own work: EXPLAIN (ANALYZE, BUFFERS) as the role of the application shows it")
                .remedy(
                    "let a policy compare columns with a value that is computed once: (SELECT f()) instead of f(), and f() declared STABLE; where f takes \
                        a column, \
                     let a function without one return all permitted keys at once: column = ANY (ARRAY(SELECT permitted())); give the columns an index",
                    &[
                        &format!("SELECT polname, pg_get_expr(polqual, polrelid) FROM pg_policy WHERE polrelid = {}::regclass;", literal(table)),
                        "SELECT oid::regprocedure, provolatile FROM pg_proc WHERE provolatile = 'v' AND pronamespace::regnamespace::text !~ \
                         '^(pg_|information_schema)'; -- \
                            the functions that are evaluated for each row",
                    ],
                ),
        );
    }
    Answer::of(claims, || "blocks of statements on tables with row-level security".to_string())
}

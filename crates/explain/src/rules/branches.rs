//! TXN-24: many rows are given their new values by a list of cases, as the bulk updates of ORMs do: each row is compared with each of them.

use super::costly::{busy, in_a_line, lowered, severity};
use crate::case::Case;
use crate::rule::Need::Field;
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use record::finding::{Level, NodeTime, StatementTime};

pub(super) const RULES: &[Rule] = &[Rule {
    id: "TXN-24",
    title: "each updated row is compared with a long list of cases",
    needs: &[Field("statement", "rows"), Field("server", "sessions_active")],
    limits: "15 % of the session time in an UPDATE of 100 rows or more each time whose text sets a column by CASE with ten branches or more (ours)",
    judge,
    links: &["https://www.postgresql.org/docs/current/sql-update.html"],
}];

/// The share of the session time of the statement.
const SHARE_MIN: f64 = 0.15;
/// Rows of an execution: so many branches its list has, of which the text may show the first.
const ROWS_MIN: f64 = 100.0;
/// Branches in the text.
const BRANCHES_MIN: usize = 10;

/// Branches of lists of cases by which an UPDATE sets columns, as far as its text goes.
fn branches(text: &str) -> usize {
    let text = lowered(text);
    let is_update = text.trim_start().starts_with("update ");
    let Some(begin) = text.find(" set ").filter(|_| is_update) else { return 0 };
    // Behind its own condition a CASE is evaluated for each row that it looks at, which is something else.
    let set = &text[begin..];
    let set = &set[..set.find(" from ").unwrap_or(set.len())];
    if set.contains("case ") { set.matches("when ").count() } else { 0 }
}

fn judge(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        claims.extend(time.statements.iter().filter_map(|statement| of_statement(case, time, statement)));
    }
    Answer::of(claims, || "branches of CASE in updates of many rows".to_string())
}

fn of_statement(case: &Case, time: &NodeTime, statement: &StatementTime) -> Option<Claim> {
    let rows = statement.rows.filter(|rows| *rows >= ROWS_MIN)?;
    let text = case.query(&statement.query_id).unwrap_or(&statement.text);
    let branches = branches(text);
    if statement.share < SHARE_MIN || branches < BRANCHES_MIN {
        return None;
    }
    Some(
        Claim::new(
            severity(statement.share),
            Level::CoOccurrence,
            format!(
                "{}: {} of the session time is an UPDATE that gives {} rows their new values by CASE: each row is compared with the branches one \
                    after another, \
                 for each column, so that its work grows with the square of the rows",
                time.node,
                units::percent(statement.share),
                units::short(rows)
            ),
        )
        .on_node(&time.node)
        .during(case.one("server", &time.node).map(|server| server.ticks.window()))
        .number("share", statement.share)
        .number("rows_per_call", rows)
        .number("branches", branches as f64)
        .because(format!("the statement: {}", in_a_line(statement)))
        .because(format!("its text, as far as it was recorded, has {branches} branches"))
        .lacking("the share of its time in these comparisons: the rows themselves and their index entries are written as well")
        .remedy(
            "send the new values as rows and join them: UPDATE t SET a = v.a FROM unnest($1::bigint[], $2::float8[]) AS v (id, a) WHERE t.id = v.id; \
                or let the \
             ORM send smaller batches (Django: bulk_update(..., batch_size=100)), or COPY into a temporary table first",
            &[],
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branches_of_what_is_set_are_counted() {
        let branch = "WHEN (\"v\".\"id\" = $1) THEN $2 ";
        let bulk = format!(
            "UPDATE \"v\" SET \"lat\" = (CASE {} ELSE NULL END), \"lon\" = 3 WHERE id IN ($1)",
            branch.repeat(20)
        );
        assert_eq!(branches(&bulk), 20);
        assert_eq!(branches(&bulk[..200]), bulk[..200].matches("WHEN").count());
        assert_eq!(branches("update v set a = 3 where b in (1, 2)"), 0);
        assert_eq!(branches("select case when a then b end from v"), 0);
    }
}

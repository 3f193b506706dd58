//! TXN-18: one transaction updates the same rows again and again, so that no vacuum can remove the versions before it ends.

use super::costly::{busy, in_a_line, names_table, severity};
use crate::case::{Case, Thing};
use crate::rule::Need::Field;
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use record::finding::{Level, NodeTime, StatementTime};
use record::statement::{self, Verb};

pub(super) const RULES: &[Rule] = &[Rule {
    id: "TXN-18",
    title: "a transaction updates the same rows many times",
    needs: &[
        Field("table", "rows_updated"),
        Field("server", "xact_commit"),
        Field("server", "sessions_active"),
    ],
    limits: "20 % of the session time in a statement on a table whose updates are 100 a second, and for each transaction of the node, or each execution of \
        the statement, ten \
        times as many as the table has rows (ours)",
    judge: again,
    links: &["https://www.postgresql.org/docs/current/storage-hot.html"],
}];

/// The share of the session time of a statement on the table.
const SHARE_MIN: f64 = 0.2;
/// Updates of a second.
const UPDATES_PER_S_MIN: f64 = 100.0;
/// Of the blocks that were touched, those of a table that the statement does not name.
const OF_BLOCKS_MIN: f64 = 0.5;
/// Updates of each row in one transaction, on average.
const TIMES_MIN: f64 = 10.0;

/// Rows of a table: as the counters have them, which a crash resets, or as the planner does.
fn rows_of(table: &Thing<'_>) -> Option<f64> {
    let counted = table.lines.last("live_rows").unwrap_or(0.0);
    Some(counted.max(table.lines.last("planned_rows").unwrap_or(0.0))).filter(|rows| *rows >= 1.0)
}

/// How often one transaction updates each row of a table at least: if all transactions, or the executions of the statement that does it, did nothing else, and
/// all rows had their turn.
fn times(case: &Case, node: &str, statement: &StatementTime, table: &Thing<'_>) -> Option<f64> {
    let updates = table.lines.rate("rows_updated").filter(|rate| *rate >= UPDATES_PER_S_MIN)?;
    let rows = rows_of(table)?;
    let server = case.one("server", node)?;
    let transactions = server.rate("xact_commit")? + server.rate("xact_rollback").unwrap_or(0.0);
    // A batch whose trigger does it, or an UPDATE itself, has fewer executions than there are transactions; a query has nothing to do with it.
    let writes = statement::parse(&statement.text)
        .is_ok_and(|parsed| matches!(parsed.verb, Verb::Update | Verb::Insert))
        || !statement.outer.is_empty();
    let own = statement.calls_per_s.filter(|_| writes).unwrap_or(f64::MAX);
    let executions = own.min(transactions);
    let times = updates / executions.max(f64::MIN_POSITIVE) / rows;
    (times >= TIMES_MIN).then_some(times)
}

/// Whether most of the blocks that were touched belong to a table: a trigger may update it, which the statement that fires the trigger does not name.
fn has_most(time: &NodeTime, relation: &str) -> bool {
    let by = time.by.iter().find(|dimension| dimension.name == "relation");
    by.is_some_and(|by| by.shares.iter().any(|(name, share)| name == relation && *share >= OF_BLOCKS_MIN))
}

/// The table that a statement updates so often, itself or by a trigger.
fn found<'a>(case: &'a Case, time: &'a NodeTime) -> Option<(&'a StatementTime, Thing<'a>, f64)> {
    let large = time.statements.iter().filter(|one| one.share >= SHARE_MIN);
    let of = |statement: &'a StatementTime| {
        let tables = case.at("table", &time.node).filter(|table| {
            let relation = table.lines.word("relation");
            names_table(statement, relation) || has_most(time, relation)
        });
        let counted = tables.filter_map(|table| Some((table, times(case, &time.node, statement, &table)?)));
        let (table, times) = counted.max_by(|left, right| left.1.total_cmp(&right.1))?;
        Some((statement, table, times))
    };
    large.filter_map(of).max_by(|left, right| left.2.total_cmp(&right.2))
}

/// Whether TXN-18 explains the time of a statement.
pub(super) fn is_updated_again(case: &Case, time: &NodeTime, statement: &StatementTime) -> bool {
    found(case, time).is_some_and(|(found, ..)| found.query_id == statement.query_id)
}

fn again(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        let Some((statement, table, times)) = found(case, time) else { continue };
        let relation = table.lines.word("relation");
        let (rows, dead) = (rows_of(&table).unwrap_or(0.0), table.lines.max("dead_rows").unwrap_or(0.0));
        claims.push(
            Claim::new(
                severity(statement.share),
                Level::DiscriminatingCounter,
                format!(
                    "{}: one transaction updates the same rows of {relation} again and again, each of its {} rows {} times or more: every update leaves a \
                        version \
                        behind that nothing can remove before the transaction ends, and the next ones read them all",
                    time.node,
                    units::short(rows),
                    units::short(times)
                ),
            )
            .on_node(&time.node)
            .during([table.lines.ticks.window()])
            .number("share", statement.share)
            .number("updates_per_row", times)
            .because(format!("the statement: {}", in_a_line(statement)))
            .because(format!(
                "{} rows are updated a second, and the server ends {} transactions a second; {relation} has {} rows, and up to {} dead ones",
                units::short(table.lines.rate("rows_updated").unwrap_or(0.0)),
                units::short(case.one("server", &time.node).and_then(|server| server.rate("xact_commit")).unwrap_or(0.0)),
                units::short(rows),
                units::short(dead)
            ))
            .not("a vacuum that comes too late: within a transaction it can remove nothing")
            .remedy(
                "add up first, and update each row once: in a trigger FOR EACH STATEMENT with a transition table (REFERENCING NEW TABLE AS changed), or in the \
                 program; or insert the changes as rows of their own, and sum them up when they are read; or let the batch commit in smaller parts",
                &[
                    "SELECT tgrelid::regclass, tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal;",
                ],
            ),
        );
    }
    Answer::of(claims, || "updates of a table for each transaction, against its rows".to_string())
}

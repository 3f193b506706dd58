//! TXN-19: rows are locked by SELECT ... FOR UPDATE although hardly any of them is changed.

use super::costly::{busy, in_a_line, lowered, names_table, severity};
use crate::case::Case;
use crate::rule::Need::Field;
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use record::finding::{Level, NodeTime, StatementTime};

pub(super) const RULES: &[Rule] = &[Rule {
    id: "TXN-19",
    title: "rows are locked that are only read",
    needs: &[Field("statement", "rows"), Field("table", "rows_updated"), Field("server", "sessions_active")],
    limits: "20 % of the session time in a SELECT ... FOR UPDATE or FOR SHARE that locks 20 rows each time and 100 a second, and writes WAL, while its tables \
        have a tenth as many changes (ours)",
    judge,
    links: &["https://www.postgresql.org/docs/current/explicit-locking.html#LOCKING-ROWS"],
}];

/// The share of the session time.
const SHARE_MIN: f64 = 0.2;
/// Rows of an execution, and of a second.
const ROWS_MIN: f64 = 20.0;
const ROWS_PER_S_MIN: f64 = 100.0;
/// Changes of the tables, for each row that is locked.
const CHANGED_MAX: f64 = 0.1;
/// WAL of a row's lock: a record of 54 bytes or more (`xl_heap_lock`), less where the row was locked by the same transaction.
const WAL_PER_ROW_MIN: f64 = 20.0;
/// How a statement locks, in lower case.
const LOCKS: [&str; 4] = ["for no key update", "for key share", "for update", "for share"];

/// How a SELECT locks its rows. One that skips locked rows, or does not wait, takes work from a queue.
fn lock_of(text: &str) -> Option<&'static str> {
    let text = lowered(text);
    let is_select = text.starts_with("select ") || text.starts_with("with ");
    let is_of_queue = text.contains(" skip locked") || text.contains(" nowait");
    LOCKS.into_iter().find(|lock| is_select && !is_of_queue && text.contains(&format!(" {lock}")))
}

/// Rows that a statement locks in a second, and the changes of its tables.
fn locked(case: &Case, time: &NodeTime, statement: &StatementTime) -> Option<(f64, f64)> {
    let (rows, calls, wal) = (statement.rows?, statement.calls_per_s?, statement.wal_bytes?);
    let per_s = rows * calls;
    let is_much = rows >= ROWS_MIN && per_s >= ROWS_PER_S_MIN && wal >= rows * WAL_PER_ROW_MIN;
    let tables =
        case.at("table", &time.node).filter(|table| names_table(statement, table.lines.word("relation")));
    let rate = |lines: &crate::case::Lines, field: &str| lines.rate(field).unwrap_or(0.0);
    let changed: f64 =
        tables.map(|table| rate(table.lines, "rows_updated") + rate(table.lines, "rows_deleted")).sum();
    (is_much && changed <= per_s * CHANGED_MAX).then_some((per_s, changed))
}

fn judge(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        for statement in time.statements.iter().filter(|one| one.share >= SHARE_MIN) {
            let Some(lock) = lock_of(&statement.text) else { continue };
            let Some((per_s, changed)) = locked(case, time, statement) else { continue };
            let lock = lock.to_uppercase();
            let wal = statement.wal_bytes.unwrap_or(0.0);
            claims.push(
                Claim::new(
                    severity(statement.share),
                    Level::DiscriminatingCounter,
                    format!(
                        "{}: {} of the session time is a SELECT ... {lock} that locks {} rows each time, {} times a second, while only {} rows a second of its \
                         tables are changed: each row lock is written into the row and into the WAL, {} for each execution",
                        time.node,
                        units::percent(statement.share),
                        units::short(statement.rows.unwrap_or(0.0)),
                        units::short(statement.calls_per_s.unwrap_or(0.0)),
                        units::short(changed),
                        units::bytes(wal)
                    ),
                )
                .on_node(&time.node)
                .during(case.one("server", &time.node).map(|server| server.ticks.window()))
                .number("share", statement.share)
                .number("rows_locked_per_s", per_s)
                .number("rows_changed_per_s", changed)
                .number("wal_bytes_per_call", wal)
                .because(format!("the statement: {}", in_a_line(statement)))
                .because("a row lock makes the page dirty and takes a transaction id, so that a statement that reads has the costs of one that writes")
                .not("waiting for these rows: that would be LCK-01 or DIST-06, and costs time of its own")
                .lacking("whether the rows are locked to keep others away while something else is changed")
                .remedy(
                    "read without the lock where nothing is changed: in mappers it is often a default of the repository or of the query (PESSIMISTIC_WRITE, \
                     with_for_update, select_for_update); lock only the rows that are changed, when they are, or check a version column in the UPDATE",
                    &["SELECT calls, rows, wal_bytes, left(query, 80) AS query FROM pg_stat_statements WHERE query ~* ' for (update|share|no key|key)' \
                       ORDER BY total_exec_time DESC LIMIT 10;"],
                ),
            );
        }
    }
    Answer::of(claims, || "statements that lock rows, and changes of their tables".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_of_a_select_is_found_and_that_of_a_queue_is_not() {
        for (text, lock) in [
            ("select a from t where b = $1 order by c for update", Some("for update")),
            ("SELECT a FROM t FOR NO KEY UPDATE OF t", Some("for no key update")),
            ("select a from t for update skip locked limit $1", None),
            ("select a from t where note = 'x'", None),
            ("update t set a = $1", None),
        ] {
            assert_eq!(lock_of(text), lock, "{text}");
        }
    }
}

//! TXN-19: rows are locked by SELECT ... FOR UPDATE although hardly any of them is changed.

use super::costly::{busy, in_a_line, is_name_of, lowered, parts_of, severity};
use crate::case::{Case, Thing};
use crate::rule::Need::Field;
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use record::finding::{Level, NodeTime, Severity, StatementTime};
use record::statement::{self, TableName, Verb};

pub(super) const RULES: &[Rule] = &[Rule {
    id: "TXN-19",
    title: "rows are locked, and hardly any of them is changed",
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
/// Blocks of an execution, for each row that it locks: what finds them touches as many.
const BLOCKS_PER_ROW_MAX: f64 = 10.0;
/// Other writes, for each execution.
const GUARDED_MIN: f64 = 0.5;
/// How a statement locks, in lower case.
const LOCKS: [&str; 4] = ["for no key update", "for key share", "for update", "for share"];

/// How a SELECT locks its rows. One that skips locked rows, or does not wait, takes work from a queue.
fn lock_of(text: &str) -> Option<&'static str> {
    let text = lowered(text);
    let is_select = text.starts_with("select ") || text.starts_with("with ");
    let is_of_queue = text.contains(" skip locked") || text.contains(" nowait");
    LOCKS.into_iter().find(|lock| is_select && !is_of_queue && text.contains(&format!(" {lock}")))
}

/// The tables that a statement names: their own lines, and those of their partitions. `None` if one is something else, as a view, or is not recorded.
fn tables<'a>(case: &'a Case, time: &'a NodeTime, names: &[TableName]) -> Option<Vec<Thing<'a>>> {
    let mut found = vec![];
    for name in names {
        let of_name = case.at("table", time.node.as_str()).filter(|table| {
            let parent = table.lines.word("partition_of");
            is_name_of(name, table.lines.word("relation"))
                || !parent.is_empty() && parts_of(parent).1 == name.name
        });
        let before = found.len();
        found.extend(of_name);
        if found.len() == before {
            return None;
        }
    }
    (!found.is_empty()).then_some(found)
}

/// The tables of a SELECT that locks, also where the parser does not know the kind of lock.
fn named(text: &str) -> Option<Vec<TableName>> {
    // Names keep their case.
    let small = text.to_ascii_lowercase();
    let at = LOCKS.iter().filter_map(|lock| small.rfind(lock)).min()?;
    statement::parse(&text[..at]).ok().map(|parsed| parsed.tables)
}

/// Rows that a statement locks in a second, and the changes of its tables.
fn locked(case: &Case, time: &NodeTime, statement: &StatementTime) -> Option<(f64, f64)> {
    let (rows, calls, wal) = (statement.rows?, statement.calls_per_s?, statement.wal_bytes?);
    let per_s = rows * calls;
    let is_much = rows >= ROWS_MIN && per_s >= ROWS_PER_S_MIN && wal >= rows * WAL_PER_ROW_MIN;
    // Otherwise the time goes to finding the rows.
    let is_of_locks = statement.blocks.is_none_or(|blocks| blocks <= rows * BLOCKS_PER_ROW_MAX);
    if !is_much || !is_of_locks {
        return None;
    }
    let names = named(&statement.text)?;
    let rate = |lines: &crate::case::Lines, field: &str| lines.rate(field).unwrap_or(0.0);
    let tables = tables(case, time, &names)?;
    let changed: f64 = tables
        .iter()
        .map(|table| rate(table.lines, "rows_updated") + rate(table.lines, "rows_deleted"))
        .sum();
    (changed <= per_s * CHANGED_MAX).then_some((per_s, changed))
}

/// Whether a statement writes: by its verb, or, if it names no table itself, as the call of a function, by the WAL of an execution. What only ends a
/// transaction, writes the record of that.
fn writes(text: &str, wal_bytes: f64) -> bool {
    let is_call = || wal_bytes >= WAL_OF_WRITE_MIN && !statement::is_frame(text);
    match statement::parse(text) {
        Ok(parsed) if matches!(parsed.verb, Verb::Insert | Verb::Update | Verb::Delete | Verb::Merge) => true,
        Ok(parsed) => parsed.tables.is_empty() && is_call(),
        Err(_) => !text.is_empty() && lock_of(text).is_none() && is_call(),
    }
}

/// Bytes of WAL of an execution that writes a row: the record of an insert has more.
const WAL_OF_WRITE_MIN: f64 = 60.0;

/// Whether as many other statements write, so that the locks may guard something else. They may be too short for the list of the costliest.
fn guards(case: &Case, time: &NodeTime, statement: &StatementTime) -> bool {
    let others = case.at("statement", &time.node).filter(|one| {
        let id = one.lines.word("query_id");
        let calls = one.lines.sum("calls").unwrap_or(0.0).max(1.0);
        let wal = one.lines.sum("wal_bytes").unwrap_or(0.0) / calls;
        id != statement.query_id && writes(case.query(id).unwrap_or_default(), wal)
    });
    let written: f64 = others.filter_map(|one| one.lines.rate("calls")).sum();
    written >= statement.calls_per_s.unwrap_or(0.0) * GUARDED_MIN
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
                    if guards(case, time, statement) { Severity::Low } else { severity(statement.share) },
                    Level::CoOccurrence,
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

    #[test]
    fn a_call_writes_if_its_executions_have_wal() {
        for (text, wal, is_write) in [
            ("insert into t values ($1)", 0.0, true),
            ("select post($1)", 7_400.0, true),
            ("select post($1)", 0.0, false),
            ("call post($1)", 7_400.0, true),
            ("COMMIT", 90.0, false),
            // Pages that it tidies up.
            ("select a from t where b = $1", 300.0, false),
            ("", 300.0, false),
        ] {
            assert_eq!(writes(text, wal), is_write, "{text} {wal}");
        }
    }
}

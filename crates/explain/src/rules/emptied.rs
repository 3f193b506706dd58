//! TXN-16, TXN-17: tables that are emptied all the time, and rows that are deleted to be inserted again.

use super::costly::{busy, in_a_line, is_name_of, severity};
use crate::case::Case;
use crate::rule::Need::Field;
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use record::finding::{Level, NodeTime, Severity, StatementTime};
use record::statement::{self, Statement, Use, Verb};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "TXN-16",
        title: "TRUNCATE runs again and again",
        needs: &[Field("statement", "calls"), Field("server", "sessions_active")],
        limits: "20 % of the session time in TRUNCATE, once in 5 s or more (ours)",
        judge: truncated,
        links: &["https://www.postgresql.org/docs/current/sql-truncate.html"],
    },
    Rule {
        id: "TXN-17",
        title: "rows are deleted and inserted again",
        needs: &[Field("statement", "calls"), Field("statement", "rows"), Field("server", "sessions_active")],
        limits: "20 % of the session time in a DELETE of several rows by a key and an INSERT of single rows into the same table, which differ in rows \
            by a fifth or \
            less, 20 rows a second (ours)",
        judge: replaced,
        links: &["https://www.postgresql.org/docs/current/mvcc-intro.html"],
    },
];

/// The share of the session time.
const SHARE_MIN: f64 = 0.2;
/// Executions a second of TRUNCATE.
const TRUNCATES_PER_S_MIN: f64 = 0.2;
/// The share of the session time, or of the time of all statements, from which on it is no longer low.
const MOST_MIN: f64 = 0.5;
/// Rows of a DELETE.
const ROWS_DELETED_MIN: f64 = 2.0;
/// Rows inserted for each row deleted.
const AS_MANY: std::ops::RangeInclusive<f64> = 0.8..=1.2;
/// Rows inserted a second.
const ROWS_PER_S_MIN: f64 = 20.0;
/// Rows of one INSERT: object mappers send them one by one, or in small batches.
const ROWS_INSERTED_MAX: f64 = 1.5;

fn is_truncate(statement: &StatementTime) -> bool {
    statement.text.trim_start().get(..9).is_some_and(|word| word.eq_ignore_ascii_case("truncate "))
}

fn truncated(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        let all: Vec<&StatementTime> = time.statements.iter().filter(|one| is_truncate(one)).collect();
        let share: f64 = all.iter().map(|one| one.share).sum();
        let per_s: f64 = all.iter().filter_map(|one| one.calls_per_s).sum();
        let Some(worst) = all.iter().max_by(|left, right| left.share.total_cmp(&right.share)) else {
            continue;
        };
        let in_locks: f64 =
            worst.events.iter().filter(|(event, _)| event.starts_with("Lock:")).map(|(_, share)| share).sum();
        // One that waits for readers is slow because of them.
        if share < SHARE_MIN || per_s < TRUNCATES_PER_S_MIN || in_locks >= MOST_MIN {
            continue;
        }
        let tables = worst.text.matches(',').count() + 1;
        claims.push(
            Claim::new(
                severity(share),
                Level::DiscriminatingCounter,
                format!(
                    "{}: {} of the session time is TRUNCATE, {} times a second, of {} each time: every table, index and TOAST table \
                     gets a new file, whether it had rows or not",
                    time.node,
                    units::percent(share),
                    units::short(per_s),
                    units::counted(tables, "table")
                ),
            )
            .on_node(&time.node)
            .during(case.one("server", &time.node).map(|server| server.ticks.window()))
            .number("share", share)
            .number("truncates_per_s", per_s)
            .because(format!("the statement: {}", in_a_line(worst)))
            .because("it also locks each table against readers, writes the catalogs, and makes other sessions drop what they have cached")
            .lacking("how many rows there were: for few, DELETE is faster")
            .remedy(
                "empty only the tables that have rows; take DELETE for tables of few rows; in tests end each with ROLLBACK instead (a transaction around each \
                 test), or clean up once per run",
                &[],
            ),
        );
    }
    Answer::of(claims, || "TRUNCATE among the statements that take the time".to_string())
}

/// Statements of a kind on one table, read.
fn of_verb(time: &NodeTime, verb: Verb) -> impl Iterator<Item = (&StatementTime, Statement)> {
    time.statements.iter().filter_map(move |one| {
        let parsed = statement::parse(&one.text).ok()?;
        (parsed.verb == verb && parsed.tables.len() == 1).then_some((one, parsed))
    })
}

/// Rows a second that a statement writes.
fn rows_per_s(statement: &StatementTime) -> f64 {
    statement.rows.unwrap_or(0.0) * statement.calls_per_s.unwrap_or(0.0)
}

fn replaced(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        for (delete, of_delete) in of_verb(time, Verb::Delete) {
            // By a key: what is older than a limit does not come back.
            let hows: Vec<Use> = of_delete.conditions.iter().map(|one| one.how).collect();
            let is_by_key = hows.contains(&Use::Equality) && !hows.contains(&Use::Range);
            let is_of_several = delete.rows.unwrap_or(0.0) >= ROWS_DELETED_MIN && is_by_key;
            let table = &of_delete.tables[0];
            let into_it = |(insert, parsed): &(&StatementTime, Statement)| {
                let named =
                    parsed.tables[0].schema.as_ref().map_or(String::new(), |schema| format!("{schema}."));
                let is_single = insert.rows.unwrap_or(0.0) <= ROWS_INSERTED_MAX;
                is_single && is_name_of(table, &format!("{named}{}", parsed.tables[0].name))
            };
            let Some((insert, _)) = of_verb(time, Verb::Insert).find(into_it).filter(|_| is_of_several)
            else {
                continue;
            };
            let (gone, back) = (rows_per_s(delete), rows_per_s(insert));
            let share = delete.share + insert.share;
            let as_many = AS_MANY.contains(&(back / gone.max(f64::MIN_POSITIVE)));
            if !as_many || back < ROWS_PER_S_MIN || share < SHARE_MIN {
                continue;
            }
            claims.push(of_pair(case, time, (delete, insert), &table.name, share));
        }
    }
    Answer::of(claims, || "rows deleted and inserted by statements on the same table".to_string())
}

fn of_pair(
    case: &Case,
    time: &NodeTime,
    (delete, insert): (&StatementTime, &StatementTime),
    table: &str,
    share: f64,
) -> Claim {
    let counted: f64 = time.statements.iter().map(|one| one.share).sum();
    let is_most = share >= MOST_MIN || share >= counted * MOST_MIN;
    Claim::new(
        if is_most { Severity::Medium } else { Severity::Low },
        Level::CoOccurrence,
        format!(
            "{}: {} of the session time deletes rows of {} and inserts as many again one by one: {} deleted and {} inserted a second, as object mappers \
             do that \
             replace a whole collection to change one element",
            time.node,
            units::percent(share),
            super::costly::plain(table, 80),
            units::short(rows_per_s(delete)),
            units::short(rows_per_s(insert))
        ),
    )
    .on_node(&time.node)
    .during(case.one("server", &time.node).map(|server| server.ticks.window()))
    .number("share", share)
    .number("rows_deleted_per_s", rows_per_s(delete))
    .number("rows_inserted_per_s", rows_per_s(insert))
    .because(format!("{} rows each: {}", units::short(delete.rows.unwrap_or(0.0)), in_a_line(delete)))
    .because(format!("{} times a second: {}", units::short(insert.calls_per_s.unwrap_or(0.0)), in_a_line(insert)))
    .because("each of these rows leaves a dead one and new index entries, also if it is the same as before")
    .lacking("whether the values are the same: they are not recorded; a queue whose rows are taken several at a time looks alike")
    .remedy(
        "write only what has changed: compare both sets and delete or insert the difference (INSERT ... ON CONFLICT DO NOTHING, DELETE ... WHERE NOT key = ANY \
         (...)); in Hibernate give the collection an order or make it a Set, in other object mappers save the element alone",
        &[],
    )
}

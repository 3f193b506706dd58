//! PLAN-99: an UPDATE that changes the key of a partitioned table, so that rows move from one partition to another.

use super::costly::{busy, in_a_line, is_name_of, lowered, names_table, severity};
use super::paste::literal;
use crate::case::{Case, Thing};
use crate::rule::Need::Field;
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use record::finding::{Level, NodeTime, Severity, StatementTime};
use record::statement::{self, TableName, Verb};

pub(super) const RULES: &[Rule] = &[Rule {
    id: "PLAN-99",
    title: "an UPDATE moves rows from one partition to another",
    needs: &[Field("statement", "calls"), Field("table", "rows_deleted"), Field("server", "sessions_active")],
    limits: "20 % of the session time in an UPDATE of a partitioned table whose partitions count half of its rows or more both as inserted and as deleted, \
        without those of INSERT, COPY and DELETE (ours); never high",
    judge,
    links: &["https://www.postgresql.org/docs/current/sql-update.html"],
}];

/// The share of the session time of the statement.
const SHARE_MIN: f64 = 0.2;
/// Of the rows that it changes, those that move; and how many a second.
const MOVED_SHARE_MIN: f64 = 0.5;
const MOVED_PER_S_MIN: f64 = 1.0;

/// Rows that the partitions of a table count in a second.
#[derive(Default)]
struct Counted {
    inserted: f64,
    deleted: f64,
    partitions: usize,
}

/// What the partitions of a named table count, and the name of that table as the server has it.
fn counted<'a>(case: &'a Case, node: &'a str, database: &str, named: &TableName) -> (Counted, &'a str) {
    let is_part = |table: &Thing<'_>| {
        let whole = table.lines.word("partition_of");
        let is_there = database.is_empty() || table.lines.word("database") == database;
        is_there && !whole.is_empty() && is_name_of(named, whole)
    };
    let (mut all, mut whole) = (Counted::default(), "");
    for table in case.at("table", node).filter(is_part) {
        let rate = |field: &str| table.lines.rate(field).unwrap_or(0.0);
        all.inserted += rate("rows_inserted");
        all.deleted += rate("rows_deleted");
        all.partitions += 1;
        whole = table.lines.word("partition_of");
    }
    (all, whole)
}

/// Rows that other statements insert into a table, and delete from it, in a second.
fn of_others(time: &NodeTime, relation: &str) -> (f64, f64) {
    let (mut inserted, mut deleted) = (0.0, 0.0);
    for one in time.statements.iter().filter(|one| names_table(one, relation)) {
        let rows = one.rows.unwrap_or(0.0) * one.calls_per_s.unwrap_or(0.0);
        match statement::parse(&one.text).map(|parsed| parsed.verb) {
            Ok(Verb::Insert | Verb::Merge) => inserted += rows,
            Ok(Verb::Delete) => deleted += rows,
            Ok(Verb::Update | Verb::Select) => {}
            _ if lowered(&one.text).starts_with("copy ") => inserted += rows,
            _ => {}
        }
    }
    (inserted, deleted)
}

fn of_statement(case: &Case, time: &NodeTime, one: &StatementTime) -> Option<Claim> {
    let parsed = statement::parse(&one.text).ok().filter(|parsed| parsed.verb == Verb::Update)?;
    let (counted, relation) = counted(case, &time.node, &one.database, parsed.tables.first()?);
    let changed = one.rows? * one.calls_per_s?;
    let (inserted, deleted) = of_others(time, relation);
    let moved = (counted.inserted - inserted).min(counted.deleted - deleted).min(changed);
    if relation.is_empty() || moved < MOVED_PER_S_MIN || moved < changed * MOVED_SHARE_MIN {
        return None;
    }
    let text = format!(
        "{}: {} of the session time is one UPDATE that moves rows of {relation} from one partition to another, {} a second of the {} that it changes: \
         each of them is a DELETE and an INSERT, with new entries in all indexes of the other partition",
        time.node,
        units::percent(one.share),
        units::short(moved),
        units::short(changed)
    );
    let key = format!("SELECT pg_get_partkeydef({}::regclass);", literal(relation));
    Some(
        Claim::new(severity(one.share).min(Severity::Medium), Level::DiscriminatingCounter, text)
            .on_node(&time.node)
            .during(case.one("server", &time.node).map(|server| server.ticks.window()))
            .number("share", one.share)
            .number("rows_moved_per_s", moved)
            .because(format!("the statement: {}", in_a_line(one)))
            .because(format!(
                "its {} count {} rows a second as inserted and {} as deleted; statements that insert and delete have {} and {} of them",
                units::counted(counted.partitions, "partition"),
                units::short(counted.inserted),
                units::short(counted.deleted),
                units::short(inserted),
                units::short(deleted)
            ))
            .because(format!("it sets {}", parsed.assigned.join(", ")))
            .not("updates in place: a row that stays in its partition is counted as updated")
            .remedy(
                "partition by what does not change (the time of creation, the tenant), and find the few rows of a state by a partial index (WHERE state = \
                 'open'); or let a row keep its partition until it is finished, and move finished rows by a job, many in one statement",
                &[&key],
            ),
    )
}

fn judge(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        let large = time.statements.iter().filter(|one| one.share >= SHARE_MIN);
        claims.extend(large.filter_map(|one| of_statement(case, time, one)));
    }
    Answer::of(claims, || "updates of partitioned tables, and what their partitions count".to_string())
}

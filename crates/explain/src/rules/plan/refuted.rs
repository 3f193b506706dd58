//! Plans that the counters refute: watch plans a statement for any values, and sessions execute it by another plan. A plan that reads a table as a whole,
//! while no scan of the whole table is counted and its indexes are searched, is no evidence of what executions do.

use super::{Planned, SHARE_MIN, recorded};
use crate::case::{Case, Thing};
use crate::rule::Claim;
use crate::rules::costly::in_locks;
use crate::units;
use record::finding::{Level, NodeTime, Severity, StatementTime};
use record::watched::{NAMED_AGE_S, NAMED_MAX};

/// Rows of a table whose scan shows.
const ROWS_MIN: f64 = 1_000.0;
/// Executions that have ended.
const CALLS_MIN: f64 = 3.0;
/// The server counts scans when a transaction ends: one that is older than so many executions, and than those that have a line, may have counted none.
const EXECUTIONS_MAX: f64 = 3.0;

/// The table that the plan reads as a whole, and that executions only read by indexes.
pub(super) fn by_index<'a>(
    case: &'a Case,
    time: &'a NodeTime,
    statement: &StatementTime,
    nodes: &[Thing<'a>],
) -> Option<Thing<'a>> {
    // The most usual case first: no counters are looked for.
    let whole = |node: &&Thing<'_>| node.lines.word("kind").ends_with("Seq Scan");
    let scanned = nodes.iter().filter(whole).filter(|node| node.lines.last("table_rows") >= Some(ROWS_MIN));
    let is_read = |node: &Thing<'a>| -> Option<Thing<'a>> {
        let relation = node.lines.word("relation");
        let mut tables = case.at("table", &time.node).filter(|table| {
            table.lines.word("relation") == relation && table.lines.word("database") == statement.database
        });
        let table = tables.next()?;
        let sum = |field: &str| table.lines.sum(field);
        let is_searched = sum("seq_scans") == Some(0.0) && sum("index_scans")? >= CALLS_MIN;
        is_searched.then_some(table)
    };
    let mut read = scanned.filter_map(is_read);
    let table = read.next()?;
    (is_counted(case, time, statement)).then_some(table)
}

/// Whether scans of the executions have been counted: several have ended, and so have their transactions.
fn is_counted(case: &Case, time: &NodeTime, statement: &StatementTime) -> bool {
    let seconds = case.one("server", &time.node).map_or(0.0, |server| {
        let window = server.ticks.window();
        window.to_us.saturating_sub(window.from_us) as f64 / 1e6
    });
    let is_ended = statement.calls_per_s.is_some_and(|calls| calls * seconds >= CALLS_MIN);
    let most = f64::from(NAMED_AGE_S) + EXECUTIONS_MAX * statement.mean_ms.unwrap_or(0.0) / 1e3;
    let is_its = |session: &Thing<'_>| session.lines.word("query_id") == statement.query_id;
    let mut ages =
        case.at("session", &time.node).filter(is_its).filter_map(|session| session.lines.max("xact_age_s"));
    let youngest =
        ages.by_ref().fold(None, |least: Option<f64>, age| Some(least.map_or(age, |one| one.min(age))));
    // Where no session of it was old enough for a line of its own, none is: unless there were so many others that the lines were used up.
    let are_all_named = || case.at("session", &time.node).count() < NAMED_MAX as usize;
    is_ended && youngest.map_or_else(are_all_named, |age| age <= most)
}

/// Claims about statements whose plan is refuted so: what they do is known by the counters alone.
pub(super) fn claims(case: &Case) -> Vec<Claim> {
    let refuted = super::busy(case).flat_map(|time| {
        // What waits for locks waits with any plan.
        let of_plan = |statement: &&StatementTime| statement.share * (1.0 - in_locks(statement)) >= SHARE_MIN;
        let large = time.statements.iter().filter(of_plan);
        large.filter_map(move |statement| {
            let planned = recorded(case, time, statement)?;
            let table = by_index(case, time, statement, &planned.nodes)?;
            Some(claim(case, &planned, &table))
        })
    });
    refuted.collect()
}

fn claim(case: &Case, planned: &Planned<'_>, table: &Thing<'_>) -> Claim {
    let relation = table.lines.word("relation");
    let sum = |field: &str| table.lines.sum(field).unwrap_or(0.0);
    let each = sum("index_rows") / sum("index_scans").max(1.0);
    let text = format!(
        "a statement that takes {} of the session time reads {relation} by its indexes, {} times while it was watched, though its plan for any values scans \
            the \
         whole table: for the values that are given the server takes another plan",
        planned.share(),
        units::count(sum("index_scans"))
    );
    planned
        .claim(case, Level::DiscriminatingCounter, Severity::Low, text)
        .number("index_scans", sum("index_scans"))
        .number("index_rows_per_scan", each)
        .because(format!(
            "no scan of the whole table was counted; each search of an index found {} rows, an execution touches {} blocks",
            units::short(each),
            units::short(planned.statement.blocks.unwrap_or(0.0))
        ))
        .because(planned.file())
        .lacking("the plan in the application's own session: auto_explain with log_min_duration shows it")
        .remedy(
            "look at the plan for values that the application gives: EXPLAIN (ANALYZE, BUFFERS); where a step expects far fewer rows than there are, \
             analyse the tables of that step",
            &[],
        )
}

/// Whether a plan reads the catalog alone, which gets no other indexes and no other statistics (SES-07).
pub(super) fn is_of_catalog(nodes: &[Thing<'_>]) -> bool {
    let relations = nodes.iter().map(|node| node.lines.word("relation")).filter(|name| !name.is_empty());
    let mut relations = relations.peekable();
    relations.peek().is_some() && relations.all(|name| name.starts_with("pg_catalog."))
}

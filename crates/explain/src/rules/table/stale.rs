//! PLAN-05: statistics of the planner that are old or absent, of a table in which the time is, or which leads a join into others.

use super::{BLOCKS_PER_ROW, GENERIC_BLOCKS_MIN, SCAN_ROWS_MIN, SCAN_SHARE_MIN, bare, share_in};
use crate::case::{Case, Thing};
use crate::rule::{Answer, Claim};
use crate::rules::costly::{busy, is_name_of, severity};
use crate::units;
use record::finding::{Level, NodeTime, Severity, StatementTime};
use record::statement::Verb;

/// The share of the session time in a table.
const STALE_SHARE_MIN: f64 = 0.1;
/// Rows of a table whose statistics matter.
const STALE_ROWS_MIN: f64 = 10_000.0;
/// Rows against what the planner assumes, or the reverse.
const STALE_FACTOR: f64 = 2.0;
/// Rows changed since the last ANALYZE, as a share of all, from which on their values may be others. Autovacuum analyses from a tenth on.
const CHANGED_SHARE_MIN: f64 = 0.3;
/// Scans of a table, by any way, that were planned with its statistics.
const READS_MIN: f64 = 2.0;
/// Growth since the last ANALYZE from which on most rows have values that the planner has not seen.
const GROWN_MUCH: f64 = 4.0;
/// Rows that came between the load and the first look, of those that were loaded.
const GROWN_SHARE: f64 = 0.05;
/// Of the rows that changed since the last ANALYZE, those that were inserted while we looked, from which on a load is going on.
const FILLING_SHARE: f64 = 0.5;
/// Pauses of autovacuum within which it has had no fair chance to analyse what a load has brought.
const PAUSES: f64 = 2.0;
/// Two numbers of rows are the same with this difference.
const NEAR_SHARE: f64 = 0.01;

/// Why the statistics of a table do not fit it; `None` if they do, or nothing is known.
fn misfit(table: &Thing<'_>) -> Option<String> {
    let rows = table.lines.last("live_rows").filter(|rows| *rows >= STALE_ROWS_MIN)?;
    let changed = table.lines.last("changed_since_analyze")?;
    let analyzes = table.lines.last("analyzes_total")?;
    // The statistics of a table that is only filled lead no plan.
    let reads: f64 = ["seq_scans", "index_scans"].iter().filter_map(|field| table.lines.sum(field)).sum();
    match table.lines.last("planned_rows") {
        None if analyzes == 0.0 && reads >= READS_MIN => Some(format!(
            "it was never analysed: the planner guesses, {} rows changed",
            units::count(changed)
        )),
        Some(planned) if is_counted_twice(table, rows, planned, changed) => None,
        // As many rows must have changed as the two differ by: live rows are an estimate of their own.
        Some(planned) if changed >= (rows - planned).abs() / 2.0 => {
            let is_far = rows >= planned * STALE_FACTOR || rows * STALE_FACTOR <= planned;
            let when = table
                .lines
                .last("analyzed_s")
                .map_or("never since the statistics were reset".to_string(), |s| {
                    format!("{} before the end", units::seconds(s))
                });
            is_far.then(|| {
                format!(
                    "it was analysed with {} rows, {} are there, whose values the planner does not know; last ANALYZE: {when}; {} rows changed since",
                    units::count(planned),
                    units::count(rows),
                    units::count(changed)
                )
            })
        }
        _ => None,
    }
}

/// Whether most kinds of its values were there at the last ANALYZE: the planner takes as many rows as the table has pages for, so that only values that came
/// since can mislead it.
fn has_grown_little(table: &Thing<'_>) -> bool {
    let of = |field: &str| table.lines.last(field);
    of("live_rows").zip(of("planned_rows")).is_some_and(|(rows, planned)| {
        planned > 0.0 && rows < planned * GROWN_MUCH && planned < rows * GROWN_MUCH
    })
}

/// Whether a load fills a table just now, and autovacuum has not had the time to analyse it again: it will, and until then only new values are unknown.
fn is_being_filled(case: &Case, time: &NodeTime, table: &Thing<'_>) -> bool {
    let last = |field: &str| table.lines.last(field);
    let inserted = table.lines.sum("rows_inserted").unwrap_or(0.0);
    let is_filled = last("changed_since_analyze").is_some_and(|changed| inserted >= changed * FILLING_SHARE);
    let pause_s =
        case.setting(&time.node, "autovacuum_naptime").and_then(units::setting).unwrap_or(60e3) / 1e3;
    let is_recent = last("analyzed_s").is_some_and(|s| s <= pause_s * PAUSES);
    is_filled && is_recent && !is_off(case, time, table)
}

/// Whether nothing analyses a table by itself.
fn is_off(case: &Case, time: &NodeTime, table: &Thing<'_>) -> bool {
    table.lines.flag("autovacuum") == Some(false) || case.setting(&time.node, "autovacuum") == Some("off")
}

/// Whether the server counts rows twice: a session that inserts and then analyses at once reports its inserts after its ANALYZE, which had found them
/// already (`pgstat_report_stat` in pgstat.c waits a second). Scans of the whole table show how many rows there are.
fn is_counted_twice(table: &Thing<'_>, rows: f64, planned: f64, changed: f64) -> bool {
    let is_near = |left: f64, right: f64| (left - right).abs() <= right * NEAR_SHARE;
    let sum = |field: &str| table.lines.sum(field).unwrap_or(0.0);
    let scans = sum("seq_scans");
    let is_scanned = scans >= 1.0 && is_near(sum("seq_rows") / scans, planned);
    // Updates behind the load are changes, too, and make no rows.
    let is_twice = is_near(rows, 2.0 * planned) && changed >= planned * (1.0 - NEAR_SHARE);
    let is_loaded_before = sum("rows_inserted") < planned * NEAR_SHARE;
    // What comes while we look is on top of it.
    let before = rows - sum("rows_inserted");
    let is_twice_and_more = (before - 2.0 * planned).abs() <= planned * GROWN_SHARE && changed >= planned;
    // Inserts that fail are counted as inserted, and make no rows: what the first look found decides.
    let first = |field: &str| table.lines.first(field).unwrap_or(0.0);
    let was_twice = (first("live_rows") - 2.0 * planned).abs() <= planned * GROWN_SHARE
        && (first("changed_since_analyze") - planned).abs() <= planned * GROWN_SHARE;
    is_scanned
        || was_twice && rows < 2.0 * planned * GROWN_MUCH
        || is_twice && is_loaded_before
        || is_twice_and_more
        || is_near(rows, planned + changed) && is_near(changed, planned)
}

/// Why the values of a table may not be those that the planner knows: a third of its rows changed since the last ANALYZE, and a statement on it reads far
/// more than it returns.
fn other_values(table: &Thing<'_>, time: &NodeTime) -> Option<String> {
    let rows = table.lines.last("live_rows").filter(|rows| *rows >= STALE_ROWS_MIN)?;
    let changed =
        table.lines.last("changed_since_analyze").filter(|changed| *changed >= rows * CHANGED_SHARE_MIN)?;
    if is_counted_twice(table, rows, table.lines.last("planned_rows").unwrap_or(0.0), changed) {
        return None;
    }
    // Dead rows that are more than the living ones are what a statement touches besides: ANALYZE removes none of them.
    if table.lines.last("dead_rows").is_some_and(|dead| dead >= rows) {
        return None;
    }
    let relation = table.lines.word("relation");
    let on_it = |statement: &&StatementTime| {
        let is_there = table.lines.word("database") == statement.database || statement.database.is_empty();
        // An INSERT touches what its indexes need for each row, with any statistics of the table that it fills.
        let reads = record::statement::parse(&statement.text).map_or(vec![], |parsed| {
            let is_filled = parsed.verb == Verb::Insert;
            parsed.tables.into_iter().skip(usize::from(is_filled)).collect()
        });
        is_there && reads.iter().any(|named| is_name_of(named, relation))
    };
    let is_wasteful = |statement: &&StatementTime| {
        let (rows, blocks) = (statement.rows.unwrap_or(0.0), statement.blocks.unwrap_or(0.0));
        statement.share >= SCAN_SHARE_MIN && blocks >= GENERIC_BLOCKS_MIN && blocks >= rows * BLOCKS_PER_ROW
    };
    let statement = time.statements.iter().filter(on_it).find(is_wasteful)?;
    Some(format!(
        "{} of its {} rows changed since the last ANALYZE, and a statement with {} of the time touches {} blocks for {} rows",
        units::count(changed),
        units::count(rows),
        units::percent(statement.share),
        units::short(statement.blocks.unwrap_or(0.0)),
        units::short(statement.rows.unwrap_or(0.0))
    ))
}

/// Whether old statistics can be what costs the time: a statement on the table touches far more than it returns, or the table is scanned. A lookup by its key
/// has the same plan with any statistics.
fn is_felt(case: &Case, time: &NodeTime, table: &Thing<'_>) -> bool {
    if case.at("statement", &time.node).next().is_none() {
        let rate = |field: &str| table.lines.rate(field).unwrap_or(0.0);
        return rate("seq_rows") >= rate("index_rows").max(SCAN_ROWS_MIN);
    }
    let name = bare(table.lines.word("relation"));
    let is_on_it = |statement: &&StatementTime| {
        // An INSERT touches what its indexes need, with any statistics.
        let parsed = record::statement::parse(&statement.text);
        parsed.map_or(true, |parsed| {
            parsed.verb != Verb::Insert && parsed.tables.iter().any(|table| table.name == name)
        })
    };
    let is_wasteful = |statement: &StatementTime| {
        let (rows, blocks) = (statement.rows.unwrap_or(0.0), statement.blocks.unwrap_or(0.0));
        statement.share >= STALE_SHARE_MIN && blocks >= GENERIC_BLOCKS_MIN && blocks >= rows * BLOCKS_PER_ROW
            || statement.temp_bytes.is_some_and(|bytes| bytes > 0.0)
            || statement.jit_ms.is_some_and(|ms| ms > 0.0)
    };
    time.statements.iter().filter(is_on_it).any(is_wasteful)
}

/// The largest statement that joins a table with others and touches far more than it returns: how the other tables are read depends on how many rows the
/// planner expects of this one, so the time may be in them.
fn joined<'a>(time: &'a NodeTime, table: &Thing<'_>) -> Option<&'a StatementTime> {
    let relation = table.lines.word("relation");
    let is_led = |statement: &&StatementTime| {
        let is_there = table.lines.word("database") == statement.database || statement.database.is_empty();
        let (rows, blocks) = (statement.rows.unwrap_or(0.0), statement.blocks.unwrap_or(0.0));
        let is_wasteful = blocks >= GENERIC_BLOCKS_MIN * rows.max(1.0);
        let parsed = record::statement::parse(&statement.text);
        is_there
            && is_wasteful
            && statement.share >= SCAN_SHARE_MIN
            && parsed.is_ok_and(|parsed| {
                parsed.verb == Verb::Select
                    && parsed.tables.len() > 1
                    && parsed.tables.iter().any(|named| is_name_of(named, relation))
            })
    };
    time.statements.iter().find(is_led)
}

/// A table of which hardly any block is touched, whose statistics make a join of others expensive.
fn stale_in_join(time: &NodeTime, table: &Thing<'_>) -> Option<Claim> {
    let relation = table.lines.word("relation");
    let why = misfit(table).filter(|_| !has_grown_little(table))?;
    let statement = joined(time, table)?;
    let text = format!(
        "{}: a statement that takes {} of the session time joins {relation}, whose statistics do not fit it: {why}",
        time.node,
        units::percent(statement.share)
    );
    Some(
        Claim::new(severity(statement.share).min(Severity::Medium), Level::CoOccurrence, text)
            .number("share", statement.share)
            .number("blocks_per_call", statement.blocks.unwrap_or(0.0))
            .because(format!("the statement: {}", record::escape::one_line(&statement.text, 160)))
            .because(format!(
                "an execution touches {} blocks for {} rows, most of them of other tables: a join that is planned for few rows looks into them again for each",
                units::short(statement.blocks.unwrap_or(0.0)),
                units::short(statement.rows.unwrap_or(0.0))
            )),
    )
}

pub(super) fn stale(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        for table in case.at("table", &time.node) {
            let relation = table.lines.word("relation");
            let share = share_in(time, relation);
            if share < STALE_SHARE_MIN {
                claims.extend(stale_in_join(time, &table).map(|claim| analysed(case, time, &table, claim)));
                continue;
            }
            let Some(why) = misfit(&table).or_else(|| other_values(&table, time)) else { continue };
            let is_felt = is_felt(case, time, &table);
            let severity = match is_felt {
                true if has_grown_little(&table) || is_being_filled(case, time, &table) => Severity::Low,
                true => severity(share),
                false => Severity::Note,
            };
            let text = format!(
                "{}: {} of the session time is in {relation}, whose statistics do not fit it: {why}",
                time.node,
                units::percent(share)
            );
            let claim = Claim::new(severity, Level::CoOccurrence, text)
                .number("share", share)
                .because(format!("{} of the blocks that were touched are its own", units::percent(share)));
            claims.push(analysed(case, time, &table, claim));
        }
    }
    Answer::of(claims, || "rows of the busy tables, and what the planner assumes".to_string())
}

/// What claims about a table with old statistics share.
fn analysed(case: &Case, time: &NodeTime, table: &Thing<'_>, claim: Claim) -> Claim {
    let off = is_off(case, time, table);
    claim
        .on_node(&time.node)
        .during([table.lines.ticks.window()])
        .number("live_rows", table.lines.last("live_rows").unwrap_or(0.0))
        .with(off.then_some(()), |claim, ()| {
            claim.because("autovacuum is off for it, so nothing analyses it")
        })
        .lacking("the plans before and after ANALYZE: whether they change")
        .remedy(
            "analyse it: this reads a sample and blocks nothing; after a bulk load it belongs to the load",
            &[&format!("ANALYZE (VERBOSE) {};", table.lines.word("relation"))],
        )
}

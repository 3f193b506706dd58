//! VAC-16: autovacuum goes through large tables for a handful of changed rows.

use crate::case::{Case, Thing};
use crate::rule::{Answer, Claim};
use crate::rules::overhead::{Due, parameter};
use crate::units;
use record::finding::{Level, Severity};

/// Rows of a table whose vacuum takes a while.
const ROWS_MIN: f64 = 50_000.0;
/// Of these, the changed ones for which autovacuum comes.
const DUE_SHARE_MAX: f64 = 0.002;
/// Of its rows, the dead ones of a table that is vacuumed too often.
const DEAD_SHARE_MAX: f64 = 0.02;
/// Times that it came to the table, or ...
const RUNS_MIN: f64 = 3.0;
/// ... workers at any time.
const WORKERS_MIN: f64 = 0.3;
/// Workers from which on they take the processors from others.
const WORKERS_MEDIUM: f64 = 0.5;

/// The parameter that lets autovacuum come for almost nothing, and for how many rows.
fn eager(case: &Case, table: &Thing<'_>, live: f64) -> Option<Due> {
    let node = table.place;
    let dues = [Due::of_vacuum(case, table, node, live), Due::of_analyze(case, table, node, live)];
    let least = dues.into_iter().flatten().min_by(|left, right| left.rows.total_cmp(&right.rows));
    least.filter(|due| due.rows <= live * DUE_SHARE_MAX)
}

/// Parameters that may let autovacuum come for a handful of rows, the least value that does not, and what to set instead: the defaults, and for large tables
/// a share of their rows.
const PARAMETERS: [(&str, f64, &str); 5] = [
    ("autovacuum_vacuum_threshold", 50.0, "50"),
    ("autovacuum_vacuum_scale_factor", 0.01, "0.02"),
    ("autovacuum_vacuum_max_threshold", 1e6, "100000000"),
    ("autovacuum_analyze_threshold", 50.0, "50"),
    ("autovacuum_analyze_scale_factor", 0.01, "0.02"),
];

/// The command that lets autovacuum come later: it sets what is too small where it is set, whatever file has it now.
fn later(case: &Case, table: &Thing<'_>, live: f64, due: &Due) -> String {
    let is_small = |name: &str, least: f64| {
        let (value, is_tables) = parameter(case, table, table.place, name)?;
        Some(value >= 0.0 && value < least && is_tables == due.is_tables)
    };
    let is_named = |name: &str| due.by.starts_with(name);
    let wanted = PARAMETERS.iter().filter(|(name, least, _)| {
        let least = if name.ends_with("max_threshold") { least.max(live * DUE_SHARE_MAX) } else { *least };
        is_named(name) || is_small(name, least) == Some(true)
    });
    let wanted: Vec<(&str, &str)> = wanted.map(|(name, _, value)| (*name, *value)).collect();
    match due.is_tables {
        true => {
            let list: Vec<String> = wanted.iter().map(|(name, value)| format!("{name} = {value}")).collect();
            format!("ALTER TABLE {} SET ({});", table.lines.word("relation"), list.join(", "))
        }
        false => {
            let all = wanted.iter().map(|(name, value)| format!("ALTER SYSTEM SET {name} = {value}; "));
            all.chain(["SELECT pg_reload_conf();".to_string()]).collect()
        }
    }
}

pub(super) fn eager_vacuums(case: &Case) -> Answer {
    let mut claims = vec![];
    for server in case.things("server") {
        let workers = server.lines.series("autovacuum_workers").map_or(0.0, crate::series::Series::mean);
        let tables = case.at("table", server.place).filter_map(|table| {
            let live = table.lines.last("live_rows").filter(|live| *live >= ROWS_MIN)?;
            let runs: f64 =
                ["autovacuums", "autoanalyzes"].iter().filter_map(|field| table.lines.sum(field)).sum();
            let progress = case.at("progress", server.place);
            let is_at_work =
                progress.filter(|one| one.lines.word("relation") == table.lines.word("relation")).count() > 0;
            let due = eager(case, &table, live)?;
            // A table with many dead rows has work for a vacuum, whatever the threshold is; it may only be slow.
            let dead = table.lines.max("dead_rows").unwrap_or(0.0);
            if dead > live * DEAD_SHARE_MAX {
                return None;
            }
            (runs >= RUNS_MIN || is_at_work && workers >= WORKERS_MIN).then_some((table, live, runs, due))
        });
        let found: Vec<_> = tables.collect();
        let Some((table, live, runs, due)) = found.iter().max_by(|left, right| left.1.total_cmp(&right.1))
        else {
            continue;
        };
        let relation = table.lines.word("relation");
        let others = if found.len() > 1 {
            format!(", and likewise {} others", found.len() - 1)
        } else {
            String::new()
        };
        let command = later(case, table, *live, due);
        claims.push(
            Claim::new(
                if workers >= WORKERS_MEDIUM { Severity::Medium } else { Severity::Low },
                Level::CoOccurrence,
                format!(
                    "{}: autovacuum works on {relation}, with {} rows, again after every {} changed rows ({}{}){others}: {} workers are at work at any time",
                    server.place,
                    units::count(*live),
                    units::short(due.rows),
                    due.by,
                    if due.is_tables { ", set for the table" } else { "" },
                    units::short(workers)
                ),
            )
            .on_node(server.place)
            .during([table.lines.ticks.window()])
            .number("workers", workers)
            .number("runs", *runs)
            .number("rows_due", due.rows)
            .number("live_rows", *live)
            .because("a vacuum goes through all indexes of a table, an ANALYZE reads its sample, for however few rows")
            .lacking("their processor time: pg_stat_progress_vacuum and the server's log (log_autovacuum_min_duration) show single runs")
            .not("dead rows in the way: the table has few of them at any time")
            .remedy(
                "let it come for a share of the rows (autovacuum_vacuum_scale_factor, autovacuum_analyze_scale_factor: 0.01 or 0.02 for large tables) instead",
                &[&command],
            ),
        );
    }
    Answer::of(claims, || "thresholds of autovacuum, against the rows of the tables".to_string())
}

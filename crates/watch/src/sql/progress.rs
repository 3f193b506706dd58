//! The progress of commands. Queried only while such a command runs: these six views cost as much as all others.

use crate::collect::Batch;
use crate::sql::json::{count, flag, number, text};
use crate::sql::probe::{Probe, column};
use record::watched::Progress;
use serde_json::Value;
use std::collections::BTreeSet;

/// The query; `None` if the server reports no progress.
pub(crate) fn question(probe: &Probe) -> Option<String> {
    let rows: Vec<String> = probe.progress.iter().map(|(name, columns)| one(name, columns)).collect();
    if rows.is_empty() {
        return None;
    }
    Some(format!(
        "select json_build_object('progress', (select json_agg(r) from (select p.*, a.backend_type = 'autovacuum worker' auto,
            case when p.command = 'vacuum' then a.query like '%(to prevent wraparound)' end wraparound
          from ({}) p left join {} a on a.pid = p.pid where p.pid <> pg_catalog.pg_backend_pid()) r))::text",
        rows.join("\nunion all "),
        probe.activity
    ))
}

/// One view in the columns of [`Progress`].
fn one(name: &str, columns: &BTreeSet<String>) -> String {
    let has = |wanted: &'static str| column(columns, wanted, "null");
    let relation = if columns.contains("relid") {
        "case when datname = current_database() and relid <> 0 then relid::regclass::text else nullif(relid, 0)::text end"
    } else {
        "null"
    };
    // Done and total belong to the phase: a vacuum scans blocks, then passes over indexes, then vacuums blocks.
    let (phase, done, total, unit) = match name {
        "vacuum" => (
            "phase",
            format!(
                "case when phase = 'vacuuming heap' then heap_blks_vacuumed when phase like '%indexes' then {} when phase = 'truncating heap' then \
                 null else heap_blks_scanned end",
                has("indexes_processed")
            ),
            format!(
                "case when phase like '%indexes' then {} when phase = 'truncating heap' then null else heap_blks_total end",
                has("indexes_total")
            ),
            "case when phase like '%indexes' then 'indexes' else 'blocks' end",
        ),
        "analyze" => {
            ("phase", "sample_blks_scanned".to_string(), "sample_blks_total".to_string(), "'blocks'")
        }
        "create_index" => (
            "phase",
            "case when blocks_total > 0 then blocks_done else tuples_done end".to_string(),
            "case when blocks_total > 0 then blocks_total else tuples_total end".to_string(),
            "case when blocks_total > 0 then 'blocks' else 'rows' end",
        ),
        "copy" => ("command", "bytes_processed".to_string(), "nullif(bytes_total, 0)".to_string(), "'bytes'"),
        "cluster" => ("phase", "heap_blks_scanned".to_string(), "heap_blks_total".to_string(), "'blocks'"),
        _ => ("phase", "backup_streamed".to_string(), "backup_total".to_string(), "'bytes'"),
    };
    let passes = if columns.contains("index_vacuum_count") { "index_vacuum_count" } else { "null" };
    let delay = column(columns, "delay_time", "null");
    format!(
        "select '{name}' command, pid, {relation} relation, {phase} phase, ({done})::bigint done, ({total})::bigint total, {unit} unit,
           {passes}::bigint index_passes, {delay}::float8 delay_ms from pg_catalog.pg_stat_progress_{name}"
    )
}

/// Turns an answer into lines.
pub(crate) fn answer(node: &str, t_us: u64, answer: &Value, batch: &mut Batch) {
    for row in crate::sql::json::list(answer, "progress") {
        batch.reading(
            t_us,
            Progress {
                node: node.to_string(),
                pid: count(row, "pid").unwrap_or(0),
                command: text(row, "command"),
                relation: text(row, "relation"),
                phase: text(row, "phase"),
                done: count(row, "done"),
                total: count(row, "total"),
                unit: text(row, "unit"),
                index_passes: count(row, "index_passes"),
                wraparound: flag(row, "wraparound"),
                auto: flag(row, "auto"),
                delay_ms: number(row, "delay_ms"),
            },
        );
    }
}

//! VAC-14: tables whose pages are mostly empty, and that are scanned.

use super::super::costly::{busy, severity};
use super::{TABLE_SHARE_MIN, share_in};
use crate::case::Case;
use crate::case::Lines;
use crate::rule::{Answer, Claim};
use crate::units;
use record::finding::{Level, NodeTime, Severity};

/// Scans a second.
const SCANS_PER_S_MIN: f64 = 0.5;
/// Blocks of a scan.
const BLOCKS_PER_SCAN_MIN: f64 = 1_000.0;
/// Rows for each block. A row that is not in a TOAST table takes a quarter of a page at most, unless its values are stored plain: then it may take a page.
const ROWS_PER_BLOCK_MAX: f64 = 0.5;
/// The share of pages that a vacuum found free of dead rows: of the others it is not known.
const VISIBLE_SHARE_MIN: f64 = 0.5;

/// Bytes of a page.
const PAGE_BYTES: f64 = 8192.0;
/// Blocks that are touched for a scan, for each page of the table: indexes and TOAST included.
const TOUCHED_TIMES_MAX: f64 = 2.0;
/// Rows that are written, of those that scans read.
const WRITTEN_SHARE_MAX: f64 = 0.1;
/// Up to this fillfactor most of a page stays empty on purpose.
const LOOSE_FILL: f64 = 50.0;
/// From this share of updated rows on a table may need the room.
const CHANGED_SHARE: f64 = 0.01;

/// A table that is written with most of each page left empty, and read.
fn loose(time: &NodeTime, relation: &str, lines: &Lines, (share, blocks, rows): (f64, f64, f64)) -> Claim {
    let fill = lines.last("fillfactor").unwrap_or(100.0);
    Claim::new(
        severity(share).min(Severity::Medium),
        Level::CoOccurrence,
        format!(
            "{}: {} of the session time is in {relation}, whose fillfactor is {fill:.0}: that much of each page is filled with rows that were written \
                since it was \
             set, and a scan reads {} blocks \
                for {} rows",
            time.node,
            units::percent(share),
            units::count(blocks),
            units::count(rows)
        ),
    )
    .on_node(&time.node)
    .during([lines.ticks.window()])
    .number("share", share)
    .number("blocks_per_scan", blocks)
    .number("rows_per_scan", rows)
    .because("hardly a row of it is updated here: the room is for other versions of rows in the same page")
    .lacking("whether it is updated at other times, and how many of its rows were written before the setting: for these VACUUM FULL saves nothing")
    .remedy(
        "set fillfactor to 100, or 90 for rows that are updated, and write the table anew: VACUUM FULL keeps all other sessions out while it does, \
            pg_repack and \
         pg_squeeze do not",
        &[
            &format!("ALTER TABLE {relation} RESET (fillfactor);"),
            &format!("VACUUM (FULL, ANALYZE) {relation}; -- no other session can read or write the table meanwhile"),
        ],
    )
}

/// Whether a scan touches more pages than it finds rows, and not more than the table has: what is touched beyond that are look-ups by an index, a row each.
fn is_sparse(lines: &Lines, blocks: f64, rows: f64) -> bool {
    let pages = lines.last("bytes").map_or(f64::INFINITY, |bytes| bytes / PAGE_BYTES);
    blocks >= BLOCKS_PER_SCAN_MIN && rows < blocks * ROWS_PER_BLOCK_MAX && blocks <= pages * TOUCHED_TIMES_MAX
}

/// VAC-14.
pub(super) fn mostly_empty(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        for table in case.at("table", &time.node) {
            let (relation, lines) = (table.lines.word("relation"), table.lines);
            let share = share_in(time, relation);
            let sum = |field: &str| lines.sum(field).unwrap_or(0.0);
            let scans = sum("seq_scans");
            let (rows, blocks) =
                (sum("seq_rows") / scans.max(1.0), (sum("blocks_hit") + sum("blocks_read")) / scans.max(1.0));
            let is_scanned = lines.rate("seq_scans").is_some_and(|rate| rate >= SCANS_PER_S_MIN)
                && sum("index_rows") < sum("seq_rows");
            // Each row that is written touches blocks of its own: they are none of the scan.
            let written = sum("rows_inserted") + sum("rows_updated") + sum("rows_deleted");
            let is_scanned = is_scanned && written <= sum("seq_rows") * WRITTEN_SHARE_MAX;
            let is_clean = lines.last("all_visible_share").is_some_and(|share| share >= VISIBLE_SHARE_MIN);
            let is_empty = is_sparse(lines, blocks, rows);
            // A scan that ends early (LIMIT, EXISTS) has few rows of a full table.
            let is_whole =
                lines.last("planned_rows").is_some_and(|planned| rows >= planned * VISIBLE_SHARE_MIN);
            let is_loose = lines.last("fillfactor").is_some_and(|fill| fill <= LOOSE_FILL);
            let is_changed = sum("rows_updated") >= lines.last("live_rows").unwrap_or(0.0) * CHANGED_SHARE;
            if share >= TABLE_SHARE_MIN
                && is_scanned
                && is_loose
                && !is_changed
                && blocks >= BLOCKS_PER_SCAN_MIN
            {
                claims.push(loose(time, relation, lines, (share, blocks, rows)));
                continue;
            }
            if share < TABLE_SHARE_MIN || !(is_scanned && is_clean && is_empty && is_whole) {
                continue;
            }
            claims.push(
                Claim::new(
                    severity(share),
                    Level::DiscriminatingCounter,
                    format!(
                        "{}: {} of the session time is in {relation}, whose pages are mostly empty: a scan reads {} blocks for {} rows",
                        time.node,
                        units::percent(share),
                        units::count(blocks),
                        units::count(rows)
                    ),
                )
                .on_node(&time.node)
                .during([lines.ticks.window()])
                .number("share", share)
                .number("blocks_per_scan", blocks)
                .number("rows_per_scan", rows)
                .because("rows were deleted and vacuumed, and the file did not shrink: vacuum gives back only empty pages at its end")
                .not("dead rows: a vacuum has found most of the pages free of them")
                .lacking("whether the table grows again: then its room is used, and shrinking it does not last")
                .remedy(
                    "write the table anew: VACUUM FULL keeps all other sessions out while it does, pg_repack and pg_squeeze do not; delete old rows by \
                     dropping \
                     partitions next time, or read the rows by an index",
                    &[
                        &format!("SELECT pg_size_pretty(pg_relation_size({0})), reltuples::bigint AS rows \
                         FROM pg_class WHERE oid = {0}::regclass;", super::super::paste::literal(relation)),
                        &format!("VACUUM (FULL, ANALYZE) {relation}; -- no other session can read or write the table meanwhile"),
                    ],
                ),
            );
        }
    }
    Answer::of(claims, || "blocks and rows of the scans of busy tables".to_string())
}

//! PLAN-34: large values that a statement fetches with its rows.

use super::{BLOCKS_MIN, Found, Seen};
use crate::case::Case;
use crate::rules::costly::{is_name_of, plain};
use crate::rules::paste::literal;
use crate::rules::plan::{Planned, plan_of};
use crate::units;
use record::finding::{NodeTime, StatementTime};
use record::statement;

/// Bytes of a row with its large values, and blocks for each row that is returned: its own, and those of its large values.
const ALL_COLUMNS_MIN: (f64, f64) = (4_096.0, 4.0);
/// The same where the statement names its columns: more blocks than the entries of an index and a page of the table take.
const NAMED_COLUMNS_MIN: (f64, f64) = (16_384.0, 6.0);

/// Steps that hand on each row that they read.
const RETURNS_WHAT_IT_READS: [&str; 4] = ["Limit", "Index Scan", "Bitmap Heap Scan", "Bitmap Index Scan"];

/// The columns of a table with large values, as the statistics show; empty if they do not.
fn wide_columns(seen: &Seen<'_>, relation: &str) -> String {
    let mut tables = seen.case.at("plan_table", &seen.time.node);
    let words = tables.find(|table| table.lines.word("relation") == relation);
    let words = words.map_or("", |table| table.lines.word("wide_columns"));
    plain(words, COLUMNS_CHARS)
}

/// Characters of a list of columns in a claim.
const COLUMNS_CHARS: usize = 120;

/// What to do.
pub(crate) const NAME_COLUMNS: &str = "name the columns that are needed: a large value lies in pieces of 2 kB in another table, which are read, put together, \
    decompressed and sent only if its column is named; columns that are seldom needed belong into a table of their own";

/// The only table of a statement that takes all columns, and the bytes of its rows, where these are mostly large values.
pub(crate) fn of_all_columns(case: &Case, time: &NodeTime, one: &StatementTime) -> Option<(String, f64)> {
    let parsed = statement::parse(&one.text).ok().filter(|parsed| parsed.tables.len() == 1)?;
    let takes_all = statement::shape(&one.text).is_ok_and(|shape| shape.takes_all_columns);
    let table = case
        .at("table", &time.node)
        .find(|table| is_name_of(&parsed.tables[0], table.lines.word("relation")))
        .filter(|_| takes_all)?;
    let each = table.lines.last("bytes")? / table.lines.last("live_rows").filter(|rows| *rows >= 1.0)?;
    (each >= ALL_COLUMNS_MIN.0).then(|| (table.lines.word("relation").to_string(), each))
}

pub(super) fn values(seen: &Seen<'_>) -> Option<Found> {
    let table = seen.table.as_ref().filter(|_| seen.tables == 1)?;
    let each = table.lines.last("bytes")? / seen.live_rows().filter(|rows| *rows >= 1.0)?;
    let per_row = seen.blocks() / seen.rows().max(1.0);
    let is_named = !seen.shape.takes_all_columns;
    let (bytes_min, blocks_min) = if is_named { NAMED_COLUMNS_MIN } else { ALL_COLUMNS_MIN };
    if each < bytes_min || per_row < blocks_min || seen.blocks() < BLOCKS_MIN {
        return None;
    }
    let planned = plan_of(seen.case, seen.time, seen.statement);
    // A scan of the whole table reads that much whatever is selected; and of columns that are named, the blocks show that large ones are among them only
    // where the rows that are read are those that are returned.
    let reads_more = |planned: &Planned<'_>| {
        let is = |kind: &str| planned.nodes.iter().any(|node| node.lines.word("kind") == kind);
        let passes = |kind: &str| RETURNS_WHAT_IT_READS.contains(&kind) || kind == "Sort" && !is("Limit");
        is("Seq Scan")
            || is_named
                && planned
                    .nodes
                    .iter()
                    .any(|node| !node.lines.word("filter").is_empty() || !passes(node.lines.word("kind")))
    };
    if planned.as_ref().is_some_and(reads_more) || planned.is_none() && is_named {
        return None;
    }
    let relation = seen.relation();
    let wide = wide_columns(seen, &relation);
    let text = format!(
        "one statement {} fetches the large values (TOAST) of {relation}: {}{} for each row",
        if is_named { "whose columns include a large one: it" } else { "with SELECT *, which also" },
        if wide.is_empty() { String::new() } else { format!("column {wide}, ") },
        units::bytes(each)
    );
    let commands = vec![format!(
        "SELECT attname, avg_width FROM pg_stats WHERE format('%I.%I', schemaname, tablename) = {} ORDER BY avg_width DESC LIMIT 5; -- what is large",
        literal(&relation)
    )];
    let mut found = seen.found(text, NAME_COLUMNS, commands);
    found.evidence.push(format!(
        "{} blocks for each row; {relation} has {} with its large values",
        units::short(per_row),
        units::bytes(table.lines.last("bytes")?)
    ));
    Some(found)
}

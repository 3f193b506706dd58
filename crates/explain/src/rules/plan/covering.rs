//! PLAN-98: rows that an index finds are fetched from all over the table for a column or two that the index could hold as well.

use super::index::indexes;
use super::tree::{runs, weight};
use super::{NEEDS, Planned, below, judge, number, severity};
use crate::case::{Case, Thing};
use crate::rule::{Claim, Rule};
use crate::rules::costly::lowered;
use crate::rules::statement::explain_it;
use crate::units;
use record::finding::{Level, Severity};
use record::statement::{self, Verb};

pub(in crate::rules) const RULES: &[Rule] = &[Rule {
    id: "PLAN-98",
    title: "rows are fetched from all over a table for columns that an index could hold",
    needs: NEEDS,
    limits: "20 % of the session time in a SELECT half of whose plan's cost is an index scan without a filter; 100 rows of it or more, 0.3 to 6 blocks for \
        each, and 5 times those of an index alone; at most 3 short columns are not in the index; low where they are updated, most pages are not visible to \
        all, or less than 5 % of the blocks are read from files (ours)",
    judge: |case| judge(case, scattered, "index scans of plans, and the columns that they fetch rows for"),
    links: &["https://www.postgresql.org/docs/current/indexes-index-only-scans.html"],
}];

/// The share of the session time of the statement, and of its plan's cost that of the scan.
const SHARE_MIN: f64 = 0.2;
const OF_PLAN_MIN: f64 = 0.5;
/// Rows that an execution fetches.
const FETCHED_MIN: f64 = 100.0;
/// Blocks for each of them: fewer where they lie together, more where something else is read.
const BLOCKS_PER_ROW: std::ops::RangeInclusive<f64> = 0.3..=6.0;
/// Entries of an index in a block (ours), and blocks of a search from the root.
const ENTRIES_PER_BLOCK: f64 = 100.0;
const BLOCKS_PER_SEARCH: f64 = 3.0;
/// By how much the blocks of an execution are above those of the index alone.
const TIMES_OF_INDEX_MIN: f64 = 5.0;
/// Columns that an index may hold besides its own, and bytes of the columns that the scan returns.
const COLUMNS_MAX: usize = 3;
const WIDTH_MAX: f64 = 64.0;
/// The share of the table's pages that an index may answer for.
const VISIBLE_MIN: f64 = 0.5;
/// Blocks that are read from files, of all.
const READ_MIN: f64 = 0.05;
/// How far the rows are in the order of the index, from which on they lie together.
const CORRELATION_MAX: f64 = 0.9;

/// Types whose values are short.
const SHORT: [&str; 14] = [
    "integer",
    "bigint",
    "smallint",
    "numeric",
    "date",
    "time",
    "boolean",
    "uuid",
    "real",
    "double precision",
    "money",
    "interval",
    "\"char\"",
    "text",
];

/// A scan whose index lacks columns.
struct Scattered<'a> {
    relation: &'a str,
    index: &'a str,
    keys: Vec<String>,
    missing: Vec<String>,
    fetched: f64,
}

/// The index by which a node fetches rows, if it is only one.
fn index_of<'a>(planned: &Planned<'a>, node: &Thing<'a>) -> Option<&'a str> {
    let name = match node.lines.word("kind") {
        "Index Scan" => Some(node.lines.word("index")),
        "Bitmap Heap Scan" => {
            let mut inner = below(planned, node);
            let only = inner.next().filter(|_| inner.next().is_none())?;
            Some(only.lines.word("index")).filter(|_| only.lines.word("kind") == "Bitmap Index Scan")
        }
        _ => None,
    };
    name.filter(|name| !name.is_empty())
}

/// Rows that an execution fetches by a node: those that it returns, where nothing else takes them, or else what the planner expects.
fn fetched(planned: &Planned<'_>, node: &Thing<'_>) -> f64 {
    let is_returned = planned.nodes.iter().all(|one| {
        let kind = one.lines.word("kind");
        number(one, "number") == number(node, "number")
            || kind == "Bitmap Index Scan"
            || kind.ends_with("Sort")
            || kind.starts_with("Gather")
    });
    let expected = number(node, "rows_planned") * runs(planned, node);
    planned.statement.rows.filter(|_| is_returned).unwrap_or(expected)
}

/// Whether a statement takes all columns, or locks its rows: no index is enough then.
fn needs_rows(text: &str) -> bool {
    let text = format!("{} ", lowered(text));
    let all = ["select *", ".*", ", *", " for update", " for share", " for no key", " for key share"];
    all.iter().any(|word| text.contains(word))
}

/// Columns of a table that a statement names and an index does not hold; `None` if one of them is too long for an index.
fn missing(case: &Case, planned: &Planned<'_>, relation: &str, held: &[String]) -> Option<Vec<String>> {
    let mut tables = case.at("plan_table", planned.time.node.as_str());
    let database = planned.statement.database.as_str();
    let table = tables.find(|table| {
        let its = table.lines.word("database");
        table.lines.word("relation") == relation && (its.is_empty() || database.is_empty() || its == database)
    })?;
    let named = statement::names(&planned.statement.text);
    let wide = table.lines.word("wide_columns");
    let is_wide = |name: &str| wide.split("; ").any(|one| one.split(' ').next() == Some(name));
    let columns = table.lines.word("columns").split("; ").filter_map(|one| one.split_once(' '));
    let mut found = vec![];
    for (name, kind) in columns.filter(|(name, _)| named.iter().any(|one| one == name)) {
        if held.iter().any(|one| one == name) {
            continue;
        }
        let is_short = SHORT.iter().any(|short| kind.starts_with(short)) || kind.starts_with("character");
        if !is_short || kind.ends_with("[]") || is_wide(name) {
            return None;
        }
        found.push(name.to_string());
    }
    (!found.is_empty() && found.len() <= COLUMNS_MAX).then_some(found)
}

fn found<'a>(case: &'a Case, planned: &Planned<'a>) -> Option<Scattered<'a>> {
    let statement = planned.statement;
    let is_select = || statement::parse(&statement.text).is_ok_and(|parsed| parsed.verb == Verb::Select);
    if statement.share < SHARE_MIN || needs_rows(&statement.text) || !is_select() {
        return None;
    }
    let blocks = statement.blocks?;
    planned.nodes.iter().find_map(|node| {
        let (relation, name) = (node.lines.word("relation"), index_of(planned, node)?);
        let is_main = weight(planned, node).is_some_and(|share| share >= OF_PLAN_MIN);
        let is_filtered = !node.lines.word("filter").is_empty();
        let width = number(node, "width_bytes");
        if relation.is_empty() || !is_main || is_filtered || width > WIDTH_MAX {
            return None;
        }
        let fetched = fetched(planned, node);
        let of_index = fetched / ENTRIES_PER_BLOCK + runs(planned, node) * BLOCKS_PER_SEARCH;
        let is_scattered = BLOCKS_PER_ROW.contains(&(blocks / fetched.max(1.0)));
        if fetched < FETCHED_MIN || !is_scattered || blocks < of_index * TIMES_OF_INDEX_MIN {
            return None;
        }
        let all = indexes(case, planned, relation);
        let (index, columns) = all.iter().find(|(index, _)| index.lines.word("index") == name)?;
        let is_together = index.lines.last("correlation").is_some_and(|far| far.abs() > CORRELATION_MAX);
        let is_plain = index.lines.word("method") == "btree" && !columns.contains(&"");
        let held = statement::names(index.lines.word("definition"));
        let missing = missing(case, planned, relation, &held)?;
        (is_plain && !is_together && index.lines.flag("partial") != Some(true)).then(|| Scattered {
            relation,
            index: name,
            keys: columns.iter().map(|column| (*column).to_string()).collect(),
            missing,
            fetched,
        })
    })
}

/// Whether this rule explains what a statement reads.
pub(super) fn is_explained(case: &Case, planned: &Planned<'_>) -> bool {
    found(case, planned).is_some()
}

/// Columns among these that statements of the node set: each change of one writes the index as well.
fn updated(planned: &Planned<'_>, scattered: &Scattered<'_>) -> Vec<String> {
    let (_, name) = crate::rules::costly::parts_of(scattered.relation);
    let parsed = planned.time.statements.iter().filter_map(|one| statement::parse(&one.text).ok());
    let of_table = parsed.filter(|one| one.tables.first().is_some_and(|table| table.name == name));
    let assigned: Vec<String> = of_table.flat_map(|one| one.assigned).collect();
    scattered.missing.iter().filter(|column| assigned.contains(column)).cloned().collect()
}

/// The share of the blocks of a statement that are read from files.
fn read(planned: &Planned<'_>) -> f64 {
    let statement = planned.statement;
    let counted = statement.blocks_read.unwrap_or(0.0) / statement.blocks.unwrap_or(1.0).max(1.0);
    let waits = statement.events.iter().filter(|(event, _)| event.starts_with("IO:DataFile"));
    counted.max(waits.map(|(_, share)| share).sum())
}

/// PLAN-98.
fn scattered(case: &Case, planned: &Planned<'_>) -> Option<Claim> {
    let found = found(case, planned)?;
    let Scattered { relation, index, keys, missing, fetched } = &found;
    let blocks = planned.statement.blocks.unwrap_or(0.0);
    let columns = missing.join(", ");
    let read = read(planned);
    let mut tables = case.at("table", planned.time.node.as_str());
    let table = tables.find(|table| table.lines.word("relation") == *relation);
    let visible = table.and_then(|table| table.lines.last("all_visible_share"));
    let is_unmarked = visible.is_some_and(|share| share < VISIBLE_MIN);
    let updated = updated(planned, &found);
    let is_cached = read < READ_MIN;
    let text = format!(
        "a statement that takes {} of the session time fetches about {} rows of {relation}, which index {index} finds, from {} blocks, because the index \
         does not hold {columns}",
        planned.share(),
        units::count(*fetched),
        units::count(blocks)
    );
    let quoted: Vec<String> = missing.iter().map(|column| statement::quoted(column)).collect();
    let command = statement::index_command(relation, keys, true)
        .replace(");", &format!(") INCLUDE ({});", quoted.join(", ")));
    let vacuum = format!("VACUUM (ANALYZE) {relation}; -- an index answers alone for pages that are marked");
    let explain = explain_it(case, &planned.time.node, planned.statement);
    Some(
        planned
            .claim(case, Level::CoOccurrence, severity(planned.statement.share), text)
            .number("rows_fetched", *fetched)
            .number("blocks_per_call", blocks)
            .number("read_share", read)
            .because(planned.file())
            .because(format!(
                "{} blocks for each row: the rows of a value lie all over the table; an index has {ENTRIES_PER_BLOCK:.0} entries or more in a block",
                units::short(blocks / fetched.max(1.0))
            ))
            .because(format!("{} of these blocks are read from files", units::percent(read)))
            .with(is_cached.then_some(()), |claim, ()| claim.at_most(Severity::Low))
            .with(is_unmarked.then_some(()), |claim, ()| {
                claim.at_most(Severity::Low).lacking(
                    "how many pages stay marked as visible to all: at present most are not, and then rows are looked up in the table all the same",
                )
            })
            .with((!updated.is_empty()).then(|| updated.join(", ")), |claim, columns| {
                claim
                    .at_most(Severity::Low)
                    .because(format!("statements change {columns}: each change then writes the index, too"))
            })
            .not("a missing index for the condition: there is one, and it finds the rows")
            .remedy(
                "let the index hold these columns as well (INCLUDE, from PostgreSQL 11 on), so that it answers alone; it can take the place of the present \
                 one, unless that is unique. Where rows are written in another order than they are read, partitions or CLUSTER bring them together",
                &[&command, &vacuum, &explain],
            ),
    )
}

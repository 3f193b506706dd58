//! Indexes that are there and read far more than they should, for a reason that neither the planner nor an index on the same columns ends: an interval has
//! two ends, and a table without a vacuum has no page that an index may answer for.

use super::index::indexes;
use super::wanted::{HOW_MANY_FIT, UNSURE, is_aggregated};
use super::{Planned, SHARE_MIN, below, planned, severity};
use crate::case::{Case, Thing};
use crate::rule::Answer;
use crate::rules::statement::explain_it;
use crate::units;
use record::finding::{Level, Severity};
use record::statement::{self, Interval};

/// Blocks of an execution.
const BLOCKS_MIN: f64 = 100.0;
/// Blocks for each row that it returns.
const BLOCKS_PER_ROW_MIN: f64 = 10.0;
/// Pages that are known to be visible to all: a table that is vacuumed has more.
const VISIBLE_SHARE_MAX: f64 = 0.5;

/// The type of a range over each type of its ends; the others have none.
const RANGES: [(&str, &str); 6] = [
    ("bigint", "int8range"),
    ("integer", "int4range"),
    ("numeric", "numrange"),
    ("timestamp with time zone", "tstzrange"),
    ("timestamp", "tsrange"),
    ("date", "daterange"),
];

fn touches_much(planned: &Planned<'_>) -> bool {
    let (blocks, rows) = (planned.statement.blocks.unwrap_or(0.0), planned.statement.rows.unwrap_or(0.0));
    blocks >= BLOCKS_MIN && blocks >= rows * BLOCKS_PER_ROW_MIN
}

/// A node of a plan that looks for intervals in a table, and their columns.
fn interval_of<'a>(planned: &Planned<'a>) -> Option<(Thing<'a>, Interval)> {
    let of_node = |node: &Thing<'a>| {
        let texts = [node.lines.word("condition"), node.lines.word("filter")];
        let all = texts.iter().filter(|text| !text.is_empty()).map(|text| format!("({text})"));
        statement::interval(&all.collect::<Vec<_>>().join(" AND ")).ok().flatten()
    };
    let tables = planned.nodes.iter().filter(|node| {
        !node.lines.word("relation").is_empty()
            && !matches!(node.lines.word("index_method"), "gist" | "spgist")
    });
    tables.filter_map(|node| Some((*node, of_node(node)?))).next()
}

/// The range type over a column, by the types that plans and indexes show.
fn range_of(case: &Case, planned: &Planned<'_>, node: &Thing<'_>, column: &str) -> Option<&'static str> {
    let shown = node.lines.word("column_types").split("; ");
    let by_type = shown.filter_map(|text| text.strip_prefix(column)?.strip_prefix(' ')).next();
    let of_type = |kind: &str| RANGES.iter().find(|(of, _)| kind.starts_with(of)).map(|(_, range)| *range);
    let class_of = |class: &str| match class {
        "int8_ops" => Some("int8range"),
        "int4_ops" => Some("int4range"),
        "numeric_ops" => Some("numrange"),
        "timestamptz_ops" => Some("tstzrange"),
        "timestamp_ops" => Some("tsrange"),
        "date_ops" => Some("daterange"),
        _ => None,
    };
    by_type.and_then(of_type).or_else(|| {
        let all = indexes(case, planned, node.lines.word("relation"));
        let (index, _) = all.iter().find(|(_, columns)| columns.first() == Some(&column))?;
        class_of(super::index::class_of(index))
    })
}

/// PLAN-48.
pub(super) fn intervals(case: &Case) -> Answer {
    let mut claims = vec![];
    for planned in planned(case, SHARE_MIN).filter(touches_much) {
        let Some((node, interval)) = interval_of(&planned) else { continue };
        let relation = node.lines.word("relation");
        let [low, high] = [&interval.low, &interval.high].map(|column| statement::quoted(column));
        let text = format!(
            "a statement that takes {} of the session time searches {relation} for the intervals from {low} to {high} {}, and touches {} blocks to return \
             {} rows: an index in the order of one end reads all entries on one side of it",
            planned.share(),
            if interval.is_around_one { "around a value" } else { "that overlap another one" },
            units::short(planned.statement.blocks.unwrap_or(0.0)),
            units::short(planned.statement.rows.unwrap_or(0.0))
        );
        // Of intervals that overlap another one any number may fit.
        let is_unknown = !interval.is_around_one && is_aggregated(&planned, &node);
        let range = range_of(case, &planned, &node, &interval.low)
            .or_else(|| range_of(case, &planned, &node, &interval.high));
        let mut commands = vec![];
        if let Some(range) = range {
            commands.push(format!(
                "CREATE INDEX CONCURRENTLY ON {relation} USING gist ({range}({low}, {high}, '[]')); -- '[)' where the upper end does not belong to it"
            ));
            // Of an expression there are no statistics before.
            commands.push(format!("ANALYZE {relation};"));
            let value = if interval.is_around_one { "@> the value" } else { "&& the other range" };
            commands.push(format!(
                "-- and in the statement instead of both conditions: {range}({low}, {high}, '[]') {value}"
            ));
        }
        commands.push(explain_it(case, &planned.time.node, planned.statement));
        let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
        claims.push(
            planned
                .claim(case, Level::CoOccurrence, severity(planned.statement.share), text)
                .because(planned.file())
                .because(format!(
                    "the plan: {} of {relation} by {}",
                    node.lines.word("kind"),
                    [node.lines.word("condition"), node.lines.word("filter")].join(" ")
                ))
                .with(is_unknown.then_some(HOW_MANY_FIT), |claim, lack| {
                    claim.at_most(Severity::Low).lacking(lack).number(UNSURE, 1.0)
                })
                .not("wrong statistics: the planner cannot know how two columns of a row belong together, and another estimate would not make the index better")
                .remedy(
                    "index the interval itself: a GiST index on a range of both columns finds the intervals around a value at once (SP-GiST where they hardly \
                     overlap); of intervals that do not overlap, only the one with the greatest lower end below \
                     the value can match: ORDER BY that end DESC LIMIT 1 finds it with the index that is there",
                    &commands,
                ),
        );
    }
    Answer::of(claims, || {
        "conditions on two columns of a row, in the plans of statements that take the time".to_string()
    })
}

/// A scan that an index alone could answer, if its pages were known to be visible to all: the node, and whether the planner takes the index alone.
fn answerable<'a>(case: &Case, planned: &Planned<'a>) -> Option<(Thing<'a>, bool)> {
    let is_filtered = |node: &Thing<'_>| !node.lines.word("filter").is_empty();
    let only = planned.nodes.iter().find(|node| node.lines.word("kind") == "Index Only Scan");
    // Nothing of the row is needed behind the condition of the index: counts, EXISTS.
    let bare = || {
        planned.nodes.iter().find(|node| {
            let is_by_index = matches!(node.lines.word("kind"), "Bitmap Heap Scan" | "Index Scan");
            let needs_none = node.lines.last("width_bytes") == Some(0.0);
            is_by_index && !is_filtered(node) && (needs_none || is_covered(case, planned, node))
        })
    };
    only.map(|node| (*node, true)).or_else(|| bare().map(|node| (*node, false)))
}

/// Words of a statement that are no columns.
const NO_COLUMNS: &str = "all and as asc avg between by case cast coalesce count cross desc distinct else end false first from full greatest group having in \
    is last least left limit lower max min not null nulls offset on or order select sum then true upper when where with";

/// Whether an index that a node uses holds every column that a statement on one table names, those behind INCLUDE as well.
fn is_covered(case: &Case, planned: &Planned<'_>, node: &Thing<'_>) -> bool {
    let relation = planned.relation_of(node);
    let text = &planned.statement.text;
    let is_of_one = planned.nodes.iter().all(|one| ["", relation].contains(&one.lines.word("relation")));
    if !is_of_one || text.replace("(*)", "").contains('*') || statement::parse(text).is_err() {
        return false;
    }
    let used = below(planned, node)
        .chain([*node])
        .find_map(|one| Some(one.lines.word("index")).filter(|name| !name.is_empty()));
    let Some((index, _)) = indexes(case, planned, relation)
        .into_iter()
        .find(|(index, _)| Some(index.lines.word("index")) == used)
    else {
        return false;
    };
    let held = statement::names(index.lines.word("definition"));
    let is_known = |name: &String| {
        NO_COLUMNS.split_whitespace().any(|word| word == name)
            || held.contains(name)
            || name == node.lines.word("alias")
    };
    statement::names(text).iter().all(is_known)
}

/// VAC-13.
pub(super) fn unmarked(case: &Case) -> Answer {
    let mut claims = vec![];
    for planned in planned(case, SHARE_MIN).filter(touches_much) {
        let Some((node, is_only)) = answerable(case, &planned) else { continue };
        let relation = planned.relation_of(&node);
        let table = case.at("table", planned.time.node.as_str()).find(|table| {
            let database = table.lines.word("database");
            table.lines.word("relation") == relation
                && (planned.statement.database.is_empty() || database == planned.statement.database)
        });
        let Some(table) = table else { continue };
        let Some(visible) = table.lines.last("all_visible_share").filter(|share| *share <= VISIBLE_SHARE_MAX)
        else {
            continue;
        };
        // Where vacuums run meanwhile, sessions change rows faster than pages are marked.
        let runs: f64 = ["autovacuums", "vacuums"].iter().filter_map(|field| table.lines.sum(field)).sum();
        if runs > 0.0 {
            continue;
        }
        let vacuumed = table.lines.last("vacuumed_s");
        let text = format!(
            "a statement that takes {} of the session time reads {} blocks, although an index of {relation} has all it needs: {} of the \
             pages are marked as visible to all, {}",
            planned.share(),
            units::short(planned.statement.blocks.unwrap_or(0.0)),
            units::percent(visible),
            match vacuumed {
                None => "because the table was never vacuumed".to_string(),
                Some(seconds) => format!("the last vacuum ended {} ago", units::seconds(seconds)),
            }
        );
        let mut commands = vec![format!("VACUUM (ANALYZE) {relation};")];
        let insertions = case.setting(&planned.time.node, "autovacuum_vacuum_insert_threshold");
        let is_off = insertions == Some("-1");
        if is_off {
            commands.push(
                "ALTER SYSTEM RESET autovacuum_vacuum_insert_threshold; SELECT pg_reload_conf();".to_string(),
            );
        }
        if table.lines.flag("autovacuum") == Some(false) {
            commands.push(format!("ALTER TABLE {relation} RESET (autovacuum_enabled);"));
        }
        let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
        let level = if is_only { Level::DiscriminatingCounter } else { Level::CoOccurrence };
        claims.push(
            planned
                .claim(case, level, severity(planned.statement.share), text)
                .number("all_visible_share", visible)
                .because(planned.file())
                .because(if is_only {
                    "the plan takes the index alone, and looks each row's page up in the table where it is not marked (heap fetches)".to_string()
                } else {
                    format!("the plan needs no column besides those of the index, and the planner chose a {} for the unmarked pages", node.lines.word("kind"))
                })
                .with(is_off.then_some(()), |claim, ()| {
                    claim.because("autovacuum_vacuum_insert_threshold is -1: tables that only grow are vacuumed when they must be frozen")
                })
                .not("a missing index: it is there")
                .remedy(
                    "vacuum the table: that marks its pages, and index-only scans leave them out; autovacuum does so once enough rows were \
                     inserted or changed, so vacuum by hand after a load",
                    &commands,
                ),
        );
    }
    Answer::of(claims, || {
        "plans that an index alone could answer, and the pages that are marked as visible".to_string()
    })
}

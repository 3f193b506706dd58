//! The first rows in an order for which all that fit are read and sorted, once for each row of another table, or once.

use super::{Place, ROWS_MIN, Reason};
use crate::case::Thing;
use crate::rules::costly::{lowered, plain};
use crate::rules::plan::collation::{self, Differs};
use crate::rules::plan::{below, number};
use record::statement;

/// Rows that are read for each one that is wanted.
const ROWS_PER_RESULT_MIN: f64 = 10.0;
/// Columns of an index that is proposed.
const COLUMNS_MAX: usize = 6;
/// Characters of an order in a claim.
const ORDER_CHARS: usize = 120;

/// Whether an index has these columns first, in any order, and then the first column of the order.
fn is_there(place: &Place<'_, '_>, equal: &[String], keys: &str, first: &str) -> bool {
    place.indexes.iter().any(|(index, columns)| {
        let is_usable = index.lines.flag("valid") != Some(false) && index.lines.word("method") == "btree";
        let at = columns.iter().position(|column| *column == first.trim_matches('"'));
        is_usable
            && at.is_some_and(|at| {
                columns[..at].iter().all(|column| equal.iter().any(|one| one == column))
                    && collation::of_order(keys, index, at).is_none()
            })
    })
}

/// The index that has the order but for its collation, and both collations.
fn by_another_collation(place: &Place<'_, '_>, keys: &str, first: &str) -> Option<String> {
    place.indexes.iter().find_map(|(index, columns)| {
        let at = columns.iter().position(|column| *column == first.trim_matches('"'))?;
        let Differs { index: of_index, wanted, .. } = collation::of_order(keys, index, at)?;
        let name = index.lines.word("index");
        Some(format!("index {name} has it by collation {of_index}, and the statement wants {wanted}"))
    })
}

/// Below a LIMIT, and rows of the limit's own step: of a subquery for one value it is one.
fn sort_above<'a>(place: &Place<'_, 'a>) -> Option<Thing<'a>> {
    let above = place.planned.ancestors(&place.node);
    let passes = ["Gather", "Gather Merge", "Incremental Sort"];
    let mut steps = above.iter().skip_while(|node| node.lines.word("kind") == "Gather");
    let sort = *steps.next().filter(|node| node.lines.word("kind") == "Sort")?;
    steps
        .find(|node| !passes.contains(&node.lines.word("kind")))
        .filter(|node| node.lines.word("kind") == "Limit")?;
    Some(sort)
}

/// What the least or greatest value of a subquery is of: `max(m.sent_at)` for the table `m`.
fn extreme_of(place: &Place<'_, '_>) -> Option<String> {
    let top = place.planned.ancestors(&place.node);
    let is_alone = top.first().is_some_and(|node| {
        node.lines.word("kind") == "Aggregate"
            && node.lines.word("condition").is_empty()
            && node.lines.flag("subquery") == Some(true)
    });
    let text = lowered(&place.planned.statement.text).replace('"', "");
    let called =
        ["max(", "min("].iter().flat_map(|name| text.match_indices(*name)).filter_map(|(at, name)| {
            let inside = text[at + name.len()..].split(')').next()?.trim();
            let (table, column) = inside.split_once('.').unwrap_or(("", inside));
            let is_own = table.is_empty() || table == place.alias;
            (is_own && !column.is_empty() && column.chars().all(|c| c.is_alphanumeric() || c == '_'))
                .then(|| column.to_string())
        });
    let found: Vec<String> = called.collect();
    let [column] = found.as_slice() else { return None };
    is_alone.then(|| column.clone())
}

/// Why the order is not that of an index.
pub(super) fn reason(place: &Place<'_, '_>) -> Option<Reason> {
    let rows = match place.is_scan() {
        true => number(&place.node, "rows_planned").max(1.0),
        false => number(&place.node, "rows_planned"),
    };
    // Of one run the statement's own rows show how many are wanted; a subquery for one value wants one.
    let wanted = place.planned.statement.rows.unwrap_or(f64::MAX) / place.runs;
    if rows * place.runs < ROWS_MIN || rows < wanted.max(1.0) * ROWS_PER_RESULT_MIN {
        return None;
    }
    let (keys, what) = match sort_above(place) {
        Some(sort) => (sort.lines.word("condition").to_string(), "sorts what fits for the first rows"),
        None => (extreme_of(place)?, "takes the least or greatest of all that fit"),
    };
    let own = place.without_alias(&keys);
    let is_own = !own.contains(['.', '$']) && !own.is_empty();
    let first = own.split([',', ' ']).next().unwrap_or_default().to_string();
    let equal = place.equal();
    // What a filter throws away besides is the reason of its own part.
    let is_filtered =
        below(place.planned, &place.node).next().is_none() && place.is_scan() && equal.is_empty();
    if !is_own
        || is_there(place, &equal, &own, &first)
        || equal.contains(&first)
        || is_filtered && place.runs > 1.0
    {
        return None;
    }
    let columns: Vec<String> = equal.iter().map(|column| statement::quoted(column)).collect();
    let led = if equal.is_empty() { String::new() } else { format!("{} and then ", equal.join(", ")) };
    let collated = by_another_collation(place, &own, &first);
    let words = format!(
        "it {what} by {}, and no index has {led}that order, in which the first entry is the answer{}",
        plain(&own, ORDER_CHARS),
        collated.map_or(String::new(), |collated| format!(" ({collated})"))
    );
    let command = format!(
        "CREATE INDEX CONCURRENTLY ON {} ({});",
        place.relation,
        columns.into_iter().chain([own.clone()]).collect::<Vec<_>>().join(", ")
    );
    let is_short = equal.len() + own.split(',').count() <= COLUMNS_MAX;
    Some(Reason::of(
        words,
        "create an index with the columns of the condition first and those of the order behind them: a look-up then reads the first entries alone; it can \
         take the place of an index on the first columns",
        is_short.then_some(command).into_iter().chain([format!("ANALYZE {};", place.relation)]).collect(),
    ))
}

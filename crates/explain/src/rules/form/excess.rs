//! PLAN-51, PLAN-52, PLAN-63: rows that are counted where the first one answers, rows that a join makes and DISTINCT removes, and lists that
//! multiply each other.

use super::{BLOCKS_MIN, Found, Seen, explain_it};
use crate::case::Thing;
use crate::rules::costly::{closing, is_name_of, lowered};
use crate::rules::plan::{below, inputs, number};
use crate::units;
use record::finding::Severity;
use record::statement;
use record::watched::VIEW_TEXT;

/// Rows of a join for each one that DISTINCT leaves.
const COPIES_MIN: f64 = 10.0;
/// Rows of such a join.
const JOINED_MIN: f64 = 1_000.0;

/// The share of a plan's cost that is a sort, from which on it is what takes the time.
const SORT_MIN: f64 = 0.3;

/// The type of a column, as far as the plan's steps have it.
fn kind_of<'a>(planned: &super::super::plan::Planned<'a>, column: &str) -> &'a str {
    let of = |one: &'a str| one.strip_prefix(column)?.strip_prefix(' ');
    let types = planned.nodes.iter().flat_map(|node| node.lines.word("column_types").split("; "));
    types.into_iter().find_map(of).unwrap_or_default()
}

/// Why count(DISTINCT) may cost little: the sort is a small part of the plan, or numbers are sorted within many groups. From PostgreSQL 16 on the plan has the
/// sort as a step; before, the aggregate sorts, and its cost is no part of the plan's.
pub(super) fn sorts_cheaply(seen: &Seen<'_>, counted: &str) -> Option<String> {
    let planned =
        super::super::plan::plan_of(seen.case, seen.time, seen.statement).filter(|_| !seen.spills())?;
    let column = counted.rsplit('.').next().unwrap_or(counted).trim_matches('"');
    if ["text", "character", "uuid"].iter().any(|kind| kind_of(&planned, column).starts_with(kind)) {
        return None;
    }
    let is_key = |node: &Thing<'_>| {
        let mut keys = node.lines.word("condition").split(", ");
        keys.any(|key| {
            key.split(' ')
                .next()
                .and_then(|key| key.rsplit('.').next())
                .is_some_and(|key| key.trim_matches('"') == column)
        })
    };
    let sort = planned.nodes.iter().find(|node| node.lines.word("kind").ends_with("Sort") && is_key(node));
    let is_grouped = planned
        .nodes
        .iter()
        .any(|node| node.lines.word("kind") == "Aggregate" && !node.lines.word("condition").is_empty());
    let whole = planned.plan.lines.last("cost_total").unwrap_or(0.0).max(f64::MIN_POSITIVE);
    let share = sort.map(|sort| {
        let inside: f64 = inputs(&planned, sort).map(|node| number(&node, "cost_total")).sum();
        (number(sort, "cost_total") - inside) / whole
    });
    match share {
        Some(share) if share >= SORT_MIN => None,
        Some(share) => Some(format!(
            "whether the sort takes the time: the planner gives it {} of the plan's cost; EXPLAIN (ANALYZE) of both forms shows which one is quicker",
            units::percent(share)
        )),
        None if is_grouped => Some(
            "whether the sort takes the time: it sorts numbers, within groups; EXPLAIN (ANALYZE) of both forms shows which one is quicker".to_string(),
        ),
        None => reads_most(&planned, whole).then(|| {
            "how many rows are sorted: the plan gives most of its cost to the scan, whose filter may leave none".to_string()
        }),
    }
}

/// Whether a scan with a filter has nearly all of a plan's cost.
fn reads_most(planned: &super::super::plan::Planned<'_>, whole: f64) -> bool {
    planned.nodes.iter().any(|node| {
        let is_filtered = node.lines.word("kind") == "Seq Scan" && !node.lines.word("filter").is_empty();
        is_filtered && number(node, "cost_total") >= whole * (1.0 - SORT_MIN)
    })
}

/// Whether a statement has window functions beside the one that numbers its rows: sums over all rows of a group, for example.
pub(super) fn has_other_windows(seen: &Seen<'_>) -> bool {
    let text = lowered(&seen.statement.text);
    text.matches(" over (").count() + text.matches(" over(").count() > 1
}

/// PLAN-51.
pub(super) fn existence(seen: &Seen<'_>) -> Option<Found> {
    if !seen.shape.asks_for_any || seen.blocks() < BLOCKS_MIN {
        return None;
    }
    let relation = seen.relation();
    let text = format!(
        "one statement that counts all rows of {relation} that fit, {} blocks each time, only to compare their number with a constant",
        units::short(seen.blocks())
    );
    let commands = vec![
        format!(
            "SELECT EXISTS (SELECT 1 FROM {relation}); -- with the statement's WHERE: it stops at the first row"
        ),
        format!(
            "SELECT count(*) > 10 FROM (SELECT 1 FROM {relation} LIMIT 11) AS found; -- likewise, for more than ten"
        ),
        explain_it(seen.case, &seen.time.node, seen.statement),
    ];
    let remedy = "ask with EXISTS whether there is any: it stops at the first row instead of counting all of them; for another number count no more rows than \
        that, by a subquery with LIMIT";
    Some(seen.found(text, remedy, commands))
}

/// What DISTINCT leaves, and the rows that it is given.
fn copies(seen: &Seen<'_>) -> Option<(f64, f64)> {
    let planned = super::super::plan::plan_of(seen.case, seen.time, seen.statement)?;
    let removes = |node: &&Thing<'_>| ["Aggregate", "Group", "Unique"].contains(&node.lines.word("kind"));
    planned.nodes.iter().filter(removes).find_map(|node| {
        let given = below(&planned, node).map(|one| number(&one, "rows_planned")).fold(0.0, f64::max);
        let left = number(node, "rows_planned").max(1.0);
        (given >= JOINED_MIN && given >= left * COPIES_MIN).then_some((given, left))
    })
}

/// PLAN-52.
pub(super) fn fanned(seen: &Seen<'_>) -> Option<Found> {
    if !seen.shape.is_distinct || seen.tables < 2 || seen.blocks() < BLOCKS_MIN {
        return None;
    }
    let (given, left) = copies(seen)?;
    let only_joined = seen.shape.only_joined.join(", ");
    let unused = match only_joined.is_empty() {
        true => String::new(),
        false => format!("; no column of {only_joined} is returned"),
    };
    let text = format!(
        "one statement that joins tables to about {} rows, of which {} leaves about {}: the others are duplicates that the join makes{unused}",
        units::count(given),
        if seen.shape.is_grouped_alone { "GROUP BY" } else { "DISTINCT" },
        units::count(left)
    );
    let commands = vec![explain_it(seen.case, &seen.time.node, seen.statement)];
    let remedy = "ask with EXISTS (or IN) whether there is a row in the table of which nothing is returned, instead of joining it: the server stops at \
        the first \
        one, and DISTINCT has nothing to remove";
    Some(seen.found(text, remedy, commands))
}

/// Rows of an execution from which on two lists that multiply each other are worth a word.
const MULTIPLIED_MIN: f64 = 100.0;
/// Rows that each of them has.
const LIST_MIN: f64 = 3.0;

/// What to do about lists that multiply each other.
const READ_EACH: &str = "read each list by a statement of its own (in object mappers a split query, a batch or subselect fetch), or put each into an array or \
    JSON by a subquery: then the rows of the lists are added up and not multiplied";
const COUNT_EACH: &str = "count each list in a subquery of its own (SELECT count(*) FROM list WHERE list.key = outer.key, or GROUP BY key and then a join): \
    nothing is multiplied, and DISTINCT is not needed";

/// PLAN-63.
pub(super) fn multiplied(seen: &Seen<'_>) -> Option<Found> {
    let shape = &seen.shape;
    let lists = &shape.side_by_side;
    let is_counted = shape.distinct_counts >= 2;
    let is_sent = !shape.aggregates && !shape.is_distinct && seen.rows() >= MULTIPLIED_MIN;
    if lists.len() < 2 || !(is_sent || is_counted && seen.blocks() >= BLOCKS_MIN) {
        return None;
    }
    // With a plan it is known whether there are several rows of each.
    let planned = super::super::plan::plan_of(seen.case, seen.time, seen.statement)?;
    let rows_of = |alias: &String| {
        let of_it = |node: &&Thing<'_>| {
            let (named, relation) = (node.lines.word("alias"), node.lines.word("relation"));
            named == alias || relation.rsplit('.').next().is_some_and(|name| name.trim_matches('"') == alias)
        };
        planned.nodes.iter().find(of_it).and_then(|node| node.lines.last("rows_planned"))
    };
    let several: Vec<&String> =
        lists.iter().filter(|alias| rows_of(alias).is_some_and(|rows| rows >= LIST_MIN)).collect();
    if several.len() < 2 {
        return None;
    }
    let names = several.iter().map(|alias| alias.as_str()).collect::<Vec<_>>().join(" and ");
    let each = format!(
        "joins {names} to the same rows and not to each other: each row of one comes once for each of the other"
    );
    let text = match is_counted {
        true => format!(
            "one statement that {each}, and its {} DISTINCT aggregates sort these products to take the copies out again",
            shape.distinct_counts
        ),
        false => format!("one statement that {each}, {} rows per execution", units::count(seen.rows())),
    };
    let remedy = if is_counted { COUNT_EACH } else { READ_EACH };
    let mut found = seen.found(text, remedy, vec![explain_it(seen.case, &seen.time.node, seen.statement)]);
    found.evidence.extend(several.iter().filter_map(|alias| {
        Some(format!(
            "the plan expects {} rows of {alias} for each row that it is joined to",
            units::short(rows_of(alias)?)
        ))
    }));
    Some(found)
}

/// Names that a text gives to what its window functions compute.
fn numbers_of(text: &str) -> Vec<String> {
    let text = lowered(text);
    let ends = text.match_indices(" over ").map(|(at, over)| at + over.len());
    let after = ends.filter_map(|at| {
        let rest = text[at..].trim_start();
        let end = match rest.starts_with('(') {
            true => closing(rest)? + 1,
            false => rest.find(' ')?,
        };
        let rest = rest[end..].trim_start();
        let name = rest.strip_prefix("as ").unwrap_or(rest).trim_start().trim_start_matches('"');
        let name: String = name.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        Some(name).filter(|name| !name.is_empty() && name != "from")
    });
    after.collect()
}

/// Whether a filter compares nothing but what window functions compute.
fn is_of_numbers(text: &str, filter: &str) -> bool {
    let numbers = numbers_of(text);
    let columns = statement::conditions(filter).unwrap_or_default();
    !columns.is_empty() && columns.iter().all(|one| numbers.contains(&one.column.to_lowercase()))
}

/// Whether a filter takes the first rows of each group: it compares the number itself, and nothing that is computed from it.
pub(super) fn takes_the_first(filter: &str) -> bool {
    let columns = statement::conditions(filter).unwrap_or_default();
    columns.is_empty() || columns.iter().any(|one| one.inside.is_none())
}

/// PLAN-32 without WITH: a condition on what a view or a subquery returns, which cannot be moved into it.
pub(super) fn late(seen: &Seen<'_>, planned: &super::super::plan::Planned<'_>) -> Option<Found> {
    let is_late = |node: &&Thing<'_>| {
        node.lines.word("kind") == "Subquery Scan" && !node.lines.word("filter").is_empty()
    };
    let Some(scan) = planned.nodes.iter().find(is_late) else { return all_groups(seen, planned) };
    let below = below(planned, scan).next()?;
    let what = match below.lines.word("kind") {
        "Unique" => "DISTINCT",
        "WindowAgg" => "a window function",
        "Aggregate" => "GROUP BY",
        "Append" => "UNION ALL",
        "SetOp" => "a set operation",
        "Limit" => "LIMIT",
        _ => return None,
    };
    let (rows, kept) = (number(&below, "rows_planned"), number(scan, "rows_planned").max(1.0));
    // What a window function computes cannot be compared before it.
    let is_of_window =
        what == "a window function" && is_of_numbers(&seen.statement.text, scan.lines.word("filter"));
    if rows < kept * COPIES_MIN || is_of_window {
        return None;
    }
    let alias = scan.lines.word("alias");
    let text = format!(
        "one statement whose condition is applied after {what}: all of {alias} is computed, about {} rows, to keep about {}{}",
        units::count(rows),
        units::count(kept),
        if what == "UNION ALL" { NOT_PUSHED } else { "" }
    );
    let remedy = if what == "UNION ALL" { SAME_TYPES } else { BEFORE };
    let mut found = seen.found(text, remedy, vec![explain_it(seen.case, &seen.time.node, seen.statement)]);
    found.evidence.push(format!("the plan filters {alias} by {} above {what}", scan.lines.word("filter")));
    found.not = Some(
        "a missing index for that condition: the plan applies it to a result, and not to a table".to_string(),
    );
    Some(found)
}

/// Blocks of an execution, and for each row that it returns, from which on a view of groups that has no plan is taken to be computed as a whole.
const VIEW_BLOCKS_MIN: f64 = 1_000.0;
const VIEW_BLOCKS_PER_ROW_MIN: f64 = 50.0;

/// PLAN-32 without a plan: the statement names a view whose definition does what no condition from outside passes, and touches far more than it returns.
pub(super) fn of_view(seen: &Seen<'_>) -> Option<Found> {
    if seen.blocks() < VIEW_BLOCKS_MIN || seen.blocks() < seen.rows() * VIEW_BLOCKS_PER_ROW_MIN {
        return None;
    }
    let parsed = statement::parse(&seen.statement.text).ok()?;
    let mut views = seen.case.facts(VIEW_TEXT).filter(|fact| fact.node == seen.time.node);
    let (view, what) = views.find_map(|fact| {
        let is_named = parsed.tables.iter().any(|table| is_name_of(table, &fact.name));
        Some((&fact.name, collects(&fact.value)?)).filter(|_| is_named)
    })?;
    let text = format!(
        "one statement that reads view {view}, which has {what}: all of the view is computed before the joins and conditions of the statement apply, unless a \
         condition compares a column that it groups or partitions by with a value"
    );
    let mut found = seen.found(text, BEFORE, vec![explain_it(seen.case, &seen.time.node, seen.statement)]);
    found.severity = found.severity.min(Severity::Medium);
    found.evidence.push(format!(
        "an execution touches {} blocks and returns {} rows",
        units::short(seen.blocks()),
        units::short(seen.rows())
    ));
    found.lacking = Some("its plan, which no session of watch could have".to_string());
    Some(found)
}

/// What a definition does that needs all rows below it.
fn collects(definition: &str) -> Option<&'static str> {
    let text = format!("{} ", lowered(definition));
    let all = [
        (" over (", "a window function"),
        (" group by ", "GROUP BY"),
        ("select distinct", "DISTINCT"),
        (" union ", "a set operation"),
        (" limit ", "LIMIT"),
    ];
    all.into_iter().find(|(word, _)| text.contains(word)).map(|(_, what)| what)
}

/// PLAN-32 where a join takes few of the groups of a view or subquery, all of which are computed: through an outer join no condition is moved into them.
fn all_groups(seen: &Seen<'_>, planned: &super::super::plan::Planned<'_>) -> Option<Found> {
    let found =
        planned.nodes.iter().filter(|node| node.lines.word("kind").ends_with("Join")).find_map(|join| {
            let groups = inputs(planned, join).find(|side| {
                side.lines.word("kind") == "Aggregate" && !side.lines.word("condition").is_empty()
            })?;
            let other =
                inputs(planned, join).find(|side| number(side, "number") != number(&groups, "number"))?;
            let mut scans = below(planned, &groups).filter(|scan| {
                !scan.lines.word("relation").is_empty()
                    && scan.lines.word("filter").is_empty()
                    && scan.lines.word("condition").is_empty()
            });
            let (all, wanted) = (number(&groups, "rows_planned"), number(&other, "rows_planned").max(1.0));
            scans.next().filter(|_| all >= wanted * COPIES_MIN).map(|scan| (groups, scan, all, wanted))
        });
    let (groups, scan, all, wanted) = found?;
    let relation = scan.lines.word("relation");
    let text = format!(
        "one statement that joins a view or subquery with GROUP BY: all {} groups of {relation} are aggregated before the join takes about {} of them",
        units::count(all),
        units::count(wanted)
    );
    let remedy = "let the aggregate see the condition: a LATERAL subquery, or one in the SELECT list, which is computed for each row that is wanted by \
        the index on \
        the key of the groups; or an inner join with the condition on that key, which is moved into the view";
    let mut found = seen.found(text, remedy, vec![explain_it(seen.case, &seen.time.node, seen.statement)]);
    found.evidence.push(format!(
        "the plan groups {relation} by {}, without a condition",
        groups.lines.word("condition")
    ));
    found.not = Some("a missing index: the condition does not reach the table".to_string());
    Some(found)
}

/// Whether a plan has a recursion.
pub(super) fn recurses(planned: &super::super::plan::Planned<'_>) -> bool {
    planned.nodes.iter().any(|node| node.lines.word("kind") == "Recursive Union")
}

/// Whether a statement returns most of the rows of its recursion, by the plan: then it begins where it should.
pub(super) fn wants_most(planned: &super::super::plan::Planned<'_>, rows: f64) -> bool {
    if !recurses(planned) {
        return false;
    }
    let all = planned.nodes.iter().find(|node| node.lines.word("kind") == "Recursive Union");
    let kept = planned.nodes.iter().find(|node| node.lines.word("kind") == "CTE Scan");
    let share =
        all.zip(kept).map(|(all, kept)| number(kept, "rows_planned") / number(all, "rows_planned").max(1.0));
    share.is_some_and(|share| share >= MOST_MIN) || rows >= WANTED_ROWS_MIN
}

/// Of the rows of a recursion, those that a statement wants.
const MOST_MIN: f64 = 0.5;
/// Rows that are no single one.
const WANTED_ROWS_MIN: f64 = 100.0;

/// What to do about a CTE that is kept.
pub(super) const NOT_KEPT: &str = "write NOT MATERIALIZED instead of MATERIALIZED, or a subquery: then the condition reaches the table and its index. A WITH \
    that is used twice is kept by default; compare both plans";

/// What to do about a recursion for one of its rows.
pub(super) const BEGIN_THERE: &str = "let the recursion begin at the row that is wanted: a function with its key as argument, which follows the parents \
    upwards from \
    there; or keep the path in a column, which a trigger maintains (ltree)";

/// Why a condition stays above UNION ALL, as the end of a claim. See `subquery_is_pushdown_safe` and `compare_tlist_datatypes` in
/// `optimizer/path/allpaths.c`.
const NOT_PUSHED: &str = "; into the parts of UNION ALL it is pushed down only if its columns have the same data types in all of them (integer and \
    bigint differ)";
const SAME_TYPES: &str = "give the columns of all parts the same data types: cast them in the view, or better change the column of the table; if they are the \
    same, look for LIMIT or a volatile function in a part, which keep the condition outside as well";
const BEFORE: &str = "put the condition into the view or subquery, in front of DISTINCT, GROUP BY or the window function: a function with \
        the value as argument, a LATERAL \
        subquery for each row that is wanted, or a condition on a column of DISTINCT ON, GROUP BY or PARTITION BY, which is moved into it";

/// Rows of a result that no page shows.
const RESULT_ROWS_MIN: f64 = 10_000.0;
/// Executions a second of a result that no export makes.
const RESULTS_PER_S_MIN: f64 = 1.0;
/// Rows of a list that an object mapper loads as a whole.
const LIST_ROWS_MIN: f64 = 1_000.0;
/// Rows a second of such lists.
const ROWS_PER_S_MIN: f64 = 20_000.0;

/// PLAN-33.
pub(super) fn whole_result(seen: &Seen<'_>) -> Option<Found> {
    let is_large = seen.rows() >= RESULT_ROWS_MIN && seen.calls() >= RESULTS_PER_S_MIN;
    let is_much = seen.rows() >= LIST_ROWS_MIN && seen.rows() * seen.calls() >= ROWS_PER_S_MIN;
    if !(is_large || is_much) || seen.shape.is_limited {
        return None;
    }
    let rows = units::short(seen.rows());
    let text = format!(
        "one statement that returns {rows} rows per execution, {} times a second: it has no LIMIT",
        units::short(seen.calls())
    );
    let remedy = "if the program shows or uses only the first of them, add LIMIT, and an index for its order; if it needs one of them, or wants to add one \
        to a collection, ask for that alone; if it needs all of them now and then, keep the \
        result, or fetch what changed since the last time; a cursor fetches in portions";
    let look = explain_it(seen.case, &seen.time.node, seen.statement);
    let mut found = seen.found(text, remedy, vec![look]);
    found.not =
        Some(format!("a report of now and then: it runs {} times a second", units::short(seen.calls())));
    found.severity = found.severity.min(if is_large { Severity::Medium } else { Severity::Low });
    Some(found)
}

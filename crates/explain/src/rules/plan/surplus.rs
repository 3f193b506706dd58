//! PLAN-68 to PLAN-70: work of a plan that its result does not need: outer joins of which no column is read, all rows for their few different values, and
//! all rows for the few without a partner.

use super::{NEEDS, Planned, SHARE_MIN, inputs, judge, number, severity};
use crate::case::{Case, Thing};
use crate::rule::{Claim, Rule};
use crate::rules::costly::{lowered, plain};
use crate::rules::statement::explain_it;
use crate::units;
use record::finding::{Level, Severity};
use record::statement;

pub(in crate::rules) const RULES: &[Rule] = &[
    Rule {
        id: "PLAN-68",
        title: "tables are joined that add nothing to the result",
        needs: NEEDS,
        limits: "10 % of the session time in a statement with outer joins of 10,000 rows or more in all whose columns nothing reads (ours)",
        judge: |case| judge(case, unread, "outer joins of plans, and what is read of them"),
        links: &["https://www.postgresql.org/docs/current/explicit-joins.html"],
    },
    Rule {
        id: "PLAN-69",
        title: "all rows are read to find few different values",
        needs: NEEDS,
        limits: "10 % of the session time in a SELECT DISTINCT, or GROUP BY without an aggregate, over 10,000 rows or more without a condition, which \
            returns one \
            in a hundred of them or fewer (ours)",
        judge: |case| judge(case, different, "plans that look for different values"),
        links: &["https://wiki.postgresql.org/wiki/Loose_indexscan"],
    },
    Rule {
        id: "PLAN-70",
        title: "all rows are compared to find those without a partner",
        needs: NEEDS,
        limits: "10 % of the session time in a statement whose plan has an anti join of two sides with 10,000 rows or more, and which returns one in a \
            hundred of \
            them or fewer (ours)",
        judge: |case| judge(case, unpaired, "anti joins of plans"),
        links: &["https://www.postgresql.org/docs/current/indexes-partial.html"],
    },
];

/// Rows from which on reading them all is much.
const ROWS_MIN: f64 = 10_000.0;
/// Rows read for each one that is wanted.
const ROWS_PER_RESULT_MIN: f64 = 100.0;
/// Blocks of an execution that reads them.
const BLOCKS_MIN: f64 = 100.0;
/// Names in a claim.
const NAMES_MAX: usize = 4;
/// Characters of them.
const NAMES_CHARS: usize = 160;

/// Whether one of these rules explains the scans of a statement.
pub(in crate::rules) fn is_explained(planned: &Planned<'_>) -> bool {
    planned.statement.share >= SHARE_MIN
        && (!unread_joins(planned).is_empty()
            || different_in(planned).is_some()
            || unpaired_in(planned).is_some())
}

/// Tables in a part of a plan: names, their names in conditions, and rows.
fn tables_below<'a>(planned: &Planned<'a>, node: Thing<'a>) -> Vec<(&'a str, &'a str, f64)> {
    let (mut open, mut found) = (vec![node], vec![]);
    while let Some(node) = open.pop() {
        let relation = node.lines.word("relation");
        if !relation.is_empty() {
            let (all, kept) = (number(&node, "table_rows"), number(&node, "rows_planned"));
            // An index finds those that its condition names, and reads no others.
            let by_index = !node.lines.word("index").is_empty() && !node.lines.word("condition").is_empty();
            found.push((relation, node.lines.word("alias"), if by_index { kept } else { all }));
        }
        open.extend(inputs(planned, &node));
    }
    found
}

/// A table that an outer join adds although nothing reads it.
struct Unread<'a> {
    relation: &'a str,
    rows: f64,
    /// The column that joins it, if the condition shows one.
    column: Option<String>,
}

/// All of them, if they are large together.
fn unread_joins<'a>(planned: &Planned<'a>) -> Vec<Unread<'a>> {
    let joins = planned.nodes.iter().filter(|node| node.lines.flag("adds_nothing") == Some(true));
    let found = joins.filter_map(|join| {
        let sides: Vec<Thing<'a>> = inputs(planned, join).collect();
        // The row of this side may be absent.
        let side = if join.lines.word("join") == "Right" { sides.first() } else { sides.last() };
        let (relation, alias, rows) = tables_below(planned, *side?).into_iter().next()?;
        let conditions = statement::conditions(join.lines.word("condition")).unwrap_or_default();
        let own =
            conditions.into_iter().find(|one| one.table.as_deref() == Some(alias) && one.inside.is_none());
        Some(Unread { relation, rows, column: own.map(|one| one.column) })
    });
    let found: Vec<Unread<'a>> = found.collect();
    if found.iter().map(|one| one.rows).sum::<f64>() >= ROWS_MIN { found } else { vec![] }
}

/// PLAN-68.
fn unread(case: &Case, planned: &Planned<'_>) -> Option<Claim> {
    let found = unread_joins(planned);
    let largest = found.iter().max_by(|left, right| left.rows.total_cmp(&right.rows))?;
    let names: Vec<&str> = found.iter().map(|one| one.relation).take(NAMES_MAX).collect();
    let more = if found.len() > NAMES_MAX { ", ..." } else { "" };
    let rows: f64 = found.iter().map(|one| one.rows).sum();
    let text = format!(
        "a statement that takes {} of the session time joins {} of which it reads no column ({}{more}; LEFT JOIN in a view, perhaps): {} rows; without \
         a unique \
         key the planner cannot leave such a join out",
        planned.share(),
        units::counted(found.len(), "table"),
        plain(&names.join(", "), NAMES_CHARS),
        units::count(rows)
    );
    let keys = found.iter().filter_map(|one| {
        let column = statement::quoted(one.column.as_ref()?);
        Some(format!(
            "CREATE UNIQUE INDEX CONCURRENTLY ON {} ({column}); -- refused if a value is there twice",
            one.relation
        ))
    });
    let commands: Vec<String> =
        keys.take(NAMES_MAX).chain([explain_it(case, &planned.time.node, planned.statement)]).collect();
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    Some(
        planned
            .claim(case, Level::CoOccurrence, severity(planned.statement.share), text)
            .number("joins", found.len() as f64)
            .number("rows_joined", rows)
            .because(format!("the largest is {} with {} rows", largest.relation, units::count(largest.rows)))
            .because("an outer join neither adds nor removes rows if the joined column is unique: then the planner removes it where nothing reads its columns")
            .because(planned.file())
            .not("a missing index for the result: nothing of these tables is part of it")
            .remedy(
                "give the joined columns the unique keys that they should have, so that the planner leaves the joins out (an index that is not unique does \
                 not do it); or select from the table itself instead of a view that joins everything",
                &commands,
            ),
    )
}

/// Rows that are read for their different values, and what is compared: the keys, the table.
struct Different<'a> {
    relation: &'a str,
    rows: f64,
    keys: &'a str,
}

fn different_in<'a>(planned: &Planned<'a>) -> Option<Different<'a>> {
    let text = lowered(&planned.statement.text);
    // What is computed of groups, or of windows, needs all of their rows.
    let is_plain = !text.split(" from ").next().is_some_and(|list| list.contains('('));
    let is_distinct = text.starts_with("select distinct ") && is_plain && !text.contains(" group by ");
    let is_grouped = text.contains(" group by ") && !text.starts_with("select distinct") && is_plain;
    let ordered = text.split(" order by ").nth(1).unwrap_or_default();
    // With LIMIT it stops early, and with a condition on groups, or an order by an aggregate, it wants more than the different values.
    let is_more =
        [" where ", " join ", " having ", " limit ", " fetch first "].iter().any(|word| text.contains(word));
    let is_touching = planned.statement.blocks.is_none_or(|blocks| blocks >= BLOCKS_MIN);
    if !(is_distinct || is_grouped) || is_more || ordered.contains('(') || !is_touching {
        return None;
    }
    let mut tables = planned.nodes.iter().filter(|node| !node.lines.word("relation").is_empty());
    let scan = tables.next().filter(|_| tables.next().is_none())?;
    let rows = number(scan, "table_rows").max(number(scan, "rows_planned"));
    let is_whole = scan.lines.word("filter").is_empty() && scan.lines.word("condition").is_empty();
    let returned = planned.statement.rows?.max(1.0);
    if rows < ROWS_MIN || !is_whole || rows < returned * ROWS_PER_RESULT_MIN {
        return None;
    }
    let keys = planned.nodes.iter().find(|node| {
        matches!(node.lines.word("kind"), "Aggregate" | "Group" | "Sort")
            && !node.lines.word("condition").is_empty()
    });
    Some(Different {
        relation: scan.lines.word("relation"),
        rows,
        keys: keys.map_or("", |node| node.lines.word("condition")),
    })
}

/// DISTINCT ON that reads a whole table for one row of each group: the table, and its rows.
fn first_of_groups<'a>(planned: &Planned<'a>) -> Option<(&'a str, f64)> {
    let text = lowered(&planned.statement.text);
    let is_touching = planned.statement.blocks.is_none_or(|blocks| blocks >= BLOCKS_MIN);
    let computes = planned
        .nodes
        .iter()
        .any(|node| matches!(node.lines.word("kind"), "Aggregate" | "Group" | "WindowAgg"));
    if !text.contains("select distinct on") || super::is_limited(planned) || !is_touching || computes {
        return None;
    }
    let rows_of = |node: &Thing<'a>| number(node, "table_rows").max(number(node, "rows_planned"));
    let scans = planned.nodes.iter().filter(|node| !node.lines.word("relation").is_empty());
    let largest = scans.max_by(|left, right| rows_of(left).total_cmp(&rows_of(right)))?;
    let is_whole = largest.lines.word("filter").is_empty()
        && largest.lines.word("condition").is_empty()
        && !planned.above(largest).contains(&"Nested Loop");
    let rows = rows_of(largest);
    // Where nothing counts the rows, what the planner expects of the groups.
    let unique = planned.nodes.iter().find(|node| node.lines.word("kind") == "Unique");
    let returned = planned.statement.rows.or(unique.map(|node| number(node, "rows_planned")))?.max(1.0);
    (is_whole && rows >= ROWS_MIN && rows >= returned * ROWS_PER_RESULT_MIN)
        .then_some((largest.lines.word("relation"), rows))
}

/// The words of PLAN-69 for a table that is read as a whole.
struct ReadWhole<'a> {
    relation: &'a str,
    rows: f64,
    /// For what, as the end of the claim.
    purpose: String,
    because: &'static str,
    not: &'static str,
    remedy: &'static str,
}

const ONE_OF_EACH: &str = "look up each group's row by itself: FROM the table of the groups CROSS JOIN LATERAL (SELECT ... WHERE its key = \
    the group's ORDER BY \
    ... LIMIT 1), which an index on the key and the order answers with a few blocks for each; or keep the newest row of each group in a table";
const ONE_BY_ONE: &str = "DISTINCT ON does not jump in an index from one group to the next: every row, or its index entry, is read, and the more history, \
    the longer";
const ALL_VALUES: &str = "keep the values in a table of their own, to which the rows refer; or jump from value to value with WITH RECURSIVE: the least value, \
    then the least one above it, which reads one index entry for each";

fn read_whole<'a>(planned: &Planned<'a>) -> Option<ReadWhole<'a>> {
    let found = units::short(planned.statement.rows.unwrap_or(0.0));
    if let Some((relation, rows)) = first_of_groups(planned) {
        return Some(ReadWhole {
            relation,
            rows,
            purpose: format!("keep one of each group, {found} in all (DISTINCT ON)"),
            because: ONE_BY_ONE,
            not: "a missing index: in its order all rows are read as well",
            remedy: ONE_OF_EACH,
        });
    }
    let Different { relation, rows, keys } = different_in(planned)?;
    let by = if keys.is_empty() { String::new() } else { format!(" of {}", plain(keys, NAMES_CHARS)) };
    Some(ReadWhole {
        relation,
        rows,
        purpose: format!("find {found} different values{by} (DISTINCT)"),
        because: "neither DISTINCT nor GROUP BY jumps in an index from one value to the next: each row, or its index entry, is read (PostgreSQL 18 skips \
            only for conditions on later columns)",
        not: "a missing index: with one on the column all of its entries are read",
        remedy: ALL_VALUES,
    })
}

/// PLAN-69.
fn different(case: &Case, planned: &Planned<'_>) -> Option<Claim> {
    let ReadWhole { relation, rows, purpose, because, not, remedy } = read_whole(planned)?;
    let text = format!(
        "a statement that takes {} of the session time reads all {} rows of {relation} to {purpose}",
        planned.share(),
        units::count(rows)
    );
    Some(
        planned
            .claim(case, Level::CoOccurrence, severity(planned.statement.share), text)
            .number("rows_of_table", rows)
            .because(planned.file())
            .because(because)
            .not(not)
            .remedy(remedy, &[&explain_it(case, &planned.time.node, planned.statement)]),
    )
}

/// An anti join of large sides: the tables of the outer and of the inner side with the most rows.
struct Unpaired<'a> {
    outer: (&'a str, f64),
    inner: (&'a str, f64),
    condition: &'a str,
}

fn unpaired_in<'a>(planned: &Planned<'a>) -> Option<Unpaired<'a>> {
    let returned = planned.statement.rows?.max(1.0);
    let of_join = |join: &Thing<'a>| {
        let mut sides: Vec<Thing<'a>> = inputs(planned, join).collect();
        if join.lines.word("join") == "Right Anti" {
            sides.reverse();
        }
        let largest = |node: &Thing<'a>| {
            let tables = tables_below(planned, *node).into_iter().map(|(relation, _, rows)| (relation, rows));
            tables.max_by(|left, right| left.1.total_cmp(&right.1))
        };
        let (outer, inner) = (largest(sides.first()?)?, largest(sides.last()?)?);
        let is_large =
            outer.1 >= ROWS_MIN && inner.1 >= ROWS_MIN && outer.1 >= returned * ROWS_PER_RESULT_MIN;
        let condition = join.lines.word("condition");
        is_large.then_some(Unpaired { outer, inner, condition })
    };
    // Where the partner is looked up row by row, an index does the comparison; and an aggregate above hides how many rows have no partner.
    let mut joins = planned.nodes.iter().filter(|node| {
        let is_hidden =
            planned.above(node).iter().any(|kind| ["Aggregate", "Group", "Unique"].contains(kind));
        node.lines.word("join").ends_with("Anti") && node.lines.word("kind").ends_with("Join") && !is_hidden
    });
    joins.find_map(of_join)
}

/// PLAN-70.
fn unpaired(case: &Case, planned: &Planned<'_>) -> Option<Claim> {
    let Unpaired { outer: (outer, outer_rows), inner: (inner, inner_rows), condition } =
        unpaired_in(planned)?;
    let text = format!(
        "a statement that takes {} of the session time compares all {} rows of {outer} with {} of {inner} to find the {} without a partner (NOT EXISTS, \
         an anti \
         join)",
        planned.share(),
        units::count(outer_rows),
        units::count(inner_rows),
        units::short(planned.statement.rows.unwrap_or(0.0)),
    );
    Some(
        planned
            .claim(case, Level::CoOccurrence, severity(planned.statement.share).max(Severity::Medium), text)
            .number("rows_of_table", outer_rows)
            .with(Some(condition).filter(|condition| !condition.is_empty()), |claim, condition| {
                claim.because(format!("the plan joins them by {}", plain(condition, NAMES_CHARS)))
            })
            .because(planned.file())
            .because("both tables grow, and what is looked for is mostly among the newest rows")
            .not("a missing index: rows without a partner are in no index, so all are compared")
            .remedy(
                "mark in the row itself what is still to be done, with a partial index on the mark (WHERE done_at IS NULL), or keep such rows in a queue of \
                 their own; or limit the search in time, by an index on the date",
                &[&explain_it(case, &planned.time.node, planned.statement)],
            ),
    )
}

//! The nodes of a plan as the tree that they are.

use super::Planned;
use crate::case::{Case, Thing};

/// A figure of a node; 0 if it was not recorded.
pub(in crate::rules) fn number(node: &Thing<'_>, field: &str) -> f64 {
    node.lines.last(field).unwrap_or(0.0)
}

/// The nodes right below one, in the order of EXPLAIN.
pub(in crate::rules) fn below<'p, 'a>(
    planned: &'p Planned<'a>,
    node: &Thing<'_>,
) -> impl Iterator<Item = Thing<'a>> + use<'p, 'a> {
    let above = number(node, "number");
    planned.nodes.iter().filter(move |one| number(one, "above") == above).copied()
}

/// The inputs of a node, without the subqueries that its expressions or its WITH have: of a join the two sides.
pub(in crate::rules) fn inputs<'p, 'a>(
    planned: &'p Planned<'a>,
    node: &Thing<'_>,
) -> impl Iterator<Item = Thing<'a>> + use<'p, 'a> {
    below(planned, node).filter(|one| one.lines.flag("subquery") != Some(true))
}

impl<'a> Planned<'a> {
    pub(super) fn kind(&self, number: f64) -> &str {
        let node = self.nodes.iter().find(|node| node.lines.last("number") == Some(number));
        node.map_or("", |node| node.lines.word("kind"))
    }

    /// The table of a node. The index scan of a bitmap does not name it; the node above, which reads the rows, does.
    pub(in crate::rules) fn relation_of(&self, node: &Thing<'a>) -> &'a str {
        let mut node = *node;
        while node.lines.word("relation").is_empty() && node.lines.word("kind").starts_with("Bitmap") {
            let above = node.lines.last("above").unwrap_or(0.0);
            let Some(next) = self.nodes.iter().find(|next| next.lines.last("number") == Some(above)) else {
                break;
            };
            node = *next;
        }
        node.lines.word("relation")
    }

    /// The nodes above one, the nearest first.
    pub(in crate::rules) fn ancestors(&self, node: &Thing<'_>) -> Vec<Thing<'a>> {
        let mut found: Vec<Thing<'a>> = vec![];
        let mut above = number(node, "above");
        while let Some(next) = self.nodes.iter().find(|next| number(next, "number") == above) {
            if above <= 0.0 || found.len() > self.nodes.len() {
                break;
            }
            found.push(*next);
            above = number(next, "above");
        }
        found
    }

    /// Kinds of the nodes above one.
    pub(super) fn above(&self, node: &Thing<'_>) -> Vec<&str> {
        let mut kinds = vec![];
        let mut above = node.lines.last("above").unwrap_or(0.0);
        while above > 0.0 && kinds.len() <= self.nodes.len() {
            kinds.push(self.kind(above));
            let next = self.nodes.iter().find(|node| node.lines.last("number") == Some(above));
            above = next.and_then(|node| node.lines.last("above")).unwrap_or(0.0);
        }
        kinds
    }
}

/// Whether the part of a plan below a subquery looks at columns of a table outside of it: else it runs once.
pub(super) fn is_correlated(planned: &Planned<'_>, top: &Thing<'_>) -> bool {
    let (mut open, mut aliases, mut texts) = (vec![*top], vec![], vec![]);
    while let Some(node) = open.pop() {
        aliases.push(node.lines.word("alias"));
        texts.extend(["condition", "filter"].map(|field| node.lines.word(field)));
        open.extend(below(planned, &node));
    }
    let all = texts.iter().filter_map(|text| record::statement::conditions(text).ok()).flatten();
    let mut tables = all.filter_map(|one| one.table);
    tables.any(|table| {
        planned.nodes.iter().any(|node| node.lines.word("alias") == table)
            && !aliases.contains(&table.as_str())
    })
}

/// How often a node runs for an execution, by the plan.
pub(super) fn runs(planned: &Planned<'_>, node: &Thing<'_>) -> f64 {
    let (mut runs, mut side) = (1.0, *node);
    for above in planned.ancestors(node) {
        if side.lines.flag("subquery") == Some(true) {
            if !is_correlated(planned, &side) {
                break;
            }
            let in_filter = above.lines.word("filter").contains("SubPlan");
            let rows = if in_filter { number(&above, "table_rows") } else { 0.0 };
            runs *= rows.max(number(&above, "rows_planned")).max(1.0);
        } else if above.lines.word("kind") == "Nested Loop" {
            let mut sides = inputs(planned, &above);
            let outer = sides.next();
            let is_inner =
                sides.next().is_some_and(|inner| number(&inner, "number") == number(&side, "number"));
            runs *= outer.filter(|_| is_inner).map_or(1.0, |outer| number(&outer, "rows_planned").max(1.0));
        } else if ["Materialize", "Hash"].contains(&above.lines.word("kind")) {
            break;
        }
        side = above;
    }
    runs
}

/// Of the plan's cost, that of a step with all below it and all its repetitions; below a LIMIT, the part that is fetched. `None` if a cost is not known.
pub(super) fn weight(planned: &Planned<'_>, node: &Thing<'_>) -> Option<f64> {
    let whole = planned.plan.lines.last("cost_total").filter(|cost| *cost > 0.0)?;
    let cost = node.lines.last("cost_total")?;
    let (mut fetched, mut side) = (1.0_f64, *node);
    for above in planned.ancestors(node) {
        if above.lines.word("kind") == "Limit" {
            fetched *=
                (number(&above, "cost_total") / number(&side, "cost_total").max(f64::MIN_POSITIVE)).min(1.0);
        }
        side = above;
    }
    Some(cost * runs(planned, node) * fetched / whole)
}

/// Nodes that return the rows that they are given.
const PASSES_ON: [&str; 5] = ["Sort", "Incremental Sort", "Gather", "Gather Merge", "Result"];
/// Nodes that return a row for each group of rows.
const GROUPS: [&str; 3] = ["Aggregate", "Group", "Unique"];

/// Whether what a plan returns are groups, in whatever order.
pub(super) fn makes_groups(planned: &Planned<'_>) -> bool {
    let mut nodes = planned.nodes.iter().map(|node| node.lines.word("kind"));
    nodes.find(|kind| !PASSES_ON.contains(kind)).is_some_and(|kind| GROUPS.contains(&kind))
}

/// By how much more often than planned a loop may search its inner side and still run as it was meant.
const LOOPS_FACTOR: f64 = 3.0;

/// The first table of a part of a plan.
fn table_below<'a>(planned: &Planned<'a>, node: Thing<'a>) -> Option<&'a str> {
    let mut open = vec![node];
    while let Some(node) = open.pop() {
        let relation = planned.relation_of(&node);
        if !relation.is_empty() {
            return Some(relation);
        }
        open.extend(inputs(planned, &node));
    }
    None
}

/// Whether all nested loops search their inner sides about as often as planned, by the index scans of these tables, of which other statements may have some:
/// then executions that touch more blocks do not do it by their loops.
pub(super) fn run_as_planned(case: &Case, planned: &Planned<'_>) -> bool {
    let Some(calls) = planned.statement.calls_per_s.filter(|calls| *calls > 0.0) else { return false };
    let loops: Vec<&Thing<'_>> =
        planned.nodes.iter().filter(|node| node.lines.word("kind") == "Nested Loop").collect();
    let is_as_planned = |node: &&Thing<'_>| {
        let mut sides = inputs(planned, node);
        let (Some(outer), Some(inner)) = (sides.next(), sides.next()) else { return false };
        let Some(relation) = table_below(planned, inner) else { return false };
        let is_it = |table: &Thing<'_>| table.lines.word("relation") == relation;
        let scans = case
            .at("table", &planned.time.node)
            .find(is_it)
            .and_then(|table| table.lines.rate("index_scans"));
        // What an outer loop repeats, repeats the inner one as well.
        let above = planned.ancestors(node).iter().any(|above| above.lines.word("kind") == "Nested Loop");
        let expected = outer.lines.last("rows_planned").unwrap_or(0.0).max(1.0);
        !above && scans.is_some_and(|scans| scans / calls <= expected * LOOPS_FACTOR)
    };
    !loops.is_empty() && loops.iter().all(is_as_planned)
}

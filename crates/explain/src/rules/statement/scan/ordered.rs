//! PLAN-01 where the plan sorts what fits for the first rows: the index that has them in that order, or the function that computes it.

use super::{NAME_CHARS, Scan, conditions_on, index_there};
use crate::case::{Case, Thing};
use crate::rule::Claim;
use crate::rules::costly::plain;
use crate::rules::plan;
use record::statement::{self, Use};

/// The first rows in an order, for which a plan reads and sorts all that fit: an index has them in that order.
pub(super) struct Ordered {
    /// Columns that have to be equal to something.
    equal: Vec<String>,
    /// Those of the order, with DESC.
    order: Vec<String>,
}

/// The scan of a relation below a sort and a limit, if no index begins with its columns.
pub(super) fn of_plan(case: &Case, planned: &plan::Planned<'_>, relation: &str) -> Option<Ordered> {
    let has = |kind: &str| planned.nodes.iter().find(|node| node.lines.word("kind") == kind);
    let (sort, _) = (has("Sort")?, has("Limit")?);
    let scan = planned.nodes.iter().find(|node| {
        node.lines.word("kind") == "Seq Scan"
            && node.lines.word("relation") == relation
            && !node.lines.word("filter").is_empty()
    })?;
    let column = |part: &str| {
        let (name, direction) = part.trim().split_once(' ').unwrap_or((part.trim(), ""));
        let name = name.rsplit('.').next()?;
        let is_plain = !name.contains('(') && ["", "DESC"].contains(&direction);
        is_plain.then(|| format!("{name} {direction}").trim_end().to_string())
    };
    let order: Vec<String> = sort.lines.word("condition").split(',').map(column).collect::<Option<_>>()?;
    let conditions = statement::conditions(scan.lines.word("filter")).ok()?;
    let mut equal: Vec<String> =
        conditions.into_iter().filter(|one| one.how == Use::Equality).map(|one| one.column).collect();
    equal.dedup();
    // An operator that another kind of index serves leaves few rows, and then there is little to sort.
    let is_operator = |part: statement::Conjunct| matches!(part.form, statement::Form::Operator(_));
    let parts = statement::conjuncts(scan.lines.word("filter")).unwrap_or_default();
    if equal.is_empty() && parts.into_iter().any(is_operator) {
        return None;
    }
    let first = |index: &Thing<'_>| index.lines.word("columns").split("; ").next().unwrap_or("").to_string();
    let is_there = case
        .at("plan_index", &planned.time.node)
        .filter(|index| index.lines.word("relation") == relation && index.lines.flag("valid") != Some(false))
        .any(|index| match equal.as_slice() {
            [] => order[0].starts_with(&first(&index)),
            equal => equal.contains(&first(&index)),
        });
    (!is_there && equal.len() + order.len() <= COLUMNS_MAX).then_some(Ordered { equal, order })
}

/// Columns of an index that is proposed.
const COLUMNS_MAX: usize = 6;

pub(super) fn with_order(scan: &Scan<'_>, found: &Ordered) -> Claim {
    let Ordered { equal, order } = found;
    let quoted = |one: &String| {
        let (name, direction) = one.split_once(' ').unwrap_or((one, ""));
        format!("{} {direction}", statement::quoted(name.trim_matches('"'))).trim_end().to_string()
    };
    let all: Vec<String> = equal.iter().chain(order).map(quoted).collect();
    let relation = scan.relation();
    let lack = match equal.as_slice() {
        [] => format!("it sorts them, and no index has the order {}", order.join(", ")),
        equal => format!(
            "it sorts what fits, and no index has {} and then the order {}",
            equal.join(" and "),
            order.join(", ")
        ),
    };
    scan.claim(Some(lack))
        .because("the plan reads the table, sorts the rows that fit, and stops after the first: an index in that order begins with them")
        .lacking("the index tried: EXPLAIN with hypopg, or on a copy")
        .remedy(
            "create an index with the columns of the conditions first and those of ORDER BY behind them; for a queue leave out what is done \
                (WHERE state = ...); \
             CONCURRENTLY does not block writes, and must not run in a transaction",
            &[&format!("CREATE INDEX CONCURRENTLY ON {relation} ({});", all.join(", "))],
        )
}

/// What to do about an order that is computed.
pub(super) const IS_COMPUTED: &str = "no index of a condition shortens that. If the function takes the row's own columns and constants alone and is \
    IMMUTABLE, an index on the same expression has the rows in its order (or a generated column with an index); if it compares them with a value that differs \
    each time, as distances and likenesses do, let a condition with an index leave few candidates first, or take a type and operator whose index finds the \
    nearest ones (GiST of PostGIS, cube or pg_trgm; hnsw or ivfflat of pgvector). Written in C or SQL the function costs less than in PL/pgSQL";

/// The function that makes the order of the rows, by the text, where they are not read because a condition has no index.
pub(super) fn by_function(scan: &Scan<'_>) -> Option<String> {
    let function = statement::shape(&scan.statement.text).ok()?.ordered_by_function?;
    let is_without = conditions_on(scan.statement, scan.relation()).is_empty();
    let is_served = is_without || index_there(scan.statement, &scan.table).is_some();
    (scan.is_named && is_served).then(|| plain(&function, NAME_CHARS))
}

pub(super) fn by_text(function: &str) -> String {
    format!("its order is what {function} makes of each row, and only then LIMIT leaves some of them out")
}

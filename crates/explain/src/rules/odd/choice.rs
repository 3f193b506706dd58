//! Settings that weigh a scan of a table against its indexes: they cost something only where the plan had the choice.

use super::{Cost, RANDOM_FACTOR, Setting, of_statement};
use crate::case::{Case, Thing};
use crate::rules::plan::{Planned, is_of, number};
use crate::units;
use record::finding::NodeTime;
use record::statement;

/// Blocks of an execution, and for each row, of a statement whose plan is poor.
const BLOCKS_MIN: f64 = 100.0;
const BLOCKS_PER_ROW_MIN: f64 = 10.0;
/// Rows that are fetched by an index one by one, for which a scan may be cheaper.
const FETCHED_MIN: f64 = 1_000.0;

/// What a value makes dearer than it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Dear {
    Index,
    Scan,
}

/// A page that is read at random has a price that no disk has, against one that is read in order: where both have the same price, as for a database in
/// memory, it is right.
pub(super) fn priced(case: &Case, time: &NodeTime, setting: Setting<'_>) -> Option<Cost> {
    const IN_ORDER: &str = "seq_page_cost";
    let of_owner = setting.owner.and_then(|owner| {
        let mut own = case.own_settings(&time.node, IN_ORDER);
        own.find(|(other, _)| *other == owner).map(|(_, value)| value)
    });
    let in_order = of_owner.or_else(|| case.setting(&time.node, IN_ORDER)).unwrap_or("1");
    let factor = setting.value.parse::<f64>().ok()? / in_order.parse::<f64>().ok()?;
    match factor {
        factor if factor < RANDOM_FACTOR.0 => planned_poorly(case, time, setting, Dear::Scan),
        factor if factor > RANDOM_FACTOR.1 => planned_poorly(case, time, setting, Dear::Index),
        _ => None,
    }
}

/// `effective_cache_size`: it is for pages that indexes lead to.
pub(super) fn cached(case: &Case, time: &NodeTime, setting: Setting<'_>) -> Option<Cost> {
    planned_poorly(case, time, setting, Dear::Index)
}

/// `cpu_tuple_cost`: a scan looks at each row, an index leads to few.
pub(super) fn weighed(case: &Case, time: &NodeTime, setting: Setting<'_>) -> Option<Cost> {
    let dear = if setting.value.parse::<f64>().ok()? > 0.01 { Dear::Scan } else { Dear::Index };
    planned_poorly(case, time, setting, dear)
}

/// A statement takes the time that touches far more blocks than it returns rows, and whose plan has what the value makes cheap where it had a choice.
fn planned_poorly(case: &Case, time: &NodeTime, setting: Setting<'_>, dear: Dear) -> Option<Cost> {
    let work = |planned: &Planned<'_>| {
        (planned.statement.blocks.unwrap_or(0.0), planned.statement.rows.unwrap_or(0.0))
    };
    let is_poor = |planned: &Planned<'_>| {
        let (blocks, rows) = work(planned);
        let has_choice = match dear {
            Dear::Index => leaves_index_aside(case, planned),
            Dear::Scan => fetches_many(planned),
        };
        blocks >= BLOCKS_MIN && blocks >= rows.max(1.0) * BLOCKS_PER_ROW_MIN && has_choice
    };
    of_statement(case, time, setting, is_poor, |planned| {
        let (blocks, rows) = work(planned);
        format!("touches {} blocks for {} rows", units::count(blocks), units::short(rows))
    })
}

/// Whether a table is scanned of which an index begins with a column that the plan compares, in a condition or to join it.
fn leaves_index_aside(case: &Case, planned: &Planned<'_>) -> bool {
    let texts =
        planned.nodes.iter().flat_map(|node| [node.lines.word("filter"), node.lines.word("condition")]);
    let compared: Vec<String> = texts
        .flat_map(|text| statement::conditions(text).unwrap_or_default())
        .filter(|one| one.inside.is_none() && one.how.is_compared())
        .map(|one| one.column)
        .collect();
    let has_index = |scan: &Thing<'_>| {
        let mut all = case.at("plan_index", &planned.time.node);
        all.any(|index| {
            let first = index.lines.word("columns").split("; ").next().unwrap_or_default();
            is_of(&index, planned, scan.lines.word("relation"))
                && compared.iter().any(|column| column == first)
        })
    };
    planned.nodes.iter().any(|node| node.lines.word("kind") == "Seq Scan" && has_index(node))
}

/// Whether many rows are fetched by an index.
fn fetches_many(planned: &Planned<'_>) -> bool {
    let mut by_index = planned
        .nodes
        .iter()
        .filter(|node| ["Index Scan", "Bitmap Heap Scan"].contains(&node.lines.word("kind")));
    by_index.any(|node| number(node, "rows_planned") >= FETCHED_MIN)
}

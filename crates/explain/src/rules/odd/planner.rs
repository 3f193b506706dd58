//! Settings whose price is planning, compilation, or the beginning of a session.

use super::{Cost, Odd, SHARE_MIN, Setting, below, is_off};
use crate::case::Case;
use crate::node_time;
use crate::rules::costly::{in_a_line, lowered};
use crate::rules::statement::{compiled_share, joined_tables, planning_share};
use crate::units;
use record::finding::{NodeTime, StatementTime};

/// What a forbidden kind of step adds to a plan's cost before PostgreSQL 18 (`disable_cost` in `costsize.c`).
const DISABLE_COST: f64 = 1e10;
/// Tables of a statement from which on trying all orders is long.
const TABLES_MIN: usize = 9;
/// Sessions opened a second.
const OPENED_PER_S_MIN: f64 = 5.0;
/// Far below the default of jit_above_cost, 100000.
const JIT_COST_MAX: f64 = 20_000.0;

const ALL_ORDERS: &str = "the planner tries every order in which so many tables can be joined, which takes it longer with each table";
const DEFAULT_ORDERS: &str = "set it back to its default of 8; one report that needs it gets it for its own transaction (SET LOCAL), and is prepared once";
const FORBIDDEN: &str = "a plan that needs such a step all the same counts as one of ten thousand millions, so that it is compiled (jit_above_cost)";
const ALLOW: &str =
    "switch it on again; a statement that needs it gets it for its own transaction (SET LOCAL)";

const fn forbids(name: &'static str, cost: fn(&Case, &NodeTime, Setting<'_>) -> Option<Cost>) -> Odd {
    Odd { name, is_odd: is_off, cost, what: FORBIDDEN, text: ALLOW, restarts: false }
}

const fn preloads(name: &'static str) -> Odd {
    Odd {
        name,
        is_odd: |value| !value.is_empty(),
        cost: opened,
        what: "each new session loads these libraries before its first statement",
        text: "load them once, when the server starts (shared_preload_libraries), and keep sessions open (a pool)",
        restarts: false,
    }
}

pub(super) const ODD: [Odd; 14] = [
    Odd {
        name: "join_collapse_limit",
        is_odd: |value| !below(value, 12.0),
        cost: |case, time, setting| {
            tries_all_orders(case, time, setting, |text| text.matches(" join ").count() + 1)
        },
        what: ALL_ORDERS,
        text: DEFAULT_ORDERS,
        restarts: false,
    },
    Odd {
        name: "from_collapse_limit",
        is_odd: |value| !below(value, 12.0),
        cost: |case, time, setting| {
            tries_all_orders(
                case,
                time,
                setting,
                |text| if text.contains("(select ") { usize::MAX } else { 0 },
            )
        },
        what: ALL_ORDERS,
        text: DEFAULT_ORDERS,
        restarts: false,
    },
    Odd {
        name: "geqo",
        is_odd: is_off,
        cost: beyond_the_threshold,
        what: ALL_ORDERS,
        text: "switch it on again: from geqo_threshold tables on it looks for a good order without trying all",
        restarts: false,
    },
    forbids("enable_seqscan", |case, time, setting| compiled_for_its_price(case, time, setting, "Seq Scan")),
    forbids("enable_indexscan", |case, time, setting| {
        compiled_for_its_price(case, time, setting, "Index Scan")
    }),
    forbids("enable_bitmapscan", |case, time, setting| {
        compiled_for_its_price(case, time, setting, "Bitmap Heap Scan")
    }),
    forbids("enable_nestloop", |case, time, setting| {
        compiled_for_its_price(case, time, setting, "Nested Loop")
    }),
    forbids("enable_hashjoin", |case, time, setting| {
        compiled_for_its_price(case, time, setting, "Hash Join")
    }),
    forbids("enable_mergejoin", |case, time, setting| {
        compiled_for_its_price(case, time, setting, "Merge Join")
    }),
    forbids("enable_sort", |case, time, setting| compiled_for_its_price(case, time, setting, "Sort")),
    Odd {
        name: "jit_above_cost",
        is_odd: |value| below(value, JIT_COST_MAX),
        cost: compiled,
        what: "short statements are compiled, which takes longer than to run them",
        text: "set it back to its default of 100000, or switch jit off",
        restarts: false,
    },
    preloads("session_preload_libraries"),
    preloads("local_preload_libraries"),
    Odd {
        name: "backend_flush_after",
        is_odd: |value| !below(value, 1.0),
        cost: flushed,
        what: "sessions make the system write their pages at once, and wait for it",
        text: "set it back to its default of 0: checkpointer and background writer flush what they write",
        restarts: false,
    },
];

fn of_statement(share: f64, statement: &StatementTime, figure: (&'static str, f64), what: &str) -> Cost {
    Cost {
        share: Some(share),
        unknown: None,
        figure,
        evidence: format!(
            "{} of the session time is {what}: {}",
            units::percent(share),
            in_a_line(statement)
        ),
    }
}

/// The share of the session time that is planning, with the worst statement, if a value is for it.
fn planning_of(case: &Case, time: &NodeTime, setting: Setting<'_>) -> Option<(f64, StatementTime)> {
    planning_share(case, time)
        .filter(|(share, worst)| *share >= SHARE_MIN && setting.is_for(case, time, worst))
}

/// Planning takes the time, or ANALYZE does: nothing else reads so many values.
pub(super) fn of_statistics(case: &Case, time: &NodeTime, setting: Setting<'_>) -> Option<Cost> {
    let of_planning = planning_of(case, time, setting).map(|(share, worst)| {
        of_statement(share, &worst, ("share_planning", share), "planning, most of it of a statement")
    });
    let of_analyze = || {
        let mut large = time.statements.iter().filter(|one| one.share >= SHARE_MIN);
        let analyze = large.find(|one| {
            let text = lowered(&one.text);
            let is_it = text.starts_with("analyze") || text.starts_with("vacuum") && text.contains("analyze");
            is_it && setting.is_for(case, time, one)
        })?;
        Some(of_statement(analyze.share, analyze, ("share_analyze", analyze.share), "ANALYZE"))
    };
    of_planning.or_else(of_analyze)
}

/// Tables that the recorded plan of a statement reads, each as often as it is joined.
fn planned_tables(case: &Case, time: &NodeTime, statement: &StatementTime) -> usize {
    let nodes =
        case.at("plan_node", &time.node).filter(|node| node.lines.word("query_id") == statement.query_id);
    let mut aliases: Vec<&str> =
        nodes.map(|node| node.lines.word("alias")).filter(|alias| !alias.is_empty()).collect();
    aliases.sort_unstable();
    aliases.dedup();
    aliases.len()
}

/// A statement over many tables is planned for longer than it runs. `bound`: how many of them the setting lets be joined in any order.
fn tries_all_orders(
    case: &Case,
    time: &NodeTime,
    setting: Setting<'_>,
    bound: fn(&str) -> usize,
) -> Option<Cost> {
    let (share, statement) = planning_of(case, time, setting)?;
    let (written, planned) = (joined_tables(&statement.text), planned_tables(case, time, &statement));
    // A view brings tables that the text does not name.
    let tables = match planned > written {
        true => planned,
        false => written.min(bound(&lowered(&statement.text))),
    };
    let what = format!("planning, most of it of a statement over {tables} tables");
    (tables >= TABLES_MIN).then(|| of_statement(share, &statement, ("tables", tables as f64), &what))
}

/// With geqo on, from this many tables on not all orders are tried (`geqo_threshold`).
fn beyond_the_threshold(case: &Case, time: &NodeTime, setting: Setting<'_>) -> Option<Cost> {
    let threshold = case
        .setting(&time.node, "geqo_threshold")
        .and_then(|value| value.parse::<f64>().ok())
        .unwrap_or(12.0);
    tries_all_orders(case, time, setting, |_| usize::MAX).filter(|cost| cost.figure.1 >= threshold)
}

/// A statement is compiled whose plan has a cost that only a forbidden step has.
fn compiled_for_its_price(case: &Case, time: &NodeTime, setting: Setting<'_>, kind: &str) -> Option<Cost> {
    let has = |id: &str| {
        let mut nodes = case.at("plan_node", &time.node).filter(|node| node.lines.word("query_id") == id);
        nodes.any(|node| node.lines.word("kind") == kind)
    };
    let mut plans = case.at("plan", &time.node).filter_map(|plan| {
        let cost = plan.lines.last("cost_total").filter(|cost| *cost >= DISABLE_COST)?;
        let id = plan.lines.word("query_id");
        let statement = time
            .statements
            .iter()
            .find(|one| one.query_id == id && has(id) && setting.is_for(case, time, one))?;
        Some((compiled_share(statement), statement, cost))
    });
    let (share, statement, cost) = plans.find(|(share, ..)| *share >= SHARE_MIN)?;
    let what = format!("compilation of a statement whose plan costs {}", units::short(cost));
    Some(of_statement(share, statement, ("cost", cost), &what))
}

/// Statements are compiled for longer than they run.
pub(super) fn compiled(case: &Case, time: &NodeTime, setting: Setting<'_>) -> Option<Cost> {
    let its = time.statements.iter().filter(|statement| setting.is_for(case, time, statement));
    let each = its.map(|statement| (compiled_share(statement), statement));
    let (share, statement) = each.max_by(|left, right| left.0.total_cmp(&right.0))?;
    (share >= SHARE_MIN)
        .then(|| of_statement(share, statement, ("share_compiled", share), "compilation of one statement"))
}

/// Sessions are opened all the time.
fn opened(case: &Case, time: &NodeTime, _: Setting<'_>) -> Option<Cost> {
    let rate = case.one("server", &time.node)?.rate("sessions_opened")?;
    (rate >= OPENED_PER_S_MIN).then(|| Cost {
        share: None,
        unknown: None,
        figure: ("sessions_opened_per_s", rate),
        evidence: format!("{} sessions are opened a second", units::short(rate)),
    })
}

/// Sessions wait for what they have made the system write.
fn flushed(case: &Case, time: &NodeTime, _: Setting<'_>) -> Option<Cost> {
    let share = node_time::share_waiting(case, &time.node, |_, event| event == "DataFileFlush")?;
    (share >= SHARE_MIN).then(|| Cost {
        share: Some(share),
        unknown: None,
        figure: ("share_waiting", share),
        evidence: format!("{} of the session time waits for DataFileFlush", units::percent(share)),
    })
}

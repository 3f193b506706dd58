//! What a plan does not show by its scans: workers that cost more than they help, and work far above the planner's cost.

use super::tree::{is_correlated, run_as_planned};
use super::{Planned, SHARE_MIN, inputs, number, planned, severity, skew, statistics};
use crate::case::{Case, Thing};
use crate::node_time;
use crate::rule::{Answer, Claim};
use crate::rules::costly::{is_name_of, lowered};
use crate::rules::inside;
use crate::rules::profile;
use crate::rules::versions;
use crate::units;
use record::event;
use record::finding::{Level, Severity};
use record::statement::{self, Verb};
use record::watched::{FUNCTION_TEXT, Fact};
use std::collections::BTreeSet;

/// The share of the session time in starting workers, waiting for them, and their ends.
const WORKERS_SHARE_MIN: f64 = 0.25;
/// The default of parallel_setup_cost: what costs less in all is no work for several processes.
const PARALLEL_COST_MAX: f64 = 1_000.0;
/// Rows that a block holds at most, for a guess: of an index that is read without its table more.
const ROWS_PER_BLOCK_MAX: f64 = 500.0;
/// Blocks of an execution from which on they are compared with the cost.
const BLOCKS_MIN: f64 = 1_000.0;
/// Blocks for each unit of cost: reading one costs 1 in sequence, 4 at random.
const BLOCKS_PER_COST_MIN: f64 = 8.0;

/// Waits until parallel workers have started or ended, under their names of all releases.
pub(in crate::rules) fn is_for_workers(kind: &str, event: &str) -> bool {
    let event = event.to_ascii_lowercase();
    kind == "IPC"
        && (event.starts_with("executegather") || event.starts_with("bgworker") || event == "parallelfinish")
}

/// The share of the session time in waits for workers, where a statement that is short by its plan, or by what it touches, has a plan with workers.
fn short_in_parallel(case: &Case, planned: &Planned<'_>) -> Option<f64> {
    let is_gather = planned.nodes.iter().any(|node| node.lines.word("kind").starts_with("Gather"));
    let share = node_time::share_waiting(case, &planned.time.node, is_for_workers)?;
    let cost = planned.plan.lines.last("cost_total")?;
    let is_short = cost < PARALLEL_COST_MAX || less_than_planned(planned).is_some();
    (is_gather && is_short && share >= WORKERS_SHARE_MIN).then_some(share)
}

/// The step of a plan that expects far more rows than its executions can read, by the blocks that they touch.
fn less_than_planned<'a>(planned: &'a Planned<'_>) -> Option<&'a Thing<'a>> {
    let blocks = planned.statement.blocks?;
    let rows = |node: &Thing<'_>| node.lines.last("rows_planned").unwrap_or(0.0);
    let tables = planned.nodes.iter().filter(|node| !node.lines.word("relation").is_empty());
    let largest = tables.max_by(|left, right| rows(left).total_cmp(&rows(right)))?;
    // An entry of an index finds its row in a block of its own, and rows that lie together share blocks.
    let is_short =
        blocks * BLOCKS_PER_COST_MIN < PARALLEL_COST_MAX && rows(largest) >= blocks * ROWS_PER_BLOCK_MAX;
    is_short.then_some(largest)
}

/// The role whose session sent a statement first.
fn role_of<'a>(case: &'a Case, planned: &Planned<'_>) -> Option<&'a str> {
    let mut texts = case.events_of(event::QUERY);
    let first = texts.find(|event| Case::word_of(event, "query_id") == planned.statement.query_id)?;
    Some(Case::word_of(first, "user")).filter(|user| !user.is_empty())
}

/// Workers of a plan that was made for all values: the statement asks for those that few rows have.
fn for_few(case: &Case, planned: &Planned<'_>, share: f64, node: &Thing<'_>) -> Claim {
    let relation = node.lines.word("relation");
    let blocks = units::short(planned.statement.blocks.unwrap_or(0.0));
    let expected = units::count(node.lines.last("rows_planned").unwrap_or(0.0));
    let text = format!(
        "a statement that touches {blocks} blocks starts parallel workers, as its plan expects {expected} rows of {relation}: {} of the session time is \
         starting workers and waiting for them",
        units::percent(share)
    );
    let most = node.lines.word("column_most");
    // The same value with its name again would be no evidence of another plan.
    let is_for_all = node.lines.word("condition").contains('$') || node.lines.word("filter").contains('$');
    let role = role_of(case, planned).map_or("name".to_string(), statement::quoted);
    let custom = format!("ALTER ROLE {role} SET plan_cache_mode = 'force_custom_plan';");
    let analyze = format!("ANALYZE {relation};");
    let claim = planned
        .claim(case, Level::DiscriminatingCounter, severity(share), text)
        .number("share", share)
        .number("workers_share", share)
        .number("blocks_per_call", planned.statement.blocks.unwrap_or(0.0))
        .because(planned.file())
        .with((!most.is_empty()).then_some(()), |claim, ()| {
            claim.because(format!("the most frequent value of a column, and its share of the rows: {most}"))
        })
        .not("a table that is too large for one process: an execution touches few blocks");
    if is_for_all {
        claim.remedy(
            "let the server plan for the values that are given: after five executions of a prepared statement it takes one plan for all values (a generic \
             plan) where that seems no dearer; or turn workers off for that role",
            &[&custom],
        )
    } else {
        claim.remedy("analyse the table: the planner takes a rare value for a frequent one", &[&analyze])
    }
}

pub(super) fn parallel(case: &Case) -> Answer {
    let mut claims = vec![];
    for planned in planned(case, SHARE_MIN) {
        let Some(share) = short_in_parallel(case, &planned) else { continue };
        let cost = planned.plan.lines.last("cost_total").unwrap_or(0.0);
        if let Some(node) = less_than_planned(&planned).filter(|_| cost >= PARALLEL_COST_MAX) {
            claims.push(for_few(case, &planned, share, node));
            continue;
        }
        let text = format!(
            "a short statement starts parallel workers: {} of the session time is starting them and waiting for them",
            units::percent(share)
        );
        claims.push(
            planned
                .claim(case, Level::DiscriminatingCounter, severity(share), text)
                .number("share", share)
                .number("workers_share", share)
                .because(format!(
                    "the planner's cost of the statement is {}; by default a plan with workers costs {} more",
                    units::short(cost),
                    units::short(PARALLEL_COST_MAX)
                ))
                .because(planned.file())
                .not("a table that is too large for one process: its scan is cheaper than the start of a worker")
                .remedy(
                    "give back the costs of parallel plans their defaults, or turn such plans off for the role that runs short statements",
                    &[
                        "ALTER SYSTEM SET parallel_setup_cost = 1000; ALTER SYSTEM SET parallel_tuple_cost = 0.1; ALTER SYSTEM SET \
                            min_parallel_table_scan_size = '8MB'; SELECT pg_reload_conf();",
                        "SELECT name, setting, reset_val, source FROM pg_settings WHERE name ~ 'parallel' AND source <> 'default';",
                        "SET max_parallel_workers_per_gather = 0; -- in the session that runs it",
                    ],
                ),
        );
    }
    Answer::of(claims, || "waits for parallel workers, against the costs of plans".to_string())
}

/// Bytes of a row with its large values.
const ROW_BYTES_MIN: f64 = 4_096.0;

/// A table of the plan whose rows are mostly large values, and the bytes of each.
fn large_values<'a>(case: &'a Case, planned: &Planned<'a>) -> Option<(&'a str, f64)> {
    let of_plan = |relation: &str| planned.nodes.iter().any(|node| node.lines.word("relation") == relation);
    let tables =
        case.at("table", planned.time.node.as_str()).filter(|table| of_plan(table.lines.word("relation")));
    let sized = tables.filter_map(|table| {
        // Dead rows take their room, too.
        let rows = table.lines.last("live_rows").filter(|rows| *rows >= 1.0)?;
        let rows = rows + table.lines.last("dead_rows").unwrap_or(0.0);
        Some((table.lines.word("relation"), table.lines.last("bytes")? / rows))
    });
    sized.filter(|(_, each)| *each >= ROW_BYTES_MIN).max_by(|left, right| left.1.total_cmp(&right.1))
}

/// Whether executions touch far more blocks than the plan's cost allows.
pub(in crate::rules) fn does_more(case: &Case, planned: &Planned<'_>) -> bool {
    let (blocks, cost) = (planned.statement.blocks, planned.plan.lines.last("cost_total"));
    blocks.zip(cost).is_some_and(|(blocks, cost)| {
        blocks >= BLOCKS_MIN
            && blocks >= cost * BLOCKS_PER_COST_MIN
            && blocks > fetched_by_index(planned) * BLOCKS_PER_FETCH + written(case, planned)
    })
}

/// Blocks that a changed row touches: itself, its new version, and an entry of each index, found from the root; with this many indexes at least.
const BLOCKS_PER_ENTRY: f64 = 4.0;
const INDEXES_MIN: f64 = 3.0;

/// Blocks that the rows which an execution writes are worth: the cost of a plan does not have them.
fn written(case: &Case, planned: &Planned<'_>) -> f64 {
    let Ok(parsed) = statement::parse(&planned.statement.text) else { return 0.0 };
    if !matches!(parsed.verb, Verb::Insert | Verb::Update | Verb::Delete | Verb::Merge) {
        return 0.0;
    }
    let its = |table: &Thing<'_>| {
        parsed.tables.first().is_some_and(|name| is_name_of(name, table.lines.word("relation")))
    };
    let table = case.at("table", &planned.time.node).find(its);
    let indexes = table.and_then(|table| table.lines.last("indexes")).unwrap_or(0.0).max(INDEXES_MIN);
    planned.statement.rows.unwrap_or(0.0) * (indexes + 1.0) * BLOCKS_PER_ENTRY
}

/// Whether the recorded plan is that of a statement inside of a function that does other work as well, while what was counted is that of the whole call.
fn is_part_of_function(case: &Case, planned: &Planned<'_>) -> bool {
    let function = planned.plan.lines.word("function");
    let mut texts =
        case.facts(FUNCTION_TEXT).filter(|fact| fact.node == planned.time.node && fact.name == function);
    let does_more = |fact: &Fact| {
        let text = lowered(&fact.value);
        [" loop ", "insert into ", " update ", "delete from ", " perform ", " execute "]
            .iter()
            .any(|word| text.contains(word))
    };
    !function.is_empty() && !planned.statement.outer.is_empty() && texts.any(does_more)
}

/// Whether a plan has a loop that may run its inner side more than once, or a subquery that is run for each row: not one over the single result of a function
/// or an aggregate, as of `FROM plainto_tsquery(...) AS query`.
fn repeats(planned: &Planned<'_>) -> bool {
    let is_single = |outer: &Thing<'_>| match outer.lines.word("kind") {
        "Function Scan" | "Result" => number(outer, "rows_planned") <= 1.0,
        "Aggregate" => outer.lines.word("condition").is_empty(),
        _ => false,
    };
    let mut loops = planned.nodes.iter().filter(|node| node.lines.word("kind") == "Nested Loop");
    let mut subqueries = planned.nodes.iter().filter(|node| node.lines.flag("subquery") == Some(true));
    loops.any(|node| !inputs(planned, node).next().is_some_and(|outer| is_single(&outer)))
        || subqueries.any(|top| is_correlated(planned, top))
}

/// Rows that executions fetch by indexes where no loop repeats a search, by the counters, or by how many rows the most frequent value has: of it they are
/// many more than of the average one, for which the plan is.
fn fetched(case: &Case, planned: &Planned<'_>) -> f64 {
    let calls = planned.statement.calls_per_s.unwrap_or(0.0);
    let has_loop = repeats(planned);
    let relations: BTreeSet<&str> = planned.nodes.iter().map(|node| node.lines.word("relation")).collect();
    let tables =
        case.at("table", &planned.time.node).filter(|table| relations.contains(table.lines.word("relation")));
    let rows: f64 = tables.filter_map(|table| table.lines.rate("index_rows")).sum();
    let of_frequent = planned.nodes.iter().filter_map(|node| {
        let (_, share) = skew::most_frequent(planned, node.lines.word("relation"))?;
        Some(share * node.lines.last("table_rows")?)
    });
    let of_frequent = of_frequent.fold(0.0, f64::max);
    if has_loop || calls <= 0.0 { 0.0 } else { (rows / calls).max(of_frequent) }
}

/// Blocks for each row that an index scan fetches: one of the table, and a part of one of the index.
const BLOCKS_PER_FETCH: f64 = 1.5;

/// Rows that the plan itself expects to fetch by indexes, each from a block of the table: they are cheap where the planner expects that block to be in memory.
/// What a nested loop repeats is left out, because how often is what a plan errs about.
fn fetched_by_index(planned: &Planned<'_>) -> f64 {
    let is_fetch = |node: &&Thing<'_>| {
        node.lines.word("kind") == "Index Scan" && !planned.above(node).contains(&"Nested Loop")
    };
    planned.nodes.iter().filter(is_fetch).filter_map(|node| node.lines.last("rows_planned")).sum()
}

/// Searches of one table's indexes for each execution, from which on a plan without a loop is not the one that runs.
const SEARCHES_MIN: f64 = 100.0;
/// The share of the session time of the statement that such searches are taken to be of, and searches for each execution of all others.
const SEARCHING_SHARE_MIN: f64 = 0.5;
const SEARCHES_PER_OTHER_MIN: f64 = 10.0;

/// A table whose indexes executions search again and again, although the plan has no loop, and how often. The plan is made without values; with values for
/// which it expects a single row the planner takes a loop.
pub(in crate::rules) fn searched_again<'a>(case: &Case, planned: &Planned<'a>) -> Option<(&'a str, f64)> {
    let statement = planned.statement;
    let has_loop = repeats(planned);
    let calls = statement.calls_per_s.filter(|calls| *calls > 0.0)?;
    if has_loop || statement.share < SEARCHING_SHARE_MIN || statement.blocks.unwrap_or(0.0) < BLOCKS_MIN {
        return None;
    }
    // Short statements, which hardly take time, may be those that search.
    let counted = case.at("statement", &planned.time.node).filter_map(|one| one.lines.rate("calls"));
    let others = (counted.sum::<f64>() - calls).max(0.0);
    let relations: BTreeSet<&str> = planned.nodes.iter().map(|node| node.lines.word("relation")).collect();
    let searches = |relation: &&'a str| {
        let mut tables = case.at("table", &planned.time.node);
        let table = tables.find(|table| table.lines.word("relation") == *relation)?;
        let scans = table.lines.rate("index_scans")?;
        (scans >= calls * SEARCHES_MIN && scans >= others * SEARCHES_PER_OTHER_MIN)
            .then_some((*relation, scans / calls))
    };
    relations.iter().filter_map(searches).max_by(|left, right| left.1.total_cmp(&right.1))
}

/// The rows that the joins of a plan expect at most: a loop that searches less often was chosen for as few rows as there are.
fn joined_rows(planned: &Planned<'_>) -> f64 {
    let joins = planned.nodes.iter().filter(|node| node.lines.word("kind").ends_with("Join"));
    joins.map(|node| number(node, "rows_planned")).fold(0.0, f64::max)
}

/// PLAN-24 where the plan without values has no loop, and the one that runs has.
fn of_values(case: &Case, planned: &Planned<'_>, (relation, times): (&str, f64)) -> Claim {
    let text = format!(
        "a statement that takes {} of the session time searches the indexes of {relation} {} times per execution, which its plan without values does not: \
         with the values that it gets, the planner expects few rows, takes a loop, and there are many",
        planned.share(),
        units::short(times)
    );
    let commands = statistics(planned);
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    planned
        .claim(case, Level::CoOccurrence, severity(planned.statement.share), text)
        .number("searches_per_call", times)
        .because(format!("{} blocks per execution", units::short(planned.statement.blocks.unwrap_or(0.0))))
        .because(planned.file())
        .lacking("which values: EXPLAIN (ANALYZE, BUFFERS) with those of the application shows where the estimate goes wrong")
        .remedy(
            "rows that came after the last ANALYZE have values that the planner does not know, and it expects one row of each: analyse the tables, after each \
             load as well, and let autovacuum do it; conditions on columns that depend on each other need extended statistics",
            &commands,
        )
}

/// The number of a claim about a function that is called for each row.
pub(crate) const FOR_EACH_ROW: &str = "function_for_each_row";

pub(super) fn more_than_planned(case: &Case) -> Answer {
    let mut claims = vec![];
    for planned in planned(case, SHARE_MIN) {
        let (Some(blocks), Some(cost)) = (planned.statement.blocks, planned.plan.lines.last("cost_total"))
        else {
            continue;
        };
        let is_other = is_of_others(case, &planned);
        let again = searched_again(case, &planned).filter(|(_, times)| *times > joined_rows(&planned));
        if let Some(again) = again.filter(|_| !is_other && !super::is_limited(&planned)) {
            claims.push(of_values(case, &planned, again));
            continue;
        }
        // With LIMIT it is a walk of an index until enough rows fit (PLAN-27).
        let sorts = planned.nodes.iter().any(|node| node.lines.word("kind").ends_with("Sort"));
        let function = called_for_rows(case, &planned);
        // With a function that reads a block or more for each row, the planner's cost of a call does not matter.
        let is_called = function.is_some_and(|(_, rows)| rows >= BLOCKS_MIN && blocks >= rows);
        let is_more = does_more(case, &planned) || is_called;
        if !is_more
            || is_part_of_function(case, &planned)
            || super::is_limited(&planned) && !sorts
            || is_other
        {
            continue;
        }
        let is_loop = repeats(&planned) && !run_as_planned(case, &planned);
        let large = large_values(case, &planned);
        let work = profile::work_of(case, planned.time, planned.statement)
            .filter(|_| function.is_none() && large.is_none());
        // The rows of a batch that a trigger goes through one by one are no error of its plan (TXN-18); and where samples of its processor time show what
        // it computes, its blocks show nothing about hidden work.
        let is_known =
            versions::is_updated_again(case, planned.time, planned.statement) || work.is_some() && !is_loop;
        if is_known || blocks <= fetched(case, &planned) * BLOCKS_PER_FETCH {
            continue;
        }
        let why = why_it_is(&planned, function, is_loop, large.as_ref());
        let text = format!(
            "a statement that takes {} of the session time touches {} blocks per execution, and its plan costs only {}: {why}",
            planned.share(),
            units::short(blocks),
            units::short(cost)
        );
        let claim = planned
            .claim(case, Level::CoOccurrence, severity(planned.statement.share), text)
            .number("blocks_per_call", blocks)
            .because(planned.file())
            .because("the planner counts at least 1 for a block that it expects to read")
            .with(function, |claim, _| claim.number(FOR_EACH_ROW, 1.0))
            .with(work, beside_work);
        claims.push(match is_loop && function.is_none() {
            true => of_loop(claim, &planned),
            false if large.is_some() => claim
                .because("the planner's costs leave out the pieces of large values, which lie in a table of their own")
                .remedy(
                    "keep what conditions and results need in columns of their own (a generated column, with an index if it is searched), apart from the \
                        large value",
                    &[],
                ),
            false => of_function(case, claim, &planned),
        });
    }
    Answer::of(claims, || "blocks of executions, against the costs of their plans".to_string())
}

/// Why executions do more than their plan expects.
fn why_it_is(
    planned: &Planned<'_>,
    function: Option<(&str, f64)>,
    is_loop: bool,
    large: Option<&(&str, f64)>,
) -> String {
    match function {
        Some((name, rows)) => {
            format!(
                "function {name}() is called for each of {} rows, and reads tables each time",
                units::count(rows)
            )
        }
        None => why_beyond(planned, is_loop, large),
    }
}

/// A claim by blocks, beside samples of the processor time that show another kind of work.
fn beside_work(claim: Claim, work: &str) -> Claim {
    claim.at_most(Severity::Low).because(format!("samples of its processor time: it mostly {work}"))
}

/// Whether another rule explains what executions do beyond their plan.
fn is_of_others(case: &Case, planned: &Planned<'_>) -> bool {
    // A view that is computed as a whole before a condition is applied is PLAN-32.
    let is_late = planned.filter_of("Subquery Scan").is_some();
    // What writing costs, no plan shows.
    let is_insert = statement::parse(&planned.statement.text).is_ok_and(|parsed| parsed.verb == Verb::Insert);
    is_late || is_insert || planned.is_of_one_constant() || super::is_explained(case, planned)
}

/// Why executions do more than their plan expects, where no function does it.
fn why_beyond(planned: &Planned<'_>, is_loop: bool, large: Option<&(&str, f64)>) -> String {
    let why = why_more(planned, is_loop, large);
    match is_loop && has_unknown_range(planned) {
        true => format!("{why}: {UNKNOWN_RANGES}"),
        false => why,
    }
}

/// What to do about a loop that runs too often.
fn of_loop(claim: Claim, planned: &Planned<'_>) -> Claim {
    if let Some(skewed) = skew::joined(planned) {
        return claim
            .because(skewed.against_plan())
            .lacking("which value the other table gives: EXPLAIN (ANALYZE, BUFFERS) with real values shows where the estimate goes wrong")
            .remedy(
                "look the key up first, and send the statement with it as a constant: then the planner knows how frequent that value is. Statistics do not \
                    help, \
                 as they know nothing of which value a join meets; while it is written as a join, let this statement do without nested loops",
                &["SET LOCAL enable_nestloop = off; -- in the transaction of this statement only"],
            );
    }
    if let Some(skewed) = skew::of_parameter(planned) {
        return claim
            .because(skewed.against_plan())
            .lacking("how often that value is sent: pg_stat_statements has one entry for all values")
            .remedy(
                "let the planner see the value: custom plans for the role of this application (planning is then paid for at each execution), or a statement \
                    that is not prepared for the few large values",
                &[CUSTOM_PLANS],
            );
    }
    let commands = statistics(planned);
    let mut commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    if has_unknown_range(planned) {
        commands.insert(0, CUSTOM_PLANS);
    }
    claim
        .lacking("rows of the join: EXPLAIN (ANALYZE, BUFFERS) with real values shows where the estimate goes wrong")
        .remedy(
            "conditions on columns that depend on each other are taken as independent: create extended statistics for them, then analyse",
            &commands,
        )
}

/// What to do about work that no node of the plan shows.
fn of_function(case: &Case, claim: Claim, planned: &Planned<'_>) -> Claim {
    claim
        .not("a scan: the plan has it, and its cost is known")
        .with(inside::costliest(case, planned.time), |claim, (function, share)| {
            claim.because(format!(
                "pg_stat_user_functions: {} of the session time is in function {function} itself",
                units::percent(share)
            ))
        })
        .lacking("which function or policy: track_functions = 'pl' counts calls and their time in pg_stat_user_functions")
        .remedy(
            "look for a function that reads tables for each row, a policy of row-level security (the role of watch may bypass it) or a trigger: \
                write it as a join or subquery, which is evaluated once",
            &[
                "SELECT schemaname, tablename, policyname, qual FROM pg_policies;",
                "ALTER SYSTEM SET track_functions = 'pl'; SELECT pg_reload_conf(); -- then look at pg_stat_user_functions",
            ],
        )
}

/// A function of users that a node of the plan evaluates for each of its rows: its name, which EXPLAIN (VERBOSE) writes with the schema unless that is in the
/// `search_path`, and the rows.
fn called_for_rows<'a>(case: &Case, planned: &Planned<'a>) -> Option<(&'a str, f64)> {
    let is_name = |c: char| c.is_alphanumeric() || "_.\"".contains(c);
    let is_recorded = |name: &str| {
        case.facts(FUNCTION_TEXT)
            .any(|fact| fact.node == planned.time.node && fact.name == name.trim_matches('"'))
    };
    let name = |text: &'a str| {
        let mut calls = text.match_indices('(').filter_map(|(at, _)| {
            let begin = text[..at].rfind(|c| !is_name(c)).map_or(0, |before| before + 1);
            Some(&text[begin..at])
                .filter(|name| name.contains('.') && !name.starts_with('.') || is_recorded(name))
        });
        calls.next()
    };
    let of_node = |node: &crate::case::Thing<'a>| {
        let lines = node.lines;
        // A function in FROM is called once, and returns the rows.
        if lines.word("kind") == "Function Scan" {
            return None;
        }
        let found = name(lines.word("condition")).or_else(|| name(lines.word("filter")))?;
        Some((found, lines.last("rows_planned")?.max(lines.last("table_rows").unwrap_or(0.0))))
    };
    planned.nodes.iter().filter_map(of_node).find(|(_, rows)| *rows >= ROWS_CALLED_MIN)
}

/// Rows from which on calls of a function are many.
const ROWS_CALLED_MIN: f64 = 100.0;

/// Makes a plan for the values of each execution.
const CUSTOM_PLANS: &str =
    "ALTER ROLE name SET plan_cache_mode = 'force_custom_plan'; -- for the role of the application";

/// What is wrong with a plan for any parameters.
const UNKNOWN_RANGES: &str = "a generic plan, as a prepared statement has it from its sixth execution on, takes each range between parameters for \
    0.5 % of the rows";

/// Whether conditions of the plan are ranges between parameters, of which the planner knows nothing without values.
fn has_unknown_range(planned: &Planned<'_>) -> bool {
    let is_range = |text: &str| {
        [">= $", "> $", "<= $", "< $"].iter().map(|sign| text.matches(sign).count()).sum::<usize>() >= 2
    };
    planned
        .nodes
        .iter()
        .any(|node| is_range(node.lines.word("filter")) || is_range(node.lines.word("condition")))
}

/// Why a statement touches more blocks than its plan shows, as the end of a sentence.
fn why_more(planned: &Planned<'_>, is_loop: bool, large: Option<&(&str, f64)>) -> String {
    let together = compared_together(planned).map_or(String::new(), |(relation, columns)| {
        format!(
            ", as the conditions on {} of {relation} are taken as independent of each other (extended statistics would show whether they depend on each other)",
            columns.join(", ")
        )
    });
    match large {
        _ if is_loop => match (skew::joined(planned), skew::of_parameter(planned)) {
            (Some(skewed), _) => format!(
                "its nested loop runs far more often than expected, as {}, and a join takes an average one for it",
                skewed.words()
            ),
            (None, Some(skewed)) => format!(
                "its nested loop runs far more often than expected, as {}, and a generic plan, as a prepared statement has it from its sixth execution on, \
                 takes an average one for it",
                skewed.words()
            ),
            (None, None) => format!("its nested loop runs far more often than expected{together}"),
        },
        Some((relation, each)) => {
            format!(
                "it fetches and unpacks large values (TOAST) of {relation}, {} for each row",
                units::bytes(*each)
            )
        }
        None => "it does work that its plan does not show".to_string(),
    }
}

/// Columns of one table that are compared with values, two or more.
pub(super) fn compared_together<'a>(planned: &Planned<'a>) -> Option<(&'a str, Vec<String>)> {
    let found = planned.nodes.iter().filter_map(|node| {
        let texts = [node.lines.word("filter"), node.lines.word("condition")];
        let conditions = texts.into_iter().flat_map(|text| statement::conditions(text).unwrap_or_default());
        let mut columns: Vec<String> = conditions
            .filter(|condition| condition.how == statement::Use::Equality && condition.inside.is_none())
            .map(|condition| condition.column)
            .collect();
        columns.dedup();
        let relation = planned.relation_of(node);
        (columns.len() > 1 && !relation.is_empty()).then_some((relation, columns))
    });
    found.max_by_key(|(_, columns)| columns.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_for_workers_are_known_by_their_names_of_all_releases() {
        assert!(is_for_workers("IPC", "BgWorkerShutdown") && is_for_workers("IPC", "BgworkerShutdown"));
        assert!(is_for_workers("IPC", "ExecuteGather") && !is_for_workers("IPC", "SyncRep"));
    }
}

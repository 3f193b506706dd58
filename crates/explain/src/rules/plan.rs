//! PLAN-10 to PLAN-28: what the server's plans show of the statements that take the time of a node, and what a change would make of them. The
//! plans are made by `watch` without running the statements (docs/watch.md); what the planner expects is compared with what `pg_stat_statements` counted.

mod anew;
mod aside;
mod collation;
mod computed;
mod covering;
mod declared;
mod distance;
mod each;
mod first;
mod fit;
mod function;
mod guessed;
mod hidden;
mod index;
mod listed;
mod loops;
mod narrow;
mod order;
mod otherwise;
mod pattern;
mod refuted;
mod rows;
mod scope;
mod sent;
mod settings;
mod several;
mod skew;
mod skip;
mod spill;
mod step;
mod surplus;
mod tree;
mod unserved;
mod unusable;
mod wanted;
mod within;

use super::costly::{busy, in_a_line, large, lowered, scanned, scans, severity};
use super::paste::literal;
use crate::case::{Case, Thing};
use crate::rule::Need::{self, Any, Field, Looked};
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use record::finding::{Level, NodeTime, Severity, StatementTime};
use record::statement;

pub(super) use aside::is_explained;
pub(super) use first::is_explained as is_sorted_for_few;
pub(crate) use hidden::FOR_EACH_ROW;
pub(super) use hidden::{does_more, is_for_workers, searched_again};
pub(super) use index::{BYTES_PER_ENTRY, Proposal, is_of, proposal, with_proposal};
pub(super) use pattern::{Advice, of_text as pattern_of_text};
pub(super) use spill::work_mem_of;
pub(super) use tree::{below, inputs, number};
pub(super) use unserved::{Reason, reason as why_unserved};
pub(crate) use unusable::AMONG_PARTITIONS;
pub(super) use unusable::{is_obstructed, pattern_of};
pub(super) use wanted::{
    HOW_MANY_FIT, Wanted, is_in_doubt, is_unknown_by_text, needs_all, rows_wanted, wanted,
};
pub(crate) use wanted::{UNSURE, WHAT_IT_IS_FOR};

/// A plan is made only of a statement that was counted, or that sessions were seen at work with.
const NEEDS: &[Need] = &[Field("plan", "cost_total"), Field("server", "sessions_active")];
const USE_PLANS: &[&str] = &["https://www.postgresql.org/docs/current/using-explain.html"];

/// The rules about plans, by their modules.
pub(super) const ALL: [&[Rule]; 14] = [
    RULES,
    declared::RULES,
    guessed::RULES,
    narrow::RULES,
    order::RULES,
    surplus::RULES,
    fit::RULES,
    each::RULES,
    first::RULES,
    skip::RULES,
    anew::RULES,
    unserved::RULES,
    several::RULES,
    covering::RULES,
];

/// What a rule sees in a plan.
type Look = fn(&Case, &Planned<'_>) -> Option<Claim>;

/// Looks at the plan of each statement that takes its share of the time.
fn judge(case: &Case, look: Look, looked_at: &str) -> Answer {
    let claims = planned(case, SHARE_MIN).filter_map(|planned| look(case, &planned)).collect();
    Answer::of(claims, || looked_at.to_string())
}

const RULES: &[Rule] = &[
    Rule {
        id: "PLAN-10",
        title: "the plan scans a table for few of its rows",
        needs: NEEDS,
        limits: "10 % of the session time; a sequential scan of 1,000 rows or more with a condition that keeps a tenth of them or less, by the plan (ours)",
        judge: index::missing,
        links: &["https://www.postgresql.org/docs/current/indexes-multicolumn.html"],
    },
    Rule {
        id: "PLAN-11",
        title: "an index is there, but the condition cannot use it",
        needs: NEEDS,
        limits: "10 % of the session time; a scan of a table or of a whole index, of 1,000 rows or more, whose condition computes something from an \
            indexed column, leaves out the first column of an index, or is a pattern (LIKE) that the order of the index does not serve (ours)",
        judge: unusable::unusable,
        links: &["https://www.postgresql.org/docs/current/indexes-expressional.html"],
    },
    Rule {
        id: "PLAN-12",
        title: "the planner expects far more or fewer rows than there are",
        needs: NEEDS,
        limits: "10 % of the session time; a factor of 10 between the plan and the rows per execution, 1,000 rows or more (ours)",
        judge: misestimate,
        links: &["https://www.postgresql.org/docs/current/planner-stats.html"],
    },
    Rule {
        id: "PLAN-13",
        title: "a nested loop was chosen for far fewer rows than there are",
        needs: NEEDS,
        limits: "10 % of the session time; a nested loop that is expected to return a tenth of the rows of an execution or less, 1,000 rows or more (ours)",
        judge: loops::nested_loop,
        links: &["https://www.postgresql.org/docs/current/planner-stats.html"],
    },
    Rule {
        id: "PLAN-15",
        title: "partitions are not excluded",
        needs: NEEDS,
        limits: "10 % of the session time; 8 partitions or more are scanned by a statement with a condition, and none is left out when it runs (ours)",
        judge: partitions,
        links: &["https://www.postgresql.org/docs/current/ddl-partitioning.html#DDL-PARTITION-PRUNING"],
    },
    Rule {
        id: "PLAN-16",
        title: "a sort or hash table is larger than work_mem, by the plan",
        needs: NEEDS,
        limits: "5 % of the session time; rows x width of a sort above work_mem, of a hash table above twice work_mem; not if the statement \
            writes no temporary files, nor if PLAN-02 fires (ours)",
        judge: spill::spill,
        links: &["https://www.postgresql.org/docs/current/runtime-config-resource.html#GUC-WORK-MEM"],
    },
    Rule {
        id: "PLAN-17",
        title: "the planner's cost of a short statement is above the limit for just-in-time compilation",
        needs: NEEDS,
        limits: "5 % of the session time; cost above jit_above_cost, and compilation takes 30 % of an execution or more (ours)",
        judge: compiled,
        links: &["https://www.postgresql.org/docs/current/jit-decision.html"],
    },
    Rule {
        id: "PLAN-18",
        title: "a statement got another plan",
        needs: NEEDS,
        limits: "5 % of the session time in a statement whose plan has another shape at the end (ours)",
        judge: changed,
        links: USE_PLANS,
    },
    Rule {
        id: "PLAN-19",
        title: "another setting gives a cheaper plan",
        needs: &[Field("plan", "cost_total"), Field("what_if", "cost_before")],
        limits: "`watch --what-if`: half of the planner's cost or less (ours)",
        judge: settings::cheaper,
        links: &["https://www.postgresql.org/docs/current/runtime-config-query.html"],
    },
    Rule {
        id: "PLAN-20",
        title: "an index fits the condition, and the planner leaves it aside",
        needs: NEEDS,
        limits: "10 % of the session time; a scan that keeps a tenth of 1,000 rows or more, with a usable index, and a setting or a function call \
            that explains it (ours)",
        judge: aside::left_aside,
        links: &["https://www.postgresql.org/docs/current/xfunc-volatility.html"],
    },
    Rule {
        id: "PLAN-21",
        title: "sessions execute a statement by another plan than the one recorded",
        needs: &[Field("plan", "cost_total"), Field("statement", "calls"), Field("table", "seq_scans")],
        limits: "a statement as of PLAN-01 whose recorded plan uses an index of that table and expects fewer than 1,000 rows; or 10 % of the session time in \
            one whose plan scans a table of which only the indexes are read: then low, and no other rule uses that plan (ours)",
        judge: aside::unlike_the_plan,
        links: &["https://www.postgresql.org/docs/current/runtime-config-query.html"],
    },
    Rule {
        id: "PLAN-22",
        title: "OR connects conditions on two tables",
        needs: NEEDS,
        limits: "10 % of the session time; a join whose filter has OR between columns of two tables, of which 1,000 rows or more are scanned for a tenth \
            or less (ours)",
        judge: aside::or_of_tables,
        links: &["https://www.postgresql.org/docs/current/queries-union.html"],
    },
    Rule {
        id: "PLAN-23",
        title: "short statements start parallel workers",
        needs: NEEDS,
        limits: "25 % of the session time in starting workers and waiting for them, by a statement with a cost below 1,000; or that touches fewer than 125 \
            blocks, and a \
            five-hundredth of the rows that its plan expects (ours)",
        judge: hidden::parallel,
        links: &["https://www.postgresql.org/docs/current/when-can-parallel-query-be-used.html"],
    },
    Rule {
        id: "PLAN-24",
        title: "executions do far more than their plan expects",
        needs: NEEDS,
        limits: "10 % of the session time; 1,000 blocks or more per execution, 8 for each unit of the planner's cost; or 50 % in a statement whose plan \
            has no loop, with 100 searches of a table's indexes per execution (ours)",
        judge: hidden::more_than_planned,
        links: &["https://www.postgresql.org/docs/current/multivariate-statistics-examples.html"],
    },
    Rule {
        id: "PLAN-28",
        title: "each row is compared with the whole result of a subquery",
        needs: &[Any(&[Field("plan", "cost_total"), Looked("wait")]), Field("server", "sessions_active")],
        limits: "10 % of the session time; NOT IN, ANY or ALL with a subquery that is not hashed; without a plan, where the stacks show that a list is gone \
            through (ours)",
        judge: listed::not_in,
        links: &["https://www.postgresql.org/docs/current/functions-subquery.html"],
    },
    Rule {
        id: "PLAN-45",
        title: "one step has most of the cost of a statement's plan",
        needs: step::NEEDS,
        limits: "30 % of the session time in a statement of 1 ms or more; 40 % of its plan's cost is one step, and no other rule explains it; without such a \
            step 50 % in one of 5 ms; low, medium with 90 % of the time of one active session or more (ours)",
        judge: step::costliest_steps,
        links: USE_PLANS,
    },
    Rule {
        id: "PLAN-46",
        title: "a join reads a whole table, because its column has no index",
        needs: NEEDS,
        limits: "10 % of the session time; a sequential scan of 1,000 rows or more without a condition, for a join that expects a tenth of them or less (ours)",
        judge: step::unindexed_joins,
        links: &["https://www.postgresql.org/docs/current/indexes-intro.html"],
    },
    Rule {
        id: "PLAN-50",
        title: "what is computed from a column is searched, and no index holds it",
        needs: NEEDS,
        limits: "10 % of the session time; a sequential scan of 1,000 rows or more for a tenth of them or less, by a function, a cast or an operator on a \
         column, in a condition or a join (ours)",
        judge: computed::computed,
        links: &["https://www.postgresql.org/docs/current/indexes-expressional.html"],
    },
    Rule {
        id: "PLAN-48",
        title: "intervals are searched by their two ends",
        needs: NEEDS,
        limits: "10 % of the session time; a condition on two columns, one below and one above a value, or with the names of ends of an interval; 100 blocks, \
            ten for each row (ours)",
        judge: scope::intervals,
        links: &["https://www.postgresql.org/docs/current/rangetypes.html#RANGETYPES-INDEXING"],
    },
    Rule {
        id: "VAC-13",
        title: "an index cannot answer alone, because no vacuum marked the table's pages",
        needs: &[
            Field("plan", "cost_total"),
            Field("table", "all_visible_share"),
            Field("server", "sessions_active"),
        ],
        limits: "10 % of the session time; a plan that needs no column besides an index's; at most half of the table's pages visible to all; 100 blocks, ten \
            for each row (ours)",
        judge: scope::unmarked,
        links: &["https://www.postgresql.org/docs/current/indexes-index-only-scans.html"],
    },
];

/// The share of the session time of a statement whose plan is worth a finding.
const SHARE_MIN: f64 = 0.1;
/// The same for what is certain or cheap to change.
const SHARE_LOW: f64 = 0.05;
/// By how much an estimate is wrong.
const WRONG_FACTOR: f64 = 10.0;
/// Fewer rows than these are read quickly by any plan.
const ROWS_MIN: f64 = 1_000.0;
/// Partitions that are scanned.
const PARTITIONS_MIN: f64 = 8.0;
/// Compilation, of the statement's own time.
const JIT_OF_STATEMENT_MIN: f64 = 0.3;
/// Compilation, of the session time, from which on PLAN-03 speaks.
const JIT_SHARE: f64 = 0.1;

/// A condition that keeps more of the rows gains little by an index.
const KEPT_SHARE_MAX: f64 = 0.1;

/// A statement with its last plan.
pub(super) struct Planned<'a> {
    pub(super) time: &'a NodeTime,
    pub(super) statement: &'a StatementTime,
    pub(super) plan: Thing<'a>,
    pub(super) nodes: Vec<Thing<'a>>,
}

impl<'a> Planned<'a> {
    /// Whether the plan is one for a single constant of a list that the text has shortened: its estimates are none of the statement's.
    pub(super) fn is_of_one_constant(&self) -> bool {
        statement::has_shortened_list(&self.statement.text)
    }

    /// A claim about it, with what all of them have.
    pub(super) fn claim(&self, case: &Case, level: Level, share_severity: Severity, text: String) -> Claim {
        let within = within::in_words(case, self);
        Claim::new(share_severity, level, format!("{}: {text}{within}", self.time.node))
            .on_node(&self.time.node)
            .during(case.one("server", &self.time.node).map(|server| server.ticks.window()))
            .number("share", self.statement.share)
            .with(self.plan.lines.last("cost_total"), |claim, cost| claim.number("plan_cost", cost))
            .because(format!("the statement: {}", in_a_line(self.statement)))
    }

    /// The filter of a node of this kind.
    pub(super) fn filter_of(&self, kind: &str) -> Option<&str> {
        let mut nodes = self.nodes.iter().filter(|node| node.lines.word("kind") == kind);
        nodes.find_map(|node| Some(node.lines.word("filter")).filter(|filter| !filter.is_empty()))
    }

    pub(super) fn file(&self) -> String {
        format!("the plan: plans/{}-{}.json", self.statement.query_id, self.plan.lines.word("hash"))
    }

    pub(super) fn share(&self) -> String {
        units::percent(self.statement.share)
    }
}

/// The plan of a statement: the last one, if there are several. One that the counters refute is none.
pub(super) fn plan_of<'a>(
    case: &'a Case,
    time: &'a NodeTime,
    statement: &'a StatementTime,
) -> Option<Planned<'a>> {
    recorded(case, time, statement)
        .filter(|planned| refuted::by_index(case, time, statement, &planned.nodes).is_none())
}

/// The plan of a statement, whether sessions use it or not.
fn recorded<'a>(case: &'a Case, time: &'a NodeTime, statement: &'a StatementTime) -> Option<Planned<'a>> {
    let is_its = |thing: &Thing<'_>| thing.lines.word("query_id") == statement.query_id;
    let plans = case.at("plan", &time.node).filter(is_its);
    let plan = plans.max_by_key(|plan| plan.lines.ticks.window().to_us)?;
    let hash = plan.lines.word("hash");
    let mut nodes: Vec<Thing<'a>> = case
        .at("plan_node", &time.node)
        .filter(|node| is_its(node) && node.lines.word("hash") == hash)
        .collect();
    nodes.sort_by(|left, right| number(left, "number").total_cmp(&number(right, "number")));
    if refuted::is_of_catalog(&nodes) {
        return None;
    }
    Some(Planned { time, statement, plan, nodes })
}

/// Statements of a share with their plans.
pub(super) fn planned(case: &Case, share_min: f64) -> impl Iterator<Item = Planned<'_>> {
    large(case, share_min).filter_map(move |(time, statement)| plan_of(case, time, statement))
}

/// Rows that the planner expects, and rows that an execution returned, if they differ by the factor.
fn wrong_rows(planned: &Planned<'_>) -> Option<(f64, f64)> {
    if planned.is_of_one_constant() {
        return None;
    }
    let (expected, counted) = (planned.plan.lines.last("rows_planned")?, planned.statement.rows?);
    // What OFFSET leaves out is returned by no execution; and of a function in FROM the planner knows nothing that ANALYZE could count.
    let has_table = planned.nodes.iter().any(|node| !node.lines.word("relation").is_empty());
    let is_given = planned.nodes.iter().any(|node| node.lines.word("kind") == "Function Scan") && !has_table;
    // Of a condition on what a subquery computes, as a window function, the planner takes a fixed part.
    let top = planned.nodes.iter().find(|node| node.lines.last("above") == Some(0.0));
    let is_guessed = top
        .is_some_and(|top| top.lines.word("kind") == "Subquery Scan" && !top.lines.word("filter").is_empty());
    if is_given || is_guessed || lowered(&planned.statement.text).contains(" offset ") {
        return None;
    }
    // Of groups the planner guesses how many there are, and nothing above depends on it but their order.
    if tree::makes_groups(planned) && counted < expected {
        return None;
    }
    let (less, more) = (expected.min(counted).max(1.0), expected.max(counted));
    (more >= ROWS_MIN && more / less >= WRONG_FACTOR).then_some((expected, counted))
}

/// `ANALYZE` of the tables with conditions, and statistics of columns that are compared together.
fn statistics(planned: &Planned<'_>) -> Vec<String> {
    const TABLES_MAX: usize = 3;
    let mut commands: Vec<String> = vec![];
    for node in planned.nodes.iter().filter(|node| !node.lines.word("relation").is_empty()) {
        let relation = node.lines.word("relation");
        let analyze = format!("ANALYZE {relation};");
        if commands.contains(&analyze) || commands.len() > TABLES_MAX {
            continue;
        }
        // What an index finds is compared together with what a filter leaves out; a condition of a join names other tables' columns.
        let expressions = [node.lines.word("condition"), node.lines.word("filter")];
        let conditions: Vec<_> =
            expressions.iter().flat_map(|text| statement::conditions(text).unwrap_or_default()).collect();
        let is_of_one = conditions.iter().all(|one| one.table == conditions[0].table);
        if is_of_one {
            commands.extend(statement::statistics_commands(relation, &conditions));
        }
        commands.push(analyze);
    }
    commands
}

/// Blocks for each row that a statement returns, and bytes of temporary files, from which on another plan would save much.
const WASTED_PER_ROW_MIN: f64 = 10.0;
const WASTED_BYTES_MIN: f64 = 1e6;

/// Whether executions do little beside what they return, so that no other plan would save much, however wrong the estimate is.
fn is_harmless(planned: &Planned<'_>, counted: f64) -> bool {
    let statement = planned.statement;
    statement.blocks.is_some_and(|blocks| blocks < counted.max(1.0) * WASTED_PER_ROW_MIN)
        && statement.temp_bytes.unwrap_or(0.0) < WASTED_BYTES_MIN
}

/// What is ruled out where an estimate is wrong and harms nothing.
const HARMLESS: &str = "work that another plan would spare: an execution touches few blocks for each row that it returns, and writes no temporary files";

/// The number of rows of a LIMIT is not known to a plan for unknown values: a tenth is assumed.
fn is_limited(planned: &Planned<'_>) -> bool {
    planned.nodes.iter().any(|node| node.lines.word("kind") == "Limit")
}

fn misestimate(case: &Case) -> Answer {
    let mut claims = vec![];
    for planned in planned(case, SHARE_MIN) {
        // The plan of a statement inside of a function or trigger is not that of the one that was counted.
        let is_inner = !planned.statement.outer.is_empty();
        let is_other = is_inner
            || loops::wrong_loop(&planned).is_some()
            || is_limited(&planned)
            || is_explained(case, &planned);
        let Some((expected, counted)) = wrong_rows(&planned).filter(|_| !is_other) else { continue };
        let commands = statistics(&planned);
        let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
        let is_guess = wanted::is_guess(&planned);
        let text = format!(
            "a statement that takes {} of the session time is planned for {} rows and returns {}",
            planned.share(),
            units::short(expected),
            units::short(counted)
        );
        claims.push(
            planned
                .claim(case, Level::CoOccurrence, Severity::Medium, text)
                .number("rows_planned", expected)
                .number("rows_per_call", counted)
                .at_most(if is_guess { Severity::Low } else { Severity::High })
                .with(is_guess.then_some(wanted::GUESSED), Claim::because)
                .with(is_harmless(&planned, counted).then_some(HARMLESS), |claim, words| {
                    claim.at_most(Severity::Low).number(WHAT_IT_IS_FOR, 1.0).not(words)
                })
                .because(planned.file())
                .lacking("the node where the estimate goes wrong: EXPLAIN (ANALYZE) with real values shows it; the plan is one for unknown values (generic)")
                .remedy(
                    "renew the statistics of its tables; for columns that depend on each other create extended statistics; if values differ much \
                        in frequency, plan_cache_mode = force_custom_plan plans for each value",
                    &commands,
                ),
        );
    }
    Answer::of(claims, || "rows that plans expect, against rows per execution".to_string())
}

fn partitions(case: &Case) -> Answer {
    let mut claims = vec![];
    for planned in planned(case, SHARE_MIN) {
        let scanned = planned.plan.lines.last("partitions").unwrap_or(0.0);
        let removed = planned.plan.lines.last("partitions_removed").unwrap_or(0.0);
        let is_filtered = statement::parse(&planned.statement.text).map(|parsed| parsed.is_filtered);
        if scanned < PARTITIONS_MIN || removed > 0.0 || is_filtered != Ok(true) {
            continue;
        }
        let scan = planned.nodes.iter().find(|node| !node.lines.word("relation").is_empty());
        let (relation, filter) =
            scan.map_or(("", ""), |node| (node.lines.word("relation"), node.lines.word("filter")));
        let text = format!(
            "a statement that takes {} of the session time reads all {} partitions, {relation} among them",
            planned.share(),
            units::short(scanned)
        );
        claims.push(
            planned
                .claim(case, Level::CoOccurrence, severity(planned.statement.share), text)
                .number("partitions", scanned)
                .number("partitions_removed", removed)
                .because(planned.file())
                .because(format!("no partition is left out when it runs; the condition of a partition: {}", or_none(filter)))
                .remedy(
                    "compare the partition key itself with a value of its own type, without a function or cast, and name it in the condition; \
                        the command shows the key",
                    &[&format!(
                        "SELECT pg_get_partkeydef(inhparent) FROM pg_inherits WHERE inhrelid = {}::regclass;",
                        literal(relation)
                    )],
                ),
        );
    }
    Answer::of(claims, || "partitions that plans scan and leave out".to_string())
}

fn or_none(text: &str) -> &str {
    if text.is_empty() { "none" } else { text }
}

/// A setting for all sessions of a statement's database that connect from now on; for all of the server where the database is not known.
pub(super) fn for_database(statement: &StatementTime, setting: &str, value: &str) -> String {
    match statement.database.as_str() {
        "" => format!("ALTER SYSTEM SET {setting} = {value}; SELECT pg_reload_conf();"),
        name => format!("ALTER DATABASE {} SET {setting} = {value};", statement::quoted(name)),
    }
}

fn compiled(case: &Case) -> Answer {
    let mut claims = vec![];
    for planned in planned(case, SHARE_LOW) {
        let lines = planned.plan.lines;
        let (Some(cost), Some(limit)) = (lines.last("cost_total"), lines.last("jit_above_cost")) else {
            continue;
        };
        let (Some(jit), Some(mean)) = (planned.statement.jit_ms, planned.statement.mean_ms) else { continue };
        let of_statement = jit / mean.max(f64::MIN_POSITIVE);
        // What costs more of the time is the finding of PLAN-03.
        let is_others = planned.statement.share * of_statement >= JIT_SHARE;
        if cost < limit || of_statement < JIT_OF_STATEMENT_MIN || is_others {
            continue;
        }
        let above = (cost * 2.0).ceil();
        let text = format!(
            "a statement of {} has a cost of {}, above jit_above_cost of {}: compilation takes {} of its time",
            units::us(mean * 1e3),
            units::short(cost),
            units::short(limit),
            units::percent(of_statement)
        );
        claims.push(
            planned
                .claim(case, Level::DiscriminatingCounter, Severity::Low, text)
                .number("jit_ms", jit)
                .number("jit_above_cost", limit)
                .because(planned.file())
                .remedy(
                    "raise the limit for this database or a role above this cost, or turn compilation off there; sessions follow when they connect again",
                    &[&for_database(planned.statement, "jit_above_cost", &format!("{above:.0}"))],
                ),
        );
    }
    Answer::of(claims, || "costs of plans, against jit_above_cost".to_string())
}

fn changed(case: &Case) -> Answer {
    let mut claims = vec![];
    for planned in planned(case, SHARE_LOW) {
        let node = &planned.time.node;
        let events = case.events_of(record::event::PLAN_CHANGED).filter(|event| {
            Case::word_of(event, "query_id") == planned.statement.query_id
                && Case::word_of(event, "node") == node.as_str()
        });
        let Some(event) = events.last() else { continue };
        let cost_of = |hash: &str| {
            let mut plans = case
                .at("plan", node)
                .filter(|plan| plan.lines.word("query_id") == planned.statement.query_id);
            plans.find(|plan| plan.lines.word("hash") == hash).and_then(|plan| plan.lines.last("cost_total"))
        };
        let (before, after) = (Case::word_of(event, "before"), Case::word_of(event, "after"));
        let files = |hash: &str| format!("plans/{}-{hash}.json", planned.statement.query_id);
        let text = format!(
            "a statement that takes {} of the session time has another plan than at the beginning",
            planned.share()
        );
        claims.push(
            planned
                .claim(case, Level::CoOccurrence, Severity::Low, text)
                .with(cost_of(before), |claim, cost| claim.number("cost_before", cost))
                .with(cost_of(after), |claim, cost| claim.number("cost_after", cost))
                .because(format!("before: {}, after: {}", files(before), files(after)))
                .lacking("the exact moment of the change: a statement is planned again when its executions take four times as long, and at the end")
                .remedy(
                    "compare both plans: an index or statistics were added or removed, or a table has grown past a limit of the planner",
                    &[],
                ),
        );
    }
    Answer::of(claims, || "plans at the beginning and at the end".to_string())
}

//! What the plan itself shows where no rule knows the form: a join that reads a whole table for want of an index, and the one step that has most of a plan's
//! cost. The second is the answer to "what does it do all the time?" for any statement that has a plan; it is no reproach, so it
//! is low, but for a statement that nearly all sessions always execute.

use super::{
    Planned, SHARE_MIN, WHAT_IT_IS_FOR, below, busy, in_a_line, inputs, is_explained, number, plan_of,
    planned, severity, unserved,
};
use crate::case::{Case, Thing};
use crate::node_time;
use crate::rule::Need::{self, Any, Field};
use crate::rule::{Answer, Claim};
use crate::rules::built_in::is_cheap;
use crate::rules::costly::{has_not_ended, is_busy, lowered, plain};
use crate::rules::statement::explain_it;
use crate::units;
use record::finding::{Level, NodeTime, Severity, StatementTime};
use record::statement::{self, Use, Verb};

/// Where no statement has a plan, their counters say which one takes the time.
pub(super) const NEEDS: &[Need] =
    &[Any(&[Field("plan", "cost_total"), Field("statement", "calls")]), Field("server", "sessions_active")];

/// The share of the session time from which on a statement's costliest step is named.
const STEP_SHARE_MIN: f64 = 0.3;
/// The share of the plan's cost that is one step.
const OF_PLAN_MIN: f64 = 0.4;
/// A cheaper plan has no step that is worth a word.
const COST_MIN: f64 = 50.0;
/// Time of an execution: what is shorter is called too often, and its plan is not the reason.
const MEAN_MS_MIN: f64 = 1.0;
/// A smaller table is read rightly.
const ROWS_MIN: f64 = 1_000.0;
/// A join that wants more of the rows reads the table rightly.
const KEPT_SHARE_MAX: f64 = 0.1;
/// Between a scan and its join: they pass rows on.
const PASSES: [&str; 5] = ["Hash", "Sort", "Materialize", "Memoize", "Gather"];
const JOINS: [&str; 3] = ["Hash Join", "Merge Join", "Nested Loop"];

fn word<'a>(node: &Thing<'a>, field: &str) -> &'a str {
    node.lines.word(field)
}

fn node_of<'a>(planned: &Planned<'a>, wanted: f64) -> Option<Thing<'a>> {
    planned.nodes.iter().find(|node| node.lines.last("number") == Some(wanted)).copied()
}

/// The join that takes the rows of a node, and the side of it that the node is on.
fn join_above<'a>(planned: &Planned<'a>, node: &Thing<'a>) -> Option<(Thing<'a>, f64)> {
    let mut side = *node;
    for _ in 0..planned.nodes.len() {
        let above = node_of(planned, number(&side, "above"))?;
        if JOINS.contains(&word(&above, "kind")) {
            return Some((above, number(&side, "number")));
        }
        if !PASSES.contains(&word(&above, "kind")) {
            return None;
        }
        side = above;
    }
    None
}

/// A table that is read as a whole for a join of few of its rows.
pub(super) struct JoinOfFew<'a, T> {
    pub(super) relation: &'a str,
    pub(super) rows: f64,
    kept: f64,
    /// What was looked for in the condition of the join.
    pub(super) found: T,
    pub(super) condition: &'a str,
}

/// The largest table that is read for a join of few rows, and in whose own side of the condition something is found.
pub(super) fn join_of_few<'a, T>(
    planned: &Planned<'a>,
    find: impl Fn(&str, &statement::Condition) -> Option<T>,
) -> Option<JoinOfFew<'a, T>> {
    let of_scan = |scan: &Thing<'a>| {
        let (relation, alias) = (word(scan, "relation"), word(scan, "alias"));
        let rows = scan.lines.last("table_rows").filter(|rows| *rows >= ROWS_MIN)?;
        let (join, side) = join_above(planned, scan)?;
        let other = inputs(planned, &join).find(|one| number(one, "number") != side)?;
        let kept = number(&join, "rows_planned");
        if alias.is_empty() || kept.max(number(&other, "rows_planned")) > rows * KEPT_SHARE_MAX {
            return None;
        }
        let condition = word(&join, "condition");
        let columns = statement::conditions(condition).ok()?;
        let found = columns
            .iter()
            .filter(|one| one.table.as_deref() == Some(alias))
            .find_map(|one| find(relation, one))?;
        Some(JoinOfFew { relation, rows, kept, found, condition })
    };
    let is_scan = |node: &&Thing<'a>| word(node, "kind") == "Seq Scan" && word(node, "filter").is_empty();
    let scans = planned.nodes.iter().filter(is_scan);
    scans.filter_map(of_scan).max_by(|left, right| left.rows.total_cmp(&right.rows))
}

/// The same, if no index begins with the column that joins it.
pub(super) fn unindexed_join<'a>(case: &Case, planned: &Planned<'a>) -> Option<JoinOfFew<'a, String>> {
    join_of_few(planned, |relation, one| {
        let indexes = super::index::indexes(case, planned, relation);
        let is_indexed = indexes.iter().any(|(_, columns)| columns.first() == Some(&one.column.as_str()));
        (one.inside.is_none() && !is_indexed).then(|| one.column.clone())
    })
}

/// PLAN-46.
pub(super) fn unindexed_joins(case: &Case) -> Answer {
    let mut claims = vec![];
    for planned in planned(case, SHARE_MIN) {
        let Some(found) = unindexed_join(case, &planned) else { continue };
        let JoinOfFew { relation, rows, kept, found: column, condition } = found;
        let text = format!(
            "a statement that takes {} of the session time reads all {} rows of {relation} to join about {} of them: no index begins with {relation} \
                ({column})",
            planned.share(),
            units::short(rows),
            units::short(kept)
        );
        let command = statement::index_command(relation, std::slice::from_ref(&column), true);
        claims.push(
            planned
                .claim(case, Level::CoOccurrence, severity(planned.statement.share), text)
                .number("rows_of_table", rows)
                .number("rows_planned", kept)
                .because(format!("the plan joins it by {condition}, and has nothing but a sequential scan for it"))
                .because(planned.file())
                .not("a join of most rows, for which a scan is right: it expects a tenth or less")
                .remedy(
                    "create an index on the column, so that the join looks up its rows instead of reading all of them (CONCURRENTLY does not block writes, and \
                     must not run in a transaction); every index slows writes to its table",
                    &[&command, &format!("ANALYZE {relation};")],
                ),
        );
    }
    Answer::of(claims, || "joins in plans, and the indexes of their tables".to_string())
}

/// A node with its own part of the plan's cost.
struct Step<'a> {
    node: Thing<'a>,
    of_plan: f64,
}

/// The node with the largest cost of its own: what it costs less what the nodes below cost. Below a LIMIT only the part that is fetched counts.
fn costliest<'a>(planned: &Planned<'a>) -> Option<Step<'a>> {
    let whole = planned.plan.lines.last("cost_total").filter(|cost| *cost >= COST_MIN)?;
    let mut factors: Vec<(f64, f64)> = vec![];
    let mut best: Option<Step<'a>> = None;
    for node in &planned.nodes {
        let above = node_of(planned, number(node, "above"));
        let inherited =
            factors.iter().find(|(of, _)| *of == number(node, "above")).map_or(1.0, |found| found.1);
        let fetched = above.filter(|above| word(above, "kind") == "Limit").map_or(1.0, |limit| {
            (number(&limit, "cost_total") / number(node, "cost_total").max(f64::MIN_POSITIVE)).min(1.0)
        });
        let factor = inherited * fetched;
        factors.push((number(node, "number"), factor));
        let children: f64 = below(planned, node).map(|child| number(&child, "cost_total")).sum();
        let own = (number(node, "cost_total") - children).max(0.0) * factor;
        if best.as_ref().is_none_or(|step| own / whole > step.of_plan) {
            best = Some(Step { node: *node, of_plan: own / whole });
        }
    }
    best.filter(|step| step.of_plan >= OF_PLAN_MIN)
}

/// What a step does, and what would make it cheaper.
struct Words {
    does: String,
    remedy: &'static str,
}

const READ_LESS: &str = "let it read less: an index for what the filter compares, a LIMIT, a summary that is kept, or partitions of which most are left out";
const FEWER_LOOPS: &str = "let fewer rows reach the loop (a condition that is applied earlier), give the inner side an index for its condition, or read it \
    once \
    (statistics that show the true number of rows lead to a hash join)";

/// What a scan reads.
fn of_scan(node: &Thing<'_>, kind: &str, rows: &str) -> (String, &'static str) {
    let relation = word(node, "relation");
    match kind {
        // A part on another node.
        "Seq Scan" if relation.is_empty() => {
            ("reads a table that is not of this node".to_string(), READ_LESS)
        }
        "Seq Scan" => {
            let all = units::short(node.lines.last("table_rows").unwrap_or(0.0));
            let filter = word(node, "filter");
            let kept =
                if filter.is_empty() { String::new() } else { format!(", of which {filter} keeps {rows}") };
            (format!("reads all {all} rows of {relation}{kept}"), READ_LESS)
        }
        _ => {
            let by = Some(word(node, "index")).filter(|name| !name.is_empty());
            let by = by.map_or(String::new(), |name| format!(" by index {name}"));
            let filter = word(node, "filter");
            match filter.is_empty() {
                true => (format!("reads {rows} rows of {relation}{by}"), READ_LESS),
                false => (
                    format!("reads rows of {relation}{by} and leaves out those that do not fit {filter}"),
                    "an index that also holds what the filter compares finds only the rows that fit",
                ),
            }
        }
    }
}

/// What a nested loop repeats.
fn of_loop(planned: &Planned<'_>, node: &Thing<'_>) -> Option<(String, &'static str)> {
    let inner = inputs(planned, node).last()?;
    let named = planned.nodes.iter().find(|one| {
        let is_inner = number(one, "number") == number(&inner, "number")
            || number(one, "above") == number(&inner, "number");
        is_inner && !word(one, "relation").is_empty()
    });
    let what = named.map_or("its inner side".to_string(), |one| {
        format!("{} ({})", word(one, "relation"), word(one, "kind").to_lowercase())
    });
    let outer = inputs(planned, node).next().map_or(0.0, |one| number(&one, "rows_planned"));
    Some((format!("reads {what} again for each of {} rows", units::short(outer)), FEWER_LOOPS))
}

/// Whether what a statement aggregates has the same result in any order: it has no groups, which are made from sorted rows, and counts or sums up alone.
fn needs_no_order(planned: &Planned<'_>) -> bool {
    let mut groups = planned.nodes.iter().filter(|node| word(node, "kind") == "Aggregate");
    let text = lowered(&planned.statement.text);
    groups.all(|node| word(node, "condition").is_empty())
        && !["_agg(", "distinct ", "within group", "group by"].iter().any(|of_order| text.contains(of_order))
}

/// Whether an index may have the order of these keys: its columns are those of one table, and are not computed with values of a statement.
fn may_be_of_index(keys: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '"';
    let aliases = keys.match_indices('.').filter_map(|(at, _)| keys[..at].rsplit(|c| !is_part(c)).next());
    let aliases: std::collections::BTreeSet<&str> = aliases.filter(|alias| !alias.is_empty()).collect();
    aliases.len() <= 1 && !keys.contains('$')
}

fn words(planned: &Planned<'_>, step: &Step<'_>) -> Option<Words> {
    let node = &step.node;
    let (kind, relation, condition) = (word(node, "kind"), word(node, "relation"), word(node, "condition"));
    let rows = units::short(number(node, "rows_planned"));
    let input = inputs(planned, node).map(|child| number(&child, "rows_planned")).fold(0.0, f64::max);
    let above = planned.above(node);
    // A scan without a table is an extension's own node, which sends its child to other nodes.
    let per_row = !relation.is_empty()
        && below(planned, node).next().is_some()
        && kind.ends_with("Scan")
        && !kind.starts_with("Bitmap");
    let (does, remedy) = match kind {
        _ if per_row && kind != "Subquery Scan" => (
            format!("runs a subquery for each of the rows that it reads from {relation}"),
            "write the subquery as a join or with GROUP BY, so that it runs once; an index for its condition makes each run cheap",
        ),
        "Sort" | "Incremental Sort" => {
            let is_useless =
                matches!(above.as_slice(), ["Aggregate", ..] | ["Subquery Scan", "Aggregate", ..])
                    && above.len() <= 2
                    && needs_no_order(planned);
            let end = if is_useless { ", and nothing above needs that order" } else { "" };
            let remedy = if is_useless {
                "leave out the ORDER BY, which is inside of the view or subquery, or count the table itself"
            } else if !may_be_of_index(condition) {
                "no index has this order, which is one of several tables or of values that are given: let fewer rows reach it, by conditions or by groups that \
                 are made before"
            } else {
                "an index on these columns delivers the order without a sort; if only the first rows are wanted, LIMIT"
            };
            (format!("sorts {rows} rows by {condition}{end}"), remedy)
        }
        "Custom Scan" | "Foreign Scan" if relation.is_empty() => return None,
        "Seq Scan" | "Index Scan" | "Index Only Scan" | "Bitmap Heap Scan" => of_scan(node, kind, &rows),
        "Nested Loop" => of_loop(planned, node)?,
        "Hash Join" | "Merge Join" => (
            format!("joins {} rows by {condition}", units::short(input)),
            "let fewer rows reach the join: a condition that is applied earlier, or an index for the joined column if few of them are wanted",
        ),
        "Aggregate" | "Unique" if is_union(planned, node) => (
            format!("removes the duplicates of {} rows that UNION puts together", units::short(input)),
            "write UNION ALL where the parts have no rows in common, or duplicates do no harm: nothing is sorted or hashed then, and LIMIT \
             and conditions reach the parts",
        ),
        "Aggregate" | "Group" | "HashAggregate" => {
            let by = if condition.is_empty() { String::new() } else { format!(" by {condition}") };
            let verb = if condition.is_empty() { "sums up" } else { "groups" };
            (
                format!("{verb} {} rows{by}", units::short(input)),
                "keep the result (a materialized view, or sums that the writer maintains), or let fewer rows reach it",
            )
        }
        "WindowAgg" => (
            format!("computes a window function over {} rows", units::short(input)),
            "limit the rows before the window function, or ask for one group at a time with an index on its columns",
        ),
        "Function Scan" | "Table Function Scan" | "ProjectSet" => (
            format!("calls a function that returns {rows} rows"),
            "look into the function: its own statements are counted with pg_stat_statements.track = all",
        ),
        "CTE Scan" | "WorkTable Scan" | "Subquery Scan" => {
            (format!("reads {rows} rows of a subquery"), READ_LESS)
        }
        "Limit" | "ModifyTable" | "LockRows" | "Result" => return None,
        _ => (format!("is a step of kind {kind} with {rows} rows"), READ_LESS),
    };
    Some(Words { does, remedy })
}

/// Whether a step groups what several parts of a UNION have: the statement, or a view in it, has no GROUP BY of its own there.
fn is_union(planned: &Planned<'_>, node: &Thing<'_>) -> bool {
    let is_parts = |step: &Thing<'_>| {
        let relation = inputs(planned, step).map(|part| part.lines.word("relation").to_string());
        let relations: std::collections::BTreeSet<String> = relation.collect();
        step.lines.word("kind") == "Append" && relations.len() > 1
    };
    let is_of_all = word(node, "kind") == "Unique" || word(node, "condition").contains(", ");
    inputs(planned, node).any(|below| {
        is_parts(&below)
            || below.lines.word("kind") == "Sort" && inputs(planned, &below).any(|below| is_parts(&below))
    }) && is_of_all
}

/// PLAN-45.
pub(super) fn costliest_steps(case: &Case) -> Answer {
    let mut claims = vec![];
    for planned in planned(case, STEP_SHARE_MIN).filter(|planned| is_busy(planned.time)) {
        let is_short = planned.statement.mean_ms.is_some_and(|ms| ms < MEAN_MS_MIN);
        if is_short || is_explained(case, &planned) || unserved::is_found(case, &planned) {
            continue;
        }
        let Some(step) = costliest(&planned) else { continue };
        let Some(Words { does, remedy }) = words(&planned, &step) else { continue };
        let text = format!(
            "a statement takes {} of the session time, and one step has {} of its plan's cost: it {does}",
            planned.share(),
            units::percent(step.of_plan)
        );
        claims.push(
            planned
                .claim(case, Level::CoOccurrence, Severity::Low, text)
                .number("of_plan", step.of_plan)
                .with(is_by_design(planned.statement).then_some(1.0), |claim, one| claim.number(WHAT_IT_IS_FOR, one))
                .because(planned.file())
                .lacking("whether it is waste: costs and rows are the planner's, for unknown values; EXPLAIN (ANALYZE, BUFFERS) with real ones measures the \
                    step")
                .remedy(remedy, &[]),
        );
    }
    for time in busy(case) {
        let all = time.statements.iter().filter(|one| one.share >= LARGEST_SHARE_MIN);
        for statement in all.filter(|one| one.mean_ms.map_or(!one.is_counted, |ms| ms >= LARGEST_MS_MIN)) {
            let planned = plan_of(case, time, statement);
            let is_known = planned.as_ref().is_some_and(|planned| {
                is_explained(case, planned)
                    || unserved::is_found(case, planned)
                    || costliest(planned).is_some_and(|step| words(planned, &step).is_some())
            });
            if !is_known && !is_blocked(statement) {
                claims.push(of_largest(case, time, statement));
            }
        }
    }
    Answer::of(claims, || "the costliest steps of the plans of statements that take the time".to_string())
}

/// Whether the sessions of a statement mostly wait for locks, or for standbys that confirm its commit: what it costs is no matter of its plan.
fn is_blocked(statement: &StatementTime) -> bool {
    let is_others = |event: &str| event.starts_with("Lock:") || event == "IPC:SyncRep";
    let locks = statement.events.iter().filter(|(event, _)| is_others(event));
    locks.map(|(_, share)| share).sum::<f64>() >= BLOCKED_SHARE_MIN
}

/// The share of its samples in waits for locks.
const BLOCKED_SHARE_MIN: f64 = 0.5;
/// The share of the session time of a statement that is named although nothing is known of its plan.
const LARGEST_SHARE_MIN: f64 = 0.5;
/// Milliseconds of it.
const LARGEST_MS_MIN: f64 = 5.0;
/// Characters of a statement in a claim.
const STATEMENT_CHARS: usize = 100;

/// Blocks of an execution that only computes, and the share of its sessions on a CPU.
const COMPUTING_BLOCKS_MAX: f64 = 50.0;
const COMPUTING_SHARE_MIN: f64 = 0.8;
/// The share of the session time in waits for a CPU from which on computing less would help others.
const QUEUE_SHARE_MIN: f64 = 0.2;
/// Words before a parenthesis that are no functions, and functions that cost nothing.
const NO_FUNCTIONS: [&str; 22] = [
    "and", "or", "not", "in", "any", "all", "some", "exists", "values", "select", "from", "where", "on",
    "as", "by", "over", "coalesce", "cast", "count", "min", "max", "array",
];

/// The functions of a statement that takes milliseconds of CPU time for a few blocks; `None` for others.
fn computing(statement: &StatementTime) -> Option<String> {
    let on_cpu: f64 =
        statement.events.iter().filter(|(event, _)| event == "CPU").map(|(_, share)| share).sum();
    let is_it = statement.mean_ms.is_some_and(|ms| ms >= LARGEST_MS_MIN)
        && statement.blocks.is_some_and(|blocks| blocks <= COMPUTING_BLOCKS_MAX)
        && on_cpu >= COMPUTING_SHARE_MIN;
    if !is_it {
        return None;
    }
    let text = lowered(&statement.text);
    let is_name = |c: char| c.is_alphanumeric() || "_.".contains(c);
    let before = |at: usize| text[..at].rsplit(|c| !is_name(c)).next().unwrap_or_default();
    let mut names: Vec<&str> = text.match_indices('(').map(|(at, _)| before(at)).collect();
    names.retain(|name| name.starts_with(|c: char| c.is_alphabetic()) && !NO_FUNCTIONS.contains(name));
    names.dedup();
    if !names.iter().all(|name| is_cheap(name)) {
        names.retain(|name| !is_cheap(name));
    }
    names.truncate(3);
    (!names.is_empty()).then(|| names.iter().map(|name| format!("{name}()")).collect::<Vec<_>>().join(", "))
}

/// Rows that a statement returns or changes, for each block that it touches, from which on it touches them for its rows.
const ROWS_PER_BLOCK_MIN: f64 = 0.02;

/// Whether a statement does no more than its text asks for, as far as that can be seen: it takes whole tables, or has a row for many of the blocks that it
/// touches, or is no query.
fn is_by_design(statement: &StatementTime) -> bool {
    let is_of_rows = statement
        .rows
        .zip(statement.blocks)
        .is_some_and(|(rows, blocks)| rows >= 1.0 && rows >= blocks * ROWS_PER_BLOCK_MIN);
    let is_whole = match statement::parse(&statement.text) {
        Ok(parsed) => {
            let mut conditions = parsed.conditions.iter().filter(|one| one.how != Use::Join);
            parsed.verb == Verb::Select && !parsed.tables.is_empty() && conditions.next().is_none()
        }
        Err(_) => {
            let first = lowered(&statement.text).split(' ').next().unwrap_or_default().to_string();
            !first.is_empty() && !QUERIES.contains(&first.as_str())
        }
    };
    is_of_rows || is_whole
}

/// First words of statements that read or change rows.
const QUERIES: [&str; 8] = ["select", "with", "insert", "update", "delete", "merge", "call", "execute"];

/// A statement that has most of the time, of which the plan shows no costly step, or there is none: what the counters know of it.
fn of_largest(case: &Case, time: &NodeTime, statement: &StatementTime) -> Claim {
    let waits: Vec<String> = statement
        .events
        .iter()
        .take(2)
        .map(|(event, share)| format!("{event} {}", units::percent(*share)))
        .collect();
    let seen = if waits.is_empty() {
        String::new()
    } else {
        format!("; its sessions were seen in {}", waits.join(", "))
    };
    let counted = match statement.mean_ms {
        Some(mean_ms) => format!(
            "{} executions a second of {} each, with {} blocks and {} rows",
            units::short(statement.calls_per_s.unwrap_or(0.0)),
            units::us(mean_ms * 1e3),
            units::short(statement.blocks.unwrap_or(0.0)),
            units::short(statement.rows.unwrap_or(0.0))
        ),
        None if has_not_ended(case, &time.node, statement) => {
            "none of its executions has ended normally within the recording".to_string()
        }
        None => {
            "how often it runs and how long it takes is not known, as no counter of pg_stat_statements has it"
                .to_string()
        }
    };
    let functions = computing(statement);
    let in_them = functions.as_ref().map_or(String::new(), |functions| {
        format!("; it computes and hardly reads, so the time is in the functions that it calls: {functions}")
    });
    let text = format!(
        "{}: one statement takes {} of the session time: {counted}{seen}{in_them}: {}",
        time.node,
        units::percent(statement.share),
        plain(&statement.text, STATEMENT_CHARS)
    );
    // With a CPU to spare, what is slow on purpose is no harm.
    let is_felt = node_time::share_of_part(time, node_time::FOR_CPU) >= QUEUE_SHARE_MIN;
    let (severity, lack, remedy) = match functions {
        Some(_) => (
            if is_felt { Severity::Medium } else { Severity::Low },
            "which of them: EXPLAIN (ANALYZE) with and without each shows it",
            "compute it in the application, whose CPUs are easier to add (passwords: crypt and gen_salt are slow on purpose, the more the higher their \
             cost), or once for each row when it is written (a generated column)",
        ),
        None => (
            Severity::Low,
            "why it takes so long: no rule found waste in it, and it may be what the server is for",
            "look at its plan with real values: EXPLAIN (ANALYZE, BUFFERS); if its steps are cheap, at the functions that it calls (track_functions = 'pl')",
        ),
    };
    Claim::new(severity, Level::CoOccurrence, text)
        .on_node(&time.node)
        .during(case.one("server", &time.node).map(|server| server.ticks.window()))
        .number("share", statement.share)
        .with(is_by_design(statement).then_some(1.0), |claim, one| claim.number(WHAT_IT_IS_FOR, one))
        .because(format!("the statement: {}", in_a_line(statement)))
        .lacking(lack)
        .remedy(remedy, &[&explain_it(case, &time.node, statement)])
}

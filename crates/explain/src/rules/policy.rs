//! PLAN-67: policies of row-level security that are evaluated for each row. The plan that our role gets may be one without them, so the policies themselves are
//! read from the catalog.

mod advice;
mod held;
mod work;

use super::costly::{SECURED, busy, in_a_line, names_table, rows_read, severity};
use super::paste::literal;
use super::plan::{Planned, does_more, plan_of, planned};
use crate::case::Case;
use crate::node_time::{FOR_CPU, ON_CPU, share_of_part};
use crate::rule::Need::Field;
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use held::Held;
use record::finding::{Level, NodeTime, Severity, StatementTime};
use record::statement::{self, Verb};
use record::watched::PECULIAR;
use record::watched::policy::{Policy, TOPIC};
use std::collections::BTreeSet;
use work::{Kind, Work};

pub(super) const RULES: &[Rule] = &[Rule {
    id: "PLAN-67",
    title: "a policy of row-level security is evaluated for each row",
    needs: &[Field("statement", "calls"), Field("server", "sessions_active")],
    limits: "20 % of the session time in a statement on a table with row-level security that touches 1,000 blocks, 8 for each unit of the planner's \
        cost; or that reads 1,000 rows, each for 0.2 us of CPU time or more, while a policy calls a function or a subquery for them, or with 20 % of the \
        time in tables that no statement names; or without an index for the column that a policy compares; or whose own condition, by a pattern, a function \
        or a type without LEAKPROOF operators, waits for the policy (ours)",
    judge,
    links: &["https://www.postgresql.org/docs/current/ddl-rowsecurity.html"],
}];

/// The share of the session time of the statement.
const SHARE_MIN: f64 = 0.2;
/// Rows that an execution reads.
const ROWS_MIN: f64 = 1_000.0;
/// Blocks of an execution that has to check its condition behind the policy.
const BLOCKS_MIN: f64 = 100.0;
/// CPU time for each of them, in milliseconds: a scan with a comparison takes a quarter of it or less, a call in PL/pgSQL twice as much and more.
const ROW_MS_MIN: f64 = 0.000_2;
/// Of the rows that it reads, those that a statement returns if a policy leaves few.
const RETURNED_MAX: f64 = 0.1;

/// A statement on a table whose policies are known.
struct Secured<'a> {
    time: &'a NodeTime,
    statement: &'a StatementTime,
    work: Work<'a>,
    /// Rows that an execution reads, if counters show them.
    rows: Option<f64>,
    /// The index that begins with the column of the policy.
    index: Option<&'a str>,
    /// The condition of the statement that has to wait for the policy, where that is the cause.
    held: Option<Held<'a>>,
}

fn judge(case: &Case) -> Answer {
    let policies = policies(case);
    let mut claims = vec![];
    for time in busy(case) {
        for statement in time.statements.iter().filter(|statement| statement.share >= SHARE_MIN) {
            claims.extend(known(case, time, statement, &policies));
        }
    }
    for planned in planned(case, SHARE_MIN).filter(|planned| does_more(case, planned)) {
        claims.extend(unknown(case, &planned, &policies));
    }
    Answer::of(claims, || "statements on tables with row-level security, and their policies".to_string())
}

/// The policies of each node, as far as they were recorded.
fn policies(case: &Case) -> Vec<(&str, Policy)> {
    let read = case
        .facts(TOPIC)
        .filter_map(|fact| Some((fact.node.as_str(), serde_json::from_str::<Policy>(&fact.value).ok()?)));
    read.collect()
}

/// Whether a policy decides which rows this statement sees: for its command, and a role that is at work and not exempt.
fn applies(case: &Case, time: &NodeTime, statement: &StatementTime, policy: &Policy) -> bool {
    let verb = statement::parse(&statement.text).map(|parsed| parsed.verb);
    let commands: &[&str] = match verb {
        Ok(Verb::Update) => &["ALL", "SELECT", "UPDATE"],
        Ok(Verb::Delete) => &["ALL", "SELECT", "DELETE"],
        _ => &["ALL", "SELECT"],
    };
    let at_work = case.at("activity", &time.node).map(|group| group.lines.word("user"));
    let roles: BTreeSet<&str> = at_work.filter(|role| !role.is_empty()).collect();
    let is_for = |role: &str| {
        let is_named = policy.roles.is_empty() || policy.roles.iter().any(|one| one == role);
        let is_exempt = policy.exempt.iter().any(|one| one == role);
        is_named && !is_exempt && case.may_execute(&time.node, &format!("role {role}"), statement)
    };
    commands.contains(&policy.command.as_str()) && (roles.is_empty() || roles.iter().any(|role| is_for(role)))
}

/// The share of the session time in such tables.
const UNNAMED_SHARE_MIN: f64 = 0.2;

/// CPU time for each row, in milliseconds: what an execution takes, without its waits for a CPU.
fn each_ms(time: &NodeTime, statement: &StatementTime, rows: f64) -> Option<f64> {
    let (on, waits) = (share_of_part(time, ON_CPU), share_of_part(time, FOR_CPU));
    let of_cpu = if on > 0.0 { on / (on + waits) } else { 1.0 };
    Some(statement.mean_ms? * of_cpu / rows.max(1.0))
}

/// Whether a large part of what is read are tables that no statement of the time names: functions read them, those of policies too. The policy may be
/// evaluated for few of the rows that are read, behind other conditions, so that the time for each row read is short.
fn reads_what_none_names(time: &NodeTime) -> bool {
    let by = time.by.iter().find(|by| by.name == "relation");
    let named: BTreeSet<String> =
        time.statements.iter().flat_map(|one| statement::names(&one.text)).collect();
    let is_unnamed = |relation: &str| {
        let name = relation.rsplit('.').next().unwrap_or(relation).trim_matches('"');
        !relation.is_empty() && !named.contains(name)
    };
    let shares = by.map_or(&[][..], |by| &by.shares);
    shares.iter().filter(|(relation, _)| is_unnamed(relation)).map(|(_, share)| share).sum::<f64>()
        >= UNNAMED_SHARE_MIN
}

/// The index of a table that begins with a column: `name(column, column)`, separated by `; `.
fn index_on<'a>(case: &'a Case, time: &'a NodeTime, relation: &str, column: &str) -> Option<&'a str> {
    let table = case.at("table", &time.node).find(|table| table.lines.word("relation") == relation)?;
    table.lines.word("index_columns").split("; ").find_map(|index| {
        let (name, columns) = index.split_once('(')?;
        let first = columns.trim_end_matches(')').split(", ").next()?;
        (first.trim_matches('"') == column).then_some(name)
    })
}

/// Whether the indexes of a table were recorded.
fn has_indexes(case: &Case, time: &NodeTime, relation: &str) -> bool {
    let mut tables = case.at("table", &time.node).filter(|table| table.lines.word("relation") == relation);
    tables.any(|table| table.lines.last("indexes").is_some())
}

/// Whether the statement has a condition of its own on the table that an index could serve.
fn has_own_condition(statement: &StatementTime) -> bool {
    statement::parse(&statement.text)
        .is_ok_and(|parsed| parsed.conditions.iter().any(|one| one.how.is_compared()))
}

/// A finding about a policy whose condition is known.
fn known<'a>(
    case: &'a Case,
    time: &'a NodeTime,
    statement: &'a StatementTime,
    policies: &'a [(&'a str, Policy)],
) -> Option<Claim> {
    let its = policies.iter().filter(|(node, policy)| {
        *node == time.node
            && names_table(statement, &policy.relation)
            && applies(case, time, statement, policy)
    });
    let work = its.map(|(_, policy)| work::of(policy)).min_by_key(|work| work.kind)?;
    let relation = work.policy.relation.as_str();
    let rows = rows_read(case, time, statement, relation).filter(|rows| *rows >= ROWS_MIN);
    let planned = plan_of(case, time, statement);
    let does_more = planned.as_ref().is_some_and(|planned| does_more(case, planned));
    let index = work.column.as_deref().and_then(|column| index_on(case, time, relation, column));
    let lacks_index = index.is_none() && work.column.is_some() && has_indexes(case, time, relation);
    let each = rows.and_then(|rows| each_ms(time, statement, rows));
    let is_costly = each.is_some_and(|each_ms| each_ms >= ROW_MS_MIN);
    let is_felt = each.is_some_and(|each_ms| each_ms >= ROW_MS_MIN / 4.0);
    let leaves_few = rows.is_some_and(|rows| {
        let returned = statement.rows.unwrap_or(f64::MAX);
        returned <= rows * RETURNED_MAX || aggregates(statement)
    });
    let fits = match work.kind {
        Kind::OfColumn | Kind::Volatile | Kind::Subquery => {
            is_costly || does_more || is_felt && reads_what_none_names(time)
        }
        // With an index it is called once for its search.
        Kind::Constant => lacks_index && (is_costly && leaves_few || does_more),
        Kind::Value => lacks_index && leaves_few && !has_own_condition(statement),
    };
    let held = || held::of(case, time, statement, relation, planned.as_ref());
    let is_large = rows.is_some() && leaves_few && statement.blocks.is_none_or(|blocks| blocks >= BLOCKS_MIN);
    let held = if fits || !is_large { None } else { held() };
    (fits || held.is_some()).then(|| claim(case, &Secured { time, statement, work, rows, index, held }))
}

/// Whether what it returns does not show how many rows it was allowed to see.
fn aggregates(statement: &StatementTime) -> bool {
    statement::shape(&statement.text).is_ok_and(|shape| shape.aggregates)
}

fn claim(case: &Case, found: &Secured<'_>) -> Claim {
    let Secured { time, statement, work, rows, .. } = found;
    let is_cheap = matches!(work.kind, Kind::Value | Kind::Constant) || found.held.is_some();
    let is_unsure = is_cheap && aggregates(statement);
    let most = if is_unsure { Severity::Medium } else { Severity::High };
    let text = format!(
        "{}: {} of the session time is one statement on {}, {}",
        time.node,
        units::percent(statement.share),
        work.policy.relation,
        advice::sentence(found)
    );
    let commands = advice::commands(found);
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    Claim::new(severity(statement.share).min(most), Level::CoOccurrence, text)
        .on_node(&time.node)
        .during(case.one("server", &time.node).map(|server| server.ticks.window()))
        .number("share", statement.share)
        .with(*rows, |claim, rows| claim.number("rows_per_call", rows))
        .with(statement.blocks, |claim, blocks| claim.number("blocks_per_call", blocks))
        .because(format!("the statement: {}", in_a_line(statement)))
        .because(format!(
            "policy {} of {}, for {}: {}",
            work.policy.name,
            work.policy.relation,
            work.policy.command,
            super::costly::plain(&work.policy.condition, advice::CONDITION_CHARS)
        ))
        .with(rows.and_then(|rows| Some((rows, each_ms(time, statement, rows)?))), |claim, (rows, each_ms)| {
            claim.because(format!(
                "an execution reads {} rows of the table by the server's counters, and takes {} of CPU time for each",
                units::count(rows),
                units::us(each_ms * 1e3)
            ))
        })
        .with(advice::held_back(statement).filter(|_| found.held.is_none()), Claim::because)
        .lacking("the policy's own work: EXPLAIN (ANALYZE, BUFFERS) as the role of the application shows it; superusers, the owner and roles with BYPASSRLS \
            get a plan without policies")
        .with(is_unsure.then_some(super::plan::HOW_MANY_FIT), |claim, lack| {
            claim.lacking(lack).number(super::plan::UNSURE, 1.0)
        })
        .remedy(advice::text(found), &commands)
}

/// A finding where the policies were not recorded: the statement does more than its plan shows.
fn unknown(case: &Case, planned: &Planned<'_>, policies: &[(&str, Policy)]) -> Option<Claim> {
    let is_of_plan = |name: &str| planned.nodes.iter().any(|node| node.lines.word("relation") == name);
    let secured = case.facts(PECULIAR).find(|fact| {
        fact.node == planned.time.node && fact.value.contains(SECURED) && is_of_plan(&fact.name)
    });
    let table = secured.map(|fact| fact.name.as_str())?;
    if policies.iter().any(|(node, policy)| *node == planned.time.node && policy.relation == table) {
        return None;
    }
    let blocks = planned.statement.blocks.unwrap_or(0.0);
    let text = format!(
        "a statement that takes {} of the session time touches {} blocks per execution of {table}, which has row-level security: what its policies ask is \
         evaluated for each row, by a query or a function (one that is VOLATILE, or that takes a column of the row)",
        units::percent(planned.statement.share),
        units::short(blocks)
    );
    Some(
        planned
            .claim(case, Level::CoOccurrence, severity(planned.statement.share), text)
            .number("blocks_per_call", blocks)
            .because(format!(
                "the planner's cost for our role, to which the policies may not apply, is only {}",
                units::short(planned.plan.lines.last("cost_total").unwrap_or(0.0))
            ))
            .lacking("the policies' own work: EXPLAIN (ANALYZE, BUFFERS) as the role of the application shows it")
            .remedy(
                "let a policy compare columns with a value that is computed once: (SELECT f()) instead of f(), and f() declared STABLE; where f takes \
                    a column, \
                 let a function without one return all permitted keys at once: column = ANY (ARRAY(SELECT permitted())); give the columns an index",
                &[
                    &format!("SELECT polname, pg_get_expr(polqual, polrelid) FROM pg_policy WHERE polrelid = {}::regclass;", literal(table)),
                    "SELECT oid::regprocedure, provolatile FROM pg_proc WHERE provolatile = 'v' AND pronamespace::regnamespace::text !~ \
                     '^(pg_|information_schema)'; -- the functions that are evaluated for each row",
                ],
            ),
    )
}

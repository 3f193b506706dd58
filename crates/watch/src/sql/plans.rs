//! Plans of the statements that take the most time, without running them, and what a change would make of them.
//!
//! Which statements are planned, and when, is up to [`due`]; one at a time. It is planned in a transaction that only reads, with limits of time, from a text
//! that a parser has checked, with parameters instead of values (`EXPLAIN (GENERIC_PLAN)`, before PostgreSQL 16 PREPARE with
//! `plan_cache_mode = force_generic_plan`). [`safety`] decides whether our role may. A plan is recorded once for each shape.

mod as_role;
mod custom;
mod definitions;
mod due;
mod inside;
mod nesting;
mod path;
mod safety;
mod tree;
mod trial;
mod types;
mod used;

use super::json::{self, count, flag, list, number, text};
use super::session::{Failed, Session};
use super::{Link, Node, Tick};
use crate::collect::{Batch, Collect, With};
use as_role::Role;
use connect::sql;
use custom::explain;
use due::{Figures, Wanted};
use inside::{Author, Inner};
use record::event;
use record::statement;
use record::watched::{MORE_THAN_READ, Plan, PlanFunction, PlanIndex, PlanNode, PlanTable};
use safety::Planner;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};
use tree::TreeNode;
use types::{Alone, NotPlanned, TYPES, Values, WANTS_VALUES, typed};

/// Longer texts were cut when they were read.
const TEXT_CHARS_MAX: usize = 3_999;
/// How long the end of a recording may plan.
const END_MAX: Duration = Duration::from_secs(3);
/// What opens the transaction.
const BEGIN: &str = "begin read only";
/// The same as another role: it takes a temporary table.
const BEGIN_AS_ROLE: &str = "begin read write";
/// A connection on which code of others may run is ended if it does not answer for this long.
const ROLE_PATIENCE: Duration = Duration::from_secs(3);
/// All that is tried for one statement.
const TRIED_MAX: Duration = Duration::from_secs(3);
/// Limits of the transaction, and what `watch` sets for itself but clients do not.
const LIMITS: &str = "set local idle_in_transaction_session_timeout = 0; set local statement_timeout = '2s'; set local lock_timeout = '50ms'; \
    set local plan_cache_mode = 'force_generic_plan'; set local max_parallel_workers_per_gather = 2; set local jit = off";
/// A statement that cannot be planned must not leave an error in the server's log. Only a superuser may change that for its transaction.
const QUIET: &str = "select pg_catalog.set_config('log_min_messages', 'fatal', true) from pg_catalog.pg_roles \
    where rolname operator(pg_catalog.=) current_user and rolsuper";
/// Where names are looked up by all statements but the one that is planned.
const OWN_PATH: &str = "set local search_path = pg_catalog, pg_temp";
/// `server_version_num` from which EXPLAIN has GENERIC_PLAN. An older server writes an error into its log when that is tried.
const GENERIC_PLAN_SINCE: u64 = 160_000;
/// From so many scans below one Append on, EXPLAIN EXECUTE shows whether partitions are left out when it runs.
const PARTITIONS_MIN: u64 = 8;
/// `server_version_num` from which EXPLAIN has the time of planning.
const SUMMARY_SINCE: u64 = 100_000;
/// Planning that took longer is measured again: the first look at a table in a session reads the catalog as well.
const PLANNING_MS_MIN: f64 = 1.0;
/// Reasons that are listed, and statements that are named with each.
const REASONS_MAX: usize = 3;
const NAMED_MAX: usize = 8;

/// What is known of the statements of a node.
#[derive(Debug, Default)]
pub(super) struct Plans {
    /// By database and id.
    totals: HashMap<(String, String), Figures>,
    texts: HashMap<String, Known>,
    /// Of statements that are known only from the sessions that were seen at work with them: the database.
    sampled: HashMap<String, String>,
    /// The time of the last sample of the statements.
    last_us: u64,
    /// Sessions that were seen at work with each, without a wait.
    at_work: HashMap<String, u64>,
    /// The last plan of each; `None` if it could not be planned.
    seen: BTreeMap<String, Option<Seen>>,
    /// The statements inside of the functions that a statement leads to, each with the function's name.
    inner: HashMap<String, Vec<Inner>>,
    /// Why statements were not planned.
    reasons: BTreeMap<String, String>,
    /// Tables of others that roles are seen to use.
    used: used::Used,
    /// What else is done.
    pub(super) planning: Planning,
}

/// What is done besides the plan of each statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Planning {
    /// EXPLAIN is also run with other settings.
    pub tries_settings: bool,
}

/// A statement's text, and the role that ran it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Known {
    text: String,
    user: String,
    /// Of a statement inside of a function: who wrote it.
    author: Option<Author>,
    /// Object ids of tables that sessions of the role are seen to use by it.
    used: Vec<String>,
}

/// A plan that was made.
#[derive(Clone, PartialEq, Debug)]
struct Seen {
    hash: String,
    /// Mean of the executions at that time.
    mean_ms: f64,
}

/// What planning a statement returned.
struct Looked {
    plan: Plan,
    nodes: Vec<TreeNode>,
    explained: Value,
    details: Value,
}

impl Plans {
    /// The reasons in one line, those of most statements first.
    fn why_not(&self) -> String {
        let mut by_reason: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (id, why) in &self.reasons {
            by_reason.entry(why).or_default().push(id);
        }
        let mut all: Vec<(&str, Vec<&str>)> = by_reason.into_iter().collect();
        all.sort_by_key(|(why, ids)| (!why.contains(MORE_THAN_READ), std::cmp::Reverse(ids.len())));
        let listed = all.iter().take(REASONS_MAX).map(|(why, ids)| match ids.as_slice() {
            [id] => format!("statement {id}: {why}"),
            ids => {
                let named = &ids[..ids.len().min(NAMED_MAX)];
                format!("{} statements ({}): {why}", ids.len(), named.join(", "))
            }
        });
        let more = all.len().saturating_sub(REASONS_MAX);
        let rest = if more > 0 { format!("; and {more} more reasons") } else { String::new() };
        listed.collect::<Vec<_>>().join("; ") + &rest
    }
}

impl Node {
    /// Plans what is due: one statement at a tick, all at the end.
    pub(super) fn query_plans(&mut self, tick: &Tick, is_end: bool, batch: &mut Batch) -> Result<(), Failed> {
        self.plans.take(batch);
        self.look_at_use()?;
        let due = self.plans.due(is_end);
        let most = if is_end { due.len() } else { 1 };
        self.plan_each(tick, due.into_iter().take(most), is_end, batch)?;
        if is_end { self.plan_what_is_used(tick, batch) } else { Ok(()) }
    }

    /// Plans one after the other, as long as there is time.
    fn plan_each(
        &mut self,
        tick: &Tick,
        due: impl Iterator<Item = Wanted>,
        is_end: bool,
        batch: &mut Batch,
    ) -> Result<(), Failed> {
        let begun = Instant::now();
        for wanted in due {
            if begun.elapsed() > END_MAX {
                break;
            }
            let mut known = self.plans.texts.get(&wanted.query_id).cloned().unwrap_or_default();
            known.used = self.plans.used.by(&wanted.query_id, &known.user);
            self.record_named(tick, (&wanted.query_id, &known.text), batch)?;
            let Link::Up(up) = &mut self.link else { return Ok(()) };
            let before = self.plans.seen.get(&wanted.query_id).cloned().flatten().map(|seen| seen.hash);
            let within = self.plans.inner.get(&wanted.query_id).map_or(&[][..], Vec::as_slice);
            match inside::look(&mut up.session, &wanted, &known, within) {
                Ok(looked) => {
                    let known = known.or_inside(&looked.plan, within);
                    let seen = Seen { hash: looked.plan.hash.clone(), mean_ms: wanted.mean_ms };
                    self.plans.seen.insert(wanted.query_id.clone(), Some(seen));
                    if before.as_deref() != Some(looked.plan.hash.as_str()) {
                        let tries_settings = self.plans.planning.tries_settings;
                        let trials = trial::all(&mut up.session, &looked, &known, tries_settings)?;
                        self.record(tick, looked, before, trials, batch);
                    }
                }
                // A lock may be free at the next tick.
                Err(NotPlanned::Locked(_)) if !is_end => {}
                Err(NotPlanned::Unproved(why)) => {
                    self.plans.seen.insert(wanted.query_id.clone(), None);
                    self.plans.used.want(wanted.query_id, why);
                }
                Err(NotPlanned::Why(why) | NotPlanned::Type(why) | NotPlanned::Locked(why)) => {
                    self.record_why(tick, wanted.query_id, why, batch);
                }
                Err(NotPlanned::Gone(failed)) => {
                    // Perhaps because of it: it is not tried again.
                    self.plans.seen.entry(wanted.query_id).or_insert(None);
                    return Err(failed);
                }
            }
        }
        Ok(())
    }

    /// Keeps why a statement was not planned.
    fn record_why(&mut self, tick: &Tick, query_id: String, why: String, batch: &mut Batch) {
        self.plans.seen.entry(query_id.clone()).or_insert(None);
        self.plans.reasons.insert(query_id, why);
        let lost = "how the server executes these statements";
        let missing = self.place().missing("plans", self.plans.why_not(), lost);
        self.recorded.missing(batch, tick.clock.now_us(), missing);
    }

    fn record(
        &mut self,
        tick: &Tick,
        looked: Looked,
        before: Option<String>,
        trials: Vec<record::watched::WhatIf>,
        batch: &mut Batch,
    ) {
        let t_us = tick.clock.now_us();
        let Looked { mut plan, nodes, explained, details } = looked;
        plan.node.clone_from(&self.name);
        if let Some(before) = before {
            let message = format!("{}: statement {} has another plan", self.name, plan.query_id);
            let event = self.event(t_us, event::PLAN_CHANGED, message);
            let event = event.with("query_id", plan.query_id.clone());
            batch.event(event.with("before", before).with("after", plan.hash.clone()));
        }
        let kept = json!({"node": self.name, "database": plan.database, "query_id": plan.query_id, "hash": plan.hash,
            "plan": tree::without_constants(&explained)});
        let path = format!("{}/{}-{}.json", record::files::PLANS, plan.query_id, plan.hash);
        batch.file(path, kept.to_string().into_bytes());
        for node in &nodes {
            batch.reading(t_us, plan_node(&self.name, &plan, node, &details));
        }
        for table in list(&details, "tables") {
            for index in list(table, "indexes") {
                batch.reading(t_us, tree::index(&self.name, &plan.database, table, index));
            }
            batch.reading(t_us, tree::table(&self.name, &plan.database, table));
        }
        for function in list(&details, "functions") {
            batch.reading(t_us, tree::function(&self.name, &plan.database, function));
        }
        for mut line in trials {
            line.node.clone_from(&self.name);
            batch.reading(t_us, line);
        }
        batch.reading(t_us, plan);
    }
}

fn plan_node(node: &str, plan: &Plan, found: &TreeNode, details: &Value) -> PlanNode {
    let is_it = |table: &&Value| text(table, "schema") == found.schema && text(table, "name") == found.table;
    let table = list(details, "tables").iter().find(is_it).unwrap_or(&Value::Null);
    // What an index is searched for may have several operators of one name, which differ in their types.
    let of_text = |text: &String| statement::conditions(text).unwrap_or_default();
    let conditions: Vec<_> = [&found.filter, &found.condition].into_iter().flat_map(of_text).collect();
    let of_columns = |what: &str| {
        let words = conditions.iter().filter_map(|condition| {
            Some(format!("{} {}", condition.column, table[what][&condition.column].as_str()?))
        });
        words.collect::<Vec<_>>().join("; ")
    };
    PlanNode {
        node: node.to_string(),
        query_id: plan.query_id.clone(),
        hash: plan.hash.clone(),
        number: found.number,
        above: found.above,
        kind: found.kind.clone(),
        subquery: found.subquery.then_some(true),
        relation: text(table, "relation"),
        alias: found.alias.clone(),
        index: found.index.clone(),
        filter: found.filter.clone(),
        condition: found.condition.clone(),
        remote: found.remote.clone(),
        foreign_server: text(table, "server"),
        batch_size: found.batch,
        join: found.join.clone(),
        adds_nothing: found.adds_nothing.filter(|adds_nothing| *adds_nothing),
        workers: found.workers,
        rows_planned: found.rows,
        width_bytes: found.width,
        cost_total: found.cost,
        table_rows: number(table, "rows").filter(|rows| *rows >= 0.0),
        partitioned: flag(table, "partitioned"),
        column_types: of_columns("columns"),
        column_collations: of_columns("collations"),
        column_most: of_columns("most"),
    }
}

/// A statement that has passed the checks, in an open transaction.
struct Open {
    plain: String,
    path: String,
    /// The schemas in it, without the server's.
    schemas: Vec<String>,
    names: Value,
    /// The role that ran it.
    user: String,
    /// Whether its path leaves out schemas in which others may make objects.
    is_for_role: bool,
    /// The role that plans, if it is not ours.
    role: Option<Role>,
}

impl Open {
    /// A name that the server did not find may be in a schema that was left out.
    fn explained(&self, failed: Failed) -> Failed {
        match failed {
            Failed::Refused { sqlstate, message } if types::IS_UNDEFINED.contains(&sqlstate.as_str()) => {
                let why = path::explained(&self.names, &self.schemas, self.is_for_role, &self.user, &message);
                Failed::Refused { sqlstate, message: why.unwrap_or(message) }
            }
            other => other,
        }
    }
}

/// Plans a statement, and leaves nothing behind. An engine that cannot plan for unknown values gets some.
fn look(session: &mut Session, wanted: &Wanted, known: &Known) -> Result<Looked, NotPlanned> {
    match look_with(session, wanted, known, Values::Unknown) {
        Err(NotPlanned::Why(why)) if why.contains(WANTS_VALUES) => {
            look_with(session, wanted, known, Values::Any)
        }
        looked => looked,
    }
}

fn look_with(
    session: &mut Session,
    wanted: &Wanted,
    known: &Known,
    values: Values,
) -> Result<Looked, NotPlanned> {
    within(session, known, |session, open| {
        if open.names["database"] != wanted.database.as_str() {
            return Err(NotPlanned::Why(format!(
                "it runs in database {}, which is not watched",
                wanted.database
            )));
        }
        planned(session, open, wanted, values)
    })
}

/// Checks a text and opens the transaction for it; ends it, whatever happens inside.
fn within<T>(
    session: &mut Session,
    known: &Known,
    mut work: impl FnMut(&mut Session, &Open) -> Result<T, NotPlanned>,
) -> Result<T, NotPlanned> {
    let (mut first, mut tried) = (None, vec![]);
    let begun = Instant::now();
    for kind in TYPES {
        if begun.elapsed() > TRIED_MAX {
            break;
        }
        // Without such parameters another type changes nothing.
        let text_as = statement::plannable(&known.text).map(|plain| typed(&plain, kind)).unwrap_or_default();
        if tried.contains(&text_as) {
            continue;
        }
        let result = within_as(session, known, kind, &mut work);
        let Err(NotPlanned::Type(_)) = &result else { return result };
        first.get_or_insert(result);
        tried.push(text_as);
    }
    first.unwrap_or_else(|| Err(NotPlanned::Why("its parameters have no known type".to_string())))
}

fn within_as<T>(
    session: &mut Session,
    known: &Known,
    kind: (Alone, &str),
    work: &mut impl FnMut(&mut Session, &Open) -> Result<T, NotPlanned>,
) -> Result<T, NotPlanned> {
    let why = |why: String| NotPlanned::Why(why);
    let text = &known.text;
    if session.is_shared() {
        return Err(why("a pooler shares the connection; connect to the server itself".to_string()));
    }
    if text.is_empty() || text.chars().count() > TEXT_CHARS_MAX {
        return Err(why("its whole text is not known".to_string()));
    }
    let plain = typed(&statement::plannable(text).map_err(|error| why(error.to_string()))?, kind);
    let parsed = statement::parse(&plain).map_err(|error| why(error.to_string()))?;
    let tables: Vec<String> =
        parsed.tables.into_iter().filter(|table| table.schema.is_none()).map(|table| table.name).collect();
    session.plain(&format!("{BEGIN}; {LIMITS}; {QUIET}"))?;
    let open = match opened(session, known, plain, &tables) {
        Ok(open) => open,
        Err(NotPlanned::Gone(failed)) => return Err(NotPlanned::Gone(failed)),
        Err(refused) => {
            session.plain("rollback")?;
            return Err(refused);
        }
    };
    if open.role.is_none() {
        return prepared(session, &open, work);
    }
    session.plain("rollback")?;
    let mut beside = session.beside(ROLE_PATIENCE).map_err(|failed| why(failed.to_string()))?;
    beside.session.customs.clone_from(&session.customs);
    let result = beside
        .session
        .plain(&format!("{BEGIN_AS_ROLE}; {LIMITS}; {QUIET}; {}", as_role::QUIET))
        .map_err(NotPlanned::from)
        .and_then(|_| prepared(&mut beside.session, &open, work));
    session.customs.clone_from(&beside.session.customs);
    let Err(NotPlanned::Gone(failed)) = result else { return result };
    session.end(beside.pid)?;
    Err(why(format!("the connection on which it was planned: {failed}")))
}

/// Whether a statement may be planned, by whom, and where its names are looked up.
fn opened(
    session: &mut Session,
    known: &Known,
    plain: String,
    tables: &[String],
) -> Result<Open, NotPlanned> {
    let why = |why: String| NotPlanned::Why(why);
    let names = session.query(
        &safety::of_names(),
        &[&statement::names(&plain), &tables, &known.user, &known.used, &plain],
    )?;
    if !plain.is_ascii() && json::text(&names, "encoding") != "UTF8" {
        return Err(why("a name has letters that this encoding may fold in its own way".to_string()));
    }
    let role = as_role::of(&names).map_err(why)?;
    let path = as_role::path(&names, role.as_ref());
    if role.as_ref().is_none_or(|role| role.is_sieved) {
        safety::check_names(&names).map_err(why)?;
    }
    if path.is_some() && known.author.as_ref().is_some_and(|author| !author.is_for(&known.user)) {
        return Err(why(
            "it is inside of a function of another role, or of one that runs as its owner".to_string()
        ));
    }
    let is_for_role = path.is_some();
    let mut places = safety::schemas(&names, tables, path.as_deref())?;
    if !is_for_role {
        // Functions and types beside the tables, such as those of extensions: the sieve knows each by its name, wherever it is.
        let others = path::trusted(&names).into_iter().filter(|schema| !places.path.contains(schema));
        let others: Vec<String> = others.collect();
        places.path.extend(others);
    }
    let path =
        [&["pg_catalog".to_string()], places.path.as_slice(), &["pg_temp".to_string()]].concat().join(", ");
    let plain = statement::with_schemas(&plain, &places.written).map_err(|error| why(error.to_string()))?;
    let is_read = role.as_ref().is_some_and(|role| role.is_sieved);
    let plain = if is_read { as_role::readable(plain) } else { plain };
    nesting::check(session, &plain, &places.path)?;
    Ok(Open { plain, path, schemas: places.path, names, user: known.user.clone(), is_for_role, role })
}

/// Prepares a statement in the transaction that is open, and ends that, whatever happens inside.
fn prepared<T>(
    session: &mut Session,
    open: &Open,
    work: &mut impl FnMut(&mut Session, &Open) -> Result<T, NotPlanned>,
) -> Result<T, NotPlanned> {
    let planner = match &open.role {
        None => Planner::Ourselves,
        Some(role) if role.is_sieved => Planner::Reader,
        Some(_) => Planner::Itself,
    };
    let mut is_prepared = false;
    let mut inside = |session: &mut Session| {
        // The text has no semicolon, no literal and no comment: it cannot end here and go on as another statement.
        session
            .plain(&format!(
                "set local search_path = {}; prepare pgfathom_plan as {}; {OWN_PATH}",
                open.path, open.plain
            ))
            .map_err(|failed| NotPlanned::from(open.explained(failed)))?;
        is_prepared = true;
        let tables = session.query(&safety::of_tables(), &[&open.user, &open.plain])?;
        safety::check_tables(&tables, planner, open.is_for_role).map_err(NotPlanned::Why)?;
        work(session, open)
    };
    let result = inside(session);
    if matches!(result, Err(NotPlanned::Gone(_))) {
        return result;
    }
    session.plain(if is_prepared { "rollback; deallocate pgfathom_plan" } else { "rollback" })?;
    result
}

fn planned(
    session: &mut Session,
    open: &Open,
    wanted: &Wanted,
    values: Values,
) -> Result<Looked, NotPlanned> {
    let version = count(&open.names, "version_num").unwrap_or(0);
    let summary = if version >= SUMMARY_SINCE { "summary, " } else { "" };
    let command = match version >= GENERIC_PLAN_SINCE {
        _ if values == Values::Any => types::with_any_values(session)?,
        true => format!("explain ({summary}generic_plan, verbose, format json) {}", open.plain),
        false => executed(open, summary),
    };
    let explained = explain(session, open, &command)?;
    let mut planning_ms = tree::planning_of(&explained);
    if planning_ms.is_some_and(|ms| ms >= PLANNING_MS_MIN) {
        session.plain("discard plans")?;
        let again = explain(session, open, &command)?;
        planning_ms = tree::planning_of(&again).or(planning_ms);
    }
    let (mut nodes, count_of_nodes) = tree::nodes(&explained);
    let Some(top) = nodes.first() else {
        return Err(NotPlanned::Why("the server's plan has an unknown form".to_string()));
    };
    let (cost, mut rows) = (top.cost, top.rows);
    if top.kind == "ModifyTable" {
        rows = nodes.get(1).and_then(|node| node.rows);
    }
    let hash = tree::shape(&nodes);
    let (mut partitions, mut removed) = tree::partitions(&nodes);
    if version >= GENERIC_PLAN_SINCE && partitions >= PARTITIONS_MIN && values == Values::Unknown {
        let (less, _) = tree::nodes(&explain(session, open, &executed(open, ""))?);
        removed = tree::partitions(&less).1;
    } else {
        partitions += removed.unwrap_or(0);
    }
    let (schemas, names): (Vec<String>, Vec<String>) = nodes
        .iter()
        .filter(|node| !node.table.is_empty())
        .map(|node| (node.schema.clone(), node.table.clone()))
        .collect::<std::collections::BTreeSet<_>>()
        .into_iter()
        .take(PARTITIONS_MIN as usize * 2)
        .unzip();
    let details = session.query(&safety::details(), &[&schemas, &names, &tree::names(&nodes)])?;
    nodes.truncate(tree::NODES_MAX);
    let plan = Plan {
        node: String::new(),
        database: wanted.database.clone(),
        query_id: wanted.query_id.clone(),
        function: String::new(),
        inner: String::new(),
        hash,
        how: if values == Values::Any { "custom" } else { "generic" }.to_string(),
        cost_total: cost,
        rows_planned: rows,
        nodes: Some(count_of_nodes),
        partitions: Some(partitions),
        partitions_removed: removed,
        tasks: tree::tasks(&explained),
        jit_above_cost: number(&open.names, "jit_above_cost").filter(|cost| *cost >= 0.0),
        work_mem_bytes: count(&open.names, "work_mem_kb").map(|kb| kb * 1024),
        planning_ms,
    };
    Ok(Looked { plan, nodes, explained, details })
}

/// The prepared statement with nulls: under `force_generic_plan` they have no influence on the plan. `more` are further options, each with its comma.
fn executed(open: &Open, more: &str) -> String {
    let nulls = vec!["null"; statement::parameters(&open.plain)];
    let list = if nulls.is_empty() { String::new() } else { format!("({})", nulls.join(", ")) };
    format!("explain ({more}verbose, format json) execute pgfathom_plan{list}")
}

/// The first value that each command returns, run by the role that plans.
fn answers(session: &mut Session, open: &Open, commands: &[String]) -> Result<Vec<String>, NotPlanned> {
    match &open.role {
        Some(role) => as_role::run(session, role, &open.path, commands),
        None => {
            let all = commands.join("; ");
            Ok(session.plain(&format!("set local search_path = {}; {all}; {OWN_PATH}", open.path))?)
        }
    }
}

impl Known {
    /// What was planned: the statement itself, or one inside of its functions.
    fn or_inside(self, plan: &Plan, within: &[Inner]) -> Known {
        let inner = within.iter().find(|inner| plan.inner == inner.text && plan.function == inner.function);
        match inner {
            Some(inner) => self.inside(inner),
            None => self,
        }
    }

    fn inside(self, inner: &Inner) -> Known {
        Known { text: inner.text.clone(), user: self.user, author: Some(inner.author.clone()), ..self }
    }
}

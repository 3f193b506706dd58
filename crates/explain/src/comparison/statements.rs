//! Statements before and after: new ones, those that are gone, those that run more often, those that take longer, and those with another plan.

use super::{Scale, Unit, WEIGHT_MIN};
use crate::case::{Case, Thing};
use crate::node_time;
use record::finding::NodeTime;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Relations of a plan that are named.
const SCANS_MAX: usize = 4;

/// What became of a statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// It runs on both sides.
    Kept,
    /// It runs only on the later side.
    New,
    /// It runs only on the earlier side.
    Gone,
}

/// A statement on both sides, in the unit of its node.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct StatementChange {
    /// `queryid`; of the later side if it has it.
    pub query_id: String,
    /// Its text, constants replaced; empty if it is not known.
    pub text: String,
    /// Where it runs.
    pub fate: Fate,
    /// Its session time before and after.
    pub time: [f64; 2],
    /// The difference as a share of all of the earlier time.
    pub weight: f64,
    /// Of `weight`, what follows from more or fewer executions; absent where they are not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by_calls: Option<f64>,
    /// Of `weight`, what follows from longer or shorter executions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by_duration: Option<f64>,
    /// Executions a second.
    pub calls_per_s: [f64; 2],
    /// Milliseconds of an execution, with planning.
    pub mean_ms: [f64; 2],
    /// The scans and joins of its plan before and after, if they differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<[String; 2]>,
}

/// A statement on one side.
#[derive(Clone, PartialEq, Debug, Default)]
struct Ran {
    query_ids: BTreeSet<String>,
    text: String,
    sessions: f64,
    calls_per_s: f64,
}

impl Ran {
    fn mean_ms(&self) -> f64 {
        if self.calls_per_s > 0.0 { self.sessions * 1e3 / self.calls_per_s } else { 0.0 }
    }
}

/// The statements whose time changed noticeably, the largest change first.
pub(super) fn changes(
    scale: &Scale,
    before: (&Case, &NodeTime),
    after: (&Case, &NodeTime),
) -> Vec<StatementChange> {
    let (old, new) = (ran(before), ran(after));
    let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let nothing = Ran::default();
    let mut changes: Vec<StatementChange> = keys
        .into_iter()
        .map(|key| {
            let (was, is) = (old.get(key), new.get(key));
            let fate = match (was, is) {
                (Some(_), None) => Fate::Gone,
                (None, _) => Fate::New,
                _ => Fate::Kept,
            };
            let (was, is) = (was.unwrap_or(&nothing), is.unwrap_or(&nothing));
            let plan = (fate == Fate::Kept).then(|| replaced(before, was, after, is)).flatten();
            change(scale, fate, was, is, plan)
        })
        .filter(|change| change.weight.abs() >= WEIGHT_MIN || change.plan.is_some())
        .collect();
    changes.sort_by(|left, right| right.weight.abs().total_cmp(&left.weight.abs()));
    changes
}

fn change(scale: &Scale, fate: Fate, was: &Ran, is: &Ran, plan: Option<[String; 2]>) -> StatementChange {
    let time = [scale.of(was.sessions, 0), scale.of(is.sessions, 1)];
    // Executions for each transaction, or each second; the two effects add up to the whole.
    let per = |ran: &Ran, side: usize| match scale.unit {
        Unit::UsPerTransaction => ran.calls_per_s / scale.transactions_per_s[side],
        Unit::Sessions => ran.calls_per_s,
    };
    let in_unit = |mean_ms: f64| match scale.unit {
        Unit::UsPerTransaction => mean_ms * 1e3,
        Unit::Sessions => mean_ms / 1e3,
    };
    let is_counted = was.calls_per_s > 0.0 && is.calls_per_s > 0.0;
    let by_calls = (per(is, 1) - per(was, 0)) * in_unit(was.mean_ms());
    let by_duration = per(is, 1) * (in_unit(is.mean_ms()) - in_unit(was.mean_ms()));
    let latest = if fate == Fate::Gone { was } else { is };
    StatementChange {
        query_id: latest.query_ids.iter().next().cloned().unwrap_or_default(),
        text: latest.text.clone(),
        fate,
        time,
        weight: scale.weight(time[1] - time[0]),
        by_calls: is_counted.then(|| scale.weight(by_calls)),
        by_duration: is_counted.then(|| scale.weight(by_duration)),
        calls_per_s: [was.calls_per_s, is.calls_per_s],
        mean_ms: [was.mean_ms(), is.mean_ms()],
        plan,
    }
}

/// All statements of a node by text, or by number where the text is not known: numbers differ between servers.
fn ran((case, time): (&Case, &NodeTime)) -> BTreeMap<String, Ran> {
    let windows = node_time::windows(case);
    let mut all: BTreeMap<String, Ran> = BTreeMap::new();
    let mut add = |query_id: &str, sessions: f64, calls_per_s: f64| {
        let text = case.query(query_id).unwrap_or("");
        // Two looks of ours at a server are no change of its load.
        if case.is_own_statement(query_id) {
            return;
        }
        let key = if text.is_empty() { query_id } else { text };
        let ran = all.entry(key.to_owned()).or_default();
        ran.query_ids.insert(query_id.to_owned());
        ran.text = text.to_owned();
        ran.sessions += sessions;
        ran.calls_per_s += calls_per_s;
    };
    let covered_s = node_time::polled_s(case, &time.node, &windows);
    let mut is_counted = false;
    for Thing { lines, .. } in case.at("statement", &time.node) {
        is_counted = true;
        let sum = |field: &str| lines.series(field).map_or(0.0, |series| series.within(&windows).sum());
        let calls = sum("calls");
        if calls > 0.0 && covered_s > 0.0 {
            let ms = sum("total_ms") + sum("plan_ms");
            add(lines.word("query_id"), ms / 1e3 / covered_s, calls / covered_s);
        }
    }
    if !is_counted {
        for statement in &time.statements {
            add(&statement.query_id, statement.sessions, statement.calls_per_s.unwrap_or(0.0));
        }
    }
    all
}

/// The plans of a statement that runs on both sides, if they differ.
fn replaced(
    before: (&Case, &NodeTime),
    was: &Ran,
    after: (&Case, &NodeTime),
    is: &Ran,
) -> Option<[String; 2]> {
    let (old, new) = (shape(before, was)?, shape(after, is)?);
    (old.0 != new.0 && old.1 != new.1).then_some([old.1, new.1])
}

/// Hash and scans of the plan that a statement has at the end of a side.
fn shape((case, time): (&Case, &NodeTime), ran: &Ran) -> Option<(String, String)> {
    let its = |thing: &Thing<'_>| ran.query_ids.contains(thing.lines.word("query_id"));
    let last = |thing: &Thing<'_>| thing.lines.ticks.window().to_us;
    let plan = case.at("plan", &time.node).filter(its).max_by_key(last)?;
    let hash = plan.lines.word("hash");
    let mut nodes: Vec<(u64, String)> = case
        .at("plan_node", &time.node)
        .filter(|node| its(node) && node.lines.word("hash") == hash)
        .filter_map(|node| {
            let (kind, relation, index) =
                (node.lines.word("kind"), node.lines.word("relation"), node.lines.word("index"));
            let text = match (relation, index) {
                ("", _) if kind.contains("Join") || kind == "Nested Loop" => kind.to_owned(),
                ("", _) => return None,
                (relation, "") => format!("{kind} on {relation}"),
                (relation, index) => format!("{kind} on {relation} by {index}"),
            };
            Some((node.lines.last("number").unwrap_or(0.0) as u64, text))
        })
        .collect();
    nodes.sort();
    let more = nodes.len().saturating_sub(SCANS_MAX);
    let named: Vec<String> = nodes.into_iter().take(SCANS_MAX).map(|(_, text)| text).collect();
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    Some((hash.to_owned(), named.join(", ") + &more))
}

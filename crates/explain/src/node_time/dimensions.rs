//! The time of a node by relation, application, user, database, client host, and by the session at the root of lock waits.
//!
//! Samples and counters only share out what the account measured: each table adds up to at most the time of all sessions.

use super::{CPU, FOR_CPU, ON_CPU};
use crate::case::Case;
use record::escape::one_line;
use record::finding::{Dimension, NodePart, Window};
use std::collections::BTreeMap;

/// Values listed per property.
const VALUES_MAX: usize = 6;
/// Values below this share of the time are not listed.
const SHARE_MIN: f64 = 0.01;
/// Characters of a statement in the name of a root.
const QUERY_CHARS: usize = 60;

/// Properties of sessions, and the fields of their samples.
const OF_SESSIONS: [(&str, &str); 4] =
    [("application", "application"), ("user", "user"), ("database", "database"), ("client host", "client")];

/// Every property that was recorded.
pub(super) fn all(
    case: &Case,
    node: &str,
    windows: &[Window],
    active: f64,
    samples: f64,
    parts: &[NodePart],
) -> Vec<Dimension> {
    if active <= 0.0 {
        return vec![];
    }
    let mut found: Vec<Dimension> = relations(case, node, windows, parts).into_iter().collect();
    found.extend(OF_SESSIONS.iter().filter_map(|(name, field)| sessions(case, node, windows, name, field)));
    found.extend(lock_roots(case, node, windows, active, samples));
    found
}

/// The largest first, without small ones; `None` if nothing is left.
fn dimension(name: &str, how: &str, shares: BTreeMap<String, f64>) -> Option<Dimension> {
    let mut shares: Vec<(String, f64)> =
        shares.into_iter().filter(|(_, share)| *share >= SHARE_MIN).collect();
    shares.sort_by(|left, right| right.1.total_cmp(&left.1));
    shares.truncate(VALUES_MAX);
    (!shares.is_empty()).then(|| Dimension { name: name.to_string(), how: how.to_string(), shares })
}

/// Time on a CPU, waiting for one, and reading, in proportion to the blocks of each table and its indexes that were touched.
fn relations(case: &Case, node: &str, windows: &[Window], parts: &[NodePart]) -> Option<Dimension> {
    let touched = |thing: &crate::case::Thing<'_>| {
        let blocks =
            |field: &str| thing.lines.series(field).map_or(0.0, |series| series.within(windows).sum());
        blocks("blocks_hit") + blocks("blocks_read")
    };
    let tables: Vec<(String, f64)> = case
        .at("table", node)
        .map(|thing| (thing.lines.word("relation").to_string(), touched(&thing)))
        .collect();
    let all: f64 = tables.iter().map(|(_, blocks)| blocks).sum();
    if all <= 0.0 {
        return None;
    }
    let is_work = |part: &&NodePart| [ON_CPU, FOR_CPU, CPU, "reading"].contains(&part.name.as_str());
    let work: f64 = parts.iter().filter(is_work).map(|part| part.share).sum();
    let mut shares: BTreeMap<String, f64> = BTreeMap::new();
    for (relation, blocks) in tables {
        *shares.entry(relation).or_default() += blocks / all * work;
    }
    dimension(
        "relation",
        "CPU and reading, by the blocks of each table and its indexes that were touched",
        shares,
    )
}

/// By a property of the sessions that were sampled at work.
fn sessions(case: &Case, node: &str, windows: &[Window], name: &str, field: &str) -> Option<Dimension> {
    let mut seen: BTreeMap<String, f64> = BTreeMap::new();
    for thing in case.at("activity", node) {
        let sessions = thing.lines.series("sessions").map_or(0.0, |series| series.within(windows).sum());
        let word = thing.lines.word(field);
        let word = if word.is_empty() { "(none)" } else { word };
        *seen.entry(word.to_string()).or_default() += sessions;
    }
    let all: f64 = seen.values().sum();
    if all <= 0.0 {
        return None;
    }
    seen.values_mut().for_each(|sessions| *sessions /= all);
    dimension(name, "by samples of the active sessions", seen)
}

/// The sessions at the root of lock waits, with the time that others spent behind them.
fn lock_roots(case: &Case, node: &str, windows: &[Window], active: f64, samples: f64) -> Option<Dimension> {
    let mut behind: BTreeMap<String, f64> = BTreeMap::new();
    // A line for each waiter and look: sessions that take turns at the root each have those behind them.
    for root in case.at("block", node) {
        let seen = root.lines.ticks.within(windows).sum();
        let session = case.at("session", node).find(|session| session.name == root.name);
        let query = session.map_or("", |session| session.lines.word("query"));
        let name = match (root.name, query) {
            ("0", _) => "a prepared transaction".to_string(),
            (root, "") => format!("session {root}"),
            (root, query) => format!("session {root}: {}", one_line(query, QUERY_CHARS)),
        };
        *behind.entry(name).or_default() += seen;
    }
    behind.values_mut().for_each(|seen| *seen = (*seen / samples / active).min(1.0));
    dimension("lock root", "sessions that waited behind it, by samples", behind)
}

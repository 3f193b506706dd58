//! What changed between two recordings, or between two intervals of one: where the time of a transaction went before and after, which statements,
//! plans, settings and programs changed, and how much of the change each of them is.
//!
//! The change is weighed as a share of the earlier time, so the weights of the parts add up to the change of the whole. A comparison of two intervals
//! proves no cause: it shows what changed at the same time.

mod statements;
mod text;

pub use statements::{Fate, StatementChange};
pub use text::text;

use crate::case::{Case, Lines};
use crate::node_time;
use crate::series::Series;
use record::finding::{Finding, NodeTime, Severity, Window};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Fewer transactions a second than this are no measure of work: average sessions are compared instead.
const TRANSACTIONS_PER_S_MIN: f64 = 1.0;
/// Changes below this share of the earlier time are not listed.
pub(crate) const WEIGHT_MIN: f64 = 0.02;
/// Counters that describe the work, and what they count.
const WORK: [(&str, &str); 10] = [
    ("xact_rollback", "rollbacks"),
    ("sessions_opened", "sessions opened"),
    ("tup_inserted", "rows inserted"),
    ("tup_updated", "rows updated"),
    ("tup_deleted", "rows deleted"),
    ("tup_returned", "rows scanned"),
    ("blks_read", "blocks read"),
    ("temp_bytes", "bytes of temporary files"),
    ("wal_bytes", "bytes of WAL"),
    ("checkpoints_requested", "checkpoints requested"),
];
/// A rate that changes by less than this factor is not listed.
const RATE_FACTOR: f64 = 1.25;
/// Rates below this are not listed.
const RATE_MIN: f64 = 0.1;

/// One side of a comparison.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Side {
    /// The run.
    pub run_id: String,
    /// Seconds of the run that are compared.
    pub from_s: f64,
    /// Their end.
    pub to_s: f64,
}

/// What a time is measured in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Microseconds of session time for each transaction.
    UsPerTransaction,
    /// Average active sessions, where hardly a transaction ended.
    Sessions,
}

/// Something before and after.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Change {
    /// What.
    pub name: String,
    /// Before.
    pub before: f64,
    /// After.
    pub after: f64,
    /// The difference as a share of all of the earlier time; absent of what is no part of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<f64>,
}

/// A setting or a fact with two values.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct Replaced {
    /// `setting`, `server`, `mount`, ...
    pub topic: String,
    /// Its name.
    pub name: String,
    /// Before; empty if it was not there.
    pub before: String,
    /// After; empty if it is not there any more.
    pub after: String,
}

/// What changed at a node.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct NodeChange {
    /// Its name, that of the later side.
    pub node: String,
    /// The unit of all times.
    pub unit: Unit,
    /// All session time.
    pub total: Change,
    /// Transactions a second.
    pub transactions_per_s: [f64; 2],
    /// Average active sessions.
    pub active: [f64; 2],
    /// The parts of the time, the largest change first; their weights add up to that of the total.
    pub parts: Vec<Change>,
    /// Wait events by name.
    pub waits: Vec<Change>,
    /// Statements, the largest change first.
    pub statements: Vec<StatementChange>,
    /// Applications, users, databases and client hosts whose share of the time changed.
    pub load: Vec<Change>,
    /// Rates a second that describe the work.
    pub work: Vec<Change>,
    /// Settings and other facts of the server.
    pub facts: Vec<Replaced>,
}

/// What changed between two sides.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Comparison {
    /// The earlier side.
    pub before: Side,
    /// The later side.
    pub after: Side,
    /// Nodes of both.
    pub nodes: Vec<NodeChange>,
    /// Percent of the CPU of each host, used by all programs and taken by the hypervisor.
    pub hosts: Vec<Change>,
    /// Facts of the hosts.
    pub host_facts: Vec<Replaced>,
    /// Findings that only the later side has: rule and claim.
    pub findings_new: Vec<String>,
    /// Findings that only the earlier side has.
    pub findings_gone: Vec<String>,
    /// What could not be compared, and why.
    pub missing: Vec<String>,
}

/// Compares two recordings.
pub fn compare(before: &Case, after: &Case, tool_version: &str) -> Comparison {
    let (pairs, mut missing) = pairs(node_time::all(before), node_time::all(after));
    for (case, which) in [(before, "earlier"), (after, "later")] {
        let is_uncounted = |node: &&str| case.at("statement", node).next().is_none();
        missing.extend(case.nodes().into_iter().filter(is_uncounted).map(|node| {
            format!("{node}: no counters of statements on the {which} side (read every 10 s, by pg_stat_statements): statements are by samples")
        }));
    }
    let nodes = pairs.iter().map(|(old, new)| node(before, after, old, new)).collect();
    let names: BTreeMap<&str, &str> =
        pairs.iter().map(|(old, new)| (old.node.as_str(), new.node.as_str())).collect();
    let [old, new] = [before, after].map(|case| costly(crate::judge(case, tool_version).findings));
    let renamed = |finding: &Finding| {
        let node = finding.node.as_deref().unwrap_or_default();
        (finding.rule.clone(), names.get(node).copied().unwrap_or(node).to_owned())
    };
    let of_old: BTreeSet<_> = old.iter().map(renamed).collect();
    let of_new: BTreeSet<_> =
        new.iter().map(|one| (one.rule.clone(), one.node.clone().unwrap_or_default())).collect();
    let line = |finding: &Finding| format!("{}: {}", finding.rule, finding.claim);
    Comparison {
        before: side(before),
        after: side(after),
        nodes,
        hosts: hosts(before, after),
        host_facts: facts(before, after, |fact| fact.node.is_empty().then_some(fact.host.as_str())),
        findings_new: new
            .iter()
            .filter(|one| !of_old.contains(&(one.rule.clone(), one.node.clone().unwrap_or_default())))
            .map(line)
            .collect(),
        findings_gone: old.iter().filter(|one| !of_new.contains(&renamed(one))).map(line).collect(),
        missing,
    }
}

fn costly(findings: Vec<Finding>) -> Vec<Finding> {
    findings
        .into_iter()
        .filter(|finding| finding.severity > Severity::Note && finding.symptom_of.is_none())
        .collect()
}

fn side(case: &Case) -> Side {
    let windows = node_time::windows(case);
    let within = |window: &Window| (window.from_us.max(case.span.from_us), window.to_us.min(case.span.to_us));
    let from_us = windows.iter().map(|window| within(window).0).min().unwrap_or(0);
    let to_us = windows.iter().map(|window| within(window).1).max().unwrap_or(0);
    Side { run_id: case.run.run_id.clone(), from_s: from_us as f64 / 1e6, to_s: to_us as f64 / 1e6 }
}

/// Nodes of one name; two single nodes belong together whatever they are called.
fn pairs<'a>(
    before: &'a [NodeTime],
    after: &'a [NodeTime],
) -> (Vec<(&'a NodeTime, &'a NodeTime)>, Vec<String>) {
    if let ([old], [new]) = (before, after) {
        return (vec![(old, new)], vec![]);
    }
    let pairs: Vec<_> = after
        .iter()
        .filter_map(|new| before.iter().find(|old| old.node == new.node).map(|old| (old, new)))
        .collect();
    let lone = |times: &[NodeTime], side: &str| -> Vec<String> {
        let is_lone = |time: &&NodeTime| pairs.iter().all(|(old, _)| old.node != time.node);
        times
            .iter()
            .filter(is_lone)
            .map(|time| format!("node {} is only in the {side} recording", time.node))
            .collect()
    };
    let mut missing = lone(before, "earlier");
    missing.extend(lone(after, "later"));
    if before.is_empty() || after.is_empty() {
        let side = if before.is_empty() { "earlier" } else { "later" };
        missing.push(format!("the {side} side has no samples of a server's sessions"));
    }
    (pairs, missing)
}

/// The measure of a node's work and time on both sides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    unit: Unit,
    transactions_per_s: [f64; 2],
    total: [f64; 2],
}

impl Scale {
    fn new(active: [f64; 2], transactions_per_s: [f64; 2]) -> Scale {
        let has_work = transactions_per_s.iter().all(|rate| *rate >= TRANSACTIONS_PER_S_MIN);
        let unit = if has_work { Unit::UsPerTransaction } else { Unit::Sessions };
        let mut scale = Scale { unit, transactions_per_s, total: active };
        scale.total = [scale.of(active[0], 0), scale.of(active[1], 1)];
        scale
    }

    /// Average sessions in the unit, on side 0 or 1.
    fn of(&self, sessions: f64, side: usize) -> f64 {
        match self.unit {
            Unit::UsPerTransaction => sessions * 1e6 / self.transactions_per_s[side],
            Unit::Sessions => sessions,
        }
    }

    fn weight(&self, difference: f64) -> f64 {
        difference / self.total[0].max(f64::MIN_POSITIVE)
    }

    fn change(&self, name: &str, sessions: [f64; 2]) -> Change {
        let [before, after] = [self.of(sessions[0], 0), self.of(sessions[1], 1)];
        Change { name: name.to_owned(), before, after, weight: Some(self.weight(after - before)) }
    }
}

fn node(before: &Case, after: &Case, old: &NodeTime, new: &NodeTime) -> NodeChange {
    let rate = |case: &Case, node: &str, field: &str| {
        let windows = node_time::windows(case);
        case.one("server", node)?.series(field).map(|series| series.within(&windows).rate())
    };
    let rates = |field: &str| [rate(before, &old.node, field), rate(after, &new.node, field)];
    let commits = rates("xact_commit").map(Option::unwrap_or_default);
    let rollbacks = rates("xact_rollback").map(Option::unwrap_or_default);
    let transactions_per_s = [commits[0] + rollbacks[0], commits[1] + rollbacks[1]];
    let active = [old.active, new.active];
    let scale = Scale::new(active, transactions_per_s);
    let work = WORK.iter().filter_map(|(field, name)| {
        let [Some(before), Some(after)] = rates(field) else { return None };
        let is_other = before.max(after) >= RATE_MIN && before.max(after) >= before.min(after) * RATE_FACTOR;
        is_other.then(|| Change { name: (*name).to_owned(), before, after, weight: None })
    });
    NodeChange {
        node: new.node.clone(),
        unit: scale.unit,
        total: scale.change("session time", active),
        transactions_per_s,
        active,
        parts: merged(&scale, &by_part(old), &by_part(new)),
        waits: merged(&scale, &by_event(old), &by_event(new)),
        statements: statements::changes(&scale, (before, old), (after, new)),
        load: load(&scale, old, new),
        work: work.collect(),
        facts: facts(before, after, |fact| {
            let is_its = fact.node == old.node || fact.node == new.node;
            is_its.then_some("")
        }),
    }
}

fn by_part(time: &NodeTime) -> BTreeMap<String, f64> {
    time.parts.iter().map(|part| (part.name.clone(), part.sessions)).collect()
}

fn by_event(time: &NodeTime) -> BTreeMap<String, f64> {
    let events = time.parts.iter().flat_map(|part| &part.events);
    events.map(|(event, share)| (event.clone(), share * time.active)).collect()
}

/// Changes of all names of both sides, the largest first.
fn merged(scale: &Scale, before: &BTreeMap<String, f64>, after: &BTreeMap<String, f64>) -> Vec<Change> {
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let sessions = |side: &BTreeMap<String, f64>, name: &String| side.get(name).copied().unwrap_or(0.0);
    let mut changes: Vec<Change> = names
        .into_iter()
        .map(|name| scale.change(name, [sessions(before, name), sessions(after, name)]))
        .collect();
    changes.sort_by(|left, right| {
        let size = |change: &Change| change.weight.unwrap_or(0.0).abs();
        size(right).total_cmp(&size(left))
    });
    changes
}

/// The sessions of applications, users, databases and client hosts: other load.
fn load(scale: &Scale, old: &NodeTime, new: &NodeTime) -> Vec<Change> {
    let of = |time: &NodeTime| -> BTreeMap<String, f64> {
        let owners = time.by.iter().filter(|by| !["relation", "lock root"].contains(&by.name.as_str()));
        let shares = owners.flat_map(|by| {
            by.shares.iter().map(move |(name, share)| (format!("{} {name}", by.name), *share))
        });
        shares.map(|(name, share)| (name, share * time.active)).collect()
    };
    let (before, after) = (of(old), of(new));
    // What grows with the whole is no other load.
    let share = |side: &BTreeMap<String, f64>, active: f64, name: &str| {
        side.get(name).map_or(0.0, |sessions| sessions / active.max(f64::MIN_POSITIVE))
    };
    let mut changes = merged(scale, &before, &after);
    changes.retain(|change| {
        (share(&after, new.active, &change.name) - share(&before, old.active, &change.name)).abs()
            >= WEIGHT_MIN
    });
    changes
}

/// CPU of hosts in percent.
fn hosts(before: &Case, after: &Case) -> Vec<Change> {
    let of = |case: &Case, host: &str| -> Option<[f64; 2]> {
        let windows = node_time::windows(case);
        let lines: &Lines = case.one("host", host)?;
        let mean = |field: &str| {
            let series: Series = lines.series(field)?.within(&windows);
            (!series.is_empty()).then(|| series.mean())
        };
        let busy = ["cpu_user_pct", "cpu_system_pct", "cpu_softirq_pct"].into_iter().filter_map(mean).sum();
        Some([busy, mean("cpu_steal_pct").unwrap_or(0.0)])
    };
    let single = matches!((before.hosts().as_slice(), after.hosts().as_slice()), ([_], [_]));
    let mut changes = vec![];
    for host in after.hosts() {
        let old = if single { before.hosts().first().copied() } else { Some(host) };
        let (Some(old), Some(new)) = (old.and_then(|old| of(before, old)), of(after, host)) else { continue };
        for (which, name) in ["CPU", "CPU taken by the hypervisor"].into_iter().enumerate() {
            let name = format!("{host}: {name}");
            changes.push(Change { name, before: old[which], after: new[which], weight: None });
        }
    }
    changes
}

/// Facts with two values; `place` selects them and returns what must be equal for two facts to be the same, beside topic and name.
fn facts<'a>(
    before: &'a Case,
    after: &'a Case,
    place: impl Fn(&'a record::watched::Fact) -> Option<&'a str>,
) -> Vec<Replaced> {
    // Left out is what differs in every recording.
    let is_kept =
        |topic: &str, name: &str| !["clock", "fanotify"].contains(&topic) && !name.ends_with("started_at");
    let of = |case: &'a Case| -> BTreeMap<(&'a str, &'a str, &'a str), &'a str> {
        let kept = case.all_facts().iter().filter(|fact| is_kept(&fact.topic, &fact.name));
        kept.filter_map(|fact| {
            Some(((place(fact)?, fact.topic.as_str(), fact.name.as_str()), fact.value.as_str()))
        })
        .collect()
    };
    let (old, new) = (of(before), of(after));
    let names: BTreeSet<_> = old.keys().chain(new.keys()).copied().collect();
    // A topic that one side did not record at all is no difference.
    let topics = |side: &BTreeMap<(&'a str, &'a str, &'a str), &'a str>| -> BTreeSet<&'a str> {
        side.keys().map(|(_, topic, _)| *topic).collect()
    };
    let (of_old, of_new) = (topics(&old), topics(&new));
    names
        .into_iter()
        .filter(|key| of_old.contains(key.1) && of_new.contains(key.1))
        .filter_map(|key| {
            let value = |side: &BTreeMap<_, &'a str>| side.get(&key).copied().unwrap_or("").to_owned();
            let (before, after) = (value(&old), value(&new));
            let (topic, name) = (key.1.to_owned(), key.2.to_owned());
            (before != after).then_some(Replaced { topic, name, before, after })
        })
        .collect()
}

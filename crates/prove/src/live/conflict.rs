//! `conflict`: concurrent writes of the same rows on several nodes, and then the rows on each node.
//!
//! Increments of one counter on every node must all be in its final value, or an acknowledged write was overwritten; and when replication has caught up, all
//! nodes must have the same rows. The control is ownership: each node writes only its own counters, with the same load, and then both must hold even where
//! no rule resolves conflicts. If that shows nothing (on one node it must not), the control is a lost update: clients that read a value and write it back
//! incremented must overwrite each other.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use connect::cluster_file::Role;
use engines::Engine;
use engines::profile::Layout;

use super::failures::Failures;
use super::tables::{self, SCHEMA, Shape, Tables, converge};
use super::{Lasting, LiveError, Options, Watch, after_all, again, lost_rows, under_faults};
use crate::client::{Client, Reply, number};
use crate::fault::{Happened, Site};
use crate::outcome::{At, Outcome, of_broken, of_reply};
use crate::simulate::Draw;

const SHAPE: Shape =
    Shape { name: "conflict", columns: "id int not null, v bigint not null", key: Some("shard, id") };
/// Counters that all nodes fight for.
const COUNTERS: usize = 2;
/// And where a conflict takes an engine so long that hardly an increment gets through.
const MORE_COUNTERS: usize = 32;
/// How long a statement may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// With fewer acknowledged increments of the same rows, they are counted again for longer, and on more rows.
const CONTENDED_MIN: u64 = 300;
/// How much longer.
const SLOW_FACTOR: u32 = 3;

/// Attempts of the lost-update control until it shows one.
const CARELESS_TRIES: usize = 5;

/// How the counters are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// Every session writes its own.
    Owned,
    /// Every session writes all of so many.
    Contended(usize),
    /// The same, but the client computes the value from an earlier read.
    Careless,
}

/// The results of one way of writing.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ConflictResults {
    /// Increments that were acknowledged.
    pub acknowledged: u64,
    /// Increments whose end is unknown.
    pub unknown: u64,
    /// Increments that were refused, for example with 40001: the cost of conflicts.
    pub refused: u64,
    /// The sum of all counters on each node at the end.
    pub sums: Vec<(String, i64)>,
    /// Counters whose value is not the same on all nodes.
    pub diverged: u64,
    /// Counters.
    pub counters: u64,
    /// Acknowledged increments that are missing even on the node with the highest sum.
    pub overwritten: u64,
    /// Replication did not catch up: which nodes lag, or have stopped.
    pub stuck: Vec<String>,
    /// The first counter that differs, node by node.
    pub witness: Vec<String>,
    /// What was refused.
    pub failures: Failures,
}

impl ConflictResults {
    /// All nodes have the same rows, and every acknowledged increment.
    pub fn is_whole(&self) -> bool {
        self.diverged == 0 && self.overwritten == 0 && self.stuck.is_empty()
    }
}

/// What came out.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Report {
    /// Every node writes the same counters.
    pub contended: ConflictResults,
    /// Every node writes its own.
    pub owned: ConflictResults,
    /// Clients overwrite values that they have read. `None` if the same rows have shown conflicts anyway.
    pub careless: Option<ConflictResults>,
    /// Nodes that took writes.
    pub nodes: u64,
    /// The faults that were injected.
    pub happened: Vec<Happened>,
}

/// Runs each way of writing for its share of the time.
///
/// # Errors
/// When the tables cannot be made or read.
pub fn run(site: &Site, options: &Options, stop: &AtomicBool) -> Result<Report, LiveError> {
    let nodes: Vec<usize> = match site.engine.layout {
        Layout::Copies(_) => {
            (0..site.nodes.len()).filter(|node| site.nodes[*node].role == Role::Peer).collect()
        }
        _ => vec![site.primary()],
    };
    let mut options = options.clone();
    options.duration /= if nodes.len() == 1 { 3 } else { 2 };
    let mut report = Report { nodes: nodes.len() as u64, ..Report::default() };
    report.owned = measure(site, &options, stop, &nodes, Way::Owned, &mut report.happened)?;
    // The plan of faults is complete; the rest is about conflicts.
    options.plan = crate::fault::Plan::default();
    report.contended = measure(site, &options, stop, &nodes, Way::Contended(COUNTERS), &mut report.happened)?;
    // Where conflicts end by a detector of deadlocks, a node commits one increment in a second.
    let is_slow = report.contended.is_whole() && report.contended.acknowledged < CONTENDED_MIN;
    if is_slow && !stop.load(Ordering::Relaxed) {
        let longer = Options { duration: options.duration * SLOW_FACTOR, ..options.clone() };
        site.announce(format!(
            "{} increments of the same rows are few: counting again on more rows, for {:.0} s",
            report.contended.acknowledged,
            longer.duration.as_secs_f64()
        ));
        let way = Way::Contended(MORE_COUNTERS);
        report.contended = measure(site, &longer, stop, &nodes, way, &mut report.happened)?;
    }
    for _ in 0..CARELESS_TRIES {
        let is_shown = report.careless.as_ref().is_some_and(|results| results.overwritten > 0);
        if is_shown || !report.contended.is_whole() || stop.load(Ordering::Relaxed) {
            break;
        }
        site.announce("the control: clients that read a value and write it back".to_owned());
        let careless = measure(site, &options, stop, &nodes, Way::Careless, &mut report.happened)?;
        report.careless = Some(careless);
    }
    Ok(report)
}

/// One way of writing, from creating the tables to reading them at the end.
fn measure(
    site: &Site,
    options: &Options,
    stop: &AtomicBool,
    nodes: &[usize],
    way: Way,
    happened: &mut Vec<Happened>,
) -> Result<ConflictResults, LiveError> {
    let nodes = &present(site, nodes)?;
    let tables = Tables::make(site, &[SHAPE])?;
    let writers = if nodes.len() > 1 { nodes.len() } else { options.clients.max(2) };
    let counters = match way {
        Way::Owned => writers,
        Way::Contended(counters) => counters,
        Way::Careless => COUNTERS,
    };
    let rows = (0..counters).map(|id| format!("{SCHEMA}.conflict values (1, {id}, 0)"));
    tables::fill(site, nodes[0], rows)?;
    // All nodes have the counters before the first increment.
    let stuck = converge(site, nodes)?;
    if !stuck.is_empty() {
        return Err(LiveError::Deaf(format!("replication does not work: {}", stuck.join("; "))));
    }
    again(site, || every_node_has(site, nodes, counters))?;
    let ran = under_faults(site, options, stop, writers, |number, watch| {
        let spec = options.dressed(site.nodes[nodes[number % nodes.len()]].client_spec());
        let session = Lasting::new(spec, options.patience);
        count(site.engine, options, session, number, way, watch)
    });
    happened.extend(ran.happened);
    let mut results =
        ConflictResults { counters: counters as u64, failures: ran.failures, ..ConflictResults::default() };
    let mut observed = ran.observed;
    drop(after_all(site, &tables, &mut observed, PATIENCE)?);
    for [acknowledged, refused, unknown] in ran.parts {
        results.acknowledged += acknowledged;
        results.refused += refused;
        results.unknown += unknown;
    }
    let nodes = &present(site, nodes).map_err(lost_rows)?;
    results.stuck = converge(site, nodes).map_err(lost_rows)?;
    again(site, || compare(site, nodes, &mut results)).map_err(lost_rows)?;
    tables.remove(site);
    Ok(results)
}

/// Those of the nodes that answer as a part of the cluster, when they have had time to come back. Where each node has all rows the proof goes on without the
/// others, which a note names.
///
/// # Errors
/// When one is away that the proof cannot do without.
fn present(site: &Site, nodes: &[usize]) -> Result<Vec<usize>, LiveError> {
    if nodes.len() < 2 {
        return Ok(nodes.to_vec());
    }
    let mut there = Vec::new();
    for node in nodes {
        let answers = || Ok(tables::client(site, *node)?.execute("select 1").map(drop)?);
        match again(site, answers) {
            Ok(()) => there.push(*node),
            Err(LiveError::Client(error)) if site.engine.layout.commits_everywhere() => site.note(format!(
                "{} did not come back, so nothing is proved about it from then on: {error}",
                site.nodes[*node].name
            )),
            Err(error) => return Err(error),
        }
    }
    match there.len() {
        0 | 1 => {
            Err(LiveError::Unfit("fewer than two nodes are left: nothing is written at once".to_owned()))
        }
        _ => Ok(there),
    }
}

/// Makes sure that each node has all counters: an update of one that is not there would change nothing.
fn every_node_has(site: &Site, nodes: &[usize], counters: usize) -> Result<(), LiveError> {
    for node in nodes {
        let held = tables::client(site, *node)?
            .execute(&format!("select count(*) from {SCHEMA}.conflict"))?
            .number()
            .unwrap_or_default();
        if usize::try_from(held) != Ok(counters) {
            let name = &site.nodes[*node].name;
            return Err(LiveError::Deaf(format!("node {name} has {held} of {counters} counters")));
        }
    }
    Ok(())
}

/// Increments until the end: acknowledged, refused, unknown.
fn count(
    engine: Engine,
    options: &Options,
    mut session: Lasting,
    number: usize,
    way: Way,
    watch: &Watch<'_>,
) -> [u64; 3] {
    let (mut counts, mut turn) = ([0; 3], number);
    let mut draw = Draw::new(number as u64);
    while watch.goes_on() {
        let Some(client) = session.get() else { continue };
        turn += 1;
        let id = match way {
            Way::Owned => number,
            Way::Contended(COUNTERS) | Way::Careless => turn % COUNTERS,
            // Sessions that take their turns in step would seldom meet.
            Way::Contended(counters) => draw.below(counters as u32) as usize,
        };
        let sql = match way {
            Way::Careless => {
                let read = client
                    .request(&format!("select v from {SCHEMA}.conflict where shard = 1 and id = {id}"))
                    .inspect(|reply| watch.count(reply))
                    .ok()
                    .and_then(|reply| reply.number());
                let Some(value) = read else {
                    session.lose();
                    continue;
                };
                // READ COMMITTED allows this: at a stronger level the read would have to be in the same transaction.
                format!(
                    "begin isolation level read committed; update {SCHEMA}.conflict set v = {} where shard = 1 and id = {id}",
                    value + 1
                )
            }
            _ => format!(
                "{}; update {SCHEMA}.conflict set v = v + 1 where shard = 1 and id = {id}",
                options.level.begin()
            ),
        };
        let Some(client) = session.get() else { continue };
        let (outcome, is_lost) = change(client, engine, &sql, watch);
        if is_lost {
            session.lose();
        }
        match outcome {
            Outcome::Ok | Outcome::OkWeak => counts[0] += 1,
            Outcome::Fail => counts[1] += 1,
            Outcome::Info | Outcome::Partial => counts[2] += 1,
        }
    }
    counts
}

/// Sends the change and its COMMIT; gives the outcome, and whether the connection is lost.
fn change(client: &mut Client, engine: Engine, sql: &str, watch: &Watch<'_>) -> (Outcome, bool) {
    let requested = client.request(sql);
    requested.iter().for_each(|reply| watch.count(reply));
    match requested {
        // An update that finds no row increments nothing, whatever its COMMIT answers.
        Ok(reply) if has_changed(&reply) => {
            let at = At::Commit { wide: false };
            match client.request("commit") {
                Ok(reply) => {
                    watch.count(&reply);
                    (of_reply(engine, at, &reply).outcome, watch.has_to_leave(&reply))
                }
                Err(broken) => (of_broken(engine, at, &broken).outcome, true),
            }
        }
        Ok(reply) => (Outcome::Fail, watch.has_to_leave(&reply) || client.request("rollback").is_err()),
        Err(_) => (Outcome::Fail, true),
    }
}

/// Whether the change was made, to the one row that it is about.
fn has_changed(reply: &Reply) -> bool {
    reply.error.is_none() && reply.tag() == "UPDATE 1"
}

fn compare(site: &Site, nodes: &[usize], results: &mut ConflictResults) -> Result<(), LiveError> {
    let mut held: Vec<Vec<i64>> = Vec::new();
    results.sums.clear();
    // The node that takes writes may have changed.
    let now = [site.primary()];
    let nodes = if nodes.len() == 1 { &now } else { nodes };
    for node in nodes {
        let mut client = Client::connect(&site.nodes[*node].spec, PATIENCE)?;
        let rows = client.execute(&format!("select v from {SCHEMA}.conflict order by shard, id"))?;
        let values: Vec<i64> = rows.rows().iter().filter_map(|row| number(row.first()?)).collect();
        results.sums.push((site.nodes[*node].name.clone(), values.iter().sum()));
        held.push(values);
    }
    for counter in 0..results.counters as usize {
        let values: Vec<Option<i64>> = held.iter().map(|values| values.get(counter).copied()).collect();
        if values.windows(2).any(|pair| pair[0] != pair[1]) {
            results.diverged += 1;
            if results.witness.is_empty() {
                results.witness = std::iter::zip(&results.sums, &values)
                    .map(|((name, _), value)| match value {
                        Some(value) => format!("{name}: counter {counter} is {value}"),
                        None => format!("{name}: counter {counter} is missing"),
                    })
                    .collect();
            }
        }
    }
    let most = results.sums.iter().map(|(_, sum)| *sum).max().unwrap_or(0);
    results.overwritten = results.acknowledged.saturating_sub(u64::try_from(most).unwrap_or(0));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Done;

    #[test]
    fn an_update_of_no_row_is_no_increment() {
        let reply = |tag: &str| Reply {
            done: ["BEGIN", tag]
                .map(|tag| Done { tag: tag.to_owned(), rows: Vec::new() })
                .into_iter()
                .collect(),
            ..Reply::default()
        };
        assert!(has_changed(&reply("UPDATE 1")));
        assert!(!has_changed(&reply("UPDATE 0")) && !has_changed(&Reply::default()));
    }
}

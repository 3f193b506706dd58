//! Settings, schema and state of a node, as its catalogs and views show them.
//!
//! One read-only session per node runs one query per check, each in its own transaction, with limits for statements and locks. Names are looked up in
//! `pg_catalog` only, and no object of a user is read or called, so a plain role's objects cannot run code with the privileges of the session. A check
//! that lacks a privilege, a view or a release is *unknown* and gives the reason; it never passes.

mod draft;
pub mod given;
mod node;
mod planned;
pub mod rule;
mod schema;
mod setting;
mod settings;
mod state;

pub use given::{Expected, Machine, Storage, Target};
pub use rule::{Check, Need};

use connect::conninfo::Host as Address;
use node::{Node, PlannedSpace};
use record::check::{Area, Item, Limit, Unit, Verdict};
use record::finding::Remedy;
use record::number;
use std::collections::BTreeMap;
use watch::sql::session::Failed;

/// Every check, in the order of the areas.
pub fn all() -> impl Iterator<Item = &'static Check> {
    settings::all().chain(schema::all()).chain(planned::CHECKS).chain(state::all())
}

/// The checks that have something to judge: those of a plan only with one.
fn wanted(expected: &Expected) -> impl Iterator<Item = &'static Check> {
    let has_plan = expected.storage.is_some();
    all().filter(move |check| has_plan || !check.needs.contains(&Need::Plan))
}

/// Checks nodes, all at once. The items are in the order of the nodes.
pub fn check(targets: &[Target], expected: &Expected) -> Vec<Item> {
    let read: Vec<Read> = std::thread::scope(|scope| {
        let start = |target| {
            let servers = targets.iter().filter(|other| place(other) == place(target)).count() as u64;
            (target, scope.spawn(move || of_node(target, expected, servers)))
        };
        let threads: Vec<_> = targets.iter().map(start).collect();
        let read = threads.into_iter().map(|(target, thread)| {
            thread.join().unwrap_or_else(|_| {
                let why = "the check ended with an error of the program";
                Read { items: lost(target, wanted(expected), why), ..Read::default() }
            })
        });
        read.collect()
    });
    let shared = shared_space(targets, &read);
    let mut items = without_what_the_primary_answers(read);
    items.extend(shared);
    items
}

/// What the plan needs of one file system, with the names of the nodes on it.
type Sharing<'a> = Vec<(&'a str, &'a PlannedSpace)>;

/// Nodes that share a file system need its space together, even if it is enough for each alone.
fn shared_space(targets: &[Target], read: &[Read]) -> Vec<Item> {
    let mut shared: BTreeMap<(Option<&str>, &str), Sharing> = BTreeMap::new();
    for (target, one) in targets.iter().zip(read) {
        for space in &one.planned_space {
            shared.entry((place(target), &space.system)).or_default().push((&target.name, space));
        }
    }
    let item = |nodes: Sharing| {
        let needed: f64 = nodes.iter().map(|(_, space)| space.needed_bytes).sum();
        let free = nodes.iter().map(|(_, space)| space.free_bytes).fold(f64::INFINITY, f64::min);
        let is_seen_alone = nodes.iter().any(|(_, space)| space.needed_bytes > space.free_bytes);
        if nodes.len() < 2 || needed <= free || is_seen_alone {
            return None;
        }
        let names = nodes.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        let claim = format!(
            "{} are free for {names} together; the plan needs {}",
            number::bytes(free),
            number::bytes(needed)
        );
        let item =
            Item { check: planned::SPACE.into(), area: Area::State, subject: names, ..Item::default() };
        let item = item.figure(free, Unit::Bytes).judged(Verdict::Fail, record::escape::visible(&claim));
        let item = item.why("the nodes share a file system, which is full before each of them has its rows");
        Some(Item { limit: Some(Limit::AtLeast(needed)), ..item })
    };
    shared.into_values().filter_map(item).collect()
}

/// What was read of a node.
#[derive(Debug, Default)]
struct Read {
    items: Vec<Item>,
    /// The system identifier, which a standby shares with its primary; empty if the node was not reached.
    system: String,
    is_standby: bool,
    planned_space: Vec<PlannedSpace>,
}

/// The checks that only a primary can answer do not count for its standbys if it was checked as well.
fn without_what_the_primary_answers(mut read: Vec<Read>) -> Vec<Item> {
    let is_primary = |one: &&Read| !one.is_standby && !one.system.is_empty();
    let primaries: Vec<String> = read.iter().filter(is_primary).map(|one| one.system.clone()).collect();
    let ids: Vec<&str> =
        all().filter(|check| check.needs.contains(&Need::Primary)).map(|check| check.id).collect();
    for one in read.iter_mut().filter(|one| one.is_standby && primaries.contains(&one.system)) {
        one.items.retain(|item| !ids.contains(&item.check.as_str()));
    }
    read.into_iter().flat_map(|one| one.items).collect()
}

/// Where a node runs, as far as its address shows it; `None` is this host.
fn place(target: &Target) -> Option<&str> {
    match &target.spec.hosts.first()?.host {
        Address::Unix(_) => None,
        Address::Tcp(name) => Some(name.as_str()).filter(|name| {
            *name != "localhost"
                && !name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
        }),
    }
}

/// The item of a node that cannot be checked at all.
pub fn unreached(node: &str, why: &str) -> Item {
    Item {
        check: "node.reached".to_string(),
        area: Area::State,
        node: Some(node.to_string()),
        verdict: Verdict::Fail,
        claim: record::escape::visible(&format!("the node was not checked: {why}")).replace('\n', " "),
        why: "nothing is known about this node".to_string(),
        ..Item::default()
    }
}

/// The item of a node that the engine's catalog has and the cluster file does not.
pub fn unlisted(address: &str) -> Item {
    Item {
        check: "node.listed".to_string(),
        area: Area::State,
        subject: record::escape::visible(address).into_owned(),
        verdict: Verdict::Warn,
        claim: record::escape::visible(&format!(
            "the engine has a node at {address} that the cluster file does not name"
        ))
        .into_owned(),
        why: "it is neither checked, sampled nor entered".to_string(),
        remedy: Remedy { text: "add a [[node]] for it to the cluster file".to_string(), ..Remedy::default() },
        ..Item::default()
    }
}

/// All items of one node.
fn of_node(target: &Target, expected: &Expected, servers: u64) -> Read {
    let mut node = match Node::open(target, expected, servers) {
        Ok(node) => node,
        Err(error) => {
            return Read { items: vec![unreached(&target.name, &error.to_string())], ..Read::default() };
        }
    };
    let (mut items, system) = (Vec::new(), node.system());
    let mut checks = wanted(expected);
    while let Some(check) = checks.next() {
        match rule::run(check, &mut node) {
            Ok(found) => items.extend(found),
            Err(Failed::Refused { message, .. } | Failed::Ended(message) | Failed::Gone(message)) => {
                items.push(rule::not_run(
                    check,
                    &target.name,
                    &format!("the connection was lost: {message}"),
                ));
                if let Err(error) = node.reopen() {
                    items.extend(lost(target, checks, &format!("the connection was lost: {error}")));
                    break;
                }
            }
        }
    }
    each_drop_once(&mut items);
    Read { items, system, is_standby: node.is("is_standby"), planned_space: node.planned_space }
}

/// An index may be dropped for two reasons, as one that is unused and equal to another one. With the first command it is gone.
fn each_drop_once(items: &mut [Item]) {
    let mut seen = std::collections::HashSet::new();
    for command in items.iter_mut().flat_map(|item| &mut item.remedy.commands) {
        let is_again = command.starts_with("DROP INDEX ") && !seen.insert(command.clone());
        if is_again {
            let is_beside = command.contains("CONCURRENTLY ");
            let before = if is_beside { "DROP INDEX CONCURRENTLY " } else { "DROP INDEX " };
            *command = command.replacen(before, &format!("{before}IF EXISTS "), 1);
        }
    }
}

/// Items for checks that were not run.
fn lost(target: &Target, checks: impl Iterator<Item = &'static Check>, why: &str) -> Vec<Item> {
    checks.map(|check| rule::not_run(check, &target.name, why)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_dropped_once_whatever_checks_name_it() {
        let item = |commands: &[&str]| Item {
            remedy: Remedy {
                text: "drop it".into(),
                commands: commands.iter().map(ToString::to_string).collect(),
            },
            ..Item::default()
        };
        let analyze = "ANALYZE t;";
        let (drop, beside) = ("DROP INDEX i;", "DROP INDEX CONCURRENTLY j;");
        let mut items = [item(&[drop]), item(&[drop, analyze]), item(&[beside]), item(&[beside])];
        each_drop_once(&mut items);
        let commands: Vec<Vec<String>> = items.iter().map(|item| item.remedy.commands.clone()).collect();
        let expected: [&[&str]; 4] = [
            &[drop],
            &["DROP INDEX IF EXISTS i;", analyze],
            &[beside],
            &["DROP INDEX CONCURRENTLY IF EXISTS j;"],
        ];
        assert_eq!(commands, expected);
    }
}

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

use node::Node;
use record::check::{Area, Item, Verdict};
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
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            targets.iter().map(|target| (target, scope.spawn(move || of_node(target, expected)))).collect();
        let items = threads.into_iter().map(|(target, thread)| {
            thread.join().unwrap_or_else(|_| {
                lost(target, wanted(expected), "the check ended with an error of the program")
            })
        });
        items.flatten().collect()
    })
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

/// All items of one node.
fn of_node(target: &Target, expected: &Expected) -> Vec<Item> {
    let mut node = match Node::open(target, expected) {
        Ok(node) => node,
        Err(error) => return vec![unreached(&target.name, &error.to_string())],
    };
    let mut items = Vec::new();
    let mut checks = wanted(expected);
    while let Some(check) = checks.next() {
        match rule::run(check, &mut node) {
            Ok(found) => items.extend(found),
            Err(Failed::Refused { message, .. } | Failed::Gone(message)) => {
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
    items
}

/// Items for checks that were not run.
fn lost(target: &Target, checks: impl Iterator<Item = &'static Check>, why: &str) -> Vec<Item> {
    checks.map(|check| rule::not_run(check, &target.name, why)).collect()
}

//! Sessions of one program that block others one after another: a job that connects anew each time has another process each time.

use crate::case::{Case, Thing};
use crate::node_time;
use crate::rules::costly::plain;

/// Characters of an application's name in a claim.
const APPLICATION_CHARS: usize = 40;

/// The application of a session, if it is known.
pub(super) fn application<'a>(case: &'a Case, root: &Thing<'a>) -> &'a str {
    let session = case.at("session", root.place).find(|session| session.name == root.name);
    session.map_or("", |session| session.lines.word("application"))
}

/// Those at the root that belong to the same program and never wait themselves, as sessions do that change a row in turn. The root is among them.
pub(super) fn of<'a>(case: &'a Case, root: &Thing<'a>) -> Vec<Thing<'a>> {
    let name = application(case, root);
    let waits = |one: &Thing<'_>| case.waiters(one.place).any(|waiter| waiter.pid.to_string() == one.name);
    if name.is_empty() || waits(root) {
        return vec![*root];
    }
    let is_peer = |one: &Thing<'a>| one.name == root.name || application(case, one) == name && !waits(one);
    case.at("block", root.place).filter(is_peer).collect()
}

/// Whether it is the one with most sessions behind it, which speaks for the others.
pub(super) fn speaks(peers: &[Thing<'_>], root: &Thing<'_>) -> bool {
    let weight = |one: &Thing<'_>| one.lines.ticks.points().iter().map(|point| point.sum).sum::<f64>();
    let most = peers
        .iter()
        .max_by(|left, right| weight(left).total_cmp(&weight(right)).then_with(|| right.name.cmp(left.name)));
    most.is_none_or(|most| most.name == root.name)
}

/// The share of the session time that others spent behind a root, as the account has it.
pub(super) fn share_behind(case: &Case, node: &str, root: &str) -> Option<f64> {
    let time = node_time::all(case).iter().find(|time| time.node == node)?;
    let by = time.by.iter().find(|by| by.name == "lock root")?;
    let is_root = |name: &str| match root {
        "0" => name == "a prepared transaction",
        _ => name.strip_prefix("session ").is_some_and(|rest| rest.split(':').next() == Some(root)),
    };
    by.shares.iter().find(|(name, _)| is_root(name)).map(|(_, share)| *share)
}

/// A session in a claim, and how many others of its program took turns with it.
pub(super) fn named(pid: &str, name: &str, others: usize) -> String {
    let turns =
        if others > 0 { format!(" (one of {}, one after another)", others + 1) } else { String::new() };
    format!("session {pid} of {}{turns}", plain(name, APPLICATION_CHARS))
}

//! A priority of the server's processes that lets all other programs come first.

use crate::case::{Case, Thing};

/// A nice value from which on a process gets a third, or less, of what one with the usual value gets.
const NICE_MIN: f64 = 5.0;
/// The policy of processes that run only when no other one wants to.
const IDLE: &str = "idle";
/// The setting of the kernel that shares the CPUs between sessions first.
const AUTOGROUP: &str = "kernel.sched_autogroup_enabled";
/// Of the processes of sessions, those that have it.
const OF_SESSIONS_MIN: f64 = 0.5;

/// The priority of the sessions of a node, in words, where it is a low one.
pub(super) fn of(case: &Case, node: &str) -> Option<String> {
    let is_its = |process: &Thing<'_>| {
        process.lines.word("node") == node && process.lines.word("backend") == "client backend"
    };
    let all: Vec<Thing<'_>> = case.things("backend").filter(is_its).collect();
    let nice = |process: &Thing<'_>| process.lines.last("nice").unwrap_or(0.0);
    let is_most = |count: usize| count > 0 && count as f64 >= all.len() as f64 * OF_SESSIONS_MIN;
    let idle = all.iter().filter(|process| process.lines.word("policy") == IDLE).count();
    let low: Vec<f64> = all.iter().map(nice).filter(|value| *value >= NICE_MIN).collect();
    // Then it weighs only against processes of the same session or service (autogroup.c), and not against other programs.
    let host = case.host_of(node).unwrap_or_default();
    let mut facts = case.facts("kernel").filter(|fact| fact.host == host);
    let is_grouped = facts.any(|fact| fact.name == AUTOGROUP && fact.value == "1");
    match () {
        () if is_most(idle) => Some("its processes have the scheduling policy idle".to_string()),
        () if is_most(low.len()) && !is_grouped => {
            let least = low.iter().copied().fold(f64::MAX, f64::min);
            Some(format!("its processes run with the nice value {least:.0}"))
        }
        () => None,
    }
}

//! The scheduler's counters of a step: CPU time, and waiting for a CPU, of our sessions' server processes and of the client's threads.
//!
//! Sampled sessions miss the main wait on a full host: a process that has received a statement but waits for a CPU still counts as idle. The
//! scheduler counts both exactly.

use crate::case::{Case, Lines, Thing};
use record::finding::Window;

/// The time of tasks per transaction, in microseconds.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Taken {
    /// On a processor.
    pub(super) run_us: f64,
    /// Ready to run, without one.
    pub(super) wait_us: f64,
    /// Times they were put on one.
    pub(super) turns: f64,
    /// The share of the time in which one of them was running or runnable.
    pub(super) busy: f64,
}

/// The machine where the client's threads ran, and what they took.
pub(super) fn client(case: &Case, window: Window, transactions: f64) -> Option<(&str, Taken)> {
    let thing = case.things("schedule").find(|thing| thing.name == "client")?;
    Some((thing.lines.word("host"), taken(thing.lines, window, transactions)?))
}

/// Nodes whose processes for our sessions were counted.
pub(super) fn counted_nodes(case: &Case) -> impl Iterator<Item = &str> {
    case.things("schedule").filter(|thing| thing.name == "sessions").map(|thing| thing.place)
}

/// What a node's processes that serve our sessions took, and the machine they ran on.
pub(super) fn sessions<'a>(
    case: &'a Case,
    node: &'a str,
    window: Window,
    transactions: f64,
) -> Option<(&'a str, Taken)> {
    let is_theirs = |thing: &Thing<'_>| thing.name == "sessions";
    let thing = case.at("schedule", node).find(is_theirs)?;
    Some((thing.lines.word("host"), taken(thing.lines, window, transactions)?))
}

fn taken(lines: &Lines, window: Window, transactions: f64) -> Option<Taken> {
    let inside = |field: &str| lines.series(field).map(|series| series.within(&[window]));
    let seconds = window.length_us() as f64 / 1e6;
    // The sampled ones represent all.
    let (all, looked) = (inside("tasks")?.sum(), inside("looked")?.sum());
    let per_transaction = |field: &str| {
        let series = inside(field).filter(|series| !series.is_empty())?;
        Some(series.rate() * seconds * (all / looked.max(1.0)) / transactions)
    };
    let (run_us, wait_us) = (per_transaction("run_us")?, per_transaction("wait_us")?);
    let tasks = inside("tasks")?.mean().max(1.0);
    Some(Taken {
        run_us,
        wait_us,
        turns: per_transaction("turns").unwrap_or(0.0),
        busy: ((run_us + wait_us) * transactions / (seconds * 1e6 * tasks)).min(1.0),
    })
}

impl Taken {
    /// Lower bound of the time that a transaction of `trips` replies spends at the client's threads: all replies found in a turn stay there until
    /// its end, and while a thread waits for a CPU, first one reply waits and in the end all of them. It is more if a few turns find most of the
    /// replies.
    pub(super) fn in_client_us_min(&self, trips: f64) -> f64 {
        let replies = if self.turns > 0.0 { (trips / self.turns).max(1.0) } else { 1.0 };
        self.run_us * replies + self.wait_us * (1.0 + replies) / 2.0
    }

    /// Upper bound: a thread that is neither running nor runnable has no reply to read.
    pub(super) fn in_client_us_max(&self, service_us: f64) -> f64 {
        self.busy * service_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_of_one_turn_share_its_time() {
        let alone = Taken { run_us: 5.0, wait_us: 2.0, turns: 1.0, busy: 0.5 };
        assert_eq!(alone.in_client_us_min(1.0), 7.0);
        // Four replies a turn: each is there while the other three are worked on.
        assert_eq!(Taken { turns: 0.25, ..alone }.in_client_us_min(1.0), 25.0);
        // Thirty round trips of one transaction, each a turn of its own.
        assert_eq!(Taken { turns: 30.0, ..alone }.in_client_us_min(30.0), 7.0);
        assert_eq!(Taken { turns: 0.0, ..alone }.in_client_us_min(1.0), 7.0);
        assert_eq!(alone.in_client_us_max(100.0), 50.0);
    }
}

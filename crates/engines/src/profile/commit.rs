//! The commit protocol, and its cost in round trips between nodes.

/// How a transaction commits.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Commit {
    /// What the nodes do.
    pub protocol: Protocol,
    /// Whether an ERROR at COMMIT is known to mean that nothing was committed. On PostgreSQL it does: the last step of a commit cannot fail with an
    /// ERROR any more. Where that is not established, only errors that state it themselves count.
    pub error_undoes: bool,
}

/// The commit protocol of the nodes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Protocol {
    /// One node commits, and waits for its synchronous standbys.
    OneNode,
    /// One node commits, and sends the transaction to the others afterwards.
    Asynchronous,
    /// The entry node commits the other nodes one after another, and itself last: this is not atomic. With `parallel_commit` of postgres_fdw it commits the
    /// others at once.
    NodeByNode,
    /// PREPARE TRANSACTION, then COMMIT PREPARED, each on all nodes at once.
    TwoPhase {
        /// Whether a transaction that wrote on one other node, and on no more, commits there in one phase.
        one_node_alone: bool,
    },
    /// A majority of the nodes prepares, agrees and commits.
    Majority {
        /// Round trips, one after another.
        round_trips: f64,
    },
    /// A commit record that a consensus group agrees on.
    Consensus {
        /// How, in words.
        words: &'static str,
        /// Round trips, one after another.
        round_trips: f64,
    },
}

/// What a commit costs.
///
/// After the cost model of a presentation about distributed PostgreSQL and YDB (a synchronous standby 1, two-phase commit 2, YDB 4.5) and the documentation
/// of the engines.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CommitCost {
    /// What the nodes do, in words.
    pub words: &'static str,
    /// Round trips between nodes, one after another.
    pub round_trips: f64,
}

impl Protocol {
    /// Whether a commit over several nodes happens on all of them or on none.
    pub fn is_atomic(self) -> bool {
        self != Protocol::NodeByNode
    }

    /// Whether the nodes agree on every commit, also on one that wrote on one node only.
    pub fn agrees_on_all(self) -> bool {
        matches!(self, Protocol::Majority { .. } | Protocol::Consensus { .. })
    }

    /// The cost of a commit of a transaction that wrote on `others` nodes beside the one that the client is connected to, and on that one if `here`.
    /// `is_parallel`: the entry node commits the other nodes at once.
    pub fn cost(
        self,
        (here, others): (bool, usize),
        waits_for_standbys: bool,
        is_parallel: bool,
    ) -> CommitCost {
        let of = |words, round_trips| CommitCost { words, round_trips };
        match self {
            Protocol::OneNode if waits_for_standbys => {
                of("the WAL goes to the standby, and its reply comes back", 1.0)
            }
            Protocol::OneNode => of("it waits for no other node", 0.0),
            Protocol::Asynchronous => of("other nodes get it after the commit", 0.0),
            Protocol::Majority { round_trips } => {
                of("prepare, precommit and commit, each confirmed by a majority of the nodes", round_trips)
            }
            _ if others == 0 => of("only this node takes part", 0.0),
            Protocol::NodeByNode if is_parallel => {
                of("postgres_fdw sends COMMIT to all nodes at once (parallel_commit)", 1.0)
            }
            Protocol::NodeByNode => of("postgres_fdw sends COMMIT to one node after another", others as f64),
            Protocol::TwoPhase { one_node_alone: true } if others == 1 && !here => {
                of("one node commits by itself", 1.0)
            }
            Protocol::TwoPhase { .. } => {
                of("PREPARE TRANSACTION, then COMMIT PREPARED, each to all nodes at once", 2.0)
            }
            Protocol::Consensus { words, round_trips } => of(words, round_trips),
        }
    }
}

/// Round trips from the entry node to the others, in microseconds.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Trips<'a> {
    /// To the other nodes that the transaction wrote on.
    pub written: &'a [u64],
    /// To the standby whose answer a commit waits for last.
    pub standby: Option<u64>,
    /// To every other node.
    pub all: &'a [u64],
}

impl Protocol {
    /// How long one round trip of such a commit takes, in microseconds: nodes that are contacted at once answer in the time of the slowest one, a majority in
    /// that of the slowest member that it needs. `None`: it is not known.
    pub fn trip_us(self, trips: Trips<'_>, is_parallel: bool) -> Option<u64> {
        let slowest = trips.written.iter().max().copied();
        match self {
            Protocol::OneNode => trips.standby,
            Protocol::Asynchronous => None,
            Protocol::NodeByNode if !is_parallel => {
                let count = trips.written.len() as u64;
                trips.written.iter().sum::<u64>().checked_div(count)
            }
            Protocol::NodeByNode | Protocol::TwoPhase { .. } => slowest,
            Protocol::Majority { .. } | Protocol::Consensus { .. } => {
                let mut all = trips.all.to_vec();
                all.sort_unstable();
                // The entry node is a member, too.
                let needed = all.len().div_ceil(2);
                all.get(needed.checked_sub(1)?).copied()
            }
        }
    }
}

impl CommitCost {
    /// The cost model: a commit that waits for no other node, and for each round trip its time and one more flush, all in microseconds.
    pub fn predicted_us(self, base_us: u64, trip_us: u64, flush_us: u64) -> u64 {
        base_us + (self.round_trips * (trip_us + flush_us) as f64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_trip_takes_as_long_as_the_slowest_node_that_it_needs() {
        let trips =
            Trips { written: &[2_000, 1_000], standby: Some(7_000), all: &[9_000, 1_000, 2_000, 3_000] };
        assert_eq!(Protocol::OneNode.trip_us(trips, false), Some(7_000));
        assert_eq!(Protocol::Asynchronous.trip_us(trips, false), None);
        assert_eq!(Protocol::NodeByNode.trip_us(trips, false), Some(1_500));
        assert_eq!(Protocol::NodeByNode.trip_us(trips, true), Some(2_000));
        assert_eq!(Protocol::TwoPhase { one_node_alone: true }.trip_us(trips, false), Some(2_000));
        // Five nodes: the entry and the two nearest ones are a majority.
        assert_eq!(Protocol::Majority { round_trips: 3.0 }.trip_us(trips, false), Some(2_000));
        assert_eq!(Protocol::Majority { round_trips: 3.0 }.trip_us(Trips::default(), false), None);
        let wide = Protocol::NodeByNode.cost((true, 2), false, false);
        assert_eq!(wide.predicted_us(200, 1_500, 100), 200 + 2 * 1_600);
    }

    #[test]
    fn protocols_cost_what_they_should() {
        let trips = |protocol: Protocol, others, waits, at_once| {
            protocol.cost((false, others), waits, at_once).round_trips
        };
        assert_eq!(trips(Protocol::OneNode, 0, false, false), 0.0);
        assert_eq!(trips(Protocol::OneNode, 0, true, false), 1.0);
        assert_eq!(trips(Protocol::Asynchronous, 0, false, false), 0.0);
        assert_eq!(trips(Protocol::NodeByNode, 0, false, true), 0.0);
        assert_eq!(trips(Protocol::NodeByNode, 3, false, true), 1.0);
        assert_eq!(trips(Protocol::NodeByNode, 3, false, false), 3.0);
        let two_phase = Protocol::TwoPhase { one_node_alone: true };
        assert_eq!([0, 1, 2].map(|others| trips(two_phase, others, false, false)), [0.0, 1.0, 2.0]);
        assert_eq!(trips(Protocol::TwoPhase { one_node_alone: false }, 1, false, false), 2.0);
        assert_eq!(two_phase.cost((true, 1), false, false).round_trips, 2.0);
        // Every node takes part, independent of the written rows.
        assert_eq!(trips(Protocol::Majority { round_trips: 3.0 }, 0, false, false), 3.0);
        assert_eq!(trips(Protocol::Consensus { words: "", round_trips: 4.5 }, 2, false, false), 4.5);
    }

    #[test]
    fn only_a_commit_node_by_node_can_be_torn() {
        assert!(!Protocol::NodeByNode.is_atomic());
        assert!(Protocol::TwoPhase { one_node_alone: true }.is_atomic());
    }
}

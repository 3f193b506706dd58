//! Nodes that a failover manager looks after: which faults are possible on them, how long these last, and when such a cluster is whole again.

use std::time::Duration;

use connect::poll;
use lab::local::Supervision;

use super::Fault;
use super::site::{FOLLOW_PATIENCE, GRACE, Node, QUIET_TIMEOUT, Site};
use crate::client::{Client, number};

/// As [`GRACE`], where a failover manager reacts to a fault: it acts when its lease has ended, and restarts servers.
const MANAGED_GRACE: Duration = Duration::from_secs(30);
/// Standbys that stream, and those that commits wait for.
const FOLLOWING: &str = "select count(*) filter (where state = 'streaming'), \
     count(*) filter (where sync_state in ('sync', 'quorum')) from pg_catalog.pg_stat_replication";

impl Node {
    /// Whether a failover manager decides what it does.
    pub(crate) fn is_managed(&self) -> bool {
        self.instance.as_ref().is_some_and(|instance| instance.supervision() != Supervision::Ours)
    }

    /// Why a fault is not possible with its failover manager, or without one.
    pub(super) fn objection_of_manager(&self, fault: Fault) -> Option<String> {
        let supervision = self.instance.as_ref()?.supervision();
        let name = &self.name;
        match (fault, supervision) {
            (Fault::Crash | Fault::Switchover | Fault::Store, Supervision::Ours) => {
                Some(format!("no failover manager runs for {name}; pgfathom up patroni starts one"))
            }
            (Fault::Crash | Fault::Switchover | Fault::Store, Supervision::ForeignManager) => Some(format!(
                "the failover manager of {name} was not started by pgfathom up: its processes are unknown"
            )),
            (Fault::Promote, Supervision::Manager | Supervision::ForeignManager) => Some(format!(
                "the failover manager of {name} decides which node is the primary: use switchover"
            )),
            (Fault::Partition, Supervision::Manager | Supervision::ForeignManager) => {
                Some(format!("the failover manager of {name} sets the connections between the nodes itself"))
            }
            _ => None,
        }
    }
}

impl Site {
    /// For how long after a fault its effects may still reach clients: a failover manager may act only when its lease has ended, and restarts servers.
    pub(crate) fn grace(&self) -> Duration {
        if self.nodes.iter().any(Node::is_managed) { MANAGED_GRACE } else { GRACE }
    }

    /// How many standbys follow the primary, how many of those its commits wait for, how many nodes accept sessions, which a standby does later than it
    /// follows, and how many standbys their failover managers would let take over. `None`: no primary answers.
    pub fn following(&self) -> Option<[i64; 4]> {
        let mut client = Client::connect(&self.direct(), FOLLOW_PATIENCE).ok()?;
        let reply = client.request(FOLLOWING).ok()?;
        let row = reply.rows().first()?;
        let answers = |node: &&Node| Client::connect(&node.spec, FOLLOW_PATIENCE).is_ok();
        let is_trusted = |node: &&Node| {
            node.instance.as_ref().is_some_and(lab::local::Instance::is_synchronous_to_its_manager)
        };
        let count = |is: &dyn Fn(&&Node) -> bool| i64::try_from(self.nodes.iter().filter(is).count()).ok();
        Some([number(row.first()?)?, number(row.get(1)?)?, count(&answers)?, count(&is_trusted)?])
    }

    /// Waits until all standbys of a managed cluster follow its primary, and those that commits wait for may take over: a manager is still at work for
    /// seconds after a failover before. If that takes too long, the proof begins as things are, with a note.
    pub fn await_managers(&self) {
        if !self.nodes.iter().any(Node::is_managed) {
            return;
        }
        let others = i64::try_from(self.nodes.len()).unwrap_or(i64::MAX) - 1;
        let mut last = None;
        let whole = poll::until(MANAGED_GRACE, || {
            last = self.following();
            last.filter(|[following, synchronous, _, trusted]| *following >= others && trusted >= synchronous)
        });
        if whole.is_none() {
            let [following, synchronous, _, trusted] = last.unwrap_or_default();
            self.note(format!(
                "the proof began although {following} of {others} standbys followed the primary, and the failover managers would let \
                 {trusted} of {synchronous} synchronous ones take over"
            ));
        }
    }

    /// Waits until as many standbys follow the primary as before, and the failover managers know it: a repeat begins like the first.
    ///
    /// # Errors
    /// What is missing, in words.
    pub fn await_following(&self, before: [i64; 4]) -> Result<(), String> {
        let is_whole = |now: &[i64; 4]| std::iter::zip(now, before).all(|(now, before)| *now >= before);
        let mut last = None;
        let whole = poll::until(QUIET_TIMEOUT, || {
            last = self.following();
            last.filter(is_whole)
        });
        match (whole, last) {
            (Some(_), _) => Ok(()),
            (None, None) => Err(format!("no primary answered within {} s", QUIET_TIMEOUT.as_secs())),
            (None, Some([following, ..])) => Err(format!(
                "{following} of {} standbys follow the primary after {} s",
                before[0],
                QUIET_TIMEOUT.as_secs()
            )),
        }
    }
}

//! Where the warehouses of a sharded target are, and which sessions serve which of them.
//!
//! Placement is read when the run begins and written down with it: every draw stays a pure function of the run's numbers.

use std::sync::Arc;

use super::TERMINALS_PER_WAREHOUSE;
use super::draw::Home;

/// The node of every warehouse; and, where sessions enter at the owner of what they request, the warehouses of every session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Homes {
    /// By warehouse, W_ID 1 first.
    nodes: Arc<[u16]>,
    held: Option<Arc<Held>>,
}

/// Sessions that stand for warehouses of their own node only.
#[derive(Debug, PartialEq, Eq)]
struct Held {
    /// Driven warehouses by node, ascending.
    warehouses: Vec<Vec<u32>>,
    /// By session: its node, which one of that node's sessions it is, and how many these are.
    assignments: Vec<(u16, u64, u64)>,
}

impl Homes {
    /// Sessions enter anywhere and stand for any warehouse.
    pub fn anywhere(nodes: Arc<[u16]>) -> Homes {
        Homes { nodes, held: None }
    }

    /// Session `i` enters at `sessions[i]` and stands for warehouses of that node, of which there must be some among the first `driven`.
    pub fn held(nodes: Arc<[u16]>, driven: u32, sessions: &[u16]) -> Homes {
        let count = nodes.iter().chain(sessions).max().map_or(0, |node| usize::from(*node) + 1);
        let mut warehouses = vec![Vec::new(); count];
        for (node, w_id) in nodes.iter().zip(1..=driven) {
            warehouses[usize::from(*node)].push(w_id);
        }
        let mut ranks = vec![0; count];
        let ranked: Vec<(u16, u64)> = sessions
            .iter()
            .map(|node| {
                let rank = &mut ranks[usize::from(*node)];
                *rank += 1;
                (*node, *rank - 1)
            })
            .collect();
        let assignments =
            ranked.into_iter().map(|(node, rank)| (node, rank, ranks[usize::from(node)])).collect();
        Homes { nodes, held: Some(Arc::new(Held { warehouses, assignments })) }
    }

    /// The nodes that have some of the first `driven` warehouses, ascending.
    pub fn owners(nodes: &[u16], driven: u32) -> Vec<u16> {
        let mut owners: Vec<u16> = nodes.iter().take(driven as usize).copied().collect();
        owners.sort_unstable();
        owners.dedup();
        owners
    }

    /// The node of a warehouse.
    #[inline]
    pub fn node_of(&self, w_id: u32) -> u16 {
        self.nodes[w_id as usize - 1]
    }

    /// Whether sessions stand for warehouses of their own node only.
    pub(crate) fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// How many terminals a session stands for that never waits for one: a stretch of its node's, all of them where there are more sessions.
    /// `None`: it stands for any.
    pub(super) fn stretch(&self, session: u64) -> Option<std::ops::Range<u64>> {
        let held = self.held.as_deref()?;
        let (node, rank, count) = *held.assignments.get(session as usize % held.assignments.len().max(1))?;
        let terminals = held.warehouses[usize::from(node)].len() as u64 * u64::from(TERMINALS_PER_WAREHOUSE);
        if terminals == 0 {
            return None;
        }
        if count > terminals {
            let own = rank % terminals;
            return Some(own..own + 1);
        }
        Some(terminals * rank / count..terminals * (rank + 1) / count)
    }

    /// The home of a terminal by its number among those of the session's node.
    pub(super) fn home(&self, session: u64, terminal: u64) -> Option<Home> {
        let held = self.held.as_deref()?;
        let (node, ..) = *held.assignments.get(session as usize % held.assignments.len().max(1))?;
        let each = u64::from(TERMINALS_PER_WAREHOUSE);
        let w_id = *held.warehouses[usize::from(node)].get((terminal / each) as usize)?;
        Some(Home { w_id, d_id: (terminal % each) as u32 + 1 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_stand_for_every_terminal_of_their_node_once() {
        let nodes: Arc<[u16]> = vec![0, 1, 2, 0, 1, 2, 0].into();
        assert_eq!(Homes::owners(&nodes, 7), [0, 1, 2]);
        assert_eq!(Homes::owners(&nodes, 2), [0, 1]);
        let sessions = [0, 1, 2, 0, 1, 2, 0];
        let homes = Homes::held(Arc::clone(&nodes), 7, &sessions);
        let mut stood_for: Vec<(u32, u32)> = Vec::new();
        for (session, node) in (0..).zip(sessions) {
            for terminal in homes.stretch(session).unwrap() {
                let home = homes.home(session, terminal).unwrap();
                assert_eq!(homes.node_of(home.w_id), node, "session {session}");
                stood_for.push((home.w_id, home.d_id));
            }
        }
        stood_for.sort_unstable();
        let all: Vec<(u32, u32)> = (1..=7).flat_map(|w_id| (1..=10).map(move |d_id| (w_id, d_id))).collect();
        assert_eq!(stood_for, all);
        assert_eq!(Homes::anywhere(nodes).stretch(0), None);
    }

    #[test]
    fn more_sessions_than_terminals_share_them() {
        let homes = Homes::held(vec![0, 1].into(), 2, &[1; 25]);
        assert!((0..25).all(|session| homes.stretch(session) == Some(session % 10..session % 10 + 1)));
        assert_eq!(homes.home(24, 4), Some(Home { w_id: 2, d_id: 5 }));
    }
}

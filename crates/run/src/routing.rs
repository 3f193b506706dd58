//! Which nodes sessions connect to, and which keys they use.
//!
//! A session is tied to one *connect node* for its whole life ([`Connects`]). It may also be tied to one *data node*: then it draws only
//! keys whose row lives there ([`Homes`]), by drawing again until one does. Every draw stays a pure function of the run's numbers,
//! because the owners of keys are written down with the run ([`KeyOwners`]): a partition that moves later changes nothing about what
//! the run did, and verification can still replay it.

use std::sync::Arc;

use connect::ConnSpec;
use engines::hash::{self, Key};
use serde::{Deserialize, Serialize};

use crate::dial::TargetDial;
use crate::engine::connector::{Dial, DialError};
use crate::engine::link::Link;
use crate::random::Random;

/// Rows looked at to learn whether a node has any.
const PROBED_ROWS: u64 = 4_096;
/// Separates the stream that deals sessions out at random from the seed's other uses.
const CONNECT_STREAM: u64 = 0x636f_6e6e_6563_7421;

/// Which node a key's row lives on, by the target's catalog when the run began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyOwners {
    /// PostgreSQL's hash partitions of a text key: the node of each remainder of the greatest modulus
    /// (`compute_partition_hash_value` in `partbounds.c`).
    Hash {
        /// By remainder.
        nodes: Vec<u16>,
    },
    /// Ranges of a 32-bit hash of the key (`hashtext`), as Citus has them: each from its first hash to the next one's.
    HashRanges {
        /// First hash and node, ascending.
        starts: Vec<(i32, u16)>,
    },
    /// Ranges of the 16-bit code of a key (`yb_hash_code`): each from its first code to the next one's.
    CodeRanges {
        /// First code and node, ascending.
        starts: Vec<(u32, u16)>,
    },
    /// Greenplum's numbered segments, by jump hash.
    Segments {
        /// By segment number.
        nodes: Vec<u16>,
    },
}

impl KeyOwners {
    /// The node of a key.
    #[inline]
    pub fn node_of(&self, key: &[u8]) -> u16 {
        match self {
            KeyOwners::Hash { nodes } => nodes[(hash::partition_text_key(key) % nodes.len() as u64) as usize],
            KeyOwners::HashRanges { starts } => {
                let hash = hash::bytes(key) as i32;
                let after = starts.partition_point(|(first, _)| *first <= hash);
                starts[after.saturating_sub(1)].1
            }
            KeyOwners::CodeRanges { starts } => {
                let code = hash::hash_code(&[Some(Key::Text(key))]).map_or(0, u32::from);
                let after = starts.partition_point(|(first, _)| *first <= code);
                starts[after.saturating_sub(1)].1
            }
            KeyOwners::Segments { nodes } => {
                nodes[hash::segment([Some(Key::Text(key).plain())], nodes.len() as u32) as usize]
            }
        }
    }

    /// It can answer: a record from elsewhere may hold nothing.
    fn is_empty(&self) -> bool {
        match self {
            KeyOwners::Hash { nodes } | KeyOwners::Segments { nodes } => nodes.is_empty(),
            KeyOwners::HashRanges { starts } => starts.is_empty(),
            KeyOwners::CodeRanges { starts } => starts.is_empty(),
        }
    }
}

/// The data node of every session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Homes {
    /// Who owns which key.
    owners: KeyOwners,
    /// Nodes by turns.
    nodes: Vec<u16>,
    /// So many sessions in a row have the same node.
    sessions_each: u64,
}

impl Homes {
    /// Sessions in groups of `sessions_each`, the groups assigned to `nodes` in turn. `None` when something is missing.
    pub fn new(owners: KeyOwners, nodes: Vec<u16>, sessions_each: u64) -> Option<Homes> {
        let homes = Homes { owners, nodes, sessions_each };
        homes.is_whole().then_some(homes)
    }

    /// It can be used: one read from a record may have been damaged.
    pub fn is_whole(&self) -> bool {
        !self.nodes.is_empty() && self.sessions_each > 0 && !self.owners.is_empty()
    }

    /// The data node of a session.
    #[inline]
    pub fn of(&self, session: u64) -> u16 {
        self.nodes[(session / self.sessions_each % self.nodes.len() as u64) as usize]
    }

    /// The row with this key lives on the session's node.
    #[inline]
    pub fn is_home(&self, session: u64, key: &[u8]) -> bool {
        self.owners.node_of(key) == self.of(session)
    }

    /// Whether `node` has any of the first [`PROBED_ROWS`] of `rows` rows spread over a table.
    pub fn has_rows<K: AsRef<[u8]>>(&self, node: u16, rows: u64, key: impl Fn(u64) -> K) -> bool {
        let step = (rows / PROBED_ROWS).max(1);
        (0..rows.min(PROBED_ROWS)).any(|at| self.owners.node_of(key(at * step).as_ref()) == node)
    }
}

/// The connect node of every session: a number by which its transactions are distinguished.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Connects {
    nodes: usize,
    of: Vec<u16>,
}

impl Connects {
    /// Session `i` of `sessions` enters at `nodes[i % n]`; `all` nodes are distinguished.
    pub fn by_turns(all: usize, nodes: &[u16], sessions: u64) -> Connects {
        let of = (0..sessions).map(|session| nodes[(session % nodes.len() as u64) as usize]);
        Connects { nodes: all, of: of.collect() }
    }

    /// Each session enters at one of `nodes`, chosen by `seed`.
    pub fn at_random(all: usize, nodes: &[u16], sessions: u64, seed: u64) -> Connects {
        let mut random = Random::for_stream(seed, CONNECT_STREAM);
        let of = (0..sessions).map(|_| nodes[random.below(nodes.len() as u64) as usize]);
        Connects { nodes: all, of: of.collect() }
    }

    /// How many nodes are distinguished; 0 when that was not requested.
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// The connect node of the run's session number `index`.
    pub fn of(&self, index: u64) -> u16 {
        self.of.get(index as usize).copied().unwrap_or(0)
    }

    /// Sessions that enter at each node.
    pub fn sessions(&self) -> Vec<u64> {
        let mut counts = vec![0; self.nodes];
        for node in &self.of {
            counts[usize::from(*node)] += 1;
        }
        counts
    }
}

/// Dials each session's own node.
#[derive(Debug)]
pub struct RoutedDial {
    /// Name, for messages, and target.
    nodes: Vec<(String, TargetDial)>,
    connects: Connects,
    first_session: u64,
    isolated: Vec<&'static str>,
}

impl RoutedDial {
    /// `nodes`, by name, are what the numbers in `connects` mean; the first session dialed has the number `first_session`.
    /// `isolated`: as [`Dial::isolated`].
    pub fn new(
        nodes: Vec<(String, ConnSpec)>,
        connects: Connects,
        first_session: u64,
        isolated: Vec<&'static str>,
    ) -> Arc<RoutedDial> {
        Arc::new(RoutedDial {
            nodes: nodes.into_iter().map(|(name, spec)| (name, TargetDial::new(spec))).collect(),
            isolated,
            connects,
            first_session,
        })
    }
}

impl Dial for RoutedDial {
    fn dial(&self, session: u64) -> Result<Link, DialError> {
        let node = usize::from(self.connects.of(session.saturating_sub(self.first_session)));
        let (name, dial) = &self.nodes[node];
        let at_node =
            |error: DialError| DialError { message: format!("node {name}: {}", error.message), ..error };
        dial.dial(session).map_err(at_node)
    }

    fn isolated(&self) -> Vec<&'static str> {
        self.isolated.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_keys_are_owned_by_known_partitions() {
        // Checked on servers 13 to 18: user1 has remainder 9 of 70 and 5 of 6.
        let owners = |modulus: u16| KeyOwners::Hash { nodes: (0..modulus).collect() };
        assert_eq!([70, 6].map(|modulus| owners(modulus).node_of(b"user1")), [9, 5]);
        assert_eq!(owners(70).node_of(b"user1000000"), 48);
        // hashtext('user1') = -335245252, hashtext('') = -1477818771.
        let ranges = KeyOwners::HashRanges { starts: vec![(i32::MIN, 3), (-335_245_252, 4), (0, 5)] };
        assert_eq!([ranges.node_of(b"user1"), ranges.node_of(b"")], [4, 3]);
    }

    #[test]
    fn sessions_are_assigned_in_turn() {
        let each = Connects::by_turns(3, &[0, 1, 2], 7);
        assert_eq!(each.sessions(), [3, 2, 2]);
        assert_eq!([each.of(0), each.of(4), each.of(6)], [0, 1, 0]);
        assert_eq!(Connects::by_turns(3, &[2], 4).sessions(), [0, 0, 4]);
        let random = Connects::at_random(3, &[0, 2], 1_000, 7);
        assert_eq!(random, Connects::at_random(3, &[0, 2], 1_000, 7), "the seed decides");
        assert_ne!(random, Connects::at_random(3, &[0, 2], 1_000, 8));
        let counts = random.sessions();
        assert!(counts[1] == 0 && counts[0].abs_diff(counts[2]) < 150, "{counts:?}");
    }

    #[test]
    fn homes_come_in_groups_and_survive_their_record() {
        let owners = KeyOwners::Hash { nodes: vec![0, 1] };
        let homes = Homes::new(owners.clone(), vec![1, 0], 3).unwrap();
        assert_eq!((0..8).map(|session| homes.of(session)).collect::<Vec<_>>(), [1, 1, 1, 0, 0, 0, 1, 1]);
        let text = serde_json::to_string(&homes).unwrap();
        assert_eq!(serde_json::from_str::<Homes>(&text).unwrap(), homes);
        assert_eq!(Homes::new(owners, vec![], 1), None);
        assert_eq!(Homes::new(KeyOwners::Hash { nodes: vec![] }, vec![1], 1), None);
    }
}

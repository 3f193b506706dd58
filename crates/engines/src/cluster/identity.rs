//! Which server a connection has reached, whatever its address is: a pooler, a proxy or a tunnel stands between, or a host has several names.

use super::sessions::{Sessions, each, probe};
use super::{Cluster, ClusterError, ClusterNode};
use crate::catalog::{self, TextRow};
use crate::engine::Engine;
use crate::profile::{Discovery, Layout};
use connect::ConnSpec;
use connect::control::Control;

/// Identifies a database. A standby, and a copy of a server, have its system identifier, and were started at another time.
const IDENTITY: &str = "
    select (select system_identifier from pg_catalog.pg_control_system())::text, \
           pg_catalog.pg_postmaster_start_time()::text, pg_catalog.current_database()::text";

/// Further connections that show whether an address leads to one server.
const CONNECTIONS: usize = 2;

/// Who a server is; see [`IDENTITY`].
pub(super) fn identity(control: &mut Control) -> Result<Option<TextRow>, ClusterError> {
    let rows = catalog::rows(&mut **control, IDENTITY).map_err(|source| ClusterError::Sql {
        what: "read the identity of a node".to_owned(),
        engine: Some(Engine::FOREIGN_PARTITIONS),
        source,
    })?;
    Ok(rows.into_iter().next())
}

/// The same for another kind of session; `None` if it does not report that.
pub(super) fn of_client(client: &mut postgres::Client) -> Option<TextRow> {
    catalog::rows(client, IDENTITY).ok()?.into_iter().next()
}

/// Who the server at this address is; `None` if it does not answer, or does not report that.
pub(super) fn at(spec: &ConnSpec) -> Option<TextRow> {
    identity(&mut probe(spec)?).ok()?
}

/// Whether connections to one address reach several servers. The one that is there stays open, so that a balancer by the number of connections shows itself.
pub(super) fn is_balanced(control: &mut Control, here: &ConnSpec) -> bool {
    let Ok(Some(first)) = identity(control) else { return false };
    (0..CONNECTIONS).any(|_| at(here).is_some_and(|other| other != first))
}

impl Cluster {
    /// Whether it matters which node a connection reaches: rows, a ledger or the definition of tables belong to one of several nodes.
    pub(super) fn needs_one_entry(&self) -> bool {
        let is_divided = match self.engine.layout {
            Layout::OneServer => false,
            Layout::ForeignPartitions | Layout::Copies(_) => true,
            Layout::Spread(_) => self.nodes.iter().any(|node| node.is_coordinator),
        };
        is_divided && self.nodes.len() > 1
    }

    /// Checks that the nodes of a cluster file are as many servers, and that each address leads to one of them. A node that does not answer at once is left
    /// out: the step that needs it reports that.
    ///
    /// # Errors
    /// [`ClusterError::SameNode`], [`ClusterError::Balanced`].
    pub fn check_distinct(&self) -> Result<(), ClusterError> {
        if !self.needs_one_entry() {
            return Ok(());
        }
        self.check_distinct_at(&mut Sessions::at(&self.nodes))
    }

    /// The same by a session at each node that is judged, and a further one.
    pub(super) fn check_distinct_at(&self, sessions: &mut Sessions) -> Result<(), ClusterError> {
        if !self.needs_one_entry() {
            return Ok(());
        }
        let again = each(&self.nodes, |node| at(&node.spec));
        let mut known: Vec<(&ClusterNode, TextRow)> = Vec::new();
        for (index, (node, again)) in self.nodes.iter().zip(again).enumerate() {
            let first = sessions.get(index).and_then(|control| identity(control).ok()?);
            let Some(first) = first.or_else(|| again.clone()) else { continue };
            if again.is_some_and(|again| again != first) {
                return Err(ClusterError::Balanced { address: node.spec.describe() });
            }
            if let Some((other, _)) = known.iter().find(|(_, identity)| *identity == first) {
                let (first, second) = (other.name.clone(), node.name.clone());
                return Err(ClusterError::SameNode { first, second });
            }
            known.push((node, first));
        }
        Ok(())
    }

    /// The same with the nodes marked at which no session of a client can enter, where a cluster file does not show that. A node that does not answer is
    /// left as it is.
    #[must_use]
    pub fn with_closed_nodes(mut self) -> Cluster {
        let Discovery::Catalog(catalog) = self.engine.discovery else { return self };
        let Some(is_blind) = catalog.is_blind.filter(|_| self.nodes.len() > 1) else { return self };
        let coordinator = self.table_node();
        let mut sessions = Sessions::at(&self.nodes);
        for (index, node) in self.nodes.iter_mut().enumerate() {
            let Some(control) = sessions.get(index).filter(|_| Some(index) != coordinator) else { continue };
            let rows = catalog::rows(&mut **control, is_blind).unwrap_or_default();
            node.is_closed |= rows.first().is_some_and(|row| row.is_true(0));
        }
        self
    }
}

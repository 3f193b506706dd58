//! Which node of a cluster file its engine creates tables through, whatever role the file gives it.

use super::sessions::Sessions;
use super::{Cluster, ClusterError, Role};
use crate::catalog;
use crate::profile::{Catalog, Discovery};

impl Cluster {
    /// The same for a comparison of a cluster with its engine: unchanged where no node is the coordinator.
    #[must_use]
    pub fn with_found_coordinator(self) -> Cluster {
        let mut sessions = Sessions::at(&self.nodes);
        self.clone().with_coordinator(&mut sessions).unwrap_or(self)
    }

    /// A cluster file of an engine with one coordinator, with the roles that the catalogs of its nodes give them. A node that does not answer, and one whose
    /// catalog lists no other node, is left as it is.
    ///
    /// # Errors
    /// [`ClusterError::NoCoordinator`] where every node has answered and none of them is it.
    pub(super) fn with_coordinator(mut self, sessions: &mut Sessions) -> Result<Cluster, ClusterError> {
        let Discovery::Catalog(Catalog { coordinator: Some(key), nodes: listing, reach_nodes: true, .. }) =
            self.engine.discovery
        else {
            return Ok(self);
        };
        let (mut known, mut elsewhere) = (0, None);
        for (index, node) in self.nodes.iter_mut().enumerate() {
            let rows = sessions.get(index).and_then(|control| catalog::rows(&mut **control, listing).ok());
            let Some(rows) = rows.filter(|rows| rows.len() > 1) else { continue };
            let Some(own) = rows.iter().find(|row| row.is_true(6)) else { continue };
            known += 1;
            let is_it = own.get(0) == Some(key);
            if is_it != node.is_coordinator || (node.role == Role::Coordinator) != is_it {
                node.role = own.get(5).and_then(Role::parse).unwrap_or(node.role);
                node.is_coordinator = is_it;
            }
            let row = rows.iter().find(|row| row.get(0) == Some(key));
            let place = |row: &catalog::TextRow| Some(format!("{}:{}", row.get(2)?, row.get(3)?));
            elsewhere = elsewhere.or_else(|| row.and_then(place));
        }
        let has_one = self.nodes.iter().any(|node| node.is_coordinator);
        match has_one || known < self.nodes.len() {
            true => Ok(self),
            false => Err(ClusterError::NoCoordinator { title: self.engine.title, address: elsewhere }),
        }
    }
}

//! Whether the servers that hold partitions of each other's tables are the nodes that a cluster file names, whatever stands between them and this host.

use super::discover::{beside, foreign_servers, is_node};
use super::sessions::Sessions;
use super::{Cluster, ClusterError, identity};
use crate::catalog::TextRow;
use crate::profile::Layout;
use connect::conninfo::PORT_DEFAULT;

impl Cluster {
    /// A cluster file of such servers, with the addresses under which they know each other: the file may name a proxy in front of one. A server that does not
    /// answer this host is left out.
    ///
    /// # Errors
    /// [`ClusterError::ForeignNode`]; [`ClusterError::NoOthers`] where no node has foreign servers.
    pub(super) fn with_foreign_addresses(mut self, sessions: &mut Sessions) -> Result<Cluster, ClusterError> {
        if self.engine.layout != Layout::ForeignPartitions || self.nodes.len() < 2 {
            return Ok(self);
        }
        let mut answered = 0;
        for reader in 0..self.nodes.len() {
            let Some(control) = sessions.get(reader) else { continue };
            // Where the role may not read the catalog, the step that needs it reports that.
            let Ok(servers) = foreign_servers(control) else { return Ok(self) };
            answered += 1;
            if !servers.is_empty() {
                let mut known = None;
                for server in servers.iter().filter(|server| is_node(server)) {
                    self.place(reader, server, &mut known)?;
                }
                return Ok(self);
            }
        }
        match self.nodes.first().filter(|_| answered == self.nodes.len()) {
            Some(first) => Err(ClusterError::NoOthers {
                title: self.engine.title,
                node: first.name.clone(),
                dbname: first.spec.dbname.clone(),
                named: self.nodes.len(),
            }),
            None => Ok(self),
        }
    }

    /// Finds the node that a foreign server of the node `reader` is. `known`: who the nodes are, once that was needed.
    fn place(
        &mut self,
        reader: usize,
        server: &TextRow,
        known: &mut Option<Vec<Option<TextRow>>>,
    ) -> Result<(), ClusterError> {
        let here = &self.nodes[reader];
        let port = server.get(2).and_then(|port| port.parse().ok()).unwrap_or(PORT_DEFAULT);
        let dbname = server.get(3).unwrap_or(&here.spec.dbname).to_owned();
        if !self.nodes_at(reader, server.get(1), port, &dbname).is_empty() {
            return Ok(());
        }
        let Ok(spec) = beside(&here.spec, server.get(1), server.get(2), server.get(3)) else { return Ok(()) };
        let Some(theirs) = identity::at(&spec) else { return Ok(()) };
        let known =
            known.get_or_insert_with(|| self.nodes.iter().map(|node| identity::at(&node.spec)).collect());
        match known.iter().position(|own| own.as_ref() == Some(&theirs)) {
            Some(node) => self.nodes[node].also.extend(spec.hosts.first().cloned()),
            None if known.iter().any(Option::is_none) => {}
            None => {
                return Err(ClusterError::ForeignNode {
                    node: here.name.clone(),
                    server: server.get(0).unwrap_or_default().replace(char::is_control, " "),
                    address: spec.hosts.first().map(ToString::to_string).unwrap_or_default(),
                });
            }
        }
        Ok(())
    }
}

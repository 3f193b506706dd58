//! Which other engine a database is one of, where the engine of the cluster file has no signs of its own.
//!
//! An extension that is only installed makes no other engine: the database counts as one if it has other nodes by the catalog of that engine. Tables that are
//! made on one node of a group stop the replication to the others, and rows that bypass an engine are none of its rows.

use super::discover::{self, foreign_servers, is_node};
use super::{Cluster, ClusterError};
use crate::catalog::{self, TextRow};
use crate::engine::{Engine, Signs};
use crate::profile::{Discovery, Layout, Replication};
use connect::conninfo::PORT_DEFAULT;
use connect::control::Control;

/// The state of a query that the role may not run.
const NO_PRIVILEGE: &str = "42501";

impl Cluster {
    /// The engine that the database of this node is one of, if it is not the one of the cluster file. A server that does not understand the question is none.
    ///
    /// # Errors
    /// When the database has the signs of an engine whose nodes this role may not read.
    pub(super) fn another_engine(
        &self,
        node: usize,
        control: &mut Control,
    ) -> Result<Option<Engine>, ClusterError> {
        for sign in discover::detect(control).unwrap_or_default() {
            if self.is_excluded_by(&sign, node, control)? {
                return Ok(Some(sign.engine));
            }
        }
        Ok(self.has_partitions_elsewhere(node, control).then_some(Engine::FOREIGN_PARTITIONS))
    }

    /// Whether a database with this sign is none of this cluster's engine.
    fn is_excluded_by(&self, sign: &Signs, node: usize, control: &mut Control) -> Result<bool, ClusterError> {
        if let Discovery::None(_) = self.engine.discovery {
            return Ok(sign.replication.is_none());
        }
        if sign.engine.storage != self.engine.storage {
            return Ok(true);
        }
        if let Some(probe) = sign.replication.and_then(|replication| replication.probe) {
            let found = catalog::rows(&mut **control, probe).unwrap_or_default();
            if !found.first().is_some_and(|row| row.is_true(0)) {
                return Ok(false);
            }
        }
        let rows = match sign.nodes().map(|listing| catalog::rows(&mut **control, listing)) {
            Some(Ok(rows)) => rows,
            Some(Err(source)) if has_one_group(sign.replication) && is_forbidden(&source) => {
                let what = format!("list the nodes of {}", sign.name());
                return Err(ClusterError::Sql { what, engine: Some(sign.engine), source });
            }
            Some(Err(_)) | None => return Ok(false),
        };
        let trusted: Vec<&TextRow> = rows.iter().filter(|row| row.get(9).is_none()).collect();
        // Subscriptions, and tables that are replicated one by one, may also copy from a server that has nothing to do with the nodes of the file.
        let is_here =
            |row: &&TextRow| !row.is_true(6) && self.listed_at(node, row).iter().any(|other| *other != node);
        Ok(trusted.len() > 1 && (has_one_group(sign.replication) || trusted.iter().any(is_here)))
    }

    /// Whether this is a file of single servers, and tables of this node have their partitions on other nodes of it, or `pgfathom up` has made it for that.
    fn has_partitions_elsewhere(&self, node: usize, control: &mut Control) -> bool {
        if self.engine.layout != Layout::OneServer || !matches!(self.engine.discovery, Discovery::Native) {
            return false;
        }
        let is_other = |server: &TextRow| {
            let port = server.get(2).and_then(|port| port.parse().ok()).unwrap_or(PORT_DEFAULT);
            let dbname = server.get(3).unwrap_or(&self.nodes[node].spec.dbname);
            let there = self.nodes_at(node, server.get(1), port, dbname);
            there.iter().any(|other| *other != node)
        };
        let servers = foreign_servers(control).unwrap_or_default();
        servers.iter().any(|server| is_node(server) && (server.is_true(6) || is_other(server)))
    }
}

/// Whether all nodes in the catalog are one group, in which a new table is on every node at once, or are those of an engine that places the rows.
fn has_one_group(replication: Option<&'static Replication>) -> bool {
    replication.is_none_or(|replication| replication.has_group() && replication.add_table.is_none())
}

fn is_forbidden(source: &postgres::Error) -> bool {
    source.code().is_some_and(|code| code.code() == NO_PRIVILEGE)
}

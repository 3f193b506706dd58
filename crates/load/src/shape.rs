//! What a target is to a load: one server, nodes that share the rows, or nodes that each hold all of them.

use target::cluster::Cluster;
use target::engine::Engine;

use crate::error::LoadError;

/// How rows lie on the nodes that take writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shape {
    /// One server. Standbys follow by themselves.
    Single,
    /// Each leaf table is on one node; every node has the parent, and foreign tables for the leaves of others.
    Sharded,
    /// Each node holds every row and takes writes.
    ///
    /// Every node is filled by itself, with the same rows, before the table is published: nothing has to be replicated, no node
    /// waits for another's apply worker, and each ledger proves its own node. The table joins the publications when it is complete everywhere.
    Repeated,
}

impl Shape {
    /// The shape of a cluster.
    pub(crate) fn of(cluster: &Cluster) -> Result<Shape, LoadError> {
        match cluster.engine {
            Engine::Postgres => Ok(Shape::Single),
            Engine::FdwSharded if cluster.is_clustered() => Ok(Shape::Sharded),
            Engine::Multimaster if cluster.is_clustered() => Ok(Shape::Repeated),
            Engine::FdwSharded | Engine::Multimaster => Ok(Shape::Single),
            engine => Err(LoadError::Engine { engine: engine.name() }),
        }
    }
}

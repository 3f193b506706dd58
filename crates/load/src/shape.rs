//! The shape of a target: one server, nodes that share the rows, or nodes that each hold all rows.

use engines::cluster::Cluster;
use engines::profile::LoadPath;

use crate::error::LoadError;

/// How rows lie on the nodes that take writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shape {
    /// One server, or one entry point of an engine that brings rows to their nodes itself. Standbys follow by themselves.
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
        match cluster.engine.load {
            LoadPath::Leaves if cluster.has_foreign_partitions() => Ok(Shape::Sharded),
            LoadPath::EachNode if cluster.is_clustered() => Ok(Shape::Repeated),
            LoadPath::Leaves | LoadPath::EachNode | LoadPath::Table => Ok(Shape::Single),
            LoadPath::None(_) => Err(LoadError::Engine { engine: cluster.engine }),
        }
    }
}

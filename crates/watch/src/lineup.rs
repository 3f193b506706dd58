//! The collectors of database nodes, put together.

use crate::board::Board;
use crate::collect::Collect;
use crate::sql::Node;
use std::sync::Arc;
use target::ClusterNode;

/// One collector for each node. They share `board`.
pub fn of(nodes: &[ClusterNode], board: &Arc<Board>) -> Vec<Box<dyn Collect>> {
    let collector = |node: &ClusterNode| Node::new(&node.name, &node.spec, Arc::clone(board));
    nodes.iter().map(|node| Box::new(collector(node)) as Box<dyn Collect>).collect()
}

/// The name of this machine.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

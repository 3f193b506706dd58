//! Which collectors look at what, for whoever wants everything watched that can be.

use crate::board::Board;
use crate::collect::Collect;
use crate::host::LocalHost;
use crate::sql::Node;
use std::sync::Arc;
use target::ClusterNode;

/// What is to be watched.
#[derive(Clone, Debug, Default)]
pub struct Lineup {
    /// Database nodes.
    pub nodes: Vec<ClusterNode>,
    /// This machine.
    pub host: bool,
}

impl Lineup {
    /// The collectors. They share `board`.
    pub fn collectors(&self, board: &Arc<Board>) -> Vec<Box<dyn Collect>> {
        let mut all: Vec<Box<dyn Collect>> = Vec::new();
        for node in &self.nodes {
            all.push(Box::new(Node::new(&node.name, &node.spec, Arc::clone(board))));
        }
        if self.host {
            all.push(Box::new(LocalHost::new(&host_name(), Arc::clone(board))));
        }
        all
    }
}

/// The name of this machine.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

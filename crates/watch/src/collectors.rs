//! The collectors of database nodes, put together.

use crate::board::Board;
use crate::collect::{Batch, Collect, Place, Recorded, Tick};
use crate::pooler::Pools;
use crate::sql::{Node, Planning};
use connect::ConnSpec;
use engines::{Absent, ClusterNode, Survey};
use std::sync::Arc;

/// One collector for each node. They share `board`.
pub fn of(nodes: &[ClusterNode], board: &Arc<Board>) -> Vec<Box<dyn Collect>> {
    let collector = |node: &ClusterNode| Node::new(&node.name, &node.spec, Arc::clone(board));
    nodes.iter().map(|node| Box::new(collector(node)) as Box<dyn Collect>).collect()
}

/// The same for the discovered nodes of a cluster: one that does not answer is retried, one without an address is reported as missing.
/// `planning`: how statements are planned.
pub fn of_survey(survey: &Survey, board: &Arc<Board>, planning: Planning) -> Vec<Box<dyn Collect>> {
    let mut all: Vec<Box<dyn Collect>> = vec![];
    for node in &survey.cluster.nodes {
        let mut collector = Node::new(&node.name, &node.spec, Arc::clone(board)).planning(planning);
        if let Some(absent) = survey.absent.iter().find(|absent| absent.name == node.name) {
            collector = collector.found_as(&absent.why, &absent.hint);
        }
        all.push(Box::new(collector));
    }
    let is_node = |absent: &&Absent| survey.cluster.node(&absent.name).is_none();
    all.extend(survey.absent.iter().filter(is_node).map(|absent| {
        Box::new(UnknownHost { absent: absent.clone(), recorded: Recorded::default() }) as Box<dyn Collect>
    }));
    all
}

/// One collector for the poolers before each node. `named` are the consoles that the user names.
pub fn of_poolers(nodes: &[ClusterNode], named: &[ConnSpec], board: &Arc<Board>) -> Vec<Box<dyn Collect>> {
    let collector = |node: &ClusterNode| Pools::new(&node.name, &node.spec, named, Arc::clone(board));
    nodes.iter().map(|node| Box::new(collector(node)) as Box<dyn Collect>).collect()
}

/// A node without a known address: it is only reported.
#[derive(Debug)]
struct UnknownHost {
    absent: Absent,
    recorded: Recorded,
}

impl Collect for UnknownHost {
    fn place(&self) -> Place {
        Place::Node(self.absent.name.clone())
    }

    fn part(&self) -> &'static str {
        "views"
    }

    fn tick(&mut self, tick: &Tick, batch: &mut Batch) {
        let why = format!("{}; {}", self.absent.why, self.absent.hint);
        let missing = self.place().missing("server", why, "everything from the server's views");
        self.recorded.missing(batch, tick.now_us, missing);
    }
}

/// The name of this machine.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

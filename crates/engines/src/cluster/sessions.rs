//! One session at each node of a cluster file, opened at the same time, for all questions before the work: a node that does not answer costs one wait.

use super::ClusterNode;
use super::identity::probe;
use connect::control::Control;

/// A session for each node; `None` for one that does not answer at once, or did not a moment ago.
pub(super) struct Sessions(Vec<Option<Control>>);

impl Sessions {
    /// At these nodes.
    pub(super) fn at(nodes: &[ClusterNode]) -> Sessions {
        Sessions(each(nodes, |node| probe(&node.spec)))
    }

    /// The session at a node.
    pub(super) fn get(&mut self, node: usize) -> Option<&mut Control> {
        self.0.get_mut(node)?.as_mut()
    }

    /// All of them, in the order of the nodes.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = Option<&mut Control>> {
        self.0.iter_mut().map(Option::as_mut)
    }
}

/// The same question to each node, to all at the same time.
pub(super) fn each<T: Send>(nodes: &[ClusterNode], ask: impl Fn(&ClusterNode) -> T + Sync) -> Vec<T> {
    let ask = &ask;
    std::thread::scope(|scope| {
        let asked: Vec<_> = nodes.iter().map(|node| scope.spawn(move || ask(node))).collect();
        let answer = |one: std::thread::ScopedJoinHandle<'_, T>| {
            one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        asked.into_iter().map(answer).collect()
    })
}

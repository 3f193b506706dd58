//! One session at each node of a cluster file, opened at the same time, for all questions before the work: a node that does not answer costs one wait.

use super::ClusterNode;
use connect::ConnSpec;
use connect::control::{self, Control};
use std::time::Duration;

/// The default time limit for the answer of a node.
pub(super) const PROBE_TIMEOUT: Duration = Duration::from_secs(3);

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
pub(super) fn each<T: Send>(nodes: &[ClusterNode], query: impl Fn(&ClusterNode) -> T + Sync) -> Vec<T> {
    let query = &query;
    std::thread::scope(|scope| {
        let threads: Vec<_> = nodes.iter().map(|node| scope.spawn(move || query(node))).collect();
        let answer = |one: std::thread::ScopedJoinHandle<'_, T>| {
            one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(answer).collect()
    })
}

/// A session for questions that may be left out; `None` if the server does not answer at once, or did not a moment ago.
pub(super) fn probe(spec: &ConnSpec) -> Option<Control> {
    let mut spec = spec.clone().without_jit();
    spec.connect_timeout.get_or_insert(PROBE_TIMEOUT);
    if spec.is_silent_lately() {
        return None;
    }
    control::connect_shared(&spec).ok()
}

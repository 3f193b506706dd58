//! Whether anything brings the rows of one node of a cluster file to the others.

use super::sessions::Sessions;
use super::survey::{is_standby, server};
use super::{Cluster, Role};
use crate::catalog;
use crate::engine::signs;
use crate::profile::{Copies, Ddl, Layout};
use connect::control::Control;

impl Cluster {
    /// That nodes of a cluster file which take writes do not work together, where their engine does not exclude that: rows that are written at one stay there.
    /// `None` where they do, where one does not answer, and where a role may not see it.
    pub(super) fn apart(&self, sessions: &mut Sessions) -> Option<String> {
        let writers = || self.nodes.iter().enumerate().filter(|(_, node)| node.role != Role::Standby);
        match self.engine.layout {
            Layout::OneServer if writers().count() > 1 => {
                let is_writer = |control: &mut Control| Some(!is_standby(Some(&server(control)?)));
                let mut names = vec![];
                for (index, node) in writers() {
                    if is_writer(sessions.get(index)?)? {
                        names.push(node.name.as_str());
                    }
                }
                (names.len() > 1).then(|| {
                    format!(
                        "the nodes {} are servers that do not work together (engine = {:?}): rows that are written at one stay there",
                        names.join(", "),
                        self.engine.name()
                    )
                })
            }
            Layout::Copies(Copies { ddl: Ddl::EachNode, .. }) if writers().count() > 1 => {
                let mut names = vec![];
                for (index, node) in writers() {
                    if !self.is_replicated(sessions.get(index)?)? {
                        names.push(node.name.as_str());
                    }
                }
                (!names.is_empty()).then(|| {
                    format!(
                        "no change of other nodes arrives at {}: the database has no subscription with origin = none, and no group of another replication",
                        names.join(", ")
                    )
                })
            }
            _ => None,
        }
    }

    /// Whether the database of this session receives changes, by any replication that its engine may have. `None` if the role may not see it.
    fn is_replicated(&self, control: &mut Control) -> Option<bool> {
        for sign in signs().into_iter().filter(|sign| sign.engine == self.engine) {
            // What only shows that the server could do it has a question of its own.
            let probe = sign.replication.and_then(|replication| replication.probe);
            let mut holds = |question: &str| {
                catalog::rows(&mut **control, question).ok()?.first().map(|row| row.is_true(0))
            };
            let has = holds(&format!("select {}", sign.sql))?;
            if has && probe.map_or(Some(true), &mut holds)? {
                return Some(true);
            }
        }
        Some(false)
    }
}

//! Whether anything brings the rows of one node of a cluster file to the others.

use super::sessions::Sessions;
use super::survey::{is_standby, server};
use super::{Cluster, Role};
use crate::catalog;
use crate::engine::signs;
use crate::profile::{Copies, Ddl, Layout};
use connect::control::Control;

/// Whether the database follows another one. Every role may read this.
const SUBSCRIBES: &str = "
    select exists (select 1 from pg_catalog.pg_subscription s join pg_catalog.pg_database d on d.oid = s.subdbid
                   where d.datname = pg_catalog.current_database() and s.subenabled)";

impl Cluster {
    /// That nodes of a cluster file which take writes do not work together, where their engine does not exclude that: rows that are written at one stay there.
    /// `None` where they do, where one does not answer, and where a role may not see it.
    pub(super) fn apart(&self, sessions: &mut Sessions) -> Option<String> {
        let writers = || self.nodes.iter().enumerate().filter(|(_, node)| node.role != Role::Standby);
        match self.engine.layout {
            Layout::OneServer if writers().count() > 1 => {
                let (mut names, mut followers, mut known) = (vec![], vec![], vec![]);
                for (index, node) in writers() {
                    let control = sessions.get(index)?;
                    // A second name of a server is no second server.
                    let server = server(control)?;
                    if !is_standby(Some(&server)) && !known.contains(&server) {
                        known.push(server);
                        names.push(node.name.as_str());
                        followers.extend(subscribes(control)?.then_some(node.name.as_str()));
                    }
                }
                (names.len() > 1).then(|| self.words_of_servers(&names, &followers))
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

    /// That nodes of a cluster file do not answer, where work goes on at another node and never needs an answer of them.
    pub(super) fn silent(&self, sessions: &mut Sessions) -> Option<String> {
        if !matches!(self.engine.layout, Layout::Spread(_)) || !self.reaches_each_node() {
            return None;
        }
        let (mut silent, mut elsewhere) = (vec![], None);
        for (index, node) in self.nodes.iter().enumerate() {
            match sessions.get(index) {
                Some(control) => {
                    elsewhere =
                        elsewhere.or_else(|| self.listed_nodes(control)).filter(|rows| rows.len() > 1);
                }
                None => {
                    let at = node.spec.hosts.first().map(ToString::to_string).unwrap_or_default();
                    silent.push(format!("{} ({at})", node.name));
                }
            }
        }
        let elsewhere = elsewhere.unwrap_or_default();
        let elsewhere: Vec<String> =
            elsewhere.iter().filter(|row| !row.is_true(6)).filter_map(|row| self.unlisted(row)).collect();
        let catalog = match elsewhere.as_slice() {
            [] => String::new(),
            places => format!("; the catalog has {}, which the file does not name", places.join(", ")),
        };
        (!silent.is_empty() && silent.len() < self.nodes.len()).then(|| {
            format!(
                "these nodes of the cluster file do not answer: {}{catalog}. Start them, or correct their connections in the file",
                silent.join(", ")
            )
        })
    }

    /// `names`: servers that take writes. `followers`: those of them with a subscription.
    fn words_of_servers(&self, names: &[&str], followers: &[&str]) -> String {
        let (names, engine) = (names.join(", "), self.engine.name());
        match followers {
            [] => format!(
                "the nodes {names} are servers that do not work together (engine = {engine:?}): rows that are written at one stay there"
            ),
            _ => format!(
                "the nodes {names} take writes, and pgfathom brings no rows from one to another (engine = {engine:?}); {} has a subscription: it may receive \
                 rows of others, and stops where a table is missing",
                followers.join(", ")
            ),
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

/// Whether the database of this session has a subscription. `None` if the role may not see it.
fn subscribes(control: &mut Control) -> Option<bool> {
    Some(catalog::rows(&mut **control, SUBSCRIBES).ok()?.first()?.is_true(0))
}

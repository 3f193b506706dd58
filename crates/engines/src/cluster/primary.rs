//! Which server of a cluster file takes writes now, and which ones are its copies, whatever roles the file gives them: it reports how the cluster was made.

use super::sessions::Sessions;
use super::survey::{is_standby, server};
use super::{Absent, Cluster, Role};
use crate::catalog::TextRow;
use crate::profile::Layout;

impl Cluster {
    /// Of one server and its copies: gives each node that answers the role that it has now, and puts one that takes writes first. A node that leads to the
    /// same server as an earlier one is left out. When no node takes writes all roles stay as they are, and the next connect returns the reason.
    #[must_use]
    pub fn following_primary(mut self) -> Cluster {
        if self.engine.layout != Layout::OneServer || self.nodes.len() < 2 {
            return self;
        }
        let mut found: Vec<Option<TextRow>> =
            Sessions::at(&self.nodes).iter_mut().map(|control| server(control?)).collect();
        self.leave_out_repeated(&mut found);
        let takes_writes = |found: &Option<TextRow>| found.is_some() && !is_standby(found.as_ref());
        let Some(now) = found.iter().position(takes_writes) else { return self };
        for (node, found) in self.nodes.iter_mut().zip(&found) {
            node.role = match node.role {
                Role::Primary if !takes_writes(found) => Role::Standby,
                _ if is_standby(found.as_ref()) => Role::Standby,
                Role::Standby if takes_writes(found) => Role::Primary,
                role => role,
            };
        }
        if !takes_writes(&found[0]) {
            let primary = self.nodes.remove(now);
            self.nodes.insert(0, primary);
        }
        self
    }

    /// `found`: who the server of each node is.
    fn leave_out_repeated(&mut self, found: &mut Vec<Option<TextRow>>) {
        for index in (1..found.len()).rev() {
            let Some(first) =
                found[..index].iter().position(|other| other.is_some() && *other == found[index])
            else {
                continue;
            };
            found.remove(index);
            let (first, name) = (self.nodes[first].name.clone(), self.nodes.remove(index).name);
            self.left_out.push(Absent {
                why: format!("the nodes {first:?} and {name:?} of the cluster file are the same server: {name:?} is left out"),
                hint: "correct the connection of one [[node]], or remove it".to_owned(),
                name,
            });
        }
    }
}

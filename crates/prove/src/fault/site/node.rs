//! One node of the cluster under test.

use connect::{ConnSpec, cluster_file::Role};
use lab::local::Instance;

use super::super::{Disk, Proxy};

/// One node.
#[derive(Debug)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// What it does.
    pub role: Role,
    /// The direct way to it.
    pub spec: ConnSpec,
    /// Its processes, if faults are allowed.
    pub instance: Option<Instance>,
    /// Why they may not.
    pub spared: String,
    /// It did not answer when the proof began, so its processes are unknown; another attempt may find them.
    pub was_silent: bool,
    /// The separate disk of its data.
    pub disk: Option<Disk>,
    /// What clients go through.
    pub proxy: Option<Proxy>,
    /// How other nodes reach it, where they do not take the way of clients: their names, and what they connect to.
    pub ways: Vec<(String, ConnSpec)>,
    /// What other nodes call the foreign server that leads to it, where that is not its own name: their names, and the server's.
    pub servers: Vec<(String, String)>,
}

impl Node {
    /// A node that must not be disturbed, for this reason.
    pub fn spared(name: &str, role: Role, spec: ConnSpec, why: &str) -> Node {
        Node {
            name: name.to_owned(),
            role,
            spec,
            instance: None,
            spared: why.to_owned(),
            was_silent: false,
            disk: None,
            proxy: None,
            ways: Vec::new(),
            servers: Vec::new(),
        }
    }

    /// A node whose processes could not be found, because it did not answer.
    pub fn silent(name: &str, role: Role, spec: ConnSpec, why: &str) -> Node {
        Node { was_silent: true, ..Node::spared(name, role, spec, why) }
    }

    /// A node whose processes may get faults.
    pub fn hurtable(name: &str, role: Role, spec: ConnSpec, instance: Instance) -> Node {
        Node { instance: Some(instance), ..Node::spared(name, role, spec, "") }
    }

    /// The way that another node takes.
    pub(crate) fn way_from(&self, node: &str) -> &ConnSpec {
        self.ways.iter().find(|(name, _)| name == node).map_or(&self.spec, |(_, way)| way)
    }

    /// The foreign server by which another node knows it.
    pub(crate) fn server_at(&self, node: &str) -> &str {
        self.servers.iter().find(|(name, _)| name == node).map_or(&self.name, |(_, server)| server)
    }

    /// The way that clients take.
    pub(crate) fn client_spec(&self) -> ConnSpec {
        self.proxy.as_ref().map_or_else(|| self.spec.clone(), |proxy| proxy.through(&self.spec))
    }
}

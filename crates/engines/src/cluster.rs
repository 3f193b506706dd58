//! A cluster under test: its engine and its nodes, from a cluster file or from the catalog of the named node.
//!
//! Work on nodes (load a leaf on its owner, measure each pair of nodes) needs a
//! connection to each of them. [`Cluster::from_file`] takes them as written; [`Cluster::discover`] queries the catalog.

mod another;
mod apart;
mod belonging;
mod coordinator;
mod discover;
mod error;
mod foreign;
mod identity;
mod primary;
mod servers;
mod sessions;
mod standing;
mod survey;

use std::path::PathBuf;

pub use error::ClusterError;
pub(crate) use error::sql_hint;
pub use foreign::ServerPlace;
pub use standing::libraries;
pub use survey::{Absent, Survey};

use crate::engine::Engine;
use crate::profile::{Ddl, Discovery, EntryPoints, Layout, LoadPath, Spread};
use connect::ConnSpec;
use connect::cluster_file::{ClusterFile, Role};
use connect::conninfo::{Host, HostSpec, Sources};

/// The comment on a foreign server that is a node of its cluster. Servers that hold partitions need none.
pub const NODE_MARK: &str = "pgfathom node";

/// The nodes of one database.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cluster {
    /// What kind of database it is.
    pub engine: Engine,
    /// The nodes; the first one is the entry. Never empty.
    pub nodes: Vec<ClusterNode>,
    /// Hash partitions of a sharded table, as given to `up sharded --partitions`.
    pub partitions: Option<u32>,
    /// Nodes that are left out: of a catalog, because roles that are not trusted chose the addresses; of a file, because another one is the same server.
    pub left_out: Vec<Absent>,
}

/// One node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterNode {
    /// Its name in reports; no two nodes of a cluster share one.
    pub name: String,
    /// What it does.
    pub role: Role,
    /// How to connect to it, and to no other node.
    pub spec: ConnSpec,
    /// Other addresses under which the nodes know it.
    pub also: Vec<HostSpec>,
    /// Other names of its database under which the nodes know it: a pooler may call it otherwise.
    pub also_named: Vec<String>,
    /// Whether tables are created through it alone, whatever its role: a coordinator that also holds rows is a shard.
    pub is_coordinator: bool,
    /// It holds rows, but its catalog has no tables of the cluster: no session of a client can enter there.
    pub is_closed: bool,
}

impl ClusterNode {
    /// Whether it answers a query.
    ///
    /// # Errors
    /// Why not, in words.
    pub fn answers(&self) -> Result<(), String> {
        if self.spec.is_silent_lately() {
            return Err("it does not answer".to_owned());
        }
        let mut control = connect::control::connect(&self.spec).map_err(|error| error.to_string())?;
        let words = |error: &postgres::Error| {
            connect::control::server_error(error).map_or_else(|| error.to_string(), |server| server.message)
        };
        control.simple_query("select 1").map(drop).map_err(|error| words(&error))
    }

    /// Notes that nodes know it by this address and this database.
    pub(crate) fn is_known_at(&mut self, way: ConnSpec) {
        if way.dbname != self.spec.dbname && !self.also_named.contains(&way.dbname) {
            self.also_named.push(way.dbname);
        }
        self.also.extend(way.hosts);
    }

    /// A node that the others know by the address of `spec`.
    pub fn new(name: impl Into<String>, role: Role, spec: ConnSpec) -> ClusterNode {
        ClusterNode {
            name: name.into(),
            role,
            spec,
            also: Vec::new(),
            also_named: Vec::new(),
            is_coordinator: role == Role::Coordinator,
            is_closed: false,
        }
    }
}

impl Cluster {
    /// A PostgreSQL server alone.
    pub fn single(spec: ConnSpec) -> Cluster {
        let node = ClusterNode::new("single", Role::Primary, spec);
        Cluster { engine: Engine::default(), nodes: vec![node], partitions: None, left_out: vec![] }
    }

    /// The nodes of a cluster file, in its order. No server is queried.
    ///
    /// # Errors
    /// An unknown engine or role, two nodes with one name, an invalid connection string.
    pub fn from_file(file: &ClusterFile, sources: &Sources<'_>) -> Result<Cluster, ClusterError> {
        let engine =
            Engine::parse(&file.engine).ok_or_else(|| ClusterError::UnknownEngine(file.engine.clone()))?;
        let mut nodes: Vec<ClusterNode> = Vec::with_capacity(file.node.len());
        for node in &file.node {
            let role = Role::parse(&node.role).ok_or_else(|| ClusterError::UnknownRole {
                node: node.name.clone(),
                role: node.role.clone(),
            })?;
            if nodes.iter().any(|other| other.name == node.name) {
                return Err(ClusterError::TwoOfOneName(node.name.clone()));
            }
            let resolved = file
                .resolve(&node.connection, sources)
                .map_err(|source| ClusterError::Conninfo { node: node.name.clone(), source })?;
            let mut found = ClusterNode::new(&node.name, role, resolved.spec);
            for address in &node.also {
                let also = file
                    .resolve(address, sources)
                    .map_err(|source| ClusterError::Conninfo { node: node.name.clone(), source })?;
                found.is_known_at(also.spec);
            }
            if let Some(first) = nodes.iter().find(|other| is_one_address(other, &found)) {
                let (first, second) = (first.name.clone(), found.name);
                return Err(ClusterError::SameNode { first, second });
            }
            nodes.push(found);
        }
        if nodes.is_empty() {
            return Err(ClusterError::NoNodes);
        }
        let partitions = file.made.as_ref().and_then(|made| made.partitions);
        Ok(Cluster { engine, nodes, partitions, left_out: vec![] })
    }

    /// The same with a node first that answers, where any node will do and the first one is away or no part of the cluster: also the name of that one, and
    /// why. Unchanged if none answers.
    #[must_use]
    pub fn entered_where_possible(self) -> (Cluster, Option<(String, String)>) {
        let is_any = self.engine.load == LoadPath::Table;
        self.entered_if(is_any)
    }

    /// The same for sessions that read and write at one node: also where each node has a ledger of its own beside all rows.
    #[must_use]
    pub fn entered_at_any_copy(self) -> (Cluster, Option<(String, String)>) {
        let is_any = self.engine.load == LoadPath::Table || matches!(self.engine.layout, Layout::Copies(_));
        self.entered_if(is_any)
    }

    fn entered_if(mut self, is_any: bool) -> (Cluster, Option<(String, String)>) {
        let is_any = is_any && self.engine.entry == EntryPoints::EveryNode;
        if !is_any || !self.is_clustered() || self.nodes.iter().any(|node| node.is_coordinator) {
            return (self, None);
        }
        let first = self.entry_node();
        let Err(why) = self.nodes[first].answers() else { return (self, None) };
        let others: Vec<usize> = self.data_nodes().filter(|node| *node != first).collect();
        let Some(place) = others.into_iter().find(|node| self.nodes[*node].answers().is_ok()) else {
            return (self, None);
        };
        let away = self.nodes[first].name.clone();
        let node = self.nodes.remove(place);
        self.nodes.insert(0, node);
        (self, Some((away, why)))
    }

    /// Connects, recognises the engine by its catalog, and lists the nodes; it has connected to each of them once.
    /// The node of `entry` comes first.
    ///
    /// # Errors
    /// [`ClusterError::Connect`] when a node cannot be reached at the address that the catalog has for it; [`ClusterError::NotTrusted`] when a role
    /// that the session does not trust chose that address, which was not tried.
    pub fn discover(entry: &ConnSpec) -> Result<Cluster, ClusterError> {
        let mut control = connect::control::connect_shared(&entry.clone().without_jit())?;
        let here = entry.clone().with_only_host(control.host_index());
        let mut left_out = vec![];
        let cluster = discover::discover(&mut control, here, &mut discover::Reach::Demanded(&mut left_out))?;
        Ok(Cluster { left_out, ..cluster })
    }

    /// As [`Cluster::discover`], for monitoring: nodes that do not answer are kept and noted, it searches for standbys and the primary in the
    /// catalog, and further hosts of `entry` count as separate nodes.
    ///
    /// # Errors
    /// When none of the hosts of `entry` answers, or a catalog cannot be read.
    pub fn survey(entry: &ConnSpec) -> Result<Survey, ClusterError> {
        survey::survey(entry)
    }

    /// The index of a node in [`Cluster::nodes`].
    pub fn node(&self, name: &str) -> Option<usize> {
        self.nodes.iter().position(|node| node.name == name)
    }

    /// The nodes that take writes: no standbys, and no coordinator beside workers or shards.
    pub fn data_nodes(&self) -> impl Iterator<Item = usize> {
        let workers = self.nodes.iter().any(|node| matches!(node.role, Role::Worker | Role::Shard));
        self.nodes.iter().enumerate().filter_map(move |(index, node)| match node.role {
            Role::Standby => None,
            Role::Coordinator if workers => None,
            _ => Some(index),
        })
    }

    /// The node through which tables are created and filled where the engine brings the rows to their nodes: the coordinator, if there is one.
    pub fn table_node(&self) -> Option<usize> {
        let coordinator = self.nodes.iter().position(|node| node.is_coordinator);
        coordinator.or_else(|| self.data_nodes().next())
    }

    /// The coordinator, if the target that was named, which is the first node, is another one: then tables are created elsewhere.
    pub fn coordinator_elsewhere(&self) -> Option<&ClusterNode> {
        let is_spread = matches!(self.engine.layout, Layout::Spread(_));
        let node = self.table_node().filter(|node| is_spread && *node != 0)?;
        Some(&self.nodes[node]).filter(|node| node.is_coordinator)
    }

    /// The same with the node first through which tables are created, where the engine brings the rows to their nodes itself.
    #[must_use]
    pub fn with_coordinator_first(mut self) -> Cluster {
        if let Some(name) = self.coordinator_elsewhere().map(|node| node.name.clone())
            && let Some(place) = self.node(&name)
        {
            let coordinator = self.nodes.remove(place);
            self.nodes.insert(0, coordinator);
        }
        self
    }

    /// A node that refuses every statement because it is no part of the cluster now: its name, and what it reports.
    pub fn isolated_node(&self) -> Option<(&str, String)> {
        let Discovery::Copies(replications) = self.engine.discovery else { return None };
        let isolated: Vec<&str> = replications.iter().flat_map(|one| one.own.isolated).copied().collect();
        if isolated.is_empty() {
            return None;
        }
        let refused = |why: &String| isolated.iter().any(|begin| why.contains(begin));
        self.data_nodes().find_map(|node| {
            let node = &self.nodes[node];
            node.answers().err().filter(refused).map(|why| (node.name.as_str(), why))
        })
    }

    /// The node whose ledger speaks for all rows, and whose catalog is read first.
    pub fn entry_node(&self) -> usize {
        self.ledger_nodes().first().copied().unwrap_or(0)
    }

    /// The nodes with a ledger of their own: one, if the engine brings rows to their nodes itself, else every node that takes writes.
    pub fn ledger_nodes(&self) -> Vec<usize> {
        let by_table = self.table_node().filter(|_| self.engine.load == LoadPath::Table);
        by_table.map_or_else(|| self.data_nodes().collect(), |node| vec![node])
    }

    /// Whether a session at any node reads and writes the one ledger, as a table that the engine keeps on all of them.
    pub fn has_ledger_everywhere(&self) -> bool {
        let is_everywhere = match self.engine.layout {
            Layout::Copies(copies) => copies.ddl == Ddl::Replicated,
            Layout::Spread(spread) => spread == Spread::ByItself,
            Layout::OneServer | Layout::ForeignPartitions => false,
        };
        let enters_anywhere =
            self.engine.entry == EntryPoints::EveryNode && self.engine.load == LoadPath::Table;
        is_everywhere && enters_anywhere && self.is_clustered()
    }

    /// The cluster as the one database that a client of [`Cluster::table_node`] sees, if its rows can be read only through the engine.
    pub fn as_one_database(&self) -> Option<Cluster> {
        let node = self.table_node().filter(|_| matches!(self.engine.layout, Layout::Spread(_)))?;
        Some(Cluster::single(self.nodes[node].spec.clone()))
    }

    /// Whether rows are distributed over, or copied to, several nodes that take writes.
    pub fn is_clustered(&self) -> bool {
        self.data_nodes().nth(1).is_some()
    }

    /// Whether the partitions of a table are on several nodes, each as a table on its owner and a foreign table on the others: then all rows can be
    /// read and written through each node.
    pub fn has_foreign_partitions(&self) -> bool {
        self.is_clustered() && self.engine.layout == Layout::ForeignPartitions
    }

    /// The node at an address as the node `seen_from` knows it. A loopback address or a socket's folder there means a server on the
    /// machine of `seen_from`; so does no address at all. `None` also where several could be it.
    pub fn node_at(&self, seen_from: usize, host: Option<&str>, port: u16, dbname: &str) -> Option<usize> {
        match self.nodes_at(seen_from, host, port, dbname)[..] {
            [only] => Some(only),
            _ => None,
        }
    }

    /// All nodes that could be at the address.
    fn nodes_at(&self, seen_from: usize, host: Option<&str>, port: u16, dbname: &str) -> Vec<usize> {
        let Some(seen_from) = self.nodes[seen_from].spec.hosts.first() else { return Vec::new() };
        let wanted = Machine::of_name(host, seen_from);
        // Two servers on one host can have the same port number on different sockets: then the folder distinguishes them.
        let folder = host.filter(|host| host.starts_with('/')).filter(|_| wanted == Machine::Here).map(real);
        let is_there = |node: &ClusterNode| {
            (node.spec.dbname == dbname || node.also_named.iter().any(|name| name == dbname))
                && node.spec.hosts.iter().chain(&node.also).any(|at| {
                    let same_folder = match (&at.host, &folder) {
                        (Host::Unix(theirs), Some(folder)) => real(&theirs.to_string_lossy()) == *folder,
                        _ => true,
                    };
                    at.port == port && wanted.is_of(at) && same_folder
                })
        };
        (0..self.nodes.len()).filter(|index| is_there(&self.nodes[*index])).collect()
    }
}

/// A folder without symbolic links: `/var/run` is `/run`.
fn real(folder: &str) -> PathBuf {
    std::fs::canonicalize(folder).unwrap_or_else(|_| PathBuf::from(folder))
}

/// A host, as far as an address identifies it.
#[derive(PartialEq, Eq)]
enum Machine {
    /// The one we run on.
    Here,
    /// Another, by name or address.
    At(String),
}

impl Machine {
    fn of(host: &HostSpec) -> Machine {
        match &host.host {
            Host::Unix(_) => Machine::Here,
            Host::Tcp(name) if is_loopback(name) => Machine::Here,
            Host::Tcp(name) => Machine::At(name.clone()),
        }
    }

    fn of_name(name: Option<&str>, seen_from: &HostSpec) -> Machine {
        match name {
            None | Some("") => Machine::of(seen_from),
            Some(name) if name.starts_with(['/', '@']) || is_loopback(name) => Machine::of(seen_from),
            Some(name) => Machine::At(name.to_owned()),
        }
    }

    fn is_of(&self, host: &HostSpec) -> bool {
        let address = host.address.map(|address| Machine::At(address.to_string()));
        Machine::of(host) == *self || address.as_ref() == Some(self)
    }
}

/// Whether this name means the local host.
fn is_loopback(name: &str) -> bool {
    name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Whether two nodes of a file are one database at one address. Two that differ only in whom they let in (target_session_attrs) are not: one string
/// with several hosts may lead to two servers.
fn is_one_address(one: &ClusterNode, other: &ClusterNode) -> bool {
    // Not the password: it is found for each host.
    let place = |node: &ClusterNode| -> Vec<_> {
        node.spec.hosts.iter().map(|at| (at.host.to_string(), at.address, at.port)).collect()
    };
    let (ours, theirs) = (&one.spec, &other.spec);
    ours.dbname == theirs.dbname
        && ours.target_session_attrs == theirs.target_session_attrs
        && place(one) == place(other)
}

#[cfg(test)]
mod tests;

//! `cluster.toml`: the nodes of a cluster and how to reach them, made by `up` or by hand.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::conninfo::{self, ConninfoError, Resolved, SessionAttrs, Sources};

/// The version of the file's format.
pub const CLUSTER_FILE_FORMAT: u32 = 1;
/// The file's name in a cluster's folder.
pub const CLUSTER_FILE_NAME: &str = "cluster.toml";
/// The longest file that is read from a folder.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// What a cluster is made of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterFile {
    /// [`CLUSTER_FILE_FORMAT`].
    pub format: u32,
    /// The engine: `postgres`, `citus`, `shardman`, ...
    pub engine: String,
    /// How `up` made it; absent in a file written by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made: Option<Made>,
    /// The nodes; the first one is the entry.
    pub node: Vec<Node>,
}

/// How `up` made a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Made {
    /// Program and version.
    pub by: String,
    /// `single`, `replicated`, ...
    pub kind: String,
    /// Folder of the PostgreSQL programs.
    pub binaries: PathBuf,
    /// Server version at that time.
    pub version: String,
    /// The preset of settings.
    pub preset: String,
    /// Hash partitions of each sharded table, all nodes together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partitions: Option<u32>,
    /// Which standbys a commit waits for, as in `synchronous_standby_names`, or `async`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync: Option<String>,
    /// Round trips between the nodes, and to clients, that relays make longer: as in `up --delay`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<String>,
    /// The operating system user that runs the servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub os_user: Option<String>,
}

/// The role of a node in its cluster.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// Takes all writes.
    Primary,
    /// Follows a primary; has all rows but takes no writes.
    Standby,
    /// Owns a part of the rows, and is an entry point to all of them.
    Shard,
    /// Holds every row and takes writes, like all its peers.
    Peer,
    /// Entry point; holds no rows of sharded tables.
    Coordinator,
    /// Owns a part of the rows, behind a coordinator.
    Worker,
}

impl Role {
    /// All roles.
    pub const ALL: [Role; 6] =
        [Role::Primary, Role::Standby, Role::Shard, Role::Peer, Role::Coordinator, Role::Worker];

    /// The name in `cluster.toml`.
    pub fn name(self) -> &'static str {
        match self {
            Role::Primary => "primary",
            Role::Standby => "standby",
            Role::Shard => "shard",
            Role::Peer => "peer",
            Role::Coordinator => "coordinator",
            Role::Worker => "worker",
        }
    }

    /// The role of this name.
    pub fn parse(name: &str) -> Option<Role> {
        Role::ALL.into_iter().find(|role| role.name() == name)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a cluster file cannot be read, written or used.
#[derive(Debug, thiserror::Error)]
pub enum ClusterFileError {
    /// A `cluster.toml` that is none.
    #[error("{}: {problem}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// It names no node.
    #[error("the cluster has no nodes")]
    NoNodes,
    /// The connection of a node is not valid.
    #[error("node {node:?}: its connection is not valid")]
    NodeConnection {
        /// The node's name.
        node: String,
        /// What is wrong.
        source: ConninfoError,
    },
    /// The file cannot be read or written.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// `read` or `write`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl ClusterFileError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            ClusterFileError::Malformed { .. } => Some(
                "a cluster file has format = 1, engine = \"postgres\" and [[node]] with name, role and connection"
                    .to_owned(),
            ),
            ClusterFileError::NoNodes => Some("a cluster file names at least one [[node]]".to_owned()),
            ClusterFileError::NodeConnection { source, .. } => source.hint(),
            ClusterFileError::Io { .. } => None,
        }
    }

    fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ClusterFileError {
        let path = path.to_owned();
        move |source| ClusterFileError::Io { action, path, source }
    }
}

/// One server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// A name for reports.
    pub name: String,
    /// `primary`, `standby`, `coordinator`, `shard`, ...
    pub role: String,
    /// A connection string without a password.
    pub connection: String,
    /// Other addresses under which the nodes know it, as connection strings: behind a relay or another network.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<String>,
    /// The host to reach by ssh for its files; absent: this host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssh: Option<String>,
    /// Data directory on that host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_directory: Option<PathBuf>,
    /// Server log on that host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<PathBuf>,
}

impl Node {
    /// How to connect to it.
    pub fn resolve(&self, sources: &Sources<'_>) -> Result<Resolved, ConninfoError> {
        conninfo::parse_of_node(&self.connection, sources)
    }
}

impl ClusterFile {
    /// How to reach the node that takes writes: the first node; in a cluster with standbys all its hosts, requested `read-write` unless
    /// the first connection requests something else, so that a session finds the new primary after a failover.
    ///
    /// # Errors
    /// [`ClusterFileError::NodeConnection`].
    pub fn entry(&self, sources: &Sources<'_>) -> Result<Resolved, ClusterFileError> {
        let resolve = |node: &Node| {
            node.resolve(sources)
                .map_err(|source| ClusterFileError::NodeConnection { node: node.name.clone(), source })
        };
        let Some((first, others)) = self.node.split_first() else {
            return Err(ClusterFileError::NoNodes);
        };
        let mut entry = resolve(first)?;
        let standbys = self.node.iter().any(|node| node.role == Role::Standby.name());
        if standbys {
            for node in others {
                let mut other = resolve(node)?;
                entry.spec.hosts.append(&mut other.spec.hosts);
                entry.warnings.append(&mut other.warnings);
            }
            if entry.spec.target_session_attrs == SessionAttrs::Any {
                entry.spec.target_session_attrs = SessionAttrs::ReadWrite;
            }
        }
        Ok(entry)
    }

    /// Reads a file, or the one in a cluster's folder.
    pub fn read(path: &Path) -> Result<ClusterFile, ClusterFileError> {
        // A file that is named may be anything; in a folder, which may belong to another user, it must be a plain file.
        let (path, text) = if path.is_dir() {
            let path = path.join(CLUSTER_FILE_NAME);
            let bytes = record::file::read(&path, FILE_BYTES_MAX);
            (path, bytes.and_then(|bytes| String::from_utf8(bytes).map_err(std::io::Error::other)))
        } else {
            (path.to_owned(), fs::read_to_string(path))
        };
        let text = text.map_err(ClusterFileError::io("read", &path))?;
        let wrong = |problem: String| ClusterFileError::Malformed { path: path.clone(), problem };
        let file: ClusterFile =
            toml::from_str(&text).map_err(|error| wrong(error.to_string().trim_end().to_owned()))?;
        if file.format != CLUSTER_FILE_FORMAT {
            return Err(wrong(format!(
                "format {} is not known (this program writes {CLUSTER_FILE_FORMAT})",
                file.format
            )));
        }
        if file.node.is_empty() {
            return Err(wrong("it has no [[node]]".to_owned()));
        }
        Ok(file)
    }

    /// Writes the file atomically.
    pub fn write(&self, path: &Path) -> Result<(), ClusterFileError> {
        let body = toml::to_string(self).map_err(|error| ClusterFileError::Malformed {
            path: path.to_owned(),
            problem: error.to_string(),
        })?;
        let text = format!(
            "# A cluster for pgfathom --cluster; `pgfathom down` removes what `pgfathom up` made.\n{body}"
        );
        record::file::replace(path, text.as_bytes()).map_err(ClusterFileError::io("write", path))
    }
}

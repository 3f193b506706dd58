//! `cluster.toml`: the nodes of a cluster and how to reach them, made by `up` or by hand.

use std::fmt;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use record::owner::Others;
use serde::{Deserialize, Serialize};

use crate::conninfo::{self, ConninfoError, Resolved, SessionAttrs, Sources};
use crate::os_user::OsUser;

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
    /// How others than this user and root can change the file, if they can: then they choose the hosts.
    #[serde(skip)]
    pub others: Option<String>,
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

/// How others than this user and root can change an open cluster file, in words. A group that has no other member is the user.
fn others(path: &Path, there: &fs::Metadata) -> Option<String> {
    let us = rustix::process::geteuid().as_raw();
    let others = Others::of(there, &[us, 0])?;
    let is_own_group = |gid| OsUser::current().is_some_and(|user| user.is_alone_in(gid));
    match others {
        Others::Group(gid) if is_own_group(gid) => None,
        Others::Owner(_) => Some(format!("{} is not yours ({others})", path.display())),
        _ => Some(format!("{} is not only yours ({others})", path.display())),
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

impl ClusterFile {
    /// How to connect to a node: by its `connection`, or by one of the addresses that it has `also`.
    ///
    /// # Errors
    /// What is wrong with the connection string.
    pub fn resolve(&self, connection: &str, sources: &Sources<'_>) -> Result<Resolved, ConninfoError> {
        conninfo::parse_of_node(connection, sources, self.others.as_deref())
    }

    /// How to reach the node that takes writes: the first node; in a cluster with standbys all its hosts, requested `read-write` unless
    /// the first connection requests something else, so that a session finds the new primary after a failover.
    ///
    /// # Errors
    /// [`ClusterFileError::NodeConnection`].
    pub fn entry(&self, sources: &Sources<'_>) -> Result<Resolved, ClusterFileError> {
        let resolve = |node: &Node| {
            self.resolve(&node.connection, sources)
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
        let (path, open) = if path.is_dir() {
            let path = path.join(CLUSTER_FILE_NAME);
            let open = record::file::open(&path);
            (path, open)
        } else {
            (path.to_owned(), fs::File::open(path))
        };
        let read = open.and_then(|open| {
            let others = others(&path, &open.metadata()?);
            let mut text = String::new();
            match open.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)? as u64 > FILE_BYTES_MAX {
                true => Err(io::Error::other(format!("it is larger than {} MiB", FILE_BYTES_MAX >> 20))),
                false => Ok((text, others)),
            }
        });
        let (text, others) = read.map_err(ClusterFileError::io("read", &path))?;
        let wrong = |problem: String| ClusterFileError::Malformed { path: path.clone(), problem };
        let mut file: ClusterFile =
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
        file.others = others;
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_file_that_others_can_change_is_known_as_theirs() {
        let path = std::env::temp_dir().join(format!("pgfathom-others-{}.toml", std::process::id()));
        let text = "format = 1\nengine = \"postgres\"\n[[node]]\nname = \"n1\"\nrole = \"primary\"\nconnection = \"host=db\"\n";
        fs::write(&path, text).expect("written");
        let others = |mode: u32| {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("changed");
            let file = ClusterFile::read(&path).expect("a cluster file");
            let spec = file.entry(&Sources::of_process()).expect("an entry").spec;
            assert_eq!(spec.withheld, file.others);
            file.others
        };
        assert_eq!(others(0o644), None);
        let expected = format!("{} is not only yours (every user may write into it)", path.display());
        assert_eq!(others(0o666), Some(expected));
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(7350), None).expect("given away");
            let expected = format!("{} is not yours (it belongs to user 7350)", path.display());
            assert_eq!(others(0o644), Some(expected));
        }
        fs::remove_file(&path).expect("removed");
    }
}

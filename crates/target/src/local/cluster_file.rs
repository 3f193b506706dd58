//! `cluster.toml`: the nodes of a cluster and how to reach them, made by `up` or by hand.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::LocalError;
use crate::cluster::Role;
use crate::conninfo::{self, ConninfoError, Resolved, SessionAttrs, Sources};

/// The version of the file's format.
pub const CLUSTER_FILE_FORMAT: u32 = 1;
/// The file's name in a cluster's folder.
pub const CLUSTER_FILE_NAME: &str = "cluster.toml";

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
    /// The nodes; the first one is where things start.
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
    /// The operating system user that runs the servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub os_user: Option<String>,
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
    /// The host to reach by ssh for its files; absent: this machine.
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
        conninfo::parse(&self.connection, sources)
    }
}

impl ClusterFile {
    /// How to reach the node that takes writes: the first node; in a cluster with standbys all its hosts, asked for `read-write` unless
    /// the first connection asks for something else, so that a session finds the new primary after a failover.
    ///
    /// # Errors
    /// [`LocalError::NodeConnection`].
    pub fn entry(&self, sources: &Sources<'_>) -> Result<Resolved, LocalError> {
        let resolve = |node: &Node| {
            node.resolve(sources)
                .map_err(|source| LocalError::NodeConnection { node: node.name.clone(), source })
        };
        let Some((first, others)) = self.node.split_first() else {
            return Err(LocalError::Topology {
                problem: "the cluster has no nodes".to_owned(),
                hint: "a cluster file names at least one [[node]]".to_owned(),
            });
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
    pub fn read(path: &Path) -> Result<ClusterFile, LocalError> {
        let path = if path.is_dir() { path.join(CLUSTER_FILE_NAME) } else { path.to_owned() };
        let text = fs::read_to_string(&path).map_err(LocalError::io("read", &path))?;
        let wrong = |problem: String| LocalError::ClusterFile { path: path.clone(), problem };
        let file: ClusterFile =
            toml::from_str(&text).map_err(|error| wrong(error.to_string().trim_end().to_owned()))?;
        if file.format != CLUSTER_FILE_FORMAT {
            return Err(wrong(format!(
                "format {} is not known (this program writes {CLUSTER_FILE_FORMAT})",
                file.format
            )));
        }
        if file.node.is_empty() {
            return Err(wrong("it names no [[node]]".to_owned()));
        }
        Ok(file)
    }

    /// Writes the file so that it is there whole or not at all.
    pub fn write(&self, path: &Path) -> Result<(), LocalError> {
        let body = toml::to_string(self)
            .map_err(|error| LocalError::ClusterFile { path: path.to_owned(), problem: error.to_string() })?;
        let text = format!(
            "# A cluster for pgfathom --cluster; `pgfathom down` removes what `pgfathom up` made.\n{body}"
        );
        record::file::replace(path, text.as_bytes()).map_err(LocalError::io("write", path))
    }
}

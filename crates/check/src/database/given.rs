//! What the caller knows before a node is checked: its name and connection, its machine, and what is planned for it.

use connect::ConnSpec;

/// A node to check.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its name.
    pub name: String,
    /// How to connect. The schema is checked in the database of this connection.
    pub spec: ConnSpec,
    /// Its host, if the caller has read it. Without it, a node on this host is read here; of another host nothing is known.
    pub machine: Option<Machine>,
}

/// What matters of a node's host. What is not known is absent, and the checks that need it report so.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Machine {
    /// Main memory.
    pub memory_bytes: Option<u64>,
    /// CPUs that the server may use.
    pub cpus: Option<u64>,
    /// Size of the file system of `pg_wal`.
    pub wal_disk_bytes: Option<u64>,
    /// Free space on it.
    pub wal_free_bytes: Option<u64>,
    /// Whether the disk of the data has a seek time: a spinning one.
    pub is_rotational: Option<bool>,
}

/// What a plan expects of each node; absent values are not judged.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Expected {
    /// WAL written per second.
    pub wal_bytes_per_s: Option<f64>,
    /// Connections at the same time.
    pub connections: Option<u64>,
    /// Bytes of tables, which a vacuum has to read.
    pub data_bytes: Option<f64>,
    /// Transaction ids used per second.
    pub xids_per_s: Option<f64>,
}

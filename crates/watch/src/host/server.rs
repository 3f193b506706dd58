//! The nodes of the database that run on a host, and where their files are.

use super::backends::Target;

/// A node of the database that runs on this host.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Server {
    /// Its name.
    pub node: String,
    /// One of its processes, at work or not.
    pub pid: Option<u32>,
    /// Its processes that are at work.
    pub active: Vec<Target>,
    /// What lies where.
    pub parts: Vec<Part>,
}

/// A part of a database and its location.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Part {
    /// The node it belongs to.
    pub node: String,
    /// `pgdata`, `wal`, `tablespace X`.
    pub what: String,
    /// Its folder, with symbolic links followed.
    pub path: String,
}

//! The ports of the servers of one cluster.

use std::path::{Path, PathBuf};

use connect::conninfo::PORT_DEFAULT;

use super::super::topology::Topology;
use super::super::{LocalError, folder};
use super::UpOptions;

/// Consecutive ports for the servers of one cluster.
#[derive(Debug)]
pub(super) struct Ports {
    next: u16,
    fixed: bool,
    tcp: bool,
    socket_dir: PathBuf,
}

impl Ports {
    pub(super) fn new(options: &UpOptions, socket_dir: &Path) -> Ports {
        Ports {
            next: options.port.unwrap_or(PORT_DEFAULT),
            fixed: options.port.is_some(),
            // The programs of a failover manager use TCP in any case.
            tcp: options.tcp || matches!(options.topology, Topology::Patroni(_)),
            socket_dir: socket_dir.to_owned(),
        }
    }

    pub(super) fn next(&mut self) -> Result<u16, LocalError> {
        let port = if self.fixed {
            folder::claim_port(self.next, &self.socket_dir, self.tcp)?
        } else {
            folder::first_free_port(self.next, &self.socket_dir, self.tcp)?
        };
        self.next = port.checked_add(1).unwrap_or(port);
        Ok(port)
    }
}

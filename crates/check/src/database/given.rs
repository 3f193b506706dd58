//! What the caller knows before a node is checked: its name and connection, its machine, and what is planned for it.

use connect::ConnSpec;
use connect::conninfo::Host as Address;
use record::check::{Host, Mount};
use std::path::Path;

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
    /// Its file systems, among which is that of `pg_wal`.
    pub mounts: Vec<Mount>,
}

impl Machine {
    /// The checked host that a node runs on, found by the node's address; `None` for a node on this host, which is read directly.
    pub fn of(spec: &ConnSpec, hosts: &[Host]) -> Option<Machine> {
        let Address::Tcp(name) = &spec.hosts.first()?.host else { return None };
        let host = hosts.iter().find(|host| &host.host == name || &host.address == name)?;
        let fact = |topic: &str, name: &str| {
            host.facts
                .iter()
                .find(|fact| fact.topic == topic && fact.name == name)
                .map(|fact| fact.value.as_str())
        };
        let total = fact("memory", "total").and_then(|value| value.split(' ').next()?.parse().ok());
        let mut kinds =
            host.facts.iter().filter(|fact| fact.topic == "disk" && fact.name.ends_with(" rotational"));
        // With disks of both kinds it is not known which one has the data.
        let kind = kinds.next().map(|fact| fact.value.as_str());
        let kind = kind.filter(|kind| kinds.all(|fact| fact.value == *kind));
        Some(Machine {
            memory_bytes: total,
            cpus: Some(host.cpus).filter(|cpus| *cpus > 0),
            is_rotational: kind.map(|kind| kind == "1"),
            mounts: host.mounts.clone(),
            ..Machine::default()
        })
    }

    /// Fills in the disk of the WAL from the file systems.
    pub(crate) fn find_wal(&mut self, data_directory: &Path) {
        let wal = data_directory.join("pg_wal");
        let mount = self
            .mounts
            .iter()
            .filter(|mount| wal.starts_with(&mount.mount))
            .max_by_key(|mount| mount.mount.len());
        if let (None, Some(mount)) = (self.wal_disk_bytes, mount) {
            self.wal_disk_bytes = mount.size_bytes;
            self.wal_free_bytes = mount.free_bytes;
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use record::check::Fact;

    #[test]
    fn a_node_is_found_on_its_host_and_its_wal_on_the_nearest_mount() {
        let fact = |topic: &str, name: &str, value: &str| Fact {
            topic: topic.into(),
            name: name.into(),
            value: value.into(),
        };
        let mount = |at: &str, size| Mount {
            mount: at.into(),
            size_bytes: Some(size),
            free_bytes: Some(size / 2),
            ..Mount::default()
        };
        let host = Host {
            host: "dn1".into(),
            address: "10.0.0.1".into(),
            cpus: 8,
            mounts: vec![mount("/", 10), mount("/data", 100), mount("/database", 1000)],
            facts: vec![
                fact("memory", "total", "1024 bytes"),
                fact("disk", "sda rotational", "0"),
                fact("disk", "sdb rotational", "0"),
            ],
            ..Host::default()
        };
        let mut machine =
            Machine::of(&ConnSpec::new("10.0.0.1", 5432, "u", "d"), std::slice::from_ref(&host))
                .expect("found");
        machine.find_wal(Path::new("/data/pg"));
        assert_eq!(
            (machine.memory_bytes, machine.cpus, machine.is_rotational),
            (Some(1024), Some(8), Some(false))
        );
        assert_eq!((machine.wal_disk_bytes, machine.wal_free_bytes), (Some(100), Some(50)));
        assert_eq!(
            Machine::of(&ConnSpec::new("10.0.0.2", 5432, "u", "d"), std::slice::from_ref(&host)),
            None
        );
    }
}

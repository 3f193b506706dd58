//! What the caller knows before a node is checked: its name and connection, its machine, and what is planned for it.

use connect::ConnSpec;
use connect::conninfo::Host as Address;
use record::check::{Host, Mount};
use record::plan::Plan;
use record::plan::input::Server;
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
    /// Main memory, or what the server's control group allows of it.
    pub memory_bytes: Option<u64>,
    /// The control group has a limit of memory.
    pub is_limited: bool,
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
        let mount = nearest(&self.mounts, &data_directory.join("pg_wal"));
        if let (None, Some(mount)) = (self.wal_disk_bytes, mount) {
            self.wal_disk_bytes = mount.size_bytes;
            self.wal_free_bytes = mount.free_bytes;
        }
    }
}

/// The file system that a folder is on.
pub(crate) fn nearest<'a>(mounts: &'a [Mount], folder: &Path) -> Option<&'a Mount> {
    let above = mounts.iter().filter(|mount| folder.starts_with(&mount.mount));
    above.max_by_key(|mount| mount.mount.len())
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
    /// Where the rows go.
    pub storage: Option<Storage>,
}

/// What a plan needs of the storage of a node, and the settings that it was computed with.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Storage {
    /// Volumes of the node.
    pub volumes: u64,
    /// Their tablespaces, if the plan names them.
    pub tablespaces: Vec<String>,
    /// What must be free on each volume before the load: rows, indexes and sorting, or what stays free at the end.
    pub volume_bytes: f64,
    /// The largest partition.
    pub partition_bytes: f64,
    /// The settings that the plan was computed with.
    pub server: Server,
}

impl Expected {
    /// What a plan expects of each of its nodes.
    pub fn of_plan(plan: &Plan) -> Expected {
        let (hardware, loading) = (&plan.input.hardware, &plan.input.loading);
        let nodes = hardware.nodes.max(1) as f64;
        let of_load = plan.time.copy_s.filter(|seconds| *seconds > 0.0);
        let of_load = of_load.map(|seconds| plan.transactions.load as f64 / seconds);
        let of_run = plan.input.workload.tps.map(|tps| tps / nodes);
        let vacuum = &plan.transactions;
        let read = if loading.is_frozen { vacuum.vacuum_bytes_frozen } else { vacuum.vacuum_bytes };
        let (clients, rate) = (&plan.clients, of_load.unwrap_or(0.0).max(of_run.unwrap_or(0.0)));
        let connections = Some(clients.connections_per_node.max(clients.sessions_per_node));
        if plan.input.other_storage.is_some() {
            return Expected { connections, ..Expected::default() };
        }
        Expected {
            wal_bytes_per_s: plan.wal.bytes_per_s,
            connections,
            data_bytes: Some(read as f64),
            xids_per_s: (rate > 0.0).then_some(rate),
            storage: Some(Storage {
                volumes: plan.layout.volumes_per_node,
                tablespaces: loading.tablespaces.clone(),
                volume_bytes: volume_bytes(plan),
                partition_bytes: plan.layout.partition_bytes as f64,
                server: plan.input.server.clone(),
            }),
        }
    }
}

/// What must be free on each volume before the load of a plan. A load that does not fit stops when the volume is full to its reserve.
pub(crate) fn volume_bytes(plan: &Plan) -> f64 {
    let space = &plan.space;
    let all = space.peak_bytes.max(space.final_bytes.saturating_add(space.keep_free_bytes));
    let most = if space.is_known { space.volume_bytes } else { u64::MAX };
    all.min(most) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::check::Fact;

    #[test]
    fn a_plan_becomes_what_each_node_must_give() {
        let mut plan = Plan::default();
        plan.input.hardware.nodes = 4;
        plan.input.workload.tps = Some(8000.0);
        plan.wal.bytes_per_s = Some(5e7);
        (plan.time.copy_s, plan.transactions.load) = (Some(100.0), 1_000);
        (plan.transactions.vacuum_bytes, plan.transactions.vacuum_bytes_frozen) = (1_000_000, 10);
        (plan.clients.connections_per_node, plan.clients.sessions_per_node) = (13, 200);
        (plan.space.peak_bytes, plan.space.final_bytes, plan.space.keep_free_bytes) = (110, 100, 20);
        let expected = Expected::of_plan(&plan);
        assert_eq!((expected.wal_bytes_per_s, expected.connections), (Some(5e7), Some(200)));
        // The run takes 2,000 ids a second on each node, the load took 10.
        assert_eq!((expected.xids_per_s, expected.data_bytes), (Some(2000.0), Some(1e6)));
        assert_eq!(expected.storage.as_ref().map(|storage| storage.volume_bytes), Some(120.0));
        plan.input.loading.is_frozen = true;
        (plan.space.is_known, plan.space.volume_bytes) = (true, 90);
        let expected = Expected::of_plan(&plan);
        assert_eq!(expected.data_bytes, Some(10.0));
        assert_eq!(expected.storage.map(|storage| storage.volume_bytes), Some(90.0));
    }

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

//! Throwaway clusters of several servers.
//!
//! Each node is a [`Throwaway`] with its own socket; they are made in parallel and configured exactly as `up` does it, so a test of something that works
//! on a cluster of `up` needs no cluster of `up`.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use super::{Options, Throwaway};
use crate::local::process;
use crate::local::topology::{self, Link, Peer, Planned, Topology, replicated};
use crate::local::{Installation, LocalError, Replication, SyncStandbys, THROWAWAY_PRESET, standby};
use connect::cluster_file::Role;
use connect::cluster_file::{CLUSTER_FILE_FORMAT, CLUSTER_FILE_NAME, ClusterFile, Made, Node};

/// Several connected servers. They end with this value, or with our process.
#[derive(Debug)]
pub struct ThrowawayCluster {
    nodes: Vec<Throwaway>,
    file: ClusterFile,
}

impl ThrowawayCluster {
    /// Hash partitions over `nodes` servers (named `n1`, `n2`, ...) by postgres_fdw; `partitions` is only recorded in the cluster file; the loader creates the
    /// tables.
    pub fn sharded(
        installation: &Installation,
        nodes: u32,
        partitions: u32,
    ) -> Result<ThrowawayCluster, LocalError> {
        ThrowawayCluster::start(installation, &Topology::Sharded { nodes, partitions }, &[])
    }

    /// A primary and its standbys (`s1`, `s2`, ...), in this order; `sync` as for `up replicated --sync`, for example `ANY 1 (s1, s2)` or `async`.
    pub fn replicated(
        installation: &Installation,
        standbys: u32,
        sync: &str,
    ) -> Result<ThrowawayCluster, LocalError> {
        let sync = SyncStandbys::parse(sync, standbys)?;
        let topology = Topology::Replicated(Replication { standbys, sync, commit: None });
        ThrowawayCluster::start(installation, &topology, &[])
    }

    /// Servers that all take writes (`m1`, `m2`, ...). Their publication is empty: tables are made on all nodes, added to it
    /// ([`PUBLICATION`](crate::local::PUBLICATION)), and then the subscriptions are refreshed.
    pub fn multimaster(installation: &Installation, nodes: u32) -> Result<ThrowawayCluster, LocalError> {
        ThrowawayCluster::start(installation, &Topology::Multimaster { nodes }, &[])
    }

    /// Any topology; `settings` go to every node's `postgresql.conf`, after those of the topology.
    pub fn start(
        installation: &Installation,
        topology: &Topology,
        settings: &[(&str, &str)],
    ) -> Result<ThrowawayCluster, LocalError> {
        ThrowawayCluster::start_in(installation, topology, settings, &[])
    }

    /// The same in data directories of the caller, one for each node in the order of the topology, as [`Options::data_dir`]; further nodes get a new
    /// one.
    pub fn start_in(
        installation: &Installation,
        topology: &Topology,
        settings: &[(&str, &str)],
        data_dirs: &[PathBuf],
    ) -> Result<ThrowawayCluster, LocalError> {
        let major = installation.version.major;
        topology.check(installation)?;
        let planned = topology.nodes();
        let theirs = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let options = Options {
            settings: topology.settings(installation).into_iter().chain(theirs).collect(),
            ..Options::default()
        };
        let originals = planned.iter().filter(|node| node.role != Role::Standby).count();
        let mut nodes = topology::at_once(originals, |number| {
            Options { data_dir: data_dirs.get(number).cloned(), ..options.clone() }
                .start(installation)
                .map_err(|error| error.on(&planned[number].name))
        })?;
        if originals < planned.len() {
            add_standbys(&mut nodes, &planned, &options, data_dirs.get(1..).unwrap_or_default())?;
        }
        let peers: Vec<Peer> = std::iter::zip(&planned, &nodes)
            .map(|(planned, node)| Peer {
                name: planned.name.clone(),
                spec: node.spec(),
                link: Link::of(&node.spec()),
            })
            .collect();
        topology::connect_nodes(topology, &peers, major)?;
        if let (Some(replication), Some(primary), Some(peer)) =
            (topology.replication(), nodes.first(), peers.first())
        {
            let mut options = options.clone();
            options.settings.push(("synchronous_standby_names".to_owned(), replication.sync.setting()));
            topology::replicated::wait_for_standbys(peer, &replication.sync, || {
                primary.write_settings(&options)?;
                primary.reload()
            })?;
        }
        let file = describe(installation, topology, &planned, &nodes);
        let cluster = ThrowawayCluster { nodes, file };
        let user = cluster.nodes.first().and_then(|node| node.user.clone());
        process::with_files_of(user.as_ref(), || cluster.file.write(&cluster.cluster_toml()))?;
        Ok(cluster)
    }

    /// The content of `cluster.toml`.
    pub fn file(&self) -> &ClusterFile {
        &self.file
    }

    /// Where `cluster.toml` lies, for `--cluster`.
    pub fn cluster_toml(&self) -> PathBuf {
        self.nodes.first().map_or_else(PathBuf::new, |node| node.base.join(CLUSTER_FILE_NAME))
    }

    /// The nodes in the cluster file's order.
    pub fn nodes(&self) -> &[Throwaway] {
        &self.nodes
    }

    /// One node by its index in the cluster file.
    pub fn node(&self, index: usize) -> &Throwaway {
        &self.nodes[index]
    }

    /// The same, to stop, kill or start it.
    pub fn node_mut(&mut self, index: usize) -> &mut Throwaway {
        &mut self.nodes[index]
    }
}

/// Copies the first node to the others of the plan, and starts these as its standbys.
fn add_standbys(
    nodes: &mut Vec<Throwaway>,
    planned: &[Planned],
    options: &Options,
    data_dirs: &[PathBuf],
) -> Result<(), LocalError> {
    let Some(primary) = nodes.first() else { return Ok(()) };
    let names: Vec<String> = planned.iter().map(|node| node.name.clone()).collect();
    let peer = Peer { name: names[0].clone(), spec: primary.spec(), link: Link::of(&primary.spec()) };
    topology::execute_all(&peer, &replicated::slots(0, &names, true))?;
    let copies: Vec<Throwaway> = (0..planned.len() - 1)
        .map(|number| primary.empty_neighbour(data_dirs.get(number)))
        .collect::<Result<_, _>>()?;
    let targets: Vec<PathBuf> = copies.iter().map(Throwaway::data_dir).collect();
    standby::copy(&primary.spec(), &primary.data_dir(), &targets, primary.user.as_ref())?;
    let links: Vec<(String, Link)> = std::iter::zip(&names, std::iter::once(primary).chain(&copies))
        .map(|(name, node)| (name.clone(), Link::of(&node.spec())))
        .collect();
    // Each start runs separately: it waits only for its own server.
    let slots: Vec<Mutex<Option<Throwaway>>> =
        copies.into_iter().map(|copy| Mutex::new(Some(copy))).collect();
    let started = topology::at_once(slots.len(), |number| {
        let mut copy = slots[number]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
            .expect("each is taken once, by its own thread");
        let mut options = options.clone();
        options.settings.extend(replicated::standby_settings(number + 1, &links));
        copy.write_settings(&options)?;
        copy.start_again().map_err(|error| error.on(&names[number + 1]))?;
        Ok(copy)
    })?;
    nodes.extend(started);
    Ok(())
}

impl Drop for ThrowawayCluster {
    fn drop(&mut self) {
        // In parallel: each waits for the end of its server.
        std::thread::scope(|scope| {
            for node in self.nodes.drain(..) {
                scope.spawn(move || drop(node));
            }
        });
    }
}

/// The cluster file of started nodes.
fn describe(
    installation: &Installation,
    topology: &Topology,
    planned: &[Planned],
    nodes: &[Throwaway],
) -> ClusterFile {
    ClusterFile {
        format: CLUSTER_FILE_FORMAT,
        engine: topology.engine().to_owned(),
        made: Some(Made {
            by: concat!("pgfathom ", env!("CARGO_PKG_VERSION")).to_owned(),
            kind: topology.kind().to_owned(),
            binaries: installation.bin_dir.clone(),
            version: installation.version.to_string(),
            preset: THROWAWAY_PRESET.to_owned(),
            partitions: topology.partitions(),
            delay: None,
            sync: topology.replication().map(|replication| replication.sync.to_string()),
            os_user: nodes.first().and_then(|node| node.user.as_ref()).map(|user| user.name.clone()),
        }),
        node: std::iter::zip(planned, nodes)
            .map(|(planned, node)| Node {
                name: planned.name.clone(),
                role: planned.role.name().to_owned(),
                connection: node.spec().describe(),
                ssh: None,
                data_directory: Some(node.data_dir()),
                log: Some(node.log_path()),
                also: Vec::new(),
            })
            .collect(),
        others: None,
    }
}

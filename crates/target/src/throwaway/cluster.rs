//! Throwaway clusters of several servers.
//!
//! Each node is a [`Throwaway`] with a socket of its own; they are made at once and told of each other exactly as `up` does it, so a test of something that works
//! on a cluster of `up` needs no cluster of `up`.

use std::path::PathBuf;

use super::{Options, Throwaway};
use crate::local::topology::{self, Link, Peer, Topology};
use crate::local::{
    CLUSTER_FILE_FORMAT, CLUSTER_FILE_NAME, ClusterFile, Installation, LocalError, Made, Node,
};

/// Several servers that know each other. They end with this value, or with our process.
#[derive(Debug)]
pub struct ThrowawayCluster {
    nodes: Vec<Throwaway>,
    file: ClusterFile,
}

impl ThrowawayCluster {
    /// Hash partitions over `nodes` servers (named `n1`, `n2`, ...) by postgres_fdw; `partitions` is only noted in the cluster file, the tables are
    /// the loader's.
    pub fn sharded(
        installation: &Installation,
        nodes: u32,
        partitions: u32,
    ) -> Result<ThrowawayCluster, LocalError> {
        ThrowawayCluster::start(installation, &Topology::Sharded { nodes, partitions }, &[])
    }

    /// Any topology; `settings` go to every node's `postgresql.conf`, after those of the topology.
    pub fn start(
        installation: &Installation,
        topology: &Topology,
        settings: &[(&str, &str)],
    ) -> Result<ThrowawayCluster, LocalError> {
        topology.check()?;
        let major = installation.version.major;
        let planned = topology.nodes();
        let theirs = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let options = Options {
            settings: topology.settings(major).into_iter().chain(theirs).collect(),
            ..Options::default()
        };
        let nodes = topology::at_once(planned.len(), |number| {
            options.start(installation).map_err(|error| error.on(&planned[number].name))
        })?;
        let peers: Vec<Peer> = std::iter::zip(&planned, &nodes)
            .map(|(planned, node)| Peer {
                name: planned.name.clone(),
                spec: node.spec(),
                link: Link::of(&node.spec()),
            })
            .collect();
        topology::connect_nodes(topology, &peers, major)?;
        let file = ClusterFile {
            format: CLUSTER_FILE_FORMAT,
            engine: topology.engine().to_owned(),
            made: Some(Made {
                by: concat!("pgfathom ", env!("CARGO_PKG_VERSION")).to_owned(),
                kind: topology.kind().to_owned(),
                binaries: installation.bin_dir.clone(),
                version: installation.version.to_string(),
                preset: "throwaway".to_owned(),
                partitions: topology.partitions(),
                os_user: nodes.first().and_then(|node| node.user.as_ref()).map(|user| user.name.clone()),
            }),
            node: std::iter::zip(&planned, &nodes)
                .map(|(planned, node)| Node {
                    name: planned.name.clone(),
                    role: planned.role.name().to_owned(),
                    connection: node.spec().describe(),
                    ssh: None,
                    data_directory: Some(node.data_dir()),
                    log: Some(node.log_path()),
                })
                .collect(),
        };
        let cluster = ThrowawayCluster { nodes, file };
        cluster.file.write(&cluster.cluster_toml())?;
        Ok(cluster)
    }

    /// What `cluster.toml` says.
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

    /// One node by its place in the cluster file.
    pub fn node(&self, index: usize) -> &Throwaway {
        &self.nodes[index]
    }

    /// The same, to stop, kill or start it.
    pub fn node_mut(&mut self, index: usize) -> &mut Throwaway {
        &mut self.nodes[index]
    }
}

impl Drop for ThrowawayCluster {
    fn drop(&mut self) {
        // All at once: each waits for its server's end.
        std::thread::scope(|scope| {
            for node in self.nodes.drain(..) {
                scope.spawn(move || drop(node));
            }
        });
    }
}

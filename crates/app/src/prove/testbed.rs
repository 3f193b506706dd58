//! The clusters on which promises are tested: an existing one, or a temporary one, each node on a disk that may be cut off.

use crate::connection::{Address, FileAddress};
use crate::context::Context;
use crate::failure::Failure;
use crate::skeleton::warn_of_unlisted;
use ::prove::fault::{Disk, Fault, Journal, Node, Plan, Site, disk};
use ::prove::live::claim::Claim;
use ::prove::live::members::await_members;
use connect::ConnSpec;
use connect::cluster_file::ClusterFile;
use connect::cluster_file::Role;
use connect::conninfo::{Pinned, SessionAttrs};
use connect::control::Control;
use engines::profile::NodeLinks;
use engines::{Cluster, Engine};
use lab::local::{self, Backend, Installation, Instance, NodeWays, Replication, SyncStandbys, Topology};
use lab::throwaway::{self, Options, Throwaway, ThrowawayCluster};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How far a commit waits.
const COMMIT: &str = "synchronous_commit";
/// Nodes of a sharded or multimaster cluster that is made.
const NODES: u32 = 2;
/// Partitions: our tables have their own.
const PARTITIONS: u32 = 4;

/// Servers that live as long as a proof.
#[derive(Debug)]
enum Servers {
    /// A cluster that was not made here.
    Theirs,
    /// One of ours, kept for its drop.
    One(#[expect(dead_code, reason = "it ends when it is dropped")] Box<Throwaway>),
    /// Several.
    Many(#[expect(dead_code, reason = "they end when they are dropped")] Box<ThrowawayCluster>),
}

/// A cluster to prove something about. The servers go before their disks.
#[derive(Debug)]
pub(super) struct Testbed {
    /// The right to prove something here: given back first.
    claim: Option<Claim>,
    servers: Servers,
    /// Its nodes and what may be done to them.
    pub site: Site,
    /// What it is called in a setting: `single`, `replicated`; empty for a cluster of the user.
    pub name: String,
}

/// What the faults of a plan need of the cluster before it is watched.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Needs {
    /// Clients go through proxies.
    pub proxies: bool,
    /// And so do the nodes among themselves.
    pub links: bool,
    /// Each node has a disk of its own.
    pub disks: bool,
}

impl Needs {
    /// Everything, for a plan that is drawn only when the cluster is there.
    pub(super) const ALL: Needs = Needs { proxies: true, links: true, disks: true };

    /// What these plans need together.
    pub(super) fn of<'a>(plans: impl IntoIterator<Item = &'a Plan>) -> Needs {
        plans.into_iter().fold(Needs::default(), |needs, plan| Needs {
            proxies: needs.proxies || plan.needs_proxy(),
            links: needs.links || plan.needs_links(),
            disks: needs.disks || plan.needs_disks(),
        })
    }
}

/// A cluster to be made.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    /// What kind.
    pub topology: Topology,
    /// Lines for `postgresql.conf`.
    pub settings: Vec<(String, String)>,
}

impl Wanted {
    /// One server.
    pub(super) fn single() -> Wanted {
        Wanted { topology: Topology::Single, settings: Vec::new() }
    }

    /// A primary and a standby; `sync` as for `up replicated --sync`.
    pub(super) fn replicated(sync: &str) -> Result<Wanted, Failure> {
        let sync = SyncStandbys::parse(sync, 1)?;
        let topology = Topology::Replicated(Replication { standbys: 1, sync, commit: None });
        Ok(Wanted { topology, settings: Vec::new() })
    }

    /// Shards.
    pub(super) fn sharded() -> Wanted {
        let topology = Topology::Sharded { nodes: NODES, partitions: PARTITIONS };
        Wanted { topology, settings: Vec::new() }
    }

    /// Nodes that all take writes.
    pub(super) fn multimaster() -> Wanted {
        Wanted { topology: Topology::Multimaster { nodes: NODES }, settings: Vec::new() }
    }

    /// With one more setting.
    pub(super) fn with(mut self, name: &str, value: &str) -> Wanted {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// With the settings of the user. One that the cluster or each session sets itself is refused: it would be ignored.
    pub(super) fn with_users(
        self,
        settings: &[(String, String)],
        sets_commit: bool,
    ) -> Result<Wanted, Failure> {
        self.topology.check_settings(settings)?;
        for (name, _) in settings {
            let is = |known: &str| name.eq_ignore_ascii_case(known);
            if is(COMMIT) && sets_commit {
                return Err(Failure::usage(format!(
                    "--set {name}: --synchronous-commit sets it in each session"
                ))
                .hint("omit one of both"));
            }
            if Pinned::All.settings().any(|(known, _)| is(known)) {
                return Err(Failure::usage(format!(
                    "--set {name}: each session of a proof sets it itself, so the setting would be ignored"
                ))
                .hint("omit it; for the level of isolation use --isolation"));
            }
        }
        Ok(settings.iter().fold(self, |wanted, (name, value)| wanted.with(name, value)))
    }

    /// Durability is what is proved: unlike other throwaway clusters, this one is as careful as PostgreSQL is by itself.
    fn careful_settings(&self) -> Vec<(String, String)> {
        let careful = [
            ("fsync", "on"),
            ("full_page_writes", "on"),
            ("max_prepared_transactions", "10"),
            // Its disk is small.
            ("max_wal_size", "128MB"),
            ("min_wal_size", "32MB"),
        ];
        careful
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .chain(self.settings.iter().cloned())
            .collect()
    }

    /// Makes it. A single server gets a disk of its own where that is possible, the nodes of others when they need one.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(super) fn make(
        &self,
        installation: &Installation,
        journal: &Arc<Journal>,
        needs: Needs,
    ) -> Result<Testbed, Failure> {
        let settings = self.careful_settings();
        let (servers, nodes, engine) = match self.topology {
            Topology::Single => {
                let disk = disks(journal, 1)?.pop();
                let options = Options {
                    settings,
                    data_dir: disk.as_ref().map(|disk| disk.path().to_owned()),
                    ..Options::default()
                };
                let server = options.start(installation)?;
                if let Some(disk) = &disk {
                    // What initdb has written is no part of what is proved.
                    disk.sync()?;
                }
                let mut node = Node::hurtable("single", Role::Primary, server.spec(), server.instance());
                node.disk = disk;
                (Servers::One(Box::new(server)), vec![node], Engine::default())
            }
            _ => {
                let settings: Vec<(&str, &str)> =
                    settings.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
                let disks = match needs.disks {
                    true => disks(journal, self.topology.servers())?,
                    false => Vec::new(),
                };
                let dirs: Vec<PathBuf> = disks.iter().map(|disk| disk.path().to_owned()).collect();
                let cluster = ThrowawayCluster::start_in(installation, &self.topology, &settings, &dirs)?;
                for disk in &disks {
                    disk.sync()?;
                }
                let mut disks = disks.into_iter();
                let nodes = std::iter::zip(&cluster.file().node, cluster.nodes())
                    .map(|(node, server)| {
                        let role = Role::parse(&node.role).unwrap_or(Role::Peer);
                        let mut node = Node::hurtable(&node.name, role, server.spec(), server.instance());
                        node.disk = disks.next();
                        node
                    })
                    .collect();
                let engine = Engine::parse(&cluster.file().engine).unwrap_or_default();
                (Servers::Many(Box::new(cluster)), nodes, engine)
            }
        };
        let mut site = Site::new(engine, nodes, Arc::clone(journal));
        if needs.proxies {
            site.use_proxies()?;
        }
        if needs.links {
            site.use_links();
        }
        // No other process knows it.
        Ok(Testbed { claim: None, servers, site, name: self.topology.kind().to_owned() })
    }
}

impl Testbed {
    /// The cluster at this address. Faults may hit its servers when `up` made them, or with `allowed`.
    ///
    /// # Errors
    /// When it cannot be reached.
    pub(super) fn there(
        address: &Address,
        context: &Context,
        journal: &Arc<Journal>,
        (allowed, needs): (bool, Needs),
    ) -> Result<Testbed, Failure> {
        Testbed::of(&reach(address, context)?, address, context, journal, (allowed, needs))
    }

    /// The same of a cluster that was reached at this address.
    ///
    /// # Errors
    /// As [`Testbed::there`].
    pub(super) fn of(
        cluster: &Cluster,
        address: &Address,
        context: &Context,
        journal: &Arc<Journal>,
        (allowed, needs): (bool, Needs),
    ) -> Result<Testbed, Failure> {
        if let Ok(mut control) = connect::control::connect(&cluster.nodes[cluster.entry_node()].spec) {
            warn_of_unlisted(context, cluster, &mut control);
        }
        let members = cluster.nodes.iter().map(|node| (node.name.as_str(), &node.spec));
        await_members(cluster.engine, members, |words| context.terminal.say(&words));
        let mut site = match address.file() {
            None => {
                let node = |node: &engines::ClusterNode| of_others(node, None, allowed);
                Site::new(cluster.engine, cluster.nodes.iter().map(node).collect(), Arc::clone(journal))
            }
            Some(address @ FileAddress { file, .. }) => {
                let ways = NodeWays::of(address.folder())?;
                let node = |node| Ok(with_ways(node_of(node, file, allowed)?, cluster, &ways));
                let nodes = cluster.nodes.iter().map(node).collect::<Result<_, Failure>>()?;
                Site::new(cluster.engine, nodes, Arc::clone(journal))
            }
        };
        name_servers(&mut site, cluster);
        // Before anything of it is changed.
        let claim = Claim::take(&site)?;
        if needs.proxies {
            site.use_proxies()?;
        }
        if needs.links {
            site.use_links();
        }
        Ok(Testbed { claim: Some(claim), servers: Servers::Theirs, site, name: String::new() })
    }

    /// Who has taken over the right to prove something here, while our session was lost.
    pub(super) fn taken(&self) -> Option<String> {
        self.claim.as_ref().and_then(Claim::taken)
    }

    /// Whether it is removed in the end.
    pub(super) fn is_made(&self) -> bool {
        !matches!(self.servers, Servers::Theirs)
    }

    /// Whether a promotion has made another cluster of it, no node answers any more, or a subscription has stopped: with `disable_on_error` not
    /// only a conflict does that, but also a publisher that is killed.
    pub(super) fn is_used_up(&self) -> bool {
        let is_promoted =
            self.site.nodes.get(self.site.primary()).is_some_and(|node| node.role == Role::Standby);
        let has_stopped = |node: &Node| match connect::control::connect(&node.spec) {
            Err(_) => true,
            Ok(mut client) => {
                let stopped = "select exists (select from pg_catalog.pg_subscription where not subenabled)";
                client.query_one(stopped, &[]).map_or(true, |row| row.get(0))
            }
        };
        let has_subscriptions = self.site.engine.links == NodeLinks::Subscriptions;
        let is_torn = has_subscriptions && self.site.nodes.iter().any(has_stopped);
        is_promoted || is_torn || connect::control::connect(&self.site.entry()).is_err()
    }

    /// The faults of a random plan that can be injected here. Not the promotion: after it, it is another cluster.
    pub(super) fn possible(&self) -> Vec<Fault> {
        let all = Fault::ALL.into_iter().filter(|fault| *fault != Fault::Promote);
        let has_proxy = self.site.nodes.iter().all(|node| node.proxy.is_some());
        all.filter(|fault| (has_proxy || !fault.needs_proxy()) && self.site.can(*fault, None).is_ok())
            .collect()
    }
}

/// The nodes at this address. Each host of a connection string is a node, because another one may take writes at the end of the proof. A host
/// that does not answer now may do so then.
fn reach(address: &Address, context: &Context) -> Result<Cluster, Failure> {
    if address.file().is_none() {
        let mut spec = address.spec(context)?;
        if spec.hosts.len() > 1 {
            // What is proved is written; readers find the others by themselves.
            spec.target_session_attrs = SessionAttrs::ReadWrite;
            return Ok(Cluster::survey(&spec)?.cluster);
        }
    }
    Ok(address.cluster(context)?.with_coordinator_first())
}

/// Disks for so many nodes; none where none can be made.
fn disks(journal: &Arc<Journal>, count: usize) -> Result<Vec<Disk>, Failure> {
    match disk::probe(journal) {
        Ok(()) => Ok((0..count).map(|_| Disk::make(journal, disk::DISK_BYTES)).collect::<Result<_, _>>()?),
        Err(_) => Ok(Vec::new()),
    }
}

/// The node with the ways that the other nodes take to it.
fn with_ways(mut node: Node, cluster: &Cluster, ways: &NodeWays) -> Node {
    let others = cluster.nodes.iter().filter(|other| other.name != node.name);
    let way = |other: &engines::ClusterNode| {
        Some((other.name.clone(), ways.between(&other.name, &node.name, &node.spec)?))
    };
    node.ways = others.filter_map(way).collect();
    node
}

/// A file may name nodes otherwise than the catalogs name the foreign servers that lead to them. A node that does not answer is left out.
fn name_servers(site: &mut Site, cluster: &Cluster) {
    if !cluster.has_foreign_partitions() {
        return;
    }
    for me in 0..cluster.nodes.len() {
        let Ok(mut control) = connect::control::connect(&cluster.nodes[me].spec) else { continue };
        let Ok(names) = cluster.server_names(&mut *control, me) else { continue };
        for (node, name) in names {
            let node = &mut site.nodes[node];
            if node.name != name {
                node.servers.push((cluster.nodes[me].name.clone(), name));
            }
        }
    }
}

/// A cluster file is no permission, because everyone can write one: the data directory that it names must be one that pgfathom made, and that of the server at
/// the node's address.
fn node_of(node: &engines::ClusterNode, file: &ClusterFile, allowed: bool) -> Result<Node, Failure> {
    let (name, role, spec) = (&node.name, node.role, node.spec.clone());
    let written = file.node.iter().find(|other| other.name == *name);
    let made_here = written.filter(|node| {
        let is_ours = |dir: &Path| local::is_node_of_ours(dir) || throwaway::is_in_use(dir);
        node.ssh.is_none() && node.data_directory.as_deref().is_some_and(is_ours)
    });
    let instance = made_here.map(|node| Instance::of_node(file, node)).transpose()?.flatten();
    let Some(instance) = instance else { return Ok(of_others(node, written, allowed)) };
    let checked = match backend_of(&node.spec) {
        Ok((_session, backend)) => instance.check_is_of(backend).map_err(NotFound::Other),
        // A server that is down has no session. What is started is in its data directory, which is ours.
        Err(_) if !instance.has_postmaster() => Ok(()),
        Err(why) => Err(why),
    };
    Ok(match checked {
        Ok(()) => Node::hurtable(name, role, spec, instance),
        Err(why) => not_found(name, role, spec, why),
    })
}

/// Why the processes of a node were not found.
enum NotFound {
    /// It does not answer, which may pass.
    Silent(String),
    /// They are not the ones that the file names, or not on this host.
    Other(String),
}

fn not_found(name: &str, role: Role, spec: ConnSpec, why: NotFound) -> Node {
    match why {
        NotFound::Silent(why) => Node::silent(name, role, spec, &why),
        NotFound::Other(why) => Node::spared(name, role, spec, &why),
    }
}

/// A node that pgfathom did not start: faults hit its processes only on request, and if they are surely those of its server.
fn of_others(
    node: &engines::ClusterNode,
    written: Option<&connect::cluster_file::Node>,
    allowed: bool,
) -> Node {
    let (name, role, spec) = (&node.name, node.role, node.spec.clone());
    if !allowed {
        let why = "it was not started by pgfathom up; --allow-faults permits faults on it, on the host where it runs";
        return Node::spared(name, role, spec, why);
    }
    if let Some(host) = written.and_then(|node| node.ssh.as_ref()) {
        return Node::spared(
            name,
            role,
            spec,
            &format!("its files are on another host ({host}); run pgfathom there"),
        );
    }
    let named = written.and_then(|node| node.data_directory.as_deref());
    // The session lasts until its process has been looked at.
    let instance = backend_of(&node.spec)
        .and_then(|(_session, backend)| Instance::of_backend(backend, named).map_err(NotFound::Other));
    match instance {
        Ok(instance) => Node::hurtable(name, role, spec, instance),
        Err(why) => not_found(name, role, spec, why),
    }
}

/// A session of this node, and what it reports about its server.
fn backend_of(spec: &ConnSpec) -> Result<(Control, Backend), NotFound> {
    let mut control = connect::control::connect(spec).map_err(|error| {
        NotFound::Silent(format!("it does not answer, so its processes are unknown: {error}"))
    })?;
    let sql = "select pg_catalog.pg_backend_pid(), \
                      pg_catalog.date_part('epoch', pg_catalog.pg_postmaster_start_time())::bigint, \
                      pg_catalog.current_setting('port')";
    let row = control
        .query_one(sql, &[])
        .map_err(|error| NotFound::Other(format!("its processes are unknown: {error}")))?;
    let (pid, started_s, port): (i32, i64, String) = (row.get(0), row.get(1), row.get(2));
    let unknown = |_| {
        NotFound::Other("its processes are unknown: it reports no valid process number or port".to_owned())
    };
    let backend = Backend {
        pid: u32::try_from(pid).map_err(|_| unknown(()))?,
        started_s,
        port: port.parse().map_err(|_| unknown(()))?,
    };
    Ok((control, backend))
}

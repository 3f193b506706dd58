//! The topologies of `up`: their nodes, the settings of each node, and its links to the others.
//!
//! A topology is a value; the SQL that introduces the nodes to each other is a pure function of them, so it can be tested without a server.

mod citus;
mod mtm;
mod multimaster;
mod pgactive;
mod pglogical;
pub(crate) mod replicated;
pub(crate) mod sharded;

pub use multimaster::{PUBLICATION, subscription};
pub use replicated::{CommitLevel, Replication, SyncStandbys};

use std::fs::File;
use std::path::Path;

use super::distance::{self, Addresses, Detour, Distances};
use super::patroni::{self, Managed};
use super::{Extension, Installation, LocalError};
use connect::Secret;
use connect::cluster_file::Role;
use connect::conninfo::{self, ConnSpec};
use connect::control;
pub(crate) use connect::sql::literal;

/// The most nodes of a local cluster: more would only measure the host's scheduler.
pub const NODES_MAX: u32 = 64;
/// The default partitions per node of a sharded cluster: enough to move single ones, and few enough for a readable plan.
pub const PARTITIONS_PER_NODE_DEFAULT: u32 = 4;
/// The most partitions: PostgreSQL plans more slowly with more.
pub const PARTITIONS_MAX: u32 = 4096;

/// The kinds of cluster.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Topology {
    /// One server.
    #[default]
    Single,
    /// A primary and its standbys.
    Replicated(Replication),
    /// Hash partitions over several servers by postgres_fdw; any node is an entry point.
    Sharded {
        /// Servers.
        nodes: u32,
        /// Hash partitions of each sharded table, all nodes together.
        partitions: u32,
    },
    /// Servers that all take writes and replicate them to each other.
    Multimaster {
        /// Servers.
        nodes: u32,
    },
    /// A primary and standbys under a failover manager.
    Patroni(Managed),
    /// A coordinator and workers, if the extension is installed.
    Citus {
        /// Servers, the coordinator included.
        nodes: u32,
    },
    /// Postgres Pro Multimaster: servers that all take writes and agree on each commit.
    Mtm {
        /// Servers.
        nodes: u32,
    },
    /// pgactive: servers that all take writes and replicate them to each other after the commit.
    Pgactive {
        /// Servers.
        nodes: u32,
    },
    /// The same by pglogical.
    Pglogical {
        /// Servers.
        nodes: u32,
    },
}

/// A node to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Planned {
    pub(crate) name: String,
    pub(crate) role: Role,
}

impl Topology {
    /// Its name on the command line.
    pub fn kind(&self) -> &'static str {
        match self {
            Topology::Single => "single",
            Topology::Replicated(_) => "replicated",
            Topology::Patroni(_) => patroni::KIND,
            Topology::Sharded { .. } => "sharded",
            Topology::Multimaster { .. } => "multimaster",
            Topology::Citus { .. } => "citus",
            Topology::Mtm { .. } => "mtm",
            Topology::Pgactive { .. } => "pgactive",
            Topology::Pglogical { .. } => "pglogical",
        }
    }

    /// The kind of cluster of this engine, by the engine's name in `cluster.toml`, whose extension is one of those that a server has. Where the engine has
    /// only one kind, that one; where it has one without an extension, that one if the server has none of the others. `None`: `up` makes none of this engine.
    pub fn kind_of(engine: &str, extensions: &[String]) -> Option<&'static str> {
        let nodes = 3;
        let all = [
            Topology::Citus { nodes },
            Topology::Mtm { nodes },
            Topology::Pgactive { nodes },
            Topology::Pglogical { nodes },
            Topology::Multimaster { nodes },
        ];
        let kinds: Vec<&Topology> = all.iter().filter(|topology| topology.engine() == engine).collect();
        let is_there = |topology: &&&Topology| match topology.extension() {
            Some(extension) => kinds.len() == 1 || extensions.iter().any(|name| name == extension.name),
            None => true,
        };
        kinds.iter().find(is_there).map(|topology| topology.kind())
    }

    /// The extension without which its servers cannot work; that of postgres_fdw comes with PostgreSQL.
    pub fn extension(&self) -> Option<&'static Extension> {
        match self {
            Topology::Citus { .. } => Some(&citus::EXTENSION),
            Topology::Mtm { .. } => Some(&mtm::EXTENSION),
            Topology::Pgactive { .. } => Some(&pgactive::EXTENSION),
            Topology::Pglogical { .. } => Some(&pglogical::EXTENSION),
            _ => None,
        }
    }

    /// The engine's name in `cluster.toml`.
    pub fn engine(&self) -> &'static str {
        match self {
            Topology::Single | Topology::Replicated(_) | Topology::Patroni(_) => "postgres",
            Topology::Sharded { .. } => "fdw-sharded",
            Topology::Multimaster { .. } | Topology::Pgactive { .. } | Topology::Pglogical { .. } => {
                "multimaster"
            }
            Topology::Citus { .. } => "citus",
            Topology::Mtm { .. } => "mtm",
        }
    }

    /// How its nodes know each other.
    pub(super) fn addresses(&self) -> Addresses {
        match self {
            Topology::Patroni(_) => Addresses::Managed,
            Topology::Citus { .. } | Topology::Mtm { .. } | Topology::Pgactive { .. } => {
                Addresses::OnePerNode
            }
            Topology::Single
            | Topology::Replicated(_)
            | Topology::Sharded { .. }
            | Topology::Multimaster { .. }
            | Topology::Pglogical { .. } => Addresses::EachItsOwn,
        }
    }

    /// Distances between these nodes, as `n1-n2=1ms,client-*=0.5ms`.
    ///
    /// # Errors
    /// What is wrong, and what to write.
    pub fn distances(&self, text: &str) -> Result<Distances, LocalError> {
        let nodes: Vec<String> = self.nodes().into_iter().map(|node| node.name).collect();
        Distances::parse(text, &nodes, self.addresses())
    }

    /// How many servers it has.
    pub fn servers(&self) -> usize {
        self.nodes().len()
    }

    /// The nodes, in the order of the cluster file.
    pub(crate) fn nodes(&self) -> Vec<Planned> {
        let numbered = |prefix: &str, count: u32, role: Role| -> Vec<Planned> {
            (1..=count).map(|number| Planned { name: format!("{prefix}{number}"), role }).collect()
        };
        match self {
            Topology::Single => vec![Planned { name: "single".to_owned(), role: Role::Primary }],
            Topology::Replicated(replication) => {
                let mut nodes = vec![Planned { name: "primary".to_owned(), role: Role::Primary }];
                nodes.extend(
                    (1..=replication.standbys).map(|number| Planned {
                        name: replicated::standby_name(number),
                        role: Role::Standby,
                    }),
                );
                nodes
            }
            Topology::Patroni(managed) => {
                let mut nodes = numbered("n", managed.nodes, Role::Standby);
                nodes.iter_mut().take(1).for_each(|node| node.role = Role::Primary);
                nodes
            }
            Topology::Sharded { nodes, .. } => numbered("n", *nodes, Role::Shard),
            Topology::Multimaster { nodes }
            | Topology::Mtm { nodes }
            | Topology::Pgactive { nodes }
            | Topology::Pglogical { nodes } => numbered("m", *nodes, Role::Peer),
            Topology::Citus { nodes } => {
                let workers = numbered("w", nodes.saturating_sub(1), Role::Worker);
                let coordinator = Planned { name: "coordinator".to_owned(), role: Role::Coordinator };
                (*nodes > 0).then_some(coordinator).into_iter().chain(workers).collect()
            }
        }
    }

    /// Hash partitions, if the topology has any.
    pub fn partitions(&self) -> Option<u32> {
        match self {
            Topology::Sharded { partitions, .. } => Some(*partitions),
            _ => None,
        }
    }

    /// What a commit waits for, in words.
    pub(crate) fn sync(&self) -> Option<String> {
        match self {
            Topology::Patroni(managed) => Some(managed.sync()),
            _ => self.replication().map(|replication| replication.sync.to_string()),
        }
    }

    /// Whether these binaries have the programs and the extension that it needs besides the server.
    pub fn suits(&self, installation: &Installation) -> bool {
        let has_programs = !matches!(self, Topology::Patroni(_)) || patroni::suits(installation);
        has_programs && self.extension().is_none_or(|extension| installation.has_extension(extension))
    }

    /// The standbys that a commit waits for, if there are any.
    pub(crate) fn replication(&self) -> Option<&Replication> {
        match self {
            Topology::Replicated(replication) => Some(replication),
            _ => None,
        }
    }

    /// Creates the role of the nodes' connections over TCP, or sets its password.
    pub(crate) fn link_role(&self, password: &Secret) -> (&'static str, Statement) {
        let password = literal(password.reveal());
        let statement = |what: &str, sql: String| Statement::new(what, sql);
        match self {
            // Citus connects as the user of the session.
            Topology::Citus { .. } => (
                SUPERUSER,
                statement(
                    "give the superuser a password",
                    format!("alter role {SUPERUSER} password {password}"),
                ),
            ),
            // A superuser, because it reads and writes whatever tables the cluster has.
            _ => (
                LINK_ROLE,
                statement(
                    "create the role of the nodes",
                    format!("create role {LINK_ROLE} login superuser replication password {password}"),
                ),
            ),
        }
    }

    /// Checks that these settings of the user are not ones that the cluster sets itself.
    ///
    /// # Errors
    /// [`LocalError::Topology`] with the first one that is.
    pub fn check_settings(&self, settings: &[(String, String)]) -> Result<(), LocalError> {
        super::fixed::check(self, settings)
    }

    /// Whether it is possible with these binaries.
    pub(crate) fn check(&self, installation: &Installation) -> Result<(), LocalError> {
        let major = installation.version.major;
        let wrong =
            |problem: String, hint: &str| Err(LocalError::Topology { problem, hint: hint.to_owned() });
        let count = self.nodes().len();
        if count == 0 || count > NODES_MAX as usize {
            return wrong(
                format!("a local cluster has 1 to {NODES_MAX} nodes, not {count}"),
                "three nodes are enough to see all effects: --nodes 3",
            );
        }
        if matches!(self, Topology::Multimaster { .. }) && major < multimaster::MAJOR_MIN {
            return wrong(
                format!(
                    "multimaster needs PostgreSQL {} or newer, whose subscriptions can skip replicated changes (origin = none); this is {major}",
                    multimaster::MAJOR_MIN
                ),
                "choose newer binaries with --pg-bin, or fetch some: scripts/fetch-postgres18",
            );
        }
        if matches!(self, Topology::Mtm { .. }) && count < 2 {
            return wrong(
                "Multimaster needs at least two nodes, because nodes agree on each commit".to_owned(),
                "a cluster of three survives the loss of one: --nodes 3",
            );
        }
        if let Topology::Replicated(replication) = self
            && replication.standbys == 0
        {
            return wrong(
                "a replicated cluster without standbys".to_owned(),
                "--standbys 2, or: pgfathom up single",
            );
        }
        if let Topology::Sharded { nodes, partitions } = self
            && (partitions < nodes || *partitions > PARTITIONS_MAX)
        {
            return wrong(
                format!("{partitions} partitions on {nodes} nodes"),
                &format!(
                    "each node needs at least one, the limit is {PARTITIONS_MAX}: --partitions {}",
                    nodes * PARTITIONS_PER_NODE_DEFAULT
                ),
            );
        }
        if let Topology::Mtm { nodes } = self
            && *nodes > mtm::NODES_MAX
        {
            return wrong(
                format!("{nodes} nodes of Multimaster"),
                &format!("it knows {max} at most: --nodes {max}", max = mtm::NODES_MAX),
            );
        }
        if let Topology::Patroni(managed) = self {
            managed.check(installation)?;
        }
        match self.extension() {
            Some(extension) if !self.suits(installation) => {
                Err(LocalError::Extension { name: extension.name, hint: extension.hint.to_owned() })
            }
            _ => Ok(()),
        }
    }

    /// Settings that the topology needs, with any preset; the user's settings override them.
    pub(crate) fn settings(&self, installation: &Installation) -> Vec<(String, String)> {
        let major = installation.version.major;
        let settings = match self {
            Topology::Single | Topology::Patroni(_) => Vec::new(),
            Topology::Replicated(replication) => replicated::settings(replication, major),
            Topology::Sharded { .. } => sharded::settings(major),
            Topology::Multimaster { nodes } => multimaster::settings(*nodes, major),
            Topology::Citus { .. } => citus::settings(),
            Topology::Mtm { nodes } => mtm::settings(*nodes),
            Topology::Pgactive { nodes } => pgactive::settings(*nodes, installation),
            Topology::Pglogical { nodes } => pglogical::settings(*nodes, installation),
        };
        settings.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

/// A running node, with its address for us and for the other nodes.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) name: String,
    /// Our way in.
    pub(crate) spec: ConnSpec,
    /// The other nodes' way in.
    pub(crate) link: Link,
}

/// The address of a node for the other nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) user: String,
    /// Absent on a Unix socket, which other users cannot open.
    pub(crate) password: Option<Secret>,
    pub(crate) dbname: String,
    /// Other ports, for those who are far away.
    pub(crate) detours: Vec<Detour>,
}

impl Link {
    /// The way that we take ourselves.
    pub(crate) fn of(spec: &ConnSpec) -> Link {
        let (host, port) = spec
            .hosts
            .first()
            .map_or((String::new(), conninfo::PORT_DEFAULT), |h| (h.host.to_string(), h.port));
        Link {
            host,
            port,
            user: spec.user.clone(),
            password: None,
            dbname: spec.dbname.clone(),
            detours: Vec::new(),
        }
    }

    /// The same for one of the other nodes.
    pub(crate) fn seen_by(&self, node: &str) -> Link {
        Link { port: distance::port_for(node, &self.detours, self.port), ..self.clone() }
    }
}

/// Where a node has one address for all others, it is not that of one of them.
const EVERY_NODE: &str = "*";
/// The role of the nodes' connections over TCP.
const LINK_ROLE: &str = "pgfathom_node";
/// The superuser's name.
pub(crate) const SUPERUSER: &str = "postgres";

/// A generated password: the nodes of one cluster reach each other with it over TCP.
pub(super) fn new_password() -> Result<Secret, LocalError> {
    const BYTES: usize = 24;
    let source = Path::new("/dev/urandom");
    let mut bytes = [0_u8; BYTES];
    File::open(source)
        .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut bytes))
        .map_err(LocalError::io("read", source))?;
    Ok(Secret::new(bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()))
}

/// One statement for a server.
#[derive(Clone)]
pub(crate) struct Statement {
    /// Its description, for a message: the SQL itself may contain a password.
    pub(crate) what: String,
    pub(crate) sql: String,
}

impl Statement {
    pub(crate) fn new(what: impl Into<String>, sql: impl Into<String>) -> Statement {
        Statement { what: what.into(), sql: sql.into() }
    }
}

/// Runs all statements on one node, each in its own transaction.
pub(crate) fn execute_all(peer: &Peer, statements: &[Statement]) -> Result<(), LocalError> {
    let detail = || -> Result<(), LocalError> {
        let mut client = control::connect(&peer.spec)?;
        for statement in statements {
            client
                .batch_execute(&statement.sql)
                .map_err(|source| LocalError::Sql { what: statement.what.clone(), source })?;
        }
        Ok(())
    };
    detail().map_err(|error| error.on(&peer.name))
}

/// All nodes as one of them knows them.
fn seen_by(node: &str, peers: &[Peer]) -> Vec<Peer> {
    let seen = |peer: &Peer| Peer { link: peer.link.seen_by(node), ..peer.clone() };
    peers.iter().map(seen).collect()
}

/// Introduces each node to the others. All nodes run; `load` makes their tables later.
/// Standbys were already copied and started; when they stream, the caller makes the primary wait for them.
pub(crate) fn connect_nodes(topology: &Topology, peers: &[Peer], major: u32) -> Result<(), LocalError> {
    match topology {
        Topology::Single | Topology::Patroni(_) => Ok(()),
        Topology::Replicated(_) => replicated::connect(peers),
        Topology::Sharded { .. } => on_each(peers, |me| {
            sharded::check(&peers[me])?;
            let seen = seen_by(&peers[me].name, peers);
            execute_all(&peers[me], &sharded::statements(me, &seen, major))
        })
        .map(|_| ()),
        Topology::Multimaster { .. } => {
            on_each(peers, |me| execute_all(&peers[me], &multimaster::publish(me, peers)))?;
            on_each(peers, |me| {
                let seen = seen_by(&peers[me].name, peers);
                execute_all(&peers[me], &multimaster::subscribe(me, &seen))
            })?;
            on_each(peers, |me| {
                let subscribers = peers.iter().filter(|peer| peer.name != peers[me].name);
                let names: Vec<String> = subscribers
                    .map(|subscriber| multimaster::subscription(&subscriber.name, &peers[me].name))
                    .collect();
                replicated::await_streaming(&peers[me], &names)
            })
            .map(|_| ())
        }
        Topology::Citus { .. } => {
            on_each(peers, |me| execute_all(&peers[me], &citus::prepare(&peers[me])))?;
            let seen = seen_by(EVERY_NODE, peers);
            peers.first().map_or(Ok(()), |coordinator| execute_all(coordinator, &citus::join(&seen)))
        }
        Topology::Mtm { .. } => mtm::connect(&seen_by(EVERY_NODE, peers)),
        Topology::Pgactive { .. } => pgactive::connect(&seen_by(EVERY_NODE, peers)),
        Topology::Pglogical { .. } => pglogical::connect(peers),
    }
}

/// Waits until servers that were started again take transactions, where the engine lets them do so only later; returns what is missing.
pub(super) fn await_return(topology: &Topology, peers: &[Peer]) -> Option<String> {
    match topology {
        Topology::Mtm { .. } => {
            on_each(peers, |me| mtm::until_online(&peers[me])).err().map(|error| error.to_string())
        }
        _ => None,
    }
}

/// Runs a step on all nodes in parallel; returns the error of the first node in order.
pub(crate) fn on_each<T: Send>(
    peers: &[Peer],
    act: impl Fn(usize) -> Result<T, LocalError> + Sync,
) -> Result<Vec<T>, LocalError> {
    at_once(peers.len(), |number| act(number).map_err(|error| error.on(&peers[number].name)))
}

/// Runs `count` steps in parallel, each in a thread; returns the first error in order.
pub(crate) fn at_once<T: Send>(
    count: usize,
    act: impl Fn(usize) -> Result<T, LocalError> + Sync,
) -> Result<Vec<T>, LocalError> {
    let act = &act;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..count).map(|number| scope.spawn(move || act(number))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_have_names_that_no_other_node_has() {
        let sharded = Topology::Sharded { nodes: 3, partitions: 12 };
        let names: Vec<String> = sharded.nodes().into_iter().map(|node| node.name).collect();
        assert_eq!(names, ["n1", "n2", "n3"]);
        assert_eq!(
            (sharded.kind(), sharded.engine(), sharded.partitions()),
            ("sharded", "fdw-sharded", Some(12))
        );
        assert_eq!(Topology::Single.nodes().len(), 1);
        let names = |topology: Topology| -> Vec<String> {
            topology.nodes().into_iter().map(|node| format!("{} {}", node.name, node.role)).collect()
        };
        let replication = Replication { standbys: 2, sync: SyncStandbys::default_for(2), commit: None };
        assert_eq!(names(Topology::Replicated(replication)), ["primary primary", "s1 standby", "s2 standby"]);
        assert_eq!(names(Topology::Multimaster { nodes: 2 }), ["m1 peer", "m2 peer"]);
        assert_eq!(names(Topology::Citus { nodes: 2 }), ["coordinator coordinator", "w1 worker"]);
    }

    #[test]
    fn impossible_clusters_are_refused_with_what_to_type() {
        let no_standbys = Replication { standbys: 0, sync: SyncStandbys::ASYNC, commit: None };
        for (topology, words, hint) in [
            (Topology::Multimaster { nodes: 3 }, "needs PostgreSQL 16 or newer", "scripts/fetch-postgres18"),
            (Topology::Citus { nodes: 0 }, "1 to 64 nodes, not 0", "--nodes 3"),
            (Topology::Replicated(no_standbys), "without standbys", "--standbys 2"),
            (Topology::Sharded { nodes: 0, partitions: 4 }, "1 to 64 nodes, not 0", "--nodes 3"),
            (Topology::Sharded { nodes: 65, partitions: 65 }, "not 65", "--nodes 3"),
            (Topology::Sharded { nodes: 3, partitions: 2 }, "2 partitions on 3 nodes", "--partitions 12"),
            (Topology::Sharded { nodes: 3, partitions: 5000 }, "5000 partitions", "4096"),
        ] {
            let error = topology.check(&of_release(15)).unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
            assert!(error.hint().unwrap().contains(hint), "{:?}", error.hint());
        }
        Topology::Single.check(&of_release(13)).unwrap();
        Topology::Sharded { nodes: 3, partitions: 7 }.check(&of_release(15)).unwrap();
        Topology::Multimaster { nodes: 3 }.check(&of_release(16)).unwrap();
    }

    #[test]
    fn an_extension_that_is_missing_is_named_before_anything_is_made() {
        for (topology, name) in [
            (Topology::Citus { nodes: 2 }, "citus"),
            (Topology::Mtm { nodes: 3 }, "multimaster"),
            (Topology::Pgactive { nodes: 2 }, "pgactive"),
            (Topology::Pglogical { nodes: 2 }, "pglogical"),
        ] {
            let error = topology.check(&of_release(15)).unwrap_err();
            assert!(error.to_string().contains(&format!("the extension {name} is not installed")), "{error}");
            assert!(error.hint().unwrap().contains("PGFATHOM_ENGINES"), "{:?}", error.hint());
        }
    }

    #[test]
    fn the_kind_of_an_engine_follows_from_what_a_server_has() {
        let kind = |engine: &str, extension: &str| Topology::kind_of(engine, &[extension.to_owned()]);
        assert_eq!(kind("citus", ""), Some("citus"));
        assert_eq!(kind("multimaster", "pglogical"), Some("pglogical"));
        assert_eq!(kind("multimaster", "pgactive"), Some("pgactive"));
        assert_eq!(kind("multimaster", "plpgsql"), Some("multimaster"));
        assert_eq!(kind("shardman", "plpgsql"), None);
    }

    fn of_release(major: u32) -> Installation {
        Installation { bin_dir: "/nowhere/bin".into(), version: crate::local::Version { major, minor: 0 } }
    }
}

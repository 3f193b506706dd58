//! `up`: start a local cluster from installed PostgreSQL binaries.

use crate::context::Context;
use crate::failure::Failure;
use app::quantity::ValueError;
use clap::{Args, ValueEnum};
use lab::local::{
    self, CommitLevel, Managed, PARTITIONS_PER_NODE_DEFAULT, Replication, SyncStandbys, SynchronousMode,
    TTL_S_DEFAULT, Topology,
};
use record::Exit;
use std::path::PathBuf;

/// Nodes of a cluster of several, by default.
const NODES_DEFAULT: u32 = 3;
/// Standbys of a replicated cluster, by default.
const STANDBYS_DEFAULT: u32 = 2;

/// The flags of `up`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  pgfathom up single
  pgfathom up single --dir /tmp/pg --port 5433 --set shared_buffers=1GB
  pgfathom up sharded --nodes 3 --partitions 12
  pgfathom up replicated --standbys 2 --sync \"ANY 1 (s1, s2)\" --synchronous-commit remote_apply
  pgfathom up sharded --delay '*-*=1ms,n1-n3=30ms,client-*=0.5ms'
  pgfathom up patroni --nodes 3 --synchronous-mode on
  pgfathom up multimaster --nodes 2 --preset laptop
Presets: tuned, sized for this host and the number of servers on it; stock, PostgreSQL's own defaults; careless, tuned, but a
crash of the host loses data; nowal, like careless with as little WAL as possible; hugewal, no checkpoint during a run;
replication-1 and -2, commits wait for the standbys' disks, or until they have applied them; laptop, little memory and disk.
pgfathom down stops and deletes it.")]
pub struct Up {
    /// What to start: single, one server; replicated, a primary and its standbys; patroni, the same under Patroni, which fails over by itself,
    /// with etcd and haproxy; sharded, hash partitions over several servers
    /// with postgres_fdw; multimaster, logical replication between all; citus, mtm (Postgres Pro Multimaster), pgactive and
    /// pglogical, where that extension is installed
    #[arg(value_name = "KIND", value_enum, hide_possible_values = true)]
    pub kind: Kind,
    /// Servers of a cluster that is not replicated [default: 3]
    #[arg(long, value_name = "N", help_heading = "Topology")]
    pub nodes: Option<u32>,
    /// Hash partitions of each table of a sharded cluster, all nodes together [default: 4 per node]
    #[arg(long, value_name = "P", help_heading = "Topology")]
    pub partitions: Option<u32>,
    /// Standbys of a replicated cluster, named s1, s2, ... [default: 2]
    #[arg(long, value_name = "N", help_heading = "Topology")]
    pub standbys: Option<u32>,
    /// Standbys that a commit waits for: async, or as "FIRST 1 (s1, s2)" or "ANY 1 (s1, s2)" [default: the first two]
    #[arg(long, value_name = "NAMES", help_heading = "Topology")]
    pub sync: Option<String>,
    /// Whether Patroni makes commits wait for a standby: off, on, or strict, also while there is none [default: off]
    #[arg(long, value_name = "MODE", value_parser = synchronous_mode, help_heading = "Topology")]
    pub synchronous_mode: Option<SynchronousMode>,
    /// Seconds for which the primary keeps its role under Patroni without renewing it [default: 30]
    #[arg(long, value_name = "SECONDS", help_heading = "Topology")]
    pub ttl: Option<u32>,
    /// Let the nodes be far apart: the time of a round trip between two of them, or to clients, as n1-n2=1ms,client-*=0.5ms; * is every node, and
    /// later pairs override earlier ones
    #[arg(long, value_name = "PAIR=TIME,...", help_heading = "Topology")]
    pub delay: Option<String>,
    /// What a commit waits for: off, local, remote_write, on or remote_apply [default: on, or the preset's]
    #[arg(long, value_name = "LEVEL", value_parser = commit_level, help_heading = "Topology")]
    pub synchronous_commit: Option<CommitLevel>,
    /// Folder of the cluster: new, empty, or that of a stopped cluster of pgfathom [default: /var/lib/pgfathom/KIND for root, else
    /// ~/.local/share/pgfathom/KIND]
    #[arg(long, value_name = "DIR", help_heading = "Cluster")]
    pub dir: Option<PathBuf>,
    /// Port of the first server, also part of its socket's name; the others follow [default: 5432, with --tcp the first
    /// free one from there]
    #[arg(short, long, value_name = "PORT", value_parser = port, help_heading = "Cluster")]
    pub port: Option<u16>,
    /// Folder of the Unix socket [default: run, inside the cluster's folder]
    #[arg(long, value_name = "DIR", help_heading = "Cluster")]
    pub socket_dir: Option<PathBuf>,
    /// Also listen on 127.0.0.1, and let the servers of a cluster connect to each other through it; TCP connections need a password, which you
    /// must set first
    #[arg(long, help_heading = "Cluster")]
    pub tcp: bool,
    /// Folder of the PostgreSQL programs (initdb, postgres) [default: PGFATHOM_PG_BIN, else the newest one found; for citus, mtm,
    /// pgactive and pglogical the folder KIND/bin in PGFATHOM_ENGINES, else one with that extension]
    #[arg(long, value_name = "DIR", help_heading = "Cluster")]
    pub pg_bin: Option<PathBuf>,
    /// Settings to start from, see below: tuned, stock, careless, nowal, hugewal, replication-1, replication-2 or laptop
    #[arg(
        long,
        value_name = "PRESET",
        value_parser = preset,
        default_value = "tuned",
        help_heading = "Cluster"
    )]
    pub preset: local::Preset,
    /// A setting for postgresql.conf, overriding the preset; may be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = setting, help_heading = "Cluster")]
    pub set: Vec<(String, String)>,
    /// Data checksums: on or off [default: as initdb does, on since PostgreSQL 18]
    #[arg(long, value_name = "on|off", value_enum, hide_possible_values = true, help_heading = "Cluster")]
    pub checksums: Option<Switch>,
}

/// What can be started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Kind {
    /// One server
    Single,
    /// A primary and its standbys
    Replicated,
    /// A primary and standbys under a failover manager
    Patroni,
    /// Hash partitions over several servers
    Sharded,
    /// Logical replication between all servers
    Multimaster,
    /// A coordinator and workers
    Citus,
    /// Postgres Pro Multimaster
    Mtm,
    /// Asynchronous replication between all servers by pgactive
    Pgactive,
    /// The same by pglogical
    Pglogical,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Single => "single",
            Kind::Replicated => "replicated",
            Kind::Patroni => "patroni",
            Kind::Sharded => "sharded",
            Kind::Multimaster => "multimaster",
            Kind::Citus => "citus",
            Kind::Mtm => "mtm",
            Kind::Pgactive => "pgactive",
            Kind::Pglogical => "pglogical",
        }
    }
}

/// On or off.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Switch {
    /// On
    On,
    /// Off
    Off,
}

fn port(text: &str) -> Result<u16, ValueError> {
    match text.parse() {
        Ok(port) if port > 0 => Ok(port),
        _ => Err(ValueError::new(format!("{text:?} is not a port"), "write a number from 1 to 65535")),
    }
}

fn preset(text: &str) -> Result<local::Preset, ValueError> {
    let names: Vec<&str> = local::Preset::ALL.iter().map(|(name, _)| *name).collect();
    local::Preset::parse(text).ok_or_else(|| {
        ValueError::new(format!("there is no preset {text:?}"), format!("choose one of {}", names.join(", ")))
    })
}

fn commit_level(text: &str) -> Result<CommitLevel, ValueError> {
    let names: Vec<&str> = CommitLevel::ALL.iter().map(|(name, _)| *name).collect();
    CommitLevel::parse(text).ok_or_else(|| {
        ValueError::new(
            format!("{text:?} is not a level of synchronous_commit"),
            format!("choose one of {}", names.join(", ")),
        )
    })
}

fn synchronous_mode(text: &str) -> Result<SynchronousMode, ValueError> {
    let names: Vec<&str> = SynchronousMode::ALL.iter().map(|mode| mode.name()).collect();
    SynchronousMode::parse(text).ok_or_else(|| {
        ValueError::new(
            format!("{text:?} is not a mode of Patroni"),
            format!("choose one of {}", names.join(", ")),
        )
    })
}

fn setting(text: &str) -> Result<(String, String), ValueError> {
    let hint = "write NAME=VALUE as in postgresql.conf, as --set shared_buffers=1GB";
    let (name, value) =
        text.split_once('=').ok_or_else(|| ValueError::new(format!("{text:?} has no ="), hint))?;
    let name = name.trim();
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.') {
        return Err(ValueError::new(format!("{name:?} is not the name of a setting"), hint));
    }
    Ok((name.to_string(), value.trim().to_string()))
}

impl Up {
    /// The cluster that the flags describe; a flag that this kind does not know is refused rather than ignored.
    fn topology(&self) -> Result<Topology, Failure> {
        let flags = [
            (
                "--nodes",
                self.nodes.is_some(),
                &[
                    Kind::Patroni,
                    Kind::Sharded,
                    Kind::Multimaster,
                    Kind::Citus,
                    Kind::Mtm,
                    Kind::Pgactive,
                    Kind::Pglogical,
                ][..],
            ),
            ("--partitions", self.partitions.is_some(), &[Kind::Sharded]),
            ("--standbys", self.standbys.is_some(), &[Kind::Replicated]),
            ("--sync", self.sync.is_some(), &[Kind::Replicated]),
            ("--synchronous-mode", self.synchronous_mode.is_some(), &[Kind::Patroni]),
            ("--ttl", self.ttl.is_some(), &[Kind::Patroni]),
            ("--synchronous-commit", self.synchronous_commit.is_some(), &[Kind::Replicated]),
        ];
        for (flag, given, kinds) in flags {
            if given && !kinds.contains(&self.kind) {
                let names: Vec<String> =
                    kinds.iter().map(|kind| format!("pgfathom up {}", kind.name())).collect();
                return Err(Failure::usage(format!("{flag} does not apply to up {}", self.kind.name()))
                    .hint(format!("omit it, or: {}", names.join(", or: "))));
            }
        }
        let nodes = self.nodes.unwrap_or(NODES_DEFAULT);
        let standbys = self.standbys.unwrap_or(STANDBYS_DEFAULT);
        Ok(match self.kind {
            Kind::Single => Topology::Single,
            Kind::Replicated => Topology::Replicated(Replication {
                standbys,
                sync: match &self.sync {
                    Some(text) => SyncStandbys::parse(text, standbys)?,
                    None => SyncStandbys::default_for(standbys),
                },
                commit: self.synchronous_commit,
            }),
            Kind::Patroni => Topology::Patroni(Managed {
                nodes,
                synchronous_mode: self.synchronous_mode.unwrap_or_default(),
                ttl_s: self.ttl.unwrap_or(TTL_S_DEFAULT),
            }),
            Kind::Multimaster => Topology::Multimaster { nodes },
            Kind::Citus => Topology::Citus { nodes },
            Kind::Mtm => Topology::Mtm { nodes },
            Kind::Pgactive => Topology::Pgactive { nodes },
            Kind::Pglogical => Topology::Pglogical { nodes },
            Kind::Sharded => Topology::Sharded {
                nodes,
                partitions: self.partitions.unwrap_or(nodes.saturating_mul(PARTITIONS_PER_NODE_DEFAULT)),
            },
        })
    }

    /// Starts the cluster and prints how to connect to it.
    pub fn run(self, context: &Context) -> Result<Exit, Failure> {
        let plan = app::up::Plan {
            topology: self.topology()?,
            dir: self.dir,
            port: self.port,
            socket_dir: self.socket_dir,
            tcp: self.tcp,
            pg_bin: self.pg_bin,
            preset: self.preset,
            settings: self.set,
            delay: self.delay,
            checksums: self.checksums.map(|checksums| checksums == Switch::On),
        };
        plan.run(context)
    }
}

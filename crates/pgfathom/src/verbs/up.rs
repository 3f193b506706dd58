//! `up`: start a local cluster from installed PostgreSQL binaries.

use crate::cli::Format;
use crate::context::Context;
use crate::failure::Failure;
use crate::human;
use crate::quantity::ValueError;
use clap::{Args, ValueEnum};
use record::Exit;
use serde_json::json;
use std::path::PathBuf;
use target::local::{
    self, CLUSTER_FILE_NAME, LocalCluster, PARTITIONS_PER_NODE_DEFAULT, Search, Topology, UpOptions,
};

/// Nodes of a cluster of several, unless said otherwise.
const NODES_DEFAULT: u32 = 3;

/// The flags of `up`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  pgfathom up single
  pgfathom up single --dir /tmp/pg --port 5433 --set shared_buffers=1GB
  pgfathom up sharded --nodes 3 --partitions 12
pgfathom down stops and deletes it.")]
pub struct Up {
    /// What to start: single, one server; sharded, hash partitions over several servers with postgres_fdw
    #[arg(value_name = "KIND", value_enum, hide_possible_values = true)]
    pub kind: Kind,
    /// Servers of a sharded cluster [default: 3]
    #[arg(long, value_name = "N", help_heading = "Topology")]
    pub nodes: Option<u32>,
    /// Hash partitions of each table of a sharded cluster, all nodes together [default: 4 per node]
    #[arg(long, value_name = "P", help_heading = "Topology")]
    pub partitions: Option<u32>,
    /// Folder of the cluster: new or empty, or of a stopped cluster of ours [default: /var/lib/pgfathom/KIND for root, else
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
    /// Listen on 127.0.0.1 too; TCP then asks for a password, which you set first
    #[arg(long, help_heading = "Cluster")]
    pub tcp: bool,
    /// Folder of the PostgreSQL programs (initdb, postgres) [default: PGFATHOM_PG_BIN, else the newest found]
    #[arg(long, value_name = "DIR", help_heading = "Cluster")]
    pub pg_bin: Option<PathBuf>,
    /// tuned: sized for this machine; stock: PostgreSQL's own defaults; careless: tuned, and a crash of the machine loses data
    #[arg(
        long,
        value_name = "PRESET",
        value_enum,
        default_value = "tuned",
        hide_possible_values = true,
        help_heading = "Cluster"
    )]
    pub preset: Preset,
    /// A setting for postgresql.conf, stronger than the preset's; may be given several times
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
    /// Hash partitions over several servers
    Sharded,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Single => "single",
            Kind::Sharded => "sharded",
        }
    }
}

/// Settings to start from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Preset {
    /// Sized for this machine
    Tuned,
    /// PostgreSQL's own defaults
    Stock,
    /// Tuned, without durability
    Careless,
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
            ("--nodes", self.nodes.is_some(), &[Kind::Sharded][..]),
            ("--partitions", self.partitions.is_some(), &[Kind::Sharded][..]),
        ];
        for (flag, given, kinds) in flags {
            if given && !kinds.contains(&self.kind) {
                let names: Vec<String> =
                    kinds.iter().map(|kind| format!("pgfathom up {}", kind.name())).collect();
                return Err(Failure::usage(format!("{flag} means nothing to up {}", self.kind.name()))
                    .hint(format!("leave it out, or: {}", names.join(", or: "))));
            }
        }
        let nodes = self.nodes.unwrap_or(NODES_DEFAULT);
        Ok(match self.kind {
            Kind::Single => Topology::Single,
            Kind::Sharded => Topology::Sharded {
                nodes,
                partitions: self.partitions.unwrap_or(nodes.saturating_mul(PARTITIONS_PER_NODE_DEFAULT)),
            },
        })
    }

    /// Starts the cluster and says how to reach it.
    ///
    /// # Errors
    /// When there are no binaries, the folder or port is taken, or the server does not start.
    pub fn run(self, context: &Context) -> Result<Exit, Failure> {
        let topology = self.topology()?;
        let search = Search { pg_bin: self.pg_bin.clone() };
        let found = local::find_installations(&search, |name| std::env::var_os(name))?;
        let installation =
            found.into_iter().next().ok_or_else(|| Failure::usage("no PostgreSQL server was found"))?;
        let dir = self.dir.clone().unwrap_or_else(|| local::default_dir(self.kind.name()));
        context.terminal.detail(&format!("up: {installation}"));
        let options = UpOptions {
            topology,
            port: self.port,
            socket_dir: self.socket_dir,
            tcp: self.tcp,
            preset: match self.preset {
                Preset::Tuned => local::Preset::Tuned,
                Preset::Stock => local::Preset::Stock,
                Preset::Careless => local::Preset::Careless,
            },
            settings: self.set,
            checksums: self.checksums.map(|checksums| checksums == Switch::On),
            ..UpOptions::new(&dir, installation)
        };
        let cluster = local::up(&options)?;
        if context.stop.is_requested() {
            local::down(&cluster.dir, &options.registry)?;
            context.terminal.say("interrupted: the cluster is removed again");
            return Ok(Exit::Interrupted);
        }
        match context.format {
            Format::Text => context.terminal.data(&text(&cluster)),
            Format::Json => context.terminal.data(&json(&cluster).to_string()),
        }
        Ok(Exit::Ok)
    }
}

fn version(cluster: &LocalCluster) -> &str {
    cluster.file.made.as_ref().map_or("", |made| made.version.as_str())
}

fn kind(cluster: &LocalCluster) -> &str {
    cluster.file.made.as_ref().map_or("", |made| made.kind.as_str())
}

fn text(cluster: &LocalCluster) -> String {
    let file = cluster.dir.join(CLUSTER_FILE_NAME);
    let nodes = &cluster.file.node;
    let mut first = format!("up       {}   PostgreSQL {}", kind(cluster), version(cluster));
    if nodes.len() > 1 {
        first.push_str(&format!("   {} nodes", nodes.len()));
    }
    if let Some(partitions) = cluster.file.made.as_ref().and_then(|made| made.partitions) {
        first.push_str(&format!("   {partitions} partitions"));
    }
    for (what, seconds) in [("initdb", cluster.initdb_s), ("connect", cluster.connect_s)] {
        if seconds > 0.0 {
            first.push_str(&format!("   {what} {}", human::seconds(seconds)));
        }
    }
    first.push_str(&format!("   start {}", human::seconds(cluster.start_s)));
    let mut lines = vec![first];
    lines.push(format!("cluster  {}", file.display()));
    if nodes.len() > 1 {
        let width = nodes.iter().map(|node| node.name.len()).max().unwrap_or(0);
        lines.extend(nodes.iter().map(|node| {
            format!("node     {:width$}   {:8}   psql '{}'", node.name, node.role, node.connection)
        }));
    } else {
        lines.push(format!("connect  psql '{}'", cluster.spec.describe()));
    }
    lines.push(format!("next     pgfathom load ycsb --rows 1M --cluster {}", file.display()));
    lines.push(format!("remove   pgfathom down {}", cluster.dir.display()));
    lines.join("\n")
}

fn json(cluster: &LocalCluster) -> serde_json::Value {
    let nodes: Vec<serde_json::Value> = cluster
        .file
        .node
        .iter()
        .map(|node| json!({"name": node.name, "role": node.role, "connection": node.connection}))
        .collect();
    json!({
        "verb": "up",
        "kind": kind(cluster),
        "engine": cluster.file.engine,
        "version": version(cluster),
        "dir": cluster.dir.display().to_string(),
        "cluster_file": cluster.dir.join(CLUSTER_FILE_NAME).display().to_string(),
        "connection": cluster.spec.describe(),
        "nodes": nodes,
        "initdb_s": cluster.initdb_s,
        "connect_s": cluster.connect_s,
        "start_s": cluster.start_s,
    })
}

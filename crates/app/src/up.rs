//! `up`: start a local cluster from installed PostgreSQL binaries.

use crate::context::{Context, Format};
use crate::failure::Failure;
use crate::human;
use connect::cluster_file::CLUSTER_FILE_NAME;
use lab::local::{self, Distances, LocalCluster, Preset, Search, Topology, UpOptions};
use record::Exit;
use serde_json::json;
use std::path::{Path, PathBuf};
use workloads::dataset::DEMO;

/// Which cluster to start, and where.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Its nodes.
    pub topology: Topology,
    /// Its folder; `None`: the usual one of its kind.
    pub dir: Option<PathBuf>,
    /// Port of the first server; `None`: the usual one.
    pub port: Option<u16>,
    /// Folder of the Unix socket; `None`: inside the cluster's folder.
    pub socket_dir: Option<PathBuf>,
    /// Listen on 127.0.0.1 too.
    pub tcp: bool,
    /// Folder of the PostgreSQL programs; `None`: the newest found that has the extension which the topology needs.
    pub pg_bin: Option<PathBuf>,
    /// Settings to start from.
    pub preset: Preset,
    /// Settings that are stronger than the preset's.
    pub settings: Vec<(String, String)>,
    /// Distances, as `n1-n2=1ms`; `None`: none.
    pub delay: Option<String>,
    /// Data checksums; `None`: as initdb does.
    pub checksums: Option<bool>,
}

impl Plan {
    /// Starts the cluster and prints how to connect to it.
    ///
    /// # Errors
    /// When there are no binaries, the folder or port is taken, or the server does not start.
    pub fn run(self, context: &Context) -> Result<Exit, Failure> {
        let search = Search { pg_bin: self.pg_bin.clone(), extension: self.topology.extension() };
        let found = local::find_installations(&search, |name| std::env::var_os(name))?;
        // Of those that have what the topology needs besides the server, else of all: the check names what is missing.
        let suitable = found.iter().position(|one| self.topology.suits(one)).unwrap_or(0);
        let installation = found
            .into_iter()
            .nth(suitable)
            .ok_or_else(|| Failure::usage("no PostgreSQL server was found"))?;
        let distances = match &self.delay {
            Some(text) => self.topology.distances(text)?,
            None => Distances::default(),
        };
        let dir = self.dir.clone().unwrap_or_else(|| local::default_dir(self.topology.kind()));
        context.terminal.detail(&format!("up: {installation}"));
        let options = UpOptions {
            topology: self.topology,
            port: self.port,
            socket_dir: self.socket_dir,
            tcp: self.tcp,
            preset: self.preset,
            settings: self.settings,
            checksums: self.checksums,
            distances,
            program: std::env::current_exe().ok(),
            ..UpOptions::new(&dir, installation)
        };
        let cluster = match local::up(&options) {
            // A Ctrl-C on the terminal also reaches initdb, and a failed cluster is already removed.
            Err(_) if context.stop.is_requested() => {
                context.terminal.say("interrupted: nothing was left behind");
                return Ok(Exit::Interrupted);
            }
            result => result?,
        };
        if context.stop.is_requested() {
            local::down(&cluster.dir, &options.registry)?;
            context.terminal.say("interrupted: the cluster is being removed");
            return Ok(Exit::Interrupted);
        }
        for note in &cluster.notes {
            context.terminal.warn(note);
        }
        match context.format {
            Format::Text => context.terminal.data(&text(&cluster)),
            Format::Json => context.terminal.data(&json(&cluster).to_string()),
        }
        Ok(Exit::Ok)
    }
}

/// Runs the relays of a file that `up` wrote, until the end is requested.
///
/// # Errors
/// When the file cannot be read, or a relay cannot listen.
pub fn relay(file: &Path, context: &Context) -> Result<Exit, Failure> {
    local::serve_relays(file, || context.stop.is_requested())?;
    Ok(Exit::Ok)
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
    if let Some(sync) = cluster.file.made.as_ref().and_then(|made| made.sync.as_deref()) {
        first.push_str(&format!("   sync {sync}"));
    }
    for (what, seconds) in [("initdb", cluster.initdb_s), ("connect", cluster.connect_s)] {
        if seconds > 0.0 {
            first.push_str(&format!("   {what} {}", human::seconds(seconds)));
        }
    }
    if let Some(delay) = cluster.file.made.as_ref().and_then(|made| made.delay.as_deref()) {
        first.push_str(&format!("   delay {delay}"));
    }
    first.push_str(&format!("   start {}", human::seconds(cluster.start_s)));
    let mut lines = vec![first];
    lines.push(format!("cluster  {}", file.display()));
    if nodes.len() > 1 {
        let width = nodes.iter().map(|node| node.name.len()).max().unwrap_or(0);
        lines.extend(nodes.iter().map(|node| {
            format!("node     {:width$}   {:8}   psql '{}'", node.name, node.role, node.connection)
        }));
    }
    if nodes.len() == 1 || cluster.spec.hosts.len() > 1 {
        lines.push(format!("connect  psql '{}'", cluster.spec.describe()));
    }
    lines.extend(
        cluster.fronts.iter().map(|front| format!("haproxy  {:6}  psql '{}'", front.name, front.connection)),
    );
    // The rest of the WAL is the tables' own, and it is they that leave it out.
    let preset = cluster.file.made.as_ref().map(|made| made.preset.as_str());
    let unlogged = if preset == Some(Preset::NoWal.name()) { " --unlogged" } else { "" };
    lines.push(format!(
        "next     pgfathom load {} --rows 1M{unlogged} --cluster {}",
        DEMO.dataset.name,
        file.display()
    ));
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
        "delay": cluster.file.made.as_ref().and_then(|made| made.delay.as_deref()),
        "dir": cluster.dir.display().to_string(),
        "cluster_file": cluster.dir.join(CLUSTER_FILE_NAME).display().to_string(),
        "connection": cluster.spec.describe(),
        "nodes": nodes,
        "proxies": cluster
            .fronts
            .iter()
            .map(|front| json!({"name": front.name, "connection": front.connection}))
            .collect::<Vec<_>>(),
        "initdb_s": cluster.initdb_s,
        "connect_s": cluster.connect_s,
        "start_s": cluster.start_s,
    })
}

//! pgactive: every node has every row, takes writes, and sends them to the others after the commit. Tables are created on each node; of two
//! conflicting updates the last one stays.

use super::mtm::conninfo;
use super::{Extension, Installation, LocalError, Peer, Statement, literal};

pub(super) const EXTENSION: Extension = Extension {
    name: "pgactive",
    engine: "pgactive",
    hint: "build it with scripts/engines and name its folder in PGFATHOM_ENGINES, or choose binaries that have it with --pg-bin; \
           pgfathom up multimaster needs no extension",
};

/// A list of the libraries that replication slots may name as their output plugin, in releases from November 2026 on.
const PLUGINS: &str = "output_plugin_libraries";
/// How long a node may take to copy the others' tables and to catch up, in seconds.
const READY_S: u32 = 120;

/// Senders and slots beside those of the group: a backup, a node that joins.
const SPARE: u32 = 10;
/// Processes of pgactive itself and of the server.
const WORKERS_SPARE: u32 = 30;

/// Settings of every node of a group of so many.
pub(super) fn settings(nodes: u32, installation: &Installation) -> Vec<(&'static str, String)> {
    // While a node joins, each of the others has two slots and two senders for it.
    let senders = nodes.saturating_mul(2).saturating_add(SPARE);
    let mut settings: Vec<(&'static str, String)> = vec![
        ("shared_preload_libraries", "pgactive".to_owned()),
        ("wal_level", "logical".to_owned()),
        ("track_commit_timestamp", "on".to_owned()),
        ("max_worker_processes", nodes.saturating_mul(3).saturating_add(WORKERS_SPARE).to_string()),
        ("max_wal_senders", senders.to_string()),
        ("max_replication_slots", senders.to_string()),
    ];
    if installation.has_setting(PLUGINS) {
        settings.push((PLUGINS, "pgoutput, pgactive".to_owned()));
    }
    settings
}

/// The extension on every node, a group of the first one, then the others join it one after another, as pgactive demands.
pub(super) fn connect(peers: &[Peer]) -> Result<(), LocalError> {
    let extension = Statement::new("create the extension pgactive", "create extension pgactive");
    super::on_each(peers, |me| super::execute_all(&peers[me], std::slice::from_ref(&extension)))?;
    let Some(first) = peers.first() else { return Ok(()) };
    for peer in peers {
        super::execute_all(peer, &[enter(peer, first), ready()])?;
    }
    Ok(())
}

fn enter(peer: &Peer, first: &Peer) -> Statement {
    let (name, own) = (literal(&peer.name), literal(&conninfo(peer)));
    if peer.name == first.name {
        let sql = format!("select pgactive.pgactive_create_group(node_name := {name}, node_dsn := {own})");
        return Statement::new("create the group of pgactive", sql);
    }
    Statement::new(
        "join the group of pgactive",
        format!(
            "select pgactive.pgactive_join_group(node_name := {name}, node_dsn := {own}, join_using_dsn := {})",
            literal(&conninfo(first))
        ),
    )
}

fn ready() -> Statement {
    Statement::new(
        "wait until the node of pgactive is ready",
        format!(
            "select pgactive.pgactive_wait_for_node_ready(timeout := {READY_S}, progress_interval := {READY_S})"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::super::Link;
    use super::*;
    use connect::ConnSpec;
    use std::path::Path;

    #[test]
    fn the_first_node_makes_the_group_that_the_others_join() {
        let peer = |number: u16| {
            let spec = ConnSpec::unix(Path::new("/run/m"), 5431 + number, "postgres", "postgres");
            Peer { name: format!("m{number}"), link: Link::of(&spec), spec }
        };
        assert_eq!(
            enter(&peer(1), &peer(1)).sql,
            "select pgactive.pgactive_create_group(node_name := 'm1', node_dsn := 'dbname=postgres user=postgres host=/run/m port=5432')"
        );
        assert_eq!(
            enter(&peer(2), &peer(1)).sql,
            "select pgactive.pgactive_join_group(node_name := 'm2', node_dsn := 'dbname=postgres user=postgres host=/run/m port=5433', \
             join_using_dsn := 'dbname=postgres user=postgres host=/run/m port=5432')"
        );
    }
}

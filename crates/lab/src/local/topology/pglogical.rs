//! pglogical: every node has every row, takes writes, and sends them to the others after the commit. Tables are created on each node and added to a
//! replication set; of two conflicting updates the last one stays, and a violated second unique constraint stops the subscription.

use super::{Extension, Installation, LocalError, Peer, Statement, literal};
use crate::local::topology::mtm::conninfo;

pub(super) const EXTENSION: Extension = Extension {
    name: "pglogical",
    engine: "pglogical",
    hint: "install it (Debian and Ubuntu: apt-get install postgresql-15-pglogical), or build it with scripts/engines and name its folder in \
           PGFATHOM_ENGINES; pgfathom up multimaster needs no extension",
};

/// A list of the libraries that replication slots may name as their output plugin, in releases from November 2026 on.
const PLUGINS: &str = "output_plugin_libraries";

/// Settings of every node.
pub(super) fn settings(nodes: u32, installation: &Installation) -> Vec<(&'static str, String)> {
    /// Additional slots, senders and workers.
    const SPARE: u32 = 10;
    let mut settings = vec![
        ("shared_preload_libraries", "pglogical".to_owned()),
        ("wal_level", "logical".to_owned()),
        // To determine later which of two conflicting writes came last.
        ("track_commit_timestamp", "on".to_owned()),
        ("pglogical.conflict_resolution", "last_update_wins".to_owned()),
        ("max_wal_senders", (nodes + SPARE).to_string()),
        ("max_replication_slots", (2 * nodes + SPARE).to_string()),
        ("max_worker_processes", (2 * nodes + 2 * SPARE).to_string()),
    ];
    if installation.has_setting(PLUGINS) {
        settings.push((PLUGINS, "pgoutput, pglogical_output".to_owned()));
    }
    settings
}

/// The extension and its node on every server; then the subscriptions of one node after another, because creating a slot waits for the end of
/// all running transactions, so two nodes that create theirs at once would wait for each other.
pub(super) fn connect(peers: &[Peer]) -> Result<(), LocalError> {
    super::on_each(peers, |me| super::execute_all(&peers[me], &node(&peers[me])))?;
    for (me, peer) in peers.iter().enumerate() {
        super::execute_all(peer, &subscribe(me, &super::seen_by(&peer.name, peers)))?;
    }
    Ok(())
}

fn node(peer: &Peer) -> [Statement; 2] {
    [
        Statement::new("create the extension pglogical", "create extension pglogical"),
        Statement::new(
            "create the node of pglogical",
            format!(
                "select pglogical.create_node(node_name := {}, dsn := {})",
                literal(&peer.name),
                literal(&conninfo(peer))
            ),
        ),
    ]
}

/// The subscriptions of one node to all others; only what a node has written itself is sent. They stream when this is done.
fn subscribe(me: usize, peers: &[Peer]) -> Vec<Statement> {
    let others = peers.iter().enumerate().filter(|(number, _)| *number != me);
    let statements = others.flat_map(|(_, other)| {
        let name = format!("{}_from_{}", peers[me].name, other.name);
        let subscription = literal(&name);
        [
            Statement::new(
                format!("create the subscription {name}"),
                format!(
                    "select pglogical.create_subscription(subscription_name := {subscription}, provider_dsn := {}, \
                     synchronize_structure := false, synchronize_data := false, forward_origins := '{{}}')",
                    literal(&conninfo(other))
                ),
            ),
            Statement::new(
                format!("wait for the subscription {name}"),
                format!("select pglogical.wait_for_subscription_sync_complete({subscription})"),
            ),
        ]
    });
    statements.collect()
}

#[cfg(test)]
mod tests {
    use super::super::Link;
    use super::*;
    use connect::ConnSpec;
    use std::path::Path;

    #[test]
    fn each_node_subscribes_to_every_other_and_forwards_nothing() {
        let peer = |number: u16| {
            let spec = ConnSpec::unix(Path::new("/run/m"), 5431 + number, "postgres", "postgres");
            Peer { name: format!("m{number}"), link: Link::of(&spec), spec }
        };
        let peers = [peer(1), peer(2), peer(3)];
        assert_eq!(
            node(&peers[0])[1].sql,
            "select pglogical.create_node(node_name := 'm1', dsn := 'dbname=postgres user=postgres host=/run/m port=5432')"
        );
        let statements = subscribe(1, &peers);
        let names: Vec<&str> = statements.iter().map(|statement| statement.what.as_str()).collect();
        assert_eq!(
            names,
            [
                "create the subscription m2_from_m1",
                "wait for the subscription m2_from_m1",
                "create the subscription m2_from_m3",
                "wait for the subscription m2_from_m3",
            ]
        );
        let sql = &statements[0].sql;
        assert!(sql.contains("port=5432'") && sql.contains("forward_origins := '{}'"), "{sql}");
    }
}

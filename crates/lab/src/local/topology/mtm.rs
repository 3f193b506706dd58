//! Postgres Pro Multimaster: every node has every row, takes writes, and a commit needs a majority of the nodes.
//!
//! It needs a server with Multimaster's own patches: that of Postgres Pro Enterprise, or the open postgres_cluster with mmts, which `scripts/engines` builds.
//! The nodes connect to each other as ordinary clients, so they use Unix sockets like the nodes of other local clusters, or 127.0.0.1 with a password.

use std::time::Duration;

use super::{Extension, LocalError, Peer, Statement, literal};
use connect::conninfo::quoted;
use connect::{control, poll};

pub(super) const EXTENSION: Extension = Extension {
    name: "multimaster",
    engine: "mtm",
    hint: "build it with scripts/engines and name its folder in PGFATHOM_ENGINES, or choose the binaries of Postgres Pro Enterprise with --pg-bin; \
           pgfathom up multimaster needs no extension",
};

/// The time limit until all nodes are online; it takes some seconds.
const ONLINE_TIMEOUT: Duration = Duration::from_secs(120);

/// The most nodes that Multimaster knows: `MTM_MAX_NODES` in its multimaster.h.
pub(super) const NODES_MAX: u32 = 16;
/// Processes for each other node: a receiver, and `multimaster.max_workers` workers. Its `check_config` refuses to start with fewer.
const WORKERS_PER_NODE: u32 = 101;
/// Its own processes, those of the server, and some to spare.
const WORKERS_SPARE: u32 = 16;
/// Nodes that may join later.
const NODES_SPARE: u32 = 1;

/// Settings of every node: those of its documentation, for so many nodes.
pub(super) fn settings(nodes: u32) -> Vec<(&'static str, String)> {
    let peers = nodes.saturating_sub(1).saturating_add(NODES_SPARE);
    let workers = peers.saturating_mul(WORKERS_PER_NODE).saturating_add(WORKERS_SPARE);
    [
        ("shared_preload_libraries", "multimaster".to_owned()),
        ("wal_level", "logical".to_owned()),
        ("max_prepared_transactions", (100 * nodes.max(3)).to_string()),
        ("max_worker_processes", workers.to_string()),
        ("max_wal_senders", "20".to_owned()),
        // A node that joins, or comes back, has a second one for a while.
        ("max_replication_slots", (2 * NODES_MAX).to_string()),
        ("wal_sender_timeout", "0".to_owned()),
    ]
    .into()
}

/// The extension on every node, then the cluster from the first one; returns when all nodes take transactions.
pub(super) fn connect(peers: &[Peer]) -> Result<(), LocalError> {
    let extension = Statement::new("create the extension multimaster", "create extension multimaster");
    super::on_each(peers, |me| super::execute_all(&peers[me], std::slice::from_ref(&extension)))?;
    if let Some((first, others)) = peers.split_first() {
        super::execute_all(first, &[init(first, others)])?;
    }
    super::on_each(peers, |me| until_online(&peers[me])).map(|_| ())
}

fn init(first: &Peer, others: &[Peer]) -> Statement {
    let others: Vec<String> = others.iter().map(|peer| literal(&conninfo(peer))).collect();
    Statement::new(
        "initialize the cluster of multimaster",
        format!(
            "select mtm.init_cluster({}, array[{}]::text[])",
            literal(&conninfo(first)),
            others.join(", ")
        ),
    )
}

/// How the other nodes connect to one.
pub(super) fn conninfo(peer: &Peer) -> String {
    let link = &peer.link;
    let mut text = format!(
        "dbname={} user={} host={} port={}",
        quoted(&link.dbname),
        quoted(&link.user),
        quoted(&link.host),
        link.port
    );
    if let Some(password) = &link.password {
        text.push_str(&format!(" password={}", quoted(password.reveal())));
    }
    text
}

/// Waits until a node is online. Until then it refuses all statements, the query of its status included.
pub(super) fn until_online(me: &Peer) -> Result<(), LocalError> {
    let status = || -> Result<bool, LocalError> {
        let mut client = control::connect(&me.spec)?;
        let rows = client.query("select status from mtm.status()", &[]).map_err(|source| {
            LocalError::Sql { what: "query the status of multimaster".to_owned(), source }
        })?;
        Ok(rows.first().is_some_and(|row| row.get::<_, String>(0) == "online"))
    };
    let mut last = None;
    let online = poll::until(ONLINE_TIMEOUT, || match status() {
        Ok(true) => Some(()),
        Ok(false) => None,
        Err(error) => {
            last = Some(error);
            None
        }
    });
    let late = || LocalError::NotOnline { waited_s: ONLINE_TIMEOUT.as_secs() };
    online.ok_or_else(|| last.unwrap_or_else(late))
}

#[cfg(test)]
mod tests {
    use super::super::Link;
    use super::*;
    use connect::{ConnSpec, Secret};
    use std::path::Path;

    #[test]
    fn the_first_node_names_itself_and_the_others() {
        let peer = |number: u16, password: Option<&str>| {
            let spec = ConnSpec::unix(Path::new("/run/m"), 5431 + number, "postgres", "postgres");
            let link = Link { password: password.map(Secret::new), ..Link::of(&spec) };
            Peer { name: format!("m{number}"), spec, link }
        };
        let statement = init(&peer(1, None), &[peer(2, None), peer(3, Some("geheim"))]);
        assert_eq!(
            statement.sql,
            "select mtm.init_cluster('dbname=postgres user=postgres host=/run/m port=5432', \
             array['dbname=postgres user=postgres host=/run/m port=5433', \
             'dbname=postgres user=postgres host=/run/m port=5434 password=geheim']::text[])"
        );
        assert!(!statement.what.contains("geheim"));
    }
}

//! Hash partitions over several servers with postgres_fdw, any of them an entry point.
//!
//! Each node has every other one as a foreign server. A foreign table points at the remote *leaf*, never at the remote parent, so a query makes one hop without
//! loops. `docs/clusters.md` lists the limits: no two-phase commit, no global snapshot, and no detection of deadlocks over
//! two nodes. Hence the time limits: a session that waits on another node for a lock gives up after [`REMOTE_LOCK_TIMEOUT`].

use super::{LocalError, Peer, Statement, literal};
use connect::control;

/// The time limit for a lock on another node: only this ends a deadlock over two nodes, which no server detects.
const REMOTE_LOCK_TIMEOUT: &str = "5s";
/// How long a transaction on another node may wait for the next statement of its entry node.
const REMOTE_IDLE_TIMEOUT: &str = "60s";
/// Rows per fetch of a foreign scan (the default of 100 makes one round trip per 100 rows).
const FETCH_ROWS: u32 = 1000;
/// Rows per remote INSERT.
const BATCH_ROWS: u32 = 100;

/// Settings of every node. Partition-wise plans push aggregates and joins down to the nodes; without them `count(*)` transfers every row to
/// the entry node. With the check interval a backend detects within a second that its client is gone, and releases its locks on other nodes.
pub(crate) fn settings(major: u32) -> Vec<(&'static str, String)> {
    let all = [
        (11, "enable_partitionwise_aggregate", "on"),
        (11, "enable_partitionwise_join", "on"),
        (14, "client_connection_check_interval", "1s"),
    ];
    all.into_iter()
        .filter(|(since, ..)| major >= *since)
        .map(|(_, name, value)| (name, value.to_owned()))
        .collect()
}

/// Whether the node's installation has the required extension.
pub(crate) fn check(peer: &Peer) -> Result<(), LocalError> {
    let mut client = control::connect(&peer.spec)?;
    let row = client
        .query_opt("select from pg_catalog.pg_available_extensions where name = 'postgres_fdw'", &[])
        .map_err(|source| LocalError::Sql { what: "look for postgres_fdw".to_owned(), source })?;
    match row {
        Some(_) => Ok(()),
        None => Err(LocalError::Extension {
            name: "postgres_fdw",
            hint: "it is part of PostgreSQL's contrib: install the package postgresql-contrib of this version, or choose other binaries with \
                   --pg-bin".to_owned(),
        }),
    }
}

/// The statements that introduce the other nodes to node `me`. `major` is the server's release: newer ones have more options.
pub(crate) fn statements(me: usize, peers: &[Peer], major: u32) -> Vec<Statement> {
    let mut statements = vec![Statement::new(
        "create the extension postgres_fdw",
        "create extension if not exists postgres_fdw",
    )];
    for (_, peer) in peers.iter().enumerate().filter(|(number, _)| *number != me) {
        let link = &peer.link;
        let mut options = vec![
            ("host", link.host.clone()),
            ("port", link.port.to_string()),
            ("dbname", link.dbname.clone()),
            ("fetch_size", FETCH_ROWS.to_string()),
            (
                "options",
                format!(
                    "-c lock_timeout={REMOTE_LOCK_TIMEOUT} -c idle_in_transaction_session_timeout={REMOTE_IDLE_TIMEOUT}"
                ),
            ),
        ];
        let newer = [
            (14, "batch_size", BATCH_ROWS.to_string()),
            (14, "async_capable", "true".to_owned()),
            (14, "keep_connections", "on".to_owned()),
            (15, "parallel_commit", "true".to_owned()),
            (16, "parallel_abort", "true".to_owned()),
        ];
        options.extend(
            newer.into_iter().filter(|(since, ..)| major >= *since).map(|(_, name, value)| (name, value)),
        );
        let listed = |options: &[(&str, String)]| -> String {
            let each: Vec<String> =
                options.iter().map(|(name, value)| format!("{name} {}", literal(value))).collect();
            each.join(", ")
        };
        statements.push(Statement::new(
            format!("create the foreign server {}", peer.name),
            format!(
                "create server {} foreign data wrapper postgres_fdw options ({})",
                peer.name,
                listed(&options)
            ),
        ));
        let mut login = vec![("user", link.user.clone())];
        login.extend(link.password.iter().map(|password| ("password", password.reveal().to_owned())));
        statements.push(Statement::new(
            format!("create the user mapping for {}", peer.name),
            format!("create user mapping for current_user server {} options ({})", peer.name, listed(&login)),
        ));
        // This makes the nodes discoverable from any of them, also before there are tables.
        statements.push(Statement::new(
            format!("mark the foreign server {}", peer.name),
            format!("comment on server {} is {}", peer.name, literal(engines::cluster::NODE_MARK)),
        ));
    }
    statements
}

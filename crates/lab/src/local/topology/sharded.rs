//! Hash partitions over several servers with postgres_fdw, any of them an entry point.
//!
//! Each node knows every other as a foreign server. A foreign table points at the remote *leaf*, never at the remote parent, so a query makes one hop and no
//! loops. What this arrangement does not give is documented in `docs/clusters.md`: no two-phase commit, no global snapshot, and no detection of deadlocks over
//! two nodes. Hence the time limits: a session that waits on another node for a lock gives up after [`REMOTE_LOCK_TIMEOUT`].

use super::{LocalError, Peer, Statement, literal};
use connect::control;

/// How long a statement waits for a lock on another node: the only end of a deadlock over two nodes, which no server sees.
const REMOTE_LOCK_TIMEOUT: &str = "5s";
/// How long a transaction on another node may wait for its entry node's next word.
const REMOTE_IDLE_TIMEOUT: &str = "60s";
/// Rows per fetch of a foreign scan (the default of 100 makes one round trip per 100 rows).
const FETCH_ROWS: u32 = 1000;
/// Rows per remote INSERT.
const BATCH_ROWS: u32 = 100;

/// Settings of every node. Partition-wise plans push aggregates and joins down to the nodes; without them `count(*)` drags every row through
/// the entry node. The check interval makes a backend notice within a second that its client is gone, and so release what it holds on other nodes.
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

/// Whether the node's installation has what this needs.
pub(crate) fn check(peer: &Peer) -> Result<(), LocalError> {
    let mut client = control::connect(&peer.spec)?;
    let row = client
        .query_opt("select from pg_catalog.pg_available_extensions where name = 'postgres_fdw'", &[])
        .map_err(|source| LocalError::Sql { what: "look for postgres_fdw".to_owned(), source })?;
    match row {
        Some(_) => Ok(()),
        None => Err(LocalError::Extension {
            name: "postgres_fdw",
            hint: "it is part of PostgreSQL's contrib: install the package postgresql-contrib of this version, or choose other binaries with --pg-bin".to_owned(),
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
        // By this the nodes are found from any one of them, also while no table is there yet.
        statements.push(Statement::new(
            format!("mark the foreign server {}", peer.name),
            format!("comment on server {} is {}", peer.name, literal(engines::cluster::NODE_MARK)),
        ));
    }
    statements
}

//! Citus: a coordinator and workers, from an extension that must be installed.
//!
//! Debian has no package of it; `scripts/engines` builds it. The statements are a pure function, tested as text against the documentation (Citus 11 and newer,
//! "Single-node" and "Multi-node" installation, `citus_set_coordinator_host`, `citus_add_node`, `pg_dist_authinfo`).

use super::{Extension, Peer, Statement, literal};

pub(super) const EXTENSION: Extension = Extension {
    name: "citus",
    engine: "citus",
    hint: "build it with scripts/engines and name its folder in PGFATHOM_ENGINES, install it from https://packages.citusdata.com, or choose \
           binaries that have it with --pg-bin; pgfathom up sharded needs no extension but postgres_fdw",
};

/// Settings of every node. With `up --tcp` they connect over 127.0.0.1, where Citus would demand TLS.
pub(super) fn settings() -> Vec<(&'static str, String)> {
    vec![
        ("shared_preload_libraries", "citus".to_owned()),
        ("citus.node_conninfo", "sslmode=prefer".to_owned()),
        ("wal_level", "logical".to_owned()),
    ]
}

/// First, on every node: the extension, where it finds itself, and its credentials for the others.
pub(super) fn prepare(me: &Peer) -> Vec<Statement> {
    let mut statements = vec![
        Statement::new("create the extension citus", "create extension citus"),
        Statement::new(
            "set the address at which citus reaches its own server",
            format!("alter system set citus.local_hostname = {}", literal(&me.link.host)),
        ),
        Statement::new("read the settings again", "select pg_catalog.pg_reload_conf()"),
    ];
    if let Some(password) = &me.link.password {
        statements.push(Statement::new(
            "give citus the password of the nodes",
            format!(
                "insert into pg_catalog.pg_dist_authinfo (nodeid, rolename, authinfo) values (0, {}, {})",
                literal(&me.link.user),
                literal(&format!("password={}", password.reveal()))
            ),
        ));
    }
    statements
}

/// Then, on the coordinator, which is the first node: its own address, and its workers. Without workers it holds the shards.
pub(super) fn join(peers: &[Peer]) -> Vec<Statement> {
    let Some((coordinator, workers)) = peers.split_first() else { return Vec::new() };
    let at = |peer: &Peer| format!("{}, {}", literal(&peer.link.host), peer.link.port);
    let mut statements = vec![Statement::new(
        "set the address of the coordinator",
        format!("select pg_catalog.citus_set_coordinator_host({})", at(coordinator)),
    )];
    statements.extend(workers.iter().map(|worker| {
        Statement::new(
            format!("add the worker {}", worker.name),
            format!("select pg_catalog.citus_add_node({})", at(worker)),
        )
    }));
    if workers.is_empty() {
        statements.push(Statement::new(
            "let the coordinator hold shards",
            format!(
                "select pg_catalog.citus_set_node_property({}, 'shouldhaveshards', true)",
                at(coordinator)
            ),
        ));
    }
    statements
}

#[cfg(test)]
mod tests {
    use super::super::Link;
    use super::*;
    use connect::{ConnSpec, Secret};

    fn peer(name: &str, port: u16) -> Peer {
        let spec = ConnSpec::new("127.0.0.1", port, "postgres", "postgres");
        let link = Link { password: Some(Secret::new("geheim")), ..Link::of(&spec) };
        Peer { name: name.to_owned(), spec, link }
    }

    fn sql(statements: Vec<Statement>) -> Vec<String> {
        statements.into_iter().map(|statement| statement.sql).collect()
    }

    #[test]
    fn the_coordinator_learns_its_own_address_and_its_workers() {
        let peers = [peer("coordinator", 5432), peer("w1", 5433), peer("w2", 5434)];
        assert_eq!(
            sql(join(&peers)),
            [
                "select pg_catalog.citus_set_coordinator_host('127.0.0.1', 5432)",
                "select pg_catalog.citus_add_node('127.0.0.1', 5433)",
                "select pg_catalog.citus_add_node('127.0.0.1', 5434)",
            ]
        );
        assert_eq!(
            sql(join(&peers[..1])),
            [
                "select pg_catalog.citus_set_coordinator_host('127.0.0.1', 5432)",
                "select pg_catalog.citus_set_node_property('127.0.0.1', 5432, 'shouldhaveshards', true)",
            ]
        );
        assert_eq!(
            sql(prepare(&peers[1])),
            [
                "create extension citus",
                "alter system set citus.local_hostname = '127.0.0.1'",
                "select pg_catalog.pg_reload_conf()",
                "insert into pg_catalog.pg_dist_authinfo (nodeid, rolename, authinfo) values (0, 'postgres', 'password=geheim')",
            ]
        );
        // The message of a failed statement describes it, without its password.
        assert!(prepare(&peers[1]).iter().all(|statement| !statement.what.contains("geheim")));
    }
}

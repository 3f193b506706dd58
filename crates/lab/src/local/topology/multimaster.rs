//! Servers that all take writes and replicate them to each other by logical replication (`origin = none`, PostgreSQL 16 and newer).
//!
//! Each node publishes only its own writes: replicated rows are not forwarded, so there are no loops. The publication
//! [`PUBLICATION`] is empty until `load` makes tables on all nodes, adds them to it and refreshes the subscriptions, in this order. No rule resolves
//! conflicts: two updates of one row at once leave the nodes different forever, and two inserts of one key stop the subscription (`disable_on_error`), which
//! a proof can measure.

use super::{Link, Peer, Statement, literal};
use connect::conninfo::quoted;

/// The first release that can exclude replicated changes.
pub(super) const MAJOR_MIN: u32 = 16;
/// The publication on every node.
pub const PUBLICATION: &str = "pgfathom";

/// Settings of every node.
pub(super) fn settings(nodes: u32, major: u32) -> Vec<(&'static str, String)> {
    /// Additional slots, senders and workers.
    const SPARE: u32 = 10;
    let enough = (nodes + SPARE).to_string();
    let mut settings = vec![
        ("wal_level", "logical".to_owned()),
        ("max_wal_senders", enough.clone()),
        ("max_replication_slots", enough.clone()),
        ("max_logical_replication_workers", enough.clone()),
        ("max_worker_processes", (2 * nodes + 2 * SPARE).to_string()),
        // To determine later which of two conflicting writes came last.
        ("track_commit_timestamp", "on".to_owned()),
        // Without a limit a node that is down fills the disks of all others.
        ("max_slot_wal_keep_size", super::replicated::SLOT_WAL_MAX.to_owned()),
    ];
    if major >= 18 {
        settings.push(("max_active_replication_origins", enough));
    }
    settings
}

/// The subscription of one node to another; it is also the application name that the other one sees.
pub fn subscription(subscriber: &str, publisher: &str) -> String {
    format!("pgfathom_{subscriber}_from_{publisher}")
}

/// First, on every node: the publication, and a slot for each subscriber. The slots are created here and not by the subscriptions, because creating one
/// waits for the end of all running transactions, so subscriptions created concurrently on two nodes would wait for each other for ever.
pub(super) fn publish(me: usize, peers: &[Peer]) -> Vec<Statement> {
    let mut statements =
        vec![Statement::new("create the publication", format!("create publication {PUBLICATION}"))];
    statements.extend(others(me, peers).map(|subscriber| {
        let slot = subscription(&subscriber.name, &peers[me].name);
        Statement::new(
            format!("create the replication slot {slot}"),
            format!("select pg_catalog.pg_create_logical_replication_slot({}, 'pgoutput')", literal(&slot)),
        )
    }));
    statements
}

/// Then, on every node: a subscription to each other one.
pub(super) fn subscribe(me: usize, peers: &[Peer]) -> Vec<Statement> {
    others(me, peers)
        .map(|publisher| {
            let name = subscription(&peers[me].name, &publisher.name);
            Statement::new(
                format!("create the subscription {name}"),
                format!(
                    "create subscription {name} connection {} publication {PUBLICATION} with (create_slot = false, \
                     slot_name = {name}, origin = none, copy_data = false, disable_on_error = true)",
                    literal(&conninfo(&publisher.link))
                ),
            )
        })
        .collect()
}

fn others(me: usize, peers: &[Peer]) -> impl Iterator<Item = &Peer> {
    peers.iter().enumerate().filter(move |(number, _)| *number != me).map(|(_, peer)| peer)
}

fn conninfo(link: &Link) -> String {
    let mut text = format!(
        "host={} port={} user={} dbname={}",
        quoted(&link.host),
        link.port,
        quoted(&link.user),
        quoted(&link.dbname)
    );
    if let Some(password) = &link.password {
        text.push_str(&format!(" password={}", quoted(password.reveal())));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use connect::{ConnSpec, Secret};
    use std::path::Path;

    #[test]
    fn each_node_publishes_to_and_subscribes_from_every_other() {
        let peer = |number: u16| {
            let spec = ConnSpec::unix(Path::new("/run/it's"), 5431 + number, "postgres", "postgres");
            let mut link = Link::of(&spec);
            link.password = (number == 2).then(|| Secret::new("x'y"));
            Peer { name: format!("m{number}"), spec, link }
        };
        let peers = [peer(1), peer(2), peer(3)];
        let publish: Vec<String> = publish(0, &peers).into_iter().map(|statement| statement.sql).collect();
        assert_eq!(
            publish,
            [
                "create publication pgfathom",
                "select pg_catalog.pg_create_logical_replication_slot('pgfathom_m2_from_m1', 'pgoutput')",
                "select pg_catalog.pg_create_logical_replication_slot('pgfathom_m3_from_m1', 'pgoutput')",
            ]
        );
        let subscribe = subscribe(2, &peers);
        assert_eq!(subscribe.len(), 2);
        let second = &subscribe[1];
        assert_eq!(second.what, "create the subscription pgfathom_m3_from_m2");
        assert!(second.sql.contains("slot_name = pgfathom_m3_from_m2, origin = none, copy_data = false"));
        // Quoted twice: once for the connection string, once for SQL.
        let connection = r"E'host=\'/run/it";
        assert!(!second.sql.contains(connection));
        assert!(second.sql.contains(r"E'host=''/run/it\\''s'' port=5433"), "{}", second.sql);
        assert!(second.sql.contains(r"password=''x\\''y''"), "{}", second.sql);
    }
}

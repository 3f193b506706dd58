//! The WAL that a load writes, on each node that holds its rows. Where the engine brings rows to their nodes, these nodes have no ledger, and so no
//! connection of the load: each is connected to before the load and after it.

use connect::ConnSpec;
use engines::cluster::Cluster;
use postgres::Client;

/// WAL that a node wrote during a load, of whatever sessions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeWal {
    /// Its name.
    pub name: String,
    /// Bytes; `None` if the node did not answer before or after the load.
    pub bytes: Option<u64>,
}

/// A node without a ledger, and where its WAL ended before the load.
#[derive(Debug)]
struct Before {
    name: String,
    spec: ConnSpec,
    position: Option<u64>,
}

/// The nodes that hold rows and are not filled directly.
#[derive(Debug, Default)]
pub(crate) struct Others(Vec<Before>);

impl Others {
    /// Reads where their WAL ends.
    pub(crate) fn of(cluster: &Cluster) -> Others {
        if cluster.as_one_database().is_none() {
            return Others::default();
        }
        let filled = cluster.ledger_nodes();
        let others = cluster.data_nodes().filter(|node| !filled.contains(node));
        let before = |node: usize| {
            let found = &cluster.nodes[node];
            Before { name: found.name.clone(), spec: found.spec.clone(), position: connected(&found.spec) }
        };
        Others(others.map(before).collect())
    }

    /// What they have written since.
    pub(crate) fn written(&self) -> Vec<NodeWal> {
        let since = |node: &Before| NodeWal {
            name: node.name.clone(),
            bytes: distance(node.position, node.position.and_then(|_| connected(&node.spec))),
        };
        self.0.iter().map(since).collect()
    }
}

/// The distance between two positions; `None` if one is unknown.
pub(crate) fn distance(before: Option<u64>, after: Option<u64>) -> Option<u64> {
    after.zip(before).map(|(after, before)| after.saturating_sub(before))
}

fn connected(spec: &ConnSpec) -> Option<u64> {
    position(&mut *crate::connections::shared(spec).ok()?)
}

/// Where the server's WAL ends, in bytes. A restart on the way does not matter, a missing privilege is no error.
pub(crate) fn position(client: &mut Client) -> Option<u64> {
    let row = client.query_one("select (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint", &[]).ok()?;
    u64::try_from(row.get::<_, i64>(0)).ok()
}

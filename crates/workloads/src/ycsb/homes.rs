//! The nodes of rows, and sessions that are held to the rows of a node.

use connect::cluster_file::Role;
use data::ycsb::Table;
use engines::placement::{Routing, Rule};
use engines::{Cluster, Placement};
use load::ledger::Dataset;
use postgres::Client;
use record::number::counted as plural;
use run::routing::{Homes, KeyOwners};

use super::dataset::TABLE;
use crate::driving::{Entry, Owned, Refusal};

/// Keys on which client and server have to agree before sessions are held to nodes.
const SELF_TEST_KEYS: u64 = 512;

/// Which session draws keys of which node; `None` when all draw from the whole table.
pub(super) fn of_sessions(
    entry: &Entry<'_>,
    client: &mut Client,
    dataset: &Dataset,
) -> Result<Option<Homes>, Refusal> {
    let Some(held) = &entry.held else { return Ok(None) };
    let (cluster, flag) = (entry.cluster, held.flag);
    let owners = match placed(cluster, client, cluster.entry_node(), dataset, flag)? {
        Owned::Split(owners) => owners,
        Owned::Everywhere => {
            return Err(Refusal::new(format!("{flag}: in this cluster every node holds every row"))
                .with_hint(
                    "choose the nodes with --connect each or --connect NODE; every row is there, too",
                ));
        }
    };
    hold(cluster, owners, held.nodes.clone(), 1, dataset, flag).map(Some)
}

/// Sessions in groups of `sessions_each`, each held to one of `nodes`; refused when a node has no row to offer.
///
/// # Errors
/// When a node has no row, or next to none.
pub(super) fn hold(
    cluster: &Cluster,
    owners: KeyOwners,
    nodes: Vec<u16>,
    sessions_each: u64,
    dataset: &Dataset,
    flag: &str,
) -> Result<Homes, Refusal> {
    let table = Table::new(dataset.spec.clone());
    let homes = Homes::new(owners, nodes.clone(), sessions_each)
        .ok_or_else(|| Refusal::new(format!("{flag}: this cluster has no node that owns rows")))?;
    match nodes.into_iter().find(|node| !homes.has_rows(*node, dataset.rows, |row| table.key(row))) {
        None => Ok(homes),
        Some(empty) => Err(Refusal::new(format!(
            "{flag}: {} has no row of this dataset, or almost none of its {}",
            cluster.nodes[usize::from(empty)].name,
            plural(dataset.rows, "row")
        ))
        .with_hint("load more rows, give that node a partition, or name the other nodes")),
    }
}

/// Who owns which key, from the catalog of the node `entry` that `client` is connected to, tested against that server. `asker` is named
/// in errors.
///
/// # Errors
/// When the catalog does not show it, or the server disagrees.
pub(super) fn placed(
    cluster: &Cluster,
    client: &mut Client,
    entry: usize,
    dataset: &Dataset,
    asker: &str,
) -> Result<Owned, Refusal> {
    let placement = Placement::read(cluster, client, entry, &dataset.schema_name, TABLE)?;
    let has_standbys = cluster.nodes.iter().any(|node| node.role == Role::Standby);
    if placement.on_every_node() || (!cluster.is_clustered() && has_standbys) {
        return Ok(Owned::Everywhere);
    }
    let nodes: Vec<u16> = placement.leaves().iter().map(|leaf| leaf.node as u16).collect();
    let owners = match placement.routing() {
        Routing::Whole => Some(KeyOwners::Hash { nodes }),
        Routing::Client { columns, rule } if columns.len() == 1 => owners_by(rule, &nodes),
        _ => None,
    };
    let owners = owners.ok_or_else(|| {
        Refusal::new(format!(
            "{asker}: this client cannot determine which node owns a key: {}",
            placement.routing()
        ))
        .with_hint("pgfathom run --connect NODE pins sessions; their rows can then be on any node")
    })?;
    let table = Table::new(dataset.spec.clone());
    let step = (dataset.rows / SELF_TEST_KEYS).max(1);
    let keys: Vec<[u8; data::ycsb::KEY_BYTES]> =
        (0..dataset.rows.min(SELF_TEST_KEYS)).map(|at| table.key(at * step)).collect();
    placement.self_test(client, &keys)?;
    Ok(Owned::Split(owners))
}

/// The rules whose result can be written down with a run.
fn owners_by(rule: &Rule, nodes: &[u16]) -> Option<KeyOwners> {
    match rule {
        Rule::PartitionHash { leaf_of, .. } => {
            Some(KeyOwners::Hash { nodes: leaf_of.iter().map(|leaf| nodes[*leaf as usize]).collect() })
        }
        Rule::HashRange { starts } => Some(KeyOwners::HashRanges {
            starts: starts.iter().copied().zip(nodes.iter().copied()).collect(),
        }),
        Rule::CodeRange { starts } => Some(KeyOwners::CodeRanges {
            starts: starts.iter().copied().zip(nodes.iter().copied()).collect(),
        }),
        Rule::Segment { legacy: false, .. } => Some(KeyOwners::Segments { nodes: nodes.to_vec() }),
        Rule::Segment { legacy: true, .. } | Rule::KeyRange { .. } => None,
    }
}

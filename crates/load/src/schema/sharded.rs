//! The tables of a cluster sharded by `postgres_fdw`: the parent on every node, each leaf a table on one node and a foreign table on the others.
//!
//! The parent has no primary key, as PostgreSQL has no unique index over foreign partitions; each leaf gets its own. A foreign table points at the leaf on
//! its owner, never at the parent there, so that a query makes one hop and no loops.

use std::collections::BTreeMap;

use engines::cluster::Cluster;
use postgres::{GenericClient, Transaction};

use super::NamedNode;
use super::create::{columns_sql, parameters_sql, tablespace_sql};
use crate::dataset::{Leaves, Table};
use crate::error::LoadError;
use crate::ledger::{Dataset, Layout, qualified, quoted};
use crate::shard::{self, literal};

/// Leaves per node of a new dataset by default: enough to move some to a node that is added.
pub(crate) const PARTITIONS_PER_NODE: u32 = 4;

/// Which node each leaf is on: where one of the nodes that have the dataset has it as a table, else assigned in turn.
pub(super) fn owners(
    transactions: &mut [Transaction<'_>],
    found: &[Option<(Dataset, Layout)>],
    model: &Dataset,
    tables: &[Table],
) -> Result<Vec<usize>, Box<LoadError>> {
    let leaves = Leaves::of_tables(tables, model.partitions);
    let nodes = transactions.len();
    // Leaves of one number are on one node, whatever their table.
    let mut owners: Vec<usize> =
        (0..leaves.count()).map(|leaf| leaves.partition(leaf) as usize % nodes).collect();
    for (node, transaction) in transactions.iter_mut().enumerate() {
        let Some((dataset, _)) = &found[node] else { continue };
        for partition in shard::partitions(transaction, dataset, tables).map_err(Box::new)? {
            if partition.local
                && let Some(owner) = owners.get_mut(usize::from(partition.leaf))
            {
                *owner = node;
            }
        }
    }
    Ok(owners)
}

/// What the node at the place `me` calls the foreign servers that lead to the others, by their places.
pub(crate) fn servers(
    client: &mut impl GenericClient,
    cluster: &Cluster,
    named_nodes: &[NamedNode],
    me: usize,
) -> Result<BTreeMap<usize, String>, LoadError> {
    let mut names = cluster
        .server_names(client, named_nodes[me].node)
        .map_err(|source| LoadError::sql("reading the foreign servers", source))?;
    let others = named_nodes.iter().enumerate().filter(|(place, _)| *place != me);
    let name = |(place, other): (usize, &NamedNode)| match names.remove(&other.node) {
        Some(name) => Ok((place, name)),
        None => Err(LoadError::NoServer { node: named_nodes[me].name.clone(), other: other.name.clone() }),
    };
    others.map(name).collect()
}

/// The tables of one node.
pub(super) fn create_sql(
    dataset: &Dataset,
    tables: &[Table],
    layout: &Layout,
    owners: &[usize],
    me: usize,
    servers: &BTreeMap<usize, String>,
) -> String {
    let leaves = Leaves::of_tables(tables, dataset.partitions);
    let each = tables.iter().enumerate().map(|(number, table)| {
        let owners = &owners[leaves.at(number as u32, 0) as usize..];
        create_table_sql(dataset, table, layout, owners, me, servers)
    });
    each.collect()
}

fn create_table_sql(
    dataset: &Dataset,
    table: &Table,
    layout: &Layout,
    owners: &[usize],
    me: usize,
    servers: &BTreeMap<usize, String>,
) -> String {
    let parent = qualified(&dataset.schema_name, table.name);
    let fillfactor = parameters_sql(table, None);
    let unlogged = if layout.unlogged { "unlogged " } else { "" };
    let columns = columns_sql(table);
    let Some(by) = table.placement.sql() else {
        let tablespace = tablespace_sql(layout, 0);
        return format!("create {unlogged}table {parent} {columns}{fillfactor}{tablespace};");
    };
    let mut sql = format!("create table {parent} {columns} partition by {by};");
    // Tablespaces are assigned in turn to the leaves of this node.
    let mut place = 0;
    for (remainder, name) in table.leaf_names(dataset.partitions).iter().enumerate() {
        let leaf = qualified(&dataset.schema_name, name);
        let bound = table.placement.bound(remainder as u32, dataset.partitions);
        if owners[remainder] == me {
            let tablespace = tablespace_sql(layout, place);
            sql.push_str(&format!(
                "create {unlogged}table {leaf} partition of {parent} {bound}{fillfactor}{tablespace};"
            ));
            place += 1;
        } else if let Some(server) = servers.get(&owners[remainder]) {
            sql.push_str(&format!(
                "create foreign table {leaf} partition of {parent} {bound} server {} options (schema_name {}, table_name {});",
                quoted(server),
                literal(&dataset.schema_name),
                literal(name)
            ));
        }
    }
    sql
}

//! The nine tables on a cluster sharded by `postgres_fdw`: made, recognised, refused or removed on all nodes together.
//!
//! Every node has every partitioned table; each leaf is a table on one node and a foreign table on the others ([`super::spread`]). ITEM is a
//! table on each. Each node has a ledger of its own, in which the same dataset is identified by the same token.

use std::collections::BTreeMap;

use data::tpcc::Table;
use engines::cluster::Cluster;
use postgres::{GenericClient, Transaction};

use super::schema::{self, check_identity, columns_sql, fillfactor_of};
use super::spread::{self, Partition, Spread, leaf_name, partition_column, spread_tables};
use super::{TpccDataset, TpccOptions};
use crate::connections;
use crate::error::LoadError;
use crate::ledger::{self, Dataset, Layout, qualified, quoted};
use crate::options::{Stop, Via};
use crate::plan::PARTITIONS_MAX;
use crate::schema::sharded::{PARTITIONS_PER_NODE, servers};
use crate::schema::{NamedNode, begin, clear_names, random_token, remove};
use crate::shard::literal;
use crate::team::{Member, Team};
use crate::trust;

/// The dataset as each node's ledger has it, where its warehouses are, and whether somebody has begun it before.
pub(crate) struct Prepared {
    pub(crate) found: Vec<TpccDataset>,
    pub(crate) spread: Spread,
    pub(crate) created: bool,
    /// What the user should know of how it was made.
    pub(crate) notes: Vec<String>,
}

/// What one node has of the dataset: itself, and the number by which the nodes recognise each other.
type Known = (TpccDataset, i64);

/// Finds the dataset on every node and checks that it is the one that `options` describe, or makes it where it is missing. One transaction
/// each, open together and committed one after the other: a kill between two commits leaves nodes without it, where the next load makes it.
pub(crate) fn prepare(
    team: &mut Team,
    cluster: &Cluster,
    options: &TpccOptions,
    stop: &Stop,
) -> Result<Prepared, LoadError> {
    let members = &mut team.members;
    let named_nodes: Vec<NamedNode> =
        members.iter().map(|member| NamedNode { name: member.name.clone(), node: member.node }).collect();
    let mut transactions = begin(members, stop)?;
    let at = |node: usize| {
        let named_nodes = &named_nodes;
        move |error: LoadError| error.at(&named_nodes[node].name)
    };
    let mut known: Vec<Option<Known>> = Vec::new();
    for (node, transaction) in transactions.iter_mut().enumerate() {
        schema::open(transaction).map_err(at(node))?;
        let mut found = super::find(transaction).map_err(at(node))?;
        if let Some(old) = found.take_if(|_| options.restart) {
            remove(transaction, &old.dataset).map_err(at(node))?;
        }
        let found = found.map(|found| {
            let token = ledger::layout(transaction, found.dataset.id)?.token;
            Ok((found, token))
        });
        known.push(found.transpose().map_err(at(node))?);
    }
    let first = known.iter().position(Option::is_some);
    let (model, token) = match first.and_then(|node| known[node].clone()) {
        Some(known) => known,
        None => {
            let partitions = partitions_of(options, cluster, named_nodes.len());
            let schema_name =
                connections::users_schema(&cluster.nodes[named_nodes[0].node].spec).map_err(at(0))?;
            (schema::plan(options, schema_name, partitions), random_token())
        }
    };
    if let Some(one) = first {
        check_identity(&model, options)?;
        let same = |(other, their): &Known| {
            let dataset =
                Dataset { id: model.dataset.id, loaded: model.dataset.loaded, ..other.dataset.clone() };
            *their == token && TpccDataset { dataset, ..other.clone() } == model
        };
        if let Some(other) = known.iter().position(|known| known.as_ref().is_some_and(|known| !same(known))) {
            let (one, other) = (named_nodes[one].name.clone(), named_nodes[other].name.clone());
            return Err(LoadError::MixedCluster { one, other });
        }
    }
    for (node, transaction) in transactions.iter_mut().enumerate() {
        if let Some((found, _)) = &known[node] {
            schema::check_in_place(transaction, &found.dataset).map_err(at(node))?;
        }
    }
    let spread = spread_of(&mut transactions, &known, &model)?;
    let mut notes = Vec::new();
    for (node, transaction) in transactions.iter_mut().enumerate() {
        if known[node].is_none() {
            let servers = servers(transaction, cluster, &named_nodes, node).map_err(at(node))?;
            let place =
                Place { model: &model, token, spread: &spread, node, servers, named_nodes: &named_nodes };
            let (made, revoked) = place.create(transaction, options).map_err(at(node))?;
            notes.extend(revoked);
            known[node] = Some((made, token));
        }
    }
    for (node, transaction) in transactions.into_iter().enumerate() {
        let failed = |source| LoadError::sql("preparing the tables", source);
        transaction.commit().map_err(failed).map_err(at(node))?;
    }
    let found: Vec<TpccDataset> = known.into_iter().flatten().map(|(found, _)| found).collect();
    let spread = settled(members, &found)?;
    Ok(Prepared { found, spread, created: first.is_none(), notes })
}

/// What a cluster of this kind, of so many nodes, cannot have.
pub(super) fn refuse(options: &TpccOptions, nodes: usize) -> Result<(), LoadError> {
    let warehouses = options.warehouses;
    let refused =
        |flag: &'static str, problem: String, hint: String| Err(LoadError::Option { flag, problem, hint });
    if options.foreign_keys {
        return refused(
            "--foreign-keys",
            "in PostgreSQL a foreign key cannot refer to rows of other nodes".to_owned(),
            "omit it; prove tpcc checks whether every reference exists".to_owned(),
        );
    }
    if (warehouses as usize) < nodes {
        return refused(
            "-s/--scale",
            format!("{warehouses} warehouses cannot be spread over {nodes} nodes"),
            format!("give at least {nodes}; every node gets the same number"),
        );
    }
    let most = partitions_max(warehouses);
    if let Some(asked) = options.partitions.filter(|asked| (*asked as usize) < nodes || *asked > most) {
        return refused(
            "--partitions",
            format!("{warehouses} warehouses on {nodes} nodes cannot be in {asked} partitions"),
            format!("give {nodes} to {most}; a multiple of {nodes} spreads them evenly"),
        );
    }
    Ok(())
}

/// The most leaves that so many warehouses can be in.
fn partitions_max(warehouses: u32) -> u32 {
    warehouses.min(PARTITIONS_MAX)
}

/// How many leaves each table gets: what was asked for, else what the cluster was made for, as far as there are warehouses.
fn partitions_of(options: &TpccOptions, cluster: &Cluster, nodes: usize) -> u32 {
    let made_for = cluster.partitions.filter(|partitions| *partitions as usize >= nodes);
    let usual = made_for.unwrap_or(nodes as u32 * PARTITIONS_PER_NODE);
    options.partitions.unwrap_or(usual.min(partitions_max(options.warehouses)))
}

/// Which node each leaf is on: where one of the nodes that have the dataset has it as a table, else dealt out in turn.
fn spread_of(
    transactions: &mut [Transaction<'_>],
    known: &[Option<Known>],
    model: &TpccDataset,
) -> Result<Spread, LoadError> {
    let mut spread = Spread::dealt(model.warehouses, model.dataset.partitions.max(1), transactions.len());
    for (node, transaction) in transactions.iter_mut().enumerate() {
        let Some((found, _)) = &known[node] else { continue };
        for partition in spread::partitions(transaction, &found.dataset, &spread, Table::Warehouse)? {
            if partition.local {
                spread.set_owner(partition.leaf, node);
            }
        }
    }
    Ok(spread)
}

/// Where the warehouses are by the catalogs of all nodes.
pub(crate) fn settled(members: &mut [Member], found: &[TpccDataset]) -> Result<Spread, LoadError> {
    let Some(model) = found.first() else { return Err(LoadError::Restarted) };
    let (warehouses, leaves) = (model.warehouses, model.dataset.partitions.max(1));
    let bounds = Spread::dealt(warehouses, leaves, members.len());
    let mut all = Vec::new();
    for (member, found) in std::iter::zip(members.iter_mut(), found) {
        let tables = tables_of(&mut *member.control, &found.dataset, &bounds);
        all.push(tables.map_err(|error| error.at(&member.name))?);
    }
    let names: Vec<&str> = members.iter().map(|member| member.name.as_str()).collect();
    spread::settled(warehouses, leaves, &names, &all)
}

/// The partitions of all tables on one node.
pub(crate) fn tables_of(
    client: &mut impl GenericClient,
    dataset: &Dataset,
    bounds: &Spread,
) -> Result<Vec<(Table, Vec<Partition>)>, LoadError> {
    spread_tables().map(|table| Ok((table, spread::partitions(client, dataset, bounds, table)?))).collect()
}

/// A node on which the tables are made.
struct Place<'a> {
    model: &'a TpccDataset,
    token: i64,
    spread: &'a Spread,
    node: usize,
    /// What leads to the other nodes.
    servers: BTreeMap<usize, String>,
    named_nodes: &'a [NamedNode],
}

impl Place<'_> {
    fn create(
        &self,
        client: &mut impl GenericClient,
        options: &TpccOptions,
    ) -> Result<(TpccDataset, Vec<String>), LoadError> {
        let schema_name = &self.model.dataset.schema_name;
        trust::check_schema(client, schema_name)?;
        let names = super::table_names(self.spread.leaves() as u32);
        clear_names(client, schema_name, &names, &options.force)?;
        let found = schema::insert(client, self.model)?;
        let layout = Layout {
            token: self.token,
            nodes: self.named_nodes.iter().map(|named_node| named_node.name.clone()).collect(),
            via: Via::Owner,
            tablespaces: Some(options.tablespace.iter().cloned().collect()),
            unlogged: false,
            emptied: false,
        };
        ledger::set_layout(client, found.dataset.id, &layout)?;
        for table in Table::ALL {
            let sql = match partition_column(table) {
                None => schema::create_sql(&found, table, options.tablespace.as_deref()),
                Some(column) => self.create_sql(table, column, options.tablespace.as_deref()),
            };
            client
                .batch_execute(&sql)
                .map_err(|source| LoadError::sql(format!("creating {}", table.name()), source))?;
        }
        for name in &names {
            ledger::own_table(client, &found.dataset, name)?;
        }
        let revoked = trust::keep_code_out(client, schema_name, &names)?;
        Ok((found, revoked))
    }

    /// A partitioned table with its leaves. It has no key: PostgreSQL has no unique index over foreign partitions; each leaf gets its own.
    fn create_sql(&self, table: Table, column: &str, tablespace: Option<&str>) -> String {
        let schema_name = &self.model.dataset.schema_name;
        let parent = qualified(schema_name, table.name());
        let fillfactor = fillfactor_of(self.model, table);
        let tablespace = tablespace.map(|name| format!(" tablespace {}", quoted(name))).unwrap_or_default();
        let mut sql =
            format!("create table {parent} ({}) partition by range ({column});", columns_sql(table));
        for leaf in 0..self.spread.leaves() {
            let (name, bound) = (leaf_name(table, leaf), self.spread.bound(leaf));
            let relation = qualified(schema_name, &name);
            let owner = self.spread.owner(leaf);
            if owner == self.node {
                sql.push_str(&format!(
                    "create table {relation} partition of {parent} {bound}{fillfactor}{tablespace};"
                ));
            } else if let Some(server) = self.servers.get(&owner) {
                sql.push_str(&format!(
                    "create foreign table {relation} partition of {parent} {bound} server {} options (schema_name {}, table_name {});",
                    quoted(server),
                    literal(schema_name),
                    literal(&name)
                ));
            }
        }
        sql
    }
}

//! One row on each node that can hold some: commits over chosen nodes write these.

use connect::control;
use engines::placement::Placement;
use engines::profile::Layout;
use engines::{Cluster, ClusterNode};

use super::SHAPE;
use crate::fault::Site;
use crate::live::LiveError;
use crate::live::tables::{SCHEMA, Tables};

/// Keys that are tried until each node has one: with 32 shards on the nodes, as engines make by themselves, far fewer are enough.
const KEYS_TRIED: usize = 256;

/// A row, and the node that has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Row {
    /// Its key.
    pub(super) shard: usize,
    /// In the order of the site's nodes.
    pub(super) node: usize,
}

/// The rows, that of the entry node first if it has one.
pub(super) fn one_each(site: &Site, tables: &Tables) -> Result<Vec<Row>, LiveError> {
    let entry = site.primary();
    let mut rows = match site.engine.layout {
        Layout::ForeignPartitions => {
            let find = |name: &String| site.nodes.iter().position(|node| node.name == *name);
            let row = |(at, name)| Some(Row { shard: at + 1, node: find(name)? });
            tables.shards.iter().enumerate().filter_map(row).collect()
        }
        Layout::Spread(_) => by_placement(site, entry)?,
        Layout::OneServer | Layout::Copies(_) => vec![Row { shard: 1, node: entry }],
    };
    rows.sort_by_key(|row| (row.node != entry, row.node));
    Ok(rows)
}

/// Where the engine itself places rows.
fn by_placement(site: &Site, entry: usize) -> Result<Vec<Row>, LiveError> {
    let unfit = |error: &dyn std::fmt::Display| {
        LiveError::Unfit(format!("the nodes of the rows are not known: {error}"))
    };
    let nodes = site.nodes.iter().map(|node| ClusterNode {
        also: node.ways.iter().flat_map(|(_, way)| way.hosts.clone()).collect(),
        ..ClusterNode::new(&node.name, node.role, node.spec.clone())
    });
    let cluster =
        Cluster { engine: site.engine, nodes: nodes.collect(), partitions: None, left_out: Vec::new() };
    let mut control = control::connect(&site.nodes[entry].spec).map_err(|error| unfit(&error))?;
    let placement =
        Placement::read(&cluster, &mut *control, entry, SCHEMA, SHAPE.name).map_err(|error| unfit(&error))?;
    let keys: Vec<Vec<Option<String>>> =
        (1..=KEYS_TRIED).map(|shard| vec![Some(shard.to_string())]).collect();
    let leaves = placement.by_server(&mut *control, &keys).map_err(|error| unfit(&error))?;
    let mut rows: Vec<Row> = Vec::new();
    for (at, leaf) in leaves.into_iter().enumerate() {
        let Some(leaf) = leaf else { continue };
        let node = placement.leaves()[leaf].node;
        if rows.iter().all(|row| row.node != node) {
            rows.push(Row { shard: at + 1, node });
        }
    }
    Ok(rows)
}

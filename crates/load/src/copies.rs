//! Nodes that receive every table and every row by the engine's own replication, while the load works through one of them.
//!
//! Multimaster replicates DDL, but not comments. pgfathom recognises the ledger and the tables by their comments, so it sets these on every other
//! node over a separate connection.

use engines::cluster::Cluster;
use engines::profile::{Copies, Ddl, Layout};

use crate::connections;
use crate::dataset::{Table, table_names};
use crate::error::LoadError;
use crate::ledger;
use crate::schema::Prepared;

/// Marks the ledger and the tables of a dataset on the nodes that the load does not connect to. A node that cannot be reached becomes a note.
pub(crate) fn mark(cluster: &Cluster, prepared: &mut Prepared, tables: &[Table]) {
    let is_replicated = matches!(cluster.engine.layout, Layout::Copies(Copies { ddl: Ddl::Replicated, .. }));
    let Some(dataset) = prepared.datasets.first().filter(|_| is_replicated) else { return };
    let names = table_names(tables, dataset.partitions);
    let others = cluster.data_nodes().filter(|node| Some(*node) != cluster.table_node());
    let mark = |node: usize| -> Result<(), LoadError> {
        let mut control = connections::control(&cluster.nodes[node].spec)?;
        ledger::mark_copies(&mut *control, dataset, &names)
    };
    let failed = |node: usize| {
        let error = mark(node).err()?;
        let name = &cluster.nodes[node].name;
        Some(format!(
            "{name} could not be marked as holding the dataset ({error}): repeat the load when it is back, or verify refuses it"
        ))
    };
    let notes: Vec<String> = others.filter_map(failed).collect();
    prepared.notes.extend(notes);
}

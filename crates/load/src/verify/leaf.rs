//! Leaf tables as catalogs have them.

use std::collections::HashMap;

use super::problem::Problem;
use crate::dataset::Placement;
use crate::difference::TableName;

/// A leaf table as a catalog has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Found {
    pub(super) name: TableName,
    pub(super) site: usize,
    pub(super) relation: Option<String>,
    pub(super) blocks: u64,
}

/// What to report about a partition that is being detached: its rows are where they were, and no statement on its table sees them.
pub(super) fn is_leaving(node: Option<String>, table: String) -> Problem {
    let problem = "is being detached (detach partition ... concurrently was interrupted): queries of the partitioned table do not return its rows; \
                   alter table ... detach partition ... finalize ends that"
        .to_owned();
    Problem::Definition { node, table, problem }
}

/// What a partition is that holds no rows of its own on this server, in words; `None`: it is a table.
pub(super) fn other_kind(kind: &str) -> Option<&'static str> {
    match kind {
        "r" => None,
        "p" => Some("is itself partitioned"),
        "f" => Some(
            "is a foreign table: its rows are on another server; name all nodes of the cluster with --cluster",
        ),
        _ => Some("is no longer a table"),
    }
}

/// The partitions of a table by their bounds as the catalog prints them.
pub(super) fn bounds(placement: Placement, partitions: u32) -> HashMap<String, usize> {
    (0..partitions).map(|partition| (placement.bound(partition, partitions), partition as usize)).collect()
}

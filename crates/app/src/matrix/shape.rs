//! Which cells a cluster's matrix has.

use super::Operation;
use crate::failure::Failure;
use connect::cluster_file::Role;
use connect::control::Control;
use engines::Cluster;
use run::routing::{Homes, KeyOwners};
use workloads::driving::{Keyed, Owned};

/// The cells, and how sessions are held to their columns.
#[derive(Debug)]
pub(super) struct Shape {
    /// Connect node and data node; without one where every node holds every row.
    pub(super) pairs: Vec<(usize, Option<usize>)>,
    /// What is done in each.
    pub(super) operations: Vec<Operation>,
    /// The sessions' data nodes, a group of sessions per pair.
    pub(super) homes: Option<Homes>,
    /// Who owns which key, where that differs.
    pub(super) owners: Option<KeyOwners>,
    /// What a reader should know of the choice.
    pub(super) notes: Vec<String>,
}

impl Shape {
    /// The matrix of `cluster`, whose node `entry` `control` is connected to.
    pub(super) fn of(
        cluster: &Cluster,
        control: &mut Control,
        entry: usize,
        rows: &dyn Keyed,
        sessions_each: u64,
        only: Option<Operation>,
    ) -> Result<Shape, Failure> {
        let both = vec![Operation::Select, Operation::Update];
        let operations = only.map_or(both, |only| vec![only]);
        let whole = Shape { pairs: vec![], operations, homes: None, owners: None, notes: vec![] };
        if cluster.nodes.len() == 1 {
            let note =
                "one server makes a matrix of one cell; name the nodes of a cluster with --cluster FILE";
            return Ok(Shape { pairs: vec![(0, Some(0))], notes: vec![note.to_string()], ..whole });
        }
        match rows.placed(cluster, control, entry, "matrix")? {
            Owned::Everywhere => whole.of_copies(cluster),
            Owned::Split(owners) => whole.of_owners(cluster, owners, rows, sessions_each),
        }
    }

    /// Every node holds every row: one column, and only what can be done on each.
    fn of_copies(self, cluster: &Cluster) -> Result<Shape, Failure> {
        let has_standby = cluster.nodes.iter().any(|node| node.role == Role::Standby);
        let why =
            if has_standby { "a standby takes no writes" } else { "several nodes would write the same rows" };
        if self.operations == [Operation::Update] {
            return Err(Failure::usage(format!(
                "--only update: every node of this cluster holds every row, and {why}"
            ))
            .hint("omit --only: the matrix then compares reads of the nodes"));
        }
        let note = format!("every node holds every row, so there is one column, and it is read only: {why}");
        Ok(Shape {
            pairs: (0..cluster.nodes.len()).map(|node| (node, None)).collect(),
            operations: vec![Operation::Select],
            notes: vec![note],
            ..self
        })
    }

    /// Rows have owners: a square, or nearly.
    fn of_owners(
        mut self,
        cluster: &Cluster,
        owners: KeyOwners,
        rows: &dyn Keyed,
        sessions_each: u64,
    ) -> Result<Shape, Failure> {
        let alone = Homes::new(owners.clone(), vec![0], 1);
        let has_rows = |node: usize| alone.as_ref().is_some_and(|homes| rows.has_rows(homes, node as u16));
        let columns: Vec<usize> = (0..cluster.nodes.len()).filter(|node| has_rows(*node)).collect();
        let takes_sessions = |node: &usize| {
            let node = &cluster.nodes[*node];
            node.role != Role::Standby && !node.is_closed
        };
        for node in cluster.nodes.iter().filter(|node| node.is_closed) {
            let why = "its catalog does not have the tables of the cluster";
            self.notes.push(format!("no session can enter at {}: {why}; it has no row", node.name));
        }
        let entries = (0..cluster.nodes.len()).filter(takes_sessions);
        for node in cluster.data_nodes().filter(|node| !columns.contains(node)) {
            self.notes
                .push(format!("{} owns no row of this dataset: it has no column", cluster.nodes[node].name));
        }
        self.pairs =
            entries.flat_map(|entry| columns.iter().map(move |column| (entry, Some(*column)))).collect();
        let homes = self.pairs.iter().filter_map(|(_, data)| *data).map(|data| data as u16).collect();
        self.homes = Some(rows.hold(cluster, owners.clone(), homes, sessions_each, "matrix")?);
        self.owners = Some(owners);
        Ok(self)
    }
}

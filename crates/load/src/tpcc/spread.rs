//! Where warehouses are on a cluster: leaf tables of neighbouring warehouses, dealt out to the nodes in turn.
//!
//! All tables but ITEM are partitioned by range of their warehouse, with the same bounds, and all leaves of one number are on one node: what a
//! transaction does in its home warehouse is local there. HISTORY goes by H_W_ID, the warehouse where the payment was made.
//!
//! **Range, not hash**: a hash spreads few warehouses unevenly (of three warehouses on three nodes all may fall on one), ranges give each node
//! as many as the others to within one leaf. A list of numbers would do that, too, but PostgreSQL compares every row that comes in with every
//! number of the list. **Several leaves per node**, dealt out like cards, because a run may drive only the first N warehouses
//! (`--warehouses N`): with one stretch per node these would all be on the first ones.
//!
//! ITEM belongs to no warehouse and never changes: every node has a whole copy of its own.

use std::collections::BTreeMap;
use std::ops::Range;

use data::tpcc::Table;
use postgres::GenericClient;

use crate::error::LoadError;
use crate::ledger::{Dataset, qualified};

/// Tables that are partitioned: all but ITEM.
pub(crate) fn spread_tables() -> impl Iterator<Item = Table> {
    Table::ALL.into_iter().filter(|table| *table != Table::Item)
}

/// The column that a table is partitioned by.
pub(crate) const fn partition_column(table: Table) -> Option<&'static str> {
    match table {
        Table::History => Some("h_w_id"),
        _ => super::schema::warehouse_column(table),
    }
}

/// The name of a leaf.
pub(crate) fn leaf_name(table: Table, leaf: usize) -> String {
    format!("{}_p{leaf}", table.name())
}

/// Warehouses in leaves, leaves on nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Spread {
    warehouses: u32,
    /// The node of each leaf.
    owners: Vec<usize>,
}

impl Spread {
    /// Leaves dealt out to so many nodes in turn.
    pub(crate) fn dealt(warehouses: u32, leaves: u32, nodes: usize) -> Spread {
        Spread { warehouses, owners: (0..leaves as usize).map(|leaf| leaf % nodes).collect() }
    }

    /// How many leaves each table has.
    pub(crate) fn leaves(&self) -> usize {
        self.owners.len()
    }

    /// The node of a leaf.
    pub(crate) fn owner(&self, leaf: usize) -> usize {
        self.owners[leaf]
    }

    /// A leaf is on this node instead.
    pub(crate) fn set_owner(&mut self, leaf: usize, node: usize) {
        self.owners[leaf] = node;
    }

    /// The leaves of a node.
    pub(crate) fn leaves_of(&self, node: usize) -> impl Iterator<Item = usize> {
        (0..self.owners.len()).filter(move |leaf| self.owners[*leaf] == node)
    }

    /// The warehouses of a leaf: lengths differ by one at most.
    pub(crate) fn range(&self, leaf: usize) -> Range<u32> {
        let first =
            |leaf: usize| 1 + (u64::from(self.warehouses) * leaf as u64 / self.owners.len() as u64) as u32;
        first(leaf)..first(leaf + 1)
    }

    /// The leaf of a warehouse.
    pub(crate) fn leaf_of(&self, w_id: u32) -> usize {
        ((self.owners.len() as u64 * u64::from(w_id) - 1) / u64::from(self.warehouses)) as usize
    }

    /// The node of a warehouse.
    pub(crate) fn node_of(&self, w_id: u32) -> usize {
        self.owners[self.leaf_of(w_id)]
    }

    /// The bound of a leaf, as it is typed and as the catalog writes it.
    pub(crate) fn bound(&self, leaf: usize) -> String {
        let Range { start, end } = self.range(leaf);
        format!("FOR VALUES FROM ({start}) TO ({end})")
    }
}

/// A partition of one of the tables, as one node's catalog has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Partition {
    pub(crate) leaf: usize,
    /// It is a table of this node, not a foreign one.
    pub(crate) local: bool,
    /// Schema and name, quoted.
    pub(crate) relation: String,
    /// It is being detached: nobody who asks the parent finds its rows.
    pub(crate) is_leaving: bool,
}

/// The partitions of a table on the node that `client` is connected to. Fails when a bound is not one of the dataset's.
pub(crate) fn partitions(
    client: &mut impl GenericClient,
    dataset: &Dataset,
    spread: &Spread,
    table: Table,
) -> Result<Vec<Partition>, LoadError> {
    let rows = client.query(
        "select c.relname::text, n.nspname::text, c.relkind::text, coalesce(pg_get_expr(c.relpartbound, c.oid), ''),
                coalesce(to_jsonb(i) ->> 'inhdetachpending', '') = 'true'
         from pg_inherits i join pg_class c on c.oid = i.inhrelid join pg_namespace n on n.oid = c.relnamespace
         where i.inhparent = to_regclass($1)",
        &[&qualified(&dataset.schema_name, table.name())],
    );
    let rows = rows.map_err(|source| LoadError::sql("reading the partitions", source))?;
    let bounds: BTreeMap<String, usize> =
        (0..spread.leaves()).map(|leaf| (spread.bound(leaf), leaf)).collect();
    rows.iter()
        .map(|row| {
            let (name, schema, kind, bound): (&str, &str, &str, &str) =
                (row.get(0), row.get(1), row.get(2), row.get(3));
            let leaf = *bounds.get(bound).ok_or_else(|| LoadError::ChangedTable {
                table: name.to_owned(),
                problem: format!("it is a partition {bound}"),
            })?;
            let (local, is_leaving) = (kind == "r", row.get(4));
            Ok(Partition { leaf, local, relation: qualified(schema, name), is_leaving })
        })
        .collect()
}

/// Where the leaves are by the catalogs of all nodes: `found` are the partitions of each table on each node. All leaves of a number must be
/// local on one and the same node.
pub(crate) fn settled(
    warehouses: u32,
    leaves: u32,
    nodes: &[&str],
    found: &[Vec<(Table, Vec<Partition>)>],
) -> Result<Spread, LoadError> {
    let mut owners = Vec::new();
    for leaf in 0..leaves as usize {
        let mut owner: Option<usize> = None;
        for table in spread_tables() {
            let disagree =
                |problem: String| Err(LoadError::Placement { leaf: leaf_name(table, leaf), problem });
            let mut at = Vec::new();
            for (node, tables) in found.iter().enumerate() {
                let own = tables.iter().filter(|(of, _)| *of == table);
                match own
                    .flat_map(|(_, own)| own)
                    .find(|partition| partition.leaf == leaf && !partition.is_leaving)
                {
                    None => return disagree(format!("is not a partition on {}", nodes[node])),
                    Some(partition) if partition.local => at.push(node),
                    Some(_) => {}
                }
            }
            match at.as_slice() {
                [] => return disagree("is not a table on any node".to_owned()),
                [node] if owner.is_none_or(|owner| owner == *node) => owner = Some(*node),
                [node] => {
                    let others = nodes[owner.unwrap_or_default()];
                    return disagree(format!(
                        "is a table on {}, but the rows of its warehouses in the other tables are on {others}",
                        nodes[*node]
                    ));
                }
                several => {
                    let names: Vec<&str> = several.iter().map(|node| nodes[*node]).collect();
                    return disagree(format!("is a table on {}", names.join(" and on ")));
                }
            }
        }
        owners.extend(owner);
    }
    Ok(Spread { warehouses, owners })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_warehouse_is_in_one_leaf_and_leaves_differ_by_one() {
        for (warehouses, leaves) in
            [(1, 1), (2, 2), (3, 2), (7, 3), (100, 12), (15_000, 70), (1_000_000, 997)]
        {
            let spread = Spread::dealt(warehouses, leaves, 3);
            let mut next = 1;
            for leaf in 0..leaves as usize {
                let range = spread.range(leaf);
                assert_eq!(range.start, next);
                let least = warehouses / leaves;
                assert!(
                    (least..=least + 1).contains(&(range.end - range.start)),
                    "{warehouses} {leaves} {leaf}"
                );
                for w_id in [range.start, range.end - 1] {
                    assert_eq!(spread.leaf_of(w_id), leaf, "warehouse {w_id} of {warehouses} in {leaves}");
                }
                next = range.end;
            }
            assert_eq!(next, warehouses + 1);
        }
    }

    #[test]
    fn nodes_get_leaves_in_turn() {
        let spread = Spread::dealt(10, 5, 2);
        assert_eq!(spread.leaves_of(0).collect::<Vec<_>>(), [0, 2, 4]);
        assert_eq!((spread.node_of(1), spread.node_of(3), spread.node_of(10)), (0, 1, 0));
        assert_eq!(spread.bound(1), "FOR VALUES FROM (3) TO (5)");
    }

    #[test]
    fn leaves_of_one_number_are_on_one_node_or_there_is_no_plan() {
        // Two nodes, two leaves: `at` says which node has a table's leaf as a table.
        let found = |at: &dyn Fn(Table, usize, usize) -> bool| -> Vec<Vec<(Table, Vec<Partition>)>> {
            let partition = |table, node, leaf| Partition {
                leaf,
                local: at(table, leaf, node),
                relation: leaf_name(table, leaf),
                is_leaving: false,
            };
            (0..2)
                .map(|node| {
                    spread_tables()
                        .map(|table| (table, vec![partition(table, node, 0), partition(table, node, 1)]))
                        .collect()
                })
                .collect()
        };
        let settled = |found: &[Vec<(Table, Vec<Partition>)>]| settled(2, 2, &["n1", "n2"], found);
        let spread = settled(&found(&|_, leaf, node| leaf != node)).unwrap();
        assert_eq!((spread.owner(0), spread.owner(1)), (1, 0));
        for (at, words) in [
            (found(&|_, _, _| true), "warehouse_p0 is a table on n1 and on n2"),
            (found(&|_, _, _| false), "warehouse_p0 is not a table on any node"),
            (
                found(&|table, leaf, node| (leaf == node) != (table == Table::Stock)),
                "stock_p0 is a table on n2, but the rows of its warehouses in the other tables are on n1",
            ),
        ] {
            let error = settled(&at).unwrap_err();
            assert_eq!(error.to_string(), words);
            assert!(error.hint().is_some());
        }
        let mut short = found(&|_, leaf, node| leaf == node);
        short[1][3].1.pop();
        assert!(settled(&short).unwrap_err().to_string().ends_with("is not a partition on n2"));
    }
}

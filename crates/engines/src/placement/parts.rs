//! Every copy of every part of a table, with the node that has it: for those who read the parts one by one, as a verification does.
//!
//! [`Placement`](super::Placement) has one leaf per part, because a key is read at one place. What is wrong with another copy, or with a row in a part that its
//! key is not routed to, no query of the whole table shows.

use postgres::GenericClient;

use super::catalogued::{Reading, places};
use super::{Bound, PlacementError};
use crate::catalog::identifier;
use crate::cluster::Cluster;
use crate::profile::{Discovery, Kind};

/// A part of a table: one shard, or the whole of a table that is copied to all nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    /// Schema on its nodes, unquoted.
    pub schema: String,
    /// Name on its nodes, unquoted.
    pub name: String,
    /// Which keys it holds.
    pub bound: Bound,
    /// The nodes that have a copy, in [`Cluster::nodes`], or what the catalog calls a node that is not among them.
    pub nodes: Vec<Result<usize, String>>,
}

/// The parts of a table.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Parts {
    /// SQL for the number of a row's key that bounds are about; `None`: rows may be in any part, or nothing but the engine computes it.
    pub hash: Option<String>,
    /// In the order of the catalog.
    pub parts: Vec<Part>,
}

impl Parts {
    /// Whether the profile of this cluster's engine can name the parts of its tables, and hash their keys as the engine does.
    pub fn are_read(cluster: &Cluster) -> bool {
        matches!(&cluster.engine.discovery, Discovery::Catalog(catalog) if catalog.part_hash.is_some())
    }

    /// Reads them from the catalog of the node `entry`, to which `control` is connected. `None`: tables of this engine cannot be read part by part, or the
    /// engine has not spread this table.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn read(
        cluster: &Cluster,
        control: &mut impl GenericClient,
        entry: usize,
        schema: &str,
        table: &str,
    ) -> Result<Option<Parts>, PlacementError> {
        let Discovery::Catalog(catalog) = &cluster.engine.discovery else { return Ok(None) };
        let Some(hash) = catalog.part_hash else { return Ok(None) };
        let reading = Reading { engine: cluster.engine, schema, table };
        let keys = reading.query(control, "read the distribution key", catalog.table)?;
        let Some(first) = keys.first() else { return Ok(None) };
        let kind = first.get(0).and_then(Kind::parse);
        let hash = match (kind, first.get(1)) {
            (Some(Kind::Hash32), Some(column)) => Some(hash.replace("{column}", &identifier(column))),
            _ => None,
        };
        let places = places(&reading, catalog, cluster, control, entry)?;
        let mut parts: Vec<(String, Part)> = Vec::new();
        for row in reading.query(control, "list the partitions", catalog.leaves)? {
            // A copy in another state is not read by queries either.
            if row.get(5).is_some() {
                continue;
            }
            let (id, key) = (row.get(6).unwrap_or_default(), row.get(2).unwrap_or_default());
            let place = places.iter().find(|place| place.key == key);
            let node = place.map_or_else(|| Err(key.to_owned()), |place| place.at.ok_or(place.name.clone()));
            match parts.last_mut().filter(|(last, _)| last == id) {
                Some((_, part)) => part.nodes.push(node),
                None => {
                    let other = || Bound::Other("another distribution".to_owned());
                    let bound = kind.map_or_else(|| Ok(other()), |kind| reading.bound(kind, &row))?;
                    let schema = row.get(0).unwrap_or(schema).to_owned();
                    let name = row.get(1).unwrap_or(table).to_owned();
                    parts.push((id.to_owned(), Part { schema, name, bound, nodes: vec![node] }));
                }
            }
        }
        Ok(Some(Parts { hash, parts: parts.into_iter().map(|(_, part)| part).collect() }))
    }

    /// The condition in SQL for rows of a part that do not belong there; `None`: any row does, as far as is known.
    pub fn misplaced(&self, part: &Part) -> Option<String> {
        match (&self.hash, &part.bound) {
            (Some(hash), Bound::Hash32 { least, greatest }) => {
                Some(format!("({hash} between {least} and {greatest}) is not true"))
            }
            _ => None,
        }
    }

    /// The part that a row with this number belongs to.
    pub fn home(&self, number: i64) -> Option<&Part> {
        let holds = |part: &&Part| match part.bound {
            Bound::Hash32 { least, greatest } => (i64::from(least)..=i64::from(greatest)).contains(&number),
            _ => false,
        };
        self.parts.iter().find(holds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_misplaced_where_its_hash_is_outside_of_the_bounds() {
        let part = |name: &str, least, greatest| Part {
            schema: "public".to_owned(),
            name: name.to_owned(),
            bound: Bound::Hash32 { least, greatest },
            nodes: vec![Ok(1)],
        };
        let parts = Parts {
            hash: Some("worker_hash(k)".to_owned()),
            parts: vec![part("t_1", i32::MIN, -1), part("t_2", 0, i32::MAX)],
        };
        assert_eq!(
            parts.misplaced(&parts.parts[1]).as_deref(),
            Some("(worker_hash(k) between 0 and 2147483647) is not true")
        );
        let home = |number| parts.home(number).map(|part| part.name.as_str());
        assert_eq!((home(-1), home(0), home(1 << 40)), (Some("t_1"), Some("t_2"), None));
        let whole = Part { bound: Bound::All, ..part("t", 0, 0) };
        assert_eq!(parts.misplaced(&whole), None, "a copy of the whole table holds every key");
        assert_eq!(Parts { hash: None, ..parts.clone() }.misplaced(&parts.parts[0]), None);
    }
}

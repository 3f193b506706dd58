//! Which nodes hold which parts of all tables at a moment, to see afterwards what an engine moved meanwhile.

use crate::catalog;
use crate::engine::Engine;
use crate::profile::Discovery;
use postgres::GenericClient;
use std::collections::{BTreeMap, BTreeSet};

/// The nodes of each part, by their names.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Places(BTreeMap<String, BTreeSet<String>>);

impl Places {
    /// The present ones. `None` on engines that move no parts, and where the catalog may not be read.
    pub fn read(control: &mut impl GenericClient, engine: Engine) -> Option<Places> {
        let Discovery::Catalog(catalog) = &engine.discovery else { return None };
        let rows = catalog::rows(control, catalog.places?).ok()?;
        let mut places = Places::default();
        for row in rows {
            if let (Some(part), Some(node)) = (row.get(0), row.get(1)) {
                places.0.entry(part.to_owned()).or_default().insert(node.to_owned());
            }
        }
        Some(places)
    }

    /// What is on other nodes later, as a sentence; `None` if nothing is. Parts that were created or dropped do not count, nor
    /// further copies, as a node that joins gets them of reference tables.
    pub fn moved(&self, later: &Places) -> Option<String> {
        let moved: Vec<_> = self
            .0
            .iter()
            .filter_map(|(part, from)| Some((part, from, later.0.get(part)?)))
            .filter(|(_, from, to)| !from.is_subset(to))
            .collect();
        let (part, from, to) = moved.first()?;
        let names = |nodes: &BTreeSet<String>| nodes.iter().cloned().collect::<Vec<String>>().join(" and ");
        let what = match moved.len() {
            1 => "a shard was moved to another node meanwhile".to_owned(),
            many => format!("{many} shards were moved to another node meanwhile, the first one"),
        };
        let way = format!("{part} from {} to {}", names(from), names(to));
        Some(format!(
            "{what}: {way}; moving takes CPU, network and WAL, and the nodes' shares of the work are others now"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(rows: &[(&str, &str)]) -> Places {
        let mut places = Places::default();
        for (part, node) in rows {
            places.0.entry((*part).to_owned()).or_default().insert((*node).to_owned());
        }
        places
    }

    #[test]
    fn moved_parts_are_counted_and_the_first_is_named() {
        let before = places(&[("1", "a"), ("2", "a"), ("3", "b"), ("4", "b"), ("9", "a"), ("9", "b")]);
        assert_eq!(before.moved(&before), None);
        let joined =
            places(&[("1", "a"), ("2", "a"), ("3", "b"), ("4", "b"), ("9", "a"), ("9", "b"), ("9", "c")]);
        assert_eq!(before.moved(&joined), None, "a copy of a reference table");
        let one = places(&[("1", "b"), ("2", "a"), ("3", "b"), ("5", "b"), ("9", "b"), ("9", "a")]);
        let words = before.moved(&one).expect("one moved");
        assert!(words.starts_with("a shard was moved to another node meanwhile: 1 from a to b"), "{words}");
        let two = places(&[("1", "b"), ("2", "b"), ("3", "b"), ("4", "b"), ("9", "a"), ("9", "b")]);
        let words = before.moved(&two).expect("two moved");
        assert!(
            words.starts_with("2 shards were moved to another node meanwhile, the first one: 1 from a to b"),
            "{words}"
        );
    }
}

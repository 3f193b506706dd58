//! Tables whose rows have no key: no row of one node can be paired with one of another, so the number of rows and the sum of their hashes are compared.

use std::collections::BTreeMap;
use std::time::Instant;

use super::super::error::VerifyError;
use super::super::site::Site;
use super::{Compared, Comparison, look_anew};
use crate::difference::{Difference, DifferenceKind, TableName, Wrong};

/// The number of rows, and the sum of their hashes.
type Sum = (i64, String);

impl Comparison<'_> {
    /// Compares these tables, leaf by leaf, until they are alike or stay different.
    pub(super) fn without_keys(
        &self,
        sites: &mut [Site],
        compared: &mut Compared,
    ) -> Result<(), VerifyError> {
        let catalog = &self.sides.catalogs[0];
        let has_no_key = |leaf: &usize| {
            let table = self.table(catalog.tables[catalog.leaves[*leaf].at].table);
            table.key.is_none() && catalog.leaves[*leaf].is_home
        };
        let leaves: Vec<usize> = (0..catalog.leaves.len()).filter(has_no_key).collect();
        if leaves.is_empty() {
            return Ok(());
        }
        look_anew(sites)?;
        let (limit, begin) = (self.task.options.mirror.lag_limit, Instant::now());
        let mut open = self.sums(sites, &leaves)?;
        while !open.is_empty() {
            let late = self.await_others(sites, begin, compared)?;
            let now = self.sums(sites, &open.keys().copied().collect::<Vec<_>>())?;
            let (same, changed): (Vec<_>, Vec<_>) =
                now.into_iter().partition(|(leaf, sums)| late || open.get(leaf) == Some(sums));
            for (leaf, sums) in same {
                self.differs(leaf, &sums, compared);
            }
            open = changed.into_iter().collect();
            if !open.is_empty() && begin.elapsed() > limit {
                compared.rows_unjudged += open.len() as u64;
                compared.notes.push(format!(
                    "{} tables without a key are written continuously and were never equal on all nodes",
                    open.len()
                ));
                break;
            }
        }
        Ok(())
    }

    /// What each node has of these leaves, where not all of them have the same.
    fn sums(&self, sites: &mut [Site], leaves: &[usize]) -> Result<BTreeMap<usize, Vec<Sum>>, VerifyError> {
        const DOING: &str = "summing up a table without a key";
        let mut found: BTreeMap<usize, Vec<Sum>> = BTreeMap::new();
        for (site, catalog) in sites.iter_mut().zip(self.sides.catalogs) {
            for &leaf in leaves {
                let Some(relation) = &catalog.leaves[leaf].relation else { continue };
                let hash = self.row_hash(catalog.tables[catalog.leaves[leaf].at].table);
                let query = format!("select count(*), coalesce(sum({hash}), 0)::text from only {relation}");
                let row = site.control.query_one(&query, &[]);
                let row = site.answer(DOING, row)?;
                found.entry(leaf).or_default().push((row.get(0), row.get(1)));
            }
        }
        // A table that is gone on a node has been reported as that.
        found.retain(|_, sums| sums.len() == sites.len() && sums.iter().any(|sum| *sum != sums[0]));
        Ok(found)
    }

    /// Reports the nodes that have not what the first one has.
    fn differs(&self, leaf: usize, sums: &[Sum], compared: &mut Compared) {
        let table = self.table(self.sides.catalogs[0].tables[self.sides.catalogs[0].leaves[leaf].at].table);
        let first = &self.sides.catalogs[0].names[leaf];
        for node in (1..sums.len()).filter(|node| sums[*node] != sums[0]) {
            let here = &self.sides.catalogs[node].names[leaf];
            compared.notes.push(format!(
                "{here} has {} rows, {first} has {}; they have no key, so the rows that differ cannot be named",
                sums[node].0, sums[0].0
            ));
            let kind = DifferenceKind::Diverged {
                fields: Vec::new(),
                other: first.node.clone().unwrap_or_default(),
                wrong: Wrong::Unknown,
            };
            compared.totals[kind.index()] += 1;
            *compared.of_table.entry(table.name).or_default() += 1;
            let subject = Some(TableName { table: table.name.to_owned(), node: here.node.clone() });
            let key = "true".to_owned();
            compared.differences.push(Difference { kind, key, row: None, table: here.clone(), subject });
        }
    }
}

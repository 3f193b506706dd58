//! Which of two copies of a row is what was loaded. Of the parts of a table one copy has been verified, through the engine, and it is not known which one that
//! was.

use std::collections::BTreeMap;

use wire::copy::values::Tuples;

use super::super::content::{RowHash, identify};
use super::super::error::VerifyError;
use super::super::site::Site;
use super::{Comparison, Hashes, Key, RowCopy};
use crate::dataset::Expected;
use crate::difference::Wrong;

/// Bytes of a row, at first.
const ROW_BYTES: usize = 1 << 10;

impl Comparison<'_> {
    /// The hashes of these rows on each node, where they can be compared with those of the dataset.
    pub(super) fn hashes_of_copies(
        &self,
        sites: &mut [Site],
        keys: &[&Key],
    ) -> Result<BTreeMap<Key, Hashes>, VerifyError> {
        let is_known = |key: &&&Key| self.may_know(key.0);
        let keys: Vec<&Key> = keys.iter().filter(is_known).copied().collect();
        if keys.is_empty() { Ok(BTreeMap::new()) } else { self.read_hashes(sites, keys.into_iter()) }
    }

    /// Whether we compute the hashes of rows as the servers do, and no run may have changed them.
    fn may_know(&self, table: usize) -> bool {
        let is_as_loaded = self.loaded.runs == 0 || self.table(table).mutable.is_empty();
        self.sides.are_parts
            && !self.by_digest
            && self.content().hashing().is_none()
            && is_as_loaded
            && self.loaded.judged.contains(&table)
    }

    /// Which of two copies of a row is wrong, by the hash of each.
    pub(super) fn wrong(
        &self,
        table: usize,
        row: Option<&RowCopy>,
        here: Option<i64>,
        other: Option<i64>,
    ) -> Wrong {
        let Some(loaded) = row.and_then(|row| self.loaded_hash(table, row)) else { return Wrong::Unknown };
        Wrong::of(here == Some(loaded), other == Some(loaded))
    }

    /// The hash of the row as it was loaded.
    fn loaded_hash(&self, table: usize, row: &RowCopy) -> Option<i64> {
        let content = self.content();
        let number = identify(content, table, &row.fields).0?;
        let mut tuple = Tuples::new(ROW_BYTES);
        let expected = content.expect(table, number, &[], &mut tuple);
        let hash = RowHash::new(self.table(table)).of(tuple.payload()).ok()?;
        (expected == Expected::Loaded).then_some(hash as i64)
    }
}

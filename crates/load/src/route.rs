//! Computes the leaf table of a row in the client instead of on the server.
//!
//! The server would hash every key as well when it checks the partition constraint of a leaf, so a wrong result here cannot put a
//! row into a wrong table: the server would refuse it, but late. [`self_test`] detects it before the first row is sent.

use std::ops::Range;

use engines::hash;
use postgres::GenericClient;

use crate::dataset::{Dataset, Leaves, NO_LEAF, Numbers, Placed, Placement, Span};
use crate::error::LoadError;

/// Keys on which client and server have to agree before a load starts.
pub const SELF_TEST_KEYS: u64 = 512;

/// The hash of a key that PostgreSQL routes by, and that checksums of the ledger sum up: `hashtextextended` under the
/// partition seed.
#[inline]
pub fn key_hash(key: &[u8]) -> u64 {
    hash::text_extended(key, hash::PARTITION_SEED)
}

/// Routing of a table by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    leaves: u32,
}

impl Route {
    /// Into this many hash partitions; 0 and 1 are a plain table.
    #[inline]
    pub fn new(partitions: u32) -> Route {
        Route { leaves: partitions.max(1) }
    }

    /// How many leaf tables there are.
    #[inline]
    pub fn leaves(&self) -> usize {
        self.leaves as usize
    }

    /// The leaf of a key with this [`key_hash`].
    #[inline]
    pub fn leaf(&self, key_hash: u64) -> u32 {
        if self.leaves == 1 {
            return 0;
        }
        hash::partition_remainder(hash::partition_key([Some(key_hash)]), self.leaves)
    }
}

/// The rows of a chunk in the order in which they are sent: leaf by leaf, ascending inside a leaf. Each key is hashed once, and the
/// memory is reused from chunk to chunk.
#[derive(Debug)]
pub struct Buckets {
    leaves: Leaves,
    /// Leaf of each row, in row order.
    leaf_of: Vec<u16>,
    /// Offsets of rows in the chunk, sorted by leaf.
    order: Vec<u32>,
    /// Where each leaf's rows end in `order`.
    ends: Vec<u32>,
    /// What each leaf gets.
    spans: Vec<Span>,
    first_row: u64,
}

/// The rows of a chunk that belong to some leaves, sorted by leaf, on their way to a stream that did not have to hash them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sorted {
    first_row: u64,
    /// In ascending order of leaf.
    shares: Vec<LeafShare>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct LeafShare {
    leaf: u16,
    span: Span,
    /// Offsets in the chunk; `None`: all of them, as they come.
    offsets: Option<Box<[u32]>>,
}

impl Sorted {
    /// Rows in it.
    pub fn len(&self) -> u64 {
        self.shares.iter().map(|share| u64::from(share.span.count)).sum()
    }

    /// Whether it holds no row.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn share(&self, leaf: u16) -> Option<&LeafShare> {
        self.shares.binary_search_by_key(&leaf, |share| share.leaf).ok().map(|place| &self.shares[place])
    }

    /// How many rows belong to this leaf; `None` when the leaf is not one of those requested.
    pub fn count(&self, leaf: u16) -> Option<u64> {
        self.share(leaf).map(|share| u64::from(share.span.count))
    }

    /// Sum of the key hashes of a leaf's rows, modulo 2^64.
    pub fn checksum(&self, leaf: u16) -> u64 {
        self.share(leaf).map_or(0, |share| share.span.sum)
    }

    /// Bytes of the values of a leaf's rows.
    pub fn bytes(&self, leaf: u16) -> u64 {
        self.share(leaf).map_or(0, |share| share.span.bytes)
    }

    /// The row numbers of this leaf, ascending.
    pub fn rows(&self, leaf: u16) -> Numbers<'_> {
        match self.share(leaf) {
            None => Numbers::range(0..0),
            Some(LeafShare { span, offsets: None, .. }) => {
                Numbers::range(self.first_row..self.first_row + u64::from(span.count))
            }
            Some(LeafShare { offsets: Some(offsets), .. }) => Numbers::picked(self.first_row, offsets),
        }
    }
}

impl Buckets {
    /// Empty buckets.
    pub fn new(leaves: Leaves) -> Buckets {
        let (leaf_of, order, ends, spans) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Buckets { leaves, leaf_of, order, ends, spans, first_row: 0 }
    }

    /// Sorts the rows of a chunk by leaf and returns its checksum: the sum of the key hashes modulo 2^64.
    ///
    /// # Panics
    /// When the chunk is longer than [`crate::plan::CHUNK_ROWS_MAX`].
    pub fn fill(&mut self, dataset: &dyn Dataset, rows: Range<u64>) -> u64 {
        let count = usize::try_from(rows.end - rows.start).expect("a chunk fits memory");
        assert!(count as u64 <= crate::plan::CHUNK_ROWS_MAX, "a chunk of {count} rows");
        self.first_row = rows.start;
        self.leaf_of.clear();
        self.spans.clear();
        self.spans.resize(self.leaves.count(), Span::default());
        let mut placed = Placed { leaves: self.leaves, leaf_of: &mut self.leaf_of, spans: &mut self.spans };
        dataset.place(rows, &mut placed);
        // Counting sort: `ends` holds starts, and is moved to the ends while rows are placed.
        self.ends.clear();
        let mut start = 0;
        for span in &self.spans {
            self.ends.push(start);
            start += span.count;
        }
        if let [end] = &mut self.ends[..] {
            *end = start;
            return self.spans[0].sum;
        }
        self.order.clear();
        self.order.resize(start as usize, 0);
        for (offset, &leaf) in self.leaf_of.iter().enumerate().filter(|(_, leaf)| **leaf != NO_LEAF) {
            let end = &mut self.ends[usize::from(leaf)];
            self.order[*end as usize] = offset as u32;
            *end += 1;
        }
        self.spans.iter().fold(0, |sum, span| sum.wrapping_add(span.sum))
    }

    /// A copy of what belongs to these leaves, which ascend.
    pub fn sorted(&self, leaves: &[u16]) -> Sorted {
        let plain = self.leaves.count() == 1;
        let share = |&leaf: &u16| {
            let places = self.start(usize::from(leaf)) as usize..self.ends[usize::from(leaf)] as usize;
            LeafShare {
                leaf,
                span: self.spans[usize::from(leaf)],
                offsets: (!plain).then(|| self.order[places].into()),
            }
        };
        Sorted { first_row: self.first_row, shares: leaves.iter().map(share).collect() }
    }

    /// Sum of the key hashes of a leaf's rows, modulo 2^64.
    pub fn checksum(&self, leaf: usize) -> u64 {
        self.spans[leaf].sum
    }

    /// Bytes of the values of a leaf's rows.
    pub fn bytes(&self, leaf: usize) -> u64 {
        self.spans[leaf].bytes
    }

    /// How many rows of the chunk belong to this leaf.
    pub fn len(&self, leaf: usize) -> u64 {
        u64::from(self.spans[leaf].count)
    }

    /// Whether no row of the chunk belongs to this leaf.
    pub fn is_empty(&self, leaf: usize) -> bool {
        self.len(leaf) == 0
    }

    /// The row numbers of this leaf, ascending.
    pub fn rows(&self, leaf: usize) -> Numbers<'_> {
        if self.leaves.count() == 1 {
            return Numbers::range(self.first_row..self.first_row + self.len(leaf));
        }
        Numbers::picked(self.first_row, &self.order[self.start(leaf) as usize..self.ends[leaf] as usize])
    }

    fn start(&self, leaf: usize) -> u32 {
        self.ends[leaf] - self.spans[leaf].count
    }
}

/// Row numbers spread over a table, both ends included.
fn sample_rows(rows: u64) -> impl Iterator<Item = u64> {
    let count = rows.min(SELF_TEST_KEYS);
    // In 128 bits, as the product of two row numbers exceeds 64.
    (0..count).map(move |i| match count {
        1 => 0,
        _ => (u128::from(i) * u128::from(rows - 1) / u128::from(count - 1)) as u64,
    })
}

/// Checks with the server that [`SELF_TEST_KEYS`] keys of a table belong to the partitions computed here.
///
/// `parent` is the partitioned table, qualified and quoted. The question is `satisfies_hash_partition`, which is also the
/// constraint of every partition, so it follows the table's own operator class and collation.
///
/// # Errors
/// [`LoadError::Routing`] on any disagreement; [`LoadError::Sql`] when the query fails.
pub fn self_test(
    client: &mut impl GenericClient,
    parent: &str,
    dataset: &dyn Dataset,
    table: usize,
    partitions: u32,
) -> Result<(), LoadError> {
    let tables = dataset.tables();
    // Ranges are compared as the catalog has them; only a hash can differ from the server's.
    let Placement::Hash { kind, .. } = tables[table].placement else { return Ok(()) };
    if partitions <= 1 || tables[table].rows == 0 {
        return Ok(());
    }
    let before: u64 = tables[..table].iter().map(|table| table.rows).sum();
    let leaves = Leaves::of_tables(tables, partitions);
    let mut buckets = Buckets::new(leaves);
    let (mut keys, mut remainders) = (Vec::new(), Vec::new());
    for row in sample_rows(tables[table].rows).map(|row| before + row) {
        buckets.fill(dataset, row..row + 1);
        keys.push(dataset.key(row));
        remainders.push(leaves.partition(usize::from(buckets.leaf_of[0])) as i32);
    }
    let row = client
        .query_one(
            &format!(
                "select count(*), min(k) from unnest($1::text[], $2::int[]) as t (k, leaf)
                 where not satisfies_hash_partition($3::text::regclass, $4, leaf, k::{kind})"
            ),
            &[&keys, &remainders, &parent, &(partitions as i32)],
        )
        .map_err(|source| LoadError::sql("checking how the server routes keys", source))?;
    match row.get::<_, i64>(0) {
        0 => Ok(()),
        wrong => Err(LoadError::Routing { wrong: wrong as u64, tried: keys.len() as u64, key: row.get(1) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ycsb::Ycsb;
    use data::ycsb::{Compressible, KeyOrder, Spec, Table};
    use proptest::prelude::*;

    fn spec(key_order: KeyOrder) -> Spec {
        Spec { seed: 7, key_order, compressible: Compressible::NONE }
    }

    #[test]
    fn samples_reach_both_ends_and_never_beyond() {
        for rows in [1, 2, 3, 511, 512, 513, 1 << 31, 1 << 32, 1_000_000_000_000] {
            let sample: Vec<u64> = sample_rows(rows).collect();
            assert_eq!(sample.len() as u64, rows.min(SELF_TEST_KEYS));
            assert_eq!((sample[0], sample[sample.len() - 1]), (0, rows - 1));
            assert!(sample.is_sorted_by(|a, b| a < b), "{rows} rows");
        }
        assert_eq!(sample_rows(0).count(), 0);
    }

    proptest! {
        #[test]
        fn every_row_is_in_its_leaf_once(
            first in prop_oneof![0u64..1000, Just(1 << 31), Just(1 << 32), Just(1_000_000_000_000)],
            count in 0u64..700,
            partitions in prop_oneof![0u32..4, Just(8), Just(70), Just(4096)],
            sequential: bool,
        ) {
            let spec = spec(if sequential { KeyOrder::Sequential } else { KeyOrder::Scattered });
            let (table, dataset) = (Table::new(spec.clone()), Ycsb::new(u64::MAX, spec));
            let route = Route::new(partitions);
            let mut buckets = Buckets::new(Leaves::new(1, partitions));
            // A second chunk in the same memory: nothing of the first may remain.
            buckets.fill(&dataset, 5..900);
            let checksum = buckets.fill(&dataset, first..first + count);
            let mut seen = Vec::new();
            let mut sum = 0u64;
            // Every second leaf, as a node may own them.
            let owned: Vec<u16> = (0..route.leaves() as u16).step_by(2).collect();
            let sorted = buckets.sorted(&owned);
            prop_assert_eq!(sorted.len(), owned.iter().map(|leaf| buckets.len(usize::from(*leaf))).sum::<u64>());
            for leaf in 0..route.leaves() {
                let rows: Vec<u64> = buckets.rows(leaf).collect();
                if leaf % 2 == 0 {
                    prop_assert_eq!(sorted.count(leaf as u16), Some(rows.len() as u64));
                    prop_assert!(sorted.rows(leaf as u16).eq(rows.iter().copied()));
                    prop_assert_eq!(sorted.bytes(leaf as u16), rows.len() as u64 * crate::ycsb::ROW_VALUE_BYTES);
                    prop_assert_eq!(sorted.checksum(leaf as u16), buckets.checksum(leaf));
                } else {
                    prop_assert_eq!(sorted.count(leaf as u16), None);
                }
                prop_assert_eq!(rows.len() as u64, buckets.len(leaf));
                prop_assert_eq!(rows.is_empty(), buckets.is_empty(leaf));
                prop_assert!(rows.is_sorted_by(|a, b| a < b));
                for row in rows {
                    let hash = key_hash(&table.key(row));
                    prop_assert_eq!(route.leaf(hash) as usize, leaf);
                    sum = sum.wrapping_add(hash);
                    seen.push(row);
                }
            }
            seen.sort_unstable();
            prop_assert!(seen.into_iter().eq(first..first + count));
            prop_assert_eq!(sum, checksum);
        }
    }
}

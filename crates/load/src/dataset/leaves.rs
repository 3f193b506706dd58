//! The leaf table of a row: how tables are divided, and how leaves are numbered.

use std::ops::Range;

use super::Table;
use crate::plan::bound_text;

/// How the rows of a table are divided among its partitions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Placement {
    /// By the hash of a column.
    Hash {
        /// The column.
        column: &'static str,
        /// Its type.
        kind: &'static str,
    },
    /// By the value of an integer column, from `first` on: ranges whose lengths differ by one at most.
    Range {
        /// The column.
        column: &'static str,
        /// Its least value.
        first: u32,
        /// How many values there are.
        count: u32,
    },
    /// Not at all: every node has a whole copy. Tables of this kind are the last ones of a dataset.
    Whole,
}

impl Placement {
    /// The column that rows are placed by.
    pub fn column(self) -> Option<&'static str> {
        match self {
            Placement::Hash { column, .. } | Placement::Range { column, .. } => Some(column),
            Placement::Whole => None,
        }
    }

    /// The words behind `partition by`; `None`: the table has no partitions.
    pub(crate) fn sql(self) -> Option<String> {
        match self {
            Placement::Hash { column, .. } => Some(format!("hash ({column})")),
            Placement::Range { column, .. } => Some(format!("range ({column})")),
            Placement::Whole => None,
        }
    }

    /// The bound of one of so many partitions, as the catalog writes it.
    pub(crate) fn bound(self, partition: u32, partitions: u32) -> String {
        match self {
            Placement::Range { first, count, .. } => {
                let Range { start, end } = range_of(partition, partitions, first, count);
                format!("FOR VALUES FROM ({start}) TO ({end})")
            }
            Placement::Hash { .. } | Placement::Whole => bound_text(partitions, partition),
        }
    }
}

/// The values of a partition by range.
fn range_of(partition: u32, partitions: u32, first: u32, count: u32) -> Range<u32> {
    let start = |partition: u32| {
        let before = u64::from(count) * u64::from(partition) / u64::from(partitions.max(1));
        first + before as u32
    };
    start(partition)..start(partition + 1)
}

/// The partition by range of the value that is `offset` behind the first one.
pub fn range_partition(offset: u32, count: u32, partitions: u32) -> u32 {
    ((u64::from(partitions) * (u64::from(offset) + 1) - 1) / u64::from(count.max(1))) as u32
}

/// The leaf tables of a dataset: of each table as many as it has partitions, or the table itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Leaves {
    /// Tables that are divided.
    divided: u32,
    /// Tables that every node has whole; they come last.
    whole: u32,
    partitions: u32,
}

impl Leaves {
    /// Of so many tables; 0 and 1 partitions are plain tables.
    pub fn new(tables: usize, partitions: u32) -> Leaves {
        Leaves { divided: tables as u32, whole: 0, partitions: partitions.max(1) }
    }

    /// Of these tables.
    pub fn of_tables(tables: &[Table], partitions: u32) -> Leaves {
        let whole = tables.iter().filter(|table| table.placement == Placement::Whole).count();
        Leaves { whole: whole as u32, ..Leaves::new(tables.len() - whole, partitions) }
    }

    /// How many there are.
    pub fn count(self) -> usize {
        self.whole_from() + self.whole as usize
    }

    /// The first leaf that is a whole table on every node; those behind it are, too.
    pub(crate) fn whole_from(self) -> usize {
        (self.divided * self.partitions) as usize
    }

    /// Partitions of each table, 1 at least.
    pub fn partitions(self) -> u32 {
        self.partitions
    }

    /// The leaf of a row by its table and the hash of its placement key.
    #[inline]
    pub fn of(self, table: u32, key_hash: u64) -> u32 {
        if self.partitions == 1 {
            return table;
        }
        let key = engines::hash::partition_key([Some(key_hash)]);
        self.at(table, engines::hash::partition_remainder(key, self.partitions))
    }

    /// The leaf of a partition of a table; a whole table has partition 0 only.
    #[inline]
    pub fn at(self, table: u32, partition: u32) -> u32 {
        if table < self.divided {
            table * self.partitions + partition
        } else {
            self.divided * self.partitions + (table - self.divided)
        }
    }

    /// The table of a leaf.
    pub fn table(self, leaf: usize) -> usize {
        match leaf.checked_sub(self.whole_from()) {
            Some(whole) => self.divided as usize + whole,
            None => leaf / self.partitions as usize,
        }
    }

    /// The partition of a leaf in its table.
    pub fn partition(self, leaf: usize) -> u32 {
        if leaf < self.whole_from() { (leaf % self.partitions as usize) as u32 } else { 0 }
    }
}

/// The names of all leaf tables, in the order of their numbers: the table itself without partitions, else `usertable_p0` and so on.
pub(crate) fn leaf_names(tables: &[Table], partitions: u32) -> Vec<String> {
    tables.iter().flat_map(|table| table.leaf_names(partitions)).collect()
}

/// All tables with this many partitions, each in front of its leaves.
pub fn table_names(tables: &[Table], partitions: u32) -> Vec<String> {
    let leaves = |table: &Table| {
        if table.is_divided(partitions) { table.leaf_names(partitions) } else { Vec::new() }
    };
    tables.iter().flat_map(|table| std::iter::once(table.name.to_owned()).chain(leaves(table))).collect()
}

/// Stands for the leaf of a number without a row.
pub(crate) const NO_LEAF: u16 = u16::MAX;
const _: () = assert!((NO_LEAF as u32) >= crate::plan::LEAVES_MAX);

/// Takes down where the rows of a chunk go.
#[derive(Debug)]
pub struct Placed<'a> {
    pub(crate) leaves: Leaves,
    /// Leaf of each row, in row order; not kept where there is one leaf.
    pub(crate) leaf_of: &'a mut Vec<u16>,
    pub(crate) spans: &'a mut [Span],
}

/// What belongs to one leaf.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Span {
    /// Rows.
    pub(crate) count: u32,
    /// Sum of the hashes of their placement keys modulo 2^64.
    pub(crate) sum: u64,
    /// Bytes of their values.
    pub(crate) bytes: u64,
}

impl Placed<'_> {
    /// The next row.
    #[inline(always)]
    pub fn push(&mut self, table: u32, key_hash: u64, bytes: u64) {
        self.push_at(self.leaves.of(table, key_hash), key_hash, bytes);
    }

    /// The next row, whose leaf is known. `hash` is what it adds to the checksum of the chunk.
    #[inline(always)]
    pub fn push_at(&mut self, leaf: u32, hash: u64, bytes: u64) {
        let span = &mut self.spans[leaf as usize];
        span.count += 1;
        span.sum = span.sum.wrapping_add(hash);
        span.bytes += bytes;
        if self.spans.len() > 1 {
            self.leaf_of.push(leaf as u16);
        }
    }

    /// The next number stands for no row. Only datasets of several leaves have such numbers.
    #[inline(always)]
    pub fn skip(&mut self) {
        self.leaf_of.push(NO_LEAF);
    }

    /// The leaf tables.
    pub fn leaves(&self) -> Leaves {
        self.leaves
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_are_numbered_through_all_tables() {
        let leaves = Leaves::new(3, 4);
        assert_eq!(leaves.count(), 12);
        for table in 0..3 {
            for hash in 0..100 {
                let leaf = leaves.of(table, hash) as usize;
                assert_eq!((leaves.table(leaf) as u32, leaves.partition(leaf) < 4), (table, true));
            }
        }
        assert_eq!((Leaves::new(3, 0).count(), Leaves::new(3, 1).of(2, 99)), (3, 2));
    }

    fn table(name: &'static str, placement: Placement) -> Table {
        Table {
            name,
            rows: 10,
            columns: vec![("a", "int")],
            key: None,
            named_by: None,
            index: None,
            placement,
            mutable: &[],
            fillfactor: None,
        }
    }

    #[test]
    fn a_whole_table_has_one_leaf_behind_all_others() {
        let tables = [
            table("t", Placement::Range { column: "a", first: 1, count: 7 }),
            table("u", Placement::Hash { column: "a", kind: "int" }),
            table("v", Placement::Whole),
        ];
        let leaves = Leaves::of_tables(&tables, 3);
        assert_eq!((leaves.count(), leaves.whole_from()), (7, 6));
        assert_eq!(leaf_names(&tables, 3), ["t_p0", "t_p1", "t_p2", "u_p0", "u_p1", "u_p2", "v"]);
        assert_eq!(leaf_names(&tables, 0), ["t", "u", "v"]);
        assert_eq!(table_names(&tables, 2), ["t", "t_p0", "t_p1", "u", "u_p0", "u_p1", "v"]);
        assert_eq!((leaves.table(6), leaves.partition(6), leaves.at(2, 0)), (2, 0, 6));
        assert_eq!((leaves.table(5), leaves.partition(5), leaves.at(1, 2)), (1, 2, 5));
        assert_eq!(tables[0].placement.bound(1, 3), "FOR VALUES FROM (3) TO (5)");
        assert_eq!(tables[1].placement.bound(1, 3), "FOR VALUES WITH (modulus 3, remainder 1)");
    }

    #[test]
    fn every_value_is_in_one_range_and_ranges_differ_by_one() {
        for (count, partitions) in [(1, 1), (2, 2), (3, 2), (7, 3), (100, 12), (15_000, 70), (1_000_000, 997)]
        {
            let mut next = 1;
            for partition in 0..partitions {
                let range = range_of(partition, partitions, 1, count);
                assert_eq!(range.start, next);
                let least = count / partitions;
                assert!((least..=least + 1).contains(&(range.end - range.start)), "{count} {partition}");
                for value in [range.start, range.end - 1] {
                    assert_eq!(
                        range_partition(value - 1, count, partitions),
                        partition,
                        "{value} of {count}"
                    );
                }
                next = range.end;
            }
            assert_eq!(next, count + 1);
        }
    }
}

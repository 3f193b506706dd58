//! Sets of chunk numbers.

use std::ops::Range;

/// Words of a page: 2,048 numbers.
const PAGE_WORDS: usize = 32;
const PAGE_NUMBERS: u64 = PAGE_WORDS as u64 * 64;

type Page = Box<[u64; PAGE_WORDS]>;

/// A set of chunk numbers: one bit each, in pages that exist only where there are numbers. A sharded dataset keeps a set for each group of leaves that share
/// chunks: with one million warehouses in 4,096 partitions each of them is nearly empty.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ChunkSet {
    /// None of them is all zeros, so that equal sets are equal values.
    pages: Vec<Option<Page>>,
    capacity: u64,
    len: u64,
}

/// Page, word and bit of a number.
fn place(index: u64) -> (usize, usize, u64) {
    let page = (index / PAGE_NUMBERS) as usize;
    (page, (index % PAGE_NUMBERS / 64) as usize, 1 << (index % 64))
}

fn is_zero(page: &Page) -> bool {
    page.iter().all(|word| *word == 0)
}

impl ChunkSet {
    /// An empty set of numbers below `capacity`.
    pub(crate) fn new(capacity: u64) -> ChunkSet {
        ChunkSet { pages: vec![None; capacity.div_ceil(PAGE_NUMBERS) as usize], capacity, len: 0 }
    }

    /// Adds a number; `false` when it was there already or is out of range.
    pub(crate) fn insert(&mut self, index: u64) -> bool {
        if index >= self.capacity {
            return false;
        }
        let (page, word, bit) = place(index);
        let word = &mut self.pages[page].get_or_insert_with(|| Box::new([0; PAGE_WORDS]))[word];
        let new = *word & bit == 0;
        *word |= bit;
        self.len += u64::from(new);
        new
    }

    /// All numbers of a range, in a set of numbers below `capacity`.
    pub(crate) fn of_range(capacity: u64, range: Range<u64>) -> ChunkSet {
        let mut set = ChunkSet::new(capacity);
        for index in range {
            set.insert(index);
        }
        set
    }

    /// Takes a number out; `false` when it was not there.
    pub(crate) fn remove(&mut self, index: u64) -> bool {
        let (at, word, bit) = place(index);
        let Some(slot) = self.pages.get_mut(at) else { return false };
        let Some(page) = slot else { return false };
        let there = page[word] & bit != 0;
        page[word] &= !bit;
        self.len -= u64::from(there);
        if is_zero(page) {
            *slot = None;
        }
        there
    }

    /// Takes every number out.
    pub(crate) fn clear(&mut self) {
        self.pages.fill(None);
        self.len = 0;
    }

    /// The least number of the set that is not below `from`.
    pub(crate) fn next_from(&self, from: u64) -> Option<u64> {
        let (first_page, first_word, bit) = place(from);
        for (at, page) in self.pages.iter().enumerate().skip(first_page) {
            let Some(page) = page else { continue };
            let begin = if at == first_page { first_word } else { 0 };
            for (number, word) in page.iter().enumerate().skip(begin) {
                let is_first = at == first_page && number == first_word;
                // The bits below that of `from` are gone.
                let word = if is_first { word & !(bit - 1) } else { *word };
                if word != 0 {
                    let base = at as u64 * PAGE_NUMBERS + number as u64 * 64;
                    return Some(base + u64::from(word.trailing_zeros()));
                }
            }
        }
        None
    }

    /// Takes out the numbers that are in `other` too, and returns them.
    pub(crate) fn take(&mut self, other: &ChunkSet) -> ChunkSet {
        let mut taken = ChunkSet::new(self.capacity);
        for ((slot, theirs), common) in self.pages.iter_mut().zip(&other.pages).zip(&mut taken.pages) {
            let (Some(ours), Some(theirs)) = (slot.as_mut(), theirs) else { continue };
            let mut both = Box::new([0; PAGE_WORDS]);
            for ((ours, theirs), both) in ours.iter_mut().zip(theirs.iter()).zip(both.iter_mut()) {
                *both = *ours & theirs;
                *ours &= !theirs;
                taken.len += u64::from(both.count_ones());
            }
            if is_zero(ours) {
                *slot = None;
            }
            *common = Some(both).filter(|page| !is_zero(page));
        }
        self.len -= taken.len;
        taken
    }

    /// Adds the numbers of `other`, which has the same capacity.
    pub(crate) fn add(&mut self, other: &ChunkSet) {
        for (slot, theirs) in self.pages.iter_mut().zip(&other.pages) {
            let Some(theirs) = theirs else { continue };
            let ours = slot.get_or_insert_with(|| Box::new([0; PAGE_WORDS]));
            for (ours, theirs) in ours.iter_mut().zip(theirs.iter()) {
                self.len += u64::from((theirs & !*ours).count_ones());
                *ours |= theirs;
            }
        }
    }

    /// Whether the number is in the set.
    pub(crate) fn contains(&self, index: u64) -> bool {
        let (page, word, bit) = place(index);
        matches!(self.pages.get(page), Some(Some(page)) if page[word] & bit != 0)
    }

    /// How many numbers are in the set.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Whether nothing is in the set.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const CAPACITY: u64 = 3 * PAGE_NUMBERS + 100;

    fn set_of(numbers: &BTreeSet<u64>) -> ChunkSet {
        let mut set = ChunkSet::new(CAPACITY);
        numbers.iter().for_each(|number| assert!(set.insert(*number)));
        set
    }

    fn all(set: &ChunkSet) -> BTreeSet<u64> {
        std::iter::successors(set.next_from(0), |last| set.next_from(last + 1)).collect()
    }

    proptest! {
        #[test]
        fn it_is_a_set(
            ours in prop::collection::btree_set(0..CAPACITY, 0..60),
            theirs in prop::collection::btree_set(0..CAPACITY, 0..60),
            from in 0..CAPACITY,
        ) {
            let (mut set, other) = (set_of(&ours), set_of(&theirs));
            prop_assert_eq!(all(&set), ours.clone());
            prop_assert_eq!(set.next_from(from), ours.range(from..).next().copied());
            let taken = set.take(&other);
            prop_assert_eq!(&taken, &set_of(&ours.intersection(&theirs).copied().collect()));
            prop_assert_eq!(&set, &set_of(&ours.difference(&theirs).copied().collect()));
            set.add(&other);
            let union: BTreeSet<u64> = ours.union(&theirs).copied().collect();
            prop_assert_eq!((&set, set.len()), (&set_of(&union), union.len() as u64));
            union.iter().for_each(|number| assert!(set.contains(*number) && set.remove(*number) && !set.remove(*number)));
            prop_assert_eq!(&set, &ChunkSet::new(CAPACITY));
            prop_assert_eq!(all(&ChunkSet::of_range(CAPACITY, 10..from.max(10))), (10..from.max(10)).collect());
            prop_assert!(!set.insert(CAPACITY) && !set.contains(u64::MAX) && !set.remove(u64::MAX));
        }
    }

    #[test]
    fn a_set_of_few_numbers_far_apart_is_small() {
        let mut set = ChunkSet::new(4_000_000);
        [0, 1_000_000, 3_999_999].iter().for_each(|number| assert!(set.insert(*number)));
        assert_eq!(set.pages.iter().flatten().count(), 3);
    }
}

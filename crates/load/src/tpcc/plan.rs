//! What a load of W warehouses consists of: chunks, each one warehouse's part of one group of tables.
//!
//! The groups follow each other, the largest index first, so that keys are built while other groups load:
//!
//! | chunk | group | tables |
//! |---|---|---|
//! | 0 | items | item |
//! | 1 ..= W | orders | orders, new_order, order_line |
//! | W+1 ..= 2W | stock | stock |
//! | 2W+1 ..= 3W | customers | warehouse, district, customer, history |

use std::sync::atomic::{AtomicU64, Ordering};

use data::tpcc::{
    CUSTOMERS_PER_DISTRICT, DISTRICTS_PER_WAREHOUSE, ITEMS, NEW_ORDERS_PER_DISTRICT, ORDERS_PER_DISTRICT,
    Population, STOCK_PER_WAREHOUSE, Table,
};

use crate::plan::ChunkSet;

/// Tables whose rows of one warehouse are loaded together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Group {
    /// The catalogue.
    Items,
    /// Orders and what belongs to them.
    Orders,
    /// Stock.
    Stock,
    /// Warehouses, districts, customers and their history.
    Customers,
}

impl Group {
    /// In the order of their chunks.
    pub const ALL: [Group; 4] = [Group::Items, Group::Orders, Group::Stock, Group::Customers];

    /// Its tables, in the order in which a chunk fills them.
    pub const fn tables(self) -> &'static [Table] {
        match self {
            Group::Items => &[Table::Item],
            Group::Orders => &[Table::Orders, Table::NewOrder, Table::OrderLine],
            Group::Stock => &[Table::Stock],
            Group::Customers => &[Table::Warehouse, Table::District, Table::Customer, Table::History],
        }
    }

    /// The group that a table is in.
    pub fn of(table: Table) -> Group {
        Group::ALL
            .into_iter()
            .find(|group| group.tables().contains(&table))
            .expect("every table is in a group")
    }

    /// How many chunks it has.
    pub fn chunks(self, warehouses: u32) -> u64 {
        if self == Group::Items { 1 } else { warehouses.into() }
    }
}

/// One chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// Which tables.
    pub group: Group,
    /// Whose rows; 0 for the catalogue, which belongs to all.
    pub w_id: u32,
}

impl Part {
    /// What chunk number `chunk` is.
    ///
    /// # Panics
    /// When there is no such chunk.
    pub fn of_chunk(chunk: u64, warehouses: u32) -> Part {
        assert!(chunk < chunks(warehouses), "chunk {chunk} of {}", chunks(warehouses));
        if chunk == 0 {
            return Part { group: Group::Items, w_id: 0 };
        }
        let (group, warehouse) = ((chunk - 1) / u64::from(warehouses), (chunk - 1) % u64::from(warehouses));
        Part { group: Group::ALL[1 + group as usize], w_id: 1 + warehouse as u32 }
    }

    /// Its number.
    pub(crate) fn chunk(self, warehouses: u32) -> u64 {
        match self.group {
            Group::Items => 0,
            group => (group as u64 - 1) * u64::from(warehouses) + u64::from(self.w_id),
        }
    }

    /// Its rows. That of orders takes a look at each of them.
    pub fn rows(self, population: &Population) -> u64 {
        let districts = u64::from(DISTRICTS_PER_WAREHOUSE);
        let per_district = u64::from(ORDERS_PER_DISTRICT + NEW_ORDERS_PER_DISTRICT);
        match self.group {
            Group::Items => ITEMS.into(),
            Group::Orders => districts * per_district + population.lines_of_warehouse(self.w_id),
            Group::Stock => STOCK_PER_WAREHOUSE.into(),
            Group::Customers => 1 + districts * (1 + 2 * u64::from(CUSTOMERS_PER_DISTRICT)),
        }
    }
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.group {
            Group::Items => f.write_str("the items"),
            Group::Orders => write!(f, "the orders of warehouse {}", self.w_id),
            Group::Stock => write!(f, "the stock of warehouse {}", self.w_id),
            Group::Customers => write!(f, "the customers of warehouse {}", self.w_id),
        }
    }
}

/// How many chunks W warehouses have.
pub fn chunks(warehouses: u32) -> u64 {
    Group::ALL.iter().map(|group| group.chunks(warehouses)).sum()
}

/// The chunks that are still to be loaded, handed out once each, in order.
#[derive(Debug)]
pub(crate) struct Queue {
    end: u64,
    done: ChunkSet,
    next: AtomicU64,
}

impl Queue {
    pub(crate) fn new(warehouses: u32, done: ChunkSet) -> Queue {
        Queue { end: chunks(warehouses), done, next: AtomicU64::new(0) }
    }

    pub(crate) fn take(&self) -> Option<u64> {
        loop {
            let chunk = self.next.fetch_add(1, Ordering::Relaxed);
            if chunk >= self.end {
                return None;
            }
            if !self.done.contains(chunk) {
                return Some(chunk);
            }
        }
    }
}

/// Which groups are complete.
#[derive(Debug)]
pub(crate) struct Completion {
    /// Chunks that are missing, by group.
    missing: [AtomicU64; Group::ALL.len()],
}

impl Completion {
    /// Of a load of which `done` is loaded already.
    pub(crate) fn new(warehouses: u32, done: &ChunkSet) -> Completion {
        let completion =
            Completion { missing: Group::ALL.map(|group| AtomicU64::new(group.chunks(warehouses))) };
        for chunk in (0..chunks(warehouses)).filter(|chunk| done.contains(*chunk)) {
            completion.committed(Part::of_chunk(chunk, warehouses).group);
        }
        completion
    }

    /// One chunk more is committed.
    pub(crate) fn committed(&self, group: Group) {
        self.missing[group as usize].fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether every chunk of a group is committed.
    pub(crate) fn is_complete(&self, group: Group) -> bool {
        self.missing[group as usize].load(Ordering::Acquire) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_cover_every_part_once() {
        for warehouses in [1, 2, 7] {
            let parts: Vec<Part> =
                (0..chunks(warehouses)).map(|chunk| Part::of_chunk(chunk, warehouses)).collect();
            assert_eq!(parts.len() as u64, 1 + 3 * u64::from(warehouses));
            assert_eq!(parts[0], Part { group: Group::Items, w_id: 0 });
            for group in [Group::Orders, Group::Stock, Group::Customers] {
                let of_group = parts.iter().filter(|part| part.group == group).map(|part| part.w_id);
                assert_eq!(of_group.collect::<Vec<u32>>(), (1..=warehouses).collect::<Vec<u32>>());
            }
        }
        let last = Part::of_chunk(chunks(1_000_000) - 1, 1_000_000);
        assert_eq!(last, Part { group: Group::Customers, w_id: 1_000_000 });
        assert!(chunks(data::tpcc::WAREHOUSES_MAX) < crate::plan::CHUNKS_MAX);
    }

    #[test]
    fn groups_have_every_table_once() {
        let mut tables: Vec<Table> = Group::ALL.iter().flat_map(|group| group.tables()).copied().collect();
        tables.sort();
        assert_eq!(tables, Table::ALL);
        assert!(Table::ALL.iter().all(|table| Group::of(*table).tables().contains(table)));
    }

    #[test]
    fn parts_sum_up_to_the_population() {
        let population = Population::new(9);
        let sum: u64 = (0..chunks(2)).map(|chunk| Part::of_chunk(chunk, 2).rows(&population)).sum();
        assert_eq!(sum, population.rows(2));
    }

    #[test]
    fn the_queue_hands_out_what_is_missing_once() {
        let mut done = ChunkSet::new(chunks(2));
        for chunk in [0, 3, 6] {
            done.insert(chunk);
        }
        let queue = Queue::new(2, done);
        let taken: Vec<u64> = std::iter::from_fn(|| queue.take()).collect();
        assert_eq!(taken, [1, 2, 4, 5]);
        assert_eq!(queue.take(), None);
    }

    #[test]
    fn a_group_is_complete_when_its_last_chunk_is() {
        let mut done = ChunkSet::new(chunks(2));
        done.insert(0);
        done.insert(1);
        let completion = Completion::new(2, &done);
        assert!(completion.is_complete(Group::Items) && !completion.is_complete(Group::Orders));
        completion.committed(Group::Orders);
        assert!(completion.is_complete(Group::Orders) && !completion.is_complete(Group::Stock));
    }
}

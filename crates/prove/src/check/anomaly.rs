//! The anomalies of a history, and the levels that each refutes.

use std::fmt;

/// An isolation level without an order. The arrows of implication: read uncommitted, read committed, monotonic atomic view, then both repeatable read and
/// snapshot isolation, then serializable.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Base {
    /// PL-1: writes are not interleaved.
    ReadUncommitted,
    /// PL-2: only what was committed and final is read; and each statement reads from one snapshot.
    ReadCommitted,
    /// A transaction that has seen part of another one sees all of it from then on.
    MonotonicAtomicView,
    /// PL-2.99 of Adya: serializable except for predicates. It is stronger than PostgreSQL's level of this name, which is snapshot isolation.
    RepeatableRead,
    /// Generalised snapshot isolation: each transaction reads from one snapshot, and if two overwrite each other, one is refused. PostgreSQL's REPEATABLE
    /// READ.
    SnapshotIsolation,
    /// PL-3. Predicates are not in the histories, so only cycles over rows can refute it.
    Serializable,
}

impl Base {
    /// All of them, weaker ones first.
    pub const ALL: [Base; 6] = [
        Base::ReadUncommitted,
        Base::ReadCommitted,
        Base::MonotonicAtomicView,
        Base::RepeatableRead,
        Base::SnapshotIsolation,
        Base::Serializable,
    ];

    /// Whether an anomaly that refutes `self` also refutes `other`.
    pub fn is_implied_by(self, other: Base) -> bool {
        self == other
            || match (self, other) {
                (Base::RepeatableRead, Base::SnapshotIsolation) => false,
                _ => self < other,
            }
    }

    fn name(self) -> &'static str {
        match self {
            Base::ReadUncommitted => "read-uncommitted",
            Base::ReadCommitted => "read-committed",
            Base::MonotonicAtomicView => "monotonic-atomic-view",
            Base::RepeatableRead => "repeatable-read",
            Base::SnapshotIsolation => "snapshot-isolation",
            Base::Serializable => "serializable",
        }
    }
}

/// Which order, besides that of the data, a level has to respect.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Order {
    /// None.
    Data,
    /// The order of transactions within a session.
    Session,
    /// One transaction had ended before another began, in any session.
    RealTime,
}

impl Order {
    /// All of them, weaker ones first.
    pub const ALL: [Order; 3] = [Order::Data, Order::Session, Order::RealTime];
}

/// A level that a history can refute.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Level {
    /// The isolation.
    pub base: Base,
    /// The order.
    pub order: Order,
}

impl Level {
    /// A level.
    pub const fn new(base: Base, order: Order) -> Level {
        Level { base, order }
    }

    /// All of them, the weakest base first.
    pub fn all() -> impl Iterator<Item = Level> {
        Base::ALL.into_iter().flat_map(|base| Order::ALL.map(|order| Level { base, order }))
    }

    /// Whether an anomaly that refutes `self` also refutes `other`.
    pub fn is_implied_by(self, other: Level) -> bool {
        self.base.is_implied_by(other.base) && self.order <= other.order
    }

    /// The name in commands and reports, for example `strong-session-snapshot-isolation`.
    pub fn name(self) -> String {
        let name = self.base.name();
        match (self.order, self.base) {
            (Order::Data, _) => name.to_string(),
            (Order::Session, _) => format!("strong-session-{name}"),
            (Order::RealTime, Base::Serializable) => "strict-serializable".to_string(),
            (Order::RealTime, _) => format!("strong-{name}"),
        }
    }

    /// The level with this name or one of the usual abbreviations.
    pub fn parse(name: &str) -> Option<Level> {
        let name = name.to_ascii_lowercase().replace([' ', '_'], "-");
        if let Some(level) = Level::all().find(|level| level.name() == name) {
            return Some(level);
        }
        Some(match name.as_str() {
            "ru" => Level::new(Base::ReadUncommitted, Order::Data),
            "rc" => Level::new(Base::ReadCommitted, Order::Data),
            "mav" => Level::new(Base::MonotonicAtomicView, Order::Data),
            "rr" => Level::new(Base::RepeatableRead, Order::Data),
            "si" => Level::new(Base::SnapshotIsolation, Order::Data),
            "ser" => Level::new(Base::Serializable, Order::Data),
            "strict" | "strong-serializable" => Level::new(Base::Serializable, Order::RealTime),
            _ => return None,
        })
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

/// A kind of anomaly. Names follow Adya (1999) and Elle where they have one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Class {
    /// A value was read that no transaction wrote.
    Garbage,
    /// Two writes of one key cannot be distinguished, so reads of it prove nothing: a mistake of the workload.
    AmbiguousWrite,
    /// A list contains an element twice.
    DuplicateElement,
    /// Two acknowledged transactions incremented a row to the same version: one of them is lost.
    DuplicateVersion,
    /// A transaction did not see its own write.
    Internal,
    /// A transaction read what it wrote only later.
    FutureRead,
    /// G0: transactions overwrote each other in opposite orders.
    DirtyWrite,
    /// G1a: a write of a failed transaction was read.
    AbortedRead,
    /// A committed transaction overwrote a write of a failed one.
    DirtyUpdate,
    /// G1b: a version was read that its transaction overwrote itself.
    IntermediateRead,
    /// The writes of one transaction were installed in a different order than it made them.
    ReorderedWrites,
    /// Two reads of a list are not prefixes of one list.
    IncompatibleOrder,
    /// G1c: a cycle of transactions, each of which saw or overwrote a write of the next one.
    CircularFlow,
    /// One statement saw a transaction in one row and not in another.
    FracturedStatement,
    /// Statements saw transactions in opposite orders.
    StatementFork,
    /// A later statement did not see a transaction that an earlier one had seen.
    NonMonotonicView,
    /// One transaction read two different versions of a row.
    NonRepeatableRead,
    /// P4: two transactions read the same version of a row and both wrote it.
    LostUpdate,
    /// One transaction saw another one in one row and not in another row.
    FracturedRead,
    /// G-single: a cycle with exactly one read of something that was already overwritten.
    ReadSkew,
    /// G-nonadjacent: a cycle with several such reads, none next to another; two readers that see two writers in opposite orders (long fork).
    LongFork,
    /// G2-item: a cycle with two such reads next to each other: write skew.
    WriteSkew,
}

impl Class {
    /// The short name.
    pub fn code(self) -> &'static str {
        match self {
            Class::Garbage => "garbage",
            Class::AmbiguousWrite => "ambiguous-write",
            Class::DuplicateElement => "duplicate-element",
            Class::DuplicateVersion => "duplicate-version",
            Class::Internal => "internal",
            Class::FutureRead => "future-read",
            Class::DirtyWrite => "G0",
            Class::AbortedRead => "G1a",
            Class::DirtyUpdate => "dirty-update",
            Class::IntermediateRead => "G1b",
            Class::ReorderedWrites => "reordered-writes",
            Class::IncompatibleOrder => "incompatible-order",
            Class::CircularFlow => "G1c",
            Class::FracturedStatement => "fractured-statement",
            Class::StatementFork => "statement-fork",
            Class::NonMonotonicView => "non-monotonic-view",
            Class::NonRepeatableRead => "non-repeatable-read",
            Class::LostUpdate => "lost-update",
            Class::FracturedRead => "fractured-read",
            Class::ReadSkew => "G-single",
            Class::LongFork => "G-nonadjacent",
            Class::WriteSkew => "G2-item",
        }
    }

    /// What happened, in words.
    pub fn description(self) -> &'static str {
        match self {
            Class::Garbage => "a value was read that no transaction wrote",
            Class::AmbiguousWrite => "two writes of one key have the same value and cannot be distinguished",
            Class::DuplicateElement => "a list contains an element twice",
            Class::DuplicateVersion => {
                "two acknowledged transactions incremented to the same version: one of them is lost"
            }
            Class::Internal => "a transaction did not see its own write",
            Class::FutureRead => "a transaction read what it wrote only later",
            Class::DirtyWrite => "transactions overwrote each other in opposite orders",
            Class::AbortedRead => "a write of a failed transaction was read",
            Class::DirtyUpdate => "a committed transaction overwrote a write of a failed one",
            Class::IntermediateRead => "a version was read that its own transaction overwrote",
            Class::ReorderedWrites => {
                "the writes of a transaction to a key were installed in a different order"
            }
            Class::IncompatibleOrder => "two reads of a list are not prefixes of one list",
            Class::CircularFlow => "transactions depend on each other in a cycle",
            Class::FracturedStatement => "one statement saw a transaction in one row and not in another",
            Class::StatementFork => "statements saw transactions in opposite orders",
            Class::NonMonotonicView => {
                "a later statement did not see a transaction that an earlier one had seen"
            }
            Class::NonRepeatableRead => "a transaction read two versions of one row",
            Class::LostUpdate => "two transactions read the same version and both wrote: one update is lost",
            Class::FracturedRead => "a transaction saw another one in one row and not in another",
            Class::ReadSkew => {
                "a transaction saw something new, and something old that was already overwritten before it"
            }
            Class::LongFork => "readers saw writers in opposite orders",
            Class::WriteSkew => "transactions read what the others overwrote: write skew",
        }
    }

    /// The weakest levels that forbid it.
    pub fn refutes(self) -> &'static [Base] {
        match self {
            Class::AmbiguousWrite => &[],
            Class::Garbage
            | Class::DuplicateElement
            | Class::DuplicateVersion
            | Class::Internal
            | Class::FutureRead
            | Class::DirtyWrite => &[Base::ReadUncommitted],
            Class::AbortedRead
            | Class::DirtyUpdate
            | Class::IntermediateRead
            | Class::ReorderedWrites
            | Class::IncompatibleOrder
            | Class::CircularFlow
            | Class::FracturedStatement
            | Class::StatementFork => &[Base::ReadCommitted],
            Class::NonMonotonicView => &[Base::MonotonicAtomicView],
            Class::NonRepeatableRead
            | Class::LostUpdate
            | Class::FracturedRead
            | Class::ReadSkew
            | Class::LongFork => &[Base::RepeatableRead, Base::SnapshotIsolation],
            Class::WriteSkew => &[Base::RepeatableRead],
        }
    }
}

/// Why one transaction comes before another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Reason {
    /// The second overwrote what the first wrote.
    Overwrote,
    /// The second read what the first wrote.
    Read,
    /// The first read what the second overwrote.
    ReadBefore,
    /// One session did both.
    Session,
    /// The first had ended when the second began.
    RealTime,
}

/// A step of a cycle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// The transaction that comes before.
    pub from: u32,
    /// The one that comes after.
    pub to: u32,
    /// Why.
    pub reason: Reason,
}

/// Something that was found, in numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// What it is.
    pub class: Class,
    /// Which order the cycle needs.
    pub order: Order,
    /// The operations that show it, if it is not a cycle.
    pub ops: Vec<u32>,
    /// The cycle.
    pub cycle: Vec<Step>,
    /// A transaction of unknown outcome takes part.
    pub is_joined: bool,
}

impl Finding {
    pub(super) fn of(class: Class, ops: Vec<u32>) -> Finding {
        Finding { class, order: Order::Data, ops, cycle: Vec::new(), is_joined: false }
    }

    pub(super) fn cycle(class: Class, cycle: Vec<Step>) -> Finding {
        Finding { cycle, ..Finding::of(class, Vec::new()) }
    }

    /// The short name with Elle's endings for cycles that need an order.
    pub fn code(&self) -> String {
        let ending = match self.order {
            Order::Data => "",
            Order::Session => "-process",
            Order::RealTime => "-realtime",
        };
        format!("{}{ending}", self.class.code())
    }

    /// The weakest levels that this refutes.
    pub fn refutes(&self) -> impl Iterator<Item = Level> {
        let order = self.order;
        // An unknown outcome may be a rollback where dirty reads are allowed; only above that level, a transaction that was read has committed.
        let is_unsure = self.is_joined && matches!(self.class, Class::DirtyWrite | Class::DuplicateVersion);
        let bases = if is_unsure { &[Base::ReadCommitted] } else { self.class.refutes() };
        bases.iter().map(move |base| Level::new(*base, order))
    }
}

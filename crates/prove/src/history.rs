//! The operations of sessions and their results, transaction by transaction: the only input of the checker.
//!
//! A history is three arrays: micro-operations of 32 bytes, transactions of 48, and, for lists, the elements that were read. It is kept in its own
//! file in the run directory ([`file`](self::file)), written while the transactions run and readable up to the point of a crash, and it can be
//! exchanged with Elle, Jepsen's checker ([`elle`](self::elle)).
//!
//! Three encodings ([`Model`]) define `ver` and `tok` of an operation. With the first two the order of versions is known, so a check takes
//! linear time.
//!
//! | model | write | read |
//! |---|---|---|
//! | versioned register | `UPDATE kv SET ver = ver + 1, tok = $tok ... RETURNING ver` | `ver` and `tok` of the row, `ver` 0: no row |
//! | append | adds the element `tok` at the end of the list | `ver` elements from `tok` on in [`History::elements`] |
//! | register | sets the value `tok` | the value `tok`, `ver` 0: no value yet, 1: a value |

pub mod elle;
pub mod file;
mod notation;
#[cfg(test)]
mod tests;

use engines::profile::Isolation;

pub use crate::outcome::Outcome;
pub use file::{HistoryError, HistoryWriter};

/// The most operations in one history: indexes of operations, versions and edges are 32-bit numbers, and an operation may have three edges.
pub const OPS_MAX: usize = 1 << 30;
/// Transactions at most: the checker keeps two bits of a transaction's number for the kind of an edge.
pub const TXNS_MAX: usize = (1 << 30) - 1;

/// Values that are not integers have tokens from here on, in the order of [`Names::values`].
pub const VALUES_BASE: u64 = 0xC000_0000_0000_0000;
/// The token of a value that looks like the initial state.
pub const NIL: u64 = VALUES_BASE;

/// How values carry their version.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Model {
    /// Each write increments the row's version and sets a token that no other write has.
    #[default]
    VersionedRegister,
    /// Each write appends an element that no other write of this key has; reads see the whole list.
    Append,
    /// Each write sets a value that no other write of this key has. The order of versions is known only as far as transactions read before they wrote.
    Register,
}

/// What a micro-operation does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Reads a key.
    Read,
    /// The server computes the new version from the row that it finds, in one statement.
    Update,
    /// The client reports the new version (`ver` it read + 1), or the new value.
    Write,
    /// A new row: version 1.
    Insert,
    /// Appends an element.
    Append,
}

impl Kind {
    /// Whether this leaves a new version.
    pub fn is_write(self) -> bool {
        self != Kind::Read
    }
}

/// One micro-operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Op {
    /// The index of its transaction in [`History::txns`].
    pub txn: u32,
    /// Which row.
    pub key: u32,
    /// The version written or read; see [`Model`].
    pub ver: u32,
    /// The number of the statement in its transaction, from 0. Operations of one statement share a snapshot at READ COMMITTED.
    pub statement: u16,
    /// The node that executed it, see [`Names::nodes`].
    pub node: u8,
    /// What it does.
    pub kind: Kind,
    /// The token, element or value; for a read list, the index of its first element. See [`Model`].
    pub tok: u64,
    /// When its statement was sent, in nanoseconds of CLOCK_MONOTONIC; 0: unknown.
    pub start_ns: u64,
}

impl Op {
    /// An operation of the first statement on the first node, to be changed with `..`.
    pub fn new(kind: Kind, key: u32, ver: u32, tok: u64) -> Op {
        Op { txn: 0, key, ver, statement: 0, node: 0, kind, tok, start_ns: 0 }
    }
}

/// One transaction. Times are nanoseconds of CLOCK_MONOTONIC of the recording host; 0 means unknown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Txn {
    /// When its first statement was sent.
    pub begin_ns: u64,
    /// When COMMIT was sent.
    pub commit_sent_ns: u64,
    /// When its end was known.
    pub end_ns: u64,
    /// Its session. After [`Outcome::Info`] or [`Outcome::Partial`] the session continues under a new number, because the transaction may still be
    /// running.
    pub session: u32,
    /// The node its session was connected to, see [`Names::nodes`].
    pub node: u8,
    /// What became of it.
    pub outcome: Outcome,
    /// The level it ran at, as `SHOW transaction_isolation` reported inside of it; `None`: unknown.
    pub isolation: Option<Isolation>,
    /// The SQLSTATE of the error that ended it; zeros: none.
    pub sqlstate: [u8; 5],
    /// The SQLSTATE of the warning that came with COMMIT; zeros: none.
    pub notice: [u8; 5],
}

impl Txn {
    /// An acknowledged transaction of a session, without any times.
    pub fn ok(session: u32) -> Txn {
        Txn {
            begin_ns: 0,
            commit_sent_ns: 0,
            end_ns: 0,
            session,
            node: 0,
            outcome: Outcome::Ok,
            isolation: None,
            sqlstate: [0; 5],
            notice: [0; 5],
        }
    }

    /// The same between two points in time.
    pub fn between(mut self, begin_ns: u64, end_ns: u64) -> Txn {
        (self.begin_ns, self.end_ns) = (begin_ns, end_ns);
        self
    }

    /// The same with another end.
    pub fn ending(mut self, outcome: Outcome) -> Txn {
        self.outcome = outcome;
        self
    }
}

/// Names for numbers, for readable witnesses. Any of them may be missing.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Names {
    /// The nodes, by [`Op::node`].
    pub nodes: Vec<String>,
    /// The shards.
    pub shards: Vec<String>,
    /// The shard of each key, as an index into [`Names::shards`].
    pub shard_of_key: Vec<u8>,
    /// The keys as EDN, if they are not plain numbers: the number 1 and the text "1" are two keys.
    pub keys: Vec<String>,
    /// The values that are not integers, as EDN; see [`VALUES_BASE`].
    pub values: Vec<String>,
}

impl Names {
    /// A key in words.
    pub fn key(&self, key: u32) -> String {
        self.keys.get(key as usize).cloned().unwrap_or_else(|| key.to_string())
    }

    /// A value or element in words.
    pub fn value(&self, tok: u64) -> String {
        let place = tok.checked_sub(VALUES_BASE).and_then(|place| usize::try_from(place).ok());
        match place.and_then(|place| self.values.get(place)) {
            Some(value) => value.clone(),
            None => (tok as i64).to_string(),
        }
    }

    /// The name of a node; empty if nodes have no names.
    pub fn node(&self, node: u8) -> Option<&str> {
        self.nodes.get(usize::from(node)).map(String::as_str)
    }

    /// The shard of a key; `None` where it was not recorded.
    pub fn shard(&self, key: u32) -> Option<&str> {
        let shard = *self.shard_of_key.get(key as usize)?;
        self.shards.get(usize::from(shard)).map(String::as_str)
    }
}

/// Transactions and what they did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct History {
    model: Model,
    ops: Vec<Op>,
    txns: Vec<Txn>,
    /// The start of each transaction's operations, and the end of the last one.
    first: Vec<u32>,
    elements: Vec<u64>,
    /// Names for numbers.
    pub names: Names,
    /// Whether its end is missing, so that writers of versions that were read may be missing.
    pub is_cut: bool,
}

impl Default for History {
    fn default() -> Self {
        History::new(Model::default())
    }
}

impl History {
    /// An empty history.
    pub fn new(model: Model) -> History {
        History {
            model,
            ops: Vec::new(),
            txns: Vec::new(),
            first: vec![0],
            elements: Vec::new(),
            names: Names::default(),
            is_cut: false,
        }
    }

    /// Adds a transaction with its operations in the order of execution; returns its index. [`Op::txn`] is set here.
    ///
    /// # Panics
    /// Beyond [`OPS_MAX`] and [`TXNS_MAX`]; readers of foreign files check these first.
    pub fn push(&mut self, txn: Txn, ops: &[Op]) -> u32 {
        assert!(self.has_room(1, ops.len()), "a history holds {OPS_MAX} operations at most");
        let number = self.txns.len() as u32;
        self.txns.push(txn);
        self.ops.extend(ops.iter().map(|op| Op { txn: number, ..*op }));
        self.first.push(self.ops.len() as u32);
        number
    }

    /// Whether so much more fits.
    pub fn has_room(&self, txns: usize, ops: usize) -> bool {
        self.txns.len() + txns <= TXNS_MAX && self.ops.len() + ops <= OPS_MAX
    }

    /// The read of a list: the elements are kept here, the operation holds their position.
    pub fn read_list(&mut self, key: u32, elements: &[u64]) -> Op {
        let start = self.elements.len() as u64;
        self.elements.extend_from_slice(elements);
        Op::new(Kind::Read, key, elements.len() as u32, start)
    }

    /// How values carry their version.
    pub fn model(&self) -> Model {
        self.model
    }

    /// All operations, transaction by transaction.
    pub fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// All transactions.
    pub fn txns(&self) -> &[Txn] {
        &self.txns
    }

    /// The places of one transaction's operations.
    pub fn range(&self, txn: u32) -> std::ops::Range<usize> {
        let at = txn as usize;
        self.first[at] as usize..self.first[at + 1] as usize
    }

    /// One transaction's operations.
    pub fn ops_of(&self, txn: u32) -> &[Op] {
        &self.ops[self.range(txn)]
    }

    /// The elements of all lists that were read.
    pub fn elements(&self) -> &[u64] {
        &self.elements
    }

    /// The list that an operation of an [`Model::Append`] history read.
    pub fn list(&self, op: &Op) -> &[u64] {
        let start = usize::try_from(op.tok).unwrap_or(usize::MAX);
        start.checked_add(op.ver as usize).and_then(|end| self.elements.get(start..end)).unwrap_or_default()
    }
}

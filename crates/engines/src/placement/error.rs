//! Why a placement cannot be read or must not be used.

use crate::cluster::sql_hint;
use crate::engine::Engine;

/// What is wrong.
#[derive(Debug, thiserror::Error)]
pub enum PlacementError {
    /// Nothing of this name.
    #[error("there is no table {schema}.{table}")]
    NoTable {
        /// Schema.
        schema: String,
        /// Table.
        table: String,
    },
    /// A relation without its own rows.
    #[error("{schema}.{table} is not a table")]
    NotATable {
        /// Schema.
        schema: String,
        /// Relation.
        table: String,
    },
    /// Leaves on a server that is not a node.
    #[error(
        "{table} has partitions on the server {server:?} at {address}, which is not a node of the cluster"
    )]
    UnknownNode {
        /// The table.
        table: String,
        /// The server by the catalog's name.
        server: String,
        /// Its address by the catalog.
        address: String,
    },
    /// Partitions behind an unknown foreign-data wrapper.
    #[error("the partition {leaf} is a foreign table of {wrapper}, which pgfathom cannot follow")]
    Wrapper {
        /// The partition.
        leaf: String,
        /// The foreign data wrapper.
        wrapper: String,
    },
    /// Some keys belong nowhere.
    #[error(
        "{table} has no partition for {missing} of {modulus} remainders: rows with such keys would be refused"
    )]
    Incomplete {
        /// The table.
        table: String,
        /// How many remainders.
        missing: usize,
        /// Of how many.
        modulus: u64,
    },
    /// The client and the server disagree.
    #[error(
        "the server routes {wrong} of {tried} keys of {table} differently from pgfathom's computation; the key {key} belongs to {theirs}, not {ours}"
    )]
    Mismatch {
        /// The table.
        table: String,
        /// Keys routed otherwise.
        wrong: usize,
        /// Keys compared.
        tried: usize,
        /// One of them.
        key: String,
        /// The leaf computed here.
        ours: String,
        /// The leaf by the server.
        theirs: String,
    },
    /// No key could be compared.
    #[error("none of the keys for the self-test of {table} could be routed")]
    NothingToTest {
        /// The table.
        table: String,
    },
    /// The engine's placement cannot be read over this protocol.
    #[error("the placement of a table of {engine} cannot be read: {reason}")]
    NotReadable {
        /// The engine.
        engine: Engine,
        /// Why.
        reason: String,
    },
    /// A partition is between two states.
    #[error("partition {leaf} of {table} is {state}")]
    Unsettled {
        /// The table.
        table: String,
        /// The partition.
        leaf: String,
        /// How.
        state: String,
    },
    /// The ranges of the partitions have a gap, or overlap.
    #[error("the partitions of {table} have a gap or an overlap after {after}")]
    Gap {
        /// The table.
        table: String,
        /// The end of what fits.
        after: String,
    },
    /// A question to the catalog failed.
    #[error("cannot {what}")]
    Sql {
        /// The query.
        what: String,
        /// The engine.
        engine: Engine,
        /// The server's answer.
        source: postgres::Error,
    },
    /// The catalog's reply is invalid.
    #[error("cannot {what}: {problem}")]
    Catalog {
        /// The query.
        what: String,
        /// What is wrong with the answer.
        problem: String,
    },
}

impl PlacementError {
    pub(super) fn sql(
        engine: Engine,
        what: impl Into<String>,
    ) -> impl FnOnce(postgres::Error) -> PlacementError {
        let what = what.into();
        move |source| PlacementError::Sql { what, engine, source }
    }

    /// What to type next.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            PlacementError::NoTable { .. } => "load it first, see pgfathom load --help".to_owned(),
            PlacementError::NotATable { .. } | PlacementError::Wrapper { .. } => {
                "name a database whose table is pgfathom's own, or load one, see pgfathom load --help"
                    .to_owned()
            }
            PlacementError::UnknownNode { server, .. } => format!(
                "add that node to the cluster file: [[node]] with name = \"{server}\", a role and the connection by which this host reaches it; if it is \
                 there, correct its connection"
            ),
            PlacementError::Incomplete { .. } => {
                "a partition may be moving to another node: wait until it is attached again".to_owned()
            }
            PlacementError::Mismatch { .. } => {
                "load through one node, which routes by itself: --via connect".to_owned()
            }
            PlacementError::Unsettled { .. } | PlacementError::Gap { .. } => {
                "a partition may be moving to another node: wait until the move has finished, or repair it"
                    .to_owned()
            }
            PlacementError::NothingToTest { .. } | PlacementError::NotReadable { .. } => {
                "use one node, which routes by itself: --via connect".to_owned()
            }
            PlacementError::Sql { engine, source, .. } => return sql_hint(Some(*engine), source),
            PlacementError::Catalog { .. } => return None,
        })
    }
}

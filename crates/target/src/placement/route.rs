//! From a key to the place of its leaf.

use std::fmt;

use crate::hash::{self, Key, KeyType};

/// How a key finds its leaf.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Routing {
    /// There is one leaf.
    Whole,
    /// The client computes it.
    Client {
        /// What the key consists of.
        columns: Vec<KeyColumn>,
        /// The engine's rule.
        rule: Rule,
    },
    /// Only the server can tell, for this reason.
    Server(String),
}

impl fmt::Display for Routing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Routing::Whole => f.write_str("one leaf"),
            Routing::Client { columns, rule } => {
                let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
                write!(f, "{rule} of ({})", names.join(", "))
            }
            Routing::Server(reason) => write!(f, "the server routes: {reason}"),
        }
    }
}

/// A column of a distribution key whose hash the client can compute.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyColumn {
    /// Its name, unquoted.
    pub name: String,
    /// How its values hash.
    pub key_type: KeyType,
    /// The server stores text in an encoding that is not ours: only ASCII has the same bytes there.
    pub ascii_only: bool,
}

impl KeyColumn {
    /// A key from its text; `None` when the client cannot know the bytes that the server hashes.
    #[inline]
    pub(crate) fn parse<'a>(&self, text: &'a [u8]) -> Option<Key<'a>> {
        let key = self.key_type.parse(text)?;
        self.takes(&key).then_some(key)
    }

    /// Whether the client may hash this value for the column.
    #[inline]
    pub(crate) fn takes(&self, key: &Key<'_>) -> bool {
        let bytes_known = match key {
            Key::Text(bytes) | Key::Bpchar(bytes) => !self.ascii_only || bytes.is_ascii(),
            _ => true,
        };
        key.key_type() == self.key_type && bytes_known
    }
}

/// An engine's rule for finding a leaf.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Rule {
    /// Hash partitions of PostgreSQL: the combined extended hash modulo the greatest modulus.
    PartitionHash {
        /// The greatest modulus of the table's partitions.
        modulus: u64,
        /// The leaf of each remainder.
        leaf_of: Vec<u32>,
    },
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rule::PartitionHash { modulus, .. } => write!(f, "hash partitions, modulus {modulus},"),
        }
    }
}

impl Rule {
    /// The leaf of a key whose values are of the columns' types.
    #[inline]
    pub(crate) fn leaf(&self, key: &[Option<Key<'_>>]) -> Option<usize> {
        match self {
            Rule::PartitionHash { modulus, leaf_of } => {
                let hashes = key.iter().map(|column| column.map(|key| key.extended(hash::PARTITION_SEED)));
                leaf_of.get((hash::partition_key(hashes) % modulus) as usize).map(|&leaf| leaf as usize)
            }
        }
    }
}

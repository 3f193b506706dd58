//! From a key to the index of its leaf.

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
    /// Only the server knows, for this reason.
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
    /// The server stores text in another encoding than ours: only ASCII has the same bytes there.
    pub ascii_only: bool,
}

impl KeyColumn {
    /// A key from its text; `None` if the client cannot know the bytes that the server hashes.
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
    /// Citus: ranges of the plain hash of one column, read as a signed number.
    HashRange {
        /// The least hash of each leaf, ascending; together they cover all hashes.
        starts: Vec<i32>,
    },
    /// Greenplum: a hash onto numbered segments.
    Segment {
        /// How many.
        segments: u32,
        /// By FNV-1 and a remainder instead of a jump hash.
        legacy: bool,
    },
    /// YugabyteDB: ranges of a 16-bit code.
    CodeRange {
        /// The least code of each leaf, ascending; together they cover all codes.
        starts: Vec<u32>,
    },
    /// CockroachDB: ranges of encoded keys.
    KeyRange {
        /// The table's number.
        table: u64,
        /// The primary index's number.
        index: u64,
        /// The first key of each leaf, ascending; the last leaf has no end.
        starts: Vec<Vec<u8>>,
    },
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rule::PartitionHash { modulus, .. } => write!(f, "hash partitions, modulus {modulus},"),
            Rule::HashRange { .. } => f.write_str("ranges of the hash"),
            Rule::Segment { segments, legacy: false } => write!(f, "jump hash onto {segments} segments"),
            Rule::Segment { segments, legacy: true } => write!(f, "FNV-1 onto {segments} segments"),
            Rule::CodeRange { .. } => f.write_str("ranges of the 16-bit code"),
            Rule::KeyRange { .. } => f.write_str("ranges"),
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
            Rule::HashRange { starts } => {
                let [Some(key)] = key else { return None };
                let hash = key.plain() as i32;
                starts.partition_point(|start| *start <= hash).checked_sub(1)
            }
            Rule::Segment { segments, legacy: false } => {
                Some(hash::segment(key.iter().map(|column| column.map(|key| key.plain())), *segments) as usize)
            }
            Rule::Segment { segments, legacy: true } => {
                hash::legacy_segment(key, *segments).map(|segment| segment as usize)
            }
            Rule::CodeRange { starts } => {
                let code = u32::from(hash::hash_code(key)?);
                starts.partition_point(|start| *start <= code).checked_sub(1)
            }
            Rule::KeyRange { table, index, starts } => {
                let key = hash::ordered_key(*table, *index, key)?;
                starts.partition_point(|start| *start <= key).checked_sub(1)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> [Option<Key<'_>>; 1] {
        [Some(Key::Text(text.as_bytes()))]
    }

    /// `n` shards as Citus makes them: equal ranges, the rest in the last one.
    fn citus(n: u32) -> Rule {
        let length = (1u64 << 32) / u64::from(n);
        Rule::HashRange {
            starts: (0..i64::from(n)).map(|i| (i64::from(i32::MIN) + i * length as i64) as i32).collect(),
        }
    }

    /// Known answers of Citus's own regression tests and of its sources.
    #[test]
    fn citus_shards_are_found_by_range() {
        for (value, hash) in [(1, -1905060026), (2, 1134484726), (3, -28094569), (4, -1011077333)] {
            assert_eq!(Key::Int4(value).plain() as i32, hash);
        }
        let shards = |n: u32| -> Vec<usize> {
            (1..=4).filter_map(|value| citus(n).leaf(&[Some(Key::Int4(value))])).collect()
        };
        assert_eq!(shards(4), [0, 3, 1, 1]);
        assert_eq!(shards(32), [1, 24, 15, 8]);
        assert_eq!(citus(32).leaf(&text("user1")), Some(13));
        assert_eq!(Key::Text(b"tenant-1").plain() as i32, -475_081_847);
        assert_eq!(citus(32).leaf(&text("tenant-1")), Some(12));
        assert_eq!(citus(4).leaf(&[None]), None, "a distribution column is never NULL");
        // Ranges that users split by hand.
        let uneven = Rule::HashRange { starts: vec![i32::MIN, -1905060026, -1905060025] };
        assert_eq!(uneven.leaf(&[Some(Key::Int4(1))]), Some(1));
    }

    #[test]
    fn codes_and_keys_are_found_by_range() {
        let tablets = Rule::CodeRange { starts: vec![0, 0x1210, 0x1211, 0xc0c5] };
        let leaf = |value: i32| tablets.leaf(&[Some(Key::Int4(value))]);
        assert_eq!((leaf(1), leaf(2), leaf(3)), (Some(1), Some(2), Some(3)));
        let key = |name: &str| hash::ordered_key(104, 1, &text(name)).expect("text is encoded");
        let ranges =
            Rule::KeyRange { table: 104, index: 1, starts: vec![vec![0xf0], key("user5"), key("user5 ")] };
        assert_eq!(ranges.leaf(&text("")), Some(0));
        assert_eq!(ranges.leaf(&text("user4~")), Some(0));
        assert_eq!(ranges.leaf(&text("user5")), Some(1));
        assert_eq!(ranges.leaf(&text("user50")), Some(2));
        assert_eq!(ranges.leaf(&[Some(Key::Bool(true))]), None);
    }
}

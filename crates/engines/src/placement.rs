//! Placement: which node and which leaf table hold which key, read from the target's own catalog.
//!
//! Nothing here assumes a placement ("partition r is on node r mod n"): administrators and rebalancers move partitions, so
//! the catalog is read, and read again when it matters; [`Placement::fingerprint`] shows whether anything moved. The client computes
//! the leaf of a key only for types whose hash it knows ([`crate::hash::KeyType`]) and only after [`Placement::self_test`] has
//! compared a sample with the server's own answer; for everything else [`Placement::by_server`] queries the server.

mod catalogued;
mod error;
mod native;
mod parts;
mod places;
mod route;

use postgres::GenericClient;

pub use error::PlacementError;
pub use parts::{Part, Parts};
pub use places::Places;
pub use route::{KeyColumn, Routing, Rule};

use crate::cluster::Cluster;
use crate::engine::Engine;
use crate::hash::{self, Key};
use crate::profile::Discovery;

/// A table with rows: a plain table, a partition, a shard.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Leaf {
    /// Schema on its node, unquoted.
    pub schema: String,
    /// Name on its node, unquoted.
    pub name: String,
    /// The node that holds it, in [`Cluster::nodes`].
    pub node: usize,
    /// Its object number *on the node whose catalog was read*; 0 where the engine has none.
    pub oid: u32,
    /// Which keys it holds.
    pub bound: Bound,
    /// Its name on the node whose catalog was read, if different: a foreign table for it.
    pub(crate) seen_as: (String, String),
    /// What the server's oracle calls it.
    pub(crate) id: String,
}

/// The keys that a leaf holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Bound {
    /// All of them.
    All,
    /// Keys whose hash leaves this remainder: hash partitions of PostgreSQL.
    Hash {
        /// Divisor; it differs between the partitions of a partly re-partitioned table.
        modulus: u32,
        /// Less than `modulus`.
        remainder: u32,
    },
    /// Keys whose signed 32-bit hash is in this range: Citus.
    Hash32 {
        /// Inclusive.
        least: i32,
        /// Inclusive.
        greatest: i32,
    },
    /// Rows of this segment: Greenplum.
    Segment(u32),
    /// Keys whose 16-bit code is in this range: YugabyteDB.
    Code {
        /// Inclusive.
        from: u32,
        /// Exclusive.
        to: u32,
    },
    /// Encoded keys in this range: CockroachDB.
    Keys {
        /// Inclusive.
        from: Vec<u8>,
        /// Exclusive.
        to: Vec<u8>,
    },
    /// Something else in the server's words.
    Other(String),
}

/// Where the rows of one table are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placement {
    engine: Engine,
    schema: String,
    table: String,
    /// Name and type of each column of the distribution key.
    key: Vec<(String, String)>,
    leaves: Vec<Leaf>,
    routing: Routing,
    on_every_node: bool,
}

impl Placement {
    /// Reads the placement of a table from the catalog of the node `entry`, to which `control` is connected.
    ///
    /// # Errors
    /// When there is no such table, when the catalog cannot be read, or when it names a node that `cluster` does not have.
    pub fn read(
        cluster: &Cluster,
        control: &mut impl GenericClient,
        entry: usize,
        schema: &str,
        table: &str,
    ) -> Result<Placement, PlacementError> {
        match &cluster.engine.discovery {
            Discovery::Native | Discovery::Copies(_) => native::read(cluster, control, entry, schema, table),
            Discovery::Catalog(catalog) => catalogued::read(catalog, cluster, control, entry, schema, table),
            Discovery::None(reason) => {
                Err(PlacementError::NotReadable { engine: cluster.engine, reason: (*reason).to_owned() })
            }
        }
    }

    /// The leaves, in the order of their bounds.
    pub fn leaves(&self) -> &[Leaf] {
        &self.leaves
    }

    /// How a key finds its leaf.
    pub fn routing(&self) -> &Routing {
        &self.routing
    }

    /// Whether each node has every row: then [`Leaf::node`] is the node whose catalog was read, and any other works, too.
    pub fn on_every_node(&self) -> bool {
        self.on_every_node
    }

    /// Schema of the table, unquoted.
    pub fn schema(&self) -> &str {
        &self.schema
    }

    /// The table, unquoted.
    pub fn table(&self) -> &str {
        &self.table
    }

    /// The columns of the distribution key, in the order for [`Placement::by_server`].
    pub fn key_columns(&self) -> impl Iterator<Item = &str> {
        self.key.iter().map(|(name, _)| name.as_str())
    }

    /// The leaf of a key that is one column, given as the server writes it. `None`: only the server knows.
    #[inline]
    pub fn leaf_of_text(&self, key: &[u8]) -> Option<usize> {
        match &self.routing {
            Routing::Whole => Some(0),
            Routing::Client { columns, rule } => {
                let [column] = columns.as_slice() else { return None };
                rule.leaf(&[Some(column.parse(key)?)])
            }
            Routing::Server(_) => None,
        }
    }

    /// The leaf of a key, one value per key column; NULL is `None`. The result is `None` when only the server knows.
    ///
    /// Values must be of the columns' types: hashes of equal numbers agree among the integer types, others do not.
    pub fn leaf_of(&self, key: &[Option<Key<'_>>]) -> Option<usize> {
        match &self.routing {
            Routing::Whole => Some(0),
            Routing::Client { columns, rule } => {
                let fits = columns.len() == key.len()
                    && columns.iter().zip(key).all(|(column, key)| key.is_none_or(|key| column.takes(&key)));
                if fits { rule.leaf(key) } else { None }
            }
            Routing::Server(_) => None,
        }
    }

    /// The leaf of a key that is one text column, from its hash under [`hash::PARTITION_SEED`]; for native hash partitions and tables without partitions.
    ///
    /// # Panics
    /// When the table is routed by something else, see [`Placement::routes_by_partition_hash`].
    #[inline]
    pub fn leaf_of_hash(&self, key_hash: u64) -> usize {
        match &self.routing {
            Routing::Whole => 0,
            Routing::Client { rule: Rule::PartitionHash { modulus, leaf_of }, .. } => {
                leaf_of[(hash::partition_key([Some(key_hash)]) % *modulus) as usize] as usize
            }
            other => panic!("a table with {other} is not routed by the hash of native partitions"),
        }
    }

    /// Whether [`Placement::leaf_of_hash`] has an answer for a key of one column.
    pub fn routes_by_partition_hash(&self) -> bool {
        match &self.routing {
            Routing::Whole => true,
            Routing::Client { columns, rule: Rule::PartitionHash { .. } } => columns.len() == 1,
            _ => false,
        }
    }

    /// A number that changes when a leaf moves to another node, is added, is removed or gets other bounds.
    pub fn fingerprint(&self) -> u64 {
        let mut text = format!("{}.{} {}", self.schema, self.table, self.routing);
        for Leaf { schema, name, node, bound, .. } in &self.leaves {
            text.push_str(&format!("\n{schema}\0{name}\0{node}\0{bound:?}"));
        }
        hash::bytes_extended(text.as_bytes(), 0)
    }

    /// The leaves of these keys by the server's own rule; `None` for a key that belongs nowhere. Each key is one text per key column.
    ///
    /// `control` is connected to a node whose catalog names the leaves as the one that was read.
    pub fn by_server(
        &self,
        control: &mut impl GenericClient,
        keys: &[Vec<Option<String>>],
    ) -> Result<Vec<Option<usize>>, PlacementError> {
        Ok(self.server_answers(control, keys)?.into_iter().map(Option::flatten).collect())
    }

    /// The same; a key without an answer of the server is `None`, one that belongs nowhere `Some(None)`.
    fn server_answers(
        &self,
        control: &mut impl GenericClient,
        keys: &[Vec<Option<String>>],
    ) -> Result<Vec<Option<Option<usize>>>, PlacementError> {
        if self.routing == Routing::Whole {
            return Ok(vec![Some(Some(0)); keys.len()]);
        }
        match &self.engine.discovery {
            Discovery::Catalog(catalog) => catalogued::by_server(catalog, self, control, keys),
            _ => Ok(native::by_server(self, control, keys)?.into_iter().map(Some).collect()),
        }
    }

    /// Compares the client's route of these keys with the server's own, before it is used. The keys have one column, as text.
    ///
    /// # Errors
    /// [`PlacementError::Mismatch`] on any difference; also when there are keys and none of them could be routed here.
    pub fn self_test<K: AsRef<[u8]>>(
        &self,
        control: &mut impl GenericClient,
        keys: &[K],
    ) -> Result<(), PlacementError> {
        let Routing::Client { .. } = &self.routing else { return Ok(()) };
        let mut ours = Vec::with_capacity(keys.len());
        let mut texts = Vec::with_capacity(keys.len());
        for key in keys {
            let text = std::str::from_utf8(key.as_ref());
            if let (Ok(text), Some(leaf)) = (text, self.leaf_of_text(key.as_ref())) {
                ours.push(leaf);
                texts.push(vec![Some(text.to_owned())]);
            }
        }
        if texts.is_empty() && !keys.is_empty() {
            return Err(PlacementError::NothingToTest { table: self.table.clone() });
        }
        self.compare(control, &texts, &ours)
    }

    /// The same for keys of several columns: their text and the leaf from [`Placement::leaf_of`].
    pub fn compare(
        &self,
        control: &mut impl GenericClient,
        keys: &[Vec<Option<String>>],
        ours: &[usize],
    ) -> Result<(), PlacementError> {
        let theirs = self.server_answers(control, keys)?;
        let tried = theirs.iter().flatten().count();
        if tried == 0 && !keys.is_empty() {
            return Err(PlacementError::NothingToTest { table: self.table.clone() });
        }
        let wrong: Vec<usize> =
            (0..keys.len()).filter(|&key| theirs[key].is_some_and(|leaf| leaf != Some(ours[key]))).collect();
        let Some(&first) = wrong.first() else { return Ok(()) };
        let name = |leaf: Option<usize>| leaf.map_or("no leaf".to_owned(), |leaf| self.leaf_title(leaf));
        let shown: Vec<&str> = keys[first].iter().map(|part| part.as_deref().unwrap_or("NULL")).collect();
        Err(PlacementError::Mismatch {
            table: self.table.clone(),
            wrong: wrong.len(),
            tried,
            key: shown.join(", "),
            ours: name(Some(ours[first])),
            theirs: name(theirs[first].flatten()),
        })
    }

    /// A leaf by name, and by the engine's name if the tables of all leaves have the same name.
    fn leaf_title(&self, leaf: usize) -> String {
        let Leaf { name, id, .. } = &self.leaves[leaf];
        if *name == self.table && self.leaves.len() > 1 { format!("{name} ({id})") } else { name.clone() }
    }
}

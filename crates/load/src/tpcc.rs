//! `load tpcc`: the nine tables of TPC-C, by COPY, with the ledger of all datasets.
//!
//! ```text
//! options -> schema (nine tables, ledger) -> streams (chunks: a warehouse's part of one group of tables) -> foreign keys
//!                                                 \-> builders (keys, indexes, statistics of tables that are complete)
//! ```
//!
//! A chunk is one warehouse's rows of one group of tables, and the groups come one after the other ([`plan`]): as soon as the last chunk of a group
//! is committed, its tables get their keys while the next group still loads. What holds for a load of YCSB rows holds here: rows and ledger
//! row are one transaction, so the database is exact at every moment and continuing is loading what the ledger lacks.

mod build;
pub(crate) mod cluster;
pub(crate) mod encode;
mod fill;
pub mod plan;
pub(crate) mod schema;
pub(crate) mod spread;

use data::tpcc::nurand::{C_LAST_A, Constants};
use data::tpcc::{Population, WAREHOUSES_MAX};
use postgres::GenericClient;

use crate::error::LoadError;
use crate::ledger::{self, Dataset};
use crate::options::RECONNECT_LIMIT;
use crate::plan::STREAMS_MAX;

pub use fill::{load_tpcc, load_tpcc_on};

/// The name of the dataset in the ledger. One per database: its tables have fixed names.
pub const TPCC: &str = "tpcc";

/// The least that PostgreSQL takes for a fill factor.
pub const FILLFACTOR_MIN: u32 = 10;

/// What `load tpcc` shall do.
#[derive(Clone, Debug)]
pub struct TpccOptions {
    /// Number of warehouses.
    pub warehouses: u32,
    /// Connections that load at once.
    pub streams: usize,
    /// Chooses all values; see [`data::tpcc`].
    pub seed: u64,
    /// Adds the foreign keys of clause 1.3.
    pub foreign_keys: bool,
    /// Fill factor in percent of the tables that transactions update; `None` is the server's default, or what the dataset was made with.
    pub fillfactor: Option<u32>,
    /// Drop what is ours and start over.
    pub restart: bool,
    /// Names of foreign tables that may be dropped because the user typed them.
    pub force: Vec<String>,
    /// Tablespace of tables and indexes; `None` is the server's default.
    pub tablespace: Option<String>,
    /// Partitions of each table but ITEM on a sharded cluster; `None`: what the cluster was made for.
    pub partitions: Option<u32>,
    /// How long a stream tries to get back to a server that went away.
    pub reconnect_limit: std::time::Duration,
}

impl TpccOptions {
    /// A load with every default.
    pub fn new(warehouses: u32) -> TpccOptions {
        TpccOptions {
            warehouses,
            streams: 2,
            seed: 1,
            foreign_keys: false,
            fillfactor: None,
            restart: false,
            force: Vec::new(),
            tablespace: None,
            partitions: None,
            reconnect_limit: RECONNECT_LIMIT,
        }
    }

    /// Refuses what no server has to be asked about.
    ///
    /// # Errors
    /// [`LoadError::Option`] with the flag's name.
    pub fn check(&self) -> Result<(), LoadError> {
        let refuse = |flag: &'static str, problem: String, hint: String| {
            Err(LoadError::Option { flag, problem, hint })
        };
        if self.warehouses == 0 || self.warehouses > WAREHOUSES_MAX {
            return refuse(
                "-s/--scale",
                format!("{} warehouses are not possible", self.warehouses),
                format!("give 1 to {WAREHOUSES_MAX}; each takes about 100 MB"),
            );
        }
        if self.streams == 0 || self.streams > STREAMS_MAX {
            return refuse(
                "-j",
                format!("{} streams are not possible", self.streams),
                format!("give 1 to {STREAMS_MAX}; start with about one per core of the server"),
            );
        }
        let is_ours = |name: &String| {
            let leaf_of = |table: &data::tpcc::Table| {
                let number = name.strip_prefix(table.name()).and_then(|rest| rest.strip_prefix("_p"));
                name == table.name() || number.is_some_and(|number| number.parse::<u32>().is_ok())
            };
            data::tpcc::Table::ALL.iter().any(leaf_of)
        };
        if let Some(name) = self.force.iter().find(|name| !is_ours(name)) {
            let names = data::tpcc::Table::ALL.map(data::tpcc::Table::name).join(", ");
            return refuse(
                "--force",
                format!("{name} is not a table of load tpcc, so nothing would be dropped"),
                format!("use {names}, without a schema"),
            );
        }
        if self.fillfactor.is_some_and(|percent| !(FILLFACTOR_MIN..=100).contains(&percent)) {
            return refuse(
                "--fillfactor",
                format!("{} percent are not possible", self.fillfactor.unwrap_or_default()),
                format!("give {FILLFACTOR_MIN} to 100; 90 leaves space for updates in the same page"),
            );
        }
        Ok(())
    }
}

/// Refuses what cannot be loaded into a cluster, touching no server.
///
/// # Errors
/// [`LoadError`] with a hint: the cluster repeats rows instead of spreading them, or there are fewer warehouses than nodes.
pub fn check_cluster(cluster: &engines::Cluster, options: &TpccOptions) -> Result<(), LoadError> {
    match crate::shape::Shape::of(cluster)? {
        crate::shape::Shape::Single => match options.partitions {
            None => Ok(()),
            Some(asked) => Err(LoadError::Option {
                flag: "--partitions",
                problem: format!("on one server the tables of TPC-C cannot have {asked} partitions"),
                hint: "omit it; it is for clusters sharded by postgres_fdw (pgfathom up sharded)".to_owned(),
            }),
        },
        crate::shape::Shape::Sharded => cluster::refuse(options, cluster.data_nodes().count()),
        crate::shape::Shape::Repeated => Err(LoadError::EveryRowEverywhere { engine: cluster.engine.name() }),
    }
}

/// All tables of a dataset, parents first; 0 partitions: on one server.
pub fn table_names(partitions: u32) -> Vec<String> {
    let parents = data::tpcc::Table::ALL.iter().map(|table| table.name().to_owned());
    let leaves = spread::spread_tables()
        .flat_map(|table| (0..partitions as usize).map(move |leaf| spread::leaf_name(table, leaf)));
    parents.chain(leaves).collect()
}

/// The TPC-C dataset of a database, as the ledger has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TpccDataset {
    /// What every dataset has: id, schema, seed, whether it is complete.
    pub dataset: Dataset,
    /// Number of warehouses: W_ID is 1 to this.
    pub warehouses: u32,
    /// C-Load of clause 2.1.6.1.
    pub c_load: u32,
    /// The foreign keys of clause 1.3 are, or will be, there.
    pub foreign_keys: bool,
    /// Fill factor in percent of the tables that transactions update; `None` is the server's default.
    pub fillfactor: Option<u32>,
}

impl TpccDataset {
    /// The rows that were loaded.
    pub fn population(&self) -> Population {
        Population::new(self.dataset.spec.seed)
    }

    /// The constants that every run on this dataset uses: C-Run keeps the distance from C-Load that clause 2.1.6.1 demands, and as they
    /// follow from the ledger alone, all processes of a run agree on them.
    pub fn run_constants(&self) -> Constants {
        Constants::for_run(self.c_load, self.dataset.spec.seed)
    }
}

/// The TPC-C dataset of a database, if its ledger has one.
///
/// # Errors
/// When the ledger is not ours, damaged, or the query fails.
pub fn find(client: &mut impl GenericClient) -> Result<Option<TpccDataset>, LoadError> {
    let Some(dataset) = ledger::find_dataset(client, TPCC)? else { return Ok(None) };
    let row = client
        .query_opt(
            "select warehouses, c_load, foreign_keys, fillfactor from pgfathom.tpcc where dataset = $1",
            &[&dataset.id],
        )
        .map_err(|source| LoadError::sql("reading pgfathom.tpcc", source))?;
    let damaged = |column: &'static str| LoadError::DamagedLedger { table: "tpcc", column };
    let row = row.ok_or_else(|| damaged("dataset"))?;
    let count = |index: usize, column, max: u32| {
        let value = u32::try_from(row.get::<_, i32>(index)).ok().filter(|value| *value <= max);
        value.ok_or_else(|| damaged(column))
    };
    let fillfactor = row.get::<_, Option<i32>>(3).map(|percent| percent.unsigned_abs());
    Ok(Some(TpccDataset {
        warehouses: count(0, "warehouses", WAREHOUSES_MAX)?,
        c_load: count(1, "c_load", C_LAST_A)?,
        foreign_keys: row.get(2),
        fillfactor,
        dataset,
    }))
}

#[cfg(test)]
pub(crate) mod tests;

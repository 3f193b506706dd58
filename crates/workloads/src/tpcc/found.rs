//! The TPC-C dataset of a database, as its ledger has it.

use std::collections::BTreeMap;

use data::tpcc::nurand::Constants;
use data::tpcc::{Population, WAREHOUSES_MAX};
use load::LoadError;
use load::dataset::OFF;
use load::ledger::{self, Dataset};
use postgres::GenericClient;

use super::schema::{self, TPCC};

/// The TPC-C dataset of a database.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TpccDataset {
    /// What every dataset has: id, schema, seed, whether it is complete.
    pub dataset: Dataset,
    /// Number of warehouses: W_ID is 1 to this.
    pub warehouses: u32,
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

    /// C-Load of clause 2.1.6.1.
    pub fn c_load(&self) -> u32 {
        self.population().c_load()
    }

    /// The constants that every run on this dataset uses: C-Run keeps the distance from C-Load that clause 2.1.6.1 demands, and as they
    /// follow from the ledger alone, all processes of a run agree on them.
    pub fn run_constants(&self) -> Constants {
        Constants::for_run(self.c_load(), self.dataset.spec.seed)
    }

    /// The dataset as the run directory names it.
    pub fn described(&self) -> record::model::Dataset {
        let partitions = Some(self.dataset.partitions).filter(|partitions| *partitions > 0);
        let optional = [("fillfactor", self.fillfactor), ("partitions", partitions)];
        let fields = [
            ("schema", self.dataset.schema_name.clone().into()),
            ("warehouses", self.warehouses.into()),
            ("c_load", self.c_load().into()),
            ("foreign_keys", self.foreign_keys.into()),
        ];
        let fields = fields
            .into_iter()
            .chain(optional.into_iter().filter_map(|(name, value)| Some((name, value?.into()))));
        record::model::Dataset {
            name: self.dataset.name.clone(),
            format_version: self.dataset.format,
            seed: self.dataset.spec.seed,
            rows: self.dataset.rows,
            parameters: fields.map(|(name, value)| (name.to_owned(), value)).collect(),
        }
    }

    /// The names of all its tables, parents first.
    pub fn table_names(&self) -> Vec<String> {
        load::dataset::table_names(&schema::tables(self.warehouses, self.fillfactor), self.dataset.partitions)
    }
}

/// The TPC-C dataset of a database, if its ledger has one: by itself, or with tables of another benchmark beside its own.
///
/// # Errors
/// When the ledger is not ours, damaged, or the query fails.
pub fn find(client: &mut impl GenericClient) -> Result<Option<TpccDataset>, LoadError> {
    match find_named(client, TPCC)? {
        Some(found) => Ok(Some(found)),
        None => find_named(client, crate::chbench::DATASET.name),
    }
}

/// The tables of TPC-C in the dataset of this name.
///
/// # Errors
/// As [`find`].
pub(crate) fn find_named(
    client: &mut impl GenericClient,
    name: &str,
) -> Result<Option<TpccDataset>, LoadError> {
    let Some(dataset) = ledger::find_dataset(client, name)? else { return Ok(None) };
    let recorded = ledger::parameters(client, dataset.id)?;
    let damaged = LoadError::DamagedLedger { table: "parameter", column: "value" };
    Ok(Some(TpccDataset {
        warehouses: warehouses(&recorded).ok_or(damaged)?,
        foreign_keys: has_foreign_keys(&recorded),
        fillfactor: fillfactor(&recorded),
        dataset,
    }))
}

pub(super) fn warehouses(recorded: &BTreeMap<String, String>) -> Option<u32> {
    recorded.get("scale")?.parse().ok().filter(|warehouses| (1..=WAREHOUSES_MAX).contains(warehouses))
}

pub(super) fn has_foreign_keys(recorded: &BTreeMap<String, String>) -> bool {
    recorded.get("foreign keys").is_some_and(|value| value != OFF)
}

pub(super) fn fillfactor(recorded: &BTreeMap<String, String>) -> Option<u32> {
    recorded.get("fill factor")?.parse().ok()
}

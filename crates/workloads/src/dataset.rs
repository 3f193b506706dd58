//! The list of datasets that `load` fills and `verify` proves.

use std::collections::BTreeMap;
use std::sync::Arc;

use data::ycsb::{Compressible, KeyOrder, Spec};
use engines::Cluster;
use load::dataset::Dataset;
use load::{LoadError, ledger};
use postgres::Client;

use crate::driving::Refusal;
use crate::replay::Replayed;
use crate::{chbench, documents, tpcb, tpcc, ycsb};

/// All of them, in the order in which help names them.
pub const DATASETS: &[Registration] =
    &[ycsb::DATASET, tpcc::DATASET, tpcb::DATASET, documents::DATASET, chbench::DATASET];

/// What `demo` shows.
pub const DEMO: Demo = Demo { dataset: ycsb::DATASET, workloads: ycsb::DEMO };

/// What is loaded on a throwaway server, and driven there.
#[derive(Clone, Copy, Debug)]
pub struct Demo {
    /// A dataset that is sized by rows.
    pub dataset: Registration,
    /// Built-in workloads on it, one after the other.
    pub workloads: &'static [&'static str],
}

/// The rows by which `self` measures what the client can compute.
pub const GENERATOR: Generator = ycsb::GENERATOR;

/// Rows that are computed and thrown away.
#[derive(Clone, Copy, Debug)]
pub struct Generator {
    /// What is computed.
    pub about: &'static str,
    /// Bytes of the values of a row.
    pub row_bytes: u64,
    /// Makes something that computes the row of a number.
    pub rows: fn() -> Box<dyn FnMut(u64)>,
    /// The same that puts the rows into messages of binary COPY of about so many bytes, and gives the length of each that is full.
    pub messages: fn(usize) -> Messages,
}

/// Takes the number of a row; gives the length of a message that is full.
pub type Messages = Box<dyn FnMut(u64) -> Option<usize>>;

/// Values of a dataset's own flags, or its parameters in the ledger, by name.
pub type Flags = BTreeMap<String, String>;

/// What the command knows of a dataset.
#[derive(Clone, Copy, Debug)]
pub struct Registration {
    /// What it is called on the command line and in the ledger.
    pub name: &'static str,
    /// What it is, in one line of help.
    pub about: &'static str,
    /// How it is sized.
    pub size: Size,
    /// The flags about content that it takes of those that several datasets have.
    pub takes: &'static [&'static str],
    /// Flags of its own.
    pub flags: &'static [Flag],
    /// A command that works.
    pub example: &'static str,
    /// Examples for help, without `pgfathom load`.
    pub examples: &'static [&'static str],
    /// What `-s/--scale` counts, and how large one is; `None`: it takes no scale.
    pub scale_unit: Option<&'static str>,
    /// Makes it as the user wants it.
    pub build: fn(&Request) -> Result<Box<dyn Dataset>, LoadError>,
    /// Makes it of what the ledger has. `None`: these make no dataset.
    pub recorded: fn(&Spec, &Flags) -> Option<Box<dyn Dataset>>,
    /// Replays what runs have written into it on a cluster; `None`: values do not say which write they come from.
    pub replay: Option<Replay>,
}

/// See [`Registration::replay`]. Gives nothing where there is no such dataset, or no run wrote into it.
pub type Replay = fn(&Cluster) -> Result<Option<Arc<dyn Replayed>>, Refusal>;

/// The flags that say how much is loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Size {
    /// `-s/--scale`.
    Scale,
    /// `--rows` or `--size`.
    Rows,
}

/// A flag of one dataset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flag {
    /// Without dashes.
    pub name: &'static str,
    /// What stands for its value in help.
    pub value_name: &'static str,
    /// Its line of help.
    pub help: &'static str,
}

/// What the user wants.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Request {
    /// `-s/--scale`.
    pub scale: Option<u64>,
    /// `--rows`.
    pub rows: Option<u64>,
    /// `--size`.
    pub bytes: Option<u64>,
    /// `--seed`.
    pub seed: u64,
    /// `--key-order`.
    pub key_order: KeyOrder,
    /// `--compressible`.
    pub compressible: Compressible,
    /// `--fillfactor`.
    pub fillfactor: Option<u32>,
    /// `--foreign-keys`.
    pub foreign_keys: bool,
    /// The dataset's own flags that were given.
    pub flags: Flags,
}

/// The dataset of this name.
pub fn named(name: &str) -> Option<&'static Registration> {
    DATASETS.iter().find(|dataset| dataset.name == name)
}

impl Registration {
    /// The dataset that a database holds, if it holds one of this name.
    ///
    /// # Errors
    /// When the ledger is not ours, or damaged.
    pub fn find(&self, client: &mut Client) -> Result<Option<Box<dyn Dataset>>, LoadError> {
        let Some(found) = ledger::find_dataset(client, self.name)? else { return Ok(None) };
        let mut flags = ledger::parameters(client, found.id)?;
        flags.insert("rows".to_owned(), found.rows.to_string());
        let damaged = LoadError::DamagedLedger { table: "parameter", column: "value" };
        (self.recorded)(&found.spec, &flags).map(Some).ok_or(damaged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_recorded_makes_the_same_dataset() {
        let request = Request {
            scale: Some(2),
            rows: Some(7),
            seed: 5,
            fillfactor: Some(90),
            flags: Flags::from([("document-size".to_owned(), "1kB..64kB".to_owned())]),
            ..Request::default()
        };
        for registration in DATASETS {
            let dataset = (registration.build)(&request).expect("possible");
            assert_eq!(dataset.name(), registration.name);
            let mut flags: Flags = dataset
                .parameters()
                .into_iter()
                .map(|parameter| (parameter.what.to_owned(), parameter.value))
                .collect();
            flags.insert("rows".to_owned(), dataset.rows().to_string());
            let again = (registration.recorded)(dataset.spec(), &flags).expect("recorded");
            assert_eq!(again.parameters(), dataset.parameters());
            assert_eq!(again.tables(), dataset.tables());
            assert!(!dataset.tables().is_empty() && dataset.rows() > 0);
        }
        let mut names: Vec<&str> = DATASETS.iter().map(|dataset| dataset.name).collect();
        names.dedup();
        assert_eq!(names.len(), DATASETS.len());
    }
}
